"""BFS and SSSP on GPUs: time of the algorithm, graph placed, against the figures of benchmarks/RESULTS.md.

    python benchmarks/gpu_paths.py --graphs road4900,rmat22,rmat24 --devices 1,2,4
    python benchmarks/gpu_paths.py --graphs road4900 --devices 1 --delta 128,512,2048 --algorithms sssp

Times are those that kernels ran (statistics.seconds["kernel"]), median and quartiles, the first run apart;
every result is compared with the CPU's.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product
from time import perf_counter

import numpy as np

import godwit as gw
from godwit.runtime.gpu_options import ExperimentOptions

GRAPHS = {
    "road4900": lambda: gw.generators.road(4900, keep=0.6, seed=1, weights=(1, 64)),
    "road1000": lambda: gw.generators.road(1000, keep=0.6, seed=1, weights=(1, 64)),
    "rmat18": lambda: gw.generators.rmat(18, 16, seed=1, weights=(1, 64)),
    "rmat20": lambda: gw.generators.rmat(20, 16, seed=1, weights=(1, 64)),
    "rmat22": lambda: gw.generators.rmat(22, 16, seed=1, weights=(1, 64)),
    "rmat24": lambda: gw.generators.rmat(24, 16, seed=1, weights=(1, 64)),
}


def source_of(name: str, graph: gw.Graph) -> int:
    """Roads: the vertex nearest the middle that reaches half of the graph; else the highest degree."""
    if not name.startswith("road"):
        return int(graph.highest_degree_vertex())
    side = round(graph.vertex_count**0.5)
    middle = side // 2 * side + side // 2
    for vertex in range(middle, middle + 1000):
        reached = gw.bfs(graph, vertex, devices="cpu").reached
        if np.count_nonzero(reached) > graph.vertex_count // 4:
            return vertex
    raise SystemExit("no vertex near the middle lies in a large component")


def device_list(text: str) -> list[str]:
    """``"2"`` is cuda:0 and cuda:1; ``"0+0"`` is cuda:0 twice."""
    if "+" in text:
        return [f"cuda:{index}" for index in text.split("+")]
    return [f"cuda:{index}" for index in range(int(text))]


def measure(arguments: argparse.Namespace) -> list[dict[str, object]]:
    """A row per setting."""
    rows: list[dict[str, object]] = []
    for name in arguments.graphs.split(","):
        begin = perf_counter()
        graph = GRAPHS[name]()
        print(f"# {name}: {graph.vertex_count} vertices, {graph.arc_count} arcs, made in "
              f"{perf_counter() - begin:.1f} s", flush=True)  # fmt: skip
        source = source_of(name, graph)
        wanted = {}
        for algorithm in arguments.algorithms.split(","):
            begin = perf_counter()
            wanted[algorithm] = getattr(gw, algorithm)(graph, source, devices="cpu").distance
            print(f"# {algorithm} on the CPU: {perf_counter() - begin:.2f} s", flush=True)
        for devices in arguments.devices.split(","):
            begin = perf_counter()
            with gw.place(graph, device_list(devices), arguments.partition) as placed:
                print(f"# placed on {devices} in {perf_counter() - begin:.1f} s", flush=True)
                for algorithm, delta, hops, threads, window in product(
                    arguments.algorithms.split(","),
                    arguments.delta.split(","),
                    arguments.hops.split(","),
                    arguments.threads.split(","),
                    arguments.window.split(","),
                ):
                    tuning: dict[str, object] = {
                        "gpu": ExperimentOptions(
                            hops=None if hops == "auto" else int(hops),
                            threads=int(threads) or None,
                            transport=arguments.transport,
                            slice_s=arguments.slice,
                        ),
                        "worker": gw.WorkerOptions(
                            None if delta == "auto" else float(delta), int(window)
                        ),
                        "execution": "asynchronous",
                    }
                    row = {"graph": name, "algorithm": algorithm, "devices": devices}
                    row |= {"hops": hops, "threads": int(threads), "window": int(window)}
                    row |= one_setting(placed, algorithm, source, tuning, arguments, wanted)
                    rows.append(row)
                    print(line(row), flush=True)
    return rows


def one_setting(placed, algorithm, source, tuning, arguments, wanted) -> dict[str, object]:  # type: ignore[no-untyped-def]
    """Run it several times; check every result."""
    kernel_ms, whole_ms = [], []
    for _ in range(arguments.repeats + 1):
        begin = perf_counter()
        result = getattr(gw, algorithm)(placed, source, **tuning)
        whole_ms.append(1e3 * (perf_counter() - begin))
        kernel_ms.append(1e3 * result.statistics.seconds["kernel"])
        if not np.array_equal(result.distance, wanted[algorithm]):
            wrong = np.flatnonzero(result.distance != wanted[algorithm])
            first = wrong[0]
            raise SystemExit(
                f"WRONG: {algorithm} {tuning}: {len(wrong)} vertices, first {first}: "
                f"{result.distance[first]} instead of {wanted[algorithm][first]}"
            )
    found = result.statistics
    quarter, median, three = np.percentile(kernel_ms[1:], [25, 50, 75])
    reached = np.count_nonzero(result.reached)
    return {
        "delta": round(found.delta, 3) if found.delta is not None else None,
        "kernel_ms": round(float(median), 3),
        "quartiles_ms": [round(float(quarter), 3), round(float(three), 3)],
        "first_ms": round(kernel_ms[0], 2),
        "query_ms": round(float(np.median(whole_ms[1:])), 1),
        "rounds": int(found.rounds[0]),
        "work": round(float(found.processed_items.sum()) / reached, 3),
        "useless": round(float(found.useless_items.sum()) / reached, 3),
        "arcs": int(found.arcs_relaxed.sum()),
        "sent": int(found.sent_items.sum()),
        "busy": [round(float(share), 2) for share in found.busy_share],
    }


def line(row: dict[str, object]) -> str:
    """One row for people."""
    return (
        f"{row['graph']:9} {row['algorithm']:4} GPUs {row['devices']:7} delta {row['delta']!s:8} "
        f"hops {row['hops']:4} threads {row['threads']:4} window {row['window']} "
        f"{row['kernel_ms']:9.2f} ms {row['quartiles_ms']} first {row['first_ms']} query {row['query_ms']} "
        f"rounds {row['rounds']} work {row['work']} useless {row['useless']} "
        f"arcs {row['arcs']:,} sent {row['sent']:,} busy {row['busy']}"
    )


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--graphs", default="road4900,rmat22", help=", ".join(GRAPHS))
    parser.add_argument("--devices", default="1", help="numbers of GPUs, or such as 0+0")
    parser.add_argument("--algorithms", default="bfs,sssp")
    parser.add_argument("--delta", default="auto")
    parser.add_argument("--window", default="1")
    parser.add_argument("--hops", default="auto")
    parser.add_argument("--threads", default="0", help="0 for what suits the graph")
    parser.add_argument("--partition", default="contiguous")
    parser.add_argument("--transport", default="direct")
    parser.add_argument(
        "--slice", type=float, default=0.1, help="seconds; 0 starts a kernel a round"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", help="file to write the rows to")
    arguments = parser.parse_args()
    rows = measure(arguments)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
