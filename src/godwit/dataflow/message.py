"""A message on its way: an array that a link cuts into segments as receivers become free."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from godwit.dataflow.future import Future
from godwit.dataflow.segment import Segment
from godwit.errors import InputError
from godwit.runtime.memory import Event

if TYPE_CHECKING:
    from godwit.dataflow.endpoint import Endpoint
    from godwit.dataflow.receiver import Slot


class Message:
    """Rows that one send brought.

    :param array: C-contiguous, with at least one dimension
    :param rows: of a segment, at most
    :param after: what has to be reached before the rows may be read
    :param future: resolved when every segment has been taken out of the array
    :param claimed: called whenever a segment has found its receiver
    :ivar is_cut: whether all of its segments have been made
    :ivar passed_on: the buffer, or the message, that its array is part of, and that waits for it to be read
    """

    def __init__(
        self,
        array: Any,
        rows: int,
        metadata: Any,
        priority: float,
        source: Endpoint,
        after: tuple[Event, ...],
        future: Future[None],
        claimed: Callable[[], None],
    ) -> None:
        self.after = after
        self.claimed = claimed
        self.passed_on: Slot | Message | None = None
        self.priority = priority
        self.is_cut = False
        self._array = array
        self._rows = rows
        self._metadata = metadata
        self._source = source
        self._future = future
        self._next = 0
        self._lock = threading.RLock()  # as the link's
        self._under_way = 1  # the last segment, which is to come
        self._events: tuple[Event, ...] = ()

    def cut(self) -> Segment:
        """The next segment; an array without rows is one segment.

        Behind the last the array is the segments' alone: stale offers, which know the message, may stay.
        """
        begin, array = self._next, self._array
        total = len(array)
        if begin == 0 and total <= self._rows:
            self.is_cut, self._array = True, None
            return Segment(array, 0, total, self._metadata, self._source)
        end = min(begin + self._rows, total)
        self._next = end
        if end == total:
            self.is_cut, self._array = True, None
        else:
            self.started(1)
        return Segment(array[begin:end], begin, total, self._metadata, self._source)

    def started(self, segments: int) -> None:
        """So many more are to finish before it has arrived."""
        with self._lock:
            self._under_way += segments

    def hold(self) -> None:
        """One more reads a segment of it in place, while another one is sure to do."""
        self.started(1)

    def finished(self, events: tuple[Event, ...]) -> None:
        """One of them has it, or will have read it when events are reached."""
        with self._lock:
            self._under_way -= 1
            left = self._under_way
            if self._events or left:
                events = tuple(event for event in (*self._events, *events) if not event.done())
            self._events = events
        if left == 0:
            self._future.resolve(None, events)

    def settle(self) -> None:
        """Let go of what it passes on, if all of it has been taken; with no receiver's lock."""
        with self._lock:
            if self._under_way:
                return
            origin, self.passed_on = self.passed_on, None
        if origin is not None:
            origin.let_go(self._events)

    def let_go(self, events: tuple[Event, ...]) -> None:
        """Who read one of its segments in place has done so when events are reached; likewise."""
        self.finished(events)
        if self.passed_on is not None:
            self.settle()


def rows_of_packet(array: Any, packet_bytes: int, link: str) -> int:
    """How many rows of an array fit into a packet.

    :raises InputError: not one
    """
    if array.nbytes <= packet_bytes:
        return len(array)
    row_bytes = array.dtype.itemsize
    for extent in array.shape[1:]:
        row_bytes *= extent
    if row_bytes > packet_bytes:
        raise InputError(
            f"one row of {row_bytes:,} bytes does not fit into the packets of {packet_bytes:,} bytes that "
            f"{link} takes: make it with a larger packet_bytes"
        )
    return int(packet_bytes // max(1, row_bytes))
