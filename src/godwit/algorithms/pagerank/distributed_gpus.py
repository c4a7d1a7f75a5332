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
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import OF_STEPS, GpuOptions, check_options
from godwit.runtime.statistics import RunStatistics
from godwit.worker.options import query_options
from godwit.worker.solve import make_poll


@public
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
    same = (damping, tolerance, max_iterations, weighted, accelerated, str(dtype), options.gpu)
    with graph.running("pagerank", *same):
        steps, plain = graph.steps, graph.graph
        check_options(steps.devices, options.gpu, "PageRank by iterations", OF_STEPS)
        settings = RankSettings.checked(
            plain, damping=damping, tolerance=tolerance, personalization=personalization,
            weighted=weighted, dtype=dtype,
        )  # fmt: skip
        most = MAX_ITERATIONS if max_iterations is None else max_iterations
        query = RankQuery(
            settings.number, settings.weighted, settings.teleport, distribution(initial, plain, "initial"),
            settings.damping, settings.tolerance, as_count(most, "max_iterations", 1, 2**62),
            is_accelerated(plain, accelerated, weighted=settings.weighted), options.location, options.gpu,
        )  # fmt: skip
        statistics = RunStatistics((graph.device,), "pull")
        if graph.vertex_count:
            with statistics.phase("run"):
                outcome = rank_on_gpus(steps, query, make_poll(options))
        else:
            nothing = np.zeros(1, np.int64)
            outcome = RankOutcome(np.empty(0, settings.number), 0, 0.0, nothing, nothing)
        statistics.split_run(outcome.seconds)
        statistics.rounds = np.full(1, outcome.iterations, np.int64)
        statistics.processed_items = outcome.iterations * outcome.owned
        statistics.arcs_relaxed = outcome.iterations * outcome.arcs
        graph.processes.report(statistics)
        return DistributedPageRankResult(
            graph, outcome.rank, statistics, outcome.iterations,
            outcome.residual < settings.tolerance, outcome.residual,
        )  # fmt: skip
