"""Single-source shortest paths on several processes: delta-stepping by buckets.

All processes work on the same bucket. In a superstep each relaxes what it has of it, also again and again
along arcs between its own vertices, until nothing of the bucket is left in it; then it sends the
distances of remote vertices that it has lowered, each once and only if it has sent none as low. When no
process has anything of the bucket left, the next one is that of the least distance that waits. (Meyer and
Sanders, "Delta-stepping", J. Algorithms 49, 2003; relaxing at the receiver as in Chakaravarthy et al.,
"Scalable single source shortest path algorithms for massively parallel systems", IPDPS 2014.)

Distances only decrease, to the least sum over all paths, so the schedule does not change the result: it
is that of one process, bit by bit, also in floating point, where a path's weights are added from the
source on.

State of a vertex: it *waits* if its distance was lowered since its arcs were relaxed (a bit of
``waiting``), and it is in the frontier if, besides, its distance is in the bucket.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from godwit.algorithms.bfs.distributed import run_bfs
from godwit.algorithms.paths.distributed import DistributedPathResult
from godwit.algorithms.paths.result import check_cutoff
from godwit.distributed.graph import DistributedGraph
from godwit.dtypes import Array, as_flag
from godwit.errors import InputError, ValueOverflowError
from godwit.graph.ids import Sources
from godwit.graph.rows import thread_count_for
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.cpu.atomics import (
    fetch_add,
    fetch_and,
    fetch_min,
    fetch_or,
    load_acquire,
    load_relaxed,
)
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, barrier, block_range, run_team
from godwit.runtime.statistics import RunStatistics
from godwit.worker.delta import delta_for, typical_weight
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.solve import make_poll

_FARTHEST = 2**63 - 2
"""The largest integer that stands for a distance; the one after it stands for none."""
_ALONE_ITEMS = 512
"""Frontiers of fewer vertices are relaxed by one thread."""
_ALONE_VERTICES = 1 << 20
"""In parts of fewer vertices one thread looks for those that wait."""
_CHUNK = 64

# Words of ``ends`` (int64), on cache lines of their own.
_FRONTIER, _NEXT, _OUTBOX, _CURSOR, _RELAXED, _PROCESSED = range(0, 48, 8)

_at: Any = np.uint64


@public
def sssp(
    graph: DistributedGraph,
    source: Sources,
    *,
    cutoff: float | None = None,
    weighted: bool | None = None,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
) -> DistributedPathResult:
    """Return lengths of shortest paths to the own vertices; see :func:`godwit.sssp`."""
    options = query_options(timeout_s=timeout_s, progress=progress)
    with graph.processes.running("sssp", graph.vertex_count, source, cutoff, weighted):
        if weighted is not None and as_flag(weighted, "weighted") and not graph.is_weighted:
            raise InputError("weighted=True needs a graph with weights, and this one has none")
        if weighted is False:
            return run_bfs(graph, source, cutoff, options)
        if not graph.is_weighted:
            return run_bfs(graph, source, cutoff, options).with_wide_distances()
        return _run(graph, source, cutoff, options)


def _run(
    graph: DistributedGraph, source: Sources, cutoff: float | None, options: SolverOptions
) -> DistributedPathResult:
    limit = check_cutoff(cutoff)
    own, sources = graph.own_sources(source)
    delta = graph.cached("sssp delta", lambda: _choose_delta(graph))
    statistics = RunStatistics(("cpu",), "delta-stepping")
    statistics.delta = delta
    search = _Search(graph, delta, limit, options)
    with statistics.phase("run"):
        search.run(own)
    search.report(statistics)
    return DistributedPathResult(graph, sources, search.distance, statistics)


def _choose_delta(graph: DistributedGraph) -> float:
    """Check the weights; return the width of buckets."""
    weights = graph.rows.weights
    assert weights is not None
    if len(weights):
        smallest = weights.min()
        if smallest < 0 or math.isnan(smallest):
            raise InputError(f"shortest paths need weights that are not negative, got {smallest}")
    with_arcs = int(np.count_nonzero(np.diff(graph.rows.offsets)))
    parts = graph.processes.share((math.log(typical_weight(weights)), len(weights), with_arcs))
    length = math.exp(sum(log * arcs for log, arcs, _ in parts) / max(1, graph.arc_count))
    degree = graph.arc_count / max(1, sum(vertices for _, _, vertices in parts))
    return delta_for(length, degree, integers=weights.dtype.kind in "iu")


def _end_of_bucket(distance: Any, delta: float) -> Any:
    """Return the distance at which the bucket of a distance ends, of the same dtype."""
    if distance.dtype.kind != "f":
        width = int(delta)
        return np.int64(min((int(distance) // width + 1) * width, _FARTHEST + 1))
    with np.errstate(over="ignore"):
        end = (np.floor(distance / delta) + 1) * delta  # infinite where the number of the bucket is
    return end if end > distance else np.nextafter(distance, math.inf)


class _Search:
    """The part that one process has in a search.

    :ivar distance: int64 or float64 of the own vertices
    """

    def __init__(
        self, graph: DistributedGraph, delta: float, cutoff: float | None, options: SolverOptions
    ) -> None:
        self._graph = graph
        self._processes = graph.processes
        rows = graph.rows
        assert rows.weights is not None
        self._rows = rows
        floats = rows.weights.dtype.kind == "f"
        self._dtype = np.dtype(np.float64 if floats else np.int64)
        self._unreached: Any = math.inf if floats else np.iinfo(np.int64).max
        # Buckets begin at multiples of it: an integer where distances are integers.
        self._delta = delta if floats else float(max(1, math.floor(delta)))
        most: Any = math.inf if floats else _FARTHEST
        if cutoff is not None:
            most = min(most, cutoff if floats else math.floor(min(cutoff, _FARTHEST)))
        self._cutoff = self._dtype.type(most)
        self._saturates = not floats and most == _FARTHEST
        n, slots = rows.vertex_count, rows.halo.slots
        self.distance = np.full(n, self._unreached, self._dtype)
        self._sent = np.full(slots, self._unreached, self._dtype)
        words = n // 64 + 1
        self._waiting = np.zeros(words, np.int64)
        self._queued = np.zeros(words, np.int64)
        self._dirty = np.zeros(slots // 64 + 1, np.int64)
        self._frontiers = np.empty((2, n + 1), rows.targets.dtype)
        self._outbox = np.empty(slots - int(rows.halo.begins[0]) + 1, rows.targets.dtype)
        self._ends = np.zeros(48, np.int64)
        self._threads = thread_count_for(len(rows.targets))
        self._least = np.empty(self._threads, self._dtype)
        self._is_small = n < _ALONE_VERTICES
        report = make_poll(options)
        self._poll: Callable[[], None] | None = (
            None if report is None else lambda: report(int(self._ends[_PROCESSED]))
        )
        self._buckets = 0

    def run(self, sources: Array) -> None:
        """Search from some own vertices."""
        self.distance[sources] = 0
        ends = self._ends
        for v in sources.tolist():
            self._waiting[v >> 6] |= np.int64(np.uint64(1 << (v & 63)).view(np.int64))
        while True:
            upper = self._next_bucket()
            if upper is None:
                break
            self._buckets += 1
            while True:
                self._relax(upper)
                if not self._exchange(upper):
                    break
            ends[_FRONTIER] = 0
        if self._saturates and self._overflows():
            raise ValueOverflowError(
                "a distance reaches 2^63 - 2 or more, beyond the range of int64 distances; give the "
                "weights as float64, or a cutoff"
            )

    def report(self, statistics: RunStatistics) -> None:
        """Write counts of the search into its statistics; all processes call it."""
        statistics.processed_items = self._ends[[_PROCESSED]]
        statistics.arcs_relaxed = self._ends[[_RELAXED]]
        statistics.levels = self._buckets
        self._processes.report(statistics)

    def _next_bucket(self) -> Any:
        """Find the bucket of the least distance that waits in any process, and make its frontier.

        :returns: the distance at which the bucket ends; None if nothing waits
        """
        self._team(
            _find_least,
            self.distance,
            self._waiting,
            self._unreached,
            self._least,
            small=self._is_small,
        )
        least = self._least.min()
        given = self._processes.meet(int(least.view(np.int64)))[:, 0].copy()
        least = given.view(self._dtype).min()
        if least == self._unreached:
            return None
        upper = _end_of_bucket(least, self._delta)
        self._ends[_FRONTIER] = 0
        self._team(
            _open_bucket, self.distance, self._waiting, self._queued, upper, self._frontiers[0],
            self._ends, small=self._is_small,
        )  # fmt: skip
        return upper

    def _relax(self, upper: Any) -> None:
        """Relax the arcs of the frontier, and of own vertices that enter the bucket by that."""
        rows, alone = self._rows, self._threads == 1
        while self._ends[_FRONTIER]:
            small = alone or self._ends[_FRONTIER] <= _ALONE_ITEMS
            self._team(
                _RELAX[self._dtype.kind], rows.offsets, rows.targets, rows.weights, self.distance,
                self._sent, self._waiting, self._queued, self._dirty, self._frontiers[0],
                self._frontiers[1], self._outbox, self._ends, upper, self._cutoff,
                _ALONE_ITEMS if small and not alone else _FARTHEST, small=small,
            )  # fmt: skip

    def _exchange(self, upper: Any) -> bool:
        """Send what the halo has got, take in what others send; return True if the bucket has work left."""
        halo = self._rows.halo
        outgoing = self._outbox[: int(self._ends[_OUTBOX])]
        outgoing.sort()  # by owner
        self._ends[_OUTBOX] = 0
        self._dirty[outgoing >> 6] = 0  # all bits of these words are of slots that are sent now
        counts = np.diff(np.searchsorted(outgoing, halo.begins))
        targets, received, _ = self._processes.exchange(halo.remote[outgoing], counts)
        values = np.empty(len(targets), self._dtype)
        begins = np.cumsum(counts) - counts
        self._processes.send(
            self._sent[outgoing], begins, counts, values, np.cumsum(received) - received, received
        )
        run_team(
            _take_in, targets, values, self.distance, self._waiting, self._queued, upper,
            self._frontiers[0], self._ends, threads=1, brief=True,
        )  # fmt: skip
        if self._poll is not None:
            self._poll()
        return bool(self._processes.meet(int(self._ends[_FRONTIER])).any())

    def _overflows(self) -> bool:
        saturated = int((self.distance == _FARTHEST).any())
        return bool(self._processes.meet(saturated).any())

    def _team(self, function: Any, *arguments: Any, small: bool) -> None:
        """Run a kernel on the threads of this process."""
        small = small or self._threads == 1
        run_team(
            function,
            *arguments,
            threads=1 if small else self._threads,
            poll=self._poll,
            brief=small,
        )


@kernel
def _find_least(
    rank: int, size: int, control: Any, distance: Any, waiting: Any, unreached: Any, least: Any
) -> None:
    """Find the least distance that waits; each thread has a range of vertices."""
    begin, end = block_range(rank, size, waiting.size)
    best = least.dtype.type(unreached)
    for word in range(begin, end):
        bits = waiting[_at(word)]
        v = word << 6
        while bits != 0:
            if bits & 1 != 0:
                best = min(best, distance[_at(v)])
            bits = np.int64(np.uint64(bits) >> np.uint64(1))
            v += 1
    least[rank] = best
    if rank == 0:
        for other in range(size, least.size):
            least[other] = least.dtype.type(unreached)


@kernel
def _open_bucket(
    rank: int, size: int, control: Any, distance: Any, waiting: Any, queued: Any, upper: Any, frontier: Any,
    ends: Any,
) -> None:  # fmt: skip
    """Move the vertices of the bucket that wait into the frontier."""
    begin, end = block_range(rank, size, waiting.size)
    for word in range(begin, end):
        bits = waiting[_at(word)]
        v = word << 6
        taken = np.int64(0)
        bit = np.int64(1)
        while bits != 0:
            if bits & 1 != 0 and distance[_at(v)] < upper:
                taken |= bit
                frontier[_at(fetch_add(ends, _FRONTIER, 1))] = v
            bits = np.int64(np.uint64(bits) >> np.uint64(1))
            bit <<= 1
            v += 1
        waiting[_at(word)] &= ~taken
        queued[_at(word)] |= taken


def _along_floats(distance: Any, weight: Any) -> Any:
    """Return the distance at the end of an arc."""
    return distance + weight


def _along(distance: Any, weight: Any) -> Any:
    """Return the distance at the end of an arc, at most ``_FARTHEST``; for floats another is bound."""
    return distance + weight if weight <= _FARTHEST - distance else _FARTHEST


def _improve(
    vertex: Any, value: Any, distance: Any, waiting: Any, queued: Any, upper: Any, following: Any,
    ends: Any, end: int,
) -> None:  # fmt: skip
    """Lower the distance of an own vertex; let it wait, or queue it if the bucket has it now."""
    u: Any = np.int64(vertex)
    if value < load_relaxed(distance, u) and value < fetch_min(distance, u, value):
        word = u >> 6
        bit = np.int64(1) << (u & 63)
        if value >= upper:
            if load_relaxed(waiting, word) & bit == 0:
                fetch_or(waiting, word, bit)
        elif fetch_or(queued, word, bit) & bit == 0:
            following[_at(fetch_add(ends, end, 1))] = u


@kernel
def _relax(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, weights: Any, distance: Any, sent: Any,
    waiting: Any, queued: Any, dirty: Any, first: Any, second: Any, outbox: Any, ends: Any, upper: Any,
    cutoff: Any, most: int,
) -> None:  # fmt: skip
    """Relax the arcs of the frontier, until no own vertex of the bucket has been lowered since.

    :param most: frontiers of more vertices are left to more threads, in ``first``
    """
    own = distance.size
    frontier = first
    following = second
    relaxed = 0
    processed = 0
    turns = 0
    while True:
        count = load_acquire(ends, _FRONTIER)
        if count == 0:
            break
        if count > most:  # one thread alone
            if turns & 1 != 0:
                for i in range(count):
                    first[_at(i)] = second[_at(i)]
            break
        while True:
            begin = fetch_add(ends, _CURSOR, _CHUNK)
            if begin >= count or load_acquire(control, ABORT) != 0:
                break
            for i in range(begin, min(begin + _CHUNK, count)):
                v = np.int64(frontier[_at(i)])
                bit = np.int64(1) << (v & 63)
                fetch_and(queued, v >> 6, ~bit)
                fetch_and(waiting, v >> 6, ~bit)
                near = load_acquire(distance, v)
                processed += 1
                relaxed += offsets[_at(v + 1)] - offsets[_at(v)]
                for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
                    value = _along(near, distance.dtype.type(weights[_at(arc)]))
                    if value > cutoff:
                        continue
                    u: Any = np.int64(targets[_at(arc)])
                    if u < own:
                        _improve(u, value, distance, waiting, queued, upper, following, ends, _NEXT)
                    elif value < load_relaxed(sent, u) and value < fetch_min(sent, u, value):
                        word = u >> 6
                        bit = np.int64(1) << (u & 63)
                        if (
                            load_relaxed(dirty, word) & bit == 0
                            and fetch_or(dirty, word, bit) & bit == 0
                        ):
                            outbox[_at(fetch_add(ends, _OUTBOX, 1))] = u
        if not barrier(control, size):
            break
        if rank == 0:
            ends[_FRONTIER] = ends[_NEXT]
            ends[_NEXT] = 0
            ends[_CURSOR] = 0
        if not barrier(control, size):
            break
        frontier, following = following, frontier
        turns += 1
    fetch_add(ends, _RELAXED, relaxed)
    fetch_add(ends, _PROCESSED, processed)


_RELAX = {"i": _relax, "f": _relax.bind(_along=_along_floats)}
"""Kernels by kind of the distances."""


@kernel
def _take_in(
    rank: int, size: int, control: Any, received: Any, values: Any, distance: Any, waiting: Any,
    queued: Any, upper: Any, frontier: Any, ends: Any,
) -> None:  # fmt: skip
    """Lower distances to those that other processes have sent."""
    for i in range(received.size):
        _improve(
            received[_at(i)], values[_at(i)], distance, waiting, queued, upper, frontier, ends,
            _FRONTIER,
        )  # fmt: skip
