"""Shortest paths by lengths of edges, those of Dijkstra's and of Bellman and Ford's algorithm.

Lengths are not negative, so both have the same distances; where there are several shortest paths, both
return the one that Dijkstra's algorithm finds in NetworkX.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import networkx as nx
import numpy as np

from godwit.networkx.graph import ArrayGraph
from godwit.networkx.options import existing
from godwit.networkx.results import distances_by_node, paths_by_node
from godwit.networkx.searches import Search, length_path_between, path_to, search
from godwit.runtime.registry import DevicesArgument

_Distances = dict[Any, Any]
_Paths = dict[Any, list[Any]]


def _positions(graph: ArrayGraph, sources: Iterable[Any], message: str) -> list[int]:
    """Return the positions of nodes, each once, in their order.

    :param message: of NodeNotFound, with ``{}`` in the place of the node
    """
    positions = [existing(graph, source, message.format(source)) for source in sources]
    return list(dict.fromkeys(positions))


def _sources(graph: ArrayGraph, sources: Any) -> list[int]:
    if not sources:
        raise ValueError("sources must not be empty")
    return _positions(graph, sources, "Node {} not found in graph")


def _way(
    graph: ArrayGraph, sources: list[int], target: Any, weight: Any, cutoff: Any, message: str
) -> tuple[Any, list[Any]]:
    """Return the length and the nodes of a shortest path; NetworkXNoPath if there is none."""
    if target in graph:
        length, path = path_to(graph, sources, graph.position(target), weight, cutoff)
        if len(path):
            return length, graph.names(path)
    raise nx.NetworkXNoPath(message)


def dijkstra_path(G: ArrayGraph, source: Any, target: Any, weight: Any = "weight") -> list[Any]:
    """Return the nodes of a shortest path."""
    path: list[Any] = single_source_dijkstra(G, source, target, weight=weight)[1]
    return path


def dijkstra_path_length(G: ArrayGraph, source: Any, target: Any, weight: Any = "weight") -> Any:
    """Return the length of a shortest path."""
    position = existing(G, source, f"Node {source} not found in graph")
    if source == target:
        return 0
    message = f"Node {target} not reachable from {source}"
    return _way(G, [position], target, weight, None, message)[0]


def bidirectional_dijkstra(
    G: ArrayGraph, source: Any, target: Any, weight: Any = "weight"
) -> tuple[Any, list[Any]]:
    """Return the length and the nodes of a shortest path, found from both ends."""
    begin = existing(G, source, f"Source {source} is not in G")
    end = existing(G, target, f"Target {target} is not in G")
    if source == target:
        return 0, [source]
    length, path = length_path_between(G, begin, end, weight)
    if len(path) == 0:
        raise nx.NetworkXNoPath(f"No path between {source} and {target}.")
    return length, G.names(path)


def single_source_dijkstra(
    G: ArrayGraph, source: Any, target: Any = None, cutoff: Any = None, weight: Any = "weight",
    *, devices: DevicesArgument = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Return lengths of shortest paths and the paths: to all nodes, or to a target."""
    return multi_source_dijkstra(G, {source}, target, cutoff, weight, devices=devices)


def single_source_dijkstra_path(
    G: ArrayGraph, source: Any, cutoff: Any = None, weight: Any = "weight",
    *, devices: DevicesArgument = None,
) -> _Paths:  # fmt: skip
    """Return a shortest path to every node reached, by node."""
    return multi_source_dijkstra_path(G, {source}, cutoff, weight, devices=devices)


def single_source_dijkstra_path_length(
    G: ArrayGraph, source: Any, cutoff: Any = None, weight: Any = "weight",
    *, devices: DevicesArgument = None,
) -> _Distances:  # fmt: skip
    """Return the distance of every node reached, by node."""
    return multi_source_dijkstra_path_length(G, {source}, cutoff, weight, devices=devices)


