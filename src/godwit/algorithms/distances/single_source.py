"""Distances from one source after the other, on one thread: by weights, or by arcs in deep graphs.

*By weights*: vertices whose distance has fallen wait in a ring of buckets by distance, each bucket a doubly
linked list; those of the current bucket are on a stack (delta-stepping: U. Meyer, P. Sanders, J. Algorithms
49 (2003), on one thread). A vertex may be visited again in its bucket, mostly it is not. Where a bucket
takes more than a few visits a vertex, because many weights are much smaller than its width, the stack
becomes a heap, which visits the remaining vertices in the order of distance. So there are at most some
``_BUDGET`` + 1 visits a vertex, whatever the weights.

Distances are least sums of weights in the order of the path, as those of :func:`godwit.sssp`.

*By arcs*: breadth-first. In a graph with many levels, searches from several sources rarely visit a vertex
in the same level, and bits of words (bits.py) would save nothing.

Between two searches all distances are infinite, all buckets are empty, and no vertex waits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from godwit.algorithms.distances.query import (
    COUNT,
    FARTHEST,
    FRACTIONS,
    LARGEST,
    RECIPROCALS,
    TOTAL,
    DistanceQuery,
    reciprocal_parts,
)
from godwit.algorithms.paths.buckets import BUCKETS, bucket_width, sift_down, sift_up
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.runtime.cpu.atomics import fetch_add, load_acquire, prefetch
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, CURSOR

ABORTED = -1

# States of a vertex that is behind no other one in a bucket.
FIRST = -1  # of its bucket
IDLE = -2  # waits nowhere
STACKED = -3  # is on the stack, or in the heap

_BUDGET = 4
"""Visits for each entry of a bucket after which its stack becomes a heap."""
_LEAST_BUDGET = 256
_MEAN_SHARE = 4
"""Buckets are at least as wide as the mean weight over this."""

# Unsigned index: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64
_lowest_bit: Any = trailing_zeros


class Records(NamedTuple):
    """Arrays that get what searches find.

    :ivar columns: (n) column of each vertex, or -1 if it is not asked for; empty: vertex v is column v
    :ivar targets: vertex of each column; empty: vertex v is column v
    :ivar matrix: (k, columns) distances; no rows if they are not asked for
    :ivar sums: (k, fields) sums over columns; no rows if they are not asked for
    """

    columns: Array
    targets: Array
    matrix: Array
    sums: Array


class Search(NamedTuple):
    """Memory of a thread's searches.

    :ivar distances: (n), of the dtype of distances
    :ivar reached: (n + 1) vertices in the order in which they were reached
    :ivar heads: first vertex of each bucket, or -1
    :ivar occupied: bits of buckets that have vertices
    :ivar following: (n) next vertex in the same bucket, or -1
    :ivar previous: (n) vertex before it in the same bucket, FIRST, STACKED or IDLE
    :ivar heap: (n + m + 1) vertices of the stack or heap. In a heap a vertex may occur several times, but
        its arcs add one entry each at most
    :ivar keys: (n + m + 1) their distances, in a heap
    :ivar far: distance of vertices that are not reached
    :ivar scale: 1 / width of buckets, a power of two
    """

    distances: Array
    reached: Array
    heads: Array
    occupied: Array
    following: Array
    previous: Array
    heap: Array
    keys: Array
    far: Any
    scale: float


def bucket_scale(graph: Graph) -> float:
    """Return 1 / width of buckets, found once per graph."""
    return float(graph.cached("buckets of distances", lambda: _find_bucket_scale(graph)))


def _find_bucket_scale(graph: Graph) -> float:
    weights = graph.weights
    assert weights is not None
    used = weights[(weights > 0) & (weights < np.inf)]
    if len(used) == 0:
        return 1.0
    largest = float(used.max())
    mean = float((used / largest).mean()) * largest
    width, _ = bucket_width(mean / _MEAN_SHARE, largest)
    return 1 / width


def make_search(query: DistanceQuery) -> Search:
    """Return a thread's memory for a query."""
    graph, dtype = query.rows, query.dtype
    n, ids = graph.vertex_count, graph.targets.dtype
    buckets, room, scale = 0, 0, 1.0
    if query.weighted:
        buckets, room, scale = BUCKETS, n + graph.arc_count + 1, bucket_scale(graph)
    far = dtype.type(query.unreached)
    return Search(
        distances=np.full(n, far),
        reached=np.empty(n + 1, ids),
        heads=np.full(buckets, -1),
        occupied=np.zeros(buckets // 64, np.int64),
        following=np.empty(n if query.weighted else 0, ids),
        previous=np.full(n if query.weighted else 0, IDLE, ids),
        heap=np.empty(room, ids),
        keys=np.empty(room, dtype),
        far=far,
        scale=scale,
    )


def search_bytes(query: DistanceQuery) -> int:
    """Return the size of a thread's memory."""
    graph = query.rows
    ids, number = graph.targets.dtype.itemsize, query.dtype.itemsize
    nbytes = graph.vertex_count * (number + ids)
    if query.weighted:
        nbytes += graph.vertex_count * 2 * ids + 9 * BUCKETS
        nbytes += (graph.vertex_count + graph.arc_count + 1) * (ids + number)
    return nbytes


def _sum_of_floats(distance: Any, weight: Any) -> Any:
    return distance + weight


def _sum_of_integers(distance: Any, weight: Any) -> Any:
    return distance + weight if weight <= FARTHEST - distance else FARTHEST


_sum: Any = _sum_of_floats  # bound by the driver


def _first_bucket(occupied: Any, bucket: Any) -> Any:
    """Return the first bucket from ``bucket`` on, in the order of the ring, that may have entries."""
    place = bucket & (64 * occupied.size - 1)
    base = bucket - (place & 63)
    word = place >> 6
    bits = (occupied[_at(word)] >> (place & 63)) << (place & 63)
    while bits == 0:
        word = (word + 1) & (occupied.size - 1)
        base += 64
        bits = occupied[_at(word)]
    return base + np.int64(_lowest_bit(bits))


def _set_head(heads: Any, occupied: Any, at: Any, vertex: Any) -> None:
    """Set the first vertex of a bucket; -1 empties it."""
    heads[_at(at)] = vertex
    bit = np.int64(1) << (at & 63)
    if vertex >= 0:
        occupied[_at(at >> 6)] |= bit
    else:
        occupied[_at(at >> 6)] &= ~bit


def _find_lengths(
    control: Any, offsets: Any, targets: Any, weights: Any, source: Any, limit: Any, search: Any,
    records: Any, tally: Any,
) -> int:  # fmt: skip
    """Find the distances up to a limit; return the number of vertices reached, or ABORTED.

    Ends early when the distances of all columns are final, if columns are some of the vertices and sums are
    not asked for; those of other vertices are not final then.
    """
    distances = search.distances
    reached = search.reached
    heads = search.heads
    occupied = search.occupied
    following = search.following
    previous = search.previous
    heap = search.heap
    keys = search.keys
    far = search.far
    scale = search.scale
    ring = heads.size - 1
    columns = records.columns
    distances[_at(source)] = 0
    reached[0] = source
    tail = 1
    heap[0] = source
    size = 1  # of the stack or heap
    is_heap = False
    budget = np.int64(_LEAST_BUDGET)
    bucket = np.int64(0)
    last = np.int64(1) << 62  # bucket after which all columns are final
    left = np.int64(-1)  # columns that were not reached
    if columns.size > 0 and records.matrix.size > 0:
        left = np.int64(records.targets.size)
        left -= columns[_at(source)] >= 0
    waiting = 0  # vertices in buckets
    visits = 0
    arcs = np.int64(0)
    while True:
        while size > 0:
            size -= 1
            if is_heap:
                v = np.int64(heap[0])
                is_old = keys[0] != distances[_at(v)]
                sift_down(keys, heap, size)
                if is_old:
                    continue
            else:
                v = np.int64(heap[_at(size)])
                budget -= 1
            previous[_at(v)] = IDLE
            distance = distances[_at(v)]
            visits += 1
            if visits & 1023 == 0 and load_acquire(control, ABORT) != 0:
                return ABORTED
            arcs += offsets[_at(v + 1)] - offsets[_at(v)]
            for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
                u = np.int64(targets[_at(arc)])
                length = _sum(distance, weights[_at(arc)])
                before = distances[_at(u)]
                if length >= before or length > limit:
                    continue
                distances[_at(u)] = length
                place = np.int64(length * scale)
                state = np.int64(previous[_at(u)])
                if before == far:
                    reached[_at(tail)] = u
                    tail += 1
                    budget += _BUDGET
                    if columns.size > 0:
                        left -= columns[_at(u)] >= 0
                elif state >= FIRST:
                    at = np.int64(before * scale)
                    if at == place:
                        continue
                    after = np.int64(following[_at(u)])
                    if after >= 0:
                        previous[_at(after)] = state
                    if state >= 0:
                        following[_at(state)] = after
                    else:
                        _set_head(heads, occupied, at & ring, after)
                    waiting -= 1
                if place == bucket:
                    if is_heap:
                        sift_up(keys, heap, size, length, u)
                        size += 1
                    elif state != STACKED:
                        heap[_at(size)] = u
                        size += 1
                    previous[_at(u)] = STACKED
                    continue
                prefetch(targets, offsets[_at(u)])  # read soon
                after = heads[_at(place & ring)]
                following[_at(u)] = after
                previous[_at(u)] = FIRST
                if after >= 0:
                    previous[_at(after)] = u
                _set_head(heads, occupied, place & ring, u)
                waiting += 1
            if budget < 0 and not is_heap:
                is_heap = True
                count = size
                size = 0
                for i in range(count):
                    u = np.int64(heap[_at(i)])
                    sift_up(keys, heap, size, distances[_at(u)], u)
                    size += 1
        if left == 0:
            left = np.int64(-1)
            last = np.int64(0)
            for column in range(records.targets.size):
                length = distances[_at(records.targets[_at(column)])]
                last = max(last, np.int64(length * scale))
        if waiting == 0 or bucket >= last:
            break
        bucket = _first_bucket(occupied, bucket + 1)
        is_heap = False
        budget = np.int64(_LEAST_BUDGET)
        u = heads[_at(bucket & ring)]
        _set_head(heads, occupied, bucket & ring, np.int64(-1))
        while u >= 0:
            waiting -= 1
            heap[_at(size)] = u
            size += 1
            previous[_at(u)] = STACKED
            budget += _BUDGET
            u = np.int64(following[_at(u)])
    tally[1] += arcs
    for i in range(occupied.size):
        occupied[_at(i)] = 0
    if waiting > 0:
        for i in range(heads.size):
            heads[_at(i)] = -1
        for i in range(tail):
            previous[_at(reached[_at(i)])] = IDLE
    return tail


def _find_hops(
    control: Any, offsets: Any, targets: Any, weights: Any, source: Any, limit: Any, search: Any,
    records: Any, tally: Any,
) -> int:  # fmt: skip
    """Find distances in arcs; otherwise as :func:`_find_lengths`."""
    distances = search.distances
    reached = search.reached
    far = search.far
    columns = records.columns
    distances[_at(source)] = 0
    reached[0] = source
    tail = 1
    left = np.int64(-1)
    if columns.size > 0 and records.matrix.size > 0:
        left = np.int64(records.targets.size)
        left -= columns[_at(source)] >= 0
    head = 0
    arcs = np.int64(0)
    while head < tail and left != 0:
        v = np.int64(reached[_at(head)])
        head += 1
        if head & 1023 == 0 and load_acquire(control, ABORT) != 0:
            return ABORTED
        distance = distances[_at(v)] + 1
        if distance > limit:
            break
        arcs += offsets[_at(v + 1)] - offsets[_at(v)]
        for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
            u = np.int64(targets[_at(arc)])
            if distances[_at(u)] == far:
                distances[_at(u)] = distance
                reached[_at(tail)] = u
                tail += 1
                if columns.size > 0:
                    left -= columns[_at(u)] >= 0
    tally[1] += arcs
    return tail


_find: Any = _find_lengths  # bound by the driver


def _add_floats(distances: Any, reached: Any, tail: int, columns: Any, sums: Any, row: Any) -> None:
    """Sum the distances of columns, in the order in which they were reached."""
    count = 0
    total = 0.0
    largest = 0.0
    reciprocals = 0.0
    for i in range(tail):
        v = reached[_at(i)]
        if columns.size > 0 and columns[_at(v)] < 0:
            continue
        distance = distances[_at(v)]
        count += 1
        total += distance
        largest = max(largest, distance)
        if distance > 0:
            reciprocals += 1.0 / distance
    sums[_at(row), _at(COUNT)] = count
    sums[_at(row), _at(TOTAL)] = total
    sums[_at(row), _at(LARGEST)] = largest
    sums[_at(row), _at(RECIPROCALS)] = reciprocals


def _add_integers(
    distances: Any, reached: Any, tail: int, columns: Any, sums: Any, row: Any
) -> None:
    """Sum the distances of columns; the total is that of two integers, below 2^32 and above."""
    count = 0
    low = np.int64(0)
    high = np.int64(0)
    largest = np.int64(0)
    reciprocals = 0.0
    for i in range(tail):
        v = reached[_at(i)]
        if columns.size > 0 and columns[_at(v)] < 0:
            continue
        distance = distances[_at(v)]
        count += 1
        low += distance & 0xFFFFFFFF
        high += distance >> 32
        largest = max(largest, distance)
        if distance > 0:
            reciprocals += 1.0 / distance
    high += low >> 32
    sums[_at(row), _at(COUNT)] = count
    sums[_at(row), _at(TOTAL)] = high * 4294967296.0 + (low & 0xFFFFFFFF)
    sums[_at(row), _at(LARGEST)] = np.inf if largest == FARTHEST else largest
    sums[_at(row), _at(RECIPROCALS)] = reciprocals


def _add_hops(distances: Any, reached: Any, tail: int, columns: Any, sums: Any, row: Any) -> None:
    """Sum the distances of columns, as bits.py does."""
    level = np.int64(0)
    reciprocal = np.int64(0)
    fraction = np.int64(0)
    for i in range(tail):
        v = reached[_at(i)]
        if columns.size > 0 and columns[_at(v)] < 0:
            continue
        distance = np.int64(distances[_at(v)])
        if distance != level:
            level = distance
            reciprocal, fraction = reciprocal_parts(level)
        sums[_at(row), _at(COUNT)] += 1
        sums[_at(row), _at(TOTAL)] += level
        sums[_at(row), _at(LARGEST)] = level
        sums[_at(row), _at(RECIPROCALS)] += reciprocal
        sums[_at(row), _at(FRACTIONS)] += fraction


_add: Any = _add_floats  # bound by the driver


@kernel
def _search(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, weights: Any, sources: Any,
    limit: Any, search: Any, records: Any, tally: Any,
) -> int:  # fmt: skip
    """Search from one source after the other until all are claimed.

    :param tally: of the thread: vertices reached, arcs visited
    """
    distances = search.distances
    reached = search.reached
    far = search.far
    matrix = records.matrix
    while True:
        row = fetch_add(control, CURSOR, 1)
        if row >= sources.size:
            return 0
        source = np.int64(sources[_at(row)])
        tail = _find(
            control, offsets, targets, weights, source, limit, search, records, tally
        )  # fmt: skip
        if tail < 0:
            return int(tail)
        if records.sums.size > 0:
            _add(distances, reached, tail, records.columns, records.sums, row)
        elif records.targets.size > 0:
            for column in range(records.targets.size):
                vertex = records.targets[_at(column)]
                matrix[_at(row), _at(column)] = distances[_at(vertex)]
        else:
            for v in range(distances.size):
                matrix[_at(row), _at(v)] = distances[_at(v)]
        tally[0] += tail
        for i in range(tail):
            distances[_at(reached[_at(i)])] = far


KERNELS = {
    "hops": _search.bind(_find=_find_hops, _add=_add_hops),
    "i": _search.bind(_find=_find_lengths, _sum=_sum_of_integers, _add=_add_integers),
    "f": _search.bind(_find=_find_lengths, _sum=_sum_of_floats, _add=_add_floats),
}
"""Kernels by the kind of distances: numbers of arcs, or the kind of the dtype of lengths."""
