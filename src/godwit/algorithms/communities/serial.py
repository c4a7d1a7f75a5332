"""Compiled steps of Louvain and Leiden by one thread, for levels whose rounds are too short to be shared.

A round visits the active vertices one by one, in an order that a seed shuffles, and each moves at once.
What is active is a set, and ties are decided by ids, so the order of arcs in a row changes nothing: rows
that a GPU has written lead to the same communities. Scores are those of cpu.py.

Vertices that have no arcs are communities of their own, which never change: aggregation puts them last and
leaves out their rows, so the other steps do not read them. Levels high up may have few others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.communities.cpu import (
    add_row,
    best_community,
    best_part,
    gather_sums,
    move_mass,
)
from godwit.graph.hashing import mix
from godwit.runtime.cpu.atomics import load_acquire, prefetch, trailing_zero_bits
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT

_POLLED_VISITS = 1 << 14
"""Visits between two looks at the abort word."""

_WORD_SHIFT, _BIT, _ONE = np.uint64(6), np.uint64(63), np.uint64(1)

# Unsigned index: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64


def _order_of(seed: Any, count: Any) -> Any:
    """Return a, b and c: i -> (a * i + b) & c shuffles the numbers up to c, which is count - 1 or more."""
    mask = np.uint64(1)
    while mask < np.uint64(count):
        mask *= np.uint64(2)
    word = mix(seed)
    return word | np.uint64(1), mix(word), mask - np.uint64(1)


def _inverse(odd: Any) -> Any:
    """Return the inverse of an odd number modulo 2^64, by Newton's method."""
    inverse = odd  # modulo 2^3
    for _ in range(5):
        inverse *= np.uint64(2) - odd * inverse
    return inverse


def _stopped(control: Any, i: Any) -> Any:
    """Return True if the run is to end; looks once in many calls with ascending i."""
    return i % _POLLED_VISITS == 0 and load_acquire(control, ABORT) != 0


@kernel
def move_vertices(
    rank: int, size: int, control: Any, begins: Any, ends: Any, targets: Any, weights: Any, mass: Any,
    label: Any, total: Any, active: Any, sums: Any, touched: Any, factor: float, seed: Any,
    first: Any, most_rounds: int, enough: int, tallies: Any,
) -> None:  # fmt: skip
    """Move vertices to better communities, round by round.

    Active vertices are bits in the order of their visits, so the next one is found at once.

    :param begins: of k vertices; others have no arcs
    :param mass: two of int64 (n), of which the second may be empty
    :param label: (n) community of each vertex, an id in [0, n)
    :param total: masses of each community
    :param active: uint64 (k / 32 + 1) or more, all 0
    :param sums: (n) or more, all 0, and again at the end
    :param touched: (n) or more
    :param first: uint8 (k): vertices of the first round, if they have arcs; empty: all are
    :param enough: a round with this number of moves or fewer is the last
    :param tallies: int64 (4): moves of the last round, 0, rounds, and visits of vertices
    """
    k = begins.size
    listed = 0
    for u in range(k):
        touched[_at(listed)] = u
        listed += (ends[_at(u)] > begins[_at(u)]) & (first.size == 0 or first[_at(u)] != 0)
    for turn in range(most_rounds):
        a, b, mask = _order_of(seed + np.uint64(turn), k)
        back = _inverse(a)
        words = np.int64(mask >> _WORD_SHIFT) + 1
        for j in range(listed):
            i = (np.uint64(touched[_at(j)]) - b) * back & mask
            active[i >> _WORD_SHIFT] |= _ONE << (i & _BIT)
        moves, visits = 0, 0
        for word in range(words):
            if _stopped(control, word * 64):
                return
            if word + 1 < words:
                _prefetch_visits(active[_at(word + 1)], word + 1, a, b, mask, begins, ends, label)
            _prefetch_arcs(active[_at(word)], word, a, b, mask, begins, targets, weights)
            remaining = ~np.uint64(0)
            while active[_at(word)] & remaining != 0:
                bit = trailing_zero_bits(active[_at(word)] & remaining)
                active[_at(word)] ^= _ONE << bit
                remaining = ~_ONE << bit
                v = np.int64((a * (np.uint64(word * 64) + bit) + b) & mask)
                visits += 1
                count = gather_sums(v, begins, ends, targets, weights, label, sums, touched)
                old = label[_at(v)]
                new = best_community(
                    v, mass, label, total, factor, seed, False, sums, touched, count
                )
                if new == old:
                    continue
                moves += 1
                label[_at(v)] = new
                move_mass(v, old, new, mass, total, True)
                for arc in range(begins[_at(v)], ends[_at(v)]):
                    u = targets[_at(arc)]
                    i = (np.uint64(u) - b) * back & mask
                    active[i >> _WORD_SHIFT] |= np.uint64(label[_at(u)] != new) << (i & _BIT)
        tallies[0] = moves
        tallies[2] += 1
        tallies[3] += visits
        if moves <= enough:
            return
        listed = 0
        for word in range(words):
            while active[_at(word)] != 0:
                bit = trailing_zero_bits(active[_at(word)])
                active[_at(word)] ^= _ONE << bit
                touched[_at(listed)] = (a * (np.uint64(word * 64) + bit) + b) & mask
                listed += 1


