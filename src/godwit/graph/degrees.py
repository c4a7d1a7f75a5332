"""Statistics of out-degrees: what a user wants to know of a graph before running anything on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.graph.csr import Graph
from godwit.graph.rows import row_range, thread_count_for
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import run_team


@dataclass(frozen=True)
class DegreeStatistics:
    """Out-degrees of a graph; of an undirected one, the number of neighbours.

    ``isolated`` counts the vertices with no arc at all, in or out; ``sinks`` those with no arc out;
    ``self_loops`` counts arcs from a vertex to itself. All zero for a graph without vertices.
    """

    min: int
    max: int
    mean: float
    median: float
    isolated: int
    sinks: int
    self_loops: int


@kernel
def _mark_targets(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, reached: Any
) -> int:
    """Set ``reached`` of every target; the number of self-loops among this thread's rows."""
    begin, end = row_range(rank, size, offsets)
    loops = 0
    for v in range(begin, end):
        for i in range(offsets[v], offsets[v + 1]):
            target = targets[i]
            reached[target] = 1
            if target == v:
                loops += 1
    return loops


def degree_statistics(graph: Graph) -> DegreeStatistics:
    """Count; see :class:`DegreeStatistics`."""
    if graph.vertex_count == 0:
        return DegreeStatistics(0, 0, 0.0, 0.0, 0, 0, 0)
    degree = graph.out_degree()
    # Threads write the same value where they meet, so plain stores do.
    reached = np.zeros(graph.vertex_count, np.uint8)
    loops = run_team(
        _mark_targets,
        graph.offsets,
        graph.targets,
        reached,
        threads=thread_count_for(graph.arc_count),
    )
    no_arc_out = degree == 0
    return DegreeStatistics(
        min=int(degree.min()),
        max=int(degree.max()),
        mean=float(degree.mean()),
        median=float(np.median(degree)),
        isolated=int(np.count_nonzero(no_arc_out & (reached == 0))),
        sinks=int(np.count_nonzero(no_arc_out)),
        self_loops=int(sum(loops)),
    )
