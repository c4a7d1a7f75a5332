"""Runs vertex programs: :func:`godwit.run`, and :func:`solve` for Godwit's own algorithms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.arrays import ResultLocation, host_array
from godwit.dataflow.item_router import DEFAULT_RING_ITEMS
from godwit.dtypes import Array, as_count, frozen
from godwit.errors import InputError, ValueOverflowError, shown
from godwit.graph.csr import Graph
from godwit.graph.ids import Vertex, VertexIds
from godwit.graph.interchange.tables import Column
from godwit.graph.result import VertexResult, highest_values
from godwit.graph.rows import require_memory
from godwit.placement import PartitionArgument, PlacedGraph
from godwit.progress import ProgressArgument
from godwit.public import or_distributed
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import block_range, run_team
from godwit.runtime.gpu_options import GpuOptions, check_asynchronous
from godwit.runtime.polling import RunPoll
from godwit.runtime.protocol import ProgressPoll
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.trace import TraceArgument, active, recorded
from godwit.worker.delta import choose_delta, choose_gpu_window
from godwit.worker.options import SUPERSTEP_HOPS, SolverOptions, WorkerOptions, query_options
from godwit.worker.predecessors import Origin, Predecessors, path_by, predecessors_of
from godwit.worker.program import VertexProgram, identity_of
from godwit.worker.query import GraphArgument, add_placement, place_parts, placed_for_query
from godwit.worker.task import (
    Destination,
    PlacedPart,
    Seeds,
    Start,
    WorklistOptions,
    make_parts,
)

if TYPE_CHECKING:
    from godwit.worker.cuda.engine import RunEnd
    from godwit.worker.cuda.placement import GpuPlacement

_ITEM_BYTES = 16
_MAX_ITEMS = 1 << 30
"""Default limit of a run, or n^2 where that is more: what Bellman-Ford needs at most."""
_SMALL_VALUES = 1 << 17
"""NumPy converts fewer values than these in 40 µs, and no kernel has to be compiled for that."""
_VALUES_OF_A_TEAM = 1 << 22
"""For fewer values than these, one thread is done before a team of threads has begun and ended."""


@dataclass
class Solution(VertexResult):
    """Result of a vertex program.

    :ivar values: the value of every vertex, shape (n), on the host or a GPU
    :ivar fields: the field of every vertex, shape (n), there as well; None for programs without
    :ivar graph: the graph
    """

    values: Array
    fields: Array | None
    statistics: RunStatistics
    graph: Graph
    _origin: Origin | None = field(default=None, repr=False, compare=False)

    @property
    def ids(self) -> VertexIds:
        """Ids of the vertices (:attr:`Graph.ids`)."""
        return self.graph.ids

    @property
    def columns(self) -> list[Column]:
        """The values and, where the program has a field, the fields."""
        columns = [Column("value", host_array(self.values))]
        if self.fields is not None:
            columns.append(Column("field", host_array(self.fields)))
        return columns

    @property
    def predecessor(self) -> Array:
        """The number of the vertex from which each one got its value, shape (n), dtype of the targets.

        For programs without fields that combine by min or max, whose messages are no worse for a better
        value. -1 for vertices that have their own initial value, or were not reached; otherwise an
        in-neighbour whose message equals the value. Of several it is the smallest that has a better value;
        if all have an equal one, the smallest of those that are the fewest arcs away from another value.
        Where values improve along arcs (longest paths, negative weights), paths have as few arcs as
        possible instead, and of several predecessors the smallest is taken. Predecessors never lead in a
        circle, and do not depend on devices. CPUs compute them on first use, by the program's operators.

        :raises InputError: a program of another kind, or the solution was pickled
        :raises OperatorError: no message equals the value of a vertex
        """
        location = self._known_origin.location
        before: Array = location.place(self._predecessors.before)
        return before

    @cached_property
    def _predecessors(self) -> Predecessors:
        with self.statistics.phase("predecessors"):
            return predecessors_of(self.graph, host_array(self.values), self._known_origin)

    @property
    def _known_origin(self) -> Origin:
        if self._origin is None:
            raise InputError("a solution that was pickled has no predecessors")
        return self._origin

    def path_to(self, vertex: Vertex) -> list[Any]:
        """Return the vertices by which a vertex got its value, from one with its own initial value on.

        >>> import godwit as gw
        >>> hops = gw.VertexProgram("hops", lambda value: value + 1, "min", dtype="int32")
        >>> graph = gw.Graph.from_edges([0, 1], [1, 2], ids=["Bonn", "Ulm", "Jena"])
        >>> gw.run(hops, graph, {"Bonn": 0}).path_to("Jena")
        ['Bonn', 'Ulm', 'Jena']

        :param vertex: an id (:attr:`Graph.ids`), as are those of the path
        :raises InputError: the vertex does not exist, or was not reached; or as :attr:`predecessor`
        :raises OperatorError: as :attr:`predecessor`
        """
        position = self.ids.position(vertex)
        if not self._predecessors.is_reached[position]:
            raise InputError(f"vertex {shown(self.ids[position])} was not reached from the start")
        return self.ids.of(path_by(self._predecessors.before, position))

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: all but the program."""
        return {**self.__dict__, "_origin": None}

    def to_dict(self) -> dict[Any, int | float]:
        """Return the value of every vertex, by its id (:attr:`Graph.ids`)."""
        values = host_array(self.values).tolist()
        return dict(zip(self.ids.of(np.arange(len(values))), values, strict=True))

    def highest(self, count: int) -> list[tuple[Any, int | float]]:
        """Return ids and values of the vertices of highest value, highest first; ties by position.

        :raises InputError: ``count`` is no integer, or negative
        """
        return highest_values(host_array(self.values), count, self.ids)

    def __repr__(self) -> str:
        fields = "" if self.fields is None else f", fields of {self.fields.dtype}"
        return f"Solution({len(self.values)} vertices, {self.values.dtype}{fields})"


