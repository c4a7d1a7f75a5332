"""Operators of step programs on a team of threads: advance, filter, arcs, compute, reduce, assign.

Each operator is a template: the functions that are passed to it (the user's, adapted to take the state and
vertices) are inlined. All threads of the team call it, and leave it together when the superstep has ended.

The frontier is a list: one half of ``frontiers``, from ``words[BASE]`` on; the next frontier is gathered in
the other half. A frontier of arcs is the list of the vertices that they leave, and a flag per arc.

An operator reads only values from before it: messages are combined in an *accumulator* (one value per
vertex, all at their identity between operators) while fields stay unchanged, and merged into the field
after all threads have met. ``touched`` is a bitmap of the vertices that have got a message; it is empty
between operators. Where the frontier is large, touched vertices are found by scanning the bitmap, in the
order of vertices; where it is small, threads gather them in a list.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from godwit.frontier.code import PULL_SHARE, SIZE
from godwit.runtime.cpu.atomics import (
    compare_exchange,
    fetch_add,
    fetch_or,
    load_acquire,
    load_relaxed,
    store_relaxed,
)
from godwit.runtime.cpu.team import ABORT, WORDS_PER_LINE, barrier, block_range

# Indexes into `words` (int64); those that many threads write have a cache line each.
CURSOR = 0  # units of work that threads have claimed
GATHERED = 1 * WORDS_PER_LINE  # vertices in the next frontier
ARCS = 2 * WORDS_PER_LINE
FAILED = 3 * WORDS_PER_LINE  # see StepError.of_word
BASE = 4 * WORDS_PER_LINE  # index in `frontiers` at which the frontier begins
SUPERSTEPS = BASE + 1
PROCESSED = BASE + 2
LISTED = BASE + 3  # vertices in the frontier's list
ENDS = BASE + 4  # copy of FAILED that changes only between meetings
UNTIL = BASE + 5  # 1: a loop is to end, where steps are called one by one
KEPT = 5 * WORDS_PER_LINE  # arcs in the next frontier
WORD_COUNT = 6 * WORDS_PER_LINE

CHUNK = 64  # vertices of a frontier that a thread claims at once
BLOCK = 4096  # vertices whose values are combined in order, whatever the number of threads
BUFFER = 256  # vertices that a thread gathers before it appends them to the frontier
_DENSE = 16  # the bitmap is scanned if more than one in this number of vertices is in the frontier

# Type of an index that is not negative: spares Numba's test for a[-1].
_at: Any = np.uint64
_BIT = np.uint32


class State(NamedTuple):
    """State shared by the threads. In-arcs are empty if no step pulls, weights if no step reads them."""

    offsets: Any
    targets: Any
    weights: Any
    in_offsets: Any
    in_targets: Any
    in_weights: Any
    fields: Any  # a tuple of arrays (n)
    integers: Any  # numbers
    floats: Any
    accumulators: Any  # a tuple of arrays (n)
    frontiers: Any  # (2 n)
    touched: Any  # bitmap, uint32
    waiting: Any  # bitmap of the frontier, for pull
    arcs: Any  # (m) uint8 flags of the frontier's arcs
    buffers: Any  # (threads * BUFFER)
    integer_parts: Any  # partial results of reduce, one per block
    float_parts: Any
    words: Any


def fail(state: Any, index: int, what: int) -> None:
    """Note a failure of an instruction; all threads leave at their next meeting."""
    store_relaxed(state.words, FAILED, 1 + 2 * index + what)


def vertex_named(state: Any, index: int, value: Any) -> Any:
    """Return a field's value as a vertex; fail if there is none."""
    if 0 <= value < state.offsets.size - 1:
        return np.int64(value)
    fail(state, index, 1)
    return np.int64(0)


# Meetings, and the gathering of frontiers.


def meet(
    rank: int, size: int, control: Any, state: Any, worked: Any, frontier_follows: bool
) -> bool:
    """End a superstep: replace the frontier by the gathered one. Return False if all threads must leave.

    Threads decide by ENDS, not by FAILED: a faster thread may have failed in the next operator already, and
    would then wait for threads that had left here.

    :param worked: vertices that the operator was run for
    :param frontier_follows: False: the frontier stays unchanged
    """
    words = state.words
    if not barrier(control, size):
        return False
    if rank == 0:
        words[SUPERSTEPS] += 1
        words[PROCESSED] += worked
        words[CURSOR] = 0
        words[ENDS] = load_relaxed(words, FAILED)
        if frontier_follows:
            state.integers[SIZE] = words[LISTED] = words[GATHERED]
            words[BASE] = state.frontiers.size // 2 - words[BASE]
        words[GATHERED] = 0
    if not barrier(control, size):
        return False
    return bool(words[ENDS] == 0)


