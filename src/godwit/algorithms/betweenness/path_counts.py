"""Numbers of shortest paths from a source to every vertex, by arcs or by weights: the forward half of
Brandes.

Both searches write the successors of each vertex (heads of arcs that shortest paths take) in the order of
the queue, so that the backward half reads one list from its end and needs no distances.

*By arcs*: breadth-first. Both inner loops are free of branches: an arc is written to the list, whose end
moves on only if its head is *open* (not in this level or an earlier one); a head is written to the queue,
whose end moves on only if no path to it was counted before.

*By weights*: Dijkstra's algorithm. Open vertices are in a ring of buckets by distance, those of the current
bucket in a heap (B. Cherkassky, A. Goldberg, C. Silverstein, Buckets, heaps, lists, and monotone priority
queues, SIAM Journal on Computing 28 (1999): heap-on-top). Buckets are no wider than the smallest weight
where the ring is long enough: then no vertex of a bucket is reached from another one in it, any order
within it is right, and the heap is a stack.

An arc that leads to its head on a way no longer than those known by then is *kept*, with the length of that
way. Only kept arcs are read again when paths are counted: those whose length is the final distance of their
heads are the arcs of shortest paths. Buckets hold kept arcs; if a shorter way came before, the head is
closed by then.

Weights are positive, and a sum that is no larger than what was added to ends the search; so the order by
distance is an order along shortest paths. The width of buckets is a power of two: dividing by it is exact,
and rounding is monotone, so no sum falls below a multiple of it.

Counts of paths grow exponentially. Where one exceeds 2^900, everything is repeated with counts of the form
count * 2^(256 exponent), 1 <= count < 2^256 (``_WIDE``); addends and quotients are within a few exponents,
or negligible.

Between two searches by weights all distances are infinite, and all buckets are empty.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from godwit.algorithms.paths.buckets import BUCKETS, bucket_width, sift_down, sift_up
from godwit.algorithms.paths.weights import check_weights, named_arc, unsuitable_weight
from godwit.dtypes import Array
from godwit.errors import InputError, ValueOverflowError
from godwit.graph.csr import Graph
from godwit.runtime.cpu.atomics import load_acquire, prefetch
from godwit.runtime.cpu.team import ABORT

LARGEST_COUNT = 2.0**900
_RADIX = 2.0**256

# Returned by a search instead of the number of vertices reached.
ABORTED = -1
OVERFLOW = -2
LOST = -3
"""The weight of an arc is lost in a sum; ``WeightedSearch.lost`` has its ends."""

_ROW_AHEAD = 12
"""Rows are prefetched so far ahead in the queue."""
# Searches that reach a smaller part of the vertices clean up vertex by vertex.
_FEW_SHARE = 16

# Bound by the driver: counts with exponents; sums of arcs.
_WIDE = False
_EDGES = False

# Unsigned index: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64


def raised(count: Any, exponent: Any, wanted: Any) -> Any:
    """Return the mantissa of a wide count for a larger exponent; 0 if the exponents are far apart."""
    while exponent < wanted and count != 0.0:
        count *= 1.0 / _RADIX
        exponent += 1
        if wanted - exponent > 4:
            return 0.0
    return count


def add_wide(counts: Any, exponents: Any, u: Any, count: Any, exponent: Any) -> None:
    """Add a wide count to that of u."""
    here = counts[_at(u)]
    if here == 0.0:
        counts[_at(u)] = count
        exponents[_at(u)] = exponent
        return
    common = max(exponent, exponents[_at(u)])
    total = raised(here, exponents[_at(u)], common) + raised(count, exponent, common)
    if total >= _RADIX:
        total *= 1.0 / _RADIX
        common += 1
    counts[_at(u)] = total
    exponents[_at(u)] = common


def count_paths(
    control: Any, offsets: Any, targets: Any, source: Any, closed: Any, counts: Any,
    exponents: Any, queue: Any, ends: Any, successors: Any, places: Any, arcs: Any, search: Any,
) -> int:  # fmt: skip
    """Search from a source by arcs; return the number of vertices reached.

    On return they are in ``queue``; the successors of ``queue[i]`` end at ``ends[i]`` in ``successors``;
    with edges, the arcs to them are in ``arcs``, and i in ``places[queue[i]]``. ``closed`` has a bit for
    each vertex reached.

    :param search: unused; memory of a search by weights
    """
    counts[_at(source)] = 1.0
    if _WIDE:
        exponents[_at(source)] = 0
    queue[0] = source
    head = 0
    tail = 1
    kept = 0
    while head < tail:
        end = tail
        for i in range(head, end):
            v = np.int64(queue[_at(i)])
            closed[_at(v >> 6)] |= np.int64(1) << (v & 63)
        for i in range(head, end):
            if i & 1023 == 0 and load_acquire(control, ABORT) != 0:
                return ABORTED
            prefetch(targets, offsets[_at(queue[_at(min(i + _ROW_AHEAD, tail - 1))])])
            v = queue[_at(i)]
            count = counts[_at(v)]
            if not _WIDE and count > LARGEST_COUNT:
                return OVERFLOW
            first = kept
            for arc in range(offsets[_at(v)], offsets[_at(v) + _at(1)]):
                u = targets[_at(arc)]
                successors[_at(kept)] = u
                if _EDGES:
                    arcs[_at(kept)] = arc
                kept += 1 - ((closed[_at(np.int64(u) >> 6)] >> (np.int64(u) & 63)) & 1)
            for j in range(first, kept):
                u = successors[_at(j)]
                before = counts[_at(u)]
                queue[_at(tail)] = u
                tail += before == 0.0
                if _WIDE:
                    add_wide(counts, exponents, u, count, exponents[_at(v)])
                else:
                    counts[_at(u)] = before + count
            ends[_at(i)] = kept
            if _EDGES:
                places[_at(v)] = i
        head = end
    return tail


class WeightedSearch(NamedTuple):
    """Memory of a thread's searches by weights, in a form that compiled code takes.

    :ivar weights: (m) weights of the graph
    :ivar distances: (n) int64, or float64 where weights are floating-point numbers
    :ivar lengths: (m + 1) length of the path that ends with each kept arc
    :ivar links: (m + 1) next kept arc in the same bucket, or -1
    :ivar heads: first kept arc of each bucket, or -1
    :ivar keys: (m + 1) distances of the heap's entries; one element if the heap is a stack
    :ivar entries: (m + 1) vertices of the heap
    :ivar lost: (2) ends of an arc whose weight was lost
    :ivar far: distance of vertices that are not reached
    :ivar scale: 1 / width of buckets
    :ivar ordered: True if the order within a bucket matters
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
    """Return a thread's memory for a graph that has passed :func:`check_lengths`."""
    weights = graph.weights
    assert weights is not None
    integral = weights.dtype.kind in "iu"
    far: Any = np.int64(np.iinfo(np.int64).max) if integral else np.float64(np.inf)
    width, ordered = bucket_width(*check_lengths(graph))
    room = graph.arc_count + 1
    return WeightedSearch(
        weights=weights,
        distances=np.full(graph.vertex_count, far),
        lengths=np.empty(room, far.dtype),
        links=np.empty(room, np.int64),
        heads=np.full(BUCKETS, -1),
        keys=np.empty(room if ordered else 1, far.dtype),
        entries=np.empty(room, graph.targets.dtype),
        lost=np.zeros(2, np.int64),
        far=far,
        scale=1 / width,
        ordered=ordered,
    )


