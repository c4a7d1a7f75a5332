"""Searches in NetworkX's order: arrays for the kernels, and levels from cutoffs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.kernels import UNREACHED, bfs_order, bidirectional_path


@dataclass(frozen=True)
class Search:
    """A breadth-first search.

    :ivar order: positions of the nodes reached, in the order of their discovery
    :ivar parent: (n) the node that each was discovered from, -1 for sources, -2 where not reached
    :ivar level: (n) distance, of nodes that were reached
    """

    order: Array
    parent: Array
    level: Array

    @property
    def reached(self) -> Array:
        """True for nodes that were reached, shape (n)."""
        return np.asarray(self.parent != UNREACHED)

    @property
    def parents(self) -> Array:
        """The node before each of ``order``."""
        return np.asarray(self.parent[self.order])

    @property
    def level_ends(self) -> list[int]:
        """For each level, how many nodes of ``order`` are at most that far."""
        counts = np.bincount(self.level[self.order])
        return list(np.cumsum(counts).tolist())


def search(
    graph: ArrayGraph, sources: list[int], limit: int | None = None, *, backward: bool = False
) -> Search:
    """Search from distinct sources, along edges or against them, at most ``limit`` edges far."""
    n = graph.number_of_nodes()
    offsets, targets = graph.in_rows if backward else graph.out_rows
    dtype = targets.dtype
    order, level = np.empty(n, dtype), np.empty(n, dtype)
    parent = np.full(n, UNREACHED, dtype)
    count = bfs_order(
        offsets, targets, np.array(sources, np.int64), n if limit is None else limit, order, parent,
        level,
    )  # fmt: skip
    return Search(order[:count], parent, level)


def levels(cutoff: Any, count: int) -> int:
    """Return how many levels a loop searches that goes on while ``cutoff > level``.

    :param count: more levels than this a graph does not have; None means no cutoff
    """
    if cutoff is None or cutoff >= count:
        return count
    return max(math.ceil(cutoff), 0) if cutoff > 0 else 0


def runs(values: Array) -> Iterator[tuple[int, int]]:
    """Return an iterator over the begin and the end of each run of equal values."""
    begins = np.flatnonzero(values[1:] != values[:-1]) + 1
    bounds = [0, *begins.tolist(), len(values)] if len(values) else [0]
    return pairwise(bounds)


def path_between(graph: ArrayGraph, source: int, target: int) -> Array:
    """Return the positions of a path with fewest edges; empty if there is none."""
    n = graph.number_of_nodes()
    offsets, targets = graph.out_rows
    in_offsets, in_targets = graph.in_rows
    dtype = targets.dtype

    def make() -> tuple[Array, ...]:
        unreached = [np.full(n, UNREACHED, dtype) for _ in range(2)]
        return (*unreached, *(np.empty(n, dtype) for _ in range(3)))

    scratch = graph.borrow(make)
    length = bidirectional_path(offsets, targets, in_offsets, in_targets, source, target, *scratch)
    path = scratch[-1][:length].copy()
    graph.give_back(scratch)
    return path
