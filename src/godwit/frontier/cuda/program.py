"""The CUDA source of a step program: a struct for each step, and the order of steps.

A phase of the kernel is ``2 * index`` of an instruction, and ``2 * index + 1`` for the superstep that
follows it (merging the messages of an advance, copying staged values of compute). The pulling form of an
automatic advance has the bit TURNED. Numbers are the first words of the state; they are assigned, and
conditions of loops evaluated, between supersteps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from godwit.errors import InputError
from godwit.frontier.code import (
    PULL_SHARE,
    VERTEX_COUNT,
    Instruction,
    Operator,
    Read,
    StepCode,
    shared_fields,
)
from godwit.runtime.cuda.compile import c_type, layout_checks, number_bits
from godwit.runtime.cuda.operators import DeviceFunction
from godwit.runtime.cuda.structs import struct_dtype
from godwit.supersteps.run import THREADS, engine_layout_checks
from godwit.worker.program import identity_of

FAILED, REDUCTIONS, OPERATORS, QUEUE, FORM, REPLICATED = 24, 25, 26, 27, 28, 29
"""Words of the state behind the numbers, as in frontier.cuh."""
BROADCAST, TURNED = 0x20000000, 0x10000000
"""Bits of a phase, as in queue.cuh."""
MOST_ARRAYS = 24
"""Limit of fields and accumulators together, whose pointers on every device a kernel takes."""
MOST_NUMBERS = 24
"""Limit of numbers, ``size`` and ``vertex_count`` included."""
SMALL = 4096
"""Largest number of positions of a device for which one of its blocks does everything alone."""
NOTHING = 0xFFFFFF
"""Phase of an empty superstep: the first, and one in each round of a loop that has no other."""

_INT64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


def arguments_dtype(code: StepCode) -> np.dtype[Any]:
    """Return the dtype of ``Arguments`` of frontier.cuh."""
    sizes = {"FIELDS": len(code.fields), "SLOTS": len(code.accumulators())}
    return struct_dtype("frontier/cuda/frontier.cuh", "Arguments", **sizes)


class ProgramText:
    """The kernel of a program, for given dtypes of positions and weights.

    :ivar source: CUDA C++
    :ivar functions: the user's functions that it calls
    :raises InputError: more fields or numbers than a kernel takes
    """

    def __init__(self, code: StepCode, id_dtype: Any, weight_dtype: np.dtype[Any] | None) -> None:
        slots = code.accumulators()
        reserved = VERTEX_COUNT + 1
        if len(code.fields) + len(slots) > MOST_ARRAYS or len(code.numbers) > MOST_NUMBERS:
            raise InputError(
                f"step program {code.name!r} has {len(code.fields)} fields (and {len(slots)} kinds of "
                f"messages) and {len(code.numbers) - reserved} numbers; GPUs take {MOST_ARRAYS} and "
                f"{MOST_NUMBERS - reserved}"
            )
        self.functions: list[DeviceFunction] = []
        self._code, self._slots = code, slots
        self._weight = _INT64 if weight_dtype is None else weight_dtype
        self._weighted = weight_dtype is not None
        self._shared = shared_fields(code)
        self._bodies: list[str] = []
        self._after: list[str] = []
        self._cases: list[str] = []
        structs = [
            self._struct(step, _name_of(whole, step))
            for whole in code.instructions()
            for step in whole.directions()
        ]
        self._order(code.steps)
        end = len(self._cases)
        self._cases.append(f"        case {end}: return STOP;")
        self.source = f"""#include "supersteps/step.cuh"
