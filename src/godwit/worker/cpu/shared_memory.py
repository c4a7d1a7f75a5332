"""Delta-stepping on one device whose threads share memory: the engine behind ``"cpu"``.

This is Meyer and Sanders' delta-stepping (J. Algorithms 49, 2003) as in GAP, for any VertexProgram: all
threads take items of the current bucket from one frontier, and push into their own bins; a thread whose own
bin of the current bucket is short processes it before it meets the others (bucket fusion: Zhang et al., CGO
2020). Without fusion a round is a superstep: items that it pushes are for later ones, even in the same
bucket. A program without priority has one bucket, and ends when it is empty.

In a round every thread
1. claims chunks of the frontier by the cursor and processes them; then its own bin, up to FUSION_LIMIT
   items (FUSION_ITEMS, or 0 where rounds are supersteps);
2. publishes its lowest bucket, and how many items it has; **meets** the others;
3. reads the lowest bucket of all (none: the end), copies its own bin of it to the frontier; **meets** the
   others.

Where few items are left, as along a path, meetings would take longer than all work. If one thread has all
of at most NARROW_ITEMS items, it works alone instead of step 3, bucket after bucket, until it has more than
ALONE_ITEMS; if several have, all copy all of their items to the frontier, from which rank 0 takes them.
All threads read the same published numbers, so they agree on the one that works alone.

There are two cursors and two tails of the frontier (by round parity): a slow thread may still read those of
the previous round while rank 0 resets those of the next one.

A thread without room stops claiming work, notes the frontier range that it has claimed, and sets
WANTS_ROOM; after the meeting all threads leave, the host enlarges that thread's arena, and they continue.
"""

from __future__ import annotations

from typing import Any

