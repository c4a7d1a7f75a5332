"""LDBC Graphalytics: vertices in NAME.v, edges in NAME.e, their meaning in NAME.properties.

Source: LDBC Graphalytics Benchmark Specification, section on data. Each line of NAME.v is a vertex, an
integer of 64 bits, in libgrape-lite's files followed by its data, which are skipped; and each line of
NAME.e is ``SOURCE TARGET [WEIGHT]``. The properties declare ``graph.NAME.directed = true`` or false; an
undirected graph has each edge once. They may name other files, and declare the numbers of vertices and
edges.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from godwit.dtypes import Array
from godwit.errors import FileError, FormatError, InputError
from godwit.graph.arcs import ArcList, Block, IdTable, ReadOptions
from godwit.graph.csr import Graph
from godwit.io.format import COMPRESSION_SUFFIXES, Format, Head, without_compression
from godwit.io.source import Source
from godwit.io.text.adjacency_list import require_integer_ids
from godwit.io.text.line_reader import ANY_ID, LineShape, check_arc_count, read_lines, windows
from godwit.io.text.lines import Text
from godwit.io.text.scanner import INTEGER_32, INTEGER_64, NONE, REAL
from godwit.io.text.writing import line_count, write_arcs, write_rows

_EDGES, _VERTICES, _PROPERTIES = ".e", ".v", ".properties"
_VERTEX_LINES = LineShape(
    "VERTEX (an integer that is not negative) or VERTEX DATA", comments="#", many=True
)
_EDGES_ALONE = (
    f'the file {_EDGES} is read alone with format="edge-list", command line: --format edge-list'
)
_INTEGER = re.compile("-?[0-9]+")
_PROPERTY = re.compile(r"(graph\.[^=:\s]*)\s*[=:]\s*(.*)")
_WEIGHTS = {"integer": (INTEGER_32, INTEGER_64, REAL), "real": (REAL,)}
_COUNT = re.compile(r"[0-9]{1,18}")
_NO_NAME = re.compile(r"[\s=:\\\x00-\x1f\x7f\ud800-\udfff]")
"""Characters with a meaning in properties, or that UTF-8 cannot have."""


@dataclass(frozen=True)
class _Properties:
    """Declarations of the properties; counts as (position, value)."""

    text: Text | None = None
    directed: bool = True
    weights: str | None = None
    vertices: tuple[int, int] | None = None
    edges: tuple[int, int] | None = None
    vertex_file: str | None = None
    edge_file: str | None = None


def recognize(head: Head) -> bool:
    """Return True if this is one of the files of a graph, and those of vertices and edges exist."""
    suffix = Path(head.stem).suffix
    if suffix == _PROPERTIES:
        return any(map(_PROPERTY.fullmatch, head.lines))
    if suffix not in (_EDGES, _VERTICES):
        return False
    return all(_beside(head.path, part) is not None for part in (_EDGES, _VERTICES))


def read(source: Source, options: ReadOptions) -> ArcList:
    """Read the graph that a file belongs to.

    Vertices are those of NAME.v, in ascending order. Without properties the graph is directed.
    Weights are int32, int64 or float64; float64 if the properties declare them real.

    :raises FileError: there is no file of vertices, or of edges
    """
    path = source.path
    suffix = Path(without_compression(path.name)).suffix.lower()

    def opened(part: str, name: str | None = None) -> Source:
        if suffix == part:
            return source
        wanted = name or Path(without_compression(path.name)).with_suffix(part).name
        existing = _existing(path, wanted)
        if existing is None:
            raise FileError(f"no such file: {path.parent / wanted}, which belongs to {path}")
        return source.beside(existing)

    properties = _Properties()
    if suffix == _PROPERTIES or _beside(path, _PROPERTIES) is not None:
        properties = _read_properties(opened(_PROPERTIES).text())
    named = properties if suffix == _PROPERTIES else _Properties()
    vertices = opened(_VERTICES, named.vertex_file)
    names = _read_vertices(vertices.text(), properties, options)
    is_edges = suffix not in (_VERTICES, _PROPERTIES)
    edges = source if is_edges else opened(_EDGES, named.edge_file)
    return _read_edges(edges.text(), vertices.path, names, properties, options)


def _beside(path: Path, suffix: str) -> Path | None:
    """Return the file of the same name with another suffix; None if there is none."""
    return _existing(path, path.with_name(without_compression(path.name)).with_suffix(suffix).name)


def _existing(path: Path, name: str) -> Path | None:
    """Return the file of a name beside another one, compressed in any way; None if there is none."""
    suffix = path.name.removeprefix(without_compression(path.name))
    for compression in (suffix, "", *COMPRESSION_SUFFIXES):
        candidate = path.with_name(f"{name}{compression}")
        if os.path.isfile(candidate):
            return candidate
    return None


def _read_vertices(text: Text, properties: _Properties, options: ReadOptions) -> IdTable:
    first = next((line for _, line in text.lines() if line and line[0] != "#"), "")
    columns = 2 if len(first.split()) == 2 else 1
    try:
        ids = (_vertices_with_data if columns == 2 else _vertices)(text, options)
    except FormatError:
        ids = None
    if ids is None:
        raise _first_wrong_vertex(text, columns)
    names = IdTable(ids)
    if names.duplicate is not None:
        raise text.error(f"vertex {names.duplicate} is listed twice")
    if properties.vertices is not None and properties.text is not None:
        position, declared = properties.vertices
        check_arc_count(properties.text, declared, len(ids), position, "vertices")
    return names


def _vertices(text: Text, options: ReadOptions) -> Array | None:
    """Read the only column; None if there is another one."""
    lines = read_lines(text, text.begin, _VERTEX_LINES, ANY_ID, options.progress)
    return None if lines.count else lines.heads


def _vertices_with_data(text: Text, options: ReadOptions) -> Array | None:
    """Read the first of two columns; None if it does not hold vertices only."""
    import pyarrow as pa
    import pyarrow.compute as pc

    shape = LineShape(_VERTEX_LINES.expected, comments="#", words=True)
    ids: list[Array] = []
    for block in read_lines(text, text.begin, shape, ANY_ID, options.progress).blocks():
        names: Any = block.sources
        if not pc.all(pc.match_substring_regex(names, "^[0-9]+$"), min_count=0).as_py():
            return None
        try:
            ids.append(names.cast(pa.int64()).to_numpy())
        except pa.ArrowInvalid:
            return None
    return np.concatenate(ids)


def _first_wrong_vertex(text: Text, columns: int) -> FormatError:
    """Return the error about a file of vertices that is known to be wrong."""
    for position, line in text.lines():
        words = line.split()
        if not words or line[0] == "#":
            continue
        problem = f"malformed line, expected {_VERTEX_LINES.expected}"
        if len(words) == columns and _INTEGER.fullmatch(words[0]):
            complaint = ANY_ID.complaint(words[0])
            if complaint is None:
                continue
            problem = complaint
        elif len(words) == 3 - columns:
            problem = "malformed line, each has the data of its vertex or none has"
        return text.error(f"{problem} ({_EDGES_ALONE})", position)
    return text.error(f"malformed lines, expected {_VERTEX_LINES.expected} ({_EDGES_ALONE})")


def _read_edges(
    text: Text, vertex_path: Path, names: IdTable, properties: _Properties, options: ReadOptions
) -> ArcList:
    begin, line = next(
        ((at, line) for at, line in text.lines() if line and line[0] != "#"), (text.size, "")
    )
    kinds: tuple[int, ...] = (NONE,)
    if properties.weights is not None or len(line.split()) > 2:
        kinds = _WEIGHTS[properties.weights or "integer"]
    expected = "SOURCE TARGET" if kinds == (NONE,) else "SOURCE TARGET WEIGHT"
    shape = LineShape(expected, kinds, comments="#")
    arcs = read_lines(text, begin, shape, ANY_ID, options.progress)
    if properties.edges is not None and properties.text is not None:
        position, declared = properties.edges
        check_arc_count(properties.text, declared, arcs.count, position, "edges")

    def with_vertices(block: Block) -> Block:
        columns: list[Array] = []
        for ids in (block.sources, block.targets):
            vertices = names.vertices(ids)
            unknown = np.flatnonzero(vertices < 0)
            if len(unknown):
                k = unknown[0]
                position = _find_edge(text, begin, int(block.sources[k]), int(block.targets[k]))
                raise text.error(
                    f"vertex {ids[k]} is not in {vertex_path.name} ({_EDGES_ALONE})", position
                )
            columns.append(vertices)
        return Block(columns[0], columns[1], block.weights)

    blocks: Callable[[], Iterable[Block]]
    if arcs.one_block:
        only = list(map(with_vertices, arcs.blocks()))

        def blocks() -> Iterable[Block]:
            return only
    else:
        for block in arcs.blocks():
            with_vertices(block)

        def blocks() -> Iterable[Block]:
            return map(with_vertices, arcs.blocks())

    text.release()
    return ArcList(replace(arcs, blocks=blocks), len(names.ids), properties.directed, names.ids)


def _find_edge(text: Text, begin: int, source: int, target: int) -> int:
    """Return the position of the first line with an edge, which is known to exist."""
    edge = re.compile(rb"^[ \t]*0*%d[ \t]+0*%d(?![0-9])" % (source, target), re.MULTILINE)
    for low, high in windows(text, begin):
        buffer, shift = text.window(low, high)
        match = edge.search(buffer[low - shift : high - shift].data)
        if match is not None:
            return low + match.start()
    return begin


def _read_properties(text: Text) -> _Properties:
    values: dict[str, Any] = {}
    for position, line in text.lines():
        property = _PROPERTY.fullmatch(line)
        if property is None:
            if line and line[0] not in "#!" and "=" not in line:
                raise text.error("malformed line, expected KEY = VALUE", position)
            continue
        key, value = property[1], property[2].strip()
        if key.endswith(".directed"):
            if value.lower() not in ("true", "false"):
                raise text.error("directed must be true or false", position)
            values["directed"] = value.lower() == "true"
        elif key.endswith(".edge-properties.types"):
            if value not in _WEIGHTS:
                raise text.error(f"weights must be one of {', '.join(_WEIGHTS)}", position)
            values["weights"] = value
        elif key.endswith((".meta.vertices", ".meta.edges")):
            if _COUNT.fullmatch(value) is None:
                raise text.error("expected a number of vertices or edges", position)
            values[key.rpartition(".")[2]] = (position, int(value))
        elif key.endswith((".vertex-file", ".edge-file")):
            if value in ("", "..") or value != Path(value).name or "\0" in value:
                raise text.error("expected the name of a file in the same folder", position)
            values[key.rpartition(".")[2].replace("-", "_")] = value
    return _Properties(text, **values)


def write(graph: Graph, file: BinaryIO) -> None:
    """Write arcs, or each edge once.

    :raises InputError: ids are no integers, or negative
    """
    require_integer_ids(graph, "Graphalytics")
    if graph.arc_count == 0:
        file.write(b"# no edges\n")  # empty files are refused
    write_arcs(graph, file)


def write_vertices(name: str, graph: Graph, file: BinaryIO) -> None:
    """Write the ids of all vertices."""
    ids = require_integer_ids(graph, "Graphalytics")
    if graph.vertex_count == 0:
        file.write(b"# no vertices\n")
    vertices = Graph.trusted(np.zeros_like(graph.offsets), np.empty(0, np.int32))
    write_rows(vertices, file, base=graph.ids.base, names=ids, headed=True)


def write_properties(name: str, graph: Graph, file: BinaryIO) -> None:
    """Write direction, weights and counts.

    :raises InputError: properties cannot hold the name
    """
    wrong = _NO_NAME.search(name)
    if wrong is not None or not name:
        character = "" if wrong is None else f": it has {wrong[0]!r} in it"
        raise InputError(f"a Graphalytics graph cannot be called {name!r}{character}")
    prefix = f"graph.{name}"
    lines = [
        f"{prefix}.vertex-file = {name}{_VERTICES}",
        f"{prefix}.edge-file = {name}{_EDGES}",
        f"{prefix}.meta.vertices = {graph.vertex_count}",
        f"{prefix}.meta.edges = {line_count(graph)}",
        f"{prefix}.directed = {'true' if graph.directed else 'false'}",
    ]
    weights = graph.weights
    if weights is not None:
        kind = "real" if weights.dtype.kind == "f" else "integer"
        lines += [
            f"{prefix}.edge-properties.names = weight",
            f"{prefix}.edge-properties.types = {kind}",
        ]
    file.write("".join(f"{line}\n" for line in lines).encode())


FORMAT = Format(
    "graphalytics",
    recognize,
    read,
    write,
    {_VERTICES: write_vertices, _PROPERTIES: write_properties},
    lists_arcs=True,
)
