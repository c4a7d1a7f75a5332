"""A graph on GPUs: each device's rows, the memory of runs, and plans, all kept from one run to the next.

Memory is allocated between runs only, never while kernels wait for each other. What only some programs need
(weights, packed rows, vertex ids) is uploaded by the first of them. All plans share the arrays of vertices'
state, since queries take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.errors import DeviceError, GraphTooLargeError, InputError
from godwit.graph.csr import Graph
from godwit.graph.partition.layout import LocalGraph
from godwit.graph.rows import thread_count_for
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import block_range, run_team
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.compile import MAXIMAL_DEVICES
from godwit.runtime.cuda.devices import GpuLocks, HeldGpus, gpu_index, held_gpus
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.memory import Buffer, HeldArray, PinnedBuffer
from godwit.runtime.cuda.transfer.copies import upload
from godwit.runtime.cuda.transfer.delivery import Delivery
from godwit.runtime.protocol import Device
from godwit.worker.cuda.program import BOARD_BYTES, CONTROL, HUB_DEGREE

LONGEST_PACKED_ROW = 4
_LONGEST_ITEM = 16
_LONGEST_HUB = 48
PACKED_SHARE = 0.9
"""Rows are packed if at least this share of them is short."""

MOST_PLANS = 16
"""Plans that a placement keeps: those that were used last."""

SMALL_ROWS = 1 << 20
"""Up to this number of rows, NumPy counts them by length: compiling code for it takes longer."""

Memory = TypeVar("Memory", Buffer, PinnedBuffer)


class Closable(Protocol):
    """Object with memory that :meth:`close` frees."""

    def close(self) -> None:
        """Free the memory."""


Plan = TypeVar("Plan", bound=Closable)


class Room(Generic[Memory]):
    """A buffer that is kept from run to run, and replaced by a larger one if a run needs more.

    :param allocate: returns a buffer of a number of bytes
    :param freed: called whenever a buffer is freed
    """

    def __init__(self, allocate: Callable[[int], Memory], freed: Callable[[], None]) -> None:
        self._allocate: Callable[[int], Memory] = allocate
        self._freed = freed
        self._buffer: Memory | None = None

    @property
    def buffer(self) -> Memory:
        """The buffer, which exists."""
        assert self._buffer is not None
        return self._buffer

    @property
    def is_filled(self) -> bool:
        """True if the buffer exists."""
        return self._buffer is not None

    def sized(self, nbytes: int) -> Memory:
        """Return a buffer of at least ``nbytes``; the content of a new one is undefined."""
        if self._buffer is None or self._buffer.nbytes < nbytes:
            self.close()  # first: the larger one may need the memory
            self._buffer = self._allocate(nbytes)
        return self._buffer

    def filled(self: Room[Buffer], array: Array | HeldArray) -> Buffer:
        """Return a buffer with the content of an array."""
        buffer = self.sized(array.nbytes)
        upload(buffer, array)
        return buffer

    def resident(self: Room[Buffer], array: Array | HeldArray) -> Buffer:
        """Return a buffer with the content of an array that never changes, uploaded once."""
        return self.filled(array) if self._buffer is None else self._buffer

    def close(self) -> None:
        """Free the buffer."""
        if self._buffer is not None:
            self._freed()
            self._buffer.close()
            self._buffer = None


@dataclass
class PartRooms:
    """The buffers of one device's part: rows of the graph, then the state of a run."""

    offsets: Room[Buffer]
    targets: Room[Buffer]
    weights: Room[Buffer]
    vertices: Room[Buffer]
    positions: Room[Buffer]
    halo_remote: Room[Buffer]
    rows: Room[Buffer]
    row_weights: Room[Buffer]
    values: Room[Buffer]
    halo_values: Room[Buffer]
    fields: Room[Buffer]
    pending: Room[Buffer]
    halo_pending: Room[Buffer]
    hubs: Room[Buffer]


@dataclass
class GpuMemory:
    """An endpoint's GPU, by its number, and stream."""

    index: int
    stream: Stream = field(kw_only=True)

    def close(self) -> None:
        """Close the stream."""
        self.stream.close()


@dataclass
class GpuPart(GpuMemory):
    """One device's part of a graph, in the memory of its GPU.

    :param graph: the part, in host memory
    :param hubs: number of vertices whose rows the whole grid expands
    :param packs: True if short rows can be packed
    :param freed: called whenever a buffer is freed
    :ivar has_packed: ``rows`` of :attr:`rooms` is filled, with ``row_weights`` if ``has_packed_weights``
    """

    graph: LocalGraph
    hubs: int
    packs: bool
    freed: Callable[[], None]
    has_packed: bool = False
    has_packed_weights: bool = False
    rooms: PartRooms = field(init=False)

    def __post_init__(self) -> None:
        allocate = partial(Buffer, self.index)
        self.rooms = PartRooms(
            **{room.name: Room(allocate, self.freed) for room in fields(PartRooms)}
        )

    def close(self) -> None:
        """Free all memory."""
        for room in fields(PartRooms):
            getattr(self.rooms, room.name).close()
        super().close()


