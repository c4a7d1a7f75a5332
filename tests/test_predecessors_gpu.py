"""Predecessors that GPUs compute are those of CPUs, bit for bit. Kernels run emulated, and on GPUs."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
import graphs as zoo
from emulated_grid import Machine, emulated_gpus
from godwit.algorithms.paths import cuda as module
from godwit.algorithms.paths import predecessors as cpu_module
from godwit.algorithms.paths import result as result_module
from godwit.algorithms.paths.cuda import predecessors_on_gpus
from godwit.algorithms.paths.predecessors import predecessors
from godwit.arrays import ResultLocation
from godwit.errors import GraphTooLargeError
from godwit.graph.csr import Graph
from gpu_endpoints import needs_gpu, on_endpoints
from test_predecessors import distances, dtype_for

HOST = ResultLocation()


@pytest.fixture(scope="module")
def gpus() -> Iterator[Machine]:
    with emulated_gpus(2) as machine:
        yield machine


def check(placed: Any, distance: Any, sources: Any, *, unit: bool) -> None:
    """Compare the GPUs' pass with the CPUs'."""
    expected = predecessors(placed.graph, distance, sources, unit_lengths=unit, threads=1)
    found = predecessors_on_gpus(placed, distance, sources, unit_lengths=unit, location=HOST)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


DEVICES = [["cuda:0"], ["cuda:0", "cuda:0"], ["cuda:0", "cuda:1", "cuda:0"]]


@given(st.data())
def test_any_graph(gpus: Machine, data: Any) -> None:
    graph = data.draw(zoo.graphs(min_vertices=1))
    vertices = st.integers(0, graph.vertex_count - 1)
    sources = np.array(data.draw(st.lists(vertices, min_size=1, max_size=4), "sources"))
    unit = data.draw(st.booleans(), "unit")
    counted = graph.without_weights() if unit else graph
    dtype = "int32" if unit and data.draw(st.booleans(), "as of BFS") else dtype_for(counted)
    distance = distances(counted, sources, dtype)
    with gw.place(graph, data.draw(st.sampled_from(DEVICES), "devices")) as placed:
        check(placed, distance, sources, unit=unit)


@pytest.mark.parametrize("devices", DEVICES, ids="+".join)
@zoo.each_graph
def test_the_zoo(gpus: Machine, name: str, devices: list[str]) -> None:
    graph = zoo.named_graph(name)
    if graph.vertex_count == 0:
        return
    sources = np.array([graph.vertex_count // 3])
    with gw.place(graph, devices) as placed:
        check(placed, distances(graph, sources, dtype_for(graph)), sources, unit=False)


def hubs(*, directed: bool, weights: str | None) -> Graph:
    """Two vertices with long rows among many with short ones."""
    generator = np.random.default_rng(1)
    n = 5000
    tails = np.concatenate([np.full(n, 17), np.full(3000, 4999), generator.integers(0, n, n)])
    heads = np.concatenate([np.arange(n), generator.integers(0, n, 3000 + n)])
    lengths = None if weights is None else generator.integers(1, 600, len(tails)).astype(weights)
    return Graph.from_edges(tails, heads, lengths, vertex_count=n, directed=directed)


@pytest.mark.parametrize("devices", DEVICES, ids="+".join)
@pytest.mark.parametrize("weights", [None, "int32", "float32"])
@pytest.mark.parametrize("directed", [False, True])
def test_long_rows(gpus: Machine, directed: bool, weights: Any, devices: list[str]) -> None:
    graph = hubs(directed=directed, weights=weights)
    assert np.count_nonzero(np.diff(graph.offsets) > 1024) == 2
    with gw.place(graph, devices) as placed:
        for sources in ([0], [3, 4000]):
            distance = distances(graph, sources, dtype_for(graph))
            check(placed, distance, np.array(sources), unit=False)


@pytest.mark.parametrize("devices", DEVICES, ids="+".join)
@pytest.mark.parametrize("scale", [1, 84, 85, 127, 128, 1 << 33])
def test_distances_of_any_size(gpus: Machine, scale: int, devices: list[str]) -> None:
    """Keys have 8 bits: distances around 255, beyond that and with equal keys are told apart."""
    generator = np.random.default_rng(scale)
    lengths = scale * generator.integers(0, 4, 600)
    for directed in (False, True):
        graph = Graph.from_edges(
            *generator.integers(0, 150, (2, 600)), lengths, vertex_count=160, directed=directed
        )
        distance = distances(graph, [0], "int64")
        with gw.place(graph, devices) as placed:
            check(placed, distance, np.array([0]), unit=False)
            cut = np.where(distance <= 2 * scale, distance, np.iinfo(np.int64).max)
            check(placed, cut, np.array([0]), unit=False)


@pytest.mark.parametrize("devices", DEVICES, ids="+".join)
@pytest.mark.parametrize("dtype", ["int32", "float64"])
@pytest.mark.parametrize("rounds", [1, 3, module.MOST_ROUNDS])
def test_ties_are_settled_in_rounds(
    gpus: Machine, monkeypatch: pytest.MonkeyPatch, rounds: int, dtype: str, devices: list[str]
) -> None:
    monkeypatch.setattr(module, "MOST_ROUNDS", rounds)
    generator = np.random.default_rng(rounds)
    tails, heads = generator.integers(0, 90, (2, 200))
    tails, heads = np.append(tails, np.arange(100, 119)), np.append(heads, np.arange(101, 120))
    tails, heads = np.append(tails, 3), np.append(heads, 100)
    few = [0, 0, 0, 5] if dtype == "int32" else [1e300, 1e-300, 0, 2.5e300]
    lengths = np.append(generator.choice(few, 200), np.full(20, few[1])).astype(dtype)
    for directed in (False, True):
        graph = Graph.from_edges(tails, heads, lengths, vertex_count=125, directed=directed)
        with gw.place(graph, devices) as placed:
            for sources in ([0], [7, 3, 110]):
                distance = distances(graph, sources, dtype_for(graph))
                check(placed, distance, np.array(sources), unit=False)


def test_rows_need_not_be_sorted(gpus: Machine) -> None:
    graph = gw.generators.rmat(8, 8, seed=3)
    generator = np.random.default_rng(0)
    targets = graph.targets.copy()
    for begin, end in zip(graph.offsets[:-1], graph.offsets[1:], strict=True):
        targets[begin:end] = generator.permutation(targets[begin:end])
    shuffled = Graph(graph.offsets, targets, directed=False)
    distance = distances(graph, [5], "int32")
    with gw.place(shuffled, "cuda:0") as placed:
        check(placed, distance, np.array([5]), unit=True)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_accesses_race(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rings = np.append(generator.integers(0, 40, (2, 150)), np.full((2, 1500), 3), axis=1)
    rings[1, 150:] = generator.integers(0, 80, 1500)
    for directed in (False, True):
        for lengths in (None, generator.integers(0, 3, 1650), generator.random(1650)):
            graph = Graph.from_edges(*rings, lengths, vertex_count=90, directed=directed)
            distance = distances(graph, [0], dtype_for(graph))
            # Keys are equal modulo 256, so distances are compared, too.
            far = np.where(distance < 2**60, distance * 256, distance)
            weights = np.ones(graph.arc_count, int) if graph.weights is None else graph.weights
            scaled = graph.with_weights(weights * 256)
            for devices in (["cuda:0"], ["cuda:0", "cuda:1"]):
                with emulated_gpus(2, checks="strict", seed=seed):
                    with gw.place(graph, devices) as placed:
                        check(placed, distance, np.array([0]), unit=False)
                    with gw.place(scaled, devices) as placed:
                        check(placed, far, np.array([0]), unit=False)


class TestResults:
    """``.predecessor`` of a result, and all that needs it."""

    @pytest.fixture(autouse=True)
    def small_graphs_go_to_gpus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(result_module, "_GPU_ARCS", 0)

    @pytest.fixture
    def without_cpus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise AssertionError("the pass of the CPU was asked for")

        monkeypatch.setattr(cpu_module, "predecessors", refuse)

    GRAPH = gw.generators.rmat(7, 6, seed=1, weights=(0, 9))
    ASKED = (
        lambda graph: gw.bfs(graph, 3),
        lambda graph: gw.bfs(graph, [3, 5], cutoff=2, execution="bulk-synchronous"),
        lambda graph: gw.bfs(graph, 3, execution="asynchronous"),
        lambda graph: gw.sssp(graph, 3),
        lambda graph: gw.sssp(graph, [3, 70, 71], cutoff=12),
    )

    @pytest.mark.parametrize("devices", DEVICES, ids="+".join)
    @pytest.mark.parametrize("number", range(len(ASKED)))
    def test_of_a_placed_graph(
        self, gpus: Machine, without_cpus: None, number: int, devices: list[str]
    ) -> None:
        ask = type(self).ASKED[number]
        with gw.place(self.GRAPH, devices) as placed:
            for _ in range(2):
                result = ask(placed)
                expected = predecessors_of(ask(self.GRAPH))
                np.testing.assert_array_equal(result.predecessor, expected)
                assert result.predecessor is result.predecessor
                assert "predecessors" in result.statistics.seconds
                reached = np.flatnonzero(expected >= 0)
                path = result.path_to(reached[-1])
                assert path[-2:] == [expected[reached[-1]], reached[-1]]
                assert result.to_arrow().num_rows == self.GRAPH.vertex_count

    def test_a_second_pass_allocates_nothing(self, gpus: Machine) -> None:
        with gw.place(self.GRAPH, "cuda:0") as placed:
            _ = gw.sssp(placed, 0).predecessor
            held = [gpus.held_bytes(index) for index in (-1, 0)]
            _ = gw.sssp(placed, 1).predecessor
            assert held == [gpus.held_bytes(index) for index in (-1, 0)]

    def test_after_the_placed_graph(self, gpus: Machine) -> None:
        expected = predecessors_of(gw.sssp(self.GRAPH, 3))
        with gw.place(self.GRAPH, "cuda:0") as placed:
            closed, copied = gw.sssp(placed, 3), gw.sssp(placed, 3)
        np.testing.assert_array_equal(closed.predecessor, expected)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(copied)).predecessor, expected)
        forgotten = gw.sssp(gw.place(self.GRAPH, "cuda:0"), 3)
        np.testing.assert_array_equal(forgotten.predecessor, expected)

    def test_where_memory_is_short(self, gpus: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any) -> None:
            raise GraphTooLargeError("no memory is left")

        monkeypatch.setattr(module, "kept_or_new", refuse)
        expected = predecessors_of(gw.bfs(self.GRAPH, 3))
        with gw.place(self.GRAPH, "cuda:0") as placed:
            np.testing.assert_array_equal(gw.bfs(placed, 3).predecessor, expected)

    def test_in_a_progress_function(self, gpus: Machine) -> None:
        with gw.place(self.GRAPH, "cuda:0") as placed:
            before, asked = gw.bfs(placed, 3), []
            gw.sssp(
                placed, 3, progress=lambda _: asked.append(before.predecessor[0]),
                gpu=gw.GpuOptions(slice_s=0),
            )  # fmt: skip
            assert asked
            np.testing.assert_array_equal(before.predecessor, predecessors_of(before))


def predecessors_of(result: Any) -> Any:
    """By the CPUs' pass."""
    return predecessors(
        result.graph, result._distance, result._sources, unit_lengths=result.unit_lengths
    )


