"""Distances from many sources on the CPU: sources are shared out over threads.

By arcs, each thread searches from up to 64 or 256 sources at once, in the bits of words (bits.py); by
weights, and in graphs with many levels, from one source at a time (single_source.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.distances import bits, single_source
from godwit.algorithms.distances.query import (
    FARTHEST,
    HOP_FIELDS,
    LARGEST,
    LENGTH_FIELDS,
    DistanceQuery,
    DistanceSums,
)
from godwit.dtypes import Array, frozen
from godwit.graph.csr import Graph
from godwit.graph.rows import require_memory
from godwit.runtime.cpu.team import CURSOR, borrowed_team, new_control

Poll = Callable[[int], None]

_WIDE_WORDS = 4
"""Words of bits of a vertex, where there are enough sources."""
_WIDE_SOURCES = 256
"""Sources a thread that are enough."""
_DEEP_LEVELS = 128
"""Levels of a search from the vertex of highest degree from which a graph is deep."""
_ALONE_WORK = 200_000
"""Vertices and arcs, over all searches, below which one thread does all."""
_TALLY_WORDS = 16
"""Words between the tallies of two threads, in other cache lines."""


@dataclass(frozen=True)
class Work:
    """Work of a run.

    :ivar reached: pairs of a source and a vertex that it reaches
    :ivar visits: arcs visited, once for all sources of a search in bits; of searches from one source each,
        vertices visited
    """

    reached: int
    visits: int


def find_distances(
    query: DistanceQuery, threads: int | None = None, poll: Poll | None = None
) -> tuple[Array, Work]:
    """Return the matrix of distances: (k, t), with a row per source.

    :param threads: upper limit; fewer run where memory is short
    :param poll: called now and then with the number of sources begun; an exception ends the run
    :raises GraphTooLargeError: the matrix, or the arrays of one thread, do not fit
    :raises ValueOverflowError: a sum of integer weights is too large
    """
    rows, columns = query.shape
    require_memory(rows * columns * query.dtype.itemsize, f"{rows:,} x {columns:,} distances")
    if rows == 0:
        return np.empty((rows, columns), query.dtype), Work(0, 0)
    if in_bits(query):
        matrix = np.full((rows, columns), query.unreached, query.dtype)
        return matrix, _search_in_bits(query, "matrix", matrix, threads, poll)[1]
    matrix = np.empty((rows, columns), query.dtype)
    work = _search_singly(query, matrix, None, threads, poll)
    if query.may_overflow and bool((matrix == FARTHEST).any()):
        query.raise_overflow()
    return matrix, work


def sum_by_source(
    query: DistanceQuery, threads: int | None = None, poll: Poll | None = None
) -> tuple[DistanceSums, Work]:
    """Return sums over the targets, for each source. Arguments and errors as of :func:`find_distances`."""
    count = len(query.sources)
    if query.weighted:
        sums = np.zeros((count, LENGTH_FIELDS))
        work = _search_singly(query, None, sums, threads, poll) if count else Work(0, 0)
        if query.may_overflow and bool((sums[:, LARGEST] >= FARTHEST).any()):
            query.raise_overflow()
        return DistanceSums.of_lengths(sums), work
    fields = np.zeros((count, HOP_FIELDS), np.int64)
    work = Work(0, 0)
    if count and in_bits(query):
        work = _search_in_bits(query, "source", fields, threads, poll)[1]
    elif count:
        work = _search_singly(query, None, fields, threads, poll)
    return DistanceSums.of_hops(fields), work


def sum_by_vertex(
    query: DistanceQuery, threads: int | None = None, poll: Poll | None = None
) -> tuple[DistanceSums, Work]:
    """Return sums over the sources, for each vertex, of distances in arcs.

    Arguments and errors as of :func:`find_distances`.
    """
    n = query.graph.vertex_count
    if len(query.sources) == 0 or n == 0:
        return DistanceSums.of_hops(np.zeros((n, HOP_FIELDS), np.int64)), Work(0, 0)
    fields, work = _search_in_bits(query, "vertex", None, threads, poll)
    return DistanceSums.of_hops(fields), work


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
    source = np.array([int(np.argmax(graph.out_degree()))])
    query = DistanceQuery(graph, source, None, False, cutoff=_DEEP_LEVELS)
    fields = np.zeros((1, HOP_FIELDS), np.int64)
    _search_singly(query, None, fields, 1, None)
    return bool(fields[0, LARGEST] >= _DEEP_LEVELS)


def _affordable_threads(
    query: DistanceQuery, parts: int, each_bytes: int, threads: int | None
) -> int:
    """Return the number of threads for a number of parts that memory allows."""
    graph = query.graph
    threads = config.thread_count() if threads is None else threads
    if parts * (graph.vertex_count + graph.arc_count) < _ALONE_WORK:
        threads = 1
    threads = max(1, min(threads, parts))
    while threads > 1 and config.missing_memory_bytes(threads * each_bytes) is not None:
        threads -= 1
    require_memory(threads * each_bytes, "a search from many sources")
    return threads


def _search_in_bits(
    query: DistanceQuery, form: str, results: Array | None, threads: int | None, poll: Poll | None
) -> tuple[Array, Work]:
    """Search from many sources at once; return the results and the work.

    :param form: as of :data:`bits.KERNELS`
    :param results: array of the form ``"matrix"`` or ``"source"``; for ``"vertex"`` a new one is returned
    """
    rows = query.rows
    into = query.in_rows
    none = frozen(np.empty(0, np.int64)), rows.targets
    n, count = rows.vertex_count, len(query.sources)
    available = config.thread_count() if threads is None else threads
    words = _WIDE_WORDS if count >= _WIDE_SOURCES * available else 1
    together = min(64 * words, -(-count // available))
    ids = rows.targets.dtype
    each = n * (3 * 8 * words + 2 * ids.itemsize + 8 * HOP_FIELDS * (form == "vertex"))
    threads = _affordable_threads(query, -(-count // together), each, threads)
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
    work = _run(bits.KERNELS[words, form], arguments, per_thread, count, poll)
    if form == "vertex":
        results, *others = (records.by_vertex for _, records in per_thread)
        for other in others:
            largest = np.maximum(results[:, LARGEST], other[:, LARGEST])
            results += other
            results[:, LARGEST] = largest
    assert results is not None
    return results, work


def _search_singly(
    query: DistanceQuery, matrix: Array | None, sums: Array | None, threads: int | None,
    poll: Poll | None,
) -> Work:  # fmt: skip
    """Search from one source at a time on each thread; fill in the matrix, or sums."""
    rows, dtype = query.rows, query.dtype
    each = single_source.search_bytes(query)
    threads = _affordable_threads(query, len(query.sources), each, threads)
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
    kernel = single_source.KERNELS[dtype.kind if query.weighted else "hops"]
    return _run(kernel, arguments, per_thread, len(query.sources), poll)


def _aligned(words: int) -> Array:
    """Return an int64 array that begins at a cache line, so that blocks of bits are within one."""
    room = np.empty(words + 8, np.int64)
    begin = -(room.ctypes.data // 8) % 8
    return room[begin : begin + words]


def _run(
    kernel: Any, arguments: tuple[Any, ...], per_thread: Sequence[tuple[Any, ...]], count: int,
    poll: Poll | None,
) -> Work:  # fmt: skip
    """Run a kernel on a thread for each entry of ``per_thread``."""
    size = len(per_thread)
    control = new_control()
    tallies = np.zeros((size, _TALLY_WORDS), np.int64)
    report = None if poll is None else lambda: poll(min(int(control[CURSOR]), count))
    with borrowed_team(size) as team:
        tasks = [
            (kernel, (rank, size, control, *arguments, *own, tallies[rank]))
            for rank, own in enumerate(per_thread)
        ]
        team.run(tasks, control, report)
    return Work(int(tallies[:, 0].sum()), int(tallies[:, 1].sum()))
