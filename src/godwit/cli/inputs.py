"""What is written on the command line, and what it means.

A graph is a file (``-``: standard input), ``name:size[,key=value...]`` for a generator, or
``dataset:name``; a vertex is the id that the file gives it (``graph.ids``). Whatever needs no graph is
checked before one is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from godwit.cli.progress import Display
from godwit.errors import InputError
from godwit.graph.generators.spec import (
    GENERATORS,
    is_spec,
    parse_spec,
    plain_integer,
    plain_number,
)

if TYPE_CHECKING:
    from godwit.cli.options import Reading
    from godwit.graph.csr import Graph

MAX_DEGREE = "max-degree"
_STDIN = "-"


def load_graph(text: str, display: Display, reading: Reading, device: str | None = None) -> Graph:
    """The graph that is meant, read, fetched or generated, with progress shown.

    ``--undirected`` symmetrizes: the least weight of the arcs that an edge replaces.

    :param device: where a generated graph is made
    """
    given = reading.given
    _check_name(text)
    if is_spec(text):
        if given.pop("directed", None) or given:
            raise InputError(f"{_options(reading)} is for files; {text} is a generated graph")
        make: Callable[[], Graph] = parse_spec(text)
        if device is not None:
            from godwit.graph.generators.spec import generate

            make = partial(generate, text, device=device)
        with display.waiting(f"generating {text}"):
            graph = make()
    else:
        # The reader would make an edge of each arc, and two edges where both directions are listed.
        given["directed"] = reading.directed or None
        from godwit.io.datasets import is_dataset

        if is_dataset(text):
            graph = _fetch(text, display, given)
        else:
            from godwit.io.graph_files import read

            path = file_of(text)
            with display.bytes(f"reading {Path(path).name}") as progress:
                graph = read(path, progress=progress, **given)
    if reading.directed is False and graph.directed:
        with display.waiting("symmetrizing"):
            return graph.symmetrize()
    return graph


def file_of(text: str) -> str:
    """The path of a file that is named on the command line; ``-`` is standard input."""
    return "/dev/stdin" if text == _STDIN else text


def _check_name(text: str) -> None:
    """Refuse what is meant to be a generated graph, and is none; and what is no name of a file."""
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


def _options(reading: Reading) -> str:
    """The options that were given, as they are written."""
    names = [f"--{name.replace('_', '-')}" for name in reading.given if name != "directed"]
    return " ".join([*names, *(["--directed"] if reading.directed else [])])


def _fetch(name: str, display: Display, given: dict[str, Any]) -> Graph:
    from godwit.io.datasets import dataset

    with display.bytes(f"reading {name}") as progress:
        return dataset(name, progress=progress, **given)


def parse_vertex(text: str, graph: Graph, name: str) -> Any:
    """The vertex that the file calls by this id (or ``max-degree``), as functions of Python take it."""
    ids = graph.ids
    if text == MAX_DEGREE:
        return graph.highest_degree_vertex()
    named: Any = text
    if ids.kind in ("consecutive", "integer"):
        named = plain_integer(text)
        if named is None:
            raise InputError(f"{name} must be the id of a vertex or {MAX_DEGREE}, got {text!r}")
    if named not in ids.in_file:
        there = ids.in_file.described
        raise InputError(f"{name} {named!r:.80} is not in the graph, which has {there}")
    return ids[ids.in_file.position(named)]


def parse_devices(text: str | None) -> int | str | list[str] | None:
    """``"4"``, ``"cpu"`` or ``"cpu:0,cpu:1"`` as the Python functions take them."""
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
    """The name of a method as it is, or the owners that a .npy file holds."""
    if text is None or not text.endswith(".npy"):
        return text
    return load_owners(Path(text))


def load_owners(path: Path) -> Any:
    """The array in a .npy file."""
    from tokenize import TokenError  # NumPy parses the header as Python

    import numpy as np

    from godwit.errors import FileError, FormatError

    try:
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, SyntaxError, TokenError, MemoryError) as error:
        raise FormatError(path, f"not an array of owners in NumPy's format: {error}") from error
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error


def parse_distance(text: str | None, name: str) -> int | float | None:
    """A distance, exact where it is an integer; None where there is no limit."""
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
    """Refuse the name of a partitioner that does not exist, before a large file is read."""
    if not isinstance(partition, str):
        return
    from godwit.graph.partition.methods import PARTITIONERS

    if partition not in PARTITIONERS:
        raise InputError(
            f"partition must be one of {', '.join(PARTITIONERS)}, or a .npy file; got {partition!r}"
        )
