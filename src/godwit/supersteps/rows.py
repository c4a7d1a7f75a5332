"""A graph's rows in device order, made on GPUs. Kernels: supersteps/rows.cuh.

The graph's targets go over the bus once, in chunks, to the first GPU, and from there to the others; each
picks the arcs of its own rows: those that leave its vertices or, for in-rows, those that reach them. Rows
by descending degree of the neighbours are sorted in ranges that fit into the memory that is free then.
In-rows in the order of the reverse graph, which weights need, are out-rows of that graph, which the host
makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import IntEnum
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from godwit.dtypes import Array
from godwit.errors import DeviceError, GraphTooLargeError
from godwit.graph.cuda.builder import c_id, c_word, kernel_source, spare_bytes
from godwit.graph.facts import in_offsets
from godwit.graph.partition.positions import arcs_per_part
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import load
from godwit.runtime.cuda.gpu_arrays import sort_keys
from godwit.runtime.cuda.libraries import cupy
from godwit.runtime.cuda.memory import Buffer, HeldArray
from godwit.runtime.cuda.structs import struct_type
from godwit.runtime.cuda.transfer.copies import upload
from godwit.supersteps.arrays import DeviceArray, StepPart
from godwit.worker.cuda.placement import require_room, synchronize

if TYPE_CHECKING:
    from godwit.supersteps.placement import StepPlacement

Direction = Literal["out", "in"]


class RowClass(IntEnum):
    """Classes of rows by length: ``CLASS_...`` of step.cuh."""

    CLASS_GRID, CLASS_BLOCK, CLASS_WARP, CLASS_GROUP, CLASS_THREAD, CLASS_NONE = range(6)


CHUNK_ARCS = 1 << 26
"""Arcs of the graph that are uploaded at once."""
LONGEST_WEIGHT_BYTES = 8

HUB_ARCS = 1 << 15
"""A vertex with more arcs is a hub: shorter rows keep one device busy for less than a meeting takes."""
MOST_HUBS = 256
"""Limit of hubs of a device, all of which are looked through in every superstep that pushes."""
_HUB_GROUP = 32
"""The number of hubs of a device is a multiple of this: a word of a bitmap belongs to one device."""

_MOST_ARCS = 2**31 - 1  # of one sort
_KEY_BITS = 63
_SORT_BYTES = 16  # of an arc: its key, and the memory that sorting it needs
_LEAST_SORTED_ARCS = 1 << 20
_THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 8
_SCAN_THREADS = 1024


PartitionView = struct_type("supersteps/rows.cuh", "PartitionView")


def partition_view(placement: StepPlacement, part: StepPart) -> Any:
    """Return one device's share of the positions: a :data:`PartitionView`."""
    return PartitionView(
        part.device, placement.device_count, placement.capacity, part.owned, placement.vertex_count
    )


@dataclass(frozen=True)
class StepRows:
    """The rows of one device's own vertices, by local index.

    :param offsets: (owned + 1) int64: first arc of each row
    :param targets: (arcs) ids: positions
    :param heads: (owned) ids: the first target of each row, -1 for an empty row
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


class RowArrays:
    """The arrays of one direction's rows.

    :ivar targets: by whether rows are in the graph's order; otherwise by descending degree
    :ivar heads: the first target of each row, by whether rows are in the graph's order
    :ivar local_targets: by whether rows are in the graph's order: targets as slots
        (:mod:`godwit.supersteps.halos`)
    :ivar subscribers: the subscriber masks of the halos of these rows
    :ivar slots: of each word of the masks, the first slot
    """

    def __init__(self, placement: StepPlacement) -> None:
        self.offsets = DeviceArray(placement)
        self.degrees = DeviceArray(placement)
        self.weights = DeviceArray(placement)
        self.targets = {ordered: DeviceArray(placement) for ordered in (False, True)}
        self.heads = {ordered: DeviceArray(placement) for ordered in (False, True)}
        self.local_targets = {ordered: DeviceArray(placement) for ordered in (False, True)}
        self.subscribers = DeviceArray(placement)
        self.slots = DeviceArray(placement)


def source(id_dtype: Any, graph_ids: Any, weight_dtype: Any = None) -> str:
    """Return the CUDA source of rows.cuh for dtypes of positions, of the graph's targets and weights."""
    return kernel_source(
        "supersteps/rows.cuh",
        Id=c_id(np.dtype(id_dtype)),
        GraphId=c_id(np.dtype(graph_ids)),
        Word=c_word(None if weight_dtype is None else np.dtype(weight_dtype)),
    )


