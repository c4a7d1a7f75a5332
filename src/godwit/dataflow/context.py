"""The block that owns devices, what connects them, and its memory (Groute, table 1: Context, Endpoint)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from godwit.dataflow.cpu import HostSpace
from godwit.dataflow.endpoint import Endpoint
from godwit.dataflow.future import CancelScope
from godwit.dtypes import as_count
from godwit.errors import ClosedContextError, InputError, shown
from godwit.runtime.memory import Event, Space, Transport
from godwit.runtime.protocol import Device, DeviceKind
from godwit.runtime.registry import DevicesArgument, device_kind_of, resolve_devices
from godwit.trace import Trace, TraceArgument, active, require_writable

if TYPE_CHECKING:
    from godwit.dataflow.drawing import DataflowGraph
    from godwit.dataflow.link import Link
    from godwit.dataflow.router import Router
    from godwit.dataflow.workers import Workers

_MOST_BYTES = 1 << 60
_SMALL_BYTES = 64 << 10
_SMALL_AT_ONCE = 16


class Context:
    """Devices, the links and routers between them, and their memory, until the block ends.

    >>> with Context(devices=["cpu:0", "cpu:1"]) as context:
    ...     len(context.endpoints)
    2

    Several contexts may be open at once. The end of the block frees all buffers of links; unless it ends by
    an exception, it first waits for copies that are under way.

    :param devices: as everywhere (None, a number, a name or names), but GPUs and CPUs may stand together
    :param memory_bytes: limit of the buffers on each endpoint, or by name (``{"cuda:0": 8 << 30, "host":
        4 << 30}``); None for no limit
    :param pools: memory that buffers are allocated in, by name: arrays of NumPy (host, CPUs) or CuPy
        (GPUs). Endpoints on the same device share it, or its limit, in equal parts
    :param transport: copies between GPUs: ``"direct"``, or always through the ``"host"``
    :param trace: a file that the timeline of workers, worklists, segments, copies and waits is written
        to at the end, or a :class:`godwit.Trace`
    :raises InputError: see :func:`godwit.runtime.registry.resolve_devices`; a name that is not an
        endpoint's
    :raises DeviceError: there is no such device
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
        resolved = resolve_devices(devices, mixed=True)
        self._names = [device.name for device in resolved]
        self._endpoints = tuple(
            Endpoint(self, "device", _distinct_name(self._names, index), device, index)
            for index, device in enumerate(resolved)
        )
        self._devices = tuple(endpoint.device for endpoint in self._endpoints if endpoint.device)
        self.device_names = tuple(device.name for device in self._devices)
        self._host = Endpoint(self, "host", "host")
        if not (isinstance(transport, str) and transport in get_args(Transport)):
            raise InputError(f"transport must be 'direct' or 'host', got {shown(transport)}")
        self._transport = transport
        self._limits = self._checked_limits(memory_bytes)
        self._pools = self._by_name(pools, "pools")
        for name, memory in self._pools.items():
            if not hasattr(memory, "nbytes") or not hasattr(memory, "dtype"):
                raise InputError(f"pools[{name!r}] must be an array, got {shown(memory)}")
        # Without a file of its own it adds to the caller's recording, as in godwit.filter(trace=...).
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

    # Endpoints and devices

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """One endpoint per device, in the order given."""
        self.check_open()
        return self._endpoints

    @property
    def host(self) -> Endpoint:
        """Endpoint of the caller's arrays and threads."""
        self.check_open()
        return self._host

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices, in the order given."""
        if self._closed:
            self.check_open()
        return self._devices

    @property
    def device_kind(self) -> DeviceKind:
        """Kind of the devices; InputError if they are of several kinds."""
        return device_kind_of(self.devices)

    # Links, routers, workers

    @property
    def links(self) -> tuple[Link, ...]:
        """Links between two endpoints, in the order of creation; not those of routers."""
        return tuple(self._links)

    @property
    def routers(self) -> tuple[Router, ...]:
        """Routers, in the order of creation."""
        return tuple(self._routers)

    def all_links(self) -> list[Link]:
        """Return all links, those of routers included."""
        return [*self._links, *(link for router in self._routers for link in router.links)]

    def workers(self) -> Workers:
        """Return a block that runs functions on endpoints, a thread each, and joins them at its end.

        :raises TopologyError: a router has no input
        :raises InputError: at the beginning of the block, if another one is open
        """
        from godwit.dataflow.workers import Workers

        self.check_open()
        for router in self._routers:
            router.check_reachable()
        for router in self._routers:
            router.end_outputs()
        return Workers(self)

    def graph(self) -> DataflowGraph:
        """Return the dataflow graph, to be printed, shown in a notebook or written to a file."""
        from godwit.dataflow.drawing import DataflowGraph

        return DataflowGraph.of(self)

    def add_link(self, link: Link) -> None:
        """Register a link between two endpoints."""
        self._links.append(link)

    def add_router(self, router: Router) -> None:
        """Register a router."""
        self._routers.append(router)

    def begin_workers(self) -> None:
        """Begin the block of workers; there is one at a time, since its workers end the links."""
        with self._lock:
            if self._has_workers:
                raise InputError(
                    "a block of workers is open already in this context: start them all in one"
                )
            self._has_workers = True

    def end_workers(self) -> None:
        """End the block of workers."""
        self._has_workers = False

    def recording(self) -> AbstractContextManager[Any]:
        """Return a context manager that records the calling thread in the context's trace, if any."""
        return nullcontext() if self.trace is None else self.trace.recording()

    # Memory

    @property
    def used_bytes(self) -> int:
        """Bytes of buffers of links, on all endpoints."""
        return sum(space.used_bytes for space in list(self._spaces.values()))

    def limit_bytes(self, endpoint: Endpoint) -> int | None:
        """Return the largest sum of an endpoint's buffers, or None."""
        limit, memory = self._share(endpoint)
        if memory is None:
            return limit
        return int(memory.nbytes) if limit is None else min(limit, int(memory.nbytes))

    def _share(self, endpoint: Endpoint) -> tuple[int | None, Any]:
        """Return limit and pool of an endpoint: equal parts for endpoints on the same device."""
        name = "host" if endpoint.device is None else endpoint.device.name
        limit, memory = self._limits.get(name), self._pools.get(name)
        count = self._names.count(name)
        if count > 1:
            number = self._names[: endpoint.index].count(name)
            limit = None if limit is None else max(1, limit // count)
            if memory is not None:
                memory = memory.reshape(-1).view("u1")
                part = memory.nbytes // count
                memory = memory[number * part : (number + 1) * part]
        return limit, memory

    def make_space(self, endpoint: Endpoint) -> Space:
        """Return the memory of an endpoint, created at the first call; the context closes it.

        The one function that decides between code for CPUs and code for GPUs.

        :raises InputError: the endpoint's pool is not an array of its device
        """
        with self._lock:
            self.check_open()
            space = self._spaces.get(endpoint)
            if space is not None:
                return space
            limit, memory = self._share(endpoint)
            if all(device.kind != "cuda" for device in self.devices):
                space = HostSpace(limit, memory)
            else:
                from godwit.dataflow.cuda.segments import GpuSpace, PinnedSpace

                device = endpoint.device
                if device is None or device.kind != "cuda":
                    # Page-locked, so that copies overlap with kernels.
                    space = PinnedSpace(limit, memory, self.trace)
                else:
                    index = int(device.name.partition(":")[2])
                    space = GpuSpace(index, limit, memory, self._transport, self.trace)
            self._spaces[endpoint] = space
        return space

    def keep(self, event: Event, array: Any) -> None:
        """Keep an array alive until an event is done."""
        kept = self._kept
        kept.append((event, array))
        if array.nbytes <= _SMALL_BYTES and len(kept) % _SMALL_AT_ONCE:
            return  # queries cost more than small arrays are worth
        while kept:
            try:
                first = kept.popleft()
            except IndexError:  # another thread has taken it
                return
            if not first[0].done():
                kept.appendleft(first)
                return

    # End

    @property
    def closed(self) -> bool:
        """True if the block has ended."""
        return self._closed

    def check_open(self) -> None:
        """Raise ClosedContextError if the block has ended."""
        if self._closed:
            raise ClosedContextError("this context is closed; make another one")

    def close(self) -> None:
        """End the block: free all buffers, and write the trace. A second call has no effect."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.cancel_scope.end(ClosedContextError("the context was closed"))
        links = self.all_links()
        with ExitStack() as last_first:  # runs all, even if some raise
            if self.trace is not None and self._trace_path is not None:
                last_first.callback(self.trace.write, self._trace_path)
            for space in self._spaces.values():
                last_first.callback(space.close)
            for link in links:
                last_first.callback(link.close)
            last_first.callback(self._release_kept)
            for link in links:
                if link.receiver is not None:
                    last_first.callback(link.receiver.wait_all)

    def _release_kept(self) -> None:
        """Wait for the copies that read kept arrays, and drop these."""
        try:
            with ExitStack() as stack:
                for event, _ in self._kept:
                    stack.callback(event.wait)
        finally:
            self._kept.clear()

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "a context has the memory and the threads of this process, and can be neither pickled nor "
            "copied: open one in each process"
        )

    def __enter__(self) -> Context:
        self.check_open()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    # Arguments

    def _by_name(self, given: Any, argument: str) -> dict[str, Any]:
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise InputError(f"{argument} must be a dictionary by endpoint, got {shown(given)}")
        for name in given:
            if name != "host" and name not in self._names:
                names = ", ".join(map(repr, ["host", *dict.fromkeys(self._names)]))
                raise InputError(
                    f"{argument} names {shown(name)}, which is no endpoint; there are {names}"
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
