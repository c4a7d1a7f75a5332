"""Core numbers on the CPU, by a team of threads that peels level by level.

Batagelj and Zaveršnik, "An O(m) algorithm for cores decomposition of networks" (2003), in the parallel form
of Kabir and Madduri, "Parallel k-core decomposition on multicore platforms" (PKC, 2017). Level k removes
every vertex that has at most k remaining neighbours; a removed vertex lowers the degrees of its neighbours,
and removes those that it lowers to k. The order within a level does not matter, so a thread goes on with
the vertices that it removed itself, without synchronizing. It does so within a budget of arcs: what exceeds
it is left in a list that all threads share.

Each thread has a list of remaining vertices, which a scan compacts. If a scan of all threads removes
nothing, no degree changed meanwhile, and the next level is the least degree that remains; else it is k + 1.

Invariants: ``core[v]`` is set once, by compare-and-exchange, by the thread that then lowers the neighbours
of v. Before level k every vertex without a core number has at least k remaining neighbours, and ``degree``
is their number. The degree of a removed vertex is at most its level, so it is not lowered in later ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from godwit.algorithms.pagerank.in_arcs import thread_count
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.facts import in_arcs
from godwit.graph.rows import require_memory
from godwit.runtime.cpu.atomics import (
    compare_exchange,
    fetch_add,
    load_acquire,
    load_relaxed,
    prefetch,
)
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, WORDS_PER_LINE, barrier, block_range, run_team

_LEFT = np.int32(-1)  # core number of a vertex that is not removed
_LOCAL = 4096  # vertices that a thread keeps for itself
_BUDGET = 1 << 18  # arcs of the vertices that it keeps in one round
_ALONE_ARCS = 1 << 21  # fewer are peeled by one thread: others gain less than barriers cost
_AHEAD = 16  # arcs by which degrees are prefetched
_CHUNK = 8  # vertices of the shared list that a thread claims at once
_NO_DEGREE = 1 << 31  # above all degrees

# Words (int64) by round modulo 3, each on a cache line of its own: of all threads, then of each.
_LISTED, _CLAIMED = 0, 1
_REMOVED, _LEAST = 0, 1
_SETS, _KINDS = 3, 2

_at: Any = np.uint64
_DIRECTED = False  # bound when a kernel is made: there are in-rows, too


def core_numbers_on_cores(
    graph: Graph, threads: int | None, poll: Callable[[int], None] | None
) -> tuple[Array, int]:
    """Return core numbers, int32 (n), and the number of rounds.

    :param threads: upper limit; None: all of the process. Small graphs use one
    :param poll: called now and then by the calling thread with the number of vertices removed so far
    :raises GraphTooLargeError: the arrays do not fit into memory
    """
    n = graph.vertex_count
    threads = 1 if graph.arc_count < _ALONE_ARCS else thread_count(graph, threads)
    require_memory((8 + 2 * graph.targets.itemsize) * n, f"an array of {n:,} core numbers")
    reverse = in_arcs(graph) if graph.directed else graph
    core = np.full(n, _LEFT)
    words = np.zeros((threads + 1) * _SETS * _KINDS * WORDS_PER_LINE, np.int64)
    removed = np.zeros(threads * WORDS_PER_LINE, np.int64)
    rounds = run_team(
        _PEEL[graph.directed],
        graph.offsets,
        graph.targets,
        reverse.offsets,
        reverse.targets,
        np.empty(n, np.int32),
        core,
        np.empty(n, graph.targets.dtype),
        np.empty(n, graph.targets.dtype),
        np.empty(threads * _LOCAL, graph.targets.dtype),
        words,
        removed,
        threads=threads,
        poll=None if poll is None else lambda: poll(int(removed.sum())),
    )
    return core, int(rounds[0])


def _word(owner: Any, which: int, turn: Any) -> Any:
    """Return the index in ``words`` of a counter.

    :param owner: 0 for a counter that all threads share, else 1 + the thread's rank
    :param which: ``_LISTED`` or ``_CLAIMED`` if shared, else ``_REMOVED`` or ``_LEAST``
    :param turn: round modulo 3
    """
    return ((owner * _SETS + turn) * _KINDS + which) * WORDS_PER_LINE


def _loop_free_degree(offsets: Any, targets: Any, v: Any) -> Any:
    """Return the number of arcs in a row, without self-loops."""
    begin = offsets[_at(v)]
    end = offsets[_at(v + 1)]
    loops = 0
    for arc in range(begin, end):
        loops += targets[_at(arc)] == v
    return end - begin - loops


def _keep(v: Any, own: Any, count: Any, room: Any, shared: Any, lengths: Any) -> Any:
    """Put a removed vertex into a thread's own list, or into the shared one if that is full.

    :param shared: the list, its first item of this round, the words, and the index of the list's length
    :returns: the vertices in ``own``, and the arcs that further ones may have
    """
    offsets, in_offsets = lengths
    length = offsets[_at(v + 1)] - offsets[_at(v)]
    if _DIRECTED:
        length += in_offsets[_at(v + 1)] - in_offsets[_at(v)]
    if count < _LOCAL and length <= room:
        own[_at(count)] = v
        return count + 1, room - length
    listed, base, words, counter = shared
    listed[_at(base + fetch_add(words, counter, 1))] = v
    return count, room


def _lower(
    offsets: Any, targets: Any, v: Any, k: Any, size: int, degree: Any, core: Any, own: Any,
    count: Any, room: Any, shared: Any, lengths: Any,
) -> Any:  # fmt: skip
    """Lower the degrees of a removed vertex' neighbours, and remove those that are lowered to k.

    :returns: as :func:`_keep`, and the number of vertices removed
    """
    begin = offsets[_at(v)]
    end = offsets[_at(v + 1)]
    near = end - _AHEAD
    removed = 0
    for arc in range(begin, end):
        if arc < near:
            prefetch(degree, targets[_at(arc + _AHEAD)])
        target = targets[_at(arc)]
        before = load_relaxed(degree, target)
        if size == 1:
            # Without a branch: half of the neighbours are removed already, in no pattern.
            degree[_at(target)] = before - np.int32(before > k)
        elif before > k:
            before = fetch_add(degree, target, np.int32(-1))
        if before == k + 1 and compare_exchange(core, target, _LEFT, np.int32(k)):
            removed += 1
            count, room = _keep(target, own, count, room, shared, lengths)
    return count, room, removed


def _next_scanned(
    left: Any, degree: Any, core: Any, k: Any, at: Any, to: Any, end: Any, least: Any
) -> Any:
    """Remove the next vertex of a list that has at most k neighbours; keep those before it in the list.

    :param left: the list, of which [at, end) has not been scanned, and [..., to) is kept
    :param least: the least degree of the kept vertices
    :returns: the vertex, -1 if no other has so few neighbours; then ``at``, ``to`` and ``least``
    """
    while at < end:
        v = left[_at(at)]
        at += 1
        d = np.int64(load_relaxed(degree, v))
        if d > k:
            left[_at(to)] = v
            to += 1
            least = min(least, d)
        elif compare_exchange(core, v, _LEFT, np.int32(k)):
            return np.int64(v), at, to, least
    return np.int64(-1), at, to, least


def _next_listed(
    listed: Any, words: Any, claimed: Any, begin: Any, end: Any, at: Any, chunk_end: Any
) -> Any:
    """Return the next vertex of [begin, end) of the shared list, or -1; and the chunk that is left.

    :param claimed: index of the word that counts claimed vertices
    """
    if at == chunk_end:
        at = begin + fetch_add(words, claimed, _CHUNK)
        if at >= end:
            return np.int64(-1), at, at
        chunk_end = min(at + _CHUNK, end)
    return np.int64(listed[_at(at)]), at + 1, chunk_end


@kernel
def _peel(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, in_offsets: Any,
    in_targets: Any, degree: Any, core: Any, left: Any, listed: Any, buffers: Any,
    words: Any, progress: Any,
) -> int:  # fmt: skip
    """Set all core numbers; return the number of rounds.

    A round scans the remaining vertices, or goes on with those that the round before has listed.

    :param left: remaining vertices, each in the range of the thread that scans it
    :param listed: the shared list
    :param words: zeros
    :param progress: by thread, the number of vertices removed so far
    """
    n = core.size
    first, end = block_range(rank, size, n)
    for v in range(first, end):
        d = _loop_free_degree(offsets, targets, v)
        if _DIRECTED:
            d += _loop_free_degree(in_offsets, in_targets, v)
        degree[_at(v)] = d
        left[_at(v)] = v
    if not barrier(control, size):
        return 0
    own = buffers[rank * _LOCAL : (rank + 1) * _LOCAL]
    lengths = offsets, in_offsets
    k = np.int64(0)
    rounds = np.int64(0)
    begin = np.int64(0)  # of the listed vertices that this round removes
    base = np.int64(0)  # and their end
    all_removed = np.int64(0)
    level_removed = np.int64(0)
    while all_removed < n:
        turn = rounds % _SETS
        shared = listed, base, words, _word(0, _LISTED, turn)
        claimed = _word(0, _CLAIMED, turn)
        is_scan = begin == base
        count = np.int64(0)
        room = np.int64(_BUDGET)
        removed = np.int64(0)
        least = np.int64(_NO_DEGREE)
        at = first
        chunk_end = first  # no chunk is claimed yet
        to = first
        while True:
            if is_scan:
                v, at, to, least = _next_scanned(left, degree, core, k, at, to, end, least)
                removed += v >= 0
            else:
                v, at, chunk_end = _next_listed(listed, words, claimed, begin, base, at, chunk_end)
            if v < 0:
                break
            # Remove it, and the vertices that this leaves with k neighbours.
            while True:
                count, room, more = _lower(
                    offsets, targets, v, k, size, degree, core, own, count, room, shared, lengths
                )
                removed += more
                if _DIRECTED:
                    count, room, more = _lower(
                        in_offsets, in_targets, v, k, size, degree, core, own, count, room, shared,
                        lengths,
                    )  # fmt: skip
                    removed += more
                if count == 0 or load_acquire(control, ABORT) != 0:
                    break
                count -= 1
                v = own[_at(count)]
            if load_acquire(control, ABORT) != 0:
                break
        if is_scan:
            end = to
        words[_word(rank + 1, _REMOVED, turn)] = removed
        words[_word(rank + 1, _LEAST, turn)] = least
        progress[rank * WORDS_PER_LINE] += removed
        if rank == 0:  # all threads have read the words of the round before the last
            words[_word(0, _LISTED, (turn + 1) % _SETS)] = 0
            words[_word(0, _CLAIMED, (turn + 1) % _SETS)] = 0
        if not barrier(control, size):
            return 0
        rounds += 1
        begin = base
        base += load_relaxed(words, _word(0, _LISTED, turn))
        for other in range(1, size + 1):
            level_removed += load_relaxed(words, _word(other, _REMOVED, turn))
            least = min(least, load_relaxed(words, _word(other, _LEAST, turn)))
        if begin == base:  # the level ends
            all_removed += level_removed
            k = least if level_removed == 0 else k + 1
            level_removed = np.int64(0)
    return int(rounds)


_PEEL = {directed: _peel.bind(_DIRECTED=directed) for directed in (False, True)}
