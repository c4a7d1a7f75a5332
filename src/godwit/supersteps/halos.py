"""Which devices read which vertices, and rows for devices that store own vertices and their halo only.

A *subscriber mask* of an owner has, for each device, a bit for each vertex that this device's rows name: an
owner sends a value to its subscribers. In the 1-hop layout a device has *slots* for its own vertices and
its halo, and its rows name slots instead of positions. Encoding: supersteps/halos.cuh; kernels:
supersteps/rows.cuh. Both are made by small launches with the host in between, and kept like rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from godwit.dtypes import Array
from godwit.graph.cuda.builder import spare_bytes
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.memory import Buffer
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.processes import send_to_owners
from godwit.supersteps.rows import Direction, RowBuilder, StepRows, start_kernel
from godwit.worker.cuda.placement import require_room, synchronize

if TYPE_CHECKING:
    from godwit.supersteps.placement import StepPlacement

_WORD = 32  # positions of a word


def make_subscriber_masks(
    placement: StepPlacement, row_sets: Sequence[Sequence[StepRows]]
) -> DeviceArray:
    """Return, on each device, (devices, capacity / 32) uint32: a bit for each own position and subscriber.

    A device's mask for itself is undefined.

    :param row_sets: for each direction the rows of all devices; without any, all devices read everything
    :raises GraphTooLargeError: need against free, before anything is allocated
    """
    nbytes = placement.count // 8
    indexes = [part.index for part in placement.parts]
    require_room(indexes, [2 * nbytes] * len(indexes), spare_bytes)
    array = DeviceArray(placement)
    with ExitStack() as stack:
        masks = [stack.enter_context(Buffer(index, nbytes)) for index in indexes]
        with ExitStack() as scratch:
            needs = [scratch.enter_context(Buffer(index, nbytes)) for index in indexes]
            scratch.callback(synchronize, placement.parts)  # before any of it is freed
            for own_needs in needs:
                own_needs.fill_bytes(0 if row_sets else 0xFF)
            for rows in row_sets:
                _mark_targets(placement, rows, needs)
            _send_to_owners(placement, needs, masks)
        stack.pop_all()
    array.adopt(masks)
    return array


def _mark_targets(
    placement: StepPlacement, rows: Sequence[StepRows], needs: Sequence[Buffer]
) -> None:
    """Set the bits of the positions that each device's rows name."""
    for part, local_rows, bits in zip(placement.parts, rows, needs, strict=True):
        start_kernel(
            placement, part, "mark_targets", local_rows.targets.pointer, local_rows.arcs, bits.pointer
        )  # fmt: skip


def _send_to_owners(
    placement: StepPlacement, at_subscribers: Sequence[Buffer], at_owners: Sequence[Buffer]
) -> None:
    """Copy, of arrays of all positions, each owner's range from all other devices to the owner, a row each.

    The row of the owner itself stays undefined.
    """
    if placement.processes is not None:
        synchronize(placement.parts)
        (part,) = placement.parts
        send_to_owners(placement.processes, part, at_subscribers[0], at_owners[0])
        return
    row_bytes = at_owners[0].nbytes // len(placement.parts)
    for part, owner in permutations(placement.parts, 2):
        driver.copy_peer_async(
            at_owners[owner.device].pointer + part.device * row_bytes, owner.index,
            at_subscribers[part.device].pointer + owner.device * row_bytes, part.index,
            row_bytes, part.stream,
        )  # fmt: skip
    synchronize(placement.parts)


@dataclass(frozen=True)
class Halos:
    """Rows of a direction that name slots, and where owners send values.

    :param rows: of each device; the targets are slots, the heads positions
    :param subscribers: on each device, the subscriber masks: (devices, capacity / 32) uint32
    :param slots: on each device, (devices, capacity / 32) ids: the slot, at the subscriber, of the first
        vertex of each word that it reads
    :param begins: (devices, devices + 1) int64: by device, the first slot of the halo vertices of each
        owner, and the end of the last
    """

    rows: list[StepRows]
    subscribers: list[Buffer]
    slots: list[Buffer]
    begins: Array

    def width(self, device: int) -> int:
        """Return the number of slots of a device."""
        return int(self.begins[device, -1])

    def halo_range(self, owner: int, device: int) -> tuple[int, int]:
        """Return the first slot at `device` of an owner's vertices, and their number."""
        first, end = self.begins[device, owner : owner + 2].tolist()
        return first, end - first

    def halo_positions(self, placement: StepPlacement, device: int) -> Array:
        """Return (halo) int64: the positions of a device's halo in the order of slots."""
        row_bytes = placement.capacity // 8
        positions = [np.empty(0, np.int64)]
        for owner in placement.parts:
            if owner.device != device:
                mask = self.subscribers[owner.device]
                bits = mask.download(np.uint8, row_bytes, device * row_bytes)
                indexes = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
                positions.append(owner.first + indexes)
        return np.concatenate(positions)


