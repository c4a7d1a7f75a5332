"""Louvain and Leiden on GPUs: what the CPU computes, bit for bit, over devices, directions, weights.

Without a GPU the same kernels run on emulated ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import emulated_gpus, results_on_gpus
from godwit.algorithms.communities import levels, levels_cuda
from godwit.arrays import ResultLocation
from godwit.errors import GraphTooLargeError, InputError, RunTimeoutError
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from godwit.supersteps.results import VertexValues
from gpu_endpoints import COUNT, names_of, needs_gpu, on_endpoints
from graphs import each_graph, named_graph

Method = Callable[..., gw.CommunitiesResult]
METHODS: list[Method] = [gw.louvain, gw.leiden]
SMALL_TABLES = ExperimentOptions(threads=64)
"""Rows of more than 512 arcs are those of hubs."""


def check(method: Method, graph: Any, devices: Any, **settings: Any) -> gw.CommunitiesResult:
    """Compare with what the CPU computes; return the result."""
    plain = graph.graph if isinstance(graph, gw.PlacedGraph) else graph
    kept = {name: value for name, value in settings.items() if name != "gpu"}
    expected = method(plain, devices="cpu", **kept)
    result = method(graph, devices=devices, **settings)
    assert result.statistics.devices[0].startswith("cuda")
    np.testing.assert_array_equal(result.label, expected.label)
    assert result.statistics.levels == expected.statistics.levels
    assert len(result.levels) == len(expected.levels)
    for mine, theirs in zip(result.levels, expected.levels, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_equal(
        (result.modularity, result.quality), (expected.modularity, expected.quality)
    )
    for name in ("processed_items", "rounds"):
        counts = [getattr(one.statistics, name)[0] for one in (result, expected)]
        assert counts[0] == counts[1], name
    return result


def _interrupt(*arguments: Any) -> None:
    raise KeyboardInterrupt


def rows_of_all_lengths(lengths: list[int], *, directed: bool) -> Graph:
    generator = np.random.default_rng(5)
    most = max(lengths)
    tails = np.repeat(np.arange(len(lengths)), lengths)
    heads = generator.integers(len(lengths), most, len(tails))
    weights = generator.integers(0, 5, len(tails))
    return Graph.from_edges(tails, heads, weights, vertex_count=most + 100, directed=directed)


@pytest.fixture
def few_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer levels are small: 1024 supersteps a round take long, and cores take over those levels."""
    monkeypatch.setattr(levels, "SMALL_VERTICES", 16)


def test_small_levels_have_all_classes() -> None:
    with emulated_gpus(1):
        check(gw.louvain, gw.generators.rmat(6, 6, seed=1), "cuda:0")


@pytest.mark.parametrize("method", METHODS)
def test_levels_of_any_size(monkeypatch: pytest.MonkeyPatch, method: Method) -> None:
    graph = gw.generators.road(20, seed=3)
    one_way = gw.generators.rmat(7, 5, seed=2, symmetrize=False, weights=(0, 3))
    for small in (0, 5, 40):
        monkeypatch.setattr(levels, "SMALL_VERTICES", small)
        with emulated_gpus(1):
            check(method, graph, "cuda:0")
            check(method, one_way, "cuda:0")


