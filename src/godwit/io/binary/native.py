"""Godwit's own format: the arrays of a graph as they are in memory, mapped and checked on first use.

``docs/file-format.md`` is the specification. In short, little-endian: a header of 64 bytes, a table of
32 bytes per section, then the sections, each at a multiple of 64 bytes and padded with zeros to the
next. The header's hash covers header and table, a checksum in the table covers each section with its
padding, so a change of any byte is noticed.

Opening a file reads its header only. The sections are mapped into memory, and read once when the graph's
arrays or ids are first used, to check checksums and what kernels rely on (offsets that never decrease,
targets in range, text that is UTF-8). A file must not be changed while it is mapped; a file that is
replaced (as :func:`godwit.write` does) stays as it was for processes that have it open.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from godwit.dtypes import ID_DTYPES, WEIGHT_DTYPES, Array, frozen
from godwit.errors import FormatError, InputError
from godwit.graph.arcs import ReadOptions
from godwit.graph.csr import Graph
from godwit.graph.ids import MAXIMAL_ID_BASE, VertexIds, require_no_objects
from godwit.graph.rows import Rows
from godwit.io.format import Format, Head
from godwit.io.source import Source

if TYPE_CHECKING:
    from godwit.io.binary.checksum import Rule

_MAGIC = b"\x89Godwit\n"
_VERSION = 1
_DIRECTED = 1
_HASH_AT = 56
_HEADER = struct.Struct("<8sIIQQQQII")  # up to the hash
_ENTRY = struct.Struct("<IIQQQ")
_LONGEST_TABLE = 8
_MOST = 2**48
_ALIGNMENT = 64  # of sections: a cache line, and a line of the checksum
_PIECE_BYTES = 1 << 26

# The kinds of sections, in the order of the file.
_NAMES = ("offsets", "targets", "weights", "integer ids", "text offsets", "text")
OFFSETS, TARGETS, WEIGHTS, INTEGER_IDS, TEXT_OFFSETS, TEXT = range(1, 7)

_INT64, _UINT8 = np.dtype(np.int64), np.dtype(np.uint8)
_CODES = {np.dtype(name): code for code, name in enumerate(
    ("int32", "uint32", "int64", "float32", "float64", "uint8"), 1
)}  # fmt: skip
_DTYPES = {code: dtype for dtype, code in _CODES.items()}

# The dtypes that the elements of a section can have.
_ALLOWED: dict[int, tuple[np.dtype[Any], ...]] = {
    OFFSETS: (_INT64,),
    TARGETS: ID_DTYPES,
    WEIGHTS: WEIGHT_DTYPES,
    INTEGER_IDS: (_INT64,),
    TEXT_OFFSETS: (_INT64,),
    TEXT: (_UINT8,),
}
_RULES: dict[int, Rule] = {OFFSETS: "ascending", TARGETS: "below"}
_ALLOWED_KINDS = [
    [OFFSETS, TARGETS, *weights, *ids]
    for weights in ([], [WEIGHTS])
    for ids in ([], [INTEGER_IDS], [TEXT_OFFSETS, TEXT])
]


class Section(NamedTuple):
    """An entry of the table."""

    kind: int
    dtype: np.dtype[Any]
    begin: int
    nbytes: int
    checksum: int

    @property
    def name(self) -> str:
        """Name of its content, for messages."""
        return _NAMES[self.kind - 1]

    @property
    def end(self) -> int:
        """Offset of the next section in the file."""
        return self.begin + _padded(self.nbytes)


@dataclass(frozen=True)
class _Header:
    directed: bool
    vertex_count: int
    arc_count: int
    id_base: int
    sections: list[Section]


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def recognize(head: Head) -> bool:
    """Return True if a file begins with the eight bytes of Godwit's files."""
    return head.content.startswith(_MAGIC)


def read(source: Source, options: ReadOptions) -> Graph:
    """Return the mapped graph in a file; its arrays are checked when they are first used.

    :raises FormatError: the header is damaged or contradicts itself; when the graph is first used: the
        rest is damaged
    """
    header, content, arrays = _map(source)
    return Graph.trusted(
        arrays[OFFSETS],
        arrays[TARGETS],
        arrays.get(WEIGHTS),
        directed=header.directed,
        ids=_mapped_ids(header, arrays),
        check=partial(_check, source.path, header, content, arrays),
    )


