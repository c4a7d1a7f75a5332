"""PageRank on the CPU: power iteration by pull.

``new[v] = lift * teleport[v] + damping * (sum over in-arcs u -> v of rank[u] * part of the arc)`` with
``lift = 1 - damping + damping * (ranks of dangling vertices)``, so that the sum stays 1. Page, Brin,
Motwani and Winograd, "The PageRank citation ranking" (1999), as NetworkX defines the details.

Encoding: between iterations a vertex is represented not by its rank but by the value that each of its arcs
carries, ``carried = rank / max(1, divisor)``. The divisor is the out-degree, or, if ``contributions`` has
the part of the source's rank for each arc by weights, 1. A vertex with divisor 0 is dangling, and its
carried value is never read. Vertices are in the order of their rows. So an iteration streams 4 bytes of
source an arc and some 24 a vertex, and reads 8 at random an arc; GAP's ``pr_spmv`` streams a rank and a
contribution besides.

Acceleration, of undirected graphs: an iteration is then, except for dangling vertices, which have no
in-arcs either, similar to a symmetric matrix with eigenvalues in [-damping, damping]. Chebyshev polynomials
of it reduce all errors in an iteration by damping / (1 + sqrt(1 - damping^2)), 0.56 instead of 0.85: each
iterate extrapolates the iteration's result, ``omega`` times as far from the iterate before the last, which
the array that is written still holds. Golub and Varga, "Chebyshev semi-iterative methods, successive
overrelaxation iterative methods, and second order Richardson iterative methods" (1961). Where ranks mix
quickly, plain iterations do better, as they may at first; so acceleration begins when an iteration reduces
the change by no larger factor than the previous one, and more plain iterations would be needed than
accelerated ones.

The change is always that of a plain iteration. An accelerated iterate may be worse than the previous one,
so the result is the one whose change was measured as small. Errors after plain iterations are at the ends
of the spectrum: damping / (1 + damping) to damping / (1 - damping) times the change. Errors after
accelerated ones are anywhere, up to 1 / (1 - damping) times; so as not to be worse even where plain ones
are at their best, on graphs that are bipartite or nearly so, as roads, they end at a change of damping / (1
+ damping) * tolerance. Rounding may prevent that: if a change below the tolerance has not decreased, a
plain iteration follows, which is the last by its own criterion.

Results have the same bits for any number of threads: a row is summed in a fixed order, and dangling ranks
and changes are summed per block, in the order of blocks, which depend on the graph alone. Every thread has
a range of blocks, and helps the next thread when it is done.

One barrier per iteration: sums of blocks, values and cursors exist twice, for odd and even iterations, and
every thread adds the blocks' sums for itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.algorithms.pagerank.in_arcs import InArcs, thread_count
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.rows import require_memory
from godwit.progress import Progress
from godwit.runtime.cpu.atomics import fetch_add, load_acquire, store_relaxed
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, WORDS_PER_LINE, barrier, block_range, run_team

# Words of `counts` (int64).
_ITERATIONS = 0
# Words of `outcome` (float64).
_RESIDUAL = 0

# Unsigned index: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64
# Bound when a kernel is made.
_WEIGHTED = False  # arcs have contributions
_HAS_DIVISORS = False  # divisors are not the lengths of rows


@dataclass(frozen=True)
class IterationOutcome:
    """Ranks (n), number of iterations, and L1 norm of the last change, as of a plain iteration."""

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
    accelerated: bool = False,
    threads: int | None = None,
    poll: Callable[[int], None] | None = None,
) -> IterationOutcome:
    """Iterate until ranks change by less than the tolerance in sum.

    :param arcs: of :func:`godwit.algorithms.pagerank.in_arcs.in_arcs_of`
    :param start: (n) initial ranks, of sum 1; float32 or float64, overwritten by the result
    :param teleport: (n) float64 of sum 1, or (1) for the same everywhere
    :param accelerated: True to accelerate; the graph is undirected
    :param threads: upper limit; by default all of the process. Small graphs use one
    :param poll: called now and then by the calling thread with the number of vertices updated so far;
        an exception ends the run
    """
    n = graph.vertex_count
    threads = thread_count(graph, threads)
    blocks = len(arcs.blocks) - 1
    require_memory(2 * start.nbytes, "PageRank")
    counts = np.zeros(1, np.int64)
    outcome = np.zeros(1)
    teleport = np.require(teleport, np.float64)
    if teleport.size == n and arcs.order.size > 0:
        teleport = teleport[arcs.order]
    run_team(
        _ITERATE[arcs.contributions.size > 0, arcs.divisors.size > 0],
        arcs.offsets,
        arcs.sources,
        arcs.contributions,
        arcs.divisors,
        arcs.order,
        arcs.blocks,
        arcs.sections,
        teleport,
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
        float(damping) if accelerated else 0.0,
        threads=threads,
        poll=None
        if poll is None
        else lambda: poll(
            Progress.of_iterations(int(counts[_ITERATIONS]), n, float(outcome[_RESIDUAL]))
        ),
    )
    return IterationOutcome(start, int(counts[_ITERATIONS]), float(outcome[_RESIDUAL]))


def next_block(cursors: Any, parity: int, rank: int, size: int, blocks: int, helped: int) -> Any:
    """Claim a block; return it, or -1 if all are claimed, and how many threads further its range is."""
    while helped < size:
        owner = (rank + helped) % size
        begin, end = block_range(owner, size, blocks)
        block = begin + fetch_add(cursors, (parity * size + owner) * WORDS_PER_LINE, 1)
        if block < end:
            return block, helped
        helped += 1
    return -1, helped


def _addend(sources: Any, contributions: Any, carried: Any, arc: Any) -> Any:
    """Return the value that an in-arc adds to its row's sum."""
    value = np.float64(carried[_at(sources[_at(arc)])])
    if _WEIGHTED:
        value *= contributions[_at(arc)]
    return value


