"""Connected components as Hellås measured them: hooks against Rem's algorithm, on one GPU and several.

    python benchmarks/gpu_components.py --json components.json            # all of it, on 1, 2 and 4 GPUs
    python benchmarks/gpu_components.py --only rounds,compress --devices 1 --graphs rgg,road
    python benchmarks/gpu_components.py --quick --devices cpu             # does it work?
    python benchmarks/gpu_components_tables.py components.json --plot docs/images  # tables, plots, later

Sections, by "Computing Connected Components on Multiple GPUs" (Bergen, 2018): rounds (0 to 3 rounds of
hooking without atomics, 6.3.1), compress (after a round or not, 6.3.2), runtime (each method at its best,
on all numbers of devices, 6.3.3 and 6.4.1), strong (one graph, more devices: efficiency and speed-up, 6.3.4
and 6.3.6), weak (as many copies as devices, 6.3.5), expanded (copies without an arc between them, 6.3.7),
merge (forests merged in pairs, or links in the memory of the other devices, 4.2.4), streamed (edges come
from the host while devices link, as all of his do). Graphs are generated, at least one for each of his
kinds (gpu_components_plans.py). ``--devices cpu,cpu:2``: edges stream to the CPU, and to two parts of it.

Times are those in which kernels ran, of a graph placed before, median and quartiles of up to 5 runs after a
first one that is left out; on the CPU, and where edges stream, those of the run, as his are. The labels of
the first run are compared with the CPU's, which another program has found. A setting that several sections
ask for is measured once. Rows go to the file of ``--json`` after every placed graph.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from component_graphs import generate
from godwit.algorithms.components.cuda import LabelArrays
from godwit.errors import GodwitError, RunTimeoutError
from godwit.runtime.cuda import driver
from godwit.supersteps import place_positions
from gpu_components_plans import (
    DIRECT,
    KINDS,
    ON_SEVERAL,
    PLANS,
    Setting,
    device_names,
    is_known,
    kind_of,
    spec_of,
)
from gpu_runs import (
    OUT_OF_TIME,
    ElsewhereError,
    Found,
    Row,
    chosen,
    chosen_devices,
    kernel_ms,
    limits_of,
    options,
    run,
)


@dataclass(frozen=True)
class Stream:
    """What a placed graph is where edges stream: its edges, each once, in host memory, and how many ids."""

    edges: Any
    vertices: int


@cache
def streamed(graph: gw.Graph) -> Stream:
    """The edges of an undirected graph, row by row; page-locked if there are GPUs to get them."""
    sources = np.repeat(
        np.arange(graph.vertex_count, dtype=graph.targets.dtype), graph.out_degree()
    )
    kept = sources < graph.targets
    shape = int(np.count_nonzero(kept)), 2
    if driver.device_count() == 0:
        edges = np.empty(shape, sources.dtype)
    else:
        import cupyx

        edges = cupyx.empty_pinned(shape, sources.dtype)
    edges[:, 0], edges[:, 1] = sources[kept], graph.targets[kept]
    return Stream(edges, graph.vertex_count)


def query(placed: gw.PlacedGraph | Stream, setting: Setting, limits: argparse.Namespace) -> Any:
    """Ask once."""
    options: dict[str, Any] = {
        "method": setting.method,
        "rounds": setting.rounds,
        "jumps": setting.jumps,
        "timeout_s": limits.timeout_s,
    }
    if isinstance(placed, Stream):
        return gw.connected_components_of_edges(
            placed.edges,
            vertex_count=placed.vertices,
            devices=device_names(setting.devices),
            **options,
        )
    return gw.connected_components(placed, merge=setting.merge, **options)


def time_ms(result: Any, setting: Setting) -> float:
    """Of the algorithm itself; where edges stream, of the whole run, labels on the host included."""
    if setting.streamed:
        seconds = result.statistics.seconds
        return 1e3 * float(seconds["run"] + seconds.get("gather", 0.0))
    return kernel_ms(result.statistics, setting.devices)


def what_is_wrong(found: Any, wanted: Any) -> str:
    """Nothing, or the first label that is not the CPU's."""
    differ = np.flatnonzero(found != wanted)
    if not len(differ):
        return ""
    v = int(differ[0])
    return f"{len(differ)} labels, first vertex {v}: {found[v]} instead of {wanted[v]}"


