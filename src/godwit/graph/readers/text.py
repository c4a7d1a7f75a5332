"""Text files of arcs, one a line: what the readers of all formats share.

A format reads its header itself, then says how its arc lines look (:class:`ArcLines`) and which ids
there may be (:class:`IdRange`); :func:`scan` turns the lines into columns. The compiled scanner only
says which line is wrong first; why it is wrong is found here, by looking at that one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from godwit import config
from godwit.errors import FormatError, GraphTooLargeError

Array = np.ndarray[Any, np.dtype[Any]]

Progress = Callable[[int, int, str], None]
"""Called now and then, from the calling thread, with (bytes done, bytes in all, phase)."""

PADDING_BYTES = 8  # the scanner loads whole words

_PIECE_BYTES = 1 << 18  # scanned at a stretch by one thread; its columns stay in the core's cache
_BYTES_FOR_TEAM = 1 << 20  # below, waking a second thread costs more than it brings
_BYTES_PER_VERTEX = 16  # offsets, once and again while the graph is built
_POSITION_MASK = (1 << 51) - 1  # of a number that the scanner left to us
_NO_COMMA = ord(" ")

# Kinds of the third column, in the scanner's encoding (see scan.py).
NONE, INTEGER_32, INTEGER_64, REAL = range(4)


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
        """Lines as (position of the first byte, text stripped of blanks), in order."""
        position = self.begin if begin is None else begin
        while position < self.size:
            end = self._line_end(position)
            yield position, self._decode(position, end).strip()
            position = end + 1

    def line_number(self, position: int) -> int:
        """1-based number of the line that a position lies in."""
        return 1 + int(np.count_nonzero(self.buffer[:position] == ord("\n")))

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


def scan(
    text: Text,
    begin: int,
    lines: ArcLines,
    ids: IdRange,
    kinds: tuple[int, ...],
    progress: Progress | None = None,
) -> Arcs:
    """The columns of all arc lines from position ``begin``, which begins a line, to the end.

    :param kinds: what the third column may be, narrowest first; (NONE,) if there is none. The first
        kind that holds all numbers is taken.
    :raises FormatError: about the first wrong line
    """
    from godwit.graph.readers import scan as compiled

    layout = _Layout.of(text, begin, lines, ids)
    remaining = list(kinds)
    while True:
        kind = remaining.pop(0)
        columns = _Columns.allocate(text, layout, kind)
        report = columns.fill(text, layout, progress)
        wrong = np.flatnonzero(report[:, compiled.STATUS])
        if len(wrong) == 0:
            return columns.finish(text, report, lines)
        status = report[wrong[0], compiled.STATUS]
        if status == compiled.FRACTION:
            remaining = [wider for wider in remaining if wider == REAL]
        if status == compiled.MALFORMED or not remaining:
            position = int(report[wrong[0], compiled.POSITION])
            raise text.error(_explain(text, position, lines, ids, status), position)


def _explain(text: Text, position: int, lines: ArcLines, ids: IdRange, status: int) -> str:
    """What is wrong with the line at a position."""
    from godwit.graph.readers import scan as compiled

    _, line = next(text.lines(position))
    fields = re.split(r"\s*,\s*|\s+" if lines.comma else r"\s+", line)
    if lines.prefix and fields[0] == lines.prefix:
        fields = fields[1:]
    if len(fields) >= 2 and all(re.fullmatch(r"-?[0-9]+", field) for field in fields[:2]):
        for field in fields[:2]:
            complaint = ids.complaint(field)
            if complaint is not None:
                return complaint
    if status == compiled.WIDE:
        return "the weight does not fit in 64 bits"
    if status == compiled.FRACTION:
        return "the weight is not an integer, though the header declares integers"
    return f"malformed line, expected {lines.expected}"


@dataclass(frozen=True)
class _Layout:
    """Where the lines are, and the scanner's arguments that follow from the format."""

    begin: int
    first_arc: Array
    """int64 (pieces + 1): the number of lines before each piece."""
    threads: int
    arguments: tuple[np.int64, ...]
    id_dtype: np.dtype[Any]

    @classmethod
    def of(cls, text: Text, begin: int, lines: ArcLines, ids: IdRange) -> _Layout:
        from godwit.graph.readers import scan as compiled
        from godwit.parallel.team import run_team

        length = text.size - begin
        counts = np.zeros(-(-length // _PIECE_BYTES), np.int64)
        threads = 1 if length < _BYTES_FOR_TEAM else config.thread_count()
        where = (np.int64(begin), np.int64(text.size), np.int64(_PIECE_BYTES))
        if length > 0:
            run_team(compiled.COUNT_LINES, text.buffer, *where, counts, threads=threads)
        first_arc = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=first_arc[1:])
        format_bytes = (
            ord(lines.prefix) if lines.prefix else 0,
            ord(lines.comments[0]),
            ord(lines.comments[-1]),
            ord(",") if lines.comma else _NO_COMMA,
        )
        return cls(
            begin,
            first_arc,
            threads,
            (*where, *map(np.int64, format_bytes), np.int64(ids.base)),
            np.dtype(np.int32 if ids.base + ids.vertex_count < 2**31 else np.int64),
        )
