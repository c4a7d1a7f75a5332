"""Synthetic graphs: R-MAT, percolated grids, paths.

Every random decision is a hash of (seed, edge, step), so a graph depends on its arguments alone:
not on the number of threads, the machine, or the version of NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.dtypes import as_count, as_float, as_integer, id_dtype_for, shown
from godwit.errors import InputError
from godwit.graph.build import arcs_to_rows
from godwit.graph.csr import Graph, estimate_bytes, require_memory
from godwit.graph.hashing import mix, seed_word
from godwit.graph.rows import thread_count_for
from godwit.graph.transform import check_weight_range
from godwit.parallel.atomics import load_acquire
from godwit.parallel.kernel import kernel
from godwit.parallel.team import ABORT, block_range, run_team

WeightRange = tuple[int, int]

_MAXIMAL_SCALE = 40
_POLL_STEPS = 16_384

# One hash decides three levels of the recursion, by 21 bits each.
_LEVEL_BITS = 21
_LEVELS_PER_WORD = 3
_LEVEL_SHIFT = np.uint64(_LEVEL_BITS)
_LEVEL_MASK = np.uint64(2**_LEVEL_BITS - 1)

_SCRAMBLE_ROUNDS = 4
_DRAWS = np.uint64(0x52D4A7)  # keeps the seeds of the draws and of the relabelling apart
_ONE = np.uint64(1)
_S11 = np.uint64(11)


def _scramble(v: Any, scale: Any, mask: Any, seed: Any) -> Any:
    """A bijection of ``scale``-bit words: odd multipliers carry bits up, shifts bring them down."""
    down = (scale + _ONE) >> _ONE
    for r in range(_SCRAMBLE_ROUNDS):
        key = mix(seed + np.uint64(r))
        v = ((v ^ (key >> _S11)) * (key | _ONE)) & mask
        if down > 0:
            v ^= v >> down
    return v


@kernel
def _draw_rmat(
    rank: int,
    size: int,
    control: Any,
    scale: int,
    seed: Any,
    a: int,
    ab: int,
    abc: int,
    sources: Any,
    targets: Any,
) -> None:
    """Draw edges: each level picks a quadrant, by thresholds in units of 2**-21."""
    begin, end = block_range(rank, size, sources.size)
    start = mix(seed ^ _DRAWS)
    labels = mix(seed)
    width = np.uint64(scale)
    mask = (_ONE << width) - _ONE
    for i in range(begin, end):
        if i % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        key = mix(start ^ np.uint64(i))
        source = np.int64(0)
        target = np.int64(0)
        word = key
        for level in range(scale):
            if level % _LEVELS_PER_WORD == 0:
                word = mix(key + np.uint64(level))
            draw = np.int64(word & _LEVEL_MASK)
            word >>= _LEVEL_SHIFT
            down = draw >= ab
            right = ((draw >= a) ^ down) | (draw >= abc)
            source = source << 1 | np.int64(down)
            target = target << 1 | np.int64(right)
        sources[i] = _scramble(np.uint64(source), width, mask, labels)
        targets[i] = _scramble(np.uint64(target), width, mask, labels)


def rmat(
    scale: int,
    edge_factor: int = 16,
    *,
    seed: int = 0,
    a: float = 0.57,
    b: float = 0.19,
    c: float = 0.19,
    weights: WeightRange | None = None,
    symmetrize: bool = True,
) -> Graph:
    """A recursive-matrix graph: few vertices with very many neighbours, many with few.

    ``edge_factor * 2**scale`` edges are drawn, vertices are renamed at random, and self-loops and
    repeated edges are left out, as Graph500 does; the defaults are its probabilities. Source:
    Chakrabarti, Zhan, Faloutsos: R-MAT: a recursive model for graph mining (SDM 2004).

    :param scale: the graph has ``2**scale`` vertices, 0 <= scale <= 40
    :param edge_factor: edges drawn per vertex
    :param a, b, c: probabilities of the upper left, upper right and lower left quadrant, resolved
        to 2**-21; the lower right one gets what is left of 1
    :param weights: (low, high) for random integer weights in that range, both included, equal in
        both directions of an edge
    :param symmetrize: False gives the arcs as they were drawn, in a directed graph
    :raises GraphTooLargeError: before anything is allocated
    """
    scale = as_count(scale, "scale", 0, _MAXIMAL_SCALE)
    edge_factor = as_count(edge_factor, "edge_factor", 0, 2**20)
    if not _is_probability(a, b, c):
        raise InputError(
            "a, b and c must be probabilities with a sum of at most 1, "
            f"got {shown(a)}, {shown(b)} and {shown(c)}"
        )
    seed = as_integer(seed, "seed")
    if weights is not None:
        _weight_range(weights)
    n = 1 << scale
    edges = edge_factor * n
    dtype = id_dtype_for(n)
    arc_bound = 2 * edges if symmetrize else edges
    require_memory(
        estimate_bytes(n, arc_bound, dtype.itemsize) + 8 * arc_bound + 2 * edges * dtype.itemsize,
        f"an R-MAT graph of scale {scale} and edge factor {edge_factor}",
    )
    sources = np.empty(edges, dtype)
    targets = np.empty(edges, dtype)
    unit = 2**_LEVEL_BITS
    run_team(
        _draw_rmat,
        scale,
        seed_word(seed),
        round(a * unit),
        round((a + b) * unit),
        round((a + b + c) * unit),
        sources,
        targets,
        threads=thread_count_for(edges),
    )
    offsets, row_targets, _ = arcs_to_rows(
        sources,
        targets,
        None,
        n,
        dtype,
        both_directions=symmetrize,
        drop_loops=True,
        merge=True,
    )
    return _weighted(Graph.trusted(offsets, row_targets, directed=not symmetrize), weights, seed)


def _grid_edge_kept(edge: Any, seed: Any, threshold: Any) -> bool:
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
    """Count the neighbours of each vertex into ``offsets[v + 1]``, or write them in their rows.

    Edge ``2 v`` leads from v to the right, edge ``2 v + 1`` down.
    """
    n = offsets.size - 1
    begin, end = block_range(rank, size, n)
    start = mix(seed)
    for v in range(begin, end):
        if v % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        column = v % columns
        up = v >= columns and _grid_edge_kept(2 * (v - columns) + 1, start, threshold)
        left = column > 0 and _grid_edge_kept(2 * (v - 1), start, threshold)
        right = column < columns - 1 and _grid_edge_kept(2 * v, start, threshold)
        down = v + columns < n and _grid_edge_kept(2 * v + 1, start, threshold)
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
    :param weights: (low, high) for random integer weights in that range, both included
    :raises GraphTooLargeError: before anything is allocated
    """
    rows = as_count(rows, "rows", 1, 2**31)
    columns = rows if columns is None else as_count(columns, "columns", 1, 2**31)
    if not (_is_probability(keep) and keep <= 1):
        raise InputError(f"keep must be a probability in [0, 1], got {shown(keep)}")
    seed = as_integer(seed, "seed")
    if weights is not None:
        _weight_range(weights)
    n = rows * columns
    dtype = id_dtype_for(n)
    expected_arcs = round(2 * keep * (2 * n - rows - columns))
    require_memory(
        estimate_bytes(n, expected_arcs, dtype.itemsize), f"a grid of {rows:,} x {columns:,}"
    )
    offsets = np.zeros(n + 1, np.int64)
    settings = (columns, seed_word(seed), np.uint64(round(keep * 2**53)))
    threads = thread_count_for(n)
    run_team(_grid_rows, *settings, False, offsets, np.empty(0, dtype), threads=threads)
    np.cumsum(offsets, out=offsets)
    targets = np.empty(int(offsets[-1]), dtype)
    run_team(_grid_rows, *settings, True, offsets, targets, threads=threads)
    return _weighted(Graph.trusted(offsets, targets, directed=False), weights, seed)


