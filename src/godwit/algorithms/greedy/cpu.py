"""Greedy passes on the CPU: threads take vertices in the order, a few at a time.

Invariant: ``value[v]`` is -1 until v is decided, and is written once, by the thread that took v. All
neighbours before v are taken when v is. A neighbour that is decided while v is not comes before v, as
others wait for v.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from godwit.algorithms.greedy.order import Kind, degrees, ranks_of
from godwit.algorithms.pagerank.in_arcs import thread_count
from godwit.dtypes import Array, frozen
from godwit.graph.csr import Graph
from godwit.graph.facts import in_arcs
from godwit.graph.rows import require_memory
from godwit.runtime.cpu.atomics import load_acquire, load_relaxed, store_relaxed, yield_thread
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, CURSOR, new_control, next_range, run_team

_CHUNK = 32  # vertices that a thread takes at once
_SPINS = 200  # of a wait before the core is left to others

_at: Any = np.uint64
_DIRECTED = False  # bound when a kernel is made: there are in-rows, too


def decide_on_cores(
    graph: Graph, kind: Kind, order: Array, threads: int | None,
    poll: Callable[[int], None] | None,
) -> Array:  # fmt: skip
    """Return the decision of each vertex, int32 (n).

    :param threads: upper limit; None: all of the process. Small graphs use one
    :param poll: called now and then by the calling thread with the number of vertices taken so far
    :raises GraphTooLargeError: the arrays do not fit into memory
    """
    n = graph.vertex_count
    threads = thread_count(graph, threads)
    most = int(degrees(graph).max(initial=0)) + 2 if kind is Kind.COLOR else 0
    require_memory(12 * n + 8 * threads * most, f"a {kind.value} of {n:,} vertices")
    reverse = in_arcs(graph) if graph.directed else graph
    value = np.full(n, -1, np.int32)
    control = new_control()
    run_team(
        _KERNELS[kind, graph.directed],
        graph.offsets,
        graph.targets,
        reverse.offsets,
        reverse.targets,
        frozen(order),
        frozen(ranks_of(order)),
        value,
        np.full(threads * most, -1, np.int64),
        threads=threads,
        control=control,
        poll=None if poll is None else lambda: poll(min(n, int(control[CURSOR]))),
    )
    return value


def _awaited(control: Any, rank_of: Any, value: Any, target: Any, rank: Any) -> Any:
    """Return the decision of a neighbour, after waiting for it if it comes first; -1 if it comes later."""
    decision = load_relaxed(value, target)
    if decision >= 0 or rank_of[_at(target)] >= rank:
        return decision
    spins = 0
    while decision < 0:
        spins += 1
        if spins > _SPINS:
            yield_thread()
            if load_acquire(control, ABORT) != 0:
                return decision
        decision = load_relaxed(value, target)
    return decision


def _has_member(
    control: Any, offsets: Any, targets: Any, rank_of: Any, value: Any, v: Any, rank: Any
) -> bool:
    """Return True if a neighbour of vertex ``v`` is in the independent set."""
    for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
        if _awaited(control, rank_of, value, targets[_at(arc)], rank) > 0:
            return True
    return False


def _mark_colors(
    control: Any, offsets: Any, targets: Any, rank_of: Any, value: Any, v: Any, rank: Any,
    marks: Any, first: Any, most: Any,
) -> None:  # fmt: skip
    """Mark the colours of the neighbours in a row, below ``most``, with the rank of the vertex."""
    for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
        color = _awaited(control, rank_of, value, targets[_at(arc)], rank)
        if 0 <= color < most:
            marks[_at(first + color)] = rank


@kernel
def _choose_set(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, in_offsets: Any,
    in_targets: Any, order: Any, rank_of: Any, value: Any, marks: Any,
) -> None:  # fmt: skip
    """Decide which vertices are in the set."""
    while True:
        begin, end = next_range(control, _CHUNK, order.size)
        if begin >= end:
            return
        for place in range(begin, end):
            v = order[_at(place)]
            member = not _has_member(control, offsets, targets, rank_of, value, v, place)
            if _DIRECTED and member:
                member = not _has_member(control, in_offsets, in_targets, rank_of, value, v, place)
            store_relaxed(value, v, np.int32(member))


@kernel
def _choose_colors(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, in_offsets: Any,
    in_targets: Any, order: Any, rank_of: Any, value: Any, marks: Any,
) -> None:  # fmt: skip
    """Decide colours.

    :param marks: a range for each thread: for each colour, the rank of the last vertex that saw it
    """
    room = marks.size // size
    first = rank * room
    while True:
        begin, end = next_range(control, _CHUNK, order.size)
        if begin >= end:
            return
        for place in range(begin, end):
            v = order[_at(place)]
            # The vertex gets at most as large a number as it has arcs.
            most = offsets[_at(v + 1)] - offsets[_at(v)]
            if _DIRECTED:
                most += in_offsets[_at(v + 1)] - in_offsets[_at(v)]
            _mark_colors(control, offsets, targets, rank_of, value, v, place, marks, first, most)
            if _DIRECTED:
                _mark_colors(
                    control, in_offsets, in_targets, rank_of, value, v, place, marks, first, most
                )
            color = 0
            while color < most and marks[_at(first + color)] == place:
                color += 1
            store_relaxed(value, v, np.int32(color))


_KERNELS = {
    (kind, directed): function.bind(_DIRECTED=directed)
    for kind, function in ((Kind.SET, _choose_set), (Kind.COLOR, _choose_colors))
    for directed in (False, True)
}
