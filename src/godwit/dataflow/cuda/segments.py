"""The memory of endpoints where there are GPUs: of each GPU, and of the host, page-locked.

The counterpart of dataflow/cpu.py. Pools are in runtime/cuda/pools.py, events in runtime/cuda/events.py,
copies in lanes.py. An endpoint on a GPU has a stream of its own, which does not wait for the null stream;
several endpoints may share a GPU.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import numpy as np

from godwit.dataflow.cuda.lanes import GpuLane, PinnedLane, is_locked
from godwit.dtypes import Array
from godwit.errors import InputError, shown
from godwit.runtime.cuda import driver, gpu_arrays
from godwit.runtime.cuda.copy_times import CopyTimes
from godwit.runtime.cuda.events import EventGroup, event_pool, native_stream, record_event
from godwit.runtime.cuda.libraries import bindings
from godwit.runtime.cuda.ordinary_memory import Crew
from godwit.runtime.cuda.pools import (
    Pool,
    PoolBlock,
    given_gpu_pool,
    given_host_pool,
    gpu_pool,
    pinned_pool,
)
from godwit.runtime.memory import READY, Event, Space, Transport, host_array_to_send, overlap
from godwit.runtime.protocol import Device

_PORTABLE = 0x01


class _Pooled:
    """What has a pool to take blocks from."""

    _pool: Pool

    @property
    def used_bytes(self) -> int:
        """Of blocks that have not been given back."""
        return self._pool.used_bytes

    @property
    def limit_bytes(self) -> int | None:
        """Of all blocks together."""
        return self._pool.limit_bytes

    def allocate(self, nbytes: int) -> PoolBlock:
        """Memory of the pool; InputError if the limit does not leave so much."""
        return self._pool.allocate(nbytes)

    def overlaps(self, array: Any, other: Any) -> bool:
        """Whether arrays have memory in common."""
        if isinstance(array, np.ndarray):
            return isinstance(other, np.ndarray) and overlap(array, other)
        if isinstance(other, np.ndarray):
            return False
        return gpu_arrays.overlap(array, other)


class GpuSpace(_Pooled):
    """The memory of an endpoint on a GPU.

    :param limit_bytes: of its blocks together, which are then cut from one allocation
    :param memory: an array of bytes on that GPU to cut them from
    :raises DeviceError: the GPU, or CuPy, is not there
    """

    kind = "cuda"

    def __init__(
        self,
        index: int,
        limit_bytes: int | None = None,
        memory: Any = None,
        transport: Transport = "direct",
        trace: Any = None,
    ) -> None:
        self.index = index
        self.stream: Any = gpu_arrays.take_stream(index)
        self._native = native_stream(self.stream)
        self._events = event_pool(index)
        self._transport: Transport = transport
        self._trace = trace
        self._crew = Crew(index, _times(trace))
        self._pool = (
            gpu_pool(index, limit_bytes)
            if memory is None
            else given_gpu_pool(index, _gpu_bytes(memory, index), limit_bytes)
        )

    def reads(self, array: Any) -> bool:
        """Kernels use what lies on their GPU."""
        return gpu_arrays.is_gpu_array(array) and gpu_arrays.gpu_of(array) == self.index

    def take(self, array: Any, stream: Any = None) -> tuple[Any, tuple[Event, ...]]:
        """As an array of CuPy, or of NumPy where it lies on the host."""
        taken = array_to_send(array)
        return taken, (self.record_event(stream), *_events_elsewhere(taken, self.index))

    def record_current(self) -> Event:
        """Everything that the calling thread has put into CuPy's current stream so far."""
        return _record_current(self.index)

    def record_event(self, stream: Any = None) -> Event:
        """What was put into a stream so far.

        If none is named: into the endpoint's own, and into the one that is CuPy's current one in the
        calling thread, which in a thread of the user's is another.
        """
        driver.enter_any(self.index)
        if stream is not None:
            return record_event(stream, self.index)
        own = self._events.record_unless_done(self._native)
        current = gpu_arrays.current_stream(self.index)
        if current is self.stream:
            return own
        native = native_stream(current)
        if native == self._native:
            return own
        if gpu_arrays.is_current(self.index):
            other: Event = self._events.record(native)
        else:
            other = record_event(current, self.index)
        return other if own is READY else EventGroup((own, other))

    def lane(self) -> GpuLane:
        """Into this GPU's memory."""
        return GpuLane(self.index, self._crew, self._transport, _times(self._trace))

    def entered(self) -> AbstractContextManager[Any]:
        """The GPU and the stream are CuPy's current ones."""
        return gpu_arrays.entered(self.index, self.stream)

    def close(self) -> None:
        """Give all back; twice does no harm."""
        stream, self.stream = self.stream, None
        if stream is None:
            return
        with ExitStack() as stack:
            # What arrays were still over when an earlier pool closed.
            stack.callback(driver.free_abandoned, [self.index])
            stack.callback(self._pool.close)
            stack.callback(self._crew.close)
            _, runtime = bindings()
            outcome = runtime.cudaStreamSynchronize(self._native)
            driver.checked(outcome, f"work on cuda:{self.index} failed")
            gpu_arrays.give_stream_back(self.index, stream)


