"""Verifier of spanning forests: their edges close no cycle, join what is connected, and are the least.

Sufficient: a forest whose number of trees is that of components spans them, and it is minimal if every edge
of the graph is at least as heavy as all edges of the forest on the path between its ends (cycle property).
A serial Kruskal checks that without paths: in ascending order of weight, edges of the forest of one weight
are joined before the others of that weight are looked at, whose ends must then be in one tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.checks import check_graph, fail, tree_root
from godwit.algorithms.paths.weights import uses_weights
from godwit.algorithms.spanning_forest.result import SpanningForestResult
from godwit.dtypes import Array, as_flag, as_integers
from godwit.errors import InputError, shown
from godwit.graph.build import row_sources
from godwit.graph.csr import Graph
from godwit.runtime.cpu.compile import kernel

_FINE, _CLOSES_CYCLE, _IS_NOT_JOINED = 0, 1, 2


def verify_minimum_spanning_forest(
    graph: Graph,
    arcs: Array | SpanningForestResult,
    maximum: bool = False,
    *,
    weighted: bool | None = None,
) -> None:
    """Check that edges are a minimum or maximum spanning forest; any one, if there are several.

    :param graph: an undirected graph
    :param arcs: (k) integers: the index in ``graph.targets`` of one arc of each edge, or a result, which
        says itself whether weights count and the forest is a maximum one
    :param maximum: as of :func:`godwit.minimum_spanning_forest`, like ``weighted``
    :raises VerificationError: a rule is broken; names an edge
    :raises InputError: an argument is wrong
    """
    check_graph(graph)
    if graph.directed:
        raise InputError("spanning forests are of undirected graphs, and this one is directed")
    if isinstance(arcs, SpanningForestResult):
        maximum, weighted, arcs = arcs.is_maximum, arcs.is_weighted, arcs.arcs
    maximum = as_flag(maximum, "maximum")
    chosen = as_integers(arcs, "arcs")
    outside = (chosen < 0) | (chosen >= graph.arc_count)
    if outside.any():
        fail(f"the forest has arc {chosen[np.argmax(outside)]} of {graph.arc_count} arcs")
    sources, targets = row_sources(graph.offsets, graph.targets.dtype), graph.targets
    weights = graph.weights if uses_weights(graph, weighted) else None
    ordered: Any = np.zeros(len(targets)) if weights is None else weights
    in_forest = np.zeros(len(targets), bool)
    in_forest[chosen] = True
    # Edges of the forest come first among those of equal weight; lexsort sorts by its last key first.
    ranks = np.unique(ordered, return_inverse=True)[1].reshape(-1)
    order = np.lexsort((~in_forest, -ranks if maximum else ranks))
    parent = np.arange(graph.vertex_count)
    at, problem = _check_order(sources, targets, order, in_forest, parent)
    if problem == _FINE:
        return
    u, v = (shown(graph.ids[int(ends[at])]) for ends in (sources, targets))
    weight = "" if weights is None else f" of weight {weights[at]}"
    if problem == _CLOSES_CYCLE:
        fail(f"the edge between {u} and {v}{weight} closes a cycle of the forest")
    way = "as heavy" if maximum else "as light"
    fail(f"the edge between {u} and {v}{weight} joins trees that no edges {way} in the forest join")


@kernel
def _check_order(
    sources: Any, targets: Any, order: Any, in_forest: Any, parent: Any
) -> tuple[Any, int]:
    """Join the ends of edges in order; return the first arc that breaks a rule, and which rule."""
    for arc in order:
        u = tree_root(parent, sources[arc])
        v = tree_root(parent, targets[arc])
        if in_forest[arc]:
            if u == v:
                return arc, _CLOSES_CYCLE
            parent[max(u, v)] = min(u, v)
        elif u != v:
            return arc, _IS_NOT_JOINED
    return -1, _FINE
