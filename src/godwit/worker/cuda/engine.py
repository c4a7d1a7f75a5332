"""Runs vertex programs on GPUs: fills devices' memory, drives the kernels, collects counts and results."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.errors import ClosedContextError
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.compile import load, number_bits
from godwit.runtime.cuda.devices import held_gpus
from godwit.runtime.cuda.slices import SlicedRun, nanoseconds
from godwit.runtime.protocol import Progress, ProgressPoll
from godwit.runtime.statistics import WorklistCounts
from godwit.trace import seconds_since
from godwit.worker.cuda import program as kernels
from godwit.worker.cuda.links import connect, per_link
from godwit.worker.cuda.placement import GpuPart, GpuPlacement, Room
from godwit.worker.cuda.program import CONTROL, PART, THREADS, Variant
from godwit.worker.cuda.results import deliver
from godwit.worker.program import ProgramOperators
from godwit.worker.task import PlacedPart, WorklistOptions

QUEUE_ITEMS = 1024
SPARSE_ITEMS_PER_BLOCK = 256
UNIT_LENGTH_THREADS = 512
"""Threads of a block if rows are packed and unweighted: few vertices are due at a time."""
_LARGEST_DELTA = float(np.finfo(np.float32).max)
_LIST_BYTES_PER_WARP = 2048
_STATIC_SHARED_BYTES = 1024
_UNIT_SHIFT = 3
_SMALL_WORDS = 1 << 18


def run_program(
    program: ProgramOperators,
    placement: GpuPlacement,
    parts: Sequence[PlacedPart],
    options: WorklistOptions,
    poll: ProgressPoll | None,
) -> WorklistCounts:
    """Run a vertex program; the destination, or the parts, then hold the result."""
    with held_gpus(placement.indexes):
        if placement.closed:
            raise ClosedContextError("this placed graph was closed; place the graph again")
        run = ProgramRun(program, placement, parts, options)
        begin = perf_counter()
        run.load()
        compile_s = seconds_since(begin, "compile")
        try:
            run.prepare()
            kernel_s = run.drive(poll)
        except BaseException:
            run.give_up()
            raise
        return run.collect(compile_s, kernel_s)


def _busy_share(controls: Array) -> Array:
    """Return, by device, the share of time in which its blocks did not wait at meetings."""
    cycles = np.maximum(controls["cycles"], 1).astype(np.float64)
    share: Array = 1.0 - np.minimum(controls["waited"] / cycles, 1.0)
    return share


class ProgramRun(SlicedRun):
    """One run of a vertex program."""

    control_dtype = CONTROL

    def __init__(
        self,
        program: ProgramOperators,
        placement: GpuPlacement,
        parts: Sequence[PlacedPart],
        options: WorklistOptions,
    ) -> None:
        super().__init__(placement, options.gpu)
        self.placement: GpuPlacement = placement
        self.program = program
        self.parts = parts
        self.options = options
        graph = placement.parts[0].graph
        weights = graph.weights if program.uses_weight else None
        # All devices have one kernel, so rows are packed only if those of every part can be.
        packed = program.combine != "add" and program.field_dtype is None
        self.variant = Variant(
            graph.targets.dtype,
            None if weights is None else weights.dtype,
            packed and all(part.packs for part in placement.parts),
            options.gpu.delay_ns,
        )
        self.parameter_count = len(parts[0].parameters) - 1
        self.item_bytes = kernels.item_bytes(program, self.variant.id_dtype)
        self.arguments = np.zeros(len(parts), PART)
        self.modules: list[driver.Module] = []

    def load(self) -> None:
        """Compile the kernels, or find them in a cache, and load them on every GPU."""
        source = kernels.source(self.program, self.variant, self.parameter_count)
        self.functions = kernels.functions(self.program, self.variant, self.parameter_count)
        for part in self.placement.parts:
            key = ("cuda", part.index, self.variant)
            module = self.program.compiled.get(key)
            if module is None:
                module = load(part.index, source, self.functions)
                self.program.compiled[key] = module
            self.modules.append(module)
            self.kernels.append(module.kernel("work"))

    def prepare(self) -> None:
        """Upload what is missing of the graph, initialize the state, and connect the devices."""
        for device, part in enumerate(self.placement.parts):
            self._prepare_graph(device, part)
            self._prepare_state(device, part)
            self._prepare_worker(device, part)
        self.hops = connect(
            self.placement,
            self.arguments,
            self.item_bytes,
            self.options.ring_items,
            self.options.gpu,
        )
        self.warm()

    def _prepare_graph(self, device: int, part: GpuPart) -> None:
        graph, rooms = part.graph, part.rooms
        arguments = self.arguments[device]
        arguments["offsets"] = rooms.offsets.buffer.pointer
        arguments["targets"] = rooms.targets.buffer.pointer
        if graph.halo_count:
            arguments["halo_remote"] = rooms.halo_remote.buffer.pointer
        if self.variant.weight_dtype is not None:
            assert graph.weights is not None
            arguments["weights"] = rooms.weights.resident(graph.weights).pointer
        if self.program.uses_vertex:
            arguments["vertices"] = rooms.vertices.resident(graph.vertices).pointer
        arguments["owned"], arguments["halo"] = graph.vertex_count, graph.halo_count
        if self.variant.packed:
            self._pack(device, part)
        # Of the dtype of halo_owner, which NumPy would copy otherwise.
        owners = np.arange(len(self.parts) + 1, dtype=graph.halo_owner.dtype)
        bounds = np.searchsorted(graph.halo_owner, owners)
        arguments["halo_begin"][: len(bounds)] = bounds
        arguments["halo_begin"][len(bounds) :] = graph.halo_count

    def _pack(self, device: int, part: GpuPart) -> None:
        arguments, rooms = self.arguments[device], part.rooms
        count = part.graph.vertex_count
        row_bytes = 4 * self.variant.id_dtype.itemsize
        weighted = self.variant.weight_dtype is not None
        arguments["rows"] = rooms.rows.sized(row_bytes * count).pointer
        if weighted:
            weight_bytes = (self.variant.row_bytes - row_bytes) * count
            arguments["row_weights"] = rooms.row_weights.sized(weight_bytes).pointer
        if not part.has_packed or (weighted and not part.has_packed_weights):
            names = ("offsets", "targets", "weights", "owned", "rows", "row_weights")
            self._start(device, "pack_rows", *(int(arguments[name]) for name in names))
            part.has_packed, part.has_packed_weights = True, part.has_packed_weights or weighted

    def _prepare_state(self, device: int, part: GpuPart) -> None:
        given, rooms = self.parts[device], part.rooms
        arguments = self.arguments[device]
        arguments["values"] = self._filled(device, rooms.values, given.values)
        arguments["halo_values"] = self._filled(device, rooms.halo_values, given.halo_values)
        if self.program.field_dtype is not None:
            arguments["fields"] = rooms.fields.filled(given.fields).pointer
        pending = rooms.pending.sized(_bitmap_bytes(part.graph.vertex_count))
        pending.fill_bytes(0)
        words, rest = divmod(given.seeds.initial_keys, 32)
        if words:
            pending.fill_bytes(0xFF, 4 * words)
        if rest:
            pending.upload(np.array([(1 << rest) - 1], np.uint32), 4 * words)
        arguments["pending"] = pending.pointer
        halo_pending = rooms.halo_pending.sized(_bitmap_bytes(part.graph.halo_count))
        halo_pending.fill_bytes(0)
        arguments["halo_pending"] = halo_pending.pointer
        keys = given.seeds.keys.astype(np.int64)
        if len(keys):
            values = given.seeds.values.astype(self.program.value_dtype)
            self._start(
                device, "seed", int(arguments["values"]), pending.pointer,
                rooms.seed_keys.filled(keys).pointer, rooms.seed_values.filled(values).pointer,
                len(keys),
            )  # fmt: skip
        arguments["parameters"] = rooms.parameters.filled(given.parameters).pointer
        control = np.zeros(1, CONTROL)
        control["bound"] = -np.inf
        control["lowest"] = kernels.NO_KEY
        control["limit"] = number_bits(given.limit[0], self.program.value_dtype)
        buffer = rooms.control.filled(control)
        self.control_buffers.append(buffer)
        arguments["control"] = buffer.pointer
        arguments["target"] = given.target

    def _filled(self, device: int, room: Room[memory.Buffer], given: Array) -> int:
        """Return the pointer to an array of the state; a kernel fills in a number that is repeated."""
        if not (len(given) and given.strides == (0,)):
            return room.filled(given).pointer
        bits = number_bits(given[0], self.program.value_dtype)
        exact = ctypes.c_uint32 if given.itemsize == 4 else ctypes.c_uint64
        pointer = room.sized(given.nbytes).pointer
        self._start(device, "fill_values", pointer, exact(bits), len(given))
        return pointer

    def _prepare_worker(self, device: int, part: GpuPart) -> None:
        arguments, gpu = self.arguments[device], self.options.gpu
        hub_bytes = kernels.hub_bytes(self.program) * max(1, part.hubs)
        arguments["hubs"] = part.rooms.hubs.sized(hub_bytes).pointer
        arguments["has_hubs"] = part.hubs > 0
        arguments["devices"], arguments["device"] = len(self.parts), device
        arguments["hops"] = self.options.hops
        arguments["delta"] = min(self.options.delta * self.options.window, _LARGEST_DELTA)
        words = (max(part.graph.vertex_count, part.graph.halo_count) + 31) // 32
        arguments["unit_shift"] = _UNIT_SHIFT if words > _SMALL_WORDS else 0
        arguments["patience_ns"] = nanoseconds(gpu.patience_s)
        arguments["stop"] = self.stop_pointer
        arguments["latency_ns"] = gpu.latency_ns
        arguments["volume"] = gpu.volume
        unit_length = self.variant.packed and self.variant.weight_dtype is None
        threads = gpu.threads or (UNIT_LENGTH_THREADS if unit_length else THREADS)
        entry = self.variant.id_dtype.itemsize + self.program.value_dtype.itemsize
        entry += self.variant.row_bytes if self.variant.packed else 0
        lists = threads // 32 * _LIST_BYTES_PER_WARP
        free = driver.properties(part.index).shared_bytes - _STATIC_SHARED_BYTES - lists
        items = min(QUEUE_ITEMS, free // (2 * entry) // 32 * 32)
        shared = lists + 2 * items * entry
        self.kernels[device].allow_shared(shared)
        blocks = self.blocks_for(device, threads, shared)
        arguments["queue_items"] = items
        # Without hops, a block does not use its queue.
        arguments["sparse_items"] = blocks * SPARSE_ITEMS_PER_BLOCK if self.options.hops else 0
        self.shapes.append((blocks, threads, shared))

    def begin_slice(self, slice_s: float, *, is_first: bool) -> None:
        """Write the length of the slice into the arguments."""
        self.arguments["slice_ns"] = nanoseconds(slice_s)

    def progress(self, controls: Array) -> Progress:
        """Return processed items, the threshold, and the shares of time that devices waited."""
        progress = Progress(int(controls["processed"].sum()))
        progress.threshold = float(controls["bound"].max())
        progress.idle_share = tuple((1.0 - _busy_share(controls)).tolist())
        return progress

    def reached(self, control: Any) -> dict[str, Any]:
        """Return rounds, items and the threshold so far, and the share of time without waiting."""
        return {
            "rounds": control["rounds"],
            "processed_items": control["processed"],
            "threshold": control["bound"],
            "busy_share": _busy_share(control),
        }

    def collect(self, compile_s: float, kernel_s: float) -> WorklistCounts:
        """Copy the results to their destination, and return the counts."""
        controls = self.controls()
        value = self.program.value_dtype
        limits = np.array([row["limit"] for row in controls], np.uint64).view(np.uint8)
        limits = np.ascontiguousarray(limits.reshape(-1, 8)[:, : value.itemsize]).view(value)
        limit = limits.max() if self.program.combine == "max" else limits.min()
        self.parts[0].limit[0] = limit
        overflow = bool(controls["overflow"].any())
        if self.options.destination is not None and not overflow:
            deliver(self.placement, self.program, self.options.destination, limit)
        return WorklistCounts(
            processed_items=controls["processed"].astype(np.int64),
            useless_items=controls["useless"].astype(np.int64),
            arcs_relaxed=controls["arcs"].astype(np.int64),
            threshold_changes=controls["threshold_changes"].astype(np.int64),
            received_items=controls["received"].astype(np.int64),
            filtered_items=controls["filtered"].astype(np.int64),
            sent_items=per_link(controls["sent"][:, : len(self.parts)].astype(np.int64), self.hops),
            rounds=controls["rounds"].astype(np.int64),
            compile_s=compile_s,
            value_overflow=overflow,
            kernel_s=kernel_s,
            busy_share=_busy_share(controls),
            item_bytes=self.item_bytes,
        )

    def _start(self, device: int, name: str, *arguments: Any) -> None:
        """Run a kernel over many elements."""
        part = self.placement.parts[device]
        blocks = 4 * driver.properties(part.index).multiprocessors
        driver.launch(
            self.modules[device].kernel(name),
            part.stream,
            blocks=blocks,
            threads=256,
            arguments=arguments,
        )
        part.stream.synchronize()


def _bitmap_bytes(bits: int) -> int:
    return 4 * ((bits + 31) // 32)
