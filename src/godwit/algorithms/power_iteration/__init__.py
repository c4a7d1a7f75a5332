"""Power iterations, which eigenvector centrality, Katz centrality and HITS share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from godwit.algorithms.power_iteration.cpu import iterate_on_cores
from godwit.algorithms.power_iteration.query import PowerOutcome, PowerQuery
from godwit.errors import ConvergenceError
from godwit.graph.csr import Graph
from godwit.placement import PlacedGraph
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps import place_positions
from godwit.worker.options import SolverOptions
from godwit.worker.query import DeviceQuery, GraphArgument, devices_for_one_query
from godwit.worker.solve import make_poll

_CORE_NS = 24.0
"""Nanoseconds that a core takes for each arc in all iterations: as of PageRank."""


def run_iterations(
    graph: GraphArgument, devices: DevicesArgument, options: SolverOptions, name: str,
    query_of: Callable[[Graph], PowerQuery],
) -> tuple[Graph, PowerOutcome, RunStatistics]:  # fmt: skip
    """Run power iterations on devices; return the graph, the outcome, and statistics.

    :param name: name of the algorithm in messages
    :param query_of: returns the checked query of the graph
    :raises ConvergenceError: the iterations have not converged
    """
    devices = devices_for_one_query(graph, devices, options, _CORE_NS)
    with DeviceQuery(graph, devices, name, "power iteration", options) as run:
        plain, placed, statistics = run.graph, run.placed, run.statistics
        if placed is not None:
            placed.check_all_duplicated(f"{name} runs")
        query = query_of(plain)
        n = plain.vertex_count
        if n == 0:
            hubs = np.empty(0) if query.two_sided else None
            return plain, PowerOutcome(np.empty(0), hubs, 0, 0.0), statistics
        if placed is None:
            with statistics.phase("run"):
                outcome = iterate_on_cores(plain, query, run.device.threads, make_poll(options))
            # The last change is known after a pass more.
            passes = (outcome.iterations + 1) * (1 + query.two_sided)
            statistics.rounds[0] = passes
            statistics.processed_items[0] = outcome.iterations * n
            statistics.arcs_relaxed[0] = passes * plain.arc_count
        else:
            outcome = _iterate_on_gpus(placed, query, options, statistics)
    if not outcome.residual < query.tolerance:
        raise ConvergenceError(name, outcome.iterations, outcome.residual, query.tolerance)
    return plain, outcome, statistics


def _iterate_on_gpus(
    placed: PlacedGraph, query: PowerQuery, options: SolverOptions, statistics: RunStatistics
) -> PowerOutcome:
    """Run power iterations on the GPUs of a placed graph, and fill in statistics."""
    from godwit.algorithms.power_iteration.cuda import iterate_on_gpus

    steps = place_positions(placed)
    with statistics.phase("run"):
        outcome, work = iterate_on_gpus(
            steps, query, options.gpu, options.location, make_poll(options)
        )
    statistics.split_run(work.seconds)
    statistics.rounds = work.supersteps
    statistics.processed_items = outcome.iterations * work.vertices
    statistics.arcs_relaxed = (outcome.iterations + 1) * work.arcs
    return outcome