def path(n: int, *, seed: int = 0, weights: WeightRange | None = None) -> Graph:
    """The undirected path 0 - 1 - ... - (n - 1): the longest way that n vertices allow.

    :param weights: (low, high) for random integer weights in that range, both included
    :raises GraphTooLargeError: before anything is allocated
    """
    n = as_count(n, "n", 0, 2**48)
    seed = as_integer(seed, "seed")
    if weights is not None:
        _weight_range(weights)
    dtype = id_dtype_for(n)
    arcs = max(0, 2 * (n - 1))
    require_memory(estimate_bytes(n, arcs, dtype.itemsize), f"a path of {n:,} vertices")
    offsets = np.arange(-1, 2 * n, 2, dtype=np.int64)
    offsets[0] = 0
    offsets[-1] = arcs
    targets = np.empty(arcs, dtype)
    targets[0::2] = np.arange(1, max(n, 1), dtype=dtype)
    targets[1::2] = np.arange(0, max(n - 1, 0), dtype=dtype)
    return _weighted(Graph.trusted(offsets, targets, directed=False), weights, seed)


def _is_probability(*values: float) -> bool:
    """Whether all are in [0, 1], and their sum is, up to rounding."""
    try:
        numbers = [as_float(value, "") for value in values]
    except InputError:
        return False
    return min(numbers) >= 0 and sum(numbers) <= 1 + 1e-9


def _weight_range(weights: Any) -> tuple[int, int]:
    try:
        low, high = weights
    except (TypeError, ValueError):
        raise InputError(f"weights must be (low, high) or None, got {weights!r}") from None
    return check_weight_range(low, high)


def _weighted(graph: Graph, weights: WeightRange | None, seed: int) -> Graph:
    if weights is None:
        return graph
    low, high = _weight_range(weights)
    return graph.with_random_weights(low, high, seed)
