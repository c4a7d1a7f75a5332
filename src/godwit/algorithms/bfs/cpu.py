"""Breadth-first search that changes direction, on threads that share memory.

Beamer, Asanović and Patterson, "Direction-optimizing breadth-first search" (SC 2012), as GAP runs it.
Top-down: the frontier is a range of one queue, and its out-arcs are followed. Bottom-up: the frontier is a
bitmap, and every unreached vertex looks through its in-arcs for a member of it. ``alpha`` and ``beta`` are
the paper's: bottom-up begins when the arcs of the frontier exceed the arcs not followed yet over alpha, and
ends when the frontier shrinks below n over beta. We add a second condition to begin, and to go on with a
small frontier that does not shrink: it has several arcs for every unreached vertex, since a sweep visits
all of these. So all sweeps of a search together visit few vertices more than the graph has arcs. Nor does a
frontier become a bitmap if it has fewer arcs than a pass over all vertices costs.

There are four ways top-down. One thread alone follows frontiers of very few vertices. Narrow frontiers, as
of roads, are followed together, level after level, with one meeting a level: threads list the vertices that
they reach, and each follows an equal part of all lists, without atomic operations. Two may list the same
vertex, which costs a little, and both set the same distance. Frontiers with about as many arcs as there are
vertices are followed without a branch and without an atomic operation, too: every thread marks the heads
of its arcs in a bitmap of its own, then the bitmaps are merged, each thread for its range of vertices.
(Threads that claim vertices by compare-and-exchange pass the cache lines of ``distance`` to and fro, which
in a graph that fits into a cache takes longer than all else.) Frontiers in between, in graphs of millions
of vertices, are followed by all threads with compare-and-exchange, since a merge would cost more.

Rank 0 plans, all perform: between two barriers rank 0 alone reads the results of a step and chooses the
next one. One call is one run of the team, however many levels the search has. A level is completed before
the search stops, so a target or a cutoff leaves exactly the vertices up to that distance.

Bottom-up needs in-arcs. An undirected graph has them. Reversing a directed graph costs many searches, so
its reverse is used if it exists (``graph.reverse``); without it the search is top-down throughout.

Invariants: a distance other than UNREACHED is written in the step of its level, and never changed; every
vertex is in the queue at most once, but for those that threads list twice; while a step runs, a word of a
bitmap has one writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from godwit import config
from godwit.dtypes import Array, frozen
from godwit.graph.csr import Graph
from godwit.graph.facts import in_arcs_at_hand
from godwit.runtime.cpu.atomics import (
    compare_exchange,
    fetch_add,
    load_acquire,
    load_relaxed,
    prefetch,
    store_relaxed,
)
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, CURSOR, barrier, block_range, next_range, run_team

UNREACHED = 2147483647
"""The distance of vertices that were not reached."""

# Longest row that is visited without branches, in arcs.
_SHORT_ROW = 8
# Vertices, or words of a bitmap, that a thread claims at a time.
_EXPAND_CHUNK = 32
_SWEEP_CHUNK_WORDS = 16
# Arcs that a vertex in a sweep tests before the first branch on a hit.
_GLANCE = 2
# Vertices that a thread collects before it appends them to the common queue.
LOCAL_ITEMS = 1024
# How far ahead in the queue rows and, later, the distances of neighbours are prefetched.
_ROW_AHEAD = 16
_DISTANCE_AHEAD = 8

# Steps.
STOP = 0
EXPAND = 1  # follow the out-arcs of queue[HEAD:TAIL]
TO_BITMAP = 2  # mark queue[HEAD:TAIL] in the frontier bitmap
SWEEP = 3  # let all unreached vertices look for a predecessor in the frontier bitmap
TO_QUEUE = 4  # collect the frontier bitmap in queue[0:]
MARK = 5  # mark the heads of the out-arcs of queue[HEAD:TAIL], each thread in a bitmap of its own
MERGE = 6  # merge these bitmaps into the next frontier
LEVELS_TOGETHER = 7  # follow queue[HEAD:TAIL] and what it leads to while frontiers are narrow
COUNT = 8  # count the vertices that were reached

# Bitmaps of n bits: two of frontiers, one of unreached vertices; then one of marked heads for each thread.
COMMON_BITMAPS = 3

# Words of `shared` (int64), in lines of 8. Line 0: what rank 0 writes for all.
STEP = 0
HEAD = 1
TAIL = 2
LEVEL = 3  # distance of the frontier
PARITY = 4  # which of the two bitmaps is the frontier
# Line 1: the end of the queue.
QUEUE_END = 8
# Line 2: used by rank 0 only.
FRONTIER = 16  # vertices in the frontier, while it is a bitmap
FRONTIER_ARCS = 17
LEFT_ARCS = 18  # arcs of vertices that were in no frontier yet
LEVELS = 19
BOTTOM_UP_LEVELS = 20
VISITED = 21
EXAMINED = 22
LISTED_TWICE = 23  # 1: vertices may have been counted twice
# From line 3 on, a line for each thread: results of its part of the step.
RESULTS = 24
REACHED = 0
# Arcs of these: in-arcs after a sweep, which has just read them; an estimate is enough.
REACHED_ARCS = 1
FOLLOWED = 2  # arcs visited
LISTED = 4  # two words, of even and odd levels: vertices that the thread has listed
SAW_TARGET = 6  # two words: the target is reached

# Cast of an index that is not negative: saves Numba's test for Python's a[-1].
at: Any = np.uint64
# Index of the lowest bit of a word that is not zero.
_lowest_bit: Any = trailing_zeros

# Frontiers of at least this many arcs per vertex of the graph become bitmaps: their heads are marked, or
# unreached vertices look for them. Either is a pass over all vertices.
_MARK_ARCS_PER_VERTEX = 0.5
# Up to this many threads may clear and merge a bitmap each for that; more threads need more arcs.
_MARK_THREADS = 32
# Smaller frontiers of fewer arcs are followed by one thread: a barrier would cost more than help gains.
_TEAM_ARCS = 100_000
# Cost of a vertex in a bottom-up sweep, in arcs followed top-down.
SWEEP_ARCS_PER_VERTEX = 4
# Frontiers of fewer vertices are not followed together.
_TOGETHER_VERTICES = 128
# Graphs of fewer arcs are searched by one thread, which takes a millisecond at most. Waking a second
# one gains a third of that where it gets a core of its own, and loses as much where it does not.
_ALONE_GRAPH_ARCS = 500_000
# Graphs of few arcs a vertex up to this size, such as roads, have narrow frontiers: more threads than these
# would meet for longer than they work.
_SPARSE_ARCS = 5_000_000
_SPARSE_THREADS = 8
_SPARSE_DEGREE = 4


@dataclass(frozen=True)
class SearchCounts:
    """Statistics of a search.

    :ivar arcs_examined: in either direction
    :ivar vertices_visited: vertices reached, sources included
    :ivar levels: frontiers that were expanded
    :ivar bottom_up_levels: of these, bottom-up ones
    :ivar completed: False if the run was aborted; distances are then partial
    """

    arcs_examined: int
    vertices_visited: int
    levels: int
    bottom_up_levels: int
    completed: bool


def bfs_on_cpu(
    graph: Graph,
    sources: Array,
    *,
    target: int | None = None,
    cutoff: int | None = None,
    alpha: int = 15,
    beta: int = 18,
    threads: int | None = None,
    control: Array | None = None,
    poll: Callable[[], None] | None = None,
) -> tuple[Array, SearchCounts]:
    """Return distances in arcs from the nearest source, and statistics.

    :param sources: int64 (k), valid vertices in any order, repetition allowed
    :param target: stop after the level of this vertex
    :param cutoff: stop after this level
    :param alpha: larger begins bottom-up earlier
    :param beta: larger stays bottom-up longer
    :param threads: limit; by default all that the process may use. Small graphs use one
    :param control: the control array of the team; setting its abort word ends the run
    :param poll: called now and then by the calling thread; an exception that it raises ends the run
    :returns: int32 (n) distances, :data:`UNREACHED` where none; statistics
    """
    n = graph.vertex_count
    distance = np.empty(n, np.int32)
    if n == 0:
        return distance, SearchCounts(0, 0, 0, 0, True)
    threads = config.thread_count() if threads is None else threads
    if graph.arc_count < _ALONE_GRAPH_ARCS:
        threads = 1
    elif graph.arc_count < min(_SPARSE_ARCS, _SPARSE_DEGREE * n):
        threads = min(threads, _SPARSE_THREADS)
    mark_arcs = int(_MARK_ARCS_PER_VERTEX * n * max(1, threads / _MARK_THREADS))
    largest_degree = graph.cached("largest_degree", lambda: int(graph.out_degree().max(initial=0)))
    together_arcs = min(_TEAM_ARCS, mark_arcs, n) if threads > 1 else 0
    reverse = in_arcs_at_hand(graph)
    in_arcs = graph if reverse is None else reverse
    shared = np.zeros(RESULTS + 8 * threads, np.int64)
    with _workspace(graph, threads, together_arcs) as (queue, bitmaps):
        completed = run_team(
            _search,
            graph.offsets,
            graph.targets,
            in_arcs.offsets,
            in_arcs.targets,
            distance,
            queue,
            bitmaps,
            np.empty(threads * LOCAL_ITEMS, graph.targets.dtype),
            np.empty((threads, 2, together_arcs + 1), graph.targets.dtype),
            shared,
            frozen(sources, np.int64),
            largest_degree,
            _TEAM_ARCS,
            mark_arcs,
            together_arcs // max(1, largest_degree),
            _TOGETHER_VERTICES,
            SWEEP_ARCS_PER_VERTEX,
            -1 if target is None else int(target),
            UNREACHED - 1 if cutoff is None else int(min(cutoff, UNREACHED - 1)),
            int(alpha) if reverse is not None else 0,
            int(beta),
            threads=threads,
            control=control,
            poll=poll,
            brief=n + graph.arc_count < _ALONE_GRAPH_ARCS,
        )
    return distance, SearchCounts(
        arcs_examined=int(shared[EXAMINED]),
        vertices_visited=int(shared[VISITED]),
        levels=int(shared[LEVELS]),
        bottom_up_levels=int(shared[BOTTOM_UP_LEVELS]),
        completed=all(completed),
    )


@contextmanager
def _workspace(graph: Graph, threads: int, repeated: int) -> Iterator[tuple[Array, Array]]:
    """Yield a queue and bitmaps for exclusive use; kept with the graph, since new pages cost time.

    A pair is kept for each search that ran at the same time. Popping from and appending to a list are
    atomic.

    :param repeated: number of items that threads may list twice: all behind these are in the queue once
    """
    idle: list[tuple[Array, Array]] = graph.cached("search workspaces", list)
    n = graph.vertex_count
    needed = (COMMON_BITMAPS + threads) * words_of(n)
    # One item more: `expand_alone` stores a vertex before it tests whether it is new.
    items = n + 1 + repeated
    try:
        queue, bitmaps = idle.pop()
    except IndexError:
        queue, bitmaps = np.empty(0, graph.targets.dtype), np.empty(0, np.int64)
    if queue.size < items:
        queue = np.empty(items, graph.targets.dtype)
    if bitmaps.size < needed:
        bitmaps = np.empty(needed, np.int64)
    yield queue, bitmaps
    # Not after an aborted search: its threads may still write.
    idle.append((queue, bitmaps))


def words_of(bits: Any) -> Any:
    """Return the number of 64-bit words for `bits` bits."""
    return (bits + 63) >> 6


def _follow_row(
    targets: Any, distance: Any, begin: int, stop: int, level: Any, listed: Any, tail: int
) -> int:
    """List the unreached vertices of a row, and set their distance; return the end of the list.

    Short rows, as of roads, are visited without a branch: whether a vertex is new is unpredictable there,
    and a misprediction costs more than a needless store. So the list needs room for one vertex more.
    """
    if stop - begin <= _SHORT_ROW:
        for arc in range(begin, stop):
            u = targets[at(arc)]
            before = load_relaxed(distance, at(u))
            listed[at(tail)] = u
            tail += before == UNREACHED
            store_relaxed(distance, at(u), min(before, level))
    else:
        for arc in range(begin, stop):
            u = targets[at(arc)]
            if load_relaxed(distance, at(u)) == UNREACHED:
                store_relaxed(distance, at(u), level)
                listed[at(tail)] = u
                tail += 1
    return tail


def expand_alone(
    control: Any, offsets: Any, targets: Any, distance: Any, queue: Any, shared: Any
) -> None:
    """Follow the out-arcs of the frontier on one thread, while the others wait.

    The queue continues with the next frontier, so prefetching works across levels.
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
        tail = _follow_row(targets, distance, begin, stop, level, queue, tail)
    shared[HEAD] = end
    shared[TAIL] = tail
    shared[QUEUE_END] = tail
    shared[LEVEL] += 1
    shared[LEVELS] += 1
    shared[VISITED] += tail - end
    shared[EXAMINED] += arcs
    shared[LEFT_ARCS] -= arcs


