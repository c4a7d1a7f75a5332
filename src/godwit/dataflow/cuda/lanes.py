"""Lanes: copies into one endpoint's memory by the copy engines, beside kernels and beside each other.

A lane has a stream of its own on each GPU that it copies from, or to: the source's, where there is one
(between H200s a push reached 361 GB/s in packets of 16 MiB, a pull 314), else the target's, so that both
directions of a bus are busy at once, and no copy waits for a kernel but by an event. Between GPUs without
peer access, or where the user wants it so, segments take two hops through a ring of page-locked pieces
(:class:`HostHop`), which overlap. Nothing here holds up the caller, but for copies of a few kilobytes that
the host makes itself.
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
from godwit.runtime.cuda.copy_times import CopyTimes, noted
from godwit.runtime.cuda.download import STAGING_BYTES, Staging, stagings
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.events import event_pool
from godwit.runtime.cuda.gpu_arrays import address_of, place_of
from godwit.runtime.cuda.libraries import bindings
from godwit.runtime.cuda.ordinary_memory import Crew
from godwit.runtime.cuda.pools import PoolBlock, pinned_pool
from godwit.runtime.memory import READY, Event, Transport

_SMALL_BYTES = 64 << 10
_SMALL_SLOTS = 16
_AT_ONCE_BYTES = 256 << 10
"""Of a copy on the host that is made in the caller's thread."""
_PAGE_BYTES = 4096
_HOP_PIECES = 4
_HOP_BYTES = 2 << 20


@lru_cache(maxsize=1024)
def are_peers(here: int, there: int) -> bool:
    """Whether copies between two GPUs go straight; lets them, if they can."""
    if not (driver.can_access_peer(here, there) and driver.can_access_peer(there, here)):
        return False
    with driver.current_kept():
        driver.enable_peer_access([here, there])
    return True


def is_locked(address: int, nbytes: int) -> bool:
    """Whether copy engines reach host memory: page-locked, or managed, from its first byte to its last.

    Asked each time: what is freed and allocated again at the same address may be another kind.
    """
    _, runtime = bindings()
    last = address + nbytes - 1
    for place in (address,) if address // _PAGE_BYTES == last // _PAGE_BYTES else (address, last):
        status, found = runtime.cudaPointerGetAttributes(place)
        if status:
            runtime.cudaGetLastError()  # it sticks otherwise
            return False
        if found.type == runtime.cudaMemoryType.cudaMemoryTypeUnregistered:
            return False
    return True


_spare_streams: dict[int, list[Stream]] = {}
_MOST_SPARE = 32


