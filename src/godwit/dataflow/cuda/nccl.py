"""NCCL's collectives, by CuPy: one process, one communicator per GPU.

Creating communicators takes 0.84 s for two H200, so those of each list of GPUs are kept until the process
ends. NCCL's environment variables (NCCL_NVLS_ENABLE and others) stay as they are.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from godwit.errors import DeviceError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.gpu_arrays import address_of

_TYPES = {
    "int8": "INT8",
    "uint8": "UINT8",
    "int32": "INT32",
    "uint32": "UINT32",
    "int64": "INT64",
    "uint64": "UINT64",
    "float16": "FLOAT16",
    "float32": "FLOAT32",
    "float64": "FLOAT64",
}
_OPERATORS = {"add": "SUM", "min": "MIN", "max": "MAX"}
_making = threading.Lock()


@lru_cache(maxsize=1)
def is_there() -> bool:
    """Return True if CuPy has NCCL."""
    try:
        return bool(importlib.import_module("cupy.cuda.nccl").available)
    except Exception:  # no CuPy, or one whose NCCL does not load
        return False


def takes(dtype: Any) -> bool:
    """Return True if NCCL has a dtype."""
    return str(dtype) in _TYPES


_groups: dict[tuple[int, ...], Group] = {}


def group(indexes: tuple[int, ...]) -> Group:
    """Return the communicators of some GPUs, created at the first call."""
    with _making:
        if indexes not in _groups:
            _groups[indexes] = Group(indexes)
        return _groups[indexes]


class Group:
    """Communicators of some GPUs, which run one collective at a time."""

    def __init__(self, indexes: tuple[int, ...]) -> None:
        self._nccl = importlib.import_module("cupy.cuda.nccl")
        self._indexes = indexes
        self._lock = threading.Lock()
        with driver.current_kept():
            try:
                self._members = self._nccl.NcclCommunicator.initAll(list(indexes))
            except Exception as error:  # NcclError
                raise DeviceError(f"NCCL cannot be set up on GPUs {indexes}: {error}") from error
            self._streams = [Stream(index) for index in indexes]

    def all_reduce(self, arrays: Sequence[Any], outs: Sequence[Any], operator: str) -> None:
        """Combine arrays, one per GPU, into an array on each; done on return."""
        settings = arrays[0].size, self._type(arrays[0]), self._operator(operator)
        self._run("allReduce", arrays, outs, *settings)

    def reduce(self, arrays: Sequence[Any], out: Any, operator: str, root: int) -> None:
        """Combine arrays, one per GPU, into an array on GPU ``root``; done on return."""
        settings = arrays[0].size, self._type(arrays[0]), self._operator(operator), root
        self._run("reduce", arrays, [out] * len(arrays), *settings)

    def broadcast(self, array: Any, outs: Sequence[Any], root: int) -> None:
        """Copy an array of GPU ``root``, which is ``outs[root]``, to the others; done on return."""
        self._run("broadcast", outs, outs, array.nbytes, self._nccl.NCCL_UINT8, root)

    def _type(self, array: Any) -> int:
        return int(getattr(self._nccl, f"NCCL_{_TYPES[str(array.dtype)]}"))

    def _operator(self, operator: str) -> int:
        return int(getattr(self._nccl, f"NCCL_{_OPERATORS[operator]}"))

    def _run(self, name: str, sources: Sequence[Any], outs: Sequence[Any], *settings: int) -> None:
        with self._lock, driver.current_kept():
            try:
                self._nccl.groupStart()
                for rank, member in enumerate(self._members):
                    driver.use(self._indexes[rank])
                    pointers = address_of(sources[rank]), address_of(outs[rank])
                    getattr(member, name)(*pointers, *settings, self._streams[rank].handle)
                self._nccl.groupEnd()
            except DeviceError:
                raise
            except Exception as error:  # NcclError
                raise DeviceError(f"NCCL failed on GPUs {self._indexes}: {error}") from error
            for stream in self._streams:
                stream.synchronize()
