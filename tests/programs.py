"""Vertex programs that several tests run; few, since each is compiled once for every engine."""

from __future__ import annotations

from godwit import VertexProgram

WALKS = VertexProgram(
    name="walks",
    message=lambda value: value,
    combine="add",
    dtype="int64",
    activate=lambda value: value > 0,
    update=lambda field, value: field + value,
    field_dtype="int64",
)
"""Fields: how many walks lead from the start to each vertex; where there is a cycle, it never ends."""

GAINED = VertexProgram(name="gained", message=lambda value: value, combine="or", dtype="int64")
LOST = VertexProgram(name="lost", message=lambda value: value, combine="and", dtype="int64")
"""The bits that any vertex on a path to a vertex has, and those that all of them have."""
LABELS = VertexProgram(
    "labels", lambda value: value, "min", dtype="int32", initial=lambda vertices: 3 * vertices - 50
)
WIDEST = VertexProgram(
    "widest", lambda value, weight: 0 + min(value, weight), "max", priority=lambda value: -value
)
FEWEST_HOPS = VertexProgram(
    "fewest hops",
    lambda value, weight, add: value + (int(weight) << 32) + int(add),
    "min",
    dtype="int64",
    priority=lambda value: value >> 32,
    parameters={"add": 1.0},
)
NUMBERED = VertexProgram(
    "numbered",
    lambda value, vertex, degree: max(value, vertex + degree),
    "max",
    dtype="uint32",
    activate=lambda value: value > 3,
)
RESIDUAL = VertexProgram(
    "residual",
    lambda value, degree: 0.85 * value / degree,
    "add",
    initial=0.15,
    activate=lambda value: value > 1e-12,
    update=lambda field, value: field + value,
    field_dtype="float64",
)
