"""Bounds of the diameter by a few breadth-first searches.

The largest distance from any vertex v, its eccentricity e(v), bounds the diameter from below by e(v)
and from above by 2 e(v). A search from a vertex that lies farthest from another finds long distances
(double sweep), one from the middle of the path between them small ones. Source: C. Magnien, M. Latapy,
M. Habib, Fast computation of empirically tight bounds for the diameter of massive graphs, Journal of
Experimental Algorithmics 13 (2009).
"""

from __future__ import annotations

from dataclasses import dataclass

from godwit.algorithms.bfs import run_bfs
from godwit.errors import InputError
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

    :param devices: as for :func:`godwit.bfs`
    :raises InputError: the graph has no vertices, or is no graph
    """
    if not isinstance(graph, Graph):
        raise not_a_graph(graph)
    if graph.vertex_count == 0:
        raise InputError("a graph without vertices has no diameter")
    component = graph.without_weights().symmetrize().largest_component()
    component = component.with_ids(0)  # sources below are numbers
    options = SolverOptions()
    lower, upper, searches = 0, 2 * (component.vertex_count - 1), 0
    with place_for_one_query(component, devices, None) as placed:
        start = component.highest_degree_vertex()
        while searches < 2 * _SWEEPS and lower < upper:
            first = run_bfs(placed, start, options=options)
            far = int(first.distance.argmax())
            second = run_bfs(placed, far, options=options)
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
