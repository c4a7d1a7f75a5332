"""Degrees, isolated nodes, reciprocity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np

from godwit.dtypes import Array
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.results import values_by_node


def _share(graph: ArrayGraph, degree: Array) -> dict[Any, Any]:
    """Return degrees as shares of the number of other nodes."""
    if len(graph) <= 1:
        return dict.fromkeys(graph, 1)
    return values_by_node(graph, degree * (1.0 / (len(graph) - 1.0)))


def degree_centrality(G: ArrayGraph) -> dict[Any, float]:
    """Return the degree of each node, as a share of the number of other nodes."""
    return _share(G, G.degree)


def in_degree_centrality(G: ArrayGraph) -> dict[Any, float]:
    """Return the in-degree of each node, as a share of the number of other nodes."""
    return _share(G, G.in_degree)


def out_degree_centrality(G: ArrayGraph) -> dict[Any, float]:
    """Return the out-degree of each node, as a share of the number of other nodes."""
    return _share(G, G.out_degree)


def isolates(G: ArrayGraph) -> Iterator[Any]:
    """Return an iterator over the nodes without edges."""
    return iter(G.names(np.flatnonzero(G.degree == 0)))


def number_of_isolates(G: ArrayGraph) -> int:
    """Return the number of nodes without edges."""
    return int(np.count_nonzero(G.degree == 0))


def is_isolate(G: ArrayGraph, n: Any) -> bool:
    """Return True if a node has no edges."""
    try:
        return bool(G.degree[G.position(n)] == 0)
    except KeyError:
        return False


def _is_mutual(graph: ArrayGraph) -> Array:
    """Return True for each arc whose reverse is in the graph, shape (m)."""
    n = len(graph)
    tails, heads = graph.tails.astype(np.int64), graph.structure.targets.astype(np.int64)
    arcs = np.sort(tails * n + heads)
    reverse = heads * n + tails
    nearest = np.minimum(np.searchsorted(arcs, reverse), len(arcs) - 1)
    return np.asarray(arcs[nearest] == reverse) if len(arcs) else np.empty(0, np.bool_)


def _require_simple_arcs(graph: ArrayGraph) -> None:
    if not graph.is_directed():
        raise NotImplementedError("edges of undirected graphs have no reverse")
    if graph.is_multigraph():
        raise NotImplementedError("parallel edges count by their keys: NetworkX compares these")


def overall_reciprocity(G: ArrayGraph) -> float:
    """Return the share of edges whose reverse is in the graph."""
    _require_simple_arcs(G)
    if G.number_of_edges() == 0:
        raise nx.NetworkXError("Not defined for empty graphs")
    return int(np.count_nonzero(_is_mutual(G) & ~G.loops)) / G.number_of_edges()


def reciprocity(G: ArrayGraph, nodes: Any = None) -> Any:
    """Return the share of edges whose reverse is in the graph: of all, of a node's, or of several."""
    _require_simple_arcs(G)
    if nodes is None:
        return overall_reciprocity(G)
    overlap = np.bincount(G.tails[_is_mutual(G)], minlength=len(G)).tolist()
    total = G.degree.tolist()

    def of(position: int) -> float | None:
        return 2 * overlap[position] / total[position] if total[position] else None

    if nodes in G:
        value = of(G.position(nodes))
        if value is None:
            raise nx.NetworkXError("Not defined for isolated nodes.")
        return value
    return {node: of(G.position(node)) for node in G.nbunch_iter(nodes)}
