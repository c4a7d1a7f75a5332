"""Graphs from files and to files: format and compression are recognized by the content.

``source`` and ``compression`` provide the content of a file. Each format is a module with a
:class:`Format`, which recognizes, reads and writes it. Text formats share ``text/line_reader`` and
``text/scanner`` (lines to columns); ``graph/arcs`` makes a graph of columns.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from godwit.dtypes import WEIGHT_DTYPES, as_count, as_flag
from godwit.errors import FileError, FormatError, InputError, LostDataWarning, shown
from godwit.files import errors_named, replacing
from godwit.graph.arcs import ArcList, Progress, ReadOptions
from godwit.graph.csr import Graph, assemble
from godwit.graph.ids import MAXIMAL_ID_BASE
from godwit.io.compression import compressed
from godwit.io.foreign import refuse_foreign
from godwit.io.format import COMPRESSION_SUFFIXES, Format, Head, without_compression
from godwit.io.format_names import FORMATS
from godwit.io.source import open_source
from godwit.public import or_distributed, public

if TYPE_CHECKING:
    from godwit.graph.arcs import ArcList

__all__ = ["FORMATS", "read", "write"]


@cache
def format_named(name: str) -> Format:
    """Return the format of a name in :data:`FORMATS`."""
    format: Format = import_module(f"godwit.io.{FORMATS[name].module}").FORMAT
    return format


@public
def read(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    id_base: int | None = None,
    directed: bool | None = None,
    weighted: bool | None = None,
    columns: tuple[str, ...] | list[str] | None = None,
    relabel: bool | None = None,
    weight_dtype: Any = None,
    progress: Progress | bool | None = None,
) -> Graph:
    """Read a graph from a file, compressed (gzip, bzip2, xz, zstd) or not.

    In edge lists and tables ids are names: the vertices are those that occur, by ascending id, and
    functions take and give them by id (``graph.ids``). Formats that count vertices give 0 to n - 1.
    Parallel arcs and self-loops are kept. Weights in text are int32, or int64 if one of them needs it;
    float64 if they are real numbers. If a table has further columns, and none is called as weights usually
    are (``weight``, ``cost``, ...), ``errors.LostDataWarning`` names them, unless ``columns`` is given.

    :param path: the file
    :param format: a name in :data:`FORMATS`; recognized by the content if None
    :param id_base: id of the first vertex in files that count vertices. None: 1 for Matrix Market, METIS
        and DIMACS (but 0 for DIMACS without a problem line if there is a vertex 0). For edge lists and
        tables it implies ``relabel=False``, for which None is 0
    :param directed: None: as in the file (a symmetric matrix is undirected, an edge list is directed
        unless a comment declares otherwise, and Gephi's CSV unless the column ``Type`` does;
        ``errors.DirectionWarning`` warns of a METIS file that has edges in one direction only). False: each
        arc of the file is an edge. True: of an undirected file, a directed graph of the same arcs
    :param weighted: None: as in the file. False: drop the weights. True: the file must have weights
    :param columns: names of a table's columns (CSV, Parquet) with sources, targets and, if there is a
        third name, weights
    :param relabel: for edge lists and tables. False: ids are not names, but positions, counted from
        ``id_base`` to the largest. None: they are names, unless the file itself declares that it counts
        vertices, as those that Godwit writes do. True: they are names
    :param weight_dtype: for formats that declare the bytes of a weight, but not its type (Galois, GAP)
    :param progress: True for a bar; or a function that is called now and then from the calling thread with
        (bytes done, bytes in all, phase); while the file is read or decompressed these are bytes of the
        file itself
    :raises FileError: the file is missing or cannot be read
    :raises FormatError: it cannot be read as a graph; names the line
    :raises GraphTooLargeError: before more is allocated than there is memory
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"path must be a string or a path, got {shown(path)}")
    if format is not None:
        _check_format(format)
    if id_base is not None:
        id_base = as_count(id_base, "id_base", 0, MAXIMAL_ID_BASE)
    if isinstance(progress, bool):
        progress = None  # a bar is a function by now
    if progress is not None and not callable(progress):
        raise InputError(f"progress must be a function, got {shown(progress)}")
    directed, weighted, relabel = (
        None if value is None else as_flag(value, name)
        for name, value in (("directed", directed), ("weighted", weighted), ("relabel", relabel))
    )
    if relabel is True and id_base is not None:
        raise InputError(
            "relabel=True and id_base contradict each other: ids are names, or numbers"
        )
    options = ReadOptions(
        id_base,
        directed,
        weighted,
        _checked_columns(columns),
        relabel,
        _checked_weight_dtype(weight_dtype),
        progress,
    )
    _check_is_no_name(path)
    with open_source(path, progress) as source:
        chosen = format_named(format) if format is not None else recognize(source.head, options)
        _check_options(source.path, chosen, options)
        content = chosen.read(source, options)
        if isinstance(content, ArcList) and content.unread:
            warnings.warn(f"{source.path}: {content.unread}", LostDataWarning, stacklevel=3)
        graph = content if isinstance(content, Graph) else assemble(content, options)
        return _with_options(graph, source.path, options)


