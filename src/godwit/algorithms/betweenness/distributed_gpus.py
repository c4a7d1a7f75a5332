"""Betweenness centrality on the GPUs of several processes, as on the GPUs of one (cuda.py).

Every process has the whole graph. With enough sources, its GPU has all of it, too, and searches from a
share of them; nothing is sent before the sums are added, in the order of the processes. With few sources,
or where the graph does not fit a GPU, all GPUs search from a source together, each on its own rows.
"""

from __future__ import annotations

import numpy as np

from godwit.algorithms.betweenness import (
    Scales,
    check_scale,
    choose_sources,
    sums_of_cores,
    sums_of_gpus,
)
from godwit.algorithms.betweenness.cuda import DependencyQuery, gpus_apart, search_from_all
from godwit.algorithms.betweenness.distributed import DistributedBetweennessResult
from godwit.algorithms.betweenness.path_counts import check_lengths
from godwit.algorithms.paths.weights import uses_weights
from godwit.distributed.gpu_graph import GpuGraph
from godwit.dtypes import Array, as_flag
from godwit.errors import GraphTooLargeError
from godwit.graph.ids import Sources
from godwit.graph.rows import require_memory
from godwit.progress import ProgressArgument
from godwit.runtime.cuda.devices import gpu_index
from godwit.runtime.cuda.memory import free_memory_bytes
from godwit.runtime.gpu_options import (
    OF_FRONTIERS,
    OF_STEPS,
    OF_WORKERS,
    GpuOptions,
    check_options,
)
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps.run import copies_by_host
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.solve import make_poll


def betweenness_centrality(
    graph: GpuGraph,
    *,
    sources: Sources | None = None,
    samples: int | None = None,
    seed: int = 0,
    normalized: bool = True,
    scale: str = "all",
    endpoints: bool = False,
    weighted: bool | None = None,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    gpu: GpuOptions | None = None,
) -> DistributedBetweennessResult:
    """Return the betweenness of a range of vertices; see :func:`godwit.betweenness_centrality`.

    :param progress: is called with the number of this process' sources begun so far
    """
    options = query_options(timeout_s=timeout_s, progress=progress, gpu=gpu)
    same = sources, samples, seed, normalized, scale, endpoints, weighted, options.gpu
    with graph.running("betweenness_centrality", *same):
        plain, own = graph.graph, graph.vertices
        scale = check_scale(scale)
        normalized = as_flag(normalized, "normalized")
        endpoints = as_flag(endpoints, "endpoints")
        weighted = uses_weights(plain, weighted)
        chosen = choose_sources(plain, sources, samples, seed)
        what = "betweenness by weights" if weighted else "betweenness"
        known = OF_WORKERS + OF_FRONTIERS if weighted else OF_STEPS
        check_options(graph.steps.devices, options.gpu, what, known)
        if weighted:
            check_lengths(plain)
        require_memory(16 * plain.vertex_count, "betweenness centrality")
        statistics = RunStatistics((graph.device,), "brandes")
        query = _Query(graph, chosen, endpoints, weighted, statistics, options)
        totals = np.zeros(len(own)) if len(chosen) == 0 else query.totals()
        if scale == "all":
            here = chosen[(chosen >= own.start) & (chosen < own.stop)] - own.start
            Scales.of(plain, len(chosen), normalized, endpoints).apply(here, totals)
        graph.processes.report(statistics)
        return DistributedBetweennessResult(graph, chosen.tolist(), totals, statistics)


class _Query:
    """A checked query with at least one source, within a block of :meth:`GpuGraph.running`."""

    def __init__(
        self, graph: GpuGraph, sources: Array, endpoints: bool, weighted: bool,
        statistics: RunStatistics, options: SolverOptions,
    ) -> None:  # fmt: skip
        self._graph, self._steps = graph, graph.steps
        self._sources = sources
        self._endpoints, self._weighted = endpoints, weighted
        self._statistics, self._options = statistics, options
        # GPUs search together only without weights, and only if kernels reach the memory of all.
        self._is_apart = weighted or copies_by_host(graph.steps, options.gpu)

    def totals(self) -> Array:
        """Return the sums of dependencies on the vertices of this process, not scaled."""
        rank, count = self._graph.processes.rank, self._graph.processes.count
        apart = count
        if not self._is_apart:
            apart = self._steps.largest(gpus_apart(self._steps, len(self._sources)))
        if apart:
            own = self._sources[rank::apart] if rank < apart else self._sources[:0]
            sums = self._sums_apart(own)
            if not self._steps.any(sums is None) and sums is not None:
                return self._added_up(sums)
            self._steps.copies_fit = False
            self._graph.drop_whole()
        totals = self._totals_together()
        if totals is None:  # too many paths
            return self._added_up(self._sums_of_cores(self._sources[rank::count]))
        return totals

    def _sums_apart(self, sources: Array) -> Array | None:
        """Return the sums over sources of this GPU, which has the whole graph; None if it has no room.

        :raises GraphTooLargeError: it has no room, and the GPUs cannot search together
        """
        graph = self._graph
        if len(sources) == 0:
            return np.zeros(graph.vertex_count)
        try:
            sums = sums_of_gpus(
                graph.whole(), sources, self._endpoints, False, self._weighted, Scales(),
                self._statistics, self._options,
            )  # fmt: skip
        except GraphTooLargeError as error:
            graph.drop_whole()
            if not self._is_apart:
                return None
            raise GraphTooLargeError(
                f"{error}. By weights, and where GPUs do not reach each other's memory, each of them "
                "searches apart, with the whole graph"
            ) from error
        if free_memory_bytes(gpu_index(self._steps.devices[0])) < graph.graph.nbytes:
            graph.drop_whole()  # for other queries
        return self._sums_of_cores(sources) if sums is None else sums.vertices

    def _sums_of_cores(self, sources: Array) -> Array:
        """Return the sums over sources that the cores of this process search from."""
        with self._statistics.phase("run"):
            return sums_of_cores(
                self._graph.graph, sources, self._endpoints, False, self._weighted,
                self._statistics, self._options,
            ).vertices  # fmt: skip

    def _added_up(self, sums: Array) -> Array:
        """Return the sums of all processes on the vertices of this one, added in their order."""
        received, _, _ = self._graph.processes.exchange(sums, np.diff(self._graph.bounds))
        totals: Array = received.reshape(self._graph.processes.count, -1).sum(axis=0)
        return totals

    def _totals_together(self) -> Array | None:
        """Return the sums on the vertices of this process, found by all GPUs; None: cores have to."""
        query = DependencyQuery(self._sources, self._endpoints, False, self._options.gpu)
        with self._statistics.phase("run"):
            outcome = search_from_all(
                self._steps, query, make_poll(self._options, len(self._sources))
            )
        if outcome.vertices is None:
            self._statistics.split_run({"overflow": sum(outcome.seconds.values())})
            self._statistics.begin_on(["cpu"])
            return None
        self._statistics.split_run(outcome.seconds)
        self._statistics.processed_items = outcome.visited
        self._statistics.arcs_relaxed = outcome.examined
        self._statistics.rounds = outcome.supersteps
        totals: Array = outcome.vertices
        return totals
