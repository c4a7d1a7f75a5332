"""What is no graph of ours where one is wanted: who hands it in is told what makes one of it."""

from __future__ import annotations

import os
from typing import Any

from godwit.errors import InputError

_MAKERS = {
    "networkx": "Graph.from_networkx",
    "scipy": "Graph.from_scipy",
    "igraph": "Graph.from_igraph",
    "networkit": "Graph.from_networkit",
    "torch_geometric": "Graph.from_edge_index",
    "pandas": "Graph.from_table",
    "polars": "Graph.from_table",
    "pyarrow": "Graph.from_table",
}


def library_of(given: Any) -> str:
    """The package that the type of an object comes from, or one of ``_MAKERS`` that it derives from."""
    packages = [one.__module__.partition(".")[0] for one in type(given).__mro__]
    return next((package for package in packages if package in _MAKERS), packages[0])


def maker_of(given: Any) -> str | None:
    """What makes a graph of it, such as ``"godwit.Graph.from_networkx"``; None for what nothing does."""
    if isinstance(given, str | os.PathLike):
        return "godwit.read"
    name = _MAKERS.get(library_of(given))
    return None if name is None else f"godwit.{name}"


def kind_of(given: Any) -> str:
    """What messages call it: its type, and the library, as several have a type ``Graph``."""
    name = type(given).__name__
    library = library_of(given)
    return f"{library} {name}" if library in _MAKERS or library == "godwit" else name


def no_graph(given: Any) -> InputError:
    """The error about something that is no :class:`godwit.Graph`."""
    maker = maker_of(given)
    advice = "" if maker is None else f"; {maker} makes a graph of it"
    return InputError(f"expected a godwit.Graph, got a {kind_of(given)}{advice}")
