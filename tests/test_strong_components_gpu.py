"""Strong components and topological generations on real GPUs, against the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import godwit as gw
from godwit.errors import RunTimeoutError
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from gpu_endpoints import needs_gpu, on_endpoints
from graphs import ZOO, named_graph
from test_strong_components import HARD, acyclic, chain_of_cycles, cycle, expected_labels

pytestmark = [pytest.mark.gpu, needs_gpu]


def check(graph: Graph, devices: list[str], **options: Any) -> Any:
    result = gw.strongly_connected_components(graph, devices=devices, **options)
    expected = gw.strongly_connected_components(graph, devices="cpu")
    np.testing.assert_array_equal(result.label, expected.label)
    return result.statistics


@on_endpoints
def test_zoo(devices: list[str]) -> None:
    for name in ZOO:
        graph = named_graph(name)
        if graph.directed:
            result = gw.strongly_connected_components(graph, devices=devices)
            np.testing.assert_array_equal(result.label, expected_labels(graph))


@on_endpoints
def test_hard_graphs(devices: list[str]) -> None:
    for graph in HARD.values():
        assert check(graph, devices).devices == ("cuda:0",)
        check(graph, devices, gpu=GpuOptions(slice_s=0))
        check(graph, devices, gpu=ExperimentOptions(delay_ns=20_000))


@on_endpoints
@pytest.mark.parametrize("scale", [12, 18])
def test_rmat(devices: list[str], scale: int) -> None:
    graph = gw.generators.rmat(scale, 16, seed=scale, symmetrize=False)
    assert check(graph, devices).solver == "least ids"
    with gw.place(graph, devices) as placed:
        expected = gw.strongly_connected_components(graph, devices="cpu").label
        for _ in range(3):
            np.testing.assert_array_equal(gw.strongly_connected_components(placed).label, expected)


@pytest.mark.parametrize("edges", [1, 2, 3])
def test_sparse_random_graphs(edges: int) -> None:
    """Many components of a few vertices, deep trees of arcs between them."""
    n = 200_000
    generator = np.random.default_rng(edges)
    graph = Graph.from_edges(*generator.integers(0, n, (2, edges * n)), vertex_count=n)
    check(graph, ["cuda:0"])


def test_wide_ids() -> None:
    generator = np.random.default_rng(1)
    graph = Graph.from_edges(
        *generator.integers(0, 5000, (2, 9000)), vertex_count=5000, id_dtype=np.int64
    )
    check(graph, ["cuda:0"])


@pytest.mark.parametrize("name", ["cnr-2000", "uk-2007-05@100000", "soc-Slashdot0902", "cit-HepPh"])
def test_real_graphs(name: str, data_folder: Path) -> None:
    path = data_folder / f"{name}.mtx.xz"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    check(gw.read(path), ["cuda:0"])


def test_worst_cases_end_on_the_cpu() -> None:
    for graph in (cycle(1_000_000, 1), chain_of_cycles(300_000)):
        assert check(graph, ["cuda:0"]).solver in ("depth-first", "least ids")


def test_result_on_the_gpu() -> None:
    pytest.importorskip("cupy")
    graph = HARD["web"]
    for limit in (graph, cycle(1_000_000, 1)):
        label = gw.strongly_connected_components(limit, devices="cuda:0", results="cuda").label
        expected = gw.strongly_connected_components(limit, devices="cpu").label
        np.testing.assert_array_equal(label.get(), expected)  # type: ignore[attr-defined]


def test_time_out() -> None:
    graph = gw.generators.rmat(16, 16, seed=1, symmetrize=False)
    with pytest.raises(RunTimeoutError):
        gw.strongly_connected_components(
            graph, devices="cuda:0", timeout_s=1e-9, gpu=GpuOptions(slice_s=0)
        )
    check(graph, ["cuda:0"])


@on_endpoints
def test_generations(devices: list[str]) -> None:
    long = np.arange(3000)
    for graph in (
        acyclic(named_graph("random directed")),
        acyclic(gw.generators.rmat(12, 4, seed=1, symmetrize=False)),
        Graph.from_edges(long[:-1], long[1:]),
    ):
        result = gw.topological_generations(graph, devices=devices)
        gw.verify_topological_generations(graph, result)
    assert gw.is_directed_acyclic_graph(graph, devices=devices)
    assert not gw.is_directed_acyclic_graph(cycle(100), devices=devices)
