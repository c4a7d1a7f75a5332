"""Minimum and maximum spanning forests.

An edge is the arc from its smaller vertex, and the index of that arc is its id. Edges are ordered by
weight, and edges of equal weight by id, so the forest is unique and does not depend on devices. On CPUs
Kruskal's algorithm filters edges (cpu.py), on a GPU Boruvka's joins trees (spanning_forest.cuh).
"""

from __future__ import annotations

import numpy as np

from godwit.algorithms.paths.weights import unsuitable_weight, uses_weights
from godwit.algorithms.spanning_forest.cpu import ForestMarks, forest_on_cpu
from godwit.algorithms.spanning_forest.result import SpanningForestResult
from godwit.dtypes import Array, as_flag
from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph
from godwit.placement import PlacedGraph
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps import place_positions
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.query import DeviceQuery, GraphArgument
from godwit.worker.solve import make_poll


@public
def minimum_spanning_forest(
    graph: GraphArgument,
    maximum: bool = False,
    *,
    weighted: bool | None = None,
    devices: DevicesArgument = None,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> SpanningForestResult:
    """Find the minimum or maximum spanning forest of an undirected graph: a tree for each component.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 0, 1, 3], [1, 2, 2, 4], [5, 9, 3, 1], directed=False)
    >>> result = gw.minimum_spanning_forest(graph)
    >>> result.sources.tolist(), result.targets.tolist(), result.total_weight, result.count
    ([0, 1, 3], [1, 2, 4], 9, 2)

    Of edges of equal weight the one that comes first in the order of the graph's arcs is preferred, so the
    forest is unique, and the same on all devices. Of parallel edges the lightest counts, and self-loops
    never do. Weights may be negative, zero or infinite.

    :param graph: an undirected graph, or one placed on devices by :func:`place`
    :param maximum: True for the forest of greatest weight; of equal weights the first edge is preferred
    :param weighted: True to count weights, False for weights that are all equal; None: if there are some
    :param devices: as for :func:`pagerank`. Of several GPUs, this runs on the first, whose memory must hold
        the whole graph, as more would wait for each other: ``.statistics.devices`` names it
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of edges looked at so far
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.sources``, ``.targets`` and ``.weights`` of the edges (k), ``.total_weight``, ``.count`` of
        trees, ``.forest``, the forest as a graph, ``.edges()`` by id, ``.arcs``, ``.statistics``
    :raises InputError: the graph is directed, a weight is NaN, or another wrong argument
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: the graph or a list of edges does not fit
    :raises RunTimeoutError: out of time

    Sources: Osipov, Sanders, Singler, The Filter-Kruskal Minimum Spanning Tree Algorithm, ALENEX 2009;
    Fallin, Gonzalez, Seo, Burtscher, A High-Performance MST Implementation for GPUs, SC 2023.
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress)
    maximum = as_flag(maximum, "maximum")
    plain = graph.graph if isinstance(graph, PlacedGraph) else graph
    if not isinstance(plain, Graph):
        raise not_a_graph(plain)
    if plain.directed:
        raise InputError(
            "spanning forests are of undirected graphs, and this one is directed: graph.symmetrize() makes "
            "it undirected"
        )
    weights = plain.weights if uses_weights(plain, weighted) else None
    if weights is not None:
        _check_no_nan(plain, weights)
    with (
        recorded(trace, "minimum_spanning_forest"),
        DeviceQuery(
            graph, devices, "minimum_spanning_forest", "filter-kruskal", options,
            what="spanning forests", takes=(),
        ) as query,
    ):  # fmt: skip
        statistics = query.statistics
        if len(statistics.devices) > 1:
            statistics.begin_on([query.device.name])
        if query.placed is not None:
            statistics.solver = "boruvka"
        if plain.arc_count == 0:
            marked = ForestMarks(np.zeros(1, np.uint64), 0, 0, 0)
        elif query.placed is None:
            with statistics.phase("run"):
                marked = forest_on_cpu(
                    plain.rows, weights, maximum, query.device.threads, make_poll(options)
                )
        else:
            marked = _on_gpu(query.placed, weights, maximum, statistics, options)
        statistics.processed_items[0], statistics.rounds[0] = marked.edges, marked.rounds
    return SpanningForestResult(
        plain, marked, statistics, is_maximum=maximum, is_weighted=weights is not None
    )


def _check_no_nan(graph: Graph, weights: Array) -> None:
    """Raise InputError, naming the arc, if a weight is NaN; looked for once per graph."""
    if weights.dtype.kind != "f" or len(weights) == 0:
        return
    if graph.cached("has NaN weights", lambda: bool(np.isnan(weights.min()))):
        arc = int(np.argmax(np.isnan(weights)))
        raise unsuitable_weight(graph, arc, "spanning forests need weights that can be ordered")


def _on_gpu(
    placed: PlacedGraph,
    weights: Array | None,
    maximum: bool,
    statistics: RunStatistics,
    options: SolverOptions,
) -> ForestMarks:
    """Run on the GPU, or on the first of several, in the memory of all if need be.

    :raises GraphTooLargeError: need against free
    """
    from godwit.algorithms.spanning_forest.cuda import forest_on_gpu

    placed.check_all_duplicated("spanning forests run")
    poll = make_poll(options)
    steps = place_positions(placed)

    with statistics.phase("run"):
        marked = steps.run_on_first(
            "spanning forest",
            lambda whole: forest_on_gpu(whole, weights, maximum, options.gpu, poll),
        )
    statistics.split_run(marked.seconds)
    return marked
