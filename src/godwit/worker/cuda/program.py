"""The CUDA source that makes a kernel of a VertexProgram: its types, constants and operators.

The structs that host and kernels share are declared here and, with the same names and order, in
``worker/cuda/part.cuh``; the generated code asserts that sizes and offsets of fields agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.runtime.cuda.compile import MAXIMAL_DEVICES, c_type, layout_checks, number_bits
from godwit.runtime.cuda.operators import DeviceFunction
from godwit.runtime.cuda.structs import struct_dtype
from godwit.worker.delta import LEAST_HOPS, MOST_HOPS
from godwit.worker.program import BITWISE, ProgramOperators

THREADS = 1024
"""Largest number of threads of a block."""
HUB_DEGREE = 1024
"""The whole grid expands longer rows."""
COUNTERS = (
    "processed", "useless", "arcs", "threshold_changes", "received", "filtered", "rounds", "waited",
    "cycles",
)  # fmt: skip

REQUEST = struct_dtype("worker/cuda/part.cuh", "Request")
PART = struct_dtype("worker/cuda/part.cuh", "Part")


def _with_counters(struct: str) -> np.dtype[Any]:
    """Return the dtype of a struct of part.cuh, with a name for each of its counters, which are last."""
    count = len(COUNTERS) + MAXIMAL_DEVICES
    dtype = struct_dtype("worker/cuda/part.cuh", struct, COUNTERS=count)
    *fields, _ = ((name, dtype[name]) for name in dtype.names or ())
    counters = ((name, np.int64) for name in COUNTERS)
    return np.dtype([*fields, *counters, ("sent", np.int64, MAXIMAL_DEVICES)], align=True)


CONTROL, OUTCOME = _with_counters("Control"), _with_counters("Outcome")
_COUNTER_MEMBERS = {name: f"counters[{name.upper()}]" for name in COUNTERS} | {
    "sent": "counters[SENT_TO]"
}
"""Fields of :data:`CONTROL` and :data:`OUTCOME` that C++ has in one array."""

BOARD_BYTES = 2 * MAXIMAL_DEVICES * (24 + 4 * MAXIMAL_DEVICES) + MAXIMAL_DEVICES * 32 * 4


@dataclass(frozen=True)
class Variant:
    """Properties of a graph for which a kernel is compiled.

    :param id_dtype: of vertex ids
    :param weight_dtype: of the weights; None if the program does not read them
    :param packed: short rows are queued with their vertices; for 32-bit ids and improving programs
    :param is_alone: the graph is on one device: less code is compiled
    :param delay_ns: random delays of blocks, for tests
    """

    id_dtype: np.dtype[Any]
    weight_dtype: np.dtype[Any] | None
    packed: bool = False
    is_alone: bool = False
    delay_ns: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes of a packed row with its weights."""
        weight = 0 if self.weight_dtype is None else 4 * self.weight_dtype.itemsize
        return 4 * self.id_dtype.itemsize + weight


def item_bytes(program: ProgramOperators, id_dtype: np.dtype[Any]) -> int:
    """Return the size of an item in a mailbox."""
    return 8 if program.value_dtype.itemsize == 4 and id_dtype.itemsize == 4 else 16


def hub_bytes(program: ProgramOperators) -> int:
    """Return the size of ``Hub`` of part.cuh."""
    field = program.field_dtype or program.value_dtype
    both = program.value_dtype.itemsize + field.itemsize
    return 32 + (both + 7) // 8 * 8


