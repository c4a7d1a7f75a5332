"""Result of connected components."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.arrays import ResultLocation, host_array
from godwit.dtypes import Array, as_count, frozen
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.interchange.tables import Column
from godwit.graph.result import VertexResult
from godwit.plots import plot_frequencies
from godwit.runtime.statistics import RunStatistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ComponentsResult(VertexResult):
    """The component of every vertex.

    :ivar graph: the graph, also one mapped from a ``.godwit`` file; None for edges without a graph
    :ivar method: the method used, never ``"auto"``
    :ivar statistics: work and times of the run
    :ivar location: where :attr:`label` lives: a NumPy array on the host, or CuPy's on a GPU
    :param ids: ids of the vertices where there is no graph; None: their numbers
    """

    def __init__(
        self,
        graph: Graph | None,
        label: Any,
        statistics: RunStatistics,
        *,
        method: str,
        location: ResultLocation,
        ids: VertexIds | None = None,
    ) -> None:
        self.graph = graph
        self._ids = ids
        self.method = method
        self.statistics = statistics
        self.location = location
        self._computed = label

    @cached_property
    def label(self) -> Array:
        """Position of the first vertex of each vertex's component, shape (n), dtype of the targets."""
        placed: Array = self.location.place(self._computed)
        return placed

    @cached_property
    def _label(self) -> Array:
        """Labels on the host."""
        return host_array(self._computed)

    @property
    def ids(self) -> VertexIds:
        """Ids of the vertices; their numbers where neither a graph nor a file has others."""
        if self.graph is not None:
            return self.graph.ids
        return VertexIds(len(self._label)) if self._ids is None else self._ids

    @cached_property
    def _size_by_label(self) -> Array:
        """Vertices with each label, int64 (n); 0 for vertices that are not labels."""
        return np.bincount(self._label, minlength=len(self._label))

    @property
    def count(self) -> int:
        """Number of components; a vertex without arcs is a component."""
        return len(self.names)

    @cached_property
    def names(self) -> Array:
        """Position of the first vertex of each component, ascending, shape (count)."""
        return frozen(np.flatnonzero(self._size_by_label))

    @cached_property
    def sizes(self) -> Array:
        """Vertices of each component, int64, in the order of :attr:`names`."""
        return frozen(self._size_by_label[self.names])

    def largest(self, count: int) -> list[tuple[Any, int]]:
        """Return names, by id, and sizes of the largest components, largest first; ties by first vertex.

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 1], [1, 2], vertex_count=4, ids=["Ulm", "Bonn", "Jena", "Köln"])
        >>> gw.connected_components(graph).largest(2)
        [('Ulm', 3), ('Köln', 1)]

        :raises InputError: ``count`` is not an integer, or negative
        """
        count = min(as_count(count, "count"), self.count)
        order = np.argsort(-self.sizes, kind="stable")[:count]
        return list(zip(self.ids.of(self.names[order]), self.sizes[order].tolist(), strict=True))

    def size(self, name: Any) -> int:
        """Return the size of the component whose smallest vertex has this id; 0 if there is none.

        :raises InputError: no vertex has this id
        """
        return int(self._size_by_label[self.ids.position(name, "name")])

    def to_dict(self) -> dict[Any, Any]:
        """Return the name of every vertex's component, both by :attr:`ids`.

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 2], [1, 3], ids=["Ulm", "Bonn", "Jena", "Köln"])
        >>> gw.connected_components(graph).to_dict()
        {'Ulm': 'Ulm', 'Bonn': 'Ulm', 'Jena': 'Jena', 'Köln': 'Jena'}
        """
        ids = self.ids
        vertices = np.arange(len(self._label))
        return dict(zip(ids.of(vertices), ids.of(self._label), strict=True))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot how many components have each size, on logarithmic scales.

        :param ax: axes of matplotlib to draw on; None for a new figure
        :returns: the axes; ``ax.figure.savefig("plot.pdf")`` writes a file
        :raises InputError: matplotlib is not installed
        """
        return plot_frequencies(self.sizes, "vertices of a component", ax, of="components")

    @property
    def columns(self) -> list[Column]:
        """The component of each vertex."""
        return [Column("component", self._label, ids=True)]

    def __repr__(self) -> str:
        largest = int(self.sizes.max(initial=0))
        return (
            f"ComponentsResult({len(self._label)} vertices, {self.count} component(s), "
            f"the largest of {largest}, {self.method})"
        )
