"""Graphs on several processes: time, processor time, and what is sent.

One process without MPI, one under it, and two of half as many threads::

    GODWIT_THREADS=2 python benchmarks/distributed.py rmat:20
    GODWIT_THREADS=2 mpiexec -n 1 python benchmarks/distributed.py rmat:20
    GODWIT_THREADS=1 mpiexec -n 2 python benchmarks/distributed.py rmat:20

A GPU for each process, beside all GPUs of one process::

    python benchmarks/distributed.py rmat:24 --devices cuda
    mpiexec -n 2 python benchmarks/distributed.py rmat:24 --devices cuda

Each line has the least time of some runs in milliseconds, the least processor time of all processes
together (which other programs on the machine hardly change), the supersteps, and the most that a process
sends: messages and bytes; on GPUs, the least time of kernels, too. ``--runs 1`` suffices for volumes, which
are the same in every run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

import godwit as gw
from godwit.config import is_launched


def queries(graph: Any, source: Any, on_gpus: bool) -> dict[str, Callable[[], Any]]:
    """Return the queries by name; shortest paths for graphs with weights."""
    ranks = {"accelerated": False, "max_iterations": 20, "tolerance": 1e-12}
    found: dict[str, Callable[[], Any]] = {
        "bfs": lambda: gw.bfs(graph, source),
        "pagerank, 20 iterations": lambda: gw.pagerank(graph, **ranks),
    }
    if on_gpus:
        return found
    found["components"] = lambda: gw.connected_components(graph)
    if (graph if hasattr(graph, "is_weighted") else graph.graph).is_weighted:
        found["sssp"] = lambda: gw.sssp(graph, source)
    return found


def main() -> None:
    """Measure all queries of one graph."""
    parser = argparse.ArgumentParser()
    parser.add_argument("graph", nargs="?", default="rmat:20")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--devices", choices=("cpu", "cuda"), default="cpu")
    given = parser.parse_args()
    processes = gw.distributed.context() if is_launched() else None
    graph: Any
    begin = perf_counter()
    if processes is None:
        whole = gw.generate(given.graph)
        graph, source = gw.place(whole, given.devices), whole.highest_degree_vertex()
    else:
        devices = None if given.devices == "cpu" else given.devices
        graph = processes.place(given.graph, devices=devices)
        source = graph.highest_degree_vertex()
    placed_s = perf_counter() - begin
    if processes is None or processes.rank == 0:
        print(
            f"{given.graph} on {processes or 'one process without MPI'}: placed in {placed_s:.2f} s"
        )
    for name, query in queries(graph, source, given.devices == "cuda").items():
        query()
        times, cpu_times, kernel_times = [], [], []
        for _ in range(given.runs):
            begin, cpu_begin = perf_counter(), process_time()
            result = query()
            times.append(perf_counter() - begin)
            kernel_times.append(result.statistics.seconds.get("kernel", 0.0))
            cpu_s = process_time() - cpu_begin
            cpu_times.append(cpu_s if processes is None else sum(processes.share(cpu_s)))
        line = f"{name:24} {1e3 * min(times):9.2f} ms {1e3 * min(cpu_times):9.2f} ms"
        if given.devices == "cuda":
            line += f" {1e3 * min(kernel_times):9.3f} ms"
        statistics = result.statistics
        if processes is not None:
            messages = statistics.messages.sum(axis=1).max()
            sent = statistics.message_bytes.sum(axis=1).max()
            line += f" {statistics.supersteps:6} {messages:8,} {sent:12,}"
        if processes is None or processes.rank == 0:
            print(line, flush=True)


if __name__ == "__main__":
    main()
