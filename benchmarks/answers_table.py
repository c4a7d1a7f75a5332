"""What a user waits for, beside what was asked: ``python benchmarks/answers.py --table``.

Answers are medians of the wall times of calls on placed graphs, in ms; results stay on the GPU unless said.
Kernels are ``statistics.seconds["kernel"]``. First queries run in processes of their own, whose caches are
empty: Godwit's, and that of CUDA, where NVRTC keeps what it has compiled.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from godwit.runtime.cuda.compile import SHIPPED_FOLDER

Ask = Callable[[], Any]

_FIRST = """
import sys
from time import perf_counter
import numpy as np
import godwit as gw
rng = np.random.default_rng(1)
sources, targets = rng.integers(0, 4096, (2, 32768))
weights = rng.integers(1, 64, 32768).astype(np.int32)
graph = gw.Graph.from_edges(sources, targets, weights, vertex_count=4096, directed=False)
ask = {
    "bfs": lambda: gw.bfs(graph, 0, devices="cuda:0").distance,
    "sssp": lambda: gw.sssp(graph, 0, devices="cuda:0").distance,
    "components": lambda: gw.connected_components(graph, devices="cuda:0").label,
    "pagerank": lambda: gw.pagerank(graph, devices="cuda:0").rank,
}[sys.argv[1]]
begin = perf_counter()
ask()
print(perf_counter() - begin)
"""

_ONE_GPU_MS, _TWO_GPUS_MS = 0.25, 0.35
"""Most of a call on one GPU, and on two, beside its kernels."""
_CALLS, _CALLS_S = 15, 0.6
_LEAK_QUERIES = 1500


@dataclass
class Table:
    """Measurements beside limits.

    :ivar failed: names of those beyond their limits
    """

    failed: list[str] = field(default_factory=list)

    def row(self, name: str, value: float, most: float | None, unit: str = "ms") -> None:
        """Print a row."""
        is_short = most is not None and not value <= most
        if is_short:
            self.failed.append(name)
        limit = "" if most is None else f"{most:9.3f}"
        print(f"{name:58} {value:9.3f} {limit:9} {unit}{'   SHORT' * is_short}", flush=True)


def measured(ask: Ask, calls: int = _CALLS) -> tuple[float, float]:
    """Return the median time of a call, and of its kernels, in ms; the first calls apart."""
    ask(), ask()
    answers, kernels, end = [], [], perf_counter() + _CALLS_S
    while len(answers) < calls and (len(answers) < 3 or perf_counter() < end):
        begin = perf_counter()
        statistics = ask().statistics
        answers.append(1e3 * (perf_counter() - begin))
        kernels.append(1e3 * statistics.seconds["kernel"])
    return median(answers), median(kernels)


def predecessors_ms(search: Ask) -> float:
    """Return the median time of the predecessors of a search alone."""
    times = []
    for _ in range(6):
        result = search()
        begin = perf_counter()
        _ = result.predecessor
        times.append(1e3 * (perf_counter() - begin))
    return median(times[1:])


def print_table(specs: dict[str, str], source_of: Callable[[str, gw.Graph], int]) -> None:
    """Measure all, on the first GPU, and on two if there are.

    :param specs: of graphs, by name
    """
    table = Table()
    print(f"{'':58} {'measured':>9} {'asked':>9}")
    shipped = ", kernels shipped" if SHIPPED_FOLDER.is_dir() else ""
    for algorithm in ("bfs", "bfs", "bfs", "sssp", "components", "pagerank"):
        most = 2.0 if algorithm == "bfs" else None
        table.row(f"first {algorithm} ever, empty caches{shipped}", first_s(algorithm), most, "s")
    gpus = [device.name for device in gw.all_devices() if device.kind == "cuda"]
    alone: dict[tuple[str, str], float] = {}
    for name, spec in specs.items():
        graph = gw.generate(spec, device="cuda:0")
        source = source_of(name, graph)
        with gw.place(graph, "cuda:0") as placed:
            of_one_gpu(table, name, placed, source, alone)
        if len(gpus) > 1 and name != "road300":
            with gw.place(graph, gpus[:2]) as placed:
                of_two_gpus(table, name, placed, source, alone)
    print("short: " + (", ".join(table.failed) or "nothing"))


def queries(placed: gw.PlacedGraph, source: int) -> dict[str, Ask]:
    """Return the queries whose answers are to be as fast as their kernels."""
    cuda = "cuda:0"
    return {
        "bfs": lambda: gw.bfs(placed, source, results=cuda),
        "sssp": lambda: gw.sssp(placed, source, results=cuda),
        "components": lambda: gw.connected_components(placed, results=cuda),
        "pagerank": lambda: gw.pagerank(placed, tolerance=1e-6, dtype="float32", results=cuda),
    }


_ANSWERS_MS = {
    ("rmat22", "bfs"): 0.35,
    ("rmat24", "bfs"): 0.55,
    ("rmat24", "components"): 0.5,
    ("road300", "bfs"): 0.7,
    ("rmat22-directed", "bfs"): 0.4,
    ("rmat22-directed", "components"): 0.6,
}


def of_one_gpu(
    table: Table, name: str, placed: gw.PlacedGraph, source: int,
    alone: dict[tuple[str, str], float],
) -> None:  # fmt: skip
    """Measure a graph on one GPU.

    :param alone: gets answers by graph and query
    """
    for query, ask in queries(placed, source).items():
        answer, kernel = measured(ask, 50 if name == "road300" else _CALLS)
        alone[name, query] = answer
        table.row(f"{name} {query}: answer minus kernel", answer - kernel, _ONE_GPU_MS)
        most = _ANSWERS_MS.get((name, query))
        table.row(f"{name} {query}: answer (kernel {kernel:.3f})", answer, most)
    if name in ("rmat24", "rmat22-directed"):

        def betweenness() -> Any:
            return gw.betweenness_centrality(
                placed, sources=[source], weighted=False, results="cuda:0"
            )

        most = 9.0 if name == "rmat24" else 3.0
        table.row(f"{name} betweenness, one source: answer", measured(betweenness)[0], most)
    if name in ("rmat24", "road4900"):
        most = 6.0 if name == "rmat24" else 2.0
        for search in (gw.bfs, gw.sssp):
            found = predecessors_ms(lambda search=search: search(placed, source, results="cuda:0"))
            table.row(f"{name} predecessors after {search.__name__}", found, most)
    if name == "rmat24":
        table.row(f"{name} bfs to the host", measured(lambda: gw.bfs(placed, source))[0], 3.0)
        table.row(f"{name} sssp to the host", measured(lambda: gw.sssp(placed, source))[0], 19.0)
    if name == "road4900":
        table.row("road4900 sssp with timeout_s=0.005 ends after", timeout_ms(placed, source), 6.0)
    if name == "rmat22":
        table.row("wrong results of eight threads", wrong_of_threads(placed, source), 0, "")
    if name == "road300":
        gpu_mb, host_mb = leaked_mb(placed, source)
        table.row(f"kept by {_LEAK_QUERIES} queries, on the GPU", gpu_mb, 0.0, "MB")
        table.row(f"kept by {_LEAK_QUERIES} queries, on the host", host_mb, 4.0, "MB")


def of_two_gpus(
    table: Table, name: str, placed: gw.PlacedGraph, source: int,
    alone: dict[tuple[str, str], float],
) -> None:  # fmt: skip
    """Measure a graph on two GPUs; parameters as of :func:`of_one_gpu`."""
    for query, ask in queries(placed, source).items():
        answer, kernel = measured(ask)
        table.row(f"{name} {query}, 2 GPUs: answer minus kernel", answer - kernel, _TWO_GPUS_MS)
        most = None
        if query == "components":  # no slower than one, but for what two may take beside kernels
            most = alone[name, query] + _TWO_GPUS_MS - _ONE_GPU_MS
        table.row(f"{name} {query}, 2 GPUs: answer (kernel {kernel:.3f})", answer, most)


def first_s(algorithm: str) -> float:
    """Return the seconds of the first query of a process, with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GODWIT_CACHE": folder, "CUDA_CACHE_PATH": folder}
        done = subprocess.run(
            [sys.executable, "-c", _FIRST, algorithm],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
    return float(done.stdout)


def timeout_ms(placed: gw.PlacedGraph, source: int) -> float:
    """Return the median time after which a search with a time-out of 5 ms ends."""
    times = []
    for _ in range(7):
        begin = perf_counter()
        try:
            gw.sssp(placed, source, results="cuda:0", timeout_s=0.005)
        except gw.errors.RunTimeoutError:
            times.append(1e3 * (perf_counter() - begin))
        else:
            times.append(float("nan"))
    return median(times[1:])


def wrong_of_threads(placed: gw.PlacedGraph, source: int) -> int:
    """Return the number of wrong results of eight threads that ask the same graph at once."""
    sources = [
        source,
        *(int(each) for each in np.random.default_rng(0).integers(0, placed.graph.vertex_count, 7)),
    ]
    wanted = {one: gw.sssp(placed, one).distance for one in sources}
    wrong: list[int] = []

    def search(first: int) -> None:
        for turn in range(8):
            one = sources[(first + turn) % 8]
            if not np.array_equal(gw.sssp(placed, one).distance, wanted[one]):
                wrong.append(one)

    threads = [threading.Thread(target=search, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(wrong)


def leaked_mb(placed: gw.PlacedGraph, source: int) -> tuple[float, float]:
    """Return the megabytes that are kept after many queries: on the GPU, and of the process."""
    import cupy

    asks = list(queries(placed, source).values())

    def ask_all(count: int) -> tuple[float, float]:
        for number in range(count):
            asks[number % len(asks)]()
        cupy.get_default_memory_pool().free_all_blocks()
        free_bytes, _ = cupy.cuda.runtime.memGetInfo()
        return free_bytes / 1e6, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3

    free_mb, host_mb = ask_all(200)
    left_mb, now_mb = ask_all(_LEAK_QUERIES)
    return free_mb - left_mb, now_mb - host_mb