def _check_is_no_name(path: str | os.PathLike[str]) -> None:
    """Raise FileError for the name of a graph, or an address, where there is no such file."""
    from godwit.graph.generators.spec import is_spec
    from godwit.io.datasets.catalog import PREFIX, is_named

    text = os.fspath(path)
    if os.path.exists(text):
        return
    name = text.removeprefix(PREFIX)
    if "://" in text:
        advice = "graphs are not read over the network: download it first"
    elif is_spec(text):
        advice = "godwit.generate makes the graph of this name"
    elif name != text or is_named(name):
        advice = (
            f"godwit.dataset({name!r}) fetches a published graph (command line: {PREFIX}{name})"
        )
    elif text.startswith("~"):
        advice = "~ is not expanded: os.path.expanduser does that"
    else:
        return
    raise FileError(f"no such file: {text}; {advice}")


STREAMED_BYTES = 1 << 24
"""How much of a file is held at once if its arcs stream; its arcs take up to four times as much."""


@contextmanager
def list_arcs(
    path: str | os.PathLike[str],
    columns: tuple[str, ...] | list[str] | None = None,
    progress: Progress | None = None,
) -> Iterator[ArcList]:
    """Open a file for its arcs. It is read once here, and again each time that the arcs are iterated.

    Vertices are those of :func:`read`. Little of the file is in memory at once; a compressed file is read
    from a temporary copy.

    :param columns: as for :func:`read`
    :param progress: as for :func:`read`, but called from any thread that reads the file
    :raises InputError: the format lists no arcs, or ids are texts
    :raises FileError: the file is missing or cannot be read
    :raises FormatError: it cannot be read as a graph; names the line
    """
    chosen = _checked_columns(columns)
    options = ReadOptions(weighted=False, columns=chosen, progress=progress, text_ids=False)
    with open_source(path, progress, STREAMED_BYTES) as source:
        format = recognize(source.head, options)
        _check_options(source.path, format, options)
        listed = format.read(source, options) if format.lists_arcs else None
        if listed is None or isinstance(listed, Graph):
            raise InputError(
                f"{source.path} is of format {format.name}, whose arcs do not stream: "
                "call godwit.read first (command line: leave out --stream)"
            )
        yield listed


