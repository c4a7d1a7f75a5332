"""Rows shared out among threads, and arrays as kernels want them: for all graph kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit import config
from godwit.dtypes import Array, frozen
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import block_range, run_team

SMALL_ARCS = 50_000
"""Inputs of fewer arcs are handled by one thread: waking others takes longer."""


def thread_count_for(arc_count: int) -> int:
    """Threads that are worth waking for work on so many arcs."""
    return 1 if arc_count < SMALL_ARCS else config.thread_count()


def bits_of(weights: Array | None) -> Array:
    """Weights as the integers of the same bits (int32 or int64); an empty array for None."""
    if weights is None:
        return frozen(np.empty(0, np.int32))
    return frozen(weights.view(np.int32 if weights.itemsize == 4 else np.int64))


def row_range(rank: int, size: int, offsets: Any) -> tuple[Any, Any]:
    """Rows [begin, end) for thread ``rank`` of ``size``, with about as many arcs as the others'."""
    rows = offsets.size - 1
    begin = 0
    end = rows
    if rank > 0:
        begin = _row_at(offsets, offsets[rows] * rank // size)
    if rank < size - 1:
        end = _row_at(offsets, offsets[rows] * (rank + 1) // size)
    return begin, end


def _row_at(offsets: Any, arc: Any) -> Any:
    """The first row that begins at this arc or after it."""
    low = 0
    high = offsets.size - 1
    while low < high:
        middle = (low + high) >> 1
        if offsets[middle] < arc:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _expand_rows(rank: int, size: int, control: Any, offsets: Any, sources: Any) -> None:
    """The source of every arc; threads take equal parts of the arcs, in mid-row if need be."""
    begin, end = block_range(rank, size, sources.size)
    if begin == end:
        return
    row = _row_at(offsets, begin + 1) - 1  # the last row that begins at `begin` or before
    i = begin
    while i < end:
        stop = min(end, offsets[row + 1])
        while i < stop:
            sources[i] = row
            i += 1
        row += 1


def arc_sources(offsets: Array, arc_count: int, id_dtype: np.dtype[Any]) -> Array:
    """(m) ids: the vertex that each arc leaves."""
    sources = np.empty(arc_count, id_dtype)
    if arc_count:
        run_team(_expand_rows, frozen(offsets), sources, threads=thread_count_for(arc_count))
    return sources