@dataclass(frozen=True)
class MappedGraph:
    """A mapped file, of which nothing has been checked but the header.

    :ivar rows: the rows of the graph
    :ivar ids: ids of its vertices
    """

    path: Path
    rows: Rows
    ids: VertexIds
    _header: _Header
    _content: Array

    @classmethod
    def of(cls, source: Source) -> MappedGraph:
        """Map a file; :raises FormatError: the header is damaged or contradicts itself"""
        header, content, arrays = _map(source)
        rows = Rows(arrays[OFFSETS], arrays[TARGETS], arrays.get(WEIGHTS))
        ids = VertexIds(header.vertex_count, _mapped_ids(header, arrays))
        return cls(source.path, rows, ids, header, content)

    @property
    def directed(self) -> bool:
        """False where every arc is stored in both directions."""
        return self._header.directed

    def checksums(self, part: int, parts: int) -> list[int]:
        """Return what a part of the bytes of each section adds to its checksum, modulo 2**64."""
        from godwit.io.binary.checksum import checksum_of_part

        return [
            checksum_of_part(self._content[section.begin : section.end], part, parts)
            for section in self._header.sections
        ]

    def check_sums(self, sums: list[int]) -> None:
        """Raise FormatError unless these are the checksums of the sections."""
        for section, value in zip(self._header.sections, sums, strict=True):
            if section.checksum != value:
                raise FormatError(self.path, _damaged(section))


def _damaged(section: Section) -> str:
    return f"the file is damaged: the checksum of its {section.name} does not match"


def _map(source: Source) -> tuple[_Header, Array, dict[int, Array]]:
    """Return header, content and arrays of a file."""
    header = _read_header(source)
    content = source.content()
    arrays = {
        section.kind: frozen(
            content[section.begin : section.begin + section.nbytes].view(section.dtype)
        )
        for section in header.sections
    }
    return header, content, arrays


def _read_header(source: Source) -> _Header:
    path, content = source.path, source.head.content
    if len(content) < _HEADER.size + 8:
        raise FormatError(path, "the file is truncated: it ends within its header")
    (
        magic, version, flags, vertex_count, arc_count, size, id_base, section_count, zero
    ) = _HEADER.unpack_from(content)  # fmt: skip
    if magic != _MAGIC:
        raise FormatError(path, "this is no file of Godwit's own format")
    if version != _VERSION:
        raise FormatError(
            path, f"the file has version {version} of Godwit's format, known is {_VERSION}"
        )
    end = _padded(_HASH_AT + 8 + _ENTRY.size * section_count)
    if section_count > _LONGEST_TABLE:
        raise FormatError(path, f"the file is damaged: its header claims {section_count} sections")
    if len(content) < end:
        raise FormatError(path, "the file is truncated: it ends within its header")
    if content[_HASH_AT : _HASH_AT + 8] != _hash(content[:end]):
        raise FormatError(path, "the file is damaged: the hash of its header does not match")
    sections = []
    for i in range(section_count):
        kind, code, begin, nbytes, value = _ENTRY.unpack_from(content, 64 + _ENTRY.size * i)
        sections.append(Section(kind, _DTYPES.get(code, np.dtype(object)), begin, nbytes, value))
    header = _Header(flags == _DIRECTED, vertex_count, arc_count, id_base, sections)
    if flags > _DIRECTED or zero != 0:
        raise FormatError(path, f"the header has unknown flags ({flags}, {zero})")
    problem = _contradiction(header, end, size)
    if problem is not None:
        raise FormatError(path, f"the header contradicts itself: {problem}")
    source.require_size(size, "header and sections")
    return header


def _contradiction(header: _Header, begin: int, size: int) -> str | None:
    """Return what contradicts itself in a header of a file of ``size`` bytes; None if nothing does."""
    n, m = header.vertex_count, header.arc_count
    if max(n, m) >= _MOST:
        return f"{n} vertices and {m} arcs"
    kinds = [section.kind for section in header.sections]
    if kinds not in _ALLOWED_KINDS:
        return f"sections of kinds {kinds}"
    if header.id_base > (MAXIMAL_ID_BASE if kinds[-1] <= WEIGHTS else 0):
        return f"ids from {header.id_base} on"
    counts = {OFFSETS: n + 1, TARGETS: m, WEIGHTS: m, INTEGER_IDS: n, TEXT_OFFSETS: n + 1}
    for section in header.sections:
        if section.dtype not in _ALLOWED[section.kind]:
            return f"{section.name} of an unknown dtype"
        count = counts.get(section.kind, section.nbytes)
        if section.begin != begin or section.nbytes != count * section.dtype.itemsize:
            return f"{section.nbytes} bytes of {section.name} at {section.begin}"
        begin = section.end
    return None if begin == size else f"{size} bytes, and sections to {begin}"


def _hash(header: bytes) -> bytes:
    """Return the hash of header and table, with zeros in place of the hash itself."""
    blank = header[:_HASH_AT] + bytes(8) + header[_HASH_AT + 8 :]
    return hashlib.blake2b(blank, digest_size=8).digest()


def _mapped_ids(header: _Header, arrays: dict[int, Array]) -> Any:
    """Return the ids. Arrow, which takes long to load, is loaded when text ids are used."""
    if INTEGER_IDS in arrays:
        return VertexIds.trusted("integer", arrays[INTEGER_IDS])
    if TEXT in arrays:
        make = partial(_text_array, arrays[TEXT_OFFSETS], arrays[TEXT])
        return VertexIds.trusted("text", make, header.vertex_count)
    return VertexIds.counted(header.vertex_count, header.id_base)