def multi_source_dijkstra(
    G: ArrayGraph, sources: Any, target: Any = None, cutoff: Any = None, weight: Any = "weight",
    *, devices: DevicesArgument = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Return lengths of shortest paths from the nearest source, and the paths."""
    begins = _sources(G, sources)
    if target in sources:
        return 0, [target]
    if target is not None:
        return _way(G, begins, target, weight, cutoff, f"No path to {target}.")
    found = search(G, begins, weight, cutoff, devices=devices)
    return distances_by_node(G, found), paths_by_node(G, found)


def multi_source_dijkstra_path(
    G: ArrayGraph, sources: Any, cutoff: Any = None, weight: Any = "weight",
    *, devices: DevicesArgument = None,
) -> _Paths:  # fmt: skip
    """Return a shortest path from the nearest source to every node reached, by node."""
    found = search(G, _sources(G, sources), weight, cutoff, devices=devices)
    return paths_by_node(G, found)


def multi_source_dijkstra_path_length(
    G: ArrayGraph, sources: Any, cutoff: Any = None, weight: Any = "weight",
    *, devices: DevicesArgument = None,
) -> _Distances:  # fmt: skip
    """Return the distance from the nearest source of every node reached, by node."""
    found = search(G, _sources(G, sources), weight, cutoff, devices=devices)
    return distances_by_node(G, found)


def all_pairs_dijkstra(
    G: ArrayGraph, cutoff: Any = None, weight: Any = "weight", *, devices: DevicesArgument = None
) -> Iterator[tuple[Any, tuple[_Distances, _Paths]]]:
    """Yield each node with distances and shortest paths to all nodes reached from it."""
    for node in G:
        yield node, single_source_dijkstra(G, node, None, cutoff, weight, devices=devices)


def all_pairs_dijkstra_path_length(
    G: ArrayGraph, cutoff: Any = None, weight: Any = "weight", *, devices: DevicesArgument = None
) -> Iterator[tuple[Any, _Distances]]:
    """Yield each node with the distances of all nodes reached from it."""
    for node in G:
        yield node, single_source_dijkstra_path_length(G, node, cutoff, weight, devices=devices)


def all_pairs_dijkstra_path(
    G: ArrayGraph, cutoff: Any = None, weight: Any = "weight", *, devices: DevicesArgument = None
) -> Iterator[tuple[Any, _Paths]]:
    """Yield each node with shortest paths to all nodes reached from it."""
    for node in G:
        yield node, single_source_dijkstra_path(G, node, cutoff, weight, devices=devices)


def dijkstra_predecessor_and_distance(
    G: ArrayGraph, source: Any, cutoff: Any = None, weight: Any = "weight",
    *, devices: DevicesArgument = None,
) -> tuple[dict[Any, list[Any]], _Distances]:  # fmt: skip
    """Return all nodes before each on shortest paths, and distances."""
    position = existing(G, source, f"Node {source} is not found in the graph")
    found = search(G, [position], weight, cutoff, devices=devices)
    return _predecessors(G, found, weight), distances_by_node(G, found)


def _predecessors(graph: ArrayGraph, found: Search, weight: Any) -> dict[Any, list[Any]]:
    """Return for each node reached the nodes before it on shortest paths, in the order of the search."""
    rows = graph.lengths(weight)
    order = found.order
    rank = np.zeros(len(graph), np.int64)
    rank[order] = np.arange(len(order))
    tails, heads = graph.tails, graph.structure.targets
    between = found.reached[tails] & found.reached[heads]
    tails, heads = tails[between], heads[between]
    lengths = 1 if rows.weights is None else rows.weights[between]
    on_shortest = found.distance[tails] + lengths == found.distance[heads]
    tails, heads = rank[tails[on_shortest]], rank[heads[on_shortest]]
    by_head = np.lexsort((tails, heads))
    before = graph.names(order[tails[by_head]])
    ends = np.cumsum(np.bincount(heads, minlength=len(order))).tolist()
    return {
        node: before[begin:end]
        for node, begin, end in zip(graph.names(order), [0, *ends], ends, strict=False)
    }


_NO_SOURCE = "Source {} not in G"


def _from(graph: ArrayGraph, source: Any, weight: Any, devices: DevicesArgument) -> Search:
    return search(graph, _positions(graph, [source], _NO_SOURCE), weight, devices=devices)


def bellman_ford_path(G: ArrayGraph, source: Any, target: Any, weight: Any = "weight") -> list[Any]:
    """Return the nodes of a shortest path."""
    path: list[Any] = single_source_bellman_ford(G, source, target, weight)[1]
    return path


def bellman_ford_path_length(
    G: ArrayGraph, source: Any, target: Any, weight: Any = "weight"
) -> Any:
    """Return the length of a shortest path."""
    if source == target:
        existing(G, source, f"Node {source} not found in graph")
        return 0
    sources = _positions(G, [source], _NO_SOURCE)
    return _way(G, sources, target, weight, None, f"node {target} not reachable from {source}")[0]


def single_source_bellman_ford(
    G: ArrayGraph, source: Any, target: Any = None, weight: Any = "weight",
    *, devices: DevicesArgument = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Return lengths of shortest paths and the paths: to all nodes, or to a target."""
    if source == target:
        existing(G, source, f"Node {source} is not found in the graph")
        return 0, [source]
    if target is not None:
        sources = _positions(G, [source], _NO_SOURCE)
        message = f"Target {target} cannot be reached from given sources"
        return _way(G, sources, target, weight, None, message)
    found = _from(G, source, weight, devices)
    return distances_by_node(G, found), paths_by_node(G, found)


def single_source_bellman_ford_path(
    G: ArrayGraph, source: Any, weight: Any = "weight", *, devices: DevicesArgument = None
) -> _Paths:
    """Return a shortest path to every node reached, by node."""
    return paths_by_node(G, _from(G, source, weight, devices))


def single_source_bellman_ford_path_length(
    G: ArrayGraph, source: Any, weight: Any = "weight", *, devices: DevicesArgument = None
) -> _Distances:
    """Return the distance of every node reached, by node."""
    return distances_by_node(G, _from(G, source, weight, devices))


def all_pairs_bellman_ford_path_length(
    G: ArrayGraph, weight: Any = "weight", *, devices: DevicesArgument = None
) -> Iterator[tuple[Any, _Distances]]:
    """Yield each node with the distances of all nodes reached from it."""
    for node in G:
        yield node, single_source_bellman_ford_path_length(G, node, weight, devices=devices)


def all_pairs_bellman_ford_path(
    G: ArrayGraph, weight: Any = "weight", *, devices: DevicesArgument = None
) -> Iterator[tuple[Any, _Paths]]:
    """Yield each node with shortest paths to all nodes reached from it."""
    for node in G:
        yield node, single_source_bellman_ford_path(G, node, weight, devices=devices)


def bellman_ford_predecessor_and_distance(
    G: ArrayGraph, source: Any, target: Any = None, weight: Any = "weight", heuristic: bool = False,
    *, devices: DevicesArgument = None,
) -> tuple[dict[Any, list[Any]], _Distances]:  # fmt: skip
    """Return all nodes before each on shortest paths, and distances."""
    existing(G, source, f"Node {source} is not found in the graph")
    found = _from(G, source, weight, devices)
    if len(G) == 1:
        return {source: []}, distances_by_node(G, found)
    return _predecessors(G, found, weight), distances_by_node(G, found)
