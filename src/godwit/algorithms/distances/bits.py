"""Distances in arcs from many sources by one search: a bit per source, on one thread of the CPU.

M. Then et al., The more the merrier: efficient multi-source graph traversal, PVLDB 8 (2014). Every vertex
has three *blocks* of bits, with a bit for each source: those whose searches have reached it (``seen``),
those that reached it in the last level (``frontier``), and in this level (``reached``). One visit of an arc
takes all searches along it. A level is *pushed* along the out-arcs of the vertices in the queue, or, if
these are many, *pulled*: each vertex that some search has not reached unites the frontiers of its
in-neighbours, until no search is missing.

Invariant between levels: a vertex is in the queue if and only if its block in ``frontier`` is not zero, and
``reached`` is zero everywhere.

What a search finds is recorded level by level, in one of three forms: by vertex (numbers of sources, and
sums of their distances), by source, or as a matrix. Sums are integers, so they do not depend on the order.
A reciprocal 1 / d is the sum of two integers, floor(2^32 / d) and the next 32 bits, each summed on its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.extending import intrinsic

from godwit.algorithms.distances.query import (
    COUNT,
    FRACTIONS,
    LARGEST,
    RECIPROCALS,
    TOTAL,
    reciprocal_parts,
)
from godwit.dtypes import Array
from godwit.runtime.cpu.atomics import fetch_add, load_acquire, prefetch
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, CURSOR

_PUSH_FACTOR = 3
"""A level is pushed if its arcs, times this, are fewer than all arcs."""
_ROW_AHEAD = 8
"""Rows are prefetched so far ahead in the queue."""

# Unsigned index: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64
_lowest_bit: Any = trailing_zeros


def _count_ones(typing_context: Any, word: Any) -> Any:
    """Return the number of one bits of an int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


_ones: Any = intrinsic(_count_ones)


class Records(NamedTuple):
    """Arrays that get what a thread's searches find; those of other forms are empty.

    :ivar columns: (n) column of each vertex, or -1 if it is not asked for; empty: vertex v is column v
    :ivar wanted: number of columns
    :ivar matrix: int32 (k, columns) distances
    :ivar by_vertex: int64 (n, HOP_FIELDS) sums over sources, of one thread
    :ivar by_source: int64 (k, HOP_FIELDS) sums over columns
    :ivar tally: int64 (64 words) of one thread: vertices that each source has reached in this level; zero
        between levels
    """

    columns: Array
    wanted: int
    matrix: Array
    by_vertex: Array
    by_source: Array
    tally: Array


class Workspace(NamedTuple):
    """Memory of a thread's searches.

    :ivar blocks: three int64 arrays (n * words): ``seen``, ``frontier`` and ``reached``
    :ivar queues: two arrays (n + 1): the queue, and that of the next level. A vertex is written before the
        end moves
    """

    blocks: tuple[Array, Array, Array]
    queues: tuple[Array, Array]


# A block of bits is a tuple of words.


def _load_1(words: Any, v: Any) -> Any:
    return (words[_at(v)],)


def _store_1(words: Any, v: Any, block: Any) -> None:
    words[_at(v)] = block[0]


def _zero_1() -> Any:
    return (np.int64(0),)


def _union_1(left: Any, right: Any) -> Any:
    return (left[0] | right[0],)


def _without_1(left: Any, right: Any) -> Any:
    return (left[0] & ~right[0],)


def _any_1(block: Any) -> Any:
    return block[0] != 0


def _size_1(block: Any) -> Any:
    return _ones(block[0])


def _load_4(words: Any, v: Any) -> Any:
    i = 4 * v
    return words[_at(i)], words[_at(i + 1)], words[_at(i + 2)], words[_at(i + 3)]


def _store_4(words: Any, v: Any, block: Any) -> None:
    i = 4 * v
    words[_at(i)] = block[0]
    words[_at(i + 1)] = block[1]
    words[_at(i + 2)] = block[2]
    words[_at(i + 3)] = block[3]


def _zero_4() -> Any:
    zero = np.int64(0)
    return zero, zero, zero, zero


def _union_4(left: Any, right: Any) -> Any:
    return left[0] | right[0], left[1] | right[1], left[2] | right[2], left[3] | right[3]


