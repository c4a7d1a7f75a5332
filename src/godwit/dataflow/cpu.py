"""The memory of CPU endpoints, for links that carry segments; the counterpart of cuda/segments.py.

All CPU endpoints share one memory: what one sends the other reads where it lies. A copy is made only for
links that ask for one.
"""

from __future__ import annotations

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
    """Some bytes of the host."""

    def __init__(self, space: HostSpace, nbytes: int, data: Array) -> None:
        self.nbytes = nbytes
        self._space = space
        self._data: Array | None = data

    def view(self, dtype: Any, shape: tuple[int, ...]) -> Array:
        """An array of what lies here; InputError after it was given back."""
        if self._data is None:
            raise InputError("this block has been given back")
        nbytes = np.dtype(dtype).itemsize * prod(shape)
        found: Array = self._data[:nbytes].view(dtype).reshape(shape)
        return found

    def free(self) -> None:
        """Give it back; twice does no harm."""
        data, self._data = self._data, None
        if data is not None:
            self._space.take_back(self.nbytes, data)


class HostLane:
    """Copies at once, in the caller's thread."""

    def copy(self, source: Any, view: Any, after: Sequence[Event]) -> Event:
        """Copy; done when it returns."""
        for event in after:
            event.wait()
        np.copyto(view, source)
        return READY

    def close(self) -> None:
        """Nothing is held."""


class HostSpace:
    """Memory of the host, by blocks that are kept by size for the next who asks.

    :param limit_bytes: of all blocks together
    :param memory: bytes to take blocks from, one behind the other
    :raises InputError: ``memory`` is no writable host array
    """

    kind = "host"
    stream = None

    def __init__(self, limit_bytes: int | None = None, memory: Any = None) -> None:
        self._lock = threading.Lock()
        self._spare: dict[int, list[Array]] = {}
        self._given = _as_bytes(memory) if memory is not None else None
        self._given_used = 0
        self.limit_bytes = limit_bytes
        if self._given is not None:
            room = self._given.nbytes
            self.limit_bytes = room if limit_bytes is None else min(room, limit_bytes)
        self.used_bytes = 0

    def allocate(self, nbytes: int) -> HostBlock:
        """A block; InputError if the limit does not leave so much."""
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
        if self.limit_bytes is None:
            return
        kept = sum(size * len(blocks) for size, blocks in self._spare.items())
        if self.used_bytes + kept + nbytes > self.limit_bytes and self._given is None:
            self._spare.clear()
            kept = 0
        left = self.limit_bytes - self.used_bytes - kept
        if nbytes > left:
            limit, room = (
                config.readable_bytes(self.limit_bytes),
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
        """A block's bytes, for the next."""
        with self._lock:
            self.used_bytes -= nbytes
            self._spare.setdefault(nbytes, []).append(data)

    def reads(self, array: Any) -> bool:
        """The host reads all host memory."""
        return isinstance(array, np.ndarray)

    def overlaps(self, array: Any, other: Any) -> bool:
        """Whether arrays have memory in common."""
        return overlap(array, other)

    def take(self, array: Any, stream: Any = None) -> tuple[Array, tuple[Event, ...]]:
        """In host memory, rows one behind the other; at once."""
        return host_array_to_send(array), ()

    def record_current(self) -> Event:
        """On the host all is done at once."""
        return READY

    def record_event(self, stream: Any = None) -> Event:
        """On the host all is done at once."""
        return READY

    def lane(self) -> HostLane:
        """Copies at once."""
        return HostLane()

    def entered(self) -> AbstractContextManager[None]:
        """Nothing is to be made current."""
        return nullcontext()

    def close(self) -> None:
        """Forget what was kept."""
        with self._lock:
            self._spare.clear()
            self._given = None


def _as_bytes(memory: Any) -> Array:
    if not isinstance(memory, np.ndarray) or not memory.flags.writeable:
        raise InputError(f"a pool on the host must be a writable NumPy array, got {shown(memory)}")
    if not memory.flags.c_contiguous:
        raise InputError("a pool must be contiguous memory, got an array with gaps")
    return memory.reshape(-1).view(np.uint8)
