"""A query of distances from many sources, and sums of distances, in one form for CPUs and GPUs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from godwit.algorithms.paths.weights import check_weights
from godwit.dtypes import Array
from godwit.errors import ValueOverflowError
from godwit.graph.csr import Graph
from godwit.graph.facts import in_arcs, in_arcs_at_hand

UNREACHED_HOPS = 2**31 - 1
"""Distance in arcs of vertices that are not reached."""
FARTHEST = 2**63 - 2
"""Sums of integer weights saturate here; one more means "not reached"."""

_MANY_SOURCES = 64
"""Sources from which finding the in-arcs of a graph pays."""

# Fields of sums: int64 for distances in arcs, float64 for lengths.
COUNT = 0
TOTAL = 1
LARGEST = 2
RECIPROCALS = 3  # of arcs: in units of 2^-32
FRACTIONS = 4  # of arcs: in units of 2^-64
HOP_FIELDS = 5
LENGTH_FIELDS = 4


def reciprocal_parts(level: Any) -> tuple[Any, Any]:
    """Return floor(2^32 / level), and the 32 bits of the quotient that follow. For compiled code, too."""
    one = np.int64(1) << 32
    return one // level, ((one % level) << 32) // level


def add_hop_fields(fields: Array, others: Array) -> None:
    """Add fields of sums of distances in arcs to others for the same vertices: int64 (k, HOP_FIELDS)."""
    largest = np.maximum(fields[:, LARGEST], others[:, LARGEST])
    fields += others
    fields[:, LARGEST] = largest


@dataclass(frozen=True)
class DistanceQuery:
    """A checked query of a graph.

    :param graph: the graph
    :param sources: int64 (k) vertices to search from; may repeat
    :param targets: int64 (t) distinct vertices whose distances are wanted, or None for all
    :param weighted: lengths by weights, which have been checked; False: numbers of arcs
    :param backward: search along reversed arcs: distances to the sources, not from them
    :param cutoff: vertices farther away count as not reached; None: no limit
    """

    graph: Graph
    sources: Array
    targets: Array | None
    weighted: bool
    backward: bool = False
    cutoff: float | None = None

    @property
    def rows(self) -> Graph:
        """The graph whose out-arcs searches follow."""
        return in_arcs(self.graph, weighted=self.weighted) if self.backward else self.graph

    @property
    def in_rows(self) -> Graph | None:
        """The graph of the in-arcs of :attr:`rows`; None if finding it would take longer than searches."""
        if self.backward:
            return self.graph
        many = len(self.sources) >= _MANY_SOURCES
        return in_arcs(self.graph) if many else in_arcs_at_hand(self.graph)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix: (k, t)."""
        targets = self.graph.vertex_count if self.targets is None else len(self.targets)
        return len(self.sources), targets

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of distances: int32 for numbers of arcs; int64 for integer weights, float64 for others."""
        weights = self.graph.weights
        if not self.weighted or weights is None:
            return np.dtype(np.int32)
        return np.dtype(np.int64 if weights.dtype.kind in "iu" else np.float64)

    @property
    def unreached(self) -> int | float:
        """Distance of vertices that are not reached."""
        return unreached_distance(self.dtype)

    @cached_property
    def limit(self) -> int | float:
        """Largest distance that counts as reached."""
        is_float = self.dtype.kind == "f"
        largest = math.inf if is_float else UNREACHED_HOPS - 1 if not self.weighted else FARTHEST
        if self.cutoff is None or self.cutoff >= largest:
            return largest
        return self.cutoff if is_float else math.floor(self.cutoff)

    @cached_property
    def may_overflow(self) -> bool:
        """True if a sum of integer weights could reach :data:`FARTHEST`."""
        if self.dtype != np.int64:
            return False
        bound = check_weights(self.graph) * self.graph.vertex_count
        return bound >= FARTHEST and self.limit >= FARTHEST

    def column_of(self) -> Array:
        """Return the column of each vertex, or -1: int64 (n); empty if vertex v is column v."""
        if self.targets is None:
            return np.empty(0, np.int64)
        columns = np.full(self.graph.vertex_count, -1)
        columns[self.targets] = np.arange(len(self.targets))
        return columns

    def check_overflow(self, distances: Any) -> None:
        """Check distances, on the host or on a GPU, or largest distances of sums.

        :raises ValueOverflowError: one of them has reached :data:`FARTHEST`, which is infinity in sums
        """
        farthest = FARTHEST if distances.dtype == self.dtype else math.inf
        if not self.may_overflow or not bool((distances == farthest).any()):
            return
        raise ValueOverflowError(
            f"with weights up to {check_weights(self.graph)}, a distance reaches 2^63 - 2 or more, beyond "
            "the range of int64 distances; give the weights as float64, or a cutoff"
        )


def unreached_distance(dtype: np.dtype[Any]) -> int | float:
    """Return the distance that means "not reached": the largest value of a dtype, infinity for floats."""
    return math.inf if dtype.kind == "f" else int(np.iinfo(dtype).max)


@dataclass(frozen=True)
class DistanceSums:
    """Sums over the distances between each vertex of a list and a set of others, itself perhaps included.

    :ivar count: int64 (k) vertices of the set at a finite distance
    :ivar total: float64 (k) sum of these distances, rounded once if they are integers
    :ivar largest: float64 (k) the largest of them; 0 if there is none
    :ivar reciprocal: float64 (k) sum of 1 / distance over those that are not 0
    """

    count: Array
    total: Array
    largest: Array
    reciprocal: Array

    def take(self, positions: Array) -> DistanceSums:
        """Return the sums of some of the vertices."""
        return DistanceSums(
            self.count[positions], self.total[positions], self.largest[positions],
            self.reciprocal[positions],
        )  # fmt: skip

    @staticmethod
    def of_hops(fields: Array) -> DistanceSums:
        """Return sums from integers.

        :param fields: int64 (k, 5): count, total, largest, and the reciprocals' two parts, in units of
            2^-32 and 2^-64
        """
        count, total, largest, reciprocals, fractions = fields.T
        return DistanceSums(
            count.copy(),
            total.astype(np.float64),
            largest.astype(np.float64),
            np.ldexp(reciprocals.astype(np.float64), -32)
            + np.ldexp(fractions.astype(np.float64), -64),
        )

    @staticmethod
    def of_lengths(fields: Array) -> DistanceSums:
        """Return sums from float64 (k, 4): count, total, largest, reciprocals."""
        count, total, largest, reciprocals = fields.T
        return DistanceSums(
            count.astype(np.int64), total.copy(), largest.copy(), reciprocals.copy()
        )
