"""Copies between host memory and GPUs, at the speed of the bus also for ordinary host memory.

:func:`upload` and :func:`download` return when all has arrived. The staging pool copies from and to
ordinary memory (staging.py); small arrays, and page-locked ones, are left to the driver. :class:`CopyTimes`
notes when copies ran, for traces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock
from time import perf_counter
from typing import Any

from godwit.dtypes import Array
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Stream, TimedEvent
from godwit.runtime.cuda.memory import Buffer, HeldArray, is_locked
from godwit.runtime.cuda.transfer.staging import StagedCopy, Way, staging_pool
from godwit.trace import HOST, copied

DIRECT_BYTES = 16 << 20
"""Up to this size the driver copies from and to ordinary memory: the pool may have to be made first."""
_MOST_PENDING = 64


def upload(buffer: Buffer, array: Array | HeldArray) -> None:
    """Copy an array of the host or of a GPU to the beginning of a GPU buffer.

    All has arrived when this returns.
    """
    if isinstance(array, HeldArray):
        _copy_between_gpus(buffer, array)
    else:
        buffer.upload(array)


def download(index: int, pointer: int, array: Array) -> None:
    """Fill a contiguous host array from an address of a GPU, where no work is under way."""
    _copy(Way.DOWN, index, pointer, array)


def fill(index: int, pointer: int, array: Array) -> None:
    """Fill memory of a GPU, where no work is under way, from a contiguous host array."""
    _copy(Way.UP, index, pointer, array)


def _copy(way: Way, index: int, pointer: int, array: Array) -> None:
    if array.nbytes == 0:
        return
    begin, host = perf_counter(), array.ctypes.data
    if not copy_by_pool(way, index, pointer, array):
        to, origin = (host, pointer) if way == Way.DOWN else (pointer, host)
        stream = Stream(index)
        try:
            driver.copy_async(to, origin, array.nbytes, stream)
            stream.synchronize()
        finally:
            stream.close()
    gpu = f"cuda:{index}"
    first, last = (gpu, HOST) if way == Way.DOWN else (HOST, gpu)
    copied(first, last, array.nbytes, begin)


def copy_by_pool(way: Way, index: int, pointer: int, array: Array) -> bool:
    """Copy between an address of a GPU and a contiguous array of the host, if the pool is faster.

    :returns: False, and nothing was done, if the driver is as fast: small arrays, and page-locked ones
    """
    host = array.ctypes.data
    if array.nbytes <= DIRECT_BYTES or is_locked(host, array.nbytes):
        return False
    to, origin = (host, pointer) if way == Way.DOWN else (pointer, host)
    copy = staging_pool().start(StagedCopy(way, index, to, origin, array.nbytes))
    try:
        copy.wait()
    except BaseException:  # Ctrl-C: threads may still use the memory
        copy.settle()
        raise
    return True


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
            self._note(index, track, nbytes, *times)

    def note_staged(self, copy: StagedCopy) -> None:
        """Note a copy by the staging pool, which has arrived."""
        gpu = f"cuda:{copy.index}"
        ends = (gpu, HOST) if copy.way == Way.DOWN else (HOST, gpu)
        self._note(copy.index, f"copy {ends[0]} -> {ends[1]}", copy.nbytes, *copy.times_s)

    def _note(self, index: int, track: str, nbytes: int, begin_s: float, end_s: float) -> None:
        rate = nbytes / max(1e-9, end_s - begin_s) / 1e9
        name = f"{nbytes:,} bytes"
        self._trace.add(f"cuda:{index}", track, name, begin_s, end_s, bytes=nbytes, gb_per_s=rate)

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
