"""Link prediction: scores of pairs of nodes by their common neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import networkx as nx
import numpy as np

import godwit as gw
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.options import on_devices
from godwit.runtime.registry import DevicesArgument

_Scores = Iterator[tuple[Any, Any, float]]


def _scores(
    function: Callable[..., Any], graph: ArrayGraph, ebunch: Any, devices: DevicesArgument
) -> _Scores:
    """Return an iterator over pairs and their scores, in the order of the pairs.

    :raises NodeNotFound: a node of a pair is not in the graph
    :raises NotImplementedError: NetworkX has another definition of such graphs or pairs
    """
    if ebunch is None:
        raise NotImplementedError("all pairs of nodes without an edge are asked for")
    if graph.is_directed() or graph.is_multigraph() or graph.loops.any():
        raise NotImplementedError("directed graphs, multigraphs and self-loops are not taken")
    positions = []
    pairs = []
    for u, v in ebunch:
        for node in (u, v):
            if node not in graph:
                raise nx.NodeNotFound(f"Node {node} not in G.")
        pairs.append((u, v))
        positions.append((graph.position(u), graph.position(v)))
    if any(u == v for u, v in positions):
        raise NotImplementedError("a pair is a node with itself")
    if iter(ebunch) is ebunch:  # NetworkX looks at the nodes, and has nothing left to score
        return iter(())
    several = np.array(positions, np.int64).reshape(-1, 2)
    scores = function(on_devices(graph, graph.structure, devices, chooses=True), several).score
    return ((*pair, score) for pair, score in zip(pairs, scores.tolist(), strict=True))


def jaccard_coefficient(
    G: ArrayGraph, ebunch: Any = None, *, devices: DevicesArgument = None
) -> _Scores:
    """Return pairs of nodes with the share of their neighbours that are neighbours of both."""
    return _scores(gw.jaccard, G, ebunch, devices)


def adamic_adar_index(
    G: ArrayGraph, ebunch: Any = None, *, devices: DevicesArgument = None
) -> _Scores:
    """Return pairs of nodes with the sum of 1 / log(degree) of their common neighbours."""
    return _scores(gw.adamic_adar, G, ebunch, devices)


def resource_allocation_index(
    G: ArrayGraph, ebunch: Any = None, *, devices: DevicesArgument = None
) -> _Scores:
    """Return pairs of nodes with the sum of 1 / degree of their common neighbours."""
    return _scores(gw.resource_allocation, G, ebunch, devices)
