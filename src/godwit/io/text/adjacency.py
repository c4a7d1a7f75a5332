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

from godwit.dtypes import Array, id_dtype_for
from godwit.errors import FormatError, InputError
from godwit.graph.arcs import Arcs, Block, Progress
from godwit.graph.csr import Graph
from godwit.graph.facts import check_symmetric
from godwit.graph.rows import require_memory
from godwit.io.pieces import WEIGHT_DTYPES, Columns, Window, powers_for, wider_kinds, windows
from godwit.io.text.adjacency_scanner import REPORT_COLUMNS, STATUS, SURPLUS, count_rows, scan_rows
from godwit.io.text.arc_lines import IdRange
from godwit.io.text.lines import Text
from godwit.io.text.scanner import NONE, OUT_OF_RANGE, WIDE

_MOST_ROWS = (1 << 63) - 1
_NO_COMMENT = 256  # no byte is that


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
    block = Block(none, none, None if scan.kind == NONE else np.empty(0, WEIGHT_DTYPES[scan.kind]))
    for window in windows(text, begin, progress):
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

    weight_dtype = WEIGHT_DTYPES[scan.kind]
    named = np.concatenate([np.empty(0, np.int64), *all_heads]) if lines.named else None
    return Adjacency(text.path, blocks, count, weight_dtype, text.whole, rows, named)


def undirected(graph: Graph, path: Path, what: str) -> Graph:
    """The graph of the edges that a file lists in both directions.

    :param what: that they must be, for the message
    :raises FormatError: they are not
    """
    try:
        check_symmetric(graph.rows)
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
        count = window.entry_count
        head_count = window.row_count if self.lines.named else 0
        require_memory(8 * head_count, f"{self.text.path}: {head_count:,} vertices")
        heads: Array = np.empty(head_count, np.int64)
        while True:
            columns = Columns(count, self.id_dtype, self.kind, f"{self.text.path}: {count:,} arcs")
            report = window.scan(self, columns, heads, first_row)
            wrong = np.flatnonzero(report[:, STATUS])
            if len(wrong) == 0:
                return columns.block(self.text, window.shift, count), heads, window.row_count
            found, at, behind = report[wrong[0]].tolist()
            if not self._widen(found):
                raise self._error(found, at + window.shift, behind + window.shift)

    def _widen(self, status: int) -> bool:
        """Whether a weight too wide for its column fits a wider one, which is taken from now on."""
        kinds = wider_kinds(self.lines.kinds, status)
        if kinds:
            self.lines = replace(self.lines, kinds=kinds)
        return bool(kinds)

    def _error(self, status: int, line: int, position: int) -> FormatError:
        """What is wrong with a line, whose scan ended at a position."""
        if status == OUT_OF_RANGE:
            complaint = self.ids.complaint(self.text.word(position))
            return self.text.error(complaint or "vertex id out of range", line)
        if status == WIDE:
            return self.text.error("a weight does not fit in 64 bits with a sign (int64)", line)
        if status == SURPLUS:
            return self.text.error(
                f"declares {self.ids.vertex_count} vertices, but the lines of more follow", line
            )
        return self.text.error(f"malformed line, expected {self.lines.expected}", line)


class _Window(Window):
    """Lines of neighbours, and what is counted in each piece."""

    def __init__(self, text: Text, lines: AdjacencyLines, begin: int, end: int) -> None:
        super().__init__(text, begin, end)
        self.comment = np.int64(ord(lines.comment) if lines.comment else _NO_COMMENT)
        self.counts = np.zeros((self.piece_count, 2), np.int64)
        shape = (np.int64(lines.lead), np.int64(lines.step))
        self.run(count_rows, self.comment, lines.named, *shape, self.counts)
        self.row_count, self.entry_count = map(int, self.counts.sum(axis=0))

    def scan(self, scan: _Scan, columns: Columns, heads: Array, first_row: int) -> Array:
        """Run the compiled scanner; its report, with positions in the buffer."""
        before = np.cumsum(self.counts, axis=0) - self.counts
        report = np.zeros((self.piece_count, REPORT_COLUMNS), np.int64)
        ids = scan.ids
        numbers = (
            scan.lines.skipped,
            scan.kind,
            ids.base,
            ids.base + ids.vertex_count - 1,
            min(ids.vertex_count, _MOST_ROWS),
            first_row,
        )
        self.run(
            scan_rows,
            self.comment,
            scan.lines.named,
            *map(np.int64, numbers),
            before,
            heads,
            columns.sources,
            columns.targets,
            columns.weights,
            columns.wide_weights,
            powers_for(scan.kind),
            report,
            progress=scan.progress,
        )
        return report
