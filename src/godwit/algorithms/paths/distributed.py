"""Results of searches on several processes, and predecessors there.

Predecessors are those of one process, by the rules of :mod:`godwit.algorithms.paths.predecessors`, which
only compare positions in the whole graph. Each step begins with the distances of remote vertices.

1. If a process has the in-arcs of its vertices, it searches these, which ascend by source. Otherwise it
   goes along its out-arcs and keeps the smallest source for each target, of which each remote one is sent
   once, to its owner.
2. Vertices that are left, as zero weights make, get theirs in rounds. In each, the vertices settled in the
   round before offer themselves along their out-arcs, and a remote vertex gets one offer of a process.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Self

import numpy as np

from godwit import config
from godwit.algorithms.paths.predecessors import (
    lengths_of,
    note_ties,
    pull,
    push,
    unreached_of,
)
from godwit.algorithms.paths.predecessors import (
    predecessors as predecessors_of,
)
from godwit.distributed.gpu_graph import GpuGraph
from godwit.distributed.graph import DistributedGraph
from godwit.distributed.halo import HaloRows
from godwit.distributed.result import DistributedResult
from godwit.dtypes import Array, frozen, id_dtype_for
from godwit.errors import InputError, shown
from godwit.graph.ids import Vertex, VertexIds
from godwit.graph.interchange.tables import Column
from godwit.graph.rows import require_memory
from godwit.runtime.cpu.team import run_team
from godwit.runtime.protocol import ProgressPoll
from godwit.runtime.statistics import RunStatistics
from godwit.worker.predecessors import (
    ALONE_ARCS,
    EQUAL,
    OPEN,
    SETTLED,
    candidates_of,
    offer,
    path_by,
)


class DistributedPathResult(DistributedResult):
    """Distances of the own vertices of a process from the nearest source.

    :ivar source_positions: positions of the sources in the whole graph, ascending
    """

    value_name = "distance"
    _nullable = True
    _gathered = ("_values", "_before")

    def __init__(
        self,
        graph: DistributedGraph | GpuGraph,
        sources: list[int],
        distance: Array,
        statistics: RunStatistics,
    ) -> None:
        super().__init__(graph, distance, statistics)
        self.source_positions = sources
        self._before: Array | None = None
        self._names: Array | VertexIds | int = 0
        self._graph: DistributedGraph | GpuGraph | None = None

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
    def predecessor(self) -> Array:
        """Position in the whole graph of the vertex before each one on a shortest path.

        -1 for sources and unreached vertices; of several candidates that of :class:`PathResult`.

        :raises InputError: the search was not asked for predecessors
        """
        if self._before is None:
            raise InputError(
                "a search on several processes finds these if predecessors=True is given"
            )
        return self._before

    @property
    def columns(self) -> list[Column]:
        """Distances, where a vertex was reached, and predecessors, where one was asked for and exists."""
        before = self._before
        if before is None:
            return self._shown_columns()
        return [
            *self._shown_columns(),
            self._column_of_vertices("predecessor", before, self._names, before >= 0),
        ]

    def _shown_columns(self) -> list[Column]:
        return [Column(self.value_name, self._values, self.reached)]

    def find_predecessors(
        self,
        graph: DistributedGraph | GpuGraph,
        *,
        unit_lengths: bool,
        poll: ProgressPoll | None,
    ) -> None:
        """Set the predecessors; all processes call it within a block of :meth:`Processes.running`.

        With the whole graph at hand, each process finds those of all vertices, on its cores.

        :param unit_lengths: every arc has length 1, regardless of weights
        """
        processed = int(self.statistics.processed_items.sum())
        with self.statistics.phase("predecessors"):
            if isinstance(graph, GpuGraph):
                count, own = graph.processes.count, self.vertices
                counts = np.full(count, len(own))
                whole, _, _ = graph.processes.exchange(np.tile(self._values, count), counts)
                sources = np.array(self.source_positions, np.int64)
                before = predecessors_of(graph.graph, whole, sources, unit_lengths=unit_lengths)
                self._before = before[own.start : own.stop].copy()
            else:
                self._before = predecessors(
                    graph, self._values, self.source_positions, unit_lengths=unit_lengths,
                    poll=None if poll is None else lambda: poll(processed),
                )  # fmt: skip
            self._graph = graph
            self._names = graph.names_of(np.maximum(self._before, 0))
        graph.processes.report(self.statistics)

    def path_to(self, vertex: Vertex) -> list[Any]:
        """Return the vertices of a shortest path from a source to a vertex, both included.

        All processes call it, and get the whole path; of a gathered result, the process that has it.

        :param vertex: an id, as are those of the path
        :raises InputError: the vertex does not exist, or was not reached, or the search was not asked for
            predecessors
        """
        before = self.predecessor
        graph, processes = self._graph, self._processes
        if graph is None or processes is None:
            position = self.ids.position(vertex)
            self._check_reached(position, vertex)
            return self.ids.of(path_by(before, position))
        with processes.running("path_to", vertex):
            here = int(graph.positions([vertex], "vertex")[0])
            first = self.vertices.start
            if here in self.vertices:
                self._check_reached(here - first, vertex)
            parts: list[tuple[int, list[Any]]] = []  # own parts of the path, from its end on
            count = 0
            while here >= 0:
                part = []
                is_own = here in self.vertices
                while here in self.vertices:
                    part.append(here - first)
                    here = int(before[part[-1]])
                if part:
                    parts.append((count, self.ids.of(part)))
                count += 1
                here = int(processes.meet(here if is_own else -1).max())
            known = sorted(
                (part for other in processes.share(parts) for part in other), key=_number
            )
            return [name for _, part in known for name in part][::-1]

    def _check_reached(self, number: int, vertex: Vertex) -> None:
        if self._values[number] == self.unreached:
            raise InputError(f"vertex {shown(vertex)} was not reached from the source")

    def with_wide_distances(self) -> Self:
        """Return the result with int64 distances, as searches by weights have."""
        wide = copy(self)  # which leaves the processes and the graph out
        wide._processes, wide._graph = self._processes, self._graph
        wide._values = self._values.astype(np.int64)
        wide._values[~self.reached] = np.iinfo(np.int64).max
        return wide

    def to_dict(self) -> dict[Any, int | float]:
        """Return the distance of every reached vertex, by its id."""
        reached = np.flatnonzero(self.reached)
        return dict(zip(self.ids.of(reached), self._values[reached].tolist(), strict=True))

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: all but the processes and the graph."""
        return {**super().__getstate__(), "_graph": None}


