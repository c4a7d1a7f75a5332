"""Parsers of graphs, vertices, devices, partitions and numbers given on the command line.

A graph is a file (``-``: standard input), ``name:size[,key=value...]`` for a generator, or
``dataset:name``; a vertex is an id of the graph's file (``graph.ids``).
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from godwit.cli.progress import Display
from godwit.errors import DirectionWarning, InputError
from godwit.graph.generators.spec import (
    GENERATORS,
    generate,
    is_spec,
    parse_spec,
    plain_integer,
    plain_number,
)

if TYPE_CHECKING:
    from godwit.cli.options import ReadingOptions
    from godwit.graph.csr import Graph

MAX_DEGREE = "max-degree"
_STDIN = "-"


def load_graph(
    text: str,
    display: Display,
    reading: ReadingOptions,
    device: str | None = None,
    merge: Any = None,
) -> Graph:
    """Read or generate a graph, and show progress.

    ``--undirected`` gives an edge the least weight of the arcs that it replaces, unless ``merge`` says
    otherwise.

    :param device: device that generates the graph; ignored for files
    :param merge: as of :meth:`Graph.merge_parallel_arcs`; ``"sum"`` counts arcs without weights. None keeps
        parallel arcs
    """
    _check_name(text)
    if is_spec(text):
        names = [name for name in reading.names if name != "--undirected"]
        if names:
            raise InputError(f"{' '.join(names)} is for files; {text} is a generated graph")
        make: Callable[[], Graph] = parse_spec(text)
        if device is not None:
            make = partial(generate, text, device=device)
        with display.waiting(f"generating {text}"):
            graph = make()
    else:
        from godwit.io.datasets import dataset, is_dataset
        from godwit.io.graph_files import read

        # directed=False would make two edges of arcs that are listed in both directions.
        arguments = reading.arguments | {"directed": reading.directed or None}
        if is_dataset(text):
            with display.bar(f"reading {text}") as progress:
                graph = dataset(text, progress=progress, **arguments)
        else:
            path = file_of(text)
            with display.bar(f"reading {Path(path).name}") as progress, warnings.catch_warnings():
                if reading.directed is not None:
                    warnings.simplefilter("ignore", DirectionWarning)
                graph = read(path, progress=progress, **arguments)
    if merge == "sum" and not graph.is_weighted:
        import numpy as np

        graph = graph.with_weights(np.ones(graph.arc_count, np.int32))
    if reading.directed is False and graph.directed:
        with display.waiting("symmetrizing"):
            return graph.symmetrize(merge or "min")
    if merge is not None:
        with display.waiting("merging parallel arcs"):
            return graph.merge_parallel_arcs(merge)
    return graph


def file_of(text: str) -> str:
    """Return the path of a file named on the command line; ``-`` names standard input."""
    return "/dev/stdin" if text == _STDIN else text


def _check_name(text: str) -> None:
    """Raise InputError for addresses, misspelt generators and files that look like generators."""
    if not text:
        raise InputError("GRAPH must be a file, a generated graph or a data set, got ''")
    if text.startswith(("http://", "https://")):
        raise InputError(f"graphs are not read over the network: download {text} first")
    match = re.fullmatch(r"([\w-]{2,})(:[^/\\]*)?", text)
    if match is None or is_spec(text) or match[1] == "dataset" or Path(text).exists():
        return
    if match[1] in GENERATORS:
        raise InputError(f"no such file: {text}; a generated graph is {GENERATORS[match[1]].usage}")
    if match[2]:
        known = ", ".join(GENERATORS)
        raise InputError(f"no such file: {text}; nor is {match[1]} a generator: those are {known}")


def parse_vertex(text: str, graph: Graph, name: str) -> Any:
    """Return the vertex id, as Python functions take it, for an id in the file or ``max-degree``.

    :param name: name of the option, for error messages
    """
    ids = graph.ids
    if text == MAX_DEGREE:
        return graph.highest_degree_vertex()
    file_id: Any = text
    if ids.kind in ("consecutive", "integer"):
        file_id = plain_integer(text)
        if file_id is None:
            raise InputError(f"{name} must be the id of a vertex or {MAX_DEGREE}, got {text!r}")
    if file_id not in ids.in_file:
        raise InputError(
            f"{name} {file_id!r:.80} is not in the graph, which has {ids.in_file.described}"
            f"{ids.similar(file_id)}"
        )
    return ids[ids.in_file.position(file_id)]


def parse_devices(text: str | None) -> int | str | list[str] | None:
    """Return ``"4"``, ``"cpu"`` or ``"cpu:0,cpu:1"`` as Python functions take devices."""
    if text is None:
        return None
    count = plain_integer(text)
    if count is not None:
        return count
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InputError(
            f"--devices must be a number or names such as cpu or cpu:0,cpu:1, got {text!r}"
        )
    return names[0] if len(names) == 1 else names


def parse_partition(text: str | None) -> Any:
    """Return the name of a method, or the array in a .npy file: the owner of each vertex."""
    if text is None or not text.endswith(".npy"):
        return text
    from tokenize import TokenError  # NumPy parses the header as Python

    import numpy as np

    from godwit.errors import FileError, FormatError

    path = Path(text)
    try:
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, SyntaxError, TokenError, MemoryError) as error:
        raise FormatError(path, f"not an array of owners in NumPy's format: {error}") from error
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error


def parse_distance(text: str | None, name: str) -> int | float | None:
    """Return a number, exact if it is an integer; None if it is infinite or not given."""
    if text is None:
        return None
    exact = plain_integer(text)
    if exact is not None:
        return exact
    value = plain_number(text)
    if value is None:
        raise InputError(f"{name} must be a number, got {text!r}")
    return None if value == math.inf else value


def check_method(partition: Any) -> None:
    """Check the text of ``--partition``: raise InputError if it names no partitioner.

    Arrays, which :func:`parse_partition` reads from .npy files, are not checked.
    """
    if not isinstance(partition, str):
        return
    from godwit.graph.partition.methods import PARTITIONERS

    if partition not in PARTITIONERS:
        raise InputError(
            f"partition must be one of {', '.join(PARTITIONERS)}, or a .npy file; got {partition!r}"
        )
