"""How many shortest paths lead from a source to every vertex, by weights: half a search of Brandes'.

Dijkstra's algorithm. The vertices that wait lie in a ring of buckets by distance; those of the bucket that
is being worked on, in a heap (B. Cherkassky, A. Goldberg, C. Silverstein, Buckets, heaps, lists, and
monotone priority queues, SIAM Journal on Computing 28 (1999): heap-on-top). Buckets are no wider than the
smallest weight where the ring is long enough for that: then no vertex of a bucket is reached from another
of it, any order within it will do, and the heap is a stack.

An arc that leads to its head on a way no longer than those known by then is *kept*, with the length of that
way. Only these are looked at again when paths are counted: those whose length turned out to be the distance
of their heads are the arcs of shortest paths, and counts go along them in the order of the queue. What lies
in buckets are arcs kept; where a shorter way has come before, the head is closed by then.

Weights are positive, and a sum that is no larger than what was added to ends the search: so the order by
distance is an order along shortest paths, too. The width of buckets is a power of two: dividing by it is
exact, and rounding, which keeps the order of numbers, brings no sum below a multiple of it.

Between two searches all vertices are far away, and all buckets are empty.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from godwit.algorithms.betweenness.path_counts import ABORTED, LARGEST_COUNT, OVERFLOW, add_wide
from godwit.algorithms.paths.weights import check_weights, named_arc
from godwit.dtypes import Array
from godwit.errors import InputError, ValueOverflowError
from godwit.graph.csr import Graph
from godwit.runtime.cpu.atomics import load_acquire, prefetch
from godwit.runtime.cpu.team import ABORT

_BUCKETS = 4096
# Of the least width, the reciprocal is a number, too.
_LEAST_EXPONENT = -1000

# Searches that reach less than this part of the vertices tidy up vertex by vertex.
_FEW_SHARE = 16

LOST = -3
"""What a search returns where the weight of an arc is lost in a sum; ``lost`` has its ends."""

# Bound by the driver: counts with exponents; shares of arcs.
_WIDE = False
_EDGES = False

# An index known not to be negative: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64


class WeightedSearch(NamedTuple):
    """Memory of a thread's searches, which compiled code takes as it is.

    :ivar weights: (m) the graph's
    :ivar distances: (n) int64, or float64 where weights are floating-point numbers
    :ivar lengths: (m + 1) of the path that each arc kept ends
    :ivar links: (m + 1) of each arc kept, the next in its bucket, or -1
    :ivar heads: the first of each bucket, or -1
    :ivar keys: (m + 1) distances of the entries of the heap, if it is one
    :ivar entries: (m + 1) their vertices
    :ivar lost: (2) the ends of an arc whose weight was lost
    :ivar far: the distance of what was not reached
    :ivar scale: 1 / width of buckets
    :ivar ordered: whether the order within a bucket matters
    """

    weights: Array
    distances: Array
    lengths: Array
    links: Array
    heads: Array
    keys: Array
    entries: Array
    lost: Array
    far: Any
    scale: float
    ordered: bool


def weighted_search(graph: Graph) -> WeightedSearch:
    """A thread's memory for a graph with good weights (:func:`check_lengths`)."""
    weights = graph.weights
    assert weights is not None
    integral = weights.dtype.kind in "iu"
    far: Any = np.int64(np.iinfo(np.int64).max) if integral else np.float64(np.inf)
    width, ordered = _bucket_width(*check_lengths(graph))
    room = graph.arc_count + 1
    return WeightedSearch(
        weights=weights,
        distances=np.full(graph.vertex_count, far),
        lengths=np.empty(room, far.dtype),
        links=np.empty(room, np.int64),
        heads=np.full(_BUCKETS, -1),
        keys=np.empty(room if ordered else 1, far.dtype),
        entries=np.empty(room, graph.targets.dtype),
        lost=np.zeros(2, np.int64),
        far=far,
        scale=1 / width,
        ordered=ordered,
    )


def search_bytes(graph: Graph) -> int:
    """Of a thread's memory."""
    room = graph.arc_count + 1
    _, ordered = _bucket_width(*check_lengths(graph))
    keys = room if ordered else 1
    each = 2 * 8 + graph.targets.dtype.itemsize
    return 8 * (graph.vertex_count + keys + _BUCKETS) + room * each


def clear_search(search: WeightedSearch) -> None:
    """Make ready for the next, after one that was given up."""
    search.distances.fill(search.far)
    search.heads.fill(-1)


