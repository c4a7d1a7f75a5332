"""What algorithms share that one host thread feeds with packets of host memory, GPU after GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager

from godwit.dtypes import Array
from godwit.runtime.memory import Event

PAUSE_S = 2e-5
"""Pause between two looks at events; threads that copy get the interpreter meanwhile."""

_SMALLEST_PART = 4
"""The last packets have at least this fraction of a packet: each costs the host 0.1 ms."""


def packet_items(items_left: int, most_items: int, gpus: int) -> int:
    """Return the size of the next packet; packets shrink towards the end, so that all GPUs end together.

    :param gpus: number of GPUs that take packets from what is left
    """
    return min(most_items, max(-(-most_items // _SMALLEST_PART), items_left // (2 * gpus)))


def is_page_locked(array: Array) -> bool:
    """Return True if the copy engines of GPUs reach an array in host memory."""
    from godwit.runtime.cuda.memory import is_locked

    return array.nbytes > 0 and is_locked(array.ctypes.data, array.nbytes)


def can_be_enqueued(event: Event) -> bool:
    """Return True if work that needs an event can be put into a stream without waiting on the host."""
    from godwit.runtime.cuda.transfer.staging import StagedCopy

    return not isinstance(event, StagedCopy) or event.done()


def current_gpu_kept() -> AbstractContextManager[None]:
    """Return a context manager that restores the thread's current GPU."""
    from godwit.runtime.cuda.driver import current_kept

    return current_kept()
