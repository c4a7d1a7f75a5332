"""Spanning forests on GPUs: those of the CPU, over graphs, dtypes, devices and slices of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import godwit as gw
from godwit.graph import generators
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import ExperimentOptions
from gpu_endpoints import needs_gpu, on_endpoints
from graphs import WEIGHT_DTYPES, each_graph, graphs, named_graph

pytestmark = [pytest.mark.gpu, needs_gpu]


def check(graph: Graph, devices: Any, **options: Any) -> None:
    """Compare with the CPU, as minimum and maximum, with the graph placed and not."""
    graph = graph.symmetrize(merge=None) if graph.directed else graph
    with gw.place(graph, devices) as placed:
        for maximum in (False, True):
            expected = gw.minimum_spanning_forest(graph, maximum, devices="cpu").arcs
            for on, where in ((graph, {"devices": devices}), (placed, {})):
                result = gw.minimum_spanning_forest(on, maximum, **where, **options)
                np.testing.assert_array_equal(result.arcs, expected)
                assert result.statistics.devices == ("cuda:0",)


@on_endpoints
@each_graph
def test_as_on_cpus(name: str, devices: list[str]) -> None:
    check(named_graph(name), devices)


@on_endpoints
@settings(max_examples=20)
@given(graph=graphs())
def test_any_graph(devices: list[str], graph: Graph) -> None:
    check(graph, devices)


@pytest.mark.parametrize("dtype", WEIGHT_DTYPES)
@pytest.mark.parametrize("kind", ["rmat", "road", "rows of all lengths"])
def test_dtypes(dtype: str, kind: str) -> None:
    if kind == "rmat":
        graph = generators.rmat(14, 16, seed=1)
    elif kind == "road":
        graph = generators.road(200, seed=1)
    else:
        lengths = [20_000, 5000, 900, 257, 256, 40, 5, 1]
        sources = np.repeat(np.arange(len(lengths)), lengths)
        targets = np.random.default_rng(7).integers(20, 30_000, len(sources))
        graph = Graph.from_edges(sources, targets, directed=False)
    graph = (
        graph.with_random_weights(-50, 50)
        if dtype != "uint32"
        else graph.with_random_weights(0, 90)
    )
    assert graph.weights is not None
    check(graph.with_weights(graph.weights.astype(dtype)), ["cuda:0"])


def test_without_weights() -> None:
    check(generators.rmat(14, 16, seed=1), ["cuda:0"])


@pytest.mark.parametrize("slice_s", [0.0, 1e-4])
def test_slices(slice_s: float) -> None:
    graph = generators.rmat(12, 16, seed=1).with_random_weights(1, 64)
    check(graph, ["cuda:0"], gpu=ExperimentOptions(slice_s=slice_s, delay_ns=1000))


def test_large_graph_again_and_again() -> None:
    graph = generators.rmat(20, 16, seed=1).with_random_weights(1, 64)
    expected = gw.minimum_spanning_forest(graph, devices="cpu").arcs
    with gw.place(graph, "cuda:0") as placed:
        for _ in range(10):
            np.testing.assert_array_equal(gw.minimum_spanning_forest(placed).arcs, expected)
