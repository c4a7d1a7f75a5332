"""Hundreds of runs with rings of a few slots, tiny arenas and delays: right, or a named error; no hang.

Every run has a watchdog, so a hang is a failed test. What explores schedules for real is
test_worker_model.py; this is the compiled code on real threads, more of them than there are cores.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import godwit
from godwit import Context, DistributedWorklist, Graph, ItemRouter
from godwit.errors import RunTimeoutError
from godwit.worker.cpu import engine as vertex
from programs import WALKS
from references import as_list, dijkstra
from test_worklist import within
from waiting import HANG_S, check_quick
from worklist_operators import (
    SumState,
    forever,
    modulo_owner,
    split,
    split_fanout,
    split_owner,
    split_state,
)

TIMEOUT_S = 60.0


@pytest.fixture(params=[False, True], ids=["quiet", "hogged"])
def machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """The machine as it is, or with Python threads that take the cores away now and then."""
    stop = threading.Event()

    def hog() -> None:
        noise = np.random.default_rng(1).random(200_000)
        while not stop.wait(0.005):
            np.sort(noise)  # without the GIL

    hogs = [threading.Thread(target=hog) for _ in range(2 if request.param else 0)]
    for thread in hogs:
        thread.start()
    yield
    stop.set()
    for thread in hogs:
        thread.join()


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_worklists_with_delays(devices: int, machine: None) -> None:
    generator = np.random.default_rng(devices)
    for _ in range(20):
        slots, capacity = int(generator.integers(1, 5)), int(generator.integers(1, 200))
        policy = ["direct", "ring"][int(generator.integers(2))]
        amount, parts = int(generator.integers(1, 5000)), int(generator.integers(1, 5))
        # Few random items delay the device that they are at, some for many turns of the others.
        delays = generator.choice([0, 3, 63], devices)
        states = [
            split_state(devices, delay=int(delay), parts=parts, fanout=parts) for delay in delays
        ]
        with Context(devices) as context:
            worklist = DistributedWorklist(
                ItemRouter(context, policy, capacity_items=slots),
                process=split,
                owner=split_owner,
                fanout=split_fanout,
            )
            worklist.run([(5, amount)], states, capacity_items=capacity, poll=within(TIMEOUT_S))
        assert sum(int(state.kept[0]) for state in states) == amount


def _random_graph(generator: np.random.Generator, *, acyclic: bool = False) -> Graph:
    n = int(generator.integers(1, 60))
    m = int(generator.integers(0, 4 * n))
    sources, targets = generator.integers(0, n, (2, m))
    if acyclic:
        sources, targets = np.minimum(sources, targets), np.maximum(sources, targets)
        sources, targets = sources[sources != targets], targets[sources != targets]
    weights = generator.integers(0, 30, len(sources)).astype(np.int32)
    return Graph.from_edges(sources, targets, weights, vertex_count=n)


def _tuning(generator: np.random.Generator) -> dict[str, Any]:
    return {
        "worker": godwit.WorkerOptions(
            delta=float(generator.choice([0.05, 1.0, 20.0])),
            window=int(generator.choice([0, 1, 5, 1 << 40])),
            ring_items=int(generator.integers(1, 4)),
            capacity_items=int(generator.choice([1, 100, 30_000])),
        ),
        "timeout_s": TIMEOUT_S,
    }


_sharing = pytest.mark.parametrize(
    ("devices", "threads"),
    [(2, 2), (3, 2), (4, 2), (1, 2), (1, 4)],
    ids=["2 devices", "3 devices", "4 devices", "2 threads", "4 threads"],
)


def _devices(graph: Graph, devices: int, generator: np.random.Generator) -> dict[str, Any]:
    if devices == 1:
        return {"devices": "cpu"}
    owner = generator.integers(0, devices, graph.vertex_count)
    owner[: min(devices, len(owner))] = np.arange(devices)[: len(owner)]
    return {"devices": devices, "partition": owner}


@pytest.fixture
def small_teams(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Even tiny graphs are worked off by all threads of ``"cpu"``, from a frontier that overflows."""
    monkeypatch.setattr(vertex, "ARCS_PER_THREAD", 1)
    monkeypatch.setattr(vertex, "SMALLEST_FRONTIER", 3)
    return monkeypatch


@_sharing
def test_shortest_paths(
    devices: int, threads: int, machine: None, small_teams: pytest.MonkeyPatch
) -> None:
    small_teams.setenv("GODWIT_THREADS", str(threads))
    generator = np.random.default_rng(devices * 10 + threads)
    for _ in range(30):
        graph = _random_graph(generator)
        source = int(generator.integers(0, graph.vertex_count))
        where = _devices(graph, devices, generator)
        found = godwit.sssp(graph, source, **where, **_tuning(generator)).distance
        assert as_list(found, np.iinfo(np.int64).max) == dijkstra(graph, [source])


def _walks(graph: Graph) -> list[int]:
    """How many walks lead from vertex 0 to each, in a graph whose arcs go up."""
    walks = [1] + [0] * (graph.vertex_count - 1)
    for source in range(graph.vertex_count):
        for target in graph.targets[graph.offsets[source] : graph.offsets[source + 1]]:
            walks[target] += walks[source]
    return walks


