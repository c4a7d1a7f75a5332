"""Rows of arcs that come in one block, or in several blocks that are read twice.

The first pass counts the arcs of each row, the second fills the rows: each block becomes sorted rows,
which are appended to the rows of the graph. Each row is then a sequence of sorted runs in the order of
the file, which are merged, stably. So the result does not depend on the blocks, and memory holds the
graph and one block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.graph.build import SMALL_ARCS, arcs_to_rows
from godwit.graph.rows import (
    Rows,
    bits_of,
    estimate_bytes,
    require_memory,
    row_range,
    thread_count_for,
)
from godwit.runtime.cpu.atomics import fetch_add, load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, block_range, run_team

_POLL_STEPS = 16_384


def rows_of_blocks(
    blocks: Callable[[], Iterable[tuple[Array, Array, Array | None]]],
    vertex_count: int,
    id_dtype: np.dtype[Any],
    weight_dtype: np.dtype[Any] | None,
    both_directions: bool,
    one_block: bool,
) -> Rows:
    """Return the rows of arcs in any order, each sorted by target, stably.

    :param blocks: a function whose every call iterates over all blocks (sources, targets, weights);
        ids are trusted, weights have ``weight_dtype``
    :param both_directions: store each pair a second time as its reverse, except self-loops
    :param one_block: True if there is only one block
    :raises GraphTooLargeError: before anything large is allocated
    """
    if one_block:
        for sources, targets, weights in blocks():
            is_small = len(sources) <= SMALL_ARCS  # sorted in less time than the test is compiled
            if not (both_directions or is_small) and _are_rows(sources, targets, id_dtype):
                return Rows(_row_begins(sources, vertex_count), targets, weights)
            return arcs_to_rows(
                sources, targets, weights, vertex_count, id_dtype, both_directions=both_directions
            )
    offsets = _count(blocks, vertex_count, id_dtype, both_directions)
    count, longest = int(offsets[-1]), int(np.diff(offsets).max(initial=0))
    threads = thread_count_for(count)
    arc_bytes = id_dtype.itemsize + (0 if weight_dtype is None else weight_dtype.itemsize)
    require_memory(
        estimate_bytes(vertex_count, count * arc_bytes, 1) + threads * longest * arc_bytes,
        f"a graph of {vertex_count:,} vertices and {count:,} arcs",
    )
    targets = np.empty(count, id_dtype)
    weights = None if weight_dtype is None else np.empty(count, weight_dtype)
    payload = np.empty(0, np.int32) if weights is None else weights.view(f"i{weights.itemsize}")
    # While rows are filled, entry v + 1 is where the next arc of v goes: in the end, that is v's end.
    offsets[1:] = offsets[:-1]
    for block in blocks():
        if len(block[0]) == 0:
            continue
        rows, row_targets, row_weights = arcs_to_rows(
            *block, vertex_count, id_dtype, both_directions=both_directions
        )
        arguments = (rows, row_targets, bits_of(row_weights), offsets, targets, payload)
        run_team(_append, *arguments, threads=thread_count_for(len(row_targets)))
    run_team(
        _merge_runs, offsets, targets, payload, np.empty((threads, longest), id_dtype),
        np.empty((threads, longest if payload.size else 0), payload.dtype), threads=threads,
    )  # fmt: skip
    return Rows(offsets, targets, weights)


def _are_rows(sources: Array, targets: Array, id_dtype: np.dtype[Any]) -> bool:
    """Return True if arcs are sorted by source and then by target, as many files are."""
    if targets.dtype != id_dtype or sources.dtype != id_dtype:
        return False
    threads = thread_count_for(len(sources))
    return all(run_team(_ascend, sources, targets, threads=threads))


def _row_begins(sources: Array, vertex_count: int) -> Array:
    require_memory(8 * (vertex_count + 1), f"a graph of {vertex_count:,} vertices")
    offsets = np.zeros(vertex_count + 1, np.int64)
    run_team(_begin_rows, sources, offsets, threads=thread_count_for(len(sources)))
    return offsets


@kernel
def _ascend(rank: int, size: int, control: Any, sources: Any, targets: Any) -> bool:
    """Return True if the arcs of this thread's part, and the one before it, are in order."""
    begin, end = block_range(rank, size, sources.size)
    for i in range(max(begin, 1), end):
        source = sources[i]
        before = sources[i - 1]
        if source < before or (source == before and targets[i] < targets[i - 1]):
            return False
    return True