def own_bytes(placed: gw.PlacedGraph | Stream, setting: Setting) -> int | None:
    """Of what the query has on the GPU that has most, beside the graph; None elsewhere."""
    if isinstance(placed, Stream) or setting.devices == "cpu":
        return None
    steps: Any = place_positions(placed)
    arrays = steps.kept(LabelArrays)
    own = (arrays.parents, arrays.labels, arrays.left_rows)
    return max(sum(array.nbytes(part) for array in own) for part in steps.parts)


def measured(
    placed: gw.PlacedGraph | Stream, setting: Setting, wanted: Any, limits: argparse.Namespace
) -> Row:
    """Run a setting until it has been repeated, or its time is up."""
    times_ms: list[float] = []
    query_ms: list[float] = []
    wrong = ""
    start = perf_counter()
    while len(times_ms) <= limits.repeats:
        begin = perf_counter()
        result = query(placed, setting, limits)
        query_ms.append(1e3 * (perf_counter() - begin))
        times_ms.append(time_ms(result, setting))
        if len(times_ms) == 1:
            wrong = what_is_wrong(result.label, wanted)
            start = perf_counter()
        elif perf_counter() - start > limits.setting_s:
            break
    quarter, median, three = np.percentile(times_ms[1:], [25, 50, 75])
    found = result.statistics
    return {
        "runs": len(times_ms) - 1,
        "kernel_ms": float(median),
        "quartiles_ms": [float(quarter), float(three)],
        "first_ms": times_ms[0],
        "query_ms": float(np.median(query_ms[1:])),
        "phases_ms": {name: 1e3 * float(seconds) for name, seconds in found.seconds.items()},
        "took": result.method,
        "supersteps": int(np.max(found.rounds, initial=0)),
        "looked": int(np.sum(found.arcs_relaxed)),
        "own_bytes": own_bytes(placed, setting),
        "wrong": wrong,
    }


def shown(row: Row) -> str:
    """One row for people."""
    if "note" in row:
        return str(row["note"])
    quarter, three = row["quartiles_ms"]
    wrong = f" WRONG: {row['wrong']}" if row["wrong"] else ""
    return (
        f"{row['kernel_ms']:.3f} ms ({quarter:.3f} to {three:.3f}, {row['runs']} runs, first "
        f"{row['first_ms']:.2f}), query {row['query_ms']:.2f}{wrong}"
    )


def one_setting(placed: gw.PlacedGraph | Stream, setting: Setting, wanted: Any, limits: Any) -> Row:
    """Whatever goes wrong costs this setting only."""
    if perf_counter() > limits.deadline:
        return {"note": OUT_OF_TIME}
    try:
        return measured(placed, setting, wanted, limits)
    except RunTimeoutError:
        return {"note": f"more than {limits.timeout_s:g} s"}
    except Exception as error:
        ours = isinstance(error, GodwitError | ElsewhereError)
        return {"note": f"failed: {'' if ours else type(error).__name__ + ': '}{error}"}


def measure_place(
    graph: gw.Graph, settings: Sequence[Setting], wanted: Any, facts: Row, limits: Any
) -> Found:
    """All settings of one place; those first that need the least room, which is kept."""
    first = settings[0]
    begin = perf_counter()
    rows: Found = {}
    with ExitStack() as stack:
        placed: gw.PlacedGraph | Stream
        if first.streamed:
            placed = streamed(graph)
            facts = facts | {"edges": len(placed.edges)}
        else:
            placed = stack.enter_context(gw.place(graph, device_names(first.devices)))
        how = "edges made" if first.streamed else "placed"
        print(f"# {first.graph}, devices {first.devices}: {how} in "
              f"{perf_counter() - begin:.1f} s", flush=True)  # fmt: skip
        for setting in sorted(settings, key=lambda one: one.merge != DIRECT):
            rows[setting] = facts | one_setting(placed, setting, wanted, limits)
            print(f"#   {setting.words}: {shown(rows[setting])}", flush=True)
    return rows


