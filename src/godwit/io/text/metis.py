"""METIS and DIMACS-10 files (.graph): line v + 1 holds the neighbours of vertex v, counted from 1.

Sources: METIS user's guide, 4.0 and 5.1, section "graph file"; 10th DIMACS Implementation
Challenge, downloads, "graph format". In the header ``VERTICES EDGES [FMT [NCON]]`` the digits of FMT
declare what lines have besides neighbours: 1 weights of edges, 10 NCON weights of the vertex, 100 a
size of the vertex. An edge is in the lists of both its ends.

DIMACS-10 has graphs with self-loops and parallel edges, which METIS has not. There EDGES is the number
of all entries, and FMT 100 declares that instead of sizes. The GAP suite writes directed graphs like
that. The number of entries decides between the two.
"""

from __future__ import annotations

import re
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from godwit.errors import DirectionWarning, FormatError
from godwit.graph.arcs import ArcList, ReadOptions
from godwit.graph.csr import Graph, assemble
from godwit.graph.ids import VertexIds
from godwit.io.format import (
    Format,
    Head,
    require_consecutive_ids,
    require_undirected,
    symmetric_graph,
)
from godwit.io.source import Source
from godwit.io.text.line_reader import (
    IdRange,
    LineShape,
    ScannedArcs,
    check_vertex_count,
    entry_count,
    read_lines,
)
from godwit.io.text.lines import Text
from godwit.io.text.scanner import INTEGER_32, INTEGER_64, NONE, REAL
from godwit.io.text.writing import require_integer_weights, write_rows

_WEIGHTS = (INTEGER_32, INTEGER_64, REAL)
_HEADER = re.compile(r"([0-9]{1,18})\s+([0-9]{1,18})(?:\s+([01]{1,3})(?:\s+([0-9]{1,4}))?)?")


class _Header(NamedTuple):
    """The header line.

    :ivar vertex_weights: number of weights of a vertex
    :ivar hundreds: sizes of vertices, or self-loops and parallel edges
    """

    position: int
    vertices: int
    edges: int
    edge_weights: bool
    vertex_weights: int
    hundreds: bool


def recognize(head: Head) -> bool:
    """Return True if a file that begins like this is in this format.

    The first line must be a header. If the name does not end with .graph, what follows must be
    neighbours as it declares: edge lists begin with two or three numbers, too.
    """
    lines = head.lines[1:] if head.lines and head.lines[0].startswith("%") else head.lines
    if not lines or _HEADER.fullmatch(lines[0]) is None:
        return False
    if head.stem.endswith(".graph"):
        return True
    header = _parsed(lines[0], 0)
    text = head.content.decode("utf-8-sig", "replace")
    rows = [row.split() for row in text.splitlines() if not row.lstrip().startswith("%")]
    first = next(k for k, row in enumerate(rows) if row) + 1
    if head.size == len(head.content):
        return _is_consistent(header, rows[first:])
    return _can_go_on(header, rows[first:-1])


def _can_go_on(header: _Header, rows: list[list[str]]) -> bool:
    """Return True if the first lines can be the neighbours that a header declares, and not arcs."""
    words = [word for row in rows for word in row]
    most = _lead(header, True) * header.vertices + _step(header) * 2 * header.edges
    return (
        max(map(len, rows), default=0) > 3
        and all(map(str.isdecimal, words))
        and len(rows) <= header.vertices
        and len(words) <= most
    )


def _is_consistent(header: _Header, rows: list[list[str]]) -> bool:
    """Return True if lines are all the neighbours that a header declares."""
    n, step = header.vertices, _step(header)
    if any(rows[n:]) or len(rows) < n - 1:
        return False
    count = sum(map(len, rows))
    possible = [(False, 2)] + [(False, 1), (True, 2)] * header.hundreds
    for sizes, entries in possible:
        lead = _lead(header, sizes)
        if count == lead * n + step * entries * header.edges:
            arcs = {(str(v), u) for v, row in enumerate(rows, 1) for u in row[lead::step]}
            loops = header.hundreds and not sizes
            known = set(map(str, range(1, n + 1)))
            return all((u, v) in arcs and u in known and (loops or u != v) for v, u in arcs)
    return False


def _lead(header: _Header, sizes: bool) -> int:
    """Return how many numbers of a line precede the first neighbour."""
    return header.vertex_weights + (header.hundreds and sizes)


def _step(header: _Header) -> int:
    """Return how many numbers an entry has: the neighbour and perhaps a weight."""
    return 2 if header.edge_weights else 1


