"""Lines to columns: what the readers of text formats share.

A format reads its header itself, then declares what its lines look like (:class:`LineShape`) and which
ids there may be (:class:`IdRange`); :func:`read_lines` turns the lines into columns. The compiled scanner
finds the first wrong line; the message about it is made here.

A text in memory is scanned at once. Another one is surveyed window by window, and the columns are made,
window by window, each time that they are asked for. A window is scanned in pieces of equal size, which
threads take from a common counter, into columns that are long enough for all that its lines can hold.
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
from godwit.graph.rows import require_memory, thread_count_for
from godwit.io.text import scanner
from godwit.io.text.lines import Text
from godwit.io.text.scanner import INTEGER_32, INTEGER_64, NONE, REAL
from godwit.io.text.tokens import (
    BAD_ID,
    FRACTION,
    HARD,
    SURPLUS,
    WIDE,
    WORD_LENGTH_BITS,
    powers_of_five,
)
from godwit.runtime.cpu.team import CURSOR, new_control, run_team

_PIECE_BYTES = 1 << 18  # scanned at a stretch by one thread; its columns stay in the core's cache
_BYTES_FOR_TEAM = 1 << 20  # below, waking a second thread costs more than it brings
_SHARE_OF_MEMORY = 16  # of what is available, for a window of a text that is not in memory
_SMALLEST_WINDOW = 1 << 20
_BYTES_PER_VERTEX = 16  # offsets, twice while the graph is built
_LEAST_LINE_BYTES = 4  # of a line with an arc
_NO_BYTE = 256
_NARROW_END = 2**31 - 1
_LARGEST = (1 << 63) - 1
_POSITION_MASK = (1 << 51) - 1  # of a number left to Python

_WEIGHT_DTYPES = {
    NONE: None,
    INTEGER_32: np.dtype(np.int32),
    INTEGER_64: np.dtype(np.int64),
    REAL: np.dtype(np.float64),
}


@dataclass(frozen=True)
class LineShape:
    """The shape of a format's lines: ``[prefix] [SOURCE] [SKIPPED ...] TARGET [WEIGHT]``.

    :ivar expected: for messages: what a line should be
    :ivar kinds: what weights may be, narrowest first; the first that holds all of them is taken. (NONE,)
        if there are none
    :ivar prefix: a character at the beginning of each line
    :ivar comments: up to two characters; a line that begins with one of them is skipped
    :ivar comma: a comma may stand between columns, too
    :ivar words: ids are words of any characters
    :ivar many: a line has any number of targets, each with its weight
    :ivar id_columns: 2: lines name their source; 1: the k-th line is that of vertex k, and a blank one has
        no targets; 0: lines have weights only
    :ivar skipped: integers before the first target that are dropped
    :ivar dropped: real numbers behind the weight that are dropped
    """

    expected: str
    kinds: tuple[int, ...] = (NONE,)
    prefix: str = ""
    comments: str = "%"
    comma: bool = False
    words: bool = False
    many: bool = False
    id_columns: int = 2
    skipped: int = 0
    dropped: int = 0


@dataclass(frozen=True)
class IdRange:
    """The ids that a file may use.

    :ivar base: the smallest
    :ivar vertex_count: as declared; if not declared, the number that memory could hold
    :ivar names: ids are always names, and the graph has the vertices that occur
    """

    base: int
    vertex_count: int
    declared: bool
    names: bool = False

    def complaint(self, text: str) -> str | None:
        """Return what is wrong with an id, given as digits and perhaps a sign; None if nothing is."""
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
                f"vertex id {text} is too large: a graph of that number of vertices does not fit in "
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


ANY_ID = IdRange(0, 1 << 63, declared=False, names=True)


class UnfitIdError(FormatError):
    """An id that is an integer, but none that a vertex can have."""


@dataclass(frozen=True)
class ScannedArcs(Arcs):
    """Arcs that were lines.

    :ivar min_id: the smallest id in the file; undefined if there are no arcs
    :ivar max_id: the largest id in the file; -1 if there are no arcs
    :ivar rows: number of lines, where lines have any number of targets
    :ivar heads: (rows) ids at the beginning of such lines
    """

    min_id: int
    max_id: int
    rows: int
    heads: Array


def largest_vertex_count() -> int:
    """Return the number of vertices that fit in memory, with no arcs at all."""
    return max(1, config.available_memory_bytes() // _BYTES_PER_VERTEX)


def check_vertex_count(text: Text, vertex_count: int, position: int) -> None:
    """Refuse a declared number of vertices that does not fit in memory."""
    if vertex_count > largest_vertex_count():
        available = config.readable_bytes(config.available_memory_bytes())
        raise text.error(
            f"declares {vertex_count} vertices, which do not fit in memory ({available} available)",
            position,
        )


def check_arc_count(text: Text, declared: int, count: int, position: int, unit: str) -> None:
    """Refuse a file that has more or fewer arcs than its header declares."""
    if count != declared:
        problem = "the file may be truncated" if count < declared else "the header is wrong"
        raise text.error(f"declares {declared} {unit}, but {count} follow: {problem}", position)


def windows(text: Text, begin: int, progress: Progress | None = None) -> Iterator[tuple[int, int]]:
    """Yield whole lines that are scanned at once, as (begin, end).

    :param progress: called with (position, size of the text, "parsing") after each
    """
    size = text.size
    if text.window_bytes is not None:
        size = text.window_bytes
    elif not text.whole:
        size = max(config.available_memory_bytes() // _SHARE_OF_MEMORY, _SMALLEST_WINDOW)
    while begin < text.size:
        end = min(begin + size, text.size)
        if end < text.size:
            line = text.line_begin(end)
            end = line if line > begin else text.behind_line(end)
        yield begin, end
        begin = end
        if progress is not None:
            progress(begin, text.size, "parsing")


def entry_count(text: Text, begin: int, shape: LineShape) -> int:
    """Return the number of targets that lines hold if all are well-formed, without looking at them."""
    return sum(_Window(text, shape, *window).entry_count for window in windows(text, begin))


def read_lines(
    text: Text,
    begin: int,
    shape: LineShape,
    ids: IdRange,
    progress: Progress | None = None,
    occurring: OccurringIds | None = None,
) -> ScannedArcs:
    """Read all lines from position ``begin``, which begins a line, to the end.

    :param progress: called with (position, size of the text, "parsing")
    :param occurring: takes in the ids
    :raises UnfitIdError: the first wrong line has an integer that is no id
    :raises FormatError: about the first wrong line
    :raises GraphTooLargeError: before the columns are allocated
    """
    scan = _Scan(text, shape, ids, progress)
    rows = count = 0
    min_id, max_id = _LARGEST, -1
    all_heads = [np.empty(0, np.int64)]
    block = scan.columns(0).block(text, 0, 0)
    for window in windows(text, begin, progress):
        part = scan.part(rows, *window)
        block = part.block
        rows += part.rows
        count += len(block.sources)
        min_id, max_id = min(min_id, part.min_id), max(max_id, part.max_id)
        all_heads.append(part.heads)
        if occurring is not None:
            most_arcs = len(block.sources) if text.whole else text.size // _LEAST_LINE_BYTES
            occurring.add((block.sources, block.targets), part.min_id, part.max_id, most_arcs)
    blocks: Callable[[], Iterator[Block]]
    if text.whole:
        only = block

        def blocks() -> Iterator[Block]:
            yield only
    else:

        def blocks() -> Iterator[Block]:
            row = 0
            for window in windows(text, begin):
                part = scan.part(row, *window)
                row += part.rows
                yield part.block

    heads = np.concatenate(all_heads)
    dtype = _WEIGHT_DTYPES[scan.kind]
    return ScannedArcs(text.path, blocks, count, dtype, text.whole, min_id, max_id, rows, heads)


class _Columns:
    """Columns of sources, targets and weights, to be filled.

    :ivar used: sources, targets and, if there are some, weights: those of REAL as their bits
    """

    def __init__(self, count: int, id_dtype: np.dtype[Any], kind: int, what: str) -> None:
        weight_dtype = _WEIGHT_DTYPES[kind]
        weight_bytes = 0 if weight_dtype is None else weight_dtype.itemsize
        require_memory(count * (2 * id_dtype.itemsize + weight_bytes), what)
        self._kind = kind
        self.sources: Array = np.empty(count, id_dtype)
        self.targets: Array = np.empty(count, id_dtype)
        self.weights: Array = np.empty(count if kind == INTEGER_32 else 0, np.int32)
        self.wide_weights: Array = np.empty(count if kind in (INTEGER_64, REAL) else 0, np.int64)
        weights = (
            [] if kind == NONE else [self.weights if kind == INTEGER_32 else self.wide_weights]
        )
        self.used = [self.sources, self.targets, *weights]

    def block(self, text: Text, shift: int, count: int) -> Block:
        """Return the first arcs; numbers that the scanner left to Python are read here.

        :param shift: position in the text of what the scanner took for 0
        """
        sources, targets, *weights = (column[:count] for column in self.used)
        if not weights:
            return Block(sources, targets, None)
        if self._kind != REAL:
            return Block(sources, targets, weights[0])
        bits, values = weights[0], weights[0].view(np.float64)
        for arc in np.flatnonzero(bits >= HARD).tolist():
            position = (int(bits[arc]) & _POSITION_MASK) + shift
            try:
                values[arc] = float(text.word(position))
            except ValueError:
                begin = text.line_begin(position)
                raise text.error("the weight is not a number", begin) from None
        return Block(sources, targets, values)


@dataclass(frozen=True)
class _Part:
    """The arcs of a window, and the rows that they come from."""

    block: Block
    rows: int
    heads: Array
    min_id: int
    max_id: int


class _Scan:
    """A scan of windows, which keeps what the widest numbers so far need."""

    def __init__(
        self, text: Text, shape: LineShape, ids: IdRange, progress: Progress | None
    ) -> None:
        self._text = text
        self._shape = shape
        self._kinds = shape.kinds
        self._ids = ids
        self._progress = progress
        # Ids that are not declared are taken to be narrow until one is not.
        self._tried = ids
        if not ids.declared and not shape.words:
            self._tried = replace(ids, vertex_count=min(ids.vertex_count, _NARROW_END))

    @property
    def kind(self) -> int:
        """The kind of weights, as far as is known."""
        return self._kinds[0]

    def columns(self, count: int) -> _Columns:
        """Allocate columns for ``count`` entries."""
        dtype = np.dtype(np.int32 if self._tried.vertex_count <= _NARROW_END else np.int64)
        return _Columns(count, dtype, self.kind, f"{self._text.path}: {count:,} arcs")

    def part(self, first_row: int, begin: int, end: int) -> _Part:
        """Scan the lines of a window.

        :param first_row: number of the first line
        """
        window = _Window(self._text, self._shape, begin, end)
        named_rows = window.row_count if self._shape.id_columns == 2 else 0
        require_memory(8 * named_rows, f"{self._text.path}: {named_rows:,} vertices")
        heads: Array = np.empty(named_rows, np.int64)
        while True:
            columns = self.columns(window.entry_count)
            report = self._run(window, columns, heads, first_row)
            wrong = np.flatnonzero(report[:, scanner.STATUS])
            if len(wrong) == 0:
                break
            piece = report[wrong[0]]
            if not self._widen(int(piece[scanner.STATUS])):
                raise self._error(piece, window.shift)
        count = window.close_gaps(columns, report[:, scanner.FOUND])
        block = columns.block(self._text, window.shift, count)
        if self._shape.words:
            block = block._replace(
                sources=_word_array(window, block.sources),
                targets=_word_array(window, block.targets),
            )
        low = int(report[:, scanner.MIN_ID].min(initial=_LARGEST))
        high = int(report[:, scanner.MAX_ID].max(initial=-1))
        return _Part(block, window.row_count, heads, low, high)

    def _run(self, window: _Window, columns: _Columns, heads: Array, first_row: int) -> Array:
        """Run the compiled scanner. Return its report, with positions in the window's buffer."""
        shape, ids = self._shape, self._tried
        report = np.zeros((window.piece_count, scanner.REPORT_COLUMNS), np.int64)
        numbers = (
            ord(shape.prefix) if shape.prefix else 0,
            *window.comments,
            ord("," if shape.comma else " "),
            shape.many,
            shape.id_columns,
            shape.skipped,
            shape.dropped,
            self.kind,
            ids.base,
            ids.base + ids.vertex_count - 1,
            first_row,
            min(self._ids.vertex_count, _LARGEST),
        )
        is_arc = not shape.many and (shape.id_columns, shape.skipped, shape.dropped) == (2, 0, 0)
        reals = self.kind == REAL or shape.dropped > 0
        window.run(
            scanner.line_scanner(shape.words, shape.words or is_arc, reals),
            *map(np.int64, numbers),
            window.before,
            heads,
            columns.sources,
            columns.targets,
            columns.weights,
            columns.wide_weights,
            powers_of_five() if self.kind == REAL else np.empty(0, np.uint64),
            report,
            progress=self._progress,
        )
        return report

    def _widen(self, status: int) -> bool:
        """Take wider columns if they hold what was too wide; return False if none do."""
        needed = {WIDE: INTEGER_64, FRACTION: REAL}.get(status)  # integers stay exact, or fail
        if needed in self._kinds[1:]:
            self._kinds = self._kinds[self._kinds.index(needed) :]
            return True
        if status == BAD_ID and self._tried.vertex_count < self._ids.vertex_count:
            self._tried = self._ids
            return True
        return False

    def _error(self, piece: Array, shift: int) -> FormatError:
        """Return the error about the line at which the scan of a piece ended."""
        text, status = self._text, piece[scanner.STATUS]
        line = int(piece[scanner.LINE]) + shift
        if status == BAD_ID:
            word = text.word(int(piece[scanner.TOKEN]) + shift)
            complaint = self._ids.complaint(word) if re.fullmatch("-?[0-9]+", word) else None
            if complaint is not None:
                error = text.error(complaint, line)
                return UnfitIdError(error.path, complaint, line=error.line, text=error.text)
        if status == WIDE:
            return text.error("the weight does not fit in 64 bits with a sign (int64)", line)
        if status == FRACTION:
            return text.error(
                "the weight is not an integer, though the header declares integers", line
            )
        if status == SURPLUS:
            return text.error(
                f"declares {self._ids.vertex_count} vertices, but the lines of more follow", line
            )
        return text.error(f"malformed line, expected {self._shape.expected}", line)


