"""Which devices read which positions along their arcs, so that an owner sends a value where it is read.

For each device and each other one a bitmap over its own positions: whether that one has an arc, in its rows
of a direction, whose other end stands there. ``"out"``: what it reads at targets where it pushes; ``"in"``:
at sources where it pulls; both: the union. Made by small launches with the host in between, as rows are,
and kept as long as they. Kernel: supersteps/reader_kernels.cuh.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.graph.cuda.builder import c_id, kernel_source, spare_bytes
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Buffer
from godwit.supersteps.rows import StepRows, start_kernel
from godwit.worker.cuda.placement import require_room, settle

if TYPE_CHECKING:
    from godwit.supersteps.placement import StepPlacement


def make_readers(
    placement: StepPlacement, name: str, row_sets: Sequence[Sequence[StepRows]]
) -> list[Buffer]:
    """On each device (devices, capacity / 32) uint32: a bit for each own position and reader.

    What a device has of itself is of no use.

    :param name: of the buffers, which the parts keep
    :param row_sets: of each direction, the rows of all devices; none: all devices read everything
    :raises GraphTooLargeError: need against free, before anything is allocated
    """
    text, nbytes = source(placement.id_dtype), placement.count // 8
    indexes = [part.index for part in placement.parts]
    require_room(indexes, [2 * nbytes] * len(indexes), spare_bytes)
    with ExitStack() as made:
        readers = [made.enter_context(Buffer(index, nbytes)) for index in indexes]
        with ExitStack() as owned:
            needs = [owned.enter_context(Buffer(index, nbytes)) for index in indexes]
            owned.callback(settle, placement.parts)  # before any of it is given back
            for place, own_needs in enumerate(needs):
                own_needs.fill_bytes(0 if row_sets else 0xFF)
                for rows in row_sets:
                    start_kernel(
                        placement.parts[place], text, "mark_targets",
                        rows[place].targets.pointer, rows[place].arcs, own_needs.pointer,
                    )  # fmt: skip
            exchange_ranges(placement, needs, readers)
        made.pop_all()  # from now on the parts'
    for part, buffer in zip(placement.parts, readers, strict=True):
        part.buffers[name] = buffer
    return readers


def exchange_ranges(
    placement: StepPlacement,
    at_readers: list[Buffer],
    at_owners: list[Buffer],
    *,
    back: bool = False,
) -> None:
    """Of arrays of all positions, an owner's range from each reader to the owner: a row a reader; or back.

    Each in the reader's stream, and there when this returns. What a device has of itself stays where it is.
    """
    row_bytes = at_owners[0].nbytes // len(placement.parts)
    for reader, owner in permutations(placement.parts, 2):
        here = at_readers[reader.device].pointer + owner.device * row_bytes
        there = at_owners[owner.device].pointer + reader.device * row_bytes
        ends = (there, owner.index, here, reader.index)
        if back:
            ends = (here, reader.index, there, owner.index)
        driver.copy_peer_async(*ends, row_bytes, reader.stream)
    settle(placement.parts)


def source(id_dtype: np.dtype[Any]) -> str:
    """Of the kernel."""
    return kernel_source("supersteps/reader_kernels.cuh", Id=c_id(id_dtype))