def _row_sum(sources: Any, contributions: Any, carried: Any, begin: Any, end: Any) -> float:
    """Return the sum of a row, by four independent sums, which hide the latency of additions."""
    a = 0.0
    b = 0.0
    c = 0.0
    d = 0.0
    arc = begin
    while arc + 4 <= end:
        a += _addend(sources, contributions, carried, arc)
        b += _addend(sources, contributions, carried, arc + 1)
        c += _addend(sources, contributions, carried, arc + 2)
        d += _addend(sources, contributions, carried, arc + 3)
        arc += 4
    if arc < end:
        a += _addend(sources, contributions, carried, arc)
    if arc + 1 < end:
        b += _addend(sources, contributions, carried, arc + 1)
    if arc + 2 < end:
        c += _addend(sources, contributions, carried, arc + 2)
    return (a + b) + (c + d)


def _few_sum(sources: Any, contributions: Any, carried: Any, begin: Any, length: Any) -> float:
    """Return the sum of a row of 1 to FEW_ARCS arcs, whose number is a compile-time constant.

    It is rounded as by :func:`_row_sum`.
    """
    incoming: float = _addend(sources, contributions, carried, begin)
    if length > 1:
        incoming += _addend(sources, contributions, carried, begin + 1)
    if length == 3:
        incoming += _addend(sources, contributions, carried, begin + 2)
    if length > 3:
        third = _addend(sources, contributions, carried, begin + 2)
        incoming += third + _addend(sources, contributions, carried, begin + 3)
    return incoming


def _vertex(order: Any, row: Any) -> Any:
    """Return the vertex of a row."""
    return row if order.size == 0 else order[_at(row)]


def _divisor(offsets: Any, divisors: Any, row: Any) -> Any:
    """Return the divisor of the rank of a row's vertex."""
    if _HAS_DIVISORS:
        return divisors[_at(row)]
    return offsets[_at(row + 1)] - offsets[_at(row)]


def _start_block(
    block: Any, offsets: Any, divisors: Any, order: Any, blocks: Any, start: Any, old: Any, new: Any,
    sums: Any,
) -> None:  # fmt: skip
    """Set the initial values of a block's vertices, and sum the ranks of dangling ones."""
    dangling = 0.0
    for row in range(blocks[_at(block)], blocks[_at(block + 1)]):
        count = _divisor(offsets, divisors, row)
        value = np.float64(start[_at(_vertex(order, row))])
        old[_at(row)] = value / max(count, 1)
        new[_at(row)] = 0.0  # any number: plain iterations multiply it by 0
        dangling += value if count == 0 else 0.0
    sums[_at(2 * block)] = 0.0
    sums[_at(2 * block + 1)] = dangling


