"""Breadth-first search that changes direction, on several processes.

The steps are those of one process (:mod:`godwit.algorithms.bfs.cpu`), and so are the rules by which they
are chosen, from counts of all processes. What is added, by the way in which a level is made:

- of a narrow frontier, each process follows the arcs of its vertices (*follow*), and sends the remote
  vertices that they lead to, as numbers; each vertex is sent once by a process in the whole search;
- of a wide one, it marks the heads of the arcs in a bitmap of its vertices and its halo (*mark*), and
  sends the words of each section of the halo to the owner;
- bottom-up, each gets the bits of its halo in the frontier from their owners, then searches the in-arcs
  of its unreached vertices (*sweep*).

A level is a pair of supersteps: before the data, if any arc crosses between processes, and after they were
taken in, when the sizes of the next frontier are added. All processes decide alike, since they hold the
same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.bfs import PROGRAM
from godwit.algorithms.bfs.cpu import (
    COMMON_BITMAPS,
    FOLLOWED,
    HEAD,
    LEVEL,
    LOCAL_ITEMS,
    MARK,
    MERGE,
    PARITY,
    QUEUE_END,
    REACHED,
    REACHED_ARCS,
    RESULTS,
    SWEEP,
    SWEEP_ARCS_PER_VERTEX,
    TAIL,
    TO_BITMAP,
    TO_QUEUE,
    UNREACHED,
    bfs_on_cpu,
    mark,
    merge,
    queued_row,
    sweep,
    to_bitmap,
    to_queue,
)
from godwit.algorithms.paths.distributed import DistributedPathResult
from godwit.algorithms.paths.result import check_cutoff
from godwit.distributed.graph import DistributedGraph
from godwit.distributed.halo import HaloRows
from godwit.distributed.vertex_programs import solve
from godwit.dtypes import Array, as_flag
from godwit.graph.csr import Graph
from godwit.graph.ids import Sources, Vertex
from godwit.progress import ProgressArgument
from godwit.runtime.cpu.atomics import (
    compare_exchange,
    fetch_add,
    fetch_or,
    load_relaxed,
)
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import block_range, next_range, run_team
from godwit.runtime.statistics import RunStatistics
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.solve import make_poll

_ALPHA, _BETA = 15, 18
_BEGIN, _FOLLOW = 16, 17
"""The steps of this module, beside those of :mod:`godwit.algorithms.bfs.cpu`."""
_CHUNK = 64
_ALONE_ARCS = 20_000
"""Frontiers of fewer arcs are followed by one thread."""

_at: Any = np.uint64


def bfs(
    graph: DistributedGraph,
    source: Sources,
    *,
    target: Vertex | None = None,
    cutoff: float | None = None,
    predecessors: bool = False,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
) -> DistributedPathResult:
    """Return distances in arcs of the own vertices; see :func:`godwit.bfs`.

    :param predecessors: find the vertex before each one as well
    """
    same = (source, target, cutoff, predecessors)
    with graph.processes.running("bfs", graph.vertex_count, *same):
        options = query_options(timeout_s=timeout_s, progress=progress)
        with_predecessors = as_flag(predecessors, "predecessors")
        return run_bfs(graph, source, target, cutoff, options, predecessors=with_predecessors)


def run_bfs(
    graph: DistributedGraph,
    source: Sources,
    target: Vertex | None,
    cutoff: float | None,
    options: SolverOptions,
    *,
    predecessors: bool,
) -> DistributedPathResult:
    """Search from the nearest source, within a block of :meth:`Processes.running`."""
    poll = make_poll(options)
    limit = check_cutoff(cutoff)
    own, sources = graph.own_sources(source)
    if target is not None:
        position = int(graph.positions([target], "target")[0])
        limit = None if limit is None else math.floor(min(limit, UNREACHED - 1))
        solution = solve(
            PROGRAM, graph, dict.fromkeys(own.tolist(), 0), options,
            limit=limit, target=position, poll=poll,
        )  # fmt: skip
        statistics, distance = solution.statistics, solution.values
    else:
        statistics = RunStatistics(("cpu",), "direction-optimizing")
        levels = UNREACHED - 1 if limit is None else int(min(limit, UNREACHED - 1))
        if graph.processes.count == 1:
            distance = _search_alone(graph, own, levels, statistics, poll)
        else:
            search = Search(graph, poll)
            with statistics.phase("run"):
                search.run(own, levels)
            search.report(statistics)
            distance = search.distance
    result = DistributedPathResult(graph, sources, distance, statistics)
    if predecessors:
        result.find_predecessors(graph, unit_lengths=True, poll=poll)
    return result


def _search_alone(
    graph: DistributedGraph, sources: Array, cutoff: int, statistics: RunStatistics,
    report: Callable[[int], None] | None,
) -> Array:  # fmt: skip
    """Return distances where all vertices are of one process: without meetings between steps."""
    rows = graph.rows
    whole = graph.cached(
        "whole", lambda: Graph(rows.offsets, rows.targets, directed=graph.directed)
    )
    with statistics.phase("run"):
        distance, counts = bfs_on_cpu(
            whole, sources, cutoff=cutoff, poll=None if report is None else lambda: report(0)
        )
    statistics.levels = counts.levels
    statistics.processed_items = np.array([counts.vertices_visited], np.int64)
    statistics.arcs_relaxed = np.array([counts.arcs_examined], np.int64)
    graph.processes.report(statistics)
    return distance


class Search:
    """The part that one of several processes has in a search.

    :param report: called now and then with the number of vertices visited so far, by all processes; an
        exception ends the search
    :ivar distance: int32 of the own vertices
    :ivar visited: number of vertices reached by all processes
    :ivar levels: number of frontiers that were expanded
    """

    def __init__(self, graph: DistributedGraph, report: Callable[[int], None] | None) -> None:
        rows = graph.rows
        self._graph = graph
        self._processes = graph.processes
        self._rows = rows
        self._in_rows: HaloRows = graph.in_rows if graph.has_in_rows else rows
        self._threads = config.thread_count()
        n = rows.vertex_count
        self._words = max(rows.halo.words, self._in_rows.halo.words, 1)
        self.distance = np.empty(n, np.int32)
        workspace: dict[str, Array] = graph.cached("bfs", dict)
        needed = (COMMON_BITMAPS + self._threads) * self._words
        if "bitmaps" not in workspace or workspace["bitmaps"].size < needed:
            workspace["bitmaps"] = np.zeros(needed, np.int64)
            workspace["queue"] = np.empty(n + 1, rows.targets.dtype)
            workspace["outbox"] = np.empty(
                rows.halo.slots - int(rows.halo.begins[0]) + 1, rows.targets.dtype
            )
            workspace["local"] = np.empty(2 * self._threads * LOCAL_ITEMS, rows.targets.dtype)
        self._bitmaps, self._queue = workspace["bitmaps"], workspace["queue"]
        self._outbox, self._local = workspace["outbox"], workspace["local"]
        self._sent = np.zeros(rows.halo.words + 1, np.int64)
        self._ends = np.zeros(
            16, np.int64
        )  # of the queue and, on another cache line, of the outbox
        self._shared = np.zeros(RESULTS + 8 * self._threads, np.int64)
        self.visited = self.levels = self._examined = self._reached = 0
        self._poll: Callable[[], None] | None = (
            None if report is None else lambda: report(self.visited)
        )

    def run(self, sources: Array, cutoff: int) -> None:
        """Search from some own vertices."""
        n, shared = self._graph.vertex_count, self._shared
        mark_arcs, left = n // 2, self._graph.arc_count
        self._step(_BEGIN)
        self.distance[sources] = 0
        self._queue[: len(sources)] = sources
        shared[HEAD], shared[TAIL] = 0, len(sources)
        offsets = self._rows.offsets
        source_arcs = int((offsets[sources + 1] - offsets[sources]).sum())
        frontier, arcs = self._add_up_frontier(len(sources), source_arcs)
        before, in_bitmap, sweeps = 0, False, False
        while frontier and shared[LEVEL] < cutoff:
            self.visited += frontier
            pays = arcs * _ALPHA > left - arcs and arcs >= SWEEP_ARCS_PER_VERTEX * (
                n - self.visited
            )
            if sweeps:
                sweeps = frontier * _BETA > n or (pays and frontier >= before)
            else:
                sweeps = pays and arcs >= mark_arcs and self._graph.has_in_rows
            before = frontier
            left -= arcs
            if sweeps:
                if not in_bitmap:
                    self._step(TO_BITMAP)
                frontier, arcs = self._sweep()
                in_bitmap = True
            else:
                if in_bitmap:
                    shared[QUEUE_END] = 0
                    self._step(TO_QUEUE)
                    shared[HEAD], shared[TAIL] = 0, shared[QUEUE_END]
                in_bitmap = arcs >= mark_arcs
                frontier, arcs = self._mark() if in_bitmap else self._follow(arcs)
            shared[LEVEL] += 1
            self.levels += 1
        self.visited += frontier if shared[LEVEL] >= cutoff else 0

    def report(self, statistics: RunStatistics) -> None:
        """Write counts of the search into its statistics; all processes call it."""
        statistics.levels = self.levels
        statistics.processed_items = np.array([self._reached], np.int64)
        statistics.arcs_relaxed = np.array([self._examined], np.int64)
        self._processes.report(statistics)

    def _add_up_frontier(self, reached: int, arcs: int) -> list[int]:
        """Meet; return vertices and arcs of the next frontier, given this process' share of both."""
        if self._poll is not None:
            self._poll()
        self._reached += reached
        sums: list[int] = self._processes.meet(reached, arcs).sum(axis=0).tolist()
        return sums

    def _sweep(self) -> list[int]:
        """Make the next frontier bottom-up; return its vertices and arcs."""
        if self._graph.crosses:
            self._processes.meet()
            halo = self._in_rows.halo
            frontier = int(self._shared[PARITY]) * self._words
            bits = self._bitmaps[frontier : frontier + halo.words]
            halo.refresh_bits(bits)
            if halo is self._rows.halo:
                self._sent[: halo.words] |= bits  # their owners know them
        self._step(SWEEP)
        self._shared[PARITY] = 1 - self._shared[PARITY]
        return self._add_up_frontier(*self._results())

    def _mark(self) -> list[int]:
        """Make the next frontier, as a bitmap, top-down; return its vertices and arcs."""
        self._step(MARK)
        if self._graph.crosses:
            halo, words = self._rows.halo, self._words
            marked = self._bitmaps[COMMON_BITMAPS * words :].reshape(-1, words)[: self._threads]
            if self._threads > 1:
                np.bitwise_or.reduce(marked, axis=0, out=marked[0])
            self._processes.meet()
            halo.collect_bits(marked[0, : halo.words])
        self._step(MERGE)
        return self._add_up_frontier(*self._results())

    def _follow(self, arcs: int) -> list[int]:
        """Make the next frontier, as a range of the queue, top-down; return its vertices and arcs.

        :param arcs: of the frontier, in all processes
        """
        shared = self._shared
        head, tail = int(shared[HEAD]), int(shared[TAIL])
        if head == 0:  # after a sweep: the queue has the frontier alone
            self._ends[0] = tail
        self._ends[8] = 0
        self._step(_FOLLOW, threads=1 if arcs < _ALONE_ARCS else self._threads)
        reached_arcs = sum(self._counts(REACHED_ARCS))
        if self._graph.crosses:
            reached_arcs += self._take_in_remote()
        end = int(self._ends[0])
        shared[HEAD], shared[TAIL] = tail, end
        return self._add_up_frontier(end - tail, reached_arcs)

    def _take_in_remote(self) -> int:
        """Send the remote vertices reached, queue those that others sent; return the arcs of these."""
        rows, halo = self._rows, self._rows.halo
        outgoing = self._outbox[: int(self._ends[8])]
        if self._processes.count > 2:
            outgoing.sort()  # by owner
            counts = np.diff(np.searchsorted(outgoing, halo.begins))
        else:
            counts = np.zeros(self._processes.count, np.int64)
            counts[self._processes.others] = len(outgoing)
        received, _, _ = self._processes.exchange(halo.remote[outgoing], counts)
        if not len(received):
            return 0
        reached = np.zeros(2, np.int64)
        run_team(
            _take_in, received, rows.offsets, self.distance, np.int32(self._shared[LEVEL] + 1),
            self._queue, int(self._ends[0]), reached, threads=1, brief=True,
        )  # fmt: skip
        self._ends[0] += reached[0]
        return int(reached[1])

    def _counts(self, which: int) -> list[int]:
        counts: list[int] = self._shared[RESULTS + which :: 8].tolist()
        return counts

    def _results(self) -> tuple[int, int]:
        return sum(self._counts(REACHED)), sum(self._counts(REACHED_ARCS))

    def _step(self, step: int, threads: int | None = None) -> None:
        """Run a step on the threads of this process."""
        self._shared[RESULTS:] = 0
        rows, in_rows = self._rows, self._in_rows
        run_team(
            _run_step, step, rows.offsets, rows.targets, in_rows.offsets, in_rows.targets,
            self.distance, self._queue, self._bitmaps, self._local, self._words, self._shared, self._sent,
            self._outbox, self._ends,
            threads=self._threads if threads is None else threads, poll=self._poll,
            brief=threads == 1,
        )  # fmt: skip
        self._examined += sum(self._counts(FOLLOWED))


