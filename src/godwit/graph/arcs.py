"""Arcs on their way from a file or table to a graph: columns, in one block or in several.

A file that fits in memory comes as one block. A larger one comes as several, and is read several times:
for facts about the whole, to count the arcs of each row, and to fill the rows. So memory holds the graph
and one block, never the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from godwit import config
from godwit.arrays import arrow_array, numpy_array
from godwit.dtypes import Array, id_dtype_for
from godwit.errors import FormatError, InputError
from godwit.graph.ids import VertexIds
from godwit.graph.rows import Rows

# The table of occurring ids has at most 4 entries for each arc and 1/8 of the memory, at least 65,536.
_IDS_PER_ARC = 4
_SHARE_OF_MEMORY = 8
_SMALLEST_TABLE = 1 << 16
_FEW_IDS = 1000
_PIECE = 1 << 20  # ids that a thread marks at once

DECIMAL_INTEGER = r"-?[0-9]+(\.0+)?"
"""Regular expression of ids that are integers if all of a file are; pandas may write 1 as 1.0."""

Progress = Callable[[int, int, str], None]
"""Called at intervals, from the calling thread, with (bytes done, bytes in all, phase)."""


@dataclass(frozen=True)
class ReadOptions:
    """The user's options for reading a file or table; see :func:`godwit.read`.

    :param text_ids: False where ids must be integers, because arcs stream
    """

    id_base: int | None = None
    directed: bool | None = None
    weighted: bool | None = None
    columns: tuple[str, ...] | None = None
    relabel: bool | None = None
    weight_dtype: np.dtype[Any] | None = None
    progress: Progress | None = None
    text_ids: bool = True


class Block(NamedTuple):
    """Consecutive arcs of a file.

    :param sources: (k) ids: int32 or int64, or an Arrow array of texts
    """

    sources: Any
    targets: Any
    weights: Array | None


@dataclass(frozen=True)
class Arcs:
    """All arcs of a file.

    :ivar blocks: a function whose every call iterates over all blocks
    :ivar count: number of arcs
    :ivar weight_dtype: int32, int64, float32 or float64; None where there are no weights
    :ivar one_block: True if there is only one block
    """

    path: Path
    blocks: Callable[[], Iterable[Block]]
    count: int
    weight_dtype: np.dtype[Any] | None
    one_block: bool

    @property
    def weighted(self) -> bool:
        """True if arcs have weights."""
        return self.weight_dtype is not None

    def shifted(self, by: int) -> Self:
        """Return the arcs with ``by`` subtracted from every id."""
        return self.mapped(lambda vertices: vertices - by)

    def mapped(self, change: Callable[[Array], Array]) -> Self:
        """Return the arcs with ``change`` applied to every column of ids."""

        def blocks() -> Iterator[Block]:
            with ThreadPoolExecutor(2) as pool:
                for block in self.blocks():
                    sources, targets = pool.map(change, (block.sources, block.targets))
                    yield Block(sources, targets, block.weights)

        return replace(self, blocks=blocks)


@dataclass(frozen=True)
class ArcList:
    """A graph as a list of arcs between the vertices 0 to ``vertex_count - 1``.

    :ivar directed: False if each arc stands for an edge, which the file has once
    :ivar ids: the ids of the vertices, as of ``Graph(...)``
    :ivar unread: a sentence about what may belong to the graph and is not read, such as a column that
        might be weights; empty if there is nothing
    """

    arcs: Arcs
    vertex_count: int
    directed: bool
    ids: Any = 0
    unread: str = ""

    def to_rows(self, options: ReadOptions) -> tuple[Rows, bool]:
        """Return the rows of the graph, and whether it is directed; vertices are not checked.

        :raises FormatError: the options ask for weights that the file does not have
        :raises GraphTooLargeError: before anything large is allocated
        """
        from godwit.graph.blocks import rows_of_blocks  # which loads Numba

        arcs = self.arcs
        if options.weighted is True and not arcs.weighted:
            raise FormatError(arcs.path, "the file has no weights, and weighted=True asks for them")
        if options.weighted is False:
            arcs = _unweighted(arcs)
        if options.progress is not None:
            options.progress(1, 1, "building")
        both_directions = not self.directed or options.directed is False
        dtype = id_dtype_for(self.vertex_count)
        rows = rows_of_blocks(
            arcs.blocks,
            self.vertex_count,
            dtype,
            arcs.weight_dtype,
            both_directions,
            arcs.one_block,
        )
        return rows, not both_directions or options.directed is True

    def numbered(self) -> Self:
        """Return the arcs with their numbers in the list as weights: int64."""

        def blocks() -> Iterator[Block]:
            first = 0
            for block in self.arcs.blocks():
                end = first + len(block.targets)
                yield block._replace(weights=np.arange(first, end))
                first = end

        arcs = replace(self.arcs, blocks=blocks, weight_dtype=np.dtype(np.int64))
        return replace(self, arcs=arcs)


class IdTable:
    """The vertices of a file that lists all ids: integers, numbered in ascending order.

    :param listed: (n) int64, not negative, in any order
    :ivar ids: the ids of the vertices
    :ivar duplicate: an id that is listed twice; None if there is none
    """

    def __init__(self, listed: Array) -> None:
        ascending = np.sort(listed)
        again = np.flatnonzero(ascending[1:] == ascending[:-1])
        self.duplicate = int(ascending[again[0]]) if len(again) else None
        self.ids = VertexIds.ascending(ascending)
        self._set: Any = None
        if not self.ids.is_range:
            self._set = arrow_array(ascending)

    def vertices(self, ids: Array) -> Array:
        """Return the vertices with these ids; -1 where an id is not listed."""
        dtype = id_dtype_for(len(self.ids))
        if self._set is None:
            vertices = ids - (self.ids[0] if len(self.ids) else 0)
            vertices[(vertices < 0) | (vertices >= len(self.ids))] = -1
            return vertices.astype(dtype)
        import pyarrow.compute as pc

        indices = pc.index_in(arrow_array(ids), value_set=self._set)
        return numpy_array(indices.fill_null(-1)).astype(dtype, copy=False)


class OccurringIds:
    """The integers that occur in the columns of a file, as a table of flags while they are dense enough.

    The table has a byte for each integer up to the largest, at most 4 for each arc.

    :ivar compact: False once an id is negative or too large for the table, which is then dropped
    """

    def __init__(self) -> None:
        self.compact = True
        self._occurs: Array = np.zeros(0, np.bool_)
        self._marked = 0
        self._complete = False

    def add(self, columns: Sequence[Array], low: int, high: int, most_arcs: int) -> None:
        """Record that the ids in some columns (int32 or int64) occur.

        :param low: lower bound of these ids
        :param high: the largest of these ids
        :param most_arcs: upper bound of the number of arcs in the file
        """
        if not self.compact or all(len(column) == 0 for column in columns):
            return
        limit = min(_IDS_PER_ARC * most_arcs, config.available_memory_bytes() // _SHARE_OF_MEMORY)
        if low < 0 or high >= max(limit, _SMALLEST_TABLE):
            self.compact = False
            self._occurs = np.zeros(0, np.bool_)
            return
        if high >= len(self._occurs):
            grown = np.zeros(max(high + 1, 2 * len(self._occurs)), np.bool_)
            grown[: len(self._occurs)] = self._occurs
            self._occurs = grown
        self._marked, self._complete = 0, False
        pieces = [
            column[begin : begin + _PIECE]
            for column in columns
            for begin in range(0, len(column), _PIECE)
        ]
        mark = partial(self._mark, self._occurs[low : high + 1])
        with ThreadPoolExecutor(config.thread_count()) as pool:
            for _ in pool.map(mark, pieces):
                pass

    def _mark(self, between: Array, ids: Array) -> None:
        """Mark ids, unless all integers between the smallest and the largest are known to occur."""
        if self._complete:
            return
        self._occurs[ids] = True
        self._marked += len(ids)  # a race may lose a sum, which only delays the check
        if self._marked >= len(between):
            self._marked, self._complete = 0, bool(between.all())

    def vertices(self) -> tuple[VertexIds, Callable[[Array], Array] | None]:
        """Return the ids of the vertices, and a function from ids to vertices; None for a range."""
        occurring = np.flatnonzero(self._occurs)
        ids = VertexIds.ascending(occurring)
        if ids.is_range:
            return ids, None
        rank = np.cumsum(self._occurs, dtype=id_dtype_for(len(ids)))
        rank -= 1
        return ids, partial(np.take, rank, mode="clip")  # all ids are in range


def relabelled(
    arcs: Arcs, occurring: OccurringIds | None, options: ReadOptions, *, typed: bool = False
) -> tuple[Arcs, VertexIds]:
    """Return the arcs between vertices 0, 1, 2, …: the distinct ids of the file in ascending order.

    :param occurring: the integers that occur; None where ids are texts
    :param typed: False to convert texts to integers if all of them are integers of 64 bits
    :returns: the arcs, and the ids of the vertices
    :raises InputError: ids are texts, and ``options`` forbid them
    """
    if occurring is not None and occurring.compact:
        ids, vertices_of = occurring.vertices()
        if vertices_of is not None:
            return arcs.mapped(vertices_of), ids
        return (arcs.shifted(ids[0]) if ids.own else arcs), ids
    import pyarrow as pa
    import pyarrow.compute as pc

    def as_numbers(distinct: Any) -> Any:
        is_text = typed and not pa.types.is_integer(distinct.type)
        numbers = None if is_text else integers_in(distinct)
        if numbers is None and not options.text_ids:
            raise InputError(
                f"{arcs.path}: ids are texts, and edges stream between integers only: call "
                "godwit.read first (command line: leave out --stream)"
            )
        return numbers

    def encode() -> Iterator[tuple[list[Any], Array | None]]:
        # Most of the time goes into hashing the ids: each is hashed once, in two threads.
        with ThreadPoolExecutor(2) as pool:
            for block in arcs.blocks():
                columns = (_arrow(block.sources), _arrow(block.targets))
                yield list(pool.map(pc.dictionary_encode, columns)), block.weights

    held = list(encode()) if arcs.one_block else None
    distinct: Any = pa.nulls(0, pa.int64())
    for distinct in _distinct(columns for columns, _ in (encode() if held is None else held)):
        if not (options.text_ids or pa.types.is_integer(distinct.type)):
            as_numbers(distinct)  # texts are refused before they are many
    numbers = as_numbers(distinct)
    if numbers is not None:
        stored = np.sort(numpy_array(pc.unique(numbers)))
        ids = VertexIds.ascending(stored)
    else:
        distinct = distinct.take(pc.sort_indices(distinct))
        ids = VertexIds.trusted("text", distinct)

    def vertices(column: Any) -> Array:
        if numbers is not None:
            positions = _search_sorted(stored, numpy_array(integers_in(column.dictionary)))
        else:
            indices = pc.index_in(column.dictionary, value_set=distinct)
            positions = numpy_array(indices)
        vertices: Array = positions[numpy_array(column.indices)]
        return vertices

    def blocks() -> Iterable[Block]:
        for columns, weights in encode() if held is None else held:
            yield Block(vertices(columns[0]), vertices(columns[1]), weights)

    return replace(arcs, blocks=blocks), ids


def _distinct(blocks: Iterable[list[Any]]) -> Iterator[Any]:
    """Yield the distinct values of encoded columns: of those read so far at intervals, of all at the end.

    New values are merged when there are as many as merged ones, so that each is hashed a few times only.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    merged: list[Any] = []
    new: list[Any] = []
    for columns in blocks:
        new += [column.dictionary for column in columns]
        if sum(map(len, new)) >= sum(map(len, merged)):
            merged, new = [pc.unique(pa.chunked_array([*merged, *new]))], []
            yield merged[0]
    if new:
        yield pc.unique(pa.chunked_array([*merged, *new]))


