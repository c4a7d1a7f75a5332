"""Runs a VertexProgram on a placed graph: prepares memory, starts the worker kernels, collects counts."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.errors import ClosedContextError
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.compile import load
from godwit.runtime.cuda.devices import held_gpus
from godwit.runtime.cuda.slices import SlicedRun, nanoseconds
from godwit.runtime.protocol import Progress, ProgressPoll
from godwit.runtime.statistics import WorklistCounts
from godwit.trace import seconds_since
from godwit.worker.cuda import program as kernels
from godwit.worker.cuda.links import connect, per_link
from godwit.worker.cuda.placement import GpuPart, GpuPlacement
from godwit.worker.cuda.program import CONTROL, PART, THREADS, Variant
from godwit.worker.cuda.results import deliver
from godwit.worker.task import PlacedPart, ProgramOperators, WorklistOptions

QUEUE_ITEMS = 1024
SPARSE_ITEMS_PER_BLOCK = 256
UNIT_LENGTH_THREADS = 512
"""Of a block where rows are packed and arcs alike: its waves are thin, and wait for each other less."""
_LARGEST_DELTA = float(np.finfo(np.float32).max)
_LIST_BYTES_PER_WARP = 2048
_STATIC_SHARED_BYTES = 1024
_UNIT_SHIFT = 3
_SMALL_WORDS = 1 << 18


def variant_of(program: ProgramOperators, part: GpuPart, options: WorklistOptions) -> Variant:
    """What to compile for a program on a part."""
    weights = part.graph.weights if program.uses_weight else None
    return Variant(
        part.graph.targets.dtype,
        None if weights is None else weights.dtype,
        part.packs and program.combine != "add" and program.field_dtype is None,
        options.gpu.delay_ns,
    )


def run_program(
    program: ProgramOperators,
    placement: GpuPlacement,
    parts: Sequence[PlacedPart],
    options: WorklistOptions,
    poll: ProgressPoll | None,
) -> WorklistCounts:
    """Run a program to its end; the parts hold the result."""
    with held_gpus(placement.indexes):
        if placement.closed:
            raise ClosedContextError("this placed graph was closed; place the graph again")
        run = _Run(program, placement, parts, options)
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
    """Of the time of each device's blocks, the part in which they did not wait for others."""
    cycles = np.maximum(controls["cycles"], 1).astype(np.float64)
    share: Array = 1.0 - np.minimum(controls["waited"] / cycles, 1.0)
    return share