def start_kernel(placement: StepPlacement, part: StepPart, name: str, *arguments: Any) -> None:
    """Start a kernel of rows.cuh on a device: on the whole GPU; ``sum_up`` as one block."""
    graph = placement.graph
    module = load(part.index, source(placement.id_dtype, graph.id_dtype, graph.weight_dtype))
    blocks = driver.properties(part.index).multiprocessors * _BLOCKS_PER_MULTIPROCESSOR
    threads = _THREADS
    if name == "sum_up":
        blocks, threads = 1, _SCAN_THREADS
    kernel = module.kernel(name)
    driver.launch(kernel, part.stream, blocks=blocks, threads=threads, arguments=arguments)


def positions_on(placement: StepPlacement, part: StepPart) -> Buffer:
    """Return the position of each vertex on a device; uploaded once."""
    if part not in placement.position_of:
        positions = placement.numbering.position
        upload(placement.position_of.room(part, positions.nbytes), positions)
    return placement.position_of[part]


def list_vertices(placement: StepPlacement, array: DeviceArray) -> None:
    """Fill an array with the vertex of each local index."""
    for part in placement.parts:
        vertices = array.room(part, placement.id_dtype.itemsize * part.owned).pointer
        positions = positions_on(placement, part).pointer
        view = partition_view(placement, part)
        start_kernel(placement, part, "list_vertices", positions, view, vertices)
        part.stream.synchronize()


def count_rows(
    placement: StepPlacement, offsets: Array | HeldArray, array: DeviceArray, *, more: int = 0
) -> None:
    """Fill an array with the lengths of own rows.

    :param offsets: of the rows of all vertices
    :param more: additional words of the buffers
    """
    try:
        for part in placement.parts:
            lengths = array.room(part, 8 * (part.owned + more))
            with Buffer(part.index, offsets.nbytes) as graph_offsets:
                upload(graph_offsets, offsets)
                start_kernel(
                    placement, part, "count_rows", graph_offsets.pointer,
                    positions_on(placement, part).pointer, partition_view(placement, part),
                    lengths.pointer,
                )  # fmt: skip
                part.stream.synchronize()
    except BaseException:
        array.release()
        raise


def join_heads(
    placement: StepPlacement, out_rows: list[StepRows], in_rows: list[StepRows], array: DeviceArray
) -> None:
    """Fill an array with the neighbours of highest degree of own vertices, in either direction."""
    for part, out, into in zip(placement.parts, out_rows, in_rows, strict=True):
        heads = array.room(part, out.heads.nbytes)
        start_kernel(
            placement, part, "join_heads", out.heads.pointer, into.heads.pointer,
            partition_view(placement, part), heads.pointer,
        )  # fmt: skip
    synchronize(placement.parts)


