"""Delta-stepping on one device whose threads share memory: the engine behind ``"cpu"``.

Meyer and Sanders' delta-stepping (J. Algorithms 49, 2003) as GAP runs it, for any VertexProgram: all
threads take items of the current bucket from one frontier; what they push goes to bins of their own;
a thread whose own bin of the current bucket is short works it off before it meets the others
(bucket fusion: Zhang et al., CGO 2020). It is the bounded window of the design: inside a bucket
everyone runs free, and the meeting moves all on to the next one. A program without priority has one
bucket, and ends when it is empty.

A round of every thread:
1. take chunks of the frontier by the cursor, process; then the own bin, up to FUSION_ITEMS;
2. publish the lowest own bucket; **meet**;
3. agree on the lowest of all (no bucket: the end), copy the own bin of it to the frontier; **meet**.

Cursor and frontier tail are double (by round parity): a slow thread still reads those of the round
before while rank 0 resets those of the round to come.

A thread without room stops taking work, notes the frontier range in its hand, and raises WANTS_ROOM;
after the meeting all leave together, the host enlarges that thread's arena, and they come back.
"""

from __future__ import annotations

from typing import Any

from godwit.backends.cpu.bins import (
    BASE,
    BUCKETS,
    CHUNK_ITEMS,
    FAR,
    ITEM_WORDS,
    NO_BUCKET,
    OVERFLOWED,
    URGENT,
    WAITING,
    from_bits,
    has_room,
    lowest_bucket,
    peek_key,
    pop_bin,
)
from godwit.backends.cpu.worker import (
    ABORTED,
    CURRENT_BUCKET,
    FAILED,
    FINISHED,
    GROW,
    LOWEST,
    PROCESSED,
    PUBLISHED_WORDS,
    RESUME_BEGIN,
    RESUME_END,
    ROUNDS,
    ROUND_PARITY,
    THRESHOLD_CHANGES,
    WANTED_ROOM,
    END_INITIAL,
    NEXT_INITIAL,
    fanout,
    lowest_published,
    process,
    process_initial,
    push_seeds,
)
from godwit.parallel.atomics import fetch_add, load_acquire, store_relaxed, store_release
from godwit.parallel.bits import to_bits
from godwit.parallel.team import ABORT, barrier

FRONTIER_CHUNK = 32
FUSION_ITEMS = 1024

# Words of `shared` (int64), a cache line each.
CURSORS = 0  # two
TAILS = 16  # two
WANTS_ROOM = 32
INITIAL_CURSOR = 40
SHARED_WORDS = 48


def frontier_item(frontier: Any, index: int) -> tuple[int, Any]:
    """The item at a position of the frontier."""
    if ITEM_WORDS == 1:
        word = frontier[index]
        return word & 0xFFFFFFFF, from_bits((word >> 32) & 0xFFFFFFFF)
    return frontier[2 * index], from_bits(frontier[2 * index + 1])


def set_frontier_item(frontier: Any, index: int, key: int, value: Any) -> None:
    """Write an item to a position of the frontier."""
    if ITEM_WORDS == 1:
        frontier[index] = (to_bits(value) << 32) | key
    else:
        frontier[2 * index] = key
        frontier[2 * index + 1] = to_bits(value)


def process_range(worklist: Any, state: Any, frontier: Any) -> bool:
    """Process the frontier range in hand; False where room ran out (the rest stays in hand)."""
    counts = worklist.counts
    while counts[RESUME_BEGIN] < counts[RESUME_END]:
        key, value = frontier_item(frontier, counts[RESUME_BEGIN])
        if not has_room(worklist.bins, fanout(state, key)):
            return False
        counts[RESUME_BEGIN] += 1
        counts[PROCESSED] += 1
        process(worklist, state, key, value)
    return True


def process_initial_range(worklist: Any, state: Any, shared: Any) -> bool:
    """Take chunks of the initial keys until none is left; False where room ran out."""
    counts = worklist.counts
    while True:
        while counts[NEXT_INITIAL] < counts[END_INITIAL]:
            key = counts[NEXT_INITIAL]
            if not has_room(worklist.bins, fanout(state, key)):
                return False
            counts[NEXT_INITIAL] += 1
            counts[PROCESSED] += 1
            process_initial(worklist, state, key)
        begin = fetch_add(shared, INITIAL_CURSOR, 256)
        end = min(begin + 256, load_acquire(shared, INITIAL_CURSOR + 1))
        if begin >= end:
            return True
        counts[NEXT_INITIAL] = begin
        counts[END_INITIAL] = end