def _text_array(offsets: Array, text: Array) -> Any:
    import pyarrow as pa

    buffers = pa.py_buffer(offsets), pa.py_buffer(text)
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, *buffers)


def _check(path: Path, header: _Header, content: Array, arrays: dict[int, Array]) -> None:
    """Check checksums and elements of all sections.

    :raises FormatError: names the damaged section or element
    """
    from godwit.io.binary.checksum import checked

    nothing = frozen(np.empty(0, np.int64))
    wrong = set()
    for section in header.sections:
        rule = _RULES.get(section.kind, "anything")
        elements = nothing if rule == "anything" else arrays[section.kind]
        padded = content[section.begin : section.end]
        value, right = checked(padded, elements, rule, header.vertex_count)
        if value != section.checksum:
            raise FormatError(path, _damaged(section))
        if not right:
            wrong.add(section.kind)
    offsets, targets = arrays[OFFSETS], arrays[TARGETS]
    try:
        if wrong & {OFFSETS, TARGETS} or offsets[0] != 0 or offsets[-1] != header.arc_count:
            Graph(offsets, targets)  # raises the error that names the entry
        if TEXT in arrays:
            _check_text(arrays[TEXT_OFFSETS], arrays[TEXT])
    except InputError as error:
        raise FormatError(path, str(error)) from None


def _check_text(offsets: Array, text: Array) -> None:
    import pyarrow as pa

    if offsets[0] != 0 or offsets[-1] != len(text):
        raise InputError(
            f"the offsets of the text of ids must go from 0 to {len(text)}, "
            f"got {offsets[0]} to {offsets[-1]}"
        )
    try:
        _text_array(offsets, text).validate(full=True)
    except pa.ArrowInvalid as error:
        raise InputError(f"the text of ids is wrong: {error}") from None


def write(graph: Graph, file: BinaryIO) -> None:
    """Write a graph: header, then its arrays.

    :raises InputError: ids are Python objects
    """
    from godwit.io.binary.checksum import checksum

    arrays = [(OFFSETS, graph.offsets), (TARGETS, graph.targets)]
    if graph.weights is not None:
        arrays.append((WEIGHTS, graph.weights))
    arrays += stored_ids(graph.ids.in_file if graph.ids.own else graph.ids)
    sections = laid_out([(kind, array.dtype, array.nbytes) for kind, array in arrays])
    sums = [checksum(array) for _, array in arrays]
    base = 0 if graph.ids.own else graph.ids.base
    file.write(
        header_of(
            sections, sums, graph.vertex_count, graph.arc_count, base, directed=graph.directed
        )
    )
    for _, array in arrays:
        content = array.view(np.uint8)
        for at in range(0, content.size, _PIECE_BYTES):
            file.write(content[at : at + _PIECE_BYTES].data)
        file.write(bytes(_padded(content.size) - content.size))


def laid_out(contents: list[tuple[int, np.dtype[Any], int]]) -> list[Section]:
    """Return the sections of a file with these contents (kind, dtype, bytes), without checksums."""
    begin = _padded(_HASH_AT + 8 + _ENTRY.size * len(contents))
    sections = []
    for kind, dtype, nbytes in contents:
        sections.append(Section(kind, dtype, begin, nbytes, 0))
        begin = sections[-1].end
    return sections


def header_of(
    sections: list[Section], sums: list[int], vertices: int, arcs: int, base: int, *, directed: bool
) -> bytes:
    """Return header and table of a file.

    :param sums: checksums of the sections
    :param base: the id of the first vertex, of a graph without ids of its own
    """
    header = bytearray(sections[0].begin)
    flags = _DIRECTED if directed else 0
    numbers = (vertices, arcs, sections[-1].end, base, len(sections), 0)
    _HEADER.pack_into(header, 0, _MAGIC, _VERSION, flags, *numbers)
    for i, (section, value) in enumerate(zip(sections, sums, strict=True)):
        entry = (section.kind, _CODES[section.dtype], section.begin, section.nbytes, value)
        _ENTRY.pack_into(header, 64 + _ENTRY.size * i, *entry)
    header[_HASH_AT : _HASH_AT + 8] = _hash(bytes(header))
    return bytes(header)


def stored_ids(ids: VertexIds) -> list[tuple[int, Array]]:
    """Return the sections that hold the ids."""
    require_no_objects(ids, "Godwit's format")
    if ids.kind == "integer":
        return [(INTEGER_IDS, frozen(ids.stored, np.int64))]
    if not ids.own:
        return []
    texts = ids.to_arrow()
    _, offset_buffer, text_buffer = texts.buffers()
    if len(texts) == 0:
        return [(TEXT_OFFSETS, np.zeros(1, np.int64)), (TEXT, np.empty(0, np.uint8))]
    offsets = np.frombuffer(offset_buffer, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    text = np.empty(0, np.uint8)
    if last > first:
        text = np.frombuffer(text_buffer, np.uint8)[first:last]
    return [(TEXT_OFFSETS, offsets - first if first else offsets), (TEXT, text)]


FORMAT = Format("godwit", recognize, read, write)
