"""Whether results of gpu_steps.py are right: each is held against the CPU's, or against what must hold.

Betweenness from one source s, too slow on the CPU where graphs are large, is held against the CPU's BFS:
the dependencies of s on all vertices add up to the vertices between s and every other one,
``sum of (distance - 1)``, however many shortest paths there are.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

import godwit as gw
from gpu_paths import source_of
from gpu_steps_plans import Setting

CHECK_ITERATIONS = 5
"""Of PageRank on the CPU and on the devices, whose ranks must be equal then."""
L1_SLACK = 1e-5
RELATIVE_SLACK = 1e-5
TINY_TOLERANCE = 1e-30
"""Below what an iteration changes, so that there are as many as are allowed."""


class Reference:
    """What is known of a graph, from the CPU.

    :ivar source: the vertex that is searched from
    :ivar distance: (n) int32 from it
    """

    def __init__(self, name: str, graph: gw.Graph) -> None:
        self.graph = graph
        self.source = 0 if name == "path" else source_of(name, graph)
        found = gw.bfs(graph, self.source, devices="cpu")
        self.distance = found.distance
        self.reached = found.reached
        degree = graph.out_degree()
        self.facts: dict[str, int] = {
            "vertices": graph.vertex_count,
            "arcs": graph.arc_count,
            "with_arcs": int(np.count_nonzero(degree)),
            "reached": int(np.count_nonzero(self.reached)),
            "edges_reached": int(degree[self.reached].sum()) // 2,
            "depth": int(self.distance[self.reached].max()),
        }

    @cached_property
    def ranks(self) -> Any:
        """After so many iterations."""
        return gw.pagerank(
            self.graph, max_iterations=CHECK_ITERATIONS, tolerance=TINY_TOLERANCE, devices="cpu"
        ).rank

    @cached_property
    def dependencies(self) -> float:
        """The sum over all vertices of those of the source on them."""
        inner = self.distance[self.reached].astype(np.int64) - 1
        return float(inner[inner > 0].sum())

    def sources(self, count: int) -> list[int]:
        """So many vertices that have arcs, the source first."""
        others = np.flatnonzero(self.graph.out_degree())
        drawn = np.random.default_rng(1).permutation(others[others != self.source])[: count - 1]
        return [self.source, *drawn.tolist()]

    def centrality(self, count: int) -> Any:
        """From so many sources."""
        return gw.betweenness_centrality(
            self.graph, sources=self.sources(count), normalized=False, devices="cpu"
        ).centrality


def what_is_wrong(placed: gw.PlacedGraph, setting: Setting, result: Any, known: Reference) -> str:
    """Nothing, or what."""
    if setting.algorithm == "bfs":
        return _wrong_distances(result.distance, known.distance)
    if setting.algorithm == "pagerank":
        return _wrong_ranks(placed, setting, result, known)
    return _wrong_centrality(setting, result.centrality, known)


def _wrong_distances(distance: Any, wanted: Any) -> str:
    differ = np.flatnonzero(distance != wanted)
    if not len(differ):
        return ""
    v = int(differ[0])
    return f"{len(differ)} distances, first vertex {v}: {distance[v]} instead of {wanted[v]}"


def _wrong_ranks(placed: gw.PlacedGraph, setting: Setting, result: Any, known: Reference) -> str:
    total = float(result.rank.sum(dtype=np.float64))
    if not abs(total - 1) <= L1_SLACK:
        return f"ranks sum to {total}"
    early = gw.pagerank(
        placed, max_iterations=CHECK_ITERATIONS, tolerance=TINY_TOLERANCE, dtype=setting.dtype
    )
    if early.iterations != CHECK_ITERATIONS:
        return f"{early.iterations} iterations instead of {CHECK_ITERATIONS}"
    difference = float(np.abs(early.rank.astype(np.float64) - known.ranks).sum())
    return "" if difference <= L1_SLACK else f"ranks differ by {difference:.3g} (L1)"


def _wrong_centrality(setting: Setting, centrality: Any, known: Reference) -> str:
    strange = np.count_nonzero(~np.isfinite(centrality) | (centrality < 0))
    if strange:
        return f"{strange} vertices have no number, or a negative one"
    if setting.sources == 1:
        # The scale of one source: it stands for n - 1, and undirected pairs count once.
        scale = (known.graph.vertex_count - 1) / (1 if known.graph.directed else 2)
        found = float(centrality.sum(dtype=np.float64)) / scale
        gap = abs(found - known.dependencies)
        if gap <= RELATIVE_SLACK * max(1.0, known.dependencies):
            return ""
        return f"dependencies sum to {found:.9g} instead of {known.dependencies:.9g}"
    wanted = known.centrality(setting.sources)
    gap = float(np.abs(centrality - wanted).max())
    return (
        "" if gap <= RELATIVE_SLACK * float(wanted.max()) else f"centralities differ by {gap:.3g}"
    )
