"""PageRank: by iterations on the CPU (cpu.py) and GPUs (cuda.py), or by pushing residuals (push.py)."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.pagerank.cpu import power_iteration
from godwit.algorithms.pagerank.in_arcs import in_arcs_of
from godwit.algorithms.pagerank.push import push_residuals, push_rows
from godwit.algorithms.pagerank.result import PageRankResult
from godwit.algorithms.pagerank.settings import (
    MAX_ITERATIONS,
    Distribution,
    RankSettings,
    distribution,
    is_accelerated,
)
from godwit.dtypes import Array, as_count
from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph
from godwit.graph.rows import require_memory
from godwit.placement import PlacedGraph
from godwit.progress import ProgressArgument
from godwit.public import or_distributed
from godwit.runtime.gpu_options import OF_STEPS, GpuOptions, check_options, check_ranks
from godwit.runtime.protocol import Device
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps import place_positions
from godwit.trace import TraceArgument, recorded, seconds_since
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.query import (
    GraphArgument,
    Note,
    add_placement,
    devices_for_one_query,
    note_of,
    on_gpus_or_cores,
    placed_for_query,
    repeated_query,
)
from godwit.worker.solve import make_poll

_CORE_NS = 24.0
"""Nanoseconds that a core takes for each arc in all iterations (benchmarks/zoo.py)."""


@or_distributed(
    "godwit.algorithms.pagerank.distributed", "godwit.algorithms.pagerank.distributed_gpus"
)
def pagerank(
    graph: GraphArgument,
    damping: float = 0.85,
    *,
    tolerance: float = 1e-6,
    max_iterations: int | None = None,
    personalization: Distribution = None,
    initial: Distribution = None,
    weighted: bool | None = None,
    accelerated: bool | None = None,
    dtype: Any = "float64",
    execution: str = "auto",
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> PageRankResult:
    """Compute the PageRank of vertices, as NetworkX defines it; ranks sum to 1.

    >>> import godwit as gw
    >>> gw.pagerank(gw.generators.star(5)).rank.argmax()
    np.int64(0)

    A vertex without out-arcs (or whose weights sum to 0) distributes its rank to all vertices, in
    proportion to the personalization. The result is bit by bit the same for any number of threads, and on
    the same GPUs every time; between these, it differs by rounding, or, if rounding changes the number of
    iterations, within the tolerance. With ``execution="asynchronous"`` runs differ within the tolerance.

    :param damping: part of a rank that goes along arcs, in [0, 1); the rest goes to all vertices
    :param tolerance: converged when an iteration changes the ranks by less in sum (L1), or, with
        ``execution="asynchronous"``, one more iteration would. NetworkX's ``tol`` is per vertex: its
        ``tol=t`` is ``tolerance=n * t`` here. float32 ranks do not get below some 1e-7
    :param max_iterations: largest number of iterations; the result says whether it converged. None: 100
    :param personalization: distribution of restarts: an array of shape (n), or a mapping of some vertices
        (by id) to weights, the others having 0; scaled to sum 1. None: uniform
    :param initial: initial ranks, in the form of the personalization, such as those of a graph before it
        changed
    :param weighted: None: ranks are divided in proportion to weights where the graph has some; True: the
        same, and a graph without is refused; False: evenly
    :param accelerated: False: power iteration, as Graphalytics counts it. None: of graphs in which every
        arc has its reverse (of equal weight if weights count), iterations also extrapolate from the last
        two (Chebyshev semi-iteration: Golub and Varga, 1961), so that far fewer are needed; errors are
        within the same bound. True: the same, and other graphs are refused
    :param dtype: of the ranks, ``"float64"`` or ``"float32"``, which moves half as many bytes. Sums over
        vertices are float64 in both, and so are those over the arcs of a vertex on the CPU; GPUs compute
        these in the precision of the ranks or, of large graphs, a higher one
    :param execution: ``"bulk-synchronous"`` (also ``"auto"``): iterations, in each of which every vertex
        pulls from its in-arcs. ``"asynchronous"``: residual push; a vertex pushes its residual along
        out-arcs when that is large enough. There are no iterations, so ``max_iterations``, ``initial`` and
        ``accelerated`` are refused: it ends within the tolerance, or by ``timeout_s``. Most arcs are
        visited more often, and those that little rank reaches from the personalization never
    :param devices: as for :func:`bfs`, but, except with ``execution="asynchronous"``, CPU devices one at a
        time: ``"cpu"`` is all cores, ``"cpu:0"`` one; a number means all cores where there is no GPU
    :param results: where ``.rank`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of vertices updated so far, n per iteration; on CPUs it
        also has ``.rounds`` and ``.residual``
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.rank`` (n), ``.converged``, ``.iterations`` (None where there are none), ``.residual``,
        ``.highest(count)``, ``.to_dict()``, ``.statistics``
    :raises InputError: a wrong argument, a negative weight, or several devices of the CPU for iterations
    :raises DeviceError: a device is not there
    :raises RunTimeoutError: out of time
    """
    asked = (
        damping, tolerance, max_iterations, personalization, initial, weighted, accelerated, dtype,
        execution, devices, results, timeout_s, progress, trace, gpu,
    )  # fmt: skip
    repeated: PageRankResult | None = repeated_query(graph, "pagerank", asked)
    if repeated is not None:
        return repeated
    options = query_options(
        execution=execution, gpu=gpu, timeout_s=timeout_s, progress=progress, results=results
    )
    definition = {
        "damping": damping,
        "tolerance": tolerance,
        "personalization": personalization,
        "weighted": weighted,
        "dtype": dtype,
    }
    if options.execution == "asynchronous":
        of_iterations = {
            "max_iterations": max_iterations,
            "initial": initial,
            "accelerated": accelerated,
        }
        for name, value in of_iterations.items():
            if value is not None:
                raise InputError(
                    f"{name} is of iterations, and execution='asynchronous' has none: it pushes residuals, "
                    "from the personalization on"
                )
        with recorded(trace, "pagerank"):
            return _push(graph, devices, options, definition)
    devices = devices_for_one_query(graph, devices, options, _CORE_NS)
    with recorded(trace, "pagerank"), on_gpus_or_cores(graph, devices, "pagerank") as (
        plain, device, placed,
    ):  # fmt: skip
        settings = RankSettings.checked(plain, **definition)
        most = MAX_ITERATIONS if max_iterations is None else max_iterations
        run = _PageRankRun(
            plain,
            settings,
            as_count(most, "max_iterations", 1, 2**62),
            is_accelerated(plain, accelerated, weighted=settings.weighted),
            distribution(initial, plain, "initial"),
            options,
        )
        if placed is None:
            return run.on_cpu(device)
        result = run.on_gpus(placed, note_of(placed, "pagerank", asked))
        add_placement(result.statistics, placed, graph)
        return result


class _PageRankRun:
    """A run of PageRank by iterations."""

    def __init__(
        self, graph: Graph, settings: RankSettings, max_iterations: int, accelerated: bool,
        start: Array | None, options: SolverOptions,
    ) -> None:  # fmt: skip
        self.graph = graph
        self.settings = settings
        self.max_iterations = max_iterations
        self.accelerated = accelerated
        self.start = start
        self.options = options
        self.rank_bytes = graph.vertex_count * settings.number.itemsize

    def on_cpu(self, device: Device) -> PageRankResult:
        """Run on a device of the CPU."""
        graph, settings = self.graph, self.settings
        n, number = graph.vertex_count, settings.number
        statistics = RunStatistics((device.name,), "pull")
        if n == 0:
            return self._result(np.empty(0, number), statistics, 0, 0.0)
        require_memory(3 * self.rank_bytes, f"PageRank of {n:,} vertices")
        poll = make_poll(self.options)
        with statistics.phase("place"):
            arcs = in_arcs_of(graph, number, weighted=settings.weighted)
        with statistics.phase("run"):
            outcome = power_iteration(
                graph,
                arcs,
                np.full(n, 1 / n, number) if self.start is None else self.start.astype(number),
                np.full(1, 1 / n) if settings.teleport is None else settings.teleport,
                damping=settings.damping,
                tolerance=settings.tolerance,
                max_iterations=self.max_iterations,
                accelerated=self.accelerated,
                threads=device.threads,
                poll=poll,
            )
            # Roundings of many iterations add up.
            outcome.rank[:] /= outcome.rank.sum(dtype=np.float64)
        statistics.rounds = np.array([outcome.iterations], np.int64)
        statistics.processed_items = statistics.rounds * n
        statistics.arcs_relaxed = statistics.rounds * graph.arc_count
        return self._result(outcome.rank, statistics, outcome.iterations, outcome.residual)

    def on_gpus(self, placed: PlacedGraph, note: Note | None) -> PageRankResult:
        """Run on the devices of a placed graph, an iteration per superstep.

        :param note: as of :func:`godwit.worker.query.note_of`
        """
        n, settings, options = self.graph.vertex_count, self.settings, self.options
        duplication = placed.duplication
        one_hop = None if duplication is None else duplication == "1-hop"
        devices = placed.context.devices
        check_ranks(devices, options.gpu, one_hop=bool(one_hop))
        check_options(devices, options.gpu, "PageRank by iterations", OF_STEPS)
        if n == 0:
            statistics = RunStatistics(placed.context.device_names, "pull")
            return self._result(np.empty(0, settings.number), statistics, 0, 0.0)
        from godwit.algorithms.pagerank.cuda import RankQuery, rank_on_gpus

        query = RankQuery(
            settings.number, settings.weighted, settings.teleport, self.start,
            settings.damping, settings.tolerance, self.max_iterations, self.accelerated,
            options.location, options.gpu, one_hop,
        )  # fmt: skip
        steps = place_positions(placed)

        def answer(placed: PlacedGraph) -> PageRankResult:
            if options.location.gpu is None:
                require_memory(self.rank_bytes, f"PageRank of {n:,} vertices")
            statistics = RunStatistics(placed.context.device_names, "pull")
            with statistics.run() as run:
                outcome = rank_on_gpus(steps, query, make_poll(options))
                run.parts = outcome.seconds
            statistics.count_later(
                partial(_count_iterations, outcome.iterations, outcome.owned, outcome.arcs)
            )
            return self._result(outcome.rank, statistics, outcome.iterations, outcome.residual)

        result = answer(placed)
        if note is not None:
            note(answer)
        return result

    def _result(
        self, rank: Any, statistics: RunStatistics, iterations: int, residual: float
    ) -> PageRankResult:
        return PageRankResult(
            self.graph,
            rank,
            statistics,
            iterations=iterations,
            converged=residual < self.settings.tolerance,
            residual=residual,
            location=self.options.location,
        )


def _count_iterations(
    iterations: int, owned: Array, arcs: Array, statistics: RunStatistics
) -> None:
    """Fill in the work of iterations on the vertices that devices own, and in-arcs of these."""
    statistics.rounds = np.full(len(owned), iterations, np.int64)
    statistics.processed_items = iterations * owned
    statistics.arcs_relaxed = iterations * arcs


def _push(
    graph: GraphArgument, devices: DevicesArgument, options: SolverOptions,
    definition: dict[str, Any],
) -> PageRankResult:  # fmt: skip
    """Run PageRank by a vertex program that pushes residuals."""
    plain = graph.graph if isinstance(graph, PlacedGraph) else graph
    if not isinstance(plain, Graph):
        raise not_a_graph(plain)
    settings = RankSettings.checked(plain, **definition)
    begin = perf_counter()
    rows = push_rows(plain, settings)
    prepared_s = seconds_since(begin, "place")
    pushed: GraphArgument = rows.graph
    if isinstance(graph, PlacedGraph):
        pushed = graph if rows.graph is plain else graph.reweighted(rows.graph)
    with placed_for_query(pushed, devices, None) as placed:
        result = push_residuals(plain, placed, rows, settings, options)
        add_placement(result.statistics, placed, pushed)
        seconds = result.statistics.seconds
        seconds["place"] = seconds.get("place", 0.0) + prepared_s
        return result
