"""What links that carry segments ask of a device: memory at its endpoint, and copies into it.

Invariant: a copy, a kernel and the reuse of a buffer are ordered by *marks* alone. A mark stands for
everything that had been put into a stream when it was made; on the host, where things are done at once,
every mark is :data:`READY`. Who overwrites memory names the marks after which it may.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

import numpy as np

from godwit.arrays import MASKED, host_array
from godwit.dtypes import Array
from godwit.errors import InputError, shown

Transport = Literal["direct", "host"]
"""How segments get from GPU to GPU: straight, where they are peers, or through pinned host memory."""


class Mark(Protocol):
    """A point that a stream gets to."""

    def done(self) -> bool:
        """Whether it has been reached."""

    def wait(self) -> None:
        """Wait on the host until it is.

        :raises DeviceError: what comes before it failed
        """

    def order(self, stream: Any) -> None:
        """Let what is put into a stream from now on wait for it; the host does not."""


class _Ready:
    """What has been reached already."""

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        return

    def order(self, stream: Any) -> None:
        return


READY: Mark = _Ready()


class Block(Protocol):
    """A piece of a pool's memory."""

    nbytes: int

    def view(self, dtype: Any, shape: tuple[int, ...]) -> Any:
        """An array, NumPy's or CuPy's, of what lies here."""

    def free(self) -> None:
        """Give it back to its pool; nothing is under way that uses it. Twice does no harm."""


class Lane(Protocol):
    """Brings segments into one endpoint's memory, in order; one a link that ends there."""

    def copy(self, source: Any, view: Any, after: Sequence[Mark]) -> Mark:
        """Start to copy an array into a view of a block, once some marks are reached.

        Who calls holds ``source`` until the mark that comes back is reached.
        """

    def close(self) -> None:
        """Give back what it has; nothing is under way. Twice does no harm."""


class Space(Protocol):
    """The memory of one endpoint.

    :ivar kind: ``"host"`` or ``"cuda"``
    :ivar stream: what its kernels are put into, or None on the host
    """

    kind: str
    stream: Any

    @property
    def used_bytes(self) -> int:
        """Of blocks that have not been given back."""

    @property
    def limit_bytes(self) -> int | None:
        """Of all blocks together."""

    def allocate(self, nbytes: int) -> Block:
        """Memory of the pool.

        :raises InputError: more than its limit leaves, with need against room
        :raises GraphTooLargeError: the device has no more
        """

    def reads(self, array: Any) -> bool:
        """Whether an array lies in this memory, so that no copy is needed."""

    def overlaps(self, array: Any, other: Any) -> bool:
        """Whether two C-contiguous arrays, one of which lies here, have memory in common."""

    def take(self, array: Any, stream: Any = None) -> tuple[Any, tuple[Mark, ...]]:
        """What a user sends, as a C-contiguous array of NumPy or CuPy; after which marks it may be read.

        :param stream: what its memory was written to in, so far; if none is named, see :meth:`mark`
        :raises InputError: it is no array of numbers
        """

    def begun(self) -> Mark:
        """Everything that the calling thread has put into its current stream here so far."""

    def mark(self, stream: Any = None) -> Mark:
        """Everything that was put into a stream so far; into the endpoint's own, if none is named."""

    def lane(self) -> Lane:
        """A way into this memory."""

    def entered(self) -> AbstractContextManager[None]:
        """For the thread of a worker: its GPU and stream are the current ones."""

    def close(self) -> None:
        """Give all memory back; nothing is under way. Twice does no harm."""


def overlap(part: Array, array: Array) -> bool:
    """Whether an array has memory in common with one that is a view itself, as those of segments are.

    Who has memory of its own is asked no further: it takes longer.
    """
    return array.base is not None and np.may_share_memory(part, array)


def host_array_to_send(array: Any) -> Array:
    """What a user sends from host memory, without gaps; InputError if it is no array of numbers."""
    if type(array) is not np.ndarray:
        if isinstance(array, str | bytes):  # NumPy would make an array of it
            raise InputError(
                f"what is sent must be an array, got {shown(array)}; metadata= takes any object"
            )
        if isinstance(array, np.ma.MaskedArray):
            raise InputError(MASKED)
    try:
        found = host_array(array)
    except (TypeError, ValueError) as error:
        raise InputError(f"what is sent must be an array, got {shown(array)} ({error})") from error
    if found.dtype.hasobject or found.dtype.kind in "US":
        raise InputError(
            f"what is sent must hold numbers, got an array of {found.dtype}; metadata= takes any object"
        )
    if found.ndim == 0:
        found = found.reshape(1)
    return np.ascontiguousarray(found)
