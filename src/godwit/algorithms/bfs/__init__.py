"""Breadth-first search: distances in arcs.

One device with shared memory runs a direction-optimizing search (:mod:`godwit.algorithms.bfs.cpu`). GPUs
run one in supersteps if frontiers are wide (:mod:`godwit.algorithms.bfs.cuda`). Everything else is a vertex
program on the asynchronous engine, with the level as its priority.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.algorithms.paths.result import PathResult, check_query
from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError, InputError
from godwit.graph.csr import Graph
from godwit.graph.facts import has_hubs, in_arcs, is_known_symmetric, is_symmetric
from godwit.graph.ids import Sources, Vertex
from godwit.placement import (
    PartitionArgument,
    PlacedGraph,
    default_step_devices,
)
from godwit.progress import ProgressArgument
from godwit.public import or_distributed
from godwit.runtime.gpu_options import (
    OF_SEARCHES,
    GpuOptions,
    asked_for,
    check_search,
    only_of_workers,
)
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps import likely_position_dtype, place_positions, refuse_positions
from godwit.trace import TraceArgument
from godwit.worker.options import (
    DEFAULT_WORKER_OPTIONS,
    SolverOptions,
    WorkerOptions,
    query_options,
)
from godwit.worker.program import VertexProgram, in_cuda
from godwit.worker.query import (
    GraphArgument,
    Note,
    SearchTime,
    answered,
    devices_for_one_query,
    note_of,
    on_gpus_unless_slow,
    repeated_query,
    searched_on_gpus,
    suits_all_gpus,
)
from godwit.worker.solve import make_poll, search_again, solve

if TYPE_CHECKING:
    from godwit.supersteps.placement import StepPlacement
    from godwit.supersteps.run import Searched


@in_cuda("wide(value) + 1")
def _one_more(value: Any) -> Any:
    return value + 1


@in_cuda("value")
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
    note: Note | None = None,
) -> PathResult:
    """Return distances in arcs from the nearest source; see :func:`godwit.bfs`.

    :param note: as of :func:`godwit.worker.query.note_of`
    """
    graph = placed.graph
    sources, target, cutoff = check_query(graph, source, target, cutoff)
    limit = None if cutoff is None else math.floor(min(cutoff, np.iinfo(np.int32).max - 1))
    if placed.context.devices[0].shares_memory:
        return _on_shared_memory(placed, sources, target, limit, options)
    given_up: dict[str, float] = {}
    if _suits_supersteps(placed, options):
        result = _in_supersteps(placed, sources, target, limit, options, given_up, note)
        if result is not None:
            return result
    start = dict.fromkeys(sources.tolist(), 0)
    searched = searched_on_gpus(placed, options)
    solution = solve(PROGRAM, searched, start, options, limit=limit, target=target)
    if not given_up:
        note_search(note, PROGRAM, placed, searched, options, limit, target, unit_lengths=True)
    for phase, seconds in given_up.items():
        solution.statistics.seconds[phase] = solution.statistics.seconds.get(phase, 0.0) + seconds
    return _result(searched, sources, solution.values, solution.statistics, options)


def note_search(
    note: Note | None, program: VertexProgram, placed: PlacedGraph, searched: PlacedGraph,
    options: SolverOptions, limit: Any, target: int | None, *, unit_lengths: bool,
    result_dtype: Any = None,
) -> None:  # fmt: skip
    """Note how the asynchronous engine answers the next search with the same arguments, where it can.

    :param note: as of :func:`run_bfs`
    :param searched: ``placed``, or the graph on the first GPU, if that one alone searches
    """
    search = None
    if note is not None:
        search = search_again(program, searched, options, limit, target, result_dtype)
    if note is None or search is None:
        return
    alone = None if searched is placed else searched

    def answer(placed: PlacedGraph, sources: Array) -> PathResult:
        searched = placed if alone is None else alone
        solution = search(searched, sources)
        return PathResult(
            searched.graph, sources, solution.values, solution.statistics,
            unit_lengths=unit_lengths, location=options.location, placed=searched,
        )  # fmt: skip

    note(answer)


_WIDE_DEGREE = 4
"""Arcs per vertex from which a graph is expected to have few, wide frontiers."""


_WIDE_NS, _THIN_NS = 0.5, 7.0
"""Nanoseconds of a search for each arc on the CPU, whatever the number of cores (benchmarks/zoo.py): most
arcs of a wide graph are not looked at, and few vertices of a thin one are searched at a time."""

_TIME_ON_CORES = SearchTime(vertex_ns=6.0, arc_ns=1.5)  # benchmarks/zoo.py

_SEARCHES_PER_REVERSE = 8
"""Searches of a placed graph on CPUs after which its reverse is made: it takes as long as these lose."""


def _is_wide(graph: Graph) -> bool:
    wide: bool = graph.cached(
        "is wide", lambda: graph.arc_count >= _WIDE_DEGREE * graph.vertex_count
    )
    return wide


_LEVEL_ARCS = 3_000_000
"""Arcs that are looked at in a level, on average, from which on several GPUs are faster than the first
alone: with them a level takes some 15 µs longer (benchmarks/choices.py)."""
_ALL_ARCS = 1 << 30
"""Arcs of a graph that all GPUs search at once: to bring it to the first one takes long."""


def _takes_all(placed: PlacedGraph, options: SolverOptions) -> bool:
    """Return True if all GPUs of a graph search together; else the first one does so alone."""
    count = len(placed.context.devices)
    if count == 1 or options.asks_for_kernels:
        return True
    return suits_all_gpus(placed, 0 if "bfs" in placed.faster_on_all else _ALL_ARCS // count)


def _suits_supersteps(placed: PlacedGraph, options: SolverOptions) -> bool:
    """Return True if GPUs begin with the direction-optimizing search in supersteps.

    By default graphs of low degree without hubs, such as roads, run asynchronously, and so do graphs of
    which a search in supersteps has looked at more arcs than there are. So do directed ones unless they are
    kept on the GPUs: a pull needs their reverse, which takes longer to make than a search.
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
    if not placed.suits_steps or "bfs" in placed.given_up:
        return False
    if not _is_wide(graph) and not (placed.is_kept and has_hubs(graph)):
        return False
    if not (placed.is_kept or is_known_symmetric(graph)):
        return False
    if placed.duplication == "1-hop":  # in supersteps each GPU has room for all vertices
        return False
    if not options.asks_for_kernels:  # without peer access the first GPU searches alone
        return placed.has_peers or placed.asked_partition is None
    if not _takes_any_solver(options):
        return False
    # Without peer access the solver with fewer meetings is faster.
    is_direct = options.gpu.transport == "direct" and placed.has_peers
    return options.gpu.communication is None and is_direct


