"""Runs step programs on GPUs: the devices' arrays and queues, and copies between them by the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError, InputError
from godwit.frontier.code import (
    Instruction,
    StepCode,
    StepCounts,
    StepError,
    StepState,
    reads_anywhere,
    shared_fields,
    ways_of_arcs,
)
from godwit.frontier.cuda.program import (
    BROADCAST,
    FAILED,
    FORM,
    NOTHING,
    OPERATORS,
    QUEUE,
    REPLICATED,
    TURNED,
    ProgramText,
    arguments_dtype,
)
from godwit.runtime.gpu_options import GpuOptions
from godwit.supersteps.arrays import DeviceArray, StepPart
from godwit.supersteps.exchange import Exchange
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.processes import OtherProcesses
from godwit.supersteps.results import VertexValues, deliver_arcs, fill_vertices
from godwit.supersteps.rows import RowClass, StepRows
from godwit.supersteps.run import (
    StepPlan,
    copies_by_host,
    left_rows_bytes,
    point_rows,
    refuse_selective,
    schedule_define,
    state_words,
)

FEW_VERTICES, SHORT_ROW_ARCS = 1024, 32
LISTED, FEW, SHORT, LISTS = 1, 2, 4, 8
"""As in frontier/cuda/queue.cuh."""

_PROCESSED, _ARCS = 0, 5  # of the counts of frontier.cuh
_LARGEST = np.iinfo(np.int64).max
_CONTROL_BYTES, _INDEX_BYTES = 16, 4
_LEAST_ROOM, _ROOM_SHIFT = 1 << 14, 5


def run_steps_on_gpus(
    code: StepCode,
    placement: StepPlacement,
    state: StepState,
    poll: Callable[[int], None] | None,
    gpu: GpuOptions,
) -> StepCounts:
    """Run a program on its state, which then has the results.

    :raises StepError: a value does not fit, or a field names no vertex
    :raises GraphTooLargeError: need against free, before anything but rows is allocated
    :raises InputError: communication is to be selective, but the host copies values
    :raises DeviceError: a device waited for another in vain
    """
    refuse_selective(placement, gpu)
    if placement.processes is not None and copies_by_host(placement, gpu):
        _refuse_extremes(code)
    with placement.held():
        # The plan refers to the code, so no other has its id as long as the plan is kept.
        key = ("program", id(code), gpu)
        seconds: dict[str, float] = {}
        plan = placement.plan(key, lambda: _ProgramPlan(code, placement, gpu, seconds))
        plan.upload(state)
        kernel_s = plan.run(state_words(plan.words(state)), phase=NOTHING, poll=poll)
        controls = plan.controls()
        words = controls["state"][0]
        failed = int(words[FAILED])
        if failed:
            raise StepError.of_word(failed)
        plan.gather(state, words)
        exchange_s = plan.exchange_s if plan.exchange.by_host else None
        frontier_bytes = plan.queues.nbytes
    counts = controls["run_counts"]
    return StepCounts(
        supersteps=int(words[OPERATORS]),
        processed=counts[:, _PROCESSED].astype(np.int64),
        arcs=counts[:, _ARCS].astype(np.int64),
        compile_s=seconds.get("compile", 0.0),
        kernel_s=kernel_s,
        exchange_s=exchange_s,
        frontier_bytes=frontier_bytes,
    )


def _refuse_extremes(code: StepCode) -> None:
    """Raise InputError for reductions whose results hosts of several processes do not carry."""
    for step in code.instructions():
        if step.kind == "reduce" and step.combine != "add":
            raise InputError(
                f"step program {code.name!r}, {step.label}: on GPUs of several processes that do not reach "
                "each other's memory, or with transport='host', numbers are reduced by 'add' only; place "
                "the graph without devices, on the cores of the processes"
            )


class ProgramArrays:
    """The arrays of step programs, kept on the devices between runs."""

    def __init__(self, placement: StepPlacement) -> None:
        self._placement = placement
        self._fields: list[DeviceArray] = []
        self._accumulators: list[DeviceArray] = []
        self.frontier = DeviceArray(placement)
        self.touched = DeviceArray(placement)
        self.queue = DeviceArray(placement), DeviceArray(placement)
        self.queues = DeviceArray(placement)
        self.left_rows = DeviceArray(placement)
        self.arcs = DeviceArray(placement)
        self.vertices = DeviceArray(placement)
        self.degrees = DeviceArray(placement)
        self.extremes = DeviceArray(placement)

    def field(self, index: int) -> DeviceArray:
        """Return the array of a field."""
        return self._at(self._fields, index)

    def accumulators(self, slot: int) -> DeviceArray:
        """Return an array of accumulators, by its index in :meth:`StepCode.accumulators`."""
        return self._at(self._accumulators, slot)

    def _at(self, arrays: list[DeviceArray], index: int) -> DeviceArray:
        while len(arrays) <= index:
            arrays.append(DeviceArray(self._placement))
        return arrays[index]


@dataclass(frozen=True)
class FrontierQueues:
    """The queues of a frontier on all devices (frontier/cuda/queue.cuh).

    Each device has two of local indexes (32 bits), and, if there are several devices, a list of positions
    to which it has sent. They do not grow: members without room are in the bitmaps only.

    :param room: items of each queue and list
    :param lists: small frontiers list the vertices that they touch; devices read each other's lists
    """

    placement: StepPlacement
    room: int
    lists: bool

    @classmethod
    def of(cls, placement: StepPlacement, items: int | None, *, lists: bool) -> FrontierQueues:
        """Return queues with room for a number of items; None: a number that is mostly enough.

        :raises GraphTooLargeError: local indexes do not fit 32 bits
        """
        if placement.capacity >= 1 << 32:
            raise GraphTooLargeError(
                f"a device would own {placement.capacity:,} vertices, and step programs take fewer than "
                f"{1 << 32:,} for each device; use more GPUs"
            )
        likely = max(_LEAST_ROOM, placement.capacity >> _ROOM_SHIFT)
        room = max(1, min(likely if items is None else items, placement.capacity))
        return cls(placement, room, lists)

    @property
    def arrays(self) -> ProgramArrays:
        """The arrays that hold the queues."""
        return self.placement.kept(ProgramArrays)

    @property
    def needs(self) -> list[tuple[DeviceArray, list[int]]]:
        """Bytes of each array by device, as :meth:`StepPlacement.reserve` takes them."""
        devices = len(self.placement.parts)
        several = self.placement.device_count > 1
        sent = self.placement.id_dtype.itemsize * self.room if several else 0
        first, second = self.arrays.queue
        queue = [_INDEX_BYTES * self.room] * devices
        return [
            (first, queue),
            (second, queue),
            (self.arrays.queues, [_CONTROL_BYTES + sent] * devices),
        ]

    @property
    def nbytes(self) -> int:
        """Bytes of the queues of all devices."""
        return sum(sum(nbytes) for _, nbytes in self.needs)

    @property
    def listing_limit(self) -> int:
        """Largest size of a frontier whose touched neighbours mostly have room in the lists."""
        if not self.lists:
            return 0
        graph = self.placement.graph
        degree = -(-graph.arc_count // max(1, graph.vertex_count))
        return max(self.room // max(1, degree), min(self.room, FEW_VERTICES))

    def point(self, arguments: Any, part: StepPart, rows: StepRows) -> None:
        """Fill in a device's arguments."""
        directed = self.placement.is_directed
        arguments["queue"] = [queue[part].pointer for queue in self.arrays.queue]
        arguments["queue_room"] = self.room
        arguments["listing_limit"] = self.listing_limit
        # Classes of a directed graph are of in-degrees.
        arguments["long_below"] = (
            self.placement.capacity if directed else rows.classes[RowClass.CLASS_GROUP]
        )
        arguments["is_directed"] = directed

    def fill(self, members: Array) -> dict[int, int]:
        """Queue the first frontier if there is room for it; return words of the state.

        :param members: its vertices
        """
        placement = self.placement
        owners, indexes = np.divmod(placement.position(members), placement.capacity)
        counts = np.bincount(owners, minlength=placement.device_count)
        is_listed = bool((counts <= self.room).all())
        for part in placement.parts:
            control = np.zeros(_CONTROL_BYTES // 4, np.uint32)
            if is_listed and counts[part.device]:
                local = indexes[owners == part.device].astype(np.uint32)
                self.arrays.queue[0][part].upload(local)
                control[0] = len(local)
            self.arrays.queues[part].upload(control)
        return {QUEUE: 0, FORM: self._form(members) if is_listed else 0, REPLICATED: 1}

    def _form(self, members: Array) -> int:
        """Return the form of a frontier that is queued."""
        form = LISTED
        if len(members) <= self.listing_limit:
            form |= LISTS
        if len(members) <= FEW_VERTICES:
            offsets = self.placement.graph.offsets
            is_long = offsets[1:][members] - offsets[:-1][members] > SHORT_ROW_ARCS
            form |= FEW | (0 if is_long.any() else SHORT)
        return form


class _ProgramPlan(StepPlan[StepPlacement]):
    """A step program on a placement for one set of options.

    :param seconds: gets the time of loading the kernel
    :raises GraphTooLargeError: the arrays need more memory than is free on a GPU
    """

    def __init__(
        self, code: StepCode, placement: StepPlacement, gpu: GpuOptions, seconds: dict[str, float]
    ) -> None:
        self.code = code
        self.queues = FrontierQueues.of(
            placement, gpu.frontier_items, lists=not copies_by_host(placement, gpu)
        )
        self.arrays = placement.kept(ProgramArrays)
        self._first_words: dict[int, int] = {}
        self._accumulators = code.accumulators()
        weighted = code.reads("weight") and placement.graph.is_weighted
        self._rows = {"out": placement.rows("out", weighted, ordered=code.has_arcs)}
        if code.pulls:
            self._rows["in"] = placement.rows("in", weighted)
        weight_dtype = self._rows["out"][0].weight_dtype if weighted else None
        text = ProgramText(code, placement.id_dtype, weight_dtype)
        source = schedule_define(gpu.schedule) + text.source
        arguments = np.zeros(len(placement.parts), arguments_dtype(code))
        super().__init__(placement, source, arguments, gpu, text.functions)
        seconds["compile"] = self.compile_s
        self._reserve()
        self._point()
        self._point_to_names()
        self._connect()
        self.lay_out()

    def _reserve(self) -> None:
        """Allocate all arrays.

        :raises GraphTooLargeError: they need more memory than is free on a GPU
        """
        placement, count, arrays = self.placement, self.placement.count, self.arrays
        devices, out_rows = len(placement.parts), self._rows["out"]
        left_rows = [
            left_rows_bytes(self.gpu.schedule, rows, part.owned)
            for part, rows in zip(placement.parts, out_rows, strict=True)
        ]
        needs = [
            *((arrays.field(index), [dtype.itemsize * count] * devices)
              for index, (_, dtype) in enumerate(self.code.fields)),
            *((arrays.accumulators(slot), [accumulators.dtype.itemsize * count] * devices)
              for slot, accumulators in enumerate(self._accumulators)),
            (arrays.frontier, [count // 8] * devices),
            (arrays.touched, [count // 8] * devices),
            *self.queues.needs,
            (arrays.left_rows, left_rows),
        ]  # fmt: skip
        if self.code.has_arcs:
            needs.append((arrays.arcs, [max(1, rows.arcs) for rows in out_rows]))
        placement.reserve(*needs)

    def _point(self) -> None:
        """Fill in the pointers to each device's own memory, and numbers."""
        placement, arrays = self.placement, self.arrays
        for part in placement.parts:
            arguments = self.arguments[part.place]
            arguments["left_rows"] = arrays.left_rows[part].pointer
            arguments["vertex_count"] = placement.vertex_count
            self.queues.point(arguments, part, self._rows["out"][part.place])
            for name, all_rows in self._rows.items():
                rows = all_rows[part.place]
                point_rows(arguments[name], rows)
                if rows.weights is not None:
                    arguments[f"{name}_weights"] = rows.weights.pointer
            if self.code.has_arcs:
                arguments["arcs"] = arrays.arcs[part].pointer

    def _point_to_names(self) -> None:
        """Upload vertices and degrees of positions, and positions of vertices, if they are read."""
        placement = self.placement
        named = any(
            read.via >= 0
            for step in self.code.instructions()
            for operator in step.operators()
            for read in operator.reads
        ) or any(step.goal.kind == "field" for step in self.code.instructions())
        if named:
            for arguments, buffer in zip(self.arguments, placement.positions(), strict=True):
                arguments["positions"] = buffer.pointer
        if self.code.reads("vertex"):
            vertices = placement.vertex(np.arange(placement.count)).astype(placement.id_dtype)
            for arguments, part in zip(self.arguments, placement.parts, strict=True):
                arguments["vertices"] = self.arrays.vertices.resident(part, vertices).pointer
        if self.code.reads("degree"):
            degrees = np.zeros(placement.count, np.int64)
            degrees[placement.numbering.position] = placement.graph.out_degree()
            for arguments, part in zip(self.arguments, placement.parts, strict=True):
                arguments["degrees"] = self.arrays.degrees.resident(part, degrees).pointer

    def _connect(self) -> None:
        """Fill in the pointers to all devices' memory, and the subscriber masks of their vertices."""
        placement, exchange, arrays = self.placement, self.exchange, self.arrays
        self.arguments["queues"] = exchange.broadcast_pointers(arrays.queues)
        self.arguments["frontiers"] = exchange.broadcast_pointers(arrays.frontier)
        self.arguments["touched"] = exchange.collected_pointers(arrays.touched, 1)
        self._extremes = [
            # Devices read them in the meeting that ends a superstep, so the host cannot copy them.
            self.reachable_room(arrays.extremes, part, 2 * np.dtype(np.int64).itemsize)
            for part in placement.parts
        ]
        if exchange.by_host:
            for part, room in zip(placement.parts, self._extremes, strict=True):
                self.arguments["extremes"][:, part.device] = room.pointer
        else:
            self.arguments["extremes"] = exchange.broadcast_pointers(arrays.extremes)
        for index in range(len(self.code.fields)):
            self.arguments["fields"][:, index] = exchange.broadcast_pointers(arrays.field(index))
        for slot, accumulators in enumerate(self._accumulators):
            bits = 8 * accumulators.dtype.itemsize
            pointers = exchange.collected_pointers(arrays.accumulators(slot), bits)
            self.arguments["accumulators"][:, slot] = pointers
        # Values are sent to subscribers only, where that is possible.
        ways = ways_of_arcs(self.code)
        selects = self.gpu.communication != "broadcast" and reads_anywhere(self.code) is None
        if placement.device_count > 1 and ways and selects and not exchange.by_host:
            masks = placement.subscriber_masks(*ways)
            for arguments, mask in zip(self.arguments, masks, strict=True):
                arguments["subscribers"] = mask.pointer

    def upload(self, state: StepState) -> None:
        """Upload fields, frontier and accumulators, in the order of positions, to every device."""
        placement, arrays = self.placement, self.arrays
        position, count = placement.numbering.position, placement.count
        for index, (_, dtype) in enumerate(self.code.fields):
            values = np.zeros(count, dtype)
            values[position] = state.fields[index]
            self._upload(arrays.field(index), values)
        for slot, accumulators in enumerate(self._accumulators):
            values = np.full(count, accumulators.identity, accumulators.dtype)
            self._upload(arrays.accumulators(slot), values)
        members = np.zeros(count, np.uint8)
        members[position[state.frontier]] = 1
        self._upload(arrays.frontier, np.packbits(members, bitorder="little"))
        self._first_words = self.queues.fill(state.frontier)
        self._upload(arrays.touched, np.zeros(count // 8, np.uint8))
        for room in self._extremes:
            room.upload(np.full(2, _LARGEST, np.int64))
        if state.arcs is not None:
            self._upload_arcs(state.arcs)
        self.exchange_on_host = ProgramExchange(self.code, arrays, self.exchange).exchange_on_host

    def _upload(self, array: DeviceArray, values: Array) -> None:
        for part in self.placement.parts:
            if values.nbytes:
                array[part].upload(values)

    def _upload_arcs(self, flags: Array) -> None:
        """Upload the flags of the frontier's arcs, in the order of the rows."""
        offsets = self.placement.graph.offsets
        for part in self.placement.parts:
            if not self._rows["out"][part.place].arcs:
                continue
            vertices = self.placement.numbering.vertices(part.device)
            lengths = offsets[1:][vertices] - offsets[:-1][vertices]
            begins = np.cumsum(lengths) - lengths
            arcs = np.repeat(offsets[:-1][vertices] - begins, lengths) + np.arange(lengths.sum())
            self.arrays.arcs[part].upload(flags[arcs])

    def words(self, state: StepState) -> list[int | float]:
        """Return the first words of the state: the program's numbers, then how the frontier is stored."""
        numbers = [
            number if isinstance(number, float) else number & (2**64 - 1)
            for number in state.numbers(self.code).values()
        ]
        last = max(self._first_words) + 1
        return [*numbers, *(self._first_words.get(word, 0) for word in range(len(numbers), last))]

    def gather(self, state: StepState, words: Array) -> None:
        """Download the results into the state; of several processes, those of a share of the vertices."""
        placement = self.placement
        for index, (_, dtype) in enumerate(self.code.fields):
            array = self.arrays.field(index)
            if placement.processes is None:
                fill_vertices(placement, array, dtype, state.fields[index])
            elif placement.vertex_count:
                values = VertexValues(
                    placement, array, dtype, ResultLocation(), exchange=self.exchange
                )
                state.fields[index] = values.begin().gather()[0]
        for index, (_, dtype) in enumerate(self.code.numbers):
            state.set_number(self.code, index, words[index : index + 1].view(dtype)[0].item())
        if self.code.has_arcs:
            state.arcs = None
            if self.code.ends_with_arcs:
                state.arcs = np.zeros(placement.graph.arc_count, np.uint8)
                deliver_arcs(placement, self.arrays.arcs, state.arcs)
        frontier = []
        for part in placement.parts:
            bits = self.arrays.frontier[part].download(np.uint8, placement.count // 8)
            first = part.first // 8
            owned = bits[first : first + placement.capacity // 8]
            members = np.flatnonzero(np.unpackbits(owned, bitorder="little"))
            frontier.append(placement.vertex(part.first + members))
        vertices = np.sort(np.concatenate(frontier))
        if placement.processes is not None:
            vertices = np.sort(
                _to_their_processes(placement.processes, vertices, placement.vertex_count)
            )
        state.frontier = vertices.astype(state.frontier.dtype)


def _to_their_processes(processes: OtherProcesses, vertices: Array, vertex_count: int) -> Array:
    """Send vertices to the processes that get their results; return those that this process got.

    :param vertices: int64, ascending
    """
    begins = [vertex_count * rank // processes.count for rank in range(1, processes.count)]
    parts = np.split(vertices, np.searchsorted(vertices, begins))
    received = processes.exchange([part.view(np.uint8) for part in parts])
    return np.concatenate([part.view(np.int64) for part in received])


class ProgramExchange:
    """The copies between devices that the host makes after each superstep of a program, by its phases.

    A phase is ``2 * index`` of a step, or the one that follows it. Lists of sent positions are not used
    then (:attr:`FrontierQueues.lists`).
    """

    def __init__(self, code: StepCode, arrays: ProgramArrays, exchange: Exchange) -> None:
        self._exchange, self._arrays = exchange, arrays
        self._pulls = code.pulls
        self._shared = shared_fields(code)
        self._code, self._accumulators = code, code.accumulators()
        self._steps = {step.index: step for step in code.instructions()}
        self._fetched: list[tuple[DeviceArray, int]] = []

    def exchange_on_host(self, last: int, coming: int, state: Array) -> None:
        """Copy what devices read of each other, after the superstep ``last`` and before ``coming``."""
        step, is_second = self._step_of(last)
        if step is not None and is_second == _has_second(step):
            self._broadcast_outcome(step, bool(state[REPLICATED]))
        if self._pulls and last & BROADCAST:
            self._exchange.broadcast(self._arrays.frontier, 1)
        for array, bits in self._fetched:
            self._exchange.reset(array, bits)
        self._fetched = []
        step, is_second = self._step_of(coming)
        if step is not None and step.kind == "advance" and is_second and not _pulled(step, last):
            self._fetched = self._messages(step)
            for array, bits in self._fetched:
                self._exchange.fetch(array, bits)

    def _step_of(self, phase: int) -> tuple[Instruction | None, bool]:
        """Return the step of a phase, and True if the phase is its second; None for an empty phase."""
        if phase & BROADCAST:
            return None, False
        index, is_second = divmod(phase & ~TURNED, 2)
        return self._steps.get(index), bool(is_second)

    def _broadcast_outcome(self, step: Instruction, replicated: bool) -> None:
        """Copy a step's field, or its frontier, to all devices.

        :param replicated: the frontier too; otherwise a phase with the bit BROADCAST precedes its next use
        """
        if step.kind in ("advance", "compute") and step.into in self._shared:
            bits = 8 * np.dtype(self._code.field_dtype(step.into)).itemsize
            self._exchange.broadcast(self._arrays.field(step.into), bits)
        is_new = step.kind in ("advance", "filter", "arcs") and not step.stays
        if self._pulls and is_new and replicated:
            self._exchange.broadcast(self._arrays.frontier, 1)

    def _messages(self, step: Instruction) -> list[tuple[DeviceArray, int]]:
        """Return the arrays of messages to owners, with the bits of one position."""
        slot = self._accumulators.index(self._code.accumulators_of(step))
        bits = 8 * self._accumulators[slot].dtype.itemsize
        return [(self._arrays.touched, 1), (self._arrays.accumulators(slot), bits)]


def _pulled(step: Instruction, first: int) -> bool:
    """Return True if the first superstep of an advance pulled, which sends no messages."""
    return bool(first & TURNED) if step.turns else step.pulls


def _has_second(step: Instruction) -> bool:
    return step.kind in ("advance", "arcs") or (step.kind == "compute" and step.staged)
