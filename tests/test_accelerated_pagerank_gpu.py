"""Accelerated PageRank on GPUs: as many iterations as on the CPU, and ranks within the same bound.

Without a GPU the very kernels run on emulated ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import emulated_gpus
from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from gpu_endpoints import COUNTS, names_of, needs_gpu, on_endpoints
from graphs import named_graph
from test_pagerank_gpu import check, graph_of_all_classes

LARGE_CHANGES: dict[str, Any] = {
    "personalization": {0: 1}, "initial": {0: 1}, "damping": 0.9999, "accelerated": True,
    "tolerance": 1e-300, "max_iterations": 14,
}  # fmt: skip
"""Settings by which those of a binary tree do."""


def binary_tree(depth: int) -> Graph:
    """From its root, vertex 0."""
    child = np.arange(1, 2 ** (depth + 1) - 1)
    return Graph.from_edges((child - 1) // 2, child, directed=False)


def check_accelerated(
    graph: Graph, devices: Any, *, gain: float = 0, **settings: Any
) -> gw.PageRankResult:
    """Compare with the CPU's iterations, with the limit, and with a plain iteration from the result.

    :param gain: so many times as many plain iterations, at least
    """
    settings = {"tolerance": 1e-8, "max_iterations": 10_000, **settings}
    slowly = {**settings, "accelerated": False}
    limit = gw.pagerank(graph, devices="cpu", **{**slowly, "tolerance": 1e-13})
    plain = gw.pagerank(graph, devices="cpu", **slowly)
    wanted = gw.pagerank(graph, devices="cpu", **settings)
    found = gw.pagerank(graph, devices=devices, **settings)
    damping = settings.get("damping", 0.85)
    assert limit.converged
    assert found.converged
    assert abs(found.iterations - wanted.iterations) <= 1
    assert found.iterations * gain <= plain.iterations
    assert found.rank.min() >= 0
    assert found.rank.sum() == pytest.approx(1, abs=1e-12)
    error = np.abs(found.rank - limit.rank).sum()
    assert error <= settings["tolerance"] * damping / (1 - damping) + 1e-10
    if found.iterations != plain.iterations:  # else none was accelerated
        once = {**slowly, "initial": found.rank, "max_iterations": 1}
        again = gw.pagerank(graph, devices=devices, **once)
        # Roundings of sums are all that is left where an iteration changes nothing.
        rounding: dict[str, Any] = {"rel": 1e-6, "abs": 1e-14}
        if found.residual < settings["tolerance"] * damping / (1 + damping):
            assert again.residual == pytest.approx(found.residual, **rounding)
        else:  # the last was a plain one, as the change did not fall
            bound = damping * found.residual
            assert again.residual <= bound or again.residual == pytest.approx(bound, **rounding)
    return found


@pytest.mark.parametrize("seed", range(1, 4))
def test_nothing_is_read_while_it_is_written(seed: int) -> None:
    graph = graph_of_all_classes(directed=False, hubs_apart=True)
    with emulated_gpus(2, checks=True, seed=seed):
        check(graph, names_of(2), accelerated=True, max_iterations=7)


class TestEmulated:
    @pytest.fixture(autouse=True, params=COUNTS)
    def devices(self, request: pytest.FixtureRequest) -> Iterator[list[str]]:
        with emulated_gpus(request.param):
            yield names_of(request.param)

    @pytest.mark.parametrize(
        ("spec", "gain"),
        [("path:200", 2), ("grid:14x15", 2), ("road:15x15,seed=3", 2), ("star:60", 2),
         ("delaunay:150", 1.5), ("rmat:6,seed=1", 1)],
    )  # fmt: skip
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("start", [None, {5: 1.0}])
    def test_takes_fewer_iterations(
        self, spec: str, gain: float, weighted: bool, start: Any, devices: list[str]
    ) -> None:
        graph = gw.generate(spec)
        if weighted:
            graph = graph.with_random_weights(0, 9, seed=2)
        check_accelerated(graph, devices, gain=gain, personalization=start, initial=start)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_rows_of_every_class(self, weighted: bool, devices: list[str]) -> None:
        """Which mix slowly: hubs have no edges to each other. Some vertices are isolated."""
        graph = graph_of_all_classes(directed=False, weighted=weighted, hubs_apart=True)
        check(
            graph, devices, accelerated=True, weighted=weighted, tolerance=1e-300, max_iterations=9
        )
        found = gw.pagerank(graph, devices=devices, dtype="float32", weighted=weighted)
        wanted = gw.pagerank(graph, devices="cpu", dtype="float32", weighted=weighted)
        plain = gw.pagerank(graph, devices="cpu", accelerated=False, weighted=weighted)
        assert found.converged
        assert abs(found.iterations - wanted.iterations) <= 1
        assert found.iterations * 1.5 < plain.iterations
        np.testing.assert_allclose(found.rank, plain.rank, rtol=1e-3, atol=1e-8)

    @pytest.mark.parametrize("iterations", [4, 5, 12])
    @pytest.mark.parametrize(
        ("spec", "start"),
        [("delaunay:150", None), ("road:15x15,seed=3", None), ("grid:5x40", {5: 1.0})],
    )
    def test_each_iteration_is_the_cpus(
        self, spec: str, start: Any, iterations: int, devices: list[str]
    ) -> None:
        """Of the grid from one vertex, changes shrink more and more at first."""
        graph = gw.generate(spec)
        initial = np.random.default_rng(1).random(graph.vertex_count) if start is None else start
        settings: dict[str, Any] = {"initial": initial, "max_iterations": iterations}
        found = check(graph, devices, accelerated=True, **settings)
        plain = gw.pagerank(graph, devices="cpu", accelerated=False, **settings)
        if iterations == 12:
            assert np.abs(found.rank - plain.rank).sum() > 1e-5

    @pytest.mark.parametrize("damping", [1e-9, 0.5, 0.99])
    @pytest.mark.parametrize(
        "name", ["two components", "one edge, isolated ends", "isolated vertices"]
    )
    def test_isolated_vertices(self, name: str, damping: float, devices: list[str]) -> None:
        """Most of the ranks begin there, and little of them stays."""
        graph = named_graph(name)
        degrees = graph.out_degree()
        alone = {int(v): 1.0 for v in np.flatnonzero(degrees == 0)} or {0: 1.0}
        for start in ({**alone, 1: 5.0}, alone, {int(degrees.argmax()): 1.0}):
            for personalization in (None, alone, {1: 1.0}):
                check_accelerated(
                    graph, devices, damping=damping, initial=start, personalization=personalization
                )

    def test_no_rank_is_negative(self, devices: list[str]) -> None:
        """Far from the source, where a tolerance this large leaves less than the errors."""
        start = {0: 1.0}
        settings: dict[str, Any] = {"personalization": start, "initial": start}
        found = check(
            gw.generators.grid(60), devices, accelerated=True, damping=0.99, tolerance=0.01,
            **settings,
        )  # fmt: skip
        assert found.converged
        assert found.rank.min() == 0

    @pytest.mark.parametrize("iterations", [6, 8, 12])
    @pytest.mark.parametrize("has_arcs", [False, True])
    def test_no_rank_of_a_dangling_vertex_is_negative(
        self, has_arcs: bool, iterations: int, devices: list[str]
    ) -> None:
        """Without edges, or with some of weight 0 alone."""
        ends = np.arange(10 if has_arcs else 2)
        graph = Graph.from_edges(
            ends[::2], ends[1::2], ends[::2] == 0, vertex_count=10, directed=False
        )
        settings: dict[str, Any] = {"personalization": {0: 1, 9: 1}, "initial": {9: 1}}
        settings |= {"damping": 0.99, "max_iterations": iterations}
        assert check(graph, devices, accelerated=True, **settings).rank[9] == 0

    def test_changes_may_become_large(self, devices: list[str]) -> None:
        """Of a binary tree, from its root: larger than fixed-point sums of plain iterations count."""
        assert check(binary_tree(11), devices, **LARGE_CHANGES).residual > 8

    def test_the_same_bits_whatever_the_kernel_does(self, devices: list[str]) -> None:
        graph = gw.generate("road:12x12,seed=3")
        found = [
            gw.pagerank(graph, devices=devices, gpu=gpu)
            for gpu in (
                GpuOptions(), GpuOptions(), GpuOptions(slice_s=0),
                GpuOptions(communication="broadcast"), GpuOptions(slice_s=0, communication="broadcast"),
            )
        ]  # fmt: skip
        assert len({(one.rank.tobytes(), one.iterations, one.residual) for one in found}) == 1

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_near_roundings_it_ends_as_on_the_cpu(self, dtype: str, devices: list[str]) -> None:
        for tolerance in (3e-7, 2e-7) if dtype == "float32" else (1e-12, 1e-13):
            settings: dict[str, Any] = {"tolerance": tolerance, "dtype": dtype}
            settings["max_iterations"] = 300
            for spec in ("road:15x15,seed=3", "star:60", "rmat:7,seed=2"):
                graph = gw.generate(spec)
                wanted = gw.pagerank(graph, devices="cpu", **settings)
                found = gw.pagerank(graph, devices=devices, **settings)
                assert wanted.converged
                assert found.converged
                assert abs(found.iterations - wanted.iterations) <= 2

    def test_near_roundings_it_ends_once_it_has_converged(self, devices: list[str]) -> None:
        graph = gw.generate("road:15x15,seed=3")
        exact = gw.pagerank(graph, devices="cpu", tolerance=1e-13, max_iterations=300)
        for tolerance in np.geomspace(2e-8, 2e-7, 9):
            settings: dict[str, Any] = {"dtype": "float32", "max_iterations": 200}
            found = gw.pagerank(graph, devices=devices, tolerance=tolerance, **settings)
            assert found.converged == (found.iterations < 200)
            assert np.abs(found.rank - exact.rank).sum() < 1e-6

    def test_of_directed_graphs_iterations_are_plain(self, devices: list[str]) -> None:
        graph = named_graph("random directed")
        found = [
            gw.pagerank(graph, devices=devices, accelerated=accelerated)
            for accelerated in (None, False)
        ]
        assert len({(one.rank.tobytes(), one.iterations) for one in found}) == 1
        with pytest.raises(InputError, match="accelerated=True needs an undirected graph"):
            gw.pagerank(graph, devices=devices, accelerated=True)


@pytest.mark.gpu
@needs_gpu
class TestOnGpus:
    @on_endpoints
    @pytest.mark.parametrize(
        ("spec", "gain"), [("road:300", 2), ("grid:200x300", 2), ("delaunay:20000", 1.2)]
    )
    @pytest.mark.parametrize("weighted", [False, True])
    def test_takes_fewer_iterations(
        self, spec: str, gain: float, weighted: bool, devices: list[str]
    ) -> None:
        graph = gw.generate(spec)
        if weighted:
            graph = graph.with_random_weights(0, 9, seed=2)
        check_accelerated(graph, devices, gain=gain)

    @on_endpoints
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_rows_of_every_class(self, dtype: str, weighted: bool, devices: list[str]) -> None:
        graph = graph_of_all_classes(directed=False, weighted=weighted, scale=3, hubs_apart=True)
        settings: dict[str, Any] = {"accelerated": True, "dtype": dtype, "max_iterations": 12}
        for gpu in (GpuOptions(), ExperimentOptions(slice_s=0, delay_ns=20_000)):
            check(graph, devices, gpu=gpu, **settings, tolerance=1e-300)

    @on_endpoints
    def test_the_same_bits_whatever_the_kernel_does(self, devices: list[str]) -> None:
        graph = gw.generate("road:300")
        found = [
            gw.pagerank(graph, devices=devices, gpu=gpu)
            for gpu in (GpuOptions(), GpuOptions(slice_s=0), GpuOptions(communication="broadcast"))
        ]
        assert len({(one.rank.tobytes(), one.residual) for one in found}) == 1

    @on_endpoints
    def test_changes_may_become_large(self, devices: list[str]) -> None:
        assert check(binary_tree(15), devices, **LARGE_CHANGES).residual > 8
