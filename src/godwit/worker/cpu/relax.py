"""The operators by which a worklist runs a VertexProgram: relax the out-arcs of an active vertex.

There are two kinds of program, distinguished at compile time by ACCUMULATES:

- *improving* (combine min, max, or, and): a vertex's value only improves, so items may arrive in any order
  and twice. An item whose value is no longer the vertex's is useless: a better one is queued. So an item
  has the value that its vertex got; for ``or`` and ``and`` that is not the message, but its
  combination with earlier ones.
- *accumulating* (combine add): messages add up in the vertex's value; processing takes the value (leaving
  zero), passes it to ``update`` and sends it along the arcs. Invariant: a vertex is queued if and only if
  ``activate`` accepts its value.

Halo vertices (of other owners) have a value too. For improving programs it is the best value that has been
sent, so that messages that do not improve it are not sent (Groute 4.5); for accumulating ones it is the sum
not yet sent. Either way a halo vertex is in at most one outbox (``pending``), and its value is read when
the item leaves: updates of one remote vertex are merged meanwhile.

Operators that the instantiation binds are declared here without a body.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from godwit.runtime.cpu.atomics import (
    compare_exchange,
    exchange,
    fetch_add,
    load,
    load_relaxed,
    prefetch,
    store,
)
from godwit.runtime.cpu.team import block_range
from godwit.runtime.cpu.values import returned
from godwit.runtime.protocol import DROP, KEEP
from godwit.worker.cpu.worker import (
    ARCS,
    FILTERED,
    USELESS,
    note_overflow,
    push_local,
    push_to,
)

# Bound by the instantiation.
ACCUMULATES = False
BITWISE = False  # combine or, and
HAS_FIELD = False
WEIGHTED = False
SHARED = False  # several threads relax into the same values
HAS_HALO = True  # targets from `owned` on are halo vertices
VALUE = np.int64
FIELD = np.int64
IDENTITY: Any = 0  # improving programs: what every message improves on
LOWEST_VALUE: Any = 0
HIGHEST_VALUE: Any = 0
CHECKS_RANGE = False  # VALUE is an integer type: operators may return what it cannot hold
LOWEST_FIELD: Any = 0
HIGHEST_FIELD: Any = 0
CHECKS_FIELDS = False  # FIELD is an integer type


class ProgramState(NamedTuple):
    """A device's part of the state of a run."""

    offsets: Any  # int64 (owned + 1)
    targets: Any  # int32 or int64: local indices; owned <= t is halo vertex t - owned
    weights: Any  # or a single zero
    owned: int
    vertices: Any  # ids of the owned vertices; empty without halo, where keys are ids
    halo_owner: Any
    halo_remote: Any
    values: Any  # (owned)
    halo_values: Any
    pending: Any  # uint8 (halo)
    field: Any  # the program's state per vertex, or empty
    limit: Any  # (1), shared by all devices: candidates beyond it are dropped
    target: int  # local index of the vertex whose value lowers the limit, or -1
    parameters: Any  # float64


class Ends(NamedTuple):
    """Values that threads of one state write before and after a run, each for its part of the vertices."""

    first: Any  # the initial value of all vertices; or empty: they have theirs
    seed_keys: Any  # int64: vertices with other initial values
    seed_values: Any
    results: Any  # (n) of a dtype at least as wide; or empty: the values are the results
    never: Any  # result of vertices that no message has reached


def message(value: Any, weight: Any, degree: int, vertex: int, field: Any, p: Any) -> Any:
    """Return the message along an arc."""
    raise NotImplementedError


def improves(candidate: Any, current: Any) -> bool:
    """Return True if the candidate is better (improving programs)."""
    raise NotImplementedError


def combined(candidate: Any, current: Any) -> Any:
    """Return the value that a candidate makes of a worse one (improving programs)."""
    raise NotImplementedError


def activate(value: Any, p: Any) -> bool:
    """Return True if a vertex of this value needs processing."""
    raise NotImplementedError


def update(field: Any, value: Any, p: Any) -> Any:
    """Return the vertex's field after its value was taken."""
    raise NotImplementedError


# Compiled from here on.


def set_first_values(rank: int, size: int, state: Any, ends: Any) -> None:
    """Write the initial values of a thread's part of the vertices."""
    begin, end = block_range(rank, size, state.owned)
    if len(ends.first) > 0:
        for key in range(begin, end):
            store(state.values, key, ends.first[0])
    for index in range(len(ends.seed_keys)):
        seeded = load(ends.seed_keys, index)
        if begin <= seeded < end:
            store(state.values, seeded, load(ends.seed_values, index))


