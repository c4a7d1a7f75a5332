"""Result of truss numbers."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.algorithms.triangles.rows import simple_graph
from godwit.algorithms.truss.rows import edge_ends
from godwit.arrays import ResultLocation, host_array
from godwit.dtypes import Array, as_count, frozen
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.result import Result
from godwit.plots import plot_counts
from godwit.runtime.statistics import RunStatistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class TrussResult(Result):
    """The truss number of every edge of the simple undirected graph.

    Edges are in the order of their smaller vertex, and then of the larger one, by position. :attr:`sources`
    and what follows from it is computed when it is first read.

    :ivar graph: the graph
    :ivar statistics: work and times of the run; its items are edges
    :ivar location: where the truss numbers live: a NumPy array on the host, or CuPy's on a GPU
    """

    def __init__(
        self, graph: Graph, truss: Any, statistics: RunStatistics, location: ResultLocation
    ) -> None:
        self.graph = graph
        self.statistics = statistics
        self.location = location
        self._given = truss

    @cached_property
    def truss(self) -> Array:
        """Truss number of each edge, int32 (k)."""
        placed: Array = self.location.place(self._given)
        return placed

    @cached_property
    def _numbers(self) -> Array:
        """Truss numbers on the host."""
        return host_array(self._given)

    @cached_property
    def _ends(self) -> tuple[Array, Array]:
        sources, targets = edge_ends(simple_graph(self.graph))
        return frozen(sources), frozen(targets)

    @property
    def sources(self) -> Array:
        """Position of the smaller vertex of each edge, (k), dtype of the graph's targets."""
        return self._ends[0]

    @property
    def targets(self) -> Array:
        """Position of the larger vertex of each edge, (k), dtype of the graph's targets."""
        return self._ends[1]

    @cached_property
    def largest(self) -> int:
        """The largest truss number; 0 for a graph without edges."""
        return int(self._numbers.max(initial=0))

    def edges(self) -> list[tuple[Any, Any]]:
        """Return the edges as pairs of ids."""
        return self._named(np.arange(len(self._numbers)))

    def to_dict(self) -> dict[tuple[Any, Any], int]:
        """Return the truss number of every edge, by its ids.

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], directed=False)
        >>> gw.truss_number(graph).to_dict()
        {(0, 1): 3, (0, 2): 3, (1, 2): 3, (2, 3): 2}
        """
        return dict(zip(self.edges(), self._numbers.tolist(), strict=True))

    def highest(self, count: int) -> list[tuple[Any, Any, int]]:
        """Return ids and truss numbers of the edges of highest number, highest first; ties by their order.

        :raises InputError: ``count`` is no integer, or negative
        """
        order = np.argsort(-self._numbers, kind="stable")[: as_count(count, "count")]
        numbers = self._numbers[order].tolist()
        return [(*edge, number) for edge, number in zip(self._named(order), numbers, strict=True)]

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` with a row per edge: ``source``, ``target`` (ids), ``truss``."""
        return truss_table(self, self.graph.ids)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot how many edges have each truss number.

        :param ax: axes of matplotlib to draw on; None for a new figure
        :returns: the axes; ``ax.figure.savefig("plot.pdf")`` writes a file
        :raises InputError: matplotlib is not installed
        """
        return plot_counts(self._numbers, "truss number", ax, of="edges")

    def _named(self, edges: Array) -> list[tuple[Any, Any]]:
        ids = self.graph.ids
        return list(zip(ids.of(self.sources[edges]), ids.of(self.targets[edges]), strict=True))

    def _first_rows(self, count: int) -> dict[str, list[Any]]:
        ids = self.graph.ids
        return {
            "source": ids.of(self.sources[:count]),
            "target": ids.of(self.targets[:count]),
            "truss": self._numbers[:count].tolist(),
        }

    def __repr__(self) -> str:
        return f"TrussResult({len(self._numbers)} edges, largest truss number {self.largest})"


def truss_table(result: TrussResult, ids: VertexIds) -> Any:
    """Return an Arrow table of edges and truss numbers.

    :param ids: names of the vertices
    """
    import pyarrow as pa

    names = ids.to_arrow()
    return pa.table(
        {
            "source": names.take(pa.array(result.sources)),
            "target": names.take(pa.array(result.targets)),
            "truss": pa.array(result._numbers),
        }
    )
