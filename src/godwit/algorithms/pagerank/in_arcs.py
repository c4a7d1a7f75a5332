"""A graph as pull reads it: in-arcs in blocks, with the portion of its source's rank that each gets.

Rows may be laid out anew, in one of two orders. Rows are then also what sources are numbered by; ``order``
says whose they are. All of this depends on the graph alone, not on the number of threads, and is made once.

*Hot first*, or rather last: the more out-arcs a vertex has, the more often it is read, and the further
behind its row is. Where few vertices take most of the reads and stand scattered, as in social networks,
these reads find them in a cache. Web crawls and meshes, whose vertices stand by their neighbours, keep
their order (Balaji and Lucia, "When is graph reordering an optimization?", IISWC 2018).

*By length*, in each block, where most rows are short: there a wrong guess of a row's length costs more than
its sum. Guesses are right then, and of many rows the length is known without a look (``sections``), as it
is of undirected graphs hot first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.rows import require_memory, row_range
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import barrier, block_range, run_team

# Work of a block, in arcs and vertices; and how many blocks there are at most, for every thread
# adds all of their sums up in every iteration.
_BLOCK_WORK = 16_384
_MOST_BLOCKS = 1_024
# Graphs of less work than this are left to one thread: meeting takes longer.
_ALONE_WORK = 30_000
# Rows are laid out by length where most have fewer arcs than this: it takes a copy of the arcs.
_SHORT_ROW = 8
# Lengths that are told apart in that; longer rows follow in the order of their vertices.
_LENGTHS = 32
# Ranks of so many vertices fit the caches of a core.
_NEAR_VERTICES = 16_384
# Rows are laid out hot first where that brings so large a part of the reads near.
_LEAST_GAIN = 0.25
_SAMPLES = 65_536  # arcs that are looked at for that
_MOST_HEAT = 65_535  # out-degrees that are told apart: NumPy sorts 16 bits fast
# Rows that have from one to so many arcs have a section of a block each.
FEW_ARCS = 4

# An index known not to be negative: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64
_WEIGHTED = False  # whether arcs have parts of their own; bound when the kernel is made


@dataclass(frozen=True)
class InArcs:
    """A graph as the iteration reads it.

    :ivar offsets: (n + 1) rows of in-arcs; int32 where that does
    :ivar sources: the row of the vertex that each in-arc comes from
    :ivar parts: the portion of its source's rank that each in-arc gets; empty if all get the same
    :ivar shares: (n) shares of the vertex of each row; empty if they are the row's length
    :ivar order: (n) the vertex of each row; empty if row v is that of vertex v
    :ivar blocks: first row of each block, and n; the vertices of a block's rows are the same numbers
    :ivar sections: (blocks, FEW_ARCS + 2) where the rows of a block end that have 0, 1, ... FEW_ARCS
        arcs, and where the others do. Empty sections where rows do not stand in that order
    """

    offsets: Array
    sources: Array
    parts: Array
    shares: Array
    order: Array
    blocks: Array
    sections: Array


def in_arcs(graph: Graph, dtype: Any, *, weighted: bool) -> InArcs:
    """The graph as the iteration reads it, made once; a directed graph is reversed for that.

    :param weighted: the weights are finite and not negative, and so are their sums
    """
    key = ("pull", np.dtype(dtype).name if weighted else None)
    made: InArcs = graph.cached(key, lambda: _make_in_arcs(graph, dtype, weighted))
    return made


def _make_in_arcs(graph: Graph, dtype: Any, weighted: bool) -> InArcs:
    n, reverse = graph.vertex_count, graph.reverse
    hot = _gains_hot_first(graph)
    ordered = hot or 2 * int(np.count_nonzero(np.diff(reverse.offsets) < _SHORT_ROW)) > n
    arc_bytes = (np.dtype(dtype).itemsize if weighted else 0) * (1 + ordered) + 4 * ordered
    require_memory(32 * n + arc_bytes * graph.arc_count, "preparing a graph for PageRank")
    threads = thread_count(graph)
    offsets = _narrowed(reverse.offsets, reverse)
    parts = np.empty(graph.arc_count if weighted else 0, dtype)
    if weighted:
        outflow = np.empty(n)
        run_team(
            _divide, graph.offsets, graph.weights, reverse.offsets, reverse.targets,
            reverse.weights, outflow, parts, threads=threads,
        )  # fmt: skip
        shares = (outflow > 0).astype(offsets.dtype)
    elif graph.directed:
        shares = graph.out_degree().astype(offsets.dtype)
    else:
        shares = np.empty(0, offsets.dtype)
    order = np.empty(0, graph.targets.dtype)
    blocks = _block_bounds(offsets)
    plain = InArcs(offsets, reverse.targets, parts, shares, order, blocks, _one_section(blocks))
    if hot:
        return _hot_first(plain, graph, threads)
    return _by_length(plain, threads) if ordered else plain


def _one_section(blocks: Array) -> Array:
    """Sections of blocks whose rows stand in any order."""
    sections = np.repeat(blocks[:-1, None], FEW_ARCS + 2, axis=1)
    sections[:, -1] = blocks[1:]
    return sections


def _gains_hot_first(graph: Graph) -> bool:
    """Whether the vertices that are read most take more of the reads than those that stand nearby."""
    n, arcs = graph.vertex_count, graph.arc_count
    if n <= _NEAR_VERTICES or not arcs:
        return False
    hottest = np.partition(graph.out_degree(), n - _NEAR_VERTICES)[n - _NEAR_VERTICES :]
    sample = np.arange(0, arcs, max(1, arcs // _SAMPLES))
    distance = np.searchsorted(graph.offsets, sample, side="right") - 1 - graph.targets[sample]
    near = np.count_nonzero(np.abs(distance) < _NEAR_VERTICES) / len(sample)
    return bool(hottest.sum() / arcs - near > _LEAST_GAIN)


def _hot_first(arcs: InArcs, graph: Graph, threads: int) -> InArcs:
    """Rows of vertices in ascending order of their out-degrees."""
    heat = np.minimum(graph.out_degree(), _MOST_HEAT).astype(np.uint16)
    order = np.argsort(heat, kind="stable").astype(graph.targets.dtype)
    offsets = _moved_offsets(arcs, order)
    blocks = _block_bounds(offsets)
    sections = _one_section(blocks)
    if not graph.directed:  # rows are as long as there are out-arcs
        ends = np.searchsorted(heat[order], np.arange(FEW_ARCS + 1), side="right")
        sections[:, :-1] = np.clip(ends, blocks[:-1, None], blocks[1:, None])
    return _moved(replace(arcs, order=order, blocks=blocks, sections=sections), offsets, threads)


def _by_length(arcs: InArcs, threads: int) -> InArcs:
    """The rows of each block in the order of their lengths."""
    order = np.empty(len(arcs.offsets) - 1, arcs.sources.dtype)
    run_team(
        _sort_by_length, arcs.offsets, arcs.blocks, np.zeros(threads * _LENGTHS, np.int64), order,
        arcs.sections, threads=threads,
    )  # fmt: skip
    return _moved(replace(arcs, order=order), _moved_offsets(arcs, order), threads)


def _moved_offsets(arcs: InArcs, order: Array) -> Array:
    """Offsets of rows in that order of vertices."""
    offsets = np.zeros_like(arcs.offsets)
    np.cumsum(np.diff(arcs.offsets)[order], out=offsets[1:])
    return offsets


def _moved(arcs: InArcs, offsets: Array, threads: int) -> InArcs:
    """With rows, so far by vertices, in the order that is given, at these offsets."""
    made = replace(
        arcs,
        offsets=offsets,
        sources=np.empty_like(arcs.sources),
        parts=np.empty_like(arcs.parts),
        shares=np.empty_like(arcs.shares),
    )
    run_team(
        _MOVE_ROWS[arcs.parts.size > 0], arcs.offsets, arcs.sources, arcs.parts, arcs.shares,
        arcs.order, np.empty_like(arcs.order), made.offsets, made.sources, made.parts, made.shares,
        threads=threads,
    )  # fmt: skip
    return made


def _narrowed(offsets: Array, graph: Graph) -> Array:
    """Offsets of 4 bytes where that does: they are read in every iteration."""
    return offsets.astype(np.int32) if graph.arc_count < 2**31 else offsets


def _block_bounds(offsets: Array) -> Array:
    """Where blocks begin, each of about the same number of vertices and in-arcs."""
    work = offsets + np.arange(len(offsets), dtype=np.int64)
    count = min(_MOST_BLOCKS, int(work[-1]) // _BLOCK_WORK + 1)
    bounds = np.searchsorted(work, np.linspace(0, float(work[-1]), count + 1)).astype(np.int64)
    bounds[0], bounds[-1] = 0, len(offsets) - 1
    return bounds


def thread_count(graph: Graph, threads: int | None = None) -> int:
    """How many threads work on a graph: at most so many, and one on a small graph."""
    if graph.arc_count + graph.vertex_count < _ALONE_WORK:
        return 1
    return config.thread_count() if threads is None else threads


@kernel
def _divide(
    rank: int, size: int, control: Any, offsets: Any, weights: Any, in_offsets: Any,
    in_sources: Any, in_weights: Any, outflow: Any, parts: Any,
) -> None:  # fmt: skip
    """Each arc's portion of what leaves its source."""
    n = outflow.size
    begin, end = block_range(rank, size, n)
    for v in range(begin, end):
        flow = 0.0
        for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
            flow += weights[_at(arc)]
        outflow[_at(v)] = flow
    if not barrier(control, size):
        return
    begin, end = block_range(rank, size, parts.size)
    for arc in range(begin, end):
        flow = outflow[_at(in_sources[_at(arc)])]
        portion = 0.0 if flow == 0 else in_weights[_at(arc)] / flow
        parts[_at(arc)] = portion


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
    rank: int, size: int, control: Any, offsets: Any, sources: Any, parts: Any, shares: Any,
    order: Any, row_of: Any, new_offsets: Any, new_sources: Any, new_parts: Any, new_shares: Any,
) -> None:  # fmt: skip
    """Rows in that order, and in them, rows in place of vertices."""
    begin, end = block_range(rank, size, order.size)
    for row in range(begin, end):
        row_of[_at(order[_at(row)])] = row
    if not barrier(control, size):
        return
    begin, end = row_range(rank, size, new_offsets)
    for row in range(begin, end):
        v = order[_at(row)]
        if shares.size > 0:
            new_shares[_at(row)] = shares[_at(v)]
        at = new_offsets[_at(row)]
        for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
            new_sources[_at(at)] = row_of[_at(sources[_at(arc)])]
            if _WEIGHTED:
                new_parts[_at(at)] = parts[_at(arc)]
            at += 1


_MOVE_ROWS = {weighted: _move_rows.bind(_WEIGHTED=weighted) for weighted in (False, True)}
