"""A step program as CPUs and GPUs compile it: instructions, and the meaning of their operators' parameters.

The state of a run is one array per field (of all vertices), numbers, and the frontier: a set of vertices or
of arcs. A frontier of arcs is stored as the vertices that they leave and a flag for each of their arcs.

Every instruction is one superstep, or two, and reads only values from before it began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from godwit.dtypes import Array
from godwit.worker.program import Combine, identity_of

SIZE, VERTEX_COUNT = 0, 1
"""Indexes of the numbers that every program has: size of the frontier, and number of vertices."""

PULL_SHARE = 16
"""``direction="auto"`` pulls while more than one in this number of vertices is in the frontier."""


@dataclass(frozen=True)
class Read:
    """The meaning of one parameter of an operator.

    :param kind: a field's value, a number, a vertex id, an out-degree, or the weight of the arc (1 where
        the graph has none)
    :param index: of the field or number
    :param via: index of a field of integers: the value is read at the vertex which that field names; -1:
        none
    :param at_target: the field (or ``via``) is read at the arc's target, not at its source
    """

    kind: Literal["field", "number", "vertex", "degree", "weight"]
    index: int = -1
    via: int = -1
    at_target: bool = False


@dataclass(frozen=True)
class Operator:
    """A user's function and the meaning of its parameters, in their order.

    :param symbol: its name in compiled code, such as ``message_3``
    """

    symbol: str
    function: Callable[..., Any]
    reads: tuple[Read, ...]


@dataclass(frozen=True)
class Instruction:
    """One step of a program.

    :param index: position in the program, loops included
    :param label: its name in error messages, such as ``advance into 'left'``
    :param into: the field that advance and compute write, or the number that reduce and assign write
    :param value: the message of advance; the value of compute, reduce and assign; a loop's ``until``
    :param keep: condition on the arcs of advance and arcs, and on the vertices of filter; None: all
    :param candidates: condition on the vertices that get messages, where an advance may pull; None: all
    :param goal: the vertex that a pushed message goes to
    :param everywhere: the step is for all vertices, not only for the frontier's
    :param pulls: advance goes over in-arcs, or may
    :param turns: advance pulls only where the frontier is large (:data:`PULL_SHARE`)
    :param stays: advance leaves the frontier unchanged
    :param staged: compute reads the field that it writes at other vertices
    :param masked: the frontier is of arcs when the step begins
    :param body: the steps of a loop
    """

    kind: Literal["advance", "filter", "arcs", "compute", "reduce", "assign", "repeat"]
    index: int
    label: str
    into: int = -1
    combine: Combine = "add"
    value: Operator | None = None
    keep: Operator | None = None
    candidates: Operator | None = None
    goal: Read = Read("vertex", at_target=True)
    everywhere: bool = False
    pulls: bool = False
    turns: bool = False
    stays: bool = False
    staged: bool = False
    masked: bool = False
    body: tuple[Instruction, ...] = ()

    def operators(self) -> list[Operator]:
        """Return the step's own operators."""
        operators = (self.value, self.keep, self.candidates)
        return [operator for operator in operators if operator is not None]

    def directions(self) -> tuple[Instruction, ...]:
        """Return the step itself; of an automatic advance, the pushing and the pulling one."""
        if not self.turns:
            return (self,)
        return replace(self, pulls=False, turns=False), replace(self, turns=False)


