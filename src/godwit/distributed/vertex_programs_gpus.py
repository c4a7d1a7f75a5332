"""Vertex programs on the GPUs of several processes, as step programs (:mod:`godwit.frontier`).

In a superstep all vertices that wait are processed, whatever their priority. A value that only improves is
combined with the messages where it is. One that accumulates is taken first: a copy of it is sent, and the
field ``sum`` begins again at zero. The schedule does not change the result, but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from godwit.distributed.gpu_graph import GpuGraph
from godwit.distributed.graph import kind_of
from godwit.distributed.step_programs_gpus import key_of, whole_array
from godwit.distributed.vertex_programs import DistributedSolution
from godwit.dtypes import Array
from godwit.errors import InputError, ValueOverflowError
from godwit.frontier.code import SIZE
from godwit.frontier.operators import Step, advance, compute, repeat
from godwit.frontier.operators import filter as filter_vertices
from godwit.frontier.program import StepProgram
from godwit.frontier.state import initial_state, run_code_together
from godwit.graph.ids import Vertex
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.content import ADAPTERS
from godwit.runtime.gpu_options import GpuOptions
from godwit.worker.options import query_options
from godwit.worker.program import Initial, VertexProgram
from godwit.worker.solve import most_items, overflow_error, reset_beyond, start_array
from godwit.worker.task import Start, as_value, combined, initial_values, start_values


@public
def run(
    program: VertexProgram,
    graph: GpuGraph,
    start: Start = "all",
    *,
    parameters: Mapping[str, float] | None = None,
    limit: Any = None,
    target: Vertex | None = None,
    execution: str = "auto",
    timeout_s: float | None = None,
    max_items: int | None = None,
    progress: ProgressArgument = None,
    gpu: GpuOptions | None = None,
) -> DistributedSolution:
    """Run a vertex program; return values of a range of vertices; see :func:`godwit.run`.

    Arrays of values have an element for each vertex of the graph, or for each in ``graph.vertices``.

    :param max_items: of each process
    """
    if not isinstance(program, VertexProgram):
        raise InputError(f"expected a VertexProgram, got a {type(program).__name__}")
    options = query_options(execution=execution, timeout_s=timeout_s, progress=progress, gpu=gpu)
    steps = _as_steps(program, has_limit=limit is not None)
    asked = parameters, limit, target, execution, max_items, kind_of(start), options.gpu
    initials = program.initial, program.field_initial
    arrays = [initial for initial in initials if not callable(initial)]
    key = key_of(steps.code, *initials)
    with graph.running("run", key, steps.declarations.fields, arrays, *asked):
        if execution == "asynchronous":
            raise InputError(
                "vertex programs run in supersteps on GPUs of several processes: leave execution out"
            )
        if program.combine not in ("min", "max") and (limit is not None or target is not None):
            raise InputError("limit and target are for programs that combine by min or max")
        plain, n = graph.graph, graph.vertex_count
        goal = None if target is None else plain.ids.position(target, "target")
        values, seeds = _initial(program, graph, start)
        fields: dict[str, Any] = {_values_of(program): values}
        if program.field_dtype is not None:
            fields["field"] = _of_all(program.field_initial, 0, n, program.field_dtype)
        given = program.parameter_values(parameters).tolist()
        numbers: dict[str, Any] = {name: given[i] for i, name in enumerate(_parameters(program))}
        worst = program.identity
        if limit is not None:
            worst = as_value(program, limit, "limit")
            numbers["limit"] = worst.item()
        state = initial_state(steps.code, plain, steps.declarations, fields, numbers, "all")
        state.frontier = seeds.astype(plain.id_dtype)
        state.integers[SIZE] = len(seeds)
        most = most_items(max_items, n) * len(steps.code.steps[0].body)
        try:
            statistics = run_code_together(steps.code, graph.steps, state, options, max_items=most)
        except ValueOverflowError:
            raise overflow_error(program) from None
        found = dict(zip(steps.declarations.fields, state.fields, strict=True))
        values = found[_values_of(program)]
        if goal is not None:
            own = graph.vertices
            here = values[goal - own.start] if goal in own else None
            (best,) = (value for value in graph.processes.share(here) if value is not None)
            worst = combined(program, worst, best)
        if limit is not None or goal is not None:
            reset_beyond(program, values, worst)
        graph.processes.report(statistics)
        return DistributedSolution(graph, values, found.get("field"), statistics)


def _initial(program: VertexProgram, graph: GpuGraph, start: Any) -> tuple[Array, Array]:
    """Return the initial values of all vertices, and the positions of those that are to be processed."""
    n, initial = graph.vertex_count, program.initial
    start = graph.graph.ids.by_position(start, "start", complete_is_array=False)
    if isinstance(start, Mapping):
        values = _of_all(initial, program.identity, n, program.dtype)
        graph.processes.require_same(start, "the mapping of values of start", "the same mapping")
        given = np.fromiter(start, np.int64, len(start))
        values[given] = combined(program, values[given], start_values(program, start))
        # Where values accumulate, initial values may be active themselves: all are examined.
        if program.combine != "add" or initial is None:
            return values, np.sort(given)
    else:
        if not (isinstance(start, str) and start == "all"):
            initial = start_array(whole_array(graph, "start", start), n)
        values = _of_all(initial, program.identity, n, program.dtype)
    return values, np.arange(n)


def _of_all(initial: Initial, identity: Any, count: int, dtype: np.dtype[Any]) -> Array:
    """Return initial values or fields of all vertices, a new array."""
    made = initial_values(initial, identity, np.arange(count), count, dtype)
    return np.array(np.broadcast_to(made, (count,)))


def _values_of(program: VertexProgram) -> str:
    """Return the name of the step program's field that has the values."""
    return "sum" if program.combine == "add" else "value"


