"""Power iterations on the CPU, by pull: each row of in-arcs is summed by one thread.

Scaling is deferred by an iteration, so that an iteration has one pass over the vertices and one barrier:
arrays hold iterates before they are scaled, and the factor that scales an iterate to norm 1 is known when
the pass that computed it has ended. Two arrays hold the last iterate and the one before; a pass compares
them, and overwrites the older one. So the change of iteration k is known after the pass of iteration k + 1,
and the result, iterate k, is in the array that this pass has read.

If there are two sides, an iteration is two passes: the first compares iterates, and computes hubs from the
last one over out-arcs; the second computes the next iterate from hubs. The hubs of the last first pass
belong to the result.

Results have the same bits for any number of threads: a row is summed in a fixed order, and changes and
squares are summed per block, in the order of blocks, which depend on the graph alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from godwit.algorithms.pagerank.cpu import next_block
from godwit.algorithms.pagerank.in_arcs import block_bounds, thread_count
from godwit.algorithms.power_iteration.query import Finish, PowerOutcome, PowerQuery
from godwit.dtypes import Array, frozen
from godwit.graph.csr import Graph
from godwit.graph.facts import in_arcs
from godwit.graph.rows import require_memory
from godwit.progress import Progress
from godwit.runtime.cpu.atomics import load_acquire, store_relaxed
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, WORDS_PER_LINE, barrier, block_range, run_team

_UNIT, _SUM = int(Finish.POWER_UNIT), int(Finish.POWER_SUM)
_SUMS = 3  # of a pass: the change, the squares of its results, and these themselves
_ITERATIONS = 0  # word of `counts` (int64)
_RESIDUAL = 0  # word of `outcome` (float64)

# Unsigned index: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64
# Bound when a kernel is made.
_WEIGHTED = False  # entries of the matrix are weights
_TWO_SIDED = False


class _Matrix(NamedTuple):
    """Rows of arcs, and the first row of each block of them, and n."""

    offsets: Array
    targets: Array
    weights: Array
    blocks: Array

    @classmethod
    def of(cls, rows: Graph, weighted: bool) -> _Matrix:
        """Return the rows of a graph; no weights if they do not count."""
        blocks = rows.cached("blocks of rows", lambda: frozen(block_bounds(rows.offsets)))
        weights = rows.weights if weighted and rows.weights is not None else frozen(np.empty(0))
        return cls(rows.offsets, rows.targets, weights, blocks)


def iterate_on_cores(
    graph: Graph, query: PowerQuery, threads: int | None, poll: Callable[[int], None] | None
) -> PowerOutcome:
    """Run a query of a graph that has vertices.

    :param threads: upper limit; None: all of the process. Small graphs use one
    :param poll: called now and then by the calling thread with the number of vertices updated so far;
        an exception ends the run
    :raises GraphTooLargeError: the arrays do not fit into memory
    """
    n = graph.vertex_count
    threads = thread_count(graph, threads)
    require_memory((2 + query.two_sided) * 8 * n, f"power iterations on {n:,} vertices")
    rows = in_arcs(graph, weighted=query.weighted)
    last = _Matrix.of(rows, query.weighted)
    first = _Matrix.of(graph, query.weighted) if query.two_sided else last
    iterates = np.empty(n), np.zeros(n)
    iterates[0][:] = query.start
    hubs = np.zeros(n if query.two_sided else 0)
    counts = np.zeros(1, np.int64)
    outcome = np.zeros(1)
    run_team(
        _ITERATE[query.weighted, query.two_sided],
        *first,
        *last,
        *iterates,
        hubs,
        frozen(np.zeros(1) if query.constant is None else query.constant),
        np.zeros(2 * _SUMS * max(len(first.blocks), len(last.blocks))),
        np.zeros(2 * threads * WORDS_PER_LINE, np.int64),
        counts,
        outcome,
        float(query.factor),
        float(query.shift),
        query.normalizes,
        int(query.finish),
        1 / query.unit,
        float(query.hubs_factor),
        query.tolerance * query.unit,
        int(query.max_iterations),
        threads=threads,
        poll=None
        if poll is None
        else lambda: poll(
            Progress.of_iterations(
                int(counts[_ITERATIONS]), n, float(outcome[_RESIDUAL]) / query.unit
            )
        ),
    )
    iterations = int(counts[_ITERATIONS])
    return PowerOutcome(
        iterates[iterations % 2],
        hubs if query.two_sided else None,
        iterations,
        float(outcome[_RESIDUAL]) / query.unit,
    )


def _product(targets: Any, weights: Any, values: Any, arc: Any) -> Any:
    """Return what an arc adds to the sum of its row."""
    value = values[_at(targets[_at(arc)])]
    return value * weights[_at(arc)] if _WEIGHTED else value


def _row_sum(targets: Any, weights: Any, values: Any, begin: Any, end: Any) -> float:
    """Return the sum of a row, by two independent sums, which hide the latency of additions."""
    even = 0.0
    odd = 0.0
    arc = begin
    while arc + 2 <= end:
        even += _product(targets, weights, values, arc)
        odd += _product(targets, weights, values, arc + 1)
        arc += 2
    if arc < end:
        even += _product(targets, weights, values, arc)
    return even + odd


def _pull_rows(
    first_row: Any, end_row: Any, offsets: Any, targets: Any, weights: Any, values: Any, result: Any,
    last: Any, before: Any, constant: Any, factor: float, shift: float, scale: float,
    scale_before: float,
) -> Any:  # fmt: skip
    """Compute ``scale * (factor * M values + shift * values) + constant`` for rows, and compare iterates.

    :param result: gets the results; may be ``before``
    :param last: the last iterate, but for the factor ``scale``
    :param before: the iterate before that, but for the factor ``scale_before``
    :returns: the sum of absolute differences of these iterates, the sum of the squares of results, and the
        sum of results
    """
    change = 0.0
    squares = 0.0
    added = 0.0
    stride = 0 if constant.size == 1 else 1
    begin = np.int64(offsets[_at(first_row)])
    for row in range(first_row, end_row):
        end = np.int64(offsets[_at(row + 1)])
        total = factor * _row_sum(targets, weights, values, begin, end)
        value = scale * (total + shift * values[_at(row)]) + constant[_at(stride * row)]
        change += abs(scale * last[_at(row)] - scale_before * before[_at(row)])
        squares += value * value
        added += value
        result[_at(row)] = value
        begin = end
    return change, squares, added


def _pull_all(
    rank: int, size: int, control: Any, turn: int, cursors: Any, sums: Any, matrix: Any, vectors: Any,
    numbers: Any,
) -> Any:  # fmt: skip
    """Run :func:`_pull_rows` for all rows, with the team; return its sums, the same in each thread.

    The first result is False if all threads must leave. Cursors and sums exist twice, for passes by turns:
    a thread may begin the next pass while another still reads the sums of this one.
    """
    offsets, targets, weights, blocks = matrix
    count = blocks.size - 1
    first_sum = turn * (sums.size // 2)
    helped = 0
    while True:
        block, helped = next_block(cursors, turn, rank, size, count, helped)
        if block < 0 or load_acquire(control, ABORT) != 0:
            break
        change, squares, added = _pull_rows(
            blocks[_at(block)],
            blocks[_at(block + 1)],
            offsets,
            targets,
            weights,
            *vectors,
            *numbers,
        )
        to = first_sum + _SUMS * block
        sums[_at(to)] = change
        sums[_at(to + 1)] = squares
        sums[_at(to + 2)] = added
    if not barrier(control, size):
        return False, 0.0, 0.0, 0.0
    store_relaxed(cursors, (turn * size + rank) * WORDS_PER_LINE, 0)
    change = 0.0
    squares = 0.0
    added = 0.0
    for block in range(count):
        begin = first_sum + _SUMS * block
        change += sums[_at(begin)]
        squares += sums[_at(begin + 1)]
        added += sums[_at(begin + 2)]
    return True, change, squares, added


@kernel
def _iterate(
    rank: int, size: int, control: Any, first_offsets: Any, first_targets: Any, first_weights: Any,
    first_blocks: Any, offsets: Any, targets: Any, weights: Any, blocks: Any, last: Any, before: Any,
    hubs: Any, constant: Any, sums: Any, cursors: Any, counts: Any, outcome: Any, factor: float,
    shift: float, normalizes: bool, finish: int, values_factor: float, hubs_factor: float,
    tolerance: float, max_iterations: int,
) -> None:  # fmt: skip
    """Do all iterations; ``last`` holds the first iterate, and the result if their number is even.

    :param before: zeros; the result if the number of iterations is odd
    :param first_offsets: rows of the first of two passes; the same as ``offsets`` where there is one
    """
    team = rank, size, control
    matrix = offsets, targets, weights, blocks
    first_matrix = first_offsets, first_targets, first_weights, first_blocks
    n = last.size
    iteration = 0
    turn = 0
    scale = 1.0
    scale_before = 0.0
    last_squares = 0.0
    last_total = 0.0
    while True:
        turn = 1 - turn
        if _TWO_SIDED:
            goes_on, change, squares, added = _pull_all(
                *team, turn, cursors, sums, first_matrix, (last, hubs, last, before, constant),
                (factor, 0.0, scale, scale_before),
            )  # fmt: skip
        else:
            goes_on, change, squares, added = _pull_all(
                *team, turn, cursors, sums, matrix, (last, before, last, before, constant),
                (factor, shift, scale, scale_before),
            )  # fmt: skip
        if not goes_on:
            return
        residual = change / n
        if rank == 0:
            outcome[_RESIDUAL] = residual  # first: a report of an iteration has its residual
            counts[_ITERATIONS] = iteration
        is_last = iteration == max_iterations or residual < tolerance
        if iteration > 0 and (is_last or not residual < np.inf):
            break
        if _TWO_SIDED:
            turn = 1 - turn
            goes_on, change, squares, added = _pull_all(
                *team, turn, cursors, sums, matrix, (hubs, before, hubs, hubs, constant),
                (factor, 0.0, 1.0, 1.0),
            )  # fmt: skip
            if not goes_on:
                return
        scale_before = scale
        last_squares = squares
        last_total = added
        if normalizes and squares > 0.0:
            scale = 1.0 / math.sqrt(squares)
        last, before = before, last
        iteration += 1
    scale *= values_factor
    if finish == _UNIT and last_squares > 0.0:
        scale = 1.0 / math.sqrt(last_squares)
    if finish == _SUM and last_total != 0.0:
        scale = 1.0 / last_total
    if finish == _SUM and added != 0.0:
        hubs_factor = 1.0 / added
    first, end = block_range(rank, size, n)
    for row in range(first, end):
        last[_at(row)] *= scale
        if _TWO_SIDED:
            hubs[_at(row)] *= hubs_factor


_ITERATE = {
    (weighted, two_sided): _iterate.bind(_WEIGHTED=weighted, _TWO_SIDED=two_sided)
    for weighted in (False, True)
    for two_sided in (False, True)
}