class RowBuilder:
    """Builder of the rows of one direction on all devices; existing arrays are reused.

    :ivar graph: the graph whose arcs are uploaded
    :ivar host_offsets: of the rows of all vertices
    :ivar turns: True if rows are of the graph's arcs in
    :ivar missing: the arrays that do not exist yet
    """

    def __init__(
        self, placement: StepPlacement, direction: Direction, weighted: bool, ordered: bool
    ) -> None:
        self.placement, self.ordered = placement, ordered
        self.parts = placement.parts
        self.turns = direction == "in" and not ordered
        self.graph = (
            placement.graph if direction == "out" or self.turns else placement.graph.reverse
        )
        self.host_offsets = in_offsets(self.graph) if self.turns else self.graph.offsets
        arrays = placement.row_arrays[direction]
        self.offsets = arrays.offsets
        self.targets, self.heads = arrays.targets[ordered], arrays.heads[ordered]
        self.weights = arrays.weights if weighted else None
        wanted = [self.offsets, self.targets, self.heads, *([arrays.weights] if weighted else [])]
        self.missing = [array for array in wanted if not array]
        arcs = arcs_per_part(self.host_offsets, placement.numbering)
        self.arcs = [int(arcs[part.device]) for part in self.parts]
        self.id_bytes = placement.id_dtype.itemsize
        self.weight_dtype: np.dtype[Any] | None = None
        if weighted:
            self.weight_dtype = self.graph.weight_dtype

    def make(self) -> list[StepRows]:
        """Make the missing arrays; return the rows of each device.

        :raises GraphTooLargeError: a device has too little free memory; nothing has been allocated
        """
        self._require_room()
        sorts = self.targets in self.missing and not self.ordered
        if sorts:
            with suppress(DeviceError):  # of sorting; now, while kernels are being compiled
                cupy()
        try:
            if self.offsets in self.missing:
                self._sum_lengths()
            self._place_arcs()
            if sorts:
                begin = perf_counter()
                self._sort()
                self.placement.add_seconds("sort", begin)
            if self.heads in self.missing:
                self._write_heads()
        except BaseException:
            for array in self.missing:
                array.release()
            raise
        return [
            StepRows(
                self.offsets[part],
                self.targets[part],
                self.heads[part],
                None if self.weights is None else self.weights[part],
                self.weight_dtype,
                arcs,
                part.classes,
            )
            for part, arcs in zip(self.parts, self.arcs, strict=True)
        ]

    def _require_room(self) -> None:
        graph = self.graph
        weight_bytes = 0 if self.weight_dtype is None else self.weight_dtype.itemsize
        chunk = min(graph.arc_count, CHUNK_ARCS) * max(graph.id_dtype.itemsize, weight_bytes)
        needs = []
        for part, arcs in zip(self.parts, self.arcs, strict=True):
            sizes = [
                (self.offsets, 8 * (part.owned + 1)),
                (self.targets, self.id_bytes * arcs),
                (self.heads, self.id_bytes * part.owned),
                (self.weights, weight_bytes * arcs),
            ]
            needed = sum(nbytes for array, nbytes in sizes if array in self.missing)
            if part not in self.placement.position_of:
                needed += self.id_bytes * graph.vertex_count
            sorting = 0 if self.ordered else _SORT_BYTES * min(arcs, _LEAST_SORTED_ARCS)
            ends = 8 * (part.owned + 1) if self.turns else 0
            needs.append(needed + max(8 * (graph.vertex_count + 1) + ends + chunk, sorting))
        self.placement.require_room(needs, spare_bytes)

    def _sum_lengths(self) -> None:
        """Compute the CSR offsets of the rows of each partition: the prefix sums of their lengths."""
        count_rows(self.placement, self.host_offsets, self.offsets, more=1)
        for part in self.parts:
            start_kernel(
                self.placement, part, "sum_up", self.offsets[part].pointer, part.owned
            )  # fmt: skip
        synchronize(self.parts)

    def _place_arcs(self) -> None:
        """Upload targets and weights, and store those of own rows.

        If rows are of arcs in (``turns``), store the sources of the arcs that reach own vertices, in any
        order.
        """
        if self.targets not in self.missing and self.weights not in self.missing:
            return
        arrays = self.graph.stored.arrays
        with ExitStack() as stack:
            lookups = []
            for part in self.parts:
                offsets = stack.enter_context(Buffer(part.index, arrays.offsets.nbytes))
                upload(offsets, arrays.offsets)
                begins = self.offsets[part].pointer
                if self.turns:  # the kernel adds 1 to the offset of a row for each arc
                    nbytes = 8 * (part.owned + 1)
                    copy = stack.enter_context(Buffer(part.index, nbytes)).pointer
                    driver.copy_peer_async(
                        copy, part.index, begins, part.index, nbytes, part.stream
                    )
                    begins = copy
                positions = positions_on(self.placement, part).pointer
                view = partition_view(self.placement, part)
                lookups.append((offsets.pointer, positions, view, begins))
            if self.targets in self.missing:
                kernel = "place_sources" if self.turns else "place_targets"
                self._distribute(kernel, arrays.targets, self.targets, self.id_bytes, lookups)
            if self.weights is not None and self.weights in self.missing:
                weights = arrays.weights
                assert weights is not None
                self._distribute(
                    "place_weights", weights, self.weights, weights.itemsize, lookups
                )  # fmt: skip

    def _distribute(
        self, kernel: str, values: Array | HeldArray, array: DeviceArray, item_bytes: int,
        lookups: list[tuple[Any, ...]],
    ) -> None:  # fmt: skip
        """Distribute values of the graph's arcs to the devices that own their rows.

        :param lookups: the kernel's arguments that find the place of an arc, by device
        """
        for part, arcs in zip(self.parts, self.arcs, strict=True):
            array.room(part, item_bytes * arcs)
        if len(values) == 0:
            return
        nbytes = min(len(values), CHUNK_ARCS) * values.itemsize
        first = self.parts[0]
        with ExitStack() as stack:
            chunks = [stack.enter_context(Buffer(part.index, nbytes)) for part in self.parts]
            stack.callback(synchronize, self.parts)  # before a chunk is freed
            for begin in range(0, len(values), CHUNK_ARCS):
                chunk_values = values[begin : begin + CHUNK_ARCS]
                upload(chunks[0], chunk_values)
                for part, chunk, lookup in zip(self.parts, chunks, lookups, strict=True):
                    if part is not first:
                        driver.copy_peer_async(
                            chunk.pointer, part.index, chunks[0].pointer, first.index,
                            chunk_values.nbytes, part.stream,
                        )  # fmt: skip
                    start_kernel(
                        self.placement, part, kernel, *lookup, begin, len(chunk_values),
                        chunk.pointer, array[part].pointer,
                    )  # fmt: skip
                synchronize(self.parts)

    def _sort(self) -> None:
        """Sort each row by descending degree of its targets."""
        placement = self.placement
        rank_bits = (placement.count - 1).bit_length()
        for part, arcs in zip(self.parts, self.arcs, strict=True):
            offsets, targets = self.offsets[part], self.targets[part].pointer
            view = partition_view(placement, part)
            most_rows = 1 << (_KEY_BITS - rank_bits)
            ranges = ranges_to_sort(part, offsets, arcs, _SORT_BYTES, _MOST_ARCS, most_rows)
            for first, rows, begin, count in ranges:
                with Buffer(part.index, 8 * count) as keys:
                    start_kernel(
                        placement, part, "write_degree_keys", offsets.pointer, targets, view,
                        first, rows, rank_bits, begin, count, keys.pointer,
                    )  # fmt: skip
                    sort_keys(keys, count, part.stream)
                    start_kernel(
                        placement, part, "read_degree_keys", keys.pointer, count, rank_bits, view,
                        targets + self.id_bytes * begin,
                    )  # fmt: skip
                    part.stream.synchronize()

    def _write_heads(self) -> None:
        for part in self.parts:
            heads = self.heads.room(part, self.id_bytes * part.owned)
            start_kernel(
                self.placement, part, "write_heads", self.offsets[part].pointer,
                self.targets[part].pointer, part.owned, heads.pointer,
            )  # fmt: skip
        synchronize(self.parts)


