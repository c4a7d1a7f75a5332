"""Distances of random graphs of all kinds, by every method, compared with SciPy's: equal to the last bit.

    python benchmarks/exact_paths.py --graphs 5000                       # on the CPU
    python benchmarks/exact_paths.py --graphs 5000 --gpus 2 --processes 8 --seconds 50

A graph is drawn by its number: R-MAT, uniform, small worlds, meshes, roads, trees, stars, paths, cliques,
arcs anywhere (parallel, loops, isolated vertices), of 1 to 3,000 vertices, directed or not; weights are
small, zero, equal, of any spread, a few huge ones, too long for 32 bits, floating-point numbers; one source
or several, cutoffs, targets.
Methods on the CPU: sorted rows, delta-stepping on all cores and on two virtual devices, supersteps, one
thread, BFS. On GPUs, one alone and two together: sorted rows, the asynchronous engine, BFS by steps. It
ends with status 1 at the first difference, with the number that draws the graph again (``--first``).
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import godwit as gw
from godwit.algorithms import sssp as sssp_module

algorithm: Any = sssp_module


def anything(draw: Any, n: int) -> gw.Graph:
    """Arcs anywhere: half of these graphs have few tails."""
    arcs = int(n * draw.choice([0.3, 1, 4, 12]))
    tails = draw.integers(0, n if draw.integers(2) else min(n, 3), arcs)
    heads = draw.integers(0, n, arcs)
    return gw.Graph.from_edges(
        tails, heads, vertex_count=n + int(draw.integers(3)), directed=bool(draw.integers(2))
    )


KINDS: dict[str, Callable[[Any, int], gw.Graph]] = {
    "rmat": lambda draw, n: gw.generators.rmat(
        max(1, int(np.log2(n))), int(draw.integers(1, 24)), seed=int(draw.integers(1 << 30)),
        symmetrize=bool(draw.integers(2)),
    ),
    "uniform": lambda draw, n: gw.generators.uniform(
        n, min(int(n * draw.choice([0.5, 2, 8, 20])), n * (n - 1) // 2), seed=int(draw.integers(1 << 30))
    ),
    "small world": lambda draw, n: gw.generators.watts_strogatz(
        max(n, 40), neighbours=2 * int(draw.integers(1, 9)), rewire=float(draw.random() ** 3),
        seed=int(draw.integers(1 << 30)),
    ),
    "scale-free": lambda draw, n: gw.generators.barabasi_albert(
        max(n, 20), attach=int(draw.integers(1, 9)), seed=int(draw.integers(1 << 30))
    ),
    "road": lambda draw, n: gw.generators.road(
        max(2, int(n**0.5)), seed=int(draw.integers(1 << 30))
    ),
    "grid": lambda draw, n: gw.generators.grid(
        (rows := int(draw.integers(1, 1 + n**0.5))), max(1, n // rows)
    ),
    "mesh": lambda draw, n: gw.generators.delaunay(max(n, 4), seed=int(draw.integers(1 << 30))),
    "geometric": lambda draw, n: gw.generators.random_geometric(
        max(n, 4), seed=int(draw.integers(1 << 30))
    ),
    "tree": lambda draw, n: gw.generators.binary_tree(n),
    "caterpillar": lambda draw, n: gw.generators.caterpillar(max(1, n // 4), 3),
    "path": lambda draw, n: gw.generators.path(min(n, 300)),
    "star": lambda draw, n: gw.generators.star(n),
    "complete": lambda draw, n: gw.generators.complete(min(n, 90)),
    "anything": anything,
}  # fmt: skip

WEIGHTS: dict[str, Callable[[Any, int], Any]] = {
    "none": lambda draw, m: None,
    "1..64": lambda draw, m: draw.integers(1, 65, m).astype(np.int32),
    "0..3": lambda draw, m: draw.integers(0, 4, m).astype(np.int32),
    "zero": lambda draw, m: np.zeros(m, np.int32),
    "equal": lambda draw, m: np.full(m, draw.integers(1, 100), np.int32),
    "two": lambda draw, m: draw.choice(np.array([1, 1000], np.int32), m),
    "few huge": lambda draw, m: np.where(
        draw.random(m) < 0.01, 10**6, draw.integers(1, 65, m)
    ).astype(np.int32),
    "powers": lambda draw, m: (2.0 ** draw.integers(0, 20, m)).astype(np.int32),
    "too long": lambda draw, m: draw.integers(2**29, 2**31 - 2, m).astype(np.int32),
    "log-normal": lambda draw, m: draw.lognormal(0, 2, m),
    "floats": lambda draw, m: draw.random(m),
    "any floats": lambda draw, m: draw.choice([0.0, 1e-300, 0.1, 1.0, 1e16, np.inf], m),
}
RARE_DTYPES = {
    "1..64": ("int64", "uint32", "uint64"),
    "0..3": ("int64",),
    "floats": ("float32",),
    "log-normal": ("float32",),
}
"""Of weights that one graph in eight has, as kernels are compiled for each."""


def drawn(number: int) -> tuple[str, gw.Graph, Any]:
    """Return a description of the graph with a number, the graph, and what draws the rest."""
    draw = np.random.default_rng(number)
    kind, lengths = draw.choice(list(KINDS)), draw.choice(list(WEIGHTS))
    n = int(10 ** (3.5 * draw.random()))
    plain = KINDS[kind](draw, n)
    weights = WEIGHTS[lengths](draw, plain.arc_count)
    if weights is not None and draw.random() < 0.125 and lengths in RARE_DTYPES:
        weights = weights.astype(draw.choice(RARE_DTYPES[lengths]))
    graph = plain.without_weights()
    if weights is not None and not plain.directed:  # equal in both directions
        tails = np.repeat(np.arange(plain.vertex_count), np.diff(plain.offsets))
        low, high = np.minimum(tails, plain.targets), np.maximum(tails, plain.targets)
        keys = low.astype(np.int64) * plain.vertex_count + high
        weights = weights[np.unique(keys, return_inverse=True)[1]] if len(keys) else weights
    if weights is not None:
        graph = graph.with_weights(weights)
    return f"{number}: {kind}, weights {lengths}, {graph}", graph, draw


def reference(graph: gw.Graph, sources: list[int], *, unit: bool) -> Any:
    """SciPy's distances; infinity where not reached."""
    lengths = np.ones(graph.arc_count) if unit or graph.weights is None else graph.weights
    matrix = csr_array(
        (lengths.astype(np.float64), graph.targets, graph.offsets), shape=(graph.vertex_count,) * 2
    )
    return dijkstra(matrix, indices=sources, min_only=True)