def search_bytes(graph: Graph) -> int:
    """Return the size of a thread's memory."""
    room = graph.arc_count + 1
    _, ordered = bucket_width(*check_lengths(graph))
    keys = room if ordered else 1
    each = 2 * 8 + graph.targets.dtype.itemsize
    return 8 * (graph.vertex_count + keys + BUCKETS) + room * each


def clear_search(search: WeightedSearch) -> None:
    """Reset after an aborted search."""
    search.distances.fill(search.far)
    search.heads.fill(-1)


def check_lengths(graph: Graph) -> tuple[float, float]:
    """Check all weights; return the smallest and the largest. Done once per graph.

    :raises InputError: a weight is not positive or not finite (names the arc)
    :raises ValueOverflowError: sums of integer weights could exceed 64 bits
    """
    bounds: tuple[float, float] = graph.cached("positive lengths", lambda: _length_bounds(graph))
    return bounds


def _length_bounds(graph: Graph) -> tuple[float, float]:
    bound = check_weights(graph)  # negative, NaN
    weights, n = graph.weights, graph.vertex_count
    if weights is None or len(weights) == 0:
        return 1.0, 1.0
    smallest, largest = weights.min(), weights.max()
    if smallest == 0:
        raise unsuitable_weight(
            graph,
            int(np.argmin(weights)),
            "betweenness by weights needs weights above 0, as there are endlessly many ways to stay where "
            "one is",
        )
    if largest == np.inf:
        raise unsuitable_weight(
            graph, int(np.argmax(weights)), "betweenness by weights needs weights that are finite"
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
    """Return the error for a search that returned ``LOST``."""
    assert graph.weights is not None
    begin, end = graph.offsets[tail], graph.offsets[tail + 1]
    weights = np.where(graph.targets[begin:end] == head, graph.weights[begin:end], np.inf)
    arc = int(begin + np.argmin(weights))
    return InputError(
        f"weights differ too much in size: {named_arc(graph, arc)} has weight {graph.weights[arc]:g}, "
        "which float64 loses when it is added to the distance of where the arc begins; give it a larger "
        "weight, or count arcs (weighted=False, command line: --ignore-weights)"
    )


def count_weighted_paths(
    control: Any, offsets: Any, targets: Any, source: Any, closed: Any, counts: Any,
    exponents: Any, queue: Any, ends: Any, successors: Any, places: Any, arcs: Any, search: Any,
) -> int:  # fmt: skip
    """Search from a source by weights; as :func:`count_paths`."""
    reached = _find_distances(
        control, offsets, targets, source, closed, queue, ends, successors, arcs, search
    )
    if reached < 0:
        return reached
    outcome = _count(
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
    return outcome


def _find_distances(
    control: Any, offsets: Any, targets: Any, source: Any, closed: Any, queue: Any, ends: Any,
    successors: Any, arcs: Any, search: Any,
) -> int:  # fmt: skip
    """Find distances; return the number of vertices reached, in ``queue`` in the order of distance.

    The kept arcs of ``queue[i]`` end at ``ends[i]``; their heads are in ``successors``.
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
                sift_down(keys, entries, size)
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
                    lengths[_at(j)] = search.far  # on no shortest path
                if length < distances[_at(u)]:
                    distances[_at(u)] = length
                    place = np.int64(length * scale)
                    if place == bucket:
                        sift_up(keys, entries, size, length, u)
                        size += 1
                    else:
                        row = offsets[_at(u)]  # read soon
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
                    sift_up(keys, entries, size, lengths[_at(j)], u)
                else:
                    entries[_at(size)] = u
                size += 1
            j = links[_at(j)]


def _count(
    control: Any, reached: int, distances: Any, lengths: Any, counts: Any, exponents: Any,
    queue: Any, ends: Any, successors: Any, places: Any, arcs: Any,
) -> int:  # fmt: skip
    """Count paths, and drop kept arcs that are on no shortest path; return ``reached``."""
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
