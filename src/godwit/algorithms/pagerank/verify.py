"""Verifier of ranks: their residual, by one application of the definition in float64.

Let F(r) be the ranks after one more step of the walk, each vertex's arcs followed in proportion to their
weights. F contracts the L1 distance of two rank vectors by the factor ``damping``, so

    |r - exact| <= |F(r) - r| / (1 - damping),

and a small residual |F(r) - r| is sufficient for ranks that are nearly right, however they were computed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from godwit.algorithms.checks import arc_blocks, check_finite, check_graph, checked_array, fail
from godwit.algorithms.pagerank.result import PageRankResult
from godwit.algorithms.pagerank.settings import Distribution, RankSettings
from godwit.dtypes import Array, as_float
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph

_ROUNDINGS = 64
"""Units of the ranks' dtype by which a residual may exceed the tolerance: sums are rounded."""


def verify_pagerank(
    graph: Graph,
    rank: Array | PageRankResult,
    damping: float = 0.85,
    *,
    tolerance: float = 1e-6,
    personalization: Distribution = None,
    weighted: bool | None = None,
) -> None:
    """Check ranks by their residual: how much one more step of the walk changes them, in sum (L1).

    They must be finite, not negative, sum to 1, and be changed by at most ``tolerance`` and some 1e-14
    (float32: 1e-5) for roundings. The largest error is then ``tolerance / (1 - damping)`` in sum.

    :param rank: (n), float64 or float32; or a result, whose ranks are checked
    :param damping: which the ranks were computed with, like ``personalization`` and ``weighted``
    :param tolerance: from 0; of a result that has not converged, its ``.residual``
    :raises VerificationError: naming the vertex whose rank changes most
    :raises InputError: an argument is wrong
    """
    check_graph(graph)
    n = graph.vertex_count
    rank = rank.rank if isinstance(rank, PageRankResult) else rank
    rank = checked_array(rank, n, "rank", "f")
    tolerance = as_float(tolerance, "tolerance")
    if not tolerance >= 0:
        raise InputError(f"tolerance must not be negative, got {tolerance}")
    settings = RankSettings.checked(
        graph, damping=damping, tolerance=math.inf, personalization=personalization,
        weighted=weighted, dtype=rank.dtype,
    )  # fmt: skip
    if n == 0:
        return
    check_finite(graph, rank, "rank")
    number: Any = np.finfo(rank.dtype)
    tolerance += _ROUNDINGS * float(number.eps)
    values = rank.astype(np.float64)
    total = float(values.sum())
    if not abs(total - 1) <= tolerance:
        fail(f"the ranks sum to {total}, not to 1 within {tolerance:.3g}")
    expected = _stepped(graph, values, settings)
    change = np.abs(expected - values)
    residual = float(change.sum())
    if not residual <= tolerance:
        v = int(np.argmax(change))
        fail(
            f"one more step changes the ranks by {residual:.6g} in sum, more than {tolerance:.3g}; that of "
            f"vertex {shown(graph.ids[v])} most, from {values[v]} to {expected[v]}"
        )


def _stepped(graph: Graph, rank: Array, settings: RankSettings) -> Array:
    """Return the ranks after one more step of the walk."""
    n = graph.vertex_count
    damping = settings.damping
    teleport: Any = 1 / n if settings.teleport is None else settings.teleport
    weights = graph.weights if settings.weighted else None
    if weights is None:
        strength = np.diff(graph.offsets).astype(np.float64)
    else:
        strength = np.zeros(n)
        for tails, arcs in arc_blocks(graph):
            if len(tails):
                first, last = tails[0], tails[-1] + 1
                of_block = weights[arcs].astype(np.float64)
                strength[first:last] = np.bincount(tails - first, of_block, last - first)
    dangling = strength == 0
    arriving = np.zeros(n)
    for tails, arcs in arc_blocks(graph):
        if weights is None:
            share = 1 / strength[tails]
        else:
            with np.errstate(invalid="ignore"):  # 0 / 0, all of whose arcs have weight 0
                share = weights[arcs] / strength[tails]
            share[dangling[tails]] = 0
        arriving += np.bincount(graph.targets[arcs], rank[tails] * share, n)
    stepped: Array = (
        damping * (arriving + rank[dangling].sum() * teleport) + (1 - damping) * teleport
    )
    return stepped
