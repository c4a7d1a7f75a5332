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
floating-point numbers do. Sums saturate at ``FAR``; a query that finds it does
without contraction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit import config
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
_MORE_ROOM = 3
"""Room for lists, in terms of arcs."""
_FEWEST_NEIGHBOURS = 2
"""Vertices of at most this many neighbours are contracted in turn, so that paths have few levels."""

# Columns of the table of vertices: the list of each one's neighbours, and its last turn.
_BEGIN, _ROOM, _COUNT, _TURN = range(4)
# Columns of lists: neighbours in ascending order, lengths of the arcs to them, and from them.
_HEAD, _UP, _DOWN = range(3)


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


def contraction_of(
    query: DistanceQuery, many_sources: int, poll: RunPoll | None = None
) -> Contraction | None:
    """Return the contraction of a query's graph, or None if other ways to search are better.

    A graph is contracted when a query has many sources, and then serves for few, too. Contracting takes
    about two microseconds for each vertex.

    :param many_sources: sources from which that pays
    :param poll: called now and then; an exception ends the contraction
    """
    weights = query.graph.weights
    if query.cutoff is not None or (
        query.weighted and weights is not None and weights.dtype.kind not in "iu"
    ):
        return None
    graph = query.rows
    key = ("contraction", query.weighted)
    if key not in graph._cache and len(query.sources) < many_sources:
        return None
    found: Contraction | None = graph.cached(
        key, lambda: contract(graph, weighted=query.weighted, poll=poll)
    )
    return found if found is not None and found.has_room else None


