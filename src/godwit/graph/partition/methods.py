"""Built-in partitioners: contiguous, random, biased random, METIS.

A partitioner is a function ``(graph, parts, seed) -> Division``, called with 2 <= parts <= n. None
of these leaves a part empty, and equal seeds give equal owners.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from godwit.dtypes import Array, as_integers, frozen
from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.graph.hashing import mix, seed_word, unit
from godwit.graph.partition.metis import least_volume
from godwit.runtime.cpu.atomics import load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, run_team

_VERTEX_COST_ARCS = 1
"""The cost of owning a vertex, in arcs: isolated vertices have state and results, too."""

_NEIGHBOUR_SHARE = 0.5
_BIASED_SLACK = 1.02  # a part that has this many times the mean of arcs gets no more
_POLL_STEPS = 65_536  # vertices between two looks at the abort word


class Division(NamedTuple):
    """The result of a partitioner: (n) int32 owners, the method that was used, and a note."""

    owner: Array
    method: str
    note: str = ""


def contiguous(graph: Graph, parts: int, seed: int) -> Division:
    """Divide into ranges of vertices with about equal arcs + vertices; none is empty where n >= parts."""
    n, offsets = graph.vertex_count, graph.offsets
    total = graph.arc_count + _VERTEX_COST_ARCS * n

    def cost(v: int) -> int:
        return (int(offsets[v]) + _VERTEX_COST_ARCS * v) * parts

    boundaries = [0]
    for i in range(1, parts):
        ideal = total * i
        v = bisect_left(range(n + 1), ideal, key=cost)
        if v > 0 and ideal - cost(v - 1) < cost(v) - ideal:
            v -= 1
        boundaries.append(min(max(v, boundaries[-1] + 1), n - (parts - i)))
    boundaries.append(n)
    return Division(np.repeat(np.arange(parts, dtype=np.int32), np.diff(boundaries)), "contiguous")


def random(graph: Graph, parts: int, seed: int) -> Division:
    """Divide at random into equal numbers of vertices."""
    n = graph.vertex_count
    owner = (np.arange(n, dtype=np.int64) * parts // max(n, 1)).astype(np.int32)
    np.random.default_rng(seed).shuffle(owner)
    return Division(owner, "random")


@kernel
def _assign_biased(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, order: Any, seed: Any,
    capacity: float, owner: Any, load: Any, near: Any,
) -> None:  # fmt: skip
    """Assign the vertices to parts in the order given; for one thread, as each choice depends on the last.

    ``load`` and ``near`` are (k) zeros; ``owner`` is -1 throughout.
    """
    parts = load.size
    for step in range(order.size):
        if step % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        v = order[step]
        begin = offsets[v]
        end = offsets[v + 1]
        assigned = 0.0
        for i in range(begin, end):
            part = owner[targets[i]]
            if part >= 0 and load[part] < capacity:
                near[part] += 1.0
                assigned += 1.0
        room = 0.0
        lightest = 0
        for part in range(parts):
            room += max(capacity - load[part], 0.0)
            if load[part] < load[lightest]:
                lightest = part
        draw = unit(mix(seed + np.uint64(step)))
        by_neighbours = assigned > 0.0 and draw < _NEIGHBOUR_SHARE
        if by_neighbours:
            draw *= assigned / _NEIGHBOUR_SHARE
        elif assigned > 0.0:
            draw = (draw - _NEIGHBOUR_SHARE) * (room / (1.0 - _NEIGHBOUR_SHARE))
        else:
            draw *= room
        # The first vertices go to the lightest part, so that none stays empty; so does a vertex for
        # which rounding has left no room.
        chosen = lightest
        if step >= parts:
            for part in range(parts):
                draw -= near[part] if by_neighbours else max(capacity - load[part], 0.0)
                if draw < 0.0:
                    chosen = part
                    break
        if assigned > 0.0:
            for part in range(parts):
                near[part] = 0.0
        owner[v] = chosen
        load[chosen] += end - begin + _VERTEX_COST_ARCS


def biased_random(graph: Graph, parts: int, seed: int) -> Division:
    """Divide at random, biased towards the part with more of the vertex' neighbours.

    The vertices are visited in random order. Half of the draws (Gunrock's factor) pick a part in
    proportion to the neighbours along out-arcs that it owns already; the others, and those of
    vertices without an assigned neighbour, in proportion to its remaining room. A part that has
    its share of arcs gets no more, so that, unlike in Gunrock, the bias cannot unbalance parts.
    """
    n = graph.vertex_count
    order = np.arange(n, dtype=graph.id_dtype)
    np.random.default_rng(seed).shuffle(order)
    owner = np.full(n, -1, np.int32)
    total = graph.arc_count + _VERTEX_COST_ARCS * n
    run_team(
        _assign_biased, graph.offsets, graph.targets, frozen(order), seed_word(seed),
        total / parts * _BIASED_SLACK, owner, np.zeros(parts), np.zeros(parts), threads=1,
    )  # fmt: skip
    return Division(owner, "biased-random")


def metis(graph: Graph, parts: int, seed: int) -> Division:
    """Divide by METIS' k-way partition of least communication volume; ``contiguous`` where it fails."""
    try:
        owner = _run_metis(graph, parts, seed)
    except ImportError as error:
        reason = f"pymetis cannot be imported ({error})"
    except Exception as error:  # a foreign library raises anything, which must not end the run
        reason = f"it failed ({str(error) or type(error).__name__})"
    else:
        empty = parts - np.count_nonzero(np.bincount(owner, minlength=parts))
        if empty == 0:
            return Division(owner, "metis")
        reason = f"it left {empty} of {parts} parts empty"
    note = f"contiguous in place of metis: {reason}"
    return contiguous(graph, parts, seed)._replace(note=note)


def _run_metis(graph: Graph, parts: int, seed: int) -> Array:
    """Run METIS on the undirected graph without self-loops and parallel arcs, as it requires."""
    skeleton = graph.without_weights().symmetrize().merge_parallel_arcs().remove_self_loops()
    if skeleton.arc_count == 0:
        raise InputError("no two vertices are joined")
    work = graph.out_degree() + _VERTEX_COST_ARCS  # the work of a solver, on the graph itself
    owner = least_volume(skeleton.offsets, skeleton.targets, work, parts, seed)
    return checked_owner(graph, parts, owner, "its result")


PARTITIONERS: dict[str, Callable[[Graph, int, int], Division]] = {
    "contiguous": contiguous,
    "random": random,
    "biased-random": biased_random,
    "metis": metis,
}
"""The partitioners by name; each is called with at least two parts, and at most n."""


def checked_owner(graph: Graph, parts: int, owner: Any, name: str) -> Array:
    """Return owners as a new (n) int32 array; InputError naming the first that is wrong."""
    try:
        array = as_integers(owner, name)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} cannot be read as owners of vertices: {error}") from error
    n = graph.vertex_count
    if len(array) != n:
        raise InputError(f"{name} must have an owner for each of {n} vertices, got {len(array)}")
    if n and (array.min() < 0 or array.max() >= parts):
        v = int(np.argmax((array < 0) | (array >= parts)))
        raise InputError(f"{name}[{v}] must be a part in [0, {parts}), got {array[v]}")
    return array.astype(np.int32)