def source(program: ProgramOperators, variant: Variant, parameter_count: int) -> str:
    """Return the source of a program's kernels, which is compiled with :func:`functions`."""
    value = c_type(program.value_dtype)
    field_dtype = program.field_dtype or program.value_dtype
    field = c_type(field_dtype)
    weight = value if variant.weight_dtype is None else c_type(variant.weight_dtype)
    vertex = c_type(variant.id_dtype)
    given = "".join(f", p[{index}]" for index in range(parameter_count))
    returned = program.expressions or {
        "message": f"godwit_message(value, weight, degree, static_cast<Id>(vertex), field{given})",
        "activate": f"godwit_activate(value{given})",
        "priority": "godwit_priority(value)",
        "update": f"godwit_update(field, value{given})",
    }
    operators = [
        f"    static __device__ auto message(Value value, Weight weight, i64 degree, i64 vertex, "
        f"Field field, const double *p) {{ return {returned['message']}; }}",
        f"    static __device__ bool activate(Value value, const double *p) "
        f"{{ return {returned['activate']}; }}",
    ]
    if program.priority is not None:
        operators.append(
            f"    static __device__ auto priority(Value value) {{ return {returned['priority']}; }}"
        )
    if program.update is not None:
        operators.append(
            f"    static __device__ auto update(Field field, Value value, const double *p) "
            f"{{ return {returned['update']}; }}"
        )
    flags = {
        "accumulates": program.combine == "add",
        "maximizes": program.combine in ("max", "or"),
        "bitwise": program.combine in BITWISE,
        "has_field": program.field_dtype is not None,
        "weighted": variant.weight_dtype is not None,
        "prioritized": program.priority is not None,
        "packed": variant.packed,
        "uses_degree": program.uses_degree,
        "uses_vertex": program.uses_vertex,
    }
    constants = "\n".join(
        f"    static constexpr bool {name} = {str(flag).lower()};" for name, flag in flags.items()
    )
    body = "\n".join(operators)
    bits = number_bits(program.identity, program.value_dtype)
    alone = "#define ONE_DEVICE true\n" if variant.is_alone else ""
    delay = f"#define DELAY_NS {variant.delay_ns}ull\n" if variant.delay_ns else ""
    return f"""{alone}{delay}#include "worker/cuda/worker.cuh"
struct Program {{
    using Value = {value};
    using Field = {field};
    using Weight = {weight};
    using Id = {vertex};
{constants}
    static __device__ Value identity() {{ return value_of_bits<Value>({bits}ull); }}
{body}
}};
static_assert(HUB_DEGREE == {HUB_DEGREE});
static_assert(LEAST_HOPS == {LEAST_HOPS} && MOST_HOPS == {MOST_HOPS});
{layout_checks("Part<Program>", PART)}
{layout_checks("Request<Program>", REQUEST)}
{layout_checks("Control", CONTROL, _COUNTER_MEMBERS)}
{layout_checks("Outcome", OUTCOME, _COUNTER_MEMBERS)}
static_assert(sizeof(Board) == {BOARD_BYTES});
static_assert(sizeof(Hub<Program>) == {hub_bytes(program)});
static_assert(sizeof(Item<Program>) == {item_bytes(program, variant.id_dtype)});
extern "C" __global__ void __launch_bounds__({THREADS}, 1)
work(const __grid_constant__ Part<Program> part) {{
    grid_work(part);
}}
extern "C" __global__ void __launch_bounds__({THREADS})
pack_rows(const i64 *offsets, const Program::Id *targets, const Program::Weight *weights, i64 owned,
          Row<Program::Id> *rows, Row<Program::Weight> *row_weights) {{
    grid_pack_rows<Program>(offsets, targets, weights, owned, rows, row_weights);
}}
"""


def functions(
    program: ProgramOperators, variant: Variant, parameter_count: int
) -> list[DeviceFunction]:
    """Return the operators, with the types of the kernel's arguments; none if the source has them."""
    if program.expressions is not None:
        return []
    value = program.value_dtype
    weight = variant.weight_dtype or value
    degree = np.dtype(np.int64)
    field = program.field_dtype or value
    made = [
        DeviceFunction(
            "godwit_message",
            program.message,
            (value, weight, degree, variant.id_dtype, field),
            parameter_count,
            value,
        ),
        DeviceFunction(
            "godwit_activate", program.activate, (value,), parameter_count, np.dtype(np.bool_)
        ),
    ]
    if program.priority is not None:
        made.append(DeviceFunction("godwit_priority", program.priority, (value,), 0))
    if program.update is not None:
        made.append(
            DeviceFunction("godwit_update", program.update, (field, value), parameter_count, field)
        )
    return made
