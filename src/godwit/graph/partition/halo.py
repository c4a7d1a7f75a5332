"""Kernels that cut a graph into parts with halos.

Method: in the *grouped* numbering (by owner, then by id) every partition is one of ranges; for
ranges it is the graph's own (``identity``), and nothing is moved. Part by part, the whole team
marks the remote vertices that are reached in a bitmap, counts the ones before every word, and then
reads halo indices off it (the rank in a bitmap). So the work space is n/4 bytes, however many parts
there are, and the halo comes sorted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.runtime.cpu.atomics import fetch_or, load_acquire, load_relaxed
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, barrier, block_range

_POLL_STEPS = 65_536  # arcs or vertices between two looks at the abort word

_ONE = np.uint64(1)
_S1 = np.uint64(1)
_S2 = np.uint64(2)
_S4 = np.uint64(4)
_S56 = np.uint64(56)
_ODD = np.uint64(0x5555555555555555)
_PAIRS = np.uint64(0x3333333333333333)
_NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)
_BYTES = np.uint64(0x0101010101010101)


@kernel
def group(
    rank: int,
    size: int,
    control: Any,
    offsets: Any,
    owner: Any,
    vertices: Any,
    arcs: Any,
    first: Any,
    starts: Any,
    order: Any,
    position: Any,
) -> None:
    """A stable counting sort of the vertices by owner: see :class:`godwit.graph.partition.layout.Grouped`.

    ``vertices`` and ``arcs`` are (size, k) zeros: first what each thread's block has for each part,
    then where it puts the next.
    """
    begin, end = block_range(rank, size, owner.size)
    for v in range(begin, end):
        part = owner[v]
        vertices[rank, part] += 1
        arcs[rank, part] += offsets[v + 1] - offsets[v]
    if not barrier(control, size):
        return
    if rank == 0:
        vertex = np.int64(0)
        arc = np.int64(0)
        for part in range(first.size - 1):
            first[part] = vertex
            for other in range(size):
                count = vertices[other, part]
                vertices[other, part] = vertex
                vertex += count
                count = arcs[other, part]
                arcs[other, part] = arc
                arc += count
        first[first.size - 1] = vertex
    if not barrier(control, size):
        return
    for v in range(begin, end):
        part = owner[v]
        place = vertices[rank, part]
        vertices[rank, part] = place + 1
        position[v] = place
        order[place] = v
        start = arcs[rank, part]
        starts[place] = start
        arcs[rank, part] = start + offsets[v + 1] - offsets[v]


def _bit_count(word: Any) -> Any:
    """The ones of a uint64; LLVM knows the pattern, and makes one instruction of it."""
    word = word - ((word >> _S1) & _ODD)
    word = (word & _PAIRS) + ((word >> _S2) & _PAIRS)
    word = (word + (word >> _S4)) & _NIBBLES
    return np.int64((word * _BYTES) >> _S56)


def _row_at(starts: Any, low: int, high: int, arc: int) -> int:
    """The first row of [low, high] that begins at this arc or after it."""
    while low < high:
        middle = (low + high) >> 1
        if starts[middle] < arc:
            low = middle + 1
        else:
            high = middle
    return low


def _mark_vertex(words: Any, vertex: Any) -> None:
    word = vertex >> 6
    bit = _ONE << np.uint64(vertex & 63)
    if load_relaxed(words, word) & bit == np.uint64(0):
        fetch_or(words, word, bit)


def _ones_below(count: int) -> Any:
    """A word of so many low ones, at most 64."""
    if count <= 0:
        return np.uint64(0)
    if count >= 64:
        return ~np.uint64(0)
    return (_ONE << np.uint64(count)) - _ONE


@kernel
def mark(
    rank: int,
    size: int,
    control: Any,
    offsets: Any,
    targets: Any,
    identity: bool,
    first: Any,
    starts: Any,
    order: Any,
    position: Any,
    begin: int,
    end: int,
    every: bool,
    words: Any,
    bits_before: Any,
    counts: Any,
) -> int:
    """Mark in ``words`` the grouped numbers outside [begin, end) that arcs from inside reach; or every one.

    Afterwards ``bits_before[w]`` ones precede word w, and ``counts`` sums to all. Returns this
    thread's number of arcs that leave the part.
    """
    first_word, last_word = block_range(rank, size, words.size)
    for w in range(first_word, last_word):
        word = np.uint64(0)
        if every:
            inside = _ones_below(end - 64 * w) & ~_ones_below(begin - 64 * w)
            word = _ones_below(starts.size - 1 - 64 * w) & ~inside
        words[w] = word
    if not barrier(control, size):
        return 0
    cut = 0
    first_arc = starts[begin]
    arc, last_arc = block_range(rank, size, starts[end] - first_arc)
    arc += first_arc
    last_arc += first_arc
    if identity:
        for i in range(arc, last_arc):
            if i % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
                return 0
            vertex = np.int64(targets[i])
            if vertex < begin or vertex >= end:
                cut += 1
                _mark_vertex(words, vertex)
    else:
        row = _row_at(starts, begin, end, arc)
        last_row = _row_at(starts, begin, end, last_arc)
        for r in range(row, last_row):
            if r % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
                return 0
            v = order[r]
            for i in range(offsets[v], offsets[v + 1]):
                vertex = np.int64(position[targets[i]])
                if vertex < begin or vertex >= end:
                    cut += 1
                    _mark_vertex(words, vertex)
    if not barrier(control, size):
        return 0
    count = np.int64(0)
    for w in range(first_word, last_word):
        count += _bit_count(words[w])
    counts[rank] = count
    if not barrier(control, size):
        return 0
    before = np.int64(0)
    for other in range(rank):
        before += counts[other]
    for w in range(first_word, last_word):
        bits_before[w] = before
        before += _bit_count(words[w])
    return cut


def _local_index(vertex: Any, begin: int, end: int, words: Any, bits_before: Any) -> Any:
    """The local index that the part [begin, end) has for a grouped number."""
    if begin <= vertex < end:
        return vertex - begin
    word = vertex >> 6
    below = (_ONE << np.uint64(vertex & 63)) - _ONE
    return end - begin + bits_before[word] + _bit_count(words[word] & below)


@kernel
def fill(
    rank: int,
    size: int,
    control: Any,
    offsets: Any,
    targets: Any,
    payload: Any,
    identity: bool,
    first: Any,
    starts: Any,
    order: Any,
    position: Any,
    begin: int,
    end: int,
    words: Any,
    bits_before: Any,
    local_targets: Any,
    local_payload: Any,
    halo_vertices: Any,
    halo_owner: Any,
    halo_remote: Any,
) -> None:
    """Write the arcs and the halo of the part [begin, end), after :func:`mark`."""
    first_word, last_word = block_range(rank, size, words.size)
    part = 0
    for w in range(first_word, last_word):
        word = words[w]
        halo = bits_before[w]
        while word != np.uint64(0):
            lowest = word & (~word + _ONE)
            vertex = (w << 6) + _bit_count(lowest - _ONE)
            word ^= lowest
            while vertex >= first[part + 1]:
                part += 1
            halo_vertices[halo] = vertex if identity else np.int64(order[vertex])
            halo_owner[halo] = part
            halo_remote[halo] = vertex - first[part]
            halo += 1
    first_arc = starts[begin]
    arc, last_arc = block_range(rank, size, starts[end] - first_arc)
    arc += first_arc
    last_arc += first_arc
    if identity:
        for i in range(arc, last_arc):
            if i % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
                return
            local_targets[i - first_arc] = _local_index(
                np.int64(targets[i]), begin, end, words, bits_before
            )
        return
    weighted = payload.size > 0
    row = _row_at(starts, begin, end, arc)
    last_row = _row_at(starts, begin, end, last_arc)
    for r in range(row, last_row):
        if r % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        v = order[r]
        j = starts[r] - first_arc
        for i in range(offsets[v], offsets[v + 1]):
            local_targets[j] = _local_index(
                np.int64(position[targets[i]]), begin, end, words, bits_before
            )
            if weighted:
                local_payload[j] = payload[i]
            j += 1
