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
from godwit.errors import FormatError, GraphTooLargeError
from godwit.graph.formats import scanner
from godwit.graph.formats.arcs import Arcs, Block
from godwit.graph.formats.decimals import HARD, powers_of_five
from godwit.graph.formats.format import Progress
from godwit.graph.formats.scanner import INTEGER_32, INTEGER_64, NONE, REAL
from godwit.graph.formats.text import Text
from godwit.graph.rows import thread_count_for
from godwit.parallel.team import CURSOR, new_control, run_team

_PIECE_BYTES = 1 << 18  # scanned at a stretch by one thread; its columns stay in the core's cache
_BYTES_FOR_TEAM = 1 << 20  # below, waking a second thread costs more than it brings
_BYTES_PER_VERTEX = 16  # offsets, once and again while the graph is built
_POSITION_MASK = (1 << 51) - 1  # of a number that the scanner left to us
_NARROW_END = 2**31 - 1
_NO_COMMA = ord(" ")
_LARGEST = (1 << 63) - 1

_SHARE_OF_MEMORY = 16  # a window of a text that is not in memory takes so much of what is available
_SMALLEST_WINDOW = 1 << 20

_DTYPES = {
    NONE: None,
    INTEGER_32: np.dtype(np.int32),
    INTEGER_64: np.dtype(np.int64),
    REAL: np.dtype(np.float64),
}


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
    """Whether ids are words of any characters; see :func:`godwit.graph.formats.scanner.scan_words`."""


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
        value = int(text) if len(text) < 20 else (-1 if text.startswith("-") else 1 << 64)
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
            return f"vertex id {text} is too large: ids are below {self.vertex_count}"
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

    def shifted(self, by: int) -> ScannedArcs:
        """The same arcs between vertices whose numbers are smaller."""

        def blocks() -> Iterator[Block]:
            for sources, targets, weights in self.blocks():
                yield Block(sources - by, targets - by, weights)

        return replace(self, blocks=blocks)


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
) -> ScannedArcs:
    """All arc lines from position ``begin``, which begins a line, to the end.

    :param kinds: what the third column may be, narrowest first; (NONE,) if there is none. The first
        kind that holds all its numbers is taken.
    :param progress: called with (position, size of the text, "parsing")
    :raises FormatError: about the first wrong line
    :raises GraphTooLargeError: before the columns are allocated
    """
    scan = _Scan(text, lines, ids, kinds, progress)
    count = 0
    min_id, max_id = _LARGEST, -1
    none = np.empty(0, np.int32)
    block = Block(none, none, None if scan.kind == NONE else np.empty(0, _DTYPES[scan.kind]))
    for window in windows(text, begin):
        block, low, high = scan.settle(*window)
        count += len(block.sources)
        min_id, max_id = min(min_id, low), max(max_id, high)
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

    return ScannedArcs(text.path, blocks, count, _DTYPES[scan.kind], text.whole, min_id, max_id)


