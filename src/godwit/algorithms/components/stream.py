"""Connected components of edges that stream by, so that a graph may be larger than all memory.

As Groute has it (section 5.1.4, figure 15): a router hands segments of edges to whichever device is free.
Each device has a forest of all vertices, and links the ends of every edge it gets. In the end forests are
merged in pairs: one of a pair sends its own, the other links every vertex with its parent there, until the
first device has everything. A component is called by its smallest vertex, whoever linked what.

Files, and rows of graphs, are read by several threads, ahead of the devices, into blocks of host memory
that go round; edges that lie in memory are sent from where they are. What an iterator yields is copied into
such blocks, so it may use its array again.

Page-locked edges are dealt out to GPUs by the caller's thread, without router and links: copies and kernels
are put into streams at once, and whoever has a buffer that nothing uses any more takes the next segment. To
wake a thread for each GPU and segment costs the host about as long as four GPUs take for a segment.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.components.edge_senders import MOST_READERS, Senders
from godwit.algorithms.components.forests import Fault, Forest, Linking
from godwit.algorithms.components.resident import STREAM_METHODS, ComponentsResult
from godwit.algorithms.components.stream_forests import compile_for, make_forest
from godwit.dataflow.context import Context, Endpoint
from godwit.dataflow.link import DEFAULT_BUFFERS, DEFAULT_PACKET_BYTES, Link
from godwit.dataflow.packets import PAUSE_S, current_gpu_kept, is_page_locked, packet_items
from godwit.dataflow.router import Router
from godwit.dtypes import Array, as_count, id_dtype_for
from godwit.errors import InputError, shown
from godwit.graph.ids import VertexIds
from godwit.graph.rows import require_memory
from godwit.io.edge_rows import EdgeRows
from godwit.io.edge_sources import EdgeChunks, Edges, EdgeText, largest_id
from godwit.runtime.memory import READY, Block, Event
from godwit.runtime.protocol import Progress
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.trace import active
from godwit.worker.options import SolverOptions
from godwit.worker.solve import make_poll

_POLL_S = 0.02
_MOST_VERTICES = 1 << 62
_SMALLEST_PACKET_BYTES = 1 << 10
_ALIGNED_BYTES = 256
_FEW_PACKET_BYTES, _MOST_PACKET_BYTES = 4 << 20, 64 << 20
_PACKETS = 64  # of an array, so that devices come out even
_SPARE_BYTES = 1 << 16  # what is lost between blocks of a pool


class EdgeProgress(Progress):
    """Edges that have been handed to devices so far.

    :ivar total: how many there are, or None if nobody knows yet
    """

    total: int | None = None

    @classmethod
    def of(cls, done: int, total: int | None) -> EdgeProgress:
        """So many of so many."""
        made = cls(done)
        made.total = total
        return made


@dataclass(frozen=True)
class StreamOptions:
    """How edges stream, checked.

    :param method: ``"hook"`` or ``"rem"``
    :param rounds: of hooking without atomics, over each segment before it is linked
    :param jumps: how far up its tree a vertex gets after each of these; None: to the root
    :param vertex_count: None: one more than the largest id
    :param memory_bytes: limit on each device; None for as much as there is
    :param host_bytes: limit of buffers on the host
    :param packet_bytes: of a segment; None: the default, or less where limits are low
    """

    method: str
    rounds: int = 0
    jumps: int | None = None
    vertex_count: int | None = None
    memory_bytes: int | None = None
    host_bytes: int | None = None
    packet_bytes: int | None = None

    @classmethod
    def checked(
        cls,
        *,
        method: Any,
        rounds: Any,
        jumps: Any,
        vertex_count: Any,
        memory_bytes: Any,
        host_bytes: Any,
        packet_bytes: Any,
    ) -> StreamOptions:
        """Of what a user gives; InputError if something is out of range."""
        if not isinstance(method, str) or method not in STREAM_METHODS:
            raise InputError(
                f"method must be 'auto', 'hook' or 'rem' where edges stream, got {shown(method)}; "
                "the others need all rows of a godwit.Graph at once"
            )

        def bounded(value: Any, name: str, low: int, high: int) -> int | None:
            return None if value is None else as_count(value, name, low, high)

        return cls(
            "rem" if method == "auto" else method,
            bounded(rounds, "rounds", 0, 1 << 20) or 0,
            bounded(jumps, "jumps", 0, 1 << 20),
            bounded(vertex_count, "vertex_count", 0, _MOST_VERTICES),
            bounded(memory_bytes, "memory_bytes", 1, 1 << 60),
            bounded(host_bytes, "host_bytes", 1, 1 << 60),
            bounded(packet_bytes, "packet_bytes", _SMALLEST_PACKET_BYTES, 1 << 40),
        )

    def packet_for(self, edges: Edges, forest_bytes: int, devices: int) -> int:
        """Size of a packet: what was asked for, or what is usual, or what leaves room for some buffers.

        Of what lies in memory they are larger, up to a point, as the host has little else to do for each.
        """
        if self.packet_bytes is not None:
            return self.packet_bytes
        packet = DEFAULT_PACKET_BYTES
        if not isinstance(edges, EdgeChunks) and edges.array is not None:
            whole = 2 * edges.dtype.itemsize * edges.count
            packet = min(_MOST_PACKET_BYTES, max(_FEW_PACKET_BYTES, whole // _PACKETS))
        if self.memory_bytes is not None:
            links = 1 + (devices - 1).bit_length()  # with edges, and with siblings' forests
            room = self.memory_bytes - forest_bytes - _SPARE_BYTES
            packet = min(packet, room // (links * DEFAULT_BUFFERS))
        if self.host_bytes is not None:
            packet = min(packet, self.host_bytes // (2 * DEFAULT_BUFFERS))
        return max(_SMALLEST_PACKET_BYTES, packet // _ALIGNED_BYTES * _ALIGNED_BYTES)


def stream_components(
    edges: Edges, devices: DevicesArgument, stream: StreamOptions, options: SolverOptions
) -> ComponentsResult:
    """The component of every vertex; see :func:`godwit.connected_components`."""
    statistics = RunStatistics((), f"streamed {stream.method}")
    poll = make_poll(options)
    ids = None
    if isinstance(edges, EdgeText | EdgeRows):
        ids = _survey(edges, stream, statistics, poll)
    vertices = len(ids) if ids is not None else _vertex_count(edges, stream, statistics, poll)
    graph = edges.graph if isinstance(edges, EdgeRows) else None
    dtype = id_dtype_for(vertices) if graph is None else graph.targets.dtype
    require_memory(vertices * dtype.itemsize, f"storing the components of {vertices:,} vertices")
    linking = Linking(vertices, dtype, stream.method == "rem", stream.rounds, stream.jumps)
    with ExitStack() as stack:
        with statistics.phase("place"):
            context = stack.enter_context(Context(devices, memory_bytes=_limits(devices, stream)))
            context.trace = context.trace or active()
            statistics.begin_on([device.name for device in context.devices])
            flow = _Flow(context, edges, linking, stream, stack)
        if not isinstance(edges, EdgeChunks):
            with statistics.phase("compile"):
                for endpoint in context.endpoints:
                    compile_for(endpoint.space, linking, edges.dtype)
        with statistics.phase("run"):
            label = flow.run(poll, edges.count)
        statistics.split_run({"gather": flow.gather_s})
        statistics.processed_items = flow.edges
        statistics.rounds = flow.segments
    return ComponentsResult(
        graph, label, statistics, method=stream.method, location=options.location, ids=ids
    )


def _survey(
    edges: EdgeText | EdgeRows, stream: StreamOptions, statistics: RunStatistics, poll: Any
) -> VertexIds:
    """The vertices of a graph, or of a file by a pass over it."""
    if stream.vertex_count is not None:
        raise InputError(
            f"vertex_count is for edges that do not say it; {edges.name} has as many vertices as "
            "godwit.read gives its graph, unless it is a file of bare pairs, whose edge_dtype must be given"
        )
    with statistics.phase("scan"):
        return edges.survey(None if poll is None else lambda: poll(EdgeProgress.of(0, None)))


def _vertex_count(edges: Edges, stream: StreamOptions, statistics: RunStatistics, poll: Any) -> int:
    """How many vertices there are, by a pass over all edges where nobody says."""
    if stream.vertex_count is not None:
        return stream.vertex_count
    if isinstance(edges, EdgeChunks):
        raise InputError(
            "vertex_count must be given where edges come out of an iterator, which can be gone through "
            "once only"
        )
    if edges.count == 0:
        return 0
    with statistics.phase("scan"):
        threads = min(MOST_READERS, config.thread_count())
        look = None if poll is None else lambda done: poll(EdgeProgress.of(0, edges.count))
        most, row = largest_id(edges, threads, look)
    if most >= _MOST_VERTICES:
        raise InputError(
            f"row {row:,} of {edges.name} has the id {most}, and ids are below {_MOST_VERTICES}"
        )
    count = max(0, most + 1)
    require_memory(
        count * id_dtype_for(count).itemsize,
        f"row {row:,} of {edges.name} has the id {most}, and storing the components of {count:,} vertices",
    )
    return count


def _limits(devices: DevicesArgument, stream: StreamOptions) -> dict[str, int] | None:
    """What a context takes for limits of memory."""
    from godwit.runtime.registry import resolve_devices

    limits: dict[str, int] = {}
    if stream.memory_bytes is not None:
        for device in resolve_devices(devices, mixed=True):
            limits[device.name] = stream.memory_bytes
    if stream.host_bytes is not None:
        limits["host"] = stream.host_bytes
    return limits or None


class _Flow:
    """Host, router, devices and the tree in which they merge.

    :ivar edges: (devices) that each has linked
    :ivar segments: (devices) in which they came
    :ivar gather_s: time from the last link to the labels on the host
    """

    def __init__(
        self,
        context: Context,
        edges: Edges,
        linking: Linking,
        stream: StreamOptions,
        stack: ExitStack,
    ) -> None:
        self.context = context
        self._source = edges
        self._linking = linking
        self._stream = stream
        self.edges = np.zeros(len(context.endpoints), np.int64)
        self.segments = np.zeros(len(context.endpoints), np.int64)
        self.gather_s = 0.0
        forest_bytes = linking.vertices * linking.id_dtype.itemsize
        for endpoint in context.endpoints:
            limit = context.limit_bytes(endpoint)
            if limit is not None and forest_bytes > limit:
                need, room = config.readable_bytes(forest_bytes), config.readable_bytes(limit)
                raise InputError(
                    f"the forest of {linking.vertices:,} vertices takes {need} of memory_bytes (--memory) "
                    f"on every device, which are {room} on {endpoint}"
                )
        self._packet_bytes = packet = stream.packet_for(edges, forest_bytes, len(context.endpoints))
        self._spread = Router(
            [context.host], context.endpoints, "any", packet_bytes=packet, name="edges"
        )
        self._siblings: dict[tuple[int, int], Link] = {}
        for source, target in _tree(context.endpoints):
            pair = source.index, target.index
            self._siblings[pair] = Link(source, target, packet_bytes=packet)
        self._onward = {source: link for (source, _), link in self._siblings.items()}
        self._homeward = Link(context.endpoints[0], context.host, packet_bytes=packet)
        self._forests: list[Forest] = []
        for endpoint in context.endpoints:
            with endpoint.space.entered():
                forest = make_forest(endpoint.device, endpoint.space, linking)
            stack.callback(forest.close)
            self._forests.append(forest)
        self._label: Array = np.empty(linking.vertices, linking.id_dtype)
        self._finished = threading.Event()

    def run(self, poll: Callable[[int], None] | None, total: int | None) -> Array:
        """The labels. Whatever any of the threads raises comes out here, when all have ended."""
        locked = _page_locked(self._source, self.context)
        if locked is not None:
            self._deal(locked, poll)
        else:
            self._route(poll, total)
        if poll is not None:
            done = int(self.edges.sum())
            poll(EdgeProgress.of(done, done))
        return self._label

    def _route(self, poll: Callable[[int], None] | None, total: int | None) -> None:
        """By router and links, with threads that send, link and bring labels home."""
        edges, host = self._source, self.context.host
        link, packet = self._spread.input(host), self._packet_bytes
        with (
            Senders(edges, link, host.space, packet, self._room_for_blocks()) as senders,
            self.context.workers() as workers,
        ):
            workers.each(self.context.endpoints, self._work)
            workers.start(host, self._collect)
            for function in senders.functions:
                workers.start(host, function)
            while not self._finished.wait(_POLL_S):
                if poll is not None:
                    poll(EdgeProgress.of(int(self.edges.sum()), total))

    def _room_for_blocks(self) -> int | None:
        """What the limit of the host leaves beside the buffers in which labels come home."""
        limit = self._stream.host_bytes
        if limit is None or self.context.endpoints[0].space.kind == "host":
            return limit
        return max(0, limit - self._homeward.buffers * self._homeward.packet_bytes)

    # What runs on a device.

    def _work(self, endpoint: Endpoint) -> None:
        index = endpoint.index
        forest = self._forests[index]
        for segment in self._spread.output(endpoint):
            with segment:
                chunk, row = segment.metadata
                forest.link(segment.array, chunk, row + segment.offset)
                rows = len(segment.array)
            self.edges[index] += rows
            self.segments[index] += 1
            self._check(forest)
        self._merge(endpoint, forest)

    def _merge(self, endpoint: Endpoint, forest: Forest) -> None:
        """Take in what others have joined, then hand it all on."""
        index = endpoint.index
        has_joined = self.segments[index] > 0
        for (_, target), link in self._siblings.items():
            if target != index:
                continue
            for segment in link:
                with segment:
                    if len(segment.array):
                        has_joined = True
                        forest.absorb(segment.array, segment.offset)
        onward = self._onward.get(index, self._homeward)
        is_needed = has_joined or onward is self._homeward
        if is_needed:
            forest.flatten()
            endpoint.space.record_event().wait()
            self._check(forest)
        with onward:
            onward.send(forest.parents if is_needed else forest.parents[:0]).wait()

    def _check(self, forest: Forest) -> None:
        """InputError if an edge was found to be none."""
        fault = forest.fault()
        if fault is not None:
            raise InputError(fault_message(fault, self._source, self._linking.vertices))

    # What runs on the host.

    def _deal(self, array: Array, poll: Callable[[int], None] | None) -> None:
        """Page-locked edges, dealt out to GPUs by this thread, which merges their forests, too."""
        ends = self.context.endpoints
        with current_gpu_kept(), ExitStack() as stack:
            takers = [
                stack.enter_context(closing(Taker(endpoint, forest, self._packet_bytes)))
                for endpoint, forest in zip(ends, self._forests, strict=True)
            ]
            self._deal_all(array, takers, poll)
            for source, target in _tree(ends):
                if takers[source.index].has_joined:
                    takers[target.index].absorb(takers[source.index])
            forest = self._forests[0]
            forest.flatten()
            for taker in takers:
                self._await(taker.pending(), poll)
            for one in self._forests:
                self._check(one)
            with self._homeward as link:
                sent = link.send(forest.parents, stream=ends[0].stream)
            self._collect()
            sent.wait()

    def _await(self, events: Sequence[Event], poll: Callable[[int], None] | None) -> None:
        """Wait for what merges, so that a time-out or Ctrl-C ends it."""
        polled = perf_counter()
        for event in events:
            while not event.done():
                sleep(PAUSE_S)
                if poll is not None and perf_counter() - polled > _POLL_S:
                    done = int(self.edges.sum())
                    poll(EdgeProgress.of(done, done))
                    polled = perf_counter()

    def _deal_all(
        self, array: Array, takers: list[Taker], poll: Callable[[int], None] | None
    ) -> None:
        rows = max(1, self._packet_bytes // (2 * array.itemsize))
        first, polled = 0, perf_counter()
        if poll is not None:
            poll(EdgeProgress.of(0, len(array)))  # the time counts from here
        while first < len(array):
            begin = first
            for index, taker in enumerate(takers):
                if first == len(array) or not taker.is_free:
                    continue
                some = packet_items(len(array) - first, rows, len(takers))
                piece = array[first : first + some]
                taker.take(piece, first)
                first += len(piece)
                self.edges[index] += len(piece)
                self.segments[index] += 1
                self._check(self._forests[index])
            if poll is not None and perf_counter() - polled > _POLL_S:
                poll(EdgeProgress.of(first, len(array)))
                polled = perf_counter()
            if begin == first:
                sleep(PAUSE_S)

    def _collect(self) -> None:
        """Bring the labels home."""
        try:
            begin = None
            for segment in self._homeward:
                begin = begin or perf_counter()
                with segment:
                    first = segment.offset
                    self._label[first : first + len(segment.array)] = segment.array
            self.gather_s = 0.0 if begin is None else perf_counter() - begin
        finally:
            self._finished.set()


class Taker:
    """A GPU that edges of the host are dealt out to, by one thread.

    :param packet_bytes: of a buffer
    :ivar has_joined: whether it has been given anything
    """

    def __init__(self, endpoint: Endpoint, forest: Forest, packet_bytes: int) -> None:
        self._space = endpoint.space
        self._stream = endpoint.stream
        self._forest = forest
        self._packet_bytes = packet_bytes
        self.has_joined = False
        with ExitStack() as stack:
            self._blocks: deque[tuple[Block, Event]] = deque()
            for _ in range(DEFAULT_BUFFERS):
                block = self._space.allocate(packet_bytes)
                stack.callback(block.free)
                self._blocks.append((block, READY))
            self._lane = self._space.lane()
            stack.callback(self._lane.close)
            stack.callback(self.wait)
            self._stack = stack.pop_all()

    @property
    def is_free(self) -> bool:
        """Whether there is a buffer that nothing uses any more."""
        return self._blocks[0][1].done()

    def take(self, edges: Array, row: int) -> None:
        """Put the copy of a segment, and what links its ends, into streams.

        :param row: of all edges, that is the first
        """
        self.has_joined = True
        with self._copied(edges, ()) as view:
            self._forest.link(view, 0, row)

    def absorb(self, other: Taker) -> None:
        """Put what joins what another GPU has joined into streams."""
        self.has_joined = True
        other._forest.flatten()
        flat = other._space.record_event(other._stream)
        parents = other._forest.parents
        most = max(1, self._packet_bytes // parents.dtype.itemsize)
        for first in range(0, len(parents), most):
            with self._copied(parents[first : first + most], (flat,)) as view:
                self._forest.absorb(view, first)

    @contextmanager
    def _copied(self, source: Any, after: Sequence[Event]) -> Iterator[Any]:
        """A block that puts into the stream what reads a copy."""
        block, used = self._blocks.popleft()
        try:
            view = block.view(source.dtype, source.shape)
            self._lane.copy(source, view, (*after, used)).wait_on(self._stream)
            yield view
        finally:
            self._blocks.append((block, self._space.record_event(self._stream)))

    def pending(self) -> list[Event]:
        """When nothing uses the buffers any more, and all that was put into the stream is done."""
        return [*(event for _, event in self._blocks), self._space.record_event(self._stream)]

    def wait(self) -> None:
        """Wait for that."""
        for event in self.pending():
            event.wait()

    def close(self) -> None:
        """Give the memory back, when nothing uses it."""
        self._stack.close()


def _page_locked(edges: Edges, context: Context) -> Array | None:
    """Edges that the copy engines of all devices reach, as they lie; None if these are no such."""
    if isinstance(edges, EdgeChunks) or edges.array is None:
        return None
    has_gpus = all(device.kind == "cuda" for device in context.devices)
    is_plain = isinstance(edges.array, np.ndarray) and edges.array.flags.c_contiguous
    if not (has_gpus and is_plain):
        return None
    with context.endpoints[0].space.entered():
        return edges.array if is_page_locked(edges.array) else None


def _tree(endpoints: tuple[Endpoint, ...]) -> Iterator[tuple[Endpoint, Endpoint]]:
    """Who hands its forest to whom, in pairs that are further and further apart."""
    distance = 1
    while distance < len(endpoints):
        for target in range(0, len(endpoints) - distance, 2 * distance):
            yield endpoints[target + distance], endpoints[target]
        distance *= 2


def fault_message(fault: Fault, edges: Edges, vertices: int) -> str:
    """For people: which edge is none, and why."""
    wrong = next(id for id in (fault.source, fault.target) if not 0 <= id < vertices)
    place = f"row {fault.row:,} of "
    place += f"chunk {fault.chunk:,}" if isinstance(edges, EdgeChunks) else edges.name
    there = f"in [0, {vertices:,})" if vertices else "there, as there are none"
    return f"{place} is ({fault.source}, {fault.target}), and {wrong} is no vertex {there}"
