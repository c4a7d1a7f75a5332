"""Devices that are chosen where none are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import emulated_gpus
from godwit import placement
from gpu_endpoints import names_of


@pytest.fixture(autouse=True)
def gpus_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GODWIT_DEVICES", "cuda")


@pytest.fixture
def graph() -> gw.Graph:
    return gw.generate("rmat:8,seed=5")


class TestOneQuery:
    def test_one_gpu_is_enough(self, graph: gw.Graph) -> None:
        """Placing on several takes longer than they save, however large the graph."""
        with emulated_gpus(2), pytest.MonkeyPatch.context() as patch:
            patch.setattr(placement, "_WIDE_ARCS", 0)
            assert gw.bfs(graph, 0).statistics.devices == ("cuda:0",)
            assert gw.pagerank(graph).statistics.devices == ("cuda:0",)

    def test_all_take_a_graph_without_room_on_one(
        self, graph: gw.Graph, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(placement, "_ROOM", 10**9)
        with emulated_gpus(2):
            assert gw.pagerank(graph).statistics.devices == ("cuda:0", "cuda:1")

    def test_all_share_the_sources_of_much_work(
        self, graph: gw.Graph, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        options: dict[str, Any] = {"sources": [0, 1, 2]}
        expected = gw.betweenness_centrality(graph, devices="cpu", **options)
        monkeypatch.setattr(placement, "_LONG_QUERY_ARCS", 2 * graph.arc_count)
        with emulated_gpus(2):
            found = gw.betweenness_centrality(graph, **options)
            assert found.statistics.devices == ("cuda:0", "cuda:1")
            np.testing.assert_allclose(found.centrality, expected.centrality, rtol=1e-9)
            few = gw.betweenness_centrality(graph, sources=[0])
            assert few.statistics.devices == ("cuda:0",)


class TestSmallQueries:
    """Of graphs that are not placed: cores are done before a GPU has the graph."""

    @pytest.fixture(autouse=True)
    def nothing_is_preferred(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("GODWIT_DEVICES")

    def test_cores_answer(self, graph: gw.Graph) -> None:
        with emulated_gpus(1):
            for found in (
                gw.bfs(graph, 0),
                gw.sssp(graph, 0),
                gw.connected_components(graph),
                gw.pagerank(graph),
                gw.katz_centrality(graph, alpha=1e-3),
                gw.betweenness_centrality(graph, sources=[0]),
            ):
                assert found.statistics.devices == ("cpu",)

    def test_gpus_answer_if_the_work_is_long(
        self, graph: gw.Graph, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(placement, "_GPU_CALL_NS", 0)
        monkeypatch.setattr("godwit.config.thread_count", lambda: 2)
        with emulated_gpus(1):
            assert gw.pagerank(graph).statistics.devices == ("cuda:0",)
            assert gw.sssp(graph, 0).statistics.devices == ("cuda:0",)
            assert gw.connected_components(graph).statistics.devices == ("cpu",)

    def test_cores_search_long_narrow_graphs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A GPU is not even tried: it would take longer for the levels alone."""
        monkeypatch.setattr(placement, "_GPU_CALL_NS", 0)
        monkeypatch.setattr(placement, "_GPU_ARC_NS", 0)
        with emulated_gpus(1):
            for spec in ("path:3000", "caterpillar:1000x3", "grid:4x1000"):
                graph = gw.generate(spec).with_random_weights(1, 64, seed=1)
                for found in (
                    gw.bfs(graph, 0),
                    gw.sssp(graph, 0),
                    gw.betweenness_centrality(graph, sources=[0], weighted=False),
                ):
                    assert found.statistics.devices == ("cpu",)
                    assert "slow" not in found.statistics.seconds
            graph = gw.generate("rmat:8,seed=5")
            assert gw.bfs(graph, 0).statistics.devices == ("cuda:0",)

    def test_gpus_answer_if_an_option_is_theirs(self, graph: gw.Graph) -> None:
        with emulated_gpus(1):
            steps = gw.bfs(graph, 0, execution="bulk-synchronous")
            assert steps.statistics.devices == ("cuda:0",)
            found = gw.connected_components(graph, gpu=gw.GpuOptions(slice_s=1.0))
            assert found.statistics.devices == ("cuda:0",)
            with gw.place(graph) as placed:
                assert gw.bfs(placed, 0).statistics.devices == ("cuda:0",)


class TestPlaced:
    @pytest.mark.parametrize(("least", "count"), [(0, 2), (10**9, 1)])
    def test_large_graphs_are_on_all_gpus(
        self, graph: gw.Graph, monkeypatch: pytest.MonkeyPatch, least: int, count: int
    ) -> None:
        monkeypatch.setattr(placement, "_WIDE_ARCS", least)
        with emulated_gpus(2), gw.place(graph) as placed:
            assert [device.name for device in placed.context.devices] == names_of(count)

    def test_roads_are_on_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(placement, "_WIDE_ARCS", 0)
        road = gw.generate("road:20")
        with emulated_gpus(2), gw.place(road) as placed:
            assert [device.name for device in placed.context.devices] == ["cuda:0"]
        monkeypatch.setattr(placement, "_ROOM", 10**9)
        with emulated_gpus(2), gw.place(road) as placed:
            assert len(placed.context.devices) == 2
