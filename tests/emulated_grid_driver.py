"""The CUDA runtime and driver, as far as runtime/cuda calls them, on emulated GPUs.

Methods have the names and the results of ``cuda.bindings``; there is no other description of them here.
"""

# ruff: noqa: N801, N802, N815

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

from emulated_grid_machine import PAGE_BYTES, EmulationError, Kernel, Machine

_MOST_SHARED_BYTES = 227 << 10  # of a block


class Error(IntEnum):
    """The codes that somebody looks at."""

    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorNotReady = 600
    cudaErrorPeerAccessAlreadyEnabled = 704
    cudaErrorCooperativeLaunchTooLarge = 720


class Result(IntEnum):
    """Of the driver."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720


class _CopyKind(IntEnum):
    cudaMemcpyDefault = 4


class _MemoryType(IntEnum):
    cudaMemoryTypeUnregistered = 0
    cudaMemoryTypeHost = 1
    cudaMemoryTypeDevice = 2


class _PeerAttribute(IntEnum):
    cudaDevP2PAttrPerformanceRank = 1
    cudaDevP2PAttrAccessSupported = 2
    cudaDevP2PAttrNativeAtomicSupported = 3


class _FunctionAttribute(IntEnum):
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


class _AllocationType(IntEnum):
    CU_MEM_ALLOCATION_TYPE_PINNED = 1


class _LocationType(IntEnum):
    CU_MEM_LOCATION_TYPE_DEVICE = 1


class _AccessFlags(IntEnum):
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3


class _Granularity(IntEnum):
    CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0


class _DeviceAttribute(IntEnum):
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102


class _OnDevice:
    """``CUmemAllocationProp`` and ``CUmemAccessDesc``: something about a GPU's memory."""

    def __init__(self) -> None:
        self.type: Any = None
        self.flags: Any = None
        self.location = SimpleNamespace(type=None, id=-1)


