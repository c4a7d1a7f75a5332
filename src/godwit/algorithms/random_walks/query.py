"""A query of random walks, checked, in one form for CPUs and GPUs; and the random words of walks.

A word of 64 bits is a hash (:func:`godwit.graph.hashing.mix`) of the seed, the number of the walk, the
number of the step and a count within the step: so walks do not depend on devices, threads or schedules.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from godwit.algorithms.paths.weights import unsuitable_weight
from godwit.dtypes import Array, as_positive_number, frozen
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.rows import Rows, require_memory, row_range, thread_count_for
from godwit.graph.transform import sorted_rows
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import run_team

TRIES = 16
"""Arcs that a biased step draws and may reject, before it computes the probabilities of all arcs."""
WORDS_BITS = 6
"""2**WORDS_BITS words belong to a step: two a try, and one for the draw from all arcs."""
_LEAST_BIAS, _MOST_BIAS = 1e-9, 1e9
_MOST_SUM = float(np.finfo(np.float64).max) / (2 * _MOST_BIAS)
"""Sum of the weights of a row that no biases make infinite."""


@dataclass(frozen=True)
class WalkQuery:
    """A checked query.

    :param graph: the graph
    :param sources: int64 (k) vertices at which walks begin
    :param length: steps of each walk
    :param weighted: steps are drawn in proportion to weights, which :func:`row_sums` has checked
    :param return_bias: 1 / p: what the arc back to the previous vertex is multiplied by
    :param far_bias: 1 / q: what arcs to vertices are multiplied by to which none leads from the previous
        one
    :param seed: a word of 64 bits
    """

    graph: Graph
    sources: Array
    length: int
    weighted: bool
    return_bias: float
    far_bias: float
    seed: np.uint64

    @property
    def is_biased(self) -> bool:
        """True if a step depends on the previous vertex."""
        return self.return_bias != 1 or self.far_bias != 1

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the result."""
        return len(self.sources), self.length + 1

    @property
    def sorts_rows(self) -> bool:
        """True if rows must be sorted, and those of the graph are not: biased steps search in rows."""
        return self.is_biased and not self.graph.has_sorted_rows

    @cached_property
    def rows(self) -> Rows:
        """Rows that walks follow."""
        graph = self.graph
        if not self.sorts_rows:
            return graph.rows
        rows: Rows = graph.cached("sorted rows of walks", lambda: sorted_rows(graph.rows))
        return rows

    @cached_property
    def sums(self) -> Array:
        """Sums of weights up to each arc of its row, float64 (m); empty without weights."""
        return row_sums(self.graph, self.rows) if self.weighted else frozen(np.empty(0))


def as_bias(value: Any, name: str) -> float:
    """Return 1 / value; InputError unless the value is a number from 1e-9 to 1e9."""
    number = as_positive_number(value, name)
    if not _LEAST_BIAS <= number <= _MOST_BIAS:
        raise InputError(
            f"{name} must be from {_LEAST_BIAS:g} to {_MOST_BIAS:g}, got {shown(value)}"
        )
    return 1 / number


def row_sums(graph: Graph, rows: Rows) -> Array:
    """Return the sums of weights up to each arc, in its row: float64 (m), kept with the graph.

    :param rows: those of the graph, or sorted ones
    :raises InputError: a weight is negative, infinite or NaN (names the arc), or a sum is too large
    """
    sums: Array = graph.cached(
        ("sums of walks", rows is graph.rows), lambda: _checked_sums(graph, rows)
    )
    return sums


def _checked_sums(graph: Graph, rows: Rows) -> Array:
    weights = rows.weights
    assert weights is not None
    if len(weights) and not (weights.min() >= 0 and weights.max() < np.inf):
        given: Any = graph.weights
        arc = int(np.argmax(~((given >= 0) & (given < np.inf))))
        raise unsuitable_weight(
            graph, arc, "random walks need weights that are finite and not negative"
        )
    require_memory(8 * rows.arc_count, "an array of sums of weights")
    sums = np.empty(rows.arc_count)
    threads = thread_count_for(rows.arc_count)
    run_team(_sum_rows, rows.offsets, weights, sums, threads=threads)
    if len(sums) and sums.max() > _MOST_SUM:
        raise InputError(
            f"the weights of a vertex' arcs add up to more than {_MOST_SUM:.2g}: divide all weights"
        )
    return frozen(sums)


@kernel
def _sum_rows(
    rank: int, size: int, control: Any, offsets: Any, weights: Any, sums: Any
) -> None:  # fmt: skip
    """Store the sums of weights up to each arc of its row, added in the order of the row."""
    begin, end = row_range(rank, size, offsets)
    for v in range(begin, end):
        total = 0.0
        for arc in range(offsets[v], offsets[v + 1]):
            total += np.float64(weights[arc])
            sums[arc] = total
