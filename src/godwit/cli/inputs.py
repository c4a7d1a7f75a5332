"""What is written on the command line, and what it means.

A graph is a file, or ``name:size[,key=value...]`` for a generator; a vertex is the id that the file
gives it, from ``graph.id_base`` on. Whatever needs no graph is checked before one is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from godwit.cli.progress import Display
from godwit.errors import InputError

if TYPE_CHECKING:
    from godwit.graph.csr import Graph

MAX_DEGREE = "max-degree"

_GENERATORS = {
    "rmat": "rmat:SCALE[,edge_factor=16][,seed=0][,weights=LOW..HIGH]",
    "road": "road:ROWSxCOLUMNS[,keep=0.6][,seed=0][,weights=LOW..HIGH]",
    "path": "path:VERTICES[,seed=0][,weights=LOW..HIGH]",
}
_GENERATED = re.compile(rf"({'|'.join(_GENERATORS)}):(.*)", re.DOTALL)

# Narrower than int() and float(), which take 1_000 and digits of any script.
_INTEGER = re.compile(r"-?[0-9]{1,18}")


def _real(text: str) -> float:
    """The number that is written, or NaN if it is none."""
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan


def is_generated(text: str) -> bool:
    """Whether a graph is made up; a file of such a name can be given as ``./rmat:20``."""
    return _GENERATED.fullmatch(text) is not None


def load_graph(
    text: str,
    display: Display,
    *,
    format: str | None = None,
    id_base: int | None = None,
    directed: bool | None = None,
) -> Graph:
    """The graph that is meant, read or generated, with progress shown.

    :param directed: False symmetrizes (least weight of the arcs that an edge replaces)
    """
    if is_generated(text):
        if directed or format is not None or id_base is not None:
            raise InputError(
                f"--format, --id-base and --directed are for files; {text} is a generated graph"
            )
        make = parse_generator(text)
        with display.waiting(f"generating {text}"):
            return make()
    from godwit.graph.readers import read

    with display.bytes(f"reading {Path(text).name}") as progress:
        # The reader would make an edge of each arc, and two edges where both directions are listed.
        graph = read(
            text, format=format, id_base=id_base, directed=directed or None, progress=progress
        )
    if directed is False and graph.directed:
        with display.waiting("symmetrizing"):
            return graph.symmetrize()
    return graph


def parse_generator(text: str) -> Callable[[], Graph]:
    """What makes the graph described by, say, ``road:1000x1000,keep=0.7,weights=1..64``."""
    match = _GENERATED.fullmatch(text)
    assert match is not None
    name = match[1]
    size, *settings = match[2].split(",")
    call = _Call(text, _GENERATORS[name])
    options = {"seed": call.integer, "weights": call.weight_range}
    if name == "rmat":
        arguments = [call.integer(size)]
        options["edge_factor"] = call.integer
    elif name == "road":
        rows, cross, columns = size.partition("x")
        arguments = [call.integer(rows), call.integer(columns if cross else rows)]
        options["keep"] = call.real
    else:
        arguments = [call.integer(size)]
    keywords: dict[str, Any] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in options or key in keywords:
            raise call.error(setting)
        keywords[key] = options[key](value)

    def make() -> Graph:
        from godwit.graph import generators

        graph: Graph = getattr(generators, name)(*arguments, **keywords)
        return graph

    return make


class _Call:
    """A generator's description while it is taken apart."""

    def __init__(self, text: str, usage: str) -> None:
        self.text = text
        self.usage = usage

    def error(self, part: str) -> InputError:
        return InputError(f"cannot understand {part!r} in {self.text!r}; expected {self.usage}")

    def integer(self, part: str) -> Any:
        if _INTEGER.fullmatch(part) is None:
            raise self.error(part)
        return int(part)

    def real(self, part: str) -> Any:
        value = _real(part)
        if math.isnan(value):
            raise self.error(part)
        return value

    def weight_range(self, part: str) -> Any:
        low, dots, high = part.partition("..")
        if not dots:
            raise self.error(part)
        return self.integer(low), self.integer(high)


def parse_vertex(text: str, graph: Graph, name: str) -> int:
    """The vertex, counted from 0, that the file calls by this id (or ``max-degree``)."""
    if text == MAX_DEGREE:
        return graph.highest_degree_vertex()
    if _INTEGER.fullmatch(text) is None:
        raise InputError(f"{name} must be the id of a vertex or {MAX_DEGREE}, got {text!r}")
    named = int(text)
    base, count = graph.id_base, graph.vertex_count
    if not base <= named < base + count:
        if count == 0:
            raise InputError(f"{name} is {named}, and the graph has no vertices")
        raise InputError(f"{name} must be in [{base}, {base + count}), got {named}")
    return named - base


def parse_devices(text: str | None) -> int | str | list[str] | None:
    """``"4"``, ``"cpu"`` or ``"cpu:0,cpu:1"`` as the Python functions take them."""
    if text is None:
        return None
    if _INTEGER.fullmatch(text) is not None:
        return int(text)
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
    import numpy as np

    from godwit.errors import FileError, FormatError

    try:
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except ValueError as error:
        raise FormatError(path, f"not an array of owners in NumPy's format: {error}") from error
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error


def parse_distance(text: str | None, name: str) -> int | float | None:
    """A distance, exact where it is an integer; None where there is no limit."""
    if text is None:
        return None
    if _INTEGER.fullmatch(text) is not None:
        return int(text)
    value = _real(text)
    if math.isnan(value):
        raise InputError(f"{name} must be a number, got {text!r}")
    return None if value == math.inf else value


def check_method(partition: Any) -> None:
    """Refuse the name of a partitioner that does not exist, before a large file is read."""
    if not isinstance(partition, str):
        return
    from godwit.graph.partitioners import PARTITIONERS

    if partition not in PARTITIONERS:
        raise InputError(
            f"partition must be one of {', '.join(PARTITIONERS)}, or a .npy file; got {partition!r}"
        )
