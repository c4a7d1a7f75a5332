"""Pools of memory that segments arrive in: of a GPU, or page-locked memory of the host.

Where nothing limits a GPU's pool, and on the host, a block is an allocation of its own, kept by size for
the next that asks (:class:`GrowingPool`). A GPU's pool with a limit is one allocation from the beginning,
and so is memory that the user hands in: blocks are cut from it, first fit (:class:`SlabPool`): nothing is
freed while the dataflow runs, which would wait for kernels.

Invariants: ``used_bytes`` is what blocks hold that have not been given back. Of a slab, the gaps are in the
order of their places, do not touch each other, and with the blocks are the whole. Memory is freed when its
pool is closed, but never under an array that somebody still has: an array holds its :class:`Holding`.

Page-locking takes longer than filling what was locked, so page-locked memory is kept in the process when a
pool closes, up to half a gigabyte. So is a GPU's, where nothing limits its pool, up to driver.KEPT_BYTES.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from bisect import insort
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.errors import InputError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Buffer, PinnedBuffer
from godwit.runtime.cuda.gpu_arrays import array_over, sized
from godwit.runtime.cuda.kept_memory import KeptMemory

ALIGNED_BYTES = 512
KEPT_PINNED_BYTES = 544 << 20
"""What gw.filter takes for packets (algorithms/filtering.HOST_BUFFER_BYTES), and small ones."""

ViewOf = Callable[["Holding", int, Any, tuple[int, ...]], Any]
"""``(holding, address, dtype, shape)``: an array over some of it."""


class Holding:
    """Memory, for as long as a pool, a block or an array has use for it."""

    __slots__ = ("__weakref__", "give_back", "memory", "nbytes", "pointer")

    def __init__(self, memory: Any, pointer: int, nbytes: int) -> None:
        self.memory = memory
        self.pointer = pointer
        self.nbytes = nbytes
        self.give_back: Callable[[Any], None] | None = None

    def __del__(self) -> None:
        if self.give_back is not None:
            self.give_back(self.memory)


class Pool(Protocol):
    """Where blocks come from."""

    used_bytes: int
    limit_bytes: int | None

    def allocate(self, nbytes: int) -> PoolBlock:
        """A block; InputError if the limit does not leave so much."""

    def take_back(self, block: PoolBlock) -> None:
        """Of a block that is given back."""

    def close(self) -> None:
        """Give all memory back; twice does no harm."""


class PoolBlock:
    """A piece of a pool's memory.

    :param offset: in the holding
    :param size: of the piece, at least ``nbytes``
    """

    __slots__ = ("_last", "_pool", "_view_of", "holding", "nbytes", "offset", "size")

    def __init__(
        self, pool: Pool, holding: Holding, offset: int, size: int, nbytes: int, view_of: ViewOf
    ) -> None:
        self._pool: Pool | None = pool
        self._view_of = view_of
        self.holding: Holding | None = holding
        self.offset = offset
        self.size = size
        self.nbytes = nbytes
        self._last: tuple[Any, tuple[int, ...], Any] | None = None  # packets are alike

    def view(self, dtype: Any, shape: tuple[int, ...]) -> Any:
        """An array of what lies here; InputError after it was given back, or if it is too small."""
        if self.holding is None:
            raise InputError("this block has been given back")
        last = self._last
        if last is not None and last[0] == dtype and last[1] == shape:
            return last[2]
        if sized(dtype, shape) > self.nbytes:
            raise InputError(
                f"a block of {self.nbytes:,} bytes has no room for {np.dtype(dtype)} of shape {shape}"
            )
        found = self._view_of(self.holding, self.holding.pointer + self.offset, dtype, shape)
        self._last = dtype, shape, found
        return found

    def free(self) -> None:
        """Give it back; nothing is under way that uses it. Twice does no harm."""
        pool, self._pool = self._pool, None
        if pool is not None:
            self._last = None
            pool.take_back(self)
            self.holding = None


class GrowingPool:
    """Blocks that are allocations of their own.

    :param name: for people: whose memory it is
    :param make: allocates
    :param discard: frees what ``make`` made
    :param limit_bytes: of all blocks together, those included that are kept
    """

    def __init__(
        self,
        name: str,
        make: Callable[[int], Holding],
        discard: Callable[[Any], None],
        view_of: ViewOf,
        limit_bytes: int | None = None,
    ) -> None:
        self.name = name
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._make = make
        self._discard = discard
        self._view_of = view_of
        self._spare: dict[int, list[Holding]] = {}
        self._lock = threading.RLock()  # the collector of garbage may come while it is held

    def allocate(self, nbytes: int) -> PoolBlock:
        """A block of at least so many bytes."""
        size = _aligned(nbytes)
        with self._lock:
            spare = self._spare.get(size)
            if spare:
                holding = spare.pop()
            else:
                self._require(size)
                holding = self._make(size)
            self.used_bytes += size
        return PoolBlock(self, holding, 0, size, nbytes, self._view_of)

    def _require(self, size: int) -> None:
        if self.limit_bytes is None:
            return
        if self.used_bytes + self._kept_bytes() + size > self.limit_bytes:
            self._drop_spare()
        if self.used_bytes + size > self.limit_bytes:
            raise too_little(self.name, size, self.limit_bytes, self.limit_bytes - self.used_bytes)

    def _kept_bytes(self) -> int:
        return sum(size * len(spare) for size, spare in self._spare.items())

    def take_back(self, block: PoolBlock) -> None:
        """Keep it for the next."""
        assert block.holding is not None
        with self._lock:
            self.used_bytes -= block.size
            self._spare.setdefault(block.size, []).append(block.holding)

    def _drop_spare(self) -> None:
        held = [holding for spare in self._spare.values() for holding in spare]
        self._spare.clear()
        while held:
            discard_unless_held(held.pop, self._discard)

    def close(self) -> None:
        """Free what is kept."""
        with self._lock:
            self._drop_spare()


class SlabPool:
    """Blocks cut from one piece of memory.

    :param make: allocates it when the first block is asked for
    :param discard: frees it
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Holding],
        discard: Callable[[Any], None],
        view_of: ViewOf,
        limit_bytes: int,
    ) -> None:
        self.name = name
        self.limit_bytes: int | None = limit_bytes
        self.used_bytes = 0
        self._make = make
        self._discard = discard
        self._view_of = view_of
        self._holding: Holding | None = None
        self._gaps: list[tuple[int, int]] = [(0, limit_bytes)]  # where, how long
        self._lock = threading.RLock()

    def allocate(self, nbytes: int) -> PoolBlock:
        """The first gap that has room, or its beginning."""
        size = _aligned(nbytes)
        with self._lock:
            fitting = (place for place, gap in enumerate(self._gaps) if gap[1] >= size)
            place = next(fitting, None)
            if place is None:
                largest = max((length for _, length in self._gaps), default=0)
                raise too_little(self.name, size, self.limit_bytes or 0, largest)
            if self._holding is None:
                self._holding = self._make()
            offset, length = self._gaps[place]
            left = [(offset + size, length - size)] if length > size else []
            self._gaps[place : place + 1] = left
            self.used_bytes += size
            return PoolBlock(self, self._holding, offset, size, nbytes, self._view_of)

    def take_back(self, block: PoolBlock) -> None:
        """Join it with the gaps on both sides."""
        with self._lock:
            self.used_bytes -= block.size
            insort(self._gaps, (block.offset, block.size))
            place = self._gaps.index((block.offset, block.size))
            for left in (place, place - 1):
                if 0 <= left < len(self._gaps) - 1:
                    (begin, length), (behind, more) = self._gaps[left : left + 2]
                    if begin + length == behind:
                        self._gaps[left : left + 2] = [(begin, length + more)]

    def close(self) -> None:
        """Free it."""
        with self._lock:
            held = [] if self._holding is None else [self._holding]
            self._holding = None
            while held:
                discard_unless_held(held.pop, self._discard)


