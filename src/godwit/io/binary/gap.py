"""Serialized graphs of the GAP Benchmark Suite, ``.sg`` and ``.wsg`` (Beamer, Asanović, Patterson: The
GAP benchmark suite, 2015; ``reader.h`` and ``writer.h`` of gapbs).

Little-endian and without any alignment: one byte, 1 for a directed graph; the 64-bit numbers m (stored
arcs) and n; n + 1 64-bit offsets; m 32-bit targets, or in a ``.wsg`` m pairs of a 32-bit target and a
32-bit weight. A directed graph is followed by offsets and targets (and weights) of its reverse. An
undirected one has both directions of every edge. There is no magic number. The size of the file follows
from these numbers, and decides whether there are weights if the name does not. The reverse is checked
against the graph; a file that ends before it is read, too.

GAP's weights are int32; ``weight_dtype`` reads others of 32 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from godwit.dtypes import Array
from godwit.errors import FormatError, InputError, shown
from godwit.graph.arcs import ReadOptions
from godwit.graph.csr import Graph
from godwit.graph.rows import estimate_bytes, require_memory
from godwit.io.format import Format, Head, require_consecutive_ids
from godwit.io.source import Source

_HEADER = struct.Struct("<Bqq")
_MOST_VERTICES = 2**31
_MOST_ARCS = 2**48
_PIECE = 1 << 22  # arcs that are converted and written at a time
_SUFFIXES = (".sg", ".wsg")


class _Header(NamedTuple):
    directed: int
    arc_count: int
    vertex_count: int

    def size(self, weighted: bool, parts: int) -> int:
        """Return the bytes of a file with 1 part (the graph) or 2 (and its reverse)."""
        part = 8 * (self.vertex_count + 1) + (8 if weighted else 4) * self.arc_count
        return _HEADER.size + parts * part

    def forms(self) -> Iterator[tuple[bool, int]]:
        """Yield the possible (weighted, parts), the usual ones first."""
        for parts in (2, 1) if self.directed else (1,):
            yield False, parts
            yield True, parts


def _header(content: bytes) -> _Header | None:
    """Return the header; None if it cannot be one of GAP's."""
    if len(content) < _HEADER.size or content[0] > 1:
        return None
    header = _Header(*_HEADER.unpack_from(content))
    possible = 0 <= header.arc_count < _MOST_ARCS and 0 <= header.vertex_count <= _MOST_VERTICES
    return header if possible else None


def _form(header: _Header, size: int, stem: str) -> tuple[bool, int] | None:
    """Return (weighted, parts) of a file with this header, size and name; None if none fits."""
    expected = stem.endswith(".wsg") if stem.endswith(_SUFFIXES) else None
    for weighted, parts in header.forms():
        if expected in (None, weighted) and header.size(weighted, parts) == size:
            return weighted, parts
    return None


def recognize(head: Head) -> bool:
    """Return True if header and size fit together; or the header alone is right in a file .sg or .wsg."""
    header = _header(head.content)
    if header is None:
        return False
    return head.stem.endswith(_SUFFIXES) or _form(header, head.size, "") is not None


def read(source: Source, options: ReadOptions) -> Graph:
    """Read a graph.

    :raises FormatError: it is truncated, its rows or targets are out of range, an edge has not both its
        directions, or what follows a directed graph is not its reverse
    :raises GraphTooLargeError: before anything is allocated
    """
    path = source.path
    header = _header(source.head.content)
    if header is None:
        raise FormatError(path, "this does not begin as GAP's serialized graphs do")
    form = _form(header, source.size, source.head.stem)
    n, m = header.vertex_count, header.arc_count
    if form is None:
        source.require_size(
            header.size(source.head.stem.endswith(".wsg"), 1 + header.directed),
            f"{n:,} vertices and {m:,} arcs",
        )
    assert form is not None
    weighted, parts = form
    dtype = _weight_dtype(path, weighted, options)
    require_memory(parts * estimate_bytes(n, m, 4, 4 if weighted else 0), "the graph")
    content = source.content()
    part_bytes = (source.size - _HEADER.size) // parts
    rows = [
        _rows(content[_HEADER.size + i * part_bytes :][:part_bytes], header, weighted, dtype)
        for i in range(parts)
    ]
    try:
        graph = Graph(*rows[0], directed=bool(header.directed))
        if parts == 2:
            _check_reverse(graph, Graph(*rows[1]))
    except InputError as error:
        raise FormatError(path, str(error)) from None
    return graph


def _weight_dtype(path: Path, weighted: bool, options: ReadOptions) -> np.dtype[Any] | None:
    dtype = options.weight_dtype
    if dtype is not None and (not weighted or dtype.itemsize != 4):
        has = "weights of 4 bytes" if weighted else "no weights"
        raise FormatError(path, f"the file has {has}, and weight_dtype asks for {dtype}")
    if not weighted or options.weighted is False:
        return None
    return np.dtype(np.int32) if dtype is None else dtype


def _rows(
    part: Array, header: _Header, weighted: bool, dtype: np.dtype[Any] | None
) -> tuple[Array, Array, Array | None]:
    """Return aligned copies of offsets, targets and weights."""
    offset_bytes = 8 * (header.vertex_count + 1)
    offsets = part[:offset_bytes].view("<i8").astype(np.int64)
    arcs = part[offset_bytes:].view("<i4")
    if not weighted:
        return offsets, arcs.astype(np.int32), None
    targets = arcs[::2].astype(np.int32)
    return offsets, targets, None if dtype is None else arcs[1::2].astype(np.int32).view(dtype)


def _check_reverse(graph: Graph, reverse: Graph) -> None:
    from godwit.graph.facts import direction_hashes

    forward, _ = direction_hashes(graph.rows)
    _, backward = direction_hashes(reverse.rows)
    if forward != backward:
        raise InputError("what follows the graph is not its reverse")


def write(graph: Graph, file: BinaryIO) -> None:
    """Write a graph, and its reverse if it is directed.

    :raises InputError: it has too many vertices, ids other than 0 to n - 1, or weights that do not fit
        int32
    """
    what = "a serialized graph of GAP"
    require_consecutive_ids(graph, what, 0)
    if graph.vertex_count > _MOST_VERTICES:
        raise InputError(f"{what} has at most 2**31 vertices, this has {graph.vertex_count:,}")
    _require_int32(graph.weights, what)
    file.write(_HEADER.pack(graph.directed, graph.arc_count, graph.vertex_count))
    for part in (graph, graph.reverse) if graph.directed else (graph,):
        file.write(part.offsets.astype("<i8", copy=False).data)
        for begin in range(0, part.arc_count, _PIECE):
            arcs = [part.targets[begin : begin + _PIECE].astype("<i4")]
            if part.weights is not None:
                arcs.append(part.weights[begin : begin + _PIECE].astype("<i4"))
            file.write(np.stack(arcs, axis=1).data)


def _require_int32(weights: Array | None, what: str) -> None:
    if weights is None or weights.dtype == np.int32:
        return
    if weights.dtype.kind == "f":
        raise InputError(f"{what} holds int32 weights, these are {weights.dtype}")
    if weights.size and not -(2**31) <= int(weights.min()) <= int(weights.max()) < 2**31:
        worst = max(int(weights.min()), int(weights.max()), key=abs)
        raise InputError(f"{what} holds int32 weights, and {shown(worst)} is none")


FORMAT = Format("gap", recognize, read, write, options=frozenset({"weight_dtype"}))
