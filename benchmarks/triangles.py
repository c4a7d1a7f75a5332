"""Triangles beside GAP, networkit, igraph, SciPy and NetworkX, in one process run; and on GPUs.

    python benchmarks/triangles.py [--data FOLDER] [--runs N] [--only GRAPH | --file FILE]
        [--gap FOLDER] [--json] [--slow]
    python benchmarks/triangles.py --devices cuda:0,cuda:1 [--runs N] [--graphs rmat22,road4900]

Graphs, turns and ratios as ``benchmarks/peers.py`` has them, without weights. Godwit gets a new graph
each time, so that its rows by degree are made, as GAP's ``tc`` makes them; ``rows kept`` is a second query
of one graph. Totals are compared. NetworkX, and SciPy's product of matrices, run with ``--slow``.

On GPUs: milliseconds of kernels, and of whole queries of placed graphs, medians after a first query; and
the seconds of the first, which makes rows and plans. ``--check`` compares totals with the CPU's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from peers import (
    GAP,
    REFERENCE,
    TIMES,
    Column,
    Row,
    compared,
    gap_file,
    gap_times,
    in_networkit_and_igraph,
    measure,
    parser,
    report,
)

KEPT = "Godwit, rows kept"
GPU_GRAPHS = {
    "rmat20": "rmat:20,edge_factor=16,seed=1",
    "rmat22": "rmat:22,edge_factor=16,seed=1",
    "road4900": "road:4900x4900,seed=1",
    "barabasi-albert": "barabasi-albert:2000000,attach=8,seed=1",
}


def peers(graph: gw.Graph, *, slow: bool) -> dict[str, Callable[[], Any]]:
    """Return functions that count the triangles of the graph, or of each vertex."""
    import networkit

    kit, other = in_networkit_and_igraph(graph)
    kit.indexEdges()
    kit.sortEdges()

    def by_networkit() -> float:
        score = networkit.sparsification.TriangleEdgeScore(kit).run()
        return int(sum(score.scores())) // 3

    degree = graph.out_degree()
    pairs = int((degree * (degree - 1)).sum())
    found: dict[str, Callable[[], Any]] = {
        "networkit": by_networkit,
        # Listing them takes memory for each; it counts them for this share alone.
        "igraph": lambda: round(other.transitivity_undirected() * pairs / 6),
    }
    if slow:
        import networkx as nx

        matrix = graph.with_weights(np.ones(graph.arc_count, np.int64)).to_scipy()
        reference = graph.to_networkx()
        found["SciPy"] = lambda: int(matrix.multiply(matrix @ matrix).sum()) // 6
        found["NetworkX"] = lambda: sum(nx.triangles(reference).values()) // 3
    return found


def bench(name: str, graph: gw.Graph, arguments: argparse.Namespace) -> list[Row]:
    """Return rows of one graph."""
    graph = graph.without_weights().remove_self_loops().merge_parallel_arcs()

    def anew() -> int:
        rows = gw.Graph.trusted(graph.offsets, graph.targets, directed=False)
        return gw.triangles(rows, devices="cpu").total

    contenders: dict[str, Callable[[], Any]] = {
        REFERENCE: anew,
        KEPT: lambda: gw.triangles(graph, devices="cpu").total,
        **peers(graph, slow=arguments.slow),
    }
    answers = {contender: query() for contender, query in contenders.items()}  # compiles, warms
    times = measure(contenders, arguments.runs)
    if arguments.gap is not None:
        with gap_file(graph) as file:
            times[GAP] = gap_times(arguments.gap / "tc", file, arguments.runs)
    rows = compared(times, graph=name)
    for row in rows:
        answer = answers.get(row["system"])
        row["triangles"] = answers[REFERENCE]
        row["same"] = None if answer is None else "yes" if answer == answers[REFERENCE] else "NO"
    return rows


def on_gpus(arguments: argparse.Namespace) -> None:
    """Print a row for each graph."""
    devices = arguments.devices.split(",")
    print(f"{'graph':16} {'kernel ms':>10} {'query ms':>10} {'first s':>8} {'triangles':>14}  same")
    for name in arguments.graphs.split(","):
        is_rmat = name.startswith("rmat")
        graph = gw.generate(GPU_GRAPHS[name], device=devices[0] if is_rmat else None)
        with gw.place(graph, devices) as placed:
            begin = perf_counter()
            total = gw.triangles(placed).total
            first_s = perf_counter() - begin
            kernels, queries = [], []
            for _ in range(arguments.runs):
                begin = perf_counter()
                found = gw.triangles(placed)
                queries.append(1e3 * (perf_counter() - begin))
                kernels.append(1e3 * found.statistics.seconds["kernel"])
        same = "-"
        if arguments.check:
            same = "yes" if gw.triangles(graph, devices="cpu").total == total else "NO"
        times = f"{median(kernels):10.2f} {median(queries):10.2f} {first_s:8.2f}"
        print(f"{name:16} {times} {total:14,}  {same}", flush=True)


def main() -> None:
    """Run one of both."""
    made = parser(__doc__, runs=5)
    made.add_argument("--slow", action="store_true", help="run NetworkX and SciPy, too")
    made.add_argument("--devices", help="GPUs, instead of the comparison on the CPU")
    made.add_argument("--graphs", default=",".join(GPU_GRAPHS), help="on GPUs")
    made.add_argument("--check", action="store_true", help="on GPUs: count on the CPU, too")
    arguments = made.parse_args()
    if arguments.devices:
        on_gpus(arguments)
        return
    columns = (
        Column("", "system", 18),
        *TIMES,
        Column("triangles", "triangles", 14, ","),
        Column("same", "same", 6),
    )
    report(arguments, bench, columns)


if __name__ == "__main__":
    main()
