"""PageRank beside networkit, igraph and SciPy, in one process run.

    python benchmarks/pagerank.py [--data FOLDER] [--runs N] [--only GRAPH | --file FILE]
        [--gap FOLDER] [--json]

Graphs, turns and ratios as ``benchmarks/peers.py`` has them, without weights. Everybody starts from equal
ranks, with damping 0.85, and ends when an iteration changes them by less than 1e-6 in sum, but for igraph,
whose solver (PRPACK) has a criterion of its own. ``plain`` is Godwit without acceleration; SciPy is power
iteration by its sparse product. All ranks are compared with Godwit's, but GAP's (``pr``, Gauss-Seidel, and
``pr_spmv``, Jacobi), which stay inside; ``error`` is the sum of the differences.
``first`` includes what Godwit prepares once per graph.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
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

DAMPING, TOLERANCE, MOST_ITERATIONS = 0.85, 1e-6, 1000


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
    import networkit

    matrix = graph.to_scipy(merge="sum").astype(np.float64)
    kit, other = in_networkit_and_igraph(graph)

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


def bench(name: str, graph: gw.Graph, arguments: argparse.Namespace) -> list[Row]:
    graph = graph.without_weights()
    settings = {"tolerance": TOLERANCE, "max_iterations": MOST_ITERATIONS}
    contenders: dict[str, Callable[[], Any]] = {
        REFERENCE: partial(gw.pagerank, graph, DAMPING, **settings),
        "Godwit, float32": partial(gw.pagerank, graph, DAMPING, dtype="float32", **settings),
        "Godwit, plain": partial(gw.pagerank, graph, DAMPING, accelerated=False, **settings),
        "Godwit, first": lambda: gw.pagerank(graph.with_ids(0), DAMPING, **settings),
        **peers(graph),
    }
    answers = {contender: query() for contender, query in contenders.items()}  # compiles, warms
    iterations = {contender: getattr(a, "iterations", None) for contender, a in answers.items()}
    iterations["networkit"] = answers["networkit"].numberOfIterations()
    expected = ranks_of(answers[REFERENCE])
    times = measure(contenders, arguments.runs)
    if arguments.gap is not None:
        limits = ("-i", MOST_ITERATIONS, "-t", TOLERANCE)
        with gap_file(graph) as file:
            for program in ("pr", "pr_spmv"):
                ran = gap_times(arguments.gap / program, file, arguments.runs, *limits)
                times[f"{GAP}, {program}"] = ran
    rows = compared(times, graph=name)
    for row in rows:
        answer = answers.get(row["system"])
        row["iterations"] = iterations.get(row["system"])
        row["error"] = None
        if answer is not None:
            row["error"] = float(np.abs(ranks_of(answer) - expected).sum())
    return rows


if __name__ == "__main__":
    columns = (
        Column("", "system", 18),
        *TIMES,
        Column("iterations", "iterations", 12),
        Column("error", "error", 10, ".1e"),
    )
    report(parser(__doc__, runs=5).parse_args(), bench, columns)
