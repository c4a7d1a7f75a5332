"""Step programs on several processes: each runs the operators on its own vertices, one after the other.

The operators are those of one process (:mod:`godwit.frontier.cpu`), on arrays that have a value for each
slot of the halo as well. Around each operator:

- before it, fields that it reads at the targets of arcs are fetched from the owners of remote ones, if they
  have changed since;
- an advance pushes, also where it may pull. What it combines for a remote vertex is sent to the owner,
  which combines that with what came there: each remote vertex that got a message is sent once. Vertices in
  the next frontier are those that one process would have there;
- a reduction's results are combined in the order of the processes, and sizes of frontiers are added.

A message is of use only if it improves the value at its target. The copy of a remote value may be worse
than the owner's; the message is sent for nothing then. So the field itself need not be fetched as
long as only advances of one kind write it.

Vertices' numbers and degrees are fields of their own here. Reading, or sending to, a vertex that a field
names is refused: any process may own it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from godwit import config
from godwit.distributed.gpu_graph import GpuGraph
from godwit.distributed.graph import DistributedGraph, by_id, kind_of, one_or_several
from godwit.distributed.result import DistributedResult
from godwit.dtypes import Array, as_array, frozen
from godwit.errors import InputError, OperatorError, ProcessError
from godwit.frontier.code import (
    SIZE,
    VERTEX_COUNT,
    Accumulators,
    Instruction,
    Operator,
    StepCode,
    StepError,
    StepState,
    reads_anywhere,
)
from godwit.frontier.cpu import operators as templates
from godwit.frontier.cpu.program import ONE_THREAD_WORK, ProgramText
from godwit.frontier.program import StepProgram, field_by_id
from godwit.frontier.state import Frontier, frontier_array, initial_state, user_error
from godwit.graph.interchange.tables import Column
from godwit.graph.rows import require_memory
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.cpu.compile import Kernel
from godwit.runtime.cpu.team import new_control, run_team
from godwit.runtime.polling import RunPoll
from godwit.runtime.statistics import RunStatistics
from godwit.worker.options import query_options

_COMBINED: dict[str, Any] = {
    "min": np.minimum,
    "max": np.maximum,
    "or": np.bitwise_or,
    "and": np.bitwise_and,
    "add": np.add,
}
_CHANGED = "changed"
"""State of a field that has to be fetched again, since not only advances of one combination wrote it."""


class DistributedStepResult(DistributedResult):
    """The own vertices' part of the result of a step program.

    :ivar fields: arrays by name, of the vertices in ``vertices``
    :ivar numbers: int or float, by name; the same in all processes
    """

    def __init__(
        self, graph: DistributedGraph | GpuGraph, fields: dict[str, Array],
        numbers: dict[str, int | float],
        members: Array, statistics: RunStatistics,
    ) -> None:  # fmt: skip
        super().__init__(graph, members, statistics)
        self.fields = fields
        self.numbers = numbers

    @property
    def frontier(self) -> Array:
        """Positions in the whole graph of the last frontier's vertices among those in ``vertices``."""
        positions: Array = np.flatnonzero(self._values) + self.vertices.start
        return positions

    @property
    def columns(self) -> list[Column]:
        """The fields."""
        return [Column(name, values) for name, values in self.fields.items()]

    def to_dict(self, field: str | None = None) -> dict[Any, int | float]:
        """Return the value of a field at each vertex in ``vertices``, by its id.

        :param field: its name; None for the only field
        :raises InputError: there is no such field, or several where none is named
        """
        return field_by_id(self.fields, field, self.ids)

    def _arrays(self) -> dict[str, Array]:
        return {**super()._arrays(), **{f"field {name}": a for name, a in self.fields.items()}}

    def _set_arrays(self, arrays: dict[str, Array]) -> None:
        self._values = arrays["_values"]
        self.fields = {name: arrays[f"field {name}"] for name in self.fields}

    def __repr__(self) -> str:
        kinds = ", ".join(f"{name}: {array.dtype}" for name, array in self.fields.items())
        return f"DistributedStepResult({len(self._values)} vertices, fields {kinds})"


