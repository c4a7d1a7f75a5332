"""NetworkX's backend ``godwit``: its functions on graphs that NetworkX holds, run by Godwit.

NetworkX finds this module by the entry point ``networkx.backends``, and the functions that it has by
``networkx.backend_info`` (:mod:`_godwit_networkx`, which is light: NetworkX imports it with itself). Each
function is an attribute here, imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from _godwit_networkx import FUNCTIONS
from godwit.networkx.conversion import converted, from_networkx
from godwit.networkx.dispatch import can_run, should_run
from godwit.networkx.graph import ArrayGraph

__all__ = [
    "ArrayGraph",
    "can_run",
    "convert_from_nx",
    "convert_to_nx",
    "from_networkx",
    "should_run",
]


def __getattr__(name: str) -> Any:
    if name not in FUNCTIONS:
        raise AttributeError(f"module 'godwit.networkx' has no attribute {name!r}")
    function = getattr(import_module(f"godwit.networkx.{FUNCTIONS[name].module}"), name)
    globals()[name] = function
    return function


def convert_from_nx(
    graph: Any,
    edge_attrs: dict[Any, Any] | None = None,
    node_attrs: dict[Any, Any] | None = None,
    preserve_edge_attrs: bool = False,
    preserve_node_attrs: bool = False,
    preserve_graph_attrs: bool = False,
    name: str | None = None,
    graph_name: str | None = None,
) -> ArrayGraph:
    """Return a NetworkX graph in arrays, as NetworkX asks a backend for it; see :func:`from_networkx`."""
    return converted(graph, edge_attrs, bool(preserve_edge_attrs or preserve_node_attrs))


def convert_to_nx(obj: Any, *, name: str | None = None) -> Any:
    """Return an ordinary NetworkX graph for one in arrays; anything else unchanged."""
    return obj.to_networkx() if isinstance(obj, ArrayGraph) else obj
