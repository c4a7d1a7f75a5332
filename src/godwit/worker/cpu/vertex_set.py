"""Work as a set of vertices, for several threads that share the values of one process' vertices.

The operators of relax.py queue a vertex in the set, and not an item with its value: a vertex that improves
again before it is processed is processed once. Between two exchanges with other processes a team of threads
processes what is due, the vertices up to a bucket of priority, again and again until none is left, or,
in supersteps, each once.

State of an own vertex: it *waits* (a bit of ``waiting``) if it changed since it was processed and its
bucket is a later one; it is *queued* (a bit of ``queued``) if it is in a frontier. Invariant: a vertex
whose value has changed since it was processed is one of both. A thread clears both bits before it reads the
value, and another sets one after it has changed the value, so that no change is missed. A vertex is in one
frontier once, so that frontiers of as many vertices as there are have room.

Halo vertices are collected in an outbox, each once (a bit of ``dirty``); their values are read when it is
sent.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from godwit.runtime.cpu.atomics import (
    fetch_add,
    fetch_and,
    fetch_or,
    load_acquire,
    load_relaxed,
    store_relaxed,
)
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, barrier, block_range
from godwit.runtime.cpu.values import by_reference, returned
from godwit.worker.cpu.relax import improves, prefetch_vertex, process_vertex, take_in
from godwit.worker.cpu.worker import FAR_AHEAD, NEAR_AHEAD, PROCESSED

_CHUNK = 64

# Words of ``ends`` (int64), on cache lines of their own.
FRONTIER = 0  # vertices of the frontier
_NEXT = 8  # vertices of the one that follows
OUTBOX = 16
_CURSOR = 24
_FOLLOWING = 32  # where the frontier that follows begins
OVERFLOWED = 40  # 1 if a value does not fit its dtype: no further frontier is processed
END_WORDS = 48

LAST_BUCKET = 1 << 60
"""The bucket of all priorities that are no smaller, of infinite ones and of NaN (bins.py)."""
COUNT_WORDS = 24

# Bound by the instantiation.
ACCUMULATES = False
VALUE = np.int64

_at: Any = np.uint64


class VertexSet(NamedTuple):
    """The set, as compiled code of one thread takes it; all but ``counts`` are shared.

    :param counts: int64 (COUNT_WORDS), by the words of worker.py
    :param frontiers: (2, n + 1) the frontier and the one that follows
    :param outbox: (halo + 1)
    :param due: float64 (1): values of lower priority than this number of buckets are due, all if it is NaN
    """

    counts: Any
    ends: Any
    waiting: Any
    queued: Any
    dirty: Any
    frontiers: Any
    outbox: Any
    due: Any
    buckets_per_unit: float


def priority(value: Any) -> Any:
    """Return the priority of a value, smaller is sooner. Bound by the instantiation."""
    raise NotImplementedError


def in_buckets(buckets_per_unit: float, value: Any) -> Any:
    """Return the priority of a value in widths of a bucket. Bound by the instantiation."""
    return np.float64(returned(priority(value), "'priority'", None)) * buckets_per_unit


def in_one_bucket(buckets_per_unit: float, value: Any) -> Any:
    """Return 0."""
    return 0.0


def end_of_bucket(bucket: int) -> float:
    """Return the bound of what is due with a bucket, for ``due``.

    Numbers of buckets beyond 2^53 have no successor among floating-point numbers that differs.
    """
    if bucket >= LAST_BUCKET:
        return math.nan
    return max(float(bucket + 1), math.nextafter(float(bucket), math.inf))


def is_due(worklist: Any, value: Any) -> bool:
    """Return True if a value is in the buckets that are processed now."""
    return not in_buckets(worklist.buckets_per_unit, value) >= worklist.due[0]


# Bound to the names that relax.py calls.


def note_overflow(worklist: Any) -> None:
    """End the run with an error: a value does not fit."""
    store_relaxed(worklist.ends, OVERFLOWED, 1)


def push_local(worklist: Any, key: int, value: Any) -> None:
    """Queue a vertex, or let it wait."""
    word = key >> 6
    bit = np.int64(1) << (key & 63)
    ends = worklist.ends
    if not is_due(worklist, value):
        if load_relaxed(worklist.waiting, word) & bit == 0:
            fetch_or(worklist.waiting, word, bit)
    elif fetch_or(worklist.queued, word, bit) & bit == 0:
        place = load_relaxed(ends, _FOLLOWING) + fetch_add(ends, _NEXT, 1)
        worklist.frontiers[_at(place)] = key


def send_halo(worklist: Any, state: Any, halo: int, value: Any) -> None:
    """Put a halo vertex into the outbox, unless it is there."""
    word = halo >> 6
    bit = np.int64(1) << (halo & 63)
    if (
        load_relaxed(worklist.dirty, word) & bit == 0
        and fetch_or(worklist.dirty, word, bit) & bit == 0
    ):
        worklist.outbox[_at(fetch_add(worklist.ends, OUTBOX, 1))] = halo


def _exchange_frontiers(ends: Any) -> None:
    """Make the queued vertices the frontier, and the queue empty."""
    ends[FRONTIER] = ends[_NEXT]
    ends[_NEXT] = 0
    ends[_CURSOR] = 0


@kernel
def find_lowest(
    rank: int, size: int, control: Any, worklist: Any, state: Any, lowest: Any
) -> None:  # fmt: skip
    """Find the lowest priority, in buckets, of a vertex that waits; each thread has a range of vertices.

    Vertices beyond the limit are taken out of the set.

    :param lowest: float64, by cache line: gets the priority, and 1 if a vertex waits
    """
    worklist, state = by_reference(worklist), by_reference(state)
    waiting = worklist.waiting
    begin, end = block_range(rank, size, waiting.size)
    limit = load_relaxed(state.limit, 0)
    best = np.inf
    found = 0.0
    for word in range(begin, end):
        bits = waiting[_at(word)]
        v: Any = word << 6
        bit = np.int64(1)
        useless = np.int64(0)
        while bits != 0:
            if bits & 1 != 0:
                value = state.values[_at(v)]
                if not ACCUMULATES and improves(limit, value):
                    useless |= bit
                else:
                    found = 1.0
                    scaled = in_buckets(worklist.buckets_per_unit, value)
                    best = min(best, scaled)
            bits = np.int64(np.uint64(bits) >> np.uint64(1))
            bit <<= 1
            v += 1
        if useless != 0:
            waiting[_at(word)] &= ~useless
    lowest[_at(rank), 0] = best
    lowest[_at(rank), 1] = found


@kernel
def open_bucket(rank: int, size: int, control: Any, worklist: Any, state: Any) -> None:
    """Make the vertices that wait and are due the frontier; what was in it before is processed."""
    worklist, state = by_reference(worklist), by_reference(state)
    ends = worklist.ends
    begin, end = block_range(rank, size, worklist.waiting.size)
    for word in range(begin, end):
        bits = worklist.waiting[_at(word)]
        v: Any = word << 6
        taken = np.int64(0)
        bit = np.int64(1)
        while bits != 0:
            if bits & 1 != 0 and is_due(worklist, state.values[_at(v)]):
                taken |= bit
                place = ends[_FOLLOWING] + fetch_add(ends, _NEXT, 1)
                worklist.frontiers[_at(place)] = v
            bits = np.int64(np.uint64(bits) >> np.uint64(1))
            bit <<= 1
            v += 1
        if taken != 0:
            worklist.waiting[_at(word)] &= ~taken
            worklist.queued[_at(word)] |= taken
    if not barrier(control, size):
        return
    if rank == 0:
        _exchange_frontiers(ends)
        ends[_FOLLOWING] = worklist.frontiers.size // 2 - ends[_FOLLOWING]


@kernel
def relax_frontiers(
    rank: int, size: int, control: Any, worklist: Any, state: Any, most: int, rounds: int
) -> None:
    """Process the frontier, and those that follow, until none is left.

    :param most: frontiers of more vertices are left to more threads
    :param rounds: frontiers that are processed at most
    """
    worklist, state = by_reference(worklist), by_reference(state)
    ends = worklist.ends
    half = worklist.frontiers.size // 2
    while rounds > 0:
        count = load_acquire(ends, FRONTIER)
        if count == 0 or count > most:
            break
        rounds -= 1
        first = half - ends[_FOLLOWING]
        while True:
            begin = fetch_add(ends, _CURSOR, _CHUNK)
            if begin >= count or load_acquire(control, ABORT) != 0:
                break
            last = min(begin + _CHUNK, count)
            for i in range(begin, last):
                far: Any = worklist.frontiers[_at(first + min(i + FAR_AHEAD, count - 1))]
                near: Any = worklist.frontiers[_at(first + min(i + NEAR_AHEAD, count - 1))]
                prefetch_vertex(state, far, near)
                v: Any = np.int64(worklist.frontiers[_at(first + i)])
                bit = np.int64(1) << (v & 63)
                fetch_and(worklist.queued, v >> 6, ~bit)
                if load_relaxed(worklist.waiting, v >> 6) & bit != 0:
                    fetch_and(worklist.waiting, v >> 6, ~bit)
                process_vertex(worklist, state, v, load_acquire(state.values, v))
            worklist.counts[PROCESSED] += last - begin
        if not barrier(control, size):
            break
        if rank == 0:
            _exchange_frontiers(ends)
            ends[_FOLLOWING] = first
            if load_relaxed(ends, OVERFLOWED) != 0:
                ends[FRONTIER] = 0
        if not barrier(control, size):
            break


@kernel
def take_in_messages(
    rank: int, size: int, control: Any, worklist: Any, state: Any, keys: Any, values: Any
) -> None:
    """Combine the messages of other processes with values; what is due by that joins the frontier."""
    worklist, state = by_reference(worklist), by_reference(state)
    ends = worklist.ends
    following = ends[_FOLLOWING]
    ends[_FOLLOWING] = worklist.frontiers.size // 2 - following
    ends[_NEXT] = ends[FRONTIER]
    for i in range(keys.size):
        value = values[_at(i)]
        if ACCUMULATES or not improves(load_relaxed(state.limit, 0), value):
            key: Any = np.int64(keys[_at(i)])
            take_in(worklist, state, key, value)
    _exchange_frontiers(ends)
    ends[_FOLLOWING] = following
