"""Lanes: copies into one endpoint's memory by copy engines, which overlap with kernels and with each other.

A lane has a stream of its own on each GPU that it copies from or to: for a copy between GPUs on the source
(between H200s a push reached 361 GB/s in packets of 16 MiB, a pull 314), else on the GPU. So both
directions of a bus are used at once, and a copy waits for kernels only by events. Between GPUs without peer
access, or with ``transport="host"``, segments take two hops through a ring of page-locked pieces
(:class:`HostHop`), which overlap. No call blocks the host, but for copies of some kilobytes that the host
makes itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.copies import (
    STAGING_BYTES,
    CopyTimes,
    StagingSlot,
    StagingThreads,
    noted,
    stagings,
)
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.events import event_pool
from godwit.runtime.cuda.gpu_arrays import address_of, gpu_of
from godwit.runtime.cuda.libraries import bindings
from godwit.runtime.cuda.memory import PoolBlock, is_locked, pinned_pool
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
        """Put a copy into a stream; not one between GPUs."""
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
        """Put a copy to another GPU into the source's stream."""
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


class HostHop:
    """Copies from GPU to GPU through the host: a ring of pieces, one of which fills while another empties.

    Invariant: a piece is filled after the last copy out of it.
    """

    def __init__(self, streams: Streams, held: ExitStack) -> None:
        taken = held.enter_context(stagings(_HOP_PIECES * _HOP_BYTES // STAGING_BYTES))
        self._pieces = [
            StagingSlot(staging, offset)
            for staging in taken
            for offset in range(0, STAGING_BYTES, _HOP_BYTES)
        ]
        self._streams = streams
        self._next = 0

    def copy(
        self, to: int, there: int, origin: int, here: int, nbytes: int, after: Sequence[Event]
    ) -> Event:
        """Put both hops of all pieces into the streams."""
        down, up = self._streams.on(here), self._streams.on(there)
        # Only the second hop has to wait for the target's readers; but an event does not name its purpose.
        arrived: Event = READY
        for at in range(0, nbytes, _HOP_BYTES):
            piece = self._pieces[self._next]
            self._next = (self._next + 1) % len(self._pieces)
            length = min(_HOP_BYTES, nbytes - at)
            events = (piece.free, *after) if at == 0 else (piece.free,)
            track = f"copy cuda:{here} -> host"
            left = self._streams.copy(piece.pointer, origin + at, length, down, events, track)
            track = f"copy host -> cuda:{there}"
            arrived = self._streams.copy(to + at, piece.pointer, length, up, (left,), track)
            piece.free = arrived
        return arrived


class _SmallSlots:
    """Page-locked slots for arrays of some kilobytes, which the host copies there itself."""

    def __init__(self) -> None:
        self._pool = pinned_pool(None)
        self._block: PoolBlock = self._pool.allocate(_SMALL_SLOTS * _SMALL_BYTES)
        begin = self._block.view(np.uint8, (_SMALL_SLOTS * _SMALL_BYTES,)).ctypes.data
        self._addresses = [begin + slot * _SMALL_BYTES for slot in range(_SMALL_SLOTS)]
        self._free: list[Event] = [READY] * _SMALL_SLOTS
        self._next = 0

    def moved(self, source: Array, send: Callable[[int], Event]) -> Event | None:
        """Copy an array to a free slot and send it from there; None if no slot is free."""
        slot = self._next
        if not self._free[slot].done():
            return None
        self._next = (slot + 1) % _SMALL_SLOTS
        ctypes.memmove(self._addresses[slot], source.ctypes.data, source.nbytes)
        event = self._free[slot] = send(self._addresses[slot])
        return event

    def close(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._pool.close)
            stack.callback(self._block.free)


class GpuLane:
    """Copies into the memory of a GPU."""

    def __init__(
        self,
        index: int,
        staging: StagingThreads,
        transport: Transport,
        times: CopyTimes | None = None,
    ) -> None:
        self._index = index
        self._staging = staging
        self._straight = transport == "direct"
        self._streams = Streams(times)
        self._held = ExitStack()
        self._hop: HostHop | None = None
        self._small: _SmallSlots | None = None

    def copy(self, source: Any, view: Any, after: Sequence[Event]) -> Event:
        """Start to copy an array of the host, or of any GPU."""
        driver.enter_any(self._index)
        to, nbytes = address_of(view), int(view.nbytes)
        if isinstance(source, np.ndarray):
            return self.from_host(source, to, nbytes, after)
        here, origin = gpu_of(source), address_of(source)
        if here == self._index:
            track = f"copy within cuda:{here}"
            return self._streams.copy(to, origin, nbytes, self._streams.on(here), after, track)
        if self._straight and are_peers(here, self._index):
            return self._streams.copy_peer(to, self._index, origin, here, nbytes, after)
        if self._hop is None:
            self._hop = HostHop(self._streams, self._held)
        return self._hop.copy(to, self._index, origin, here, nbytes, after)

    def from_host(self, source: Array, to: int, nbytes: int, after: Sequence[Event]) -> Event:
        """Start to copy an array of the host to an address, after some events."""
        driver.enter_any(self._index)
        stream, track = self._streams.on(self._index), f"copy host -> cuda:{self._index}"
        origin = source.ctypes.data
        if is_locked(origin, nbytes):
            return self._streams.copy(to, origin, nbytes, stream, after, track)
        if nbytes <= _SMALL_BYTES and all(event.done() for event in after):
            if self._small is None:
                self._small = _SmallSlots()
            moved = self._small.moved(
                source, lambda place: self._streams.copy(to, place, nbytes, stream, (), track)
            )
            if moved is not None:
                return moved
        return self._staging.to_gpu(source, to, after)

    def close(self) -> None:
        """Wait for all copies, and free streams and buffers. A second call has no effect."""
        small, self._small = self._small, None
        self._hop = None
        with ExitStack() as stack:
            if small is not None:
                stack.callback(small.close)
            stack.callback(self._held.close)
            stack.callback(self._streams.close)


class PinnedLane:
    """Copies into page-locked memory of the host."""

    def __init__(self, staging: StagingThreads, times: CopyTimes | None = None) -> None:
        self._staging = staging
        self._streams = Streams(times)

    def copy(self, source: Any, view: Any, after: Sequence[Event]) -> Event:
        """Start to copy an array of a GPU, or of the host."""
        if not isinstance(source, np.ndarray):
            here, origin = gpu_of(source), address_of(source)
            driver.enter_any(here)
            nbytes = int(source.nbytes)
            stream, track = self._streams.on(here), f"copy cuda:{here} -> host"
            return self._streams.copy(view.ctypes.data, origin, nbytes, stream, after, track)
        if source.nbytes <= _AT_ONCE_BYTES and all(event.done() for event in after):
            np.copyto(view, source)
            return READY
        return self._staging.to_host(source, view.ctypes.data, after)

    def close(self) -> None:
        """Wait for all copies, and free the streams. A second call has no effect."""
        self._streams.close()
