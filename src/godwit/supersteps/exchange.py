"""How devices reach each other's arrays in supersteps: directly, or by copies that the host makes.

A superstep reads what the previous one has left (step.cuh). So a device may store into another's memory as
it goes, or, if the GPUs lack peer access, into its own, and the host copies at the end of the superstep.
Arrays have room for all positions on every device, and are of two kinds:

- *Broadcast*: only an owner changes its range, and all read it. Where the host copies, kernels get the
  device's own array in place of all others'; the host *broadcasts* the owners' ranges.
- *Collected*: devices store messages for an owner in its range of their own array, and the owner takes and
  resets them in the superstep after. Where the host copies, it *fetches* these ranges into staging buffers
  of the owner, which its kernel gets in place of the others' arrays; afterwards it *resets* the originals
  with the content of each device's own range, which has no messages.

Arrays of slots (halos.py) are *packed*: a device stores what it sends into a staging buffer for each
subscriber, from which the host *sends* it.

Where the host copies, a kernel must not read arrays of others that are of no such kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from godwit.dtypes import Array
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.memory import Buffer
from godwit.supersteps.arrays import DeviceArray, StepPart

if TYPE_CHECKING:
    from godwit.supersteps.halos import Halos
    from godwit.supersteps.placement import StepCopies, StepPlacement


class Exchange:
    """The devices' access to each other's arrays during one run.

    :param by_host: whether the host copies
    """

    def __init__(self, placement: StepPlacement | StepCopies, *, by_host: bool) -> None:
        self.by_host = by_host
        self._parts = placement.parts
        self._capacity = placement.capacity
        self._staging: dict[tuple[DeviceArray, int, int], Buffer] = {}

    def close(self) -> None:
        """Free the staging buffers."""
        for buffer in self._staging.values():
            buffer.close()
        self._staging.clear()

    def clear(self) -> None:
        """Fill the staging buffers with zero: no messages."""
        for buffer in self._staging.values():
            buffer.fill_bytes(0)

    def broadcast_pointers(self, array: DeviceArray) -> Array:
        """Return, for each device, its pointers to all devices' buffers: (devices, MAXIMAL_DEVICES)."""
        every: Array = np.tile(array.pointers, (len(self._parts), 1))
        if self.by_host:
            every[:] = array.pointers[: len(self._parts), None]
        return every

    def collected_pointers(self, array: DeviceArray, bits: int) -> Array:
        """Return, for each device, its pointers to the messages of all: (devices, MAXIMAL_DEVICES).

        :param bits: of one position
        :raises GraphTooLargeError: no room for staging buffers
        """
        every = self.broadcast_pointers(array)
        nbytes = self._own_bytes(bits)
        if self.by_host:
            for owner, other in self._pairs():
                room = self._stage(array, owner, other.device, nbytes)
                every[owner.device, other.device] = room.pointer - owner.device * nbytes
        return every

    def packed_pointers(self, array: DeviceArray, item_bytes: int, halos: Halos) -> Array:
        """Return, for each device, its pointers to all devices' slots: (devices, MAXIMAL_DEVICES).

        :raises GraphTooLargeError: no room for staging buffers
        """
        every = self.broadcast_pointers(array)
        if self.by_host:
            for owner, other in self._pairs():
                first, count = halos.halo_range(owner.device, other.device)
                room = self._stage(array, owner, other.device, item_bytes * count)
                every[owner.device, other.device] = room.pointer - item_bytes * first
        return every

    def send(self, array: DeviceArray, item_bytes: int, halos: Halos) -> None:
        """Copy what owners have stored for subscribers in a packed array."""
        for owner, other in self._pairs():
            first, count = halos.halo_range(owner.device, other.device)
            _copy(
                other, array[other].pointer + item_bytes * first,
                owner, self._staging[array, owner.device, other.device].pointer, item_bytes * count,
            )  # fmt: skip

    def broadcast(self, array: DeviceArray, bits: int) -> None:
        """Copy each owner's range to all devices."""
        self.broadcast_rows(array, 1, self._own_bytes(bits))

    def broadcast_rows(self, array: DeviceArray, rows: int, nbytes: int) -> None:
        """Copy each owner's range of `nbytes` in each row of an array to all devices."""
        for owner, other in self._pairs():
            for row in range(rows):
                offset = nbytes * (row * len(self._parts) + owner.device)
                _copy(
                    other, array[other].pointer + offset,
                    owner, array[owner].pointer + offset, nbytes,
                )  # fmt: skip

    def fetch(self, array: DeviceArray, bits: int) -> None:
        """Copy the messages of all devices to the owners' staging buffers."""
        nbytes = self._own_bytes(bits)
        for owner, other in self._pairs():
            _copy(
                owner, self._staging[array, owner.device, other.device].pointer,
                other, array[other].pointer + owner.device * nbytes, nbytes,
            )  # fmt: skip

    def reset(self, array: DeviceArray, bits: int) -> None:
        """Clear the messages that were fetched, after owners have taken them."""
        nbytes = self._own_bytes(bits)
        for owner, other in self._pairs():
            pointer = array[other].pointer
            _copy(
                other, pointer + owner.device * nbytes,
                other, pointer + other.device * nbytes, nbytes,
            )  # fmt: skip

    def _stage(self, array: DeviceArray, owner: StepPart, other: int, nbytes: int) -> Buffer:
        """Return a staging buffer at an owner for what it exchanges with another device."""
        room = self._staging[array, owner.device, other] = Buffer(owner.index, nbytes)
        return room

    def _pairs(self) -> Iterator[tuple[StepPart, ...]]:
        """Yield pairs of different devices, the owner first."""
        return permutations(self._parts, 2)

    def _own_bytes(self, bits: int) -> int:
        """Return the size of a device's range."""
        return self._capacity * bits // 8


def _copy(to: StepPart, destination: int, source: StepPart, pointer: int, nbytes: int) -> None:
    if nbytes:
        driver.copy_peer_async(destination, to.index, pointer, source.index, nbytes, to.stream)
