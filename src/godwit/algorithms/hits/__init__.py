"""HITS: hubs and authorities, by power iterations (:mod:`godwit.algorithms.power_iteration`)."""

from __future__ import annotations

from godwit.algorithms.power_iteration import run_iterations
from godwit.algorithms.power_iteration.query import (
    Finish,
    PowerQuery,
    VertexValues,
    checks_weights,
    largest_weight,
    power_of_two,
    unit_start,
)
from godwit.algorithms.power_iteration.result import HitsResult
from godwit.dtypes import as_count, as_flag, as_positive_number
from godwit.graph.csr import Graph
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import query_options
from godwit.worker.query import GraphArgument


@public
def hits(
    graph: GraphArgument,
    *,
    tolerance: float = 1e-12,
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
) -> HitsResult:
    """Compute hubs and authorities (Kleinberg, "Authoritative sources in a hyperlinked environment", 1999).

    >>> import godwit as gw
    >>> found = gw.hits(gw.Graph.from_edges([0, 1, 1], [2, 2, 3]))
    >>> found.hubs.round(3).tolist(), found.authorities.round(3).tolist()
    ([0.382, 0.618, 0.0, 0.0], [0.0, 0.0, 0.618, 0.382])

    The hub score of a vertex is proportional to the sum of the authorities that its out-arcs lead to, its
    authority score to the sum of the hubs that its in-arcs come from, times weights: the leading singular
    vectors of the adjacency matrix, as in NetworkX. They are computed by power iteration; where the two
    largest singular values are equal, the result depends on the start.

    The result has the same bits for any number of threads, and on the same GPUs every time; between these,
    it differs by rounding.

    :param tolerance: converged when an iteration changes a vertex' authority by less on average, where
        authorities have L2 norm 1. (NetworkX's ``tol`` is ARPACK's)
    :param max_iterations: iterations after which to give up. (NetworkX's ``max_iter`` counts restarts of
        ARPACK, of some 20 iterations each)
    :param start: authorities to begin with, as of :func:`eigenvector_centrality`
    :param normalized: scale hubs and authorities to sum 1 each; False: authorities have L2 norm 1, and hubs
        are the sums over these
    :param weighted: as for :func:`eigenvector_centrality`
    :param devices: as for :func:`pagerank` by iterations, but no placed graph with ``duplication="1-hop"``
    :param results: where the arrays live, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of vertices updated so far, n per iteration; on CPUs it
        also has ``.rounds`` and ``.residual``
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.hubs`` (n), ``.authorities`` (n), ``.iterations``, ``.residual``, ``.highest_hubs(count)``,
        ``.highest_authorities(count)``, ``.hubs_to_dict()``, ``.authorities_to_dict()``, ``.statistics``
    :raises ConvergenceError: not converged; has ``.iterations`` and ``.residual``
    :raises InputError: a wrong argument, a weight that is not finite, or several devices of the CPU
    :raises DeviceError: a device does not exist
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    normalized = as_flag(normalized, "normalized")

    def query_of(plain: Graph) -> PowerQuery:
        is_weighted = checks_weights(plain, weighted, "HITS")
        factor = power_of_two(largest_weight(plain)) if is_weighted else 1.0
        return PowerQuery(
            is_weighted,
            unit_start(start, plain),
            as_positive_number(tolerance, "tolerance"),
            as_count(max_iterations, "max_iterations", 1, 2**62),
            factor=factor,
            two_sided=True,
            finish=Finish.POWER_SUM if normalized else Finish.POWER_AS_IS,
            hubs_factor=1 / factor,
        )

    with recorded(trace, "HITS"):
        plain, outcome, statistics = run_iterations(graph, devices, options, "HITS", query_of)
    return HitsResult(plain, outcome, statistics, options.location)
