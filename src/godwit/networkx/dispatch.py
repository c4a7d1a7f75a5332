"""Which calls Godwit can run, and which are worth the conversion of the graph."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sized
from functools import cache
from itertools import islice
from typing import Any

from _godwit_networkx import CONVERSION, COSTS, FUNCTIONS, GPU_CALL, PLACING, Cost
from godwit.networkx.graph import ArrayGraph, drop_outdated, kept_conversions
from godwit.networkx.options import FEW_ARCS, named_devices
from godwit.runtime.registry import gpu_names

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
def _parameters(name: str) -> tuple[inspect.Signature, list[str], frozenset[str]]:
    """Return a function's signature, the names of its parameters, and those that must be given."""
    import godwit.networkx as backend

    signature = inspect.signature(getattr(backend, name))
    required = {
        name
        for name, parameter in signature.parameters.items()
        if parameter.default is inspect.Parameter.empty
    }
    return signature, list(signature.parameters), frozenset(required)


def _arguments(name: str, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return what each parameter of a call is given; TypeError if the call is wrong.

    All calls of NetworkX's function come here twice, and binding a signature takes five times as long.
    """
    signature, names, required = _parameters(name)
    arguments = dict(zip(names, args, strict=False))
    arguments.update(kwargs)
    is_right = len(arguments) == len(args) + len(kwargs) and required <= arguments.keys()
    if is_right and (not kwargs or kwargs.keys() <= signature.parameters.keys()):
        return arguments
    return signature.bind(*args, **kwargs).arguments


@cache
def _reads_otherwise(kind: type) -> bool:
    """Return True if a class of graphs overrides how neighbours are read.

    Its neighbours are not those that are stored, which a conversion reads: NetworkX has such a class for
    complements of graphs.
    """
    import networkx as nx

    bases = (nx.MultiDiGraph, nx.MultiGraph, nx.DiGraph, nx.Graph)
    base = next((base for base in bases if issubclass(kind, base)), None)
    return base is not None and any(
        getattr(kind, name) is not getattr(base, name)
        for name in ("__getitem__", "__iter__", "__len__", "adjacency", "neighbors")
    )


def can_run(name: str, args: Any, kwargs: Any) -> bool | str:
    """Return True if Godwit has the function for these arguments, else why not.

    NetworkX asks this before it looks for a conversion that it keeps, so outdated ones are dropped here.
    """
    try:
        arguments = _arguments(name, args, kwargs)
    except TypeError as error:
        return str(error)
    drop_outdated(arguments["G"])
    kind: Any = type(arguments["G"])
    if _reads_otherwise(kind):
        return "its class has neighbours of its own"
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


_BY_LENGTHS = {"search": "lengths", "path": "path by lengths"}
"""Costs of functions that are given lengths of edges."""

_BETWEEN = {"lengths": "path by lengths"}
"""Costs of functions that are given a source and a target."""

_SAMPLED = 32
"""Nodes whose degrees stand for those of all: counting all edges would take time for each node."""

_LEAST_REACHED = 100
"""Nodes that a search has to reach before NetworkX takes longer than a call of Godwit."""

_PART = 8
"""1 / the part of the nodes that a search has to reach to be worth a conversion."""

_SPENT = "godwit_spent"


def _cost_and_searches(name: str, count: int, arguments: dict[str, Any]) -> tuple[Cost, float]:
    """Return the cost of a call, and how many times it has that cost.

    :param count: number of nodes
    """
    row = FUNCTIONS[name]
    kind, searches = row.cost, 1.0
    ends = [arguments.get(parameter) is not None for parameter in ("source", "sources", "target")]
    if kind == "path" and sum(ends) < 2:  # from, to, or between all nodes
        kind, searches = "search", 1 if any(ends) else count
    if sum(ends) == 2:
        kind = _BETWEEN.get(kind, kind)
    if any(arguments.get(parameter) is not None for parameter in _ATTRIBUTES):
        kind = _BY_LENGTHS.get(kind, kind)
    if row.searches:
        limit = arguments.get(row.searches)
        searches = limit if row.searches == "k" and limit else _number_of(limit, count)
        if kind == "pairs":  # a pair is looked at as a node is
            searches /= count or 1
    return COSTS[kind], searches


def _number_of(nodes: Any, count: int) -> int:
    """Return the number of nodes that an argument gives: nodes, a node, or None for all."""
    if nodes is None:
        return count
    if isinstance(nodes, Mapping):  # what searches from all have resulted in
        return 0
    return len(nodes) if isinstance(nodes, Sized) and not isinstance(nodes, str | tuple) else 1


def _reaches_few(name: str, graph: Any, arguments: dict[str, Any], least: int) -> bool:
    """Return True if the sources of a call reach fewer nodes than ``least``, and no target is given.

    A breadth-first search here answers that; it stops at ``least`` nodes, so it takes little time.
    """
    sources = arguments.get("sources", [arguments["source"]] if "source" in arguments else None)
    if not isinstance(sources, Collection) or arguments.get("target") is not None:
        return False
    try:
        reached = set(sources)
    except TypeError:
        return False
    is_backward = graph.is_directed() and arguments.get("reverse", name == "ancestors")
    neighbours = graph._pred if is_backward else graph._adj
    frontier = set(reached)
    while frontier and len(reached) < least:
        following: set[Any] = set()
        for node in frontier:
            row = neighbours.get(node, ())
            if len(row) >= 2 * least or len(following) >= 2 * least:
                return False
            following.update(row)
        frontier = following - reached
        reached |= frontier
    return len(reached) < least


def _goes_to_gpus(name: str, arguments: dict[str, Any], arcs: float) -> bool:
    """Return True if GPUs are asked for, or are the default for so many arcs."""
    if not FUNCTIONS[name].devices:
        return False
    devices = named_devices(arguments.get("devices"))
    if devices is None:
        return arcs >= FEW_ARCS and bool(gpu_names())
    names = [devices] if isinstance(devices, str) else devices
    return isinstance(names, list | tuple) and any(str(name).startswith("cuda") for name in names)


def should_run(name: str, args: Any, kwargs: Any) -> bool | str:
    """Return True if a call takes Godwit less time than NetworkX, conversion included, else why not.

    Both times are estimated from the size of the graph (:data:`_godwit_networkx.COSTS`). If a call does not
    pay for a conversion, several may: what NetworkX has taken for calls on a graph is added up, and once
    that is as long as a conversion, the graph is converted. That sum is kept in NetworkX's cache of the
    graph, which is cleared when the graph changes.

    This takes microseconds, except before the conversion of a large graph for a search from given nodes:
    then it takes a small part of what the conversion does.
    """
    arguments = _arguments(name, args, kwargs)
    graph = arguments["G"]
    if isinstance(graph, ArrayGraph):
        return True
    n = len(graph)
    degrees = sum(map(len, islice(graph._adj.values(), _SAMPLED)))
    arcs = degrees * n / (min(n, _SAMPLED) or 1)
    edges = arcs if graph.is_directed() else arcs / 2
    if arguments.get("usebounds"):
        return "with bounds NetworkX needs a few searches, and Godwit makes all"
    cost, searches = _cost_and_searches(name, n, arguments)
    theirs = searches * (cost.nodes * n + cost.edges * edges)
    on_gpus = _goes_to_gpus(name, arguments, arcs)
    ours = cost.call + (searches - 1) * cost.further + (GPU_CALL if on_gpus else 0)
    if theirs <= ours:
        return "it takes NetworkX less time than a call of Godwit"
    networkx_cache = getattr(graph, "__networkx_cache__", None)
    kept = kept_conversions(graph)
    conversion = 0.0
    if not kept:
        conversion = CONVERSION.call + CONVERSION.nodes * n + CONVERSION.edges * edges
    if on_gpus and not any(arrays.placements for arrays in kept):
        conversion += PLACING
    if theirs > ours + conversion:
        least = _LEAST_REACHED if kept else max(_LEAST_REACHED, n // _PART)
        if searches == 1 and _reaches_few(name, graph, arguments, least):
            return "it reaches few nodes, which takes NetworkX less time"
        return True
    if networkx_cache is None:
        return "the graph's conversion cannot be kept, and takes longer than this call"
    spent = networkx_cache.get(_SPENT, 0.0)
    if spent >= conversion:
        return True
    networkx_cache[_SPENT] = spent + theirs
    return "the graph is not converted yet, and that takes longer than this call"