class Streams:
    """Of one lane: one on each GPU that it needs one on; kept for the next lane, as making one takes longer
    than sending a megabyte.

    :param times: where copies are noted, or None
    """

    def __init__(self, times: CopyTimes | None) -> None:
        self._streams: dict[int, Stream] = {}
        self._times = times
        # Looked up once, for small messages.
        _, runtime = bindings()
        self._copy_peer = runtime.cudaMemcpyPeerAsync

    def on(self, index: int) -> Stream:
        """The stream on a GPU."""
        found = self._streams.get(index)
        if found is None:
            try:
                found = _spare_streams.setdefault(index, []).pop()
            except IndexError:
                with driver.current_kept():
                    found = Stream(index)
            self._streams[index] = found
        return found

    def copy(
        self, to: int, origin: int, nbytes: int, stream: Stream, after: Sequence[Event], track: str
    ) -> Event:
        """Put a copy into a stream, in any direction but between GPUs."""
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
        """Push from one GPU to another."""
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
        """Wait for what is on its way, and give the streams back; twice does no harm."""
        streams = list(self._streams.values())
        self._streams.clear()
        with driver.current_kept(), ExitStack() as stack:  # for each, whatever the others raise
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
    """A way from GPU to GPU through the host: a ring of pieces, which one fills while the other empties.

    Invariant: a piece is filled after the copy out of it that was put into a stream last.
    """

    def __init__(self, streams: Streams, held: ExitStack) -> None:
        taken = held.enter_context(stagings(_HOP_PIECES * _HOP_BYTES // STAGING_BYTES))
        self._pieces = [
            _Piece(staging, offset)
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


class _Piece:
    """Part of a page-locked buffer; its memory is held by whoever holds the staging."""

    __slots__ = ("free", "pointer")

    def __init__(self, staging: Staging, offset: int) -> None:
        self.pointer = staging.pointer + offset
        self.free: Event = READY


class _SmallSlots:
    """Page-locked places for arrays of some kilobytes, which the host moves there itself."""

    def __init__(self) -> None:
        self._pool = pinned_pool(None)
        self._block: PoolBlock = self._pool.allocate(_SMALL_SLOTS * _SMALL_BYTES)
        begin = self._block.view(np.uint8, (_SMALL_SLOTS * _SMALL_BYTES,)).ctypes.data
        self._places = [begin + slot * _SMALL_BYTES for slot in range(_SMALL_SLOTS)]
        self._free: list[Event] = [READY] * _SMALL_SLOTS
        self._next = 0

    def moved(self, source: Array, send: Callable[[int], Event]) -> Event | None:
        """Send what was moved to a free place; None where there is no free one."""
        slot = self._next
        if not self._free[slot].done():
            return None
        self._next = (slot + 1) % _SMALL_SLOTS
        ctypes.memmove(self._places[slot], source.ctypes.data, source.nbytes)
        event = self._free[slot] = send(self._places[slot])
        return event

    def close(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._pool.close)
            stack.callback(self._block.free)


class GpuLane:
    """Into the memory of a GPU.

    :param crew: for ordinary host memory
    :param transport: to other GPUs
    """

    def __init__(
        self, index: int, crew: Crew, transport: Transport, times: CopyTimes | None = None
    ) -> None:
        self._index = index
        self._crew = crew
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
        here, origin = place_of(source)
        if here == self._index:
            track = f"copy within cuda:{here}"
            return self._streams.copy(to, origin, nbytes, self._streams.on(here), after, track)
        if self._straight and are_peers(here, self._index):
            return self._streams.copy_peer(to, self._index, origin, here, nbytes, after)
        if self._hop is None:
            self._hop = HostHop(self._streams, self._held)
        return self._hop.copy(to, self._index, origin, here, nbytes, after)

    def from_host(self, source: Array, to: int, nbytes: int, after: Sequence[Event]) -> Event:
        """Start to copy an array of the host to an address, once some events are reached."""
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
        return self._crew.to_gpu(source, to, after)

    def close(self) -> None:
        """Wait for what is on its way, and give all back; twice does no harm."""
        small, self._small = self._small, None
        self._hop = None
        with ExitStack() as stack:
            if small is not None:
                stack.callback(small.close)
            stack.callback(self._held.close)
            stack.callback(self._streams.close)


class PinnedLane:
    """Into page-locked memory of the host."""

    def __init__(self, crew: Crew, times: CopyTimes | None = None) -> None:
        self._crew = crew
        self._streams = Streams(times)

    def copy(self, source: Any, view: Any, after: Sequence[Event]) -> Event:
        """Start to copy an array of a GPU, or of the host."""
        if not isinstance(source, np.ndarray):
            here, origin = place_of(source)
            driver.enter_any(here)
            nbytes = int(source.nbytes)
            stream, track = self._streams.on(here), f"copy cuda:{here} -> host"
            return self._streams.copy(view.ctypes.data, origin, nbytes, stream, after, track)
        if source.nbytes <= _AT_ONCE_BYTES and all(event.done() for event in after):
            np.copyto(view, source)
            return READY
        return self._crew.to_host(source, view.ctypes.data, after)

    def close(self) -> None:
        """Wait for what is on its way, and give all back; twice does no harm."""
        self._streams.close()