def _follow_part(
    offsets: Any, targets: Any, distance: Any, level: Any, part: Any, begin: int, end: int,
    listed: Any, tail: int,
) -> tuple[int, int]:  # fmt: skip
    """Follow the out-arcs of some vertices of a list; return the end of the next list, and their number."""
    arcs = 0
    for i in range(begin, end):
        ahead = part[at(min(i + _ROW_AHEAD, end - 1))]
        prefetch(targets, offsets[at(ahead)])
        ahead = part[at(min(i + _DISTANCE_AHEAD, end - 1))]
        last = max(offsets[at(ahead) + at(1)] - 1, 0)
        prefetch(distance, targets[at(min(offsets[at(ahead)], last))])
        prefetch(distance, targets[at(last)])
        v = part[at(i)]
        first = offsets[at(v)]
        stop = offsets[at(v) + at(1)]
        arcs += stop - first
        tail = _follow_row(targets, distance, first, stop, level, listed, tail)
    return tail, arcs


def follow_levels(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, distance: Any, queue: Any,
    lists: Any, shared: Any, most: int, fewest: int, target: int, cutoff: int,
) -> bool:  # fmt: skip
    """Follow the frontier, level after level, while it is narrow; return False if aborted.

    The last frontier is then queue[HEAD:TAIL]. Distances are written by plain stores: in a level all
    threads write the same to a vertex. A thread that reads UNREACHED meanwhile lists the vertex once more.

    :param lists: (size, 2, most * largest degree + 1) vertices that threads reached in even and odd levels
    :param most: size of the largest frontier to follow, for which lists have room
    :param fewest: size of the smallest frontier to follow
    :param target: vertex at which the search stops; -1: none
    :param cutoff: level after which it stops
    """
    level = shared[LEVEL]
    count = shared[TAIL] - shared[HEAD]
    visited = 0
    followed = 0
    is_first = True
    is_over = False
    while not is_over:
        parity = level & 1
        level += 1
        begin, end = block_range(rank, size, count)
        mine = lists[at(rank), at(1 - parity)]
        tail = 0
        if is_first:
            part = queue[shared[HEAD] : shared[TAIL]]
            tail, arcs = _follow_part(
                offsets, targets, distance, np.int32(level), part, begin, end, mine, tail
            )
            followed += arcs
        else:
            before = 0
            for other in range(size):
                listed = shared[RESULTS + 8 * other + LISTED + parity]
                first = max(begin - before, 0)
                last = min(end - before, listed)
                if first < last:
                    tail, arcs = _follow_part(
                        offsets, targets, distance, np.int32(level), lists[at(other), at(parity)],
                        first, last, mine, tail,
                    )  # fmt: skip
                    followed += arcs
                before += listed
        is_first = False
        line = RESULTS + 8 * rank
        shared[line + LISTED + 1 - parity] = tail
        shared[line + SAW_TARGET + 1 - parity] = (
            target >= 0 and load_relaxed(distance, at(target)) != UNREACHED
        )
        if not barrier(control, size):
            return False
        # All threads read the same: these words are written again two levels later.
        count = 0
        is_over = level >= cutoff
        for other in range(size):
            count += shared[RESULTS + 8 * other + LISTED + 1 - parity]
            is_over |= shared[RESULTS + 8 * other + SAW_TARGET + 1 - parity] != 0
        visited += count
        is_over |= count < fewest or count > most
    shared[RESULTS + 8 * rank + FOLLOWED] = followed
    if rank == 0:
        tail = 0
        for other in range(size):
            for i in range(shared[RESULTS + 8 * other + LISTED + (level & 1)]):
                queue[at(tail)] = lists[at(other), at(level & 1), at(i)]
                tail += 1
        shared[HEAD] = 0
        shared[TAIL] = tail
        shared[QUEUE_END] = tail
        shared[LEVELS] += level - shared[LEVEL]
        shared[LEVEL] = level
        shared[VISITED] += visited
        shared[LISTED_TWICE] = 1
    return True


