"""Arcs on their way from a file to a graph: columns, in one block or in many.

A file that fits in memory comes as one block. A larger one comes as many, and is gone through
several times: for what is said of the whole, to count the arcs of each row, and to fill the rows. So
memory holds the graph and a block, never the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from godwit.dtypes import Array, id_dtype_for
from godwit.errors import FormatError, InputError
from godwit.graph.blocks import rows_of_blocks
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.listed_ids import OccurringIds
from godwit.graph.read_options import ReadOptions


class Block(NamedTuple):
    """Some arcs of a file, in the order of the file."""

    sources: Any
    """(k) ids: int32 or int64, or an Arrow array of texts."""
    targets: Any
    weights: Array | None


@dataclass(frozen=True)
class Arcs:
    """All arcs of a file.

    :ivar blocks: goes through them from the beginning, each time it is called
    :ivar count: how many there are
    :ivar weight_dtype: int32, int64, float32 or float64; None where there are no weights
    :ivar one_block: whether they come as one block
    """

    path: Path
    blocks: Callable[[], Iterable[Block]]
    count: int
    weight_dtype: np.dtype[Any] | None
    one_block: bool

    @property
    def weighted(self) -> bool:
        """Whether arcs have weights."""
        return self.weight_dtype is not None

    def shifted(self, by: int) -> Self:
        """The same arcs between vertices whose numbers are smaller."""
        return self.mapped(lambda vertices: vertices - by)

    def mapped(self, change: Callable[[Array], Array]) -> Self:
        """The same arcs between vertices of other numbers."""

        def blocks() -> Iterator[Block]:
            with ThreadPoolExecutor(2) as pool:
                for block in self.blocks():
                    sources, targets = pool.map(change, (block.sources, block.targets))
                    yield Block(sources, targets, block.weights)

        return replace(self, blocks=blocks)


@dataclass(frozen=True)
class Listed:
    """What a format reads that lists arcs: those between the vertices 0 to ``vertex_count - 1``.

    :ivar directed: False: each arc is an edge, which the file has once
    :ivar ids: of the vertices; 0 for none of their own
    """

    arcs: Arcs
    vertex_count: int
    directed: bool
    ids: Any = 0


def assemble(listed: Listed, options: ReadOptions) -> Graph:
    """The graph made of arcs whose ids are vertices (not checked here).

    :raises GraphTooLargeError: before anything large is allocated
    """
    arcs, vertex_count = listed.arcs, listed.vertex_count
    if options.weighted is True and not arcs.weighted:
        raise FormatError(arcs.path, "the file has no weights, and weighted=True asks for them")
    if options.weighted is False:
        arcs = _unweighted(arcs)
    if options.progress is not None:
        options.progress(1, 1, "building")
    both_directions = not listed.directed or options.directed is False
    dtype = id_dtype_for(vertex_count)
    rows = rows_of_blocks(
        arcs.blocks, vertex_count, dtype, arcs.weight_dtype, both_directions, arcs.one_block
    )
    stays_undirected = both_directions and options.directed is not True
    return Graph.trusted(*rows, directed=not stays_undirected, ids=listed.ids)


def relabelled(
    arcs: Arcs, occurring: OccurringIds | None, options: ReadOptions, *, typed: bool = False
) -> tuple[Arcs, VertexIds]:
    """The same arcs between the vertices 0, 1, 2, …: the distinct ids of the file in ascending order.

    :param occurring: which integers the ids are; None where they are texts
    :param typed: whether texts are meant as such; if not, those that are all integers of 64 bits are
        integers
    :raises InputError: ids are texts, and ``options`` have no room for them
    """
    if occurring is not None and occurring.compact:
        ids, vertices_of = occurring.vertices()
        if vertices_of is not None:
            return arcs.mapped(vertices_of), ids
        return (arcs.shifted(ids[0]) if ids.own else arcs), ids
    import pyarrow as pa
    import pyarrow.compute as pc

    def as_numbers(distinct: Any) -> Any:
        found = None if typed and not pa.types.is_integer(distinct.type) else _as_numbers(distinct)
        if found is None and not options.text_ids:
            raise InputError(
                f"{arcs.path}: ids are texts, and edges stream between integers only: call "
                "godwit.read first (command line: leave out --stream)"
            )
        return found

    def encode() -> Iterator[tuple[list[Any], Array | None]]:
        # Ids are hashed once, in two threads: most of the time goes into that.
        with ThreadPoolExecutor(2) as pool:
            for block in arcs.blocks():
                columns = (_arrow(block.sources), _arrow(block.targets))
                yield list(pool.map(pc.dictionary_encode, columns)), block.weights

    held = list(encode()) if arcs.one_block else None
    distinct: Any = pa.array([], pa.int64())
    for distinct in _distinct(columns for columns, _ in (encode() if held is None else held)):
        if not (options.text_ids or pa.types.is_integer(distinct.type)):
            as_numbers(distinct)  # texts are refused before they are many
    numbers = as_numbers(distinct)
    if numbers is not None:
        stored = np.sort(pc.unique(numbers).to_numpy(zero_copy_only=False))
        ids = VertexIds.ascending(stored)
    else:
        distinct = distinct.take(pc.sort_indices(distinct))
        ids = VertexIds.trusted("text", distinct)

    def vertices(column: Any) -> Array:
        if numbers is not None:
            found = _found_in(stored, column.dictionary.cast(pa.int64()).to_numpy())
        else:
            found = pc.index_in(column.dictionary, value_set=distinct).to_numpy(
                zero_copy_only=False
            )
        vertices: Array = found[column.indices.to_numpy()]
        return vertices

    def blocks() -> Iterable[Block]:
        for columns, weights in encode() if held is None else held:
            yield Block(vertices(columns[0]), vertices(columns[1]), weights)

    return replace(arcs, blocks=blocks), ids


def _distinct(blocks: Iterable[list[Any]]) -> Iterator[Any]:
    """All values in blocks of encoded columns, each once: of those so far now and then, of all in the end.

    They are merged when as many have come as there were, so that each is hashed a few times only.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    merged: list[Any] = []
    came: list[Any] = []
    for columns in blocks:
        came += [column.dictionary for column in columns]
        if sum(map(len, came)) >= sum(map(len, merged)):
            merged, came = [pc.unique(pa.chunked_array([*merged, *came]))], []
            yield merged[0]
    if came:
        yield pc.unique(pa.chunked_array([*merged, *came]))


def _found_in(ascending: Array, values: Array) -> Array:
    """Where the values are: looked for in ascending order, which caches like."""
    order = np.argsort(values)
    found: Array = np.empty(len(values), np.int64)
    found[order] = np.searchsorted(ascending, values[order])
    return found


def _as_numbers(distinct: Any) -> Any:
    """The ids as int64 (Arrow), or None if they are not; texts such as 7 and 07 are one number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_integer(distinct.type):
        # Arrow takes hexadecimal numbers, too.
        decimal = pc.match_substring_regex(distinct, "^-?[0-9]+$")
        if not pc.all(decimal, min_count=0).as_py():
            return None
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
    import pyarrow as pa

    return pa.array(ids.astype(np.int64)) if isinstance(ids, np.ndarray) else ids
