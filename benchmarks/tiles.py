"""Iterations on GPUs row by row and by tiles: milliseconds of one, and of the first query.

    python benchmarks/tiles.py [--algorithms pagerank,hits] [--gpus 1,2] [--runs 5] rmat:22 delaunay:1000000

Graphs are generated, those of R-MAT on the first GPU, or read; they are placed anew for each figure. A
figure is the median of the runs' kernel time divided by their iterations. The time of a first query,
which makes rows or tiles, has columns of its own. Power iterations compare values in one pass more, which
is counted. Values by tiles are compared with those of float64 row by row after as many iterations: the
distance is the sum of absolute differences. Ranks, hubs and authorities sum to 1; values of eigenvector
and Katz centrality have L2 norm 1.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from godwit.algorithms.pagerank.cuda import RankQuery, rank_on_gpus
from godwit.algorithms.power_iteration.cuda import iterate_on_gpus
from godwit.algorithms.power_iteration.query import Finish, PowerQuery, unit_start
from godwit.arrays import ResultLocation, host_array
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import resolve_devices
from godwit.supersteps.placement import StepPlacement

POWER_ITERATIONS = 20


@dataclass(frozen=True)
class Answer:
    """What a query returns.

    :param values: float64 (n), or two of them one after the other
    :param iterations: number of iterations
    :param passes: over the rows, or over those of both directions
    :param kernel_s: seconds that kernels ran
    """

    values: Any
    iterations: int
    passes: int
    kernel_s: float


Ask = Callable[[StepPlacement, bool, int | None], Answer]
"""Answers a query of a placement, by tiles if True, with a number of iterations; None: the query's own."""


def pagerank(dtype: str) -> Ask:
    """Return a query of ranks; if a number of iterations is given, ranks are float64."""

    def ask(placement: StepPlacement, tiled: bool, iterations: int | None) -> Answer:
        query = RankQuery(
            np.dtype(dtype if iterations is None else "float64"), False, None, None, 0.85,
            1e-6 if iterations is None else 1e-300, iterations or 100, False, ResultLocation(),
            GpuOptions(), tiled=tiled,
        )  # fmt: skip
        found = rank_on_gpus(placement, query, None)
        rank = host_array(found.rank).astype(np.float64)
        return Answer(rank, found.iterations, found.iterations, found.seconds["kernel"])

    return ask


def power_iteration(make_query: Callable[[gw.Graph], PowerQuery]) -> Ask:
    """Return a query of a fixed number of iterations."""

    def ask(placement: StepPlacement, tiled: bool, _iterations: int | None) -> Answer:
        found, work = iterate_on_gpus(
            placement,
            make_query(placement.graph),
            GpuOptions(),
            ResultLocation(),
            None,
            tiled=tiled,
        )
        arrays = [found.values] if found.hubs is None else [found.hubs, found.values]
        values = np.concatenate([host_array(array) for array in arrays])
        return Answer(values, found.iterations, found.iterations + 1, work.seconds["kernel"])

    return ask


def eigenvector_query(graph: gw.Graph) -> PowerQuery:
    return PowerQuery(False, unit_start(None, graph), 1e-300, POWER_ITERATIONS, shift=1.0)


def katz_query(graph: gw.Graph) -> PowerQuery:
    return PowerQuery(
        False, np.zeros(1), 1e-300, POWER_ITERATIONS, factor=0.5 / float(graph.out_degree().max()),
        constant=np.full(1, 0.5), normalizes=False, unit=0.5, finish=Finish.POWER_UNIT,
    )  # fmt: skip


def hits_query(graph: gw.Graph) -> PowerQuery:
    return PowerQuery(
        False, unit_start(None, graph), 1e-300, POWER_ITERATIONS, two_sided=True,
        finish=Finish.POWER_SUM,
    )  # fmt: skip


ALGORITHMS: dict[str, dict[str, Ask]] = {
    "pagerank": {dtype: pagerank(dtype) for dtype in ("float32", "float64")},
    "eigenvector": {"float64": power_iteration(eigenvector_query)},
    "katz": {"float64": power_iteration(katz_query)},
    "hits": {"float64": power_iteration(hits_query)},
}


class Bench:
    """Queries of one graph on some GPUs."""

    def __init__(self, graph: gw.Graph, gpus: int, runs: int) -> None:
        self.graph, self.runs = graph, runs
        self.devices = [f"cuda:{index}" for index in range(gpus)]

    def measure(
        self, ask: Ask, tiled: bool, iterations: int | None = None
    ) -> tuple[Answer, float, float]:
        """Return an answer, and the milliseconds of the first query and of an iteration."""
        placement = StepPlacement(resolve_devices(self.devices), self.graph)
        try:
            begin = perf_counter()
            answer = ask(placement, tiled, iterations)
            first_ms = 1e3 * (perf_counter() - begin)
            times = []
            for _ in range(self.runs if iterations is None else 0):
                answer = ask(placement, tiled, iterations)
                times.append(1e3 * answer.kernel_s / answer.passes)
            return answer, first_ms, statistics.median(times) if times else 0.0
        finally:
            placement.close()

    def row(self, ask: Ask) -> str:
        """Return the figures of a row of the table."""
        tiles, first_ms, tiles_ms = self.measure(ask, True)
        rows, rows_first_ms, rows_ms = self.measure(ask, False)
        exact, _, _ = self.measure(ask, False, tiles.iterations)
        distance = np.abs(tiles.values - exact.values).sum()
        assert rows.iterations == tiles.iterations
        return f"{rows_ms:.4f} | {tiles_ms:.4f} | {rows_first_ms:.0f} | {first_ms:.0f} | {distance:.1e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("graphs", nargs="+", help="specifications of generators, or files")
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS))
    parser.add_argument("--gpus", default="1", help="numbers of them, such as 1,2")
    parser.add_argument("--runs", type=int, default=5, help="after the first")
    options = parser.parse_args()
    algorithms = options.algorithms.split(",")
    small = gw.generate("rmat:10")
    print(
        "| graph | GPUs | algorithm | dtype | rows, ms | tiles | first query, rows, ms | tiles | "
        "distance |\n|---|---|---|---|---|---|---|---|---|"
    )
    for spec in options.graphs:
        device = "cuda:0" if spec.startswith("rmat:") else None
        graph = gw.generate(spec, device=device) if ":" in spec else gw.read(spec)
        for gpus in map(int, options.gpus.split(",")):
            bench = Bench(graph, gpus, max(1, options.runs))
            for algorithm in algorithms:
                for dtype, ask in ALGORITHMS[algorithm].items():
                    Bench(small, gpus, 1).row(ask)  # compiles
                    print(
                        f"| {spec} | {gpus} | {algorithm} | {dtype} | {bench.row(ask)}", flush=True
                    )


if __name__ == "__main__":
    main()
