"""Arcs that shortest paths look at on GPUs, and kernels' times, beside the asynchronous engine.

    python benchmarks/gpu_sssp.py                     # --graphs rmat20,rmat22 --devices 1,2

Milliseconds, medians of nine queries after a first one; sources of highest degree. *GPUs*: on how many the
graph is placed, and in brackets how many of these searched by default. All results are compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np

import godwit as gw
from gpu_paths import device_list

GRAPHS = {
    "rmat20": "rmat:20,edge_factor=16,seed=1,weights=1..64",
    "rmat22": "rmat:22,edge_factor=16,seed=1,weights=1..64",
    "rmat24": "rmat:24,edge_factor=16,seed=1,weights=1..64",
    "rmat22-directed": "rmat:22,edge_factor=16,seed=1,weights=1..64,symmetrize=false",
    "barabasi-albert": "barabasi-albert:2000000,attach=8,seed=1,weights=1..64",
}


def uniform_by_edge(graph: gw.Graph) -> Any:
    """Return a number in (0, 1) for each arc, equal in both directions."""
    tails = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets))
    low, high = np.minimum(tails, graph.targets), np.maximum(tails, graph.targets)
    mixed = low.astype(np.uint64) * np.uint64(2654435761)
    mixed += high.astype(np.uint64) * np.uint64(40503)
    return ((mixed % np.uint64(1 << 20)).astype(np.float64) + 0.5) / (1 << 20)


def weightings(name: str, graph: gw.Graph) -> Iterator[tuple[str, gw.Graph]]:
    """Yield a graph with weights of several distributions; only of rmat20 others than its own."""
    yield "1..64", graph
    if name != "rmat20":
        return
    from scipy.stats import norm

    uniform = uniform_by_edge(graph)
    yield "log-normal", graph.with_weights(np.exp(2 * norm.ppf(uniform)))
    yield "float32 uniform", graph.with_weights(uniform.astype(np.float32))
    few = np.where(uniform < 1e-3, 10**6, 1 + (64 * uniform).astype(np.int64))
    yield "few of 10^6", graph.with_weights(few.astype(np.int32))
    yield "0..3", graph.with_weights((4 * uniform).astype(np.int32))


def main() -> None:
    """Print a row for each graph and each kind of weights."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--graphs", default=",".join(GRAPHS), help=", ".join(GRAPHS))
    parser.add_argument("--devices", default="1", help="numbers of GPUs, or such as 0+0")
    arguments = parser.parse_args()
    print(
        f"{'graph':16} {'weights':16} {'GPUs':7} {'auto':>9} {'arcs':>6} {'asynchronous':>13} {'arcs':>6}"
    )
    for name in arguments.graphs.split(","):
        generated = gw.generate(GRAPHS[name], device="cuda:0" if "rmat" in name else None)
        for weights, graph in weightings(name, generated):
            source = graph.highest_degree_vertex()
            distances = []
            for devices in arguments.devices.split(","):
                with gw.place(graph, device_list(devices)) as placed:
                    row, searched = [], []
                    for execution in ("auto", "asynchronous"):
                        results = [gw.sssp(placed, source, execution=execution) for _ in range(10)]
                        kernels = [result.statistics.seconds["kernel"] for result in results[1:]]
                        arcs = results[-1].statistics.arcs_relaxed.sum() / graph.arc_count
                        row += [1e3 * median(kernels), arcs]
                        searched.append(len(results[-1].statistics.devices))
                        distances.append(results[-1].distance)
                gpus = f"{devices} ({searched[0]})"
                text = "{:9.3f} {:6.3f} {:13.3f} {:6.3f}".format(*row)
                print(f"{name:16} {weights:16} {gpus:7} {text}", flush=True)
            for distance in distances[1:]:
                np.testing.assert_array_equal(distance, distances[0])


if __name__ == "__main__":
    main()