Part = TypeVar("Part", bound=GpuMemory)


def synchronize(parts: Iterable[GpuMemory]) -> None:
    """Wait until the streams of endpoints are done."""
    for part in parts:
        part.stream.synchronize()


@dataclass
class _KeptPlan:
    """A plan that a placement keeps.

    :param version: of the placement when the plan was made
    :param used: number of the latest use
    """

    plan: Any
    version: int
    used: int


class GpuEndpoints(Generic[Part]):
    """Endpoints on GPUs, of which several may share one, their memory, and plans, until :meth:`close`.

    :raises InputError: more than can run together
    :raises DeviceError: a GPU cannot run kernels whose blocks wait for each other
    :ivar version: grows whenever memory is freed to which plans may point
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self.indexes = [gpu_index(device) for device in devices]
        self.closed = False
        self.version = 0
        self._plans: dict[Hashable, _KeptPlan] = {}
        self._uses = count()
        self.gpu_locks = GpuLocks(self.indexes)
        if len(devices) > MAXIMAL_DEVICES:
            raise InputError(f"at most {MAXIMAL_DEVICES} endpoints can run, got {len(devices)}")
        self.parts: list[Part] = []
        for index in self.indexes:
            if not driver.properties(index).cooperative:
                name = driver.properties(index).name
                raise DeviceError(f"cuda:{index} ({name}) cannot run cooperative kernels")

    def sharing(self, index: int) -> int:
        """Return the number of endpoints on a GPU."""
        return self.indexes.count(index)

    def are_peers(self, here: int, there: int) -> bool:
        """Return True if two endpoints access each other's memory."""
        first, second = self.indexes[here], self.indexes[there]
        return driver.can_access_peer(first, second) and driver.can_access_peer(second, first)

    def held(self) -> AbstractContextManager[None]:
        """Return a block that holds the GPUs exclusively; no work in the streams outlasts it.

        :raises ClosedContextError: when it begins: this is closed
        """
        return HeldGpus(self.gpu_locks, self)

    def plan(self, key: Hashable, make: Callable[[], Plan]) -> Plan:
        """Return a plan that is kept between queries. The caller holds the GPUs.

        :param key: the algorithm, and all options that its plan depends on
        :param make: makes it, if there is none, or if memory to which it may point was freed since
        """
        known = self._plans.get(key)
        if known is None or known.version != self.version:
            self.drop_plan(key)
            if len(self._plans) >= MOST_PLANS:
                oldest = min(self._plans, key=lambda key: self._plans[key].used)
                self._plans.pop(oldest).plan.close()
            plan = make()
            known = self._plans[key] = _KeptPlan(plan, self.version, 0)
        known.used = next(self._uses)
        kept: Plan = known.plan
        return kept

    def is_current(self, plan: Closable) -> bool:
        """Return True if a plan of :meth:`plan` is kept still, and points to memory that is there."""
        for known in self._plans.values():
            if known.plan is plan:
                return known.version == self.version
        return False

    def has_plan(self, key: Hashable) -> bool:
        """Return True if :meth:`plan` has a plan that it need not make."""
        known = self._plans.get(key)
        return known is not None and known.version == self.version

    def drop_plan(self, key: Hashable) -> None:
        """Close the plan of a key, if there is one."""
        known = self._plans.pop(key, None)
        if known is not None:
            known.plan.close()

    def note_freed(self) -> None:
        """Invalidate all plans, as they may point to memory that was freed; :meth:`plan` makes new ones."""
        self.version += 1

    def close(self) -> None:
        """Free all memory, after the run that uses it; closing twice does no harm."""
        if not self.closed:
            with HeldGpus(self.gpu_locks):
                self.close_held()

    def close_held(self) -> None:
        """Free all memory. The caller holds the GPUs."""
        self.closed = True
        self._free()

    def _free(self) -> None:
        for known in self._plans.values():
            known.plan.close()
        self._plans.clear()
        for part in self.parts:
            part.close()
        self.parts = []


