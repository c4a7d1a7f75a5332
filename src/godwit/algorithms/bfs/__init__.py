"""Breadth-first search: distances in arcs.

On one device with shared memory it is a driver of its own that may search bottom-up
(:mod:`godwit.algorithms.bfs.cpu`); on GPUs, where waves are wide, the same in supersteps
(:mod:`godwit.algorithms.bfs.cuda`); elsewhere a vertex program on the asynchronous engine, whose priority
is the level.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from godwit.algorithms.bfs.queries import SearchQuery
from godwit.algorithms.paths.result import PathResult, check_query
from godwit.errors import GraphTooLargeError, InputError
from godwit.graph.csr import Graph
from godwit.graph.ids import Sources, Vertex
from godwit.placement import (
    PartitionArgument,
    PlacedGraph,
    default_step_devices,
)
from godwit.runtime.gpu_options import (
    OF_SEARCHES,
    GpuOptions,
    asked_for,
    check_search,
    only_of_workers,
)
from godwit.runtime.registry import DevicesArgument, are_peers
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps.place import place_positions, refuse_positions
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import (
    DEFAULT_WORKER_OPTIONS,
    SolverOptions,
    WorkerOptions,
    query_options,
)
from godwit.worker.program import VertexProgram
from godwit.worker.query import (
    GraphArgument,
    add_placement,
    placed_for_query,
)
from godwit.worker.solve import make_poll, solve


def _one_more(value: Any) -> Any:
    return value + 1


def _level(value: Any) -> Any:
    return value


PROGRAM = VertexProgram(
    name="bfs", message=_one_more, combine="min", dtype="int32", priority=_level
)


def run_bfs(
    placed: PlacedGraph,
    source: Sources,
    *,
    target: int | None = None,
    cutoff: float | None = None,
    options: SolverOptions,
) -> PathResult:
    """Distances in arcs from the nearest source; see :func:`godwit.bfs`."""
    graph = placed.graph
    sources, target, cutoff = check_query(graph, source, target, cutoff)
    limit = None if cutoff is None else math.floor(min(cutoff, np.iinfo(np.int32).max - 1))
    if placed.context.devices[0].shares_memory:
        return _on_shared_memory(placed, sources, target, limit, options)
    given_up: dict[str, float] = {}
    if _suits_supersteps(placed, options):
        result = _in_supersteps(placed, sources, target, limit, options, given_up)
        if result is not None:
            return result
    start = {int(vertex): 0 for vertex in sources}
    solution = solve(PROGRAM, placed, start, options, limit=limit, target=target)
    for phase, seconds in given_up.items():
        solution.statistics.seconds[phase] = solution.statistics.seconds.get(phase, 0.0) + seconds
    return PathResult(
        graph,
        sources,
        solution.values,
        solution.statistics,
        unit_lengths=True,
        location=options.location,
    )


_WIDE_DEGREE = 4
"""Arcs a vertex from which on a graph is expected to have few, wide waves."""


def _suits_supersteps(placed: PlacedGraph, options: SolverOptions) -> bool:
    """Whether to begin on GPUs in supersteps, which turn their direction.

    Where nothing else is asked for, graphs of low degree (roads) are left to the asynchronous solver at
    once, and so are directed ones: looking backward takes their arcs turned round.
    """
    devices = placed.context.devices
    if devices[0].kind != "cuda" or options.execution == "asynchronous":
        return False
    if _asks_for_supersteps(options):
        asked = " and ".join(_of_supersteps(options.gpu)) or "execution='bulk-synchronous'"
        instead = ", or ask for execution='asynchronous' alone"
        placed.check_all_duplicated(f"BFS with {asked} runs", instead)
        check_search(devices, options.gpu)
        if not _takes_any_solver(options):
            steps_only = ", ".join(_of_supersteps(options.gpu))
            if options.execution == "auto" and steps_only:
                instead = f"leave {steps_only} out"
            else:
                instead = "ask for execution='asynchronous'"
            raise InputError(
                "options of the worker, and hops, volume and transport='ring' of "
                f"GpuOptions are of the asynchronous solver: leave them out, or {instead}"
            )
        return True
    graph = placed.graph
    wide = graph.arc_count >= _WIDE_DEGREE * graph.vertex_count
    if graph.directed or not wide or not placed.suits_steps or not _takes_any_solver(options):
        return False
    if placed.duplication == "1-hop":  # supersteps have a place for every vertex
        return False
    # Where the host is between them, what meets less often is faster.
    is_direct = options.gpu.transport == "direct" and are_peers(devices)
    return options.gpu.communication is None and is_direct


def _asks_for_supersteps(options: SolverOptions) -> bool:
    """Whether nothing else will do."""
    if options.execution == "auto":
        return bool(_of_supersteps(options.gpu))
    return options.execution == "bulk-synchronous"


def _of_supersteps(gpu: GpuOptions) -> list[str]:
    """What was asked for that only supersteps have: they alone broadcast, and have frontiers."""
    broadcasts = ["communication='broadcast'"] if gpu.communication == "broadcast" else []
    return broadcasts + asked_for(gpu, OF_SEARCHES)


def _takes_any_solver(options: SolverOptions) -> bool:
    """Whether nothing was asked for that only the asynchronous solver has."""
    return options.worker == DEFAULT_WORKER_OPTIONS and not only_of_workers(options.gpu)


def _in_supersteps(
    placed: PlacedGraph, sources: Any, target: int | None, cutoff: int | None,
    options: SolverOptions, given_up: dict[str, float],
) -> PathResult | None:  # fmt: skip
    """None if there turn out to be many levels, and the asynchronous solver may be taken.

    :param given_up: gets the time that this took then
    """
    statistics = RunStatistics(
        tuple(device.name for device in placed.context.devices), "direction-optimizing"
    )
    graph = placed.graph
    distance = options.location.empty(graph.vertex_count, np.int32)
    may_give_up = not _asks_for_supersteps(options)
    query = SearchQuery(sources, target, cutoff, may_give_up, distance, options.gpu)
    try:
        steps = place_positions(placed)
        with statistics.phase("run"):
            from godwit.algorithms.bfs.cuda import search_levels

            found = search_levels(steps, query, make_poll(options))
    except GraphTooLargeError:
        if not may_give_up:
            raise
        refuse_positions(placed)
        return None
    statistics.split_run(found.seconds)
    if not found.is_complete:
        given_up.update(statistics.seconds)
        refuse_positions(placed)
        return None
    statistics.processed_items = found.visited
    statistics.arcs_relaxed = found.looked
    statistics.levels = found.levels
    statistics.growths, statistics.frontier_bytes = found.growths, found.frontier_bytes
    statistics.rounds = found.supersteps
    return PathResult(
        graph, sources, distance, statistics, unit_lengths=True, location=options.location
    )


def _on_shared_memory(
    placed: PlacedGraph, sources: Any, target: int | None, cutoff: int | None,
    options: SolverOptions,
) -> PathResult:  # fmt: skip
    from godwit.algorithms.bfs.cpu import direction_optimizing_bfs

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
        placed.graph, sources, distance, statistics, unit_lengths=True, location=options.location
    )


def bfs(
    graph: GraphArgument,
    source: Sources,
    *,
    devices: DevicesArgument = None,
    partition: PartitionArgument = None,
    target: Vertex | None = None,
    cutoff: float | None = None,
    execution: str = "auto",
    results: str = "host",
    timeout_s: float | None = None,
    progress: Callable[[int], None] | None = None,
    trace: TraceArgument = None,
    worker: WorkerOptions | None = None,
    gpu: GpuOptions | None = None,
) -> PathResult:
    """Distances in arcs from a source, or from the nearest of several.

    >>> import godwit as gw
    >>> gw.bfs(gw.generators.path(4), 0).distance.tolist()
    [0, 1, 2, 3]

    :param graph: a graph, or one placed on devices by :func:`place`
    :param source: a vertex, or several: by id where the graph has ids of its own (``graph.ids.own``), else
        by numbers from 0 on
    :param devices: None for what is best: the first GPU, or all where the graph is large and wide, or all
        cores. Names: ``"cuda"`` (all GPUs), ``"cuda:1"``, ``"cpu"`` (all cores), ``["cpu:0", "cpu:1"]``
        (virtual devices). A number: so many GPUs, or virtual devices where there is no GPU
    :param partition: how the graph is divided over several devices; see :func:`place`
    :param target: stop when this vertex' distance is final; vertices farther away than it come out
        as not reached
    :param cutoff: vertices farther away come out as not reached
    :param execution: ``"asynchronous"`` or ``"bulk-synchronous"`` (in supersteps, at the end of which all
        devices meet); ``"auto"`` for what is best. The result is the same. On ``"cpu"`` BFS goes by levels
        in any case
    :param results: where the arrays of the result live: ``"host"`` for NumPy arrays, ``"cuda"`` or
        ``"cuda:1"`` for CuPy arrays on that GPU; both hand them on by DLPack without a copy
    :param timeout_s: give up after so many seconds; bringing the graph to its devices, and compiling, come
        before
    :param progress: called now and then with the number of items processed so far, an int; on GPUs, it
        also has ``.threshold`` and ``.idle_share``
    :param trace: a file for the timeline of the run, such as ``"run.json"``, for ui.perfetto.dev or
        chrome://tracing; written also where the run fails. Or a :class:`godwit.Trace`, which takes in
        several runs
    :param worker: options of the asynchronous engine
    :param gpu: options of kernels
    :returns: ``.distance`` (int32; 2147483647 where not reached), ``.predecessor``, ``.to_dict()``,
        ``.statistics``
    :raises InputError: a vertex out of range, or another wrong argument
    :raises FileError: the trace cannot be written; found out before anything is run
    :raises DeviceError: a device is not there, or CuPy or the GPU that ``results`` asks for
    :raises RunTimeoutError: out of time
    """
    options = query_options(
        execution=execution,
        worker=worker,
        gpu=gpu,
        timeout_s=timeout_s,
        progress=progress,
        results=results,
    )
    if devices is None and isinstance(graph, Graph) and options.execution == "bulk-synchronous":
        devices = default_step_devices(graph)
    with recorded(trace, "bfs"), placed_for_query(graph, devices, partition) as placed:
        result = run_bfs(placed, source, target=target, cutoff=cutoff, options=options)
        add_placement(result.statistics, placed, graph)
        return result