@public
def run(
    program: StepProgram,
    graph: DistributedGraph,
    frontier: Frontier = "all",
    *,
    fields: Mapping[str, Any] | None = None,
    numbers: Mapping[str, int | float] | None = None,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
) -> DistributedStepResult:
    """Run a step program; return fields of the own vertices; see :meth:`StepProgram.run`.

    Arrays of fields have an element for each vertex of the whole graph, or for each of the own ones.
    """
    code, processes = program.code, graph.processes
    given = fields if isinstance(fields, Mapping) else {}
    kinds = sorted((repr(name), kind_of(values)) for name, values in given.items())
    same = repr(numbers), kind_of(frontier), kinds
    with processes.running("StepProgram.run", code.name, graph.vertex_count, *same):
        options = query_options(timeout_s=timeout_s, progress=progress)
        _check(code)
        state = _initial(program, graph, fields, numbers, frontier)
        statistics = RunStatistics(("cpu",), "step program")
        poll = RunPoll(options.timeout_s, options.progress, None)
        steps = _Run(program, graph, state, poll)
        with statistics.phase("run"), poll.noting_interruptions():
            try:
                steps.run(steps.code.steps)
            except StepError as failure:
                raise user_error(code, graph.vertex_count, failure) from None
        steps.report(statistics)
        names = program.declarations.fields
        n = len(graph.ids)
        return DistributedStepResult(
            graph,
            {name: array[:n].copy() for name, array in zip(names, steps.fields, strict=False)},
            steps.numbers(),
            steps.members(),
            statistics,
        )


def _check(code: StepCode) -> None:
    """Raise InputError for a program that processes do not run."""
    step = reads_anywhere(code)
    if step is not None:
        raise InputError(
            f"step program {code.name!r}, {step.label}, reads or writes at vertices that a field names, "
            "of which another process may have any: run it in one process"
        )
    check_end(code)


def check_end(code: StepCode) -> None:
    """Raise InputError for a program whose result is of arcs."""
    if code.ends_with_arcs:
        raise InputError(
            f"step program {code.name!r} ends with a frontier of arcs: on several processes, let the last "
            "frontier be one of vertices"
        )


class _Part:
    """The own vertices as a graph, of which initial values are made."""

    def __init__(self, graph: DistributedGraph) -> None:
        rows = graph.rows
        self.vertex_count, self.arc_count = rows.vertex_count, len(rows.targets)
        self.id_dtype, self.ids = rows.targets.dtype, graph.ids
        self._degree = np.diff(rows.offsets)

    def out_degree(self) -> Array:
        """Return the out-degrees."""
        return self._degree


def _initial(
    program: StepProgram, graph: DistributedGraph, fields: Any, numbers: Any, frontier: Any
) -> StepState:
    """Return the initial state of the own vertices."""
    part: Any = _Part(graph)
    given = dict(fields) if isinstance(fields, Mapping) else fields
    if given is None or isinstance(given, dict):
        declared = {name: initial for name, (_, initial) in program.declarations.fields.items()}
        given = {
            name: _own_values(graph, name, initial)
            for name, initial in {**declared, **(given or {})}.items()
            if initial is not None
        }
    state = initial_state(program.code, part, program.declarations, given, numbers, "all")
    if not (isinstance(frontier, str) and frontier == "all"):
        state.frontier = _own_frontier(graph, part, frontier).astype(part.id_dtype)
    sizes = graph.processes.meet(len(state.frontier))
    state.integers[SIZE], state.integers[VERTEX_COUNT] = int(sizes.sum()), graph.vertex_count
    return state


def _own_values(graph: DistributedGraph, name: str, initial: Any) -> Any:
    """Return initial values of the own vertices, as one process takes them of all."""
    own = graph.vertices
    initial = by_id(initial, f"field {name!r}")
    if isinstance(initial, Mapping):
        vertices = list(initial)
        found, _ = graph.ids._found(vertices)
        here = {vertices[index]: initial[vertices[index]] for index in found}
        counts = graph.processes.meet(len(here), len(initial))
        if (counts[:, 1] != counts[:, 0].sum()).any():
            graph.positions(list(initial), f"a vertex of field {name!r}")  # which raises
        return here
    if isinstance(initial, str):
        return np.arange(own.start, own.stop) if initial == "vertex" else initial
    values = as_array(initial, f"field {name!r}")
    if values.ndim == 0 or values.shape == (len(own),):
        return initial
    if values.shape != (graph.vertex_count,):
        raise InputError(
            f"field {name!r} must have a number for each of the {graph.vertex_count} vertices, or for each "
            f"of the {len(own)} of this process, got an array of shape {values.shape}"
        )
    return values[own.start : own.stop]


