"""A graph's rows in positions, made on GPUs. Kernels: supersteps/rows.cuh.

The graph's targets go once over the bus, in chunks, to the first GPU, and from there to the others; each
picks the arcs of its own rows. Rows that are wanted hot first are sorted in ranges that fit into what is
free then.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError
from godwit.graph.csr import Graph
from godwit.graph.cuda.builder import c_id, c_word, kernel_source, spare_bytes
from godwit.graph.partition.positions import arcs_per_part
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import cubin
from godwit.runtime.cuda.driver import Buffer, Module
from godwit.runtime.cuda.sorting import sort_keys
from godwit.runtime.cuda.upload import upload
from godwit.worker.cuda.placement import require_room, settle

if TYPE_CHECKING:
    from godwit.supersteps.placement import Direction, StepPart, StepPlacement

CHUNK_ARCS = 1 << 26
"""Of the graph's, that are brought up at once."""

_MOST_ARCS = 2**31 - 1  # of one sort
_KEY_BITS = 63
_SORT_BYTES = 16  # of an arc: its key, and what a sort needs beside
_LEAST_SORTED_ARCS = 1 << 20
_THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 8
_SCAN_THREADS = 1024


class PartitionView(ctypes.Structure):
    """How a graph's vertices stand on its devices; as in supersteps/rows.cuh."""

    _fields_ = (
        ("device", ctypes.c_int64),
        ("devices", ctypes.c_int64),
        ("capacity", ctypes.c_int64),
        ("owned", ctypes.c_int64),
        ("vertices", ctypes.c_int64),
    )


@dataclass(frozen=True)
class StepRows:
    """The rows of one device's own vertices, by own index.

    :param offsets: (owned + 1) int64: where each begins
    :param targets: (arcs) ids: positions
    :param heads: (owned) ids: the first target of each row, -1 where there is none
    :param weights: (arcs) of ``weight_dtype``, or None
    :param classes: (7) int64: as of the device's part
    """

    offsets: Buffer
    targets: Buffer
    heads: Buffer
    weights: Buffer | None
    weight_dtype: np.dtype[Any] | None
    arcs: int
    classes: Array


def make_rows(
    placement: StepPlacement, direction: Direction, weighted: bool, ordered: bool
) -> list[StepRows]:
    """Make the rows of all devices, as far as they are not there already."""
    making = _Making(placement, direction, weighted, ordered)
    making.require_room()
    try:
        making.count()
        making.place()
        if not ordered:
            begin = perf_counter()
            making.sort()
            placement.add_seconds("sort", begin)
        return making.finished()
    except BaseException:
        making.forget()
        raise


def make_degrees(placement: StepPlacement, direction: Direction) -> list[Buffer]:
    """The lengths of the rows of each device, kept by it."""
    name = f"{direction} degrees"
    graph = _graph_of(placement, direction)
    for part in placement.parts:
        if name not in part.buffers:
            part.buffers[name] = _row_lengths(placement, part, graph, 8 * part.owned)
    return [part.buffers[name] for part in placement.parts]


def make_vertices(placement: StepPlacement) -> list[Buffer]:
    """The vertex of each own index of each device, kept by it."""
    source = _source(placement, placement.graph.targets.dtype, None)
    for part in placement.parts:
        if "vertices" not in part.buffers:
            positions = positions_on(placement, part).pointer
            made = Buffer(part.index, placement.id_dtype.itemsize * part.owned)
            standing = _partition_view(placement, part)
            start_kernel(part, source, "list_vertices", positions, standing, made.pointer)
            part.stream.synchronize()
            part.buffers["vertices"] = made
    return [part.buffers["vertices"] for part in placement.parts]


def positions_on(placement: StepPlacement, part: StepPart) -> Buffer:
    """The position of each vertex, on a device, brought there once."""
    found = part.buffers.get("positions")
    if found is None:
        found = Buffer(part.index, placement.numbering.position.nbytes)
        upload(found, placement.numbering.position)
        part.buffers["positions"] = found
    return found


def drop_positions(placement: StepPlacement) -> None:
    """Give back where each vertex stands, which takes an id a vertex of the graph; it can be made again."""
    for part in placement.parts:
        found = part.buffers.pop("positions", None)
        if found is not None:
            found.close()


