"""Communities beside networkit, igraph, leidenalg and NetworkX, in one process.

    python benchmarks/communities.py [GRAPH ...] [--seeds N] [--threads N] [--slow] [--json]
    python benchmarks/communities.py [GRAPH ...] --gpu [--seeds N] [--without-cores]

GRAPH is a file or a generated graph (``rmat:20``); it is taken without directions, weights, self-loops and
parallel edges. Turns are interleaved: in each, every method runs once with another seed. The table has the
median of seconds and of seconds of CPU time of all threads, and the lowest, the median and the highest
modularity, as Godwit computes it. Where there is a GPU, Godwit's methods run on it, too, with the graph
placed. ``--slow`` adds leidenalg and NetworkX. Godwit's first turn, which loads compiled code, does not
count; ``igraph leiden`` has its default of two iterations, as leidenalg.

``--gpu`` has Godwit's methods alone, of a graph placed on a GPU, beside all cores: least milliseconds of
the kernel, and of the call with the result on the GPU or on the host, after a first call, and the graph's
arcs (two an edge) by the time of the call with the result on the GPU; cores run once, after a small graph,
and find the same, unless they are left out. The graph is taken as it is.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import godwit as gw
from godwit.graph.generators.spec import is_spec
from godwit.runtime.cuda import driver

Method = Callable[[int], Any]
"""Find communities for a seed; return labels of all vertices."""


def load(name: str) -> gw.Graph:
    """Return a simple undirected graph without weights."""
    graph = gw.generate(name) if is_spec(name) else gw.read(name)
    return graph.symmetrize().without_weights().remove_self_loops().merge_parallel_arcs()


def _label_of(function: Callable[..., gw.CommunitiesResult], placed: Any, seed: int) -> Any:
    return function(placed, seed=seed).label


def of_godwit(graph: gw.Graph, threads: int) -> dict[str, Method]:
    """Return Godwit's methods."""
    devices = [f"cpu:{index}" for index in range(threads)]
    on_gpu: dict[str, Method] = {}
    if driver.device_count() > 0:
        placed = gw.place(graph, "cuda:0")
        for function in (gw.louvain, gw.leiden, gw.label_propagation):
            on_gpu[f"gw.{function.__name__}, GPU"] = partial(_label_of, function, placed)
    return {
        "gw.louvain": lambda seed: gw.louvain(graph, seed=seed, devices=devices).label,
        "gw.leiden": lambda seed: gw.leiden(graph, seed=seed, devices=devices).label,
        "gw.leiden, 1 iteration": lambda seed: (
            gw.leiden(graph, seed=seed, devices=devices, iterations=1).label
        ),
        "gw.label_propagation": lambda seed: (
            gw.label_propagation(graph, seed=seed, devices=devices).label
        ),
        **on_gpu,
    }


def of_peers(graph: gw.Graph, threads: int, *, slow: bool) -> dict[str, Method]:
    """Return the methods of libraries that are installed."""
    methods: dict[str, Method] = {}
    tails = np.repeat(np.arange(graph.vertex_count), graph.out_degree())
    once = tails < graph.targets
    tails, heads = tails[once], graph.targets[once].astype(np.int64)
    try:
        import networkit

        networkit.setNumberOfThreads(threads)
        kit = networkit.GraphFromCoo((tails, heads), n=graph.vertex_count)

        def by_networkit(method: Any) -> Method:
            def find(seed: int) -> Any:
                networkit.setSeed(seed, False)
                algorithm = method(kit)
                algorithm.run()
                return algorithm.getPartition().getVector()

            return find

        methods["networkit PLM"] = by_networkit(networkit.community.PLM)
        methods["networkit PLP"] = by_networkit(networkit.community.PLP)
    except ImportError:
        pass
    try:
        import igraph

        other = igraph.Graph(n=graph.vertex_count, edges=np.column_stack([tails, heads]))

        def by_igraph(find: Callable[[], Any]) -> Method:
            def run(seed: int) -> Any:
                random.seed(seed)
                return find().membership

            return run

        methods["igraph multilevel"] = by_igraph(other.community_multilevel)
        methods["igraph leiden"] = by_igraph(
            lambda: other.community_leiden(objective_function="modularity")
        )
        if slow:
            import leidenalg

            methods["leidenalg"] = lambda seed: (
                leidenalg.find_partition(
                    other, leidenalg.ModularityVertexPartition, seed=seed
                ).membership
            )
    except ImportError:
        pass
    if slow:
        import networkx as nx

        of_nx = graph.to_networkx()

        def by_networkx(seed: int) -> Any:
            label = np.zeros(graph.vertex_count, np.int64)
            for community, nodes in enumerate(
                nx.community.louvain_communities(of_nx, seed=seed, backend="networkx")
            ):
                label[list(nodes)] = community
            return label

        methods["NetworkX louvain"] = by_networkx
    return methods


