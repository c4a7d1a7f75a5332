"""Results of counting triangles, and of clustering coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.scores import VertexScores
from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.runtime.statistics import RunStatistics


class TrianglesResult(VertexScores):
    """Number of triangles of every vertex, and of the graph.

    :ivar total: number of triangles of the graph, each counted once
    """

    score_name = "triangles"

    def __init__(
        self,
        graph: Graph,
        counts: Any,
        total: int,
        statistics: RunStatistics,
        location: ResultLocation,
    ) -> None:
        super().__init__(graph, counts, statistics, location)
        self.total = total

    @property
    def triangles(self) -> Array:
        """Number of triangles that have a vertex as a corner, int64 (n)."""
        return self._placed

    def __repr__(self) -> str:
        return f"TrianglesResult({len(self._computed)} vertices, {self.total} triangle(s))"


class ClusteringResult(VertexScores):
    """Clustering coefficient of every vertex."""

    score_name = "clustering"

    @property
    def clustering(self) -> Array:
        """Clustering coefficient of every vertex, float64 (n)."""
        return self._placed

    @property
    def average(self) -> float:
        """Mean of all vertices; 0 for a graph without vertices."""
        return float(np.mean(self._scores)) if len(self._scores) else 0.0

    def __repr__(self) -> str:
        return f"ClusteringResult({len(self._scores)} vertices, average {self.average:.6g})"