def _number(part: tuple[int, list[Any]]) -> int:
    return part[0]


def predecessors(
    graph: DistributedGraph,
    distance: Array,
    sources: list[int],
    *,
    unit_lengths: bool,
    poll: Callable[[], None] | None = None,
) -> Array:
    """Return the vertex before each own one on a shortest path; all processes call it.

    :param distance: of the own vertices, final
    :param sources: positions in the whole graph, each once
    :param unit_lengths: every arc has length 1, regardless of weights
    :returns: positions in the whole graph; -1 for sources and vertices that were not reached
    """
    search = _Search(graph, distance, unit_lengths=unit_lengths, poll=poll)
    if graph.has_in_rows:
        search.pull(sources)
    else:
        search.push()
    search.finish_ties(sources)
    return search.before


class _Search:
    """The part that one process has in finding predecessors.

    :ivar before: predecessors of the own vertices so far
    """

    def __init__(
        self, graph: DistributedGraph, distance: Array, *, unit_lengths: bool,
        poll: Callable[[], None] | None,
    ) -> None:  # fmt: skip
        rows, ids = graph.rows, id_dtype_for(graph.vertex_count)
        slots = max(rows.halo.slots, graph.in_rows.halo.slots if graph.has_in_rows else 0)
        require_memory(slots * (distance.itemsize + ids.itemsize), "predecessors")
        self._graph, self._processes = graph, graph.processes
        self._distance = distance
        self._unit = unit_lengths or not graph.is_weighted
        self._poll = poll
        self._first = graph.vertices.start
        self._threads = 1 if len(rows.targets) < ALONE_ARCS else config.thread_count()
        self.before = np.full(len(distance), -1, ids)

    def pull(self, sources: list[int]) -> None:
        """Find each vertex's smallest tight source of lesser distance (rule 1) among its in-arcs."""
        rows = self._graph.in_rows
        alone = self._unit and len(sources) == 1  # before the vertices of level 1 is the source
        slot = np.empty(len(self._distance), rows.targets.dtype)
        nothing = np.empty(0, np.int64)
        self._team(
            pull, frozen(rows.offsets), frozen(rows.targets), frozen(rows.offsets), frozen(rows.targets),
            self._lengths(rows), self._distances(rows), self._unreached, candidates_of(slot), nothing,
            self._unit, 1 if alone else -1, True,
        )  # fmt: skip
        found = slot >= 0
        self.before[found] = self._graph.positions_of_slots(rows)[slot[found]]
        if alone:
            self.before[self._distance == 1] = sources[0]

    def push(self) -> None:
        """Offer sources to the farther targets of tight out-arcs; the smallest stays (rule 1)."""
        rows, n = self._graph.rows, len(self._distance)
        number = np.empty(rows.halo.slots, rows.targets.dtype)
        self._team(
            push, frozen(rows.offsets), frozen(rows.targets), self._lengths(rows), self._distances(rows),
            self._unreached, candidates_of(number), self._unit,
        )  # fmt: skip
        own = np.flatnonzero(number[:n] >= 0)
        self.before[own] = number[own].astype(self.before.dtype) + self._first
        remote = np.flatnonzero(number[n:] >= 0) + n
        vertices, offered = self._send(remote, number[remote])
        candidates = candidates_of(self.before)
        np.minimum.at(candidates, vertices, candidates_of(offered))

    def finish_ties(self, sources: list[int]) -> None:
        """Settle by rounds the vertices whose tight arcs all come from equal distances (rule 2)."""
        n, rows = len(self._distance), self._graph.rows
        is_open = (self._distance != self._unreached) & (self.before < 0)
        own = [source - self._first for source in sources if source in self._graph.vertices]
        is_open[own] = False
        if self._unit or not self._processes.meet(int(is_open.any())).any():
            return
        require_memory(len(rows.targets) + rows.halo.slots, "predecessors")
        state = np.full(rows.halo.slots, SETTLED, np.uint8)
        state[:n][is_open] = OPEN
        self._processes.meet()
        rows.halo.refresh(state, rows.halo.border)
        kinds = np.zeros(len(rows.targets), np.uint8)
        self._team(
            note_ties, frozen(rows.offsets), frozen(rows.targets), self._lengths(rows),
            self._distances(rows), state, kinds,
        )  # fmt: skip
        number = np.full(rows.halo.slots, -1, rows.targets.dtype)
        queue = np.empty(int(np.count_nonzero(state == OPEN)), rows.targets.dtype)
        candidates = candidates_of(self.before)
        settled = np.flatnonzero(state[:n] == SETTLED).astype(rows.targets.dtype)
        while True:
            ends = np.zeros(1, np.int64)
            self._team(
                offer, settled, frozen(rows.offsets), frozen(rows.targets), kinds, EQUAL,
                candidates_of(number), state, queue, ends, threads=1,
            )  # fmt: skip
            offered_to = np.sort(queue[: int(ends[0])])
            state[offered_to] = SETTLED
            here, remote = np.split(offered_to, [np.searchsorted(offered_to, n)])
            self.before[here] = number[here].astype(self.before.dtype) + self._first
            vertices, offered = self._send(remote, number[remote])
            is_new = (state[vertices] == OPEN) | np.isin(vertices, here)
            vertices, offered = vertices[is_new], offered[is_new]
            np.minimum.at(candidates, vertices, candidates_of(offered))
            state[vertices] = SETTLED
            settled = np.union1d(here, vertices)
            if self._poll is not None:
                self._poll()
            if not self._processes.meet(len(settled)).any():
                return

    def _send(self, remote: Array, numbers: Array) -> tuple[Array, Array]:
        """Send own vertices as predecessors of remote ones; return what others send: vertex, predecessor.

        :param remote: slots, ascending
        :param numbers: of an own vertex for each
        """
        before = numbers.astype(self.before.dtype) + self._first
        return self._graph.rows.halo.to_owners(remote, before)

    def _distances(self, rows: HaloRows) -> Array:
        """Return distances over all slots; all processes call it."""
        distances = np.full(rows.halo.slots, self._unreached)
        distances[: len(self._distance)] = self._distance
        self._processes.meet()
        rows.halo.refresh(distances, rows.halo.border)
        return distances

    def _lengths(self, rows: HaloRows) -> Array:
        return frozen(lengths_of(rows, self._unit))

    @property
    def _unreached(self) -> Any:
        return unreached_of(self._distance.dtype)

    def _team(self, function: Any, *arguments: Any, threads: int | None = None) -> None:
        size = self._threads if threads is None else threads
        run_team(function, *arguments, threads=size, poll=self._poll)
