"""The default way of a query beside the best of all ways, on graphs for which nothing was tuned.

    python benchmarks/zoo.py                              # --graphs path,star --weights none,1..64
    python benchmarks/zoo.py --tasks bfs,sssp --kept      # placed graphs only

Ways are the CPU and, where there is a GPU, the asynchronous engine and supersteps on it. A graph is asked
in two ways: *kept*, placed before, with results where they are computed; and *once*, from the graph in the
host's memory, with results there. Medians in ms; *ratio* is the time of the default over that of the best
way. A way that takes longer than ``--seconds`` is stopped, and counts with that time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw

GRAPHS = {
    "path": "path:1000000",
    "caterpillar": "caterpillar:300000x3",
    "binary-tree": "binary-tree:1000000",
    "star": "star:1000000",
    "complete": "complete:2000",
    "grid": "grid:1000x1000",
    "wide-grid": "grid:2000x2000",
    "ladder": "grid:4x250000",
    "road": "road:1000x1000",
    "watts-strogatz": "watts-strogatz:500000",
    "uniform": "uniform:300000",
    "delaunay": "delaunay:300000",
    "random-geometric": "random-geometric:200000",
    "cliques": "cliques",
    "barabasi-albert": "barabasi-albert:500000,attach=8",
    "rmat": "rmat:18",
    "rmat-directed": "rmat:18,symmetrize=false",
    "small-road": "road:100x100",
    "small-rmat": "rmat:10",
}
WEIGHTS = ("none", "1..64", "1..1000000", "lognormal", "equal", "two", "floats")
TASKS = ("bfs", "sssp", "components", "pagerank", "betweenness")
ENGINES = ("asynchronous", "bulk-synchronous")

Row = dict[str, Any]


def structure(name: str) -> gw.Graph:
    """Return a graph without weights."""
    if name != "cliques":
        return gw.generate(GRAPHS[name])
    size, count = 50, 500  # cliques in a row, each joined to the next by an edge
    one = np.stack(np.triu_indices(size, 1))
    rows = (one[:, None, :] + size * np.arange(count)[None, :, None]).reshape(2, -1)
    bridges = size * np.arange(1, count)
    sources = np.concatenate([rows[0], bridges - 1])
    return gw.Graph.from_edges(sources, np.concatenate([rows[1], bridges]), directed=False)


def edge_numbers(graph: gw.Graph) -> Any:
    """Return a number of each arc's edge: the same for both arcs, ascending without gaps."""
    n = graph.vertex_count
    heads = np.repeat(np.arange(n), np.diff(graph.offsets))
    low, high = np.minimum(heads, graph.targets), np.maximum(heads, graph.targets)
    return np.unique(low.astype(np.int64) * n + high, return_inverse=True)[1]


def weighted(graph: gw.Graph, kind: str) -> gw.Graph:
    """Return a graph with weights of a kind, the same for both arcs of an edge."""
    if kind == "none":
        return graph
    inverse = graph.cached("edge numbers", lambda: edge_numbers(graph))
    edge = range(int(inverse.max(initial=-1)) + 1)
    random = np.random.default_rng(1)
    draw: dict[str, Callable[[], Any]] = {
        "1..64": lambda: random.integers(1, 65, len(edge)),
        "1..1000000": lambda: random.integers(1, 10**6 + 1, len(edge)),
        "lognormal": lambda: 1 + np.minimum(random.lognormal(2, 2, len(edge)), 1e6).astype(int),
        "equal": lambda: np.full(len(edge), 7),
        "two": lambda: random.choice([1, 1000], len(edge)),
        "floats": lambda: random.random(len(edge)),
    }
    weights = draw[kind]()
    weights = weights.astype(np.int32 if weights.dtype.kind == "i" else np.float32)[inverse]
    return gw.Graph(graph.offsets, graph.targets, weights, directed=graph.directed)


