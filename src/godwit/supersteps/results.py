"""What a run of supersteps leaves on GPUs, in positions, as one array of all vertices in their own order.

The devices' own ranges are put together on one of them, over whatever connects them, which takes a fraction
of what the bus to the host does. That GPU then gathers: into the array of a result that lies there, or, for
the host, piece by piece into page-locked buffers, each of a thread that moves it to its place.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np

from godwit import config
from godwit.dtypes import Array, frozen
from godwit.graph.rows import thread_count_for
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, block_range, new_control, run_team
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import cubin
from godwit.runtime.cuda.download import STAGING_BYTES, Staging, download, stagings
from godwit.runtime.cuda.driver import Kernel, Stream
from godwit.runtime.cuda.types import c_type
from godwit.supersteps import rows as step_rows
from godwit.supersteps.placement import StepPart, StepPlacement
from godwit.trace import HOST, copied, seconds_since

_MOST_THREADS = 16
_THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 8
_TOGETHER = "results put together"
_PLENTY = 4
"""Of room for all values and positions, a GPU that gathers for the host has so much free."""


@dataclass(frozen=True)
class _Gathering:
    """What a kernel gathers.

    :param index: the GPU
    :param values: pointer to all positions' values there
    :param positions: pointer to the position of each vertex
    :param source: of the kernel
    :param change: whether a value is replaced, its bits, those of what takes its place
    """

    index: int
    values: int
    positions: int
    source: str
    change: tuple[int, int, int]

    def start(self, stream: Stream, first: int, count: int, results: int) -> None:
        """Write the results of some vertices to where a pointer says."""
        multiprocessors = driver.properties(self.index).multiprocessors
        blocks = min(-(-count // _THREADS), _BLOCKS_PER_MULTIPROCESSOR * multiprocessors)
        driver.launch(
            _kernel(self.index, self.source),
            stream,
            blocks=max(1, blocks),
            threads=_THREADS,
            arguments=(self.values, self.positions, first, count, *self.change, results),
        )


def deliver_positions(
    placement: StepPlacement,
    name: str,
    dtype: Any,
    destination: Any,
    *,
    replace: tuple[Any, Any] | None = None,
) -> float:
    """Fill an array of all vertices from what the devices have for their own; the seconds that took.

    Buffer ``name`` of each device has room for the values of all positions, and those of the device's own
    vertices are right. Of the device that puts them together the others' are overwritten.

    :param dtype: of the values: of 4 or 8 bytes
    :param destination: (n) an array of NumPy, or of CuPy on any GPU; numbers are converted to its dtype
    :param replace: a value, and what stands in its place in the results
    """
    begin = perf_counter()
    dtype = np.dtype(dtype)
    if placement.vertex_count:
        part = _gatherer(placement, destination)
        to = part.buffers[name].pointer
        for one in placement.parts:
            if one is not part:
                offset = dtype.itemsize * one.first
                _bring_own(one, one.buffers[name].pointer + offset, part, to + offset, dtype)
        _gather(placement, part, to, dtype, destination, replace)
    placement.add_seconds("deliver", begin)
    return seconds_since(begin, "gather")


def deliver_own(placement: StepPlacement, name: str, dtype: Any, destination: Any) -> float:
    """As :func:`deliver_positions`, of buffers that begin with the values of the device's own vertices.

    For a GPU there was :func:`room_for_delivery`. For the host a GPU that has plenty of room gathers, too;
    else each device's values go down as they lie, and cores put them in their places, which is slower.
    """
    begin = perf_counter()
    dtype = np.dtype(dtype)
    part = _gatherer(placement, destination)
    if placement.vertex_count and _gathers(placement, part, dtype, destination):
        to = part.room(_TOGETHER, dtype.itemsize * placement.count).pointer
        for one in placement.parts:
            offset = dtype.itemsize * one.first
            _bring_own(one, one.buffers[name].pointer, part, to + offset, dtype)
        _gather(placement, part, to, dtype, destination, None)
        if isinstance(destination, np.ndarray):
            part.buffers.pop(_TOGETHER).close()
            step_rows.drop_positions(placement)  # whoever has neighbours only is short of room
    else:
        for one in placement.parts:
            values = np.empty(one.owned, dtype)
            download(one.index, one.buffers[name].pointer, values)
            vertices = placement.numbering.vertices(one.device)
            threads = thread_count_for(len(values))
            run_team(_put_values, vertices, frozen(values), destination, threads=threads)
    placement.add_seconds("deliver", begin)
    return seconds_since(begin, "gather")


def _gathers(placement: StepPlacement, part: StepPart, dtype: Any, destination: Any) -> bool:
    """Whether a device puts the values of all together."""
    if not isinstance(destination, np.ndarray):
        return True
    needed = int(dtype.itemsize + placement.id_dtype.itemsize) * placement.count
    return _PLENTY * needed <= driver.free_memory_bytes(part.index)


def room_for_delivery(
    placement: StepPlacement, part: StepPart, dtype: Any, destination: Any
) -> dict[str, int]:
    """Bytes of the buffers that :func:`deliver_own` needs on a device: all positions, where it gathers."""
    if isinstance(destination, np.ndarray) or part is not _gatherer(placement, destination):
        return {}
    return {_TOGETHER: np.dtype(dtype).itemsize * placement.count}


def _gatherer(placement: StepPlacement, destination: Any) -> StepPart:
    """The device that puts results together."""
    gpu = None if isinstance(destination, np.ndarray) else int(destination.device.id)
    return next((one for one in placement.parts if one.index == gpu), placement.parts[0])


def _gather(
    placement: StepPlacement, part: StepPart, values: int, dtype: Any, destination: Any,
    replace: tuple[Any, Any] | None,
) -> None:  # fmt: skip
    """From an array of all positions on a device, which others may still be copied into."""
    part.stream.synchronize()
    result_dtype = np.dtype(destination.dtype)
    gathering = _Gathering(
        part.index,
        values,
        step_rows.positions_on(placement, part).pointer,
        _source(dtype, result_dtype, placement.id_dtype),
        (0, 0, 0)
        if replace is None
        else (1, _bits(replace[0], dtype), _bits(replace[1], result_dtype)),
    )
    if isinstance(destination, np.ndarray):
        _to_host(gathering, placement.vertex_count, destination)
    else:
        gpu = int(destination.device.id)
        _to_gpu(gathering, part, placement.vertex_count, destination, gpu)


def deliver_arcs(placement: StepPlacement, name: str, destination: Array) -> None:
    """Fill an array of the host with a value for each arc, in the graph's order.

    Buffer ``name`` of each device has the values of its own arcs, of the dtype of ``destination``, in the
    order of ``placement.rows("out", ordered=True)``.
    """
    begin = perf_counter()
    offsets = placement.graph.offsets
    for part in placement.parts:
        vertices = placement.numbering.vertices(part.device)
        ends = np.cumsum(offsets[1:][vertices] - offsets[:-1][vertices])
        if len(ends) and ends[-1]:
            values = np.empty(int(ends[-1]), destination.dtype)
            download(part.index, part.buffers[name].pointer, values)
            threads = thread_count_for(len(values))
            arguments = (offsets, vertices, frozen(ends), frozen(values), destination)
            run_team(_put_rows, *arguments, threads=threads)
    placement.add_seconds("deliver", begin)
    seconds_since(begin, "gather")


@kernel
def _put_rows(
    rank: int, size: int, control: Any, offsets: Any, vertices: Any, ends: Any, values: Any,
    out: Any,
) -> None:  # fmt: skip
    """Rows of some vertices, one behind the other, to where the graph has them."""
    begin, end = block_range(rank, size, vertices.size)
    at = ends[begin - 1] if begin > 0 else 0
    for row in range(begin, end):
        v = vertices[row]
        for place in range(offsets[v], offsets[v + 1]):
            out[place] = values[at]
            at += 1


@kernel
def _put_values(
    rank: int, size: int, control: Any, vertices: Any, values: Any, out: Any
) -> None:  # fmt: skip
    """Of some vertices, one behind the other, to where they belong."""
    begin, end = block_range(rank, size, vertices.size)
    for place in range(begin, end):
        out[vertices[place]] = values[place]


def _bring_own(part: StepPart, values: int, there: StepPart, to: int, dtype: Any) -> None:
    """The values of a device's own vertices to where another one puts all together."""
    if part.owned:
        nbytes = dtype.itemsize * part.owned
        driver.copy_peer_async(to, there.index, values, part.index, nbytes, there.stream)