class GpuPlacement(GpuEndpoints[GpuPart]):
    """A graph on GPUs, with an endpoint for each part.

    :raises GraphTooLargeError: need against free, for each GPU, before anything is allocated
    :ivar link_rooms: mailboxes by sender, receiver and final device, on the receiver's GPU (its number) or
        on the host (None)
    :ivar delivery: the way of results, made by the first of them
    """

    def __init__(self, devices: Sequence[Device], parts: Sequence[LocalGraph]) -> None:
        super().__init__(devices)
        self.delivery: Delivery | None = None
        self.link_rooms: dict[tuple[int, int, int, int | None], Room[Any]] = {}
        shapes = [row_shape(part) for part in parts]
        with held_gpus(self.indexes):
            needs = [
                _part_bytes(part, *shape, several=len(parts) > 1)
                for part, shape in zip(parts, shapes, strict=True)
            ]
            require_room(self.indexes, needs, memory.free_memory_bytes)
            driver.enable_peer_access(self.indexes)
            try:
                for index, graph, shape in zip(self.indexes, parts, shapes, strict=True):
                    part = GpuPart(index, graph, *shape, self.note_freed, stream=Stream(index))
                    self.parts.append(part)
                    part.rooms.offsets.resident(graph.stored.arrays.offsets)
                    part.rooms.targets.resident(graph.stored.arrays.targets)
                    if graph.halo_count:
                        part.rooms.halo_remote.resident(graph.halo_remote)
            except BaseException:
                self._free()
                raise

    def link_memory(
        self, sender: int, receiver: int, final: int, nbytes: int, *, on_host: bool
    ) -> Buffer | PinnedBuffer:
        """Return memory that a sender and a receiver both access."""
        index = None if on_host else self.indexes[receiver]
        room = self.link_rooms.setdefault(
            (sender, receiver, final, index),
            Room(PinnedBuffer if index is None else partial(Buffer, index), self.note_freed),
        )
        buffer: Buffer | PinnedBuffer = room.sized(nbytes)
        return buffer

    def _free(self) -> None:
        for room in self.link_rooms.values():
            room.close()
        super()._free()


def row_shape(graph: Graph | LocalGraph) -> tuple[int, bool]:
    """Return the number of hubs of a part, or of a graph on one GPU, and True if its rows can be packed."""
    short, hubs = _count_lengths(graph.offsets)
    packs = short >= PACKED_SHARE * graph.vertex_count and graph.id_dtype.itemsize == 4
    return hubs, packs


def _count_lengths(offsets: Array) -> tuple[int, int]:
    """Return how many rows are short enough to be packed, and how many are those of hubs."""
    if len(offsets) <= SMALL_ROWS:  # without compiled code
        lengths = np.diff(offsets)
        return int((lengths <= LONGEST_PACKED_ROW).sum()), int((lengths > HUB_DEGREE).sum())
    threads = thread_count_for(len(offsets))
    counts = np.zeros((threads, 2), np.int64)
    run_team(_count_own_lengths, offsets, counts, threads=threads)
    short, hubs = counts.sum(axis=0).tolist()
    return short, hubs


@kernel
def _count_own_lengths(rank: int, size: int, control: Any, offsets: Any, counts: Any) -> None:
    """Count short rows and rows of hubs of this thread's part in row ``rank`` of ``counts``."""
    begin, end = block_range(rank, size, offsets.size - 1)
    short, hubs = 0, 0
    for v in range(begin, end):
        length = offsets[v + 1] - offsets[v]
        if length <= LONGEST_PACKED_ROW:
            short += 1
        if length > HUB_DEGREE:
            hubs += 1
    counts[rank, 0], counts[rank, 1] = short, hubs


def _part_bytes(graph: LocalGraph, hubs: int, packs: bool, *, several: bool) -> int:
    """Estimate the memory of a part: arrays, values and fields of 8 bytes, bitmaps, mailboxes.

    Mailboxes are counted as if the halo were shared evenly and items were not relayed; allocation fails if
    that is too little.
    """
    vertices, halo = graph.vertex_count, graph.halo_count
    arrays = graph.stored.nbytes + graph.halo_remote.nbytes
    if packs:
        arrays += LONGEST_PACKED_ROW * graph.stored.arc_bytes * vertices
    state = 8 * (vertices + halo) + (vertices + halo) // 8 + _LONGEST_HUB * hubs
    mailboxes = 2 * _LONGEST_ITEM * halo if several else 0
    return arrays + state + mailboxes + BOARD_BYTES + CONTROL.itemsize


def require_room(
    indexes: Sequence[int], part_bytes: Sequence[int], free_bytes: Callable[[int], int],
    lenders: Sequence[int] = (),
) -> None:  # fmt: skip
    """Raise GraphTooLargeError if parts, of which some may share a GPU, do not fit.

    :param free_bytes: returns the free memory of a GPU
    :param lenders: further GPUs in whose memory they may lie
    """
    short = []
    gpus = sorted({*indexes, *lenders})
    for together in [gpus] if lenders else [[index] for index in gpus]:
        needed = sum(
            nbytes for gpu, nbytes in zip(indexes, part_bytes, strict=True) if gpu in together
        )
        free = sum(map(free_bytes, together))
        if needed > free:
            names = " and ".join(f"cuda:{index}" for index in together)
            need, have = config.readable_bytes(needed), config.readable_bytes(free)
            short.append(
                f"{names} together need {need} and have {have} free"
                if lenders
                else f"{names} needs {need} and has {have} free"
            )
    if short:
        raise GraphTooLargeError(
            f"the graph does not fit: {'; '.join(short)}; use more GPUs, or devices='cpu'"
        )
