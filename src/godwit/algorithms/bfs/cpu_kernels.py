"""The steps of a search that changes direction: one level forwards or backwards, and frontiers turned.

What :mod:`godwit.algorithms.bfs.cpu` plans and all threads of its team perform, between two barriers.
What they share is laid out here.

There are three ways top-down. One thread alone follows frontiers of few arcs. Frontiers whose arcs are
about as many as there are vertices are followed without a branch and without an atomic operation: every
thread marks the heads of its arcs in a bitmap of its own, then the marks of all are merged, each
thread going through its part of the vertices. (Threads that take vertices from each other by
compare-and-exchange pass the cache lines of ``distance`` to and fro, which in a graph that fits into a
cache takes longer than all else.) Frontiers in between, in graphs of millions of vertices, are followed by
all with compare-and-exchange, since a merge would cost more than they do.

Invariants: a distance other than UNREACHED is written once, in the step of its level, and never
changed; every vertex is in the queue at most once; while a step runs, a word of a bitmap has one writer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from godwit.runtime.cpu.atomics import (
    compare_exchange,
    fetch_add,
    load_acquire,
    load_relaxed,
    prefetch,
)
from godwit.runtime.cpu.team import ABORT, block_range, next_range

UNREACHED = 2147483647
"""The distance of vertices that were not reached."""

# Rows of at most so many arcs are gone through without branches.
_SHORT_ROW = 8
# Work is handed out in so many vertices at a time.
_EXPAND_CHUNK = 32
_SWEEP_CHUNK_WORDS = 16
# A vertex in a sweep tests so many of its arcs before it asks whether one was a hit.
_GLANCE = 2
# Vertices that a thread collects before it takes room in the common queue for them.
LOCAL_ITEMS = 1024
# How far ahead in the queue the rows and, later, the distances of neighbours are asked for.
_ROW_AHEAD = 16
_DISTANCE_AHEAD = 8

# Steps.
STOP = 0
EXPAND = 1  # follow the out-arcs of queue[HEAD:TAIL]
TO_BITMAP = 2  # mark queue[HEAD:TAIL] in the frontier bitmap
SWEEP = 3  # let all vertices left look for a predecessor in the frontier bitmap
TO_QUEUE = 4  # collect the frontier bitmap in queue[0:]
MARK = 5  # mark the heads of the out-arcs of queue[HEAD:TAIL], each thread in a bitmap of its own
MERGE = 6  # make of those marks the next frontier

# Bitmaps of n bits each: two of frontiers, one of the vertices left; then one of marks a thread.
COMMON_BITMAPS = 3

# Words of `shared` (int64), in lines of 8. Line 0: what rank 0 writes down for all.
STEP = 0
HEAD = 1
TAIL = 2
LEVEL = 3  # distance of the frontier
PARITY = 4  # which of the two bitmaps is the frontier
# Line 1: the room taken in the queue.
QUEUE_END = 8
# Line 2: what only rank 0 knows.
FRONTIER = 16  # vertices in the frontier, while it is a bitmap
FRONTIER_ARCS = 17
LEFT_ARCS = 18  # arcs of vertices that were in no frontier yet
LEVELS = 19
BOTTOM_UP_LEVELS = 20
VISITED = 21
EXAMINED = 22
# From line 3 on, a line a thread: what its part of the step gave.
RESULTS = 24
FOUND = 0
# Arcs of those: in-arcs after a sweep, which has just read them. It is a guide only.
FOUND_ARCS = 1
FOLLOWED = 2  # arcs looked at

# An index known not to be negative: spares the test that Numba makes for Python's a[-1].
at: Any = np.uint64
# Of a word that is not zero.
_lowest_bit: Any = trailing_zeros


def words_of(bits: Any) -> Any:
    """64-bit words that hold so many bits."""
    return (bits + 63) >> 6


def expand_alone(
    control: Any, offsets: Any, targets: Any, distance: Any, queue: Any, shared: Any
) -> None:
    """Follow the out-arcs of the frontier, with no other thread at work.

    Short rows, a road's, are gone through without a branch: whether a vertex is new is a coin toss
    there, and a wrong guess costs more than a needless store. The queue goes on behind the frontier
    with the next one, so that looking ahead in it works across levels.
    """
    head = shared[HEAD]
    end = shared[TAIL]
    tail = end
    arcs = 0
    level = np.int32(shared[LEVEL] + 1)
    last_arc = targets.size - 1  # where the row of an isolated source at the end would begin
    for i in range(head, end):
        if i & 1023 == 0 and load_acquire(control, ABORT) != 0:
            break
        ahead = queue[at(min(i + _ROW_AHEAD, tail - 1))]
        prefetch(targets, offsets[at(ahead)])
        ahead = queue[at(min(i + _DISTANCE_AHEAD, tail - 1))]
        prefetch(distance, targets[at(min(offsets[at(ahead)], last_arc))])
        prefetch(distance, targets[at(max(offsets[at(ahead) + at(1)] - 1, 0))])
        v = queue[at(i)]
        begin = offsets[at(v)]
        stop = offsets[at(v) + at(1)]
        arcs += stop - begin
        if stop - begin <= _SHORT_ROW:
            for arc in range(begin, stop):
                u = targets[at(arc)]
                before = distance[at(u)]
                queue[at(tail)] = u
                tail += before == UNREACHED
                distance[at(u)] = min(before, level)
        else:
            for arc in range(begin, stop):
                u = targets[at(arc)]
                if distance[at(u)] == UNREACHED:
                    distance[at(u)] = level
                    queue[at(tail)] = u
                    tail += 1
    shared[HEAD] = end
    shared[TAIL] = tail
    shared[QUEUE_END] = tail
    shared[LEVEL] += 1
    shared[LEVELS] += 1
    shared[VISITED] += tail - end
    shared[EXAMINED] += arcs
    shared[LEFT_ARCS] -= arcs


def _flush(queue: Any, shared: Any, local: Any, begin: int, count: int) -> None:
    """Append the vertices that a thread has collected to the common queue."""
    end = fetch_add(shared, QUEUE_END, count)
    for i in range(count):
        queue[at(end + i)] = local[at(begin + i)]


def _report(rank: int, shared: Any, found: int, found_arcs: int) -> None:
    """Note what a thread has found in a step."""
    shared[RESULTS + 8 * rank + FOUND] = found
    shared[RESULTS + 8 * rank + FOUND_ARCS] = found_arcs


def _row(offsets: Any, targets: Any, queue: Any, i: int, tail: int) -> tuple[int, int]:
    """Where the out-arcs of a vertex of the queue begin and end; a later one's are asked for."""
    prefetch(targets, offsets[at(queue[at(min(i + _DISTANCE_AHEAD, tail - 1))])])
    v = queue[at(i)]
    return offsets[at(v)], offsets[at(v) + at(1)]


