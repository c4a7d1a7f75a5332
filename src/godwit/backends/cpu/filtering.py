"""What a predicate keeps of an array, in order; the twin of cuda/filtering.py.

A thread goes once over what it filters: it writes every item to where the next that is kept belongs, and
moves on if it is kept, so that nothing depends on a branch that nobody can foretell. Threads of a team take
chunk after chunk: they write what a chunk keeps to a place of their own, which stays in a core's cache, and
copy it when the chunks before have been counted (decoupled look-back, of one step). Chunks are taken in
order, so who is waited for is at work; a thread that is woken late finds less to do, and no chunk waits for
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from godwit.backends.filtering import not_boolean
from godwit.dtypes import Array
from godwit.errors import OperatorError
from godwit.parallel.atomics import (
    fetch_add,
    load,
    load_acquire,
    store,
    store_release,
    yield_thread,
)
from godwit.parallel.kernel import Kernel
from godwit.parallel.rebuilding import plain_text
from godwit.parallel.team import ABORT, CURSOR, WORDS_PER_LINE, borrowed_team, new_control

_IS_NOT = "no boolean but"
_RETURNS = re.compile(rf"TypingError: {_IS_NOT} (.*)")

_CHUNK_ITEMS = 1 << 15
"""For which a further thread is worth being woken."""
_NOT_KNOWN = -1
_SPINS_BEFORE_YIELD = 200


def _checked(value: Any) -> Any:
    return boolean(value)  # type: ignore[call-arg]


@intrinsic
def boolean(typing_context: Any, value: Any) -> Any:
    """The value, which must be a boolean, when compiled."""
    plain = types.unliteral(value)
    if not isinstance(plain, types.Boolean):
        what = "nothing (None)" if isinstance(plain, types.NoneType) else str(plain)
        raise TypingError(f"{_IS_NOT} {what}")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.cast(builder, arguments[0], value, types.boolean)

    return types.boolean(value), generate


def predicate(item: Any) -> bool:
    """The user's, which is bound to this name."""
    raise NotImplementedError


def keep_piece(source: Any, target: Any) -> int:
    """Write what is kept to the begin of ``target``, which has room for all; how many they are."""
    kept = 0
    for index in range(source.size):
        item = load(source, index)
        store(target, kept, item)
        kept += 1 if _checked(predicate(item)) else 0
    return kept


def keep_chunks(
    rank: int, size: int, control: Any, source: Any, target: Any, rooms: Any, places: Any
) -> None:
    """Likewise, by each thread of a team.

    :param rooms: for what a chunk keeps, by thread
    :param places: where in ``target`` chunks begin, the end behind them: a cache line each, of which the
        first is 0 and others are :data:`_NOT_KNOWN`
    """
    room = rooms[rank]
    while True:
        chunk = fetch_add(control, CURSOR, 1)
        begin = chunk * _CHUNK_ITEMS
        if begin >= source.size or load_acquire(control, ABORT) != 0:
            return
        kept = keep_piece(source[begin : min(begin + _CHUNK_ITEMS, source.size)], room)
        place = load_acquire(places, chunk * WORDS_PER_LINE)
        spins = 0
        while place == _NOT_KNOWN:
            if load_acquire(control, ABORT) != 0:
                return
            spins += 1
            if spins > _SPINS_BEFORE_YIELD:
                yield_thread()
            place = load_acquire(places, chunk * WORDS_PER_LINE)
        store_release(places, (chunk + 1) * WORDS_PER_LINE, place + kept)
        for index in range(kept):
            store(target, place + index, load(room, index))


class CpuFilter:
    """Filters packets in host memory, by one thread or by a team.

    :param keeps: the predicate
    :param dtype: of the items
    :param threads: that may work on one packet
    :raises OperatorError: the predicate does not compile, or returns no boolean
    """

    def __init__(self, keeps: Callable[..., Any], dtype: np.dtype[Any], threads: int = 1) -> None:
        self.threads = threads
        none = np.empty(0, dtype)
        self._piece = Kernel(keep_piece, {"predicate": keeps})
        try:
            self._piece.prepare(none, none)
        except OperatorError as error:
            found = _RETURNS.search(plain_text(error.__cause__))
            if found is None:
                raise
            raise OperatorError(not_boolean(keeps, found[1])) from error
        if threads > 1:
            self._chunks = Kernel(keep_chunks, {"predicate": keeps})
            self._rooms = np.empty((threads, _CHUNK_ITEMS), dtype)
            self._chunks.prepare(0, 1, new_control(), none, none, self._rooms, _places(0))

    def keep(self, source: Array, target: Array) -> int:
        """Write what is kept of one array to the begin of another; how many items they are."""
        chunks = -(-source.size // _CHUNK_ITEMS)
        team_size = min(self.threads, chunks)
        source = _plain(source)
        if team_size <= 1:
            return int(self._piece(source, target))
        control, places = new_control(), _places(chunks)
        tasks = [
            (self._chunks, (rank, team_size, control, source, target, self._rooms, places))
            for rank in range(team_size)
        ]
        with borrowed_team(team_size) as team:
            team.run(tasks, control)
        return int(places[chunks * WORDS_PER_LINE])


class _CpuSlot:
    """Room for what a packet keeps, in host memory."""

    def __init__(self, filtering: CpuFilter, room: Array) -> None:
        self._filtering = filtering
        self._room = room
        self._count = 0

    def start(self, packet: Array) -> None:
        """Filter; done when it returns."""
        self._count = self._filtering.keep(packet, self._room)

    def kept(self) -> Array:
        """A NumPy array."""
        return self._room[: self._count]


class CpuPacketFilter:
    """Filters the packets of a CPU's endpoint; as :func:`godwit.backends.packet_filters.packet_filter`."""

    runs_on = False

    def __init__(
        self,
        predicate: Callable[..., Any],
        dtype: np.dtype[Any],
        packet_items: int,
        slots: int,
        threads: int,
    ) -> None:
        filtering = CpuFilter(predicate, dtype, threads)
        # The host reads it where it lies: page-locked, as the pool is beside GPUs, it need not be.
        rooms = (np.empty(packet_items, dtype) for _ in range(slots))
        self.slots = [_CpuSlot(filtering, room) for room in rooms]

    def close(self) -> None:
        """Give the memory back."""
        self.slots = []


def _places(chunks: int) -> Array:
    """For :func:`keep_chunks`."""
    found = np.full((chunks + 1) * WORDS_PER_LINE, _NOT_KNOWN, np.int64)
    found[0] = 0
    return found


def _plain(array: Array) -> Array:
    """The same memory as compiled code takes it: a read-only array would be a type of its own."""
    if array.flags.writeable and type(array) is np.ndarray:
        return array
    address = array.__array_interface__["data"][0]
    described = {
        "shape": array.shape,
        "typestr": array.dtype.str,
        "data": (address, False),
        "version": 3,
    }
    return np.asarray(SimpleNamespace(__array_interface__=described))