def no_sum() -> Any:
    """Return the empty sum; distributed.py binds exact sums in place of this and the next two functions."""
    return 0.0


def added(total: Any, value: float) -> Any:
    """Return a sum with a number added to it."""
    return total + value


def change_added(total: Any, value: float) -> Any:
    """Return a sum of changes with a change added to it."""
    return total + value


def _update_rows(
    length: int, row: Any, last: Any, begin: Any, change: Any, dangling: Any, offsets: Any,
    sources: Any, contributions: Any, divisors: Any, teleport: Any, of_sources: Any, old: Any, new: Any,
    damping: float, lift: float, omega: float,
) -> Any:  # fmt: skip
    """Compute one iteration for the rows from ``row`` to ``last`` (exclusive).

    :param length: number of arcs of each row, from 1 to FEW_ARCS; -1: it varies, and is read from offsets
    :param begin: index of the first row's first arc
    :returns: index after the last row's last arc, and the sums of changes and of dangling ranks, to
        which these rows are added
    """
    stride = 0 if teleport.size == 1 else 1
    while row < last:
        if length > 0:
            incoming = _few_sum(sources, contributions, of_sources, begin, length)
            count: Any = np.int64(length)
            begin += length
        else:
            end = np.int64(offsets[_at(row + 1)])
            incoming = _row_sum(sources, contributions, of_sources, begin, end)
            count = end - begin
            begin = end
        if _HAS_DIVISORS:
            count = np.int64(divisors[_at(row)])
        value = lift * teleport[_at(stride * row)] + damping * incoming
        divisor = np.float64(max(count, 1))
        carried = value / divisor
        change = change_added(change, abs(carried - old[_at(row)]) * divisor)
        carried += (omega - 1.0) * (carried - new[_at(row)])
        if count == 0:
            dangling = added(dangling, carried)
        new[_at(row)] = carried
        row += 1
    return begin, change, dangling


def update_block(
    block: Any, offsets: Any, sources: Any, contributions: Any, divisors: Any, blocks: Any, sections: Any,
    teleport: Any, of_sources: Any, old: Any, new: Any, damping: float, lift: float, omega: float,
    change: Any, dangling: Any,
) -> Any:  # fmt: skip
    """Do one iteration of the vertices of a block.

    :param of_sources: carried values, by the numbers that ``sources`` has
    :param old: those of the rows; in one process the same array
    :returns: the sums of changes and of dangling ranks, to which these vertices are added
    """
    row = blocks[_at(block)]
    begin = np.int64(offsets[_at(row)])
    data = (
        offsets, sources, contributions, divisors, teleport, of_sources, old, new, damping, lift, omega,
    )  # fmt: skip
    for section in range(sections.shape[1]):
        last = sections[_at(block), _at(section)]
        if section == 1:
            begin, change, dangling = _update_rows(1, row, last, begin, change, dangling, *data)
        elif section == 2:
            begin, change, dangling = _update_rows(2, row, last, begin, change, dangling, *data)
        elif section == 3:
            begin, change, dangling = _update_rows(3, row, last, begin, change, dangling, *data)
        elif section == 4:
            begin, change, dangling = _update_rows(4, row, last, begin, change, dangling, *data)
        else:
            begin, change, dangling = _update_rows(-1, row, last, begin, change, dangling, *data)
        row = last
    return change, dangling


