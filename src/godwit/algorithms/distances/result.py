"""Result of distances from many sources."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.algorithms.distances.query import unreached_distance
from godwit.arrays import ResultLocation, host_array
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.result import Result
from godwit.plots import plot_counts
from godwit.runtime.statistics import RunStatistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class DistancesResult(Result):
    """Distances from each of several sources: a matrix with a row per source.

    :ivar graph: the graph of the query
    :ivar statistics: work and times of the run; its items are pairs of a source and a vertex that it
        reaches
    :ivar location: of :attr:`distance`: a NumPy array on the host, or a CuPy array on a GPU
    """

    def __init__(
        self,
        graph: Graph,
        sources: Array,
        targets: Array | None,
        distance: Any,
        statistics: RunStatistics,
        *,
        location: ResultLocation,
    ) -> None:
        self.graph = graph
        self._sources = sources
        self._targets = targets
        self.statistics = statistics
        self.location = location
        self._given = distance  # on the host or on the GPU of the location

    @property
    def sources(self) -> list[Any]:
        """The source of each row by id (:attr:`Graph.ids`), as given."""
        return self.graph.ids.of(self._sources)

    @property
    def targets(self) -> list[Any]:
        """The vertex of each column by id (:attr:`Graph.ids`): the targets as given, or all vertices."""
        return list(self.graph.ids) if self._targets is None else self.graph.ids.of(self._targets)

    @cached_property
    def distance(self) -> Array:
        """Distance from source i to the vertex of column j: shape (sources, targets), or (sources, n).

        int32 where arcs are counted; of lengths int64 for integer weights (exact), float64 for others.
        Where there is no path (within the cutoff), the largest value of the dtype (:attr:`unreached`),
        infinity for floats.
        """
        placed: Array = self.location.place(self._given)
        return placed

    @cached_property
    def _distance(self) -> Array:
        """The distances on the host, copied there on first use."""
        return host_array(self._given)

    @property
    def unreached(self) -> int | float:
        """The distance where there is no path."""
        return unreached_distance(self._given.dtype)

    def to_dict(self) -> dict[Any, dict[Any, int | float]]:
        """Return for each source the distance of every vertex of a column that it reaches, by ids.

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 1], [1, 2], ids=["Bonn", "Ulm", "Jena"])
        >>> gw.distances(graph, ["Ulm", "Bonn"]).to_dict()
        {'Ulm': {'Ulm': 0, 'Jena': 1}, 'Bonn': {'Bonn': 0, 'Ulm': 1, 'Jena': 2}}
        """
        found = {}
        names = np.empty(len(self._distance[0]) if len(self._distance) else 0, object)
        names[:] = self.targets
        for source, row in zip(self.sources, self._distance, strict=True):
            reached = np.flatnonzero(row != self.unreached)
            found[source] = dict(zip(names[reached].tolist(), row[reached].tolist(), strict=True))
        return found

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` with a row per pair that a path connects, in the order of the matrix.

        Columns ``source`` and ``target`` (ids, :attr:`Graph.ids`), and ``distance``.
        """
        return distance_table(self, self.graph.ids)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot how many pairs have each distance.

        :param ax: axes of matplotlib to draw on; None for a new figure
        :returns: the axes; ``ax.figure.savefig("plot.pdf")`` writes a file
        :raises InputError: matplotlib is not installed
        """
        distance = self._distance[self._distance != self.unreached]
        return plot_counts(distance, "distance", ax, of="pairs")

    def _first_rows(self, count: int) -> dict[str, list[Any]]:
        pairs = np.flatnonzero((self._distance != self.unreached)[:count])[:count]
        rows, columns = np.divmod(pairs, max(1, self._distance.shape[1]))
        targets = columns if self._targets is None else self._targets[columns]
        return {
            "source": self.graph.ids.of(self._sources[rows]),
            "target": self.graph.ids.of(targets),
            "distance": self._distance[rows, columns].tolist(),
        }

    def __repr__(self) -> str:
        rows, columns = self._given.shape
        return f"DistancesResult({rows} source(s) x {columns} vertices, {self._given.dtype})"


def distance_table(result: DistancesResult, ids: Any) -> Any:
    """Return an Arrow table of the pairs that a path connects.

    :param ids: names of the vertices
    """
    import pyarrow as pa

    distance = result._distance
    rows, columns = np.nonzero(distance != result.unreached)
    targets = columns if result._targets is None else result._targets[columns]
    names = ids.to_arrow()
    return pa.table(
        {
            "source": names.take(pa.array(result._sources[rows])),
            "target": names.take(pa.array(targets)),
            "distance": pa.array(distance[rows, columns]),
        }
    )
