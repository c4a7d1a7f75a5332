"""Strong components and topological generations beside SciPy, networkit, igraph and NetworkX.

    python benchmarks/strong_components.py [--data FOLDER] [--runs N] [--only GRAPH | --file FILE]
        [--scale S] [--algorithm NAME] [--device DEVICE] [--cpu-time] [--json]

Directed graphs, without self-loops and parallel arcs; turns and ratios as ``benchmarks/peers.py`` has them.
Godwit's CPU takes the graph as it is ("Godwit"), and placed, with in-arcs at hand ("Godwit, placed").
Generations are those of the graph with every arc turned to its larger vertex. NetworkX takes part in graphs
of fewer than a million arcs. All answers are compared with Godwit's. ``--scale S`` is R-MAT of that scale
instead of the other graphs. ``--cpu-time`` takes the process's time on cores in place of the wall
clock, for machines that have other work; but for "Godwit, placed" all of these run on one thread.

With ``--device cuda`` the graph is placed there; ``kernel ms`` is the median of the kernels' time, the
medians are of whole calls with results on the GPU where CuPy is installed. Without the peers then.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

import godwit as gw
from components import smallest_vertices
from peers import (
    REFERENCE,
    TIMES,
    Column,
    Row,
    compared,
    directed_file,
    directed_graphs,
    in_networkit_and_igraph,
    measure,
    parser,
    report,
)

NETWORKX_ARCS = 1_000_000


def strong_peers(graph: gw.Graph) -> dict[str, Callable[[], Any]]:
    import networkit
    import networkx as nx
    from scipy.sparse.csgraph import connected_components

    matrix = graph.to_scipy()
    kit, other = in_networkit_and_igraph(graph)
    found: dict[str, Callable[[], Any]] = {
        "SciPy": lambda: connected_components(matrix, connection="strong")[1],
        "networkit": lambda: networkit.components.StronglyConnectedComponents(kit).run(),
        "igraph": lambda: other.connected_components(mode="strong").membership,
    }
    if graph.arc_count < NETWORKX_ARCS:
        theirs = graph.to_networkx()
        found["NetworkX"] = lambda: list(nx.strongly_connected_components(theirs))
    return found


def generation_peers(graph: gw.Graph) -> dict[str, Callable[[], Any]]:
    import networkx as nx

    _, other = in_networkit_and_igraph(graph)
    found: dict[str, Callable[[], Any]] = {"igraph, an order": other.topological_sorting}
    if graph.arc_count < NETWORKX_ARCS:
        theirs = graph.to_networkx()
        found["NetworkX"] = lambda: list(nx.topological_generations(theirs))
    return found


def is_same(answer: Any, expected: Any) -> bool | None:
    """Whether a peer has found Godwit's parts, or generations; None for an order."""
    if isinstance(expected, gw.GenerationsResult):
        if not isinstance(answer[0], list):
            return None
        return [sorted(part) for part in answer] == expected.members
    if hasattr(answer, "getPartition"):
        answer = answer.getPartition().getVector()
    elif isinstance(answer[0], set):
        parts, answer = answer, np.empty(len(expected.label), np.int64)
        for number, part in enumerate(parts):
            answer[list(part)] = number
    return bool(np.array_equal(smallest_vertices(np.asarray(answer)), expected.label))


def rows_of(
    name: str,
    algorithm: str,
    contenders: Mapping[str, Callable[[], Any]],
    given: argparse.Namespace,
) -> list[Row]:
    answers = {contender: query() for contender, query in contenders.items()}  # compiles, warms
    times = measure(contenders, given.runs, process_time if given.cpu_time else perf_counter)
    expected = answers[REFERENCE]
    rows = compared(times, graph=name, algorithm=algorithm)
    for row in rows:
        answer = answers[row["system"]]
        row["count"], row["kernel_ms"] = expected.count, None
        same = None if row["system"].startswith(REFERENCE) else is_same(answer, expected)
        row["same"] = None if same is None else "yes" if same else "NO"
    return rows


def acyclic(graph: gw.Graph) -> gw.Graph:
    """The graph with every arc turned to its larger vertex."""
    sources, targets, _ = graph.to_edges()
    low, high = np.minimum(sources, targets), np.maximum(sources, targets)
    made = gw.Graph.from_edges(low, high, vertex_count=graph.vertex_count)
    return made.merge_parallel_arcs()


