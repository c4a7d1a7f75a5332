"""What breadth-first search and shortest paths have in common: sources, limits, and the result."""

from __future__ import annotations

import math
import sys
from functools import cached_property
from typing import Any

import numpy as np

from godwit.arrays import ResultLocation, host_array
from godwit.dtypes import as_number
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.ids import Sources, Vertex
from godwit.graph.interchange.tables import Column, to_pandas, vertex_table
from godwit.runtime.protocol import Array
from godwit.runtime.statistics import RunStatistics

_HOST = ResultLocation()


class PathResult:
    """Distances from the nearest of the sources.

    :ivar graph: the graph that was asked
    :ivar statistics: what the run did and how long it took
    :ivar location: where :attr:`distance`, :attr:`reached` and :attr:`predecessor` live: NumPy arrays on
        the host, or CuPy's on a GPU
    """

    def __init__(
        self,
        graph: Graph,
        sources: Array,
        distance: Any,
        statistics: RunStatistics,
        *,
        unit_lengths: bool,
        location: ResultLocation = _HOST,
    ) -> None:
        self.graph = graph
        self._sources = sources
        self.statistics = statistics
        self.unit_lengths = unit_lengths
        self.location = location
        self._given = distance  # of the host, or of the GPU that is home

    @property
    def sources(self) -> list[Any]:
        """The sources by id (:attr:`Graph.ids`), each once, in the order of positions."""
        return self.graph.ids.of(self._sources)

    @cached_property
    def distance(self) -> Array:
        """Distance of every vertex, shape (n).

        BFS: int32, in arcs. SSSP: int64 for integer weights (exact), float64 for others. A vertex that
        was not reached has the largest value of the dtype (:attr:`unreached`), infinity for floats.
        """
        placed: Array = self.location.place(self._given)
        return placed

    @cached_property
    def _distance(self) -> Array:
        """On the host; brought there when first asked for."""
        return host_array(self._given)

    @property
    def unreached(self) -> int | float:
        """The distance of vertices that were not reached."""
        if self._given.dtype.kind == "f":
            return float("inf")
        return int(np.iinfo(self._given.dtype).max)

    @property
    def reached(self) -> Array:
        """bool (n): whether a vertex was reached."""
        if isinstance(self._given, np.ndarray):
            reached: Array = self.location.place(self._given != self.unreached)
        else:
            with self._given.device:
                reached = self._given != self.unreached
        return reached

    @property
    def predecessor(self) -> Array:
        """The position of the vertex before each on a shortest path, shape (n), dtype of the targets.

        -1 for sources and vertices that were not reached. Of several candidates the first
        (among zero-weight ties, the one in the fewest zero-weight hops): following predecessors always
        ends at a source, and the answer does not depend on devices, partition or schedule. Computed by
        a pass over the arcs when first asked for.
        """
        return self._predecessor if self.location.gpu is None else self._predecessor_on_gpu

    @cached_property
    def _predecessor(self) -> Array:
        from godwit.algorithms.paths.predecessors import predecessors

        with self.statistics.phase("predecessors"):
            before: Array = predecessors(
                self.graph, self._distance, self._sources, unit_lengths=self.unit_lengths
            )
        return before

    @cached_property
    def _predecessor_on_gpu(self) -> Any:
        return self.location.place(self._predecessor)

    def to_dict(self) -> dict[Any, int | float]:
        """The distance of every vertex that was reached, by its id (:attr:`Graph.ids`).

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 1], [1, 2], [4, 3], ids=["Bonn", "Ulm", "Jena", "Kiel"],
        ...                            vertex_count=4)
        >>> gw.sssp(graph, "Bonn").to_dict()
        {'Bonn': 0, 'Ulm': 4, 'Jena': 7}
        """
        vertices = np.flatnonzero(self._distance != self.unreached)
        return dict(
            zip(self.graph.ids.of(vertices), self._distance[vertices].tolist(), strict=True)
        )

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table`` with a row per vertex: columns ``vertex``, ``distance``, ``predecessor``.

        Vertices are called by their ids (:attr:`Graph.ids`). The distance of a vertex that was not
        reached is null, and so is what comes before it or before a source.
        """
        return vertex_table(path_columns(self, predecessors=True), self.graph.ids)

    def to_pandas(self) -> Any:
        """The table of :meth:`to_arrow` as a ``pandas.DataFrame``; integers are nullable ones.

        :raises InputError: pandas is not installed
        """
        return to_pandas(self.to_arrow(), nullable=True)

    def path_to(self, vertex: Vertex) -> list[Any]:
        """Return the vertices of a shortest path from a source to a vertex, both included.

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 1], [1, 2], ids=["Bonn", "Ulm", "Jena"])
        >>> gw.bfs(graph, "Bonn").path_to("Jena")
        ['Bonn', 'Ulm', 'Jena']

        :param vertex: an id (:attr:`Graph.ids`), as are those of the path
        :raises InputError: there is no such vertex, or it was not reached
        """
        return self.graph.ids.of(self._positions_to(self.graph.ids.position(vertex)))

    def _positions_to(self, position: int) -> list[int]:
        """Return the positions of the vertices of a shortest path."""
        if self._distance[position] == self.unreached:
            raise InputError(
                f"vertex {shown(self.graph.ids[position])} was not reached from the source"
            )
        path = [position]
        while (before := int(self._predecessor[path[-1]])) >= 0:
            path.append(before)
        return path[::-1]

    def __repr__(self) -> str:
        reached = int(np.count_nonzero(self._distance != self.unreached))
        return (
            f"PathResult({reached} of {len(self._distance)} vertices "
            f"reached from {len(self._sources)} source(s), {self._distance.dtype})"
        )


def path_columns(result: PathResult, *, predecessors: bool) -> list[Column]:
    """What a table of the vertices says of paths: distance, and perhaps predecessor."""
    columns = [Column("distance", result._distance, result._distance != result.unreached)]
    if predecessors:
        before = result._predecessor
        columns.append(Column("predecessor", before, before >= 0, ids=True))
    return columns


def check_cutoff(cutoff: Any) -> float | None:
    """The cutoff as a number; InputError if it is none, or negative, or NaN.

    An integer beyond all floating-point numbers is beyond all distances: infinity.
    """
    if cutoff is None:
        return None
    number = as_number(cutoff, "cutoff")
    if not number >= 0:
        raise InputError(f"cutoff must not be negative, got {shown(cutoff)}")
    return number if number < sys.float_info.max else math.inf


def check_query(
    graph: Graph, source: Sources, target: Vertex | None, cutoff: float | None
) -> tuple[Array, int | None, float | None]:
    """What was asked of a graph: the positions of sources and target, and the cutoff.

    :raises InputError: one of them is wrong
    """
    ids = graph.ids
    sources = ids.one_or_several(source, "source")
    position = None if target is None else ids.position(target, "target")
    return sources, position, check_cutoff(cutoff)
