"""How devices get at each other's arrays in supersteps: directly, or by copies that the host makes.

A superstep reads what the one before has left (step.cuh). So it makes no difference whether a device
stores into another's memory as it goes, or the host copies what it stored at home when all have ended the
superstep. Devices that are no peers work that way. Arrays have room for all positions on every device,
and are of two kinds:

- *Shared*: an owner alone changes its range, for all to read. What kernels take for the arrays of others
  is the device's own then, so a store at all of them is one at home; the host *spreads* own ranges.
- *Left*: others leave something for an owner in its range of theirs, and the owner takes it and resets it
  in the superstep after. What an owner's kernel takes for the arrays of others are copies of its range of
  them, which the host *fetches*; afterwards it *resets* the originals by what each device has in its own
  range, where nobody leaves anything.

Arrays that have room for neighbours only (halos.py) are *packed*: what is stored for another device
comes into a room of its own, from which the host *sends* it.

What is not copied by the host must not be read: an array of neither kind is no other device's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np

from godwit.dtypes import Array
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.types import MAXIMAL_DEVICES
from godwit.supersteps.placement import StepPart


def left_sizes(
    parts: Sequence[StepPart], capacity: int, name: str, bits: int
) -> list[dict[str, int]]:
    """Of each device: bytes of the buffers that :meth:`Exchange.left` needs where the host copies."""
    nbytes = capacity * bits // 8
    return [
        {_copy_name(name, other): nbytes for other in parts if other is not owner}
        for owner in parts
    ]


def packed_sizes(begins: Array, item_bytes: int) -> list[dict[str, int]]:
    """Likewise, :meth:`Exchange.packed`."""
    devices = range(len(begins))
    return [
        {
            _halo_name(reader): item_bytes * max(1, _halo_range(begins, owner, reader)[1])
            for reader in devices
            if reader != owner
        }
        for owner in devices
    ]


def pointers(parts: Sequence[StepPart], name: str) -> Array:
    """Where a buffer lies at each device, as :data:`godwit.supersteps.run.PEERS` takes it."""
    found = np.zeros(MAXIMAL_DEVICES, np.uint64)
    for place, part in enumerate(parts):
        found[place] = part.buffers[name].pointer
    return found


class Exchange:
    """The devices' arrays, by the names of their buffers.

    :param parts: the devices; buffers have room for all positions
    :param capacity: positions of each
    :param by_host: whether the host copies
    """

    def __init__(self, parts: Sequence[StepPart], capacity: int, *, by_host: bool) -> None:
        self.by_host = by_host
        self._parts = parts
        self._capacity = capacity

    def shared(self, name: str) -> Array:
        """(devices) :data:`PEERS`: where each device finds the arrays of all, which owners spread."""
        if self.by_host:
            own = [part.buffers[name].pointer for part in self._parts]
            return np.tile(np.array(own, np.uint64)[:, None], MAXIMAL_DEVICES)
        return np.tile(pointers(self._parts, name), (len(self._parts), 1))

    def left(self, name: str, bits: int) -> Array:
        """Likewise, of arrays in which others leave something for owners: nothing as yet.

        :param bits: of a position
        """
        found = self.shared(name)
        if self.by_host:
            for owner, other in self._pairs():
                room = owner.room(_copy_name(name, other), self._own_bytes(bits))
                room.fill_bytes(0)
                offset = owner.device * self._own_bytes(bits)
                found[owner.device, other.device] = room.pointer - offset
        return found

    def packed(self, name: str, item_bytes: int, begins: Array) -> Array:
        """As :meth:`shared`, of arrays that have what a device reads of others behind its own values.

        :param begins: as of :class:`godwit.supersteps.halos.Halos`
        """
        found = self.shared(name)
        if self.by_host:
            for owner, reader in self._pairs():
                first, count = _halo_range(begins, owner.device, reader.device)
                room = owner.room(_halo_name(reader.device), item_bytes * max(1, count))
                found[owner.device, reader.device] = room.pointer - item_bytes * first
        return found

    def send(self, name: str, item_bytes: int, begins: Array) -> None:
        """Readers get what owners have stored for them in a packed array."""
        for owner, reader in self._pairs():
            first, count = _halo_range(begins, owner.device, reader.device)
            _copy(
                reader, reader.buffers[name].pointer + item_bytes * first,
                owner, owner.buffers[_halo_name(reader.device)].pointer, item_bytes * count,
            )  # fmt: skip

    def spread(self, name: str, bits: int) -> None:
        """All devices get what owners have in their ranges."""
        self.spread_rows(name, 1, self._own_bytes(bits))

    def spread_rows(self, name: str, rows: int, nbytes: int) -> None:
        """Likewise, of an array of rows, in each of which a device has so many bytes after those before."""
        for owner, reader in self._pairs():
            for row in range(rows):
                offset = nbytes * (row * len(self._parts) + owner.device)
                _copy(
                    reader, reader.buffers[name].pointer + offset,
                    owner, owner.buffers[name].pointer + offset, nbytes,
                )  # fmt: skip

    def fetch(self, name: str, bits: int) -> None:
        """Owners get what others have left for them."""
        nbytes = self._own_bytes(bits)
        for owner, other in self._pairs():
            _copy(
                owner, owner.buffers[_copy_name(name, other)].pointer,
                other, other.buffers[name].pointer + owner.device * nbytes, nbytes,
            )  # fmt: skip

    def reset(self, name: str, bits: int) -> None:
        """What was fetched, and taken since, is not there any more."""
        nbytes = self._own_bytes(bits)
        for owner, other in self._pairs():
            array = other.buffers[name].pointer
            _copy(
                other, array + owner.device * nbytes,
                other, array + other.device * nbytes, nbytes,
            )  # fmt: skip

    def _pairs(self) -> Iterator[tuple[StepPart, ...]]:
        """Of different devices, an owner first."""
        return permutations(self._parts, 2)

    def _own_bytes(self, bits: int) -> int:
        """Of a device's range."""
        return self._capacity * bits // 8


def _copy(to: StepPart, destination: int, source: StepPart, pointer: int, nbytes: int) -> None:
    if nbytes:
        driver.copy_peer_async(destination, to.index, pointer, source.index, nbytes, to.stream)


def _copy_name(name: str, other: StepPart) -> str:
    return f"{name} of {other.device}"


def _halo_name(reader: int) -> str:
    return f"halo of {reader}"


def _halo_range(begins: Array, owner: int, reader: int) -> tuple[int, int]:
    """Where at a reader what it reads of an owner begins, and how much that is."""
    first, end = begins[reader, owner : owner + 2].tolist()
    return first, end - first
