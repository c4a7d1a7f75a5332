"""Lines of neighbours: what the readers of formats with a vertex a line share.

A line holds, between blanks: the vertex itself, if lines are *named*; numbers that are checked and
dropped (*skipped*: METIS's sizes and weights of vertices); then its neighbours, each followed by a
weight if there are some. Unless lines are named, the k-th line that is no comment is that of
vertex k, and a blank one says that it has no neighbours.

As in ``scanner``, a text is scanned in pieces, on all threads. The entries of each piece are counted
first, which says where they go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from godwit import config
from godwit.dtypes import Array, id_dtype_for
from godwit.errors import FormatError, InputError
from godwit.graph.csr import Graph, require_memory
from godwit.graph.formats.adjacency_scanner import (
    REPORT_COLUMNS,
    STATUS,
    SURPLUS,
    count_rows,
    scan_rows,
)
from godwit.graph.formats.arc_lines import IdRange, settle_hard_numbers, windows
from godwit.graph.formats.arcs import Arcs, Block
from godwit.graph.formats.decimals import powers_of_five
from godwit.graph.formats.format import Progress
from godwit.graph.formats.scanner import (
    FRACTION,
    INTEGER_32,
    INTEGER_64,
    NONE,
    OUT_OF_RANGE,
    REAL,
    WIDE,
)
from godwit.graph.formats.text import Text
from godwit.graph.transform import check_symmetric
from godwit.parallel.team import CURSOR, new_control, run_team

_PIECE_BYTES = 1 << 18  # scanned at a stretch by one thread
_BYTES_FOR_TEAM = 1 << 20  # below, waking a second thread costs more than it brings
_NO_COMMENT = 256  # no byte is that

_DTYPES = {INTEGER_32: np.int32, INTEGER_64: np.int64, REAL: np.float64}


@dataclass(frozen=True)
class AdjacencyLines:
    """How the lines of a format look.

    :ivar expected: for messages: what a line should be
    :ivar comment: a character; lines that begin with it are skipped. Empty: there are no comments
    :ivar named: whether a line begins with its vertex; then blank lines are skipped
    :ivar skipped: numbers before the neighbours that are dropped
    :ivar kinds: what weights may be, narrowest first; (NONE,) if there are none
    """

    expected: str
    comment: str = ""
    named: bool = False
    skipped: int = 0
    kinds: tuple[int, ...] = (NONE,)

    @property
    def lead(self) -> int:
        """Numbers of a line before its neighbours."""
        return self.skipped + (1 if self.named else 0)

    @property
    def step(self) -> int:
        """Numbers for a neighbour."""
        return 1 if self.kinds == (NONE,) else 2


@dataclass(frozen=True)
class Adjacency(Arcs):
    """Neighbours as arcs.

    :ivar rows: lines that are vertices
    :ivar heads: the vertices that lines are named after, in their order; no array if they are not
    """

    rows: int
    heads: Array | None


def entry_count(text: Text, begin: int, lines: AdjacencyLines) -> int:
    """How many neighbours there are if all lines are well-formed, without looking at them."""
    return sum(_Window(text, lines, *window).entry_count for window in windows(text, begin))


def read_adjacency(
    text: Text,
    begin: int,
    lines: AdjacencyLines,
    ids: IdRange,
    progress: Progress | None = None,
) -> Adjacency:
    """All lines from position ``begin``, which begins a line, to the end.

    Lines without names that follow that of the last of ``ids`` must be blank. Whether there are as
    many as declared is for the caller to see.

    :raises FormatError: about the first wrong line
    :raises GraphTooLargeError: before the columns are allocated
    """
    scan = _Scan(text, lines, ids, progress)
    rows = count = 0
    all_heads = []
    none = np.empty(0, scan.id_dtype)
    block = Block(none, none, None if scan.kind == NONE else np.empty(0, _DTYPES[scan.kind]))
    for window in windows(text, begin):
        block, heads, found = scan.settle(rows, *window)
        rows += found
        count += len(block.sources)
        all_heads.append(heads)
    blocks: Callable[[], Iterator[Block]]
    if text.whole:
        only = block

        def blocks() -> Iterator[Block]:
            yield only
    else:
        del block

        def blocks() -> Iterator[Block]:
            row = 0
            for window in windows(text, begin):
                block, _, found = scan.settle(row, *window)
                row += found
                yield block

    weight_dtype = None if scan.kind == NONE else np.dtype(_DTYPES[scan.kind])
    named = np.concatenate([np.empty(0, np.int64), *all_heads]) if lines.named else None
    return Adjacency(text.path, blocks, count, weight_dtype, text.whole, rows, named)


def undirected(graph: Graph, path: Path, what: str) -> Graph:
    """The graph of the edges that a file lists in both directions.

    :param what: that they must be, for the message
    :raises FormatError: they are not
    """
    try:
        check_symmetric(graph.offsets, graph.targets, graph.weights)
    except InputError as error:
        raise FormatError(path, f"{what} (vertices counted from 0): {error}") from None
    return Graph.trusted(graph.offsets, graph.targets, graph.weights, directed=False, ids=graph.ids)


class _Scan:
    """Scans windows; remembers what the widest weights so far need."""

    def __init__(
        self, text: Text, lines: AdjacencyLines, ids: IdRange, progress: Progress | None
    ) -> None:
        self.text = text
        self.lines = lines
        self.ids = ids
        self.progress = progress
        # Ids that nobody has declared are names, and may be large.
        self.id_dtype = id_dtype_for(ids.vertex_count) if ids.declared else np.dtype(np.int64)

    @property
    def kind(self) -> int:
        """What weights are, as far as is known."""
        return self.lines.kinds[0]

    def settle(self, first_row: int, begin: int, end: int) -> tuple[Block, Array, int]:
        """The neighbours in a window as arcs, the vertices that its lines name, and how many lines
        are vertices.

        :param first_row: vertex of the first line
        """
        window = _Window(self.text, self.lines, begin, end)
        while True:
            columns = _Columns(self, window)
            report = window.scan(self, columns, first_row)
            wrong = np.flatnonzero(report[:, STATUS])
            if len(wrong) == 0:
                return columns.block(self.text, window.shift), columns.heads, window.row_count
            found, at, behind = report[wrong[0]].tolist()
            if not self._widen(found):
                raise self._error(found, at + window.shift, behind + window.shift)

    def _widen(self, status: int) -> bool:
        """Whether a weight too wide for its column fits a wider one, which is taken from now on."""
        kinds = self.lines.kinds
        needed = {WIDE: INTEGER_64, FRACTION: REAL}.get(status)
        if needed not in kinds[1:]:
            return False
        self.lines = replace(self.lines, kinds=kinds[kinds.index(needed) :])
        return True

    def _error(self, status: int, line: int, position: int) -> FormatError:
        """What is wrong with a line, whose scan ended at a position."""
        if status == OUT_OF_RANGE:
            complaint = self.ids.complaint(self.text.word(position))
            return self.text.error(complaint or "vertex id out of range", line)
        if status == WIDE:
            return self.text.error("a weight does not fit in 64 bits", line)
        if status == SURPLUS:
            return self.text.error(
                f"declares {self.ids.vertex_count} vertices, but the lines of more follow", line
            )
        return self.text.error(f"malformed line, expected {self.lines.expected}", line)


class _Columns:
    """Memory for the entries of a window."""

    def __init__(self, scan: _Scan, window: _Window) -> None:
        count = window.entry_count
        kind = scan.kind
        weight_bytes = {NONE: 0, INTEGER_32: 4}.get(kind, 8)
        head_count = window.row_count if scan.lines.named else 0
        what = f"{count:,} arcs" if count else f"{head_count:,} vertices"
        require_memory(
            count * (2 * scan.id_dtype.itemsize + weight_bytes) + 8 * head_count,
            f"{scan.text.path}: {what}",
        )
        self.kind = kind
        self.heads: Array = np.empty(head_count, np.int64)
        self.sources: Array = np.empty(count, scan.id_dtype)
        self.targets: Array = np.empty(count, scan.id_dtype)
        self.weights: Array = np.empty(count if kind == INTEGER_32 else 0, np.int32)
        self.wide_weights: Array = np.empty(count if kind in (INTEGER_64, REAL) else 0, np.int64)

    def block(self, text: Text, shift: int) -> Block:
        """What has been scanned."""
        if self.kind == NONE:
            return Block(self.sources, self.targets, None)
        if self.kind == REAL:
            settle_hard_numbers(text, shift, self.wide_weights)
            return Block(self.sources, self.targets, self.wide_weights.view(np.float64))
        weights = self.weights if self.kind == INTEGER_32 else self.wide_weights
        return Block(self.sources, self.targets, weights)


class _Window:
    """Whole lines in memory, in pieces that threads take, and what is counted in each piece."""

    def __init__(self, text: Text, lines: AdjacencyLines, begin: int, end: int) -> None:
        self.text = text
        self.buffer, self.shift = text.window(begin, end)
        self.threads = 1 if end - begin < _BYTES_FOR_TEAM else config.thread_count()
        place = (begin - self.shift, end - self.shift, _PIECE_BYTES)
        self.place = tuple(map(np.int64, place))
        self.comment = np.int64(ord(lines.comment) if lines.comment else _NO_COMMENT)
        self.counts = np.zeros((-(-(end - begin) // _PIECE_BYTES), 2), np.int64)
        run_team(
            count_rows,
            self.buffer,
            *self.place,
            self.comment,
            lines.named,
            np.int64(lines.lead),
            np.int64(lines.step),
            self.counts,
            threads=self.threads,
        )
        self.row_count, self.entry_count = map(int, self.counts.sum(axis=0))

    def scan(self, scan: _Scan, columns: _Columns, first_row: int) -> Array:
        """Run the compiled scanner; its report, with positions in the buffer."""
        before = np.cumsum(self.counts, axis=0) - self.counts
        report = np.zeros((len(self.counts), REPORT_COLUMNS), np.int64)
        control = new_control()
        progress = scan.progress
        begin = int(self.place[0]) + self.shift

        def poll() -> None:
            if progress is not None:
                done = begin + int(control[CURSOR]) * _PIECE_BYTES
                progress(min(done, self.text.size), self.text.size, "parsing")

        ids = scan.ids
        numbers = (
            scan.lines.skipped,
            scan.kind,
            ids.base,
            ids.base + ids.vertex_count,
            ids.vertex_count,
            first_row,
        )
        run_team(
            scan_rows,
            self.buffer,
            *self.place,
            self.comment,
            scan.lines.named,
            *map(np.int64, numbers),
            before,
            columns.heads,
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
