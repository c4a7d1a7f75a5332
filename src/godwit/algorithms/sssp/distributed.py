"""Single-source shortest paths on several processes: the vertex program of one process.

Distances only decrease, to the least sum over all paths, so the schedule does not change the result: it
is that of one process, bit by bit, also in floating point, where a path's weights are added from the
source on.
"""

from __future__ import annotations

import math

from godwit.algorithms.bfs.distributed import run_bfs
from godwit.algorithms.paths.distributed import DistributedPathResult
from godwit.algorithms.paths.result import check_cutoff
from godwit.algorithms.paths.weights import BFS, SHORTEST_PATHS_NEED, uses_weights
from godwit.algorithms.sssp import FARTHEST, PROGRAMS, SATURATING
from godwit.distributed.graph import DistributedGraph
from godwit.distributed.vertex_programs import solve
from godwit.dtypes import Array, as_flag
from godwit.errors import InputError, ValueOverflowError
from godwit.graph.ids import Sources, Vertex
from godwit.progress import ProgressArgument
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.solve import make_poll


def sssp(
    graph: DistributedGraph,
    source: Sources,
    *,
    target: Vertex | None = None,
    cutoff: float | None = None,
    weighted: bool | None = None,
    predecessors: bool = False,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
) -> DistributedPathResult:
    """Return lengths of shortest paths to the own vertices; see :func:`godwit.sssp`.

    :param predecessors: find the vertex before each one as well
    """
    same = (source, target, cutoff, weighted, predecessors)
    with graph.processes.running("sssp", graph.vertex_count, *same):
        options = query_options(timeout_s=timeout_s, progress=progress)
        predecessors = as_flag(predecessors, "predecessors")
        if not uses_weights(graph, weighted):
            counted = run_bfs(graph, source, target, cutoff, options, predecessors=predecessors)
            return counted if weighted is False else counted.with_wide_distances()
        return _run(graph, source, target, cutoff, options, predecessors=predecessors)


def _run(
    graph: DistributedGraph,
    source: Sources,
    target: Vertex | None,
    cutoff: float | None,
    options: SolverOptions,
    *,
    predecessors: bool,
) -> DistributedPathResult:
    limit = check_cutoff(cutoff)
    own, sources = graph.own_sources(source)
    graph.cached("sssp weights", lambda: _check_weights(graph.rows.weights))
    is_float = graph.weight_dtype is not None and graph.weight_dtype.kind == "f"
    if limit is not None and not is_float:
        limit = None if limit >= FARTHEST else math.floor(limit)
    program = PROGRAMS["float64"] if is_float else SATURATING
    start = dict.fromkeys(own.tolist(), 0)
    position = None if target is None else int(graph.positions([target], "target")[0])
    poll = make_poll(options)
    solution = solve(program, graph, start, options, limit=limit, target=position, poll=poll)
    distance = solution.values
    if program is SATURATING:
        is_farthest = int((distance == FARTHEST).any())
        if limit is None and graph.processes.meet(is_farthest).any():
            raise ValueOverflowError(
                "a distance reaches 2^63 - 2 or more, beyond the range of int64 distances; give the "
                "weights as float64, or a cutoff"
            )
    result = DistributedPathResult(graph, sources, distance, solution.statistics)
    if predecessors:
        result.find_predecessors(graph, unit_lengths=False, poll=poll)
    return result


def _check_weights(weights: Array | None) -> None:
    smallest = 0 if weights is None or not len(weights) else weights.min()
    if smallest < 0 or math.isnan(smallest):
        raise InputError(f"{SHORTEST_PATHS_NEED}, got {smallest}: {BFS}")
