"""Shortest paths on the CPU that look at few arcs: push short arcs, then pull, then push what is left.

Push (stages): rows are sorted by weight. A stage has a bound, ``near``, and leaves all distances up to it
final: vertices push the arcs along which a distance is at most ``near``, a prefix of their rows. Vertices
with arcs left are *open*: each has an entry with the place of its next arc in the row, and a *key*, no
larger than the distance along that arc. The next stage has a larger bound, and takes the entries whose keys
are within it. So between two stages the distances of all vertices that are reached are final.

Pull: when the vertices that are left have few in-arcs beside what a stage pushes, each looks through its
in-row for final neighbours, and stops at the first weight that is not below the distance it has found.

Then vertices that were left, and have neighbours that were left, push in stages to each other: they are the
open ones now, with the distances that they pulled as keys.

Target: its distance, as it falls, becomes the limit of the search, and of the stage. So the search ends
with the stage that leaves the target's distance final, and farther vertices count as not reached.

Beamer, Asanovic and Patterson (SC 2012) have push and pull for BFS, Chakaravarthy et al. (IPDPS 2014)
pushing, pulling and pruning by weight for shortest paths, Meyer and Sanders (2003) the stages
(delta-stepping).

Within a stage there are rounds. The first takes the open entries, the others the vertices whose distances
fell in the round before, each once: lowering a distance writes the next round's number into the vertex's
*stamp*, and queues the vertex if another number was there. Numbers go on from search to search, so stamps
are not cleared. If the stamp was from before the stage, the vertex is queued for the first time in the
stage (*first*), and gets an open entry when it has pushed. If its distance falls again in the stage, its
prefix becomes longer, and the entry remains valid: its key is that of the smallest distance in the stage,
and the arcs from its place on are all that were not pushed, and some that were.

Rank 0 plans, all perform, and rank 0 alone performs steps of few entries, as in
:mod:`godwit.algorithms.bfs.cpu`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from godwit.algorithms.sssp.cpu_rows import at, search_rows
from godwit.algorithms.sssp.stages import UNREACHED, first_width
from godwit.dtypes import Array, frozen
from godwit.graph.csr import Graph
from godwit.graph.rows import row_range
from godwit.runtime.cpu.atomics import (
    compare_exchange,
    exchange,
    fetch_add,
    load_acquire,
    load_relaxed,
    prefetch,
    store_relaxed,
)
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, CURSOR, barrier, block_range, next_range, run_team
from godwit.runtime.cpu.values import by_reference

TURN = 8
"""Pull when the in-arcs that are left are at most this multiple of the arcs of the latest stage."""
ALONE_ENTRIES = 256
"""Rank 0 alone performs steps of so many entries, or fewer."""
_QUEUE_CHUNK = 32
_OPEN_CHUNK = 256
_PULL_CHUNK = 1024
LOCAL_ITEMS = 1024
"""Vertices, and open entries, that a thread collects before it appends them to the common ones."""
_FULL_SCAN_ARCS = 16
"""Arcs of a row that a pull looks through to the end, for neighbours that are left."""
_CORRECTION_WIDTHS = 16
"""Width of a stage after the pull, in those of stages before."""
_FIRST_WIDTHS = 2
"""Width of the first stage, in those of :func:`first_width`: open vertices are visited in every stage."""
_NARROW_ARCS = 4096
"""A stage that looked at fewer arcs is followed by one that is twice as wide."""
_WIDE_ARCS = 1 << 20
"""A stage that looked at more is followed by one that is half as wide, but not below the first width."""
_LAST_STAMP = 2**30
"""Largest stamp with which a search begins without clearing stamps: as many rounds are left to it."""
_NAMES = {np.dtype(name): name for name in UNREACHED}
"""Names by dtype: NumPy computes the name of a dtype anew each time."""
_WIDE = {"i": (np.dtype(np.int64), "int64"), "f": (np.dtype(np.float64), "float64")}
"""Dtypes of results, and their names, by kind of the dtype of distances."""
# How far ahead in lists of vertices rows, arcs, and distances of first neighbours are prefetched. Those of
# further arcs are not: it made searches a tenth slower (docs/performance.md).
_ROW_AHEAD = 12
_ARC_AHEAD = 8
_TARGET_AHEAD = 4
ARCS_PER_THREAD = 400_000
"""A thread with fewer arcs, of which few are looked at, takes longer to wake and to meet than it saves."""

# Steps.
STOP = 0
VISIT = 1  # push along arcs of open vertices
ROUND = 2  # push from the queued vertices
PULL = 3

# Words of `shared` (int64), in lines of 8. Line 0: what rank 0 writes for all.
STEP = 0
ROUND_NUMBER = 1
FIRST_ROUND = 2  # of the stage
SEARCH_ROUND = 3  # the first of the search
TAKEN_ENTRIES = 4  # open entries, or vertices in the queue, that the step takes
QUEUE_PARITY = 5
OPEN_PARITY = 6
HAS_PULLED = 7
# Lines 1 and 2: ends of the next queue and of the next open entries.
QUEUE_END = 8
OPEN_END = 16
# Line 3: used by rank 0 only.
SETTLED_ARCS = 24
STAGES = 25
PROCESSED = 26
LOOKED = 27
# From line 4 on, a line for each thread: its counts in the stage.
RESULTS = 32
LOOKED_NOW = 0
SETTLED_NOW = 1  # in-arcs of vertices that are first in the stage
PROCESSED_NOW = 2
BEYOND = 3  # not 0: an arc may lead beyond the limit

# Words of `bounds`, of the dtype of distances.
NEAR = 0
BEFORE = 1  # the bound of the stage before
WIDTH = 2
LIMIT = 3  # farther vertices are not reached
LEAST_WIDTH = 4
# From here on, 8 words for each thread: the lowest key of the entries that it made in the step.
LOWEST = 8

VALUE: Any = np.int32  # of distances; bound by the instantiation


class Search(NamedTuple):
    """The arrays of a search.

    :ivar stamps: (n) int32
    :ivar queues: (2, n) vertices, or -1 - v for v that is first in the stage
    :ivar entries: (2, 2 n) of :func:`entry_dtype`. After the pull a vertex may have two: one is of the
        distance that it pulled, with -1 as its place
    :ivar local_vertices: (threads * LOCAL_ITEMS)
    :ivar local_entries: (threads * LOCAL_ITEMS)
    """

    offsets: Any
    arcs: Any
    in_offsets: Any
    in_arcs: Any
    distance: Any
    stamps: Any
    queues: Any
    entries: Any
    local_vertices: Any
    local_entries: Any
    shared: Any
    bounds: Any
    unreached: Any
    results: Any  # (n) of a wider dtype; or empty: the distances are the results
    never: Any  # result of vertices that are not reached
    target: Any  # vertex whose distance lowers the limit, or -1


@dataclass(frozen=True)
class SearchOutcome:
    """Outcome of a search on all cores.

    :param distance: (n) int64, or float64
    :param overflows: a distance does not fit the dtype; vertices at such distances are not reached
    :param processed: times that a vertex pushed
    :param looked: arcs that were looked at
    """

    distance: Array
    overflows: bool
    processed: int
    looked: int
    stages: int


def entry_dtype(id_dtype: np.dtype[Any], value_dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of an open entry: place of the next arc, lower bound of its length, vertex."""
    return np.dtype([("place", np.int64), ("key", value_dtype), ("vertex", id_dtype)])


