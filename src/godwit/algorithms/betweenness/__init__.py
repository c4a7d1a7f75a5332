"""Betweenness centrality of vertices and arcs, exact or from sampled sources.

Definition and scales of NetworkX: for every ordered pair (s, t), the share of the shortest paths from s to
t that lead through v, added up; undirected pairs count once. Shortest paths have the fewest arcs or, on
request, the least sum of weights.

Sums of dependencies (Brandes, 2001) are computed on the CPU by cpu.py; on GPUs by a kernel in supersteps
(cuda.py) or, by weights, by a step program (cuda_weighted.py). This module chooses sources and scales the
sums.

With k of n sources, each source represents N / k, N being the number of vertices at which a path through v
may begin: n, or n - 1 if ends do not count. A vertex that is a source itself is, if ends do not count, no
inner vertex of its own paths, and is represented by k - 1 sources.
"""

from __future__ import annotations

import random
from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.betweenness.cpu import DependencySums, sum_dependencies, sums_of_edges
from godwit.algorithms.betweenness.path_counts import check_lengths
from godwit.algorithms.betweenness.result import BetweennessResult
from godwit.algorithms.paths.weights import uses_weights
from godwit.distributed.graph import DistributedGraph
from godwit.dtypes import Array, as_count, as_flag
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.ids import Sources
from godwit.placement import PlacedGraph, default_step_devices, names_devices
from godwit.progress import ProgressArgument
from godwit.public import or_distributed
from godwit.runtime.gpu_options import (
    OF_FRONTIERS,
    OF_STEPS,
    OF_WORKERS,
    GpuOptions,
    check_options,
)
from godwit.runtime.polling import CoresAreFasterError, HandOver
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps import place_positions
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.query import (
    GraphArgument,
    SearchTime,
    add_placement,
    devices_for_one_query,
    on_gpus_or_cores,
)
from godwit.worker.solve import make_poll

_TIME_ON_A_CORE = SearchTime(vertex_ns=15.0, arc_ns=3.0)  # benchmarks/zoo.py
_CORE_NS = 12.0
"""Nanoseconds that a core takes for each arc in a search (benchmarks/zoo.py)."""


