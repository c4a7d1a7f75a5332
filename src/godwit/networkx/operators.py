"""Graphs of graphs: neighbourhoods, complements, reverses."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np

from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.rows import require_memory
from godwit.networkx.conversion import to_networkx
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.options import existing, refusals
from godwit.networkx.searches import BreadthFirst, levels, search


def ego_graph(
    G: ArrayGraph, n: Any, radius: Any = 1, center: bool = True, undirected: bool = False,
    distance: Any = None,
) -> Any:  # fmt: skip
    """Return the subgraph of the nodes within a distance, a NetworkX graph with all attributes."""
    if distance is None:
        position = existing(G, n, f"Source {n} is not in G")
    else:
        position = existing(G, n, f"Node {n} not found in graph")
    if undirected and G.is_directed():
        raise NotImplementedError("edges of a directed graph are followed in their direction")
    if distance is None:
        reached = BreadthFirst(G, [position], levels(radius, len(G))).reached
    else:
        reached = search(G, [position], distance, radius).reached
    keep = reached.copy()
    if not center:
        keep[position] = False
    return to_networkx(subgraph(G, keep))


def subgraph(graph: ArrayGraph, keep: Array) -> ArrayGraph:
    """Return the subgraph of some nodes, in the order of the graph."""
    return _part(graph, keep, keep[graph.tails] & keep[graph.structure.targets])


def subgraph_of_arcs(graph: ArrayGraph, keep: Array) -> ArrayGraph:
    """Return the subgraph of some arcs and the nodes at their ends, in the order of the graph."""
    has_arcs = np.zeros(len(graph), np.bool_)
    has_arcs[graph.tails[keep]] = True
    has_arcs[graph.structure.targets[keep]] = True
    return _part(graph, has_arcs, keep)


def _part(graph: ArrayGraph, keep: Array, keep_arcs: Array) -> ArrayGraph:
    """Return the subgraph of some nodes, and of arcs between them."""
    structure = graph.structure
    positions, arcs = np.flatnonzero(keep), np.flatnonzero(keep_arcs)
    number = np.cumsum(keep) - 1
    counts = np.bincount(number[graph.tails[arcs]], minlength=len(positions))
    made = _with_arcs(graph, graph.names(positions), counts, number[structure.targets[arcs]], arcs)
    if graph.node_data is not None:
        made.node_data = [graph.node_data[position] for position in positions.tolist()]
    return made


def _with_arcs(
    graph: ArrayGraph, nodes: list[Any], counts: Array, targets: Array, arcs: Array
) -> ArrayGraph:
    """Return a graph whose arcs are some of a graph's, with their attributes.

    :param counts: number of arcs of each node
    :param targets: of the arcs
    :param arcs: the number that each has in the graph
    """
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    dtype = graph.structure.targets.dtype
    structure = Graph.trusted(offsets, targets.astype(dtype), directed=graph.is_directed())
    multiplicity, edges = graph.multiplicity, arcs
    if multiplicity is not None:
        first = (np.cumsum(multiplicity) - multiplicity)[arcs]
        multiplicity = multiplicity[arcs]
        begin = np.cumsum(multiplicity) - multiplicity
        edges = np.repeat(first - begin, multiplicity) + np.arange(multiplicity.sum())
    made = ArrayGraph(nodes, structure, multiplicity)
    made.graph = graph.graph
    made.attributes = {
        key: None if values is None else values[edges] for key, values in graph.attributes.items()
    }
    if graph.edge_data is not None:
        made.edge_data = graph.edge_data.take(edges)
    return made


def complement(G: ArrayGraph) -> Any:
    """Return the graph with exactly the edges that are missing, a NetworkX graph."""
    n, structure = len(G), G.structure
    with refusals():
        require_memory(n * n, f"the complement of {n:,} nodes")
    missing = np.ones((n, n), np.bool_)
    missing[G.tails, structure.targets] = False
    np.fill_diagonal(missing, False)
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(missing.sum(axis=1), out=offsets[1:])
    targets = np.nonzero(missing)[1].astype(structure.targets.dtype)
    multiplicity = None
    if G.is_multigraph():  # both directions of an undirected edge are added
        multiplicity = np.full(len(targets), 1 if G.is_directed() else 2, np.int64)
    rest = Graph.trusted(offsets, targets, directed=structure.directed)
    return to_networkx(ArrayGraph(G.nodes, rest, multiplicity))


def reverse(G: ArrayGraph, copy: bool = True) -> ArrayGraph:
    """Return the graph with every edge reversed."""
    if not G.is_directed():
        raise nx.NetworkXError("Cannot reverse an undirected graph.")
    heads = G.structure.targets
    arcs = np.argsort(heads, kind="stable")
    counts = np.bincount(heads, minlength=len(G))
    made = _with_arcs(G, G.nodes, counts, G.tails[arcs], arcs)
    made.node_data = G.node_data
    return made