def _asks_for_supersteps(options: SolverOptions) -> bool:
    """Return True if only supersteps have what was asked for."""
    if not options.asks_for_kernels:
        return False
    if options.execution == "auto":
        return bool(_of_supersteps(options.gpu))
    return options.execution == "bulk-synchronous"


def _of_supersteps(gpu: GpuOptions) -> list[str]:
    """Return the options asked for that only supersteps have: they broadcast, and have frontiers."""
    broadcasts = ["communication='broadcast'"] if gpu.communication == "broadcast" else []
    return broadcasts + asked_for(gpu, OF_SEARCHES)


def _takes_any_solver(options: SolverOptions) -> bool:
    """Return True if no option asked for is of the asynchronous solver only."""
    return options.worker == DEFAULT_WORKER_OPTIONS and not only_of_workers(options.gpu)


@lru_cache(maxsize=1)
def _cuda() -> Any:
    """Return the module, which an import statement would look for in every query."""
    from godwit.algorithms.bfs import cuda

    return cuda


def _kernel_alone(graph: Graph, options: SolverOptions) -> str:
    """Return the source of the kernel that searches a graph that was placed on one GPU for this search."""
    takes_steps = options.execution == "auto" and _is_wide(graph) and is_known_symmetric(graph)
    if _asks_for_supersteps(options) or (takes_steps and not options.asks_for_kernels):
        source: str = _cuda().kernel_source(likely_position_dtype(graph, 1), options.gpu, 1)
        return source
    from godwit.worker.cuda.engine import kernel_alone

    return kernel_alone(PROGRAM.operators, graph, options.gpu)


