"""Core numbers on one GPU: arguments and results of core.cuh."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from time import perf_counter
from typing import Any

import numpy as np

from godwit.arrays import ResultLocation
from godwit.errors import GraphTooLargeError
from godwit.runtime.cuda.compile import c_type, compile_meanwhile
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.results import deliver_vertices
from godwit.supersteps.run import (
    ROWS,
    STAGE,
    STEP,
    StepPlan,
    left_rows_bytes,
    point_rows,
    step_source,
)

ARGUMENTS = np.dtype(
    [
        ("stage", STAGE),
        ("out", ROWS),
        ("in", ROWS),
        ("degree", np.uint64),
        ("core", np.uint64),
        ("left", np.uint64),
        ("left_count", np.uint64),
        ("left_room", np.uint64),
        ("listed", np.uint64),
        ("long_rows", np.uint64),
        ("counters", np.uint64),
        ("active", np.int64),
        ("out_arcs", np.int64),
        ("is_directed", np.uint32),
        ("has_loops", np.uint32),
    ]
)
"""``Arguments`` of core.cuh."""

_COUNTERS_BYTES = 16
_INDEX_BYTES = 4
_WARP = 32
_NO_IN_ARCS = 1 << 62


class Phase(IntEnum):
    """``CorePhase`` of the kernel."""

    CORE_BEGIN, CORE_LOOPS, CORE_SCAN, CORE_LIST = range(4)


class Word(IntEnum):
    """Words of ``control->state``: ``CoreState`` of the kernel."""

    LEVEL, REMAINING, LEVEL_REMOVED, LIST_BEGIN, LIST_END, LOOPS = range(6)


class Count(IntEnum):
    """Indices of the counts of a block: ``CoreCount`` of the kernel."""

    REMOVED, VISITED, LOOPS_SEEN = range(3)


@dataclass
class CoreOutcome:
    """Core numbers, work and times of a query.

    :param core: (n) int32
    :param removed: vertices that the kernel removed
    :param visited: arcs of their rows
    :param seconds: by phase: ``rows``, ``compile``, ``kernel``, ``gather``
    """

    core: Any
    removed: int
    visited: int
    supersteps: int
    seconds: dict[str, float] = field(default_factory=dict)


def source(id_dtype: Any) -> str:
    """Return the source of the kernel for a dtype of positions."""
    return step_source(
        "algorithms/core/core.cuh",
        ARGUMENTS,
        types={"Id": c_type(np.dtype(id_dtype))},
        work="grid_core",
        enums=(Phase, Word, Count),
    )


class CoreArrays:
    """The arrays of core numbers, kept on the device between queries."""

    def __init__(self, placement: StepPlacement) -> None:
        self.degree = DeviceArray(placement)
        self.core = DeviceArray(placement)
        self.left = DeviceArray(placement)
        self.left_count = DeviceArray(placement)
        self.listed = DeviceArray(placement)
        self.long_rows = DeviceArray(placement)
        self.counters = DeviceArray(placement)


def core_numbers_on_gpu(
    placement: StepPlacement,
    gpu: GpuOptions,
    location: ResultLocation,
    poll: ProgressPoll | None,
) -> CoreOutcome:
    """Compute the core numbers of a graph that has vertices, and is on one device.

    :param location: of the core numbers
    :raises GraphTooLargeError: need against free, or more vertices than the kernel counts
    """
    if placement.capacity >= 1 << 32:
        raise GraphTooLargeError(
            f"core numbers on a GPU take fewer than {1 << 32:,} vertices, and the graph has "
            f"{placement.vertex_count:,}; use devices='cpu'"
        )
    seconds: dict[str, float] = {}
    with placement.held():
        plan = placement.plan(("core", gpu), lambda: _CorePlan(placement, gpu, seconds))
        seconds["kernel"] = plan.run(phase=Phase.CORE_BEGIN, poll=poll)
        control = plan.controls()[0]
        plan.arguments["has_loops"] = control["state"][Word.LOOPS] > 0
        core, seconds["gather"] = deliver_vertices(placement, plan.arrays.core, np.int32, location)
    counts = control["run_counts"]
    return CoreOutcome(
        core,
        int(counts[Count.REMOVED]),
        int(counts[Count.VISITED]),
        int(control["state"][STEP]),
        seconds,
    )


class _CorePlan(StepPlan[StepPlacement]):
    """Core numbers of a placement on one device.

    :param seconds: gets the time of making rows, and of loading the kernel
    """

    def __init__(
        self, placement: StepPlacement, gpu: GpuOptions, seconds: dict[str, float]
    ) -> None:
        begin = perf_counter()
        text = source(placement.id_dtype)
        compile_meanwhile(placement.indexes[0], text)
        directed = placement.graph.directed
        (out_rows,) = placement.rows("out")
        (in_rows,) = placement.rows("in") if directed else (out_rows,)
        seconds["rows"] = perf_counter() - begin
        super().__init__(placement, text, np.zeros(1, ARGUMENTS), gpu)
        seconds["compile"] = self.compile_s
        self.arrays = arrays = placement.kept(CoreArrays)
        (part,) = placement.parts
        # In directed graphs classes are of in-degrees.
        active = part.owned if directed else part.active
        blocks = self.blocks_with(part.device, 0)
        left_room = -(-active // (_WARP * blocks)) * _WARP
        long_bytes = sum(
            left_rows_bytes("mixed", rows, placement.capacity)
            for rows in ([out_rows, in_rows] if directed else [out_rows])
        )
        placement.reserve(
            (arrays.degree, [4 * placement.count]),
            (arrays.core, [4 * placement.count]),
            (arrays.left, [max(4, _INDEX_BYTES * left_room * blocks)]),
            (arrays.left_count, [_INDEX_BYTES * blocks]),
            (arrays.listed, [_INDEX_BYTES * placement.capacity]),
            (arrays.long_rows, [long_bytes]),
            (arrays.counters, [_COUNTERS_BYTES]),
        )
        struct = self.arguments[0]
        point_rows(struct["out"], out_rows)
        point_rows(struct["in"], in_rows)
        for name in ("degree", "core", "left", "left_count", "listed", "long_rows", "counters"):
            struct[name] = getattr(arrays, name)[part].pointer
        struct["left_room"], struct["active"] = left_room, active
        struct["out_arcs"] = out_rows.arcs if directed else _NO_IN_ARCS
        struct["is_directed"] = directed
        struct["has_loops"] = True  # until a run has seen all arcs
        self.lay_out()
