"""Triangulated meshes with round holes: their triangles, joined where they share a side.

Encoding: triangle ``row * columns + column`` of a regular triangulation, whose sides are 1 long,
stands in a strip ``row`` of alternating triangles. It shares two sides with those beside it in the
strip, and the third with the one below where ``row + column`` is even, above where it is odd.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from godwit.dtypes import as_count, as_integer, id_dtype_for
from godwit.graph.csr import Graph
from godwit.graph.generators.common import (
    POLL_STEPS,
    WeightRange,
    as_weight_range,
    graph_of_rows,
    weighted,
)
from godwit.graph.hashing import mix, seed_word, unit
from godwit.graph.rows import estimate_bytes, require_memory, thread_count_for
from godwit.runtime.cpu.atomics import load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, block_range, run_team

_LONGEST_SIDE = 2**31
_STRIP_HEIGHT = math.sqrt(0.75)
_ONE = np.uint64(1)
_TWO = np.uint64(2)

# A hole's radius, in units of the spacing. Holes cover some 30 % of the plane, and overlap at times.
_LEAST_RADIUS = 0.15
_RADIUS_RANGE = 0.3


def _in_hole(x: float, y: float, spacing: int, start: Any) -> bool:
    """Whether a point is inside a hole: there is one in every square of side ``spacing``."""
    tile_x = np.int64(x / spacing) + 1
    tile_y = np.int64(y / spacing) + 1
    for j in range(tile_y - 1, tile_y + 2):
        for i in range(tile_x - 1, tile_x + 2):
            word = mix(mix(start ^ np.uint64(j)) ^ np.uint64(i))
            dx = x - (i - 1 + unit(word)) * spacing
            dy = y - (j - 1 + unit(mix(word ^ _ONE))) * spacing
            radius = (_LEAST_RADIUS + _RADIUS_RANGE * unit(mix(word ^ _TWO))) * spacing
            if dx * dx + dy * dy < radius * radius:
                return True
    return False


@kernel
def _cut_holes(
    rank: int, size: int, control: Any, columns: int, spacing: int, seed: Any, kept: Any
) -> None:
    """Which triangles have their centre outside all holes."""
    begin, end = block_range(rank, size, kept.size)
    start = mix(seed)
    for v in range(begin, end):
        if v % POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        row = v // columns
        column = v % columns
        thirds = 2.0 if (row + column) % 2 == 0 else 1.0
        y = (row + thirds / 3.0) * _STRIP_HEIGHT
        kept[v] = not _in_hole(0.5 * column, y, spacing, start)


@kernel
def _mesh_rows(
    rank: int,
    size: int,
    control: Any,
    columns: int,
    kept: Any,
    fill: bool,
    offsets: Any,
    targets: Any,
) -> None:
    """Rows of the triangles that are kept; the others' are empty."""
    n = offsets.size - 1
    begin, end = block_range(rank, size, n)
    for v in range(begin, end):
        if v % POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        if not kept[v]:
            continue
        column = v % columns
        points_up = (v // columns + column) % 2 == 0
        to = offsets[v] if fill else np.int64(0)
        for k in range(4):
            if k == 0:
                u = v if points_up else v - columns
            elif k == 1:
                u = v - 1 if column > 0 else v
            elif k == 2:
                u = v + 1 if column < columns - 1 else v
            else:
                u = v + columns if points_up else v
            if u != v and 0 <= u < n and kept[u]:
                if fill:
                    targets[to] = u
                to += 1
        if not fill:
            offsets[v + 1] = to


def bubbles(
    rows: int,
    columns: int | None = None,
    *,
    spacing: int = 64,
    seed: int = 0,
    weights: WeightRange | None = None,
) -> Graph:
    """A large flat mesh with round holes: like hugebubbles of the DIMACS-10 collection, not the same.

    Undirected; vertices are the triangles of a regular triangulation, edges the sides that two share:
    degrees are at most 3, ways long. Triangles in the holes are cut out, which are some 30 % of them,
    and the largest component of the others is kept. Vertices are numbered strip by strip.

    :param rows: strips of triangles before holes are cut, at least 1
    :param columns: triangles in a strip, as many as rows by default
    :param spacing: side of the squares each of which has the centre of one hole, in sides of a
        triangle; radii are from 0.15 to 0.45 of it
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    rows = as_count(rows, "rows", 1, _LONGEST_SIDE)
    columns = rows if columns is None else as_count(columns, "columns", 1, _LONGEST_SIDE)
    spacing = as_count(spacing, "spacing", 1, _LONGEST_SIDE)
    seed = as_integer(seed, "seed")
    weights = as_weight_range(weights)
    n = rows * columns
    what = f"a mesh of {rows:,} x {columns:,}"
    require_memory(estimate_bytes(n, 3 * n, id_dtype_for(n).itemsize), what)
    kept = np.empty(n, np.bool_)
    settings = (columns, spacing, seed_word(seed))
    run_team(_cut_holes, *settings, kept, threads=thread_count_for(n))
    mesh, _ = graph_of_rows(_mesh_rows, (columns, kept), n, what).largest_component()
    return weighted(Graph.trusted(mesh.offsets, mesh.targets, directed=False), weights, seed)
