"""Graphs on several processes: time, processor time, and what is sent.

One process without MPI, one under it, and two of half as many threads, which take turns, run by run::

    python benchmarks/distributed.py rmat:20 --compare --runs 15

One of them, or any other number of processes::

    GODWIT_THREADS=1 mpiexec -n 4 python benchmarks/distributed.py rmat:20

A GPU for each process, beside all GPUs of one process::

    python benchmarks/distributed.py rmat:24 --devices cuda
    mpiexec -n 2 python benchmarks/distributed.py rmat:24 --devices cuda

With ``--compare`` each line has median and least time, and their ratios to one process without MPI; else
the least time of some runs in milliseconds, the least processor time of all processes
together (which other programs on the machine hardly change), the supersteps, and the most that a process
sends: messages and bytes; on GPUs, the least time of kernels, too. ``--runs 1`` suffices for volumes, which
are the same in every run.
"""

from __future__ import annotations

import argparse
import os
import statistics as stats
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import godwit as gw
from godwit.config import is_launched
from godwit.graph.generators.spec import is_spec

_COMPARED = (
    ("one process, two threads, without MPI", 0, 2),
    ("one process, two threads, under MPI", 1, 2),
    ("two processes, a thread each", 2, 1),
)
"""Names, processes (0: without MPI) and threads of what ``--compare`` compares."""


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


def compare(graph: str, runs: int) -> None:
    """Let processes with and without MPI take turns; print their times."""
    with tempfile.TemporaryDirectory() as folder:
        started = [
            _start(graph, Path(folder) / str(number), *of)
            for number, (_, *of) in enumerate(_COMPARED)
        ]
        listed = [_lines(process) for process, _ in started]
        names = listed[0]
        times: dict[str, list[list[float]]] = {name: [[] for _ in started] for name in names}
        for number in range(-1, runs):
            for name in names:
                for index, (process, turns) in enumerate(started):
                    for turn in turns:
                        turn.write_text(name)
                    took_s = float(process.stdout.readline())
                    if number >= 0:
                        times[name][index].append(took_s)
        for process, turns in started:
            for turn in turns:
                turn.write_text("")
            process.wait()
    for name, by_kind in times.items():
        first = by_kind[0]
        for (kind, *_), taken in zip(_COMPARED, by_kind, strict=True):
            median, least = stats.median(taken), min(taken)
            print(
                f"{name:24} {kind:38} {1e3 * median:8.2f} {1e3 * least:8.2f} ms "
                f"{median / stats.median(first):6.3f} {least / min(first):6.3f}"
            )


def _lines(process: Any) -> list[str]:
    """Return the lines that a process prints before an empty one."""
    return [line.strip() for line in iter(process.stdout.readline, "\n")]


def _start(graph: str, folder: Path, processes: int, threads: int) -> tuple[Any, list[Path]]:
    """Start processes that take turns; return the pipes by which each gets the names of queries."""
    folder.mkdir()
    turns = [folder / str(rank) for rank in range(max(1, processes))]
    for turn in turns:
        os.mkfifo(turn)
    launcher = ["mpiexec", "-n", str(processes)] if processes else []
    command = [*launcher, sys.executable, __file__, graph, "--turns", str(folder)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "GODWIT_THREADS": str(threads), "PATH": path}
    process = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE)
    return process, turns


def take_turns(folder: Path, queries: dict[str, Callable[[], Any]], processes: Any) -> None:
    """Run the queries whose names come through a pipe, and print how long each took."""
    rank = 0 if processes is None else processes.rank
    if rank == 0:
        print(*queries, "", sep="\n", flush=True)
    while name := (folder / str(rank)).read_text():
        if processes is not None:
            processes.share(None)
        begin = perf_counter()
        queries[name]()
        took_s = perf_counter() - begin
        if processes is not None:
            took_s = max(processes.share(took_s))
        if rank == 0:
            print(took_s, flush=True)


def main() -> None:
    """Measure all queries of one graph."""
    parser = argparse.ArgumentParser()
    parser.add_argument("graph", nargs="?", default="rmat:20")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--devices", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--turns", help=argparse.SUPPRESS)  # of a process that --compare starts
    given = parser.parse_args()
    if given.compare:
        compare(given.graph, given.runs)
        return
    processes = gw.distributed.context() if is_launched() else None
    graph: Any
    begin = perf_counter()
    if processes is None:
        whole = gw.generate(given.graph) if is_spec(given.graph) else gw.read(given.graph)
        graph, source = gw.place(whole, given.devices), whole.highest_degree_vertex()
    else:
        devices = None if given.devices == "cpu" else given.devices
        graph = processes.place(given.graph, devices=devices)
        source = graph.highest_degree_vertex()
    placed_s = perf_counter() - begin
    if given.turns:
        take_turns(Path(given.turns), queries(graph, source, False), processes)
        return
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
