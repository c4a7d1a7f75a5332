"""Graphs on several processes: time, processor time, and what is sent.

One process without MPI, one under it, and two of half as many threads, which take turns, run by run::

    python benchmarks/distributed.py rmat:20 --compare --runs 15

One process with two GPUs, and two processes with a GPU each, which take turns::

    python benchmarks/distributed.py rmat:24 --compare --devices cuda --runs 20

One of them, or any other number of processes::

    GODWIT_THREADS=1 mpiexec -n 4 python benchmarks/distributed.py rmat:20
    mpiexec -n 2 python benchmarks/distributed.py rmat:24 --devices cuda

With ``--compare`` each line has median and least time, and their ratios to the first line of the query; on
GPUs those of kernels, too, and how many GPUs were used: one process asks only its first one where that is
faster. Else a line has
the least time of some runs in milliseconds, the least processor time of all processes
together (which other programs on the machine hardly change), the supersteps, and the most that a process
sends: messages and bytes; on GPUs, the least time of kernels, too. ``--runs 1`` suffices for volumes, which
are the same in every run. ``--queries`` chooses among the queries, of which betweenness runs only if named.
"""

from __future__ import annotations

import argparse
import os
import signal
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

_COMPARED: dict[str, list[tuple[str, int, int | None]]] = {
    "cpu": [
        ("one process, two threads, without MPI", 0, 2),
        ("one process, two threads, under MPI", 1, 2),
        ("two processes, a thread each", 2, 1),
    ],
    "cuda": [("one process, two GPUs", 0, None), ("two processes, a GPU each", 2, None)],
}
"""By devices: names, processes (0: without MPI) and threads of what ``--compare`` compares."""


def queries(graph: Any, source: Any) -> dict[str, Callable[[], Any]]:
    """Return the queries by name; shortest paths for graphs with weights."""
    ranks = {"accelerated": False, "max_iterations": 20, "tolerance": 1e-12}
    found: dict[str, Callable[[], Any]] = {
        "bfs": lambda: gw.bfs(graph, source),
        "pagerank, 20 iterations": lambda: gw.pagerank(graph, **ranks),
        "components": lambda: gw.connected_components(graph),
        "betweenness, 64 sources": lambda: gw.betweenness_centrality(
            graph, samples=64, weighted=False
        ),
    }
    if (graph if hasattr(graph, "is_weighted") else graph.graph).is_weighted:
        found["sssp"] = lambda: gw.sssp(graph, source)
    return found


def compare(graph: str, devices: str, runs: int, chosen: str) -> None:
    """Let processes with and without MPI take turns; print their times."""
    compared = _COMPARED[devices]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that started processes end, too
    with tempfile.TemporaryDirectory() as folder:
        options = [graph, "--devices", devices, "--queries", chosen]
        started = [
            _start(options, Path(folder) / str(number), *of)
            for number, (_, *of) in enumerate(compared)
        ]
        try:
            times = _times(started, runs)
        finally:
            for process, _ in started:
                process.terminate()  # one that waits for its turn, if another has failed
    for name, by_kind in times.items():
        for (kind, *_), all_taken in zip(compared, by_kind, strict=True):
            line = f"{name:24} {kind:38}"
            calls, kernels, gpus = zip(*all_taken, strict=True)
            first_calls, first_kernels, _ = zip(*by_kind[0], strict=True)
            for taken, first in ((calls, first_calls), (kernels, first_kernels)):
                median, least = stats.median(taken), min(taken)
                line += (
                    f" {1e3 * median:9.3f} {1e3 * least:9.3f} ms "
                    f"{median / stats.median(first):6.3f} {least / min(first):6.3f}"
                )
                if devices == "cpu":
                    break
            print(line + (f" {gpus[0]:3.0f}" if devices == "cuda" else ""), flush=True)


def _times(started: list[tuple[Any, list[Path]]], runs: int) -> dict[str, list[list[list[float]]]]:
    """Return what processes print for each query, in the order of queries, processes and runs."""
    listed = [_lines(process) for process, _ in started]
    times: dict[str, list[list[list[float]]]] = {name: [[] for _ in started] for name in listed[0]}
    for number in range(-1, runs):
        for name, by_kind in times.items():
            for (process, turns), taken in zip(started, by_kind, strict=True):
                for turn in turns:
                    turn.write_text(name)
                line = [float(word) for word in process.stdout.readline().split()]
                if number >= 0:
                    taken.append(line)
    for process, turns in started:
        for turn in turns:
            turn.write_text("")
        process.wait()
    return times


def _lines(process: Any) -> list[str]:
    """Return the lines that a process prints before an empty one."""
    return [line.strip() for line in iter(process.stdout.readline, "\n")]


def _start(
    options: list[str], folder: Path, processes: int, threads: int | None
) -> tuple[Any, list[Path]]:
    """Start processes that take turns; return the pipes by which each gets the names of queries."""
    folder.mkdir()
    turns = [folder / str(rank) for rank in range(max(1, processes))]
    for turn in turns:
        os.mkfifo(turn)
    launcher = ["mpiexec", "-n", str(processes)] if processes else []
    command = [*launcher, sys.executable, __file__, *options, "--turns", str(folder)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path}
    if threads is not None:
        environment["GODWIT_THREADS"] = str(threads)
    process = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE)
    return process, turns


def take_turns(folder: Path, queries: dict[str, Callable[[], Any]], processes: Any) -> None:
    """Run the queries whose names come through a pipe; print how long each took, and its GPUs."""
    rank = 0 if processes is None else processes.rank
    if rank == 0:
        print(*queries, "", sep="\n", flush=True)
    while name := (folder / str(rank)).read_text():
        if processes is not None:
            processes.share(None)
        begin = perf_counter()
        statistics = queries[name]().statistics
        taken = perf_counter() - begin, statistics.seconds.get("kernel", 0.0)
        devices = len(statistics.devices)
        if processes is not None:
            taken = tuple(max(times) for times in zip(*processes.share(taken), strict=True))
        if rank == 0:
            print(*taken, devices, flush=True)


def main() -> None:
    """Measure all queries of one graph."""
    parser = argparse.ArgumentParser()
    parser.add_argument("graph", nargs="?", default="rmat:20")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--devices", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--queries", default="bfs,sssp,pagerank,components", help="first words of names"
    )
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--turns", help=argparse.SUPPRESS)  # of a process that --compare starts
    given = parser.parse_args()
    if given.compare:
        compare(given.graph, given.devices, given.runs, given.queries)
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
    asked = given.queries.split(",")
    chosen = {
        name: query for name, query in queries(graph, source).items() if name.split(",")[0] in asked
    }
    if given.turns:
        take_turns(Path(given.turns), chosen, processes)
        return
    if processes is None or processes.rank == 0:
        print(
            f"{given.graph} on {processes or 'one process without MPI'}: placed in {placed_s:.2f} s"
        )
    for name, query in chosen.items():
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