@dataclass(frozen=True)
class Accumulators:
    """An array of one value per vertex, used by all steps of the same kind and dtype of field.

    :param kind: how messages are combined in it, or ``"staged"`` for computed values that wait
    :param field: dtype of the field
    """

    kind: Combine | Literal["staged"]
    field: np.dtype[Any]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the accumulators: sums are 64 bits wide, so that only the total must fit the field."""
        if self.kind != "add":
            return self.field
        return np.dtype(np.float64 if self.field.kind == "f" else np.int64)

    @property
    def identity(self) -> int | float:
        """The value of an accumulator between steps: adds nothing, or is improved by every message."""
        kind = "add" if self.kind == "staged" else self.kind
        number: int | float = identity_of(kind, self.dtype).item()
        return number


@dataclass(frozen=True)
class StepCode:
    """A step program in the form that CPUs and GPUs compile.

    :param steps: operators and loops, in their order

    :param fields: names and dtypes (int32, uint32, int64, float32 or float64)
    :param numbers: names and dtypes (int64 or float64); the first two are :data:`SIZE` and
        :data:`VERTEX_COUNT`
    :param compiled: compiled forms for CPUs and GPUs, by their own keys
    """

    name: str
    fields: tuple[tuple[str, np.dtype[Any]], ...]
    numbers: tuple[tuple[str, np.dtype[Any]], ...]
    steps: tuple[Instruction, ...]
    compiled: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def instructions(self) -> Iterator[Instruction]:
        """Return all steps in the order of their indexes: a loop before its body."""
        return _flat(self.steps)

    def field_dtype(self, index: int) -> np.dtype[Any]:
        """Return the dtype of a field."""
        return self.fields[index][1]

    def number_dtype(self, index: int) -> np.dtype[Any]:
        """Return the dtype of a number."""
        return self.numbers[index][1]

    def accumulators(self) -> list[Accumulators]:
        """Return the accumulators that the program needs."""
        steps = (step for step in self.instructions() if step.kind == "advance" or step.staged)
        return list(dict.fromkeys(self.accumulators_of(step) for step in steps))

    def accumulators_of(self, step: Instruction) -> Accumulators:
        """Return the accumulators of an advance, or of a compute that is staged."""
        kind = step.combine if step.kind == "advance" else "staged"
        return Accumulators(kind, self.field_dtype(step.into))

    def reads(self, kind: str) -> bool:
        """Return True if an operator reads a value of this kind."""
        return any(
            read.kind == kind
            for step in self.instructions()
            for operator in step.operators()
            for read in operator.reads
        )

    @property
    def has_arcs(self) -> bool:
        """True if the frontier is of arcs at any time."""
        return any(step.kind == "arcs" or step.masked for step in self.instructions())

    @property
    def ends_with_arcs(self) -> bool:
        """True if the frontier is of arcs after the last step."""
        of_arcs = False
        for step in self.steps:
            stays = step.kind in ("compute", "reduce", "assign", "repeat") or step.stays
            of_arcs = step.kind == "arcs" or (stays and step.masked)
        return of_arcs

    @property
    def pulls(self) -> bool:
        """True if a step goes over in-arcs."""
        return any(step.pulls for step in self.instructions())


def _flat(steps: tuple[Instruction, ...]) -> Iterator[Instruction]:
    for step in steps:
        yield step
        yield from _flat(step.body)


# Remote reads: values of vertices that another device may own. At which vertices a field is read along arcs
# follows from the devices' rows: at the targets of out-arcs where steps push, at the sources of in-arcs
# where they pull. A field that is read at the vertex which another field names may be read by any device.

Way = Literal["out", "in", "any"]
"""Along arcs that leave a device's vertices, or reach them, or at any vertex."""


@dataclass(frozen=True)
class RemoteRead:
    """A field that a step reads at vertices of which other devices own some."""

    step: Instruction
    field: int
    way: Way


def remote_reads(code: StepCode) -> Iterator[RemoteRead]:
    """Return the remote reads of a program, some more than once."""
    for whole in code.instructions():
        for step in whole.directions():
            yield from _goal_reads(step)
            # A device owns the sources of what it pushes, and the targets of what it pulls.
            remote_end: Way = "in" if step.pulls else "out"
            for operator in step.operators():
                for read in operator.reads:
                    of_target = read.at_target or operator is step.candidates
                    is_remote = of_target != step.pulls
                    if read.via >= 0:
                        yield RemoteRead(step, read.index, "any")
                        if is_remote:
                            yield RemoteRead(step, read.via, remote_end)
                    elif read.kind == "field" and is_remote:
                        yield RemoteRead(step, read.index, remote_end)


