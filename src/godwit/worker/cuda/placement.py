"""A graph on GPUs: each device's rows, and the memory that runs work in, kept from one to the next.

Everything is allocated between runs, never while kernels wait for each other. What a run needs only with
some programs (weights, packed rows, vertex ids) is brought up by the first that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.errors import DeviceError, GraphTooLargeError, InputError
from godwit.graph.partition.layout import LocalGraph
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.compile import MAXIMAL_DEVICES
from godwit.runtime.cuda.devices import gpu_index, held_gpus
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.memory import Buffer, PinnedBuffer
from godwit.runtime.protocol import Device
from godwit.worker.cuda.program import BOARD_BYTES, CONTROL, HUB_DEGREE

LONGEST_PACKED_ROW = 4
_LONGEST_ITEM = 16
_LONGEST_HUB = 48
PACKED_SHARE = 0.9
"""Rows are packed where so many of them are short."""


@dataclass
class GpuMemory:
    """What an endpoint keeps on its GPU from one run to the next, by name.

    :param index: the GPU
    """

    index: int
    stream: Stream = field(kw_only=True)
    buffers: dict[str, Buffer] = field(default_factory=dict, kw_only=True)

    def resident(self, name: str, array: Array) -> Buffer:
        """An array of the graph on the GPU, brought there once."""
        found = self.buffers.get(name)
        if found is None:
            found = Buffer(self.index, array.nbytes)
            found.upload(array)
            self.buffers[name] = found
        return found

    def room(self, name: str, nbytes: int) -> Buffer:
        """Memory for a run; what lay there before is of no use."""
        found = self.buffers.get(name)
        if found is None or found.nbytes < nbytes:
            if found is not None:
                self.buffers.pop(name).close()  # first: the larger one may need its room
            found = self.buffers[name] = Buffer(self.index, nbytes)
        return found

    def close(self) -> None:
        """Give all memory back."""
        for buffer in self.buffers.values():
            buffer.close()
        self.buffers.clear()
        self.stream.close()


@dataclass
class GpuPart(GpuMemory):
    """One device's part of a graph, in its memory.

    :param graph: the part, as the host has it
    :param hubs: vertices whose rows the whole grid works on
    :param packs: whether short rows can be packed
    """

    graph: LocalGraph
    hubs: int
    packs: bool
    packed: set[str] = field(default_factory=set)


Part = TypeVar("Part", bound=GpuMemory)


def settle(parts: Iterable[GpuMemory]) -> None:
    """Until all that was put into the streams of endpoints is done."""
    for part in parts:
        part.stream.synchronize()


class GpuEndpoints(Generic[Part]):
    """Endpoints on GPUs, which may share one, and the memory that they hold until :meth:`close`.

    :raises InputError: more than can run together
    :raises DeviceError: a GPU cannot run kernels whose blocks wait for each other
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self.indexes = [gpu_index(device) for device in devices]
        self.closed = False
        if len(devices) > MAXIMAL_DEVICES:
            raise InputError(f"at most {MAXIMAL_DEVICES} endpoints can run, got {len(devices)}")
        self.parts: list[Part] = []
        self.pinned: dict[str, PinnedBuffer] = {}
        for index in self.indexes:
            if not driver.properties(index).cooperative:
                name = driver.properties(index).name
                raise DeviceError(f"cuda:{index} ({name}) cannot run cooperative kernels")

    def sharing(self, index: int) -> int:
        """How many endpoints a GPU has."""
        return self.indexes.count(index)

    def are_peers(self, here: int, there: int) -> bool:
        """Whether two endpoints reach each other's memory."""
        first, second = self.indexes[here], self.indexes[there]
        return driver.can_access_peer(first, second) and driver.can_access_peer(second, first)

    def pinned_room(self, name: str, nbytes: int) -> PinnedBuffer:
        """Host memory that all GPUs reach."""
        found = self.pinned.get(name)
        if found is None or found.nbytes < nbytes:
            if found is not None:
                self.pinned.pop(name).close()
            found = self.pinned[name] = PinnedBuffer(nbytes)
        return found

    def close(self) -> None:
        """Give all memory back, after the run that uses it; closing twice does no harm."""
        if not self.closed:
            with held_gpus(self.indexes):
                self.closed = True
                self._free()

    def _free(self) -> None:
        for part in self.parts:
            part.close()
        for buffer in self.pinned.values():
            buffer.close()
        self.parts, self.pinned = [], {}


