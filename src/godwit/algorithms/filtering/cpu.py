"""Filtering on the CPU, alone or beside GPUs; counterpart of cuda.py.

A thread writes every item to the position of the next kept one, and advances the position if the item is
kept: no branch depends on the data. The threads of a team claim chunk after chunk. They write the kept
items of a chunk to memory of their own, which stays in a core's cache, and copy them when the previous
chunks have been counted (decoupled look-back of one step). Chunks are claimed in order, so a chunk that
others wait for is in progress. Items are written only below the begin of the first chunk that is not read
yet, so the result may replace the array.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from godwit.algorithms.filtering.predicate import is_plain, not_boolean
from godwit.dtypes import Array
from godwit.errors import InputError, OperatorError, RunTimeoutError
from godwit.runtime.cpu.atomics import (
    fetch_add,
    load,
    load_acquire,
    store,
    store_relaxed,
    store_release,
    yield_thread,
)
from godwit.runtime.cpu.compile import Kernel, kernel
from godwit.runtime.cpu.stopping import ABORT, stop
from godwit.runtime.cpu.team import CURSOR, WORDS_PER_LINE, borrowed_team, new_control, run_team
from godwit.runtime.rebuilding import plain_text

_IS_NOT = "no boolean but"
_RETURNS = re.compile(rf"TypingError: {_IS_NOT} (.*)")

_CHUNK_ITEMS = 1 << 15
"""Items of a chunk: enough to be worth waking a thread."""
_BRIEF_CHUNKS = 32
"""Arrays of at most this many chunks take milliseconds: the calling thread may filter them."""
_PIECE_BYTES = 4 << 20
"""Bytes per thread of a piece of an array that is converted, or whose result may not fit."""
_FIRST_ROOM_BYTES = 64 << 20
_UNKNOWN = -1
_SPINS_BEFORE_YIELD = 200


def _checked(value: Any) -> Any:
    return boolean(value)  # type: ignore[call-arg]


@intrinsic
def boolean(typing_context: Any, value: Any) -> Any:
    """Return the value; at compile time, it must be a boolean."""
    plain = types.unliteral(value)
    if not isinstance(plain, types.Boolean):
        what = "nothing (None)" if isinstance(plain, types.NoneType) else str(plain)
        raise TypingError(f"{_IS_NOT} {what}")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.cast(builder, arguments[0], value, types.boolean)

    return types.boolean(value), generate


def predicate(item: Any) -> bool:
    """Stand for the user's predicate, which is bound to this name."""
    raise NotImplementedError


def keep_piece(source: Any, target: Any) -> int:
    """Write kept items to the begin of ``target``, which has room for all; return their number."""
    kept = 0
    for index in range(source.size):
        item = load(source, index)
        store(target, kept, item)
        kept += 1 if _checked(predicate(item)) else 0
    return kept


def keep_chunks(
    rank: int, size: int, control: Any, source: Any, target: Any, rooms: Any, places: Any
) -> int:
    """Write kept items to the begin of ``target``, by a team of threads.

    :param rooms: for the kept items of a chunk, by thread
    :param places: where in ``target`` each chunk begins, and the end of the last, on cache lines of their
        own; the first is 0, the others begin as :data:`_UNKNOWN`
    :returns: 0, or a number of kept items for which the target has no room
    """
    room = rooms[rank]
    while True:
        chunk = fetch_add(control, CURSOR, 1)
        begin = chunk * _CHUNK_ITEMS
        if begin >= source.size or load_acquire(control, ABORT) != 0:
            return 0
        end = min(begin + _CHUNK_ITEMS, source.size)
        place = load_acquire(places, chunk * WORDS_PER_LINE)
        if size == 1 and place + end - begin <= target.size:  # nothing to wait for
            kept = keep_piece(source[begin:end], target[place : place + end - begin])
            store_release(places, (chunk + 1) * WORDS_PER_LINE, place + kept)
            continue
        kept = keep_piece(source[begin:end], room)
        place = load_acquire(places, chunk * WORDS_PER_LINE)
        spins = 0
        while place == _UNKNOWN:
            if load_acquire(control, ABORT) != 0:
                return 0
            spins += 1
            if spins > _SPINS_BEFORE_YIELD:
                yield_thread()
            place = load_acquire(places, chunk * WORDS_PER_LINE)
        if place + kept > target.size:
            store_relaxed(control, ABORT, 1)
            return int(place + kept)
        store_release(places, (chunk + 1) * WORDS_PER_LINE, place + kept)
        for index in range(kept):
            store(target, place + index, load(room, index))


def checked_kernel(
    function: Callable[..., Any], keeps: Callable[..., Any], *arguments: Any
) -> Kernel:
    """Return a function with the predicate, compiled for arguments of these types.

    :raises OperatorError: the predicate does not compile, or returns no boolean
    """
    compiled = Kernel(function, {"predicate": keeps})
    try:
        compiled.prepare(*arguments)
    except OperatorError as error:
        returned = _RETURNS.search(plain_text(error.__cause__))
        if returned is None:
            raise
        raise OperatorError(not_boolean(keeps, returned[1])) from error
    return compiled


