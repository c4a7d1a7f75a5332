"""Delta-stepping on one device whose threads share memory: the engine behind ``"cpu"``.

This is Meyer and Sanders' delta-stepping (J. Algorithms 49, 2003) as in GAP, for any VertexProgram. Items
stay with the thread that pushed them, since the neighbours of its items are in its cache: every thread
processes its own bin of the current bucket, with the items that it pushes into it meanwhile (bucket fusion:
Zhang et al., CGO 2020), and only what a thread has beyond an equal share goes to a frontier, from which all
take. Without fusion a round is a superstep: all items of the bucket go to the frontier, and items that it
pushes are for later ones, even in the same bucket. A program without priority has one bucket, and ends when
it is empty.

In a round every thread
1. processes its own bin, up to as many items as it had at first and FUSION_LIMIT more (FUSION_ITEMS, or 0
   where rounds are supersteps), and claims chunks of the frontier by the cursor and processes them;
2. publishes its lowest bucket, and how many items it has, in all and in that bucket; **meets** the others;
3. reads the lowest bucket of all (none: the end) and computes which threads have too many items of it. If
   there are some, these copy as many of their own bins to the frontier, and all **meet** once more.

Where few items are left, as along a path, meetings would take longer than all work. If one thread has all
of at most NARROW_ITEMS items, it works alone instead of step 3, bucket after bucket, until it has more than
ALONE_ITEMS; if several have, all copy all of their items to the frontier, from which rank 0 takes them.
All threads read the same published numbers, so they agree on all of this.

Published numbers, cursors, tails of the frontier and WANTS_ROOM exist twice (by round parity): a slow
thread may still read those of a round while others are in the next one. None is two rounds ahead.

Each thread begins by writing the initial values of its part of the vertices, and ends by writing their
results: for one thread alone that would be a tenth of a search of a small graph.

A thread without room stops claiming work, notes the frontier range that it has claimed, and sets
WANTS_ROOM; after the meeting all threads leave, the host enlarges that thread's arena, and they continue.
"""

from __future__ import annotations

from typing import Any

from godwit.runtime.cpu.atomics import (
    fetch_add,
    load,
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
    CHUNK_SHIFT,
    FAR,
    FAR_LOWEST,
    ITEM_WORDS,
    NO_BUCKET,
    OVERFLOWED,
    URGENT,
    WAITING,
    drop_items,
    first_run,
    from_bits,
    has_room,
    item_at,
    item_key,
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
    NEAR_AHEAD,
    NEXT_INITIAL,
    PROCESSED,
    PUBLISHED_WORDS,
    RESUME_BEGIN,
    RESUME_END,
    ROUND_PARITY,
    ROUNDS,
    THRESHOLD_CHANGES,
    WANTED_ROOM,
    fanout,
    initial_value,
    look_ahead,
    process,
    push_seeds,
)

FRONTIER_CHUNK = 32
INITIAL_CHUNK = 256
FUSION_ITEMS = 1024
SPARE_ITEMS = 32
"""Items beyond an equal share that a thread may keep: sharing them costs more."""
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
WANTS_ROOM = 32  # two
INITIAL_CURSOR = 48
INITIAL_END = 49
HAS_BEGUN = 56  # set by the host when threads return to a run
SHARED_WORDS = 64

# Words of `published`, per thread and parity.
LOWEST = 0
QUEUED = 1  # items in the thread's bins
DUE = 2  # those of its lowest bucket, urgent ones included
PARITY_WORDS = 4  # twice that are PUBLISHED_WORDS


# Operators, bound by the instantiation.


def set_first_values(rank: int, size: int, state: Any, ends: Any) -> None:
    """Write the initial values of a thread's part of the vertices."""
    raise NotImplementedError


def write_results(rank: int, size: int, state: Any, ends: Any) -> None:
    """Write the results of a thread's part of the vertices."""
    raise NotImplementedError


