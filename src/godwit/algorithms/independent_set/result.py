"""Result of maximal independent sets."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.arrays import ResultLocation, host_array
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.interchange.tables import Column
from godwit.graph.result import VertexResult
from godwit.plots import plot_counts
from godwit.runtime.statistics import RunStatistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class IndependentSetResult(VertexResult):
    """An independent set of vertices.

    :ivar graph: the graph
    :ivar statistics: work and times of the run
    :ivar location: where :attr:`member` lives: a NumPy array on the host, or CuPy's on a GPU
    """

    def __init__(
        self, graph: Graph, member: Any, statistics: RunStatistics, location: ResultLocation
    ) -> None:
        self.graph = graph
        self.statistics = statistics
        self.location = location
        self._computed = member

    @cached_property
    def member(self) -> Array:
        """True for the vertices in the set, bool (n)."""
        placed: Array = self.location.place(self._computed)
        return placed

    @cached_property
    def _member(self) -> Array:
        """The same on the host."""
        return host_array(self._computed)

    @property
    def ids(self) -> VertexIds:
        """Ids of the vertices (:attr:`Graph.ids`)."""
        return self.graph.ids

    @property
    def size(self) -> int:
        """Number of vertices in the set."""
        return int(np.count_nonzero(self._member))

    @property
    def vertices(self) -> list[Any]:
        """Ids of the vertices in the set, in the order of the graph."""
        return list(self.ids.of(np.flatnonzero(self._member)))

    def to_dict(self) -> dict[Any, bool]:
        """Return for every vertex, by its id (:attr:`Graph.ids`), True if it is in the set.

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 1], [1, 2], directed=False, ids=["Bonn", "Ulm", "Jena"])
        >>> gw.maximal_independent_set(graph).to_dict()
        {'Bonn': True, 'Ulm': False, 'Jena': True}
        """
        return dict(zip(self.ids, self._member.tolist(), strict=True))

    @property
    def columns(self) -> list[Column]:
        """The column ``member`` of a table of vertices."""
        return [Column("member", self._member)]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot how many vertices are in the set, and how many are not.

        :param ax: axes of matplotlib to draw on; None for a new figure
        :returns: the axes; ``ax.figure.savefig("plot.pdf")`` writes a file
        :raises InputError: matplotlib is not installed
        """
        return plot_counts(self._member.astype(np.int32), "member", ax)

    def __repr__(self) -> str:
        return f"IndependentSetResult({self.size} of {len(self._member)} vertices)"
