"""Runs a step program on the cores: the few lines that call the templates, compiled as one kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from godwit import config
from godwit.backends.base import Device
from godwit.backends.cpu import step_operators as templates
from godwit.backends.cpu.step_values import fits, returned, wrong_return
from godwit.backends.step_code import (
    Instruction,
    Operator,
    Read,
    StepCode,
    StepCounts,
    StepError,
    StepState,
    accumulator_dtype,
    ends_with_arcs,
)
from godwit.dtypes import Array, frozen
from godwit.errors import OperatorError
from godwit.graph.csr import Graph
from godwit.parallel.content import ADAPTERS
from godwit.parallel.kernel import Kernel
from godwit.parallel.team import new_control, run_team

ALONE_WORK = 30_000
"""Graphs of less work than this, in arcs and vertices, are left to one thread: meeting takes longer."""

_ARC = "source, target, arc"
_NOTHING = np.empty(0, np.int64)


def run_steps_on_cores(
    code: StepCode,
    graph: Graph,
    devices: Sequence[Device],
    state: StepState,
    poll: Callable[[int], None] | None,
) -> StepCounts:
    """Run a program to its end by a team: all cores, or as many threads as there are virtual devices."""
    threads = len(devices)
    if devices[0].shares_memory:
        small = graph.arc_count + graph.vertex_count < ALONE_WORK
        threads = 1 if small else config.thread_count()
    weighted = code.reads("weight") and graph.weights is not None
    shared = _shared(code, graph, state, threads, weighted=weighted)
    control = new_control()
    begin = perf_counter()
    kernel = code.compiled.get(("cpu", weighted))
    if kernel is None:
        kernel = code.compiled["cpu", weighted] = Kernel(_Text(code, weighted).entry())
    try:
        kernel.prepare(0, threads, control, shared)
    except OperatorError as error:
        wrong = wrong_return(error)
        if wrong is None:
            raise
        raise OperatorError(f"step program {code.name!r}, {wrong}") from error
    compile_s = perf_counter() - begin
    words = shared.words
    run_team(
        kernel,
        shared,
        threads=threads,
        control=control,
        poll=None if poll is None else lambda: poll(int(words[templates.PROCESSED])),
    )
    failed = int(words[templates.FAILED])
    if failed:
        index, what = divmod(failed - 1, 2)
        raise StepError(index, "vertex" if what else "overflow")
    base, size = int(words[templates.BASE]), int(words[templates.LISTED])
    state.integers[:], state.floats[:] = shared.integers, shared.floats
    if code.has_arcs:
        state.arcs = shared.arcs if ends_with_arcs(code) else None
    state.frontier = np.sort(shared.frontiers[base : base + size])
    return StepCounts(
        supersteps=int(words[templates.SUPERSTEPS]),
        processed=int(words[templates.PROCESSED]),
        arcs=int(words[templates.ARCS]),
        compile_s=compile_s,
    )


def _shared(
    code: StepCode, graph: Graph, state: StepState, threads: int, *, weighted: bool
) -> templates.State:
    """The arrays that a team works on: of a run that fails, only fields remain changed."""
    n = graph.vertex_count
    reverse = graph.reverse if code.pulls else None
    blocks = n // templates.BLOCK + 1
    frontiers = np.empty(2 * n, graph.targets.dtype)
    frontiers[: len(state.frontier)] = state.frontier
    words = (n + 31) // 32
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
            np.full(n, identity, dtype) for dtype, identity in _accumulators(code).values()
        ),
        frontiers=frontiers,
        touched=np.zeros(words, np.uint32),
        waiting=np.empty(words if code.pulls else 0, np.uint32),
        buffers=np.empty(threads * templates.BUFFER, graph.targets.dtype),
        integer_parts=np.empty(blocks, np.int64),
        float_parts=np.empty(blocks, np.float64),
        arcs=_arc_flags(code, graph, state),
        words=control_words,
    )


def _arc_flags(code: StepCode, graph: Graph, state: StepState) -> Array:
    """A flag an arc, where the frontier may be of arcs."""
    if state.arcs is not None:
        return state.arcs.copy()
    return np.zeros(graph.arc_count if code.has_arcs else 0, np.uint8)


def _accumulators(code: StepCode) -> dict[tuple[str, str], tuple[np.dtype[Any], Any]]:
    """By combination and dtype of the field: dtype, and the identity that stands there meanwhile."""
    found: dict[tuple[str, str], tuple[np.dtype[Any], Any]] = {}
    for step in code.instructions():
        if step.kind == "advance" or step.staged:
            dtype = code.field_dtype(step.into)
            key = (step.combine if step.kind == "advance" else "staged", dtype.name)
            wide = accumulator_dtype("min" if step.staged else step.combine, dtype)
            found[key] = (wide, identity(step.combine, wide))
    return found


def identity(combine: str, dtype: np.dtype[Any]) -> int | float:
    """What every message improves on, or adds nothing."""
    if combine == "add":
        return 0 if dtype.kind in "iu" else 0.0
    if dtype.kind == "f":
        return np.inf if combine == "min" else -np.inf
    limits = np.iinfo(dtype)
    return int(limits.max if combine == "min" else limits.min)


class _Text:
    """The program as a Python function of (rank, size, control, state) that calls the templates."""

    def __init__(self, code: StepCode, weighted: bool) -> None:
        self._code = code
        self._weighted = weighted
        self._accumulators = list(_accumulators(code))
        self._lines: list[str] = []
        self._helpers: list[str] = []
        self._namespace: dict[str, Any] = {
            "__name__": ADAPTERS,
            "at": np.uint64,
            "int64": np.int64,
            "vertex_named": templates.vertex_named,
            "fail": templates.fail,
            "fits": fits,
            "returned": returned,
            **{name: getattr(templates, name) for name in _TEMPLATES},
            **{f"to_{name}": getattr(np, name) for name in _DTYPES},
            "inf": np.inf,
        }

    def entry(self) -> Callable[..., Any]:
        """The function."""
        self._steps(self._code.steps, 1)
        body = "\n".join(["def run_steps(rank, size, control, state):", *self._lines])
        for text in [*self._helpers, body]:
            exec(compile(text, f"<{self._code.name}>", "exec"), self._namespace)
        entry: Callable[..., Any] = self._namespace["run_steps"]
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
                call = getattr(self, f"_{step.kind}")(step)
                self._lines.append(f"{indent}if not {call}:")
                self._lines.append(f"{indent}    return")

    # One call of a template an operator.

    def _advance(self, step: Instruction) -> str:
        assert step.value is not None
        dtype = self._code.field_dtype(step.into)
        slot = self._accumulators.index((step.combine, dtype.name))
        wide = accumulator_dtype(step.combine, dtype)
        rows = "in_weights" if step.pulls else "weights"
        self._adapter(step, step.value, f"state, {_ARC}", converted=wide, weights=rows)
        keep = self._test(step, step.keep, "keep", f"state, {_ARC}", rows)
        i, field = step.index, f"state.fields[{step.into}]"
        kept = f"state.accumulators[{slot}]"
        start = _literal(identity(step.combine, wide))
        better = {"min": "less", "max": "greater"}.get(step.combine)
        convert = f"to_{dtype.name}"
        if better is None:
            new = f"{field}[at(vertex)] + {kept}[at(vertex)]"
            self._define(f"fold_{i}", "total, value", "return total + value")
            self._define(
                f"accept_{i}", "state, vertex, total", f"{kept}[at(vertex)] = total", "return True"
            )
            self._define(
                f"deliver_{i}", "state, vertex, sent", f"return deliver_sum({kept}, vertex, sent)"
            )
        else:
            new = f"{kept}[at(vertex)]"
            self._define(f"fold_{i}", "total, value", f"return better(total, value, {better})")
            self._define(
                f"accept_{i}",
                "state, vertex, total",
                f"if not {better}(total, {field}[at(vertex)]):",
                "    return False",
                f"{kept}[at(vertex)] = total",
                "return True",
            )
            self._define(
                f"deliver_{i}",
                "state, vertex, sent",
                f"return deliver_better({field}, {kept}, vertex, sent, {better})",
            )
        self._define(f"identity_{i}", "", f"return to_{wide.name}({start})")
        self._define(
            f"merge_{i}",
            "state, vertex",
            f"wide = {new}",
            *_check(step, dtype, wide),
            f"{field}[at(vertex)] = {convert}(wide)",
            f"{kept}[at(vertex)] = to_{wide.name}({start})",
        )
        message, follows = step.value.symbol, not step.stays
        if step.pulls:
            wanted = self._test(step, step.candidates, "candidates", "state, vertex", rows)
            return _call(
                "pull", message, keep, wanted, f"fold_{i}", f"identity_{i}", f"accept_{i}",
                f"merge_{i}", follows,
            )  # fmt: skip
        self._define(f"place_{i}", f"state, {_ARC}", f"return {self._vertex(step, step.place)}")
        return _call(
            "push", message, keep, f"place_{i}", f"deliver_{i}", f"merge_{i}", follows, step.masked
        )

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
            first = f"state.accumulators[{self._accumulators.index(('staged', dtype.name))}]"
        self._define(f"put_{i}", "state, vertex, value", f"{first}[at(vertex)] = value")
        self._define(f"settle_{i}", "state, vertex", f"{field}[at(vertex)] = {first}[at(vertex)]")
        return _call(
            "compute", step.value.symbol, f"put_{i}", f"settle_{i}", step.everywhere, step.staged
        )

    def _reduce(self, step: Instruction) -> str:
        assert step.value is not None
        dtype = self._code.number_dtype(step.into)
        self._adapter(step, step.value, "state, vertex", converted=dtype)
        i = step.index
        better = {"min": "less", "max": "greater"}.get(step.combine)
        fold = "total + value" if better is None else f"better(total, value, {better})"
        self._define(f"fold_{i}", "total, value", f"return {fold}")
        start = _literal(identity(step.combine, dtype))
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

    # The user's functions, and what their parameters stand for.

    def _test(
        self, step: Instruction, operator: Operator | None, role: str, taken: str, weights: str
    ) -> str:
        """The name of a function that says yes or no."""
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
        """A function of the state and vertices that calls the user's with what it reads."""
        given = ", ".join(self._expression(step, read, taken, weights) for read in operator.reads)
        symbol = operator.symbol
        self._namespace[f"{symbol}_operator"] = operator.function
        who = f"{step.label}: {symbol.rpartition('_')[0]}"
        call = f"returned({symbol}_operator({given}), {who!r})"
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

    def _vertex(self, step: Instruction, place: Read) -> str:
        """Where messages go."""
        end = "target" if place.at_target else "source"
        if place.kind == "vertex":
            return end
        return f"vertex_named(state, {step.index}, state.fields[{place.index}][at({end})])"

    def _define(self, name: str, taken: str, *lines: str) -> None:
        body = "\n    ".join(lines)
        self._helpers.append(f"def {name}({taken}):\n    {body}\n")


_TEMPLATES = (
    "push", "pull", "select", "select_arcs", "compute", "reduce", "assign", "less", "greater", "better",
    "deliver_better", "deliver_sum",
)  # fmt: skip
_DTYPES = ("int32", "uint32", "int64", "float32", "float64")


def _call(template: str, *arguments: Any) -> str:
    given = ", ".join(
        str(argument) for argument in ("rank", "size", "control", "state", *arguments)
    )
    return f"{template}({given})"


def _check(step: Instruction, dtype: np.dtype[Any], known: np.dtype[Any] | None) -> list[str]:
    """Lines that note if ``wide`` does not fit; none where its dtype, if it is known, cannot but fit."""
    if dtype.kind == "f" or known == dtype:
        return []
    limits = np.iinfo(dtype)
    return [
        f"if not fits(wide, int64({limits.min}), int64({limits.max})):",
        f"    fail(state, {step.index}, 0)",
    ]


def _literal(value: int | float) -> str:
    return "inf" if value == np.inf else "-inf" if value == -np.inf else repr(value)
