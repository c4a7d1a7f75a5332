"""Label propagation on GPUs: what the CPU computes, bit for bit, over devices, directions, weights, slices.

Without a GPU the same kernels run on emulated ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import emulated_gpus
from godwit.errors import GraphTooLargeError, InputError, RunTimeoutError
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
    visits = [one.statistics.processed_items.sum() for one in (result, expected)]
    assert visits[0] == visits[1]
    return result


def rows_of_all_lengths(*, directed: bool) -> Graph:
    """Rows for registers, tables of warps and of blocks, and those in global memory."""
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

    def test_longest_rows(self) -> None:
        graph = gw.generators.star(300)
        gpu = ExperimentOptions(threads=64)  # tables of blocks have 1024 slots
        for count in (300, 600):
            graph = gw.generators.star(count)
            for variant in VARIANTS:
                check(graph, "cuda:0", variant, gpu=gpu, max_iterations=2)

    def test_queries_of_a_placed_graph(self) -> None:
        graph = gw.generators.rmat(7, 5, seed=2, symmetrize=False, weights=(1, 3))
        with gw.place(graph, "cuda:0") as placed:
            for seed in (1, 2):
                check(placed, None, seed=seed)
                check(placed, None, "cdlp")
                gw.pagerank(placed)

    def test_progress_and_time(self) -> None:
        graph = gw.generators.rmat(7)
        seen: list[int] = []
        slices = GpuOptions(slice_s=0)
        result = gw.label_propagation(graph, devices="cuda:0", progress=seen.append, gpu=slices)
        assert seen == sorted(seen)
        assert seen[-1] <= result.statistics.processed_items[0]
        with pytest.raises(RunTimeoutError):
            gw.label_propagation(graph, devices="cuda:0", timeout_s=1e-9, gpu=slices)


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

    def test_a_graph_that_does_not_fit(self) -> None:
        too_large = pytest.raises(GraphTooLargeError, match=r"cuda:0 needs .* and has .* free")
        with emulated_gpus(1, memory_bytes=200_000), too_large:
            gw.label_propagation(gw.generators.path(5000), devices="cuda:0")


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 5))]
)
def test_no_order_of_threads_matters(seed: int) -> None:
    with emulated_gpus(1, seed=seed, checks=True):
        graph = gw.generators.rmat(6, 6, seed=seed, symmetrize=False)
        for variant in VARIANTS:
            check(graph, "cuda:0", variant, max_iterations=3)
        check(gw.generators.star(300), "cuda:0", max_iterations=3)


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

    def test_one_hash(self) -> None:
        graph = gw.generators.rmat(14, 8, seed=2).with_random_weights(0.5, 2.0, seed=1)
        devices = ["cpu:0", ["cpu:0", "cpu:1"], "cuda:0", ["cuda:0", "cuda:0"], names_of(COUNT)]
        found = [gw.label_propagation(graph, seed=9, devices=one) for one in devices]
        assert len({one.label.tobytes() for one in found}) == 1
        assert len({one.modularity for one in found}) == 1
