"""Connected components, trees and forests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np

import godwit as gw
from godwit.dtypes import Array
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.kernels import component_labels
from godwit.networkx.options import on_devices, suits_one_thread
from godwit.networkx.searches import BreadthFirst, runs
from godwit.runtime.registry import DevicesArgument


def _labels(graph: ArrayGraph, devices: DevicesArgument) -> Array:
    """Return the position of the first node of each node's component."""
    if suits_one_thread(graph.structure, devices):
        offsets, targets = graph.out_rows
        label = np.empty(len(graph), targets.dtype)
        component_labels(offsets, targets, label)
        return label
    return gw.connected_components(on_devices(graph, graph.structure, devices)).label


def _count(graph: ArrayGraph, devices: DevicesArgument) -> int:
    labels = _labels(graph, devices)
    return int(np.count_nonzero(labels == np.arange(len(labels))))


def _is_connected(graph: ArrayGraph, devices: DevicesArgument) -> bool:
    if len(graph) == 0:
        raise nx.NetworkXPointlessConcept("Connectivity is undefined for the null graph.")
    return bool((_labels(graph, devices) == 0).all())


def connected_components(G: ArrayGraph, *, devices: DevicesArgument = None) -> Iterator[set[Any]]:
    """Yield the nodes of each component, in the order of first nodes."""
    labels = _labels(G, devices)
    order = np.argsort(labels, kind="stable")
    names = G.names(order)
    for begin, end in runs(labels[order]):
        yield set(names[begin:end])


weakly_connected_components = connected_components


def number_connected_components(G: ArrayGraph, *, devices: DevicesArgument = None) -> int:
    """Return the number of components."""
    return _count(G, devices)


number_weakly_connected_components = number_connected_components


def is_connected(G: ArrayGraph, *, devices: DevicesArgument = None) -> bool:
    """Return True if the graph has one component."""
    return _is_connected(G, devices)


is_weakly_connected = is_connected


def node_connected_component(G: ArrayGraph, n: Any) -> set[Any]:
    """Return the nodes of a node's component."""
    return set(G.names(BreadthFirst(G, [G.position(n)]).order))


def is_forest(G: ArrayGraph, *, devices: DevicesArgument = None) -> bool:
    """Return True if there is no cycle, whatever the directions of edges."""
    if len(G) == 0:
        raise nx.NetworkXPointlessConcept("G has no nodes.")
    return G.number_of_edges() == len(G) - _count(G, devices)


def is_tree(G: ArrayGraph, *, devices: DevicesArgument = None) -> bool:
    """Return True if the graph is connected and has no cycle, whatever the directions of edges."""
    if len(G) == 0:
        raise nx.NetworkXPointlessConcept("G has no nodes.")
    return len(G) - 1 == G.number_of_edges() and _is_connected(G, devices)


def is_branching(G: ArrayGraph, *, devices: DevicesArgument = None) -> bool:
    """Return True if the graph is a forest in which no node has several predecessors."""
    return is_forest(G, devices=devices) and int(G.in_degree.max()) <= 1


def is_arborescence(G: ArrayGraph, *, devices: DevicesArgument = None) -> bool:
    """Return True if the graph is a tree in which no node has several predecessors."""
    return is_tree(G, devices=devices) and int(G.in_degree.max()) <= 1
