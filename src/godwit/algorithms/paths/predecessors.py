"""Predecessors by final distances: the vertex before each one on a shortest path.

An arc u -> v is *tight* if ``distance[u] + weight == distance[v]``, computed in the dtype of the
distances, as the engines compute it. The result is a function of graph and distances, so it is equal for
every number of threads and devices:

1. The predecessor of v is the smallest u with a tight arc u -> v and ``distance[u] < distance[v]``.
   Along these arcs distances grow, so they close no cycle.
2. The tight arcs of the remaining vertices all come from vertices of equal distance: their weights are
   zero, or too small to change the floating-point sum. Such arcs close cycles, hence rounds: in round
   k = 1, 2, ... every vertex without a predecessor takes the smallest u that has a tight arc to it and
   that is a source or got its predecessor before round k. A predecessor is settled before its vertex, so
   there is no cycle here either, and a vertex keeps no predecessor only if no source reaches it by tight
   arcs.

Rule 1 is one parallel pass. If the graph has in-arcs (it is undirected, or its reverse has been built),
every vertex searches its own; in sorted rows the first tight arc is the answer, soon after a BFS.
Otherwise vertices push their ids along their out-arcs, and the smallest stays. Rule 2 is a pass that notes
tight arcs of equal distance, and the serial search of vertex programs (worker/predecessors.py); most graphs
do not need it.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.facts import in_arcs_at_hand
from godwit.runtime.cpu.atomics import fetch_min
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import barrier, block_range, next_range, run_team
from godwit.worker.predecessors import ALONE_ARCS, EQUAL, OPEN, SETTLED, candidates_of, search

_CHUNK = 512  # vertices that a thread claims at a time

# Cast of an index that is not negative: saves Numba's test for Python's a[-1].
_at: Any = np.uint64


def predecessors(
    graph: Graph,
    distance: Array,
    sources: Array,
    *,
    unit_lengths: bool,
    threads: int | None = None,
) -> Array:
    """Return the vertex before each one on a shortest path from the nearest source.

    :param distance: (n) final distances; the largest value of an integer dtype, or infinity, marks
        vertices that were not reached
    :param sources: (k) vertex ids, the vertices from which distances count
    :param unit_lengths: every arc has length 1, regardless of weights
    :param threads: limit; by default all that the process may use. Small graphs use one
    :returns: (n), dtype of the graph's ids; -1 for sources and vertices that were not reached
    """
    ids = graph.id_dtype
    predecessor = np.empty(graph.vertex_count, ids)
    if graph.vertex_count == 0:
        return predecessor
    sources = np.unique(np.asarray(sources, np.int64))
    unit = unit_lengths or graph.weights is None
    candidates = candidates_of(predecessor)
    unreached = unreached_of(distance.dtype)
    brief = graph.vertex_count + graph.arc_count < ALONE_ARCS
    if graph.arc_count < ALONE_ARCS:
        threads = 1
    elif threads is None:
        threads = config.thread_count()
    in_arcs = in_arcs_at_hand(graph, weighted=not unit)
    lengths = lengths_of(graph if in_arcs is None else in_arcs, unit)
    if in_arcs is None:
        without = run_team(
            push, graph.offsets, graph.targets, lengths, distance, unreached, candidates, unit,
            threads=threads, brief=brief,
        )  # fmt: skip
    else:
        without = run_team(
            pull, graph.offsets, graph.targets, in_arcs.offsets, in_arcs.targets, lengths, distance,
            unreached, candidates, sources, unit, 1 if unit else -1, in_arcs.has_sorted_rows,
            threads=threads, brief=brief,
        )  # fmt: skip
    if not unit and sum(without) > len(sources):
        finish_ties(graph, distance, predecessor, sources)
    return predecessor


def unreached_of(dtype: np.dtype[Any]) -> Any:
    """Return the distance of unreached vertices: infinity, or the largest value of an integer dtype."""
    return dtype.type(np.inf if dtype.kind == "f" else np.iinfo(dtype).max)


class _Weighted(Protocol):
    """A graph, or rows of one."""

    @property
    def targets(self) -> Array: ...
    @property
    def weights(self) -> Array | None: ...


def lengths_of(rows: _Weighted, unit: bool) -> Array:
    """Return the weights; for unit lengths an empty array of one dtype, so that one kernel serves."""
    return rows.targets[:0] if unit or rows.weights is None else rows.weights


def _length(lengths: Any, arc: Any, unit: bool) -> Any:
    """Return the length of an arc."""
    if unit:
        return lengths.dtype.type(1)
    return lengths[_at(arc)]


def _fill(rank: int, size: int, candidates: Any) -> None:
    """Set a thread's part of the candidates to the largest value: none."""
    begin, end = block_range(rank, size, candidates.size)
    none = ~candidates.dtype.type(0)
    for v in range(begin, end):
        candidates[v] = none