class Runtime:
    """``cuda.bindings.runtime``."""

    cudaError_t = Error
    cudaMemcpyKind = _CopyKind
    cudaMemoryType = _MemoryType
    cudaDeviceP2PAttr = _PeerAttribute

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._lock = threading.Lock()
        self._events: dict[int, float] = {}
        self._enabled: set[tuple[int, int]] = set()
        self._opened: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:
        raise EmulationError(f"the emulated CUDA runtime has no {name}")

    def cudaGetErrorName(self, status: Any) -> tuple[int, bytes]:
        return 0, Error(status).name.encode()

    def cudaGetErrorString(self, status: Any) -> tuple[int, bytes]:
        return 0, f"emulated error {int(status)}".encode()

    def cudaGetLastError(self) -> tuple[int]:
        return (0,)

    def cudaDriverGetVersion(self) -> tuple[int, int]:
        return 0, 13000

    def cudaGetDeviceCount(self) -> tuple[int, int]:
        return 0, self._machine.count

    def cudaGetDeviceProperties(self, index: int) -> tuple[int, Any]:
        class Properties:
            name = b"Emulated"
            major, minor = 9, 0
            multiProcessorCount = self._machine.multiprocessors
            totalGlobalMem = self._machine.memory_bytes
            sharedMemPerBlockOptin = _MOST_SHARED_BYTES
            cooperativeLaunch = 1

        return 0, Properties

    def cudaDeviceGetPCIBusId(self, _: int, index: int) -> tuple[int, bytes]:
        return 0, f"0000:{index:02x}:00.0\0".encode()

    def cudaMemGetInfo(self) -> tuple[int, int, int]:
        machine = self._machine
        return 0, machine.memory_bytes - machine.held_bytes(machine.device), machine.memory_bytes

    def cudaMalloc(self, nbytes: int) -> tuple[Error, int]:
        pointer = self._machine.allocate(self._machine.device, nbytes)
        return (Error.cudaSuccess if pointer else Error.cudaErrorMemoryAllocation), pointer

    def cudaFree(self, pointer: int) -> tuple[int]:
        if pointer:
            if self._opened.get(pointer):
                raise EmulationError(f"{pointer:#x} is freed while another process has it open")
            self._machine.free(pointer)
        return (0,)

    def cudaHostAlloc(self, nbytes: int, _: int) -> tuple[int, int]:
        return 0, self._machine.allocate(-1, nbytes)

    def cudaFreeHost(self, pointer: int) -> tuple[int]:
        self._machine.free(pointer)
        return (0,)

    def cudaHostRegister(self, pointer: int, nbytes: int, _: int) -> tuple[int]:
        self._machine.adopt(pointer, nbytes)
        return (0,)

    def cudaHostUnregister(self, pointer: int) -> tuple[int]:
        self._machine.free(pointer)
        return (0,)

    def cudaHostGetDevicePointer(self, pointer: int, _: int) -> tuple[int, int]:
        return 0, pointer

    def cudaPointerGetAttributes(self, pointer: int) -> tuple[int, Any]:
        return 0, SimpleNamespace(type=self._machine.kind_at(pointer))

    def cudaMemset(self, pointer: int, byte: int, nbytes: int) -> tuple[int]:
        self._machine.check_range(pointer, nbytes, "filling")
        ctypes.memset(pointer, byte, nbytes)
        return (0,)

    def cudaMemcpy(self, to: int, source: int, nbytes: int, _: Any) -> tuple[int]:
        self._machine.copy(to, source, nbytes)
        return (0,)

    def cudaMemcpyAsync(self, to: int, source: int, nbytes: int, _: Any, stream: int) -> tuple[int]:
        self._machine.put(stream, lambda: self._machine.copy(to, source, nbytes))
        return (0,)

    def copy_at_once(self, to: int, source: int, nbytes: int, _: int) -> int:
        """As :class:`godwit.runtime.cuda.driver.Calls` has it, but done when it returns."""
        with self._lock:
            self._machine.finish()
            self._machine.copy(to, source, nbytes)
        return 0

    def cudaMemcpyPeerAsync(
        self, to: int, there: int, source: int, here: int, nbytes: int, stream: int
    ) -> tuple[int]:
        return self.cudaMemcpyAsync(to, source, nbytes, None, stream)

    def cudaStreamCreateWithFlags(self, _: int) -> tuple[int, int]:
        return 0, self._machine.new_stream()

    def cudaStreamSynchronize(self, stream: int) -> tuple[int]:
        # If nothing is left in it, kernels in other streams may wait for one that is not started yet.
        if stream and not self._machine.is_idle(stream):
            self._machine.finish()
        return (0,)

    def synchronize(self, stream: Any) -> int:
        """As :class:`godwit.runtime.cuda.driver.Calls` has it."""
        return int(self.cudaStreamSynchronize(stream.value)[0])

    def cudaDeviceSynchronize(self) -> tuple[int]:
        self._machine.finish()
        return (0,)

    def cudaStreamQuery(self, stream: int) -> tuple[Error]:
        is_idle = self._machine.is_idle(stream)
        return (Error.cudaSuccess if is_idle else Error.cudaErrorNotReady,)

    def cudaStreamDestroy(self, stream: int) -> tuple[int]:
        self._machine.end_stream(stream)
        return (0,)

    def cudaStreamWaitEvent(self, *_: Any) -> tuple[int]:
        self._machine.finish()
        return (0,)

    def cudaEventCreate(self) -> tuple[int, int]:
        return 0, self._machine.new_number()

    def cudaEventCreateWithFlags(self, _: int) -> tuple[int, int]:
        return self.cudaEventCreate()

    def cudaEventRecord(self, event: int, stream: int) -> tuple[int]:
        self._events.pop(event, None)

        def record() -> None:
            self._events[event] = time.perf_counter()

        self._machine.put(stream, record)
        return (0,)

    def cudaEventQuery(self, event: int) -> tuple[Error]:
        is_reached = event in self._events
        return (Error.cudaSuccess if is_reached else Error.cudaErrorNotReady,)

    def cudaEventSynchronize(self, _: int) -> tuple[int]:
        self._machine.finish()
        return (0,)

    def cudaEventElapsedTime(self, begin: int, end: int) -> tuple[int, float]:
        return 0, (self._events[end] - self._events[begin]) * 1e3

    def cudaEventDestroy(self, event: int) -> tuple[int]:
        self._events.pop(event, None)
        return (0,)

    # What processes share: they are threads of this one (process_threads.py).

    cudaIpcMemLazyEnablePeerAccess = 1

    class cudaIpcMemHandle_t:
        def __init__(self) -> None:
            self.bytes = (ctypes.c_byte * 64)()

        def getPtr(self) -> int:
            return ctypes.addressof(self.bytes)

    def cudaIpcGetMemHandle(self, pointer: int) -> tuple[int, Any]:
        if not self._machine.holds(pointer):
            raise EmulationError(f"{pointer:#x} is shared and was not allocated, or is free")
        handle = self.cudaIpcMemHandle_t()
        ctypes.c_uint64.from_buffer(handle.bytes).value = pointer
        return 0, handle

    def cudaIpcOpenMemHandle(self, handle: Any, _: int) -> tuple[int, int]:
        pointer = ctypes.c_uint64.from_buffer(handle.bytes).value
        self._opened[pointer] = self._opened.get(pointer, 0) + 1
        return 0, pointer

    def cudaIpcCloseMemHandle(self, pointer: int) -> tuple[int]:
        if not self._opened.get(pointer):
            raise EmulationError(f"{pointer:#x} is closed and was not opened")
        self._opened[pointer] -= 1
        return (0,)

    def cudaDeviceCanAccessPeer(self, here: int, there: int) -> tuple[int, int]:
        return 0, int(self._machine.peers[here, there])

    def cudaDeviceGetP2PAttribute(self, kind: Any, here: int, there: int) -> tuple[int, int]:
        ranked = kind != _PeerAttribute.cudaDevP2PAttrPerformanceRank
        return 0, int(self._machine.peers[here, there]) if ranked else 0

    def cudaDeviceEnablePeerAccess(self, there: int, _: int) -> tuple[Error]:
        pair = (self._machine.device, there)
        if pair in self._enabled:
            return (Error.cudaErrorPeerAccessAlreadyEnabled,)
        self._enabled.add(pair)
        return (Error.cudaSuccess,)


