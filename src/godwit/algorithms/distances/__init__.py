"""Distances from many sources: a matrix, and sums over its rows or columns without the matrix.

Numbers of arcs are found by searches from many sources at once, in the bits of words; lengths by weights,
and numbers of arcs in graphs with many levels, by searches side by side. Sources are shared out over the
threads of the CPU (cpu.py). Each row is what :func:`godwit.bfs` or :func:`godwit.sssp` returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.algorithms.distances.cpu import Work, find_distances, in_bits
from godwit.algorithms.distances.query import DistanceQuery, DistanceSums
from godwit.algorithms.distances.result import DistancesResult
from godwit.algorithms.distances.sums import SumQuery, sum_distances
from godwit.algorithms.paths.result import check_cutoff
from godwit.algorithms.paths.weights import check_weights, uses_weights
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.ids import Sources
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import OF_STEPS, GpuOptions, check_options
from godwit.runtime.protocol import Device
from godwit.runtime.registry import DevicesArgument, resolve_devices
from godwit.runtime.statistics import RunStatistics
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.query import GraphArgument, on_cores
from godwit.worker.solve import make_poll


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
    bits of words (Then et al., PVLDB 8, 2014); lengths by searches side by side, one on each thread.

    :param sources: a vertex, or several, by id as for :func:`bfs`: a row for each, in the order given; of a
        set, in the order of its iteration. A vertex may be given several times
    :param targets: likewise, a column for each; None: all vertices, in the order of the graph. A search
        ends when all of them are reached; if they are fewer than sources, searches begin at the targets and
        follow arcs backwards, except by weights that are floating-point numbers
    :param weighted: None: lengths are sums of weights where the graph has some (as for :func:`sssp`, they
        must not be negative); True: the same, and a graph without is refused; False: arcs are counted
    :param cutoff: farther vertices count as not reached
    :param devices: of the CPU, one at a time: ``"cpu"`` is all cores, ``"cpu:0"`` one. So far the CPU
        computes for GPUs, too, as ``.statistics.devices`` says
    :param results: where ``.distance`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of sources begun so far, with ``.total``
    :param trace: as for :func:`bfs`
    :param gpu: not used so far
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
    with recorded(trace, "distances"):
        plain, device = _on_cores(graph, devices, "distances")
        weighted = uses_weights(plain, weighted)
        rows = plain.ids.in_order(sources, "sources")
        columns = None if targets is None else plain.ids.in_order(targets, "targets")
        limit = check_cutoff(cutoff)
        if weighted:
            check_weights(plain)
        check_options((device,), options.gpu, "distances", OF_STEPS)
        matrix = _Matrix(plain, rows, columns, weighted, limit)
        statistics = new_statistics((device,), matrix.query)
        poll = make_poll(options, len(matrix.query.sources))
        with statistics.phase("run"):
            found, work = find_distances(matrix.query, device.threads, poll)
            add_work(statistics, work)
            distance = matrix.arranged(found)
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
    :param others: likewise
    :param outward: distances from the vertices to the others; False: from the others to the vertices
    :raises InputError: and other errors, as of :func:`distances`
    """
    with recorded(trace, name):
        plain, device = _on_cores(graph, devices, name)
        weighted = uses_weights(plain, weighted)
        ids = plain.ids
        chosen = (
            None if vertices is None else ids.one_or_several(vertices, "vertices", or_none=True)
        )
        counted = None if others is None else ids.one_or_several(others, "sources", or_none=True)
        if weighted:
            check_weights(plain)
        check_options((device,), options.gpu, name, OF_STEPS)
        query = SumQuery(plain, chosen, counted, weighted, outward)
        statistics = new_statistics((device,), query.from_others)
        poll = make_poll(options, query.searches)
        with statistics.phase("run"):
            sums, work = sum_distances(query, device.threads, poll)
            add_work(statistics, work)
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
        return np.ascontiguousarray(found.T) if self.is_transposed else found


def _distinct(vertices: Array) -> tuple[Array | None, Array]:
    """Return the index of each vertex among distinct ones, or None if they are distinct, and these."""
    distinct, index = np.unique(vertices, return_inverse=True)
    if len(distinct) == len(vertices):
        return None, vertices
    return index, distinct


def _on_cores(graph: GraphArgument, devices: DevicesArgument, what: str) -> tuple[Graph, Device]:
    """Return a graph and the CPU's device; all cores where GPUs were asked for."""
    if (
        isinstance(graph, Graph)
        and devices is not None
        and resolve_devices(devices)[0].kind != "cpu"
    ):
        devices = "cpu"
    return on_cores(graph, devices, what)


def new_statistics(devices: tuple[Device, ...], query: DistanceQuery) -> RunStatistics:
    """Return statistics of a run on some devices."""
    solver = "bit-parallel" if in_bits(query) else "side by side"
    return RunStatistics(tuple(one.name for one in devices), solver)


def add_work(statistics: RunStatistics, work: Work) -> None:
    """Add the work of a run on the CPU."""
    statistics.processed_items = np.array([work.reached], np.int64)
    statistics.arcs_relaxed = np.array([work.visits], np.int64)