def as_numbers(result: Any) -> Any:
    """Godwit's distances as float64; infinity where not reached."""
    distance = result.distance
    return np.where(result.reached, distance, np.inf).astype(np.float64)


@contextmanager
def choosing(*, rows: bool, alone: bool) -> Iterator[None]:
    """Have SSSP search by sorted rows on all devices, or never; small graphs by one thread, or not."""
    names = "_looks_at_few_arcs", "suits_all_gpus", "is_small"
    kept = [getattr(algorithm, name) for name in names]
    algorithm._looks_at_few_arcs = lambda placed, options: rows and placed.graph.is_weighted
    algorithm.suits_all_gpus = lambda placed: len(placed.context.devices) > 1
    algorithm.is_small = lambda graph: alone
    try:
        yield
    finally:
        for name, value in zip(names, kept, strict=True):
            setattr(algorithm, name, value)


Method = tuple[str, Callable[..., Any], dict[str, Any], dict[str, bool], Any]
"""Name, function, arguments, how it is chosen, and what the graph is placed on."""
ROWS, ALONE, ENGINE = (
    {"rows": True, "alone": False}, {"rows": False, "alone": True}, {"rows": False, "alone": False},
)  # fmt: skip


def methods(gpus: int) -> list[Method]:
    """The methods of distances by weights or, without weights, by arcs."""
    steps, asynchronous = ({"execution": name} for name in ("bulk-synchronous", "asynchronous"))
    if not gpus:
        return [
            ("sorted rows", gw.sssp, {}, ROWS, "cpu"),
            ("one thread", gw.sssp, {}, ALONE, "cpu"),
            ("all cores", gw.sssp, {}, ENGINE, "cpu"),
            ("two devices", gw.sssp, asynchronous, ENGINE, ["cpu:0", "cpu:1"]),
            ("supersteps", gw.sssp, steps, ENGINE, ["cpu:0", "cpu:1"]),
            ("BFS", gw.bfs, {}, ENGINE, "cpu"),
        ]
    found: list[Method] = []
    for count in range(1, gpus + 1):
        devices = [f"cuda:{index}" for index in range(count)]
        found += [
            (f"sorted rows, {count}", gw.sssp, {}, ROWS, devices),
            (f"asynchronous, {count}", gw.sssp, asynchronous, ENGINE, devices),
            (f"BFS by steps, {count}", gw.bfs, steps, ENGINE, devices),
            (f"BFS, asynchronous, {count}", gw.bfs, asynchronous, ENGINE, devices),
        ]
    return found


