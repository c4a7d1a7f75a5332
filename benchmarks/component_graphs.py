"""Four kinds of graphs that Hellås measures, and that godwit.generators does not have.

Meshes with holes, overlapping cliques, street networks and 3-D stencils, all undirected and simple. Every
random decision is a hash of the seed and a counter, so a graph depends on its arguments alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import godwit as gw
from godwit.graph.hashing import mix, seed_word, unit

Array = np.ndarray[Any, np.dtype[Any]]

_STRIP_HEIGHT = math.sqrt(0.75)
_SIZES = np.uint64(0x51235)  # keeps the draws of sizes and of members apart
_SLICE_ROWS = 256


def _words(*values: Any) -> Array:
    """Return a hash of a seed and some counters, element by element."""
    first, *others = (np.asarray(value).astype(np.uint64) for value in values)
    word = mix(np.atleast_1d(first))
    for other in others:
        word = mix(word ^ other)
    return word


def _undirected(n: int, sources: Any, targets: Any) -> gw.Graph:
    return gw.Graph.from_edges(sources, targets, vertex_count=n, directed=False)


def bubbles(size: int, spacing: int = 64, seed: int = 0) -> gw.Graph:
    """Return the largest component of a mesh of size x size triangles with round holes, like hugebubbles.

    Triangle ``row * size + column`` lies in a strip ``row`` of alternating triangles. It shares two sides
    with its neighbours in the strip, the third with the triangle below where ``row + column`` is even.
    Every square of side ``spacing`` has the centre of one hole; radii are 0.15 to 0.45 of it.
    """
    rows = range(0, size, _SLICE_ROWS)
    kept = np.concatenate([_outside_holes(size, spacing, seed, row) for row in rows])
    number = np.arange(size * size).reshape(size, size)
    beside = kept[:, :-1] & kept[:, 1:]
    points_up = np.add.outer(np.arange(size), np.arange(size)) % 2 == 0
    below = kept[:-1] & kept[1:] & points_up[:-1]
    sources = np.concatenate([number[:, :-1][beside], number[:-1][below]])
    targets = np.concatenate([number[:, 1:][beside], number[1:][below]])
    mesh = _undirected(size * size, sources, targets).largest_component()
    return mesh.with_ids(0)


def _outside_holes(size: int, spacing: int, seed: int, first_row: int) -> Array:
    """Return which triangles of some strips, from ``first_row`` on, have their centre outside all holes."""
    row, column = np.mgrid[first_row : min(first_row + _SLICE_ROWS, size), 0:size]
    thirds = np.where((row + column) % 2 == 0, 2.0, 1.0)
    x, y = 0.5 * column, (row + thirds / 3.0) * _STRIP_HEIGHT
    tile_x, tile_y = (x / spacing).astype(np.int64) + 1, (y / spacing).astype(np.int64) + 1
    kept = np.ones(x.shape, np.bool_)
    for j in (tile_y - 1, tile_y, tile_y + 1):
        for i in (tile_x - 1, tile_x, tile_x + 1):
            word = _words(seed_word(seed), j, i)
            dx = x - (i - 1 + unit(word)) * spacing
            dy = y - (j - 1 + unit(mix(word ^ np.uint64(1)))) * spacing
            radius = (0.15 + 0.3 * unit(mix(word ^ np.uint64(2)))) * spacing
            kept &= dx * dx + dy * dy >= radius * radius
    return kept


def cliques(n: int, count: int | None = None, largest: int = 64, seed: int = 0) -> gw.Graph:
    """Return overlapping cliques of skewed sizes, like networks of co-authors (coPapers).

    A clique of size s, from 2 to ``largest``, has probability in proportion to s**-2. Its first member is
    anywhere on a ring of all vertices; the others lie at distances of which each power of two is equally
    likely.
    """
    count = n // 2 if count is None else count
    shares = np.cumsum(1 / np.arange(2.0, largest + 1) ** 2)
    word = _words(seed_word(seed), np.arange(count))
    draw = unit(mix(word ^ _SIZES))
    size = 2 + np.minimum(np.searchsorted(shares / shares[-1], draw, "right"), largest - 2)
    pairs = []
    for members in np.unique(size):
        chosen = word[size == members]
        first = (chosen % np.uint64(n)).astype(np.int64)
        draw = mix(chosen[:, None] + np.arange(1, members).astype(np.uint64))
        magnitude = np.uint64(1) << draw % np.uint64(max(n.bit_length() - 1, 1))
        position = mix(draw)
        distance = (magnitude | position >> np.uint64(1) & magnitude - np.uint64(1)).astype(
            np.int64
        )
        step = np.where(position & np.uint64(1) == 0, distance, n - distance % n)
        member = np.column_stack([first, (first[:, None] + step) % n])
        one, other = np.triu_indices(members, 1)
        pairs.append(np.stack([member[:, one].ravel(), member[:, other].ravel()]))
    sources, targets = np.concatenate(pairs, axis=1)
    return _undirected(n, sources, targets).remove_self_loops().merge_parallel_arcs()


def streets(size: int, pieces: int = 3, seed: int = 0) -> gw.Graph:
    """Return a street network: the largest component of a percolated grid whose edges have bends.

    Of size x size junctions, each edge to the right and down is kept with probability 0.6, and cut into
    ``pieces``: with 3 there are 1.06 edges a vertex, as in the osm graphs. Vertices are numbered along the
    streets, each after the junction that it leaves to the right or down.
    """
    threshold = np.uint64(round(0.6 * 2**53))
    n, inner = size * size, pieces - 1
    junction = np.arange(n)
    kept = (_words(seed_word(seed), np.arange(2 * n)) >> np.uint64(11)) < threshold
    kept = kept.reshape(n, 2)
    kept[:, 0] &= junction % size < size - 1
    kept[:, 1] &= junction + size < n
    before = np.cumsum(kept.sum(axis=1)) - kept.sum(axis=1)
    source, side = np.nonzero(kept)
    street = np.arange(len(source))
    target = source + np.where(side == 1, size, 1)
    bends = (source + street * inner)[:, None] + np.arange(1, pieces)
    ends = [vertex + before[vertex] * inner for vertex in (source, target)]
    way = np.column_stack([ends[0], bends, ends[1]])
    whole = _undirected(n + len(source) * inner, way[:, :-1].ravel(), way[:, 1:].ravel())
    network = whole.largest_component()
    return network.with_ids(0)


def stencil(size: int, points: int = 7) -> gw.Graph:
    """Return a 3-D grid of 6 (``points=7``) or 26 (``points=27``) neighbours."""
    number = np.arange(size**3, dtype=np.int32).reshape(size, size, size)
    ends = []
    for step in np.ndindex(3, 3, 3):
        moves = np.array(step) - 1
        if tuple(moves) <= (0, 0, 0) or (points == 7 and abs(moves).sum() > 1):
            continue  # each edge once
        here = tuple(slice(max(-move, 0), size - max(move, 0)) for move in moves)
        there = tuple(slice(max(move, 0), size - max(-move, 0)) for move in moves)
        ends.append(np.stack([number[here].ravel(), number[there].ravel()]))
    sources, targets = np.concatenate(ends, axis=1)
    return _undirected(size**3, sources, targets)


MAKERS: dict[str, Callable[..., gw.Graph]] = {
    "bubbles": bubbles, "cliques": cliques, "streets": streets, "stencil": stencil,
}  # fmt: skip


def generate(spec: str, device: str | None = None) -> gw.Graph:
    """Return the graph of a text such as ``stencil:9,points=27``; others are those of ``gw.generate``."""
    name, _, rest = spec.partition(":")
    if name not in MAKERS:
        return gw.generate(spec, device=device)
    size, *settings = rest.split(",")
    options = {key: int(value) for key, _, value in (text.partition("=") for text in settings)}
    copies = options.pop("copies", 1)
    return MAKERS[name](int(size), **options).replicate(copies)
