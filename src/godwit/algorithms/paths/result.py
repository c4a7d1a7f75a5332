"""Arguments and results of searches."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from functools import cached_property
from typing import Any
from weakref import ref

import numpy as np

from godwit.arrays import ResultLocation, computed_in_place, host_array
from godwit.dtypes import Array, as_number
from godwit.errors import (
    ClosedContextError,
    DeviceError,
    GraphTooLargeError,
    InputError,
    shown,
)
from godwit.graph.csr import Graph
from godwit.graph.ids import Sources, Vertex, VertexIds
from godwit.graph.interchange.tables import Column
from godwit.graph.result import VertexResult
from godwit.placement import PlacedGraph
from godwit.runtime.statistics import RunStatistics
from godwit.worker.predecessors import path_by

_HOST = ResultLocation()

_GPU_ARCS = 1 << 15
"""For smaller graphs CPUs compute predecessors on the host faster than copies to a GPU and back take."""


class PathResult(VertexResult):
    """Distances from the nearest of the sources.

    :param placed: the graph on its devices, on which predecessors are computed if it is kept until then
    :ivar graph: the graph of the query
    :ivar statistics: counts and times of the run
    :ivar location: of :attr:`distance`, :attr:`reached` and :attr:`predecessor`: NumPy arrays on the host,
        or CuPy arrays on a GPU
    """

    _nullable = True

    def __init__(
        self,
        graph: Graph,
        sources: Array,
        distance: Any,
        statistics: RunStatistics,
        *,
        unit_lengths: bool,
        location: ResultLocation = _HOST,
        placed: PlacedGraph | None = None,
    ) -> None:
        self.graph = graph
        on_gpus = placed is not None and placed.context.devices[0].kind == "cuda"
        # A result does not keep the memory of GPUs that a placed graph has.
        self._placed = ref(placed) if placed is not None and on_gpus and placed.is_kept else None
        self._sources = sources
        self.statistics = statistics
        self.unit_lengths = unit_lengths
        self.location = location
        self._given = distance  # on the host or on the GPU of the location

    @property
    def sources(self) -> list[Any]:
        """The sources by id (:attr:`Graph.ids`), each once, ascending by number."""
        return self.graph.ids.of(self._sources)

    @cached_property
    def distance(self) -> Array:
        """Distance of every vertex, shape (n).

        BFS: int32, in arcs. SSSP: int64 for integer weights (exact), float64 for others. An unreached
        vertex has the largest value of the dtype (:attr:`unreached`), infinity for floats.
        """
        placed: Array = self.location.place(self._given)
        return placed

    @cached_property
    def _distance(self) -> Array:
        """The distances on the host, copied there on first use."""
        return host_array(self._given)

    @property
    def unreached(self) -> int | float:
        """The distance of unreached vertices."""
        if self._given.dtype.kind == "f":
            return float("inf")
        return int(np.iinfo(self._given.dtype).max)

    @property
    def reached(self) -> Array:
        """Which vertices were reached, bool of shape (n)."""
        reached: Array = self.location.place(
            computed_in_place(self._given, lambda them: them != self.unreached)
        )
        return reached

    @property
    def predecessor(self) -> Array:
        """The number of the vertex before each one on a shortest path, shape (n), dtype of the targets.

        -1 for sources and unreached vertices. Of several candidates the smallest (among zero-weight ties,
        the one with the fewest zero-weight hops): following predecessors always ends at a source, and the
        result does not depend on devices, partition or schedule. Computed by a pass over the arcs on first
        use: on the GPUs of a placed graph while that is open, if there is room; else on CPUs.
        """
        return self._predecessor if self.location.gpu is None else self._predecessor_on_gpu

    @cached_property
    def _computed_predecessor(self) -> Any:
        """The predecessors, at the location of the result or on the host."""
        with self.statistics.phase("predecessors"):
            placed = None if self._placed is None else self._placed()
            is_large = self.location.gpu is not None or self.graph.arc_count >= _GPU_ARCS
            if placed is not None and is_large:
                from godwit.algorithms.paths.cuda import predecessors_on_gpus

                with suppress(ClosedContextError, DeviceError, GraphTooLargeError, InputError):
                    return predecessors_on_gpus(
                        placed, self._given, self._sources, unit_lengths=self.unit_lengths,
                        location=self.location,
                    )  # fmt: skip
            from godwit.algorithms.paths.predecessors import predecessors

            return predecessors(
                self.graph, self._distance, self._sources, unit_lengths=self.unit_lengths
            )

    @cached_property
    def _predecessor(self) -> Array:
        return host_array(self._computed_predecessor)

    @cached_property
    def _predecessor_on_gpu(self) -> Any:
        return self.location.place(self._computed_predecessor)

    def to_dict(self) -> dict[Any, int | float]:
        """Return the distance of every reached vertex, by its id (:attr:`Graph.ids`).

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

    @property
    def ids(self) -> VertexIds:
        """Ids of the vertices that have values, in the order of the values."""
        return self.graph.ids

    @property
    def columns(self) -> list[Column]:
        """Distances, where a vertex was reached, and predecessors, where it has one."""
        before = self._predecessor
        return [*self._shown_columns(), Column("predecessor", before, before >= 0, ids=True)]

    def _shown_columns(self) -> list[Column]:
        return [Column("distance", self._distance, self._distance != self.unreached)]

    def path_to(self, vertex: Vertex) -> list[Any]:
        """Return the vertices of a shortest path from a source to a vertex, both included.

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 1], [1, 2], ids=["Bonn", "Ulm", "Jena"])
        >>> gw.bfs(graph, "Bonn").path_to("Jena")
        ['Bonn', 'Ulm', 'Jena']

        :param vertex: an id (:attr:`Graph.ids`), as are those of the path
        :raises InputError: the vertex does not exist, or was not reached
        """
        return self.graph.ids.of(self._positions_to(self.graph.ids.position(vertex)))

    def _positions_to(self, position: int) -> list[int]:
        """Return the positions of the vertices of a shortest path from a source to a position."""
        if host_array(self._given[position : position + 1])[0] == self.unreached:
            raise InputError(
                f"vertex {shown(self.graph.ids[position])} was not reached from the source"
            )
        return path_by(self._predecessor, position)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: all but the placed graph."""
        return {**self.__dict__, "_placed": None}

    def __repr__(self) -> str:
        reached = int(np.count_nonzero(self._distance != self.unreached))
        return (
            f"PathResult({reached} of {len(self._distance)} vertices "
            f"reached from {len(self._sources)} source(s), {self._distance.dtype})"
        )


def check_cutoff(cutoff: Any) -> float | None:
    """Return the cutoff as a number, infinity for integers beyond all floating-point numbers.

    :raises InputError: it is no number, negative or NaN
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
    """Return the numbers of sources and target, and the cutoff: 0 in place of a target that is a source.

    :raises InputError: one of them is invalid
    """
    ids = graph.ids
    sources = ids.one_or_several(source, "source")
    position = None if target is None else ids.position(target, "target")
    cutoff = check_cutoff(cutoff)
    if position is not None and bool((sources == position).any()):
        return sources, None, 0.0
    return sources, position, cutoff
