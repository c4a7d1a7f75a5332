"""Plans: queries of a placed graph, one after the other, give what queries of new placements give."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
from emulated_grid import Machine, emulated_gpus
from godwit import GpuOptions, Graph
from godwit.algorithms import bfs, sssp
from godwit.algorithms.bfs.cuda import UNREACHED
from godwit.algorithms.pagerank import cuda as pagerank_cuda
from godwit.errors import ClosedContextError, InputError
from godwit.runtime.cuda import compile as compilation
from godwit.runtime.cuda import driver, slices
from godwit.runtime.cuda.memory import PinnedBuffer
from godwit.runtime.gpu_options import ExperimentOptions
from godwit.supersteps import place_positions
from godwit.worker.cuda.placement import MOST_PLANS
from gpu_endpoints import held_bytes
from graphs import graphs

betweenness = partial(gw.betweenness_centrality, weighted=False)
STEPS = "bulk-synchronous"


@pytest.fixture(scope="module")
def gpus() -> Iterator[Machine]:
    with emulated_gpus(2) as machine:
        yield machine


def _answers(graph: Any, vertex: int, number: int) -> Any:
    """Ask one of several questions, and return the arrays of the answer."""
    n = (graph.graph if isinstance(graph, gw.PlacedGraph) else graph).vertex_count
    questions: list[Callable[[], Any]] = [
        lambda: gw.bfs(graph, vertex % n, execution=STEPS).distance,
        lambda: gw.bfs(graph, [0, vertex % n], execution=STEPS, cutoff=2).distance,
        lambda: gw.bfs(graph, 0, execution=STEPS, target=vertex % n).distance,
        lambda: gw.bfs(graph, 0, execution=STEPS, gpu=ExperimentOptions(frontier_items=1)).distance,
        lambda: gw.connected_components(graph).label,
        lambda: gw.connected_components(graph, method="rem").label,
        lambda: gw.pagerank(graph, damping=0.5 + (vertex % 5) / 10).rank,
        lambda: gw.pagerank(graph, personalization={vertex % n: 1}, max_iterations=50).rank,
        lambda: gw.pagerank(graph, dtype="float32").rank,
        lambda: betweenness(graph, sources=[vertex % n]).centrality,
        lambda: betweenness(graph, endpoints=True, scale="sum").centrality,
        lambda: betweenness(graph, samples=1 + vertex % n, edges=True).edge_centrality,
        lambda: gw.katz_centrality(graph, alpha=1e-3, beta={vertex % n: 1}).centrality,
        lambda: gw.hits(graph, start={vertex % n: 1}, tolerance=1.0).authorities,
        lambda: gw.core_number(graph).core,
        lambda: gw.truss_number(graph).truss,
        lambda: gw.greedy_color(graph, seed=vertex % 2).color,
        lambda: gw.maximal_independent_set(graph, seed=vertex % 2).member,
        lambda: gw.random_walks(graph, vertex % n, 5, weighted=False, seed=number),
        lambda: gw.sample_neighbors(graph, vertex % n, [2, -1], seed=vertex % 2).edges,
    ]
    return questions[number % len(questions)]()


@given(
    graph=graphs(min_vertices=1),
    queries=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 19)), min_size=2, max_size=6),
    count=st.integers(1, 2),
)
def test_answers_do_not_depend_on_earlier_queries(
    gpus: Machine, graph: Graph, queries: list[tuple[int, int]], count: int
) -> None:
    devices = [f"cuda:{index}" for index in range(count)]
    with gw.place(graph, devices) as placed:
        for vertex, number in queries:
            found = _answers(placed, vertex, number)
            expected = _answers(graph, vertex, number)  # placed for this query
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@given(
    graph=graphs(min_vertices=1),
    vertices=st.lists(st.integers(0, 50), min_size=2, max_size=4),
    number=st.integers(0, 6),
    count=st.integers(1, 2),
)
def test_queries_that_differ_in_their_source_only(
    gpus: Machine, graph: Graph, vertices: list[int], number: int, count: int
) -> None:
    """They are not checked again, nor is their way chosen again."""
    n = graph.vertex_count
    questions: list[Callable[[Any, Any], Any]] = [
        lambda graph, vertex: gw.bfs(graph, vertex).distance,
        lambda graph, vertex: gw.bfs(graph, [vertex, 0], cutoff=2.5, timeout_s=60.0).distance,
        lambda graph, vertex: gw.bfs(graph, vertex, execution=STEPS).distance,
        lambda graph, vertex: gw.bfs(graph, vertex, target=n // 2).distance[n // 2],
        lambda graph, vertex: gw.sssp(graph, vertex, weighted=False).distance,
        lambda graph, vertex: gw.connected_components(graph).label,
        lambda graph, vertex: gw.pagerank(graph, max_iterations=9).rank,
    ]
    ask = questions[number]
    with gw.place(graph, [f"cuda:{index}" for index in range(count)]) as placed:
        found = [ask(placed, vertex % n) for vertex in vertices]
    for vertex, one in zip(vertices, found, strict=True):
        np.testing.assert_allclose(one, ask(graph, vertex % n), rtol=1e-9)


def test_arguments_that_only_look_alike_are_checked(gpus: Machine) -> None:
    graph = gw.generators.star(20)
    with gw.place(graph, "cuda:0") as placed:
        assert gw.pagerank(placed, max_iterations=1).iterations == 1
        with pytest.raises(InputError, match="max_iterations"):
            gw.pagerank(placed, max_iterations=True)
        assert gw.bfs(placed, 1, cutoff=1).distance.max() == UNREACHED
        assert gw.bfs(placed, 1, cutoff=2).distance.max() == 2
        for source in (20, -1, "a", 1.5):
            with pytest.raises(InputError, match="source"):
                gw.bfs(placed, source, cutoff=2)
        with pytest.raises(InputError, match="placed already"):
            gw.bfs(placed, 1, cutoff=2, devices="cuda:0")
        limits = np.array([2, 3])
        with pytest.raises(InputError, match="cutoff"):
            gw.bfs(placed, 1, cutoff=limits)  # type: ignore[arg-type]
    with pytest.raises(ClosedContextError):
        gw.bfs(placed, 1, cutoff=2)


def test_a_query_like_the_one_before_is_traced(gpus: Machine, tmp_path: Path) -> None:
    with gw.place(gw.generators.star(20), "cuda:0") as placed:
        for name in ("first.json", "second.json"):
            gw.connected_components(placed)
            gw.connected_components(placed, trace=tmp_path / name)
            assert '"slice"' in (tmp_path / name).read_text()


def test_a_second_query_compiles_and_allocates_nothing(gpus: Machine) -> None:
    graph = gw.generators.rmat(6, 4, seed=1)
    with gw.place(graph, ["cuda:0", "cuda:1"]) as placed:
        for ask in (
            lambda source: gw.bfs(placed, source, execution=STEPS),
            lambda _: gw.connected_components(placed),
            lambda _: gw.pagerank(placed),
            lambda source: betweenness(placed, sources=[source]),
            lambda source: betweenness(placed, sources=range(source, source + 40), weighted=False),
            lambda source: betweenness(placed, sources=[source], edges=True),
            lambda _: gw.minimum_spanning_forest(placed),
        ):
            first = ask(0)
            held = [gpus.held_bytes(index) for index in (-1, 0, 1)]
            second = ask(5)
            assert held == [gpus.held_bytes(index) for index in (-1, 0, 1)]
            assert "compile" in first.statistics.seconds
            assert "compile" not in second.statistics.seconds


def test_the_number_of_plans_is_bounded(gpus: Machine) -> None:
    graph = gw.generators.path(20)
    with gw.place(graph, "cuda:0") as placed:
        for number in range(MOST_PLANS + 3):
            gpu = GpuOptions(patience_s=10 + number)
            assert gw.bfs(placed, 0, execution=STEPS, gpu=gpu).distance[19] == 19
        steps: Any = place_positions(placed)
        assert len(steps._plans) == MOST_PLANS


class StoppedError(Exception):
    """Raised by a progress function."""


@pytest.mark.parametrize("count", [1, 2])
def test_a_query_that_is_given_up_leaves_a_plan_that_works(gpus: Machine, count: int) -> None:
    graph = gw.generators.path(60)
    calls = 0

    def stop(_: int) -> None:
        nonlocal calls
        calls += 1
        if calls % 4 == 3:
            raise StoppedError

    with gw.place(graph, [f"cuda:{index}" for index in range(count)]) as placed:
        gpu = GpuOptions(slice_s=0)
        for source in (0, 30, 59):
            with pytest.raises(StoppedError):
                gw.bfs(placed, source, execution=STEPS, gpu=gpu, progress=stop)
            found = gw.bfs(placed, source, execution=STEPS, gpu=gpu)
            np.testing.assert_array_equal(found.distance, np.abs(np.arange(60) - source))
            with pytest.raises(StoppedError):
                gw.pagerank(placed, gpu=gpu, progress=stop)
            np.testing.assert_allclose(gw.pagerank(placed, gpu=gpu).rank, gw.pagerank(graph).rank)


def test_a_request_that_is_cut_off_leaves_nothing_of_it(
    gpus: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next query is like the one before, whose arguments the plan would still have."""
    graph = gw.generators.rmat(6, seed=1)
    others = {"damping": 0.5, "personalization": {3: 1}}

    def stop(*_: Any) -> None:
        raise StoppedError

    with gw.place(graph, "cuda:0") as placed:
        expected = gw.pagerank(placed).rank
        gw.pagerank(placed, **others)  # type: ignore[arg-type]  # whose plan is the same
        np.testing.assert_array_equal(gw.pagerank(placed).rank, expected)
        with monkeypatch.context() as patch:
            patch.setattr(pagerank_cuda._RankPlan, "_upload", stop)
            with pytest.raises(StoppedError):
                gw.pagerank(placed, **others)  # type: ignore[arg-type]
        np.testing.assert_array_equal(gw.pagerank(placed).rank, expected)


