"""CuPy's arrays and streams: what users hold of GPUs, what segments on GPUs are, and CuPy's radix sort."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from godwit import config
from godwit.errors import DeviceError, GraphTooLargeError, InputError, shown
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.libraries import cupy
from godwit.runtime.cuda.memory import (
    Buffer,
    Holding,
    array_over,
    free_kept,
    free_memory_bytes,
    kept_or_new,
    rounded_size,
)

_MOST_SPARE = 16
_MOST_KEPT_BYTES = 256 << 20
"""To allocate more than that takes little of the time of sorting as much: 66 MB take a third of it."""


def is_gpu_array(array: Any) -> bool:
    """Return True for an array of CuPy."""
    module = sys.modules.get("cupy")
    return module is not None and isinstance(array, module.ndarray)


def gpu_of(array: Any) -> int:
    """Return the index of the GPU of a CuPy array."""
    return int(array.data.device_id)


def address_of(array: Any) -> int:
    """Return the address of a CuPy array."""
    return int(array.data.ptr)


def overlap(array: Any, other: Any) -> bool:
    """Return True if two CuPy arrays share memory; addresses of different GPUs differ."""
    gap = other.data.ptr - array.data.ptr
    return bool(-other.nbytes < gap < array.nbytes)


def sendable_gpu_array(array: Any) -> Any:
    """Return an array of any library on a GPU as a C-contiguous CuPy array.

    Pending work of its library is ordered before CuPy's current stream, if the library supports DLPack.

    :raises InputError: CuPy does not accept it
    """
    module = cupy()
    if not isinstance(array, module.ndarray):
        if getattr(array, "requires_grad", False):
            array = array.detach()
        try:
            shared = hasattr(array, "__dlpack__")
            array = module.from_dlpack(array) if shared else module.asarray(array)
        except Exception as error:  # of CuPy, or of the other library
            raise InputError(f"{shown(array)} cannot be sent: {error}") from error
    if array.ndim == 0:
        array = array.reshape(1)
    if array.flags.c_contiguous:
        return array
    with driver.entered(gpu_of(array)):
        return module.ascontiguousarray(array)


_spare_streams: dict[int, list[Any]] = {}


def take_stream(index: int) -> Any:
    """Return an unused CuPy stream that does not wait for the null stream."""
    try:
        return _spare_streams.setdefault(index, []).pop()
    except IndexError:
        with driver.entered(index):
            return cupy().cuda.Stream(non_blocking=True)


def give_stream_back(index: int, stream: Any) -> None:
    """Keep a stream, in which all work is done, for :func:`take_stream`."""
    spare = _spare_streams.setdefault(index, [])
    if len(spare) < _MOST_SPARE:
        spare.append(stream)


def current_stream(index: int) -> Any:
    """Return this thread's current CuPy stream on a GPU."""
    return cupy().cuda.get_current_stream(index)


def is_current(index: int) -> bool:
    """Return True if a GPU is CuPy's current one in this thread."""
    return bool(cupy().cuda.runtime.getDevice() == index)


@contextmanager
def entered(index: int, stream: Any) -> Iterator[None]:
    """Make a GPU and a stream CuPy's current ones for the block."""
    with driver.entered(index), stream:
        yield


def sort_keys(keys: Buffer, count: int, stream: Stream) -> None:
    """Sort uint64 keys in place."""
    with _in_stream(stream, f"sorting {count:,} keys", keeps=True):
        _keys_array(keys, count).sort()
        stream.synchronize()


def stable_order(keys: Buffer, count: int, stream: Stream) -> Any:
    """Return the stable ascending order of uint64 keys, as a CuPy array of int64 indices."""
    with _in_stream(stream, f"sorting {count:,} keys"):
        order = _keys_array(keys, count).argsort()
        stream.synchronize()
        return order


def _keys_array(keys: Buffer, count: int) -> Any:
    return array_over(keys.pointer, keys.nbytes, keys.index, keys, "uint64", (count,))


@contextmanager
def _in_stream(stream: Stream, what: str, *, keeps: bool = False) -> Iterator[None]:
    """Run CuPy's functions in a stream of Godwit's, with plain allocations in place of CuPy's pool.

    :param keeps: the block waits for them and they leave no array: small memory that they take is kept for
        others
    """
    module = cupy()
    freed: list[Buffer] = []

    def allocate(nbytes: int) -> Any:
        if keeps and nbytes <= _MOST_KEPT_BYTES:
            buffer = kept_or_new(stream.index, rounded_size(nbytes))
            holding = Holding(buffer, buffer.pointer, nbytes)
            holding.release = freed.append
            memory = module.cuda.UnownedMemory(buffer.pointer, nbytes, holding, stream.index)
            return module.cuda.MemoryPointer(memory, 0)
        try:
            memory = module.cuda.Memory(nbytes)
        except MemoryError:
            if not free_kept(stream.index):
                raise
            memory = module.cuda.Memory(nbytes)
        return module.cuda.MemoryPointer(memory, 0)

    if hasattr(module.cuda.Stream, "from_external"):
        foreign = module.cuda.Stream.from_external(_StreamProtocol(stream))
    else:
        foreign = module.cuda.ExternalStream(stream.handle, stream.index)
    try:
        with driver.entered(stream.index), foreign, module.cuda.using_allocator(allocate):
            yield
        for buffer in freed:
            buffer.keep()
    except (MemoryError, GraphTooLargeError) as error:
        free = config.readable_bytes(free_memory_bytes(stream.index))
        raise GraphTooLargeError(
            f"{what} needs more memory than cuda:{stream.index} has: {free} are free ({error})"
        ) from error
    except DeviceError:
        raise
    except RuntimeError as error:  # CuPy's errors of CUDA
        raise DeviceError(f"{what} on cuda:{stream.index} failed: {error}") from error


class _StreamProtocol:
    """Adapter of a stream for other libraries."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._stream.handle
