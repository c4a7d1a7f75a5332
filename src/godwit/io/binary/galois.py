"""Galois' binary graphs, versions 1 and 2 (``FileGraph`` and ``OfflineGraph`` of the Galois library).

Little-endian: the 64-bit numbers version, bytes of an edge's data, n, m; n 64-bit ends of rows; m
targets, 32-bit in version 1 and 64-bit in version 2; then, at a multiple of 8 bytes, the data of the
edges. Galois' own writers pad an odd m differently: version 1 may end with or without 4 bytes if there
are no data, version 2 may have 8 bytes before the data or not. The size of the file decides.

Data of 4 or 8 bytes are weights, int32 or int64 unless ``weight_dtype`` is given: the file does not
declare a dtype. Nor does it declare that a graph is undirected, which is written as its arcs: reading
gives a directed graph, or, with ``directed=False``, checks that each edge is there in both directions
(which Galois calls symmetric, ``.sgr``). Version 1 is written for n up to 2**32.
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from godwit.dtypes import Array, id_dtype_for
from godwit.errors import FormatError, InputError
from godwit.graph.arcs import ReadOptions
from godwit.graph.csr import Graph
from godwit.graph.rows import estimate_bytes, require_memory
from godwit.io.format import Format, Head, require_consecutive_ids
from godwit.io.source import Source

_HEADER = struct.Struct("<4Q")
_MOST = 2**48  # vertices or arcs, and
_LONGEST_DATA = (
    2**16
)  # bytes of an edge's data: a file that claims more is not taken for one of Galois
_VERTICES_OF_VERSION_1 = 2**32
_PIECE = 1 << 23  # elements that are converted and written at a time
_DEFAULT_DTYPES: dict[int, np.dtype[Any]] = {4: np.dtype(np.int32), 8: np.dtype(np.int64)}


class _Header(NamedTuple):
    version: int
    data_bytes: int
    vertex_count: int
    arc_count: int

    @property
    def targets_begin(self) -> int:
        return _HEADER.size + 8 * self.vertex_count

    @property
    def targets_end(self) -> int:
        return self.targets_begin + (4 if self.version == 1 else 8) * self.arc_count

    def data_begin(self, size: int) -> int:
        """Return where the data begin in a file of a size."""
        end = self.targets_end
        if self.version == 1:
            filled = end + 4 * (self.arc_count % 2)
            return filled if self.data_bytes or size >= filled else end
        filled = end + 8 * (self.arc_count % 2)
        return filled if size == filled + self.data_bytes * self.arc_count else end


def _header(content: bytes) -> _Header | None:
    """Return the header; None if it cannot be one of Galois'."""
    if len(content) < _HEADER.size:
        return None
    header = _Header(*_HEADER.unpack_from(content))
    if header.version not in (1, 2) or header.data_bytes > _LONGEST_DATA:
        return None
    return header if max(header.vertex_count, header.arc_count) < _MOST else None


def recognize(head: Head) -> bool:
    """Return True if a file begins with four 64-bit numbers that can be Galois' header."""
    return _header(head.content) is not None


def read(source: Source, options: ReadOptions) -> Graph:
    """Read a graph.

    :raises FormatError: it is truncated, or its rows or targets are out of range; or not symmetric,
        with ``directed=False``
    :raises GraphTooLargeError: before anything is allocated
    """
    path = source.path
    header = _header(source.head.content)
    if header is None:
        raise FormatError(
            path, "this does not begin as Galois' binary graphs (versions 1 and 2) do"
        )
    n, m = header.vertex_count, header.arc_count
    begin = header.data_begin(source.size)
    source.require_size(
        begin + header.data_bytes * m,
        f"{n:,} vertices and {m:,} edges with {header.data_bytes} bytes of data each",
    )
    dtype = None if options.weighted is False else _weight_dtype(header, source, options)
    id_dtype = id_dtype_for(n)
    weight_bytes = 0 if dtype is None else dtype.itemsize
    require_memory(estimate_bytes(n, m, id_dtype.itemsize, weight_bytes), "the graph")
    content = source.content()
    offsets = np.zeros(n + 1, np.int64)
    offsets[1:] = content[_HEADER.size : header.targets_begin].view("<i8")
    stored = content[header.targets_begin : header.targets_end]
    targets = _targets(stored.view("<u4" if header.version == 1 else "<u8"), n, source, id_dtype)
    weights = None if dtype is None else content[begin:].view(dtype).copy()
    try:
        return Graph(offsets, targets, weights, directed=options.directed is not False)
    except InputError as error:
        raise FormatError(path, str(error)) from None


def _weight_dtype(header: _Header, source: Source, options: ReadOptions) -> np.dtype[Any] | None:
    size = header.data_bytes
    if options.weight_dtype is not None and options.weight_dtype.itemsize != size:
        raise FormatError(
            source.path, f"the edges have {size} bytes of data, which are no {options.weight_dtype}"
        )
    if size == 0:
        return None
    if size not in _DEFAULT_DTYPES:
        raise FormatError(
            source.path,
            f"the edges have {size} bytes of data, which are no weight: those have 4 or 8 "
            "(weighted=False reads the graph without, command line: --unweighted)",
        )
    return _DEFAULT_DTYPES[size] if options.weight_dtype is None else options.weight_dtype


def _targets(stored: Array, n: int, source: Source, dtype: np.dtype[Any]) -> Array:
    """Return the targets as ids, checked before they are narrowed."""
    if stored.size and int(stored.max()) >= n:
        arc = int(np.argmax(stored >= n))
        raise FormatError(
            source.path, f"the target of edge {arc} must be a vertex in [0, {n}), got {stored[arc]}"
        )
    return stored.astype(dtype)


def write(graph: Graph, file: BinaryIO) -> None:
    """Write a graph; an undirected one as its arcs, in both directions.

    :raises InputError: the graph has ids other than 0 to n - 1, which the format cannot store
    """
    require_consecutive_ids(graph, "a binary graph of Galois", 0)
    version = 1 if graph.vertex_count <= _VERTICES_OF_VERSION_1 else 2
    weights = graph.weights
    data_bytes = 0 if weights is None else weights.itemsize
    n, m = graph.vertex_count, graph.arc_count
    file.write(_HEADER.pack(version, data_bytes, n, m))
    _write_as(graph.offsets[1:], "<i8", file)
    _write_as(graph.targets, "<u4" if version == 1 else "<u8", file)
    file.write(bytes(4 * (m % 2) if version == 1 else 0))
    if weights is not None:
        _write_as(weights, weights.dtype, file)


def _write_as(array: Array, dtype: Any, file: BinaryIO) -> None:
    for begin in range(0, len(array), _PIECE):
        file.write(array[begin : begin + _PIECE].astype(dtype, copy=False).data)


FORMAT = Format("galois", recognize, read, write, options=frozenset({"weight_dtype"}))
