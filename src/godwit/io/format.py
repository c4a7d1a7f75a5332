"""What a format is: how it is recognized, read and written."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from godwit.errors import InputError
from godwit.graph.arcs import ReadOptions

if TYPE_CHECKING:
    from godwit.graph.arcs import ArcList
    from godwit.graph.csr import Graph
    from godwit.io.source import Source


_LINES_TO_LOOK_AT = 100


@dataclass(frozen=True)
class Head:
    """The beginning of a file's content, decompressed, by which its format is recognized."""

    path: Path
    content: bytes
    """Some 64 KiB, or all of it."""
    size: int
    """Bytes of all of it."""

    @property
    def stem(self) -> str:
        """The file's name in small letters, without the ending of its compression."""
        return without_compression(self.path.name).lower()

    @cached_property
    def is_text(self) -> bool:
        """Whether there is no zero byte in it."""
        return b"\0" not in self.content

    @cached_property
    def is_utf8(self) -> bool:
        """Whether it is text in UTF-8, as far as it goes."""
        decoder = getincrementaldecoder("utf-8")()
        try:
            decoder.decode(self.content, final=self.size == len(self.content))
        except UnicodeDecodeError:
            return False
        return self.is_text

    @cached_property
    def lines(self) -> list[str]:
        """The first line that is not blank, and up to 100 that are no comments (# or %) either,
        stripped; none where this is no text."""
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
"""What separates words in files; other blanks of Unicode are characters of them."""

COMPRESSION_SUFFIXES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}


def without_compression(name: str) -> str:
    """The name of a file without the ending of its compression."""
    path = Path(name)
    return path.stem if path.suffix.lower() in COMPRESSION_SUFFIXES else path.name


@dataclass(frozen=True)
class Format:
    """A file format.

    :ivar name: as ``format=`` takes it; :mod:`godwit.io.format_names` knows how files end
    :ivar recognize: whether a file that begins like this is in the format
    :ivar read: the graph in a file, or the arcs that it lists, given its source and the options.
        ``weighted=False`` and ``directed`` that were not followed here are by :func:`godwit.read`
    :ivar write: writes a graph to a binary file, or raises InputError before it has written anything
        if the format cannot hold what the graph has
    :ivar beside: what is written beside it: suffix in the place of the file's own, and how, given the
        graph, the file and the name of all of them without suffixes
    :ivar options: those of ``id_base``, ``columns``, ``relabel`` and ``weight_dtype`` that mean
        something for the format
    :ivar lists_arcs: whether ``read`` gives arcs (unless ``directed`` is False), which need not be in
        memory
    """

    name: str
    recognize: Callable[[Head], bool]
    read: Callable[[Source, ReadOptions], Graph | ArcList]
    write: Callable[[Graph, BinaryIO], None]
    beside: Mapping[str, Callable[[Graph, BinaryIO, str], None]] = field(default_factory=dict)
    options: frozenset[str] = frozenset()
    lists_arcs: bool = False


def require_no_weights(graph: Graph, format: str) -> None:
    """Refuse to write weights where a format has no room for them. :raises InputError: saying so"""
    if graph.is_weighted:
        raise InputError(
            f"{format} cannot hold weights: drop them with graph.without_weights() "
            "(command line: --drop weights)"
        )


def require_consecutive_ids(graph: Graph, format: str, first: int) -> None:
    """Refuse to write ids where a format numbers the vertices itself.

    :param first: the number of the first vertex
    :raises InputError: saying what would be lost
    """
    ids = graph.ids
    if not ids.own and ids.base <= 1:  # from 0 and from 1 are but manners of counting
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
    """Refuse to write arcs where a format has edges only. :raises InputError: saying so"""
    if graph.directed:
        raise InputError(
            f"{format} cannot hold a directed graph: symmetrize() it first "
            "(command line: --undirected)"
        )
