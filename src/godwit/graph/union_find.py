"""Weakly connected components by union-find, with several threads.

Encoding: ``parent`` holds a forest; the label of a component is its smallest vertex.

Invariant: ``parent[v] <= v`` at all times, so there are no cycles; trees that an atomic link has joined
stay joined, and the number of roots never grows. In the end the root of a component is its smallest
vertex, whatever the schedule. A link that is tried again continues with smaller vertices, so it terminates.

Methods. *hook*: a root is hung below a smaller vertex of another tree by compare-and-swap; before
that, rounds without atomics may make most of the links, though some are lost (Hellås, "Multi-GPU connected
components", 2018, 4.2). *rem*: both ends walk up at once and are spliced on their way (Patwary, Refsnes,
Manne, IPDPS 2012; in its lock-free form Dhulipala, Hong, Shun: ConnectIt, VLDB 2020). *afforest*: a few
neighbours of every vertex are linked; then most vertices are in one tree, whose rows are skipped, because
every arc that joins it to another tree is in a row of that tree, too (Sutton, Ben-Nun, Barak, IPDPS 2018);
of directed graphs, in an in-row, and without these no row is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.graph.build import SMALL_ARCS
from godwit.graph.rows import Rows, require_memory, row_range, thread_count_for
from godwit.graph.subgraphs import induced
from godwit.runtime.cpu.atomics import (
    compare_exchange,
    fetch_add,
    load_acquire,
    load_relaxed,
    store_relaxed,
)
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, barrier, block_range, next_range, run_team

UnionMethod = Literal["hook", "rem", "afforest"]

MOST_NEIGHBOURS = 2
"""Afforest links at most this many neighbours of every vertex before it skips the largest tree's rows."""

POLL_VERTICES = 4096
_CHUNK_VERTICES = 1024  # claimed at a time by a thread where rows may be skipped
_SAMPLES = 1024

TO_THE_ROOT = 1 << 62


def _small_components(rows: Rows, directed: bool) -> Array:
    """Return the smallest vertex of each vertex's component, int64 (n), by SciPy."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = rows.vertex_count
    matrix = csr_array((np.ones(rows.arc_count, np.int8), rows.targets, rows.offsets), (n, n))
    count, component = connected_components(matrix, directed=directed, connection="weak")
    smallest = np.full(count, n)
    np.minimum.at(smallest, component, np.arange(n))
    found: Array = smallest[component]
    return found


def weak_components(
    rows: Rows,
    directed: bool,
    method: UnionMethod | None = None,
    *,
    in_rows: Rows | None = None,
    rounds: int | None = None,
    jumps: int | None = None,
    threads: int | None = None,
    poll: Callable[[int], None] | None = None,
) -> Array:
    """Return the smallest vertex of each vertex's weakly connected component: (n) ids.

    :param directed: False if every arc has its reverse
    :param method: None for the fastest: SciPy's for small graphs, as it needs no compilation, else afforest
    :param in_rows: rows of the reverse of a directed graph, if there are any
    :param rounds: neighbours of every vertex that are linked before the largest tree is determined
        (afforest), or rounds of hooking without atomics before the atomic one (hook, rem); None: the
        default of the method
    :param jumps: steps of a vertex up its tree after each round without atomics; None: to the root
    :param threads: at most this many; all that the process may use by default
    :param poll: called at intervals by the calling thread with the number of vertices whose rows have
        been linked; an exception that it raises ends the run
    """
    n, arcs = rows.vertex_count, rows.arc_count
    dtype = rows.targets.dtype
    require_memory(n * dtype.itemsize, f"the components of {n:,} vertices")
    if not arcs:
        return np.arange(n, dtype=dtype)
    if method is None and arcs <= SMALL_ARCS:
        return _small_components(rows, directed).astype(dtype)
    parent = np.empty(n, dtype)
    progress = np.zeros(1, np.int64)
    team: dict[str, Any] = {
        "threads": min(
            thread_count_for(arcs), config.thread_count() if threads is None else threads
        ),
        "poll": None if poll is None else lambda: poll(int(progress[0])),
    }
    given = (rows.offsets, rows.targets, directed)
    if method in (None, "afforest"):
        least, most = (1, MOST_NEIGHBOURS) if rounds is None else (rounds, rounds)
        other = rows._replace(offsets=rows.offsets[:0]) if in_rows is None else in_rows
        turned = (other.offsets, other.targets)
        run_team(link_sampled, *given, *turned, least, most, parent, progress, **team)
    else:
        jumps = TO_THE_ROOT if jumps is None else jumps
        run_team(link_all, *given, method == "rem", rounds or 0, jumps, parent, progress, **team)
    return parent


def largest_component(rows: Rows, directed: bool) -> tuple[Rows, Array]:
    """Return the rows of the largest weakly connected component, and its vertices in ascending order."""
    n, dtype = rows.vertex_count, rows.targets.dtype
    if n == 0:
        return rows, np.empty(0, dtype)
    root = weak_components(rows, directed)
    # Of several largest components the first: roots are the smallest vertices of their components.
    vertices = np.flatnonzero(root == np.bincount(root, minlength=n).argmax()).astype(dtype)
    return (rows if len(vertices) == n else induced(rows, vertices)), vertices


def hook(parent: Any, u: Any, v: Any) -> None:
    """Hang the root of one of two vertices below the other's tree."""
    above_u = load_relaxed(parent, u)
    above_v = load_relaxed(parent, v)
    while above_u != above_v:
        if above_u < above_v:
            above_u, above_v = above_v, above_u
        above = load_relaxed(parent, above_u)
        if above == above_v:
            return
        if above == above_u and compare_exchange(parent, above_u, above_u, above_v):
            return
        above_u = load_relaxed(parent, load_relaxed(parent, above_u))
        above_v = load_relaxed(parent, above_v)