def contract(graph: Graph, *, weighted: bool, poll: RunPoll | None = None) -> Contraction | None:
    """Contract a graph; return None if too many vertices are left, or memory is short.

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
    room = degree + 2
    vertices = np.zeros((n, 4), np.int64)
    vertices[:, _ROOM] = room
    vertices[1:, _BEGIN] = np.cumsum(room)[:-1]
    size = _MORE_ROOM * int(room.sum()) + (1 << 16)
    if config.missing_memory_bytes(28 * size + 64 * n) is not None:
        return None
    lists = np.empty((size, 3), np.uint32)
    order = np.empty(n, np.int64)
    turns = (np.empty((size, 2), np.int64), *np.full((2, _MOST_NEIGHBOURS + 1), -1))
    merged = np.empty((_LONGEST_LIST, 3), np.uint32)
    contracted = run_team(
        _contract, graph.offsets, graph.targets, lengths, vertices, lists, order, *turns, merged,
        threads=1, poll=None if poll is None else lambda: poll(0),
    )[0]  # fmt: skip
    if (n - contracted) * _LEAST_GAIN > n:
        return None
    order = order[:contracted]
    level = np.zeros(n, np.int32)
    run_team(_find_levels, order, vertices, lists, level, threads=1)
    levels = np.concatenate([[0], np.cumsum(np.bincount(level))])
    # The core in the order of vertices, each level in the reverse order of contraction.
    reverse = np.concatenate([np.flatnonzero(level == 0), order[::-1]])
    by_position = reverse[np.argsort(level[reverse], kind="stable")]
    position = np.empty(n, np.int64)
    position[by_position] = np.arange(n)
    offsets = np.concatenate([[0], np.cumsum(vertices[by_position, _COUNT])])
    kept_heads, kept_up, kept_down = np.empty((3, max(1, int(offsets[-1]))), np.uint32)
    kept = (kept_heads, kept_up, kept_down)
    run_team(_lay_out, by_position, position, offsets, vertices, lists, *kept, threads=1)
    return Contraction(position, levels, offsets, kept_heads, kept_up, kept_down)


def _place(vertices: Any, lists: Any, v: int, head: int) -> int:
    """Return the place of a head in the list of a vertex; make it if there is none."""
    begin: int = vertices[v, _BEGIN]
    end: int = begin + vertices[v, _COUNT]
    at = end
    while at > begin and lists[at - 1, _HEAD] >= head:
        at -= 1
    if at == end or lists[at, _HEAD] != head:
        for k in range(end, at, -1):
            for column in range(3):
                lists[k, column] = lists[k - 1, column]
        vertices[v, _COUNT] += 1
        lists[at, _HEAD] = head
        lists[at, _UP] = np.uint32(ABSENT)
        lists[at, _DOWN] = np.uint32(ABSENT)
    return at


def _take_turn(
    vertices: Any, turns: Any, first: Any, last: Any, turn: int, bucket: int, v: int
) -> None:
    """Give a vertex the last turn in a bucket; its turn before, if any, is void."""
    turns[turn, 0] = v
    turns[turn, 1] = -1
    vertices[v, _TURN] = turn
    if first[bucket] < 0:
        first[bucket] = turn
    else:
        turns[last[bucket], 1] = turn
    last[bucket] = turn


@kernel
def _contract(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, lengths: Any, vertices: Any,
    lists: Any, order: Any, turns: Any, first: Any, last: Any, merged: Any,
) -> int:  # fmt: skip
    """Contract vertices, fewest neighbours first, and in turn; return their number.

    :param vertices: (n, 4) room for the list of each vertex; longer lists move to the end
    :param order: (n) filled with the vertices that are contracted, in order
    :param turns: (all, 2) a vertex, and the next turn in the same bucket, of vertices with equally many
        neighbours, or -1
    :param first: first turn of each bucket, -1 at first
    :param last: last turn of each bucket
    :param merged: room for a list
    """
    n = len(vertices)
    most = len(first) - 1
    absent = np.uint32(ABSENT)
    for v in range(n):
        for arc in range(offsets[v], offsets[v + 1]):
            u = targets[arc]
            if u == v:
                continue
            at = _place(vertices, lists, v, u)
            lists[at, _UP] = min(lists[at, _UP], lengths[arc])
            at = _place(vertices, lists, u, v)
            lists[at, _DOWN] = min(lists[at, _DOWN], lengths[arc])
    fewest = min(most, _FEWEST_NEIGHBOURS)
    turn = 0
    for v in range(n):
        vertices[v, _TURN] = -1
        if vertices[v, _COUNT] <= most:
            _take_turn(vertices, turns, first, last, turn, max(vertices[v, _COUNT], fewest), v)
            turn += 1
    end = vertices[n - 1, _BEGIN] + vertices[n - 1, _ROOM]
    contracted = 0
    pairs = 0
    bucket = 0
    while bucket <= most and load_acquire(control, ABORT) == 0:
        now = first[bucket]
        if now < 0:
            if bucket == _FEW_NEIGHBOURS and (n - contracted) * _MOST_LEFT > n:
                break
            bucket += 1
            continue
        v = turns[now, 0]
        if vertices[v, _TURN] != now:
            first[bucket] = turns[now, 1]
            continue
        own, count = vertices[v, _BEGIN], vertices[v, _COUNT]
        pairs += count * (count - 1)
        needed = 0
        longest = 0
        for i in range(own, own + count):
            together = vertices[lists[i, _HEAD], _COUNT] + count
            needed += 2 * together
            longest = max(longest, together)
        # What does not fit, or costs too much, is left in the core.
        if (
            pairs > _PAIRS_EACH * (contracted + 1024)
            or end + needed > len(lists)
            or turn + count > len(turns)
            or longest > len(merged)
        ):
            break
        first[bucket] = turns[now, 1]
        vertices[v, _TURN] = -1
        order[contracted] = v
        contracted += 1
        for i in range(own, own + count):
            a = lists[i, _HEAD]
            # Merge the list of the neighbour, without v, and that of v, without the neighbour.
            to_a, from_a = lists[i, _UP], lists[i, _DOWN]
            x, y, merged_count = vertices[a, _BEGIN], own, 0
            end_x, end_y = x + vertices[a, _COUNT], own + count
            while x < end_x or y < end_y:
                if x < end_x and lists[x, _HEAD] == v:
                    x += 1
                    continue
                if y < end_y and lists[y, _HEAD] == a:
                    y += 1
                    continue
                takes_x = x < end_x and (y == end_y or lists[x, _HEAD] <= lists[y, _HEAD])
                takes_y = y < end_y and (x == end_x or lists[y, _HEAD] <= lists[x, _HEAD])
                head = lists[x, _HEAD] if takes_x else lists[y, _HEAD]
                up = lists[x, _UP] if takes_x else absent
                down = lists[x, _DOWN] if takes_x else absent
                if takes_y and from_a != absent and lists[y, _UP] != absent:
                    length: Any = min(np.int64(from_a) + np.int64(lists[y, _UP]), FAR)
                    up = min(up, np.uint32(length))
                if takes_y and to_a != absent and lists[y, _DOWN] != absent:
                    length = min(np.int64(lists[y, _DOWN]) + np.int64(to_a), FAR)
                    down = min(down, np.uint32(length))
                merged[merged_count, _HEAD] = head
                merged[merged_count, _UP] = up
                merged[merged_count, _DOWN] = down
                x += takes_x
                y += takes_y
                merged_count += 1
            if merged_count > vertices[a, _ROOM]:
                vertices[a, _BEGIN] = end
                vertices[a, _ROOM] = 2 * merged_count
                end += vertices[a, _ROOM]
            vertices[a, _COUNT] = merged_count
            vertices[a, _TURN] = -1
            begin = vertices[a, _BEGIN]
            for k in range(merged_count):
                for column in range(3):
                    lists[begin + k, column] = merged[k, column]
            if merged_count <= most:
                _take_turn(vertices, turns, first, last, turn, max(merged_count, fewest), a)
                turn += 1
                bucket = min(bucket, max(merged_count, fewest))
    return contracted


@kernel
def _find_levels(
    rank: int, size: int, control: Any, order: Any, vertices: Any, lists: Any, level: Any
) -> None:
    """Fill in the levels of contracted vertices: one more than the greatest of those that they kept."""
    for i in range(len(order) - 1, -1, -1):
        v = order[i]
        greatest = 0
        for at in range(vertices[v, _BEGIN], vertices[v, _BEGIN] + vertices[v, _COUNT]):
            greatest = max(greatest, level[lists[at, _HEAD]])
        level[v] = greatest + 1


@kernel
def _lay_out(
    rank: int, size: int, control: Any, by_position: Any, position: Any, offsets: Any, vertices: Any,
    lists: Any, heads: Any, up: Any, down: Any,
) -> None:  # fmt: skip
    """Copy lists into rows by position, the heads of each in ascending order."""
    for p in range(len(by_position)):
        begin = vertices[by_position[p], _BEGIN]
        for i in range(vertices[by_position[p], _COUNT]):
            head = position[lists[begin + i, _HEAD]]
            at = offsets[p] + i
            while at > offsets[p] and heads[at - 1] > head:
                heads[at] = heads[at - 1]
                up[at] = up[at - 1]
                down[at] = down[at - 1]
                at -= 1
            heads[at] = head
            up[at] = lists[begin + i, _UP]
            down[at] = lists[begin + i, _DOWN]
