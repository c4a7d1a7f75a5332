"""Parts of a graph: induced subgraphs, and the vertices within a number of hops.

The work is proportional to the arcs of the vertices involved, not to the graph: arrays of all vertices
begin as zeros, of which the operating system makes only the pages that are touched.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.graph.rows import (
    Rows,
    bits_of,
    estimate_bytes,
    require_memory,
    row_range,
    thread_count_for,
)
from godwit.runtime.cpu.atomics import fetch_add, fetch_or, load_relaxed
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import next_range, run_team

_CHUNK = 64  # vertices of a frontier that a thread claims at once
_BUFFER = 1024  # vertices that a thread collects before it appends them to the next frontier
_BIT: Any = np.uint32


def induced(rows: Rows, vertices: Array) -> Rows:
    """Return the rows of some vertices, renumbered in their order, with the arcs between these only.

    :param vertices: distinct, ascending
    :raises GraphTooLargeError: the copy does not fit into memory
    """
    n, dtype, count = rows.vertex_count, rows.targets.dtype, len(vertices)
    require_memory(dtype.itemsize * n + 16 * count, "a subgraph")
    numbers = np.zeros(n, dtype)  # of vertices in the subgraph, from 1; 0: outside
    numbers[vertices] = np.arange(1, count + 1, dtype=dtype)
    touched = np.zeros(count + 1, np.int64)  # offsets of all arcs of the vertices
    np.cumsum(rows.offsets[1:][vertices] - rows.offsets[:-1][vertices], out=touched[1:])
    threads = thread_count_for(int(touched[-1]))
    offsets = np.zeros(count + 1, np.int64)
    run_team(
        _count_inside, rows.offsets, rows.targets, vertices, numbers, touched, offsets,
        threads=threads,
    )  # fmt: skip
    np.cumsum(offsets, out=offsets)
    kept = int(offsets[-1])
    require_memory(estimate_bytes(0, kept, rows.arc_bytes), "a subgraph")
    targets = np.empty(kept, dtype)
    payload = bits_of(rows.weights)
    kept_payload = np.empty(0 if rows.weights is None else kept, payload.dtype)
    run_team(
        _copy_inside, rows.offsets, rows.targets, payload, vertices, numbers, touched, offsets,
        targets, kept_payload, threads=threads,
    )  # fmt: skip
    weights = None if rows.weights is None else kept_payload.view(rows.weights.dtype)
    return Rows(offsets, targets, weights)


@kernel
def _count_inside(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, vertices: Any, numbers: Any,
    touched: Any, counts: Any,
) -> None:  # fmt: skip
    """Write the number of arcs that row i of the subgraph has to ``counts[i + 1]``."""
    begin, end = row_range(rank, size, touched)
    for row in range(begin, end):
        v = vertices[row]
        count = 0
        for arc in range(offsets[v], offsets[v + 1]):
            count += 1 if numbers[targets[arc]] > 0 else 0
        counts[row + 1] = count


@kernel
def _copy_inside(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, payload: Any, vertices: Any,
    numbers: Any, touched: Any, new_offsets: Any, new_targets: Any, new_payload: Any,
) -> None:  # fmt: skip
    """Copy the arcs of the subgraph's rows, with renumbered targets."""
    begin, end = row_range(rank, size, touched)
    weighted = payload.size > 0
    for row in range(begin, end):
        v = vertices[row]
        to = new_offsets[row]
        for arc in range(offsets[v], offsets[v + 1]):
            number = numbers[targets[arc]]
            if number > 0:
                new_targets[to] = number - 1
                if weighted:
                    new_payload[to] = payload[arc]
                to += 1


def within_hops(rows: Rows, vertices: Array, hops: int) -> Array:
    """Return the vertices that paths of at most ``hops`` arcs from some vertices lead to, and these.

    :param vertices: distinct
    :returns: ascending, of the same dtype
    """
    n = rows.vertex_count
    seen = np.zeros((n + 31) // 32, np.uint32)
    np.bitwise_or.at(seen, vertices >> 5, np.uint32(1) << (vertices & 31).astype(np.uint32))
    found = [vertices]
    count = len(vertices)
    while hops > 0 and len(found[-1]) and count < n:
        frontier = found[-1]
        arcs = int((rows.offsets[1:][frontier] - rows.offsets[:-1][frontier]).sum())
        threads = thread_count_for(arcs)
        reached = np.empty(min(arcs, n - count), vertices.dtype)
        ends = np.zeros(1, np.int64)
        buffers = np.empty(threads * _BUFFER, vertices.dtype)
        run_team(
            _expand, rows.offsets, rows.targets, frontier, seen, reached, ends, buffers,
            threads=threads,
        )  # fmt: skip
        found.append(reached[: ends[0]])
        count += int(ends[0])
        hops -= 1
    return np.sort(np.concatenate(found))


def _append(reached: Any, ends: Any, buffers: Any, first: int, count: int) -> None:
    """Append the vertices of a thread's buffer to those that are reached."""
    to = fetch_add(ends, 0, count)
    for i in range(count):
        reached[to + i] = buffers[first + i]


@kernel
def _expand(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, frontier: Any, seen: Any,
    reached: Any, ends: Any, buffers: Any,
) -> None:  # fmt: skip
    """Mark and collect the vertices that arcs of the frontier lead to and that were not seen before.

    :param reached: gets these, in any order; ``ends[0]`` is their number
    """
    first = rank * _BUFFER
    held = 0
    while True:
        begin, end = next_range(control, _CHUNK, frontier.size)
        if begin >= end:
            break
        for i in range(begin, end):
            v = frontier[i]
            for arc in range(offsets[v], offsets[v + 1]):
                target = targets[arc]
                bit = _BIT(1) << _BIT(target & 31)
                if load_relaxed(seen, target >> 5) & bit:
                    continue
                if fetch_or(seen, target >> 5, bit) & bit:
                    continue
                buffers[first + held] = target
                held += 1
                if held == _BUFFER:
                    _append(reached, ends, buffers, first, held)
                    held = 0
    _append(reached, ends, buffers, first, held)
