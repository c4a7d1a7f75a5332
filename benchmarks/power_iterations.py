"""Eigenvector centrality, Katz centrality and HITS beside NetworkX and SciPy, on the CPU.

    python benchmarks/power_iterations.py FILE [FILE ...]

Graphs are undirected, without weights, self-loops and parallel arcs. Godwit's times are the least of five,
after a first call that compiles and prepares; NetworkX runs once, on a graph of its own that is made
before; SciPy is power iteration by its sparse product. All stop at their default tolerances, and results
are compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import networkx as nx
import numpy as np

import godwit as gw

TIMES = 5


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    begin = perf_counter()
    result = call()
    return perf_counter() - begin, result


def eigenvector_by_scipy(matrix: Any) -> Any:
    n = matrix.shape[0]
    x = np.full(n, 1 / n)
    while True:
        new = x + matrix @ x
        new /= np.linalg.norm(new)
        if np.abs(new - x).sum() < n * 1e-6:
            return new
        x = new


def katz_by_scipy(matrix: Any, alpha: float) -> Any:
    n = matrix.shape[0]
    x = np.zeros(n)
    while True:
        new = alpha * (matrix @ x) + 1
        if np.abs(new - x).sum() < n * 1e-6:
            return new / np.linalg.norm(new)
        x = new


def run(path: str) -> None:
    """Print a row for each algorithm: ms of Godwit, and how many times as long the others take."""
    graph = gw.read(path).without_weights().symmetrize().remove_self_loops().merge_parallel_arcs()
    matrix = graph.to_scipy().astype(np.float64)
    reference = graph.to_networkx()
    alpha = 0.5 / float(graph.out_degree().max())
    algorithms: dict[str, tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any] | None]] = {
        "eigenvector": (
            lambda: gw.eigenvector_centrality(graph, devices="cpu").centrality,
            lambda: nx.eigenvector_centrality(reference),
            lambda: eigenvector_by_scipy(matrix),
        ),
        "katz": (
            lambda: gw.katz_centrality(graph, alpha=alpha, devices="cpu").centrality,
            lambda: nx.katz_centrality(reference, alpha=alpha),
            lambda: katz_by_scipy(matrix, alpha),
        ),
        "hits": (
            lambda: gw.hits(graph, devices="cpu").hubs,
            lambda: nx.hits(reference)[0],
            None,
        ),
    }
    name = Path(path).name.partition(".")[0]
    for algorithm, (ours, theirs, scipys) in algorithms.items():
        values = ours()
        own = min(seconds(ours)[0] for _ in range(TIMES))
        nx_s, found = seconds(theirs)
        error = np.abs(values - np.array(list(found.values()))).max() / np.abs(values).max()
        scipy_s = None if scipys is None else min(seconds(scipys)[0] for _ in range(TIMES))
        by_scipy = "-" if scipy_s is None else f"{scipy_s / own:.1f}"
        print(
            f"| {name} | {algorithm} | {1e3 * own:.1f} | {nx_s / own:.0f} | {by_scipy} | {error:.1g} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    for file in parser.parse_args().files:
        run(file)
