"""Minimum spanning forest on the CPU: Kruskal's algorithm, with sorting and filtering on several threads.

Encoding: an edge is its arc with ``source < target``; that arc's index in ``targets`` is the edge's id. A
*key* is an int64 that orders as the weight does, reversed for a maximum forest. Edges are ordered by (key,
id), so no two are equal, and the forest is unique.

Filter-Kruskal (Osipov, Sanders, Singler: The Filter-Kruskal Minimum Spanning Tree Algorithm, ALENEX 2009),
with two parts: in graphs with many edges the lightest, some :data:`LIGHT_EDGES` a vertex by a sampled
*pivot*, come first. Of the others only those are listed whose ends are in different trees then: the rest
are the heaviest edges of cycles. All threads list edges, in ascending order of ids, and sort them by a
stable radix sort of their keys; one thread joins trees, by union-find as in :mod:`godwit.graph.union_find`.

In graphs with few edges a round of Boruvka's algorithm comes first instead, which leaves less to sort and
to join: each vertex chooses its least edge, which belongs to the forest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from godwit.dtypes import Array, frozen
from godwit.graph.rows import (
    SMALL_ARCS,
    Rows,
    bits_of,
    first_row_at,
    require_memory,
    row_range,
    thread_count_for,
)
from godwit.graph.union_find import TO_THE_ROOT, compress, hook
from godwit.runtime.cpu.atomics import fetch_or, load, load_acquire, prefetch, store
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, barrier, block_range, run_team

LIGHT_EDGES = 2
"""Edges per vertex in the first list, where there are more than twice as many."""
_SAMPLES = 4096
_POLL_VERTICES = 4096
_POLL_EDGES = 1 << 16
_DIGIT_BITS = 8
_DIGITS = 1 << _DIGIT_BITS
_MOST_KEY = (1 << 63) - 1
_AHEAD = 16
"""Edges between the one that is joined and the one whose ends are prefetched."""


class KeyOrder(NamedTuple):
    """Rule that turns the bits of a weight, a signed integer, into a key; kernels get all three numbers.

    :param mask: bits that count: 32 of uint32, else all
    :param least: the least signed integer of floats' width: negative ones are counted from there; 0 for
        integers
    :param flip: -1 for a maximum forest, whose keys are complements; else 0
    """

    mask: np.int64
    least: np.int64
    flip: np.int64

    @classmethod
    def of(cls, dtype: np.dtype[Any] | None, maximum: bool) -> KeyOrder:
        """Return the order of weights of a dtype; None for edges without weights."""
        kind, bits = ("i", 0) if dtype is None else (dtype.kind, 8 * dtype.itemsize)
        return cls(
            np.int64((1 << 32) - 1 if kind == "u" else -1),
            np.int64(-(1 << (bits - 1)) if kind == "f" else 0),
            np.int64(-1 if maximum else 0),
        )

    @property
    def least_key(self) -> int:
        """A number that no key of a weight of 32 bits is below."""
        if self.mask > 0:
            return -(1 << 32) if self.flip else 0
        return -(1 << 31)

    def keys(self, weights: Array) -> Array:
        """Return the keys of weights; 0.0 and -0.0 have the same."""
        bits = bits_of(weights).astype(np.int64) & self.mask
        if self.least != 0:
            bits = np.where(bits < 0, self.least - bits, bits)
        keys: Array = bits ^ self.flip
        return keys


@dataclass(frozen=True)
class ForestMarks:
    """The edges of a forest.

    :param marks: a bit for each arc of the graph, uint64: 1 for edges of the forest
    :param count: their number
    :param edges: edges that were looked at, by their keys
    :param rounds: lists of edges on CPUs, supersteps on a GPU
    :param seconds: time by phase
    """

    marks: Array
    count: int
    edges: int
    rounds: int
    seconds: dict[str, float] = field(default_factory=dict)


def forest_on_cpu(
    rows: Rows,
    weights: Array | None,
    maximum: bool,
    threads: int,
    poll: Callable[[int], None] | None = None,
) -> ForestMarks:
    """Return the edges of the unique forest of least (weight, id), or of greatest weight and least id.

    :param rows: of an undirected graph
    :param weights: (m) without NaN; None: all are equal
    :param poll: called at intervals by the calling thread with the number of edges joined or dropped
    :raises GraphTooLargeError: before anything large is allocated
    """
    n, arcs, dtype = rows.vertex_count, rows.arc_count, rows.targets.dtype
    threads = min(threads, thread_count_for(arcs))
    require_memory(arcs // 8 + n * dtype.itemsize, f"the spanning forest of {n:,} vertices")
    parent = np.arange(n, dtype=dtype)
    marks = np.zeros(arcs // 64 + 1, np.uint64)
    progress = np.zeros(1, np.int64)
    team: dict[str, Any] = {
        "threads": threads,
        "poll": None if poll is None else lambda: poll(int(progress[0])),
        "brief": n + arcs < SMALL_ARCS,
    }
    order = KeyOrder.of(None if weights is None else weights.dtype, maximum)
    low, high = _key_range(weights, order)
    pivot = None if weights is None else pivot_of(rows, weights, order)
    passes = [(True, _MOST_KEY, arcs)] if pivot is None else [(True, *pivot), (False, *pivot)]
    joined = edges = 0
    if weights is not None and pivot is None:
        chosen = np.empty(n, dtype), np.empty(n, np.int64)
        weighed = (rows.offsets, rows.targets, bits_of(weights), *order)
        run_team(_choose, *weighed, *chosen, **team)
        joined = sum(run_team(_join_chosen, *weighed, *chosen, parent, marks, **team))
        del chosen
        run_team(_flatten, parent, **team)
    for light, pivot_key, pivot_arc in passes:
        if poll is not None:
            poll(edges)  # each part may be too short for the team's
        which = (bits_of(weights), *order, light, pivot_key, pivot_arc)
        given = (rows.offsets, rows.targets, *which, parent)
        begins = np.cumsum([0, *run_team(_count_edges, *given, **team)])
        count = int(begins[-1])
        least, most = (low, min(high, pivot_key)) if light else (pivot_key, high)
        unsorted = count if least < most else 0
        require_memory(
            count * (8 + 2 * dtype.itemsize) + 32 * unsorted, f"a list of {count:,} edges"
        )
        ends, ids = np.empty(2 * count, dtype), np.empty(count, np.int64)
        keys, places = np.empty((2, unsorted), np.uint64), np.empty((2, unsorted), np.int64)
        run_team(_list_edges, *given, begins, least, ends, ids, keys[0], places[0], **team)
        sequence = places[0]
        if unsorted:
            sizes = np.zeros((2, threads, _DIGITS), np.int64)
            bits = (most - least).bit_length()
            sequence = places[run_team(_sort, keys, places, bits, sizes, **team)[0]]
        alone = {**team, "threads": 1}
        joined += run_team(_join, ends, ids, sequence, parent, marks, progress, **alone)[0]
        edges += count
        del ends, ids, keys, places, sequence
        if len(passes) > 1 and light:
            run_team(_flatten, parent, **team)
    return ForestMarks(marks, joined, edges, len(passes))


def marked_edges(rows: Rows, marked: ForestMarks) -> tuple[Array, Array]:
    """Return the ids of the forest's edges, int64 ascending, and the vertices whose rows they are in."""
    ids, sources = np.empty(marked.count, np.int64), np.empty(marked.count, rows.targets.dtype)
    threads = thread_count_for(rows.arc_count)
    counts = np.zeros(threads, np.int64)
    marks = frozen(marked.marks)
    brief = rows.vertex_count + rows.arc_count < SMALL_ARCS
    run_team(_list_marked, rows.offsets, marks, counts, ids, sources, threads=threads, brief=brief)
    return ids, sources


