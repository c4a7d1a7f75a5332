"""BFS and SSSP beside SciPy, networkit and igraph, in one process run.

    python benchmarks/paths.py [--data FOLDER] [--runs N] [--only GRAPH | --file FILE] [--gap FOLDER]
                               [--algorithm bfs|sssp] [--json]

Graphs, turns and ratios as ``benchmarks/peers.py`` has them. Distances only, as each peer offers it
without predecessors; Godwit's predecessors, a pass of their own, are a row too, and so are supersteps.
Weights are the file's where it has them, else 1..64; the source is the vertex of highest degree. GAP's SSSP
is that with the best of nine deltas.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import godwit as gw
from peers import (
    GAP,
    REFERENCE,
    TIMES,
    Column,
    Row,
    compared,
    gap_file,
    gap_times,
    in_networkit_and_igraph,
    measure,
    parser,
    report,
)

ROADS = ("USA-road-d.NY", "road:1000x1000")
ALGORITHMS: dict[str, Callable[..., Any]] = {"bfs": gw.bfs, "sssp": gw.sssp}
GAP_DELTAS = tuple(4**power for power in range(9))


def peers(graph: gw.Graph, source: int) -> dict[str, dict[str, Callable[[], Any]]]:
    import networkit
    from scipy.sparse.csgraph import breadth_first_order, dijkstra

    matrix = graph.to_scipy(merge="min").astype(np.float64)
    kit, other = in_networkit_and_igraph(graph)
    return {
        "bfs": {
            "SciPy": lambda: breadth_first_order(matrix, source, return_predecessors=False),
            "networkit": lambda: networkit.distance.BFS(kit, source, storePaths=False).run(),
            "igraph": lambda: other.bfs(source),
        },
        "sssp": {
            "SciPy": lambda: dijkstra(matrix, indices=source),
            "networkit": lambda: networkit.distance.Dijkstra(kit, source, storePaths=False).run(),
            "igraph": lambda: other.distances(source, weights="weight"),
        },
    }


def gap(
    folder: Path, algorithm: str, graph: gw.Graph, source: int, runs: int
) -> dict[str, list[float]]:
    """Times of GAP's BFS, or of its SSSP with the best delta."""
    if algorithm == "bfs":
        with gap_file(graph.without_weights()) as file:
            return {GAP: gap_times(folder / "bfs", file, runs, "-r", source)}
    with gap_file(graph) as file:
        by_delta = {
            f"{GAP}, delta {delta}": gap_times(
                folder / "sssp", file, runs, "-r", source, "-d", delta
            )
            for delta in GAP_DELTAS
        }
    best = min(by_delta, key=lambda name: statistics.median(by_delta[name]))
    return {best: by_delta[best]}


def bench(name: str, graph: gw.Graph, arguments: argparse.Namespace) -> list[Row]:
    if graph.weights is None:
        graph = graph.with_random_weights(1, 64, seed=1)
    source = graph.highest_degree_vertex()
    rows: list[Row] = []
    others = peers(graph, source)
    for algorithm in (arguments.algorithm,) if arguments.algorithm else ALGORITHMS:
        run = ALGORITHMS[algorithm]
        steps = partial(run, execution="bulk-synchronous")
        contenders: dict[str, Callable[[], Any]] = {REFERENCE: partial(run, graph, source)}
        contenders["Godwit, predecessors"] = lambda run=run: run(graph, source).predecessor
        if algorithm == "sssp":
            contenders["Godwit, supersteps"] = partial(steps, graph, source)
        with ExitStack() as stack:
            on_cores = stack.enter_context(gw.place(graph, "cpu"))
            contenders["Godwit, placed"] = partial(run, on_cores, source)
            for partition in ("contiguous", "metis") if name in ROADS else ():
                two = stack.enter_context(gw.place(graph, 2, partition))
                contenders[f"Godwit, 2 devices, {partition}"] = partial(run, two, source)
                contenders[f"  the same in supersteps, {partition}"] = partial(steps, two, source)
            contenders |= others[algorithm]
            for query in contenders.values():
                query()  # compiles, warms caches
            times = measure(contenders, arguments.runs)
        if arguments.gap is not None:
            times |= measure({"Godwit, in a row": contenders[REFERENCE]}, arguments.runs)
            times |= gap(arguments.gap, algorithm, graph, source, arguments.runs)
        rows += compared(times, graph=name, algorithm=algorithm)
    return rows


if __name__ == "__main__":
    columns = (Column("", "algorithm", 8), Column("", "system", 38), *TIMES)
    options = parser(__doc__, runs=9)
    options.add_argument("--algorithm", choices=list(ALGORITHMS), help="this one alone")
    report(options.parse_args(), bench, columns)
