"""Label propagation and modularity on GPUs: what the CPU computes, bit for bit, over devices and weights.

Without a GPU the same kernels run on emulated ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import emulated_gpus, results_on_gpus
from godwit.algorithms.communities import cuda as label_steps
from godwit.algorithms.communities import levels
from godwit.arrays import ResultLocation
from godwit.errors import InputError, RunTimeoutError
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from gpu_endpoints import COUNT, names_of, needs_gpu, on_endpoints
from graphs import each_graph, named_graph

VARIANTS = ["parts", "cdlp"]


def check(graph: Any, devices: Any, variant: str = "parts", **settings: Any) -> Any:
    """Compare with what the CPU computes; return the result."""
    plain = graph.graph if isinstance(graph, gw.PlacedGraph) else graph
    kept = {name: settings[name] for name in ("seed", "max_iterations") if name in settings}
    expected = gw.label_propagation(plain, variant=variant, devices="cpu", **kept)
    result = gw.label_propagation(graph, variant=variant, devices=devices, **settings)
    np.testing.assert_array_equal(result.label, expected.label)
    np.testing.assert_array_equal(result.names, expected.names)
    np.testing.assert_array_equal(result.sizes, expected.sizes)
    assert result.sizes.dtype == expected.sizes.dtype
    assert result.count == len(expected.sizes)
    np.testing.assert_equal(result.modularity, expected.modularity)  # of NaN, too
    visits = [one.statistics.processed_items.sum() for one in (result, expected)]
    assert visits[0] == visits[1]
    return result


def with_loops(*, directed: bool) -> Graph:
    """Self-loops, parallel arcs, vertices without arcs, and a row that all warps share."""
    generator = np.random.default_rng(8)
    tails = np.concatenate([np.zeros(300, np.int64), generator.integers(0, 40, 200)])
    heads = np.concatenate([generator.integers(0, 40, 300), generator.integers(0, 40, 200)])
    tails[450:], heads[450:] = np.arange(50) % 7, np.arange(50) % 7
    return Graph.from_edges(tails, heads, generator.random(500), vertex_count=45, directed=directed)


def check_modularity(graph: Graph, devices: Any, seed: int = 1) -> None:
    """Compare the modularity of all kinds of labels."""
    n = graph.vertex_count
    generator = np.random.default_rng(seed)
    few = generator.integers(0, max(1, min(n, 4)), n)
    labels = [few, np.arange(n), np.zeros(n, np.uint8), -few, few.astype(np.uint64) << 40]
    with gw.place(graph, devices) as placed:
        for label in labels:
            for weighted in (None, False):
                for resolution in (1.0, 0.3):
                    settings: Any = {"weighted": weighted, "resolution": resolution}
                    np.testing.assert_equal(
                        gw.modularity(placed, label, **settings),
                        gw.modularity(graph, label, **settings),
                    )


def rows_of_all_lengths(*, directed: bool) -> Graph:
    """Rows for registers, for tables of warps, and for those in global memory."""
    generator = np.random.default_rng(5)
    lengths = [9000, 8193, 4000, 300, 257, 256, 40, 9, 8, 3]
    tails = np.repeat(np.arange(len(lengths)), lengths)
    heads = generator.integers(10, 9500, len(tails))
    weights = generator.integers(0, 5, len(tails))
    return Graph.from_edges(tails, heads, weights, vertex_count=9600, directed=directed)


class TestEmulated:
    @pytest.fixture(autouse=True)
    def gpu(self) -> Iterator[None]:
        with emulated_gpus(1):
            yield

    @pytest.mark.parametrize("variant", VARIANTS)
    @each_graph
    def test_labels_are_the_cpus(self, name: str, variant: str) -> None:
        check(named_graph(name), "cuda:0", variant, seed=3)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_slices_and_blocks(self, weighted: bool) -> None:
        graph = gw.generators.rmat(7, 6, seed=1)
        graph = graph.with_random_weights(0.5, 2.0, seed=1) if weighted else graph
        for gpu in (GpuOptions(slice_s=0), ExperimentOptions(blocks=1)):
            for iterations in (0, 1, 20):
                check(graph, "cuda:0", gpu=gpu, max_iterations=iterations)

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("batched", [False, True])
    def test_long_rows(
        self, monkeypatch: pytest.MonkeyPatch, batched: bool, weighted: bool
    ) -> None:
        if batched:  # the tables have room for the longest row alone
            monkeypatch.setattr(label_steps, "_MOST_ARENA_BYTES", 1)
        generator = np.random.default_rng(6)
        lengths = [257, 256, 700, 300, 511, 12]
        tails = np.repeat(np.arange(len(lengths)), lengths)
        heads = generator.integers(6, 400, len(tails))
        weights = generator.integers(0, 5, len(tails)) if weighted else None
        graph = Graph.from_edges(tails, heads, weights, vertex_count=420, directed=not weighted)
        for variant in VARIANTS:
            for gpu in (GpuOptions(), ExperimentOptions(slice_s=0, blocks=1)):
                check(graph, "cuda:0", variant, gpu=gpu, max_iterations=3)

    def test_queries_of_a_placed_graph(self) -> None:
        graph = gw.generators.rmat(7, 5, seed=2, symmetrize=False, weights=(1, 3))
        with gw.place(graph, "cuda:0") as placed:
            for seed in (1, 2):
                check(placed, None, seed=seed)
                check(placed, None, "cdlp")
                gw.pagerank(placed)

    def test_classes_do_not_depend_on_loops(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(levels, "SMALL_VERTICES", 1)
        ends = np.arange(64)
        tails, heads = np.tile(ends, 5), np.concatenate([(ends + k) % 64 for k in (0, 0, 1, 2, 3)])
        check(Graph.from_edges(tails, heads, directed=True), "cuda:0")

    @pytest.mark.parametrize("directed", [False, True])
    def test_modularity_is_the_cpus(self, directed: bool) -> None:
        check_modularity(with_loops(directed=directed), "cuda:0")
        check_modularity(gw.generators.path(40), "cuda:0")
        check_modularity(Graph.from_edges([], [], vertex_count=3, directed=directed), "cuda:0")

    def test_wrong_labels_of_a_placed_graph(self) -> None:
        with gw.place(gw.generators.path(4), "cuda:0") as placed:
            with pytest.raises(InputError, match=r"labels must have shape \(4,\)"):
                gw.modularity(placed, [0, 1])
            with pytest.raises(InputError, match="resolution must be"):
                gw.modularity(placed, [0, 1, 1, 1], resolution=-1)

    def test_results_that_stay_on_the_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        results_on_gpus(monkeypatch)
        of_name = classmethod(lambda cls, name: cls(None if name == "host" else 0))
        monkeypatch.setattr(ResultLocation, "named", of_name)
        graph = gw.generators.rmat(6, 3, seed=4)
        for variant in VARIANTS:
            expected = gw.label_propagation(graph, variant=variant, devices="cpu")
            found = gw.label_propagation(graph, variant=variant, devices="cuda:0", results="cuda:0")
            assert found.count == expected.count
            assert found.modularity == expected.modularity
            np.testing.assert_array_equal(found.label.get(), expected.label)
            np.testing.assert_array_equal(found._sizes.get(), expected.sizes)

    def test_progress_and_time(self) -> None:
        graph = gw.generators.rmat(7)
        seen: list[int] = []
        slices = GpuOptions(slice_s=0)
        result = gw.label_propagation(graph, devices="cuda:0", progress=seen.append, gpu=slices)
        assert seen == sorted(seen)
        assert seen[-1] <= result.statistics.processed_items[0]
        with pytest.raises(RunTimeoutError):
            gw.label_propagation(graph, devices="cuda:0", timeout_s=1e-9, gpu=slices)

    def test_few_vertices_have_few_classes(self) -> None:
        few = np.arange(
            0, 240, 2
        )  # of 4000 vertices: 64 classes would take a superstep or two each
        graph = Graph.from_edges(few, few + 1, vertex_count=4000, directed=False)
        assert check(graph, "cuda:0").statistics.rounds[0] < 64


class TestSeveral:
    def test_the_first_alone(self) -> None:
        with emulated_gpus(2) as machine:
            result = check(named_graph("random sparse"), names_of(2))
            assert result.statistics.devices == ("cuda:0",)
            assert [machine.held_bytes(index) for index in (0, 1)] == [0, 0]

    def test_what_is_refused(self) -> None:
        graph = gw.generators.path(50)
        with emulated_gpus(2):
            placed = gw.place(graph, names_of(2), duplication="1-hop")
            with placed, pytest.raises(InputError, match=r"duplication='1-hop'"):
                gw.label_propagation(placed)
            with pytest.raises(InputError, match="schedule"):
                gw.label_propagation(graph, devices="cuda:0", gpu=GpuOptions(schedule="warp"))


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 5))]
)
def test_no_order_of_threads_matters(seed: int) -> None:
    with emulated_gpus(1, seed=seed, checks=True):
        graph = gw.generators.rmat(6, 6, seed=seed, symmetrize=False)
        for variant in VARIANTS:
            check(graph, "cuda:0", variant, max_iterations=3)
        check(gw.generators.star(300), "cuda:0", max_iterations=3)
        check_modularity(with_loops(directed=bool(seed % 2)), "cuda:0", seed)


@pytest.mark.gpu
@needs_gpu
class TestOnGpus:
    @on_endpoints
    @pytest.mark.parametrize("variant", VARIANTS)
    @each_graph
    def test_labels_are_the_cpus(self, name: str, variant: str, devices: list[str]) -> None:
        check(named_graph(name), devices, variant)

    @pytest.mark.parametrize("directed", [False, True])
    @pytest.mark.parametrize("variant", VARIANTS)
    def test_rows_of_all_lengths(self, variant: str, directed: bool) -> None:
        graph = rows_of_all_lengths(directed=directed)
        for one in (graph, graph.without_weights()):
            for gpu in (GpuOptions(), ExperimentOptions(slice_s=0, delay_ns=20_000)):
                check(one, "cuda:0", variant, gpu=gpu)

    @on_endpoints
    @pytest.mark.parametrize(
        "spec", ["rmat:18", "rmat:16,symmetrize=false", "road:300", "star:100000"]
    )
    def test_larger_graphs(self, spec: str, devices: list[str]) -> None:
        graph = gw.generate(spec)
        with gw.place(graph, devices) as placed:
            for seed in range(2):
                check(placed, None, seed=seed)
            check(placed, None, "cdlp")

    @pytest.mark.parametrize("directed", [False, True])
    def test_modularity_is_the_cpus(self, directed: bool) -> None:
        for graph in (with_loops(directed=directed), gw.generators.rmat(14, seed=3)):
            check_modularity(graph, "cuda:0")
        check_modularity(rows_of_all_lengths(directed=directed), "cuda:0")

    def test_results_and_labels_that_stay_on_the_gpu(self) -> None:
        cupy = pytest.importorskip("cupy")
        graph = gw.generators.rmat(14, 8, seed=2)
        expected = gw.label_propagation(graph, devices="cpu")
        for place in (graph, gw.place(graph, "cuda:0")):
            devices = "cuda:0" if place is graph else None
            found: Any = gw.label_propagation(place, devices=devices, results="cuda")
            assert isinstance(found.label, cupy.ndarray)
            np.testing.assert_array_equal(cupy.asnumpy(found.label), expected.label)
            np.testing.assert_array_equal(found.sizes, expected.sizes)
            np.testing.assert_array_equal(found.names, expected.names)
            assert found.to_dict() == expected.to_dict()
            gw.verify_communities(graph, found)
            label = found.label
            for one in (found, label, label.astype("int64") - 5, label.get()):
                assert gw.modularity(place, one) == expected.modularity
            if place is not graph:
                with pytest.raises(InputError, match="labels must be integers of shape"):
                    gw.modularity(place, label.astype("float32"))
                place.close()

    def test_one_hash(self) -> None:
        graph = gw.generators.rmat(14, 8, seed=2).with_random_weights(0.5, 2.0, seed=1)
        devices = ["cpu:0", ["cpu:0", "cpu:1"], "cuda:0", ["cuda:0", "cuda:0"], names_of(COUNT)]
        found = [gw.label_propagation(graph, seed=9, devices=one) for one in devices]
        assert len({one.label.tobytes() for one in found}) == 1
        assert len({one.modularity for one in found}) == 1
