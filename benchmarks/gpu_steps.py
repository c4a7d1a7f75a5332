"""What runs in supersteps on GPUs: BFS, PageRank, betweenness, programs; their costs; what GPUs add.

    python benchmarks/gpu_steps.py --json steps.json               # all of it, on 1, 2 and 4 GPUs
    python benchmarks/gpu_steps.py --only bfs,overhead --devices 1 --graphs rmat22,path
    python benchmarks/gpu_steps.py --tiny                          # does it work? on the CPU if need be
    python benchmarks/gpu_steps_tables.py steps.json --plot docs/images    # tables and a plot, later

Sections: overhead (a path: one vertex and one arc a superstep), bfs (direction-optimizing), auto (which
solver ``execution="auto"`` takes, and what it costs beside the better one), pagerank (an iteration; all),
betweenness, scaling (strong; weak in vertices and in edges), ids (32 and 64 bits, as in table V of
multi-GPU Gunrock), wide (more arcs than 32 bits count), memory (what queues of frontiers begin with, and
what fusing spares: figure 3 of multi-GPU Gunrock), programs (vertex programs in supersteps, step programs:
its table I), schedules (how rows are shared out), communication (who is told, and what room that takes),
components (connected components by every method, and how devices come to one result).

Times are those in which kernels ran (``statistics.seconds["kernel"]``, and ``["exchange"]`` where the host
copied between them), of a graph placed before, median
and quartiles of 7 runs after a first one that is left out. The first result is checked
(gpu_steps_checks.py): distances and core numbers against the CPU's, ranks after 5 iterations, too,
components against SciPy's, colourings by what they must be, betweenness against the CPU's where the graph
is small, else by its sum. A setting that several sections ask for is measured once; a graph is made and
placed once, but for each policy of memory. Rows go to the file of ``--json`` after every placed graph, so
that a run that is cut off leaves them behind.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from godwit.errors import GodwitError, RunTimeoutError
from godwit.runtime.cuda import driver
from godwit.supersteps import place_positions
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
from gpu_steps_checks import Reference, UncheckedError, what_is_wrong
from gpu_steps_plans import GRAPHS, LEFT_OUT, PLANS, TINY_GRAPHS, Setting, device_names
from gpu_steps_queries import (
    UnknownSizeError,
    carried_bytes,
    frontier_bytes,
    note_size,
    query,
)


def measured(placed: gw.PlacedGraph, setting: Setting, known: Reference, limits: Any) -> Row:
    """Run a setting until it has been repeated, or its time is up.

    The first run is checked and does not count; one that does is made whatever time it takes.
    """
    times_ms: list[float] = []
    query_ms: list[float] = []
    wrong = unchecked = ""
    start = perf_counter()
    growths, nbytes, carried = 0, None, None
    while len(times_ms) <= limits.repeats:
        begin = perf_counter()
        result = query(placed, setting, known, limits)
        query_ms.append(1e3 * (perf_counter() - begin))
        times_ms.append(kernel_ms(result.statistics, setting.devices))
        if len(times_ms) == 1:
            growths = int(result.statistics.growths)
            nbytes = frontier_bytes(placed, setting, result.statistics)
            carried = carried_bytes(placed, setting)
            try:
                wrong = what_is_wrong(placed, setting, result, known)
            except UncheckedError as error:
                unchecked = str(error)
            start = perf_counter()
        elif perf_counter() - start > limits.setting_s:
            break
    kept = slice(1, None)
    quarter, median, three = np.percentile(times_ms[kept], [25, 50, 75])
    found = result.statistics
    if found.frontier_bytes:
        note_size(setting, known, found.frontier_bytes)
    return {
        "runs": len(times_ms[kept]),
        "kernel_ms": float(median),
        "quartiles_ms": [float(quarter), float(three)],
        "first_ms": times_ms[0],
        "query_ms": float(np.median(query_ms[kept])),
        "phases_ms": {name: 1e3 * float(seconds) for name, seconds in found.seconds.items()},
        "solver": found.solver,
        "levels": found.levels,
        "rounds": int(found.rounds.max()),
        "iterations": getattr(result, "iterations", None),
        "processed": int(found.processed_items.sum()),
        "looked": int(found.arcs_relaxed.sum()),
        "growths": growths,
        "frontier_bytes": nbytes,
        "carried_bytes": carried,
        "wrong": wrong,
        "unchecked": unchecked,
    }


def shown(row: Row) -> str:
    """One row for people."""
    if "note" in row:
        return str(row["note"])
    quarter, three = row["quartiles_ms"]
    iterations = f", {row['iterations']} iterations" if row["iterations"] else ""
    wrong = f" WRONG: {row['wrong']}" if row["wrong"] else ""
    if row["unchecked"]:
        wrong = f" not checked: {row['unchecked']}"
    return (
        f"{row['kernel_ms']:.3f} ms ({quarter:.3f} to {three:.3f}, {row['runs']} runs, first "
        f"{row['first_ms']:.2f}), query {row['query_ms']:.2f}; {row['solver']}, {row['rounds']} "
        f"rounds{iterations}{wrong}"
    )


def one_setting(placed: gw.PlacedGraph, setting: Setting, known: Reference, limits: Any) -> Row:
    """Whatever goes wrong costs this setting only."""
    if perf_counter() > limits.deadline:
        return {"note": OUT_OF_TIME}
    try:
        return measured(placed, setting, known, limits)
    except UnknownSizeError as error:
        return {"note": f"not run: {error}"}
    except RunTimeoutError:
        return {"note": f"more than {limits.timeout_s:g} s"}
    except Exception as error:
        ours = isinstance(error, GodwitError | ElsewhereError)
        return {"note": f"failed: {'' if ours else type(error).__name__ + ': '}{error}"}


def division(setting: Setting, vertices: int) -> Any:
    """What place() takes for the partition."""
    if setting.partition == "alternating":
        return np.arange(vertices) % len(device_names(setting.devices))
    return None


def measure_place(
    graph: gw.Graph, settings: Sequence[Setting], known: Reference, limits: Any
) -> Found:
    """All settings of one place."""
    first = settings[0]
    begin = perf_counter()
    rows: Found = {}
    with gw.place(
        graph,
        device_names(first.devices),
        division(first, graph.vertex_count),
        duplication=first.duplication,  # type: ignore[arg-type]
    ) as placed:
        print(f"# {first.graph}, {first.ids} ids, devices {first.devices} {first.partition}: placed in "
              f"{perf_counter() - begin:.1f} s", flush=True)  # fmt: skip
        for setting in settings:
            row = one_setting(placed, setting, known, limits)
            if setting.devices != "cpu" and "kernel_ms" in row:
                row["position_dtype"] = str(getattr(place_positions(placed), "id_dtype", "-"))
                row["place_s"] = dict(placed.seconds)
            rows[setting] = known.facts | row
            print(f"#   {setting.words}: {shown(row)}", flush=True)
    return rows


def made(name: str, limits: argparse.Namespace) -> gw.Graph | None:
    """The graph of a name, without weights; None if it is a file that is not there."""
    spec = (TINY_GRAPHS if limits.tiny else GRAPHS)[name]
    if spec.startswith("file:"):
        here = Path(__file__).resolve().parents[1]
        folders = [here.parent / "shared" / "data", here / "shared" / "data"]
        if "GODWIT_DATA" in os.environ:
            folders.insert(0, Path(os.environ["GODWIT_DATA"]))
        for folder in folders:
            if (folder / spec[5:]).exists():
                found = gw.read(folder / spec[5:]).remove_self_loops().symmetrize()
                return gw.Graph(found.offsets, found.targets, directed=False)
        return None
    on_gpu = driver.device_count() > 0 and spec.startswith(("rmat:", "road:"))
    return gw.generate(spec, device="cuda:0" if on_gpu else None)


def measure_graph(name: str, groups: Sequence[Sequence[Setting]], limits: Any) -> Iterable[Found]:
    """All settings of a graph, place by place."""
    begin = perf_counter()
    graph = made(name, limits)
    if graph is None:
        note = "the file is not there (GODWIT_DATA)"
        print(f"# {name}: {note}", flush=True)
        yield {setting: {"note": note} for group in groups for setting in group}
        return
    made_s, begin = perf_counter() - begin, perf_counter()
    known = Reference(name, graph)
    print(f"# {name}: {graph.vertex_count:,} vertices, {graph.arc_count:,} arcs, made in {made_s:.1f} s; "
          f"{known.facts['reached']:,} reached on the CPU in {perf_counter() - begin:.1f} s",
          flush=True)  # fmt: skip
    wide = None
    for group in groups:
        if group[0].ids == "int64" and wide is None:
            targets = graph.targets.astype(np.int64)
            wide = gw.Graph.trusted(graph.offsets, targets, directed=graph.directed)
        try:
            chosen = graph if wide is None or group[0].ids == "int32" else wide
            if group[0].is_weighted:
                chosen = known.weighted
            yield measure_place(chosen, group, known, limits)
        except GodwitError as error:
            print(f"# {group[0].place}: {error}", flush=True)
            yield {setting: {"note": str(error)} for setting in group}


def measure(settings: Iterable[Setting], limits: argparse.Namespace) -> Iterable[Found]:
    """Rows of settings, as they come: graph by graph, place by place."""
    places: dict[tuple[str, ...], list[Setting]] = {}
    for setting in dict.fromkeys(settings):
        places.setdefault(setting.place, []).append(setting)
    for name in GRAPHS:
        groups = [group for place, group in places.items() if place[0] == name]
        groups.sort(key=lambda group: group[0].ids)  # the wider copy comes last
        if groups and perf_counter() > limits.deadline:
            yield {setting: {"note": OUT_OF_TIME} for group in groups for setting in group}
        elif groups:
            yield from measure_graph(name, groups, limits)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = options(__doc__, repeats=7, setting_s=4.0)
    parser.add_argument("--only", default=",".join(PLANS), help="sections, by commas")
    parser.add_argument("--graphs", default="", help=f"only these of {', '.join(GRAPHS)}")
    parser.add_argument("--devices", help="numbers of GPUs, or such as 0+0; 1,2,4 by default")
    parser.add_argument("--iterations", type=int, default=50, help="of PageRank")
    parser.add_argument("--tiny", action="store_true", help="small graphs in the place of all")
    parser.add_argument(
        "--apart", action="store_true",
        help="GPUs do not reach each other's memory: nobody lets them, and the driver copies by the host",
    )  # fmt: skip
    parser.add_argument("--plot", help="folder for a plot of the scaling, as SVG (Matplotlib)")
    limits = limits_of(parser)
    limits.only = chosen("--only", limits.only, PLANS)
    limits.graphs = chosen("--graphs", limits.graphs, GRAPHS) if limits.graphs else list(GRAPHS)
    limits.devices = chosen_devices(limits.devices, tiny=limits.tiny)
    return limits


def main() -> None:
    """Measure what was asked for."""
    from gpu_steps_tables import show

    limits = parsed()
    if limits.apart:
        driver.can_access_peer = lambda here, there: here == there
    plans = {
        section: [one for one in PLANS[section](limits.devices) if one[1].graph in limits.graphs]
        for section in limits.only
    }
    for section, plan in plans.items():
        if section in LEFT_OUT and not plan:
            print(
                f"# {section}: nothing to measure on {','.join(limits.devices)}: {LEFT_OUT[section]}"
            )
    run(
        plans,
        lambda settings: measure(settings, limits),
        lambda rows: show(rows, limits.plot),
        limits.json,
        {"tiny": limits.tiny, "apart": limits.apart},
    )


if __name__ == "__main__":
    main()
