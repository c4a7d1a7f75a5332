"""PageRank beside networkit, igraph and SciPy, in one process run.

    python benchmarks/pagerank.py [--data FOLDER] [--runs N] [--only GRAPH] [--json]

Graphs, turns and ratios as in ``benchmarks/paths.py`` (peer over Godwit: above 1, Godwit is faster),
without weights. Everybody starts from equal ranks, with damping 0.85, and ends when an iteration changes
them by less than 1e-6 in sum, but for igraph, whose solver (PRPACK) has a criterion of its own. SciPy is
power iteration by its sparse product. All ranks are compared with Godwit's; ``error`` is the sum of the
differences. ``first`` includes what Godwit prepares once per graph.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from paths import graphs

DAMPING, TOLERANCE = 0.85, 1e-6


def by_scipy(transposed: Any, degree: Any) -> Any:
    n = len(degree)
    dangling = degree == 0
    inverse = np.where(dangling, 0, 1 / np.maximum(degree, 1))
    rank = np.full(n, 1 / n)
    while True:
        lost = rank[dangling].sum()
        new = DAMPING * (transposed @ (rank * inverse) + lost / n) + (1 - DAMPING) / n
        change = np.abs(new - rank).sum()
        rank = new
        if change < TOLERANCE:
            return rank


def peers(graph: gw.Graph) -> dict[str, Callable[[], Any]]:
    import igraph
    import networkit

    matrix = graph.to_scipy().astype(np.float64)
    rows, columns = matrix.nonzero()
    upper = rows <= columns
    count = graph.vertex_count
    kit = networkit.GraphFromCoo(
        (np.ones(upper.sum()), (rows[upper].astype(np.uint64), columns[upper].astype(np.uint64))),
        n=count,
        weighted=False,
        directed=False,
    )
    other = igraph.Graph(n=count, edges=np.stack([rows[upper], columns[upper]], 1))

    def by_networkit() -> Any:
        ranking = networkit.centrality.PageRank(kit, DAMPING, TOLERANCE)
        ranking.norm = networkit.centrality.Norm.L1_NORM
        ranking.run()
        return ranking

    return {
        "SciPy": partial(by_scipy, matrix.T.tocsr(), graph.out_degree()),
        "networkit": by_networkit,
        "igraph": lambda: other.pagerank(damping=DAMPING),
    }


def ranks_of(answer: Any) -> Any:
    if hasattr(answer, "scores"):
        answer = answer.scores()
    ranks = np.asarray(getattr(answer, "rank", answer), np.float64)
    return ranks / ranks.sum()


def bench(name: str, graph: gw.Graph, runs: int) -> list[dict[str, Any]]:
    graph = graph.without_weights()
    settings = {"tolerance": TOLERANCE, "max_iterations": 1000}
    contenders: dict[str, Callable[[], Any]] = {
        "Godwit": partial(gw.pagerank, graph, DAMPING, **settings),
        "Godwit, float32": partial(gw.pagerank, graph, DAMPING, dtype="float32", **settings),
        "Godwit, first": lambda: gw.pagerank(graph.with_ids(0), DAMPING, **settings),
        **peers(graph),
    }
    answers = {contender: query() for contender, query in contenders.items()}  # compiles, warms
    iterations = {contender: getattr(a, "iterations", None) for contender, a in answers.items()}
    iterations["networkit"] = answers["networkit"].numberOfIterations()
    expected = ranks_of(answers["Godwit"])
    errors = {
        contender: float(np.abs(ranks_of(answer) - expected).sum())
        for contender, answer in answers.items()
    }
    times: dict[str, list[float]] = {contender: [] for contender in contenders}
    for _ in range(runs):
        for contender, query in contenders.items():
            begin = perf_counter()
            query()
            times[contender].append((perf_counter() - begin) * 1e3)
    reference = statistics.median(times["Godwit"])
    return [
        {
            "graph": name,
            "system": contender,
            "median_ms": statistics.median(taken),
            "min_ms": min(taken),
            "ratio": statistics.median(taken) / reference,
            "iterations": iterations[contender],
            "error": errors[contender],
        }
        for contender, taken in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=beside, help="folder of the real graphs")
    parser.add_argument("--runs", type=int, default=5)
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
            print(
                f"  {'':18}{'median ms':>10}{'min ms':>10}{'ratio':>8}{'iterations':>12}{'error':>10}"
            )
            for row in rows:
                print(
                    f"  {row['system']:18}{row['median_ms']:10.2f}{row['min_ms']:10.2f}"
                    f"{row['ratio']:8.2f}{row['iterations'] or '':>12}{row['error']:10.1e}"
                )
    if arguments.json:
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
