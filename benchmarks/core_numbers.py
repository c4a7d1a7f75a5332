"""Core numbers beside networkit, igraph and NetworkX on the CPU, and on GPUs beside the step program.

    python benchmarks/core_numbers.py [GRAPH ...] [--devices cuda] [--times 5] [--networkx]

GRAPH is a file or a generated graph such as rmat:20; graphs are made undirected and simple. Times are
medians in ms, of calls that take turns, and of the CPU time of all threads, which says more where other
programs use the cores. NetworkX runs once, if asked for. ``floor`` is a pass that reads, for each arc, one
number of its target, on all cores (what peeling does at least once). With ``--devices``, times are of a
placed graph: the whole call, the kernel, and the kernel of ``examples/k_core.py`` (a step program).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

import godwit as gw

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))


def load(spec: str) -> gw.Graph:
    """Return an undirected graph without weights, self-loops and parallel arcs."""
    graph = gw.read(spec) if Path(spec).exists() else gw.generate(spec)
    return graph.without_weights().symmetrize().remove_self_loops().merge_parallel_arcs()


def in_turns(calls: dict[str, Callable[[], Any]], times: int) -> dict[str, float]:
    """Return the median ms of each call, and of its CPU time, after a first round that compiles."""
    seconds: dict[str, list[float]] = {}
    for turn in range(times + 1):
        for name, call in calls.items():
            begin, cpu_begin = perf_counter(), process_time()
            call()
            if turn:
                seconds.setdefault(name, []).append(perf_counter() - begin)
                seconds.setdefault(f"{name}: CPU", []).append(process_time() - cpu_begin)
    return {name: 1e3 * median(values) for name, values in seconds.items()}


def edges(graph: gw.Graph) -> tuple[Any, Any]:
    """Return the ends of each edge, once."""
    tails = np.repeat(np.arange(graph.vertex_count), graph.out_degree())
    once = tails < graph.targets
    return tails[once], graph.targets[once]


def on_cpu(graph: gw.Graph, times: int) -> dict[str, float]:
    """Measure Godwit, its floor, and the libraries that are installed; compare their results."""
    expected = gw.core_number(graph, devices="cpu").core
    gw.verify_core_number(graph, expected)
    calls: dict[str, Callable[[], Any]] = {
        "godwit": lambda: gw.core_number(graph, devices="cpu"),
        # One iteration reads a float64 of each arc's source.
        "floor": lambda: gw.pagerank(graph, devices="cpu", max_iterations=1, tolerance=1e9),
    }
    try:
        import networkit as nk

        tails, heads = edges(graph)
        theirs = nk.GraphFromCoo(
            (tails.astype(np.uint64), heads.astype(np.uint64)), n=graph.vertex_count
        )

        def networkit(*, serial: bool) -> Any:
            cores = nk.centrality.CoreDecomposition(theirs, enforceBucketQueueAlgorithm=serial)
            return cores.run().scores()

        calls["networkit"] = lambda: networkit(serial=False)
        calls["networkit, serial"] = lambda: networkit(serial=True)
        np.testing.assert_array_equal(networkit(serial=True), expected)
    except ImportError:
        pass
    try:
        import igraph

        other = igraph.Graph(n=graph.vertex_count, edges=np.column_stack(edges(graph)))
        calls["igraph"] = other.coreness
        np.testing.assert_array_equal(other.coreness(), expected)
    except ImportError:
        pass
    return in_turns(calls, times)


def on_devices(graph: gw.Graph, devices: Any, times: int) -> dict[str, float]:
    """Measure a placed graph, and compare with the CPU's result."""
    from k_core import K_CORE

    expected = gw.core_number(graph, devices="cpu").core
    found: dict[str, list[float]] = {"call": [], "kernel": [], "step program": [], "supersteps": []}
    with gw.place(graph, devices) as placed:
        for turn in range(times + 1):
            begin = perf_counter()
            result = gw.core_number(placed)
            call_s = perf_counter() - begin
            program = K_CORE.run(placed)
            np.testing.assert_array_equal(result.core, expected)
            np.testing.assert_array_equal(program.fields["core"], expected)
            if turn:
                found["call"].append(1e3 * call_s)
                found["kernel"].append(1e3 * result.statistics.seconds["kernel"])
                found["step program"].append(1e3 * program.statistics.seconds["kernel"])
                found["supersteps"].append(float(result.statistics.rounds.max()))
    return {name: median(values) for name, values in found.items()}


def main() -> None:
    """Print a table for each graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=["rmat:16"])
    parser.add_argument("--devices", help="GPUs, such as cuda:0 or cuda:0,cuda:1")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--networkx", action="store_true")
    arguments = parser.parse_args()
    for spec in arguments.graphs:
        graph = load(spec)
        if arguments.devices:
            rows = on_devices(graph, arguments.devices.split(","), arguments.times)
        else:
            rows = on_cpu(graph, arguments.times)
        if arguments.networkx:
            import networkx as nx

            reference = graph.to_networkx()
            begin = perf_counter()
            nx.core_number(reference)
            rows["NetworkX"] = 1e3 * (perf_counter() - begin)
        print(f"{Path(spec).name}: {graph}")
        for name, value in rows.items():
            print(f"  {name:20} {value:10.2f}", flush=True)


if __name__ == "__main__":
    main()
