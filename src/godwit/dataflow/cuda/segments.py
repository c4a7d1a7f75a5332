"""Memory of endpoints in contexts with GPUs: of each GPU, and page-locked host memory.

The counterpart of dataflow/cpu.py. Pools, events and the staging pool are in runtime/cuda, copies in
lanes.py. An endpoint on a GPU has a stream of its own, which does not wait for the null stream; several
endpoints may share a GPU.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import numpy as np

from godwit.arrays import lies_on_gpu
from godwit.dataflow.cpu import as_bytes
from godwit.dataflow.cuda.lanes import GpuLane, HostLane
from godwit.dtypes import Array
from godwit.errors import InputError, shown
from godwit.runtime.cuda import driver, gpu_arrays, memory
from godwit.runtime.cuda.events import (
    EventGroup,
    event_pool,
    native_stream,
    record_event,
    waits_of,
)
from godwit.runtime.cuda.libraries import bindings, cupy
from godwit.runtime.cuda.memory import (
    Pool,
    PoolBlock,
    given_gpu_pool,
    given_host_pool,
    gpu_pool,
    is_locked,
    pinned_pool,
)
from godwit.runtime.cuda.transfer.copies import CopyTimes
from godwit.runtime.memory import READY, Event, Transport, host_array_to_send, overlap

_PORTABLE = 0x01


class _Pooled:
    """Memory whose blocks come from a pool."""

    index: int | None
    _pool: Pool

    @property
    def used_bytes(self) -> int:
        """Bytes of blocks that are not freed."""
        return self._pool.used_bytes

    def allocate(self, nbytes: int) -> PoolBlock:
        """Allocate a block; InputError if the limit leaves less."""
        return self._pool.allocate(nbytes)

    def take(self, array: Any, stream: Any = None) -> tuple[Any, tuple[Event, ...]]:
        """Return an array of CuPy or NumPy, where it lies, and the events after which it may be read."""
        taken = array_to_send(array)
        events: tuple[Event, ...] = (self.record_event(stream),)
        if not isinstance(taken, np.ndarray) and gpu_arrays.gpu_of(taken) != self.index:
            events = (*events, _record_current(gpu_arrays.gpu_of(taken)))
        return taken, events

    def record_event(self, stream: Any = None) -> Event:
        """Record an event in a stream."""
        raise NotImplementedError

    def overlaps(self, array: Any, other: Any) -> bool:
        """Return True if arrays share memory."""
        if isinstance(array, np.ndarray):
            return isinstance(other, np.ndarray) and overlap(array, other)
        if isinstance(other, np.ndarray):
            return False
        return gpu_arrays.overlap(array, other)


class GpuSpace(_Pooled):
    """Memory of an endpoint on a GPU.

    :param limit_bytes: largest sum of its blocks, which are then cut from one allocation
    :param memory: an array of bytes on that GPU that blocks are cut from
    :raises DeviceError: there is no such GPU, or no CuPy
    """

    kind = "cuda"
    index: int
    copy_bytes = 64 << 20  # of half the size, the host falls behind the bus when a message begins

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
        self._current_stream = cupy().cuda.get_current_stream
        waits_of.pop(self._native, None)  # of the stream's former user
        self._events = event_pool(index)
        self._transport: Transport = transport
        self._trace = trace
        self._pool = (
            gpu_pool(index, limit_bytes)
            if memory is None
            else given_gpu_pool(index, _gpu_bytes(memory, index), limit_bytes)
        )

    def reads(self, array: Any) -> bool:
        """Return True for arrays on this GPU."""
        return gpu_arrays.is_gpu_array(array) and gpu_arrays.gpu_of(array) == self.index

    def record_current(self) -> Event:
        """Record an event in CuPy's current stream of the calling thread."""
        return _record_current(self.index)

    def record_event(self, stream: Any = None) -> Event:
        """Record an event in a stream.

        By default in the endpoint's own and in CuPy's current stream, which in a user's thread is another
        one.
        """
        driver.enter_any(self.index)
        if stream is not None:
            return record_event(stream, self.index)
        event = self._events.record_unless_done(self._native)
        current = gpu_arrays.current_stream(self.index)
        if current is self.stream:
            return event
        native = native_stream(current)
        if native == self._native:
            return event
        if gpu_arrays.is_current(self.index):
            other: Event = self._events.record(native)
        else:
            other = record_event(current, self.index)
        return other if event is READY else EventGroup((event, other))

    def is_current(self) -> bool:
        """Return True if CuPy's current stream of the calling thread is the endpoint's."""
        return self._current_stream(self.index) is self.stream

    def lane(self) -> GpuLane:
        """Return a new lane into this GPU's memory."""
        return GpuLane(self.index, self._transport, _times(self._trace))

    def entered(self) -> AbstractContextManager[Any]:
        """Return a context manager that makes the GPU and the stream CuPy's current ones."""
        return gpu_arrays.entered(self.index, self.stream)

    def entered_thread(self) -> AbstractContextManager[Any]:
        """Make the GPU current in the calling thread, for good, as it runs workers of this GPU alone.

        In the block that is returned, the stream is CuPy's current one. It is a block, not
        ``stream.use()``: after a block of another stream, CuPy returns to that of the block around it.
        """
        driver.use(self.index)
        block: AbstractContextManager[Any] = self.stream
        return block

    def close(self) -> None:
        """Free all memory. A second call has no effect."""
        stream, self.stream = self.stream, None
        if stream is None:
            return
        with ExitStack() as stack:
            # Memory that arrays still used when an earlier pool was closed.
            stack.callback(memory.free_abandoned, [self.index])
            stack.callback(self._pool.close)
            _, runtime = bindings()
            outcome = runtime.cudaStreamSynchronize(self._native)
            driver.checked(outcome, f"work on cuda:{self.index} failed")
            gpu_arrays.give_stream_back(self.index, stream)


