"""Power iterations, which eigenvector centrality, Katz centrality and HITS share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from godwit.algorithms.power_iteration.cpu import iterate_on_cores
from godwit.algorithms.power_iteration.query import PowerOutcome, PowerQuery
from godwit.errors import ConvergenceError
from godwit.graph.csr import Graph
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.worker.options import SolverOptions
from godwit.worker.query import GraphArgument, on_cores
from godwit.worker.solve import make_poll


def run_iterations(
    graph: GraphArgument, devices: DevicesArgument, options: SolverOptions, name: str,
    query_of: Callable[[Graph], PowerQuery],
) -> tuple[Graph, PowerOutcome, RunStatistics]:  # fmt: skip
    """Run power iterations on devices; return the graph, the outcome, and statistics.

    :param name: name of the algorithm in messages
    :param query_of: returns the checked query of the graph
    :raises ConvergenceError: the iterations have not converged
    """
    plain, device = on_cores(graph, devices, name)
    query = query_of(plain)
    n = plain.vertex_count
    statistics = RunStatistics((device.name,), "power iteration")
    if n == 0:
        hubs = np.empty(0) if query.two_sided else None
        return plain, PowerOutcome(np.empty(0), hubs, 0, 0.0), statistics
    with statistics.phase("run"):
        outcome = iterate_on_cores(plain, query, device.threads, make_poll(options))
    passes = (outcome.iterations + 1) * (1 + query.two_sided)
    statistics.rounds = np.array([passes], np.int64)
    statistics.processed_items = statistics.rounds * n
    statistics.arcs_relaxed = statistics.rounds * plain.arc_count
    if not outcome.residual < query.tolerance:
        raise ConvergenceError(name, outcome.iterations, outcome.residual, query.tolerance)
    return plain, outcome, statistics