@or_distributed("godwit.distributed.vertex_programs", "godwit.distributed.vertex_programs_gpus")
def run(
    program: VertexProgram,
    graph: GraphArgument,
    start: Start = "all",
    *,
    devices: DevicesArgument = None,
    partition: PartitionArgument = None,
    parameters: Mapping[str, float] | None = None,
    limit: Any = None,
    target: Vertex | None = None,
    execution: str = "auto",
    results: str = "host",
    timeout_s: float | None = None,
    max_items: int | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    worker: WorkerOptions | None = None,
    gpu: GpuOptions | None = None,
) -> Solution:
    """Run a vertex program on a graph.

    :param start: initial work: ``"all"`` vertices with their initial values, or with those of an array of
        shape (n); or a mapping ``{vertex: value}``, or a pandas Series, of some vertices by id, whose
        values are combined into their initial ones
    :param parameters: values of the program's parameters
    :param limit: worse messages are dropped (min and max programs)
    :param target: a vertex, by id, whose value becomes the limit
    :param execution: ``"asynchronous"`` (also ``"auto"``) or ``"bulk-synchronous"``: in supersteps, each of
        which processes due items once, before all devices meet
    :param results: as for :func:`bfs`
    :param max_items: the run ends with an error after it has processed more items (a vertex may be one
        several times). None: the larger of 2^30 and n^2, more than programs that end need
    :param trace: as for :func:`bfs`
    :returns: ``.values`` and ``.fields`` (shape (n) each, or None), ``.predecessor`` and
        ``.path_to(vertex)`` (min and max programs), ``.to_dict()``, ``.highest()``, ``.to_frame()``,
        ``.statistics``
    :raises InputError: a wrong argument
    :raises OperatorError: an operator does not compile
    :raises ValueOverflowError: a value does not fit the program's 32-bit integers
    :raises RunTimeoutError: out of time, or more than ``max_items``
    """
    if not isinstance(program, VertexProgram):
        raise InputError(
            f"expected a VertexProgram, got a {type(program).__name__}"
            + ("; call program.run(graph)" if callable(getattr(program, "run", None)) else "")
        )
    options = query_options(
        execution=execution,
        worker=worker,
        gpu=gpu,
        timeout_s=timeout_s,
        progress=progress,
        results=results,
    )
    with recorded(trace, program.name), placed_for_query(graph, devices, partition) as placed:
        ids = placed.graph.ids
        start = ids.by_position(start, "start", complete_is_array=False)
        if not isinstance(start, Mapping) and not (isinstance(start, str) and start == "all"):
            start = start_array(start, placed.graph.vertex_count)
        if program.combine not in ("min", "max") and (limit is not None or target is not None):
            raise InputError("limit and target are for programs that combine by min or max")
        if target is not None:
            target = ids.position(target, "target")
        max_items = most_items(max_items, placed.graph.vertex_count)
        poll = RunPoll(options.timeout_s, options.progress, active(), max_items=max_items)
        with poll.noting_interruptions():
            solution = solve(
                program, placed, start, options,
                limit=limit, target=target, parameters=parameters, poll=poll,
            )  # fmt: skip
        add_placement(solution.statistics, placed, graph)
        solution._origin = Origin(
            program,
            start.copy() if isinstance(start, np.ndarray) else start,
            program.parameter_values(parameters),
            limit is not None or target is not None,
            options.location,
        )
        solution.values = options.location.place(solution.values)
        if solution.fields is not None:
            solution.fields = options.location.place(solution.fields)
        return solution


