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
from typing import Any

import numpy as np

from godwit.dataflow.segment import Segment
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


class Assembly:
    """Puts what packets keep where it belongs.

    :param size: of the array that is filtered
    :param ordered: what is kept stays in its order; else it comes as packets do
    :param out: where it goes; None: to a new array
    :param progress: called with how many items have been dealt with
    :param movers: threads that copy
    :param most_held: segments that may stay in their buffers until their place is known
    """

    def __init__(
        self,
        size: int,
        dtype: np.dtype[Any],
        *,
        ordered: bool,
        out: Array | None,
        progress: Callable[[int], None] | None,
        movers: int,
        most_held: int,
    ) -> None:
        self._ordered = ordered
        self._progress = progress
        self._is_ours = out is None
        self._room: Any = _room_for(size, dtype) if out is None else out
        self._waiting: dict[int, tuple[int, Any, Segment | None, Job[None] | None]] = {}
        """By where the packet begins: its length, what it keeps, in whose buffer, what sets it aside."""
        self._held = 0
        self._most_held = most_held
        self._begin = 0  # of the first packet whose place is not known
        self._place = 0  # where it belongs
        self._dealt_with = 0
        self._reported = perf_counter()
        self._jobs: deque[Job[None]] = deque()
        self._movers = movers
        self._pool = ThreadPoolExecutor(movers, "godwit-filter") if movers > 1 else None

    def take(self, segment: Segment) -> None:
        """All that a packet keeps: it is one segment, as it is no longer than the packet was."""
        packet: Packet = segment.hold().metadata
        self._dealt_with += packet.length
        if self._ordered and packet.begin != self._begin:
            self._set_aside(packet, segment)
        else:
            self._append(packet.length, segment.array, segment)
            while self._begin in self._waiting:
                length, array, held, aside = self._waiting.pop(self._begin)
                self._held -= held is not None
                self._append(length, array, held, aside)
        self._report()

    def _set_aside(self, packet: Packet, segment: Segment) -> None:
        array: Any = segment.array
        held: Segment | None = segment
        aside: Job[None] | None = None
        # What a CPU has kept lies in its own slots, without which it could not go on.
        if self._held == self._most_held or segment.source.space.kind == "host":
            room = np.empty_like(array)
            aside = self._copy(room, array, segment.release)
            array, held = room, None
        self._held += held is not None
        self._waiting[packet.begin] = packet.length, array, held, aside

    def _append(
        self, length: int, array: Any, segment: Segment | None, aside: Job[None] | None = None
    ) -> None:
        """Copy what the next packet keeps to its place, and give its buffer back."""
        begin, end = self._place, self._place + len(array)
        self._begin += length
        self._place = end
        if end > len(self._room):
            self._make_room(end)
        to = self._room[begin:end]
        parts = max(1, min(self._movers, array.nbytes // _PIECE_BYTES))
        done = count(1)

        def release() -> None:
            if segment is not None and next(done) == parts:  # one step of the interpreter
                segment.release()

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
            raise InputError(
                f"out has room for {len(self._room):,} items, and at least {end:,} are kept"
            )
        self._finish_jobs()
        self._room.resize(max(end, 2 * len(self._room)), refcheck=False)

    def _report(self) -> None:
        if self._progress is not None and perf_counter() - self._reported > _PROGRESS_S:
            self._reported = perf_counter()
            self._progress(self._dealt_with)

    def _finish_jobs(self) -> None:
        while self._jobs:
            self._jobs.popleft().result()

    def result(self) -> Array:
        """All that is kept; every packet has been taken."""
        self._finish_jobs()
        if self._progress is not None:
            self._progress(self._dealt_with)
        if self._is_ours:
            # Nothing is copied: the system takes the rest back, whose pages nobody has touched.
            self._room.resize(self._place, refcheck=False)
            return self._room  # type: ignore[no-any-return]
        return self._room[: self._place]  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def _room_for(size: int, dtype: np.dtype[Any]) -> Array:
    """Address space for all items, if there is so much; memory is only what is written to."""
    try:
        return np.empty(size, dtype)
    except MemoryError:
        return np.empty(min(size, _FIRST_ROOM_BYTES // dtype.itemsize), dtype)
