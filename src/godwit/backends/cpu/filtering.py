"""What a predicate keeps of an array, in order; the twin of cuda/filtering.py.

One thread goes once over the array: it writes every item to where the next that is kept belongs, and moves
on if it is kept, so that nothing depends on a branch that nobody can foretell. A team of threads goes over
it twice: each counts what its part keeps (a loop that compilers make vectors of), all meet, and each writes
its own behind those before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from godwit.backends.filtering import not_boolean
from godwit.backends.segments import Space
from godwit.dtypes import Array
from godwit.errors import OperatorError
from godwit.parallel.atomics import load, store
from godwit.parallel.kernel import Kernel
from godwit.parallel.team import (
    WORDS_PER_LINE,
    barrier,
    block_range,
    borrowed_team,
    new_control,
)

_IS_NOT = "no boolean but"
_RETURNS = re.compile(rf"TypingError: {_IS_NOT} (.*)")

_SMALLEST_PART = 1 << 15
"""Items for which a further thread is worth being woken."""


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


def keep_part(rank: int, size: int, control: Any, source: Any, target: Any, counts: Any) -> int:
    """Likewise, by each thread of a team; how many all keep. ``counts`` has a cache line for each."""
    begin, end = block_range(rank, size, source.size)
    mine = 0
    for index in range(begin, end):
        mine += 1 if _checked(predicate(load(source, index))) else 0
    counts[rank * WORDS_PER_LINE] = mine
    if not barrier(control, size):
        return 0
    place, total = 0, 0
    for other in range(size):
        if other == rank:
            place = total
        total += counts[other * WORDS_PER_LINE]
    behind = place + mine  # where the next thread's begin
    index = begin
    while place < behind:
        item = load(source, index)
        store(target, place, item)
        place += 1 if predicate(item) else 0
        index += 1
    return total


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
            found = _RETURNS.search(str(error.__cause__))
            if found is None:
                raise
            raise OperatorError(not_boolean(keeps, found[1])) from error
        if threads > 1:
            self._part = Kernel(keep_part, {"predicate": keeps})
            self._counts = np.zeros(threads * WORDS_PER_LINE, np.int64)
            self._part.prepare(0, 1, new_control(), none, none, self._counts)

    def keep(self, source: Array, target: Array) -> int:
        """Write what is kept of one array to the begin of another; how many items they are."""
        team_size = min(self.threads, source.size // _SMALLEST_PART)
        source = _plain(source)
        if team_size <= 1:
            return int(self._piece(source, target))
        control = new_control()
        tasks = [
            (self._part, (rank, team_size, control, source, target, self._counts))
            for rank in range(team_size)
        ]
        with borrowed_team(team_size) as team:
            return int(team.run(tasks, control)[0])


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
        space: Space,
        predicate: Callable[..., Any],
        dtype: np.dtype[Any],
        packet_items: int,
        slots: int,
        threads: int,
    ) -> None:
        filtering = CpuFilter(predicate, dtype, threads)
        self.slots = []
        with ExitStack() as stack:
            for _ in range(slots):
                block = space.allocate(packet_items * dtype.itemsize)
                stack.callback(block.free)
                self.slots.append(_CpuSlot(filtering, block.view(dtype, (packet_items,))))
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Give the memory back."""
        self._stack.close()


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
