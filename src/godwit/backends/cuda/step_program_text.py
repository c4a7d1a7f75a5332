"""The lines that make a kernel of a step program: a struct a step, and the order of steps.

A phase of the kernel is ``2 * index`` of an instruction, and ``2 * index + 1`` for what follows it a
superstep later (merging what an advance has sent, settling what was computed aside). Numbers lie in the
first words of the state; assigning them, and asking whether loops end, is done between supersteps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.backends.cuda.instantiation import MAXIMAL_DEVICES, c_type
from godwit.backends.cuda.operators import DeviceFunction
from godwit.backends.cuda.steps import PEERS, ROWS, STAGE, THREADS
from godwit.backends.step_code import (
    VERTEX_COUNT,
    Instruction,
    Operator,
    Read,
    StepCode,
    accumulator_dtype,
)
from godwit.errors import InputError

MOST_ARRAYS = 24
"""Fields and accumulators together: a kernel takes so many pointers at every device."""
MOST_NUMBERS = 24
"""``size`` and ``vertex_count`` among them."""
SMALL = 4096
"""Where a device has no more positions, one of its blocks does everything, without the others."""
FAILED, REDUCTIONS, OPERATORS = 24, 25, 26
"""Words of the state behind the numbers, as in frontier.cuh."""

NOTHING = 0xFFFFFF
"""The phase of a superstep that does nothing: the first, and where a round of a loop does nothing else."""

_INT64 = np.dtype(np.int64)
_COMBINES = {"add": "COMBINE_ADD", "min": "COMBINE_MIN", "max": "COMBINE_MAX"}
_LOWEST_INT64 = "(-0x7fffffffffffffffll - 1)"
_IDENTITIES = {
    ("min", "int32"): "0x7fffffff", ("max", "int32"): "(-0x7fffffff - 1)",
    ("min", "uint32"): "0xffffffffu", ("max", "uint32"): "0u",
    ("min", "int64"): "0x7fffffffffffffffll", ("max", "int64"): _LOWEST_INT64,
    ("min", "float32"): "__int_as_float(0x7f800000)",
    ("max", "float32"): "-__int_as_float(0x7f800000)",
    ("min", "float64"): "__longlong_as_double(0x7ff0000000000000ll)",
    ("max", "float64"): "-__longlong_as_double(0x7ff0000000000000ll)",
}  # fmt: skip


@dataclass(frozen=True)
class Slot:
    """An array of accumulators: one for each combination and dtype of field.

    :param combine: ``"staged"`` where compute lays values aside
    """

    combine: str
    field: np.dtype[Any]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the accumulators."""
        return accumulator_dtype("add" if self.combine == "add" else "min", self.field)


def slots_of(code: StepCode) -> list[Slot]:
    """The accumulators that a program needs."""
    steps = (step for step in code.instructions() if step.kind == "advance" or step.staged)
    return list(dict.fromkeys(_slot(code, step) for step in steps))


def _slot(code: StepCode, step: Instruction) -> Slot:
    combine = step.combine if step.kind == "advance" else "staged"
    return Slot(combine, code.field_dtype(step.into))


def arguments_dtype(code: StepCode) -> np.dtype[Any]:
    """``Arguments`` of frontier.cuh."""
    return np.dtype(
        [
            ("stage", STAGE),
            ("out", ROWS),
            ("in", ROWS),
            ("out_weights", np.uint64),
            ("in_weights", np.uint64),
            ("vertices", np.uint64),
            ("positions", np.uint64),
            ("degrees", np.uint64),
            ("vertex_count", np.int64),
            ("long_rows", np.uint64),
            ("arcs", np.uint64),
            ("frontiers", PEERS),
            ("touched", PEERS),
            ("extremes", PEERS),
            ("fields", np.uint64, (len(code.fields) + 1, MAXIMAL_DEVICES)),
            ("accumulators", np.uint64, (len(slots_of(code)) + 1, MAXIMAL_DEVICES)),
        ]
    )


