"""Delaunay triangulations of many points by pieces, several at the same time, each by Qhull.

Invariant: only triangles of the triangulation of all points are kept. A triangle is one of these if no
other point lies inside its circumcircle; for a piece's triangle that is certain where the circle reaches no
part of the unit square whose points the piece lacks. A point is done once a piece keeps all its triangles.

Pieces: square tiles with a margin as wide as usual circles, and the border of the square, along which
triangles can be long. While points are left, margins are doubled: in the end the border is everything.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from godwit import config
from godwit.dtypes import Array, id_dtype_for

TILE_POINTS = 1 << 14  # Qhull takes longer for a point where there are more
SMALLEST = 1 << 16
"""Below this number of points there is one piece."""

_QHULL_BYTES_PER_POINT = 800  # at its peak: 708 measured, of 300,000 and of a million
_TRIANGLE_BYTES_PER_POINT = 80  # 2.3 triangles with their margins, and the points themselves

_SLACK = 1e-9  # relative to the terms whose sum decides on which side of a circle a point lies


class Points(NamedTuple):
    """Points of the unit square, sorted into ``side * side`` cells, row by row.

    :param x, y: (n) float64 in [0, 1)
    :param cells: (side * side + 1) int64: the first point of each cell
    """

    x: Array
    y: Array
    cells: Array
    side: int

    def spans(self, rows: tuple[int, int], columns: tuple[int, int]) -> list[tuple[int, int]]:
        """Return begin and end of the points of a rectangle of cells, row by row."""
        firsts = self.cells[rows[0] * self.side + columns[0] : rows[1] * self.side : self.side]
        lasts = self.cells[rows[0] * self.side + columns[1] : rows[1] * self.side + 1 : self.side]
        return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


@dataclass(frozen=True)
class _Piece:
    """Points that are triangulated together.

    :param spans: ranges [begin, end) of their numbers
    :param elsewhere: boxes (left, low, right, high) that make up the rest of the unit square
    :param has_hull: True if the convex hull of the piece is that of all points
    """

    spans: list[tuple[int, int]]
    elsewhere: list[tuple[float, float, float, float]]
    has_hull: bool


class Triangles(NamedTuple):
    """Triangles of a triangulation, as indices of points.

    :param corners: (k, 3): the three corners of each triangle
    :param duplicates: (l, 2): pairs of points that coincide within rounding; the first of a pair is no
        corner of any triangle
    """

    corners: Array
    duplicates: Array


def triangulation_bytes(n: int) -> int:
    """Return an estimate of the memory for triangulating n points, the triangles included."""
    border = 40 * math.isqrt(n)
    most = n if n < SMALLEST else min(n, border + 2 * TILE_POINTS * config.thread_count())
    return n * _TRIANGLE_BYTES_PER_POINT + most * _QHULL_BYTES_PER_POINT


def triangulated(points: Points) -> list[Triangles]:
    """Return the triangles of at least four points; some of them occur more than once."""
    n, side = points.x.size, points.side
    everything = _Piece([(0, n)], [], has_hull=True)
    if n < SMALLEST:
        return [_triangulate(points, np.zeros(n, np.bool_), everything)]
    tiles = max(1, round(math.sqrt(n / TILE_POINTS)))
    bounds = [tile * side // tiles for tile in range(tiles + 1)]
    cores = [
        ((bounds[row], bounds[row + 1]), (bounds[column], bounds[column + 1]))
        for row in range(tiles)
        for column in range(tiles)
    ]
    margin = _margin_cells(n, side)
    done = np.zeros(n, np.bool_)
    triangles: list[Triangles] = []
    while not done.all():
        cores = [core for core in cores if not all(done[a:b].all() for a, b in points.spans(*core))]
        border = everything if 2 * margin >= side else _border(points, margin)
        pieces = [border, *(_tile(points, *core, margin) for core in cores)]
        with ThreadPoolExecutor(config.thread_count(), "godwit-qhull") as pool:
            triangles += pool.map(partial(_triangulate, points, done), pieces)
        margin *= 2
    return triangles


def _margin_cells(n: int, side: int) -> int:
    """Return the diameter, in cells, of discs so large that nearly all contain one of n random points."""
    diameter = 2 * math.sqrt((math.log(n) + 10) / (math.pi * n))
    return math.ceil(diameter * side)


def _tile(points: Points, rows: tuple[int, int], columns: tuple[int, int], margin: int) -> _Piece:
    """Return the piece of a core of cells, and of the cells around it."""
    side = points.side
    low, high = max(0, rows[0] - margin), min(side, rows[1] + margin)
    left, right = max(0, columns[0] - margin), min(side, columns[1] + margin)
    elsewhere = []
    if low > 0:
        elsewhere.append((0.0, 0.0, 1.0, low / side))
    if high < side:
        elsewhere.append((0.0, high / side, 1.0, 1.0))
    if left > 0:
        elsewhere.append((0.0, 0.0, left / side, 1.0))
    if right < side:
        elsewhere.append((right / side, 0.0, 1.0, 1.0))
    return _Piece(points.spans((low, high), (left, right)), elsewhere, has_hull=not elsewhere)


def _border(points: Points, width: int) -> _Piece:
    """Return the piece of the cells at most ``width`` from the border; it has the hull of all points."""
    side = points.side
    across = (0, side)
    spans = [
        *points.spans((0, width), across),
        *points.spans((width, side - width), (0, width)),
        *points.spans((width, side - width), (side - width, side)),
        *points.spans((side - width, side), across),
    ]
    near, far = width / side, (side - width) / side
    return _Piece(spans, [(near, near, far, far)], has_hull=True)


def _triangulate(points: Points, done: Array, piece: _Piece) -> Triangles:
    """Return the triangles of a piece that are certain, and mark the points that are done."""
    from scipy.spatial import Delaunay

    numbers = np.concatenate([np.arange(first, last) for first, last in piece.spans])
    if len(numbers) < 4:
        return Triangles(np.empty((0, 3), np.int64), np.empty((0, 2), np.int64))
    coordinates = np.column_stack([points.x[numbers], points.y[numbers]])
    triangulation = Delaunay(coordinates)
    corners = triangulation.simplices
    is_whole = _are_whole(coordinates, corners, piece)
    is_open = np.zeros(len(numbers), np.bool_)
    is_open[corners[~is_whole]] = True
    if not piece.has_hull:
        is_open[triangulation.convex_hull] = True
    # A duplicate is no corner, and is done as soon as the point that it coincides with.
    duplicates = triangulation.coplanar[:, [0, 2]]
    is_open[duplicates[:, 0]] = is_open[duplicates[:, 1]]
    done[numbers[~is_open]] = True
    dtype = id_dtype_for(points.x.size)
    return Triangles(
        numbers[corners[is_whole]].astype(dtype, copy=False),
        numbers[duplicates].astype(dtype, copy=False),
    )


def _are_whole(coordinates: Array, corners: Array, piece: _Piece) -> Array:
    """Return which triangles have a circumcircle that reaches no box of the piece's ``elsewhere``.

    A point p is outside if ``|p - a|**2 > 2 (c - a) (p - a)``, for a corner a and the centre c: rounding
    hardly matters there even for flat triangles, whose centre is far away and inexact. If any point of a
    box is inside, the point nearest to the centre is.
    """
    a = coordinates[corners[:, 0]]
    ux, uy = (coordinates[corners[:, 1]] - a).T
    vx, vy = (coordinates[corners[:, 2]] - a).T
    is_whole = np.ones(len(corners), np.bool_)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        double = 2 * (ux * vy - uy * vx)
        uu, vv = ux * ux + uy * uy, vx * vx + vy * vy
        cx, cy = (vy * uu - uy * vv) / double, (ux * vv - vx * uu) / double
        for left, low, right, high in piece.elsewhere:
            px = np.clip(a[:, 0] + cx, left, right) - a[:, 0]
            py = np.clip(a[:, 1] + cy, low, high) - a[:, 1]
            square, along_x, along_y = px * px + py * py, 2 * cx * px, 2 * cy * py
            slack = _SLACK * (square + np.abs(along_x) + np.abs(along_y))
            is_whole &= square - along_x - along_y > slack
    return is_whole
