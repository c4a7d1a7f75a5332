"""Result of community detection."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.algorithms.communities import cpu
from godwit.arrays import ResultLocation, host_array
from godwit.dtypes import Array, as_count, frozen
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.interchange.tables import Column
from godwit.graph.result import VertexResult
from godwit.plots import plot_frequencies
from godwit.runtime.cpu.team import run_team
from godwit.runtime.statistics import RunStatistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def by_size(label: Array, strength: Array | None = None) -> tuple[Array, Array]:
    """Return communities numbered by size, the largest first, then by smallest vertex, and their masses.

    :param label: (n) smallest vertex of each vertex's community, or another vertex of it
    :param strength: (n) what to sum; None: nothing
    :returns: the number of each vertex's community, (n), and sums by number
    """
    n = len(label)
    sizes, places = np.zeros(n, label.dtype), np.zeros(n + 1, label.dtype)
    first, numbered = np.empty_like(label), np.empty_like(label)
    if strength is None:
        strength = frozen(np.empty(0, np.int64))
    mass = np.zeros_like(strength)
    (count,) = run_team(
        cpu.number_by_size,
        label,
        sizes,
        first,
        places,
        numbered,
        strength,
        mass,
        threads=1,
        brief=True,
    )
    return numbered, mass[:count]


class CommunitiesResult(VertexResult):
    """The community of every vertex.

    :ivar graph: the graph
    :ivar modularity: of the communities, by the weights and the resolution of the query (1 where it has
        none); NaN in a graph without arcs
    :ivar quality: of the communities, by the objective of the query: the modularity, if it has none other
    :ivar statistics: work and times of the run; its items are visits of vertices
    :ivar location: where :attr:`label` lives: a NumPy array on the host, or CuPy's on a GPU
    :param sizes: number of vertices of each community, and ``names`` a vertex of each; None: as labels say
    """

    def __init__(
        self,
        graph: Graph,
        label: Any,
        maps: list[Any],
        modularity: float,
        quality: float,
        statistics: RunStatistics,
        location: ResultLocation,
        sizes: Any = None,
        names: Any = None,
    ) -> None:
        self.graph = graph
        self._computed = label
        self._maps = maps
        self._sizes = sizes
        self._names = names
        self.modularity = modularity
        self.quality = quality
        self.statistics = statistics
        self.location = location

    @cached_property
    def label(self) -> Array:
        """Community of each vertex, shape (n), dtype of the targets.

        Communities are numbered from 0 by size, the largest first; of equal size by their smallest vertex.
        """
        placed = self.location.place(self._computed)
        return frozen(placed) if isinstance(placed, np.ndarray) else placed

    @cached_property
    def _label(self) -> Array:
        """Labels on the host."""
        return frozen(host_array(self._computed))

    @property
    def ids(self) -> VertexIds:
        """Ids of the vertices."""
        return self.graph.ids

    @property
    def count(self) -> int:
        """Number of communities; a vertex without arcs is one."""
        return int(self.sizes.size if self._sizes is None else self._sizes.size)

    @cached_property
    def sizes(self) -> Array:
        """Number of vertices of each community, int64 (count), descending."""
        return frozen(np.bincount(self._label) if self._sizes is None else host_array(self._sizes))

    @cached_property
    def names(self) -> Array:
        """A vertex of each community, by position, shape (count).

        The label of ``variant="cdlp"`` of :func:`godwit.label_propagation`, else the smallest vertex.
        """
        if self._names is not None:
            return frozen(host_array(self._names))
        names = np.empty(self.count, self._label.dtype)
        names[self._label[::-1]] = np.arange(len(self._label), dtype=names.dtype)[::-1]
        return frozen(names)

    @cached_property
    def levels(self) -> list[Array]:
        """The dendrogram: communities of each level, labels as :attr:`label`, the smallest first.

        Each level divides the communities of the next; the last one is :attr:`label`.
        """
        levels: list[Array] = []
        below = np.arange(len(self._label), dtype=self._label.dtype)
        count = len(below)
        for above in self._maps:
            below = host_array(above)[below]
            pairs = below.astype(np.int64) * max(1, self.count) + self._label
            _, first, index = np.unique(pairs, return_index=True, return_inverse=True)
            if self.count < len(first) < count:
                levels.append(frozen(by_size(first.astype(below.dtype)[index])[0]))
                count = len(first)
        return [*levels, self._label]

    def largest(self, count: int) -> list[tuple[int, int]]:
        """Return labels and sizes of the largest communities, largest first.

        :raises InputError: ``count`` is not an integer, or negative
        """
        return list(enumerate(self.sizes[: as_count(count, "count")].tolist()))

    def members(self, community: int) -> list[Any]:
        """Return the vertices of a community by id (:attr:`Graph.ids`), in the order of positions.

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 2], [1, 3], directed=False, ids=["Ulm", "Bonn", "Jena", "Köln"])
        >>> gw.louvain(graph).members(1)
        ['Jena', 'Köln']

        :raises InputError: there is no such community
        """
        community = as_count(community, "community", 0, self.count - 1)
        return self.ids.of(np.flatnonzero(self._label == community))

    def to_dict(self) -> dict[Any, int]:
        """Return the community of every vertex, by its id (:attr:`Graph.ids`).

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 2], [1, 3], directed=False, ids=["Ulm", "Bonn", "Jena", "Köln"])
        >>> gw.louvain(graph).to_dict()
        {'Ulm': 0, 'Bonn': 0, 'Jena': 1, 'Köln': 1}
        """
        vertices = np.arange(len(self._label))
        return dict(zip(self.ids.of(vertices), self._label.tolist(), strict=True))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot how many communities have each size, on logarithmic scales.

        :param ax: axes of matplotlib to draw on; None for a new figure
        :returns: the axes; ``ax.figure.savefig("plot.pdf")`` writes a file
        :raises InputError: matplotlib is not installed
        """
        return plot_frequencies(self.sizes, "vertices of a community", ax, of="communities")

    @property
    def columns(self) -> list[Column]:
        """The community of each vertex."""
        return [Column("community", self._label)]

    def __repr__(self) -> str:
        largest = int(self.sizes.max(initial=0))
        return (
            f"CommunitiesResult({self.graph.vertex_count} vertices, {self.count} community(ies), the "
            f"largest of {largest}, modularity {self.modularity:.6g})"
        )
