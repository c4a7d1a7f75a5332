"""Measures that sum distances between all nodes, or take the largest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np

import godwit as gw
from godwit.algorithms.distances import run_sums
from godwit.algorithms.distances.query import DistanceSums
from godwit.dtypes import Array
from godwit.networkx.components import _is_connected, is_tree
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.kernels import roots
from godwit.networkx.options import RELEASE, existing, on_devices, refusals
from godwit.networkx.results import values_by_node
from godwit.networkx.searches import BreadthFirst, search, way
from godwit.networkx.weighted import _sources
from godwit.runtime.registry import DevicesArgument
from godwit.worker.options import query_options


def _missing(weight: Any) -> str:
    return "Source {} is not in G" if weight is None else "Node {} not found in graph"


def closeness_centrality(
    G: ArrayGraph, u: Any = None, distance: Any = None, wf_improved: bool = True,
    *, devices: DevicesArgument = None,
) -> Any:  # fmt: skip
    """Return the closeness of each node, or of one."""
    vertices = None if u is None else existing(G, u, _missing(distance).format(u))
    with refusals():
        result = gw.closeness_centrality(
            on_devices(G, G.lengths(distance), devices, chooses=True), vertices,
            wf_improved=bool(wf_improved),
        )  # fmt: skip
    return values_by_node(G, result.centrality) if u is None else result.centrality[0].item()


def harmonic_centrality(
    G: ArrayGraph, nbunch: Any = None, distance: Any = None, sources: Any = None,
    *, devices: DevicesArgument = None,
) -> dict[Any, float]:  # fmt: skip
    """Return the harmonic centrality of each node, or of some."""
    nodes = list(set(G if nbunch is None else G.nbunch_iter(nbunch)))
    others = None if sources is None else list(set(G.nbunch_iter(sources)))
    vertices = None if nbunch is None else G.positions(nodes)
    with refusals():
        result = gw.harmonic_centrality(
            on_devices(G, G.lengths(distance), devices, chooses=True), vertices,
            sources=None if others is None else G.positions(others),
        )  # fmt: skip
    values = np.zeros(len(G))
    values[slice(None) if vertices is None else np.sort(vertices)] = result.centrality
    return dict(zip(nodes, values[G.positions(nodes)].tolist(), strict=True))


def _sums(
    graph: ArrayGraph, weight: Any, devices: DevicesArgument, vertices: Array | None = None
) -> DistanceSums:
    """Return sums over the distances from each node, or from some by ascending position, to all."""
    with refusals():
        return run_sums(
            "distances", on_devices(graph, graph.lengths(weight), devices, chooses=True), vertices,
            None, None, outward=True, devices=None, trace=None, options=query_options(),
        ).sums  # fmt: skip


def eccentricity(
    G: ArrayGraph, v: Any = None, sp: Any = None, weight: Any = None,
    *, devices: DevicesArgument = None,
) -> Any:  # fmt: skip
    """Return the eccentricity of each node, of some, or of one."""
    nodes = list(dict.fromkeys(G.nbunch_iter(v)))
    if not nodes:
        return {}
    positions = G.positions(nodes)
    chosen, index = np.unique(positions, return_inverse=True)
    sums = _sums(G, weight, devices, None if v is None else chosen)
    if bool((sums.count < len(G)).any()):
        kind = "digraph is not strongly" if G.is_directed() else "graph is not"
        raise nx.NetworkXError(f"Found infinite path length because the {kind} connected")
    largest = sums.largest[positions if v is None else index]
    weights = G.lengths(weight).weights
    if weights is None or weights.dtype.kind != "f":
        largest = largest.astype(np.int64)
    if v in G:
        return largest[0].item()
    return dict(zip(nodes, largest.tolist(), strict=True))


def _eccentricities(
    graph: ArrayGraph, e: Any, usebounds: bool, weight: Any, devices: DevicesArgument
) -> Any:
    if e is not None:
        return e
    is_bounded = usebounds is True and not graph.is_directed()
    if is_bounded and not _is_connected(graph, devices):
        raise nx.NetworkXError("Cannot compute metric because graph is not connected.")
    return eccentricity(graph, weight=weight, devices=devices)


def diameter(
    G: ArrayGraph, e: Any = None, usebounds: bool = False, weight: Any = None,
    *, devices: DevicesArgument = None,
) -> Any:  # fmt: skip
    """Return the largest eccentricity."""
    return max(_eccentricities(G, e, usebounds, weight, devices).values())


def radius(
    G: ArrayGraph, e: Any = None, usebounds: bool = False, weight: Any = None,
    *, devices: DevicesArgument = None,
) -> Any:  # fmt: skip
    """Return the smallest eccentricity."""
    return min(_eccentricities(G, e, usebounds, weight, devices).values())


def periphery(
    G: ArrayGraph, e: Any = None, usebounds: bool = False, weight: Any = None,
    *, devices: DevicesArgument = None,
) -> list[Any]:  # fmt: skip
    """Return the nodes of largest eccentricity."""
    return _extreme(_eccentricities(G, e, usebounds, weight, devices), max)


def center(
    G: ArrayGraph, e: Any = None, usebounds: bool = False, weight: Any = None,
    *, devices: DevicesArgument = None,
) -> list[Any]:  # fmt: skip
    """Return the nodes of smallest eccentricity."""
    if RELEASE >= (3, 6) and len(G) == 0 and e is None and weight is None and not G.is_directed():
        raise nx.NetworkXPointlessConcept("G has no nodes.")  # as NetworkX looks for a tree first
    if e is None and weight is None and not G.is_directed() and len(G) and is_tree(G):
        return _center_of_tree(G)
    return _extreme(_eccentricities(G, e, usebounds, weight, devices), min)


def _center_of_tree(graph: ArrayGraph) -> list[Any]:
    """Return the middle node, or nodes, of a longest path of a tree, whose ends two searches find."""
    end = int(BreadthFirst(graph, [0]).order[-1])
    found = BreadthFirst(graph, [end])
    path = way(found.parent, int(found.order[-1]))
    return graph.names(sorted(path[(len(path) - 1) // 2 : len(path) // 2 + 1]))


def _extreme(eccentricities: Any, choose: Callable[[Any], Any]) -> list[Any]:
    chosen = choose(eccentricities.values())
    return [node for node, value in eccentricities.items() if value == chosen]


def average_shortest_path_length(
    G: ArrayGraph, weight: Any = None, method: str | None = None, *, devices: DevicesArgument = None
) -> float:
    """Return the mean distance of all pairs of nodes."""
    method = method or ("unweighted" if weight is None else "dijkstra")
    if method not in ("unweighted", "dijkstra", "bellman-ford"):
        if method in ("floyd-warshall", "floyd-warshall-numpy"):
            raise NotImplementedError(f"Godwit does not have the method {method}")
        raise ValueError(f"method not supported: {method}")
    n = len(G)
    if n == 0:
        raise nx.NetworkXPointlessConcept(
            "the null graph has no paths, thus there is no average shortest path length"
        )
    if n == 1:
        return 0
    if G.is_directed():
        if any(BreadthFirst(G, [0], backward=backward).count < n for backward in (False, True)):
            raise nx.NetworkXError("Graph is not strongly connected.")
    elif not _is_connected(G, devices):
        raise nx.NetworkXError("Graph is not connected.")
    total = _sums(G, None if method == "unweighted" else weight, devices).total.sum()
    return float(total) / (n * (n - 1))


def global_efficiency(G: ArrayGraph, *, devices: DevicesArgument = None) -> float:
    """Return the mean of 1 / distance over all pairs of nodes."""
    n = len(G)
    if n < 2:
        return 0
    return float(_sums(G, None, devices).reciprocal.sum()) / (n * (n - 1))


def voronoi_cells(
    G: ArrayGraph, center_nodes: Any, weight: Any = "weight", *, devices: DevicesArgument = None
) -> dict[Any, set[Any]]:
    """Return the nodes that are nearest to each center, and those that no center reaches."""
    found = search(G, _sources(G, center_nodes), weight, devices=devices)
    order = found.order
    root = np.full(len(G), -1, order.dtype)
    roots(order, found.parent, root)
    cells: dict[Any, set[Any]] = {}
    for node, nearest in zip(G.names(order), G.names(root[order]), strict=True):
        cells.setdefault(nearest, set()).add(node)
    unreachable = np.flatnonzero(root < 0)
    if len(unreachable):
        cells["unreachable"] = set(G.names(unreachable))
    return cells
