"""Samples of neighbourhoods: arcs of the graph, of the right numbers and distribution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit as gw
from emulated_grid import COMPILER, Machine, emulated_gpus
from godwit.algorithms.random_walks import neighbors
from godwit.errors import InputError, RunTimeoutError
from godwit.graph import generators
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from gpu_endpoints import needs_gpu, on_endpoints
from graphs import forced_threads, graphs
from test_random_walks import assert_drawn

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile kernels with")


@pytest.fixture(scope="module")
def gpus() -> Iterator[Machine]:
    with emulated_gpus(2) as machine:
        yield machine


def check_as_on_cpus(graph: Graph, found: gw.NeighborSample, *query: Any, **options: Any) -> None:
    """Compare a sample of a GPU with the CPU's."""
    wanted = gw.sample_neighbors(graph, *query, devices="cpu", **options)
    for name in ("nodes", "row", "col", "edges"):
        there, here = getattr(found, name), getattr(wanted, name)
        np.testing.assert_array_equal(there, here, err_msg=name)
        assert there.dtype == here.dtype
    assert found.nodes_per_hop == wanted.nodes_per_hop
    assert found.edges_per_hop == wanted.edges_per_hop


def check(graph: Graph, seeds: list[int], fanouts: list[int], **options: Any) -> gw.NeighborSample:
    """Check all that holds for any sample."""
    sample = gw.sample_neighbors(graph, seeds, fanouts, **options)
    nodes = sample.nodes.tolist()
    assert len(set(nodes)) == len(nodes) == sum(sample.nodes_per_hop)
    assert nodes[: sample.nodes_per_hop[0]] == list(dict.fromkeys(seeds))
    assert len(sample.row) == len(sample.col) == len(sample.edges) == sum(sample.edges_per_hop)
    sources = np.repeat(np.arange(graph.vertex_count), graph.out_degree())
    np.testing.assert_array_equal(sample.nodes[sample.row], sources[sample.edges])
    np.testing.assert_array_equal(sample.nodes[sample.col], graph.targets[sample.edges])
    first = np.concatenate([[0], np.cumsum(sample.nodes_per_hop)])
    ends = np.concatenate([[0], np.cumsum(sample.edges_per_hop)])
    degrees = graph.out_degree()[sample.nodes]
    for hop, fanout in enumerate(fanouts):
        expanded = slice(first[hop], first[hop + 1])
        wanted = degrees[expanded]
        if fanout >= 0:
            replace = options.get("replace")
            wanted = np.where(wanted > 0, fanout, 0) if replace else np.minimum(wanted, fanout)
        row = sample.row[ends[hop] : ends[hop + 1]]
        assert np.repeat(np.arange(first[hop], first[hop + 1]), wanted).tolist() == row.tolist()
    if not options.get("replace"):
        assert len(set(sample.edges.tolist())) == len(sample.edges)
    return sample


@settings(max_examples=40)
@given(
    graph=graphs(min_vertices=1),
    fanouts=st.lists(st.integers(-1, 5), max_size=3),
    replace=st.booleans(),
    seed=st.integers(),
)
def test_any_graph(graph: Graph, fanouts: list[int], replace: bool, seed: int) -> None:
    seeds = list(range(0, graph.vertex_count, 2)) * 2
    first = check(graph, seeds, fanouts, replace=replace, seed=seed)
    with forced_threads(3):
        again = check(graph, seeds, fanouts, replace=replace, seed=seed)
    np.testing.assert_array_equal(first.edges, again.edges)


@pytest.mark.parametrize("few", [0, 64])
@pytest.mark.parametrize("replace", [False, True])
def test_arcs_are_uniform(few: int, replace: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "FEW", few)
    graph = Graph.from_edges(np.repeat(np.arange(20_000), 6), np.tile(np.arange(6), 20_000))
    seeds = range(6, 20_000)
    sample = gw.sample_neighbors(graph, seeds, [2], replace=replace, seed=1)
    drawn = (sample.edges % 6).reshape(-1, 2)
    expected = np.full((6, 6), 1 / 36)
    if not replace:
        expected = np.triu(np.full((6, 6), 1 / 15), 1)
    assert_drawn(drawn[:, 0] * 6 + drawn[:, 1], expected.ravel())


