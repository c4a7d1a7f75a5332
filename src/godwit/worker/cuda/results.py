"""The results of vertex programs on GPUs: widened, and with the identity where a vertex was not reached."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.runtime.cuda.transfer.delivery import Arrival, Conversion, Delivery, Share
from godwit.trace import seconds_since
from godwit.worker.cuda.placement import GpuPlacement, synchronize
from godwit.worker.program import ProgramOperators
from godwit.worker.task import Destination


class PartDelivery(Delivery):
    """Delivery of the values of a placement's parts.

    :param ranges: True if each part's vertices are a range, in the order of the parts
    """

    def __init__(self, placement: GpuPlacement, *, ranges: bool) -> None:
        parts = placement.parts
        counts = [part.graph.vertex_count for part in parts]
        firsts = np.cumsum([0, *counts]).tolist()

        def positions(number: int) -> int:
            room = parts[number].rooms.positions
            if not room.is_filled:
                room.filled(_positions([part.graph.vertices for part in parts]))
            return room.buffer.pointer

        super().__init__(
            [
                Share(part.index, part.stream, first, count, count)
                for part, first, count in zip(parts, firsts[:-1], counts, strict=True)
            ],
            firsts[-1],
            parts[0].graph.stored.id_dtype,
            positions=None if ranges else positions,
            vertices=lambda number: parts[number].graph.vertices,
        )


def _positions(vertices: list[Array]) -> Array:
    """Return the place of each vertex in lists of vertices, one behind the other."""
    listed = np.concatenate(vertices)
    positions = np.empty_like(listed)
    positions[listed] = np.arange(len(listed), dtype=listed.dtype)
    return positions


class ProgramResults:
    """The arrays of the results of runs, one after the other.

    :param destination: of the first run; those of others are alike
    :param limit: of a run, as it begins: worse values become ``never``
    """

    def __init__(
        self,
        placement: GpuPlacement,
        program: ProgramOperators,
        destination: Destination,
        limit: Any,
    ) -> None:
        if placement.delivery is None:
            placement.delivery = PartDelivery(placement, ranges=destination.ranges)
        self._delivery: Delivery = placement.delivery
        self._placement, self._program = placement, program
        self.limit = limit
        self._is_alone = len(placement.parts) == 1
        self._values = self._new_values(destination, limit)
        self._fields: Arrival | None = None
        if program.field_dtype is not None:
            fields = [part.rooms.fields.buffer.pointer for part in placement.parts]
            plain = Conversion(program.field_dtype, program.field_dtype)
            self._fields = Arrival(
                self._delivery, fields, plain, destination.location, is_alone=self._is_alone
            )

    def _new_values(self, destination: Destination, limit: Any) -> Arrival:
        program = self._program
        dtype = program.value_dtype
        conversion = Conversion(dtype, destination.dtype)
        if program.combine != "add" and (limit != program.identity or destination.dtype != dtype):
            conversion = Conversion(
                dtype,
                destination.dtype,
                program.combine,
                limit,
                program.identity,
                destination.never,
            )
        values = [part.rooms.values.buffer.pointer for part in self._placement.parts]
        return Arrival(
            self._delivery, values, conversion, destination.location, is_alone=self._is_alone
        )

    def begin(self) -> None:
        """Allocate new arrays, as nothing is while kernels run."""
        self._values.begin()
        if self._fields is not None:
            self._fields.begin()

    def start(self) -> None:
        """Start to write arrays on a GPU behind the kernels that are under way."""
        self._values.start()
        if self._fields is not None:
            self._fields.start()

    def drop(self) -> None:
        """Free arrays that are not wanted any more, when what was started is done."""
        for arrays in (self._values, self._fields):
            if arrays is not None:
                arrays.drop()

    def finish(self, destination: Destination, limit: Any) -> None:
        """Wait for the arrays, and give them to the destination.

        :param limit: of the run, as it ended: a number
        """
        begin = perf_counter()
        values = self._values
        if limit != self.limit:
            limit = self._program.value_dtype.type(limit)
            synchronize(self._placement.parts)  # what was started is of no use
            values.discard()  # before there is another: this object is kept for later runs
            values = self._new_values(destination, limit).begin()
        destination.values = values.finish()
        if self._fields is not None:
            destination.fields = self._fields.finish()
        destination.seconds = seconds_since(begin, "gather")