def _prefetch_visits(
    bits: Any, word: Any, a: Any, b: Any, mask: Any, begins: Any, ends: Any, label: Any
) -> None:
    """Prefetch what visits read first, of the vertices that are bits of a word."""
    while bits != 0:
        v = (a * (np.uint64(word * 64) + trailing_zero_bits(bits)) + b) & mask
        prefetch(begins, v)
        prefetch(ends, v)
        prefetch(label, v)
        bits &= bits - _ONE


def _prefetch_arcs(
    bits: Any, word: Any, a: Any, b: Any, mask: Any, begins: Any, targets: Any, weights: Any
) -> None:
    """Prefetch the first arcs of these vertices."""
    while bits != 0:
        begin = begins[(a * (np.uint64(word * 64) + trailing_zero_bits(bits)) + b) & mask]
        prefetch(targets, begin)
        prefetch(weights, begin)
        bits &= bits - _ONE


@kernel
def refine_communities(
    rank: int, size: int, control: Any, begins: Any, ends: Any, targets: Any, weights: Any, mass: Any,
    label: Any, total: Any, sums: Any, touched: Any, factor: float, seed: Any, part: Any,
    part_total: Any, grown: Any,
) -> None:  # fmt: skip
    """Divide each community into parts that are connected: Leiden's refinement, greedily.

    A vertex that is alone joins the part of its community that it belongs to best, if that is better than
    alone; parts never lose a vertex.

    :param begins: of k vertices, as for :func:`move_vertices`
    :param part: (n) part of each vertex: at first itself
    :param part_total: masses of each part: at first those of the vertex
    :param grown: uint8 (k) parts that others have joined: at first 0
    """
    k = begins.size
    a, b, mask = _order_of(seed, k)
    for i in range(mask + np.uint64(1)):
        if _stopped(control, i):
            return
        v = np.int64((a * np.uint64(i) + b) & mask)
        if v >= k or grown[_at(v)] != 0 or begins[_at(v)] == ends[_at(v)]:
            continue
        new = best_part(
            v, begins, ends, targets, weights, mass, label, total, factor, sums, touched, seed, 1, -1,
            part, part_total, grown,
        )  # fmt: skip
        if new != v:
            part[_at(v)] = new
            grown[_at(new)] = 1
            move_mass(v, v, new, mass, part_total, True)


@kernel
def aggregate(
    rank: int, size: int, control: Any, begins: Any, ends: Any, targets: Any, weights: Any, mass: Any,
    label: Any, member_ends: Any, members: Any, sums: Any, touched: Any, above: Any, new_begins: Any,
    new_ends: Any, new_targets: Any, new_weights: Any, new_mass: Any, counts: Any,
) -> None:  # fmt: skip
    """Make a vertex of each community, with an arc to each community that arcs of its vertices lead to.

    Communities with arcs come first, in the order of their ids, then those without, in this order, too, of
    which the last are the vertices that have no rows.

    :param begins: of k vertices, as for :func:`move_vertices`
    :param label: (n) community of each vertex, one of the k
    :param member_ends: (k + 1), all 0
    :param members: (k)
    :param above: (n) becomes the new vertex of each vertex
    :param new_begins: (k) or more, like ``new_ends``; of communities with arcs
    :param new_targets: as many as there are arcs, or more, like ``new_weights``
    :param new_mass: (n) or more
    :param counts: int64 (3): becomes the numbers of communities, of those with arcs, and of arcs
    """
    n, k = label.size, begins.size
    for v in range(k):
        member_ends[_at(label[_at(v)] + 1)] += 1
    for c in range(k):
        member_ends[_at(c + 1)] += member_ends[_at(c)]
    for v in range(k):
        c = label[_at(v)]
        members[_at(member_ends[_at(c)])] = v
        member_ends[_at(c)] += 1
    # Now each has the end of its members. Those without arcs are numbered -1, -2, ... at first.
    two = mass[1].size > 0
    first, with_arcs, without, used = 0, 0, 0, 0
    for c in range(k):
        last = member_ends[_at(c)]
        if first == last:
            continue
        if _stopped(control, first):
            return
        count = 0
        for i in range(first, last):
            v = members[_at(i)]
            count = add_row(v, c, begins, ends, targets, weights, label, sums, touched, count)
        if count > 0:
            number = with_arcs
            new_begins[_at(number)] = used
            for i in range(count):
                d = touched[_at(i)]
                new_targets[_at(used)] = d
                new_weights[_at(used)] = sums[_at(d)]
                sums[_at(d)] = 0
                used += 1
            new_ends[_at(number)] = used
            with_arcs += 1
        else:
            without += 1
            number = -without
        for i in range(first, last):
            above[_at(members[_at(i)])] = number
        first = last
    for v in range(k):
        number = above[_at(v)]
        above[_at(v)] = number if number >= 0 else with_arcs - 1 - number
    for v in range(k, n):
        above[_at(v)] = with_arcs + without + v - k
    for arc in range(used):
        # A community's id is not always the id of one of its vertices.
        d = new_targets[_at(arc)]
        new_targets[_at(arc)] = above[_at(members[_at(member_ends[_at(d)] - 1)])]
    count = with_arcs + without + n - k
    for side in range(2):
        if side == 1 and not two:
            break
        for c in range(count):
            new_mass[side][_at(c)] = 0
        for v in range(n):
            new_mass[side][_at(above[_at(v)])] += mass[side][_at(v)]
    counts[0] = count
    counts[1] = with_arcs
    counts[2] = used
