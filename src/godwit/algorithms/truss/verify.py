"""Verifier of truss numbers, by their definition.

A graph has one valid array of truss numbers: those for which every edge is part of at least truss[e] - 2
triangles of edges of truss number truss[e] or more (no number is too large), and for which all edges can be
removed one by one, by ascending truss number, such that each is part of at most truss[e] - 2 triangles that
are left (none is too small).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from godwit.algorithms.checks import check_graph, checked_array, fail, first_true
from godwit.algorithms.triangles.rows import simple_graph
from godwit.algorithms.truss.result import TrussResult
from godwit.algorithms.truss.rows import edge_ends
from godwit.arrays import host_array
from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError, shown
from godwit.graph.csr import Graph

_MOST_STEPS = 1 << 30
"""Pairs of neighbours that are looked at in a minute or so."""
_BLOCK = 1 << 22
"""Pairs that are looked at together."""


def verify_truss_number(graph: Graph, truss: Array | TrussResult) -> None:
    """Check truss numbers by their definition, with a list of all triangles.

    :param truss: (k), integers, in the order of edges of :class:`TrussResult`; or a result
    :raises VerificationError: naming an edge whose truss number is wrong
    :raises GraphTooLargeError: there are too many triangles to list
    :raises InputError: a wrong argument
    """
    check_graph(graph)
    simple = simple_graph(graph)
    edge_count = simple.arc_count // 2
    given = host_array(truss.truss) if isinstance(truss, TrussResult) else truss
    numbers = checked_array(given, edge_count, "truss", "iu").astype(np.int64)
    first, second = edge_ends(simple)
    ends = first.astype(np.int64), second.astype(np.int64)

    def name(edge: int) -> str:
        first, second = simple.ids.of(np.array([ends[0][edge], ends[1][edge]]))
        return f"edge {shown(first)} - {shown(second)}"

    if (edge := first_true(numbers < 2)) is not None:
        fail(f"{name(edge)} has truss number {numbers[edge]}, and every edge has at least 2")
    triangles = _triangles(simple, ends)
    support = _support(
        triangles, numbers[triangles].min(axis=1, initial=np.iinfo(np.int64).max), numbers
    )
    if (edge := first_true(support < numbers - 2)) is not None:
        fail(
            f"{name(edge)} has truss number {numbers[edge]}, but is part of only {support[edge]} triangles "
            "of edges of that truss number or more"
        )
    if (edge := first_true(~_removable(triangles, numbers, edge_count))) is not None:
        fail(
            f"{name(edge)} has truss number {numbers[edge]}, but it is in the {numbers[edge] + 1}-truss"
        )


def _triangles(simple: Graph, ends: tuple[Array, Array]) -> Array:
    """Return the edges of each triangle, (triangles, 3).

    For the corners u < v < w, the edge from u to v is extended by all larger neighbours w of v, and those
    are kept that are neighbours of u.
    """
    first, second = ends
    n = simple.vertex_count
    keys = first * n + second  # ascending
    begins = np.searchsorted(first, np.arange(n + 1))
    counts = np.diff(begins)[second]
    if int(counts.sum()) > _MOST_STEPS:
        raise GraphTooLargeError(
            "truss numbers are checked with a list of all triangles, for which "
            f"{int(counts.sum()):,} pairs of neighbours are looked at, more than {_MOST_STEPS:,}; check a "
            "smaller graph"
        )
    found = [np.empty((0, 3), np.int64)]
    bounds = np.searchsorted(np.cumsum(counts), np.arange(0, counts.sum() + _BLOCK, _BLOCK))
    for begin, end in pairwise(bounds):
        edges = np.repeat(np.arange(begin, end), counts[begin:end])
        at = np.arange(len(edges)) - np.repeat(
            np.cumsum(counts[begin:end]) - counts[begin:end], counts[begin:end]
        )
        others = begins[second[edges]] + at
        closing = np.searchsorted(keys, first[edges] * n + second[others])
        closing = np.minimum(closing, len(keys) - 1)
        is_one = keys[closing] == first[edges] * n + second[others]
        found.append(np.stack([edges, others, closing], axis=1)[is_one])
    return np.concatenate(found)


def _support(triangles: Array, least: Array, numbers: Array) -> Array:
    """Count for each edge the triangles whose least truss number is its own."""
    support = np.zeros(len(numbers), np.int64)
    for side in triangles.T:
        counts = least >= numbers[side]
        support += np.bincount(side[counts], minlength=len(numbers))
    return support


def _removable(triangles: Array, numbers: Array, edge_count: int) -> Array:
    """Return which edges can be removed one by one, each with at most truss[e] - 2 triangles left.

    Each round removes all edges that can be removed at once: those of a triangle that is left count it.
    """
    support = np.bincount(triangles.ravel(), minlength=edge_count)
    of_edge = np.argsort(triangles.ravel(), kind="stable") // 3
    begins = np.zeros(edge_count + 1, np.int64)
    np.cumsum(support, out=begins[1:])
    is_left = np.full(len(triangles), True)
    removed = np.zeros(edge_count, bool)
    # An edge of a level is removed when all lower levels are.
    for level in np.unique(numbers):
        candidates = np.flatnonzero((numbers == level) & (support <= level - 2))
        while len(candidates):
            removed[candidates] = True
            lost = np.unique(
                np.concatenate([of_edge[begins[e] : begins[e + 1]] for e in candidates])
            )
            lost = lost[is_left[lost]]
            is_left[lost] = False
            lowered = triangles[lost].ravel()
            np.subtract.at(support, lowered, 1)
            lowered = np.unique(lowered)
            candidates = lowered[
                ~removed[lowered] & (numbers[lowered] == level) & (support[lowered] <= level - 2)
            ]
    return removed
