"""Generated graphs in one line of text: ``name:size[,key=value...]``, as ``rmat:20,seed=3``.

The size is one or several integers with ``x`` between them, of which all but the first may be left
out together; keys are the keyword arguments of the function, and ``copies``, the number of disjoint
copies that the graph is made of. Needs no NumPy until a graph is made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from godwit.errors import InputError, shown

if TYPE_CHECKING:
    from godwit.graph.csr import Graph
    from godwit.runtime.protocol import Device

# Narrower than int() and float(), which take 1_000 and digits of any script.
_INTEGER = re.compile(r"-?[0-9]{1,18}")


def plain_integer(text: str) -> int | None:
    """Return the integer that a text is, or None."""
    return int(text) if _INTEGER.fullmatch(text) else None


def plain_number(text: str) -> float | None:
    """Return the number that a text is, infinity included, or None."""
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _flag(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)


def weight_range(text: str) -> tuple[float, float] | None:
    """Return the bounds that a text is, integers as ``1..64`` or floats as ``0.0..1.0``, or None."""
    bounds = text.split("..")
    for read in (plain_integer, plain_number):
        values = [read(bound) for bound in bounds]
        if len(values) == 2 and None not in values:
            return values[0], values[1]  # type: ignore[return-value]
    return None


def _quadrants(text: str) -> str | tuple[float, ...] | None:
    """Return a name, or the three numbers of ``0.57/0.19/0.19``."""
    if text.isalnum() and not text[0].isdigit():
        return text
    values = [plain_number(part) for part in text.split("/")]
    return None if None in values else tuple(values)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Option:
    default: str
    read: Callable[[str], Any]


_COMMON = {
    "seed": _Option("0", plain_integer),
    "weights": _Option("LOW..HIGH", weight_range),
    "copies": _Option("1", plain_integer),
}


def _optional(options: dict[str, _Option]) -> str:
    return "".join(f"[,{key}={option.default}]" for key, option in options.items())


@dataclass(frozen=True)
class Generator:
    """A generator as a text calls it.

    :param name: the name before the colon
    :param module: the module of this package that has the function
    :param size: names of the positional arguments, with ``x`` between them
    :param help: a description of one line
    """

    name: str
    module: str
    size: str
    help: str
    options: dict[str, _Option] = field(default_factory=dict)

    @property
    def function(self) -> str:
        """The name of the Python function."""
        return self.name.replace("-", "_")

    @property
    def own_usage(self) -> str:
        """The usage without common options, such as ``road:ROWSxCOLUMNS[,keep=0.6]``."""
        return f"{self.name}:{self.size}" + _optional(self.options)

    @property
    def usage(self) -> str:
        """The usage with all options: ``path:VERTICES[,seed=0][,weights=LOW..HIGH][,copies=1]``."""
        return self.own_usage + _optional(_COMMON)


_RMAT_OPTIONS = {
    "edge_factor": _Option("16", plain_integer),
    "parameters": _Option("graph500", _quadrants),
    "symmetrize": _Option("true", _flag),
    "simple": _Option("true", _flag),
}
_SMALL_WORLD_OPTIONS = {
    "neighbours": _Option("6", plain_integer),
    "rewire": _Option("0.1", plain_number),
}
_ROWS = (
    ("rmat", "random", "SCALE", "R-MAT: 2**SCALE vertices, degrees very skewed", _RMAT_OPTIONS),
    ("uniform", "random", "VERTICES", "any two vertices joined with equal chance",
     {"edges": _Option("16*VERTICES", plain_integer)}),
    ("watts-strogatz", "random", "VERTICES", "small world: a ring with shortcuts",
     _SMALL_WORLD_OPTIONS),
    ("barabasi-albert", "random", "VERTICES",
     "scale-free: new vertices attach to well-connected ones",
     {"attach": _Option("4", plain_integer)}),
    ("grid", "grids", "ROWSxCOLUMNS", "full 2-D grid"),
    ("road", "grids", "ROWSxCOLUMNS", "percolated 2-D grid, like a road network",
     {"keep": _Option("0.6", plain_number)}),
    ("random-geometric", "geometric", "VERTICES", "points in the unit square, joined if near",
     {"radius": _Option("0.55*sqrt(log(n)/n)", plain_number)}),
    ("delaunay", "geometric", "VERTICES", "Delaunay triangulation of random points"),
    ("path", "classic", "VERTICES", "path"),
    ("star", "classic", "VERTICES", "one vertex joined to all others"),
    ("complete", "classic", "VERTICES", "every vertex joined to every other"),
    ("binary-tree", "classic", "VERTICES", "binary tree, filled level by level"),
    ("caterpillar", "classic", "SPINExLEGS", "path with legs"),
)  # fmt: skip

GENERATORS = {row[0]: Generator(*row) for row in _ROWS}
"""The generators by their names in texts; each has ``.usage`` and ``.help``."""

_SPEC = re.compile(rf"({'|'.join(GENERATORS)}):(.*)", re.DOTALL)


def is_spec(text: str) -> bool:
    """Return True if a text begins like the description of a generated graph."""
    return _SPEC.fullmatch(text) is not None


@dataclass(frozen=True)
class Recipe:
    """A parsed text; a call makes the graph.

    :param arguments: positional arguments of the generator's function
    :param keywords: keyword arguments of the generator's function
    :param copies: number of disjoint copies
    """

    generator: Generator
    arguments: tuple[int, ...]
    keywords: Mapping[str, Any]
    copies: Any

    def __call__(self, function: Callable[..., Graph] | None = None) -> Graph:
        """Return the graph, made by ``function`` in place of the generator's if one is given."""
        if function is None:
            module = import_module(f"godwit.graph.generators.{self.generator.module}")
            function = getattr(module, self.generator.function)
        return function(*self.arguments, **self.keywords).replicate(self.copies)


