"""Bounds of the diameter enclose it, and do not depend on how a small graph is searched."""

from __future__ import annotations

import networkx as nx
from hypothesis import given, settings

import godwit as gw
from godwit.graph.csr import Graph
from graphs import graphs


@settings(max_examples=settings().max_examples // 2)
@given(graphs(min_vertices=1))
def test_bounds_enclose_the_diameter(graph: Graph) -> None:
    drawn = nx.Graph(graph.without_weights().with_ids(0).to_networkx().to_undirected())
    sizes = {len(part) for part in nx.connected_components(drawn)}
    true = {
        nx.diameter(drawn.subgraph(part))
        for part in nx.connected_components(drawn)
        if len(part) == max(sizes)
    }
    found = gw.diameter_bounds(graph)
    assert any(found.lower <= value <= found.upper for value in true)
    assert found == gw.diameter_bounds(graph, devices="cpu")


def test_paths_have_tight_bounds() -> None:
    found = gw.diameter_bounds(gw.generators.path(100))
    assert found.lower == 99
    assert found.upper <= 100