class Driver:
    """``cuda.bindings.driver``.

    :param load: makes kernels, by name, of what the compiler left
    """

    CUresult = Result
    CUfunction_attribute = _FunctionAttribute
    CUdevice_attribute = _DeviceAttribute
    CUmemAllocationType = _AllocationType
    CUmemLocationType = _LocationType
    CUmemAccess_flags = _AccessFlags
    CUmemAllocationGranularity_flags = _Granularity
    CUmemAllocationProp = _OnDevice
    CUmemAccessDesc = _OnDevice

    def __init__(self, machine: Machine, load: Callable[[bytes], dict[str, Kernel]]) -> None:
        self._machine = machine
        self._load = load

    def __getattr__(self, name: str) -> Any:
        raise EmulationError(f"the emulated CUDA driver has no {name}")

    def cuGetErrorName(self, status: Result) -> tuple[int, bytes]:
        return 0, status.name.encode()

    def cuGetErrorString(self, status: Result) -> tuple[int, bytes]:
        return 0, status.name.lower().replace("_", " ").encode()

    def cuInit(self, _: int) -> tuple[int]:
        return (0,)

    def cuDeviceGet(self, index: int) -> tuple[Result, int]:
        is_there = 0 <= index < self._machine.count
        return Result.CUDA_SUCCESS if is_there else Result.CUDA_ERROR_INVALID_DEVICE, index

    def cuDevicePrimaryCtxRetain(self, index: int) -> tuple[int, int]:
        return 0, index + 1

    def cuCtxGetCurrent(self) -> tuple[int, int]:
        return 0, self._machine.device + 1

    def cuCtxSetCurrent(self, context: int) -> tuple[int]:
        self._machine.device = context - 1
        return (0,)

    def cuDeviceGetAttribute(self, _: Any, index: int) -> tuple[Result, int]:
        return Result.CUDA_SUCCESS, int(self._machine.maps_memory)

    def cuMemGetAllocationGranularity(self, _: Any, kind: Any) -> tuple[Result, int]:
        return Result.CUDA_SUCCESS, PAGE_BYTES

    def cuMemAddressReserve(self, nbytes: int, *_: int) -> tuple[Result, int]:
        return Result.CUDA_SUCCESS, self._machine.reserve(nbytes)

    def cuMemCreate(self, nbytes: int, kind: Any, _: int) -> tuple[Result, int]:
        pages = self._machine.create_pages(kind.location.id, nbytes)
        return (Result.CUDA_SUCCESS if pages else Result.CUDA_ERROR_OUT_OF_MEMORY), pages

    def cuMemMap(self, to: int, nbytes: int, _: int, pages: int, __: int) -> tuple[Result]:
        self._machine.map_pages(to, nbytes, pages)
        return (Result.CUDA_SUCCESS,)

    def cuMemRelease(self, pages: int) -> tuple[Result]:
        self._machine.release_pages(pages)
        return (Result.CUDA_SUCCESS,)

    def cuMemSetAccess(self, to: int, nbytes: int, rights: Any, count: int) -> tuple[Result]:
        self._machine.require_access(to, nbytes, [one.location.id for one in rights[:count]])
        return (Result.CUDA_SUCCESS,)

    def cuMemUnmap(self, begin: int, nbytes: int) -> tuple[Result]:
        was_mapped = self._machine.unmap(begin, nbytes)
        return (Result.CUDA_SUCCESS if was_mapped else Result.CUDA_ERROR_INVALID_VALUE,)

    def cuMemAddressFree(self, begin: int, nbytes: int) -> tuple[Result]:
        self._machine.unreserve(begin, nbytes)
        return (Result.CUDA_SUCCESS,)

    def cuModuleLoadData(self, code: bytes) -> tuple[int, dict[str, Kernel]]:
        self._machine.refuse_while_running("loading")
        return 0, self._load(code)

    def cuModuleGetFunction(self, module: dict[str, Kernel], name: bytes) -> tuple[int, Kernel]:
        return 0, module[name.decode()]

    def cuFuncSetAttribute(self, kernel: Kernel, kind: Any, value: int) -> tuple[Result]:
        if value > _MOST_SHARED_BYTES:
            return (Result.CUDA_ERROR_INVALID_VALUE,)
        kernel.shared_bytes = value
        return (Result.CUDA_SUCCESS,)

    def cuFuncGetAttribute(self, *_: Any) -> tuple[int, int]:
        return 0, 32

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, *_: Any) -> tuple[int, int]:
        return 0, self._machine.blocks_per_multiprocessor

    def launch(self, config: Any, kernel: Any, addresses: Any, _: None) -> Result:
        """As :class:`godwit.runtime.cuda.driver.Calls` has it: takes ctypes objects."""
        given = config._obj
        error = self._machine.launch(
            ctypes.cast(kernel, ctypes.py_object).value, given.stream, ctypes.addressof(addresses),
            given.blocks[0], given.threads[0], given.shared_bytes,
            cooperative=bool(given.attribute_count),
        )  # fmt: skip
        return Result[error or "CUDA_SUCCESS"]
