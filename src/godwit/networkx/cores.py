"""Core numbers, and the subgraphs that they define."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np

import godwit as gw
from godwit.dtypes import Array
from godwit.networkx.conversion import to_networkx
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.operators import subgraph
from godwit.networkx.options import on_devices, refusals
from godwit.networkx.results import values_by_node
from godwit.runtime.registry import DevicesArgument


def _core(graph: ArrayGraph, devices: DevicesArgument) -> Array:
    """Return the core number of each node."""
    if graph.is_multigraph():
        raise nx.NetworkXNotImplemented("not implemented for multigraph type")
    if graph.loops.any():
        raise nx.NetworkXNotImplemented(
            "Input graph has self loops which is not permitted; "
            "Consider using G.remove_edges_from(nx.selfloop_edges(G))."
        )
    with refusals():
        return gw.core_number(on_devices(graph, graph.structure, devices)).core


def core_number(G: ArrayGraph, *, devices: DevicesArgument = None) -> dict[Any, int]:
    """Return the core number of each node."""
    return values_by_node(G, _core(G, devices))


def _part(
    graph: ArrayGraph, k: Any, given: Any, devices: DevicesArgument,
    keep: Callable[[Array, Any], Array],
) -> Any:  # fmt: skip
    """Return the subgraph of the nodes that pass a filter, a NetworkX graph with all attributes.

    :param given: core numbers by node, or None
    :param keep: of core numbers and k, which nodes
    """
    if given is None:
        core = _core(graph, devices)
    elif set(given) == set(graph):
        core = np.array([given[node] for node in graph])
    else:
        raise NotImplementedError("core numbers are given, but not of exactly the graph's nodes")
    if k is None:
        k = max(core.tolist())
    return to_networkx(subgraph(graph, keep(core, k)))


def k_core(
    G: ArrayGraph, k: Any = None, core_number: Any = None, *, devices: DevicesArgument = None
) -> Any:
    """Return the subgraph of the nodes whose core number is at least k."""
    return _part(G, k, core_number, devices, lambda core, k: core >= k)


def k_shell(
    G: ArrayGraph, k: Any = None, core_number: Any = None, *, devices: DevicesArgument = None
) -> Any:
    """Return the subgraph of the nodes whose core number is k."""
    return _part(G, k, core_number, devices, lambda core, k: core == k)


def k_crust(
    G: ArrayGraph, k: Any = None, core_number: Any = None, *, devices: DevicesArgument = None
) -> Any:
    """Return the subgraph of the nodes whose core number is at most k; by default all but the largest."""
    if k is None:
        return _part(G, k, core_number, devices, lambda core, k: core <= k - 1)
    return _part(G, k, core_number, devices, lambda core, k: core <= k)


def k_corona(
    G: ArrayGraph, k: Any, core_number: Any = None, *, devices: DevicesArgument = None
) -> Any:
    """Return the subgraph of the nodes of core number k that have exactly k neighbours in the k-core."""

    def keep(core: Array, k: Any) -> Array:
        inside = core[G.structure.targets] >= k
        is_corona: Array = (core == k) & (np.bincount(G.tails[inside], minlength=len(G)) == k)
        return is_corona

    return _part(G, k, core_number, devices, keep)
