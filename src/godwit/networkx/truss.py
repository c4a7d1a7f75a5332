"""The k-truss of a graph."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np

import godwit as gw
from godwit.algorithms.triangles.rows import simple_graph
from godwit.algorithms.truss.rows import arcs_of_edges
from godwit.networkx.conversion import to_networkx
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.operators import subgraph_of_arcs
from godwit.networkx.options import on_devices, refusals
from godwit.runtime.registry import DevicesArgument


def k_truss(G: ArrayGraph, k: Any, *, devices: DevicesArgument = None) -> Any:
    """Return the subgraph of the edges that are part of at least k - 2 of its triangles."""
    if G.is_directed():
        raise nx.NetworkXNotImplemented("not implemented for directed type")
    if G.is_multigraph():
        raise nx.NetworkXNotImplemented("not implemented for multigraph type")
    if G.loops.any():
        raise nx.NetworkXNotImplemented(
            "Input graph has self loops which is not permitted; "
            "Consider using G.remove_edges_from(nx.selfloop_edges(G))."
        )
    with refusals():
        truss = gw.truss_number(on_devices(G, G.structure, devices)).truss
    kept = arcs_of_edges(G.structure, simple_graph(G.structure), np.asarray(truss >= k))
    return to_networkx(subgraph_of_arcs(G, kept))
