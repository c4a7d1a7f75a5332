"""Weakly connected components by a lock-free union-find: Rem's algorithm with splicing.

Invariant: ``parent[v] <= v`` at all times, and parents only decrease, by compare-and-swap; so there
are no cycles, and in the end the root of a component is its smallest vertex, whatever the schedule.
Source: Patwary, Refsnes, Manne: Multi-core spanning forest algorithms using the disjoint-set data
structure (IPDPS 2012); in its lock-free form Dhulipala, Hong, Shun: ConnectIt (VLDB 2020).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.graph.csr import Graph, estimate_bytes, require_memory
from godwit.graph.rows import bits_of, row_range, thread_count_for
from godwit.parallel.atomics import compare_exchange, load_acquire, load_relaxed, store_relaxed
from godwit.parallel.kernel import kernel
from godwit.parallel.team import ABORT, barrier, block_range, run_team

_POLL_STEPS = 4096


def _unite(parent: Any, u: Any, v: Any) -> None:
    """Join the trees of u and v.

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


@kernel
def _label(
    rank: int,
    size: int,
    control: Any,
    offsets: Any,
    targets: Any,
    directed: bool,
    parent: Any,
) -> None:
    """Unite the ends of all arcs, then point every vertex at its root."""
    begin, end = row_range(rank, size, offsets)
    for v in range(begin, end):
        if v % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        source = targets.dtype.type(v)
        for i in range(offsets[v], offsets[v + 1]):
            target = targets[i]
            if directed or target < source:
                _unite(parent, source, target)
    if not barrier(control, size):
        return
    begin, end = block_range(rank, size, parent.size)
    for v in range(begin, end):
        root = load_relaxed(parent, v)
        above = load_relaxed(parent, root)
        while above != root:
            root = above
            above = load_relaxed(parent, root)
        store_relaxed(parent, v, root)


def weak_components(graph: Graph) -> Array:
    """(n) ids: the smallest vertex of each vertex's weakly connected component."""
    parent = np.arange(graph.vertex_count, dtype=graph.targets.dtype)
    if graph.arc_count:
        run_team(
            _label,
            graph.offsets,
            graph.targets,
            graph.directed,
            parent,
            threads=thread_count_for(graph.arc_count),
        )
    return parent


@kernel
def _copy_rows(
    rank: int,
    size: int,
    control: Any,
    offsets: Any,
    targets: Any,
    payload: Any,
    vertices: Any,
    new_ids: Any,
    new_offsets: Any,
    new_targets: Any,
    new_payload: Any,
) -> None:
    """Copy the rows of ``vertices`` with their targets renamed."""
    begin, end = row_range(rank, size, new_offsets)
    weighted = payload.size > 0
    for row in range(begin, end):
        shift = offsets[vertices[row]] - new_offsets[row]
        for to in range(new_offsets[row], new_offsets[row + 1]):
            new_targets[to] = new_ids[targets[to + shift]]
            if weighted:
                new_payload[to] = payload[to + shift]


def largest_component(graph: Graph) -> tuple[Graph, Array]:
    """See :meth:`Graph.largest_component`."""
    dtype = graph.targets.dtype
    n = graph.vertex_count
    if n == 0:
        return graph, np.empty(0, dtype)
    root = weak_components(graph)
    # The first of several largest: roots are the smallest vertices of their components.
    inside = root == np.bincount(root, minlength=n).argmax()
    vertices = np.flatnonzero(inside).astype(dtype)
    if len(vertices) == n:
        return graph, vertices
    new_ids = np.cumsum(inside, dtype=dtype) - 1
    offsets = np.zeros(len(vertices) + 1, np.int64)
    np.cumsum(graph.out_degree()[vertices], out=offsets[1:])
    kept = int(offsets[-1])
    weights = graph.weights
    weight_bytes = 0 if weights is None else weights.itemsize
    require_memory(estimate_bytes(0, kept, dtype.itemsize, weight_bytes), "a copy of the component")
    targets = np.empty(kept, dtype)
    payload = bits_of(weights)
    new_payload = np.empty(0 if weights is None else kept, payload.dtype)
    run_team(
        _copy_rows,
        graph.offsets,
        graph.targets,
        payload,
        vertices,
        new_ids.astype(dtype, copy=False),
        offsets,
        targets,
        new_payload,
        threads=thread_count_for(kept),
    )
    new_weights = None if weights is None else new_payload.view(weights.dtype)
    component = Graph.trusted(
        offsets, targets, new_weights, directed=graph.directed, ids=graph.ids.take(vertices)
    )
    return component, vertices
