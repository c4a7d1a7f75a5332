"""Core numbers on GPUs: what the CPU computes, over devices, directions, rows, slices and schedules.

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
from godwit.supersteps.placement import StepPlacement
from gpu_endpoints import COUNT, names_of, needs_gpu, on_endpoints
from graphs import each_graph, named_graph


def check(graph: Any, devices: Any, **settings: Any) -> Any:
    """Compare with what the CPU computes; return the result."""
    plain = graph.graph if isinstance(graph, gw.PlacedGraph) else graph
    expected = gw.core_number(plain, devices="cpu").core
    result = gw.core_number(graph, devices=devices, **settings)
    np.testing.assert_array_equal(host_array(result.core), expected)
    return result


def clique(n: int, *, leaves: int = 0, directed: bool = False) -> Graph:
    """All pairs of n vertices, and leaves at all of them in turn."""
    tails, heads = np.triu_indices(n, 1)
    others = np.arange(n, n + leaves)
    return Graph.from_edges([*tails, *others], [*heads, *(others % n)], directed=directed)


LONG: dict[str, Graph] = {
    # more than a block keeps: of vertices, of arcs, and rows that all blocks visit
    "star": gw.generators.star(20_000),
    "clique": clique(200),
    "directed": clique(130, leaves=500, directed=True),
}
"""Graphs whose removed vertices are listed."""


class TestEmulated:
    @pytest.fixture(autouse=True)
    def gpu(self) -> Iterator[None]:
        with emulated_gpus(1):
            yield

    @each_graph
    def test_core_numbers_are_the_cpus(self, name: str) -> None:
        check(named_graph(name), "cuda:0")

    @pytest.mark.parametrize("name", LONG)
    def test_removed_vertices_that_are_listed(self, name: str) -> None:
        check(LONG[name], "cuda:0")

    @pytest.mark.parametrize("directed", [False, True])
    def test_slices_and_blocks(self, directed: bool) -> None:
        graph = gw.generators.rmat(8, 8, seed=1, symmetrize=not directed)
        for gpu in (GpuOptions(slice_s=0), ExperimentOptions(blocks=1)):
            check(graph, "cuda:0", gpu=gpu)

    def test_queries_of_a_placed_graph(self) -> None:
        for name in ("random sparse", "random directed"):
            graph = named_graph(name)  # with and without self-loops, which the first query counts
            for one in (graph, graph.remove_self_loops()):
                with gw.place(one, "cuda:0") as placed:
                    for _ in range(3):
                        check(placed, None)
                        gw.pagerank(placed)

    def test_statistics_and_progress(self) -> None:
        graph = gw.generators.rmat(7)
        seen: list[int] = []
        result = gw.core_number(
            graph, devices="cuda:0", progress=seen.append, gpu=GpuOptions(slice_s=0)
        )
        active = int(np.count_nonzero(graph.out_degree()))
        assert result.statistics.processed_items.tolist() == [active]
        assert result.statistics.arcs_relaxed.tolist() == [graph.arc_count]
        assert seen == sorted(seen)
        assert seen[-1] <= active

    def test_time_runs_out(self) -> None:
        with pytest.raises(RunTimeoutError):
            gw.core_number(
                gw.generators.rmat(9), devices="cuda:0", timeout_s=1e-9, gpu=GpuOptions(slice_s=0)
            )


class TestSeveral:
    def test_the_first_alone_or_all_by_a_step_program(self, monkeypatch: Any) -> None:
        with emulated_gpus(2):
            for name in ("random sparse", "random directed"):
                with gw.place(named_graph(name), names_of(2)) as placed:
                    assert check(placed, None).statistics.devices == ("cuda:0",)
                    with monkeypatch.context() as patch:
                        patch.setattr(StepPlacement, "has_room_for_copy", lambda self: False)
                        for _ in range(2):
                            result = check(placed, None)
                        assert result.statistics.devices == ("cuda:0", "cuda:1")

    def test_what_is_refused(self) -> None:
        graph = gw.generators.path(50)
        with emulated_gpus(2):
            placed = gw.place(graph, names_of(2), duplication="1-hop")
            with placed, pytest.raises(InputError, match=r"duplication='1-hop'"):
                gw.core_number(placed)
            with pytest.raises(InputError, match="schedule"):
                gw.core_number(graph, devices="cuda:0", gpu=GpuOptions(schedule="warp"))

    def test_all_memory_is_given_back(self) -> None:
        with emulated_gpus(2) as machine:
            gw.core_number(named_graph("random directed"), devices=names_of(2))
            assert [machine.held_bytes(index) for index in (0, 1)] == [0, 0]

    def test_a_graph_that_does_not_fit(self) -> None:
        too_large = pytest.raises(GraphTooLargeError, match=r"cuda:0 needs .* and has .* free")
        with emulated_gpus(1, memory_bytes=200_000), too_large:
            gw.core_number(gw.generators.path(5000), devices="cuda:0")


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 5))]
)
def test_no_order_of_threads_matters(seed: int) -> None:
    with emulated_gpus(1, seed=seed, checks=True):
        check(gw.generators.rmat(7, 6, seed=seed, symmetrize=False), "cuda:0")
        check(gw.generators.rmat(7, 6, seed=seed), "cuda:0")
        check(clique(150), "cuda:0")


@pytest.mark.gpu
@needs_gpu
class TestOnGpus:
    @on_endpoints
    @each_graph
    def test_core_numbers_are_the_cpus(self, name: str, devices: list[str]) -> None:
        check(named_graph(name), devices)

    @pytest.mark.parametrize("name", LONG)
    def test_removed_vertices_that_are_listed(self, name: str) -> None:
        check(LONG[name], "cuda:0")
        check(LONG[name], "cuda:0", gpu=ExperimentOptions(slice_s=0, delay_ns=20_000))

    @on_endpoints
    @pytest.mark.parametrize(
        "spec", ["rmat:18", "rmat:16,symmetrize=false", "road:300", "complete:2000", "star:100000"]
    )
    def test_larger_graphs(self, spec: str, devices: list[str]) -> None:
        graph = gw.generate(spec)
        with gw.place(graph, devices) as placed:
            for _ in range(2):
                check(placed, None)
        check(graph, devices, gpu=GpuOptions(slice_s=0.001))

    def test_several_by_a_step_program(self, monkeypatch: Any) -> None:
        monkeypatch.setattr(StepPlacement, "has_room_for_copy", lambda self: False)
        for devices in (["cuda:0", "cuda:0"], names_of(max(1, COUNT))):
            for spec in ("rmat:12", "rmat:11,symmetrize=false"):
                check(gw.generate(spec), devices)

    def test_results_on_a_gpu(self) -> None:
        graph = named_graph("random directed")
        for results in ("cuda:0", f"cuda:{COUNT - 1}"):
            found = check(graph, "cuda:0", results=results)
            assert found.core.device.id == ResultLocation.named(results).gpu
