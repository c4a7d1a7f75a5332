"""Greedy passes over vertices in an order, which independent sets and colourings share.

Each vertex is decided once, by the decisions of its neighbours that come before it in the order, so the
result is that of the serial loop, on all devices. Threads, or warps, take vertices in this order, and wait
for a neighbour that another has taken and not yet decided. That cannot last: of the vertices that are
taken, the first in the order waits for none. (Jones and Plassmann, "A parallel graph coloring heuristic",
1993, with the waiting of Liu et al., "A synchronization-free algorithm for parallel sparse triangular
solves", 2016.)

Orders go by degree, and among equal degrees by a hash of the vertex and a seed (:mod:`.order`), which makes
chains of vertices that wait for each other short: Blelloch, Fineman and Shun, "Greedy sequential maximal
independent set and matching are parallel on average" (2012).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.greedy.cpu import decide_on_cores
from godwit.algorithms.greedy.order import Kind, vertex_order
from godwit.algorithms.greedy.program import decide_by_steps
from godwit.graph.csr import Graph
from godwit.placement import PlacedGraph
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps.first_gpu import run_on_first_gpu_with_room
from godwit.worker.options import SolverOptions
from godwit.worker.query import DeviceQuery, GraphArgument
from godwit.worker.solve import make_poll


def run_greedy(
    graph: GraphArgument, kind: Kind, seed: int, devices: DevicesArgument, options: SolverOptions, name: str
) -> tuple[Graph, Any, RunStatistics]:  # fmt: skip
    """Return the graph, the decision of each vertex, int32 (n), and statistics.

    :param name: name of the function in messages
    """
    with DeviceQuery(graph, devices, name, "greedy in order", options) as query:
        plain, statistics = query.graph, query.statistics
        values: Any = np.empty(0, np.int32)
        if query.placed is not None:
            query.placed.check_all_duplicated(f"{name} runs")
            if plain.vertex_count:
                values = _on_gpus(query, query.placed, kind, seed, options)
        elif plain.vertex_count:
            poll = make_poll(options)
            with statistics.phase("order"):
                order = vertex_order(plain, kind, seed)
            with statistics.phase("run"):
                values = decide_on_cores(plain, kind, order, query.device.threads, poll)
            statistics.processed_items[0] = plain.vertex_count
        return plain, values, query.statistics


def _on_gpus(
    query: DeviceQuery, placed: PlacedGraph, kind: Kind, seed: int, options: SolverOptions
) -> Any:
    """Decide on the first GPU, or, if the graph does not fit there, on several by a step program."""
    from godwit.algorithms.greedy.cuda import decide_on_gpu

    poll = make_poll(options)
    outcome = run_on_first_gpu_with_room(
        placed,
        query.statistics,
        lambda whole: decide_on_gpu(whole, kind, seed, options.gpu, options.location, poll),
    )
    if outcome is not None:
        return outcome.values
    order = vertex_order(placed.graph, kind, seed)
    values, query.statistics = decide_by_steps(placed, kind, order, options)
    return values
