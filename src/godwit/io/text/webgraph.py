"""WebGraph's ASCII form (.graph-txt): the number of vertices, then a line of successors for each.

Source: P. Boldi and S. Vigna, The WebGraph Framework I, WWW 2004; class ASCIIGraph of its software.
Vertices count from 0; successors ascend, and none occurs twice.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import BinaryIO

from godwit.errors import InputError
from godwit.graph.arcs import ArcList, ReadOptions
from godwit.graph.csr import Graph, assemble
from godwit.io.format import (
    Format,
    Head,
    require_consecutive_ids,
    require_no_weights,
    symmetric_graph,
)
from godwit.io.source import Source
from godwit.io.text.line_reader import IdRange, LineShape, check_vertex_count, read_lines
from godwit.io.text.writing import write_rows

_LINES = LineShape("SUCCESSOR ...", comments="", many=True, id_columns=1)
_MOST_DIGITS = 18


def recognize(head: Head) -> bool:
    """Return True if a file that begins like this is in this format.

    The first line must be a number. If the name does not end with .graph-txt, that number of lines with
    ascending successors must follow.
    """
    if not head.lines or not _is_number(head.lines[0]):
        return False
    if head.stem.endswith(".graph-txt"):
        return True
    n = int(head.lines[0])
    whole = head.size == len(head.content)
    rows = head.content.decode("utf-8-sig", "replace").lstrip().splitlines()[1:]
    rows = rows if whole else rows[:-1]
    if (len(rows) != n if whole else len(rows) > n) or not any(map(str.split, rows)):
        return False
    return all(
        all(map(_is_number, row)) and _ascends([-1, *map(int, row), n])
        for row in map(str.split, rows)
    )


def _is_number(word: str) -> bool:
    return word.isdecimal() and len(word) <= _MOST_DIGITS


def _ascends(numbers: list[int]) -> bool:
    return all(first < second for first, second in pairwise(numbers))


def read(source: Source, options: ReadOptions) -> Graph | ArcList:
    """Read arcs without weights.

    Directed; undirected if ``options.directed`` is False, and then each edge must be in the lists of
    both its ends.
    """
    text = source.text()
    position, line = next(((at, line) for at, line in text.lines() if line), (0, ""))
    if not _is_number(line):
        raise text.error("malformed first line, expected the number of vertices", position)
    vertex_count = int(line)
    check_vertex_count(text, vertex_count, position)
    ids = IdRange(0, vertex_count, declared=True)
    arcs = read_lines(text, text.behind_line(position), _LINES, ids, options.progress)
    if arcs.rows < vertex_count:
        raise text.error(
            f"declares {vertex_count} vertices, but the lines of {arcs.rows} follow: the file may be "
            "truncated",
            position,
        )
    text.release()
    listed = ArcList(arcs, vertex_count, directed=True)
    if options.directed is False:
        return symmetric_graph(assemble(listed, replace(options, directed=None)), text.path)
    return listed


def write(graph: Graph, file: BinaryIO) -> None:
    """Write arcs, both of an undirected edge.

    :raises InputError: there are weights, ids or parallel arcs
    """
    require_no_weights(graph, "WebGraph")
    require_consecutive_ids(graph, "WebGraph", 0)
    ascending = graph.merge_parallel_arcs()
    if ascending.arc_count != graph.arc_count:
        raise InputError(
            "WebGraph cannot hold parallel arcs: merge them with graph.merge_parallel_arcs()"
        )
    file.write(f"{graph.vertex_count}\n".encode())
    write_rows(ascending, file)


FORMAT = Format("webgraph-ascii", recognize, read, write, lists_arcs=True)