def measure_graph(name: str, settings: Sequence[Setting], limits: Any) -> Iterable[Found]:
    """All settings of a graph, place by place."""
    begin = perf_counter()
    spec = spec_of(name, quick=limits.quick)
    on_gpu = driver.device_count() > 0 and spec.startswith(("rmat:", "road:"))
    graph = generate(spec, device="cuda:0" if on_gpu else None)
    made_s, begin = perf_counter() - begin, perf_counter()
    wanted = gw.connected_components(graph, devices="cpu")
    facts = {
        "kind": kind_of(name)[0].words,
        "vertices": graph.vertex_count,
        "arcs": graph.arc_count,
        "graph_bytes": graph.nbytes,
        "components": wanted.count,
    }
    print(f"# {name} ({spec}): {graph.vertex_count:,} vertices, {graph.arc_count:,} arcs, "
          f"{wanted.count:,} components; made in {made_s:.1f} s, checked against the CPU's of "
          f"{perf_counter() - begin:.1f} s", flush=True)  # fmt: skip
    groups: dict[tuple[str, bool], list[Setting]] = {}
    for setting in settings:
        groups.setdefault(setting.place, []).append(setting)
    for group in groups.values():
        try:
            yield measure_place(graph, group, wanted.label, facts, limits)
        except GodwitError as error:
            print(f"# {name}, {group[0].devices}: {error}", flush=True)
            yield {setting: {"note": str(error)} for setting in group}
    streamed.cache_clear()


def measure(settings: Iterable[Setting], limits: Any) -> Iterable[Found]:
    """Rows of settings, as they come: graph by graph, device list by device list."""
    by_graph: dict[str, list[Setting]] = {}
    for setting in dict.fromkeys(settings):
        by_graph.setdefault(setting.graph, []).append(setting)
    for name, some in by_graph.items():
        if perf_counter() > limits.deadline:
            yield {setting: {"note": OUT_OF_TIME} for setting in some}
            continue
        try:
            yield from measure_graph(name, some, limits)
        except GodwitError as error:
            print(f"# {name}: {error}", flush=True)
            yield {setting: {"note": str(error)} for setting in some}


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = options(__doc__, repeats=5, setting_s=1.5)
    parser.add_argument("--only", default=",".join(PLANS), help="sections, by commas")
    parser.add_argument(
        "--graphs", default="", help=f"only these of {', '.join(KINDS)}, and their copies (rggx10)"
    )
    parser.add_argument(
        "--devices", help="numbers of GPUs, or such as 0+0, cpu, or cpu:2; 1,2,4 by default"
    )
    parser.add_argument("--quick", action="store_true", help="small graphs in the place of all")
    parser.add_argument("--plot", help="folder for plots, as SVG (Matplotlib)")
    limits = limits_of(parser)
    limits.only = chosen("--only", limits.only, PLANS)
    limits.graphs = [name for name in limits.graphs.split(",") if name]
    unknown = [name for name in limits.graphs if not is_known(name)]
    if unknown:
        sys.exit(f"--graphs takes {', '.join(KINDS)}, and such as rggx10, not {', '.join(unknown)}")
    limits.devices = parsed_devices(limits.devices, quick=limits.quick)
    return limits


def parsed_devices(text: str | None, *, quick: bool) -> list[str]:
    """The CPU and parts of it as they are named, GPUs as far as they are there."""
    words = (text or "").split(",")
    on_cpu = [word for word in words if re.fullmatch(r"cpu(:[1-9]\d*)?", word)]
    others = ",".join(word for word in words if word not in on_cpu)
    on_gpus = [] if on_cpu and not others else chosen_devices(others or text, tiny=quick)
    return on_cpu + on_gpus


def plans_of(limits: argparse.Namespace) -> dict[str, list[tuple[str, Setting]]]:
    """What is asked for, by sections; what there is nothing to measure of is said."""
    plans = {}
    for section in limits.only:
        plan = list(PLANS[section](limits.devices))
        if limits.graphs:
            plan = [one for one in plan if one[1].graph in limits.graphs]
        if plan:
            plans[section] = plan
        else:
            why = " (it needs several GPUs)" if section in ON_SEVERAL else ""
            print(f"# {section}: nothing to measure on {','.join(limits.devices)}{why}")
    return plans


def main() -> None:
    """Measure what was asked for."""
    from gpu_components_tables import show

    limits = parsed()
    plans = plans_of(limits)
    run(
        plans,
        lambda settings: measure(settings, limits),
        lambda rows: show(rows, limits.plot),
        limits.json,
        {"quick": limits.quick},
    )


if __name__ == "__main__":
    main()
