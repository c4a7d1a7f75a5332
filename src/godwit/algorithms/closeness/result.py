"""Result of centralities that sum distances."""

from __future__ import annotations

from godwit.algorithms.distances.scores import SomeScores
from godwit.dtypes import Array


class ClosenessResult(SomeScores):
    """Closeness or harmonic centrality of all vertices, or of those that were asked for."""

    score_name = "centrality"

    @property
    def centrality(self) -> Array:
        """Centrality of every vertex, or of every one of :attr:`vertices`: float64 (k)."""
        return self._placed
