"""Results of power iterations."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from godwit.algorithms.power_iteration.query import PowerOutcome
from godwit.algorithms.scores import VertexScores, scores_by_id
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


class CentralityResult(VertexScores):
    """Centrality of all vertices, by iterations that converged.

    :ivar iterations: number of iterations
    :ivar residual: mean absolute change of a vertex' value by the last iteration
    """

    score_name = "centrality"

    def __init__(
        self,
        graph: Graph,
        outcome: PowerOutcome,
        statistics: RunStatistics,
        location: ResultLocation,
    ) -> None:
        super().__init__(graph, outcome.values, statistics, location)
        self.iterations = outcome.iterations
        self.residual = outcome.residual

    @property
    def centrality(self) -> Array:
        """Centrality of every vertex, float64 (n)."""
        return self._placed

    def __repr__(self) -> str:
        return (
            f"CentralityResult({len(self._computed)} vertices, {self.iterations} iteration(s), "
            f"residual {self.residual:.3g})"
        )


class HitsResult(VertexResult):
    """Hubs and authorities of all vertices.

    :ivar graph: the graph
    :ivar statistics: work and times of the run
    :ivar iterations: number of iterations
    :ivar residual: mean absolute change of a vertex' authority, whose L2 norm is 1, by the last iteration
    :ivar location: where the arrays live: NumPy's on the host, or CuPy's on a GPU
    """

    def __init__(
        self,
        graph: Graph,
        outcome: PowerOutcome,
        statistics: RunStatistics,
        location: ResultLocation,
    ) -> None:
        self.graph = graph
        self.statistics = statistics
        self.iterations = outcome.iterations
        self.residual = outcome.residual
        self.location = location
        self._hubs = outcome.hubs
        self._authorities = outcome.values

    @cached_property
    def hubs(self) -> Array:
        """Hub score of every vertex, float64 (n)."""
        placed: Array = self.location.place(self._hubs)
        return placed

    @cached_property
    def authorities(self) -> Array:
        """Authority score of every vertex, float64 (n)."""
        placed: Array = self.location.place(self._authorities)
        return placed

    @property
    def ids(self) -> VertexIds:
        """Ids of the vertices that have values, in the order of the values."""
        return self.graph.ids

    @property
    def columns(self) -> list[Column]:
        """The columns of a table of vertices."""
        return [
            Column("hub", host_array(self._hubs)),
            Column("authority", host_array(self._authorities)),
        ]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the share of vertices that have at least a score, as hubs and as authorities.

        :param ax: axes of matplotlib to draw on; None for a new figure
        :returns: the axes; ``ax.figure.savefig("plot.pdf")`` writes a file
        :raises InputError: matplotlib is not installed
        """
        ax = plot_tail(host_array(self._hubs), "score", ax)
        ax = plot_tail(host_array(self._authorities), "score", ax, color="#c8553d")
        ax.legend(ax.lines[-2:], ["hubs", "authorities"], frameon=False)
        return ax

    def hubs_to_dict(self) -> dict[Any, float]:
        """Return the hub score of every vertex, by its id (:attr:`Graph.ids`)."""
        return scores_by_id(host_array(self._hubs), self.graph.ids)

    def authorities_to_dict(self) -> dict[Any, float]:
        """Return the authority score of every vertex, by its id (:attr:`Graph.ids`).

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 1], [2, 2], ids=["Bonn", "Ulm", "Jena"])
        >>> gw.hits(graph).authorities_to_dict()
        {'Bonn': 0.0, 'Ulm': 0.0, 'Jena': 1.0}
        """
        return scores_by_id(host_array(self._authorities), self.graph.ids)

    def highest_hubs(self, count: int) -> list[tuple[Any, float]]:
        """Return ids and hub scores of the best hubs, highest first; ties by position.

        :raises InputError: ``count`` is no integer, or negative
        """
        return highest_values(host_array(self._hubs), count, self.graph.ids)

    def highest_authorities(self, count: int) -> list[tuple[Any, float]]:
        """Return ids and scores of the best authorities, highest first; ties by position.

        :raises InputError: ``count`` is no integer, or negative
        """
        return highest_values(host_array(self._authorities), count, self.graph.ids)

    def __repr__(self) -> str:
        return (
            f"HitsResult({len(self._hubs)} vertices, {self.iterations} iteration(s), "
            f"residual {self.residual:.3g})"
        )
