"""Sums of Brandes' dependencies on the CPU, a source per thread.

U. Brandes, A faster algorithm for betweenness centrality, Journal of Mathematical Sociology 25 (2001).
From a source s, a search counts the shortest paths to every vertex; then, in reverse order, the
dependency of s on v is count(v) times the sum, over the successors u of v (the heads of its arcs that
shortest paths take), of (1 + dependency(u)) / count(u), here called the coefficient of u.

Every thread searches from a source of its own, with arrays of its own (path_counts.py).

Order of summation: dependencies are added source after source, whichever thread computed them. A thread may
write block k of the vertices when ``turns[k]`` says that the previous source was added to it. So totals are
bitwise the same for any number of threads. Sources are handed out in order, so the one that others wait for
is in progress.

Invariant: between two sources all vertices are open and all counts are zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.betweenness.path_counts import (
    ABORTED,
    LOST,
    OVERFLOW,
    clear_search,
    count_paths,
    count_weighted_paths,
    lost_weight,
    raised,
    search_bytes,
    weighted_search,
)
from godwit.dtypes import Array, frozen
from godwit.graph.csr import Graph
from godwit.graph.rows import require_memory
from godwit.runtime.cpu.atomics import (
    fetch_add,
    load_acquire,
    store_relaxed,
    store_release,
    yield_thread,
)
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, CURSOR, borrowed_team, new_control, run_team

# Vertices and arcs, over all searches, below which one thread does all.
_ALONE_WORK = 500_000
# Vertices of a block; threads add to different blocks concurrently.
_BLOCK = 1 << 14
# Searches that reach a smaller part of the vertices clean up vertex by vertex.
_FEW_SHARE = 16

# Bound by the driver: counts with exponents; sums of arcs; the search.
_WIDE = False
_EDGES = False
_SEARCH: Any = count_paths

# Unsigned index: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64


@dataclass(frozen=True)
class DependencySums:
    """Sums over all sources.

    :ivar vertices: float64 (n), dependencies on each vertex
    :ivar arcs: float64 (m), dependencies on each arc; None if not requested
    :ivar vertices_visited: vertices reached, over all searches
    :ivar arcs_examined: arcs of these
    """

    vertices: Array
    arcs: Array | None
    vertices_visited: int
    arcs_examined: int


def sum_dependencies(
    graph: Graph,
    sources: Array,
    *,
    endpoints: bool,
    edges: bool,
    weighted: bool = False,
    threads: int | None = None,
    poll: Callable[[int], None] | None = None,
) -> DependencySums:
    """Sum Brandes' dependencies over sources in their order.

    :param sources: int64 (k), valid vertices
    :param endpoints: a path counts for its two ends, too
    :param edges: sum dependencies on arcs as well
    :param weighted: paths are as long as the sum of their weights, which have been checked
    :param threads: upper limit; fewer run where memory is short
    :param poll: called now and then with the number of sources begun; an exception ends the run
    :raises GraphTooLargeError: the arrays of one thread do not fit
    :raises InputError: a weight is lost in a sum
    """
    n = graph.vertex_count
    if n == 0 or len(sources) == 0:
        return DependencySums(np.zeros(n), np.zeros(graph.arc_count) if edges else None, 0, 0)
    threads = min(_affordable_threads(graph, edges, weighted, threads), len(sources))
    if len(sources) * (n + graph.arc_count) < _ALONE_WORK:
        threads = 1
    workspaces = [_workspace(graph, edges, weighted) for _ in range(threads)]
    sums = _run(graph, sources, endpoints, edges, weighted, workspaces, False, poll)
    if sums is None:
        for workspace in workspaces:
            workspace["exponents"] = np.empty(n, np.int32)
            if weighted:
                clear_search(workspace["search"])
        sums = _run(graph, sources, endpoints, edges, weighted, workspaces, True, poll)
    assert sums is not None
    return sums


def _successor_room(graph: Graph) -> int:
    """Return the length of the array of successors: the number of arcs, and 1.

    A search writes an arc behind the last successor before it knows whether the arc is one. For undirected
    graphs half of the arcs would do, but a file's claim that its graph is symmetric is not checked.
    """
    return graph.arc_count + 1


def _affordable_threads(graph: Graph, edges: bool, weighted: bool, threads: int | None) -> int:
    """Return the number of threads that memory allows."""
    ids = graph.targets.dtype.itemsize
    n, m = graph.vertex_count, graph.arc_count
    each = n * (2 * 8 + 8 + ids + 4 + 8 * edges) + n // 8
    each += (ids + 16 * edges) * _successor_room(graph)
    each += search_bytes(graph) if weighted else 0
    result = 8 * n + 5 * 8 * m * edges  # and for sums_of_edges
    threads = config.thread_count() if threads is None else threads
    while threads > 1 and config.missing_memory_bytes(result + threads * each) is not None:
        threads -= 1
    require_memory(result + threads * each, "betweenness centrality")
    return threads


def _workspace(graph: Graph, edges: bool, weighted: bool) -> dict[str, Any]:
    """Allocate a thread's memory: the kernel's parameters by name, in their order."""
    n, ids = graph.vertex_count, graph.targets.dtype
    return {
        "closed": np.empty((n + 63) // 64, np.int64),
        "counts": np.empty(n, np.float64),
        "exponents": np.empty(0, np.int32),
        "coefficients": np.empty(n, np.float64),
        "queue": np.empty(n + 1, ids),
        "ends": np.empty(n, np.int64),
        "successors": np.empty(_successor_room(graph), ids),
        "places": np.empty(n if edges else 0, np.int64),
        "arcs": np.empty(_successor_room(graph) if edges else 0, np.int64),
        "shares": np.empty(_successor_room(graph) if edges else 0, np.float64),
        "search": weighted_search(graph) if weighted else (),
    }


def _run(
    graph: Graph, sources: Array, endpoints: bool, edges: bool, weighted: bool,
    workspaces: list[dict[str, Any]], wide: bool, poll: Callable[[int], None] | None,
) -> DependencySums | None:  # fmt: skip
    """Do all searches; return None if a number of paths is too large for plain counts."""
    n, size = graph.vertex_count, len(workspaces)
    control = new_control()
    turns = np.zeros(max(1, -(-n // _BLOCK)), np.int64)
    totals = np.zeros(n)
    arc_totals = np.zeros(graph.arc_count if edges else 0)
    tallies = np.zeros((size, 2), np.int64)
    function = _KERNELS[wide, edges, weighted]
    common = (graph.offsets, graph.targets, frozen(sources, np.int64), float(endpoints))
    with borrowed_team(size) as team:
        tasks = [
            (function, (rank, size, control, *common, turns, totals, arc_totals, tallies[rank],
                        *workspace.values()))
            for rank, workspace in enumerate(workspaces)
        ]  # fmt: skip
        report = None if poll is None else lambda: poll(min(int(control[CURSOR]), len(sources)))
        outcomes = team.run(tasks, control, report)
    if LOST in outcomes:
        raise lost_weight(graph, *workspaces[outcomes.index(LOST)]["search"].lost)
    if OVERFLOW in outcomes:
        return None
    visited, examined = (int(number) for number in tallies.sum(axis=0))
    return DependencySums(totals, arc_totals if edges else None, visited, examined)


def _depend(
    control: Any, endpoints: float, reached: int, counts: Any, exponents: Any, coefficients: Any,
    queue: Any, ends: Any, successors: Any, shares: Any,
) -> int:  # fmt: skip
    """Replace path counts by dependencies, farthest vertex first; return ``reached`` or ABORTED."""
    for i in range(reached - 1, -1, -1):
        if i & 4095 == 0 and load_acquire(control, ABORT) != 0:
            return ABORTED
        v = queue[_at(i)]
        count = counts[_at(v)]
        first = ends[_at(i - 1)] if i > 0 else 0
        total = 0.0
        for j in range(first, ends[_at(i)]):
            u = successors[_at(j)]
            coefficient = coefficients[_at(u)]
            if _WIDE:
                coefficient = raised(coefficient, exponents[_at(v)], exponents[_at(u)])
            total += coefficient
            if _EDGES:
                shares[_at(j)] = count * coefficient
        coefficients[_at(v)] = total + 1.0 / count
        counts[_at(v)] = count * total + endpoints
    counts[_at(queue[0])] = endpoints * (reached - 1)
    return reached


def _wait_for_turn(control: Any, turns: Any, block: int, turn: int) -> bool:
    """Wait until all earlier sources were added to a block; return False if the run is aborted."""
    while load_acquire(turns, block) < turn:
        if load_acquire(control, ABORT) != 0:
            return False
        yield_thread()
    return True


def _add_arcs(v: Any, ends: Any, places: Any, arcs: Any, shares: Any, arc_totals: Any) -> None:
    """Add the dependencies on the arcs from a vertex to its successors."""
    i = places[_at(v)]
    first = ends[_at(i - 1)] if i > 0 else 0
    for j in range(first, ends[_at(i)]):
        arc_totals[_at(arcs[_at(j)])] += shares[_at(j)]


def _add(
    control: Any, turn: int, turns: Any, reached: int, closed: Any, counts: Any, queue: Any,
    ends: Any, places: Any, arcs: Any, shares: Any, totals: Any, arc_totals: Any,
) -> bool:  # fmt: skip
    """Add a source's dependencies to the totals, and reset counts; return False if aborted.

    After a search that reached few vertices all blocks are claimed at once: threads claim them in order, so
    the turn at the last one implies all.
    """
    n = totals.size
    if reached < n // _FEW_SHARE:
        if not _wait_for_turn(control, turns, turns.size - 1, turn):
            return False
        for i in range(reached):
            v = np.int64(queue[_at(i)])
            totals[_at(v)] += counts[_at(v)]
            if _EDGES:
                _add_arcs(v, ends, places, arcs, shares, arc_totals)
            counts[_at(v)] = 0.0
            closed[_at(v >> 6)] = 0
        for block in range(turns.size):
            store_release(turns, block, turn + 1)
        return True
    for block in range(turns.size):
        if not _wait_for_turn(control, turns, block, turn):
            return False
        for w in range(block * _BLOCK, min((block + 1) * _BLOCK, n)):
            totals[_at(w)] += counts[_at(w)]
            counts[_at(w)] = 0.0
            if _EDGES and (closed[_at(w >> 6)] >> (w & 63)) & 1 != 0:
                _add_arcs(w, ends, places, arcs, shares, arc_totals)
        store_release(turns, block, turn + 1)
    for word in range(closed.size):
        closed[_at(word)] = 0
    return True


@kernel
def _accumulate(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, sources: Any,
    endpoints: float, turns: Any, totals: Any, arc_totals: Any, tally: Any, closed: Any,
    counts: Any, exponents: Any, coefficients: Any, queue: Any, ends: Any, successors: Any,
    places: Any, arcs: Any, shares: Any, search: Any,
) -> int:  # fmt: skip
    """Process sources until all are claimed."""
    for v in range(counts.size):
        counts[v] = 0.0
    for word in range(closed.size):
        closed[word] = 0
    while True:
        turn = fetch_add(control, CURSOR, 1)
        if turn >= sources.size:
            return 0
        reached = _SEARCH(
            control, offsets, targets, sources[turn], closed, counts, exponents, queue, ends,
            successors, places, arcs, search,
        )  # fmt: skip
        if reached < 0:
            store_relaxed(control, ABORT, 1)  # the others would wait for this source
            return int(reached)
        reached = _depend(
            control, endpoints, reached, counts, exponents, coefficients, queue, ends, successors,
            shares,
        )  # fmt: skip
        if reached < 0:
            return reached
        for i in range(reached):
            v = queue[_at(i)]
            tally[1] += offsets[_at(v) + _at(1)] - offsets[_at(v)]
        tally[0] += reached
        if not _add(
            control, turn, turns, reached, closed, counts, queue, ends, places, arcs, shares,
            totals, arc_totals,
        ):  # fmt: skip
            return ABORTED


_KERNELS = {
    (wide, edges, weighted): _accumulate.bind(
        _WIDE=wide, _EDGES=edges, _SEARCH=count_weighted_paths if weighted else count_paths
    )
    for wide in (False, True)
    for edges in (False, True)
    for weighted in (False, True)
}


def sums_of_edges(graph: Graph, arcs: Array, weighted: bool) -> Array:
    """Return for both arcs of every edge of an undirected graph the sum of the two.

    :param weighted: parallel arcs are distinguished by their weights
    """
    targets = graph.targets
    order = _pairing_order(graph, weighted)
    if order is not None:
        targets, arcs = frozen(targets[order]), arcs[order]
    sums = np.zeros_like(arcs)
    ends = graph.offsets[:-1].copy()
    run_team(_add_pairs, graph.offsets, targets, ends, arcs, sums, threads=1)
    if order is None:
        return sums
    back = np.empty_like(sums)
    back[order] = sums
    return back


def _pairing_order(graph: Graph, weighted: bool) -> Array | None:
    """Return the order of arcs by tail, head and, if weighted, weight; None if arcs are in this order."""
    targets, weights = graph.targets, graph.weights if weighted else None
    is_sorted = graph.has_sorted_rows
    if is_sorted and weights is None:
        return None
    tails = np.repeat(np.arange(graph.vertex_count), graph.out_degree())
    if weights is None:
        return np.lexsort((targets, tails))
    is_simple = ((tails[1:] != tails[:-1]) | (targets[1:] != targets[:-1])).all()
    return None if is_sorted and is_simple else np.lexsort((weights, targets, tails))


@kernel
def _add_pairs(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, ends: Any, arcs: Any, sums: Any
) -> None:
    """Add the counterpart of each arc: arcs to v, by tail, are the counterparts of v's sorted row."""
    for u in range(offsets.size - 1):
        for arc in range(offsets[_at(u)], offsets[_at(u + 1)]):
            v = targets[_at(arc)]
            counterpart = ends[_at(v)]
            if counterpart < offsets[_at(v) + _at(1)]:  # else the graph is not symmetric
                ends[_at(v)] = counterpart + 1
                sums[_at(counterpart)] = arcs[_at(arc)] + arcs[_at(counterpart)]
