"""Operators for the tests of the distributed worklist; few, since each set is compiled once.

What varies from test to test lies in the states, which operators get as tuples of arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from godwit.dataflow.operators import KEEP, PASS, push, push_local, push_to
from godwit.runtime.cpu.atomics import yield_thread

Array = np.ndarray[Any, np.dtype[Any]]

# --- Splitting: an item keeps a part of its value and hands equal parts on.

KEY_MASK = (1 << 40) - 1


class SplitState(NamedTuple):
    """A device's state; ``options``: devices, delay, promised fanout, wrong key, its owner, parts."""

    kept: Array
    visits: Array
    options: Array


def split_state(
    devices: int,
    *,
    delay: int = 0,
    fanout: int = 2,
    wrong_key: int = -1,
    wrong_owner: int = 0,
    parts: int = 2,
) -> SplitState:
    options = np.array([devices, delay, fanout, wrong_key, wrong_owner, parts], np.int64)
    return SplitState(np.zeros(1, np.int64), np.zeros(1, np.int64), options)


def split_hash(key: int) -> int:
    mixed = (key ^ (key >> 15)) * 0x2C1B3C6D & 0xFFFFFFFFFFFF
    return mixed >> 17


def split_owner(key: int, state: Any) -> int:
    if key == state.options[3]:
        return state.options[4]
    return split_hash(key) % state.options[0]


def split_fanout(state: Any) -> int:
    return state.options[2]


def split(worklist: Any, state: Any, key: int, value: int) -> None:
    parts = state.options[5]
    part = value // (parts + 1)
    state.kept[0] += value - parts * part
    state.visits[0] += 1
    delay = state.options[1]
    if delay and (split_hash(key + 77) & delay) == worklist.device:
        for _ in range(delay):
            yield_thread()
    if part > 0:
        for child in range(parts):
            push(worklist, state, (parts * key + 1 + child) & KEY_MASK, part)


def split_visits(value: int) -> int:
    """How many items come of one."""
    part = value // 3
    return 1 + (2 * split_visits(part) if part else 0)


# --- Flags: what happens to an item is looked up by its key.

FLAG_KEYS = 64
_SCRAMBLE = 0x2A5A5A5A


class FlagState(NamedTuple):
    """A device's state: processings by key and value, and the flags of each key."""

    seen: Array  # (FLAG_KEYS, 8)
    send_flags: Array
    receive_flags: Array
    owners: Array
    children: Array  # (FLAG_KEYS, 2)


def flag_owner(key: int, state: Any) -> int:
    return state.owners[key]


def flag_process(worklist: Any, state: Any, key: int, value: int) -> None:
    state.seen[key, value] += 1
    if value > 0:
        push(worklist, state, state.children[key, 0], value - 1)
        push(worklist, state, state.children[key, 1], value - 1)


def flag_pack(key: int, value: int) -> tuple[int, int]:
    return key ^ _SCRAMBLE, -5 - value


def flag_unpack(key: int, value: int) -> tuple[int, int]:
    return key ^ _SCRAMBLE, -5 - value


def flag_on_send(key: int, state: Any) -> int:
    return state.send_flags[key]


def flag_on_receive(worklist: Any, key: int, state: Any) -> int:
    if state.owners[key] != worklist.device:
        return PASS
    return state.receive_flags[key]


def flag_priority(value: int) -> int:
    return -3 * value


# --- Values that are not of the worklist's dtype when they are pushed.


class SumState(NamedTuple):
    total: Array
    devices: Array


def modulo_owner(key: int, state: Any) -> int:
    return key % state.devices[0]


def halve(worklist: Any, state: Any, key: int, value: Any) -> None:
    """Halves are float64, and the last item an integer."""
    state.total[0] += value
    if key > 1:
        push(worklist, state, key - 1, value * 0.5)
    elif key == 1:
        push(worklist, state, 0, 3)


# --- Hopping: items that go where the operator says, whoever owns them.


class HopState(NamedTuple):
    visits: Array
    steps: Array  # the factor of a step's key


def hop(worklist: Any, state: Any, key: int, value: int) -> None:
    """Even steps stay, odd ones go on by ``key`` devices."""
    state.visits[0] += 1
    if value > 0:
        if value & 1 == 0:
            push_local(worklist, key * state.steps[0], value - 1)
        else:
            push_to(worklist, (worklist.device + key) % worklist.devices, key, value - 1)


def nobody(key: int) -> int:
    return 0


def keep() -> int:
    return KEEP


# --- Endless.


def forever(worklist: Any, state: Any, key: int, value: int) -> None:
    push(worklist, state, key + 1, value)
