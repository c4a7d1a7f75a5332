"""Layouts: the local graphs, put together again, are the graph, and halos lead to their owners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from godwit.errors import GraphTooLargeError, InputError
from godwit.graph.csr import Graph
from godwit.graph.partition import Partition, partition
from godwit.graph.partition import halo as halo_module
from godwit.graph.partition import layout as layout_module
from godwit.graph.partition.layout import Layout, build_layout, layout_bytes
from graphs import each_graph, graphs, named_graph


def check_layout(layout: Layout, *, every: bool = False) -> None:
    graph, made = layout.graph, layout.partition
    assert len(layout.parts) == made.part_count
    id_dtype = graph.targets.dtype
    arcs_seen = 0
    for p, local in enumerate(layout.parts):
        assert local.part == p
        np.testing.assert_array_equal(local.vertices, np.flatnonzero(made.owner == p))
        assert local.offsets.dtype == np.int64
        assert local.halo_owner.dtype == np.int32
        for ids in (local.vertices, local.targets, local.halo_vertices, local.halo_remote):
            assert ids.dtype == id_dtype
        for array in (local.vertices, local.offsets, local.targets, local.halo_owner):
            assert not array.flags.writeable
            assert array.flags.c_contiguous

        assert local.offsets[0] == 0
        assert local.offsets[-1] == len(local.targets) == local.arc_count
        assert (local.weights is None) == (graph.weights is None)
        global_ids = np.concatenate([local.vertices, local.halo_vertices])
        for i, v in enumerate(local.vertices):
            mine = slice(local.offsets[i], local.offsets[i + 1])
            whole = slice(graph.offsets[v], graph.offsets[v + 1])
            np.testing.assert_array_equal(global_ids[local.targets[mine]], graph.targets[whole])
            if graph.weights is not None and local.weights is not None:
                assert local.weights.dtype == graph.weights.dtype
                np.testing.assert_array_equal(local.weights[mine], graph.weights[whole])
        arcs_seen += local.arc_count

        halo = list(zip(local.halo_owner.tolist(), local.halo_vertices.tolist(), strict=True))
        assert halo == sorted(set(halo))
        assert p not in local.halo_owner
        used = local.targets[local.targets >= local.vertex_count] - local.vertex_count
        if every and len(layout.parts) > 1:
            assert local.halo_count == graph.vertex_count - local.vertex_count
        else:
            assert set(used.tolist()) == set(range(local.halo_count))
        for owner, v, remote in zip(
            local.halo_owner, local.halo_vertices, local.halo_remote, strict=True
        ):
            assert layout.parts[owner].vertices[remote] == v
    assert arcs_seen == graph.arc_count
    for v in range(graph.vertex_count):
        part, index = layout.owner[v], layout.local_index[v]
        assert layout.parts[part].vertices[index] == v


@each_graph
@pytest.mark.parametrize("method", ["contiguous", "random", "biased-random", "metis"])
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_local_graphs_make_up_the_graph(name: str, method: str, parts: int) -> None:
    graph = named_graph(name)
    division = partition(graph, parts, method, seed=11)
    check_layout(build_layout(graph, division))
    check_layout(build_layout(graph, division, duplication="all"), every=True)


@settings(max_examples=80, deadline=None)
@given(graphs(min_vertices=1, max_vertices=150, max_arcs=200), st.data())
def test_any_owners_and_any_number_of_threads(graph: Graph, data: Any) -> None:
    n = graph.vertex_count
    parts = data.draw(st.integers(1, 9))
    owner = data.draw(st.lists(st.integers(0, parts - 1), min_size=n, max_size=n))
    if data.draw(st.booleans()):
        owner.sort()
    threads = data.draw(st.integers(1, 4))
    made = partition(graph, parts, owner)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout_module, "thread_count_for", lambda arcs: threads)
        patch.setattr(halo_module, "thread_count_for", lambda arcs: threads)
        layout = build_layout(graph, made)
    check_layout(layout)
    halos = [local.halo_count for local in layout.parts]
    np.testing.assert_array_equal(made.border.sum(axis=1), halos)


def test_many_arcs_on_the_whole_team() -> None:
    generator = np.random.default_rng(4)
    sources, targets = generator.integers(0, 3000, (2, 120_000))
    graph = Graph.from_edges(sources, targets, generator.random(120_000), vertex_count=3000)
    for method in ("contiguous", "random"):
        check_layout(build_layout(graph, partition(graph, 3, method)))


def test_one_part_is_the_graph_itself() -> None:
    graph = named_graph("random directed")
    (local,) = build_layout(graph, partition(graph, 1)).parts
    assert local.offsets is graph.offsets
    assert local.targets is graph.targets
    assert local.weights is graph.weights
    assert local.halo_count == 0


def test_ranges_share_the_weights() -> None:
    graph = named_graph("random directed")
    for local in build_layout(graph, partition(graph, 4)).parts:
        assert np.shares_memory(local.weights, graph.weights)


@pytest.mark.parametrize("method", ["contiguous", "random"])
@pytest.mark.parametrize("parts", [1, 4])
def test_values_are_scattered_and_gathered(method: str, parts: int) -> None:
    graph = named_graph("random undirected")
    layout = build_layout(graph, partition(graph, parts, method))
    values = np.random.default_rng(1).random(graph.vertex_count)
    scattered = layout.scatter(values)
    for local, of_part in zip(layout.parts, scattered, strict=True):
        np.testing.assert_array_equal(of_part, values[local.vertices])
    np.testing.assert_array_equal(layout.gather(scattered), values)


@pytest.mark.parametrize("name", ["random directed", "random undirected", "64-bit ids", "star"])
@pytest.mark.parametrize("method", ["contiguous", "random"])
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_the_estimate_covers_what_a_layout_takes(name: str, method: str, parts: int) -> None:
    graph = named_graph(name)
    made = partition(graph, parts, method)
    layout = build_layout(graph, made)
    estimate = layout_bytes(
        graph,
        parts,
        contiguous=made.boundaries is not None,
        halo_count=made.border_vertices,
    )
    own = layout.nbytes
    for local in layout.parts:
        for array, source in (
            (local.offsets, graph.offsets),
            (local.targets, graph.targets),
            (local.weights, graph.weights),
        ):
            if array is not None and source is not None and np.shares_memory(array, source):
                own -= array.nbytes
    assert own <= estimate <= 4 * layout.nbytes + 2048


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = named_graph("path")
    made = partition(graph, 2)
    monkeypatch.setenv("GODWIT_MEMORY_BYTES", "1000")
    with pytest.raises(GraphTooLargeError, match="300 vertices and 598 arcs out over 2 parts"):
        build_layout(graph, made)


def test_a_partition_of_another_graph_is_refused() -> None:
    made = partition(named_graph("path"), 2)
    with pytest.raises(InputError, match="is of 300 vertices, and the graph has 204"):
        build_layout(named_graph("grid"), made)


def test_the_partition_of_a_graph_of_other_arcs_keeps_its_own_measures() -> None:
    first = Graph.from_edges([0, 1, 2], [3, 3, 3], vertex_count=4)
    second = Graph.from_edges([0], [1], vertex_count=4)
    made: Partition = partition(first, 2, [0, 0, 1, 1])
    check_layout(Layout(second, made, build_layout(second, made).parts))
    assert made.cut_arcs == 2