def ranges_to_sort(
    part: StepPart, offsets: Buffer, arcs: int, arc_bytes: int, most_arcs: int, most_rows: int,
    *, has_longer: bool = False,
) -> Iterator[tuple[int, int, int, int]]:  # fmt: skip
    """Yield a device's rows in ranges that are sorted together: (first row, rows, first arc, arcs).

    :param offsets: of the rows
    :param arcs: of all rows
    :param arc_bytes: memory that sorting an arc takes
    :param most_arcs: of a range, if memory suffices
    :param most_rows: of a range
    :param has_longer: a single row may have more arcs
    :raises GraphTooLargeError: a row is too long
    """
    room = spare_bytes(part.index) // arc_bytes
    most_arcs = min(most_arcs, room)
    if arcs <= most_arcs and part.owned <= most_rows:
        if arcs:
            yield 0, part.owned, 0, arcs
        return
    begins = offsets.download(np.int64, part.owned + 1)
    first = 0
    while first < part.owned:
        last = int(np.searchsorted(begins, begins[first] + most_arcs, side="right")) - 1
        last = max(first + 1, min(last, first + most_rows, part.owned))
        count = int(begins[last] - begins[first])
        limit = room if has_longer else most_arcs
        if count > limit:
            raise GraphTooLargeError(
                f"a vertex has {count:,} arcs, and cuda:{part.index} has memory to sort {limit:,} at once"
            )
        if count:
            yield first, last - first, int(begins[first]), count
        first = last


