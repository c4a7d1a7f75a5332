"""Direction-optimizing BFS on GPUs: the CPU's distances, whichever way it turns and however it is divided.

Without a GPU the very kernels run on emulated ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from time import sleep
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
from architectures import compiled_for, each_architecture
from emulated_grid import Machine, emulated_gpus
from godwit.algorithms import bfs
from godwit.algorithms.bfs import cuda as bfs_steps
from godwit.algorithms.paths.verify import verify_bfs
from godwit.errors import GraphTooLargeError, InputError
from godwit.graph.csr import Graph
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.slices import SlicedRun
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from godwit.supersteps import place_positions
from godwit.supersteps import rows as step_rows
from graphs import each_graph, graphs, named_graph

needs_gpu = pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")

NEVER, AT_ONCE = math.inf, 0.0
TURNS: dict[str, dict[str, float]] = {
    "as it comes": {},
    "never": {"turn_down": NEVER},
    "at once": {"turn_down": AT_ONCE},
    "there and back": {"turn_down": AT_ONCE, "turn_back": NEVER},
}
Turn = Callable[..., GpuOptions]
SMALL = ExperimentOptions(threads=64, blocks=3)
STEP = "bulk-synchronous"


@pytest.fixture(scope="module")
def emulated() -> Iterator[Machine]:
    with emulated_gpus(3) as machine:
        yield machine


@pytest.fixture(params=TURNS)
def turn(request: pytest.FixtureRequest) -> Turn:
    """Options that say when the search turns its direction, among others."""
    return partial(ExperimentOptions, **TURNS[request.param])


@pytest.fixture(params=[0, step_rows.HUB_ARCS], ids=["hubs", "no hubs"])
def hubs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Vertices with more arcs are hubs."""
    monkeypatch.setattr(step_rows, "HUB_ARCS", request.param)
    return int(request.param)


