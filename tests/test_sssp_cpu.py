"""Shortest paths on all cores by rows sorted by weight: pushed along short arcs, pulled, pushed again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit as gw
from godwit import Graph, config
from godwit.algorithms import sssp as algorithm
from godwit.algorithms.sssp import cpu, cpu_rows, stages
from graphs import LENGTHS, WEIGHT_DTYPES, graphs, with_weights_of
from references import as_list, dijkstra, up_to_target

SOLVER = "direction-optimizing"


@contextmanager
def sorted_rows_for_all(**constants: Any) -> Iterator[None]:
    """Search all graphs with weights by sorted rows, however small, on three threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            algorithm,
            "_promises_few_arcs",
            lambda graph, _: graph.is_weighted and graph.arc_count > 0,
        )
        patch.setattr(algorithm, "_ALONE_WORK", 0)
        patch.setattr(stages, "gains", lambda *_: True)
        patch.setattr(cpu, "ARCS_PER_THREAD", 1)
        patch.setattr(config, "thread_count", lambda: 3)
        for name, value in constants.items():
            patch.setattr(cpu, name, value)
        yield


@pytest.mark.parametrize(
    "kind",
    [
        # Of float64, "rounding" has more: ties of sums, subnormal and infinite weights.
        pytest.param(kind, marks=pytest.mark.thorough if kind == "double" else ())
        for kind in LENGTHS
    ],
)
@given(graph=graphs(min_vertices=1), seed=st.integers(0, 99), data=st.data())
@settings(max_examples=settings().max_examples // 2)
def test_distances_are_those_of_the_worker(kind: str, graph: Graph, seed: int, data: Any) -> None:
    graph = with_weights_of(graph, kind, seed)
    vertices = st.integers(0, graph.vertex_count - 1)
    alone, turn = (
        data.draw(st.sampled_from([0, 1, 256])),
        data.draw(st.sampled_from([0, 1, 4, 1000])),
    )
    with sorted_rows_for_all(ALONE_ENTRIES=alone, TURN=turn), gw.place(graph, "cpu") as placed:
        for _ in range(3):
            sources = data.draw(st.lists(vertices, min_size=1, max_size=3, unique=True))
            cutoff = data.draw(st.sampled_from([None, 0.0, 3.0, 1e12]))
            target = data.draw(st.none() | vertices)
            found = gw.sssp(placed, sources, cutoff=cutoff, target=target)
            whole = gw.sssp(graph, sources, cutoff=cutoff, execution="asynchronous")
            np.testing.assert_array_equal(found.distance, up_to_target(whole, target))
            assert found.distance.dtype == whole.distance.dtype
            expected = gw.sssp(
                graph, sources, cutoff=cutoff, target=target, execution="asynchronous"
            )
            np.testing.assert_array_equal(found.distance, expected.distance)
            np.testing.assert_array_equal(found.predecessor, expected.predecessor)
            assert found.statistics.solver == SOLVER or graph.arc_count == 0
            if cutoff is target is None:
                assert as_list(found.distance, found.unreached) == dijkstra(graph, sources)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", ["small", "double", "overflowing"])
def test_larger_graphs(directed: bool, kind: str) -> None:
    graph = gw.generators.rmat(11, 16, seed=1, symmetrize=not directed)
    graph = with_weights_of(graph, kind, 2)
    with sorted_rows_for_all(ALONE_ENTRIES=16), gw.place(graph, "cpu") as placed:
        for source in (graph.highest_degree_vertex(), [1, 7, 300]):
            for cutoff in (None, 5):
                expected = gw.sssp(graph, source, cutoff=cutoff, execution="asynchronous")
                for target in (None, 3, int(np.argmax(expected.distance))):
                    found = gw.sssp(placed, source, cutoff=cutoff, target=target)
                    assert found.statistics.solver == SOLVER
                    np.testing.assert_array_equal(found.distance, up_to_target(expected, target))


def test_a_distance_beyond_32_bits_that_only_a_pull_finds() -> None:
    graph = Graph.from_edges(
        [0, 1, 2],
        [1, 3, 3],
        np.array([1_641_120_104, 794_826_936, 711_599_498], np.int32),
        directed=False,
    )
    with sorted_rows_for_all(), gw.place(graph, "cpu") as placed:
        found = gw.sssp(placed, 3)
        assert found.statistics.solver == SOLVER
        assert found.distance.tolist() == [2_435_947_040, 794_826_936, 711_599_498, 0]


def test_few_arcs_are_looked_at() -> None:
    graph = gw.generators.rmat(11, 16, seed=1).with_random_weights(1, 64, seed=1)
    with sorted_rows_for_all(), gw.place(graph, "cpu") as placed:
        found = gw.sssp(placed, graph.highest_degree_vertex())
    assert 0 < found.statistics.arcs_relaxed.sum() < graph.arc_count / 2


def test_a_near_target_ends_the_search() -> None:
    graph = gw.generators.rmat(11, 16, seed=1).with_random_weights(1, 64, seed=1)
    source = graph.highest_degree_vertex()
    with sorted_rows_for_all(), gw.place(graph, "cpu") as placed:
        whole = gw.sssp(placed, source)
        near = int(np.argsort(whole.distance, kind="stable")[20])
        found = gw.sssp(placed, source, target=near)
    assert found.statistics.arcs_relaxed.sum() < whole.statistics.arcs_relaxed.sum() / 8


def test_a_long_path_behind_a_hub() -> None:
    """Stages become wide where few vertices at a time are found."""
    leaves, path = np.arange(1, 3000), np.arange(3000, 9000)
    sources = np.concatenate([np.zeros(len(leaves), np.int64), [1], path[:-1]])
    targets = np.concatenate([leaves, [path[0]], path[1:]])
    graph = Graph.from_edges(sources, targets, directed=False)
    graph = graph.with_random_weights(1, 1000, seed=1)
    with sorted_rows_for_all(), gw.place(graph, "cpu") as placed:
        found = gw.sssp(placed, 0)
        expected = gw.sssp(graph, 0, execution="asynchronous").distance
        np.testing.assert_array_equal(found.distance, expected)
        assert found.statistics.rounds.sum() < 200


def test_searches_after_stamps_are_cleared() -> None:
    graph = gw.generators.rmat(9, 16, seed=1).with_random_weights(1, 64, seed=1)
    with sorted_rows_for_all(_LAST_STAMP=10), gw.place(graph, "cpu") as placed:
        for source in range(20):
            found = gw.sssp(placed, source)
            expected = gw.sssp(graph, source, execution="asynchronous")
            np.testing.assert_array_equal(found.distance, expected.distance)


@pytest.mark.parametrize("turn", [0, 4])
@pytest.mark.parametrize("directed", [False, True])
def test_short_arcs_lead_beyond_32_bits(directed: bool, turn: int) -> None:
    """Where the last stage ends at the largest int32, lower bounds of lengths are within it."""
    weights = np.random.default_rng(1).integers(900_000, 1_000_000, 4000)
    path = np.arange(len(weights) + 1)
    graph = Graph.from_edges(path[:-1], path[1:], weights, directed=directed)
    assert weights.sum() > 2**31
    with sorted_rows_for_all(TURN=turn), gw.place(graph, "cpu") as placed:
        found = gw.sssp(placed, 0)
        assert found.statistics.solver == SOLVER
        np.testing.assert_array_equal(found.distance, np.append(0, weights.cumsum()))


def test_it_is_chosen_for_graphs_with_hubs_that_are_searched_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(algorithm, "_ALONE_WORK", 0)
    skewed = gw.generators.rmat(11, 16, seed=1).with_random_weights(1, 9, seed=1)
    flat = gw.generators.grid(20, 20).with_random_weights(1, 9, seed=1)
    equal = skewed.with_weights(np.full(skewed.arc_count, 3))

    def solver(graph: Graph, **options: Any) -> str:
        with gw.place(graph, "cpu") as placed:
            return gw.sssp(placed, 0, **options).statistics.solver

    assert solver(skewed) == SOLVER
    assert solver(skewed, execution="asynchronous") == "delta-stepping"
    assert solver(skewed, target=1, cutoff=7) == SOLVER
    assert solver(flat) == solver(equal) == "delta-stepping"
    again = skewed.with_random_weights(1, 9, seed=2)
    solvers = [gw.sssp(again, 0, devices="cpu").statistics.solver for _ in range(6)]
    assert solvers == ["delta-stepping"] * 4 + [SOLVER] * 2


@pytest.mark.parametrize("dtype", WEIGHT_DTYPES)
def test_rows_are_sorted_by_weight(dtype: str) -> None:
    graph = gw.generators.rmat(8, 16, seed=1)
    weights = (1000 * np.random.default_rng(1).random(graph.arc_count)).astype(dtype)
    weights[::7] *= 0
    if weights.dtype.kind == "f":
        weights[::11] = -0.0
    graph = Graph(graph.offsets, graph.targets, weights)
    rows = cpu_rows.SortedRows.of(graph.rows)
    order = np.lexsort((weights, np.repeat(np.arange(graph.vertex_count), graph.out_degree())))
    np.testing.assert_array_equal(rows.arcs["target"], graph.targets[order])
    np.testing.assert_array_equal(rows.arcs["weight"], weights[order])


def test_rows_without_room_leave_the_search_to_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = gw.generators.rmat(8, 16, seed=1).with_random_weights(1, 9, seed=1)
    monkeypatch.setattr(cpu_rows, "has_room_for_rows", lambda graph: False)
    with sorted_rows_for_all(), gw.place(graph, "cpu") as placed:
        assert gw.sssp(placed, 0).statistics.solver == "delta-stepping"


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_room_for_a_search_is_an_upper_bound(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = gw.generators.rmat(8, 16, seed=1)
    graph = Graph(graph.offsets, graph.targets.astype(dtype), directed=False)
    graph = graph.with_random_weights(1, 9, seed=1)
    with cpu._workspace(graph, np.dtype(np.int64)) as workspace:
        arrays = [workspace.stamps, workspace.queues, workspace.entries]
    bytes_of_search = sum(array.nbytes for array in arrays) + 8 * graph.vertex_count
    rows = cpu_rows.SortedRows.of(graph.rows).arcs.nbytes
    monkeypatch.setenv("GODWIT_MEMORY_BYTES", str(rows + bytes_of_search - 1))
    assert not cpu_rows.has_room_for_rows(graph)
    monkeypatch.setenv("GODWIT_MEMORY_BYTES", str(2 * (rows + bytes_of_search)))
    assert cpu_rows.has_room_for_rows(graph)
