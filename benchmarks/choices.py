"""The method that a search takes by default beside every method that it could take, on GPUs.

    python benchmarks/choices.py                       # on one GPU and, where there are two, on two
    python benchmarks/choices.py --graphs uniform,NY --tasks sssp --data FOLDER
    python benchmarks/choices.py --devices cpu --tasks sssp --graphs dblp,star,uniform-small
    python benchmarks/choices.py --tiny --repeats 1    # does it work?

Ways: ``rows`` (SSSP by rows sorted by weight, however the graph looks), ``steps`` (direction-optimizing
BFS), ``async`` (the asynchronous engine; on the CPU delta-stepping), each on one GPU and on all of several.
Medians in ms of queries in random order, of placed graphs with results where they are computed: kernels /
the call in Python. *auto* / *best*: kernels and calls of the default over those of the fastest way, on as
many GPUs or fewer. *own*: calls of the default over those of the same way when it is asked for. All
results are compared.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np

import godwit as gw
from godwit.algorithms import sssp as sssp_module
from godwit.algorithms.sssp import cuda as sssp_steps
from godwit.graph.depth import likely_levels
from godwit.runtime.cuda import driver
from gpu_paths import device_list, source_of

GRAPHS = {
    "road1000": "road:1000x1000,keep=0.6,seed=1",
    "road4900": "road:4900x4900,keep=0.6,seed=1",
    "NY": "file",
    "Slashdot": "file",
    "dblp": "file",
    "delaunay": "delaunay:500000,seed=1",
    "rgg": "random-geometric:2000000,seed=1",
    "watts-strogatz": "watts-strogatz:2000000,seed=1",
    "star": "star:1000000",
    "path": "path:50000",
    "uniform": "uniform:2000000,seed=1",
    "rmat20": "rmat:20,seed=1",
    "rmat21": "rmat:21,seed=1",
    "rmat22": "rmat:22,seed=1",
    "rmat23": "rmat:23,seed=1",
    "rmat24": "rmat:24,seed=1",
}
MORE_GRAPHS = {
    "caida": "file",
    "Enron": "file",
    "PGP": "file",
    "rmat16": "rmat:16,seed=1",
    "rmat18": "rmat:18,seed=1",
    "rmat20-8": "rmat:20,seed=1,edge_factor=8",
    "rmat22-4": "rmat:22,seed=1,edge_factor=4",
    "rmat20-64": "rmat:20,seed=1,edge_factor=64",
    "rmat22-directed": "rmat:22,seed=1,symmetrize=false",
    "barabasi-albert": "barabasi-albert:500000,attach=8,seed=1",
    "uniform-4": "uniform:2000000,edges=4000000,seed=1",
    "uniform-8": "uniform:2000000,edges=8000000,seed=1",
    "uniform-16": "uniform:2000000,edges=16000000,seed=1",
    "uniform-small": "uniform:100000,seed=1",
    "uniform-large": "uniform:8000000,seed=1",
    "small-world-16": "watts-strogatz:1000000,neighbours=16,seed=1",
    "small-world-rare": "watts-strogatz:1000000,neighbours=16,rewire=0.01,seed=1",
    "small-world-ring": "watts-strogatz:500000,neighbours=16,rewire=0.0001,seed=1",
    "grid": "grid:1000x1000",
    "cliques": "complete:1000,copies=1",
    "binary-tree": "binary-tree:1000000",
}
TINY = {
    "road1000": "road:20x20,seed=1",
    "uniform": "uniform:200,seed=1",
    "star": "star:100",
    "rmat20": "rmat:7,seed=1",
}

Row = dict[str, Any]
sssp_choice: Any = sssp_module
SOLVERS = {
    "direction-optimizing": "looks at few",
    "asynchronous": "async",
    "delta-stepping": "async",
}
SLOW_MS = 30.0
FAR = 2.5
"""A way that takes so many times as long as another, or as many ms, is not asked again and again."""


def made(name: str, spec: str, data: Path | None) -> gw.Graph | None:
    """Return a graph with weights from 1 to 64, or those of its file; None if there is no file."""
    if spec == "file":
        path = None if data is None else data / f"{name}.godwit"
        if path is None or not path.exists():
            return None
        graph = gw.read(path)
        return graph if graph.is_weighted else graph.with_random_weights(1, 64, seed=1)
    on_gpu = driver.device_count() > 0 and spec.startswith(("rmat:", "road:"))
    return gw.generate(f"{spec},weights=1..64", device="cuda:0" if on_gpu else None)


@contextmanager
def by_rows(wanted: bool) -> Iterator[None]:
    """Have SSSP of a placed graph search by sorted rows on all of its GPUs, or never, by default."""
    kept = sssp_choice._cuda, sssp_choice._looks_at_few_arcs, sssp_choice.suits_all_gpus
    forced = SimpleNamespace(
        source=sssp_steps.source,
        search_on_gpus=partial(sssp_steps.search_on_gpus, may_give_up=False),
    )
    sssp_choice._cuda = lambda: forced
    sssp_choice._looks_at_few_arcs = lambda placed, options: wanted
    sssp_choice.suits_all_gpus = lambda placed: len(placed.context.devices) > 1
    try:
        yield
    finally:
        sssp_choice._cuda, sssp_choice._looks_at_few_arcs, sssp_choice.suits_all_gpus = kept


class Way:
    """A way of a query of a placed graph, and the times of its calls."""

    def __init__(self, task: str, kind: str, count: int, placed: gw.PlacedGraph, source: Any):
        self.kind, self.count = kind, count
        self.name = kind if count <= 1 else f"{kind}, {count}"
        self.kernels: list[float] = []
        self.answers: list[float] = []
        self.first_ms = np.inf
        self.took = ""
        self.note = ""
        executions = {"async": "asynchronous", "steps": "bulk-synchronous"} if count else {}
        self._ask = partial(
            gw.bfs if task == "bfs" else gw.sssp,
            placed, source, execution=executions.get(kind, "auto"), timeout_s=2.0,
            results="cuda:0" if count and find_spec("cupy") else "host",
        )  # fmt: skip

    def ask(self) -> Any:
        """Ask once; return the distances, or None if this takes too long."""
        is_forced = self.kind == "rows" or (self.kind == "async" and not self.count)
        with by_rows(self.kind == "rows") if is_forced else ExitStack():
            begin = perf_counter()
            try:
                result = self._ask()
            except gw.errors.RunTimeoutError:
                self.note = "more than 2 s"
                return None
            self.answers.append(1e3 * (perf_counter() - begin))
        found = result.statistics
        self.kernels.append(1e3 * found.seconds.get("kernel", found.run_s))
        self.took = f"{SOLVERS.get(found.solver, found.solver)}, {len(found.devices)}"
        self.counts = {
            "rounds": int(np.max(found.rounds)),
            "arcs": int(np.sum(found.arcs_relaxed)),
            "items": int(np.sum(found.processed_items)),
        }
        return result.distance

    def row(self) -> Row:
        """Return the way's times and counts."""
        return {
            "way": self.name, "took": self.took, "kernel_ms": self.kernel, "answer_ms": self.answer,
            "first_ms": self.first_ms, "runs": len(self.kernels), "note": self.note, **self.counts,
        }  # fmt: skip

    @property
    def kernel(self) -> float:
        """The median of the kernels."""
        return median(self.kernels) if self.kernels else np.inf

    @property
    def answer(self) -> float:
        """The median of the calls."""
        return median(self.answers) if self.answers else np.inf

    counts: dict[str, int] = {}  # noqa: RUF012  # replaced, not changed


