"""Priority queue of a thread's search by weights: a ring of buckets, and a heap in the current one.

B. Cherkassky, A. Goldberg, C. Silverstein, Buckets, heaps, lists, and monotone priority queues, SIAM
Journal on Computing 28 (1999): heap-on-top. The width of buckets is a power of two: dividing by it is
exact, and rounding is monotone, so no sum falls below a multiple of it. If buckets are no wider than the
smallest weight, no vertex of a bucket is reached from another one in it, and the heap may be a stack.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

BUCKETS = 4096
"""Buckets of the ring."""
_LEAST_EXPONENT = -1000  # of the width of a bucket, whose reciprocal is finite

# Unsigned index: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64


def bucket_width(smallest: float, largest: float) -> tuple[float, bool]:
    """Return the width of buckets for a range of weights, and whether it exceeds the smallest.

    The ring holds the current bucket, those of sums with all weights, and two for roundings.
    """
    exponent = math.frexp(smallest)[1] - 1
    least = math.frexp(largest)[1] - math.frexp(BUCKETS - 3)[1] + 1
    least = max(least, _LEAST_EXPONENT)
    return 2.0 ** max(exponent, least), least > exponent


def sift_up(keys: Any, entries: Any, size: Any, key: Any, entry: Any) -> None:
    """Add an entry to a 4-ary heap of a size."""
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


def sift_down(keys: Any, entries: Any, size: Any) -> None:
    """Remove the first entry of a heap, of which ``size`` entries are left."""
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