# Compiled from here on.


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
    limit = counts[FUSION_LIMIT] if bucket != NO_BUCKET else 0
    if limit > 0:
        limit += due_items(bins, bucket)
    fused = 0
    source = near
    while True:
        if counts[RESUME_BEGIN] < counts[RESUME_END]:
            kind = FRONTIER
            position = counts[RESUME_BEGIN]
            end = counts[RESUME_END]
        elif counts[NEXT_INITIAL] < counts[END_INITIAL]:
            kind = INITIAL
            position = counts[NEXT_INITIAL]
            end = counts[END_INITIAL]
        elif load_relaxed(shared, INITIAL_CURSOR) < load_relaxed(shared, INITIAL_END):
            first = fetch_add(shared, INITIAL_CURSOR, INITIAL_CHUNK)
            counts[NEXT_INITIAL] = first
            counts[END_INITIAL] = min(first + INITIAL_CHUNK, load_relaxed(shared, INITIAL_END))
            if load_acquire(control, ABORT) != 0:
                return True
            continue
        elif fused < limit and load(bins.tail, URGENT) | load(bins.tail, near) != 0:
            if load_acquire(control, ABORT) != 0:
                return True
            kind = OWN
            source = URGENT if load(bins.tail, URGENT) != 0 else near
            position, end = first_run(bins, source)
            end = min(end, position + limit - fused)
        elif load_relaxed(shared, cursor) < tail:
            first = fetch_add(shared, cursor, FRONTIER_CHUNK)
            counts[RESUME_BEGIN] = min(first, tail)
            counts[RESUME_END] = min(first + FRONTIER_CHUNK, tail)
            if load_acquire(control, ABORT) != 0:
                return True
            continue
        else:
            return True
        begin = position
        fits = True
        while position < end:
            if kind == OWN:
                key, value = item_at(bins, position)
                far_key = item_key(bins, min(position + FAR_AHEAD, end - 1))
                near_key = item_key(bins, min(position + NEAR_AHEAD, end - 1))
                look_ahead(state, far_key, near_key)
            elif kind == FRONTIER:
                key, value = frontier_item(frontier, position)
                far_key, _ = frontier_item(frontier, min(position + FAR_AHEAD, tail - 1))
                near_key, _ = frontier_item(frontier, min(position + NEAR_AHEAD, tail - 1))
                look_ahead(state, far_key, near_key)
            else:
                key = position
                value = initial_value(state, key)
            fits = has_room(bins, fanout(state, key))
            if not fits:
                break
            position += 1
            process(worklist, state, key, value)
            if kind == OWN and source == near and load(bins.tail, URGENT) != 0:
                break
        counts[PROCESSED] += position - begin
        if kind == FRONTIER:
            counts[RESUME_BEGIN] = position
        elif kind == INITIAL:
            counts[NEXT_INITIAL] = position
        elif position > begin:
            drop_items(bins, source, position)
            bins.header[WAITING] -= position - begin
            fused += position - begin
        if not fits:
            return False


def bin_items(bins: Any, bin_number: int) -> int:
    """Return the number of items of a bin."""
    tail = load(bins.tail, bin_number)
    if tail == 0:
        return 0
    chunk = load(bins.head, bin_number) >> CHUNK_SHIFT
    items = tail - load(bins.head, bin_number)
    last = (tail - 1) >> CHUNK_SHIFT
    items -= (last - chunk) << CHUNK_SHIFT
    while chunk != last:
        items += CHUNK_ITEMS
        chunk = load(bins.next_chunk, chunk)
    return int(items)


def due_items(bins: Any, bucket: int) -> int:
    """Return the number of own items of a bucket, urgent ones included."""
    return bin_items(bins, URGENT) + bin_items(bins, 1 + (bucket & (BUCKETS - 1)))


def share_bin(worklist: Any, frontier: Any, capacity: int, shared: Any, tail: int,
              source: int, most: int) -> int:  # fmt: skip
    """Copy up to ``most`` own items of a bin to the frontier.

    Return how many of ``most`` are left, or 0 if the frontier is full.
    """
    bins = worklist.bins
    while most > 0 and bins.tail[source] != 0:
        position, end = first_run(bins, source)
        items = min(most, end - position)
        most -= items
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
            return 0
    return most


def share_bucket(worklist: Any, frontier: Any, capacity: int, shared: Any, tail: int,
                 bucket: int, most: int) -> None:  # fmt: skip
    """Copy up to ``most`` own items of a bucket to the frontier, as far as it has room."""
    near = 1 + (bucket & (BUCKETS - 1))
    most = share_bin(worklist, frontier, capacity, shared, tail, URGENT, most)
    share_bin(worklist, frontier, capacity, shared, tail, near, most)


def share_all(worklist: Any, frontier: Any, capacity: int, shared: Any, tail: int) -> None:
    """Copy all own items to the frontier, as far as it has room."""
    bins = worklist.bins
    for source in range(URGENT, FAR + 1):
        if share_bin(worklist, frontier, capacity, shared, tail, source, NO_BUCKET) == 0:
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


