"""The interface of file formats: how each is recognized, read and written."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from godwit.errors import FormatError, InputError
from godwit.graph.arcs import ReadOptions

if TYPE_CHECKING:
    from godwit.graph.arcs import ArcList
    from godwit.graph.csr import Graph
    from godwit.io.source import Source


_LINES_TO_LOOK_AT = 100


@dataclass(frozen=True)
class Head:
    """The beginning of a file's content, decompressed, by which its format is recognized.

    :ivar content: the first 64 KiB, or all
    :ivar size: bytes of the whole content
    """

    path: Path
    content: bytes
    size: int

    @property
    def stem(self) -> str:
        """File name in small letters, without the ending of its compression."""
        return without_compression(self.path.name).lower()

    @cached_property
    def is_text(self) -> bool:
        """True if there is no zero byte."""
        return b"\0" not in self.content

    @cached_property
    def is_utf8(self) -> bool:
        """True if this is text in UTF-8."""
        decoder = getincrementaldecoder("utf-8")()
        try:
            decoder.decode(self.content, final=self.size == len(self.content))
        except UnicodeDecodeError:
            return False
        return self.is_text

    @cached_property
    def lines(self) -> list[str]:
        """First line that is not blank, and up to 100 that are no comments (# or %) either,
        stripped; an empty list if the content is not text."""
        if not self.is_text:
            return []
        text = self.content.decode("utf-8-sig", "replace")
        lines = text.split("\n")
        whole = lines if len(self.content) < HEAD_BYTES else lines[:-1]
        filled = (line.strip(BLANKS) for line in (whole or [text]) if line.strip(BLANKS))
        first = next(filled, None)
        if first is None:
            return []
        data = (line for line in filled if not line.startswith(("#", "%")))
        return [first, *islice(data, _LINES_TO_LOOK_AT)]


HEAD_BYTES = 1 << 16

BLANKS = " \t\n\r\v\f"
"""Characters that separate words in files; other blanks of Unicode are part of a word."""

COMPRESSION_SUFFIXES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}


def without_compression(name: str) -> str:
    """Return the name of a file without the ending of its compression."""
    path = Path(name)
    return path.stem if path.suffix.lower() in COMPRESSION_SUFFIXES else path.name


@dataclass(frozen=True)
class Format:
    """A file format.

    :ivar name: value of ``format=``; :mod:`godwit.io.format_names` has the endings of files
    :ivar recognize: returns True if a file with this :class:`Head` is in the format
    :ivar read: returns the graph in a file, or the arcs that it lists. It may ignore ``weighted=False``
        and ``directed``, which :func:`godwit.read` applies afterwards
    :ivar write: writes a graph to a binary file, or raises InputError before it has written anything
        if the format cannot hold the graph
    :ivar beside: additional files of the format, by suffix: functions that write each one, called with the
        name that the files share (without suffix), the graph and the binary file
    :ivar options: which of ``id_base``, ``columns``, ``relabel`` and ``weight_dtype`` apply
    :ivar lists_arcs: ``read`` returns an ArcList, which may be larger than memory, and a Graph only if
        ``directed`` is False
    :ivar holds_data: files have attributes of vertices and edges
    """

    name: str
    recognize: Callable[[Head], bool]
    read: Callable[[Source, ReadOptions], Graph | ArcList]
    write: Callable[[Graph, BinaryIO], None]
    beside: Mapping[str, Callable[[str, Graph, BinaryIO], None]] = field(default_factory=dict)
    options: frozenset[str] = frozenset()
    lists_arcs: bool = False
    holds_data: bool = False


def require_no_weights(graph: Graph, format: str) -> None:
    """Refuse to write weights to a format without weights. :raises InputError: the graph has some"""
    if graph.is_weighted:
        raise InputError(
            f"{format} cannot hold weights: drop them with graph.without_weights() "
            "(command line: --drop weights)"
        )


def require_consecutive_ids(graph: Graph, format: str, first: int) -> None:
    """Refuse to write ids to a format that numbers the vertices from ``first`` on.

    :raises InputError: the graph has other ids
    """
    ids = graph.ids
    if not ids.own and ids.base <= 1:  # vertices are merely numbered, from 0 or 1: no ids are lost
        return
    if not ids.in_file.is_range:
        kind = f"{ids.kind} ids"
    elif len(ids) and (base := ids.in_file[0]) != first:
        kind = f"ids from {base} on"
    else:
        return
    raise InputError(
        f"{format} cannot hold {kind}, and numbers vertices from {first} on: drop them with "
        "graph.with_ids(0) (command line: --drop ids)"
    )


def require_undirected(graph: Graph, format: str) -> None:
    """Refuse to write a directed graph to a format of undirected edges.

    :raises InputError: the graph is directed
    """
    if graph.directed:
        raise InputError(
            f"{format} cannot hold a directed graph: symmetrize() it first "
            "(command line: --undirected)"
        )


def symmetric_graph(graph: Graph, path: Path) -> Graph:
    """Return the undirected graph of edges that a file lists in both directions.

    :raises FormatError: an edge is listed in one direction only
    """
    from godwit.graph.csr import Graph  # imports Numba: slow
    from godwit.graph.facts import check_symmetric

    try:
        check_symmetric(graph.rows)
    except InputError as error:
        problem = "an edge must be in the lists of both its ends (vertices counted from 0)"
        raise FormatError(path, f"{problem}: {error}") from None
    return Graph.trusted(graph.offsets, graph.targets, graph.weights, directed=False, ids=graph.ids)
