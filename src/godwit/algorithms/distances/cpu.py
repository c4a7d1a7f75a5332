"""Distances from many sources on the CPU: sources are shared out over threads.

By arcs, each thread searches from up to 64 or 256 sources at once, in the bits of words (bits.py); by
weights, and in graphs with many levels, from one source at a time (single_source.py), or by integer weights
from 16 at once, if the graph is contracted (sweeps.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.distances import bits, single_source, sweeps
from godwit.algorithms.distances.contraction import Contraction, contraction_of
from godwit.algorithms.distances.query import (
    HOP_FIELDS,
    LARGEST,
    LENGTH_FIELDS,
    DistanceQuery,
    DistanceSums,
    add_hop_fields,
)
from godwit.dtypes import Array, frozen
from godwit.graph.csr import Graph
from godwit.graph.rows import require_memory
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import CURSOR, borrowed_team, new_control, run_team
from godwit.runtime.polling import RunPoll
from godwit.runtime.statistics import RunStatistics

_WIDE_WORDS = 4
"""Words of bits of a vertex, where there are enough sources."""
_WIDE_SOURCES = 256
"""Sources a thread that are enough."""
_MANY_SOURCES = 64
"""Sources from which contracting a graph pays."""
_DEEP_LEVELS = 128
"""Levels of a search from the vertex of highest degree from which a graph is deep."""
_DEEP_ARCS = 1 << 20
"""Arcs that such a search visits at most: deep graphs are narrow."""
_ALONE_WORK = 200_000
"""Vertices and arcs, over all searches, below which one thread does all."""
_TALLY_WORDS = 16
"""Words between the tallies of two threads, in other cache lines."""


class CpuSearches:
    """Searches on the CPU.

    :param threads: upper limit; fewer run where memory is short
    :param poll: called now and then with the number of sources begun; an exception ends the run
    """

    def __init__(self, threads: int | None = None, poll: RunPoll | None = None) -> None:
        self._threads = threads
        self._poll = poll
        self._reached = 0  # pairs of a source and a vertex that it reaches
        self._visits = 0  # of arcs, counted once for all sources that are searched from together
        self._contracted = False

    def report(self, statistics: RunStatistics) -> None:
        """Add the counts of all runs to statistics."""
        statistics.processed_items = np.array([self._reached], np.int64)
        statistics.arcs_relaxed = np.array([self._visits], np.int64)
        if self._contracted:
            statistics.solver = "contracted"

    def distances(self, query: DistanceQuery) -> Array:
        """Return the matrix of distances: (k, t), with a row per source.

        :raises GraphTooLargeError: the matrix, or the arrays of one thread, do not fit
        :raises ValueOverflowError: a sum of integer weights is too large
        """
        rows, columns = query.shape
        require_memory(rows * columns * query.dtype.itemsize, f"{rows:,} x {columns:,} distances")
        matrix = np.empty((rows, columns), query.dtype)
        if rows == 0:
            return matrix
        if in_bits(query):
            matrix.fill(query.unreached)
            self._search_in_bits(query, "matrix", matrix)
        else:
            contraction = None
            if query.weighted:
                contraction = contraction_of(query, _MANY_SOURCES, self._poll)
            self._contracted = contraction is not None and self._sweep(query, matrix, contraction)
            if not self._contracted:
                self._search_singly(query, matrix, None)
                query.check_overflow(matrix)
        return matrix

    def sums_by_source(self, query: DistanceQuery) -> DistanceSums:
        """Return sums over the targets, for each source; errors as of :meth:`distances`."""
        count = len(query.sources)
        if query.weighted:
            sums = np.zeros((count, LENGTH_FIELDS))
            if count:
                self._search_singly(query, None, sums)
            query.check_overflow(sums[:, LARGEST])
            return DistanceSums.of_lengths(sums)
        fields = np.zeros((count, HOP_FIELDS), np.int64)
        if count and in_bits(query):
            self._search_in_bits(query, "source", fields)
        elif count:
            self._search_singly(query, None, fields)
        return DistanceSums.of_hops(fields)

    def sums_by_vertex(self, query: DistanceQuery) -> DistanceSums:
        """Return sums over the sources, for each vertex, of distances in arcs.

        :raises GraphTooLargeError: the arrays of one thread do not fit
        """
        n = query.graph.vertex_count
        if len(query.sources) == 0 or n == 0:
            return DistanceSums.of_hops(np.zeros((n, HOP_FIELDS), np.int64))
        return DistanceSums.of_hops(self._search_in_bits(query, "vertex", None))

    def _most_threads(self) -> int:
        return config.thread_count() if self._threads is None else self._threads

    def _affordable_threads(self, query: DistanceQuery, parts: int, each_bytes: int) -> int:
        """Return the number of threads for a number of parts that memory allows."""
        threads = 1 if _is_brief(query, parts) else self._most_threads()
        threads = max(1, min(threads, parts))
        while threads > 1 and config.missing_memory_bytes(threads * each_bytes) is not None:
            threads -= 1
        require_memory(threads * each_bytes, "a search from many sources")
        return threads

    def _search_in_bits(self, query: DistanceQuery, form: str, results: Array | None) -> Array:
        """Search from many sources at once; return the results.

        :param form: as of :data:`bits.KERNELS`
        :param results: array of the form ``"matrix"`` or ``"source"``; for ``"vertex"`` a new one is
            returned
        """
        rows = query.rows
        into = query.in_rows
        none = frozen(np.empty(0, np.int64)), rows.targets
        n, count = rows.vertex_count, len(query.sources)
        available = self._most_threads()
        words = _WIDE_WORDS if count >= _WIDE_SOURCES * available else 1
        together = min(64 * words, -(-count // available))
        ids = rows.targets.dtype
        each = n * (3 * 8 * words + 2 * ids.itemsize + 8 * HOP_FIELDS * (form == "vertex"))
        parts = -(-count // together)
        threads = self._affordable_threads(query, parts, each)
        columns = query.column_of()
        nothing = np.empty((0, 0), np.int64)
        per_thread = [
            (
                bits.Workspace(
                    (_aligned(n * words), _aligned(n * words), _aligned(n * words)),
                    (np.empty(n + 1, ids), np.empty(n + 1, ids)),
                ),
                bits.Records(
                    columns,
                    query.shape[1],
                    np.empty((0, 0), np.int32) if form != "matrix" or results is None else results,
                    np.zeros((n, HOP_FIELDS), np.int64) if form == "vertex" else nothing,
                    nothing if form != "source" or results is None else results,
                    np.zeros(64 * words if form == "source" else 0, np.int64),
                ),
            )
            for _ in range(threads)
        ]
        arguments = (
            rows.offsets, rows.targets, *(none if into is None else into.rows[:2]),
            frozen(query.sources, np.int64), together, np.int64(query.limit),
        )  # fmt: skip
        brief = _is_brief(query, parts)
        self._run(bits.KERNELS[words, form], arguments, per_thread, count, brief=brief)
        if form == "vertex":
            results, *others = (records.by_vertex for _, records in per_thread)
            for other in others:
                add_hop_fields(results, other)
        assert results is not None
        return results

    def _sweep(self, query: DistanceQuery, matrix: Array, contraction: Contraction) -> bool:
        """Fill in the matrix by sweeps over a contracted graph; return False if a distance has no room."""
        n, position = query.graph.vertex_count, contraction.position
        parts = -(-len(query.sources) // sweeps.LANES)
        each = 4 * sweeps.LANES * n + 8 * contraction.core_size
        threads = self._affordable_threads(query, parts, each)
        arguments = (
            contraction.core_size, contraction.offsets, contraction.heads, contraction.up,
            contraction.down, position[query.sources],
            position if query.targets is None else position[query.targets], matrix,
            matrix.dtype.type(query.unreached),
        )  # fmt: skip
        per_thread = [
            (np.empty((n, sweeps.LANES), np.uint32), np.empty(contraction.core_size, np.int64))
            for _ in range(threads)
        ]
        before = None if self._poll is None else self._poll.before
        counts = self._reached, self._visits
        found = self._run(
            sweeps.sweep, arguments, per_thread, len(query.sources), brief=_is_brief(query, parts)
        )
        if not any(found):
            return True
        contraction.has_room = False
        self._reached, self._visits = counts
        if self._poll is not None and before is not None:
            self._poll.before = before
        return False

    def _search_singly(
        self, query: DistanceQuery, matrix: Array | None, sums: Array | None
    ) -> None:
        """Search from one source at a time on each thread; fill in the matrix, or sums."""
        rows, dtype = query.rows, query.dtype
        each = single_source.search_bytes(query)
        threads = self._affordable_threads(query, len(query.sources), each)
        targets = np.empty(0, np.int64) if query.targets is None else query.targets
        records = single_source.Records(
            query.column_of(),
            frozen(targets, np.int64),
            np.empty((0, 0), dtype) if matrix is None else matrix,
            np.empty((0, 0), np.float64 if query.weighted else np.int64) if sums is None else sums,
        )
        weights = rows.weights if query.weighted else None
        arguments = (
            rows.offsets, rows.targets, frozen(np.empty(0) if weights is None else weights),
            frozen(query.sources, np.int64), dtype.type(query.limit),
        )  # fmt: skip
        per_thread = [(single_source.make_search(query), records) for _ in range(threads)]
        search = single_source.KERNELS[dtype.kind if query.weighted else "hops"]
        count = len(query.sources)
        self._run(search, arguments, per_thread, count, brief=_is_brief(query, count))

    def _run(
        self,
        search: Any,
        arguments: tuple[Any, ...],
        per_thread: Sequence[tuple[Any, ...]],
        count: int,
        *,
        brief: bool,
    ) -> list[Any]:
        """Run a kernel on a thread for each entry of ``per_thread``; return what each returns.

        :param brief: it takes milliseconds; see :func:`godwit.runtime.cpu.team.borrowed_team`
        """
        size, poll = len(per_thread), self._poll
        control = new_control()
        tallies = np.zeros((size, _TALLY_WORDS), np.int64)
        report = None if poll is None else lambda: poll(min(int(control[CURSOR]), count))
        with borrowed_team(size, brief=brief and poll is None) as team:
            tasks = [
                (search, (rank, size, control, *arguments, *own, tallies[rank]))
                for rank, own in enumerate(per_thread)
            ]
            found: list[Any] = team.run(tasks, control, report)
        for reached, visits in tallies[:, :2].tolist():
            self._reached += reached
            self._visits += visits
        if poll is not None:
            poll.before += count
        return found


def _is_brief(query: DistanceQuery, parts: int) -> bool:
    """Return True if one thread does a number of searches, or of sets of searches in bits, at once."""
    return parts * (query.graph.vertex_count + query.graph.arc_count) < _ALONE_WORK


def in_bits(query: DistanceQuery) -> bool:
    """Return True if several searches at once pay: arcs are counted, and the graph is not deep."""
    return not query.weighted and not is_deep(query.graph)


def is_deep(graph: Graph) -> bool:
    """Return True if a search has many levels, as in road networks; found once per graph."""
    return bool(graph.cached("is deep", lambda: _find_is_deep(graph)))


def _find_is_deep(graph: Graph) -> bool:
    n = graph.vertex_count
    if n <= _DEEP_LEVELS:
        return False
    source = int(np.argmax(graph.out_degree()))
    queue = np.empty(n, graph.targets.dtype)
    arguments = (graph.offsets, graph.targets, source, np.zeros(n, np.uint8), queue)
    levels = run_team(_count_levels, *arguments, threads=1, brief=True)[0]
    return bool(levels >= _DEEP_LEVELS)


@kernel
def _count_levels(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, source: int, seen: Any,
    queue: Any,
) -> int:  # fmt: skip
    """Return the number of levels of a search that ends after _DEEP_LEVELS levels, or _DEEP_ARCS arcs."""
    seen[source] = 1
    queue[0] = source
    head = 0
    tail = 1
    level = 0
    arcs = 0
    while head < tail and level < _DEEP_LEVELS:
        end = tail
        for i in range(head, end):
            v = queue[i]
            arcs += offsets[v + 1] - offsets[v]
            if arcs > _DEEP_ARCS:
                return level
            for arc in range(offsets[v], offsets[v + 1]):
                u = targets[arc]
                if seen[u] == 0:
                    seen[u] = 1
                    queue[tail] = u
                    tail += 1
        head = end
        level += 1
    return level


def _aligned(words: int) -> Array:
    """Return an int64 array that begins at a cache line, so that blocks of bits are within one."""
    room = np.empty(words + 8, np.int64)
    begin = -(room.ctypes.data // 8) % 8
    return room[begin : begin + words]
