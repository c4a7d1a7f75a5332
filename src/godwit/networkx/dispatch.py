"""Which calls Godwit can run, and which are worth the conversion of the graph."""

from __future__ import annotations

import inspect
from collections.abc import Collection
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
    if arguments.get("algorithm", "kruskal") != "kruskal":
        return "algorithm is not 'kruskal', which has an order of its own"
    if FUNCTIONS[name].module == "trees" and arguments["G"].is_multigraph():
        return "edges of multigraphs have keys"
    for parameter in _ATTRIBUTES:
        if callable(arguments.get(parameter)):
            return f"{parameter} is a function, not the name of an attribute"
    return True


_LEAST_NODES = 64
"""Below this number of nodes NetworkX is done before a conversion is."""

_PASSES = 2.0
"""Passes over a graph that take NetworkX as long as a conversion."""

_PART = 8
"""1 / the part of the nodes that a single search has to reach to be worth a conversion."""

_SPENT = "godwit_passes"


def _reaches_few(graph: Any, arguments: dict[str, Any]) -> bool:
    """Return True if a search from the call's source, or sources, ends within a part of the graph.

    That is found by a search of this part, which takes much less time than a conversion.
    """
    sources = arguments.get("sources", [arguments["source"]] if "source" in arguments else None)
    if not isinstance(sources, Collection) or arguments.get("target") is not None:
        return False
    try:
        reached = set(sources)
    except TypeError:
        return False
    frontier, enough = set(reached), len(graph) // _PART
    while frontier and len(reached) < enough:
        following: set[Any] = set()
        for node in frontier:
            following.update(graph._adj.get(node, ()))
        frontier = following - reached
        reached |= frontier
    return len(reached) < enough


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
    cache = getattr(graph, "__networkx_cache__", None)
    is_converted = cache is not None and bool(cache.get("backends", {}).get("godwit"))
    if work >= _PASSES:
        if not is_converted and _reaches_few(graph, _arguments(name, args, kwargs)):
            return "it reaches few nodes: a conversion takes longer"
        return True
    if cache is None:
        return "the graph's conversion cannot be kept, and takes longer than this call"
    if is_converted:
        return True
    spent = cache.get(_SPENT, 0.0)
    if spent >= _PASSES:
        return True
    cache[_SPENT] = spent + work
    return "the graph is not converted yet, and that takes longer than this call"
