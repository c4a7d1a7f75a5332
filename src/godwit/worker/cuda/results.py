"""What a run leaves on GPUs, brought to where it is wanted: one array of all vertices, on host or GPU.

Numbers are changed on the way, by the GPU that has them: widened, and replaced where they were never
reached. To the host, threads of a team each take piece after piece of any device: a kernel writes the
piece into the thread's page-locked buffer (or a copy engine does, where nothing changes), and the thread
moves it to its place, touching the pages of the array for the first time meanwhile; that is what takes the
time. To a GPU, parts go from device to device, and the GPU that receives them puts them in their places.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from godwit import config
from godwit.arrays import ResultLocation
from godwit.dtypes import Array, frozen
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, new_control, run_team
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import c_type, load
from godwit.runtime.cuda.copies import STAGING_BYTES, Staging, stagings
from godwit.runtime.cuda.driver import Stream
from godwit.trace import HOST, copied, seconds_since
from godwit.worker.cuda.placement import GpuPart, GpuPlacement
from godwit.worker.task import Destination, ProgramOperators

_MOST_THREADS = 16
_BLOCK_THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 8


@dataclass(frozen=True)
class _Column:
    """One array of a result.

    :param name: of the buffer in which each part has its numbers
    :param dtype: of these
    :param results: (n) where they go
    :param id_dtype: of the graph's vertices
    :param bound: ``"min"`` or ``"max"`` where numbers worse than the limit become ``never``; else empty
    :param limit: of the run
    :param identity: what vertices hold that were never reached
    :param never: what they hold in the results
    """

    name: str
    dtype: np.dtype[Any]
    results: Any
    id_dtype: np.dtype[Any]
    bound: str = ""
    limit: Any = 0
    identity: Any = 0
    never: Any = 0

    @property
    def result_dtype(self) -> np.dtype[Any]:
        """Of the results."""
        dtype: np.dtype[Any] = np.dtype(self.results.dtype)
        return dtype

    @property
    def source(self) -> str:
        """Of the kernel that changes numbers and puts them in their places."""
        types = {"Value": self.dtype, "Result": self.result_dtype, "Id": self.id_dtype}
        usings = [f"using {name} = {c_type(dtype)};" for name, dtype in types.items()]
        flags = {"BOUNDED": self.bound != "", "MAXIMIZES": self.bound == "max"}
        constants = [
            f"constexpr bool {name} = {str(flag).lower()};" for name, flag in flags.items()
        ]
        lines = [
            '#include "runtime/cuda/include/memory.cuh"',
            *usings,
            *constants,
            '#include "worker/cuda/result_kernels.cuh"',
        ]
        return "\n".join([*lines, ""])


def deliver(
    placement: GpuPlacement, program: ProgramOperators, destination: Destination, limit: Any
) -> None:
    """Fill a destination with what the run that has just ended left in its buffers.

    :param limit: of the run: values worse than it come out as never reached
    """
    begin = perf_counter()
    for column in _columns(placement, program, destination, limit):
        if destination.gpu is None:
            _to_host(placement, column, ranges=destination.ranges)
        else:
            _to_gpu(placement, column, destination.gpu, ranges=destination.ranges)
    destination.seconds = seconds_since(begin, "gather")


def _columns(
    placement: GpuPlacement, program: ProgramOperators, destination: Destination, limit: Any
) -> Iterator[_Column]:
    ids = placement.parts[0].graph.targets.dtype
    dtype = program.value_dtype
    plain = limit == program.identity and destination.values.dtype == dtype
    if program.combine == "add" or plain:
        yield _Column("values", dtype, destination.values, ids)
    else:
        yield _Column(
            "values", dtype, destination.values, ids,
            program.combine, limit, program.identity, destination.never,
        )  # fmt: skip
    if program.field_dtype is not None:
        yield _Column("fields", program.field_dtype, destination.fields, ids)


@dataclass(frozen=True)
class _Piece:
    """Some of a part's numbers.

    :param first: among the part's
    :param place: of the first among those of all parts
    """

    part: GpuPart
    first: int
    place: int
    count: int


def _to_host(placement: GpuPlacement, column: _Column, *, ranges: bool) -> None:
    pieces = _pieces(placement, column)
    workers = min(len(pieces), config.thread_count(), _MOST_THREADS)
    if workers == 0:
        return
    with stagings(workers) as taken:
        arguments = (column, iter(pieces), taken, ranges)
        begin = perf_counter()
        if workers == 1:
            _bring_pieces(0, 1, new_control(), *arguments)
        else:
            run_team(_bring_pieces, *arguments, threads=workers)
        for part in placement.parts:
            values = sum(piece.count for piece in pieces if piece.part is part)
            copied(f"cuda:{part.index}", HOST, values * column.result_dtype.itemsize, begin)


def _pieces(placement: GpuPlacement, column: _Column) -> list[_Piece]:
    """Of all parts by turns, so that all devices have some on the way."""
    step = STAGING_BYTES // max(column.dtype.itemsize, column.result_dtype.itemsize)
    found = []
    place = 0
    for part in placement.parts:
        count = part.graph.vertex_count
        for first in range(0, count, step):
            found.append(_Piece(part, first, place + first, min(step, count - first)))
        place += count
    return sorted(found, key=lambda piece: piece.first)


def _bring_pieces(
    rank: int, size: int, control: Any, column: _Column, pieces: Iterator[_Piece],
    taken: list[Staging], ranges: bool,
) -> None:  # fmt: skip
    """Take pieces that nobody has taken yet, until there are none."""
    staging = taken[rank]
    for piece in pieces:  # an iterator of a list: taking the next is one step
        if control[ABORT]:
            return
        part, count = piece.part, piece.count
        stream = staging.stream(part.index)
        values = part.buffers[column.name].pointer + piece.first * column.dtype.itemsize
        if column.bound:
            _start(column, stream, values, 0, count, staging.pointer)
        else:
            driver.copy_async(staging.pointer, values, count * column.dtype.itemsize, stream)
        stream.synchronize()
        if ranges:
            nbytes = column.result_dtype.itemsize
            to = column.results.ctypes.data + piece.place * nbytes
            ctypes.memmove(to, staging.pointer, count * nbytes)
        else:
            vertices = part.graph.vertices[piece.first : piece.first + count]
            found = staging.array(column.result_dtype)[:count]
            _put(frozen(vertices), frozen(found), column.results)


@kernel
def _put(vertices: Any, values: Any, out: Any) -> None:
    """Write values to the places of their vertices."""
    for index in range(len(vertices)):
        out[vertices[index]] = values[index]


def _to_gpu(placement: GpuPlacement, column: _Column, gpu: int, *, ranges: bool) -> None:
    stream = Stream(gpu)
    held: list[Any] = []  # until all is done
    place = 0
    try:
        for part in placement.parts:
            count = part.graph.vertex_count
            values = part.buffers[column.name].pointer
            nbytes = count * column.dtype.itemsize
            results = int(column.results.data.ptr)
            if ranges:
                results += place * column.result_dtype.itemsize
            place += count
            if ranges and not column.bound:
                driver.copy_peer_async(results, gpu, values, part.index, nbytes, stream)
                continue
            vertices = 0
            if not ranges:
                vertices = part.resident("vertices", part.graph.vertices).pointer
            if part.index != gpu:
                values = _brought(values, nbytes, part.index, gpu, stream, held)
            if part.index != gpu and vertices:
                nbytes = part.graph.vertices.nbytes
                vertices = _brought(vertices, nbytes, part.index, gpu, stream, held)
            _start(column, stream, values, vertices, count, results)
    finally:
        try:
            stream.synchronize()  # before anything is given back
        finally:
            stream.close()


def _brought(
    pointer: int, nbytes: int, index: int, gpu: int, stream: Stream, held: list[Any]
) -> int:
    """Where on a GPU a copy of another's memory lies, once the stream is there."""
    there: Any = ResultLocation(gpu).empty(nbytes, np.uint8)
    held.append(there)
    driver.copy_peer_async(int(there.data.ptr), gpu, pointer, index, nbytes, stream)
    return int(there.data.ptr)


def _start(
    column: _Column, stream: Stream, values: int, vertices: int, count: int, results: int
) -> None:
    multiprocessors = driver.properties(stream.index).multiprocessors
    blocks = min(-(-count // _BLOCK_THREADS), _BLOCKS_PER_MULTIPROCESSOR * multiprocessors)
    driver.launch(
        load(stream.index, column.source).kernel("place_results"),
        stream,
        blocks=max(1, blocks),
        threads=_BLOCK_THREADS,
        arguments=(
            values, vertices, count, _exact(column.limit, column.dtype),
            _exact(column.identity, column.dtype), _exact(column.never, column.result_dtype),
            results,
        ),
    )  # fmt: skip


def _exact(number: Any, dtype: np.dtype[Any]) -> Any:
    """A number as a kernel takes it: its bits, as wide as it is."""
    bits: Array = np.array([number], dtype)
    if dtype.itemsize == 4:
        return ctypes.c_uint32(int(bits.view(np.uint32)[0]))
    return ctypes.c_uint64(int(bits.view(np.uint64)[0]))