class PinnedSpace(_Pooled):
    """Host memory of a context that has GPUs: page-locked, so that copies run beside kernels.

    :param limit_bytes: of its blocks together
    :param memory: a NumPy array to cut them from; it is page-locked meanwhile, if it is not
    """

    kind = "host"
    stream = None

    def __init__(
        self, limit_bytes: int | None = None, memory: Any = None, trace: Any = None
    ) -> None:
        self._trace = trace
        self._crew = Crew(None)
        self._held = ExitStack()
        if memory is None:
            self._pool = pinned_pool(limit_bytes)
        else:
            given = _host_bytes(memory)
            self._pool = given_host_pool(given, limit_bytes)
            _lock_pages(given, self._held)

    def reads(self, array: Any) -> bool:
        """The host reads all host memory."""
        return isinstance(array, np.ndarray)

    def take(self, array: Any, stream: Any = None) -> tuple[Any, tuple[Event, ...]]:
        """As an array of NumPy, or of CuPy where it lies on a GPU."""
        taken = array_to_send(array)
        return taken, (self.record_event(stream), *_events_elsewhere(taken, None))

    def record_current(self) -> Event:
        """On the host all is done at once."""
        return READY

    def record_event(self, stream: Any = None) -> Event:
        """The host has done what it does; what a GPU does for it is in a stream that must be named."""
        return READY if stream is None else record_event(stream, None)

    def lane(self) -> PinnedLane:
        """Into page-locked memory."""
        return PinnedLane(self._crew, _times(self._trace))

    def entered(self) -> AbstractContextManager[None]:
        """Nothing is to be made current."""
        return nullcontext()

    def close(self) -> None:
        """Give all back; twice does no harm."""
        with ExitStack() as stack:
            stack.callback(self._held.close)
            stack.callback(self._pool.close)
            stack.callback(self._crew.close)


def make_space(
    device: Device | None,
    limit_bytes: int | None,
    memory: Any,
    transport: Transport,
    trace: Any,
) -> Space:
    """Return the memory of an endpoint of a context that has GPUs."""
    if device is None or device.kind != "cuda":
        return PinnedSpace(limit_bytes, memory, trace)
    index = int(device.name.partition(":")[2])
    return GpuSpace(index, limit_bytes, memory, transport, trace)


def array_to_send(array: Any) -> Any:
    """What a user sends, where it lies, rows one behind the other; InputError if it is none of numbers."""
    if isinstance(array, np.ndarray) or not gpu_arrays.lies_on_gpu(array):
        return host_array_to_send(array)
    return gpu_arrays.sendable_gpu_array(array)


def _events_elsewhere(array: Any, index: int | None) -> tuple[Event, ...]:
    """What CuPy was to do to an array on another GPU than an endpoint's, in the calling thread."""
    if isinstance(array, np.ndarray) or gpu_arrays.gpu_of(array) == index:
        return ()
    return (_record_current(gpu_arrays.gpu_of(array)),)


def _record_current(index: int) -> Event:
    return record_event(gpu_arrays.current_stream(index), index)


def _times(trace: Any) -> CopyTimes | None:
    return None if trace is None else CopyTimes(trace)


def _gpu_bytes(memory: Any, index: int) -> Any:
    if not gpu_arrays.lies_on_gpu(memory):
        raise InputError(f"a pool of cuda:{index} must be an array on it, got {shown(memory)}")
    given = gpu_arrays.sendable_gpu_array(memory)
    if gpu_arrays.gpu_of(given) != index:
        raise InputError(
            f"a pool of cuda:{index} must be an array on it, got one on cuda:{gpu_arrays.gpu_of(given)}"
        )
    if hasattr(memory, "flags") and not memory.flags.c_contiguous:
        raise InputError("a pool must be contiguous memory, got an array with gaps")
    return given


def _host_bytes(memory: Any) -> Array:
    if not isinstance(memory, np.ndarray) or not memory.flags.writeable:
        raise InputError(f"a pool on the host must be a writable NumPy array, got {shown(memory)}")
    if not memory.flags.c_contiguous:
        raise InputError("a pool must be contiguous memory, got an array with gaps")
    return memory.reshape(-1).view(np.uint8)


def _lock_pages(given: Array, held: ExitStack) -> None:
    """Page-lock what a user hands in, until the end."""
    if given.nbytes == 0 or is_locked(given.ctypes.data, given.nbytes):
        return
    _, runtime = bindings()
    outcome = runtime.cudaHostRegister(given.ctypes.data, given.nbytes, _PORTABLE)
    driver.checked(outcome, f"page-locking {given.nbytes:,} bytes that were handed in")
    held.callback(runtime.cudaHostUnregister, given.ctypes.data)
