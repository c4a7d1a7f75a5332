"""What a step program's kernel and the host share: its arguments, accumulators and words of the state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.frontier.code import Instruction, StepCode, accumulator_dtype
from godwit.runtime.cuda.compile import MAXIMAL_DEVICES
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.run import PEERS, ROWS, STAGE

FAILED, REDUCTIONS, OPERATORS, QUEUE, FORM, REPLICATED = 24, 25, 26, 27, 28, 29
"""Words of the state behind the numbers, as in frontier.cuh."""


SPREAD, TURNED = 0x20000000, 0x10000000
"""Of a phase, as in frontier/cuda/queue.cuh."""


@dataclass(frozen=True)
class Slot:
    """An array of accumulators: one for each combination and dtype of field.

    :param combine: ``"staged"`` where compute lays values aside
    """

    combine: str
    field: np.dtype[Any]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the accumulators."""
        return accumulator_dtype("add" if self.combine == "add" else "min", self.field)


class ProgramArrays:
    """The arrays of step programs, kept on the devices between runs."""

    def __init__(self, placement: StepPlacement) -> None:
        self._placement = placement
        self._fields: list[DeviceArray] = []
        self._slots: list[DeviceArray] = []
        self.frontier = DeviceArray(placement)
        self.touched = DeviceArray(placement)
        self.queue = DeviceArray(placement), DeviceArray(placement)
        self.queues = DeviceArray(placement)
        self.left_rows = DeviceArray(placement)
        self.arcs = DeviceArray(placement)
        self.vertices = DeviceArray(placement)
        self.degrees = DeviceArray(placement)
        self.extremes = DeviceArray(placement)

    def field(self, index: int) -> DeviceArray:
        """Return the array of a field."""
        return self._at(self._fields, index)

    def slot(self, index: int) -> DeviceArray:
        """Return the array of a slot of accumulators."""
        return self._at(self._slots, index)

    def _at(self, arrays: list[DeviceArray], index: int) -> DeviceArray:
        while len(arrays) <= index:
            arrays.append(DeviceArray(self._placement))
        return arrays[index]


def slots_of(code: StepCode) -> list[Slot]:
    """The accumulators that a program needs."""
    steps = (step for step in code.instructions() if step.kind == "advance" or step.staged)
    return list(dict.fromkeys(slot_of(code, step) for step in steps))


def slot_of(code: StepCode, step: Instruction) -> Slot:
    """The accumulators of a step."""
    combine = step.combine if step.kind == "advance" else "staged"
    return Slot(combine, code.field_dtype(step.into))


def arguments_dtype(code: StepCode) -> np.dtype[Any]:
    """``Arguments`` of frontier.cuh."""
    return np.dtype(
        [
            ("stage", STAGE),
            ("out", ROWS),
            ("in", ROWS),
            ("out_weights", np.uint64),
            ("in_weights", np.uint64),
            ("vertices", np.uint64),
            ("positions", np.uint64),
            ("degrees", np.uint64),
            ("vertex_count", np.int64),
            ("left_rows", np.uint64),
            ("arcs", np.uint64),
            ("subscribers", np.uint64),
            ("queue", np.uint64, 2),
            ("queue_room", np.uint64),
            ("listing_limit", np.uint64),
            ("long_below", np.int64),
            ("is_directed", np.uint64),
            ("queues", PEERS),
            ("frontiers", PEERS),
            ("touched", PEERS),
            ("extremes", PEERS),
            ("fields", np.uint64, (len(code.fields) + 1, MAXIMAL_DEVICES)),
            ("accumulators", np.uint64, (len(slots_of(code)) + 1, MAXIMAL_DEVICES)),
        ]
    )