def count_reached(rank: int, size: int, distance: Any, shared: Any) -> None:
    """Count the vertices that were reached, each thread those of a range."""
    begin, end = block_range(rank, size, distance.size)
    reached = 0
    for v in range(begin, end):
        reached += distance[at(v)] != UNREACHED
    shared[RESULTS + 8 * rank + REACHED] = reached


def _flush(queue: Any, shared: Any, local: Any, begin: int, count: int) -> None:
    """Append the vertices that a thread has collected to the common queue."""
    end = fetch_add(shared, QUEUE_END, count)
    for i in range(count):
        queue[at(end + i)] = local[at(begin + i)]


def _report(rank: int, shared: Any, reached: int, reached_arcs: int) -> None:
    """Store the results of a thread in a step."""
    shared[RESULTS + 8 * rank + REACHED] = reached
    shared[RESULTS + 8 * rank + REACHED_ARCS] = reached_arcs


def queued_row(offsets: Any, targets: Any, queue: Any, i: int, tail: int) -> tuple[int, int]:
    """Return begin and end of the row of a queued vertex; prefetch a later row."""
    prefetch(targets, offsets[at(queue[at(min(i + _DISTANCE_AHEAD, tail - 1))])])
    v = queue[at(i)]
    return offsets[at(v)], offsets[at(v) + at(1)]


