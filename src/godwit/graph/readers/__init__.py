"""Graphs from files: the format and the compression are recognized by the content.

A file goes through three hands: ``compression`` gives its text, a format (one module each) says
what its header means, and ``text`` with ``scanner`` turns the lines of arcs into columns.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from godwit.dtypes import as_count, shown
from godwit.errors import FormatError, InputError
from godwit.graph.csr import MAXIMAL_ID_BASE, Graph
from godwit.graph.readers import dimacs, edge_list, matrix_market
from godwit.graph.readers.compression import load_text
from godwit.graph.readers.parsed import ParsedGraph
from godwit.graph.readers.text import Progress, Text

__all__ = ["FORMATS", "read"]


@dataclass(frozen=True)
class Format:
    """How a format is recognized by its first lines, and read."""

    recognize: Callable[[list[str]], bool]
    parse: Callable[[Text, int | None, Progress | None], ParsedGraph]


FORMATS = {
    "dimacs": Format(dimacs.recognize, dimacs.parse),
    "matrix-market": Format(matrix_market.recognize, matrix_market.parse),
    "edge-list": Format(edge_list.recognize, edge_list.parse),
}
"""The formats by name, in the order in which they are tried."""

_LINES_TO_LOOK_AT = 100


def read(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    id_base: int | None = None,
    directed: bool | None = None,
    weighted: bool | None = None,
    progress: Progress | None = None,
) -> Graph:
    """Read a graph from a file, compressed (gzip, bzip2, xz, zstd) or not.

    Vertices are counted from 0 in the graph, whatever the file calls the first one; that is kept as
    ``graph.id_base``. Parallel arcs and self-loops are kept. Weights are int32, or int64 if one of
    them needs it; float64 if they are real numbers.

    :param path: the file
    :param format: a name in :data:`FORMATS`; recognized by the content if None
    :param id_base: what the file calls the first vertex. None: 1 for Matrix Market and DIMACS (but
        0 for DIMACS without a problem line if there is a vertex 0), 0 for edge lists
    :param directed: None: as the file has it (a symmetric matrix is undirected, all else is
        directed). False: each arc of the file is an edge. True: for a symmetric matrix, the same
        arcs in a graph that is called directed
    :param weighted: None: as the file has it. False: drop the weights. True: there must be some
    :param progress: called now and then from the calling thread with (bytes done, bytes in all,
        phase); while the file is read or decompressed these are bytes of the file itself
    :raises FileError: if the file is missing or cannot be read
    :raises FormatError: if it cannot be read as a graph; names the line
    :raises GraphTooLargeError: before more is allocated than there is memory
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"path must be a string or a path, got {shown(path)}")
    if format is not None and not (isinstance(format, str) and format in FORMATS):
        raise InputError(f"format must be one of {', '.join(FORMATS)}, got {shown(format)}")
    if id_base is not None:
        id_base = as_count(id_base, "id_base", 0, MAXIMAL_ID_BASE)
    if progress is not None and not callable(progress):
        raise InputError(f"progress must be a function, got {shown(progress)}")
    text = load_text(path, progress)
    parsed = FORMATS[format or _recognize(text)].parse(text, id_base, progress)
    weights = parsed.arcs.weights
    if weighted is True and weights is None:
        raise FormatError(
            os.fspath(path), "the file has no weights, and weighted=True asks for them"
        )
    file_size = text.size
    del text  # before the rows are built: the text is often larger than the graph
    if progress is not None:
        progress(file_size, file_size, "building")
    both_directions = not parsed.directed or directed is False
    graph = Graph.from_arcs(
        parsed.arcs.sources,
        parsed.arcs.targets,
        None if weighted is False else weights,
        vertex_count=parsed.vertex_count,
        directed=not both_directions,
        id_base=parsed.id_base,
    )
    if both_directions and directed is True:
        graph = Graph.trusted(graph.offsets, graph.targets, graph.weights, id_base=graph.id_base)
    return graph


def _recognize(text: Text) -> str:
    """The name of the format that the text is in."""
    known = f"unknown format; known are {', '.join(FORMATS)}"
    if b"\0" in text.buffer[: min(text.size, 4096)].tobytes():
        raise FormatError(text.path, f"{known} (this is not a text file)")
    filled = ((position, line) for position, line in text.lines() if line)
    position, first = next(filled, (text.begin, ""))
    data = (line for _, line in filled if not line.startswith(("#", "%")))
    lines = [first, *islice(data, _LINES_TO_LOOK_AT)]
    for name, candidate in FORMATS.items():
        if first and candidate.recognize(lines):
            return name
    raise text.error(f"{known} (format=, command line: --format)", position)
