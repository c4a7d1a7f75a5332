"""DIMACS-9 shortest-path files (.gr): ``a SOURCE TARGET WEIGHT`` behind ``p sp VERTICES ARCS``.

Source: 9th DIMACS Implementation Challenge, file formats. There ids count from 1 and the problem
line is obligatory. Files without it are in use too, and some of these count from 0: those in which
id 0 occurs.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from godwit.errors import InputError
from godwit.graph.arcs import ArcList, ReadOptions
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.io.format import Format, Head, require_consecutive_ids
from godwit.io.source import Source
from godwit.io.text.line_reader import (
    IdRange,
    LineShape,
    check_arc_count,
    check_vertex_count,
    largest_vertex_count,
    read_lines,
)
from godwit.io.text.lines import Text
from godwit.io.text.scanner import INTEGER_32, INTEGER_64, REAL
from godwit.io.text.writing import require_integer_weights, write_arcs

_LINES = LineShape(
    "a SOURCE TARGET WEIGHT", (INTEGER_32, INTEGER_64, REAL), prefix="a", comments="c"
)
_NUMBER = r"([0-9]{1,18})"


def recognize(head: Head) -> bool:
    """Return True if a file that begins like this is in this format."""
    if not head.lines:
        return False
    words = [re.split(r"\s+", line, flags=re.ASCII) for line in head.lines]
    others = [line for line in words if line[0] != "c"]
    if not others:  # comments only, unless it is a list of edges from a vertex c
        return any(len(line) not in (2, 3) for line in words)
    first = others[0]
    if words[0][0] not in ("c", "p", "a"):
        return False
    if first[0] == "p":
        return len(first) > 2 or head.stem.endswith(".gr")
    return first[0] == "a" and len(first) > 2 and first[1].isdecimal() and first[2].isdecimal()


def read(source: Source, options: ReadOptions) -> ArcList:
    """Read arcs with integer weights (float64 if one of them has a fraction); directed.

    The first vertex is called ``options.id_base``; None: 1 if there is a problem line, else 0 if that
    id occurs, else 1.
    """
    text = source.text()
    begin = text.size
    problem = None
    for position, line in text.lines():
        if line.startswith("p"):
            if problem is not None:
                raise text.error("a second problem line", position)
            problem = (position, *_problem_line(text, position, line))
        elif line and not line.startswith("c"):
            begin = position
            break
    if problem is None:
        return _read_without_problem_line(text, begin, options)
    position, vertex_count, arc_count = problem
    check_vertex_count(text, vertex_count, position)
    base = 1 if options.id_base is None else options.id_base
    ids = IdRange(base, vertex_count, declared=True)
    arcs = read_lines(text, begin, _LINES, ids, options.progress)
    check_arc_count(text, arc_count, arcs.count, position, "arcs")
    text.release()
    return ArcList(arcs, vertex_count, directed=True, ids=VertexIds.counted(vertex_count, base))


def _problem_line(text: Text, position: int, line: str) -> tuple[int, int]:
    match = re.fullmatch(rf"p\s+sp\s+{_NUMBER}\s+{_NUMBER}", line)
    if match is None:
        raise text.error("malformed problem line, expected p sp VERTICES ARCS", position)
    return int(match[1]), int(match[2])


def _read_without_problem_line(text: Text, begin: int, options: ReadOptions) -> ArcList:
    base = 0 if options.id_base is None else options.id_base
    ids = IdRange(base, largest_vertex_count(), declared=False)
    arcs = read_lines(text, begin, _LINES, ids, options.progress)
    if arcs.count == 0:
        raise text.error("there are neither arcs nor a problem line (p sp VERTICES ARCS)")
    text.release()
    if options.id_base is None and arcs.min_id > 0:
        base = 1
        arcs = arcs.shifted(1)
    count = arcs.max_id + 1 - base
    return ArcList(arcs, count, directed=True, ids=VertexIds.counted(count, base))


def write(graph: Graph, file: BinaryIO) -> None:
    """Write arcs with integer weights as in DIMACS-9, both of an undirected edge.

    :raises InputError: it has no weights or others, or ids
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


FORMAT = Format("dimacs", recognize, read, write, options=frozenset({"id_base"}), lists_arcs=True)
