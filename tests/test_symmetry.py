"""Graphs whose arcs are symmetric, whatever they are declared: found as such, with the same answers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
from emulated_grid import emulated_gpus
from godwit.errors import InputError
from godwit.graph import facts
from godwit.graph.csr import Graph
from godwit.graph.facts import direction_hashes, in_arcs, in_arcs_at_hand, in_offsets, is_symmetric
from godwit.runtime.protocol import Device
from godwit.supersteps.placement import StepPlacement
from gpu_endpoints import needs_gpu, on_endpoints
from graphs import arcs_of, forced_threads, graphs, named_graph
from references import as_list, breadth_first

UNREACHED = np.iinfo(np.int32).max


def declared_directed(graph: Graph) -> Graph:
    """The same arcs, said to be directed."""
    return Graph(*graph.rows, directed=True)


def shuffled_rows(graph: Graph, seed: int = 0) -> Graph:
    """The same arcs, in another order within each row."""
    generator = np.random.default_rng(seed)
    order = np.concatenate(
        [
            begin + generator.permutation(end - begin)
            for begin, end in zip(graph.offsets[:-1], graph.offsets[1:], strict=True)
        ]
        or [np.empty(0, np.int64)]
    ).astype(np.int64)
    weights = None if graph.weights is None else graph.weights[order]
    return Graph(graph.offsets, graph.targets[order], weights)


def one_way_weights(graph: Graph) -> Graph:
    """The arcs of an undirected graph, with a weight of its own for each."""
    return Graph(graph.offsets, graph.targets, np.arange(graph.arc_count, dtype=np.float64) + 1)


@st.composite
def symmetric_or_nearly(draw: Any) -> Graph:
    """Directed graphs: any, symmetric ones, and those with one arc or one weight changed."""
    graph = draw(graphs())
    if draw(st.booleans()):
        graph = shuffled_rows(graph.symmetrize(draw(st.sampled_from(["min", None]))))
    if draw(st.booleans()) and graph.arc_count:
        arc = draw(st.integers(0, graph.arc_count - 1))
        targets, weights = graph.targets.copy(), graph.weights
        if weights is None or draw(st.booleans()):
            targets[arc] = draw(st.integers(0, graph.vertex_count - 1))
        else:
            weights = weights.copy()
            weights[arc] += 1
        graph = Graph(graph.offsets, targets, weights)
    return declared_directed(graph)


class TestFinding:
    @given(graph=symmetric_or_nearly())
    def test_symmetric_means_as_many_arcs_each_way(self, graph: Graph) -> None:
        arcs = Counter(arc[:2] for arc in arcs_of(graph))
        assert is_symmetric(graph) == all(arcs[v, u] == count for (u, v), count in arcs.items())
        if graph.is_weighted:
            weighted = Counter(arcs_of(graph))
            expected = all(weighted[v, u, w] == k for (u, v, w), k in weighted.items())
            assert is_symmetric(graph, weighted=True) == expected

    @given(graph=symmetric_or_nearly())
    def test_the_sample_refutes_nothing_symmetric(self, graph: Graph) -> None:
        patch = pytest.MonkeyPatch()
        with patch.context() as changed:
            changed.setattr(facts, "_SAMPLED_ARCS", 0)
            expected = is_symmetric(declared_directed(graph))
        assert is_symmetric(graph) == expected

    def test_long_rows_are_not_searched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(facts, "_SEARCHED_ARCS", 0)
        assert is_symmetric(declared_directed(named_graph("star")))
        assert not is_symmetric(Graph.from_edges([0, 1], [1, 2]))

    @given(graph=graphs(weighted=True), threads=st.integers(1, 5))
    def test_hashes_depend_on_neither_order_nor_threads(self, graph: Graph, threads: int) -> None:
        with forced_threads(threads):
            assert direction_hashes(shuffled_rows(graph).rows) == direction_hashes(graph.rows)
            assert direction_hashes(graph.reverse.rows)[0] == direction_hashes(graph.rows)[1]

    def test_undirected_graphs_are_taken_at_their_word(self) -> None:
        assert is_symmetric(Graph.trusted(np.array([0, 1, 1]), np.array([1]), directed=False))

    @given(graph=graphs(), threads=st.integers(1, 5))
    def test_in_offsets_count_the_arcs_to_each_vertex(self, graph: Graph, threads: int) -> None:
        with forced_threads(threads):
            counts = np.bincount(graph.targets, minlength=graph.vertex_count)
            np.testing.assert_array_equal(np.diff(in_offsets(graph)), counts)
            graph.reverse  # noqa: B018  now there is another way
            np.testing.assert_array_equal(np.diff(in_offsets(graph)), counts)

    def test_in_arcs_of_symmetric_graphs_are_their_rows(self) -> None:
        graph = one_way_weights(named_graph("grid"))
        assert in_arcs_at_hand(graph) is None
        assert in_arcs(graph) is graph
        assert in_arcs_at_hand(graph) is graph
        assert in_arcs_at_hand(graph, weighted=True) is None
        assert in_arcs(graph, weighted=True) is graph.reverse


class TestMeaning:
    """What a user declared decides what a query means."""

    def test_graph(self) -> None:
        graph = declared_directed(named_graph("random undirected"))
        assert is_symmetric(graph)
        assert graph.directed
        assert graph.edge_count is None
        assert graph.reverse is not graph
        assert not graph.symmetrize().directed
        assert isinstance(graph.to_networkx(), nx.DiGraph)

    @pytest.mark.parametrize("endpoints", [False, True])
    @pytest.mark.parametrize("normalized", [False, True])
    def test_betweenness(self, normalized: bool, endpoints: bool) -> None:
        graph = declared_directed(named_graph("grid")).without_weights()
        result = gw.betweenness_centrality(
            graph, normalized=normalized, endpoints=endpoints, edges=True, devices="cpu"
        )
        expected = nx.betweenness_centrality(
            graph.to_networkx(), normalized=normalized, endpoints=endpoints
        )
        np.testing.assert_allclose(result.centrality, [expected[v] for v in range(len(expected))])
        arcs = nx.edge_betweenness_centrality(graph.to_networkx(), normalized=normalized)
        assert result.edge_centrality is not None
        for (u, v), found in zip(arcs_of(graph), result.edge_centrality, strict=True):
            assert found == pytest.approx(arcs[u, v])

    @given(graph=symmetric_or_nearly())
    def test_pagerank(self, graph: Graph) -> None:
        if graph.vertex_count == 0 or (graph.is_weighted and graph.arc_count == 0):
            return
        options: dict[str, Any] = {"tolerance": 1e-12, "max_iterations": 1000, "devices": "cpu"}
        expected = gw.pagerank(graph, accelerated=False, **options)
        np.testing.assert_allclose(gw.pagerank(graph, **options).rank, expected.rank, atol=1e-10)

    def test_pagerank_is_accelerated_by_weights_only_where_these_are_symmetric(self) -> None:
        graph = one_way_weights(named_graph("grid"))
        gw.pagerank(graph, weighted=False, accelerated=True, devices="cpu")
        with pytest.raises(InputError, match="accelerated=True needs"):
            gw.pagerank(graph, accelerated=True, devices="cpu")
        gw.pagerank(declared_directed(named_graph("grid")), accelerated=True, devices="cpu")


class TestCpu:
    @given(graph=symmetric_or_nearly())
    def test_placed_graphs_give_the_answers_of_others(self, graph: Graph) -> None:
        if graph.vertex_count == 0:
            return
        with gw.place(graph, "cpu") as placed:
            for _ in range(2):
                labels = gw.connected_components(placed).label
                np.testing.assert_array_equal(
                    labels, gw.connected_components(declared_directed(graph), devices="cpu").label
                )
                found = gw.bfs(placed, 0)
                assert as_list(found.distance, UNREACHED) == breadth_first(graph, [0])
                expected = gw.bfs(declared_directed(graph), 0, devices="cpu").predecessor
                np.testing.assert_array_equal(found.predecessor, expected)
            for source in range(12):  # until a reverse pays
                found = gw.bfs(placed, source % graph.vertex_count)
                expected = breadth_first(graph, [source % graph.vertex_count])
                assert as_list(found.distance, UNREACHED) == expected
            assert ("reverse" in graph._cache) == (
                not is_symmetric(graph) and graph.arc_count >= 4 * graph.vertex_count
            )
            if graph.is_weighted:
                path = gw.sssp(placed, 0)
                expected = gw.sssp(declared_directed(graph), 0, devices="cpu").predecessor
                np.testing.assert_array_equal(path.predecessor, expected)

    @given(
        graph=graphs(max_vertices=60, directed=True),
        threads=st.integers(1, 4),
        rounds=st.sampled_from([None, 1, 3]),
    )
    def test_components_with_in_rows(self, graph: Graph, threads: int, rounds: int | None) -> None:
        expected = gw.connected_components(graph, method="rem", devices="cpu").label
        graph.reverse  # noqa: B018  from now on there are in-rows
        with forced_threads(threads):
            found = gw.connected_components(graph, method="afforest", rounds=rounds, devices="cpu")
        np.testing.assert_array_equal(found.label, expected)


class TestPlacement:
    """On emulated GPUs."""

    @pytest.mark.parametrize("parts", [1, 2])
    def test_rows_of_symmetric_graphs_are_made_once(self, parts: int) -> None:
        graph = one_way_weights(named_graph("grid"))
        devices = [Device(f"cuda:{index}", "cuda") for index in range(parts)]
        with emulated_gpus(parts):
            placed = StepPlacement(devices, graph)
            with placed.held():
                assert not placed.is_directed
                assert placed.rows("in") is placed.rows("out")
                assert placed.degrees("in") is not None
                assert placed.rows("in", weighted=True) is not placed.rows("out", weighted=True)
                assert placed.hub_rows()[0].count == 0
            placed.close()


def _directed_rmat() -> Graph:
    generator = np.random.default_rng(5)
    graph = gw.generators.rmat(12, 8, seed=3)
    kept = generator.random(graph.arc_count) < 0.4
    sources = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets))
    return Graph.from_edges(
        sources[kept], graph.targets[kept], vertex_count=graph.vertex_count, directed=True
    )


@pytest.mark.gpu
@needs_gpu
class TestGpus:
    @on_endpoints
    @pytest.mark.parametrize("kind", ["directed", "symmetric"])
    def test_kept_graphs_are_searched_in_supersteps(self, devices: list[str], kind: str) -> None:
        graph = (
            _directed_rmat() if kind == "directed" else declared_directed(gw.generators.rmat(12, 8))
        )
        assert is_symmetric(graph) == (kind == "symmetric")
        with gw.place(graph, devices) as placed:
            for source in (0, 7, int(np.argmax(graph.out_degree()))):
                result = gw.bfs(placed, source)
                assert result.statistics.solver == "direction-optimizing"
                np.testing.assert_array_equal(
                    result.distance, gw.bfs(graph, source, devices="cpu").distance
                )

    @pytest.mark.parametrize("kind", ["directed", "symmetric"])
    def test_other_graphs_are_not_reversed_for_one_search(self, kind: str) -> None:
        graph = (
            _directed_rmat() if kind == "directed" else declared_directed(gw.generators.rmat(12, 8))
        )
        result = gw.bfs(graph, 0, devices="cuda:0")
        assert result.statistics.solver == "asynchronous"
        assert "reverse" not in graph._cache
        if kind == "symmetric":
            assert is_symmetric(graph)
            solver = gw.bfs(graph, 0, devices="cuda:0").statistics.solver
            assert solver == "direction-optimizing"

    @on_endpoints
    @pytest.mark.parametrize("kind", ["directed", "symmetric", "weights one way"])
    def test_answers_are_those_of_cpus(self, devices: list[str], kind: str) -> None:
        undirected = gw.generators.rmat(10, 8, seed=2)
        graph = {
            "directed": _directed_rmat,
            "symmetric": lambda: declared_directed(undirected.with_random_weights(1, 9)),
            "weights one way": lambda: one_way_weights(undirected),
        }[kind]()
        with gw.place(graph, devices) as placed:
            assert "reverse" not in graph._cache
            np.testing.assert_array_equal(
                gw.connected_components(placed).label,
                gw.connected_components(graph, devices="cpu").label,
            )
            for _ in range(2):
                found, expected = (
                    gw.betweenness_centrality(
                        where, sources=[0, 5], weighted=False, devices=devices
                    ).centrality
                    for where, devices in ((placed, None), (graph, "cpu"))
                )
                np.testing.assert_allclose(found, expected, rtol=1e-9)
            assert "reverse" not in graph._cache
            rank = gw.pagerank(placed, tolerance=1e-10).rank
            np.testing.assert_allclose(
                rank, gw.pagerank(graph, tolerance=1e-10, devices="cpu").rank, atol=1e-9
            )