def _key_range(weights: Array | None, order: KeyOrder) -> tuple[int, int]:
    """Return the least and the greatest key."""
    if weights is None or len(weights) == 0:
        return 0, 0
    ends = order.keys(np.array([weights.min(), weights.max()]))
    return int(ends.min()), int(ends.max())


def light_share(rows: Rows) -> float:
    """Return the share of edges that are light; 1.0 where all edges are listed at once."""
    edges, light = rows.arc_count // 2, LIGHT_EDGES * rows.vertex_count
    return light / edges if edges > 2 * light else 1.0


def pivot_of(rows: Rows, weights: Array | None, order: KeyOrder) -> tuple[int, int] | None:
    """Return key and id up to which edges are light, by a sample; None where all are listed at once."""
    share = light_share(rows)
    if share == 1:
        return None
    arcs = np.unique(np.random.default_rng(0).integers(0, rows.arc_count, _SAMPLES))
    keys = np.zeros(len(arcs), np.int64) if weights is None else order.keys(weights[arcs])
    chosen = np.lexsort((arcs, keys))[int(len(arcs) * share)]
    return int(keys[chosen]), int(arcs[chosen])


def _key(bits: Any, mask: Any, least: Any, flip: Any, arc: Any) -> Any:
    """Return the key of an arc, as :meth:`KeyOrder.keys`; the same for all edges without weights."""
    if bits.size == 0:
        return np.int64(0)
    value = np.int64(load(bits, arc)) & mask
    if value < 0 and least != 0:
        value = least - value
    return value ^ flip