def expand(
    rank: int, control: Any, offsets: Any, targets: Any, distance: Any, queue: Any, local: Any,
    shared: Any,
) -> None:  # fmt: skip
    """Follow the out-arcs of the frontier; the thread that sets a distance appends the vertex."""
    head = shared[HEAD]
    tail = shared[TAIL]
    level = np.int32(shared[LEVEL] + 1)
    mine = rank * LOCAL_ITEMS
    held = 0
    reached = 0
    reached_arcs = 0
    followed = 0
    while True:
        begin, end = next_range(control, _EXPAND_CHUNK, tail - head)
        if begin == end:
            break
        for i in range(head + begin, head + end):
            first, last = queued_row(offsets, targets, queue, i, tail)
            followed += last - first
            for arc in range(first, last):
                u = targets[at(arc)]
                if load_relaxed(distance, at(u)) == UNREACHED and compare_exchange(
                    distance, at(u), np.int32(UNREACHED), level
                ):
                    reached_arcs += offsets[at(u) + at(1)] - offsets[at(u)]
                    local[at(mine + held)] = u
                    held += 1
                    if held == LOCAL_ITEMS:
                        _flush(queue, shared, local, mine, held)
                        reached += held
                        held = 0
    _flush(queue, shared, local, mine, held)
    _report(rank, shared, reached + held, reached_arcs)
    shared[RESULTS + 8 * rank + FOLLOWED] = followed


