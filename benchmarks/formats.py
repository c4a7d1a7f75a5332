"""Reading text beside SciPy, networkit and igraph; R-MAT as CSR; writing and reading every format.

    python benchmarks/formats.py [--data FOLDER] [--runs N] [--scale 22] [--json]

Files lie decompressed in a temporary folder and in the page cache. The peers take turns, in one process;
times are medians. What a system makes of a file differs: SciPy a COO matrix (its reader's own, on as many
threads as Godwit has), networkit and igraph graphs, Godwit CSR with sorted rows. Ratios are peer over
Godwit: above 1, Godwit is faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import godwit as gw
from godwit import config
from godwit.io.format_names import FORMATS
from godwit.io.graph_files import read, write

Timed = dict[str, Callable[[], Any]]


def medians(systems: Timed, runs: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in systems}
    for run in range(runs + 1):
        for name, call in systems.items():
            begin = perf_counter()
            call()
            if run > 0:  # the first one compiles, and brings the file into the page cache
                times[name].append(perf_counter() - begin)
    return {name: statistics.median(taken) for name, taken in times.items()}


def text_graphs(folder: Path) -> dict[str, Callable[[], gw.Graph]]:
    return {
        "USA-road-d.NY": lambda: read(folder / "USA-road-d.NY.gr.xz"),
        "cnr-2000": lambda: read(folder / "cnr-2000.mtx.xz"),
        "soc-Slashdot0902": lambda: read(folder / "soc-Slashdot0902.mtx.xz"),
        "rmat:18": lambda: gw.generate("rmat:18,weights=1..64"),
        "reals": lambda: gw.generate("rmat:16,weights=0.0..1.0"),
    }


def text_readers(graph: gw.Graph, folder: Path) -> Timed:
    """Every system on the text format that it is best at, of the same graph."""
    import igraph
    import networkit
    import scipy.io

    matrix, arcs = (
        folder / "graph.mtx",
        folder / "graph.wel" if graph.is_weighted else folder / "graph.el",
    )
    directed = gw.Graph(graph.offsets, graph.targets, graph.weights)  # so that every arc is a line
    write(directed, matrix)
    write(directed, arcs)
    plain = folder / "plain"
    lines = arcs.read_text().split("\n")
    plain.write_text("\n".join(line for line in lines if not line.startswith("#")))
    kind = networkit.Format.EdgeListSpaceZero
    systems: Timed = {
        "godwit .mtx": lambda: read(matrix),
        "scipy .mtx": lambda: scipy.io.mmread(matrix),
        "godwit edge list": lambda: read(arcs),
        "networkit edge list": lambda: networkit.readGraph(str(plain), kind, directed=True),
    }
    if graph.is_weighted:
        systems["igraph edge list"] = lambda: igraph.Graph.Read_Ncol(str(plain), directed=True)
    else:
        systems["igraph edge list"] = lambda: igraph.Graph.Read_Edgelist(str(plain), directed=True)
    return systems


def format_times(graph: gw.Graph, folder: Path, runs: int) -> dict[str, dict[str, float]]:
    found = {}
    for name, one in FORMATS.items():
        path = folder / f"graph{one.endings[-1]}"
        candidate = graph
        if name in ("webgraph-ascii", "adjacency-list"):
            candidate = graph.without_weights()
        if path.suffix == ".csv":
            path = folder / "graph.csv"
        begin = perf_counter()
        write(candidate, path, format=name)
        written = perf_counter() - begin
        times = medians(
            {"read": lambda path=path, name=name: read(path, format=name).targets}, runs
        )
        found[name] = {"write": written, "read": times["read"], "bytes": float(path.stat().st_size)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", type=int, default=22)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results: dict[str, Any] = {"threads": config.thread_count(), "text": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for label, make in text_graphs(arguments.data).items():
            graph = make()
            systems = text_readers(graph, folder)
            times = {}
            for kind in (".mtx", "edge list"):  # peers on one text take turns
                times |= medians(
                    {name: call for name, call in systems.items() if name.endswith(kind)},
                    arguments.runs,
                )
            results["text"][label] = {"arcs": graph.arc_count, "seconds": times}
        graph = gw.generate("rmat:18,weights=1..64").largest_component().with_ids(0)
        results["formats"] = {
            "arcs": graph.arc_count,
            "seconds": format_times(graph, folder, arguments.runs),
        }
    begin = perf_counter()
    graph = gw.generators.rmat(arguments.scale, 16)
    results["rmat"] = {
        "scale": arguments.scale,
        "arcs": graph.arc_count,
        "seconds": perf_counter() - begin,
    }
    if arguments.json:
        json.dump(results, sys.stdout, indent=2)
        return
    print(f"{results['threads']} threads; peer / Godwit")
    for label, found in results["text"].items():
        seconds = found["seconds"]
        ours, arcs = seconds["godwit .mtx"], seconds["godwit edge list"]
        print(
            f"{label:18} {found['arcs']:>10,} arcs  .mtx {ours * 1e3:8.1f} ms  "
            f"SciPy {seconds['scipy .mtx'] / ours:5.2f}  edge list {arcs * 1e3:8.1f} ms  "
            f"networkit {seconds['networkit edge list'] / arcs:6.1f}  "
            f"igraph {seconds['igraph edge list'] / arcs:6.1f}  "
            f"(networkit / SciPy {seconds['networkit edge list'] / seconds['scipy .mtx']:.1f}, "
            f"igraph / SciPy {seconds['igraph edge list'] / seconds['scipy .mtx']:.1f})"
        )
    print(f"every format, {results['formats']['arcs']:,} arcs")
    for name, taken in results["formats"]["seconds"].items():
        print(
            f"{name:18} {taken['bytes'] / 1e6:8.1f} MB  write {taken['write'] * 1e3:8.0f} ms  "
            f"read {taken['read'] * 1e3:8.1f} ms"
        )
    rmat = results["rmat"]
    print(f"rmat:{rmat['scale']} as CSR: {rmat['seconds']:.1f} s, {rmat['arcs']:,} arcs")


if __name__ == "__main__":
    main()
