"""How the device of a process reaches the arrays and the meetings of other processes' devices.

See :mod:`godwit.supersteps.processes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import sleep
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import MAXIMAL_DEVICES
from godwit.runtime.cuda.memory import PinnedBuffer
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.exchange import Exchange
from godwit.supersteps.halos import Halos
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.processes import OtherProcesses, Spans

_BUSY_LOOKS, _PATIENT_LOOKS = 1_000, 10_000
"""Looks at a board in a row after which a host lets others use its core, and after which it sleeps."""
_NAP_S = 1e-4


class ProcessExchange(Exchange):
    """The access of a process' device to the arrays of the other processes' devices.

    Arrays are those of :class:`Exchange`, but there are none of slots.
    """

    def __init__(
        self, placement: StepPlacement, processes: OtherProcesses, *, by_host: bool
    ) -> None:
        super().__init__(placement, by_host=by_host)
        self._placement = placement
        self._processes = processes
        (self._part,) = placement.parts
        self._others = [rank for rank in range(processes.count) if rank != processes.rank]

    def broadcast_pointers(self, array: DeviceArray) -> Array:
        """Return the device's pointers to all devices' buffers: (1, MAXIMAL_DEVICES)."""
        every = np.zeros((1, MAXIMAL_DEVICES), np.uint64)
        count = self._processes.count
        own = array[self._part]
        every[0, :count] = own.pointer if self.by_host else self._placement.addresses(array)
        return every

    def collected_pointers(self, array: DeviceArray, bits: int) -> Array:
        """Return the device's pointers to the messages of all: (1, MAXIMAL_DEVICES)."""
        every = self.broadcast_pointers(array)
        nbytes = self._own_bytes(bits)
        if self.by_host:
            for other in self._others:
                room = self._stage(array, self._part, other, nbytes)
                every[0, other] = room.pointer - self._part.device * nbytes
        return every

    def packed_pointers(self, array: DeviceArray, item_bytes: int, halos: Halos) -> Array:
        """Refuse: devices of several processes have room for all positions."""
        raise NotImplementedError("arrays of slots are of one process")

    def broadcast_rows(self, array: DeviceArray, rows: int, nbytes: int) -> None:
        """Copy each owner's range of `nbytes` in each row of an array to all devices."""
        pointer, count = array[self._part].pointer, self._processes.count

        def ranges(owner: int) -> Spans:
            return [(pointer + nbytes * (row * count + owner), nbytes) for row in range(rows)]

        own = ranges(self._part.device)
        self._copy(
            dict.fromkeys(self._others, own), {other: ranges(other) for other in self._others}
        )

    def fetch(self, array: DeviceArray, bits: int) -> None:
        """Send the messages for the other devices, and write theirs to the staging buffers."""
        nbytes, pointer, own = self._own_bytes(bits), array[self._part].pointer, self._part.device
        rooms = {other: self._staging[array, own, other].pointer for other in self._others}
        self._copy(
            {other: [(pointer + nbytes * other, nbytes)] for other in self._others},
            {other: [(room, nbytes)] for other, room in rooms.items()},
        )

    def reset(self, array: DeviceArray, bits: int) -> None:
        """Clear the messages that were sent."""
        nbytes, pointer, part = self._own_bytes(bits), array[self._part].pointer, self._part
        for other in self._others:
            driver.copy_async(
                pointer + other * nbytes, pointer + part.device * nbytes, nbytes, part.stream
            )
        part.stream.synchronize()

    def carry(
        self, array: DeviceArray, nbytes: int, sources: Mapping[int, int], into: DeviceArray
    ) -> None:
        """Copy the first bytes of a device's array to another array of other devices.

        :param sources: the device from which each device that gets something gets it
        """
        rank = self._part.device
        own, room = [(array[self._part].pointer, nbytes)], [(into[self._part].pointer, nbytes)]
        to = {other: own for other, source in sources.items() if source == rank}
        self._copy(to, {sources[rank]: room} if rank in sources else {})

    def _copy(self, sent: Mapping[int, Spans], into: Mapping[int, Spans]) -> None:
        ranks = range(self._processes.count)
        self._processes.copy([sent.get(r, []) for r in ranks], [into.get(r, []) for r in ranks])

    def lower(self, array: DeviceArray, dtype: np.dtype[Any]) -> None:
        """Lower each value of an array of all positions to the least one of all devices, on all devices."""
        nbytes, buffer = self._own_bytes(8 * dtype.itemsize), array[self._part]
        parts = [
            buffer.download(np.uint8, nbytes, nbytes * owner)
            for owner in range(self._processes.count)
        ]
        received = [part.view(dtype) for part in self._processes.exchange(parts)]
        buffer.upload(np.minimum.reduce(received), nbytes * self._part.device)
        self.broadcast(array, 8 * dtype.itemsize)

    def join(self, array: DeviceArray, itemsize: int) -> None:
        """Copy the other devices' values to the own buffer, each behind what its owner's kernel has done.

        The own kernel has ended. The other processes change nothing before all have met again.
        """
        if self.by_host:
            self.broadcast(array, 8 * itemsize)
            return
        nbytes = itemsize * self._placement.capacity
        addresses = self._placement.addresses(array)
        own = array[self._part].pointer
        for other in self._others:
            begin = other * nbytes
            driver.copy_async(own + begin, addresses[other] + begin, nbytes, self._part.stream)


class ReportRelay:
    """Carries the reports of meetings between processes whose kernels do not reach each other's boards.

    A kernel writes its report to its own board, in the slots of its own device, and waits until those of
    all others are there as well (step.cuh). Each word has the number of the meeting in its upper half, so a
    report is complete when all words have the same.

    :param board: of the own kernel
    """

    def __init__(self, processes: OtherProcesses, board: PinnedBuffer, halves: int) -> None:
        self._processes = processes
        self._halves = board.array(np.uint64).reshape(2, MAXIMAL_DEVICES, halves)
        self._epoch = 0

    def begin(self, epoch: int) -> None:
        """Take note of the number of meetings before a launch."""
        self._epoch = epoch & 0xFFFFFFFF

    def run(self, is_over: Callable[[], bool]) -> None:
        """Carry reports until the own kernel is over."""
        rank, looks = self._processes.rank, 0
        while not is_over():
            coming = (self._epoch + 1) & 0xFFFFFFFF
            own = self._halves[coming & 1, rank]
            report = own.copy()
            if not (report >> np.uint64(32) == coming).all():
                looks += 1
                if looks > _BUSY_LOOKS:  # other processes may run on this core
                    sleep(0 if looks < _PATIENT_LOOKS else _NAP_S)
                continue
            self._epoch, looks = coming, 0
            sent = report.view(np.uint8)
            received = self._processes.exchange([sent] * self._processes.count)
            for other in range(self._processes.count):
                if other != rank:
                    self._halves[coming & 1, other] = received[other].view(np.uint64)
