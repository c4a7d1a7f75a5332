"""Verifier of maximal independent sets."""

from __future__ import annotations

import numpy as np

from godwit.algorithms.checks import arc_blocks, check_graph, checked_array, fail, first_true
from godwit.algorithms.independent_set.result import IndependentSetResult
from godwit.arrays import host_array
from godwit.dtypes import Array
from godwit.errors import shown
from godwit.graph.csr import Graph


def verify_maximal_independent_set(graph: Graph, member: Array | IndependentSetResult) -> None:
    """Check that no two members are neighbours, and that every other vertex has a member as a neighbour.

    :param member: (n), bool; or a result, whose members are checked
    :raises VerificationError: naming two members that are neighbours, or a vertex that could be added
    :raises InputError: a wrong argument
    """
    check_graph(graph)
    given = host_array(member.member) if isinstance(member, IndependentSetResult) else member
    inside = checked_array(given, graph.vertex_count, "member", "b")
    covered = np.zeros(graph.vertex_count, np.bool_)
    for tails, arcs in arc_blocks(graph):
        heads = graph.targets[arcs]
        both = inside[tails] & inside[heads] & (tails != heads)
        if (arc := first_true(both)) is not None:
            ids = graph.ids
            fail(
                f"vertices {shown(ids[tails[arc]])} and {shown(ids[heads[arc]])} are neighbours in the set"
            )
        covered[tails[inside[heads]]] = True
        covered[heads[inside[tails]]] = True
    if (v := first_true(~inside & ~covered)) is not None:
        fail(f"vertex {shown(graph.ids[v])} is not in the set, nor is a neighbour")