def _count_without(rank: int, size: int, distance: Any, unreached: Any, candidates: Any) -> int:
    """Return the number of reached vertices, with sources, that have no candidate in a thread's part."""
    none = ~candidates.dtype.type(0)
    without = 0
    begin, end = block_range(rank, size, candidates.size)
    for v in range(begin, end):
        without += (distance[v] != unreached) & (candidates[v] == none)
    return without


@kernel
def push(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, lengths: Any, distance: Any,
    unreached: Any, candidates: Any, unit: bool,
) -> int:  # fmt: skip
    """Offer sources to the targets of tight out-arcs of greater distance; the smallest stays (rule 1).

    Return the number of reached vertices of this thread's part without predecessor.
    """
    n = offsets.size - 1
    number = distance.dtype.type
    _fill(rank, size, candidates)
    if not barrier(control, size):
        return 0
    while True:
        begin, end = next_range(control, _CHUNK, n)
        if begin == end:
            break
        for u in range(begin, end):
            near = distance[_at(u)]
            if near == unreached:
                continue
            for arc in range(offsets[_at(u)], offsets[_at(u + 1)]):
                v = targets[_at(arc)]
                far = distance[_at(v)]
                if near < far != unreached and number(near + _length(lengths, arc, unit)) == far:
                    fetch_min(candidates, _at(v), candidates.dtype.type(u))
    if not barrier(control, size):
        return 0
    return _count_without(rank, size, distance, unreached, candidates)


@kernel
def pull(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, in_offsets: Any,
    in_targets: Any, lengths: Any, distance: Any, unreached: Any, candidates: Any, sources: Any,
    unit: bool, nearest: int, ascending: bool,
) -> int:  # fmt: skip
    """Find each vertex's smallest tight source of lesser distance (rule 1) among its in-arcs.

    Return the number of reached vertices of this thread's part without predecessor.

    After a BFS the sources push to their neighbours, which would search long rows for just that vertex.

    :param nearest: vertices up to this distance do not search
    :param ascending: the first tight arc of a row is that of the smallest source
    """
    n = in_offsets.size - 1
    number = distance.dtype.type
    none = ~candidates.dtype.type(0)
    _fill(rank, size, candidates)
    if not barrier(control, size):
        return 0
    if unit:
        begin, end = block_range(rank, size, sources.size)
        for i in range(begin, end):
            u = sources[i]
            for arc in range(offsets[_at(u)], offsets[_at(u + 1)]):
                v = targets[_at(arc)]
                if distance[_at(v)] == 1:
                    fetch_min(candidates, _at(v), candidates.dtype.type(u))
    without = 0
    while True:
        begin, end = next_range(control, _CHUNK, n)
        if begin == end:
            break
        for v in range(begin, end):
            far = distance[_at(v)]
            if far == unreached or far <= nearest:
                continue
            best = none
            for arc in range(in_offsets[_at(v)], in_offsets[_at(v + 1)]):
                u = in_targets[_at(arc)]
                near = distance[_at(u)]
                if near < far and number(near + _length(lengths, arc, unit)) == far:
                    best = min(best, candidates.dtype.type(u))
                    if ascending:
                        break
            candidates[_at(v)] = best
            without += best == none
    return without


def finish_ties(graph: Graph, distance: Array, predecessor: Array, sources: Array) -> None:
    """Settle by rounds the vertices whose tight arcs all come from equal distances (rule 2).

    :param predecessor: (n) by rule 1, or by rule 1 and some rounds of rule 2; -1 for reached vertices that
        have none yet, which get theirs here
    :param sources: (k) vertex ids, each once
    """
    state = np.full(graph.vertex_count, SETTLED, np.uint8)
    state[(distance != unreached_of(distance.dtype)) & (predecessor < 0)] = OPEN
    state[sources] = SETTLED
    kinds = np.zeros(graph.arc_count, np.uint8)
    run_team(
        note_ties, graph.offsets, graph.targets, lengths_of(graph, False), distance, state, kinds,
        threads=1 if graph.arc_count < ALONE_ARCS else config.thread_count(),
    )  # fmt: skip
    search(graph, kinds, EQUAL, candidates_of(predecessor), state)


@kernel
def note_ties(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, lengths: Any, distance: Any,
    state: Any, kinds: Any,
) -> None:  # fmt: skip
    """Note the tight arcs between vertices of equal distance that lead to open ones."""
    while True:
        begin, end = next_range(control, _CHUNK, offsets.size - 1)
        if begin == end:
            break
        for u in range(begin, end):
            here = distance[_at(u)]
            for arc in range(offsets[_at(u)], offsets[_at(u + 1)]):
                v = targets[_at(arc)]
                if state[_at(v)] != OPEN or distance[_at(v)] != here:
                    continue
                if distance.dtype.type(here + lengths[_at(arc)]) == here:
                    kinds[_at(arc)] = EQUAL