def write_results(rank: int, size: int, state: Any, ends: Any) -> None:
    """Write the results of a thread's part of the vertices.

    Values beyond the limit are not final, since they depend on the schedule: such vertices were never
    reached.
    """
    begin, end = block_range(rank, size, len(ends.results))
    never = ends.never[0]
    limit = load_relaxed(state.limit, 0)
    for key in range(begin, end):
        value = load(state.values, key)
        is_reached = value != IDENTITY
        if not ACCUMULATES and not BITWISE:
            is_reached = is_reached and not improves(limit, value)
        store(ends.results, key, value if is_reached else never)


def to_value(worklist: Any, wide: Any) -> Any:
    """Return a number as a value. A number that does not fit (NaN included) ends the run with an error.

    Until the workers have stopped, the identity replaces it, which improves nothing and adds nothing: so a
    number that does not fit is never stored, and no cycle of arcs keeps improving by it.
    """
    if CHECKS_RANGE and not (LOWEST_VALUE <= wide <= HIGHEST_VALUE):
        note_overflow(worklist)
        return VALUE(IDENTITY)
    return VALUE(wide)


def to_sum(worklist: Any, old: Any, amount: Any) -> Any:
    """Return the sum of two values; a sum that does not fit is treated as in `to_value`."""
    wide = old + amount
    if CHECKS_RANGE and ((old < 0) == (amount < 0)) and ((wide < 0) != (old < 0)):
        # A sum of 64-bit integers wrapped around; sums of 32-bit ones are computed in 64.
        note_overflow(worklist)
        return VALUE(IDENTITY)
    return to_value(worklist, wide)


def to_message(worklist: Any, wide: Any, value: Any) -> Any:
    """Return the message of a vertex's value as a value.

    In a program of integers that combines by min or max the identity does not fit either, since it means
    "not reached". (A vertex whose own value is the identity may send it.)
    """
    if CHECKS_RANGE and not ACCUMULATES and not BITWISE and wide == IDENTITY and value != IDENTITY:
        note_overflow(worklist)
    return to_value(worklist, wide)


def improve(values: Any, index: int, candidate: Any) -> tuple[bool, Any]:
    """Combine the candidate with the element if it is better; return (True if it was, new element)."""
    if SHARED:
        current = load_relaxed(values, index)
        while improves(candidate, current):
            new = VALUE(combined(candidate, current))
            if compare_exchange(values, index, current, new):
                return True, new
            current = load_relaxed(values, index)
        return False, current
    current = load(values, index)
    if improves(candidate, current):
        new = VALUE(combined(candidate, current))
        store(values, index, new)
        return True, new
    return False, current


def add_to(worklist: Any, values: Any, index: int, candidate: Any) -> tuple[Any, Any]:
    """Add the candidate to an element; return the old element and the new one."""
    if SHARED:
        old = fetch_add(values, index, candidate)
        return old, to_sum(worklist, old, candidate)
    old = load(values, index)
    new = to_sum(worklist, old, candidate)
    store(values, index, new)
    return old, new


def accumulate(worklist: Any, state: Any, index: int, candidate: Any) -> tuple[bool, Any]:
    """Add to an owned vertex's value; return (True if that made it active, new value)."""
    old, new = add_to(worklist, state.values, index, candidate)
    became_active = is_active(state, new) and not is_active(state, old)
    return became_active, new


def is_active(state: Any, value: Any) -> bool:
    """Return True if a vertex of this value needs processing."""
    return bool(returned(activate(value, state.parameters), "'activate'", np.bool_))


def note_target(state: Any, index: int, value: Any) -> None:
    """Lower the limit to a better value of the target: no worse value matters any more."""
    if index == state.target:
        limit = load_relaxed(state.limit, 0)
        while improves(value, limit):
            if compare_exchange(state.limit, 0, limit, value):
                return
            limit = load_relaxed(state.limit, 0)


def process_vertex(worklist: Any, state: Any, key: int, value: Any) -> None:
    """Relax the out-arcs of a vertex, unless the item is useless by now."""
    current = load_relaxed(state.values, key)
    if not ACCUMULATES and (value != current or improves(load_relaxed(state.limit, 0), value)):
        worklist.counts[USELESS] += 1
        return
    if is_active(state, current):
        relax_vertex(worklist, state, key, value)
    elif ACCUMULATES:
        worklist.counts[USELESS] += 1


def vertex_value(state: Any, key: int) -> Any:
    """Return the value of a vertex of the initial range."""
    return load_relaxed(state.values, key)


def prefetch_vertex(state: Any, far_key: int, near_key: int) -> None:
    """Prefetch the row of the far vertex, and the arcs of the near one."""
    prefetch(state.offsets, far_key)
    prefetch(state.values, far_key)
    begin = load(state.offsets, near_key)
    prefetch(state.targets, begin)
    if WEIGHTED:
        prefetch(state.weights, begin)