@kernel
def _run_step(
    rank: int, size: int, control: Any, step: int, offsets: Any, targets: Any, in_offsets: Any,
    in_targets: Any, distance: Any, queue: Any, bitmaps: Any, local: Any, words: int, shared: Any,
    sent: Any, outbox: Any, ends: Any,
) -> None:  # fmt: skip
    """Run one step."""
    if step == _BEGIN:
        begin, end = block_range(rank, size, distance.size)
        distance[begin:end] = UNREACHED
    elif step == _FOLLOW:
        _follow(rank, control, offsets, targets, distance, queue, local, shared, sent, outbox, ends)
    elif step == MARK:
        mark(rank, control, offsets, targets, queue, bitmaps, words, shared)
    elif step == MERGE:
        merge(rank, size, offsets, distance, bitmaps, words, shared)
    elif step == TO_BITMAP:
        to_bitmap(rank, size, distance, bitmaps, words, shared)
    elif step == SWEEP:
        sweep(rank, control, in_offsets, in_targets, distance, bitmaps, words, shared)
    else:
        to_queue(rank, size, queue, bitmaps, words, local, shared)


def _flush(items: Any, ends: Any, index: int, local: Any, begin: int, count: int) -> None:
    """Append items that a thread has collected to the queue, or to the outbox."""
    end = fetch_add(ends, index, count)
    for i in range(count):
        items[_at(end + i)] = local[_at(begin + i)]