class CpuFilter:
    """Filter of arrays in host memory, by a team of threads.

    :param keeps: the predicate
    :param dtype: dtype of the items
    :param threads: number of threads
    :raises OperatorError: the predicate does not compile, or returns no boolean
    """

    def __init__(self, keeps: Callable[..., Any], dtype: np.dtype[Any], threads: int = 1) -> None:
        self.threads = threads
        self._rooms = np.empty((threads, _CHUNK_ITEMS), dtype)
        none = np.empty(0, dtype)
        self._kernel = checked_kernel(
            keep_chunks, keeps, 0, 1, new_control(), none, none, self._rooms, _places(0)
        )

    def keep(
        self, source: Array, target: Array, poll: Callable[[int], None] | None = None
    ) -> tuple[int, bool]:
        """Write the kept items of one array to the begin of another, which may be the same.

        :param poll: called now and then with the number of items processed; an exception ends the run
        :returns: the number of kept items and True; or, if the target is too small, a larger number than
            it has room for and False
        """
        chunks = -(-source.size // _CHUNK_ITEMS)
        control, places = new_control(), _places(chunks)
        report = None
        if poll is not None:

            def report() -> None:
                poll(min(int(control[CURSOR]) * _CHUNK_ITEMS, source.size))

        needed = run_team(
            self._kernel, _plain(source), target, self._rooms, places,
            threads=max(1, min(self.threads, chunks)), control=control, poll=report,
            brief=chunks <= _BRIEF_CHUNKS,
        )  # fmt: skip
        if any(needed):
            return max(needed), False
        return int(places[chunks * WORDS_PER_LINE]), True


def filter_on_cpus(
    array: Array,
    keeps: Callable[..., Any],
    dtype: np.dtype[Any],
    out: Array | None,
    threads: int,
    progress: Callable[[int], None] | None,
    timeout_s: float | None,
) -> Array:
    """Return the items of a host array that a predicate keeps, in their order.

    :param dtype: of the items, in native byte order
    :param out: array of the dtype for the result; None: a new one
    :param progress: called now and then with the number of items processed; an exception ends the run
    :param timeout_s: limit for all but compiling
    :raises OperatorError: the predicate does not compile, or returns no boolean
    :raises InputError: ``out`` is too small
    :raises RunTimeoutError: out of time
    """
    if out is not None and not is_plain(
        out, dtype
    ):  # compiled code writes arrays without gaps only
        result = filter_on_cpus(array, keeps, dtype, None, threads, progress, timeout_s)
        if len(result) > len(out):
            raise too_small(out, len(result))
        out[: len(result)] = result
        return out[: len(result)]
    cpu_filter = CpuFilter(keeps, dtype, threads)
    check_time = time_limit(timeout_s)
    begin = 0

    def poll(done: int) -> None:
        check_time()
        if progress is not None:
            progress(begin + done)

    polls = progress is not None or timeout_s is not None
    room: Any = room_for(array.size, dtype) if out is None else out
    plain = is_plain(array, dtype)
    whole = plain and len(room) >= array.size
    piece_items = array.size if whole else threads * _PIECE_BYTES // dtype.itemsize
    kept = 0
    for begin in range(0, array.size, max(1, piece_items)):
        piece = array[begin : begin + piece_items]
        if out is None and kept + len(piece) > len(room):
            room.resize(max(kept + len(piece), 2 * len(room)), refcheck=False)
        source = piece if plain else np.array(piece, dtype)
        count, fits = cpu_filter.keep(source, room[kept:], poll if polls else None)
        kept += count
        if not fits:
            raise too_small(room, kept)
    if progress is not None:
        progress(array.size)
    if out is not None:
        return room[:kept]  # type: ignore[no-any-return]
    room.resize(kept, refcheck=False)  # in place: the system takes back pages never touched
    return room  # type: ignore[no-any-return]


def time_limit(timeout_s: float | None) -> Callable[[], None]:
    """Return a function that raises RunTimeoutError when the time from now on is over."""
    end_s = np.inf if timeout_s is None else perf_counter() + timeout_s

    def check() -> None:
        if perf_counter() > end_s:
            raise RunTimeoutError(f"filter did not finish within timeout_s={timeout_s:g} s")

    return check


# Beside GPUs. Threads claim units from the front of the array, as the thread that feeds the GPUs claims
# packets. A table has two words for each unit: its number of kept items, and their position in the result,
# both plus one, and 0 while unknown. Invariant: one thread at a time advances the front of the table, and
# computes the positions of counted units. A thread of the CPU writes the kept items of a unit to a ring of
# its own, and moves them from there when their position is known, the oldest first; so it waits for GPUs
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
    """Filter units, by a team of threads.

    :param rings: (threads, some units of items)
    :param queues: (threads, 3 n): unit, position in the ring, and number of items, of n units that may wait
    """
    ring, queue = rings[rank], queues[rank]
    most = queue.size // 3
    first = last = 0  # waiting units, numbered consecutively
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
def _set_count(counts: Any, unit: int, kept: int) -> None:
    store_release(counts, unit, kept + 1)


@kernel
def _advance_front(state: Any, counts: Any, spans: Any, places: Any, most: int) -> bool:
    """Compute where counted units' kept items go in the result; return False if it has no room for them."""
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
    """An array that threads of the CPU and GPUs filter together (:class:`~.gpu_packets.Share`).

    One thread claims packets for the GPUs, reports their counts, and looks up their positions.

    :param source: contiguous, in native byte order
    :param target: for the kept items
    :param threads: number of threads of the CPU
    :param packet_items: largest packet for a GPU
    """

    def __init__(
        self,
        keeps: Callable[..., Any],
        source: Array,
        target: Array,
        threads: int,
        packet_items: int,
    ) -> None:
        self.unit_items = max(1, min(_UNIT_ITEMS, packet_items // _UNITS_A_PACKET))
        self._size = source.size
        self._units = units = -(-source.size // self.unit_items)
        self._control = new_control()
        self._most = target.size
        self._state = np.zeros(2, np.int64)
        self._counts, self._places = np.zeros((2, units), np.int64)
        self._spans = np.ones(units, np.int64)
        self._keeps = keeps
        self._threads = max(1, min(threads, units))
        ring = np.empty((self._threads, _RING_UNITS * self.unit_items), source.dtype)
        queues = np.empty((self._threads, 3 * 8 * _RING_UNITS), np.int64)
        self._given = (
            _plain(source), target, ring, queues, self.unit_items, units, self._counts, self._places,
        )  # fmt: skip

    def prepare(self) -> Kernel:
        """Return the compiled kernel."""
        return checked_kernel(keep_units, self._keeps, 0, 1, self._control, *self._given)

    def run(self) -> None:
        """Filter units on the CPU until all are claimed; return when their items are in place."""
        control, size = self._control, self._threads
        keep = self.prepare()
        tasks = [(keep, (rank, size, control, *self._given)) for rank in range(size)]
        with borrowed_team(size) as team:
            team.run(tasks, control)

    def abort(self) -> None:
        """End the CPU's threads."""
        stop(self._control)

    @property
    def left_items(self) -> int:
        """Number of items that are not claimed."""
        return max(0, self._units - int(self._control[CURSOR])) * self.unit_items

    def take(self, most_items: int) -> tuple[int, int] | None:
        """Claim the next items for a GPU; return their begin and end, or None if all are claimed."""
        units = max(1, most_items // self.unit_items)
        first = int(_take_units(self._control, units))
        if first >= self._units:
            return None
        return first * self.unit_items, min((first + units) * self.unit_items, self._size)

    def counted(self, begin: int, length: int, kept: int) -> None:
        """Record the number of kept items of a packet."""
        unit = begin // self.unit_items
        self._spans[unit] = -(-length // self.unit_items)
        _set_count(self._counts, unit, kept)

    def advance(self) -> bool:
        """Compute counted units' positions in the result; return False if it is too small."""
        return bool(
            _advance_front(self._state, self._counts, self._spans, self._places, self._most)
        )

    def place(self, begin: int) -> int | None:
        """Return the position of a packet's kept items in the result; None while unknown."""
        position = int(self._places[begin // self.unit_items]) - 1
        return None if position < 0 else position

    @property
    def placed(self) -> tuple[int, int]:
        """Number of items, from the front, whose positions are known, and of kept ones among them."""
        return min(int(self._state[_FRONT]) * self.unit_items, self._size), int(self._state[_TOTAL])

    @property
    def next_kept(self) -> int:
        """Number of kept items whose position is known, and of the next unit or packet."""
        front, total = self._state.tolist()
        return int(total + self._counts[front] - 1)


def _places(chunks: int) -> Array:
    """Return ``places`` of :func:`keep_chunks`."""
    places = np.full((chunks + 1) * WORDS_PER_LINE, _UNKNOWN, np.int64)
    places[0] = 0
    return places


def _plain(array: Array) -> Array:
    """Return a writable ``np.ndarray`` over the same memory: compiled functions accept no other type."""
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


def room_for(size: int, dtype: np.dtype[Any]) -> Array:
    """Return room for all items if the address space has it; memory is used for written pages only."""
    try:
        return np.empty(size, dtype)
    except MemoryError:
        return np.empty(min(size, _FIRST_ROOM_BYTES // dtype.itemsize), dtype)


def too_small(room: Array, kept: int) -> InputError:
    """Return the error about a user's array that is too small for the result."""
    return InputError(f"out has room for {len(room):,} items, and at least {kept:,} are kept")
