"""Memory of a GPU that other processes of the machine use: exported as bytes, which they open.

Only plain allocations (:class:`godwit.runtime.cuda.memory.Buffer`) can be exported. An opened address stays
valid until it is closed, if the owner does not free the memory before.
"""

from __future__ import annotations

import ctypes

from godwit.runtime.cuda.driver import checked, use
from godwit.runtime.cuda.libraries import bindings
from godwit.runtime.cuda.memory import Buffer

HANDLE_BYTES = 64


def exported(buffer: Buffer) -> bytes:
    """Return a handle of a buffer, for :func:`opened` in another process.

    :raises DeviceError: CUDA refuses it
    """
    use(buffer.index)
    _, runtime = bindings()
    outcome = runtime.cudaIpcGetMemHandle(buffer.pointer)
    handle = checked(outcome, f"sharing memory of cuda:{buffer.index} with other processes")
    return ctypes.string_at(handle.getPtr(), HANDLE_BYTES)


def opened(index: int, handle: bytes) -> int:
    """Return the address, on a GPU of this process, of memory that another process has exported.

    :raises DeviceError: CUDA refuses it: the GPUs are no peers, or the processes are of different machines
    """
    use(index)
    _, runtime = bindings()
    native = runtime.cudaIpcMemHandle_t()
    ctypes.memmove(native.getPtr(), handle, HANDLE_BYTES)
    outcome = runtime.cudaIpcOpenMemHandle(native, runtime.cudaIpcMemLazyEnablePeerAccess)
    return int(checked(outcome, f"opening another process' memory on cuda:{index}"))


def close_opened(index: int, address: int) -> None:
    """Unmap memory of another process. Errors of earlier work on the GPU are not raised here."""
    use(index)
    _, runtime = bindings()
    runtime.cudaIpcCloseMemHandle(address)