def parse_spec(spec: str) -> Recipe:
    """Parse the description of a graph, such as ``road:1000x1000,keep=0.7,weights=1..64``.

    :raises InputError: if the text cannot be understood; values are checked when the graph is made
    """
    match = _SPEC.fullmatch(spec) if isinstance(spec, str) else None
    if match is None:
        raise InputError(
            f"a generated graph is described by NAME:SIZE, where NAME is one of "
            f"{', '.join(GENERATORS)}; got {shown(spec)}"
        )
    generator = GENERATORS[match[1]]
    options = {**generator.options, **_COMMON}

    def understood(value: Any, part: str) -> Any:
        if value is None:
            raise InputError(
                f"cannot understand {part!r:.80} in {spec!r:.80}; expected {generator.usage}"
            )
        return value

    size, *settings = match[2].split(",")
    parts = size.split("x")
    if len(parts) not in (1, len(generator.size.split("x"))):
        understood(None, size)
    arguments = [understood(plain_integer(part), part) for part in parts]
    keywords: dict[str, Any] = {}
    for setting in settings:
        key, _, text = setting.partition("=")
        if key not in options or key in keywords:
            understood(None, setting)
        keywords[key] = understood(options[key].read(text), setting)
    copies = keywords.pop("copies", 1)
    return Recipe(generator, tuple(arguments), keywords, copies)


def generate(spec: str, *, device: str | None = None) -> Graph:
    """Return the graph that a text such as ``rmat:20,seed=3`` describes; commands accept it as GRAPH.

    ``NAME:SIZE[,key=value...]``: the name of a function of :mod:`godwit.generators` with ``-`` for
    ``_``, its sizes with ``x`` between them, and its keyword arguments as ``keep=0.7``,
    ``simple=false``, ``weights=1..64`` (integers) or ``weights=0.0..1.0`` (floats); ``copies=4`` makes
    four disjoint copies, as :meth:`Graph.replicate` does.

    >>> import godwit as gw
    >>> gw.generate("road:20x30,keep=1.0").vertex_count
    600

    :param device: the device that generates the graph, ``"cuda:0"`` (some generators) or the CPU; the graph
        is the same
    :raises InputError: if the text cannot be understood, the function refuses a value, or the device does
        not have the generator
    :raises DeviceError: there is no such device
    :raises GraphTooLargeError: the memory is too small; nothing large has been allocated
    """
    recipe = parse_spec(spec)
    target = None if device is None else _single_device(device)
    if target is None or target.kind == "cpu":
        return recipe()
    from godwit.graph.generators.cuda import GENERATORS

    function = GENERATORS.get(recipe.generator.function)
    if function is None:
        raise InputError(
            f"{recipe.generator.name} has no version for {target.name}; those that have are "
            f"{', '.join(GENERATORS)}, and the CPU makes all (device=None)"
        )
    return recipe(partial(function, index=int(target.name.partition(":")[2])))


def _single_device(device: str) -> Device:
    """Return the one device that a name stands for; InputError if it stands for several."""
    from godwit.runtime.registry import resolve_devices

    if not isinstance(device, str):
        raise InputError(f"device must be a name such as 'cuda:0', got {shown(device)}")
    devices = resolve_devices(device)
    if len(devices) > 1:
        raise InputError(
            f"device must be one, as {devices[0].name!r} is; {device!r} is {len(devices)}"
        )
    return devices[0]