def read(source: Source, options: ReadOptions) -> Graph:
    """Read a graph; its weights, if any, are int32 or int64, or float64 if one of them has a fraction.

    Sizes and weights of vertices must be there if the header declares them, and are dropped. The graph
    is undirected, unless the header's edge count is that of all listed neighbours and some edge is
    listed in one direction only: then it is directed, of which ``errors.DirectionWarning`` warns unless
    ``options.directed`` says which it is. The id of the first vertex is
    ``options.id_base``; None: 1.
    """
    text = source.text()
    header = _read_header(text)
    check_vertex_count(text, header.vertices, header.position)
    begin = text.behind_line(header.position)
    shape = LineShape(
        _expected(header),
        _WEIGHTS if header.edge_weights else (NONE,),
        many=True,
        id_columns=1,
        skipped=_lead(header, False),
    )
    if header.hundreds:
        words = entry_count(text, begin, replace(shape, kinds=(NONE,)))
        if words not in (_step(header) * header.edges, _step(header) * 2 * header.edges):
            shape = replace(shape, skipped=_lead(header, True), expected=f"SIZE {shape.expected}")
    base = 1 if options.id_base is None else options.id_base
    ids = IdRange(base, header.vertices, declared=True)
    arcs = read_lines(text, begin, shape, ids, options.progress)
    _check_counts(text, header, arcs)
    text.release()
    listed = ArcList(
        arcs, header.vertices, directed=True, ids=VertexIds.counted(header.vertices, base)
    )
    graph = assemble(listed, replace(options, directed=None))
    if arcs.count == header.edges:
        with suppress(FormatError):
            return symmetric_graph(graph, text.path)
        if options.directed is None:
            warnings.warn(_described_direction(text.path), DirectionWarning, stacklevel=4)
        return graph
    return symmetric_graph(graph, text.path)


def _described_direction(path: Path) -> str:
    """Return the warning about a file whose edges are not all in two lists."""
    return (
        f"{path}: METIS has each edge in the lists of both its ends, and this file does not: it is read "
        "as a directed graph, of as many arcs as the header has edges (directed=True says that this is "
        "meant, directed=False that each edge is listed once; graph.symmetrize() makes one edge of all "
        "arcs between two vertices; command line: --directed, --undirected)"
    )


def _check_counts(text: Text, header: _Header, arcs: ScannedArcs) -> None:
    """Refuse other numbers of lines and neighbours than declared."""
    # The blank line of a last vertex without neighbours may lack its newline.
    if arcs.rows < header.vertices - 1:
        raise text.error(
            f"declares {header.vertices} vertices, but the lines of {arcs.rows} follow: the file "
            "may be truncated",
            header.position,
        )
    if arcs.count in (header.edges, 2 * header.edges):
        return
    # Some programs count self-loops as edges, though they are in one list.
    loops = sum(int(np.count_nonzero(block.sources == block.targets)) for block in arcs.blocks())
    if arcs.count + loops != 2 * header.edges:
        problem = (
            "the file may be truncated" if arcs.count < 2 * header.edges else "the header is wrong"
        )
        raise text.error(
            f"declares {header.edges} edges, each in two lists, but {arcs.count} neighbours "
            f"follow: {problem}",
            header.position,
        )


def _read_header(text: Text) -> _Header:
    for position, line in text.lines():
        if line and not line.startswith("%"):
            if _HEADER.fullmatch(line) is None:
                break
            return _parsed(line, position)
    else:
        position = 0
    raise text.error("malformed header, expected VERTICES EDGES [FMT [NCON]]", position)


def _parsed(line: str, position: int) -> _Header:
    match = _HEADER.fullmatch(line)
    assert match is not None
    hundreds, tens, ones = (digit == "1" for digit in (match[3] or "0").zfill(3))
    constraints = int(match[4]) if match[4] else 1
    vertex_weights = constraints if tens else 0
    return _Header(position, int(match[1]), int(match[2]), ones, vertex_weights, hundreds)


def _expected(header: _Header) -> str:
    weights = header.vertex_weights
    lead = "WEIGHT " * weights if weights <= 3 else f"{weights} WEIGHTS "
    return f"{lead}{'NEIGHBOUR WEIGHT ...' if header.edge_weights else 'NEIGHBOUR ...'}"


def write(graph: Graph, file: BinaryIO) -> None:
    """Write an undirected graph with integer weights, or none.

    One with self-loops or parallel edges is written as in DIMACS-10.

    :raises InputError: it is directed, or has ids or other weights
    """
    require_undirected(graph, "METIS")
    require_consecutive_ids(graph, "METIS", 1)
    require_integer_weights(graph, "METIS")
    simple = graph.remove_self_loops().merge_parallel_arcs().arc_count == graph.arc_count
    flags = f"{'' if simple else '10'}{'1' if graph.is_weighted else '' if simple else '0'}"
    edges = graph.arc_count // 2 if simple else graph.arc_count
    file.write(f"{graph.vertex_count} {edges} {flags}".strip().encode() + b"\n")
    write_rows(graph, file, base=1)


FORMAT = Format("metis", recognize, read, write, options=frozenset({"id_base"}))
