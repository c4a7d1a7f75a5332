"""Weights as lengths of arcs: whether they count, checks, and the name of an arc in messages."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.dtypes import as_flag
from godwit.errors import InputError
from godwit.graph.csr import Graph

if TYPE_CHECKING:
    from godwit.distributed.graph import DistributedGraph

SHORTEST_PATHS_NEED = "shortest paths need weights that are not negative"
WITHOUT_WEIGHTS = (
    "weighted=False ignores weights (command line: --ignore-weights), and graph.with_weights(...) "
    "replaces them"
)
"""Remedies, as a clause, if an algorithm cannot take the weights of a graph."""
BFS = "bfs instead of sssp counts arcs"
BELLMAN_FORD = f"{BFS}, and Bellman and Ford's method takes negative weights (SciPy, NetworkX)"


def uses_weights(graph: Graph | DistributedGraph, weighted: Any) -> bool:
    """Return whether weights count: as ``weighted`` says; if it is None, where the graph has weights.

    :raises InputError: ``weighted`` is True and the graph has no weights
    """
    if weighted is not None:
        weighted = as_flag(weighted, "weighted")
    if weighted and not graph.is_weighted:
        raise InputError("weighted=True needs a graph with weights; Graph.with_weights() makes one")
    return graph.is_weighted and weighted is not False


def check_weights(graph: Graph) -> int:
    """Return the largest weight, rounded up, and 1 if there are none; looked up once per graph.

    :raises InputError: a weight is negative or NaN; names the arc
    """
    return int(graph.cached("largest_weight", lambda: _largest_weight(graph)))


def _largest_weight(graph: Graph) -> int:
    weights = graph.weights
    if weights is None or len(weights) == 0:
        return 1
    smallest, largest = weights.min(), weights.max()
    if smallest < 0 or math.isnan(smallest):
        arc = int(np.argmax((weights < 0) | np.isnan(weights)))
        raise unsuitable_weight(
            graph, arc, SHORTEST_PATHS_NEED, BELLMAN_FORD if weights[arc] < 0 else BFS
        )
    if weights.dtype.kind in "iu":
        return int(largest)
    return 2**62 if math.isinf(largest) else math.ceil(largest)


def unsuitable_weight(graph: Graph, arc: int, needs: str, other: str = "") -> InputError:
    """Return the error about a weight that an algorithm cannot take; it says what works.

    :param arc: that has the weight
    :param needs: the algorithm, and what it needs, as ``"PageRank needs weights that are finite"``
    :param other: another remedy, as a clause
    """
    weights = graph.weights
    assert weights is not None
    remedies = f"{WITHOUT_WEIGHTS}; {other}" if other else WITHOUT_WEIGHTS
    return InputError(f"{needs}; {named_arc(graph, arc)} has weight {weights[arc]}: {remedies}")


def named_arc(graph: Graph, arc: int) -> str:
    """Return an arc as messages name it: the ids of its ends, and their numbers in the graph's file."""
    tail = int(np.searchsorted(graph.offsets, arc, side="right")) - 1
    ids, head = graph.ids, int(graph.targets[arc])
    named = f" (the graph has {ids.described})" if ids.own else ""
    if ids.base:
        named = f" (in its file, from {ids.in_file[tail]} to {ids.in_file[head]})"
    return f"the arc from {ids[tail]} to {ids[head]}{named}"