class _Run(SlicedRun):
    """One run, and the memory that it works in."""

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
        # One kernel for all: packed only if every part's rows are short.
        variants = [variant_of(program, part, options) for part in placement.parts]
        self.variant = replace(variants[0], packed=all(one.packed for one in variants))
        self.parameter_count = len(parts[0].parameters) - 1
        self.arguments = np.zeros(len(parts), PART)
        self.modules: list[driver.Module] = []

    def load(self) -> None:
        """Compile the kernels, or find them, and load them on every GPU."""
        source = kernels.source(self.program, self.variant, self.parameter_count)
        functions = kernels.functions(self.program, self.variant, self.parameter_count)
        self.functions = functions
        for part in self.placement.parts:
            key = ("cuda", part.index, self.variant)
            module = self.program.compiled.get(key)
            if module is None:
                module = load(part.index, source, functions)
                self.program.compiled[key] = module
            self.modules.append(module)
            self.kernels.append(module.kernel("work"))

    def prepare(self) -> None:
        """Bring up what is missing, initialize the state, connect the devices."""
        for place, part in enumerate(self.placement.parts):
            self._prepare_graph(place, part)
            self._prepare_state(place, part)
            self._prepare_worker(place, part)
        self.hops = connect(
            self.placement,
            self.arguments,
            kernels.item_bytes(self.program, self.variant.id_dtype),
            self.options.ring_items,
            self.options.gpu,
        )
        self.warm()

    def _prepare_graph(self, place: int, part: GpuPart) -> None:
        graph = part.graph
        own = self.arguments[place]
        own["offsets"] = part.resident("offsets", graph.offsets).pointer
        own["targets"] = part.resident("targets", graph.targets).pointer
        if graph.halo_count:
            own["halo_remote"] = part.resident("halo_remote", graph.halo_remote).pointer
        if self.variant.weight_dtype is not None:
            assert graph.weights is not None
            own["weights"] = part.resident("weights", graph.weights).pointer
        if self.program.uses_vertex:
            own["vertices"] = part.resident("vertices", graph.vertices).pointer
        if self.variant.packed:
            self._pack(place, part)
        own["owned"], own["halo"] = graph.vertex_count, graph.halo_count
        owners = np.arange(
            len(self.parts) + 1, dtype=graph.halo_owner.dtype
        )  # of another, all is copied
        bounds = np.searchsorted(graph.halo_owner, owners)
        own["halo_begin"][: len(bounds)] = bounds
        own["halo_begin"][len(bounds) :] = graph.halo_count

    def _pack(self, place: int, part: GpuPart) -> None:
        own = self.arguments[place]
        count = part.graph.vertex_count
        weighted = self.variant.weight_dtype is not None
        row_bytes = 4 * self.variant.id_dtype.itemsize
        needed = {"rows", "row_weights"} if weighted else {"rows"}
        if not needed <= part.packed:
            rows = part.room("rows", row_bytes * count)
            weight_bytes = (self.variant.row_bytes - row_bytes) * count
            row_weights = part.room("row_weights", weight_bytes) if weighted else None
            self._start(
                place, "pack_rows", int(own["offsets"]), int(own["targets"]), int(own["weights"]),
                count, rows.pointer, 0 if row_weights is None else row_weights.pointer,
            )  # fmt: skip
            part.packed |= needed  # now they are filled
        own["rows"] = part.buffers["rows"].pointer
        if weighted:
            own["row_weights"] = part.buffers["row_weights"].pointer

    def _prepare_state(self, place: int, part: GpuPart) -> None:
        given = self.parts[place]
        own = self.arguments[place]
        count, halo = part.graph.vertex_count, part.graph.halo_count
        value = self.program.value_dtype
        own["values"] = self._filled(place, "values", given.values)
        own["halo_values"] = self._filled(place, "halo_values", given.halo_values)
        if self.program.field_dtype is not None:
            fields = part.room("fields", given.fields.nbytes)
            fields.upload(given.fields)
            own["fields"] = fields.pointer
        pending = part.room("pending", _bitmap_bytes(count))
        pending.fill_bytes(0)
        _set_first_bits(pending, given.seeds.initial_keys)
        own["pending"] = pending.pointer
        halo_pending = part.room("halo_pending", _bitmap_bytes(halo))
        halo_pending.fill_bytes(0)
        own["halo_pending"] = halo_pending.pointer
        seeds = len(given.seeds.keys)
        if seeds:
            keys = part.room("seed_keys", 8 * seeds)
            keys.upload(given.seeds.keys.astype(np.int64))
            values = part.room("seed_values", value.itemsize * seeds)
            values.upload(given.seeds.values.astype(value))
            self._start(
                place, "seed", int(own["values"]), pending.pointer, keys.pointer, values.pointer,
                seeds,
            )  # fmt: skip
        parameters = part.room("parameters", given.parameters.nbytes)
        parameters.upload(given.parameters)
        own["parameters"] = parameters.pointer
        control = np.zeros(1, CONTROL)
        control["bound"] = -np.inf
        control["lowest"] = kernels.NO_KEY
        control["limit"] = _bits(given.limit)
        room = part.room("control", CONTROL.itemsize)
        room.upload(control)
        self.control_buffers.append(room)
        own["control"] = room.pointer
        own["target"] = given.target

    def _filled(self, place: int, name: str, given: Array) -> int:
        """The pointer to an array of the state; one number repeated is filled in where it is."""
        part = self.placement.parts[place]
        room = part.room(name, given.nbytes)
        if len(given) and given.strides == (0,):
            number = np.array([given[0]], self.program.value_dtype)
            exact = ctypes.c_uint32 if number.itemsize == 4 else ctypes.c_uint64
            self._start(place, "fill_values", room.pointer, exact(int(_bits(number))), len(given))
        else:
            room.upload(given)
        return room.pointer

    def _prepare_worker(self, place: int, part: GpuPart) -> None:
        own = self.arguments[place]
        own["hubs"] = part.room("hubs", kernels.hub_bytes(self.program) * max(1, part.hubs)).pointer
        own["has_hubs"] = part.hubs > 0
        own["devices"], own["device"] = len(self.parts), place
        own["hops"] = self.options.hops
        own["delta"] = min(self.options.delta * self.options.window, _LARGEST_DELTA)
        words = (max(part.graph.vertex_count, part.graph.halo_count) + 31) // 32
        own["unit_shift"] = _UNIT_SHIFT if words > _SMALL_WORDS else 0
        own["slice_ns"] = nanoseconds(self.options.gpu.slice_s)
        own["patience_ns"] = nanoseconds(self.options.gpu.patience_s)
        own["stop"] = self.stop_pointer
        own["latency_ns"] = self.options.gpu.latency_ns
        own["volume"] = self.options.gpu.volume
        gpu = driver.properties(part.index)
        thin = self.variant.packed and self.variant.weight_dtype is None
        threads = self.options.gpu.threads or (UNIT_LENGTH_THREADS if thin else THREADS)
        item = self.variant.id_dtype.itemsize + self.program.value_dtype.itemsize
        item += self.variant.row_bytes if self.variant.packed else 0
        lists = threads // 32 * _LIST_BYTES_PER_WARP
        room = gpu.shared_bytes - _STATIC_SHARED_BYTES - lists
        items = min(QUEUE_ITEMS, room // (2 * item) // 32 * 32)
        shared = lists + 2 * items * item
        self.kernels[place].allow_shared(shared)
        blocks = self.blocks_for(place, threads, shared)
        own["queue_items"] = items
        # A block that may not run ahead has no use for its queue.
        own["sparse_items"] = blocks * SPARSE_ITEMS_PER_BLOCK if self.options.hops else 0
        self.shapes.append((blocks, threads, shared))

    def progress(self, controls: Array) -> Progress:
        """Items, threshold, idle shares."""
        made = Progress(int(controls["processed"].sum()))
        made.threshold = float(controls["bound"].max())
        made.idle_share = tuple((1.0 - _busy_share(controls)).tolist())
        return made

    def reached(self, control: Any) -> dict[str, Any]:
        """Rounds, items and the threshold so far, and how much of the time it did not wait for others."""
        return {
            "rounds": control["rounds"],
            "processed_items": control["processed"],
            "threshold": control["bound"],
            "busy_share": _busy_share(control),
        }

    def collect(self, compile_s: float, kernel_s: float) -> WorklistCounts:
        """The results to where they are wanted, and what was counted."""
        controls = self.controls()
        value = self.program.value_dtype
        limits = np.array([row["limit"] for row in controls], np.uint64).view(np.uint8)
        found = np.ascontiguousarray(limits.reshape(-1, 8)[:, : value.itemsize]).view(value)
        better = np.max if self.program.combine == "max" else np.min
        limit = self.parts[0].limit[0] = better(found)
        overflow = bool(controls["overflow"].any())
        if self.options.destination is not None and not overflow:
            deliver(self.placement, self.program, self.options.destination, limit)
        devices = len(self.parts)
        return WorklistCounts(
            processed_items=controls["processed"].astype(np.int64),
            useless_items=controls["useless"].astype(np.int64),
            arcs_relaxed=controls["arcs"].astype(np.int64),
            threshold_changes=controls["threshold_changes"].astype(np.int64),
            received_items=controls["received"].astype(np.int64),
            filtered_items=controls["filtered"].astype(np.int64),
            sent_items=per_link(controls["sent"][:, :devices].astype(np.int64), self.hops),
            rounds=controls["rounds"].astype(np.int64),
            compile_s=compile_s,
            value_overflow=overflow,
            kernel_s=kernel_s,
            busy_share=_busy_share(controls),
            item_bytes=kernels.item_bytes(self.program, self.variant.id_dtype),
        )

    def _start(self, place: int, name: str, *arguments: Any) -> None:
        """A kernel over many elements, to its end."""
        part = self.placement.parts[place]
        blocks = 4 * driver.properties(part.index).multiprocessors
        driver.launch(
            self.modules[place].kernel(name),
            part.stream,
            blocks=blocks,
            threads=256,
            arguments=arguments,
        )
        part.stream.synchronize()


def _bitmap_bytes(bits: int) -> int:
    return 4 * ((bits + 31) // 32)


def _set_first_bits(bitmap: memory.Buffer, count: int) -> None:
    words, rest = divmod(count, 32)
    if words:
        bitmap.fill_bytes(0xFF, 4 * words)
    if rest:
        bitmap.upload(np.array([(1 << rest) - 1], np.uint32), 4 * words)


def _bits(number: Array) -> int:
    raw = np.asarray(number).reshape(-1)[:1]
    return int(raw.view(np.uint32 if raw.dtype.itemsize == 4 else np.uint64)[0])
