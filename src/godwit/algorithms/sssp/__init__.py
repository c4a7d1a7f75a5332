"""Single-source shortest paths.

Distances only decrease, so the result is correct if relaxations happen in any order and repeatedly.
Processing small distances first makes repeated relaxations rare: delta-stepping within a device; devices
may run ahead of each other by a window of buckets. On one GPU and on all cores, graphs with hubs are
searched in another way, which pushes along short arcs and pulls the rest, and looks at a small part of the
arcs (:mod:`godwit.algorithms.sssp.cuda`, :mod:`godwit.algorithms.sssp.cpu`). On all cores a small graph is
searched by one thread, as by :func:`godwit.distances`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from godwit.algorithms.bfs import note_search, run_bfs
from godwit.algorithms.paths.result import PathResult, check_query
from godwit.algorithms.paths.weights import check_weights, uses_weights
from godwit.algorithms.sssp import stages
from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError, ValueOverflowError
from godwit.graph.csr import Graph
from godwit.graph.facts import has_hubs
from godwit.graph.ids import Sources, Vertex
from godwit.placement import (
    PartitionArgument,
    PlacedGraph,
)
from godwit.progress import ProgressArgument
from godwit.public import or_distributed
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps import place_positions
from godwit.trace import TraceArgument
from godwit.worker.options import (
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
from godwit.worker.solve import make_poll, solve

if TYPE_CHECKING:
    from godwit.supersteps.placement import StepPlacement
    from godwit.supersteps.run import Searched

Found = TypeVar("Found")


@in_cuda("wide(value) + wide(weight)")
def _along(value: Any, weight: Any) -> Any:
    return value + weight


FARTHEST = 2**63 - 2


@in_cuda(f"wide(weight) <= {FARTHEST} - value ? value + wide(weight) : {FARTHEST}")
def _along_saturating(value: Any, weight: Any) -> Any:
    return value + weight if weight <= FARTHEST - value else FARTHEST


@in_cuda("value")
def _distance(value: Any) -> Any:
    return value


def _program(dtype: str, message: Any) -> VertexProgram:
    return VertexProgram(
        name="sssp", message=message, combine="min", dtype=dtype, priority=_distance
    )


PROGRAMS = {name: _program(name, _along) for name in ("int32", "int64", "float64")}
"""Vertex programs by dtype of the distances."""
SATURATING = _program("int64", _along_saturating)
"""Vertex program whose sums saturate at 2^63 - 2, as 2^63 - 1 means "not reached"."""


@dataclass(frozen=True)
class DistanceDtypes:
    """Vertex programs of a query by dtype of distances, of which the first that fits gives the result.

    32-bit distances need half the memory and traffic, and mostly suffice where the worst case does not
    fit: the run stops at the first sum that overflows, and is repeated. Later runs on the graph then use
    64 bits at once, unless a cutoff may keep them within 32.

    :param cutoff: of all of them, None if there is none
    :param narrow: for 32 bits; None: it is not tried
    :param wide: for 64 bits
    :param fits: no sum overflows 32 bits
    """

    cutoff: float | None
    narrow: VertexProgram | None
    wide: VertexProgram
    fits: bool = False

    @classmethod
    def of(cls, graph: Graph, cutoff: float | None, *, has_overflowed: bool) -> DistanceDtypes:
        """Choose dtypes for a graph.

        :param has_overflowed: a run without a cutoff has not fitted 32 bits
        """
        if graph.weight_dtype is not None and graph.weight_dtype.kind not in "iu":
            return cls(cutoff, None, PROGRAMS["float64"])
        largest = check_weights(graph)
        # Upper bound of all computed sums, which include arcs that leave the farthest vertex.
        bound = largest * graph.vertex_count
        if cutoff is not None:
            cutoff = None if cutoff >= FARTHEST else math.floor(cutoff)
        if cutoff is not None:
            bound = min(bound, cutoff + largest)
        fits = bound < 2**31 - 1
        tries = fits or cutoff is not None or not has_overflowed
        tries = tries and max(largest, 0 if cutoff is None else cutoff) < 2**31 - 1
        wide = PROGRAMS["int64"] if bound < 2**63 - 1 else SATURATING
        return cls(cutoff, PROGRAMS["int32"] if tries else None, wide, fits)

    def run(self, run: Callable[[VertexProgram], Found], overflowed: Callable[[], None]) -> Found:
        """Return what a function returns for the first program whose dtype all sums fit.

        :param overflowed: called if 32 bits were not enough
        """
        if self.narrow is not None:
            try:
                return run(self.narrow)
            except ValueOverflowError:
                if self.fits:
                    raise
                overflowed()
        return run(self.wide)


def run_sssp(
    placed: PlacedGraph,
    source: Sources,
    *,
    target: int | None = None,
    cutoff: float | None = None,
    options: SolverOptions,
    note: Note | None = None,
) -> PathResult:
    """Return distances from the nearest source; see :func:`godwit.sssp`.

    :param note: as of :func:`godwit.worker.query.note_of`
    """
    graph = placed.graph
    sources, target, cutoff = check_query(graph, source, target, cutoff)
    largest = check_weights(graph)
    if _suits_one_thread(placed, sources, target, options):
        return _on_one_thread(placed, sources, cutoff, options)
    looks_at_few = _looks_at_few_arcs(placed, options)
    start = dict.fromkeys(sources.tolist(), 0)

    def run(program: VertexProgram) -> PathResult:
        if looks_at_few and program is not SATURATING:
            if placed.context.devices[0].shares_memory:
                result = _on_cores(placed, sources, target, program, cutoff, options)
            else:
                result = _in_supersteps(placed, sources, target, program, cutoff, options, note)
            if result is not None:
                return result
        searched = searched_on_gpus(placed, options)
        wide = "float64" if program.dtype.kind == "f" else "int64"
        solution = solve(
            program,
            searched,
            start,
            options,
            limit=cutoff,
            target=target,
            result_dtype=wide,
        )
        if program is SATURATING and bool((solution.values == FARTHEST).any()):
            raise ValueOverflowError(
                f"with weights up to {largest}, a distance reaches 2^63 - 2 or more, beyond the range of "
                "int64 distances; give the weights as float64, or a cutoff"
            )
        unit_lengths = graph.weight_dtype is None
        if program is not SATURATING:
            note_search(
                note, program, placed, searched, options, cutoff, target, unit_lengths=unit_lengths,
                result_dtype=wide,
            )  # fmt: skip
        return PathResult(
            graph, sources, solution.values, solution.statistics, unit_lengths=unit_lengths,
            location=options.location, placed=searched,
        )  # fmt: skip

    overflowed: list[None] = graph.cached("sssp overflowed", list)
    dtypes = DistanceDtypes.of(graph, cutoff, has_overflowed=bool(overflowed))
    cutoff = dtypes.cutoff
    return dtypes.run(run, lambda: overflowed.append(None))


def _kernel_alone(graph: Graph, options: SolverOptions) -> str:
    """Return the source of the kernel of a search of a graph that is placed on one GPU for it alone."""
    from godwit.worker.cuda.engine import kernel_alone

    overflowed: list[None] = graph.cached("sssp overflowed", list)
    dtypes = DistanceDtypes.of(graph, None, has_overflowed=bool(overflowed))
    return kernel_alone((dtypes.narrow or dtypes.wide).operators, graph, options.gpu)


_TIME_ON_CORES = SearchTime(vertex_ns=35.0, arc_ns=8.0)  # benchmarks/zoo.py
_CORE_NS = 60.0
"""Nanoseconds that a core takes for each arc of a graph (benchmarks/zoo.py)."""
_FIRST_WEIGHTS = 4096
_DENSE_DEGREE = 24
_DENSE_GPU_ARCS = 1 << 25
"""Arcs of a vertex, and for GPUs of a graph, from which on shortest paths take so few arcs that sorted rows
pay without hubs (benchmarks/choices.py)."""
_THIN_DEGREE = 4
"""Up to this mean degree cores do without sorted rows: hubs of stars and trees."""


_ALONE_WORK = 100_000
"""Vertices and arcs of a graph below which a search takes one thread a millisecond or so."""


def is_small(graph: Graph) -> bool:
    """Return True if one thread searches a graph from one source, on all cores by default."""
    return graph.vertex_count + graph.arc_count < _ALONE_WORK


def _suits_one_thread(
    placed: PlacedGraph, sources: Array, target: int | None, options: SolverOptions
) -> bool:
    """Return True if the searches of :func:`godwit.distances` are faster than a vertex program.

    On small graphs a program has one thread as well, and its preparation takes longer than the search.
    """
    if not placed.context.devices[0].shares_memory or options.asks_for_kernels:
        return False
    is_plain = len(sources) == 1 and target is None and placed.graph.is_weighted
    return is_plain and is_small(placed.graph)


def _on_one_thread(
    placed: PlacedGraph, sources: Array, cutoff: float | None, options: SolverOptions
) -> PathResult:
    """Search a small graph from one source."""
    from godwit.algorithms.distances.cpu import CpuSearches
    from godwit.algorithms.distances.query import DistanceQuery
    from godwit.algorithms.distances.single_source import bucket_scale

    statistics = RunStatistics((placed.context.devices[0].name,), "delta-stepping")
    searches = CpuSearches(1, make_poll(options))
    query = DistanceQuery(placed.graph, sources, None, weighted=True, cutoff=cutoff)
    with statistics.phase("run"):
        distance = searches.distances(query)[0]
    searches.report(statistics)
    statistics.delta = 1 / bucket_scale(placed.graph)
    return PathResult(
        placed.graph, sources, distance, statistics, unit_lengths=False, location=options.location,
        placed=placed,
    )  # fmt: skip


_SEARCHES_PER_SORT = 4
"""Searches of a graph on all cores before its rows are sorted by weight, which takes as long as these."""


def _looks_at_few_arcs(placed: PlacedGraph, options: SolverOptions) -> bool:
    """Return True if a search by rows sorted by weight pays, which looks at few arcs of a graph with hubs.

    To sort rows takes longer than a search. So a graph that is placed for one query is not searched in this
    way on GPUs, and on all cores only after some other searches.
    """
    devices, graph = placed.context.devices, placed.graph
    if options.asks_for_kernels or "sssp" in placed.given_up:
        return False
    if devices[0].kind == "cuda":
        if not placed.is_kept or placed.duplication == "1-hop":
            return False
        if placed.asked_partition is not None and not placed.has_peers:
            return False
    elif not devices[0].shares_memory:
        return False
    if devices[0].kind == "cpu" and not placed.is_kept:
        searches: list[None] = graph.cached("sssp searches", list)  # appending is atomic
        if len(searches) < _SEARCHES_PER_SORT:
            searches.append(None)
            return False
    on_gpus = devices[0].kind == "cuda"
    return bool(graph.cached(("few arcs", on_gpus), lambda: _promises_few_arcs(graph, on_gpus)))


def _promises_few_arcs(graph: Graph, on_gpus: bool) -> bool:
    """Return True if weights differ, and a vertex has many more arcs than the mean, or all have many."""
    weights = graph.weights
    if weights is None or (not on_gpus and graph.arc_count <= _THIN_DEGREE * graph.vertex_count):
        return False
    is_dense = graph.arc_count >= _DENSE_DEGREE * graph.vertex_count
    if on_gpus and graph.arc_count < _DENSE_GPU_ARCS:
        is_dense = False
    differs = (part != weights[:1] for part in (weights[:_FIRST_WEIGHTS], weights))
    return (is_dense or has_hubs(graph)) and any(bool(part.any()) for part in differs)


def _on_cores(
    placed: PlacedGraph, sources: Array, target: int | None, program: VertexProgram,
    cutoff: float | None, options: SolverOptions,
) -> PathResult | None:  # fmt: skip
    """Search on all cores by sorted rows; return None if they do not fit in memory.

    :raises ValueOverflowError: a distance does not fit the program's dtype
    """
    from godwit.algorithms.sssp.cpu import search_on_cpu
    from godwit.algorithms.sssp.cpu_rows import has_room_for_rows, search_rows

    device = placed.context.devices[0]
    statistics = RunStatistics((device.name,), "direction-optimizing")
    if not has_room_for_rows(placed.graph):
        placed.given_up.add("sssp")
        return None
    with statistics.phase("rows"):
        search_rows(placed.graph)
    with statistics.phase("run"):
        outcome = search_on_cpu(
            placed.graph,
            sources,
            program.dtype,
            cutoff,
            target,
            threads=device.threads,
            poll=make_poll(options),
        )
        if outcome.overflows:
            raise ValueOverflowError(f"a distance does not fit {program.dtype.name}")
    if not stages.gains(placed.graph, outcome.looked):
        placed.given_up.add("sssp")
    statistics.processed_items = np.array([outcome.processed], np.int64)
    statistics.arcs_relaxed = np.array([outcome.looked], np.int64)
    statistics.rounds = np.array([outcome.stages], np.int64)
    return PathResult(
        placed.graph, sources, outcome.distance, statistics, unit_lengths=False,
        location=options.location, placed=placed,
    )  # fmt: skip


def _in_supersteps(
    placed: PlacedGraph, sources: Array, target: int | None, program: VertexProgram,
    cutoff: float | None, options: SolverOptions, note: Note | None,
) -> PathResult | None:  # fmt: skip
    """Search in supersteps on all GPUs or the first; return None if that does not suit the graph.

    :param note: as of :func:`run_sssp`
    :raises ValueOverflowError: a distance does not fit the program's dtype
    """
    from godwit.algorithms.sssp.cuda import search_on_gpus, source

    devices = placed.context.devices
    weights = placed.graph.weight_dtype
    assert weights is not None
    takes_all = suits_all_gpus(placed)
    steps = place_positions(
        placed, lambda dtype: source(dtype, program.dtype, weights, several=takes_all)
    )
    if not takes_all and len(devices) > 1 and placed.has_peers:
        takes_all = not steps.has_room_for_copy()
    names = placed.context.device_names
    names = names if takes_all else names[:1]

    def answer(placed: PlacedGraph, sources: Array) -> PathResult | None:
        statistics = RunStatistics(names, "direction-optimizing")

        def search(placement: StepPlacement) -> Searched:
            found: Searched = search_on_gpus(
                placement, sources, program.dtype, cutoff, target, location=options.location,
                statistics=statistics, gpu=options.gpu, poll=make_poll(options),
            )  # fmt: skip
            return found

        with statistics.run() as run:
            found = search(steps) if takes_all else steps.run_on_first_with_room(search)
            if found is not None:
                run.parts = found.seconds
        if found is None or not found.gains:
            placed.given_up.add("sssp")
            placed.latest.clear()
        if found is None or found.values is None:
            return None
        return PathResult(
            placed.graph, sources, found.values, statistics, unit_lengths=False,
            location=options.location, placed=placed,
        )  # fmt: skip

    result = None
    try:
        result = answer(placed, sources)
    except GraphTooLargeError:
        placed.given_up.add("sssp")
    if note is not None and "sssp" not in placed.given_up:
        note(answer)
    return result


@or_distributed("godwit.algorithms.sssp.distributed", "godwit.algorithms.sssp.distributed_gpus")
def sssp(
    graph: GraphArgument,
    source: Sources,
    *,
    devices: DevicesArgument = None,
    partition: PartitionArgument = None,
    target: Vertex | None = None,
    cutoff: float | None = None,
    weighted: bool | None = None,
    execution: str = "auto",
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    worker: WorkerOptions | None = None,
    gpu: GpuOptions | None = None,
) -> PathResult:
    """Return lengths of shortest paths from a source, or from the nearest of several.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 0, 1], [1, 2, 2], [4, 9, 3])
    >>> gw.sssp(graph, 0).distance.tolist()
    [0, 4, 7]

    Weights must not be negative. Parameters that are not listed are as for :func:`bfs`.

    :param weighted: None: lengths are sums of weights, in a graph without weights numbers of arcs; True:
        the same, and a graph without weights is refused; False: numbers of arcs, the result of :func:`bfs`
    :returns: ``.distance`` (int64 for integer weights, exact; float64 for others; the largest int64,
        or infinity, where not reached), ``.predecessor``, ``.to_dict()``, ``.statistics``
    :raises InputError: a vertex out of range, a negative or NaN weight, or another wrong argument
    :raises ValueOverflowError: with integer weights, a distance within the cutoff reaches 2^63 - 2
    :raises RunTimeoutError: the query took longer than ``timeout_s``
    """
    asked = (
        devices, partition, target, cutoff, weighted, execution, results, timeout_s, progress,
        trace, worker, gpu,
    )  # fmt: skip
    repeated: PathResult | None = repeated_query(graph, "sssp", asked, source)
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
    if partition is None and isinstance(graph, Graph):
        # With a cutoff, or by numbers of arcs, the kernel depends on arguments that are checked later.
        has_usual_kernel = cutoff is None and weighted is not False
        devices = devices_for_one_query(
            graph, devices, options, _CORE_NS, by_levels=True,
            kernel=(lambda: _kernel_alone(graph, options)) if has_usual_kernel else None,
        )  # fmt: skip

    def ask(placed: PlacedGraph) -> PathResult:
        counts_arcs = weighted is not None and not uses_weights(placed.graph, weighted)
        search = run_bfs if counts_arcs else run_sssp
        return on_gpus_unless_slow(
            placed,
            "bfs" if counts_arcs else "sssp",
            options,
            lambda placed, options: search(
                placed,
                source,
                target=target,
                cutoff=cutoff,
                options=options,
                note=note_of(placed, "sssp", asked),
            ),
            _TIME_ON_CORES,
        )

    return answered(graph, devices, partition, trace, "sssp", ask)
