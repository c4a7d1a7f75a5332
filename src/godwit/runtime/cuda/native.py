"""The calls of the CUDA driver that others wait for, by ctypes: what the bindings do around them is longer.

Kernels that meet wait for the one that is launched last, and a run ends when the host has seen all of them
end. Of four launches by the bindings, 33 µs on a host of H200 GPUs, 17 are the driver's, and of waiting for
four streams that are idle, 19 µs, 6 are (docs/performance.md).
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, NamedTuple

from godwit.errors import DeviceError
from godwit.runtime.cuda.libraries import bindings

ELSEWHERE = (201, 400)
"""Invalid context, invalid handle: what a thread may be told of a GPU that is not its current one."""

_COOPERATIVE = 2  # of CUlaunchAttributeID


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_uint64), ("value", ctypes.c_uint32), ("rest", ctypes.c_uint32 * 15))


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("blocks", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint32),
    )


_ALL_FIT = _Attribute(_COOPERATIVE, 1)


def launch_config(
    blocks: int, threads: int, shared_bytes: int, stream: int, *, cooperative: bool
) -> LaunchConfig:
    """A grid and a block of one dimension.

    :param stream: its handle
    """
    return LaunchConfig(
        (blocks, 1, 1), (threads, 1, 1), shared_bytes, stream, ctypes.pointer(_ALL_FIT), cooperative
    )


class Calls(NamedTuple):
    """Functions of the driver, which return the number of a ``CUresult``; they take ctypes objects.

    Both give the interpreter's lock away: a launch waits where very many are under way.

    :param launch: cuLaunchKernelEx
    :param synchronize: cuStreamSynchronize
    """

    launch: Any
    synchronize: Any


@lru_cache(maxsize=1)
def calls() -> Calls:
    """Of the driver that the bindings have loaded."""
    bindings()[0].cuDriverGetVersion()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        return Calls(driver.cuLaunchKernelEx, driver.cuStreamSynchronize)
    except (OSError, AttributeError) as error:
        raise DeviceError(f"the CUDA driver cannot be called: {error}") from error