def discard_unless_held(take: Callable[[], Holding], discard: Callable[[Any], None]) -> None:
    """Free a holding that the caller had the last use for; else it goes with the last array over it."""
    holding = take()
    memory, seen = holding.memory, weakref.ref(holding)
    on_its_own, holding.give_back = holding.give_back, None
    del holding
    still = seen()
    if still is None:
        discard(memory)
    else:
        still.give_back = on_its_own


def too_little(name: str, size: int, limit_bytes: int, left: int) -> InputError:
    """What is raised where a pool has no more."""
    readable = config.readable_bytes
    return InputError(
        f"a buffer of {readable(size)} does not fit in the pool of {name}, {readable(limit_bytes)}, of "
        f"which {readable(max(0, left))} are left in one piece; use smaller packets, fewer buffers or a "
        "larger pool"
    )


def _aligned(nbytes: int) -> int:
    return max(ALIGNED_BYTES, -(-nbytes // ALIGNED_BYTES) * ALIGNED_BYTES)


# Memory of GPUs.


def gpu_pool(index: int, limit_bytes: int | None) -> Pool:
    """Of a GPU: plain allocations, which its peers see."""
    name = f"cuda:{index}"
    view_of = partial(_gpu_view, index)
    if limit_bytes is None:
        return GrowingPool(name, partial(_gpu_holding, index), Buffer.keep, view_of)
    size = limit_bytes // ALIGNED_BYTES * ALIGNED_BYTES
    return SlabPool(name, partial(_new_gpu_holding, index, size), Buffer.close, view_of, size)


def given_gpu_pool(index: int, memory: Any, limit_bytes: int | None) -> Pool:
    """Of an array of CuPy that the user hands in."""
    size = _usable(memory.nbytes, limit_bytes)
    holding = Holding(memory, int(memory.data.ptr), size)
    return SlabPool(f"cuda:{index}", lambda: holding, _leave, partial(_gpu_view, index), size)


def _gpu_holding(index: int, nbytes: int) -> Holding:
    with driver.current_kept():
        buffer = driver.kept_or_new(index, nbytes)
    return Holding(buffer, buffer.pointer, nbytes)


def _new_gpu_holding(index: int, nbytes: int) -> Holding:
    with driver.current_kept():
        buffer = Buffer(index, nbytes)
    return Holding(buffer, buffer.pointer, nbytes)


def _gpu_view(index: int, holding: Holding, address: int, dtype: Any, shape: Any) -> Any:
    return array_over(address, sized(dtype, shape), index, holding, dtype, shape)


def _usable(nbytes: int, limit_bytes: int | None) -> int:
    usable = nbytes if limit_bytes is None else min(nbytes, limit_bytes)
    return int(usable) // ALIGNED_BYTES * ALIGNED_BYTES


def _leave(memory: Any) -> None:
    """It is the user's."""


# Page-locked memory of the host.

_KEPT_PINNED: KeptMemory[PinnedBuffer] = KeptMemory(KEPT_PINNED_BYTES)
_let_go: deque[PinnedBuffer] = deque()  # by arrays that were held longer than their pool


def pinned_pool(limit_bytes: int | None) -> Pool:
    """Of the host."""
    return GrowingPool("the host", _pinned_holding, keep_pinned, _host_view, limit_bytes)


def given_host_pool(memory: Array, limit_bytes: int | None) -> Pool:
    """Of an array of bytes that the user hands in, and somebody has page-locked."""
    size = _usable(memory.nbytes, limit_bytes)
    holding = Holding(memory, memory.ctypes.data, size)
    return SlabPool("the host", lambda: holding, _leave, _host_view, size)


def take_pinned(nbytes: int) -> PinnedBuffer:
    """What is kept, or new; to be given to :func:`keep_pinned`."""
    while True:
        try:
            keep_pinned(_let_go.popleft())
        except IndexError:
            break
    found = _KEPT_PINNED.take(0, nbytes)
    if found is None:
        with driver.current_kept():
            found = PinnedBuffer(nbytes)
    return found


def _pinned_holding(nbytes: int) -> Holding:
    found = take_pinned(nbytes)
    holding = Holding(found, found.pointer, nbytes)
    holding.give_back = _let_go.append
    return holding


def keep_pinned(buffer: PinnedBuffer) -> None:
    """Keep it for the next pool, and free what is too much."""
    for one in _KEPT_PINNED.put(0, buffer.nbytes, buffer):
        one.close()


def pinned_kept_bytes() -> int:
    """What the process keeps of it."""
    return _KEPT_PINNED.kept_bytes(0)


def _host_view(holding: Holding, address: int, dtype: Any, shape: tuple[int, ...]) -> Array:
    nbytes = sized(dtype, shape)
    if nbytes == 0:
        return np.empty(shape, dtype)
    raw = (ctypes.c_byte * nbytes).from_address(address)
    raw.holding = holding  # type: ignore[attr-defined]
    found: Array = np.frombuffer(raw, np.uint8).view(dtype).reshape(shape)  # type: ignore[call-overload]
    return found
