"""A step program as a few lines of Python that call the templates of operators.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from godwit.frontier.code import Instruction, Operator, Read, StepCode, accumulator_dtype
from godwit.frontier.cpu import operators as templates
from godwit.frontier.cpu import team
from godwit.runtime.content import ADAPTERS
from godwit.runtime.cpu.values import by_reference, fits, returned

_ARC = "source, target, arc"


def accumulators_of(code: StepCode) -> dict[tuple[str, str], tuple[np.dtype[Any], Any]]:
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


class ProgramText:
    """The program as a Python function of (rank, size, control, state) that calls the templates."""

    def __init__(self, code: StepCode, weighted: bool) -> None:
        self._code = code
        self._weighted = weighted
        self._accumulators = list(accumulators_of(code))
        self._lines: list[str] = []
        self._helpers: list[str] = []
        self._namespace: dict[str, Any] = {
            "__name__": ADAPTERS,
            "at": np.uint64,
            "by_reference": by_reference,
            "int64": np.int64,
            "vertex_named": team.vertex_named,
            "fail": team.fail,
            "fits": fits,
            "returned": returned,
            **{name: getattr(templates, name) for name in _TEMPLATES},
            **{f"to_{name}": getattr(np, name) for name in _DTYPES},
            "condition": np.bool_,
            "inf": np.inf,
        }

    def entry(self) -> Callable[..., Any]:
        """The function."""
        self._steps(self._code.steps, 1)
        lines = ["def run_steps(rank, size, control, shared):", "    state = by_reference(shared)"]
        body = "\n".join([*lines, *self._lines])
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
        dtype = self._code.field_dtype(step.into)
        slot = self._accumulators.index((step.combine, dtype.name))
        wide = accumulator_dtype(step.combine, dtype)
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
        wanted = self._test(step, step.candidates, "candidates", "state, vertex", "")
        calls = [self._directed(one, wide, wanted) for one in step.directions()]
        return f"({calls[1]} if is_to_pull(state) else {calls[0]})" if step.turns else calls[0]

    def _directed(self, step: Instruction, wide: np.dtype[Any], wanted: str) -> str:
        """An advance that pushes, or one that pulls: what it calls, after what both share."""
        assert step.value is not None
        i, follows = step.index, not step.stays
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
        self._define(f"place_{i}", f"state, {_ARC}", f"return {self._vertex(step, step.place)}")
        return _call(
            "push", value.symbol, passes, f"place_{i}", f"deliver_{i}", f"merge_{i}", follows,
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
    "is_to_pull", "push", "pull", "select", "select_arcs", "compute", "reduce", "assign", "less",
    "greater", "better", "deliver_better", "deliver_sum",
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
