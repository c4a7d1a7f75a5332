"""Distances from many sources, and sums of them, on GPUs: bit for bit those of the CPU.

Without a GPU the kernels run on emulated ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

import godwit as gw
from emulated_grid import COMPILER, Machine, emulated_gpus
from godwit.algorithms.distances import contraction, cpu, cuda
from godwit.errors import GraphTooLargeError, InputError, RunTimeoutError, ValueOverflowError
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from gpu_endpoints import needs_gpu, on_endpoints
from graphs import graphs
from references import CLOSE
from search_ways import searching

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile kernels with")
DEVICES = [["cuda:0"], ["cuda:0", "cuda:1"], ["cuda:1", "cuda:1"]]
SOME_DEVICES = [
    pytest.param(devices, marks=() if devices == DEVICES[1] else pytest.mark.thorough)
    for devices in DEVICES
]
FUNCTIONS = (gw.closeness_centrality, gw.harmonic_centrality, gw.eccentricity)


@pytest.fixture(scope="module")
def gpus() -> Iterator[Machine]:
    with emulated_gpus(2) as machine:
        yield machine


@pytest.fixture(params=["in bits", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way to search by numbers of arcs."""
    monkeypatch.setattr(cpu, "is_deep", lambda graph: request.param == "one by one")
    return str(request.param)


one_by_one_with_all = pytest.mark.parametrize(
    "way", ["in bits", pytest.param("one by one", marks=pytest.mark.thorough)], indirect=True
)
"""Marks tests whose searches one by one take the emulator long: they run with ``--all``."""


def check_distances(
    graph: Graph, devices: Any, sources: Any, *arguments: Any, **settings: Any
) -> None:
    """Compare a matrix with the CPU's."""
    gpu = settings.pop("gpu", None)
    expected = gw.distances(graph, sources, *arguments, devices="cpu", **settings)
    found = gw.distances(graph, sources, *arguments, devices=devices, gpu=gpu, **settings)
    assert found.distance.dtype == expected.distance.dtype
    np.testing.assert_array_equal(found.distance, expected.distance)
    assert found.sources == expected.sources
    assert found.targets == expected.targets
    assert found.statistics.devices[0].startswith("cuda")


def check_sums(graph: Graph, devices: Any, vertices: Any = None, **settings: Any) -> None:
    """Compare centralities with the CPU's."""
    for weighted in {False, graph.is_weighted}:
        for function in FUNCTIONS:
            expected = function(graph, vertices, weighted=weighted, devices="cpu")
            found = function(graph, vertices, weighted=weighted, devices=devices, **settings)
            assert found.vertices == expected.vertices
            if weighted:
                np.testing.assert_allclose(found._scores, expected._scores, **CLOSE)
            else:
                np.testing.assert_array_equal(found._scores, expected._scores)