@pytest.mark.gpu
@needs_gpu
@on_endpoints
class TestOnGpus:
    @given(data=st.data())
    def test_any_graph(self, devices: list[str], data: Any) -> None:
        graph = data.draw(zoo.graphs(min_vertices=1))
        vertices = st.integers(0, graph.vertex_count - 1)
        sources = data.draw(st.lists(vertices, min_size=1, max_size=4), "sources")
        ask = data.draw(st.sampled_from([gw.bfs, gw.sssp]), "query")
        results = data.draw(st.sampled_from(["cuda:0", devices[-1]]), "results")
        with gw.place(graph, devices) as placed:
            result = ask(placed, sources, results=results)
            assert result.predecessor.device.id == int(results.removeprefix("cuda:"))
            np.testing.assert_array_equal(result.predecessor.get(), predecessors_of(result))
            check(placed, result._distance, result._sources, unit=result.unit_lengths)

    @pytest.mark.parametrize(
        "spec",
        [
            "rmat:17,edge_factor=16,seed=1,weights=1..64",
            "rmat:16,edge_factor=16,seed=2,weights=0..3",
            "rmat:16,edge_factor=16,seed=3,weights=1..1000,symmetrize=false",
            "road:300x300,keep=0.6,seed=1,weights=1..64",
        ],
    )
    def test_larger_graphs(self, devices: list[str], spec: str) -> None:
        graph = gw.generate(spec)
        source = graph.highest_degree_vertex()
        assert graph.weights is not None
        halves = graph.with_weights(graph.weights / 2)
        for each in (graph, halves):
            with gw.place(each, devices) as placed:
                for ask in (gw.bfs, gw.sssp):
                    for sources in (source, [0, source, 77]):
                        result = ask(placed, sources, results="cuda")
                        found = result.predecessor.get()
                        np.testing.assert_array_equal(found, predecessors_of(result))
                        host = ask(placed, sources)
                        np.testing.assert_array_equal(host.predecessor, found)
