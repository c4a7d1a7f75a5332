"""The results of vertex programs on GPUs: widened, and with the identity where a vertex was not reached."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.runtime.cuda.delivery import Conversion, Delivery, Share
from godwit.trace import seconds_since
from godwit.worker.cuda.placement import GpuPlacement
from godwit.worker.program import ProgramOperators
from godwit.worker.task import Destination


class PartDelivery(Delivery):
    """The way of parts' values: ranges of the results, or of vertices in any order."""

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
                Share(part.index, part.stream, first, count)
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


def deliver(
    placement: GpuPlacement, program: ProgramOperators, destination: Destination, limit: Any
) -> None:
    """Make the arrays of the results of a run.

    :param limit: of the run: worse values become ``never``
    """
    begin = perf_counter()
    if placement.delivery is None:
        placement.delivery = PartDelivery(placement, ranges=destination.ranges)
    delivery, location = placement.delivery, destination.location
    dtype = program.value_dtype
    conversion = Conversion(dtype, destination.dtype)
    if program.combine != "add" and (limit != program.identity or destination.dtype != dtype):
        conversion = Conversion(
            dtype, destination.dtype, program.combine, limit, program.identity, destination.never
        )
    values = [part.rooms.values.buffer.pointer for part in placement.parts]
    destination.values = delivery.deliver(values, conversion, location)
    if program.field_dtype is not None:
        fields = [part.rooms.fields.buffer.pointer for part in placement.parts]
        plain = Conversion(program.field_dtype, program.field_dtype)
        destination.fields = delivery.deliver(fields, plain, location)
    destination.seconds = seconds_since(begin, "gather")
