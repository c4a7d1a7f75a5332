"""Checksums of arrays at the speed of memory, the same for any number of threads.

The bytes, filled up with zeros to lines of 64, are 64-bit words (little-endian), eight to a line. A
block is 512 lines; the last may be shorter. Eight lanes h[k] begin at 0 in each block and take in
word k of its lines one after the other, ``h = (h ^ word) * P; h ^= h >> 32``; then the lanes are mixed
with the block's number b into one word, ``s = mix(b); s = mix(s ^ h[k])`` for k = 0 … 7 (``mix`` of
``graph/hashing.py``), and the checksum is the sum of these modulo 2**64.

Every step is a bijection, so a change within one word is always noticed, and any other accidental change
with probability about 1 - 2**-64.

A library's hash (XXH3) is not used: this one is part of the file format (docs/file-format.md), runs on all
threads, and checks offsets and targets in the same pass over memory.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from godwit.dtypes import Array, frozen
from godwit.graph.hashing import mix
from godwit.graph.rows import thread_count_for
from godwit.runtime.cpu.atomics import load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, block_range, run_team

_LINE_BYTES = 64

_LINES_PER_BLOCK = 512
_P = np.uint64(0x9FB21C651E98DF25)
_S32 = np.uint64(32)
_ANYTHING, _ASCENDING, _BELOW = 0, 1, 2

Rule = Literal["anything", "ascending", "below"]
_RULES = {"anything": _ANYTHING, "ascending": _ASCENDING, "below": _BELOW}


def _step(lane: Any, word: Any) -> Any:
    lane = (lane ^ word) * _P
    return lane ^ (lane >> _S32)


def _block_word(block: Any, lines: Any, begin: Any, end: Any) -> Any:
    """Return the word of block number ``block``: lines [begin, end) of an (l, 8) array of uint64."""
    a = b = c = d = e = f = g = h = np.uint64(0)
    for i in range(begin, end):
        a = _step(a, lines[i, 0])
        b = _step(b, lines[i, 1])
        c = _step(c, lines[i, 2])
        d = _step(d, lines[i, 3])
        e = _step(e, lines[i, 4])
        f = _step(f, lines[i, 5])
        g = _step(g, lines[i, 6])
        h = _step(h, lines[i, 7])
    word = mix(np.uint64(block))
    word = mix(mix(mix(mix(word ^ a) ^ b) ^ c) ^ d)
    return mix(mix(mix(mix(word ^ e) ^ f) ^ g) ^ h)


def _is_wrong(elements: Any, begin: Any, end: Any, rule: Any, limit: Any) -> Any:
    """Return True if one of elements [begin, end) breaks the rule."""
    wrong = False
    if rule == _ASCENDING:
        for i in range(max(begin, 1), end):
            wrong |= elements[i] < elements[i - 1]
    elif rule == _BELOW:
        for i in range(begin, end):
            wrong |= (elements[i] < 0) | (elements[i] >= limit)
    return wrong


@kernel
def _take_in(
    rank: int,
    size: int,
    control: Any,
    lines: Any,
    first_block: int,
    elements: Any,
    rule: int,
    limit: Any,
    sums: Any,
    wrong: Any,
) -> None:
    """Set ``sums[rank]`` to the sum over this thread's blocks, ``wrong[rank]`` if an element is wrong."""
    count = lines.shape[0]
    blocks = (count + _LINES_PER_BLOCK - 1) // _LINES_PER_BLOCK
    begin, end = block_range(rank, size, blocks)
    per_line = _LINE_BYTES // elements.itemsize
    total = np.uint64(0)
    for block in range(begin, end):
        if load_acquire(control, ABORT) != 0:
            return
        first = block * _LINES_PER_BLOCK
        last = min(count, first + _LINES_PER_BLOCK)
        total += _block_word(first_block + block, lines, first, last)
        if rule != _ANYTHING:
            stop = min(elements.size, last * per_line)
            if _is_wrong(elements, first * per_line, stop, rule, limit):
                wrong[rank] = 1
    sums[rank] = total


def checksum(array: Array) -> int:
    """Return the checksum of a contiguous array of any dtype."""
    content = array.reshape(-1).view(np.uint8)
    whole = content.size - content.size % (_LINE_BYTES * _LINES_PER_BLOCK)
    rest = np.zeros(-(-(content.size - whole) // _LINE_BYTES) * _LINE_BYTES, np.uint8)
    rest[: content.size - whole] = content[whole:]
    nothing = frozen(np.empty(0, np.int64))
    total, _ = _sum(content[:whole], 0, nothing, _ANYTHING, 0)
    last, _ = _sum(rest, whole // (_LINE_BYTES * _LINES_PER_BLOCK), nothing, _ANYTHING, 0)
    return (total + last) % 2**64


def checksum_of_part(padded: Array, part: int, parts: int) -> int:
    """Return what a part of a section adds to its checksum; the sum of all parts is that modulo 2**64.

    :param padded: uint8, aligned, a multiple of 64
    """
    block_bytes = _LINE_BYTES * _LINES_PER_BLOCK
    begin, end = block_range(part, parts, -(-padded.size // block_bytes))
    nothing = frozen(np.empty(0, np.int64))
    total, _ = _sum(padded[begin * block_bytes : end * block_bytes], begin, nothing, _ANYTHING, 0)
    return total


def checked(padded: Array, elements: Array, rule: Rule, limit: int = 0) -> tuple[int, bool]:
    """Return the checksum of a section, and True if its elements keep a rule, in one pass.

    :param padded: uint8, aligned, a multiple of 64
    :param elements: int32 or int64: the same memory without the padding
    :param rule: "ascending": no element is smaller than the one before it; "below": all are in
        [0, ``limit``)
    """
    total, wrong = _sum(padded, 0, frozen(elements), _RULES[rule], limit)
    return total, not wrong


def _sum(
    content: Array, first_block: int, elements: Array, rule: int, limit: int
) -> tuple[int, bool]:
    lines = frozen(content.view(np.uint64).reshape(-1, _LINE_BYTES // 8))
    threads = thread_count_for(lines.size)
    sums = np.zeros(threads, np.uint64)
    wrong = np.zeros(threads, np.int64)
    if lines.size:
        run_team(_take_in, lines, first_block, elements, rule, limit, sums, wrong, threads=threads)
    return int(sums.sum()), bool(wrong.any())
