"""BFS and SSSP beside SciPy, networkit and igraph, in one process run.

    python benchmarks/paths.py [--data FOLDER] [--runs N] [--only GRAPH] [--json]

Every system gets the graph in its own form beforehand; the query alone is timed, by the wall clock, the
systems taking turns so that a drift of the machine's speed touches all alike. Distances only, as each
peer offers it without predecessors; Godwit's predecessors, a pass of their own, are a row too. Ratios
are peer over Godwit: above 1, Godwit is faster. Graphs are symmetrized; weights are the file's where it
has them, else 1..64; the source is the vertex of highest degree.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw

ROADS = ("USA-road-d.NY", "road:1000x1000")


def graphs(folder: Path) -> dict[str, Callable[[], gw.Graph]]:
    def from_file(name: str) -> gw.Graph:
        return gw.read(folder / name).remove_self_loops().symmetrize()

    return {
        "USA-road-d.NY": lambda: from_file("USA-road-d.NY.gr.xz"),
        "road:1000x1000": lambda: gw.generators.road(1000, 1000, seed=1),
        "rmat:20": lambda: gw.generators.rmat(20, 16, seed=1),
        "soc-Slashdot0902": lambda: from_file("soc-Slashdot0902.mtx.xz"),
    }


def peers(graph: gw.Graph, source: int) -> dict[str, dict[str, Callable[[], Any]]]:
    import igraph
    import networkit
    from scipy.sparse.csgraph import breadth_first_order, dijkstra

    matrix = graph.to_scipy().astype(np.float64)
    rows, columns = matrix.nonzero()
    upper = rows <= columns
    weights = np.asarray(graph.weights, np.float64)[upper]
    count = graph.vertex_count
    kit = networkit.GraphFromCoo(
        (weights, (rows[upper].astype(np.uint64), columns[upper].astype(np.uint64))),
        n=count,
        weighted=True,
        directed=False,
    )
    other = igraph.Graph(
        n=count, edges=np.stack([rows[upper], columns[upper]], 1), edge_attrs={"w": weights}
    )
    return {
        "bfs": {
            "SciPy": lambda: breadth_first_order(matrix, source, return_predecessors=False),
            "networkit": lambda: networkit.distance.BFS(kit, source, storePaths=False).run(),
            "igraph": lambda: other.bfs(source),
        },
        "sssp": {
            "SciPy": lambda: dijkstra(matrix, indices=source),
            "networkit": lambda: networkit.distance.Dijkstra(kit, source, storePaths=False).run(),
            "igraph": lambda: other.distances(source, weights="w"),
        },
    }


def measure(contenders: dict[str, Callable[[], Any]], runs: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for query in contenders.values():
        query()  # compiles, warms caches
    for _ in range(runs):
        for name, query in contenders.items():
            begin = perf_counter()
            query()
            times[name].append((perf_counter() - begin) * 1e3)
    return times


def bench(name: str, graph: gw.Graph, runs: int) -> list[dict[str, Any]]:
    if graph.weights is None:
        graph = graph.with_random_weights(1, 64, seed=1)
    source = graph.highest_degree_vertex()
    report = []
    others = peers(graph, source)
    for algorithm, run in (("bfs", gw.bfs), ("sssp", gw.sssp)):
        contenders: dict[str, Callable[[], Any]] = {"Godwit": partial(run, graph, source)}
        contenders["Godwit, predecessors"] = lambda run=run: run(graph, source).predecessor
        with ExitStack() as stack:
            for partition in ("contiguous", "metis") if name in ROADS else ():
                two = stack.enter_context(gw.place(graph, 2, partition))
                contenders[f"Godwit, 2 devices, {partition}"] = partial(run, two, source)
            contenders |= others[algorithm]
            times = measure(contenders, runs)
        reference = statistics.median(times["Godwit"])
        for contender, taken in times.items():
            median = statistics.median(taken)
            report.append(
                {
                    "graph": name,
                    "algorithm": algorithm,
                    "system": contender,
                    "median_ms": median,
                    "min_ms": min(taken),
                    "ratio": median / reference,
                }
            )
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=beside, help="folder of the real graphs")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--only", action="append", help="a graph's name, repeatable")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    report = []
    for name, make in graphs(arguments.data).items():
        if arguments.only and name not in arguments.only:
            continue
        try:
            graph = make()
        except gw.errors.FileError as error:
            print(f"{name}: left out: {error}", file=sys.stderr)
            continue
        rows = bench(name, graph, arguments.runs)
        report += rows
        if not arguments.json:
            print(f"\n{name}: {graph.vertex_count:,} vertices, {graph.arc_count:,} arcs")
            print(f"  {'':8}{'':32}{'median ms':>10}{'min ms':>10}{'ratio':>8}")
            for row in rows:
                print(
                    f"  {row['algorithm']:8}{row['system']:32}{row['median_ms']:10.2f}"
                    f"{row['min_ms']:10.2f}{row['ratio']:8.2f}"
                )
    if arguments.json:
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
