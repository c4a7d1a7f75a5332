"""Results of searches on several processes."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np

from godwit.distributed.gpu_graph import GpuGraph
from godwit.distributed.graph import DistributedGraph
from godwit.distributed.result import DistributedResult
from godwit.dtypes import Array
from godwit.graph.interchange.tables import Column
from godwit.runtime.statistics import RunStatistics


class DistributedPathResult(DistributedResult):
    """Distances of the own vertices of a process from the nearest source.

    :ivar source_positions: positions of the sources in the whole graph, ascending
    """

    value_name = "distance"
    _nullable = True

    def __init__(
        self,
        graph: DistributedGraph | GpuGraph,
        sources: list[int],
        distance: Array,
        statistics: RunStatistics,
    ) -> None:
        super().__init__(graph, distance, statistics)
        self.source_positions = sources

    @property
    def distance(self) -> Array:
        """Distance of each vertex in ``vertices``, as of :class:`PathResult`."""
        return self._values

    @property
    def unreached(self) -> int | float:
        """The distance of unreached vertices."""
        if self._values.dtype.kind == "f":
            return float("inf")
        return int(np.iinfo(self._values.dtype).max)

    @property
    def reached(self) -> Array:
        """Which vertices were reached, bool."""
        reached: Array = self._values != self.unreached
        return reached

    @property
    def columns(self) -> list[Column]:
        """Distances, where a vertex was reached."""
        return [Column(self.value_name, self._values, self.reached)]

    def with_wide_distances(self) -> Self:
        """Return the result with int64 distances, as searches by weights have."""
        wide = copy(self)  # which leaves the processes out
        wide._processes = self._processes
        wide._values = self._values.astype(np.int64)
        wide._values[~self.reached] = np.iinfo(np.int64).max
        return wide

    def to_dict(self) -> dict[Any, int | float]:
        """Return the distance of every reached vertex, by its id."""
        reached = np.flatnonzero(self.reached)
        return dict(zip(self.ids.of(reached), self._values[reached].tolist(), strict=True))
