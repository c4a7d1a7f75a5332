"""Runs vertex programs on GPUs, by plans that a placement keeps from query to query.

A query writes its request, drives the kernels and reads their outcome. The kernel makes the initial state
(begin.cuh), so nothing is uploaded but initial values that are arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.partition.layout import LocalGraph
from godwit.progress import Progress
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import load
from godwit.runtime.cuda.memory import Buffer, PinnedBuffer, keep_pinned, take_pinned
from godwit.runtime.cuda.slices import KeptOutcomes, SlicedRun, Written, nanoseconds
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.runtime.statistics import WorklistCounts
from godwit.trace import seconds_since
from godwit.worker.cuda import program as kernels
from godwit.worker.cuda.links import connect, per_link
from godwit.worker.cuda.placement import GpuPart, GpuPlacement, row_shape
from godwit.worker.cuda.program import CONTROL, OUTCOME, PART, THREADS, Variant
from godwit.worker.cuda.results import ProgramResults
from godwit.worker.program import ProgramOperators
from godwit.worker.task import Destination, PlacedPart, WorklistOptions

QUEUE_ITEMS = 1024
SPARSE_ITEMS_PER_BLOCK = 256
UNIT_LENGTH_THREADS = 512
"""Threads of a block if rows are packed and unweighted: few vertices are due at a time."""
_LARGEST_DELTA = float(np.finfo(np.float32).max)
_LIST_BYTES_PER_WARP = 2048
_STATIC_SHARED_BYTES = 1024
_UNIT_SHIFT = 3
_SMALL_WORDS = 1 << 18
_LEAST_PINNED_BYTES = 4096

Memory = TypeVar("Memory", Buffer, PinnedBuffer)


def run_program(
    program: ProgramOperators,
    placement: GpuPlacement,
    parts: Sequence[PlacedPart],
    chosen_by: Hashable,
    choose: Callable[[], WorklistOptions],
    destination: Destination,
    take: Callable[[RunEnd], None],
    poll: ProgressPoll | None,
) -> WorklistOptions:
    """Run a vertex program, copy the results to their destination, and return the options of its plan.

    :param chosen_by: what the choice of options depends on besides program and placement
    :param choose: returns the options of a new plan
    :param take: called while the results are on their way; may raise to do without these
    """
    compile_s: list[float] = []
    with placement.held():
        plan = placement.plan(
            (program, chosen_by), lambda: ProgramPlan(program, placement, choose(), compile_s)
        )
        results = plan.results_for(destination, parts[0].limit[0])
        kernel_s = plan.run(parts, poll, results.start)
        try:
            take(plan.end(kernel_s, sum(compile_s)))
        except BaseException:
            results.drop()
            raise
        results.finish(destination, plan.last_limit[0])
        return plan.options


@dataclass
class RunEnd:
    """Outcome of a run of kernels.

    :param overflows: True if a message did not fit the program's dtype
    :param kernel_s: seconds that kernels ran
    :param compile_s: seconds that loading them took
    :param counts: returns the counts of all devices
    """

    overflows: bool
    kernel_s: float
    compile_s: float
    counts: Callable[[], WorklistCounts]


def _variant(
    program: ProgramOperators,
    graph: Graph | LocalGraph,
    gpu: GpuOptions,
    *,
    packs: bool,
    is_alone: bool,
) -> Variant:
    """Return the variant of a program's kernel for a graph, or for the first part of one.

    :param packs: as of :class:`GpuPart`
    """
    weight_dtype = graph.weight_dtype if program.uses_weight else None
    packed = packs and program.combine != "add" and program.field_dtype is None
    return Variant(graph.id_dtype, weight_dtype, packed, is_alone, gpu.delay_ns)


def kernel_alone(program: ProgramOperators, graph: Graph, gpu: GpuOptions) -> str:
    """Return the source of a program's kernel for a graph that is on one GPU."""
    _, packs = row_shape(graph)
    variant = _variant(program, graph, gpu, packs=packs, is_alone=True)
    return kernels.source(program, variant, program.parameter_count)


