"""Arcs in any order into rows sorted by target: a parallel, stable radix sort.

Method: arcs are first distributed, in their order, to *buckets* of neighbouring sources: each thread
writes its part of the input to its part of every bucket. Then each bucket, small enough for a core's
cache, is sorted by one thread with least-significant-digit passes over keys that hold the source
(within its bucket) above the target. Both steps are stable, so the result does not depend on the
number of threads.

Encoding: ``key = (source - first source of the bucket) << target_bits | target``, an int64. Weights
are moved as integers of the same bits (int32 or int64), so two kinds of payload serve all dtypes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.dtypes import Array, frozen
from godwit.graph.rows import (
    Rows,
    bits_of,
    estimate_bytes,
    first_row_at,
    require_memory,
    thread_count_for,
)
from godwit.runtime.cpu.atomics import fetch_add, load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, CURSOR, barrier, block_range, run_team

SMALL_ARCS = 1 << 14
"""NumPy and SciPy take up to this many arcs: they need no compilation, which takes seconds."""
_ARCS_PER_BUCKET = 32_768
_MAXIMAL_BUCKETS = 2_048
_MAXIMAL_DIGIT_BITS = 11
_KEY_BITS = 62
_INSERTION_LENGTH = 32
_POLL_STEPS = 65_536  # arcs between two looks at the abort word


@kernel
def _count_buckets(
    rank: int, size: int, control: Any, sources: Any, targets: Any, both_directions: bool,
    row_bits: int, counts: Any,
) -> None:  # fmt: skip
    """Count the arcs of this thread's part that belong to each bucket: row ``rank`` of ``counts``."""
    begin, end = block_range(rank, size, sources.size)
    mine = counts[rank]
    for i in range(begin, end):
        if i % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        source = np.int64(sources[i])
        mine[source >> row_bits] += 1
        if both_directions:
            target = np.int64(targets[i])
            if target != source:
                mine[target >> row_bits] += 1


@kernel
def _distribute_and_sort(
    rank: int, size: int, control: Any, sources: Any, targets: Any, payload: Any,
    both_directions: bool, drop_loops: bool, merge: bool, row_bits: int, target_bits: int,
    first_bit: int, counts: Any, bucket_begin: Any, keys: Any, values: Any, scratch_keys: Any,
    scratch_values: Any, digits: Any, offsets: Any, kept: Any,
) -> None:  # fmt: skip
    """Distribute the arcs to buckets, sort each bucket, and count its rows.

    ``counts[rank]`` holds where this thread's part of each bucket begins. Afterwards bucket b has
    ``kept[b]`` keys, ascending, from ``bucket_begin[b]``, and ``offsets[v + 1]`` is the end of row
    v within its bucket.
    """
    begin, end = block_range(rank, size, sources.size)
    next_position = counts[rank]
    weighted = payload.size > 0
    low = (np.int64(1) << row_bits) - 1
    for i in range(begin, end):
        if i % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        source = np.int64(sources[i])
        target = np.int64(targets[i])
        bucket = source >> row_bits
        position = next_position[bucket]
        next_position[bucket] = position + 1
        keys[position] = (source & low) << target_bits | target
        if weighted:
            values[position] = payload[i]
        if both_directions and source != target:
            bucket = target >> row_bits
            position = next_position[bucket]
            next_position[bucket] = position + 1
            keys[position] = (target & low) << target_bits | source
            if weighted:
                values[position] = payload[i]
    if not barrier(control, size):
        return
    bucket_count = bucket_begin.size - 1
    my_digits = digits[rank]
    other_keys = scratch_keys[rank]
    other_values = scratch_values[rank]
    while True:
        bucket = fetch_add(control, CURSOR, 1)
        if bucket >= bucket_count or load_acquire(control, ABORT) != 0:
            return
        begin = bucket_begin[bucket]
        end = bucket_begin[bucket + 1]
        mine = keys[begin:end]
        my_values = values[begin:end] if weighted else values
        _sort(
            mine,
            my_values,
            weighted,
            other_keys,
            other_values,
            my_digits,
            first_bit,
            row_bits + target_bits,
        )
        first_row = bucket << row_bits
        count = end - begin
        if drop_loops or merge:
            count = _compact(mine, first_row, target_bits, drop_loops, merge)
        kept[bucket] = count
        rows = min(offsets.size - 1 - first_row, low + 1)
        position = 0
        for row in range(rows):
            limit = (row + 1) << target_bits
            while position < count and mine[position] < limit:
                position += 1
            offsets[first_row + row + 1] = position