def _own_frontier(graph: DistributedGraph, part: Any, frontier: Any) -> Array:
    """Return the own vertices of a frontier, ascending, as numbers."""
    if frontier is None or str(getattr(frontier, "dtype", "")) == "bool":
        return frontier_array(frontier, part)  # which raises
    positions = np.unique(graph.positions(one_or_several(frontier, "frontier"), "frontier"))
    own = graph.vertices
    here: Array = positions[(positions >= own.start) & (positions < own.stop)] - own.start
    return here


def _plain(code: StepCode) -> StepCode:
    """Return the code that pushes everywhere, and reads numbers and degrees of vertices from fields."""
    first = len(code.fields)

    def with_fields(operator: Operator | None) -> Operator | None:
        if operator is None:
            return None
        indexes = {"vertex": first, "degree": first + 1}
        return replace(
            operator,
            reads=tuple(
                replace(read, kind="field", index=indexes[read.kind])
                if read.kind in indexes
                else read
                for read in operator.reads
            ),
        )

    def changed(step: Instruction) -> Instruction:
        return replace(
            step,
            pulls=False,
            turns=False,
            value=with_fields(step.value),
            keep=with_fields(step.keep),
            candidates=with_fields(step.candidates),
            body=tuple(map(changed, step.body)),
        )

    wide = np.dtype(np.int64)
    fields = (*code.fields, ("number of a vertex", wide), ("degree of a vertex", wide))
    return replace(code, fields=fields, steps=tuple(map(changed, code.steps)), compiled={})


class _SeparateSteps(ProgramText):
    """A program as a function of (rank, size, control, state, index), which runs the step of an index."""

    def entry(self) -> Callable[..., Any]:
        """Return the function."""
        lines = [
            "def run_step(rank, size, control, shared, index):",
            "    state = by_reference(shared)",
        ]
        for step in self._code.instructions():
            lines.append(f"    if index == {step.index}:")
            if step.kind == "repeat":
                assert step.value is not None
                self._adapter(step, step.value, "state")
                lines.append(f"        state.words[{templates.UNTIL}] = {step.value.symbol}(state)")
            else:
                lines.append(f"        {self._call_of(step)}")
        return self._function("run_step", lines)

    def _before_merge(self, step: Instruction) -> tuple[str, ...]:
        if step.combine == "add":  # only the sum of all processes has to fit
            return ("return",)
        return ("if vertex >= state.offsets.size - 1:", "    return")  # what is sent stays apart

    def _follows(self, step: Instruction) -> bool:
        return True