def _goal_reads(step: Instruction) -> Iterator[RemoteRead]:
    """Return what a pushing advance reads to address a message and to skip one that does not improve."""
    if step.kind != "advance" or step.pulls:
        return
    by_field = step.goal.kind == "field"
    if by_field and step.goal.at_target:
        yield RemoteRead(step, step.goal.index, "out")
    if step.combine != "add" and (by_field or step.goal.at_target):
        yield RemoteRead(step, step.into, "any" if by_field else "out")


def shared_fields(code: StepCode) -> set[int]:
    """Return the fields that owners write to other devices, which read them."""
    return {read.field for read in remote_reads(code)}


def ways_of_arcs(code: StepCode) -> tuple[Literal["out", "in"], ...]:
    """Return the directions of arcs along which a program reads remote vertices."""
    ways = {read.way for read in remote_reads(code)}
    return tuple(way for way in ("in", "out") if way in ways)


def reads_anywhere(code: StepCode) -> Instruction | None:
    """Return the first step that reads a field at any vertex; None if all reads go along arcs."""
    return next((read.step for read in remote_reads(code) if read.way == "any"), None)


@dataclass
class StepState:
    """The state of a run, which it changes in place.

    :param fields: (n) each, in the program's order
    :param integers: the numbers of int64, each at its index; the elements at other indexes are unused
    :param floats: the numbers of float64, each at its index; the elements at other indexes are unused
    :param frontier: vertices, ascending; those that the arcs leave, where the frontier is of arcs
    :param arcs: (m) uint8 flags of the frontier's arcs, valid for arcs that leave those vertices; else None
    """

    fields: list[Array]
    integers: Array
    floats: Array
    frontier: Array
    arcs: Array | None = None

    def number(self, code: StepCode, index: int) -> int | float:
        """Return the value of a number."""
        numbers = self.integers if code.number_dtype(index).kind == "i" else self.floats
        value: int | float = numbers[index].item()
        return value

    def numbers(self, code: StepCode) -> dict[str, int | float]:
        """Return all numbers by name."""
        return {name: self.number(code, index) for index, (name, _) in enumerate(code.numbers)}

    def set_number(self, code: StepCode, index: int, value: int | float) -> None:
        """Give a number a value."""
        numbers = self.integers if code.number_dtype(index).kind == "i" else self.floats
        numbers[index] = value


@dataclass
class StepCounts:
    """Counts of a run; the same on CPUs and GPUs.

    :param supersteps: operators on vertices or arcs that were run; an advance counts once, assign and until
        not at all
    :param processed: (devices) vertices that operators were run for: the frontier's, those that its arcs
        leave, or all; a team of threads counts all of them at its first device
    :param arcs: (devices) arcs that ``advance`` and ``arcs`` looked at; a team of threads counts all of
        them at its first device
    :param compile_s: seconds of compiling
    :param kernel_s: seconds of a GPU's kernels; None elsewhere
    :param exchange_s: seconds in which the host copied values between GPUs; None where it did not
    :param frontier_bytes: of GPUs' queues; None elsewhere
    """

    supersteps: int
    processed: Array
    arcs: Array
    compile_s: float = 0.0
    kernel_s: float | None = None
    exchange_s: float | None = None
    frontier_bytes: int | None = None


class StepError(Exception):
    """A failure of an operator, which :mod:`godwit.frontier.state` turns into a user's error.

    :param index: of the instruction
    :param kind: ``"overflow"``: a value does not fit; ``"vertex"``: a field names no vertex
    """

    def __init__(self, index: int, kind: Literal["overflow", "vertex"]) -> None:
        super().__init__(index, kind)
        self.index = index
        self.kind = kind

    @classmethod
    def of_word(cls, word: int) -> StepError:
        """Return the error that compiled code noted as ``1 + 2 * index``, plus 1 for ``"vertex"``."""
        index, what = divmod(word - 1, 2)
        return cls(index, "vertex" if what else "overflow")
