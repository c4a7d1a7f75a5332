"""Gathering of values in device order on GPUs into one array of all vertices in the graph's order.

The devices' own ranges are joined on one GPU, over peer links, in a fraction of the time that a copy to
the host takes. That GPU then gathers: into the array of a result on a GPU, or, for the host, piece by piece
into pinned staging buffers, each of a thread that copies it into the result.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from godwit import config
from godwit.dtypes import Array, frozen
from godwit.graph.rows import thread_count_for
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, block_range, new_control, run_team
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.compile import c_type, load
from godwit.runtime.cuda.copies import STAGING_BYTES, Staging, download, stagings
from godwit.runtime.cuda.driver import Stream
from godwit.supersteps.arrays import DeviceArray, StepPart
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.rows import positions_on
from godwit.trace import HOST, copied, seconds_since

_MOST_THREADS = 16
_THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 8
_PLENTY = 4
"""A GPU gathers for the host if its free memory is this many times what all values and positions take."""


class DeliveryArrays:
    """Scratch memory of the GPU that gathers: values of all positions, and of all vertices."""

    def __init__(self, placement: StepPlacement) -> None:
        self.joined = DeviceArray(placement)
        self.gathered = DeviceArray(placement)


@dataclass(frozen=True)
class _GatherKernel:
    """The kernel that gathers, and what it reads.

    :param index: the GPU
    :param values: pointer to the values of all positions
    :param positions: pointer to the position of each vertex
    """

    index: int
    source: str
    values: int
    positions: int

    def start(self, stream: Stream, first: int, count: int, results: int) -> None:
        """Write the results of vertices [first, first + count) to an address."""
        multiprocessors = driver.properties(self.index).multiprocessors
        blocks = min(-(-count // _THREADS), _BLOCKS_PER_MULTIPROCESSOR * multiprocessors)
        driver.launch(
            load(self.index, self.source).kernel("gather_results"),
            stream,
            blocks=max(1, blocks),
            threads=_THREADS,
            arguments=(self.values, self.positions, first, count, results),
        )


def deliver_positions(
    placement: StepPlacement, array: DeviceArray, dtype: Any, destination: Any
) -> float:
    """Gather the values of each device's own vertices into one array of all vertices.

    :param array: on each device a buffer for all positions, of which the range of its own vertices is read;
        on the device that gathers, the other ranges are overwritten
    :param dtype: dtype of the values, of 4 or 8 bytes
    :param destination: (n) an array of NumPy, or of CuPy on any GPU; values are converted to its dtype
    :returns: the seconds that it took
    """
    begin = perf_counter()
    if placement.vertex_count:
        own_offset = np.dtype(dtype).itemsize * placement.capacity
        part = _gatherer(placement, destination)
        values = [
            buffer.pointer + device * own_offset for device, buffer in enumerate(array.buffers)
        ]
        _join(placement, values, part, array[part].pointer, np.dtype(dtype))
        _gather(placement, part, array[part].pointer, np.dtype(dtype), destination)
    placement.add_seconds("deliver", begin)
    return seconds_since(begin, "gather")


def deliver_own(
    placement: StepPlacement, array: DeviceArray, dtype: Any, destination: Any
) -> float:
    """Fill an array of all vertices from one that begins with the values of own vertices.

    Return the seconds. For a destination on a GPU :func:`delivery_needs` must be reserved. For the host a
    GPU with plenty of memory gathers; otherwise the values are downloaded in device order, and CPUs scatter
    them, more slowly.
    """
    begin = perf_counter()
    dtype = np.dtype(dtype)
    part = _gatherer(placement, destination)
    scratch = placement.kept(DeliveryArrays)
    if placement.vertex_count and _has_room(placement, part, dtype, destination):
        joined = scratch.joined.room(part, dtype.itemsize * placement.count).pointer
        _join(placement, [values.pointer for values in array.buffers], part, joined, dtype)
        _gather(placement, part, joined, dtype, destination)
        if isinstance(destination, np.ndarray):
            scratch.joined.release()
            placement.position_of.release()  # arrays of slots are for when memory is short
    else:
        for owner in placement.parts:
            values = np.empty(owner.owned, dtype)
            download(owner.index, array[owner].pointer, values)
            vertices = placement.numbering.vertices(owner.device)
            threads = thread_count_for(len(values))
            run_team(_scatter_values, vertices, frozen(values), destination, threads=threads)
    placement.add_seconds("deliver", begin)
    return seconds_since(begin, "gather")


def _has_room(placement: StepPlacement, part: StepPart, dtype: Any, destination: Any) -> bool:
    """Return True if a device can join the values of all positions."""
    if not isinstance(destination, np.ndarray):
        return True
    needed = int(dtype.itemsize + placement.id_dtype.itemsize) * placement.count
    return _PLENTY * needed <= memory.free_memory_bytes(part.index)


def delivery_needs(
    placement: StepPlacement, dtype: Any, destination: Any
) -> tuple[DeviceArray, list[int]]:
    """Return the room for :func:`deliver_own` to a GPU, as :meth:`StepPlacement.reserve` takes it."""
    nbytes = np.dtype(dtype).itemsize * placement.count
    gatherer = _gatherer(placement, destination)
    needs = [nbytes if part is gatherer else 0 for part in placement.parts]
    return placement.kept(DeliveryArrays).joined, needs


def _gatherer(placement: StepPlacement, destination: Any) -> StepPart:
    """Return the device that gathers results."""
    gpu = None if isinstance(destination, np.ndarray) else int(destination.device.id)
    return next((part for part in placement.parts if part.index == gpu), placement.parts[0])


def _join(
    placement: StepPlacement, values: list[int], to: StepPart, joined: int, dtype: np.dtype[Any]
) -> None:
    """Copy the values of own vertices of each device into one array of all positions.

    :param values: their address on each device
    """
    for part, pointer in zip(placement.parts, values, strict=True):
        target = joined + dtype.itemsize * part.first
        if part.owned and pointer != target:
            nbytes = dtype.itemsize * part.owned
            driver.copy_peer_async(target, to.index, pointer, part.index, nbytes, to.stream)


def _gather(
    placement: StepPlacement, part: StepPart, values: int, dtype: Any, destination: Any
) -> None:
    """Gather an array of all positions on a device, once it is joined."""
    part.stream.synchronize()
    count, result_dtype = placement.vertex_count, np.dtype(destination.dtype)
    positions = positions_on(placement, part).pointer
    source = _source(dtype, result_dtype, placement.id_dtype)
    gather_kernel = _GatherKernel(part.index, source, values, positions)
    if isinstance(destination, np.ndarray):
        _gather_to_host(gather_kernel, count, destination)
        return
    gpu, results = int(destination.device.id), int(destination.data.ptr)
    if part.index == gpu:
        gather_kernel.start(part.stream, 0, count, results)
    else:
        nbytes = count * result_dtype.itemsize
        gathered = placement.kept(DeliveryArrays).gathered.room(part, nbytes).pointer
        gather_kernel.start(part.stream, 0, count, gathered)
        driver.copy_peer_async(results, gpu, gathered, part.index, nbytes, part.stream)
    part.stream.synchronize()


def deliver_arcs(placement: StepPlacement, array: DeviceArray, destination: Array) -> None:
    """Fill an array of the host with a value for each arc, in the graph's order.

    :param array: of each device, the values of its own arcs, of the dtype of `destination`, in the order of
        ``placement.rows("out", ordered=True)``
    """
    begin = perf_counter()
    offsets = placement.graph.offsets
    for part in placement.parts:
        vertices = placement.numbering.vertices(part.device)
        ends = np.cumsum(offsets[1:][vertices] - offsets[:-1][vertices])
        if len(ends) and ends[-1]:
            values = np.empty(int(ends[-1]), destination.dtype)
            download(part.index, array[part].pointer, values)
            threads = thread_count_for(len(values))
            arguments = (offsets, vertices, frozen(ends), frozen(values), destination)
            run_team(_scatter_rows, *arguments, threads=threads)
    placement.add_seconds("deliver", begin)
    seconds_since(begin, "gather")


@kernel
def _scatter_rows(
    rank: int, size: int, control: Any, offsets: Any, vertices: Any, ends: Any, values: Any,
    out: Any,
) -> None:  # fmt: skip
    """Copy the rows of some vertices, one behind the other, into the graph's rows."""
    begin, end = block_range(rank, size, vertices.size)
    at = ends[begin - 1] if begin > 0 else 0
    for row in range(begin, end):
        v = vertices[row]
        for arc in range(offsets[v], offsets[v + 1]):
            out[arc] = values[at]
            at += 1


