"""The arcs of a graph as edges that stream: compressed sparse rows, in memory or mapped from a file.

Any range of arcs can be read, in mid-row too, so a hub may be longer than a packet, and several threads
may read at once; nothing but what they fill is allocated. Of an undirected graph both arcs of an edge come:
without the second, which joins nothing, devices would have some 40 % less to do, but how many rows a range
has would not be known before it has been read, so one thread would have to read all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.runtime.cpu.compile import kernel


@kernel
def _list_arcs(offsets: Any, targets: Any, row: int, first: int, ends: Any) -> None:
    """Source and target of arcs from ``first`` on, which is in ``row``, into all of ``ends``."""
    i = 0
    while i < ends.shape[0]:
        stop = min(ends.shape[0], offsets[row + 1] - first)
        while i < stop:
            ends[i, 0] = row
            ends[i, 1] = targets[first + i]
            i += 1
        row += 1


class EdgeRows:
    """The arcs of a graph, a row each: an :class:`godwit.io.edge_sources.EdgeTable`, once surveyed.

    :ivar graph: the graph
    """

    array: Any = None
    dtype: np.dtype[Any]

    def __init__(self, graph: Graph, name: str = "the graph") -> None:
        self.name = name
        self.graph = graph
        self.count = graph.arc_count

    def survey(self, look: Callable[[], None] | None = None) -> VertexIds:
        """The ids of the vertices. A mapped file is gone through here, to be checked, if it never was.

        :raises FormatError: it is damaged
        """
        self.dtype = self.graph.targets.dtype
        self.fill(np.empty((0, 2), self.dtype), 0)  # compiled before the time counts
        return self.graph.ids

    def fill(self, target: Array, first: int) -> None:
        """Write arcs from ``first`` on into an array of shape (k, 2); several threads may at once."""
        offsets, targets = self.graph.offsets, self.graph.targets
        row = int(np.searchsorted(offsets, first, side="right")) - 1
        _list_arcs(offsets, targets, row, first, target)

    def close(self) -> None:
        """Nothing is open: a mapped file goes with its graph."""
