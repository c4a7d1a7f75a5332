"""Result of topological generations."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.algorithms.scores import VertexScores
from godwit.dtypes import Array, frozen
from godwit.plots import plot_counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class GenerationsResult(VertexScores):
    """The topological generation of every vertex."""

    score_name = "generation"

    @property
    def generation(self) -> Array:
        """Generation of every vertex, counted from 0: int32 (n)."""
        return self._placed

    @property
    def count(self) -> int:
        """Number of generations: one more than the arcs of the longest path; 0 without vertices."""
        return len(self.sizes)

    @cached_property
    def sizes(self) -> Array:
        """Vertices of each generation, int64 (count)."""
        return frozen(np.bincount(self._scores))

    @cached_property
    def order(self) -> Array:
        """All positions in a topological order: by generation, and ascending in each, int64 (n)."""
        return frozen(np.argsort(self._scores, kind="stable"))

    @cached_property
    def members(self) -> list[list[Any]]:
        """The vertices of each generation, by id."""
        if self.count == 0:
            return []
        parts = np.split(self.order, np.cumsum(self.sizes)[:-1])
        return [self.ids.of(part) for part in parts]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot how many vertices each generation has.

        :param ax: axes of matplotlib to draw on; None for a new figure
        :returns: the axes; ``ax.figure.savefig("plot.pdf")`` writes a file
        :raises InputError: matplotlib is not installed
        """
        return plot_counts(self._scores, self.score_name, ax)

    def __repr__(self) -> str:
        return f"GenerationsResult({len(self._scores)} vertices, {self.count} generation(s))"
