"""Matrix Market files (.mtx): entry (i, j) of a square matrix is an arc from i to j.

Source: R. Boisvert, R. Pozo, K. Remington, The Matrix Market Exchange Formats, NISTIR 5935 (1996).
Ids count from 1. The file of a symmetric or hermitian matrix lists each pair of off-diagonal entries
once: the graph is undirected. That of a skew-symmetric matrix lists one half, the other half has the
negated weights: the graph is directed. In the layout ``coordinate`` each listed entry is an arc, also a
zero; in ``array``, which lists all entries, only nonzero entries are arcs.

SciPy's reader (fast_matrix_market) is not used: it reads 1_0, and 1.5 in an integer matrix, as 1,
ignores words after a number, needs the whole matrix in memory, and is 0.97 to 1.65 times as slow
(benchmarks/formats.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO, NamedTuple

import numpy as np

from godwit.errors import FormatError
from godwit.graph.arcs import ArcList, Arcs, Block, ReadOptions
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.rows import require_memory
from godwit.io.format import Format, Head, require_consecutive_ids
from godwit.io.source import Source
from godwit.io.text.line_reader import (
    IdRange,
    LineShape,
    check_arc_count,
    check_vertex_count,
    read_lines,
)
from godwit.io.text.lines import Text
from godwit.io.text.scanner import INTEGER_32, INTEGER_64, NONE, REAL
from godwit.io.text.writing import line_count, write_arcs

_BANNER = "%%matrixmarket"
_NUMBER = r"([0-9]{1,18})"
_COMPLEX = "complex"
_UNSIGNED = "unsigned-integer"
_NEGATIVE = re.compile(r"(?<!\S)-0*[1-9]")
_KINDS = {
    "pattern": (NONE,),
    "integer": (INTEGER_32, INTEGER_64),
    _UNSIGNED: (INTEGER_32, INTEGER_64),
    "real": (REAL,),
    "double": (REAL,),
    _COMPLEX: (REAL,),
}
_SKEW = "skew-symmetric"
_SYMMETRIES = ("general", "symmetric", _SKEW, "hermitian")


class _Header(NamedTuple):
    """The banner and the size line.

    :ivar size_position: position of the size line
    :ivar rows: number of rows, and of columns
    :ivar entries: declared number of entries; -1 for an array
    """

    layout: str
    field: str
    symmetry: str
    size_position: int
    rows: int
    entries: int


def recognize(head: Head) -> bool:
    """Return True if a file that begins like this is in this format."""
    return bool(head.lines) and head.lines[0].lower().startswith(_BANNER)


def read(source: Source, options: ReadOptions) -> ArcList:
    """Read a square matrix: a pattern has no weights, a real matrix float64, an integer one int32 or int64.

    Complex numbers cannot be weights: such a matrix is read only if ``options.weighted`` is False. The id
    of the first row is ``options.id_base``; None: 1.
    """
    text = source.text()
    header = _read_header(text)
    check_vertex_count(text, header.rows, header.size_position)
    if header.field == _COMPLEX and options.weighted is not False:
        raise text.error(
            "complex numbers cannot be weights; read the matrix with weighted=False "
            "(command line: --drop weights)"
        )
    base = 1 if options.id_base is None else options.id_base
    ids = IdRange(base, header.rows, declared=True)
    read_entries = _read_array if header.layout == "array" else _read_coordinates
    arcs = read_entries(text, header, ids, options)
    if header.symmetry == _SKEW:
        arcs = _with_opposites(arcs)
    text.release()
    directed = header.symmetry in ("general", _SKEW)
    return ArcList(arcs, header.rows, directed, ids=VertexIds.counted(header.rows, base))


def _read_coordinates(text: Text, header: _Header, ids: IdRange, options: ReadOptions) -> Arcs:
    """Read the entries of the layout ``coordinate``: one line each, with row, column and value."""
    value = {"pattern": "", _COMPLEX: " NUMBER NUMBER"}.get(
        header.field, f" VALUE ({header.field})"
    )
    is_complex = header.field == _COMPLEX
    shape = LineShape(f"ROW COLUMN{value}", _KINDS[header.field], dropped=1 if is_complex else 0)
    begin = text.behind_line(header.size_position)
    arcs = read_lines(text, begin, shape, ids, options.progress)
    check_arc_count(text, header.entries, arcs.count, header.size_position, "entries")
    _require_unsigned(text, header, arcs)
    return arcs


def _read_array(text: Text, header: _Header, ids: IdRange, options: ReadOptions) -> Arcs:
    """Read the entries of the layout ``array``: one line each, column by column.

    A general matrix lists all entries, a skew-symmetric one those below the diagonal, and the others
    those on and below it.
    """
    n = header.rows
    first_below = {"general": None, _SKEW: 1}.get(header.symmetry, 0)
    count = n * n if first_below is None else n * (n + 1 - 2 * first_below) // 2
    if 2 * count > text.size:
        raise text.error("the declared matrix is larger than the file", header.size_position)
    require_memory(64 * count, f"{text.path}: the matrix")
    numbers = 2 if header.field == _COMPLEX else 1
    expected = " ".join(["NUMBER"] * numbers)
    shape = LineShape(expected, _KINDS[header.field], many=numbers > 1, id_columns=0)
    begin = text.behind_line(header.size_position)
    entries = read_lines(text, begin, shape, ids, options.progress)
    check_arc_count(text, numbers * count, entries.count, header.size_position, "numbers")
    _require_unsigned(text, header, entries)
    weights = np.concatenate(
        [np.empty(0, entries.weight_dtype), *(block.weights for block in entries.blocks())]
    )
    if first_below is None:
        columns, rows = np.divmod(np.arange(count), max(n, 1))
    else:
        columns, rows = np.triu_indices(n, first_below)
    filled = (weights != 0).reshape(count, numbers).any(axis=1)
    kept = None if header.field == _COMPLEX else weights[filled]
    block = Block(rows[filled], columns[filled], kept)
    dtype = None if kept is None else kept.dtype
    return Arcs(text.path, lambda: [block], len(block.sources), dtype, one_block=True)


def _require_unsigned(text: Text, header: _Header, arcs: Arcs) -> None:
    """Refuse negative numbers if the header declares unsigned ones."""
    if header.field != _UNSIGNED:
        return
    if any(block.weights is not None and (block.weights < 0).any() for block in arcs.blocks()):
        lines = text.lines(text.behind_line(header.size_position))
        at = next(at for at, line in lines if line[:1] != "%" and _NEGATIVE.search(line))
        raise text.error(f"the number is negative, and the header declares {_UNSIGNED}", at)


def _with_opposites(arcs: Arcs) -> Arcs:
    """Add the other half of a skew-symmetric matrix to the arcs of one half."""
    dtype = arcs.weight_dtype
    for sources, targets, weights in arcs.blocks():
        if (sources == targets).any():
            raise FormatError(arcs.path, "a skew-symmetric matrix has a zero diagonal")
        if weights is not None and weights.dtype.kind == "i":
            least = int(weights.min(initial=0))
            if least == -(2**63):
                raise FormatError(arcs.path, f"the weight {-least} does not fit int64")
            if least == -(2**31):
                dtype = np.dtype(np.int64)

    def blocks() -> Iterator[Block]:
        for sources, targets, weights in arcs.blocks():
            if weights is not None:
                weights = weights.astype(dtype, copy=False)  # noqa: PLW2901
            yield Block(
                np.concatenate([sources, targets]),
                np.concatenate([targets, sources]),
                None if weights is None else np.concatenate([weights, -weights]),
            )

    return replace(arcs, blocks=blocks, count=2 * arcs.count, weight_dtype=dtype)


def _read_header(text: Text) -> _Header:
    lines = text.lines()
    position, banner = next(lines)
    if "\r" in banner:
        raise text.error("its lines end with CR alone: convert them to LF or CR LF")
    layout, field, symmetry = _read_banner(text, position, banner)
    is_array = layout == "array"
    position, line = next(((at, line) for at, line in lines if line and line[0] != "%"), (-1, ""))
    expected = "ROWS COLUMNS" if is_array else "ROWS COLUMNS ENTRIES"
    if position < 0:
        raise text.error(f"the size line is missing: {expected}")
    match = re.fullmatch(r"\s+".join([_NUMBER] * (2 if is_array else 3)), line)
    if match is None:
        raise text.error(f"malformed size line, expected {expected}", position)
    rows, columns = int(match[1]), int(match[2])
    if rows != columns:
        raise text.error(
            f"the matrix of a graph must be square, this one is {rows} x {columns}", position
        )
    return _Header(layout, field, symmetry, position, rows, -1 if is_array else int(match[3]))


def _read_banner(text: Text, position: int, banner: str) -> tuple[str, str, str]:
    """Return layout, field and symmetry from the first line of the file."""
    words = banner.lower().split()
    if len(words) != 5 or words[0] != _BANNER or words[1] != "matrix":
        raise text.error(
            "malformed banner, expected %%MatrixMarket matrix LAYOUT FIELD SYMMETRY", position
        )
    _, _, layout, field, symmetry = words
    if layout not in ("coordinate", "array"):
        raise text.error(f"the layout must be coordinate or array, got {layout!r}", position)
    if field not in _KINDS:
        raise text.error(f"the field must be one of {', '.join(_KINDS)}, got {field!r}", position)
    if symmetry not in _SYMMETRIES:
        raise text.error(
            f"the symmetry must be one of {', '.join(_SYMMETRIES)}, got {symmetry!r}", position
        )
    if field == "pattern" and (layout == "array" or symmetry == _SKEW):
        raise text.error(
            f"the field of a {symmetry} matrix in the layout {layout} cannot be pattern", position
        )
    return layout, field, symmetry


def write(graph: Graph, file: BinaryIO) -> None:
    """Write a coordinate matrix: general, or symmetric for an undirected graph; pattern, integer or real.

    :raises InputError: the ids of the vertices are not consecutive numbers from 0 or 1
    """
    require_consecutive_ids(graph, "Matrix Market", 1)
    weights = graph.weights
    field = "pattern" if weights is None else "real" if weights.dtype.kind == "f" else "integer"
    symmetry = "general" if graph.directed else "symmetric"
    n = graph.vertex_count
    banner = f"%%MatrixMarket matrix coordinate {field} {symmetry}"
    file.write(f"{banner}\n{n} {n} {line_count(graph)}\n".encode())
    write_arcs(graph, file, base=1)


FORMAT = Format(
    "matrix-market", recognize, read, write, options=frozenset({"id_base"}), lists_arcs=True
)
