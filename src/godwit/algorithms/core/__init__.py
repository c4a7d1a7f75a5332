"""Core numbers, k-cores and k-shells of graphs, by peeling.

The result is unique. On the CPU all cores peel (cpu.py), on a GPU one persistent kernel (core.cuh). Of
several GPUs the first alone peels if it has room for the whole graph, since a superstep of peeling is short
next to a meeting of GPUs; else all run a step program (program.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.core.cpu import core_numbers_on_cores
from godwit.algorithms.core.program import core_numbers_by_steps
from godwit.algorithms.core.result import CoreResult
from godwit.arrays import host_array
from godwit.dtypes import Array, as_array, as_count
from godwit.errors import InputError, ValueOverflowError, shown
from godwit.graph.csr import Graph
from godwit.graph.facts import in_offsets
from godwit.graph.foreign import not_a_graph
from godwit.placement import PlacedGraph
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.supersteps.first_gpu import run_on_first_gpu_with_room
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.query import DeviceQuery, GraphArgument
from godwit.worker.solve import make_poll

_LARGEST_DEGREE = np.iinfo(np.int32).max


@public
def core_number(
    graph: GraphArgument,
    *,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> CoreResult:
    """Compute the core number of every vertex, and the degeneracy of the graph (Seidman, 1983).

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], directed=False)
    >>> gw.core_number(graph).core.tolist()
    [2, 2, 2, 1]

    The k-core is the largest subgraph in which every vertex has at least k neighbours; the core number of a
    vertex is the largest k whose core contains it. In a directed graph the neighbours of a vertex are the
    targets of its out-arcs and the sources of its in-arcs, as in NetworkX: an arc in each direction counts
    twice. Parallel arcs count as often as they exist, and self-loops do not count. Weights do not matter.

    On CPUs by the parallel peeling of Kabir and Madduri ("Parallel k-core decomposition on multicore
    platforms", 2017), on a GPU by the same method in one kernel.

    :param devices: as for :func:`pagerank` by iterations, but no placed graph with ``duplication="1-hop"``.
        Of several GPUs the first alone computes if it has room for the graph, which is faster:
        ``.statistics.devices`` names it
    :param results: where ``.core`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of vertices whose core number is known so far
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.core`` (n, int32), ``.degeneracy``, ``.highest(count)``, ``.to_dict()``, ``.statistics``
    :raises InputError: a wrong argument, or several devices of the CPU
    :raises DeviceError: a device does not exist
    :raises GraphTooLargeError: the graph or the arrays of the run do not fit
    :raises ValueOverflowError: a vertex has 2**31 arcs or more
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    with (
        recorded(trace, "core numbers"),
        DeviceQuery(
            graph, devices, "core_number", "peeling", options, what="core numbers"
        ) as query,
    ):
        plain, statistics = query.graph, query.statistics
        _check_degrees(plain)
        if plain.vertex_count == 0:
            core: Any = np.empty(0, np.int32)
        elif query.placed is not None:
            core = _on_gpus(query, query.placed, options)
        else:
            poll = make_poll(options)
            with statistics.phase("run"):
                core, statistics.rounds[0] = core_numbers_on_cores(
                    plain, query.device.threads, poll
                )
            statistics.processed_items[0] = plain.vertex_count
            statistics.arcs_relaxed[0] = plain.arc_count * (1 + plain.directed)
        return CoreResult(plain, core, query.statistics, options.location)


@public
def k_core(
    graph: GraphArgument,
    k: int | None = None,
    *,
    core: CoreResult | Array | None = None,
    devices: DevicesArgument = None,
    timeout_s: float | None = None,
) -> Graph:
    """Return the k-core: the largest subgraph in which every vertex has at least k neighbours.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], directed=False)
    >>> list(gw.k_core(graph).ids)
    [0, 1, 2]

    Neighbours are counted as by :func:`core_number`. Vertices keep their ids, as in :meth:`Graph.subgraph`.

    :param k: at least 0; None: the degeneracy, which gives the innermost core
    :param core: core numbers of all vertices, if known already: a result of :func:`core_number` or its
        ``.core``
    :param devices: as for :func:`core_number`
    :param timeout_s: as for :func:`core_number`
    :returns: the induced subgraph of the vertices whose core number is at least k
    :raises InputError: a wrong argument
    """
    return _subgraph(graph, k, core, devices, timeout_s, is_shell=False)


@public
def k_shell(
    graph: GraphArgument,
    k: int | None = None,
    *,
    core: CoreResult | Array | None = None,
    devices: DevicesArgument = None,
    timeout_s: float | None = None,
) -> Graph:
    """Return the k-shell: the subgraph of the vertices of the k-core that are not in the (k + 1)-core.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], directed=False)
    >>> list(gw.k_shell(graph, 1).ids)
    [3]

    Parameters as of :func:`k_core`.

    :returns: the induced subgraph of the vertices whose core number is k
    :raises InputError: a wrong argument
    """
    return _subgraph(graph, k, core, devices, timeout_s, is_shell=True)


def _subgraph(
    graph: GraphArgument, k: Any, core: Any, devices: DevicesArgument, timeout_s: float | None,
    *, is_shell: bool,
) -> Graph:  # fmt: skip
    """Return the subgraph of the vertices whose core number is at least k, or k."""
    if k is not None:
        k = as_count(k, "k")
    if core is None:
        core = core_number(graph, devices=devices, timeout_s=timeout_s)
    plain = graph.graph if isinstance(graph, PlacedGraph) else graph
    if not isinstance(plain, Graph):
        raise not_a_graph(plain)
    numbers = host_array(core.core) if isinstance(core, CoreResult) else as_array(core, "core")
    if numbers.shape != (plain.vertex_count,) or numbers.dtype.kind not in "iu":
        raise InputError(
            f"core must be a result of core_number, or integers of shape ({plain.vertex_count},), got "
            f"{shown(core)}"
        )
    if k is None:
        k = int(numbers.max(initial=0))
    chosen = np.flatnonzero(numbers == k if is_shell else numbers >= k)
    return plain.subgraph(plain.ids.of(chosen))


def _check_degrees(graph: Graph) -> None:
    """Raise ValueOverflowError if the degree of a vertex does not fit int32."""
    if graph.arc_count <= _LARGEST_DEGREE // 2:
        return
    degrees = np.diff(graph.offsets)
    if graph.directed:
        degrees += np.diff(in_offsets(graph))
    largest = int(degrees.argmax())
    if degrees[largest] > _LARGEST_DEGREE:
        raise ValueOverflowError(
            f"core numbers are int32, and vertex {shown(graph.ids[largest])} has {degrees[largest]:,} arcs"
        )


def _on_gpus(query: DeviceQuery, placed: PlacedGraph, options: SolverOptions) -> Any:
    """Return core numbers, computed on the first GPU, or by a step program on several."""
    from godwit.algorithms.core.cuda import core_numbers_on_gpu

    placed.check_all_duplicated("core numbers are computed")
    poll = make_poll(options)
    outcome = run_on_first_gpu_with_room(
        placed,
        query.statistics,
        lambda whole: core_numbers_on_gpu(whole, options.gpu, options.location, poll),
    )
    if outcome is not None:
        return outcome.values
    core, query.statistics = core_numbers_by_steps(placed, options)
    return core
