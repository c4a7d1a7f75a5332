"""In-arcs in blocks, with contributions: the layout of a graph that PageRank on the CPU reads.

Rows may be sorted in one of two orders. Sources are then numbered by rows, too; ``order`` has the vertex of
each row. The layout depends on the graph alone, not on the number of threads, and is made once.

*By ascending out-degree*: the more out-arcs a vertex has, the more often it is read. If few vertices take
most of the reads and are scattered, as in social networks, sorting puts them into the same cache lines. Web
crawls and meshes, whose vertices are near their neighbours, keep their order (Balaji and Lucia, "When is
graph reordering an optimization?", IISWC 2018).

*By length*, in each block, if most rows are short: there a branch misprediction at the end of a row costs
more than its sum. Branches are predicted then, and the length of many rows is known without reading offsets
(``sections``), as it is in undirected graphs sorted by degree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.facts import in_arcs, is_symmetric
from godwit.graph.rows import Rows, require_memory, row_range
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import barrier, block_range, run_team

# Arcs and vertices of a block; and the largest number of blocks: every thread adds all their sums.
_BLOCK_WORK = 16_384
_MAX_BLOCKS = 1_024
# Arcs and vertices of a graph below which one thread is faster than several with barriers.
_ALONE_WORK = 30_000
# Rows are sorted by length if most have fewer arcs than this; it takes a copy of the arcs.
_SHORT_ROW = 8
# Lengths that sorting distinguishes; longer rows follow in the order of their vertices.
_LENGTHS = 32
# Vertices whose ranks fit the caches of a core.
_NEAR_VERTICES = 16_384
# Rows are sorted by degree if that makes so large a part of the reads near.
_LEAST_GAIN = 0.25
_SAMPLES = 65_536  # arcs sampled for that
_MAX_DEGREE = 65_535  # degrees are capped: NumPy sorts 16 bits fast
# Rows with 1 to FEW_ARCS arcs have a section of a block for each length.
FEW_ARCS = 4

# Unsigned index: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64
_WEIGHTED = False  # arcs have contributions; bound when the kernel is made


@dataclass(frozen=True)
class InArcs:
    """In-arcs as an iteration reads them.

    :ivar offsets: (n + 1) rows of in-arcs; int32 if possible
    :ivar sources: row of the source of each in-arc
    :ivar contributions: part of its source's rank that each in-arc carries; empty if all arcs of a source
        carry the same
    :ivar divisors: (n) divisor of the rank of each row's vertex; empty if it is the row's length
    :ivar order: (n) vertex of each row; empty if row v is that of vertex v
    :ivar blocks: first row of each block, and n
    :ivar sections: (blocks, FEW_ARCS + 2) ends of the rows of a block with 0, 1, ... FEW_ARCS arcs, and of
        the others. Sections are empty if rows are not in that order
    """

    offsets: Array
    sources: Array
    contributions: Array
    divisors: Array
    order: Array
    blocks: Array
    sections: Array


def in_arcs_of(graph: Graph, dtype: Any, *, weighted: bool) -> InArcs:
    """Return the layout of a graph, made once; a graph that is not symmetric is reversed.

    :param weighted: the weights are finite and not negative, and so are their sums
    """
    key = ("pull", np.dtype(dtype).name if weighted else None)
    layout: InArcs = graph.cached(key, lambda: _make_in_arcs(graph, dtype, weighted))
    return layout


def _make_in_arcs(graph: Graph, dtype: Any, weighted: bool) -> InArcs:
    n, reverse = graph.vertex_count, in_arcs(graph, weighted=weighted)
    arc_bytes = 2 * (np.dtype(dtype).itemsize if weighted else 0) + 4
    require_memory(32 * n + arc_bytes * graph.arc_count, "preparing a graph for PageRank")
    threads = thread_count(graph)
    offsets = narrowed(reverse.offsets)
    contributions = np.empty(graph.arc_count if weighted else 0, dtype)
    if weighted:
        outflow = np.empty(n)
        run_team(
            divide, graph.offsets, graph.weights, reverse.offsets, reverse.targets,
            reverse.weights, outflow, contributions, threads=threads,
        )  # fmt: skip
        divisors = (outflow > 0).astype(offsets.dtype)
    elif not is_symmetric(graph):
        divisors = graph.out_degree().astype(offsets.dtype)
    else:
        divisors = np.empty(0, offsets.dtype)
    return arranged(
        offsets, reverse.targets, contributions, divisors, graph.rows,
        threads=threads, symmetric=is_symmetric(graph), value_count=n,
    )  # fmt: skip


def arranged(
    offsets: Array, sources: Array, contributions: Array, divisors: Array, rows: Rows, *, threads: int,
    symmetric: bool, value_count: int,
) -> InArcs:  # fmt: skip
    """Return rows of in-arcs in the order that suits them best.

    :param rows: the out-arcs of the same vertices
    :param symmetric: rows of in-arcs are as long as there are out-arcs
    :param value_count: sources are below it; those from the number of rows on keep their numbers
    """
    by_degree = gains_by_degree(rows)
    n = len(offsets) - 1
    blocks = block_bounds(offsets)
    order = np.empty(0, sources.dtype)
    plain = InArcs(offsets, sources, contributions, divisors, order, blocks, _one_section(blocks))
    if by_degree:
        return _sorted_by_degree(plain, rows, threads, symmetric, value_count)
    if 2 * int(np.count_nonzero(np.diff(offsets) < _SHORT_ROW)) > n:
        return _sorted_by_length(plain, threads, value_count)
    return plain


def _one_section(blocks: Array) -> Array:
    """Return sections of blocks whose rows are in no order."""
    sections = np.repeat(blocks[:-1, None], FEW_ARCS + 2, axis=1)
    sections[:, -1] = blocks[1:]
    return sections


def gains_by_degree(rows: Rows) -> bool:
    """Return True if the vertices of highest degree take more reads than those near the reader."""
    n, arcs = rows.vertex_count, rows.arc_count
    if n <= _NEAR_VERTICES or not arcs:
        return False
    highest = np.partition(np.diff(rows.offsets), n - _NEAR_VERTICES)[n - _NEAR_VERTICES :]
    sample = np.arange(0, arcs, max(1, arcs // _SAMPLES))
    distance = np.searchsorted(rows.offsets, sample, side="right") - 1 - rows.targets[sample]
    near = np.count_nonzero(np.abs(distance) < _NEAR_VERTICES) / len(sample)
    return bool(highest.sum() / arcs - near > _LEAST_GAIN)


def _sorted_by_degree(
    arcs: InArcs, rows: Rows, threads: int, symmetric: bool, value_count: int
) -> InArcs:
    """Sort rows by ascending out-degree."""
    degrees = np.minimum(np.diff(rows.offsets), _MAX_DEGREE).astype(np.uint16)
    order = np.argsort(degrees, kind="stable").astype(rows.targets.dtype)
    offsets = _moved_offsets(arcs, order)
    blocks = block_bounds(offsets)
    sections = _one_section(blocks)
    if symmetric:
        ends = np.searchsorted(degrees[order], np.arange(FEW_ARCS + 1), side="right")
        sections[:, :-1] = np.clip(ends, blocks[:-1, None], blocks[1:, None])
    arcs = replace(arcs, order=order, blocks=blocks, sections=sections)
    return _moved(arcs, offsets, threads, value_count)


def _sorted_by_length(arcs: InArcs, threads: int, value_count: int) -> InArcs:
    """Sort the rows of each block by length."""
    order = np.empty(len(arcs.offsets) - 1, arcs.sources.dtype)
    run_team(
        _sort_by_length, arcs.offsets, arcs.blocks, np.zeros(threads * _LENGTHS, np.int64), order,
        arcs.sections, threads=threads,
    )  # fmt: skip
    return _moved(replace(arcs, order=order), _moved_offsets(arcs, order), threads, value_count)


def _moved_offsets(arcs: InArcs, order: Array) -> Array:
    """Return offsets of rows in an order of vertices."""
    offsets = np.zeros_like(arcs.offsets)
    np.cumsum(np.diff(arcs.offsets)[order], out=offsets[1:])
    return offsets


def _moved(arcs: InArcs, offsets: Array, threads: int, value_count: int) -> InArcs:
    """Move the rows, which are in the order of vertices, to ``arcs.order`` and new offsets."""
    row_of = np.empty(value_count, arcs.order.dtype)
    row_of[len(arcs.order) :] = np.arange(len(arcs.order), value_count)
    moved = replace(
        arcs,
        offsets=offsets,
        sources=np.empty_like(arcs.sources),
        contributions=np.empty_like(arcs.contributions),
        divisors=np.empty_like(arcs.divisors),
    )
    run_team(
        _MOVE_ROWS[arcs.contributions.size > 0], arcs.offsets, arcs.sources, arcs.contributions,
        arcs.divisors, arcs.order, row_of, moved.offsets, moved.sources,
        moved.contributions, moved.divisors, threads=threads,
    )  # fmt: skip
    return moved


def narrowed(offsets: Array) -> Array:
    """Return offsets of 4 bytes if possible: they are read in every iteration."""
    return offsets.astype(np.int32) if offsets[-1] < 2**31 else offsets


def block_bounds(offsets: Array) -> Array:
    """Return the bounds of blocks with about the same number of vertices and in-arcs."""
    work = offsets + np.arange(len(offsets), dtype=np.int64)
    count = min(_MAX_BLOCKS, int(work[-1]) // _BLOCK_WORK + 1)
    bounds = np.searchsorted(work, np.linspace(0, float(work[-1]), count + 1)).astype(np.int64)
    bounds[0], bounds[-1] = 0, len(offsets) - 1
    return bounds


def thread_count(graph: Graph, threads: int | None = None) -> int:
    """Return the number of threads for a graph: at most ``threads``, and one for a small graph."""
    if graph.arc_count + graph.vertex_count < _ALONE_WORK:
        return 1
    return config.thread_count() if threads is None else threads


@kernel
def divide(
    rank: int, size: int, control: Any, offsets: Any, weights: Any, in_offsets: Any,
    in_sources: Any, in_weights: Any, outflow: Any, contributions: Any,
) -> None:  # fmt: skip
    """Compute the contribution of each in-arc: its weight over the outflow of its source."""
    n = outflow.size
    begin, end = block_range(rank, size, n)
    for v in range(begin, end):
        flow = 0.0
        for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
            flow += weights[_at(arc)]
        outflow[_at(v)] = flow
    if not barrier(control, size):
        return
    begin, end = block_range(rank, size, contributions.size)
    for arc in range(begin, end):
        flow = outflow[_at(in_sources[_at(arc)])]
        portion = 0.0 if flow == 0 else in_weights[_at(arc)] / flow
        contributions[_at(arc)] = portion


@kernel
def _sort_by_length(
    rank: int, size: int, control: Any, offsets: Any, blocks: Any, counters: Any, order: Any,
    sections: Any,
) -> None:  # fmt: skip
    """Sort the rows of each block by length, by counting."""
    counts = rank * _LENGTHS
    begin, end = block_range(rank, size, blocks.size - 1)
    for block in range(begin, end):
        first, last = blocks[block], blocks[block + 1]
        for length in range(_LENGTHS):
            counters[counts + length] = 0
        for v in range(first, last):
            counters[counts + min(offsets[v + 1] - offsets[v], _LENGTHS - 1)] += 1
        row = first
        for length in range(_LENGTHS):
            count = counters[counts + length]
            counters[counts + length] = row
            row += count
            if length <= FEW_ARCS:
                sections[block, length] = row
        for v in range(first, last):
            place = counts + min(offsets[v + 1] - offsets[v], _LENGTHS - 1)
            order[counters[place]] = v
            counters[place] += 1


@kernel
def _move_rows(
    rank: int, size: int, control: Any, offsets: Any, sources: Any, contributions: Any, divisors: Any,
    order: Any, row_of: Any, new_offsets: Any, new_sources: Any, new_contributions: Any, new_divisors: Any,
) -> None:  # fmt: skip
    """Copy rows in a new order, with sources as rows instead of vertices."""
    begin, end = block_range(rank, size, order.size)
    for row in range(begin, end):
        row_of[_at(order[_at(row)])] = row
    if not barrier(control, size):
        return
    begin, end = row_range(rank, size, new_offsets)
    for row in range(begin, end):
        v = order[_at(row)]
        if divisors.size > 0:
            new_divisors[_at(row)] = divisors[_at(v)]
        at = new_offsets[_at(row)]
        for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
            new_sources[_at(at)] = row_of[_at(sources[_at(arc)])]
            if _WEIGHTED:
                new_contributions[_at(at)] = contributions[_at(arc)]
            at += 1


_MOVE_ROWS = {weighted: _move_rows.bind(_WEIGHTED=weighted) for weighted in (False, True)}