@kernel
def _iterate(
    rank: int, size: int, control: Any, offsets: Any, sources: Any, contributions: Any, divisors: Any,
    order: Any, bounds: Any, sections: Any, teleport: Any, ranks: Any, old: Any, new: Any,
    sums: Any, cursors: Any, counts: Any, outcome: Any, damping: float, tolerance: float,
    max_iterations: int, radius: float,
) -> None:  # fmt: skip
    """Do all iterations; ``ranks`` holds the initial ranks, then the result.

    :param radius: bound of the eigenvalues, which are real; 0 for plain iterations
    """
    blocks = bounds.size - 1
    first, last = block_range(rank, size, blocks)
    for block in range(first, last):
        _start_block(block, offsets, divisors, order, bounds, ranks, old, new, sums)
    iteration = 0
    parity = 0
    omega = 1.0
    change = 0.0
    ratio = 0.0
    while barrier(control, size):
        before = change
        ratio_before = ratio
        change = 0.0
        dangling = 0.0
        for block in range(blocks):
            change += sums[_at(2 * (parity * blocks + block))]
            dangling += sums[_at(2 * (parity * blocks + block) + 1)]
        if rank == 0:
            outcome[_RESIDUAL] = change
            counts[_ITERATIONS] = iteration
        if is_last(iteration, max_iterations, change, damping, tolerance, omega):
            break
        ratio, omega = next_omega(
            iteration, change, before, ratio_before, damping, tolerance, radius, omega
        )
        parity = 1 - parity
        # Reset the cursor of the next iteration; all threads have left the one that used it.
        store_relaxed(cursors, ((1 - parity) * size + rank) * WORDS_PER_LINE, 0)
        lift = 1.0 - damping + damping * dangling
        helped = 0
        while True:
            block, helped = next_block(cursors, parity, rank, size, blocks, helped)
            if block < 0 or load_acquire(control, ABORT) != 0:
                break
            block_change, block_dangling = update_block(
                block, offsets, sources, contributions, divisors, bounds, sections, teleport, old,
                old, new, damping, lift, omega, no_sum(), no_sum(),
            )  # fmt: skip
            sums[_at(2 * (parity * blocks + block))] = block_change
            sums[_at(2 * (parity * blocks + block) + 1)] = block_dangling
        old, new = new, old
        iteration += 1
    # After an abort the result is not used.
    for row in range(bounds[_at(first)], bounds[_at(last)]):
        carried = old[_at(row)] if omega == 1.0 else new[_at(row)]
        # Accelerated iterates oscillate about their limit, which may be close to 0.
        count = _divisor(offsets, divisors, row)
        ranks[_at(_vertex(order, row))] = max(carried, 0.0) * max(count, 1)


def _accelerated_tolerance(damping: float, tolerance: float) -> float:
    """Return the change at which accelerated iterations end."""
    return damping / (1.0 + damping) * tolerance


def is_last(
    iteration: Any,
    max_iterations: Any,
    change: float,
    damping: float,
    tolerance: float,
    omega: float,
) -> bool:
    """Return True if no further iteration is needed, or allowed.

    :param iteration: number of iterations so far
    :param change: by the last one
    :param omega: extrapolation factor of the last one
    """
    enough = tolerance if omega == 1.0 else _accelerated_tolerance(damping, tolerance)
    return bool(iteration == max_iterations or (iteration > 0 and change < enough))


def next_omega(
    iteration: Any, change: float, before: float, ratio_before: float, damping: float, tolerance: float,
    radius: float, omega: float,
) -> Any:  # fmt: skip
    """Return the ratio of the last two changes, and the extrapolation factor of the next iteration.

    :param before: the change by the last iteration but one
    :param ratio_before: the ratio of the two changes before
    :param radius: bound of the eigenvalues, which are real; 0 for plain iterations
    """
    ratio = change / before
    plain = _count(ratio, change, tolerance)
    enough = _accelerated_tolerance(damping, tolerance)
    accelerated = _count(_chebyshev_ratio(radius), 2.0 * change, enough)
    if omega > 1.0 and change < tolerance and ratio >= 1.0:
        omega = 1.0
    elif omega > 1.0 or (iteration > 2 and ratio >= ratio_before and accelerated < plain):
        omega = _following_omega(radius, omega)
    return ratio, omega


def _count(ratio: float, change: float, tolerance: float) -> float:
    """Return the number of iterations that reduce a change to the tolerance, each by a ratio."""
    return (math.log(tolerance) - math.log(change)) / math.log(ratio)


def _chebyshev_ratio(radius: float) -> float:
    """Return the factor by which each accelerated iteration reduces the change in the long run.

    The first accelerated iterations may double the change.
    """
    return radius / (1.0 + math.sqrt(1.0 - radius * radius))


def _following_omega(radius: float, omega: float) -> float:
    """Return the extrapolation factor of the next iteration from that of the last; plain ones have 1."""
    return 1.0 / (1.0 - (0.5 if omega == 1.0 else 0.25) * radius * radius * omega)


_ITERATE = {
    (weighted, has_divisors): _iterate.bind(_WEIGHTED=weighted, _HAS_DIVISORS=has_divisors)
    for weighted in (False, True)
    for has_divisors in (False, True)
}
