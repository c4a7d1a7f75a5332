"""Directed graphs without cycles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np

import godwit as gw
from godwit.algorithms.topological.cpu import number_generations
from godwit.dtypes import Array
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.options import on_devices
from godwit.networkx.searches import runs
from godwit.runtime.registry import DevicesArgument

_UNCHANGED = "godwit_topological"
"""Key of NetworkX's cache of a graph, which is cleared when the graph changes."""
_HAS_CYCLE = "Graph contains a cycle or graph changed during iteration"
_CHANGED = "Graph changed during iteration"


def topological_generations(G: ArrayGraph) -> Iterator[list[Any]]:
    """Yield the nodes of each generation, in NetworkX's order.

    If the NetworkX graph changes between two generations, NetworkX's algorithm goes on with it.
    """
    if not G.is_directed():
        raise nx.NetworkXError("Topological sort not defined on undirected graphs.")
    generation, order = number_generations(G.structure)
    names = G.names(order)
    origin = None if G.origin is None else G.origin()
    cache = getattr(origin, "__networkx_cache__", None)
    if cache is not None:
        cache[_UNCHANGED] = True
    for begin, end in runs(generation[order]):
        if cache is not None and _UNCHANGED not in cache:
            yield from _changed_generations(G, origin, order, generation, begin)
            return
        yield names[begin:end]
    if len(order) < len(G):
        raise nx.NetworkXUnfeasible(_HAS_CYCLE)


def _changed_generations(
    graph: ArrayGraph, origin: Any, order: Array, generation: Array, begin: int
) -> Iterator[list[Any]]:
    """Go on as NetworkX does in a graph that changed before a generation.

    :param origin: the NetworkX graph, changed since it was converted
    :param begin: of the generation in the order
    """
    following = generation[order[begin]]
    gone = (generation >= 0) & (generation < following)
    left = np.bincount(graph.structure.targets[~gone[graph.tails]], minlength=len(graph))
    waiting = (left > 0) & ~gone & (generation != following)
    left_of = dict(zip(graph.names(np.flatnonzero(waiting)), left[waiting].tolist(), strict=True))
    zero = graph.names(order[generation[order] == following])
    while zero:
        this, zero = zero, []
        for node in this:
            if node not in origin:
                raise RuntimeError(_CHANGED)
            for child in origin.neighbors(node):
                if child not in left_of:
                    raise RuntimeError(_CHANGED)
                left_of[child] -= 1
                if left_of[child] == 0:
                    zero.append(child)
                    del left_of[child]
        yield this
    if left_of:
        raise nx.NetworkXUnfeasible(_HAS_CYCLE)


def topological_sort(G: ArrayGraph) -> Iterator[Any]:
    """Yield the nodes in topological order, which is NetworkX's."""
    for generation in topological_generations(G):
        yield from generation


def is_directed_acyclic_graph(G: ArrayGraph, *, devices: DevicesArgument = None) -> bool:
    """Return True if the graph is directed and has no cycle."""
    if not G.is_directed():
        return False
    return gw.is_directed_acyclic_graph(on_devices(G, G.structure, devices))
