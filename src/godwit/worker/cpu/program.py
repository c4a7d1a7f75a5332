"""Compiles a VertexProgram onto the worklist: binds its operators into the relax template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.runtime.protocol import Device, ProgressPoll
from godwit.runtime.statistics import WorklistCounts
from godwit.worker.cpu import relax
from godwit.worker.cpu.engine import run_threads, run_workers
from godwit.worker.cpu.relax import ProgramState
from godwit.worker.task import (
    PlacedPart,
    ProgramOperators,
    WorklistOperators,
    WorklistOptions,
)

SERIAL_ARCS = 20_000
"""Below so many arcs a second thread costs more than it brings."""
SMALLEST_FRONTIER = 4096


def _less(candidate: Any, current: Any) -> bool:
    return bool(candidate < current)


def _greater(candidate: Any, current: Any) -> bool:
    return bool(candidate > current)


def _never(candidate: Any, current: Any) -> bool:
    return False


_IMPROVES = {"min": _less, "max": _greater, "add": _never}


def worklist_operators(
    program: ProgramOperators, *, shared: bool, weighted: bool, item_bytes: int
) -> WorklistOperators:
    """The callbacks by which the worklist runs the program; the same object for the same question."""
    key = ("cpu", shared, weighted, item_bytes)
    found: WorklistOperators | None = program.compiled.get(key)
    if found is not None:
        return found
    dtype = program.value_dtype
    integer = dtype.kind in "iu"
    field_dtype = program.field_dtype or dtype
    bindings = {
        "process": relax.process_vertex,
        "initial_value": relax.vertex_value,
        "look_ahead": relax.prefetch_vertex,
        "fanout": relax.vertex_fanout,
        "owner": relax.owner_is_here,
        "on_send": relax.pass_on,
        "pack": relax.pack_halo,
        "unpack": relax.unpack_owned,
        "on_receive": relax.receive_vertex,
        "message": program.message,
        "activate": program.activate,
        "update": program.update or relax.update,
        "priority": program.priority,
        "improves": _IMPROVES[program.combine],
        "ACCUMULATES": program.combine == "add",
        "HAS_FIELD": program.field_dtype is not None,
        "WEIGHTED": weighted,
        "SHARED": shared,
        "VALUE": dtype.type,
        "FIELD": field_dtype.type,
        "CHECKS_RANGE": integer,
        "LOWEST_VALUE": int(np.iinfo(dtype).min) if integer else 0,
        "HIGHEST_VALUE": int(np.iinfo(dtype).max) if integer else 0,
        "CHECKS_FIELDS": field_dtype.kind in "iu",
        "LOWEST_FIELD": int(np.iinfo(field_dtype).min) if field_dtype.kind in "iu" else 0,
        "HIGHEST_FIELD": int(np.iinfo(field_dtype).max) if field_dtype.kind in "iu" else 0,
        "IDENTITY": program.identity.item(),
    }
    found = WorklistOperators(dtype, 16 if item_bytes == 16 else 8, bindings)
    program.compiled[key] = found
    return found


def run_program(
    program: ProgramOperators,
    devices: Sequence[Device],
    parts: Sequence[PlacedPart],
    options: WorklistOptions,
    poll: ProgressPoll | None,
) -> WorklistCounts:
    """Run a program to its end; the parts hold the result."""
    item_bytes = _item_bytes(program, parts)
    weighted = program.uses_weight and parts[0].graph.weights is not None
    states = [_program_state(part, weighted=weighted) for part in parts]
    threads = devices[0].threads
    shared = devices[0].shares_memory
    operators = worklist_operators(program, shared=shared, weighted=weighted, item_bytes=item_bytes)
    if not shared:
        seeds = [part.seeds for part in parts]
        names = [device.name for device in devices]
        return run_workers(operators, states, seeds, options, poll, names)
    graph = parts[0].graph
    if len(graph.targets) < SERIAL_ARCS:
        threads = 1
    frontier_items = max(SMALLEST_FRONTIER, len(graph.vertices))
    return run_threads(operators, states[0], parts[0].seeds, options, threads, frontier_items, poll)


def _item_bytes(program: ProgramOperators, parts: Sequence[PlacedPart]) -> int:
    """8 where a key and a value have 4 bytes each, else 16."""
    keys = max(max(len(part.values), len(part.halo_values)) for part in parts)
    return 8 if program.value_dtype.itemsize == 4 and keys < 1 << 32 else 16


def _program_state(part: PlacedPart, *, weighted: bool) -> ProgramState:
    graph = part.graph
    weights = graph.weights if weighted and graph.weights is not None else np.zeros(1, np.int32)
    return ProgramState(
        offsets=_read_only(graph.offsets),
        targets=_read_only(graph.targets),
        weights=_read_only(weights),
        owned=len(graph.vertices),
        vertices=_read_only(graph.vertices),
        halo_owner=_read_only(graph.halo_owner),
        halo_remote=_read_only(graph.halo_remote),
        values=part.values,
        halo_values=part.halo_values,
        pending=np.zeros(len(graph.halo_vertices), np.uint8),
        field=part.fields,
        limit=part.limit,
        target=part.target,
        parameters=part.parameters,
    )


def _read_only(array: Array) -> Array:
    """A view by which compiled code sees one type, whoever made the array."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
