"""Arrays of other libraries on the host, and results on a GPU.

Arrays that the host can read are shared, not copied: those of NumPy, and with ``__array__`` (PyTorch, JAX,
pandas) or ``__dlpack__``. Arrays on a GPU (as DLPack says, or ``__cuda_array_interface__``) are copied
once, by their own library if it can, else by CuPy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from godwit.errors import DeviceError, FileError, FormatError, InputError

Array = np.ndarray[Any, np.dtype[Any]]

# DLPack's numbers of the devices whose memory the host can read: its own, and pinned by CUDA or ROCm.
_HOST_DEVICE_TYPES = (1, 3, 11)

MASKED = "a masked array would lose its mask; array.compressed() has what is valid"

_CUPY_ADVICE = 'pip install ".[cuda]" (".[cuda12]" where the driver knows CUDA 12 only)'


def arrow_array(values: Array) -> Any:
    """Return numbers as an Arrow array, which shares their memory.

    So does ``pyarrow.array``, which imports pandas first, where it is installed: that takes 0.2 s.
    """
    import pyarrow as pa

    contiguous = np.ascontiguousarray(values)
    buffers = [None, pa.py_buffer(contiguous)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def arrow_text(text: str) -> Any:
    """Return a text as an Arrow scalar, of type large_string; without importing pandas."""
    import pyarrow as pa

    encoded = text.encode()
    ends = np.array([0, len(encoded)], np.int64)
    return pa.LargeStringArray.from_buffers(1, pa.py_buffer(ends), pa.py_buffer(encoded))[0]


def numpy_array(column: Any) -> Array:
    """Return an Arrow array of numbers as a read-only NumPy array, which shares its memory.

    So does ``to_numpy``, which imports pandas as ``pyarrow.array`` does; it converts what has nulls.
    """
    import pyarrow as pa

    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if column.null_count or not is_number or len(column) == 0:
        converted: Array = column.to_numpy(zero_copy_only=False)
        return converted
    dtype = np.dtype(column.type.to_pandas_dtype())
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)


def host_array(values: Any) -> Array:
    """Return the values as a NumPy array, shared where the host can read them.

    :raises TypeError: they are no array
    :raises ValueError: they are no array, such as a list of lists of several lengths
    :raises InputError: a masked array, which would lose its mask
    :raises DeviceError: they lie on a GPU, and nothing installed copies them to the host
    """
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(MASKED)
    if isinstance(values, np.ndarray):
        return np.asarray(values)
    if hasattr(values, "tocsr"):  # of which NumPy makes an array of one object
        raise TypeError(f"a {type(values).__name__} is sparse; its toarray() is an array")
    try:
        return _shared_or_copied(values)
    except (TypeError, ValueError, DeviceError, MemoryError):
        raise
    except Exception as error:  # methods of a foreign library raise anything
        raise TypeError(f"{type(error).__name__}: {error}") from error


def _shared_or_copied(values: Any) -> Array:
    if getattr(values, "requires_grad", False):  # PyTorch hands out no others
        values = values.detach()
    if _lies_on_gpu(values):
        return _copied_to_host(values)
    if hasattr(values, "__dlpack__") and not hasattr(values, "__array__"):
        return np.from_dlpack(values)
    return np.asarray(values)


def mapped_array(path: str | os.PathLike[str]) -> np.memmap[Any, np.dtype[Any]]:
    """Return the array of a .npy file, mapped into memory.

    :raises FileError: it cannot be read
    :raises FormatError: it holds no array, or not all of it
    """
    from tokenize import TokenError  # NumPy parses the header as Python

    try:
        return np.lib.format.open_memmap(path, mode="r")
    except OSError as error:
        raise FileError(f"cannot read {os.fspath(path)}: {error.strerror or error}") from error
    except (ValueError, SyntaxError, TokenError, EOFError) as error:
        why = f"not an array in NumPy's format (.npy): {error}"
        if "mmap length" in str(error):
            why = (
                f"cut short: its array is longer than the file, of {os.path.getsize(path):,} bytes"
            )
        raise FormatError(os.fspath(path), why) from error


def lies_on_gpu(values: Any) -> bool:
    """Return True for an array that the host cannot read."""
    try:
        return not isinstance(values, np.ndarray) and _lies_on_gpu(values)
    except Exception:  # methods of a foreign library raise anything
        return False


def _lies_on_gpu(values: Any) -> bool:
    if hasattr(values, "__cuda_array_interface__"):
        return True
    try:
        where = getattr(values, "__dlpack_device__", None)
        return where is not None and int(where()[0]) not in _HOST_DEVICE_TYPES
    except (BufferError, RuntimeError, ValueError):  # a device that DLPack does not know
        return False


def _copied_to_host(values: Any) -> Array:
    try:
        if hasattr(values, "cpu"):  # PyTorch
            return np.asarray(values.cpu())
        if hasattr(values, "__array__"):  # JAX and Numba copy; CuPy and cuDF refuse
            return np.asarray(values)
    except TypeError:
        pass
    cupy = _cupy(f"a {type(values).__module__}.{type(values).__name__} lies on a GPU")
    try:
        shared = cupy.from_dlpack if hasattr(values, "__dlpack__") else cupy.asarray
        copied: Array = cupy.asnumpy(shared(values))
    except (RuntimeError, BufferError) as error:  # CuPy's errors of CUDA are of the first kind
        raise DeviceError(f"an array on a GPU could not be copied to the host: {error}") from error
    return copied


def gpu_array(values: Any) -> Any:
    """Return an array on a GPU as CuPy's, shared.

    :raises DeviceError: CuPy is not installed, or cannot share it
    """
    cupy = _cupy(f"a {type(values).__module__}.{type(values).__name__} lies on a GPU")
    try:
        return (cupy.from_dlpack if hasattr(values, "__dlpack__") else cupy.asarray)(values)
    except (RuntimeError, BufferError, TypeError, ValueError) as error:
        raise DeviceError(f"an array on a GPU could not be shared: {error}") from error


def _cupy(why: str) -> Any:
    try:
        import cupy
    except ImportError:
        raise DeviceError(f"{why}, which needs CuPy: {_CUPY_ADVICE}") from None
    return cupy


@contextmanager
def _on_gpu(index: int) -> Iterator[None]:
    """Make a GPU CuPy's current one for the block.

    If another one was current, the block ends when the work in the GPU's current stream is done: what the
    caller starts on the other one would not wait for it.
    """
    import cupy

    is_current = cupy.cuda.runtime.getDevice() == index
    with cupy.cuda.Device(index):
        yield
        if not is_current:
            cupy.cuda.get_current_stream().synchronize()


def computed_in_place(array: Any, function: Callable[[Any], Any]) -> Any:
    """Return what a function computes of an array, on the host or on the GPU where it lies."""
    if isinstance(array, np.ndarray):
        return function(array)
    with _on_gpu(array.device.id):
        return function(array)


def set_items(array: Any, indexes: Array, value: Any) -> None:
    """Set items of an array on the host, or on the GPU where it lies."""
    if isinstance(array, np.ndarray):
        array[indexes] = value
        return
    with _on_gpu(array.device.id):
        array[indexes] = value


@dataclass(frozen=True)
class ResultLocation:
    """Memory that the arrays of a result live in.

    :param gpu: the number of a GPU, whose arrays are CuPy's; None for NumPy on the host
    """

    gpu: int | None = None

    @classmethod
    def named(cls, name: Any) -> ResultLocation:
        """Return the location of ``results=``: ``"host"``, ``"cuda"`` (GPU 0) or ``"cuda:1"``.

        :raises InputError: none of these
        :raises DeviceError: there is no such GPU, or no CuPy
        """
        if not isinstance(name, str):
            raise _unknown_location(name)
        return _located(name, id(sys.modules.get("cupy")))

    def place(self, array: Any) -> Any:
        """Return an array here: itself if it is here already, else a copy on the GPU."""
        if self.gpu is None or not isinstance(array, np.ndarray):
            return array
        import cupy

        try:
            with _on_gpu(self.gpu):  # a copy from memory of the host may return before it is done
                return cupy.asarray(array)
        except (RuntimeError, MemoryError) as error:
            raise DeviceError(
                f"a result of {array.nbytes:,} bytes could not be copied to GPU {self.gpu}: {error}"
            ) from error

    def empty(self, count: int, dtype: Any) -> Any:
        """Return a new array with undefined content; on a GPU, no pending work uses its memory.

        :raises DeviceError: the GPU has no room for it
        """
        if self.gpu is None:
            return np.empty(count, dtype)
        import cupy

        try:
            if cupy.cuda.runtime.getDevice() != self.gpu:
                with cupy.cuda.Device(self.gpu):
                    return self.empty(count, dtype)
            array = cupy.ndarray(count, dtype)
            # CuPy's pool hands out memory that work in its stream may still be using.
            stream = cupy.cuda.get_current_stream()
            if not stream.done:
                stream.synchronize()
            return array
        except (RuntimeError, MemoryError) as error:
            nbytes = count * np.dtype(dtype).itemsize
            raise DeviceError(
                f"a result of {nbytes:,} bytes could not be placed on GPU {self.gpu}: {error}"
            ) from error


@lru_cache(maxsize=64)
def _located(name: str, _cupy_id: int) -> ResultLocation:
    """Return the location of a name: see :meth:`ResultLocation.named`.

    :param _cupy_id: identity of the imported module, since another one may find other GPUs
    """
    if name == "host":
        return ResultLocation()
    kind, colon, number = name.partition(":")
    number = number if colon else "0"
    if kind != "cuda" or not (number.isascii() and number.isdecimal() and len(number) < 6):
        raise _unknown_location(name)
    cupy = _cupy(f"results={name!r} makes arrays on a GPU")
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except RuntimeError as error:  # no driver, or no GPU
        raise DeviceError(f"results={name!r} needs a GPU ({error}); 'host' works") from error
    if int(number) >= count:
        there = ", ".join(["'host'", *(f"'cuda:{index}'" for index in range(count))])
        raise DeviceError(f"there is no GPU for results={name!r}; there are {there}")
    return ResultLocation(int(number))


def _unknown_location(name: Any) -> InputError:
    given = " ".join(repr(name).split())
    return InputError(f"results must be 'host', 'cuda' or such as 'cuda:1', got {given:.80}")
