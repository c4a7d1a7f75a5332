"""Distances from many sources: a matrix, and sums over its rows or columns without the matrix.

Numbers of arcs are found by searches from many sources at once, in the bits of words; lengths by weights,
and numbers of arcs in graphs with many levels, by searches side by side, or by sweeps over a contracted
graph (contraction.py). Sources are shared out over the threads of the CPU (cpu.py) or over GPUs
(cuda.py). Each row is what :func:`godwit.bfs` or :func:`godwit.sssp` returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.algorithms.distances.cpu import CpuSearches, in_bits
from godwit.algorithms.distances.query import DistanceQuery, DistanceSums
from godwit.algorithms.distances.result import DistancesResult
from godwit.algorithms.distances.sums import SumQuery, sum_distances
from godwit.algorithms.paths.result import check_cutoff
from godwit.algorithms.paths.weights import check_weights, uses_weights
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.ids import Sources
from godwit.placement import PlacedGraph, default_step_devices
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import OF_STEPS, GpuOptions, check_options
from godwit.runtime.protocol import Device
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.query import (
    GraphArgument,
    add_placement,
    devices_for_one_query,
    on_gpus_or_cores,
)
from godwit.worker.solve import make_poll

if TYPE_CHECKING:
    from godwit.algorithms.distances.cuda import GpuSearches

_HOPS_NS, _LENGTHS_NS = 2.0, 60.0
"""Nanoseconds of a core for each arc and search, by numbers of arcs and by weights (benchmarks/zoo.py)."""
_SHARED_VISITS = 64
"""About the number of searches in bits that share the visit of an arc."""


@public
def distances(
    graph: GraphArgument,
    sources: Sources,
    targets: Sources | None = None,
    *,
    weighted: bool | None = None,
    cutoff: float | None = None,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> DistancesResult:
    """Return the distances from each of several sources to all vertices, or to some.

    >>> import godwit as gw
    >>> gw.distances(gw.generators.path(4), [0, 2]).distance.tolist()
    [[0, 1, 2, 3], [2, 1, 0, 1]]

    Row i is what :func:`bfs`, or by weights :func:`sssp`, returns for source i. One call takes many sources
    in much less time than a call for each. Numbers of arcs are found for 64 or more sources at once, in the
    bits of words (Then et al., PVLDB 8, 2014); lengths by searches side by side, of which each thread of
    the CPU, or each block of threads of a GPU, does one. For many sources, a road network with integer
    weights is contracted first, once, and then swept over (PHAST, Delling et al., IPDPS 2011). Several GPUs
    share the sources, each with the whole graph.

    :param sources: a vertex, or several, by id as for :func:`bfs`: a row for each, in the order given; of a
        set, in the order of its iteration. A vertex may be given several times
    :param targets: a column for each, by id as the sources; None: all vertices, in the order of the graph.
        A search ends when all of them are reached; if they are fewer than sources, searches begin at the
        targets and follow arcs backwards, except by weights that are floating-point numbers
    :param weighted: None: lengths are sums of weights where the graph has some (as for :func:`sssp`, they
        must not be negative); True: the same, and a graph without is refused; False: arcs are counted
    :param cutoff: farther vertices count as not reached
    :param devices: as for :func:`bfs`, but CPU devices one at a time: ``"cpu"`` is all cores, ``"cpu:0"``
        one, and a number means all cores where there is no GPU; None also leaves small work to the CPU
    :param results: where ``.distance`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of sources begun so far, with ``.total``
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.distance`` (sources, targets), int32 for numbers of arcs, int64 for integer weights,
        float64 for others; the largest value of the dtype, or infinity, where there is no path.
        ``.sources``, ``.targets``, ``.to_dict()``, ``.to_arrow()``, ``.statistics``
    :raises InputError: a vertex out of range, no source, no target, a negative or NaN weight, several
        devices of the CPU, or another wrong argument
    :raises ValueOverflowError: with integer weights, a distance within the cutoff reaches 2^63 - 2
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: the matrix does not fit into memory
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    if devices is None and isinstance(graph, Graph):
        devices = _default_devices(graph, _number_of(sources), weighted, options)
    with recorded(trace, "distances"), on_gpus_or_cores(graph, devices, "distances") as (
        plain, device, placed,
    ):  # fmt: skip
        weighted = uses_weights(plain, weighted)
        rows = plain.ids.in_order(sources, "sources")
        columns = None if targets is None else plain.ids.in_order(targets, "targets")
        limit = check_cutoff(cutoff)
        if weighted:
            check_weights(plain)
        matrix = _Matrix(plain, rows, columns, weighted, limit)
        searches, statistics = _new_searches(
            "distances", device, placed, options, matrix.query, len(matrix.query.sources)
        )
        with statistics.phase("run"):
            distance = matrix.arranged(searches.distances(matrix.query))
        searches.report(statistics)
        add_placement(statistics, placed, graph)
        return DistancesResult(
            plain, rows, columns, distance, statistics, location=options.location
        )


@dataclass(frozen=True)
class SumsOutcome:
    """Sums for vertices, as :func:`run_sums` finds them.

    :param graph: the graph
    :param vertices: int64 (k) positions of the vertices, ascending; None: all
    :param sums: sums for each of them
    :param statistics: of the run
    """

    graph: Graph
    vertices: Array | None
    sums: DistanceSums
    statistics: RunStatistics


def run_sums(
    name: str,
    graph: GraphArgument,
    vertices: Sources | None,
    others: Sources | None,
    weighted: bool | None,
    *,
    outward: bool,
    devices: DevicesArgument,
    trace: TraceArgument,
    options: SolverOptions,
) -> SumsOutcome:
    """Sum, for each of some vertices, its distances to or from others.

    :param name: of the algorithm, in messages
    :param vertices: by id; None: all
    :param others: by id; None: all
    :param outward: distances from the vertices to the others; False: from the others to the vertices
    :raises InputError: and other errors, as of :func:`distances`
    """
    if devices is None and isinstance(graph, Graph):
        count = graph.vertex_count if vertices is None else _number_of(vertices)
        devices = _default_devices(graph, count, weighted, options)
    with recorded(trace, name), on_gpus_or_cores(graph, devices, name) as (plain, device, placed):
        weighted = uses_weights(plain, weighted)
        ids = plain.ids
        chosen = (
            None if vertices is None else ids.one_or_several(vertices, "vertices", or_none=True)
        )
        counted = None if others is None else ids.one_or_several(others, "sources", or_none=True)
        if weighted:
            check_weights(plain)
        query = SumQuery(plain, chosen, counted, weighted, outward)
        searches, statistics = _new_searches(
            name, device, placed, options, query.from_others, query.searches
        )
        with statistics.phase("run"):
            sums = sum_distances(query, searches)
        searches.report(statistics)
        add_placement(statistics, placed, graph)
        return SumsOutcome(plain, chosen, sums, statistics)


class _Matrix:
    """The matrix that was asked for, and the query of the one that is computed.

    In the latter no column occurs twice; and it is transposed if its searches begin at the targets.
    """

    def __init__(
        self, graph: Graph, sources: Array, targets: Array | None, weighted: bool,
        cutoff: float | None,
    ) -> None:  # fmt: skip
        weights = graph.weights
        # Sums of floating-point numbers depend on the direction.
        is_exact = not weighted or (weights is not None and weights.dtype.kind in "iu")
        self.is_transposed = is_exact and targets is not None and len(targets) < len(sources)
        rows, columns = (sources, targets)
        if self.is_transposed:
            assert targets is not None
            rows, columns = targets, sources
        self._row_index, rows = _distinct(rows)
        self._column_index = None
        if columns is not None:
            self._column_index, columns = _distinct(columns)
        self.query = DistanceQuery(
            graph, rows, columns, weighted, backward=self.is_transposed, cutoff=cutoff
        )

    def arranged(self, found: Any) -> Any:
        """Return the matrix that was asked for."""
        if self._row_index is not None:
            found = found[self._row_index]
        if self._column_index is not None:
            found = found[:, self._column_index]
        return found.T.copy() if self.is_transposed else found


def _distinct(vertices: Array) -> tuple[Array | None, Array]:
    """Return the index of each vertex among distinct ones, or None if they are distinct, and these."""
    distinct, index = np.unique(vertices, return_inverse=True)
    if len(distinct) == len(vertices):
        return None, vertices
    return index, distinct


def _number_of(vertices: Any) -> int:
    """Return the number of vertices of an argument that has not been checked."""
    try:
        return len(vertices)
    except TypeError:
        return 1


def _default_devices(
    graph: Graph, searches: int, weighted: bool | None, options: SolverOptions
) -> DevicesArgument:
    """Return all cores if they are done before a GPU begins; else one GPU, or several for many searches."""
    by_weights = graph.is_weighted and weighted is not False
    core_ns = searches * (_LENGTHS_NS if by_weights else _HOPS_NS)
    devices = devices_for_one_query(graph, None, options, core_ns)
    if devices is not None:
        return devices
    # Searches in bits share the visits of arcs.
    return default_step_devices(graph, searches=searches // _SHARED_VISITS)


def _new_searches(
    name: str,
    device: Device,
    placed: PlacedGraph | None,
    options: SolverOptions,
    query: DistanceQuery,
    total: int,
) -> tuple[CpuSearches | GpuSearches, RunStatistics]:
    """Return searches on the GPUs of a placed graph, or on a device of the CPU, and new statistics of them.

    :param name: of the algorithm, in messages
    :param total: number of searches
    :raises InputError: options that the devices do not take
    """
    devices = (device,) if placed is None else placed.context.devices
    check_options(devices, options.gpu, name, OF_STEPS)
    solver = "bit-parallel" if in_bits(query) else "side by side"
    statistics = RunStatistics(tuple(device.name for device in devices), solver)
    poll = make_poll(options, total)
    if placed is None:
        return CpuSearches(device.threads, poll), statistics
    from godwit.algorithms.distances.cuda import GpuSearches

    placed.check_all_duplicated("searches from many sources run")
    return GpuSearches(placed, options.gpu, options.location, poll), statistics
