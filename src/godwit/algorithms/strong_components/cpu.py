"""Strongly connected components on the CPU.

*Depth-first*: one thread, every arc once. Source: D. J. Pearce, A space-efficient algorithm for finding
strongly connected components, Information Processing Letters 116 (2016), after R. Tarjan (1972). A vertex
has one number, ``index``: 0 before its visit, then the order of its visit, lowered to the lowest that is
reachable from it, and ``done`` once its component is complete. A vertex that reaches none before it is the
root of a component, whose other vertices are on top of the stack ``pending``. A vertex without out-arcs is
a component, and is not visited. The path is a stack of vertices, with the next arc and the lowest index
of each; nothing recurses, so paths of any length are possible.

*Forward-backward*: all threads. What both a search forward and one backward from a pivot reach is the
pivot's component (Fleischer, Hendrickson, Pinar, IPDPS 2000); depth-first search does the rest. The
pivot is the vertex with the largest product of in- and out-degree, which is nearly always in the largest
component (Slota, Rajamanickam, Madduri, IPDPS 2014). The searches change direction, so they look at
few arcs of a graph with hubs. They need in-arcs, and making these takes as long as the depth-first search:
it is done where in-arcs are at hand, or are kept for further queries of a placed graph. All threads meet
after each level, so a graph in which a search is deep, or reaches few vertices, is left to depth-first
search, which is fast where neighbours have close numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from godwit.algorithms.bfs.cpu import UNREACHED, bfs_on_cpu
from godwit.dtypes import Array, id_dtype_for
from godwit.graph.csr import Graph
from godwit.graph.facts import in_arcs_at_hand
from godwit.graph.rows import require_memory
from godwit.runtime.cpu.atomics import load_acquire, store_relaxed
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, run_team

StrongMethod = Literal["depth-first", "forward-backward"]

SEARCHED_ARCS = 1_000_000
"""Least number of arcs of a graph whose largest component is worth two searches by all threads."""
SEARCHED_LEVELS = 10
"""Levels after which a search is too deep for that: social graphs have fewer, those of the web more."""
_LEAST_SHARE = 8
"""A search that reaches less than this fraction (1 / 8) has not found the largest component."""

_POLL_VERTICES = 4096
_BRIEF_ARCS = 500_000
"""Below this number of vertices and arcs the search takes milliseconds: the calling thread makes it."""


def strong_components(
    graph: Graph,
    *,
    method: StrongMethod | None = None,
    reverses: bool = False,
    threads: int | None = None,
    poll: Callable[[int], None] | None = None,
) -> tuple[Array, StrongMethod]:
    """Return the smallest vertex of each vertex's strong component: (n) ids; and the method.

    :param method: None for the fastest; ``"forward-backward"`` makes in-arcs where there are none
    :param reverses: the fastest method may make in-arcs, which are kept for further queries
    :param threads: at most this many; all that the process may use by default
    :param poll: called at intervals by the calling thread with the number of vertices that are done; an
        exception that it raises ends the run
    """
    levels = SEARCHED_LEVELS if method is None else None
    unpaid: list[bool] = graph.cached("searches for strong components", list)
    if method is None:
        is_large = graph.arc_count >= SEARCHED_ARCS and threads != 1
        has_reverse = reverses or in_arcs_at_hand(graph) is not None
        pays = is_large and has_reverse and not unpaid
        method = "forward-backward" if pays else "depth-first"
    if method == "depth-first" or graph.arc_count == 0:
        return finish_components(graph, poll=poll), "depth-first"
    members = _pivots_component(graph, levels, threads, poll)
    if members is None:
        method = "depth-first"
        unpaid.append(True)
    return finish_components(graph, members, poll=poll), method


def pivot_of(graph: Graph, in_degree: Array) -> int | None:
    """Return the first vertex of the largest product of in- and out-degree; None if all are 0.

    :param in_degree: int64 (n)
    """
    product = graph.out_degree() * in_degree
    if not len(product):
        return None
    pivot = int(product.argmax())
    return pivot if product[pivot] else None


def _pivots_component(
    graph: Graph,
    most_levels: int | None,
    threads: int | None,
    poll: Callable[[int], None] | None,
) -> Array | None:
    """Return the vertices of the pivot's component, in ascending order.

    :param most_levels: of a search that pays; None: any search does
    :returns: None if there is no pivot, or a search does not pay
    """
    pivot = pivot_of(graph, graph.in_degree())
    if pivot is None:
        return None
    reached = np.ones(graph.vertex_count, np.bool_)
    for is_forward in (True, False):
        # In-arcs may have to be made, which only a graph whose first search pays is worth.
        distance, _ = bfs_on_cpu(
            graph if is_forward else graph.reverse, np.array([pivot]), threads=threads,
            cutoff=most_levels, poll=None if poll is None else lambda: poll(0),
        )  # fmt: skip
        reached &= distance != UNREACHED
        if most_levels is not None and (
            np.count_nonzero(reached) * _LEAST_SHARE < len(reached)
            or (distance == most_levels).any()
        ):
            return None
    return np.flatnonzero(reached)


def finish_components(
    graph: Graph,
    members: Array | None = None,
    *,
    completed: Array | None = None,
    poll: Callable[[int], None] | None = None,
) -> Array:
    """Return the smallest vertex of each vertex's component by depth-first search: (n) ids.

    :param members: vertices of a component that is known already, in ascending order
    :param completed: (n) ids, which gets the components by their names in the order in which the search
        completes them, that is, behind all components that they reach; None: not wanted
    :param poll: as of :func:`strong_components`
    """
    n, dtype = graph.vertex_count, graph.targets.dtype
    index_dtype: np.dtype[Any] = id_dtype_for(n + 1)
    each = 3 * dtype.itemsize + 2 * index_dtype.itemsize + 8
    require_memory(n * each, f"a search for the strong components of {n:,} vertices")
    label = np.arange(n, dtype=dtype)
    if not graph.arc_count:
        if completed is not None:
            completed[:] = label
        return label
    done = int(np.iinfo(index_dtype).max)
    index = np.zeros(n, index_dtype)
    if members is not None and len(members):
        index[members] = done
        label[members] = members[0]
    progress = np.zeros(1, np.int64)
    run_team(
        _search_depth_first, graph.offsets, graph.targets, done, index, label,
        np.empty(n, dtype), np.empty(n, np.int64), np.empty(n, index_dtype), np.empty(n, dtype),
        label[:0] if completed is None else completed, progress,
        threads=1, poll=None if poll is None else lambda: poll(int(progress[0])),
        brief=n + graph.arc_count < _BRIEF_ARCS,
    )  # fmt: skip
    return label


@kernel
def _search_depth_first(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, done: int, index: Any, label: Any,
    path: Any, next_arc: Any, lowest: Any, pending: Any, completed: Any, progress: Any,
) -> None:  # fmt: skip
    """Label the vertices whose index is 0.

    :param label: every vertex's own number at first
    :param path: with ``next_arc`` and ``lowest``: room for the path from a root of the search, (n) each
    :param pending: room for vertices whose component is not complete, (n)
    :param completed: gets the names of components as they are completed; empty: not wanted
    """
    visits = 0
    waiting = 0
    components = 0
    lists = completed.size > 0
    for start in range(index.size):
        if start % _POLL_VERTICES == 0:
            store_relaxed(progress, 0, start)
            if load_acquire(control, ABORT) != 0:
                return
        if index[start] != 0:
            continue
        visits += 1
        depth = 0
        path[0] = start
        v = start
        low = visits
        index[v] = low
        arc = offsets[v]
        end = offsets[v + 1]
        while True:
            inner = -1
            while arc < end:
                target = targets[arc]
                arc += 1
                seen = index[target]
                if seen == 0:
                    if offsets[target] != offsets[target + 1]:
                        inner = target
                        break
                    index[target] = done
                    if lists:
                        completed[components] = target
                        components += 1
                else:
                    low = min(low, seen)
            if inner >= 0:
                next_arc[depth] = arc
                lowest[depth] = low
                depth += 1
                path[depth] = inner
                v = inner
                visits += 1
                if visits % _POLL_VERTICES == 0 and load_acquire(control, ABORT) != 0:
                    return
                low = visits
                index[v] = low
                arc = offsets[v]
                end = offsets[v + 1]
                continue
            if low == index[v]:
                first = waiting
                smallest = v
                while first > 0 and index[pending[first - 1]] >= low:
                    first -= 1
                    smallest = min(smallest, pending[first])
                if first < waiting:
                    for place in range(first, waiting):
                        index[pending[place]] = done
                        label[pending[place]] = smallest
                    label[v] = smallest
                    waiting = first
                index[v] = done
                if lists:
                    completed[components] = smallest
                    components += 1
            else:
                index[v] = low
                pending[waiting] = v
                waiting += 1
            if depth == 0:
                break
            depth -= 1
            v = path[depth]
            arc = next_arc[depth]
            end = offsets[v + 1]
            low = min(low, lowest[depth])
