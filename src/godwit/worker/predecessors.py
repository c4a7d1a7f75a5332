"""Predecessors in vertex programs that combine by min or max: the vertex from which each value came.

An arc u -> v is *tight* if u was processed and the message of its final value equals the value of v.
Vertices with their own initial value have no predecessor. The result is a function of graph, program and
values, so it is equal for every number of threads and devices:

1. The predecessor of v is the smallest u with a tight arc u -> v and a better value than v. Along these
   arcs values get worse, so they close no cycle.
2. The remaining vertices have tight arcs from vertices of equal value only, which may close cycles, hence
   rounds: in round k = 1, 2, ... every vertex without a predecessor takes the smallest u that has the same
   value and a tight arc to it, and that has its own initial value or got its predecessor before round k.
3. If that leaves a vertex without a predecessor, values improve along some arcs (longest paths, negative
   weights). Then predecessors are chosen anew for all vertices, by rounds over all tight arcs, which begin
   with the vertices that have their own initial value: so paths have as few arcs as possible.

This takes for granted that a message is no worse for a better value. Otherwise the message by which v got
its value may not be that of u's final value, and v remains without a predecessor, which is an error.

Rule 1 is one parallel pass over the arcs, which notes each tight arc in a byte. Rules 2 and 3 are serial
searches from the settled vertices; shortest paths with positive weights do not need them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit import config
from godwit.arrays import ResultLocation
from godwit.dtypes import Array, frozen
from godwit.errors import InputError, OperatorError, shown
from godwit.graph.csr import Graph
from godwit.graph.rows import require_memory
from godwit.runtime.cpu.atomics import fetch_min, load_acquire
from godwit.runtime.cpu.combinations import IMPROVES
from godwit.runtime.cpu.compile import Kernel, kernel
from godwit.runtime.cpu.team import ABORT, next_range, run_team
from godwit.worker.program import VertexProgram
from godwit.worker.task import Start, initial_state

ALONE_ARCS = 60_000
"""Graphs of fewer arcs are processed by one thread: waking others takes longer."""
_CHUNK = 512  # vertices that a thread claims at a time

# States of a vertex.
SETTLED = 0  # has its own initial value, or a predecessor
OPEN = 1
_NEW = 2  # got a predecessor in this round, perhaps not the smallest yet
_IDLE = 3  # was not reached

# Tight arcs, by the value of their source: a byte for each arc, whose bits a search selects.
EQUAL = 1
_BETTER = 2
_WORSE = 4

# Cast of an index that is not negative: saves Numba's test for Python's a[-1].
_at: Any = np.uint64


@dataclass(frozen=True)
class Origin:
    """A vertex program with its input but the graph, from which a solution was computed.

    :param start: initial work, by position
    :param parameters: values of the program's parameters, float64
    :param is_limited: values beyond a limit were reset
    :param location: of the results
    """

    program: VertexProgram
    start: Start
    parameters: Array
    is_limited: bool
    location: ResultLocation


@dataclass(frozen=True)
class Predecessors:
    """Predecessors in a solution.

    :ivar before: (n) the vertex before each one, dtype of the graph's ids; -1: none
    :ivar is_reached: (n) False for vertices that no path leads to
    """

    before: Array
    is_reached: Array


def predecessors_of(graph: Graph, values: Array, origin: Origin) -> Predecessors:
    """Return the predecessors by final values, which are on the host.

    :raises InputError: the program does not combine by min or max, or has fields
    :raises OperatorError: no message equals the value of a vertex
    """
    program = origin.program
    if program.combine not in ("min", "max") or program.field_dtype is not None:
        what = f"combines by {program.combine!r}" if program.field_dtype is None else "has fields"
        raise InputError(
            "predecessors are of programs without fields that combine by 'min' or 'max'; "
            f"{program.name!r} {what}"
        )
    require_memory(
        graph.arc_count + 24 * graph.vertex_count, f"the predecessors in {program.name!r}"
    )
    own, is_start = initial_state(program, origin.start, graph)
    is_reached = is_start | (values != own)
    if origin.is_limited:
        is_reached &= values != program.identity
    state = np.full(graph.vertex_count, _IDLE, np.uint8)
    state[is_reached] = np.where(values == own, np.uint8(SETTLED), np.uint8(OPEN))[is_reached]
    before = np.full(graph.vertex_count, -1, graph.id_dtype)
    candidates = candidates_of(before)
    kinds = np.zeros(graph.arc_count, np.uint8)
    weighted = program.operators.uses_weight and graph.weights is not None
    weights = graph.weights if weighted and graph.weights is not None else np.zeros(1, np.int32)
    run_team(
        _tight_arcs_of(program, weighted=weighted), frozen(graph.offsets), frozen(graph.targets),
        frozen(weights), frozen(values), state, frozen(origin.parameters), kinds, candidates,
        threads=1 if graph.arc_count < ALONE_ARCS else config.thread_count(),
    )  # fmt: skip
    is_open = state == OPEN
    state[is_open & (before >= 0)] = SETTLED
    if (state == OPEN).any():
        search(graph, kinds, EQUAL, candidates, state)
    if (state == OPEN).any():
        before[:] = -1
        state[is_open] = OPEN
        search(graph, kinds, EQUAL | _BETTER | _WORSE, candidates, state)
    if (state == OPEN).any():
        vertex = int(np.argmax(state == OPEN))
        raise OperatorError(
            f"no message equals the value of vertex {shown(graph.ids[vertex])} ({values[vertex]}): "
            f"predecessors need that 'message' of {program.name!r} is no worse for a better value"
        )
    return Predecessors(before, is_reached)


def path_by(before: Array, position: int) -> list[int]:
    """Return the positions from the first vertex to a position, both included, by predecessors."""
    path = [position]
    while (previous := int(before[path[-1]])) >= 0:
        path.append(previous)
    return path[::-1]


def candidates_of(before: Array) -> Array:
    """Return predecessors as unsigned numbers: -1 is larger than every id, the identity of min."""
    return before.view(np.uint32 if before.itemsize == 4 else np.uint64)


def search(graph: Graph, kinds: Array, selected: int, candidates: Array, state: Array) -> None:
    """Settle open vertices in rounds, from settled ones along tight arcs.

    :param kinds: (arcs) uint8, the kind of each tight arc to an open vertex, or 0
    :param selected: kinds of the arcs to go along, as bits
    :param candidates: (n) predecessors, changed for open vertices (:func:`candidates_of`)
    :param state: (n) uint8, SETTLED for those that become settled
    """
    queue = np.empty(int(np.count_nonzero(state == OPEN)), graph.id_dtype)
    run_team(
        _search, frozen(graph.offsets), frozen(graph.targets), kinds, selected, candidates, state,
        queue, threads=1,
    )  # fmt: skip


def _offer(
    u: Any, offsets: Any, targets: Any, kinds: Any, selected: int, candidates: Any, state: Any,
    queue: Any, tail: int,
) -> int:  # fmt: skip
    """Offer a settled vertex as predecessor to open ones that its tight arcs lead to."""
    for arc in range(offsets[_at(u)], offsets[_at(u) + _at(1)]):
        if kinds[_at(arc)] & selected == 0:
            continue
        v = targets[_at(arc)]
        if state[_at(v)] == OPEN:
            state[_at(v)] = _NEW
            queue[_at(tail)] = v
            tail += 1
        if state[_at(v)] == _NEW:
            candidates[_at(v)] = min(candidates[_at(v)], candidates.dtype.type(u))
    return tail


@kernel
def _search(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, kinds: Any, selected: int,
    candidates: Any, state: Any, queue: Any,
) -> None:  # fmt: skip
    """Run the rounds on one thread: the vertices settled in a round are a range of the queue."""
    head = 0
    tail = 0
    for u in range(state.size):
        if state[_at(u)] == SETTLED:
            tail = _offer(u, offsets, targets, kinds, selected, candidates, state, queue, tail)
        if u & 4095 == 0 and load_acquire(control, ABORT) != 0:
            return
    while head < tail:
        end = tail
        for i in range(head, end):
            state[_at(queue[_at(i)])] = SETTLED
        for i in range(head, end):
            tail = _offer(
                queue[_at(i)], offsets, targets, kinds, selected, candidates, state, queue, tail
            )  # fmt: skip
            if i & 4095 == 0 and load_acquire(control, ABORT) != 0:
                return
        head = end


@kernel
def offer(
    rank: int, size: int, control: Any, settled: Any, offsets: Any, targets: Any, kinds: Any,
    selected: int, candidates: Any, state: Any, queue: Any, ends: Any,
) -> None:  # fmt: skip
    """Run one round on one thread: queue the open vertices that settled ones lead to, up to ``ends[0]``."""
    tail = 0
    for i in range(settled.size):
        tail = _offer(
            settled[_at(i)], offsets, targets, kinds, selected, candidates, state, queue, tail
        )  # fmt: skip
        if i & 4095 == 0 and load_acquire(control, ABORT) != 0:
            return
    ends[0] = tail


# Bound by the instantiation.

VALUE = np.int64
WEIGHTED = False


def message(value: Any, weight: Any, degree: int, vertex: int, field: Any, p: Any) -> Any:
    """Return the message along an arc."""
    raise NotImplementedError


def activate(value: Any, p: Any) -> bool:
    """Return True if a vertex of this value is processed."""
    raise NotImplementedError


def improves(candidate: Any, current: Any) -> bool:
    """Return True if the candidate is better."""
    raise NotImplementedError


@kernel
def _tight_arcs(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, weights: Any, values: Any,
    state: Any, parameters: Any, kinds: Any, candidates: Any,
) -> None:  # fmt: skip
    """Note tight arcs to open vertices, and offer the smallest source to each (rule 1)."""
    while True:
        begin, end = next_range(control, _CHUNK, offsets.size - 1)
        if begin == end:
            break
        for u in range(begin, end):
            value = values[_at(u)]
            if state[_at(u)] == _IDLE or not activate(value, parameters):
                continue
            first = offsets[_at(u)]
            last = offsets[_at(u + 1)]
            for arc in range(first, last):
                v = targets[_at(arc)]
                if state[_at(v)] != OPEN:
                    continue
                weight = weights[_at(arc)] if WEIGHTED else VALUE(1)
                sent = message(
                    value, weight, last - first, targets.dtype.type(u), VALUE(0), parameters
                )
                there = values[_at(v)]
                if VALUE(sent) != there:
                    continue
                if value == there:
                    kinds[_at(arc)] = EQUAL
                elif improves(value, there):
                    kinds[_at(arc)] = _BETTER
                    fetch_min(candidates, _at(v), candidates.dtype.type(u))
                else:
                    kinds[_at(arc)] = _WORSE


def _tight_arcs_of(program: VertexProgram, *, weighted: bool) -> Kernel:
    """Return the kernel that notes tight arcs, with the program's operators, made once."""
    operators = program.operators
    key = ("predecessors", weighted)
    made: Kernel | None = operators.compiled.get(key)
    if made is None:
        made = operators.compiled[key] = _tight_arcs.bind(
            message=operators.message,
            activate=operators.activate,
            improves=IMPROVES[operators.combine],
            VALUE=operators.value_dtype.type,
            WEIGHTED=weighted,
        )
    return made
