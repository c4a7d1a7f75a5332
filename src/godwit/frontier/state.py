"""The declarations and the state of a step program, checked, and the function that runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from godwit.dataflow.context import Context
from godwit.dtypes import Array, as_array, as_number
from godwit.errors import InputError, ValueOverflowError, shown
from godwit.frontier.code import (
    SIZE,
    VERTEX_COUNT,
    StepCode,
    StepError,
    StepState,
    reads_anywhere,
)
from godwit.frontier.operators import Names, Step, check_name, resolve_steps
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph
from godwit.graph.rows import require_memory
from godwit.placement import PlacedGraph, default_step_devices
from godwit.runtime.gpu_options import OF_FRONTIERS, OF_STEPS, GpuOptions, check_options, refuse
from godwit.runtime.polling import RunPoll
from godwit.runtime.protocol import Device
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps import place_positions
from godwit.trace import PROGRESS, active
from godwit.worker.options import SolverOptions

if TYPE_CHECKING:
    from godwit.supersteps.placement import StepPlacement

FieldInitial = int | float | Literal["degree", "vertex"] | Array
"""Initial values of a field."""

Frontier = Any
"""``"all"`` vertices, or some by id: a list, a set, an array or a pandas Series."""

_FIELD_DTYPES = ("int32", "uint32", "int64", "float32", "float64")
_NUMBER_DTYPES = ("int64", "float64")


@dataclass(frozen=True)
class Declarations:
    """Fields and numbers by name: dtypes and initial values (None: given to each run).

    :raises InputError: a wrong name, dtype or value
    """

    fields: Mapping[str, tuple[np.dtype[Any], FieldInitial | None]]
    numbers: Mapping[str, tuple[np.dtype[Any], int | float]]

    @classmethod
    def of(cls, fields: Any, numbers: Any) -> Declarations:
        """Return declarations from ``{name: (dtype, initial)}`` or ``{name: dtype}``."""
        declarations = cls(
            MappingProxyType(dict(_declared_fields({} if fields is None else fields))),
            MappingProxyType(dict(_declared_numbers({} if numbers is None else numbers))),
        )
        for name in declarations.fields:
            if name in declarations.numbers:
                raise InputError(f"{name!r} is the name of a field and of a number")
        return declarations

    def code(self, name: str, steps: tuple[Step, ...], *, of_arcs: bool = False) -> StepCode:
        """Return the code of steps on these fields and numbers.

        :param of_arcs: the frontier is of arcs when they begin
        """
        fields = {name: dtype for name, (dtype, _) in self.fields.items()}
        numbers = dict.fromkeys(("size", "vertex_count"), np.dtype(np.int64))  # SIZE, VERTEX_COUNT
        numbers |= {name: dtype for name, (dtype, _) in self.numbers.items()}
        instructions = resolve_steps(steps, Names(fields, numbers), of_arcs=of_arcs)
        return StepCode(name, tuple(fields.items()), tuple(numbers.items()), instructions)


def _declared_fields(given: Any) -> Iterator[tuple[str, tuple[np.dtype[Any], Any]]]:
    for name, declared in _mapping(given, "fields").items():
        what = f"field {check_name(name, 'a field')!r}"
        dtype, initial = _declared_pair(declared, what, None)
        kind = _dtype(dtype, what, _FIELD_DTYPES)
        if isinstance(initial, str):
            _check_word(initial, what)
        elif initial is not None and _is_scalar(initial):
            initial = _as_exact(as_number(initial, what), kind, what)
        yield name, (kind, initial)


def _declared_numbers(given: Any) -> Iterator[tuple[str, tuple[np.dtype[Any], int | float]]]:
    for name, declared in _mapping(given, "numbers").items():
        what = f"number {check_name(name, 'a number')!r}"
        dtype, initial = _declared_pair(declared, what, 0)
        kind = _dtype(dtype, what, _NUMBER_DTYPES)
        yield name, (kind, _as_exact(as_number(initial, what), kind, what))


def _declared_pair(declared: Any, what: str, otherwise: Any) -> tuple[Any, Any]:
    if not isinstance(declared, tuple):
        return declared, otherwise
    if len(declared) != 2:
        raise InputError(f"{what} must be a dtype, or (dtype, initial), got {shown(declared)}")
    return declared


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, list | tuple) and np.ndim(value) == 0


def _check_word(initial: str, what: str) -> None:
    if initial not in ("degree", "vertex"):
        raise InputError(
            f"{what} must begin with a number, 'degree', 'vertex' or an array, got {shown(initial)}"
        )


def initial_state(
    code: StepCode,
    graph: Graph,
    declarations: Declarations,
    given_fields: Mapping[str, FieldInitial] | None,
    given_numbers: Mapping[str, int | float] | None,
    frontier: Frontier,
) -> StepState:
    """Return the initial state of a run: values that the run was given, else those of declarations."""
    n = graph.vertex_count
    given_fields = _checked_names(given_fields, declarations.fields, "field", code.name)
    given_numbers = _checked_names(given_numbers, declarations.numbers, "number", code.name)
    _require_run_memory(code, graph)
    arrays = []
    for name, (dtype, initial) in declarations.fields.items():
        chosen = given_fields.get(name, initial)
        if chosen is None:
            raise InputError(
                f"field {name!r} begins with what the run is given: fields={{{name!r}: array}}"
            )
        arrays.append(field_array(name, dtype, chosen, graph))
    state = StepState(
        arrays,
        np.zeros(len(code.numbers), np.int64),
        np.zeros(len(code.numbers), np.float64),
        frontier_array(frontier, graph),
    )
    for index, (name, dtype) in enumerate(code.numbers):
        if index not in (SIZE, VERTEX_COUNT):
            what = f"number {name!r}"
            value = as_number(given_numbers.get(name, declarations.numbers[name][1]), what)
            state.set_number(code, index, _as_exact(value, dtype, what))
    state.integers[SIZE] = len(state.frontier)
    state.integers[VERTEX_COUNT] = n
    return state


def field_array(name: str, dtype: np.dtype[Any], initial: FieldInitial, graph: Graph) -> Array:
    """Return a new array (n) of a field's initial values."""
    n = graph.vertex_count
    initial = _in_order(initial, graph, f"field {name!r}")
    if isinstance(initial, str):
        _check_word(initial, f"field {name!r}")
        values = graph.out_degree() if initial == "degree" else np.arange(n)
    elif _is_scalar(initial):
        value = _as_exact(as_number(initial, f"field {name!r}"), dtype, f"field {name!r}")
        return np.full(n, value, dtype)
    else:
        values = as_array(initial, f"field {name!r}")
        if values.shape != (n,) or values.dtype.kind not in "iufb":
            raise InputError(
                f"field {name!r} must have a number for each of the {n} vertices, got an array of "
                f"shape {values.shape} and dtype {values.dtype}"
            )
    wrong = _inexact(values, dtype)
    if wrong.any():
        vertex = int(wrong.argmax())
        raise InputError(
            f"field {name!r} is {dtype.name}, which does not hold {shown(values[vertex])} of "
            f"vertex {shown(graph.ids[vertex])}"
        )
    return np.array(values, dtype)


