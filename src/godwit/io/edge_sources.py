"""Edges that are read in pieces: of files, arrays, iterators of pairs, and graphs.

A *table* has rows that can be read in any order, by several threads at once: a file or an array of shape
(m, 2), or the arcs of a graph. *Chunks* come one after the other, from an iterator or from a file of a
format that lists arcs. Ids have the dtype of the source: int32, uint32, int64 or uint64; smaller ones
become int32. They are not checked here.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from godwit.arrays import lies_on_gpu, mapped_array
from godwit.dtypes import Array, as_array
from godwit.errors import FileError, FormatError, InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.foreign import constructor_for
from godwit.graph.ids import VertexIds
from godwit.runtime.cpu.compile import kernel

if TYPE_CHECKING:
    from godwit.graph.arcs import ArcList

END_DTYPES = tuple(np.dtype(name) for name in ("int32", "uint32", "int64", "uint64"))
"""Possible dtypes of ids."""

_SCANNED_ROWS = 1 << 20
_STACKED_ROWS = 1 << 18
_WHAT_WORKS = (
    "a godwit.Graph, or edges: the path of a file, an array of shape (m, 2), or an iterator of such"
)


class EdgeTable(Protocol):
    """Rows of edges that can be read in any order.

    :ivar name: for messages
    :ivar count: number of rows
    :ivar dtype: of the ids
    :ivar array: all rows, if they lie in memory in this dtype and C-contiguous (NumPy, or on a GPU); else
        None
    """

    name: str
    count: int
    dtype: np.dtype[Any]
    array: Any

    def fill(self, target: Array, first: int) -> None:
        """Read rows from ``first`` on into an array of shape (k, 2) of the dtype."""

    def close(self) -> None:
        """Close the file, if it is one."""


class EdgeArray:
    """Edges in memory, or in a mapped file: NumPy's array of shape (m, 2)."""

    def __init__(self, array: Array, name: str = "edges") -> None:
        self.name = name
        self.count = len(array)
        self.dtype = end_dtype(array.dtype, name)
        self._array = array
        in_place = array.dtype == self.dtype and array.flags.c_contiguous and array.flags.aligned
        self.array: Any = array if in_place else None

    def fill(self, target: Array, first: int) -> None:
        """Copy rows from ``first`` on."""
        np.copyto(target, self._array[first : first + len(target)])

    def close(self) -> None:
        """Do nothing: no file is open."""


class EdgesOnGpu:
    """Edges in the memory of a GPU: any array with ``__cuda_array_interface__``."""

    def __init__(self, array: Any, name: str = "edges") -> None:
        interface = array.__cuda_array_interface__
        self.name = name
        self.dtype = np.dtype(interface["typestr"])
        _check_shape(tuple(interface["shape"]), self.dtype, name)
        self.count = int(interface["shape"][0])
        self.array: Any = array
        if self.dtype not in END_DTYPES:
            raise InputError(
                f"ids on a GPU must be {_listed_dtypes()}, got {self.dtype}: use astype('int32')"
            )

    def fill(self, target: Array, first: int) -> None:
        """Copy rows to the host."""
        np.copyto(target, as_array(self.array[first : first + len(target)], self.name))

    def close(self) -> None:
        """Do nothing: no file is open."""


