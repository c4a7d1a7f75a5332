"""Betweenness from a few sources beside networkit and igraph, in one process run.

    python benchmarks/betweenness.py [--data FOLDER] [--runs N] [--sources K] [--only GRAPH] [--json]

Every system gets the graph in its own form beforehand; the query alone is timed, by the wall clock, the
systems taking turns so that a drift of the machine's speed touches all alike. All add up the same
searches: networkit draws its sources itself (``EstimateBetweenness`` with as many samples, the one of its
algorithms that takes a number of sources; parallel), igraph and Godwit are given those of highest degree;
igraph's and Godwit's answers are compared. Ratios are peer over Godwit: above 1, Godwit is faster.
Weights are left out; graphs are symmetrized.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw


def graphs(folder: Path) -> dict[str, Callable[[], gw.Graph]]:
    def from_file(name: str) -> gw.Graph:
        return gw.read(folder / name).remove_self_loops().symmetrize().without_weights()

    return {
        "USA-road-d.NY": lambda: from_file("USA-road-d.NY.gr.xz"),
        "road:1000x1000": lambda: gw.generators.road(1000, 1000, seed=1),
        "rmat:20": lambda: gw.generators.rmat(20, 16, seed=1),
        "soc-Slashdot0902": lambda: from_file("soc-Slashdot0902.mtx.xz"),
    }


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
        "Godwit": lambda: run(devices="cpu"),
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


def bench(name: str, graph: gw.Graph, count: int, runs: int) -> list[dict[str, Any]]:
    sources = np.argsort(-graph.out_degree(), kind="stable")[:count].copy()
    queries = contenders(graph, sources)
    times: dict[str, list[float]] = {system: [] for system in queries}
    for system, query in queries.items():
        answer = query()  # compiles, warms caches
        if system == "igraph":
            check(graph, sources, answer)
    for _ in range(runs):
        for system, query in queries.items():
            begin = perf_counter()
            query()
            times[system].append((perf_counter() - begin) * 1e3)
    reference = statistics.median(times["Godwit"])
    return [
        {
            "graph": name,
            "sources": count,
            "system": system,
            "median_ms": statistics.median(taken),
            "min_ms": min(taken),
            "ratio": statistics.median(taken) / reference,
        }
        for system, taken in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=beside, help="folder of the real graphs")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sources", type=int, default=4)
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
        rows = bench(name, graph, arguments.sources, arguments.runs)
        report += rows
        if not arguments.json:
            print(f"\n{name}: {graph.vertex_count:,} vertices, {graph.arc_count:,} arcs")
            print(f"  {'':24}{'median ms':>10}{'min ms':>10}{'ratio':>8}")
            for row in rows:
                print(
                    f"  {row['system']:24}{row['median_ms']:10.2f}{row['min_ms']:10.2f}"
                    f"{row['ratio']:8.2f}"
                )
    if arguments.json:
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
