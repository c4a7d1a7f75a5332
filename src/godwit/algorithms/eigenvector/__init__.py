"""Eigenvector centrality, by power iterations (:mod:`godwit.algorithms.power_iteration`)."""

from __future__ import annotations

from godwit.algorithms.power_iteration import run_iterations
from godwit.algorithms.power_iteration.query import (
    PowerQuery,
    VertexValues,
    checks_weights,
    largest_weight,
    power_of_two,
    unit_start,
)
from godwit.algorithms.power_iteration.result import CentralityResult
from godwit.dtypes import as_count, as_positive_number
from godwit.graph.csr import Graph
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import query_options
from godwit.worker.query import GraphArgument


@public
def eigenvector_centrality(
    graph: GraphArgument,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 100,
    start: VertexValues = None,
    weighted: bool | None = None,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> CentralityResult:
    """Compute the eigenvector centrality of vertices, as NetworkX defines it (Bonacich, 1972).

    >>> import godwit as gw
    >>> gw.eigenvector_centrality(gw.generators.complete(4)).centrality.round(6).tolist()
    [0.5, 0.5, 0.5, 0.5]

    A vertex' centrality is proportional to the sum of the centralities of the sources of its in-arcs, times
    weights. It is computed by power iteration, ``x <- x + M x`` scaled to L2 norm 1, where M x is that sum:
    adding x keeps the iteration from alternating on bipartite graphs. If the graph is connected (strongly
    connected, if directed) the result is its only eigenvector without negative values; otherwise it depends
    on the start.

    The result has the same bits for any number of threads, and on the same GPUs every time; between these,
    it differs by rounding.

    :param tolerance: converged when an iteration changes a vertex' value by less on average (NetworkX's
        ``tol``)
    :param max_iterations: iterations after which to give up (NetworkX's ``max_iter``)
    :param start: values to begin with, not all 0: an array of shape (n), or a mapping of some vertices (by
        id) to numbers, the others having 0. None: the same everywhere
    :param weighted: None: arcs count by their weights where the graph has some; True: the same, and a graph
        without is refused; False: every arc counts 1
    :param devices: as for :func:`pagerank` by iterations, but no placed graph with ``duplication="1-hop"``
    :param results: where ``.centrality`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of vertices updated so far, n per iteration; on CPUs it
        also has ``.rounds`` and ``.residual``
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.centrality`` (n), of L2 norm 1, ``.iterations``, ``.residual``, ``.highest(count)``,
        ``.to_dict()``, ``.statistics``
    :raises ConvergenceError: not converged; has ``.iterations`` and ``.residual``
    :raises InputError: a wrong argument, a weight that is not finite, or several devices of the CPU
    :raises DeviceError: a device does not exist
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)

    def query_of(plain: Graph) -> PowerQuery:
        is_weighted = checks_weights(plain, weighted, "eigenvector centrality")
        # The same factor before both terms changes nothing, except that large weights do not overflow.
        factor = power_of_two(max(1.0, largest_weight(plain))) if is_weighted else 1.0
        return PowerQuery(
            is_weighted,
            unit_start(start, plain),
            as_positive_number(tolerance, "tolerance"),
            as_count(max_iterations, "max_iterations", 1, 2**62),
            factor=factor,
            shift=factor,
        )

    with recorded(trace, "eigenvector centrality"):
        plain, outcome, statistics = run_iterations(
            graph, devices, options, "eigenvector centrality", query_of
        )
    return CentralityResult(plain, outcome, statistics, options.location)
