"""Which devices read which positions along their arcs, so that an owner sends a value where it is read.

For each device and each other one a bitmap over its own positions: whether that one has an arc, in its rows
of a direction, whose other end stands there. ``"out"``: what it reads at targets where it pushes; ``"in"``:
at sources where it pulls; both: the union. Made by small launches with the host in between, as rows are,
and kept as long as they. Kernel: step_reader_kernels.cuh.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.backends.cuda import driver
from godwit.backends.cuda.compilation import cubin
from godwit.backends.cuda.driver import Buffer, Kernel
from godwit.backends.cuda.placement import require_room
from godwit.backends.cuda.structures import c_id
from godwit.backends.cuda.workshop import kernel_source, spare_bytes

if TYPE_CHECKING:
    from godwit.backends.cuda.step_placement import StepPlacement
    from godwit.backends.cuda.step_rows import StepRows

_THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 8


def make_readers(
    placement: StepPlacement, name: str, row_sets: Sequence[Sequence[StepRows]]
) -> list[Buffer]:
    """On each device (devices, capacity / 32) uint32: a bit for each own position and reader.

    What a device has of itself is of no use.

    :param name: of the buffers, which the parts keep
    :param row_sets: of each direction, the rows of all devices; none: all devices read everything
    :raises GraphTooLargeError: need against free, before anything is allocated
    """
    nbytes = placement.count // 8
    indexes = [part.index for part in placement.parts]
    require_room(indexes, [2 * nbytes] * len(indexes), spare_bytes)
    with ExitStack() as made:
        readers = [made.enter_context(Buffer(index, nbytes)) for index in indexes]
        with ExitStack() as owned:
            needs = [owned.enter_context(Buffer(index, nbytes)) for index in indexes]
            owned.callback(_settle, placement)  # before any of it is given back
            for place, own_needs in enumerate(needs):
                own_needs.fill_bytes(0 if row_sets else 0xFF)
                for rows in row_sets:
                    _mark(placement, place, rows[place], own_needs)
            _exchange(placement, needs, readers)
        made.pop_all()  # from now on the parts'
    for part, buffer in zip(placement.parts, readers, strict=True):
        part.buffers[name] = buffer
    return readers


def _mark(placement: StepPlacement, place: int, rows: StepRows, needs: Buffer) -> None:
    part = placement.parts[place]
    multiprocessors = driver.properties(part.index).multiprocessors
    driver.launch(
        _kernel(part.index, source(placement.id_dtype)),
        part.stream,
        blocks=multiprocessors * _BLOCKS_PER_MULTIPROCESSOR,
        threads=_THREADS,
        arguments=(rows.targets.pointer, rows.arcs, needs.pointer),
    )


def _exchange(placement: StepPlacement, needs: list[Buffer], readers: list[Buffer]) -> None:
    """What a device needs of an owner's range, to the owner: each in the stream that made it."""
    row_bytes = placement.capacity // 8
    for reader in placement.parts:
        for owner in placement.parts:
            driver.copy_peer_async(
                readers[owner.device].pointer + reader.device * row_bytes,
                owner.index,
                needs[reader.device].pointer + owner.device * row_bytes,
                reader.index,
                row_bytes,
                reader.stream,
            )


def _settle(placement: StepPlacement) -> None:
    for part in placement.parts:
        part.stream.synchronize()


def source(id_dtype: np.dtype[Any]) -> str:
    """Of the kernel."""
    return kernel_source("step_reader_kernels.cuh", Id=c_id(id_dtype))


@lru_cache(maxsize=64)
def _kernel(index: int, code: str) -> Kernel:
    architecture = driver.properties(index).compute_capability
    return driver.load(index, cubin(code, (), architecture)).kernel("mark_targets")
