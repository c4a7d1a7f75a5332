"""Which calls Godwit can run, and which are worth the conversion of the graph."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from _godwit_networkx import FUNCTIONS
from godwit.networkx.graph import ArrayGraph

_UNSUPPORTED = {
    "dangling": "rank of dangling nodes is distributed like the personalization",
    "sp": "distances are not taken from elsewhere",
    "neighbors": "neighbours are those of the graph",
    "sort_neighbors": "neighbours are visited in their own order",
}
"""Parameters that must be None."""

_KEEPS_NO_ATTRIBUTES = ("reverse",)
"""Functions whose graphs have all attributes of edges, which NetworkX does not convert for them."""

_ATTRIBUTES = ("weight", "distance")
"""Parameters that name an attribute of edges, and may be functions in NetworkX."""


@cache
def _signature(name: str) -> inspect.Signature:
    import godwit.networkx as backend

    return inspect.signature(getattr(backend, name))


def _arguments(name: str, args: Any, kwargs: Any) -> dict[str, Any]:
    return _signature(name).bind(*args, **kwargs).arguments


def can_run(name: str, args: Any, kwargs: Any) -> bool | str:
    """Return True if Godwit has the function for these arguments, else why not."""
    try:
        arguments = _arguments(name, args, kwargs)
    except TypeError as error:
        return str(error)
    for parameter, reason in _UNSUPPORTED.items():
        if arguments.get(parameter) is not None:
            return f"{parameter} is given: {reason}"
    if name in _KEEPS_NO_ATTRIBUTES and not isinstance(arguments["G"], ArrayGraph):
        return "its result has all attributes, which NetworkX does not convert for it"
    for parameter in _ATTRIBUTES:
        if callable(arguments.get(parameter)):
            return f"{parameter} is a function, not the name of an attribute"
    return True


_LEAST_NODES = 64
"""Below this number of nodes NetworkX is done before a conversion is."""

_PASSES = 2.0
"""Passes over a graph that take NetworkX as long as a conversion."""

_SPENT = "godwit_passes"


def should_run(name: str, args: Any, kwargs: Any) -> bool | str:
    """Return True if a call takes Godwit less time than NetworkX, conversion included, else why not.

    Many searches or iterations over a graph are worth a conversion. A single search is not, but several
    are: the work that NetworkX did on a graph is counted, and the graph is converted when that has taken as
    long as a conversion. NetworkX forgets the count when the graph changes.
    """
    graph = args[0] if args else kwargs["G"]
    if isinstance(graph, ArrayGraph):
        return True
    work = FUNCTIONS[name].passes
    if len(graph) < _LEAST_NODES:
        return f"{len(graph)} nodes are few: a conversion takes longer"
    if work == 0:
        return "it looks at a few nodes, which takes NetworkX no time"
    if work >= _PASSES:
        return True
    cache = getattr(graph, "__networkx_cache__", None)
    if cache is None:
        return "the graph's conversion cannot be kept, and takes longer than this call"
    if cache.get("backends", {}).get("godwit"):
        return True
    spent = cache.get(_SPENT, 0.0)
    if spent >= _PASSES:
        return True
    cache[_SPENT] = spent + work
    return "the graph is not converted yet, and that takes longer than this call"