def _where(distance: Any, first: Any, value: Any) -> Any:
    """Return the vertices at a distance among the 64 from ``first`` on, as bits."""
    bits = np.int64(0)
    for bit in range(min(64, distance.size - first)):
        bits |= np.int64(distance[at(first + bit)] == value) << bit
    return bits


def to_bitmap(rank: int, size: int, distance: Any, bitmaps: Any, words: int, shared: Any) -> None:
    """Make the bitmaps of the frontier and of unreached vertices."""
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
    """Mark the heads of the frontier's out-arcs, reached or not, in the thread's bitmap."""
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
            first, last = queued_row(offsets, targets, queue, i, tail)
            followed += last - first
            for arc in range(first, last):
                u = np.int64(targets[at(arc)])
                bitmaps[at(mine + (u >> 6))] |= np.int64(1) << (u & 63)
    shared[RESULTS + 8 * rank + FOLLOWED] = followed


def merge(
    rank: int, size: int, offsets: Any, distance: Any, bitmaps: Any, words: int, shared: Any
) -> None:
    """Make the bitmap of the next frontier, of the vertices that any thread marked and that are unreached.

    Each word of the bitmaps is written by one thread only.
    """
    frontier = shared[PARITY] * words
    left = 2 * words
    level = np.int32(shared[LEVEL] + 1)
    reached = 0
    reached_arcs = 0
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
            reached += 1
            reached_arcs += offsets[at(v + 1)] - offsets[at(v)]
    _report(rank, shared, reached, reached_arcs)