@kernel
def _scatter_values(
    rank: int, size: int, control: Any, vertices: Any, values: Any, out: Any
) -> None:  # fmt: skip
    """Store the values of some vertices."""
    begin, end = block_range(rank, size, vertices.size)
    for i in range(begin, end):
        out[vertices[i]] = values[i]


def _gather_to_host(gather_kernel: _GatherKernel, count: int, destination: Any) -> None:
    step = STAGING_BYTES // destination.dtype.itemsize
    pieces = range(0, count, step)
    workers = min(len(pieces), config.thread_count(), _MOST_THREADS)
    with stagings(workers) as taken:
        arguments = (gather_kernel, iter(pieces), step, taken, destination)
        begin = perf_counter()
        if workers == 1:
            _gather_pieces(0, 1, new_control(), *arguments)
        else:
            run_team(_gather_pieces, *arguments, threads=workers)
        nbytes = count * destination.dtype.itemsize
        copied(f"cuda:{gather_kernel.index}", HOST, nbytes, begin)


def _gather_pieces(
    rank: int, size: int, control: Any, gather_kernel: _GatherKernel, pieces: Iterator[int],
    step: int, taken: list[Staging], destination: Any,
) -> None:  # fmt: skip
    """Claim pieces until none are left, and bring each to the host."""
    staging, nbytes = taken[rank], destination.dtype.itemsize
    stream = staging.stream(gather_kernel.index)
    for first in pieces:  # an iterator of a range: taking the next is atomic
        if control[ABORT]:
            return
        count = min(step, len(destination) - first)
        gather_kernel.start(stream, first, count, staging.pointer)
        stream.synchronize()
        to = destination.ctypes.data + first * nbytes
        ctypes.memmove(to, staging.pointer, count * nbytes)


def _source(dtype: Any, result_dtype: Any, id_dtype: Any) -> str:
    types = {"Value": dtype, "Result": result_dtype, "Id": id_dtype}
    usings = [f"using {name} = {c_type(given)};" for name, given in types.items()]
    return "\n".join(
        [
            '#include "runtime/cuda/include/memory.cuh"',
            *usings,
            '#include "supersteps/results.cuh"',
            "",
        ]
    )
