"""Connected and strongly connected components, trees and forests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np

import godwit as gw
from godwit.algorithms.strong_components.cpu import finish_components
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


def _strong_labels(graph: ArrayGraph, devices: DevicesArgument) -> Array:
    """Return the position of the first node of each node's strong component."""
    return gw.strongly_connected_components(on_devices(graph, graph.structure, devices)).label


def strongly_connected_components(G: ArrayGraph) -> Iterator[set[Any]]:
    """Yield the nodes of each strong component, behind all components that it reaches."""
    completed = np.empty(len(G), G.structure.targets.dtype)
    labels = finish_components(G.structure, completed=completed)
    order = np.argsort(labels, kind="stable")
    names = G.names(order)
    found = {int(labels[order[begin]]): (begin, end) for begin, end in runs(labels[order])}
    for first in completed[: len(found)].tolist():
        begin, end = found[first]
        yield set(names[begin:end])


def number_strongly_connected_components(G: ArrayGraph, *, devices: DevicesArgument = None) -> int:
    """Return the number of strong components."""
    labels = _strong_labels(G, devices)
    return int(np.count_nonzero(labels == np.arange(len(labels))))


def is_strongly_connected(G: ArrayGraph, *, devices: DevicesArgument = None) -> bool:
    """Return True if every node reaches all others."""
    if len(G) == 0:
        raise nx.NetworkXPointlessConcept("Connectivity is undefined for the null graph.")
    return bool((_strong_labels(G, devices) == 0).all())


def condensation(G: ArrayGraph, scc: Any = None) -> Any:
    """Return the graph of the strong components, a NetworkX DiGraph with ``mapping`` and ``members``."""
    components = strongly_connected_components(G) if scc is None else scc
    condensed = nx.DiGraph()
    mapping: dict[Any, int] = {}
    condensed.graph["mapping"] = mapping
    if len(G) == 0:
        return condensed
    for number, members in enumerate(components):
        condensed.add_node(number, members=members)
        mapping.update(dict.fromkeys(members, number))
    number_of = np.fromiter((mapping[node] for node in G), np.int64, len(G))
    tails, heads = number_of[G.tails], number_of[G.structure.targets]
    between = tails != heads
    pairs = tails[between] * len(condensed) + heads[between]
    _, first = np.unique(pairs, return_index=True)
    in_order = pairs[np.sort(first)]
    condensed.add_edges_from(
        zip(*(ends.tolist() for ends in divmod(in_order, len(condensed))), strict=True)
    )
    return condensed
