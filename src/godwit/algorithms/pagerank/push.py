"""PageRank by residual push: a vertex program that adds, on the asynchronous engine (Groute, 4.6.3).

The value of a vertex is its *residual*, received but not yet added to its rank: initially (1 - d) p, with
damping d and personalization p. Processing a vertex adds the residual to the rank (the field) and pushes d
times the residual along the out-arcs, in proportion to weights. Residual of a dangling vertex is not
pushed.

*Scaling the ranks to sum 1 corrects that.* Let A move ranks along arcs, those of dangling vertices
nowhere. NetworkX's ranks are x = (1 - d) p + d (sum of x over dangling vertices) p + d A x, so a multiple
of y = (1 - d) p + d A y, and y is the limit of push.

*The residual.* With ranks e and residuals r, every residual added to e has been pushed once, so
e + r = (1 - d) p + d A e. The result is (e + r) / S, where S is the sum of e + r. One plain iteration more
would change it by (d A r - |d A r| p) / S, in sum by at most 2 d R / S, where R is the sum of r. That is
reported as the residual; errors are at most 1 / (1 - d) times it. The epsilon of the ranks' dtype is added,
which bounds the rounding of ranks, whose sum is 1.

*The threshold.* A vertex is due when its residual exceeds epsilon, so in the end R <= n epsilon. S is |y|
less what r would still add, at most d R / (1 - d). As |y| = 1 - d + d (|y| - sum of y over dangling
vertices), |y| is 1 where no vertex is dangling, 1 - d (sum of p over dangling vertices) where nothing leads
to these, as in undirected graphs, and at least 1 - d anywhere: call that L. Then 2 d R / S <= tolerance
follows from d R (2 / tolerance + 1 / (1 - d)) <= L.

Ranks are summed in float64 whatever their dtype: small residuals are added to large ranks, often.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from godwit.algorithms.pagerank.result import PageRankResult
from godwit.algorithms.pagerank.settings import RankSettings
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.rows import require_memory, row_range, thread_count_for
from godwit.placement import PlacedGraph
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import run_team
from godwit.runtime.statistics import RunStatistics
from godwit.worker.options import SolverOptions
from godwit.worker.program import VertexProgram
from godwit.worker.solve import solve


def _share(value: Any, degree: Any, damping: Any) -> Any:
    return damping * value / degree


def _portion(value: Any, weight: Any, damping: Any) -> Any:
    return damping * value * weight


def _is_due(value: Any, epsilon: Any) -> Any:
    return value > epsilon


def _plus(field: Any, value: Any) -> Any:
    return field + value


PROGRAMS = {
    (name, weighted): VertexProgram(
        name="pagerank",
        dtype=name,
        message=_portion if weighted else _share,
        combine="add",
        activate=_is_due,
        update=_plus,
        field_dtype="float64",
        parameters={"damping": 0.85, "epsilon": 0.0},
    )
    for name in ("float32", "float64")
    for weighted in (False, True)
}


@dataclass(frozen=True)
class PushRows:
    """Graph along whose arcs residuals are pushed.

    :ivar graph: in a weighted PageRank, each weight is divided by the sum of its row's weights
    :ivar dangling: bool (n): True for vertices without out-arcs or, if weighted, whose weights sum to 0
    """

    graph: Graph
    dangling: Array


def push_rows(graph: Graph, settings: RankSettings) -> PushRows:
    """Return the graph itself, or a cached copy with normalized rows for a weighted PageRank."""
    if not settings.weighted:
        return PushRows(graph, graph.out_degree() == 0)
    number = settings.number
    rows: PushRows = graph.cached(("push", number.name), lambda: _divided_rows(graph, number))
    return rows


def _divided_rows(graph: Graph, number: np.dtype[Any]) -> PushRows:
    n, arcs = graph.vertex_count, graph.arc_count
    require_memory(arcs * number.itemsize + n, "preparing a graph for PageRank")
    portions, dangling = np.empty(arcs, number), np.empty(n, np.bool_)
    run_team(
        _divide_rows, graph.offsets, graph.weights, portions, dangling,
        threads=thread_count_for(arcs),
    )  # fmt: skip
    rows = Graph.trusted(graph.offsets, graph.targets, portions, directed=graph.directed)
    return PushRows(rows, dangling)


@kernel
def _divide_rows(
    rank: int, size: int, control: Any, offsets: Any, weights: Any, portions: Any, dangling: Any
) -> None:
    begin, end = row_range(rank, size, offsets)
    for v in range(begin, end):
        flow = 0.0
        for arc in range(offsets[v], offsets[v + 1]):
            flow += weights[arc]
        dangling[v] = flow == 0
        for arc in range(offsets[v], offsets[v + 1]):
            portions[arc] = 0.0 if flow == 0 else weights[arc] / flow


def push_residuals(
    graph: Graph, placed: PlacedGraph, rows: PushRows, settings: RankSettings, options: SolverOptions
) -> PageRankResult:  # fmt: skip
    """Compute the ranks of a graph; see :func:`godwit.pagerank`.

    :param placed: the graph of ``rows``, placed
    :param rows: as of :func:`push_rows`
    """
    n, number, damping = graph.vertex_count, settings.number, settings.damping
    if n == 0:
        names = tuple(device.name for device in placed.context.devices)
        return PageRankResult(
            graph, np.empty(0, number), RunStatistics(names, "asynchronous"),
            iterations=None, converged=True, residual=0.0, location=options.location,
        )  # fmt: skip
    rounding = float(np.finfo(number).eps)
    start = np.full(n, 1 / n) if settings.teleport is None else settings.teleport
    epsilon = math.inf
    if damping > 0:
        tolerance = max(settings.tolerance - rounding, rounding)
        shrinking = damping * (2 / tolerance + 1 / (1 - damping))
        epsilon = _least_sum(graph, rows.dangling, start, damping) / (n * shrinking)
    if len(placed.context.devices) > 1 and placed.context.devices[0].kind == "cpu":
        # A virtual device that runs ahead pushes residuals to which others have not yet added. On
        # rmat:12 each arc was pushed along 255 times on 2 devices and 703 on 3; in supersteps 67 and 74.
        options = replace(options, execution="bulk-synchronous")
    solution = solve(
        PROGRAMS[number.name, settings.weighted],
        placed,
        (1 - damping) * start,
        options,
        parameters={"damping": damping, "epsilon": epsilon},
    )
    values, rank = solution.values, solution.fields
    assert rank is not None
    with (
        solution.statistics.phase("gather"),
        nullcontext() if isinstance(rank, np.ndarray) else rank.device,
    ):
        rank += values
        total = float(rank.sum())
        rank /= total
        residual = 2 * damping * float(values.sum(dtype=np.float64)) / total + rounding
        rank = rank.astype(number, copy=False)
    return PageRankResult(
        graph,
        rank,
        solution.statistics,
        iterations=None,
        converged=residual < settings.tolerance,
        residual=residual,
        location=options.location,
    )


def _least_sum(graph: Graph, dangling: Array, start: Array, damping: float) -> float:
    """Return L: a lower bound of the sum of y."""
    if not graph.directed:  # roundings aside it is no less than anywhere
        return max(1 - damping, 1 - damping * float(start[dangling].sum()))
    return 1 - damping * bool(dangling.any())