def measured(ways: list[Way], repeats: int) -> None:
    """Ask in turns, those that are far slower than the best but once after the first time."""
    expected: Any = None
    for way in ways:
        begin = perf_counter()
        distance = way.ask()
        way.first_ms = 1e3 * (perf_counter() - begin)
        if distance is None:
            continue
        if expected is None:
            expected = distance
        elif not bool((distance == expected).all()):
            raise SystemExit(f"{way.name} differs from {ways[0].name}")
    for way in ways:
        if way.kind == "auto":  # which learns from its first searches
            way.ask()
        way.kernels.clear()
        way.answers.clear()
        if not way.note:
            way.ask()
    least = min(way.kernel for way in ways)
    asked = [
        way for way in ways
        if not way.note and (way.kernel <= FAR * least or way.kernel - least < 0.2)
    ]  # fmt: skip
    order = random.Random(1)  # what runs before leaves its arrays in caches
    for _ in range(repeats - 1 if least < SLOW_MS else 2):
        for way in order.sample(asked, len(asked)):
            way.ask()


def compared(task: str, ways: list[Way], count: int) -> Row:
    """Return what the default on a number of GPUs took, and its times over the best of all ways."""
    auto = next(way for way in ways if way.kind == "auto" and way.count == count)
    others = [way for way in ways if way.kind != "auto" and way.count <= count]
    best = min(others, key=lambda way: way.kernel)
    soonest = min(others, key=lambda way: way.answer)
    taken, _, devices = auto.took.partition(", ")
    kind = "async" if taken == "async" else ("steps" if task == "bfs" else "rows")
    own = next((way for way in others if way.kind == kind and str(way.count) == devices), auto)
    return {
        "GPUs": count, "took": auto.took, "best": best.name,
        "kernel_ms": auto.kernel, "answer_ms": auto.answer, "first_ms": auto.first_ms,
        "kernel_ratio": auto.kernel / best.kernel, "answer_ratio": auto.answer / soonest.answer,
        "own_ratio": auto.answer / own.answer,
    }  # fmt: skip


