"""Schedules of load balance: whichever shares arcs out, each is visited once, and results are the CPU's.

Without a GPU the very kernels run on emulated ones. Each of those is compiled, which takes seconds, so
programs and schedules are paired: what a program asks of a schedule does not depend on the program.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

import godwit as gw
from architectures import compiled_for
from emulated_grid import Machine, emulated_gpus
from godwit.algorithms.bfs import cuda as bfs_steps
from godwit.errors import GraphTooLargeError, InputError
from godwit.frontier.cuda import program as step_program_text
from godwit.frontier.cuda.program import ProgramText
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import ARCHITECTURES, cubin
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions, Schedule
from godwit.supersteps.run import left_rows_bytes, schedule_define
from graphs import named_graph
from step_programs import ARCS, K_CORE, LENGTHS, LEVELS, start_of

needs_gpu = pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")
emulates = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate GPUs with")

SCHEDULES = get_args(Schedule)
OTHERS = [schedule for schedule in SCHEDULES if schedule != "mixed"]
each_other = pytest.mark.parametrize("schedule", OTHERS)
STEP = "bulk-synchronous"

COUNTED = gw.StepProgram(
    name="counted",
    fields={"sent": ("int64", 0), "come": ("int64", 0)},
    steps=[
        gw.frontier.advance("sent", lambda: 1, "add", at="source", frontier="kept"),
        gw.frontier.advance("come", lambda source: source + 1, "add"),
    ],
)
"""How many arcs of the frontier leave a vertex, and the sum of those that come."""


def _layers(directed: bool, size: int = 10) -> gw.Graph:
    """A hub, then rows of all lengths, with loops and parallel arcs; and an edge that is not reached.

    As long as there is something to find, searches that are to push do so.
    """
    generator = np.random.default_rng(7)
    n, width = 410 * size, 150 * size
    lengths = generator.choice([0, 1, 2, 3, 5, 31, 33, 64], width)
    lengths[:: width // 5] = [255, 256, 257, 700, 300 * size]
    middle = np.repeat(np.arange(1, width + 1), lengths)
    ends = generator.integers(1, n - 100, len(middle))
    sources = np.concatenate([np.zeros(520 * size, np.int64), middle, [n - 2]])
    targets = np.concatenate([np.arange(520 * size) % width + 1, ends, [n - 1]])
    return gw.Graph.from_edges(sources, targets, vertex_count=n, directed=directed)


@lru_cache(maxsize=4)
def _graph(name: str) -> gw.Graph:
    if name.startswith("layers"):
        return _layers(name.endswith("directed"))
    return named_graph(name)


@pytest.fixture(scope="module")
def emulated() -> Iterator[Machine]:
    with emulated_gpus(3) as machine:
        yield machine


@pytest.fixture(autouse=True)
def by_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs run on whole grids."""
    monkeypatch.setattr(step_program_text, "SMALL", 0)


