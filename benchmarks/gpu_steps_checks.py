"""Whether results of gpu_steps.py are right: each is held against the CPU's, or against what must hold.

Betweenness from one source s, too slow on the CPU where graphs are large, is held against the CPU's BFS:
the dependencies of s on all vertices add up to the vertices between s and every other one,
``sum of (distance - 1)``, however many shortest paths there are. Components are SciPy's. A greedy
colouring, too slow on the CPU as well, has a proof that is quick: neighbours differ, and of each smaller
colour than its own, a vertex has a neighbour whose turn was earlier; given the turns, there is one such
colouring.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numba import njit

import godwit as gw
from godwit.errors import RunTimeoutError
from gpu_paths import source_of
from gpu_steps_plans import PUSHED, RANKS_TO, STEP_LEVELS, UNIONS, Setting
from gpu_steps_queries import TINY_TOLERANCE
from greedy_colouring import default_ranks
from k_core import K_CORE

CHECK_ITERATIONS = 5
"""Of PageRank on the CPU and on the devices, whose ranks must be equal then."""
L1_SLACK = 1e-5
RELATIVE_SLACK = 1e-5
MOST_OF_SCIPY = 1 << 31
"""Arcs."""
REFERENCE_S = 120.0
"""What takes the CPU longer is not checked."""


class UncheckedError(Exception):
    """The CPU has no result to compare with."""


class Reference:
    """What is known of a graph, from the CPU.

    :ivar source: the vertex that is searched from
    :ivar distance: (n) int32 from it
    :ivar frontier_items: room of a queue that was enough in an earlier run, by devices
    """

    def __init__(self, name: str, graph: gw.Graph) -> None:
        self.graph = graph
        self.frontier_items: dict[str, int] = {}
        self.source = 0 if name == "path" else source_of(name, graph)
        found = gw.bfs(graph, self.source, devices="cpu")
        self.distance = found.distance
        self.reached = found.reached
        degree = graph.out_degree()
        self.facts: dict[str, int] = {
            "vertices": graph.vertex_count,
            "arcs": graph.arc_count,
            "graph_bytes": graph.nbytes,
            "with_arcs": int(np.count_nonzero(degree)),
            "reached": int(np.count_nonzero(self.reached)),
            "edges_reached": int(degree[self.reached].sum()) // 2,
            "depth": int(self.distance[self.reached].max()),
        }

    @cached_property
    def ranks(self) -> Any:
        """After so many iterations."""
        return gw.pagerank(
            self.graph,
            max_iterations=CHECK_ITERATIONS,
            tolerance=TINY_TOLERANCE,
            accelerated=False,
            devices="cpu",
        ).rank

    @cached_property
    def last_ranks(self) -> Any:
        """After so many that more would change little."""
        return gw.pagerank(self.graph, tolerance=1e-9, devices="cpu").rank

    @cached_property
    def dependencies(self) -> float:
        """The sum over all vertices of those of the source on them."""
        inner = self.distance[self.reached].astype(np.int64) - 1
        return float(inner[inner > 0].sum())

    @cached_property
    def weighted(self) -> gw.Graph:
        """The graph with weights 1..64."""
        return self.graph.with_random_weights(1, 64, seed=1)

    @cached_property
    def weighted_distance(self) -> Any:
        """From the source, by these."""
        return gw.sssp(self.weighted, self.source, devices="cpu").distance

    @cached_property
    def smallest_labels(self) -> Any:
        """The smallest vertex of every vertex's component: SciPy's, or the CPU's of a large graph."""
        if self.graph.arc_count > MOST_OF_SCIPY:
            return gw.connected_components(self.graph, devices="cpu").label
        from scipy.sparse.csgraph import connected_components

        _, labels = connected_components(self.graph.to_scipy(merge="min"), directed=False)
        _, first = np.unique(labels, return_index=True)
        return first[labels]

    @cached_property
    def cores(self) -> Any:
        """Core numbers; None where that takes too long."""
        try:
            found = K_CORE.run(self.graph, devices="cpu", timeout_s=REFERENCE_S)
        except RunTimeoutError:
            return None
        return found.fields["core"]

    @cached_property
    def colouring_ranks(self) -> Any:
        """Who comes first."""
        return default_ranks(self.graph)

    def sources(self, count: int) -> list[int]:
        """So many vertices that have arcs, the source first."""
        others = np.flatnonzero(self.graph.out_degree())
        drawn = np.random.default_rng(1).permutation(others[others != self.source])[: count - 1]
        return [self.source, *drawn.tolist()]

    def centrality(self, count: int) -> Any:
        """From so many sources."""
        return gw.betweenness_centrality(
            self.graph, sources=self.sources(count), normalized=False, weighted=False, devices="cpu"
        ).centrality


