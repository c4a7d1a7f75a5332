"""Runs a VertexProgram on a placed graph, and gathers the values.

Asynchronously or in supersteps: the engine is the same, but for how far a device may go between two
meetings of all (``SolverOptions.execution``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from godwit.arrays import host_array
from godwit.dataflow.item_router import DEFAULT_RING_ITEMS
from godwit.dtypes import Array, as_array
from godwit.errors import InputError, RunTimeoutError, ValueOverflowError, shown
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.partition.layout import LocalGraph
from godwit.graph.rows import require_memory
from godwit.placement import PlacedGraph
from godwit.runtime.cpu.compile_time import run_clock
from godwit.runtime.gpu_options import check_asynchronous
from godwit.runtime.protocol import Device, ProgressPoll
from godwit.runtime.statistics import RunStatistics, WorklistCounts
from godwit.trace import PROGRESS, active
from godwit.worker.delta import choose_delta, choose_gpu_window
from godwit.worker.options import SUPERSTEP_HOPS, SolverOptions
from godwit.worker.place import place_parts
from godwit.worker.program import Initial, VertexProgram
from godwit.worker.results import converted, destination_of
from godwit.worker.task import PlacedPart, Seeds, WorklistOptions

Start = Literal["all"] | Array | Mapping[int, Any]
"""Initial work: all vertices with their initial values, or with those of an array of shape (n); or some
vertices, each with a value that is combined into its initial one."""


@dataclass
class Solution:
    """Values and fields of every vertex, shape (n) each, and how they came about."""

    values: Array
    fields: Array | None
    statistics: RunStatistics
    ids: VertexIds

    def to_dict(self) -> dict[Any, int | float]:
        """The value of every vertex, by its id (:attr:`Graph.ids`)."""
        values = host_array(self.values).tolist()
        return dict(zip(self.ids.of(np.arange(len(values))), values, strict=True))


def solve(
    program: VertexProgram,
    placed: PlacedGraph,
    start: Start,
    options: SolverOptions,
    *,
    limit: Any = None,
    target: int | None = None,
    parameters: Mapping[str, float] | None = None,
    result_dtype: Any = None,
) -> Solution:
    """Run a program to its end.

    :param start: vertices that have work at first; see :data:`Start`
    :param limit: messages worse than it are dropped, and vertices beyond it come out as never reached
        (min and max programs only)
    :param target: a vertex whose value, as it improves, becomes the limit: for priorities that order
        like values, the run ends when nothing can improve it any more
    :param result_dtype: of the values that come out, if not the program's: a wider integer's, whose own
        identity then stands for that of the program
    :raises ValueOverflowError: a 32-bit integer was too narrow for a value
    :raises RunTimeoutError: out of time
    """
    devices = placed.context.devices
    check_asynchronous(devices, options.gpu)
    layout = placed.layout
    resident = place_parts(placed)
    graph = placed.graph
    shared = devices[0].shares_memory
    statistics = RunStatistics(
        tuple(device.name for device in devices), _solver_name(options, shared=shared)
    )
    fills = devices[0].fills
    delta, hops = _how_far(program, graph, options, fills=fills)
    statistics.delta = None if program.priority is None else delta
    # Buckets of CPUs that go in steps are the same for all.
    statistics.window = (
        None if shared or (options.in_steps and not fills) else options.worker.window
    )
    statistics.hops = hops if fills else None
    _require_run_memory(program, graph.vertex_count, len(devices), options, fills=fills)
    with statistics.phase("run"):
        limits = np.full(
            1, program.identity if limit is None else _as_value(program, limit, "limit")
        )
        parameter_array = program.parameter_values(parameters)
        initial = start if isinstance(start, np.ndarray) else program.initial
        some = isinstance(start, Mapping)
        parts = [
            _placed_part(
                program,
                graph,
                part,
                limits,
                parameter_array,
                initial,
                start_all=not some,
                fills=fills,
            )
            for part in layout.parts
        ]
        if isinstance(start, Mapping):
            _seed(program, placed, parts, start)
        if target is not None:
            _set_target(program, placed, parts, target, limits)
        largest = max(len(part.values) for part in parts)
        capacity_items = 2 * largest // devices[0].threads + 1024
        run_options = WorklistOptions(
            delta,
            options.worker.window,
            options.worker.ring_items,
            capacity_items
            if options.worker.capacity_items is None
            else options.worker.capacity_items,
            hops=hops,
            in_steps=options.in_steps,
            gpu=options.gpu,
            destination=destination_of(program, layout, result_dtype, options.location)
            if devices[0].delivers
            else None,
        )
        counts = _run(program, resident, devices, parts, run_options, options)
    if counts.value_overflow:
        raise ValueOverflowError(
            f"a message of program {program.name!r} does not fit {program.dtype.name}; "
            "declare a wider dtype"
        )
    statistics.take_counts(counts)
    if run_options.destination is not None:
        there = run_options.destination
        statistics.seconds["run"] -= there.seconds
        statistics.seconds["gather"] = there.seconds
        return Solution(there.values, there.fields, statistics, graph.ids)
    with statistics.phase("gather"):
        reached_values = layout.gather([part.values for part in parts])
        if program.combine != "add" and (limit is not None or target is not None):
            _forget_beyond(program, reached_values, limits[0])
        reached_values = converted(program, reached_values, result_dtype)
        fields = None
        if program.field_dtype is not None:
            fields = layout.gather([part.fields for part in parts])
    return Solution(reached_values, fields, statistics, graph.ids)


def _run(
    program: VertexProgram,
    resident: Any,
    devices: Sequence[Device],
    parts: Sequence[PlacedPart],
    run_options: WorklistOptions,
    options: SolverOptions,
) -> WorklistCounts:
    poll = make_poll(options)
    if devices[0].kind == "cpu":
        from godwit.worker.cpu.program import run_program as run_on_cores

        return run_on_cores(program.operators, devices, parts, run_options, poll)
    from godwit.worker.cuda.engine import run_program as run_on_gpus

    return run_on_gpus(program.operators, resident, parts, run_options, poll)


def _solver_name(options: SolverOptions, *, shared: bool) -> str:
    if options.in_steps:
        return "bulk-synchronous"
    return "delta-stepping" if shared else "asynchronous"


def _how_far(
    program: VertexProgram, graph: Graph, options: SolverOptions, *, fills: bool
) -> tuple[float, int]:
    """The width of a priority bucket, and how many arcs far a GPU's block may run ahead."""
    if not fills:
        delta = (
            choose_delta(program, graph) if options.worker.delta is None else options.worker.delta
        )
        return delta, 0
    hops = options.gpu.hops
    if hops is None and options.in_steps:
        hops = SUPERSTEP_HOPS
    return choose_gpu_window(program, graph, options.worker.delta, hops)


