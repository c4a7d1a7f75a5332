"""Runs a step program on the cores: as generated Python that calls the templates of operators.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from godwit import config
from godwit.dtypes import Array, frozen
from godwit.errors import OperatorError
from godwit.frontier.code import (
    Instruction,
    Operator,
    Read,
    StepCode,
    StepCounts,
    StepError,
    StepState,
)
from godwit.frontier.cpu import operators as templates
from godwit.graph.csr import Graph
from godwit.graph.facts import in_arcs
from godwit.runtime.content import ADAPTERS
from godwit.runtime.cpu.combinations import COMBINED, IMPROVES
from godwit.runtime.cpu.compile import Kernel
from godwit.runtime.cpu.team import new_control, run_team
from godwit.runtime.cpu.values import by_reference, fits, returned
from godwit.runtime.protocol import Device
from godwit.trace import seconds_since
from godwit.worker.program import identity_of

ONE_THREAD_WORK = 30_000
"""Graphs with fewer arcs and vertices together run on one thread: meetings would take longer."""

_ARC = "source, target, arc"
_TEMPLATES = (
    "is_to_pull", "push", "pull", "select", "select_arcs", "compute", "reduce", "assign",
    "better", "deliver_better", "deliver_sum", "vertex_named", "fail",
)  # fmt: skip
_DTYPES = ("int32", "uint32", "int64", "float32", "float64")
_NOTHING = np.empty(0, np.int64)


def run_steps_on_cores(
    code: StepCode,
    graph: Graph,
    devices: Sequence[Device],
    state: StepState,
    poll: Callable[[int], None] | None,
) -> StepCounts:
    """Run a program by a team of threads: one for each core, or for each virtual device."""
    threads = len(devices)
    if devices[0].shares_memory:
        small = graph.arc_count + graph.vertex_count < ONE_THREAD_WORK
        threads = 1 if small else config.thread_count()
    weighted = code.reads("weight") and graph.weights is not None
    shared = _shared(code, graph, state, threads, weighted=weighted)
    control = new_control()
    begin = perf_counter()
    kernel = code.compiled.get(("cpu", weighted))
    if kernel is None:
        kernel = code.compiled["cpu", weighted] = Kernel(ProgramText(code, weighted).entry())
    try:
        kernel.prepare(0, threads, control, shared)
    except OperatorError as error:
        raise OperatorError(f"step program {code.name!r}, {error}") from error.__cause__
    compile_s = seconds_since(begin, "compile")
    words = shared.words
    run_team(
        kernel,
        shared,
        threads=threads,
        control=control,
        poll=None if poll is None else lambda: poll(int(words[templates.PROCESSED])),
        tracks=None
        if devices[0].shares_memory
        else [(device.name, "worker") for device in devices],
    )
    failed = int(words[templates.FAILED])
    if failed:
        raise StepError.of_word(failed)
    base, size = int(words[templates.BASE]), int(words[templates.LISTED])
    state.integers[:], state.floats[:] = shared.integers, shared.floats
    if code.has_arcs:
        state.arcs = shared.arcs if code.ends_with_arcs else None
    state.frontier = np.sort(shared.frontiers[base : base + size])
    counts = np.zeros((2, len(devices)), np.int64)  # the first device counts the work of all
    counts[:, 0] = words[templates.PROCESSED], words[templates.ARCS]
    return StepCounts(int(words[templates.SUPERSTEPS]), counts[0], counts[1], compile_s)


def _shared(
    code: StepCode, graph: Graph, state: StepState, threads: int, *, weighted: bool
) -> templates.State:
    """Return the arrays that a team works on: copies of all state but fields, for runs that fail."""
    n = graph.vertex_count
    reverse = in_arcs(graph, weighted=weighted) if code.pulls else None
    blocks = n // templates.BLOCK + 1
    frontiers = np.empty(2 * n, graph.targets.dtype)
    frontiers[: len(state.frontier)] = state.frontier
    words = (n + 31) // 32
    flags = graph.arc_count if code.has_arcs else 0
    control_words = np.zeros(templates.WORD_COUNT, np.int64)
    control_words[templates.LISTED] = len(state.frontier)

    def weights_of(rows: Graph | None) -> Array:
        weights = None if rows is None or not weighted else rows.weights
        return frozen(_NOTHING if weights is None else weights)

    return templates.State(
        offsets=graph.offsets,
        targets=graph.targets,
        weights=weights_of(graph),
        in_offsets=frozen(_NOTHING) if reverse is None else reverse.offsets,
        in_targets=frozen(_NOTHING, graph.targets.dtype) if reverse is None else reverse.targets,
        in_weights=weights_of(reverse),
        fields=tuple(state.fields),
        integers=state.integers.copy(),
        floats=state.floats.copy(),
        accumulators=tuple(
            np.full(n, accumulators.identity, accumulators.dtype)
            for accumulators in code.accumulators()
        ),
        frontiers=frontiers,
        touched=np.zeros(words, np.uint32),
        waiting=np.empty(words if code.pulls else 0, np.uint32),
        buffers=np.empty(threads * templates.BUFFER, graph.targets.dtype),
        integer_parts=np.empty(blocks, np.int64),
        float_parts=np.empty(blocks, np.float64),
        arcs=np.zeros(flags, np.uint8) if state.arcs is None else state.arcs.copy(),
        words=control_words,
    )


class ProgramText:
    """A program as a Python function of (rank, size, control, state) that calls the templates."""

    def __init__(self, code: StepCode, weighted: bool) -> None:
        self._code = code
        self._weighted = weighted
        self._accumulators = code.accumulators()
        self._lines: list[str] = []
        self._helpers: list[str] = []
        self._namespace: dict[str, Any] = {
            "__name__": ADAPTERS,
            "at": np.uint64,
            "by_reference": by_reference,
            "int64": np.int64,
            "fits": fits,
            "returned": returned,
            **{name: getattr(templates, name) for name in _TEMPLATES},
            **{f"improves_{name}": function for name, function in IMPROVES.items()},
            **{f"combined_{name}": function for name, function in COMBINED.items()},
            **{f"to_{name}": getattr(np, name) for name in _DTYPES},
            "condition": np.bool_,
            "inf": np.inf,
        }

    def entry(self) -> Callable[..., Any]:
        """Return the function."""
        self._steps(self._code.steps, 1)
        lines = ["def run_steps(rank, size, control, shared):", "    state = by_reference(shared)"]
        return self._function("run_steps", [*lines, *self._lines])

    def _function(self, name: str, lines: list[str]) -> Callable[..., Any]:
        """Return the function that lines of text define, after all that they call."""
        for text in [*self._helpers, "\n".join(lines)]:
            exec(compile(text, f"<{self._code.name}>", "exec"), self._namespace)
        entry: Callable[..., Any] = self._namespace[name]
        return entry

    def _steps(self, steps: Sequence[Instruction], depth: int) -> None:
        indent = "    " * depth
        for step in steps:
            if step.kind == "repeat":
                assert step.value is not None
                self._adapter(step, step.value, "state")
                self._lines.append(f"{indent}while True:")
                self._steps(step.body, depth + 1)
                self._lines.append(f"{indent}    if {step.value.symbol}(state):")
                self._lines.append(f"{indent}        break")
            else:
                self._lines.append(f"{indent}if not {self._call_of(step)}:")
                self._lines.append(f"{indent}    return")

    # One call of a template for each operator.

    def _call_of(self, step: Instruction) -> str:
        call: str = getattr(self, f"_{step.kind}")(step)
        return call

    def _advance(self, step: Instruction) -> str:
        dtype = self._code.field_dtype(step.into)
        accumulators = self._code.accumulators_of(step)
        wide = accumulators.dtype
        i, field = step.index, f"state.fields[{step.into}]"
        kept = f"state.accumulators[{self._accumulators.index(accumulators)}]"
        start = _literal(accumulators.identity)
        convert = f"to_{dtype.name}"
        if step.combine == "add":
            new = f"{field}[at(vertex)] + {kept}[at(vertex)]"
            self._define(f"fold_{i}", "total, value", "return total + value")
            self._define(
                f"accept_{i}", "state, vertex, total", f"{kept}[at(vertex)] = total", "return True"
            )
            self._define(
                f"deliver_{i}", "state, vertex, sent", f"return deliver_sum({kept}, vertex, sent)"
            )
        else:
            improves, combined = f"improves_{step.combine}", f"combined_{step.combine}"
            new = f"{combined}({kept}[at(vertex)], {field}[at(vertex)])"
            fold = f"better(total, value, {improves}, {combined})"
            self._define(f"fold_{i}", "total, value", f"return {convert}({fold})")
            self._define(
                f"accept_{i}",
                "state, vertex, total",
                f"if not {improves}(total, {field}[at(vertex)]):",
                "    return False",
                f"{kept}[at(vertex)] = total",
                "return True",
            )
            self._define(
                f"deliver_{i}",
                "state, vertex, sent",
                f"return deliver_better({field}, {kept}, vertex, sent, {improves}, {combined})",
            )
        self._define(f"identity_{i}", "", f"return to_{wide.name}({start})")
        self._define(
            f"merge_{i}",
            "state, vertex",
            *self._before_merge(step),
            f"wide = {new}",
            *_check(step, dtype, wide),
            f"{field}[at(vertex)] = {convert}(wide)",
            f"{kept}[at(vertex)] = to_{wide.name}({start})",
        )
        wanted = self._test(step, step.candidates, "candidates", "state, vertex", "")
        calls = [self._directed(directed, wide, wanted) for directed in step.directions()]
        return f"({calls[1]} if is_to_pull(state) else {calls[0]})" if step.turns else calls[0]

    def _directed(self, step: Instruction, wide: np.dtype[Any], wanted: str) -> str:
        """Return the call of a pushing or pulling template, after defining its functions."""
        assert step.value is not None
        i, follows = step.index, self._follows(step)
        way, rows = ("pulled", "in_weights") if step.pulls else ("pushed", "weights")
        value = replace(step.value, symbol=f"message_{way}_{i}")
        self._adapter(step, value, f"state, {_ARC}", converted=wide, weights=rows)
        keep = step.keep and replace(step.keep, symbol=f"keep_{way}_{i}")
        passes = self._test(step, keep, f"keep_{way}", f"state, {_ARC}", rows)
        if step.pulls:
            return _call(
                "pull", value.symbol, passes, wanted, f"fold_{i}", f"identity_{i}", f"accept_{i}",
                f"merge_{i}", follows,
            )  # fmt: skip
        if step.candidates is not None:
            self._define(
                f"sends_{i}",
                f"state, {_ARC}",
                f"return {wanted}(state, target) and {passes}(state, {_ARC})",
            )
            passes = f"sends_{i}"
        self._define(f"goal_{i}", f"state, {_ARC}", f"return {self._goal(step)}")
        return _call(
            "push", value.symbol, passes, f"goal_{i}", f"deliver_{i}", f"merge_{i}", follows,
            step.masked,
        )  # fmt: skip

    def _filter(self, step: Instruction) -> str:
        keep = self._test(step, step.keep, "keep", "state, vertex", "")
        return _call("select", keep, step.everywhere)

    def _arcs(self, step: Instruction) -> str:
        keep = self._test(step, step.keep, "keep", f"state, {_ARC}", "weights")
        return _call("select_arcs", keep, step.masked)

    def _compute(self, step: Instruction) -> str:
        assert step.value is not None
        dtype = self._code.field_dtype(step.into)
        self._adapter(step, step.value, "state, vertex", converted=dtype)
        field, i = f"state.fields[{step.into}]", step.index
        first = field
        if step.staged:
            slot = self._accumulators.index(self._code.accumulators_of(step))
            first = f"state.accumulators[{slot}]"
        self._define(f"put_{i}", "state, vertex, value", f"{first}[at(vertex)] = value")
        self._define(f"unstage_{i}", "state, vertex", f"{field}[at(vertex)] = {first}[at(vertex)]")
        return _call(
            "compute", step.value.symbol, f"put_{i}", f"unstage_{i}", step.everywhere, step.staged
        )

    def _reduce(self, step: Instruction) -> str:
        assert step.value is not None
        dtype = self._code.number_dtype(step.into)
        self._adapter(step, step.value, "state, vertex", converted=dtype)
        i = step.index
        how = step.combine
        fold = f"better(total, value, improves_{how}, combined_{how})"
        if how == "add":
            fold = "total + value"
        self._define(f"fold_{i}", "total, value", f"return {fold}")
        start = _literal(identity_of(step.combine, dtype).item())
        self._define(f"identity_{i}", "", f"return to_{dtype.name}({start})")
        kind = "integer" if dtype.kind == "i" else "float"
        return _call(
            "reduce", step.value.symbol, f"fold_{i}", f"identity_{i}", f"state.{kind}_parts",
            f"state.{kind}s", step.into, step.everywhere,
        )  # fmt: skip

    def _assign(self, step: Instruction) -> str:
        assert step.value is not None
        dtype = self._code.number_dtype(step.into)
        self._adapter(step, step.value, "state", converted=dtype)
        numbers = "state.integers" if dtype.kind == "i" else "state.floats"
        return _call("assign", step.value.symbol, numbers, step.into)

    # The user's functions, with the values that their parameters read.

    def _test(
        self, step: Instruction, operator: Operator | None, role: str, taken: str, weights: str
    ) -> str:
        """Define the function that tests a condition (always True without an operator); return its name."""
        if operator is None:
            name = f"{role}_{step.index}"
            self._define(name, taken, "return True")
            return name
        self._adapter(step, operator, taken, weights=weights)
        return operator.symbol

    def _adapter(
        self,
        step: Instruction,
        operator: Operator,
        taken: str,
        *,
        converted: np.dtype[Any] | None = None,
        weights: str = "",
    ) -> None:
        """Define a function of the state and vertices that reads values and calls the user's function."""
        given = ", ".join(self._expression(step, read, taken, weights) for read in operator.reads)
        symbol = operator.symbol
        self._namespace[f"{symbol}_operator"] = operator.function
        who = f"{step.label}: {symbol.partition('_')[0]}"
        wanted = "condition" if converted is None else f"to_{converted.name}"
        call = f"returned({symbol}_operator({given}), {who!r}, {wanted})"
        if converted is None:
            self._define(symbol, taken, f"return bool({call})")
            return
        self._define(
            symbol,
            taken,
            f"wide = {call}",
            *_check(step, converted, None),
            f"return to_{converted.name}(wide)",
        )

    def _expression(self, step: Instruction, read: Read, taken: str, weights: str) -> str:
        if read.kind == "number":
            kind = "integers" if self._code.number_dtype(read.index).kind == "i" else "floats"
            return f"state.{kind}[{read.index}]"
        if read.kind == "weight":
            return f"state.{weights}[at(arc)]" if self._weighted else "int64(1)"
        arcs = taken.endswith(_ARC)
        end = "target" if read.at_target else "source" if arcs else "vertex"
        if read.kind == "vertex":
            return f"int64({end})"
        if read.kind == "degree":
            return f"(state.offsets[at({end} + 1)] - state.offsets[at({end})])"
        if read.via >= 0:
            named = f"state.fields[{read.via}][at({end})]"
            end = f"vertex_named(state, {step.index}, {named})"
        return f"state.fields[{read.index}][at({end})]"

    def _before_merge(self, step: Instruction) -> tuple[str, ...]:
        """Return lines before an accumulator is merged into its field."""
        return ()

    def _follows(self, step: Instruction) -> bool:
        """Return True if the vertices that got messages become the frontier."""
        return not step.stays

    def _goal(self, step: Instruction) -> str:
        """Return the vertex that messages go to."""
        end = "target" if step.goal.at_target else "source"
        if step.goal.kind == "vertex":
            return end
        return f"vertex_named(state, {step.index}, state.fields[{step.goal.index}][at({end})])"

    def _define(self, name: str, taken: str, *lines: str) -> None:
        body = "\n    ".join(lines)
        self._helpers.append(f"def {name}({taken}):\n    {body}\n")


def _call(template: str, *arguments: Any) -> str:
    given = ", ".join(
        str(argument) for argument in ("rank", "size", "control", "state", *arguments)
    )
    return f"{template}({given})"


def _check(step: Instruction, dtype: np.dtype[Any], known: np.dtype[Any] | None) -> list[str]:
    """Return generated lines that fail a step whose value, ``wide``, does not fit a dtype; or none."""
    if dtype.kind == "f" or known == dtype:
        return []
    limits = np.iinfo(dtype)
    return [
        f"if not fits(wide, int64({limits.min}), int64({limits.max})):",
        f"    fail(state, {step.index}, 0)",
    ]


def _literal(value: int | float) -> str:
    return "inf" if value == np.inf else "-inf" if value == -np.inf else repr(value)
