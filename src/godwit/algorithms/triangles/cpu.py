"""Triangles on the CPU: each is found at its middle corner, by marks of lower neighbours.

Let w < v < u be the positions of a triangle's corners. A thread that takes v marks the lower neighbours of
v, and reads for each upper neighbour u of v the lower neighbours of u that come before v, which are the
front of its sorted row: the marked ones are the corners w. So a row of u is read once for each of its lower
neighbours, up to it, which is about as few steps as the shorter row of each edge has, without a search. A
mark is the value of its edge, 1 or 0 where all edges count alike, so that counting needs no branch.

Each thread adds up in an array of its own. Counts are exact, whatever the threads; sums of values differ by
rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.triangles.rows import DegreeRows
from godwit.dtypes import Array
from godwit.graph.rows import require_memory, thread_count_for
from godwit.runtime.cpu.atomics import load_acquire, prefetch
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, CURSOR, new_control, next_range, run_team

_CHUNK = 32
"""Rows that a thread claims at once."""
_OFFSETS_AHEAD, _ROWS_AHEAD = 16, 8
"""Arcs ahead of which the offset of a row, and its first lines, are prefetched: twice as fast on R-MAT."""
_LINE_IDS = 16
"""Ids of a line of memory."""

_at: Any = np.uint64
_VALUED = False  # bound when a kernel is made: edges have values


def sum_on_cores(
    rows: DegreeRows, threads: int | None, poll: Callable[[int], None] | None
) -> Array:
    """Return, by position, the number of triangles, int64 (n), or the sum of their products, float64 (n).

    :param threads: upper limit; None: all of the process. Small graphs use one
    :param poll: called now and then with the number of vertices done; an exception ends the run
    :raises GraphTooLargeError: the arrays of one thread do not fit into memory
    """
    n, valued = len(rows.splits), len(rows.values) > 0
    count = thread_count_for(len(rows.targets))
    count = count if threads is None else min(count, threads)
    marks_dtype, dtype = (np.float64, np.float64) if valued else (np.uint8, np.int64)
    each = n * (np.dtype(marks_dtype).itemsize + np.dtype(dtype).itemsize)
    while count > 1 and config.missing_memory_bytes(count * each) is not None:
        count -= 1
    require_memory(count * each, "a count of triangles")
    sums = np.zeros((count, n), dtype)
    marks = np.zeros((count, n), marks_dtype)
    control = new_control()
    run_team(
        _SUM[valued], rows.offsets, rows.splits, rows.targets, rows.values, marks, sums,
        threads=count,
        control=control,
        poll=None if poll is None else lambda: poll(min(int(control[CURSOR]), n)),
    )  # fmt: skip
    total: Array = sums[0] if count == 1 else sums.sum(axis=0)
    return total


@kernel
def _sum(
    rank: int, size: int, control: Any, offsets: Any, splits: Any, targets: Any, values: Any,
    all_marks: Any, all_sums: Any,
) -> None:  # fmt: skip
    """Add the triangles of claimed middle corners to the sums of this thread."""
    marks = all_marks[rank]
    sums = all_sums[rank]
    n = splits.size
    one = np.int64(1)
    while True:
        begin, end = next_range(control, _CHUNK, n)
        if begin >= end:
            return
        for v in range(begin, end):
            first = offsets[_at(v)]
            split = splits[_at(v)]
            last = offsets[_at(v + 1)]
            if split in (first, last):
                continue
            if load_acquire(control, ABORT) != 0:
                return
            for arc in range(first, split):
                marks[_at(targets[_at(arc)])] = values[_at(arc)] if _VALUED else 1
            total = sums[_at(v)]
            for arc in range(split, last):
                u = targets[_at(arc)]
                if arc + _OFFSETS_AHEAD < last:
                    prefetch(offsets, np.int64(targets[_at(arc + _OFFSETS_AHEAD)]))
                if arc + _ROWS_AHEAD < last:
                    ahead = offsets[_at(targets[_at(arc + _ROWS_AHEAD)])]
                    prefetch(targets, ahead)
                    prefetch(targets, ahead + _LINE_IDS)
                at = offsets[_at(u)]
                factor = values[_at(arc)] if _VALUED else one
                found = total * 0
                w = targets[_at(at)]
                while w < v:
                    if _VALUED:
                        product = factor * (marks[_at(w)] * values[_at(at)])
                    else:
                        product = np.int64(marks[_at(w)])
                    sums[_at(w)] += product
                    found += product
                    at += 1
                    w = targets[_at(at)]
                sums[_at(u)] += found
                total += found
            sums[_at(v)] = total
            for arc in range(first, split):
                marks[_at(targets[_at(arc)])] = 0


_SUM = {valued: _sum.bind(_VALUED=valued) for valued in (False, True)}
