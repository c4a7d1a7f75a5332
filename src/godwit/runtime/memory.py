"""Memory of an endpoint, and copies into it: the protocols that segment links ask of a device.

Invariant: a copy, a kernel and the reuse of a buffer are ordered by *events* alone. As in CUDA, an event
stands for everything that had been put into a stream when it was recorded; the host, which finishes an
operation before the next begins, has one event, :data:`READY`. Memory is overwritten only after the events
that its last users recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

import numpy as np

from godwit.arrays import MASKED, host_array
from godwit.dtypes import Array
from godwit.errors import InputError, shown

Transport = Literal["direct", "host"]
"""Copies between GPUs: peer to peer where there is peer access, or always through pinned host memory."""


class Event(Protocol):
    """Point in a stream, which is reached when the work before it is done."""

    def done(self) -> bool:
        """Return True if the work before the event is done; DeviceError if it failed."""

    def wait(self) -> None:
        """Block the host until the work before the event is done.

        :raises DeviceError: the work before it failed
        """

    def wait_on(self, stream: Any) -> None:
        """Make later work in a stream wait for it, without blocking the host."""


class _Ready:
    """Event that is always done."""

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        return

    def wait_on(self, stream: Any) -> None:
        return


READY: Event = _Ready()


def latest(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return the fewest events after which all given ones are done: in each stream, the last recorded.

    An event of a stream has its ``stream`` and two numbers of a counter: ``begun``, taken before it was
    recorded, and ``recorded``, taken afterwards. Invariant: an event is done when another one is whose
    recording in the same stream began later than its own ended. Where two threads record at once, neither
    event stands for the other.
    """
    last: dict[Any, Event] = {}
    others: list[Event] = []
    for event in events:
        stream = getattr(event, "stream", None)
        if stream is None:
            if event is not READY and not any(event is other for other in others):
                others.append(event)
            continue
        before: Any = last.get(stream)
        if before is None or before.recorded < event.begun:  # type: ignore[attr-defined]
            last[stream] = event
        elif event is not before and event.recorded > before.begun:  # type: ignore[attr-defined]
            others.append(event)
    return (*others, *last.values())


class Block(Protocol):
    """Piece of a pool's memory."""

    nbytes: int

    @property
    def address(self) -> int:
        """Address of the memory."""

    def view(self, dtype: Any, shape: tuple[int, ...], offset: int = 0) -> Any:
        """Return the memory from an offset in bytes on as an array of NumPy or CuPy."""

    def free(self) -> None:
        """Return the memory to its pool; nothing may be using it. A second call has no effect."""


class Lane(Protocol):
    """Copies into one endpoint's memory, in order; each link has one."""

    def copy(self, source: Any, to: int, after: Sequence[Event]) -> Event:
        """Start to copy an array, which is C-contiguous, to an address in a block, after some events.

        The caller keeps ``source`` alive until the returned event is done.
        """

    def close(self) -> None:
        """Release streams and buffers; no copy may be pending. A second call has no effect."""


class Space(Protocol):
    """Memory of one endpoint.

    :ivar kind: ``"host"`` or ``"cuda"``
    :ivar stream: the endpoint's stream; None on the host
    :ivar copy_bytes: size of copies into it that hide what a copy costs the host: smaller packets are
        copied several at a time; 0 if they are not
    """

    kind: str
    stream: Any
    copy_bytes: int

    @property
    def index(self) -> int | None:
        """The GPU; None for the host."""

    @property
    def used_bytes(self) -> int:
        """Bytes of blocks that are not freed."""

    def allocate(self, nbytes: int) -> Block:
        """Allocate from the pool.

        :raises InputError: the pool's limit leaves less
        :raises GraphTooLargeError: the device's memory does
        """

    def reads(self, array: Any) -> bool:
        """Return True if an array lies in this memory, so that no copy is needed."""

    def overlaps(self, array: Any, other: Any) -> bool:
        """Return True if two C-contiguous arrays, one of which lies here, share memory."""

    def take(self, array: Any, stream: Any = None) -> tuple[Any, tuple[Event, ...]]:
        """Return what a user sends as a C-contiguous array, and the events after which it may be read.

        :param stream: the stream that wrote it; by default as for :meth:`record_event`
        :raises InputError: not an array of numbers
        """

    def record_current(self) -> Event:
        """Record an event in the calling thread's current stream of this device."""

    def record_event(self, stream: Any = None) -> Event:
        """Record an event in a stream; by default in the endpoint's."""

    def is_current(self) -> bool:
        """Return True if what the calling thread puts into the current stream is in the endpoint's, too."""

    def lane(self) -> Lane:
        """Return a new :class:`Lane`, which copies arrays into this memory."""

    def entered(self) -> AbstractContextManager[None]:
        """Return a context manager that makes the endpoint's GPU and stream CuPy's current ones."""

    def entered_thread(self) -> AbstractContextManager[Any]:
        """Do as :meth:`entered` in a thread that runs workers of this GPU alone: the GPU stays current."""

    def close(self) -> None:
        """Free all memory; nothing may be using it. A second call has no effect."""


def overlap(part: Array, array: Array) -> bool:
    """Return True if ``array``, if it is a view, shares memory with ``part``, an array of a segment."""
    return array.base is not None and np.may_share_memory(part, array)


def host_array_to_send(array: Any) -> Array:
    """Return what a user sends as a C-contiguous host array; InputError if it is not one of numbers."""
    if type(array) is not np.ndarray:
        if isinstance(array, str | bytes):  # NumPy would make an array of it
            raise InputError(
                f"what is sent must be an array, got {shown(array)}; metadata= takes any object"
            )
        if isinstance(array, np.ma.MaskedArray):
            raise InputError(MASKED)
    try:
        host = host_array(array)
    except (TypeError, ValueError) as error:
        raise InputError(f"what is sent must be an array, got {shown(array)} ({error})") from error
    if host.dtype.hasobject or host.dtype.kind in "US":
        raise InputError(
            f"what is sent must hold numbers, got an array of {host.dtype}; metadata= takes any object"
        )
    if host.ndim == 0:
        host = host.reshape(1)
    return np.ascontiguousarray(host)
