"""Copies between host memory and GPUs, at the speed of the bus also for pageable host memory.

The driver copies from and to pageable memory through one small buffer of its own: a few GB/s. Here several
threads each have a pinned staging buffer and a stream: while the piece of one thread is on the bus, others
fill or empty theirs. :func:`upload` and :func:`download` return when all has arrived;
:class:`StagingThreads` start copies whose arrival others wait for by events.

Pinning memory takes longer than copying what fits in, so staging buffers are kept by the process.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from queue import SimpleQueue
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.errors import DeviceError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Stream, TimedEvent
from godwit.runtime.cuda.events import event_pool
from godwit.runtime.cuda.memory import Buffer, HeldArray, PinnedBuffer, is_locked
from godwit.runtime.memory import READY, Event
from godwit.trace import HOST, copied

STAGING_BYTES = 4 << 20
"""Size of a staging buffer: enough for the bus, and pinned in a millisecond."""
DIRECT_BYTES = 16 << 20
"""Up to this size the driver copies from and to pageable memory."""
_MOST_THREADS = 8
_SLOT_BYTES = STAGING_BYTES // 2
_MOST_PENDING = 64


class Staging:
    """Pinned staging buffer of one thread, with a stream for each GPU that it is used with."""

    def __init__(self) -> None:
        self._buffer = PinnedBuffer(STAGING_BYTES)
        self._streams: dict[int, Stream] = {}

    @property
    def pointer(self) -> int:
        """The buffer's address, for the host and for every GPU."""
        return self._buffer.pointer

    def array(self, dtype: Any) -> Array:
        """Return the buffer as an array, which must not be used after :meth:`close`."""
        return self._buffer.array(dtype)

    def stream(self, index: int) -> Stream:
        """Return this thread's stream on a GPU."""
        if index not in self._streams:
            self._streams[index] = Stream(index)
        return self._streams[index]

    def synchronize(self) -> None:
        """Wait for all copies that use the buffer."""
        for stream in self._streams.values():
            with suppress(DeviceError):
                stream.synchronize()

    def close(self) -> None:
        """Free the buffer and the streams. Closing twice is allowed."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        self._buffer.close()


_SPARE: list[Staging] = []


@contextmanager
def stagings(count: int) -> Iterator[list[Staging]]:
    """Provide staging buffers for ``count`` threads while the block runs; the process keeps them."""
    taken: list[Staging] = []
    try:
        for _ in range(count):
            try:
                taken.append(_SPARE.pop())
            except IndexError:
                taken.append(Staging())
        yield taken
    finally:
        for staging in taken:
            staging.synchronize()  # an exception may have left a copy under way
        _SPARE.extend(taken)


def upload(buffer: Buffer, array: Array | HeldArray) -> None:
    """Copy an array of the host or of a GPU to the beginning of a GPU buffer.

    All has arrived when this returns.
    """
    if isinstance(array, HeldArray):
        _copy_between_gpus(buffer, array)
        return
    array = np.ascontiguousarray(array)
    if _is_direct(array):
        buffer.upload(array)
        return
    begin = perf_counter()
    _copy_in_pieces(buffer.index, buffer.pointer, array, to_host=False)
    copied(HOST, f"cuda:{buffer.index}", array.nbytes, begin)


def download(index: int, pointer: int, array: Array) -> None:
    """Fill a contiguous host array from an address of a GPU, where no work is under way."""
    if array.nbytes == 0:
        return
    begin = perf_counter()
    if _is_direct(array):
        stream = Stream(index)
        try:
            driver.copy_async(array.ctypes.data, pointer, array.nbytes, stream)
            stream.synchronize()
        finally:
            stream.close()
    else:
        _copy_in_pieces(index, pointer, array, to_host=True)
    copied(f"cuda:{index}", HOST, array.nbytes, begin)


def _copy_between_gpus(buffer: Buffer, array: HeldArray) -> None:
    begin = perf_counter()
    stream = Stream(buffer.index)
    try:
        if array.index == buffer.index:
            driver.copy_async(buffer.pointer, array.pointer, array.nbytes, stream)
        else:
            driver.copy_peer_async(
                buffer.pointer, buffer.index, array.pointer, array.index, array.nbytes, stream
            )
        stream.synchronize()
    finally:
        stream.close()
    copied(f"cuda:{array.index}", f"cuda:{buffer.index}", array.nbytes, begin)


def _is_direct(array: Array) -> bool:
    """Return True if the driver copies from and to an array as fast as threads do."""
    return array.nbytes <= DIRECT_BYTES or is_locked(array.ctypes.data, array.nbytes)


def _copy_in_pieces(index: int, pointer: int, array: Array, *, to_host: bool) -> None:
    offsets = range(0, array.nbytes, STAGING_BYTES)
    workers = min(len(offsets), _MOST_THREADS, config.thread_count())
    remaining = iter(offsets)  # taking the next piece is atomic
    begin = array.ctypes.data

    def copy_pieces(staging: Staging) -> None:
        stream = staging.stream(index)
        for offset in remaining:
            length = min(STAGING_BYTES, array.nbytes - offset)
            if to_host:
                driver.copy_async(staging.pointer, pointer + offset, length, stream)
                stream.synchronize()
                ctypes.memmove(begin + offset, staging.pointer, length)
            else:
                ctypes.memmove(staging.pointer, begin + offset, length)
                driver.copy_async(pointer + offset, staging.pointer, length, stream)
                stream.synchronize()

    with stagings(workers) as taken, ThreadPoolExecutor(workers, "godwit-copy") as pool:
        for job in [pool.submit(copy_pieces, staging) for staging in taken]:
            job.result()


class StagedCopy:
    """Event of a copy whose pieces :class:`StagingThreads` are still starting."""

    __slots__ = ("_jobs",)

    def __init__(self, jobs: Sequence[Future[Event]]) -> None:
        self._jobs = jobs

    @property
    def is_started(self) -> bool:
        """True if all pieces are on the bus, so that :meth:`wait_on` does not block the host."""
        return all(job.done() for job in self._jobs)

    def done(self) -> bool:
        """Return True if all pieces have arrived.

        :raises DeviceError: a piece could not be copied
        """
        return all(job.done() and job.result().done() for job in self._jobs)

    def wait(self) -> None:
        """Wait until all pieces have arrived."""
        for job in self._jobs:
            job.result().wait()

    def wait_on(self, stream: Any) -> None:
        """Let a stream wait for all pieces; the host waits until the last piece is on the bus."""
        for job in self._jobs:
            job.result().wait_on(stream)


class StagingSlot:
    """Part of a staging buffer, and the event after which it may be filled."""

    __slots__ = ("free", "pointer", "staging")

    def __init__(self, staging: Staging, offset: int) -> None:
        self.staging = staging
        self.pointer = staging.pointer + offset
        self.free: Event = READY


class StagingThreads:
    """Threads that copy pageable host memory in pieces, to a GPU or within the host.

    Each thread moves a piece to a staging slot and starts the copy; while that is on the bus, it fills
    another slot. Threads and slots are made at first use.

    Invariant: a thread waits only for events that existed before its piece was queued, and pieces are taken
    in the order of the queue, so whatever a piece waits for is ahead of it.

    :param index: the GPU that is copied to; None for copies within the host
    :param times: notes the copies for a trace, or None
    """

    def __init__(self, index: int | None, times: CopyTimes | None = None) -> None:
        self._index = index
        self._times = times
        self._lock = Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._slots: SimpleQueue[StagingSlot] = SimpleQueue()
        self._held = ExitStack()

    def to_gpu(self, source: Array, pointer: int, after: Sequence[Event]) -> StagedCopy:
        """Copy a contiguous host array to an address of the GPU, once some events are reached."""
        after = tuple(event for event in after if not event.done())
        begin = source.ctypes.data

        def copy_piece(offset: int, length: int) -> Event:
            return self._copy_to_gpu(begin + offset, pointer + offset, length, after)

        return self._submit(source.nbytes, copy_piece)

    def to_host(self, source: Array, pointer: int, after: Sequence[Event]) -> StagedCopy:
        """Copy a contiguous host array to another host address, once some events are reached."""
        begin = source.ctypes.data

        def copy_piece(offset: int, length: int) -> Event:
            for event in after:
                event.wait()
            ctypes.memmove(pointer + offset, begin + offset, length)
            return READY

        return self._submit(source.nbytes, copy_piece)

    def _submit(self, nbytes: int, copy_piece: Any) -> StagedCopy:
        threads = self._started()
        return StagedCopy(
            [
                threads.submit(copy_piece, offset, min(_SLOT_BYTES, nbytes - offset))
                for offset in range(0, nbytes, _SLOT_BYTES)
            ]
        )

    def _copy_to_gpu(self, origin: int, to: int, length: int, after: Sequence[Event]) -> Event:
        assert self._index is not None
        slot = self._slots.get()
        try:
            for event in (*after, slot.free):
                event.wait()
            stream = slot.staging.stream(self._index)
            ctypes.memmove(slot.pointer, origin, length)
            with noted(self._times, stream, f"copy host -> cuda:{self._index}", length):
                driver.copy_async(to, slot.pointer, length, stream)
            slot.free = event_pool(self._index).record(stream.native)
            return slot.free
        finally:
            self._slots.put(slot)

    def _started(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                count = min(_MOST_THREADS, config.thread_count())
                if self._index is not None:
                    self._make_slots(self._index, count)
                self._threads = ThreadPoolExecutor(count, "godwit-staging")
            return self._threads

    def _make_slots(self, index: int, count: int) -> None:
        with driver.entered(index):
            for staging in self._held.enter_context(stagings(count)):
                staging.stream(index)  # made now, since two threads may use its halves
                for offset in range(0, STAGING_BYTES, _SLOT_BYTES):
                    self._slots.put(StagingSlot(staging, offset))

    def close(self) -> None:
        """Wait for all copies, end the threads and give the staging buffers back."""
        with self._lock:
            threads, self._threads = self._threads, None
            with ExitStack() as stack:
                if self._times is not None:
                    stack.callback(self._times.close)
                stack.callback(self._held.close)  # waits for copies under way
                if threads is not None:
                    stack.callback(threads.shutdown)
            self._slots = SimpleQueue()


class CopyTimes:
    """Notes when copies in the streams of some GPUs ran, for a :class:`godwit.trace.Trace`.

    Two timed events enclose each copy in its stream; an event that was recorded while nothing ran relates
    the GPU's time to the host's. Finished copies are noted when others are started, and by :meth:`close`.
    """

    def __init__(self, trace: Any) -> None:
        self._trace = trace
        self._bases: dict[int, tuple[TimedEvent, float]] = {}
        self._pending: deque[tuple[int, str, int, TimedEvent, TimedEvent]] = deque()
        self._lock = Lock()

    @contextmanager
    def around(self, stream: Stream, track: str, nbytes: int) -> Iterator[None]:
        """Note the copy that the block puts into a stream."""
        index = stream.index
        with driver.current_kept():
            with self._lock:
                if index not in self._bases:
                    self._bases[index] = self._base(index)
            begin, end = TimedEvent(index), TimedEvent(index)
            begin.record(stream)
        yield
        with driver.current_kept():
            end.record(stream)
        with self._lock:
            self._pending.append((index, track, nbytes, begin, end))
            if len(self._pending) > _MOST_PENDING:
                self._note_finished()

    def _base(self, index: int) -> tuple[TimedEvent, float]:
        """Return an event and the host's time at which it was reached."""
        event, stream = TimedEvent(index), Stream(index)
        try:
            event.record(stream)
            event.synchronize()
        finally:
            stream.close()
        return event, perf_counter()

    def _note_finished(self) -> None:
        while self._pending and self._pending[0][4].is_reached():
            index, track, nbytes, begin, end = self._pending.popleft()
            base, base_s = self._bases[index]
            times = [base_s + driver.elapsed_ms(base, event) / 1e3 for event in (begin, end)]
            rate = nbytes / max(1e-9, times[1] - times[0]) / 1e9
            name = f"{nbytes:,} bytes"
            self._trace.add(f"cuda:{index}", track, name, *times, bytes=nbytes, gb_per_s=rate)

    def close(self) -> None:
        """Note the remaining copies, all of which have ended."""
        with self._lock:
            self._note_finished()
            self._pending.clear()


def noted(
    times: CopyTimes | None, stream: Stream, track: str, nbytes: int
) -> AbstractContextManager[None]:
    """Return a context manager that notes the copy of its block, if ``times`` is given."""
    return _NOT_NOTED if times is None else times.around(stream, track, nbytes)


_NOT_NOTED = nullcontext()
