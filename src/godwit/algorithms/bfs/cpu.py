"""Breadth-first search that changes direction: the driver behind BFS on one shared-memory device.

Beamer, Asanović and Patterson, "Direction-optimizing breadth-first search" (SC 2012), as GAP runs it.
Top-down: the frontier is a stretch of one queue, and its out-arcs are followed. Bottom-up: the
frontier is a bitmap, and every vertex not reached yet looks through its in-arcs for one member of it.
``alpha`` and ``beta`` are the paper's: bottom-up begins when the arcs of the frontier exceed the arcs
not followed yet over alpha, and ends when the frontier shrinks below n over beta. Ours is a second
condition to begin, and to go on with a small frontier that does not shrink: it has several arcs for
every vertex not reached yet, for a sweep visits those. So however long a graph is, all sweeps
together visit few vertices more than it has arcs. Nor does a frontier become a bitmap if it has fewer arcs
than what goes through all vertices costs.

Rank 0 plans, all perform: between two barriers rank 0 alone reads what the step gave and writes down
the next one. While the frontier has few arcs it follows them there and then, level after level; the
others wait. One call is one run of the team whatever the number of levels.

A level is completed before the search stops, so that a target or a cutoff leaves exactly the vertices up
to that distance, whatever the threads did.

Bottom-up needs the in-arcs. An undirected graph has them. The reverse of a directed graph costs many
searches to build, so it is used if it has been built (``graph.reverse``), and never built here;
without it the search is top-down throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.bfs.cpu_kernels import (
    BOTTOM_UP_LEVELS,
    COMMON_BITMAPS,
    EXAMINED,
    EXPAND,
    FOLLOWED,
    FOUND,
    FOUND_ARCS,
    FRONTIER,
    FRONTIER_ARCS,
    HEAD,
    LEFT_ARCS,
    LEVEL,
    LEVELS,
    LOCAL_ITEMS,
    MARK,
    MERGE,
    PARITY,
    QUEUE_END,
    RESULTS,
    STEP,
    STOP,
    SWEEP,
    TAIL,
    TO_BITMAP,
    TO_QUEUE,
    UNREACHED,
    VISITED,
    at,
    expand,
    expand_alone,
    mark,
    merge,
    sweep,
    to_bitmap,
    to_queue,
    words_of,
)
from godwit.algorithms.paths.predecessors import in_arcs_at_hand
from godwit.dtypes import Array, frozen
from godwit.graph.csr import Graph
from godwit.runtime.cpu.atomics import load_acquire, store_relaxed
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, CURSOR, barrier, block_range, run_team

# Frontiers of at least so many arcs a vertex of the graph become bitmaps: they are marked, or looked for by
# the vertices left. Either goes through all vertices.
_MARK_ARCS_PER_VERTEX = 0.5
# So many threads may clear and merge a bitmap each for that; for more there have to be more arcs.
_MARK_THREADS = 32
# Smaller ones of fewer arcs are followed by one thread: the rest would take longer to meet than to help.
_TEAM_ARCS = 100_000
# A vertex in a bottom-up sweep costs about as much as so many arcs top-down.
_SWEEP_ARCS_PER_VERTEX = 4
# Graphs of fewer arcs are searched by one thread, which takes a millisecond at most. Waking a second
# one gains a third of that where it gets a core of its own, and loses as much where it does not.
_ALONE_GRAPH_ARCS = 500_000
# So are graphs of few arcs a vertex up to this size, such as roads: their frontiers stay narrow.
_ALONE_SPARSE_ARCS = 5_000_000
_SPARSE_DEGREE = 4


@dataclass(frozen=True)
class SearchCounts:
    """What a search did.

    :ivar arcs_examined: arcs looked at, in either direction
    :ivar vertices_visited: vertices reached, sources included
    :ivar levels: frontiers whose neighbours were looked for
    :ivar bottom_up_levels: of these, those done bottom-up
    :ivar completed: False if the run was aborted from outside; distances are then partial
    """

    arcs_examined: int
    vertices_visited: int
    levels: int
    bottom_up_levels: int
    completed: bool


def direction_optimizing_bfs(
    graph: Graph,
    sources: Array,
    *,
    target: int | None = None,
    cutoff: int | None = None,
    alpha: int = 15,
    beta: int = 18,
    threads: int | None = None,
    control: Array | None = None,
    poll: Callable[[], None] | None = None,
) -> tuple[Array, SearchCounts]:
    """Distances in arcs from the nearest source, on threads that share memory.

    :param sources: int64 (k), valid vertices in any order, repetition allowed
    :param target: stop after the level of this vertex
    :param cutoff: stop after this level
    :param alpha: larger begins bottom-up earlier
    :param beta: larger stays bottom-up longer
    :param threads: at most so many; all that the process may use by default. Small graphs use one
    :param control: the control array of the run; setting its abort word from outside ends it early
    :param poll: called now and then by the calling thread; an exception that it raises ends the run
    :returns: int32 (n) distances, :data:`UNREACHED` where none; and what the search did
    """
    n = graph.vertex_count
    distance = np.empty(n, np.int32)
    if n == 0:
        return distance, SearchCounts(0, 0, 0, 0, True)
    sparse = graph.arc_count < min(_ALONE_SPARSE_ARCS, _SPARSE_DEGREE * n)
    if sparse or graph.arc_count < _ALONE_GRAPH_ARCS:
        threads = 1
    elif threads is None:
        threads = config.thread_count()
    reverse = in_arcs_at_hand(graph)
    in_arcs = graph if reverse is None else reverse
    shared = np.zeros(RESULTS + 8 * threads, np.int64)
    with _workspace(graph, threads) as (queue, bitmaps):
        completed = run_team(
            _search,
            graph.offsets,
            graph.targets,
            in_arcs.offsets,
            in_arcs.targets,
            distance,
            queue,
            bitmaps,
            np.empty(threads * LOCAL_ITEMS, graph.targets.dtype),
            shared,
            frozen(sources, np.int64),
            _largest_degree(graph),
            _TEAM_ARCS,
            int(_MARK_ARCS_PER_VERTEX * n * max(1, threads / _MARK_THREADS)),
            _SWEEP_ARCS_PER_VERTEX,
            -1 if target is None else int(target),
            UNREACHED - 1 if cutoff is None else int(min(cutoff, UNREACHED - 1)),
            int(alpha) if reverse is not None else 0,
            int(beta),
            threads=threads,
            control=control,
            poll=poll,
            brief=n + graph.arc_count < _ALONE_GRAPH_ARCS,
        )
    return distance, SearchCounts(
        arcs_examined=int(shared[EXAMINED]),
        vertices_visited=int(shared[VISITED]),
        levels=int(shared[LEVELS]),
        bottom_up_levels=int(shared[BOTTOM_UP_LEVELS]),
        completed=all(completed),
    )


def _largest_degree(graph: Graph) -> int:
    return int(graph.out_degree().max(initial=0))


@contextmanager
def _workspace(graph: Graph, threads: int) -> Iterator[tuple[Array, Array]]:
    """Queue and bitmaps, for the caller alone; kept with the graph, since new pages cost time.

    As many pairs are kept as were ever in use at once. Taking from a list and adding to it are
    atomic in Python, so searches may run at the same time.
    """
    idle: list[tuple[Array, Array]] = graph.cached("search workspaces", list)
    n = graph.vertex_count
    needed = (COMMON_BITMAPS + threads) * words_of(n)
    try:
        pair = idle.pop()
        if pair[1].size < needed:
            pair = pair[0], np.empty(needed, np.int64)
    except IndexError:
        # One more: `expand_alone` writes before it knows whether the vertex is new.
        pair = np.empty(n + 1, graph.targets.dtype), np.empty(needed, np.int64)
    yield pair
    # Only after a search that ended: the threads of one that was left may still write to its own.
    idle.append(pair)


def _is_over(distance: Any, shared: Any, target: int, cutoff: int) -> bool:
    """Whether the frontier need not be expanded."""
    if shared[LEVEL] >= cutoff:
        return True
    return target >= 0 and distance[target] != UNREACHED


def _seed(distance: Any, queue: Any, shared: Any, sources: Any) -> None:
    """Put the sources into the queue, each once."""
    tail = 0
    for source in sources:
        if distance[source] == UNREACHED:
            distance[source] = 0
            queue[tail] = source
            tail += 1
    shared[TAIL] = tail
    shared[QUEUE_END] = tail
    shared[VISITED] = tail


def _count_arcs(offsets: Any, queue: Any, head: int, tail: int) -> int:
    """The out-arcs of a stretch of the queue."""
    arcs = 0
    for i in range(head, tail):
        v = queue[at(i)]
        arcs += offsets[at(v) + at(1)] - offsets[at(v)]
    return arcs


def _take_results(size: int, shared: Any) -> tuple[int, int]:
    """Vertices found in the step just done, and their arcs, of all threads together."""
    found = 0
    arcs = 0
    for rank in range(size):
        result = RESULTS + 8 * rank
        found += shared[result + FOUND]
        arcs += shared[result + FOUND_ARCS]
        shared[EXAMINED] += shared[result + FOLLOWED]
    shared[LEVEL] += 1
    shared[LEVELS] += 1
    shared[VISITED] += found
    return found, arcs


def _pays_to_sweep(n: int, arcs: int, sweep_arcs: int, alpha: int, shared: Any) -> bool:
    """Whether the vertices left had better look for the frontier, which has so many arcs."""
    if arcs * alpha <= shared[LEFT_ARCS] - arcs:
        return False
    return arcs >= sweep_arcs * (n - shared[VISITED])  # type: ignore[no-any-return]


def _plan(
    size: int, control: Any, offsets: Any, targets: Any, distance: Any, queue: Any, shared: Any,
    largest_degree: int, team_arcs: int, mark_arcs: int, sweep_arcs: int, target: int, cutoff: int,
    alpha: int, beta: int,
) -> int:  # fmt: skip
    """What all do next; rank 0 alone, after a step and before the next."""
    n = offsets.size - 1
    if targets.size == 0:
        return STOP
    step = shared[STEP]
    store_relaxed(control, CURSOR, 0)
    arcs = -1  # of the frontier; not known yet
    if step == TO_BITMAP:
        return SWEEP
    if step == MARK:
        return MERGE
    if step in (SWEEP, MERGE):
        found, arcs = _take_results(size, shared)
        sweeps = _pays_to_sweep(n, arcs, sweep_arcs, alpha, shared)
        if step == SWEEP:
            shared[BOTTOM_UP_LEVELS] += 1
            shared[PARITY] = 1 - shared[PARITY]
            sweeps = found * beta > n or (sweeps and found >= shared[FRONTIER])
        shared[FRONTIER] = found
        shared[FRONTIER_ARCS] = arcs
        if found == 0 or _is_over(distance, shared, target, cutoff):
            return STOP
        if sweeps:
            shared[LEFT_ARCS] -= arcs
            return SWEEP
        shared[QUEUE_END] = 0
        return TO_QUEUE
    if step == TO_QUEUE:
        shared[HEAD] = 0
        shared[TAIL] = shared[QUEUE_END]
        arcs = shared[FRONTIER_ARCS]
    elif step == EXPAND:
        _, arcs = _take_results(size, shared)
        shared[HEAD] = shared[TAIL]
        shared[TAIL] = shared[QUEUE_END]
    few = min(team_arcs, mark_arcs)
    while shared[HEAD] < shared[TAIL] and not _is_over(distance, shared, target, cutoff):
        if arcs < 0:
            arcs = (shared[TAIL] - shared[HEAD]) * largest_degree
            if arcs >= few:
                arcs = _count_arcs(offsets, queue, shared[HEAD], shared[TAIL])
        if arcs >= few:
            following = STOP
            if arcs < mark_arcs:
                following = EXPAND if size > 1 else STOP
            elif step != TO_QUEUE and _pays_to_sweep(n, arcs, sweep_arcs, alpha, shared):
                following = TO_BITMAP
                shared[FRONTIER] = shared[TAIL] - shared[HEAD]
            else:
                following = MARK
            if following != STOP:
                shared[LEFT_ARCS] -= arcs
                return following
        expand_alone(control, offsets, targets, distance, queue, shared)
        if load_acquire(control, ABORT) != 0:
            return STOP
        step = STOP
        arcs = -1
    return STOP


@kernel
def _search(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, in_offsets: Any,
    in_targets: Any, distance: Any, queue: Any, bitmaps: Any, local: Any, shared: Any,
    sources: Any, largest_degree: int, team_arcs: int, mark_arcs: int, sweep_arcs: int, target: int,
    cutoff: int, alpha: int, beta: int,
) -> bool:  # fmt: skip
    """The whole search, on every thread of the team; False if aborted."""
    n = offsets.size - 1
    words = words_of(n)
    begin, end = block_range(rank, size, n)
    distance[begin:end] = UNREACHED
    if not barrier(control, size):
        return False
    if rank == 0:
        _seed(distance, queue, shared, sources)
        shared[LEFT_ARCS] = targets.size
    while True:
        if rank == 0:
            shared[STEP] = _plan(
                size, control, offsets, targets, distance, queue, shared,
                largest_degree, team_arcs, mark_arcs, sweep_arcs, target, cutoff, alpha, beta,
            )  # fmt: skip
        if not barrier(control, size):
            return False
        step = shared[STEP]
        if step == STOP:
            return True
        if step == EXPAND:
            expand(rank, control, offsets, targets, distance, queue, local, shared)
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
        if not barrier(control, size):
            return False
