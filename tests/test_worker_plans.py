"""Plans of the asynchronous engine: answers of a placed graph do not depend on what it was asked before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
from emulated_grid import Machine, emulated_gpus
from godwit import Graph, VertexProgram, WorkerOptions
from godwit.errors import OperatorError, RunTimeoutError, ValueOverflowError
from godwit.runtime.cuda import driver, memory
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from godwit.worker.cuda.placement import MOST_PLANS
from godwit.worker.query import place_parts
from gpu_endpoints import held_bytes
from graphs import graphs

EXECUTION: Any = "asynchronous"

WIDEST = VertexProgram(
    name="widest", combine="max", dtype="float64", priority=lambda value: -value,
    message=lambda value, weight, scale: min(value, weight * scale), parameters={"scale": 1.0},
)  # fmt: skip
LABELS = VertexProgram(
    name="labels", combine="min", dtype="int64", initial=lambda vertices: 3 * vertices,
    message=lambda value: value,
)  # fmt: skip
MASS = VertexProgram(
    name="mass", combine="add", dtype="float64", field_dtype="float64", field_initial=0.5,
    message=lambda value, degree, rate: rate * value / degree,
    activate=lambda value: value > 1e-3, update=lambda field, value: field + value,
    initial=0.25, parameters={"rate": 0.5},
)  # fmt: skip
NARROW = VertexProgram(
    name="narrow", combine="min", dtype="int32", message=lambda value, weight: value + weight
)
ENDLESS = VertexProgram(
    name="endless", combine="min", dtype="int64", message=lambda value: value - 1
)
FAULTY = VertexProgram(
    name="faulty", combine="min", dtype="int64",
    message=lambda value, weight: value + 1 if value < 5 else value // (weight - weight),
)  # fmt: skip


@pytest.fixture(scope="module")
def gpus() -> Iterator[Machine]:
    with emulated_gpus(2) as machine:
        yield machine


QUESTIONS = 13


def _answer(graph: Any, vertex: int, number: int, devices: Any = None) -> list[Any]:
    """Ask one of several questions, and return the arrays of the answer."""
    whole = graph.graph if isinstance(graph, gw.PlacedGraph) else graph
    n = whole.vertex_count
    vertex %= n
    on: dict[str, Any] = {} if devices is None else {"devices": devices}
    if number == 0:
        return [gw.sssp(graph, vertex, **on).distance]
    if number == 1:
        return [gw.sssp(graph, [0, vertex, n - 1], cutoff=vertex % 7, **on).distance]
    if number == 2:
        return [gw.sssp(graph, 0, target=vertex, **on).distance]
    if number == 3:
        return [gw.bfs(graph, vertex, execution=EXECUTION, **on).distance]
    if number == 4:
        return [gw.bfs(graph, list(range(n)), execution=EXECUTION, **on).distance]
    if number == 5:
        start = {vertex: 8.5, 0: 2.0}
        return [gw.run(WIDEST, graph, start, parameters={"scale": 1 + vertex % 3}, **on).values]
    if number == 6:
        return [gw.run(WIDEST, graph, {vertex: 3}, **on).values]
    if number == 7:
        return [gw.run(LABELS, graph, **on).values]
    if number == 8:
        return [gw.run(LABELS, graph, np.arange(n)[::-1] + vertex, **on).values]
    if number == 9:
        return [gw.run(LABELS, graph, {vertex: -1}, limit=2 * n, **on).values]
    if number == 10:
        mass = gw.run(MASS, graph, {vertex: 1}, parameters={"rate": 0.1 * (1 + vertex % 3)}, **on)
        return [mass.values, mass.fields]
    if number == 11:
        mass = gw.run(MASS, graph, **on)
        return [mass.values, mass.fields]
    return [gw.sssp(graph, vertex, worker=WorkerOptions(delta=0.5, ring_items=2), **on).distance]


def _check(graph: Any, vertex: int, number: int, expected: list[Any]) -> None:
    for found, wanted in zip(_answer(graph, vertex, number), expected, strict=True):
        if number in (10, 11):  # what is below the threshold stays where it is, by the schedule
            np.testing.assert_allclose(found, wanted, atol=5e-3 * len(wanted))
        else:
            np.testing.assert_array_equal(found, wanted)


def _with_weights(graph: Graph) -> st.SearchStrategy[Graph]:
    """The graph without weights, or with those of one dtype: every dtype is another kernel to compile."""
    weights = np.arange(graph.arc_count, dtype=np.int32) * 7 % 20
    return st.sampled_from([graph, graph.with_weights(weights)])


@given(
    graph=graphs(min_vertices=1, weighted=False, directed=True).flatmap(_with_weights),
    queries=st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, QUESTIONS - 1)), min_size=2, max_size=6
    ),
    count=st.integers(1, 2),
)
def test_answers_do_not_depend_on_earlier_queries(
    gpus: Machine, graph: Graph, queries: list[tuple[int, int]], count: int
) -> None:
    devices = [f"cuda:{index}" for index in range(count)]
    with gw.place(graph, devices) as placed:
        for vertex, number in queries:
            _check(placed, vertex, number, _answer(graph, vertex, number, "cpu"))


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_of_an_earlier_run_is_read(seed: int) -> None:
    """The second run begins while blocks of the other device have not, and every access is checked."""
    graph = gw.generators.rmat(5, 4, weights=(1, 9), seed=3)
    with (
        emulated_gpus(2, checks=True, seed=seed) as gpus,
        gw.place(graph, ["cuda:0", "cuda:1"], "random") as placed,
    ):
        for source in (0, 9, 5):
            found = gw.sssp(placed, source).distance
            np.testing.assert_array_equal(found, gw.sssp(graph, source, devices="cpu").distance)
        assert gpus.launched["work"] == 2 * (1 + 3)  # each was launched once without effect


@pytest.mark.parametrize(("spec", "packs"), [("rmat:6,seed=1", False), ("road:8x8", True)])
def test_a_second_query_compiles_and_allocates_nothing(
    spec: str, packs: bool, gpus: Machine
) -> None:
    gpus.launched.pop("pack_rows", None)
    with gw.place(gw.generate(spec), ["cuda:0", "cuda:1"]) as placed:
        for number in range(QUESTIONS):
            _answer(placed, 3, number)
        held = [gpus.held_bytes(index) for index in (-1, 0, 1)]
        packed = gpus.launched.get("pack_rows")
        assert (packed is not None) == packs
        for number in range(QUESTIONS):
            _answer(placed, 5, number)
        assert held == [gpus.held_bytes(index) for index in (-1, 0, 1)]
        assert gpus.launched.get("pack_rows") == packed
        again = gw.sssp(placed, 7).statistics
        assert "compile" not in again.seconds


def test_seeds_beyond_the_room_of_a_request(gpus: Machine) -> None:
    graph = gw.generators.path(2000)
    with gw.place(graph, ["cuda:0", "cuda:1"]) as placed:
        for sources in ([0], range(0, 2000, 2), [1999], range(2000)):
            found = gw.sssp(placed, list(sources)).distance
            expected = np.abs(np.arange(2000)[:, None] - np.array(sources)).min(axis=1)
            np.testing.assert_array_equal(found, expected)


def test_the_number_of_plans_is_bounded(gpus: Machine) -> None:
    graph = gw.generators.path(20)
    with gw.place(graph, "cuda:0") as placed:
        for _ in range(2):
            for number in range(MOST_PLANS + 3):
                worker = WorkerOptions(delta=1 + number)
                found = gw.bfs(placed, 0, execution=EXECUTION, worker=worker)
                assert found.distance[19] == 19
        placement = place_parts(placed)
        assert placement is not None
        assert len(placement._plans) == MOST_PLANS
        gw.bfs(placed, 0, execution=EXECUTION)
        used = placement._plans.copy()
        gw.bfs(placed, 0, execution=EXECUTION)
        assert placement._plans == used


def test_a_plan_that_needs_more_memory_leaves_others_that_work(gpus: Machine) -> None:
    """Values of 64 bits replace the memory of those of 32 bits, to which an earlier plan points."""
    graph = gw.generators.road(8, weights=(1, 9))
    with gw.place(graph, ["cuda:0", "cuda:1"]) as placed:
        for number in (0, 7, 0, 5, 11, 0, 3):
            _check(placed, 2, number, _answer(graph, 2, number, "cpu"))


def test_a_graph_whose_distances_overflow_is_searched_twice_once(gpus: Machine) -> None:
    graph = Graph.from_edges([0, 1, 2], [1, 2, 3], [2**30] * 3)
    with gw.place(graph, "cuda:0") as placed:

        def launches(**asked: Any) -> int:
            before = gpus.launched.get("work", 0)
            distance = gw.sssp(placed, 0, **asked).distance.tolist()
            far = [2**63 - 1] * 3 if asked else [2**30, 2**31, 3 * 2**30]
            assert distance == [0, *far]
            return gpus.launched["work"] - before

        without_effect = 1
        assert launches() == 2 * (1 + without_effect)  # 32 bits, then 64
        assert launches() == 1
        assert (
            launches(cutoff=5) == 1 + without_effect
        )  # 32 bits: memory of the first plan was replaced
        assert launches(cutoff=5) == 1
        assert launches() == 1


class StoppedError(Exception):
    """Raised by a progress function."""


def _stop_at(call: int) -> Any:
    """Return a progress function that raises StoppedError when it is called for the n-th time."""
    calls = iter(range(call))

    def stop(_: int) -> None:
        if next(calls, None) is None:
            raise StoppedError

    return stop


def _fail(placed: gw.PlacedGraph, timeout_s: float) -> None:
    """Ask questions that end with every kind of error."""
    n = placed.graph.vertex_count
    slow = GpuOptions(slice_s=0)
    for call in (0, 1, 3):
        with pytest.raises(StoppedError):
            gw.sssp(placed, 0, gpu=slow, progress=_stop_at(call))
        with pytest.raises(KeyboardInterrupt):
            gw.sssp(placed, 0, gpu=slow, progress=_interrupt)
    with pytest.raises(RunTimeoutError):
        gw.run(ENDLESS, placed, {0: 0}, timeout_s=timeout_s)
    with pytest.raises(ValueOverflowError):
        gw.run(NARROW, placed, {0: 2**31 - 20})
    with pytest.raises(gw.errors.InputError):
        gw.run(NARROW, placed, {0: 2**31})
    with pytest.raises(gw.errors.InputError):
        gw.run(LABELS, placed, np.full(n, 0.5))


def _interrupt(_: int) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("count", [1, 2])
def test_a_query_that_fails_leaves_plans_that_work(gpus: Machine, count: int) -> None:
    graph = gw.generators.path(60, weights=(1, 9))
    with gw.place(graph, [f"cuda:{index}" for index in range(count)]) as placed:
        for source in (0, 30):
            _fail(placed, 0.05)
            for number in (0, 3, 7):
                _check(placed, source, number, _answer(graph, source, number, "cpu"))
            expected = gw.sssp(graph, source, devices="cpu").distance
            slow = gw.sssp(placed, source, gpu=GpuOptions(slice_s=0))
            np.testing.assert_array_equal(slow.distance, expected)
            near = gw.run(NARROW, placed, {source: 0})
            np.testing.assert_array_equal(near.values, expected)


def _ask_in_threads(placed: gw.PlacedGraph, graph: Graph, threads: int, queries: int) -> None:
    wrong: list[BaseException] = []
    expected = {
        (vertex, number): _answer(graph, vertex, number, "cpu")
        for vertex in range(4)
        for number in range(QUESTIONS)
    }

    def ask(thread: int) -> None:
        try:
            for query in range(queries):
                vertex, number = (thread + query) % 4, (5 * thread + query) % QUESTIONS
                _check(placed, vertex, number, expected[vertex, number])
        except BaseException as error:
            wrong.append(error)

    running = [threading.Thread(target=ask, args=(thread,)) for thread in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not wrong, wrong[0]


def test_threads_ask_one_placed_graph(gpus: Machine) -> None:
    graph = gw.generators.rmat(4, 4, seed=3, weights=(1, 9))
    with gw.place(graph, ["cuda:0", "cuda:1"]) as placed:
        _ask_in_threads(placed, graph, 3, 6)


@pytest.mark.gpu
@pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")
class TestOnGpus:
    """The same with real GPUs, where kernels run while the host goes on."""

    @pytest.mark.parametrize("endpoints", [1, 2, 3])
    @pytest.mark.parametrize("spec", ["rmat:10,weights=1..9", "road:40,weights=1..9"])
    def test_answers_do_not_depend_on_earlier_queries(self, spec: str, endpoints: int) -> None:
        graph = gw.generate(spec)
        order = np.random.default_rng(endpoints).permutation(5 * QUESTIONS)
        with gw.place(graph, ["cuda:0"] * endpoints) as placed:
            for query in order.tolist():
                vertex, number = 37 * query, query % QUESTIONS
                _check(placed, vertex, number, _answer(graph, vertex, number, "cpu"))

    @pytest.mark.parametrize("transport", ["direct", "host", "ring"])
    def test_every_transport(self, transport: Any) -> None:
        graph = gw.generators.road(60, weights=(1, 9))
        with gw.place(graph, ["cuda:0"] * 3, "random") as placed:
            for source in range(0, 3600, 300):
                expected = gw.sssp(graph, source, devices="cpu").distance
                for gpu in (GpuOptions(transport=transport), GpuOptions()):
                    found = gw.sssp(placed, source, gpu=gpu).distance
                    np.testing.assert_array_equal(found, expected)

    @pytest.mark.parametrize("endpoints", [1, 2])
    def test_eight_threads_ask_one_placed_graph(self, endpoints: int) -> None:
        graph = gw.generators.rmat(10, 8, seed=3, weights=(1, 9))
        with gw.place(graph, ["cuda:0"] * endpoints) as placed:
            _ask_in_threads(placed, graph, 8, 30)

    @pytest.mark.parametrize("endpoints", [1, 2])
    def test_a_query_that_fails_leaves_plans_that_work(self, endpoints: int) -> None:
        graph = gw.generators.road(30, weights=(1, 9))
        with gw.place(graph, ["cuda:0"] * endpoints) as placed:
            for source in (0, 450):
                _fail(placed, 0.05)
                with pytest.raises(OperatorError):
                    gw.run(FAULTY, placed, {0: 0})
                for number in (0, 3, 7):
                    _check(placed, source, number, _answer(graph, source, number, "cpu"))

    def test_1500_queries_leak_nothing(self) -> None:
        graph = gw.generators.rmat(10, 8, seed=3, weights=(1, 9))
        with gw.place(graph, ["cuda:0", "cuda:0"]) as placed:

            def ask_all() -> None:
                for number in range(QUESTIONS):
                    _answer(placed, number, number)

            for _ in range(15):
                ask_all()
            held, pinned = held_bytes(), memory.pinned_kept_bytes()
            for _ in range(1500 // QUESTIONS):
                ask_all()
            assert held_bytes() <= held
            assert memory.pinned_kept_bytes() == pinned

    def test_a_short_time_limit_is_kept(self) -> None:
        """A run of many milliseconds ends when its few are over, and not after a slice of 100 ms."""
        graph = gw.generators.path(200_000)
        gpu = ExperimentOptions(hops=1)
        with gw.place(graph, "cuda:0") as placed:
            whole = gw.bfs(placed, 0, execution=EXECUTION, gpu=gpu)
            assert whole.statistics.seconds["kernel"] > 0.05
            with pytest.raises(RunTimeoutError):
                gw.bfs(placed, 0, execution=EXECUTION, gpu=gpu, timeout_s=0.005)
            again = gw.bfs(placed, 0, execution=EXECUTION, gpu=gpu)
            np.testing.assert_array_equal(again.distance, whole.distance)