def expand(
    rank: int, control: Any, offsets: Any, targets: Any, distance: Any, queue: Any, local: Any,
    shared: Any,
) -> None:  # fmt: skip
    """Follow the out-arcs of the frontier together; who sets a distance first appends the vertex."""
    head = shared[HEAD]
    tail = shared[TAIL]
    level = np.int32(shared[LEVEL] + 1)
    mine = rank * LOCAL_ITEMS
    held = 0
    found = 0
    found_arcs = 0
    followed = 0
    while True:
        begin, end = next_range(control, _EXPAND_CHUNK, tail - head)
        if begin == end:
            break
        for i in range(head + begin, head + end):
            first, last = _row(offsets, targets, queue, i, tail)
            followed += last - first
            for arc in range(first, last):
                u = targets[at(arc)]
                if load_relaxed(distance, at(u)) == UNREACHED and compare_exchange(
                    distance, at(u), np.int32(UNREACHED), level
                ):
                    found_arcs += offsets[at(u) + at(1)] - offsets[at(u)]
                    local[at(mine + held)] = u
                    held += 1
                    if held == LOCAL_ITEMS:
                        _flush(queue, shared, local, mine, held)
                        found += held
                        held = 0
    _flush(queue, shared, local, mine, held)
    _report(rank, shared, found + held, found_arcs)
    shared[RESULTS + 8 * rank + FOLLOWED] = followed


def _where(distance: Any, first: Any, value: Any) -> Any:
    """Of the 64 vertices from ``first`` on, those of that distance, as bits."""
    bits = np.int64(0)
    for bit in range(min(64, distance.size - first)):
        bits |= np.int64(distance[at(first + bit)] == value) << bit
    return bits


def to_bitmap(rank: int, size: int, distance: Any, bitmaps: Any, words: int, shared: Any) -> None:
    """Mark the frontier in its bitmap, and the vertices that were not reached in theirs."""
    frontier = shared[PARITY] * words
    left = 2 * words
    level = np.int32(shared[LEVEL])
    begin, end = block_range(rank, size, words)
    for word in range(begin, end):
        bitmaps[at(frontier + word)] = _where(distance, word << 6, level)
        bitmaps[at(left + word)] = _where(distance, word << 6, np.int32(UNREACHED))


def mark(
    rank: int, control: Any, offsets: Any, targets: Any, queue: Any, bitmaps: Any, words: int,
    shared: Any,
) -> None:  # fmt: skip
    """Mark the heads of the frontier's out-arcs, reached or not, in the thread's own bitmap."""
    mine = (COMMON_BITMAPS + rank) * words
    bitmaps[mine : mine + words] = 0
    head = shared[HEAD]
    tail = shared[TAIL]
    followed = 0
    while True:
        begin, end = next_range(control, _EXPAND_CHUNK, tail - head)
        if begin == end:
            break
        for i in range(head + begin, head + end):
            first, last = _row(offsets, targets, queue, i, tail)
            followed += last - first
            for arc in range(first, last):
                u = np.int64(targets[at(arc)])
                bitmaps[at(mine + (u >> 6))] |= np.int64(1) << (u & 63)
    shared[RESULTS + 8 * rank + FOLLOWED] = followed


