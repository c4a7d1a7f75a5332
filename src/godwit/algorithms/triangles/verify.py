"""Verifiers of triangles and clustering: the triangles of vertices are counted again, one vertex at a time.

For a vertex v, the arcs that lead from its neighbours to its neighbours are counted by NumPy, which visits
the rows of all neighbours. If that takes more than some seconds for all vertices, some are drawn at random.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.checks import check_graph, checked_array, fail, first_true
from godwit.algorithms.power_iteration.query import checks_weights
from godwit.algorithms.triangles.result import ClusteringResult, TrianglesResult
from godwit.algorithms.triangles.rows import simple_graph
from godwit.dtypes import Array, as_count
from godwit.errors import shown
from godwit.graph.csr import Graph

_MOST_ARCS = 1 << 27
"""Arcs that can be visited in some seconds."""
_SLACK = 1e-9
"""Relative difference allowed between two sums in another order."""


def verify_triangles(
    graph: Graph, triangles: Array | TrianglesResult, *, total: int | None = None, seed: int = 0
) -> int:
    """Check the numbers of triangles; return how many vertices were checked: all, if that takes seconds.

    :param triangles: (n) integers; or a result, whose total is checked, too
    :param total: number of triangles of the graph; None: that of a result, or not checked
    :param seed: of the draw of vertices
    :raises VerificationError: naming a vertex whose number is wrong
    :raises InputError: a wrong argument
    """
    check_graph(graph)
    if isinstance(triangles, TrianglesResult):
        total = triangles.total if total is None else total
        triangles = triangles.triangles
    counts = checked_array(triangles, graph.vertex_count, "triangles", "iu")
    if (v := first_true(counts < 0)) is not None:
        fail(f"vertex {shown(graph.ids[v])} has {counts[v]} triangles")
    if total is not None and 3 * as_count(total, "total") != int(counts.sum()):
        fail(
            f"there are {total} triangles, but vertices have {int(counts.sum())} in all, not 3 times that"
        )
    simple = simple_graph(graph)
    values = np.ones(simple.arc_count)
    return _compare(
        simple, values, counts, 0.5, np.ones(graph.vertex_count), "number of triangles", seed
    )


def verify_clustering(
    graph: Graph,
    clustering: Array | ClusteringResult,
    *,
    weighted: bool | None = None,
    seed: int = 0,
) -> int:
    """Check clustering coefficients; return how many vertices were checked: all, if that takes seconds.

    :param clustering: (n), float64; or a result
    :param weighted: as it was computed, as for :func:`clustering`
    :param seed: of the draw of vertices
    :raises VerificationError: naming a vertex whose coefficient is wrong
    :raises InputError: a wrong argument
    """
    check_graph(graph)
    is_weighted = checks_weights(graph, weighted, "clustering")
    if isinstance(clustering, ClusteringResult):
        clustering = clustering.clustering
    found = checked_array(clustering, graph.vertex_count, "clustering", "f")
    simple = simple_graph(graph)
    n = graph.vertex_count
    degree = simple.out_degree().astype(np.float64)
    values = np.zeros(simple.arc_count)
    pairs = degree * (degree - 1)
    heads = graph.targets.astype(np.int64)
    tails = np.repeat(np.arange(n), np.diff(graph.offsets))
    between = np.flatnonzero(tails != heads)
    keys, first = np.unique(tails[between] * n + heads[between], return_index=True)
    weights = np.ones(graph.arc_count)
    if is_weighted and graph.weights is not None and graph.arc_count:
        weights = np.cbrt(graph.weights / float(graph.weights.max()))
    every = np.repeat(np.arange(n), np.diff(simple.offsets)) * n + simple.targets
    values[np.searchsorted(every, keys)] = weights[between][first]
    if graph.directed:
        back = keys % n * n + keys // n
        np.add.at(values, np.searchsorted(every, back), weights[between][first])
        arcs = np.bincount(keys // n, minlength=n) + np.bincount(keys % n, minlength=n)
        pairs = 2.0 * (arcs * (arcs - 1) - 2 * (arcs - degree))
    return _compare(simple, values, found, 1.0, pairs, "clustering coefficient", seed)


def _compare(
    simple: Graph, values: Array, found: Array, factor: float, pairs: Array, what: str, seed: int
) -> int:
    """Compare a number of each vertex with a factor times its sum over pairs of neighbours, divided.

    :param simple: the simple undirected graph, rows sorted
    :param values: (m) of its arcs
    :param pairs: (n) divisors
    """
    offsets, targets = simple.offsets, simple.targets
    value_of: Any = np.zeros(simple.vertex_count)
    degree = np.diff(offsets)
    visited = checked = 0
    for v in np.random.default_rng(as_count(seed, "seed")).permutation(simple.vertex_count):
        row = slice(offsets[v], offsets[v + 1])
        neighbours = targets[row]
        lengths = degree[neighbours]
        visited += int(lengths.sum()) + 1
        if visited > _MOST_ARCS and checked:
            break
        checked += 1
        value_of[neighbours] = values[row]
        starts = np.cumsum(lengths) - lengths
        arcs = np.arange(lengths.sum()) + np.repeat(offsets[:-1][neighbours] - starts, lengths)
        products = np.repeat(values[row], lengths) * values[arcs] * value_of[targets[arcs]]
        value_of[neighbours] = 0
        total = float(products.sum())
        expected = factor * total / float(pairs[v]) if total != 0 else 0.0
        slack = _SLACK * (float(np.abs(products).sum()) / abs(float(pairs[v])) if total != 0 else 0)
        if not abs(float(found[v]) - expected) <= slack:
            name = shown(simple.ids[int(v)])
            fail(f"the {what} of vertex {name} is {expected:.17g}, got {found[v]}")
    return checked
