"""Assembly of the result from the kept items of packets.

Invariant: the position of a packet's kept items is known when all previous packets are counted. Items that
arrive earlier stay on their GPU, or, if that needs the room for other packets, are set aside: so the packet
that others wait for always finds room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

from godwit.algorithms.filtering.cpu import too_small
from godwit.dtypes import Array
from godwit.errors import DeviceError
from godwit.runtime.cuda.transfer.staging import StagedCopy, Way, staging_pool
from godwit.runtime.memory import Event

_PROGRESS_S = 0.05


@dataclass(frozen=True)
class Packet:
    """Items of the array that a GPU filters at a time."""

    begin: int
    length: int


class Share(Protocol):
    """Items of an array, claimed packet by packet, and the positions of kept items in the result.

    One thread calls all methods.
    """

    @property
    def left_items(self) -> int:
        """Number of items that are not claimed."""

    def take(self, most_items: int) -> tuple[int, int] | None:
        """Claim the next items; return their begin and end, or None if all are claimed."""

    def counted(self, begin: int, length: int, kept: int) -> None:
        """Record the number of kept items of a packet."""

    def place(self, begin: int) -> int | None:
        """Return the position of a packet's kept items in the result; None while unknown."""

    @property
    def placed(self) -> tuple[int, int]:
        """Number of items, from the front, whose positions are known, and of kept ones among them."""


class PacketShare:
    """:class:`Share` of an array that GPUs filter alone.

    :param ordered: False: kept items are placed in the order in which packets are counted
    """

    def __init__(self, size: int, *, ordered: bool) -> None:
        self._size = size
        self._claimed = 0
        self._ordered = ordered
        self._counts: dict[int, tuple[int, int]] = {}
        self._places: dict[int, int] = {}
        self._begin = 0  # of the first packet whose position is unknown
        self._total = 0

    @property
    def left_items(self) -> int:
        """Number of items that are not claimed."""
        return self._size - self._claimed

    def take(self, most_items: int) -> tuple[int, int] | None:
        """Claim the next items; return their begin and end, or None if all are claimed."""
        begin = self._claimed
        self._claimed = min(self._size, begin + max(1, most_items))
        return None if begin == self._size else (begin, self._claimed)

    def counted(self, begin: int, length: int, kept: int) -> None:
        """Record the number of kept items of a packet."""
        if not self._ordered:
            self._put(begin, length, kept)
            return
        self._counts[begin] = length, kept
        while self._begin in self._counts:
            self._put(self._begin, *self._counts.pop(self._begin))

    def _put(self, begin: int, length: int, kept: int) -> None:
        self._places[begin] = self._total
        self._begin += length
        self._total += kept

    def place(self, begin: int) -> int | None:
        """Return the position of a packet's kept items in the result; None while unknown."""
        return self._places.get(begin)

    @property
    def placed(self) -> tuple[int, int]:
        """Number of items, from the front, whose positions are known, and of kept ones among them."""
        return self._begin, self._total


class Assembly:
    """The result, and copies of kept items into it.

    :param room: array for the result
    :param is_ours: True if it may grow
    :param progress: called with the number of items whose positions are known
    """

    def __init__(
        self, share: Share, room: Array, *, is_ours: bool, progress: Callable[[int], None] | None
    ) -> None:
        self._share = share
        self._progress = progress
        self._is_ours = is_ours
        self._room: Any = room
        self._aside: dict[int, tuple[Packet, Array, Event]] = {}
        """By begin of the packet: kept items, and when they have arrived."""
        self._copies: deque[tuple[Event, Array]] = deque()
        """Copies into the result, and from where."""
        self._reported = perf_counter()

    def counted(self, packet: Packet, count: int) -> None:
        """Record the number of kept items of a packet; :meth:`place` or :meth:`set_aside` follow."""
        self._share.counted(packet.begin, packet.length, count)

    def place(self, packet: Packet, count: int) -> Array | None:
        """Return the part of the result for a packet's kept items; None while its position is unknown.

        :raises InputError: the room is too small
        """
        begin = self._share.place(packet.begin)
        if begin is None:
            return None
        end = begin + count
        if end > len(self._room):
            self._make_room(end)
        room: Array = self._room[begin:end]
        return room

    def copied(self, event: Event, array: Array) -> None:
        """Record a copy into a part of the result, or from an array that lives until then."""
        self._copies.append((event, array))
        while self._copies and self._copies[0][0].done():
            self._copies.popleft()

    def set_aside(self, packet: Packet, array: Array, arrival: Event) -> None:
        """Keep a packet's kept items until their position is known."""
        self._aside[packet.begin] = packet, array, arrival

    def advance(self) -> bool:
        """Move items whose position has become known; return True if none wait."""
        while self._aside:
            packet, array, arrival = self._aside[min(self._aside)]
            to = self.place(packet, len(array)) if arrival.done() else None
            if to is None:
                break
            del self._aside[packet.begin]
            copy = StagedCopy(Way.WITHIN_HOST, 0, to.ctypes.data, array.ctypes.data, array.nbytes)
            self.copied(staging_pool().start(copy), array)
        if self._progress is not None and perf_counter() - self._reported > _PROGRESS_S:
            self._reported = perf_counter()
            self._progress(self._share.placed[0])
        return not self._aside

    def _make_room(self, end: int) -> None:
        if not self._is_ours:
            raise too_small(self._room, end)
        self.settle()
        self._room.resize(max(end, 2 * len(self._room)), refcheck=False)

    def settle(self) -> None:
        """Wait for all copies."""
        while self._copies:
            self._copies[0][0].wait()
            self._copies.popleft()

    def result(self) -> Array:
        """Return the result; all packets have been taken or copied to their position."""
        self.settle()
        items, kept = self._share.placed
        if self._progress is not None:
            self._progress(items)
        if self._is_ours:
            # In place: the system takes back pages never touched.
            self._room.resize(kept, refcheck=False)
            return self._room  # type: ignore[no-any-return]
        return self._room[:kept]  # type: ignore[no-any-return]

    def close(self) -> None:
        """Wait until nothing is copied to or from the arrays any more, be it that copies fail."""
        for event, _ in (*self._copies, *((at, array) for _, array, at in self._aside.values())):
            with suppress(DeviceError):
                event.wait()
