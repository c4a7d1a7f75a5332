"""Files that each process reads a part of: edge lists, of which it takes lines, and files of Godwit's
format.

No process holds the whole graph. Of an edge list each scans the lines that begin in its range of bytes;
the ids that occur become positions, in ascending order; then every arc goes to the owner of its source.
Of a mapped ``.godwit`` file each process copies its rows, and adds up the checksums of a part of the
bytes.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from godwit.distributed.exchange import arcs_to_owners, to_owners
from godwit.distributed.graph import DistributedGraph, bounds_of_ends
from godwit.distributed.halo import halo_of_arcs
from godwit.distributed.place import own_ids, place_rows
from godwit.distributed.processes import Processes
from godwit.dtypes import Array, id_dtype_for
from godwit.errors import FormatError, InputError
from godwit.graph.arcs import ReadOptions
from godwit.graph.ids import VertexIds
from godwit.graph.rows import require_memory
from godwit.io.binary.native import MappedGraph
from godwit.io.graph_files import recognize
from godwit.io.source import Source, open_source
from godwit.io.text.edge_list import (
    COMMENT_MARKS,
    WEIGHT_KINDS,
    Comments,
    begin_of,
    check_counts,
    is_integer,
)
from godwit.io.text.line_reader import (
    ANY_ID,
    IdRange,
    LineShape,
    UnfitIdError,
    largest_vertex_count,
    read_lines,
)
from godwit.io.text.lines import FileText, PartOfText
from godwit.io.text.scanner import NONE

_WEIGHT_DTYPES = (np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float64))
"""Dtypes of weights in text; each holds what the ones before it hold."""
_SAMPLES = 256
"""Ids of each process that decide which process ranks which ids."""
_TABLE_PER_ID = 8
"""Ids are marked in a table if that has at most so many entries for each of them; else they are sorted."""


def place_file(
    processes: Processes, path: str | os.PathLike[str], directed: bool | None, weighted: bool | None
) -> DistributedGraph:
    """Place the graph in a file; all processes call it, and read it."""
    with open_source(path, held_bytes=1) as source:
        format = recognize(source.head, ReadOptions()).name
        if format == "godwit":
            return _place_native(processes, source, directed, weighted)
        if format == "edge-list":
            return _place_edges(processes, source.text_in_file(), directed, weighted)
        raise InputError(
            f"{source.path} is of format {format}; several processes read edge lists and .godwit files: "
            f"write one with godwit.write (command line: godwit convert {source.path} graph.godwit), or, "
            "if every process has memory for the whole graph, place what godwit.read returns"
        )


def _place_native(
    processes: Processes, source: Source, directed: bool | None, weighted: bool | None
) -> DistributedGraph:
    source.text_in_file()  # refuses compressed files
    mapped = MappedGraph.of(source)
    if directed is not None and directed != mapped.directed:
        raise InputError(
            f"{source.path} declares directed={mapped.directed}, which cannot be changed"
        )
    own = np.array(mapped.checksums(processes.rank, processes.count), np.uint64)
    sums = processes.add_up(own.view(np.int64)).view(np.uint64)
    mapped.check_sums(sums.tolist())
    rows = mapped.rows
    if weighted is False:
        rows = rows.without_weights()
    if weighted and rows.weights is None:
        raise _no_weights(source.path)
    try:
        return place_rows(processes, rows, mapped.ids, directed=mapped.directed)
    except InputError as error:
        raise FormatError(source.path, str(error)) from None


def _no_weights(path: Any) -> FormatError:
    return FormatError(path, "the file has no weights, and weighted=True asks for them")


def _place_edges(
    processes: Processes, text: FileText, directed: bool | None, weighted: bool | None
) -> DistributedGraph:
    position, fields, comments = begin_of(text)
    has_weights = len(fields) > 2
    if weighted and not has_weights:
        raise _no_weights(text.path)
    sources, targets, weights = _scan(processes, text, position, fields, comments)
    if weighted is False:
        weights = None
    count = int(processes.meet(len(sources)).sum())
    check_counts(text, comments, count)
    numbering = _number(processes, sources, targets, comments, text)
    n = numbering.vertex_count
    dtype = id_dtype_for(n)
    sources = numbering.positions(sources).astype(dtype, copy=False)
    targets = numbering.positions(targets).astype(dtype, copy=False)
    is_directed = directed if directed is not None else not comments.undirected
    if comments.undirected and directed:
        is_directed = True  # a directed graph of both directions
    both = comments.undirected or not is_directed
    bounds = bounds_of_ends(processes, [sources, targets] if both else [sources], n)
    columns = [sources, targets] + ([] if weights is None else [weights])
    del sources, targets, weights
    sources, targets, *rest = arcs_to_owners(processes, bounds, columns, both_directions=both)
    rows = halo_of_arcs(processes, bounds, sources, targets, rest[0] if rest else None)
    return DistributedGraph(
        processes, bounds, rows, numbering.ids_of_part(bounds), directed=is_directed,
        is_range=numbering.is_range,
    )  # fmt: skip


def _scan(
    processes: Processes, text: FileText, position: int, fields: list[str], comments: Comments
) -> tuple[Array, Array, Array | None]:
    """Return the arcs in the lines that begin in this process' range of bytes: ids, and weights."""
    if comments.ids == "text" or not all(map(is_integer, fields[:2])):
        raise InputError(f"{text.path}: ids are texts, {_TEXTS}")
    weighted = len(fields) > 2
    begin, end = (
        _line_from(text, position, position + (text.size - position) * rank // processes.count)
        for rank in (processes.rank, processes.rank + 1)
    )
    require_memory(4 * (end - begin), f"a part of {text.path}")
    shape = LineShape(
        "SOURCE TARGET WEIGHT" if weighted else "SOURCE TARGET",
        WEIGHT_KINDS if weighted else (NONE,),
        comments=COMMENT_MARKS,
        comma=True,
    )
    ids = ANY_ID
    if comments.id_base is not None:
        ids = IdRange(comments.id_base, largest_vertex_count(), declared=False)
    none = np.empty(0, np.int64)
    sources, targets, weights = none, none, None
    if begin < end:
        try:
            (block,) = read_lines(PartOfText(text, begin, end), 0, shape, ids).blocks()
        except UnfitIdError as error:
            raise InputError(f"{error}; {_TEXTS}") from None
        sources, targets, weights = block
    if weighted:
        own = -1 if weights is None else _WEIGHT_DTYPES.index(weights.dtype)
        widest = max(0, int(processes.meet(own).max()))
        given = none if weights is None else weights
        weights = given.astype(_WEIGHT_DTYPES[widest], copy=False)
    return sources, targets, weights


_TEXTS = "which several processes do not read: write a .godwit file (command line: godwit convert)"


def _line_from(text: FileText, first: int, position: int) -> int:
    """Return where the first line begins that begins at a position or behind it."""
    if position <= first:
        return first
    if position >= text.size:
        return text.size
    return text.behind_line(position - 1)


def _number(
    processes: Processes, sources: Array, targets: Array, comments: Comments, text: FileText
) -> _Numbering:
    """Return the positions of ids; the rules are those of :func:`godwit.read`."""
    largest = max((int(column.max()) for column in (sources, targets) if len(column)), default=-1)
    largest = int(processes.meet(largest).max())
    declared = comments.vertex_count
    if comments.id_base is not None:  # which the scanner has subtracted
        return _Counted(processes, max(largest + 1, declared or 0), comments.id_base)
    if declared is not None and not comments.ids and largest < declared:
        return _Counted(processes, max(largest + 1, declared), 0)
    numbering = _Ranked(processes, [sources, targets])
    if declared is not None and numbering.vertex_count > declared:
        raise text.error(
            f"declares {declared} nodes, but {numbering.vertex_count} occur", comments.position
        )
    return numbering


class _Numbering:
    """Positions of the ids in a file.

    :ivar vertex_count: number of vertices of the whole graph
    :ivar is_range: True if all ids are consecutive integers
    """

    vertex_count: int
    is_range: bool

    def positions(self, ids: Array) -> Array:
        """Return the position of each id."""
        raise NotImplementedError

    def ids_of_part(self, bounds: Array) -> VertexIds:
        """Return the ids of this process' vertices; all processes call it."""
        raise NotImplementedError


class _Counted(_Numbering):
    """Vertices that the file counts, from a first id on, which is not a name."""

    def __init__(self, processes: Processes, count: int, base: int) -> None:
        self._processes = processes
        self.vertex_count = count
        self.is_range = True
        self._base = base

    def positions(self, ids: Array) -> Array:
        """Return the position of each id."""
        return ids

    def ids_of_part(self, bounds: Array) -> VertexIds:
        """Return the ids of this process' vertices: positions, which the file counts from its base."""
        own = own_ids(self._processes, bounds)
        own._base = self._base
        return own


class _Ranked(_Numbering):
    """Vertices are the ids that occur, in ascending order.

    Each process ranks a range of ids, of which the others ask it for the positions.
    """

    def __init__(self, processes: Processes, columns: list[Array]) -> None:
        self._processes = processes
        self._occurring = occurring = _distinct(columns)
        step = max(1, len(occurring) // _SAMPLES)
        sample = np.sort(np.concatenate(processes.share(occurring[::step])))
        at = len(sample) * np.arange(1, processes.count) // processes.count
        cuts = sample[at] if len(sample) else np.zeros(processes.count - 1, np.int64)
        ends = np.searchsorted(occurring, cuts)
        counts = np.diff(ends, prepend=0, append=len(occurring))
        asked, sizes, _ = processes.exchange(occurring, counts)
        self._ranked = np.unique(asked)
        mine = self._ranked
        low, high = (int(mine[0]), int(mine[-1])) if len(mine) else (2**62, -1)
        given = processes.meet(len(mine), low, high).copy()
        self.vertex_count = int(given[:, 0].sum())
        self._first = int(given[: processes.rank, 0].sum())
        span = int(given[:, 2].max()) - int(given[:, 1].min()) + 1
        self.is_range = self.vertex_count in (0, span)
        self._lowest = int(given[:, 1].min()) if self.vertex_count else 0
        if self.is_range:
            return
        answers = np.searchsorted(mine, asked) + self._first
        self._positions, _, _ = processes.exchange(answers, sizes)

    def positions(self, ids: Array) -> Array:
        """Return the position of each id."""
        if self.is_range:
            return ids - self._lowest if self._lowest else ids
        occurring = self._occurring
        if not len(ids):
            return ids
        lowest = int(occurring[0])
        span = int(occurring[-1]) - lowest + 1
        if span > _TABLE_PER_ID * len(ids):
            found: Array = self._positions[np.searchsorted(occurring, ids)]
            return found
        table = np.zeros(span, np.int64)
        table[occurring - lowest] = self._positions
        positions: Array = table[ids - lowest]
        return positions

    def ids_of_part(self, bounds: Array) -> VertexIds:
        """Return the ids of this process' vertices; all processes call it."""
        processes = self._processes
        if self.is_range:
            return own_ids(processes, bounds, self._lowest)
        positions = self._first + np.arange(len(self._ranked))
        owners = np.searchsorted(bounds, positions, side="right") - 1
        (own,) = to_owners(processes, owners, [self._ranked])
        return VertexIds.ascending(own)


def _distinct(columns: list[Array]) -> Array:
    """Return the integers that occur in some columns, each once, ascending: int64."""
    filled = [column for column in columns if len(column)]
    if not filled:
        return np.empty(0, np.int64)
    lowest = min(int(column.min()) for column in filled)
    span = max(int(column.max()) for column in filled) - lowest + 1
    if span > _TABLE_PER_ID * sum(map(len, filled)):
        return np.unique(np.concatenate([column.astype(np.int64) for column in filled]))
    occurs = np.zeros(span, np.bool_)
    for column in filled:
        occurs[column - lowest] = True
    return np.flatnonzero(occurs) + lowest
