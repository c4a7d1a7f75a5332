"""Weakly connected components, and the largest one as a graph of its own.

Labels are the smallest vertices of components (:mod:`godwit.graph.union_find`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.graph.csr import Graph, estimate_bytes, require_memory
from godwit.graph.rows import bits_of, row_range, thread_count_for
from godwit.graph.union_find import link_all, link_sampled
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import run_team

UnionMethod = Literal["hook", "rem", "afforest"]

MOST_NEIGHBOURS = 2
"""How many of every vertex Afforest links at most before it leaves the largest component's rows out."""

_TO_THE_ROOT = 1 << 62


def weak_components(
    graph: Graph,
    method: UnionMethod = "afforest",
    *,
    rounds: int | None = None,
    jumps: int | None = None,
    threads: int | None = None,
    poll: Callable[[int], None] | None = None,
) -> Array:
    """(n) ids: the smallest vertex of each vertex's weakly connected component.

    :param rounds: neighbours of every vertex that are linked before the largest component is looked for
        (afforest), or rounds of hooking without atomics before the atomic one (the others); None: what is
        usually best
    :param jumps: how far a vertex gets up its tree after each of the latter; None: to the root
    :param threads: at most so many; all that the process may use by default
    :param poll: called now and then by the calling thread with the number of vertices whose rows were
        linked so far; an exception that it raises ends the run
    """
    n, arcs = graph.vertex_count, graph.arc_count
    dtype = graph.targets.dtype
    require_memory(n * dtype.itemsize, f"the components of {n:,} vertices")
    if not arcs:
        return np.arange(n, dtype=dtype)
    parent = np.empty(n, dtype)
    progress = np.zeros(1, np.int64)
    team: dict[str, Any] = {
        "threads": min(
            thread_count_for(arcs), config.thread_count() if threads is None else threads
        ),
        "poll": None if poll is None else lambda: poll(int(progress[0])),
    }
    rows = graph.offsets, graph.targets, graph.directed
    if method == "afforest":
        least, most = (1, MOST_NEIGHBOURS) if rounds is None else (rounds, rounds)
        run_team(link_sampled, *rows, least, most, parent, progress, **team)
    else:
        jumps = _TO_THE_ROOT if jumps is None else jumps
        run_team(link_all, *rows, method == "rem", rounds or 0, jumps, parent, progress, **team)
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
