"""Events of GPUs' streams, from a pool: queried, and waited for by the host or by streams.

Creating and destroying a CUDA event takes microseconds, and destroying one may wait for the device, so the
pool of a GPU creates them ahead, without times, and uses them again. Calls go to the driver by ctypes
(:func:`godwit.runtime.cuda.driver.quick_calls`). Where the driver refuses, the bindings of CUDA's runtime
are called instead: they give a thread without a current GPU one, and say what failed.

Invariant: a CUDA event belongs to one :class:`GpuEvent`, or lies in its pool. It may be recorded anew while
streams still wait for it: a stream waits for what had been recorded when cudaStreamWaitEvent was called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from typing import Any

from godwit.errors import InputError, shown
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.libraries import bindings
from godwit.runtime.memory import READY, Event

_NOT_READY = 600  # CUDA_ERROR_NOT_READY, and cudaErrorNotReady
_WITHOUT_TIMES = 0x02
_MADE_AHEAD = 32
_SPECIAL_STREAMS = (0, 1, 2)
"""Null stream, legacy and per-thread default streams: the same numbers on every GPU."""
_numbers = count()
waits_of: dict[int, int] = {}
"""By stream, as a number: how many events in a row were not yet done when it had to wait for them."""


class EventPool:
    """CUDA events of one GPU.

    :ivar made: number of CUDA events created, in use or not
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.made = 0
        # A message takes some ten calls, so the functions are looked up once.
        self.calls = driver.quick_calls()
        self._spare: deque[Any] = deque()
        self.put_back = self._spare.append
        self._make()

    @property
    def in_use(self) -> int:
        """Number of CUDA events that a :class:`GpuEvent` holds."""
        return self.made - len(self._spare)

    def take(self) -> Any:
        """Return an unused CUDA event."""
        while True:
            try:
                return self._spare.pop()
            except IndexError:
                self._make()

    def record_unless_done(self, stream: Any) -> Event:
        """Record an event in a stream of this GPU; READY if the stream is idle.

        Querying the stream is one short call, as recording is; but a recorded event has to be queried, too.
        A query of a busy stream takes three times as long as recording (1.6 and 0.5 µs beside an H100), so
        a stream that had to wait for the last two events is not queried.
        """
        number = int(stream)
        if waits_of and waits_of.get(number, 0) > 1:
            return self.record(stream)
        status = self.calls.query_stream(number)
        if status not in (0, _NOT_READY):
            _, runtime = bindings()
            status = self.answer(runtime.cudaStreamQuery(stream))
        return self.record(stream) if status else READY

    def record(self, stream: Any) -> GpuEvent:
        """Record an event in a stream that is known to be busy."""
        handle, number = self.take(), int(stream)
        event = GpuEvent(self, handle, number)
        if self.calls.record(event.number, number):
            _, runtime = bindings()
            outcome = runtime.cudaEventRecord(handle, stream)
            driver.checked(outcome, f"recording an event on cuda:{self.index}")
        event.recorded = next(_numbers)
        return event

    def answer(self, outcome: tuple[Any]) -> int:
        """Return 0 or 600, not ready; DeviceError for another outcome of a query by the bindings."""
        status = int(outcome[0])
        if status not in (0, _NOT_READY):
            driver.checked(outcome, f"work on cuda:{self.index} failed")
        return status

    def _make(self) -> None:
        _, runtime = bindings()
        with driver.entered(self.index):
            for _ in range(_MADE_AHEAD):
                outcome = runtime.cudaEventCreateWithFlags(_WITHOUT_TIMES)
                self._spare.append(driver.checked(outcome, f"an event of cuda:{self.index}"))
                self.made += 1


@lru_cache(maxsize=64)
def event_pool(index: int) -> EventPool:
    """Return the pool of a GPU, which lasts as long as the process."""
    return EventPool(index)


