"""Item links and the router that sends work-items over them (Groute, sections 3 and 4.2).

An item link is a mailbox: a one-way ring buffer of work-items between two endpoints, which the devices fill
and empty themselves. A router connects all endpoints of a context; its policy names the link over which an
item leaves for its destination. With the direct policy every pair has a link; with a ring, items pass
through the endpoints in between, which need one neighbour each.

The other kind of link carries arrays and is driven by the host: :mod:`godwit.dataflow.link`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.dataflow.context import Context
from godwit.dataflow.endpoint import Endpoint
from godwit.dtypes import as_count
from godwit.errors import InputError, shown

DEFAULT_RING_ITEMS = 4096
_MOST_RING_ITEMS = 2**24

Policy = Callable[[int, int, int], int]
"""``policy(here, destination, endpoints)``: returns the next endpoint of an item."""


def direct(here: int, destination: int, endpoints: int) -> int:
    """Send to the destination."""
    return destination


def ring(here: int, destination: int, endpoints: int) -> int:
    """Send to the next endpoint, whatever the destination (Groute's default on a PCIe bus)."""
    return (here + 1) % endpoints


POLICIES: dict[str, Policy] = {"direct": direct, "ring": ring}


def as_ring_items(value: Any, name: str = "ring_items") -> int:
    """Return the slots of a mailbox as an integer; InputError if out of range."""
    return as_count(value, name, 1, _MOST_RING_ITEMS)


@dataclass(frozen=True)
class ItemLink:
    """One-way connection for work-items.

    :param capacity_items: slots of its ring buffer; while it is full, items stay with the sender
    """

    source: Endpoint
    target: Endpoint
    capacity_items: int = DEFAULT_RING_ITEMS

    def __post_init__(self) -> None:
        for end in (self.source, self.target):
            if not isinstance(end, Endpoint):
                raise InputError(f"a link must connect endpoints of a context, got {shown(end)}")
        if self.source == self.target:
            raise InputError(f"a link must connect two endpoints, got {self.source} twice")
        items = as_ring_items(self.capacity_items, "capacity_items")
        object.__setattr__(self, "capacity_items", items)


class ItemRouter:
    """Connection of all endpoints of a context by item links.

    :param context: the context
    :param policy: ``"direct"``, ``"ring"``, or a function ``(here, destination, endpoints)`` that returns
        the next endpoint of an item at ``here``. All are integers: indices of endpoints, and their number
        (a :class:`godwit.Router` calls its policy with :class:`godwit.Endpoint` objects). It is called once
        per pair, at creation
    :param capacity_items: slots of each link's ring buffer
    :raises InputError: an unknown policy, or one by which items do not arrive
    """

    def __init__(
        self,
        context: Context,
        policy: str | Policy = "direct",
        *,
        capacity_items: int = DEFAULT_RING_ITEMS,
    ) -> None:
        if not isinstance(context, Context):
            raise InputError(
                f"an item router connects the endpoints of a Context, got {shown(context)}"
            )
        if isinstance(policy, str):
            if policy not in POLICIES:
                known = ", ".join(repr(name) for name in POLICIES)
                raise InputError(f"unknown routing policy {shown(policy)}; there are {known}")
            policy = POLICIES[policy]
        if not callable(policy):
            raise InputError(
                f"the routing policy must be a name or a function, got {shown(policy)}"
            )
        # Checked by links, too, but a single endpoint has none.
        capacity_items = as_ring_items(capacity_items, "capacity_items")
        self.context = context
        self.capacity_items = capacity_items
        self._next_hop = _next_hops(policy, len(context.endpoints))
        endpoints = context.endpoints
        self.links = tuple(
            ItemLink(endpoints[here], endpoints[there], capacity_items)
            for here in range(len(endpoints))
            for there in sorted(set(self._next_hop[here].tolist()) - {here})
        )

    @property
    def next_hop(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """int64 (endpoints, endpoints): the next endpoint of items at i for j."""
        return self._next_hop


def _next_hops(policy: Policy, endpoints: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    table = np.empty((endpoints, endpoints), np.int64)
    for here in range(endpoints):
        for destination in range(endpoints):
            hop = here if here == destination else policy(here, destination, endpoints)
            if not (isinstance(hop, int | np.integer) and 0 <= hop < endpoints):
                raise InputError(
                    f"the routing policy sends items at endpoint {here} for endpoint "
                    f"{destination} to {hop!r}, which is no endpoint in [0, {endpoints})"
                )
            table[here, destination] = hop
    for here in range(endpoints):
        for destination in range(endpoints):
            endpoint = here
            for _ in range(endpoints):
                endpoint = int(table[endpoint, destination])
            if endpoint != destination:
                raise InputError(
                    f"the routing policy never brings items from endpoint {here} to endpoint "
                    f"{destination}: they circle at endpoint {endpoint}"
                )
    table.flags.writeable = False
    return table