def cut(expected: Any, cutoff: float | None, target: int | None) -> Any:
    """The distances within a cutoff, and up to that of a target."""
    if cutoff is not None:
        expected = np.where(expected <= cutoff, expected, np.inf)
    if target is not None and expected[target] < np.inf:
        expected = np.where(expected <= expected[target], expected, np.inf)
    return expected


def check(number: int, gpus: int) -> Counter[str]:
    """Compare all methods on one graph; return how often each ran."""
    text, graph, draw = drawn(number)
    n, ran = graph.vertex_count, Counter[str]()
    sources = draw.choice(n, min(n, int(draw.choice([1, 1, 1, 3]))), replace=False).tolist()
    expected = {unit: reference(graph, sources, unit=unit) for unit in (False, True)}
    share, target = draw.random(), int(draw.integers(n)) if draw.random() < 0.15 else None
    placements: dict[str, gw.PlacedGraph] = {}
    try:
        for name, function, named, choice, devices in methods(gpus):
            unit = function is gw.bfs
            known = expected[unit]
            finite = known[np.isfinite(known)]
            cutoff = float(np.quantile(finite, draw.random())) if share < 0.25 else None
            key = str(devices)
            if key not in placements:
                placements[key] = gw.place(graph, devices)
            with choosing(**choice):
                result = function(
                    placements[key], sources, cutoff=cutoff, target=target, timeout_s=30.0, **named
                )
            wanted = cut(known, cutoff, target)
            found = as_numbers(result)
            if not np.array_equal(found, wanted):
                v = int(np.flatnonzero(found != wanted)[0])
                raise SystemExit(
                    f"{text}: {name} from {sources}, {cutoff=}, {target=}: vertex {v} is at "
                    f"{found[v]}, must be at {wanted[v]}"
                )
            ran[f"{name} ({result.statistics.solver})"] += 1
    except gw.errors.GodwitError as error:
        raise SystemExit(f"{text}: {name}: {error!r}") from error
    finally:
        for placed in placements.values():
            placed.close()
    return ran


def share_of(task: tuple[int, int, int, int, float]) -> tuple[int, Counter[str]]:
    """Check every so many graphs from a first one on; return how many, and how often methods ran."""
    first, end, step, gpus, seconds = task
    begin, total, count = perf_counter(), Counter[str](), 0
    for number in range(first, end, step):
        if perf_counter() - begin > seconds:
            break
        total += check(number, gpus)
        count += 1
    return count, total


def main() -> None:
    """Check so many graphs, in processes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--graphs", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="number of the first graph")
    parser.add_argument("--gpus", type=int, default=0, help="0: the CPU")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="no further graph after these")
    arguments = parser.parse_args()
    first, end, step = arguments.first, arguments.first + arguments.graphs, arguments.processes
    tasks = [
        (first + process, end, step, arguments.gpus, arguments.seconds) for process in range(step)
    ]
    begin = perf_counter()
    if step == 1:
        found = [share_of(tasks[0])]
    else:
        with multiprocessing.get_context("spawn").Pool(step) as pool:
            found = pool.map(share_of, tasks, chunksize=1)
    total = sum((ran for _, ran in found), Counter[str]())
    for name, times in sorted(total.items()):
        print(f"{times:7,} {name}")
    count = sum(one for one, _ in found)
    print(f"{count:,} graphs, {total.total():,} searches equal, {perf_counter() - begin:.0f} s")
    sys.exit(0 if count else 1)


if __name__ == "__main__":
    main()
