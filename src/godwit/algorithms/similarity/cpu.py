"""Similarity on the CPU: of given pairs by intersections of rows, of all pairs by sums over wedges.

The rows of a pair are merged if their lengths are similar; else each vertex of the shorter one is searched
for in the longer one. For all pairs with common neighbours, a thread takes a vertex u, and adds the term of
each neighbour w to each neighbour v > u of w (Gustavson's product of sparse matrices, by rows): once to
count the pairs above the bound, and once more to write them. Terms are added in the order of w, so scores
do not depend on threads, nor on how pairs are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.similarity.query import Measure
from godwit.algorithms.triangles.rows import sort_range
from godwit.dtypes import Array, frozen
from godwit.graph.csr import Graph
from godwit.graph.rows import require_memory, thread_count_for
from godwit.runtime.cpu.atomics import load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, CURSOR, new_control, next_range, run_team

_CHUNK = 256
"""Pairs that a thread claims at once."""
_ROW_CHUNK = 16
"""Vertices that a thread claims at once."""
_MERGED = 8
"""Two rows are merged if the longer has at most this many times the vertices of the shorter one."""
_PAIR_ARCS = 16
"""Arcs of a graph that take about as long as a pair."""

_JACCARD, _OVERLAP, _SUM = (
    int(measure) for measure in (Measure.JACCARD, Measure.OVERLAP, Measure.SUM_OF_TERMS)
)
_at: Any = np.uint64

Poll = Callable[[int], None] | None


def score_pairs(
    graph: Graph, pairs: Array, terms: Array, measure: Measure, threads: int | None, poll: Poll
) -> Array:
    """Return the score of each pair, float64 (k).

    :param graph: a simple undirected graph, rows sorted
    :param pairs: (k, 2) positions
    :param terms: (n) terms of vertices, or empty
    :param threads: upper limit; None: all of the process
    :param poll: called now and then with the number of pairs done; an exception ends the run
    """
    scores = np.empty(len(pairs))
    control = new_control()
    count = thread_count_for(_PAIR_ARCS * len(pairs))
    run_team(
        _score, graph.offsets, graph.targets, terms, frozen(pairs.reshape(-1)), scores, int(measure),
        threads=count if threads is None else min(count, threads),
        control=control,
        poll=_report(poll, control, len(pairs)),
    )  # fmt: skip
    return scores


def score_neighbours(
    graph: Graph, above: float, terms: Array, measure: Measure, threads: int | None, poll: Poll
) -> tuple[Array, Array]:
    """Return all pairs with common neighbours whose score is above a bound, (k, 2), and their scores.

    Pairs ascend; the first vertex of a pair is the smaller one.

    :param poll: called now and then with the number of vertices done, 2 n in all
    :raises GraphTooLargeError: the pairs, or arrays of one thread, do not fit into memory
    """
    n = graph.vertex_count
    count = thread_count_for(graph.arc_count)
    count = count if threads is None else min(count, threads)
    each = n * (8 + graph.targets.itemsize)
    while count > 1 and config.missing_memory_bytes(count * each) is not None:
        count -= 1
    require_memory(count * each, "a table of sums over neighbours of neighbours")
    ends = np.zeros(n + 1, np.int64)
    sums = np.zeros((count, n))
    reached = np.empty((count, n), graph.targets.dtype)
    given = graph.offsets, graph.targets, terms
    work = sums, reached, ends, float(above), int(measure)
    control = new_control()
    none = np.empty(0, graph.targets.dtype), np.empty(0)
    run_team(
        _neighbours, *given, *work, *none, threads=count, control=control,
        poll=_report(poll, control, n),
    )  # fmt: skip
    np.cumsum(ends, out=ends)
    found = int(ends[-1])
    require_memory(found * (2 * graph.targets.itemsize + 8), f"a list of {found:,} pairs")
    pairs = np.empty((found, 2), graph.targets.dtype)
    scores = np.empty(found)
    control = new_control()
    run_team(
        _neighbours, *given, *work, pairs.reshape(-1), scores, threads=count, control=control,
        poll=_report(poll, control, n, n),
    )  # fmt: skip
    return pairs, scores


def _report(poll: Poll, control: Array, count: int, before: int = 0) -> Callable[[], None] | None:
    """Return a function that calls another with the number of items done."""
    if poll is None:
        return None
    return lambda: poll(before + min(int(control[CURSOR]), count))


def _score_of(measure: int, common: float, left: Any, right: Any) -> Any:
    """Return the score of a sum over common neighbours, and two degrees."""
    if common == 0.0 or measure == _SUM:
        return common
    if measure == _JACCARD:
        return common / (left + right - common)
    if measure == _OVERLAP:
        return common / min(left, right)
    return 2.0 * common / (left + right)


def _common(
    targets: Any, terms: Any, at: Any, end: Any, other: Any, other_end: Any, searches: bool
) -> float:
    """Return the sum of the terms of the vertices that two rows have in common; the first is shorter."""
    has_terms = terms.size > 0
    total = 0.0
    while at < end and other < other_end:
        vertex = targets[_at(at)]
        if searches:
            high = other_end
            while other < high:
                middle = (other + high) >> 1
                if targets[_at(middle)] < vertex:
                    other = middle + 1
                else:
                    high = middle
            if other == other_end:
                break
        there = targets[_at(other)]
        if there == vertex:
            total += terms[_at(vertex)] if has_terms else 1.0
        at += there >= vertex
        other += there <= vertex
    return total


@kernel
def _score(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, terms: Any, pairs: Any,
    scores: Any, measure: int,
) -> None:  # fmt: skip
    """Score claimed pairs."""
    while True:
        begin, end = next_range(control, _CHUNK, scores.size)
        if begin >= end:
            return
        for number in range(begin, end):
            left = np.int64(pairs[_at(2 * number)])
            right = np.int64(pairs[_at(2 * number + 1)])
            length = offsets[_at(left + 1)] - offsets[_at(left)]
            other = offsets[_at(right + 1)] - offsets[_at(right)]
            if other < length:
                left, right, length, other = right, left, other, length
            common = _common(
                targets, terms, offsets[_at(left)], offsets[_at(left + 1)], offsets[_at(right)],
                offsets[_at(right + 1)], other > _MERGED * length,
            )  # fmt: skip
            scores[_at(number)] = _score_of(measure, common, length, other)


@kernel
def _neighbours(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, terms: Any, all_sums: Any,
    all_reached: Any, ends: Any, above: float, measure: int, pairs: Any, scores: Any,
) -> None:  # fmt: skip
    """Write the pairs of claimed vertices at ``ends``; without room, count them in ``ends[u + 1]``."""
    sums = all_sums[rank]
    reached = all_reached[rank]
    has_terms = terms.size > 0
    counts = scores.size == 0
    while True:
        begin, end = next_range(control, _ROW_CHUNK, ends.size - 1)
        if begin >= end:
            return
        for u in range(begin, end):
            if load_acquire(control, ABORT) != 0:
                return
            found = 0
            for arc in range(offsets[_at(u)], offsets[_at(u + 1)]):
                w = targets[_at(arc)]
                term = terms[_at(w)] if has_terms else 1.0
                at = offsets[_at(np.int64(w) + 1)] - 1
                first = offsets[_at(w)]
                while at >= first and targets[_at(at)] > u:
                    v = targets[_at(at)]
                    if sums[_at(v)] == 0.0:
                        reached[_at(found)] = v
                        found += 1
                    sums[_at(v)] += term
                    at -= 1
            if not counts:
                sort_range(reached, sums, 0, found, False)
            degree = offsets[_at(u + 1)] - offsets[_at(u)]
            to = ends[_at(u)]
            kept = 0
            for place in range(found):
                v = np.int64(reached[_at(place)])
                score = _score_of(
                    measure, sums[_at(v)], degree, offsets[_at(v + 1)] - offsets[_at(v)]
                )
                sums[_at(v)] = 0.0
                if score > above:
                    if not counts:
                        pairs[_at(2 * (to + kept))] = u
                        pairs[_at(2 * (to + kept) + 1)] = v
                        scores[_at(to + kept)] = score
                    kept += 1
            if counts:
                ends[_at(u + 1)] = kept