def _counts(kept: KeptOutcomes, item_bytes: int, next_hops: Any) -> WorklistCounts:
    """Return the counts of a run.

    :param kept: outcomes of its last launch, by device
    :param next_hops: as of :func:`per_link`; None if no device relays
    """
    outcomes = kept.array()
    sent = outcomes["sent"][:, : len(outcomes)]
    return WorklistCounts(
        processed_items=outcomes["processed"],
        useless_items=outcomes["useless"],
        arcs_relaxed=outcomes["arcs"],
        threshold_changes=outcomes["threshold_changes"],
        received_items=outcomes["received"],
        filtered_items=outcomes["filtered"],
        sent_items=sent if next_hops is None else per_link(sent, next_hops),
        rounds=outcomes["rounds"],
        busy_share=_busy_share(outcomes),
        item_bytes=item_bytes,
    )


def _busy_share(controls: Array) -> Array:
    """Return, by device, the share of time in which its blocks did not wait at meetings."""
    waited = controls["waited"] / np.maximum(controls["cycles"], 1)
    share: Array = 1.0 - np.minimum(waited, 1.0)
    return share


class ProgramPlan(SlicedRun):
    """A vertex program on a placement, with its options: made once, and driven by one query after another.

    The caller holds the placement's GPUs.

    :param compile_s: gets the seconds that loading took
    """

    def __init__(
        self,
        program: ProgramOperators,
        placement: GpuPlacement,
        options: WorklistOptions,
        compile_s: list[float],
    ) -> None:
        super().__init__(placement, options.gpu)
        self.placement: GpuPlacement = placement
        self.program = program
        self.options = options
        # All devices have one kernel, so rows are packed only if those of every part can be.
        packs = all(part.packs for part in placement.parts)
        graph, is_alone = placement.parts[0].graph, len(placement.parts) == 1
        self.variant = _variant(program, graph, options.gpu, packs=packs, is_alone=is_alone)
        self.item_bytes = kernels.item_bytes(program, self.variant.id_dtype)
        self.modules: list[driver.Module] = []
        self.arguments = np.zeros(len(placement.parts), PART)
        self._results: dict[Any, ProgramResults] = {}
        self._owned: list[Buffer | PinnedBuffer] = []
        self._meeting_memory: list[Buffer | PinnedBuffer] = []
        self._is_valid = False
        self._slice, self._asked = Written(), Written()
        self._seed: tuple[memoryview, memoryview] | None = None
        used = OUTCOME.itemsize * len(placement.parts)
        self._outcome_memory = _pinned(used)
        outcomes = self._outcome_memory.array(np.uint8)[:used].view(OUTCOME)
        self.outcomes = [outcomes[device : device + 1] for device in range(len(outcomes))]
        self._request_memory = _pinned(0)
        self._request_words = self._request_memory.array(np.int64)
        try:
            begin = perf_counter()
            self._load()
            compile_s.append(seconds_since(begin, "compile"))
            self._lay_out()
        except BaseException:
            self.close()
            raise

    def _load(self) -> None:
        """Compile the kernels, or find them in a cache, and load them on every GPU."""
        program, count = self.program, self.program.parameter_count
        self.functions = kernels.functions(program, self.variant, count)
        for part in self.placement.parts:
            key = ("cuda", part.index, self.variant)
            module = program.compiled.get(key)
            if module is None:
                source = kernels.source(program, self.variant, count)
                module = load(part.index, source, self.functions)
                program.compiled[key] = module
            self.modules.append(module)
            self.kernels.append(module.kernel("work"))

    def _lay_out(self) -> None:
        """Upload what is missing of the graph, fill in all arguments that no query changes, and connect."""
        for device, part in enumerate(self.placement.parts):
            self._lay_out_graph(device, part)
            self._lay_out_state(device, part)
            self._lay_out_worker(device, part)
        self._next_hops, boards = connect(
            self.placement,
            self.arguments,
            self.item_bytes,
            self.options.ring_items,
            self.options.gpu,
            self._own,
        )
        self._meeting_memory += boards
        self._relays = bool(self.arguments["relays"].any())
        self._slice_ns, self._begins = self.arguments["slice_ns"], self.arguments["begins"]
        self._targets, self._requests = self.arguments["target"], self.arguments["request"]
        self._requests["parameter_count"] = self.program.parameter_count
        self.warm()

    def _lay_out_graph(self, device: int, part: GpuPart) -> None:
        graph, rooms = part.graph, part.rooms
        arguments = self.arguments[device]
        arguments["offsets"] = rooms.offsets.buffer.pointer
        arguments["targets"] = rooms.targets.buffer.pointer
        if graph.halo_count:
            arguments["halo_remote"] = rooms.halo_remote.buffer.pointer
        if self.variant.weight_dtype is not None:
            weights = graph.stored.arrays.weights
            assert weights is not None
            arguments["weights"] = rooms.weights.resident(weights).pointer
        if self.program.uses_vertex:
            arguments["vertices"] = rooms.vertices.resident(graph.vertices).pointer
        arguments["owned"], arguments["halo"] = graph.vertex_count, graph.halo_count
        if self.variant.packed:
            self._pack(device, part)
        # Of the dtype of halo_owner, which NumPy would copy otherwise.
        owners = np.arange(len(self.arguments) + 1, dtype=graph.halo_owner.dtype)
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
            driver.launch(
                self.modules[device].kernel("pack_rows"),
                part.stream,
                blocks=4 * driver.properties(part.index).multiprocessors,
                threads=256,
                arguments=[int(arguments[name]) for name in names],
            )
            part.stream.synchronize()
            part.has_packed, part.has_packed_weights = True, part.has_packed_weights or weighted

    def _lay_out_state(self, device: int, part: GpuPart) -> None:
        rooms, arguments, program = part.rooms, self.arguments[device], self.program
        owned, halo = part.graph.vertex_count, part.graph.halo_count
        value_bytes = program.value_dtype.itemsize
        arguments["values"] = rooms.values.sized(value_bytes * owned).pointer
        arguments["halo_values"] = rooms.halo_values.sized(value_bytes * halo).pointer
        if program.field_dtype is not None:
            arguments["fields"] = rooms.fields.sized(program.field_dtype.itemsize * owned).pointer
        arguments["pending"] = rooms.pending.sized(_bitmap_bytes(owned)).pointer
        arguments["halo_pending"] = rooms.halo_pending.sized(_bitmap_bytes(halo)).pointer
        hub_bytes = kernels.hub_bytes(program) * max(1, part.hubs)
        arguments["hubs"] = rooms.hubs.sized(hub_bytes).pointer
        arguments["has_hubs"] = part.hubs > 0
        parameters = self._own(Buffer(part.index, 8 * program.parameter_count))
        arguments["parameters"] = parameters.pointer
        control = self._own(Buffer(part.index, CONTROL.itemsize))
        self._meeting_memory.append(control)
        arguments["control"] = control.pointer

    def _lay_out_worker(self, device: int, part: GpuPart) -> None:
        arguments, gpu = self.arguments[device], self.options.gpu
        arguments["outcome"] = self._outcome_memory.pointer + OUTCOME.itemsize * device
        arguments["ended"] = self.ended_pointer(device)
        arguments["devices"], arguments["device"] = len(self.arguments), device
        arguments["hops"] = self.options.hops
        arguments["delta"] = min(self.options.delta * self.options.window, _LARGEST_DELTA)
        arguments["adapts"] = self.options.adapts and self.options.delta > 0
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

    def _own(self, buffer: Memory) -> Memory:
        """Return a buffer, which is closed with the plan."""
        self._owned.append(buffer)
        return buffer

    def run(
        self, parts: Sequence[PlacedPart], poll: ProgressPoll | None, behind: Callable[[], None]
    ) -> float:
        """Run the program to its end; return the seconds that kernels ran.

        :param behind: as of :meth:`drive`
        :raises DeviceError: a device waited for another in vain
        :raises OperatorError: an operator failed
        """
        if not self._is_valid:  # a run that was given up may have left any counts of meetings
            for buffer in self._meeting_memory:
                buffer.fill_bytes(0)
        self._ask(parts)
        self._is_valid = False
        try:
            seconds = self.drive(poll, behind)
        except BaseException:
            self.give_up()
            raise
        self._is_valid = True
        return seconds

    def _ask(self, parts: Sequence[PlacedPart]) -> None:
        """Write the request to where the kernel reads it, and upload initial values that are arrays."""
        seed = self._seed
        if seed is not None and len(parts) == 1 and len(parts[0].seeds.keys) == 1:
            seed[0][0], seed[1][0] = parts[0].seeds.keys.item(), parts[0].seeds.values.item()
        else:
            self._write_seeds(parts)
        scalars: list[Any] = [parts[0].limit.item()]
        has_fields = self.program.field_dtype is not None
        for given in parts:
            fields = given.fields if has_fields else None
            scalars += given.values, fields, given.seeds.initial_keys, given.target
        has_arrays = any(isinstance(scalar, np.ndarray) for scalar in scalars)
        asked = None if has_arrays else scalars
        if self._asked.has(asked):
            return
        self._requests["limit"] = _bits(parts[0].limit[0])
        for device, given in enumerate(parts):
            request, rooms = self._requests[device], self.placement.parts[device].rooms
            fills = not isinstance(given.values, np.ndarray)
            request["fills_values"] = fills
            if fills:
                request["value"] = _bits(given.values)
            else:
                rooms.values.buffer.upload(given.values)
            if self.program.field_dtype is not None:
                fills = not isinstance(given.fields, np.ndarray)
                request["fills_fields"] = fills
                if fills:
                    request["field"] = _bits(given.fields)
                else:
                    rooms.fields.buffer.upload(given.fields)
            request["all_pending"] = given.seeds.initial_keys > 0
            self._targets[device] = given.target
        self._asked.note(asked)

    def _write_seeds(self, parts: Sequence[PlacedPart]) -> None:
        """Write parameters and seeds into pinned memory: all parameters, all keys, then all values."""
        value = self.program.value_dtype
        first = self.program.parameter_count
        end = first + sum(len(part.seeds.keys) for part in parts)
        nbytes = 8 * end + value.itemsize * (end - first)
        self._seed = None
        if nbytes > self._request_memory.nbytes:
            self._take_request_memory(nbytes)
        pointer, words = self._request_memory.pointer, self._request_words
        if first:
            words[:first] = parts[0].parameters[:first].view(np.int64)
            self._requests["parameters"] = pointer
        values, done = words[end:].view(value), 0
        for request, part in zip(self._requests, parts, strict=True):
            count = len(part.seeds.keys)
            words[first + done : first + done + count] = part.seeds.keys
            values[done : done + count] = part.seeds.values
            request["seeds"] = pointer + 8 * (first + done)
            request["seed_values"] = pointer + 8 * end + value.itemsize * done
            request["seed_count"] = count
            done += count
        if len(parts) == 1 and not first and done == 1:
            self._seed = words[:1].data, values[:1].data

    def _take_request_memory(self, nbytes: int) -> None:
        memory, smaller = _pinned(nbytes), self._request_memory
        self._request_memory, self._request_words = memory, memory.array(np.int64)
        keep_pinned(smaller)

    def begin_slice(self, slice_s: float, *, is_first: bool) -> None:
        """Write into the arguments how long the launch lasts, and whether a run begins."""
        asked = slice_s, is_first
        if not self._slice.has(asked):
            self._slice_ns[:] = nanoseconds(slice_s)
            self._begins[:] = is_first
            self._slice.note(asked)

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

    def results_for(self, destination: Destination, limit: Any) -> ProgramResults:
        """Return the results of the next run, with new arrays.

        :param limit: of the run, as it begins
        """
        key = destination.location.gpu, destination.dtype
        results = self._results.get(key)
        if results is None or results.limit != limit:
            results = ProgramResults(self.placement, self.program, destination, limit)
            self._results[key] = results
        results.begin()
        return results

    @cached_property
    def last_limit(self) -> memoryview:
        """The limit of the latest run, its first item: all devices agree on it at the last meeting."""
        return self.outcomes[0]["limit"].view(self.program.value_dtype).data

    def end(self, kernel_s: float, compile_s: float) -> RunEnd:
        """Return the end of the latest run."""
        overflows = any(word[0] for word in self._overflows)
        next_hops = self._next_hops if self._relays else None
        count = partial(_counts, self.kept_outcomes(), self.item_bytes, next_hops)
        return RunEnd(overflows, kernel_s, compile_s, count)

    @cached_property
    def _overflows(self) -> list[memoryview]:
        return [outcome["overflow"].data for outcome in self.outcomes]

    def close(self) -> None:
        """Release the plan's memory."""
        for buffer in self._owned:
            buffer.close()
        for pinned in (self._outcome_memory, self._request_memory):
            keep_pinned(pinned)


def _pinned(nbytes: int) -> PinnedBuffer:
    """Return pinned memory, of one of few sizes, so that plans reuse what others have released."""
    return take_pinned(max(_LEAST_PINNED_BYTES, 1 << max(0, nbytes - 1).bit_length()))


def _bits(number: Any) -> Any:
    """Return the bits of a NumPy scalar of 4 or 8 bytes."""
    return number.view(np.uint32 if number.itemsize == 4 else np.uint64)


def _bitmap_bytes(bits: int) -> int:
    return 4 * ((bits + 31) // 32)
