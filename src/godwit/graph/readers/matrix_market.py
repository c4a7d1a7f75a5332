"""Matrix Market coordinate files (.mtx): entry (i, j) is an arc from i to j.

Source: R. Boisvert, R. Pozo, K. Remington, The Matrix Market Exchange Formats, NISTIR 5935 (1996).
Ids count from 1. A symmetric matrix has each off-diagonal entry once: an undirected graph.
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
    check_arc_count,
    check_vertex_count,
    read_arcs,
)

_BANNER = "%%matrixmarket"
_NUMBER = r"([0-9]{1,18})"
_WEIGHTS = {
    "pattern": (NONE,),
    "integer": (INTEGER_32, INTEGER_64),
    "unsigned-integer": (INTEGER_32, INTEGER_64),
    "real": (REAL,),
    "double": (REAL,),
}


def recognize(lines: list[str]) -> bool:
    """Whether a file whose first lines are these is in this format."""
    return lines[0].lower().startswith(_BANNER)


def parse(text: Text, id_base: int | None, progress: Progress | None) -> ParsedGraph:
    """Entries of a square matrix; without weights for a pattern, float64 for a real matrix.

    :param id_base: what the first row is called; None: 1
    """
    lines = text.lines()
    position, banner = next(lines)
    field, symmetric = _read_banner(text, position, banner)
    position, line = next(((at, line) for at, line in lines if line and line[0] != "%"), (-1, ""))
    if position < 0:
        raise text.error("the size line is missing: ROWS COLUMNS ENTRIES")
    match = re.fullmatch(rf"{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}", line)
    if match is None:
        raise text.error("malformed size line, expected ROWS COLUMNS ENTRIES", position)
    rows, columns, entries = map(int, match.groups())
    if rows != columns:
        raise text.error(
            f"the matrix of a graph is square, this one is {rows} x {columns}", position
        )
    check_vertex_count(text, rows, position)
    base = 1 if id_base is None else id_base
    kinds = _WEIGHTS[field]
    expected = "ROW COLUMN" if kinds == (NONE,) else f"ROW COLUMN VALUE ({field})"
    begin = text.behind_line(position)
    arcs = read_arcs(text, begin, ArcLines(expected), IdRange(base, rows, True), kinds, progress)
    check_arc_count(text, entries, len(arcs.sources), position, "entries")
    return ParsedGraph(arcs, rows, directed=not symmetric, id_base=base)


def _read_banner(text: Text, position: int, banner: str) -> tuple[str, bool]:
    """The field, and whether the matrix is symmetric."""
    words = banner.lower().split()
    if len(words) != 5 or words[0] != _BANNER or words[1] != "matrix":
        raise text.error(
            "malformed banner, expected %%MatrixMarket matrix coordinate FIELD SYMMETRY", position
        )
    _, _, layout, field, symmetry = words
    if layout != "coordinate":
        raise text.error(f"a graph is a coordinate matrix, this one is {layout!r}", position)
    if field not in _WEIGHTS:
        raise text.error(
            f"entries of a graph are pattern, integer or real, these are {field!r}", position
        )
    if symmetry not in ("general", "symmetric"):
        raise text.error(
            f"the matrix of a graph is general or symmetric, this one is {symmetry!r}", position
        )
    return field, symmetry == "symmetric"