@kernel
def _begin_rows(rank: int, size: int, control: Any, sources: Any, offsets: Any) -> None:
    """Write the CSR offsets of rows whose first arc is in this thread's block of the sorted arcs.

    The offsets of empty rows before them are written too; the last thread writes those behind the last arc.
    """
    begin, end = block_range(rank, size, sources.size)
    for i in range(begin, end):
        if i == 0 or sources[i] != sources[i - 1]:
            first = 0 if i == 0 else sources[i - 1] + 1
            for v in range(first, sources[i] + 1):
                offsets[v] = i
    if rank == size - 1:
        last = sources[sources.size - 1] + 1 if sources.size > 0 else 0
        for v in range(last, offsets.size):
            offsets[v] = sources.size


def _count(
    blocks: Callable[[], Iterable[tuple[Array, Array, Array | None]]],
    vertex_count: int,
    id_dtype: np.dtype[Any],
    both_directions: bool,
) -> Array:
    require_memory(8 * (vertex_count + 1), f"a graph of {vertex_count:,} vertices")
    offsets = np.zeros(vertex_count + 1, np.int64)
    for sources, targets, _ in blocks():
        run_team(
            _count_arcs, sources.astype(id_dtype, copy=False), targets.astype(id_dtype, copy=False),
            both_directions, offsets, threads=thread_count_for(len(sources)),
        )  # fmt: skip
    np.cumsum(offsets, out=offsets)
    return offsets


@kernel
def _count_arcs(
    rank: int, size: int, control: Any, sources: Any, targets: Any, both_directions: bool,
    counts: Any,
) -> None:  # fmt: skip
    """Add the number of arcs that leave v to ``counts[v + 1]``."""
    begin, end = block_range(rank, size, sources.size)
    for i in range(begin, end):
        if i % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        fetch_add(counts, sources[i] + 1, 1)
        if both_directions and sources[i] != targets[i]:
            fetch_add(counts, targets[i] + 1, 1)


@kernel
def _append(
    rank: int, size: int, control: Any, rows: Any, row_targets: Any, row_payload: Any, ends: Any,
    targets: Any, payload: Any,
) -> None:  # fmt: skip
    """Append each row of a block to the same row of the graph, and move the end of that row."""
    begin, end = row_range(rank, size, rows)
    weighted = payload.size > 0
    for v in range(begin, end):
        if v % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        shift = ends[v + 1] - rows[v]
        for arc in range(rows[v], rows[v + 1]):
            targets[arc + shift] = row_targets[arc]
            if weighted:
                payload[arc + shift] = row_payload[arc]
        ends[v + 1] += rows[v + 1] - rows[v]


@kernel
def _merge_runs(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, payload: Any,
    spare_targets: Any, spare_payload: Any,
) -> None:  # fmt: skip
    """Sort each row by merging its ascending runs in pairs, until there is one."""
    begin, end = row_range(rank, size, offsets)
    weighted = payload.size > 0
    for v in range(begin, end):
        if v % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        first = offsets[v]
        stop = offsets[v + 1]
        while _run_end(targets, first, stop) < stop:
            left = first
            while left < stop:
                middle = _run_end(targets, left, stop)
                last = _run_end(targets, middle, stop)
                i = left
                j = middle
                for to in range(left - first, last - first):
                    # Of equal targets the left one goes first, as in the file.
                    take_left = j >= last or (i < middle and targets[i] <= targets[j])
                    at = i if take_left else j
                    spare_targets[rank, to] = targets[at]
                    if weighted:
                        spare_payload[rank, to] = payload[at]
                    if take_left:
                        i += 1
                    else:
                        j += 1
                left = last
            for k in range(stop - first):
                targets[first + k] = spare_targets[rank, k]
                if weighted:
                    payload[first + k] = spare_payload[rank, k]


def _run_end(targets: Any, begin: Any, end: Any) -> Any:
    """Return the end of the ascending run that begins at ``begin``."""
    if begin >= end:
        return end
    at = begin + 1
    while at < end and targets[at - 1] <= targets[at]:
        at += 1
    return at
