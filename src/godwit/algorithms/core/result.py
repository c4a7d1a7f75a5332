"""Result of core numbers."""

from __future__ import annotations

from functools import cached_property

from godwit.algorithms.scores import VertexScores
from godwit.dtypes import Array


class CoreResult(VertexScores):
    """The core number of every vertex."""

    score_name = "core"

    @property
    def core(self) -> Array:
        """Core number of every vertex, int32 (n)."""
        return self._placed

    @cached_property
    def degeneracy(self) -> int:
        """The largest core number; 0 for a graph without vertices."""
        return int(self._scores.max(initial=0))

    def __repr__(self) -> str:
        return f"CoreResult({len(self._computed)} vertices, degeneracy {self.degeneracy})"
