"""Matrix Market files (.mtx): entry (i, j) of a square matrix is an arc from i to j.

Source: R. Boisvert, R. Pozo, K. Remington, The Matrix Market Exchange Formats, NISTIR 5935 (1996).
Ids count from 1. A symmetric or hermitian matrix has each off-diagonal entry once: an undirected
graph. Of a skew-symmetric one the other half has the opposite weights: a directed graph. In the
layout ``coordinate`` each entry is an arc, zeros too; in ``array``, where all are there, only those
that are not zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO, NamedTuple

import numpy as np

from godwit.dtypes import Array
from godwit.errors import FormatError
from godwit.graph.arcs import ArcList, Arcs, Block, ReadOptions
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.rows import require_memory
from godwit.io.format import Format, Head, require_consecutive_ids
from godwit.io.pieces import windows
from godwit.io.source import Source
from godwit.io.text.arc_lines import (
    ArcLines,
    IdRange,
    check_arc_count,
    check_vertex_count,
    read_arcs,
)
from godwit.io.text.lines import Text
from godwit.io.text.scanner import INTEGER_32, INTEGER_64, NONE, REAL
from godwit.io.text.writing import line_count, write_arcs

_BANNER = "%%matrixmarket"
_NUMBER = r"([0-9]{1,18})"
_COMPLEX = "complex"
_UNSIGNED = "unsigned-integer"
_NEGATIVE = re.compile(r"(?<!\S)-0*[1-9]")
_WEIGHTS = {
    "pattern": (NONE,),
    "integer": (INTEGER_32, INTEGER_64),
    _UNSIGNED: (INTEGER_32, INTEGER_64),
    "real": (REAL,),
    "double": (REAL,),
}
_SKEW = "skew-symmetric"
_SYMMETRIES = ("general", "symmetric", _SKEW, "hermitian")


class _Header(NamedTuple):
    layout: str
    field: str
    symmetry: str
    size_position: int
    """Where the size line begins."""
    rows: int
    entries: int
    """As declared; -1 for an array."""


def recognize(head: Head) -> bool:
    """Whether a file that begins like this is in this format."""
    return bool(head.lines) and head.lines[0].lower().startswith(_BANNER)


def read(source: Source, options: ReadOptions) -> ArcList:
    """Entries of a square matrix; without weights for a pattern, float64 for a real matrix.

    Complex numbers are no weights: such a matrix is read with ``options.weighted`` False. The first
    row is called ``options.id_base``; None: 1.
    """
    text = source.text()
    header = _read_header(text)
    check_vertex_count(text, header.rows, header.size_position)
    if header.field == _COMPLEX and options.weighted is not False:
        raise text.error(
            "complex numbers are no weights; read the matrix with weighted=False "
            "(command line: --drop weights)"
        )
    base = 1 if options.id_base is None else options.id_base
    ids = IdRange(base, header.rows, True)
    arcs = _read_entries(text, header, ids, options)
    if header.symmetry == _SKEW:
        arcs = _with_opposites(arcs)
    text.release()
    directed = header.symmetry in ("general", _SKEW)
    return ArcList(arcs, header.rows, directed, ids=VertexIds.counted(header.rows, base))


def _read_entries(text: Text, header: _Header, ids: IdRange, options: ReadOptions) -> Arcs:
    """The entries that the file has."""
    if header.layout == "array":
        return _read_array(text, header)
    if header.field == _COMPLEX:
        return _read_complex(text, header, ids)
    kinds = _WEIGHTS[header.field]
    expected = "ROW COLUMN" if kinds == (NONE,) else f"ROW COLUMN VALUE ({header.field})"
    begin = text.behind_line(header.size_position)
    arcs = read_arcs(text, begin, ArcLines(expected), ids, kinds, options.progress)
    check_arc_count(text, header.entries, arcs.count, header.size_position, "entries")
    if header.field == _UNSIGNED:
        for block in arcs.blocks():
            _require_unsigned(text, header, block.weights)
    return arcs


def _require_unsigned(text: Text, header: _Header, weights: Array | None) -> None:
    """Refuse negative numbers that are declared not to be."""
    if weights is None or weights.min(initial=0) >= 0:
        return
    lines = text.lines(text.behind_line(header.size_position))
    found = (at for at, line in lines if line[:1] != "%" and _NEGATIVE.search(line))
    raise text.error(f"the number is negative, and the header declares {_UNSIGNED}", next(found))


def _with_opposites(arcs: Arcs) -> Arcs:
    """The arcs of one half of a skew-symmetric matrix, and those of the other."""
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


def _read_array(text: Text, header: _Header) -> Arcs:
    """Entries that are not zero, of all that there are: column by column, or the lower half of each."""
    n = header.rows
    half = {"general": None, _SKEW: 1}.get(header.symmetry, 0)
    count = n * n if half is None else n * (n + 1 - 2 * half) // 2
    if 2 * count > text.size:
        raise text.error("the matrix declared is larger than the file", header.size_position)
    require_memory(64 * count, f"{text.path}: the matrix")
    numbers = _read_numbers(text, header, _kinds_of_number(header.field))
    check_arc_count(text, count, len(numbers[0]), header.size_position, "entries")
    if header.field == _UNSIGNED:
        _require_unsigned(text, header, numbers[0])
    if half is None:
        columns, rows = np.divmod(np.arange(count), max(n, 1))
    else:
        columns, rows = np.triu_indices(n, half)
    filled = np.logical_or.reduce([column != 0 for column in numbers])
    weights = None if header.field == _COMPLEX else _narrowed(numbers[0][filled])
    return _arcs(text, rows[filled], columns[filled], weights)


def _read_complex(text: Text, header: _Header, ids: IdRange) -> Arcs:
    """Where the entries of a coordinate matrix of complex numbers are."""
    if 8 * header.entries > text.size:
        raise text.error("the matrix declared is larger than the file", header.size_position)
    kinds = (int, int, *_kinds_of_number(header.field))
    rows, columns, *_ = _read_numbers(text, header, kinds, ids)
    check_arc_count(text, header.entries, len(rows), header.size_position, "entries")
    return _arcs(text, rows - ids.base, columns - ids.base, None)


def _arcs(text: Text, rows: Array, columns: Array, weights: Array | None) -> Arcs:
    block = Block(rows, columns, weights)
    dtype = None if weights is None else weights.dtype
    return Arcs(text.path, lambda: [block], len(rows), dtype, True)


def _kinds_of_number(field: str) -> tuple[type, ...]:
    """What Python calls the numbers of an entry."""
    if field == _COMPLEX:
        return (float, float)
    return (float,) if _WEIGHTS[field] == (REAL,) else (int,)


def _read_numbers(
    text: Text, header: _Header, kinds: tuple[type, ...], ids: IdRange | None = None
) -> list[Array]:
    """Columns, int64 or float64, of lines that have a number of each kind.

    These are the rare layouts: Python reads them, some million numbers a second.

    :param ids: of the first two columns
    """
    begin = text.behind_line(header.size_position)
    pieces: list[list[Array]] = []
    for low, high in windows(text, begin):
        buffer, shift = text.window(low, high)
        content = buffer[low - shift : high - shift].tobytes()
        if b"_" in content:  # which Python takes between digits
            raise _wrong_line(text, low, kinds, ids)
        words = content.split()
        try:
            columns = [
                np.fromiter(
                    map(kind, words[k :: len(kinds)]), np.int64 if kind is int else np.float64
                )
                for k, kind in enumerate(kinds)
            ]
        except (ValueError, OverflowError):
            raise _wrong_line(text, low, kinds, ids) from None
        uneven = len(words) % len(kinds) != 0
        if uneven or not all(map(_in_range, columns[:2], [ids, ids])):
            raise _wrong_line(text, low, kinds, ids)
        pieces.append(columns)
    none = [np.empty(0, np.int64 if kind is int else np.float64) for kind in kinds]
    return [np.concatenate(column) for column in zip(none, *pieces, strict=True)]


def _in_range(column: Array, ids: IdRange | None) -> bool:
    if ids is None or column.size == 0:
        return True
    return bool(ids.base <= column.min() and column.max() < ids.base + ids.vertex_count)


def _wrong_line(
    text: Text, begin: int, kinds: tuple[type, ...], ids: IdRange | None
) -> FormatError:
    """What is wrong with the first wrong line from a position on."""
    names = "ROW COLUMN " if ids is not None else ""
    expected = f"{names}{' '.join(['NUMBER'] * (len(kinds) - (0 if ids is None else 2)))}"
    for position, line in text.lines(begin):
        fields = line.split()
        if not fields:
            continue
        if "_" in line or not line.isascii():
            return text.error(f"malformed line, expected {expected}", position)
        try:
            numbers = [kind(field) for kind, field in zip(kinds, fields, strict=True)]
        except ValueError:
            return text.error(f"malformed line, expected {expected}", position)
        integers = [number for number in numbers if isinstance(number, int)]
        if any(not -(2**63) <= number < 2**63 for number in integers):
            return text.error("a number does not fit in 64 bits with a sign (int64)", position)
        complaint = (
            next(filter(None, (ids.complaint(str(k)) for k in integers)), None) if ids else None
        )
        if complaint is not None:
            return text.error(complaint, position)
    return text.error(f"malformed lines, expected {expected}")


def _narrowed(weights: Array) -> Array:
    """Integers as int32, if all fit."""
    narrow = np.iinfo(np.int32)
    if weights.dtype.kind == "i" and weights.min(initial=0) >= narrow.min:
        return weights.astype(np.int32) if weights.max(initial=0) <= narrow.max else weights
    return weights


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
            f"the matrix of a graph is square, this one is {rows} x {columns}", position
        )
    return _Header(layout, field, symmetry, position, rows, -1 if is_array else int(match[3]))


def _read_banner(text: Text, position: int, banner: str) -> tuple[str, str, str]:
    """Layout, field and symmetry."""
    words = banner.lower().split()
    if len(words) != 5 or words[0] != _BANNER or words[1] != "matrix":
        raise text.error(
            "malformed banner, expected %%MatrixMarket matrix LAYOUT FIELD SYMMETRY", position
        )
    _, _, layout, field, symmetry = words
    if layout not in ("coordinate", "array"):
        raise text.error(f"the layout is coordinate or array, this one is {layout!r}", position)
    if field not in _WEIGHTS and field != _COMPLEX:
        known = ", ".join([*_WEIGHTS, _COMPLEX])
        raise text.error(f"entries are one of {known}, these are {field!r}", position)
    if symmetry not in _SYMMETRIES:
        known = ", ".join(_SYMMETRIES)
        raise text.error(f"a matrix is one of {known}, this one is {symmetry!r}", position)
    if field == "pattern" and (layout == "array" or symmetry == _SKEW):
        raise text.error("such a matrix has numbers, it cannot be a pattern", position)
    return layout, field, symmetry


def write(graph: Graph, file: BinaryIO) -> None:
    """Write a coordinate matrix: general, or symmetric for an undirected graph; pattern, integer or
    real.

    :raises InputError: there are ids of its own
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