def queries(task: str, source: int) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the engines that a task may be asked to run on, by name, and functions that ask it."""
    functions: dict[str, Callable[..., Any]] = {
        "bfs": lambda graph, **given: gw.bfs(graph, source, **given),
        "sssp": lambda graph, **given: gw.sssp(graph, source, **given),
        "components": gw.connected_components,
        "pagerank": gw.pagerank,
        "betweenness": partial(
            gw.betweenness_centrality, sources=[source, 1, 2, 3], weighted=False
        ),
    }
    yield "default", functions[task]
    if task in ("bfs", "sssp"):
        for engine in ENGINES[: 2 if task == "bfs" else 1]:
            yield engine, partial(functions[task], execution=engine)


def timed(ask: Callable[[], Any], repeats: int, seconds: float) -> float:
    """Return the median time of some calls in ms after a first one; infinity if it is refused."""
    times: list[float] = []
    begin = perf_counter()
    for number in range(repeats + 1):
        start = perf_counter()
        try:
            ask()
        except gw.errors.RunTimeoutError:
            return 1e3 * seconds
        except gw.errors.GodwitError:
            return float("inf")
        times.append(1e3 * (perf_counter() - start))
        if number == 0:
            begin = perf_counter()
        elif perf_counter() - begin > seconds:
            break
    return median(times[1:])


def ways(
    task: str, graph: gw.Graph, source: int, arguments: argparse.Namespace
) -> Iterator[tuple[str, str, float]]:
    """Yield how a graph is asked, the way, and its time in ms."""
    has_gpu = any(device.kind == "cuda" for device in gw.all_devices())
    measure = partial(timed, repeats=arguments.repeats, seconds=arguments.seconds)
    with ExitStack() as placed:
        kept = {"default": placed.enter_context(gw.place(graph))}
        kept["CPU"] = placed.enter_context(gw.place(graph, "cpu")) if has_gpu else kept["default"]
        for engine, ask in queries(task, source):
            for where, held in kept.items():
                if where == "CPU" and (engine != "default" or not has_gpu):
                    continue
                on_gpu = has_gpu and where != "CPU"
                results = {"results": "cuda:0"} if on_gpu else {}
                way = where if engine == "default" else engine
                query = partial(ask, held, timeout_s=arguments.seconds, **results)
                yield "kept", way, measure(query)
                if on_gpu and engine == "default" and task in ("bfs", "sssp", "betweenness"):
                    # Where the CPU's answer is what is wanted: results on the host.
                    yield "to host", way, measure(partial(ask, held, timeout_s=arguments.seconds))
    if arguments.kept:
        return
    for engine, ask in queries(task, source):
        for devices in (None, "cpu", "cuda:0") if has_gpu else (None,):
            if engine != "default" and devices != "cuda:0":
                continue
            name = engine if engine != "default" else {None: "default", "cpu": "CPU"}.get(devices)
            query = partial(ask, graph, devices=devices, timeout_s=arguments.seconds)
            yield "once", name or "GPU", measure(query)


def main() -> None:
    """Print a line for each graph, kind of weights, task, and how it is asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--weights", default=",".join(WEIGHTS), help="of shortest paths")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--kept", action="store_true", help="only graphs that are placed before")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a call, at most")
    parser.add_argument("--json", help="file to write all rows to")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for name in arguments.graphs.split(","):
        plain = structure(name)
        source = plain.highest_degree_vertex()
        for task in arguments.tasks.split(","):
            for kind in arguments.weights.split(",") if task == "sssp" else ["none"]:
                if task == "sssp" and kind == "none":
                    continue
                graph = weighted(plain, kind)
                times: dict[str, dict[str, float]] = {}
                for asked, way, ms in ways(task, graph, source, arguments):
                    times.setdefault(asked, {})[way] = ms
                host = times.pop("to host", {}).get("default")
                for asked, of in times.items():
                    best = min(of, key=lambda way: of[way])
                    ratio = of["default"] / of[best]
                    row = {"graph": name, "weights": kind, "task": task, "asked": asked}
                    rows.append(row | {"ms": of, "best": best, "ratio": ratio, "to_host": host})
                    shown = "  ".join(f"{way} {ms:.2f}" for way, ms in of.items())
                    print(
                        f"{ratio:7.2f}  {name:17} {kind:10} {task:11} {asked:5} {shown}", flush=True
                    )
    for asked in dict.fromkeys(row["asked"] for row in rows):
        ratios = sorted(row["ratio"] for row in rows if row["asked"] == asked)
        print(f"{asked}: worst {ratios[-1]:.2f}, median {median(ratios):.2f}, of {len(ratios)}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