class GpuEvent:
    """CUDA event, recorded in a stream of a GPU.

    :ivar number: the CUDA event as a number
    :ivar stream: the stream as a number; None for default streams, whose numbers are the same on all GPUs
    :ivar begun: the counter before the recording
    :ivar recorded: the counter after the recording; see :func:`godwit.runtime.memory.latest`
    """

    __slots__ = (
        "_handle",
        "_pool",
        "_reached",
        "_waiter",
        "begun",
        "number",
        "recorded",
        "stream",
    )

    def __init__(self, pool: EventPool, handle: Any, stream: int) -> None:
        self._pool = pool
        self._handle = handle
        self.number = int(handle)
        self._reached = False
        self._waiter: Any = None  # the last stream that was made to wait for it
        self.stream = None if stream in _SPECIAL_STREAMS else stream
        self.begun = self.recorded = next(_numbers)

    def done(self) -> bool:
        """Return True if the work before it is done; DeviceError if that failed."""
        if not self._reached:
            pool = self._pool
            status = pool.calls.query(self.number)
            if status not in (0, _NOT_READY):
                _, runtime = bindings()
                status = pool.answer(runtime.cudaEventQuery(self._handle))
            if status:
                return False
            self._reached = True
        return True

    def wait(self) -> None:
        """Block the host until it is done; DeviceError if the work before it failed."""
        if not self._reached:
            _, runtime = bindings()
            outcome = runtime.cudaEventSynchronize(self._handle)
            driver.checked(outcome, f"work on cuda:{self._pool.index} failed")
            self._reached = True

    def wait_on(self, stream: Any) -> None:
        """Make a stream of any GPU wait for it; for None, block the host."""
        if stream is None:
            self.wait()
            return
        if self._waiter is not None and native_stream(stream) == self._waiter:
            return
        if self.done():  # a query costs at most as much as a wait in another GPU's stream
            if waits_of:
                waits_of.pop(int(native_stream(stream)), None)
            return
        pool, native = self._pool, native_stream(stream)
        number = int(native)
        if pool.calls.let_wait(number, self.number, 0):
            _, runtime = bindings()
            outcome = runtime.cudaStreamWaitEvent(native, self._handle, 0)
            driver.checked(outcome, f"letting a stream wait for cuda:{pool.index}")
        self._waiter = native
        waits_of[number] = waits_of.get(number, 0) + 1

    def __del__(self) -> None:
        self._pool.put_back(self._handle)


class EventGroup:
    """Several events as one."""

    __slots__ = ("_events",)

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = tuple(events)

    def done(self) -> bool:
        """Return True if all are done."""
        return all(event.done() for event in self._events)

    def wait(self) -> None:
        """Block the host until all are done."""
        for event in self._events:
            event.wait()

    def wait_on(self, stream: Any) -> None:
        """Make a stream wait for all."""
        for event in self._events:
            event.wait_on(stream)


def native_stream(stream: Any) -> Any:
    """Return a stream as the CUDA bindings take it.

    :param stream: a :class:`Stream`, a number, or a stream of CuPy, cuda.core, Numba or PyTorch
    :raises InputError: none of these
    """
    kind = type(stream)
    if kind is Stream:
        return stream.native
    if kind is int:
        return stream
    for name in ("ptr", "cuda_stream"):  # CuPy; PyTorch
        found = getattr(stream, name, None)
        if isinstance(found, int):
            return found
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    handle = getattr(stream, "handle", None)  # Numba's is a ctypes number
    handle = getattr(handle, "value", handle)
    try:
        return int(handle)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(
            f"a stream must be CuPy's, cuda.core's, Numba's, PyTorch's or a number, got {shown(stream)}"
        ) from None


def record_event(stream: Any, default_gpu: int | None) -> Event:
    """Record an event in any stream, given as for :func:`native_stream`.

    :param default_gpu: GPU of the null stream; None if the null stream stands for no GPU
    """
    native = native_stream(stream)
    if int(native) in _SPECIAL_STREAMS:
        if default_gpu is None:
            return READY
        # The null stream is that of the current GPU.
        return driver.call_on(default_gpu, event_pool(default_gpu).record, native)
    index = _gpu_of(native, default_gpu)
    return event_pool(index).record_unless_done(native)


def _gpu_of(native: Any, default: int | None) -> int:
    _, runtime = bindings()
    ask = getattr(runtime, "cudaStreamGetDevice", None)
    if ask is None:  # bindings of CUDA 12.6 and before
        return default or 0
    return int(driver.checked(ask(native), "a stream that is sent with an array"))
