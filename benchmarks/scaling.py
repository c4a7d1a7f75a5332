"""How long queries would take on many machines, by the model of docs/distributed.md, and how far it is off.

The model: time = C / (k P) + S L + M o + V / B, of C processor seconds on k cores of each of P machines,
S supersteps of latency L, M messages of a process that take it a time o each, V bytes with bandwidth B.

Predict 1 to 4 processes of this machine from a run of one process, and compare; messages go through the
network's code (MPICH: MPIR_CVAR_NOLOCAL). L is the time of an empty superstep of two processes, o and B are
measured between them, too::

    python benchmarks/scaling.py rmat:20 --check

Predict up to 1,024 machines. Halos are counted for each number of machines, on the ranges of vertices that
they would get; what else is sent grows with the number of other processes::

    python benchmarks/scaling.py rmat:20 --cores 64 --latency-us 2 --message-us 0.5 --bytes-s 25e9

With ``--arcs N`` each machine has N arcs, of a graph that grows with the machines. The time for an arc, and
the share of its arcs that a machine has in its border, are then those of the given graph on as many
machines. (Of R-MAT graphs that share falls as the graph grows, so the bytes are bounded from above.)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

import godwit as gw
from distributed import queries
from godwit.config import is_launched
from godwit.distributed.place import bounds_of_rows

_MACHINES = (1, 2, 4, 16, 64, 256, 1024)
_COUNTED = 4
"""Processes whose supersteps, messages and bytes are counted; those of more are derived from them."""
_HEADER_BYTES = 64
_LARGE_BYTES = 1 << 24


class Network(NamedTuple):
    """Seconds of an empty superstep, seconds that a message takes a process, and bytes a second."""

    latency_s: float
    message_s: float
    bytes_s: float


class Run(NamedTuple):
    """What one query took, and what the process that sends most has sent.

    :ivar wall_s: median
    :ivar processor_s: median of the sum over all processes
    """

    wall_s: float
    processor_s: float
    supersteps: int
    messages: int
    message_bytes: int


def predicted(run: Run, alone: Run, processes: int, cores: int, network: Network) -> float:
    """Return seconds by the model.

    :param run: has what is sent
    :param alone: the query in one process of one thread
    :param cores: of all machines together
    """
    if processes == 1:
        return alone.processor_s / cores
    return (
        alone.processor_s / cores
        + run.supersteps * network.latency_s
        + run.messages * network.message_s
        + run.message_bytes / network.bytes_s
    )


def largest_border(graph: gw.Graph, parts: int) -> int:
    """Return how many values the part that sends most has to send to refresh all halos."""
    bounds = bounds_of_rows(graph.offsets, parts)
    sent = np.zeros(parts, np.int64)
    for part in range(parts):
        first, end = int(bounds[part]), int(bounds[part + 1])
        remote = np.zeros(graph.vertex_count, bool)
        remote[graph.targets[graph.offsets[first] : graph.offsets[end]]] = True
        remote[first:end] = False
        before = np.searchsorted(np.flatnonzero(remote), bounds)
        sent += np.diff(before)
    return int(sent.max())


def extrapolated(counted: Run, borders: dict[int, int], processes: int, grown: float) -> Run:
    """Return what would be sent by a process of many, from what is by one of a few.

    :param grown: how many times as large as the counted one the graph is
    """
    others = processes - 1
    headers = _HEADER_BYTES * counted.supersteps
    data = counted.message_bytes - headers * (_COUNTED - 1)
    return counted._replace(
        messages=counted.messages * others // (_COUNTED - 1),
        message_bytes=headers * others
        + int(grown * data * borders[processes] / max(1, borders[_COUNTED])),
    )


def started(mode: str, graph: str, processes: int, runs: int) -> Any:
    """Run this script in some processes of one thread each; return what the first prints as JSON."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "GODWIT_THREADS": "1", "MPIR_CVAR_NOLOCAL": "1"}
    command = ["mpiexec", "-n", str(processes), sys.executable, __file__, graph, mode]
    done = subprocess.run(
        [*command, "--runs", str(runs)],
        env=environment, text=True, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    return json.loads(next(line for line in done.stdout.splitlines() if line[:1] in ("{", "[")))


def measure_runs(spec: str, runs: int) -> dict[str, Run] | None:
    """Measure all queries in the processes that call it; the first one gets the results."""
    processes = gw.distributed.context()
    found = {}
    with processes.place(spec) as graph:
        for name, query in queries(graph, graph.highest_degree_vertex()).items():
            query()
            walls, processors = [], []
            for _ in range(runs):
                processes.share(None)
                begin, cpu_begin = perf_counter(), process_time()
                statistics = query().statistics
                wall_s, cpu_s = perf_counter() - begin, process_time() - cpu_begin
                shared = processes.share((wall_s, cpu_s))
                walls.append(max(wall for wall, _ in shared))
                processors.append(sum(cpu for _, cpu in shared))
            found[name] = Run(
                median(walls),
                median(processors),
                int(statistics.supersteps),
                int(statistics.messages.sum(axis=1).max()),
                int(statistics.message_bytes.sum(axis=1).max()),
            )
    return found if processes.rank == 0 else None


def measure_network(runs: int) -> Network | None:
    """Measure messages between two processes that call it."""
    from mpi4py import MPI

    processes = gw.distributed.context()
    world = MPI.COMM_WORLD
    rank, other = world.rank, 1 - world.rank
    small, large = np.zeros(_HEADER_BYTES, np.uint8), np.zeros(_LARGE_BYTES, np.uint8)

    def round_trip(message: Any, repeats: int) -> float:
        world.Barrier()
        begin = perf_counter()
        for _ in range(repeats):
            if rank == 0:
                world.Send(message, other)
            world.Recv(message, other)
            if rank == 1:
                world.Send(message, other)
        return (perf_counter() - begin) / (2 * repeats)

    def burst(count: int) -> float:
        world.Barrier()
        requests = [world.Irecv(into, other) for into in received[:count]]
        world.Barrier()
        begin = perf_counter()
        requests += [world.Isend(small, other) for _ in range(count)]
        MPI.Request.Waitall(requests)
        return (perf_counter() - begin) / count

    def supersteps(count: int) -> float:
        with processes.running("supersteps"):
            processes.meet()
            begin = perf_counter()
            for _ in range(count):
                processes.meet()
            return (perf_counter() - begin) / count

    received = np.zeros((200, _HEADER_BYTES), np.uint8)
    latency = median(supersteps(50) for _ in range(runs))
    large_s = median(round_trip(large, 2) for _ in range(runs))
    message = median(burst(200) for _ in range(runs))
    if rank > 0:
        return None
    return Network(latency, message, _LARGE_BYTES / large_s)


def check(spec: str, runs: int) -> None:
    """Print the model's error on this machine."""
    network = Network(*started("--network", spec, 2, runs))
    print(
        f"a superstep {1e6 * network.latency_s:.1f} us, a message {1e6 * network.message_s:.1f} us, "
        f"{network.bytes_s / 1e9:.2f} GB/s"
    )
    cores = len(os.sched_getaffinity(0))
    rows = {
        processes: {
            name: Run(*of) for name, of in started("--measure", spec, processes, runs).items()
        }
        for processes in (1, 2, 3, 4)
    }
    print(f"{'':26}{'processes':>9}{'measured':>11}{'predicted':>11}{'ratio':>7}")
    for name, alone in rows[1].items():
        for processes, found in rows.items():
            run = found[name]
            told = predicted(run, alone, processes, min(processes, cores), network)
            print(
                f"{name:26}{processes:9}{1e3 * run.wall_s:8.2f} ms{1e3 * told:8.2f} ms"
                f"{told / run.wall_s:7.2f}"
            )


def project(spec: str, runs: int, cores: int, network: Network, arcs: float | None) -> None:
    """Print the model's times for up to 1,024 machines.

    :param arcs: of each machine. None: they share those of the graph
    """
    graph = gw.generate(spec)
    edges = graph.edge_count or graph.arc_count
    borders = {parts: largest_border(graph, parts) for parts in (*_MACHINES, _COUNTED)}
    alone = {name: Run(*of) for name, of in started("--measure", spec, 1, runs).items()}
    counted = {name: Run(*of) for name, of in started("--measure", spec, _COUNTED, 1).items()}
    print(f"{spec}: {graph.vertex_count:,} vertices, {graph.arc_count:,} arcs")
    print(
        f"{'':26}{'machines':>8}{'border':>14}{'computing':>11}{'supersteps':>11}{'messages':>11}"
        f"{'bytes':>11}{'sum, ms':>11}{'edges/s':>10}"
    )
    for name, run in counted.items():
        for machines in _MACHINES:
            grown = 1.0 if arcs is None else arcs * machines / graph.arc_count
            sent = extrapolated(run, borders, machines, grown)
            one = alone[name]._replace(processor_s=grown * alone[name].processor_s)
            computing = one.processor_s / (cores * machines)
            parts = (0.0, 0.0, 0.0)
            if machines > 1:
                parts = (
                    sent.supersteps * network.latency_s,
                    sent.messages * network.message_s,
                    sent.message_bytes / network.bytes_s,
                )
            shown = "".join(f"{1e3 * part:11.3f}" for part in (computing, *parts))
            total = predicted(sent, one, machines, cores * machines, network)
            print(
                f"{name:26}{machines:8}{int(grown * borders[machines]):14,}{shown}{1e3 * total:11.3f}"
                f"{grown * edges / total:10.2e}"
            )


def main() -> None:
    """Check the model, or apply it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("graph", nargs="?", default="rmat:20")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--cores", type=int, default=64, help="of each machine")
    parser.add_argument("--arcs", type=float, help="of each machine")
    parser.add_argument("--latency-us", type=float, default=2.0)
    parser.add_argument("--message-us", type=float, default=0.5)
    parser.add_argument("--bytes-s", type=float, default=25e9)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--network", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if is_launched():
        found = (
            measure_network(given.runs) if given.network else measure_runs(given.graph, given.runs)
        )
        if found is not None:
            print(json.dumps(found))
    elif given.check:
        check(given.graph, given.runs)
    else:
        network = Network(1e-6 * given.latency_us, 1e-6 * given.message_us, given.bytes_s)
        project(given.graph, given.runs, given.cores, network, given.arcs)


if __name__ == "__main__":
    main()