def _in_supersteps(
    placed: PlacedGraph, sources: Array, target: int | None, cutoff: int | None,
    options: SolverOptions, given_up: dict[str, float],
    note: Note | None,
) -> PathResult | None:  # fmt: skip
    """Search in supersteps; return None if that does not suit the graph and another solver may.

    :param given_up: gets the seconds by phase of a search that gave up
    :param note: as of :func:`run_bfs`
    """
    may_give_up = not _asks_for_supersteps(options)
    takes_all, has_peers = _takes_all(placed, options), placed.has_peers
    names = placed.context.device_names
    chosen = names if takes_all else names[:1]
    bfs_on_gpus = _cuda().bfs_on_gpus

    def search_on(
        positions: StepPlacement, sources: Array, statistics: RunStatistics
    ) -> Searched | None:
        """Search on the first GPU if it has room, or on all; None if another solver is faster."""

        def search(placement: StepPlacement) -> Searched:
            found: Searched = bfs_on_gpus(
                placement, sources, target, cutoff, may_give_up=may_give_up,
                location=options.location, statistics=statistics, gpu=options.gpu,
                poll=make_poll(options),
            )  # fmt: skip
            return found

        found = None if takes_all else positions.run_on_first_with_room(search)
        if found is None and (has_peers or not may_give_up):
            statistics.begin_on(names)
            found = search(positions)
        return found

    def result_of(
        placed: PlacedGraph, sources: Array, found: Searched, statistics: RunStatistics
    ) -> PathResult:
        """Return the result; note in the graph which solver, and how many GPUs, further searches take."""
        if may_give_up and not found.gains:
            placed.given_up.add("bfs")
            placed.latest.clear()
        if (
            found.looked >= _LEVEL_ARCS * max(1, found.supersteps)
            and "bfs" not in placed.faster_on_all
        ):
            placed.faster_on_all.add("bfs")
            placed.latest.clear()
        return _result(placed, sources, found.values, statistics, options)

    statistics = RunStatistics(chosen, "direction-optimizing")
    try:
        with statistics.run() as run:
            positions = place_positions(
                placed, lambda dtype: _cuda().kernel_source(dtype, options.gpu, len(chosen))
            )
            found = search_on(positions, sources, statistics)
            if found is not None:
                run.parts = found.seconds
    except GraphTooLargeError:
        if not may_give_up:
            raise
        refuse_positions(placed)
        return None
    if found is None:
        return None
    if found.values is None:
        given_up.update(statistics.seconds)
        refuse_positions(placed)
        return None

    def answer(placed: PlacedGraph, sources: Array) -> PathResult | None:
        statistics = RunStatistics(chosen, "direction-optimizing")
        with statistics.run() as run:
            found = search_on(positions, sources, statistics)
            if found is not None:
                run.parts = found.seconds
        if found is None or found.values is None:
            return None
        return result_of(placed, sources, found, statistics)

    if note is not None:
        note(answer)
    return result_of(placed, sources, found, statistics)


