"""Breadth-first search: distances in arcs.

On several devices it is a vertex program of the asynchronous solver, whose priority is the level; on
one device with shared memory a driver of its own that may search bottom-up
(:mod:`godwit.algorithms.direction_optimizing`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from godwit.algorithms.paths import PathResult, Sources, check_query
from godwit.solvers.asynchronous import SolverOptions, make_poll, solve
from godwit.solvers.placement import PlacedGraph
from godwit.solvers.program import VertexProgram
from godwit.solvers.statistics import RunStatistics


def _one_more(value: Any) -> Any:
    return value + 1


def _level(value: Any) -> Any:
    return value


PROGRAM = VertexProgram(
    name="bfs", message=_one_more, combine="min", dtype="int32", priority=_level
)


def bfs(
    placed: PlacedGraph,
    source: Sources,
    *,
    target: int | None = None,
    cutoff: float | None = None,
    options: SolverOptions,
) -> PathResult:
    """Distances in arcs from the nearest source; see :func:`godwit.api.bfs`."""
    graph = placed.graph
    sources, target, cutoff = check_query(graph, source, target, cutoff)
    limit = None if cutoff is None else math.floor(min(cutoff, np.iinfo(np.int32).max - 1))
    if placed.context.devices[0].shares_memory:
        return _on_shared_memory(placed, sources, target, limit, options)
    start = {int(vertex): 0 for vertex in sources}
    solution = solve(PROGRAM, placed, start, options, limit=limit, target=target)
    return PathResult(
        graph,
        sources,
        solution.values,
        solution.statistics,
        unit_lengths=True,
        home=options.home,
    )


def _on_shared_memory(
    placed: PlacedGraph, sources: Any, target: int | None, cutoff: int | None,
    options: SolverOptions,
) -> PathResult:  # fmt: skip
    from godwit.algorithms.direction_optimizing import direction_optimizing_bfs

    statistics = RunStatistics(
        tuple(device.name for device in placed.context.devices), "direction-optimizing"
    )
    report = make_poll(options)
    with statistics.phase("run"):
        distance, counts = direction_optimizing_bfs(
            placed.graph,
            sources,
            target=target,
            cutoff=cutoff,
            threads=placed.context.devices[0].threads,
            poll=None if report is None else lambda: report(0),
        )
    statistics.processed_items = np.array([counts.vertices_visited], np.int64)
    statistics.arcs_relaxed = np.array([counts.arcs_examined], np.int64)
    statistics.levels = counts.levels
    return PathResult(
        placed.graph, sources, distance, statistics, unit_lengths=True, home=options.home
    )
