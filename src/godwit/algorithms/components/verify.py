"""Verifier of connected components: the ends of every arc have one label, and labels are no coarser.

Sufficient: if all arcs join equal labels, the vertices of a label are whole components; if a serial
union-find connects every vertex with the vertex that its label names, they are one component; if no label
is larger than its vertex, that vertex is the smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np

from godwit.algorithms.checks import (
    BLOCK_ARCS,
    arc_blocks,
    check_named_by_members,
    checked_array,
    fail,
    tree_root,
)
from godwit.algorithms.components import EdgesArgument
from godwit.algorithms.components.result import ComponentsResult
from godwit.dtypes import Array
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.io.edge_sources import EdgeChunks, EdgeText, as_edges
from godwit.runtime.cpu.compile import kernel


def verify_connected_components(
    graph: EdgesArgument,
    label: Array | ComponentsResult,
    *,
    edge_dtype: Any = None,
    columns: tuple[str, ...] | list[str] | None = None,
) -> None:
    """Check that every vertex is labelled with the smallest vertex of its weakly connected component.

    :param graph: a graph, or edges as of :func:`godwit.connected_components_of_edges`; an iterator has to
        be a new one
    :param label: (n) integers, or a result, whose labels are checked; edges without a graph have as many
        vertices
    :param edge_dtype: as of :func:`godwit.connected_components_of_edges`, like ``columns``
    :raises VerificationError: a rule is broken; names a vertex or an arc
    :raises InputError: an argument is wrong
    """
    label = label.label if isinstance(label, ComponentsResult) else label
    if isinstance(graph, Graph):
        label = checked_array(label, graph.vertex_count, "label", "iu")
        ids = graph.ids
        _check_edges(_rows_of(graph), label, lambda vertex: shown(ids[vertex]))
        return
    with closing(as_edges(graph, edge_dtype, columns)) as edges:
        count = len(edges.survey(None)) if isinstance(edges, EdgeText) else np.size(label)
        _check_edges(_rows_of_edges(edges), checked_array(label, int(count), "label", "iu"))


def _rows_of(graph: Graph) -> Iterator[tuple[Array, Array]]:
    for tails, arcs in arc_blocks(graph):
        yield tails, graph.targets[arcs]


def _rows_of_edges(edges: Any) -> Iterator[tuple[Array, Array]]:
    if isinstance(edges, EdgeChunks):
        for chunk in edges:
            yield chunk[:, 0], chunk[:, 1]
        return
    for first in range(0, edges.count, BLOCK_ARCS):
        rows = np.empty((min(BLOCK_ARCS, edges.count - first), 2), edges.dtype)
        edges.fill(rows, first)
        yield rows[:, 0], rows[:, 1]


def _check_edges(
    blocks: Iterator[tuple[Array, Array]], label: Array, name: Callable[[int], str] = str
) -> None:
    """Check labels by blocks of edges.

    :param name: returns the id of a vertex as messages show it
    """
    n = len(label)
    check_named_by_members(label, name)
    parent = np.arange(n)
    for sources, targets in blocks:
        tails, heads = sources.astype(np.int64), targets.astype(np.int64)
        outside = (tails < 0) | (tails >= n) | (heads < 0) | (heads >= n)
        if outside.any():
            edge = int(np.argmax(outside))
            raise InputError(
                f"the edge from {sources[edge]} to {targets[edge]} has an end that is none of {n} vertices"
            )
        wrong = label[tails] != label[heads]
        if wrong.any():
            arc = int(np.argmax(wrong))
            u, v = int(tails[arc]), int(heads[arc])
            fail(f"the arc {name(u)} -> {name(v)} leads from label {label[u]} to label {label[v]}")
        _join(parent, tails, heads)
    _compress(parent)
    wrong = parent != parent[label]
    if wrong.any():
        v = int(np.argmax(wrong))
        fail(
            f"vertex {name(v)} has label {label[v]}, but no arcs connect it with vertex "
            f"{name(int(label[v]))}"
        )


@kernel
def _join(parent: Any, tails: Any, heads: Any) -> None:
    """Join the union-find trees of every arc's ends; the larger root becomes a child of the smaller."""
    for arc in range(tails.size):
        tail, head = tree_root(parent, tails[arc]), tree_root(parent, heads[arc])
        if tail < head:
            parent[head] = tail
        else:
            parent[tail] = head


@kernel
def _compress(parent: Any) -> None:
    """Set every vertex's parent to its root; requires that no parent is larger than its child."""
    for vertex in range(parent.size):
        parent[vertex] = parent[parent[vertex]]
