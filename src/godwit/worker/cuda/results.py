"""The results of a run on GPUs, copied into one array of all vertices on the host or on a GPU.

The GPU that has the values converts them: it widens them, and replaces those that were not reached. For the
host, each thread of a team repeatedly takes a piece of any device's values: a kernel writes it into the
thread's page-locked buffer (or a copy engine does, if there is nothing to convert), and the thread copies
it into the array, which takes most of the time, as it touches the array's pages for the first time. For a
GPU, parts are copied from device to device, and the receiving GPU puts the values in the order of vertices.
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
from godwit.dtypes import frozen
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, new_control, run_team
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import c_type, load, number_bits
from godwit.runtime.cuda.copies import STAGING_BYTES, Staging, stagings
from godwit.runtime.cuda.driver import Stream
from godwit.trace import HOST, copied, seconds_since
from godwit.worker.cuda.placement import GpuPart, GpuPlacement
from godwit.worker.program import ProgramOperators
from godwit.worker.task import Destination

_MOST_THREADS = 16
_BLOCK_THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 8


@dataclass(frozen=True)
class _Column:
    """One array of a result.

    :param pointers: of each part's values
    :param dtype: of these
    :param results: (n) the array
    :param id_dtype: of the graph's vertices
    :param bound: ``"min"`` or ``"max"`` if values beyond the limit become ``never``; otherwise empty
    :param limit: of the run
    :param identity: the value of vertices that were not reached
    :param never: their value in the results
    """

    pointers: tuple[int, ...]
    dtype: np.dtype[Any]
    results: Any
    id_dtype: np.dtype[Any]
    bound: str = ""
    limit: Any = 0
    identity: Any = 0
    never: Any = 0

    @property
    def result_dtype(self) -> np.dtype[Any]:
        """The dtype of the results."""
        dtype: np.dtype[Any] = np.dtype(self.results.dtype)
        return dtype

    @property
    def source(self) -> str:
        """The source of the kernel that converts and places values."""
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
    """Copy the results of a run to their destination.

    :param limit: of the run: worse values become ``never``
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
    pointers = tuple(part.rooms.values.buffer.pointer for part in placement.parts)
    plain = limit == program.identity and destination.values.dtype == dtype
    if program.combine == "add" or plain:
        yield _Column(pointers, dtype, destination.values, ids)
    else:
        yield _Column(
            pointers, dtype, destination.values, ids,
            program.combine, limit, program.identity, destination.never,
        )  # fmt: skip
    if program.field_dtype is not None:
        pointers = tuple(part.rooms.fields.buffer.pointer for part in placement.parts)
        yield _Column(pointers, program.field_dtype, destination.fields, ids)


@dataclass(frozen=True)
class _Piece:
    """Consecutive values of a part.

    :param pointer: of the first value
    :param first: its index in the part
    :param begin: its index in the values of all parts, in their order
    """

    part: GpuPart
    pointer: int
    first: int
    begin: int
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
            _copy_pieces(0, 1, new_control(), *arguments)
        else:
            run_team(_copy_pieces, *arguments, threads=workers)
        for part in placement.parts:
            values = sum(piece.count for piece in pieces if piece.part is part)
            copied(f"cuda:{part.index}", HOST, values * column.result_dtype.itemsize, begin)


def _pieces(placement: GpuPlacement, column: _Column) -> list[_Piece]:
    """Return the pieces of all parts by turns, so that all devices copy at the same time."""
    step = STAGING_BYTES // max(column.dtype.itemsize, column.result_dtype.itemsize)
    pieces = []
    begin = 0
    for part, pointer in zip(placement.parts, column.pointers, strict=True):
        count = part.graph.vertex_count
        for first in range(0, count, step):
            values = pointer + first * column.dtype.itemsize
            pieces.append(_Piece(part, values, first, begin + first, min(step, count - first)))
        begin += count
    return sorted(pieces, key=lambda piece: piece.first)


def _copy_pieces(
    rank: int, size: int, control: Any, column: _Column, pieces: Iterator[_Piece],
    taken: list[Staging], ranges: bool,
) -> None:  # fmt: skip
    """Copy pieces that no other thread has taken, until there are none."""
    staging = taken[rank]
    for piece in pieces:  # the iterator of a list, of which next() is atomic
        if control[ABORT]:
            return
        part, count = piece.part, piece.count
        stream = staging.stream(part.index)
        if column.bound:
            _start(column, stream, piece.pointer, 0, count, staging.pointer)
        else:
            nbytes = count * column.dtype.itemsize
            driver.copy_async(staging.pointer, piece.pointer, nbytes, stream)
        stream.synchronize()
        if ranges:
            nbytes = column.result_dtype.itemsize
            to = column.results.ctypes.data + piece.begin * nbytes
            ctypes.memmove(to, staging.pointer, count * nbytes)
        else:
            vertices = part.graph.vertices[piece.first : piece.first + count]
            staged = staging.array(column.result_dtype)[:count]
            _scatter(frozen(vertices), frozen(staged), column.results)


@kernel
def _scatter(vertices: Any, values: Any, out: Any) -> None:
    for index in range(len(vertices)):
        out[vertices[index]] = values[index]


def _to_gpu(placement: GpuPlacement, column: _Column, gpu: int, *, ranges: bool) -> None:
    stream = Stream(gpu)
    held: list[Any] = []  # arrays in use until the stream is done
    begin = 0
    try:
        for part, pointer in zip(placement.parts, column.pointers, strict=True):
            values = pointer
            count = part.graph.vertex_count
            nbytes = count * column.dtype.itemsize
            results = int(column.results.data.ptr)
            if ranges:
                results += begin * column.result_dtype.itemsize
            begin += count
            if ranges and not column.bound:
                driver.copy_peer_async(results, gpu, values, part.index, nbytes, stream)
                continue
            vertices = 0
            if not ranges:
                vertices = part.rooms.vertices.resident(part.graph.vertices).pointer
            if part.index != gpu:
                values = _copied_to(values, nbytes, part.index, gpu, stream, held)
            if part.index != gpu and vertices:
                nbytes = part.graph.vertices.nbytes
                vertices = _copied_to(vertices, nbytes, part.index, gpu, stream, held)
            _start(column, stream, values, vertices, count, results)
    finally:
        try:
            stream.synchronize()
        finally:
            stream.close()


def _copied_to(
    pointer: int, nbytes: int, index: int, gpu: int, stream: Stream, held: list[Any]
) -> int:
    """Start copying memory of one GPU to another; return the pointer to the copy."""
    copy: Any = ResultLocation(gpu).empty(nbytes, np.uint8)
    held.append(copy)
    driver.copy_peer_async(int(copy.data.ptr), gpu, pointer, index, nbytes, stream)
    return int(copy.data.ptr)


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
    """Return a number's bits as a kernel takes them."""
    exact = ctypes.c_uint32 if dtype.itemsize == 4 else ctypes.c_uint64
    return exact(number_bits(number, dtype))