def _without_4(left: Any, right: Any) -> Any:
    return left[0] & ~right[0], left[1] & ~right[1], left[2] & ~right[2], left[3] & ~right[3]


def _any_4(block: Any) -> Any:
    return (block[0] | block[1] | block[2] | block[3]) != 0


def _size_4(block: Any) -> Any:
    return _ones(block[0]) + _ones(block[1]) + _ones(block[2]) + _ones(block[3])


# Bound by the driver.
_WORDS = 1
_load: Any = _load_1
_store: Any = _store_1
_zero: Any = _zero_1
_union: Any = _union_1
_without: Any = _without_1
_any: Any = _any_1
_size: Any = _size_1


def _record_by_vertex(records: Any, first: int, v: Any, block: Any, level: int) -> int:
    """Add sources at a distance to the sums of a vertex; return the number of columns found, here 0."""
    by_vertex = records.by_vertex
    count = _size(block)
    by_vertex[_at(v), _at(COUNT)] += count
    if level > 0:
        reciprocal, fraction = reciprocal_parts(np.int64(level))
        by_vertex[_at(v), _at(TOTAL)] += count * level
        by_vertex[_at(v), _at(LARGEST)] = max(by_vertex[_at(v), _at(LARGEST)], level)
        by_vertex[_at(v), _at(RECIPROCALS)] += count * reciprocal
        by_vertex[_at(v), _at(FRACTIONS)] += count * fraction
    return 0


def _record_by_source(records: Any, first: int, v: Any, block: Any, level: int) -> int:
    """Add 1 to the tally of each source in a block, which has just reached ``v``; return their number."""
    if records.columns.size > 0 and records.columns[_at(v)] < 0:
        return 0
    tally = records.tally
    found = 0
    for word in range(_WORDS):
        bits = block[word]
        while bits != 0:
            tally[_at(64 * word + np.int64(_lowest_bit(bits)))] += 1
            bits &= bits - 1
            found += 1
    return found


def _record_in_matrix(records: Any, first: int, v: Any, block: Any, level: int) -> int:
    """Write the distances of a vertex from the sources of a block; return how many these are."""
    column = np.int64(v)
    if records.columns.size > 0:
        column = np.int64(records.columns[_at(v)])
        if column < 0:
            return 0
    matrix = records.matrix
    found = 0
    for word in range(_WORDS):
        bits = block[word]
        while bits != 0:
            row = first + 64 * word + np.int64(_lowest_bit(bits))
            matrix[_at(row), _at(column)] = level
            bits &= bits - 1
            found += 1
    return found


_record: Any = _record_in_matrix  # bound by the driver


def _close_level(records: Any, first: int, count: int, level: int) -> None:
    """Add the tallies of a level to the sums of sources, if these are asked for."""
    tally = records.tally
    if tally.size == 0:
        return
    by_source = records.by_source
    reciprocal, fraction = reciprocal_parts(np.int64(max(1, level)))
    for i in range(count):
        number = tally[_at(i)]
        if number == 0:
            continue
        tally[_at(i)] = 0
        source = first + i
        by_source[_at(source), _at(COUNT)] += number
        if level > 0:
            by_source[_at(source), _at(TOTAL)] += number * level
            by_source[_at(source), _at(LARGEST)] = level
            by_source[_at(source), _at(RECIPROCALS)] += number * reciprocal
            by_source[_at(source), _at(FRACTIONS)] += number * fraction


def _push(
    offsets: Any, targets: Any, seen: Any, frontier: Any, reached: Any, queue: Any, size: int,
    next_queue: Any,
) -> int:  # fmt: skip
    """Take the searches along the out-arcs of the queue; return the size of the next queue."""
    tail = 0
    for i in range(size):
        prefetch(targets, offsets[_at(queue[_at(min(i + _ROW_AHEAD, size - 1))])])
        v = np.int64(queue[_at(i)])
        block = _load(frontier, v)
        _store(frontier, v, _zero())
        for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
            u = np.int64(targets[_at(arc)])
            fresh = _without(block, _load(seen, u))
            if _any(fresh):
                before = _load(reached, u)
                next_queue[_at(tail)] = u
                tail += not _any(before)
                _store(reached, u, _union(before, fresh))
    return tail


