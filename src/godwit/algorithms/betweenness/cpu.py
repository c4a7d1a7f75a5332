"""Sums of dependencies over searches for shortest paths, many at a time: the driver behind betweenness.

U. Brandes, A faster algorithm for betweenness centrality, Journal of Mathematical Sociology 25 (2001).
From a source s, a search counts the shortest paths to every vertex; then, in reverse order, the
dependency of s on v is count(v) times the sum, over the successors u of v (the heads of its arcs that
shortest paths take), of (1 + dependency(u)) / count(u), here called the coefficient of u.

Every thread searches from a source of its own, with arrays of its own: by levels
(:mod:`godwit.algorithms.betweenness.path_counts`) or by weights
(:mod:`godwit.algorithms.betweenness.weighted_path_counts`). Either search leaves the successors of each
vertex, in the order of the queue, so that the way back reads one list from its end and asks no distances.

Order of summation. What the sources give is added up source after source, whichever thread computed
it: block k of the vertices is a thread's to write when ``turns[k]`` says that the source before was
added to it. Totals are therefore bitwise the same for any number of threads. Sources are handed out in
order, so the one that all others wait for is always being worked on.

Between two sources all are open and all counts are zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.betweenness.path_counts import ABORTED, OVERFLOW, count_paths, raised
from godwit.algorithms.betweenness.weighted_path_counts import (
    LOST,
    clear_search,
    count_weighted_paths,
    lost_weight,
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
from godwit.runtime.cpu.team import ABORT, CURSOR, borrowed_team, new_control

# Less work than this, in vertices and arcs over all searches, is left to one thread.
_ALONE_WORK = 500_000
# Vertices of a block; threads add to different blocks at the same time.
_BLOCK = 1 << 14
# Searches that reach less than this part of the vertices tidy up vertex by vertex.
_FEW_SHARE = 16

# Bound by the driver: counts with exponents; shares of arcs; the search.
_WIDE = False
_EDGES = False
_SEARCH: Any = count_paths

# An index known not to be negative: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64


@dataclass(frozen=True)
class DependencySums:
    """What the searches gave.

    :ivar vertices: float64 (n), the sum over the sources of their dependency on each vertex
    :ivar arcs: float64 (m), likewise on each arc; None where it was not asked for
    :ivar vertices_visited: vertices reached, over all searches
    :ivar arcs_examined: arcs looked at, over all searches
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
    """Brandes' dependencies, added up over sources in their order.

    :param sources: int64 (k), valid vertices
    :param endpoints: a path counts for its two ends, too
    :param edges: the arcs' sums as well
    :param weighted: the length of a path is the sum of its weights, which have been checked
    :param threads: at most so many; fewer where memory is short
    :param poll: called now and then with the number of sources begun; what it raises ends the run
    :raises GraphTooLargeError: not even one thread's arrays fit
    :raises InputError: a weight is so small that it is lost in a sum
    """
    n = graph.vertex_count
    if n == 0 or len(sources) == 0:
        return DependencySums(np.zeros(n), np.zeros(graph.arc_count) if edges else None, 0, 0)
    threads = min(_affordable_threads(graph, edges, weighted, threads), len(sources))
    if len(sources) * (n + graph.arc_count) < _ALONE_WORK:
        threads = 1
    workspaces = [_workspace(graph, edges, weighted) for _ in range(threads)]
    found = _run(graph, sources, endpoints, edges, weighted, workspaces, False, poll)
    if found is None:
        for workspace in workspaces:
            workspace["exponents"] = np.empty(n, np.int32)
            if weighted:
                clear_search(workspace["search"])
        found = _run(graph, sources, endpoints, edges, weighted, workspaces, True, poll)
    assert found is not None
    return found


def _successor_room(graph: Graph) -> int:
    """One more than arcs: the end is written before it moves.

    Of an edge only one arc leads to the next level, but that a file's graph is symmetric is its word.
    """
    return graph.arc_count + 1


def _affordable_threads(graph: Graph, edges: bool, weighted: bool, threads: int | None) -> int:
    """As many threads as there is memory for."""
    ids = graph.targets.dtype.itemsize
    n, m = graph.vertex_count, graph.arc_count
    each = n * (2 * 8 + 8 + ids + 4 + 8 * edges) + n // 8
    each += (ids + 16 * edges) * _successor_room(graph)
    each += search_bytes(graph) if weighted else 0
    result = 8 * n + 5 * 8 * m * edges  # the arcs' sums are paired with those of their twins
    threads = config.thread_count() if threads is None else threads
    while threads > 1 and config.missing_memory_bytes(result + threads * each) is not None:
        threads -= 1
    require_memory(result + threads * each, "betweenness centrality")
    return threads


def _workspace(graph: Graph, edges: bool, weighted: bool) -> dict[str, Any]:
    """A thread's memory, named as the kernel's parameters are and in their order."""
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
    """All searches; None if a number of paths is too large for plain counts."""
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
    """From the farthest vertex back: turn counts into dependencies; returns `reached` or ABORTED."""
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
    """Until all sources before were added to a block; False if the run is to be aborted."""
    while load_acquire(turns, block) < turn:
        if load_acquire(control, ABORT) != 0:
            return False
        yield_thread()
    return True


def _add_arcs(v: Any, ends: Any, places: Any, arcs: Any, shares: Any, arc_totals: Any) -> None:
    """Add the shares of a vertex' arcs to its successors."""
    i = places[_at(v)]
    first = ends[_at(i - 1)] if i > 0 else 0
    for j in range(first, ends[_at(i)]):
        arc_totals[_at(arcs[_at(j)])] += shares[_at(j)]


def _add(
    control: Any, turn: int, turns: Any, reached: int, closed: Any, counts: Any, queue: Any,
    ends: Any, places: Any, arcs: Any, shares: Any, totals: Any, arc_totals: Any,
) -> bool:  # fmt: skip
    """Add what a source gave to the totals, and make ready for the next; False if aborted.

    After a search that reached few vertices all blocks are taken at once: threads take them in order,
    so whose turn it is at the last one has all.
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
    """One source after another, until there is none left."""
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