@needs_compiler
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shallow", [False, True])
@given(data=st.data())
@examples(max_examples=examples().max_examples // 2)
def test_any_graph(gpus: Machine, weighted: bool, shallow: bool, data: st.DataObject) -> None:
    graph = data.draw(graphs(min_vertices=1, weighted=weighted))
    some = st.lists(st.integers(0, graph.vertex_count - 1), min_size=1, max_size=5)
    devices = data.draw(st.sampled_from(DEVICES), "devices")
    gpus.seed = data.draw(st.integers(0, 9), "seed")
    with searching("in bits" if shallow else "one by one"):
        check_distances(
            graph, devices, data.draw(some), data.draw(st.none() | some),
            cutoff=data.draw(st.none() | st.integers(0, 5)),
        )  # fmt: skip
        check_sums(graph, devices, data.draw(st.none() | some))


@contextmanager
def contracting(most_neighbours: int = 32) -> Iterator[None]:
    """Within the block, GPUs contract all graphs that can be, whatever is left; the CPU does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "is_deep", lambda graph: True)
        patch.setattr(cuda, "_MANY_SOURCES", 0)
        patch.setattr(cpu, "contraction_of", lambda *arguments: None)
        patch.setattr(contraction, "_LEAST_GAIN", 0)
        patch.setattr(contraction, "_MOST_NEIGHBOURS", most_neighbours)
        yield


@needs_compiler
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("most_neighbours", [0, 2, 32])
@given(data=st.data())
@examples(max_examples=examples().max_examples // 4)
def test_any_contracted_graph(
    gpus: Machine, weighted: bool, most_neighbours: int, data: st.DataObject
) -> None:
    """Whether all vertices are left, some, or none; also directed, in parts, with weights 0."""
    graph = data.draw(graphs(min_vertices=1, weighted=weighted))
    some = st.lists(st.integers(0, graph.vertex_count - 1), min_size=1, max_size=5)
    devices = data.draw(st.sampled_from(DEVICES), "devices")
    gpus.seed = data.draw(st.integers(0, 9), "seed")
    with contracting(most_neighbours):
        check_distances(graph, devices, data.draw(some), data.draw(st.none() | some))
        check_sums(graph, devices, data.draw(st.none() | some))


@needs_compiler
@pytest.mark.parametrize("most_neighbours", [3, 32])
def test_contracted_graphs(gpus: Machine, most_neighbours: int) -> None:
    road = gw.generators.road(12, 17, weights=(0, 9), seed=4)
    directed = Graph(*road.rows[:2]).with_weights(np.arange(road.arc_count) % 7)
    for graph in (road, directed, gw.generators.watts_strogatz(80, seed=2), gw.generators.path(70)):
        with contracting(most_neighbours):
            found = gw.distances(graph, range(70), devices="cuda")
            assert found.statistics.solver == "contracted"
            reached = found.distance != found.unreached
            assert found.statistics.processed_items.sum() == reached.sum()
            check_distances(graph, ["cuda:0", "cuda:1"], range(0, 70, 2))
            check_distances(graph, "cuda", range(50), [69, 3, 3, 68])
            check_distances(graph, "cuda", [5, 5, 6], range(9), cutoff=11)  # another way


@needs_compiler
def test_distances_beyond_32_bits(gpus: Machine) -> None:
    """They are found in another way, and so are all later ones of the graph."""
    graph = Graph.from_edges([0, 1, 2, 4], [1, 2, 3, 5], [2**31, 2**31 - 3, 1, 2**40])
    with contracting(), gw.place(graph, "cuda") as placed:
        for source, targets, solver in (
            (1, None, "contracted"),
            (0, [2], "contracted"),  # the largest that has room
            (0, None, "side by side"),
            (1, None, "side by side"),
        ):
            found = gw.distances(placed, source, targets)
            expected = gw.distances(graph, source, targets, devices="cpu").distance
            np.testing.assert_array_equal(found.distance, expected)
            assert found.statistics.solver == solver
        for function in FUNCTIONS:
            scores = function(placed)._scores
            np.testing.assert_allclose(scores, function(graph, devices="cpu")._scores, **CLOSE)


def zoo() -> dict[str, Graph]:
    """Graphs that kernels have a case for: long rows in and out, sliced rows, deep and narrow ones."""
    star = gw.generators.star(4300)
    both = np.concatenate([np.zeros(700, int), np.arange(1, 701)])
    return {
        "rmat": gw.generators.rmat(9, 8, weights=(1, 64), seed=2),
        "road": gw.generators.road(12, 17, weights=(1, 9), seed=4),
        "star": star,
        "long rows": Graph.from_edges(both, np.roll(both, 700), np.arange(1400) % 7),
        "directed": Graph.from_edges(*np.random.default_rng(3).integers(0, 300, (2, 900))),
        "floats": gw.generators.watts_strogatz(200, seed=1).with_random_weights(0.5, 9.0, seed=1),
        "two parts": Graph.from_edges([0, 1, 3], [1, 0, 4], [2, 0, 5], vertex_count=6),
        "path": gw.generators.path(300),
    }


NAMES = [
    pytest.param(name, marks=() if name in ("directed", "two parts") else pytest.mark.thorough)
    for name in zoo()
]


@needs_compiler
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_lines_of_any_width(
    gpus: Machine, name: str, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "is_deep", lambda graph: False)
    monkeypatch.setattr(cuda, "LINES", (lanes,))
    graph = zoo()[name].without_weights()
    n = graph.vertex_count
    sources = np.random.default_rng(lanes).permutation(n)[:90]
    for devices in DEVICES[:2]:
        check_distances(graph, devices, sources)
        check_distances(graph, devices, sources, np.arange(0, n, 3), cutoff=2)
        check_distances(graph, devices, sources[:7], [n - 1, 0, n - 1])


@needs_compiler
@pytest.mark.parametrize("planes", [2, 8])
def test_levels_beyond_the_planes(
    gpus: Machine, planes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches in bits write rows again and again where there are more levels than planes number."""
    monkeypatch.setattr(cpu, "is_deep", lambda graph: False)
    monkeypatch.setattr(cuda, "PLANES", planes)
    graph = gw.generators.road(9, 14, seed=5) if planes == 2 else gw.generators.path(300)
    for sources, *rest in ([0, 77, 125],), ([3, 120], [125, 0, 119, 3]):
        check_distances(graph, "cuda", sources, *rest)
        check_distances(graph, "cuda", sources, *rest, cutoff=6)
    check_sums(graph, "cuda", [0, 120])


@needs_compiler
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("devices", SOME_DEVICES, ids="-".join)
def test_sums(gpus: Machine, name: str, devices: list[str], way: str) -> None:
    graph = zoo()[name]
    few = np.arange(0, graph.vertex_count, 40)
    check_sums(graph, devices, few)
    if graph.vertex_count < 1000:
        check_sums(graph, devices)
    sources = few[::2]
    for weighted in {False, graph.is_weighted}:
        expected = gw.harmonic_centrality(graph, sources=sources, weighted=weighted, devices="cpu")
        found = gw.harmonic_centrality(graph, sources=sources, weighted=weighted, devices=devices)
        np.testing.assert_allclose(found.centrality, expected.centrality, **CLOSE)


@needs_compiler
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "float32", "float64"])
@pytest.mark.parametrize("spread", [0.3, 4])
def test_lengths(gpus: Machine, dtype: str, spread: float) -> None:
    """Bit by bit, also where the first step is far from right."""
    graph = gw.generators.road(14, 15, seed=1)
    weights = np.random.default_rng(2).lognormal(3, spread, graph.arc_count).astype(dtype)
    graph = Graph(*graph.rows[:2]).with_weights(weights)
    check_distances(graph, ["cuda:0", "cuda:1"], range(0, graph.vertex_count, 4))
    check_distances(graph, "cuda", range(9), range(30), cutoff=40)


