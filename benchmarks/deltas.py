"""The default of shortest paths on one GPU beside the best of eleven fixed widths of the window.

    python benchmarks/deltas.py                  # --graphs grid,rmat --weights lognormal,1..64
    python benchmarks/deltas.py --starts         # widths that change while a run goes on, by the first one

Milliseconds of kernels on a placed graph, medians of three queries; ``ratio`` is the time of the default
over that of the best width. Widths are the default times powers of two, from 1/32 to 32, and first widths
from 1/8 to 16; graphs and weights are those of benchmarks/zoo.py.
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

import numpy as np

import godwit as gw
from godwit.runtime.gpu_options import ExperimentOptions
from godwit.worker import delta as delta_choice
from zoo import GRAPHS, structure, weighted

CHOSEN = "grid,wide-grid,road,watts-strogatz,uniform,delaunay,random-geometric,rmat,barabasi-albert"
FACTORS = [2.0**power for power in range(-5, 6)]
STARTS = [2.0**power for power in range(-3, 5)]


def kernel_ms(placed: gw.PlacedGraph, source: int, **options: Any) -> tuple[float, Any]:
    """Return the median time of the kernels, and the last result."""
    times = []
    for _ in range(4):
        result = gw.sssp(placed, source, **options)
        times.append(1e3 * result.statistics.seconds["kernel"])
    return median(times[1:]), result


def shown(times: list[float]) -> str:
    return " ".join(f"{time:.2f}" for time in times)


def times_by_start(placed: gw.PlacedGraph, source: int, expected: Any) -> list[float]:
    """Return the median times for first widths that are multiples of the usual one."""
    usual, times = delta_choice._GPU_FACTOR, []
    try:
        for factor in STARTS:
            delta_choice._GPU_FACTOR = factor * usual
            # A first width is chosen once for each set of options.
            gpu = ExperimentOptions(patience_s=30 + factor)
            time, found = kernel_ms(placed, source, execution="asynchronous", gpu=gpu)
            np.testing.assert_array_equal(found.distance, expected.distance)
            times.append(time)
    finally:
        delta_choice._GPU_FACTOR = usual
    return times


def main() -> None:
    """Print a row for each graph and each kind of weights."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--graphs", default=CHOSEN, help=", ".join(GRAPHS))
    parser.add_argument("--weights", default="1..64,lognormal,two,floats")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--starts", action="store_true", help="try first widths, too")
    arguments = parser.parse_args()
    print(f"{'graph':18} {'weights':10} {'default':>8} {'best':>8} {'factor':>7} {'ratio':>6}  all")
    for name in arguments.graphs.split(","):
        without = structure(name)
        source = int(np.argmax(without.out_degree()))
        for kind in arguments.weights.split(","):
            graph = weighted(without, kind)
            with gw.place(graph, arguments.device) as placed:
                default, expected = kernel_ms(placed, source)
                _, asked = kernel_ms(placed, source, execution="asynchronous")
                delta = asked.statistics.delta
                fixed = []
                for factor in FACTORS:
                    time, found = kernel_ms(
                        placed,
                        source,
                        execution="asynchronous",
                        worker=gw.WorkerOptions(delta=factor * delta),
                    )
                    np.testing.assert_array_equal(found.distance, expected.distance)
                    fixed.append(time)
                starts = times_by_start(placed, source, expected) if arguments.starts else []
            best = min(fixed)
            print(
                f"{name:18} {kind:10} {default:8.2f} {best:8.2f} {FACTORS[fixed.index(best)]:7.5g} "
                f"{default / best:6.2f}  {shown(fixed)} | {shown(starts)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