def sweep(
    rank: int, control: Any, in_offsets: Any, in_targets: Any, distance: Any, bitmaps: Any,
    words: int, shared: Any,
) -> None:  # fmt: skip
    """Search the in-arcs of unreached vertices for a predecessor in the frontier.

    Each word of the bitmaps is written by one thread only.

    The first hit in a row is unpredictable. So all vertices test their first arcs without a branch, which
    suffices for most; those with more arcs and no hit continue two arcs at a time, with one branch.
    """
    level = np.int32(shared[LEVEL] + 1)
    frontier = shared[PARITY] * words
    reached_bitmap = (1 - shared[PARITY]) * words
    left_bitmap = 2 * words
    reached = 0
    reached_arcs = 0
    followed = 0
    while True:
        begin, stop = next_range(control, _SWEEP_CHUNK_WORDS, words)
        if begin == stop:
            break
        for word in range(begin, stop):
            first_of_word = word << 6
            waiting = bitmaps[at(left_bitmap + word)]
            left = np.int64(0)  # vertices that have in-arcs
            while waiting != 0:
                bit = np.int64(_lowest_bit(waiting))
                waiting &= waiting - 1
                first = in_offsets[at(first_of_word + bit)]
                end = in_offsets[at(first_of_word + bit + 1)]
                left |= np.int64(first < end) << bit
                prefetch(in_targets, first)
            waiting = left
            reached_here = np.int64(0)
            longer = np.int64(0)  # with more arcs, and no hit in the first
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
                reached_here |= hit << bit
                longer |= np.int64((hit == 0) & (end - first > _GLANCE)) << bit
                reached += int(hit)
                reached_arcs += (end - first) * int(hit)
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
                    reached_here |= np.int64(1) << bit
                    reached += 1
                    reached_arcs += end - first
            bitmaps[at(reached_bitmap + word)] = reached_here
            bitmaps[at(left_bitmap + word)] = left & ~reached_here
    _report(rank, shared, reached, reached_arcs)
    shared[RESULTS + 8 * rank + FOLLOWED] = followed