def rewind(rank: int, size: int, control: Any, state: Any) -> bool:
    """Meet within an operator, and reset the cursor of claimed work."""
    if not barrier(control, size):
        return False
    if rank == 0:
        state.words[CURSOR] = 0
    return barrier(control, size)


def next_chunk(control: Any, state: Any, chunk: int, count: Any) -> Any:
    """Return the index of the first unclaimed unit; ``count`` or more if all are claimed."""
    begin = fetch_add(state.words, CURSOR, chunk)
    if load_acquire(control, ABORT) != 0:
        return count
    return begin


def flush(rank: int, state: Any, held: int) -> int:
    """Append the vertices that a thread holds to the next frontier; return 0: it then holds none."""
    begin = fetch_add(state.words, GATHERED, held)
    begin += state.frontiers.size // 2 - state.words[BASE]
    for index in range(held):
        state.frontiers[_at(begin + index)] = state.buffers[_at(rank * BUFFER + index)]
    return 0


def gather(rank: int, state: Any, held: int, vertex: Any) -> int:
    """Gather a vertex for the next frontier; return how many the thread then holds."""
    state.buffers[_at(rank * BUFFER + held)] = vertex
    held += 1
    if held == BUFFER:
        return flush(rank, state, held)
    return held


def touch(bitmap: Any, vertex: Any) -> bool:
    """Set a vertex's bit; return True if it was not set before."""
    word = vertex >> 5
    bit = _BIT(1) << _BIT(vertex & 31)
    if load_relaxed(bitmap, word) & bit:
        return False
    return bool(fetch_or(bitmap, word, bit) & bit == 0)


def is_dense(state: Any) -> bool:
    """Return True if the frontier is large enough for bitmaps to be faster than lists."""
    return bool(state.words[LISTED] * _DENSE > state.offsets.size)


# How messages are delivered and merged; for `improves` and `combined` see runtime/cpu/combinations.py.


def deliver_better(
    field: Any, accumulator: Any, vertex: Any, candidate: Any, improves: Any, combined: Any
) -> bool:
    """Combine a message with those before it; return True if it improves both them and the field."""
    if not improves(candidate, field[_at(vertex)]):
        return False
    current = load_relaxed(accumulator, vertex)
    while improves(candidate, current):
        new = accumulator.dtype.type(combined(candidate, current))
        if compare_exchange(accumulator, vertex, current, new):
            return True
        current = load_relaxed(accumulator, vertex)
    return False


def deliver_sum(accumulator: Any, vertex: Any, amount: Any) -> bool:
    """Combine a message by addition."""
    fetch_add(accumulator, vertex, amount)
    return True


def better(total: Any, candidate: Any, improves: Any, combined: Any) -> Any:
    """Return the combination of two values of one dtype."""
    return combined(candidate, total) if improves(candidate, total) else total


def is_to_pull(state: Any) -> bool:
    """Return True if an automatic advance should pull."""
    return bool(state.integers[SIZE] * PULL_SHARE > state.offsets.size - 1)


# Advance. `message(state, source, target, arc)` is of the accumulator's dtype, `keep` a bool, `goal` the
# vertex that the message goes to; `deliver(state, vertex, message)` combines it into the accumulator, which
# `merge(state, vertex)` merges into the field and resets.


def push(
    rank: int, size: int, control: Any, state: Any, message: Any, keep: Any, goal: Any, deliver: Any,
    merge: Any, frontier_follows: bool, masked: bool,
) -> bool:  # fmt: skip
    """Send messages along the out-arcs of the frontier, or, if it is of arcs (``masked``), along those."""
    dense = is_dense(state)
    count = state.words[LISTED]
    base = state.words[BASE]
    arcs = 0
    held = 0
    while True:
        begin = next_chunk(control, state, CHUNK, count)
        if begin >= count:
            break
        for position in range(begin, min(begin + CHUNK, count)):
            source = np.int64(state.frontiers[_at(base + position)])
            first = state.offsets[_at(source)]
            last = state.offsets[_at(source + 1)]
            arcs += last - first
            for arc in range(first, last):
                if masked and state.arcs[_at(arc)] == 0:
                    continue
                target = np.int64(state.targets[_at(arc)])
                if not keep(state, source, target, arc):
                    continue
                vertex = goal(state, source, target, arc)
                sent = message(state, source, target, arc)
                if deliver(state, vertex, sent) and touch(state.touched, vertex) and not dense:
                    held = gather(rank, state, held, vertex)
    fetch_add(state.words, ARCS, arcs)
    if dense:
        return merge_touched(rank, size, control, state, merge, count, frontier_follows)
    flush(rank, state, held)
    if not barrier(control, size):
        return False
    gathered = state.words[GATHERED]
    base = state.frontiers.size // 2 - base
    begin, end = block_range(rank, size, gathered)
    for position in range(begin, end):
        vertex = np.int64(state.frontiers[_at(base + position)])
        merge(state, vertex)
        # No thread reads bits now, and all that are set lie in words that are cleared here.
        store_relaxed(state.touched, vertex >> 5, _BIT(0))
    return meet(rank, size, control, state, count, frontier_follows)


