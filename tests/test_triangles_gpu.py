"""Triangles and clustering on GPUs: counts bit for bit those of the CPU.

Without a GPU the kernel runs on emulated ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
from emulated_grid import COMPILER, Machine, emulated_gpus
from godwit.algorithms.triangles import cuda
from godwit.errors import InputError, RunTimeoutError
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from gpu_endpoints import needs_gpu, on_endpoints
from graphs import graphs
from references import CLOSE
from test_triangles import zoo

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile kernels with")
DEVICES = [["cuda:0"], ["cuda:0", "cuda:1"], ["cuda:1", "cuda:1"]]


@pytest.fixture(scope="module")
def gpus() -> Iterator[Machine]:
    with emulated_gpus(2) as machine:
        yield machine


@pytest.fixture(
    params=["small tables", pytest.param("large tables", marks=pytest.mark.thorough)], autouse=True
)
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small graphs be shared by GPUs, and rows need several rounds of small tables."""
    monkeypatch.setattr(cuda, "_LEAST_SHARE_ARCS", 1)
    monkeypatch.setattr(cuda, "PIECE_ARCS", 300)
    if request.param == "small tables":
        monkeypatch.setattr(cuda, "TABLE_BITS", {False: 8, True: 8})


def check(graph: Graph, devices: Any, gpu: GpuOptions | None = None) -> None:
    """Compare counts and coefficients with the CPU's."""
    expected = gw.triangles(graph, devices="cpu")
    found = gw.triangles(graph, devices=devices, gpu=gpu)
    np.testing.assert_array_equal(found.triangles, expected.triangles)
    assert (found.total, found.triangles.dtype) == (expected.total, np.int64)
    assert int(found.statistics.processed_items.sum()) == graph.vertex_count
    for weighted in {False, graph.is_weighted}:
        values = gw.clustering(graph, weighted=weighted, devices=devices, gpu=gpu).clustering
        wanted = gw.clustering(graph, weighted=weighted, devices="cpu").clustering
        if weighted:
            np.testing.assert_allclose(values, wanted, **CLOSE)
        else:
            np.testing.assert_array_equal(values, wanted)


@needs_compiler
@given(data=st.data())
def test_any_graph(gpus: Machine, data: st.DataObject) -> None:
    graph = data.draw(graphs())
    if graph.is_weighted:
        graph = graph.merge_parallel_arcs()
        if graph.arc_count and not 0 < graph.weights.max() < np.inf:  # type: ignore[union-attr]
            graph = graph.without_weights()
    gpus.seed = data.draw(st.integers(0, 9), "seed")
    check(graph, data.draw(st.sampled_from(DEVICES), "devices"))


@needs_compiler
@pytest.mark.parametrize("name", zoo())
def test_zoo(gpus: Machine, name: str) -> None:
    graph = zoo()[name]
    if graph.directed and graph.is_weighted:
        graph = graph.merge_parallel_arcs()
    gpus.seed = 3
    check(graph, DEVICES[1])
    check(graph, DEVICES[0], ExperimentOptions(threads=64, blocks=2, slice_s=0))


@needs_compiler
@pytest.mark.thorough
def test_no_races() -> None:
    with emulated_gpus(1, checks=True, seed=4):
        for weights in (None, (1, 9)):
            graph = gw.generators.rmat(7, 12, seed=1, weights=weights)
            check(graph.merge_parallel_arcs(), "cuda:0")
        check(zoo()["wheel"].without_weights(), "cuda:0")


@needs_compiler
def test_placed_graphs_keep_rows_and_plans(gpus: Machine) -> None:
    graph = gw.generators.rmat(6, 6, seed=3, weights=(1, 5)).merge_parallel_arcs()
    expected = gw.triangles(graph, devices="cpu")
    with gw.place(graph, DEVICES[1]) as placed:
        for _ in range(2):
            np.testing.assert_array_equal(gw.triangles(placed).triangles, expected.triangles)
            assert gw.transitivity(placed) == gw.transitivity(graph, devices="cpu")
            gw.clustering(placed)
        assert "compile" not in gw.triangles(placed).statistics.seconds
    with gw.place(graph, DEVICES[1], duplication="1-hop") as placed, pytest.raises(InputError):
        gw.triangles(placed)


@pytest.mark.gpu
@needs_gpu
@on_endpoints
def test_gpus_count_what_cpus_count(devices: Any) -> None:
    for graph in zoo().values():
        repeats = graph.directed and graph.is_weighted
        check(graph.merge_parallel_arcs() if repeats else graph, devices)
    check(gw.generators.rmat(16, 16, seed=1), devices)
    check(gw.generators.road(300, 300, seed=1, weights=(1, 100)), devices)
    check(gw.generators.complete(1200), devices)


@pytest.mark.gpu
@needs_gpu
def test_gpus_leave_results_and_end_by_their_time() -> None:
    graph = gw.generators.rmat(18, 16, seed=1)
    expected = gw.triangles(graph, devices="cpu")
    with gw.place(graph, "cuda") as placed:
        assert gw.triangles(placed).total == expected.total
        with pytest.raises(RunTimeoutError):
            gw.triangles(placed, timeout_s=1e-6, gpu=GpuOptions(slice_s=0))
        left = gw.triangles(placed, results="cuda")
        np.testing.assert_array_equal(left.triangles.get(), expected.triangles)  # type: ignore[attr-defined]
