"""Rows of a graph as three arrays, the memory that they need, and their division among threads.

Needs NumPy only: compiled code lies in the modules that import this one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from godwit import config
from godwit.dtypes import Array, frozen
from godwit.errors import GraphTooLargeError

SMALL_ARCS = 50_000
"""Below this number of arcs one thread does all work: waking others takes longer."""


class Rows(NamedTuple):
    """The out-arcs of vertex v are ``targets[offsets[v]:offsets[v + 1]]``.

    Weights are in the order of targets.

    :param offsets: (n + 1) int64
    :param targets: (m) int32 or int64
    :param weights: (m), or None
    """

    offsets: Array
    targets: Array
    weights: Array | None

    @property
    def vertex_count(self) -> int:
        """Number of rows, n."""
        return len(self.offsets) - 1

    @property
    def arc_count(self) -> int:
        """Number of arcs, m."""
        return len(self.targets)

    @property
    def id_dtype(self) -> np.dtype[Any]:
        """Dtype of targets."""
        return self.targets.dtype

    @property
    def weight_dtype(self) -> np.dtype[Any] | None:
        """Dtype of weights; None if there are none."""
        return None if self.weights is None else self.weights.dtype

    @property
    def arc_bytes(self) -> int:
        """Bytes of an arc: its target and its weight."""
        return self.targets.itemsize + (0 if self.weights is None else self.weights.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self if array is not None)

    @property
    def arrays(self) -> Rows:
        """The arrays where they lie: these."""
        return self

    def on_host(self) -> Rows:
        """Return the rows in memory of the host: these."""
        return self

    def without_weights(self) -> Rows:
        """Return the rows without weights, over the same arrays."""
        return self._replace(weights=None)


def estimate_bytes(
    vertex_count: int, arc_count: int, id_bytes: int = 4, weight_bytes: int = 0
) -> int:
    """Return the bytes of a graph in memory: its offsets, targets and weights."""
    return 8 * (vertex_count + 1) + arc_count * (id_bytes + weight_bytes)


def require_memory(needed_bytes: int, what: str) -> None:
    """Refuse what will not fit, before anything is allocated.

    :raises GraphTooLargeError: if ``needed_bytes`` exceed what is available
    """
    available = config.missing_memory_bytes(needed_bytes)
    if available is not None:
        raise GraphTooLargeError(
            f"{what} needs some {config.readable_bytes(needed_bytes)}, "
            f"and {config.readable_bytes(available)} are available"
        )


def thread_count_for(arc_count: int) -> int:
    """Return the number of threads that are worth waking for work on ``arc_count`` arcs."""
    return 1 if arc_count < SMALL_ARCS else config.thread_count()


def bits_of(weights: Array | None) -> Array:
    """Return weights as the integers of the same bits (int32 or int64); an empty array for None."""
    if weights is None:
        return frozen(np.empty(0, np.int32))
    return frozen(weights.view(np.int32 if weights.itemsize == 4 else np.int64))


def row_range(rank: int, size: int, offsets: Any) -> tuple[Any, Any]:
    """Return the rows [begin, end) of thread ``rank``: all threads get about equal numbers of arcs."""
    rows = offsets.size - 1
    begin = 0
    end = rows
    if rank > 0:
        begin = first_row_at(offsets, 0, rows, offsets[rows] * rank // size)
    if rank < size - 1:
        end = first_row_at(offsets, 0, rows, offsets[rows] * (rank + 1) // size)
    return begin, end


def first_row_at(offsets: Any, low: Any, high: Any, arc: Any) -> Any:
    """Return the first row of [low, high] that begins at ``arc`` or after it."""
    while low < high:
        middle = (low + high) >> 1
        if offsets[middle] < arc:
            low = middle + 1
        else:
            high = middle
    return low