def search_on_cpu(
    graph: Graph,
    sources: Array,
    dtype: np.dtype[Any],
    limit: float | None,
    target: int | None = None,
    *,
    threads: int,
    poll: Callable[[int], None] | None = None,
) -> SearchOutcome:
    """Search from some sources.

    :param sources: (s) vertices, each once
    :param dtype: of the distances: int32 or int64 for integer weights, float64 for others
    :param limit: vertices beyond it are not reached
    :param target: vertices farther than this one are not reached
    :param threads: upper limit
    :param poll: called now and then by the calling thread with the number of vertices that pushed; an
        exception that it raises ends the run
    """
    n, name = graph.vertex_count, _NAMES[dtype]
    wide, wide_name = _WIDE[dtype.kind]
    rows = search_rows(graph)
    farthest = UNREACHED[name] - 1 if dtype.kind == "i" else np.finfo(np.float64).max
    unreached = dtype.type(UNREACHED[name])
    threads = max(1, min(threads, graph.arc_count // ARCS_PER_THREAD))
    shared = np.zeros(RESULTS + 8 * threads, np.int64)
    bounds = np.zeros(LOWEST + 8 * threads, dtype)
    bounds[LIMIT] = farthest if limit is None else min(farthest, limit)
    bounds[WIDTH] = bounds[LEAST_WIDTH] = graph.cached(
        ("first width", dtype), lambda: _width(graph, dtype)
    )
    bounds[NEAR] = min(bounds[WIDTH], bounds[LIMIT])
    with _workspace(graph, dtype) as workspace:
        stamp = int(workspace.stamp[0])
        shared[ROUND_NUMBER] = shared[FIRST_ROUND] = shared[SEARCH_ROUND] = stamp
        results = np.empty(n, wide)
        distance = workspace.distance if dtype != wide else results
        ids = workspace.queues.dtype
        search = Search(
            rows.out.offsets, rows.out.arcs, rows.into.offsets, rows.into.arcs, distance, workspace.stamps,
            workspace.queues, workspace.entries, np.empty(threads * LOCAL_ITEMS, ids),
            np.empty(threads * LOCAL_ITEMS, workspace.entries.dtype), shared, bounds, unreached,
            results if dtype != wide else results[:0], wide.type(UNREACHED[wide_name]),
            -1 if target is None else target,
        )  # fmt: skip
        run_team(
            _KERNELS[name], search, frozen(sources, np.int64), TURN, ALONE_ENTRIES, threads=threads,
            poll=None if poll is None else lambda: poll(int(shared[PROCESSED])),
        )  # fmt: skip
        workspace.stamp[0] = shared[ROUND_NUMBER] + 2
        overflows = False
        is_limited = (limit is not None and limit <= farthest) or bounds[LIMIT] < farthest
        if dtype.kind == "i" and not is_limited:
            overflows = any(shared[RESULTS + 8 * rank + BEYOND] for rank in range(threads)) and any(
                run_team(_reach_beyond, rows.out.offsets, rows.out.arcs, distance, unreached)
            )
    return SearchOutcome(
        results, overflows, int(shared[PROCESSED]), int(shared[LOOKED]), int(shared[STAGES])
    )


def _width(graph: Graph, dtype: np.dtype[Any]) -> Any:
    """Return the width of the first stage."""
    width = first_width(graph, int(np.count_nonzero(graph.out_degree())), dtype)
    return _FIRST_WIDTHS * width


@dataclass(frozen=True)
class _Workspace:
    """Arrays for exclusive use, kept with the graph, since new pages cost time."""

    stamp: Array
    stamps: Array
    queues: Array
    entries: Array
    distance: Array  # unused where distances are the results, which the user gets


@contextmanager
def _workspace(graph: Graph, dtype: np.dtype[Any]) -> Iterator[_Workspace]:
    """Yield a workspace; one is kept for each search that ran at the same time.

    Popping from and appending to a list are atomic.
    """
    idle: list[_Workspace] = graph.cached(("sssp workspaces", dtype), list)
    n, ids = graph.vertex_count, graph.rows.targets.dtype
    try:
        workspace = idle.pop()
    except IndexError:
        entries = np.empty((2, 2 * n), entry_dtype(ids, dtype))
        workspace = _Workspace(
            np.ones(1, np.int64), np.zeros(n, np.int32), np.empty((2, n), ids), entries,
            np.empty(n if dtype.itemsize == 4 else 0, dtype),
        )  # fmt: skip
    if workspace.stamp[0] > _LAST_STAMP:
        workspace.stamp[0] = 1
        workspace.stamps[:] = 0
    yield workspace
    # Not after an aborted search: its threads may still write.
    idle.append(workspace)


# Compiled from here on.


def _flush_vertices(search: Any, begin: int, count: int) -> None:
    """Append the vertices that a thread has collected to the next queue."""
    shared = search.shared
    end = fetch_add(shared, QUEUE_END, count)
    row = 1 - shared[QUEUE_PARITY]
    for i in range(count):
        search.queues[at(row), at(end + i)] = search.local_vertices[at(begin + i)]


def _flush_entries(search: Any, begin: int, count: int) -> None:
    """Append the entries that a thread has collected to the next open entries."""
    shared = search.shared
    end = fetch_add(shared, OPEN_END, count)
    row = 1 - shared[OPEN_PARITY]
    for i in range(count):
        entry = search.local_entries[at(begin + i)]
        search.entries[at(row), at(end + i)].place = entry.place
        search.entries[at(row), at(end + i)].key = entry.key
        search.entries[at(row), at(end + i)].vertex = entry.vertex


def _add_entry(search: Any, mine: int, held: int, place: int, key: Any, vertex: Any) -> int:
    """Add an open entry; return how many the thread has collected."""
    entry = mine + held
    search.local_entries[at(entry)].place = place
    search.local_entries[at(entry)].key = key
    search.local_entries[at(entry)].vertex = vertex
    if held + 1 == LOCAL_ITEMS:
        _flush_entries(search, mine, LOCAL_ITEMS)
        return 0
    return held + 1


def _lower(search: Any, vertex: Any, length: Any, stamp: Any) -> tuple[bool, Any]:
    """Lower a distance; return (True if the vertex is to be queued, its stamp before)."""
    distance = search.distance
    old = load_relaxed(distance, at(vertex))
    while length < old:
        if compare_exchange(distance, at(vertex), old, VALUE(length)):
            before = load_relaxed(search.stamps, at(vertex))
            if before != stamp:
                before = exchange(search.stamps, at(vertex), stamp)
            return before != stamp, before
        old = load_relaxed(distance, at(vertex))
    return False, stamp


def _push(search: Any, mine: int, held: int, place: int, end: int, vertex: Any) -> tuple[int, int]:
    """Push arcs from a place of a row on; return (place of the first not pushed, vertices held)."""
    near = search.bounds[NEAR]
    first_round = np.int32(search.shared[FIRST_ROUND])
    stamp = np.int32(search.shared[ROUND_NUMBER] + 1)
    arcs = search.arcs
    length = load_relaxed(search.distance, at(vertex))
    while place < end:
        arc = arcs[at(place)]
        reached = length + arc.weight
        if not reached <= near:
            break
        place += 1
        target = arc.target
        queues, before = _lower(search, target, reached, stamp)
        if queues:
            search.local_vertices[at(mine + held)] = -1 - target if before < first_round else target
            held += 1
            if held == LOCAL_ITEMS:
                _flush_vertices(search, mine, held)
                held = 0
    return place, held


def _is_within(search: Any, rank: int, key: Any) -> bool:
    """Return True if a key is within the limit; note one that is not."""
    if key <= search.bounds[LIMIT]:
        return True
    search.shared[RESULTS + 8 * rank + BEYOND] = 1
    return False


def _note_lowest(search: Any, rank: int, key: Any) -> None:
    """Note the lowest key of new entries."""
    word = LOWEST + 8 * rank
    search.bounds[at(word)] = min(search.bounds[at(word)], VALUE(key))


def _keep_open(
    search: Any, rank: int, mine: int, held: int, place: Any, key: Any, vertex: Any
) -> int:
    """Add an entry for the next arc of a vertex if its key is within the limit; return the number held."""
    if _is_within(search, rank, key):
        held = _add_entry(search, mine, held, place, VALUE(key), vertex)
        _note_lowest(search, rank, key)
    return held


def _claims(search: Any, vertex: Any) -> bool:
    """Return True if a vertex that pulled its distance was not queued since, and stamp it."""
    old = load_relaxed(search.stamps, at(vertex))
    stamp = np.int32(search.shared[ROUND_NUMBER])
    is_new = old < search.shared[SEARCH_ROUND]
    return bool(is_new and compare_exchange(search.stamps, at(vertex), old, stamp))


def visit(rank: int, control: Any, search: Any) -> None:
    """Push from open vertices whose next arc may reach a distance up to the bound."""
    shared = search.shared
    offsets = search.offsets
    distance = search.distance
    near = search.bounds[NEAR]
    before = search.bounds[BEFORE]
    row = shared[OPEN_PARITY]
    count = shared[TAKEN_ENTRIES]
    mine = rank * LOCAL_ITEMS
    held = 0
    held_entries = 0
    looked = 0
    processed = 0
    settled = 0
    while True:
        begin, end = next_range(control, _OPEN_CHUNK, count)
        if begin == end:
            break
        for i in range(begin, end):
            ahead = search.entries[at(row), at(min(i + _ARC_AHEAD, count - 1))]
            if ahead.key <= near:
                prefetch(search.arcs, at(max(ahead.place, 0)))
                prefetch(offsets, at(ahead.vertex))
                prefetch(distance, at(ahead.vertex))
            ahead = search.entries[at(row), at(min(i + _TARGET_AHEAD, count - 1))]
            if ahead.key <= near and ahead.place >= 0:
                prefetch(distance, at(search.arcs[at(ahead.place)].target))
                prefetch(search.stamps, at(search.arcs[at(ahead.place)].target))
            entry = search.entries[at(row), at(i)]
            vertex = entry.vertex
            place = entry.place
            key = entry.key
            if key > near:
                held_entries = _add_entry(search, mine, held_entries, place, key, vertex)
                _note_lowest(search, rank, key)
                continue
            is_pulled = place < 0
            if is_pulled:
                if not _claims(search, vertex):
                    continue
                place = offsets[at(vertex)]
            last = offsets[at(vertex) + at(1)]
            processed += 1
            after, held = _push(search, mine, held, place, last, vertex)
            looked += after - place + 1
            if after < last:
                length = before if is_pulled else load_relaxed(distance, at(vertex))
                length += search.arcs[at(after)].weight
                held_entries = _keep_open(search, rank, mine, held_entries, after, length, vertex)
    _flush_vertices(search, mine, held)
    _flush_entries(search, mine, held_entries)
    _report(search, rank, looked, settled, processed)


def _report(search: Any, rank: int, looked: int, settled: int, processed: int) -> None:
    """Add to the results of a thread in a stage."""
    line = RESULTS + 8 * rank
    search.shared[line + LOOKED_NOW] += looked
    search.shared[line + SETTLED_NOW] += settled
    search.shared[line + PROCESSED_NOW] += processed


def push_queue(rank: int, control: Any, search: Any) -> None:
    """Push from the queued vertices."""
    shared = search.shared
    offsets = search.offsets
    distance = search.distance
    in_offsets = search.in_offsets
    arcs = search.arcs
    row = shared[QUEUE_PARITY]
    before = search.bounds[BEFORE]
    count = shared[TAKEN_ENTRIES]
    last_arc = max(arcs.size - 1, 0)
    mine = rank * LOCAL_ITEMS
    held = 0
    held_entries = 0
    looked = 0
    processed = 0
    settled = 0
    while True:
        begin, end = next_range(control, _QUEUE_CHUNK, count)
        if begin == end:
            break
        for i in range(begin, end):
            ahead = search.queues[at(row), at(min(i + _ROW_AHEAD, count - 1))]
            prefetch(offsets, at(max(ahead, -1 - ahead)))
            ahead = search.queues[at(row), at(min(i + _ARC_AHEAD, count - 1))]
            prefetch(arcs, at(min(offsets[at(max(ahead, -1 - ahead))], last_arc)))
            ahead = search.queues[at(row), at(min(i + _TARGET_AHEAD, count - 1))]
            first = min(offsets[at(max(ahead, -1 - ahead))], last_arc)
            prefetch(distance, at(arcs[at(first)].target))
            prefetch(search.stamps, at(arcs[at(first)].target))
            item = search.queues[at(row), at(i)]
            vertex = max(item, -1 - item)
            place = offsets[at(vertex)]
            last = offsets[at(vertex) + at(1)]
            processed += 1
            after, held = _push(search, mine, held, place, last, vertex)
            looked += after - place + 1
            if item < 0:
                settled += in_offsets[at(vertex) + at(1)] - in_offsets[at(vertex)]
                if after < last:
                    key = before + arcs[at(after)].weight
                    held_entries = _keep_open(search, rank, mine, held_entries, after, key, vertex)
    _flush_vertices(search, mine, held)
    _flush_entries(search, mine, held_entries)
    _report(search, rank, looked, settled, processed)


def pull(rank: int, control: Any, search: Any) -> None:
    """Let vertices that are not reached look through their in-arcs for final neighbours."""
    distance = search.distance
    offsets = search.in_offsets
    arcs = search.in_arcs
    near = search.bounds[NEAR]
    unreached = search.unreached
    is_symmetric = search.arcs.ctypes.data == arcs.ctypes.data
    mine = rank * LOCAL_ITEMS
    held_entries = 0
    looked = 0
    while True:
        begin, end = next_range(control, _PULL_CHUNK, distance.size)
        if begin == end:
            break
        for vertex in range(begin, end):
            if distance[at(vertex)] != unreached:
                continue
            place = offsets[at(vertex)]
            last = offsets[at(vertex) + at(1)]
            scans = is_symmetric and last - place <= _FULL_SCAN_ARCS
            best = unreached
            pushes = not scans
            first = place
            while place < last:
                arc = arcs[at(place)]
                if arc.weight >= best and (pushes or not scans):
                    break
                place += 1
                length = load_relaxed(distance, at(arc.target))
                if length > near:
                    pushes = True
                    continue
                reached = length + arc.weight
                is_less = reached < best or best == unreached
                if is_less and _is_within(search, rank, reached):
                    best = VALUE(reached)
            looked += place - first
            if best < unreached:
                distance[at(vertex)] = best
                if pushes:
                    held_entries = _add_entry(search, mine, held_entries, -1, best, vertex)
                    _note_lowest(search, rank, best)
    _flush_entries(search, mine, held_entries)
    _report(search, rank, looked, 0, 0)


def _seed(search: Any, sources: Any) -> None:
    """Queue the sources."""
    for i in range(sources.size):
        vertex = sources[i]
        search.distance[vertex] = 0
        search.queues[1, i] = -1 - vertex
    search.shared[QUEUE_END] = sources.size


def _begin_stage(search: Any, size: int) -> None:
    """Raise the bound."""
    shared = search.shared
    bounds = search.bounds
    looked = np.int64(0)
    for rank in range(size):
        looked += shared[RESULTS + 8 * rank + LOOKED_NOW]
    width = bounds[WIDTH]
    limit = bounds[LIMIT]
    near = bounds[NEAR]
    if looked < _NARROW_ARCS:
        width = VALUE(min(width, limit - width) + width)
    elif looked > _WIDE_ARCS:
        width = max(VALUE(width / 2), bounds[LEAST_WIDTH])
    while near + width == near:
        width = VALUE(2 * width)
    lowest = search.unreached
    for rank in range(size):
        lowest = min(lowest, bounds[LOWEST + 8 * rank])
    bounds[WIDTH] = width
    bounds[BEFORE] = near
    near = VALUE(near + width) if width < limit - near else limit
    bounds[NEAR] = min(max(near, lowest), limit)
    shared[STAGES] += 1
    shared[FIRST_ROUND] = shared[ROUND_NUMBER]


def _write_results(rank: int, size: int, search: Any) -> None:
    """Write the results of a thread's part of the vertices."""
    distance = search.distance
    results = search.results
    limit = search.bounds[LIMIT]
    begin, end = block_range(rank, size, distance.size)
    if results.size > 0:
        for vertex in range(begin, end):
            length = distance[at(vertex)]
            results[at(vertex)] = search.never if length > limit else length
    elif search.target >= 0:
        for vertex in range(begin, end):
            if distance[at(vertex)] > limit:
                distance[at(vertex)] = search.unreached


def _lower_limit(search: Any) -> None:
    """Let the search, and the stage, end at the target's distance."""
    bounds = search.bounds
    bounds[LIMIT] = min(bounds[LIMIT], search.distance[at(search.target)])
    bounds[NEAR] = min(bounds[NEAR], bounds[LIMIT])


def _pays_to_pull(search: Any, size: int, turn: int) -> bool:
    """Return True if a pull costs less than to push on."""
    shared = search.shared
    if shared[HAS_PULLED]:
        return False
    looked = np.int64(0)
    settled = np.int64(0)
    for rank in range(size):
        looked += shared[RESULTS + 8 * rank + LOOKED_NOW]
        settled += shared[RESULTS + 8 * rank + SETTLED_NOW]
    return search.in_arcs.size - shared[SETTLED_ARCS] - settled <= turn * looked  # type: ignore[no-any-return]


def _take_results(search: Any, size: int) -> None:
    """Add up the results of a stage."""
    shared = search.shared
    for rank in range(size):
        line = RESULTS + 8 * rank
        shared[LOOKED] += shared[line + LOOKED_NOW]
        shared[SETTLED_ARCS] += shared[line + SETTLED_NOW]
        shared[PROCESSED] += shared[line + PROCESSED_NOW]
        shared[line + LOOKED_NOW] = 0
        shared[line + SETTLED_NOW] = 0
        shared[line + PROCESSED_NOW] = 0


def _reset_lowest(search: Any, size: int) -> None:
    for rank in range(size):
        search.bounds[LOWEST + 8 * rank] = search.unreached


def _plan(size: int, control: Any, search: Any, turn: int, alone: int) -> int:
    """Return the next step; called by rank 0 between two barriers."""
    shared = search.shared
    while load_acquire(control, ABORT) == 0:
        store_relaxed(control, CURSOR, 0)
        shared[ROUND_NUMBER] += 1
        if search.target >= 0:
            _lower_limit(search)
        if shared[QUEUE_END] > 0:
            shared[TAKEN_ENTRIES] = shared[QUEUE_END]
            shared[QUEUE_END] = 0
            shared[QUEUE_PARITY] = 1 - shared[QUEUE_PARITY]
            if shared[TAKEN_ENTRIES] > alone and size > 1:
                return ROUND
            push_queue(0, control, search)
            continue
        is_over = search.bounds[NEAR] >= search.bounds[LIMIT]
        if not is_over and _pays_to_pull(search, size, turn):
            _take_results(search, size)
            shared[HAS_PULLED] = 1
            shared[OPEN_END] = 0
            largest = search.bounds[LIMIT] // _CORRECTION_WIDTHS
            width = VALUE(min(search.bounds[LEAST_WIDTH], largest) * _CORRECTION_WIDTHS)
            search.bounds[LEAST_WIDTH] = max(search.bounds[LEAST_WIDTH], width)
            search.bounds[WIDTH] = max(search.bounds[WIDTH], width)
            _reset_lowest(search, size)
            return PULL
        if is_over or shared[OPEN_END] == 0:
            # Keys are lower bounds: what is still open is beyond the limit, though its keys are not.
            if shared[OPEN_END] > 0:
                shared[RESULTS + BEYOND] = 1
            _take_results(search, size)
            return STOP
        _begin_stage(search, size)
        _take_results(search, size)
        _reset_lowest(search, size)
        shared[TAKEN_ENTRIES] = shared[OPEN_END]
        shared[OPEN_END] = 0
        shared[OPEN_PARITY] = 1 - shared[OPEN_PARITY]
        if shared[TAKEN_ENTRIES] > alone and size > 1:
            return VISIT
        visit(0, control, search)
    return STOP


@kernel
def _search(
    rank: int, size: int, control: Any, search: Any, sources: Any, turn: int, alone: int
) -> bool:
    """Run the search on every thread of the team; return False if aborted."""
    search = by_reference(search)
    shared = search.shared
    begin, end = block_range(rank, size, search.distance.size)
    search.distance[begin:end] = search.unreached
    if not barrier(control, size):
        return False
    if rank == 0:
        _seed(search, sources)
        _reset_lowest(search, size)
    while True:
        if rank == 0:
            shared[STEP] = _plan(size, control, search, turn, alone)
        if not barrier(control, size):
            return False
        step = shared[STEP]
        if step == STOP:
            _write_results(rank, size, search)
            return True
        if step == VISIT:
            visit(rank, control, search)
        elif step == ROUND:
            push_queue(rank, control, search)
        else:
            pull(rank, control, search)
        if not barrier(control, size):
            return False


@kernel
def _reach_beyond(
    rank: int, size: int, control: Any, offsets: Any, arcs: Any, distance: Any, unreached: Any
) -> bool:
    """Return True if an arc to a vertex that was not reached leaves one at a distance."""
    begin, end = row_range(rank, size, offsets)
    for vertex in range(begin, end):
        if vertex & 1023 == 0 and load_acquire(control, ABORT) != 0:
            return False
        if distance[at(vertex)] == unreached:
            continue
        for place in range(offsets[at(vertex)], offsets[at(vertex + 1)]):
            if distance[at(arcs[at(place)].target)] == unreached:
                return True
    return False


_KERNELS = {
    name: _search.bind(VALUE=value)
    for name, value in (("int32", np.int32), ("int64", np.int64), ("float64", np.float64))
}
"""Kernels by dtype of distances."""
