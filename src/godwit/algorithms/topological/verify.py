"""Verifier of topological generations.

Sufficient: if every arc leads to a larger number, there is no cycle, and no number is too small; if every
vertex of number k > 0 has a predecessor of number k - 1, none is too large.
"""

from __future__ import annotations

import numpy as np

from godwit.algorithms.checks import arc_blocks, checked_array, fail
from godwit.algorithms.strong_components import check_directed
from godwit.algorithms.topological.result import GenerationsResult
from godwit.dtypes import Array
from godwit.errors import shown
from godwit.graph.csr import Graph


def verify_topological_generations(graph: Graph, generation: Array | GenerationsResult) -> None:
    """Check that every vertex has the number of its topological generation.

    :param graph: a directed graph
    :param generation: (n) integers, or a result
    :raises VerificationError: a rule is broken; names a vertex or an arc
    :raises InputError: an argument is wrong
    """
    check_directed(graph, "verify_topological_generations")
    if isinstance(generation, GenerationsResult):
        generation = generation.generation
    n = graph.vertex_count
    generation = checked_array(generation, n, "generation", "iu").astype(np.int64)
    if n and generation.min() < 0:
        v = int(np.argmin(generation))
        fail(
            f"vertex {shown(graph.ids[v])} has generation {generation[v]}, and they are counted from 0"
        )
    follows = np.zeros(n, np.bool_)
    for tails, arcs in arc_blocks(graph):
        heads = graph.targets[arcs]
        wrong = generation[heads] <= generation[tails]
        if wrong.any():
            arc = int(np.argmax(wrong))
            u, v = int(tails[arc]), int(heads[arc])
            fail(
                f"the arc {shown(graph.ids[u])} -> {shown(graph.ids[v])} leads from generation "
                f"{generation[u]} to generation {generation[v]}"
            )
        follows[heads[generation[heads] == generation[tails] + 1]] = True
    wrong = (generation > 0) & ~follows
    if wrong.any():
        v = int(np.argmax(wrong))
        fail(
            f"vertex {shown(graph.ids[v])} has generation {generation[v]}, but no arc leads to it from "
            f"generation {generation[v] - 1}"
        )
