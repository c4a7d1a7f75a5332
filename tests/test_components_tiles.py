"""Connected components that begin in tiles, of small graphs, on emulated GPUs: SciPy's partition."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit as gw
from emulated_grid import emulated_gpus
from godwit.algorithms.components import MERGES
from godwit.algorithms.components import cuda as components_tiles
from godwit.algorithms.components.cuda import UnionQuery, label_on_gpus
from godwit.arrays import ResultLocation
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import resolve_devices
from godwit.supersteps import place_positions
from godwit.supersteps.placement import StepPlacement
from gpu_endpoints import COUNTS, names_of
from graphs import each_graph, graphs, named_graph
from test_components import expected_labels
from test_components_gpu import check, merges_of


@pytest.fixture
def tiny_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees of small graphs begin in tiles, too, wherever neighbours stand."""
    monkeypatch.setattr(components_tiles, "LEAST_ROWS", 0)
    monkeypatch.setattr(components_tiles, "LEAST_SHARE", 0)


JOINED = ("rem", "hook")
"""Methods that link all arcs, once: in tiles, where neighbours are near each other."""
NAMED_ROUNDS, SETTLED_ROUNDS = 4, 5  # begin, link, flatten; name, or settle and label


def one_way(graph: Graph) -> Graph:
    """Some of the arcs of a graph, directed."""
    sources = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets))
    kept = np.random.default_rng(5).random(graph.arc_count) < 0.6
    return Graph.from_edges(
        sources[kept], graph.targets[kept], vertex_count=graph.vertex_count, directed=True
    )


