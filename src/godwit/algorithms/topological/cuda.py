"""Topological generations on one GPU: arguments and results of topological.cuh."""

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
from godwit.supersteps.one_gpu import OneGpuPlan, compiling
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.run import (
    left_rows_bytes,
    point_rows,
    step_source,
)

ARGUMENTS = struct_dtype("algorithms/topological/topological.cuh", "Arguments")

_COUNTERS_BYTES = 16


class Count(IntEnum):
    """Indices of the counts of a block: ``TopologicalCount`` of the kernel."""

    NUMBERED, VISITED = range(2)


def source(id_dtype: Any) -> str:
    """Return the source of the kernel for a dtype of positions."""
    return step_source(
        "algorithms/topological/topological.cuh",
        types={"Id": c_type(np.dtype(id_dtype))},
        work="grid_number",
        enums=(Count,),
    )


def generations_on_gpu(
    placement: StepPlacement, gpu: GpuOptions, poll: ProgressPoll | None
) -> Outcome:
    """Number the vertices of a directed graph that has some, and is on one device.

    :returns: values: (n) int32, on the host: -1 on and behind cycles; arcs: those that were counted, and
        those along which numbers were given
    :raises GraphTooLargeError: need against free
    """
    with placement.held():
        plan = placement.plan(
            ("topological generations", gpu), lambda: _GenerationsPlan(placement, gpu)
        )
        plan.ask(poll=poll)
        generation = plan.deliver("generation", np.int32, ResultLocation())
        return plan.outcome(generation, Count.NUMBERED, Count.VISITED)


class _GenerationsPlan(OneGpuPlan):
    """Topological generations of a placement on one device."""

    def __init__(self, placement: StepPlacement, gpu: GpuOptions) -> None:
        with compiling(placement, source(placement.id_dtype)) as prepared:
            (rows,) = placement.rows("out")
        super().__init__(placement, prepared, ARGUMENTS, gpu, "topological generations")
        self.allocate(
            {
                "left": 4 * placement.count,
                "generation": 4 * placement.count,
                "list": placement.id_dtype.itemsize * placement.capacity,
                "long_rows": left_rows_bytes("mixed", rows, placement.capacity),
                "counters": _COUNTERS_BYTES,
            }
        )
        point_rows(self.struct["out"], rows)
        self.lay_out()
