"""Halos of the parts of a partition: which remote vertices the arcs of each part reach.

Method: in the *grouped* numbering (by owner, then by id) every partition is one of ranges; for
ranges it is the graph's own numbering (``identity``), and nothing is moved. For one part after another, the
whole team marks the remote vertices that are reached in a bitmap, counts the bits before every word, and
then reads halo indices from it (the rank in a bitmap). So the work space is n/4 bytes for any number of
parts, and the halo comes sorted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from godwit.dtypes import Array, frozen
from godwit.graph.rows import Rows, first_row_at, thread_count_for
from godwit.runtime.cpu.atomics import fetch_or, load_acquire, load_relaxed
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, barrier, block_range, run_team

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


class Grouped(NamedTuple):
    """The numbering of vertices by owner, then by id.

    :param identity: True if it is the graph's own numbering; ``order`` and ``position`` are empty then
    :param first: (k + 1) int64: grouped number of each part's first vertex
    :param starts: (n + 1) int64: the first arc of each vertex, in grouped order
    :param order: (n) ids: the vertex of each grouped number
    :param position: (n) ids: the grouped number of each vertex
    """

    identity: bool
    first: Array
    starts: Array
    order: Array
    position: Array


class Bitmap(NamedTuple):
    """Marks of grouped numbers, and the number of marks before each word."""

    words: Array
    bits_before: Array


class Measures(NamedTuple):
    """The costs of a partition.

    :param cut_arcs: arcs whose endpoints are owned by different parts
    :param border: (k, k) int64; see :attr:`Partition.border`
    :param vertices: (k) int64 owned vertices
    :param arcs: (k) int64 out-arcs of the owned vertices
    """

    cut_arcs: int
    border: Array
    vertices: Array
    arcs: Array


def group_by_owner(rows: Rows, owner: Array, boundaries: Array | None, parts: int) -> Grouped:
    """Return the grouped numbering; ``boundaries`` are those of a partition into ranges, else None."""
    n, dtype = rows.vertex_count, rows.targets.dtype
    if boundaries is not None:
        none = frozen(np.empty(0, dtype))
        return Grouped(True, boundaries, rows.offsets, none, none)
    threads = thread_count_for(rows.arc_count)
    first = np.zeros(parts + 1, np.int64)
    starts = np.empty(n + 1, np.int64)
    starts[n] = rows.arc_count
    order, position = np.empty((2, n), dtype)
    vertices, arcs = np.zeros((2, threads, parts), np.int64)
    results = (first, starts, order, position)
    run_team(group, rows.offsets, owner, vertices, arcs, *results, threads=threads)
    return Grouped(False, *map(frozen, results))


def make_bitmap(vertex_count: int) -> Bitmap:
    """Return a bitmap whose content is undefined."""
    words = np.empty((vertex_count >> 6) + 1, np.uint64)
    return Bitmap(words, np.empty(len(words), np.int64))


def mark_halo(
    rows: Rows, grouped: Grouped, part: int, bitmap: Bitmap, *, every: bool = False
) -> tuple[int, int]:
    """Mark the halo of a part in a bitmap; return its size and the number of arcs that leave the part.

    :param every: mark all remote vertices
    """
    begin, end = int(grouped.first[part]), int(grouped.first[part + 1])
    threads = thread_count_for(int(grouped.starts[end] - grouped.starts[begin]))
    counts = np.zeros(threads, np.int64)
    given = (rows.offsets, rows.targets, *grouped, begin, end, every)
    cut_arcs = run_team(mark, *given, *bitmap, counts, threads=threads)
    return int(counts.sum()), sum(cut_arcs)


def measure(rows: Rows, owner: Array, boundaries: Array | None, parts: int) -> Measures:
    """Return the costs of a partition, by one pass over the arcs."""
    grouped = group_by_owner(rows, owner, boundaries, parts)
    bitmap = make_bitmap(rows.vertex_count)
    border = np.zeros((parts, parts), np.int64)
    cut_arcs = 0
    word, bit = grouped.first >> 6, (grouped.first & 63).astype(np.uint64)
    for part in range(parts):
        cut_arcs += mark_halo(rows, grouped, part, bitmap)[1]
        marks_before = bitmap.bits_before[word] + np.bitwise_count(
            bitmap.words[word] & ((_ONE << bit) - _ONE)
        )
        border[part] = np.diff(marks_before)
    vertices, arcs = np.diff(grouped.first), np.diff(grouped.starts[grouped.first])
    return Measures(cut_arcs, frozen(border), frozen(vertices), frozen(arcs))


@kernel
def group(
    rank: int, size: int, control: Any, offsets: Any, owner: Any, vertices: Any, arcs: Any,
    first: Any, starts: Any, order: Any, position: Any,
) -> None:  # fmt: skip
    """Sort the vertices by owner, by counting, stably: see :class:`Grouped`.

    ``vertices`` and ``arcs`` are (size, k) zeros: they become each thread's counts for each part, then the
    positions of its next vertex and arc.
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
        number = vertices[rank, part]
        vertices[rank, part] = number + 1
        position[v] = number
        order[number] = v
        start = arcs[rank, part]
        starts[number] = start
        arcs[rank, part] = start + offsets[v + 1] - offsets[v]


def _bit_count(word: Any) -> Any:
    """Return the number of set bits of a uint64; LLVM compiles the pattern to one instruction."""
    word = word - ((word >> _S1) & _ODD)
    word = (word & _PAIRS) + ((word >> _S2) & _PAIRS)
    word = (word + (word >> _S4)) & _NIBBLES
    return np.int64((word * _BYTES) >> _S56)


def _mark_vertex(words: Any, vertex: Any) -> None:
    word = vertex >> 6
    bit = _ONE << np.uint64(vertex & 63)
    if load_relaxed(words, word) & bit == np.uint64(0):
        fetch_or(words, word, bit)


def _ones_below(count: int) -> Any:
    """Return a word whose ``count`` lowest bits are set; all 64 for larger counts."""
    if count <= 0:
        return np.uint64(0)
    if count >= 64:
        return ~np.uint64(0)
    return (_ONE << np.uint64(count)) - _ONE


@kernel
def mark(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, identity: bool, first: Any,
    starts: Any, order: Any, position: Any, begin: int, end: int, every: bool, words: Any,
    bits_before: Any, counts: Any,
) -> int:  # fmt: skip
    """Mark in ``words`` the grouped numbers outside [begin, end) that arcs from inside reach, or all.

    Afterwards ``bits_before[w]`` bits precede word w, and ``counts`` sums to all. Returns this
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
        row = first_row_at(starts, begin, end, arc)
        last_row = first_row_at(starts, begin, end, last_arc)
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
    """Return the local index of a grouped number in the part [begin, end)."""
    if begin <= vertex < end:
        return vertex - begin
    word = vertex >> 6
    below = (_ONE << np.uint64(vertex & 63)) - _ONE
    return end - begin + bits_before[word] + _bit_count(words[word] & below)


@kernel
def fill(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, payload: Any, identity: bool,
    first: Any, starts: Any, order: Any, position: Any, begin: int, end: int, words: Any,
    bits_before: Any, local_targets: Any, local_payload: Any, halo_vertices: Any, halo_owner: Any,
    halo_remote: Any,
) -> None:  # fmt: skip
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
    row = first_row_at(starts, begin, end, arc)
    last_row = first_row_at(starts, begin, end, last_arc)
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
