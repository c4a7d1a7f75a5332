"""Samples of neighbourhoods: arcs of the graph, of the right numbers and distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit as gw
from godwit.algorithms.random_walks import neighbors
from godwit.errors import InputError
from godwit.graph import generators
from godwit.graph.csr import Graph
from graphs import forced_threads, graphs
from test_random_walks import assert_drawn


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
    monkeypatch.setattr(neighbors, "_FEW", few)
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