@dataclass(frozen=True)
class HubRows:
    """A device's share of the rows of all devices' hubs: the arcs to its own vertices.

    So all devices push along a hub's row at once, and no message follows.

    :param count: hubs of a device: its first local indexes; hub ``owner * count + local index``
    :param offsets: (devices * count + 1) int64: first arc of each hub
    :param targets: (arcs) ids: positions, all of them own
    """

    count: int
    offsets: Buffer
    targets: Buffer


class HubArrays:
    """The rows of hubs, shared out to the devices.

    Only symmetric graphs have hubs: there each arc from a hub to an own vertex is also in that vertex's
    row, near its front if rows are by descending degree, so devices exchange nothing.
    """

    def __init__(self, placement: StepPlacement) -> None:
        self.placement = placement
        self.offsets = DeviceArray(placement)
        self.targets = DeviceArray(placement)

    def make(self, rows: list[StepRows]) -> list[HubRows]:
        """Return each device's share; without hubs where memory is short, and on one device.

        :param rows: out-rows of all devices, by descending degree
        """
        placement = self.placement
        count = self._hub_count(rows) if placement.device_count > 1 else 0
        if count:
            shares: list[HubRows] = []
            try:
                for part, local_rows in zip(placement.parts, rows, strict=True):
                    shares.append(self._share(part, local_rows, count))
            except GraphTooLargeError:
                shares = []
            if not placement.any(not shares):
                return shares
            count = 0
            self.offsets.release()
            self.targets.release()
        return [HubRows(count, local_rows.offsets, local_rows.targets) for local_rows in rows]

    def _hub_count(self, rows: list[StepRows]) -> int:
        """Return the largest number of hubs of a device, rounded up."""
        placement = self.placement
        if placement.is_directed or not placement.numbering.by_degree:
            return 0
        most = 0
        for part, local_rows in zip(placement.parts, rows, strict=True):
            first = min(MOST_HUBS, part.active)
            if first:
                lengths = np.diff(local_rows.offsets.download(np.int64, first + 1))
                most = max(most, int(np.count_nonzero(lengths > HUB_ARCS)))
        if placement.processes is not None:
            most = placement.processes.largest(most)
        return min(-(-most // _HUB_GROUP) * _HUB_GROUP, placement.capacity)

    def _share(self, part: StepPart, rows: StepRows, count: int) -> HubRows:
        """Count a device's arcs to each hub, then store them."""
        placement = self.placement
        hubs = count * placement.device_count
        common = (
            rows.offsets.pointer, rows.targets.pointer, part.active, part.first,
            placement.capacity, count,
        )  # fmt: skip
        with Buffer(part.index, 8 * hubs) as cursors:
            cursors.fill_bytes(0)
            start_kernel(placement, part, "count_hub_arcs", *common, cursors.pointer)
            part.stream.synchronize()
            offsets = np.zeros(hubs + 1, np.int64)
            offsets[1:] = np.cumsum(cursors.download(np.int64, hubs))
            nbytes = placement.id_dtype.itemsize * max(1, int(offsets[-1]))
            require_room([part.index], [nbytes + offsets.nbytes], spare_bytes)
            self.offsets.room(part, offsets.nbytes).upload(offsets)
            targets = self.targets.room(part, nbytes)
            cursors.upload(offsets[:-1])
            start_kernel(
                placement, part, "place_hub_arcs", *common, cursors.pointer, targets.pointer
            )
            part.stream.synchronize()
        return HubRows(count, self.offsets[part], targets)
