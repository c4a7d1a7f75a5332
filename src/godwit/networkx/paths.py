"""Shortest paths of any kind: ``shortest_path`` and its relatives."""

from __future__ import annotations

from typing import Any

import networkx as nx

from godwit.networkx import unweighted, weighted
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.options import RELEASE, existing
from godwit.networkx.results import distances_by_node, paths_by_node
from godwit.networkx.searches import Search, search
from godwit.runtime.registry import DevicesArgument


def _checked(weight: Any, method: str) -> str:
    if method not in ("dijkstra", "bellman-ford"):
        raise ValueError(f"method not supported: {method}")
    return "unweighted" if weight is None else method


_MISSING = {
    "unweighted": "Source {} not in G",
    "dijkstra": "Node {} not found in graph",
    "bellman-ford": "Source {} not in G",
}


def _search(
    graph: ArrayGraph, source: Any, weight: Any, message: str, devices: DevicesArgument,
    *, backward: bool,
) -> Search:  # fmt: skip
    position = existing(graph, source, message.format(source))
    return search(graph, [position], weight, backward=backward, devices=devices)


def shortest_path(
    G: ArrayGraph, source: Any = None, target: Any = None, weight: Any = None,
    method: str = "dijkstra", *, devices: DevicesArgument = None,
) -> Any:  # fmt: skip
    """Return shortest paths: between two nodes, from or to a node, or between all."""
    method = _checked(weight, method)
    if source is None and target is None:
        if RELEASE < (3, 5):
            raise NotImplementedError("before NetworkX 3.5 the result is one dictionary")
        if method == "unweighted":
            return unweighted.all_pairs_shortest_path(G)
        if method == "dijkstra":
            return weighted.all_pairs_dijkstra_path(G, weight=weight, devices=devices)
        return weighted.all_pairs_bellman_ford_path(G, weight, devices=devices)
    if source is None or target is None:
        node, backward = (target, True) if source is None else (source, False)
        found = _search(G, node, weight, _MISSING[method], devices, backward=backward)
        return paths_by_node(G, found, backward=backward)
    if method == "unweighted":
        return unweighted.bidirectional_shortest_path(G, source, target)
    if method == "dijkstra":
        return weighted.bidirectional_dijkstra(G, source, target, weight)[1]
    return weighted.bellman_ford_path(G, source, target, weight)


def shortest_path_length(
    G: ArrayGraph, source: Any = None, target: Any = None, weight: Any = None,
    method: str = "dijkstra", *, devices: DevicesArgument = None,
) -> Any:  # fmt: skip
    """Return lengths of shortest paths: between two nodes, from or to a node, or between all."""
    method = _checked(weight, method)
    if source is None and target is None:
        if method == "unweighted":
            return unweighted.all_pairs_shortest_path_length(G)
        if method == "dijkstra":
            return weighted.all_pairs_dijkstra_path_length(G, weight=weight, devices=devices)
        return weighted.all_pairs_bellman_ford_path_length(G, weight, devices=devices)
    if source is None or target is None:
        node, backward = (target, True) if source is None else (source, False)
        message = "Source {} is not in G" if method == "unweighted" else _MISSING[method]
        found = _search(G, node, weight, message, devices, backward=backward)
        return distances_by_node(G, found)
    if method == "unweighted":
        return len(unweighted.bidirectional_shortest_path(G, source, target)) - 1
    if method == "dijkstra":
        return weighted.dijkstra_path_length(G, source, target, weight)
    return weighted.bellman_ford_path_length(G, source, target, weight)


def has_path(G: ArrayGraph, source: Any, target: Any) -> bool:
    """Return True if there is a path."""
    try:
        shortest_path(G, source, target)
    except nx.NetworkXNoPath:
        return False
    return True