def process_own(worklist: Any, state: Any, bucket: int) -> bool:
    """Work off the own bin of the bucket, if it is short; False where room ran out."""
    bins = worklist.bins
    near = 1 + (bucket & (BUCKETS - 1))
    for _ in range(FUSION_ITEMS):
        source = URGENT
        if bins.tail[URGENT] == 0:
            source = near
            if bins.tail[near] == 0:
                return True
        if not has_room(bins, fanout(state, peek_key(bins, source))):
            return False
        key, value = pop_bin(bins, source)
        bins.header[WAITING] -= 1
        worklist.counts[PROCESSED] += 1
        process(worklist, state, key, value)
    return True


def share_bucket(worklist: Any, frontier: Any, capacity: int, shared: Any, tail: int,
                 bucket: int) -> None:  # fmt: skip
    """Copy the own items of a bucket to the frontier as far as that has room."""
    bins = worklist.bins
    near = 1 + (bucket & (BUCKETS - 1))
    for source in (URGENT, near):
        while bins.tail[source] != 0:
            position = bins.head[source]
            end = (position | (CHUNK_ITEMS - 1)) + 1
            if bins.tail[source] > position and bins.tail[source] < end:
                end = bins.tail[source]
            items = end - position
            begin = fetch_add(shared, tail, items)
            if begin + items > capacity:
                # The others see a tail beyond the capacity and read up to it; the places past
                # `begin` that this thread does not fill must not be read: fill what fits.
                items = max(0, capacity - begin)
            for index in range(begin, begin + items):
                key, value = pop_bin(bins, source)
                set_frontier_item(frontier, index, key, value)
            bins.header[WAITING] -= items
            if begin + items >= capacity:
                return


def run_shared(rank: int, size: int, control: Any, worklist: Any, published: Any, shared: Any,
               frontier: Any, capacity: int, state: Any) -> int:  # fmt: skip
    """Work with the team until the run has ended, is aborted, or a thread must grow."""
    bins = worklist.bins
    mine = rank * PUBLISHED_WORDS
    counts = worklist.counts
    parity = counts[ROUND_PARITY]
    bucket = counts[CURRENT_BUCKET]
    while True:
        tail = min(load_acquire(shared, TAILS + 8 * parity), capacity)
        has_all_room = push_seeds(worklist)
        has_all_room = has_all_room and process_initial_range(worklist, state, shared)
        has_all_room = has_all_room and process_range(worklist, state, frontier)
        cursor = CURSORS + 8 * parity
        while has_all_room and load_acquire(shared, cursor) < tail:
            begin = fetch_add(shared, cursor, FRONTIER_CHUNK)
            counts[RESUME_BEGIN] = min(begin, tail)
            counts[RESUME_END] = min(begin + FRONTIER_CHUNK, tail)
            has_all_room = process_range(worklist, state, frontier)
            if load_acquire(control, ABORT) != 0:
                return ABORTED
        if has_all_room and bucket != NO_BUCKET:
            has_all_room = process_own(worklist, state, bucket)
        if has_all_room and bins.tail[FAR] != 0:
            has_all_room = has_room(bins, BUCKETS)
        if has_all_room:
            store_relaxed(published, mine + LOWEST, lowest_bucket(bins))
        else:
            counts[WANTED_ROOM] = 1
            store_release(shared, WANTS_ROOM, 1)
        if bins.header[OVERFLOWED] != 0:
            store_release(control, ABORT, 1)
            return FAILED
        if rank == 0:
            store_relaxed(shared, CURSORS + 8 * (1 - parity), 0)
            store_relaxed(shared, TAILS + 8 * (1 - parity), 0)
        if not barrier(control, size):
            return ABORTED
        if load_acquire(shared, WANTS_ROOM) != 0:
            # All see the word, since the host resets it only when the team has left.
            counts[ROUND_PARITY] = parity
            counts[CURRENT_BUCKET] = bucket
            return GROW
        bucket = lowest_published(published, size)
        if bucket == NO_BUCKET:
            return FINISHED
        if rank == 0:
            counts[ROUNDS] += 1
            if bins.header[BASE] != bucket:
                counts[THRESHOLD_CHANGES] += 1
        if bins.header[BASE] == NO_BUCKET or bins.header[BASE] < bucket:
            bins.header[BASE] = bucket
        parity = 1 - parity
        share_bucket(worklist, frontier, capacity, shared, TAILS + 8 * parity, bucket)
        if not barrier(control, size):
            return ABORTED
