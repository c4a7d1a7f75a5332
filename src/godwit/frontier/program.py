"""Bulk-synchronous algorithms made of operators on a frontier: :class:`StepProgram`.

A program has fields (a value per vertex), numbers (one value for the whole graph) and a frontier (a set of
vertices), and is a sequence of operators and loops over them. Each operator is a superstep of its own,
which reads only values from before it began. Results depend neither on the order of vertices and arcs nor
on the number of devices, except for the rounding of floating-point sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from godwit.arrays import host_array
from godwit.dtypes import Array
from godwit.errors import InputError, shown
from godwit.frontier.code import Instruction
from godwit.frontier.operators import Step, as_steps
from godwit.frontier.state import (
    Declarations,
    FieldInitial,
    Frontier,
    initial_state,
    members_of,
    placed_for_steps,
    run_code,
)
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.interchange.tables import Column
from godwit.graph.result import VertexResult
from godwit.placement import PlacedGraph
from godwit.progress import ProgressArgument
from godwit.public import OnProcesses, or_distributed
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import query_options
from godwit.worker.program import program_name


class StepProgram:
    """A sequence of operators and loops, run on the devices without returning to the host in between.

    >>> import godwit as gw
    >>> levels = gw.StepProgram(
    ...     name="levels",
    ...     fields={"level": ("int32", 2**31 - 1)},
    ...     numbers={"now": ("int64", 0)},
    ...     steps=[
    ...         gw.frontier.compute("level", lambda: 0),
    ...         gw.frontier.repeat(
    ...             [
    ...                 gw.frontier.assign("now", lambda now: now + 1),
    ...                 gw.frontier.advance("level", lambda now: now, "min"),
    ...             ],
    ...             until=lambda size: size == 0,
    ...         ),
    ...     ],
    ... )
    >>> levels.run(gw.generators.path(4), frontier=[0]).fields["level"].tolist()
    [0, 1, 2, 3]

    :param name: shown in messages and traces
    :param fields: by name: the dtype (int32, uint32, int64, float32 or float64) and the initial value of
        every vertex: a number, ``"degree"`` (out-degree), ``"vertex"`` (its id), an array of shape (n), or
        a mapping or pandas Series, whose keys are all vertices, by id. With a dtype alone, :meth:`run`
        needs the values
    :param numbers: by name: the dtype (int64 or float64) and the initial value. ``size`` (of the frontier)
        and ``vertex_count`` always exist
    :param steps: operators and loops, made by functions of :mod:`godwit.frontier`
    :raises InputError: a wrong name, dtype or value, or a field or number that does not exist
    :raises OperatorError: an operator is no plain function, or has a parameter of an unknown name
    """

    def __init__(
        self,
        name: str,
        *,
        fields: Mapping[str, Any] | None = None,
        steps: Sequence[Step],
        numbers: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = program_name(name, "a step program")
        self.declarations = Declarations.of(fields, numbers)
        self.code = self.declarations.code(name, as_steps(steps, f"step program {name!r}"))

    @overload
    def run(self, graph: OnProcesses, frontier: Frontier = "all", **options: Any) -> Any: ...
    @overload
    def run(
        self,
        graph: Graph | PlacedGraph,
        frontier: Frontier = "all",
        *,
        fields: Mapping[str, FieldInitial] | None = None,
        numbers: Mapping[str, int | float] | None = None,
        devices: DevicesArgument = None,
        results: str = "host",
        timeout_s: float | None = None,
        progress: ProgressArgument = None,
        trace: TraceArgument = None,
        gpu: GpuOptions | None = None,
    ) -> StepResult: ...
    @or_distributed("godwit.distributed.step_programs", "godwit.distributed.step_programs_gpus")
    def run(
        self,
        graph: Graph | PlacedGraph,
        frontier: Frontier = "all",
        *,
        fields: Mapping[str, FieldInitial] | None = None,
        numbers: Mapping[str, int | float] | None = None,
        devices: DevicesArgument = None,
        results: str = "host",
        timeout_s: float | None = None,
        progress: ProgressArgument = None,
        trace: TraceArgument = None,
        gpu: GpuOptions | None = None,
    ) -> StepResult:
        """Run the program on a graph.

        :param frontier: the initial frontier: ``"all"`` vertices, or some by id (:attr:`Graph.ids`)
        :param fields: initial values, in place of the declared ones
        :param numbers: initial values, in place of the declared ones
        :param devices: as for :func:`godwit.bfs`; ``["cpu:0", "cpu:1"]`` run as two threads of one team
        :param results: where the resulting fields live, as for :func:`godwit.bfs`
        :param timeout_s: time limit in seconds, not counting compilation
        :param progress: as for :func:`godwit.bfs`: the number of vertices processed so far
        :param trace: a file for the timeline of the run, as for :func:`godwit.bfs`
        :param gpu: how kernels are run
        :raises InputError: a wrong argument, or a field that an operator reads as the number of a vertex
            has another value
        :raises OperatorError: an operator does not compile
        :raises ValueOverflowError: a value does not fit the integers of its field or number
        :raises RunTimeoutError: out of time
        """
        options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
        with recorded(trace, self.name):
            placed = placed_for_steps(graph, devices)
            try:
                state = initial_state(
                    self.code, placed.graph, self.declarations, fields, numbers, frontier
                )
                statistics = run_code(self.code, placed, state, options)
            finally:
                if placed is not graph:
                    placed.close()
        return StepResult(
            {
                name: options.location.place(array)
                for name, array in zip(self.declarations.fields, state.fields, strict=True)
            },
            state.numbers(self.code),
            members_of(state, placed.graph),
            statistics,
            placed.graph.ids,
        )

    def __repr__(self) -> str:
        def lines(steps: Sequence[Instruction], indent: int) -> list[str]:
            labels = []
            for step in steps:
                labels += [" " * indent + step.label, *lines(step.body, indent + 2)]
            return labels

        return "\n".join([f"StepProgram({self.name!r})", *lines(self.code.steps, 2)])


class StepResult(VertexResult):
    """Result of a step program.

    :ivar fields: (n) arrays by name
    :ivar numbers: int or float, by name; ``size`` and ``vertex_count`` among them
    :ivar frontier: the positions of the last frontier's vertices, ascending; or the indexes of its arcs in
        :attr:`Graph.targets`. ``graph.ids.of(frontier)`` are the ids of vertices, as
        :meth:`StepProgram.run` takes them for ``frontier``
    :ivar statistics: counts and times; ``rounds`` is the number of executed operators on vertices or
        arcs, ``processed_items`` the number of vertices that they processed
    """

    def __init__(
        self,
        fields: dict[str, Array],
        numbers: dict[str, int | float],
        frontier: Array,
        statistics: RunStatistics,
        ids: VertexIds,
    ) -> None:
        self.fields = fields
        self.numbers = numbers
        self.frontier = frontier
        self.statistics = statistics
        self._ids = ids

    @property
    def ids(self) -> VertexIds:
        """Ids of the vertices (:attr:`Graph.ids`)."""
        return self._ids

    @property
    def columns(self) -> list[Column]:
        """The fields."""
        return [Column(name, host_array(values)) for name, values in self.fields.items()]

    def to_dict(self, field: str | None = None) -> dict[Any, int | float]:
        """Return the value of a field at every vertex, by its id (:attr:`Graph.ids`).

        :param field: its name; None for the only field
        :raises InputError: there is no such field, or several where none is named
        """
        return field_by_id(self.fields, field, self.ids)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{name}: {array.dtype}" for name, array in self.fields.items())
        numbers = ", ".join(f"{name}={value}" for name, value in self.numbers.items())
        return f"StepResult(fields {shown(kinds)}, numbers {numbers})"


def field_by_id(
    fields: Mapping[str, Array], field: str | None, ids: VertexIds
) -> dict[Any, int | float]:
    """Return the value of a field at every vertex by its id; see :meth:`StepResult.to_dict`."""
    if field is None and len(fields) == 1:
        (field,) = fields
    if field not in list(fields):
        raise InputError(f"field must be one of {', '.join(fields)}, got {shown(field)}")
    values = host_array(fields[field]).tolist()
    return dict(zip(ids.of(np.arange(len(values))), values, strict=True))