def to_queue(
    rank: int, size: int, queue: Any, bitmaps: Any, words: int, local: Any, shared: Any
) -> None:
    """Append the vertices of the frontier bitmap to the queue."""
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


def _is_over(distance: Any, shared: Any, target: int, cutoff: int) -> bool:
    """Return True if the frontier need not be expanded."""
    if shared[LEVEL] >= cutoff:
        return True
    return target >= 0 and distance[target] != UNREACHED


def _seed(distance: Any, queue: Any, shared: Any, sources: Any) -> None:
    """Append each source once to the queue."""
    tail = 0
    for source in sources:
        if distance[source] == UNREACHED:
            distance[source] = 0
            queue[tail] = source
            tail += 1
    shared[TAIL] = tail
    shared[QUEUE_END] = tail
    shared[VISITED] = tail


def _count_arcs(offsets: Any, queue: Any, head: int, tail: int) -> int:
    """Return the number of out-arcs of a range of the queue."""
    arcs = 0
    for i in range(head, tail):
        v = queue[at(i)]
        arcs += offsets[at(v) + at(1)] - offsets[at(v)]
    return arcs


def _take_results(size: int, shared: Any) -> tuple[int, int]:
    """Return the vertices reached in the last step by all threads, and their arcs."""
    reached = 0
    arcs = 0
    for rank in range(size):
        result = RESULTS + 8 * rank
        reached += shared[result + REACHED]
        arcs += shared[result + REACHED_ARCS]
        shared[EXAMINED] += shared[result + FOLLOWED]
    shared[LEVEL] += 1
    shared[LEVELS] += 1
    shared[VISITED] += reached
    return reached, arcs


def _pays_to_sweep(n: int, arcs: int, sweep_arcs: int, alpha: int, shared: Any) -> bool:
    """Return True if a sweep costs less than following the frontier's arcs."""
    if arcs * alpha <= shared[LEFT_ARCS] - arcs:
        return False
    return arcs >= sweep_arcs * (n - shared[VISITED])  # type: ignore[no-any-return]


