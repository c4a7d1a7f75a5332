"""PageRank on a GPU row by row and by tiles: milliseconds of an iteration, and of the first query.

    python benchmarks/pagerank_tiles.py [--device cuda:0] [--runs 5] rmat:22 rmat:24 delaunay:1000000

Graphs are generated or read; the figure is the median of the runs' kernel time over their iterations, after
a first query whose whole time is told apart. Ranks by tiles are compared with exact ones after as many
iterations: the distance is their sum of absolute differences.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from time import perf_counter

import numpy as np

import godwit as gw
from godwit.algorithms.pagerank.cuda import RankOutcome, RankQuery, rank_on_gpus
from godwit.arrays import ResultLocation, host_array
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import resolve_devices
from godwit.supersteps.placement import StepPlacement


class Bench:
    """Queries of one graph on a device."""

    def __init__(self, graph: gw.Graph, device: str, runs: int) -> None:
        self.graph, self.device, self.runs = graph, device, runs

    def measure(self, query: RankQuery) -> tuple[RankOutcome, float, float]:
        """Return an outcome, and the milliseconds of the first query and of an iteration."""
        placement = StepPlacement(resolve_devices(self.device), self.graph)
        try:
            begin = perf_counter()
            outcome = rank_on_gpus(placement, query, None)
            first_ms = 1e3 * (perf_counter() - begin)
            times = []
            for _ in range(self.runs):
                outcome = rank_on_gpus(placement, query, None)
                times.append(1e3 * outcome.seconds["kernel"] / outcome.iterations)
            return outcome, first_ms, statistics.median(times)
        finally:
            placement.close()

    def row(self, dtype: str) -> str:
        """Return a row of the table."""
        query = RankQuery(
            np.dtype(dtype), False, None, None, 0.85, 1e-6, 100, False, ResultLocation(),
            GpuOptions(), tiled=True,
        )  # fmt: skip
        self.measure(query)  # compiles
        tiles, first_ms, tiles_ms = self.measure(query)
        _, rows_first_ms, rows_ms = self.measure(replace(query, tiled=False))
        exact, _, _ = self.measure(
            replace(
                query, dtype=np.dtype(np.float64), tolerance=1e-300,
                max_iterations=tiles.iterations, tiled=False,
            )
        )  # fmt: skip
        distance = np.abs(host_array(tiles.rank).astype(float) - host_array(exact.rank)).sum()
        return (
            f"{dtype} | {rows_ms:.4f} | {tiles_ms:.4f} | {rows_first_ms:.0f} | {first_ms:.0f} | "
            f"{distance:.1e} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("graphs", nargs="+", help="specifications of generators, or files")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--runs", type=int, default=5, help="after the first")
    options = parser.parse_args()
    print("| graph | dtype | rows, ms | tiles | first query, rows, ms | tiles | distance |")
    print("|---|---|---|---|---|---|---|")
    for spec in options.graphs:
        graph = gw.generate(spec) if ":" in spec else gw.read(spec)
        bench = Bench(graph, options.device, max(1, options.runs))
        for dtype in ("float32", "float64"):
            print(f"| {spec} | {bench.row(dtype)}", flush=True)


if __name__ == "__main__":
    main()
