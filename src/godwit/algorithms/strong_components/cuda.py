"""Strongly connected components on a GPU: arguments and results of strong_components.cuh."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.strong_components.cpu import pivot_of
from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError
from godwit.graph.facts import in_offsets
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
    state_words,
    step_source,
)

MOST_STEPS = 1000
"""Supersteps after which the kernel gives up; some 3 us each on a small graph."""
MOST_PASSES = 256
"""Passes over all arcs after which it gives up: they take about half as long as a CPU's search."""
MOST_SLOW = 1 << 24
"""Arcs, besides as many as the graph has, of rows that single warps examine, after which it gives up."""

ARGUMENTS = np.dtype(
    [
        ("stage", STAGE),
        ("out", ROWS),
        ("in", ROWS),
        ("long_rows", np.uint64),
        ("vertices", np.uint64),
        ("positions", np.uint64),
        ("labels", np.uint64),
        ("alive", np.uint64),
        ("forward", np.uint64),
        ("backward", np.uint64),
        ("frontiers", np.uint64, 2),
        ("least_in", np.uint64),
        ("least_out", np.uint64),
        ("part_in", np.uint64),
        ("part_out", np.uint64),
        ("name", np.uint64),
        ("active", np.int64),
        ("pivot", np.int64),
    ]
)
"""``Arguments`` of the kernel."""

_BITMAPS = ("alive", "forward", "backward", "frontiers", "other_frontiers")
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


@dataclass
class StrongOutcome:
    """Labels, work and times of a query.

    :param labels: (n) the smallest vertex of each vertex's component; None if the kernel gave up
    :param vertices: number of vertices that it labelled
    :param arcs: arcs that it looked at
    :param supersteps: its supersteps
    :param seconds: by phase: ``rows``, ``compile``, ``kernel``, ``gather``
    """

    labels: Any
    vertices: int
    arcs: int
    supersteps: int
    seconds: dict[str, float] = field(default_factory=dict)


def source(id_dtype: Any) -> str:
    """Return the source of the kernel."""
    return step_source(
        "algorithms/strong_components/strong_components.cuh",
        ARGUMENTS,
        types={"Id": c_type(np.dtype(id_dtype))},
        enums=(Word, Count),
        work="grid_strong_components",
    )


class _StrongArrays:
    """The arrays of strong components, kept on the device between queries."""

    def __init__(self, placement: StepPlacement) -> None:
        self.values = {name: DeviceArray(placement) for name in _VALUES}
        self.bitmaps = {name: DeviceArray(placement) for name in _BITMAPS}
        self.long_rows = DeviceArray(placement)
        self.name = DeviceArray(placement)


def strong_components_on_gpu(
    placement: StepPlacement, gpu: GpuOptions, location: ResultLocation, poll: ProgressPoll | None
) -> StrongOutcome:
    """Return the smallest vertex of every vertex's component.

    :param placement: of one part
    :raises GraphTooLargeError: need against free, or more vertices than the kernel counts
    """
    if placement.capacity >= 1 << 32:
        raise GraphTooLargeError(
            f"the graph has {placement.vertex_count:,} vertices, and strong components on a GPU take fewer "
            f"than {1 << 32:,}; use devices='cpu'"
        )
    seconds: dict[str, float] = {}
    with placement.held():
        plan = placement.plan(
            ("strong components", gpu), lambda: _StrongPlan(placement, gpu, seconds)
        )
        seconds["kernel"] = plan.run(plan.state, early=True, poll=poll)
        control = plan.controls()[0]
        labels = None
        if not control["state"][Word.GAVE_UP]:
            labels, seconds["gather"] = deliver_vertices(
                placement, plan.arrays.values["labels"], placement.id_dtype, location,
                result_dtype=placement.graph.id_dtype,
            )  # fmt: skip
    return StrongOutcome(
        labels,
        int(control["run_counts"][Count.DONE]),
        int(control["run_counts"][Count.ARCS_SEEN]),
        int(control["state"][STEP]),
        seconds,
    )


class _StrongPlan(StepPlan[StepPlacement]):
    """Strong components of a placement for one set of options.

    :param seconds: gets the time of making rows, and of loading the kernel
    """

    def __init__(
        self, placement: StepPlacement, gpu: GpuOptions, seconds: dict[str, float]
    ) -> None:
        begin = perf_counter()
        text = source(placement.id_dtype)
        compile_meanwhile(placement.indexes[0], text)
        out_rows, in_rows = placement.rows("out")[0], placement.rows("in")[0]
        vertices, positions = placement.vertices()[0], placement.positions()[0]
        graph, part = placement.graph, placement.parts[0]
        pivot = pivot_of(graph, np.diff(in_offsets(graph)))
        seconds["rows"] = perf_counter() - begin
        super().__init__(placement, text, np.zeros(1, ARGUMENTS), gpu)
        seconds["compile"] = self.compile_s
        self.arrays = arrays = placement.kept(_StrongArrays)
        long_bytes = max(
            left_rows_bytes("mixed", rows, placement.capacity) for rows in (out_rows, in_rows)
        )
        value_bytes = placement.id_dtype.itemsize * placement.count
        placement.reserve(
            *((array, [value_bytes]) for array in arrays.values.values()),
            *((array, [placement.count // 8]) for array in arrays.bitmaps.values()),
            (arrays.long_rows, [long_bytes]),
            (arrays.name, [_WORD_BYTES]),
        )
        own = self.arguments[0]
        point_rows(own["out"], out_rows)
        point_rows(own["in"], in_rows)
        own["vertices"], own["positions"] = vertices.pointer, positions.pointer
        for name, array in {**arrays.values, **arrays.bitmaps}.items():
            if "frontiers" not in name:
                own[name] = array[part].pointer
        own["frontiers"] = [
            arrays.bitmaps[name][part].pointer for name in ("frontiers", "other_frontiers")
        ]
        own["long_rows"] = arrays.long_rows[part].pointer
        own["name"] = arrays.name[part].pointer
        own["active"] = part.active
        own["pivot"] = -1 if pivot is None else placement.numbering.position[pivot]
        self.state = self._first_state()
        self.lay_out()

    def _first_state(self) -> Array:
        """Return the state with which every run begins."""
        graph, active = self.placement.graph, max(1, self.placement.parts[0].active)
        state: dict[Word, int | float] = {
            Word.MEAN_DEGREE: graph.arc_count / active,
            Word.MOST_STEPS: MOST_STEPS,
            Word.MOST_ARCS: MOST_PASSES * (graph.arc_count + active),
            Word.MOST_SLOW: MOST_SLOW + graph.arc_count,
        }
        return state_words([state.get(word, 0) for word in Word])