class _Making:
    """Rows in the making: names of buffers that each device keeps, and those that are still to be made."""

    def __init__(
        self, placement: StepPlacement, direction: Direction, weighted: bool, ordered: bool
    ) -> None:
        self.placement = placement
        self.parts = placement.parts
        self.graph = _graph_of(placement, direction)
        order = "ordered" if ordered else "hot first"
        self.offsets = f"{direction} offsets"
        self.targets = f"{direction} targets, {order}"
        self.heads = f"{direction} heads, {order}"
        self.weights = f"{direction} weights" if weighted else ""
        there = self.parts[0].buffers
        names = (self.offsets, self.targets, self.heads, self.weights)
        self.missing = [name for name in names if name and name not in there]
        self.arcs = [int(count) for count in arcs_per_part(self.graph, placement.numbering)]
        self.ordered = ordered
        self.source = _source(placement, self.graph.targets.dtype, self._weight_dtype)

    @property
    def _weight_dtype(self) -> np.dtype[Any] | None:
        if not self.weights or self.graph.weights is None:
            return None
        return self.graph.weights.dtype

    def require_room(self) -> None:
        """Refuse what does not fit."""
        graph, id_bytes = self.graph, self.placement.id_dtype.itemsize
        weight_bytes = 0 if self._weight_dtype is None else self._weight_dtype.itemsize
        chunk = min(graph.arc_count, CHUNK_ARCS) * max(graph.targets.itemsize, weight_bytes)
        needs = []
        for part, arcs in zip(self.parts, self.arcs, strict=True):
            sizes = {
                self.offsets: 8 * (part.owned + 1),
                self.targets: id_bytes * arcs,
                self.heads: id_bytes * part.owned,
                self.weights: weight_bytes * arcs,
            }
            needed = sum(sizes[name] for name in self.missing)
            if "positions" not in part.buffers:
                needed += id_bytes * graph.vertex_count
            sorting = 0 if self.ordered else _SORT_BYTES * min(arcs, _LEAST_SORTED_ARCS)
            needs.append(needed + max(graph.offsets.nbytes + chunk, sorting))
        require_room([part.index for part in self.parts], needs, spare_bytes)

    def count(self) -> None:
        """Where own rows begin."""
        if self.offsets not in self.missing:
            return
        for part in self.parts:
            made = _row_lengths(self.placement, part, self.graph, 8 * (part.owned + 1))
            part.buffers[self.offsets] = made
            start_sum(part, self.source, made.pointer, part.owned)
            part.stream.synchronize()

    def place(self) -> None:
        """Bring arcs up, and put those of own rows in their places."""
        id_bytes = self.placement.id_dtype.itemsize
        for part, arcs in zip(self.parts, self.arcs, strict=True):
            if self.targets in self.missing:
                part.room(self.targets, id_bytes * arcs)
            if self.weights in self.missing:
                assert self._weight_dtype is not None
                part.room(self.weights, self._weight_dtype.itemsize * arcs)
        with ExitStack() as owned:
            places = [self._places(part, owned) for part in self.parts]
            if self.targets in self.missing:
                self._deal("place_targets", self.graph.targets, self.targets, places)
            if self.weights in self.missing:
                assert self.graph.weights is not None
                self._deal("place_weights", self.graph.weights, self.weights, places)

    def _places(self, part: StepPart, owned: ExitStack) -> tuple[Any, ...]:
        """What tells a kernel which arcs are a device's own."""
        offsets = owned.enter_context(Buffer(part.index, self.graph.offsets.nbytes))
        upload(offsets, self.graph.offsets)
        positions = positions_on(self.placement, part).pointer
        standing = _partition_view(self.placement, part)
        return offsets.pointer, positions, standing, part.buffers[self.offsets].pointer

    def _deal(self, kernel: str, array: Array, name: str, places: list[tuple[Any, ...]]) -> None:
        """An array of the graph's arcs to the devices, and there into a buffer."""
        if len(array) == 0:
            return
        room = min(len(array), CHUNK_ARCS) * array.itemsize
        first = self.parts[0]
        with ExitStack() as owned:
            chunks = [owned.enter_context(Buffer(part.index, room)) for part in self.parts]
            owned.callback(settle, self.parts)  # before a chunk is given back
            for begin in range(0, len(array), CHUNK_ARCS):
                some = array[begin : begin + CHUNK_ARCS]
                upload(chunks[0], some)
                for part, chunk, place in zip(self.parts, chunks, places, strict=True):
                    if part is not first:
                        driver.copy_peer_async(
                            chunk.pointer, part.index, chunks[0].pointer, first.index,
                            some.nbytes, part.stream,
                        )  # fmt: skip
                    to = part.buffers[name].pointer
                    start_kernel(
                        part, self.source, kernel, *place, begin, len(some), chunk.pointer, to
                    )
                settle(self.parts)

    def sort(self) -> None:
        """Each row by the hotness of its targets."""
        if self.targets not in self.missing:
            return
        placement = self.placement
        hot_bits = (placement.count - 1).bit_length()
        id_bytes = placement.id_dtype.itemsize
        for part, arcs in zip(self.parts, self.arcs, strict=True):
            offsets, targets = part.buffers[self.offsets], part.buffers[self.targets]
            standing = _partition_view(placement, part)
            for first, rows, begin, count in _ranges(part, offsets, arcs, hot_bits):
                at = targets.pointer + id_bytes * begin
                with Buffer(part.index, 8 * count) as keys:
                    start_kernel(
                        part, self.source, "write_hot_keys", offsets.pointer, targets.pointer,
                        standing, first, rows, hot_bits, begin, count, keys.pointer,
                    )  # fmt: skip
                    sort_keys(keys, count, part.stream)
                    start_kernel(
                        part, self.source, "read_hot_keys", keys.pointer, count, hot_bits,
                        standing, at,
                    )  # fmt: skip
                    part.stream.synchronize()

    def finished(self) -> list[StepRows]:
        """The rows of each device."""
        id_bytes = self.placement.id_dtype.itemsize
        if self.heads in self.missing:
            for part in self.parts:
                heads = part.room(self.heads, id_bytes * part.owned)
                offsets, targets = part.buffers[self.offsets], part.buffers[self.targets]
                start_kernel(
                    part, self.source, "write_heads", offsets.pointer, targets.pointer, part.owned,
                    heads.pointer,
                )  # fmt: skip
            settle(self.parts)
        return [
            StepRows(
                part.buffers[self.offsets],
                part.buffers[self.targets],
                part.buffers[self.heads],
                part.buffers[self.weights] if self.weights else None,
                self._weight_dtype,
                arcs,
                part.classes,
            )
            for part, arcs in zip(self.parts, self.arcs, strict=True)
        ]

    def forget(self) -> None:
        """Give back what is half made."""
        for part in self.parts:
            for name in self.missing:
                found = part.buffers.pop(name, None)
                if found is not None:
                    found.close()


