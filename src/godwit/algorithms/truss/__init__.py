"""Truss numbers of edges, and k-trusses, by removing edges level by level.

The result is unique. On the CPU all cores remove edges (cpu.py), on a GPU one persistent kernel
(truss.cuh). Of several GPUs the first alone does: a superstep is short next to a meeting of GPUs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.triangles.rows import degree_rows, simple_graph
from godwit.algorithms.truss.cpu import truss_numbers_on_cores
from godwit.algorithms.truss.result import TrussResult
from godwit.algorithms.truss.rows import Edges, arcs_of_edges, edge_numbers
from godwit.arrays import host_array
from godwit.dtypes import Array, as_array, as_count, frozen
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph
from godwit.graph.rows import Rows
from godwit.placement import PlacedGraph
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps.first_gpu import run_on_first_gpu
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.query import DeviceQuery, GraphArgument
from godwit.worker.solve import make_poll


@public
def truss_number(
    graph: GraphArgument,
    *,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> TrussResult:
    """Compute the truss number of every edge: the largest k whose k-truss has the edge (J. Cohen, 2008).

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], directed=False)
    >>> gw.truss_number(graph).truss.tolist()
    [3, 3, 3, 2]

    The k-truss is the largest subgraph whose every edge is part of at least k - 2 of its triangles. Edges
    are those of the simple undirected graph: one wherever there is an arc in either direction between two
    different vertices. Weights do not matter.

    On CPUs and on a GPU by counting the triangles of edges and removing edges level by level (H. Kabir, K.
    Madduri, "Shared-memory graph truss decomposition", HiPC 2017), on a GPU in one kernel.

    :param devices: None: the first GPU, if there is one, else all cores; ``"cpu"``, or GPUs, of which the
        first alone computes, in the memory of all if need be: ``.statistics.devices`` names it
    :param results: where ``.truss`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of edges whose truss number is known so far, with
        ``.total``
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.truss`` (k, int32), ``.sources`` and ``.targets`` (k), ``.largest``, ``.edges()``,
        ``.highest(count)``, ``.to_dict()``, ``.statistics``
    :raises InputError: several devices of the CPU, or another wrong argument
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: the graph or the arrays of the run do not fit
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    with (
        recorded(trace, "truss numbers"),
        DeviceQuery(
            graph, devices, "truss_number", "peeling", options, what="truss numbers"
        ) as query,
    ):
        plain, placed, statistics = query.graph, query.placed, query.statistics
        with statistics.phase("number"):
            simple = simple_graph(plain)
        edge_count = simple.arc_count // 2
        if edge_count == 0:
            truss: Any = np.empty(0, np.int32)
        elif placed is not None:
            truss = _on_gpu(placed.reweighted(simple), statistics, options)
        else:
            with statistics.phase("rows"):
                rows = degree_rows(simple)
                edges = Edges.of(rows)
                places = edge_numbers(simple, rows, edges)
            poll = make_poll(options, edge_count)
            with statistics.phase("run"):
                by_number, statistics.rounds[0] = truss_numbers_on_cores(
                    rows, edges, query.device.threads, poll
                )
                truss = by_number[places]
        statistics.processed_items[0] = edge_count
        return TrussResult(plain, truss, statistics, options.location)


@public
def k_truss(
    graph: GraphArgument,
    k: int | None = None,
    *,
    truss: TrussResult | Array | None = None,
    devices: DevicesArgument = None,
    timeout_s: float | None = None,
) -> Graph:
    """Return the k-truss: the largest subgraph whose every edge is part of at least k - 2 of its triangles.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], directed=False)
    >>> list(gw.k_truss(graph, 3).ids)
    [0, 1, 2]

    It has the arcs of the edges whose truss number (:func:`truss_number`) is at least k, with their weights
    and attributes, and the vertices at their ends, which keep their ids. It has no self-loops.

    :param k: at least 0; every edge is in the 2-truss; None: the largest truss number, which gives the
        innermost truss
    :param truss: truss numbers of all edges, if known already: a result of :func:`truss_number` or its
        ``.truss``
    :param devices: as for :func:`truss_number`
    :param timeout_s: as for :func:`truss_number`
    :returns: the subgraph
    :raises InputError: a wrong argument
    """
    if k is not None:
        k = as_count(k, "k")
    if truss is None:
        truss = truss_number(graph, devices=devices, timeout_s=timeout_s)
    plain = graph.graph if isinstance(graph, PlacedGraph) else graph
    if not isinstance(plain, Graph):
        raise not_a_graph(plain)
    simple = simple_graph(plain)
    numbers = (
        host_array(truss.truss) if isinstance(truss, TrussResult) else as_array(truss, "truss")
    )
    edge_count = simple.arc_count // 2
    if numbers.shape != (edge_count,) or numbers.dtype.kind not in "iu":
        raise InputError(
            f"truss must be a result of truss_number, or integers of shape ({edge_count},), one for each "
            f"edge of the simple graph, got {shown(truss)}"
        )
    if k is None:
        k = int(numbers.max(initial=0))
    arcs = np.flatnonzero(arcs_of_edges(plain, simple, frozen(numbers >= k)))
    has_arcs = np.zeros(plain.vertex_count, np.bool_)

    def of_chosen(rows: Rows) -> Rows:
        offsets = np.searchsorted(arcs, rows.offsets).astype(rows.offsets.dtype)
        weights = None if rows.weights is None else rows.weights[arcs]
        return Rows(offsets, rows.targets[arcs], weights)

    chosen = plain._with_rows(of_chosen(plain.rows), like=of_chosen)
    has_arcs[chosen.targets] = True
    has_arcs |= np.diff(chosen.offsets) > 0
    return chosen.subgraph(chosen.ids.of(np.flatnonzero(has_arcs)))


def _on_gpu(placed: PlacedGraph, statistics: RunStatistics, options: SolverOptions) -> Any:
    """Return truss numbers of a simple graph, computed on the first GPU, and fill in statistics."""
    from godwit.algorithms.truss.cuda import truss_numbers_on_gpu

    placed.check_all_duplicated("truss numbers are computed")
    poll = make_poll(options, placed.graph.arc_count // 2)
    return run_on_first_gpu(
        placed,
        statistics,
        lambda whole: truss_numbers_on_gpu(whole, options.gpu, options.location, poll),
    ).values
