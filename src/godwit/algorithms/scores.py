"""A value for each vertex: the base of the results of PageRank and of centralities."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from godwit.arrays import ResultLocation, host_array
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.interchange.tables import Column
from godwit.graph.result import VertexResult, highest_values
from godwit.plots import plot_tail
from godwit.runtime.statistics import RunStatistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class VertexScores(VertexResult):
    """A value for each vertex.

    :ivar graph: the graph
    :ivar statistics: work and times of the run
    :ivar location: where the array lives: a NumPy array on the host, or CuPy's on a GPU
    """

    score_name: ClassVar[str]
    """Name of the value: of the column of tables, and of the attribute."""

    def __init__(
        self, graph: Graph, scores: Any, statistics: RunStatistics, location: ResultLocation
    ) -> None:
        self.graph = graph
        self.statistics = statistics
        self.location = location
        self._computed = scores

    @cached_property
    def _placed(self) -> Array:
        """Values where the caller asked for them."""
        placed: Array = self.location.place(self._computed)
        return placed

    @cached_property
    def _scores(self) -> Array:
        """Values on the host."""
        return host_array(self._computed)

    @property
    def ids(self) -> VertexIds:
        """Ids of the vertices that have values, in the order of the values."""
        return self.graph.ids

    @property
    def columns(self) -> list[Column]:
        """The columns of a table of vertices."""
        return [Column(self.score_name, self._scores)]

    def to_dict(self) -> dict[Any, float]:
        """Return the value of every vertex, by its id (:attr:`Graph.ids`).

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 1], [1, 2], ids=["Bonn", "Ulm", "Jena"])
        >>> gw.betweenness_centrality(graph).to_dict()
        {'Bonn': 0.0, 'Ulm': 0.5, 'Jena': 0.0}
        """
        return scores_by_id(self._scores, self.ids)

    def highest(self, count: int) -> list[tuple[Any, float]]:
        """Return ids and values of the vertices of highest value, highest first; ties by position.

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 1], [1, 2], ids=["Bonn", "Ulm", "Jena"])
        >>> gw.betweenness_centrality(graph).highest(2)
        [('Ulm', 0.5), ('Bonn', 0.0)]

        :raises InputError: ``count`` is no integer, or negative
        """
        return highest_values(self._scores, count, self.ids)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the share of vertices that have at least a value, on logarithmic scales.

        :param ax: axes of matplotlib to draw on; None for a new figure
        :returns: the axes; ``ax.figure.savefig("plot.pdf")`` writes a file
        :raises InputError: matplotlib is not installed
        """
        return plot_tail(self._scores, self.score_name, ax)

    def _shown_vertices(self, count: int) -> Array:
        return np.argsort(-self._scores, kind="stable")[:count]


def scores_by_id(scores: Array, ids: VertexIds) -> dict[Any, float]:
    """Return the value of every vertex by its id."""
    return dict(zip(ids.of(np.arange(len(scores))), scores.tolist(), strict=True))
