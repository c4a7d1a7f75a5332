"""The block that owns devices, what connects them, and its memory (Groute, table 1: Context, Endpoint)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, get_args

from godwit.dataflow.cpu import HostSpace
from godwit.dataflow.future import CancelScope
from godwit.dtypes import as_count
from godwit.errors import ClosedContextError, InputError, TopologyError, shown
from godwit.runtime.memory import Event, Space, Transport
from godwit.runtime.protocol import Device, DeviceKind
from godwit.runtime.registry import DevicesArgument, device_kind_of, resolve_devices
from godwit.trace import Trace, TraceArgument, active, require_writable

if TYPE_CHECKING:
    from godwit.dataflow.drawing import DataflowGraph
    from godwit.dataflow.link import Link
    from godwit.dataflow.receiver import Receiver
    from godwit.dataflow.router import Router
    from godwit.dataflow.workers import Workers


_MOST_BYTES = 1 << 60
_SMALL_BYTES = 64 << 10
_SMALL_AT_ONCE = 16

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


class Context:
    """Devices, what connects them and the memory of that, for as long as the block lasts.

    >>> with Context(devices=["cpu:0", "cpu:1"]) as context:
    ...     len(context.endpoints)
    2

    Several contexts may be open at once. At the end of the block everything that links hold is given back;
    what is on its way is waited for, unless the block ends by an exception.

    :param devices: as everywhere (None, a number, a name or names), but GPUs and CPUs may stand together
    :param memory_bytes: limit of the buffers on each endpoint, or on those that a dictionary names
        (``{"cuda:0": 8 << 30, "host": 4 << 30}``); None for as much as there is
    :param pools: memory to take buffers from, by endpoint: arrays of NumPy (host, CPUs) or CuPy (GPUs).
        Endpoints that stand for the same device share it, or its limit, in equal parts
    :param transport: how segments get from GPU to GPU: ``"direct"``, or always through the ``"host"``
    :param trace: a file that the timeline of workers, worklists, segments, copies and waits is written
        to at the end, or a :class:`godwit.Trace`
    :raises InputError: see :func:`godwit.runtime.registry.resolve_devices`; a name that is no endpoint
    :raises DeviceError: a device is not there
    :raises FileError: the trace cannot be written
    """

    def __init__(
        self,
        devices: DevicesArgument = None,
        *,
        memory_bytes: int | Mapping[str, int] | None = None,
        pools: Mapping[str, Any] | None = None,
        transport: Transport = "direct",
        trace: TraceArgument = None,
    ) -> None:
        found = resolve_devices(devices, mixed=True)
        self._names = [device.name for device in found]
        self._endpoints = tuple(
            Endpoint(self, "device", _distinct_name(self._names, index), device, index)
            for index, device in enumerate(found)
        )
        self._host = Endpoint(self, "host", "host", None, -1)
        if not (isinstance(transport, str) and transport in get_args(Transport)):
            raise InputError(f"transport must be 'direct' or 'host', got {shown(transport)}")
        self._transport = transport
        self._limits = self._checked_limits(memory_bytes)
        self._pools = self._by_name(pools, "pools")
        for name, memory in self._pools.items():
            if not hasattr(memory, "nbytes") or not hasattr(memory, "dtype"):
                raise InputError(f"pools[{name!r}] must be an array, got {shown(memory)}")
        # Without a file of its own it adds to what the caller records, as godwit.filter(trace=...) does.
        self.trace = active() if trace is None else trace if isinstance(trace, Trace) else Trace()
        self._trace_path = None if isinstance(trace, Trace) else trace
        if self._trace_path is not None:
            require_writable(self._trace_path)
        self.cancel_scope = CancelScope(self.trace)
        self._links: list[Link] = []
        self._routers: list[Router] = []
        self._spaces: dict[Endpoint, Space] = {}
        self._kept: deque[tuple[Event, Any]] = deque()
        self._lock = threading.Lock()
        self._has_workers = False
        self._closed = False

    # Endpoints and devices.

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """One endpoint a device, in the order given."""
        self.check_open()
        return self._endpoints

    @property
    def host(self) -> Endpoint:
        """The host: what the caller's arrays and threads are at."""
        self.check_open()
        return self._host

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices, in the order given."""
        return tuple(endpoint.device for endpoint in self.endpoints if endpoint.device is not None)

    @property
    def device_kind(self) -> DeviceKind:
        """The kind of these devices; InputError if they are of several kinds."""
        return device_kind_of(self.devices)

    # What is built on them.

    @property
    def links(self) -> tuple[Link, ...]:
        """All direct links, in the order in which they were made."""
        return tuple(self._links)

    @property
    def routers(self) -> tuple[Router, ...]:
        """All routers, in the order in which they were made."""
        return tuple(self._routers)

    def all_links(self) -> list[Link]:
        """Direct links and those of routers."""
        return [*self._links, *(link for router in self._routers for link in router.links)]

    def workers(self) -> Workers:
        """A block for functions that run on endpoints, a thread each; at its end they have ended.

        :raises TopologyError: nothing leads to a router
        :raises InputError: when it begins, if another one is open
        """
        from godwit.dataflow.workers import Workers

        self.check_open()
        for router in self._routers:
            router.check_reachable()
        for router in self._routers:
            router.end_outputs()
        return Workers(self)

    def graph(self) -> DataflowGraph:
        """The dataflow graph, to be printed, shown in a notebook or written to a file."""
        from godwit.dataflow.drawing import DataflowGraph

        return DataflowGraph.of(self)

    @property
    def used_bytes(self) -> int:
        """Of buffers that links hold, on all endpoints."""
        return sum(space.used_bytes for space in list(self._spaces.values()))

    # What links and endpoints ask.

    def add(self, link: Link) -> None:
        """A direct link was made."""
        self._links.append(link)

    def add_router(self, router: Router) -> None:
        """A router was made."""
        self._routers.append(router)

    def begin_workers(self) -> None:
        """A block of workers begins: it says when endpoints have ended, so there is one at a time."""
        with self._lock:
            if self._has_workers:
                raise InputError(
                    "a block of workers is open already in this context: start them all in one"
                )
            self._has_workers = True

    def end_workers(self) -> None:
        """It has ended."""
        self._has_workers = False

    def recording(self) -> AbstractContextManager[Any]:
        """What the calling thread does in the block is noted in the context's trace, if it has one."""
        return nullcontext() if self.trace is None else self.trace.recording()

    def limit_bytes(self, endpoint: Endpoint) -> int | None:
        """Of its buffers together, or None."""
        limit, memory = self._share(endpoint)
        if memory is None:
            return limit
        return int(memory.nbytes) if limit is None else min(limit, int(memory.nbytes))

    def _share(self, endpoint: Endpoint) -> tuple[int | None, Any]:
        """Limit and memory of an endpoint: equal parts for those that stand for the same device."""
        name = "host" if endpoint.device is None else endpoint.device.name
        limit, memory = self._limits.get(name), self._pools.get(name)
        count = self._names.count(name)
        if count > 1:
            place = self._names[: endpoint.index].count(name)
            limit = None if limit is None else max(1, limit // count)
            if memory is not None:
                memory = memory.reshape(-1).view("u1")
                part = memory.nbytes // count
                memory = memory[place * part : (place + 1) * part]
        return limit, memory

    def make_space(self, endpoint: Endpoint) -> Space:
        """The memory of an endpoint, which the context closes; the same for all threads that ask."""
        with self._lock:
            self.check_open()
            space = self._spaces.get(endpoint)
            if space is None:
                limit, memory = self._share(endpoint)
                space = self._spaces[endpoint] = make_space(
                    endpoint.device,
                    beside_gpus=any(device.kind == "cuda" for device in self.devices),
                    limit_bytes=limit,
                    memory=memory,
                    transport=self._transport,
                    trace=self.trace,
                )
        return space

    def keep(self, event: Event, array: Any) -> None:
        """Hold an array until an event is reached."""
        kept = self._kept
        kept.append((event, array))
        if array.nbytes <= _SMALL_BYTES and len(kept) % _SMALL_AT_ONCE:
            return  # to ask takes longer than it is worth
        while kept:
            try:
                first = kept.popleft()
            except IndexError:  # another thread was faster
                return
            if not first[0].done():
                kept.appendleft(first)
                return

    # Its end.

    @property
    def closed(self) -> bool:
        """Whether the block has ended."""
        return self._closed

    def check_open(self) -> None:
        """Raise ClosedContextError if the block has ended."""
        if self._closed:
            raise ClosedContextError("this context is closed; make another one")

    def close(self) -> None:
        """End the block: give all buffers back, and write the trace; closing twice does no harm."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.cancel_scope.end(ClosedContextError("the context was closed"))
        links = self.all_links()
        with ExitStack() as last_first:  # each of these, whatever the others raise
            if self.trace is not None and self._trace_path is not None:
                last_first.callback(self.trace.write, self._trace_path)
            for space in self._spaces.values():
                last_first.callback(space.close)
            for link in links:
                last_first.callback(link.close)
            last_first.callback(self._let_go)
            for link in links:
                if link.receiver is not None:
                    last_first.callback(link.receiver.wait_all)

    def _let_go(self) -> None:
        """Drop what copies read, when all of them are done."""
        try:
            with ExitStack() as stack:
                for event, _ in self._kept:
                    stack.callback(event.wait)
        finally:
            self._kept.clear()

    def __enter__(self) -> Context:
        self.check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _by_name(self, given: Any, what: str) -> dict[str, Any]:
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise InputError(f"{what} must be a dictionary by endpoint, got {shown(given)}")
        for name in given:
            if name != "host" and name not in self._names:
                there = ", ".join(map(repr, ["host", *dict.fromkeys(self._names)]))
                raise InputError(
                    f"{what} names {shown(name)}, which is no endpoint; there are {there}"
                )
        return dict(given)

    def _checked_limits(self, given: Any) -> dict[str, int]:
        if given is not None and not isinstance(given, Mapping):
            given = dict.fromkeys(("host", *self._names), given)
        return {
            name: as_count(limit, f"memory_bytes of {name}", 1, _MOST_BYTES)
            for name, limit in self._by_name(given, "memory_bytes").items()
        }


def _distinct_name(names: list[str], index: int) -> str:
    name = names[index]
    if names.count(name) == 1:
        return name
    return f"{name} ({names[: index + 1].count(name)} of {names.count(name)})"


def make_space(
    device: Device | None,
    *,
    beside_gpus: bool,
    limit_bytes: int | None = None,
    memory: Any = None,
    transport: Transport = "direct",
    trace: Any = None,
) -> Space:
    """The memory of an endpoint.

    :param device: None for the host
    :param beside_gpus: whether the context has GPUs: host memory is then page-locked, so that copies run
        beside kernels
    :param limit_bytes: of its buffers; None for as much as there is
    :param memory: an array of bytes there that buffers are to be taken from
    :param transport: between GPUs
    :param trace: a :class:`godwit.trace.Trace` that copies are added to
    :raises InputError: ``memory`` is no array of that device
    :raises DeviceError: the device is not there
    """
    if beside_gpus:
        from godwit.dataflow.cuda.segments import make_space as of_cuda

        space: Space = of_cuda(device, limit_bytes, memory, transport, trace)
        return space
    return HostSpace(limit_bytes, memory)
