"""Strongly connected components on a GPU: arguments and results of strong_components.cuh."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from godwit.algorithms.strong_components.cpu import pivot_of
from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.graph.facts import in_offsets
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
    state_words,
    step_source,
)

MOST_STEPS = 1000
"""Supersteps after which the kernel gives up; some 3 us each on a small graph."""
MOST_PASSES = 256
"""Passes over all arcs after which it gives up: they take about half as long as a CPU's search."""
MOST_SLOW = 1 << 24
"""Arcs, besides as many as the graph has, of rows that single warps examine, after which it gives up."""

ARGUMENTS = struct_dtype("algorithms/strong_components/strong_components.cuh", "Arguments")

_BITMAPS = ("alive", "forward", "backward", "frontiers")
_VALUES = ("labels", "least_in", "least_out", "part_in", "part_out")
_WORD_BYTES = 8


class Word(IntEnum):
    """Words of ``control->state``: ``StrongState`` of the kernel."""

    (
        ALIVE, OPEN, VISITED, FRONTIER, BACKWARD, PARITY, ROUND, EXAMINED, GAVE_UP, MEAN_DEGREE,
        MOST_STEPS, MOST_ARCS, SLOW, MOST_SLOW,
    ) = range(14)  # fmt: skip


class Count(IntEnum):
    """Indices of the counts of a block: ``StrongCount`` of the kernel."""

    DONE, ARCS_SEEN, CHANGED, SLOW_ARCS = range(4)


def source(id_dtype: Any) -> str:
    """Return the source of the kernel."""
    return step_source(
        "algorithms/strong_components/strong_components.cuh",
        types={"Id": c_type(np.dtype(id_dtype))},
        enums=(Word, Count),
        work="grid_strong_components",
    )


def strong_components_on_gpu(
    placement: StepPlacement, gpu: GpuOptions, location: ResultLocation, poll: ProgressPoll | None
) -> Outcome:
    """Find the smallest vertex of every vertex's component: (n).

    :param placement: of one part
    :returns: values, None if the kernel gave up; processed: vertices that it labelled
    :raises GraphTooLargeError: need against free, or more vertices than the kernel counts
    """
    require_few_vertices(placement, "strong components on a GPU take")
    with placement.held():
        plan = placement.plan(("strong components", gpu), lambda: _StrongPlan(placement, gpu))
        control = plan.ask(plan.state, early=True, poll=poll)
        labels = None
        if not control["state"][Word.GAVE_UP]:
            labels = plan.deliver(
                "labels", placement.id_dtype, location, result_dtype=placement.graph.id_dtype
            )
        return plan.outcome(labels, Count.DONE, Count.ARCS_SEEN)


class _StrongPlan(OneGpuPlan):
    """Strong components of a placement for one set of options."""

    def __init__(self, placement: StepPlacement, gpu: GpuOptions) -> None:
        graph = placement.graph
        with compiling(placement, source(placement.id_dtype)) as prepared:
            out_rows, in_rows = placement.rows("out")[0], placement.rows("in")[0]
            vertices, positions = placement.vertices()[0], placement.positions()[0]
            pivot = pivot_of(graph, np.diff(in_offsets(graph)))
        super().__init__(placement, prepared, ARGUMENTS, gpu, "strong components")
        long_bytes = max(
            left_rows_bytes("mixed", rows, placement.capacity) for rows in (out_rows, in_rows)
        )
        value_bytes = placement.id_dtype.itemsize * placement.count
        self.allocate(
            {
                **dict.fromkeys(_VALUES, value_bytes),
                **dict.fromkeys(_BITMAPS, placement.count // 8),
                "long_rows": long_bytes,
                "name": _WORD_BYTES,
            }
        )
        struct = self.struct
        point_rows(struct["out"], out_rows)
        point_rows(struct["in"], in_rows)
        struct["vertices"], struct["positions"] = vertices.pointer, positions.pointer
        struct["active"] = self.part.active
        struct["pivot"] = -1 if pivot is None else placement.numbering.position[pivot]
        self.state = self._first_state()
        self.lay_out()

    def _first_state(self) -> Array:
        """Return the state with which every run begins."""
        graph, active = self.placement.graph, max(1, self.part.active)
        state: dict[Word, int | float] = {
            Word.MEAN_DEGREE: graph.arc_count / active,
            Word.MOST_STEPS: MOST_STEPS,
            Word.MOST_ARCS: MOST_PASSES * (graph.arc_count + active),
            Word.MOST_SLOW: MOST_SLOW + graph.arc_count,
        }
        return state_words([state.get(word, 0) for word in Word])