@pytest.mark.usefixtures("few_classes")
class TestEmulated:
    @pytest.fixture(autouse=True)
    def gpu(self) -> Iterator[None]:
        with emulated_gpus(1):
            yield

    @pytest.mark.parametrize("method", METHODS)
    @each_graph
    def test_communities_are_the_cpus(self, name: str, method: Method) -> None:
        check(method, named_graph(name), "cuda:0", seed=3)

    @pytest.mark.parametrize("directed", [False, True])
    def test_hubs(self, directed: bool) -> None:
        graph = rows_of_all_lengths([900, 600, 513, 512, 257, 40, 9, 8], directed=directed)
        for one in (graph, graph.without_weights()):
            check(gw.leiden, one, "cuda:0", iterations=1, gpu=SMALL_TABLES)

    @pytest.mark.parametrize("arena_bytes", [1, 1 << 26])
    def test_hubs_between_many_communities(
        self, monkeypatch: pytest.MonkeyPatch, arena_bytes: int
    ) -> None:
        monkeypatch.setattr(levels_cuda, "_MOST_ARENA_BYTES", arena_bytes)
        monkeypatch.setattr(levels, "_LEAST_CLASSES", 1)
        graph = rows_of_all_lengths([3000, 2600, 2000, 1300, 600, 9], directed=False)
        for method in METHODS:
            check(method, graph.without_weights(), "cuda:0", gpu=SMALL_TABLES)

    def test_hubs_in_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(levels_cuda, "_MOST_ARENA_BYTES", 1)
        monkeypatch.setattr(levels, "_LEAST_CLASSES", 1)
        graph = rows_of_all_lengths([900, 800, 700, 600, 600, 600, 520, 9], directed=False)
        check(gw.leiden, graph, "cuda:0", iterations=1, gpu=SMALL_TABLES)

    def test_groups_of_warps(self) -> None:
        graph = rows_of_all_lengths([1700, 1536, 1100, 1025, 1024, 300, 257], directed=False)
        six_warps = ExperimentOptions(threads=192)  # of which four share a row
        check(gw.leiden, graph.without_weights(), "cuda:0", iterations=1, gpu=six_warps)

    def test_large_communities(self) -> None:
        graph = gw.generators.rmat(8, 16, seed=3)
        check(gw.louvain, graph, "cuda:0", gpu=SMALL_TABLES)
        check(gw.louvain, graph, "cuda:0", resolution=0.0, gpu=SMALL_TABLES)

    # Moves leave communities that are not connected; levels are even in number, and odd.
    @pytest.mark.parametrize(("rows", "seed"), [(8, 138), (12, 122)])
    def test_communities_are_divided(self, rows: int, seed: int) -> None:
        graph = gw.generators.road(rows, seed=seed)
        check(gw.louvain, graph, "cuda:0", seed=1)

    def test_objectives(self) -> None:
        graph = gw.generators.rmat(7, 5, seed=2)
        one_way = gw.generators.rmat(7, 5, seed=2, symmetrize=False, weights=(0, 3))
        for resolution in (0.0, 0.3, 1e300):
            check(gw.leiden, graph, "cuda:0", resolution=resolution, objective="cpm", iterations=1)
        check(gw.leiden, one_way, "cuda:0", resolution=0.3, objective="cpm", iterations=1)
        check(gw.louvain, one_way, "cuda:0", weighted=False)

    def test_leaves_that_a_hub_has_too_many_of(self) -> None:
        star = gw.generators.star(300)
        found = check(gw.leiden, star, "cuda:0", resolution=0.1, objective="cpm")
        assert found.sizes[0] in (10, 11)
        assert found.quality == pytest.approx(4.5)

    def test_slices(self) -> None:
        graph = gw.generators.rmat(5, 6, seed=1).with_random_weights(0.5, 2.0, seed=1)
        # Of runs that are queued, all leave, or some, and those behind them begin again.
        for slice_s in (0.0, 1e-4, 1e-3):
            check(gw.leiden, graph, "cuda:0", iterations=1, gpu=GpuOptions(slice_s=slice_s))
        check(gw.leiden, graph, "cuda:0", iterations=1, gpu=ExperimentOptions(blocks=1))

    def test_memory_that_queued_runs_use(self) -> None:
        # Levels have hubs, whose tables grow while runs are queued.
        graph = rows_of_all_lengths([900, 600, 3, 2, 1], directed=False)
        for slice_s in (0.0, 0.1):
            gpu = ExperimentOptions(threads=64, slice_s=slice_s)
            with gw.place(graph, "cuda:0") as placed:
                for seed in range(3):
                    check(gw.leiden, placed, None, seed=seed, gpu=gpu)

    def test_queries_with_other_options(self) -> None:
        graph = gw.generators.rmat(6, 5, seed=2)
        with gw.place(graph, "cuda:0") as placed:
            for gpu in (GpuOptions(), SMALL_TABLES, GpuOptions()):
                check(gw.louvain, placed, None, gpu=gpu)

    def test_nothing_to_merge(self) -> None:
        loops = Graph.from_edges(np.arange(40), np.arange(40), directed=False)
        for method in METHODS:
            check(method, loops, "cuda:0")
            check(method, gw.generators.path(40), "cuda:0", resolution=1e9)

    def test_an_interruption_while_runs_are_queued(self, monkeypatch: pytest.MonkeyPatch) -> None:
        graph = gw.generators.rmat(6, 5, seed=2)
        with gw.place(graph, "cuda:0") as placed:
            with monkeypatch.context() as patch:
                patch.setattr(VertexValues, "begin", _interrupt)
                with pytest.raises(KeyboardInterrupt):
                    gw.louvain(placed)
            check(gw.louvain, placed, None)
            check(gw.leiden, placed, None)

    def test_queries_of_a_placed_graph(self) -> None:
        graph = gw.generators.rmat(6, 5, seed=2, symmetrize=False, weights=(1, 3))
        with gw.place(graph, "cuda:0") as placed:
            for seed in (1, 2):
                check(gw.leiden, placed, None, seed=seed)
                check(gw.louvain, placed, None, weighted=False)
                gw.label_propagation(placed)

    def test_results_that_stay_on_the_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        results_on_gpus(monkeypatch)
        of_name = classmethod(lambda cls, name: cls(None if name == "host" else 0))
        monkeypatch.setattr(ResultLocation, "named", of_name)
        graph = gw.generators.rmat(6, 3, seed=4)
        expected = gw.leiden(graph, devices="cpu")
        found = gw.leiden(graph, devices="cuda:0", results="cuda:0")
        np.testing.assert_array_equal(found.label.get(), expected.label)  # type: ignore[attr-defined]
        assert (found.count, found.quality) == (expected.count, expected.quality)

    def test_progress_and_time(self) -> None:
        graph = gw.generators.rmat(6)
        seen: list[int] = []
        slices = GpuOptions(slice_s=0)
        result = gw.louvain(graph, devices="cuda:0", progress=seen.append, gpu=slices)
        assert seen == sorted(seen)
        assert 0 < seen[-1] <= result.statistics.processed_items[0]
        with pytest.raises(RunTimeoutError):
            gw.leiden(graph, devices="cuda:0", timeout_s=1e-9, gpu=slices)


