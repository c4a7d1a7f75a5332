"""Interactive use of operators, one at a time: :func:`explore`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from godwit.dtypes import Array, frozen
from godwit.errors import InputError, shown
from godwit.frontier.code import SIZE, VERTEX_COUNT, StepCode
from godwit.frontier.operators import Step
from godwit.frontier.state import (
    Declarations,
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

_PROGRAMS_KEPT = 64  # programs of a single step, with their compiled code


class Explorer:
    """A graph with fields, numbers and a frontier, on which operators run one at a time.

    Made by :func:`explore`; a context manager, which frees the memory of GPUs and writes the trace at its
    end. Operators do the same as in a :class:`StepProgram`.

    :ivar fields: (n) arrays by name, which may be written to between operators
    :ivar statistics: of the last operator that succeeded
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
        self._declarations = Declarations.of(fields, numbers)
        self._code = self._declarations.code("explored", ())
        self._state = initial_state(
            self._code, self.graph, self._declarations, None, None, frontier
        )
        self._programs: dict[tuple[Step, bool], StepCode] = {}
        self.fields: Mapping[str, Array] = MappingProxyType(
            dict(zip(self._declarations.fields, self._state.fields, strict=True))
        )
        self.statistics: RunStatistics | None = None

    def do(self, *steps: Step, timeout_s: float | None = None) -> int:
        """Run operators or loops, one after another, and return the size of the frontier.

        An operator that fails leaves numbers and the frontier unchanged, and the fields that it writes
        undefined.

        :raises InputError: an operator names a field or number that does not exist
        :raises OperatorError: an operator does not compile
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
            code = self._programs.get((step, of_arcs))
            if code is None:
                code = self._declarations.code("explored", (step,), of_arcs=of_arcs)
                if len(self._programs) >= _PROGRAMS_KEPT:
                    del self._programs[next(iter(self._programs))]
                self._programs[step, of_arcs] = code
            self._placed.check_open()
            with recorded(self._trace, step.label):
                self.statistics = run_code(code, self._placed, self._state, options)
        return int(self._state.integers[SIZE])

    @property
    def frontier(self) -> Array:
        """The positions of the frontier's vertices (or the indexes of its arcs), ascending; read-only.

        It can be set to ``"all"`` or to vertices by id; ``graph.ids.of(positions)`` are the ids at
        positions.
        """
        return frozen(members_of(self._state, self.graph).copy())

    @frontier.setter
    def frontier(self, frontier: Frontier) -> None:
        self._state.frontier = frontier_array(frontier, self.graph)
        self._state.arcs = None
        self._state.integers[SIZE] = len(self._state.frontier)

    @property
    def numbers(self) -> Mapping[str, int | float]:
        """The current numbers by name, read-only; :meth:`set` changes them."""
        return MappingProxyType(self._state.numbers(self._code))

    def set(self, **numbers: int | float) -> None:
        """Give numbers other values.

        :raises InputError: there is no such number, or its dtype does not hold the value
        """
        known = self._declarations.numbers
        for name, value in numbers.items():
            if name not in known:
                raise InputError(
                    f"there is no number {name!r}; there are {', '.join(known) or 'none'}"
                )
            exact = Declarations.of({}, {name: (known[name][0], value)}).numbers[name][1]
            self._state.set_number(self._code, VERTEX_COUNT + 1 + list(known).index(name), exact)

    def close(self) -> None:
        """Free the devices' memory, if the graph was placed here, and write the trace, once.

        Fields and numbers remain readable.

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
    """Return an explorer: a graph on which operators run one at a time.

    >>> import godwit as gw
    >>> explorer = gw.explore(gw.generators.star(5), fields={"degree_sum": ("int32", 0)})
    >>> explorer.do(gw.frontier.advance("degree_sum", lambda degree: degree, "add"))
    5
    >>> explorer.fields["degree_sum"].tolist()
    [4, 4, 4, 4, 4]

    :param fields: as of a :class:`StepProgram`
    :param numbers: as of a :class:`StepProgram`
    :param frontier: the initial frontier: ``"all"`` vertices, or some by id
    :param devices: as for :func:`godwit.bfs`
    :param trace: a file for the timeline of all operators, written when the explorer is closed, as the end
        of a ``with`` block does; or a :class:`godwit.Trace`
    :param gpu: how kernels are run
    :raises InputError: a wrong argument
    :raises FileError: the trace cannot be written
    """
    options = query_options(gpu=gpu)
    return Explorer(graph, fields, numbers, frontier, devices, trace, options.gpu)
