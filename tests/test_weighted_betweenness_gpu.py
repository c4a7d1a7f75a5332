"""Betweenness by weights on GPUs: what the CPU finds, on one device and on several, and what is refused.

Without a GPU the very kernels run on emulated ones; small graphs go to threads instead, which run the same
step program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import godwit as gw
from emulated_grid import Machine, emulated_gpus
from godwit.algorithms.betweenness import cuda_weighted as weighted_dependencies
from godwit.algorithms.betweenness.cpu import DependencySums, sum_dependencies
from godwit.algorithms.betweenness.cuda_weighted import sum_weighted_dependencies
from godwit.errors import InputError, RunTimeoutError
from godwit.graph.csr import Graph
from godwit.runtime.cuda import driver
from godwit.runtime.gpu_options import ExperimentOptions
from godwit.runtime.statistics import RunStatistics
from godwit.worker.options import SolverOptions
from graphs import graphs

needs_gpu = pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")

# Sums of fractions in another order.
_CLOSE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11}

GRAPHS = {
    "rmat": lambda: gw.generators.rmat(7, 8, seed=2, weights=(1, 9)),
    "road, floats": lambda: gw.generators.road(9, 9, seed=1, weights=(0.5, 2.0)),
    "directed": lambda: gw.generators.rmat(
        7, 4, seed=3, symmetrize=False, simple=False, weights=(1, 3)
    ),
    "all alike": lambda: gw.generators.grid(9, 9, weights=(7, 7)),
}


@pytest.fixture(scope="module")
def emulated() -> Iterator[Machine]:
    with emulated_gpus(2) as machine:
        yield machine


def _check(graph: Graph, devices: list[str], **options: Any) -> None:
    asked: dict[str, Any] = {"weighted": True, "sources": [0, 5, 40], "endpoints": True}
    wanted = gw.betweenness_centrality(graph, devices="cpu", **asked)
    gpu = ExperimentOptions(**options)
    found = gw.betweenness_centrality(graph, devices=devices, gpu=gpu, **asked)
    np.testing.assert_allclose(found.centrality, wanted.centrality, **_CLOSE)
    statistics = found.statistics
    assert statistics.devices == tuple(devices)
    assert statistics.processed_items.sum() == wanted.statistics.processed_items.sum()
    assert statistics.arcs_relaxed.sum() == wanted.statistics.arcs_relaxed.sum()
    assert statistics.seconds["kernel"] > 0
    assert min(statistics.seconds.values()) >= 0
    assert (statistics.rounds > 0).all()


@pytest.mark.parametrize("name", GRAPHS)
def test_one_and_two_emulated_gpus(name: str, emulated: Machine) -> None:
    for count in (1, 2):
        _check(GRAPHS[name](), [f"cuda:{place}" for place in range(count)])


def test_each_part_takes_its_options(emulated: Machine) -> None:
    """Paths are found asynchronously, and go into a step program."""
    for options in ({"communication": "broadcast"}, {"schedule": "warp", "transport": "host"}):
        _check(GRAPHS["rmat"](), ["cuda:0", "cuda:1"], **options)


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("name", GRAPHS)
def test_all_gpus(name: str) -> None:
    for count in {1, driver.device_count()}:
        _check(GRAPHS[name](), [f"cuda:{place}" for place in range(count)])


def _sums(graph: Graph, sources: Any, **options: Any) -> DependencySums | None:
    """By threads."""
    devices = ("cpu:0", "cpu:1")[: graph.vertex_count]
    with gw.place(graph, devices=list(devices)) as placed:
        statistics = RunStatistics(devices, "brandes")
        return sum_weighted_dependencies(
            placed, np.array(sources), statistics, SolverOptions(**options), endpoints=True
        )


@given(graphs(max_vertices=12, max_arcs=40, weighted=True, min_vertices=1))
@settings(max_examples=30)
def test_any_graph_on_threads(graph: Graph) -> None:
    assert graph.weights is not None
    # Integers, or floating-point numbers that sums are exact of.
    kind = np.int32 if graph.weights.dtype.kind in "iu" else np.float64
    graph = graph.with_weights(graph.weights.astype(kind) + kind(1))
    sources = list(range(0, graph.vertex_count, 3))
    wanted = sum_dependencies(graph, np.array(sources), endpoints=True, edges=False, weighted=True)
    found = _sums(graph, sources)
    assert found is not None
    np.testing.assert_allclose(found.vertices, wanted.vertices, **_CLOSE)
    assert found.vertices_visited == wanted.vertices_visited
    assert found.arcs_examined == wanted.arcs_examined


def test_a_weight_that_a_sum_loses() -> None:
    """Its ends wait for each other."""
    graph = Graph.from_edges([0, 1, 2], [1, 2, 3], [1e18, 1.0, 1e18], directed=False)
    with pytest.raises(InputError, match="arc from 1 to 2 has weight 1, which float64 loses"):
        _sums(graph, [0])
    found = _sums(graph, [1])
    assert found is not None
    assert found.vertices.tolist() == [1, 3, 2, 1]
    loop = Graph.from_edges([0, 1, 1], [1, 1, 2], [1e18, 1.0, 1e18])
    found = _sums(loop, [0])
    assert found is not None
    assert found.vertices.tolist() == [2, 2, 1]


def _diamonds(count: int) -> Graph:
    joints = np.arange(count) * 3
    tails = np.concatenate([joints, joints, joints + 1, joints + 2])
    heads = np.concatenate([joints + 1, joints + 2, joints + 3, joints + 3])
    return Graph.from_edges(tails, heads, np.full(len(tails), 2, np.int32))


def test_more_paths_than_a_double_holds(emulated: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the CPU counts."""
    assert _sums(_diamonds(1030), [0]) is None  # infinitely many, as it were
    graph = _diamonds(12)
    asked: dict[str, Any] = {"sources": [0], "weighted": True}
    wanted = gw.betweenness_centrality(graph, devices="cpu", **asked)
    monkeypatch.setattr(weighted_dependencies, "LARGEST_COUNT", 2.0**11)
    found = gw.betweenness_centrality(graph, devices="cuda:0", **asked)
    np.testing.assert_array_equal(found.centrality, wanted.centrality)
    assert found.statistics.devices == ("cpu",)
    assert found.statistics.seconds["overflow"] > 0
    monkeypatch.setattr(weighted_dependencies, "LARGEST_COUNT", 2.0**12)
    found = gw.betweenness_centrality(graph, devices="cuda:0", **asked)
    assert found.statistics.devices == ("cuda:0",)


def test_what_is_refused(emulated: Machine) -> None:
    graph = gw.generators.grid(3, 3, weights=(1, 9))
    with pytest.raises(InputError, match="devices='cpu' has that of edges"):
        gw.betweenness_centrality(graph, weighted=True, edges=True, devices="cuda:0")
    zero = graph.with_weights(np.zeros(graph.arc_count))
    with pytest.raises(InputError, match="above 0"):
        gw.betweenness_centrality(zero, weighted=True, devices="cuda:0")


def test_timeout_and_progress() -> None:
    graph = gw.generators.road(40, 40, seed=1, weights=(1, 9))
    begun: list[int] = []
    _sums(graph, range(5), progress=begun.append)
    assert begun == sorted(begun)
    assert set(begun) == {1, 2, 3, 4, 5}
    with pytest.raises(RunTimeoutError, match=r"within 0\.2 s"):
        _sums(graph, range(1600), timeout_s=0.2)
