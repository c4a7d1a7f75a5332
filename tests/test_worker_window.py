"""The window of the asynchronous engine on GPUs, whose width changes while a run goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import COMPILER, emulated_gpus
from godwit.algorithms.sssp import PROGRAMS
from godwit.runtime.statistics import RunStatistics
from godwit.worker import delta
from gpu_endpoints import needs_gpu, on_endpoints

KINDS = ("two values", "heavy tail", "mostly zero")


def weighted_grid(kind: str, rows: int, columns: int) -> gw.Graph:
    """Return a grid with weights of a kind, equal in both directions."""
    graph = gw.generators.grid(rows, columns)
    tails = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets))
    low, high = np.minimum(tails, graph.targets), np.maximum(tails, graph.targets)
    uniform = np.random.default_rng(1).random((2, graph.vertex_count))[
        (high - low == 1).astype(int), low
    ]
    draw: dict[str, Any] = {
        "two values": np.where(uniform < 0.5, 1, 1000).astype(np.int32),
        "heavy tail": np.exp(4 / (uniform + 0.2)).astype(np.float32),
        "mostly zero": np.where(uniform < 0.7, 0, 10**6).astype(np.int64),
    }
    return graph.with_weights(draw[kind])


def check(graph: gw.Graph, devices: list[str], **options: Any) -> RunStatistics:
    """Compare distances with the CPU's; return the statistics of the run on GPUs."""
    found = gw.sssp(graph, 0, devices=devices, execution="asynchronous", **options)
    expected = gw.sssp(graph, 0, devices="cpu")
    np.testing.assert_array_equal(found.distance, expected.distance)
    return found.statistics


@pytest.mark.skipif(COMPILER is None, reason="no g++ to compile kernels with")
@pytest.mark.parametrize("devices", [["cuda:0"], ["cuda:0", "cuda:1"]], ids="+".join)
@pytest.mark.parametrize("kind", KINDS)
def test_distances_are_right_whatever_width_is_tried(
    kind: str, devices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "_GPU_FACTOR", 0.01)  # a narrow window: many meetings
    graph = weighted_grid(kind, 6, 100)
    with emulated_gpus(2, seed=3, checks=True):
        found = check(graph, devices)
        fixed = check(graph, devices, worker=gw.WorkerOptions(delta=found.delta))
    assert found.delta == fixed.delta
    if kind == "heavy tail":
        assert fixed.rounds.max() > 100  # enough for several trials
        assert found.rounds.max() < fixed.rounds.max()  # a wider window was found


def first_width(graph: gw.Graph) -> float:
    return delta.choose_gpu_window(PROGRAMS["float64"], graph, None, None)[0]


@pytest.mark.parametrize("factor", [0.125, 1024.0])
def test_the_first_width_scales_with_the_weights(factor: float) -> None:
    graph = gw.generators.uniform(300, edges=1200, weights=(1, 64), seed=2)
    assert graph.weights is not None
    scaled = graph.with_weights(factor * graph.weights.astype(np.float64))
    assert first_width(scaled) == pytest.approx(factor * first_width(graph))


def test_heavy_arcs_do_not_widen_the_first_width_where_many_are_light() -> None:
    graph = gw.generators.uniform(300, edges=1200, weights=(1, 64), seed=2)  # 8 arcs a vertex
    assert graph.weights is not None
    weights = graph.weights.astype(np.float64)
    heavier = np.where(weights > 32, 1e6 * weights, weights)  # half of the arcs
    assert first_width(graph.with_weights(heavier)) == first_width(graph)
    steps = np.arange(300)
    road = gw.Graph.from_edges(
        steps[:-1], steps[1:], np.ones(299)
    )  # an arc a vertex, which all paths take
    some_heavy = np.where(steps[1:] % 2 == 0, 1.0, 1e6)
    assert first_width(road.with_weights(some_heavy)) > 1000 * first_width(road)


def test_meshes_have_a_first_width_twice_as_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = gw.generators.grid(80, 80).with_random_weights(1, 64, seed=1)
    small_world = gw.generators.uniform(6400, edges=12800, weights=(1, 64), seed=2)
    before = {id(graph): first_width(graph) for graph in (mesh, small_world)}
    monkeypatch.setattr(delta, "_MESH_FACTOR", 1)
    assert before[id(mesh)] == 2 * first_width(mesh)
    assert before[id(small_world)] == first_width(small_world)


@pytest.mark.gpu
@needs_gpu
@on_endpoints
@pytest.mark.parametrize("kind", KINDS)
def test_larger_graphs(kind: str, devices: list[str]) -> None:
    graph = weighted_grid(kind, 200, 2000)
    found = check(graph, devices)
    assert found.delta is not None
    for factor in (1 / 64, 64):
        check(graph, devices, worker=gw.WorkerOptions(delta=factor * found.delta))