def windows(text: Text, begin: int) -> Iterator[tuple[int, int]]:
    """Whole lines that are scanned at a stretch, as (begin, end)."""
    size = text.size
    if not text.whole:
        size = max(config.available_memory_bytes() // _SHARE_OF_MEMORY, _SMALLEST_WINDOW)
    while begin < text.size:
        end = min(begin + size, text.size)
        if end < text.size:
            line = text.line_begin(end)
            end = line if line > begin else text.behind_line(end)
        yield begin, end
        begin = end


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
            columns = _Columns(self.text, window.line_count, self.tried, self.kind)
            report = window.scan(self, columns)
            wrong = np.flatnonzero(report[:, scanner.STATUS])
            if len(wrong) == 0:
                return window.finish(self, columns, report)
            status, at = report[wrong[0], [scanner.STATUS, scanner.POSITION]].tolist()
            if not self._widen(status):
                raise _error_at(self.text, at + window.shift, self.lines, self.ids, status)

    def _widen(self, status: int) -> bool:
        """Whether what was too wide for the columns fits wider ones, which are taken from now on."""
        if status in (scanner.WIDE, scanner.FRACTION):
            needed = INTEGER_64 if status == scanner.WIDE else REAL  # integers stay exact, or fail
            if needed not in self._kinds[1:]:
                return False
            self._kinds = self._kinds[self._kinds.index(needed) :]
            return True
        if status == scanner.OUT_OF_RANGE and self.tried.vertex_count < self.ids.vertex_count:
            self.tried = self.ids
            return True
        return False


class _Columns:
    """Memory for as many arcs as there are lines."""

    def __init__(self, text: Text, count: int, ids: IdRange, kind: int) -> None:
        self.id_dtype = np.dtype(np.int32 if ids.vertex_count <= _NARROW_END else np.int64)
        weight_bytes = {NONE: 0, INTEGER_32: 4, INTEGER_64: 8, REAL: 8}[kind]
        needed = count * (2 * self.id_dtype.itemsize + weight_bytes)
        available = config.available_memory_bytes()
        if needed > available:
            raise GraphTooLargeError(
                f"{text.path}: {count:,} arcs need at least {config.readable_bytes(needed)} of memory, "
                f"and {config.readable_bytes(available)} are available"
            )
        self.sources: Array = np.empty(count, self.id_dtype)
        self.targets: Array = np.empty(count, self.id_dtype)
        self.weights: Array = np.empty(count if kind == INTEGER_32 else 0, np.int32)
        self.wide_weights: Array = np.empty(count if kind in (INTEGER_64, REAL) else 0, np.int64)


class _Window:
    """Whole lines in memory, in pieces that threads take."""

    def __init__(self, text: Text, begin: int, end: int) -> None:
        self.text = text
        self.buffer, self.shift = text.window(begin, end)
        self.begin = begin - self.shift
        self.end = end - self.shift
        self.threads = 1 if end - begin < _BYTES_FOR_TEAM else config.thread_count()
        counts = np.zeros(-(-(end - begin) // _PIECE_BYTES), np.int64)
        place = (self.buffer, np.int64(self.begin), np.int64(self.end), np.int64(_PIECE_BYTES))
        run_team(scanner.COUNT_LINES, *place, counts, threads=self.threads)
        self.first_arc = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=self.first_arc[1:])

    @property
    def line_count(self) -> int:
        """Lines, arcs or not."""
        return int(self.first_arc[-1])

    def scan(self, scan: _Scan, columns: _Columns) -> Array:
        """Run the compiled scanner; its report, with positions in the buffer."""
        report = np.zeros((len(self.first_arc) - 1, scanner.REPORT_COLUMNS), np.int64)
        control = new_control()
        progress = scan.progress

        def poll() -> None:
            if progress is not None:
                done = self.begin + self.shift + int(control[CURSOR]) * _PIECE_BYTES
                progress(min(done, self.text.size), self.text.size, "parsing")

        lines = scan.lines
        numbers = (
            self.begin,
            self.end,
            _PIECE_BYTES,
            ord(lines.prefix) if lines.prefix else 0,
            ord(lines.comments[0]),
            ord(lines.comments[-1]),
            ord(",") if lines.comma else _NO_COMMA,
            scan.kind,
            scan.tried.base,
            scan.tried.base + scan.tried.vertex_count,
        )
        run_team(
            scanner.SCAN_WORDS if lines.words else scanner.SCAN_ARCS,
            self.buffer,
            *map(np.int64, numbers),
            self.first_arc,
            columns.sources,
            columns.targets,
            columns.weights,
            columns.wide_weights,
            powers_of_five() if scan.kind == REAL else np.empty(0, np.uint64),
            report,
            threads=self.threads,
            control=control,
            poll=poll if progress is not None else None,
        )
        return report

    def finish(self, scan: _Scan, columns: _Columns, report: Array) -> tuple[Block, int, int]:
        """Close the gaps that skipped lines have left, and settle what was left to us."""
        kind = scan.kind
        found = report[:, scanner.FOUND]
        count = int(found.sum())
        all_columns = [columns.sources, columns.targets]
        if kind != NONE:
            all_columns.append(columns.weights if kind == INTEGER_32 else columns.wide_weights)
        if count != self.first_arc[-1]:
            begins = np.cumsum(found) - found
            moved = (begins != self.first_arc[:-1]) & (found > 0)
            for piece in np.flatnonzero(moved).tolist():
                here, there = int(begins[piece]), int(self.first_arc[piece])
                length = int(found[piece])
                for column in all_columns:
                    column[here : here + length] = column[there : there + length]
        sources, targets, *rest = (column[:count] for column in all_columns)
        weights = rest[0] if rest else None
        if weights is not None and kind == REAL:
            settle_hard_numbers(self.text, self.shift, weights)
            weights = weights.view(np.float64)
        low = int(report[:, scanner.MIN_ID].min(initial=_LARGEST))
        high = int(report[:, scanner.MAX_ID].max(initial=-1))
        if scan.lines.words:
            sources = _word_array(self.buffer, sources, self.text, self.shift)
            targets = _word_array(self.buffer, targets, self.text, self.shift)
        return Block(sources, targets, weights), low, high


def settle_hard_numbers(text: Text, shift: int, bits: Array) -> None:
    """Replace every HARD + position by the bits of the number at that position, read by Python."""
    values = bits.view(np.float64)
    for arc in np.flatnonzero(bits >= HARD).tolist():
        position = (int(bits[arc]) & _POSITION_MASK) + shift
        try:
            values[arc] = float(text.word(position))
        except ValueError:
            raise text.error("the weight is not a number", text.line_begin(position)) from None


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
        return text.error("the weight does not fit in 64 bits", position)
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
