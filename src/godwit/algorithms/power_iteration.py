"""Power iteration by pull: the driver behind PageRank on one shared-memory device.

``new[v] = lift * teleport[v] + damping * (sum over in-arcs u -> v of rank[u] * part of the arc)`` with
``lift = 1 - damping + damping * (ranks of dangling vertices)``, so that the sum stays 1. Page, Brin,
Motwani and Winograd, "The PageRank citation ranking" (1999), as NetworkX defines the details.

Encoding: what is kept of a vertex between iterations is not its rank but what each of its arcs
carries, ``carried[v] = rank[v] / max(1, shares)``; ``shares`` are the parts that a rank is divided into:
the out-degree, or, where arcs have weights and ``parts`` holds each arc's portion, 1. A vertex of 0 shares
is dangling; nobody reads what it carries. So an iteration streams 4 bytes of source an arc and some 24 a
vertex, and reads 8 at random an arc; GAP's ``pr_spmv`` streams a rank and a contribution besides.

The same bits come out whatever the number of threads: a row is summed in one fixed order, and dangling
ranks and changes are summed per block, blocks of the graph in order. Blocks depend on the graph alone.
Every thread has a stretch of them; one that is done helps the next.

One barrier an iteration: sums of blocks, values and cursors exist twice, for odd and even iterations,
and every thread adds the blocks' sums up for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.algorithms.in_arcs import InArcs, thread_count
from godwit.dtypes import Array
from godwit.graph.csr import Graph, require_memory
from godwit.parallel.atomics import fetch_add, load_acquire, store_relaxed
from godwit.parallel.kernel import kernel
from godwit.parallel.team import ABORT, WORDS_PER_LINE, barrier, block_range, run_team

# Words of `counts` (int64).
_ITERATIONS = 0
# Words of `outcome` (float64).
_RESIDUAL = 0

# An index known not to be negative: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64
# Bound when a kernel is made.
_WEIGHTED = False  # whether arcs have parts of their own
_ORDERED = False  # whether rows are in another order than vertices


@dataclass(frozen=True)
class Iterated:
    """What came out: (n) ranks, iterations, and the L1 norm of the last change."""

    rank: Array
    iterations: int
    residual: float


def power_iteration(
    graph: Graph,
    arcs: InArcs,
    start: Array,
    teleport: Array,
    *,
    damping: float,
    tolerance: float,
    max_iterations: int,
    threads: int | None = None,
    poll: Callable[[int], None] | None = None,
) -> Iterated:
    """Iterate until ranks change by less than the tolerance in sum.

    :param arcs: of :func:`godwit.algorithms.in_arcs.in_arcs`
    :param start: (n) initial ranks, of sum 1; float32 or float64, overwritten by the result
    :param teleport: (n) float64 of sum 1, or (1) for the same everywhere
    :param threads: at most so many; all that the process may use by default. Small graphs use one
    :param poll: called now and then by the calling thread with the number of vertices updated so far;
        an exception that it raises ends the run
    """
    n = graph.vertex_count
    threads = thread_count(graph, threads)
    blocks = len(arcs.blocks) - 1
    require_memory(2 * start.nbytes, "PageRank")
    counts = np.zeros(1, np.int64)
    outcome = np.zeros(1)
    run_team(
        _ITERATE[arcs.parts.size > 0, arcs.order.size > 0],
        arcs.offsets,
        arcs.sources,
        arcs.parts,
        arcs.shares,
        arcs.order,
        arcs.blocks,
        np.require(teleport, np.float64),
        start,
        np.empty_like(start),
        np.empty_like(start),
        np.zeros(4 * blocks),
        np.zeros(2 * threads * WORDS_PER_LINE, np.int64),
        counts,
        outcome,
        float(damping),
        float(tolerance),
        int(max_iterations),
        threads=threads,
        poll=None if poll is None else lambda: poll(n * int(counts[_ITERATIONS])),
    )
    return Iterated(start, int(counts[_ITERATIONS]), float(outcome[_RESIDUAL]))


def _next_block(cursors: Any, parity: int, rank: int, size: int, blocks: int, helped: int) -> Any:
    """A block that nobody has begun, and whose stretch it is of; -1 if there is none left."""
    while helped < size:
        owner = (rank + helped) % size
        begin, end = block_range(owner, size, blocks)
        block = begin + fetch_add(cursors, (parity * size + owner) * WORDS_PER_LINE, 1)
        if block < end:
            return block, helped
        helped += 1
    return -1, helped


def _addend(sources: Any, parts: Any, carried: Any, arc: Any) -> Any:
    """What comes along an in-arc."""
    value = np.float64(carried[_at(sources[_at(arc)])])
    if _WEIGHTED:
        value *= parts[_at(arc)]
    return value


def _row_sum(sources: Any, parts: Any, carried: Any, begin: Any, end: Any) -> float:
    """What comes in along a row, by four sums: one would wait for its own last addition."""
    a = 0.0
    b = 0.0
    c = 0.0
    d = 0.0
    arc = begin
    while arc + 4 <= end:
        a += _addend(sources, parts, carried, arc)
        b += _addend(sources, parts, carried, arc + 1)
        c += _addend(sources, parts, carried, arc + 2)
        d += _addend(sources, parts, carried, arc + 3)
        arc += 4
    if arc < end:
        a += _addend(sources, parts, carried, arc)
    if arc + 1 < end:
        b += _addend(sources, parts, carried, arc + 1)
    if arc + 2 < end:
        c += _addend(sources, parts, carried, arc + 2)
    return (a + b) + (c + d)


def _vertex(order: Any, row: Any) -> Any:
    """Whose row it is."""
    if _ORDERED:
        return order[_at(row)]
    return row


def _start_block(
    block: Any, shares: Any, order: Any, blocks: Any, start: Any, carried: Any, sums: Any
) -> None:
    """What every vertex of a block carries at first, and the ranks of those that are dangling."""
    dangling = 0.0
    for row in range(blocks[_at(block)], blocks[_at(block + 1)]):
        v = _vertex(order, row)
        count = shares[_at(row)]
        value = np.float64(start[_at(v)])
        carried[_at(v)] = value / max(count, 1)
        dangling += value if count == 0 else 0.0
    sums[_at(2 * block)] = 0.0
    sums[_at(2 * block + 1)] = dangling


def _update_block(
    block: Any, offsets: Any, sources: Any, parts: Any, shares: Any, order: Any, blocks: Any,
    teleport: Any, old: Any, new: Any, sums: Any, at_sums: Any, damping: float, lift: float,
) -> None:  # fmt: skip
    """One iteration of the vertices of a block; its change and its dangling ranks."""
    change = 0.0
    dangling = 0.0
    uniform = teleport.size == 1
    first = blocks[_at(block)]
    begin = offsets[_at(first)]
    for row in range(first, blocks[_at(block + 1)]):
        v = _vertex(order, row)
        end = offsets[_at(row + 1)]
        incoming = _row_sum(sources, parts, old, begin, end)
        begin = end
        value = lift * teleport[_at(0 if uniform else v)] + damping * incoming
        count = shares[_at(row)]
        divisor = np.float64(max(count, 1))
        change += abs(value - old[_at(v)] * divisor)
        dangling += value if count == 0 else 0.0
        new[_at(v)] = value / divisor
    sums[_at(at_sums + 2 * block)] = change
    sums[_at(at_sums + 2 * block + 1)] = dangling


@kernel
def _iterate(
    rank: int, size: int, control: Any, offsets: Any, sources: Any, parts: Any, shares: Any,
    order: Any, bounds: Any, teleport: Any, ranks: Any, old: Any, new: Any, sums: Any,
    cursors: Any, counts: Any, outcome: Any, damping: float, tolerance: float, max_iterations: int,
) -> None:  # fmt: skip
    """All iterations; ranks hold the start and then the result."""
    blocks = bounds.size - 1
    first, last = block_range(rank, size, blocks)
    for block in range(first, last):
        _start_block(block, shares, order, bounds, ranks, old, sums)
    iteration = 0
    parity = 0
    while barrier(control, size):
        change = 0.0
        dangling = 0.0
        for block in range(blocks):
            change += sums[_at(2 * (parity * blocks + block))]
            dangling += sums[_at(2 * (parity * blocks + block) + 1)]
        if rank == 0:
            outcome[_RESIDUAL] = change
            counts[_ITERATIONS] = iteration
        if iteration == max_iterations or (iteration > 0 and change < tolerance):
            break
        parity = 1 - parity
        # Of the iteration to come: everybody has left the one that used it.
        store_relaxed(cursors, ((1 - parity) * size + rank) * WORDS_PER_LINE, 0)
        lift = 1.0 - damping + damping * dangling
        helped = 0
        while True:
            block, helped = _next_block(cursors, parity, rank, size, blocks, helped)
            if block < 0 or load_acquire(control, ABORT) != 0:
                break
            _update_block(
                block, offsets, sources, parts, shares, order, bounds, teleport, old, new, sums,
                2 * parity * blocks, damping, lift,
            )  # fmt: skip
        old, new = new, old
        iteration += 1
    # After an abort this is of no use, and soon done.
    for row in range(bounds[_at(first)], bounds[_at(last)]):
        v = _vertex(order, row)
        ranks[_at(v)] = old[_at(v)] * max(shares[_at(row)], 1)


_ITERATE = {
    (weighted, ordered): _iterate.bind(_WEIGHTED=weighted, _ORDERED=ordered)
    for weighted in (False, True)
    for ordered in (False, True)
}