class HaloBuilder:
    """Builder of rows whose targets are slots of own and halo vertices, in place of positions.

    With weights arcs of a row are in the graph's order, otherwise by descending degree of their targets.
    If there are rows of positions that no other query has asked for, their targets are changed in place.
    """

    def __init__(self, placement: StepPlacement, direction: Direction, weighted: bool) -> None:
        self.placement, self.direction, self.weighted = placement, direction, weighted
        self.parts = placement.parts
        self.words = placement.count // _WORD
        self.arrays = placement.row_arrays[direction]

    def make(self) -> Halos:
        """Return the rows; on an error, nothing that is half made stays.

        :raises GraphTooLargeError: need against free, before anything but rows is allocated
        """
        placement, parts = self.placement, self.parts
        targets = self.arrays.targets[self.weighted]
        local_targets = self.arrays.local_targets[self.weighted]
        is_shared = bool(targets)
        rows = RowBuilder(placement, self.direction, self.weighted, self.weighted).make()
        with ExitStack() as failed:
            failed.callback(local_targets.release)
            if not is_shared:
                local_targets.take(targets)
            needs_bytes, slots_bytes = 4 * self.words, placement.id_dtype.itemsize * self.words
            counts_bytes, begins_bytes = 8 * (self.words + 1), 8 * (len(parts) + 1)
            needed = 2 * (needs_bytes + slots_bytes) + counts_bytes + begins_bytes
            require_room(
                [part.index for part in parts],
                [needed + (local_rows.targets.nbytes if is_shared else 0) for local_rows in rows],
                spare_bytes,
            )
            with ExitStack() as scratch:

                def scratch_buffers(nbytes: int) -> list[Buffer]:
                    return [scratch.enter_context(Buffer(part.index, nbytes)) for part in parts]

                needs, slots = scratch_buffers(needs_bytes), scratch_buffers(slots_bytes)
                counts, begins = scratch_buffers(counts_bytes), scratch_buffers(begins_bytes)
                scratch.callback(synchronize, parts)  # before any of it is freed
                self._find_needs(rows, needs)
                self._number_slots(needs, counts, slots, begins)
                for part, local_rows in zip(parts, rows, strict=True):
                    start_kernel(
                        placement, part, "localize_targets", local_rows.targets.pointer, local_rows.arcs,
                        part.first, placement.capacity, needs[part.device].pointer,
                        slots[part.device].pointer,
                        local_targets.room(part, local_rows.targets.nbytes).pointer,
                    )  # fmt: skip
                subscribers, owner_slots = self.arrays.subscribers, self.arrays.slots
                for array, values in ((subscribers, needs), (owner_slots, slots)):
                    if not array:
                        failed.callback(array.release)
                        for part in parts:
                            array.room(part, values[0].nbytes)
                        _send_to_owners(placement, values, array.buffers)
                synchronize(parts)
                slot_begins = [ends.download(np.int64, len(parts) + 1) for ends in begins]
            failed.pop_all()
        return Halos(
            [
                replace(local_rows, targets=local_targets[part])
                for part, local_rows in zip(parts, rows, strict=True)
            ],
            subscribers.buffers,
            owner_slots.buffers,
            np.stack(slot_begins),
        )

    def _find_needs(self, rows: Sequence[StepRows], needs: Sequence[Buffer]) -> None:
        """Set the bits of each device's halo."""
        own_bytes = self.placement.capacity // 8
        for bits in needs:
            bits.fill_bytes(0)
        _mark_targets(self.placement, rows, needs)
        synchronize(self.parts)
        for part, bits in zip(self.parts, needs, strict=True):
            bits.upload(np.zeros(own_bytes, np.uint8), part.device * own_bytes)

    def _number_slots(
        self, needs: Sequence[Buffer], counts: Sequence[Buffer], slots: Sequence[Buffer],
        begins: Sequence[Buffer],
    ) -> None:  # fmt: skip
        """Number each device's halo by words of its bitmap."""
        placement, words = self.placement, self.words
        for part in self.parts:
            device, sums = part.device, counts[part.device].pointer
            start_kernel(placement, part, "count_needs", needs[device].pointer, words, sums)
            start_kernel(placement, part, "sum_up", sums, words)
            start_kernel(
                placement, part, "write_slots", sums, words, placement.capacity // _WORD,
                part.owned, slots[device].pointer, begins[device].pointer,
            )  # fmt: skip
