"""Spanning trees and forests, by Kruskal's rule: of equal weights the first edge of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import networkx as nx
import numpy as np

import godwit as gw
from godwit.algorithms.spanning_forest.cpu import KeyOrder
from godwit.dtypes import Array
from godwit.networkx.conversion import edge_attributes
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.options import on_devices, refusals
from godwit.runtime.registry import DevicesArgument


def _arcs(
    graph: ArrayGraph, algorithm: Any, weight: Any, devices: DevicesArgument, maximum: bool
) -> Array:
    """Return the arcs of the forest's edges, in the order in which NetworkX finds the edges.

    :raises NotImplementedError: the algorithm is not Kruskal's, a weight is NaN, or edges may be parallel
    """
    if graph.is_directed():
        raise nx.NetworkXNotImplemented("not implemented for directed type")
    if algorithm != "kruskal":
        raise NotImplementedError(f"algorithm={algorithm!r} has another order than 'kruskal'")
    if graph.is_multigraph():
        raise NotImplementedError("edges of multigraphs have keys")
    rows = graph.weighted(weight)
    with refusals():
        placed = on_devices(graph, rows, devices, chooses=True)
        result = gw.minimum_spanning_forest(placed, maximum)
    if result.weights is None:
        return result.arcs
    keys = KeyOrder.of(result.weights.dtype, maximum).keys(result.weights)
    return result.arcs[np.argsort(keys, kind="stable")]


def _edges(graph: ArrayGraph, arcs: Array, data: Any) -> Iterator[tuple[Any, ...]]:
    """Return the edges of arcs, with their dictionaries if ``data``."""
    sources, targets = graph.names(graph.tails[arcs]), graph.names(graph.structure.targets[arcs])
    if not data:
        return zip(sources, targets, strict=True)
    return zip(sources, targets, edge_attributes(graph, arcs), strict=True)


def minimum_spanning_edges(
    G: ArrayGraph, algorithm: Any = "kruskal", weight: Any = "weight", keys: Any = True,
    data: Any = True, ignore_nan: Any = False, *, devices: DevicesArgument = None,
) -> Iterator[tuple[Any, ...]]:  # fmt: skip
    """Return the edges of a minimum spanning forest, the lightest first."""
    return _edges(G, _arcs(G, algorithm, weight, devices, maximum=False), data)


def maximum_spanning_edges(
    G: ArrayGraph, algorithm: Any = "kruskal", weight: Any = "weight", keys: Any = True,
    data: Any = True, ignore_nan: Any = False, *, devices: DevicesArgument = None,
) -> Iterator[tuple[Any, ...]]:  # fmt: skip
    """Return the edges of a maximum spanning forest, the heaviest first."""
    return _edges(G, _arcs(G, algorithm, weight, devices, maximum=True), data)


def _tree(graph: ArrayGraph, arcs: Array) -> Any:
    """Return the graph of some edges, with all nodes and attributes."""
    tree = nx.Graph()
    tree.graph.update(graph.graph)
    node_data: Any = repeat({}) if graph.node_data is None else graph.node_data
    tree.add_nodes_from(zip(graph.nodes, node_data, strict=False))
    tree.add_edges_from(_edges(graph, arcs, data=True))
    return tree


def minimum_spanning_tree(
    G: ArrayGraph, weight: Any = "weight", algorithm: Any = "kruskal", ignore_nan: Any = False,
    *, devices: DevicesArgument = None,
) -> Any:  # fmt: skip
    """Return a minimum spanning forest, a NetworkX graph."""
    return _tree(G, _arcs(G, algorithm, weight, devices, maximum=False))


def maximum_spanning_tree(
    G: ArrayGraph, weight: Any = "weight", algorithm: Any = "kruskal", ignore_nan: Any = False,
    *, devices: DevicesArgument = None,
) -> Any:  # fmt: skip
    """Return a maximum spanning forest, a NetworkX graph."""
    return _tree(G, _arcs(G, algorithm, weight, devices, maximum=True))
