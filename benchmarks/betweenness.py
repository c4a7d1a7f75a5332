"""Betweenness from a few sources beside networkit and igraph, in one process run.

    python benchmarks/betweenness.py [--data FOLDER] [--runs N] [--sources K] [--only GRAPH | --file FILE]
                                     [--weighted | --gap FOLDER] [--json]

Graphs, turns and ratios as ``benchmarks/peers.py`` has them, without weights; ``--weighted``: paths are
shortest by weights, which are random integers in 1..64 where the graph has none. All add up the same
searches: networkit draws its sources itself (``EstimateBetweenness`` with as many samples, the one of its
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
    in_networkit_and_igraph,
    measure,
    parser,
    report,
)


def contenders(graph: gw.Graph, sources: np.ndarray[Any, Any]) -> dict[str, Callable[[], Any]]:
    """Each adds up searches from so many sources, by weights where the graph has some."""
    import networkit

    kit, other = in_networkit_and_igraph(graph)
    weights = "weight" if graph.is_weighted else None
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
        "igraph": lambda: other.betweenness(sources=chosen, weights=weights),
    }


def check(graph: gw.Graph, sources: np.ndarray[Any, Any], from_igraph: list[float]) -> None:
    """igraph's sums, which it does not scale up, against Godwit's."""
    from godwit.algorithms.betweenness.cpu import sum_dependencies

    ours = sum_dependencies(
        graph, np.sort(sources), endpoints=False, edges=False, weighted=graph.is_weighted
    ).vertices
    theirs = np.array(from_igraph)
    # igraph halves the sums of undirected graphs.
    if not np.allclose(ours / 2, theirs, rtol=1e-6, atol=1e-6):
        worst = int(np.abs(ours / 2 - theirs).argmax())
        raise SystemExit(f"vertex {worst}: Godwit {ours[worst] / 2}, igraph {theirs[worst]}")


def bench(name: str, graph: gw.Graph, arguments: argparse.Namespace) -> list[Row]:
    if not arguments.weighted:
        graph = graph.without_weights()
    elif not graph.is_weighted:
        graph = graph.with_random_weights(1, 64, seed=1)
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
    options.add_argument("--weighted", action="store_true", help="shortest paths by weights")
    given = options.parse_args()
    if given.weighted and given.gap is not None:
        options.error("GAP has no betweenness by weights: leave out --weighted, or --gap")
    report(given, bench, (Column("", "system", 24), *TIMES))