def _is_listed(key: Any, arc: Any, light: bool, pivot_key: Any, pivot_arc: Any) -> Any:
    """Return True if an edge is on the wanted side of the pivot."""
    return ((key < pivot_key) | ((key == pivot_key) & (arc <= pivot_arc))) == light


@kernel
def _choose(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, bits: Any, mask: Any,
    least: Any, flip: Any, neighbors: Any, arcs: Any,
) -> None:  # fmt: skip
    """Choose the least edge of each vertex: store its other end, or -1, and its arc in the vertex' row.

    The id of the edge from v to a smaller vertex u is in row u, so ids are in the order of the smaller
    ends, and of edges with one smaller end in the order of either row.
    """
    begin, end = row_range(rank, size, offsets)
    for v in range(begin, end):
        if v % _POLL_VERTICES == 0 and load_acquire(control, ABORT) != 0:
            return
        neighbor: Any = np.int64(-1)
        chosen: Any = np.int64(-1)
        least_key: Any = np.int64(0)
        least_end: Any = np.int64(0)
        for arc in range(offsets[v], offsets[v + 1]):
            target = np.int64(load(targets, arc))
            key = _key(bits, mask, least, flip, arc)
            low = min(target, v)
            is_less = (key < least_key) | ((key == least_key) & (low < least_end))
            if ((chosen < 0) | is_less) & (target != v):
                neighbor = target
                chosen = arc
                least_key = key
                least_end = low
        neighbors[v] = neighbor
        arcs[v] = chosen


@kernel
def _join_chosen(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, bits: Any, mask: Any,
    least: Any, flip: Any, neighbors: Any, arcs: Any, parent: Any, marks: Any,
) -> int:  # fmt: skip
    """Mark the edges that vertices chose, and join the trees of their ends; return their number.

    Only the thread of row u marks the choice of a vertex whose other end is u. Of equal parallel edges, the
    first is marked for both ends.
    """
    joined = 0
    begin, end = row_range(rank, size, offsets)
    for u in range(begin, end):
        if u % _POLL_VERTICES == 0 and load_acquire(control, ABORT) != 0:
            break
        for arc in range(offsets[u], offsets[u + 1]):
            target = load(targets, arc)
            is_chosen = load(arcs, u) == arc
            if not is_chosen and load(neighbors, target) != u:
                continue
            if target <= u:
                continue
            if load(neighbors, target) == u:
                key = _key(bits, mask, least, flip, load(arcs, target))
                if key == _key(bits, mask, least, flip, arc):
                    store(neighbors, target, neighbors.dtype.type(-1))  # it is marked once
                    is_chosen = True
            if is_chosen:
                hook(parent, neighbors.dtype.type(u), target)
                fetch_or(marks, arc >> 6, np.uint64(1) << np.uint64(arc & 63))
                joined += 1
    return joined


@kernel
def _count_edges(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, bits: Any, mask: Any,
    least: Any, flip: Any, light: bool, pivot_key: Any, pivot_arc: Any, parent: Any,
) -> Any:  # fmt: skip
    """Return the number of edges of own rows to list.

    Those on the wanted side of the pivot, between different trees, whose vertices have their roots as
    parents.
    """
    count: Any = 0
    begin, end = row_range(rank, size, offsets)
    for v in range(begin, end):
        if v % _POLL_VERTICES == 0 and load_acquire(control, ABORT) != 0:
            break
        root = parent[v]
        for arc in range(offsets[v], offsets[v + 1]):
            key = _key(bits, mask, least, flip, arc)
            target = load(targets, arc)
            differs = load(parent, target) != root
            is_listed = _is_listed(key, arc, light, pivot_key, pivot_arc)
            count += np.int64(is_listed & (target > v) & differs)
    return count


@kernel
def _list_edges(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, bits: Any, mask: Any,
    least: Any, flip: Any, light: bool, pivot_key: Any, pivot_arc: Any, parent: Any, begins: Any,
    least_key: Any, ends: Any, ids: Any, keys: Any, places: Any,
) -> None:  # fmt: skip
    """Store the edges that :func:`_count_edges` counted.

    :param begins: (size + 1) where each thread's part of the list begins
    :param least_key: what all keys are at least
    :param ends: (2 edges) roots of both ends of each edge
    :param ids: (edges) ascending
    :param keys: (edges) above the least one; empty if all are equal
    :param places: (edges) numbers of the edges; empty if all keys are equal
    """
    at = begins[rank]
    limit = begins[rank + 1]
    begin, end = row_range(rank, size, offsets)
    for v in range(begin, end):
        if v % _POLL_VERTICES == 0 and load_acquire(control, ABORT) != 0:
            return
        if at == limit:
            return
        root = parent[v]
        for arc in range(offsets[v], offsets[v + 1]):
            key = _key(bits, mask, least, flip, arc)
            target = load(targets, arc)
            if _is_listed(key, arc, light, pivot_key, pivot_arc) & (target > v):
                other = load(parent, target)
                if other != root:
                    ends[2 * at] = root
                    ends[2 * at + 1] = other
                    ids[at] = arc
                    if keys.size > 0:
                        keys[at] = np.uint64(key) - np.uint64(least_key)
                        places[at] = at
                    at += 1


