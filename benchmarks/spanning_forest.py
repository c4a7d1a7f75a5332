"""Minimum spanning forests beside SciPy, networkit, igraph and NetworkX on CPUs, and on GPUs beside a
floor.

    python benchmarks/spanning_forest.py [--data FOLDER] [--runs N] [--only GRAPH | --file FILE] [--json]
    python benchmarks/spanning_forest.py --devices cuda:0 [--gpu-graphs rmat22,road4900]

Graphs, turns and ratios as ``benchmarks/peers.py`` has them, and dblp-2010 and wave; graphs without weights
get random integers from 1 to 64. SciPy takes the symmetric matrix, and "SciPy, half" its upper triangle,
which spares it half of the sort; networkit takes Kruskal's algorithm. All total weights are compared.
NetworkX runs where there are fewer than a million edges, once.

On GPUs: median and quartiles of kernels (``statistics.seconds["kernel"]``) and of whole calls, the graph
placed, and the floor of spanning_forest.cuh in ms: 16 bytes an arc where edges are filtered, else 8, and 20
a vertex, at 4.0 TB/s.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from statistics import quantiles
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
import peers
from godwit.algorithms.spanning_forest.cpu import light_share
from peers import REFERENCE, TIMES, Column, Row, compared, in_networkit_and_igraph, measure

GPU_GRAPHS: dict[str, Callable[[], gw.Graph]] = {
    "rmat16": lambda: gw.generators.rmat(16, 16, seed=1, weights=(1, 64)),
    "rmat20": lambda: gw.generators.rmat(20, 16, seed=1, weights=(1, 64)),
    "rmat22": lambda: gw.generators.rmat(22, 16, seed=1, weights=(1, 64)),
    "road1000": lambda: gw.generators.road(1000, seed=1, weights=(1, 64)),
    "road4900": lambda: gw.generators.road(4900, seed=1, weights=(1, 64)),
}
MOST_NETWORKX_EDGES = 1_000_000
BYTES_A_MS = 4.0e9


def contenders(graph: gw.Graph) -> dict[str, Callable[[], Any]]:
    """Return a function for each system that returns the total weight."""
    import networkit
    import scipy.sparse
    from scipy.sparse.csgraph import minimum_spanning_tree

    matrix = graph.to_scipy(merge="min").astype(np.float64)
    half = scipy.sparse.triu(matrix, 1).tocsr()
    kit, other = in_networkit_and_igraph(graph)

    def by_networkit() -> float:
        forest = networkit.graph.KruskalMSF(kit)
        forest.run()
        return float(forest.getTotalWeight())

    return {
        REFERENCE: lambda: gw.minimum_spanning_forest(graph, devices="cpu").total_weight,
        "SciPy": lambda: minimum_spanning_tree(matrix).sum(),
        "SciPy, half": lambda: minimum_spanning_tree(half).sum(),
        "networkit": by_networkit,
        "igraph": lambda: sum(other.spanning_tree(weights="weight").es["weight"]),
    }


def bench(name: str, graph: gw.Graph, arguments: argparse.Namespace) -> list[Row]:
    """Return a row for each system."""
    if not graph.is_weighted:
        graph = graph.with_random_weights(1, 64)
    systems = contenders(graph)
    totals = {system: float(query()) for system, query in systems.items()}  # compiles, warms
    times = measure(systems, arguments.runs)
    if graph.arc_count // 2 < MOST_NETWORKX_EDGES:
        import networkx as nx

        reference = graph.to_networkx()
        begin = perf_counter()
        edges = nx.minimum_spanning_edges(reference)
        totals["NetworkX"] = float(sum(data["weight"] for *_, data in edges))
        times["NetworkX"] = [1e3 * (perf_counter() - begin)]
    rows = compared(times, graph=name)
    for row in rows:
        row["same"] = "yes" if totals[row["system"]] == totals[REFERENCE] else "NO"
    return rows


def floor_ms(graph: gw.Graph) -> float:
    """Return the time of the least traffic of spanning_forest.cuh."""
    filtered = light_share(graph.rows) < 1
    arc_bytes = 16 if filtered else 8
    return (arc_bytes * graph.arc_count + 20 * graph.vertex_count) / BYTES_A_MS


def measure_on_gpus(devices: list[str], names: list[str], runs: int) -> None:
    """Print a line for each graph."""
    print("graph      vertices        arcs  kernel ms (quartiles)      call ms   floor ms  same")
    for name in names:
        graph = GPU_GRAPHS[name]()
        expected = gw.minimum_spanning_forest(graph, devices="cpu")
        kernels, calls = [], []
        with gw.place(graph, devices) as placed:
            for _ in range(runs + 1):
                begin = perf_counter()
                result = gw.minimum_spanning_forest(placed)
                calls.append(1e3 * (perf_counter() - begin))
                kernels.append(1e3 * result.statistics.seconds["kernel"])
        low, middle, high = quantiles(kernels[1:], n=4)
        same = np.array_equal(result.arcs, expected.arcs)
        print(
            f"{name:10}{graph.vertex_count:>9,}{graph.arc_count:>12,}"
            f"{middle:>8.2f} ({low:.2f} to {high:.2f}){quantiles(calls[1:], n=4)[1]:>10.2f}"
            f"{floor_ms(graph):>11.2f}  {'yes' if same else 'NO'}",
            flush=True,
        )


def main() -> None:
    """Measure as the command line says."""
    real = peers.graphs

    def graphs(folder: Any) -> dict[str, Callable[[], gw.Graph]]:
        more = {
            name: partial(peers._from_file, folder / f"{name}.mtx.xz")
            for name in ("dblp-2010", "wave")
        }
        return real(folder) | more

    peers.graphs = graphs
    parser = peers.parser(__doc__, runs=5)
    parser.add_argument("--devices", help="GPUs, with commas between them")
    parser.add_argument("--gpu-graphs", default=",".join(GPU_GRAPHS))
    arguments = parser.parse_args()
    if arguments.devices is None:
        columns = (Column("", "system", 14), *TIMES, Column("same", "same", 6))
        peers.report(arguments, bench, columns)
    else:
        names = arguments.gpu_graphs.split(",")
        measure_on_gpus(arguments.devices.split(","), names, max(3, arguments.runs))


if __name__ == "__main__":
    main()