from godwit.runtime.cpu.atomics import (
    fetch_add,
    load_acquire,
    load_relaxed,
    store_relaxed,
    store_release,
)
from godwit.runtime.cpu.team import ABORT, barrier
from godwit.runtime.cpu.values import to_bits
from godwit.worker.cpu.bins import (
    BASE,
    BUCKETS,
    CHUNK_ITEMS,
    FAR,
    FAR_LOWEST,
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
from godwit.worker.cpu.worker import (
    ABORTED,
    CURRENT_BUCKET,
    END_INITIAL,
    FAILED,
    FAR_AHEAD,
    FINISHED,
    FUSION_LIMIT,
    GROW,
    LOWEST,
    NEAR_AHEAD,
    NEXT_INITIAL,
    PROCESSED,
    PUBLISHED_WORDS,
    QUEUED,
    RESUME_BEGIN,
    RESUME_END,
    ROUND_PARITY,
    ROUNDS,
    THRESHOLD_CHANGES,
    WANTED_ROOM,
    fanout,
    initial_value,
    look_ahead,
    lowest_published,
    process,
    push_seeds,
)

FRONTIER_CHUNK = 32
INITIAL_CHUNK = 256
FUSION_ITEMS = 1024
NARROW_ITEMS = 64
ALONE_ITEMS = 256
ALONE_STEPS = 1 << 14
"""Items that a thread processes alone, at most, before it looks whether the run is to end."""

# Sources of a round's items.
FRONTIER = 0
INITIAL = 1
OWN = 2

# Words of `shared` (int64), a cache line each.
CURSORS = 0  # two
TAILS = 16  # two
WANTS_ROOM = 32
INITIAL_CURSOR = 40
INITIAL_END = 41
SHARED_WORDS = 48


def frontier_item(frontier: Any, index: int) -> tuple[int, Any]:
    """Return the item at a position of the frontier."""
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


def process_round(worklist: Any, state: Any, shared: Any, control: Any, frontier: Any,
                  tail: int, parity: int, bucket: int) -> bool:  # fmt: skip
    """Process initial keys, the frontier and the own bin; return False if there is no room."""
    bins = worklist.bins
    counts = worklist.counts
    near = 1 + (bucket & (BUCKETS - 1))
    cursor = CURSORS + 8 * parity
    fused = 0
    while True:
        source = near
        kind = OWN
        if counts[RESUME_BEGIN] < counts[RESUME_END]:
            kind = FRONTIER
            index = counts[RESUME_BEGIN]
            key, value = frontier_item(frontier, index)
            far_key, _ = frontier_item(frontier, min(index + FAR_AHEAD, tail - 1))
            near_key, _ = frontier_item(frontier, min(index + NEAR_AHEAD, tail - 1))
            look_ahead(state, far_key, near_key)
        elif counts[NEXT_INITIAL] < counts[END_INITIAL]:
            kind = INITIAL
            key = counts[NEXT_INITIAL]
            value = initial_value(state, key)
        elif load_relaxed(shared, INITIAL_CURSOR) < load_relaxed(shared, INITIAL_END):
            begin = fetch_add(shared, INITIAL_CURSOR, INITIAL_CHUNK)
            counts[NEXT_INITIAL] = begin
            counts[END_INITIAL] = min(begin + INITIAL_CHUNK, load_relaxed(shared, INITIAL_END))
            if load_acquire(control, ABORT) != 0:
                return True
            continue
        elif load_relaxed(shared, cursor) < tail:
            begin = fetch_add(shared, cursor, FRONTIER_CHUNK)
            counts[RESUME_BEGIN] = min(begin, tail)
            counts[RESUME_END] = min(begin + FRONTIER_CHUNK, tail)
            if load_acquire(control, ABORT) != 0:
                return True
            continue
        elif bucket != NO_BUCKET and fused < counts[FUSION_LIMIT]:
            if bins.tail[URGENT] != 0:
                source = URGENT
            elif bins.tail[near] == 0:
                return True
            key = peek_key(bins, source, 0)
            look_ahead(state, peek_key(bins, source, FAR_AHEAD), peek_key(bins, source, NEAR_AHEAD))
        else:
            return True
        if not has_room(bins, fanout(state, key)):
            return False
        if kind == FRONTIER:
            counts[RESUME_BEGIN] += 1
        elif kind == INITIAL:
            counts[NEXT_INITIAL] += 1
        else:
            key, value = pop_bin(bins, source)
            bins.header[WAITING] -= 1
            fused += 1
        counts[PROCESSED] += 1
        process(worklist, state, key, value)


def share_bin(worklist: Any, frontier: Any, capacity: int, shared: Any, tail: int,
              source: int) -> bool:  # fmt: skip
    """Copy the own items of a bin to the frontier; return False if they do not fit."""
    bins = worklist.bins
    while bins.tail[source] != 0:
        position = bins.head[source]
        end = (position | (CHUNK_ITEMS - 1)) + 1
        if bins.tail[source] > position and bins.tail[source] < end:
            end = bins.tail[source]
        items = end - position
        begin = fetch_add(shared, tail, items)
        if begin + items > capacity:
            # Threads read the frontier up to its capacity when the tail is beyond it, so this thread
            # must fill all positions from `begin` to there.
            items = max(0, capacity - begin)
        for index in range(begin, begin + items):
            key, value = pop_bin(bins, source)
            set_frontier_item(frontier, index, key, value)
        bins.header[WAITING] -= items
        if begin + items >= capacity:
            return False
    return True


def share_bucket(worklist: Any, frontier: Any, capacity: int, shared: Any, tail: int,
                 bucket: int) -> None:  # fmt: skip
    """Copy the own items of a bucket to the frontier, as far as it has room."""
    near = 1 + (bucket & (BUCKETS - 1))
    if share_bin(worklist, frontier, capacity, shared, tail, URGENT):
        share_bin(worklist, frontier, capacity, shared, tail, near)


def share_all(worklist: Any, frontier: Any, capacity: int, shared: Any, tail: int) -> None:
    """Copy all own items to the frontier, as far as it has room."""
    bins = worklist.bins
    for source in range(URGENT, FAR + 1):
        if not share_bin(worklist, frontier, capacity, shared, tail, source):
            return
    bins.header[FAR_LOWEST] = NO_BUCKET


def work_alone(worklist: Any, state: Any) -> bool:
    """Process own items in the order of buckets while few are queued; return False if there is no room."""
    bins = worklist.bins
    counts = worklist.counts
    near = 1 + (bins.header[BASE] & (BUCKETS - 1))
    for _ in range(ALONE_STEPS):
        source = near
        if bins.tail[URGENT] != 0:
            source = URGENT
        elif bins.tail[near] == 0:
            if bins.tail[FAR] != 0 and not has_room(bins, BUCKETS):
                return False
            bucket = lowest_bucket(bins)
            if bucket == NO_BUCKET:
                return True
            bins.header[BASE] = bucket
            counts[THRESHOLD_CHANGES] += 1
            near = 1 + (bucket & (BUCKETS - 1))
            continue
        if not has_room(bins, fanout(state, peek_key(bins, source, 0))):
            return False
        key, value = pop_bin(bins, source)
        bins.header[WAITING] -= 1
        counts[PROCESSED] += 1
        process(worklist, state, key, value)
        if bins.header[WAITING] > ALONE_ITEMS:
            return True
    return True


def queued_items(published: Any, size: int) -> tuple[int, int]:
    """Return the number of all items that are queued, and the last rank that has some."""
    total = 0
    holder = 0
    for rank in range(size):
        queued = load_relaxed(published, rank * PUBLISHED_WORDS + QUEUED)
        if queued != 0:
            total += queued
            holder = rank
    return total, holder


def run_shared(rank: int, size: int, control: Any, worklist: Any, published: Any, shared: Any,
               frontier: Any, capacity: int, state: Any) -> int:  # fmt: skip
    """Work until the run has ended or is aborted, or a thread must grow."""
    bins = worklist.bins
    mine = rank * PUBLISHED_WORDS
    counts = worklist.counts
    parity = counts[ROUND_PARITY]
    bucket = counts[CURRENT_BUCKET]
    claims = True  # this thread takes items of the frontier
    has_all_room = True
    while True:
        tail = min(load_acquire(shared, TAILS + 8 * parity), capacity) if claims else 0
        has_all_room = (
            has_all_room
            and push_seeds(worklist)
            and process_round(worklist, state, shared, control, frontier, tail, parity, bucket)
        )
        if has_all_room and bins.tail[FAR] != 0:
            has_all_room = has_room(bins, BUCKETS)
        if has_all_room:
            store_relaxed(published, mine + LOWEST, lowest_bucket(bins))
            store_relaxed(published, mine + QUEUED, bins.header[WAITING])
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
            # All threads read the same, since the host resets the word only after they have left.
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
        queued, holder = queued_items(published, size)
        claims = True
        if queued > NARROW_ITEMS or counts[FUSION_LIMIT] == 0:
            share_bucket(worklist, frontier, capacity, shared, TAILS + 8 * parity, bucket)
        elif queued > load_relaxed(published, holder * PUBLISHED_WORDS + QUEUED):
            share_all(worklist, frontier, capacity, shared, TAILS + 8 * parity)
            claims = rank == 0
        elif rank == holder:
            has_all_room = work_alone(worklist, state)
        if not barrier(control, size):
            return ABORTED
