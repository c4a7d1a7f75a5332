"""Betweenness from a few sources beside networkit and igraph, in one process run.

    python benchmarks/betweenness.py [--data FOLDER] [--runs N] [--sources K] [--only GRAPH]
                                     [--gap FOLDER] [--json]

Graphs, turns and ratios as ``benchmarks/peers.py`` has them, without weights. All add up the same searches:
networkit draws its sources itself (``EstimateBetweenness`` with as many samples, the one of its
algorithms that takes a number of sources; parallel), igraph and Godwit are given those of highest degree;
igraph's and Godwit's answers are compared. GAP takes one source, and searches K times from that of highest
degree.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
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
    measure,
    parser,
    report,
)


def contenders(graph: gw.Graph, sources: np.ndarray[Any, Any]) -> dict[str, Callable[[], Any]]:
    import igraph
    import networkit

    count = graph.vertex_count
    rows = np.repeat(np.arange(count), graph.out_degree())
    columns = graph.targets.astype(np.int64)
    upper = rows < columns
    rows, columns = rows[upper], columns[upper]
    kit = networkit.GraphFromCoo(
        (rows.astype(np.uint64), columns.astype(np.uint64)), n=count, directed=False
    )
    other = igraph.Graph(n=count, edges=np.stack([rows, columns], 1))
    chosen = sources.tolist()

    def run(**options: Any) -> Any:
        return gw.betweenness_centrality(graph, sources=sources, normalized=False, **options)

    def run_networkit() -> Any:
        estimate = networkit.centrality.EstimateBetweenness(
            kit, nSamples=len(chosen), normalized=False, parallel=True
        )
        return estimate.run()

    return {
        REFERENCE: lambda: run(devices="cpu"),
        "Godwit, 1 thread": lambda: run(devices="cpu:0"),
        "Godwit, edges too": lambda: run(devices="cpu", edges=True),
        "networkit": run_networkit,
        "igraph": lambda: other.betweenness(sources=chosen),
    }


def check(graph: gw.Graph, sources: np.ndarray[Any, Any], from_igraph: list[float]) -> None:
    """igraph's sums, which it does not scale up, against Godwit's."""
    from godwit.algorithms.brandes import sum_dependencies

    ours = sum_dependencies(graph, np.sort(sources), endpoints=False, edges=False).vertices
    theirs = np.array(from_igraph)
    # igraph halves the sums of undirected graphs.
    if not np.allclose(ours / 2, theirs, rtol=1e-6, atol=1e-6):
        worst = int(np.abs(ours / 2 - theirs).argmax())
        raise SystemExit(f"vertex {worst}: Godwit {ours[worst] / 2}, igraph {theirs[worst]}")


def bench(name: str, graph: gw.Graph, arguments: argparse.Namespace) -> list[Row]:
    graph = graph.without_weights()
    count = arguments.sources
    sources = np.argsort(-graph.out_degree(), kind="stable")[:count].copy()
    queries = contenders(graph, sources)
    for system, query in queries.items():
        answer = query()  # compiles, warms caches
        if system == "igraph":
            check(graph, sources, answer)
    times = measure(queries, arguments.runs)
    if arguments.gap is not None:
        searches = ("-i", count, "-r", sources[0])
        with gap_file(graph) as file:
            times[GAP] = gap_times(arguments.gap / "bc", file, arguments.runs, *searches)
    return compared(times, graph=name, sources=count)


if __name__ == "__main__":
    options = parser(__doc__, runs=5)
    options.add_argument("--sources", type=int, default=4)
    report(options.parse_args(), bench, (Column("", "system", 24), *TIMES))