def lowest_of(published: Any, size: int, parity: int) -> int:
    """Return the lowest bucket that any thread has published."""
    lowest = NO_BUCKET
    for rank in range(size):
        line = rank * PUBLISHED_WORDS + parity * PARITY_WORDS
        lowest = min(lowest, load_relaxed(published, line + LOWEST))
    return lowest


def queued_items(published: Any, size: int, parity: int) -> tuple[int, int, int]:
    """Return the number of all items that are queued, the last rank that has some, and how many it has."""
    total = 0
    holder = 0
    held = 0
    for rank in range(size):
        queued = load_relaxed(published, rank * PUBLISHED_WORDS + parity * PARITY_WORDS + QUEUED)
        if queued != 0:
            total += queued
            holder = rank
            held = queued
    return total, holder, held


def items_to_share(published: Any, size: int, parity: int, bucket: int, rank: int,
                   keeps: bool) -> tuple[int, bool]:  # fmt: skip
    """Return how many items of the bucket a thread copies to the frontier, and True if any thread copies.

    :param keeps: threads keep an equal share for themselves; otherwise they copy all
    """
    total = 0
    for other in range(size):
        line = other * PUBLISHED_WORDS + parity * PARITY_WORDS
        if load_relaxed(published, line + LOWEST) == bucket:
            total += load_relaxed(published, line + DUE)
    share = total // size if keeps else 0
    mine = 0
    any_shares = False
    for other in range(size):
        line = other * PUBLISHED_WORDS + parity * PARITY_WORDS
        if load_relaxed(published, line + LOWEST) == bucket:
            beyond = load_relaxed(published, line + DUE) - share
            if beyond > (SPARE_ITEMS + (share >> 3) if keeps else 0):
                any_shares = True
                if other == rank:
                    mine = beyond
    return mine, any_shares


def run_shared(rank: int, size: int, control: Any, worklist: Any, published: Any, shared: Any,
               frontier: Any, capacity: int, state: Any, ends: Any) -> int:  # fmt: skip
    """Work until the run has ended or is aborted, or a thread must grow."""
    if load_relaxed(shared, HAS_BEGUN) == 0:
        set_first_values(rank, size, state, ends)
        if not barrier(control, size):
            return ABORTED
    bins = worklist.bins
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
            mine = rank * PUBLISHED_WORDS + parity * PARITY_WORDS
            lowest = lowest_bucket(bins)
            store_relaxed(published, mine + LOWEST, lowest)
            store_relaxed(published, mine + QUEUED, bins.header[WAITING])
            store_relaxed(published, mine + DUE, due_items(bins, lowest))
        else:
            counts[WANTED_ROOM] = 1
            store_release(shared, WANTS_ROOM + 8 * parity, 1)
        if bins.header[OVERFLOWED] != 0:
            store_release(control, ABORT, 1)
            return FAILED
        if rank == 0:
            store_relaxed(shared, CURSORS + 8 * (1 - parity), 0)
            store_relaxed(shared, TAILS + 8 * (1 - parity), 0)
        if not barrier(control, size):
            return ABORTED
        if load_acquire(shared, WANTS_ROOM + 8 * parity) != 0:
            # All threads read the same, since the host resets the word only after they have left.
            counts[ROUND_PARITY] = parity
            counts[CURRENT_BUCKET] = bucket
            return GROW
        bucket = lowest_of(published, size, parity)
        if bucket == NO_BUCKET:
            write_results(rank, size, state, ends)
            return FINISHED
        if rank == 0:
            counts[ROUNDS] += 1
            if bins.header[BASE] != bucket:
                counts[THRESHOLD_CHANGES] += 1
        if bins.header[BASE] == NO_BUCKET or bins.header[BASE] < bucket:
            bins.header[BASE] = bucket
        queued, holder, held = queued_items(published, size, parity)
        fuses = counts[FUSION_LIMIT] != 0
        most, shares = items_to_share(published, size, parity, bucket, rank, fuses)
        parity = 1 - parity
        claims = True
        if queued > NARROW_ITEMS or not fuses:
            if most > 0:
                share_bucket(worklist, frontier, capacity, shared, TAILS + 8 * parity, bucket, most)
        elif queued > held:
            shares = True
            share_all(worklist, frontier, capacity, shared, TAILS + 8 * parity)
            claims = rank == 0
        else:
            shares = False
            if rank == holder:
                has_all_room = work_alone(worklist, state)
        if shares and not barrier(control, size):
            return ABORTED
