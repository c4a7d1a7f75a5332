"""Lanes: copies into one endpoint's memory by copy engines, which overlap with kernels and with each other.

A lane has a stream of its own on each GPU that it copies from or to: for a copy between GPUs on the source
(between H200s a push reached 361 GB/s in packets of 16 MiB, a pull 314), else on the GPU. So both
directions of a bus are used at once, and a copy waits for kernels only by events. Between GPUs without peer
access, or with ``transport="host"``, segments take two hops through a ring of page-locked pieces
(:class:`HostHop`), which overlap. The staging pool copies from and to ordinary memory; for these copies
the host waits, not streams. No call here blocks the host, but for small copies that it makes itself.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.events import event_pool
from godwit.runtime.cuda.gpu_arrays import address_of, gpu_of
from godwit.runtime.cuda.libraries import bindings
from godwit.runtime.cuda.memory import is_locked, keep_pinned, take_pinned
from godwit.runtime.cuda.transfer.copies import CopyTimes, noted
from godwit.runtime.cuda.transfer.staging import StagedCopy, Way, staging_pool
from godwit.runtime.memory import READY, Event, Transport

_SMALL_BYTES = 64 << 10
_SMALL_SLOTS = 16
_AT_ONCE_BYTES = 256 << 10
"""Largest copy within host memory that the calling thread makes itself."""
_HOP_PIECES = 4
_HOP_BYTES = 2 << 20


@lru_cache(maxsize=1024)
def are_peers(here: int, there: int) -> bool:
    """Return True if two GPUs have peer access to each other, after enabling it."""
    if not (driver.can_access_peer(here, there) and driver.can_access_peer(there, here)):
        return False
    with driver.current_kept():
        driver.enable_peer_access([here, there])
    return True


_spare_streams: dict[int, list[Stream]] = {}
_MOST_SPARE = 32


class Streams:
    """Streams of one lane, one per GPU; reused, since creating one takes longer than sending a megabyte.

    :param times: records copies for the trace, or None
    """

    def __init__(self, times: CopyTimes | None) -> None:
        self._streams: dict[int, Stream] = {}
        self._times = times
        # Looked up once, which small messages profit from.
        _, runtime = bindings()
        self._copy_peer = runtime.cudaMemcpyPeerAsync

    def on(self, index: int) -> Stream:
        """Return the stream on a GPU."""
        stream = self._streams.get(index)
        if stream is None:
            try:
                stream = _spare_streams.setdefault(index, []).pop()
            except IndexError:
                with driver.current_kept():
                    stream = Stream(index)
            self._streams[index] = stream
        return stream

    def copy(
        self, to: int, origin: int, nbytes: int, stream: Stream, after: Sequence[Event], track: str
    ) -> Event:
        """Enqueue a copy between the host and a GPU, or within a GPU; return the event of its end.

        :param to: address to copy to
        :param origin: address to copy from
        :param after: events that the copy waits for
        :param track: track of the copy in a trace
        """
        _, runtime = bindings()
        for event in after:
            event.wait_on(stream)
        with noted(self._times, stream, track, nbytes):
            kind = runtime.cudaMemcpyKind.cudaMemcpyDefault
            outcome = runtime.cudaMemcpyAsync(to, origin, nbytes, kind, stream.native)
        if outcome[0]:
            driver.checked(outcome, f"copying {nbytes:,} bytes on cuda:{stream.index}")
        return event_pool(stream.index).record(stream.native)

    def copy_peer(
        self, to: int, there: int, origin: int, here: int, nbytes: int, after: Sequence[Event]
    ) -> Event:
        """Enqueue a copy between two GPUs in the source's stream; return the event of its end.

        :param to: address to copy to, on the GPU of index ``there``
        :param origin: address to copy from, on the GPU of index ``here``
        :param after: events that the copy waits for
        """
        stream = self.on(here)
        native = stream.native
        for event in after:
            event.wait_on(stream)
        given = to, there, origin, here, nbytes, native
        if self._times is None:
            outcome = self._copy_peer(*given)
        else:
            with self._times.around(stream, f"copy cuda:{here} -> cuda:{there}", nbytes):
                outcome = self._copy_peer(*given)
        if outcome[0]:
            driver.checked(outcome, f"copying {nbytes:,} bytes from cuda:{here} to cuda:{there}")
        return event_pool(here).record(native)

    def close(self) -> None:
        """Wait for all copies, and keep the streams for other lanes. A second call has no effect."""
        streams = list(self._streams.values())
        self._streams.clear()
        with driver.current_kept(), ExitStack() as stack:  # runs all, even if some raise
            for stream in streams:
                stack.callback(self._give_back, stream)
            if self._times is not None:
                stack.callback(self._times.close)
            for stream in streams:
                stack.callback(stream.synchronize)

    def _give_back(self, stream: Stream) -> None:
        spare = _spare_streams.setdefault(stream.index, [])
        if len(spare) < _MOST_SPARE:
            spare.append(stream)
        else:
            stream.close()


class PinnedRing:
    """Page-locked pieces of the host that are used by turns.

    :param count: number of pieces
    :param nbytes: size of each
    """

    def __init__(self, count: int, nbytes: int) -> None:
        self._memory = take_pinned(count * nbytes)
        self._addresses = [self._memory.pointer + number * nbytes for number in range(count)]
        self._free: list[Event] = [READY] * count
        self._next = 0

    def next(self) -> tuple[int, Event]:
        """Return the address of the next piece, and the event after which it may be filled."""
        return self._addresses[self._next], self._free[self._next]

    def use(self, emptied: Event) -> None:
        """Note when the next piece will have been emptied, and go on to the one behind it."""
        self._free[self._next] = emptied
        self._next = (self._next + 1) % len(self._free)

    def close(self) -> None:
        """Keep the memory for others; all pieces have been emptied."""
        keep_pinned(self._memory)


class HostHop:
    """Copies from GPU to GPU through the host: of a ring of pieces, one fills while another empties.

    Invariant: a piece is filled after the last copy out of it.
    """

    def __init__(self, streams: Streams) -> None:
        self._ring = PinnedRing(_HOP_PIECES, _HOP_BYTES)
        self.close = self._ring.close
        self._streams = streams

    def copy(
        self, to: int, there: int, origin: int, here: int, nbytes: int, after: Sequence[Event]
    ) -> Event:
        """Put both hops of all pieces into the streams."""
        down, up = self._streams.on(here), self._streams.on(there)
        # Only the second hop has to wait for the target's readers; but an event does not name its purpose.
        arrived: Event = READY
        for at in range(0, nbytes, _HOP_BYTES):
            piece, free = self._ring.next()
            length = min(_HOP_BYTES, nbytes - at)
            events = (free, *after) if at == 0 else (free,)
            track = f"copy cuda:{here} -> host"
            left = self._streams.copy(piece, origin + at, length, down, events, track)
            track = f"copy host -> cuda:{there}"
            arrived = self._streams.copy(to + at, piece, length, up, (left,), track)
            self._ring.use(arrived)
        return arrived


class StagedCopies:
    """Copies of one lane by the staging pool.

    :param times: records copies for the trace, or None
    """

    def __init__(self, times: CopyTimes | None) -> None:
        self._note = None if times is None else times.note_staged
        self._started: deque[StagedCopy] = deque()

    def start(
        self, way: Way, index: int, to: int, origin: int, nbytes: int, after: Sequence[Event]
    ) -> StagedCopy:
        """Start to copy from an address to another, after some events."""
        while self._started and self._started[0].is_finished:
            self._started.popleft()
        note = None if way == Way.WITHIN_HOST else self._note
        copy = StagedCopy(way, index, to, origin, nbytes, note)
        self._started.append(copy)
        return staging_pool().start(copy, after)

    def close(self) -> None:
        """Wait until no copy is under way."""
        with ExitStack() as stack:  # waits for all, even if some raise
            while self._started:
                stack.callback(self._started.pop().settle)


class GpuLane:
    """Copies into the memory of a GPU."""

    def __init__(self, index: int, transport: Transport, times: CopyTimes | None = None) -> None:
        self._index = index
        self._straight = transport == "direct"
        self._streams = Streams(times)
        self._staged = StagedCopies(times)
        self._hop: HostHop | None = None
        self._small: PinnedRing | None = None

    def copy(self, source: Any, to: int, after: Sequence[Event]) -> Event:
        """Start to copy an array of the host, or of any GPU."""
        if isinstance(source, np.ndarray):
            return self.from_host(source, to, after)
        driver.enter_any(self._index)
        here, origin, nbytes = gpu_of(source), address_of(source), int(source.nbytes)
        if here == self._index:
            track = f"copy within cuda:{here}"
            return self._streams.copy(to, origin, nbytes, self._streams.on(here), after, track)
        if self._straight and are_peers(here, self._index):
            return self._streams.copy_peer(to, self._index, origin, here, nbytes, after)
        if self._hop is None:
            self._hop = HostHop(self._streams)
        return self._hop.copy(to, self._index, origin, here, nbytes, after)

    def from_host(self, source: Array, to: int, after: Sequence[Event]) -> Event:
        """Start to copy an array of the host to an address, after some events."""
        driver.enter_any(self._index)
        stream, track = self._streams.on(self._index), f"copy host -> cuda:{self._index}"
        origin, nbytes = source.ctypes.data, source.nbytes
        if is_locked(origin, nbytes):
            return self._streams.copy(to, origin, nbytes, stream, after, track)
        if nbytes <= _SMALL_BYTES and all(event.done() for event in after):
            # The calling thread copies some kilobytes itself, if a piece is empty.
            if self._small is None:
                self._small = PinnedRing(_SMALL_SLOTS, _SMALL_BYTES)
            place, free = self._small.next()
            if free.done():
                ctypes.memmove(place, origin, nbytes)
                arrived = self._streams.copy(to, place, nbytes, stream, (), track)
                self._small.use(arrived)
                return arrived
        return self._staged.start(Way.UP, self._index, to, origin, nbytes, after)

    def close(self) -> None:
        """Wait for all copies, and free streams and buffers. A second call has no effect."""
        rings, self._small, self._hop = (self._small, self._hop), None, None
        with ExitStack() as stack:
            for ring in rings:
                if ring is not None:
                    stack.callback(ring.close)
            stack.callback(self._streams.close)
            stack.callback(self._staged.close)


class HostLane:
    """Copies into memory of the host."""

    def __init__(self, times: CopyTimes | None = None) -> None:
        self._streams = Streams(times)
        self._staged = StagedCopies(times)

    def copy(self, source: Any, to: int, after: Sequence[Event]) -> Event:
        """Start to copy an array of a GPU, or of the host."""
        nbytes = int(source.nbytes)
        if not isinstance(source, np.ndarray):
            return self.from_gpu(gpu_of(source), address_of(source), to, nbytes, after)
        origin = source.ctypes.data
        if nbytes <= _AT_ONCE_BYTES and all(event.done() for event in after):
            ctypes.memmove(to, origin, nbytes)
            return READY
        return self._staged.start(Way.WITHIN_HOST, 0, to, origin, nbytes, after)

    def from_gpu(
        self, index: int, origin: int, to: int, nbytes: int, after: Sequence[Event]
    ) -> Event:
        """Start to copy from an address of a GPU to one of the host, after some events."""
        driver.enter_any(index)
        if is_locked(to, nbytes):
            stream, track = self._streams.on(index), f"copy cuda:{index} -> host"
            return self._streams.copy(to, origin, nbytes, stream, after, track)
        return self._staged.start(Way.DOWN, index, to, origin, nbytes, after)

    def close(self) -> None:
        """Wait for all copies, and free the streams. A second call has no effect."""
        with ExitStack() as stack:
            stack.callback(self._streams.close)
            stack.callback(self._staged.close)
