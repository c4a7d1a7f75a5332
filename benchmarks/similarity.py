"""Jaccard coefficients of pairs beside igraph, networkit and NetworkX, in one process run; and on GPUs.

    python benchmarks/similarity.py [--data FOLDER] [--runs N] [--only GRAPH | --file FILE] [--json]
        [--pairs COUNT]
    python benchmarks/similarity.py --devices cuda:0,cuda:1 [--runs N] [--graph SPEC] [--pairs COUNT]

Graphs, turns and ratios as ``benchmarks/peers.py`` has them, without weights. Pairs are drawn at random:
half of them as the ends of two edges with a common end, so that there are common neighbours. NetworkX
scores every hundredth pair only. On GPUs: milliseconds of kernels and of whole queries of a placed graph,
medians after a first query, compared with the CPU's scores.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from peers import (
    REFERENCE,
    TIMES,
    Column,
    Row,
    compared,
    in_networkit_and_igraph,
    measure,
    parser,
    report,
)

_OF_NETWORKX = 100


def drawn_pairs(graph: gw.Graph, count: int) -> Any:
    """Return (count, 2) pairs of different vertices."""
    generator = np.random.default_rng(1)
    n, offsets, targets = graph.vertex_count, graph.offsets, graph.targets
    pairs = generator.integers(0, n, (count, 2))
    middle = targets[generator.integers(0, len(targets), count // 2)]
    for side in (0, 1):
        lengths = offsets[middle + 1] - offsets[middle]
        arcs = offsets[middle] + (generator.random(len(middle)) * lengths).astype(np.int64)
        pairs[: len(middle), side] = targets[arcs]
    return pairs[pairs[:, 0] != pairs[:, 1]]


def peers(graph: gw.Graph, pairs: Any) -> dict[str, Callable[[], Any]]:
    """Return functions that score the pairs."""
    import networkit
    import networkx as nx

    kit, other = in_networkit_and_igraph(graph)
    kit.sortEdges()

    def by_networkit() -> list[float]:
        index = networkit.linkprediction.JaccardIndex(
            kit
        )  # refers to the graph, without keeping it
        return [score for _, score in index.runOn(listed)]

    listed = [tuple(pair) for pair in pairs.tolist()]
    reference, some = graph.to_networkx(), listed[::_OF_NETWORKX]
    return {
        "igraph": lambda: other.similarity_jaccard(pairs=listed, loops=False),
        "networkit": by_networkit,
        "NetworkX / 100": lambda: [score for *_, score in nx.jaccard_coefficient(reference, some)],
    }


def bench(name: str, graph: gw.Graph, arguments: argparse.Namespace) -> list[Row]:
    """Return rows of one graph."""
    graph = graph.without_weights().remove_self_loops().merge_parallel_arcs()
    pairs = drawn_pairs(graph, arguments.pairs)
    contenders: dict[str, Callable[[], Any]] = {
        REFERENCE: lambda: gw.jaccard(graph, pairs, devices="cpu").score,
        **peers(graph, pairs),
    }
    answers = {contender: query() for contender, query in contenders.items()}  # compiles, warms
    rows = compared(measure(contenders, arguments.runs), graph=name)
    for row in rows:
        expected, answer = answers[REFERENCE], np.asarray(answers[row["system"]])
        if len(answer) < len(expected):
            expected = expected[::_OF_NETWORKX]
        # networkit sorts its pairs.
        same = np.allclose(np.sort(answer), np.sort(expected), rtol=1e-9)
        row["same"] = "yes" if same else "NO"
    return rows


def on_gpus(arguments: argparse.Namespace) -> None:
    """Print one row."""
    devices = arguments.devices.split(",")
    graph = gw.generate(arguments.graph, device=devices[0])
    pairs = drawn_pairs(graph, arguments.pairs)
    with gw.place(graph, devices) as placed:
        found = gw.jaccard(placed, pairs)
        kernels, queries = [], []
        for _ in range(arguments.runs):
            begin = perf_counter()
            found = gw.jaccard(placed, pairs)
            queries.append(1e3 * (perf_counter() - begin))
            kernels.append(1e3 * found.statistics.seconds["kernel"])
    same = np.array_equal(found.score, gw.jaccard(graph, pairs, devices="cpu").score)
    print(f"{arguments.graph}: {len(pairs):,} pairs on {arguments.devices}")
    print(f"kernel {median(kernels):.2f} ms, query {median(queries):.2f} ms, same: {same}")


def main() -> None:
    """Run one of both."""
    made = parser(__doc__, runs=5)
    made.add_argument("--pairs", type=int, default=100_000)
    made.add_argument("--devices", help="GPUs, instead of the comparison on the CPU")
    made.add_argument("--graph", default="rmat:22,edge_factor=16,seed=1", help="on GPUs")
    arguments = made.parse_args()
    if arguments.devices:
        on_gpus(arguments)
        return
    report(arguments, bench, (Column("", "system", 18), *TIMES, Column("same", "same", 6)))


if __name__ == "__main__":
    main()