def _ranges(
    part: StepPart, offsets: Buffer, arcs: int, hot_bits: int
) -> Iterator[tuple[int, int, int, int]]:
    """Rows that are sorted together: (first row, rows, first arc, arcs)."""
    most_rows = 1 << (_KEY_BITS - hot_bits)
    most_arcs = min(_MOST_ARCS, spare_bytes(part.index) // _SORT_BYTES)
    if arcs <= most_arcs and part.owned <= most_rows:
        if arcs:
            yield 0, part.owned, 0, arcs
        return
    begins = offsets.download(np.int64, part.owned + 1)
    first = 0
    while first < part.owned:
        last = int(np.searchsorted(begins, begins[first] + most_arcs, side="right")) - 1
        last = min(last, first + most_rows, part.owned)
        if last == first:
            raise GraphTooLargeError(
                f"a vertex has {begins[first + 1] - begins[first]:,} arcs, and cuda:{part.index} has "
                f"memory to sort {most_arcs:,} at once"
            )
        count = int(begins[last] - begins[first])
        if count:
            yield first, last - first, int(begins[first]), count
        first = last


def _graph_of(placement: StepPlacement, direction: Direction) -> Graph:
    return placement.graph if direction == "out" else placement.graph.reverse


def _partition_view(placement: StepPlacement, part: StepPart) -> PartitionView:
    return PartitionView(
        part.device, len(placement.parts), placement.capacity, part.owned, placement.vertex_count
    )


def _row_lengths(placement: StepPlacement, part: StepPart, graph: Graph, nbytes: int) -> Buffer:
    """The lengths of a device's rows at the begin of a new buffer."""
    source = _source(placement, graph.targets.dtype, None)
    positions = positions_on(placement, part).pointer
    made = Buffer(part.index, nbytes)
    try:
        with Buffer(part.index, graph.offsets.nbytes) as offsets:
            upload(offsets, graph.offsets)
            standing = _partition_view(placement, part)
            start_kernel(
                part, source, "count_rows", offsets.pointer, positions, standing, made.pointer
            )
            part.stream.synchronize()
    except BaseException:
        made.close()
        raise
    return made


def _source(
    placement: StepPlacement, graph_ids: np.dtype[Any], weights: np.dtype[Any] | None
) -> str:
    """Of the kernels."""
    return kernel_source(
        "supersteps/row_kernels.cuh",
        Id=c_id(placement.id_dtype),
        GraphId=c_id(graph_ids),
        Word=c_word(weights),
    )


@lru_cache(maxsize=64)
def _module(index: int, source: str) -> Module:
    architecture = driver.properties(index).compute_capability
    return driver.load(index, cubin(source, (), architecture))


def start_kernel(part: StepPart, source: str, name: str, *arguments: Any) -> None:
    """Start a kernel on the whole GPU."""
    blocks = driver.properties(part.index).multiprocessors * _BLOCKS_PER_MULTIPROCESSOR
    kernel = _module(part.index, source).kernel(name)
    driver.launch(kernel, part.stream, blocks=blocks, threads=_THREADS, arguments=arguments)


def start_sum(part: StepPart, source: str, values: int, count: int) -> None:
    """Start the kernel ``sum_up``: the sums of what goes before each value, by one block."""
    kernel = _module(part.index, source).kernel("sum_up")
    arguments = (values, count)
    driver.launch(kernel, part.stream, blocks=1, threads=_SCAN_THREADS, arguments=arguments)