@or_distributed("godwit.distributed.writing", "godwit.distributed.writing")
def write(graph: Graph, path: str | os.PathLike[str], *, format: str | None = None) -> None:
    """Write a graph to a file, compressed according to its ending (.gz, .bz2, .xz, .zst).

    What the format cannot hold is refused, not dropped, except for attributes of vertices and edges
    (:attr:`Graph.vertex_data`, :attr:`Graph.edge_data`), which GraphML alone has:
    ``errors.LostDataWarning`` names them. The file is complete, or not there. Some formats do not declare
    everything, and need an argument when they are read again: the kind of weights (Galois:
    ``weight_dtype=``), directions (CSV: ``directed=False``).

    :param format: a name in :data:`FORMATS`; by the ending of the name if None
    :raises InputError: the format is unknown, or cannot hold the graph's weights, ids or direction
    :raises FileError: the file cannot be written; an existing file is unchanged
    """
    if not isinstance(graph, Graph):
        raise InputError(
            f"expected a godwit.Graph, then a path; got a {type(graph).__name__} first"
        )
    chosen = writable_format(path, format)
    name = Path(path)
    check_ending(name, weighted=graph.is_weighted)
    lost = ", ".join(map(str, (*graph.vertex_data, *graph.edge_data)))
    if lost and not chosen.holds_data:
        message = f"{name} does not have the attributes of vertices and edges: {lost}"
        warnings.warn(message, LostDataWarning, stacklevel=4)
    compression = COMPRESSION_SUFFIXES.get(name.suffix.lower())
    packed_suffix = name.suffix if compression is not None else ""
    stem = name.with_suffix("") if compression is not None else name
    parts: dict[Path, Callable[[Graph, BinaryIO], None]] = {name: chosen.write}
    for suffix, write_beside in chosen.beside.items():
        part = Path(f"{stem.with_suffix(suffix)}{packed_suffix}")
        if part in parts:
            raise InputError(f"a file of format {chosen.name} cannot be called {part.name}")
        parts[part] = partial(write_beside, stem.stem)
    with ExitStack() as complete:
        files = {part: complete.enter_context(replacing(part)) for part in parts}
        for part, write_part in parts.items():
            with errors_named(part), compressed(files[part], compression) as file:
                write_part(graph, file)


