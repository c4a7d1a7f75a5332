"""Shortest paths that count edges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx as nx

from godwit.networkx.graph import ArrayGraph
from godwit.networkx.options import RELEASE, existing
from godwit.networkx.results import distances_by_node, paths_by_node
from godwit.networkx.searches import BreadthFirst, levels, path_between


def _search(
    graph: ArrayGraph, position: int, cutoff: Any, *, backward: bool = False
) -> BreadthFirst:
    return BreadthFirst(graph, [position], levels(cutoff, len(graph)), backward=backward)


def single_source_shortest_path_length(
    G: ArrayGraph, source: Any, cutoff: Any = None
) -> dict[Any, int]:
    """Return the distance of every node reached, by node."""
    position = existing(G, source, f"Source {source} is not in G")
    return distances_by_node(G, _search(G, position, cutoff))


def single_target_shortest_path_length(
    G: ArrayGraph, target: Any, cutoff: Any = None
) -> dict[Any, int]:
    """Return the distance to a target of every node that reaches it, by node."""
    if RELEASE < (3, 5):
        raise NotImplementedError("before NetworkX 3.5 the result is an iterator")
    position = existing(G, target, f"Target {target} is not in G")
    return distances_by_node(G, _search(G, position, cutoff, backward=True))


def single_source_shortest_path(
    G: ArrayGraph, source: Any, cutoff: Any = None
) -> dict[Any, list[Any]]:
    """Return a shortest path to every node reached, by node."""
    position = existing(G, source, f"Source {source} not in G")
    return paths_by_node(G, _search(G, position, cutoff))


def single_target_shortest_path(
    G: ArrayGraph, target: Any, cutoff: Any = None
) -> dict[Any, list[Any]]:
    """Return a shortest path to a target from every node that reaches it, by node."""
    position = existing(G, target, f"Target {target} not in G")
    return paths_by_node(G, _search(G, position, cutoff, backward=True), backward=True)


def all_pairs_shortest_path_length(
    G: ArrayGraph, cutoff: Any = None
) -> Iterator[tuple[Any, dict[Any, int]]]:
    """Yield each node with the distances of all nodes reached from it."""
    for position, node in enumerate(G):
        yield node, distances_by_node(G, _search(G, position, cutoff))


def all_pairs_shortest_path(
    G: ArrayGraph, cutoff: Any = None
) -> Iterator[tuple[Any, dict[Any, list[Any]]]]:
    """Yield each node with shortest paths to all nodes reached from it."""
    for position, node in enumerate(G):
        yield node, paths_by_node(G, _search(G, position, cutoff))


def bidirectional_shortest_path(G: ArrayGraph, source: Any, target: Any) -> list[Any]:
    """Return the nodes of a shortest path."""
    begin = existing(G, source, f"Source {source} is not in G")
    end = existing(G, target, f"Target {target} is not in G")
    path = path_between(G, begin, end)
    if len(path) == 0:
        raise nx.NetworkXNoPath(f"No path between {source} and {target}.")
    return G.names(path)