def _in_order(initial: Any, graph: Graph, what: str) -> Any:
    """Return initial values by position; a mapping and a pandas Series have them by id."""
    values = graph.ids.by_position(initial, what)
    if not isinstance(values, Mapping):
        return values
    count = graph.vertex_count
    absent = next((position for position in range(count) if position not in values), None)
    if absent is not None:
        if isinstance(initial, Mapping):
            raise InputError(
                f"the keys of {what} must be all vertices, and {shown(graph.ids[absent])} is missing"
            )
        raise InputError(
            f"the labels of {what} must be all vertices, and {shown(graph.ids[absent])} is missing; "
            "series.reindex(list(graph.ids), fill_value=0) makes them so, and series.to_numpy() has none"
        )
    return [values[position] for position in range(count)]


def _inexact(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return a mask of the values that the dtype does not hold; floating-point values may be rounded."""
    wrong: Array
    if dtype.kind == "f":
        if values.dtype.kind != "f" or values.dtype.itemsize <= dtype.itemsize:
            return np.zeros(len(values), bool)
        wrong = np.isfinite(values) & (np.abs(values) > np.finfo(dtype).max)
        return wrong
    limits = np.iinfo(dtype)
    if values.dtype.kind != "f":
        wrong = (values < limits.min) | (values > limits.max)
        return wrong
    beyond = 2.0 * (limits.max // 2 + 1)  # limits.max + 1, a power of two: exact as a float
    wrong = ~((values >= limits.min) & (values < beyond)) | (values != np.floor(values))
    return wrong


def frontier_array(frontier: Any, graph: Graph) -> Array:
    """Return the positions of a frontier's vertices, ascending, each once."""
    dtype = graph.id_dtype
    if isinstance(frontier, str) and frontier == "all":
        return np.arange(graph.vertex_count, dtype=dtype)
    if frontier is None:
        raise InputError("frontier must be 'all' or an array of vertices, got None")
    if str(getattr(frontier, "dtype", "")) == "bool":
        raise InputError(
            "frontier must be 'all' or an array of vertices, got booleans: np.flatnonzero(mask) are "
            "the positions of a mask, and graph.ids.of(positions) the vertices"
        )
    return graph.ids.one_or_several(frontier, "frontier", or_none=True).astype(dtype)


def members_of(state: StepState, graph: Graph) -> Array:
    """Return the positions of the frontier's vertices, or the indexes of its arcs in ``graph.targets``."""
    if state.arcs is None:
        return state.frontier
    inside = np.zeros(graph.vertex_count, bool)
    inside[state.frontier] = True
    flags: Array = state.arcs.astype(bool) & np.repeat(inside, graph.out_degree())
    return np.flatnonzero(flags)


def placed_for_steps(graph: Any, devices: DevicesArgument) -> PlacedGraph:
    """Return the placed graph itself, or a new one on devices, to which nothing has been uploaded yet."""
    if isinstance(graph, PlacedGraph):
        if devices is not None:
            raise InputError("the graph is placed already: give devices to place()")
        graph.check_open()
        return graph
    if not isinstance(graph, Graph):
        raise not_a_graph(graph)
    context = Context(default_step_devices(graph) if devices is None else devices)
    return PlacedGraph(graph, context, None, 0, None)


def _check_gpu_options(code: StepCode, devices: Sequence[Device], gpu: GpuOptions) -> None:
    """Raise InputError for an option that does not apply to the program."""
    check_options(devices, gpu, "step programs", OF_FRONTIERS + OF_STEPS)
    step = reads_anywhere(code)
    if step is not None:
        refuse(
            devices, gpu, "selective",
            f"step program {code.name!r}, {step.label}, reads at vertices that a field names, which may be "
            "any device's; leave communication out",
        )  # fmt: skip


def run_code(
    code: StepCode, placed: PlacedGraph, state: StepState, options: SolverOptions
) -> RunStatistics:
    """Run a program on its state, which then has the results.

    :raises InputError: a field names no vertex, or an option does not apply to the program
    :raises ValueOverflowError: a value does not fit its field or number
    """
    devices, graph = placed.context.devices, placed.graph
    placed.check_all_duplicated(f"step program {code.name!r} runs")
    _check_gpu_options(code, devices, options.gpu)
    statistics = RunStatistics(tuple(device.name for device in devices), "step program")
    with statistics.phase("place"):
        positions = None if devices[0].kind == "cpu" else place_positions(placed)
    _run_placed(code, graph, devices, positions, state, options, statistics)
    return statistics


def run_code_together(
    code: StepCode, positions: StepPlacement, state: StepState, options: SolverOptions,
    max_items: int | None = None,
) -> RunStatistics:  # fmt: skip
    """Run a program on the GPUs of several processes, as :func:`run_code`; all of them call it alike.

    The state then has the values of those vertices whose results this process gets, and which of them are
    in the frontier.

    :param max_items: as of :class:`RunPoll`, of this process
    """
    _check_gpu_options(code, positions.devices, options.gpu)
    statistics = RunStatistics(tuple(device.name for device in positions.devices), "step program")
    devices, graph = positions.devices, positions.graph
    _run_placed(code, graph, devices, positions, state, options, statistics, max_items)
    return statistics


def _run_placed(
    code: StepCode, graph: Graph, devices: Sequence[Device], positions: StepPlacement | None,
    state: StepState, options: SolverOptions, statistics: RunStatistics,
    max_items: int | None = None,
) -> None:  # fmt: skip
    """Run a program on devices of the CPU, or on the GPUs of a placement, and fill in statistics."""
    with statistics.phase("run"):
        poll = RunPoll(options.timeout_s, options.progress, active(), max_items=max_items)
        try:
            with poll.noting_interruptions():
                if positions is None:
                    from godwit.frontier.cpu.program import run_steps_on_cores

                    counts = run_steps_on_cores(code, graph, devices, state, poll)
                else:
                    from godwit.frontier.cuda.run import run_steps_on_gpus

                    counts = run_steps_on_gpus(code, positions, state, poll, options.gpu)
        except StepError as failure:
            raise user_error(code, graph.vertex_count, failure) from None
    if counts.compile_s:
        statistics.split_run({"compile": counts.compile_s})
    for phase, seconds in (("kernel", counts.kernel_s), ("exchange", counts.exchange_s)):
        if seconds is not None:
            statistics.split_run({phase: seconds})
    statistics.frontier_bytes = counts.frontier_bytes
    statistics.rounds = np.full(len(devices), counts.supersteps, np.int64)
    statistics.processed_items = counts.processed
    trace = active()
    if trace is not None:
        trace.count(PROGRESS, int(counts.processed.sum()))
    statistics.arcs_relaxed = counts.arcs


def user_error(code: StepCode, vertex_count: int, failure: StepError) -> Exception:
    """Return the error that a user gets for the failure of an operator."""
    step = next(step for step in code.instructions() if step.index == failure.index)
    where = f"step program {code.name!r}, {step.label}"
    if failure.kind == "vertex":
        return InputError(
            f"{where}: a field that is to name a vertex has a value outside of [0, {vertex_count})"
        )
    declared = code.numbers if step.kind in ("reduce", "assign") else code.fields
    name, dtype = declared[step.into]
    wider = "" if dtype.itemsize == 8 else "; declare it as int64"
    return ValueOverflowError(f"{where}: a value does not fit {name!r}, of {dtype.name}{wider}")


def _require_run_memory(code: StepCode, graph: Graph) -> None:
    vertex_bytes = sum(dtype.itemsize for _, dtype in code.fields) + 2 * 8 + 1
    vertex_bytes += sum(accumulators.dtype.itemsize for accumulators in code.accumulators())
    flags = graph.arc_count if code.has_arcs else 0
    require_memory(vertex_bytes * graph.vertex_count + flags, f"the step program {code.name!r}")


def _mapping(given: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InputError(
            f"{what} must be a mapping such as {{name: (dtype, initial)}}, got {shown(given)}"
        )
    return given


def _checked_names(
    given: Any, declared: Mapping[str, Any], what: str, program: str
) -> Mapping[str, Any]:
    """Return the values given to a run; raise InputError for a name that the program lacks."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"{what}s must be a mapping such as {{name: value}}, got {shown(given)}")
    for name in given:
        if name not in declared:
            names = ", ".join(declared) or "none"
            raise InputError(f"program {program!r} has no {what} {shown(name)}; it has {names}")
    return given


def _dtype(dtype: Any, what: str, known: tuple[str, ...]) -> np.dtype[Any]:
    try:
        checked: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError):
        checked = np.dtype(object)
    if dtype is None or checked.name not in known:
        raise InputError(
            f"{what} must have one of the dtypes {', '.join(known)}, got {shown(dtype)}"
        )
    return checked.newbyteorder("=")


def _as_exact(value: int | float, dtype: np.dtype[Any], what: str) -> int | float:
    """Return the number; raise InputError if the dtype does not hold it."""
    if dtype.kind == "f":
        try:
            number = float(value)
        except OverflowError:
            raise InputError(f"{what} must be below 1e308, got {shown(value)}") from None
        if np.isfinite(number) and abs(number) > float(np.finfo(dtype).max):
            raise InputError(f"{what} is {dtype.name}, which does not hold {shown(value)}")
        return number
    limits = np.iinfo(dtype)
    if not limits.min <= value <= limits.max or value != int(value):  # NaN is not within
        raise InputError(f"{what} is {dtype.name}, which does not hold {shown(value)}")
    return int(value)
