"""Sums of distances between many vertices, for centralities, without the matrix.

By arcs, searches from all sources at once add their distances up at every vertex that they reach; where few
vertices are asked for, in graphs with many levels, and by weights, searches begin at the vertices that are
asked for. The choice depends on the query alone, and sums of integers are the same either way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from godwit.algorithms.distances.cpu import in_bits
from godwit.algorithms.distances.query import (
    COUNT,
    FRACTIONS,
    HOP_FIELDS,
    LARGEST,
    RECIPROCALS,
    TOTAL,
    DistanceQuery,
    DistanceSums,
    reciprocal_parts,
)
from godwit.dtypes import Array
from godwit.graph.csr import Graph

_FEW_SHARE = 8
"""Searches begin at the vertices that are asked for if they are this many times fewer than the others."""
_BLOCK_DISTANCES = 1 << 24
"""Distances of a block of rows."""


@dataclass(frozen=True)
class SumQuery:
    """A query of sums, for each of some vertices, over its distances to or from others.

    :param graph: the graph
    :param vertices: int64 (k) distinct vertices, or None for all
    :param others: int64 (m) distinct vertices, or None for all
    :param weighted: lengths by weights, which have been checked; False: numbers of arcs
    :param outward: distances from the vertices to the others; False: from the others to the vertices
    """

    graph: Graph
    vertices: Array | None
    others: Array | None
    weighted: bool
    outward: bool

    @property
    def from_vertices(self) -> DistanceQuery:
        """Searches that begin at the vertices."""
        return DistanceQuery(
            self.graph, self._listed(self.vertices), self.others, self.weighted, not self.outward
        )

    @property
    def from_others(self) -> DistanceQuery:
        """Searches that begin at the others."""
        return DistanceQuery(
            self.graph, self._listed(self.others), self.vertices, self.weighted, self.outward
        )

    @property
    def begins_at_others(self) -> bool:
        """True if searches begin at the others."""
        vertices, others = len(self._listed(self.vertices)), len(self._listed(self.others))
        if in_bits(self.from_others):
            return others <= _FEW_SHARE * vertices
        return others < vertices

    @property
    def searches(self) -> int:
        """Number of sources of searches."""
        return len((self.from_others if self.begins_at_others else self.from_vertices).sources)

    def _listed(self, vertices: Array | None) -> Array:
        return np.arange(self.graph.vertex_count) if vertices is None else vertices


class Searches(Protocol):
    """Searches on some devices."""

    def distances(self, query: DistanceQuery) -> Array:
        """Return the matrix of distances, on the host: (k, t), with a row per source."""

    def sums_by_source(self, query: DistanceQuery) -> DistanceSums:
        """Return sums over the targets, for each source."""

    def sums_by_vertex(self, query: DistanceQuery) -> DistanceSums:
        """Return sums over the sources, for each vertex, of distances in arcs."""


def sum_distances(query: SumQuery, searches: Searches) -> DistanceSums:
    """Return sums for each vertex of a query.

    :raises GraphTooLargeError: the arrays of one thread, or of a GPU, do not fit into memory
    :raises ValueOverflowError: a sum of integer weights is too large
    """
    if not query.begins_at_others:
        return searches.sums_by_source(query.from_vertices)
    from_others = query.from_others
    if not in_bits(from_others):
        return _sum_rows(from_others, searches)
    sums = searches.sums_by_vertex(from_others)
    return sums if query.vertices is None else sums.take(query.vertices)


def _sum_rows(query: DistanceQuery, searches: Searches) -> DistanceSums:
    """Add up the rows of a matrix in their order; only a block of rows is in memory."""
    rows, columns = query.shape
    sums = _RowSums(query)
    block = max(1, _BLOCK_DISTANCES // max(1, columns))
    for begin in range(0, rows, block):
        part = replace(query, sources=query.sources[begin : begin + block])
        for row in searches.distances(part):
            sums.add(row)
    return sums.sums()


class _RowSums:
    """Sums of rows of distances, column by column, in the forms of :class:`DistanceSums`."""

    def __init__(self, query: DistanceQuery) -> None:
        self.query = query
        number = np.float64 if query.dtype.kind == "f" else np.int64
        self.fields: Array = np.zeros((HOP_FIELDS, query.shape[1]), number)
        self.upper_total = np.zeros(query.shape[1], np.int64)
        self.reciprocal = np.zeros(query.shape[1])

    def add(self, row: Array) -> None:
        """Add a row."""
        reached = row != self.query.unreached
        distance: Array = np.where(reached, row, 0).astype(self.fields.dtype)
        self.fields[COUNT] += reached
        self.fields[LARGEST] = np.maximum(self.fields[LARGEST], distance)
        far = distance > 0
        if not self.query.weighted:
            self.fields[TOTAL] += distance
            reciprocals, fractions = reciprocal_parts(distance[far])
            self.fields[RECIPROCALS, far] += reciprocals
            self.fields[FRACTIONS, far] += fractions
            return
        if self.query.dtype.kind == "f":
            self.fields[TOTAL] += distance
        else:
            self.fields[TOTAL] += distance & 0xFFFFFFFF
            self.upper_total += distance >> 32
        self.reciprocal[far] += 1 / distance[far]

    def sums(self) -> DistanceSums:
        """Return the sums of all rows."""
        if not self.query.weighted:
            return DistanceSums.of_hops(self.fields.T)
        lower = self.fields[TOTAL]
        total = lower
        if self.query.dtype.kind != "f":
            upper = self.upper_total + (lower >> 32)
            total = np.ldexp(upper.astype(np.float64), 32) + (lower & 0xFFFFFFFF)
        return DistanceSums(
            self.fields[COUNT].astype(np.int64), total, self.fields[LARGEST].astype(np.float64),
            self.reciprocal,
        )  # fmt: skip
