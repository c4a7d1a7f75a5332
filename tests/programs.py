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
