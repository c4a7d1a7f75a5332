"""Shortest paths on the GPUs of several processes: the search in supersteps of one process' GPUs (cuda.py).

One process leaves graphs of narrow frontiers, such as roads, to the asynchronous engine, which does not run
on several: here they are searched in supersteps as well, however many these are.
"""

from __future__ import annotations

from godwit.algorithms.bfs.distributed_gpus import run_bfs
from godwit.algorithms.paths.distributed import DistributedPathResult
from godwit.algorithms.paths.result import check_query
from godwit.algorithms.paths.weights import check_weights, uses_weights
from godwit.algorithms.sssp import SATURATING, DistanceDtypes
from godwit.algorithms.sssp.cuda import SsspArrays, search_on_gpus
from godwit.distributed.gpu_graph import GpuGraph
from godwit.dtypes import as_flag
from godwit.errors import ValueOverflowError
from godwit.graph.ids import Sources, Vertex
from godwit.progress import ProgressArgument
from godwit.runtime.gpu_options import OF_STEPS, GpuOptions, check_options, refuse
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps.run import Searched
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.program import VertexProgram
from godwit.worker.solve import make_poll


def sssp(
    graph: GpuGraph,
    source: Sources,
    *,
    target: Vertex | None = None,
    cutoff: float | None = None,
    weighted: bool | None = None,
    predecessors: bool = False,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    gpu: GpuOptions | None = None,
) -> DistributedPathResult:
    """Return lengths of shortest paths to a range of vertices; see :func:`godwit.sssp`.

    :param predecessors: find the vertex before each one as well
    """
    options = query_options(timeout_s=timeout_s, progress=progress, gpu=gpu)
    same = source, target, cutoff, weighted, predecessors, options.gpu
    with graph.running("sssp", *same):
        predecessors = as_flag(predecessors, "predecessors")
        if not uses_weights(graph.graph, weighted):
            counted = run_bfs(graph, source, target, cutoff, options, predecessors=predecessors)
            return counted if weighted is False else counted.with_wide_distances()
        return _run(graph, source, target, cutoff, options, predecessors=predecessors)


def _run(
    graph: GpuGraph,
    source: Sources,
    target: Vertex | None,
    cutoff: float | None,
    options: SolverOptions,
    *,
    predecessors: bool,
) -> DistributedPathResult:
    steps, plain = graph.steps, graph.graph
    check_options(steps.devices, options.gpu, "SSSP in supersteps", OF_STEPS)
    refuse(
        steps.devices, options.gpu, "broadcast",
        "SSSP sends the distances that an arc lowers to the GPU that owns its vertex; leave communication "
        "out",
    )  # fmt: skip
    sources, goal, cutoff = check_query(plain, source, target, cutoff)
    largest = check_weights(plain)
    arrays = steps.kept(SsspArrays)  # all processes have the same queries behind them
    dtypes = DistanceDtypes.of(plain, cutoff, has_overflowed=arrays.has_overflowed)
    statistics = RunStatistics((graph.device,), "direction-optimizing")

    def search(program: VertexProgram) -> Searched:
        return search_on_gpus(
            steps, sources, program.dtype, dtypes.cutoff, goal, may_give_up=False,
            location=options.location, statistics=statistics, gpu=options.gpu, poll=make_poll(options),
        )  # fmt: skip

    try:
        with statistics.phase("run"):
            found = dtypes.run(search, arrays.note_overflow)
    except ValueOverflowError as error:
        if dtypes.wide is not SATURATING:
            raise
        raise ValueOverflowError(
            f"with weights up to {largest}, a sum of weights reaches 2^63 - 2 or more, beyond the range of "
            "int64 distances; give the weights as float64, or a cutoff"
        ) from error
    statistics.split_run(found.seconds)
    graph.processes.report(statistics)
    result = DistributedPathResult(graph, sources.tolist(), found.values, statistics)
    if predecessors:
        result.find_predecessors(graph, unit_lengths=False, poll=None)
    return result
