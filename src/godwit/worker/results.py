"""The arrays that a run's values come out in: of which dtype, where, what stands for "never reached"."""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.arrays import ResultLocation
from godwit.dtypes import Array, frozen
from godwit.graph.partition.layout import Layout
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import block_range, run_team
from godwit.worker.program import VertexProgram, identity_of
from godwit.worker.task import Destination

# Fewer values than these are converted by NumPy: waking a team, and loading the kernel, would take longer.
_SMALL_VALUES = 1 << 23


def destination_of(
    program: VertexProgram, layout: Layout, result_dtype: Any, location: ResultLocation
) -> Destination:
    """Arrays for devices that bring their results themselves."""
    count = layout.graph.vertex_count
    dtype = program.dtype if result_dtype is None else np.dtype(result_dtype)
    return Destination(
        values=location.empty(count, dtype),
        fields=None if program.field_dtype is None else location.empty(count, program.field_dtype),
        never=identity_of(program.combine, dtype),
        gpu=location.gpu,
        ranges=len(layout.parts) == 1 or layout.partition.boundaries is not None,
    )


def converted(program: VertexProgram, values: Array, result_dtype: Any) -> Array:
    """The values in a dtype that is as wide or wider, whose own identity stands for the program's."""
    dtype = program.dtype if result_dtype is None else np.dtype(result_dtype)
    if values.dtype == dtype:
        return values
    never = identity_of(program.combine, dtype)
    if len(values) < _SMALL_VALUES:
        wide = values.astype(dtype)
        wide[values == program.identity] = never
    else:
        wide = np.empty(len(values), dtype)
        run_team(_convert, frozen(values), program.identity, never, wide)
    return wide


@kernel
def _convert(
    rank: int, size: int, control: Any, values: Any, identity: Any, never: Any, out: Any
) -> None:
    begin, end = block_range(rank, size, len(values))
    for index in range(begin, end):
        value = values[index]
        out[index] = never if value == identity else value
