"""What breadth-first search and shortest paths have in common: sources, limits, and the result."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cached_property
from typing import Any

import numpy as np

from godwit.arrays import Home, host_array
from godwit.backends.base import Array
from godwit.dtypes import as_flag, as_integer, as_number, shown
from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.interchange.tables import Column, to_pandas, vertex_table
from godwit.solvers.statistics import RunStatistics

Sources = int | Sequence[int] | Set[int] | Array

_HOST = Home()


class PathResult:
    """Distances from the nearest of the sources.

    :ivar graph: the graph that was asked
    :ivar sources: int64, the sources, ascending and without repetition
    :ivar statistics: what the run did and how long it took
    :ivar home: where :attr:`distance`, :attr:`reached` and :attr:`predecessor` live: NumPy arrays on
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
        home: Home = _HOST,
    ) -> None:
        self.graph = graph
        self.sources = sources
        self.statistics = statistics
        self.unit_lengths = unit_lengths
        self.home = home
        self._given = distance  # of the host, or of the GPU that is home

    @cached_property
    def distance(self) -> Array:
        """Distance of every vertex, shape (n).

        BFS: int32, in arcs. SSSP: int64 for integer weights (exact), float64 for others. A vertex that
        was not reached has the largest value of the dtype (:attr:`unreached`), infinity for floats.
        """
        placed: Array = self.home.place(self._given)
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
            reached: Array = self.home.place(self._given != self.unreached)
        else:
            with self._given.device:
                reached = self._given != self.unreached
        return reached

    @property
    def predecessor(self) -> Array:
        """The vertex before each on a shortest path, shape (n), dtype of the graph's ids.

        -1 for sources and vertices that were not reached. Of several candidates the one of smallest id
        (among zero-weight ties, the one in the fewest zero-weight hops): following predecessors always
        ends at a source, and the answer does not depend on devices, partition or schedule. Computed by
        a pass over the arcs when first asked for.
        """
        return self._predecessor if self.home.gpu is None else self._predecessor_on_gpu

    @cached_property
    def _predecessor(self) -> Array:
        from godwit.algorithms.predecessors import predecessors

        with self.statistics.phase("predecessors"):
            before: Array = predecessors(
                self.graph, self._distance, self.sources, unit_lengths=self.unit_lengths
            )
        return before

    @cached_property
    def _predecessor_on_gpu(self) -> Any:
        return self.home.place(self._predecessor)

    def to_dict(self) -> dict[Any, int | float]:
        """The distance of every vertex that was reached, by its id (:attr:`Graph.ids`).

        >>> import godwit as gw
        >>> graph = gw.Graph.from_arcs([0, 1], [1, 2], [4, 3], ids=["Bonn", "Ulm", "Jena", "Kiel"],
        ...                            vertex_count=4)
        >>> gw.sssp(graph, graph.ids.vertex("Bonn")).to_dict()
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

    def path_to(self, vertex: int) -> list[int]:
        """The vertices of a shortest path from a source to a vertex, both included.

        :raises InputError: the vertex is out of range or was not reached
        """
        vertex = check_vertex(vertex, self.graph, "vertex")
        if self._distance[vertex] == self.unreached:
            raise InputError(f"vertex {vertex} was not reached from the source")
        path = [vertex]
        while (before := int(self._predecessor[path[-1]])) >= 0:
            path.append(before)
        return path[::-1]

    def __repr__(self) -> str:
        reached = int(np.count_nonzero(self._distance != self.unreached))
        return (
            f"PathResult({reached} of {len(self._distance)} vertices "
            f"reached from {len(self.sources)} source(s), {self._distance.dtype})"
        )


def path_columns(result: PathResult, *, predecessors: bool) -> list[Column]:
    """What a table of the vertices says of paths: distance, and perhaps predecessor."""
    columns = [Column("distance", result._distance, result._distance != result.unreached)]
    if predecessors:
        before = result._predecessor
        columns.append(Column("predecessor", before, before >= 0, ids=True))
    return columns


def check_vertex(vertex: Any, graph: Graph | VertexIds, what: str) -> int:
    """The vertex as int; InputError if it is no integer in [0, n).

    :param graph: it, or its ids; those of a graph are asked for (and so read from its file) only to say
        what is wrong
    """
    if isinstance(vertex, str):
        ids = graph.ids if isinstance(graph, Graph) else graph
        raise InputError(ids.not_by_id(vertex, what))
    found = as_integer(vertex, what)
    count = graph.vertex_count if isinstance(graph, Graph) else len(graph)
    if not 0 <= found < count:
        if count == 0:
            raise InputError(f"{what} is {shown(found)}, and the graph has no vertices")
        raise InputError(f"{what} must be in [0, {count}), got {shown(found)}")
    return found


def uses_weights(graph: Graph, weighted: Any) -> bool:
    """Whether an algorithm heeds weights: as is said, or where there are some.

    :raises InputError: they are to be, and there are none
    """
    if weighted is not None:
        weighted = as_flag(weighted, "weighted")
    if weighted and not graph.is_weighted:
        raise InputError("weighted=True needs a graph with weights; with_weights() gives it some")
    return graph.is_weighted and weighted is not False


def check_sources(source: Sources, graph: Graph, what: str = "source") -> Array:
    """The sources, ascending and unique, int64; InputError if there is none or one is no vertex.

    :param what: the parameter that they were given by
    """
    given: Any = list(source) if isinstance(source, Set) else source
    if isinstance(given, str) or (hasattr(given, "__index__") and np.ndim(given) == 0):
        return np.array([check_vertex(given, graph, what)], np.int64)
    try:
        several = host_array(given)
    except (TypeError, ValueError):  # lists of several lengths
        several = np.empty(0)
    if several.ndim == 1 and several.size and several.dtype.kind == "U":
        raise InputError(graph.ids.not_by_id(str(several[0]), f"each of {what}"))
    if several.ndim != 1 or several.size == 0 or several.dtype.kind not in "iu":
        raise InputError(
            f"{what} must be a vertex or a non-empty list of vertices, got {shown(source)}"
        )
    count = graph.vertex_count
    wrong = (several < 0) | (several >= count)
    if wrong.any():
        position = int(np.argmax(wrong))
        raise InputError(
            f"sources must be in [0, {count}), got {several[position]} at position {position}"
        )
    return np.unique(several).astype(np.int64)


def check_cutoff(cutoff: Any) -> float | None:
    """The cutoff as a number; InputError if it is none, or negative, or NaN."""
    if cutoff is None:
        return None
    number = as_number(cutoff, "cutoff")
    if not number >= 0:
        raise InputError(f"cutoff must not be negative, got {shown(cutoff)}")
    return number


def check_query(
    graph: Graph, source: Sources, target: int | None, cutoff: float | None
) -> tuple[Array, int | None, float | None]:
    """What was asked of a graph: the sources (see :func:`check_sources`), target and cutoff.

    :raises InputError: one of them is wrong
    """
    sources = check_sources(source, graph)
    if target is not None:
        target = check_vertex(target, graph, "target")
    return sources, target, check_cutoff(cutoff)
