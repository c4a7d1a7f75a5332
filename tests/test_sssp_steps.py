"""Shortest paths in supersteps on GPUs: pushed along short arcs, pulled, and corrected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import godwit as gw
from emulated_grid import Machine, emulated_gpus
from godwit import Graph
from godwit.algorithms import sssp as algorithm
from godwit.algorithms.paths.result import PathResult
from godwit.algorithms.sssp import cuda, stages
from godwit.algorithms.sssp.cuda_rows import SortedRowArrays
from godwit.supersteps.placement import StepPlacement
from godwit.worker import query
from gpu_endpoints import needs_gpu, on_endpoints
from graphs import LENGTHS, graphs, with_weights_of
from references import up_to_target

SOLVER = "direction-optimizing"
_PROMISES, _GAINS = algorithm._promises_few_arcs, stages.gains


def _choose_rows(patch: pytest.MonkeyPatch) -> None:
    """Have all graphs with weights searched by sorted rows, again and again."""
    patch.setattr(
        algorithm, "_promises_few_arcs", lambda graph, _: graph.is_weighted and graph.arc_count > 0
    )
    patch.setattr(stages, "gains", lambda *_: True)


@pytest.fixture(scope="module")
def gpus() -> Iterator[Machine]:
    with emulated_gpus(1, multiprocessors=2) as machine, pytest.MonkeyPatch.context() as patch:
        _choose_rows(patch)
        yield machine


def _found_and_expected(placed: gw.PlacedGraph, data: Any) -> tuple[PathResult, PathResult]:
    """Search with arguments that are drawn, and on the CPU, there without a target."""
    graph = placed.graph
    vertices = st.integers(0, graph.vertex_count - 1)
    sources = data.draw(st.lists(vertices, min_size=1, max_size=3, unique=True))
    cutoff = data.draw(st.sampled_from([None, 3.0, 1e12]))
    target = data.draw(st.none() | vertices)
    found = gw.sssp(placed, sources, cutoff=cutoff, target=target)
    whole = gw.sssp(graph, sources, cutoff=cutoff, devices="cpu")
    expected = up_to_target(whole, target)
    return found, PathResult(
        graph, np.array(sources), expected, whole.statistics, unit_lengths=whole.unit_lengths
    )


@pytest.mark.parametrize("kind", LENGTHS)
@settings(max_examples=settings().max_examples // 2)
@given(graph=graphs(min_vertices=1), seed=st.integers(0, 99), data=st.data())
def test_distances_are_those_of_the_cpu(
    gpus: Machine, kind: str, graph: Graph, seed: int, data: Any
) -> None:
    graph = with_weights_of(graph, kind, seed)
    with gw.place(graph, "cuda:0") as placed:
        for _ in range(3):
            found, expected = _found_and_expected(placed, data)
            np.testing.assert_array_equal(found.distance, expected.distance)
            assert found.distance.dtype == expected.distance.dtype
            np.testing.assert_array_equal(found.predecessor, expected.predecessor)
            # From 1e-300 on, so many doublings reach no vertex that the search is given up.
            assert found.statistics.solver == SOLVER or graph.arc_count == 0 or kind == "rounding"


ENDPOINTS: dict[str, dict[str, Any]] = {
    "two": {"devices": ["cuda:0", "cuda:1"]},
    "three": {"devices": ["cuda:0", "cuda:1", "cuda:2"]},
    "ranges": {"devices": ["cuda:1", "cuda:0"], "partition": "contiguous"},
    "two on one": {"devices": ["cuda:0", "cuda:1", "cuda:0"], "partition": "contiguous"},
}


@pytest.fixture
def all_search(monkeypatch: pytest.MonkeyPatch) -> None:
    _choose_rows(monkeypatch)
    monkeypatch.setattr(query, "_ARCS_OF_A_GPU", 0)


@pytest.fixture(scope="module")
def several_gpus() -> Iterator[Machine]:
    with emulated_gpus(3, multiprocessors=2) as machine:
        yield machine


@pytest.mark.parametrize("kind", LENGTHS)
@settings(
    max_examples=max(1, settings().max_examples // 4),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(graph=graphs(min_vertices=1), seed=st.integers(0, 99), data=st.data())
def test_distances_on_several_gpus_are_those_of_the_cpu(
    several_gpus: Machine, all_search: None, kind: str, graph: Graph, seed: int, data: Any
) -> None:
    graph = with_weights_of(graph, kind, seed)
    given = ENDPOINTS[data.draw(st.sampled_from(sorted(ENDPOINTS)))]
    with gw.place(graph, **given) as placed:
        for _ in range(2):
            found, expected = _found_and_expected(placed, data)
            np.testing.assert_array_equal(found.distance, expected.distance)
            np.testing.assert_array_equal(found.predecessor, expected.predecessor)
            assert found.statistics.devices == tuple(given["devices"])
            assert found.statistics.solver == SOLVER or graph.arc_count == 0 or kind == "rounding"


@pytest.mark.parametrize(
    ("endpoints", "seed"),
    [("one", 1), ("one", 2), ("two", 1), ("two", 2), ("three", 3), ("two on one", 4)],
)
@pytest.mark.usefixtures("all_search")
def test_any_schedule(endpoints: str, seed: int) -> None:
    graph = gw.generators.rmat(7, 8, seed=2).with_random_weights(1, 20, seed=3)
    expected = gw.sssp(graph, 1, devices="cpu").distance
    given = ENDPOINTS.get(endpoints, {"devices": ["cuda:0"]})
    with (
        emulated_gpus(3, seed=seed, checks=True) as machine,
        gw.place(graph, **given) as placed,
    ):
        machine.checks = False  # rows are sorted in memory of the host
        gw.sssp(placed, 0)
        machine.checks = True
        found, near = gw.sssp(placed, 1), gw.sssp(placed, 1, target=6)
    assert found.statistics.solver == near.statistics.solver == SOLVER
    assert found.statistics.devices == tuple(given["devices"])
    np.testing.assert_array_equal(found.distance, expected)
    np.testing.assert_array_equal(near.distance, up_to_target(found, 6))


@pytest.mark.usefixtures("all_search")
def test_several_gpus_look_at_the_arcs_that_one_looks_at(several_gpus: Machine) -> None:
    graph = gw.generators.rmat(9, 16, seed=1).with_random_weights(1, 64, seed=1)
    arcs = []
    for devices in (["cuda:0"], ["cuda:0", "cuda:1"], ["cuda:0", "cuda:1", "cuda:2"]):
        with gw.place(graph, devices) as placed:
            found = gw.sssp(placed, graph.highest_degree_vertex())
        arcs.append(int(found.statistics.arcs_relaxed.sum()))
        assert len(found.statistics.arcs_relaxed) == len(devices)
        assert found.statistics.arcs_relaxed.min() > 0
    assert max(arcs) < 1.2 * min(arcs) < graph.arc_count / 2


@pytest.mark.usefixtures("all_search")
def test_distances_beyond_32_bits_on_several_gpus(several_gpus: Machine) -> None:
    ends = np.arange(40)
    graph = Graph.from_edges(ends, ends + 1, np.full(40, 2**30 - 3)).with_weights(
        np.where(np.arange(40) % 2, 2**30 - 3, 2**30 - 4).astype(np.int32)
    )
    expected = gw.sssp(graph, 0, devices="cpu").distance
    assert expected.max() > 2**32
    with gw.place(graph, ["cuda:0", "cuda:1"]) as placed:
        for _ in range(2):
            np.testing.assert_array_equal(gw.sssp(placed, 0).distance, expected)


@pytest.mark.usefixtures("all_search")
def test_a_graph_that_fits_no_gpu_is_searched_by_all(
    several_gpus: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "_ARCS_OF_A_GPU", 1 << 40)
    graph = gw.generators.rmat(7, 8, seed=2).with_random_weights(1, 20, seed=3)
    expected = gw.sssp(graph, 1, devices="cpu").distance
    devices = ["cuda:0", "cuda:1"]
    for has_room in (True, False):
        monkeypatch.setattr(StepPlacement, "has_room_for_copy", lambda _, has=has_room: has)
        with gw.place(graph, devices) as placed:
            found = gw.sssp(placed, 1)
            assert found.statistics.devices == tuple(devices[: 1 if has_room else 2])
            assert found.statistics.solver == SOLVER
            np.testing.assert_array_equal(found.distance, expected)


def test_fewer_arcs_are_looked_at(gpus: Machine) -> None:
    graph = gw.generators.rmat(9, 16, seed=1).with_random_weights(1, 64, seed=1)
    with gw.place(graph, "cuda:0") as placed:
        found = gw.sssp(placed, graph.highest_degree_vertex())
    assert found.statistics.arcs_relaxed.sum() < graph.arc_count / 2


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.usefixtures("all_search")
def test_a_near_target_ends_the_search(several_gpus: Machine, count: int) -> None:
    graph = gw.generators.rmat(9, 16, seed=1).with_random_weights(1, 64, seed=1)
    source = graph.highest_degree_vertex()
    with gw.place(graph, [f"cuda:{device}" for device in range(count)]) as placed:
        whole = gw.sssp(placed, source)
        near = int(np.argsort(whole.distance, kind="stable")[10])
        found = gw.sssp(placed, source, target=near)
    assert found.statistics.arcs_relaxed.sum() < whole.statistics.arcs_relaxed.sum() / 8
    np.testing.assert_array_equal(found.distance, up_to_target(whole, near))


def test_rows_with_very_many_arcs(gpus: Machine) -> None:
    """Rows that all blocks push along, and pull along: of a hub that is far from the source."""
    leaves = np.arange(2, 6000)
    ends = np.concatenate([[0], np.ones(len(leaves), np.int64)]), np.concatenate([[2], leaves])
    graph = Graph.from_edges(*ends, directed=False)
    graph = graph.with_random_weights(1, 1000, seed=5)
    with gw.place(graph, "cuda:0") as placed:
        for source in (0, 1, 17):
            expected = gw.sssp(graph, source, devices="cpu").distance
            np.testing.assert_array_equal(gw.sssp(placed, source).distance, expected)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.usefixtures("all_search")
def test_long_paths_are_left_to_the_asynchronous_engine(
    several_gpus: Machine, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    graph = gw.generators.path(2000).with_random_weights(1, 9, seed=1)
    monkeypatch.setattr(cuda, "DEEP_STEPS", 16)
    with gw.place(graph, [f"cuda:{device}" for device in range(count)]) as placed:
        for _ in range(2):
            found = gw.sssp(placed, 0)
            assert found.statistics.solver == "asynchronous"
            expected = gw.sssp(graph, 0, devices="cpu").distance
            np.testing.assert_array_equal(found.distance, expected)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.usefixtures("all_search")
def test_what_has_not_gained_is_left_to_the_asynchronous_engine(
    several_gpus: Machine, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """And nothing of it stays in memory."""
    monkeypatch.setattr(stages, "gains", _GAINS)
    monkeypatch.setattr(cuda, "DEEP_STEPS", 1 << 20)
    path = np.arange(40, 400)  # hubs have few of all arcs
    ends = (
        np.concatenate([np.zeros(40, np.int64), path[:-1]]),
        np.concatenate([range(1, 41), path[1:]]),
    )
    deep = Graph.from_edges(*ends, directed=False).with_random_weights(1, 9, seed=1)
    flat = gw.generators.rmat(9, 16, seed=1).with_random_weights(1, 9, seed=1)
    for graph, later in ((deep, "asynchronous"), (flat, SOLVER)):
        expected = gw.sssp(graph, 1, devices="cpu").distance
        with gw.place(graph, [f"cuda:{device}" for device in range(count)]) as placed:
            for solver in (SOLVER, later, later):
                found = gw.sssp(placed, 1)
                assert found.statistics.solver == solver
                np.testing.assert_array_equal(found.distance, expected)
            (steps,) = (one for one in placed._resources.values() if isinstance(one, StepPlacement))
            kept = steps.kept(SortedRowArrays).targets["out"]
            assert bool(kept) == (later == SOLVER)


def _choose_as_usual(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(algorithm, "_promises_few_arcs", _PROMISES)
    patch.setattr(stages, "gains", _GAINS)


def test_it_is_chosen_for_graphs_with_hubs_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    _choose_as_usual(monkeypatch)
    skewed = gw.generators.rmat(11, 16, seed=1).with_random_weights(1, 9, seed=1)
    flat = gw.generators.grid(20, 20).with_random_weights(1, 9, seed=1)
    equal = skewed.with_weights(np.full(skewed.arc_count, 3))

    def solver(graph: Graph, **options: Any) -> str:
        with gw.place(graph, "cuda:0") as placed:
            return gw.sssp(placed, 0, **options).statistics.solver

    with emulated_gpus(1):
        assert solver(skewed) == SOLVER
        assert solver(gw.generators.star(500).with_random_weights(1, 9, seed=1)) == SOLVER
        assert solver(skewed, execution="asynchronous") == "asynchronous"
        assert solver(skewed, target=1, cutoff=7) == SOLVER
        assert solver(flat) == solver(equal) == "asynchronous"
        assert gw.sssp(skewed, 0, devices="cuda:0").statistics.solver == "asynchronous"


def test_of_several_gpus_one_searches_a_small_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    _choose_as_usual(monkeypatch)
    graph = gw.generators.rmat(11, 16, seed=1).with_random_weights(1, 9, seed=1)
    expected = gw.sssp(graph, 3, devices="cpu").distance
    devices = ["cuda:0", "cuda:1"]
    with emulated_gpus(2), gw.place(graph, devices) as placed:
        for _ in range(2):
            found = gw.sssp(placed, 3)
            assert (found.statistics.solver, found.statistics.devices) == (SOLVER, ("cuda:0",))
            np.testing.assert_array_equal(found.distance, expected)
        both = gw.sssp(placed, 3, execution="asynchronous")
        assert both.statistics.devices == tuple(devices)
        np.testing.assert_array_equal(both.distance, expected)
    monkeypatch.setattr(query, "_ARCS_OF_A_GPU", graph.arc_count // 2)
    with emulated_gpus(2), gw.place(graph, devices) as placed:
        found = gw.sssp(placed, 3)
        assert (found.statistics.solver, found.statistics.devices) == (SOLVER, tuple(devices))
        np.testing.assert_array_equal(found.distance, expected)


def test_gpus_that_are_no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    _choose_as_usual(monkeypatch)
    monkeypatch.setattr(query, "_ARCS_OF_A_GPU", 0)
    graph = gw.generators.rmat(11, 16, seed=1).with_random_weights(1, 9, seed=1)
    expected = gw.sssp(graph, 3, devices="cpu").distance
    devices = ["cuda:0", "cuda:1"]
    with emulated_gpus(2, peers=np.eye(2, dtype=bool)):
        for partition, solver, searching in (
            (None, SOLVER, ("cuda:0",)), ("contiguous", "asynchronous", tuple(devices)),
        ):  # fmt: skip
            with gw.place(graph, devices, partition) as placed:
                found = gw.sssp(placed, 3)
            assert (found.statistics.solver, found.statistics.devices) == (solver, searching)
            np.testing.assert_array_equal(found.distance, expected)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kind", ["small", "zeros", "wide", "overflowing", "single", "double"])
@pytest.mark.parametrize("directed", [False, True])
@on_endpoints
@pytest.mark.usefixtures("all_search")
def test_skewed_graphs_on_real_gpus(kind: str, directed: bool, devices: list[str]) -> None:
    graph = gw.generate(f"rmat:14,edge_factor=16,seed=2,symmetrize={str(not directed).lower()}")
    rng = np.random.default_rng(4)
    if directed:
        graph = graph.with_weights(LENGTHS[kind](rng, graph.arc_count))
    else:
        tails = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets))
        low, high = np.minimum(tails, graph.targets), np.maximum(tails, graph.targets)
        _, pairs = np.unique(low * np.int64(graph.vertex_count) + high, return_inverse=True)
        graph = graph.with_weights(LENGTHS[kind](rng, int(pairs.max()) + 1)[pairs])
    with gw.place(graph, devices, "contiguous" if len(devices) > 1 else None) as placed:
        for source in (graph.highest_degree_vertex(), 5, [1, 7, 300]):
            expected = gw.sssp(graph, source, devices="cpu")
            for target in (None, 2, 77):
                found = gw.sssp(placed, source, target=target)
                assert found.statistics.solver == SOLVER
                assert found.statistics.devices == tuple(devices)
                np.testing.assert_array_equal(found.distance, up_to_target(expected, target))
