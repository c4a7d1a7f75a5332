"""Core numbers on one GPU: arguments and results of core.cuh."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from godwit.arrays import ResultLocation
from godwit.runtime.cuda.compile import c_type
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.first_gpu import Outcome
from godwit.supersteps.one_gpu import OneGpuPlan, compiling, require_few_vertices
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.run import (
    left_rows_bytes,
    point_rows,
    step_source,
)

ARGUMENTS = struct_dtype("algorithms/core/core.cuh", "Arguments")

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


def source(id_dtype: Any) -> str:
    """Return the source of the kernel for a dtype of positions."""
    return step_source(
        "algorithms/core/core.cuh",
        types={"Id": c_type(np.dtype(id_dtype))},
        work="grid_core",
        enums=(Phase, Word, Count),
    )


def core_numbers_on_gpu(
    placement: StepPlacement,
    gpu: GpuOptions,
    location: ResultLocation,
    poll: ProgressPoll | None,
) -> Outcome:
    """Compute the core numbers, int32 (n), of a graph that has vertices, and is on one device.

    :param location: of the core numbers
    :raises GraphTooLargeError: need against free, or more vertices than the kernel counts
    """
    require_few_vertices(placement, "core numbers on a GPU take")
    with placement.held():
        plan = placement.plan(("core", gpu), lambda: _CorePlan(placement, gpu))
        control = plan.ask(phase=Phase.CORE_BEGIN, poll=poll)
        plan.struct["has_loops"] = control["state"][Word.LOOPS] > 0
        core = plan.deliver("core", np.int32, location)
        return plan.outcome(core, Count.REMOVED, Count.VISITED)


class _CorePlan(OneGpuPlan):
    """Core numbers of a placement on one device."""

    def __init__(self, placement: StepPlacement, gpu: GpuOptions) -> None:
        directed = placement.graph.directed
        with compiling(placement, source(placement.id_dtype)) as prepared:
            (out_rows,) = placement.rows("out")
            (in_rows,) = placement.rows("in") if directed else (out_rows,)
        super().__init__(placement, prepared, ARGUMENTS, gpu, "core")
        # In directed graphs classes are of in-degrees.
        active = self.part.owned if directed else self.part.active
        blocks = self.blocks_with(self.part.device, 0)
        left_room = -(-active // (_WARP * blocks)) * _WARP
        long_bytes = sum(
            left_rows_bytes("mixed", rows, placement.capacity)
            for rows in ([out_rows, in_rows] if directed else [out_rows])
        )
        self.allocate(
            {
                "degree": 4 * placement.count,
                "core": 4 * placement.count,
                "left": _INDEX_BYTES * left_room * blocks,
                "left_count": _INDEX_BYTES * blocks,
                "listed": _INDEX_BYTES * placement.capacity,
                "long_rows": long_bytes,
                "counters": _COUNTERS_BYTES,
            }
        )
        struct = self.struct
        point_rows(struct["out"], out_rows)
        point_rows(struct["in"], in_rows)
        struct["left_room"], struct["active"] = left_room, active
        struct["out_arcs"] = out_rows.arcs if directed else _NO_IN_ARCS
        struct["is_directed"] = directed
        struct["has_loops"] = True  # until a run has seen all arcs
        self.lay_out()
