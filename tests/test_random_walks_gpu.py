"""Random walks on GPUs: those of the CPU, over ways to draw, devices and slices of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import godwit as gw
from godwit.algorithms.random_walks import cuda
from godwit.graph import generators
from godwit.runtime.gpu_options import ExperimentOptions
from gpu_endpoints import needs_gpu, on_endpoints
from graphs import each_graph, named_graph
from test_random_walks import WAYS, each_way

pytestmark = [pytest.mark.gpu, needs_gpu]


@on_endpoints
@each_graph
def test_as_on_cpus(name: str, devices: list[str]) -> None:
    graph = named_graph(name)
    sources = list(range(graph.vertex_count)) * 3
    with gw.place(graph, devices) as placed:
        for options in WAYS.values():
            expected = gw.random_walks(graph, sources, 9, seed=7, devices="cpu", **options)
            found = gw.random_walks(placed, sources, 9, seed=7, **options)
            np.testing.assert_array_equal(found, expected)


@on_endpoints
@each_way
def test_large(way: str, devices: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_LEAST_SHARE", 1 << 12)
    graph = generators.rmat(16, 16, seed=1).with_random_weights(0.0, 1.0)
    sources = np.random.default_rng(1).integers(0, graph.vertex_count, 20_000)
    expected = gw.random_walks(graph, sources, 20, seed=7, devices="cpu", **WAYS[way])
    with gw.place(graph, devices) as placed:
        for gpu in (None, ExperimentOptions(slice_s=0, delay_ns=1000)):
            found = gw.random_walks(placed, sources, 20, seed=7, gpu=gpu, **WAYS[way])
            np.testing.assert_array_equal(found, expected)
    gw.verify_random_walks(graph, found, weighted=WAYS[way].get("weighted"))


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "float32", "float64"])
def test_dtypes_of_weights(dtype: str) -> None:
    graph: Any = generators.rmat(12, 8, seed=2).with_random_weights(0, 60)
    graph = graph.with_weights(graph.weights.astype(dtype))
    sources = np.arange(graph.vertex_count)
    expected = gw.random_walks(graph, sources, 10, p=2, q=3, devices="cpu")
    found = gw.random_walks(graph, sources, 10, p=2, q=3, devices="cuda:0")
    np.testing.assert_array_equal(found, expected)