def _check(graph: Graph, devices: list[str], gpu: GpuOptions, partition: str | None = None) -> None:
    """From some vertices of a graph, if it has any, with a target, with a cutoff, from several."""
    if graph.vertex_count == 0:
        return
    last = graph.vertex_count - 1
    with gw.place(graph, devices, partition) as placed:
        for source in sorted({0, last // 2, last, graph.highest_degree_vertex()}):
            result = gw.bfs(placed, source, execution=STEP, gpu=gpu)
            assert result.statistics.solver == "direction-optimizing"
            wanted = gw.bfs(graph, source, devices="cpu")
            assert np.array_equal(result.distance, wanted.distance)
            assert result.statistics.processed_items.sum() == result.reached.sum()
            assert result.statistics.levels == result.distance[result.reached].max() + 1
        for asked in ({"target": last // 3}, {"cutoff": 2}, {"cutoff": 0}):
            result = gw.bfs(placed, [0, last], execution=STEP, gpu=gpu, **asked)
            wanted = gw.bfs(graph, [0, last], devices="cpu", **asked)
            assert np.array_equal(result.distance, wanted.distance), asked


@pytest.mark.parametrize("count", [1, 2, 3])
@each_graph
def test_emulated(name: str, count: int, turn: Turn, hubs: int, emulated: Machine) -> None:
    graph = named_graph(name)
    partition = [None, "contiguous", "random"][len(name) % 3] if count > 1 else None
    gpu = turn(threads=64, blocks=3)
    _check(graph, [f"cuda:{index}" for index in range(count)], gpu, partition)


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_schedule(count: int, seed: int, turn: Turn, hubs: int) -> None:
    """Left at every meeting, and threads in any order."""
    graph = gw.generate(f"rmat:7,edge_factor=4,seed={seed}")
    with emulated_gpus(count, seed=seed):
        gpu = turn(threads=64, blocks=3, slice_s=[0.1, 0.0][seed % 2])
        _check(graph, [f"cuda:{index}" for index in range(count)], gpu)


@pytest.mark.parametrize("count", [1, 2, 3])
@each_graph
def test_queues_grow(name: str, count: int, emulated: Machine, turn: Turn, hubs: int) -> None:
    """With room for one vertex at first, frontiers are lost again and again, and found again."""
    graph = named_graph(name)
    gpu = turn(threads=64, blocks=3, frontier_items=1)
    _check(graph, [f"cuda:{index}" for index in range(count)], gpu)


@pytest.mark.parametrize("count", [1, 2])
def test_thresholds_say_when_to_turn(count: int, emulated: Machine) -> None:
    """Who only pushes goes along all arcs; who pulls stops at the first that will do."""
    graph = gw.generate("rmat:9,edge_factor=16,seed=1")
    devices = [f"cuda:{index}" for index in range(count)]

    def looked(**turns: float) -> int:
        source, gpu = graph.highest_degree_vertex(), replace(SMALL, **turns)
        found = gw.bfs(graph, source, devices=devices, execution=STEP, gpu=gpu)
        return int(found.statistics.arcs_relaxed.sum())

    assert looked(turn_down=NEVER) == graph.arc_count
    assert looked() < looked(turn_down=30) < graph.arc_count
    assert looked() < looked(turn_back=NEVER)


@pytest.mark.parametrize("name", ["turn_down", "turn_back"])
def test_what_is_no_threshold(name: str) -> None:
    for wrong in (-0.1, math.nan, "0.1", True):
        with pytest.raises(InputError, match=f"{name} must "):
            ExperimentOptions(**{name: wrong})


def test_sources_without_arcs_leave_nothing_behind(emulated: Machine) -> None:
    for directed, devices in product((False, True), (["cuda:0"], ["cuda:0", "cuda:1"])):
        graph = Graph.from_edges([0, 1, 2, 7], [1, 2, 3, 7], vertex_count=40, directed=directed)
        with gw.place(graph, devices) as placed:
            for sources in ([39], [0], [20, 21], [0, 39], [7], [20]):
                found = gw.bfs(placed, sources, execution=STEP)
                expected = gw.bfs(graph, sources, devices="cpu")
                assert np.array_equal(found.distance, expected.distance), sources
                assert found.statistics.processed_items.sum() == expected.reached.sum()


@pytest.mark.parametrize("slice_s", [0.1, 0.0])
def test_every_kernel_says_that_it_has_ended(
    slice_s: float, emulated: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each launch, by the word of its endpoint and by no other."""
    run_slice, seen = SlicedRun._run_slice, []

    def observed(run: SlicedRun, ended: memoryview, *others: Any) -> None:
        assert not any(ended)
        run_slice(run, ended, *others)
        seen.append([place for place, word in enumerate(ended) if word])

    monkeypatch.setattr(SlicedRun, "_run_slice", observed)
    gpu = ExperimentOptions(threads=64, blocks=3, slice_s=slice_s)
    found = gw.bfs(
        gw.generators.path(40), 0, devices=["cuda:0", "cuda:1", "cuda:1"], execution=STEP, gpu=gpu
    )
    assert found.distance[39] == 39
    assert seen == [[0, 1, 2]] * (1 if slice_s else len(seen))
    assert (len(seen) > 1) == (slice_s == 0)


def test_growth_is_told(emulated: Machine) -> None:
    rays = np.arange(1, 1001)  # a star, of which every ray goes on to an end
    ends = np.concatenate([np.zeros(1000, np.int64), rays]), np.concatenate([rays, rays + 1000])
    graph = Graph.from_edges(*ends, directed=False)
    gpu = ExperimentOptions(threads=64, blocks=3, frontier_items=64, turn_down=NEVER)
    found = gw.bfs(graph, 0, devices="cuda:0", execution=STEP, gpu=gpu)
    assert found.statistics.growths == 1
    assert found.statistics.frontier_bytes == 2 * 4 * 1000
    assert found.distance.tolist() == [0] + [1] * 1000 + [2] * 1000
    enough = gw.bfs(graph, 0, devices="cuda:0", execution=STEP, gpu=replace(SMALL, turn_down=NEVER))
    assert enough.statistics.growths == 0


@given(graph=graphs(), source=st.integers(0, 100), count=st.integers(1, 3))
def test_random_graphs(emulated: Machine, graph: Graph, source: int, count: int) -> None:
    if graph.vertex_count == 0:
        return
    devices = [f"cuda:{index}" for index in range(count)]
    source %= graph.vertex_count
    result = gw.bfs(graph, source, devices=devices, execution=STEP, gpu=SMALL)
    verify_bfs(graph, np.array([source]), result.distance, result.predecessor)


def _ladder() -> Graph:
    """Wide by its degrees, of as many levels as rungs, each vertex joined to all of the next rung."""
    rungs = np.arange(400).repeat(9) * 3
    sources, targets = (
        rungs + np.tile(np.arange(9) // 3, 400),
        rungs + np.tile(np.arange(9) % 3 + 3, 400),
    )
    return Graph.from_edges(sources, targets, directed=False)


@pytest.mark.parametrize("count", [1, 2])
def test_a_long_search_is_given_up(count: int, emulated: Machine) -> None:
    graph = _ladder()
    devices = [f"cuda:{index}" for index in range(count)]
    wanted = gw.bfs(graph, 0, devices="cpu").distance
    found = gw.bfs(graph, 0, devices=devices, gpu=SMALL)
    assert found.statistics.solver == "asynchronous"
    assert found.statistics.seconds["rows"] > 0, "it was not tried"
    assert np.array_equal(found.distance, wanted)
    asked = gw.bfs(graph, 0, devices=devices, gpu=SMALL, execution=STEP)
    assert asked.statistics.solver == "direction-optimizing"
    assert np.array_equal(asked.distance, wanted)


def test_a_long_search_is_not_tried_again(emulated: Machine) -> None:
    """Nor is memory kept for it."""
    graph = _ladder()
    with gw.place(graph, "cuda:0") as placed:
        held = emulated.held_bytes(0)
        first = gw.bfs(placed, 0, gpu=SMALL).statistics
        assert first.solver == "asynchronous"
        assert first.seconds["rows"] > 0
        assert not placed.suits_steps
        again = gw.bfs(placed, 0, gpu=SMALL).statistics
        assert "rows" not in again.seconds
        assert emulated.held_bytes(0) < held + 200_000, "the positions are still there"


def test_what_has_not_gained_by_pulling_is_left_to_the_asynchronous_engine(
    emulated: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bfs_steps, "DEEP_STEPS", 1000)
    ring = gw.generators.watts_strogatz(400, neighbours=8, rewire=0.0, seed=1)
    wide = gw.generators.rmat(9, 8, seed=1)
    for graph, later in ((ring, "asynchronous"), (wide, "direction-optimizing")):
        wanted = gw.bfs(graph, 0, devices="cpu").distance
        with gw.place(graph, "cuda:0") as placed:
            asked = gw.bfs(placed, 0, execution=STEP)  # of which nothing follows
            for solver in ("direction-optimizing", later, later):
                found = gw.bfs(placed, 0)
                assert found.statistics.solver == solver
                assert np.array_equal(found.distance, wanted)
        assert np.array_equal(asked.distance, wanted)


def test_stars_are_searched_in_supersteps(emulated: Machine) -> None:
    """They have few arcs, but a hub."""
    star, path = gw.generators.star(200), gw.generators.path(200)
    for graph, solver in ((star, "direction-optimizing"), (path, "asynchronous")):
        with gw.place(graph, "cuda:0") as placed:
            found = gw.bfs(placed, 3)
        assert found.statistics.solver == solver
        assert np.array_equal(found.distance, gw.bfs(graph, 3, devices="cpu").distance)


@pytest.mark.usefixtures("first_gpu_searches")
def test_of_several_gpus_one_searches_what_has_few_arcs_a_level(
    emulated: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = gw.generators.rmat(9, 8, seed=1)
    wanted = gw.bfs(graph, 5, devices="cpu")
    devices = ("cuda:0", "cuda:1")

    def check(placed: gw.PlacedGraph, searching: tuple[str, ...], **options: Any) -> None:
        found = gw.bfs(placed, 5, **options)
        assert found.statistics.solver == "direction-optimizing"
        assert found.statistics.devices == searching
        assert found.statistics.levels == wanted.statistics.levels
        assert np.array_equal(found.distance, wanted.distance)

    with gw.place(graph, devices) as placed:
        for _ in range(3):
            check(placed, devices[:1])
        check(placed, devices, execution=STEP)
        check(placed, devices[:1])
    monkeypatch.setattr(bfs, "_LEVEL_ARCS", 1)
    with gw.place(graph, devices) as placed:
        check(placed, devices[:1])
        check(placed, devices)
    with gw.place(graph, devices, "contiguous") as placed:
        check(placed, devices)
    monkeypatch.setattr(bfs, "_ALL_ARCS", 1)
    with gw.place(graph, devices) as placed:
        check(placed, devices)


def test_a_graph_that_is_too_large_for_supersteps() -> None:
    graph = gw.generate("rmat:12,edge_factor=8")
    source = graph.highest_degree_vertex()
    with emulated_gpus(1, memory_bytes=66 << 20):
        with pytest.raises(GraphTooLargeError):
            gw.bfs(graph, source, devices="cuda:0", gpu=SMALL, execution=STEP)
        found = gw.bfs(graph, source, devices="cuda:0", gpu=SMALL)
    assert found.statistics.solver == "asynchronous"
    assert np.array_equal(found.distance, gw.bfs(graph, source, devices="cpu").distance)


@pytest.mark.parametrize(
    "asked",
    [
        {"worker": gw.WorkerOptions(delta=2.0)},
        {"worker": gw.WorkerOptions(window=3)},
        {"worker": gw.WorkerOptions(ring_items=4)},
        {"gpu": ExperimentOptions(volume=2)},
    ],
)
def test_options_of_the_other_solver(asked: dict[str, Any], emulated: Machine) -> None:
    with pytest.raises(InputError, match="are of the asynchronous solver"):
        gw.bfs(gw.generators.path(9), 0, devices="cuda:0", execution=STEP, **asked)


def test_a_progress_function_cannot_wait_for_its_own_run(emulated: Machine) -> None:
    """Somebody else is about to bring up what it asks for, and waits for the GPU that it has."""
    graph = gw.generate("rmat:8,seed=1")
    refused: list[str] = []
    with gw.place(graph, "cuda:0") as placed, ThreadPoolExecutor(1) as others:

        def progress(_: int) -> None:
            others.submit(lambda: place_positions(placed))
            sleep(0.1)
            try:
                gw.pagerank(placed)
            except InputError as error:
                refused.append(str(error))

        gw.sssp(
            placed, 0, progress=progress, gpu=ExperimentOptions(threads=64, blocks=3, slice_s=0)
        )
    assert refused
    assert "is at work for this thread" in refused[0]


@pytest.mark.parametrize("ids", ["int32", "int64"])
@each_architecture
def test_compiles(architecture: str, ids: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the extra 'cuda'")
    for is_alone in (False, True):
        text = bfs_steps.source(np.dtype(ids), is_alone=is_alone)
        assert compiled_for(text, architecture)


@pytest.mark.gpu
@needs_gpu
class TestOnGpus:
    """The same on real GPUs, and larger graphs."""

    ENDPOINTS = (
        ["cuda:0"],
        ["cuda:0", "cuda:0"],
        [f"cuda:{i}" for i in range(driver.device_count())],
    )

    @pytest.mark.parametrize("devices", ENDPOINTS, ids="+".join)
    @each_graph
    def test_zoo(self, name: str, devices: list[str], turn: Turn, hubs: int) -> None:
        graph = named_graph(name)
        _check(graph, devices, turn(slice_s=[0.1, 0.0][len(name) % 2]))

    @pytest.mark.parametrize("devices", ENDPOINTS, ids="+".join)
    @pytest.mark.parametrize("spec", ["rmat:16", "star:100000", "road:300", "complete:700"])
    def test_larger(self, spec: str, devices: list[str], turn: Turn, hubs: int) -> None:
        _check(gw.generate(spec), devices, turn())

    @pytest.mark.parametrize("devices", ENDPOINTS[1:], ids="+".join)
    def test_delays(self, devices: list[str], turn: Turn) -> None:
        for seed in range(4):
            graph = gw.generate(f"rmat:8,edge_factor=4,seed={seed}")
            _check(graph, devices, turn(delay_ns=300_000, threads=[64, 1024][seed % 2]))
