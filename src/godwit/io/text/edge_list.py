"""Edge lists: ``SOURCE TARGET`` or ``SOURCE TARGET WEIGHT`` on each line (SNAP's, .el, .wel, .csv).

Columns are separated by blanks or a comma; lines that begin with # or % are comments. The first arc
decides whether there are weights. Ids are names, integers or texts: the vertices are those that occur, in
ascending order.

Three comments before the first arc have a meaning: those that SNAP writes, ``# Undirected graph`` (each
edge is listed once) and ``# Nodes: N Edges: M``, whose N vertices are 0 to N - 1 if no other ids occur;
and one that Godwit writes, ``# Ids: text``, ``# Ids: integer`` (the vertices are those that occur) or
``# Ids: from K`` (vertices are counted). The first line that is no comment may name the columns, as in CSV.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from typing import BinaryIO, NamedTuple

from godwit.errors import InputError, shown
from godwit.graph.arcs import DECIMAL_INTEGER, ArcList, Arcs, OccurringIds, ReadOptions, relabelled
from godwit.graph.csr import Graph
from godwit.graph.ids import MAXIMAL_ID_BASE, VertexIds
from godwit.graph.table_columns import known_columns
from godwit.io.format import Format, Head
from godwit.io.source import Source
from godwit.io.text.line_reader import (
    ANY_ID,
    IdRange,
    LineShape,
    ScannedArcs,
    UnfitIdError,
    check_arc_count,
    check_vertex_count,
    largest_vertex_count,
    read_lines,
)
from godwit.io.text.lines import Text
from godwit.io.text.scanner import INTEGER_32, INTEGER_64, NONE, REAL
from godwit.io.text.tokens import WORD_LENGTH_BITS
from godwit.io.text.writing import line_count, write_arcs

COMMENT_MARKS = "#%"
WEIGHT_KINDS = (INTEGER_32, INTEGER_64, REAL)
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
_LINES_BELOW = 100  # looked at, to decide whether a line names columns
_LONGEST_ID_BYTES = 1 << WORD_LENGTH_BITS


def recognize(head: Head) -> bool:
    """Return True if a file that begins like this is in this format.

    If ids are integers, the first arc must be right, and no line may have more than three columns:
    files of other formats begin with two or three numbers too. If they are texts, all lines must have
    the same two or three columns. Other faults are better reported with their line.
    """
    arcs = [_SEPARATOR.split(line) for line in head.lines if line[0] not in COMMENT_MARKS]
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


def further_columns(head: Head) -> str:
    """Return what is wrong with an edge list of more than three columns; "" for other files."""
    arcs = [_SEPARATOR.split(line) for line in head.lines if line[0] not in COMMENT_MARKS]
    widths = set(map(len, arcs))
    if len(widths) != 1 or min(widths) < 4:
        return ""
    header, columns = ', comment="%", header=None', "0, 1, 2"
    if _names_columns(arcs[0], arcs[1:]):
        header, columns = "", ", ".join(map(repr, arcs.pop(0)[:3]))
    if not all(
        _NUMBER.fullmatch(arc[2]) or (_ID.fullmatch(arc[0]) and _ID.fullmatch(arc[1]))
        for arc in arcs
    ):
        return ""
    with_commas = any("," in line for line in head.lines if line[0] not in COMMENT_MARKS)
    awk, separator = ("awk -F, ", ",") if with_commas else ("awk ", r"\s+")
    return (
        f"an edge list has two or three columns, SOURCE TARGET [WEIGHT], and this file has {widths.pop()}: "
        f"{awk}'{{print $1, $2, $3}}' keeps three of them; in Python, godwit.Graph.from_table("
        f'pandas.read_csv(path, sep=r"{separator}"{header}), {columns}) chooses columns'
    )


class Comments(NamedTuple):
    """Declarations in the comments before the first arc.

    :ivar ids: "text", "integer" or ""
    :ivar position: of the line with the counts
    """

    undirected: bool = False
    ids: str = ""
    id_base: int | None = None
    vertex_count: int | None = None
    arc_count: int = 0
    position: int = 0


def read(source: Source, options: ReadOptions) -> ArcList:
    """Read arcs, with int32, int64 or float64 weights if there is a third column.

    The vertices are the distinct ids in ascending order, unless ``options.relabel`` is False or a comment
    counts them: then they are the numbers from ``options.id_base`` (None: 0) to the largest.
    """
    text = source.text()
    position, fields, comments = begin_of(text)
    if options.relabel is None and options.id_base is None:
        options = replace(options, id_base=comments.id_base, relabel=True if comments.ids else None)
    weighted = len(fields) > 2
    expected = "SOURCE TARGET WEIGHT" if weighted else "SOURCE TARGET"
    kinds = WEIGHT_KINDS if weighted else (NONE,)
    shape = LineShape(expected, kinds, comments=COMMENT_MARKS, comma=True)
    occurring = OccurringIds()

    def scan(shape: LineShape, ids: IdRange, seen: OccurringIds | None = None) -> ScannedArcs:
        return read_lines(text, position, shape, ids, options.progress, seen)

    def of_words() -> ArcList:
        arcs = scan(replace(shape, words=True), ANY_ID)
        return _of_names(arcs, None, comments, text, options)

    base = options.id_base or 0
    arcs: ScannedArcs
    if options.relabel is False or options.id_base is not None:
        arcs = scan(shape, IdRange(base, largest_vertex_count(), declared=False))
    elif comments.ids == "text" or not all(map(is_integer, fields[:2])):
        return of_words()
    else:
        try:
            arcs = scan(shape, ANY_ID, occurring)
        except UnfitIdError:  # negative, or of more than 63 bits
            return of_words()
        declared = comments.vertex_count
        if declared is None or options.relabel or arcs.max_id >= declared:
            return _of_names(arcs, occurring, comments, text, options)
    check_counts(text, comments, arcs.count)
    vertex_count = max(arcs.max_id + 1 - base, comments.vertex_count or 0)
    text.release()
    ids = VertexIds.counted(vertex_count, base)
    return ArcList(arcs, vertex_count, directed=not comments.undirected, ids=ids)


def begin_of(text: Text) -> tuple[int, list[str], Comments]:
    """Return position and fields of the first arc, and the declarations before it."""
    comments = Comments()
    for position, line in text.lines():
        if not line:
            continue
        if line[0] not in COMMENT_MARKS:
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
    """Return True if a line names the columns of those below: they all begin with integers; or its names
    are no ids, and are usual ones or stand above numbers in the third column.
    """
    if not below or len(below[0]) != len(fields) or any(map(_NUMBER.fullmatch, fields)):
        return False
    ids = {field for arc in below for field in arc[:2]}
    if all(re.fullmatch(DECIMAL_INTEGER, id) for id in ids):
        return True
    above_weights = all(len(arc) > 2 and _NUMBER.fullmatch(arc[2]) for arc in below)
    return (above_weights or known_columns(fields) is not None) and ids.isdisjoint(fields[:2])


def _behind_names(text: Text, position: int, line: str) -> tuple[int, list[str]] | None:
    """Return position and fields of the next arc if this line names the columns, else None."""
    fields = _SEPARATOR.split(line)
    below = (
        (at, _SEPARATOR.split(arc))
        for at, arc in text.lines(text.behind_line(position))
        if arc and arc[0] not in COMMENT_MARKS
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


def is_integer(field: str) -> bool:
    """Return True if an id is taken for a number: an integer in [0, 2**63)."""
    return _ID.fullmatch(field) is not None and ANY_ID.complaint(field) is None


def check_counts(text: Text, comments: Comments, count: int) -> None:
    """Refuse a file that has more or fewer arcs than a comment declares."""
    if comments.vertex_count is not None:
        unit = "edges in a comment (remove it if it is wrong)"
        check_arc_count(text, comments.arc_count, count, comments.position, unit)


def _of_names(
    arcs: Arcs,
    occurring: OccurringIds | None,
    comments: Comments,
    text: Text,
    options: ReadOptions,
) -> ArcList:
    """Return the arcs between the vertices whose ids occur."""
    check_counts(text, comments, arcs.count)
    arcs, ids = relabelled(arcs, occurring, options, typed=comments.ids == "text")
    declared = comments.vertex_count
    if declared is not None and len(ids) > declared:
        raise text.error(f"declares {declared} nodes, but {len(ids)} occur", comments.position)
    text.release()
    return ArcList(arcs, len(ids), directed=not comments.undirected, ids=ids)


def write(graph: Graph, file: BinaryIO) -> None:
    """Write arcs, or each edge once, below comments with the direction and the counts.

    :raises InputError: an id cannot be read again, or a vertex without edges has an id, which would be
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
    """Raise InputError if the graph has ids that an edge list cannot hold."""
    ids = graph.ids
    if not ids.own:
        return
    if isolated := graph.degree_statistics().isolated:
        raise InputError(
            "an edge list cannot hold the ids of vertices without edges, of which there are "
            f"{isolated:,}: drop the ids with graph.with_ids(0) (command line: --drop ids)"
        )
    if ids.kind == "object":
        raise InputError(
            "an edge list cannot hold ids that are Python objects: name the vertices by texts or "
            "integers with graph.with_ids(...), or drop the ids (command line: --drop ids)"
        )
    if ids.kind == "text":
        import pyarrow.compute as pc

        wrong = pc.match_substring_regex(ids.stored, r'^$|^[#%]|[\x00-\x20,"]')
        wrong = pc.or_(wrong, pc.greater_equal(pc.binary_length(ids.stored), _LONGEST_ID_BYTES))
        at = pc.index(wrong, True).as_py()
        if at >= 0:
            raise InputError(
                f"an edge list cannot hold the id {shown(ids.stored[at].as_py())}: ids must not be "
                "empty, begin with # or %, have blanks, commas, quotes or control characters in them, "
                f"or be of {_LONGEST_ID_BYTES:,} bytes"
            )


FORMAT = Format(
    "edge-list",
    recognize,
    read,
    write,
    options=frozenset({"id_base", "relabel"}),
    lists_arcs=True,
)
