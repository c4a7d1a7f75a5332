"""Check communities: labels in order, connected vertices, and the modularity, by NumPy and SciPy alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from godwit.algorithms.checks import arc_blocks, check_graph, checked_array, fail
from godwit.algorithms.communities.query import as_resolution
from godwit.algorithms.communities.result import CommunitiesResult
from godwit.algorithms.paths.weights import uses_weights
from godwit.dtypes import Array, as_flag, as_float
from godwit.errors import shown
from godwit.graph.csr import Graph


def verify_communities(
    graph: Graph,
    label: Array | CommunitiesResult,
    *,
    connected: bool = True,
    modularity: float | None = None,
    resolution: float = 1.0,
    weighted: bool | None = None,
    tolerance: float = 1e-9,
) -> None:
    """Check that labels number communities by size and smallest vertex, and that each is connected.

    :param label: (n) integers, or a result, whose labels and modularity are checked
    :param connected: check that arcs within a community connect its vertices; labels of
        ``label_propagation(variant="cdlp")`` need not be so
    :param modularity: what the modularity should be; None: that of the result, or any
    :param resolution: that of the query, as of :func:`godwit.louvain`, like ``weighted``; 1 of
        ``objective="cpm"``
    :param tolerance: by which the modularity may differ, times the resolution where that is more than 1
    :raises VerificationError: a rule is broken; names a vertex or a community
    :raises InputError: an argument is wrong
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    check_graph(graph)
    resolution, tolerance = as_resolution(resolution), as_float(tolerance, "tolerance")
    if modularity is not None:
        modularity = as_float(modularity, "modularity")
    elif isinstance(label, CommunitiesResult):
        modularity = label.modularity
    given = label.label if isinstance(label, CommunitiesResult) else label
    labels = checked_array(given, graph.vertex_count, "label", "iu").astype(np.int64)
    counts = uses_weights(graph, weighted)
    n = len(labels)
    if n == 0:
        return

    def name(vertex: int) -> str:
        return shown(graph.ids[int(vertex)])

    if labels.min() < 0 or labels.max() >= n:
        v = int(np.argmax((labels < 0) | (labels >= n)))
        fail(f"vertex {name(v)} has label {labels[v]}, which is not in [0, {n})")
    sizes = np.bincount(labels)
    _, first = np.unique(labels, return_index=True)
    if len(first) < len(sizes):
        fail(f"no vertex has label {int(np.argmin(sizes))}, but one has label {len(sizes) - 1}")
    wrong = (np.diff(sizes) > 0) | ((np.diff(sizes) == 0) & (np.diff(first) < 0))
    if wrong.any():
        c = int(np.argmax(wrong))
        fail(
            f"communities {c} and {c + 1} are in the wrong order: {sizes[c]} and {sizes[c + 1]} vertices, "
            f"the first are {name(first[c])} and {name(first[c + 1])}"
        )
    within = [np.flatnonzero(labels[tails] == labels[graph.targets[arcs]]) + arcs.start
              for tails, arcs in arc_blocks(graph)]  # fmt: skip
    arcs = np.concatenate([np.empty(0, np.int64), *within])
    tails = np.searchsorted(graph.offsets, arcs, side="right") - 1
    heads = graph.targets[arcs]
    if as_flag(connected, "connected"):
        matrix = csr_array((np.ones(len(arcs), np.int8), (tails, heads)), (n, n))
        _, part = connected_components(matrix, directed=False)
        apart = part != part[first[labels]]
        if apart.any():
            v = int(np.argmax(apart))
            fail(
                f"no arcs within community {labels[v]} connect its vertices {name(first[labels[v]])} and "
                f"{name(v)}"
            )
    if modularity is None:
        return
    weights: Any = graph.weights if counts else np.ones(graph.arc_count)
    assert weights is not None
    found = _modularity(graph, labels, arcs, tails == heads, weights, resolution)
    difference = abs(found - modularity)
    both_nan = math.isnan(found) and math.isnan(modularity)
    if not (difference <= tolerance * max(1.0, resolution) or both_nan):
        by_weights = "by weights" if counts else "without weights"
        fail(
            f"the modularity is {found}, not {modularity}, with resolution={resolution:g} and {by_weights}"
        )


def _modularity(
    graph: Graph, labels: Array, within: Array, is_loop: Array, weights: Array, resolution: float
) -> float:
    """Return the modularity in floating-point numbers.

    :param within: arcs within communities; ``is_loop`` says which are self-loops
    """
    weights = weights.astype(np.float64)
    weights = weights / max(1e-300, float(weights.max(initial=0.0)))
    tails = np.repeat(np.arange(len(labels)), np.diff(graph.offsets))
    loops = weights * (tails == graph.targets)
    twice = 0.0 if graph.directed else 1.0
    leaving = np.bincount(tails, weights=weights + twice * loops, minlength=len(labels))
    entering = np.bincount(graph.targets, weights=weights + twice * loops, minlength=len(labels))
    total = leaving.sum()
    if total == 0:
        return math.nan
    inside = weights[within].sum() + twice * weights[within][is_loop].sum()
    squares = np.bincount(labels, weights=leaving) @ np.bincount(labels, weights=entering)
    return float(inside / total - resolution * (squares / total**2))
