"""Lines of arcs: what the readers of formats with an arc a line share.

A format reads its header itself, then says how its arc lines look (:class:`ArcLines`) and which
ids there may be (:class:`IdRange`); :func:`read_arcs` turns the lines into columns. The compiled
scanner only says which line is wrong first; why it is wrong is found here, by looking at it.

A text that is in memory is scanned at a stretch. Another one is surveyed window by window, and the
columns are made, window by window, each time that they are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.errors import FormatError
from godwit.graph.arcs import Arcs, Block, OccurringIds, Progress
from godwit.graph.rows import thread_count_for
from godwit.io.pieces import WEIGHT_DTYPES, Columns, Window, powers_for, wider_kinds, windows
from godwit.io.text import scanner
from godwit.io.text.lines import Text
from godwit.io.text.scanner import NONE
from godwit.runtime.cpu.team import run_team

_BYTES_PER_VERTEX = 16  # offsets, once and again while the graph is built
_NARROW_END = 2**31 - 1
_NO_COMMA = ord(" ")
_LARGEST = (1 << 63) - 1
_LEAST_BYTES = 4  # of a line with an arc


@dataclass(frozen=True)
class ArcLines:
    """How the lines of a format look: ``[prefix] SOURCE TARGET [WEIGHT]``, between blanks."""

    expected: str
    """For messages: what a line should be."""
    prefix: str = ""
    comments: str = "%"
    """Up to two characters; a line that begins with one of them is skipped."""
    comma: bool = False
    """Whether a comma may stand between columns as well."""
    words: bool = False
    """Whether ids are words of any characters; see :data:`godwit.io.text.scanner.SCAN_WORDS`."""


@dataclass(frozen=True)
class IdRange:
    """The ids that a file may use: ``base`` and up."""

    base: int
    vertex_count: int
    """As declared; if not declared, as many as memory could hold."""
    declared: bool
    names: bool = False
    """Whether ids are names always, of which the graph has as many vertices as occur."""

    def complaint(self, text: str) -> str | None:
        """What is wrong with an id, given as its digits and perhaps a sign; None if nothing is."""
        digits = text.lstrip("-0")
        value = int(digits or "0") if len(digits) < 20 else 1 << 64
        value = -value if text.startswith("-") else value
        if value < 0:
            return f"vertex id {text} is negative"
        if value < self.base == 1:
            return (
                "vertex id 0 in a 1-based file; read it with id_base=0 (command line: --id-base 0)"
            )
        if value < self.base:
            return f"vertex id {text} is below the first id, {self.base} (id_base)"
        if value < self.base + self.vertex_count:
            return None
        if self.names:
            return f"vertex id {text} is too large: ids are below 2**63"
        if not self.declared:
            return (
                f"vertex id {text} is too large: a graph of so many vertices does not fit in "
                "memory; read it with relabel=True (command line: --relabel)"
            )
        last = self.base + self.vertex_count - 1
        hint = ""
        if self.base == 0 and value == self.vertex_count:
            hint = "; a 1-based file is read with id_base=1 (command line: --id-base 1)"
        return (
            f"vertex id {text} is out of range: {self.vertex_count} vertices are declared, "
            f"{self.base} to {last}{hint}"
        )


@dataclass(frozen=True)
class ScannedArcs(Arcs):
    """Arcs that were lines.

    :ivar min_id: the smallest id, as the file has it; meaningless where there are no arcs
    :ivar max_id: the largest id, as the file has it; -1 where there are no arcs
    """

    min_id: int
    max_id: int


def largest_vertex_count() -> int:
    """As many vertices as could be held in memory, with no arcs at all."""
    return max(1, config.available_memory_bytes() // _BYTES_PER_VERTEX)


def check_vertex_count(text: Text, vertex_count: int, position: int) -> None:
    """Refuse a declared number of vertices that no memory could hold."""
    if vertex_count > largest_vertex_count():
        available = config.readable_bytes(config.available_memory_bytes())
        raise text.error(
            f"declares {vertex_count} vertices, which do not fit in memory ({available} available)",
            position,
        )


def check_arc_count(text: Text, declared: int, found: int, position: int, unit: str) -> None:
    """Refuse a file that has more or fewer arcs than its header says."""
    if found != declared:
        problem = "the file may be truncated" if found < declared else "the header is wrong"
        raise text.error(f"declares {declared} {unit}, but {found} follow: {problem}", position)


def read_arcs(
    text: Text,
    begin: int,
    lines: ArcLines,
    ids: IdRange,
    kinds: tuple[int, ...],
    progress: Progress | None = None,
    occurring: OccurringIds | None = None,
) -> ScannedArcs:
    """All arc lines from position ``begin``, which begins a line, to the end.

    :param kinds: what the third column may be, narrowest first; (NONE,) if there is none. The first
        kind that holds all its numbers is taken.
    :param progress: called with (position, size of the text, "parsing")
    :param occurring: takes in the ids
    :raises FormatError: about the first wrong line
    :raises GraphTooLargeError: before the columns are allocated
    """
    scan = _Scan(text, lines, ids, kinds, progress)
    count = 0
    min_id, max_id = _LARGEST, -1
    none = np.empty(0, np.int32)
    block = Block(none, none, None if scan.kind == NONE else np.empty(0, WEIGHT_DTYPES[scan.kind]))
    for window in windows(text, begin, progress):
        block, low, high = scan.settle(*window)
        count += len(block.sources)
        min_id, max_id = min(min_id, low), max(max_id, high)
        if occurring is not None:
            most_arcs = len(block.sources) if text.whole else text.size // _LEAST_BYTES
            occurring.add((block.sources, block.targets), low, high, most_arcs)
    blocks: Callable[[], Iterator[Block]]
    if text.whole:
        only = block

        def blocks() -> Iterator[Block]:
            yield only
    else:
        del block

        def blocks() -> Iterator[Block]:
            for window in windows(text, begin):
                yield scan.settle(*window)[0]

    return ScannedArcs(
        text.path, blocks, count, WEIGHT_DTYPES[scan.kind], text.whole, min_id, max_id
    )


class _Scan:
    """Scans windows; remembers what the widest numbers so far need."""

    def __init__(
        self,
        text: Text,
        lines: ArcLines,
        ids: IdRange,
        kinds: tuple[int, ...],
        progress: Progress | None,
    ) -> None:
        self.text = text
        self.lines = lines
        self.ids = ids
        self.progress = progress
        self._kinds = kinds
        # Ids that nobody has declared are taken to be narrow until one is not.
        self.tried = ids
        if not ids.declared:
            self.tried = replace(ids, vertex_count=min(ids.vertex_count, _NARROW_END))

    @property
    def kind(self) -> int:
        """What the third column is, as far as is known."""
        return self._kinds[0]

    def settle(self, begin: int, end: int) -> tuple[Block, int, int]:
        """The columns of the lines in a window, the smallest and the largest id."""
        window = _Window(self.text, begin, end)
        while True:
            columns = Columns(
                window.line_count,
                np.dtype(np.int32 if self.tried.vertex_count <= _NARROW_END else np.int64),
                self.kind,
                f"{self.text.path}: {window.line_count:,} arcs",
            )
            report = window.scan(self, columns)
            wrong = np.flatnonzero(report[:, scanner.STATUS])
            if len(wrong) == 0:
                return window.finish(self, columns, report)
            status, at = report[wrong[0], [scanner.STATUS, scanner.POSITION]].tolist()
            if not self._widen(status):
                raise _error_at(self.text, at + window.shift, self.lines, self.ids, status)

    def _widen(self, status: int) -> bool:
        """Whether what was too wide for the columns fits wider ones, which are taken from now on."""
        kinds = wider_kinds(self._kinds, status)
        if kinds:
            self._kinds = kinds
            return True
        if status == scanner.OUT_OF_RANGE and self.tried.vertex_count < self.ids.vertex_count:
            self.tried = self.ids
            return True
        return False


class _Window(Window):
    """Lines of arcs, which are counted in each piece."""

    def __init__(self, text: Text, begin: int, end: int) -> None:
        super().__init__(text, begin, end)
        counts = np.zeros(self.piece_count, np.int64)
        self.run(scanner.COUNT_LINES, counts)
        self.first_arc = np.zeros(self.piece_count + 1, np.int64)
        np.cumsum(counts, out=self.first_arc[1:])

    @property
    def line_count(self) -> int:
        """Lines, arcs or not."""
        return int(self.first_arc[-1])

    def scan(self, scan: _Scan, columns: Columns) -> Array:
        """Run the compiled scanner; its report, with positions in the buffer."""
        report = np.zeros((self.piece_count, scanner.REPORT_COLUMNS), np.int64)
        lines = scan.lines
        numbers = (
            ord(lines.prefix) if lines.prefix else 0,
            ord(lines.comments[0]),
            ord(lines.comments[-1]),
            ord(",") if lines.comma else _NO_COMMA,
            scan.kind,
            scan.tried.base,
            scan.tried.base + scan.tried.vertex_count - 1,
        )
        self.run(
            scanner.SCAN_WORDS if lines.words else scanner.SCAN_ARCS,
            *map(np.int64, numbers),
            self.first_arc,
            columns.sources,
            columns.targets,
            columns.weights,
            columns.wide_weights,
            powers_for(scan.kind),
            report,
            progress=scan.progress,
        )
        return report

    def finish(self, scan: _Scan, columns: Columns, report: Array) -> tuple[Block, int, int]:
        """Close the gaps that skipped lines have left, and settle what was left to us."""
        found = report[:, scanner.FOUND]
        count = int(found.sum())
        if count != self.first_arc[-1]:
            begins = np.cumsum(found) - found
            moved = (begins != self.first_arc[:-1]) & (found > 0)
            for piece in np.flatnonzero(moved).tolist():
                here, there = int(begins[piece]), int(self.first_arc[piece])
                length = int(found[piece])
                for column in columns.used:
                    column[here : here + length] = column[there : there + length]
        block = columns.block(self.text, self.shift, count)
        low = int(report[:, scanner.MIN_ID].min(initial=_LARGEST))
        high = int(report[:, scanner.MAX_ID].max(initial=-1))
        if scan.lines.words:
            block = block._replace(
                sources=_word_array(self.buffer, block.sources, self.text, self.shift),
                targets=_word_array(self.buffer, block.targets, self.text, self.shift),
            )
        return block, low, high


def _error_at(text: Text, position: int, lines: ArcLines, ids: IdRange, status: int) -> FormatError:
    """What is wrong with the line at a position."""
    _, line = next(text.lines(position))
    fields = re.split(r"\s*,\s*|\s+" if lines.comma else r"\s+", line)
    if lines.prefix and fields[0] == lines.prefix:
        fields = fields[1:]
    if len(fields) >= 2 and all(re.fullmatch(r"-?[0-9]+", field) for field in fields[:2]):
        for field in fields[:2]:
            complaint = ids.complaint(field)
            if complaint is not None:
                error = text.error(complaint, position)
                return UnfitIdError(error.path, complaint, line=error.line, text=error.text)
    if status == scanner.WIDE:
        return text.error("the weight does not fit in 64 bits with a sign (int64)", position)
    if status == scanner.FRACTION:
        return text.error(
            "the weight is not an integer, though the header declares integers", position
        )
    return text.error(f"malformed line, expected {lines.expected}", position)


class UnfitIdError(FormatError):
    """An id is an integer, but none that a vertex can have."""


def _word_array(buffer: Array, words: Array, text: Text, shift: int) -> Any:
    """An Arrow array of the texts that words are. :raises FormatError: one of them is not UTF-8"""
    import pyarrow as pa

    offsets = np.zeros(len(words) + 1, np.int64)
    np.cumsum(words & ((1 << scanner.WORD_LENGTH_BITS) - 1), out=offsets[1:])
    characters = np.empty(int(offsets[-1]), np.uint8)
    threads = thread_count_for(len(words))
    run_team(scanner.copy_words, buffer, words, offsets, characters, threads=threads)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(characters)]
    array = pa.Array.from_buffers(pa.large_string(), len(words), buffers)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        for word in words.tolist():
            begin = word >> scanner.WORD_LENGTH_BITS
            length = word & ((1 << scanner.WORD_LENGTH_BITS) - 1)
            try:
                buffer[begin : begin + length].tobytes().decode()
            except UnicodeDecodeError:
                raise text.error("an id is not UTF-8", text.line_begin(begin + shift)) from None
        raise
    return array