def relax_vertex(worklist: Any, state: Any, key: int, value: Any) -> None:
    """Send the vertex's message along its arcs."""
    begin = load(state.offsets, key)
    end = load(state.offsets, key + 1)
    degree = end - begin
    vertex = load(state.vertices, key) if HAS_HALO else state.targets.dtype.type(key)
    if ACCUMULATES:
        if SHARED:
            value = exchange(state.values, key, VALUE(0))
        else:
            value = load(state.values, key)
            store(state.values, key, VALUE(0))
    field = update_field(worklist, state, key, value) if HAS_FIELD else VALUE(0)
    limit = load_relaxed(state.limit, 0)
    worklist.counts[ARCS] += degree
    for arc in range(begin, end):
        weight = load(state.weights, arc) if WEIGHTED else VALUE(1)
        target: Any = np.int64(load(state.targets, arc))  # keys have one type
        candidate = to_message(
            worklist,
            returned(
                message(value, weight, degree, vertex, field, state.parameters), "'message'", VALUE
            ),
            value,
        )
        if ACCUMULATES or not improves(limit, candidate):
            if not HAS_HALO or target < state.owned:
                take_in(worklist, state, target, candidate)
            else:
                take_to_halo(worklist, state, target - state.owned, candidate)


def take_in(worklist: Any, state: Any, key: int, candidate: Any) -> None:
    """Combine a message with an owned vertex's value; queue the vertex if it needs processing then."""
    if ACCUMULATES:
        active, new = accumulate(worklist, state, key, candidate)
        if active:
            push_local(worklist, key, new)
    else:
        improved, new = improve(state.values, key, candidate)
        if improved:
            note_target(state, key, new)
            push_local(worklist, key, new)


def take_to_halo(worklist: Any, state: Any, halo: int, candidate: Any) -> None:
    """Combine a message with a halo vertex's value; send the vertex if that changed it."""
    if ACCUMULATES:
        add_to(worklist, state.halo_values, halo, candidate)
        send_halo(worklist, state, halo, candidate)
    else:
        improved, new = improve(state.halo_values, halo, candidate)
        if improved:
            send_halo(worklist, state, halo, new)
        else:
            worklist.counts[FILTERED] += 1


def to_field(worklist: Any, wide: Any, old: Any) -> Any:
    """Return a new field; a number that does not fit ends the run with an error."""
    if CHECKS_FIELDS and not (LOWEST_FIELD <= wide <= HIGHEST_FIELD):
        note_overflow(worklist)
        return old
    return FIELD(wide)


def update_field(worklist: Any, state: Any, key: int, value: Any) -> Any:
    """Pass the taken value to ``update``; return the vertex's new field."""
    old = load_relaxed(state.field, key)
    new = to_field(worklist, returned(update(old, value, state.parameters), "'update'", FIELD), old)
    if SHARED:
        while not compare_exchange(state.field, key, old, new):
            old = load_relaxed(state.field, key)
            new = to_field(
                worklist, returned(update(old, value, state.parameters), "'update'", FIELD), old
            )
    else:
        store(state.field, key, new)
    return new


def send_halo(worklist: Any, state: Any, halo: int, value: Any) -> None:
    """Put a halo vertex into an outbox, unless it is in one."""
    if load(state.pending, halo) == 0:
        store(state.pending, halo, 1)
        push_to(worklist, int(load(state.halo_owner, halo)), halo, value)
    else:
        worklist.counts[FILTERED] += 1


def vertex_fanout(state: Any, key: int) -> int:
    """Return the out-degree: every arc pushes at most one item."""
    return int(load(state.offsets, key + 1) - load(state.offsets, key))


def pack_halo(state: Any, key: int, value: Any) -> tuple[int, Any]:
    """Return the owner's index of a halo vertex, with its merged value."""
    store(state.pending, key, 0)
    merged = load(state.halo_values, key)
    if ACCUMULATES:
        store(state.halo_values, key, VALUE(0))
    return int(load(state.halo_remote, key)), merged


def unpack_owned(state: Any, key: int, value: Any) -> tuple[int, Any]:
    """Return the item with the value that its vertex gets by it; its key is the receiver's own index."""
    return key, VALUE(combined(value, load(state.values, key)))


def receive_vertex(worklist: Any, state: Any, key: int, value: Any) -> int:
    """Combine a message with the vertex's value; keep the item if the vertex needs processing then."""
    if ACCUMULATES:
        active, _ = accumulate(worklist, state, key, value)
        return KEEP if active else DROP
    if improves(load_relaxed(state.limit, 0), value):
        return DROP
    improved, _ = improve(state.values, key, value)
    if improved:
        note_target(state, key, value)
        return KEEP
    return DROP


def owner_is_here(state: Any, key: int) -> int:
    """Return 0; never called, since a vertex program addresses its items itself."""
    return 0


def pass_on(state: Any, key: int, value: Any) -> int:
    """Return DROP; never called, since a vertex program addresses its items itself."""
    return DROP