def splice(parent: Any, u: Any, v: Any) -> None:
    """Join the trees of u and v by Rem's algorithm.

    Both walk up at once, the one with the larger parent first; on its way it is spliced under the
    other's parent, which is smaller, so the trees grow flat.
    """
    parent_u = load_relaxed(parent, u)
    parent_v = load_relaxed(parent, v)
    while parent_u != parent_v:
        if parent_u < parent_v:
            u, v = v, u
            parent_u, parent_v = parent_v, parent_u
        linked = compare_exchange(parent, u, parent_u, parent_v)
        if u == parent_u:
            if linked:
                return
        else:
            u = parent_u
        parent_u = load_relaxed(parent, u)
        parent_v = load_relaxed(parent, v)


def hook_plainly(parent: Any, u: Any, v: Any) -> None:
    """Hang the parent of one vertex below that of the other; links made at the same time may be lost."""
    above_u = load_relaxed(parent, u)
    above_v = load_relaxed(parent, v)
    if above_u < above_v:
        store_relaxed(parent, above_v, above_u)
    elif above_v < above_u:
        store_relaxed(parent, above_u, above_v)


def compress(rank: int, size: int, parent: Any, jumps: int) -> None:
    """Point each of a thread's vertices at its ancestor ``jumps`` steps away, or at its root."""
    begin, end = block_range(rank, size, parent.size)
    for v in range(begin, end):
        above = load_relaxed(parent, v)
        root = load_relaxed(parent, above)
        if root == above:
            continue
        left = jumps
        while root != above and left > 0:
            above = root
            root = load_relaxed(parent, above)
            left -= 1
        store_relaxed(parent, v, above)


@kernel
def link_all(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, directed: bool, splices: bool,
    rounds: int, jumps: int, parent: Any, progress: Any,
) -> None:  # fmt: skip
    """Find the root of every vertex by linking the ends of all arcs: by Rem's algorithm or by hooks."""
    begin, end = block_range(rank, size, parent.size)
    for v in range(begin, end):
        parent[v] = v
    if not barrier(control, size):
        return
    begin, end = row_range(rank, size, offsets)
    for turn in range(rounds + 1):
        for v in range(begin, end):
            if v % POLL_VERTICES == 0:
                if load_acquire(control, ABORT) != 0:
                    return
                fetch_add(progress, 0, POLL_VERTICES)
            source = targets.dtype.type(v)
            for i in range(offsets[v], offsets[v + 1]):
                target = targets[i]
                if not directed and target > source:
                    continue
                if turn < rounds:
                    hook_plainly(parent, source, target)
                elif splices:
                    splice(parent, source, target)
                else:
                    hook(parent, source, target)
        if not barrier(control, size):
            return
        if turn < rounds and jumps > 0:
            compress(rank, size, parent, jumps)
            if not barrier(control, size):
                return
    compress(rank, size, parent, TO_THE_ROOT)