def _parameters(program: VertexProgram) -> list[str]:
    """Return the names of the step program's numbers that are the program's parameters."""
    return [f"parameter_{i}" for i in range(len(program.parameters))]


def _as_steps(program: VertexProgram, *, has_limit: bool) -> StepProgram:
    """Return the step program of a vertex program, made once."""
    made = program.operators.compiled
    key = ("step program", has_limit)
    if key not in made:
        made[key] = _translated(program, has_limit=has_limit)
    steps: StepProgram = made[key]
    return steps


def _translated(program: VertexProgram, *, has_limit: bool) -> StepProgram:
    """Return a loop over supersteps, which ends when no vertex waits."""
    operators, parameters = program.operators, _parameters(program)
    given = f"({''.join(f'{name}, ' for name in [*parameters, '0.0'])})"
    reads = {
        "weight": operators.uses_weight,
        "degree": operators.uses_degree,
        "source": operators.uses_vertex,
        "field": program.field_dtype is not None,
    }
    sent = ["value", *(name for name, is_read in reads.items() if is_read), *parameters]
    others = ", ".join(name if is_read else "0" for name, is_read in reads.items())
    worse = "limit < {}" if program.combine == "min" else "limit > {}"

    message = f"function(value, {others}, {given})"
    keep = None
    waits = [] if program.activate is None else [f"function(value, {given})"]
    read = ["value", *(parameters if waits else [])]
    if has_limit:
        keep = _operator(operators.message, [*sent, "limit"], f"not {worse.format(f'({message})')}")
        waits.append(f"not {worse.format('value')}")
        read.append("limit")
    body: list[Step] = []
    if program.combine == "add":
        body.append(compute("value", lambda sum: sum))
    if waits:
        body.append(filter_vertices(_operator(operators.activate, read, " and ".join(waits))))
    if program.combine == "add":
        body.append(compute("sum", lambda: 0))
    if operators.update is not None:
        updated = _operator(
            operators.update, ["field", "value", *parameters], f"function(field, value, {given})"
        )
        body.append(compute("field", updated))
    into = _values_of(program)
    body.append(
        advance(into, _operator(operators.message, sent, message), program.combine, keep=keep)
    )
    fields: dict[str, Any] = {"value": (program.dtype, 0), into: program.dtype}
    if program.field_dtype is not None:
        fields["field"] = program.field_dtype
    numbers: dict[str, Any] = dict.fromkeys(parameters, "float64")
    if has_limit:
        numbers["limit"] = "float64" if program.dtype.kind == "f" else "int64"
    return StepProgram(
        program.name,
        fields=fields,
        numbers=numbers,
        steps=[repeat(body, until=lambda size: size == 0)],
    )


def _operator(function: Callable[..., Any], names: list[str], text: str) -> Callable[..., Any]:
    """Return a function of some names that returns an expression, which may call ``function``."""
    space: dict[str, Any] = {"function": function, "__name__": ADAPTERS}  # errors name the user's
    exec(f"def operator({', '.join(names)}):\n    return {text}\n", space)
    made: Callable[..., Any] = space["operator"]
    return made
