"""Sums of Brandes' dependencies by weights, on GPUs: SSSP from each source, then a step program.

An arc is *tight* if a shortest path ends with it, by the distances. Paths are counted in waves along tight
arcs: a vertex is in the next wave when all tails of tight arcs to it have their counts. Dependencies are
propagated back wave by wave, the last first, as the successors of a vertex are in later waves.

Additions on GPUs have no fixed order, so the last bits of sums differ from run to run.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from godwit.algorithms.betweenness.cpu import DependencySums
from godwit.algorithms.betweenness.path_counts import LARGEST_COUNT, lost_weight
from godwit.algorithms.sssp import run_sssp
from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.errors import InputError
from godwit.frontier.operators import advance, assign, compute, repeat
from godwit.frontier.operators import filter as filter_vertices
from godwit.frontier.program import StepProgram, StepResult
from godwit.graph.csr import Graph
from godwit.placement import PlacedGraph
from godwit.runtime.gpu_options import OF_FRONTIERS, OF_STEPS, OF_WORKERS, options_for
from godwit.runtime.statistics import RunStatistics
from godwit.worker.options import SolverOptions
from godwit.worker.solve import make_poll


@cache
def _program(dtype: str, far: Any) -> StepProgram:
    """Return the program that computes counts of paths and dependencies from the distances of a source.

    :param far: distance of vertices that are not reached
    """

    def tight(distance: Any, weight: Any, distance_at_target: Any, source: Any, target: Any) -> Any:
        ends = distance + weight == distance_at_target
        return ends and distance < far and source != target

    def dependency(count: Any, count_at_target: Any, dependency_at_target: Any) -> Any:
        return count * ((1.0 + dependency_at_target) / count_at_target)

    return StepProgram(
        name="dependencies",
        fields={
            "distance": dtype,
            "waiting": ("int64", 0),  # tight arcs from tails without counts
            "count": ("float64", 0.0),
            "dependency": ("float64", 0.0),
            "wave": ("int64", -1),
        },
        numbers={"now": ("int64", 0)},
        steps=[
            advance("waiting", lambda: 1, "add", keep=tight, frontier="kept"),
            filter_vertices(lambda waiting: waiting == 0),
            compute("count", lambda: 1.0),
            repeat(
                [
                    compute("wave", lambda now: now),
                    advance("count", lambda count: count, "add", keep=tight, frontier="kept"),
                    advance("waiting", lambda: -1, "add", keep=tight),
                    filter_vertices(lambda waiting: waiting == 0),
                    assign("now", lambda now: now + 1),
                ],
                until=lambda size: size == 0,
            ),
            repeat(
                [
                    assign("now", lambda now: now - 1),
                    filter_vertices(lambda wave, now: wave == now, of="all"),
                    advance("dependency", dependency, "add", at="source", keep=tight),
                ],
                until=lambda now: now <= 0,
            ),
        ],
    )


def sum_weighted_dependencies(
    placed: PlacedGraph,
    sources: Array,
    statistics: RunStatistics,
    options: SolverOptions,
    *,
    endpoints: bool,
) -> DependencySums | None:
    """Sum Brandes' dependencies by weights over sources, on the devices of a placed graph.

    :param sources: int64 (k), valid vertices
    :param statistics: receives work, supersteps, and the times of ``run``, ``compile`` and ``kernel``
    :param endpoints: a path counts for its two ends, too
    :returns: sums of vertices only; None if a number of paths is too large for float64
    :raises InputError: a weight is lost in a sum
    """
    poll = make_poll(options, len(sources))
    begun = visited = examined = 0
    sums = None
    each = replace(
        options,
        timeout_s=None,
        progress=None if poll is None else lambda _: poll(begun),
        location=ResultLocation(),
    )
    totals = np.zeros(placed.graph.vertex_count)
    degrees = placed.graph.out_degree()
    apart = {"compile": 0.0, "kernel": 0.0}
    with statistics.phase("run"):
        for source in sources:
            begun += 1
            paths, steps = _search(placed, int(source), each)
            if poll is not None:
                poll(begun)
            for name in apart:
                apart[name] += sum(
                    part.seconds.get(name, 0.0) for part in (paths, steps.statistics)
                )
            statistics.rounds = statistics.rounds + steps.statistics.rounds
            counts, dependencies = steps.fields["count"], steps.fields["dependency"]
            if not counts.max() <= LARGEST_COUNT:
                break
            reached = np.flatnonzero(counts)
            dependencies[reached] += float(endpoints)
            dependencies[source] = float(endpoints) * (len(reached) - 1)
            totals += dependencies
            visited += len(reached)
            examined += int(degrees[reached].sum())
        else:
            sums = DependencySums(totals, None, visited, examined)
            others = np.zeros(len(placed.context.devices) - 1, np.int64)
            statistics.processed_items = np.append(np.int64(visited), others)
            statistics.arcs_relaxed = np.append(np.int64(examined), others)
    statistics.split_run(apart)
    return sums


def _search(
    placed: PlacedGraph, source: int, options: SolverOptions
) -> tuple[RunStatistics, StepResult]:
    """Search from one source; return the statistics of SSSP, and the result of the step program."""
    gpu = options_for(options.gpu, OF_WORKERS)
    of_paths = replace(options, gpu=replace(gpu, communication=None))
    paths = run_sssp(placed, source, target=None, cutoff=None, options=of_paths)
    distance = paths.distance
    reached = np.flatnonzero(paths.reached)
    steps = _program(distance.dtype.name, paths.unreached).run(
        placed, reached, fields={"distance": distance}, progress=options.progress,
        gpu=options_for(options.gpu, OF_FRONTIERS + OF_STEPS),
    )  # fmt: skip
    if np.count_nonzero(steps.fields["count"]) < len(reached):
        raise _lost(placed.graph, distance, reached)
    return paths.statistics, steps


def _lost(graph: Graph, distance: Array, reached: Array) -> InputError:
    """Return the error about an arc whose weight vanishes in rounding: its ends have the same distance.

    The step program processes a vertex after all its predecessors on shortest paths, so it never comes to
    the vertices behind such an arc.
    """
    tails = np.repeat(np.arange(graph.vertex_count), graph.out_degree())
    heads = graph.targets
    leads_nowhere = (distance[tails] + graph.weights == distance[tails]) & (tails != heads)
    leads_nowhere &= (distance[tails] == distance[heads]) & np.isin(tails, reached)
    arc = int(np.argmax(leads_nowhere))
    return lost_weight(graph, int(tails[arc]), int(heads[arc]))