def _sort(
    keys: Any, values: Any, weighted: bool, other_keys: Any, other_values: Any, digits: Any,
    first_bit: int, last_bit: int,
) -> None:  # fmt: skip
    """Sort the keys, and the values with them, stably by bits [first_bit, last_bit)."""
    count = keys.size
    unsorted = False
    for i in range(1, count):
        if keys[i - 1] > keys[i]:
            unsorted = True
            break
    if not unsorted:
        return
    if count <= _INSERTION_LENGTH:
        for i in range(1, count):
            key = keys[i]
            j = i
            if weighted:
                value = values[i]
                while j > 0 and keys[j - 1] > key:
                    keys[j] = keys[j - 1]
                    values[j] = values[j - 1]
                    j -= 1
                values[j] = value
            else:
                while j > 0 and keys[j - 1] > key:
                    keys[j] = keys[j - 1]
                    j -= 1
            keys[j] = key
        return
    bits = last_bit - first_bit
    passes = (bits + _MAXIMAL_DIGIT_BITS - 1) // _MAXIMAL_DIGIT_BITS
    width = (bits + passes - 1) // passes
    swapped = False
    for p in range(passes):
        shift = first_bit + p * width
        if swapped:
            moved = _pass(
                other_keys, other_values, keys, values, count, weighted, digits, shift, width
            )
        else:
            moved = _pass(
                keys, values, other_keys, other_values, count, weighted, digits, shift, width
            )
        if moved:
            swapped = not swapped
    if swapped:
        for i in range(count):
            keys[i] = other_keys[i]
        if weighted:
            for i in range(count):
                values[i] = other_values[i]


def _pass(
    keys: Any, values: Any, to_keys: Any, to_values: Any, count: int, weighted: bool, digits: Any,
    shift: int, width: int,
) -> bool:  # fmt: skip
    """Sort by ``width`` bits from ``shift``, by counting, stably; return False if all keys agree."""
    mask = (1 << width) - 1
    for d in range(mask + 1):
        digits[d] = 0
    for i in range(count):
        digits[(keys[i] >> shift) & mask] += 1
    if digits[(keys[0] >> shift) & mask] == count:
        return False
    total = 0
    for d in range(mask + 1):
        here = digits[d]
        digits[d] = total
        total += here
    for i in range(count):
        key = keys[i]
        d = (key >> shift) & mask
        position = digits[d]
        digits[d] = position + 1
        to_keys[position] = key
        if weighted:
            to_values[position] = values[i]
    return True


def _compact(keys: Any, first_row: int, target_bits: int, drop_loops: bool, merge: bool) -> int:
    """Move the keys of the arcs that are kept to the front; return their number."""
    low = (np.int64(1) << target_bits) - 1
    previous = np.int64(-1)
    count = 0
    for i in range(keys.size):
        key = keys[i]
        if merge and key == previous:
            continue
        previous = key
        if drop_loops and first_row + (key >> target_bits) == key & low:
            continue
        keys[count] = key
        count += 1
    return count


@kernel
def _emit(
    rank: int, size: int, control: Any, keys: Any, values: Any, weighted: bool, row_bits: int,
    target_bits: int, bucket_begin: Any, base: Any, offsets: Any, targets: Any, weights: Any,
) -> None:  # fmt: skip
    """Write the rows: bucket b's arcs to ``targets[base[b]:base[b + 1]]``."""
    low = (np.int64(1) << target_bits) - 1
    bucket_count = bucket_begin.size - 1
    while True:
        bucket = fetch_add(control, CURSOR, 1)
        if bucket >= bucket_count or load_acquire(control, ABORT) != 0:
            return
        begin = bucket_begin[bucket]
        to = base[bucket]
        count = base[bucket + 1] - to
        for i in range(count):
            targets[to + i] = keys[begin + i] & low
        if weighted:
            for i in range(count):
                weights[to + i] = values[begin + i]
        first_row = bucket << row_bits
        rows = min(offsets.size - 1 - first_row, np.int64(1) << row_bits)
        for row in range(rows):
            offsets[first_row + row + 1] += to


