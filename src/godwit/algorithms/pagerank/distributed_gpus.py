"""PageRank on the GPUs of several processes: the iterations of one process' GPUs (cuda.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.pagerank.cuda import RankOutcome, RankQuery, rank_on_gpus
from godwit.algorithms.pagerank.distributed import DistributedPageRankResult
from godwit.algorithms.pagerank.settings import (
    MAX_ITERATIONS,
    Distribution,
    RankSettings,
    distribution,
    is_accelerated,
)
from godwit.distributed.gpu_graph import GpuGraph
from godwit.dtypes import as_count
from godwit.errors import GraphTooLargeError
from godwit.progress import ProgressArgument
from godwit.runtime.gpu_options import OF_STEPS, GpuOptions, check_options
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps.tiled_rows import KeptTiles
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.solve import make_poll


def pagerank(
    graph: GpuGraph,
    damping: float = 0.85,
    *,
    tolerance: float = 1e-6,
    max_iterations: int | None = None,
    personalization: Distribution = None,
    initial: Distribution = None,
    weighted: bool | None = None,
    accelerated: bool | None = None,
    dtype: Any = "float64",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    gpu: GpuOptions | None = None,
) -> DistributedPageRankResult:
    """Return the PageRank of a range of vertices; see :func:`godwit.pagerank`."""
    options = query_options(timeout_s=timeout_s, progress=progress, gpu=gpu)

    definition = {
        "damping": damping,
        "tolerance": tolerance,
        "personalization": personalization,
        "weighted": weighted,
        "dtype": dtype,
    }

    def run() -> DistributedPageRankResult:
        return _run(graph, definition, max_iterations, initial, accelerated, options)

    try:
        return run()
    except GraphTooLargeError:  # in some process, which all know
        tiles = graph.steps.kept(KeptTiles)
        if not tiles.fit:
            raise
        tiles.fit = False
        return run()  # rows alone may fit


def _run(
    graph: GpuGraph, definition: dict[str, Any], max_iterations: int | None, initial: Distribution,
    accelerated: bool | None, options: SolverOptions,
) -> DistributedPageRankResult:  # fmt: skip
    """Return the ranks.

    :param definition: arguments of :meth:`RankSettings.checked`
    """
    same = definition, initial, max_iterations, accelerated, options.gpu
    with graph.running("pagerank", *same):
        plain = graph.graph
        check_options(graph.steps.devices, options.gpu, "PageRank by iterations", OF_STEPS)
        settings = RankSettings.checked(plain, **definition)
        most = MAX_ITERATIONS if max_iterations is None else max_iterations
        query = RankQuery(
            settings.number, settings.weighted, settings.teleport,
            distribution(initial, plain, "initial"), settings.damping, settings.tolerance,
            as_count(most, "max_iterations", 1, 2**62),
            is_accelerated(plain, accelerated, weighted=settings.weighted),
            options.location, options.gpu,
        )  # fmt: skip
        statistics = RunStatistics((graph.device,), "pull")
        nothing = np.zeros(1, np.int64)
        outcome = RankOutcome(np.empty(0, settings.number), 0, 0.0, nothing, nothing)
        if graph.vertex_count:
            with statistics.phase("run"):
                outcome = rank_on_gpus(graph.steps, query, make_poll(options))
        statistics.split_run(outcome.seconds)
        statistics.rounds = np.full(1, outcome.iterations, np.int64)
        statistics.processed_items = outcome.iterations * outcome.owned
        statistics.arcs_relaxed = outcome.iterations * outcome.arcs
        graph.processes.report(statistics)
        return DistributedPageRankResult(
            graph, outcome.rank, statistics, outcome.iterations,
            outcome.residual < settings.tolerance, outcome.residual,
        )  # fmt: skip
