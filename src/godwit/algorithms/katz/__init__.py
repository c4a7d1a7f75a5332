"""Katz centrality, by power iterations (:mod:`godwit.algorithms.power_iteration`)."""

from __future__ import annotations

from numbers import Real

import numpy as np

from godwit.algorithms.power_iteration import run_iterations
from godwit.algorithms.power_iteration.query import (
    Finish,
    PowerQuery,
    VertexValues,
    as_finite,
    checks_weights,
    power_of_two,
    vertex_values,
)
from godwit.algorithms.power_iteration.result import CentralityResult
from godwit.dtypes import Array, as_count, as_flag, as_positive_number
from godwit.graph.csr import Graph
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import query_options
from godwit.worker.query import GraphArgument


@public
def katz_centrality(
    graph: GraphArgument,
    *,
    alpha: float = 0.1,
    beta: float | VertexValues = 1.0,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
    start: VertexValues = None,
    normalized: bool = True,
    weighted: bool | None = None,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> CentralityResult:
    """Compute the Katz centrality of vertices, as NetworkX defines it (Katz, 1953).

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 1], [1, 2])
    >>> gw.katz_centrality(graph, alpha=0.5, normalized=False).centrality.tolist()
    [1.0, 1.5, 1.75]

    A vertex' centrality is ``beta`` and ``alpha`` times the sum of the centralities of the sources of its
    in-arcs, times weights: the number of walks that end at it, of which each arc more counts alpha times as
    much. The sum exists if alpha is below 1 / λ, λ being the largest eigenvalue of the adjacency matrix: of
    a graph without weights, λ is at most the largest in-degree.

    The result has the same bits for any number of threads, and on the same GPUs every time; between these,
    it differs by rounding.

    :param alpha: attenuation per arc
    :param beta: what every vertex has besides: a number, an array of shape (n), or a mapping of some
        vertices (by id) to numbers, the others having 0
    :param tolerance: converged when an iteration changes a vertex' value by less on average (NetworkX's
        ``tol``)
    :param max_iterations: iterations after which to give up (NetworkX's ``max_iter``)
    :param start: values to begin with, as of :func:`eigenvector_centrality`; None: 0
    :param normalized: scale the result to L2 norm 1
    :param weighted: as for :func:`eigenvector_centrality`
    :param devices: as for :func:`pagerank` by iterations, but no placed graph with ``duplication="1-hop"``
    :param results: where ``.centrality`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of vertices updated so far, n per iteration; on CPUs it
        also has ``.rounds`` and ``.residual``
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.centrality`` (n), ``.iterations``, ``.residual`` (before values are normalized),
        ``.highest(count)``, ``.to_dict()``, ``.statistics``
    :raises ConvergenceError: not converged, as where alpha is too large; has ``.iterations``, ``.residual``
    :raises InputError: a wrong argument, a weight that is not finite, or several devices of the CPU
    :raises DeviceError: a device does not exist
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    normalized = as_flag(normalized, "normalized")

    def query_of(plain: Graph) -> PowerQuery:
        first = np.zeros(1) if start is None else vertex_values(start, plain, "start")
        constant = katz_constant(beta, plain)
        # Iterations are linear: sums of squares do not overflow where values begin near 1.
        unit = power_of_two(max(float(abs(of).max(initial=0.0)) for of in (first, constant)))
        return PowerQuery(
            checks_weights(plain, weighted, "Katz centrality"),
            first * unit,
            as_positive_number(tolerance, "tolerance"),
            as_count(max_iterations, "max_iterations", 1, 2**62),
            factor=as_finite(alpha, "alpha"),
            constant=constant * unit,
            normalizes=False,
            unit=unit,
            finish=Finish.POWER_UNIT if normalized else Finish.POWER_AS_IS,
        )

    with recorded(trace, "Katz centrality"):
        plain, outcome, statistics = run_iterations(
            graph, devices, options, "Katz centrality", query_of
        )
    return CentralityResult(plain, outcome, statistics, options.location)


def katz_constant(beta: float | VertexValues, graph: Graph) -> Array:
    """Return the constant of each vertex, (n), or (1) where it is the same for all."""
    if isinstance(beta, Real):
        return np.full(1, as_finite(beta, "beta"))
    return vertex_values(beta, graph, "beta")
