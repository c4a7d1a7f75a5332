"""Breadth-first search that changes direction: the driver behind BFS on one shared-memory device.

Beamer, Asanović and Patterson, "Direction-optimizing breadth-first search" (SC 2012), as GAP runs it.
Top-down: the frontier is a stretch of one queue, and its out-arcs are followed. Bottom-up: the
frontier is a bitmap, and every vertex not reached yet looks through its in-arcs for one member of it.
``alpha`` and ``beta`` are the paper's: bottom-up begins when the arcs of the frontier exceed the arcs
not followed yet over alpha, and ends when the frontier shrinks below n over beta. Ours is a second
condition to begin: the frontier has several times n arcs, for a sweep visits n vertices. Without it
small graphs turn too early, and long thin ones turn back and forth at their ends.

Rank 0 plans, all perform: between two barriers rank 0 alone reads what the step gave and writes down
the next one. While the frontier has few arcs it follows them there and then, level after level; the
others wait. One call is one run of the team whatever the number of levels.

Invariants: ``distance[v]`` is written once, in the step of its level; every vertex is in the queue at
most once. A level is completed before the search stops, so that a target or a cutoff leaves exactly
the vertices up to that distance, whatever the threads did.

Bottom-up needs the in-arcs. An undirected graph has them. The reverse of a directed graph costs many
searches to build, so it is used if it has been built (``graph.reverse``), and never built here;
without it the search is top-down throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from godwit import config
from godwit.algorithms.predecessors import in_arcs_at_hand
from godwit.dtypes import Array, frozen
from godwit.graph.csr import Graph
from godwit.parallel.atomics import (
    compare_exchange,
    fetch_add,
    load_acquire,
    load_relaxed,
    prefetch,
    store_relaxed,
)
from godwit.parallel.kernel import kernel
from godwit.parallel.team import ABORT, CURSOR, barrier, block_range, run_team

UNREACHED = 2147483647
"""The distance of vertices that were not reached."""

# Frontiers of fewer arcs are followed by one thread: the rest would take longer to meet than to help.
_TEAM_ARCS = 100_000
# A vertex in a bottom-up sweep costs about as much as so many arcs top-down.
_SWEEP_ARCS_PER_VERTEX = 4
# Graphs of fewer arcs are searched by one thread, which takes a millisecond at most. Waking a second
# one gains a third of that where it gets a core of its own, and loses as much where it does not.
_ALONE_GRAPH_ARCS = 500_000
# So are graphs of few arcs a vertex up to this size, such as roads: their frontiers stay narrow.
_ALONE_SPARSE_ARCS = 5_000_000
_SPARSE_DEGREE = 4
# Rows of at most so many arcs are gone through without branches.
_SHORT_ROW = 8
# Work is handed out in so many vertices at a time.
_EXPAND_CHUNK = 32
_SWEEP_CHUNK_WORDS = 16
# Vertices that a thread collects before it takes room in the common queue for them.
_LOCAL_ITEMS = 1024
# How far ahead in the queue the rows and, later, the distances of neighbours are asked for.
_ROW_AHEAD = 16
_DISTANCE_AHEAD = 8

# Steps.
_STOP = 0
_EXPAND = 1  # follow the out-arcs of queue[HEAD:TAIL]
_TO_BITMAP = 2  # mark queue[HEAD:TAIL] in the frontier bitmap
_SWEEP = 3  # let all vertices left look for a predecessor in the frontier bitmap
_TO_QUEUE = 4  # collect the frontier bitmap in queue[0:]

# Words of `shared` (int64), in lines of 8. Line 0: what rank 0 writes down for all.
_STEP = 0
_HEAD = 1
_TAIL = 2
_LEVEL = 3  # distance of the frontier
_PARITY = 4  # which of the two bitmaps is the frontier
# Line 1: the room taken in the queue.
_QUEUE_END = 8
# Line 2: what only rank 0 knows.
_FRONTIER = 16  # vertices in the frontier, while it is a bitmap
_FRONTIER_ARCS = 17
_LEFT_ARCS = 18  # arcs of vertices that were in no frontier yet
_LEVELS = 19
_BOTTOM_UP_LEVELS = 20
_VISITED = 21
_EXAMINED = 22
# From line 3 on, a line a thread: what its part of the step gave.
_RESULTS = 24
_FOUND = 0
# Arcs of those: in-arcs after a sweep, which has just read them. It is a guide only.
_FOUND_ARCS = 1
_FOLLOWED = 2  # arcs looked at

# An index known not to be negative: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64
# Of a word that is not zero.
_lowest_bit: Any = trailing_zeros


@dataclass(frozen=True)
class SearchCounts:
    """What a search did.

    :ivar arcs_examined: arcs looked at, in either direction
    :ivar vertices_visited: vertices reached, sources included
    :ivar levels: frontiers whose neighbours were looked for
    :ivar bottom_up_levels: of these, those done bottom-up
    :ivar completed: False if the run was aborted from outside; distances are then partial
    """

    arcs_examined: int
    vertices_visited: int
    levels: int
    bottom_up_levels: int
    completed: bool


def direction_optimizing_bfs(
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
    """Distances in arcs from the nearest source, on threads that share memory.

    :param sources: int64 (k), valid vertices in any order, repetition allowed
    :param target: stop after the level of this vertex
    :param cutoff: stop after this level
    :param alpha: larger begins bottom-up earlier
    :param beta: larger stays bottom-up longer
    :param threads: at most so many; all that the process may use by default. Small graphs use one
    :param control: the control array of the run; setting its abort word from outside ends it early
    :param poll: called now and then by the calling thread; an exception that it raises ends the run
    :returns: int32 (n) distances, :data:`UNREACHED` where none; and what the search did
    """
    n = graph.vertex_count
    distance = np.empty(n, np.int32)
    if n == 0:
        return distance, SearchCounts(0, 0, 0, 0, True)
    sparse = graph.arc_count < min(_ALONE_SPARSE_ARCS, _SPARSE_DEGREE * n)
    if sparse or graph.arc_count < _ALONE_GRAPH_ARCS:
        threads = 1
    elif threads is None:
        threads = config.thread_count()
    reverse = in_arcs_at_hand(graph)
    in_arcs = graph if reverse is None else reverse
    shared = np.zeros(_RESULTS + 8 * threads, np.int64)
    with _workspace(graph) as (queue, bitmaps):
        completed = run_team(
            _search,
            graph.offsets,
            graph.targets,
            in_arcs.offsets,
            in_arcs.targets,
            distance,
            queue,
            bitmaps,
            np.empty(threads * _LOCAL_ITEMS, graph.targets.dtype),
            shared,
            frozen(sources, np.int64),
            _largest_degree(graph),
            _TEAM_ARCS,
            _SWEEP_ARCS_PER_VERTEX * n,
            -1 if target is None else int(target),
            UNREACHED - 1 if cutoff is None else int(min(cutoff, UNREACHED - 1)),
            int(alpha) if reverse is not None else 0,
            int(beta),
            threads=threads,
            control=control,
            poll=poll,
        )
    return distance, SearchCounts(
        arcs_examined=int(shared[_EXAMINED]),
        vertices_visited=int(shared[_VISITED]),
        levels=int(shared[_LEVELS]),
        bottom_up_levels=int(shared[_BOTTOM_UP_LEVELS]),
        completed=all(completed),
    )


def _largest_degree(graph: Graph) -> int:
    v = graph.highest_degree_vertex()
    return int(graph.offsets[v + 1] - graph.offsets[v])


@contextmanager
def _workspace(graph: Graph) -> Iterator[tuple[Array, Array]]:
    """Queue and bitmaps, for the caller alone; kept with the graph, since new pages cost time.

    As many pairs are kept as were ever in use at once. Taking from a list and adding to it are
    atomic in Python, so searches may run at the same time.
    """
    idle: list[tuple[Array, Array]] = graph.cached("search workspaces", list)
    try:
        pair = idle.pop()
    except IndexError:
        n = graph.vertex_count
        # One more: `_expand_alone` writes before it knows whether the vertex is new. Two bitmaps of
        # frontiers, one of vertices left, each of n bits.
        pair = np.empty(n + 1, graph.targets.dtype), np.empty(3 * _words(n), np.int64)
    yield pair
    # Only after a search that ended: the threads of one that was left may still write to its own.
    idle.append(pair)


def _words(bits: Any) -> Any:
    """64-bit words that hold so many bits."""
    return (bits + 63) >> 6


def _is_over(distance: Any, shared: Any, target: int, cutoff: int) -> bool:
    """Whether the frontier need not be expanded."""
    if shared[_LEVEL] >= cutoff:
        return True
    return target >= 0 and distance[target] != UNREACHED


def _seed(distance: Any, queue: Any, shared: Any, sources: Any) -> None:
    """Put the sources into the queue, each once."""
    tail = 0
    for source in sources:
        if distance[source] == UNREACHED:
            distance[source] = 0
            queue[tail] = source
            tail += 1
    shared[_TAIL] = tail
    shared[_QUEUE_END] = tail
    shared[_VISITED] = tail


def _count_arcs(offsets: Any, queue: Any, head: int, tail: int) -> int:
    """The out-arcs of a stretch of the queue."""
    arcs = 0
    for i in range(head, tail):
        v = queue[_at(i)]
        arcs += offsets[_at(v) + _at(1)] - offsets[_at(v)]
    return arcs


def _expand_alone(
    control: Any, offsets: Any, targets: Any, distance: Any, queue: Any, shared: Any
) -> None:
    """Follow the out-arcs of the frontier, with no other thread at work.

    Short rows, a road's, are gone through without a branch: whether a vertex is new is a coin toss
    there, and a wrong guess costs more than a needless store. The queue goes on behind the frontier
    with the next one, so that looking ahead in it works across levels.
    """
    head = shared[_HEAD]
    end = shared[_TAIL]
    tail = end
    arcs = 0
    level = np.int32(shared[_LEVEL] + 1)
    last_arc = targets.size - 1  # where the row of an isolated source at the end would begin
    for i in range(head, end):
        if i & 1023 == 0 and load_acquire(control, ABORT) != 0:
            break
        ahead = queue[_at(min(i + _ROW_AHEAD, tail - 1))]
        prefetch(targets, offsets[_at(ahead)])
        ahead = queue[_at(min(i + _DISTANCE_AHEAD, tail - 1))]
        prefetch(distance, targets[_at(min(offsets[_at(ahead)], last_arc))])
        prefetch(distance, targets[_at(max(offsets[_at(ahead) + _at(1)] - 1, 0))])
        v = queue[_at(i)]
        begin = offsets[_at(v)]
        stop = offsets[_at(v) + _at(1)]
        arcs += stop - begin
        if stop - begin <= _SHORT_ROW:
            for arc in range(begin, stop):
                u = targets[_at(arc)]
                before = distance[_at(u)]
                queue[_at(tail)] = u
                tail += before == UNREACHED
                distance[_at(u)] = min(before, level)
        else:
            for arc in range(begin, stop):
                u = targets[_at(arc)]
                if distance[_at(u)] == UNREACHED:
                    distance[_at(u)] = level
                    queue[_at(tail)] = u
                    tail += 1
    shared[_HEAD] = end
    shared[_TAIL] = tail
    shared[_QUEUE_END] = tail
    shared[_LEVEL] += 1
    shared[_LEVELS] += 1
    shared[_VISITED] += tail - end
    shared[_EXAMINED] += arcs
    shared[_LEFT_ARCS] -= arcs


def _take_results(size: int, control: Any, shared: Any) -> tuple[int, int]:
    """Vertices found in the step just done, and their arcs, of all threads together."""
    found = 0
    arcs = 0
    for rank in range(size):
        result = _RESULTS + 8 * rank
        found += shared[result + _FOUND]
        arcs += shared[result + _FOUND_ARCS]
        shared[_EXAMINED] += shared[result + _FOLLOWED]
    shared[_LEVEL] += 1
    shared[_LEVELS] += 1
    shared[_VISITED] += found
    return found, arcs


def _plan(
    size: int, control: Any, offsets: Any, targets: Any, distance: Any, queue: Any, shared: Any,
    largest_degree: int, team_arcs: int, sweep_arcs: int, target: int, cutoff: int, alpha: int, beta: int,
) -> int:  # fmt: skip
    """What all do next; rank 0 alone, after a step and before the next."""
    n = offsets.size - 1
    if targets.size == 0:
        return _STOP
    step = shared[_STEP]
    store_relaxed(control, CURSOR, 0)
    arcs = -1  # of the frontier; not known yet
    if step == _TO_BITMAP:
        return _SWEEP
    if step == _SWEEP:
        found, arcs = _take_results(size, control, shared)
        shared[_BOTTOM_UP_LEVELS] += 1
        shared[_PARITY] = 1 - shared[_PARITY]
        before = shared[_FRONTIER]
        shared[_FRONTIER] = found
        shared[_FRONTIER_ARCS] = arcs
        if found == 0 or _is_over(distance, shared, target, cutoff):
            return _STOP
        if found >= before or found * beta > n:
            shared[_LEFT_ARCS] -= arcs
            return _SWEEP
        shared[_QUEUE_END] = 0
        return _TO_QUEUE
    if step == _TO_QUEUE:
        shared[_HEAD] = 0
        shared[_TAIL] = shared[_QUEUE_END]
        arcs = shared[_FRONTIER_ARCS]
    elif step == _EXPAND:
        shared[_LEFT_ARCS] -= shared[_FRONTIER_ARCS]
        _, arcs = _take_results(size, control, shared)
        shared[_HEAD] = shared[_TAIL]
        shared[_TAIL] = shared[_QUEUE_END]
    while shared[_HEAD] < shared[_TAIL] and not _is_over(distance, shared, target, cutoff):
        if arcs < 0:
            arcs = (shared[_TAIL] - shared[_HEAD]) * largest_degree
            if arcs >= team_arcs:
                arcs = _count_arcs(offsets, queue, shared[_HEAD], shared[_TAIL])
        if arcs >= team_arcs:
            shared[_FRONTIER_ARCS] = arcs
            left = shared[_LEFT_ARCS] - arcs
            if arcs * alpha > left and arcs >= sweep_arcs and step != _TO_QUEUE:
                shared[_LEFT_ARCS] = left
                shared[_FRONTIER] = shared[_TAIL] - shared[_HEAD]
                return _TO_BITMAP
            if size > 1:
                return _EXPAND
        _expand_alone(control, offsets, targets, distance, queue, shared)
        if load_acquire(control, ABORT) != 0:
            return _STOP
        step = _STOP
        arcs = -1
    return _STOP


def _flush(queue: Any, shared: Any, local: Any, begin: int, count: int) -> None:
    """Append the vertices that a thread has collected to the common queue."""
    end = fetch_add(shared, _QUEUE_END, count)
    for i in range(count):
        queue[_at(end + i)] = local[_at(begin + i)]


def _expand(
    rank: int, control: Any, offsets: Any, targets: Any, distance: Any, queue: Any, local: Any,
    shared: Any,
) -> None:  # fmt: skip
    """Follow the out-arcs of the frontier together; who sets a distance first appends the vertex."""
    head = shared[_HEAD]
    tail = shared[_TAIL]
    level = np.int32(shared[_LEVEL] + 1)
    mine = rank * _LOCAL_ITEMS
    held = 0
    found = 0
    found_arcs = 0
    followed = 0
    while True:
        begin = head + fetch_add(control, CURSOR, _EXPAND_CHUNK)
        if begin >= tail or load_acquire(control, ABORT) != 0:
            break
        for i in range(begin, min(begin + _EXPAND_CHUNK, tail)):
            prefetch(targets, offsets[_at(queue[_at(min(i + _DISTANCE_AHEAD, tail - 1))])])
            v = queue[_at(i)]
            first = offsets[_at(v)]
            end = offsets[_at(v) + _at(1)]
            followed += end - first
            for arc in range(first, end):
                u = targets[_at(arc)]
                if load_relaxed(distance, _at(u)) == UNREACHED and compare_exchange(
                    distance, _at(u), np.int32(UNREACHED), level
                ):
                    found_arcs += offsets[_at(u) + _at(1)] - offsets[_at(u)]
                    local[_at(mine + held)] = u
                    held += 1
                    if held == _LOCAL_ITEMS:
                        _flush(queue, shared, local, mine, held)
                        found += held
                        held = 0
    _flush(queue, shared, local, mine, held)
    result = _RESULTS + 8 * rank
    shared[result + _FOUND] = found + held
    shared[result + _FOUND_ARCS] = found_arcs
    shared[result + _FOLLOWED] = followed


def _to_bitmap(rank: int, size: int, queue: Any, bitmaps: Any, n: int, shared: Any) -> None:
    """Mark the frontier in its bitmap, and cross out all in the queue from those left.

    A thread goes through the whole queue for the words that it owns. The queue holds every vertex
    that was reached, except those that sweeps found and crossed out themselves.
    """
    words = _words(n)
    first, end = block_range(rank, size, words)
    frontier = shared[_PARITY] * words
    left = 2 * words
    for word in range(first, end):
        bitmaps[_at(frontier + word)] = 0
    if shared[_BOTTOM_UP_LEVELS] == 0:
        for word in range(first, end):
            bitmaps[_at(left + word)] = -1
        if end == words and n & 63 != 0:
            bitmaps[_at(left + words - 1)] = (np.int64(1) << (n & 63)) - 1
    head = shared[_HEAD]
    for i in range(shared[_TAIL]):
        v = np.int64(queue[_at(i)])
        home = v >> 6
        if first <= home < end:
            bit = np.int64(1) << (v & 63)
            bitmaps[_at(left + home)] &= ~bit
            if i >= head:
                bitmaps[_at(frontier + home)] |= bit


def _sweep(
    rank: int, control: Any, in_offsets: Any, in_targets: Any, distance: Any, bitmaps: Any,
    words: int, shared: Any,
) -> None:  # fmt: skip
    """Let the vertices left look for a predecessor; a word of the bitmaps has one writer.

    Where a row says yes is unpredictable, so arcs are tested two at a time, with one branch.
    """
    level = np.int32(shared[_LEVEL] + 1)
    frontier = shared[_PARITY] * words
    found_bitmap = (1 - shared[_PARITY]) * words
    left_bitmap = 2 * words
    found = 0
    found_arcs = 0
    followed = 0
    while True:
        begin = fetch_add(control, CURSOR, _SWEEP_CHUNK_WORDS)
        if begin >= words or load_acquire(control, ABORT) != 0:
            break
        for word in range(begin, min(begin + _SWEEP_CHUNK_WORDS, words)):
            first_of_word = word << 6
            waiting = bitmaps[_at(left_bitmap + word)]
            left = np.int64(0)  # those that have in-arcs
            while waiting != 0:
                bit = np.int64(_lowest_bit(waiting))
                waiting &= waiting - 1
                first = in_offsets[_at(first_of_word + bit)]
                end = in_offsets[_at(first_of_word + bit + 1)]
                left |= np.int64(first < end) << bit
                prefetch(in_targets, first)
            waiting = left
            found_here = np.int64(0)
            while waiting != 0:
                bit = np.int64(_lowest_bit(waiting))
                waiting &= waiting - 1
                first = in_offsets[_at(first_of_word + bit)]
                end = in_offsets[_at(first_of_word + bit + 1)]
                arc = first
                hit = np.int64(0)
                while arc < end and hit == 0:
                    for k in range(2):
                        u = np.int64(in_targets[_at(min(arc + k, end - 1))])
                        hit |= bitmaps[_at(frontier + (u >> 6))] >> (u & 63)
                    hit &= 1
                    arc += 2
                followed += min(arc, end) - first
                if hit != 0:
                    distance[_at(first_of_word + bit)] = level
                    found_here |= np.int64(1) << bit
                    found += 1
                    found_arcs += end - first
            bitmaps[_at(found_bitmap + word)] = found_here
            bitmaps[_at(left_bitmap + word)] = left & ~found_here
    result = _RESULTS + 8 * rank
    shared[result + _FOUND] = found
    shared[result + _FOUND_ARCS] = found_arcs
    shared[result + _FOLLOWED] = followed


def _to_queue(
    rank: int, size: int, queue: Any, bitmaps: Any, words: int, local: Any, shared: Any
) -> None:
    """Collect the vertices of the frontier bitmap in the queue."""
    frontier = shared[_PARITY] * words
    first, end = block_range(rank, size, words)
    mine = rank * _LOCAL_ITEMS
    held = 0
    for word in range(first, end):
        waiting = bitmaps[_at(frontier + word)]
        while waiting != 0:
            bit = _lowest_bit(waiting)
            waiting &= waiting - 1
            local[_at(mine + held)] = (word << 6) + np.int64(bit)
            held += 1
            if held == _LOCAL_ITEMS:
                _flush(queue, shared, local, mine, held)
                held = 0
    _flush(queue, shared, local, mine, held)


@kernel
def _search(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, in_offsets: Any,
    in_targets: Any, distance: Any, queue: Any, bitmaps: Any, local: Any, shared: Any,
    sources: Any, largest_degree: int, team_arcs: int, sweep_arcs: int, target: int, cutoff: int,
    alpha: int, beta: int,
) -> bool:  # fmt: skip
    """The whole search, on every thread of the team; False if aborted."""
    n = offsets.size - 1
    words = _words(n)
    begin, end = block_range(rank, size, n)
    for v in range(begin, end):
        distance[v] = UNREACHED
    if not barrier(control, size):
        return False
    if rank == 0:
        _seed(distance, queue, shared, sources)
        shared[_LEFT_ARCS] = targets.size
    while True:
        if rank == 0:
            shared[_STEP] = _plan(
                size, control, offsets, targets, distance, queue, shared,
                largest_degree, team_arcs, sweep_arcs, target, cutoff, alpha, beta,
            )  # fmt: skip
        if not barrier(control, size):
            return False
        step = shared[_STEP]
        if step == _STOP:
            return True
        if step == _EXPAND:
            _expand(rank, control, offsets, targets, distance, queue, local, shared)
        elif step == _TO_BITMAP:
            _to_bitmap(rank, size, queue, bitmaps, n, shared)
        elif step == _SWEEP:
            _sweep(rank, control, in_offsets, in_targets, distance, bitmaps, words, shared)
        else:
            _to_queue(rank, size, queue, bitmaps, words, local, shared)
        if not barrier(control, size):
            return False
