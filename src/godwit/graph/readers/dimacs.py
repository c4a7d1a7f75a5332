"""DIMACS-9 shortest-path files (.gr): ``a SOURCE TARGET WEIGHT`` behind ``p sp VERTICES ARCS``.

Source: 9th DIMACS Implementation Challenge, file formats. There ids count from 1 and the problem
line is obligatory. Files without it are in use too, and then some count from 0: if id 0 occurs, the
file does.
"""

from __future__ import annotations

import re

from godwit.graph.readers.parsed import ParsedGraph
from godwit.graph.readers.scanner import INTEGER_32, INTEGER_64, REAL
from godwit.graph.readers.text import (
    ArcLines,
    IdRange,
    Progress,
    Text,
    check_arc_count,
    check_vertex_count,
    largest_vertex_count,
    read_arcs,
)

_LINES = ArcLines("a SOURCE TARGET WEIGHT", prefix="a", comments="c")
_WEIGHTS = (INTEGER_32, INTEGER_64, REAL)
_NUMBER = r"([0-9]{1,18})"


def recognize(lines: list[str]) -> bool:
    """Whether a file whose first lines are these is in this format."""
    return re.match(r"c(\W|$)|p\s+[a-z]|a\s+[0-9-]", lines[0]) is not None


def parse(text: Text, id_base: int | None, progress: Progress | None) -> ParsedGraph:
    """Arcs with integer weights (float64 if one of them has a fraction); directed.

    :param id_base: what the first vertex is called; None: 1 if there is a problem line, else 0 if
        that id occurs, else 1
    """
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
        return _parse_without_problem_line(text, begin, id_base, progress)
    position, vertex_count, arc_count = problem
    check_vertex_count(text, vertex_count, position)
    base = 1 if id_base is None else id_base
    arcs = read_arcs(text, begin, _LINES, IdRange(base, vertex_count, True), _WEIGHTS, progress)
    check_arc_count(text, arc_count, len(arcs.sources), position, "arcs")
    return ParsedGraph(arcs, vertex_count, directed=True, id_base=base)


def _problem_line(text: Text, position: int, line: str) -> tuple[int, int]:
    match = re.fullmatch(rf"p\s+sp\s+{_NUMBER}\s+{_NUMBER}", line)
    if match is None:
        raise text.error("malformed problem line, expected p sp VERTICES ARCS", position)
    return int(match[1]), int(match[2])


def _parse_without_problem_line(
    text: Text, begin: int, id_base: int | None, progress: Progress | None
) -> ParsedGraph:
    base = 0 if id_base is None else id_base
    ids = IdRange(base, largest_vertex_count(), False)
    arcs = read_arcs(text, begin, _LINES, ids, _WEIGHTS, progress)
    if len(arcs.sources) == 0:
        raise text.error("there are neither arcs nor a problem line (p sp VERTICES ARCS)")
    if id_base is None and arcs.min_id > 0:
        base = 1
        arcs.sources[:] -= 1
        arcs.targets[:] -= 1
    return ParsedGraph(arcs, arcs.max_id + 1 - base, directed=True, id_base=base)
