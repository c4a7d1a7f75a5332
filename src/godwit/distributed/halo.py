"""The rows of one process, and its halo: numbers for remote vertices, and who sends what to whom.

Encoding: a process owns the vertices of a range, and numbers them 0, 1, 2, ... in their order. Remote
vertices that its arcs lead to have numbers behind these, their *slots*: a section for each process, in
which vertices ascend. The own numbers and each section begin at a multiple of 64, so the bits of a
section are whole words of a bitmap over all slots, and arrays over all slots hold the values of a section
one behind the other. Numbers between the end of a section and the next one stand for no vertex.

The order of the arcs in a row is that of their targets in the whole graph, whatever the number of
processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.distributed.processes import Processes
from godwit.dtypes import Array, frozen, id_dtype_for
from godwit.graph.build import arcs_to_rows
from godwit.graph.rows import Rows, require_memory, thread_count_for
from godwit.runtime.cpu.atomics import fetch_or, load_relaxed
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import block_range, run_team

WORD_BITS = 64

_at: Any = np.uint64


@dataclass(frozen=True)
class Halo:
    """The remote vertices of one process' rows, and the vertices that are remote for others.

    :ivar begins: (processes + 1) first slot of each section; the last is the number of slots
    :ivar counts: (processes) vertices of each section
    :ivar remote: (slots) number of each remote vertex at its owner; at own vertices their own number
    :ivar border: numbers of the own vertices that each other process has in its halo, by process
    :ivar border_counts: (processes) how many these are
    """

    processes: Processes
    begins: Array
    counts: Array
    remote: Array
    border: Array
    border_counts: Array

    @property
    def slots(self) -> int:
        """Number of slots, those of the own vertices included."""
        return int(self.begins[-1])

    @property
    def words(self) -> int:
        """Words of a bitmap over all slots."""
        return self.slots // WORD_BITS

    def owners(self, slots: Array) -> Array:
        """Return the owners of remote vertices, by their slots."""
        found: Array = np.searchsorted(self.begins, slots, side="right") - 1
        return found

    def refresh(self, values: Array, own: Array) -> None:
        """Set the values of remote vertices, which owners know; all processes call it after a meeting.

        :param values: over all slots; what is sent are own values of it
        :param own: where in ``values`` the value of each vertex of the border is
        """
        counts = self.border_counts
        parts = np.cumsum(counts) - counts
        self.processes.send(values[own], parts, counts, values, self.begins[:-1], self.counts)

    def to_owners(self, slots: Array, values: Array) -> tuple[Array, Array]:
        """Send a value of each of some remote vertices to its owner; all processes call it.

        :param slots: of the remote vertices, ascending
        :param values: one for each
        :returns: own vertices that got a value, and the values; in the order of the senders
        """
        counts = np.diff(np.searchsorted(slots, self.begins))
        vertices, received, _ = self.processes.exchange(self.remote[slots], counts)
        into = np.empty(len(vertices), values.dtype)
        begins, into_begins = np.cumsum(counts) - counts, np.cumsum(received) - received
        self.processes.send(values, begins, counts, into, into_begins, received)
        return vertices, into

    def refresh_bits(self, bitmap: Array) -> None:
        """Set the bits of remote vertices, which their owners know; all processes call it after a meeting.

        :param bitmap: int64, a word for 64 slots
        """
        packed, begins, counts = self._packed_border()
        self._move_bits(_pack_bits, begins, bitmap, packed)
        self.processes.send(packed, begins, counts, bitmap, *self._halo_words())

    def collect_bits(self, bitmap: Array) -> None:
        """Set the bits of own vertices whose bit another process has set; all call it after a meeting."""
        packed, begins, counts = self._packed_border()
        self.processes.send(bitmap, *self._halo_words(), packed, begins, counts)
        self._move_bits(_unpack_bits, begins, packed, bitmap)

    def _packed_border(self) -> tuple[Array, Array, Array]:
        """Return words for bits of border vertices; by process the first word, and the number of words."""
        counts = words_of(self.border_counts)
        ends = np.cumsum(counts)
        return np.zeros(int(ends[-1]), np.int64), ends - counts, counts

    def _halo_words(self) -> tuple[Array, Array]:
        """Return by owner the first word of its remote vertices in a bitmap, and the number of words."""
        return self.begins[:-1] // WORD_BITS, words_of(self.counts)

    def _move_bits(self, move: Any, begins: Array, origin: Array, to: Array) -> None:
        """Run a kernel that packs or unpacks the bits of border vertices."""
        ends = np.cumsum(self.border_counts)
        run_team(move, self.border, ends, begins, origin, to, threads=1, brief=True)


@dataclass(frozen=True)
class HaloRows:
    """The rows of one process, whose targets are its own vertices and slots of its halo.

    :ivar offsets: (n + 1) int64 of the n own vertices
    :ivar targets: (m) numbers and slots, int32 or int64
    :ivar weights: (m), or None
    """

    offsets: Array
    targets: Array
    weights: Array | None
    halo: Halo

    @property
    def vertex_count(self) -> int:
        """Number of own vertices."""
        return len(self.offsets) - 1


def words_of(counts: Array) -> Array:
    """Return the words that bitmaps of some numbers of bits need."""
    return -(-counts // WORD_BITS)


def halo_of_rows(processes: Processes, bounds: Array, rows: Rows) -> HaloRows:
    """Return the rows of this process with numbers of its own; all processes call it.

    :param bounds: (processes + 1) first vertex of each process, multiples of 64 but for the last
    :param rows: of the own vertices, with targets in the whole graph, ascending in each row
    """
    numbering = _Numbering(processes, bounds, rows.targets)
    targets = numbering.apply(rows.targets, numbering.slot_bases)
    return HaloRows(rows.offsets, frozen(targets), rows.weights, numbering.halo())


def halo_of_arcs(
    processes: Processes, bounds: Array, sources: Array, targets: Array, weights: Array | None,
    *, simple: bool = False,
) -> HaloRows:  # fmt: skip
    """Return the rows of the arcs that leave own vertices; all processes call it.

    Sources and targets are overwritten, which saves their copies.

    :param bounds: as of :func:`halo_of_rows`
    :param sources: of the own vertices, in the whole graph
    :param targets: in the whole graph
    :param simple: leave out self-loops, and all but one of parallel arcs
    """
    first = int(bounds[processes.rank])
    own = int(bounds[processes.rank + 1]) - first
    numbering = _Numbering(processes, bounds, targets)
    if simple:  # numbers of sources and targets differ, so self-loops are not recognized below
        keep = targets != sources
        sources, targets = sources[keep], targets[keep]
        weights = None if weights is None else weights[keep]
    ranks = numbering.apply(
        targets, numbering.rank_bases, targets if targets.dtype == numbering.dtype else None
    )
    sources -= sources.dtype.type(first)
    rows = arcs_to_rows(
        sources.astype(ranks.dtype, copy=False), ranks, weights, max(own, numbering.ranks), ranks.dtype,
        merge=simple,
    )  # fmt: skip
    offsets = rows.offsets[: own + 1].copy()
    slots = numbering.slot_of_rank()
    return HaloRows(frozen(offsets), frozen(slots[rows.targets]), rows.weights, numbering.halo())


class _Numbering:
    """Numbers for the targets of a process' arcs: slots, and ranks, which are in the order of vertices.

    :ivar ranks: number of own vertices and remote ones together
    """

    def __init__(self, processes: Processes, bounds: Array, targets: Array) -> None:
        self._processes = processes
        self._bounds = bounds
        rank = processes.rank
        self.first, self.end = int(bounds[rank]), int(bounds[rank + 1])
        vertices = int(bounds[-1])
        words = -(-vertices // WORD_BITS)
        require_memory(3 * 8 * words, f"the halo of a graph of {vertices:,} vertices")
        self._bitmap = np.zeros(words + 1, np.int64)
        threads = thread_count_for(len(targets))
        run_team(_mark, targets, self._bitmap, threads=threads)
        bits = np.bitwise_count(self._bitmap.view(np.uint64)[:words]).astype(np.int64)
        edges = words_of(bounds)  # the first word of each process
        self._counts = np.zeros(processes.count, np.int64)
        for other in range(processes.count):
            self._counts[other] = bits[edges[other] : edges[other + 1]].sum()
        own_words = slice(int(edges[rank]), int(edges[rank + 1]))
        own = self.end - self.first
        self._counts[rank] = 0
        padded = WORD_BITS * words_of(self._counts)
        lead = WORD_BITS * -(-own // WORD_BITS)
        self._begins = np.concatenate([[lead], lead + np.cumsum(padded)])
        before = np.cumsum(self._counts) - self._counts
        self._before = np.where(np.arange(processes.count) > rank, own, 0) + before
        self.own_rank = int(before[rank])
        self.ranks = own + int(self._counts.sum())
        self.dtype = id_dtype_for(int(self._begins[-1]))
        inside = np.cumsum(bits) - bits
        self.rank_bases = np.zeros(words + 1, np.int64)
        self.slot_bases = np.zeros(words + 1, np.int64)
        for other in processes.others:
            part = slice(int(edges[other]), int(edges[other + 1]))
            if part.start < part.stop:
                within = inside[part] - inside[part.start]
                self.rank_bases[part] = self._before[other] + within
                self.slot_bases[part] = self._begins[other] + within
        # Own vertices keep their order, whether arcs lead to them or not.
        self._bitmap[own_words] = -1
        numbers = WORD_BITS * np.arange(own_words.stop - own_words.start)
        self.slot_bases[own_words] = numbers
        self.rank_bases[own_words] = self.own_rank + numbers

    def apply(self, targets: Array, bases: Array, into: Array | None = None) -> Array:
        """Return the numbers of targets, slots or ranks.

        :param into: gets them; may be ``targets``. None: a new array
        """
        numbers = np.empty(len(targets), self.dtype) if into is None else into
        threads = thread_count_for(len(targets))
        run_team(_renumber, targets, self._bitmap, bases, numbers, threads=threads)
        return numbers

    def slot_of_rank(self) -> Array:
        """Return the slot of each rank."""
        slots = np.empty(self.ranks, self.dtype)
        slots[self.own_rank : self.own_rank + self.end - self.first] = np.arange(
            self.end - self.first
        )
        for other in self._processes.others:
            begin, count = int(self._before[other]), int(self._counts[other])
            slots[begin : begin + count] = int(self._begins[other]) + np.arange(count)
        return slots

    def halo(self) -> Halo:
        """Exchange the numbers of remote vertices; all processes call it."""
        processes = self._processes
        edges = words_of(self._bounds)
        remote = np.zeros(int(self._begins[-1]), self.dtype)
        own = self.end - self.first
        remote[:own] = np.arange(own)
        asked = []
        for other in range(processes.count):
            numbers = np.empty(0, self.dtype)
            if other != processes.rank:
                words = self._bitmap[int(edges[other]) : int(edges[other + 1])]
                bits = np.unpackbits(words.view(np.uint8), bitorder="little")
                numbers = np.flatnonzero(bits).astype(self.dtype)
            begin = int(self._begins[other])
            remote[begin : begin + len(numbers)] = numbers
            asked.append(numbers)
        border, counts, _ = processes.exchange(np.concatenate(asked), self._counts)
        return Halo(processes, self._begins, self._counts, frozen(remote), frozen(border), counts)


def _lower_bits(word: Any, bit: Any) -> Any:
    """Return how many of the bits of a word below a bit are set."""
    word &= (np.uint64(1) << bit) - np.uint64(1)
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def _mark(rank: int, size: int, control: Any, targets: Any, bitmap: Any) -> None:
    """Set the bit of every target."""
    begin, end = block_range(rank, size, targets.size)
    for i in range(begin, end):
        target = np.int64(targets[_at(i)])
        bit = np.int64(1) << (target & 63)
        if load_relaxed(bitmap, target >> 6) & bit == 0:
            fetch_or(bitmap, target >> 6, bit)


@kernel
def _renumber(
    rank: int, size: int, control: Any, targets: Any, bitmap: Any, bases: Any, numbers: Any
) -> None:
    """Write the number of each target: the base of its word, and the bits of the word below its own."""
    begin, end = block_range(rank, size, targets.size)
    for i in range(begin, end):
        target = np.int64(targets[_at(i)])
        word = target >> 6
        numbers[_at(i)] = bases[_at(word)] + _lower_bits(
            np.uint64(bitmap[_at(word)]), np.uint64(target & 63)
        )


@kernel
def _pack_bits(
    rank: int,
    size: int,
    control: Any,
    border: Any,
    ends: Any,
    begins: Any,
    bitmap: Any,
    packed: Any,
) -> None:
    """Collect the bits of the border's vertices, from a new word on for each process."""
    i = 0
    for process in range(ends.size):
        word, end = begins[process], ends[process]
        while i < end:
            gathered = np.int64(0)
            if end - i >= 64:  # a constant number of turns, which are computed several at once
                for bit in range(64):
                    gathered |= _bit_of(bitmap, border[_at(i + bit)]) << bit
            else:
                for bit in range(end - i):
                    gathered |= _bit_of(bitmap, border[_at(i + bit)]) << bit
            packed[_at(word)] = gathered
            word += 1
            i = min(i + 64, end)


def _bit_of(bitmap: Any, vertex: Any) -> Any:
    v = np.int64(vertex)
    return (bitmap[_at(v >> 6)] >> (v & 63)) & 1


@kernel
def _unpack_bits(
    rank: int,
    size: int,
    control: Any,
    border: Any,
    ends: Any,
    begins: Any,
    packed: Any,
    bitmap: Any,
) -> None:
    """Set the bits of the border's vertices that are set in the words of a process."""
    i = 0
    for process in range(ends.size):
        first = i
        while i < ends[process]:
            word = packed[_at(begins[process] + ((i - first) >> 6))]
            if word == 0:
                i += 64 - ((i - first) & 63)
                continue
            if (word >> ((i - first) & 63)) & 1 != 0:
                v = np.int64(border[_at(i)])
                bitmap[_at(v >> 6)] |= np.int64(1) << (v & 63)
            i += 1
        i = ends[process]