class EdgeFile:
    """Edges in a binary file of rows (source, target).

    :param dtype: of the ids in the file
    :param offset_bytes: position of the first row
    :raises FileError: it cannot be opened
    """

    array: Any = None

    def __init__(self, path: Path, dtype: np.dtype[Any], offset_bytes: int, count: int) -> None:
        self.name = str(path)
        self.count = count
        self.dtype = end_dtype(dtype, self.name)
        self._file_dtype = dtype
        self._offset_bytes = offset_bytes
        try:
            self._handle = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise FileError(f"cannot read {path}: {error.strerror or error}") from error

    def fill(self, target: Array, first: int) -> None:
        """Read rows from ``first`` on; several threads may at once.

        :raises FileError: the file has become shorter, or cannot be read
        """
        row_bytes = 2 * self._file_dtype.itemsize
        is_raw = self._file_dtype.itemsize == self.dtype.itemsize
        stored = target if is_raw else np.empty((len(target), 2), self._file_dtype)
        rest = stored.reshape(-1).view(np.uint8).data
        position = self._offset_bytes + first * row_bytes
        while len(rest):
            try:
                read = os.preadv(self._handle, [rest], position)
            except OSError as error:
                raise FileError(f"cannot read {self.name}: {error.strerror or error}") from error
            if not read:
                raise FileError(f"{self.name} ends before row {first + len(target):,}")
            rest = rest[read:]
            position += read
        if not is_raw:
            np.copyto(target, stored)
        elif self._file_dtype != self.dtype:  # the other byte order
            target.byteswap(inplace=True)

    def close(self) -> None:
        """Close the file, if it is open."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


@kernel
def _list_arcs(offsets: Any, targets: Any, row: int, first: int, ends: Any) -> None:
    """Write source and target of arcs from ``first`` on, which is in ``row``, into all of ``ends``."""
    i = 0
    while i < ends.shape[0]:
        stop = min(ends.shape[0], offsets[row + 1] - first)
        while i < stop:
            ends[i, 0] = row
            ends[i, 1] = targets[first + i]
            i += 1
        row += 1


class EdgeRows:
    """The arcs of a graph, in memory or mapped from a file; an :class:`EdgeTable` after ``survey``.

    Any range of arcs can be read, in mid-row too, so a row may be longer than a packet. Of an undirected
    graph both arcs of an edge are listed: one would be enough, and 40 % less work for devices, but the
    number of rows in a range would not be known before it is read, so only one thread could read.
    """

    array: Any = None
    dtype: np.dtype[Any]

    def __init__(self, graph: Graph, name: str = "the graph") -> None:
        self.name = name
        self.graph = graph
        self.count = graph.arc_count

    def survey(self, look: Callable[[], None] | None = None) -> VertexIds:
        """Return the ids of the vertices. A mapped file is checked here.

        :raises FormatError: it is damaged
        """
        self.dtype = self.graph.targets.dtype
        self.fill(np.empty((0, 2), self.dtype), 0)  # compiled before time is measured
        return self.graph.ids

    def fill(self, target: Array, first: int) -> None:
        """Write arcs from ``first`` on into an array of shape (k, 2); several threads may at once."""
        offsets, targets = self.graph.offsets, self.graph.targets
        row = int(np.searchsorted(offsets, first, side="right")) - 1
        _list_arcs(offsets, targets, row, first, target)

    def close(self) -> None:
        """Do nothing: a mapped file is closed with its graph."""


class EdgeChunks:
    """Edges from an iterator of arrays of shape (k, 2).

    :ivar count: number of rows; None if unknown
    """

    def __init__(self, chunks: Iterable[Any]) -> None:
        self.name = "edges"
        self.count: int | None = None
        self._chunks = chunks

    def __iter__(self) -> Iterator[Array]:
        """Yield the chunks, checked, not copied.

        :raises InputError: a chunk is no array of pairs of integers
        """
        for number, chunk in enumerate(self._chunks):
            name = f"chunk {number}"
            array = as_array(chunk, name)
            if array.size == 0:
                yield np.empty((0, 2), np.int32)
                continue
            _check_shape(array.shape, array.dtype, name)
            end_dtype(array.dtype, name)
            yield array

    def close(self) -> None:
        """Close an unfinished generator, so that its files are closed."""
        close = getattr(self._chunks, "close", None)
        if callable(close) and isinstance(self._chunks, Iterator):
            close()


class EdgeText(EdgeChunks):
    """Edges in a file of a format that lists arcs, most of which are text.

    The file is read twice: for its vertices, then for its edges. No more than a window of it is in memory.
    Vertices are those of :func:`godwit.read`.

    :param columns: as for :func:`godwit.read`
    """

    def __init__(self, path: Path, columns: Any = None) -> None:
        super().__init__(())
        self.name = str(path)
        self._path = path
        self._columns = columns
        self._file = ExitStack()
        self._listed: ArcList | None = None

    def survey(self, look: Callable[[], None] | None) -> VertexIds:
        """Read the file for the first time, and return the ids of its vertices.

        :param look: called now and then by the calling thread
        :raises FileError: it cannot be read
        :raises FormatError: it is no list of edges; names the line
        :raises InputError: it is, but cannot stream
        """
        from godwit.io.graph_files import list_arcs

        def progress(*_: object) -> None:
            if self._listed is None and look is not None:
                look()

        listed = self._file.enter_context(list_arcs(self._path, self._columns, progress))
        self._listed = listed
        self.count = listed.arcs.count
        return VertexIds(listed.vertex_count, listed.ids)

    def __iter__(self) -> Iterator[Array]:
        """Yield the edges in the order of the file, after ``survey``."""
        assert self._listed is not None
        for sources, targets, _ in self._listed.arcs.blocks():
            for first in range(0, len(sources), _STACKED_ROWS):
                rows = slice(first, first + _STACKED_ROWS)
                yield np.column_stack([sources[rows], targets[rows]])

    def close(self) -> None:
        """Close the file and its temporary copy."""
        self._file.close()
        self._listed = None


Edges = EdgeTable | EdgeChunks


def as_edges(given: Any, edge_dtype: Any = None, columns: Any = None) -> Edges:
    """Return the source of edges for a user's argument.

    :param given: the path of a ``.npy`` file of shape (m, 2), of a file of bare pairs, of a file of a
        format that lists arcs or of Godwit's own; a graph; an array; an iterator
    :param edge_dtype: of the ids in a file of bare pairs
    :param columns: of a table in a file (CSV, Parquet), as of :func:`godwit.read`
    :raises InputError: none of these, or not integers
    :raises FormatError: a file that holds no pairs
    :raises FileError: it cannot be read
    """
    if isinstance(given, str | os.PathLike):
        return _open(Path(given), edge_dtype, columns)
    if columns is not None:
        raise InputError(f"columns is for tables in files; got {shown(given)}")
    if edge_dtype is not None:
        raise InputError(
            f"edge_dtype is for files of bare pairs; {type(given).__name__} has its own dtype"
        )
    if isinstance(given, Graph):
        return EdgeRows(given)
    if hasattr(given, "__cuda_array_interface__"):
        return EdgesOnGpu(given)
    if isinstance(given, Iterator):
        return EdgeChunks(given)
    if isinstance(given, list | tuple):
        if given and all(np.ndim(chunk) == 2 for chunk in given):
            return EdgeChunks(given)
    elif not (lies_on_gpu(given) or hasattr(given, "__array__") or hasattr(given, "__dlpack__")):
        constructor = constructor_for(given)
        if constructor is not None:  # iterating over a graph gives its vertices, not edges
            kind = type(given).__name__
            advice = f"{constructor} makes a graph of a {kind}"
            if "Edge" in kind:  # a view such as EdgeView
                advice = (
                    f"{constructor} takes the graph that has this {kind}, and list() makes edges of "
                    "numbers"
                )
            raise InputError(f"expected {_WHAT_WORKS}; {advice}")
        if isinstance(given, Iterable) and not isinstance(given, bytes | dict | set | frozenset):
            return EdgeChunks(given)
        raise InputError(f"expected {_WHAT_WORKS}; got {shown(given)}")
    array = as_array(given, "edges")
    if isinstance(given, list | tuple) and array.size == 0:
        array = np.empty((0, 2), np.int32)
    _check_shape(array.shape, array.dtype, "edges")
    return EdgeArray(array)


def end_dtype(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    """Return the dtype that ids of a dtype become; InputError if it is none of integers."""
    if dtype.kind not in "iu":
        raise InputError(f"{name} must be pairs of integers, got {dtype}")
    native = dtype.newbyteorder("=")
    return native if native.itemsize >= 4 else np.dtype(np.int32)


def _check_shape(shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> None:
    if len(shape) != 2 or shape[1] != 2:
        advice = "; .T of it has that" if len(shape) == 2 and shape[0] == 2 else ""
        raise InputError(
            f"{name} must have shape (m, 2), a row an edge, got {shape} of {dtype}{advice}"
        )


def _listed_dtypes() -> str:
    *others, last = (dtype.name for dtype in END_DTYPES)
    return f"{', '.join(others)} or {last}"


def _open(path: Path, edge_dtype: Any, columns: Any) -> Edges:
    if columns is not None and (edge_dtype is not None or path.suffix == ".npy"):
        raise InputError(f"columns is for tables (CSV, Parquet); {path} holds pairs")
    if path.suffix == ".npy":
        if edge_dtype is not None:
            raise InputError(f"{path} declares its dtype; edge_dtype is for files of bare pairs")
        return _open_npy(path)
    if edge_dtype is None:
        graph = _mapped_graph(path) if columns is None else None
        return EdgeText(path, columns) if graph is None else EdgeRows(graph, str(path))
    try:
        dtype: np.dtype[Any] = np.dtype(edge_dtype)
    except (TypeError, ValueError):
        dtype = np.dtype(object)
    if dtype.kind not in "iu":
        raise InputError(
            f"edge_dtype must be a dtype of integers such as 'int32', got {shown(edge_dtype)}"
        )
    try:
        size = path.stat().st_size
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    count, rest = divmod(size, 2 * dtype.itemsize)
    if rest:
        raise FormatError(
            path,
            f"{size:,} bytes are no whole number of pairs of {dtype}, which are {2 * dtype.itemsize} bytes",
        )
    return EdgeFile(path, dtype, 0, count)


def _mapped_graph(path: Path) -> Graph | None:
    """Return the graph in a file of Godwit's own format; None for other files."""
    from godwit.io.format import HEAD_BYTES, Head
    from godwit.io.graph_files import format_named, read

    begin = b""
    with suppress(OSError, ValueError):  # reading it will raise the error
        if path.is_file():  # a pipe is read once only
            with path.open("rb") as file:
                begin = file.read(HEAD_BYTES)
    is_own = format_named("godwit").recognize(Head(path, begin, len(begin)))
    return read(path) if is_own else None


