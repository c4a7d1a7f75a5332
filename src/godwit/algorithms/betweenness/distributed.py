"""Betweenness centrality on several processes: Brandes, by the levels of one search at a time.

From each source (in ascending order) three passes go over the graph:

- a breadth-first search on all processes (:mod:`godwit.algorithms.bfs.distributed`), after which the
  levels of remote vertices are fetched, once;
- *forward*, level by level, a vertex adds up the path counts of its in-neighbours on the level before;
- *backward*, from the last level on, it adds up the coefficients of its out-neighbours on the level after
  (:mod:`godwit.algorithms.betweenness.cpu` has the definitions), which gives its dependency.

A level is a superstep in each of both: the counts, or coefficients, of those own vertices of the level
that other processes have in their halo. Both ends know the level of every such vertex and send them in one
order, so no vertex is named: 8 bytes for each vertex of a halo and pass.

Results have the same bits for any number of processes and threads: a vertex gathers along its row, in the
order of the whole graph, and sources are added in their order. One process without MPI adds counts in
the order of its queue; its results differ by that rounding, where numbers of paths exceed 2^53, and in the
order of successors.

Counts beyond 2^900 are repeated with exponents, as in one process (``_WIDE``), for that source alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from godwit import config
from godwit.algorithms.betweenness import Scales, check_scale, draw_sources
from godwit.algorithms.betweenness.path_counts import LARGEST_COUNT, add_wide, raised
from godwit.algorithms.bfs.cpu import UNREACHED
from godwit.algorithms.bfs.distributed import Search
from godwit.algorithms.paths.weights import uses_weights
from godwit.distributed.gpu_graph import GpuGraph
from godwit.distributed.graph import DistributedGraph
from godwit.distributed.halo import Halo, HaloRows
from godwit.distributed.result import DistributedScores
from godwit.dtypes import Array, as_flag
from godwit.errors import InputError
from godwit.graph.ids import Sources
from godwit.graph.rows import require_memory
from godwit.progress import ProgressArgument
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import next_range, run_team
from godwit.runtime.statistics import RunStatistics
from godwit.worker.options import query_options
from godwit.worker.solve import make_poll

_ALONE_VERTICES = 512
"""Levels of fewer own vertices are computed by one thread."""
_CHUNK = 64
_LINE = 8  # words of a cache line

_WIDE = False  # bound when a kernel is made: counts with exponents

_at: Any = np.uint64


class DistributedBetweennessResult(DistributedScores):
    """Betweenness of the own vertices of a process.

    :ivar source_positions: positions of the sources in the whole graph, ascending
    """

    value_name = "centrality"

    def __init__(
        self,
        graph: DistributedGraph | GpuGraph,
        sources: list[int],
        centrality: Array,
        statistics: RunStatistics,
    ) -> None:
        super().__init__(graph, centrality, statistics)
        self.source_positions = sources

    @property
    def centrality(self) -> Array:
        """Betweenness of each vertex in ``vertices``, float64."""
        return self._values


def betweenness_centrality(
    graph: DistributedGraph,
    *,
    sources: Sources | None = None,
    samples: int | None = None,
    seed: int = 0,
    normalized: bool = True,
    scale: str = "all",
    endpoints: bool = False,
    weighted: bool | None = None,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
) -> DistributedBetweennessResult:
    """Return the betweenness of the own vertices; see :func:`godwit.betweenness_centrality`."""
    same = (sources, samples, seed, normalized, scale, endpoints, weighted)
    with graph.processes.running("betweenness_centrality", graph.vertex_count, *same):
        options = query_options(timeout_s=timeout_s, progress=progress)
        scale = check_scale(scale)
        normalized, endpoints = (
            as_flag(normalized, "normalized"),
            as_flag(endpoints, "endpoints"),
        )
        _check_lengths(graph, weighted)
        drawn = draw_sources(graph.vertex_count, sources, samples, seed)
        chosen = graph.own_sources(sources)[1] if drawn is None else drawn.tolist()
        statistics = RunStatistics(("cpu",), "brandes")
        with statistics.phase("place"):
            graph.in_rows  # noqa: B018 (made on first use)
        sums = _Sums(graph, endpoints, make_poll(options, len(chosen)))
        with statistics.phase("run"):
            for source in chosen:
                sums.add(source)
        scales = (
            Scales.of(graph, len(chosen), normalized, endpoints) if scale == "all" else Scales()
        )
        own = graph.vertices
        scales.apply(np.array([v - own.start for v in chosen if v in own], np.int64), sums.totals)
        statistics.processed_items = np.array([sums.visited], np.int64)
        statistics.arcs_relaxed = np.array([sums.examined], np.int64)
        graph.processes.report(statistics)
        return DistributedBetweennessResult(graph, chosen, sums.totals, statistics)


def _check_lengths(graph: DistributedGraph, weighted: Any) -> None:
    """Raise InputError if weights are asked for."""
    if uses_weights(graph, weighted):
        raise InputError(
            "betweenness by weights is of one process; on several, weighted=False counts arcs"
        )


@dataclass(frozen=True)
class _Sections:
    """Items of each process, sorted by level.

    :ivar items: by level, then by process
    :ivar begins: int64 (levels, processes + 1) first item of each process, and end of the last one
    """

    items: Array
    begins: Array

    @classmethod
    def of(cls, levels: Array, items: Array, counts: Array, depth: int) -> Self:
        """Sort items by level; those that were not reached are left out.

        :param levels: of everything that items index
        :param counts: (processes) items of each, one behind the other
        :param depth: number of levels
        """
        processes = len(counts)
        require_memory(16 * (depth + 1) * processes, f"a search of {depth:,} levels")
        ends = np.zeros(depth * processes + 2, np.int64)
        sorted_items = np.empty_like(items)
        run_team(
            _sort_by_level, levels, items, np.cumsum(counts), ends, sorted_items, threads=1, brief=True
        )  # fmt: skip
        begins = np.lib.stride_tricks.sliding_window_view(ends[:-1], processes + 1)[::processes]
        return cls(sorted_items, begins)


class _Side:
    """In-arcs or out-arcs of the own vertices, and the values of their other ends.

    :ivar levels: int32, over all slots
    :ivar values: float64 over all slots: numbers of paths, or coefficients
    :ivar exponents: int32 over all slots, of counts with exponents
    """

    def __init__(self, rows: HaloRows) -> None:
        self.rows = rows
        self.halo: Halo = rows.halo
        slots = self.halo.slots
        self.levels = np.full(slots, UNREACHED, np.int32)
        self.values = np.empty(slots)
        self.exponents = np.zeros(slots, np.int32)
        begins, counts = self.halo.begins[:-1], self.halo.counts
        first = np.cumsum(counts) - counts
        self._slots = (np.arange(counts.sum()) + np.repeat(begins - first, counts)).astype(
            rows.targets.dtype
        )
        nothing = np.empty(0, rows.targets.dtype)
        self._border = self._remote = _Sections(nothing, np.zeros((1, 1), np.int64))

    def begin(self, distance: Array, depth: int) -> None:
        """Fetch the levels of a search; all processes call it after a meeting.

        :param distance: of the own vertices
        """
        halo = self.halo
        self.levels[: len(distance)] = distance
        halo.refresh(self.levels, halo.border)
        self._border = _Sections.of(self.levels, halo.border, halo.border_counts, depth)
        self._remote = _Sections.of(self.levels, self._slots, halo.counts, depth)

    def send(self, level: int, *arrays: Array) -> None:
        """Set values of remote vertices of a level; all processes call it after a meeting."""
        here, there = self._border.begins[level], self._remote.begins[level]
        sent = self._border.items[here[0] : here[-1]]
        slots = self._remote.items[there[0] : there[-1]]
        for values in arrays:
            received = np.empty(len(slots), values.dtype)
            self.halo.processes.send(
                values[sent], here[:-1] - here[0], np.diff(here), received, there[:-1] - there[0],
                np.diff(there),
            )  # fmt: skip
            values[slots] = received


class _Sums:
    """The part that one process has in the sums of dependencies.

    :ivar totals: float64 of the own vertices: sums over the sources so far
    :ivar visited: own vertices reached, over all searches
    :ivar examined: arcs of these
    """

    def __init__(
        self, graph: DistributedGraph, endpoints: bool, report: Callable[[int], None] | None
    ) -> None:
        n, slots = graph.rows.vertex_count, graph.rows.halo.slots + graph.in_rows.halo.slots
        require_memory(24 * n + 32 * slots, "betweenness centrality")
        self._graph = graph
        self._processes = graph.processes
        self._endpoints = float(endpoints)
        self._threads = config.thread_count()
        self._out = _Side(graph.rows)
        self._in = _Side(graph.in_rows) if graph.directed else self._out
        # Where both sides have the same slots, coefficients are not to overwrite counts.
        self._coefficients = np.empty(graph.rows.halo.slots)
        self._own = np.arange(n, dtype=graph.rows.targets.dtype)
        self._degrees = np.diff(graph.rows.offsets)
        self.totals = np.zeros(n)
        self.visited = self.examined = 0
        self._begun = 0
        self._poll = None if report is None else lambda: report(self._begun)

    def add(self, source: int) -> None:
        """Add the dependencies of a source, a position in the whole graph; all processes call it."""
        own = self._graph.vertices
        sources = np.array([source - own.start] if source in own else [], np.int64)
        poll = self._poll
        search = Search(self._graph, None if poll is None else lambda visited: poll())
        search.run(sources, UNREACHED - 1)
        distance, depth = search.distance, search.levels
        self._meet()
        for side in {id(side): side for side in (self._in, self._out)}.values():
            side.begin(distance, depth)
        items = _Sections.of(distance, self._own, np.array([len(self._own)]), depth)
        wide = not self._count(sources, items, depth, wide=False)
        if wide:
            self._count(sources, items, depth, wide=True)
        self._depend(items, depth, wide=wide)
        self.totals[sources] += self._endpoints * (search.visited - 1)
        reached = distance != UNREACHED
        self.visited += int(np.count_nonzero(reached))
        self.examined += int(self._degrees[reached].sum())
        self._begun += 1

    def _count(self, sources: Array, items: _Sections, depth: int, *, wide: bool) -> bool:
        """Count the paths to all vertices; return False if there are too many in any process."""
        side = self._in
        sent = (side.values, side.exponents) if wide else (side.values,)
        side.values[sources] = 1.0
        side.exponents[sources] = 0
        too_many = np.zeros(_LINE * self._threads, np.int64)
        for level in range(1, depth):
            if self._meet(int(too_many.any())):
                return False
            side.send(level - 1, *sent)
            self._team(
                _COUNT[wide], items, level, side.rows.offsets, side.rows.targets, side.levels,
                side.values, side.exponents, too_many,
            )  # fmt: skip
        return not self._meet(int(too_many.any()))

    def _depend(self, items: _Sections, depth: int, *, wide: bool) -> None:
        """Add dependencies to the totals, from the last level to that after the source."""
        side, counts = self._out, self._in
        n = len(self._own)
        if wide and side is not counts:
            side.exponents[:n] = counts.exponents[:n]
        sent = (self._coefficients, side.exponents) if wide else (self._coefficients,)
        for level in range(depth - 1, 0, -1):
            self._team(
                _DEPEND[wide], items, level, side.rows.offsets, side.rows.targets, side.levels,
                counts.values, side.exponents, self._coefficients, self._endpoints, self.totals,
            )  # fmt: skip
            if level > 1:
                self._meet()
                side.send(level, *sent)

    def _meet(self, flag: int = 0) -> bool:
        """Meet; return True if any process has set the flag."""
        if self._poll is not None:
            self._poll()
        return bool(self._processes.meet(flag).any())

    def _team(self, function: Any, items: _Sections, level: int, *arguments: Any) -> None:
        """Run a kernel on the own vertices of a level."""
        begin, end = items.begins[level].tolist()
        if begin == end:
            return
        small = end - begin < _ALONE_VERTICES
        run_team(
            function, items.items, begin, end, level, *arguments,
            threads=1 if small else self._threads, poll=None if small else self._poll, brief=small,
        )  # fmt: skip


@kernel
def _sort_by_level(
    rank: int, size: int, control: Any, levels: Any, items: Any, section_ends: Any, ends: Any,
    sorted_items: Any,
) -> None:  # fmt: skip
    """Sort items by level and section; ``ends`` (zeros) gets the begin of each, and the end of the last."""
    sections = section_ends.size
    for fill in (False, True):
        i = np.int64(0)
        for section in range(sections):
            while i < section_ends[section]:
                item = items[_at(i)]
                level = np.int64(levels[_at(item)])
                if level != UNREACHED:
                    # Counts go two places further, so that filling leaves the begins.
                    place = level * sections + section + 1
                    if fill:
                        sorted_items[_at(ends[_at(place)])] = item
                        ends[_at(place)] += 1
                    else:
                        ends[_at(place + 1)] += 1
                i += 1
        if not fill:
            for place in range(1, ends.size):
                ends[_at(place)] += ends[_at(place - 1)]


@kernel
def _count(
    rank: int, size: int, control: Any, items: Any, begin: int, end: int, level: int, offsets: Any,
    targets: Any, levels: Any, counts: Any, exponents: Any, too_many: Any,
) -> None:  # fmt: skip
    """Count the paths to the vertices of a level, by their in-arcs."""
    while True:
        first, last = next_range(control, _CHUNK, end - begin)
        if first == last:
            return
        for i in range(begin + first, begin + last):
            v = items[_at(i)]
            total = 0.0
            if _WIDE:
                counts[_at(v)] = 0.0
            for arc in range(offsets[_at(v)], offsets[_at(v) + _at(1)]):
                u = targets[_at(arc)]
                if levels[_at(u)] == level - 1:
                    if _WIDE:
                        add_wide(counts, exponents, v, counts[_at(u)], exponents[_at(u)])
                    else:
                        total += counts[_at(u)]
            if not _WIDE:
                counts[_at(v)] = total
                if total > LARGEST_COUNT:
                    too_many[_at(rank * _LINE)] = 1


@kernel
def _depend(
    rank: int, size: int, control: Any, items: Any, begin: int, end: int, level: int, offsets: Any,
    targets: Any, levels: Any, counts: Any, exponents: Any, coefficients: Any, endpoints: float,
    totals: Any,
) -> None:  # fmt: skip
    """Add the dependencies on the vertices of a level, by their out-arcs."""
    while True:
        first, last = next_range(control, _CHUNK, end - begin)
        if first == last:
            return
        for i in range(begin + first, begin + last):
            v = items[_at(i)]
            total = 0.0
            for arc in range(offsets[_at(v)], offsets[_at(v) + _at(1)]):
                u = targets[_at(arc)]
                if levels[_at(u)] == level + 1:
                    coefficient = coefficients[_at(u)]
                    if _WIDE:
                        coefficient = raised(coefficient, exponents[_at(v)], exponents[_at(u)])
                    total += coefficient
            coefficients[_at(v)] = total + 1.0 / counts[_at(v)]
            totals[_at(v)] += counts[_at(v)] * total + endpoints


_COUNT = {wide: _count.bind(_WIDE=wide) for wide in (False, True)}
_DEPEND = {wide: _depend.bind(_WIDE=wide) for wide in (False, True)}
