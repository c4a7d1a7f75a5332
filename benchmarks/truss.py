"""Truss numbers beside NetworkX on the CPU, and on GPUs.

    python benchmarks/truss.py [GRAPH ...] [--devices cuda:0] [--times 5] [--networkx]

GRAPH is a file or a generated graph such as rmat:18; graphs are made undirected and simple. Times are
medians in ms. ``triangles`` is the time of counting the triangles of vertices, which is the least that
truss numbers take. NetworkX's ``k_truss`` of the innermost truss runs once, if asked for; igraph's truss
numbers cannot be called from Python. With ``--devices``, times are of a placed graph: the whole call, and
the kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import godwit as gw
from core_numbers import in_turns, of_placed, print_tables, timed


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

    def measure(placed: gw.PlacedGraph) -> dict[str, float]:
        result, found = timed(lambda: gw.truss_number(placed))
        np.testing.assert_array_equal(result.truss, expected)
        return found

    return of_placed(graph, devices, times, measure)


def of_networkx(graph: gw.Graph, reference: Any) -> Any:
    """Call NetworkX for the innermost truss."""
    import networkx as nx

    return nx.k_truss(reference, gw.truss_number(graph).largest, backend="networkx")


if __name__ == "__main__":
    print_tables(__doc__, "rmat:14", on_cpu, on_devices, of_networkx)