def _most_frequent_root(offsets: Any, parent: Any) -> Any:
    """Return the root that most vertices with arcs have, by Boyer-Moore majority vote of a sample.

    If no root has a majority, the result is the root of some tree.

    :returns: the root, the number of sampled vertices, and an upper bound of those in other trees
    """
    majority = parent[0]
    lead = 0
    voters = 0
    samples = min(_SAMPLES, parent.size)
    for sample in range(samples):
        v = sample * parent.size // samples
        if offsets[v] == offsets[v + 1]:
            continue
        root = parent[v]
        if lead == 0:
            majority = root
        lead += 1 if root == majority else -1
        voters += 1
    return majority, voters, voters - lead


@kernel
def link_sampled(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, directed: bool,
    in_offsets: Any, in_targets: Any, rounds: int, most_rounds: int, parent: Any, progress: Any,
) -> None:  # fmt: skip
    """Find the root of every vertex by Afforest.

    :param in_offsets: of in-rows of a directed graph; empty if there are none
    :param rounds: neighbours of every vertex that are linked before the largest tree is determined
    :param most_rounds: most such neighbours; beyond ``rounds``, another is linked only while an estimate of
        the arcs in rows outside the largest tree exceeds the number of vertices
    """
    has_in_rows = in_offsets.size > 0
    skips = not directed or has_in_rows
    first_own, last_own = block_range(rank, size, parent.size)
    for v in range(first_own, last_own):  # the first neighbour; no other thread writes here
        first = offsets[v]
        source = targets.dtype.type(v)
        parent[v] = min(targets[first], source) if first < offsets[v + 1] else source
        if has_in_rows and in_offsets[v] < in_offsets[v + 1]:
            parent[v] = min(in_targets[in_offsets[v]], parent[v])
    if not barrier(control, size):
        return
    compress(rank, size, parent, TO_THE_ROOT)
    linked = 1
    largest = parent[0]
    while True:
        if not barrier(control, size):
            return
        if linked >= rounds:
            largest, voters, others = _most_frequent_root(offsets, parent)
            is_enough = others * offsets[parent.size] <= voters * parent.size
            # No thread links further until all have seen the same votes: trees must not change meanwhile.
            if not barrier(control, size):
                return
            if linked >= most_rounds or is_enough:
                break
        for v in range(first_own, last_own):
            arc = offsets[v] + linked
            if arc < offsets[v + 1]:
                hook(parent, targets.dtype.type(v), targets[arc])
        if not barrier(control, size):
            return
        compress(rank, size, parent, TO_THE_ROOT)
        linked += 1
    while True:
        begin, end = next_range(control, _CHUNK_VERTICES, parent.size)
        if begin == end:
            break
        for v in range(begin, end):
            if skips and load_relaxed(parent, v) == largest:
                continue
            source = targets.dtype.type(v)
            first = offsets[v]
            last = offsets[v + 1]
            if not has_in_rows and first < last and targets[first] < source:
                first += linked  # linked already
            for i in range(first, last):
                if load_relaxed(parent, targets[i]) != load_relaxed(parent, v):
                    hook(parent, source, targets[i])
            if has_in_rows:
                for i in range(in_offsets[v], in_offsets[v + 1]):
                    if load_relaxed(parent, in_targets[i]) != load_relaxed(parent, v):
                        hook(parent, source, in_targets[i])
        fetch_add(progress, 0, end - begin)
    if not barrier(control, size):
        return
    compress(rank, size, parent, TO_THE_ROOT)
