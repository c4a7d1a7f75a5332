"""Searches in NetworkX's order: their results in arrays, and levels from cutoffs.

By numbers of edges, a kernel processes a queue as NetworkX does. By lengths, Godwit's engines find
distances on any devices; order and paths follow from these, and are found when they are needed first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

import godwit as gw
from godwit.dtypes import Array
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.kernels import (
    UNREACHED,
    bfs_order,
    bidirectional_length_path,
    bidirectional_path,
    length_path,
    tree_of_distances,
)
from godwit.networkx.options import on_devices, refusals, suits_one_thread
from godwit.runtime.registry import DevicesArgument


class Search(Protocol):
    """Result of a search."""

    @property
    def count(self) -> int:
        """Number of nodes reached."""

    @property
    def distance(self) -> Array:
        """Distance of each node that was reached, shape (n)."""

    @property
    def reached(self) -> Array:
        """True for nodes that were reached, shape (n)."""

    @property
    def order(self) -> Array:
        """Positions of the nodes that were reached, in NetworkX's order, shape (count)."""

    @property
    def parent(self) -> Array:
        """The node before each on its path: -1 for sources, -2 where not reached, shape (n)."""


class BreadthFirst:
    """A search by numbers of edges; attributes as of :class:`Search`."""

    def __init__(
        self,
        graph: ArrayGraph,
        sources: Sequence[int],
        limit: int | None = None,
        *,
        target: int = -1,
        backward: bool = False,
    ) -> None:
        """Search.

        :param sources: distinct positions
        :param limit: the largest number of edges
        :param target: the position of a node at which to stop
        :param backward: against the direction of edges
        """
        n = graph.number_of_nodes()
        offsets, targets = graph.in_rows if backward else graph.out_rows
        order = np.empty(n, targets.dtype)
        self.distance = np.empty(n, targets.dtype)
        self.parent = np.full(n, UNREACHED, targets.dtype)
        self.count = bfs_order(
            offsets, targets, np.array(sources, np.int64), target, n if limit is None else limit,
            order, self.parent, self.distance,
        )  # fmt: skip
        self.order = order[: self.count]

    @property
    def reached(self) -> Array:
        """True for nodes that were reached."""
        return np.asarray(self.parent != UNREACHED)

    @property
    def parents(self) -> Array:
        """The node before each of :attr:`order`."""
        return np.asarray(self.parent[self.order])

    @property
    def level_ends(self) -> list[int]:
        """For each level, how many nodes of :attr:`order` are at most that far."""
        counts = np.bincount(self.distance[self.order])
        return list(np.cumsum(counts).tolist())


class ByLength:
    """A search by lengths of edges; attributes as of :class:`Search`."""

    def __init__(
        self, graph: ArrayGraph, rows: gw.Graph, sources: Sequence[int], cutoff: Any,
        devices: DevicesArgument,
    ) -> None:  # fmt: skip
        self._rows = rows
        self._sources = np.array(sources, np.int64)
        if suits_one_thread(rows, devices):
            self._search(cutoff)
            return
        with refusals():
            found = gw.sssp(on_devices(graph, rows, devices), self._sources, cutoff=cutoff)
        self.distance = found.distance
        self.reached = found.reached
        self.count = int(np.count_nonzero(self.reached))

    def _search(self, cutoff: Any) -> None:
        """Search on one thread, by Dijkstra's algorithm."""
        rows, sources = self._rows, self._sources
        self.distance, parent, self.reached = _labels(rows)
        order = np.empty(rows.vertex_count, rows.targets.dtype)
        self.count = length_path(
            *rows.rows, sources, -1, _limit(cutoff, _dtype_of(rows)), self.distance, parent,
            self.reached, *_heap(rows, len(sources)), order,
        )  # fmt: skip
        self._tree = order[: self.count], parent

    @cached_property
    def _tree(self) -> tuple[Array, Array]:
        """Order and parents."""
        offsets, targets, weights = self._rows.rows
        reached = np.flatnonzero(self.reached)
        _, group, counts = np.unique(
            self.distance[reached], return_inverse=True, return_counts=True
        )
        slot = np.cumsum(counts) - counts
        group_of = np.zeros(len(self.distance), np.int64)
        group_of[reached] = group
        order = np.empty(self.count, targets.dtype)
        parent = np.full(len(self.distance), UNREACHED, targets.dtype)
        tree_of_distances(
            offsets, targets, weights, self._sources, self.distance, self.reached, group_of, slot,
            order, parent,
        )  # fmt: skip
        return order, parent

    @property
    def order(self) -> Array:
        """Positions of the nodes that were reached, in NetworkX's order."""
        return self._tree[0]

    @property
    def parent(self) -> Array:
        """The node before each on its path."""
        return self._tree[1]


