"""A graph on GPUs in device order, as the bulk-synchronous engine reads it.

Nothing is uploaded before it is asked for; rows of a direction, in an order, are made once and kept. Except
for making and closing a placement, its GPUs are used under :meth:`StepPlacement.held`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from threading import Lock
from time import perf_counter
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np

from godwit.dtypes import Array
from godwit.errors import ClosedContextError, DeviceError, GraphTooLargeError, InputError
from godwit.graph.csr import Graph
from godwit.graph.cuda.builder import spare_bytes
from godwit.graph.facts import in_offsets, is_symmetric
from godwit.graph.partition import Partition
from godwit.graph.partition.positions import Positions, number_vertices
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.devices import (
    CLOSED,
    GpuLocks,
    HeldGpus,
    gpu_index,
    held_gpus,
    reach_each_other,
    refuse_held,
)
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.joint_memory import can_join, joint_buffer, page_bytes
from godwit.runtime.cuda.memory import Buffer
from godwit.runtime.protocol import Device
from godwit.supersteps import rows
from godwit.supersteps.arrays import ArraysByName, DeviceArray, StepPart
from godwit.supersteps.halos import HaloBuilder, Halos, make_subscriber_masks
from godwit.supersteps.processes import OtherProcesses
from godwit.supersteps.rows import (
    Direction,
    HubArrays,
    HubRows,
    RowArrays,
    RowBuilder,
    StepRows,
    count_rows,
    join_heads,
    list_vertices,
    positions_on,
)
from godwit.trace import seconds_since
from godwit.worker.cuda.placement import GpuEndpoints, Plan, require_room

Kept = TypeVar("Kept")
Outcome = TypeVar("Outcome")


_OWN_BYTES = 192
"""Bytes for each vertex that a GPU with lenders keeps of its own memory for arrays of vertices, which are
accessed in any order; those of arcs are read one after the other."""
_SHORT_BYTES = 32
"""Limit of the bytes for each vertex of what is taken for an array of vertices."""
_COPIES: WeakSet[StepPlacement] = WeakSet()
"""The copies of all placed graphs (:meth:`StepPlacement.copies`)."""
_COPIES_LOCK = Lock()
_COPY_ROOM = 4
"""A GPU has ample room for a copy of a graph if this number of copies would fit."""
_RUNS_PER_LOOK = 16
"""Runs on copies after which free memory is looked at: that takes as long as labelling a small graph."""


class StepPlacement(GpuEndpoints[StepPart]):
    """A graph on GPUs in device order.

    :param devices: one for each part; a GPU may occur several times
    :param partition: the owner of each vertex; None for a partition that suits the graph
    :param id_dtype: of positions; None for int32 where that is enough
    :param numbering: positions that are known already
    :param processes: those whose GPUs run together, each of which has the graph and one device; None: this
        process has all devices
    :param results: the vertices whose values results have; None: all, or of several processes a share
    :raises InputError: too many devices, or a partition into another number of parts
    :raises DeviceError: a GPU cannot run kernels whose blocks wait for each other

    :ivar copies_fit: False once copies did not fit on GPUs: what all can run together does not try again
    :ivar seconds: time by phase: ``"number"`` for finding positions, ``"rows"`` for making rows, ``"sort"``
        of that for sorting them, ``"deliver"`` for results
    :ivar device_arrays: all arrays on the devices; closing the placement frees them
    """

    def __init__(
        self,
        devices: Sequence[Device],
        graph: Graph,
        partition: Partition | None = None,
        *,
        id_dtype: Any = None,
        numbering: Positions | None = None,
        processes: OtherProcesses | None = None,
        results: range | None = None,
    ) -> None:
        super().__init__(devices)
        self.processes = processes
        self._results = results
        self.device_count = len(devices) if processes is None else processes.count
        if partition is not None and (
            partition.part_count != self.device_count or len(partition.owner) != graph.vertex_count
        ):
            raise InputError(
                f"the partition is of {len(partition.owner)} vertices into {partition.part_count} parts, "
                f"and {graph.vertex_count} into {self.device_count} are needed"
            )
        self.graph = graph
        self.devices = tuple(devices)
        self.seconds: dict[str, float] = {}
        self._copies: list[StepPlacement] = []
        self._whole_numbering: Positions | None = None
        self._runs_on_copies = 0
        self.copies_fit = True
        self._needs_all: set[str] = set()  # names of algorithms: the memory of all GPUs
        self._copying = Lock()
        self.device_arrays: list[DeviceArray] = []
        self.position_of = DeviceArray(self)
        self.vertex_of = DeviceArray(self)
        self.row_arrays: dict[Direction, RowArrays] = {
            "out": RowArrays(self),
            "in": RowArrays(self),
        }
        self._rows: dict[tuple[Direction, bool, bool], list[StepRows]] = {}
        self._halos: dict[tuple[Direction, bool], Halos] = {}
        self._subscribers: dict[tuple[Direction, ...], DeviceArray] = {}
        self._hub_rows: list[HubRows] | None = None
        self._first_neighbours = DeviceArray(self)
        self._kept: dict[Any, Any] = {}
        self._arrays: dict[str, ArraysByName] = {}
        self._addresses: dict[DeviceArray, list[int]] = {}
        self._mapped: set[DeviceArray] = set()  # in other processes
        begin = perf_counter()
        if numbering is None:
            numbering = number_vertices(graph, self.device_count, partition, id_dtype=id_dtype)
        self.numbering = numbering
        self.add_seconds("number", begin)
        with HeldGpus(self.gpu_locks):
            driver.enable_peer_access(self.indexes)
            try:
                for place, index in enumerate(self.indexes):
                    device = place if processes is None else processes.rank
                    first = device * self.capacity
                    classes = self.numbering.classes[device]
                    part = StepPart(index, device, place, first, classes, stream=Stream(index))
                    self.parts.append(part)
            except BaseException:
                self._free()
                raise

    @property
    def capacity(self) -> int:
        """Number of positions of one device."""
        return self.numbering.capacity

    @property
    def count(self) -> int:
        """Number of positions of all devices: the length of an array of all vertices' values."""
        return self.numbering.count

    @property
    def vertex_count(self) -> int:
        """Number of vertices of the graph."""
        return self.graph.vertex_count

    @property
    def results(self) -> range:
        """The vertices whose values results have in this process."""
        n = self.vertex_count
        if self._results is not None:
            return self._results
        if self.processes is None:
            return range(n)
        rank, count = self.processes.rank, self.processes.count
        return range(n * rank // count, n * (rank + 1) // count)

    @cached_property
    def reach_each_other(self) -> bool:
        """True if all GPUs of this process have access to each other's memory."""
        return reach_each_other(self.devices)

    @property
    def active_count(self) -> int:
        """Number of vertices of all devices that have arcs."""
        return int(self.numbering.classes[:, -2].sum())

    def any(self, flag: bool) -> bool:
        """Return True if a flag is True in any process."""
        return flag if self.processes is None else self.processes.any(flag)

    def largest(self, number: int) -> int:
        """Return the largest of the numbers that processes give."""
        return number if self.processes is None else self.processes.largest(number)

    def addresses(self, array: DeviceArray) -> list[int]:
        """Return the addresses of an array's buffers on all devices, for kernels of this process.

        All processes call it alike.
        """
        if self.processes is None:
            return [buffer.pointer for buffer in array.buffers]
        if array not in self._addresses:
            (part,) = self.parts
            self._addresses[array] = self.processes.addresses(array[part])
            self._mapped.add(array)
        return self._addresses[array]

    def unmap_to_free(self, array: DeviceArray, is_freed: bool) -> None:
        """Unmap all memory of other processes if one of them is about to free its buffer of an array.

        All processes call it alike. Plans that point to the memory are made anew.
        """
        if self.processes is not None and array in self._mapped and self.any(is_freed):
            self._addresses.clear()
            self._mapped.clear()
            self.processes.unmap()
            self.note_freed()
            self.any(False)  # all have unmapped it

    def plan(self, key: Hashable, make: Callable[[], Plan]) -> Plan:
        """Return a plan; see :meth:`GpuEndpoints.plan`. If one process makes it anew, all do."""
        if self.processes is not None and self.any(not self.has_plan(key)):
            self._addresses.clear()  # memory may have been freed
            self.drop_plan(key)
        return super().plan(key, make)

    @property
    def id_dtype(self) -> np.dtype[Any]:
        """Dtype of positions."""
        return self.numbering.position.dtype

    def add_seconds(self, name: str, begin: float) -> None:
        """Add the time since ``begin`` (of ``perf_counter``) to the seconds of the phase ``name``."""
        self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - begin

    def kept(self, kind: Callable[[StepPlacement], Kept]) -> Kept:
        """Return an object that is kept between queries, such as a class of arrays of a primitive.

        :param kind: makes it of the placement, once
        """
        if kind not in self._kept:
            self._kept[kind] = kind(self)
        made: Kept = self._kept[kind]
        return made

    def arrays(self, owner: str) -> ArraysByName:
        """Return the arrays of an algorithm, which are kept between queries."""
        return self._arrays.setdefault(owner, ArraysByName(self))

    def reserve(self, *needs: tuple[DeviceArray, Sequence[int]]) -> None:
        """Allocate arrays, or enlarge them.

        :param needs: an array, and its least size by device, in bytes
        :raises GraphTooLargeError: need against free, before anything is allocated
        """
        missing = [
            sum(
                nbytes[part.place]
                for array, nbytes in needs
                if part not in array or array.nbytes(part) < nbytes[part.place]
            )
            for part in self.parts
        ]
        if any(missing):  # asking the driver for its free memory is slow
            self.require_room(missing, memory.free_memory_bytes)
        for array, nbytes in needs:
            for part in self.parts:
                array.room(part, nbytes[part.place])

    def require_room(self, part_bytes: Sequence[int], free_bytes: Callable[[int], int]) -> None:
        """Raise GraphTooLargeError if new arrays do not fit.

        :param part_bytes: size of the arrays, by device
        :param free_bytes: returns the free memory of a GPU
        """
        require_room(self.indexes, part_bytes, free_bytes)

    def new_buffer(self, part: StepPart, nbytes: int) -> Buffer:
        """Return memory for an array on a device.

        :raises GraphTooLargeError: there is no room
        """
        return Buffer(part.index, nbytes)

    def rows(
        self, direction: Direction, weighted: bool = False, *, ordered: bool = False
    ) -> list[StepRows]:
        """Return the arcs that leave (``"out"``) or reach (``"in"``) each device's vertices.

        :param weighted: with weights; this implies `ordered`
        :param ordered: in the order of the graph or of its reverse; otherwise by descending degree of the
            neighbours
        :raises GraphTooLargeError: need against free, before anything is allocated
        :raises InputError: the graph has no weights
        """
        direction = self.stored_direction(direction, weighted=weighted)
        if weighted and not self.graph.is_weighted:
            raise InputError("this graph has no weights")
        key = (direction, weighted, ordered or weighted)
        if key not in self._rows:
            with self._making_rows():
                self._rows[key] = RowBuilder(self, *key).make()
        return self._rows[key]

    @contextmanager
    def passing_rows(self, direction: Direction, weighted: bool) -> Iterator[list[StepRows]]:
        """Return rows in any order that exist, or else ones that are freed when the block ends.

        The offsets are kept.

        :param weighted: with weights
        :raises GraphTooLargeError: need against free, before anything is allocated
        """
        direction = self.stored_direction(direction, weighted=weighted)
        existing = (
            rows for key, rows in self._rows.items() if key[0] == direction and key[1] >= weighted
        )
        known = next(existing, None)
        if known is not None:
            yield known
            return
        ordered = weighted or direction == "out"  # which needs no sorting
        try:
            yield self.rows(direction, weighted, ordered=ordered)
        finally:
            self._rows.pop((direction, weighted, ordered), None)
            arrays = self.row_arrays[direction]
            if weighted:
                arrays.weights.release()
            if not any(key[0] == direction and key[2] == ordered for key in self._rows):
                arrays.targets[ordered].release()
                arrays.heads[ordered].release()

    def hub_rows(self) -> list[HubRows]:
        """Return each device's share of the rows of all hubs; a directed graph has no hubs."""
        if self._hub_rows is None:
            out_rows = self.rows("out")
            with self._making_rows():
                self._hub_rows = self.kept(HubArrays).make(out_rows)
        return self._hub_rows

    def subscriber_masks(self, *directions: Direction) -> list[Buffer]:
        """Return, on each device, (devices, capacity / 32) uint32: which devices read which own vertices.

        A device reads the vertices that its rows of any of the directions name; without a direction, all.
        The mask of a device for itself is undefined.

        :raises GraphTooLargeError: need against free, before anything is allocated
        """
        key = tuple(sorted({self.stored_direction(direction) for direction in directions}))
        masks = self._subscribers.get(key)
        if masks is None:
            row_sets = [self._any_rows(direction) for direction in key]
            with self._making_rows():
                masks = make_subscriber_masks(self, row_sets)
            self._subscribers[key] = masks
        return masks.buffers

    def halos(self, direction: Direction, weighted: bool) -> Halos:
        """Return rows that name slots, for devices that store own vertices and their halo only.

        :param weighted: with weights, in the graph's order; otherwise by descending degree
        :raises GraphTooLargeError: need against free, before anything is allocated
        """
        key = (self.stored_direction(direction, weighted=weighted), weighted)
        if key not in self._halos:
            with self._making_rows():
                self._halos[key] = HaloBuilder(self, *key).make()
        self.position_of.release()
        return self._halos[key]

    @contextmanager
    def _making_rows(self) -> Iterator[None]:
        begin = perf_counter()
        yield
        self.add_seconds("rows", begin)
        seconds_since(begin, "rows")

    def _any_rows(self, direction: Direction) -> list[StepRows]:
        """Return rows in any order; make them only if there are none."""
        known = (made for (way, _, _), made in self._rows.items() if way == direction)
        return next(known, None) or self.rows(direction)

    @property
    def is_directed(self) -> bool:
        """True if in- and out-rows differ, weights aside."""
        return not is_symmetric(self.graph)

    def stored_direction(self, direction: Direction, *, weighted: bool = False) -> Direction:
        """Return ``"out"`` for a symmetric graph, whose in- and out-rows are the same.

        :param weighted: so are the weights in them
        """
        return "out" if is_symmetric(self.graph, weighted=weighted) else direction

    def degrees(self, direction: Direction) -> list[Buffer]:
        """Return, on each device, (owned) int64: the number of arcs that leave or reach own vertices."""
        direction = self.stored_direction(direction)
        array = self.row_arrays[direction].degrees
        if not array:
            in_or_out = self.graph.offsets if direction == "out" else in_offsets(self.graph)
            count_rows(self, in_or_out, array)
        return array.buffers

    def first_neighbours(self) -> DeviceArray:
        """Return an array of (owned) ids: of each own vertex the neighbour of highest degree, or -1.

        It is a head of an arc from the vertex, or a tail of one to it.

        :raises GraphTooLargeError: need against free, before anything but rows is allocated
        """
        if not self.is_directed:
            return self.heads("out")
        if not self._first_neighbours:
            out_rows, in_rows = self.rows("out"), self.rows("in")
            with self._making_rows():
                join_heads(self, out_rows, in_rows, self._first_neighbours)
        return self._first_neighbours

    def heads(self, direction: Direction) -> DeviceArray:
        """Return an array of (owned) ids: of each own vertex the first neighbour of a direction, or -1.

        :raises GraphTooLargeError: need against free, before anything is allocated
        """
        self.rows(direction)
        return self.row_arrays[self.stored_direction(direction)].heads[False]

    def positions(self) -> list[Buffer]:
        """Return, on each device, (n) ids: the position of each vertex."""
        return [positions_on(self, part) for part in self.parts]

    def vertices(self) -> list[Buffer]:
        """Return, on each device, (owned) ids: the vertex of each local index."""
        if not self.vertex_of:
            list_vertices(self, self.vertex_of)
        return self.vertex_of.buffers

    def position(self, vertices: Any) -> Array:
        """Return (k) int64 positions of vertices."""
        return self.numbering.position[np.asarray(vertices, np.int64)].astype(np.int64)

    def vertex(self, positions: Any) -> Array:
        """Return (k) int64 vertices of positions; -1 for a position without a vertex."""
        return self.numbering.vertex[np.asarray(positions, np.int64)].astype(np.int64)

    @property
    def group_size(self) -> int:
        """Number of devices that work on one query together: all."""
        return self.device_count

    @property
    def placements(self) -> tuple[StepPlacement, ...]:
        """This placement alone; compare :attr:`StepCopies.placements`."""
        return (self,)

    def copies(self, count: int) -> StepCopies:
        """Return the whole graph on each of the first GPUs, kept until :meth:`drop_copies`.

        Results of theirs have the values that those of this placement have.

        :param count: at most the number of GPUs
        :raises ClosedContextError: the placement is closed
        :raises InputError: this thread holds one of the GPUs, as in a progress function
        """
        refuse_held(self.indexes)  # another thread, which makes copies, may wait for them
        firsts = [self.indexes.index(index) for index in dict.fromkeys(self.indexes)][:count]
        with self._copying:
            if any(copy.closed for copy in self._copies):  # by a run in joint memory
                for copy in self._copies:
                    copy.close()
                self._copies = []
            while len(self._copies) < count and not self.closed:
                device = self.devices[firsts[len(self._copies)]]
                copy = StepPlacement(
                    [device], self.graph, numbering=self._whole_numbering, results=self.results
                )
                self._whole_numbering = copy.numbering
                with _COPIES_LOCK:
                    _COPIES.add(copy)
                self._copies.append(copy)
            if self.closed:
                for copy in self._copies:  # it was closed while these were made
                    copy.close()
                raise ClosedContextError(CLOSED)
            return StepCopies(self._copies[:count], firsts)

    def run_on_copies(self, count: int, run: Callable[[StepCopies], Outcome]) -> Outcome:
        """Return what a function returns for :meth:`copies`; drop them if other queries need their memory.

        :raises GraphTooLargeError: they do not fit: ``copies_fit`` is False from then on
        """
        try:
            return self._run_on_copies(count, run)
        except GraphTooLargeError:
            self.copies_fit = False
            raise

    def _run_on_copies(self, count: int, run: Callable[[StepCopies], Outcome]) -> Outcome:
        """Return the same as :meth:`run_on_copies`, and leave ``copies_fit`` as it is."""
        while True:
            are_new = not self._copies
            copies = self.copies(count)
            try:
                outcome = run(copies)
                break
            except ClosedContextError:  # another thread has dropped them
                if self.closed:
                    raise
            except GraphTooLargeError:
                self.drop_copies()
                if are_new:
                    raise  # else arrays of other algorithms were there, too
        if self._runs_on_copies % _RUNS_PER_LOOK == 0 and copies.is_narrow():
            self.drop_copies()
        self._runs_on_copies += 1
        return outcome

    def run_on_shares(
        self, shares: int, run: Callable[[StepPlacement | StepCopies], Outcome]
    ) -> Outcome:
        """Return what a function returns for the only device, or for copies on several GPUs.

        :param shares: of the work, each of which is large enough for a GPU
        :raises GraphTooLargeError: copies do not fit
        """
        if len(self.parts) == 1:
            return run(self)
        return self.run_on_copies(min(len(set(self.indexes)), max(1, shares)), run)

    def run_on_first(self, name: str, run: Callable[[StepPlacement], Outcome]) -> Outcome:
        """Return what a function returns for the whole graph on one GPU, of several on the first.

        Where its memory does not suffice, arrays lie in that of the others, too, if they reach each other.

        :param name: of the algorithm: one that needed the memory of several begins with it the next time
        :param run: holds the placement that it gets once; it is called again where memory was short
        :raises GraphTooLargeError: there is no room for it
        """
        if len(self.parts) == 1:
            return run(self)
        if name not in self._needs_all:
            try:
                return self._run_on_copies(1, lambda copies: run(copies.placements[0]))
            except GraphTooLargeError as error:
                if len(set(self.indexes)) == 1:
                    raise
                if not (self.reach_each_other and can_join(self.indexes)):
                    raise GraphTooLargeError(
                        f"{error}. One GPU computes this, and it cannot take memory of the others here"
                    ) from error
                self._needs_all.add(name)
        return self._run_in_joint_memory(run)

    def _run_in_joint_memory(self, run: Callable[[StepPlacement], Outcome]) -> Outcome:
        """Return what a function returns for the graph on the first GPU, with the memory of all."""
        joint = JointPlacement(
            self.devices, self.graph, numbering=self._whole_numbering, results=self.results
        )
        with closing(joint):
            self._whole_numbering = joint.numbering
            return run(joint)

    def run_on_first_with_room(self, run: Callable[[StepPlacement], Outcome]) -> Outcome | None:
        """Return the same as :meth:`run_on_first`, or None if the first of several GPUs alone has no room.

        :raises GraphTooLargeError: there is no room on the only GPU
        """
        if len(self.parts) == 1:
            return run(self)
        if not self.has_room_for_copy():
            return None
        try:
            return self.run_on_copies(1, lambda copies: run(copies.placements[0]))
        except GraphTooLargeError:
            return None

    def has_room_for_copy(self) -> bool:
        """Return True if the first GPU has a copy of the whole graph, or ample room for one."""
        if self._copies:
            return True
        needed = _COPY_ROOM * self.graph.nbytes
        return self.copies_fit and needed <= memory.free_memory_bytes(self.indexes[0])

    def drop_copies(self) -> None:
        """Release the copies once no query uses them."""
        with self._copying:
            copies, self._copies = self._copies, []
        for copy in copies:
            copy.close()

    def _free(self) -> None:
        for array in self.device_arrays:
            array.release()
        super()._free()
        self._rows, self._halos, self._subscribers, self._hub_rows = {}, {}, {}, None
        for copy in self._copies:
            copy.close_held()


def _free_copies(indexes: Sequence[int]) -> None:
    """Free the copies of all placed graphs on some GPUs, which the calling thread holds.

    Queries make them anew.
    """
    with _COPIES_LOCK:
        copies = [copy for copy in _COPIES if not copy.closed and copy.indexes[0] in indexes]
    for copy in copies:
        copy.close_held()


class JointPlacement(StepPlacement):
    """A graph on the first of several GPUs, which all reach each other's memory.

    Arrays lie in the memory of the other GPUs, the lenders, where that of the first has no room. There is
    one run, in one block of :meth:`held`, so its memory is there only while all GPUs are held.

    :param devices: the first one runs the kernels
    :param numbering: as of :class:`StepPlacement`, like ``results``
    """

    def __init__(
        self,
        devices: Sequence[Device],
        graph: Graph,
        *,
        numbering: Positions | None = None,
        results: range | None = None,
    ) -> None:
        super().__init__(devices[:1], graph, numbering=numbering, results=results)
        self.gpu_locks = GpuLocks([gpu_index(device) for device in devices])
        self.lenders = [index for index in self.gpu_locks.indexes if index not in self.indexes]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold all GPUs exclusively, without copies of graphs in their memory; close this at the end."""
        with super().held():
            _free_copies(self.gpu_locks.indexes)
            try:
                yield
            finally:
                for part in self.parts:
                    with suppress(DeviceError):  # it was raised where the work was waited for
                        part.stream.synchronize()
                self.close_held()

    def require_room(self, part_bytes: Sequence[int], free_bytes: Callable[[int], int]) -> None:
        """Raise GraphTooLargeError if new arrays do not fit; as of :meth:`StepPlacement.require_room`."""
        require_room(self.indexes, part_bytes, free_bytes, self.lenders)

    def new_buffer(self, part: StepPart, nbytes: int) -> Buffer:
        """Return memory for an array, which may lie on lenders.

        :raises GraphTooLargeError: there is no room
        """
        own = memory.free_memory_bytes(part.index)
        if nbytes >= page_bytes(part.index):  # smaller arrays may take the room for uploads
            own -= rows.LONGEST_WEIGHT_BYTES * min(rows.CHUNK_ARCS, self.graph.arc_count)
        if nbytes > _SHORT_BYTES * self.vertex_count:
            own -= _OWN_BYTES * self.vertex_count
        if nbytes <= own:
            return Buffer(part.index, nbytes)
        return joint_buffer(self._shares(part.index, nbytes, max(0, own)))

    def _shares(self, index: int, nbytes: int, own: int) -> dict[int, int]:
        """Return how much of an array lies on each GPU, in whole pages.

        :param own: bytes that the GPU ``index`` gives before others do; what they can spare is next, and
            the rest, which drivers seldom give, comes last
        """
        free = {gpu: memory.free_memory_bytes(gpu) for gpu in (index, *self.lenders)}
        spare = [(gpu, spare_bytes(gpu)) for gpu in self.lenders]
        shares = dict.fromkeys(free, 0)
        missing = nbytes
        for gpu, limit in [(index, own), *spare, *free.items()]:
            page = page_bytes(gpu)
            share = min(-(-missing // page), max(0, limit - shares[gpu]) // page) * page
            shares[gpu] += share
            missing = max(0, missing - share)
        if missing:
            self.require_room([nbytes], memory.free_memory_bytes)
            shares[index] += missing  # pages are not enough: this fails
        return shares


class StepCopies:
    """The whole graph on each of several GPUs, which work independently in one run.

    :param placements: one of each GPU
    :param devices: the numbers of these GPUs' first devices in the placement that was copied
    """

    group_size = 1

    def __init__(self, placements: Sequence[StepPlacement], devices: Sequence[int]) -> None:
        self.placements = tuple(placements)
        self.devices = list(devices)
        self.indexes = [index for copy in placements for index in copy.indexes]

    @property
    def parts(self) -> list[StepPart]:
        """One part for each GPU."""
        return [part for copy in self.placements for part in copy.parts]

    @property
    def capacity(self) -> int:
        """Number of positions of a part."""
        return self.placements[0].capacity

    def plan(self, key: Hashable, make: Callable[[], Plan]) -> Plan:
        """Return a plan that points to the arrays of all copies, and is kept with the first.

        Parameters as of :meth:`StepPlacement.plan`.
        """
        first, *others = self.placements
        return first.plan((key, *(other.version for other in others)), make)

    def sharing(self, index: int) -> int:
        """Return the number of endpoints on a GPU."""
        return self.indexes.count(index)

    def is_narrow(self) -> bool:
        """Return True if a GPU has less free memory than its copy takes."""
        return any(
            memory.free_memory_bytes(part.index)
            < sum(array.nbytes(part) for array in copy.device_arrays)
            for copy in self.placements
            for part in copy.parts
        )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the GPUs exclusively; compare :meth:`StepPlacement.held`."""
        with held_gpus(self.indexes):
            if any(copy.closed for copy in self.placements):
                raise ClosedContextError(CLOSED)
            yield