def _plan(
    size: int, control: Any, offsets: Any, targets: Any, distance: Any, queue: Any, shared: Any,
    largest_degree: int, team_arcs: int, mark_arcs: int, most: int, fewest: int, sweep_arcs: int,
    target: int, cutoff: int, alpha: int, beta: int,
) -> int:  # fmt: skip
    """Return the next step; called by rank 0 between two barriers."""
    n = offsets.size - 1
    if targets.size == 0:
        return STOP
    step = shared[STEP]
    store_relaxed(control, CURSOR, 0)
    arcs = -1  # of the frontier; -1: unknown
    if step == TO_BITMAP:
        return SWEEP
    if step == MARK:
        return MERGE
    if step == COUNT:
        shared[VISITED] = 0
        for rank in range(size):
            shared[VISITED] += shared[RESULTS + 8 * rank + REACHED]
        shared[LISTED_TWICE] = 0
        return STOP
    if step in (SWEEP, MERGE):
        reached, arcs = _take_results(size, shared)
        sweeps = _pays_to_sweep(n, arcs, sweep_arcs, alpha, shared)
        if step == SWEEP:
            shared[BOTTOM_UP_LEVELS] += 1
            shared[PARITY] = 1 - shared[PARITY]
            sweeps = reached * beta > n or (sweeps and reached >= shared[FRONTIER])
        shared[FRONTIER] = reached
        shared[FRONTIER_ARCS] = arcs
        if reached == 0 or _is_over(distance, shared, target, cutoff):
            return STOP
        if sweeps:
            shared[LEFT_ARCS] -= arcs
            return SWEEP
        shared[QUEUE_END] = 0
        return TO_QUEUE
    if step == TO_QUEUE:
        shared[HEAD] = 0
        shared[TAIL] = shared[QUEUE_END]
        arcs = shared[FRONTIER_ARCS]
    elif step == EXPAND:
        _, arcs = _take_results(size, shared)
        shared[HEAD] = shared[TAIL]
        shared[TAIL] = shared[QUEUE_END]
    elif step == LEVELS_TOGETHER:
        for rank in range(size):
            followed = shared[RESULTS + 8 * rank + FOLLOWED]
            shared[EXAMINED] += followed
            shared[LEFT_ARCS] -= followed
    few = min(team_arcs, mark_arcs)
    while shared[HEAD] < shared[TAIL] and not _is_over(distance, shared, target, cutoff):
        if arcs < 0:
            arcs = (shared[TAIL] - shared[HEAD]) * largest_degree
            if arcs >= few:
                arcs = _count_arcs(offsets, queue, shared[HEAD], shared[TAIL])
        if arcs >= few:
            following = STOP
            if arcs < mark_arcs:
                following = EXPAND if size > 1 else STOP
            elif step != TO_QUEUE and _pays_to_sweep(n, arcs, sweep_arcs, alpha, shared):
                following = TO_BITMAP
                shared[FRONTIER] = shared[TAIL] - shared[HEAD]
            else:
                following = MARK
            if following != STOP:
                shared[LEFT_ARCS] -= arcs
                return following
        if size > 1 and fewest <= shared[TAIL] - shared[HEAD] <= most:
            return LEVELS_TOGETHER
        expand_alone(control, offsets, targets, distance, queue, shared)
        if load_acquire(control, ABORT) != 0:
            return STOP
        step = STOP
        arcs = -1
    return STOP


@kernel
def _search(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, in_offsets: Any,
    in_targets: Any, distance: Any, queue: Any, bitmaps: Any, local: Any, lists: Any, shared: Any,
    sources: Any, largest_degree: int, team_arcs: int, mark_arcs: int, most: int, fewest: int,
    sweep_arcs: int, target: int, cutoff: int, alpha: int, beta: int,
) -> bool:  # fmt: skip
    """Run the search on every thread of the team; return False if aborted."""
    n = offsets.size - 1
    words = words_of(n)
    begin, end = block_range(rank, size, n)
    distance[begin:end] = UNREACHED
    if not barrier(control, size):
        return False
    if rank == 0:
        _seed(distance, queue, shared, sources)
        shared[LEFT_ARCS] = targets.size
    while True:
        if rank == 0:
            following = _plan(
                size, control, offsets, targets, distance, queue, shared,
                largest_degree, team_arcs, mark_arcs, most, fewest, sweep_arcs, target, cutoff,
                alpha, beta,
            )  # fmt: skip
            if following == STOP and shared[LISTED_TWICE] != 0:
                following = COUNT
            shared[STEP] = following
        if not barrier(control, size):
            return False
        step = shared[STEP]
        if step == STOP:
            return True
        if step == LEVELS_TOGETHER:
            if not follow_levels(
                rank, size, control, offsets, targets, distance, queue, lists, shared, most, fewest,
                target, cutoff,
            ):  # fmt: skip
                return False
        elif step == COUNT:
            count_reached(rank, size, distance, shared)
        elif step == EXPAND:
            expand(rank, control, offsets, targets, distance, queue, local, shared)
        elif step == MARK:
            mark(rank, control, offsets, targets, queue, bitmaps, words, shared)
        elif step == MERGE:
            merge(rank, size, offsets, distance, bitmaps, words, shared)
        elif step == TO_BITMAP:
            to_bitmap(rank, size, distance, bitmaps, words, shared)
        elif step == SWEEP:
            sweep(rank, control, in_offsets, in_targets, distance, bitmaps, words, shared)
        else:
            to_queue(rank, size, queue, bitmaps, words, local, shared)
        if not barrier(control, size):
            return False