def _follow(
    rank: int, control: Any, offsets: Any, targets: Any, distance: Any, queue: Any, local: Any,
    shared: Any, sent: Any, outbox: Any, ends: Any,
) -> None:  # fmt: skip
    """Follow the out-arcs of the frontier: queue new own vertices, and remote ones not sent yet."""
    own = distance.size
    head = shared[HEAD]
    tail = shared[TAIL]
    level = np.int32(shared[LEVEL] + 1)
    mine = 2 * rank * LOCAL_ITEMS
    theirs = mine + LOCAL_ITEMS
    held = 0
    leaving = 0
    reached_arcs = 0
    followed = 0
    while True:
        begin, end = next_range(control, _CHUNK, tail - head)
        if begin == end:
            break
        for i in range(head + begin, head + end):
            first, last = queued_row(offsets, targets, queue, i, tail)
            followed += last - first
            for arc in range(first, last):
                u = targets[_at(arc)]
                if u >= own:
                    bit = np.int64(1) << np.int64(u & 63)
                    word = np.int64(u >> 6)
                    if load_relaxed(sent, word) & bit == 0 and fetch_or(sent, word, bit) & bit == 0:
                        local[_at(theirs + leaving)] = u
                        leaving += 1
                        if leaving == LOCAL_ITEMS:
                            _flush(outbox, ends, 8, local, theirs, leaving)
                            leaving = 0
                elif load_relaxed(distance, _at(u)) == UNREACHED and compare_exchange(
                    distance, _at(u), np.int32(UNREACHED), level
                ):
                    reached_arcs += offsets[_at(u) + _at(1)] - offsets[_at(u)]
                    local[_at(mine + held)] = u
                    held += 1
                    if held == LOCAL_ITEMS:
                        _flush(queue, ends, 0, local, mine, held)
                        held = 0
    _flush(queue, ends, 0, local, mine, held)
    _flush(outbox, ends, 8, local, theirs, leaving)
    shared[RESULTS + 8 * rank + REACHED_ARCS] = reached_arcs
    shared[RESULTS + 8 * rank + FOLLOWED] = followed


@kernel
def _take_in(
    rank: int, size: int, control: Any, received: Any, offsets: Any, distance: Any, level: Any,
    queue: Any, end: int, counts: Any,
) -> None:  # fmt: skip
    """Append the received vertices that are new to the queue; count them and their arcs."""
    tail = end
    arcs = np.int64(0)
    for i in range(received.size):
        v = received[_at(i)]
        if distance[_at(v)] == UNREACHED:
            distance[_at(v)] = level
            queue[_at(tail)] = v
            tail += 1
            arcs += offsets[_at(v) + _at(1)] - offsets[_at(v)]
    counts[0] = tail - end
    counts[1] = arcs