def facts(graph: gw.Graph) -> Row:
    """What a rule of choice may look at."""
    degree = graph.out_degree()
    return {
        "vertices": graph.vertex_count,
        "arcs": graph.arc_count,
        "mean": graph.arc_count / graph.vertex_count,
        "most": int(degree.max()),
        "with_arcs": int(np.count_nonzero(degree)),
        "in_long_rows": float(degree[degree >= 16 * degree.mean()].sum() / graph.arc_count),
        "levels": likely_levels(graph),
    }


def main() -> None:
    """Print what each search took, and its times over the best."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--graphs", default=",".join(GRAPHS), help=", ".join({**GRAPHS, **MORE_GRAPHS})
    )
    parser.add_argument("--tasks", default="sssp,bfs")
    parser.add_argument(
        "--devices", default="", help="numbers of GPUs, or cpu; 1,2 if there are two"
    )
    parser.add_argument("--data", type=Path, help="folder with NY.godwit and other files")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--tiny", action="store_true", help="small graphs in place of all")
    parser.add_argument("--json", help="file to write all rows to")
    arguments = parser.parse_args()
    counts = [int(text) for text in arguments.devices.replace("cpu", "0").split(",") if text]
    if not counts:
        counts = [1, 2] if driver.device_count() > 1 else [1]
    specs = TINY if arguments.tiny else {**GRAPHS, **MORE_GRAPHS}
    rows: list[Row] = []
    begin = perf_counter()
    for name in list(TINY) if arguments.tiny else arguments.graphs.split(","):
        graph = made(name, specs[name], arguments.data)
        if graph is None:
            print(f"{name}: {name}.godwit is not in the folder of --data")
            continue
        known = facts(graph)
        print(f"{name}: " + ", ".join(f"{key} {value:,.5g}" for key, value in known.items())
              + f" [{perf_counter() - begin:.1f} s]", flush=True)  # fmt: skip
        source = source_of(name, graph)
        with ExitStack() as stack:
            placed = {
                count: stack.enter_context(
                    gw.place(graph, device_list(str(count)) if count else "cpu")
                )
                for count in counts
            }
            for task in arguments.tasks.split(","):
                kinds = ("auto", "async", "steps" if task == "bfs" else "rows")[
                    : 3 if task == "sssp" or counts[0] else 2
                ]
                ways = [
                    Way(task, kind, count, placed[count], source)
                    for count in counts
                    for kind in kinds
                ]
                measured(ways, arguments.repeats)
                print(f"  {task}: " + "; ".join(shown(way) for way in ways), flush=True)
                for count in counts:
                    row = {"graph": name, "task": task} | compared(task, ways, count)
                    print("    " + line(row), flush=True)
                    rows.append(row | {"facts": known, "ways": [way.row() for way in ways]})
        del graph, placed
        if arguments.json:  # what is cut off leaves its rows behind
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(rows, file, indent=1)
    report(rows)


def shown(way: Way) -> str:
    return f"{way.name} {way.note or f'{way.kernel:.3f} / {way.answer:.3f}'}"


def line(row: Row) -> str:
    """Return a row as text."""
    return (
        f"{row['task']:4} {row['GPUs']} GPUs took {row['took']:16} best {row['best']:9} auto / best: "
        f"kernels {row['kernel_ratio']:5.2f}, calls {row['answer_ratio']:5.2f}, own {row['own_ratio']:5.2f}"
    )


def report(rows: list[Row]) -> None:
    """Print how far from the best the default is, at worst and in the middle."""
    for key in ("kernel_ratio", "answer_ratio", "own_ratio"):
        ranked = sorted(rows, key=lambda row: row[key], reverse=True)
        worst = "; ".join(
            f"{row['graph']} {row['task']} {row['GPUs']}: {row[key]:.2f}" for row in ranked[:8]
        )
        print(f"{key}: median {median(row[key] for row in rows):.3f}; worst {worst}")


if __name__ == "__main__":
    main()