def most_items(given: int | None, vertices: int) -> int:
    """Return after how many processed items a run ends with an error; None: the default."""
    return max(_MAX_ITEMS, vertices**2) if given is None else as_count(given, "max_items", 1)


def start_array(start: Any, count: int) -> Array:
    """Return an array of initial values; raise InputError if it is none of shape (n)."""
    try:
        values = host_array(start)
    except (TypeError, ValueError):  # lists of several lengths
        values = np.empty((), object)
    if values.ndim == 0 or values.dtype.kind not in "iufb":
        raise InputError(
            "start must be 'all', a mapping {vertex: value}, or an array with a value for each of "
            f"the {count} vertices, got {shown(start)}"
        )
    if values.shape != (count,):
        raise InputError(
            f"an array of initial values must have shape ({count},), got {values.shape}; "
            "write {vertex: value} to start from some vertices"
        )
    return values


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
    poll: ProgressPoll | None = None,
) -> Solution:
    """Run a vertex program on a placed graph, with checked arguments.

    Supersteps use the same engine: a device then goes less far between two meetings.

    :param start: initial work, by position; see :data:`Start`
    :param limit: worse messages are dropped, and vertices beyond it have the identity as their value (min
        and max programs only)
    :param target: a vertex whose value, as it improves, becomes the limit: if priorities order like values,
        the run ends when no message can improve it any more
    :param result_dtype: of the resulting values, if not the program's: a wider integer dtype, whose
        identity replaces the program's
    :param poll: what the calling thread repeats during the run; None: what the options ask for
    :raises ValueOverflowError: a 32-bit integer was too narrow for a value
    :raises RunTimeoutError: out of time
    """
    check_asynchronous(placed.context.devices, options.gpu)
    placement = place_parts(placed)
    asked: dict[str, Any] = {"limit": limit, "target": target, "parameters": parameters}
    if poll is None:
        poll = make_poll(options)
    if placement is None:
        return _solve_on_cores(program, placed, start, options, result_dtype, asked, poll)
    return _solve_on_gpus(program, placed, placement, start, options, result_dtype, asked, poll)


def _solve_on_cores(
    program: VertexProgram, placed: PlacedGraph, start: Start, options: SolverOptions,
    result_dtype: Any, asked: dict[str, Any], poll: ProgressPoll | None,
) -> Solution:  # fmt: skip
    from godwit.worker.cpu.engine import run_program

    devices, graph = placed.context.devices, placed.graph
    shared = devices[0].shares_memory
    name = "delta-stepping" if shared else "asynchronous"
    statistics = _statistics(placed, name, options)
    delta = options.worker.delta
    if delta is None:
        delta = choose_delta(program, graph)
    statistics.delta = None if program.priority is None else delta
    if not (shared or options.in_steps):  # otherwise all devices process the same bucket
        statistics.window = options.worker.window
    _require_run_memory(program, graph.vertex_count, len(devices), options)
    with statistics.phase("run"):
        parts = make_parts(program, placed, start, **asked)
        capacity_items = options.worker.capacity_items
        if capacity_items is None:
            most_vertices = max(part.graph.vertex_count for part in parts)
            capacity_items = 2 * most_vertices // devices[0].threads + 1024
        run_options = WorklistOptions(
            delta,
            options.worker.window,
            options.worker.ring_items,
            capacity_items,
            in_steps=options.in_steps,
        )
        destination = _destination(program, placed, result_dtype, options.location)
        idle = graph.cached("workspaces of programs", list)
        counts = run_program(
            program.operators, devices, parts, run_options, destination, idle, poll
        )
    if counts.value_overflow:
        raise overflow_error(program)
    statistics.take_counts(counts)
    if shared:
        return Solution(destination.values, destination.fields, statistics, graph)
    with statistics.phase("gather"):
        layout = placed.layout
        values = layout.gather([part.values for part in parts])
        if program.combine != "add" and not (asked["limit"] is None and asked["target"] is None):
            reset_beyond(program, values, parts[0].limit[0])
        values = converted(program, values, result_dtype)
        fields = None
        if program.field_dtype is not None:
            fields = layout.gather([part.fields for part in parts])
    return Solution(values, fields, statistics, graph)