def what_is_wrong(placed: gw.PlacedGraph, setting: Setting, result: Any, known: Reference) -> str:
    """Nothing, or what.

    :raises UncheckedError: there is nothing to compare with
    """
    algorithm = setting.algorithm
    if algorithm in ("bfs", PUSHED):
        return _difference(result.distance, known.distance, "distances")
    if algorithm in STEP_LEVELS:
        return _difference(result.fields["level"], known.distance, "levels")
    if algorithm == "sssp":
        return _difference(result.distance, known.weighted_distance, "distances")
    if algorithm == "labels":
        return _difference(result.values, known.smallest_labels, "labels")
    if algorithm in UNIONS:
        return _difference(result.label, known.smallest_labels, "labels")
    if algorithm == "components":
        return _difference(result.fields["label"], known.smallest_labels, "labels")
    if algorithm == "k-core":
        if known.cores is None:
            raise UncheckedError(f"the CPU takes more than {REFERENCE_S:g} s")
        return _difference(result.fields["core"], known.cores, "core numbers")
    if algorithm == "colouring":
        return _wrong_colours(known, result.fields["colour"])
    if algorithm == "pagerank":
        return _wrong_ranks(placed, setting, result, known)
    if algorithm in RANKS_TO:
        return _wrong_last_ranks(result, known)
    return _wrong_centrality(setting, result.centrality, known)


def _difference(found: Any, wanted: Any, what: str) -> str:
    differ = np.flatnonzero(found != wanted)
    if not len(differ):
        return ""
    v = int(differ[0])
    return f"{len(differ)} {what}, first vertex {v}: {found[v]} instead of {wanted[v]}"


def _wrong_colours(known: Reference, colour: Any) -> str:
    graph = known.graph
    if not 0 <= int(colour.min(initial=0)) <= int(colour.max(initial=0)) < graph.vertex_count:
        return "colours out of range"
    wrong = _first_wrong_colour(graph.offsets, graph.targets, known.colouring_ranks, colour)
    if wrong < 0:
        return ""
    return (
        f"colour {colour[wrong]} of vertex {wrong} is a neighbour's, or not the first that is free"
    )


@njit(cache=False)
def _first_wrong_colour(offsets: Any, targets: Any, rank: Any, colour: Any) -> int:
    """A vertex whose colour is a neighbour's, or not the first that those before it have left; or -1."""
    seen = np.full(offsets.size, -1, np.int64)  # by colour, who has seen it last
    for v in range(offsets.size - 1):
        smaller = 0
        for arc in range(offsets[v], offsets[v + 1]):
            other = targets[arc]
            if colour[other] == colour[v]:
                return v
            is_new = rank[other] > rank[v] and seen[colour[other]] != v
            if is_new and colour[other] < colour[v]:
                smaller += 1
                seen[colour[other]] = v
        if smaller != colour[v]:
            return v
    return -1


def _wrong_ranks(placed: gw.PlacedGraph, setting: Setting, result: Any, known: Reference) -> str:
    total = float(result.rank.sum(dtype=np.float64))
    if not abs(total - 1) <= L1_SLACK:
        return f"ranks sum to {total}"
    early = gw.pagerank(
        placed,
        max_iterations=CHECK_ITERATIONS,
        tolerance=TINY_TOLERANCE,
        accelerated=False,
        dtype=setting.dtype,
    )
    if early.iterations != CHECK_ITERATIONS:
        return f"{early.iterations} iterations instead of {CHECK_ITERATIONS}"
    difference = float(np.abs(early.rank.astype(np.float64) - known.ranks).sum())
    return "" if difference <= L1_SLACK else f"ranks differ by {difference:.3g} (L1)"


def _wrong_last_ranks(result: Any, known: Reference) -> str:
    if not result.converged:
        return f"not converged after {result.iterations} iterations"
    difference = float(np.abs(result.rank.astype(np.float64) - known.last_ranks).sum())
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
