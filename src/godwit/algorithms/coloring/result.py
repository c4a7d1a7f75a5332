"""Result of colourings."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from godwit.algorithms.scores import VertexScores
from godwit.dtypes import Array, frozen
from godwit.plots import plot_counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot how many vertices have each colour.

        :param ax: axes of matplotlib to draw on; None for a new figure
        :returns: the axes; ``ax.figure.savefig("plot.pdf")`` writes a file
        :raises InputError: matplotlib is not installed
        """
        return plot_counts(self._scores, self.score_name, ax)

    def __repr__(self) -> str:
        return f"ColoringResult({len(self._computed)} vertices, {self.count} colours)"