@pytest.mark.usefixtures("few_classes")
class TestSeveral:
    def test_the_first_alone(self) -> None:
        with emulated_gpus(2) as machine:
            result = check(gw.louvain, named_graph("random sparse"), names_of(2))
            assert result.statistics.devices == ("cuda:0",)
            assert [machine.held_bytes(index) for index in (0, 1)] == [0, 0]

    def test_what_is_refused(self) -> None:
        graph = gw.generators.path(50)
        with emulated_gpus(2):
            placed = gw.place(graph, names_of(2), duplication="1-hop")
            with placed, pytest.raises(InputError, match=r"duplication='1-hop'"):
                gw.louvain(placed)
            with pytest.raises(InputError, match="schedule"):
                gw.leiden(graph, devices="cuda:0", gpu=GpuOptions(schedule="warp"))
            with gw.place(graph, "cuda:0") as there, pytest.raises(InputError, match="placed"):
                gw.leiden(there, devices="cpu")

    @pytest.mark.parametrize("find", [gw.leiden, gw.label_propagation])
    def test_a_graph_that_does_not_fit(self, monkeypatch: pytest.MonkeyPatch, find: Method) -> None:
        monkeypatch.delenv("GODWIT_DEVICES", raising=False)
        graph = gw.generators.path(5000)
        message = r"cuda:0 needs .* and has .* free; .*devices='cpu'"
        with emulated_gpus(1, memory_bytes=300_000) as machine:
            with pytest.raises(GraphTooLargeError, match=message):
                find(graph, devices="cuda:0")
            with gw.place(graph, "cuda:0") as placed, pytest.raises(GraphTooLargeError):
                find(placed)
            result = find(graph)
            assert machine.held_bytes(0) == 0
        assert result.statistics.devices == ("cpu",)
        assert np.array_equal(result.label, find(graph, devices="cpu").label)


@pytest.mark.usefixtures("few_classes")
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 5))]
)
def test_no_order_of_threads_matters(seed: int) -> None:
    with emulated_gpus(1, seed=seed, checks=True):
        graph = gw.generators.rmat(5, 6, seed=seed, symmetrize=False)
        check(gw.leiden, graph, "cuda:0", iterations=1)
        hub = rows_of_all_lengths([2000, 600, 9], directed=False)
        check(gw.leiden, hub, "cuda:0", iterations=1, gpu=SMALL_TABLES)


@pytest.mark.gpu
@needs_gpu
class TestOnGpus:
    @on_endpoints
    @pytest.mark.parametrize("method", METHODS)
    @each_graph
    def test_communities_are_the_cpus(self, name: str, method: Method, devices: list[str]) -> None:
        check(method, named_graph(name), devices)

    @pytest.mark.parametrize("directed", [False, True])
    @pytest.mark.parametrize("method", METHODS)
    def test_rows_of_all_lengths(self, method: Method, directed: bool) -> None:
        lengths = [20_000, 9000, 8193, 4000, 300, 257, 256, 40, 9, 8, 3]
        graph = rows_of_all_lengths(lengths, directed=directed)
        for one in (graph, graph.without_weights()):
            for gpu in (GpuOptions(), SMALL_TABLES, ExperimentOptions(blocks=3, threads=256)):
                check(method, one, "cuda:0", gpu=gpu)

    @on_endpoints
    @pytest.mark.parametrize("spec", ["rmat:18", "rmat:16,symmetrize=false", "road:400"])
    def test_larger_graphs(self, spec: str, devices: list[str]) -> None:
        graph = gw.generate(spec)
        with gw.place(graph, devices) as placed:
            for method in METHODS:
                check(method, placed, None, seed=1)

    @pytest.mark.parametrize("objective", ["modularity", "cpm"])
    def test_results_that_stay_on_the_gpu(self, objective: str) -> None:
        graph = gw.generators.rmat(12, 8, seed=4)
        expected = gw.leiden(graph, 0.4, objective=objective, devices="cpu")
        found = gw.leiden(graph, 0.4, objective=objective, devices="cuda:0", results="cuda:0")
        np.testing.assert_array_equal(found.label.get(), expected.label)  # type: ignore[attr-defined]
        assert (found.count, found.quality) == (expected.count, expected.quality)
        for mine, theirs in zip(found.levels, expected.levels, strict=True):
            np.testing.assert_array_equal(mine, theirs)

    def test_one_hash(self) -> None:
        graph = gw.generators.rmat(14, 8, seed=2).with_random_weights(0.5, 2.0, seed=1)
        devices = ["cpu:0", ["cpu:0", "cpu:1"], "cuda:0", ["cuda:0", "cuda:0"], names_of(COUNT)]
        for method in METHODS:
            found = [method(graph, seed=9, devices=one) for one in devices]
            assert len({one.label.tobytes() for one in found}) == 1
            assert len({one.modularity for one in found}) == 1
