"""Positions: the numbering of vertices in supersteps, by device and then by descending degree.

Encoding: part d has the *positions* from d * capacity on, of which the first ``owned[d]`` hold a vertex;
capacity is a multiple of 1,024, so no word of a bitmap and no line of memory belongs to two parts. A part's
vertices are in *classes* of similar degree, so that each class is one range with its own schedule;
within a class the degree descends, and ids ascend where degrees are equal. Where rows are short (roads) the
order of ids is kept within a class instead, because neighbours have close ids there.

Method: a stable counting sort by (part, class and degree), with counters for each thread; the few
vertices of the highest class are sorted by degree afterwards. NumPy numbers the vertices of small graphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from godwit.dtypes import Array, frozen, id_dtype_for
from godwit.graph.csr import Graph
from godwit.graph.facts import in_offsets
from godwit.graph.partition import Partition
from godwit.graph.rows import thread_count_for
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import barrier, block_range, run_team

LINE = 1024
"""The positions of a part are a multiple of this number."""

CLASS_DEGREES = (4096, 256, 32, 4, 0)
"""Class k has degrees above ``CLASS_DEGREES[k]`` and below those of class k - 1; class 5 has no arcs."""

CLASSES = len(CLASS_DEGREES) + 1

_LONGEST_SHORT_ROW = 4
_SHORT_SHARE = 0.9
_HIGHEST = CLASS_DEGREES[0]
_BUCKETS_BY_DEGREE = _HIGHEST + 3  # above 4096; 4096 … 0; no arc in either direction
_STARTS_BY_DEGREE = np.array(
    [0, *(_HIGHEST + 1 - most for most in CLASS_DEGREES[:-1]), _HIGHEST + 2, _BUCKETS_BY_DEGREE]
)

SMALL_VERTICES = 1 << 20
"""Up to this number of vertices, NumPy numbers them: compiling code for it takes longer."""

_SAMPLED_ARCS = 1 << 16
_NEAR_SHARE = 0.9
"""The share of arcs within ranges of ids from which on parts are ranges. Meshes and geometric graphs have
0.95 or more on 2 to 4 parts, random cliques 0.6 to 0.75, R-MAT with scrambled ids 1 / parts."""


@dataclass(frozen=True, eq=False)
class Positions:
    """The positions of a graph's vertices.

    :param position: (n) ids: the position of each vertex
    :param capacity: number of positions of a part
    :param owned: (k) int64: number of vertices of each part
    :param classes: (k, 7) int64: the first vertex of each class of a part, and the end of the last class
    :param by_degree: True if degrees descend within a class; else ids ascend
    :param stays_near: True if parts are ranges of ids because most arcs of a sample stay within them
    """

    position: Array
    capacity: int
    owned: Array
    classes: Array
    by_degree: bool
    stays_near: bool

    @property
    def count(self) -> int:
        """Number of positions of all parts, with or without a vertex."""
        return len(self.owned) * self.capacity

    @cached_property
    def vertex(self) -> Array:
        """(count) ids: the vertex of each position, -1 where there is none."""
        n = len(self.position)
        vertex = np.full(self.count, -1, self.position.dtype)
        if n <= SMALL_VERTICES:
            vertex[self.position] = np.arange(n, dtype=vertex.dtype)
        else:
            run_team(_invert, self.position, vertex, threads=thread_count_for(n))
        return frozen(vertex)

    def vertices(self, part: int) -> Array:
        """Return the vertices of a part, in the order of their positions."""
        first = part * self.capacity
        return self.vertex[first : first + int(self.owned[part])]


def number_vertices(
    graph: Graph, parts: int, partition: Partition | None = None, *, id_dtype: Any = None
) -> Positions:
    """Return the positions of a graph's vertices on a number of parts.

    :param partition: the owners of vertices; None: ranges of ids with equal work where rows are short or
        most arcs stay within their range, else vertices are distributed in turn, by descending degree
    :param id_dtype: the dtype of positions; None: int32 where it suffices
    """
    n = graph.vertex_count
    lengths = _RowLengths(in_offsets(graph), graph.offsets)
    by_degree = not lengths.are_short()
    starts = _STARTS_BY_DEGREE if by_degree else np.arange(CLASSES + 1)
    owner = _owners(graph, parts, partition, by_degree)
    keys = int(starts[-1])  # buckets of a part
    groups = 1 if owner is None else parts
    order, firsts = lengths.sorted(by_degree, owner, groups, keys)
    ends = firsts[np.add.outer(np.arange(groups) * keys, starts)]  # (groups, 7)
    if owner is None:  # vertex i in this order goes to part i % parts
        shifted = ends - np.arange(parts)[:, None] + parts - 1
        classes = shifted // parts
        step = parts
        first = np.zeros(1, np.int64)
    else:
        classes, step, first = ends - ends[:, :1], 1, ends[:, 0]
    owned = classes[:, -1].astype(np.int64)
    capacity = max(1, -(-int(owned.max(initial=0)) // LINE)) * LINE
    position = np.empty(n, id_dtype_for(parts * capacity, id_dtype))
    if n <= SMALL_VERTICES:
        number = np.arange(n)
        part = number % step if step > 1 else np.repeat(np.arange(groups), np.diff([*first, n]))
        position[order] = part * capacity + (number // step if step > 1 else number - first[part])
    else:
        arguments = (order, frozen(first.astype(np.int64)), step, capacity, position)
        run_team(_assign_positions, *arguments, threads=thread_count_for(n))
    classes = classes.astype(np.int64)
    stays_near = by_degree and owner is not None and partition is None
    return Positions(
        frozen(position), capacity, frozen(owned), frozen(classes), by_degree, stays_near
    )


def likely_dtype(vertex_count: int, parts: int, id_dtype: Any = None) -> np.dtype[Any]:
    """Return the dtype that positions on parts of about equal size get.

    :param id_dtype: as for :func:`number_vertices`
    """
    capacity = -(-vertex_count // (parts * LINE)) * LINE
    return id_dtype_for(parts * capacity, id_dtype)


def arcs_per_part(offsets: Array, positions: Positions) -> Array:
    """Return the number of arcs in the rows of each part's vertices: (k) int64.

    :param offsets: of the rows of all vertices
    """
    parts, vertices = len(positions.owned), len(positions.position)
    if parts == 1 or vertices == 0:
        return np.array([offsets[-1]] + [0] * (parts - 1), np.int64)
    if vertices <= SMALL_VERTICES:
        arcs = np.zeros(parts, np.int64)
        np.add.at(arcs, positions.position // positions.capacity, np.diff(offsets))
        return arcs
    threads = thread_count_for(vertices)
    counts = np.zeros((threads, parts), np.int64)
    arguments = (offsets, positions.position, positions.capacity, counts)
    run_team(_count_arcs, *arguments, threads=threads)
    total: Array = counts.sum(axis=0)
    return total


@dataclass(frozen=True)
class _RowLengths:
    """The rows whose lengths decide the order of vertices (in-arcs), and those of the other direction.

    :param offsets: (n + 1) int64
    :param others: (n + 1) int64
    """

    offsets: Array
    others: Array

    @property
    def threads(self) -> int:
        """Number of threads that are worth waking."""
        return thread_count_for(len(self.offsets))

    def are_short(self) -> bool:
        """Return True if most rows are short and have most arcs; isolated vertices do not count."""
        if self.are_few:
            lengths, is_linked = self._lengths()
            is_short = is_linked & (lengths <= _LONGEST_SHORT_ROW)
            linked, short = int(is_linked.sum()), int(is_short.sum())
            arcs = int(lengths[is_short].sum())
        else:
            counts = np.zeros((self.threads, 3), np.int64)
            run_team(_count_short, self.offsets, self.others, counts, threads=self.threads)
            linked, short, arcs = (int(count) for count in counts.sum(axis=0))
        return short >= _SHORT_SHARE * linked and 2 * arcs >= int(self.offsets[-1])

    def sorted(
        self, by_degree: bool, owner: Array | None, groups: int, keys: int
    ) -> tuple[Array, Array]:
        """Return vertices sorted by owner, bucket and id, and the first vertex of each bucket.

        :param owner: (n) the group of each vertex; None for a single group
        :param keys: number of buckets of a group
        :returns: (n) int64, and (groups * keys + 1) int64
        """
        firsts = np.zeros(groups * keys + 1, np.int64)
        if self.are_few:
            key = self._buckets(by_degree) + (0 if owner is None else owner * np.int64(keys))
            # NumPy's stable sort of 16 bits is a radix sort.
            order = np.argsort(key.astype(np.min_scalar_type(groups * keys)), kind="stable")
            firsts[1:] = np.cumsum(np.bincount(key, minlength=groups * keys))
        else:
            counters = np.zeros((self.threads, groups * keys), np.int64)
            order = np.empty(len(self.offsets) - 1, np.int64)
            given = frozen(np.empty(0, np.int32) if owner is None else owner)
            run_team(
                _sort_by_counting, self.offsets, self.others, given, by_degree, keys, counters,
                firsts, order, threads=self.threads,
            )  # fmt: skip
        if by_degree:
            for group in range(groups):
                highest = order[firsts[group * keys] : firsts[group * keys + 1]]
                degree = self.offsets[highest + 1] - self.offsets[highest]
                highest[:] = highest[np.argsort(-degree, kind="stable")]
        return order, firsts

    @property
    def are_few(self) -> bool:
        """True if NumPy is faster than code that has to be compiled."""
        return len(self.offsets) <= SMALL_VERTICES + 1

    def _lengths(self) -> tuple[Array, Array]:
        """Return the length of each row, and True for vertices with arcs in either direction."""
        lengths = np.diff(self.offsets)
        return lengths, (lengths > 0) | (np.diff(self.others) > 0)

    def _buckets(self, by_degree: bool) -> Array:
        """Return :func:`_bucket` of each vertex."""
        lengths, is_linked = self._lengths()
        if by_degree:
            buckets = _HIGHEST + 1 - np.minimum(lengths, _HIGHEST + 1)
            return np.where(is_linked, buckets, _BUCKETS_BY_DEGREE - 1)
        buckets = CLASSES - 2 - np.searchsorted(CLASS_DEGREES[-2::-1], lengths)
        return np.where(is_linked, buckets, CLASSES - 1)


def _owners(graph: Graph, parts: int, partition: Partition | None, by_degree: bool) -> Array | None:
    """Return the part of each vertex, (n); None where vertices are distributed in turn."""
    if parts == 1:
        return None
    if partition is not None:
        return partition.owner
    if by_degree and not _stay_near(graph, parts):
        return None
    n = graph.vertex_count
    work = graph.offsets + np.arange(n + 1)
    bounds = _bounds(work, parts)
    return np.repeat(np.arange(parts, dtype=np.int32), np.diff([0, *bounds, n]))


def _bounds(sums: Array, parts: int) -> Array:
    """Return the beginnings of ranges with equal sums, without the first: (parts - 1).

    :param sums: (n + 1) ascending prefix sums
    """
    bounds: Array = np.searchsorted(sums, np.linspace(0, float(sums[-1]), parts + 1)[1:-1])
    return bounds


def _stay_near(graph: Graph, parts: int) -> bool:
    """Return True if most arcs of a sample stay within ranges of ids with equal numbers of arcs."""
    if graph.arc_count == 0:
        return False
    bounds = _bounds(graph.offsets, parts)
    arc = np.random.default_rng(0).integers(0, graph.arc_count, _SAMPLED_ARCS)
    vertex = np.searchsorted(graph.offsets, arc, side="right") - 1
    here, there = (
        np.searchsorted(bounds, ends, side="right") for ends in (vertex, graph.targets[arc])
    )
    return float((here == there).mean()) >= _NEAR_SHARE


def _bucket(length: int, other: int, by_degree: bool) -> int:
    """Return the sort key of a vertex within its part."""
    if length + other == 0:
        return _BUCKETS_BY_DEGREE - 1 if by_degree else CLASSES - 1
    if by_degree:
        return _HIGHEST + 1 - min(length, _HIGHEST + 1)
    index = 0
    while index < CLASSES - 2 and length <= CLASS_DEGREES[index]:
        index += 1
    return index


@kernel
def _count_short(
    rank: int, size: int, control: Any, offsets: Any, others: Any, counts: Any
) -> None:
    """Count in row ``rank``: vertices with an arc, vertices with a short row, arcs of short rows."""
    begin, end = block_range(rank, size, offsets.size - 1)
    linked, short, arcs = 0, 0, 0
    for v in range(begin, end):
        length = offsets[v + 1] - offsets[v]
        if length + others[v + 1] - others[v] > 0:
            linked += 1
            if length <= _LONGEST_SHORT_ROW:
                short += 1
                arcs += length
    counts[rank, 0], counts[rank, 1], counts[rank, 2] = linked, short, arcs


@kernel
def _sort_by_counting(
    rank: int, size: int, control: Any, offsets: Any, others: Any, owner: Any, by_degree: bool,
    keys: int, counters: Any, firsts: Any, order: Any,
) -> None:  # fmt: skip
    """Sort by counting; ``counters`` (size, buckets) hold each thread's counts, then its next positions."""
    begin, end = block_range(rank, size, order.size)
    for v in range(begin, end):
        key = _bucket(offsets[v + 1] - offsets[v], others[v + 1] - others[v], by_degree)
        if owner.size:
            key += owner[v] * keys
        counters[rank, key] += 1
    if not barrier(control, size):
        return
    if rank == 0:
        total = np.int64(0)
        for key in range(firsts.size - 1):
            firsts[key] = total
            for other in range(size):
                count = counters[other, key]
                counters[other, key] = total
                total += count
        firsts[firsts.size - 1] = total
    if not barrier(control, size):
        return
    for v in range(begin, end):
        key = _bucket(offsets[v + 1] - offsets[v], others[v + 1] - others[v], by_degree)
        if owner.size:
            key += owner[v] * keys
        rank_in_order = counters[rank, key]
        counters[rank, key] = rank_in_order + 1
        order[rank_in_order] = v


@kernel
def _assign_positions(
    rank: int, size: int, control: Any, order: Any, first: Any, step: int, capacity: int,
    position: Any,
) -> None:  # fmt: skip
    """Write the positions of sorted vertices: in turn on ``step`` parts, or in ranges from ``first`` on."""
    begin, end = block_range(rank, size, order.size)
    part = 0
    for i in range(begin, end):
        if step > 1:
            position[order[i]] = (i % step) * capacity + i // step
        else:
            while part + 1 < first.size and first[part + 1] <= i:
                part += 1
            position[order[i]] = part * capacity + i - first[part]


@kernel
def _invert(rank: int, size: int, control: Any, position: Any, vertex: Any) -> None:
    begin, end = block_range(rank, size, position.size)
    for v in range(begin, end):
        vertex[position[v]] = v


@kernel
def _count_arcs(
    rank: int, size: int, control: Any, offsets: Any, position: Any, capacity: int, counts: Any
) -> None:
    begin, end = block_range(rank, size, position.size)
    for v in range(begin, end):
        counts[rank, position[v] // capacity] += offsets[v + 1] - offsets[v]
