"""What a step program reads at vertices that other devices may own, and the way that it gets there.

Who reads a field *along arcs* follows from the devices' rows: at the targets of out-arcs where they push,
at the sources of in-arcs where they pull. A field that is read at whatever vertex another one names may be
read by any device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from godwit.frontier.code import Instruction, StepCode

Way = Literal["out", "in", "any"]
"""Along arcs that leave own vertices, or reach them, or to any vertex."""


@dataclass(frozen=True)
class FarRead:
    """A field that a step reads at vertices that are not all its device's own."""

    step: Instruction
    field: int
    way: Way


def far_reads(code: StepCode) -> Iterator[FarRead]:
    """All that a program has, some more than once."""
    for whole in code.instructions():
        for step in whole.directions():
            yield from _of_goals(step)
            # Whose row it is is the device's own: a pushing step's source, a pulling one's target.
            far_end: Way = "in" if step.pulls else "out"
            for operator in step.operators():
                for read in operator.reads:
                    of_target = read.at_target or operator is step.candidates
                    is_far = of_target != step.pulls
                    if read.via >= 0:
                        yield FarRead(step, read.index, "any")
                        if is_far:
                            yield FarRead(step, read.via, far_end)
                    elif read.kind == "field" and is_far:
                        yield FarRead(step, read.index, far_end)


def _of_goals(step: Instruction) -> Iterator[FarRead]:
    """What a pushing step reads to send a message."""
    if step.kind != "advance" or step.pulls:
        return
    named = step.place.kind == "field"
    if named and step.place.at_target:
        yield FarRead(step, step.place.index, "out")
    if step.combine != "add" and (named or step.place.at_target):
        # What does not improve on the value there is not sent.
        yield FarRead(step, step.into, "any" if named else "out")


def shared_fields(code: StepCode) -> set[int]:
    """Fields that are read at vertices of other devices: their owners tell those, or all."""
    return {read.field for read in far_reads(code)}


def ways_of_arcs(code: StepCode) -> tuple[Literal["out", "in"], ...]:
    """The directions of arcs along which a program reads at other devices' vertices."""
    ways = {read.way for read in far_reads(code)}
    return tuple(way for way in ("in", "out") if way in ways)


def reads_anywhere(code: StepCode) -> Instruction | None:
    """The first step that reads a field at any vertex; None: values need to go along arcs only."""
    return next((read.step for read in far_reads(code) if read.way == "any"), None)
