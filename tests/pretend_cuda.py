"""GPUs that only have memory, streams and events: for what orders copies, and no GPU is needed for.

The runtime's calls that the library makes are answered here. A stream is a thread that does what was put
into it, in order, each after a random while: whatever is not ordered by an event happens in any order. An
allocation is an array; copies from or to memory that was never allocated, was freed, or that a copy engine
does not reach are noted as ``faults``, and freed memory is overwritten. CuPy is a module of a few names.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import gc
import queue
import random
import sys
import threading
import time
import types
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from godwit.dataflow.cuda import lanes, segments
from godwit.runtime.cuda import driver, events, gpu_arrays, libraries, memory
from godwit.runtime.cuda.driver import GpuProperties
from godwit.runtime.cuda.memory import KeptMemory
from godwit.runtime.cuda.transfer import staging
from native_calls import native_calls, no_quick_calls
from pretend_cupy import Array, Memory, Pointer, cupy_module

_POISON = 0xDD


Error = enum.IntEnum(
    "Error",
    {
        "cudaSuccess": 0,
        "cudaErrorInvalidValue": 1,
        "cudaErrorMemoryAllocation": 2,
        "cudaErrorNotReady": 600,
        "cudaErrorIllegalAddress": 700,
        "cudaErrorPeerAccessAlreadyEnabled": 704,
    },
)
MemoryType = enum.IntEnum(
    "MemoryType",
    {
        "cudaMemoryTypeUnregistered": 0,
        "cudaMemoryTypeHost": 1,
        "cudaMemoryTypeDevice": 2,
    },
)
CopyKind = enum.IntEnum("CopyKind", {"cudaMemcpyDefault": 4})
OK = Error.cudaSuccess
_OF_LOST_GPUS = ("Memcpy", "Event", "Stream", "Malloc", "Free", "HostAlloc", "DeviceSynchronize")
"""Calls of the runtime that fail from then on, by their beginnings."""


class PretendStream:
    """A thread that does one thing after the other."""

    def __init__(self, machine: Machine, index: int, number: int) -> None:
        self.index = index
        self._machine = machine
        self._random = random.Random(machine.seed * 7919 + number)
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._put = self._done = 0
        self._thread = threading.Thread(target=self._work, name="pretended stream", daemon=True)
        self._thread.start()

    def put(self, action: Callable[[], None]) -> None:
        with self._machine.lock:
            self._put += 1
        self._queue.put(action)

    @property
    def is_idle(self) -> bool:
        return self._done == self._put

    def _work(self) -> None:
        while (action := self._queue.get()) is not None:
            if self._random.random() < 0.5:
                time.sleep(self._random.random() * self._machine.delay_s)
            try:
                action()
            except Exception as error:
                self._machine.faults.append(repr(error))
            self._done += 1

    def drain(self) -> None:
        done = threading.Event()
        self.put(done.set)
        assert done.wait(60)

    def end(self) -> None:
        self._queue.put(None)
        self._thread.join(60)


class PretendEvent:
    """When it was recorded last, and whether that has been reached."""

    def __init__(self, index: int, number: int) -> None:
        self.index = index
        self.number = number
        self.state: threading.Event | None = None
        self.at_ms = 0.0

    def __int__(self) -> int:
        return self.number


class Machine:
    """What there is.

    :param access: which GPU reaches which other
    :param delay_s: what a stream does waits up to so long
    :ivar faults: what should not have happened
    :ivar calls: of the runtime, by name
    :ivar copies_left: until the GPUs are lost, when every call fails; None if they are not going to be
    """

    def __init__(self, access: Any, seed: int, delay_s: float) -> None:
        self.access = np.asarray(access, bool)
        self.seed = seed
        self.delay_s = delay_s
        self.faults: list[str] = []
        self.calls: Counter[str] = Counter()
        self.lock = threading.RLock()
        self.held: dict[int, tuple[int, int, Any]] = {}  # address: GPU or -1, bytes, memory
        self.freed: list[Any] = []  # so that no address comes twice
        self.streams: dict[int, PretendStream] = {}
        self.events: dict[int, PretendEvent] = {}
        self._numbers = iter(range(16, 1 << 30))
        self.thread = threading.local()  # the GPU that each has entered
        self.copies = 0
        self.copies_left: int | None = None

    @property
    def current(self) -> int:
        """The calling thread's GPU, the first if it has entered none."""
        return getattr(self.thread, "gpu", None) or 0

    def is_lost(self, call: str) -> bool:
        """Whether a call of the runtime fails."""
        if self.copies_left is None or not call[4:].startswith(_OF_LOST_GPUS):
            return False
        if call.startswith("cudaMemcpy") and self.copies_left:
            self.copies_left -= 1
            return False
        return self.copies_left == 0

    # Memory.

    def allocate(self, index: int, nbytes: int) -> int:
        memory = np.full(nbytes + 512, 0xA5, np.uint8)
        address = -(-memory.ctypes.data // 512) * 512
        with self.lock:
            self.held[address] = (index, nbytes, memory)
        return address

    def free(self, address: int) -> None:
        with self.lock:
            _, nbytes, memory = self.held.pop(address)
            begin = address - memory.ctypes.data
            memory[begin : begin + nbytes] = _POISON
            self.freed.append(memory)

    def home(self, address: int, nbytes: int = 1) -> int | None:
        """The GPU, -1 for page-locked memory, None for other."""
        with self.lock:
            for base, (index, size, _) in self.held.items():
                if base <= address and address + nbytes <= base + size:
                    return index
        return None

    def bytes_on(self, index: int) -> int:
        return sum(size for gpu, size, _ in self.held.values() if gpu == index)

    # Streams.

    def drain(self) -> None:
        for stream in list(self.streams.values()):
            stream.drain()

    def stream(self, number: int, index: int | None = None) -> PretendStream:
        number = int(number)
        if number in (0, 1, 2):
            index = self.current if index is None else index
            number = -1 - index
            with self.lock:
                if number not in self.streams:
                    self.streams[number] = PretendStream(self, index, -number)
        return self.streams[number]

    def new_stream(self, index: int) -> int:
        number = next(self._numbers)
        self.streams[number] = PretendStream(self, index, number)
        return number

    def new_event(self, index: int) -> PretendEvent:
        number = next(self._numbers)
        self.events[number] = PretendEvent(index, number)
        return self.events[number]

    def launch(self, stream: Any, kernel: Callable[[], None]) -> None:
        """A kernel."""
        self.stream(events.native_stream(stream)).put(kernel)

    def copy(self, to: int, origin: int, nbytes: int, stream: Any, ends: Any = None) -> None:
        found = self.stream(stream)
        target, source = homes = self.home(to, nbytes), self.home(origin, nbytes)
        if target is None or source is None or (ends is not None and ends != homes):
            self.faults.append(f"copy of {nbytes} bytes from {source} to {target}, not {ends}")
        elif min(target, source) >= 0 and not self.access[target, source]:
            self.faults.append(f"copy between {homes}, which are no peers")
        elif found.index not in homes:
            self.faults.append(f"copy between {homes} in a stream of {found.index}")
        self.copies += 1

        def move() -> None:
            if (self.home(to, nbytes), self.home(origin, nbytes)) != homes:
                raise AssertionError("memory was freed before it was copied")
            half = nbytes // 2  # not at once: who looks too early sees it
            ctypes.memmove(to, origin, half)
            time.sleep(self.delay_s / 10)
            ctypes.memmove(to + half, origin + half, nbytes - half)

        found.put(move)

    def end(self) -> None:
        for stream in list(self.streams.values()):
            stream.end()


def _runtime(machine: Machine) -> Any:
    """What the library calls of cuda.bindings.runtime."""

    def malloc(nbytes: int) -> Any:
        return OK, machine.allocate(machine.current, nbytes)

    def free(address: int) -> Any:
        if address not in machine.held:  # of a machine that is gone
            return (Error.cudaErrorInvalidValue,)
        machine.free(int(address))
        return (OK,)

    def attributes(address: int) -> Any:
        home = machine.home(address)
        kinds = MemoryType
        kind = (
            kinds.cudaMemoryTypeUnregistered
            if home is None
            else kinds.cudaMemoryTypeHost
            if home < 0
            else kinds.cudaMemoryTypeDevice
        )
        return OK, types.SimpleNamespace(type=kind)

    def copy(to: int, origin: int, nbytes: int, kind: Any, stream: Any) -> Any:
        machine.copy(to, origin, nbytes, stream)
        return (OK,)

    def copy_peer(to: int, there: int, origin: int, here: int, nbytes: int, stream: Any) -> Any:
        machine.copy(to, origin, nbytes, stream, (there, here))
        return (OK,)

    def record(event: PretendEvent, stream: Any) -> Any:
        found = machine.stream(stream)
        if found.index != event.index:
            return (Error.cudaErrorInvalidValue,)
        state = threading.Event()

        def reach() -> None:
            event.at_ms = time.perf_counter() * 1e3
            state.set()

        event.state = state
        found.put(reach)
        return (OK,)

    def wait_event(stream: Any, event: PretendEvent, flags: int) -> Any:
        state = event.state
        if state is not None:
            machine.stream(stream).put(lambda: _await(state))
        return (OK,)

    def query(event: PretendEvent) -> Any:
        reached = event.state is None or event.state.is_set()
        return (OK if reached else Error.cudaErrorNotReady,)

    def synchronize(event: PretendEvent) -> Any:
        if event.state is not None:
            _await(event.state)
        return (OK,)

    def destroy_stream(stream: Any) -> Any:
        machine.streams.pop(int(stream)).end()
        return (OK,)

    def sync_stream(stream: Any) -> Any:
        machine.stream(stream).drain()
        return (OK,)

    def query_stream(stream: Any) -> Any:
        return (OK if machine.stream(stream).is_idle else Error.cudaErrorNotReady,)

    def register(address: int, nbytes: int, flags: int) -> Any:
        machine.held[address] = (-1, nbytes, None)
        return (OK,)

    def unregister(address: int) -> Any:
        del machine.held[address]
        return (OK,)

    def pinned(nbytes: int, flags: int) -> Any:
        return OK, machine.allocate(-1, nbytes)

    def sync_device() -> Any:
        for stream in list(machine.streams.values()):
            if stream.index == machine.current:
                stream.drain()
        return (OK,)

    def new_event(*_: int) -> Any:
        return OK, machine.new_event(machine.current)

    def elapsed(begin: PretendEvent, end: PretendEvent) -> Any:
        return OK, end.at_ms - begin.at_ms

    return types.SimpleNamespace(
        cudaError_t=Error,
        cudaMemoryType=MemoryType,
        cudaMemcpyKind=CopyKind,
        cudaMalloc=malloc,
        cudaFree=free,
        cudaHostAlloc=pinned,
        cudaFreeHost=free,
        cudaHostRegister=register,
        cudaHostUnregister=unregister,
        cudaHostGetDevicePointer=lambda address, flags: (OK, address),
        cudaPointerGetAttributes=attributes,
        cudaMemcpyAsync=copy,
        cudaMemcpyPeerAsync=copy_peer,
        cudaStreamCreateWithFlags=lambda flags: (OK, machine.new_stream(machine.current)),
        cudaStreamDestroy=destroy_stream,
        cudaStreamSynchronize=sync_stream,
        cudaStreamQuery=query_stream,
        cudaDeviceSynchronize=sync_device,
        cudaStreamWaitEvent=wait_event,
        cudaStreamGetDevice=lambda stream: (OK, machine.stream(stream).index),
        cudaEventCreate=new_event,
        cudaEventCreateWithFlags=new_event,
        cudaEventDestroy=lambda event: (OK,),
        cudaEventRecord=record,
        cudaEventQuery=query,
        cudaEventSynchronize=synchronize,
        cudaEventElapsedTime=elapsed,
        cudaGetLastError=lambda: (OK,),
        cudaGetErrorName=lambda status: (OK, Error(status).name),
        cudaGetErrorString=lambda status: (OK, Error(status).name),
        cudaMemGetInfo=lambda: (OK, 1 << 30, 1 << 30),
        cudaDeviceCanAccessPeer=lambda here, there: (OK, int(machine.access[here, there])),
        cudaDeviceEnablePeerAccess=lambda there, flags: (OK,),
    )


def _counted(machine: Machine, runtime: Any) -> Any:
    def counted(name: str, real: Any) -> Any:
        def call(*given: Any) -> Any:
            machine.calls[name] += 1
            return (Error.cudaErrorIllegalAddress,) if machine.is_lost(name) else real(*given)

        return call

    for name, real in vars(runtime).items():
        if not isinstance(real, type):
            setattr(runtime, name, counted(name, real))
    return runtime


def _await(state: threading.Event) -> None:
    assert state.wait(60), "an event never came"


class _Driver(types.SimpleNamespace):
    """What the library calls of cuda.bindings.driver: contexts are the numbers of GPUs, from 1 on."""

    class CUresult(enum.IntEnum):
        CUDA_SUCCESS = 0
        CUDA_ERROR_ILLEGAL_ADDRESS = 700
        CUDA_ERROR_UNKNOWN = 999


def _driver(machine: Machine) -> Any:
    def current() -> Any:
        gpu = getattr(machine.thread, "gpu", None)
        return OK, 0 if gpu is None else 1 + gpu

    def set_current(context: int) -> Any:
        machine.thread.gpu = context - 1 if context else None
        return (OK,)

    return _Driver(
        cuCtxGetCurrent=current,
        cuDeviceGet=lambda index: (OK, index),
        cuDevicePrimaryCtxRetain=lambda index: (OK, 1 + index),
        cuDevicePrimaryCtxGetState=lambda index: (OK, 0, 1),
        cuCtxSetCurrent=set_current,
        cuGetErrorName=lambda status: (OK, "cudaErrorIllegalAddress"),
        cuGetErrorString=lambda status: (OK, status.name),
    )


def host_view(address: int, count: int, dtype: Any) -> Any:
    """What lies at an address of a GPU, as a kernel sees it."""
    kind = np.dtype(dtype)
    raw = (ctypes.c_byte * max(1, count * kind.itemsize)).from_address(address)
    return np.frombuffer(raw, np.uint8)[: count * kind.itemsize].view(kind)


def gpu_array(machine: Machine, index: int, values: Any) -> Array:
    """A user's array on a GPU; it is never freed."""
    values = np.ascontiguousarray(values)
    address = machine.allocate(index, max(1, values.nbytes))
    found = Array(
        values.shape, values.dtype, Pointer(Memory(address, values.nbytes, None, index), 0)
    )
    found.host[...] = values
    return found


@contextlib.contextmanager
def pretended_gpus(access: Any, seed: int = 0, delay_s: float = 2e-4) -> Iterator[Machine]:
    """A block in which there are GPUs; ``access[i][j]`` says whether i reaches j."""
    machine = Machine(access, seed, delay_s)
    machine.thread.gpu = 0
    runtime, cuda = _counted(machine, _runtime(machine)), _driver(machine)
    properties = GpuProperties("Pretended", "90", 4, 1 << 30, 1 << 16, "0000:01", True)
    with pytest.MonkeyPatch.context() as patch:
        for module in (driver, memory, events, lanes, segments, staging):
            patch.setattr(module, "bindings", lambda: (cuda, runtime))
        calls = native_calls(
            None,
            lambda stream: runtime.cudaStreamSynchronize(stream.value)[0],
            lambda *given: runtime.cudaMemcpyAsync(
                *given[:3], CopyKind.cudaMemcpyDefault, given[3]
            )[0],
            lambda event, stream: runtime.cudaEventRecord(machine.events[event], stream)[0],
            lambda event: runtime.cudaEventQuery(machine.events[event])[0],
            lambda context: cuda.cuCtxSetCurrent(context)[0],
        )
        patch.setattr(driver, "calls", lambda: calls)
        patch.setattr(driver, "quick_calls", no_quick_calls)
        patch.setattr(driver, "context_handle", lambda index: 1 + index)
        patch.setattr(driver, "device_count", lambda: len(machine.access))
        patch.setattr(driver, "properties", lambda index: properties)
        patch.setattr(driver, "why_not", str)
        patch.setattr(libraries, "are_installed", lambda: True)
        patch.setitem(sys.modules, "cupy", cupy_module(machine))
        patch.setattr(segments, "lies_on_gpu", lambda array: isinstance(array, Array))
        patch.setattr(memory, "_ABANDONED", [])
        patch.setattr(memory, "_KEPT", KeptMemory(memory.KEPT_BYTES))
        patch.setattr(memory, "_KEPT_PINNED", KeptMemory(memory.KEPT_PINNED_BYTES))
        patch.setattr(memory, "_released_pinned", deque())
        patch.setattr(staging, "_pools", {})
        for module in (lanes, gpu_arrays):
            patch.setattr(module, "_spare_streams", {})
        patch.setattr(events, "event_pool", lru_cache(events.EventPool))
        for module in (lanes, segments):
            patch.setattr(module, "event_pool", events.event_pool)
        patch.setattr(lanes, "are_peers", lru_cache(lanes.are_peers.__wrapped__))
        access_peer = lru_cache(driver.can_access_peer.__wrapped__)
        patch.setattr(driver, "can_access_peer", access_peer)
        try:
            yield machine
        finally:
            gc.collect()
            staging.close_pool()
            memory._KEPT_PINNED.take_all(0)
            memory._released_pinned.clear()
            gpu_arrays._spare_streams.clear()
            machine.end()
