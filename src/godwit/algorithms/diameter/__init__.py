"""Bounds of the diameter by a few breadth-first searches.

The largest distance from any vertex v, its eccentricity e(v), bounds the diameter from below by e(v)
and from above by 2 e(v). A search from a vertex that lies farthest from another finds long distances
(double sweep), one from the middle of the path between them small ones. Source: C. Magnien, M. Latapy,
M. Habib, Fast computation of empirically tight bounds for the diameter of massive graphs, Journal of
Experimental Algorithmics 13 (2009).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from godwit.algorithms.bfs import run_bfs
from godwit.algorithms.paths.result import PathResult
from godwit.dtypes import Array
from godwit.errors import InputError
from godwit.graph.build import SMALL_ARCS
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph
from godwit.placement import place_for_one_query
from godwit.public import public
from godwit.runtime.registry import DevicesArgument
from godwit.worker.options import SolverOptions

_SWEEPS = 4


@dataclass(frozen=True)
class DiameterBounds:
    """Bounds of the diameter of the largest component, in edges."""

    lower: int
    upper: int
    searches: int
    """Number of breadth-first searches."""


@public
def diameter_bounds(graph: Graph, *, devices: DevicesArgument = None) -> DiameterBounds:
    """Return bounds of the diameter of the largest weakly connected component, ignoring directions.

    >>> import godwit as gw
    >>> bounds = gw.diameter_bounds(gw.generators.path(4))
    >>> bounds.lower, bounds.upper
    (3, 4)

    :param devices: as for :func:`godwit.bfs`
    :raises InputError: the graph has no vertices, or is no graph
    """
    if not isinstance(graph, Graph):
        raise not_a_graph(graph)
    if graph.vertex_count == 0:
        raise InputError("a graph without vertices has no diameter")
    component = graph.without_weights().symmetrize().largest_component()
    component = component.with_ids(0)  # sources below are numbers
    if devices is None and component.arc_count <= SMALL_ARCS:
        return _bounds(component, partial(_small_search, component))
    with place_for_one_query(component, devices, None) as placed:
        return _bounds(
            component, lambda start: _search(run_bfs(placed, start, options=SolverOptions()))
        )


class _Search(NamedTuple):
    """Distances from a vertex, int (n), and a function that returns the path to a vertex."""

    distance: Array
    path_to: Callable[[int], list[int]]


def _search(result: PathResult) -> _Search:
    return _Search(result.distance, result.path_to)


def _small_search(graph: Graph, start: int) -> _Search:
    """Search a connected graph by SciPy, which needs no compilation."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    shortest: Any = dijkstra  # its stubs have no case of one source

    n, rows = graph.vertex_count, graph.rows
    matrix = csr_array((np.ones(graph.arc_count, np.int8), rows.targets, rows.offsets), (n, n))
    found: Any = shortest(matrix, unweighted=True, indices=start)
    distance = found.astype(np.int64)

    def path_to(vertex: int) -> list[int]:
        path = [vertex]
        while path[-1] != start:
            neighbors = rows.targets[rows.offsets[path[-1]] : rows.offsets[path[-1] + 1]]
            path.append(int(neighbors[distance[neighbors] == distance[path[-1]] - 1].min()))
        return path[::-1]

    return _Search(distance, path_to)


def _bounds(component: Graph, search: Callable[[int], _Search]) -> DiameterBounds:
    """Return the bounds of a connected graph that a few searches find."""
    lower, upper, searches = 0, 2 * (component.vertex_count - 1), 0
    start = component.highest_degree_vertex()
    while searches < 2 * _SWEEPS and lower < upper:
        first = search(start)
        far = int(first.distance.argmax())
        second = search(far)
        farthest = int(second.distance.argmax())
        radius, length = int(first.distance[far]), int(second.distance[farthest])
        searches += 2
        progressed = length > lower or 2 * radius < upper
        lower = max(lower, radius, length)
        upper = min(upper, 2 * radius, 2 * length)
        if not progressed:
            break
        path = second.path_to(farthest)
        start = path[len(path) // 2]
    return DiameterBounds(lower, max(lower, upper), searches)
