"""Breadth-first traversal, in NetworkX's order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx as nx

from godwit.networkx.graph import ArrayGraph
from godwit.networkx.options import RELEASE
from godwit.networkx.searches import BreadthFirst, levels, runs


def _search(
    graph: ArrayGraph, source: Any, depth_limit: Any = None, *, backward: bool = False
) -> BreadthFirst:
    try:
        position = graph.position(source)
    except KeyError:
        kind = "digraph" if graph.is_directed() else "graph"
        raise nx.NetworkXError(f"The node {source} is not in the {kind}.") from None
    limit = levels(depth_limit, len(graph))
    return BreadthFirst(graph, [position], limit, backward=backward and graph.is_directed())


def _pairs(graph: ArrayGraph, found: BreadthFirst) -> tuple[list[Any], list[Any]]:
    """Return the parents and the nodes of all edges of the tree."""
    return graph.names(found.parents[1:]), graph.names(found.order[1:])


def generic_bfs_edges(
    G: ArrayGraph, source: Any, neighbors: Any = None, depth_limit: Any = None
) -> Iterator[tuple[Any, Any]]:
    """Yield the edges of the tree of a breadth-first search."""
    yield from zip(*_pairs(G, _search(G, source, depth_limit)), strict=True)


def bfs_edges(
    G: ArrayGraph, source: Any, reverse: bool = False, depth_limit: Any = None,
    sort_neighbors: Any = None,
) -> Iterator[tuple[Any, Any]]:  # fmt: skip
    """Yield the edges of the tree of a breadth-first search."""
    found = _search(G, source, depth_limit, backward=reverse)
    yield from zip(*_pairs(G, found), strict=True)


def bfs_tree(
    G: ArrayGraph, source: Any, reverse: bool = False, depth_limit: Any = None,
    sort_neighbors: Any = None,
) -> Any:  # fmt: skip
    """Return the tree of a breadth-first search, a NetworkX DiGraph."""
    tree = nx.DiGraph()
    tree.add_node(source)
    tree.add_edges_from(bfs_edges(G, source, reverse, depth_limit))
    return tree


def bfs_predecessors(
    G: ArrayGraph, source: Any, depth_limit: Any = None, sort_neighbors: Any = None
) -> Iterator[tuple[Any, Any]]:
    """Yield each node, with the one before it in the tree of a breadth-first search."""
    parents, children = _pairs(G, _search(G, source, depth_limit))
    yield from zip(children, parents, strict=True)


def bfs_successors(
    G: ArrayGraph, source: Any, depth_limit: Any = None, sort_neighbors: Any = None
) -> Iterator[tuple[Any, list[Any]]]:
    """Yield each inner node of the tree of a breadth-first search, with its children."""
    found = _search(G, source, depth_limit)
    parents, children = _pairs(G, found)
    if not children:
        yield source, []
    for begin, end in runs(found.parents[1:]):
        yield parents[begin], children[begin:end]


def bfs_layers(G: ArrayGraph, sources: Any) -> Iterator[list[Any]]:
    """Yield the nodes at each distance from the sources."""
    if sources in G:
        sources = [sources]
    first = list(dict.fromkeys(sources) if RELEASE < (3, 5) else set(sources))
    for source in first:
        if source not in G:
            raise nx.NetworkXError(f"The node {source} is not in the graph.")
    if first:
        found = BreadthFirst(G, [G.position(source) for source in first])
        begin = 0
        for end in found.level_ends:
            yield G.names(found.order[begin:end])
            begin = end


def descendants_at_distance(G: ArrayGraph, source: Any, distance: Any) -> set[Any]:
    """Return the nodes at a distance from the source."""
    if source not in G:
        raise nx.NetworkXError(f"The node {source} is not in the graph.")
    found = BreadthFirst(G, [G.position(source)], levels(distance, len(G)))
    return set(G.names(found.order[found.distance[found.order] == distance]))


def descendants(G: ArrayGraph, source: Any) -> set[Any]:
    """Return all nodes that a path from the source leads to, without the source."""
    return set(G.names(_search(G, source).order[1:]))


def ancestors(G: ArrayGraph, source: Any) -> set[Any]:
    """Return all nodes from which a path leads to the source, without the source."""
    return set(G.names(_search(G, source, backward=True).order[1:]))
