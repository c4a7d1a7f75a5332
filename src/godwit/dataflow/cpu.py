"""Memory of CPU endpoints, for segment links; the counterpart of cuda/segments.py.

All CPU endpoints share one memory: a receiver reads the sender's array in place. Only links with ``copies``
copy.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.errors import InputError, shown
from godwit.runtime.memory import READY, Event, host_array_to_send, overlap


class HostBlock:
    """Block of host memory."""

    def __init__(self, space: HostSpace, nbytes: int, data: Array) -> None:
        self.nbytes = nbytes
        self._space = space
        self._data: Array | None = data

    @property
    def address(self) -> int:
        """Address of the memory; InputError after it was freed."""
        return int(self.view(np.uint8, (0,)).ctypes.data)

    def view(self, dtype: Any, shape: tuple[int, ...], offset: int = 0) -> Array:
        """Return the memory from an offset in bytes on as an array; InputError after it was freed."""
        if self._data is None:
            raise InputError("this block has been freed")
        nbytes = np.dtype(dtype).itemsize * prod(shape)
        view: Array = self._data[offset : offset + nbytes].view(dtype).reshape(shape)
        return view

    def free(self) -> None:
        """Return the memory to its pool. A second call has no effect."""
        data, self._data = self._data, None
        if data is not None:
            self._space.take_back(self.nbytes, data)


class HostLane:
    """Copies in the calling thread."""

    def copy(self, source: Any, to: int, after: Sequence[Event]) -> Event:
        """Copy before returning."""
        for event in after:
            event.wait()
        ctypes.memmove(to, source.ctypes.data, source.nbytes)
        return READY

    def close(self) -> None:
        """Do nothing: a lane holds no memory."""


class HostSpace:
    """Host memory; freed blocks are kept by size for the next allocation.

    :param limit_bytes: largest sum of all blocks
    :param memory: array that blocks are cut from, one behind the other
    :raises InputError: ``memory`` is not a writable host array
    """

    kind = "host"
    index = None
    stream = None
    copy_bytes = 0

    def __init__(self, limit_bytes: int | None = None, memory: Any = None) -> None:
        self._lock = threading.Lock()
        self._spare: dict[int, list[Array]] = {}
        self._given = as_bytes(memory) if memory is not None else None
        self._given_used = 0
        self._limit_bytes = limit_bytes
        if self._given is not None:
            room = self._given.nbytes
            self._limit_bytes = room if limit_bytes is None else min(room, limit_bytes)
        self.used_bytes = 0

    def allocate(self, nbytes: int) -> HostBlock:
        """Allocate a block; InputError if the limit leaves less."""
        with self._lock:
            spare = self._spare.get(nbytes)
            if spare:
                data = spare.pop()
            else:
                self._require(nbytes)
                data = self._new(nbytes)
            self.used_bytes += nbytes
            return HostBlock(self, nbytes, data)

    def _require(self, nbytes: int) -> None:
        if self._limit_bytes is None:
            return
        kept = sum(size * len(blocks) for size, blocks in self._spare.items())
        if self.used_bytes + kept + nbytes > self._limit_bytes and self._given is None:
            self._spare.clear()
            kept = 0
        left = self._limit_bytes - self.used_bytes - kept
        if nbytes > left:
            limit, room = (
                config.readable_bytes(self._limit_bytes),
                config.readable_bytes(max(0, left)),
            )
            raise InputError(
                f"a buffer of {config.readable_bytes(nbytes)} does not fit in the host's pool of {limit}, "
                f"of which {room} are left; use smaller packets, fewer buffers or a larger pool"
            )

    def _new(self, nbytes: int) -> Array:
        if self._given is None:
            return np.empty(nbytes, np.uint8)
        begin = self._given_used
        self._given_used += nbytes
        return self._given[begin : begin + nbytes]

    def take_back(self, nbytes: int, data: Array) -> None:
        """Keep a freed block's memory for the next allocation."""
        with self._lock:
            self.used_bytes -= nbytes
            self._spare.setdefault(nbytes, []).append(data)

    def reads(self, array: Any) -> bool:
        """Return True for any host array."""
        return isinstance(array, np.ndarray)

    def overlaps(self, array: Any, other: Any) -> bool:
        """Return True if arrays share memory."""
        return overlap(array, other)

    def take(self, array: Any, stream: Any = None) -> tuple[Array, tuple[Event, ...]]:
        """Return a host array that is C-contiguous; it may be read at once."""
        return host_array_to_send(array), ()

    def record_current(self) -> Event:
        """Return an event that is done."""
        return READY

    def record_event(self, stream: Any = None) -> Event:
        """Return an event that is done."""
        return READY

    def is_current(self) -> bool:
        """Return False: the host has no stream."""
        return False

    def lane(self) -> HostLane:
        """Return a new lane."""
        return HostLane()

    def entered(self) -> AbstractContextManager[None]:
        """Return a context manager that does nothing."""
        return nullcontext()

    def entered_thread(self) -> AbstractContextManager[None]:
        """Return a context manager that does nothing."""
        return nullcontext()

    def close(self) -> None:
        """Drop the kept memory."""
        with self._lock:
            self._spare.clear()
            self._given = None


def as_bytes(memory: Any) -> Array:
    """Return a user's host memory as bytes; InputError if it is not a writable, contiguous array."""
    if not isinstance(memory, np.ndarray) or not memory.flags.writeable:
        raise InputError(f"a pool on the host must be a writable NumPy array, got {shown(memory)}")
    if not memory.flags.c_contiguous:
        raise InputError("a pool must be contiguous memory, got an array with gaps")
    return memory.reshape(-1).view(np.uint8)