@lru_cache(maxsize=1)
def _engine() -> Any:
    """Return the module, which an import statement would look for in every query."""
    from godwit.worker.cuda import engine

    return engine


def _solve_on_gpus(
    program: VertexProgram, placed: PlacedGraph, placement: GpuPlacement, start: Start,
    options: SolverOptions, result_dtype: Any, asked: dict[str, Any], poll: ProgressPoll | None,
) -> Solution:  # fmt: skip
    graph = placed.graph
    if options.location.gpu is None:  # GPUs check their memory themselves
        what = f"the results of {program.name!r} on {graph.vertex_count:,} vertices"
        require_memory(8 * graph.vertex_count, what)
    statistics = _statistics(placed, "asynchronous", options)
    with statistics.run() as run:
        parts = make_parts(program, placed, start, **asked)
        destination = _destination(program, placed, result_dtype, options.location)
        run.parts = _run_on_gpus(
            program, placed, placement, parts, options, destination, statistics, poll
        )
    return Solution(destination.values, destination.fields, statistics, graph)


def search_again(
    program: VertexProgram, placed: PlacedGraph, options: SolverOptions, limit: Any,
    target: int | None, result_dtype: Any = None,
) -> Callable[[PlacedGraph, Array], Solution] | None:  # fmt: skip
    """Return a function that runs a program from sources of value 0, on the graph placed as here.

    None if there is a target, the sources of which matter, or not one GPU. Parameters as of :func:`solve`.

    :param program: of integers, without initial values or fields
    """
    placement = place_parts(placed)
    if placement is None or len(placement.parts) > 1 or target is not None:
        return None
    (first,) = make_parts(program, placed, {}, limit=limit)
    form = _destination(program, placed, result_dtype, options.location)

    def search(placed: PlacedGraph, sources: Array) -> Solution:
        if options.location.gpu is None:
            require_memory(8 * placed.graph.vertex_count, f"the results of {program.name!r}")
        statistics = _statistics(placed, "asynchronous", options)
        with statistics.run() as run:
            part = PlacedPart(
                first.graph, first.values, first.halo_values, first.fields,
                Seeds(sources, np.zeros(len(sources), program.dtype)), first.limit, first.target,
                first.parameters,
            )  # fmt: skip
            destination = Destination(form.location, form.dtype, form.never, form.ranges)
            run.parts = _run_on_gpus(
                program, placed, placement, [part], options, destination, statistics,
                make_poll(options),
            )  # fmt: skip
        return Solution(destination.values, None, statistics, placed.graph)

    return search


