"""Sorted keys: CuPy's radix sort, on memory and a stream of ours.

CuPy's pools are left alone: what its sort needs meanwhile is plain memory, given back at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from godwit import config
from godwit.errors import DeviceError, GraphTooLargeError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Buffer, Stream
from godwit.runtime.cuda.libraries import INSTALL


def sort_keys(keys: Buffer, count: int, stream: Stream) -> None:
    """Sort uint64 keys where they lie."""
    cupy = cupy_module()
    with _on(cupy, stream, f"sorting {count:,} arcs"):
        _keys_as_array(cupy, keys, count).sort()
        stream.synchronize()


def stable_order(keys: Buffer, count: int, stream: Stream) -> Any:
    """The places of uint64 keys in ascending order, equal ones in the order that they have: a CuPy array of
    64-bit integers."""
    cupy = cupy_module()
    with _on(cupy, stream, f"sorting {count:,} arcs"):
        order = _keys_as_array(cupy, keys, count).argsort()
        stream.synchronize()
        return order


def _keys_as_array(cupy: Any, keys: Buffer, count: int) -> Any:
    memory = cupy.cuda.UnownedMemory(keys.pointer, keys.nbytes, keys, keys.index)
    return cupy.ndarray((count,), cupy.uint64, cupy.cuda.MemoryPointer(memory, 0))


@contextmanager
def _on(cupy: Any, stream: Stream, what: str) -> Iterator[None]:
    """Run CuPy's functions in a stream of ours, without its pools; its errors become ours."""
    driver.free_kept(stream.index)  # which CuPy does not know of
    if hasattr(cupy.cuda.Stream, "from_external"):
        foreign = cupy.cuda.Stream.from_external(_StreamProtocol(stream))
    else:
        foreign = cupy.cuda.ExternalStream(stream.handle, stream.index)
    try:
        with driver.entered(stream.index), foreign, cupy.cuda.using_allocator(None):
            yield
    except MemoryError as error:
        free = config.readable_bytes(driver.free_memory_bytes(stream.index))
        raise GraphTooLargeError(
            f"{what} needs more memory than cuda:{stream.index} has: {free} are free ({error})"
        ) from error
    except DeviceError:
        raise
    except RuntimeError as error:  # CuPy's errors of CUDA
        raise DeviceError(f"{what} on cuda:{stream.index} failed: {error}") from error


class _StreamProtocol:
    """A stream of ours as other libraries take one."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._stream.handle


def cupy_module() -> Any:
    """CuPy; DeviceError, saying what to install, if it is not there."""
    try:
        import cupy
    except ImportError as error:
        raise DeviceError(f"graphs are built on a GPU with CuPy; install it: {INSTALL}") from error
    return cupy
