"""The devices of a placement, and arrays of which each device has its buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from godwit.dtypes import Array
from godwit.runtime.cuda.compile import MAXIMAL_DEVICES
from godwit.runtime.cuda.memory import Buffer, PinnedBuffer
from godwit.worker.cuda.placement import GpuMemory

if TYPE_CHECKING:
    from godwit.supersteps.placement import StepPlacement


@dataclass
class StepPart(GpuMemory):
    """One device's vertices.

    :param device: number of the device in the placement
    :param place: number of the part in the placement, which has those of this process only
    :param first: its first position
    :param classes: (7) int64: the first local index of each class of degrees, and the end of the last
    """

    device: int
    place: int
    first: int
    classes: Array

    @property
    def owned(self) -> int:
        """Number of own vertices."""
        return int(self.classes[-1])

    @property
    def active(self) -> int:
        """Number of own vertices that have arcs; they come first."""
        return int(self.classes[-2])


class DeviceArray:
    """An array with a buffer on each device, allocated on demand and released with the placement."""

    def __init__(self, placement: StepPlacement) -> None:
        self._placement = placement
        self._buffers: dict[int, Buffer] = {}
        self._pinned: dict[int, PinnedBuffer] = {}
        placement.device_arrays.append(self)

    def __bool__(self) -> bool:
        """Return True if any device has its buffer."""
        return bool(self._buffers)

    def __contains__(self, part: StepPart) -> bool:
        return part.place in self._buffers

    def __getitem__(self, part: StepPart) -> Buffer:
        return self._buffers[part.place]

    @property
    def buffers(self) -> list[Buffer]:
        """The buffers of all devices."""
        return [self[part] for part in self._placement.parts]

    @property
    def pointers(self) -> Array:
        """The buffers' addresses: (MAXIMAL_DEVICES) uint64."""
        addresses = np.zeros(MAXIMAL_DEVICES, np.uint64)
        for part in self._placement.parts:
            addresses[part.device] = self[part].pointer
        return addresses

    def nbytes(self, part: StepPart) -> int:
        """Size of a device's buffer; 0 if it has none. Another thread may free it meanwhile."""
        buffer = self._buffers.get(part.place)
        return 0 if buffer is None else buffer.nbytes

    def room(self, part: StepPart, nbytes: int) -> Buffer:
        """Return a device's buffer with at least `nbytes`; a new one has undefined content.

        If other processes have the buffers mapped, all call it alike.
        """
        self._placement.unmap_to_free(self, 0 < self.nbytes(part) < nbytes)
        if part not in self or self[part].nbytes < nbytes:
            self.release(part)  # first: the larger buffer may need the memory
            self._buffers[part.place] = self._placement.new_buffer(part, nbytes)
        return self[part]

    def rooms(self, part: StepPart) -> list[Buffer | PinnedBuffer]:
        """Return a device's buffer and the host memory in its place, those that exist."""
        found: list[Buffer | PinnedBuffer] = []
        for kept in (self._buffers, self._pinned):
            if part.place in kept:
                found.append(kept[part.place])
        return found

    def pinned_room(self, part: StepPart, nbytes: int) -> PinnedBuffer:
        """Return host memory in the place of a device's buffer, for GPUs without peer access."""
        if part.place not in self._pinned:
            self._pinned[part.place] = PinnedBuffer(nbytes)
        return self._pinned[part.place]

    def resident(self, part: StepPart, values: Array) -> Buffer:
        """Return a device's buffer, uploading `values` if it has none."""
        if part not in self:
            buffer = self._placement.new_buffer(part, values.nbytes)
            buffer.upload(values)
            self._buffers[part.place] = buffer
        return self[part]

    def adopt(self, buffers: Sequence[Buffer]) -> None:
        """Take over buffers, one of each device."""
        self._buffers = dict(enumerate(buffers))

    def take(self, other: DeviceArray) -> None:
        """Take over the buffers of another array, which has none afterwards."""
        self._buffers, other._buffers = other._buffers, {}
        self._placement.note_freed()

    def release(self, part: StepPart | None = None) -> None:
        """Free the buffer of one device, or of all."""
        for place in [*self._buffers, *self._pinned] if part is None else [part.place]:
            if place in self._buffers or place in self._pinned:
                self._placement.note_freed()
            if place in self._buffers:
                self._buffers.pop(place).close()
            if place in self._pinned:
                self._pinned.pop(place).close()


class ArraysByName(dict[tuple[str, int], DeviceArray]):
    """Arrays by name and number; one that is not there yet is added, without buffers."""

    def __init__(self, placement: StepPlacement) -> None:
        super().__init__()
        self._placement = placement

    def __missing__(self, key: tuple[str, int]) -> DeviceArray:
        array = self[key] = DeviceArray(self._placement)
        return array
