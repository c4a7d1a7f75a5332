"""How many shortest paths lead from a source to every vertex, counted in arcs: half a search of Brandes'.

The search keeps the successors of each vertex (the heads of its arcs to the next level), in the order of
the queue, so that the way back reads one list from its end and asks no levels. Both inner loops are free of
branches: an arc is written to the list and the list's end moved on only where its head is *open* (not in
this level or an earlier one), a head is written to the queue and its end moved on only where no path to it
was counted before.

Counts of paths grow exponentially. Where one exceeds 2^900, all is done again with counts of the form
count * 2^(256 exponent), 1 <= count < 2^256 (``_WIDE``); what is added or divided lies within a few
exponents, or does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.runtime.cpu.atomics import load_acquire, prefetch
from godwit.runtime.cpu.team import ABORT

LARGEST_COUNT = 2.0**900
_RADIX = 2.0**256

# What a search returns besides the number of vertices that it reached.
ABORTED = -1
OVERFLOW = -2

# How far ahead in the queue rows are asked for.
_ROW_AHEAD = 12

# Bound by the driver: counts with exponents; shares of arcs.
_WIDE = False
_EDGES = False

# An index known not to be negative: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64


def raised(count: Any, exponent: Any, wanted: Any) -> Any:
    """A wide count written with a larger exponent; zero where that is far off."""
    while exponent < wanted and count != 0.0:
        count *= 1.0 / _RADIX
        exponent += 1
        if wanted - exponent > 4:
            return 0.0
    return count


def add_wide(counts: Any, exponents: Any, u: Any, count: Any, exponent: Any) -> None:
    """Add a wide count to that of u, which may be zero."""
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
    """Search from a source; returns the number of vertices reached.

    Leaves them in the queue; the successors of ``queue[i]`` in ``successors``, up to ``ends[i]``; for
    edges, the arcs to them in ``arcs``, and i in ``places[queue[i]]``. ``closed`` are those reached.

    :param search: memory of searches by weights; this one needs none
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
