"""Supersteps over the GPUs of several processes, each of which has one.

Every process has a placement of its own, with one part; devices are numbered as the processes are. Kernels
are those of one process: where processes reach each other's memory, the addresses of the other devices'
arrays are mapped ones, and nothing else differs. Where they do not, as on different machines,

- the host copies what devices send each other after each superstep, as it does for GPUs without peer access
  (:mod:`godwit.supersteps.exchange`), by messages;
- and while a kernel waits at a meeting, its host sends the kernel's report to the other processes, and
  writes theirs to the kernel's board, in page-locked memory (``ReportRelay`` of process_exchange.py).

Invariant: all processes make the same plans and runs in the same order, and decide alike, by what they have
agreed on: whatever may differ between them (free memory, errors, the state of kept arrays) is decided by
:meth:`OtherProcesses.any` or :meth:`OtherProcesses.largest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from godwit.dtypes import Array
from godwit.runtime.cuda.memory import Buffer
from godwit.supersteps.arrays import StepPart

Spans = Sequence[tuple[int, int]]
"""Parts of a GPU's memory: addresses and numbers of bytes."""


class OtherProcesses(Protocol):
    """Communication of the processes that run together; a method returns when all have called it."""

    rank: int
    count: int

    @property
    def reach_each_other(self) -> bool:
        """True if kernels reach the memory of all processes' GPUs."""

    @property
    def change_each_other(self) -> bool:
        """True if atomics of kernels work in the memory of all processes' GPUs."""

    def any(self, flag: bool) -> bool:
        """Return True if any process gives True."""

    def largest(self, number: int) -> int:
        """Return the largest of the numbers that processes give."""

    def addresses(self, buffer: Buffer) -> list[int]:
        """Return the addresses, for kernels of this process, of the buffers that all processes give."""

    def unmap(self) -> None:
        """Unmap the memory of other processes' GPUs, which no kernel of this one uses any more.

        The caller holds the GPU. Unlike other methods, this one returns at once.
        """

    def exchange(self, parts: Sequence[Array]) -> list[Array]:
        """Send each process an array of bytes; return those that it got, in the order of the processes."""

    def copy(self, sent: Sequence[Spans], into: Sequence[Spans]) -> None:
        """Send each process memory of the own GPU, and fill other memory with what each sends.

        :param sent: by rank, what the process gets; nothing for the own
        :param into: by rank, where what it sends goes
        """

    def together(self) -> AbstractContextManager[None]:
        """Return a context manager that waits for all processes, and delays Ctrl-C until its end."""


def send_to_owners(
    processes: OtherProcesses, part: StepPart, at_subscriber: Buffer, at_owner: Buffer
) -> None:
    """Send each owner its range of an array of all positions; store those for the own range, a row each.

    The row of the own device stays undefined.
    """
    row_bytes = at_owner.nbytes // processes.count

    def rows(buffer: Buffer) -> list[Spans]:
        return [
            [] if device == part.device else [(buffer.pointer + row_bytes * device, row_bytes)]
            for device in range(processes.count)
        ]

    processes.copy(rows(at_subscriber), rows(at_owner))
