"""Operators one by one, for trying things out: :func:`explore`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from godwit.dtypes import Array, frozen
from godwit.errors import InputError, shown
from godwit.frontier.code import SIZE, VERTEX_COUNT, StepCode
from godwit.frontier.operators import Step
from godwit.frontier.state import (
    Declared,
    Frontier,
    frontier_array,
    initial_state,
    members_of,
    placed_for_steps,
    run_code,
)
from godwit.graph.csr import Graph
from godwit.placement import PlacedGraph
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.trace import Trace, TraceArgument, recorded, require_writable
from godwit.worker.options import SolverOptions, query_options

_PROGRAMS_KEPT = 64  # of single steps; what each has compiled is kept with it


class Explorer:
    """A graph with fields, numbers and a frontier, on which operators are run when they are asked for.

    Made by :func:`explore`, also for a ``with`` block, which gives the memory of GPUs back and writes the
    trace. What an operator does here is what it does in a :class:`StepProgram`.

    :ivar fields: (n) arrays by name; what is written into them, the next operator reads
    :ivar statistics: of the last operator that ran to its end
    """

    def __init__(
        self,
        graph: Graph | PlacedGraph,
        fields: Mapping[str, Any] | None,
        numbers: Mapping[str, Any] | None,
        frontier: Frontier,
        devices: DevicesArgument,
        trace: TraceArgument,
        gpu: GpuOptions,
    ) -> None:
        self._trace = trace if trace is None or isinstance(trace, Trace) else Trace()
        self._trace_path = None if isinstance(trace, Trace) else trace
        if self._trace_path is not None:
            require_writable(self._trace_path)
        self._placed = placed_for_steps(graph, devices)
        self._closes = self._placed is not graph
        self._gpu = gpu
        self.graph = self._placed.graph
        self._declared = Declared.of(fields, numbers)
        self._code = self._declared.code("explored", ())
        self._state = initial_state(self._code, self.graph, self._declared, None, None, frontier)
        self._programs: dict[tuple[int, bool], tuple[Step, StepCode]] = {}
        self.fields: Mapping[str, Array] = MappingProxyType(
            dict(zip(self._declared.fields, self._state.fields, strict=True))
        )
        self.statistics: RunStatistics | None = None

    def do(self, *steps: Step, timeout_s: float | None = None) -> int:
        """Run operators or loops, one after another; returns the size of the frontier.

        Of one that fails, numbers and the frontier are those from before it; what is in the fields that
        it writes is then undefined.

        :raises InputError: it names a field or number that is not there
        :raises OperatorError: it does not compile
        :raises ValueOverflowError: a value does not fit the integers of its field or number
        :raises RunTimeoutError: out of time
        """
        options = SolverOptions(timeout_s=timeout_s, gpu=self._gpu)
        for step in steps:
            if not isinstance(step, Step):
                raise InputError(
                    f"expected an operator such as gw.frontier.advance(...), got {shown(step)}"
                )
            of_arcs = self._state.arcs is not None
            kept = self._programs.get((id(step), of_arcs))
            if kept is None:
                code = self._declared.code("explored", (step,), of_arcs=of_arcs)
                if len(self._programs) >= _PROGRAMS_KEPT:
                    del self._programs[next(iter(self._programs))]
                kept = self._programs[id(step), of_arcs] = (step, code)
            self._placed.check_open()
            with recorded(self._trace, kept[1].steps[0].label):
                self.statistics = run_code(kept[1], self._placed, self._state, options)
        return int(self._state.integers[SIZE])

    @property
    def frontier(self) -> Array:
        """The positions of the vertices (or arcs) in the frontier, ascending, for indexing arrays.

        What is read is a copy that cannot be written into. It can be set to ``"all"`` or to vertices by id,
        as those at some positions are by ``graph.ids.of(positions)``.
        """
        return frozen(members_of(self._state, self.graph).copy())

    @frontier.setter
    def frontier(self, frontier: Frontier) -> None:
        self._state.frontier = frontier_array(frontier, self.graph)
        self._state.arcs = None
        self._state.integers[SIZE] = len(self._state.frontier)

    @property
    def numbers(self) -> Mapping[str, int | float]:
        """The numbers by name, as they are now, to be read; :meth:`set` changes one."""
        return MappingProxyType(
            {
                name: self._state.number(self._code, index)
                for index, (name, _) in enumerate(self._code.numbers)
            }
        )

    def set(self, **numbers: int | float) -> None:
        """Give numbers other values.

        :raises InputError: there is no such number, or its dtype does not hold the value
        """
        known = self._declared.numbers
        for name, value in numbers.items():
            if name not in known:
                raise InputError(
                    f"there is no number {name!r}; there are {', '.join(known) or 'none'}"
                )
            exact = Declared.of({}, {name: (known[name][0], value)}).numbers[name][1]
            self._state.set_number(self._code, VERTEX_COUNT + 1 + list(known).index(name), exact)

    def close(self) -> None:
        """Give the devices' memory back, if the graph was placed here, and write the trace, once.

        Arrays and numbers stay.

        :raises FileError: the trace cannot be written
        """
        if self._closes:
            self._placed.close()
        path, self._trace_path = self._trace_path, None
        if path is not None and self._trace is not None:
            self._trace.write(path)

    def __enter__(self) -> Explorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"Explorer({self.graph.vertex_count} vertices, fields {', '.join(self.fields)}, "
            f"{self._state.integers[SIZE]} in the frontier)"
        )


def explore(
    graph: Graph | PlacedGraph,
    *,
    fields: Mapping[str, Any] | None = None,
    numbers: Mapping[str, Any] | None = None,
    frontier: Frontier = "all",
    devices: DevicesArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> Explorer:
    """A graph to run operators on, one at a time.

    >>> import godwit as gw
    >>> explorer = gw.explore(gw.generators.star(5), fields={"degree_sum": ("int32", 0)})
    >>> explorer.do(gw.frontier.advance("degree_sum", lambda degree: degree, "add"))
    5
    >>> explorer.fields["degree_sum"].tolist()
    [4, 4, 4, 4, 4]

    :param fields: as of a :class:`StepProgram`
    :param numbers: likewise
    :param frontier: at the beginning: ``"all"`` vertices, or some by id
    :param devices: as for :func:`godwit.bfs`
    :param trace: a file for the timeline of all operators, written when the explorer is closed, as the end
        of a ``with`` block does; or a :class:`godwit.Trace`
    :param gpu: how kernels are run
    :raises InputError: a wrong argument
    :raises FileError: the trace cannot be written
    """
    options = query_options(gpu=gpu)
    return Explorer(graph, fields, numbers, frontier, devices, trace, options.gpu)
