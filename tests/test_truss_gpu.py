"""Truss numbers on GPUs: what the CPU computes, over devices, rows, slices and schedules.

Without a GPU the same kernels run on emulated ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import emulated_gpus
from godwit.arrays import ResultLocation, host_array
from godwit.errors import GraphTooLargeError, InputError, RunTimeoutError
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from gpu_endpoints import COUNT, names_of, needs_gpu, on_endpoints
from graphs import each_graph, named_graph


def check(graph: Any, devices: Any, **settings: Any) -> Any:
    """Compare with what the CPU computes; return the result."""
    plain = graph.graph if isinstance(graph, gw.PlacedGraph) else graph
    expected = gw.truss_number(plain, devices="cpu").truss
    result = gw.truss_number(graph, devices=devices, **settings)
    np.testing.assert_array_equal(host_array(result.truss), expected)
    return result


def cliques(*sizes: int) -> Graph:
    """Cliques that share one vertex each with the next: edges of many truss numbers."""
    pairs, first = [], 0
    for size in sizes:
        tails, heads = np.triu_indices(size, 1)
        pairs.append((tails + first, heads + first))
        first += size - 1
    tails, heads = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return Graph.from_edges(tails, heads, directed=False)


class TestEmulated:
    @pytest.fixture(autouse=True)
    def gpu(self) -> Iterator[None]:
        with emulated_gpus(1):
            yield

    @each_graph
    def test_truss_numbers_are_the_cpus(self, name: str) -> None:
        check(named_graph(name), "cuda:0")

    def test_levels_and_packed_rows(self) -> None:
        check(cliques(3, 30, 5, 12, 4), "cuda:0")
        check(gw.generators.complete(70), "cuda:0")

    def test_slices_and_blocks(self) -> None:
        graph = gw.generators.rmat(8, 8, seed=1)
        for gpu in (GpuOptions(slice_s=0), ExperimentOptions(blocks=1)):
            check(graph, "cuda:0", gpu=gpu)

    def test_queries_of_a_placed_graph(self) -> None:
        for name in ("random sparse", "random directed"):
            with gw.place(named_graph(name), "cuda:0") as placed:
                for _ in range(3):
                    check(placed, None)
                    gw.triangles(placed)

    def test_statistics_and_progress(self) -> None:
        seen: list[Any] = []
        graph = gw.generators.rmat(7)
        gpu = GpuOptions(slice_s=0)
        result = gw.truss_number(graph, devices="cuda:0", progress=seen.append, gpu=gpu)
        assert result.statistics.processed_items.tolist() == [len(result.truss)]
        assert seen == sorted(seen)
        assert seen[-1] <= len(result.truss)
        assert seen[-1].total == len(result.truss)

    def test_time_runs_out(self) -> None:
        gpu = GpuOptions(slice_s=0)
        with pytest.raises(RunTimeoutError):
            gw.truss_number(gw.generators.rmat(9), devices="cuda:0", timeout_s=1e-9, gpu=gpu)


class TestSeveral:
    def test_the_first_alone(self) -> None:
        with emulated_gpus(2), gw.place(named_graph("random sparse"), names_of(2)) as placed:
            for _ in range(2):
                assert check(placed, None).statistics.devices == ("cuda:0",)

    def test_what_is_refused(self) -> None:
        graph = gw.generators.path(50)
        with emulated_gpus(2):
            placed = gw.place(graph, names_of(2), duplication="1-hop")
            with placed, pytest.raises(InputError, match=r"duplication='1-hop'"):
                gw.truss_number(placed)
            with pytest.raises(InputError, match="schedule"):
                gw.truss_number(graph, devices="cuda:0", gpu=GpuOptions(schedule="warp"))

    def test_all_memory_is_given_back(self) -> None:
        with emulated_gpus(2) as machine:
            gw.truss_number(named_graph("random directed"), devices=names_of(2))
            assert [machine.held_bytes(index) for index in (0, 1)] == [0, 0]

    def test_a_graph_that_does_not_fit(self) -> None:
        too_large = pytest.raises(GraphTooLargeError, match=r"cuda:0 needs .* and has .* free")
        with emulated_gpus(1, memory_bytes=200_000), too_large:
            gw.truss_number(gw.generators.path(5000), devices="cuda:0")


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 5))]
)
def test_no_order_of_threads_matters(seed: int) -> None:
    with emulated_gpus(1, seed=seed, checks=True):
        check(gw.generators.rmat(7, 6, seed=seed), "cuda:0")
        check(cliques(3, 40, 6), "cuda:0")  # with hubs


@pytest.mark.gpu
@needs_gpu
class TestOnGpus:
    @on_endpoints
    @each_graph
    def test_truss_numbers_are_the_cpus(self, name: str, devices: list[str]) -> None:
        check(named_graph(name), devices)

    def test_levels_and_packed_rows(self) -> None:
        for graph in (cliques(3, 300, 50, 120, 4), gw.generators.complete(400)):
            check(graph, "cuda:0")
            check(graph, "cuda:0", gpu=ExperimentOptions(slice_s=0, delay_ns=20_000))

    @on_endpoints
    @pytest.mark.parametrize(
        "spec", ["rmat:15", "rmat:13,symmetrize=false", "road:300", "star:100000"]
    )
    def test_larger_graphs(self, spec: str, devices: list[str]) -> None:
        graph = gw.generate(spec)
        with gw.place(graph, devices) as placed:
            for _ in range(2):
                check(placed, None)
        check(graph, devices, gpu=GpuOptions(slice_s=0.001))

    def test_results_on_a_gpu(self) -> None:
        graph = named_graph("random directed")
        for results in ("cuda:0", f"cuda:{COUNT - 1}"):
            found = check(graph, "cuda:0", results=results)
            assert found.truss.device.id == ResultLocation.named(results).gpu