using Id = {c_type(np.dtype(id_dtype))};
using Weight = {c_type(self._weight)};
constexpr u32 FIELDS = {len(code.fields)}, SLOTS = {len(slots)};
constexpr bool PULLS = {_flag(code.pulls)};
#include "frontier/cuda/advance.cuh"
{engine_layout_checks()}
{layout_checks("Arguments", arguments_dtype(code))}
{"".join(structs)}
__device__ __forceinline__ u32 thread_decide(const Arguments &arguments, u32 phase,
                                             const Sums &totals, u64 *state) {{
    Tally tally;
    u32 at = 0;
    if (phase & BROADCAST) {{
        state[REPLICATED] = 1;
        return phase & ~BROADCAST;
    }}
    switch (phase & ~ALONE) {{
{chr(10).join(self._after)}
        default: break;
    }}
    while (true) {{
        if (state[FAILED]) return STOP;
        switch (at) {{
{chr(10).join(self._cases)}
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
            if (PULLS && (phase & BROADCAST)) {{
                team_broadcast(arguments, team);
                return;
            }}
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

    # The order of steps: a case for each. The switch is left for a superstep, and entered again after it.

    def _order(self, steps: Sequence[Instruction]) -> None:
        for step in steps:
            here = len(self._cases)
            step_of = f"Step{step.index}{{arguments, state}}"
            if step.kind == "repeat":
                first = here
                self._order(step.body)
                if not _has_superstep(step.body):
                    here = len(self._cases)
                    phase = NOTHING - 1 - step.index
                    self._cases.append(f"        case {here}: return {phase};")
                    self._after.append(f"        case {phase}: at = {here + 1}; break;")
                here = len(self._cases)
                self._cases.append(
                    f"        case {here}: at = {step_of}.ends() ? {here + 1} : {first}; break;"
                )
            elif step.kind == "assign":
                self._cases.append(
                    f"        case {here}: state[{step.into}] = bits_of_number("
                    f"thread_fit<Step{step.index}::Number>({step_of}.value(tally), tally)); "
                    f"if (tally.too_large) state[FAILED] = {1 + 2 * step.index}; "
                    f"at = {here + 1}; break;"
                )
            else:
                self._supersteps(step, here)

    def _supersteps(self, step: Instruction, here: int) -> None:
        """Add the supersteps of a step: one or two, and what follows from their counts."""
        phase = 2 * step.index
        failed = (
            f"if (totals.counts[STRAY]) state[FAILED] = {2 + 2 * step.index}; "
            f"if (totals.counts[TOO_LARGE]) state[FAILED] = {1 + 2 * step.index};"
        )
        self._cases.append(f"        case {here}: {_begin(step, phase)}")
        self._body(step)
        second = {"advance": "team_merge", "arcs": "team_take_arcs"}.get(step.kind, "")
        if step.kind == "compute" and step.staged:
            second = "team_unstage"
        if second:
            block = ", block" if second == "team_merge" else ""
            follow = f"{second}(Step{step.index}{{arguments, state}}, team{block}, tally);"
            self._bodies.append(f"            case {phase + 1}: {follow} break;")
            arcs = "state[SIZE] = totals.counts[TOTAL]; " if step.kind == "arcs" else ""
            for one in step.directions():
                self._after.append(
                    f"        case {_phase_of(step, one)}: {failed} if (state[FAILED]) return STOP; {arcs}"
                    f"{_go_on(one, phase + 1)}"
                )
            phase += 1
        does = f"{failed} state[OPERATORS] += 1; {self._outcome(step)}"
        self._after.append(f"        case {phase}: {does} at = {here + 1}; break;")

    def _body(self, step: Instruction) -> None:
        """Add the first superstep of a step, in each direction."""
        for one in step.directions():
            does = f"team_{step.kind}"
            if step.kind == "advance":
                does = "team_pull" if one.pulls else "team_push"
            more = ", block" if does in ("team_push", "team_arcs") else ""
            call = f"{does}({_name_of(step, one)}{{arguments, state}}, team{more}, tally);"
            self._bodies.append(f"            case {_phase_of(step, one)}: {call} break;")

    def _outcome(self, step: Instruction) -> str:
        """Return the statements that end a step."""
        if step.kind == "reduce":
            step_of = f"Step{step.index}{{arguments, state}}"
            return f"state[{step.into}] = thread_reduced({step_of}, totals, state);"
        if step.kind == "advance" and step.stays:
            return "thread_keep_frontier(arguments, state);"
        if step.kind not in ("advance", "filter", "arcs"):
            return ""
        size = "" if step.kind == "arcs" else "state[SIZE] = totals.counts[MEMBERS]; "
        if step.everywhere:
            return f"{size}thread_take_frontier(arguments, totals, state, false); state[REPLICATED] = 1;"
        form = "LISTED" if step.kind == "filter" else "LISTED_TOUCHED"
        return f"{size}thread_take_frontier(arguments, totals, state, has_form(state, {form}));"

    # A struct for each step.

    def _struct(self, step: Instruction, name: str) -> str:
        code = self._code
        lines = ["const Arguments &arguments;", "const u64 *state;  // numbers"]
        if step.kind in ("reduce", "assign"):
            lines.append(f"using Number = {c_type(code.number_dtype(step.into))};")
        if step.kind in ("advance", "compute"):
            lines.append(f"using Field = {c_type(code.field_dtype(step.into))};")
            lines.append(f"static constexpr u32 FIELD = {step.into};")
            lines.append(f"static constexpr bool SHARED = {_flag(step.into in self._shared)};")
        if step.kind == "advance" or step.staged:
            lines.append(
                f"static constexpr u32 SLOT = {self._slots.index(code.accumulators_of(step))};"
            )
        if step.kind in ("advance", "reduce"):
            lines.append(f"static constexpr Combine COMBINE = COMBINE_{step.combine.upper()};")
        lines.append(f"static constexpr bool EVERYWHERE = {_flag(step.everywhere)};")
        lines.append(f"static constexpr bool STAGED = {_flag(step.staged)};")
        lines.append(f"static constexpr bool STAYS = {_flag(step.stays)};")
        lines.append(f"static constexpr bool MASKED = {_flag(step.masked)};")
        lines += getattr(self, f"_{step.kind}")(step)
        body = "\n    ".join(lines)
        return f"\n// {step.label}\nstruct {name} {{\n    {body}\n}};\n"

    def _advance(self, step: Instruction) -> list[str]:
        assert step.value is not None
        accumulators = self._code.accumulators_of(step)
        wide = accumulators.dtype
        ends = "i64 source, i64 target, i64 arc, Tally &tally"
        goal = "source"
        if step.goal.at_target:
            goal = "target"
        if step.goal.kind == "field":
            named = self._field(step.goal.index, goal)
            goal = f"position_named(arguments, {named}, tally)"
        identity = _literal(accumulators.identity, wide)
        chooses = _flag(step.candidates is not None)
        return [
            f"using Wide = {c_type(wide)};",
            f"static constexpr bool CHOOSES = {chooses};",
            _method("static Wide", "identity", "", identity, const=False),
            _method("auto", "message", ends, self._call(step, step.value, wide)),
            _method("bool", "keep", ends, self._test(step, step.keep)),
            _method(
                "bool", "candidate", "i64 source, Tally &tally", self._test(step, step.candidates)
            ),
            _method("i64", "goal", "i64 source, i64 target, Tally &tally", goal),
        ]

    def _filter(self, step: Instruction) -> list[str]:
        return [_method("bool", "keep", "i64 source, Tally &tally", self._test(step, step.keep))]

    def _arcs(self, step: Instruction) -> list[str]:
        ends = "i64 source, i64 target, i64 arc, Tally &tally"
        return [_method("bool", "keep", ends, self._test(step, step.keep))]

    def _compute(self, step: Instruction) -> list[str]:
        return [self._value(step, self._code.field_dtype(step.into), "i64 source, Tally &tally")]

    def _reduce(self, step: Instruction) -> list[str]:
        dtype = self._code.number_dtype(step.into)
        identity = _literal(identity_of(step.combine, dtype), dtype)
        return [
            self._value(step, dtype, "i64 source, Tally &tally"),
            _method("static Number", "identity", "", identity, const=False),
        ]

    def _assign(self, step: Instruction) -> list[str]:
        return [self._value(step, self._code.number_dtype(step.into), "Tally &tally")]

    def _value(self, step: Instruction, wanted: np.dtype[Any], taken: str) -> str:
        assert step.value is not None
        return _method("auto", "value", taken, self._call(step, step.value, wanted))

    def _repeat(self, step: Instruction) -> list[str]:
        return [_method("bool", "ends", "", self._test(step, step.value))]

    # The user's functions.

    def _test(self, step: Instruction, operator: Operator | None) -> str:
        call = "true" if operator is None else self._call(step, operator, _BOOL)
        return f"static_cast<bool>({call})"

    def _call(self, step: Instruction, operator: Operator, wanted: np.dtype[Any]) -> str:
        symbol = f"godwit_{operator.symbol}"
        dtypes = tuple(self._dtype(read) for read in operator.reads)
        function = DeviceFunction(symbol, operator.function, dtypes, wanted=wanted)
        if function not in self.functions:  # both directions have the same
            self.functions.append(function)
        given = ", ".join(self._expression(step, read) for read in operator.reads)
        return f"{symbol}({given})"

    def _dtype(self, read: Read) -> np.dtype[Any]:
        if read.kind == "field":
            return self._code.field_dtype(read.index)
        if read.kind == "number":
            return self._code.number_dtype(read.index)
        return self._weight if read.kind == "weight" else _INT64

    def _expression(self, step: Instruction, read: Read) -> str:
        """Return the value of a parameter; ``source`` is the vertex itself where there is no arc."""
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


def _name_of(whole: Instruction, step: Instruction) -> str:
    """Return the name of the struct of a step in one direction."""
    return f"Step{whole.index}Pulling" if whole.turns and step.pulls else f"Step{whole.index}"


def _phase_of(whole: Instruction, step: Instruction) -> str:
    """Return the phase of the first superstep of a step in one direction."""
    return f"{2 * whole.index}{' | TURNED' if whole.turns and step.pulls else ''}"


def _begin(step: Instruction, phase: int) -> str:
    """Return the statement that begins a step: its phase, with the direction and the blocks that work."""
    if step.pulls:
        turned = " | TURNED" if step.turns else ""
        pulling = f"return phase_of_pull(arguments, {phase}{turned}, state);"
        if not step.turns:
            return pulling
        large = f"state[SIZE] * {PULL_SHARE} > state[{VERTEX_COUNT}]"
        return f"if ({large}) {pulling} return phase_of_arcs({phase}, state);"
    if step.kind in ("advance", "arcs"):
        return f"return phase_of_arcs({phase}, state);"
    return f"return {phase};" if step.everywhere else f"return phase_of_members({phase}, state);"


def _go_on(step: Instruction, phase: int) -> str:
    """Return the statement that begins a step's second superstep."""
    if step.kind == "compute":
        return _begin(step, phase)
    if step.pulls:
        return f"return {phase};"
    sends = _flag(step.kind == "advance")
    return f"return {phase} | thread_have_touched(arguments, totals, state, {sends});"


def _has_superstep(steps: Sequence[Instruction]) -> bool:
    return any(step.kind not in ("assign", "repeat") or _has_superstep(step.body) for step in steps)


def _method(kind: str, name: str, taken: str, value: str, *, const: bool = True) -> str:
    qualifier = " const" if const else ""
    return f"__device__ __forceinline__ {kind} {name}({taken}){qualifier} {{ return {value}; }}"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _literal(number: Any, dtype: np.dtype[Any]) -> str:
    """Return a C++ constant of the number's bits."""
    bits = number_bits(number, dtype)
    if dtype.kind == "f":
        if dtype.itemsize == 4:
            return f"__int_as_float(static_cast<i32>({bits}u))"
        return f"__longlong_as_double(static_cast<i64>({bits}ull))"
    return f"static_cast<{c_type(dtype)}>({bits}ull)"