def _run_on_gpus(
    program: VertexProgram, placed: PlacedGraph, placement: GpuPlacement, parts: list[PlacedPart],
    options: SolverOptions, destination: Destination, statistics: RunStatistics,
    poll: ProgressPoll | None,
) -> dict[str, float]:  # fmt: skip
    """Run a program, and fill in the destination and the statistics; return seconds by phase."""
    worker = options.worker

    def choose() -> WorklistOptions:
        hops = options.gpu.hops
        adapts = worker.delta is None and hops is None and not options.in_steps
        if hops is None and options.in_steps:
            hops = SUPERSTEP_HOPS
        devices = len(placed.context.devices)
        delta, hops = choose_gpu_window(program, placed.graph, worker.delta, hops, devices)
        return WorklistOptions(
            delta, worker.window, worker.ring_items, adapts=adapts, hops=hops, gpu=options.gpu
        )

    seconds: dict[str, float] = {}

    def take(end: RunEnd) -> None:
        if end.overflows:
            raise overflow_error(program)
        if end.compile_s:
            seconds["compile"] = end.compile_s
        seconds["kernel"] = end.kernel_s
        if active() is None:
            counts = end.counts
            statistics.count_later(lambda them: them.take_counts(counts()))
        else:  # which notes a count
            statistics.take_counts(end.counts())

    chosen_by = (worker, options.in_steps, options.gpu)
    chosen: WorklistOptions = _engine().run_program(
        program.operators, placement, parts, chosen_by, choose, destination, take, poll,
    )  # fmt: skip
    seconds["gather"] = destination.seconds
    statistics.delta = None if program.priority is None else chosen.delta
    statistics.hops, statistics.window = chosen.hops, chosen.window
    return seconds


def _statistics(placed: PlacedGraph, name: str, options: SolverOptions) -> RunStatistics:
    names = placed.context.device_names
    return RunStatistics(names, "bulk-synchronous" if options.in_steps else name)


def overflow_error(program: VertexProgram) -> ValueOverflowError:
    """Return the error for a value that does not fit the program's dtype."""
    return ValueOverflowError(
        f"a message of program {program.name!r} does not fit {program.dtype.name}; "
        "declare a wider dtype"
    )


def _require_run_memory(
    program: VertexProgram, vertices: int, devices: int, options: SolverOptions
) -> None:
    """Raise GraphTooLargeError if values, worklists and mailboxes do not fit, before they are allocated."""
    value_bytes = 2 * program.dtype.itemsize + 8 * (program.field_dtype is not None)
    items = devices**2 * (options.worker.ring_items or DEFAULT_RING_ITEMS) + 2 * vertices
    items += (options.worker.capacity_items or 0) * devices
    require_memory(
        vertices * value_bytes + _ITEM_BYTES * items,
        f"running {program.name!r} on {vertices:,} vertices",
    )


def make_poll(options: SolverOptions, total: int | None = None) -> RunPoll | None:
    """Return a function that the calling thread repeats during a run: for the time-out and progress.

    :param total: number of items of the whole run, if it is known
    """
    trace = active()
    seldom = options.timeout_s is None and options.progress is None and trace is None
    if seldom and options.hand_over is None:
        return None
    return RunPoll(options.timeout_s, options.progress, trace, total, hand_over=options.hand_over)


def reset_beyond(program: VertexProgram, values: Array, limit: Any) -> None:
    """Reset values beyond the limit, which are not final: they depend on the schedule."""
    beyond = values > limit if program.combine == "min" else values < limit
    values[beyond] = program.identity


def _destination(
    program: VertexProgram, placed: PlacedGraph, result_dtype: Any, location: ResultLocation
) -> Destination:
    """Return the destination of results, for devices that leave them there themselves."""
    dtype = program.dtype if result_dtype is None else np.dtype(result_dtype)
    return Destination(
        location,
        dtype,
        never=identity_of(program.combine, dtype),
        ranges=len(placed.parts) == 1 or placed.partition.boundaries is not None,
    )


def converted(program: VertexProgram, values: Array, result_dtype: Any) -> Array:
    """Return values in a dtype at least as wide, whose own identity replaces the program's."""
    dtype = program.dtype if result_dtype is None else np.dtype(result_dtype)
    if values.dtype == dtype:
        return values
    never = identity_of(program.combine, dtype)
    if len(values) < _SMALL_VALUES:
        wide = values.astype(dtype)
        wide[values == program.identity] = never
    else:
        wide = np.empty(len(values), dtype)
        threads = 1 if len(values) < _VALUES_OF_A_TEAM else None
        arguments = (frozen(values), program.identity, never, wide)
        run_team(_convert, *arguments, threads=threads, brief=threads == 1)
    return wide


@kernel
def _convert(
    rank: int, size: int, control: Any, values: Any, identity: Any, never: Any, out: Any
) -> None:
    # Unsigned indices spare Numba's test for negative ones, so that the loop becomes one of vectors.
    begin, end = block_range(rank, size, len(values))
    for index in range(begin, end):
        value = values[np.uint64(index)]
        out[np.uint64(index)] = never if value == identity else value
