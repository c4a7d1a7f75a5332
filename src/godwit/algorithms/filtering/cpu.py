"""What a predicate keeps of an array, in order; the counterpart of cuda.py.

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

from godwit.algorithms.filtering.packets import not_boolean
from godwit.dtypes import Array
from godwit.errors import OperatorError
from godwit.runtime.cpu.atomics import (
    fetch_add,
    load,
    load_acquire,
    store,
    store_release,
    yield_thread,
)
from godwit.runtime.cpu.compile import Kernel, kernel
from godwit.runtime.cpu.stopping import ABORT, stop
from godwit.runtime.cpu.team import CURSOR, WORDS_PER_LINE, borrowed_team, new_control
from godwit.runtime.rebuilding import plain_text

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


def checked_kernel(
    function: Callable[..., Any], keeps: Callable[..., Any], *arguments: Any
) -> Kernel:
    """A kernel with the predicate, compiled for arguments like these.

    :raises OperatorError: the predicate does not compile, or returns no boolean
    """
    found = Kernel(function, {"predicate": keeps})
    try:
        found.prepare(*arguments)
    except OperatorError as error:
        returned = _RETURNS.search(plain_text(error.__cause__))
        if returned is None:
            raise
        raise OperatorError(not_boolean(keeps, returned[1])) from error
    return found


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
        self._piece = checked_kernel(keep_piece, keeps, none, none)
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
    """A filter of packets in a CPU endpoint's memory.

    Parameters as of :func:`godwit.algorithms.filtering.endpoints.packet_filter`.
    """

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


# Beside GPUs. Units of the array are taken from its front by all threads, and by who deals packets to GPUs.
# A table has two words for each unit: how many items it keeps, and where they belong, each one more than
# that, and 0 as long as it is not known. Invariant: one thread at a time goes along the table, from the
# front, and says where what has been counted belongs. A thread of the CPU writes what a unit keeps to a
# ring of its own, and moves it from there when its place is known, the oldest first; so it waits for GPUs
# only if its ring is full.

_UNIT_ITEMS = 1 << 16
_UNITS_A_PACKET = 8  # at least
_RING_UNITS = 32
_FRONT, _TOTAL = 0, 1  # words of a table's state


def keep_units(
    rank: int,
    size: int,
    control: Any,
    source: Any,
    target: Any,
    rings: Any,
    queues: Any,
    unit_items: int,
    end_unit: int,
    counts: Any,
    places: Any,
) -> None:
    """Take units, and bring what they keep to its place, by each thread of a team.

    :param rings: (threads, some units of items)
    :param queues: (threads, 3 n): unit, where in the ring, how many items: of n that may wait
    """
    ring, queue = rings[rank], queues[rank]
    most = queue.size // 3
    first = last = 0  # of what waits, by numbers that go on
    tail = 0
    has_more = True
    spins = 0
    while has_more or first < last:
        if load_acquire(control, ABORT) != 0:
            return
        if first < last:
            slot = 3 * (first % most)
            place = load_acquire(places, queue[slot]) - 1
            if place >= 0:
                begin, kept = queue[slot + 1], queue[slot + 2]
                for index in range(kept):
                    store(target, place + index, load(ring, begin + index))
                first += 1
                spins = 0
                continue
        if first == last:
            tail = 0
        head = queue[3 * (first % most) + 1] if first < last else 0
        is_wrapped = first < last and tail <= head
        if not is_wrapped and ring.size - tail < unit_items and head >= unit_items:
            tail = 0
            is_wrapped = True
        room = head - tail if is_wrapped else ring.size - tail
        if not has_more or room < unit_items or last - first == most:
            spins += 1
            if spins > _SPINS_BEFORE_YIELD:
                yield_thread()
            continue
        unit = fetch_add(control, CURSOR, 1)
        if unit >= end_unit:
            has_more = False
            continue
        begin = unit * unit_items
        end = min(begin + unit_items, source.size)
        kept = keep_piece(source[begin:end], ring[tail : tail + unit_items])
        store_release(counts, unit, kept + 1)
        if kept > 0:
            slot = 3 * (last % most)
            queue[slot] = unit
            queue[slot + 1] = tail
            queue[slot + 2] = kept
            last += 1
            tail += kept
        spins = 0


@kernel
def _take_units(control: Any, units: int) -> Any:
    return fetch_add(control, CURSOR, units)


@kernel
def _tell(counts: Any, unit: int, kept: int) -> None:
    store_release(counts, unit, kept + 1)


@kernel
def _go_along(state: Any, counts: Any, spans: Any, places: Any, most: int) -> bool:
    """Say where what has been counted belongs; False if there is no room for so much."""
    unit, total = state[_FRONT], state[_TOTAL]
    has_room = True
    while unit < counts.size:
        kept = load_acquire(counts, unit) - 1
        has_room = total + kept <= most
        if kept < 0 or not has_room:
            break
        store_release(places, unit, total + 1)
        total += kept
        unit += spans[unit]
    state[_FRONT], state[_TOTAL] = unit, total
    return has_room


class SharedFilter:
    """An array that threads of the CPU and GPUs filter together.

    Who deals packets to GPUs takes them here, tells their counts, and asks for their places: one thread.

    :param source: contiguous, in the machine's byte order
    :param target: for all that is kept
    :param threads: of the CPU
    :param packet_items: of a packet for a GPU, at most
    :param part: the CPU's, of so many equal ones, where GPUs take from the others; by default all take from
        the whole
    """

    def __init__(
        self,
        keeps: Callable[..., Any],
        source: Array,
        target: Array,
        threads: int,
        packet_items: int,
        part: int = 0,
        parts: int = 1,
    ) -> None:
        self.unit_items = max(1, min(_UNIT_ITEMS, packet_items // _UNITS_A_PACKET))
        self._size = source.size
        self._units = units = -(-source.size // self.unit_items)
        self._control = new_control()
        self._control[CURSOR] = self._first_unit(part, parts)
        self._end_unit = self._first_unit(part + 1, parts)
        self._most = target.size
        self._state = np.zeros(2, np.int64)
        self._counts, self._places = np.zeros((2, units), np.int64)
        self._spans = np.ones(units, np.int64)
        self._keeps = keeps
        self._threads = max(1, min(threads, units))
        ring = np.empty((self._threads, _RING_UNITS * self.unit_items), source.dtype)
        queues = np.empty((self._threads, 3 * 8 * _RING_UNITS), np.int64)
        self._given = (
            _plain(source), target, ring, queues, self.unit_items, self._end_unit,
            self._counts, self._places,
        )  # fmt: skip

    def _first_unit(self, part: int, parts: int) -> int:
        return self._units * part // parts

    def prepare(self) -> Kernel:
        """Return the compiled kernel."""
        return checked_kernel(keep_units, self._keeps, 0, 1, self._control, *self._given)

    def run(self) -> None:
        """What the CPU does; returns when all that it kept is where it belongs."""
        control, size = self._control, self._threads
        keep = self.prepare()
        tasks = [(keep, (rank, size, control, *self._given)) for rank in range(size)]
        with borrowed_team(size) as team:
            team.run(tasks, control)

    def abort(self) -> None:
        """Let the CPU's threads end."""
        stop(self._control)

    @property
    def left_items(self) -> int:
        """That nobody has taken."""
        return max(0, self._end_unit - int(self._control[CURSOR])) * self.unit_items

    def take(self, most_items: int) -> tuple[int, int] | None:
        """The next items for a GPU: from where, to where; None behind the last."""
        units = max(1, most_items // self.unit_items)
        first = int(_take_units(self._control, units))
        if first >= self._end_unit:
            return None
        return self._span(first, min(first + units, self._end_unit))

    def part(self, part: int, parts: int) -> tuple[int, int]:
        """From where to where an equal part reaches."""
        return self._span(self._first_unit(part, parts), self._first_unit(part + 1, parts))

    def _span(self, first: int, end: int) -> tuple[int, int]:
        return first * self.unit_items, min(end * self.unit_items, self._size)

    def counted(self, begin: int, length: int, kept: int) -> None:
        """A packet keeps so many items."""
        unit = begin // self.unit_items
        self._spans[unit] = -(-length // self.unit_items)
        _tell(self._counts, unit, kept)

    def advance(self) -> bool:
        """Say where what has been counted belongs; False if there is no room for that."""
        return bool(_go_along(self._state, self._counts, self._spans, self._places, self._most))

    def place(self, begin: int) -> int | None:
        """Where what a packet keeps begins in the result; None as long as that is not known."""
        found = int(self._places[begin // self.unit_items]) - 1
        return None if found < 0 else found

    @property
    def placed(self) -> tuple[int, int]:
        """Of how many items, from the front, is known where they belong; how many are kept."""
        return min(int(self._state[_FRONT]) * self.unit_items, self._size), int(self._state[_TOTAL])

    @property
    def next_kept(self) -> int:
        """How many items are kept of those whose place is known, and of the unit behind them."""
        front, total = self._state.tolist()
        return int(total + self._counts[front] - 1)


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
