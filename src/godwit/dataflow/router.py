"""Routers: endpoints that connect many to many, by a policy (Groute, sections 3 and 4.2, figure 8).

A message to a router is cut into segments that fit into the buffers of every receiver (the segmenter); the
policy names the receivers that may take a segment; it is offered to all of these, and the first with a free
buffer claims it (the multiplexer: the queues of :mod:`godwit.dataflow.receiver`). A router has no memory
and no thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from godwit.dataflow.endpoint import Endpoint
from godwit.dataflow.link import Link, common_context
from godwit.dataflow.policies import Choose, Policy, as_policy, groups_of
from godwit.dataflow.receiver import Receiver, Segment
from godwit.dtypes import as_flag
from godwit.errors import InputError, TopologyError, shown

PerEndpoint = int | Mapping[Endpoint, int] | None


class Router(Endpoint):
    """Connection of inputs to outputs, with a link from each input and a link to each output.

    >>> import numpy as np, godwit as gw
    >>> with gw.Context(["cpu:0", "cpu:1"]) as context:
    ...     router = gw.Router([context.host], context.endpoints, "round-robin", packet_bytes=8)
    ...     with router.input(context.host) as link:
    ...         future = link.send(np.arange(4))
    ...     [int(segment.array[0]) for segment in router.output(context.endpoints[1])]
    [1, 3]

    :param inputs: senders; none, if it will be among the outputs of another router
    :param outputs: receivers; they may include routers
    :param policy: ``"any"`` (the first free receiver), ``"round-robin"``, ``"broadcast"``, ``"scatter"``
        (equal parts of every message), ``"gather"``, ``"ring"``, ``"one-way"``, ``"tree"``, ``"priority"``;
        a function ``(segment, source, destinations)`` that returns a destination, a list (any of them), or
        :func:`godwit.every` of a list; or one of :mod:`godwit.dataflow.policies` with its own settings
    :param packet_bytes: size of the receive buffers, one number or one for each output
    :param buffers: number of receive buffers, one number or one for each output
    :param copies: if True, segments are copied even where a receiver could read the sender's memory
    :ivar asks_by_message: True if the policy gives all segments of a message the same receivers
    :ivar asks_by_source: True if it gives all segments of an input the same receivers
    :raises TopologyError: an endpoint is named twice or of another context, there is no output, or it
        connects an endpoint to itself alone
    :raises InputError: an unknown policy, or numbers out of range
    """

    def __init__(
        self,
        inputs: Sequence[Endpoint],
        outputs: Sequence[Endpoint],
        policy: str | Policy | Choose = "any",
        *,
        packet_bytes: PerEndpoint = None,
        buffers: PerEndpoint = None,
        copies: bool = False,
        name: str | None = None,
    ) -> None:
        ends_in, ends_out = _listed(inputs, "inputs"), _listed(outputs, "outputs")
        if not ends_out:
            raise TopologyError("a router without outputs leads nowhere: name at least one")
        context = common_context(*ends_in, *ends_out)
        for end in ends_in:
            if isinstance(end, Router):
                raise TopologyError(
                    f"{end} cannot be an input: make this router first, and name it among {end}'s outputs"
                )
        if len(ends_in) == 1 and ends_in == ends_out:
            raise TopologyError(f"a router from {ends_in[0]} to itself alone leads nowhere")
        self.policy = as_policy(policy)
        if self.policy.outputs is not None and len(ends_out) != self.policy.outputs:
            raise TopologyError(
                f"policy {self.policy.name!r} takes {self.policy.outputs} output, got {len(ends_out)}"
            )
        copies = as_flag(copies, "copies")
        if not isinstance(name, str | None):
            raise InputError(f"name must be a text, got {shown(name)}")
        super().__init__(context, "router", name or f"router {len(context.routers)}")
        behind = [end for end in ends_out if isinstance(end, Router)]
        by_source = self.policy.by_source and self.policy.priority is None
        self.asks_by_source: bool = by_source and all(end.asks_by_source for end in behind)
        self.asks_by_message: bool = (by_source or self.policy.by_message) and all(
            end.asks_by_message for end in behind
        )
        self._is_output = False
        self._lock = threading.Lock()  # of _senders; no segment needs it
        self._outputs = ends_out
        self._inputs = ends_in
        self._out_of: dict[Endpoint, Link] = {}
        for end in ends_out:
            link = Link.of_router(self, end, _of(packet_bytes, end), _of(buffers, end), copies)
            self._out_of[end] = link
        self._into = {end: Link.of_router(end, self, None, None, False) for end in ends_in}
        # By output: number of inputs that reach it and have not ended.
        self._senders = dict.fromkeys(ends_out, 0)
        for end in ends_in:
            for out in self._reach(end):
                self._senders[out] += 1
        for link in self._out_of.values():
            if link.receiver is not None:
                link.receiver.backlog = partial(self._backlog, link.receiver)
        # Last, since nothing below raises.
        for end in ends_out:
            if isinstance(end, Router):
                end._is_output = True
                for out in end._senders:
                    end._senders[out] += 1
        context.add_router(self)

    def copy_bytes_to(self, target: Endpoint) -> int:
        """Return the size up to which small packets are copied several at a time; 0 if they are not."""
        return max((end.copy_bytes_to(target) for end in self._inputs), default=0)

    def _reach(self, source: Endpoint) -> tuple[Endpoint, ...]:
        """Return the outputs that an input may send to; all for a router, which forwards any segment."""
        reach = self.policy.reach
        if reach is None or isinstance(source, Router):
            return self._outputs
        with suppress(InputError):  # raised again by a send
            reached = reach(source, self._outputs)
            return tuple(out for out in self._outputs if out in reached)
        return self._outputs

    # Links

    @property
    def inputs(self) -> tuple[Endpoint, ...]:
        """Endpoints that send to the router."""
        return tuple(self._into)

    @property
    def outputs(self) -> tuple[Endpoint, ...]:
        """Endpoints that receive from it."""
        return self._outputs

    def input(self, endpoint: Endpoint) -> Link:
        """Return the link over which an endpoint sends.

        :raises TopologyError: not one of the inputs
        """
        return self._find(self._into, endpoint, "inputs")

    def output(self, endpoint: Endpoint) -> Link:
        """Return the link over which an endpoint receives.

        :raises TopologyError: the endpoint is not one of the outputs
        """
        return self._find(self._out_of, endpoint, "outputs")

    def _find(self, links: Mapping[Endpoint, Link], endpoint: Endpoint, side: str) -> Link:
        link = links.get(endpoint) if isinstance(endpoint, Endpoint) else None
        if link is None:
            names = ", ".join(map(str, links))
            raise TopologyError(
                f"{shown(endpoint)} is none of the {side} of {self}, which are {names}"
            )
        return link

    @property
    def links(self) -> tuple[Link, ...]:
        """Links of all inputs and outputs."""
        return (*self._into.values(), *self._out_of.values())

    def shutdown(self) -> None:
        """Shut down the links of all inputs."""
        for link in self._into.values():
            link.shutdown()

    def _backlog(self, receiver: Receiver) -> str:
        """Return which other outputs an output may be waiting for, as the end of a message."""
        others = [
            link.name
            for link in self._out_of.values()
            if link.receiver is not None
            and link.receiver is not receiver
            and link.receiver.has_offers
        ]
        if not others or not any(link.is_held_up for link in self._into.values()):
            return ""
        return (
            f": {self} offers no more until what waits for {', '.join(others)} is taken (a thread that "
            "receives from several outputs takes from them by turns)"
        )

    # Calls by links

    def route(
        self, segment: Segment, source: Endpoint
    ) -> tuple[list[list[Receiver]], float | None]:
        """Return groups of receivers, one of each of which gets the segment; the policy's priority or None.

        :raises InputError: the policy returned no destination, or one that is not an output
        """
        policy = self.policy
        groups = groups_of(
            policy.choose(segment, source, self._outputs), policy.name, self._outputs
        )
        priority = None if policy.priority is None else policy.priority(segment)
        receivers: list[list[Receiver]] = []
        for group in groups:
            takers: list[Receiver] = []
            for endpoint in group:
                link = self._out_of[endpoint]
                if link.receiver is not None:
                    takers.append(link.receiver)
                    continue
                assert isinstance(endpoint, Router)
                behind, _ = endpoint.route(segment, source)
                if len(behind) == 1:
                    takers.extend(behind[0])
                elif len(group) == 1:
                    receivers.extend(behind)
                else:
                    raise InputError(
                        f"policy {policy.name!r} of {self} offers a segment to {endpoint} or others, but "
                        f"{endpoint} sends it to several: let it go there alone"
                    )
            if takers:
                receivers.append(takers)
        return receivers, priority

    def receivers(self) -> list[Receiver]:
        """Return all receivers that may get a segment from it."""
        receivers: list[Receiver] = []
        for endpoint, link in self._out_of.items():
            if isinstance(endpoint, Router):
                receivers.extend(endpoint.receivers())
            elif link.receiver is not None:
                receivers.append(link.receiver)
        return receivers

    def input_ended(self, source: Endpoint) -> None:
        """End one input, and the outputs that no other input reaches."""
        with self._lock:
            for out in self._reach(source):
                if out in self._senders:
                    self._senders[out] -= 1
        self.end_outputs()

    def end_outputs(self) -> None:
        """End the outputs that no input reaches any more, or ever did."""
        with self._lock:
            ended = [end for end, count in self._senders.items() if count == 0]
            for end in ended:
                del self._senders[end]
        for endpoint in ended:
            receiver = self._out_of[endpoint].receiver
            if isinstance(endpoint, Router):
                endpoint.input_ended(self)
            elif receiver is not None:
                receiver.end()

    def check_reachable(self) -> None:
        """Raise TopologyError if no segment can ever come to it."""
        if not (self._is_output or self._into):
            raise TopologyError(
                f"nothing leads to {self}: name its inputs, or name it among the outputs of another router"
            )


def _listed(ends: Any, side: str) -> tuple[Endpoint, ...]:
    if isinstance(ends, Endpoint):
        raise TopologyError(
            f"{side} must be a list of endpoints, got {ends} alone: write [{side[:-1]}]"
        )
    try:
        listed = tuple(ends)
    except TypeError:
        raise TopologyError(f"{side} must be a list of endpoints, got {shown(ends)}") from None
    for index, end in enumerate(listed):
        if any(end is other for other in listed[:index]):
            raise TopologyError(f"{end} is named twice among the {side}: one link a pair")
    return listed


def _of(setting: PerEndpoint, end: Endpoint) -> int | None:
    return setting.get(end) if isinstance(setting, Mapping) else setting
