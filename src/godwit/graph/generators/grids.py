"""Grids: vertices at the points of a lattice, joined to those beside them.

Numbering: the last coordinate runs fastest, so that vertex ``row * columns + column`` of a 2-D grid
has its neighbours near by in one direction and ``columns`` away in the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.dtypes import as_count, as_integer, frozen, id_dtype_for
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.generators.common import (
    POLL_STEPS,
    WeightRange,
    as_probability,
    as_weight_range,
    edge_arrays,
    graph_of_edges,
    graph_of_rows,
    weighted,
)
from godwit.graph.hashing import mix, seed_word
from godwit.graph.rows import estimate_bytes, require_memory, thread_count_for
from godwit.runtime.cpu.atomics import load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, block_range, run_team

_S11 = np.uint64(11)
_LONGEST_SIDE = 2**31
_MOST_PIECES = 2**16


def _edge_kept(edge: Any, seed: Any, threshold: Any) -> bool:
    return bool((mix(seed ^ np.uint64(edge)) >> _S11) < threshold)


@kernel
def _grid_rows(
    rank: int,
    size: int,
    control: Any,
    columns: int,
    seed: Any,
    threshold: Any,
    fill: bool,
    offsets: Any,
    targets: Any,
) -> None:
    """Rows of a percolated grid: edge ``2 v`` leads from v to the right, edge ``2 v + 1`` down."""
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


def road(
    rows: int,
    columns: int | None = None,
    *,
    keep: float = 0.6,
    seed: int = 0,
    weights: WeightRange | None = None,
) -> Graph:
    """A percolated grid, like a road network: low degrees, long ways, dead ends, islands.

    Undirected; vertex ``row * columns + column`` keeps each edge to its right and lower neighbour
    with probability ``keep``.

    :param rows: at least 1
    :param columns: as many as rows by default
    :param keep: in [0, 1]; above 0.5 there is one giant component
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    percolation = Percolation.checked(rows, columns, keep, seed, weights)
    n = percolation.vertices
    require_memory(
        estimate_bytes(n, percolation.expected_arcs, id_dtype_for(n).itemsize), percolation.what
    )
    settings = (
        percolation.columns,
        seed_word(percolation.seed),
        np.uint64(percolation.threshold),
    )
    graph = graph_of_rows(_grid_rows, settings, n, percolation.what)
    return weighted(graph, percolation.weights, percolation.seed)


@dataclass(frozen=True)
class Percolation:
    """The checked arguments of :func:`road`, for whatever makes the rows.

    :param threshold: an edge is kept if the upper 53 bits of its hash are below
    :param expected_arcs: how many there will be, more or less
    :param what: the graph in words
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
        """InputError, naming it, if one of the arguments is wrong."""
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


def grid(
    rows: int, columns: int | None = None, *, seed: int = 0, weights: WeightRange | None = None
) -> Graph:
    """The full 2-D grid, undirected: :func:`road` with every edge kept.

    :param rows: at least 1
    :param columns: as many as rows by default
    :param seed: of the weights; the grid itself is one and the same
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    return road(rows, columns, keep=1.0, seed=seed, weights=weights)


@kernel
def _count_streets(
    rank: int, size: int, control: Any, columns: int, seed: Any, threshold: Any, streets: Any
) -> None:
    """How many streets leave junction v to the right and down: ``streets[v + 1]``."""
    n = streets.size - 1
    begin, end = block_range(rank, size, n)
    start = mix(seed)
    for v in range(begin, end):
        if v % POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        right = v % columns < columns - 1 and _edge_kept(2 * v, start, threshold)
        down = v + columns < n and _edge_kept(2 * v + 1, start, threshold)
        streets[v + 1] = np.int64(right) + np.int64(down)


@kernel
def _draw_streets(
    rank: int,
    size: int,
    control: Any,
    columns: int,
    pieces: int,
    seed: Any,
    threshold: Any,
    before: Any,
    sources: Any,
    targets: Any,
) -> None:
    """The pieces of all streets; junction v is vertex ``v + before[v] * (pieces - 1)``."""
    n = before.size - 1
    begin, end = block_range(rank, size, n)
    start = mix(seed)
    inner = pieces - 1
    for v in range(begin, end):
        if v % POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        junction = v + before[v] * inner
        at = junction
        to = before[v] * pieces
        for side in range(2):
            u = v + (columns if side == 1 else 1)
            there = u < n if side == 1 else v % columns < columns - 1
            if not (there and _edge_kept(2 * v + side, start, threshold)):
                continue
            sources[to] = junction
            for _ in range(inner):
                at += 1
                targets[to] = at
                to += 1
                sources[to] = at
            targets[to] = u + before[u] * inner
            to += 1