_ITEM_BYTES = 16


def _require_run_memory(
    program: VertexProgram, vertices: int, devices: int, options: SolverOptions, *, fills: bool
) -> None:
    """Refuse a run whose values, worklists and mailboxes will not fit, before they are allocated."""
    if fills:  # what GPUs work with is in their memory, and what they give back is counted there
        require_memory(8 * vertices, f"the results of {program.name!r} on {vertices:,} vertices")
        return
    values = vertices * (2 * program.dtype.itemsize + 8 * (program.field_dtype is not None))
    ring_items = (
        DEFAULT_RING_ITEMS if options.worker.ring_items is None else options.worker.ring_items
    )
    items = devices**2 * ring_items + 2 * vertices + (options.worker.capacity_items or 0) * devices
    require_memory(
        values + _ITEM_BYTES * items, f"running {program.name!r} on {vertices:,} vertices"
    )


def make_poll(options: SolverOptions) -> ProgressPoll | None:
    """What the calling thread does while the devices work: look at the clock, report progress."""
    trace = active()
    if options.timeout_s is None and options.progress is None and trace is None:
        return None
    timeout_s = options.timeout_s
    begin: float | None = (
        None  # the first look; neither what was compiled before counts nor what will be
    )

    def poll(processed: int) -> None:
        nonlocal begin
        if begin is None:
            begin = run_clock()
        if timeout_s is not None and run_clock() - begin > timeout_s:
            raise RunTimeoutError(
                f"the run did not finish within {timeout_s:g} s ({processed} items processed)"
            )
        if trace is not None:
            trace.count(PROGRESS, int(processed))
        if options.progress is not None:
            options.progress(processed)

    return poll


def _as_value(program: VertexProgram, value: Any, what: str) -> Any:
    """A number in the program's dtype; InputError if it does not fit."""
    try:
        given = host_array(value)
        converted = given.astype(program.dtype).item() if given.ndim == 0 else None
    except (TypeError, ValueError, OverflowError):
        converted = None
    if converted is not None and program.dtype.kind != "f" and converted != value:
        converted = None
    if converted is None:
        raise InputError(
            f"{what} must be a number that {program.dtype.name} holds, got {shown(value)}"
        )
    return program.dtype.type(converted)


