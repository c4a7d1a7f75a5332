"""What each part of the GPU solver is worth: options, priority, partitioners, latency, volume, time.

    python benchmarks/gpu_ablation.py --json ablation.json            # all of it, on 1, 2 and 4 GPUs
    python benchmarks/gpu_ablation.py --only rounds,breakdown --devices 1
    python benchmarks/gpu_ablation.py --tiny --devices 1,0+0          # does it work? takes seconds

Sections: options (table 4 of the Groute paper by options of the solver), work (items with and without
priority, over contiguous and METIS partitions), partitioners (figure 2 of the multi-GPU Gunrock paper),
latency and volume (its section V-A), rounds (its section V-B: what a round costs that does hardly more than
meet), breakdown (what the time of a query is spent on). Times are those that kernels ran, median; the first
run of a setting is compared with the CPU's result. Tables are those of benchmarks/RESULTS.md. A setting
that several sections ask for is measured once, and a graph is made and placed once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from godwit.errors import GodwitError, RunTimeoutError
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from gpu_paths import device_list, source_of
from gpu_runs import OUT_OF_TIME, Found, Row, chosen, limits_of, options, run, usable

EVERYTHING_DUE = 1e30
"""A delta past all priorities: the bound stops nothing, so there is no priority."""

FUSED = GpuOptions()

STEP = ExperimentOptions(hops=1)
"""A block processes what it took up, and meets the others before it goes on."""

HOST_STEP = ExperimentOptions(hops=1, slice_s=0)
"""The host starts a kernel for every round."""

OPTIONS: dict[str, tuple[float | None, GpuOptions]] = {
    "no priority, host-launched": (EVERYTHING_DUE, HOST_STEP),
    "soft priority, host-launched": (None, HOST_STEP),
    "fused, a step a round": (None, STEP),
    "fused, running ahead": (None, FUSED),
}
PRIORITIES: dict[str, tuple[float | None, GpuOptions]] = {
    "priority": (None, FUSED),
    "none, running ahead": (EVERYTHING_DUE, FUSED),
    "none, a step a round": (EVERYTHING_DUE, STEP),
}
METHODS = ("contiguous", "random", "biased-random", "metis")
LATENCIES_NS = (0, 1_000, 10_000, 100_000)
VOLUMES = (1, 2, 4, 8)
PATH_VERTICES = 4096

GRAPHS = {
    "road4900": "road:4900,keep=0.6,seed=1,weights=1..64",
    "road1000": "road:1000,keep=0.6,seed=1,weights=1..64",
    "rmat22": "rmat:22,edge_factor=16,seed=1,weights=1..64",
    "path": f"path:{PATH_VERTICES}",
}
TINY_GRAPHS = {
    "road4900": "road:60,keep=0.6,seed=1,weights=1..64",
    "road1000": "road:40,keep=0.6,seed=1,weights=1..64",
    "rmat22": "rmat:10,edge_factor=16,seed=1,weights=1..64",
    "path": "path:200",
}


@dataclass(frozen=True)
class Setting:
    """A query in a certain way. Those that are equal are measured once.

    :param devices: as gpu_paths.device_list reads it: ``"2"``, or ``"0+0"`` for two endpoints of a GPU
    :param partition: a method, or ``"alternating"``: neighbours on a path belong to different devices
    """

    graph: str
    algorithm: str
    devices: str
    partition: str = "contiguous"
    delta: float | None = None
    gpu: GpuOptions = FUSED

    @property
    def place(self) -> tuple[str, str, str]:
        """Settings of the same place share a placed graph."""
        return self.graph, self.devices, self.partition


Plan = Iterable[tuple[str, Setting]]
"""Settings, each with the name by which its section's table calls it."""


def queries(graphs: Sequence[str], devices: Sequence[str]) -> list[tuple[str, str, str]]:
    return [(g, a, d) for g in graphs for a in ("bfs", "sssp") for d in devices]


def several(devices: Sequence[str]) -> list[str]:
    return [text for text in devices if len(device_list(text)) > 1]


def plan_options(devices: Sequence[str]) -> Plan:
    for query in queries(("road4900", "rmat22"), devices):
        for name, (delta, gpu) in OPTIONS.items():
            yield name, Setting(*query, delta=delta, gpu=gpu)


