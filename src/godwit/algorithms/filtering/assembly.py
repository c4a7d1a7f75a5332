"""What packets keep, put together: the host's side of filtering.

Invariant: where what a packet keeps belongs is known when the counts of all packets before it are. What
comes earlier than that is set aside, so that the packet everybody waits for always finds a buffer.

Threads copy, a large one by several: who takes what comes only says from where to where. They begin with
what was asked for first, so that what is set aside is on its way when it is asked to move on.
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

from godwit.dtypes import Array
from godwit.errors import InputError

_PROGRESS_S = 0.05
_FIRST_ROOM_BYTES = 64 << 20
_SMALL_BYTES = 1 << 17  # not worth handing to another thread
_PIECE_BYTES = 4 << 20  # that a thread copies, at least, where others could take a part


@dataclass(frozen=True)
class Packet:
    """Which items of the array; what comes along with what it keeps."""

    begin: int
    length: int


class Order(Protocol):
    """Where what packets keep belongs."""

    def counted(self, packet: Packet, count: int) -> None:
        """A packet keeps so many items."""

    def place(self, packet: Packet) -> int | None:
        """Where these begin in the result; None as long as that is not known."""

    @property
    def placed(self) -> tuple[int, int]:
        """Of how many items, from the beginning, is known where they belong; how many of them are kept."""


class PacketOrder:
    """The order of packets whose counts are told by one thread.

    :param ordered: what is kept stays in its order; else it comes as it is counted
    """

    def __init__(self, *, ordered: bool) -> None:
        self._ordered = ordered
        self._counts: dict[int, tuple[Packet, int]] = {}
        self._places: dict[int, int] = {}
        self._begin = 0  # of the first packet whose place is not known
        self._total = 0

    def counted(self, packet: Packet, count: int) -> None:
        """As of :class:`Order`."""
        if not self._ordered:
            self._put(packet, count)
            return
        self._counts[packet.begin] = packet, count
        while self._begin in self._counts:
            self._put(*self._counts.pop(self._begin))

    def _put(self, packet: Packet, count: int) -> None:
        self._places[packet.begin] = self._total
        self._begin += packet.length
        self._total += count

    def place(self, packet: Packet) -> int | None:
        """As of :class:`Order`."""
        return self._places.get(packet.begin)

    @property
    def placed(self) -> tuple[int, int]:
        """As of :class:`Order`."""
        return self._begin, self._total


class Piece(Protocol):
    """What a packet keeps, in host memory that is to be given back."""

    array: Any

    def release(self) -> None:
        """It has been moved; from any thread."""


class Assembly:
    """Puts what packets keep where it belongs.

    :param room: where that is
    :param is_ours: whether it may grow
    :param progress: called with how many items have been dealt with
    :param movers: threads that copy
    :param most_held: pieces that may stay in their buffers until their place is known
    """

    def __init__(
        self,
        order: Order,
        room: Array,
        *,
        is_ours: bool,
        progress: Callable[[int], None] | None,
        movers: int,
        most_held: int,
    ) -> None:
        self._order = order
        self._progress = progress
        self._is_ours = is_ours
        self._room: Any = room
        self._waiting: dict[int, tuple[Packet, Any, Piece | None, Job[None] | None]] = {}
        """By where the packet begins: what it keeps, in whose buffer, what sets it aside."""
        self._held = 0
        self._most_held = most_held
        self._reported = perf_counter()
        self._jobs: deque[Job[None]] = deque()
        self._movers = movers
        self._pool = ThreadPoolExecutor(movers, "godwit-filter") if movers > 1 else None

    def counted(self, packet: Packet, count: int) -> None:
        """A packet keeps so many items; :meth:`place` or :meth:`take` follow."""
        self._order.counted(packet, count)

    def place(self, packet: Packet, count: int) -> Array | None:
        """Where what a packet keeps belongs, for the caller to bring it there; None: not known yet.

        :raises InputError: the room is too small
        """
        begin = self._order.place(packet)
        if begin is None:
            return None
        end = begin + count
        if end > len(self._room):
            self._make_room(end)
        room: Array = self._room[begin:end]
        return room

    def take(self, packet: Packet, piece: Piece, *, is_lent: bool) -> None:
        """All that a packet keeps: it is moved to its place, now or when that is known.

        :param is_lent: its owner cannot go on without the memory that it lies in
        """
        to = self.place(packet, len(piece.array))
        if to is not None:
            self._move(to, piece.array, piece)
            return
        array: Any = piece.array
        held: Piece | None = piece
        aside: Job[None] | None = None
        if is_lent or self._held == self._most_held:
            room = np.empty_like(array)
            aside = self._copy(room, array, piece.release)
            array, held = room, None
        self._held += held is not None
        self._waiting[packet.begin] = packet, array, held, aside

    def advance(self) -> bool:
        """Move what has waited until its place was known; whether nothing waits any more."""
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
            self._progress(self._order.placed[0])
        return not self._waiting

    def _move(
        self, to: Array, array: Any, piece: Piece | None, aside: Job[None] | None = None
    ) -> None:
        """Copy what a packet keeps to its place, and give its buffer back."""
        parts = max(1, min(self._movers, array.nbytes // _PIECE_BYTES))
        done = count(1)

        def release() -> None:
            if piece is not None and next(done) == parts:  # one step of the interpreter
                piece.release()

        for part in range(parts):
            cut = slice(len(array) * part // parts, len(array) * (part + 1) // parts)
            self._copy(to[cut], array[cut], release, aside)

    def _copy(
        self, to: Any, array: Any, after: Callable[[], None], aside: Job[None] | None = None
    ) -> Job[None] | None:
        """Copy, and then call ``after``: in another thread; once ``array`` has been set aside."""

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
        """All that is kept; every packet has been taken, or brought to its place."""
        self._finish_jobs()
        items, kept = self._order.placed
        if self._progress is not None:
            self._progress(items)
        if self._is_ours:
            # Nothing is copied: the system takes the rest back, whose pages nobody has touched.
            self._room.resize(kept, refcheck=False)
            return self._room  # type: ignore[no-any-return]
        return self._room[:kept]  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def room_for(size: int, dtype: np.dtype[Any]) -> Array:
    """Address space for all items, if there is so much; memory is only what is written to."""
    try:
        return np.empty(size, dtype)
    except MemoryError:
        return np.empty(min(size, _FIRST_ROOM_BYTES // dtype.itemsize), dtype)


def too_small(room: Array, kept: int) -> InputError:
    """What is raised where the user's array has not enough room."""
    return InputError(f"out has room for {len(room):,} items, and at least {kept:,} are kept")