def _ask_in_threads(placed: gw.PlacedGraph, graph: Graph, threads: int, queries: int) -> None:
    wrong: list[Any] = []

    def ask(thread: int) -> None:
        try:
            for query in range(queries):
                vertex, number = 7 * thread + query, thread + query
                found = _answers(placed, vertex, number)
                np.testing.assert_allclose(
                    found, _answers(graph, vertex, number), rtol=1e-4, atol=1e-6
                )
        except BaseException as error:
            wrong.append(error)

    running = [threading.Thread(target=ask, args=(thread,)) for thread in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not wrong, wrong[0]


@pytest.mark.gpu
@pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")
@pytest.mark.parametrize("endpoints", [1, 2])
def test_eight_threads_ask_one_placed_graph(endpoints: int) -> None:
    graph = gw.generators.rmat(10, 8, seed=3)
    with gw.place(graph, ["cuda:0"] * endpoints) as placed:
        _ask_in_threads(placed, graph, 8, 20)


@pytest.mark.gpu
@pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")
def test_many_queries_leak_nothing() -> None:
    graph = gw.generators.rmat(10, 8, seed=3)
    with gw.place(graph, "cuda:0") as placed:

        def ask_all() -> None:
            for number in range(10):
                _answers(placed, number, number)

        for _ in range(3):
            ask_all()
        held = held_bytes()
        for _ in range(150):
            ask_all()
        assert held_bytes() <= held


@pytest.mark.gpu
@pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")
def test_a_short_time_limit_is_kept() -> None:
    """A run of many milliseconds ends when its few are over, and not after a slice of 100 ms."""
    graph = gw.generators.path(200_000)
    with gw.place(graph, "cuda:0") as placed:
        whole = gw.bfs(placed, 0, execution=STEPS)
        assert whole.statistics.seconds["kernel"] > 0.05
        with pytest.raises(gw.errors.RunTimeoutError):
            gw.bfs(placed, 0, execution=STEPS, timeout_s=0.005)
        again = gw.bfs(placed, 0, execution=STEPS)
        np.testing.assert_array_equal(again.distance, whole.distance)


@pytest.mark.parametrize(("gpu_count", "ids"), [(1, "int32"), (1, "int64"), (2, "int32")])
@pytest.mark.parametrize(
    "ask",
    [
        lambda placed: gw.bfs(placed, 0, execution=STEPS),
        lambda placed: gw.sssp(placed, 0),
        lambda placed: betweenness(placed, sources=[0]),
    ],
    ids=["bfs", "sssp", "betweenness"],
)
def test_what_is_compiled_ahead_is_loaded(
    gpus: Machine,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[gw.PlacedGraph], Any],
    gpu_count: int,
    ids: str,
) -> None:
    """Kernels that are compiled while a graph gets its positions are those that the query takes."""
    ahead: set[str] = set()
    loaded: set[str] = set()
    load = compilation._loaded_source

    def record(index: int, source: str) -> Any:
        loaded.add(source)
        return load(index, source)

    monkeypatch.setattr(compilation, "compile_meanwhile", lambda _, source: ahead.add(source))
    monkeypatch.setattr(compilation, "_loaded_source", record)
    made = gw.generate("rmat:12,edge_factor=8,seed=1,weights=1..9")
    arrays = made.offsets, made.targets.astype(ids), made.weights
    graph = Graph(*arrays, directed=False)
    with gw.place(graph, [f"cuda:{index}" for index in range(gpu_count)]) as placed:
        ask(placed)
        assert len(ahead) == 2
        assert ahead <= loaded
        ahead.clear()
        ask(placed)
        assert not ahead


