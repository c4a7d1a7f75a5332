"""A worker's local worklist: near and far queues as bins of chunks in one arena.

Every queue is FIFO, holds work-items (key, value), and is a linked list of chunks of one arena, so that
memory is bounded by the number of queued items, not of queues. Only the worker that owns an arena accesses
it during a run.

Bins, by number:

    0                     urgent: items of higher priority than the current bucket (late arrivals)
    1 .. BUCKETS          priority buckets, circular: bucket b is bin 1 + b mod BUCKETS, for b in
                          [base, base + BUCKETS)
    BUCKETS + 1           far: items of later buckets, distributed when the base gets there
    BUCKETS + 2 + d       outbox for device d

An empty bin has head = tail = 0; chunk 0 is never used. Otherwise head is the position of its first item
and tail one past its last, position = chunk * CHUNK_ITEMS + offset.

Invariant (no item is lost): before pushing, a worker checks that there is room (`has_room`), and otherwise
returns to its host thread, which enlarges the arena and calls it again. A push without room sets the
overflow flag, which ends the run with an error.

The bucket of an item is a hint about order only: results do not depend on it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from godwit.runtime.cpu.atomics import load, store
from godwit.runtime.cpu.values import FROM_BITS, to_bits

CHUNK_SHIFT = 6
CHUNK_ITEMS = 1 << CHUNK_SHIFT
BUCKETS = 256
URGENT = 0
FAR = BUCKETS + 1
OUTBOX = BUCKETS + 2
NO_BUCKET = np.iinfo(np.int64).max
"""Bucket published by a worker without work: larger than any."""
_BUCKET_LIMIT = float(1 << 60)

# Words of `header`.
FREE_HEAD = 0  # first chunk of the free list
FREE_COUNT = 1
BASE = 2  # the lowest bucket that may hold items
OVERFLOWED = 3  # error that ends the run: NO_ROOM, NO_DEVICE or NO_VALUE
WAITING = 4  # items in urgent, buckets and far
FAR_LOWEST = 5  # lowest bucket in the far bin
HEADER_WORDS = 8

# Values of OVERFLOWED.
NO_ROOM = 1  # an item was not queued
NO_DEVICE = 2  # an item was addressed to a device that does not exist
NO_VALUE = 3  # a value or a key does not fit its dtype; it was not stored

# Bound by the instantiation: words of an item (1 or 2), the type of its value (to which pushed values are
# converted, since the bits of a double are not those of a float), and the conversion from int64 bits.
ITEM_WORDS = 1
VALUE: Any = np.int32
from_bits = FROM_BITS[np.dtype(np.int32)]


def item_bucket(buckets_per_unit: float, value: Any) -> int:
    """Return the bucket of an item: its priority over delta. Bound by the instantiation."""
    raise NotImplementedError


class Bins(NamedTuple):
    """One worker's queues, as arrays."""

    arena: Any  # int64 (chunks * CHUNK_ITEMS * ITEM_WORDS)
    next_chunk: Any  # int64 (chunks)
    head: Any  # int64 (bins)
    tail: Any  # int64 (bins)
    header: Any  # int64 (HEADER_WORDS)
    buckets_per_unit: float  # 1 / delta


