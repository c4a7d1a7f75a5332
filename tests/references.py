"""Independent answers for small graphs: serial, obvious, with nothing of Godwit's engines in them."""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import Any

import networkx as nx
import numpy as np

from godwit.algorithms.betweenness.result import BetweennessResult
from godwit.algorithms.paths.result import PathResult
from godwit.graph.csr import Graph
from graphs import arcs_of

CLOSE: dict[str, float] = {"rtol": 1e-9, "atol": 1e-11}
"""Sums of fractions in another order."""


def dijkstra(graph: Graph, sources: list[int]) -> list[Any]:
    """Distances by Dijkstra's algorithm in Python numbers; None where not reached, or at infinity."""
    distance: list[Any] = [None] * graph.vertex_count
    heap: list[tuple[Any, int]] = [(0, source) for source in sources]
    while heap:
        length, vertex = heapq.heappop(heap)
        if distance[vertex] is not None:
            continue
        distance[vertex] = length
        for arc in range(graph.offsets[vertex], graph.offsets[vertex + 1]):
            weight = 1 if graph.weights is None else graph.weights[arc].item()
            if length + weight < math.inf:
                heapq.heappush(heap, (length + weight, int(graph.targets[arc])))
    return distance


def breadth_first(graph: Graph, sources: list[int]) -> list[int | None]:
    """Levels by a queue; None where not reached."""
    level: list[int | None] = [None] * graph.vertex_count
    for source in sources:
        level[source] = 0
    queue = deque(sources)
    while queue:
        vertex = queue.popleft()
        for target in graph.targets[graph.offsets[vertex] : graph.offsets[vertex + 1]]:
            if level[target] is None:
                level[target] = level[vertex] + 1  # type: ignore[operator]
                queue.append(int(target))
    return level


def as_list(distance: np.ndarray[Any, Any], unreached: Any) -> list[Any]:
    """Distances as Python numbers; None where not reached."""
    return [None if value == unreached else value for value in distance.tolist()]


def up_to_target(found: PathResult, target: int | None) -> np.ndarray[Any, Any]:
    """Distances of a search without a target as of one with it: farther vertices are not reached."""
    distance = found.distance
    if target is None:
        return distance
    return np.where(
        distance > distance[target], np.array(found.unreached, distance.dtype), distance
    )


def smallest_label(graph: Graph) -> list[int]:
    """The smallest vertex from which each is reached, itself included."""
    label = list(range(graph.vertex_count))
    changed = True
    while changed:
        changed = False
        for vertex in range(graph.vertex_count):
            for target in graph.targets[graph.offsets[vertex] : graph.offsets[vertex + 1]]:
                if label[vertex] < label[target]:
                    label[target] = label[vertex]
                    changed = True
    return label


def assert_networkx_agrees(
    found: BetweennessResult, other: Any, *, endpoints: bool, **asked: Any
) -> None:
    """Betweenness of vertices and arcs is NetworkX's.

    :param other: the graph as NetworkX has it
    :param asked: of both of NetworkX's functions
    """
    graph = found.graph
    expected = nx.betweenness_centrality(other, endpoints=endpoints, **asked)
    # NetworkX has NaN for the only source.
    wanted = [0.0 if math.isnan(expected[v]) else expected[v] for v in range(graph.vertex_count)]
    np.testing.assert_allclose(found.centrality, wanted, **CLOSE)
    edges = nx.edge_betweenness_centrality(other, **asked)
    by_arc = edges if graph.directed else edges | {(v, u): x for (u, v), x in edges.items()}
    wanted = [by_arc[u, v] for u, v, *_ in arcs_of(graph)]
    np.testing.assert_allclose(found.edge_centrality, wanted, **CLOSE)
