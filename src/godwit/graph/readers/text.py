"""Text files of arcs, one a line: what the readers of all formats share.

A format reads its header itself, then says how its arc lines look (:class:`ArcLines`) and which
ids there may be (:class:`IdRange`); :func:`read_arcs` turns the lines into columns. The compiled
scanner only says which line is wrong first; why it is wrong is found here, by looking at it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from godwit import config
from godwit.errors import FormatError, GraphTooLargeError
from godwit.graph.readers import scanner
from godwit.graph.readers.decimals import HARD, powers_of_five
from godwit.graph.readers.scanner import INTEGER_32, INTEGER_64, NONE, REAL
from godwit.parallel.team import CURSOR, new_control, run_team

Array = np.ndarray[Any, np.dtype[Any]]

Progress = Callable[[int, int, str], None]
"""Called now and then, from the calling thread, with (bytes done, bytes in all, phase)."""

PADDING_BYTES = 8  # the scanner loads whole words

_PIECE_BYTES = 1 << 18  # scanned at a stretch by one thread; its columns stay in the core's cache
_BYTES_FOR_TEAM = 1 << 20  # below, waking a second thread costs more than it brings
_BYTES_PER_VERTEX = 16  # offsets, once and again while the graph is built
_POSITION_MASK = (1 << 51) - 1  # of a number that the scanner left to us
_NARROW_END = 2**31 - 1
_NO_COMMA = ord(" ")
_LINE_BYTES = 1 << 12  # of a header's line that are looked at


class Text:
    """The bytes of a file in memory, decompressed.

    ``buffer`` is uint8, read-only; ``buffer[:size]`` is the text, which ends with a newline;
    :data:`PADDING_BYTES` more bytes may be loaded. ``begin`` is behind a byte order mark.
    """

    def __init__(self, path: Path, buffer: Array, size: int) -> None:
        self.path = path
        self.buffer = buffer
        self.buffer.flags.writeable = False
        self.size = size
        self.begin = 3 if buffer[:3].tobytes() == b"\xef\xbb\xbf" else 0

    def lines(self, begin: int | None = None) -> Iterator[tuple[int, str]]:
        """Lines as (position of the first byte, text stripped of blanks), in order.

        No more than the beginning of a line that is longer than any sensible one.
        """
        position = self.begin if begin is None else begin
        while position < self.size:
            end = self._line_end(position)
            yield position, self._decode(position, min(end, position + _LINE_BYTES)).strip()
            position = end + 1

    def behind_line(self, position: int) -> int:
        """The first position of the next line."""
        return self._line_end(position) + 1

    def line_number(self, position: int) -> int:
        """1-based number of the line that a position lies in."""
        pieces = (
            self.buffer[begin : min(begin + _PIECE_BYTES, position)]
            for begin in range(0, position, _PIECE_BYTES)
        )
        return 1 + sum(int(np.count_nonzero(piece == ord("\n"))) for piece in pieces)

    def error(self, message: str, position: int | None = None) -> FormatError:
        """The error to raise about the line at a position, or about the whole file."""
        if position is None:
            return FormatError(self.path, message)
        text = self._decode(position, min(self._line_end(position), position + 200))
        return FormatError(self.path, message, line=self.line_number(position), text=text)

    def word(self, position: int) -> str:
        """The characters from a position up to a blank, a comma or the line's end."""
        return re.split(r"[\s,]", self._decode(position, self._line_end(position)), maxsplit=1)[0]

    def _line_end(self, position: int) -> int:
        step = 256
        while True:
            found = np.flatnonzero(self.buffer[position : position + step] == ord("\n"))
            if len(found):
                return position + int(found[0])
            position += step
            step *= 4

    def _decode(self, begin: int, end: int) -> str:
        return self.buffer[begin:end].tobytes().decode("utf-8", "replace")


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


