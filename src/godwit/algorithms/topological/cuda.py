"""Topological generations on one GPU: arguments and results of topological.cuh."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from time import perf_counter
from typing import Any

import numpy as np

from godwit.arrays import ResultLocation
from godwit.dtypes import Array
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
        ("left", np.uint64),
        ("generation", np.uint64),
        ("list", np.uint64),
        ("long_rows", np.uint64),
        ("counters", np.uint64),
    ]
)
"""``Arguments`` of topological.cuh."""

_COUNTERS_BYTES = 16


class Count(IntEnum):
    """Indices of the counts of a block: ``TopologicalCount`` of the kernel."""

    NUMBERED, VISITED = range(2)


@dataclass
class GenerationsOutcome:
    """Generations, work and times of a query.

    :param generation: (n) int32, on the host: -1 on and behind cycles
    :param numbered: vertices that have one
    :param visited: arcs, when they were counted and along which numbers were given
    :param seconds: by phase: ``rows``, ``compile``, ``kernel``, ``gather``
    """

    generation: Array
    numbered: int
    visited: int
    supersteps: int
    seconds: dict[str, float] = field(default_factory=dict)


def source(id_dtype: Any) -> str:
    """Return the source of the kernel for a dtype of positions."""
    return step_source(
        "algorithms/topological/topological.cuh",
        ARGUMENTS,
        types={"Id": c_type(np.dtype(id_dtype))},
        work="grid_number",
        enums=(Count,),
    )


class GenerationArrays:
    """The arrays of topological generations, kept on the device between queries."""

    def __init__(self, placement: StepPlacement) -> None:
        self.left = DeviceArray(placement)
        self.generation = DeviceArray(placement)
        self.list = DeviceArray(placement)
        self.long_rows = DeviceArray(placement)
        self.counters = DeviceArray(placement)


def generations_on_gpu(
    placement: StepPlacement, gpu: GpuOptions, poll: ProgressPoll | None
) -> GenerationsOutcome:
    """Number the vertices of a directed graph that has some, and is on one device.

    :raises GraphTooLargeError: need against free
    """
    seconds: dict[str, float] = {}
    with placement.held():
        plan = placement.plan(
            ("topological generations", gpu), lambda: _GenerationsPlan(placement, gpu, seconds)
        )
        seconds["kernel"] = plan.run(poll=poll)
        control = plan.controls()[0]
        generation, seconds["gather"] = deliver_vertices(
            placement, plan.arrays.generation, np.int32, ResultLocation()
        )
    counts = control["run_counts"]
    return GenerationsOutcome(
        generation,
        int(counts[Count.NUMBERED]),
        int(counts[Count.VISITED]),
        int(control["state"][STEP]),
        seconds,
    )


class _GenerationsPlan(StepPlan[StepPlacement]):
    """Topological generations of a placement on one device.

    :param seconds: gets the time of making rows, and of loading the kernel
    """

    def __init__(
        self, placement: StepPlacement, gpu: GpuOptions, seconds: dict[str, float]
    ) -> None:
        begin = perf_counter()
        text = source(placement.id_dtype)
        compile_meanwhile(placement.indexes[0], text)
        (rows,) = placement.rows("out")
        seconds["rows"] = perf_counter() - begin
        super().__init__(placement, text, np.zeros(1, ARGUMENTS), gpu)
        seconds["compile"] = self.compile_s
        self.arrays = arrays = placement.kept(GenerationArrays)
        (part,) = placement.parts
        placement.reserve(
            (arrays.left, [4 * placement.count]),
            (arrays.generation, [4 * placement.count]),
            (arrays.list, [placement.id_dtype.itemsize * placement.capacity]),
            (arrays.long_rows, [left_rows_bytes("mixed", rows, placement.capacity)]),
            (arrays.counters, [_COUNTERS_BYTES]),
        )
        struct = self.arguments[0]
        point_rows(struct["out"], rows)
        for name in ("left", "generation", "list", "long_rows", "counters"):
            struct[name] = getattr(arrays, name)[part].pointer
        self.lay_out()
