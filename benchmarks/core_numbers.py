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


def of_placed(
    graph: gw.Graph, devices: Any, times: int, measure: Callable[[gw.PlacedGraph], dict[str, float]]
) -> dict[str, float]:
    """Return the medians of what a function measures, after a first call that compiles."""
    found: dict[str, list[float]] = {}
    with gw.place(graph, devices) as placed:
        measure(placed)
        for _ in range(times):
            for name, value in measure(placed).items():
                found.setdefault(name, []).append(value)
    return {name: median(values) for name, values in found.items()}


def timed(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return a result, and ms of the call and of its kernel, and supersteps."""
    begin = perf_counter()
    result = call()
    call_s = perf_counter() - begin
    statistics = result.statistics
    return result, {
        "call": 1e3 * call_s,
        "kernel": 1e3 * statistics.seconds["kernel"],
        "supersteps": float(statistics.rounds.max()),
    }


def on_devices(graph: gw.Graph, devices: Any, times: int) -> dict[str, float]:
    """Measure a placed graph, and compare with the CPU's result."""
    from k_core import K_CORE

    expected = gw.core_number(graph, devices="cpu").core

    def measure(placed: gw.PlacedGraph) -> dict[str, float]:
        result, found = timed(lambda: gw.core_number(placed))
        program = K_CORE.run(placed)
        np.testing.assert_array_equal(result.core, expected)
        np.testing.assert_array_equal(program.fields["core"], expected)
        return {**found, "step program": 1e3 * program.statistics.seconds["kernel"]}

    return of_placed(graph, devices, times, measure)


def print_tables(
    description: str | None,
    default: str,
    on_cpu: Callable[[gw.Graph, int], dict[str, float]],
    on_devices: Callable[[gw.Graph, Any, int], dict[str, float]],
    networkx: Callable[[gw.Graph, Any], Any],
) -> None:
    """Read the arguments of the command line, and print a table for each graph.

    :param default: the graph if none is named
    :param networkx: calls NetworkX's function; gets the graph and that of NetworkX
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("graphs", nargs="*", default=[default])
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
            reference = graph.to_networkx()
            begin = perf_counter()
            networkx(graph, reference)
            rows["NetworkX"] = 1e3 * (perf_counter() - begin)
        print(f"{Path(spec).name}: {graph}")
        for name, value in rows.items():
            print(f"  {name:20} {value:10.2f}", flush=True)


def of_networkx(graph: gw.Graph, reference: Any) -> Any:
    """Call NetworkX."""
    import networkx as nx

    return nx.core_number(reference)


if __name__ == "__main__":
    print_tables(__doc__, "rmat:16", on_cpu, on_devices, of_networkx)
