"""Endpoints: whatever can send or receive."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from godwit.errors import TopologyError
from godwit.runtime.memory import Space
from godwit.runtime.protocol import Device

if TYPE_CHECKING:
    from godwit.dataflow.context import Context
    from godwit.dataflow.receiver import Receiver

Kind = Literal["device", "host", "router"]


class Endpoint:
    """Something that sends and receives: a device of a context, the host, or a router.

    The same device may stand at several places of a context: each is an endpoint of its own.

    :ivar context: that it belongs to
    :ivar kind: ``"device"``, ``"host"`` or ``"router"``
    :ivar name: for people: the device's, ``"host"``, or the router's
    :ivar device: None of the host and of routers
    :ivar index: which of the context's devices, or -1
    """

    def __init__(
        self, context: Context, kind: Kind, name: str, device: Device | None, index: int
    ) -> None:
        self.context = context
        self.kind = kind
        self.name = name
        self.device = device
        self.index = index
        self.inbound: list[Receiver] = []  # the ends of links to it where receiving has begun

    @cached_property
    def space(self) -> Space:
        """Its memory."""
        if self.kind == "router":
            raise TopologyError(f"{self} has no memory; its links end in that of others")
        return self.context.make_space(self)

    @property
    def stream(self) -> Any:
        """What a GPU's work is put into by its workers; None elsewhere."""
        return self.space.stream

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name  # as messages name it
