"""Queues of a step program's frontier on GPUs (frontier/cuda/queue.cuh): room, and what is first in it.

Each device has two, of own indexes (32 bits), and, where there are several devices, a list of positions to
which it has sent. All have the same room. They do not grow: what finds no room is in the bitmaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError
from godwit.frontier.cuda.layout import FORM, QUEUE, REPLICATED, ProgramArrays
from godwit.supersteps.arrays import DeviceArray, StepPart
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.rows import RowClass, StepRows

FEW_VERTICES, SHORT_ROW_ARCS = 1024, 32
LISTED, FEW, SHORT, LISTS = 1, 2, 4, 8
"""As in frontier/cuda/queue.cuh."""

_CONTROL_BYTES, _INDEX_BYTES = 16, 4
_LEAST_ROOM, _ROOM_SHIFT = 1 << 14, 5


@dataclass(frozen=True)
class FrontierQueues:
    """The queues of all devices.

    :param room: items of each list
    :param lists: whether what is touched is listed, where there is little: devices read each other's lists
    """

    placement: StepPlacement
    room: int
    lists: bool

    @classmethod
    def of(cls, placement: StepPlacement, items: int | None, *, lists: bool) -> FrontierQueues:
        """With so much room, or with what is likely enough.

        :raises GraphTooLargeError: own indexes do not fit 32 bits
        """
        if placement.capacity >= 1 << 32:
            raise GraphTooLargeError(
                f"a device would own {placement.capacity:,} vertices, and step programs take fewer than "
                f"{1 << 32:,} a device; use more GPUs"
            )
        likely = max(_LEAST_ROOM, placement.capacity >> _ROOM_SHIFT)
        room = max(1, min(likely if items is None else items, placement.capacity))
        return cls(placement, room, lists)

    @property
    def arrays(self) -> ProgramArrays:
        """The arrays that hold the queues."""
        return self.placement.kept(ProgramArrays)

    @property
    def needs(self) -> list[tuple[DeviceArray, list[int]]]:
        """Bytes of each array by device, as :meth:`StepPlacement.reserve` takes them."""
        devices = len(self.placement.parts)
        sent = self.placement.id_dtype.itemsize * self.room if devices > 1 else 0
        first, second = self.arrays.queue
        queue = [_INDEX_BYTES * self.room] * devices
        return [
            (first, queue),
            (second, queue),
            (self.arrays.queues, [_CONTROL_BYTES + sent] * devices),
        ]

    @property
    def nbytes(self) -> int:
        """Of all devices."""
        return sum(sum(nbytes) for _, nbytes in self.needs)

    @property
    def listing_limit(self) -> int:
        """Frontiers of so many vertices list what they touch: mostly there is room for it."""
        if not self.lists:
            return 0
        graph = self.placement.graph
        degree = -(-graph.arc_count // max(1, graph.vertex_count))
        return max(self.room // max(1, degree), min(self.room, FEW_VERTICES))

    def point(self, own: Any, part: StepPart, rows: StepRows) -> None:
        """Fill in a device's arguments, but for what lies at other devices."""
        directed = self.placement.graph.directed
        own["queue"] = [queue[part].pointer for queue in self.arrays.queue]
        own["queue_room"] = self.room
        own["listing_limit"] = self.listing_limit
        # Of a directed graph the classes are of in-degrees.
        own["long_below"] = (
            self.placement.capacity if directed else rows.classes[RowClass.CLASS_GROUP]
        )
        own["is_directed"] = directed

    def fill(self, members: Array) -> dict[int, int]:
        """Queue the first frontier where there is room for it; returns words of the state.

        :param members: vertices
        """
        placement = self.placement
        owners, indexes = np.divmod(placement.position(members), placement.capacity)
        counts = np.bincount(owners, minlength=len(placement.parts))
        is_listed = bool((counts <= self.room).all())
        for part in placement.parts:
            control = np.zeros(_CONTROL_BYTES // 4, np.uint32)
            if is_listed and counts[part.device]:
                own = indexes[owners == part.device].astype(np.uint32)
                self.arrays.queue[0][part].upload(own)
                control[0] = len(own)
            self.arrays.queues[part].upload(control)
        return {QUEUE: 0, FORM: self._form(members) if is_listed else 0, REPLICATED: 1}

    def _form(self, members: Array) -> int:
        """Of a frontier that is queued."""
        form = LISTED
        if len(members) <= self.listing_limit:
            form |= LISTS
        if len(members) <= FEW_VERTICES:
            offsets = self.placement.graph.offsets
            is_long = offsets[1:][members] - offsets[:-1][members] > SHORT_ROW_ARCS
            form |= FEW | (0 if is_long.any() else SHORT)
        return form
