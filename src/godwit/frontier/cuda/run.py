"""Runs a step program on GPUs: brings its fields up in positions, drives the kernel, brings them home."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.frontier.code import StepCode, StepCounts, StepError, StepState, ends_with_arcs
from godwit.frontier.cuda.exchange import ProgramExchange
from godwit.frontier.cuda.layout import (
    FAILED,
    OPERATORS,
    ProgramArrays,
    Slot,
    arguments_dtype,
    slots_of,
)
from godwit.frontier.cuda.queues import FrontierQueues
from godwit.frontier.cuda.text import NOTHING, ProgramText
from godwit.frontier.reads import reads_anywhere, ways_of_arcs
from godwit.runtime.gpu_options import GpuOptions
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.results import deliver_arcs, deliver_positions
from godwit.supersteps.rows import StepRows
from godwit.supersteps.run import (
    copies_by_host,
    left_rows_bytes,
    point_rows,
    refuse_selective,
    schedule_define,
    step_run,
)

_PROCESSED, _ARCS = 0, 5  # of the counts of frontier.cuh
_LARGEST = np.iinfo(np.int64).max


def run_steps_on_gpus(
    code: StepCode,
    placement: StepPlacement,
    state: StepState,
    poll: Callable[[int], None] | None,
    gpu: GpuOptions,
) -> StepCounts:
    """Run a program to its end; the state is then what it left.

    :raises StepError: an operator's value does not fit, or names no vertex
    :raises GraphTooLargeError: need against free, before anything but rows is allocated
    :raises InputError: values are to go where they are read only, and the host copies them
    :raises DeviceError: devices that wait in vain
    """
    refuse_selective(placement, gpu)
    with placement.held():
        running = _Running(code, placement, state, gpu)
        running.find_subscribers(gpu)
        running.upload()
        text = ProgramText(code, placement.id_dtype, running.weight_dtype)
        source = schedule_define(gpu.schedule) + text.source
        with step_run(placement, source, running.arguments, gpu, functions=text.functions) as run:
            running.connect(run)
            run.prepare(running.words(), phase=NOTHING)
            kernel_s = run.drive(poll)
            controls = run.controls()
        words = controls["state"][0]
        failed = int(words[FAILED])
        if failed:
            index, what = divmod(failed - 1, 2)
            raise StepError(index, "vertex" if what else "overflow")
        running.gather(words)
    counts = controls["run_counts"]
    return StepCounts(
        supersteps=int(words[OPERATORS]),
        processed=counts[:, _PROCESSED].astype(np.int64),
        arcs=counts[:, _ARCS].astype(np.int64),
        compile_s=run.compile_s,
        kernel_s=kernel_s,
        exchange_s=run.exchange_s if run.exchange.by_host else None,
        frontier_bytes=running.queues.nbytes,
    )


class _Running:
    """What a run has on the devices."""

    def __init__(
        self, code: StepCode, placement: StepPlacement, state: StepState, gpu: GpuOptions
    ) -> None:
        self.code, self.placement, self.state = code, placement, state
        self._schedule = gpu.schedule
        self._by_host = copies_by_host(placement, gpu)
        self.queues = FrontierQueues.of(placement, gpu.frontier_items, lists=not self._by_host)
        self.arrays = placement.kept(ProgramArrays)
        self._first_words: dict[int, int] = {}
        self.slots = slots_of(code)
        self.arguments: Array = np.zeros(len(placement.parts), arguments_dtype(code))
        weighted = code.reads("weight") and placement.graph.is_weighted
        self.weight_dtype: np.dtype[Any] | None = None
        out_rows = placement.rows("out", weighted, ordered=code.has_arcs)
        self._rows: dict[str, list[StepRows]] = {"out": out_rows}
        if code.pulls:
            self._rows["in"] = placement.rows("in", weighted)
        if weighted:
            self.weight_dtype = self._rows["out"][0].weight_dtype

    def find_subscribers(self, gpu: GpuOptions) -> None:
        """Who reads what at the own vertices, where values go to those devices only: to all by default."""
        ways = ways_of_arcs(self.code)
        selects = gpu.communication != "broadcast" and reads_anywhere(self.code) is None
        if len(self.placement.parts) > 1 and ways and selects and not self._by_host:
            masks = self.placement.subscriber_masks(*ways)
            for own, mask in zip(self.arguments, masks, strict=True):
                own["subscribers"] = mask.pointer

    def upload(self) -> None:
        """Make room for everything, and fill it in.

        :raises GraphTooLargeError: need against free
        """
        placement, count, arrays = self.placement, self.placement.count, self.arrays
        devices, out_rows = len(placement.parts), self._rows["out"]
        left_rows = [
            left_rows_bytes(self._schedule, rows, part.owned)
            for part, rows in zip(placement.parts, out_rows, strict=True)
        ]
        needs = [
            *((arrays.field(index), [dtype.itemsize * count] * devices)
              for index, (_, dtype) in self._fields()),
            *((arrays.slot(index), [slot.dtype.itemsize * count] * devices)
              for index, slot in self._each_slot()),
            (arrays.frontier, [count // 8] * devices),
            (arrays.touched, [count // 8] * devices),
            *self.queues.needs,
            (arrays.left_rows, left_rows),
        ]  # fmt: skip
        if self.code.has_arcs:
            needs.append((arrays.arcs, [max(1, rows.arcs) for rows in out_rows]))
        placement.reserve(*needs)
        for place, part in enumerate(placement.parts):
            own = self.arguments[place]
            own["left_rows"] = self.arrays.left_rows[part].pointer
            own["vertex_count"] = placement.vertex_count
            self.queues.point(own, part, self._rows["out"][place])
            self._point_rows(own, place)
        self._fill()
        self._fill_names()
        if self.code.has_arcs:
            self._fill_arcs()

    def _fields(self) -> Any:
        return enumerate(self.code.fields)

    def _each_slot(self) -> Any:
        return enumerate(self.slots)

    def _point_rows(self, own: Any, place: int) -> None:
        for name, all_rows in self._rows.items():
            rows = all_rows[place]
            point_rows(own[name], rows)
            if rows.weights is not None:
                own[f"{name}_weights"] = rows.weights.pointer

    def _fill(self) -> None:
        """Fields, frontier and accumulators, in positions, on every device."""
        position, count = self.placement.numbering.position, self.placement.count
        for index, (_, dtype) in self._fields():
            values = np.zeros(count, dtype)
            values[position] = self.state.fields[index]
            self._upload(self.arrays.field(index), values)
        for index, slot in self._each_slot():
            self._upload(self.arrays.slot(index), np.full(count, _identity(slot), slot.dtype))
        members = np.zeros(count, np.uint8)
        members[position[self.state.frontier]] = 1
        self._upload(self.arrays.frontier, np.packbits(members, bitorder="little"))
        self._first_words = self.queues.fill(self.state.frontier)
        self._upload(self.arrays.touched, np.zeros(count // 8, np.uint8))

    def _upload(self, array: DeviceArray, values: Array) -> None:
        for part in self.placement.parts:
            if values.nbytes:
                array[part].upload(values)

    def _fill_names(self) -> None:
        """Vertices and degrees of positions, and positions of vertices, where a program asks for them."""
        placement = self.placement
        named = any(
            read.via >= 0
            for step in self.code.instructions()
            for operator in step.operators()
            for read in operator.reads
        ) or any(step.place.kind == "field" for step in self.code.instructions())
        if named:
            for own, buffer in zip(self.arguments, placement.positions(), strict=True):
                own["positions"] = buffer.pointer
        if self.code.reads("vertex"):
            vertices = placement.vertex(np.arange(placement.count)).astype(placement.id_dtype)
            for own, part in zip(self.arguments, placement.parts, strict=True):
                own["vertices"] = self.arrays.vertices.resident(part, vertices).pointer
        if self.code.reads("degree"):
            degrees = np.zeros(placement.count, np.int64)
            degrees[placement.numbering.position] = placement.graph.out_degree()
            for own, part in zip(self.arguments, placement.parts, strict=True):
                own["degrees"] = self.arrays.degrees.resident(part, degrees).pointer

    def _fill_arcs(self) -> None:
        """A flag an arc, in the order of the rows."""
        offsets = self.placement.graph.offsets
        for place, part in enumerate(self.placement.parts):
            room = self.arrays.arcs[part]
            self.arguments[place]["arcs"] = room.pointer
            if self.state.arcs is None or not self._rows["out"][place].arcs:
                continue
            vertices = self.placement.numbering.vertices(part.device)
            lengths = offsets[1:][vertices] - offsets[:-1][vertices]
            begins = np.cumsum(lengths) - lengths
            arcs = np.repeat(offsets[:-1][vertices] - begins, lengths) + np.arange(lengths.sum())
            room.upload(self.state.arcs[arcs])

    def connect(self, run: Any) -> None:
        """The pointers to all devices' memory."""
        exchange, arrays = run.exchange, self.arrays
        self.arguments["queues"] = exchange.broadcast_pointers(arrays.queues)
        self.arguments["frontiers"] = exchange.broadcast_pointers(arrays.frontier)
        self.arguments["touched"] = exchange.collected_pointers(arrays.touched, 1)
        for place, part in enumerate(self.placement.parts):
            # They are asked for in the meeting that ends a superstep. Its device alone changes one.
            extremes = np.full(2, _LARGEST, np.int64)
            room = run.reachable_room(arrays.extremes, part, extremes)
            self.arguments["extremes"][:, place] = room.pointer
        for index, _ in self._fields():
            self.arguments["fields"][:, index] = exchange.broadcast_pointers(arrays.field(index))
        for index, slot in self._each_slot():
            pointers = exchange.collected_pointers(arrays.slot(index), 8 * slot.dtype.itemsize)
            self.arguments["accumulators"][:, index] = pointers
        copies = ProgramExchange(self.code, self.slots, arrays, exchange)
        run.exchange_on_host = copies.exchange_on_host

    def words(self) -> list[int | float]:
        """The state at the beginning: numbers, and the form of the frontier."""
        bits = [self.state.number(self.code, index) for index in range(len(self.code.numbers))]
        numbers = [one if isinstance(one, float) else one & (2**64 - 1) for one in bits]
        last = max(self._first_words) + 1
        return [*numbers, *(self._first_words.get(word, 0) for word in range(len(numbers), last))]

    def gather(self, words: Array) -> None:
        """The state as the run left it."""
        placement, state = self.placement, self.state
        for index, (_, dtype) in self._fields():
            deliver_positions(placement, self.arrays.field(index), dtype, state.fields[index])
        for index, (_, dtype) in enumerate(self.code.numbers):
            state.set_number(self.code, index, words[index : index + 1].view(dtype)[0].item())
        if self.code.has_arcs:
            state.arcs = None
            if ends_with_arcs(self.code):
                state.arcs = np.zeros(placement.graph.arc_count, np.uint8)
                deliver_arcs(placement, self.arrays.arcs, state.arcs)
        found = []
        for part in placement.parts:
            bits = self.arrays.frontier[part].download(np.uint8, placement.count // 8)
            first = part.first // 8
            own = bits[first : first + placement.capacity // 8]
            members = np.flatnonzero(np.unpackbits(own, bitorder="little"))
            found.append(placement.vertex(part.first + members))
        frontier = np.sort(np.concatenate(found)).astype(state.frontier.dtype)
        state.frontier = frontier


def _identity(slot: Slot) -> Any:
    if slot.combine in ("add", "staged"):
        return 0
    if slot.dtype.kind == "f":
        return np.inf if slot.combine == "min" else -np.inf
    limits = np.iinfo(slot.dtype)
    return limits.max if slot.combine == "min" else limits.min