@or_distributed(
    "godwit.algorithms.betweenness.distributed", "godwit.algorithms.betweenness.distributed_gpus"
)
def betweenness_centrality(
    graph: GraphArgument,
    *,
    sources: Sources | None = None,
    samples: int | None = None,
    seed: int = 0,
    normalized: bool = True,
    scale: str = "all",
    endpoints: bool = False,
    edges: bool = False,
    weighted: bool | None = None,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> BetweennessResult:
    """Compute the betweenness of vertices, and of edges on request, as NetworkX defines it (Brandes, 2001).

    >>> import godwit as gw
    >>> gw.betweenness_centrality(gw.generators.path(3)).centrality.tolist()
    [0.0, 1.0, 0.0]

    Shortest paths have the least sum of weights; in a graph without weights, or with ``weighted=False``
    (NetworkX's default), the fewest arcs. Self-loops are on no shortest path. Parallel arcs are paths
    of their own, which NetworkX counts once: call ``merge_parallel_arcs()`` first for its answer.
    Numbers of paths do not overflow: where they exceed the float64 of GPUs, the CPU computes
    everything, as ``.statistics.devices`` says. The result is bit by bit the same for any number of
    threads, and, except by weights, on the same GPUs every time; between these, it differs by rounding.

    All GPUs search from one source together; from many sources each GPU has the whole graph and a share of
    them, and each block of threads searches from a source of its own where memory and the graph's shape
    allow it (not by weights). On the CPU a thread searches from one source at a time, so fewer sources than
    threads leave some idle. A thread takes some 30 bytes a vertex, and 4 an arc (for edges 8 and 16 more,
    by weights 8 and 20 to 28 more); where memory is short, fewer threads run.

    :param sources: vertices to search from (by id, as for :func:`bfs`); None: all
    :param samples: number of sources to draw; the result estimates that of all. NetworkX's ``k``, with the
        same draw for the same seed. NetworkX gives NaN to a vertex that is the only source, this gives 0
    :param seed: of the draw, an integer
    :param normalized: divide by the number of pairs of other vertices (of all pairs, for edges and with
        ``endpoints``), ordered if directed
    :param scale: ``"all"``: sums over some sources are scaled up to estimate those over all vertices;
        ``"sum"``: the plain sum of the sources' dependencies, as in GAP, to which ``normalized`` does not
        apply. Of undirected graphs it is twice NetworkX's ``betweenness_centrality_subset`` with all
        targets
    :param endpoints: count the ends of a path as on it
    :param edges: compute ``.edge_centrality``, too; by weights on the CPU only
    :param weighted: None: weights are lengths of arcs where the graph has some, as with NetworkX's
        ``weight="weight"``; True: the same, and a graph without is refused; False: every arc has length 1.
        Lengths are added and compared as integers where weights are integers, else in float64
    :param devices: as for :func:`bfs`, but CPU devices one at a time: ``"cpu"`` is all cores, ``"cpu:0"``
        one, and a number means all cores where there is no GPU; None also leaves small work, and work by
        weights, to the CPU, and gives long work (2**36 arcs, over all searches) to all GPUs
    :param results: where the arrays live, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of sources begun so far, with ``.total``
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.centrality`` (n), ``.edge_centrality`` (m, by arc; both arcs of an edge have the edge's),
        ``.sources``, ``.highest(count)``, ``.to_dict()``, ``.statistics``
    :raises InputError: a wrong argument, several devices of the CPU, edges by weights on GPUs, or a weight
        that is zero, negative or not finite, or lost in a sum of float64
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: the arrays of one thread, or those of GPUs, do not fit into memory
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    is_choice = graph.names_devices if isinstance(graph, PlacedGraph) else names_devices(devices)
    if devices is None and isinstance(graph, Graph):
        searches = _number_of_searches(graph, sources, samples)
        core_ns = searches * _CORE_NS
        if weighted is not False and graph.is_weighted:
            devices = "cpu"
        else:
            devices = devices_for_one_query(graph, devices, options, core_ns, by_levels=True)
        if devices is None:
            devices = default_step_devices(graph, searches=searches)
    with recorded(trace, "betweenness"), on_gpus_or_cores(graph, devices, "betweenness") as (
        plain, device, placed,
    ):  # fmt: skip
        scale = check_scale(scale)
        normalized = as_flag(normalized, "normalized")
        endpoints, edges = as_flag(endpoints, "endpoints"), as_flag(edges, "edges")
        weighted = uses_weights(plain, weighted)
        chosen = choose_sources(plain, sources, samples, seed)
        if weighted:
            check_lengths(plain)
        used = (device,) if placed is None else placed.context.devices
        if placed is not None:
            _check_placed(placed, edges=edges, weighted=weighted)
        if weighted:
            check_options(used, options.gpu, "betweenness by weights", OF_WORKERS + OF_FRONTIERS)
        else:
            check_options(used, options.gpu, "betweenness", OF_STEPS)
        statistics = RunStatistics(tuple(device.name for device in used), "brandes")
        scales = (
            Scales.of(plain, len(chosen), normalized, endpoints) if scale == "all" else Scales()
        )
        sums = None
        if placed is not None and len(chosen) > 0:
            if not (is_choice or weighted or options.asks_for_kernels):
                options = replace(options, hand_over=_hand_over(plain, len(chosen)))
            sums = sums_of_gpus(
                placed, chosen, endpoints, edges, weighted, scales, statistics, options
            )
            options = options.after(statistics.seconds.get("slow", 0.0))
        with statistics.phase("run"):
            if sums is None:
                threads = device.threads if device.kind == "cpu" else None
                sums = sums_of_cores(
                    plain, chosen, endpoints, edges, weighted, statistics, options, threads
                )
                scales.apply(chosen, sums.vertices)
            arcs = sums.arcs
            if arcs is not None and not plain.directed:
                arcs = sums_of_edges(plain, arcs, weighted)
            if arcs is not None:
                arcs *= scales.edges
        if placed is not None:
            add_placement(statistics, placed, graph)
        return BetweennessResult(
            plain, chosen, sums.vertices, arcs, statistics, location=options.location
        )


def _hand_over(graph: Graph, sources: int) -> HandOver:
    """Return the time after which all cores take over from a GPU; each core searches alone."""
    rounds = -(-sources // config.thread_count())
    return HandOver(rounds * _TIME_ON_A_CORE.seconds(graph), sources, unfinished=1)


def _check_placed(placed: PlacedGraph, *, edges: bool, weighted: bool) -> None:
    if weighted and edges:
        raise InputError(
            "by weights, GPUs have the betweenness of vertices only: devices='cpu' has that of edges "
            "(or edges=False, or weighted=False)"
        )
    placed.check_all_duplicated("betweenness runs")


def sums_of_cores(
    graph: Graph, sources: Array, endpoints: bool, edges: bool, weighted: bool,
    statistics: RunStatistics, options: SolverOptions, threads: int | None = None,
) -> DependencySums:  # fmt: skip
    """Sum dependencies on the cores of this process, and count the work."""
    sums = sum_dependencies(
        graph, sources, endpoints=endpoints, edges=edges, weighted=weighted, threads=threads,
        poll=make_poll(options, len(sources)),
    )  # fmt: skip
    statistics.processed_items = np.array([sums.vertices_visited], np.int64)
    statistics.arcs_relaxed = np.array([sums.arcs_examined], np.int64)
    return sums


def sums_of_gpus(
    placed: PlacedGraph, sources: Array, endpoints: bool, edges: bool, weighted: bool,
    scales: Scales, statistics: RunStatistics, options: SolverOptions,
) -> DependencySums | None:  # fmt: skip
    """Sum dependencies on GPUs, and scale those on vertices.

    :returns: None if there are too many paths for float64, or cores are faster, and the CPU has to
    """
    if weighted:
        from godwit.algorithms.betweenness.cuda_weighted import sum_weighted_dependencies

        sums = sum_weighted_dependencies(placed, sources, statistics, options, endpoints=endpoints)
        if sums is not None:
            scales.apply(sources, sums.vertices)
            return sums
        statistics.seconds = {"overflow": sum(statistics.seconds.values())}
        statistics.begin_on(["cpu"])
        return None
    from godwit.algorithms.betweenness.cuda import DependencyQuery, source, sum_on_gpus

    query = DependencyQuery(
        sources, endpoints, edges, options.gpu, options.location, scales.vertices, scales.sources
    )
    if options.hand_over is not None and "betweenness" in placed.slow:
        statistics.begin_on(["cpu"])
        return None
    poll = make_poll(options, len(sources))
    steps = place_positions(placed, source)
    try:
        with statistics.phase("run"):
            outcome = sum_on_gpus(steps, query, poll)
    except CoresAreFasterError as slow:
        placed.slow.add("betweenness")
        statistics.split_run({"slow": slow.elapsed_s})
        statistics.begin_on(["cpu"])
        return None
    if outcome.vertices is None:
        statistics.split_run({"overflow": sum(outcome.seconds.values())})
        statistics.begin_on(["cpu"])
        return None
    statistics.split_run(outcome.seconds)
    statistics.processed_items = outcome.visited
    statistics.arcs_relaxed = outcome.examined
    statistics.rounds = outcome.supersteps
    return DependencySums(
        outcome.vertices, outcome.arcs, int(outcome.visited.sum()), int(outcome.examined.sum())
    )


def _number_of_searches(graph: Graph, sources: Any, samples: Any) -> int:
    """Return about the number of searches, of arguments that have not been checked."""
    if isinstance(samples, int):
        return min(samples, graph.vertex_count)
    if sources is None:
        return graph.vertex_count
    try:
        return len(sources) if isinstance(sources, Set) else int(np.size(sources))
    except (TypeError, ValueError):  # lists of several lengths
        return 0


def choose_sources(graph: Graph, sources: Sources | None, samples: int | None, seed: int) -> Array:
    """Return the positions of given or drawn sources, or of all vertices; int64, ascending and unique.

    Draws as NetworkX does from Python's generator with an integer seed: the same sources.

    :raises InputError: both are given, a source is no vertex, there are too few vertices, or the seed is
        wrong, even where nothing is drawn
    """
    drawn = draw_sources(graph.vertex_count, sources, samples, seed)
    return graph.ids.one_or_several(sources, "sources") if drawn is None else drawn


def draw_sources(count: int, sources: Any, samples: int | None, seed: int) -> Array | None:
    """Return the positions of drawn sources, or of all vertices; None if sources are given.

    :param count: number of vertices
    :raises InputError: as of :func:`choose_sources`
    """
    seed = as_count(seed, "seed")
    if sources is not None and samples is not None:
        raise InputError(
            "give sources or samples, not both; "
            f"got sources={shown(sources)} and samples={shown(samples)}"
        )
    if sources is not None:
        return None
    if samples is None:
        return np.arange(count, dtype=np.int64)
    samples = as_count(samples, "samples", 1)
    if samples > count:
        raise InputError(f"samples must be at most the number of vertices, {count}, got {samples}")
    drawn = random.Random(seed).sample(range(count), samples)
    return np.sort(np.array(drawn, np.int64))


def check_scale(scale: Any) -> str:
    """Return the scale; InputError if it is neither ``"all"`` nor ``"sum"``."""
    if not isinstance(scale, str) or scale not in ("all", "sum"):
        raise InputError(f"scale must be 'all' or 'sum', got {shown(scale)}")
    return scale


@dataclass(frozen=True)
class Scales:
    """Factors that turn sums of dependencies into betweenness as NetworkX defines it.

    :param vertices: of the sums of vertices that are not sources
    :param sources: of those of sources
    :param edges: of the sums of edges
    """

    vertices: float = 1.0
    sources: float = 1.0
    edges: float = 1.0

    @classmethod
    def of(
        cls, graph: Graph | DistributedGraph, k: int, normalized: bool, endpoints: bool
    ) -> Scales:
        """Return the factors for sums over k sources."""
        n = graph.vertex_count
        vertices, sources = _scales(n, k, normalized, graph.directed, endpoints)
        return cls(vertices, sources, _scales(n, k, normalized, graph.directed, True)[0])

    def apply(self, sources: Array, vertices: Array) -> None:
        """Scale (n) sums of vertices, in place."""
        of_sources = vertices[sources] * self.sources
        vertices *= self.vertices
        vertices[sources] = of_sources


def rescale(
    graph: Graph, sources: Array, vertices: Array, edges: Array | None, normalized: bool,
    endpoints: bool,
) -> None:  # fmt: skip
    """Scale sums of dependencies, in place, to betweenness as NetworkX defines it.

    :param vertices: (n) sums of vertices
    :param edges: (m) sums of edges, by arc
    """
    scales = Scales.of(graph, len(sources), normalized, endpoints)
    scales.apply(sources, vertices)
    if edges is not None:
        edges *= scales.edges


def _scales(
    n: int, k: int, normalized: bool, directed: bool, endpoints: bool
) -> tuple[float, float]:
    """Return two factors for sums over k of n sources: for vertices that are not sources, and for sources.

    If endpoints are not counted, the sum of an only source (k = 1) is 0, and so is its betweenness, where
    NetworkX returns NaN.
    """
    ends = n if endpoints else n - 1
    if ends < 2 or k == 0:
        return 1.0, 1.0
    pairs = ends - 1 if normalized else (1 if directed else 2) / ends
    if endpoints:
        return 1 / (k * pairs), 1 / (k * pairs)
    if k == n:
        return 1 / (ends * pairs), 1 / (ends * pairs)
    return 1 / (k * pairs), 1 / (max(1, k - 1) * pairs)
