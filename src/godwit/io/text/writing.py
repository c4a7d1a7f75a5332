"""Graphs as lines of text, in pieces of bounded size, made by Arrow.

Integers are written exactly, floating-point numbers with the digits that it takes to read the same
double again.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.errors import InputError
from godwit.graph.csr import Graph

_ARCS_PER_PIECE = 1 << 20


def require_integer_weights(graph: Graph, format: str) -> None:
    """Refuse to write weights with fractions to a format of integers.

    :raises InputError: the graph has some
    """
    weights = graph.weights
    if weights is not None and weights.dtype.kind == "f":
        raise InputError(
            f"{format} cannot hold {weights.dtype} weights, only integers: convert them with "
            "graph.with_weights(...), or drop them with graph.without_weights() "
            "(command line: --drop weights)"
        )


def line_count(graph: Graph) -> int:
    """Return the number of edges of an undirected graph, of arcs of a directed one."""
    edges = graph.edge_count
    return graph.arc_count if edges is None else edges


def write_arcs(
    graph: Graph,
    file: BinaryIO,
    *,
    prefix: str = "",
    base: int | None = None,
    both: bool = False,
) -> None:
    """Write a line for each arc, or edge: ``[prefix] SOURCE TARGET [WEIGHT]``.

    :param base: number of the first vertex; None: write ids
    :param both: write both arcs of each edge
    """
    first = True
    for sources, targets, weights in _arc_pieces(graph, both=both):
        if len(sources) == 0:
            continue
        columns = [_named(graph, sources, base), _named(graph, targets, base)]
        if weights is not None:
            columns.append(_as_double(weights))
        if first:
            # Arrow writes 1.0 as 1: the first weight has a point, so that all are read as doubles.
            line = [str(column[0]) for column in columns]
            file.write((" ".join([*([prefix] if prefix else []), *line]) + "\n").encode())
            columns = [column[1:] for column in columns]
            first = False
        _write_columns(columns, prefix, file)


def _arc_pieces(graph: Graph, *, both: bool) -> Iterator[tuple[Array, Array, Array | None]]:
    """Yield sources, targets and weights of all arcs, in pieces.

    :param both: if False, of an undirected graph those arcs that do not go upwards, which are each edge
        once (a self-loop is one arc)
    """
    offsets, targets, weights = graph.offsets, graph.targets, graph.weights
    for begin in range(0, graph.arc_count, _ARCS_PER_PIECE):
        end = min(begin + _ARCS_PER_PIECE, graph.arc_count)
        first = int(np.searchsorted(offsets, begin, "right")) - 1
        last = int(np.searchsorted(offsets, end, "left"))
        bounds = np.clip(offsets[first : last + 1], begin, end)
        heads = targets[begin:end]
        tails = np.repeat(np.arange(first, last), np.diff(bounds))
        piece_weights = None if weights is None else weights[begin:end]
        if not graph.directed and not both:
            once = tails >= heads
            tails, heads = tails[once], heads[once]
            piece_weights = None if piece_weights is None else piece_weights[once]
        yield tails, heads, piece_weights


def _named(graph: Graph, vertices: Array, base: int | None) -> Any:
    """Return the names of vertices: int64 or an Arrow array of texts."""
    ids = graph.ids.in_file
    if base is None and ids.is_range:
        base = ids[0]
    if base is not None:
        return vertices.astype(np.int64) + base
    if ids.kind == "integer":
        return ids.stored[vertices]
    import pyarrow as pa

    return ids.to_arrow().take(pa.array(vertices))


def _as_double(weights: Array) -> Array:
    """Return float32 as float64: its own shortest digits would be read as another double."""
    return weights.astype(np.float64) if weights.dtype == np.float32 else weights


def _write_columns(columns: list[Any], prefix: str, file: BinaryIO) -> None:
    import pyarrow as pa
    from pyarrow import csv

    count = len(columns[0])
    if count == 0:
        return
    arrays = [pa.array(column) for column in columns]
    if prefix:
        arrays.insert(0, pa.repeat(prefix, count))
    table = pa.table(arrays, names=[str(k) for k in range(len(arrays))])
    options = csv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
    csv.write_csv(table, file, options)


def write_rows(
    graph: Graph,
    file: BinaryIO,
    *,
    base: int = 0,
    names: Array | None = None,
    headed: bool = False,
) -> None:
    """Write a line for each vertex: ``[VERTEX] NEIGHBOUR [WEIGHT] NEIGHBOUR [WEIGHT] …``.

    :param base: number of the first vertex
    :param names: (n) int64: names of the vertices, instead of numbers
    :param headed: each line begins with the vertex itself
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    offsets, weights = graph.offsets, graph.weights

    def named(vertices: Array) -> Array:
        return vertices.astype(np.int64) + base if names is None else names[vertices]

    def lines(rows: tuple[int, int]) -> memoryview:
        first, last = rows
        begin, end = int(offsets[first]), int(offsets[last])
        numbers = named(graph.targets[begin:end])
        ends = offsets[first : last + 1] - begin
        if weights is not None:
            numbers = np.stack([numbers, weights[begin:end].astype(np.int64)], axis=1).reshape(-1)
            ends = 2 * ends
        if headed:
            numbers = np.insert(numbers, ends[:-1], named(np.arange(first, last)))
            ends = ends + np.arange(len(ends))
        words = pa.LargeListArray.from_arrays(ends, pa.array(numbers).cast(pa.large_string()))
        return joined([pc.binary_join(words, text_scalar(" ")), text_scalar("\n")])

    rows = _row_pieces(offsets)
    threads = config.thread_count()
    with ThreadPoolExecutor(threads) as pool:  # Arrow joins texts without the GIL
        for k in range(0, len(rows), threads):
            for text in pool.map(lines, rows[k : k + threads]):
                file.write(text)


def _row_pieces(offsets: Array) -> list[tuple[int, int]]:
    """Return ranges of rows with a bounded number of rows and arcs, or one row."""
    pieces = []
    first = 0
    while first < len(offsets) - 1:
        most = int(np.searchsorted(offsets, offsets[first] + _ARCS_PER_PIECE, "right")) - 1
        last = max(first + 1, min(most, first + _ARCS_PER_PIECE))
        pieces.append((first, last))
        first = last
    return pieces


def joined(columns: list[Any]) -> memoryview:
    """Return the texts of Arrow columns, row by row, without anything between them."""
    import pyarrow.compute as pc

    rows = pc.binary_join_element_wise(*columns, text_scalar(""))
    if len(rows) == 0:
        return memoryview(b"")
    _, offsets, characters = rows.buffers()
    ends = np.frombuffer(offsets, np.int64)
    return memoryview(characters)[int(ends[rows.offset]) : int(ends[rows.offset + len(rows)])]


def text_scalar(text: str) -> Any:
    """Return a text as an Arrow scalar."""
    import pyarrow as pa

    return pa.scalar(text, pa.large_string())