def _on_shared_memory(
    placed: PlacedGraph, sources: Array, target: int | None, cutoff: int | None,
    options: SolverOptions,
) -> PathResult:  # fmt: skip
    from godwit.algorithms.bfs.cpu import bfs_on_cpu

    statistics = RunStatistics(placed.context.device_names, "direction-optimizing")
    report = make_poll(options)
    if placed.is_kept and _is_wide(placed.graph):
        placed.searches += 1
        with statistics.phase("rows"):
            if not is_symmetric(placed.graph) and placed.searches >= _SEARCHES_PER_REVERSE:
                in_arcs(placed.graph)
    with statistics.phase("run"):
        distance, counts = bfs_on_cpu(
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
    return _result(placed, sources, distance, statistics, options)


def _result(
    placed: PlacedGraph, sources: Array, distance: Any, statistics: RunStatistics,
    options: SolverOptions,
) -> PathResult:  # fmt: skip
    return PathResult(
        placed.graph, sources, distance, statistics, unit_lengths=True, location=options.location,
        placed=placed,
    )  # fmt: skip


@or_distributed("godwit.algorithms.bfs.distributed", "godwit.algorithms.bfs.distributed_gpus")
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
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    worker: WorkerOptions | None = None,
    gpu: GpuOptions | None = None,
) -> PathResult:
    """Return distances in arcs from a source, or from the nearest of several.

    >>> import godwit as gw
    >>> gw.bfs(gw.generators.path(4), 0).distance.tolist()
    [0, 1, 2, 3]

    :param graph: a graph, or one placed on devices by :func:`place`
    :param source: a vertex, or several: by id where the graph has ids of its own (``graph.ids.own``), else
        by numbers from 0
    :param devices: None for the best choice: all cores if there is no GPU, or if they are done before the
        graph is on one; else the first GPU, since placing a graph on several takes longer than a search
        gains (but all if it does not fit there). Names: ``"cuda"`` (all GPUs),
        ``"cuda:1"``, ``"cpu"`` (all cores), ``["cpu:0", "cpu:1"]`` (virtual devices). A number of GPUs, or
        of virtual devices if there is no GPU
    :param partition: how the graph is divided over several devices; see :func:`place`
    :param target: stop when the distance of this vertex is final; farther vertices count as not reached
    :param cutoff: farther vertices count as not reached
    :param execution: ``"asynchronous"`` or ``"bulk-synchronous"`` (in supersteps, at the end of which all
        devices meet); ``"auto"`` for the faster one. The result is the same. On ``"cpu"`` BFS always goes
        by levels
    :param results: where the arrays of the result live: ``"host"`` for NumPy arrays, ``"cuda"`` or
        ``"cuda:1"`` for CuPy arrays on that GPU; both support DLPack without a copy
    :param timeout_s: limit of the run in seconds, without placing the graph and compiling
    :param progress: True for a bar in terminals and notebooks; or a function that is called now and then
        with the number of items processed so far, an int; on GPUs, it also has ``.threshold`` and
        ``.idle_share``
    :param trace: a file for the timeline of the run, such as ``"run.json"``, for ui.perfetto.dev or
        chrome://tracing; written also if the run fails. Or a :class:`godwit.Trace`, which records several
        runs
    :param worker: options of the asynchronous engine
    :param gpu: options of kernels
    :returns: ``.distance`` (int32; 2147483647 where not reached), ``.predecessor``, ``.to_dict()``,
        ``.statistics``
    :raises InputError: a vertex out of range, or another wrong argument
    :raises FileError: the trace cannot be written; checked before the run
    :raises DeviceError: a device is missing, or CuPy or the GPU that ``results`` asks for
    :raises RunTimeoutError: out of time
    """
    asked = (
        devices, partition, target, cutoff, execution, results, timeout_s, progress, trace, worker,
        gpu,
    )  # fmt: skip
    repeated: PathResult | None = repeated_query(graph, "bfs", asked, source)
    if repeated is not None:
        return repeated
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
    if partition is None and isinstance(graph, Graph):
        core_ns = _WIDE_NS if _is_wide(graph) else _THIN_NS
        devices = devices_for_one_query(
            graph, devices, options, core_ns, scales=False, by_levels=True,
            kernel=lambda: _kernel_alone(graph, options),
        )  # fmt: skip
    return answered(
        graph, devices, partition, trace, "bfs",
        lambda placed: on_gpus_unless_slow(
            placed,
            "bfs",
            options,
            lambda placed, options: run_bfs(
                placed, source, target=target, cutoff=cutoff, options=options,
                note=note_of(placed, "bfs", asked),
            ),
            _TIME_ON_CORES,
        ),
    )  # fmt: skip
