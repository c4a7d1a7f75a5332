"""Triangles, and how many of those that neighbours could form there are: clustering, transitivity.

Arcs are oriented towards vertices of higher degree (rows.py), and each triangle is found once, at its
middle corner (cpu.py, triangles.cuh), by sets of marked neighbours: N. Chiba, T. Nishizeki, Arboricity and
subgraph listing algorithms, SIAM Journal on Computing 14 (1985); M. Latapy, Main-memory triangle
computations, Theoretical Computer Science 407 (2008); with hash tables on GPUs: S. Pandey et al., TRUST:
triangle counting reloaded on GPUs, IEEE TPDS 32 (2021). Counts are integers, so they do not depend on
devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from godwit.algorithms.power_iteration.query import checks_weights
from godwit.algorithms.triangles.cpu import sum_on_cores
from godwit.algorithms.triangles.result import ClusteringResult, TrianglesResult
from godwit.algorithms.triangles.rows import degree_rows, simple_graph, valued_graph
from godwit.arrays import ResultLocation
from godwit.dtypes import Array, as_flag
from godwit.graph.csr import Graph
from godwit.graph.facts import is_symmetric
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.query import DeviceQuery, GraphArgument
from godwit.worker.solve import make_poll


@public
def triangles(
    graph: GraphArgument,
    *,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> TrianglesResult:
    """Count the triangles of a graph, and those that each vertex is a corner of.

    >>> import godwit as gw
    >>> found = gw.triangles(gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], directed=False))
    >>> found.triangles.tolist(), found.total
    ([1, 1, 1, 0], 1)

    They are those of the simple undirected graph: directions, weights, arcs from a vertex to itself and
    parallel arcs do not matter. (NetworkX refuses directed graphs.) Counts do not depend on devices.

    Arcs are oriented towards vertices of higher degree, and sorted rows of these are kept with the graph: a
    placed graph has them on its GPUs. Several GPUs have the whole graph each, and share its arcs.

    :param devices: None: the first GPU, if there is one, else all cores; ``"cpu"``, or GPUs
    :param results: where ``.triangles`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of vertices done so far, with ``.total``
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.triangles`` (n), int64, ``.total``, ``.highest(count)``, ``.to_dict()``, ``.statistics``
    :raises InputError: several devices of the CPU, or another wrong argument
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: the rows, or a thread's array, do not fit into memory
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    with recorded(trace, "triangles"):
        plain, counts, total, statistics = _sum(
            "triangles", graph, devices, options, options.location
        )
    assert total is not None
    return TrianglesResult(plain, counts, total, statistics, options.location)


@public
def clustering(
    graph: GraphArgument,
    *,
    weighted: bool | None = None,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> ClusteringResult:
    """Compute the clustering coefficient of each vertex, as NetworkX defines it.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], directed=False)
    >>> gw.clustering(graph).clustering.round(3).tolist()
    [1.0, 1.0, 0.333, 0.0]

    That is the share of pairs of a vertex' neighbours that are neighbours themselves (D. Watts, S.
    Strogatz, Nature 393 (1998)); 0 for a vertex with fewer than two. By weights, a triangle counts the
    geometric mean of its three weights, each divided by the largest weight of the graph (J. Onnela et al.,
    Physical Review E 71 (2005)). In a directed graph, it is the share of the directed triangles that could
    be (G. Fagiolo, Physical Review E 76 (2007)), of which there are eight for each three vertices. Arcs
    from a vertex to itself do not count, nor does an arc count twice.

    Without weights the result does not depend on devices; by weights it differs by rounding. How it is
    computed, other parameters and errors are as for :func:`triangles`.

    :param weighted: None: triangles count by weights where the graph has some; True: the same, and a graph
        without is refused; False: every triangle counts 1
    :param results: where ``.clustering`` lives, as for :func:`bfs`
    :returns: ``.clustering`` (n), float64, ``.average``, ``.highest(count)``, ``.to_dict()``,
        ``.statistics``
    :raises InputError: a weight is not finite, none is positive, or an arc has several; and as of
        :func:`triangles`
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    with recorded(trace, "clustering"):
        plain, values, statistics = _clustering(graph, weighted, devices, options)
    return ClusteringResult(plain, values, statistics, options.location)


@public
def average_clustering(
    graph: GraphArgument,
    *,
    weighted: bool | None = None,
    count_zeros: bool = True,
    devices: DevicesArgument = None,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> float:
    """Compute the mean of the clustering coefficients of all vertices, as NetworkX defines it.

    >>> import godwit as gw
    >>> gw.average_clustering(gw.generators.complete(5))
    1.0

    Parameters and errors as for :func:`clustering`.

    :param count_zeros: False: only vertices whose coefficient is not 0 count
    :returns: the mean; 0 if no vertex counts
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress)
    count_zeros = as_flag(count_zeros, "count_zeros")
    with recorded(trace, "average clustering"):
        _, values, _ = _clustering(graph, weighted, devices, options)
    if not count_zeros:
        values = values[values != 0]
    return float(values.mean()) if len(values) else 0.0


@public
def transitivity(
    graph: GraphArgument,
    *,
    devices: DevicesArgument = None,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> float:
    """Compute the share of pairs of edges with a common vertex that are part of a triangle.

    >>> import godwit as gw
    >>> gw.transitivity(gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], directed=False))
    0.6

    That is three times the number of triangles, divided by the number of such pairs, of the simple
    undirected graph (M. Newman, D. Watts, S. Strogatz, PNAS 99 (2002)); 0 if there are none. Parameters and
    errors as for :func:`triangles`.
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress)
    with recorded(trace, "transitivity"):
        plain, _, total, _ = _sum("transitivity", graph, devices, options, ResultLocation())
    assert total is not None
    if total == 0:
        return 0.0
    degree = simple_graph(plain).out_degree()
    pairs = degree * (degree - 1)
    # Python's integers where the sum may not fit 64 bits.
    fits = int(degree.max()) * simple_graph(plain).arc_count < 2**63
    return 6 * total / (int(pairs.sum()) if fits else sum(pairs.tolist()))


def _clustering(
    graph: GraphArgument, weighted: Any, devices: DevicesArgument, options: SolverOptions
) -> tuple[Graph, Array, RunStatistics]:
    """Return the graph, the clustering coefficients of its vertices, and statistics."""

    def view(plain: Graph) -> Graph:
        by_weight, by_direction = _what_counts(plain, weighted)
        if by_weight or by_direction:
            return valued_graph(plain, weighted=by_weight)
        return simple_graph(plain)

    plain, sums, _, statistics = _sum("clustering", graph, devices, options, ResultLocation(), view)
    degree = simple_graph(plain).out_degree().astype(np.float64)
    if _what_counts(plain, weighted)[1]:
        # Pairs of arcs, but for those that lead to and from the same neighbour.
        arcs = _directed_degree(plain).astype(np.float64)
        pairs = arcs * (arcs - 1) - 2 * (arcs - degree)
    else:
        pairs = degree * (degree - 1) / 2
    values = np.zeros(len(degree))
    np.divide(sums, pairs, out=values, where=pairs > 0)
    return plain, values, statistics


def _what_counts(graph: Graph, weighted: Any) -> tuple[bool, bool]:
    """Return whether weights make a difference to clustering, and whether directions do.

    :raises InputError: weights are to count, and there are none, or one is not finite
    """
    by_weight = checks_weights(graph, weighted, "clustering")
    return by_weight, graph.directed and (by_weight or not is_symmetric(graph))


def _directed_degree(graph: Graph) -> Array:
    """Return the number of arcs that leave or reach each vertex of the graph without repeated ones."""

    def count() -> Array:
        plain = graph.without_weights() if graph.is_weighted else graph
        plain = plain.merge_parallel_arcs().remove_self_loops()
        return plain.out_degree() + plain.in_degree()

    found: Array = graph.cached("degree without repeated arcs", count)
    return found


def _sum(
    name: str, graph: GraphArgument, devices: DevicesArgument, options: SolverOptions,
    location: ResultLocation, view: Callable[[Graph], Graph] = simple_graph,
) -> tuple[Graph, Any, int | None, RunStatistics]:  # fmt: skip
    """Sum triangles at each vertex.

    :param name: name of the algorithm in messages
    :param location: where sums are wanted
    :param view: returns the simple graph that triangles are of, with values of edges as weights
    :returns: the graph; the number of triangles of each vertex, int64 (n), or the sum of their products,
        float64 (n); the number of triangles of the graph, None where edges have values; and statistics
    """
    with DeviceQuery(graph, devices, name, "oriented by degree", options) as query:
        plain, placed, statistics = query.graph, query.placed, query.statistics
        if placed is not None:
            placed.check_all_duplicated(f"{name} runs")
        with statistics.phase("number"):
            simple = view(plain)
        n = plain.vertex_count
        valued = simple.is_weighted
        if n == 0:
            none = np.empty(0, np.float64 if valued else np.int64)
            return plain, location.place(none), 0, statistics
        poll = make_poll(options, n)
        if placed is None:
            with statistics.phase("rows"):
                rows = degree_rows(simple)
            with statistics.phase("run"):
                by_position = sum_on_cores(rows, query.device.threads, poll)
            sums = by_position if rows.position is None else by_position[rows.position]
            total = None if valued else int(sums.sum()) // 3
            statistics.processed_items[0], statistics.arcs_relaxed[0] = n, len(rows.targets)
            return plain, sums, total, statistics
        from godwit.algorithms.triangles.cuda import TrianglesQuery

        query_on_gpus = TrianglesQuery(options.gpu, poll, statistics, location)
        sums, total = query_on_gpus.run(placed.reweighted(simple))
        return plain, sums, total, statistics