@dataclass(frozen=True)
class IdRange:
    """The ids that a file may use: ``base`` and up."""

    base: int
    vertex_count: int
    """As declared; if not declared, as many as memory could hold."""
    declared: bool

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
        if not self.declared:
            return (
                f"vertex id {text} is too large: a graph of so many vertices does not fit in "
                "memory; renumber the vertices"
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
class Arcs:
    """Columns of the arc lines, in the order of the file."""

    sources: Array
    """int32 or int64 (k), counted from 0."""
    targets: Array
    weights: Array | None
    """int32, int64 or float64 (k)."""
    min_id: int
    """The smallest id, as the file has it; meaningless where there are no arcs."""
    max_id: int
    """The largest id, as the file has it; -1 where there are no arcs."""


def largest_vertex_count() -> int:
    """As many vertices as could be held in memory, with no arcs at all."""
    return max(1, config.available_memory_bytes() // _BYTES_PER_VERTEX)


def check_vertex_count(text: Text, vertex_count: int, position: int) -> None:
    """Refuse a declared number of vertices that no memory could hold."""
    if vertex_count > largest_vertex_count():
        available = config.available_memory_bytes() / 2**30
        raise text.error(
            f"declares {vertex_count} vertices, which do not fit in memory "
            f"({available:,.2f} GiB available)",
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
) -> Arcs:
    """The columns of all arc lines from position ``begin``, which begins a line, to the end.

    :param kinds: what the third column may be, narrowest first; (NONE,) if there is none. The first
        kind that holds all its numbers is taken.
    :param progress: called with (position, size of the text, "parsing")
    :raises FormatError: about the first wrong line
    :raises GraphTooLargeError: before the columns are allocated
    """
    first_arc = _count_lines(text, begin)
    # Ids that nobody has declared are taken to be narrow until one is not.
    tried = ids if ids.declared else replace(ids, vertex_count=min(ids.vertex_count, _NARROW_END))
    possible = kinds
    while True:
        columns = _Columns(text, int(first_arc[-1]), tried, possible[0])
        report = _scan(text, begin, lines, tried, possible[0], first_arc, columns, progress)
        wrong = np.flatnonzero(report[:, scanner.STATUS])
        if len(wrong) == 0:
            return _finish(text, possible[0], columns, first_arc, report)
        status, position = report[wrong[0], [scanner.STATUS, scanner.POSITION]].tolist()
        wider: tuple[int, ...] = ()
        if status in (scanner.WIDE, scanner.FRACTION):
            needed = INTEGER_64 if status == scanner.WIDE else REAL  # integers stay exact, or fail
            wider = possible[possible.index(needed) :] if needed in possible[1:] else ()
        elif status == scanner.OUT_OF_RANGE and tried.vertex_count < ids.vertex_count:
            tried = ids
            wider = possible
        if not wider:
            raise text.error(_explain(text, position, lines, ids, status), position)
        possible = wider


class _Columns:
    """Memory for as many arcs as there are lines."""

    def __init__(self, text: Text, count: int, ids: IdRange, kind: int) -> None:
        self.id_dtype = np.dtype(np.int32 if ids.vertex_count <= _NARROW_END else np.int64)
        weight_bytes = {NONE: 0, INTEGER_32: 4, INTEGER_64: 8, REAL: 8}[kind]
        needed = count * (2 * self.id_dtype.itemsize + weight_bytes)
        available = config.available_memory_bytes()
        if needed > available:
            raise GraphTooLargeError(
                f"{text.path}: {count:,} arcs need at least {needed / 2**30:,.2f} GiB of memory, "
                f"and {available / 2**30:,.2f} GiB are available"
            )
        self.sources: Array = np.empty(count, self.id_dtype)
        self.targets: Array = np.empty(count, self.id_dtype)
        self.weights: Array = np.empty(count if kind == INTEGER_32 else 0, np.int32)
        self.wide_weights: Array = np.empty(count if kind in (INTEGER_64, REAL) else 0, np.int64)


def _count_lines(text: Text, begin: int) -> Array:
    """The number of lines before each piece of the text, and in all: int64 (pieces + 1)."""
    counts = np.zeros(-(-(text.size - begin) // _PIECE_BYTES), np.int64)
    run_team(
        scanner.COUNT_LINES,
        text.buffer,
        np.int64(begin),
        np.int64(text.size),
        np.int64(_PIECE_BYTES),
        counts,
        threads=_threads(text),
    )
    first_arc = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=first_arc[1:])
    return first_arc


def _scan(
    text: Text,
    begin: int,
    lines: ArcLines,
    ids: IdRange,
    kind: int,
    first_arc: Array,
    columns: _Columns,
    progress: Progress | None,
) -> Array:
    """Run the compiled scanner; its report."""
    report = np.zeros((len(first_arc) - 1, scanner.REPORT_COLUMNS), np.int64)
    control = new_control()

    def poll() -> None:
        if progress is not None:
            done = begin + int(control[CURSOR]) * _PIECE_BYTES
            progress(min(done, text.size), text.size, "parsing")

    numbers = (
        begin,
        text.size,
        _PIECE_BYTES,
        ord(lines.prefix) if lines.prefix else 0,
        ord(lines.comments[0]),
        ord(lines.comments[-1]),
        ord(",") if lines.comma else _NO_COMMA,
        kind,
        ids.base,
        ids.base + ids.vertex_count,
    )
    run_team(
        scanner.SCAN_ARCS,
        text.buffer,
        *map(np.int64, numbers),
        first_arc,
        columns.sources,
        columns.targets,
        columns.weights,
        columns.wide_weights,
        powers_of_five() if kind == REAL else np.empty(0, np.uint64),
        report,
        threads=_threads(text),
        control=control,
        poll=poll if progress is not None else None,
    )
    return report


def _finish(text: Text, kind: int, columns: _Columns, first_arc: Array, report: Array) -> Arcs:
    """Close the gaps that skipped lines have left, and settle the numbers that were left to us."""
    found = report[:, scanner.FOUND]
    count = int(found.sum())
    all_columns = [columns.sources, columns.targets]
    if kind != NONE:
        all_columns.append(columns.weights if kind == INTEGER_32 else columns.wide_weights)
    if count != first_arc[-1]:
        begins = np.cumsum(found) - found
        for piece in np.flatnonzero((begins != first_arc[:-1]) & (found > 0)).tolist():
            here, there, length = int(begins[piece]), int(first_arc[piece]), int(found[piece])
            for column in all_columns:
                column[here : here + length] = column[there : there + length]
    sources, targets, *rest = (column[:count] for column in all_columns)
    weights = rest[0] if rest else None
    if weights is not None and kind == REAL:
        _settle_hard_numbers(text, weights)
        weights = weights.view(np.float64)
    return Arcs(
        sources,
        targets,
        weights,
        int(report[:, scanner.MIN_ID].min(initial=(1 << 63) - 1)),
        int(report[:, scanner.MAX_ID].max(initial=-1)),
    )


def _settle_hard_numbers(text: Text, bits: Array) -> None:
    """Replace every HARD + position by the bits of the number at that position, read by Python."""
    values = bits.view(np.float64)
    for arc in np.flatnonzero(bits >= HARD).tolist():
        position = int(bits[arc]) & _POSITION_MASK
        try:
            values[arc] = float(text.word(position))
        except ValueError:
            begin = position
            while begin > 0 and text.buffer[begin - 1] != ord("\n"):
                begin -= 1
            raise text.error("the weight is not a number", begin) from None


def _explain(text: Text, position: int, lines: ArcLines, ids: IdRange, status: int) -> str:
    """What is wrong with the line at a position."""
    _, line = next(text.lines(position))
    fields = re.split(r"\s*,\s*|\s+" if lines.comma else r"\s+", line)
    if lines.prefix and fields[0] == lines.prefix:
        fields = fields[1:]
    if len(fields) >= 2 and all(re.fullmatch(r"-?[0-9]+", field) for field in fields[:2]):
        for field in fields[:2]:
            complaint = ids.complaint(field)
            if complaint is not None:
                return complaint
    if status == scanner.WIDE:
        return "the weight does not fit in 64 bits"
    if status == scanner.FRACTION:
        return "the weight is not an integer, though the header declares integers"
    return f"malformed line, expected {lines.expected}"


def _threads(text: Text) -> int:
    return 1 if text.size < _BYTES_FOR_TEAM else config.thread_count()