def test_many_arcs_of_long_rows() -> None:
    graph = generators.star(1001)
    check(graph, [0], [500, 3], seed=3)
    check(graph, [0], [64], seed=3)
    check(graph, [0], [1500, -1], replace=True, seed=3)


def test_names_are_seeds() -> None:
    graph = Graph.from_edges([0, 1], [1, 2], ids=["Ulm", "Bonn", "Jena"])
    sample = gw.sample_neighbors(graph, "Ulm", [1, 1])
    assert graph.ids.of(sample.nodes) == ["Ulm", "Bonn", "Jena"]


@pytest.mark.parametrize("wrong", [5, "1", [-2], [1.5], [2**31], None])
def test_wrong_fanouts(wrong: Any) -> None:
    with pytest.raises(InputError, match="fanouts must"):
        gw.sample_neighbors(generators.path(3), 0, wrong)


@needs_compiler
@given(data=st.data())
def test_emulated_gpus(gpus: Machine, data: st.DataObject) -> None:
    graph = data.draw(graphs())
    n = graph.vertex_count
    seeds = st.lists(st.integers(0, n - 1), max_size=5) if n else st.just([])
    fanouts = st.lists(st.integers(-1, 4), max_size=3)
    options = {"replace": data.draw(st.booleans()), "seed": data.draw(st.integers(0, 9))}
    gpus.seed = data.draw(st.integers(0, 9), "schedule")
    gpu = data.draw(st.sampled_from([None, ExperimentOptions(threads=64, blocks=3, slice_s=0)]))
    with gw.place(graph, ["cuda:0", "cuda:1"][: data.draw(st.integers(1, 2))]) as placed:
        for _ in range(2):  # the second sample finds what the first has left
            query = data.draw(seeds), data.draw(fanouts)
            found = gw.sample_neighbors(placed, *query, gpu=gpu, **options)
            assert found.statistics.devices == ("cuda:0",)
            check_as_on_cpus(graph, found, *query, **options)


@needs_compiler
def test_long_rows_and_many_vertices_on_emulated_gpus(gpus: Machine) -> None:
    star, wide = generators.star(1001), generators.rmat(9, 8, seed=1)
    for graph, seeds, fanouts in (
        (star, [0], [500, 3]),
        (star, [0], [-1]),
        (wide, range(0, 512, 3), [5, -1, 70]),
    ):
        for replace in (False, True):
            options = {"replace": replace, "seed": 5}
            found = gw.sample_neighbors(graph, seeds, fanouts, devices="cuda:1", **options)
            check_as_on_cpus(graph, found, seeds, fanouts, **options)


@needs_compiler
@pytest.mark.thorough
def test_no_races() -> None:
    graph = generators.rmat(7, 6, seed=1)
    with emulated_gpus(1, checks=True, seed=4):
        for replace in (False, True):
            found = gw.sample_neighbors(graph, range(9), [3, -1], replace=replace, devices="cuda:0")
            check_as_on_cpus(graph, found, range(9), [3, -1], replace=replace)


@pytest.mark.gpu
@needs_gpu
@on_endpoints
def test_gpus_sample_as_cpus(devices: Any) -> None:
    graph = generators.rmat(16, 16, seed=1)
    seeds = np.random.default_rng(1).integers(0, graph.vertex_count, 5000)
    with gw.place(graph, devices) as placed:
        for fanouts in ([15, 10, 5], [-1], [100, 2], []):
            for replace in (False, True):
                options = {"replace": replace, "seed": 3}
                found = gw.sample_neighbors(placed, seeds, fanouts, **options)
                check_as_on_cpus(graph, found, seeds, fanouts, **options)


@pytest.mark.gpu
@needs_gpu
def test_gpus_leave_samples_and_end_by_their_time() -> None:
    graph = generators.rmat(16, 16, seed=1)
    with gw.place(graph, "cuda:0") as placed:
        gpu = GpuOptions(slice_s=0)
        with pytest.raises(RunTimeoutError):
            gw.sample_neighbors(placed, range(5000), [15, 10], timeout_s=1e-6, gpu=gpu)
        left: Any = gw.sample_neighbors(placed, [3, 5], [4, 3], results="cuda")
        wanted = gw.sample_neighbors(placed, [3, 5], [4, 3])
    for name in ("nodes", "row", "col", "edges"):
        np.testing.assert_array_equal(getattr(left, name).get(), getattr(wanted, name))
