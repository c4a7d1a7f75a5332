"""Grids: vertices at the points of a 2-D lattice, joined to those beside them.

Vertex ``row * columns + column`` has its neighbours at a distance of 1 in one direction and of ``columns``
in the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.dtypes import as_count, as_integer, id_dtype_for
from godwit.graph.csr import Graph
from godwit.graph.generators.common import (
    POLL_STEPS,
    WeightRange,
    as_probability,
    as_weight_range,
    graph_of_rows,
    weighted,
)
from godwit.graph.hashing import mix, seed_word
from godwit.graph.rows import estimate_bytes, require_memory
from godwit.public import public
from godwit.runtime.cpu.atomics import load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, block_range

_S11 = np.uint64(11)
_LONGEST_SIDE = 2**31


def _edge_kept(edge: Any, seed: Any, threshold: Any) -> bool:
    return bool((mix(seed ^ np.uint64(edge)) >> _S11) < threshold)


@kernel
def _grid_rows(
    rank: int, size: int, control: Any, columns: int, seed: Any, threshold: Any, fill: bool,
    offsets: Any, targets: Any,
) -> None:  # fmt: skip
    """Count or write the rows of a percolated grid; edge ``2 v`` leads to the right, ``2 v + 1`` down."""
    n = offsets.size - 1
    begin, end = block_range(rank, size, n)
    start = mix(seed)
    for v in range(begin, end):
        if v % POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        column = v % columns
        up = v >= columns and _edge_kept(2 * (v - columns) + 1, start, threshold)
        left = column > 0 and _edge_kept(2 * (v - 1), start, threshold)
        right = column < columns - 1 and _edge_kept(2 * v, start, threshold)
        down = v + columns < n and _edge_kept(2 * v + 1, start, threshold)
        if not fill:
            offsets[v + 1] = np.int64(up) + np.int64(left) + np.int64(right) + np.int64(down)
            continue
        to = offsets[v]
        if up:
            targets[to] = v - columns
            to += 1
        if left:
            targets[to] = v - 1
            to += 1
        if right:
            targets[to] = v + 1
            to += 1
        if down:
            targets[to] = v + columns


@public
def road(
    rows: int,
    columns: int | None = None,
    *,
    keep: float = 0.6,
    seed: int = 0,
    weights: WeightRange | None = None,
) -> Graph:
    """Return a percolated grid, like a road network: low degrees, high diameter, dead ends, islands.

    Undirected; vertex ``row * columns + column`` keeps each edge to its right and lower neighbour
    with probability ``keep``.

    :param rows: at least 1
    :param columns: equal to rows by default
    :param keep: in [0, 1]; above 0.5 there is one giant component
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    percolation = Percolation.checked(rows, columns, keep, seed, weights)
    n = percolation.vertices
    require_memory(
        estimate_bytes(n, percolation.expected_arcs, id_dtype_for(n).itemsize), percolation.what
    )
    seed_and_threshold = seed_word(percolation.seed), np.uint64(percolation.threshold)
    settings = (percolation.columns, *seed_and_threshold)
    graph = graph_of_rows(_grid_rows, settings, n, percolation.what)
    return weighted(graph, percolation.weights, percolation.seed)


@dataclass(frozen=True)
class Percolation:
    """The checked arguments of :func:`road`, for CPUs and GPUs.

    :param threshold: an edge is kept if the upper 53 bits of its hash are below it
    :param expected_arcs: expected number of arcs
    :param what: the graph in words, for messages
    """

    columns: int
    vertices: int
    threshold: int
    expected_arcs: int
    seed: int
    weights: WeightRange | None
    what: str

    @classmethod
    def checked(cls, rows: Any, columns: Any, keep: Any, seed: Any, weights: Any) -> Percolation:
        """Check the arguments; raise InputError naming the first wrong one."""
        rows = as_count(rows, "rows", 1, _LONGEST_SIDE)
        columns = rows if columns is None else as_count(columns, "columns", 1, _LONGEST_SIDE)
        keep = as_probability(keep, "keep")
        n = rows * columns
        return cls(
            columns=columns,
            vertices=n,
            threshold=round(keep * 2**53),
            expected_arcs=round(2 * keep * (2 * n - rows - columns)),
            seed=as_integer(seed, "seed"),
            weights=as_weight_range(weights),
            what=f"a grid of {rows:,} x {columns:,}",
        )


@public
def grid(
    rows: int, columns: int | None = None, *, seed: int = 0, weights: WeightRange | None = None
) -> Graph:
    """Return the full 2-D grid, undirected: :func:`road` with every edge kept.

    :param rows: at least 1
    :param columns: equal to rows by default
    :param seed: the seed of the weights
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    return road(rows, columns, keep=1.0, seed=seed, weights=weights)
