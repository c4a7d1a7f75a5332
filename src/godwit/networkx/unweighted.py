"""Shortest paths that count edges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx as nx

from godwit.networkx.graph import ArrayGraph
from godwit.networkx.results import LazyDict, NodePaths, NodeValues
from godwit.networkx.searches import levels, path_between, search


def _position(graph: ArrayGraph, node: Any, message: str) -> int:
    """Return the position of a node; NodeNotFound with the message if there is no such node."""
    try:
        return graph.position(node)
    except (KeyError, TypeError):
        raise nx.NodeNotFound(message) from None


def _lengths(
    graph: ArrayGraph, position: int, cutoff: Any, *, backward: bool = False
) -> dict[Any, int]:
    found = search(graph, [position], levels(cutoff, len(graph)), backward=backward)
    return LazyDict(NodeValues(graph, found.level, found.order, found.reached, len(found.order)))


def _paths(
    graph: ArrayGraph, position: int, cutoff: Any, *, backward: bool = False
) -> dict[Any, list[Any]]:
    found = search(graph, [position], levels(cutoff, len(graph)), backward=backward)
    return LazyDict(NodePaths(graph, found.parent, found.order, backward=backward))


def single_source_shortest_path_length(
    G: ArrayGraph, source: Any, cutoff: Any = None
) -> dict[Any, int]:
    """Return the distance of every node reached, by node."""
    return _lengths(G, _position(G, source, f"Source {source} is not in G"), cutoff)


def single_target_shortest_path_length(
    G: ArrayGraph, target: Any, cutoff: Any = None
) -> dict[Any, int]:
    """Return the distance to a target of every node that reaches it, by node."""
    position = _position(G, target, f"Target {target} is not in G")
    return _lengths(G, position, cutoff, backward=True)


def single_source_shortest_path(
    G: ArrayGraph, source: Any, cutoff: Any = None
) -> dict[Any, list[Any]]:
    """Return a shortest path to every node reached, by node."""
    return _paths(G, _position(G, source, f"Source {source} not in G"), cutoff)


def single_target_shortest_path(
    G: ArrayGraph, target: Any, cutoff: Any = None
) -> dict[Any, list[Any]]:
    """Return a shortest path to a target from every node that reaches it, by node."""
    return _paths(G, _position(G, target, f"Target {target} not in G"), cutoff, backward=True)


def all_pairs_shortest_path_length(
    G: ArrayGraph, cutoff: Any = None
) -> Iterator[tuple[Any, dict[Any, int]]]:
    """Yield each node with the distances of all nodes reached from it."""
    for position, node in enumerate(G):
        yield node, _lengths(G, position, cutoff)


def all_pairs_shortest_path(
    G: ArrayGraph, cutoff: Any = None
) -> Iterator[tuple[Any, dict[Any, list[Any]]]]:
    """Yield each node with shortest paths to all nodes reached from it."""
    for position, node in enumerate(G):
        yield node, _paths(G, position, cutoff)


def bidirectional_shortest_path(G: ArrayGraph, source: Any, target: Any) -> list[Any]:
    """Return the nodes of a shortest path."""
    begin = _position(G, source, f"Source {source} is not in G")
    end = _position(G, target, f"Target {target} is not in G")
    path = path_between(G, begin, end)
    if len(path) == 0:
        raise nx.NetworkXNoPath(f"No path between {source} and {target}.")
    return G.names(path)
