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
