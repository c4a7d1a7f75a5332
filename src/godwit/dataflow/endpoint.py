"""Endpoints: the devices of a context, the host, and routers."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from godwit.errors import TopologyError
from godwit.runtime.memory import Space
from godwit.runtime.protocol import Device

if TYPE_CHECKING:
    from godwit.dataflow.context import Context
    from godwit.dataflow.receiver import Receiver


class Endpoint:
    """Sender and receiver of a context: a device, the host, or a router.

    A device that is named twice in a context's devices is two endpoints.

    :ivar context: the context
    :ivar kind: ``"device"``, ``"host"`` or ``"router"``
    :ivar name: the device's name, ``"host"``, or the router's name
    :ivar device: the device; None for the host and routers
    :ivar index: index in ``context.endpoints``; -1 for the host and routers
    """

    def __init__(
        self,
        context: Context,
        kind: Literal["device", "host", "router"],
        name: str,
        device: Device | None = None,
        index: int = -1,
    ) -> None:
        self.context = context
        self.kind = kind
        self.name = name
        self.device = device
        self.index = index
        # Receivers of links to it, after their first request.
        self.inbound: list[Receiver] = []

    @cached_property
    def space(self) -> Space:
        """Memory of the endpoint."""
        if self.kind == "router":
            raise TopologyError(f"{self} has no memory; its links end in that of others")
        return self.context.make_space(self)

    def copy_bytes_to(self, target: Endpoint) -> int:
        """Return the size up to which small packets are copied several at a time; 0 if they are not."""
        here, there = self.space, target.space
        return 0 if here.index == there.index else min(here.copy_bytes, there.copy_bytes)

    @property
    def stream(self) -> Any:
        """Stream of a GPU's workers; None elsewhere."""
        return self.space.stream

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name  # as messages name it
