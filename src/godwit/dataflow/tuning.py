"""The settings of a worklist, checked: how much room, how far ahead, how coarse an order.

Upper bounds are far above what is of use; they keep sizes in bytes within what memory can be.
"""

from __future__ import annotations

from typing import Any

from godwit.dtypes import as_count
from godwit.errors import InputError, shown
from godwit.graph.rows import require_memory

DEFAULT_RING_ITEMS = 4096

MAXIMAL_WINDOW = 2**62
MAXIMAL_RING_ITEMS = 2**24
"""Slots of one mailbox: there is one for each pair of devices."""
MAXIMAL_CAPACITY_ITEMS = 2**40

_ITEM_BYTES = 16


def as_window(value: Any) -> int:
    """How many buckets a device may run ahead; InputError if it is no integer in range."""
    return as_count(value, "window", 0, MAXIMAL_WINDOW)


def as_ring_items(value: Any, name: str = "ring_items") -> int:
    """Slots of a mailbox; InputError if it is no integer in range."""
    return as_count(value, name, 1, MAXIMAL_RING_ITEMS)


def as_capacity_items(value: Any) -> int:
    """Room of a worklist; InputError if it is no integer in range.

    :raises GraphTooLargeError: so many items do not fit in memory
    """
    items = as_count(value, "capacity_items", 1, MAXIMAL_CAPACITY_ITEMS)
    require_memory(_ITEM_BYTES * items, f"a worklist of {items} items")
    return items


def require_room(endpoints: int, ring_items: int, capacity_items: int) -> None:
    """Refuse rings and worklists that were made larger than usual and do not fit in memory.

    :raises GraphTooLargeError: before anything is allocated
    """
    if ring_items > DEFAULT_RING_ITEMS:
        needed = _ITEM_BYTES * ring_items * endpoints**2
        require_memory(needed, f"mailboxes of {ring_items} items between {endpoints} devices")
    needed = _ITEM_BYTES * capacity_items * endpoints
    require_memory(needed, f"a worklist of {capacity_items} items on each of {endpoints} devices")


def check_callable(value: Any, name: str) -> None:
    """InputError if the value is neither None nor something to be called."""
    if value is not None and not callable(value):
        raise InputError(f"{name} must be a function, got {shown(value)}")