def _key_bits(vertex_count: int, arc_count: int) -> tuple[int, int]:
    """Return the bits of a target, and of a source within its bucket; together they fit an int64 key."""
    target_bits = max(1, (vertex_count - 1).bit_length())
    buckets = min(max(arc_count // _ARCS_PER_BUCKET, 1), _MAXIMAL_BUCKETS)
    row_bits = max(0, target_bits - (buckets.bit_length() - 1))
    return target_bits, min(row_bits, _KEY_BITS - target_bits)


def arcs_to_rows(
    sources: Array,
    targets: Array,
    weights: Array | None,
    vertex_count: int,
    id_dtype: np.dtype[Any],
    *,
    both_directions: bool = False,
    drop_loops: bool = False,
    merge: bool = False,
    sources_ascend: bool = False,
) -> Rows:
    """Return the rows of arcs in any order, each sorted by target, stably.

    :param sources: (k) int32 or int64 in [0, vertex_count): trusted
    :param both_directions: store each pair a second time as its reverse, except self-loops
    :param drop_loops: leave out self-loops
    :param merge: keep one of parallel arcs; for arcs without weights only
    :param sources_ascend: with ``sources`` and ``targets`` exchanged, the arcs are in row order:
        equal new rows then come sorted, which saves passes
    :raises GraphTooLargeError: before anything large is allocated
    """
    given = len(sources)
    arc_bound = given * 2 if both_directions else given
    weight_bytes = 0 if weights is None else weights.itemsize
    require_memory(
        estimate_bytes(vertex_count, arc_bound, id_dtype.itemsize, weight_bytes)
        + arc_bound * (8 + weight_bytes),
        f"building a graph of {vertex_count:,} vertices and {arc_bound:,} arcs",
    )
    offsets = np.zeros(vertex_count + 1, np.int64)
    if given == 0:
        empty = None if weights is None else np.empty(0, weights.dtype)
        return Rows(offsets, np.empty(0, id_dtype), empty)
    if arc_bound <= SMALL_ARCS:
        pairs = (sources.astype(np.int64), targets.astype(np.int64))
        kept, begins = _sorted_small(*pairs, vertex_count, both_directions, drop_loops, merge)
        ends = np.stack([pairs[1], pairs[0]], axis=1).ravel() if both_directions else pairs[1]
        arc = kept // 2 if both_directions else kept
        return Rows(begins, ends[kept].astype(id_dtype), None if weights is None else weights[arc])
    if sources.dtype != targets.dtype:
        sources, targets = sources.astype(np.int64), targets.astype(np.int64)
    sources, targets, payload = frozen(sources), frozen(targets), bits_of(weights)
    threads = thread_count_for(arc_bound)
    target_bits, row_bits = _key_bits(vertex_count, arc_bound)
    bucket_count = ((vertex_count - 1) >> row_bits) + 1

    counts = np.zeros((threads, bucket_count), np.int64)
    run_team(_count_buckets, sources, targets, both_directions, row_bits, counts, threads=threads)
    per_bucket = counts.sum(axis=0)
    bucket_begin = np.zeros(bucket_count + 1, np.int64)
    np.cumsum(per_bucket, out=bucket_begin[1:])
    counts[:] = np.cumsum(counts, axis=0) - counts + bucket_begin[:-1]

    total, longest = int(bucket_begin[-1]), int(per_bucket.max())
    keys = np.empty(total, np.int64)
    values = np.empty(total if payload.size else 0, payload.dtype)
    kept = np.zeros(bucket_count, np.int64)
    run_team(
        _distribute_and_sort, sources, targets, payload, both_directions, drop_loops, merge,
        row_bits, target_bits, target_bits if sources_ascend else 0, counts, bucket_begin, keys,
        values, np.empty((threads, longest), np.int64),
        np.empty((threads, longest if payload.size else 0), payload.dtype),
        np.empty((threads, 1 << _MAXIMAL_DIGIT_BITS), np.int64), offsets, kept, threads=threads,
    )  # fmt: skip
    base = np.zeros(bucket_count + 1, np.int64)
    np.cumsum(kept, out=base[1:])
    row_targets = np.empty(int(base[-1]), id_dtype)
    row_weights = None if weights is None else np.empty(int(base[-1]), weights.dtype)
    run_team(
        _emit, keys, values, payload.size > 0, row_bits, target_bits, bucket_begin, base, offsets,
        row_targets, values if row_weights is None else row_weights.view(payload.dtype),
        threads=threads,
    )  # fmt: skip
    return Rows(offsets, row_targets, row_weights)


def _sorted_small(
    sources: Array, targets: Array, vertex_count: int, both_directions: bool, drop_loops: bool,
    merge: bool,
) -> tuple[Array, Array]:  # fmt: skip
    """Return the arcs of the rows and the offsets of these, as :func:`arcs_to_rows` does, by NumPy.

    :returns: indexes of arcs; in both directions, 2 i is arc i and 2 i + 1 its reverse
    """
    keep = np.full(len(sources), True)
    if both_directions:
        keep = np.stack([keep, sources != targets], axis=1).ravel()
        sources, targets = (
            np.stack(pair, axis=1).ravel() for pair in ((sources, targets), (targets, sources))
        )
    if drop_loops:
        keep &= sources != targets
    order = np.lexsort((targets, sources))
    order = order[keep[order]]
    if merge and len(order):
        differs = (np.diff(sources[order]) != 0) | (np.diff(targets[order]) != 0)
        order = order[np.concatenate([[True], differs])]
    offsets = np.zeros(vertex_count + 1, np.int64)
    np.cumsum(np.bincount(sources[order], minlength=vertex_count), out=offsets[1:])
    return order, offsets


@kernel
def _expand_rows(rank: int, size: int, control: Any, offsets: Any, sources: Any) -> None:
    """Write the source of every arc; threads take equal parts of the arcs, which may split rows."""
    begin, end = block_range(rank, size, sources.size)
    if begin == end:
        return
    row = first_row_at(offsets, 0, offsets.size - 1, begin + 1) - 1  # the row of arc `begin`
    i = begin
    while i < end:
        stop = min(end, offsets[row + 1])
        while i < stop:
            sources[i] = row
            i += 1
        row += 1


def row_sources(offsets: Array, id_dtype: np.dtype[Any]) -> Array:
    """Return the source of each arc: (m) ids."""
    if offsets[-1] <= SMALL_ARCS:
        return np.repeat(np.arange(len(offsets) - 1, dtype=id_dtype), np.diff(offsets))
    sources = np.empty(int(offsets[-1]), id_dtype)
    if sources.size:
        run_team(_expand_rows, frozen(offsets), sources, threads=thread_count_for(sources.size))
    return sources
