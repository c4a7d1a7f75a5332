"""Breadth-first search on the GPUs of several processes: the search of one process' GPUs (cuda.py)."""

from __future__ import annotations

import math

import numpy as np

from godwit.algorithms.bfs.cuda import bfs_on_gpus
from godwit.algorithms.paths.distributed import DistributedPathResult
from godwit.algorithms.paths.result import check_query
from godwit.distributed.gpu_graph import GpuGraph
from godwit.dtypes import as_flag
from godwit.graph.ids import Sources, Vertex
from godwit.progress import ProgressArgument
from godwit.runtime.gpu_options import GpuOptions, check_search
from godwit.runtime.statistics import RunStatistics
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.solve import make_poll


def bfs(
    graph: GpuGraph,
    source: Sources,
    *,
    target: Vertex | None = None,
    cutoff: float | None = None,
    predecessors: bool = False,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    gpu: GpuOptions | None = None,
) -> DistributedPathResult:
    """Return distances in arcs of a range of vertices; see :func:`godwit.bfs`.

    :param predecessors: find the vertex before each one as well
    """
    options = query_options(timeout_s=timeout_s, progress=progress, gpu=gpu)
    with graph.running("bfs", source, target, cutoff, predecessors, options.gpu):
        predecessors = as_flag(predecessors, "predecessors")
        return run_bfs(graph, source, target, cutoff, options, predecessors=predecessors)


def run_bfs(
    graph: GpuGraph,
    source: Sources,
    target: Vertex | None,
    cutoff: float | None,
    options: SolverOptions,
    *,
    predecessors: bool,
) -> DistributedPathResult:
    """Search within a block of :meth:`GpuGraph.running`."""
    steps = graph.steps
    check_search(steps.devices, options.gpu)
    sources, goal, cutoff = check_query(graph.graph, source, target, cutoff)
    limit = None if cutoff is None else math.floor(min(cutoff, np.iinfo(np.int32).max - 1))
    statistics = RunStatistics((graph.device,), "direction-optimizing")
    with statistics.phase("run"):
        found = bfs_on_gpus(
            steps, sources, goal, limit, may_give_up=False, location=options.location,
            statistics=statistics, gpu=options.gpu, poll=make_poll(options),
        )  # fmt: skip
    statistics.split_run(found.seconds)
    graph.processes.report(statistics)
    result = DistributedPathResult(graph, sources.tolist(), found.values, statistics)
    if predecessors:
        result.find_predecessors(graph, unit_lengths=True, poll=None)
    return result
