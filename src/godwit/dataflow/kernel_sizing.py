"""Grid sizes of users' kernels that share a GPU (Groute, section 4.5: KernelSizing).

Copy engines make the copies of links, so a user's kernel may occupy a whole GPU. Where several endpoints
share a GPU, or kernels that wait for each other run at once, each grid must leave room: blocks that do not
fit are not resident, and kernels that wait for them never end. CUDA computes the number of resident blocks
of any loaded kernel, whether it is CuPy's, Numba's or cuda.core's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from godwit.dataflow.endpoint import Endpoint
from godwit.dtypes import as_count, as_positive_number
from godwit.errors import InputError, shown
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.libraries import bindings
from godwit.runtime.registry import resolve_devices

_MOST_BYTES = 1 << 40
_MOST_ITEMS = 1 << 62
_BLOCK_SIZES = (256, 128, 512, 1024, 64)
"""Threads of a block that are tried by default; of equally good ones the first is taken."""


@dataclass(frozen=True)
class KernelSize:
    """Grid whose blocks are all resident at once; unpacks to blocks and threads.

    :param blocks: blocks of the grid
    :param threads: threads of each block
    :param resident_blocks: blocks that fit on the whole GPU
    """

    blocks: int
    threads: int
    resident_blocks: int

    def __iter__(self) -> Iterator[int]:
        return iter((self.blocks, self.threads))


def kernel_sizing(
    kernel: Any,
    device: Endpoint | str,
    *,
    items: int | None = None,
    threads: int | None = None,
    shared_bytes: int = 0,
    share: float | None = None,
) -> KernelSize:
    """Return a grid for a user's kernel that is to run beside other kernels.

    The kernel must use a grid-stride loop: the grid is no larger than what is resident at once.

    :param kernel: CuPy's RawKernel, or a compiled kernel of Numba or cuda.core
    :param device: an endpoint on a GPU, or the name of a GPU
    :param items: iterations of the grid-stride loop; None for a grid that fills the share
    :param threads: threads of a block; None for the size with most resident threads
    :param shared_bytes: dynamic shared memory of a block
    :param share: part of the GPU to use, in (0, 1]; by default 1 over the number of the context's
        endpoints on this GPU
    :raises InputError: not a kernel, a number out of range, or a block does not fit on a multiprocessor
    :raises DeviceError: there is no such GPU
    """
    index, endpoints = _gpu_and_endpoints(device)
    part = 1 / endpoints if share is None else as_positive_number(share, "share")
    if part > 1:
        raise InputError(f"share must be in (0, 1], got {shown(share)}")
    sizes = _BLOCK_SIZES if threads is None else (as_count(threads, "threads", 1, 1024),)
    shared_bytes = as_count(shared_bytes, "shared_bytes", 0, _MOST_BYTES)
    with driver.entered(index):
        loaded = driver.Kernel(index, _function(kernel), str(kernel))
        fitting = {size: _occupancy(loaded, size, shared_bytes) for size in sizes}
    size = max(sizes, key=lambda size: fitting[size] * size)
    if not fitting[size]:
        raise InputError(
            f"not one block of {size} threads with {shared_bytes:,} bytes of shared memory fits on a "
            f"multiprocessor of cuda:{index}; use fewer threads or less shared memory"
        )
    resident = fitting[size] * driver.properties(index).multiprocessors
    blocks = max(1, int(resident * part))
    if items is not None:
        blocks = max(1, min(blocks, -(-as_count(items, "items", 0, _MOST_ITEMS) // size)))
    return KernelSize(blocks, size, resident)


def _gpu_and_endpoints(device: Endpoint | str) -> tuple[int, int]:
    """Return the number of a GPU, and how many endpoints share it."""
    if isinstance(device, Endpoint):
        gpu = device.device
        devices = [endpoint.device for endpoint in device.context.endpoints]
    else:
        gpu = resolve_devices(device)[0]
        devices = [gpu]
    if gpu is None or gpu.kind != "cuda":
        raise InputError(f"kernels are sized for GPUs, got {device}; a CPU's threads need no grid")
    return int(gpu.name.partition(":")[2]), devices.count(gpu)


def _occupancy(kernel: driver.Kernel, threads: int, shared_bytes: int) -> int:
    """Return how many blocks of a kernel fit on a multiprocessor; 0 if it takes no blocks of this size."""
    cuda, _ = bindings()
    attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    outcome = cuda.cuFuncGetAttribute(attribute, kernel.function)
    if threads > int(driver.checked(outcome, f"the largest block of {kernel.name}")):
        return 0
    return kernel.occupancy(threads, shared_bytes)


def _function(kernel: Any) -> Any:
    """Return the driver's handle of a kernel; InputError if it is not one."""
    cuda, _ = bindings()
    inner = getattr(kernel, "kernel", kernel)  # CuPy's RawKernel has a Function once it is compiled
    pointer = getattr(inner, "ptr", None)
    if isinstance(pointer, int):
        return cuda.CUfunction(pointer)
    if hasattr(kernel, "overloads"):
        return _numba_function(kernel)
    handle = getattr(kernel, "handle", None)  # cuda.core: a CUkernel
    if handle is not None:
        outcome = cuda.cuKernelGetFunction(cuda.CUkernel(int(handle)))
        return driver.checked(outcome, f"the function of {kernel}")
    raise InputError(
        f"a kernel must be CuPy's RawKernel, or a compiled one of Numba or cuda.core, got {shown(kernel)}"
    )


def _numba_function(kernel: Any) -> Any:
    cuda, _ = bindings()
    compiled = list(kernel.overloads.values())
    if len(compiled) != 1:
        raise InputError(
            f"{getattr(kernel, '__name__', 'a kernel')} is compiled for {len(compiled)} signatures, not "
            "for one: give it one, as in @numba.cuda.jit(signature), or start it once"
        )
    function = compiled[0]._codelibrary.get_cufunc()
    handle = getattr(function, "handle", function)
    if isinstance(handle, cuda.CUkernel):
        return driver.checked(cuda.cuKernelGetFunction(handle), f"the function of {kernel}")
    return cuda.CUfunction(int(getattr(handle, "value", handle)))