def _initial(
    initial: Initial, identity: Any, part: LocalGraph, dtype: np.dtype[Any], count: int,
    *, fills: bool,
) -> Array:  # fmt: skip
    """The values (or fields) that a device's vertices start with: an array of its own.

    :param fills: one number for all may come as a view that repeats it
    """
    vertices = part.vertices
    if initial is None:
        return _repeated(identity, len(vertices), dtype, fills=fills)
    if callable(initial):
        made = as_array(initial(vertices), "initial")
        if made.shape not in ((), vertices.shape):
            raise InputError(
                f"initial must return a number, or one for each of {len(vertices)} vertices, "
                f"got an array of shape {made.shape}"
            )
        return np.array(np.broadcast_to(_as_values(made, dtype), vertices.shape))
    whole = as_array(initial, "initial")
    if whole.ndim == 0:
        return _repeated(_as_values(whole, dtype), len(vertices), dtype, fills=fills)
    if whole.shape != (count,):
        raise InputError(f"initial values must have shape ({count},), got {whole.shape}")
    return _as_values(whole[vertices], dtype)


def _repeated(number: Any, count: int, dtype: np.dtype[Any], *, fills: bool) -> Array:
    """An array of one number; where the device fills its memory itself, a view of it only."""
    if fills:
        return np.broadcast_to(np.array(number, dtype), (count,))
    return np.full(count, number, dtype)


def _as_values(given: Array, dtype: np.dtype[Any]) -> Array:
    """Numbers in a dtype; InputError, naming the first, if it cannot hold one of them exactly."""
    if given.dtype.kind not in "biuf":
        raise InputError(f"initial values must be numbers, got {given.dtype}")
    with np.errstate(invalid="ignore", over="ignore"):
        converted = given.astype(dtype)
        if dtype.kind in "iu" and given.dtype != dtype:
            # An exact conversion comes back to what it was; wrapping shows in the sign or the value.
            wrong = (converted.astype(given.dtype) != given) | ((converted < 0) != (given < 0))
            if wrong.any():
                first = np.atleast_1d(given)[np.argmax(np.atleast_1d(wrong))]
                raise InputError(f"initial values must fit {dtype.name}, got {first}")
    return converted


def _placed_part(
    program: VertexProgram, graph: Graph, part: LocalGraph, limits: Array, parameters: Array,
    initial: Initial, *, start_all: bool, fills: bool,
) -> PlacedPart:  # fmt: skip
    count = graph.vertex_count
    values = _initial(initial, program.identity, part, program.dtype, count, fills=fills)
    fields = np.empty(0, program.dtype)
    if program.field_dtype is not None:
        given = program.field_initial
        fields = _initial(given, 0, part, program.field_dtype, count, fills=False)
    nothing = np.empty(0, np.int64)
    return PlacedPart(
        graph=part,
        values=values,
        # What the owner starts from is not known here; the worst value only sends more than needed.
        halo_values=_repeated(
            program.identity, len(part.halo_vertices), program.dtype, fills=fills
        ),
        fields=fields,
        seeds=Seeds(nothing, nothing.astype(program.dtype), len(values) if start_all else 0),
        limit=limits,
        target=-1,
        parameters=parameters,
    )


def _seed(
    program: VertexProgram, placed: PlacedGraph, parts: list[PlacedPart], start: Mapping[int, Any]
) -> None:
    owner = placed.partition.owner
    local_index = placed.layout.local_index
    # Where values accumulate, one that is active from the beginning never becomes so: all are looked at.
    some_are_active = program.combine == "add" and program.initial is not None
    found: list[dict[int, Any]] = [{} for _ in parts]
    for vertex, given in start.items():
        value = _as_value(program, given, f"the value of vertex {vertex}")
        place = int(owner[vertex])
        key = int(local_index[vertex])
        before = found[place].get(key, parts[place].values[key])
        if program.combine == "add":
            found[place][key] = program.dtype.type(before + value)
        else:
            better = min if program.combine == "min" else max
            found[place][key] = better(before, value)
    for part, own in zip(parts, found, strict=True):
        keys = np.array(list(own), np.int64)
        values = np.array(list(own.values()), program.dtype)
        if part.values.flags.writeable:
            part.values[keys] = values
        if some_are_active:
            # The seeds' values are there; who is active among all is seen when they are looked at.
            if not part.values.flags.writeable and len(keys):
                part.values = np.array(part.values)
                part.values[keys] = values
            part.seeds = Seeds(keys[:0], values[:0], len(part.values))
        else:
            part.seeds = Seeds(keys, values)


def _set_target(
    program: VertexProgram, placed: PlacedGraph, parts: list[PlacedPart], target: int, limits: Array
) -> None:
    part = parts[int(placed.partition.owner[target])]
    part.target = int(placed.layout.local_index[target])
    seeded = np.flatnonzero(part.seeds.keys == part.target)
    value = part.seeds.values[seeded[0]] if len(seeded) else part.values[part.target]
    better = min if program.combine == "min" else max
    limits[0] = better(limits[0], value)


def _forget_beyond(program: VertexProgram, values: Array, limit: Any) -> None:
    """Values beyond the limit are not final: whether they were seen depends on the schedule."""
    beyond = values > limit if program.combine == "min" else values < limit
    values[beyond] = program.identity