def plan_work(devices: Sequence[str]) -> Plan:
    for method in ("contiguous", "metis"):
        graphs = ("road4900", "road1000", "rmat22") if method == "contiguous" else ("road1000",)
        for query in queries(graphs, devices if method == "contiguous" else several(devices)):
            for name, (delta, gpu) in PRIORITIES.items():
                yield name, Setting(*query, partition=method, delta=delta, gpu=gpu)


def plan_partitioners(devices: Sequence[str]) -> Plan:
    for query in queries(("rmat22", "road1000"), several(devices)):
        for method in METHODS:
            yield method, Setting(*query, partition=method)


def plan_latency(devices: Sequence[str]) -> Plan:
    for query in queries(("road4900", "rmat22"), several(devices)[-1:]):
        for latency_ns in LATENCIES_NS:
            yield (
                f"+{latency_ns // 1000} µs",
                Setting(*query, gpu=ExperimentOptions(latency_ns=latency_ns)),
            )


def plan_volume(devices: Sequence[str]) -> Plan:
    for query in queries(("road4900", "rmat22"), several(devices)[-1:]):
        for volume in VOLUMES:
            yield f"x {volume}", Setting(*query, gpu=ExperimentOptions(volume=volume))


def plan_rounds(devices: Sequence[str]) -> Plan:
    for text in devices:
        yield "nothing sent", Setting("path", "bfs", text, gpu=STEP)
    for text in several(devices):
        yield "an item sent", Setting("path", "bfs", text, "alternating", gpu=STEP)


def plan_breakdown(devices: Sequence[str]) -> Plan:
    for query in queries(("road4900", "rmat22"), devices):
        yield "", Setting(*query)
    yield from plan_rounds(devices)


PLANS: dict[str, Callable[[Sequence[str]], Plan]] = {
    "options": plan_options,
    "work": plan_work,
    "partitioners": plan_partitioners,
    "latency": plan_latency,
    "volume": plan_volume,
    "rounds": plan_rounds,
    "breakdown": plan_breakdown,
}


def measured(
    placed: gw.PlacedGraph, setting: Setting, source: int, wanted: Any, limits: argparse.Namespace
) -> Row:
    """Run a setting until it has been repeated, or its time is up.

    The first run, which is checked, counts only where there is no time for another.
    """
    kernel_ms: list[float] = []
    query_ms: list[float] = []
    phases: list[dict[str, float]] = []
    wrong = ""
    tuning: Row = {"gpu": setting.gpu, "timeout_s": limits.timeout_s, "execution": "asynchronous"}
    if setting.delta is not None:
        tuning["worker"] = gw.WorkerOptions(delta=setting.delta)
    start = perf_counter()
    while len(kernel_ms) <= limits.repeats:
        begin = perf_counter()
        result = getattr(gw, setting.algorithm)(placed, source, **tuning)
        query_ms.append(1e3 * (perf_counter() - begin))
        found = result.statistics
        kernel_ms.append(1e3 * found.seconds["kernel"])
        phases.append({name: 1e3 * seconds for name, seconds in found.seconds.items()})
        if len(kernel_ms) == 1:
            differing = int(np.count_nonzero(result.distance != wanted))
            wrong = f"{differing} distances" if differing else ""
        if perf_counter() - start > limits.setting_s:
            break
    kept = slice(1, None) if len(kernel_ms) > 1 else slice(None)
    quarter, median, three = np.percentile(kernel_ms[kept], [25, 50, 75])
    reached = int(np.count_nonzero(result.reached))
    return {
        "runs": len(kernel_ms[kept]),
        "kernel_ms": float(median),
        "quartiles_ms": [float(quarter), float(three)],
        "query_ms": float(np.median(query_ms[kept])),
        "phases_ms": {
            name: float(np.median([one.get(name, 0.0) for one in phases[kept]]))
            for name in phases[-1]
        },
        "used_delta": found.delta,
        "rounds": int(found.rounds.max()),
        "reached": reached,
        "processed": int(found.processed_items.sum()),
        "useless": int(found.useless_items.sum()),
        "arcs": int(found.arcs_relaxed.sum()),
        "sent": int(found.sent_items.sum()),
        "sent_bytes": int(found.sent_items.sum()) * (found.item_bytes or 0) * setting.gpu.volume,
        "busy": [float(share) for share in found.busy_share],
        "wrong": wrong,
    }


def division(setting: Setting, vertices: int) -> Any:
    if setting.partition != "alternating":
        return setting.partition
    return np.arange(vertices) % len(device_list(setting.devices))


