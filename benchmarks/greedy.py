"""Independent sets and colourings beside networkit, igraph and NetworkX on the CPU, and on GPUs.

    python benchmarks/greedy.py [GRAPH ...] [--devices cuda] [--times 5] [--networkx] [--steps]

Graphs and times are as in core_numbers.py. ``floor`` is a pass that reads, for each arc, one number of its
target, on all cores. Sizes of sets and numbers of colours are printed, since other libraries take vertices
in other orders. With ``--devices``, times are of a placed graph: the whole call and the kernel, and with
``--steps`` the kernel of the step program that runs where a graph does not fit on one GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from core_numbers import edges, in_turns, load
from godwit.algorithms.greedy.order import Kind, vertex_order
from godwit.algorithms.greedy.program import decide_by_steps
from godwit.worker.options import query_options


def on_cpu(graph: gw.Graph, times: int) -> dict[str, float]:
    """Measure Godwit, its floor, and the libraries that are installed."""
    chosen, colors = gw.maximal_independent_set(graph), gw.greedy_color(graph)
    gw.verify_maximal_independent_set(graph, chosen)
    gw.verify_greedy_color(graph, colors)
    print(f"  godwit: a set of {chosen.size}, {colors.count} colours")
    calls: dict[str, Callable[[], Any]] = {
        "set": lambda: gw.maximal_independent_set(graph, devices="cpu"),
        "colours": lambda: gw.greedy_color(graph, devices="cpu"),
        "floor": lambda: gw.pagerank(graph, devices="cpu", max_iterations=1, tolerance=1e9),
    }
    try:
        import networkit as nk

        tails, heads = edges(graph)
        theirs = nk.GraphFromCoo(
            (tails.astype(np.uint64), heads.astype(np.uint64)), n=graph.vertex_count
        )
        print(f"  networkit: a set of {sum(nk.independentset.Luby().run(theirs))}")
        calls["set: networkit"] = lambda: nk.independentset.Luby().run(theirs)
    except ImportError:
        pass
    try:
        import igraph

        other = igraph.Graph(n=graph.vertex_count, edges=np.column_stack(edges(graph)))
        print(f"  igraph: {max(other.vertex_coloring_greedy()) + 1} colours")
        calls["colours: igraph"] = other.vertex_coloring_greedy
    except ImportError:
        pass
    return in_turns(calls, times)


def on_devices(graph: gw.Graph, devices: Any, times: int, *, steps: bool) -> dict[str, float]:
    """Measure a placed graph, and compare with the CPU's results."""
    found: dict[str, list[float]] = {}
    with gw.place(graph, devices) as placed:
        for name, function, attribute, kind in (
            ("set", gw.maximal_independent_set, "member", Kind.SET),
            ("colours", gw.greedy_color, "color", Kind.COLOR),
        ):
            expected = getattr(function(graph, devices="cpu"), attribute)
            order = vertex_order(graph, kind, 0)
            for turn in range(times + 1):
                begin = perf_counter()
                result = function(placed)
                call_s = perf_counter() - begin
                np.testing.assert_array_equal(getattr(result, attribute), expected)
                row = {"call": 1e3 * call_s, "kernel": 1e3 * result.statistics.seconds["kernel"]}
                row["million arcs"] = float(result.statistics.arcs_relaxed.sum()) / 1e6
                if steps:
                    values, statistics = decide_by_steps(placed, kind, order, query_options())
                    np.testing.assert_array_equal(
                        values == 1 if kind is Kind.SET else values, expected
                    )
                    row["step program"] = 1e3 * statistics.seconds["kernel"]
                for column, value in row.items():
                    if turn:
                        found.setdefault(f"{name}: {column}", []).append(value)
    return {name: median(values) for name, values in found.items()}


def main() -> None:
    """Print a table for each graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=["rmat:16"])
    parser.add_argument("--devices", help="GPUs, such as cuda:0 or cuda:0,cuda:1")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--networkx", action="store_true")
    parser.add_argument("--steps", action="store_true")
    arguments = parser.parse_args()
    for spec in arguments.graphs:
        graph = load(spec)
        print(f"{Path(spec).name}: {graph}")
        if arguments.devices:
            devices = arguments.devices.split(",")
            rows = on_devices(graph, devices, arguments.times, steps=arguments.steps)
        else:
            rows = on_cpu(graph, arguments.times)
        if arguments.networkx:
            import networkx as nx

            reference = graph.to_networkx()
            for name, call in (("set", nx.maximal_independent_set), ("colours", nx.greedy_color)):
                begin = perf_counter()
                call(reference)
                rows[f"{name}: NetworkX"] = 1e3 * (perf_counter() - begin)
        for name, value in rows.items():
            print(f"  {name:22} {value:10.2f}", flush=True)


if __name__ == "__main__":
    main()
