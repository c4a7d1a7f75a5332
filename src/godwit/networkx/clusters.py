"""Triangles, clustering coefficients, transitivity."""

from __future__ import annotations

from typing import Any

import godwit as gw
from godwit.dtypes import Array
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.options import on_devices, refusals
from godwit.networkx.results import values_by_node
from godwit.runtime.registry import DevicesArgument


def _of_nodes(graph: ArrayGraph, values: Array, nodes: Any) -> Any:
    """Return the value of a node, or a dictionary of those of several, or of all."""
    if nodes is None:
        return values_by_node(graph, values)
    if nodes in graph:
        return values[graph.position(nodes)].item()
    return {node: values[graph.position(node)].item() for node in graph.nbunch_iter(nodes)}


def _refuse_multigraph(graph: ArrayGraph) -> None:
    if graph.is_multigraph():
        raise NotImplementedError("not implemented for multigraph type")


def triangles(G: ArrayGraph, nodes: Any = None, *, devices: DevicesArgument = None) -> Any:
    """Return the number of triangles of a node, of several, or of all."""
    if nodes is not None:
        _refuse_multigraph(G)
    return _of_nodes(G, gw.triangles(on_devices(G, G.structure, devices)).triangles, nodes)


def clustering(
    G: ArrayGraph, nodes: Any = None, weight: Any = None, *, devices: DevicesArgument = None
) -> Any:
    """Return the clustering coefficient of a node, of several, or of all."""
    _refuse_multigraph(G)
    rows = G.weighted(weight)
    with refusals():
        found = gw.clustering(on_devices(G, rows, devices), weighted=rows.is_weighted)
    return _of_nodes(G, found.clustering, nodes)


def average_clustering(
    G: ArrayGraph,
    nodes: Any = None,
    weight: Any = None,
    count_zeros: bool = True,
    *,
    devices: DevicesArgument = None,
) -> float:
    """Return the mean of clustering coefficients."""
    values = list(clustering(G, nodes, weight, devices=devices).values())
    if not count_zeros:
        values = [value for value in values if abs(value) > 0]
    return float(sum(values) / len(values))


def transitivity(G: ArrayGraph, *, devices: DevicesArgument = None) -> float:
    """Return the share of pairs of adjacent edges that are part of a triangle."""
    _refuse_multigraph(G)
    if G.is_directed():
        raise NotImplementedError("directions count in NetworkX's transitivity of directed graphs")
    return gw.transitivity(on_devices(G, G.structure, devices))
