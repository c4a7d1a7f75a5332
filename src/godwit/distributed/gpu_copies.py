"""Copies from GPU to GPU of processes whose kernels do not reach each other's memory.

All processes copy together, after a superstep: each gives what every other one gets, as spans (address and
bytes) of its GPU's memory, and where it puts what it gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from godwit.dtypes import Array
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.transfer.copies import download, fill
from godwit.runtime.cuda.transfer.nvshmem import SymmetricMemory
from godwit.supersteps.processes import OtherProcesses, Spans


class GpuCopies(Protocol):
    """A way to copy.

    :ivar name: as of :attr:`godwit.distributed.gpu_graph.GpuGraph.transport`
    """

    name: str

    def copy(self, sent: Sequence[Spans], into: Sequence[Spans]) -> None:
        """Send spans to each process, by rank, and fill others with what each sends; none to the own.

        No work is under way on the GPU. What is sent and what is filled do not overlap.
        """


class HostCopies:
    """Copies through the memory of the hosts, by messages."""

    name = "host"

    def __init__(self, processes: OtherProcesses, index: int) -> None:
        self._processes, self._index = processes, index

    def copy(self, sent: Sequence[Spans], into: Sequence[Spans]) -> None:
        """Do what :class:`GpuCopies` says."""
        parts = [np.empty(_size(spans), np.uint8) for spans in sent]
        self._copy_each(download, sent, parts)
        self._copy_each(fill, into, self._processes.exchange(parts))

    def _copy_each(
        self, copy: Callable[[int, int, Array], None], every: Sequence[Spans], parts: list[Array]
    ) -> None:
        for spans, part in zip(every, parts, strict=True):
            begin = 0
            for address, nbytes in spans:
                copy(self._index, address, part[begin : begin + nbytes])
                begin += nbytes


class NvshmemCopies:
    """Copies by NVSHMEM, through mailboxes: a slot for what each process sends, one for what each gets.

    Invariant: others write to a process' mailbox only between the two meetings of a copy, and it reads the
    mailbox only after the second one, before the first one of the next copy. At the second meeting all has
    arrived. So nothing is overwritten before it is read, nor read before it is there, and no GPU waits
    for another process.
    """

    name = "nvshmem"

    def __init__(self, processes: OtherProcesses, index: int, memory: SymmetricMemory) -> None:
        self._processes, self._index, self._memory = processes, index, memory

    def copy(self, sent: Sequence[Spans], into: Sequence[Spans]) -> None:
        """Do what :class:`GpuCopies` says.

        :raises DeviceError: the GPU of a process has no room for mailboxes
        """
        own, count = self._processes.rank, self._processes.count
        size = self._processes.largest(max(map(_size, sent)))  # the first meeting
        if not size:
            return
        address, slot = self._memory.mailboxes(size, 2 * count, self._processes.largest)
        stream = Stream(self._index)
        try:
            for other, spans in enumerate(sent):
                source = address + slot * (count + other)
                _copy_out(spans, source, stream)
                if spans:
                    to = address + slot * own
                    self._memory.put(to, source, _size(spans), other, stream)
            self._memory.complete(stream)
            stream.synchronize()
            self._processes.largest(0)  # the second meeting
            for other, spans in enumerate(into):
                _copy_in(address + slot * other, spans, stream)
            stream.synchronize()
        finally:
            stream.close()


def _size(spans: Spans) -> int:
    return sum(nbytes for _, nbytes in spans)


def _copy_out(spans: Spans, to: int, stream: Stream) -> None:
    for address, nbytes in spans:
        driver.copy_async(to, address, nbytes, stream)
        to += nbytes


def _copy_in(source: int, spans: Spans, stream: Stream) -> None:
    for address, nbytes in spans:
        driver.copy_async(address, source, nbytes, stream)
        source += nbytes
