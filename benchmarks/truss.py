"""Truss numbers beside NetworkX on the CPU, and on GPUs.

    python benchmarks/truss.py [GRAPH ...] [--devices cuda:0] [--times 5] [--networkx]

GRAPH is a file or a generated graph such as rmat:18; graphs are made undirected and simple. Times are
medians in ms. ``triangles`` is the time of counting the triangles of vertices, which is the least that
truss numbers take. NetworkX's ``k_truss`` of the innermost truss runs once, if asked for; igraph's truss
numbers cannot be called from Python. With ``--devices``, times are of a placed graph: the whole call, and
the kernel.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from core_numbers import in_turns, load


def on_cpu(graph: gw.Graph, times: int) -> dict[str, float]:
    """Measure Godwit and its floor."""
    calls: dict[str, Any] = {
        "godwit": lambda: gw.truss_number(graph, devices="cpu"),
        "triangles": lambda: gw.triangles(graph, devices="cpu"),
    }
    return in_turns(calls, times)


def on_devices(graph: gw.Graph, devices: Any, times: int) -> dict[str, float]:
    """Measure a placed graph, and compare with the CPU's result."""
    expected = gw.truss_number(graph, devices="cpu").truss
    found: dict[str, list[float]] = {"call": [], "kernel": [], "supersteps": []}
    with gw.place(graph, devices) as placed:
        for turn in range(times + 1):
            begin = perf_counter()
            result = gw.truss_number(placed)
            call_s = perf_counter() - begin
            np.testing.assert_array_equal(result.truss, expected)
            if turn:
                found["call"].append(1e3 * call_s)
                found["kernel"].append(1e3 * result.statistics.seconds["kernel"])
                found["supersteps"].append(float(result.statistics.rounds.max()))
    return {name: median(values) for name, values in found.items()}


def main() -> None:
    """Print a table for each graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=["rmat:14"])
    parser.add_argument("--devices", help="a GPU, such as cuda:0")
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
            nx.k_truss(reference, gw.truss_number(graph).largest, backend="networkx")
            rows["NetworkX"] = 1e3 * (perf_counter() - begin)
        print(f"{Path(spec).name}: {graph}")
        for name, value in rows.items():
            print(f"  {name:20} {value:10.2f}", flush=True)


if __name__ == "__main__":
    main()
