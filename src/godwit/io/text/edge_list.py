"""Edge lists: ``SOURCE TARGET`` or ``SOURCE TARGET WEIGHT`` on each line (SNAP's, .el, .wel, .csv).

Columns are separated by blanks, or by a comma; lines that begin with # or % are comments. The first
arc decides whether there are weights. Ids are names, integers or texts: the vertices are those that occur,
in ascending order.

Of the comments before the first arc three are understood: as SNAP writes them, ``# Undirected graph``
(each edge is listed once) and ``# Nodes: N Edges: M``, whose N vertices are 0 to N - 1 where no other ids
occur; and, as Godwit does, ``# Ids: text``, ``# Ids: integer`` (of which only those that occur are
vertices) or ``# Ids: from K``, which says that vertices are counted. The first line that is no comment may
name the columns, as in CSV.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from godwit.graph.arcs import ArcList, Arcs, OccurringIds, ReadOptions, relabelled
from godwit.graph.ids import MAXIMAL_ID_BASE, VertexIds
from godwit.graph.table_columns import known_columns
from godwit.io.format import Format, Head
from godwit.io.source import Source
from godwit.io.text.arc_lines import (
    ArcLines,
    IdRange,
    ScannedArcs,
    UnfitIdError,
    check_arc_count,
    check_vertex_count,
    largest_vertex_count,
    read_arcs,
)
from godwit.io.text.lines import Text
from godwit.io.text.scanner import INTEGER_32, INTEGER_64, NONE, REAL
from godwit.io.text.writing import write_edge_list

_COMMENTS = "#%"
_WEIGHTS = (INTEGER_32, INTEGER_64, REAL)
_SEPARATOR = re.compile(r"\s*,\s*|\s+", re.ASCII)
_ID = re.compile(r"-?[0-9]+")
_WEIGHT = re.compile(r"[-+.0-9a-zA-Z]+")
_NUMBER = re.compile(
    r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|[-+]?(inf|infinity|nan)", re.IGNORECASE
)
_COUNTS = re.compile(r"[#%]\s*nodes:\s*([0-9]{1,18})\s+edges:\s*([0-9]{1,18})\s*", re.IGNORECASE)
_DIRECTION = re.compile(r"[#%]\s*(un)?directed graph\b", re.IGNORECASE)
_UNDIRECTED = re.compile(r"[#%]\s*undirected graph\b", re.IGNORECASE)
_IDS = re.compile(r"[#%]\s*ids:\s*(text|integer|from ([0-9]{1,10}))\s*", re.IGNORECASE)
_LINES_BELOW = 100  # that are looked at to tell whether a line names columns
_ANY_ID = IdRange(0, 1 << 63, False)


def recognize(head: Head) -> bool:
    """Whether a file that begins like this is in this format.

    Where ids are integers, the first arc must be right, and no line may have more than three columns:
    files of other formats begin with two or three numbers too. Where they are texts, all lines must
    have the same two or three columns. What else is wrong is better reported as a line.
    """
    arcs = [_SEPARATOR.split(line) for line in head.lines if line[0] not in _COMMENTS]
    if not arcs:
        return any(map(_DIRECTION.match, head.lines))
    if _names_columns(arcs[0], arcs[1:]):
        del arcs[0]
    if not 2 <= len(arcs[0]) <= max(map(len, arcs)) <= 3:
        return False
    if _ID.fullmatch(arcs[0][0]) and _ID.fullmatch(arcs[0][1]):
        return len(arcs[0]) == 2 or _WEIGHT.fullmatch(arcs[0][2]) is not None
    return all(
        len(arc) == len(arcs[0])
        and "" not in arc
        and (len(arc) == 2 or _NUMBER.fullmatch(arc[2]) is not None)
        for arc in arcs
    )


class _Comments(NamedTuple):
    """What the comments before the first arc say."""

    undirected: bool = False
    ids: str = ""
    """"text", "integer", or nothing."""
    id_base: int | None = None
    vertex_count: int | None = None
    arc_count: int = 0
    position: int = 0
    """Where the counts stand."""


def read(source: Source, options: ReadOptions) -> ArcList:
    """Arcs, with int32, int64 or float64 weights if there is a third column.

    The vertices are the distinct ids in ascending order, unless ``options.relabel`` is False or a comment
    counts them: then they are the numbers from ``options.id_base`` (None: 0) to the largest.
    """
    text = source.text()
    position, fields, comments = _begin(text)
    if options.relabel is None and options.id_base is None:
        options = replace(options, id_base=comments.id_base, relabel=True if comments.ids else None)
    weighted = len(fields) > 2
    expected = "SOURCE TARGET WEIGHT" if weighted else "SOURCE TARGET"
    lines = ArcLines(expected, comments=_COMMENTS, comma=True)
    kinds = _WEIGHTS if weighted else (NONE,)

    occurring = OccurringIds()

    def scan(lines: ArcLines, ids: IdRange, seen: OccurringIds | None = None) -> ScannedArcs:
        return read_arcs(text, position, lines, ids, kinds, options.progress, seen)

    def of_words() -> ArcList:
        arcs = scan(replace(lines, words=True), _ANY_ID)
        return _of_names(arcs, None, comments, text, options)

    base = options.id_base or 0
    arcs: ScannedArcs
    if options.relabel is False or options.id_base is not None:
        arcs = scan(lines, IdRange(base, largest_vertex_count(), False))
    elif comments.ids == "text" or not all(map(_is_integer, fields[:2])):
        return of_words()
    else:
        try:
            arcs = scan(lines, _ANY_ID, occurring)
        except UnfitIdError:  # negative, or of more than 63 bits
            return of_words()
        declared = comments.vertex_count
        if declared is None or options.relabel or arcs.max_id >= declared:
            return _of_names(arcs, occurring, comments, text, options)
    _check_counts(text, comments, arcs)
    vertex_count = max(arcs.max_id + 1 - base, comments.vertex_count or 0)
    text.release()
    ids = VertexIds.counted(vertex_count, base)
    return ArcList(arcs, vertex_count, directed=not comments.undirected, ids=ids)


def _begin(text: Text) -> tuple[int, list[str], _Comments]:
    """Position and fields of the first arc, and what is said before it."""
    comments = _Comments()
    for position, line in text.lines():
        if not line:
            continue
        if line[0] not in _COMMENTS:
            named = None if comments.ids else _behind_names(text, position, line)
            return *(named or (position, _SEPARATOR.split(line))), comments
        if _UNDIRECTED.match(line):
            comments = comments._replace(undirected=True)
        elif ids := _IDS.fullmatch(line):
            base = None if ids[2] is None else min(int(ids[2]), MAXIMAL_ID_BASE)
            comments = comments._replace(ids="" if ids[2] else ids[1].lower(), id_base=base)
        elif counts := _COUNTS.fullmatch(line):
            comments = comments._replace(
                vertex_count=int(counts[1]), arc_count=int(counts[2]), position=position
            )
            check_vertex_count(text, int(counts[1]), position)
    if comments.vertex_count is None:
        raise text.error("there are no arcs, only comments")
    return text.size, ["0", "0"], comments


def _names_columns(fields: list[str], below: list[list[str]]) -> bool:
    """Whether a line names the columns of those below: all of these begin with integers; or its names are
    usual, and no ids there."""
    if not below or len(below[0]) != len(fields) or any(map(_NUMBER.fullmatch, fields)):
        return False
    ids = {field for arc in below for field in arc[:2]}
    if all(map(_ID.fullmatch, ids)):
        return True
    return known_columns(fields) is not None and ids.isdisjoint(fields[:2])


def _behind_names(text: Text, position: int, line: str) -> tuple[int, list[str]] | None:
    """Position and fields of the next line with an arc, where this one names the columns; else None."""
    fields = _SEPARATOR.split(line)
    below = (
        (at, _SEPARATOR.split(one))
        for at, one in text.lines(text.behind_line(position))
        if one and one[0] not in _COMMENTS
    )
    looked_at = list(islice(below, _LINES_BELOW))
    if not _names_columns(fields, [arc for _, arc in looked_at]):
        return None
    known = known_columns(fields)
    if known is not None and known.used != list(range(len(known.used))):
        raise text.error(
            "columns must be SOURCE TARGET or SOURCE TARGET WEIGHT, or have commas between them",
            position,
        )
    return looked_at[0]


def _is_integer(field: str) -> bool:
    """Whether an id is taken for a number: an integer below 2**63."""
    return _ID.fullmatch(field) is not None and _ANY_ID.complaint(field) is None


def _check_counts(text: Text, comments: _Comments, arcs: Arcs) -> None:
    if comments.vertex_count is not None:
        unit = "edges in a comment (remove it if it is wrong)"
        check_arc_count(text, comments.arc_count, arcs.count, comments.position, unit)


def _of_names(
    arcs: Arcs,
    occurring: OccurringIds | None,
    comments: _Comments,
    text: Text,
    options: ReadOptions,
) -> ArcList:
    """Arcs between vertices that are the ids that occur."""
    _check_counts(text, comments, arcs)
    arcs, ids = relabelled(arcs, occurring, options, typed=comments.ids == "text")
    declared = comments.vertex_count
    if declared is not None and len(ids) > declared:
        raise text.error(f"declares {declared} nodes, but {len(ids)} occur", comments.position)
    text.release()
    return ArcList(arcs, len(ids), directed=not comments.undirected, ids=ids)


FORMAT = Format(
    "edge-list",
    recognize,
    read,
    write_edge_list,
    options=frozenset({"id_base", "relabel"}),
    lists_arcs=True,
)
