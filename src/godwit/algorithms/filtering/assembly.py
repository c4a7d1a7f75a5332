"""Assembly of the result from the kept items of packets.

Invariant: the position of a packet's kept items is known when all previous packets are counted. Items that
arrive earlier are set aside, so that the packet others wait for always gets a buffer.

Threads copy, large pieces in parallel, in the order of requests; so a copy that sets items aside runs
before the one that moves them on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future as Job
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from godwit.algorithms.filtering.cpu import too_small
from godwit.dtypes import Array

_PROGRESS_S = 0.05
_SMALL_BYTES = 1 << 17  # copied by the calling thread
_PIECE_BYTES = 4 << 20  # smallest part of a copy by several threads


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


class Piece(Protocol):
    """Kept items of a packet in a buffer of the host."""

    array: Any

    def release(self) -> None:
        """Release the buffer; called by any thread."""


class Assembly:
    """The result, and copies of kept items into it.

    :param room: array for the result
    :param is_ours: True if it may grow
    :param progress: called with the number of items whose positions are known
    :param movers: number of threads that copy
    :param most_held: number of pieces that may stay in their buffers until their position is known
    """

    def __init__(
        self,
        share: Share,
        room: Array,
        *,
        is_ours: bool,
        progress: Callable[[int], None] | None,
        movers: int,
        most_held: int,
    ) -> None:
        self._share = share
        self._progress = progress
        self._is_ours = is_ours
        self._room: Any = room
        self._waiting: dict[int, tuple[Packet, Any, Piece | None, Job[None] | None]] = {}
        """By begin of the packet: kept items, the piece that holds them, the job that sets them aside."""
        self._held = 0
        self._most_held = most_held
        self._reported = perf_counter()
        self._jobs: deque[Job[None]] = deque()
        self._movers = movers
        self._pool = ThreadPoolExecutor(movers, "godwit-filter") if movers > 1 else None

    def counted(self, packet: Packet, count: int) -> None:
        """Record the number of kept items of a packet; :meth:`place` or :meth:`take` follow."""
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

    def take(self, packet: Packet, piece: Piece) -> None:
        """Move a packet's kept items to their position, now or when it is known."""
        to = self.place(packet, len(piece.array))
        if to is not None:
            self._move(to, piece.array, piece)
            return
        array: Any = piece.array
        held: Piece | None = piece
        aside: Job[None] | None = None
        if self._held == self._most_held:
            room = np.empty_like(array)
            aside = self._copy(room, array, piece.release)
            array, held = room, None
        self._held += held is not None
        self._waiting[packet.begin] = packet, array, held, aside

    def advance(self) -> bool:
        """Move items whose position has become known; return True if none wait."""
        while self._waiting:
            packet, array, held, aside = self._waiting[min(self._waiting)]
            to = self.place(packet, len(array))
            if to is None:
                break
            del self._waiting[packet.begin]
            self._held -= held is not None
            self._move(to, array, held, aside)
        if self._progress is not None and perf_counter() - self._reported > _PROGRESS_S:
            self._reported = perf_counter()
            self._progress(self._share.placed[0])
        return not self._waiting

    def _move(
        self, to: Array, array: Any, piece: Piece | None, aside: Job[None] | None = None
    ) -> None:
        """Copy a packet's kept items to their position, and release their buffer."""
        parts = max(1, min(self._movers, array.nbytes // _PIECE_BYTES))
        done = count(1)

        def release() -> None:
            if piece is not None and next(done) == parts:  # next() is atomic
                piece.release()

        for part in range(parts):
            cut = slice(len(array) * part // parts, len(array) * (part + 1) // parts)
            self._copy(to[cut], array[cut], release, aside)

    def _copy(
        self, to: Any, array: Any, after: Callable[[], None], aside: Job[None] | None = None
    ) -> Job[None] | None:
        """Copy in another thread, after the job that sets ``array`` aside; then call ``after``."""

        def copy() -> None:
            if aside is not None:
                aside.result()
            np.copyto(to, array)
            after()

        if self._pool is None or (array.nbytes <= _SMALL_BYTES and aside is None):
            copy()
            return None
        job = self._pool.submit(copy)
        self._jobs.append(job)
        while self._jobs and self._jobs[0].done():
            self._jobs.popleft().result()
        return job

    def _make_room(self, end: int) -> None:
        if not self._is_ours:
            raise too_small(self._room, end)
        self._finish_jobs()
        self._room.resize(max(end, 2 * len(self._room)), refcheck=False)

    def _finish_jobs(self) -> None:
        while self._jobs:
            self._jobs.popleft().result()

    def result(self) -> Array:
        """Return the result; all packets have been taken or copied to their position."""
        self._finish_jobs()
        items, kept = self._share.placed
        if self._progress is not None:
            self._progress(items)
        if self._is_ours:
            # In place: the system takes back pages never touched.
            self._room.resize(kept, refcheck=False)
            return self._room  # type: ignore[no-any-return]
        return self._room[:kept]  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
