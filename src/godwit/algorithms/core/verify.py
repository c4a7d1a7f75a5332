"""Verifier of core numbers, by their definition.

A graph has one valid array of core numbers: those for which every vertex has at least core[v] neighbours of
core number core[v] or more (no number is too large), and for which all vertices can be removed one by one,
by ascending core number, such that each has at most core[v] remaining neighbours (none is too small).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.checks import arc_blocks, check_graph, checked_array, fail, first_true
from godwit.algorithms.core.result import CoreResult
from godwit.arrays import host_array
from godwit.dtypes import Array
from godwit.errors import shown
from godwit.graph.csr import Graph


def verify_core_number(graph: Graph, core: Array | CoreResult) -> None:
    """Check core numbers by their definition, in time proportional to the arcs.

    :param core: (n), integers; or a result, whose numbers are checked
    :raises VerificationError: naming a vertex whose core number is wrong
    :raises InputError: a wrong argument
    """
    check_graph(graph)
    given = host_array(core.core) if isinstance(core, CoreResult) else core
    numbers = checked_array(given, graph.vertex_count, "core", "iu").astype(np.int64)
    if (v := first_true(numbers < 0)) is not None:
        fail(f"the core number of vertex {shown(graph.ids[v])} is {numbers[v]}, which is negative")
    directions = [graph, graph.reverse] if graph.directed else [graph]
    support = _neighbours_in_own_core(graph, numbers, directions)
    if (v := first_true(support < numbers)) is not None:
        fail(
            f"vertex {shown(graph.ids[v])} has core number {numbers[v]}, but only {support[v]} neighbours "
            "of that core number or more"
        )
    if (v := first_true(~_removable(numbers, support, directions))) is not None:
        fail(
            f"vertex {shown(graph.ids[v])} has core number {numbers[v]}, but it is in the "
            f"{numbers[v] + 1}-core"
        )


def _neighbours_in_own_core(graph: Graph, core: Array, directions: list[Graph]) -> Array:
    """Return for each vertex the number of its neighbours of its own core number or more."""
    support = np.zeros(graph.vertex_count, np.int64)
    for rows in directions:
        for tails, arcs in arc_blocks(rows):
            heads = rows.targets[arcs]
            counts = (core[heads] >= core[tails]) & (heads != tails)
            support += np.bincount(tails[counts], minlength=graph.vertex_count)
    return support


def _removable(core: Array, left: Array, directions: list[Graph]) -> Array:
    """Return which vertices can be removed one by one, each with at most core[v] neighbours left.

    Each round removes all vertices that can be removed at once.

    :param left: neighbours that are left when all vertices of smaller core numbers are removed; changed
    """
    removed = np.zeros(len(core), np.bool_)
    frontier: Any = np.flatnonzero(left <= core)
    while len(frontier):
        removed[frontier] = True
        rows_of = [_neighbours(rows, frontier) for rows in directions]
        heads = np.concatenate([heads for heads, _ in rows_of])
        tails = np.concatenate([tails for _, tails in rows_of])
        lowered = heads[(core[heads] == core[tails]) & ~removed[heads]]
        np.subtract.at(left, lowered, 1)
        changed = np.unique(lowered)
        frontier = changed[left[changed] <= core[changed]]
    return removed


def _neighbours(rows: Graph, vertices: Array) -> tuple[Array, Array]:
    """Return heads and tails of the arcs that leave vertices, self-loops included."""
    lengths = rows.offsets[1:][vertices] - rows.offsets[:-1][vertices]
    tails = np.repeat(vertices, lengths)
    first = np.repeat(rows.offsets[:-1][vertices] - (np.cumsum(lengths) - lengths), lengths)
    return rows.targets[first + np.arange(len(tails))], tails