class PinnedSpace(_Pooled):
    """Page-locked host memory of a context with GPUs, so that copies overlap with kernels.

    :param limit_bytes: largest sum of its blocks
    :param memory: a NumPy array that blocks are cut from; page-locked meanwhile
    """

    kind = "host"
    index = None
    stream = None
    copy_bytes = 8 << 20

    def __init__(
        self, limit_bytes: int | None = None, memory: Any = None, trace: Any = None
    ) -> None:
        self._trace = trace
        self._held = ExitStack()
        if memory is None:
            self._pool = pinned_pool(limit_bytes)
        else:
            given = as_bytes(memory)
            self._pool = given_host_pool(given, limit_bytes)
            _lock_pages(given, self._held)

    def reads(self, array: Any) -> bool:
        """Return True for any host array."""
        return isinstance(array, np.ndarray)

    def record_current(self) -> Event:
        """Return an event that is done."""
        return READY

    def record_event(self, stream: Any = None) -> Event:
        """Return an event that is done; a stream of a GPU must be given."""
        return READY if stream is None else record_event(stream, None)

    def is_current(self) -> bool:
        """Return False: the host has no stream."""
        return False

    def lane(self) -> HostLane:
        """Return a new lane into page-locked memory."""
        return HostLane(_times(self._trace))

    def entered(self) -> AbstractContextManager[None]:
        """Return a context manager that does nothing."""
        return nullcontext()

    def entered_thread(self) -> AbstractContextManager[None]:
        """Return a context manager that does nothing."""
        return nullcontext()

    def close(self) -> None:
        """Free all memory. A second call has no effect."""
        with ExitStack() as stack:
            stack.callback(self._held.close)
            stack.callback(self._pool.close)


def array_to_send(array: Any) -> Any:
    """Return what a user sends as a C-contiguous array where it lies; InputError if not one of numbers."""
    if gpu_arrays.is_gpu_array(array) or lies_on_gpu(array):
        return gpu_arrays.sendable_gpu_array(array)
    return host_array_to_send(array)


def _record_current(index: int) -> Event:
    return record_event(gpu_arrays.current_stream(index), index)


def _times(trace: Any) -> CopyTimes | None:
    return None if trace is None else CopyTimes(trace)


def _gpu_bytes(memory: Any, index: int) -> Any:
    if not lies_on_gpu(memory):
        raise InputError(f"a pool of cuda:{index} must be an array on it, got {shown(memory)}")
    given = gpu_arrays.sendable_gpu_array(memory)
    if gpu_arrays.gpu_of(given) != index:
        raise InputError(
            f"a pool of cuda:{index} must be an array on it, got one on cuda:{gpu_arrays.gpu_of(given)}"
        )
    if hasattr(memory, "flags") and not memory.flags.c_contiguous:
        raise InputError("a pool must be contiguous memory, got an array with gaps")
    return given


def _lock_pages(given: Array, held: ExitStack) -> None:
    """Page-lock a user's array until ``held`` is closed."""
    if given.nbytes == 0 or is_locked(given.ctypes.data, given.nbytes):
        return
    _, runtime = bindings()
    outcome = runtime.cudaHostRegister(given.ctypes.data, given.nbytes, _PORTABLE)
    driver.checked(outcome, f"page-locking {given.nbytes:,} bytes that were handed in")
    held.callback(runtime.cudaHostUnregister, given.ctypes.data)
