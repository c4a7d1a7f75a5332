"""Topological generations on one thread of the CPU and on a GPU, by graph.

    python benchmarks/topological.py [--device cuda:0] [--graphs rmat22,path] [--runs 3]

Graphs have their arcs turned to the larger vertex, and no self-loops. Milliseconds: calls on the CPU; with
the graph placed on the named GPU, and placed by default, where cores may take over, the first call and the
median of later ones, and the kernel of the last. Rows are made before. Results are compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw

GRAPHS: dict[str, Callable[[], gw.Graph]] = {
    "rmat22": lambda: gw.generators.rmat(22, 16, seed=1),
    "rmat16": lambda: gw.generators.rmat(16, 16, seed=1),
    "random": lambda: gw.generators.uniform(1_000_000, 8_000_000, seed=1),
    "grid": lambda: gw.generate("grid:1000x1000"),
    "path": lambda: gw.generate("path:1000000"),
}


def turned(graph: gw.Graph) -> gw.Graph:
    """Return a graph's arcs, each from its smaller vertex to its larger one."""
    sources, targets, _ = graph.to_edges()
    low, high = np.minimum(sources, targets), np.maximum(sources, targets)
    return gw.Graph.from_edges(low[low != high], high[low != high], vertex_count=graph.vertex_count)


def timed(query: Callable[[], Any], runs: int) -> tuple[list[float], Any]:
    """Return the milliseconds of each run, and the last result."""
    times = []
    for _ in range(runs):
        begin = perf_counter()
        result = query()
        times.append(1e3 * (perf_counter() - begin))
    return times, result


def main() -> None:
    """Print a line for each graph."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", help="a GPU; the CPU alone if left out")
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    for name in arguments.graphs.split(","):
        graph = turned(GRAPHS[name]())
        times, expected = timed(
            lambda graph=graph: gw.topological_generations(graph, devices="cpu"), arguments.runs
        )
        line = f"{name:8}{graph.vertex_count:>10,} vertices{graph.arc_count:>12,} arcs"
        line += f"{expected.count:>10,} generations   CPU {median(times[1:]):.2f}"
        for devices in [arguments.device, None] if arguments.device else []:
            with gw.place(graph, devices) as placed:
                gw.bfs(placed, 0, cutoff=1)
                times, result = timed(
                    lambda placed=placed: gw.topological_generations(placed), arguments.runs
                )
            np.testing.assert_array_equal(result.generation, expected.generation)
            kernel = 1e3 * result.statistics.seconds.get("kernel", 0.0)
            line += f"   {devices or 'default'}: first {times[0]:.2f}, then {median(times[1:]):.2f}"
            line += f" (kernel {kernel:.2f}, {result.statistics.solver})"
        print(line, flush=True)


if __name__ == "__main__":
    main()
