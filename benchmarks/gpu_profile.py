"""What the time of supersteps is spent on, of searches or of connected components, by device.

    python benchmarks/gpu_profile.py --graphs rmat22,rmat24 --devices 1,2
    python benchmarks/gpu_profile.py --query components --graphs road4900 --devices 1,2 --merges tree,direct

A superstep takes from the end of the one before to its own, on the clock of the GPU, as the last block of
a device comes to the meeting: so the waiting for other devices counts to the superstep after. The median
run of several.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import godwit as gw
from godwit.supersteps import run as steps
from gpu_paths import device_list, source_of
from gpu_steps_plans import GRAPHS

PHASES = {
    "bfs": ("begin", "push", "receive", "spread", "pull", "queue", "queue again"),
    "sssp": ("begin", "push", "broadcast", "pull", "correct"),
    "components": ("begin", "hook plainly", "compress", "link neighbours", "sample", "link rows",
                   "merge", "flatten roots", "settle", "label", "name"),
}  # fmt: skip
"""By query: its kinds of supersteps, as its kernel numbers them."""
ALONE = 0x80000000


def main() -> None:
    """Print a line a graph, number of devices, way of asking, and device."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--query", choices=sorted(PHASES), default="bfs")
    parser.add_argument("--graphs", default="rmat22,rmat24")
    parser.add_argument("--devices", default="1", help="numbers of GPUs, or such as 0+0")
    parser.add_argument("--methods", default="auto", help="of components, by commas")
    parser.add_argument("--merges", default="auto", help="of components on several GPUs")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", help="file to write all to")
    arguments = parser.parse_args()
    found: list[Any] = []
    real = steps.StepPlan.run

    def run(plan: steps.StepPlan[Any], *arguments: Any, **named: Any) -> float:
        seconds = real(plan, *arguments, **named)
        controls = [
            placement.kept(steps.RunArrays).control[part].download(steps.STEP_CONTROL, 1)
            for placement in plan.placement.placements
            for part in placement.parts
        ]
        found.append(np.concatenate(controls))
        return seconds

    steps.StepPlan.run = run  # type: ignore[method-assign]
    rows = []
    for name in arguments.graphs.split(","):
        weights = ",weights=1..64" if arguments.query == "sssp" else ""
        graph = gw.generate(GRAPHS[name] + weights, device="cuda:0")
        for devices in arguments.devices.split(","):
            with gw.place(graph, device_list(devices)) as placed:
                for words, ask in queries(arguments, name, graph, placed):
                    runs = []
                    for _ in range(arguments.repeats + 1):
                        found.clear()
                        result = ask()
                        runs.append((result.statistics.seconds["kernel"], found[-1].copy()))
                    runs = sorted(runs[1:], key=lambda run: run[0])
                    seconds, controls = runs[len(runs) // 2]
                    title = f"{name}{words}"
                    rows += show(title, devices, seconds, controls, PHASES[arguments.query])
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)


def queries(
    arguments: argparse.Namespace, name: str, graph: gw.Graph, placed: gw.PlacedGraph
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is asked of a placed graph, and in which words it is told."""
    if arguments.query == "bfs":
        source = source_of(name, graph)
        yield "", lambda: gw.bfs(placed, source, execution="bulk-synchronous")
        return
    if arguments.query == "sssp":
        source = source_of(name, graph)
        yield "", lambda: gw.sssp(placed, source, results="cuda:0")
        return
    merges = arguments.merges.split(",") if len(placed.context.devices) > 1 else ["auto"]
    for method in arguments.methods.split(","):
        for merge in merges:
            words = f" {method}" + (f", {merge}" if len(merges) > 1 else "")
            yield words, partial(gw.connected_components, placed, method=method, merge=merge)


def show(
    name: str, devices: str, seconds: float, controls: Any, phases: tuple[str, ...]
) -> list[dict[str, Any]]:
    """The supersteps of a run, of which the kernels remember the last 64."""
    rows = []
    for device, control in enumerate(controls):
        count = int(control["state"][steps.STEP])
        if count >= len(control["ended_ns"]):
            print(f"{name} on {devices}: {count} supersteps are too many to show")
            return rows
        ended = control["ended_ns"][: count + 1].astype(np.int64)
        kinds = [phases[phase & ~ALONE] for phase in control["phases"][1 : count + 1].tolist()]
        micros = [round(float(each), 1) for each in np.diff(ended) / 1e3]
        shown = ", ".join(f"{kind} {time:g}" for kind, time in zip(kinds, micros, strict=True))
        rest = seconds * 1e6 - sum(micros)
        print(f"{name} on {devices}, device {device}: {shown}; launch, gate and end {rest:.1f} µs")
        rows.append({"graph": name, "devices": devices, "device": device, "kinds": kinds,
                     "us": micros, "kernel_us": seconds * 1e6})  # fmt: skip
    return rows


if __name__ == "__main__":
    main()
