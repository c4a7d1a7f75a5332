"""The guess at how many levels a search has."""

from __future__ import annotations

import numpy as np
import pytest

import godwit as gw
from godwit.graph.depth import likely_levels


@pytest.mark.parametrize(
    "spec",
    [
        "path:20000", "caterpillar:3000x3", "grid:4x3000", "grid:100x100", "road:150x150", "star:500",
        "watts-strogatz:5000", "complete:100", "rmat:12,seed=1", "binary-tree:5000", "path:30",
    ],
)  # fmt: skip
def test_is_of_the_right_size(spec: str) -> None:
    """Within a factor of 8 of the depth from the vertex of highest degree."""
    graph = gw.generate(spec)
    levels = gw.bfs(graph, graph.highest_degree_vertex(), devices="cpu").statistics.levels
    assert levels / 8 <= likely_levels(graph) <= 8 * levels


def test_a_long_path_from_a_hub_in_a_much_larger_graph() -> None:
    """The number of vertices grows that little after the first level that nothing follows from it."""
    hub, leaves, path = 100_000, 14_000, 100
    near = np.arange(0, hub, 2)
    ends = [
        (near, near + 1),
        (np.full(leaves, hub), hub + 1 + np.arange(leaves)),
        (np.full(1, hub), np.full(1, hub + 1 + leaves)),
        (hub + leaves + np.arange(1, path), hub + leaves + np.arange(2, path + 1)),
        (hub + leaves + path + 1 + near, hub + leaves + path + 2 + near),
    ]
    sources, targets = (np.concatenate(side) for side in zip(*ends, strict=True))
    graph = gw.Graph.from_edges(sources, targets)
    assert path <= likely_levels(graph) <= graph.vertex_count


def test_nothing_to_search() -> None:
    assert likely_levels(gw.Graph.from_edges([], [], vertex_count=3)) == 1
    assert likely_levels(gw.Graph(np.zeros(1, np.int64), np.zeros(0, np.int32))) == 1
