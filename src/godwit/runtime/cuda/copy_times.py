"""When copies of a lane ran, for the timeline of a run; without a trace there is none of this.

Two events with times enclose each copy in its stream. An event that was recorded while nothing ran ties a
GPU's time to the host's. What has ended is noted when the next copies are made, and all at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock
from time import perf_counter
from typing import Any

from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Stream, TimedEvent

_MOST_WAITING = 64


class CopyTimes:
    """Notes the copies in the streams of some GPUs.

    :param trace: a :class:`godwit.trace.Trace`
    """

    def __init__(self, trace: Any) -> None:
        self._trace = trace
        self._bases: dict[int, tuple[TimedEvent, float]] = {}
        self._waiting: deque[tuple[int, str, int, TimedEvent, TimedEvent]] = deque()
        self._lock = Lock()

    @contextmanager
    def around(self, stream: Stream, track: str, nbytes: int) -> Iterator[None]:
        """What the block puts into a stream."""
        index = stream.index
        with driver.current_kept():
            with self._lock:
                if index not in self._bases:
                    self._bases[index] = self._base(stream)
            begin, end = TimedEvent(index), TimedEvent(index)
            begin.record(stream)
        yield
        with driver.current_kept():
            end.record(stream)
        with self._lock:
            self._waiting.append((index, track, nbytes, begin, end))
            if len(self._waiting) > _MOST_WAITING:
                self._note()

    def _base(self, stream: Stream) -> tuple[TimedEvent, float]:
        event = TimedEvent(stream.index)
        other = Stream(stream.index)  # nothing is in it
        try:
            event.record(other)
            event.synchronize()
        finally:
            other.close()
        return event, perf_counter()

    def _note(self) -> None:
        while self._waiting:
            index, track, nbytes, begin, end = self._waiting[0]
            if not end.is_reached():
                return
            self._waiting.popleft()
            base, base_s = self._bases[index]
            times = [base_s + driver.elapsed_ms(base, event) / 1e3 for event in (begin, end)]
            rate = nbytes / max(1e-9, times[1] - times[0]) / 1e9
            name = f"{nbytes:,} bytes"
            self._trace.add(f"cuda:{index}", track, name, *times, bytes=nbytes, gb_per_s=rate)

    def close(self) -> None:
        """Note what has not been; its copies have ended."""
        with self._lock:
            self._note()
            self._waiting.clear()


def noted(
    times: CopyTimes | None, stream: Stream, track: str, nbytes: int
) -> AbstractContextManager[None]:
    """A block whose copy is noted, if there is where."""
    return _UNNOTED if times is None else times.around(stream, track, nbytes)


_UNNOTED = nullcontext()
