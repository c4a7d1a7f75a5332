"""Edge lists: ``SOURCE TARGET`` or ``SOURCE TARGET WEIGHT`` on each line (SNAP's, .el, .wel, .csv).

Columns are separated by blanks, or by a comma; lines that begin with # or % are comments. The first
arc decides whether there are weights. Ids are taken as they are: n is the largest plus one.
"""

from __future__ import annotations

import re

from godwit.graph.readers.parsed import ParsedGraph
from godwit.graph.readers.scanner import INTEGER_32, INTEGER_64, NONE, REAL
from godwit.graph.readers.text import (
    ArcLines,
    IdRange,
    Progress,
    Text,
    largest_vertex_count,
    read_arcs,
)

_COMMENTS = "#%"
_WEIGHTS = (INTEGER_32, INTEGER_64, REAL)
_SEPARATOR = r"\s*,\s*|\s+"
_ARC = re.compile(rf"-?[0-9]+({_SEPARATOR})-?[0-9]+(({_SEPARATOR})[-+.0-9a-zA-Z]+)?")


def recognize(lines: list[str]) -> bool:
    """Whether a file whose first lines are these is in this format.

    The first arc must be right, and no line may have more than three columns: files of other
    formats begin with two or three numbers too. What else is wrong is better reported as a line.
    """
    arcs = [line for line in lines if line[0] not in _COMMENTS]
    return bool(arcs) and _ARC.fullmatch(arcs[0]) is not None and max(map(_columns, arcs)) <= 3


def parse(text: Text, id_base: int | None, progress: Progress | None) -> ParsedGraph:
    """Arcs, with int32, int64 or float64 weights if there is a third column; directed.

    :param id_base: what the first vertex is called; None: 0
    """
    lines_of_arcs = ((at, line) for at, line in text.lines() if line and line[0] not in _COMMENTS)
    position, line = next(lines_of_arcs, (-1, ""))
    if position < 0:
        raise text.error("there are no arcs, only comments")
    weighted = _columns(line) > 2
    lines = ArcLines(
        "SOURCE TARGET WEIGHT" if weighted else "SOURCE TARGET", comments=_COMMENTS, comma=True
    )
    base = 0 if id_base is None else id_base
    ids = IdRange(base, largest_vertex_count(), False)
    found = read_arcs(text, position, lines, ids, _WEIGHTS if weighted else (NONE,), progress)
    return ParsedGraph(found, max(found.max_id + 1 - base, 0), directed=True, id_base=base)


def _columns(line: str) -> int:
    return len(re.split(_SEPARATOR, line))
