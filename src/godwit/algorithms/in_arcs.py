"""A graph as pull reads it: in-arcs in blocks, with the portion of its source's rank that each gets.

Where rows are short, as a road's are, a wrong guess of a row's length costs more than its sum. There the
rows of each block are laid out anew, by length: guesses are right then, and of many rows the length is
known without a look (``sections``). Rows are also what sources are numbered by; ``order`` says whose they
are. All of this depends on the graph alone, not on the number of threads, and is made once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.graph.csr import Graph, require_memory
from godwit.parallel.kernel import kernel
from godwit.parallel.team import barrier, block_range, run_team

# Work of a block, in arcs and vertices; and how many blocks there are at most, for every thread
# adds all of their sums up in every iteration.
_BLOCK_WORK = 16_384
_MOST_BLOCKS = 1_024
# Graphs of less work than this are left to one thread: meeting takes longer.
_ALONE_WORK = 30_000
# Rows are laid out by length where vertices have fewer arcs than this: it takes a copy of the arcs.
_SHORT_DEGREE = 8
# Lengths that are told apart in that; longer rows follow in the order of their vertices.
_LENGTHS = 32
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
        arcs, and where the others do. Empty sections where rows are not laid out by length
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
    ordered = graph.arc_count < _SHORT_DEGREE * n
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
    order = np.empty(n if ordered else 0, graph.targets.dtype)
    blocks = _block_bounds(offsets)
    sections = np.repeat(blocks[:-1, None], FEW_ARCS + 2, axis=1)
    sections[:, -1] = blocks[1:]
    plain = InArcs(offsets, reverse.targets, parts, shares, order, blocks, sections)
    return _by_length(plain, threads) if ordered else plain


def _by_length(arcs: InArcs, threads: int) -> InArcs:
    """The rows of each block in the order of their lengths."""
    made = InArcs(
        np.zeros_like(arcs.offsets),
        np.empty_like(arcs.sources),
        np.empty_like(arcs.parts),
        np.empty_like(arcs.shares),
        arcs.order,
        arcs.blocks,
        arcs.sections,
    )
    run_team(
        _LAY_OUT[arcs.parts.size > 0], arcs.offsets, arcs.sources, arcs.parts, arcs.shares,
        arcs.blocks, np.zeros(threads * _LENGTHS, np.int64), np.empty_like(arcs.order),
        made.offsets, made.sources, made.parts, made.shares, made.order, made.sections,
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
def _lay_out(
    rank: int, size: int, control: Any, offsets: Any, sources: Any, parts: Any, shares: Any,
    blocks: Any, counters: Any, row_of: Any, new_offsets: Any, new_sources: Any, new_parts: Any,
    new_shares: Any, order: Any, sections: Any,
) -> None:  # fmt: skip
    """Sort the rows of each block by length, by counting; a block's arcs stay in their stretch."""
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
            row = counters[place]
            order[row] = v
            row_of[v] = row
            counters[place] += 1
    if not barrier(control, size):
        return
    for block in range(begin, end):
        first, last = blocks[block], blocks[block + 1]
        at = offsets[first]
        for row in range(first, last):
            v = order[row]
            if shares.size > 0:
                new_shares[row] = shares[v]
            for arc in range(offsets[v], offsets[v + 1]):
                new_sources[at] = row_of[sources[arc]]
                if _WEIGHTED:
                    new_parts[at] = parts[arc]
                at += 1
            new_offsets[row + 1] = at


_LAY_OUT = {weighted: _lay_out.bind(_WEIGHTED=weighted) for weighted in (False, True)}