@needs_compiler
def test_sums_of_integers_that_overflow(gpus: Machine) -> None:
    graph = Graph.from_edges([0, 1, 2], [1, 2, 3], [2**62, 2**62 - 3, 2])
    check_distances(graph, "cuda", [1, 2])
    for ask in (gw.distances, gw.eccentricity):
        with pytest.raises(ValueOverflowError):
            ask(graph, [0], devices="cuda")


@needs_compiler
@pytest.mark.parametrize(
    "gpu",
    [GpuOptions(slice_s=0), ExperimentOptions(threads=64, blocks=1), GpuOptions(transport="host")],
    ids=str,
)
@one_by_one_with_all
def test_whatever_the_options(gpus: Machine, gpu: GpuOptions, way: str) -> None:
    graph = zoo()["rmat"]
    check_distances(graph, ["cuda:0", "cuda:1"], range(0, 500, 3), weighted=False, gpu=gpu)
    check_distances(graph, ["cuda:0", "cuda:1"], range(0, 500, 30), gpu=gpu)
    check_sums(graph.without_weights(), ["cuda:0", "cuda:1"], gpu=gpu)


@needs_compiler
def test_queries_of_a_placed_graph(gpus: Machine) -> None:
    """One after the other, of any kind; the second of a kind compiles nothing."""
    graph = zoo()["directed"]
    with gw.place(graph, ["cuda:0", "cuda:1"]) as placed:
        for count in (200, 3, 70):
            expected = gw.distances(graph, range(count), devices="cpu").distance
            np.testing.assert_array_equal(gw.distances(placed, range(count)).distance, expected)
            for function in FUNCTIONS:
                expected = function(graph, range(count), devices="cpu")
                assert function(placed, range(count)).to_dict() == expected.to_dict()
        again = gw.distances(placed, range(70))
        assert "compile" not in again.statistics.seconds
        assert again.statistics.processed_items.sum() == (again.distance != again.unreached).sum()
    with (
        gw.place(graph, "cuda", duplication="1-hop") as placed,
        pytest.raises(InputError, match="1-hop"),
    ):
        gw.distances(placed, 0)


