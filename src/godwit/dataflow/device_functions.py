"""What operators call on the device: import these by name into the module that defines the operator.

``push(worklist, state, key, value)`` queues an item at its owner; ``push_local(worklist, key, value)``
on this device; ``push_to(worklist, device, key, value)`` in the outbox of the link on the way to another
device, past ``on_send``. The flags are what ``on_send`` and ``on_receive`` return.

The functions behind these are bound when the engine compiles an operator for its devices.
"""

from __future__ import annotations

from typing import Any

from godwit.runtime.protocol import DROP, DUPLICATE, KEEP, PASS


def engine_push(worklist: Any, state: Any, key: int, value: Any) -> None:
    """Bound by the engine."""
    raise NotImplementedError


def engine_push_local(worklist: Any, key: int, value: Any) -> None:
    """Bound by the engine."""
    raise NotImplementedError


def engine_push_to(worklist: Any, device: int, key: int, value: Any) -> None:
    """Bound by the engine."""
    raise NotImplementedError


def owner(state: Any, key: int) -> int:
    """Bound to the worklist's own."""
    raise NotImplementedError


def push(worklist: Any, state: Any, key: int, value: Any) -> None:
    """Queue an item at its owner."""
    engine_push(worklist, state, key, value)


def push_local(worklist: Any, key: int, value: Any) -> None:
    """Queue an item on this device."""
    engine_push_local(worklist, key, value)


def push_to(worklist: Any, device: int, key: int, value: Any) -> None:
    """Put an item into the outbox of the link on the way to another device."""
    engine_push_to(worklist, device, key, value)


def keep_or_pass_on(worklist: Any, state: Any, key: int, value: Any) -> int:
    """The owner keeps what arrives; any other device passes it on."""
    if owner(state, key) == worklist.device:
        return KEEP
    return PASS


__all__ = ["DROP", "DUPLICATE", "KEEP", "PASS", "push", "push_local", "push_to"]