def merge_touched(
    rank: int, size: int, control: Any, state: Any, merge: Any, worked: Any, frontier_follows: bool
) -> bool:
    """Merge the accumulators of touched vertices into fields, in the order of vertices; end the advance."""
    if not rewind(rank, size, control, state):
        return False
    held = 0
    count = state.touched.size
    while True:
        begin = next_chunk(control, state, CHUNK, count)
        if begin >= count:
            break
        for word in range(begin, min(begin + CHUNK, count)):
            bits = state.touched[_at(word)]
            if bits == 0:
                continue
            state.touched[_at(word)] = 0
            for bit in range(32):
                if (bits >> _BIT(bit)) & _BIT(1):
                    vertex = np.int64(word * 32 + bit)
                    merge(state, vertex)
                    if frontier_follows:
                        held = gather(rank, state, held, vertex)
    flush(rank, state, held)
    return meet(rank, size, control, state, worked, frontier_follows)


def pull(
    rank: int, size: int, control: Any, state: Any, message: Any, keep: Any, candidates: Any,
    fold: Any, identity: Any, accept: Any, merge: Any, frontier_follows: bool,
) -> bool:  # fmt: skip
    """Combine, at each candidate vertex, the messages along in-arcs whose source is in the frontier.

    :param fold: combines two messages
    :param identity: initial value of ``fold``
    :param accept: ``accept(state, vertex, total)`` stores the combined message in the accumulator, and
        returns True if it improves the field
    """
    n = state.offsets.size - 1
    listed = state.words[LISTED]
    all_listed = listed == n
    if not all_listed and not mark_frontier(rank, size, control, state):
        return False
    arcs = 0
    chunk = 4 * CHUNK  # whole words of the bitmap
    while True:
        begin = next_chunk(control, state, chunk, n)
        if begin >= n:
            break
        for target in range(begin, min(begin + chunk, n)):
            if not candidates(state, target):
                continue
            total = identity()
            came = False
            first = state.in_offsets[_at(target)]
            last = state.in_offsets[_at(target + 1)]
            arcs += last - first
            for arc in range(first, last):
                source = np.int64(state.in_targets[_at(arc)])
                if not all_listed:
                    bits = state.waiting[_at(source >> 5)] >> _BIT(source & 31)
                    if bits & _BIT(1) == 0:
                        continue
                if keep(state, source, target, arc):
                    total = fold(total, message(state, source, target, arc))
                    came = True
            if came and accept(state, target, total):
                state.touched[_at(target >> 5)] |= _BIT(1) << _BIT(target & 31)
    fetch_add(state.words, ARCS, arcs)
    return merge_touched(rank, size, control, state, merge, listed, frontier_follows)


def mark_frontier(rank: int, size: int, control: Any, state: Any) -> bool:
    """Make the bitmap of the frontier."""
    begin, end = block_range(rank, size, state.waiting.size)
    for word in range(begin, end):
        state.waiting[_at(word)] = 0
    if not barrier(control, size):
        return False
    begin, end = block_range(rank, size, state.words[LISTED])
    for position in range(begin, end):
        touch(state.waiting, np.int64(state.frontiers[_at(state.words[BASE] + position)]))
    return barrier(control, size)


# Operators on vertices.


def vertex_at(state: Any, everywhere: bool, position: Any) -> Any:
    """Return the vertex at a position of the frontier, or of all vertices."""
    if everywhere:
        return np.int64(position)
    return np.int64(state.frontiers[_at(state.words[BASE] + position)])