def _bucket_width(smallest: float, largest: float) -> tuple[float, bool]:
    """The width of buckets for weights of this range, and whether it exceeds the smallest.

    The ring holds the bucket that is worked on, those of sums with all weights, and two for roundings.
    """
    exponent = math.frexp(smallest)[1] - 1
    least = math.frexp(largest)[1] - math.frexp(_BUCKETS - 3)[1] + 1
    least = max(least, _LEAST_EXPONENT)
    return 2.0 ** max(exponent, least), least > exponent


def check_lengths(graph: Graph) -> tuple[float, float]:
    """The smallest and the largest weight, after a look at all; looked up once per graph.

    :raises InputError: a weight is not positive or not finite (names the arc)
    :raises ValueOverflowError: sums of integer weights could exceed 64 bits
    """
    found: tuple[float, float] = graph.cached("positive lengths", lambda: _look_at(graph))
    return found


def _look_at(graph: Graph) -> tuple[float, float]:
    bound = check_weights(graph)  # negative, NaN
    weights, n = graph.weights, graph.vertex_count
    if weights is None or len(weights) == 0:
        return 1.0, 1.0
    smallest, largest = weights.min(), weights.max()
    if smallest == 0:
        raise InputError(
            "betweenness by weights needs weights above 0, as there are endlessly many ways to stay where "
            f"one is; {named_arc(graph, int(np.argmin(weights)))} has weight {smallest}: give it a small "
            "weight, or leave it out, or count arcs (weighted=False)"
        )
    if largest == np.inf:
        raise InputError(
            "betweenness by weights needs weights that are finite; "
            f"{named_arc(graph, int(np.argmax(weights)))} has weight {largest}: leave it out"
        )
    if weights.dtype.kind in "iu":
        if bound * n >= 2**63 - 1:
            raise ValueOverflowError(
                f"weights up to {largest} on {n} vertices could overflow 64-bit distances; give the "
                "weights as float64"
            )
    elif math.isinf(float(largest) * n):
        raise InputError(
            f"weights up to {largest:g} on {n} vertices could overflow distances; divide them by "
            f"{largest:g}"
        )
    least = float(smallest)
    if weights.dtype.kind in "iu" and least > int(
        smallest
    ):  # rounded up, so buckets would be too wide
        least = math.nextafter(least, 0)
    return least, float(largest)


def lost_weight(graph: Graph, tail: int, head: int) -> InputError:
    """What to raise where a search returns ``LOST``."""
    assert graph.weights is not None
    begin, end = graph.offsets[tail], graph.offsets[tail + 1]
    weights = np.where(graph.targets[begin:end] == head, graph.weights[begin:end], np.inf)
    arc = int(begin + np.argmin(weights))
    return InputError(
        f"weights differ too much in size: {named_arc(graph, arc)} has weight {graph.weights[arc]:g}, "
        "which float64 loses when it is added to the distance of where the arc begins; give it a larger "
        "weight, or count arcs (weighted=False)"
    )


def count_weighted_paths(
    control: Any, offsets: Any, targets: Any, source: Any, closed: Any, counts: Any,
    exponents: Any, queue: Any, ends: Any, successors: Any, places: Any, arcs: Any, search: Any,
) -> int:  # fmt: skip
    """Search from a source; takes, leaves and returns what :func:`path_counts.count_paths` does."""
    reached = _find_distances(
        control, offsets, targets, source, closed, queue, ends, successors, arcs, search
    )
    if reached < 0:
        return reached
    found = _count(
        control, reached, search.distances, search.lengths, counts, exponents, queue, ends,
        successors, places, arcs,
    )  # fmt: skip
    distances = search.distances
    if reached < distances.size // _FEW_SHARE:
        for i in range(reached):
            distances[_at(queue[_at(i)])] = search.far
    else:
        for v in range(distances.size):
            distances[_at(v)] = search.far
    return found


