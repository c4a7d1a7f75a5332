"""Contraction of a graph's vertices, from which distances from many sources follow by sweeps.

Vertices of few neighbours are contracted one after another, fewest neighbours first: shortcuts join all
their neighbours, which keeps all distances between the others (R. Geisberger, P. Sanders, D. Schultes,
D. Delling, Contraction hierarchies, WEA 2008, without searches for witnesses). In road networks a few
percent are left, the *core*. Each contracted vertex keeps the arcs to and from the neighbours that it had.

Then distances from a source are found as in PHAST (D. Delling, A. Goldberg, A. Nowatzyk, R. Werneck, PHAST:
hardware-accelerated shortest path trees, IPDPS 2011): up from the source along kept arcs, in the core until
nothing changes, and down to all contracted vertices, each from the neighbours that it kept, in the reverse
order. *Levels* are the steps of the way down: a vertex has a greater level than all that it kept; the core
has level 0.

Lengths are integers of 32 bits: sums of integers do not depend on how shortcuts group them, as sums of
floating-point numbers do. Sums saturate at ``FAR``; whoever finds it searches in another way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.algorithms.distances.query import DistanceQuery
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.runtime.cpu.atomics import load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, run_team
from godwit.runtime.polling import RunPoll

ABSENT = 2**32 - 1
"""Length where there is no arc, or no path."""
FAR = ABSENT - 1
"""Length, or distance, that has no room in 32 bits."""

_MANY_SOURCES = 512
"""Sources from which contracting a graph pays, which takes about a microsecond for each vertex."""
_MOST_NEIGHBOURS = 64
"""Neighbours of a vertex that is contracted, at most."""
_FEW_NEIGHBOURS = 8
_MOST_LEFT = 4
"""Contraction stops if no vertex has few neighbours while one vertex in this many is left."""
_LARGEST_DEGREE = 64
"""Arcs of a vertex, at most, in graphs that are contracted: their neighbours are searched in lists."""
_PAIRS_EACH = 64
"""Pairs of neighbours that are joined for each contracted vertex, on average and at most."""
_LEAST_GAIN = 8
"""The core must have fewer vertices than the graph, by this factor."""
_LONGEST_LIST = 1 << 16
_ROOM = 3
"""Room for kept arcs and shortcuts, in terms of arcs."""
_MORE_ROOM = 1 << 16
_FEWEST_NEIGHBOURS = 2
"""Vertices of up to so many neighbours are contracted in turn, so that paths have few levels."""


@dataclass
class Contraction:
    """A contracted graph. Vertices have positions: those of the core first, then level by level.

    :ivar position: int64 (n) position of each vertex
    :ivar levels: int64 (levels + 1) first position of each level, and n
    :ivar offsets: int64 (n + 1) kept arcs of each position; of the core, arcs within it
    :ivar heads: uint32 position of the other end of each; of contracted vertices ascending in each row
    :ivar up: uint32 length of the arc to the other end, or :data:`ABSENT`
    :ivar down: uint32 length of the arc from the other end, or :data:`ABSENT`
    :ivar has_room: False once a distance was found that has no room in 32 bits
    """

    position: Array
    levels: Array
    offsets: Array
    heads: Array
    up: Array
    down: Array
    has_room: bool = True

    @property
    def core_size(self) -> int:
        """Number of vertices of the core."""
        return int(self.levels[1])


def contraction_of(query: DistanceQuery, poll: RunPoll | None = None) -> Contraction | None:
    """Return the contraction of a query's graph, or None if other ways to search are better.

    A graph is contracted when a query has many sources, and then serves for few, too.

    :param poll: called now and then; an exception ends the contraction
    """
    weights = query.graph.weights
    if query.cutoff is not None or (
        query.weighted and weights is not None and weights.dtype.kind not in "iu"
    ):
        return None
    graph = query.rows
    key = ("contraction", query.weighted)
    if key not in graph._cache and len(query.sources) < _MANY_SOURCES:
        return None
    found: Contraction | None = graph.cached(
        key, lambda: contract(graph, weighted=query.weighted, poll=poll)
    )
    return found if found is not None and found.has_room else None


def contract(graph: Graph, *, weighted: bool, poll: RunPoll | None = None) -> Contraction | None:
    """Contract a graph; return None if too many vertices are left.

    :param weighted: lengths of arcs are weights, integers that are not negative; False: all are 1
    :param poll: as of :func:`contraction_of`
    """
    n = graph.vertex_count
    if n == 0 or n >= FAR:
        return None
    degree = graph.out_degree() + np.bincount(graph.targets, minlength=n)
    if degree.max() > 2 * _LARGEST_DEGREE:
        return None
    if weighted and graph.weights is not None:
        lengths = np.minimum(graph.weights.astype(np.uint64), FAR).astype(np.uint32)
    else:
        lengths = np.ones(graph.arc_count, np.uint32)
    rooms = degree + 2
    starts = np.concatenate([[0], np.cumsum(rooms)[:-1]])
    size = _ROOM * int(rooms.sum()) + _MORE_ROOM
    counts = np.zeros(n, np.int64)
    heads, up, down = (np.empty(size, np.uint32) for _ in range(3))
    order = np.empty(n, np.int64)
    lists = (starts, rooms, counts, heads, up, down)
    links = (np.full(n, -1), *np.empty((2, n), np.int64), *np.full((2, _MOST_NEIGHBOURS + 1), -1))
    merged = np.empty((3, _LONGEST_LIST), np.uint32)
    contracted = run_team(
        _contract, graph.offsets, graph.targets, lengths, *lists, order, *links, *merged, threads=1,
        poll=None if poll is None else lambda: poll(0),
    )[0]  # fmt: skip
    if (n - contracted) * _LEAST_GAIN > n:
        return None
    order = order[:contracted]
    level = np.zeros(n, np.int32)
    run_team(_find_levels, order, starts, counts, heads, level, threads=1)
    levels = np.concatenate([[0], np.cumsum(np.bincount(level))])
    # The core in the order of vertices, each level in the reverse order of contraction.
    reverse = np.concatenate([np.flatnonzero(level == 0), order[::-1]])
    by_position = reverse[np.argsort(level[reverse], kind="stable")]
    position = np.empty(n, np.int64)
    position[by_position] = np.arange(n)
    offsets = np.concatenate([[0], np.cumsum(counts[by_position])])
    kept_heads, kept_up, kept_down = np.empty((3, max(1, int(offsets[-1]))), np.uint32)
    kept = (kept_heads, kept_up, kept_down)
    run_team(_lay_out, by_position, position, offsets, *lists, *kept, threads=1)
    return Contraction(position, levels, offsets, kept_heads, kept_up, kept_down)


def _place(heads: Any, up: Any, down: Any, begin: int, counts: Any, v: int, head: int) -> int:
    """Return the place of a head in the list of a vertex, in ascending order; make it if there is none."""
    at: int = begin + counts[v]
    while at > begin and heads[at - 1] >= head:
        at -= 1
    if at == begin + counts[v] or heads[at] != head:
        for k in range(begin + counts[v], at, -1):
            heads[k] = heads[k - 1]
            up[k] = up[k - 1]
            down[k] = down[k - 1]
        counts[v] += 1
        heads[at] = head
        up[at] = np.uint32(ABSENT)
        down[at] = np.uint32(ABSENT)
    return at


def _unlink(before: Any, after: Any, first: Any, last: Any, bucket: int, v: int) -> None:
    """Take a vertex out of its bucket, a list in both directions; -1 ends it."""
    if before[v] >= 0:
        after[before[v]] = after[v]
    else:
        first[bucket] = after[v]
    if after[v] >= 0:
        before[after[v]] = before[v]
    else:
        last[bucket] = before[v]


def _append(before: Any, after: Any, first: Any, last: Any, bucket: int, v: int) -> None:
    """Append a vertex to a bucket."""
    before[v] = last[bucket]
    after[v] = -1
    if last[bucket] >= 0:
        after[last[bucket]] = v
    else:
        first[bucket] = v
    last[bucket] = v


@kernel
def _contract(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, lengths: Any, starts: Any,
    rooms: Any, counts: Any, heads: Any, up: Any, down: Any, order: Any, bucket_of: Any,
    before: Any, after: Any, first: Any, last: Any, merged: Any, merged_up: Any, merged_down: Any,
) -> int:  # fmt: skip
    """Contract vertices, fewest neighbours first, and in turn; return their number.

    :param starts: (n) where the list of a vertex begins: neighbours in ascending order, and lengths to and
        from them
    :param rooms: (n) places of each list; longer lists move to the end
    :param counts: (n) neighbours of each vertex; filled in, as are the lists: 0 at first
    :param order: (n) filled with the vertices that are contracted, in order
    :param bucket_of: (n) -1: no bucket; vertices of equally many neighbours are in a list, the bucket
    :param before: (n) the vertex before each in its bucket
    :param after: (n) the vertex after it
    :param first: first vertex of each bucket, -1 at first
    :param last: last vertex of each bucket, -1 at first
    :param merged: room for the heads of a list, and beside it for lengths
    """
    n = len(starts)
    most = len(first) - 1
    absent = np.uint32(ABSENT)
    for v in range(n):
        for arc in range(offsets[v], offsets[v + 1]):
            u = targets[arc]
            if u == v:
                continue
            at = _place(heads, up, down, starts[v], counts, v, u)
            up[at] = min(up[at], lengths[arc])
            at = _place(heads, up, down, starts[u], counts, u, v)
            down[at] = min(down[at], lengths[arc])
    for v in range(n):
        if counts[v] <= most:
            bucket_of[v] = max(counts[v], min(most, _FEWEST_NEIGHBOURS))
            _append(before, after, first, last, bucket_of[v], v)
    end = starts[n - 1] + rooms[n - 1]
    contracted = 0
    pairs = 0
    bucket = 0
    while bucket <= most and load_acquire(control, ABORT) == 0:
        v = first[bucket]
        if v < 0:
            if bucket == _FEW_NEIGHBOURS and (n - contracted) * _MOST_LEFT > n:
                break
            bucket += 1
            continue
        own, count = starts[v], counts[v]
        pairs += count * (count - 1)
        needed = 0
        longest = 0
        for i in range(own, own + count):
            needed += 2 * (counts[heads[i]] + count)
            longest = max(longest, counts[heads[i]] + count)
        # What does not fit, or costs too much, is left in the core.
        if (
            pairs > _PAIRS_EACH * (contracted + 1024)
            or end + needed > len(heads)
            or longest > len(merged)
        ):
            break
        _unlink(before, after, first, last, bucket, v)
        bucket_of[v] = -1
        order[contracted] = v
        contracted += 1
        for i in range(own, own + count):
            a = heads[i]
            # Merge the list of the neighbour, without v, and that of v, without the neighbour.
            x, y, size_of_a = starts[a], own, 0
            end_x, end_y = x + counts[a], own + count
            while x < end_x or y < end_y:
                if x < end_x and heads[x] == v:
                    x += 1
                    continue
                if y < end_y and heads[y] == a:
                    y += 1
                    continue
                takes_x = x < end_x and (y == end_y or heads[x] <= heads[y])
                takes_y = y < end_y and (x == end_x or heads[y] <= heads[x])
                merged[size_of_a] = heads[x] if takes_x else heads[y]
                merged_up[size_of_a] = up[x] if takes_x else absent
                merged_down[size_of_a] = down[x] if takes_x else absent
                if takes_y and down[i] != absent and up[y] != absent:
                    length: Any = min(np.int64(down[i]) + np.int64(up[y]), FAR)
                    merged_up[size_of_a] = min(merged_up[size_of_a], np.uint32(length))
                if takes_y and down[y] != absent and up[i] != absent:
                    length = min(np.int64(down[y]) + np.int64(up[i]), FAR)
                    merged_down[size_of_a] = min(merged_down[size_of_a], np.uint32(length))
                x += takes_x
                y += takes_y
                size_of_a += 1
            if size_of_a > rooms[a]:
                starts[a] = end
                rooms[a] = 2 * size_of_a
                end += rooms[a]
            begin = starts[a]
            counts[a] = size_of_a
            for k in range(size_of_a):
                heads[begin + k] = merged[k]
                up[begin + k] = merged_up[k]
                down[begin + k] = merged_down[k]
            if bucket_of[a] >= 0:
                _unlink(before, after, first, last, bucket_of[a], a)
            bucket_of[a] = -1
            if counts[a] <= most:
                bucket_of[a] = max(counts[a], min(most, _FEWEST_NEIGHBOURS))
                _append(before, after, first, last, bucket_of[a], a)
                bucket = min(bucket, bucket_of[a])
    return contracted


@kernel
def _find_levels(
    rank: int, size: int, control: Any, order: Any, starts: Any, counts: Any, heads: Any, level: Any,
) -> None:  # fmt: skip
    """Fill in the levels of contracted vertices: one more than the greatest of those that they kept."""
    for i in range(len(order) - 1, -1, -1):
        v = order[i]
        greatest = 0
        for at in range(starts[v], starts[v] + counts[v]):
            greatest = max(greatest, level[heads[at]])
        level[v] = greatest + 1


@kernel
def _lay_out(
    rank: int, size: int, control: Any, by_position: Any, position: Any, offsets: Any, starts: Any,
    rooms: Any, counts: Any, heads: Any, up: Any, down: Any, kept_heads: Any, kept_up: Any,
    kept_down: Any,
) -> None:  # fmt: skip
    """Copy lists into rows by position, the heads of each in ascending order."""
    for p in range(len(by_position)):
        begin = starts[by_position[p]]
        for i in range(counts[by_position[p]]):
            head = position[heads[begin + i]]
            at = offsets[p] + i
            while at > offsets[p] and kept_heads[at - 1] > head:
                kept_heads[at] = kept_heads[at - 1]
                kept_up[at] = kept_up[at - 1]
                kept_down[at] = kept_down[at - 1]
                at -= 1
            kept_heads[at] = head
            kept_up[at] = up[begin + i]
            kept_down[at] = down[begin + i]
