"""Minimum spanning forest on the CPU: Kruskal's algorithm, with sorting and filtering on several threads.

Encoding: an edge is its arc with ``source < target``; that arc's index in ``targets`` is the edge's id. A
*key* is an int64 that orders as the weight does, reversed for a maximum forest. Edges are ordered by (key,
id), so no two are equal, and the forest is unique.

A round of Boruvka's algorithm comes first: each vertex chooses its least edge, which belongs to the forest.
That needs rows whose targets ascend, as those of simple graphs do; it is skipped where they do not.

Then Filter-Kruskal (Osipov, Sanders, Singler: The Filter-Kruskal Minimum Spanning Tree Algorithm, ALENEX
2009) joins the trees, with two parts: in graphs with many edges the lightest, some :data:`LIGHT_EDGES` a
vertex by a sampled *pivot*, come first. Only edges are listed whose ends are in different trees then: the
rest are the heaviest of cycles, or chosen. All threads list edges, in ascending order of ids, and sort them
by a stable radix sort of their keys; one thread joins trees, by union-find, in the order of the list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

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
from godwit.runtime.cpu.atomics import (
    fetch_or,
    load,
    load_acquire,
    load_relaxed,
    prefetch,
    store,
    store_relaxed,
)
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, barrier, block_range, next_range, run_team

LIGHT_EDGES = 2
"""Edges per vertex in the first list, where there are more than twice as many."""
_SAMPLES = 4096
_POLL_VERTICES = 4096
_POLL_EDGES = 1 << 16
_CLAIMED_ARCS = 1 << 14
_DIGIT_BITS = 8
_at: Any = np.uint64  # unsigned index: spares the test for negative ones
_trailing_zeros: Any = trailing_zeros
_DIGITS = 1 << _DIGIT_BITS
_MOST_KEY = (1 << 63) - 1
_AHEAD = 16
"""Edges between the one that is joined and the one whose ends are prefetched."""


class KeyOrder(NamedTuple):
    """Rule that turns the bits of a weight, a signed integer, into a key; kernels get all three numbers.

    :param mask: bits that count: 32 of uint32, else all
    :param least: for floats the least signed integer of their width, from which the bits of negative
        weights are subtracted: so keys have the order of the weights. 0 for integers
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
    require_memory(arcs // 4 + 3 * n * dtype.itemsize, f"the spanning forest of {n:,} vertices")
    parent, neighbors, below = np.empty((3, n), dtype)
    marks = np.zeros(arcs // 64 + 1, np.uint64)
    progress = np.zeros(1, np.int64)
    team: dict[str, Any] = {
        "threads": threads,
        "poll": None if poll is None else lambda: poll(int(progress[0])),
        "brief": n + arcs < SMALL_ARCS,
    }
    order = KeyOrder.of(None if weights is None else weights.dtype, maximum)
    weighed = (rows.offsets, rows.targets, bits_of(weights), *order)
    if not all(run_team(_choose, *weighed, parent, neighbors, below, **team)):
        parent[:] = neighbors[:] = np.arange(n)
        below[:] = 0
    pivot = None if weights is None else pivot_of(rows, weights, order)
    passes = [(True, _MOST_KEY, arcs)] if pivot is None else [(True, *pivot), (False, *pivot)]
    joined = edges = 0
    for light, *ends in passes:
        if poll is not None:
            poll(edges)  # each part may be too short for the team's
        listed = np.zeros_like(marks)
        which = (len(passes) > 1, light, *ends)
        found = run_team(_select, *weighed, *which, parent, neighbors, below, marks, listed, **team)
        count, chosen = map(sum, zip(*found, strict=True))
        joined += chosen + _join_listed(weighed, listed, count, parent, marks, progress, team)
        edges += count
        if len(passes) > 1 and light:
            run_team(_flatten, parent, **team)
    return ForestMarks(marks, joined, edges, len(passes))


def _join_listed(
    weighed: tuple[Any, ...], listed: Array, count: int, parent: Array, marks: Array,
    progress: Array, team: dict[str, Any],
) -> int:  # fmt: skip
    """Join the ends of listed edges in their order, and mark those that join trees; return their number.

    :param weighed: arguments of kernels that compare edges: offsets, targets and what makes keys of weights
    :param listed: for each arc whether it is listed
    :param count: number of listed edges
    :param marks: for each arc whether it is in the forest; changed
    :param team: keyword arguments of :func:`run_team`
    """
    if count == 0:
        return 0
    place = np.dtype(np.int32 if count < 2**31 else np.int64)
    require_memory(
        count * (32 + 3 * parent.itemsize + 2 * place.itemsize), f"a list of {count:,} edges"
    )
    numbers, vertices = np.empty((4, count), np.int64), np.empty((3, count), parent.dtype)
    ids, ordered, keys = numbers[0], numbers[1], numbers[2:]
    sources, ends = vertices[0], vertices[1:].reshape(-1)
    places = np.empty((2, count), place)
    _list_arcs(weighed[0], listed, ids, sources, team["threads"])
    sizes = np.zeros((2, team["threads"], _DIGITS), np.int64)
    given = (*weighed[1:], parent, ids, sources)
    run_team(_sort, *given, keys, places, sizes, ends, ordered, **team)
    joined: int
    (joined,) = run_team(_join, ends, ordered, parent, marks, progress, **{**team, "threads": 1})
    return joined


def marked_edges(rows: Rows, marked: ForestMarks) -> tuple[Array, Array]:
    """Return the ids of the forest's edges, int64 ascending, and the vertices whose rows they are in."""
    ids, sources = np.empty(marked.count, np.int64), np.empty(marked.count, rows.targets.dtype)
    _list_arcs(rows.offsets, marked.marks, ids, sources, thread_count_for(rows.arc_count))
    return ids, sources


def marked_arcs(rows: Rows, marked: ForestMarks) -> Array:
    """Return the ids of the forest's edges, int64 ascending."""
    ids = np.empty(marked.count, np.int64)
    _list_arcs(rows.offsets, marked.marks, ids, ids[:0], thread_count_for(rows.arc_count))
    return ids


def _list_arcs(offsets: Array, marks: Array, ids: Array, sources: Array, threads: int) -> None:
    """Store marked arcs, ascending, and the vertices of their rows, unless ``sources`` is empty."""
    counts = np.zeros(threads, np.int64)
    given = (offsets, frozen(marks), counts, ids, sources)
    brief = len(offsets) + int(offsets[-1]) < SMALL_ARCS
    run_team(_list_marked, *given, threads=threads, brief=brief)


def light_share(rows: Rows) -> float:
    """Return the share of edges that are light; 1.0 where all edges are listed at once."""
    edges, light = rows.arc_count // 2, LIGHT_EDGES * rows.vertex_count
    return light / edges if edges > 2 * light else 1.0


def pivot_of(rows: Rows, weights: Array | None, order: KeyOrder) -> tuple[int, int] | None:
    """Return key and id up to which edges are light, by a sample; None where all are listed at once."""
    share = light_share(rows)
    if share == 1:
        return None
    arcs = np.random.default_rng(0).integers(0, rows.arc_count, _SAMPLES)
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


@kernel
def _choose(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, bits: Any, mask: Any,
    least: Any, flip: Any, parent: Any, neighbors: Any, below: Any,
) -> bool:  # fmt: skip
    """Choose the least edge of each vertex, and set every vertex' parent to the root of its tree of these.

    In rows whose targets ascend, of edges of equal weight the first has the least id in either row: the id
    of the edge from v to a smaller vertex u is in row u. One edge of each tree is chosen by both ends, of
    which the smaller is the root.

    :param neighbors: gets the other end of each vertex' least edge, or the vertex itself
    :param below: gets the number of smaller neighbours
    :returns: False if targets do not ascend, or there are parallel edges: what was chosen is wrong
    """
    ascend = True
    begin, end = row_range(rank, size, offsets)
    for v in range(begin, end):
        if v % _POLL_VERTICES == 0 and load_acquire(control, ABORT) != 0:
            return False
        neighbor: Any = np.int64(v)
        least_key: Any = np.int64(_MOST_KEY)
        last: Any = np.int64(-1)
        smaller: Any = np.int64(0)
        for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
            target = np.int64(load(targets, arc))
            key = _key(bits, mask, least, flip, arc)
            ascend &= target > last
            last = target
            smaller += np.int64(target < v)
            is_less = (key < least_key) & (target != v)
            neighbor = target if is_less else neighbor
            least_key = key if is_less else least_key
        store(neighbors, v, neighbors.dtype.type(neighbor))
        store(below, v, below.dtype.type(smaller))
    if not barrier(control, size):
        return False
    for v in range(begin, end):
        neighbor = load(neighbors, v)
        is_root = (load(neighbors, neighbor) == v) & (v <= neighbor)
        store(parent, v, parent.dtype.type(v) if is_root else neighbor)
    if not barrier(control, size):
        return False
    _compress(parent, begin, end)
    return ascend


def _compress(parent: Any, begin: Any, end: Any) -> None:
    """Set the parents of vertices to their roots, and halve the paths to these."""
    for v in range(begin, end):
        vertex: Any = np.int64(v)
        above: Any = np.int64(load_relaxed(parent, vertex))
        over: Any = np.int64(load_relaxed(parent, above))
        while above != over:
            store_relaxed(parent, vertex, parent.dtype.type(over))
            vertex = over
            above = np.int64(load_relaxed(parent, vertex))
            over = np.int64(load_relaxed(parent, above))
        store_relaxed(parent, v, parent.dtype.type(above))


@kernel
def _select(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, bits: Any, mask: Any,
    least: Any, flip: Any, has_pivot: bool, light: bool, pivot_key: Any, pivot_arc: Any,
    parent: Any, neighbors: Any, below: Any, marks: Any, listed: Any,
) -> Any:  # fmt: skip
    """Mark the edges that vertices chose, and in ``listed`` those to join; return the numbers of both.

    Those to join are between trees, and on the wanted side of the pivot. Vertices have their roots as
    parents.
    """
    count: Any = np.int64(0)
    chosen: Any = np.int64(0)
    word: Any = np.int64(0)
    mark_bits: Any = np.uint64(0)
    list_bits: Any = np.uint64(0)
    last = offsets[offsets.size - 1]
    while True:
        begin, end = next_range(control, _CLAIMED_ARCS, last)
        if begin >= end:
            break
        first_row = first_row_at(offsets, 0, offsets.size - 1, begin)
        end_row = first_row_at(offsets, first_row, offsets.size - 1, end)
        for v in range(first_row, end_row):
            root = load(parent, v)
            neighbor = np.int64(load(neighbors, v))
            for arc in range(offsets[_at(v)] + load(below, v), offsets[_at(v + 1)]):
                target = np.int64(load(targets, arc))
                if target <= v:
                    continue
                if arc >> 6 != word:
                    fetch_or(marks, word, mark_bits)
                    fetch_or(listed, word, list_bits)
                    word = arc >> 6
                    mark_bits = np.uint64(0)
                    list_bits = np.uint64(0)
                is_chosen = False
                if light:
                    is_chosen = (neighbor == target) | (load(neighbors, target) == v)
                is_listed = load(parent, target) != root
                if has_pivot and is_listed:
                    key = _key(bits, mask, least, flip, arc)
                    is_low = (key < pivot_key) | ((key == pivot_key) & (arc <= pivot_arc))
                    is_listed = is_low == light
                bit = np.uint64(arc & 63)
                mark_bits |= np.uint64(is_chosen) << bit
                list_bits |= np.uint64(is_listed) << bit
                chosen += np.int64(is_chosen)
                count += np.int64(is_listed)
    fetch_or(marks, word, mark_bits)
    fetch_or(listed, word, list_bits)
    return count, chosen


@kernel
def _sort(
    rank: int, size: int, control: Any, targets: Any, bits: Any, mask: Any, least: Any, flip: Any,
    parent: Any, ids: Any, sources: Any, keys: Any, places: Any, sizes: Any, ends: Any,
    ordered: Any,
) -> None:  # fmt: skip
    """Sort edges by their keys, by a stable radix sort of those digits that differ.

    :param ids: (edges) ascending
    :param keys: (2, edges) room for the keys, like ``places`` for numbers of edges
    :param sizes: (2, threads, digits): numbers of each thread's keys with each digit, and where they go
    :param ends: (2 edges) gets the roots of both ends of each edge, in order
    :param ordered: (edges) gets the ids, in order
    """
    begin, end = block_range(rank, size, ids.size)
    lowest: Any = np.int64(_MOST_KEY)
    highest: Any = np.int64(-_MOST_KEY - 1)
    varying: Any = np.int64(0)
    first = _key(bits, mask, least, flip, load(ids, 0))
    for i in range(begin, end):
        key = _key(bits, mask, least, flip, load(ids, i))
        keys[0, _at(i)] = key
        places[0, _at(i)] = i
        lowest = min(lowest, key)
        highest = max(highest, key)
        varying |= key ^ first
    own = sizes[0, rank]
    own[0] = lowest
    own[1] = highest
    own[2] = varying
    if not barrier(control, size):
        return
    for thread in range(size):
        lowest = min(lowest, sizes[0, thread, 0])
        highest = max(highest, sizes[0, thread, 1])
        varying |= sizes[0, thread, 2]
    if not barrier(control, size):
        return
    shift: Any = np.uint64(0)
    if varying != 0:
        shift = np.uint64(_trailing_zeros(np.uint64(varying)))
    half = 0
    is_last: Any = False
    while not is_last:
        is_last = (np.uint64(highest) - np.uint64(lowest)) >> shift < np.uint64(_DIGITS)
        old_keys = keys[half]
        old_places = places[half]
        own[:] = 0
        for i in range(begin, end):
            digit = (np.uint64(old_keys[_at(i)]) - np.uint64(lowest)) >> shift
            own[digit & np.uint64(_DIGITS - 1)] += 1
        if not barrier(control, size):
            return
        cursors = sizes[1, rank]
        total = 0
        for value in range(_DIGITS):
            for thread in range(size):
                if thread == rank:
                    cursors[value] = total
                total += sizes[0, thread, value]
        new_keys = keys[1 - half]
        new_places = places[1 - half]
        for i in range(begin, end):
            key = old_keys[_at(i)]
            digit = ((np.uint64(key) - np.uint64(lowest)) >> shift) & np.uint64(_DIGITS - 1)
            at = cursors[digit]
            cursors[digit] = at + 1
            place = np.int64(old_places[_at(i)])
            if is_last:
                arc = load(ids, place)
                store(ordered, at, arc)
                store(ends, 2 * at, load(parent, load(sources, place)))
                store(ends, 2 * at + 1, load(parent, load(targets, arc)))
            else:
                new_keys[_at(at)] = key
                new_places[_at(at)] = place
        half = 1 - half
        shift += np.uint64(_DIGIT_BITS)
        if not barrier(control, size):
            return


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
    rank: int, size: int, control: Any, ends: Any, ids: Any, parent: Any, marks: Any, progress: Any
) -> int:
    """Join the trees of both ends of each edge, and mark edges that do; return their number."""
    joined = 0
    for i in range(ids.size):
        if i % _POLL_EDGES == 0:
            if load_acquire(control, ABORT) != 0:
                return joined
            progress[0] += min(_POLL_EDGES, ids.size - i)
        if i + _AHEAD < ids.size:
            prefetch(parent, ends[2 * (i + _AHEAD)])
            prefetch(parent, ends[2 * (i + _AHEAD) + 1])
        u = _find(parent, ends[2 * i])
        v = _find(parent, ends[2 * i + 1])
        if u != v:
            parent[max(u, v)] = min(u, v)
            marks[ids[i] >> 6] |= np.uint64(1) << np.uint64(ids[i] & 63)
            joined += 1
    return joined


@kernel
def _flatten(rank: int, size: int, control: Any, parent: Any) -> None:
    """Set every vertex' parent to its root."""
    begin, end = block_range(rank, size, parent.size)
    _compress(parent, begin, end)


@kernel
def _list_marked(
    rank: int, size: int, control: Any, offsets: Any, marks: Any, counts: Any, arcs: Any,
    sources: Any,
) -> None:  # fmt: skip
    """Store marked arcs in ascending order, and the vertices whose rows they are in.

    :param sources: empty if these are not wanted
    """
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
        while left != 0:
            arc = word * 64 + np.int64(_trailing_zeros(left))
            left &= left - np.uint64(1)
            store(arcs, at, arc)
            if sources.size > 0:
                while load(offsets, row + 1) <= arc:
                    row += 1
                store(sources, at, sources.dtype.type(row))
            at += 1
