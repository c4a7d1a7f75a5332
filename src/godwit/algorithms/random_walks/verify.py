"""Verifier of random walks: every step is an arc of positive weight, and walks end where there is none.

Whether arcs are drawn with the right probabilities is a question of statistics, which the tests ask.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.checks import check_graph, fail
from godwit.algorithms.paths.weights import uses_weights
from godwit.dtypes import Array, as_array
from godwit.errors import InputError, shown
from godwit.graph.build import row_sources
from godwit.graph.csr import Graph

_BLOCK_STEPS = 1 << 20


def verify_random_walks(graph: Graph, walks: Array, *, weighted: bool | None = None) -> None:
    """Check that every step of walks follows an arc, and that a walk ends only at a vertex that has none.

    :param graph: the graph
    :param walks: as :func:`godwit.random_walks` returns them
    :param weighted: as of :func:`godwit.random_walks`: arcs of weight 0 are none
    :raises VerificationError: a rule is broken; names a walk and a step
    :raises InputError: an argument is wrong
    """
    check_graph(graph)
    walks = as_array(walks, "walks")
    if walks.ndim != 2 or walks.shape[1] == 0 or walks.dtype.kind not in "iu":
        raise InputError(
            f"walks must be integers of shape (walks, length + 1), got {walks.dtype} of {walks.shape}"
        )
    n = graph.vertex_count
    usable: Any = slice(None)
    if uses_weights(graph, weighted):
        assert graph.weights is not None
        usable = graph.weights > 0
    sources = row_sources(graph.offsets, np.dtype(np.int64))[usable]
    arcs = np.unique(sources * n + graph.targets[usable])
    leaves = np.zeros(n + 1, bool)
    leaves[sources] = True  # the last entry is of -1
    outside = (walks < -1) | (walks >= n)
    outside[:, 0] |= walks[:, 0] < 0
    if outside.any():
        walk, step = np.argwhere(outside)[0].tolist()
        fail(f"walk {walk} is at {walks[walk, step]} after {step} steps, which is no vertex")
    rows = max(1, _BLOCK_STEPS // walks.shape[1])
    for begin in range(0, len(walks), rows):
        block = walks[begin : begin + rows].astype(np.int64)
        here, there = block[:, :-1], block[:, 1:]
        key = here * n + there
        place = np.minimum(np.searchsorted(arcs, key), max(0, len(arcs) - 1))
        is_arc = arcs[place] == key if len(arcs) else np.zeros(key.shape, bool)
        wrong = np.where(there >= 0, (here < 0) | ~is_arc, leaves[here])
        if wrong.any():
            walk, step = np.argwhere(wrong)[0].tolist()
            u, v = (
                shown(graph.ids[int(vertices[walk, step])]) if vertices[walk, step] >= 0 else None
                for vertices in (here, there)
            )
            walk += begin
            if v is None:
                fail(f"walk {walk} ends at vertex {u} after {step} steps, which arcs leave")
            if u is None:
                fail(f"walk {walk} goes on to vertex {v} after it has ended")
            fail(f"step {step + 1} of walk {walk} leads from {u} to {v}, and no arc does")
