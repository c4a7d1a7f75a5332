"""Verifier of greedy colourings."""

from __future__ import annotations

import numpy as np

from godwit.algorithms.checks import arc_blocks, check_graph, checked_array, fail, first_true
from godwit.algorithms.coloring.result import ColoringResult
from godwit.arrays import host_array
from godwit.dtypes import Array
from godwit.errors import shown
from godwit.graph.csr import Graph


def verify_greedy_color(graph: Graph, color: Array | ColoringResult) -> None:
    """Check that neighbours have different colours, and each vertex has neighbours of all lesser ones.

    The latter holds for the greedy algorithm in any order: no vertex alone can get a lesser colour.

    :param color: (n), integers; or a result, whose colours are checked
    :raises VerificationError: naming two neighbours of the same colour, or a vertex that a lesser one fits
    :raises InputError: a wrong argument
    """
    check_graph(graph)
    given = host_array(color.color) if isinstance(color, ColoringResult) else color
    colors = checked_array(given, graph.vertex_count, "color", "iu").astype(np.int64)
    ids = graph.ids
    if (v := first_true(colors < 0)) is not None:
        fail(f"the colour of vertex {shown(ids[v])} is {colors[v]}, which is negative")
    for tails, arcs in arc_blocks(graph):
        heads = graph.targets[arcs]
        equal = (colors[tails] == colors[heads]) & (tails != heads)
        if (arc := first_true(equal)) is not None:
            fail(
                f"the neighbours {shown(ids[tails[arc]])} and {shown(ids[heads[arc]])} have the colour "
                f"{colors[tails[arc]]} both"
            )
    both = graph.without_weights().symmetrize()
    lesser = np.zeros(graph.vertex_count, np.int64)
    for tails, arcs in arc_blocks(both):  # whole rows
        heads = both.targets[arcs]
        below = colors[heads] < colors[tails]
        pairs = np.unique(np.stack([tails[below], colors[heads][below]]), axis=1)
        lesser += np.bincount(pairs[0], minlength=graph.vertex_count)
    if (v := first_true(lesser < colors)) is not None:
        fail(
            f"vertex {shown(ids[v])} has the colour {colors[v]}, and neighbours of {lesser[v]} lesser "
            "ones only"
        )
