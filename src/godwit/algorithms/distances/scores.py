"""A value for each vertex, or for each of those that were asked for."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from godwit.algorithms.scores import VertexScores
from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.runtime.statistics import RunStatistics


class SomeScores(VertexScores):
    """A value for each vertex, or for each of those that were asked for.

    :ivar graph: the graph
    :ivar statistics: work and times of the run; its items are pairs of vertices that a path connects
    :ivar location: where the array lives: a NumPy array on the host, or CuPy's on a GPU
    """

    def __init__(
        self,
        graph: Graph,
        vertices: Array | None,
        scores: Array,
        statistics: RunStatistics,
        location: ResultLocation,
    ) -> None:
        super().__init__(graph, scores, statistics, location)
        self._vertices = vertices

    @cached_property
    def ids(self) -> VertexIds:
        """Ids of the vertices that have values, in the order of the values."""
        ids = self.graph.ids
        return ids if self._vertices is None else ids.take(self._vertices)

    @property
    def vertices(self) -> list[Any]:
        """The vertex of each value by id (:attr:`Graph.ids`): those asked for, by position."""
        return list(self.ids)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._scores)} vertices)"
