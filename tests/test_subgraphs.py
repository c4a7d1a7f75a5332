"""Induced subgraphs, neighborhoods and other small questions to a graph, against NetworkX."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
from godwit.errors import InputError
from godwit.graph.csr import Graph
from graphs import arcs_of, each_graph, forced_threads, graphs, named_graph

NAMES = [f"v{number}" for number in range(40)]


@st.composite
def vertex_lists(draw: Any, graph: Graph) -> list[int]:
    """Some vertices in any order, perhaps with repetitions."""
    vertices = st.integers(0, graph.vertex_count - 1)
    return draw(st.lists(vertices, max_size=30)) if graph.vertex_count else []  # type: ignore[no-any-return]


@given(data=st.data(), graph=graphs(), threads=st.sampled_from([1, 3]))
def test_subgraphs_have_the_arcs_between_their_vertices(
    data: Any, graph: Graph, threads: int
) -> None:
    vertices = data.draw(vertex_lists(graph))
    with forced_threads(threads):
        part = graph.subgraph(vertices)
    kept = sorted(set(vertices))
    assert list(part.ids) == kept
    assert part.directed == graph.directed
    assert part.targets.dtype == graph.targets.dtype
    number = {vertex: i for i, vertex in enumerate(kept)}
    expected = [
        (number[s], number[t], *weight)
        for s, t, *weight in arcs_of(graph)
        if s in number and t in number
    ]
    assert arcs_of(part) == expected
    if part.is_weighted:
        assert part.weights is not None
        assert graph.weights is not None
        assert part.weights.dtype == graph.weights.dtype


@given(data=st.data(), graph=graphs(min_vertices=1), hops=st.integers(0, 5))
@pytest.mark.parametrize("threads", [1, 3])
def test_neighborhoods_are_those_of_networkx(
    data: Any, graph: Graph, hops: int, threads: int
) -> None:
    vertices = data.draw(vertex_lists(graph))
    with forced_threads(threads):
        found = graph.neighborhood(vertices, hops)
    reference = graph.to_networkx()
    expected = {
        vertex
        for source in vertices
        for vertex in nx.single_source_shortest_path_length(reference, source, hops)
    }
    assert found == sorted(expected)


@each_graph
def test_ego_graphs(name: str) -> None:
    graph = named_graph(name).merge_parallel_arcs()
    reference = graph.to_networkx()
    for vertex in range(0, graph.vertex_count, 37):
        part = graph.subgraph(graph.neighborhood(vertex, 2)).to_networkx()
        expected = nx.ego_graph(reference, vertex, 2)
        assert list(part.nodes) == sorted(expected.nodes)
        assert nx.utils.graphs_equal(part, expected)


@each_graph
def test_neighbors_degrees_and_weights_are_those_of_networkx(name: str) -> None:
    graph = named_graph(name)
    reference = graph.to_networkx()
    is_multiple = reference.is_multigraph()
    matrix = graph.to_scipy(merge="first")
    degrees = graph.in_degree()
    np.testing.assert_array_equal(degrees, graph.reverse.out_degree())
    assert degrees.dtype == np.int64
    for vertex in range(graph.vertex_count):
        neighbors = graph.neighbors(vertex)
        assert neighbors == sorted(reference.neighbors(vertex))
        assert neighbors == sorted(matrix.indices[slice(*matrix.indptr[vertex : vertex + 2])])
        assert graph.reverse.neighbors(vertex) == (
            sorted(reference.predecessors(vertex)) if graph.directed else neighbors
        )
        for other in neighbors:
            edges = reference[vertex][other]
            edges = edges.values() if is_multiple else [edges]
            weight = graph.edge_weight(vertex, other)
            assert weight == min(edge.get("weight", 1) for edge in edges)
            assert type(weight) in (int, float)


def test_vertices_are_by_id() -> None:
    graph = Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 1], [1.5, 2.5, 3.5, 4.5], ids=NAMES[:4])
    part = graph.subgraph(pd.Series(["v3", "v1", "v3"]))
    assert list(part.ids) == ["v1", "v3"]
    assert part.edge_weight("v3", "v1") == 4.5
    assert list(graph.subgraph("v2").ids) == ["v2"]
    assert graph.neighborhood("v0") == ["v0", "v1"]
    assert graph.neighborhood({"v0", "v3"}, 1) == ["v0", "v1", "v3"]
    assert graph.neighbors("v2") == ["v3"]
    assert graph.subgraph(NAMES[:4]) is not None
    assert list(part.subgraph("v3").ids) == ["v3"]


def test_a_subgraph_of_a_subgraph_keeps_the_first_graphs_vertices() -> None:
    graph = gw.generators.grid(5, 6)
    part = graph.subgraph(range(10, 25)).subgraph([20, 14, 13])
    assert list(part.ids) == [13, 14, 20]
    assert part.neighbors(14) == [13, 20]
    assert gw.bfs(part, 13, devices="cpu").to_dict() == {13: 0, 14: 1, 20: 2}
    assert graph.subgraph(range(30)) is graph
    assert graph.subgraph([]).vertex_count == 0


def test_large_subgraphs_and_neighborhoods() -> None:
    graph = gw.generators.rmat(14, 16, seed=1, weights=(1, 64))
    vertices = np.flatnonzero(graph.out_degree() % 3 == 1)
    matrix = graph.to_scipy()[vertices][:, vertices]
    part = graph.subgraph(vertices)
    assert (part.to_scipy() != matrix).nnz == 0
    distance = gw.bfs(graph, 5, devices="cpu").distance
    for hops in (1, 2, 3):
        assert graph.neighborhood(5, hops) == np.flatnonzero(distance <= hops).tolist()


def test_the_component_of_a_connected_graph_is_the_graph() -> None:
    connected = named_graph("grid")
    assert connected.largest_component() is connected
    apart = named_graph("two components")
    component = apart.largest_component()
    assert list(component.ids) == [4, 5, 6, 7]
    assert component.neighbors(5) == [4, 6]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda graph: graph.subgraph([0, 9]), r"vertices must be in \[0, 4\), got 9"),
        (lambda graph: graph.subgraph(np.ones(4, bool)), "vertices must be a vertex or a list"),
        (lambda graph: graph.subgraph(None), "vertices must be a vertex or a list"),
        (lambda graph: graph.neighborhood(0, -1), "hops must not be negative"),
        (lambda graph: graph.neighborhood(0, 1.5), "hops must be an integer"),
        (lambda graph: graph.neighbors(4), r"vertex must be in \[0, 4\), got 4"),
        (lambda graph: graph.neighbors("x"), "vertex must be an integer"),
        (lambda graph: graph.edge_weight(0, 3), "there is no arc from 0 to 3"),
        (lambda graph: graph.edge_weight(0, 4), r"target must be in \[0, 4\), got 4"),
    ],
)
def test_wrong_arguments(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(Graph.from_edges([0, 1, 2], [1, 2, 3]))
