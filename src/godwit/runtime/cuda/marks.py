"""Marks on streams of GPUs: events of a pool, recorded, asked for, waited for by hosts and by streams.

An event takes microseconds to make and to give back, and as a rule it waits for the device; here those of a
GPU are made ahead, without times, and used again and again. Invariant: an event belongs to one mark, or
lies in its pool. A mark may go, and its event be recorded anew, while streams still wait for it: a stream
waits for what had been recorded when it was told to wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from godwit.errors import InputError, shown
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.libraries import bindings
from godwit.runtime.memory import READY, Mark

_WITHOUT_TIMES = 0x02
_MADE_AHEAD = 32
_SPECIAL_STREAMS = (0, 1, 2)
"""The null stream and its per-thread twin have the same numbers on every GPU."""


class EventPool:
    """Events of one GPU.

    :ivar made: how many there are, in use or not
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.made = 0
        # A message takes some ten calls: they are looked up once.
        _, runtime = bindings()
        self.query = runtime.cudaEventQuery
        self.let_wait = runtime.cudaStreamWaitEvent
        self.not_ready = runtime.cudaError_t.cudaErrorNotReady
        self._record = runtime.cudaEventRecord
        self._query_stream = runtime.cudaStreamQuery
        self._spare: deque[Any] = deque()
        self.put_back = self._spare.append  # of who uses an event no more
        self._make()

    @property
    def in_use(self) -> int:
        """Events of marks that are still there."""
        return self.made - len(self._spare)

    def take(self) -> Any:
        """An event that nobody uses."""
        while True:
            try:
                return self._spare.pop()
            except IndexError:
                self._make()

    def mark(self, stream: Any) -> Mark:
        """Everything that was put into a stream of this GPU so far: READY where that is done.

        Asking takes one short call; an event takes one, too, and others to learn that it has been reached.
        """
        status = self._query_stream(stream)[0]
        if not status:
            return READY
        if status != self.not_ready:
            driver.checked((status,), f"work on cuda:{self.index} failed")
        return self.record(stream)

    def record(self, stream: Any) -> EventMark:
        """As :meth:`mark`, where something has just been put into the stream."""
        event = self.take()
        mark = EventMark(self, event)
        outcome = self._record(event, stream)
        if outcome[0]:
            driver.checked(outcome, f"marking a stream of cuda:{self.index}")
        return mark

    def _make(self) -> None:
        _, runtime = bindings()
        with driver.entered(self.index):
            for _ in range(_MADE_AHEAD):
                outcome = runtime.cudaEventCreateWithFlags(_WITHOUT_TIMES)
                self._spare.append(driver.checked(outcome, f"an event of cuda:{self.index}"))
                self.made += 1


@lru_cache(maxsize=64)
def event_pool(index: int) -> EventPool:
    """That of a GPU; it lasts as long as the process."""
    return EventPool(index)


class EventMark:
    """A point in a stream of a GPU."""

    __slots__ = ("_event", "_pool", "_reached")

    def __init__(self, pool: EventPool, event: Any) -> None:
        self._pool = pool
        self._event = event
        self._reached = False

    def done(self) -> bool:
        """Whether the GPU has got there; DeviceError if it failed on its way."""
        if not self._reached:
            pool = self._pool
            outcome = pool.query(self._event)
            if outcome[0]:
                if outcome[0] == pool.not_ready:
                    return False
                driver.checked(outcome, f"work on cuda:{pool.index} failed")
            self._reached = True
        return True

    def wait(self) -> None:
        """Wait on the host; DeviceError if the GPU failed on its way."""
        if not self._reached:
            _, runtime = bindings()
            outcome = runtime.cudaEventSynchronize(self._event)
            driver.checked(outcome, f"work on cuda:{self._pool.index} failed")
            self._reached = True

    def order(self, stream: Any) -> None:
        """Let a stream of any GPU wait, and not the host; on the host (None) the caller waits."""
        if stream is None:
            self.wait()
            return
        if self.done():  # asking costs a tenth of what waiting does, in another GPU's stream
            return
        pool = self._pool
        outcome = pool.let_wait(native_stream(stream), self._event, 0)
        if outcome[0]:
            driver.checked(outcome, f"letting a stream wait for cuda:{pool.index}")

    def __del__(self) -> None:
        self._pool.put_back(self._event)


class AllOf:
    """Several marks as one."""

    __slots__ = ("_marks",)

    def __init__(self, marks: Sequence[Mark]) -> None:
        self._marks = tuple(marks)

    def done(self) -> bool:
        """Whether all are reached."""
        return all(mark.done() for mark in self._marks)

    def wait(self) -> None:
        """Wait for all."""
        for mark in self._marks:
            mark.wait()

    def order(self, stream: Any) -> None:
        """Let a stream wait for all."""
        for mark in self._marks:
            mark.order(stream)


def native_stream(stream: Any) -> Any:
    """A stream as the bindings take it.

    :param stream: ours, a number, or a stream of CuPy, cuda.core, Numba or PyTorch
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


def mark_of(stream: Any, default_gpu: int | None) -> Mark:
    """Everything that was put into a user's stream so far.

    :param default_gpu: whose null stream is meant, where it is one; None on the host: nothing is
    """
    native = native_stream(stream)
    if int(native) in _SPECIAL_STREAMS:
        if default_gpu is None:
            return READY
        with driver.entered(default_gpu):  # the null stream is that of the current GPU
            return event_pool(default_gpu).record(native)
    index = _gpu_of(native, default_gpu)
    return event_pool(index).mark(native)


def _gpu_of(native: Any, default: int | None) -> int:
    _, runtime = bindings()
    ask = getattr(runtime, "cudaStreamGetDevice", None)
    if ask is None:  # bindings of CUDA 12.6 and before
        return default or 0
    return int(driver.checked(ask(native), "a stream that is sent with an array"))