def writable_format(path: str | os.PathLike[str], format: str | None = None) -> Format:
    """Return the format in which a file of this name is written.

    :raises InputError: there is none
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"path must be a string or a path, got {shown(path)}")
    if format is not None:
        _check_format(format)
        return format_named(format)
    name = without_compression(Path(path).name).lower()
    known = {ending: format for format, entry in FORMATS.items() for ending in entry.endings}
    for ending, format_name in known.items():
        if name.endswith(ending):
            return format_named(format_name)
    raise InputError(
        f"cannot tell the format from the name {os.fspath(path)!r}: use one of {', '.join(known)}, "
        "or pass format= (command line: --to)"
    )


_HOLDS_WEIGHTS = {".el": False, ".wel": True, ".sg": False, ".wsg": True, ".vgr": False}
"""Endings by which other programs decide whether there are weights."""


def check_ending(path: Path, *, weighted: bool) -> None:
    """Refuse a name whose ending contradicts the weights. :raises InputError: it does"""
    ending = Path(without_compression(path.name)).suffix.lower()
    expected = _HOLDS_WEIGHTS.get(ending)
    if expected is None or expected == weighted:
        return
    if expected:
        raise InputError(f"a {ending} file has weights, and the graph has none")
    raise InputError(
        f"a {ending} file has no weights, and the graph has some: choose another ending, or drop them "
        "with graph.without_weights() (command line: --drop weights)"
    )


def recognize(head: Head, options: ReadOptions) -> Format:
    """Return the format of a file that begins like this. :raises FormatError: it is unknown"""

    def rank(name: str) -> int:
        if FORMATS[name].certain:
            return 0
        if name == "csv":  # it has a header, which no edge list has
            return 1
        return 2 if head.stem.endswith(FORMATS[name].endings) else 3

    refuse_foreign(head)
    for candidate in map(format_named, sorted(FORMATS, key=rank)):
        if candidate.name == "edge-list" and options.columns is not None and head.lines:
            return format_named("csv")  # only the user knows that the first line names columns
        if (head.lines or not head.is_text) and candidate.recognize(head):
            _check_header(head, candidate.name)
            return candidate
    _check_header(head)
    problem = f"unknown format; known are {', '.join(FORMATS)} (format=, command line: --format)"
    if not head.is_text:
        raise FormatError(
            head.path,
            f"{problem}; this is not a text file (connected_components_of_edges takes bare pairs with "
            "their edge_dtype)",
        )
    if b"\r" in head.content and b"\n" not in head.content:
        raise FormatError(head.path, "its lines end with CR alone: convert them to LF or CR LF")
    from godwit.io.text.edge_list import further_columns

    if further := further_columns(head):
        raise FormatError(head.path, further)
    problem += (
        '; format="csv" reads a table below a line of names, and godwit.Graph.from_table what '
        "pandas.read_csv(path, sep=...) reads"
    )
    number, first = next(
        ((i, line) for i, line in enumerate(head.content.decode("utf-8-sig", "replace").split("\n"), 1)
         if line.strip()),
        (1, ""),
    )  # fmt: skip
    raise FormatError(head.path, problem, line=number, text=first)


def _check_header(head: Head, recognized: str | None = None) -> None:
    """Refuse a file without the header of its ending, unless it is certain to be of another format.

    :param recognized: the format as which it would be read
    """
    if not head.is_text or (recognized is not None and FORMATS[recognized].certain):
        return
    for name, entry in FORMATS.items():
        ending = next(filter(head.stem.endswith, entry.endings), None)
        if ending is None or not entry.header or name == recognized:
            continue
        problem = f"a {ending} file begins with {entry.header}, which is missing"
        if recognized is not None:
            problem += (
                f'; format="{recognized}" (command line: --format {recognized}) reads it as it is'
            )
        raise FormatError(head.path, problem)


def _check_format(format: Any) -> None:
    if not (isinstance(format, str) and format in FORMATS):
        raise InputError(f"format must be one of {', '.join(FORMATS)}, got {shown(format)}")


def _checked_columns(columns: Any) -> tuple[str, ...] | None:
    if columns is None:
        return None
    if not isinstance(columns, tuple | list) or not all(isinstance(name, str) for name in columns):
        raise InputError(
            f"columns must be names such as ['source', 'target'], got {shown(columns)}"
        )
    names = tuple(columns)
    if len(names) not in (2, 3) or len(set(names)) < len(names):
        raise InputError(f"columns must be 2 or 3 different names, got {shown(columns)}")
    return names


def _checked_weight_dtype(weight_dtype: Any) -> np.dtype[Any] | None:
    if weight_dtype is None:
        return None
    try:
        dtype: np.dtype[Any] = np.dtype(weight_dtype)
    except (TypeError, ValueError, SyntaxError):
        dtype = np.dtype(object)
    if dtype not in WEIGHT_DTYPES:
        known = ", ".join(allowed.name for allowed in WEIGHT_DTYPES)
        raise InputError(f"weight_dtype must be one of {known}, got {shown(weight_dtype)}")
    return dtype


def _check_options(path: Path, format: Format, options: ReadOptions) -> None:
    """Refuse options that do not apply to the format."""
    for name in ("id_base", "columns", "relabel", "weight_dtype"):
        if getattr(options, name) is not None and name not in format.options:
            raise InputError(f"{path} is of format {format.name}, for which {name} means nothing")


def _with_options(graph: Graph, path: Path, options: ReadOptions) -> Graph:
    """Apply the options that formats may ignore."""
    if options.weighted is True and not graph.is_weighted:
        raise FormatError(path, "the file has no weights, and weighted=True asks for them")
    if options.weighted is False:
        graph = graph.without_weights()
    if options.directed is False and graph.directed:
        return graph.symmetrize(merge=None)
    if options.directed is True and not graph.directed:
        return Graph.trusted(graph.offsets, graph.targets, graph.weights, ids=graph.ids)
    return graph