def _check_search(graph: gw.Graph, devices: list[str], gpu: GpuOptions) -> None:
    """By pushing only."""
    gpu = replace(gpu, turn_down=math.inf)
    with gw.place(graph, devices) as placed:
        for source in sorted({0, graph.vertex_count // 2, graph.vertex_count - 1}):
            wanted = gw.bfs(graph, source, devices="cpu")
            found = gw.bfs(placed, source, execution=STEP, gpu=gpu)
            assert np.array_equal(found.distance, wanted.distance)


def _check_program(
    program: gw.StepProgram, graph: gw.Graph, devices: list[str], gpu: GpuOptions, start: Any
) -> None:
    expected = program.run(graph, start, devices="cpu")
    found = program.run(graph, start, devices=devices, gpu=gpu)
    for name, values in expected.fields.items():
        assert np.array_equal(found.fields[name], values), name
    assert np.array_equal(found.frontier, expected.frontier)
    for count in ("processed_items", "arcs_relaxed"):
        assert getattr(found.statistics, count).sum() == getattr(expected.statistics, count).sum()


def _check_counts(graph: gw.Graph, devices: list[str], gpu: GpuOptions) -> None:
    """All arcs, those of some vertices, and none."""
    n = graph.vertex_count
    for start in (np.arange(n), np.arange(0, n, 3), np.arange(0)):
        found = COUNTED.run(graph, start, devices=devices, gpu=gpu)
        is_in = np.zeros(n, bool)
        is_in[start] = True
        assert np.array_equal(found.fields["sent"], np.where(is_in, graph.out_degree(), 0))
        sources = np.repeat(np.arange(n), graph.out_degree())
        sent = is_in[sources]
        come = np.bincount(graph.targets[sent], sources[sent] + 1, n)
        assert np.array_equal(found.fields["come"], come.astype(np.int64))
        assert found.statistics.arcs_relaxed.sum() == 2 * np.count_nonzero(sent)


GRAPHS = (
    "layers, directed", "layers", "path", "isolated vertices", "parallel edges and self-loops",
    "random directed", "star from its last vertex",
)  # fmt: skip


@emulates
@each_other
@pytest.mark.parametrize("name", GRAPHS)
def test_searches(schedule: Schedule, name: str, emulated: Machine) -> None:
    """Also where queues, and with them the lists of rows, grow from room for few vertices."""
    for count in (1, 2, 3) if name == "layers" else (1,):
        devices = [f"cuda:{index}" for index in range(count)]
        for items in (None, 10):
            gpu = ExperimentOptions(schedule=schedule, frontier_items=items)
            _check_search(_graph(name), devices, gpu)


@emulates
@each_other
@pytest.mark.parametrize("name", GRAPHS)
def test_every_arc_once(schedule: Schedule, name: str, emulated: Machine) -> None:
    for count in (1, 2, 3) if name == "layers, directed" else (1,):
        devices = [f"cuda:{index}" for index in range(count)]
        _check_counts(_graph(name), devices, GpuOptions(schedule=schedule))


@emulates
@pytest.mark.parametrize(
    ("program", "schedule"),
    [(LEVELS, "block"), (LENGTHS, "merge-path"), (K_CORE, "warp"), (ARCS, "merge-path")],
    ids=lambda one: getattr(one, "name", one),
)
def test_programs(program: gw.StepProgram, schedule: Schedule, emulated: Machine) -> None:
    for name in ("layers", "random undirected"):
        graph = _graph(name).remove_self_loops().merge_parallel_arcs()
        if program is LENGTHS:
            weights = np.arange(graph.arc_count) % 7 + 0.25
            graph = gw.Graph(graph.offsets, graph.targets, weights)
        for devices in (["cuda:0"], ["cuda:0", "cuda:1"]):
            _check_program(
                program, graph, devices, GpuOptions(schedule=schedule), start_of(program, graph)
            )


@emulates
@pytest.mark.parametrize("schedule", ["block", "merge-path"])
@pytest.mark.parametrize("count", [1, 2])
def test_no_races(schedule: Schedule, count: int) -> None:
    """What is left in a list: accesses are checked, and threads run in several orders."""
    devices = [f"cuda:{index}" for index in range(count)]
    graph = _layers(directed=False, size=1)
    for seed in range(3):
        with emulated_gpus(count, seed=seed, checks=True):
            gpu = ExperimentOptions(schedule=schedule, frontier_items=[None, 1][seed % 2])
            _check_search(graph, devices, gpu)
            if schedule == "merge-path" and seed == 1:
                _check_counts(graph, devices, gpu)


@emulates
@each_other
def test_a_kernel_may_leave_after_every_superstep(schedule: Schedule, emulated: Machine) -> None:
    gpu = ExperimentOptions(schedule=schedule, slice_s=0, blocks=2)
    _check_search(_graph("layers"), ["cuda:0", "cuda:1"], gpu)
    _check_counts(_graph("layers"), ["cuda:0", "cuda:0"], gpu)


def test_what_is_no_schedule() -> None:
    with pytest.raises(
        InputError, match=r"schedule must be one of 'mixed', .*'merge-path', got 'm"
    ):
        GpuOptions(schedule="merge")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="schedule must be one of"):
        GpuOptions(schedule=np.array(["mixed", "warp"]))  # type: ignore[arg-type]


def _rows(active: int, arcs: int) -> Any:
    return SimpleNamespace(classes=np.array([0, 0, 0, 0, 0, active, active + 9]), arcs=arcs)


def test_room_of_lists() -> None:
    rows = _rows(1000, 2570)
    assert left_rows_bytes("mixed", rows, 5000) == 32 * 10  # no more rows can be long
    assert left_rows_bytes("mixed", rows, 7) == 32 * 7
    assert left_rows_bytes("block", rows, 5000) == 24 * 1000
    assert left_rows_bytes("merge-path", rows, 600) == 16 * 600
    assert left_rows_bytes("thread", rows, 600) == left_rows_bytes("warp", rows, 600) == 1


def test_what_the_merge_path_cannot_count() -> None:
    assert left_rows_bytes("merge-path", _rows(2**28 - 1, 2**36 - 1), 5) == 80
    for rows in (_rows(2**28, 2**30), _rows(5, 2**36)):
        with pytest.raises(GraphTooLargeError, match="fewer than 268,435,456 vertices and 68,719"):
            left_rows_bytes("merge-path", rows, 5)
        assert left_rows_bytes("block", rows, 5) == 120


@pytest.mark.parametrize(
    "architecture",
    [
        pytest.param(one, marks=() if place < len(OTHERS) else pytest.mark.thorough)
        for place, one in enumerate(ARCHITECTURES)
    ],
)
def test_compiles(architecture: str) -> None:
    """Each schedule for one or more architectures, in a search and in a program."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the extra 'cuda'")
    pytest.importorskip("numba_cuda", reason="needs the extra 'cuda'")
    place = ARCHITECTURES.index(architecture)
    schedule, ids = OTHERS[place % len(OTHERS)], np.dtype(("int32", "int64")[place % 2])
    assert compiled_for(bfs_steps.source(ids, schedule), architecture)
    text = ProgramText(COUNTED.code, ids, None)
    assert cubin(schedule_define(schedule) + text.source, text.functions, architecture)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_on_gpus(schedule: Schedule) -> None:
    everyone = [f"cuda:{index}" for index in range(min(4, driver.device_count()))]
    gpu = ExperimentOptions(schedule=schedule)
    graphs = [
        *map(_graph, GRAPHS),
        gw.generators.rmat(15, 16, seed=4),
        gw.generators.star(300_000),
        gw.generators.road(200, 150, seed=2),
    ]
    for devices in {("cuda:0",), ("cuda:0", "cuda:0"), tuple(everyone)}:
        for graph in graphs:
            _check_search(graph, list(devices), gpu)
            _check_counts(graph, list(devices), gpu)
            for program in (LEVELS, ARCS):
                _check_program(program, graph, list(devices), gpu, start_of(program, graph))