class _Run:
    """The part that one process has in a run.

    :ivar code: as it is run
    :ivar fields: over all slots, two more than the program has
    """

    def __init__(
        self, program: StepProgram, graph: DistributedGraph, state: StepState, poll: RunPoll
    ) -> None:
        original = program.code
        self.code: StepCode = original.compiled.setdefault("processes", _plain(original))
        self._processes, self._halo = graph.processes, graph.rows.halo
        rows, slots = graph.rows, graph.rows.halo.slots
        self._n = rows.vertex_count
        small = len(rows.targets) + self._n < ONE_THREAD_WORK
        self._threads = 1 if small else config.thread_count()
        self._poll = poll
        weighted = original.reads("weight") and rows.weights is not None
        self._weighted = weighted
        positions = graph.positions_of_slots(rows)
        wide = np.dtype(np.int64)
        own = [*state.fields, positions[: self._n], np.diff(rows.offsets).astype(wide)]
        self._accumulators = self.code.accumulators()
        item_bytes = 2 * rows.targets.itemsize + sum(values.itemsize for values in own)
        item_bytes += sum(np.dtype(kind.dtype).itemsize for kind in self._accumulators)
        require_memory(slots * item_bytes, f"running {program.name!r} on {self._n:,} vertices")
        self.fields = [np.zeros(slots, values.dtype) for values in own]
        for values, of_own in zip(self.fields, own, strict=True):
            values[: self._n] = of_own
        self.fields[-2][:] = positions
        self._changes: list[str | None] = [_CHANGED] * len(own)
        self._changes[-2] = None
        words = np.zeros(templates.WORD_COUNT, np.int64)
        words[templates.LISTED] = len(state.frontier)
        frontiers = np.empty(2 * slots, rows.targets.dtype)
        frontiers[: len(state.frontier)] = state.frontier
        nothing = frozen(np.empty(0, np.int64))
        blocks = self._n // templates.BLOCK + 1
        self._shared = templates.State(
            offsets=frozen(rows.offsets),
            targets=frozen(rows.targets),
            weights=frozen(rows.weights) if weighted and rows.weights is not None else nothing,
            in_offsets=nothing,
            in_targets=frozen(np.empty(0, rows.targets.dtype)),
            in_weights=nothing,
            fields=tuple(self.fields),
            integers=state.integers,
            floats=state.floats,
            accumulators=tuple(np.full(slots, a.identity, a.dtype) for a in self._accumulators),
            frontiers=frontiers,
            touched=np.zeros((slots + 31) // 32, np.uint32),
            waiting=np.empty(0, np.uint32),
            buffers=np.empty(self._threads * templates.BUFFER, rows.targets.dtype),
            integer_parts=np.empty(blocks, np.int64),
            float_parts=np.empty(blocks, np.float64),
            arcs=np.zeros(len(rows.targets) if original.has_arcs else 0, np.uint8),
            words=words,
        )
        self._state = state
        self._kernel = self._compiled()

    def _compiled(self) -> Kernel:
        """Return the kernel of all steps.

        :raises ProcessError: the processes have different programs
        """
        kernels = self.code.compiled
        if self._weighted not in kernels:
            kernels[self._weighted] = Kernel(_SeparateSteps(self.code, self._weighted).entry())
        kernel: Kernel = kernels[self._weighted]
        try:
            kernel.prepare(0, 1, new_control(), self._shared, 0)
        except OperatorError as error:
            raise OperatorError(f"step program {self.code.name!r}, {error}") from error.__cause__
        keys = self._processes.share(kernel.key)
        differs = next((rank for rank, key in enumerate(keys) if key != keys[0]), None)
        if differs is not None:
            raise ProcessError(
                f"processes 0 and {differs} have different programs {self.code.name!r}: operators, and "
                "constants that they use, must be the same in all processes"
            )
        return kernel

    def run(self, steps: tuple[Instruction, ...]) -> None:
        """Run steps one after the other; all processes call it."""
        for step in steps:
            if step.kind != "repeat":
                self._run_step(step)
                continue
            while True:
                self.run(step.body)
                self._call(step)
                if self._shared.words[templates.UNTIL]:
                    break

    def members(self) -> Array:
        """Return which own vertices are in the frontier, uint8."""
        members = np.zeros(self._n, np.uint8)
        members[self._frontier()] = 1
        return members

    def numbers(self) -> dict[str, int | float]:
        """Return all numbers by name."""
        return self._state.numbers(self.code)

    def report(self, statistics: RunStatistics) -> None:
        """Write counts of the run into its statistics; all processes call it."""
        words = self._shared.words
        statistics.rounds = words[templates.SUPERSTEPS : templates.SUPERSTEPS + 1].copy()
        statistics.processed_items = words[templates.PROCESSED : templates.PROCESSED + 1].copy()
        statistics.arcs_relaxed = words[templates.ARCS : templates.ARCS + 1].copy()
        self._processes.report(statistics)

    def _run_step(self, step: Instruction) -> None:
        """Run one step; all processes call it."""
        words, integers = self._shared.words, self._shared.integers
        for field in self._needed(step):
            self._fetch(field)
        before = self._frontier().copy() if step.stays else None
        size = int(integers[SIZE])
        self._call(step)
        if step.kind == "advance":
            self._deliver(step)
        elif step.kind == "compute":
            self._changes[step.into] = _CHANGED
        elif step.kind == "reduce":
            self._combine(step)
        if before is not None:
            self._set_frontier(before)
            integers[SIZE] = size
        elif step.kind in ("advance", "filter", "arcs"):
            listed = int(integers[SIZE] if step.kind == "arcs" else words[templates.LISTED])
            integers[SIZE] = int(self._processes.meet(listed).sum())

    def _needed(self, step: Instruction) -> Iterator[int]:
        """Return the fields of remote vertices that a step reads, and that have to be fetched."""
        read = {
            one.index
            for operator in step.operators()
            for one in operator.reads
            if one.kind == "field" and (one.at_target or operator is step.candidates)
        }
        for field in sorted(read):
            if self._changes[field] is not None:
                yield field
        compares = step.kind == "advance" and step.combine != "add" and step.goal.at_target
        if (
            compares
            and step.into not in read
            and self._changes[step.into] not in (None, step.combine)
        ):
            yield step.into

    def _fetch(self, field: int) -> None:
        """Set a field at remote vertices; all processes call it."""
        self._processes.meet()
        self._halo.refresh(self.fields[field], self._halo.border)
        self._changes[field] = None

    def _frontier(self) -> Array:
        base, listed = (int(self._shared.words[w]) for w in (templates.BASE, templates.LISTED))
        frontier: Array = self._shared.frontiers[base : base + listed]
        return frontier

    def _set_frontier(self, vertices: Array) -> None:
        words = self._shared.words
        words[templates.BASE], words[templates.LISTED] = 0, len(vertices)
        self._shared.frontiers[: len(vertices)] = vertices

    def _deliver(self, step: Instruction) -> None:
        """Send what remote vertices got, and combine what others send with the field and the frontier."""
        got = np.sort(self._frontier())
        own, slots = np.split(got, [np.searchsorted(got, self._n)])
        kind: Accumulators = self.code.accumulators_of(step)
        kept = self._shared.accumulators[self._accumulators.index(kind)]
        vertices, values = self._halo.to_owners(slots, kept[slots])
        field = self.fields[step.into]
        if step.combine == "add":
            self._set_frontier(np.union1d(own, vertices))
            self._add(step, field, kept, vertices, values)
        else:  # remote values change, too, so that no worse message is sent again
            field[slots] = _COMBINED[step.combine](field[slots], kept[slots])
            self._set_frontier(np.union1d(own, self._improve(step, field, vertices, values)))
        kept[slots] = kind.identity
        is_same = self._changes[step.into] in (None, step.combine) and step.combine != "add"
        self._changes[step.into] = step.combine if is_same else _CHANGED

    def _add(
        self, step: Instruction, field: Array, kept: Array, vertices: Array, values: Array
    ) -> None:
        """Add messages of this process and of others, whose sum has to fit, to the frontier's values."""
        got = self._frontier()
        with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN, as in one process
            np.add.at(kept, vertices, values)
            total = field[got].astype(kept.dtype) + kept[got]
            after = total.astype(field.dtype)
        if field.dtype.kind != "f" and (after != total).any():
            raise StepError(step.index, "overflow")
        field[got] = after
        kept[got] = 0

    def _improve(self, step: Instruction, field: Array, vertices: Array, values: Array) -> Array:
        """Combine messages of other processes with a field; return the vertices whose values improve."""
        used, which = np.unique(vertices, return_inverse=True)
        before = field[used]
        after = before.copy()
        _COMBINED[step.combine].at(after, which, values)
        improves = after != before
        gained: Array = used[improves]
        field[gained] = after[improves]
        return gained

    def _combine(self, step: Instruction) -> None:
        """Combine the number that each process has computed from its vertices."""
        is_integer = self.code.number_dtype(step.into).kind == "i"
        numbers = self._shared.integers if is_integer else self._shared.floats
        one = numbers[step.into : step.into + 1]
        bits = self._processes.meet(int(one.view(np.int64)[0]))[:, 0].copy()
        given = bits if is_integer else bits.view(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            numbers[step.into] = _COMBINED[step.combine].reduce(given)

    def _call(self, step: Instruction) -> None:
        """Run the compiled step on the threads of this process."""
        alone = step.kind in ("assign", "repeat")
        words = self._shared.words
        run_team(
            self._kernel, self._shared, step.index, threads=1 if alone else self._threads,
            poll=None if alone else self._report,
        )  # fmt: skip
        self._report()
        if words[templates.FAILED]:
            raise StepError.of_word(int(words[templates.FAILED]))

    def _report(self) -> None:
        self._poll(int(self._shared.words[templates.PROCESSED]))
