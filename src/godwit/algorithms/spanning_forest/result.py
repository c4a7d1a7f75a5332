"""Result of a minimum or maximum spanning forest."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.algorithms.spanning_forest.cpu import ForestMarks, marked_arcs, marked_edges
from godwit.dtypes import Array, frozen
from godwit.graph.build import arcs_to_rows
from godwit.graph.csr import Graph
from godwit.graph.result import Result
from godwit.graph.rows import Rows
from godwit.plots import plot_frequencies
from godwit.runtime.statistics import RunStatistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class SpanningForestResult(Result):
    """A spanning forest: for each component a tree that joins its vertices.

    Edges are in the order of the graph's arcs. :attr:`arcs` and what follows from it is computed when it is
    first read.

    :ivar graph: the graph
    :ivar is_maximum: True for a maximum spanning forest
    :ivar is_weighted: True if weights counted
    :ivar statistics: work and times of the run
    """

    def __init__(
        self,
        graph: Graph,
        marked: ForestMarks,
        statistics: RunStatistics,
        *,
        is_maximum: bool,
        is_weighted: bool,
    ) -> None:
        self.graph = graph
        self.statistics = statistics
        self.is_maximum, self.is_weighted = is_maximum, is_weighted
        self._marked = marked

    @property
    def edge_count(self) -> int:
        """Number of edges, k."""
        return self._marked.count

    @property
    def count(self) -> int:
        """Number of trees, which is that of components; a vertex without edges is a tree."""
        return self.graph.vertex_count - self.edge_count

    @cached_property
    def arcs(self) -> Array:
        """Index in ``graph.targets`` of each edge's arc from its smaller vertex: int64 (k), ascending."""
        return frozen(marked_arcs(self.graph.rows, self._marked))

    @cached_property
    def sources(self) -> Array:
        """Position of the smaller vertex of each edge, (k), dtype of the targets."""
        return frozen(marked_edges(self.graph.rows, self._marked)[1])

    @cached_property
    def targets(self) -> Array:
        """Position of the larger vertex of each edge, (k), dtype of the targets."""
        return frozen(self.graph.targets[self.arcs])

    @cached_property
    def weights(self) -> Array | None:
        """Weight of each edge, (k), dtype of the graph's weights; None if weights did not count."""
        weights = self.graph.weights
        return None if weights is None or not self.is_weighted else frozen(weights[self.arcs])

    @cached_property
    def total_weight(self) -> int | float:
        """Sum of the edges' weights; the number of edges if weights did not count.

        Exact for integers. Of floats, NumPy's pairwise sum in float64 of the weights in the order of edges,
        which is the same on all devices.
        """
        weights = self.weights
        if weights is None:
            return self.edge_count
        if weights.dtype.kind == "f":
            with np.errstate(over="ignore", invalid="ignore"):  # infinity, or NaN of inf - inf
                return float(weights.sum(dtype=np.float64))
        if weights.itemsize == 4:
            return int(weights.sum(dtype=np.int64))
        numbers = weights.astype(np.int64)
        return (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())

    @cached_property
    def forest(self) -> Graph:
        """The forest as an undirected graph of the same vertices, with their ids and attributes.

        It has the weights that counted, and the attributes of its edges.
        """
        graph, n = self.graph, self.graph.vertex_count
        plain = graph if self.is_weighted else graph.without_weights()

        def of_edges(rows: Rows) -> Rows:
            weights = None if rows.weights is None else rows.weights[self.arcs]
            return arcs_to_rows(
                self.sources, self.targets, weights, n, self.targets.dtype, both_directions=True
            )

        return plain._with_rows(of_edges(plain.rows), like=of_edges)

    def edges(self) -> list[tuple[Any, Any]]:
        """Return the edges as pairs of ids.

        >>> import godwit as gw
        >>> roads = gw.Graph.from_edges(
        ...     [0, 0, 1], [1, 2, 2], [5, 9, 3], directed=False, ids=["Ulm", "Bonn", "Jena"]
        ... )
        >>> gw.minimum_spanning_forest(roads).edges()
        [('Ulm', 'Bonn'), ('Bonn', 'Jena')]
        """
        ids = self.graph.ids
        return list(zip(ids.of(self.sources), ids.of(self.targets), strict=True))

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` with a row per edge: that of :attr:`forest`."""
        return self.forest.to_arrow()

    def _first_rows(self, count: int) -> dict[str, list[Any]]:
        ids = self.graph.ids
        table = {
            "source": ids.of(self.sources[:count]),
            "target": ids.of(self.targets[:count]),
        }
        if self.weights is not None:
            table["weight"] = self.weights[:count].tolist()
        return table

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot how many vertices have each degree in the forest, on logarithmic scales.

        :param ax: axes of matplotlib to draw on; None for a new figure
        :returns: the axes; ``ax.figure.savefig("plot.pdf")`` writes a file
        :raises InputError: matplotlib is not installed
        """
        return plot_frequencies(self.forest.out_degree(), "degree in the forest", ax)

    def __repr__(self) -> str:
        kind = "maximum" if self.is_maximum else "minimum"
        return (
            f"SpanningForestResult({kind}, {self.edge_count} edges, {self.count} tree(s), "
            f"total weight {self.total_weight})"
        )
