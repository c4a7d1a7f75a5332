"""Operators of step programs on a team of threads: advance, filter, compute, reduce, assign.

Each is a template: the functions that it is given (the user's, made to take a state and vertices) are
inlined. All threads call it, and come out together, with the frontier as it then is.

An operator reads what was there before it: messages are combined in an *accumulator* (one value per vertex,
all at their identity between operators) while fields stay as they are, and merged into the field when all
threads have met. ``touched`` is a bitmap of the vertices for which a message has come; it is empty between
operators. Where the frontier is large, what was touched is found by going through that bitmap, in the order
of vertices; where it is small, threads note it in a list.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.frontier.code import PULL_SHARE, SIZE
from godwit.frontier.cpu.team import (
    ARCS,
    BASE,
    BLOCK,
    CHUNK,
    ENDS,
    FAILED,
    GATHERED,
    KEPT,
    LISTED,
    flush,
    gather,
    is_dense,
    meet,
    next_chunk,
    rewind,
    touch,
)
from godwit.runtime.cpu.atomics import compare_exchange, fetch_add, load_relaxed, store_relaxed
from godwit.runtime.cpu.team import barrier, block_range

# An index known not to be negative: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64
_BIT = np.uint32

# How messages are delivered and merged; `improves` is less or greater.


def less(candidate: Any, current: Any) -> bool:
    """Of ``min``."""
    return bool(candidate < current)


def greater(candidate: Any, current: Any) -> bool:
    """Of ``max``."""
    return bool(candidate > current)


def deliver_better(
    field: Any, accumulator: Any, vertex: Any, candidate: Any, improves: Any
) -> bool:
    """Combine a message by min or max; whether it is better than all that were there."""
    if not improves(candidate, field[_at(vertex)]):
        return False
    current = load_relaxed(accumulator, vertex)
    while improves(candidate, current):
        if compare_exchange(accumulator, vertex, current, candidate):
            return True
        current = load_relaxed(accumulator, vertex)
    return False


def deliver_sum(accumulator: Any, vertex: Any, amount: Any) -> bool:
    """Combine a message by adding."""
    fetch_add(accumulator, vertex, amount)
    return True


def better(total: Any, candidate: Any, improves: Any) -> Any:
    """The better of two."""
    return candidate if improves(candidate, total) else total


def is_to_pull(state: Any) -> bool:
    """Whether an advance that goes either way is to pull."""
    return bool(state.integers[SIZE] * PULL_SHARE > state.offsets.size - 1)


# Advance. `message(state, source, target, arc)` is in the accumulator's dtype, `keep` a bool, `place` the
# vertex that it goes to; `deliver(state, vertex, message)` combines it, `merge(state, vertex)` makes the
# field of it and resets the accumulator.


def push(
    rank: int, size: int, control: Any, state: Any, message: Any, keep: Any, place: Any, deliver: Any,
    merge: Any, frontier_follows: bool, masked: bool,
) -> bool:  # fmt: skip
    """Messages along the out-arcs of the frontier; if it is of arcs (``masked``), along these."""
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
                goal = place(state, source, target, arc)
                sent = message(state, source, target, arc)
                if deliver(state, goal, sent) and touch(state.touched, goal) and not dense:
                    held = gather(rank, state, held, goal)
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
        # Nobody reads bits now, and all that are set lie in words that are cleared here.
        store_relaxed(state.touched, vertex >> 5, _BIT(0))
    return meet(rank, size, control, state, count, frontier_follows)


def merge_touched(
    rank: int, size: int, control: Any, state: Any, merge: Any, worked: Any, frontier_follows: bool
) -> bool:
    """Make fields of what has come, in the order of vertices; the end of an advance of so many."""
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
    """Messages along those in-arcs of the candidates that come from the frontier.

    :param fold: combines two messages
    :param identity: what ``fold`` starts from
    :param accept: ``accept(state, vertex, total)``: puts what has come into the accumulator, if it counts
    """
    n = state.offsets.size - 1
    listed = state.words[LISTED]
    everybody = listed == n
    if not everybody and not mark_frontier(rank, size, control, state):
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
                if not everybody:
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
    """Make a bitmap of the frontier."""
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
    """The vertex at a place of the frontier, or of all."""
    if everywhere:
        return np.int64(position)
    return np.int64(state.frontiers[_at(state.words[BASE] + position)])


def how_many(state: Any, everywhere: bool) -> Any:
    """Vertices that an operator is for."""
    return state.offsets.size - 1 if everywhere else state.words[LISTED]


def select(rank: int, size: int, control: Any, state: Any, keep: Any, everywhere: bool) -> bool:
    """A frontier of the vertices that ``keep(state, vertex)`` says."""
    count = how_many(state, everywhere)
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
    """A frontier of the arcs that ``keep(state, source, target, arc)`` says."""
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
    rank: int, size: int, control: Any, state: Any, value: Any, put: Any, settle: Any,
    everywhere: bool, staged: bool,
) -> bool:  # fmt: skip
    """``put(state, vertex, value)`` stores a value in the field, or, where ``staged``, beside it;
    ``settle(state, vertex)`` then moves it there.
    """
    count = how_many(state, everywhere)
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
            settle(state, vertex_at(state, everywhere, position))
    return meet(rank, size, control, state, count, False)


def reduce(
    rank: int, size: int, control: Any, state: Any, value: Any, fold: Any, identity: Any, parts: Any,
    numbers: Any, into: int, everywhere: bool,
) -> bool:  # fmt: skip
    """Combine values of vertices in blocks, and the blocks in their order."""
    count = how_many(state, everywhere)
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
    """A number out of numbers; others may still be asking whether a loop is to end."""
    if not barrier(control, size):
        return False
    if rank == 0:
        numbers[into] = value(state)
        state.words[ENDS] = load_relaxed(state.words, FAILED)
    if not barrier(control, size):
        return False
    return bool(state.words[ENDS] == 0)