def merge(
    rank: int, size: int, offsets: Any, distance: Any, bitmaps: Any, words: int, shared: Any
) -> None:
    """Make the next frontier of what was marked and not reached before; a word has one writer."""
    frontier = shared[PARITY] * words
    left = 2 * words
    level = np.int32(shared[LEVEL] + 1)
    found = 0
    found_arcs = 0
    begin, end = block_range(rank, size, words)
    for word in range(begin, end):
        marked = np.int64(0)
        for thread in range(size):
            marked |= bitmaps[at((COMMON_BITMAPS + thread) * words + word)]
        first_of_word = word << 6
        waiting = _where(distance, first_of_word, np.int32(UNREACHED))
        bitmaps[at(left + word)] = waiting & ~marked
        waiting &= marked
        bitmaps[at(frontier + word)] = waiting
        while waiting != 0:
            v = first_of_word + np.int64(_lowest_bit(waiting))
            waiting &= waiting - 1
            distance[at(v)] = level
            found += 1
            found_arcs += offsets[at(v + 1)] - offsets[at(v)]
    _report(rank, shared, found, found_arcs)


def sweep(
    rank: int, control: Any, in_offsets: Any, in_targets: Any, distance: Any, bitmaps: Any,
    words: int, shared: Any,
) -> None:  # fmt: skip
    """Let the vertices left look for a predecessor; a word of the bitmaps has one writer.

    Where a row says yes is unpredictable. So all test their first arcs without a branch, which is
    enough for most, and those that have more and no hit go on, two arcs at a time, with one branch.
    """
    level = np.int32(shared[LEVEL] + 1)
    frontier = shared[PARITY] * words
    found_bitmap = (1 - shared[PARITY]) * words
    left_bitmap = 2 * words
    found = 0
    found_arcs = 0
    followed = 0
    while True:
        begin, stop = next_range(control, _SWEEP_CHUNK_WORDS, words)
        if begin == stop:
            break
        for word in range(begin, stop):
            first_of_word = word << 6
            waiting = bitmaps[at(left_bitmap + word)]
            left = np.int64(0)  # those that have in-arcs
            while waiting != 0:
                bit = np.int64(_lowest_bit(waiting))
                waiting &= waiting - 1
                first = in_offsets[at(first_of_word + bit)]
                end = in_offsets[at(first_of_word + bit + 1)]
                left |= np.int64(first < end) << bit
                prefetch(in_targets, first)
            waiting = left
            found_here = np.int64(0)
            longer = np.int64(0)  # those with more arcs, and no hit in the first
            while waiting != 0:
                bit = np.int64(_lowest_bit(waiting))
                waiting &= waiting - 1
                first = in_offsets[at(first_of_word + bit)]
                end = in_offsets[at(first_of_word + bit + 1)]
                hit = np.int64(0)
                for k in range(_GLANCE):
                    u = np.int64(in_targets[at(min(first + k, end - 1))])
                    hit |= bitmaps[at(frontier + (u >> 6))] >> (u & 63)
                hit &= 1
                distance[at(first_of_word + bit)] = level if hit != 0 else UNREACHED
                found_here |= hit << bit
                longer |= np.int64((hit == 0) & (end - first > _GLANCE)) << bit
                found += int(hit)
                found_arcs += (end - first) * int(hit)
                followed += min(end - first, _GLANCE)
            waiting = longer
            while waiting != 0:
                bit = np.int64(_lowest_bit(waiting))
                waiting &= waiting - 1
                first = in_offsets[at(first_of_word + bit)]
                end = in_offsets[at(first_of_word + bit + 1)]
                arc = first + _GLANCE
                hit = np.int64(0)
                while arc < end and hit == 0:
                    for k in range(2):
                        u = np.int64(in_targets[at(min(arc + k, end - 1))])
                        hit |= bitmaps[at(frontier + (u >> 6))] >> (u & 63)
                    hit &= 1
                    arc += 2
                followed += min(arc, end) - first - _GLANCE
                if hit != 0:
                    distance[at(first_of_word + bit)] = level
                    found_here |= np.int64(1) << bit
                    found += 1
                    found_arcs += end - first
            bitmaps[at(found_bitmap + word)] = found_here
            bitmaps[at(left_bitmap + word)] = left & ~found_here
    _report(rank, shared, found, found_arcs)
    shared[RESULTS + 8 * rank + FOLLOWED] = followed


def to_queue(
    rank: int, size: int, queue: Any, bitmaps: Any, words: int, local: Any, shared: Any
) -> None:
    """Collect the vertices of the frontier bitmap in the queue."""
    frontier = shared[PARITY] * words
    first, end = block_range(rank, size, words)
    mine = rank * LOCAL_ITEMS
    held = 0
    for word in range(first, end):
        waiting = bitmaps[at(frontier + word)]
        while waiting != 0:
            bit = _lowest_bit(waiting)
            waiting &= waiting - 1
            local[at(mine + held)] = (word << 6) + np.int64(bit)
            held += 1
            if held == LOCAL_ITEMS:
                _flush(queue, shared, local, mine, held)
                held = 0
    _flush(queue, shared, local, mine, held)
