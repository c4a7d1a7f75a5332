"""A guess at how many levels a breadth-first search of a graph has, from the first levels of one search."""

from __future__ import annotations

from math import log2
from typing import Any

import numpy as np

from godwit.graph.csr import Graph
from godwit.runtime.cpu.compile import kernel

_MOST_LEVELS = 64
_MOST_VERTICES = 1 << 14
_MOST_ARCS = 1 << 17


def likely_levels(graph: Graph) -> float:
    """Return about how many levels a search of the whole graph has: from 1 to the number of vertices.

    A search begins at a vertex in the middle, and ends after 64 levels, 16,384 vertices or 131,072 arcs.
    The number of vertices within d hops is taken to grow on as a power of d: with d on lines, with its
    square in the plane. There are no more levels than vertices. Computed once a graph, in less than a
    millisecond.
    """

    def compute() -> float:
        if graph.arc_count == 0:
            return 1.0
        first = int(np.searchsorted(graph.offsets, graph.arc_count // 2, "right")) - 1
        reached = np.zeros(_MOST_LEVELS + 1, np.int64)
        queue = np.empty(_MOST_VERTICES, np.int64)
        is_seen = np.zeros(graph.vertex_count, np.bool_)
        levels = int(
            _count_levels(graph.offsets, graph.targets, first, is_seen, queue, reached, _MOST_ARCS)
        )
        if levels < 2:
            return 1.0
        within, half = int(reached[levels]), int(reached[levels // 2])
        if within == int(reached[levels - 1]):  # the whole component
            return float(levels)
        power = log2(within / half) / log2(levels / (levels // 2))
        doublings = log2(graph.vertex_count / within) / power  # very many behind a hub
        return min(float(graph.vertex_count), float(levels * 2.0 ** min(doublings, 64.0)))

    levels: float = graph.cached("likely levels", compute)
    return levels


@kernel
def _count_levels(
    offsets: Any, targets: Any, first: int, is_seen: Any, queue: Any, reached: Any, most_arcs: int
) -> int:
    """Search from a vertex; return the number of levels that were searched completely.

    :param reached: gets for each of them the number of vertices up to it
    :param most_arcs: number of arcs after which the search ends
    """
    queue[0] = first
    is_seen[first] = True
    reached[0] = 1
    begin, end, arcs, level = 0, 1, 0, 0
    while level < len(reached) - 1 and begin < end:
        last = end
        for at in range(begin, last):
            v = queue[at]
            for arc in range(offsets[v], offsets[v + 1]):
                arcs += 1
                w = targets[arc]
                if not is_seen[w]:
                    if end == len(queue):
                        return level
                    is_seen[w] = True
                    queue[end] = w
                    end += 1
                if arcs > most_arcs:
                    return level
        begin = last
        level += 1
        reached[level] = end
    return level
