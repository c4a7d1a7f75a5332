"""Result of similarities of pairs of vertices."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.arrays import ResultLocation, host_array
from godwit.dtypes import Array, as_count
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.result import Result
from godwit.plots import plot_counts
from godwit.runtime.statistics import RunStatistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class SimilarityResult(Result):
    """A score of each of some pairs of vertices.

    :ivar graph: the graph
    :ivar score_name: what the score is, such as ``"jaccard"``
    :ivar statistics: work and times of the run; its items are pairs
    :ivar location: where the scores live: a NumPy array on the host, or CuPy's on a GPU
    """

    def __init__(
        self,
        graph: Graph,
        score_name: str,
        positions: Any,
        scores: Any,
        statistics: RunStatistics,
        location: ResultLocation,
    ) -> None:
        self.graph = graph
        self.score_name = score_name
        self._asked = positions
        self.statistics = statistics
        self.location = location
        self._given = scores

    @cached_property
    def score(self) -> Array:
        """Score of each pair, float64 (k)."""
        placed: Array = self.location.place(self._given)
        return placed

    @cached_property
    def positions(self) -> Array:
        """Positions of the vertices of each pair, (k, 2), on the host."""
        return host_array(self._asked)

    @cached_property
    def _scores(self) -> Array:
        """Scores on the host."""
        return host_array(self._given)

    @property
    def pairs(self) -> list[tuple[Any, Any]]:
        """Each pair of vertices by id (:attr:`Graph.ids`): as given, or ascending by position."""
        return self._named(self.positions)

    def to_dict(self) -> dict[tuple[Any, Any], float]:
        """Return the score of every pair, by its ids.

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 1], [1, 2], directed=False, ids=["Bonn", "Ulm", "Jena"])
        >>> gw.jaccard(graph, [("Bonn", "Jena"), ("Bonn", "Ulm")]).to_dict()
        {('Bonn', 'Jena'): 1.0, ('Bonn', 'Ulm'): 0.0}
        """
        return dict(zip(self.pairs, self._scores.tolist(), strict=True))

    def highest(self, count: int) -> list[tuple[Any, Any, float]]:
        """Return ids and scores of the pairs of highest score, highest first; ties by their order.

        :raises InputError: ``count`` is no integer, or negative
        """
        order = np.argsort(-self._scores, kind="stable")[: as_count(count, "count")]
        scores = self._scores[order].tolist()
        return [
            (*pair, score)
            for pair, score in zip(self._named(self.positions[order]), scores, strict=True)
        ]

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` with a row per pair: ``first``, ``second`` (ids), and the score."""
        return similarity_table(self, self.graph.ids)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot how many pairs have each score.

        :param ax: axes of matplotlib to draw on; None for a new figure
        :returns: the axes; ``ax.figure.savefig("plot.pdf")`` writes a file
        :raises InputError: matplotlib is not installed
        """
        return plot_counts(self._scores, self.score_name, ax, of="pairs")

    def _named(self, positions: Array) -> list[tuple[Any, Any]]:
        ids = self.graph.ids
        return list(zip(ids.of(positions[:, 0]), ids.of(positions[:, 1]), strict=True))

    def _first_rows(self, count: int) -> dict[str, list[Any]]:
        shown = self.positions[:count]
        return {
            "first": self.graph.ids.of(shown[:, 0]),
            "second": self.graph.ids.of(shown[:, 1]),
            self.score_name: self._scores[:count].tolist(),
        }

    def __repr__(self) -> str:
        return f"SimilarityResult({len(self._asked)} pair(s), {self.score_name})"


def similarity_table(result: SimilarityResult, ids: VertexIds) -> Any:
    """Return an Arrow table of pairs and scores.

    :param ids: names of the vertices
    """
    import pyarrow as pa

    names = ids.to_arrow()
    first, second = (pa.array(np.ascontiguousarray(side)) for side in result.positions.T)
    return pa.table(
        {
            "first": names.take(first),
            "second": names.take(second),
            result.score_name: pa.array(result._scores),
        }
    )
