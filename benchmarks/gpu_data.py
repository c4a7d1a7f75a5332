"""Graphs made on a GPU: seconds and arcs per second, by parts, and beside the CPU where that is asked for.

    python benchmarks/gpu_data.py [--device cuda:0] [--runs N] [--only NAME] [--cpu] [--json]

Each graph ends on the host, as Python's functions return it: the wall clock has drawing, sorting, merging,
rows and the way down. The rate counts arcs as they are drawn or given, in both directions, before loops and
repeated ones are left out. The first run, which loads and perhaps compiles kernels, is told apart; the
figure is the others' median. With ``--cpu`` the same graph is made on all cores, once, and compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from godwit.errors import GodwitError
from godwit.graph.cuda.rows import rows_of_gpu_arrays
from godwit.graph.generators import cuda as gpu
from godwit.runtime.cuda import driver

PARTS = ("compile", "count", "distribute", "sort", "merge", "rows", "download")


@dataclass
class Task:
    """A graph to be made.

    :param drawn: arcs before any are left out; 0 for those of the graph
    :param make: takes the number of the GPU and what gets the seconds of its parts
    """

    name: str
    drawn: int
    make: Callable[[int, dict[str, float]], gw.Graph]
    on_cpu: Callable[[], gw.Graph]


def rmat(scale: int, edge_factor: int, **settings: Any) -> Task:
    weighted = ", weights 1..64" if settings else ""
    return Task(
        f"rmat{scale}_{edge_factor}{weighted}",
        2 * edge_factor << scale,
        lambda index, seconds: gpu.rmat(
            scale, edge_factor, seed=1, index=index, seconds=seconds, **settings
        ),
        lambda: gw.generators.rmat(scale, edge_factor, seed=1, **settings),
    )


def road(side: int) -> Task:
    return Task(
        f"road{side}",
        0,
        lambda index, seconds: gpu.road(side, seed=1, index=index, seconds=seconds),
        lambda: gw.generators.road(side, seed=1),
    )


def given(scale: int, edges: int, weighted: bool) -> Task:
    """Random arcs in CuPy's arrays, as an undirected graph."""
    generator = np.random.default_rng(1)
    arrays = [generator.integers(0, 1 << scale, edges, np.int32) for _ in range(2)]
    if weighted:
        arrays.append(generator.random(edges, np.float32))
    there: dict[int, list[Any]] = {}

    def make(index: int, seconds: dict[str, float]) -> gw.Graph:
        import cupy

        with cupy.cuda.Device(index):
            held = there.setdefault(index, [])
            if not held:
                held.extend(cupy.asarray(array) for array in arrays)
                cupy.cuda.Device(index).synchronize()
            rows = rows_of_gpu_arrays(*(*held, None)[:3], 1 << scale, False, None)
        if rows is None:
            raise GodwitError("these arrays would be brought to the host")
        return gw.Graph.trusted(*rows.on_host(), directed=False)

    return Task(
        f"CuPy arrays, {2 * edges / 1e6:,.0f} M arcs" + (", float32 weights" if weighted else ""),
        2 * edges,
        make,
        lambda: gw.Graph.from_edges(*arrays, vertex_count=1 << scale, directed=False),
    )


TASKS: dict[str, Callable[[], Task]] = {
    "rmat24": lambda: rmat(24, 16),
    "rmat24-weighted": lambda: rmat(24, 16, weights=(1, 64)),
    "rmat25": lambda: rmat(25, 16),  # 2**30 arcs are drawn
    "road4900": lambda: road(4900),
    "cupy": lambda: given(24, 1 << 27, weighted=False),
    "cupy-weighted": lambda: given(24, 1 << 27, weighted=True),
}


def measured(task: Task, index: int, runs: int, cpu: bool) -> dict[str, Any]:
    times: list[float] = []
    parts: list[dict[str, float]] = []
    graph = None
    for _ in range(runs + 1):
        seconds: dict[str, float] = {}
        graph = None  # its memory is given back before the next is made
        begin = perf_counter()
        graph = task.make(index, seconds)
        times.append(perf_counter() - begin)
        parts.append(seconds)
    assert graph is not None
    median = statistics.median(times[1:])
    found: dict[str, Any] = {
        "graph": task.name,
        "vertices": graph.vertex_count,
        "arcs": graph.arc_count,
        "drawn_arcs": task.drawn or graph.arc_count,
        "first_s": times[0],
        "median_s": median,
        "runs": runs,
        "arcs_per_s": (task.drawn or graph.arc_count) / median,
        "parts_s": {
            name: statistics.median(one[name] for one in parts[1:])
            for name in PARTS
            if name in parts[-1]
        },
    }
    if cpu:
        begin = perf_counter()
        other = task.on_cpu()
        found["cpu_s"] = perf_counter() - begin
        pairs = (
            (getattr(graph, name), getattr(other, name))
            for name in ("offsets", "targets", "weights")
        )
        found["equal"] = all(np.array_equal(one, same) for one, same in pairs)  # type: ignore[arg-type]
    return found


def shown(found: dict[str, Any]) -> str:
    parts = ", ".join(f"{name} {seconds:.3f}" for name, seconds in found["parts_s"].items())
    line = (
        f"{found['graph']:<36} {found['vertices']:>12,} vertices {found['arcs']:>14,} arcs  "
        f"{found['median_s']:8.3f} s (first {found['first_s']:.3f})  "
        f"{found['arcs_per_s'] / 1e9:6.3f} G arcs/s"
    )
    if parts:
        line += f"\n    {parts}"
    if "cpu_s" in found:
        verdict = "equal" if found["equal"] else "DIFFERENT"
        line += f"\n    CPU {found['cpu_s']:.3f} s, {verdict}"
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--runs", type=int, default=3, help="after the first")
    parser.add_argument("--only", choices=TASKS, action="append", help="may be given several times")
    parser.add_argument("--cpu", action="store_true", help="make it on the CPU, too, and compare")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        device = next(d for d in gw.all_devices() if d.name == options.device and d.kind == "cuda")
    except StopIteration:
        sys.exit(f"there is no GPU {options.device!r}: {driver.why_not() or 'others are there'}")
    results = []
    for name in options.only or TASKS:
        try:
            found = measured(
                TASKS[name](), int(device.name.partition(":")[2]), max(1, options.runs), options.cpu
            )
        except GodwitError as error:
            sys.exit(f"{name}: {error}")
        results.append(found)
        if not options.json:
            print(shown(found), flush=True)
    if options.json:
        print(json.dumps({"device": device.description, "results": results}, indent=2))


if __name__ == "__main__":
    main()