class GpuPlacement(GpuEndpoints[GpuPart]):
    """A graph on GPUs, an endpoint a part.

    :raises GraphTooLargeError: need against free, for each GPU, before anything is allocated
    """

    def __init__(self, devices: Sequence[Device], parts: Sequence[LocalGraph]) -> None:
        super().__init__(devices)
        shapes = [_shape(part) for part in parts]
        with held_gpus(self.indexes):
            _require_room(self.indexes, parts, shapes)
            driver.enable_peer_access(self.indexes)
            try:
                for index, part, shape in zip(self.indexes, parts, shapes, strict=True):
                    self.parts.append(_placed(index, part, shape))
            except BaseException:
                self._free()
                raise


@dataclass(frozen=True)
class _Shape:
    """What of a part's degrees matters.

    :param hubs: vertices whose rows the whole grid works on
    :param packs: whether short rows can be packed
    """

    hubs: int
    packs: bool


def _shape(graph: LocalGraph) -> _Shape:
    degrees = np.diff(graph.offsets)
    short = int(np.count_nonzero(degrees <= LONGEST_PACKED_ROW))
    return _Shape(
        hubs=int(np.count_nonzero(degrees > HUB_DEGREE)),
        packs=short >= PACKED_SHARE * len(degrees) and graph.targets.dtype.itemsize == 4,
    )


def _placed(index: int, graph: LocalGraph, shape: _Shape) -> GpuPart:
    part = GpuPart(index, graph, shape.hubs, shape.packs, stream=Stream(index))
    try:
        part.resident("offsets", graph.offsets)
        part.resident("targets", graph.targets)
        if graph.halo_count:
            part.resident("halo_remote", graph.halo_remote)
    except BaseException:
        part.close()
        raise
    return part


def _part_bytes(graph: LocalGraph, shape: _Shape, parts: int) -> int:
    """What a part needs of a GPU: its arrays, values and fields of 8 bytes, bitmaps, mailboxes, and so on.

    An estimate, which allocation checks: mailboxes are counted as if the halo were shared evenly, and
    what is sent goes straight to its device.
    """
    vertices, halo = graph.vertex_count, graph.halo_count
    arrays = graph.offsets.nbytes + graph.targets.nbytes + graph.halo_remote.nbytes
    weight_bytes = 0 if graph.weights is None else graph.weights.itemsize
    arrays += weight_bytes * graph.arc_count
    if shape.packs:
        arrays += LONGEST_PACKED_ROW * (graph.targets.itemsize + weight_bytes) * vertices
    state = 8 * (vertices + halo) + (vertices + halo) // 8 + _LONGEST_HUB * shape.hubs
    mailboxes = 2 * _LONGEST_ITEM * halo if parts > 1 else 0
    return arrays + state + mailboxes + BOARD_BYTES + CONTROL.itemsize


def _require_room(
    indexes: Sequence[int], parts: Sequence[LocalGraph], shapes: Sequence[_Shape]
) -> None:
    needs = [
        _part_bytes(part, shape, len(parts)) for part, shape in zip(parts, shapes, strict=True)
    ]
    require_room(indexes, needs, memory.free_memory_bytes)


def require_room(
    indexes: Sequence[int], part_bytes: Sequence[int], free_bytes: Callable[[int], int]
) -> None:
    """Refuse parts that do not fit, of which some may share a GPU.

    :param free_bytes: tells what a GPU has
    :raises GraphTooLargeError: need against free
    """
    short = []
    for index in sorted(set(indexes)):
        needed = sum(n for own, n in zip(indexes, part_bytes, strict=True) if own == index)
        free = free_bytes(index)
        if needed > free:
            need, have = config.readable_bytes(needed), config.readable_bytes(free)
            short.append(f"cuda:{index} needs {need} and has {have} free")
    if short:
        raise GraphTooLargeError(
            f"the graph does not fit: {'; '.join(short)}; use more GPUs, or devices='cpu'"
        )