def with_longer_rows(graph: Graph) -> Graph:
    """A graph a few of whose vertices have 10 arcs more, and one 290."""
    n = graph.vertex_count
    generator = np.random.default_rng(3)
    sources = np.append(np.repeat(np.arange(0, n, n // 5), 10), np.full(290, n // 2))
    targets = generator.integers(0, n, len(sources))
    own = np.repeat(np.arange(n), np.diff(graph.offsets))
    once = own < graph.targets  # an edge becomes two arcs again
    return Graph.from_edges(
        np.append(own[once], sources),
        np.append(graph.targets[once], targets),
        vertex_count=n,
        directed=False,
    ).remove_self_loops()


@pytest.mark.usefixtures("tiny_tiles")
class TestTiles:
    @pytest.fixture(params=COUNTS)
    def devices(self, request: pytest.FixtureRequest) -> Iterator[list[str]]:
        with emulated_gpus(request.param):
            yield names_of(request.param)

    @each_graph
    def test_as_scipy(self, name: str, devices: list[str]) -> None:
        for method in JOINED:
            check(named_graph(name), devices, method=method)

    @pytest.mark.parametrize("spec", ["road:45,seed=3", "path:2500", "star:1500", "road:30,keep=1"])
    def test_several_tiles(self, spec: str, devices: list[str]) -> None:
        graph = gw.generate(spec)
        for method in JOINED:
            for gpu in (GpuOptions(), GpuOptions(slice_s=0)):
                statistics = check(graph, devices, method=method, gpu=gpu)
                assert statistics.arcs_relaxed.sum() == graph.arc_count

    def test_supersteps(self, devices: list[str]) -> None:
        road, named = gw.generate("road:45,seed=3"), 0
        for graph, rounds in ((road, NAMED_ROUNDS), (with_longer_rows(road), SETTLED_ROUNDS)):
            with gw.place(graph, devices) as placed:
                result = gw.connected_components(placed, method="rem")
                assert not place_positions(placed).numbering.by_degree
                np.testing.assert_array_equal(result.label, expected_labels(graph))
                assert result.statistics.rounds.tolist() == [rounds] * len(devices)
                named += rounds == NAMED_ROUNDS
        assert named == 1

    def test_directed_and_longer_rows(self, devices: list[str]) -> None:
        road = gw.generate("road:45,seed=3")
        for graph in (one_way(road), with_longer_rows(road), one_way(with_longer_rows(road))):
            for method in JOINED:
                check(graph, devices, method=method)

    def test_positions_of_64_bits(self, devices: list[str]) -> None:
        for graph in (gw.generate("road:40,seed=2"), one_way(gw.generate("road:40,seed=2"))):
            for merge in MERGES[1:]:
                query = UnionQuery(
                    False, True, 0, 0, None, merge, ResultLocation(), graph.targets.dtype,
                    GpuOptions(),
                )  # fmt: skip
                placement = StepPlacement(resolve_devices(devices), graph, id_dtype=np.int64)
                try:
                    found = label_on_gpus(placement, query, None).labels
                finally:
                    placement.close()
                np.testing.assert_array_equal(found, expected_labels(graph))

    def test_partitions(self, devices: list[str]) -> None:
        graph = gw.generate("road:40,seed=3")
        n = graph.vertex_count
        backwards = np.arange(n)[::-1] * len(devices) // n
        for partition in (None, "random", np.zeros(n, np.int64), backwards):
            if partition is not None and len(devices) == 1:
                continue
            with gw.place(graph, devices, partition) as placed:
                for method in JOINED:
                    for merge in merges_of(devices):
                        result = gw.connected_components(placed, method=method, merge=merge)
                        np.testing.assert_array_equal(result.label, expected_labels(graph))

    @pytest.mark.parametrize("seed", range(1, 6))
    def test_no_order_of_threads_matters(self, seed: int) -> None:
        road = gw.generators.road(35, seed=seed)
        with emulated_gpus(3, seed=seed):
            for devices in (names_of(1), names_of(3), ["cuda:1", "cuda:1"]):
                for graph in (road, gw.generators.path(900), with_longer_rows(road)):
                    for method in JOINED:
                        check(graph, devices, method=method)

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("count", COUNTS)
    def test_no_races(self, count: int, seed: int) -> None:
        road = gw.generators.road(24, seed=seed)
        with emulated_gpus(count, seed=seed, checks=True):
            for graph in (road, one_way(with_longer_rows(road)), gw.generators.path(500)):
                for method in JOINED:
                    check(graph, names_of(count), method=method)


class TestAnyTiles:
    @settings(max_examples=15)
    @given(
        graph=graphs(),
        method=st.sampled_from(JOINED),
        count=st.integers(1, 3),
        seed=st.integers(0, 99),
    )
    def test_any_graph(self, graph: Graph, method: str, count: int, seed: int) -> None:
        with pytest.MonkeyPatch.context() as patch, emulated_gpus(count, seed=seed):
            patch.setattr(components_tiles, "LEAST_ROWS", 0)
            patch.setattr(components_tiles, "LEAST_SHARE", 0)
            check(graph, names_of(count), method=method)


class TestChoices:
    def test_tiles_are_for_near_neighbours(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(components_tiles, "LEAST_ROWS", 64)
        road = gw.generate("road:60,keep=0.7,seed=3")
        shuffled = np.random.default_rng(1).permutation(road.vertex_count)
        sources = np.repeat(np.arange(road.vertex_count), np.diff(road.offsets))
        permuted = Graph.from_edges(
            shuffled[sources], shuffled[road.targets], vertex_count=len(shuffled), directed=True
        )
        permuted = Graph(permuted.offsets, permuted.targets, directed=False)
        with emulated_gpus(1):
            for graph, rounds in (
                (road, NAMED_ROUNDS),
                (permuted, 5),
                (gw.generate("path:100"), 5),
            ):
                statistics = check(graph, ["cuda:0"], method="rem")
                assert statistics.rounds.tolist() == [rounds]

    def test_devices_come_together_as_suits_them(self, tiny_tiles: None) -> None:
        cases = [("rmat:7", "rem", "tree"), ("rmat:7", "hook", "tree"), ("rmat:7", "afforest", "tree"),
                 ("star:4200", "afforest", "direct"), ("complete:40", "hook", "direct"),
                 ("road:30,seed=3", "rem", "direct"), ("road:30,seed=3", "afforest", "direct")]  # fmt: skip
        with emulated_gpus(2):
            for spec, method, merge in cases:
                with gw.place(gw.generate(spec), names_of(2)) as placed:
                    rounds = [
                        gw.connected_components(placed, method=method, merge=one).statistics.rounds
                        for one in ("auto", merge, {"tree": "direct", "direct": "tree"}[merge])
                    ]
                np.testing.assert_array_equal(rounds[0], rounds[1])
                assert (rounds[0] != rounds[2]).all()