def _search_sorted(ascending: Array, values: Array) -> Array:
    """Return the positions of values, searched for in ascending order, which is kind to caches."""
    order = np.argsort(values)
    positions: Array = np.empty(len(values), np.int64)
    positions[order] = np.searchsorted(ascending, values[order])
    return positions


def integers_in(distinct: Any) -> Any:
    """Return ids as int64 (Arrow), or None if one is no integer; texts 7, 07 and 7.0 are one integer."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_integer(distinct.type):
        # Arrow takes hexadecimal numbers, too. Names are mostly seen among the first ids.
        for some in (distinct[:_FEW_IDS], distinct):
            decimal = pc.match_substring_regex(some, rf"^{DECIMAL_INTEGER}$")
            if not pc.all(decimal, min_count=0).as_py():
                return None
        distinct = pc.replace_substring_regex(distinct, r"\.0+$", "")
    try:
        return distinct.cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def _unweighted(arcs: Arcs) -> Arcs:
    def blocks() -> Iterable[Block]:
        for block in arcs.blocks():
            yield block._replace(weights=None)

    return replace(arcs, blocks=blocks, weight_dtype=None)


def _arrow(ids: Any) -> Any:
    return arrow_array(ids.astype(np.int64)) if isinstance(ids, np.ndarray) else ids