def on_gpu(name: str, algorithm: str, graph: gw.Graph, arguments: argparse.Namespace) -> Row:
    """A row of a device: times of whole calls, and of kernels."""
    function: Any = getattr(gw, algorithm)
    results = "cuda" if importlib.util.find_spec("cupy") else "host"
    kernel_ms = []

    with gw.place(graph, arguments.device) as placed:

        def query() -> Any:
            result = function(placed, results=results)
            kernel_ms.append(1e3 * result.statistics.seconds["kernel"])
            return result

        answer = query()
        kernel_ms.clear()
        (row,) = compared(measure({REFERENCE: query}, arguments.runs), graph=name)
    expected = function(graph, devices="cpu")
    same = all(
        np.array_equal(getattr(expected, values), as_host(getattr(answer, values)))
        for values in ("label", "generation")
        if hasattr(expected, values)
    )
    steps, arcs = int(answer.statistics.rounds[0]), int(answer.statistics.arcs_relaxed[0])
    row |= {
        "algorithm": algorithm,
        "system": f"{answer.statistics.solver}, {steps} steps, {arcs / max(1, graph.arc_count):.1f} m arcs",
        "count": expected.count,
        "kernel_ms": statistics.median(kernel_ms),
        "same": "yes" if same else "NO",
    }
    return row


def as_host(values: Any) -> Any:
    return values.get() if hasattr(values, "get") else values


STRONG, GENERATIONS = "strongly_connected_components", "topological_generations"


def bench(name: str, graph: gw.Graph, arguments: argparse.Namespace) -> list[Row]:
    graph = graph.without_weights()
    wanted = arguments.algorithm or (STRONG, GENERATIONS)
    rows: list[Row] = []
    if STRONG in wanted:
        rows += bench_strong(name, graph, arguments)
    if GENERATIONS in wanted:
        rows += bench_generations(name, acyclic(graph), arguments)
    return rows


def bench_strong(name: str, graph: gw.Graph, arguments: argparse.Namespace) -> list[Row]:
    if arguments.device != "cpu":
        return [on_gpu(name, STRONG, graph, arguments)]
    plain = gw.Graph.trusted(*graph.rows, directed=True)  # without the in-arcs of the placed one
    with gw.place(graph, "cpu") as placed:
        ours: dict[str, Callable[[], Any]] = {
            REFERENCE: partial(gw.strongly_connected_components, plain, devices="cpu"),
            "Godwit, placed": partial(gw.strongly_connected_components, placed),
        }
        return rows_of(name, STRONG, ours | strong_peers(plain), arguments)


def bench_generations(name: str, graph: gw.Graph, arguments: argparse.Namespace) -> list[Row]:
    if arguments.device != "cpu":
        return [on_gpu(name, GENERATIONS, graph, arguments)]
    ours = {REFERENCE: partial(gw.topological_generations, graph, devices="cpu")}
    return rows_of(name, GENERATIONS, ours | generation_peers(graph), arguments)


if __name__ == "__main__":
    options = parser(__doc__, runs=7, known=directed_graphs)
    options.add_argument("--device", default="cpu")
    options.add_argument("--algorithm", action="append", choices=(STRONG, GENERATIONS))
    options.add_argument("--cpu-time", action="store_true", help="instead of the wall clock")
    options.add_argument("--scale", type=int, action="append", help="R-MAT instead, repeatable")
    given = options.parse_args()

    def graphs(folder: Path) -> Mapping[str, Callable[[], gw.Graph]]:
        if given.scale is None:
            return directed_graphs(folder)
        return {
            f"rmat:{scale}": partial(gw.generators.rmat, scale, 16, seed=1, symmetrize=False)
            for scale in given.scale
        }

    columns = (
        Column("", "algorithm", 30),
        Column("", "system", 36 if given.device != "cpu" else 18),
        *TIMES,
        Column("kernel ms", "kernel_ms", 10, ".3f"),
        Column("count", "count", 10, ","),
        Column("same", "same", 6),
    )
    report(given, bench, columns, graphs, directed_file)