@needs_compiler
@one_by_one_with_all
def test_rows_in_pieces(gpus: Machine, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory is short, some rows at a time, on one GPU and on two."""
    asked: list[int] = []
    ask = cuda._SearchPlan.ask

    def counted(plan: cuda._SearchPlan, pieces: Any) -> None:
        asked.append(len(pieces))
        ask(plan, pieces)

    monkeypatch.setattr(cuda._SearchPlan, "ask", counted)
    monkeypatch.setattr(cuda, "_LEAST_SHARE", 20)
    monkeypatch.setattr(cuda, "_MEMORY_SHARE", 1 << 14)
    graph = zoo()["rmat"]
    for weighted in (False, True):
        asked.clear()
        check_distances(graph, ["cuda:0", "cuda:1"], range(0, 400, 5), weighted=weighted)
        assert len(asked) > 1
        assert set(asked) == {2}
    asked.clear()
    check_sums(graph, "cuda", range(0, 500, 25))
    assert len(asked) > 2 * len(FUNCTIONS)


def test_too_little_memory() -> None:
    if COMPILER is None:
        pytest.skip("no g++ to compile kernels with")
    with emulated_gpus(1, memory_bytes=1 << 20), pytest.raises(GraphTooLargeError):
        gw.distances(gw.generators.star(30_000), range(100), devices="cuda")


@needs_compiler
def test_timeout_and_progress(gpus: Machine) -> None:
    graph = zoo()["rmat"]
    begun: list[Any] = []
    gw.closeness_centrality(
        graph, weighted=False, devices="cuda", progress=begun.append, gpu=GpuOptions(slice_s=0)
    )
    assert begun == sorted(begun)
    assert begun[-1] == graph.vertex_count == begun[-1].total
    with pytest.raises(RunTimeoutError):
        gw.distances(graph, range(400), devices="cuda", timeout_s=1e-3)
    check_distances(graph, "cuda", range(40))  # after a run that was given up


@needs_compiler
@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1])
def test_no_accesses_race(seed: int) -> None:
    with emulated_gpus(1, checks=True, seed=seed):
        for name in ("directed", "road", "long rows"):
            graph = zoo()[name]
            for deep in (False, True):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(cpu, "is_deep", lambda graph, deep=deep: deep)
                    check_distances(graph, "cuda", range(0, 160, 3), weighted=False)
                    check_sums(graph, "cuda", range(0, 160, 30))
                    check_sums(graph.without_weights(), "cuda")
            with contracting(3):
                check_distances(graph, "cuda", range(0, 160, 3))
                check_sums(graph, "cuda", range(0, 160, 30))


@pytest.mark.gpu
@needs_gpu
@on_endpoints
@pytest.mark.parametrize("name", zoo())
def test_on_gpus(name: str, devices: list[str], way: str) -> None:
    graph = zoo()[name]
    check_distances(graph, devices, range(0, graph.vertex_count, 2), weighted=False)
    check_distances(graph, devices, range(0, graph.vertex_count, 5), [0, 3, 1])
    check_sums(graph, devices)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(
    "spec", ["rmat:14", "road:300x300,weights=1..1000", "watts-strogatz:20000"]
)
def test_large_graphs_on_a_gpu(spec: str) -> None:
    graph = gw.generate(spec)
    sources = np.random.default_rng(1).integers(0, graph.vertex_count, 1100)
    check_distances(graph, "cuda:0", sources)
    check_distances(graph, "cuda:0", sources[:100])  # in another way, but for a contracted road
    check_distances(graph, "cuda:0", sources, weighted=False)
    check_sums(graph, "cuda:0", sources[:50])
    if not spec.startswith("road"):
        check_sums(graph, "cuda:0")


@pytest.mark.gpu
@needs_gpu
@on_endpoints
@pytest.mark.parametrize("name", zoo())
def test_contracted_on_gpus(name: str, devices: list[str]) -> None:
    graph = zoo()[name]
    for most_neighbours in (2, 32):
        with contracting(most_neighbours):
            check_distances(graph, devices, range(0, graph.vertex_count, 2))
            check_distances(graph, devices, range(0, graph.vertex_count, 5), [0, 3, 1])
            check_sums(graph, devices)


@pytest.mark.gpu
@needs_gpu
@on_endpoints
def test_results_on_a_gpu(devices: list[str], way: str) -> None:
    graph = zoo()["rmat"]
    for weighted in (False, True):
        expected = gw.distances(graph, range(80), weighted=weighted, devices="cpu").distance
        found = gw.distances(
            graph, range(80), weighted=weighted, devices=devices, results="cuda:0"
        ).distance
        assert found.device.id == 0
        np.testing.assert_array_equal(found.get(), expected)
