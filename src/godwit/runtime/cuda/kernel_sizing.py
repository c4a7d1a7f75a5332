"""How many blocks of how many threads of a user's kernel are resident on a GPU at once.

A kernel that is loaded is asked by CUDA's occupancy functions, whatever made it: CuPy, Numba, cuda.core or
the driver. Where only its resources are known, the rules of CUDA's programming guide are followed:
registers are handed out to a warp in units of 256, and each block has some shared memory of the system's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from godwit.errors import InputError, shown
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.libraries import bindings

_THREADS = (256, 128, 512, 1024, 64)
"""What is tried where the user has no wish; the first of the best."""
_REGISTER_UNIT = 256
_WARP = 32


@dataclass(frozen=True)
class Limits:
    """Of one multiprocessor.

    :param multiprocessors: that the GPU has
    :param system_shared_bytes: that each block takes besides its own
    """

    multiprocessors: int
    threads: int
    blocks: int
    registers: int
    shared_bytes: int
    system_shared_bytes: int


def limits_of(index: int) -> Limits:
    """Those of a GPU."""
    _, runtime = bindings()
    names = runtime.cudaDeviceAttr

    def ask(name: str) -> int:
        outcome = runtime.cudaDeviceGetAttribute(getattr(names, name), index)
        return int(driver.checked(outcome, f"asking cuda:{index} for {name}"))

    return Limits(
        driver.properties(index).multiprocessors,
        ask("cudaDevAttrMaxThreadsPerMultiProcessor"),
        ask("cudaDevAttrMaxBlocksPerMultiprocessor"),
        ask("cudaDevAttrMaxRegistersPerMultiprocessor"),
        ask("cudaDevAttrMaxSharedMemoryPerMultiprocessor"),
        ask("cudaDevAttrReservedSharedMemoryPerBlock"),
    )


def resident_blocks(limits: Limits, registers: int, threads: int, shared_bytes: int) -> int:
    """Blocks on a multiprocessor, by a kernel's resources; 0 if not one fits."""
    warps = -(-threads // _WARP)
    by_threads = limits.threads // (warps * _WARP)
    a_warp = -(-max(1, registers) * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    by_registers = limits.registers // (a_warp * warps)
    by_shared = limits.shared_bytes // max(1, shared_bytes + limits.system_shared_bytes)
    return min(limits.blocks, by_threads, by_registers, by_shared)


def size_of_kernel(
    index: int, kernel: Any, threads: int | None, shared_bytes: int
) -> tuple[int, int]:
    """Blocks that the whole GPU has room for at once, and threads of each.

    :param kernel: of CuPy (RawKernel, Function), Numba, cuda.core, the driver's own, or the number of its
        registers
    :raises InputError: none of these, or not one block fits
    """
    with driver.entered(index):
        limits = limits_of(index)
        ask = _question(index, kernel, limits)
        choices = _THREADS if threads is None else (threads,)
        most, best = max(
            ((ask(choice, shared_bytes) * choice, -place) for place, choice in enumerate(choices)),
        )
        chosen = choices[-best]
        if most == 0:
            raise InputError(
                f"not one block of {chosen} threads with {shared_bytes:,} bytes of shared memory fits on a "
                f"multiprocessor of cuda:{index}; use fewer threads or less shared memory"
            )
        return most // chosen * limits.multiprocessors, chosen


def _question(index: int, kernel: Any, limits: Limits) -> Any:
    """``(threads, shared bytes)`` to blocks on a multiprocessor."""
    if isinstance(kernel, int):
        if not 1 <= kernel <= 255:
            raise InputError(f"a kernel has 1 to 255 registers a thread, got {kernel}")
        return lambda threads, shared: resident_blocks(limits, kernel, threads, shared)
    cuda, _ = bindings()
    function = _function(kernel)

    def ask(threads: int, shared: int) -> int:
        attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        most = driver.checked(cuda.cuFuncGetAttribute(attribute, function), f"asking {kernel}")
        if threads > int(most):
            return 0
        outcome = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, shared)
        return int(driver.checked(outcome, f"the occupancy of a kernel on cuda:{index}"))

    return ask


def _function(kernel: Any) -> Any:
    """The driver's handle of a kernel."""
    cuda, _ = bindings()
    if isinstance(kernel, cuda.CUfunction):
        return kernel
    if isinstance(kernel, driver.Kernel):
        return kernel.function
    inner = getattr(kernel, "kernel", kernel)  # CuPy's RawKernel has a Function, once compiled
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
        "a kernel must be CuPy's RawKernel, a compiled one of Numba or cuda.core, or the number of its "
        f"registers, got {shown(kernel)}"
    )


def _numba_function(kernel: Any) -> Any:
    cuda, _ = bindings()
    compiled = list(kernel.overloads.values())
    if len(compiled) != 1:
        raise InputError(
            f"{getattr(kernel, '__name__', 'a kernel')} is compiled for {len(compiled)} signatures, not "
            "for one: give it one, as in @numba.cuda.jit(signature), or start it once"
        )
    found = compiled[0]._codelibrary.get_cufunc()
    handle = getattr(found, "handle", found)
    if isinstance(handle, cuda.CUkernel):
        return driver.checked(cuda.cuKernelGetFunction(handle), f"the function of {kernel}")
    return cuda.CUfunction(int(getattr(handle, "value", handle)))