def _pull(
    offsets: Any, targets: Any, all_bits: Any, seen: Any, frontier: Any, reached: Any, queue: Any,
    size: int, next_queue: Any, tally: Any,
) -> int:  # fmt: skip
    """Unite the frontiers of the in-neighbours of each vertex; return the size of the next queue.

    :param offsets: rows of in-arcs
    """
    tail = 0
    for v in range(offsets.size - 1):
        missing = _without(all_bits, _load(seen, v))
        if not _any(missing):
            continue
        begin = offsets[_at(v)]
        end = offsets[_at(v + 1)]
        block = _zero()
        arc = begin
        while arc < end:
            for i in range(arc, min(arc + 8, end)):
                block = _union(block, _load(frontier, np.int64(targets[_at(i)])))
            arc += 8
            if not _any(_without(missing, block)):
                break
        tally[1] += min(arc, end) - begin
        fresh = _without(missing, _without(missing, block))  # the bits in both
        if _any(fresh):
            _store(reached, v, fresh)
            next_queue[_at(tail)] = v
            tail += 1
    for i in range(size):
        _store(frontier, np.int64(queue[_at(i)]), _zero())
    return tail


@kernel
def _search(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, in_offsets: Any,
    in_targets: Any, sources: Any, together: int, limit: int, workspace: Any, records: Any,
    tally: Any,
) -> int:  # fmt: skip
    """Search from ``together`` sources at a time until all are claimed.

    :param in_offsets: rows of in-arcs; empty if levels are to be pushed
    :param limit: largest distance
    :param tally: of the thread: pairs of source and vertex reached, arcs visited, and sources done
    """
    seen, frontier, reached = workspace.blocks
    queue, next_queue = workspace.queues
    arcs = offsets[offsets.size - 1]
    while True:
        first = fetch_add(control, CURSOR, together)
        if first >= sources.size:
            return 0
        count = min(together, sources.size - first)
        for i in range(seen.size):
            seen[_at(i)] = 0
            frontier[_at(i)] = 0
            reached[_at(i)] = 0
        tail = 0
        for i in range(count):
            v = np.int64(sources[_at(first + i)])
            if not _any(_load(reached, v)):
                next_queue[_at(tail)] = v
                tail += 1
            reached[_at(v * _WORDS + (i >> 6))] |= np.int64(1) << (i & 63)
        all_bits = _zero()
        for i in range(tail):
            all_bits = _union(all_bits, _load(reached, np.int64(next_queue[_at(i)])))
        left = count * records.wanted
        level = 0
        while True:
            frontier, reached = reached, frontier
            queue, next_queue = next_queue, queue
            front = tail
            front_arcs = 0
            for i in range(front):
                v = np.int64(queue[_at(i)])
                block = _load(frontier, v)
                _store(seen, v, _union(_load(seen, v), block))
                left -= _record(records, first, v, block, level)
                tally[0] += _size(block)
                front_arcs += offsets[_at(v + 1)] - offsets[_at(v)]
            _close_level(records, first, count, level)
            if front == 0 or left == 0 or level >= limit:
                break
            if load_acquire(control, ABORT) != 0:
                return 0
            level += 1
            if front_arcs * _PUSH_FACTOR < arcs or in_offsets.size == 0:
                tally[1] += front_arcs
                tail = _push(offsets, targets, seen, frontier, reached, queue, front, next_queue)
            else:
                tail = _pull(
                    in_offsets, in_targets, all_bits, seen, frontier, reached, queue, front,
                    next_queue, tally,
                )  # fmt: skip
        tally[2] += count


_WORDS_OF: dict[int, dict[str, Any]] = {
    1: {
        "_load": _load_1, "_store": _store_1, "_zero": _zero_1, "_union": _union_1,
        "_without": _without_1, "_any": _any_1, "_size": _size_1,
    },
    4: {
        "_load": _load_4, "_store": _store_4, "_zero": _zero_4, "_union": _union_4,
        "_without": _without_4, "_any": _any_4, "_size": _size_4,
    },
}  # fmt: skip
_RECORDS = {
    "vertex": _record_by_vertex,
    "source": _record_by_source,
    "matrix": _record_in_matrix,
}
KERNELS = {
    (words, form): _search.bind(_WORDS=words, _record=record, **operations)
    for words, operations in _WORDS_OF.items()
    for form, record in _RECORDS.items()
}
"""Kernels by the words of a block and by the form of what is recorded."""