@_sharing
def test_sums_are_conserved(
    devices: int, threads: int, machine: None, small_teams: pytest.MonkeyPatch
) -> None:
    """Counting walks: one message lost or taken twice changes an exact number."""
    small_teams.setenv("GODWIT_THREADS", str(threads))
    generator = np.random.default_rng(devices * 10 + threads)
    for _ in range(20):
        graph = _random_graph(generator, acyclic=True)
        where = _devices(graph, devices, generator)
        solution = godwit.run(WALKS, graph, {0: 1}, **where, **_tuning(generator))
        assert solution.fields is not None
        assert solution.fields.tolist() == _walks(graph)


# --- Stopping.


def _endless(devices: int) -> tuple[DistributedWorklist, list[Any]]:
    worklist = DistributedWorklist(
        ItemRouter(Context(devices), capacity_items=2),
        process=forever,
        owner=modulo_owner,
        fanout=1,
    )
    states = [SumState(np.zeros(1), np.array([devices])) for _ in range(devices)]
    return worklist, states


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_a_poll_that_raises_ends_an_endless_run(devices: int) -> None:
    worklist, states = _endless(devices)
    begun: list[float] = []

    def poll(processed: int) -> None:
        if processed > 0:
            begun.append(perf_counter())
            raise RunTimeoutError(f"after {processed}")

    for _ in range(3):
        with pytest.raises(RunTimeoutError, match="after"):
            worklist.run([(0, 1), (1, 1)], states, poll=poll)
        assert perf_counter() - begun[-1] < 30  # others may use the cores
    # The threads are free again.
    split_states = [split_state(devices) for _ in range(devices)]
    with Context(devices) as context:
        DistributedWorklist(
            ItemRouter(context), process=split, owner=split_owner, fanout=split_fanout
        ).run([(5, 999)], split_states, poll=within(TIMEOUT_S))
    assert sum(int(state.kept[0]) for state in split_states) == 999


@pytest.mark.parametrize("devices", ["cpu", 3])
def test_timeout_s_ends_an_endless_program(devices: Any) -> None:
    path = Graph.from_edges(np.arange(29), np.arange(1, 30))
    assert godwit.run(WALKS, path, {0: 1}, devices=devices).fields.tolist() == [1] * 30  # compiled
    ring = Graph.from_edges(np.arange(30), (np.arange(30) + 1) % 30)

    def run_out_of_time() -> float:
        begin = perf_counter()
        with pytest.raises(RunTimeoutError, match=r"within 0\.3 s"):
            godwit.run(WALKS, ring, {0: 1}, devices=devices, timeout_s=0.3)
        return perf_counter() - begin

    for _ in range(2):
        check_quick(run_out_of_time, 1.3)


_INTERRUPTED = """
    import sys
    from test_worklist_stress import _endless
    from test_worklist import within, splitting
    from worklist_operators import split_state
    import godwit

    devices = int(sys.argv[1])
    worklist, states = _endless(devices)

    def poll(processed):
        if processed > 0:
            print("running", flush=True)

    try:
        worklist.run([(0, 1)], states, poll=poll)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    states = [split_state(devices) for _ in range(devices)]
    with godwit.Context(devices) as context:
        splitting(godwit.ItemRouter(context)).run([(0, 777)], states, poll=within(60))
    print("then", sum(int(state.kept[0]) for state in states), flush=True)
"""

needs_signals = pytest.mark.skipif(os.name == "nt", reason="sends SIGINT to another process")


def _python(script: str, *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


@needs_signals
@pytest.mark.parametrize("devices", [1, 3])
def test_ctrl_c_ends_a_run_within_a_second(devices: int) -> None:
    def interrupt() -> float:
        with _python(_INTERRUPTED, str(devices)) as process:
            watchdog = threading.Timer(HANG_S, process.kill)
            watchdog.start()
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            process.send_signal(signal.SIGINT)
            begin = perf_counter()
            lines = iter(process.stdout.readline, "")
            assert next(line for line in lines if line != "running\n") == "interrupted\n"
            took_s = perf_counter() - begin
            assert next(lines) == "then 777\n"
            assert process.wait() == 0
            watchdog.cancel()
        return took_s

    check_quick(interrupt, 1.0)


_STORM = """
    import random, signal, time
    from godwit.runtime.cpu.team import ABORT, Team, new_control

    armed = False

    class Interruption(Exception):
        pass

    def interrupt(*arguments):
        if armed:
            raise Interruption

    def task(rank, control):
        for _ in range(5):
            if control[ABORT]:
                return -1
        return rank

    signal.signal(signal.SIGALRM, interrupt)
    generator = random.Random(1)
    team = Team(3)
    finished = interrupted = 0
    end = time.perf_counter() + 2
    while time.perf_counter() < end:
        control = new_control()
        try:
            armed = True
            # From before the threads wake to long after: how long a run takes differs by machine.
            signal.setitimer(signal.ITIMER_REAL, 10 ** generator.uniform(-6, -2.5))
            assert team.run([(task, (rank, control)) for rank in range(3)], control) == [0, 1, 2]
            armed = False
            finished += 1
        except Interruption:
            interrupted += 1
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        if not team.usable:
            team.close()
            team = Team(3)
    print("survived", finished > 50 and interrupted > 50)
"""


@needs_signals
def test_interruptions_at_any_moment_of_a_run() -> None:
    """Some of them strike just when a thread's result has been fetched: it must not be waited for."""
    with _python(_STORM) as process:
        watchdog = threading.Timer(20, process.kill)
        watchdog.start()
        assert process.stdout is not None
        assert process.stdout.read() == "survived True\n"
        watchdog.cancel()
