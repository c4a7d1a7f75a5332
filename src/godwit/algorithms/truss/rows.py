"""Rows of a simple graph whose arcs know their edges.

Edges are numbered by their arcs to lower neighbours (:mod:`godwit.algorithms.triangles.rows`), in the order
of these arcs: edge e leads from ``upper[e]`` to ``lower[e]``, positions of which the former is larger.
Results name edges in another order: by their smaller vertex, and then by the larger one, which is that of
the arcs to larger vertices in the sorted rows of the simple graph. :func:`edge_numbers` leads from the one
to the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.algorithms.triangles.rows import DegreeRows, sort_range
from godwit.dtypes import Array, frozen
from godwit.graph.csr import Graph
from godwit.graph.rows import row_range, thread_count_for
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import run_team

_at: Any = np.uint64
_BY_DEGREE = False  # bound when a kernel is made: positions are not the vertices' own numbers


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of rows by position.

    :param first: (n + 1) int64: number of the first edge of each position's arcs to lower neighbours
    """

    first: Array

    @property
    def count(self) -> int:
        """Number of edges, k."""
        return int(self.first[-1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest signed dtype that numbers all edges."""
        return np.dtype(np.int32 if self.count < 2**31 else np.int64)

    @classmethod
    def of(cls, rows: DegreeRows) -> Edges:
        """Number the edges of rows."""
        first = np.zeros(len(rows.splits) + 1, np.int64)
        np.cumsum(rows.splits - rows.offsets[:-1], out=first[1:])
        return cls(frozen(first))


def edge_ends(simple: Graph) -> tuple[Array, Array]:
    """Return the smaller and the larger vertex of each edge, (k) each, in the order of results."""
    vertices = np.arange(simple.vertex_count, dtype=simple.targets.dtype)
    tails = np.repeat(vertices, np.diff(simple.offsets))
    is_first = tails < simple.targets
    return tails[is_first], simple.targets[is_first]


def lower_bound(targets: Any, key: Any, low: Any, high: Any) -> Any:
    """Return the first place of sorted targets that is not below a key, or the end. For compiled code."""
    while low < high:
        middle = (low + high) >> 1
        if targets[_at(middle)] < key:
            low = middle + 1
        else:
            high = middle
    return low


def edge_numbers(simple: Graph, rows: DegreeRows, edges: Edges) -> Array:
    """Return for each edge, in the order of results, its number as of :class:`Edges`: (k).

    :param simple: the simple undirected graph of the rows; its rows are sorted
    """
    by_degree = rows.position is not None
    position = rows.position if by_degree else np.empty(0, simple.targets.dtype)
    numbers = np.empty(edges.count, edges.dtype)
    run_team(
        _NUMBER[by_degree], simple.offsets, simple.targets, position, rows.offsets, rows.splits,
        rows.targets, edges.first, _first_edges(simple), numbers,
        threads=thread_count_for(simple.arc_count),
    )  # fmt: skip
    return numbers


def arcs_of_edges(graph: Graph, simple: Graph, is_chosen: Array) -> Array:
    """Return which arcs of a graph belong to chosen edges, bool (m).

    :param simple: its simple undirected graph
    :param is_chosen: (k) bool, by edge in the order of results
    """
    kept = np.empty(graph.arc_count, np.bool_)
    run_team(
        _mark, graph.offsets, graph.targets, simple.offsets, simple.targets, _first_edges(simple),
        is_chosen, kept, threads=thread_count_for(graph.arc_count),
    )  # fmt: skip
    return kept


def _first_edges(simple: Graph) -> Array:
    """Return for each vertex the index in results of its first edge to a larger vertex: (n + 1) int64."""
    counts = np.empty(simple.vertex_count, np.int64)
    threads = thread_count_for(simple.arc_count)
    run_team(_count_larger, simple.offsets, simple.targets, counts, threads=threads)
    first = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    return frozen(first)


@kernel
def _count_larger(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, counts: Any
) -> None:
    """Count the neighbours of each vertex that are larger."""
    first, end = row_range(rank, size, offsets)
    for v in range(first, end):
        count = 0
        for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
            count += targets[_at(arc)] > v
        counts[_at(v)] = count


@kernel
def _number(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, position: Any,
    begins: Any, splits: Any, lower: Any, first_edges: Any, first: Any, numbers: Any,
) -> None:  # fmt: skip
    """Look each edge up at its end of larger position."""
    first_row, end_row = row_range(rank, size, offsets)
    for v in range(first_row, end_row):
        to = first[_at(v)]
        for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
            u = np.int64(targets[_at(arc)])
            if u <= v:
                continue
            low_end = np.int64(v)
            high_end = u
            if _BY_DEGREE:
                low_end = np.int64(position[_at(v)])
                high_end = np.int64(position[_at(u)])
                if low_end > high_end:
                    low_end, high_end = high_end, low_end
            begin = begins[_at(high_end)]
            found = lower_bound(lower, low_end, begin, splits[_at(high_end)])
            numbers[_at(to)] = first_edges[_at(high_end)] + found - begin
            to += 1


@kernel
def _mark(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, simple_offsets: Any,
    simple_targets: Any, first: Any, is_chosen: Any, kept: Any,
) -> None:  # fmt: skip
    """Look each arc up at its smaller end, whose larger neighbours come last in its row."""
    first_row, end_row = row_range(rank, size, offsets)
    for v in range(first_row, end_row):
        for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
            u = np.int64(targets[_at(arc)])
            kept[_at(arc)] = False
            if u == v:
                continue
            one = min(u, np.int64(v))
            other = max(u, np.int64(v))
            end = simple_offsets[_at(one + 1)]
            begin = end - (first[_at(one + 1)] - first[_at(one)])
            found = lower_bound(simple_targets, other, begin, end)
            kept[_at(arc)] = is_chosen[_at(first[_at(one)] + found - begin)]


_NUMBER = {by_degree: _number.bind(_BY_DEGREE=by_degree) for by_degree in (False, True)}


def sorted_targets(rows: DegreeRows) -> Array:
    """Return a copy of the rows' targets of which upper neighbours ascend, too: (m) ids."""
    targets = rows.targets.copy()
    if rows.position is not None:
        threads = thread_count_for(len(targets))
        run_team(_sort_upper, rows.offsets, rows.splits, targets, threads=threads)
    return targets


@kernel
def _sort_upper(
    rank: int, size: int, control: Any, offsets: Any, splits: Any, targets: Any
) -> None:
    """Sort the upper neighbours of each position."""
    first, end = row_range(rank, size, offsets)
    for p in range(first, end):
        sort_range(targets, targets[:0], splits[_at(p)], offsets[_at(p + 1)], False)