def streets(
    rows: int,
    columns: int | None = None,
    *,
    keep: float = 0.6,
    pieces: int = 3,
    seed: int = 0,
    weights: WeightRange | None = None,
) -> Graph:
    """A street network as maps have them: :func:`road` with every edge bent at vertices of degree 2.

    Undirected; of the percolated grid, each edge is cut into so many pieces, and the largest component
    is kept. Vertices are numbered along the streets, each after the junction that it leaves to the
    right or down. With 3 pieces there are 1.06 edges a vertex, as in the osm graphs of the DIMACS-10
    collection, and most vertices have two arcs.

    :param rows: of junctions, before any is left out; at least 1
    :param columns: as many as rows by default
    :param keep: in [0, 1]: the probability of an edge of the grid
    :param pieces: of each edge, at least 1
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything large is allocated
    """
    percolation = Percolation.checked(rows, columns, keep, seed, weights)
    pieces = as_count(pieces, "pieces", 1, _MOST_PIECES)
    junctions = percolation.vertices
    what = f"streets of {pieces:,} pieces along {percolation.what}"
    expected = percolation.expected_arcs // 2
    n = junctions + expected * (pieces - 1)
    require_memory(
        estimate_bytes(n, 2 * expected * pieces, id_dtype_for(n).itemsize) + 8 * junctions, what
    )
    seed_and_threshold = seed_word(percolation.seed), np.uint64(percolation.threshold)
    threads = thread_count_for(junctions)
    before = np.zeros(junctions + 1, np.int64)
    run_team(_count_streets, percolation.columns, *seed_and_threshold, before, threads=threads)
    np.cumsum(before, out=before)
    count = int(before[-1])
    n = junctions + count * (pieces - 1)
    ends = edge_arrays(n, count * pieces, what)
    settings = (percolation.columns, pieces, *seed_and_threshold, frozen(before))
    run_team(_draw_streets, *settings, *ends, threads=threads)
    found, _ = graph_of_edges(n, ends).largest_component()
    network = Graph.trusted(found.offsets, found.targets, directed=False)
    return weighted(network, percolation.weights, percolation.seed)


@kernel
def _stencil_rows(
    rank: int,
    size: int,
    control: Any,
    nx: int,
    ny: int,
    nz: int,
    diagonals: bool,
    fill: bool,
    offsets: Any,
    targets: Any,
) -> None:
    """Rows of a 3-D grid, whose steps are at most 1 in each direction."""
    begin, end = block_range(rank, size, offsets.size - 1)
    for v in range(begin, end):
        if v % POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        z = v % nz
        y = v // nz % ny
        x = v // nz // ny
        to = offsets[v] if fill else np.int64(0)
        for dx in range(-1 if x > 0 else 0, 2 if x < nx - 1 else 1):
            for dy in range(-1 if y > 0 else 0, 2 if y < ny - 1 else 1):
                for dz in range(-1 if z > 0 else 0, 2 if z < nz - 1 else 1):
                    steps = abs(dx) + abs(dy) + abs(dz)
                    if steps == 1 or (steps > 1 and diagonals):
                        if fill:
                            targets[to] = v + (dx * ny + dy) * nz + dz
                        to += 1
        if not fill:
            offsets[v + 1] = to


def stencil(
    nx: int,
    ny: int | None = None,
    nz: int | None = None,
    *,
    points: int = 7,
    seed: int = 0,
    weights: WeightRange | None = None,
) -> Graph:
    """A 3-D grid, undirected, as finite differences and finite elements make one.

    Vertex ``(x * ny + y) * nz + z`` is joined to those at most one step away in each direction.

    :param nx: at least 1
    :param ny, nz: as nx by default
    :param points: of the stencil, the vertex itself included: 7 joins those that differ in one
        coordinate (6 neighbours), 27 all around (26 neighbours)
    :param seed: of the weights; the grid itself is one and the same
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    nx = as_count(nx, "nx", 1, _LONGEST_SIDE)
    ny = nx if ny is None else as_count(ny, "ny", 1, _LONGEST_SIDE)
    nz = nx if nz is None else as_count(nz, "nz", 1, _LONGEST_SIDE)
    if as_integer(points, "points") not in (7, 27):
        raise InputError(f"points must be 7 or 27, got {shown(points)}")
    seed = as_integer(seed, "seed")
    weights = as_weight_range(weights)
    n = nx * ny * nz
    what = f"a grid of {nx:,} x {ny:,} x {nz:,}"
    if points == 27:
        arcs = (3 * nx - 2) * (3 * ny - 2) * (3 * nz - 2) - n
    else:
        arcs = 2 * (3 * n - ny * nz - nx * nz - nx * ny)
    require_memory(estimate_bytes(n, arcs, id_dtype_for(n).itemsize), what)
    graph = graph_of_rows(_stencil_rows, (nx, ny, nz, points == 27), n, what)
    return weighted(graph, weights, seed)
