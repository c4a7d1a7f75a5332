"""Verifiers of distances and predecessors: Graph500's rules for BFS and SSSP.

Together they are sufficient:

- every source is at distance 0, and nothing is at a negative distance or at NaN;
- no arc leads from a reached vertex to one that is farther away than that vertex plus the arc (so no
  distance is too large, and every reachable vertex is reached);
- every reached vertex except the sources is the head of a *tight* arc, whose sum is its distance, and
  following tight arcs back leads to a source (so no distance is too small; that the way back ends must be
  checked if arcs have length zero);
- the arc from the predecessor of a vertex, if predecessors are given, exists and is tight; following
  predecessors leads to a source; unreached vertices and sources have none.

With a cutoff, sums beyond it are exempt from the second rule, and no distance may exceed it. A search that
stopped at a target is verified with the target's distance as cutoff.

Integers are compared exactly. Floating-point sums, in the dtype of the distances as in the engines, may
differ by :data:`RELATIVE_SLACK`, for distances computed elsewhere in another order. With slack, a way back
along falling distances need not end: two vertices a rounding apart could support each other. Where exact
sums do not explain every distance, tight arcs are therefore followed from the sources.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from godwit.algorithms.checks import arc_blocks, check_graph, checked_array, fail, first_true
from godwit.algorithms.paths.result import PathResult, check_cutoff
from godwit.dtypes import Array
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.ids import Sources

RELATIVE_SLACK = 1e-12
"""Largest relative difference of floating-point distances that count as equal."""


def verify_bfs(
    graph: Graph,
    sources: Sources | PathResult,
    distance: Array | None = None,
    predecessor: Array | None = None,
    *,
    cutoff: float | None = None,
) -> None:
    """Check distances in arcs from the nearest source, regardless of weights.

    >>> import godwit as gw
    >>> graph = gw.generators.star(5)
    >>> gw.verify_bfs(graph, gw.bfs(graph, 0))

    :param sources: a vertex, or several, by id (:attr:`Graph.ids`); or a result, whose sources, distances
        and predecessors are checked
    :param distance: (n); the largest value of an integer dtype, or infinity, marks the unreached
    :param predecessor: (n), -1 for sources and the unreached; None if there are none to check
    :param cutoff: vertices farther away were to be left unreached
    :raises VerificationError: naming a vertex or an arc that breaks a rule
    :raises InputError: the arrays have a wrong shape or dtype, or there are none
    """
    arrays = _arrays(sources, distance, predecessor)
    _Verifier(graph, *arrays, cutoff, unit_lengths=True).verify()


def verify_sssp(
    graph: Graph,
    sources: Sources | PathResult,
    distance: Array | None = None,
    predecessor: Array | None = None,
    *,
    cutoff: float | None = None,
) -> None:
    """Check lengths of shortest paths from the nearest source; arcs without weights have length 1.

    Parameters and errors as those of :func:`verify_bfs`; a result of ``weighted=False`` counts arcs.
    """
    arrays = _arrays(sources, distance, predecessor)
    counts_arcs = isinstance(sources, PathResult) and sources.unit_lengths
    unit_lengths = counts_arcs or (isinstance(graph, Graph) and graph.weights is None)
    _Verifier(graph, *arrays, cutoff, unit_lengths=unit_lengths).verify()


def _arrays(
    sources: Sources | PathResult, distance: Array | None, predecessor: Array | None
) -> tuple[Any, Array, Array | None]:
    """Return sources, distances and predecessors, which a result has.

    :raises InputError: there are no distances, or those of a result and others
    """
    if not isinstance(sources, PathResult):
        if distance is None:
            raise InputError("distance must be an array, or sources a result, got neither")
        return sources, distance, predecessor
    if distance is not None or predecessor is not None:
        raise InputError("a result has distances and predecessors: give no others beside it")
    return sources.sources, sources.distance, sources.predecessor


class _Verifier:
    def __init__(
        self,
        graph: Graph,
        sources: Any,
        distance: Array,
        predecessor: Array | None,
        cutoff: float | None,
        *,
        unit_lengths: bool,
    ) -> None:
        check_graph(graph)
        n = graph.vertex_count
        self.graph = graph
        self.sources = graph.ids.one_or_several(sources, "sources", or_none=True)
        self.distance = checked_array(distance, n, "distance", "if")
        self.predecessor = (
            None if predecessor is None else checked_array(predecessor, n, "predecessor", "i")
        )
        self.cutoff = check_cutoff(cutoff)
        self.unit_lengths = unit_lengths
        self.floating = self.distance.dtype.kind == "f"
        if not self.floating and self.cutoff is not None:
            # As an integer: 64 bits are compared with floats by rounding.
            self.cutoff = None if self.cutoff == math.inf else math.floor(self.cutoff)
        limit = np.inf if self.floating else np.iinfo(self.distance.dtype).max
        self.unreached = self.distance.dtype.type(limit)
        self.reached = self.distance != self.unreached
        self.comparable = self.distance  # as sums are, for distances known not to be negative
        self.is_source = np.zeros(n, np.bool_)
        self.is_source[self.sources] = True

    def verify(self) -> None:
        """Check all rules."""
        self.check_values()
        if not self.floating:
            self.comparable = self.distance.astype(np.uint64)
        # Vertices whose way back to a source ends: by exact sums from nearer vertices, as distances cannot
        # fall for ever. The others are checked by a search.
        supported = self.is_source.copy()
        distance = self.comparable
        has_tight_arc = np.zeros_like(supported)
        level_arcs = []
        for tails, heads, lengths in self.blocks():
            sums = self.add(distance[tails], lengths)
            self.check_not_too_far(tails, heads, sums)
            exact = sums == distance[heads]
            near, far = tails[exact], heads[exact]
            falls = distance[near] < distance[far]
            supported[far[falls]] = True
            level_arcs.append(self.as_ids(near[~falls], far[~falls]))
            if self.predecessor is not None:
                chosen = self.predecessor[heads] == tails
                tight = self.is_tight(sums[chosen], distance[heads[chosen]])
                has_tight_arc[heads[chosen][tight]] = True
        self.check_support(supported, level_arcs)
        if self.predecessor is not None:
            self.check_predecessors(has_tight_arc)

    def as_ids(self, tails: Array, heads: Array) -> tuple[Array, Array]:
        """Return arcs in the dtype of the graph's ids."""
        ids = self.graph.targets.dtype
        return tails.astype(ids), heads.astype(ids)

    def blocks(self) -> Iterator[tuple[Array, Array, Any]]:
        """Yield the arcs that leave reached vertices in blocks of rows: tails, heads, lengths."""
        for tails, arcs in arc_blocks(self.graph):
            kept = self.reached[tails]
            heads = self.graph.targets[arcs][kept].astype(np.int64)
            lengths: Any = 1
            if not self.unit_lengths and self.graph.weights is not None:
                lengths = self.graph.weights[arcs][kept]
            yield tails[kept], heads, lengths

    def add(self, distances: Array, lengths: Any) -> Array:
        """Return distances at the far ends of arcs, in the dtype of :attr:`comparable`.

        Integers are exact: two that are below 2**63 have a sum below 2**64.
        """
        if self.floating:
            with np.errstate(over="ignore"):  # infinity is right
                sums: Array = (distances + lengths).astype(self.distance.dtype, copy=False)
            return sums
        if np.asarray(lengths).dtype.kind == "f":
            raise InputError(
                "distances of a graph with floating-point weights must be floating-point"
            )
        if np.any(np.asarray(lengths) < 0):
            raise InputError("shortest paths need weights that are not negative")
        exact: Array = distances + np.asarray(lengths).astype(np.uint64)
        return exact

    def is_tight(self, sums: Array, distances: Array) -> Array:
        """Return which sums equal distances up to the slack; infinite sums never do."""
        tight: Array = sums == distances
        if self.floating:
            with np.errstate(invalid="ignore"):  # infinity less infinity
                tight |= np.abs(sums - distances) <= RELATIVE_SLACK * np.abs(sums)
            tight &= np.isfinite(sums)
        return tight

    def tight_arcs(self) -> Iterator[tuple[Array, Array]]:
        """Yield tails and heads of all arcs that are tight up to the slack."""
        for tails, heads, lengths in self.blocks():
            sums = self.add(self.comparable[tails], lengths)
            tight = self.is_tight(sums, self.comparable[heads])
            yield self.as_ids(tails[tight], heads[tight])

    def name(self, vertex: int) -> str:
        """Return the id of a vertex as messages show it."""
        return shown(self.graph.ids[vertex])

    def check_values(self) -> None:
        """Check that sources are at 0, and distances within [0, cutoff]."""
        wrong = self.is_source & (self.distance != 0)
        if (v := first_true(wrong)) is not None:
            fail(f"source {self.name(v)} must be at distance 0, is at {self.distance[v]}")
        wrong = ~(self.distance >= 0)
        if (v := first_true(wrong)) is not None:
            fail(f"vertex {self.name(v)} is at distance {self.distance[v]}")
        if self.cutoff is not None:
            wrong = self.reached & (self.distance > self.cutoff)
            if wrong.any():
                v = int(np.argmax(wrong))
                fail(
                    f"vertex {self.name(v)} is at {self.distance[v]}, beyond the cutoff of {self.cutoff}"
                )

    def check_not_too_far(self, tails: Array, heads: Array, sums: Array) -> None:
        """Check that no head of an arc is farther away than its tail plus the arc."""
        distances = self.comparable[heads]
        wrong = sums < distances
        if self.floating:
            wrong &= ~self.is_tight(sums, distances)
        else:
            wrong |= ~self.reached[
                heads
            ]  # also where no distance of the dtype could say how far it is
        if self.cutoff is not None:
            wrong &= sums <= self.cutoff
        if not wrong.any():
            return
        arc = int(np.argmax(wrong))
        u, v = int(tails[arc]), int(heads[arc])
        has = f"is at {self.distance[v]}" if self.reached[v] else "was not reached"
        head = self.name(v)
        fail(f"vertex {head} {has}, but the arc {self.name(u)} -> {head} reaches it at {sums[arc]}")

    def check_support(self, supported: Array, level_arcs: list[tuple[Array, Array]]) -> None:
        """Check that tight arcs lead from sources to every reached vertex."""
        if (self.reached & ~supported).any():
            supported = _reachable(supported, level_arcs)
        if self.floating and (self.reached & ~supported).any():
            supported = _reachable(self.is_source, list(self.tight_arcs()))
        wrong = self.reached & ~supported
        if (v := first_true(wrong)) is not None:
            fail(
                f"vertex {self.name(v)} is at {self.distance[v]}, but no shortest path from a "
                "source ends there"
            )

    def check_predecessors(self, has_tight_arc: Array) -> None:
        """Check that predecessors exist where they must, by tight arcs, and lead to sources."""
        before = self.predecessor
        assert before is not None
        n = self.graph.vertex_count
        has_one = self.reached & ~self.is_source
        wrong = ~has_one & (before != -1)
        if (v := first_true(wrong)) is not None:
            kind = "source" if self.is_source[v] else "unreached vertex"
            fail(f"{kind} {self.name(v)} must have predecessor -1, has {before[v]}")
        wrong = has_one & ((before < 0) | (before >= n))
        if (v := first_true(wrong)) is not None:
            fail(f"vertex {self.name(v)} must have a predecessor in [0, {n}), has {before[v]}")
        wrong = has_one & ~has_tight_arc
        if (v := first_true(wrong)) is not None:
            u = int(before[v])
            row = self.graph.targets[self.graph.offsets[u] : self.graph.offsets[u + 1]]
            fault = "is not tight" if (row == v).any() else "is not in the graph"
            head = self.name(v)
            fail(f"the arc {self.name(u)} -> {head} from the predecessor of {head} {fault}")
        # Pointer doubling: after k steps `at` is 2**k predecessors back, or at a source.
        at = np.where(has_one, before, np.arange(n)).astype(np.int64)
        for _ in range(n.bit_length()):
            at = at[at]
        wrong = has_one & ~self.is_source[at]
        if (v := first_true(wrong)) is not None:
            fail(
                f"the predecessors of vertex {self.name(v)} go round in a cycle through "
                f"{self.name(int(at[v]))}"
            )


def _reachable(start: Array, blocks: list[tuple[Array, Array]]) -> Array:
    """Return bool (n): the vertices that arcs reach from those of ``start``, which are included."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    n = len(start)
    tails = np.concatenate([tails for tails, _ in blocks])
    heads = np.concatenate([heads for _, heads in blocks])
    useful = ~start[heads]
    first = np.unique(tails[useful & start[tails]])
    all_tails = np.concatenate(
        [tails[useful], np.full(len(first), n)]
    )  # n: a root before all others
    all_heads = np.concatenate([heads[useful], first])
    arcs = csr_array((np.ones(len(all_tails)), (all_tails, all_heads)), shape=(n + 1, n + 1))
    order = breadth_first_order(arcs, n, return_predecessors=False)
    reached = np.append(start, False)
    reached[order] = True
    return reached[:n]
