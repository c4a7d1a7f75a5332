"""CuPy's arrays over memory of ours, and what is asked of arrays on GPUs: the one place that names CuPy.

A segment on a GPU is an array of CuPy, so links that end at GPUs need it; no other CUDA code does.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack
from math import prod
from typing import Any

import numpy as np

from godwit.errors import DeviceError, InputError, shown
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.libraries import INSTALL

_CUDA_DEVICE_TYPES = (2, 13)
"""DLPack's numbers of memory of a GPU, and of managed memory."""


def cupy() -> Any:
    """The module; DeviceError where it is not there."""
    found = sys.modules.get("cupy")
    if found is not None:
        return found
    try:
        import cupy as imported
    except Exception as error:  # whatever a broken installation raises
        raise DeviceError(
            f"segments on GPUs are arrays of CuPy, which cannot be imported ({error}): {INSTALL}"
        ) from error
    return imported


def array_over(
    pointer: int, nbytes: int, index: int, owner: object, dtype: Any, shape: tuple[int, ...]
) -> Any:
    """An array over memory of a GPU; it keeps the owner."""
    module = cupy()
    memory = module.cuda.UnownedMemory(pointer, nbytes, owner, index)
    return module.ndarray(shape, np.dtype(dtype), module.cuda.MemoryPointer(memory, 0))


def is_gpu_array(array: Any) -> bool:
    """Whether it is an array of CuPy."""
    module = sys.modules.get("cupy")
    return module is not None and isinstance(array, module.ndarray)


def place_of(array: Any) -> tuple[int, int]:
    """On which GPU an array of CuPy lies, and where it begins there."""
    data = array.data
    return int(data.device_id), int(data.ptr)


def gpu_of(array: Any) -> int:
    """Where an array of CuPy lies."""
    return int(array.data.device_id)


def address_of(array: Any) -> int:
    """Where an array of CuPy begins."""
    return int(array.data.ptr)


def overlap(array: Any, other: Any) -> bool:
    """Whether two arrays of CuPy have memory in common: an address is of one GPU only."""
    gap = other.data.ptr - array.data.ptr
    return bool(-other.nbytes < gap < array.nbytes)


def lies_on_gpu(array: Any) -> bool:
    """Whether an array of some library is in a GPU's memory."""
    if is_gpu_array(array) or hasattr(array, "__cuda_array_interface__"):
        return True
    where = getattr(array, "__dlpack_device__", None)
    try:
        return where is not None and int(where()[0]) in _CUDA_DEVICE_TYPES
    except Exception:  # a device that DLPack does not know
        return False


def sendable_gpu_array(array: Any) -> Any:
    """An array of any library that lies on a GPU, as CuPy's, rows one behind the other.

    What its library still does to it is ordered before CuPy's current stream, where it says so by DLPack.

    :raises InputError: CuPy does not take it
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


def sized(dtype: Any, shape: tuple[int, ...]) -> int:
    """Bytes of an array."""
    return int(np.dtype(dtype).itemsize) * prod(shape)


_spare_streams: dict[int, list[Any]] = {}
_MOST_SPARE = 16


def take_stream(index: int) -> Any:
    """A stream of CuPy that does not wait for the null stream, and that nobody uses."""
    try:
        return _spare_streams.setdefault(index, []).pop()
    except IndexError:
        with driver.entered(index):
            return cupy().cuda.Stream(non_blocking=True)


def give_stream_back(index: int, stream: Any) -> None:
    """For the next; all that was put into it is done."""
    spare = _spare_streams.setdefault(index, [])
    if len(spare) < _MOST_SPARE:
        spare.append(stream)


def current_stream(index: int) -> Any:
    """What CuPy puts work of this thread into, on a GPU."""
    return cupy().cuda.get_current_stream(index)


def is_current(index: int) -> bool:
    """Whether a GPU is the one that CuPy puts work of this thread onto."""
    return bool(cupy().cuda.runtime.getDevice() == index)


def entered(index: int, stream: Any) -> AbstractContextManager[Any]:
    """A block in which a GPU and a stream are CuPy's current ones."""
    with ExitStack() as stack:
        stack.enter_context(driver.entered(index))
        stack.enter_context(stream)
        return stack.pop_all()