def shared_fields(code: StepCode) -> set[int]:
    """Fields that are read at vertices of other devices: their owners tell all."""
    found = set()
    for step in code.instructions():
        if step.kind == "advance" and step.combine != "add":
            found.add(step.into)  # what does not improve on it is not sent
        if step.place.kind == "field" and (step.place.at_target or step.pulls):
            found.add(step.place.index)
        for operator in step.operators():
            far = step.pulls and operator is not step.candidates
            for read in operator.reads:
                if read.kind == "field" and (read.via >= 0 or read.at_target or far):
                    found.add(read.index)
                if read.via >= 0 and (read.at_target or far):
                    found.add(read.via)
    return found


class ProgramText:
    """The kernel of a program, for positions and weights of given dtypes.

    :ivar source: CUDA C++
    :ivar functions: the user's, that it calls
    :raises InputError: more fields or numbers than a kernel takes
    """

    def __init__(self, code: StepCode, id_dtype: Any, weight_dtype: np.dtype[Any] | None) -> None:
        slots = slots_of(code)
        own = VERTEX_COUNT + 1
        if len(code.fields) + len(slots) > MOST_ARRAYS or len(code.numbers) > MOST_NUMBERS:
            raise InputError(
                f"step program {code.name!r} has {len(code.fields)} fields (and {len(slots)} kinds of "
                f"messages) and {len(code.numbers) - own} numbers; GPUs take {MOST_ARRAYS} and "
                f"{MOST_NUMBERS - own}"
            )
        self.functions: list[DeviceFunction] = []
        self._code, self._slots = code, slots
        self._weight = _INT64 if weight_dtype is None else weight_dtype
        self._weighted = weight_dtype is not None
        self._shared = shared_fields(code)
        self._bodies: list[str] = []
        self._after: list[str] = []
        self._places: list[str] = []
        structs = [self._struct(step) for step in code.instructions()]
        self._place(code.steps)
        end = len(self._places)
        self._places.append(f"        case {end}: return STOP;")
        self.source = f"""#include "step.cuh"
using Id = {c_type(np.dtype(id_dtype))};
using Weight = {c_type(self._weight)};
constexpr u32 FIELDS = {len(code.fields)}, SLOTS = {len(slots)};
constexpr bool PULLS = {_flag(code.pulls)};
#include "frontier_advance.cuh"
static_assert(sizeof(Stage) == {STAGE.itemsize});
static_assert(sizeof(Rows<int>) == {ROWS.itemsize});
static_assert(sizeof(Arguments) == {arguments_dtype(code).itemsize});
{"".join(structs)}
__device__ __forceinline__ u32 thread_decide(const Arguments &arguments, u32 phase,
                                             const Sums &totals, u64 *state) {{
    Tally tally;
    u32 at = 0;
    switch (phase & ~ALONE) {{
{chr(10).join(self._after)}
        default: break;
    }}
    while (true) {{
        if (state[FAILED]) return STOP;
        switch (at) {{
{chr(10).join(self._places)}
        default: return STOP;
        }}
    }}
}}

extern "C" __global__ void __launch_bounds__({THREADS}, 1)
work(const __grid_constant__ Arguments arguments) {{
    run_steps(
        arguments.stage,
        [&](u32 phase, const Team &team, StepBlock &block) {{
            const u64 *state = block.state;
            Tally tally;
            switch (phase & ~ALONE) {{
{chr(10).join(self._bodies)}
            default: break;
            }}
            warp_add_tally(tally, block);
        }},
        [&](u32 phase, const Sums &totals, u64 *state) {{
            const u32 next = thread_decide(arguments, phase, totals, state);
            return next != STOP && arguments.stage.capacity <= {SMALL} ? next | ALONE : next;
        }});
}}
"""

    # The order of steps: a case each. For a superstep it is left, and entered again behind it.

    def _place(self, steps: Sequence[Instruction]) -> None:
        for step in steps:
            here = len(self._places)
            step_of = f"Step{step.index}{{arguments, state}}"
            if step.kind == "repeat":
                first = here
                self._place(step.body)
                if not _has_superstep(step.body):
                    here = len(self._places)
                    phase = NOTHING - 1 - step.index
                    self._places.append(f"        case {here}: return {phase};")
                    self._after.append(f"        case {phase}: at = {here + 1}; break;")
                here = len(self._places)
                self._places.append(
                    f"        case {here}: at = {step_of}.ends() ? {here + 1} : {first}; break;"
                )
            elif step.kind == "assign":
                self._places.append(
                    f"        case {here}: state[{step.into}] = bits_of_number("
                    f"thread_fit<Step{step.index}::Number>({step_of}.value(tally), tally)); "
                    f"if (tally.too_large) state[FAILED] = {1 + 2 * step.index}; "
                    f"at = {here + 1}; break;"
                )
            else:
                self._supersteps(step, here)

    def _supersteps(self, step: Instruction, here: int) -> None:
        """One or two, and what is done with their sums."""
        step_of, phase = f"Step{step.index}{{arguments, state}}", 2 * step.index
        self._places.append(f"        case {here}: return {phase};")
        failed = (
            f"if (totals.counts[STRAY]) state[FAILED] = {2 + 2 * step.index}; "
            f"if (totals.counts[TOO_LARGE]) state[FAILED] = {1 + 2 * step.index};"
        )
        back = f"at = {here + 1}; break;"
        size = "state[SIZE] = totals.counts[MEMBERS];"
        first, second = {
            "advance": ("team_pull" if step.pulls else "team_push", "team_merge"),
            "filter": ("team_filter", ""),
            "arcs": ("team_arcs", "team_arcs_settle"),
            "compute": ("team_compute", "team_settle" if step.staged else ""),
            "reduce": ("team_reduce", ""),
        }[step.kind]
        more = ", block" if first in ("team_push", "team_arcs") else ""
        body = f"{first}({step_of}, team{more}, tally);"
        self._bodies.append(f"            case {phase}: {body} break;")
        if second:
            follow = f"{second}({step_of}, team, tally);"
            self._bodies.append(f"            case {phase + 1}: {follow} break;")
            arcs = "state[SIZE] = totals.counts[TOTAL]; " if step.kind == "arcs" else ""
            self._after.append(
                f"        case {phase}: {arcs}{failed} if (state[FAILED]) return STOP; return {phase + 1};"
            )
            phase += 1
        does = f"{failed} state[OPERATORS] += 1;"
        if step.kind == "filter" or (step.kind == "advance" and not step.stays):
            does += f" {size}"
        if step.kind == "reduce":
            does += f" state[{step.into}] = thread_reduced({step_of}, totals, state);"
        self._after.append(f"        case {phase}: {does} {back}")

    # A struct a step.

    def _struct(self, step: Instruction) -> str:
        code = self._code
        lines = ["const Arguments &arguments;", "const u64 *state;  // numbers"]
        if step.kind in ("reduce", "assign"):
            lines.append(f"using Number = {_number_type(code, step.into)};")
        if step.kind in ("advance", "compute"):
            lines.append(f"using Field = {c_type(code.field_dtype(step.into))};")
            lines.append(f"static constexpr u32 FIELD = {step.into};")
            lines.append(f"static constexpr bool SHARED = {_flag(step.into in self._shared)};")
        if step.kind == "advance" or step.staged:
            lines.append(f"static constexpr u32 SLOT = {self._slots.index(_slot(code, step))};")
        if step.kind in ("advance", "reduce"):
            lines.append(f"static constexpr Combine COMBINE = {_COMBINES[step.combine]};")
        lines.append(f"static constexpr bool EVERYWHERE = {_flag(step.everywhere)};")
        lines.append(f"static constexpr bool STAGED = {_flag(step.staged)};")
        lines.append(f"static constexpr bool STAYS = {_flag(step.stays)};")
        lines.append(f"static constexpr bool MASKED = {_flag(step.masked)};")
        lines += getattr(self, f"_{step.kind}")(step)
        body = "\n    ".join(lines)
        return f"\n// {step.label}\nstruct Step{step.index} {{\n    {body}\n}};\n"

    def _advance(self, step: Instruction) -> list[str]:
        assert step.value is not None
        wide = self._slots[self._slots.index(_slot(self._code, step))].dtype
        ends = "i64 source, i64 target, i64 arc, Tally &tally"
        goal = "source"
        if step.place.at_target:
            goal = "target"
        if step.place.kind == "field":
            named = self._field(step.place.index, goal)
            goal = f"position_named(arguments, {named}, tally)"
        zero = "0" if wide.kind in "iu" else "0.0"
        none = zero if step.combine == "add" else _IDENTITIES[step.combine, wide.name]
        return [
            f"using Wide = {c_type(wide)};",
            _method("static Wide", "identity", "", none, const=False),
            _method("auto", "message", ends, self._call(step, step.value)),
            _method("bool", "keep", ends, self._test(step, step.keep)),
            _method(
                "bool", "candidate", "i64 source, Tally &tally", self._test(step, step.candidates)
            ),
            _method("i64", "place", "i64 source, i64 target, Tally &tally", goal),
        ]

    def _filter(self, step: Instruction) -> list[str]:
        return [_method("bool", "keep", "i64 source, Tally &tally", self._test(step, step.keep))]

    def _arcs(self, step: Instruction) -> list[str]:
        ends = "i64 source, i64 target, i64 arc, Tally &tally"
        return [_method("bool", "keep", ends, self._test(step, step.keep))]

    def _compute(self, step: Instruction) -> list[str]:
        assert step.value is not None
        return [_method("auto", "value", "i64 source, Tally &tally", self._call(step, step.value))]

    def _reduce(self, step: Instruction) -> list[str]:
        dtype = self._code.number_dtype(step.into)
        none = "0" if step.combine == "add" else _IDENTITIES[step.combine, dtype.name]
        return [*self._compute(step), _method("static Number", "identity", "", none, const=False)]

    def _assign(self, step: Instruction) -> list[str]:
        assert step.value is not None
        return [_method("auto", "value", "Tally &tally", self._call(step, step.value))]

    def _repeat(self, step: Instruction) -> list[str]:
        return [_method("bool", "ends", "", self._test(step, step.value))]

    # The user's functions.

    def _test(self, step: Instruction, operator: Operator | None) -> str:
        call = "true" if operator is None else self._call(step, operator)
        return f"static_cast<bool>({call})"

    def _call(self, step: Instruction, operator: Operator) -> str:
        symbol = f"godwit_{operator.symbol}"
        dtypes = tuple(self._dtype(read) for read in operator.reads)
        self.functions.append(DeviceFunction(symbol, operator.function, dtypes))
        given = ", ".join(self._expression(step, read) for read in operator.reads)
        return f"{symbol}({given})"

    def _dtype(self, read: Read) -> np.dtype[Any]:
        if read.kind == "field":
            return self._code.field_dtype(read.index)
        if read.kind == "number":
            return self._code.number_dtype(read.index)
        return self._weight if read.kind == "weight" else _INT64

    def _expression(self, step: Instruction, read: Read) -> str:
        """What a parameter stands for; ``source`` is the vertex itself where there is no arc."""
        if read.kind == "number":
            word = f"state[{read.index}]"
            whole = self._code.number_dtype(read.index).kind == "i"
            return f"static_cast<i64>({word})" if whole else f"amount_of({word})"
        if read.kind == "weight":
            side = "in" if step.pulls else "out"
            return f"arguments.{side}_weights[arc]" if self._weighted else "1ll"
        end = "target" if read.at_target else "source"
        if read.kind == "vertex":
            return f"static_cast<i64>(arguments.vertices[{end}])"
        if read.kind == "degree":
            return f"arguments.degrees[{end}]"
        if read.via >= 0:
            end = f"position_named(arguments, {self._field(read.via, end)}, tally)"
        return self._field(read.index, end)

    def _field(self, index: int, position: str) -> str:
        kind = c_type(self._code.field_dtype(index))
        return f"field_here<{kind}>(arguments, {index})[{position}]"


def _has_superstep(steps: Sequence[Instruction]) -> bool:
    return any(step.kind not in ("assign", "repeat") or _has_superstep(step.body) for step in steps)


def _number_type(code: StepCode, index: int) -> str:
    return c_type(code.number_dtype(index))


def _method(kind: str, name: str, taken: str, value: str, *, const: bool = True) -> str:
    qualifier = " const" if const else ""
    return f"__device__ __forceinline__ {kind} {name}({taken}){qualifier} {{ return {value}; }}"


def _flag(value: bool) -> str:
    return "true" if value else "false"
