"""Time until the answer is there, beside the time of the kernels, of queries of placed graphs.

    python benchmarks/answers.py                                  # cuda:0, or all cores without a GPU
    python benchmarks/answers.py --devices 2 --graphs rmat22 --json after.json
    python benchmarks/answers.py --compare before.json            # kernels' times over those of that run
    python benchmarks/answers.py --table                          # all that was asked, on one GPU and two

*answer* is the wall time of the call on a placed graph, with the result on the GPU; *kernel* is
``statistics.seconds["kernel"]`` (on CPUs, ``statistics.run_s``). Medians in ms, the first call apart.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from itertools import product
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from answers_table import print_table
from gpu_paths import device_list, source_of

GRAPHS = {
    "rmat22": "rmat:22,edge_factor=16,seed=1,weights=1..64",
    "rmat24": "rmat:24,edge_factor=16,seed=1,weights=1..64",
    "road4900": "road:4900x4900,keep=0.6,seed=1,weights=1..64",
    "road300": "road:300x300,seed=1,weights=1..64",
    "rmat22-directed": "rmat:22,edge_factor=16,seed=1,weights=1..64,symmetrize=false",
    "rmat16": "rmat:16,edge_factor=16,seed=1,weights=1..64",
}
DEFAULT_GRAPHS = ("rmat22", "rmat24", "road4900", "road300", "rmat22-directed")

Row = dict[str, Any]


def queries(
    placed: gw.PlacedGraph, source: int, results: str
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of each query, and a function that asks it."""
    yield "bfs", lambda: gw.bfs(placed, source, results=results)
    yield "bfs to the host", lambda: gw.bfs(placed, source)
    yield "sssp", lambda: gw.sssp(placed, source, results=results)
    yield "sssp to the host", lambda: gw.sssp(placed, source)
    yield "components", lambda: gw.connected_components(placed, results=results)
    yield "pagerank", lambda: gw.pagerank(placed, tolerance=1e-6, dtype="float32", results=results)
    yield (
        "betweenness, 1 source",
        lambda: gw.betweenness_centrality(
            placed, sources=[source], weighted=False, results=results
        ),
    )


def measure(ask: Callable[[], Any], repeats: int, seconds: float) -> Row:
    """Return medians in ms of some calls, at most as long as a number of seconds."""
    ask()
    answers, kernels = [], []
    deadline = perf_counter() + seconds
    while len(answers) < repeats and (len(answers) < 3 or perf_counter() < deadline):
        begin = perf_counter()
        statistics = ask().statistics
        answers.append(1e3 * (perf_counter() - begin))
        kernels.append(1e3 * statistics.seconds.get("kernel", statistics.run_s))
    answer, kernel = median(answers), median(kernels)
    phases = {name: 1e3 * value for name, value in statistics.seconds.items()}
    return {"kernel_ms": kernel, "answer_ms": answer, "runs": len(answers), "phases_ms": phases}


def predecessors(
    search: Callable[..., Any], placed: gw.PlacedGraph, source: int, results: str
) -> Callable[[], Any]:
    """Return a function that times the predecessors of a search alone."""

    def ask() -> Row:
        result = search(placed, source, results=results)
        begin = perf_counter()
        _ = result.predecessor
        return {"answer_ms": 1e3 * (perf_counter() - begin)}

    return ask


def main() -> None:
    """Print a row for each graph and query."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--graphs", default=",".join(DEFAULT_GRAPHS), help=", ".join(GRAPHS))
    parser.add_argument("--devices", default="1", help="number of GPUs, or such as 0+0, or cpu")
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a query's calls, at most")
    parser.add_argument(
        "--queries", default="", help="only those whose names begin so, as bfs,sssp"
    )
    parser.add_argument("--table", action="store_true", help="all that was asked, and nothing else")
    parser.add_argument("--json", help="file to write all rows to")
    parser.add_argument(
        "--compare", help="file of --json: kernel and answer over those of that run"
    )
    arguments = parser.parse_args()
    if arguments.table:
        print_table({name: GRAPHS[name] for name in DEFAULT_GRAPHS}, source_of)
        return
    has_gpu = any(device.kind == "cuda" for device in gw.all_devices())
    on_cpu = arguments.devices == "cpu" or not has_gpu
    devices: Any = "cpu" if on_cpu else device_list(arguments.devices)
    results = "host" if on_cpu else "cuda:0"
    wanted = tuple(arguments.queries.split(","))
    before = {}
    if arguments.compare:
        with open(arguments.compare, encoding="utf-8") as file:
            before = {(row["graph"], row["query"]): row for row in json.load(file)}
    rows: list[Row] = []
    print(f"{'graph':16} {'query':32} {'kernel':>9} {'answer':>9}   runs  of before")
    for name in arguments.graphs.split(","):
        graph = gw.generate(GRAPHS[name], device=None if on_cpu else "cuda:0")
        source = source_of(name, graph)
        begin = perf_counter()
        with gw.place(graph, devices) as placed:
            print(
                f"{name:16} {'place':32} {'':9} {1e3 * (perf_counter() - begin):9.1f}", flush=True
            )
            asked = dict(queries(placed, source, results))
            for query, ask in asked.items():
                if not query.startswith(wanted):
                    continue
                row = {"graph": name, "query": query}
                try:
                    row |= measure(ask, arguments.repeats, arguments.seconds)
                except gw.errors.GodwitError as error:
                    print(f"{name:16} {query:32} failed: {error}", flush=True)
                    continue
                rows.append(row)
                print(line(row, before.get((name, query))), flush=True)
            for search, where in product((gw.bfs, gw.sssp), dict.fromkeys((results, "host"))):
                query = f"predecessors of {search.__name__}" + " to the host" * (where != results)
                if not query.startswith(wanted):
                    continue
                ask = predecessors(search, placed, source, where)
                times = [ask()["answer_ms"] for _ in range(6)]
                row = {"graph": name, "query": query, "answer_ms": median(times[1:])}
                rows.append(row | {"kernel_ms": float("nan"), "runs": 5})
                print(line(rows[-1], before.get((name, query))), flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


def line(row: Row, before: Row | None) -> str:
    """Return a row as text."""
    text = f"{row['graph']:16} {row['query']:32} {row['kernel_ms']:9.3f} {row['answer_ms']:9.3f}"
    text += f" {row['runs']:6}"
    if before is not None:
        text += "".join(
            f" {np.float64(row[key]) / before[key]:7.3f}" for key in ("kernel_ms", "answer_ms")
        )
    return text


if __name__ == "__main__":
    main()