def changed(setting: Setting) -> Row:
    """What differs from the solver's own choice."""
    chosen = {"delta": setting.delta} if setting.delta is not None else {}
    own = vars(FUSED)
    return chosen | {key: value for key, value in vars(setting.gpu).items() if value != own[key]}


def measure_place(
    graph: gw.Graph, settings: Sequence[Setting], source: int, wanted: Row, limits: Any
) -> Found:
    """All settings of one place."""
    first = settings[0]
    method = division(first, graph.vertex_count)
    if first.partition == "metis" and first.graph not in limits.metis.split(","):
        note = "not asked for (--metis)"
        return {setting: {"note": note} for setting in settings}
    rows: Found = {}
    with gw.place(graph, device_list(first.devices), method) as placed:
        cut = placed.partition
        print(f"# {first.graph}, {first.partition}, GPUs {first.devices}: placed in "
              f"{sum(placed.seconds.values()):.1f} s", flush=True)  # fmt: skip
        if first.partition == "metis" and cut.method != "metis":
            return {setting: {"note": cut.note} for setting in settings}
        facts = {
            "cut_fraction": cut.cut_fraction,
            "border_vertices": cut.border_vertices,
            "balance": cut.balance,
            "place_s": dict(placed.seconds),
        }
        for setting in settings:
            if perf_counter() > limits.deadline:
                rows[setting] = {"note": OUT_OF_TIME}
                continue
            try:
                row = measured(placed, setting, source, wanted[setting.algorithm], limits)
            except RunTimeoutError:
                row = {"note": f"over {limits.timeout_s:g} s"}
            rows[setting] = facts | row
            shown = row.get("note") or f"{row['kernel_ms']:.3f} ms in {row['rounds']} rounds"
            print(f"#   {setting.algorithm} {changed(setting)}: {shown}", flush=True)
            if row.get("wrong"):
                print(f"# WRONG: {row['wrong']} vertices: {setting}", flush=True)
    return rows


def measure(settings: Iterable[Setting], limits: argparse.Namespace) -> Iterable[Found]:
    """Rows of settings, as they come; graph by graph, place by place."""
    places: dict[tuple[str, str, str], list[Setting]] = {}
    for setting in dict.fromkeys(settings):
        places.setdefault(setting.place, []).append(setting)
    for name, spec in (TINY_GRAPHS if limits.tiny else GRAPHS).items():
        here = [group for place, group in places.items() if place[0] == name]
        if not here:
            continue
        begin = perf_counter()
        graph = gw.generate(spec, device=None if name == "path" else device_list("1")[0])
        print(f"# {name}: {graph.vertex_count:,} vertices, {graph.arc_count:,} arcs, made in "
              f"{perf_counter() - begin:.1f} s", flush=True)  # fmt: skip
        source = 0 if name == "path" else source_of(name, graph)
        algorithms = {setting.algorithm for group in here for setting in group}
        wanted = {a: getattr(gw, a)(graph, source, devices="cpu").distance for a in algorithms}
        for group in here:
            try:
                yield measure_place(graph, group, source, wanted, limits)
            except GodwitError as error:
                print(f"# {group[0].place}: {error}", flush=True)
                yield {setting: {"note": str(error)} for setting in group}


def show(rows: Sequence[Row]) -> None:
    """The table of every section."""
    from gpu_ablation_tables import TABLES

    for section in dict.fromkeys(row["section"] for row in rows):
        print(f"\n{TABLES[section]([row for row in rows if row['section'] == section])}")


def main() -> None:
    """Measure what was asked for."""
    parser = options(__doc__, repeats=5, setting_s=0.8, timeout_s=5.0)
    parser.add_argument("--only", default=",".join(PLANS), help="sections, by commas")
    parser.add_argument("--devices", default="1,2,4", help="numbers of GPUs, or such as 0+0")
    parser.add_argument("--metis", default="road1000", help="graphs for which METIS is tried")
    parser.add_argument("--tiny", action="store_true", help="small graphs in the place of all")
    limits = limits_of(parser)
    sections = chosen("--only", limits.only, PLANS)
    devices = usable(limits.devices)
    plans = {section: list(PLANS[section](devices)) for section in sections}
    run(
        plans,
        lambda settings: measure(settings, limits),
        show,
        limits.json,
        {"tiny": limits.tiny},
    )


if __name__ == "__main__":
    main()