@kernel
def _sort(rank: int, size: int, control: Any, keys: Any, places: Any, bits: int, sizes: Any) -> int:
    """Sort (2, edges) keys with their places by a stable radix sort; return the half with the result.

    :param bits: of the greatest key
    :param sizes: (2, threads, digits): numbers of each thread's keys with each digit, and where they go
    """
    count = keys.shape[1]
    begin, end = block_range(rank, size, count)
    half = 0
    for shift in range(0, bits, _DIGIT_BITS):
        own = sizes[0, rank]
        own[:] = 0
        for i in range(begin, end):
            own[(keys[half, i] >> np.uint64(shift)) & np.uint64(_DIGITS - 1)] += 1
        if not barrier(control, size):
            return half
        cursors = sizes[1, rank]
        total = 0
        is_uniform = False
        for digit in range(_DIGITS):
            cursors[digit] = total
            before = total
            for thread in range(size):
                if thread == rank:
                    cursors[digit] = total
                total += sizes[0, thread, digit]
            is_uniform |= total - before == count
        if not is_uniform:
            for i in range(begin, end):
                key = keys[half, i]
                digit = (key >> np.uint64(shift)) & np.uint64(_DIGITS - 1)
                at = cursors[digit]
                cursors[digit] = at + 1
                keys[1 - half, at] = key
                places[1 - half, at] = places[half, i]
            half = 1 - half
        if not barrier(control, size):
            return half
    return half


def _find(parent: Any, vertex: Any) -> Any:
    """Return the root of a vertex' tree, and halve the path to it."""
    above = load(parent, vertex)
    while above != vertex:
        over = load(parent, above)
        store(parent, vertex, over)
        vertex = over
        above = load(parent, vertex)
    return vertex


@kernel
def _join(
    rank: int, size: int, control: Any, ends: Any, ids: Any, order: Any, parent: Any, marks: Any,
    progress: Any,
) -> int:  # fmt: skip
    """Join the trees of both ends of each edge in order, and mark edges that do; return their number.

    :param order: places of the edges; empty for the list's order
    :param marks: a bit for each arc
    """
    joined = 0
    for i in range(ids.size):
        if i % _POLL_EDGES == 0:
            if load_acquire(control, ABORT) != 0:
                return joined
            progress[0] += min(_POLL_EDGES, ids.size - i)
        edge = i
        if order.size > 0:
            edge = order[i]
            if i + 2 * _AHEAD < order.size:
                prefetch(ends, 2 * order[i + 2 * _AHEAD])
                prefetch(parent, ends[2 * order[i + _AHEAD]])
                prefetch(parent, ends[2 * order[i + _AHEAD] + 1])
        u = _find(parent, ends[2 * edge])
        v = _find(parent, ends[2 * edge + 1])
        if u != v:
            parent[max(u, v)] = min(u, v)
            marks[ids[edge] >> 6] |= np.uint64(1) << np.uint64(ids[edge] & 63)
            joined += 1
    return joined


@kernel
def _flatten(rank: int, size: int, control: Any, parent: Any) -> None:
    """Set every vertex' parent to its root."""
    compress(rank, size, parent, TO_THE_ROOT)


@kernel
def _list_marked(
    rank: int, size: int, control: Any, offsets: Any, marks: Any, counts: Any, chosen: Any,
    sources: Any,
) -> None:  # fmt: skip
    """Store marked arcs in ascending order, and the vertices whose rows they are in."""
    begin, end = block_range(rank, size, marks.size)
    count = 0
    for word in range(begin, end):
        left = marks[word]
        while left != 0:
            left &= left - np.uint64(1)
            count += 1
    counts[rank] = count
    if not barrier(control, size):
        return
    at = 0
    for before in range(rank):
        at += counts[before]
    row = first_row_at(offsets, 0, offsets.size - 1, begin * 64 + 1) - 1
    for word in range(begin, end):
        left = marks[word]
        arc = np.int64(word) * 64
        while left != 0:
            while left & np.uint64(0xFF) == 0:
                left >>= np.uint64(8)
                arc += 8
            if left & np.uint64(1) != 0:
                while offsets[row + 1] <= arc:
                    row += 1
                chosen[at] = arc
                sources[at] = row
                at += 1
            left >>= np.uint64(1)
            arc += 1
