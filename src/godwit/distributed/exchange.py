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
