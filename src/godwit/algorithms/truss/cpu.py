"""Truss numbers on the CPU, by a team of threads that removes edges level by level.

First the *support* of each edge is counted, the number of triangles that it is part of. Then level s
removes every edge whose support is at most s. A triangle is destroyed by the first of its edges that is
removed, which lowers the support of the other two, and so removes those that it lowers to s. This is the
method of Kabir and Madduri, "Shared-memory graph truss decomposition" (HiPC, 2017), with another rule for
triangles of which several edges are removed at once.

Triangles of an edge are the common neighbours of its ends: those of the end with fewer neighbours are
looked up in the sorted row of the other, or in a table of the edges between vertices of high degree. Rows
lose the arcs of removed edges now and then.

Invariants: ``order[e]`` is the number of edges that were removed before edge e, or NO_ORDER; it is written
once, in the round before the one that lowers the others by e. So in a round all orders of its edges, and
of all before, are known, and a triangle is destroyed by its edge of least order, once, whatever threads do.
Before level s every edge that is left has a support of s or more, and ``support`` is the number of its
triangles whose edges are all left. The support of a removed edge is at most its level, and does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.triangles.rows import DegreeRows
from godwit.algorithms.truss.rows import Edges, lower_bound, sorted_targets
from godwit.dtypes import Array
from godwit.graph.rows import first_row_at, require_memory, row_range, thread_count_for
from godwit.runtime.cpu.atomics import fetch_add, load_acquire, load_relaxed, prefetch
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import (
    ABORT,
    WORDS_PER_LINE,
    barrier,
    block_range,
    new_control,
    next_range,
    run_team,
)

_ROWS = 32  # that a thread claims at once when it counts
_EDGES = 16  # of the list that a thread claims at once, at most
_SCANNED = 1024  # edges that a thread claims at once when it scans
_HUBS = 4096  # positions, at most, between which edges are looked up in a table
_HIT = 128  # edges whose supports a thread lowers at once
_HELD = 64  # removed edges that a thread lists at once
_ARCS = 1 << 13  # that a thread claims at once when rows lose arcs
_ROWS_LOSE = 5  # rows lose arcs when more than the 5th part is of removed edges
_AHEAD = 8  # arcs by which orders of edges are prefetched
_NO_SUPPORT = 1 << 31  # above all

# Words (int64) by round modulo 3, each on a cache line of its own: of all threads, then of each.
_LISTED, _CLAIMED, _LEFT, _ROWS_DONE = 0, 1, 2, 3
_LEAST = 0
_SETS, _KINDS = 3, 4

_at: Any = np.uint64


def truss_numbers_on_cores(
    rows: DegreeRows, edges: Edges, threads: int | None, poll: Callable[[int], None] | None
) -> tuple[Array, int]:
    """Return the truss number of each edge, int32 (k), and the number of rounds.

    :param threads: upper limit; None: all of the process. Small graphs use one
    :param poll: called now and then by the calling thread with the number of edges removed so far
    :raises GraphTooLargeError: the arrays do not fit into memory
    """
    n, arcs, k = len(rows.splits), len(rows.targets), edges.count
    count = thread_count_for(arcs)
    count = count if threads is None else min(count, threads)
    item = edges.dtype.itemsize
    most = int((rows.splits - rows.offsets[:-1]).max())  # lower neighbours of a vertex
    marks = rows.targets.dtype
    hubs = 0 if rows.position is None else min(_HUBS, n, math.isqrt(arcs))
    fixed = (
        arcs * (rows.targets.itemsize + item)
        + k * (8 + 4 * item + 2 * rows.targets.itemsize)
        + 16 * n
        + hubs * hubs * item
    )
    while count > 1 and config.missing_memory_bytes(fixed + count * n * marks.itemsize) is not None:
        count -= 1
    require_memory(fixed + count * n * marks.itemsize, f"the truss numbers of {k:,} edges")
    table = np.full(hubs * hubs, -1, edges.dtype)
    targets = sorted_targets(rows)
    numbers = np.empty(arcs, edges.dtype)
    support = np.zeros(k, np.int32)
    lower, upper = np.empty(k, rows.targets.dtype), np.empty(k, rows.targets.dtype)
    control = new_control()
    run_team(
        _count_support, rows.offsets, rows.splits, edges.first, targets, numbers, support, lower,
        upper, np.zeros((count, n), marks), np.zeros((count, most), np.int32), hubs, table,
        threads=count,
        control=control,
        poll=None if poll is None else lambda: poll(0),
    )  # fmt: skip
    truss = np.empty(k, np.int32)
    removed = np.zeros(WORDS_PER_LINE, np.int64)
    rounds = run_team(
        _peel,
        rows.offsets,
        rows.offsets[1:].copy(),
        targets,
        numbers,
        lower,
        upper,
        support,
        np.full(k, np.iinfo(edges.dtype).max, edges.dtype),
        truss,
        np.empty((2, k), edges.dtype),
        np.empty(count * _HELD, edges.dtype),
        np.empty(count * _HIT, edges.dtype),
        hubs,
        table,
        np.empty(k, edges.dtype),
        np.zeros((count + 1) * _SETS * _KINDS * WORDS_PER_LINE, np.int64),
        removed,
        threads=count,
        poll=None if poll is None else lambda: poll(int(removed[0])),
    )
    return truss, int(rounds[0])


def _add(array: Any, at: Any, number: Any, alone: bool) -> Any:
    """Add to an element, as other threads may do meanwhile unless this one is alone; return the old one.

    Locked instructions take a fifth of the time of a thread.
    """
    if not alone:
        return fetch_add(array, at, number)
    old = array[_at(at)]
    array[_at(at)] = old + number
    return old


@kernel
def _count_support(
    rank: int, size: int, control: Any, offsets: Any, splits: Any, first: Any, targets: Any,
    numbers: Any, support: Any, lower: Any, upper: Any, all_marks: Any, all_counts: Any,
    hubs: int, table: Any,
) -> None:  # fmt: skip
    """Count the triangles of edges, each at its middle corner; note ends of edges, and edges of arcs.

    :param all_marks: (threads, n) zeros
    :param all_counts: (threads, largest number of lower neighbours) zeros
    :param table: (hubs * hubs) -1; gets the edge between each two of the first positions
    """
    begin, end = row_range(rank, size, offsets)
    for v in range(begin, end):
        split = splits[_at(v)]
        edge = first[_at(v)]
        for arc in range(offsets[_at(v)], split):
            numbers[_at(arc)] = edge
            u = targets[_at(arc)]
            lower[_at(edge)] = u
            upper[_at(edge)] = v
            if v < hubs:
                table[_at(v * hubs + u)] = edge
                table[_at(u * hubs + v)] = edge
            edge += 1
    if not barrier(control, size):
        return
    marks = all_marks[rank]  # 1 + the place of each lower neighbour in the row of the middle corner
    counts = all_counts[rank]  # triangles of the edges to these, which are added up here first
    n = splits.size
    while True:
        begin, end = next_range(control, _ROWS, n)
        if begin >= end:
            return
        for v in range(begin, end):
            split = splits[_at(v)]
            if load_acquire(control, ABORT) != 0:
                return
            own = offsets[_at(v)]
            for arc in range(own, split):
                marks[_at(targets[_at(arc)])] = arc - own + 1
            for arc in range(split, offsets[_at(v + 1)]):
                u = targets[_at(arc)]
                at = offsets[_at(u)]
                shift = first[_at(u)] - at
                found = np.int32(0)
                w = targets[_at(at)]
                while w < v:
                    mark = marks[_at(w)]
                    if mark != 0:
                        counts[_at(mark - 1)] += np.int32(1)
                        _add(support, at + shift, np.int32(1), size == 1)
                        found += np.int32(1)
                    at += 1
                    w = targets[_at(at)]
                numbers[_at(arc)] = at + shift
                if found != 0:
                    _add(support, at + shift, found, size == 1)
            for arc in range(own, split):
                marks[_at(targets[_at(arc)])] = 0
                found = counts[_at(arc - own)]
                if found != 0:
                    _add(support, first[_at(v)] + arc - own, found, size == 1)
                    counts[_at(arc - own)] = 0


def _word(owner: Any, which: int, turn: Any) -> Any:
    """Return the index in ``words`` of a counter.

    :param owner: 0 for a counter that all threads share, else 1 + the thread's rank
    :param which: ``_LISTED`` or ``_CLAIMED`` if shared, else ``_REMOVED`` or ``_LEAST``
    :param turn: round modulo 3
    """
    return ((owner * _SETS + turn) * _KINDS + which) * WORDS_PER_LINE


def _list(held: Any, level: Any, order: Any, truss: Any, removed: Any) -> None:
    """List the removed edges that a thread holds.

    :param removed: their array, and where the thread's part begins; the list, its first place of this
        round, the words, and the index of its length
    """
    edges, own, listed, base, words, counter = removed
    place = base + fetch_add(words, counter, held)
    for at in range(own, own + held):
        edge = edges[_at(at)]
        listed[_at(place)] = edge
        order[_at(edge)] = place
        truss[_at(edge)] = level + 2
        place += 1


def _remove(edge: Any, held: Any, level: Any, order: Any, truss: Any, removed: Any) -> Any:
    """Add an edge to the removed ones that a thread holds; list these if many; return their number."""
    removed[0][_at(removed[1] + held)] = edge
    if held + 1 < _HELD:
        return held + 1
    _list(np.int64(_HELD), level, order, truss, removed)
    return np.int64(0)


def _lower(
    hit: Any, hits: Any, held: Any, level: Any, support: Any, order: Any, truss: Any, removed: Any
) -> Any:  # fmt: skip
    """Lower the supports of edges that were hit, and remove those that this lowers to the level.

    :param hit: array of edges, where the thread's part begins, and True if there are no other threads
    :returns: the number of edges that the thread holds
    """
    edges, own, alone = hit
    for at in range(own, own + hits):
        edge = np.int64(edges[_at(at)])
        if load_relaxed(support, edge) > level:
            old = _add(support, edge, np.int32(-1), alone)
            if old == level + 1:
                held = _remove(edge, held, level, order, truss, removed)
    return held


def _find(targets: Any, key: Any, low: Any, end: Any) -> Any:
    """Return the first place from ``low`` on whose target is not below the key, or the end.

    Short steps come first, since the keys of a row ascend as its targets do.
    """
    high = low
    step = 1
    while high < end and targets[_at(high)] < key:
        low = high + 1
        high += step
        step += step
    return lower_bound(targets, key, low, min(high, end))


def _destroy(
    edge: Any, hubs: Any, table: Any, hit: Any, hits: Any, held: Any, level: Any, begins: Any,
    ends: Any, targets: Any, numbers: Any, lower: Any, upper: Any, support: Any, order: Any,
    truss: Any, removed: Any,
) -> Any:  # fmt: skip
    """Collect the other edges of the triangles that a removed edge destroys: they are *hit*.

    :func:`_lower` lowers the supports of hit edges later, by atomic operations, whose cache lines are
    prefetched here.

    :returns: the numbers of edges that the thread has hit, and that it holds
    """
    few = np.int64(lower[_at(edge)])
    many = np.int64(upper[_at(edge)])
    if ends[_at(few)] - begins[_at(few)] > ends[_at(many)] - begins[_at(many)]:
        few, many = many, few
    own = order[_at(edge)]
    most = load_relaxed(support, edge)  # no more are left
    at = begins[_at(many)]
    end = ends[_at(many)]
    arc = begins[_at(few)]
    last = ends[_at(few)]
    row = many * hubs if many < hubs else np.int64(-1)  # of the table
    while arc < last and at < end and most > 0:
        if arc + _AHEAD < last:
            prefetch(order, np.int64(numbers[_at(arc + _AHEAD)]))
            if row >= 0:
                prefetch(table, row + min(np.int64(targets[_at(arc + _AHEAD)]), hubs - 1))
        one = np.int64(numbers[_at(arc)])
        if load_relaxed(order, one) > own:  # else removed before, or the edge itself
            key = targets[_at(arc)]
            other = np.int64(-1)
            if row >= 0 and key < hubs:
                other = np.int64(table[_at(row + key)])
            else:
                at = _find(targets, key, at, end)
                if at < end and targets[_at(at)] == key:
                    other = np.int64(numbers[_at(at)])
            if other >= 0 and load_relaxed(order, other) >= own:
                prefetch(support, one)
                prefetch(support, other)
                hit[0][_at(hit[1] + hits)] = one
                hit[0][_at(hit[1] + hits + 1)] = other
                hits += 2
                most -= 1
                if hits == _HIT:
                    held = _lower(hit, hits, held, level, support, order, truss, removed)
                    hits = 0
        arc += 1
    return hits, held


@kernel
def _peel(
    rank: int, size: int, control: Any, begins: Any, ends: Any, targets: Any, numbers: Any,
    lower: Any, upper: Any, support: Any, order: Any, truss: Any, left: Any, held_edges: Any,
    hit_edges: Any, hubs: int, table: Any, listed: Any, words: Any, progress: Any,
) -> int:  # fmt: skip
    """Set all truss numbers; return the number of rounds.

    A round scans the edges that are left, or destroys the triangles of those that the round before listed.

    :param begins: (n + 1) of the rows
    :param ends: of the rows, which lose arcs
    :param order: NO_ORDER, the largest number
    :param left: (2, k) edges that are left, and room for those after the next scan
    :param held_edges: (threads * _HELD) removed edges before they are listed
    :param hit_edges: (threads * _HIT) edges before their supports are lowered
    :param listed: the removed edges in their order
    :param words: zeros
    :param progress: the number of edges removed so far
    """
    k = truss.size
    first, end = block_range(rank, size, k)
    for edge in range(first, end):
        left[0, _at(edge)] = edge
    if not barrier(control, size):
        return 0
    level = np.int64(0)
    rounds = np.int64(0)
    begin = np.int64(0)  # of the listed edges whose triangles this round destroys
    base = np.int64(0)  # and their end
    in_rows = np.int64(k)  # edges that rows have
    in_left = np.int64(k)  # edges that the last scan left
    half = 0
    hit = hit_edges, rank * _HIT, size == 1
    while base < k:
        turn = rounds % _SETS
        removed = held_edges, rank * _HELD, listed, base, words, _word(0, _LISTED, turn)
        held = np.int64(0)
        hits = np.int64(0)
        claimed = _word(0, _CLAIMED, turn)
        is_scan = begin == base
        least = np.int64(_NO_SUPPORT)
        if _ROWS_LOSE * (in_rows - k + begin) > in_rows:  # no thread destroys triangles meanwhile
            in_rows = k - begin
            rows = _word(0, _ROWS_DONE, turn)
            while load_acquire(control, ABORT) == 0:
                arc = fetch_add(words, rows, _ARCS)
                if arc >= targets.size:
                    break
                row = first_row_at(begins, 0, ends.size, arc)
                while row < ends.size and begins[_at(row)] < arc + _ARCS:
                    to = begins[_at(row)]
                    for one in range(to, ends[_at(row)]):
                        if order[_at(numbers[_at(one)])] >= begin:
                            targets[_at(to)] = targets[_at(one)]
                            numbers[_at(to)] = numbers[_at(one)]
                            to += 1
                    ends[_at(row)] = to
                    row += 1
            if not barrier(control, size):
                return 0
        if is_scan:
            edges = left[half]
            kept = left[1 - half]
            while load_acquire(control, ABORT) == 0:
                at = fetch_add(words, claimed, _SCANNED)
                if at >= in_left:
                    break
                to = at
                for place in range(at, min(at + _SCANNED, in_left)):
                    edge = edges[_at(place)]
                    if order[_at(edge)] < base:
                        continue
                    s = np.int64(support[_at(edge)])
                    if s > level:
                        edges[_at(to)] = edge
                        to += 1
                        least = min(least, s)
                    else:
                        held = _remove(edge, held, level, order, truss, removed)
                new = fetch_add(words, _word(0, _LEFT, turn), to - at)
                for place in range(at, to):
                    kept[_at(new)] = edges[_at(place)]
                    new += 1
        else:
            chunk = max(1, min(_EDGES, (base - begin) // (8 * size)))
            while load_acquire(control, ABORT) == 0:
                at = begin + fetch_add(words, claimed, chunk)
                if at >= base:
                    break
                for place in range(at, min(at + chunk, base)):
                    hits, held = _destroy(
                        listed[_at(place)], hubs, table, hit, hits, held, level, begins, ends,
                        targets, numbers, lower, upper, support, order, truss, removed,
                    )  # fmt: skip
        held = _lower(hit, hits, held, level, support, order, truss, removed)
        if held > 0:
            _list(held, level, order, truss, removed)
        words[_word(rank + 1, _LEAST, turn)] = least
        if rank == 0:  # all threads have read the words of the round before the last
            progress[0] = base
            for which in range(_KINDS):
                words[_word(0, which, (turn + 1) % _SETS)] = 0
        if not barrier(control, size):
            return 0
        rounds += 1
        begin = base
        base += load_relaxed(words, _word(0, _LISTED, turn))
        if is_scan:
            half = 1 - half
            in_left = load_relaxed(words, _word(0, _LEFT, turn))
        if begin == base:  # the level ends
            if is_scan:
                for other in range(1, size + 1):
                    least = min(least, load_relaxed(words, _word(other, _LEAST, turn)))
                level = least
            else:
                level += 1
    return int(rounds)
