"""Result of colourings."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from godwit.algorithms.scores import VertexScores
from godwit.dtypes import Array, frozen


class ColoringResult(VertexScores):
    """The colour of every vertex."""

    score_name = "color"

    @property
    def color(self) -> Array:
        """Colour of every vertex, int32 (n), from 0."""
        return self._placed

    @property
    def count(self) -> int:
        """Number of colours."""
        return len(self.sizes)

    @cached_property
    def sizes(self) -> Array:
        """Vertices of each colour, int64 (count)."""
        return frozen(np.bincount(self._scores))

    def __repr__(self) -> str:
        return f"ColoringResult({len(self._computed)} vertices, {self.count} colours)"