def _to_gpu(gathering: _Gathering, part: StepPart, count: int, destination: Any, gpu: int) -> None:
    results = int(destination.data.ptr)
    if part.index == gpu:
        gathering.start(part.stream, 0, count, results)
    else:
        nbytes = count * destination.dtype.itemsize
        made = part.room("delivered", nbytes).pointer
        gathering.start(part.stream, 0, count, made)
        driver.copy_peer_async(results, gpu, made, part.index, nbytes, part.stream)
    part.stream.synchronize()


def _to_host(gathering: _Gathering, count: int, destination: Any) -> None:
    step = STAGING_BYTES // destination.dtype.itemsize
    pieces = range(0, count, step)
    workers = min(len(pieces), config.thread_count(), _MOST_THREADS)
    with stagings(workers) as taken:
        arguments = (gathering, iter(pieces), step, taken, destination)
        begin = perf_counter()
        if workers == 1:
            _bring_pieces(0, 1, new_control(), *arguments)
        else:
            run_team(_bring_pieces, *arguments, threads=workers)
        copied(f"cuda:{gathering.index}", HOST, count * destination.dtype.itemsize, begin)


def _bring_pieces(
    rank: int, size: int, control: Any, gathering: _Gathering, pieces: Iterator[int], step: int,
    taken: list[Staging], destination: Any,
) -> None:  # fmt: skip
    """Take pieces that nobody has taken yet, until there are none."""
    staging, nbytes = taken[rank], destination.dtype.itemsize
    stream = staging.stream(gathering.index)
    for first in pieces:  # an iterator of a range: taking the next is one step
        if control[ABORT]:
            return
        count = min(step, len(destination) - first)
        gathering.start(stream, first, count, staging.pointer)
        stream.synchronize()
        to = destination.ctypes.data + first * nbytes
        ctypes.memmove(to, staging.pointer, count * nbytes)


def _source(dtype: Any, result_dtype: Any, id_dtype: Any) -> str:
    types = {"Value": dtype, "Result": result_dtype, "Id": id_dtype}
    usings = [f"using {name} = {c_type(one)};" for name, one in types.items()]
    return "\n".join(
        [
            '#include "runtime/cuda/include/memory.cuh"',
            *usings,
            '#include "supersteps/result_kernels.cuh"',
            "",
        ]
    )


@lru_cache(maxsize=64)
def _kernel(index: int, source: str) -> Kernel:
    architecture = driver.properties(index).compute_capability
    return driver.load(index, cubin(source, (), architecture)).kernel("gather_results")


def _bits(number: Any, dtype: np.dtype[Any]) -> int:
    """The bits of a number of a dtype."""
    bits = np.array([number], dtype).view(np.uint32 if dtype.itemsize == 4 else np.uint64)
    return int(bits[0])
