"""Greedy colourings and maximal independent sets."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np

import godwit as gw
from godwit.algorithms.greedy.cpu import decide_on_cores
from godwit.algorithms.greedy.order import Kind
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.options import refusals


def greedy_color(
    G: ArrayGraph, strategy: Any = "largest_first", interchange: bool = False
) -> dict[Any, int]:
    """Return the colour of each node, by descending degree."""
    if len(G) == 0:
        return {}
    if strategy != "largest_first" or interchange:
        raise NotImplementedError("only strategy='largest_first' has the same result")
    if G.is_directed():
        raise NotImplementedError("in a directed graph, only successors count as neighbours")
    order = np.argsort(-G.degree, kind="stable")
    with refusals():
        colors = decide_on_cores(G.structure, Kind.COLOR, order, None, None)
    return dict(zip(G.names(order), colors[order].tolist(), strict=True))


def maximal_independent_set(G: ArrayGraph, nodes: Any = None, seed: Any = None) -> list[Any]:
    """Return a maximal independent set that contains some nodes, with others at random."""
    if G.is_directed():
        raise nx.NetworkXNotImplemented("not implemented for directed type")
    given = set(nodes) if nodes else {seed.choice(list(G))}
    if not all(node in G for node in given):
        raise nx.NetworkXUnfeasible(f"{given} is not a subset of the nodes of G")
    chosen = np.zeros(len(G), np.bool_)
    chosen[G.positions(list(given))] = True
    covered = np.zeros(len(G), np.bool_)
    covered[G.structure.targets[chosen[G.tails]]] = True
    if (chosen & covered).any():
        raise nx.NetworkXUnfeasible(f"{given} is not an independent set of G")
    rest = G.structure.subgraph(np.flatnonzero(~chosen & ~covered))
    with refusals():
        found = gw.maximal_independent_set(rest, seed=seed.randrange(2**63), devices="cpu")
    return [*given, *G.names(found.vertices)]