def _find_distances(
    control: Any, offsets: Any, targets: Any, source: Any, closed: Any, queue: Any, ends: Any,
    successors: Any, arcs: Any, search: Any,
) -> int:  # fmt: skip
    """Distances, and what is reached, in the order of distance, in the queue.

    The arcs kept of ``queue[i]`` end at ``ends[i]``, their heads are in ``successors``.
    """
    weights = search.weights
    distances = search.distances
    lengths = search.lengths
    links = search.links
    heads = search.heads
    keys = search.keys
    entries = search.entries
    scale = search.scale
    ordered = search.ordered
    ring = heads.size - 1
    distances[_at(source)] = 0
    keys[0] = 0
    entries[0] = source
    size = 1  # of the heap
    bucket = np.int64(0)
    waiting = 0
    tail = 0
    kept = 0
    while True:
        while size > 0:
            size -= 1
            if ordered:
                v = np.int64(entries[0])
                _sift_down(keys, entries, size)
            else:
                v = np.int64(entries[_at(size)])
            if (closed[_at(v >> 6)] >> (v & 63)) & 1 != 0:
                continue
            if tail & 1023 == 0 and load_acquire(control, ABORT) != 0:
                return ABORTED
            closed[_at(v >> 6)] |= np.int64(1) << (v & 63)
            queue[_at(tail)] = v
            distance = distances[_at(v)]
            first = kept
            for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
                u = targets[_at(arc)]
                length = distance + weights[_at(arc)]
                successors[_at(kept)] = u
                lengths[_at(kept)] = length
                if _EDGES:
                    arcs[_at(kept)] = arc
                kept += length <= distances[_at(u)]
            for j in range(first, kept):
                u = successors[_at(j)]
                length = lengths[_at(j)]
                if length <= distance:
                    if u != v:
                        search.lost[0] = v
                        search.lost[1] = u
                        return LOST
                    lengths[_at(j)] = search.far  # of no shortest path
                if length < distances[_at(u)]:
                    distances[_at(u)] = length
                    place = np.int64(length * scale)
                    if place == bucket:
                        _sift_up(keys, entries, size, length, u)
                        size += 1
                    else:
                        row = offsets[_at(u)]  # will be read soon
                        prefetch(targets, row)
                        prefetch(weights, row)
                        links[_at(j)] = heads[_at(place & ring)]
                        heads[_at(place & ring)] = j
                        waiting += 1
            ends[_at(tail)] = kept
            tail += 1
        if waiting == 0:
            return tail
        bucket += 1
        while heads[_at(bucket & ring)] < 0:
            bucket += 1
        j = heads[_at(bucket & ring)]
        heads[_at(bucket & ring)] = -1
        while j >= 0:
            waiting -= 1
            u = np.int64(successors[_at(j)])
            if (closed[_at(u >> 6)] >> (u & 63)) & 1 == 0:
                if ordered:
                    _sift_up(keys, entries, size, lengths[_at(j)], u)
                else:
                    entries[_at(size)] = u
                size += 1
            j = links[_at(j)]


def _sift_up(keys: Any, entries: Any, size: Any, key: Any, entry: Any) -> None:
    """Add to a heap of this size, of which each entry has up to four below it."""
    i = size
    while i > 0:
        above = (i - 1) >> 2
        if keys[_at(above)] <= key:
            break
        keys[_at(i)] = keys[_at(above)]
        entries[_at(i)] = entries[_at(above)]
        i = above
    keys[_at(i)] = key
    entries[_at(i)] = entry


def _sift_down(keys: Any, entries: Any, size: Any) -> None:
    """Take the first from a heap; this size is left."""
    key = keys[_at(size)]
    entry = entries[_at(size)]
    i = 0
    while True:
        below = 4 * i + 1
        if below >= size:
            break
        least = below
        for j in range(below + 1, min(below + 4, size)):
            if keys[_at(j)] < keys[_at(least)]:
                least = j
        if keys[_at(least)] >= key:
            break
        keys[_at(i)] = keys[_at(least)]
        entries[_at(i)] = entries[_at(least)]
        i = least
    keys[_at(i)] = key
    entries[_at(i)] = entry


def _count(
    control: Any, reached: int, distances: Any, lengths: Any, counts: Any, exponents: Any,
    queue: Any, ends: Any, successors: Any, places: Any, arcs: Any,
) -> int:  # fmt: skip
    """Counts of paths; of the arcs kept, those of shortest paths remain. Returns what was reached."""
    source = queue[0]
    counts[_at(source)] = 1.0
    if _WIDE:
        exponents[_at(source)] = 0
    begin = 0
    kept = 0
    for i in range(reached):
        if i & 1023 == 0 and load_acquire(control, ABORT) != 0:
            return ABORTED
        v = queue[_at(i)]
        count = counts[_at(v)]
        if not _WIDE and count > LARGEST_COUNT:
            return OVERFLOW
        first = kept
        end = ends[_at(i)]
        for j in range(begin, end):
            u = successors[_at(j)]
            successors[_at(kept)] = u
            if _EDGES:
                arcs[_at(kept)] = arcs[_at(j)]
            kept += lengths[_at(j)] == distances[_at(u)]
        for j in range(first, kept):
            u = successors[_at(j)]
            if _WIDE:
                add_wide(counts, exponents, u, count, exponents[_at(v)])
            else:
                counts[_at(u)] += count
        ends[_at(i)] = kept
        if _EDGES:
            places[_at(v)] = i
        begin = end
    return reached