@pytest.mark.parametrize("devices", ["cuda:0", None])
@pytest.mark.parametrize(
    ("ask", "spec"),
    [
        (gw.bfs, "rmat:10,edge_factor=8"),
        (gw.bfs, "road:40x40"),
        (gw.sssp, "road:40x40,weights=1..9"),
        (gw.sssp, "rmat:10,edge_factor=8,weights=0.5..9"),
    ],
)
def test_the_kernel_of_a_first_search_is_compiled_before_cuda_begins(
    gpus: Machine,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[..., Any],
    spec: str,
    devices: str | None,
) -> None:
    """All that is compiled ahead is what the search takes; its own kernel is the first of it."""
    ahead: list[str] = []
    loaded: set[str] = set()
    load = compilation._loaded_source

    def record(index: int, source: str) -> Any:
        loaded.add(source)
        return load(index, source)

    for program in (bfs.PROGRAM, *sssp.PROGRAMS.values()):
        monkeypatch.setitem(program.operators.__dict__, "compiled", {})
    monkeypatch.setattr(driver, "architecture_before_discovery", lambda: "90")
    monkeypatch.setattr(compilation, "compile_for", lambda _, source: ahead.append(source))
    monkeypatch.setattr(compilation, "_loaded_source", record)
    monkeypatch.setenv("GODWIT_DEVICES", "cuda")  # whatever cores would take
    result = ask(gw.generate(spec), 0, devices=devices)
    assert result.statistics.devices == ("cuda:0",)
    assert set(ahead) <= loaded
    assert "algorithms/bfs/bfs.cuh" in ahead[0] or "worker/cuda/worker.cuh" in ahead[0]


def test_threads_that_begin_at_once_share_the_words_of_kernels(
    gpus: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels write into these words as long as the process lasts: there is one buffer of them."""

    class SlowlyMade(PinnedBuffer):
        def __init__(self, nbytes: int) -> None:
            sleep(0.05)
            super().__init__(nbytes)

    monkeypatch.setattr(slices.memory, "PinnedBuffer", SlowlyMade)
    slices._made_host_words.cache_clear()
    begin, found = threading.Barrier(4), []

    def look() -> None:
        begin.wait()
        found.append(slices._host_words())

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    slices._made_host_words.cache_clear()
    assert len({id(words) for words in found}) == 1
