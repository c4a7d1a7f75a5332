"""Topological generations by one thread of the CPU.

The queue has all generations, one behind the other: a vertex is appended when its last predecessor is taken
from it. Every vertex is appended once at most, and every arc visited once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.facts import in_offsets
from godwit.graph.rows import require_memory
from godwit.runtime.cpu.atomics import load_acquire, store_relaxed
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, run_team

_POLL_VERTICES = 4096
_BRIEF_ARCS = 500_000


def number_generations(
    graph: Graph, *, poll: Callable[[int], None] | None = None
) -> tuple[Array, Array]:
    """Return the generation of each vertex, int32 (n), and the numbered vertices in a topological order.

    Vertices on a cycle and those behind one have generation -1, and are not in the order. Within a
    generation, vertices are in the order in which they lose their last arc in, where the vertices of the
    generation before, and their rows, are gone through in their order; those of the first ascend.

    :param poll: called at intervals by the calling thread with the number of vertices that are numbered; an
        exception that it raises ends the run
    """
    n = graph.vertex_count
    require_memory(n * (12 + graph.targets.itemsize), f"a numbering of {n:,} vertices")
    left = np.diff(in_offsets(graph))
    generation = np.full(n, -1, np.int32)
    queue = np.empty(n, graph.targets.dtype)
    progress = np.zeros(1, np.int64)
    counts = run_team(
        _number_vertices, graph.offsets, graph.targets, left, generation, queue, progress,
        threads=1, poll=None if poll is None else lambda: poll(int(progress[0])),
        brief=n + graph.arc_count < _BRIEF_ARCS,
    )  # fmt: skip
    return generation, queue[: counts[0]]


@kernel
def _number_vertices(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, left: Any, generation: Any,
    queue: Any, progress: Any,
) -> int:  # fmt: skip
    """Number the vertices that are on no cycle, and behind none; return how many."""
    head = 0
    tail = 0
    for v in range(left.size):
        if left[v] == 0:
            queue[tail] = v
            generation[v] = 0
            tail += 1
    while head < tail:
        if head % _POLL_VERTICES == 0:
            store_relaxed(progress, 0, head)
            if load_acquire(control, ABORT) != 0:
                return tail
        v = queue[head]
        head += 1
        following = generation[v] + 1
        for arc in range(offsets[v], offsets[v + 1]):
            target = targets[arc]
            left[target] -= 1
            if left[target] == 0:
                generation[target] = following
                queue[tail] = target
                tail += 1
    return tail