class _Window:
    """Whole lines in memory, in pieces that threads take.

    :ivar before: (pieces, 2): rows and entries before each piece, or more
    :ivar shift: position in the text of the first byte of the buffer
    """

    def __init__(self, text: Text, shape: LineShape, begin: int, end: int) -> None:
        self.text = text
        self.buffer, self.shift = text.window(begin, end)
        self.piece_count = -(-(end - begin) // _PIECE_BYTES)
        self._threads = 1 if end - begin < _BYTES_FOR_TEAM else config.thread_count()
        self._begin = begin
        self._range = tuple(map(np.int64, (begin - self.shift, end - self.shift, _PIECE_BYTES)))
        self.comments = [*map(ord, shape.comments), _NO_BYTE, _NO_BYTE][:2]
        counts = np.zeros((self.piece_count, 2), np.int64)
        if shape.many:
            lead = shape.skipped + (shape.id_columns == 2)
            step = (shape.id_columns > 0) + (shape.kinds != (NONE,))
            numbers = map(np.int64, (lead, step))
            comments = map(np.int64, self.comments)
            self.run(scanner.count_entries, *comments, shape.id_columns == 1, *numbers, counts)
        else:
            self.run(scanner.count_lines, counts)
        self.row_count, self.entry_count = map(int, counts.sum(axis=0))
        self.before = np.cumsum(counts, axis=0) - counts

    def run(self, kernel: Any, *arguments: Any, progress: Progress | None = None) -> None:
        """Run a kernel on (text, begin, end, piece, *arguments), whose threads take the pieces.

        :param progress: called with (position, size of the text, "parsing")
        """
        control = new_control()

        def poll() -> None:
            if progress is not None:
                done = self._begin + int(control[CURSOR]) * _PIECE_BYTES
                progress(min(done, self.text.size), self.text.size, "parsing")

        run_team(
            kernel,
            self.buffer,
            *self._range,
            *arguments,
            threads=self._threads,
            control=control,
            poll=poll if progress is not None else None,
        )

    def close_gaps(self, columns: _Columns, entries: Array) -> int:
        """Close the gaps that skipped lines have left between pieces. Return the number of entries."""
        count = int(entries.sum())
        if count != self.entry_count:
            begins = np.cumsum(entries) - entries
            moved = (begins != self.before[:, 1]) & (entries > 0)
            for piece in np.flatnonzero(moved).tolist():
                to, start = int(begins[piece]), int(self.before[piece, 1])
                length = int(entries[piece])
                for column in columns.used:
                    column[to : to + length] = column[start : start + length]
        return count


def _word_array(window: _Window, words: Array) -> Any:
    """Return the texts of words as an Arrow array. :raises FormatError: one of them is not UTF-8"""
    import pyarrow as pa

    lengths = words & ((1 << WORD_LENGTH_BITS) - 1)
    offsets = np.zeros(len(words) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    characters = np.empty(int(offsets[-1]), np.uint8)
    threads = thread_count_for(len(words))
    run_team(scanner.copy_words, window.buffer, words, offsets, characters, threads=threads)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(characters)]
    array = pa.Array.from_buffers(pa.large_string(), len(words), buffers)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        for begin, length in zip(
            (words >> WORD_LENGTH_BITS).tolist(), lengths.tolist(), strict=True
        ):
            try:
                window.buffer[begin : begin + length].tobytes().decode()
            except UnicodeDecodeError:
                line = window.text.line_begin(begin + window.shift)
                raise window.text.error("an id is not UTF-8", line) from None
        raise
    return array
