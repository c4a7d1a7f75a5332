"""Segments from ordinary host memory: threads that bring them through page-locked buffers.

The driver would take them through one small buffer of its own, and hold up whoever asks for the copy. Here
a *crew* of threads each moves a piece to a page-locked buffer of its own and starts the bus on it: while
that is on its way, others fill theirs. Pieces of one segment, and segments, overlap; an event per segment
says when all of it has arrived.

Invariant: a thread waits only for events that were there before its piece was queued, and pieces are taken
in the order of the queue, so those that a piece waits for are always ahead of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import Future as Job
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from threading import Lock
from typing import Any

from godwit import config
from godwit.dtypes import Array
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.copy_times import CopyTimes, noted
from godwit.runtime.cuda.download import STAGING_BYTES, Staging, stagings
from godwit.runtime.cuda.events import event_pool
from godwit.runtime.memory import READY, Event

_MOST_THREADS = 8
_PIECE_BYTES = STAGING_BYTES // 2
"""What a thread moves at a time: one half of its buffer, while the other is on the bus."""


class Promise:
    """An event that threads of a crew are still going to make."""

    __slots__ = ("_jobs",)

    def __init__(self, jobs: Sequence[Job[Event]]) -> None:
        self._jobs = jobs

    @property
    def is_under_way(self) -> bool:
        """Whether all pieces are on the bus, so that ordering a stream behind them does not wait."""
        return all(job.done() for job in self._jobs)

    def done(self) -> bool:
        """Whether all pieces have arrived; DeviceError if one has not been able to."""
        return all(job.done() and job.result().done() for job in self._jobs)

    def wait(self) -> None:
        """Wait for all pieces."""
        for job in self._jobs:
            job.result().wait()

    def wait_on(self, stream: Any) -> None:
        """Let a stream wait; the host waits until the last piece is on the bus."""
        for job in self._jobs:
            job.result().wait_on(stream)


class _Berth:
    """Part of a page-locked buffer, and the event after which it may be filled."""

    __slots__ = ("free", "pointer", "staging")

    def __init__(self, staging: Staging, offset: int) -> None:
        self.staging = staging
        self.pointer = staging.pointer + offset
        self.free: Event = READY


class Crew:
    """Threads and page-locked buffers; made when they are first needed.

    :param index: the GPU that they bring to; None where they stay on the host
    :param times: where copies are noted, or None
    """

    def __init__(self, index: int | None, times: CopyTimes | None = None) -> None:
        self._index = index
        self._times = times
        self._lock = Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._berths: SimpleQueue[_Berth] = SimpleQueue()
        self._held = ExitStack()

    def to_gpu(self, source: Array, pointer: int, after: Sequence[Event]) -> Promise:
        """Bring a contiguous host array to an address of the GPU, once some events are reached."""
        after = tuple(event for event in after if not event.done())
        begin = source.ctypes.data

        def piece(at: int, length: int) -> Event:
            return self._brought(begin + at, pointer + at, length, after)

        return self._split(source.nbytes, piece)

    def to_host(self, source: Array, pointer: int, after: Sequence[Event]) -> Promise:
        """Move a contiguous host array elsewhere on the host, once some events are reached."""
        begin = source.ctypes.data

        def piece(at: int, length: int) -> Event:
            for event in after:
                event.wait()
            ctypes.memmove(pointer + at, begin + at, length)
            return READY

        return self._split(source.nbytes, piece)

    def _split(self, nbytes: int, piece: Any) -> Promise:
        threads = self._started()
        return Promise(
            [
                threads.submit(piece, at, min(_PIECE_BYTES, nbytes - at))
                for at in range(0, nbytes, _PIECE_BYTES)
            ]
        )

    def _brought(self, origin: int, to: int, length: int, after: Sequence[Event]) -> Event:
        assert self._index is not None
        berth = self._berths.get()
        try:
            for event in after:
                event.wait()
            berth.free.wait()
            stream = berth.staging.stream(self._index)
            ctypes.memmove(berth.pointer, origin, length)
            with noted(self._times, stream, f"copy host -> cuda:{self._index}", length):
                driver.copy_async(to, berth.pointer, length, stream)
            berth.free = event_pool(self._index).record(stream.native)
            return berth.free
        finally:
            self._berths.put(berth)

    def _started(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                count = min(_MOST_THREADS, config.thread_count())
                if self._index is not None:
                    self._make_berths(self._index, count)
                self._threads = ThreadPoolExecutor(count, "godwit-segments")
            return self._threads

    def _make_berths(self, index: int, count: int) -> None:
        with driver.entered(index):
            for staging in self._held.enter_context(stagings(count)):
                staging.stream(index)  # made now: two threads may have halves of it
                for offset in range(0, STAGING_BYTES, _PIECE_BYTES):
                    self._berths.put(_Berth(staging, offset))

    def close(self) -> None:
        """End the threads, and keep their buffers for others; twice does no harm."""
        with self._lock:
            threads, self._threads = self._threads, None
            with ExitStack() as stack:
                if self._times is not None:
                    stack.callback(self._times.close)
                stack.callback(self._held.close)  # waits for what is on its way
                if threads is not None:
                    stack.callback(threads.shutdown)
            self._berths = SimpleQueue()
