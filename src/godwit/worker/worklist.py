"""The distributed worklist: items processed by their owners, whichever device pushed them (Groute, 4.3).

The programmer writes ``process``, which may push further items, and up to five callbacks (Groute, figure
10): how an item is packed for sending and unpacked, whether it is passed on, kept, duplicated or dropped
when it is sent and when it arrives, and its priority. All are plain Python functions that are compiled and
inlined into the worker; each takes those of its parameters that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Any

import numpy as np

from godwit.dataflow.item_router import ItemRouter
from godwit.dataflow.operators import adapt, keep_or_pass_on
from godwit.dtypes import as_bucket_width, as_count, as_float, as_integer, check_callable
from godwit.errors import GodwitError, InputError, OperatorError, shown
from godwit.runtime.protocol import PASS, ProgressPoll
from godwit.runtime.statistics import WorklistCounts
from godwit.worker.options import (
    MAXIMAL_CAPACITY_ITEMS,
    as_capacity_items,
    as_window,
    require_worklist_memory,
)
from godwit.worker.task import Seeds, WorklistOperators, WorklistOptions

Operator = Callable[..., Any]

_ITEM = ("state", "key", "value")


def _no_look_ahead(state: Any, far_key: int, near_key: int) -> None:
    return


def _pass(key: int) -> int:
    return PASS


def _unchanged(key: int, value: Any) -> tuple[int, Any]:
    return key, value


def _doubled(fanout: Operator) -> Operator:
    def doubled(state: Any, key: int) -> int:
        return 2 * int(fanout(state, key))

    return doubled


class DistributedWorklist:
    """Work-items (key, value), each processed by the device that owns its key.

    :param router: the endpoints, and the routes between them
    :param process: ``process(worklist, state, key, value)``; pushes further items with
        ``push(worklist, state, key, value)`` (:mod:`godwit.dataflow.operators`)
    :param owner: ``owner(key, state)``: the index of the endpoint that processes the key
    :param fanout: the largest number of items that one item pushes: a number, or ``fanout(key, state)``.
        Pushing more ends the run with an error
    :param value_dtype: int32, uint32, int64, uint64, float32 or float64
    :param item_bytes: 8 (4-byte values, keys below 2^32) or 16
    :param priority: ``priority(value)``: smaller is sooner; a hint about order
    :param pack: ``pack(key, value, state)`` returns (key, value) as they are sent. It is called at every
        hop: with the policy ``"ring"``, also where an item is passed on
    :param unpack: the inverse, on each device that receives the item
    :param on_send: flags PASS, KEEP, DROP or DUPLICATE for an item of another device
    :param on_receive: flags for a received item; by default its owner keeps it, and others pass it on
    :raises InputError: item size and dtype do not go together, fanout below 0
    :raises OperatorError: an operator is no function, or has a parameter of an unknown name
    """

    def __init__(
        self,
        router: ItemRouter,
        *,
        process: Operator,
        owner: Operator,
        fanout: int | Operator,
        value_dtype: Any = np.int64,
        item_bytes: int = 16,
        priority: Operator | None = None,
        pack: Operator | None = None,
        unpack: Operator | None = None,
        on_send: Operator | None = None,
        on_receive: Operator | None = None,
    ) -> None:
        from godwit.runtime.cpu.values import VALUE_DTYPES

        if not isinstance(router, ItemRouter):
            raise InputError(f"router must be an ItemRouter, got {shown(router)}")
        try:
            dtype: np.dtype[Any] | None = np.dtype(value_dtype)
        except (TypeError, ValueError):
            dtype = None
        if dtype is None or dtype not in VALUE_DTYPES:
            names = ", ".join(known.name for known in VALUE_DTYPES)
            given = shown(value_dtype) if dtype is None else dtype.name
            raise InputError(f"value_dtype must be one of {names}, got {given}")
        if as_integer(item_bytes, "item_bytes") not in (8, 16):
            raise InputError(f"item_bytes must be 8 or 16, got {shown(item_bytes)}")
        if item_bytes == 8 and dtype.itemsize != 4:
            raise InputError(f"items of 8 bytes hold 4-byte values, {dtype.name} needs 16")
        self.router = router
        self._dtype = dtype
        if not callable(fanout):
            count = as_count(fanout, "fanout", 0, MAXIMAL_CAPACITY_ITEMS)
            fanout = lambda key: count  # noqa: E731
        most_pushes = adapt("fanout", fanout, ("state", "key"))
        zero = dtype.type(0)
        bindings = {
            "process": adapt("process", process, ("worklist", *_ITEM)),
            "owner": adapt("owner", owner, ("state", "key")),
            # An item that on_send duplicates needs room in two queues.
            "fanout": most_pushes if on_send is None else _doubled(most_pushes),
            "pack": adapt("pack", _unchanged if pack is None else pack, _ITEM),
            "unpack": adapt("unpack", _unchanged if unpack is None else unpack, _ITEM),
            "on_send": adapt("on_send", _pass if on_send is None else on_send, _ITEM),
            "on_receive": keep_or_pass_on
            if on_receive is None
            else adapt("on_receive", on_receive, ("worklist", *_ITEM)),
            "initial_value": adapt("initial_value", lambda: zero, ("state", "key")),
            "look_ahead": _no_look_ahead,
            "priority": None if priority is None else adapt("priority", priority, ("value",)),
        }
        self._operators = WorklistOperators(dtype, 8 if item_bytes == 8 else 16, bindings)

    def run(
        self,
        items: Sequence[tuple[int, Any]],
        states: Sequence[tuple[Any, ...]],
        *,
        delta: float = 1.0,
        window: int = 1,
        capacity_items: int = 1 << 14,
        poll: ProgressPoll | None = None,
    ) -> WorklistCounts:
        """Process items, and all that they push, until there are none.

        :param items: initial items (key, value)
        :param states: for each endpoint a tuple of arrays (or NamedTuple, or list), all of the same types,
            which the operators get as ``state``
        :param delta: width of a priority bucket
        :param window: number of buckets that a device may run ahead of the lowest bucket of all devices
        :param capacity_items: initial room for items on each device; it grows
        :param poll: called repeatedly with the number of items processed so far
        :raises InputError: a wrong item, state or setting
        :raises GraphTooLargeError: rings or worklists do not fit in memory
        """
        context = self.router.context
        if context.devices[0].kind != "cpu":
            raise InputError(
                "a DistributedWorklist runs on CPU devices, such as ['cpu:0', 'cpu:1']; GPUs run vertex "
                "programs"
            )
        from godwit.worker.cpu.engine import run_workers

        endpoints = len(context.endpoints)
        options = WorklistOptions(
            as_bucket_width(delta),
            as_window(window),
            self.router.capacity_items,
            as_capacity_items(capacity_items),
            self.router.next_hop,
        )
        check_callable(poll, "poll")
        require_worklist_memory(endpoints, self.router.capacity_items, options.capacity_items)
        states = _checked_states(states, endpoints)
        seeds = self._seeds(items, states[0], endpoints)
        with context.recording():
            counts = run_workers(self._operators, states, seeds, options, poll)
        if counts.value_overflow:
            raise GodwitError("a key of 2^32 or more was pushed in an item of 8 bytes; use 16")
        return counts

    def _seeds(self, items: Any, state: tuple[Any, ...], endpoints: int) -> list[Seeds]:
        """Return the items by owner; raise InputError if one is no pair, or does not fit."""
        if not isinstance(items, Iterable):
            raise InputError(f"items must be pairs (key, value), got {shown(items)}")
        keys: list[list[int]] = [[] for _ in range(endpoints)]
        values: list[list[Any]] = [[] for _ in range(endpoints)]
        owner = self._operators.bindings["owner"]
        for item in items:
            key, value = self._checked_item(item)
            try:
                named = owner(state, key)
            except Exception as error:
                what = f"{type(error).__name__}: {error}"
                raise OperatorError(f"owner fails for key {key}: {what}") from error
            endpoint = _checked_endpoint(named, key, endpoints)
            keys[endpoint].append(key)
            values[endpoint].append(value)
        return [
            Seeds(np.array(keys[endpoint], np.int64), np.array(values[endpoint], self._dtype))
            for endpoint in range(endpoints)
        ]

    def _checked_item(self, item: Any) -> tuple[int, Any]:
        dtype = self._dtype
        try:
            given_key, given_value = item
            key = as_count(given_key, "key", -(2**63), 2**63 - 1)
            if dtype.kind != "f":
                limits = np.iinfo(dtype)
                return key, as_count(given_value, "value", int(limits.min), int(limits.max))
            value = as_float(given_value, "value")
            if isfinite(value) and abs(value) > float(np.finfo(dtype).max):
                raise InputError(f"value {value} is too large")
        except (TypeError, ValueError) as error:  # InputError is one, too
            raise InputError(
                f"items must be pairs of a 64-bit key and a value of {dtype.name}, "
                f"got {shown(item)}: {error}"
            ) from error
        return key, value


def _checked_endpoint(named: Any, key: int, endpoints: int) -> int:
    """Return the index that ``owner`` returned for a key."""
    try:
        index = int(named)
    except (OverflowError, TypeError, ValueError):
        index = -1
    if not 0 <= index < endpoints:
        raise InputError(
            f"owner gives endpoint {shown(named)} for key {key}; there are {endpoints}"
        )
    return index


def _checked_states(states: Any, endpoints: int) -> list[tuple[Any, ...]]:
    """Return a tuple of arrays (or numbers) for each endpoint."""
    if not isinstance(states, Sequence) or isinstance(states, str):
        raise InputError(f"states must be a list, an entry per endpoint, got {shown(states)}")
    if len(states) != endpoints:
        raise InputError(f"there must be a state for each endpoint: {endpoints}, got {len(states)}")
    checked = []
    for endpoint, state in enumerate(states):
        if not isinstance(state, tuple | list):
            raise InputError(
                f"the state of endpoint {endpoint} must be a tuple of arrays, got {shown(state)}"
            )
        for part in state:
            if not isinstance(part, np.ndarray | np.generic | int | float | tuple):
                raise InputError(
                    f"the state of endpoint {endpoint} must be a tuple of arrays, "
                    f"got {shown(part)} in it"
                )
        checked.append(state if isinstance(state, tuple) else tuple(state))
    return checked
