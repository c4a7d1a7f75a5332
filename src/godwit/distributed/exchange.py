"""Columns of items on their way to the processes that own them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from godwit.distributed.processes import Processes
from godwit.dtypes import Array

_NARROW_OWNERS = 1 << 15
"""Up to this many processes owners are sorted as integers of 16 bits, in one or two passes."""


def to_owners(processes: Processes, owners: Array, columns: Sequence[Array]) -> list[Array]:
    """Send the items of some columns to their owners; all processes call it.

    :param owners: (k) the process that each item goes to
    :param columns: arrays of shape (k)
    :returns: the same columns of the items that this process got, by sender, then in the sender's order
    """
    if processes.count == 1:
        return list(columns)
    narrow = owners.astype(np.int16) if processes.count < _NARROW_OWNERS else owners
    order = np.argsort(narrow, kind="stable")
    counts = np.bincount(owners, minlength=processes.count)
    return [processes.exchange(column[order], counts)[0] for column in columns]


def arcs_to_owners(
    processes: Processes, bounds: Array, columns: list[Array], *, both_directions: bool
) -> list[Array]:
    """Send arcs to the owners of their sources; all processes call it.

    Pieces are sent one after the other, which takes little memory beside what a process has and gets.

    :param bounds: (processes + 1) first vertex of each process
    :param columns: (k) sources, targets and, if there are some, weights. The list is emptied
    :param both_directions: each is an edge, which is sent as two arcs, or as one if it is a self-loop
    :returns: the columns of the arcs that this process got, by sender, then in the sender's order
    """
    longest = int(processes.meet(len(columns[0])).max())
    received = [[[column[:0]] for _ in range(processes.count)] for column in columns]
    for begin in range(0, longest, _PIECE):
        piece = [column[begin : begin + _PIECE] for column in columns]
        if both_directions:
            piece = _twice(*piece)
        owners = np.searchsorted(bounds, piece[0], side="right") - 1
        order = np.argsort(owners, kind="stable")
        counts = np.bincount(owners, minlength=processes.count)
        for parts, column in zip(received, piece, strict=True):
            into, sizes, _ = processes.exchange(column[order], counts)
            for of_sender, part in zip(parts, np.split(into, np.cumsum(sizes)[:-1]), strict=True):
                of_sender.append(part)
    columns.clear()
    joined: list[Array] = []
    while received:
        joined.append(np.concatenate([part for parts in received.pop(0) for part in parts]))
    return joined


_PIECE = 1 << 14
"""Arcs or edges of a process that are sent at a time."""


def _twice(sources: Array, targets: Array, *weights: Array) -> list[Array]:
    """Return each edge as two arcs, one behind the other, a self-loop as one."""
    once = np.stack([np.full(len(sources), True), sources != targets], axis=1).ravel()
    ends = (sources, targets), (targets, sources)
    arcs = [np.stack(pair, axis=1).ravel()[once] for pair in ends]
    return arcs + [np.repeat(column, 2)[once] for column in weights]


class Questions:
    """Questions of every process about vertices of the others, which their owners answer; maybe repeatedly.

    All processes make one together, and call :meth:`answers` together.

    :param owners: (k) the process that each question goes to
    :param numbers: (k) number of each vertex at its owner
    :ivar asked: numbers of own vertices that this process is asked about
    """

    def __init__(self, processes: Processes, owners: Array, numbers: Array) -> None:
        self._processes = processes
        self._order = np.argsort(owners, kind="stable")
        counts = np.bincount(owners, minlength=processes.count)
        self.asked, self._counts, _ = processes.exchange(numbers[self._order], counts)

    def answers(self, values: Array) -> Array:
        """Return the answers of the owners, in the order of the questions.

        :param values: this process' answer for each vertex in ``asked``
        """
        received, _, _ = self._processes.exchange(values, self._counts)
        ordered = np.empty_like(received)
        ordered[self._order] = received
        return ordered
