"""Verifier of strong components: both halves of the definition, checked by other means than the search.

A label is right if the vertex that it names reaches all vertices that have it, and is reachable from them,
along arcs within the component; if it is the smallest of them; and if no cycle leads through several
components. The first is checked by two searches from all names at once, which stay within components; the
last by removing components without an arc in, again and again, until none is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.checks import check_named_by_members, checked_array, fail
from godwit.algorithms.components.result import ComponentsResult
from godwit.algorithms.strong_components import check_directed, condense
from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.errors import shown
from godwit.graph.csr import Graph
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.statistics import RunStatistics


def verify_strongly_connected_components(graph: Graph, label: Array | ComponentsResult) -> None:
    """Check that every vertex is labelled with the smallest vertex of its strongly connected component.

    :param graph: a directed graph
    :param label: (n) integers, or a result, whose labels are checked
    :raises VerificationError: a rule is broken; names a vertex
    :raises InputError: an argument is wrong
    """
    check_directed(graph, "verify_strongly_connected_components")
    label = label.label if isinstance(label, ComponentsResult) else label
    n = graph.vertex_count
    label = checked_array(label, n, "label", "iu").astype(np.int64)
    vertices = np.arange(n)

    def name(vertex: int) -> str:
        return shown(graph.ids[vertex])

    check_named_by_members(label, name)
    reverse = graph.reverse
    for rows, way in ((graph, "from vertex {name} to it"), (reverse, "from it to vertex {name}")):
        reached = label == vertices
        queue = np.empty(n, np.int64)
        _reach_within(rows.offsets, rows.targets, label, reached, queue)
        if not reached.all():
            v = int(np.argmin(reached))
            path = way.format(name=name(int(label[v])))
            fail(
                f"vertex {name(v)} has label {label[v]}, but no path within its component leads {path}"
            )
    result = ComponentsResult(
        graph, label.astype(graph.targets.dtype), RunStatistics(("cpu",), "verifier"),
        method="verifier", location=ResultLocation(),
    )  # fmt: skip
    condensed = condense(graph, result).graph
    before = condensed.in_degree().copy()
    count = condensed.vertex_count
    removed = _remove_sources(
        condensed.offsets, condensed.targets, before, np.empty(count, np.int64)
    )
    if removed < count:
        firsts = result.names[before > 0]
        fail(
            f"a cycle leads through {len(firsts)} components, among them that of vertex "
            f"{name(int(firsts[0]))}"
        )


@kernel
def _reach_within(offsets: Any, targets: Any, label: Any, reached: Any, queue: Any) -> None:
    """Set ``reached`` of the vertices that a path within a component leads to from reached ones."""
    head = 0
    tail = 0
    for v in range(reached.size):
        if reached[v]:
            queue[tail] = v
            tail += 1
    while head < tail:
        v = queue[head]
        head += 1
        for arc in range(offsets[v], offsets[v + 1]):
            target = targets[arc]
            if not reached[target] and label[target] == label[v]:
                reached[target] = True
                queue[tail] = target
                tail += 1


@kernel
def _remove_sources(offsets: Any, targets: Any, in_degree: Any, queue: Any) -> int:
    """Remove vertices without arcs in until there are none; return how many. ``in_degree`` is lowered."""
    head = 0
    tail = 0
    for v in range(in_degree.size):
        if in_degree[v] == 0:
            queue[tail] = v
            tail += 1
    while head < tail:
        v = queue[head]
        head += 1
        for arc in range(offsets[v], offsets[v + 1]):
            target = targets[arc]
            in_degree[target] -= 1
            if in_degree[target] == 0:
                queue[tail] = target
                tail += 1
    return tail