def show_on_gpu(name: str, graph: gw.Graph, turns: int, *, with_cores: bool) -> None:
    """Print milliseconds of each method on a GPU, and on all cores, if results are equal."""
    placed = gw.place(graph, "cuda:0")
    print(f"{name}: {graph}\n  method    kernel  call, on GPU  call, on host  all cores  G arcs/s")
    methods: dict[str, Callable[..., gw.CommunitiesResult]] = {
        "louvain": gw.louvain,
        "leiden": gw.leiden,
        "labels": gw.label_propagation,
        "cdlp": partial(gw.label_propagation, variant="cdlp"),
    }
    for method, function in methods.items():
        call_ms: dict[str, float] = {}
        kernel_ms = math.inf
        for results in ("cuda", "host", "cores") if with_cores else ("cuda", "host"):
            if results == "cores":
                function(gw.generators.rmat(8), devices="cpu")  # which loads compiled code
            for _ in range(1 if results == "cores" else 1 + turns):
                begin = time.perf_counter()
                if results == "cores":
                    found = function(graph, devices="cpu")
                else:
                    found = function(placed, results=results)
                    kernel_ms = min(kernel_ms, 1e3 * found.statistics.seconds["kernel"])
                taken = 1e3 * (time.perf_counter() - begin)
                call_ms[results] = min(taken, call_ms.get(results, math.inf))
            if results == "host":
                on_gpu = found
        assert np.array_equal(on_gpu.label, found.label)
        assert on_gpu.modularity == found.modularity
        cores_ms = f"{call_ms['cores']:.0f}" if with_cores else "-"
        print(
            f"  {method:8} {kernel_ms:7.1f} {call_ms['cuda']:13.1f} {call_ms['host']:14.1f} "
            f"{cores_ms:>10} {graph.arc_count / call_ms['cuda'] / 1e6:9.2f}"
        )


def main() -> None:
    """Print a table for each graph."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    data = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("graphs", nargs="*", default=[str(data / "dblp-2010.mtx.xz")])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--without-cores", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for name in options.graphs:
        if options.gpu:
            made = gw.generate(name, device="cuda:0") if is_spec(name) else gw.read(name)
            show_on_gpu(name, made, options.seeds, with_cores=not options.without_cores)
            continue
        graph = load(name)
        own = of_godwit(graph, options.threads)
        methods = {**own, **of_peers(graph, options.threads, slow=options.slow)}
        for method in own.values():
            method(0)
        seen: dict[str, list[tuple[float, float, float]]] = {method: [] for method in methods}
        for seed in range(options.seeds):
            for method, find in methods.items():
                begin, cpu = time.perf_counter(), time.process_time()
                label = find(seed)
                taken = time.perf_counter() - begin, time.process_time() - cpu
                seen[method].append((*taken, gw.modularity(graph, np.asarray(label))))
        if not options.json:
            print(f"{name}: {graph}")
        for method, turns in seen.items():
            wall, cpu, value = (np.array(column) for column in zip(*turns, strict=True))
            row = {
                "seconds": float(np.median(wall)),
                "cpu_s": float(np.median(cpu)),
                "modularity": [float(f(value)) for f in (np.min, np.median, np.max)],
            }
            if options.json:
                print(json.dumps({"graph": name, "method": method, **row}))
            else:
                low, middle, high = row["modularity"]  # type: ignore[misc]
                print(
                    f"  {method:24} {row['seconds']:9.3f} s {row['cpu_s']:9.3f} s CPU   "
                    f"{low:.5f} {middle:.5f} {high:.5f}"
                )


if __name__ == "__main__":
    main()
