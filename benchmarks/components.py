"""Connected components beside SciPy, networkit and igraph, in one process run.

    python benchmarks/components.py [--data FOLDER] [--runs N] [--only GRAPH | --file FILE]
        [--gap FOLDER] [--json]

Graphs, turns and ratios as ``benchmarks/peers.py`` has them, without weights. Godwit takes the method that
it chooses itself, and each of the others beside it. All partitions are compared with Godwit's, but those of
GAP (``cc``, Afforest), which stay inside. GAP runs its trials one after the other, when the caches have the
graph already: ``in a row`` is Godwit likewise, for comparison with it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import godwit as gw
from godwit.algorithms.components.result import ComponentsResult
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

METHODS = ("afforest", "rem", "hook")


def peers(graph: gw.Graph) -> dict[str, Callable[[], Any]]:
    import networkit
    from scipy.sparse.csgraph import connected_components

    matrix = graph.to_scipy(merge="min")
    kit, other = in_networkit_and_igraph(graph)
    return {
        "SciPy": lambda: connected_components(matrix, directed=False)[1],
        "networkit": lambda: networkit.components.ConnectedComponents(kit).run(),
        "igraph": lambda: other.connected_components().membership,
    }


def parts_of(answer: Any) -> Any:
    """(n) a number for every vertex' component, whoever found it."""
    if isinstance(answer, ComponentsResult):
        return answer.label
    if hasattr(answer, "getPartition"):
        return np.asarray(answer.getPartition().getVector())
    return np.asarray(answer)


def smallest_vertices(parts: Any) -> Any:
    """The smallest vertex of every vertex' component."""
    _, first, inverse = np.unique(parts, return_index=True, return_inverse=True)
    return first[inverse]


def bench(name: str, graph: gw.Graph, arguments: argparse.Namespace) -> list[Row]:
    graph = graph.without_weights()
    contenders: dict[str, Callable[[], Any]] = {
        REFERENCE: partial(gw.connected_components, graph, devices="cpu"),
        **{
            f"Godwit, {method}": partial(
                gw.connected_components, graph, method=method, devices="cpu"
            )
            for method in METHODS
        },
        **peers(graph),
    }
    answers = {contender: query() for contender, query in contenders.items()}  # compiles, warms
    expected = answers[REFERENCE]
    times = measure(contenders, arguments.runs)
    if arguments.gap is not None:
        times |= measure({"Godwit, in a row": contenders[REFERENCE]}, arguments.runs)
        with gap_file(graph) as file:
            times[GAP] = gap_times(arguments.gap / "cc", file, arguments.runs)
    rows = compared(times, graph=name)
    for row in rows:
        answer = answers.get(row["system"])
        row["components"] = expected.count
        row["same"] = None
        if answer is not None:
            same = np.array_equal(smallest_vertices(parts_of(answer)), expected.label)
            row["same"] = "yes" if same else "NO"
    return rows


if __name__ == "__main__":
    columns = (
        Column("", "system", 18),
        *TIMES,
        Column("components", "components", 12, ","),
        Column("same", "same", 6),
    )
    report(parser(__doc__, runs=9).parse_args(), bench, columns)
