"""Graphs of random points in the unit square: neighbours within a radius, Delaunay triangulations.

Point i is a hash of (seed, i). Points are sorted into square cells, row by row, and numbered in
that order, so that points near each other have close numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from godwit.dtypes import as_count, as_integer, as_positive_number, frozen, id_dtype_for
from godwit.graph.build import arcs_to_rows
from godwit.graph.csr import Graph
from godwit.graph.generators.classic import complete
from godwit.graph.generators.common import (
    POLL_STEPS,
    WeightRange,
    as_weight_range,
    edge_arrays,
    graph_of_edges,
    graph_of_rows,
    weighted,
)
from godwit.graph.generators.triangulation import Points, triangulated, triangulation_bytes
from godwit.graph.hashing import mix, seed_word, unit
from godwit.graph.rows import estimate_bytes, require_memory, thread_count_for
from godwit.public import public
from godwit.runtime.cpu.atomics import load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, block_range, run_team

_MOST_POINTS = 2**40
_ONE = np.uint64(1)


def _point(start: Any, i: Any) -> Any:
    word = mix(start ^ np.uint64(i))
    return unit(word), unit(mix(word ^ _ONE))


@kernel
def _find_cells(rank: int, size: int, control: Any, seed: Any, side: int, cell: Any) -> None:
    """Write the cell of every point; points are in the order in which they are drawn."""
    begin, end = block_range(rank, size, cell.size)
    start = mix(seed)
    for i in range(begin, end):
        if i % POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        x, y = _point(start, i)
        cell[i] = np.int64(y * side) * side + np.int64(x * side)


@kernel
def _draw_points(rank: int, size: int, control: Any, seed: Any, order: Any, x: Any, y: Any) -> None:
    """Write the coordinates of the points in the order of their cells."""
    begin, end = block_range(rank, size, order.size)
    start = mix(seed)
    for i in range(begin, end):
        x[i], y[i] = _point(start, order[i])


def sorted_points(n: int, side: int, seed: int) -> Points:
    """Return random points, sorted by the cells of a grid of ``side`` by ``side`` cells."""
    threads = thread_count_for(n)
    dtype = id_dtype_for(max(n, side * side))
    cell = np.empty(n, dtype)
    run_team(_find_cells, seed_word(seed), side, cell, threads=threads)
    # Stable sort by cell: make the rows of a graph that has an arc from each cell to each of its points.
    offsets, order, _ = arcs_to_rows(
        cell, np.arange(n, dtype=dtype), None, max(n, side * side), dtype
    )
    x, y = np.empty((2, n))
    run_team(_draw_points, seed_word(seed), order, x, y, threads=threads)
    return Points(frozen(x), frozen(y), frozen(offsets[: side * side + 1]), side)


@kernel
def _geometric_rows(
    rank: int, size: int, control: Any, x: Any, y: Any, cells: Any, side: int, radius: float,
    fill: bool, offsets: Any, targets: Any,
) -> None:  # fmt: skip
    """Count or write the neighbours within ``radius``, which is at most the width of a cell."""
    begin, end = block_range(rank, size, x.size)
    square = radius * radius
    for v in range(begin, end):
        if v % POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        row: Any = np.int64(y[v] * side)
        column: Any = np.int64(x[v] * side)
        to = offsets[v] if fill else np.int64(0)
        for r in range(max(row - 1, 0), min(row + 2, side)):
            first = cells[r * side + max(column - 1, 0)]
            last = cells[r * side + min(column + 2, side)]
            for u in range(first, last):
                dx = x[u] - x[v]
                dy = y[u] - y[v]
                if dx * dx + dy * dy <= square and u != v:
                    if fill:
                        targets[to] = u
                    to += 1
        if not fill:
            offsets[v + 1] = to


@public
def random_geometric(
    n: int, radius: float | None = None, *, seed: int = 0, weights: WeightRange | None = None
) -> Graph:
    """Return the graph of random points in the unit square, joined if at most ``radius`` apart.

    Undirected. With the default radius and n = 2**k it is the DIMACS-10 collection's rgg_n_2_k: all but
    a few vertices are in one component, and the mean degree is about ``0.95 * log(n)``.

    :param radius: positive; ``0.55 * sqrt(log(n) / n)`` by default. The mean degree is about
        ``pi * radius**2 * n``, less at the border
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: the memory is too small; nothing large has been allocated
    """
    n = as_count(n, "n", 0, _MOST_POINTS)
    if radius is None:
        # Rounded, because the last bits of a logarithm differ between machines.
        radius = round(0.55 * math.sqrt(math.log(max(n, 2)) / max(n, 2)), 12)
    radius = as_positive_number(radius, "radius")
    seed = as_integer(seed, "seed")
    weights = as_weight_range(weights)
    what = f"a geometric graph of {n:,} vertices and radius {radius:g}"
    # Cells are wider than the radius by a margin for rounding; there are at most as many cells as points.
    side = max(1, math.floor(min((1 - 1e-9) / radius, math.sqrt(n))))
    # Lower bound: the disc of a point in a corner has only a quarter of its area inside the square.
    least_arcs = n * max(0.0, n * min(1.0, math.pi * radius**2 / 4) / 2 - 1)
    id_bytes = id_dtype_for(n).itemsize
    require_memory(estimate_bytes(n, round(least_arcs), id_bytes) + n * (2 * id_bytes + 24), what)
    points = sorted_points(n, side, seed)
    graph = graph_of_rows(_geometric_rows, (*points, radius), n, what)
    return weighted(graph, weights, seed)


@public
def delaunay(n: int, *, seed: int = 0, weights: WeightRange | None = None) -> Graph:
    """Return the Delaunay triangulation of random points in the unit square, by SciPy (Qhull).

    Undirected, planar, of mean degree near 6: the DIMACS-10 collection's delaunay_nk, for n = 2**k. Large
    sets of points are triangulated in pieces, several at the same time.

    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: the memory is too small; nothing has been allocated
    """
    n = as_count(n, "n", 0, 2**31 - 1)
    seed = as_integer(seed, "seed")
    weights = as_weight_range(weights)
    if n < 4:
        return complete(n, seed=seed, weights=weights)
    what = f"a Delaunay triangulation of {n:,} points"
    require_memory(triangulation_bytes(n), what)
    parts = triangulated(sorted_points(n, max(1, math.isqrt(n // 2)), seed))
    # Points that coincide with another, within rounding, are joined to it.
    edges = sum(3 * len(part.corners) + len(part.duplicates) for part in parts)
    endpoints = edge_arrays(n, edges, what)
    to = 0
    for corners, duplicates in parts:
        sides = (corners[:, [side, (side + 1) % 3]] for side in range(3))
        for pairs in (*sides, duplicates):
            endpoints[:, to : to + len(pairs)] = pairs.T
            to += len(pairs)
    return weighted(graph_of_edges(n, endpoints), weights, seed)