def _open_npy(path: Path) -> EdgeTable:
    mapped = mapped_array(path)
    _check_shape(mapped.shape, mapped.dtype, str(path))
    end_dtype(mapped.dtype, str(path))
    if not mapped.flags.c_contiguous:  # columns one behind the other
        return EdgeArray(mapped, str(path))
    return EdgeFile(path, mapped.dtype, int(mapped.offset), len(mapped))


def largest_id(
    table: EdgeTable, threads: int, look: Callable[[int], None] | None = None
) -> tuple[int, int]:
    """Return the largest id of a table that has rows, and a row with it.

    :param look: called by the calling thread with the number of rows done
    """
    if table.array is not None and not isinstance(table.array, np.ndarray):
        at = int(table.array.argmax())
        return int(table.array.reshape(-1)[at]), at // 2

    def scan(first: int) -> tuple[int, int]:
        rows = min(_SCANNED_ROWS, table.count - first)
        if table.array is not None:
            piece = table.array[first : first + rows]
        else:
            piece = np.empty((rows, 2), table.dtype)
            table.fill(piece, first)
        return int(piece.max()), first

    best = -1, 0
    jobs = iter(range(0, table.count, _SCANNED_ROWS))
    with ThreadPoolExecutor(threads, "godwit-scan") as pool:
        # Only a few ahead of those that are done, as each has a buffer.
        waiting = deque(pool.submit(scan, first) for first in islice(jobs, 2 * threads))
        done = 0
        try:
            while waiting:
                best = max(best, waiting.popleft().result(), key=itemgetter(0))
                waiting.extend(pool.submit(scan, first) for first in islice(jobs, 1))
                done += 1
                if look is not None:
                    look(min(table.count, done * _SCANNED_ROWS))
        finally:
            for job in waiting:
                job.cancel()
    largest, first = best
    piece = np.empty((min(_SCANNED_ROWS, table.count - first), 2), table.dtype)
    table.fill(piece, first)
    return largest, first + int(np.argmax(piece)) // 2