def new_bins(
    devices: int, capacity_items: int, item_words: int, buckets_per_unit: float = 1.0
) -> Bins:
    """Return empty queues with room for ``capacity_items`` in full chunks."""
    chunks = 2 + -(-capacity_items // CHUNK_ITEMS)
    bins = Bins(
        arena=np.empty(chunks * CHUNK_ITEMS * item_words, np.int64),
        next_chunk=np.empty(chunks, np.int64),
        head=np.zeros(OUTBOX + devices, np.int64),
        tail=np.zeros(OUTBOX + devices, np.int64),
        header=np.zeros(HEADER_WORDS, np.int64),
        buckets_per_unit=buckets_per_unit,
    )
    clear_bins(bins)
    return bins


def clear_bins(bins: Bins) -> None:
    """Remove all items."""
    bins.head[:] = 0
    bins.tail[:] = 0
    bins.header[:] = 0
    bins.header[BASE] = NO_BUCKET
    bins.header[FAR_LOWEST] = NO_BUCKET
    _add_chunks(bins, 1)


def grown_bins(bins: Bins, item_words: int) -> Bins:
    """Return the same queues with twice the room; items keep their positions."""
    chunks = len(bins.next_chunk)
    larger = bins._replace(
        arena=np.empty(2 * len(bins.arena), np.int64), next_chunk=np.empty(2 * chunks, np.int64)
    )
    larger.arena[: len(bins.arena)] = bins.arena
    larger.next_chunk[:chunks] = bins.next_chunk
    _add_chunks(larger, chunks)
    return larger


def _add_chunks(bins: Bins, first: int) -> None:
    """Put the chunks from ``first`` on into the free list."""
    chunks = len(bins.next_chunk)
    bins.next_chunk[first : chunks - 1] = np.arange(first + 1, chunks)
    bins.next_chunk[chunks - 1] = bins.header[FREE_HEAD]
    bins.header[FREE_HEAD] = first
    bins.header[FREE_COUNT] += chunks - first


# Compiled from here on.


def has_room(bins: Any, pushes: int) -> bool:
    """Return True if that many items can be pushed, into any bins."""
    chunks = (pushes >> CHUNK_SHIFT) + min(pushes, len(bins.head)) + 1
    return bool(bins.header[FREE_COUNT] >= chunks)


def push_bin(bins: Any, bin_number: int, key: int, value: Any) -> None:
    """Append an item to a bin."""
    position = load(bins.tail, bin_number)
    if position & (CHUNK_ITEMS - 1) == 0:
        chunk = bins.header[FREE_HEAD]
        if bins.header[FREE_COUNT] == 0:
            bins.header[OVERFLOWED] = NO_ROOM
            return
        bins.header[FREE_HEAD] = load(bins.next_chunk, chunk)
        bins.header[FREE_COUNT] -= 1
        if position == 0:
            store(bins.head, bin_number, chunk << CHUNK_SHIFT)
        else:
            store(bins.next_chunk, (position - 1) >> CHUNK_SHIFT, chunk)
        position = chunk << CHUNK_SHIFT
    if ITEM_WORDS == 1:
        store(bins.arena, position, (to_bits(VALUE(value)) << 32) | key)
    else:
        store(bins.arena, 2 * position, key)
        store(bins.arena, 2 * position + 1, to_bits(VALUE(value)))
    store(bins.tail, bin_number, position + 1)


def item_key(bins: Any, position: int) -> int:
    """Return the key of the item at a position."""
    if ITEM_WORDS == 1:
        return int(load(bins.arena, position) & 0xFFFFFFFF)
    return int(load(bins.arena, 2 * position))


def item_at(bins: Any, position: int) -> tuple[int, Any]:
    """Return the item at a position."""
    if ITEM_WORDS == 1:
        word = load(bins.arena, position)
        return word & 0xFFFFFFFF, from_bits((word >> 32) & 0xFFFFFFFF)
    return load(bins.arena, 2 * position), from_bits(load(bins.arena, 2 * position + 1))


def first_run(bins: Any, bin_number: int) -> tuple[int, int]:
    """Return begin and end of the positions of the items in the first chunk of a bin that is not empty."""
    position = load(bins.head, bin_number)
    end = (position | (CHUNK_ITEMS - 1)) + 1
    tail = load(bins.tail, bin_number)
    return position, min(end, tail) if tail > position else end


def drop_items(bins: Any, bin_number: int, position: int) -> None:
    """Remove the items before a position of the first chunk, or before its end; one at least."""
    chunk = (position - 1) >> CHUNK_SHIFT
    if position == load(bins.tail, bin_number):
        store(bins.head, bin_number, 0)
        store(bins.tail, bin_number, 0)
        store(bins.next_chunk, chunk, bins.header[FREE_HEAD])
        bins.header[FREE_HEAD] = chunk
        bins.header[FREE_COUNT] += 1
    elif position & (CHUNK_ITEMS - 1) == 0:
        store(bins.head, bin_number, load(bins.next_chunk, chunk) << CHUNK_SHIFT)
        store(bins.next_chunk, chunk, bins.header[FREE_HEAD])
        bins.header[FREE_HEAD] = chunk
        bins.header[FREE_COUNT] += 1
    else:
        store(bins.head, bin_number, position)


def pop_bin(bins: Any, bin_number: int) -> tuple[int, Any]:
    """Take the first item of a bin that is not empty."""
    position = load(bins.head, bin_number)
    key, value = item_at(bins, position)
    drop_items(bins, bin_number, position + 1)
    return key, value


def peek_key(bins: Any, bin_number: int, ahead: int) -> int:
    """Return the key of the item ``ahead`` places behind the first of a non-empty bin, to prefetch it.

    If the first chunk has fewer items, it is the key of the last one there.
    """
    position, end = first_run(bins, bin_number)
    return item_key(bins, min(position + ahead, end - 1))


def bucket_of(priority: Any, buckets_per_unit: float) -> int:
    """Return the bucket of a priority, which may be infinite or NaN."""
    scaled = np.floor(np.float64(priority) * buckets_per_unit)
    if not scaled < _BUCKET_LIMIT:
        return 1 << 60
    if scaled < -_BUCKET_LIMIT:
        return -(1 << 60)
    return int(scaled)


def push_bucket(bins: Any, bucket: int, key: int, value: Any) -> None:
    """Queue an item under its bucket."""
    header = bins.header
    if header[BASE] == NO_BUCKET:
        header[BASE] = bucket
    header[WAITING] += 1
    ahead = bucket - header[BASE]
    bin_number = 1 + (bucket & (BUCKETS - 1))
    if ahead < 0:
        bin_number = URGENT
    elif ahead >= BUCKETS:
        header[FAR_LOWEST] = min(header[FAR_LOWEST], bucket)
        bin_number = FAR
    push_bin(bins, bin_number, key, value)


def lowest_bucket(bins: Any) -> int:
    """Return the lowest bucket that holds items (the base for urgent items), or NO_BUCKET.

    Distributes the far bin when its lowest bucket is due; the caller has checked for room for BUCKETS
    items.
    """
    header = bins.header
    if header[WAITING] == 0:
        return NO_BUCKET
    base = header[BASE]
    if load(bins.tail, URGENT) != 0:
        return int(base)
    lowest = NO_BUCKET
    for ahead in range(BUCKETS):
        if load(bins.tail, 1 + ((base + ahead) & (BUCKETS - 1))) != 0:
            lowest = base + ahead
            break
    if load(bins.tail, FAR) != 0 and header[FAR_LOWEST] <= lowest:
        lowest = header[FAR_LOWEST]
        _distribute_far(bins)
    return lowest


def _distribute_far(bins: Any) -> None:
    """Move the base to the lowest far bucket, and far items of the window into their buckets."""
    header = bins.header
    header[BASE] = header[FAR_LOWEST]
    header[FAR_LOWEST] = NO_BUCKET
    # Items that stay far are appended after this one, which therefore ends the loop.
    last = load(bins.tail, FAR)
    while True:
        ended = load(bins.head, FAR) + 1 == last
        key, value = pop_bin(bins, FAR)
        header[WAITING] -= 1
        push_bucket(bins, item_bucket(bins.buckets_per_unit, value), key, value)
        if ended:
            break


def advance_base(bins: Any, bucket: int) -> bool:
    """Raise the base to a bucket below which no item is queued; return True if it moved."""
    if bucket == NO_BUCKET or bucket <= bins.header[BASE] or load(bins.tail, URGENT) != 0:
        return False
    bins.header[BASE] = bucket
    return True