def search(
    graph: ArrayGraph,
    sources: Sequence[int],
    weight: Any,
    cutoff: Any = None,
    *,
    backward: bool = False,
    devices: DevicesArgument = None,
) -> Search:
    """Search from distinct sources by lengths of edges, or by their number if weight is None.

    :raises NotImplementedError: Godwit does not take the lengths
    """
    rows = graph.lengths(weight)
    if not rows.is_weighted:
        return BreadthFirst(graph, sources, _farthest(cutoff, len(graph)), backward=backward)
    if cutoff is not None and not cutoff >= 0:
        raise NotImplementedError(f"the cutoff is {cutoff}: only sources are within it")
    return ByLength(graph, rows.reverse if backward else rows, sources, cutoff, devices)


def levels(cutoff: Any, count: int) -> int:
    """Return how many levels a loop searches that goes on while ``cutoff > level``.

    :param count: more levels than this a graph does not have; None means no cutoff
    """
    if cutoff is None or cutoff >= count:
        return count
    return math.ceil(cutoff) if cutoff > 0 else 0


def _farthest(cutoff: Any, count: int) -> int:
    """Return how many levels are within a distance."""
    if cutoff is None or cutoff >= count:
        return count
    return math.floor(cutoff) if cutoff > 0 else 0


def path_between(graph: ArrayGraph, source: int, target: int) -> Array:
    """Return the positions of a path with fewest edges; empty if there is none."""
    offsets, targets = graph.out_rows
    in_offsets, in_targets = graph.in_rows
    try:
        scratch = graph.scratch.pop()
    except IndexError:  # none yet, or in use by other threads
        n, dtype = len(graph), targets.dtype
        scratch = (*np.full((2, n), UNREACHED, dtype), *np.empty((3, n), dtype))
    count = bidirectional_path(offsets, targets, in_offsets, in_targets, source, target, *scratch)
    path = scratch[-1][:count].copy()
    graph.scratch.append(scratch)
    return np.asarray(path)


def length_path_between(
    graph: ArrayGraph, source: int, target: int, weight: Any
) -> tuple[Any, Array]:
    """Return the length and the positions of a shortest path; no positions if there is none."""
    rows = graph.lengths(weight)
    if not rows.is_weighted:
        path = path_between(graph, source, target)
        return len(path) - 1, path
    total = np.zeros(1, _dtype_of(rows))
    path = np.empty(len(graph), rows.targets.dtype)
    count = bidirectional_length_path(
        tuple(rows.rows), tuple(rows.reverse.rows), source, target,
        (*_labels(rows), *_heap(rows, 1)), (*_labels(rows), *_heap(rows, 1)), path, total,
    )  # fmt: skip
    return total[0].item(), path[:count]


def path_to(
    graph: ArrayGraph, sources: Sequence[int], target: int, weight: Any, cutoff: Any = None
) -> tuple[Any, Array]:
    """Return the length and the positions of a shortest path from one of several nodes.

    No positions are returned if there is no path within the cutoff.
    """
    rows = graph.lengths(weight)
    if not rows.is_weighted:
        found = BreadthFirst(graph, sources, _farthest(cutoff, len(graph)), target=target)
        path = np.array(way(found.parent, target), np.int64)
        return int(found.distance[target]), path
    dtype = _dtype_of(rows)
    distance, parent, is_final = _labels(rows)
    path = np.empty(len(graph), rows.targets.dtype)
    count = length_path(
        *rows.rows, np.array(sources, np.int64), target, _limit(cutoff, dtype), distance, parent,
        is_final, *_heap(rows, len(sources)), path,
    )  # fmt: skip
    return distance[target].item(), path[:count]


def _dtype_of(rows: gw.Graph) -> Any:
    assert rows.weights is not None
    return rows.weights.dtype


def _limit(cutoff: Any, dtype: Any) -> Any:
    """Return the largest length within a cutoff."""
    if dtype.kind == "f":
        return math.inf if cutoff is None else float(cutoff)
    return math.floor(cutoff) if cutoff is not None and cutoff < 2**62 else 2**62


def _labels(rows: gw.Graph) -> tuple[Array, Array, Array]:
    """Return arrays of a search: distance, parent, and whether they are final."""
    n, dtype = rows.vertex_count, rows.targets.dtype
    return np.empty(n, _dtype_of(rows)), np.full(n, UNREACHED, dtype), np.zeros(n, np.bool_)


def _heap(rows: gw.Graph, sources: int) -> tuple[Array, Array, Array]:
    """Return the arrays of a heap that every arc and source may enter."""
    room = rows.arc_count + sources
    return np.empty(room, _dtype_of(rows)), np.empty(room, np.int64), np.empty(room, np.int64)


def way(parent: Array, position: int) -> list[int]:
    """Return the positions on the path of a node, from where it begins; none if it was not reached."""
    path = []
    while position >= 0:
        path.append(position)
        position = int(parent[position])
    return path[::-1] if parent[path[0]] != UNREACHED else []


def runs(values: Array) -> Iterator[tuple[int, int]]:
    """Return an iterator over the begin and the end of each run of equal values."""
    begins = np.flatnonzero(values[1:] != values[:-1]) + 1
    bounds = [0, *begins.tolist(), len(values)] if len(values) else [0]
    return pairwise(bounds)
