"""Messages about an object that is no graph of Godwit's, with the function that makes a graph of it."""

from __future__ import annotations

import os
from typing import Any

from godwit.errors import InputError

_CONSTRUCTORS = {
    "networkx": "Graph.from_networkx",
    "scipy": "Graph.from_scipy",
    "igraph": "Graph.from_igraph",
    "networkit": "Graph.from_networkit",
    "torch_geometric": "Graph.from_edge_index",
    "pandas": "Graph.from_table",
    "polars": "Graph.from_table",
    "pyarrow": "Graph.from_table",
}


def _library_of(value: Any) -> str:
    """Return the package of a value's type, or of a base class that ``_CONSTRUCTORS`` lists."""
    packages = [base.__module__.partition(".")[0] for base in type(value).__mro__]
    return next((package for package in packages if package in _CONSTRUCTORS), packages[0])


def constructor_for(value: Any) -> str | None:
    """Return the function that makes a graph of a value, as ``"godwit.Graph.from_networkx"``, or None."""
    if isinstance(value, str | os.PathLike):
        return "godwit.read"
    name = _CONSTRUCTORS.get(_library_of(value))
    return None if name is None else f"godwit.{name}"


def kind_of(value: Any) -> str:
    """Return the type of a value for messages, with its library, as several have a type ``Graph``."""
    name = type(value).__name__
    library = _library_of(value)
    return f"{library} {name}" if library in _CONSTRUCTORS or library == "godwit" else name


def not_a_graph(value: Any) -> InputError:
    """Return the error about a value that is no :class:`godwit.Graph`."""
    constructor = constructor_for(value)
    advice = "" if constructor is None else f"; {constructor} makes a graph of it"
    if type(value).__name__ in ("DistributedGraph", "GpuGraph"):
        advice = (
            ", a graph on several processes, which bfs, sssp, connected_components, pagerank, "
            "betweenness_centrality, run, StepProgram.run and write take"
        )
    return InputError(f"expected a godwit.Graph, got a {kind_of(value)}{advice}")
