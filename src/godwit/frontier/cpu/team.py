"""What operators of step programs share on a team of threads: state, meetings, gathering of frontiers.

The frontier is a list: one half of ``frontiers``, at ``words[BASE]``; the next is gathered in the other.
One of arcs is the list of the vertices that they leave, and a flag an arc.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from godwit.frontier.code import SIZE
from godwit.runtime.cpu.atomics import (
    fetch_add,
    fetch_or,
    load_acquire,
    load_relaxed,
    store_relaxed,
)
from godwit.runtime.cpu.team import ABORT, WORDS_PER_LINE, barrier

# Words of `words` (int64), those that many threads write each on a line of its own.
CURSOR = 0  # work that has been dealt out
GATHERED = 1 * WORDS_PER_LINE  # vertices in the next frontier
ARCS = 2 * WORDS_PER_LINE
FAILED = 3 * WORDS_PER_LINE  # 1 + 2 * index of an instruction, + 1 where a vertex was meant
BASE = 4 * WORDS_PER_LINE  # where the frontier begins
SUPERSTEPS = BASE + 1
PROCESSED = BASE + 2
LISTED = BASE + 3  # vertices in the frontier; those that its arcs leave
ENDS = BASE + 4  # FAILED as all threads are to see it
KEPT = 5 * WORDS_PER_LINE  # arcs in the next frontier
WORD_COUNT = 6 * WORDS_PER_LINE

CHUNK = 64  # vertices of a frontier that are dealt out at once
BLOCK = 4096  # whose values are combined one after another, whatever the number of threads
BUFFER = 256  # vertices that a thread gathers before it makes room for them in the frontier
_DENSE = 16  # the bitmap is gone through where the frontier has more than this part of the vertices

# An index known not to be negative: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64
_BIT = np.uint32


class State(NamedTuple):
    """What threads share. In-arcs are empty where nothing pulls, weights where nothing reads them."""

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
    arcs: Any  # (m) uint8: those in the frontier, where it is of arcs
    buffers: Any  # (threads * BUFFER)
    integer_parts: Any  # of reduce: a value a block
    float_parts: Any
    words: Any


def fail(state: Any, index: int, what: int) -> None:
    """Note what went wrong, and where; all threads leave at their next meeting."""
    store_relaxed(state.words, FAILED, 1 + 2 * index + what)


def vertex_named(state: Any, index: int, value: Any) -> Any:
    """A field's value as a vertex."""
    if 0 <= value < state.offsets.size - 1:
        return np.int64(value)
    fail(state, index, 1)
    return np.int64(0)


# Meetings, and the gathering of frontiers.


def meet(
    rank: int, size: int, control: Any, state: Any, worked: Any, frontier_follows: bool
) -> bool:
    """The end of a superstep: the gathered frontier takes over; False if all are to leave.

    All leave by ENDS, which nobody changes before the next meeting: who is ahead may have failed in the
    next operator already, and would then wait for those who had left here.

    :param worked: vertices that the operator was run for
    :param frontier_follows: else it stays what it is
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
    """A meeting within an operator, after which work is dealt out anew."""
    if not barrier(control, size):
        return False
    if rank == 0:
        state.words[CURSOR] = 0
    return barrier(control, size)


def next_chunk(control: Any, state: Any, chunk: int, count: Any) -> Any:
    """The beginning of work that nobody has taken; ``count`` or more if there is none left."""
    begin = fetch_add(state.words, CURSOR, chunk)
    if load_acquire(control, ABORT) != 0:
        return count
    return begin


def flush(rank: int, state: Any, held: int) -> int:
    """Move what a thread holds to the next frontier."""
    begin = fetch_add(state.words, GATHERED, held)
    begin += state.frontiers.size // 2 - state.words[BASE]
    for index in range(held):
        state.frontiers[_at(begin + index)] = state.buffers[_at(rank * BUFFER + index)]
    return 0


def gather(rank: int, state: Any, held: int, vertex: Any) -> int:
    """Put a vertex into the next frontier; returns how many the thread then holds."""
    state.buffers[_at(rank * BUFFER + held)] = vertex
    held += 1
    if held == BUFFER:
        return flush(rank, state, held)
    return held


def touch(bitmap: Any, vertex: Any) -> bool:
    """Set a vertex' bit; whether it was not set before."""
    word = vertex >> 5
    bit = _BIT(1) << _BIT(vertex & 31)
    if load_relaxed(bitmap, word) & bit:
        return False
    return bool(fetch_or(bitmap, word, bit) & bit == 0)


def is_dense(state: Any) -> bool:
    """Whether the frontier is so large that bitmaps are faster than lists."""
    return bool(state.words[LISTED] * _DENSE > state.offsets.size)
