"""Connected components of edges that stream to the devices, so that a graph may be larger than all memory.

As in Groute (section 5.1.4, figure 15), a router hands segments of edges to whichever device is free. Each
device has a forest of all vertices and links the ends of every edge it receives. At the end forests are
merged in pairs: one of a pair sends its parents, the other links every vertex with them, until the first
device has the whole forest. A component is named by its smallest vertex, however its edges were
distributed.

Files and rows of graphs are read ahead by several threads into blocks of host memory that are reused;
arrays in memory are sent from where they are. Chunks of an iterator are copied, so that it may reuse its
array.

An array in memory goes to GPUs without router and links: the caller's thread starts copies, enqueues
kernels, and the next segment goes to a GPU with a free buffer. Waking a thread for each GPU and segment
would cost the host about as long as four GPUs take for a segment.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from time import perf_counter, sleep
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.components.result import ComponentsResult
from godwit.algorithms.components.streamed_cpu import Fault, Forest, HostForest, Linking
from godwit.dataflow.context import Context
from godwit.dataflow.endpoint import Endpoint
from godwit.dataflow.future import Future
from godwit.dataflow.link import DEFAULT_BUFFERS, DEFAULT_PACKET_BYTES, Link
from godwit.dataflow.packets import PAUSE_S, can_be_enqueued, current_gpu_kept, packet_items
from godwit.dataflow.router import Router
from godwit.dtypes import Array, as_count, id_dtype_for
from godwit.errors import InputError
from godwit.graph.ids import VertexIds
from godwit.graph.rows import require_memory
from godwit.io.edge_sources import (
    EdgeChunks,
    EdgeRows,
    Edges,
    EdgeTable,
    EdgeText,
    end_dtype,
    largest_id,
)
from godwit.progress import Progress
from godwit.runtime.memory import READY, Block, Event, Space
from godwit.runtime.protocol import Device
from godwit.runtime.registry import DevicesArgument, resolve_devices
from godwit.runtime.statistics import RunStatistics
from godwit.trace import active
from godwit.worker.options import SolverOptions
from godwit.worker.solve import make_poll

Poll = Callable[[int], None] | None

_POLL_S = 0.02
_MAX_VERTICES = 1 << 62
_MIN_PACKET_BYTES = 1 << 10
_ALIGNMENT_BYTES = 256
_ARRAY_PACKET_BYTES = 4 << 20, 64 << 20  # least and most, for arrays in memory
_ARRAY_PACKETS = 64  # packets of an array, so that devices end at the same time
_SPARE_BYTES = 1 << 16  # for alignment of blocks in a pool
_MAX_READERS = 8
_BLOCKS_PER_READER = 3


@dataclass(frozen=True)
class StreamOptions:
    """Checked options of a stream.

    :param method: ``"hook"`` or ``"rem"``
    :param rounds: rounds of hooking without atomics over each segment before it is linked
    :param jumps: steps that vertices move up their tree after each of the ``rounds``; None: up to the root
    :param vertex_count: None: one more than the largest id
    :param memory_bytes: limit on each device; None: its memory
    :param host_bytes: limit of buffers on the host
    :param packet_bytes: size of a segment; None: the default, or less where limits are low
    """

    method: str
    rounds: int
    jumps: int | None
    vertex_count: int | None
    memory_bytes: int | None
    host_bytes: int | None
    packet_bytes: int | None

    @classmethod
    def checked(
        cls, *, method: str, rounds: int | None, jumps: int | None, vertex_count: Any = None,
        memory_bytes: Any = None, host_bytes: Any = None, packet_bytes: Any = None,
    ) -> StreamOptions:  # fmt: skip
        """Check the limits that a user gives; InputError if one is out of range."""

        def bounded(value: Any, name: str, low: int, high: int) -> int | None:
            return None if value is None else as_count(value, name, low, high)

        return cls(
            "rem" if method == "auto" else method,
            rounds or 0,
            jumps,
            bounded(vertex_count, "vertex_count", 0, _MAX_VERTICES),
            bounded(memory_bytes, "memory_bytes", 1, 1 << 60),
            bounded(host_bytes, "host_bytes", 1, 1 << 60),
            bounded(packet_bytes, "packet_bytes", _MIN_PACKET_BYTES, 1 << 40),
        )

    def packet_for(self, edges: Edges, forest_bytes: int, devices: int) -> int:
        """Return the packet size: as given, or the default as far as limits leave room for buffers.

        Packets of arrays in memory are larger, as the host has little else to do for each.
        """
        if self.packet_bytes is not None:
            return self.packet_bytes
        packet = DEFAULT_PACKET_BYTES
        if not isinstance(edges, EdgeChunks) and edges.array is not None:
            low, high = _ARRAY_PACKET_BYTES
            array_bytes = 2 * edges.dtype.itemsize * edges.count
            packet = min(high, max(low, array_bytes // _ARRAY_PACKETS))
        if self.memory_bytes is not None:
            links = 1 + (devices - 1).bit_length()  # for edges, and for forests of others
            room = self.memory_bytes - forest_bytes - _SPARE_BYTES
            packet = min(packet, room // (links * DEFAULT_BUFFERS))
        if self.host_bytes is not None:
            packet = min(packet, self.host_bytes // (2 * DEFAULT_BUFFERS))
        return max(_MIN_PACKET_BYTES, packet // _ALIGNMENT_BYTES * _ALIGNMENT_BYTES)


def stream_components(
    edges: Edges, devices: DevicesArgument, stream: StreamOptions, options: SolverOptions
) -> ComponentsResult:
    """Find the component of every vertex; see :func:`godwit.connected_components_of_edges`."""
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
            limits = _memory_limits(devices, stream)
            context = stack.enter_context(Context(devices, memory_bytes=limits))
            context.trace = context.trace or active()
            statistics.begin_on([device.name for device in context.devices])
            run = _StreamRun(context, edges, linking, stream, stack)
        if not isinstance(edges, EdgeChunks):
            with statistics.phase("compile"):
                for endpoint in context.endpoints:
                    compile_for(endpoint.space, linking, edges.dtype)
        with statistics.phase("run"):
            label = run.run(poll, edges.count)
        statistics.split_run({"gather": run.gather_s})
        statistics.processed_items = run.edges
        statistics.rounds = run.segments
    return ComponentsResult(
        graph, label, statistics, method=stream.method, location=options.location, ids=ids
    )


def _survey(
    edges: EdgeText | EdgeRows, stream: StreamOptions, statistics: RunStatistics, poll: Poll
) -> VertexIds:
    """Return the ids of a graph's vertices, or of a file's, after a pass over it."""
    if stream.vertex_count is not None:
        raise InputError(
            f"vertex_count is for edges that do not say it; {edges.name} has as many vertices as "
            "godwit.read gives its graph, unless it is a file of bare pairs, whose edge_dtype must be given"
        )
    with statistics.phase("scan"):
        return edges.survey(None if poll is None else lambda: poll(Progress(0)))


def _vertex_count(
    edges: Edges, stream: StreamOptions, statistics: RunStatistics, poll: Poll
) -> int:
    """Return the number of vertices, after a pass over all edges if it is not given."""
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
        threads = min(_MAX_READERS, config.thread_count())
        look = None if poll is None else lambda done: poll(Progress.of(0, total=edges.count))
        largest, row = largest_id(edges, threads, look)
    if largest >= _MAX_VERTICES:
        raise InputError(
            f"row {row:,} of {edges.name} has the id {largest}, and ids are below {_MAX_VERTICES}"
        )
    vertices = max(0, largest + 1)
    require_memory(
        vertices * id_dtype_for(vertices).itemsize,
        f"row {row:,} of {edges.name} has the id {largest}, and storing the components of {vertices:,} "
        "vertices",
    )
    return vertices


def _memory_limits(devices: DevicesArgument, stream: StreamOptions) -> dict[str, int] | None:
    """Return the memory limits of a context, by name of the device."""
    limits: dict[str, int] = {}
    if stream.memory_bytes is not None:
        for device in resolve_devices(devices, mixed=True):
            limits[device.name] = stream.memory_bytes
    if stream.host_bytes is not None:
        limits["host"] = stream.host_bytes
    return limits or None


def make_forest(device: Device | None, space: Space, linking: Linking) -> Forest:
    """Make a forest without edges in an endpoint's memory.

    :raises InputError: the limit of the memory does not leave so much
    :raises GraphTooLargeError: the device has no more
    """
    if space.kind == "cuda":
        from godwit.algorithms.components.streamed_cuda import new_forest

        return new_forest(space, linking)
    return HostForest(space, linking, 1 if device is None else device.threads)


def compile_for(space: Space, linking: Linking, dtype: np.dtype[Any]) -> None:
    """Compile, or load, the code that links edges of a dtype, so that no run is charged with it."""
    if space.kind == "cuda":
        from godwit.algorithms.components.streamed_cuda import compile_kernels

        compile_kernels(space, linking, dtype)
    else:
        HostForest.compile(linking, dtype)


class _StreamRun:
    """Router, forests of the devices, and the tree of links in which they merge.

    :ivar edges: edges that each device has linked
    :ivar segments: segments in which they arrived
    :ivar gather_s: time from the last link to the labels on the host
    """

    def __init__(
        self, context: Context, edges: Edges, linking: Linking, stream: StreamOptions,
        stack: ExitStack,
    ) -> None:  # fmt: skip
        self.context = context
        self._source = edges
        self._linking = linking
        self._host_bytes = stream.host_bytes
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
        self._router = Router(
            [context.host], context.endpoints, "any", packet_bytes=packet, name="edges"
        )
        self._merge_links: dict[tuple[int, int], Link] = {}
        for source, target in _merge_tree(context.endpoints):
            pair = source.index, target.index
            self._merge_links[pair] = Link(source, target, packet_bytes=packet)
        self._label_link = Link(context.endpoints[0], context.host, packet_bytes=packet)
        self._forests: list[Forest] = []
        for endpoint in context.endpoints:
            with endpoint.space.entered():
                forest = make_forest(endpoint.device, endpoint.space, linking)
            stack.callback(forest.close)
            self._forests.append(forest)
        self._finished = threading.Event()

    def run(self, poll: Poll, total: int | None) -> Array:
        """Return the labels; an exception of any thread is raised here when all have ended."""
        array = _array_for_gpus(self._source, self.context)
        label = self._route(poll, total) if array is None else self._distribute(array, poll)
        if poll is not None:
            done = int(self.edges.sum())
            poll(Progress.of(done, total=done))
        return label

    def _route(self, poll: Poll, total: int | None) -> Array:
        """Stream by router and links, with threads that send edges, link them and gather labels."""
        edges, host = self._source, self.context.host
        label: Array = np.empty(self._linking.vertices, self._linking.id_dtype)
        limit = self._host_bytes
        if limit is not None and self.context.endpoints[0].space.kind != "host":
            # Labels arrive in buffers of the host.
            limit = max(0, limit - self._label_link.buffers * self._label_link.packet_bytes)
        link = self._router.input(host)
        with (
            EdgeSenders(edges, link, host.space, self._packet_bytes, limit) as senders,
            self.context.workers() as workers,
        ):
            workers.each(self.context.endpoints, self._work)
            workers.start(host, self._gather, label)
            for function in senders.functions:
                workers.start(host, function)
            while not self._finished.wait(_POLL_S):
                if poll is not None:
                    poll(Progress.of(int(self.edges.sum()), total=total))
        return label

    def _work(self, endpoint: Endpoint) -> None:
        """Link the edges that one device receives, then merge forests; its worker's function."""
        index = endpoint.index
        forest = self._forests[index]
        for segment in self._router.output(endpoint):
            with segment:
                chunk, row = segment.metadata
                forest.link(segment.array, chunk, row + segment.offset)
                rows = len(segment.array)
            self.edges[index] += rows
            self.segments[index] += 1
            self._check(forest)
        self._merge(endpoint, forest)

    def _merge(self, endpoint: Endpoint, forest: Forest) -> None:
        """Absorb the forests of others, then send the result on."""
        index = endpoint.index
        has_joined = self.segments[index] > 0
        onward = self._label_link
        for (source, target), link in self._merge_links.items():
            if source == index:
                onward = link
            if target != index:
                continue
            for segment in link:
                with segment:
                    if len(segment.array):
                        has_joined = True
                        forest.absorb(segment.array, segment.offset)
        is_needed = has_joined or onward is self._label_link
        if is_needed:
            forest.flatten()
            endpoint.space.record_event().wait()
            self._check(forest)
        with onward:
            onward.send(forest.parents if is_needed else forest.parents[:0]).wait()

    def _check(self, forest: Forest) -> None:
        """Raise InputError if the forest has met an edge whose ends are not vertices."""
        fault = forest.fault()
        if fault is not None:
            raise InputError(_fault_message(fault, self._source, self._linking.vertices))

    def _distribute(self, array: Array, poll: Poll) -> Array:
        """Feed edges in memory to GPUs, merge their forests, and fetch the labels, from this thread."""
        from godwit.algorithms.components.streamed_cuda import labels_on_host

        endpoints = self.context.endpoints
        with current_gpu_kept(), ExitStack() as stack:
            feeders = [
                stack.enter_context(closing(GpuFeeder(endpoint, forest, self._packet_bytes)))
                for endpoint, forest in zip(endpoints, self._forests, strict=True)
            ]
            self._feed(array, feeders, poll)
            for source, target in _merge_tree(endpoints):
                if feeders[source.index].has_joined:
                    feeders[target.index].absorb(feeders[source.index])
            forest = self._forests[0]
            forest.flatten()
            for feeder in feeders:
                self._await(feeder.pending(), poll)
            for each in self._forests:
                self._check(each)
            begin = perf_counter()
            label = labels_on_host(forest)
            self.gather_s = perf_counter() - begin
        return label

    def _await(self, events: Sequence[Event], poll: Poll) -> None:
        """Wait for events so that a time-out or Ctrl-C ends the wait."""
        polled = perf_counter()
        for event in events:
            while not event.done():
                sleep(PAUSE_S)
                if poll is not None and perf_counter() - polled > _POLL_S:
                    done = int(self.edges.sum())
                    poll(Progress.of(done, total=done))
                    polled = perf_counter()

    def _feed(self, array: Array, feeders: list[GpuFeeder], poll: Poll) -> None:
        rows = max(1, self._packet_bytes // (2 * array.itemsize))
        first, polled = 0, perf_counter()
        if poll is not None:
            poll(Progress.of(0, total=len(array)))  # the time counts from here
        while first < len(array) or any(feeder.has_arriving for feeder in feeders):
            has_moved = False
            for index, feeder in enumerate(feeders):
                has_moved = feeder.advance() or has_moved
                if first == len(array) or not feeder.is_free:
                    continue
                has_moved = True
                piece = array[first : first + packet_items(len(array) - first, rows, len(feeders))]
                feeder.link(piece, first)
                first += len(piece)
                self.edges[index] += len(piece)
                self.segments[index] += 1
                self._check(self._forests[index])
            if poll is not None and perf_counter() - polled > _POLL_S:
                poll(Progress.of(first, total=len(array)))
                polled = perf_counter()
            if not has_moved:
                sleep(PAUSE_S)

    def _gather(self, label: Array) -> None:
        """Receive the labels on the host; its worker's function."""
        try:
            begin = None
            for segment in self._label_link:
                begin = begin or perf_counter()
                with segment:
                    first = segment.offset
                    label[first : first + len(segment.array)] = segment.array
            self.gather_s = 0.0 if begin is None else perf_counter() - begin
        finally:
            self._finished.set()


class GpuFeeder:
    """Buffers and copies of a GPU to which one thread feeds edges of the host.

    :param packet_bytes: size of a buffer
    :ivar has_joined: True once the GPU's forest has been given edges
    """

    def __init__(self, endpoint: Endpoint, forest: Forest, packet_bytes: int) -> None:
        self._space = endpoint.space
        self._stream = endpoint.stream
        self._forest = forest
        self._packet_bytes = packet_bytes
        self.has_joined = False
        with ExitStack() as stack:
            self._blocks: deque[tuple[Block, Event]] = deque()
            self._arriving: deque[tuple[Event, Block, Callable[[], None]]] = deque()
            for _ in range(DEFAULT_BUFFERS):
                block = self._space.allocate(packet_bytes)
                stack.callback(block.free)
                self._blocks.append((block, READY))
            self._lane = self._space.lane()
            stack.callback(self._lane.close)
            stack.callback(self._wait)
            self._stack = stack.pop_all()

    @property
    def is_free(self) -> bool:
        """True if a buffer is no longer in use."""
        return bool(self._blocks) and self._blocks[0][1].done()

    @property
    def has_arriving(self) -> bool:
        """True if kernels are to be enqueued by :meth:`advance`."""
        return bool(self._arriving)

    def link(self, edges: Array, row: int) -> None:
        """Start to copy a segment, whose ends kernels link then.

        :param row: number of its first row among all edges
        """
        self.has_joined = True
        self._copy(edges, (), lambda view: self._forest.link(view, 0, row))

    def absorb(self, other: GpuFeeder) -> None:
        """Enqueue the merge of another GPU's forest."""
        self.has_joined = True
        other._forest.flatten()
        flat = other._space.record_event(other._stream)
        parents = other._forest.parents
        items = max(1, self._packet_bytes // parents.dtype.itemsize)
        for first in range(0, len(parents), items):
            use = partial(self._forest.absorb, first=first)
            self._copy(parents[first : first + items], (flat,), use)

    def _copy(self, source: Any, after: Sequence[Event], use: Callable[[Any], None]) -> None:
        """Start to copy to the next buffer, and enqueue kernels that use it as soon as that is possible."""
        block, used = self._blocks.popleft()
        view = block.view(source.dtype, source.shape)
        arrival = self._lane.copy(source, block.address, (*after, used))
        self._arriving.append((arrival, block, partial(use, view)))
        self.advance()

    def advance(self) -> bool:
        """Enqueue kernels of arrived data, and of data that streams can wait for; return True if any."""
        has_moved = False
        while self._arriving and can_be_enqueued(self._arriving[0][0]):
            arrival, block, use = self._arriving.popleft()
            try:
                arrival.wait_on(self._stream)
                use()
            finally:
                self._blocks.append((block, self._space.record_event(self._stream)))
            has_moved = True
        return has_moved

    def pending(self) -> list[Event]:
        """Return events that are done when all enqueued work is."""
        arriving = (event for event, _, _ in self._arriving)
        used = (event for _, event in self._blocks)
        return [*arriving, *used, self._space.record_event(self._stream)]

    def _wait(self) -> None:
        try:
            for event in self.pending():
                event.wait()
        finally:
            self._arriving.clear()  # there are arrays over the blocks

    def close(self) -> None:
        """Wait for enqueued work, and free the buffers."""
        self._stack.close()


def _array_for_gpus(edges: Edges, context: Context) -> Array | None:
    """Return edges that lie in host memory in one array, if all devices are GPUs; else None."""
    if isinstance(edges, EdgeChunks) or not isinstance(edges.array, np.ndarray):
        return None
    return edges.array if all(device.kind == "cuda" for device in context.devices) else None


def _merge_tree(endpoints: tuple[Endpoint, ...]) -> Iterator[tuple[Endpoint, Endpoint]]:
    """Yield (source, target) of every merge of two forests, in pairs of growing distance."""
    distance = 1
    while distance < len(endpoints):
        for target in range(0, len(endpoints) - distance, 2 * distance):
            yield endpoints[target + distance], endpoints[target]
        distance *= 2


def _fault_message(fault: Fault, edges: Edges, vertices: int) -> str:
    wrong = next(id for id in (fault.source, fault.target) if not 0 <= id < vertices)
    place = f"row {fault.row:,} of "
    place += f"chunk {fault.chunk:,}" if isinstance(edges, EdgeChunks) else edges.name
    there = f"in [0, {vertices:,})" if vertices else "there, as there are none"
    return f"{place} is ({fault.source}, {fault.target}), and {wrong} is no vertex {there}"


class EdgeSenders:
    """Threads' functions that send edges of the host to a router, and the blocks they read into.

    Invariant: a block is being filled by one thread, or in flight with a future that says when it may be
    filled again, or free. Blocks in flight are queued in the order of sending, so a thread that takes the
    next one waits for the one that is free first. There are at least as many blocks as threads, none of
    which has two, so there is always one to take. Blocks are made on demand: page-locking takes time.

    :param link: to the router; the last function that ends shuts it down
    :param space: the host's memory
    :param packet_bytes: size of a block
    :param limit_bytes: of all blocks; None for as many as keep the threads busy
    :raises InputError: the limit is less than a block
    """

    def __init__(
        self, edges: Edges, link: Link, space: Space, packet_bytes: int, limit_bytes: int | None
    ) -> None:
        self._link = link
        self._space = space
        self._packet_bytes = packet_bytes
        self._blocks: list[Block] = []
        self._in_flight: deque[tuple[Block, Future[None] | None]] = deque()
        self._lock = threading.Lock()
        self._piece_numbers = count()
        self._send: Callable[[], None]
        most = None if limit_bytes is None else limit_bytes // packet_bytes
        if most == 0:
            raise InputError(
                f"host_bytes leaves {config.readable_bytes(limit_bytes or 0)} to read edges into, and a "
                f"packet takes {config.readable_bytes(packet_bytes)}: allow more, or use smaller packets"
            )
        readers = 1
        if isinstance(edges, EdgeChunks):
            self._send = partial(self._send_chunks, edges)
        elif edges.array is not None:
            self._send = partial(self._send_array, edges)
        else:
            self._send = partial(self._send_pieces, edges)
            pieces = -(-edges.count // self._rows(edges.dtype))
            readers = max(1, min(_MAX_READERS, config.thread_count(), pieces, most or _MAX_READERS))
        blocks = readers * _BLOCKS_PER_READER
        self._max_blocks = blocks if most is None else min(most, blocks)
        self._running = readers
        self.functions = [self.send_edges] * readers

    def send_edges(self) -> None:
        """Send edges; the last thread that ends shuts the link down."""
        self._send()
        with self._lock:
            self._running -= 1
            is_last = self._running == 0
        if is_last:
            self._link.shutdown()

    def _rows(self, dtype: np.dtype[Any]) -> int:
        """Return the number of rows in a block."""
        return max(1, self._packet_bytes // (2 * dtype.itemsize))

    def _send_array(self, edges: EdgeTable) -> None:
        """Send an array in one message, from where it is."""
        if edges.count:
            self._link.send(edges.array, metadata=(0, 0)).wait()

    def _send_pieces(self, edges: EdgeTable) -> None:
        """Read and send pieces of a table until all are claimed."""
        rows = self._rows(edges.dtype)
        while (first := next(self._piece_numbers) * rows) < edges.count:
            size = min(rows, edges.count - first)
            self._send_filled(edges.dtype, size, (0, first), partial(edges.fill, first=first))

    def _send_chunks(self, chunks: EdgeChunks) -> None:
        """Send chunks one after the other, each copied, so that the iterator may reuse its array."""
        for number, chunk in enumerate(chunks):
            dtype = end_dtype(chunk.dtype, f"chunk {number}")
            for first in range(0, len(chunk), self._rows(dtype)):
                piece = chunk[first : first + self._rows(dtype)]
                self._send_filled(dtype, len(piece), (number, first), partial(np.copyto, src=piece))

    def _send_filled(
        self, dtype: np.dtype[Any], rows: int, origin: tuple[int, int], fill: Callable[[Array], None]
    ) -> None:  # fmt: skip
        """Fill the next free block, and send it."""
        block, sent = self._next_block()
        try:
            if sent is not None:
                sent.wait()
            view = block.view(dtype, (rows, 2))
            fill(view)
            sent = self._link.send(view, metadata=origin)
        finally:  # also where this thread fails: others may still need the block
            self._in_flight.append((block, sent))

    def _next_block(self) -> tuple[Block, Future[None] | None]:
        """Return a block, and the future after which it may be filled."""
        with self._lock:
            is_full = len(self._blocks) == self._max_blocks
            if is_full or (self._in_flight and _is_done(self._in_flight[0][1])):
                return self._in_flight.popleft()
            block = self._space.allocate(self._packet_bytes)
            self._blocks.append(block)
            return block, None

    def __enter__(self) -> EdgeSenders:
        return self

    def __exit__(self, *_: object) -> None:
        """Free the blocks; the workers have ended."""
        for block in self._blocks:
            block.free()
        self._blocks.clear()


def _is_done(future: Future[None] | None) -> bool:
    return future is None or future.done
