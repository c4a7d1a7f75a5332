"""Random walks beside networkit, igraph and torch-cluster on the CPU, and on GPUs beside a floor.

    python benchmarks/random_walks.py [--data FOLDER] [--runs N] [--only GRAPH | --file FILE] [--json]
    python benchmarks/random_walks.py --devices cuda:0 [--steps 100000000]

Graphs, turns and ratios as ``benchmarks/peers.py`` has them. On the CPU 100,000 walks of 40 steps begin at
random vertices that arcs leave; igraph, whose function makes one walk a call, makes 1,000 of them, and
networkit, which has no walks, draws a random neighbour for as many steps, 100,000 of them; their times are
scaled. torch-cluster and pyg-lib are left out where they are not installed. Walks of Godwit are verified.

On GPUs: samples of neighbours, beside all cores: median of kernels, and of calls with the sample left on
the GPU, on the host, and by the CPU. Then walks: median of kernels (``statistics.seconds["kernel"]``) and
of whole calls with the walks on the host, the graph placed, and the floor of walks.cuh at 4.0 TB/s, in ms.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
import peers
from godwit.algorithms.random_walks import run_walks, walk_query
from godwit.worker.options import query_options
from peers import REFERENCE, TIMES, Column, Row, compared, in_networkit_and_igraph, measure

WALKS, LENGTH = 100_000, 40
FEW = 1000
FANOUTS = [15, 10, 5]
STEP_BYTES = 64 + 4
BYTES_A_MS = 4.0e9
WAYS: dict[str, dict[str, Any]] = {
    "uniform": {"weighted": False},
    "weighted": {},
    "node2vec": {"p": 0.5, "q": 2.0, "weighted": False},
}


def sources_of(graph: gw.Graph, count: int) -> Any:
    """Return random vertices that arcs leave."""
    return np.random.default_rng(1).choice(np.flatnonzero(graph.out_degree()), count)


def in_torch(graph: gw.Graph, sources: Any) -> dict[str, Callable[[], Any]]:
    """Return walks by torch-cluster, uniform and of node2vec, if it is installed."""
    try:
        import torch
        import torch_cluster  # noqa: F401
    except ImportError:
        return {}
    rows = (
        torch.from_numpy(np.array(graph.offsets)),
        torch.from_numpy(np.array(graph.targets)).long(),
    )
    begins = torch.from_numpy(sources)
    walk = torch.ops.torch_cluster.random_walk
    return {
        "torch-cluster": lambda: walk(*rows, begins, LENGTH, 1.0, 1.0),
        "torch-cluster, node2vec": lambda: walk(*rows, begins, LENGTH, 0.5, 2.0),
    }


def bench(name: str, graph: gw.Graph, arguments: argparse.Namespace) -> list[Row]:
    """Return a row for each system and way."""
    if not graph.is_weighted:
        graph = graph.with_random_weights(1, 64)
    sources = sources_of(graph, WALKS)
    systems: dict[str, Callable[[], Any]] = {
        (REFERENCE if way == "uniform" else f"Godwit, {way}"): lambda options=options: (
            gw.random_walks(graph, sources, LENGTH, devices="cpu", **options)
        )
        for way, options in WAYS.items()
    }
    kit, other = in_networkit_and_igraph(graph.without_weights())
    scaled = {"igraph": WALKS / FEW, "networkit": WALKS * LENGTH / (FEW * 100)}
    few = sources[:FEW].tolist()

    def by_networkit() -> None:
        import networkit

        vertices = few[:]
        for _ in range(100):
            vertices = [networkit.graphtools.randomNeighbor(kit, vertex) for vertex in vertices]

    systems["igraph"] = lambda: [other.random_walk(vertex, LENGTH) for vertex in few]
    systems["networkit"] = by_networkit
    systems |= in_torch(graph, sources)
    for query in systems.values():
        query()
    for options in WAYS.values():
        walks = gw.random_walks(graph, sources[:FEW], LENGTH, devices="cpu", **options)
        gw.verify_random_walks(graph, walks, weighted=options.get("weighted"))
    times = measure(systems, arguments.runs)
    times = {name: [t * scaled.get(name, 1) for t in taken] for name, taken in times.items()}
    return compared(times, graph=name)


def measure_on_gpus(devices: list[str], steps: int, runs: int) -> None:
    """Print a line for each graph and way."""
    print("graph    way           walks   kernel ms     call ms    floor ms")
    walks = max(1, steps // LENGTH)
    for scale in (20, 22):
        graph = gw.generators.rmat(scale, 16, seed=1, weights=(1, 64))
        sources = sources_of(graph, walks)
        with gw.place(graph, devices) as placed:
            for way, options in WAYS.items():
                kernels, calls = [], []
                for _ in range(runs + 1):
                    begin = perf_counter()
                    query = walk_query(graph, sources, LENGTH, **options)
                    _, statistics = run_walks(placed, query, None, query_options())
                    calls.append(1e3 * (perf_counter() - begin))
                    kernels.append(1e3 * statistics.seconds["kernel"])
                floor = STEP_BYTES * walks * LENGTH / BYTES_A_MS
                print(
                    f"rmat{scale}   {way:10}{walks:>9,}{median(kernels[1:]):>12.2f}"
                    f"{median(calls[1:]):>12.2f}{floor:>12.2f}",
                    flush=True,
                )


def measure_samples_on_gpus(devices: list[str], runs: int) -> None:
    """Print a line for each number of seeds, and check that the CPU's sample is the same."""
    print(
        "graph    seeds       fanouts         arcs   kernel ms  on GPU ms  on host ms      CPU ms  same"
    )
    graph = gw.generators.rmat(22, 16, seed=1)
    with gw.place(graph, devices) as placed:
        for count in (1000, 100_000):
            seeds = sources_of(graph, count)
            kernels: list[float] = []
            times: dict[str, list[float]] = {"cuda": [], "host": [], "cpu": []}
            for way, calls in times.items():
                for _ in range(runs + 1):
                    begin = perf_counter()
                    if way == "cpu":
                        wanted = gw.sample_neighbors(graph, seeds, FANOUTS, devices="cpu")
                    else:
                        found = gw.sample_neighbors(placed, seeds, FANOUTS, results=way)
                    calls.append(1e3 * (perf_counter() - begin))
                    if way == "host":
                        kernels.append(1e3 * found.statistics.seconds["kernel"])
            same = all(
                np.array_equal(getattr(found, name), getattr(wanted, name))
                for name in ("nodes", "row", "col", "edges")
            )
            medians = [median(calls[1:]) for calls in (kernels, *times.values())]
            print(
                f"rmat22 {count:>9,}   {FANOUTS!s:12}{sum(found.edges_per_hop):>12,}"
                f"{medians[0]:>11.2f}{medians[1]:>11.2f}{medians[2]:>12.2f}{medians[3]:>12.2f}"
                f"  {'yes' if same else 'NO'}",
                flush=True,
            )


def main() -> None:
    """Measure as the command line says."""
    parser = peers.parser(__doc__, runs=5)
    parser.add_argument("--devices", help="GPUs, with commas between them")
    parser.add_argument("--steps", type=peers.positive, default=100_000_000)
    arguments = parser.parse_args()
    if arguments.devices is None:
        peers.report(arguments, bench, (Column("", "system", 26), *TIMES))
    else:
        devices, runs = arguments.devices.split(","), max(3, arguments.runs)
        measure_samples_on_gpus(devices, runs)
        measure_on_gpus(devices, arguments.steps, runs)


if __name__ == "__main__":
    main()
