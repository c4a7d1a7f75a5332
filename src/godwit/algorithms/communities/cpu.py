"""Compiled steps of community detection on the CPU: move vertices, refine, aggregate, split, count labels.

Invariant: all threads decide on one state, which no thread changes meanwhile, and all that they then change
are sums of integers. So the result is the same for any number of threads, bit for bit. A *round* visits the
active vertices (at first all, then those next to a vertex that moved) in *sub-rounds*: a hash of seed,
round and vertex assigns each to a class; the vertices of a class decide at once, then move at once. Two
neighbours seldom belong to one class, and in the next round to others.

The score of a community c for a vertex v is ``w(v, c) - factor * mass(v) * mass(c)``, where c is taken
without v, and w is the weight of arcs between them: an integer below 2^53. The score is two
multiplications and a subtraction in float64, each rounded to nearest, in this order. The largest score
wins; of equal ones the community of v, then that of smallest id, or in label propagation by a hash. With
masses that are sums of weights and the factor resolution / 2m that maximizes modularity, with numbers of
vertices the constant Potts model. In directed graphs w counts arcs in both directions, a vertex has two
masses, of out-arcs and of in-arcs, and what is subtracted is ``factor * out(v) * in(c) + factor * in(v) *
out(c)``. So masses are pairs of arrays, the second of which is empty where there is one mass.

Rows have begin and end, so that aggregation need not know lengths of rows before it writes them. Arcs from
a vertex to itself, and arcs of weight 0, are skipped: they change no score.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from godwit.dtypes import Array
from godwit.graph.hashing import mix
from godwit.graph.union_find import TO_THE_ROOT, compress, splice
from godwit.runtime.cpu.atomics import (
    fetch_add,
    keep_rolled,
    load_acquire,
    load_relaxed,
    prefetch,
)
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, WORDS_PER_LINE, barrier, block_range, next_range

CHUNK = 64
"""Vertices that a thread claims at a time."""
_LARGE_CHUNK = 512
"""The same where little is done for each."""
MOST_CLASSES = 1024
"""Upper limit of classes of a round."""
LEAST_CLASSES, MOST_JOINED_CLASSES = 4, 64
"""A level with a number of classes between these has fewer in rounds in which few vertices are active."""
_MOST_TIMES_FEWER = 8
"""But no fewer than an eighth: where rows are long, moves of few vertices concern many."""
_PIECE = 4096
"""Arcs that a thread takes room for at a time when it writes rows."""
_PIECE_ROW = 256
"""Arcs of a row above which it gets room of its own."""
WINDOW_ARCS = 512
"""Arcs that are gathered before their vertices decide; longer rows are not."""
_INNER_ARCS = 32
"""Arcs of a row up to which a vertex without neighbours in other communities is not visited at first."""
ALONE_VERTICES = 128
"""Active vertices a class below which one thread does a round: the others would wait most of the time."""

# Unsigned index: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64


class Rows(NamedTuple):
    """Arcs of a level: those of vertex v are ``targets[begins[v]:ends[v]]``.

    :ivar begins: (n) int64
    :ivar ends: (n) int64
    :ivar targets: vertices
    :ivar weights: of the dtype of all sums, or empty for 1 each
    """

    begins: Array
    ends: Array
    targets: Array
    weights: Array


def _claim(
    rank: int, size: int, control: Any, cursors: Any, chunk: int, begin: Any, end: Any
) -> tuple[Any, Any]:
    """Claim the next part [first, last) of a range; return an empty one if there is none.

    Threads begin with a share of their own. Neighbours have near ids in many graphs, so what a thread
    reads is seldom what another has changed.

    :param cursors: int64 (size) lines of words: how many of each share are claimed
    :param begin: the range is [begin, end), and has a share for each thread
    """
    for other in range(rank, rank + size):
        owner = other % size
        share_begin, share_end = block_range(owner, size, end - begin)
        first = share_begin + load_relaxed(cursors, owner * WORDS_PER_LINE)
        if first < share_end:
            first = share_begin + fetch_add(cursors, owner * WORDS_PER_LINE, chunk)
        if first < share_end and load_acquire(control, ABORT) == 0:
            return begin + first, begin + min(first + chunk, share_end)
    return end, end


def _class_of(start: Any, v: Any, classes: Any) -> Any:
    """Return the class of a vertex.

    :param start: the mixed seed of the round
    :param classes: a power of two
    """
    return np.int64(mix(start ^ np.uint64(v)) & np.uint64(classes - 1))


def _activate_outer(
    first: Any, last: Any, begins: Any, ends: Any, targets: Any, label: Any, active: Any
) -> None:
    """Make the vertices [first, last) active: those with a neighbour in another community, or many arcs.

    Others are where they belong, unless a high resolution makes them better off alone.
    """
    for v in range(first, last):
        begin, end = begins[_at(v)], ends[_at(v)]
        is_active = end - begin > _INNER_ARCS
        arc = begin
        while not is_active and arc < end:
            keep_rolled()
            is_active = label[_at(targets[_at(arc)])] != label[_at(v)]
            arc += 1
        active[_at(v)] = is_active


def _classes_of_round(classes: int, listed: Any, n: Any) -> Any:
    """Return the number of classes of a round: each has no more vertices than if all were active.

    Small levels keep all of theirs: with fewer, communities of small graphs with hubs get worse.

    :param classes: of all n vertices
    :param listed: active vertices
    """
    if classes > MOST_JOINED_CLASSES:
        return classes
    least = max(LEAST_CLASSES, classes // _MOST_TIMES_FEWER)
    while classes > least and classes * listed <= (classes // 2) * n:
        classes //= 2
    return classes


def _list_by_class(
    rank: int,
    size: int,
    control: Any,
    active: Any,
    order: Any,
    chosen: Any,
    counts: Any,
    start: Any,
    classes: int,
) -> Any:
    """List the active vertices by class.

    :param chosen: (n), of which each thread uses its block meanwhile
    :param counts: int64 (size, MOST_CLASSES + 1); row ``size - 1`` then has the end of each class, the last
        of those returned at ``classes - 1``
    :param classes: if all vertices were active; those that are equal modulo the number returned are one
    :returns: the number of classes, or 0 if all threads must leave
    """
    begin, end = block_range(rank, size, order.size)
    for c in range(classes):
        counts[rank, c] = 0
    listed = begin
    for v in range(begin, end):
        chosen[_at(listed)] = v  # the next one's place if this one is not active
        listed += active[_at(v)] != 0
    for i in range(begin, listed):
        counts[rank, _class_of(start, chosen[_at(i)], classes)] += 1
    if not barrier(control, size):
        return 0
    if rank == 0:
        fewer = _classes_of_round(classes, counts[:, :classes].sum(), order.size)
        counts[0, MOST_CLASSES] = fewer
        position = 0
        for joined in range(fewer):
            for c in range(joined, classes, fewer):
                for other in range(size):
                    count = counts[other, c]
                    counts[other, c] = position
                    position += count
    if not barrier(control, size):
        return 0
    for i in range(begin, listed):
        v = chosen[_at(i)]
        c = _class_of(start, v, classes)
        order[_at(counts[rank, c])] = v
        counts[rank, c] += 1
    if not barrier(control, size):
        return 0
    return counts[0, MOST_CLASSES]


def _prefetch_row(
    i: Any, end: Any, order: Any, begins: Any, ends: Any, targets: Any, values: Any
) -> None:  # fmt: skip
    """Prefetch ends of rows, and values, of vertices that are visited after that at i, and then arcs."""
    if i + 16 < end:
        v = order[_at(i + 16)]
        prefetch(begins, v)
        prefetch(ends, v)
        prefetch(values, v)
    if i + 8 < end:
        prefetch(targets, begins[_at(order[_at(i + 8)])])


def _gather_window(
    first: Any, last: Any, end: Any, order: Any, begins: Any, ends: Any, targets: Any, weights: Any,
    mass: Any, label: Any, total: Any, part: Any, part_total: Any, grown: Any, sums: Any, near: Any,
    near_weight: Any, near_ends: Any,
) -> Any:  # fmt: skip
    """Gather the communities, or parts, of neighbours of vertices, and prefetch what the choice reads.

    So reads of many vertices are under way at once. A vertex that decides finds all in the cache.

    :param first: place in ``order`` of the first vertex; the window ends before ``last``
    :param part: as of :func:`refine_communities`; communities themselves where ``grown`` is empty
    :param grown: as of :func:`refine_communities`; or empty, and neighbours in all communities count
    :param near: (WINDOW_ARCS) becomes communities or parts, row by row, of the arcs that count
    :param near_weight: becomes the weights of these arcs
    :param near_ends: (CHUNK) becomes the end of each row; those of vertices that have grown are empty
    :returns: the end of the window: ``first`` if the first row is too long
    """
    weighted = weights.size > 0
    inner = grown.size > 0
    position = 0
    for i in range(first, last):
        _prefetch_row(i, end, order, begins, ends, targets, label)
        v = order[_at(i)]
        row_begin, row_end = begins[_at(v)], ends[_at(v)]
        if inner and grown[_at(v)] != 0:
            row_end = row_begin
        if position + row_end - row_begin > WINDOW_ARCS:
            return i
        own = label[_at(v)]
        prefetch(mass[0], v)
        prefetch(total[0], own)
        for arc in range(row_begin, row_end):
            keep_rolled()
            u = targets[_at(arc)]
            weight = weights[_at(arc)] if weighted else 1
            c = part[_at(u)]
            prefetch(part_total[0], c)
            prefetch(sums, c)
            near[_at(position)] = c
            near_weight[_at(position)] = weight
            counts = (u != v) & (weight != 0)
            if inner:
                counts &= label[_at(u)] == own
            position += counts
        near_ends[_at(i - first)] = position
    return last


def _add_near(arcs: Any, near: Any, near_weight: Any, sums: Any) -> Any:
    """Add the weights of a row's arcs to the sums of their communities; return the number of communities.

    :param near: community of each arc; afterwards it begins with these communities, each once
    :param near_weight: weight of each arc
    :param sums: by community; 0 at first
    """
    count = 0
    for i in range(arcs):
        keep_rolled()
        c = near[_at(i)]
        before = sums[_at(c)]
        near[_at(count)] = c
        count += before == 0
        sums[_at(c)] = before + near_weight[_at(i)]
    return count


def gather_sums(
    v: Any, begins: Any, ends: Any, targets: Any, weights: Any, label: Any, sums: Any, touched: Any
) -> Any:
    """Add the weights from a vertex to each community to ``sums``; return the number of communities.

    Without branches that depend on communities, which no processor predicts.
    """
    count = 0
    weighted = weights.size > 0
    for arc in range(begins[_at(v)], ends[_at(v)]):
        keep_rolled()
        u = targets[_at(arc)]
        weight = weights[_at(arc)] if weighted else 1
        if u == v or weight == 0:
            continue
        c = label[_at(u)]
        before = sums[_at(c)]
        touched[_at(count)] = c  # the next one's place if this one counts already
        count += before == 0
        sums[_at(c)] = before + weight
    return count


def add_row(
    v: Any, own: Any, begins: Any, ends: Any, targets: Any, weights: Any, label: Any, sums: Any,
    touched: Any, count: Any,
) -> Any:  # fmt: skip
    """Add the weights from a vertex to other communities than its own to ``sums`` of several vertices.

    :param count: number of communities before
    :returns: their number now
    """
    weighted = weights.size > 0
    for arc in range(begins[_at(v)], ends[_at(v)]):
        keep_rolled()
        weight = weights[_at(arc)] if weighted else 1
        c = label[_at(targets[_at(arc)])]
        before = sums[_at(c)]
        added = weight if c != own else 0
        touched[_at(count)] = c  # the next one's place if this one does not count, or does already
        count += (before == 0) & (added != 0)
        sums[_at(c)] = before + added
    return count


def _precedes(c: Any, best: Any, v: Any, start: Any) -> bool:
    """Return True if a hash prefers community c to another for a vertex."""
    word = mix(start + np.uint64(v))
    return bool(mix(word ^ np.uint64(c)) < mix(word ^ np.uint64(best)))


def _shares(v: Any, mass: Any, factor: float) -> Any:
    """Return the factor times each mass of a vertex; the second is 0 where there is one mass."""
    entering = factor * np.float64(mass[1][_at(v)]) if mass[1].size > 0 else 0.0
    return factor * np.float64(mass[0][_at(v)]), entering


def _penalty(shares: Any, c: Any, total: Any) -> Any:
    """Return what the score of a community is less than the weight between it and a vertex outside."""
    if total[1].size == 0:
        return shares[0] * np.float64(total[0][_at(c)])
    return shares[0] * np.float64(total[1][_at(c)]) + shares[1] * np.float64(total[0][_at(c)])


def _own_penalty(v: Any, c: Any, shares: Any, mass: Any, total: Any) -> Any:
    """Return the same of the community of the vertex, without it."""
    there = total[0][_at(c)] - mass[0][_at(v)]
    if total[1].size == 0:
        return shares[0] * np.float64(there)
    entering = total[1][_at(c)] - mass[1][_at(v)]
    return shares[0] * np.float64(entering) + shares[1] * np.float64(there)


def _add(array: Any, index: Any, value: Any, alone: bool) -> Any:
    """Add to an element, and return what it was.

    :param alone: no other thread does so at the same time
    """
    if not alone:
        return fetch_add(array, index, value)
    before = array[_at(index)]
    array[_at(index)] = before + value
    return before


def move_mass(v: Any, old: Any, new: Any, mass: Any, total: Any, alone: bool) -> None:
    """Subtract the masses of a vertex from those of a community, and add them to those of another.

    :param alone: no other thread does so at the same time
    """
    for side in range(2):
        if mass[side].size == 0:
            continue
        moved = mass[side][_at(v)]
        _add(total[side], old, -moved, alone)
        _add(total[side], new, moved, alone)


def best_community(
    v: Any, mass: Any, label: Any, total: Any, factor: float, start: Any, random_ties: bool, sums: Any,
    touched: Any, count: Any,
) -> Any:  # fmt: skip
    """Return the community that a vertex belongs to best; set the sums to 0."""
    own = label[_at(v)]
    best = none = label.dtype.type(-1)  # the community of v: no other of equal score precedes it
    shares = _shares(v, mass, factor)
    best_score = np.float64(sums[_at(own)]) - _own_penalty(v, own, shares, mass, total)
    sums[_at(own)] = 0  # so it comes once more, with a score that is no better
    for i in range(count):
        keep_rolled()
        c = touched[_at(i)]
        score = np.float64(sums[_at(c)]) - _penalty(shares, c, total)
        sums[_at(c)] = 0
        is_better = score > best_score
        if random_ties:
            is_better |= score == best_score and best != none and _precedes(c, best, v, start)
        else:
            is_better |= (score == best_score) & (c < best)
        # Each by itself, so that neither is a branch, nor waits for the other.
        best = c if is_better else best
        best_score = max(best_score, score)
    if best_score < 0 and total[0][_at(v)] == 0 and (mass[1].size == 0 or total[1][_at(v)] == 0):
        return label.dtype.type(v)  # alone, in the community that v had at first, which is empty
    return own if best == none else best


@kernel
def move_vertices(
    rank: int, size: int, control: Any, begins: Any, ends: Any, targets: Any, weights: Any, mass: Any,
    label: Any, total: Any, active: Any, order: Any, chosen: Any, counts: Any, cursors: Any, sums: Any,
    touched: Any, window: Any, factor: float, seed: Any, classes: int, most_rounds: int, enough: int,
    random_ties: bool, tallies: Any,
) -> None:  # fmt: skip
    """Move vertices to better communities, round by round.

    :param mass: two of int64 (n), of which the second may be empty
    :param label: (n) community of each vertex, an id in [0, n)
    :param total: the same for each community
    :param active: uint8 (n + 1): vertices to visit in the next round; the last element is anything
    :param order: (n) as :func:`_list_by_class` fills it
    :param chosen: (n) community that the vertex at each place of ``order`` moves to
    :param cursors: as of :func:`_claim`, all 0, and again at the end
    :param sums: int64 (size, n), all 0, and again at the end
    :param touched: (size, n)
    :param window: what :func:`_gather_window` fills, of each thread: (size, WINDOW_ARCS) communities and
        weights, and (size, CHUNK) ends of rows
    :param enough: a round with this number of moves or fewer is the last
    :param random_ties: of communities of equal score a hash chooses, not the smallest id
    :param tallies: int64 (4): moves of even and of odd rounds, rounds, and visits of vertices
    """
    my_sums = sums[rank]
    my_touched = touched[rank]
    while True:
        first, last = _claim(rank, size, control, cursors, _LARGE_CHUNK, 0, order.size)
        if first == last:
            break
        _activate_outer(first, last, begins, ends, targets, label, active)
    if not barrier(control, size):
        return
    cursors[_at(rank * WORDS_PER_LINE)] = 0
    for turn in range(most_rounds):
        start = mix(seed + np.uint64(turn))
        fewer = _list_by_class(rank, size, control, active, order, chosen, counts, start, classes)
        if fewer == 0:
            return
        if rank == 0:
            tallies[(turn + 1) % 2] = 0
        listed = counts[size - 1, classes - 1]
        movers = 1 if listed < fewer * ALONE_VERTICES else size
        if rank < movers and not _move_by_class(
            rank, movers, control, begins, ends, targets, weights, mass, label, total, active, order,
            chosen, counts[size - 1, classes - fewer :], cursors, my_sums, my_touched, window[0][rank],
            window[1][rank], window[2][rank], factor, start, fewer, turn, random_ties, tallies,
        ):  # fmt: skip
            return
        if movers < size and not barrier(control, size):
            return
        if rank == 0:
            tallies[2] += 1
            tallies[3] += listed
        if tallies[turn % 2] <= enough:
            return


def _meet(control: Any, size: int) -> bool:
    """Wait for the other threads that move vertices, if there are any; return False to leave."""
    if size == 1:
        return bool(load_acquire(control, ABORT) == 0)
    return barrier(control, size)


def _move_by_class(
    rank: int, size: int, control: Any, begins: Any, ends: Any, targets: Any, weights: Any, mass: Any,
    label: Any, total: Any, active: Any, order: Any, chosen: Any, class_ends: Any, cursors: Any,
    sums: Any, touched: Any, near: Any, near_weight: Any, near_ends: Any, factor: float, start: Any,
    classes: int, turn: int, random_ties: bool, tallies: Any,
) -> bool:  # fmt: skip
    """Move the listed vertices, class by class; return False if all threads must leave."""
    none = active[:0]
    begin = 0
    for c in range(classes):
        end = class_ends[c]
        if begin == end:
            continue
        while True:
            first, last = _claim(rank, size, control, cursors, CHUNK, begin, end)
            if first == last:
                break
            while first < last:
                window_end = _gather_window(
                    first, last, end, order, begins, ends, targets, weights, mass, label, total, label,
                    total, none, sums, near, near_weight, near_ends,
                )  # fmt: skip
                row_begin = 0
                for i in range(first, max(window_end, first + 1)):
                    v = order[_at(i)]
                    active[_at(v)] = 0
                    if i == window_end:
                        row = touched
                        count = gather_sums(v, begins, ends, targets, weights, label, sums, row)
                    else:
                        row = near[row_begin:]
                        arcs = near_ends[_at(i - first)] - row_begin
                        count = _add_near(arcs, row, near_weight[row_begin:], sums)
                        row_begin += arcs
                    chosen[_at(i)] = best_community(
                        v, mass, label, total, factor, start, random_ties, sums, row, count
                    )
                first = max(window_end, first + 1)
        if not _meet(control, size):
            return False
        cursors[_at(rank * WORDS_PER_LINE)] = 0
        part_begin, part_end = block_range(rank, size, end - begin)
        moves = 0
        for i in range(begin + part_begin, begin + part_end):
            if i + 8 < begin + part_end:
                prefetch(total[0], chosen[_at(i + 8)])
                prefetch(total[0], label[_at(order[_at(i + 8)])])
            v = order[_at(i)]
            old = label[_at(v)]
            new = chosen[_at(i)]
            order[_at(begin + part_begin + moves)] = v  # the next one's place if this one stays
            if new != old:
                label[_at(v)] = new
                move_mass(v, old, new, mass, total, size == 1)
                moves += 1
        fetch_add(tallies, turn % 2, moves)
        if not _meet(control, size):
            return False
        movers_end = begin + part_begin + moves
        near[0] = label.size
        for i in range(begin + part_begin, movers_end):
            _prefetch_row(i, movers_end, order, begins, ends, targets, label)
            v = order[_at(i)]
            own = label[_at(v)]
            for arc in range(begins[_at(v)], ends[_at(v)]):
                keep_rolled()
                u = targets[_at(arc)]
                near[1] = u
                active[_at(near[_at(label[_at(u)] != own)])] = 1
        begin = end
        if not _meet(control, size):
            return False
    return True


@kernel
def refine_communities(
    rank: int, size: int, control: Any, begins: Any, ends: Any, targets: Any, weights: Any, mass: Any,
    label: Any, total: Any, active: Any, order: Any, chosen: Any, counts: Any, cursors: Any, sums: Any,
    touched: Any, window: Any, factor: float, seed: Any, classes: int, part: Any, part_total: Any,
    grown: Any,
) -> None:  # fmt: skip
    """Divide each community into parts that are connected: Leiden's refinement, greedily.

    A vertex that is alone joins the part of its community that it belongs to best, if that is better than
    alone. Only vertices that are alone move, and never into the part of one that may move in the same
    sub-round, so a part never loses a vertex that others have joined, and is connected.

    :param active: uint8 (n): those that have arcs
    :param part: (n) part of each vertex: at first itself
    :param part_total: masses of each part: at first those of the vertex
    :param grown: uint8 (n) parts that others have joined: at first 0
    """
    my_sums = sums[rank]
    my_touched = touched[rank]
    near, near_weight, near_ends = window[0][rank], window[1][rank], window[2][rank]
    start = mix(seed)
    fewer = _list_by_class(rank, size, control, active, order, chosen, counts, start, classes)
    begin = 0
    for c in range(fewer):
        end = counts[size - 1, classes - fewer + c]
        while True:
            first, last = _claim(rank, size, control, cursors, CHUNK, begin, end)
            if first == last:
                break
            while first < last:
                window_end = _gather_window(
                    first, last, end, order, begins, ends, targets, weights, mass, label, total, part,
                    part_total, grown, my_sums, near, near_weight, near_ends,
                )  # fmt: skip
                row_begin = 0
                for i in range(first, window_end):
                    row, row_weight = near[row_begin:], near_weight[row_begin:]
                    arcs = near_ends[_at(i - first)] - row_begin
                    inside = np.int64(0)
                    for arc in range(arcs):
                        keep_rolled()
                        inside += row_weight[_at(arc)]
                    count = _add_near(arcs, row, row_weight, my_sums)
                    chosen[_at(i)] = _best_of_parts(
                        order[_at(i)], inside, mass, label, total, factor, my_sums, row, count, start,
                        fewer, c, part_total, grown,
                    )  # fmt: skip
                    row_begin += arcs
                if first == window_end:
                    chosen[_at(first)] = best_part(
                        order[_at(first)], begins, ends, targets, weights, mass, label, total, factor,
                        my_sums, my_touched, start, fewer, c, part, part_total, grown,
                    )  # fmt: skip
                first = max(window_end, first + 1)
        if not barrier(control, size):
            return
        cursors[_at(rank * WORDS_PER_LINE)] = 0
        part_begin, part_end = block_range(rank, size, end - begin)
        for i in range(begin + part_begin, begin + part_end):
            v = order[_at(i)]
            new = chosen[_at(i)]
            if new != v:
                part[_at(v)] = new
                grown[_at(new)] = 1
                move_mass(v, v, new, mass, part_total, size == 1)
        begin = end
        if not barrier(control, size):
            return


def best_part(
    v: Any, begins: Any, ends: Any, targets: Any, weights: Any, mass: Any, label: Any, total: Any,
    factor: float, sums: Any, touched: Any, start: Any, classes: int, own_class: int, part: Any,
    part_total: Any, grown: Any,
) -> Any:  # fmt: skip
    """Return the part that a vertex joins; itself if it stays alone, or is not well connected."""
    own = label[_at(v)]
    weighted = weights.size > 0
    count = 0
    inside = 0
    for arc in range(begins[_at(v)], ends[_at(v)]):
        keep_rolled()
        u = targets[_at(arc)]
        weight = weights[_at(arc)] if weighted else 1
        if u == v or weight == 0 or label[_at(u)] != own:
            continue
        inside += weight
        d = part[_at(u)]
        before = sums[_at(d)]
        if before == 0:
            touched[_at(count)] = d
            count += 1
        sums[_at(d)] = before + weight
    return _best_of_parts(
        v, inside, mass, label, total, factor, sums, touched, count, start, classes, own_class,
        part_total, grown,
    )  # fmt: skip


def _best_of_parts(
    v: Any, inside: Any, mass: Any, label: Any, total: Any, factor: float, sums: Any, touched: Any,
    count: Any, start: Any, classes: int, own_class: int, part_total: Any, grown: Any,
) -> Any:  # fmt: skip
    """Return the part that a vertex joins of those in ``touched``; set their sums to 0.

    :param inside: weight between the vertex and its community
    """
    shares = _shares(v, mass, factor)
    is_connected = np.float64(inside) >= _own_penalty(v, label[_at(v)], shares, mass, total)
    best = touched.dtype.type(v)
    best_score = 0.0
    for i in range(count):
        keep_rolled()
        d = touched[_at(i)]
        score = np.float64(sums[_at(d)]) - _penalty(shares, d, part_total)
        sums[_at(d)] = 0
        is_better = score > best_score or (score == best_score and d < best and best != v)
        # A part that has grown does not move; nor does one of another class, in this sub-round.
        if is_better and (grown[_at(d)] != 0 or _class_of(start, d, classes) != own_class):
            best = d
            best_score = score
    return best if is_connected else touched.dtype.type(v)


@kernel
def number_communities(
    rank: int, size: int, control: Any, label: Any, present: Any, counts: Any, number: Any, above: Any
) -> None:  # fmt: skip
    """Count communities, and number them in the order of their ids.

    :param label: (n) community of each vertex, an id in [0, n)
    :param present: uint8 (n), all 0; becomes 1 for communities that have vertices
    :param counts: int64 (size); becomes the number of communities among the ids of each thread
    :param number: (n) becomes the number of each community; empty: they are only counted
    :param above: (n) becomes the number of each vertex' community
    """
    begin, end = block_range(rank, size, label.size)
    for v in range(begin, end):
        present[_at(label[_at(v)])] = 1
    if not barrier(control, size):
        return
    count = 0
    for c in range(begin, end):
        count += present[_at(c)]
    counts[rank] = count
    if number.size == 0 or not barrier(control, size):
        return
    following = np.int64(0)
    for other in range(rank):
        following += counts[other]
    for c in range(begin, end):
        number[_at(c)] = following
        following += present[_at(c)]
    if not barrier(control, size):
        return
    for v in range(begin, end):
        above[_at(v)] = number[_at(label[_at(v)])]


@kernel
def aggregate(
    rank: int, size: int, control: Any, begins: Any, ends: Any, targets: Any, weights: Any, mass: Any,
    above: Any, member_ends: Any, members: Any, counts: Any, sums: Any, touched: Any, used: Any,
    new_begins: Any, new_ends: Any, new_targets: Any, new_weights: Any, new_mass: Any,
) -> int:  # fmt: skip
    """Make a vertex of each community, with an arc to each community that arcs of its vertices lead to.

    Threads write rows into pieces of the arrays that they take one by one, so only what arcs need is
    touched; where rows lie is no part of the result.

    :param mass: as of :func:`move_vertices`
    :param above: (n) new vertex of each vertex
    :param member_ends: int64 (k)
    :param members: (n)
    :param counts: int64 (size)
    :param used: int64 (1), 0; then the end of what is used of ``new_targets``
    :param new_begins: int64 (k), like ``new_ends``
    :param new_targets: with :func:`room_for` the arcs of all rows
    :returns: the number of arcs that a thread has written
    """
    my_sums = sums[rank]
    my_touched = touched[rank]
    begin, end = block_range(rank, size, above.size)
    for v in range(begin, end):
        my_sums[_at(above[_at(v)])] += 1
    if not barrier(control, size):
        return 0
    # The place of the first member that each thread has of a community, within those of a block.
    first, last = block_range(rank, size, member_ends.size)
    position = 0
    for c in range(first, last):
        for other in range(size):
            count = sums[other, _at(c)]
            sums[other, _at(c)] = position
            position += count
        member_ends[_at(c)] = position
    counts[rank] = position
    if not barrier(control, size):
        return 0
    before = 0
    for other in range(rank):
        before += counts[other]
    for c in range(first, last):
        member_ends[_at(c)] += before
        for other in range(size):
            sums[other, _at(c)] += before
    if not barrier(control, size):
        return 0
    for v in range(begin, end):
        c = above[_at(v)]
        members[_at(my_sums[_at(c)])] = v
        my_sums[_at(c)] += 1
    my_sums[: member_ends.size] = 0
    if not barrier(control, size):
        return 0
    piece, piece_end = 0, 0
    written = 0
    while True:
        first, last = next_range(control, CHUNK, member_ends.size)
        if first == last:
            return written
        for c in range(first, last):
            count = 0
            out, into = np.int64(0), np.int64(0)
            for i in range(member_ends[_at(c - 1)] if c > 0 else 0, member_ends[_at(c)]):
                _prefetch_row(i, members.size, members, begins, ends, targets, mass[0])
                v = members[_at(i)]
                out += mass[0][_at(v)]
                if mass[1].size > 0:
                    into += mass[1][_at(v)]
                count = add_row(
                    v, c, begins, ends, targets, weights, above, my_sums, my_touched, count
                )
            new_mass[0][_at(c)] = out
            if mass[1].size > 0:
                new_mass[1][_at(c)] = into
            if count > _PIECE_ROW:
                position = fetch_add(used, 0, count)
            else:
                if piece + count > piece_end:
                    piece = fetch_add(used, 0, _PIECE)
                    piece_end = piece + _PIECE
                position = piece
                piece += count
            for i in range(count):
                keep_rolled()
                d = my_touched[_at(i)]
                new_targets[_at(position + i)] = d
                new_weights[_at(position + i)] = my_sums[_at(d)]
                my_sums[_at(d)] = 0
            new_begins[_at(c)] = position
            new_ends[_at(c)] = position + count
            written += count


def room_for(arcs: int, size: int) -> int:
    """Return the number of arcs that ``size`` threads need room for, as each leaves parts of its pieces."""
    return arcs + arcs // (_PIECE // _PIECE_ROW - 1) + (size + 1) * _PIECE


@kernel
def rename_communities(
    rank: int, size: int, control: Any, old: Any, above: Any, lifts: bool, first: Any, apart: int,
    mass: Any, label: Any, old_total: Any, total: Any,
) -> None:  # fmt: skip
    """Take communities to the next level or down from it, named by their smallest vertices there.

    :param old: community of each vertex of the level that has them
    :param above: vertex of the next level of each vertex of a level
    :param lifts: to the next level, all of whose vertices' members are in one community
    :param first: (size, n) or more vertices; becomes the first vertex that each thread has of a community,
        then in the first row that of all
    :param apart: the last vertices of both levels that are communities of their own
    :param mass: as of :func:`move_vertices`, of the level that ``label`` is about
    :param label: (n) communities afterwards
    :param old_total: masses of the communities as ``old`` names them
    :param total: becomes the same as ``label`` names them, (n)
    """
    n, names = label.size - apart, old.size - apart
    my_first = first[rank]
    my_first[:names] = n
    if lifts:
        begin, end = block_range(rank, size, names)
        for u in range(begin, end):
            label[_at(above[_at(u)])] = old[_at(u)]
        if not barrier(control, size):
            return
    begin, end = block_range(rank, size, n)
    for v in range(end - 1, begin - 1, -1):
        c = label[_at(v)] if lifts else old[_at(above[_at(v)])]
        label[_at(v)] = c
        my_first[_at(c)] = v
    if not barrier(control, size):
        return
    first_name, last_name = block_range(rank, size, names)
    for other in range(1, size):
        for c in range(first_name, last_name):
            first[0, _at(c)] = min(first[0, _at(c)], first[other, _at(c)])
    if not barrier(control, size):
        return
    for v in range(begin, end):
        c = label[_at(v)]
        name = first[0, _at(c)]
        label[_at(v)] = name
        for side in range(2):
            if total[side].size > 0:
                total[side][_at(v)] = old_total[side][_at(c)] if name == v else 0
    begin, end = block_range(rank, size, apart)
    for v in range(n + begin, n + end):
        label[_at(v)] = v
    for side in range(2):
        if total[side].size > 0:
            for v in range(n + begin, n + end):
                total[side][_at(v)] = mass[side][_at(v)]


@kernel
def split_communities(
    rank: int, size: int, control: Any, begins: Any, ends: Any, targets: Any, weights: Any, label: Any,
    parent: Any, cursors: Any,
) -> int:  # fmt: skip
    """Find the smallest vertex of each vertex's connected part of its community.

    :param cursors: as of :func:`_claim`, all 0
    :returns: as :func:`inner_weight`, where rows have the reverse of each arc
    """
    begin, end = block_range(rank, size, parent.size)
    for v in range(begin, end):
        parent[_at(v)] = v
    if not barrier(control, size):
        return 0
    weighted = weights.size > 0
    inside = 0
    while True:
        first, last = _claim(rank, size, control, cursors, _LARGE_CHUNK, 0, parent.size)
        if first == last:
            break
        for v in range(first, last):
            own = label[_at(v)]
            for arc in range(begins[_at(v)], ends[_at(v)]):
                keep_rolled()
                u = targets[_at(arc)]
                if u <= v and label[_at(u)] == own:
                    inside += weights[_at(arc)] if weighted else 1
                    splice(parent, parent.dtype.type(v), u)
    if not barrier(control, size):
        return 0
    compress(rank, size, parent, TO_THE_ROOT)
    return 2 * inside


@kernel
def propagate_labels(
    rank: int, size: int, control: Any, begins: Any, ends: Any, targets: Any, in_begins: Any,
    in_ends: Any, in_targets: Any, label: Any, other: Any, cursors: Any, sums: Any, touched: Any,
    iterations: int, tallies: Any,
) -> None:  # fmt: skip
    """Give each vertex the most frequent label of its neighbours, of equal ones the smallest, at once.

    :param in_begins: rows of in-arcs, which count as well; empty if there are none
    :param label: (n) before; after an even number of iterations, result
    :param other: (n) result after an odd number of iterations
    :param cursors: int64 (2) lines of words, all 0
    :param tallies: int64 (4); the third counts iterations, the fourth visits
    """
    n = label.size
    my_sums = sums[rank]
    my_touched = touched[rank]
    for turn in range(iterations):
        old, new = (label, other) if turn % 2 == 0 else (other, label)
        cursor = (turn % 2) * WORDS_PER_LINE
        while True:
            first = fetch_add(cursors, cursor, CHUNK)
            if first >= n or load_acquire(control, ABORT) != 0:
                break
            for v in range(first, min(first + CHUNK, n)):
                count = 0
                for arc in range(begins[_at(v)], ends[_at(v)]):
                    c = old[_at(targets[_at(arc)])]
                    if my_sums[_at(c)] == 0:
                        my_touched[_at(count)] = c
                        count += 1
                    my_sums[_at(c)] += 1
                if in_begins.size > 0:
                    for arc in range(in_begins[_at(v)], in_ends[_at(v)]):
                        c = old[_at(in_targets[_at(arc)])]
                        if my_sums[_at(c)] == 0:
                            my_touched[_at(count)] = c
                            count += 1
                        my_sums[_at(c)] += 1
                best = old[_at(v)]
                most = np.int64(0)
                for i in range(count):
                    c = my_touched[_at(i)]
                    times = my_sums[_at(c)]
                    my_sums[_at(c)] = 0
                    if times > most or (times == most and c < best):
                        best = c
                        most = times
                new[_at(v)] = best
        if not barrier(control, size):
            return
        if rank == 0:
            cursors[_at(cursor)] = 0
            tallies[2] += 1
            tallies[3] += n
        if not barrier(control, size):
            return


@kernel
def find_negative_scores(
    rank: int, size: int, control: Any, begins: Any, ends: Any, targets: Any, weights: Any, mass: Any,
    label: Any, total: Any, factor: float, found: Any,
) -> int:  # fmt: skip
    """Find the vertices whose score in their community is negative; return their number.

    :param label: (n) community of each vertex, an id in [0, n)
    :param total: masses of each community
    :param found: uint8 (n) becomes 1 for these vertices, else 0
    """
    begin, end = block_range(rank, size, begins.size)
    weighted = weights.size > 0
    count = 0
    for v in range(begin, end):
        own = label[_at(v)]
        inside = 0
        for arc in range(begins[_at(v)], ends[_at(v)]):
            u = targets[_at(arc)]
            if label[_at(u)] == own and u != v:
                inside += weights[_at(arc)] if weighted else 1
        penalty = _own_penalty(v, own, _shares(v, mass, factor), mass, total)
        found[_at(v)] = np.float64(inside) < penalty
        count += found[_at(v)]
    return count


@kernel
def vertex_strengths(
    rank: int, size: int, control: Any, begins: Any, ends: Any, targets: Any, weights: Any, loops: int,
    strength: Any,
) -> None:  # fmt: skip
    """Sum the weights of each vertex's arcs.

    :param loops: times that arcs from a vertex to itself count
    """
    begin, end = block_range(rank, size, begins.size)
    weighted = weights.size > 0
    for v in range(begin, end):
        added = 0
        for arc in range(begins[_at(v)], ends[_at(v)]):
            weight = weights[_at(arc)] if weighted else 1
            added += weight if targets[_at(arc)] != v else loops * weight
        strength[_at(v)] = added


@kernel
def inner_weight(
    rank: int,
    size: int,
    control: Any,
    begins: Any,
    ends: Any,
    targets: Any,
    weights: Any,
    label: Any,
) -> int:
    """Return the sum of the weights of arcs within communities, those from a vertex to itself twice."""
    begin, end = block_range(rank, size, begins.size)
    weighted = weights.size > 0
    inside = 0
    for v in range(begin, end):
        own = label[_at(v)]
        for arc in range(begins[_at(v)], ends[_at(v)]):
            u = targets[_at(arc)]
            if label[_at(u)] == own:
                weight = weights[_at(arc)] if weighted else 1
                inside += weight if u != v else 2 * weight
    return inside


@kernel
def number_by_size(
    rank: int, size: int, control: Any, label: Any, sizes: Any, first: Any, places: Any, numbered: Any,
    strength: Any, mass: Any,
) -> int:  # fmt: skip
    """Number communities by size, the largest first, then by smallest vertex: one thread.

    :param label: (n) community of each vertex, an id in [0, n)
    :param sizes: (n), all 0; becomes numbers of vertices, then numbers of communities
    :param first: (n) becomes the smallest vertex of each community, in ascending order
    :param places: (n + 1), all 0; becomes the numbers after communities of each size
    :param numbered: (n) becomes the number of each vertex' community
    :param strength: (n) or empty
    :param mass: as many, all 0; becomes the sum of the strengths of each community, by number
    :returns: the number of communities
    """
    n = label.size
    count = 0
    for v in range(n):
        c = label[_at(v)]
        first[_at(count)] = v  # the next one's place if the community has a vertex already
        count += sizes[_at(c)] == 0
        sizes[_at(c)] += 1
    for i in range(count):
        places[_at(sizes[_at(label[_at(first[_at(i)])])])] += 1
    before = 0
    for of_size in range(n, 0, -1):
        there = places[_at(of_size)]
        places[_at(of_size)] = before
        before += there
    for i in range(count):
        c = label[_at(first[_at(i)])]
        of_size = sizes[_at(c)]
        sizes[_at(c)] = places[_at(of_size)]
        places[_at(of_size)] += 1
    for v in range(n):
        number = sizes[_at(label[_at(v)])]
        numbered[_at(v)] = number
        if strength.size > 0:
            mass[_at(number)] += strength[_at(v)]
    return count
