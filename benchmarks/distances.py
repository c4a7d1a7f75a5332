"""Distances from many sources at once, on a CPU or on GPUs.

    python benchmarks/distances.py [GRAPH ...] [--sources 64] [--devices cuda:0] [--times 5] [--steps]
    python benchmarks/distances.py USA-road-d.NY.gr.xz --sources 1024 --devices cuda:0

GRAPH is a file or a generated graph such as rmat:22,edge_factor=16. Sources are drawn at random among
vertices that have arcs. Times are medians in ms after a first query of a placed graph, whose time is
*first*: the whole call, with results where they are computed, and the kernel. Distances are compared with
the CPU's, for the first sources. With ``--steps``: the time of each superstep of the last query, as
gpu_profile.py explains it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw

CHECKED_ROWS = 16


def measure(graph: gw.Graph, sources: Any, devices: Any, times: int) -> dict[str, float]:
    """Measure queries of a placed graph, and compare rows with the CPU's."""
    on_gpu = devices != ["cpu"]
    results = {"results": devices[0]} if on_gpu else {}
    expected = gw.distances(graph, sources[:CHECKED_ROWS], devices="cpu").distance
    calls: list[float] = []
    kernels: list[float] = []
    with gw.place(graph, devices) as placed:
        for _ in range(times + 1):
            begin = perf_counter()
            result = gw.distances(placed, sources, **results)
            found = result.distance
            calls.append(1e3 * (perf_counter() - begin))
            kernels.append(1e3 * result.statistics.seconds.get("kernel", 0.0))
            rows = found[:CHECKED_ROWS]
            np.testing.assert_array_equal(rows.get() if hasattr(rows, "get") else rows, expected)
            statistics = result.statistics
            del result, found, rows
    return {
        "first": calls[0],
        "call": median(calls[1:]),
        "kernel": median(kernels[1:]),
        "supersteps": float(statistics.rounds.max()) if on_gpu else 0.0,
        "pairs reached": float(statistics.processed_items.sum()),
        "arcs visited": float(statistics.arcs_relaxed.sum()),
    }


class Steps:
    """The supersteps of the last run of each plan."""

    def __init__(self) -> None:
        from godwit.supersteps import run

        self.last: Any = None
        self._count = run._PROFILED_STEPS
        real = run.StepPlan.run

        def profiled(plan: run.StepPlan[Any], *arguments: Any, **named: Any) -> float:
            seconds = real(plan, *arguments, **named)
            placement = plan.placement.placements[0]
            arrays = placement.kept(run.RunArrays).control[placement.parts[0]]
            self.last = arrays.download(run.STEP_CONTROL, 1)[0]
            return seconds

        run.StepPlan.run = profiled  # type: ignore[method-assign]

    def table(self) -> str:
        """Return the phases of the last supersteps, how many there were in a row, and their time in µs."""
        control = self.last
        steps = int(control["state"][-2])
        rows: list[tuple[str, int, float]] = []
        for step in range(max(1, steps - self._count + 2), steps + 1):
            ended, before = (int(control["ended_ns"][at % self._count]) for at in (step, step - 1))
            phase = int(control["phases"][step % self._count])
            name = f"phase {phase & 0xFFFF}{' alone' if phase >> 31 else ''}"
            _, count, taken = rows.pop() if rows and rows[-1][0] == name else (name, 0, 0.0)
            rows.append((name, count + 1, taken + 1e-3 * (ended - before)))
        return "\n".join(f"    {name:14} x {count:4} {taken:10.1f}" for name, count, taken in rows)


def main() -> None:
    """Print a table for each graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=["rmat:14"])
    parser.add_argument("--sources", type=int, default=64)
    parser.add_argument("--devices", default="cpu", help="such as cuda:0")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--steps", action="store_true")
    arguments = parser.parse_args()
    devices = arguments.devices.split(",")
    for spec in arguments.graphs:
        graph = gw.read(spec) if Path(spec).exists() else gw.generate(spec, device=devices[0])
        profile = Steps() if arguments.steps else None
        joined = np.flatnonzero(graph.out_degree())
        sources = np.random.default_rng(1).choice(joined, arguments.sources, replace=False)
        rows = measure(graph, sources, devices, arguments.times)
        print(f"{Path(spec).name}: {graph}, {len(sources)} sources")
        for name, value in rows.items():
            print(f"  {name:20} {value:16,.2f}", flush=True)
        if profile is not None:
            print(profile.table(), flush=True)


if __name__ == "__main__":
    main()