def vertex_total(state: Any, everywhere: bool) -> Any:
    """Return how many vertices an operator is for."""
    return state.offsets.size - 1 if everywhere else state.words[LISTED]


def select(rank: int, size: int, control: Any, state: Any, keep: Any, everywhere: bool) -> bool:
    """Make a frontier of the vertices for which ``keep(state, vertex)`` is True."""
    count = vertex_total(state, everywhere)
    held = 0
    while True:
        begin = next_chunk(control, state, 4 * CHUNK, count)
        if begin >= count:
            break
        for position in range(begin, min(begin + 4 * CHUNK, count)):
            vertex = vertex_at(state, everywhere, position)
            if keep(state, vertex):
                held = gather(rank, state, held, vertex)
    flush(rank, state, held)
    return meet(rank, size, control, state, count, True)


def select_arcs(rank: int, size: int, control: Any, state: Any, keep: Any, masked: bool) -> bool:
    """Make a frontier of the arcs for which ``keep(state, source, target, arc)`` is True."""
    words = state.words
    count = words[LISTED]
    held = 0
    arcs = 0
    all_kept = 0
    while True:
        begin = next_chunk(control, state, CHUNK, count)
        if begin >= count:
            break
        for position in range(begin, min(begin + CHUNK, count)):
            source = vertex_at(state, False, position)
            first = state.offsets[_at(source)]
            last = state.offsets[_at(source + 1)]
            arcs += last - first
            kept = 0
            for arc in range(first, last):
                there = not masked or state.arcs[_at(arc)] != 0
                stays = there and keep(state, source, np.int64(state.targets[_at(arc)]), arc)
                state.arcs[_at(arc)] = 1 if stays else 0
                kept += 1 if stays else 0
            if kept > 0:
                held = gather(rank, state, held, source)
                all_kept += kept
    flush(rank, state, held)
    fetch_add(words, ARCS, arcs)
    fetch_add(words, KEPT, all_kept)
    if not meet(rank, size, control, state, count, True):
        return False
    if rank == 0:
        state.integers[SIZE] = words[KEPT]
        words[KEPT] = 0
    return barrier(control, size)


def compute(
    rank: int, size: int, control: Any, state: Any, value: Any, put: Any, unstage: Any,
    everywhere: bool, staged: bool,
) -> bool:  # fmt: skip
    """Store new values of a field by ``put(state, vertex, value)``.

    Where ``staged``, it stores them in accumulators; ``unstage(state, vertex)`` then copies them to the
    field.
    """
    count = vertex_total(state, everywhere)
    while True:
        begin = next_chunk(control, state, 4 * CHUNK, count)
        if begin >= count:
            break
        for position in range(begin, min(begin + 4 * CHUNK, count)):
            vertex = vertex_at(state, everywhere, position)
            put(state, vertex, value(state, vertex))
    if staged:
        if not barrier(control, size):
            return False
        begin, end = block_range(rank, size, count)
        for position in range(begin, end):
            unstage(state, vertex_at(state, everywhere, position))
    return meet(rank, size, control, state, count, False)


def reduce(
    rank: int, size: int, control: Any, state: Any, value: Any, fold: Any, identity: Any, parts: Any,
    numbers: Any, into: int, everywhere: bool,
) -> bool:  # fmt: skip
    """Reduce the values of vertices to ``numbers[into]``; the result does not depend on the thread count.

    Each block of vertices is reduced by one thread, and the blocks' results in ascending order.
    """
    count = vertex_total(state, everywhere)
    blocks = (count + BLOCK - 1) // BLOCK
    while True:
        block = next_chunk(control, state, 1, blocks)
        if block >= blocks:
            break
        total = identity()
        for position in range(block * BLOCK, min((block + 1) * BLOCK, count)):
            total = fold(total, value(state, vertex_at(state, everywhere, position)))
        parts[_at(block)] = total
    if not barrier(control, size):
        return False
    if rank == 0:
        total = identity()
        for block in range(blocks):
            total = fold(total, parts[_at(block)])
        numbers[into] = total
    return meet(rank, size, control, state, count, False)


def assign(
    rank: int, size: int, control: Any, state: Any, value: Any, numbers: Any, into: int
) -> bool:
    """Set a number; the first meeting waits for threads that still evaluate a loop's condition."""
    if not barrier(control, size):
        return False
    if rank == 0:
        numbers[into] = value(state)
        state.words[ENDS] = load_relaxed(state.words, FAILED)
    if not barrier(control, size):
        return False
    return bool(state.words[ENDS] == 0)
