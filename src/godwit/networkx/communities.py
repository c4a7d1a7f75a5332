"""Communities: Louvain, Leiden, label propagation, and the modularity."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np

import godwit as gw
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.options import on_devices, refusals
from godwit.networkx.searches import runs
from godwit.runtime.registry import DevicesArgument


def _seed(seed: Any) -> int:
    """Return an integer for a seed, or for the generator that NetworkX makes of it."""
    if seed is None:
        return 0
    return int(seed.randrange(2**62)) if hasattr(seed, "randrange") else int(seed)


def _sets(graph: ArrayGraph, label: Array) -> list[set[Any]]:
    """Return the nodes of each community, in the order of first nodes."""
    _, first = np.unique(label, return_index=True)
    order = np.argsort(first[label], kind="stable")
    names = graph.names(order)
    return [set(names[begin:end]) for begin, end in runs(label[order])]


def _levels(
    graph: ArrayGraph,
    method: Any,
    weight: Any,
    resolution: Any,
    seed: Any,
    devices: DevicesArgument,
) -> list[Array]:
    """Return labels of each level; one where no edge counts: each node is alone."""
    rows = graph.weighted(weight)
    if rows.weights is not None and not np.any(rows.weights) and rows.arc_count:
        raise NotImplementedError("all weights are 0")
    with refusals():
        placed = on_devices(graph, rows, devices, chooses=True)
        levels: list[Array] = method(placed, resolution, seed=_seed(seed)).levels
    return levels


def _each_level(graph: ArrayGraph, levels: list[Array]) -> Iterator[list[set[Any]]]:
    """Return an iterator over the communities of levels that exist: an error is raised before it begins."""
    return (_sets(graph, label) for label in levels)


def _at_level(graph: ArrayGraph, levels: list[Array], max_level: int | None) -> list[set[Any]]:
    if max_level is not None and max_level <= 0:
        raise ValueError("max_level argument must be a positive integer or None")
    return _sets(graph, levels[-1 if max_level is None else min(max_level, len(levels)) - 1])


def louvain_partitions(
    G: ArrayGraph,
    weight: Any = "weight",
    resolution: float = 1,
    threshold: float = 0.0000001,
    seed: Any = None,
    *,
    devices: DevicesArgument = None,
) -> Iterator[list[set[Any]]]:
    """Return an iterator over the communities of each level."""
    return _each_level(G, _levels(G, gw.louvain, weight, resolution, seed, devices))


def louvain_communities(
    G: ArrayGraph,
    weight: Any = "weight",
    resolution: float = 1,
    threshold: float = 0.0000001,
    max_level: int | None = None,
    seed: Any = None,
    *,
    devices: DevicesArgument = None,
) -> list[set[Any]]:
    """Return the communities of Louvain's method."""
    return _at_level(G, _levels(G, gw.louvain, weight, resolution, seed, devices), max_level)


def leiden_partitions(
    G: ArrayGraph,
    weight: Any = "weight",
    resolution: float = 1,
    seed: Any = None,
    *,
    devices: DevicesArgument = None,
) -> Iterator[list[set[Any]]]:
    """Return an iterator over the communities of each level."""
    return _each_level(G, _levels(G, gw.leiden, weight, resolution, seed, devices))


def leiden_communities(
    G: ArrayGraph,
    weight: Any = "weight",
    resolution: float = 1,
    max_level: int | None = None,
    seed: Any = None,
    *,
    devices: DevicesArgument = None,
) -> list[set[Any]]:
    """Return the communities of Leiden's method."""
    return _at_level(G, _levels(G, gw.leiden, weight, resolution, seed, devices), max_level)


def _by_labels(graph: ArrayGraph, rows: Graph, seed: Any, devices: DevicesArgument) -> Array:
    """Return labels by label propagation, in which arcs count in both directions."""
    with refusals():
        placed = on_devices(graph, rows, devices, chooses=True)
        return gw.label_propagation(placed, seed=_seed(seed)).label


def asyn_lpa_communities(
    G: ArrayGraph, weight: Any = None, seed: Any = None, *, devices: DevicesArgument = None
) -> Iterator[set[Any]]:
    """Return an iterator over communities by label propagation."""
    if G.is_directed():
        raise NotImplementedError("only arcs that leave a node would count")
    rows = G.structure if weight is None else G.weighted(weight)
    return iter(_sets(G, _by_labels(G, rows, seed, devices)))


def fast_label_propagation_communities(
    G: ArrayGraph, *, weight: Any = None, seed: Any = None, devices: DevicesArgument = None
) -> Iterator[set[Any]]:
    """Return an iterator over communities by label propagation, in which directions do not count."""
    return iter(_sets(G, _by_labels(G, G.weighted(weight), seed, devices)))


def label_propagation_communities(
    G: ArrayGraph, *, devices: DevicesArgument = None
) -> list[set[Any]]:
    """Return communities by label propagation."""
    return _sets(G, _by_labels(G, G.structure, None, devices))


def modularity(
    G: ArrayGraph,
    communities: Any,
    weight: Any = "weight",
    resolution: float = 1,
    *,
    devices: DevicesArgument = None,
) -> float:
    """Return the modularity of a partition."""
    sets = [set(nodes) for nodes in communities]
    label = np.full(len(G), -1)
    for community, nodes in enumerate(sets):
        try:
            label[G.positions(list(nodes))] = community
        except (KeyError, TypeError, IndexError):
            raise nx.community.quality.NotAPartition(G, sets) from None
    if sum(map(len, sets)) != len(G) or (label < 0).any():
        raise nx.community.quality.NotAPartition(G, sets)
    with refusals():
        placed = on_devices(G, G.weighted(weight), devices, chooses=True)
        value = gw.modularity(placed, label, resolution=resolution)
    if math.isnan(value):
        raise ZeroDivisionError("division by zero")
    return value
