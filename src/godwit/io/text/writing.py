"""Graphs as lines of text, in pieces of bounded size.

Integers are written exactly, floating-point numbers with as many digits as it takes to read the same
double again. Arcs, a line each, are columns that Arrow writes; the lines of neighbours are made by a
kernel of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from godwit.dtypes import Array, frozen
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.rows import thread_count_for
from godwit.io.format import require_consecutive_ids
from godwit.io.text.scanner import WORD_LENGTH_BITS
from godwit.runtime.cpu.atomics import load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, block_range, run_team

_ARCS_PER_PIECE = 1 << 20
LONGEST_ID_BYTES = 1 << WORD_LENGTH_BITS
_POLL_STEPS = 16_384

_NEWLINE = 10
_SPACE = 32
_MINUS = 45
_ZERO = 48

_MOST_DIGITS = 19  # of an int64


def require_integer_weights(graph: Graph, format: str) -> None:
    """Refuse to write weights with fractions where a format has none.

    :raises InputError: saying so
    """
    weights = graph.weights
    if weights is not None and weights.dtype.kind == "f":
        raise InputError(
            f"{format} cannot hold {weights.dtype} weights, only integers: convert them with "
            "graph.with_weights(...), or drop them with graph.without_weights() "
            "(command line: --drop weights)"
        )


def line_count(graph: Graph) -> int:
    """The number of edges of an undirected graph, of arcs of a directed one."""
    edges = graph.edge_count
    return graph.arc_count if edges is None else edges


def arc_pieces(graph: Graph, *, both: bool = False) -> Iterator[tuple[Array, Array, Array | None]]:
    """Sources, targets and weights of all arcs, in pieces; of an undirected graph each edge once.

    It is once among the arcs that do not go upwards, just as a self-loop is one arc.

    :param both: both arcs of each edge
    """
    offsets, targets, weights = graph.offsets, graph.targets, graph.weights
    for begin in range(0, graph.arc_count, _ARCS_PER_PIECE):
        end = min(begin + _ARCS_PER_PIECE, graph.arc_count)
        first = int(np.searchsorted(offsets, begin, "right")) - 1
        last = int(np.searchsorted(offsets, end, "left"))
        bounds = np.clip(offsets[first : last + 1], begin, end)
        sources = np.repeat(np.arange(first, last), np.diff(bounds))
        ends = targets[begin:end]
        carried = None if weights is None else weights[begin:end]
        if not graph.directed and not both:
            once = sources >= ends
            sources, ends = sources[once], ends[once]
            carried = None if carried is None else carried[once]
        yield sources, ends, carried


def write_arcs(
    graph: Graph,
    file: BinaryIO,
    *,
    prefix: str = "",
    base: int | None = None,
    separator: str = " ",
    both: bool = False,
) -> None:
    """Write a line for each arc, or edge: ``[prefix] SOURCE TARGET [WEIGHT]``.

    :param base: what the first vertex is called; None: vertices are called by their ids
    :param both: as of :func:`arc_pieces`
    """
    first = True
    for sources, targets, weights in arc_pieces(graph, both=both):
        if len(sources) == 0:
            continue
        columns = [_named(graph, sources, base), _named(graph, targets, base)]
        if weights is not None:
            columns.append(weights)
        if first:
            # Arrow writes 1.0 as 1: the first weight has a point, so that all are read as doubles.
            line = [str(_widened(column)[0]) for column in columns]
            file.write((separator.join([*([prefix] if prefix else []), *line]) + "\n").encode())
            columns = [column[1:] for column in columns]
            first = False
        _write_columns(columns, prefix, separator, file)


def _named(graph: Graph, vertices: Array, base: int | None) -> Any:
    """What vertices are called: int64 or an Arrow array of texts."""
    ids = graph.ids.in_file
    if base is None and ids.is_range:
        base = ids[0]
    if base is not None:
        return vertices.astype(np.int64) + base
    if ids.kind == "integer":
        return ids.stored[vertices]
    import pyarrow as pa

    return ids.to_arrow().take(pa.array(vertices))


def _write_columns(columns: list[Any], prefix: str, separator: str, file: BinaryIO) -> None:
    import pyarrow as pa
    from pyarrow import csv

    count = len(columns[0])
    if count == 0:
        return
    arrays = [pa.array(_widened(column)) for column in columns]
    if prefix:
        arrays.insert(0, pa.repeat(prefix, count))
    table = pa.table(arrays, names=[str(k) for k in range(len(arrays))])
    options = csv.WriteOptions(include_header=False, delimiter=separator, quoting_style="none")
    csv.write_csv(table, file, options)


def _widened(column: Any) -> Any:
    """float32 as the double that it is: its own shortest digits would be read as another one."""
    if isinstance(column, np.ndarray) and column.dtype == np.float32:
        return column.astype(np.float64)
    return column


def write_dimacs(graph: Graph, file: BinaryIO) -> None:
    """Write arcs with integer weights as DIMACS-9 has them, both of an undirected edge.

    :raises InputError: it has no weights or others, or ids of its own
    """
    require_consecutive_ids(graph, "DIMACS", 1)
    require_integer_weights(graph, "DIMACS")
    if not graph.is_weighted:
        raise InputError(
            "DIMACS arcs have weights, and the graph has none: add some with "
            "graph.with_weights(...) or graph.with_random_weights(...) "
            "(command line: --weights LOW..HIGH)"
        )
    file.write(f"p sp {graph.vertex_count} {graph.arc_count}\n".encode())
    write_arcs(graph, file, prefix="a", base=1, both=True)


def write_edge_list(graph: Graph, file: BinaryIO) -> None:
    """Write arcs, or each edge once, behind comments that say which, and how many there are.

    :raises InputError: an id cannot be read again, or a vertex without edges has an id that would be
        lost
    """
    _check_listable(graph)
    kind = "Directed" if graph.directed else "Undirected"
    head = f"# {kind} graph\n# Nodes: {graph.vertex_count} Edges: {line_count(graph)}\n"
    ids = graph.ids
    if ids.own:
        head += f"# Ids: {ids.kind}\n"
    elif ids.base > 0:
        head += f"# Ids: from {ids.base}\n"
    file.write(head.encode())
    write_arcs(graph, file)


def _check_listable(graph: Graph) -> None:
    """Refuse ids that an edge list cannot hold."""
    ids = graph.ids
    if not ids.own:
        return
    if graph.degree_statistics().isolated:
        raise InputError(
            "an edge list cannot hold the ids of vertices without edges, of which there are "
            f"{graph.degree_statistics().isolated:,}: drop the ids with graph.with_ids(0) "
            "(command line: --drop ids)"
        )
    if ids.kind == "object":
        raise InputError(
            "an edge list cannot hold ids that are Python objects: name the vertices by texts or "
            "integers with graph.with_ids(...), or drop the ids (command line: --drop ids)"
        )
    if ids.kind == "text":
        import pyarrow.compute as pc

        texts = ids.stored
        wrong = pc.match_substring_regex(texts, r'^$|^[#%]|[\x00-\x20,"]')
        wrong = pc.or_(wrong, pc.greater_equal(pc.binary_length(texts), LONGEST_ID_BYTES))
        at = pc.index(wrong, True).as_py()
        if at >= 0:
            raise InputError(
                f"an edge list cannot hold the id {shown(texts[at].as_py())}: ids must not be empty, "
                "begin with # or %, have blanks, commas, quotes or control characters in them, or be "
                f"of {LONGEST_ID_BYTES:,} bytes"
            )


def write_rows(
    graph: Graph,
    file: BinaryIO,
    *,
    base: int = 0,
    names: Array | None = None,
    headed: bool = False,
) -> None:
    """Write a line for each vertex: ``[VERTEX] NEIGHBOUR [WEIGHT] NEIGHBOUR [WEIGHT] …``.

    :param base: what the first vertex is called
    :param names: (n) int64: what vertices are called, in place of that
    :param headed: whether a line begins with the vertex itself
    """
    offsets, targets, weights = graph.offsets, graph.targets, graph.weights
    none = np.empty(0, np.int64)

    def named(vertices: Array) -> Array:
        return vertices.astype(np.int64) + base if names is None else names[vertices]

    row = arc = 0
    while row < graph.vertex_count:
        first, begin = row, arc
        limit = begin + _ARCS_PER_PIECE
        row = int(np.searchsorted(offsets, limit, "right")) - 1
        row = min(row, first + _ARCS_PER_PIECE)
        complete = row > first
        arc = int(offsets[row]) if complete else limit  # a row longer than a piece
        last = row if complete else first + 1
        _write_piece(
            np.minimum(offsets[first + 1 : last + 1], arc) - begin,
            named(np.arange(first, last)) if headed else none,
            named(targets[begin:arc]),
            none if weights is None else weights[begin:arc].astype(np.int64),
            begin > offsets[first],
            complete,
            file,
        )


def _write_piece(
    ends: Array,
    heads: Array,
    neighbours: Array,
    weights: Array,
    goes_on: bool,
    complete: bool,
    file: BinaryIO,
) -> None:
    """Write rows whose neighbours end at ``ends``.

    :param goes_on: the beginning of the first row has been written
    :param complete: the end of the last row belongs to the piece
    """
    threads = thread_count_for(len(neighbours) + len(ends))
    places = np.zeros(len(ends) + 1, np.int64)
    rows = (frozen(ends), frozen(heads), frozen(neighbours), frozen(weights), goes_on, complete)
    run_team(_make_rows, *rows, False, places, np.empty(0, np.uint8), threads=threads)
    np.cumsum(places, out=places)
    text = np.empty(int(places[-1]), np.uint8)
    run_team(_make_rows, *rows, True, places, text, threads=threads)
    file.write(text.data)


@kernel
def _make_rows(
    rank: int,
    size: int,
    control: Any,
    ends: Any,
    heads: Any,
    neighbours: Any,
    weights: Any,
    goes_on: bool,
    complete: bool,
    fill: bool,
    places: Any,
    text: Any,
) -> None:
    """Set ``places[row + 1]`` to the bytes of a row; or write it, if it begins at ``places[row]``."""
    first, last = block_range(rank, size, ends.size)
    for row in range(first, last):
        if row % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        to = places[row] if fill else np.int64(0)
        begins = row > 0 or not goes_on
        if begins and heads.size > 0:
            to = _put(text, to, heads[row], fill)
            begins = False
        for k in range(ends[row - 1] if row > 0 else 0, ends[row]):
            if not begins:
                to = _put_byte(text, to, _SPACE, fill)
            begins = False
            to = _put(text, to, neighbours[k], fill)
            if weights.size > 0:
                to = _put_byte(text, to, _SPACE, fill)
                to = _put(text, to, weights[k], fill)
        if complete or row < ends.size - 1:
            to = _put_byte(text, to, _NEWLINE, fill)
        if not fill:
            places[row + 1] = to


def _put_byte(text: Any, to: Any, byte: int, fill: bool) -> Any:
    """The position behind a byte, which is written there if ``fill``."""
    if fill:
        text[to] = byte
    return to + 1


def _put(text: Any, to: Any, number: Any, fill: bool) -> Any:
    """The position behind the digits of an integer, which are written there if ``fill``."""
    rest = np.uint64(number)
    if number < 0:
        rest = np.uint64(0) - rest
        to = _put_byte(text, to, _MINUS, fill)
    digits = 1
    power = np.uint64(10)
    while digits < _MOST_DIGITS and rest >= power:
        digits += 1
        power *= np.uint64(10)
    if fill:
        for at in range(to + digits - 1, to - 1, -1):
            text[at] = _ZERO + np.int64(rest % np.uint64(10))
            rest = rest // np.uint64(10)
    return to + digits
