"""A step program as CPUs and GPUs compile it: instructions whose operators say what each parameter reads.

A run's state is one array a field (of all vertices), some numbers, and the frontier: a set of vertices, or
of arcs. Then it has the vertices that these leave, and a flag for each of their arcs.

Every instruction is one superstep, or two: what it reads is what was there before it began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from godwit.dtypes import Array

SIZE, VERTEX_COUNT = 0, 1
"""The numbers that every program has: of the vertices in the frontier, and of all."""

Combine = Literal["add", "min", "max"]

PULL_SHARE = 16
"""``direction="auto"`` pulls where the frontier has more than this part of the vertices, else it pushes."""


@dataclass(frozen=True)
class Read:
    """What a parameter of an operator stands for.

    :param kind: a field's value, a number, the id of a vertex, its out-degree, or the weight of the arc
        (1 where the graph has none)
    :param index: of the field or number
    :param via: a field of integers: it is the value at the vertex that this one names
    :param at_target: read (the field, or ``via``) at the arc's target, not at its source, nor at the vertex
    """

    kind: Literal["field", "number", "vertex", "degree", "weight"]
    index: int = -1
    via: int = -1
    at_target: bool = False


@dataclass(frozen=True)
class Operator:
    """A user's function of what it reads, in the order of ``reads``.

    :param symbol: its name in compiled code, such as ``message_3``
    """

    symbol: str
    function: Callable[..., Any]
    reads: tuple[Read, ...]


@dataclass(frozen=True)
class Instruction:
    """One step.

    :param index: in the order of the program, counted from 0; loops count too
    :param label: what people call it, such as ``advance into 'left'``
    :param into: the field that advance and compute write, the number that reduce and assign do
    :param combine: of advance and reduce
    :param value: the message of advance, what compute, reduce and assign make, a loop's ``until``
    :param keep: which arcs advance goes along, which vertices filter leaves, which arcs are then the
        frontier; None: all
    :param candidates: of an advance that may pull: the vertices that get messages; None: all
    :param place: of a pushing advance: the vertex that a message goes to; the target by default
    :param everywhere: for all vertices, not only for those of the frontier
    :param pulls: advance goes over in-arcs, or may
    :param turns: it does only where the frontier is large (:data:`PULL_SHARE`)
    :param stays: advance leaves the frontier as it is
    :param staged: compute reads what it writes at other vertices
    :param masked: the frontier is of arcs when it begins
    :param body: of a loop
    """

    kind: Literal["advance", "filter", "arcs", "compute", "reduce", "assign", "repeat"]
    index: int
    label: str
    into: int = -1
    combine: Combine = "add"
    value: Operator | None = None
    keep: Operator | None = None
    candidates: Operator | None = None
    place: Read = Read("vertex", at_target=True)
    everywhere: bool = False
    pulls: bool = False
    turns: bool = False
    stays: bool = False
    staged: bool = False
    masked: bool = False
    body: tuple[Instruction, ...] = ()

    def operators(self) -> list[Operator]:
        """Those that it has, itself."""
        return [one for one in (self.value, self.keep, self.candidates) if one is not None]

    def directions(self) -> tuple[Instruction, ...]:
        """Itself; of a step that turns, the one that pushes and the one that pulls."""
        if not self.turns:
            return (self,)
        pushing = replace(self, pulls=False, turns=False)
        return pushing, replace(self, turns=False)


@dataclass(frozen=True)
class StepCode:
    """A whole program.

    :param fields: names and dtypes (int32, uint32, int64, float32 or float64)
    :param numbers: likewise (int64 or float64); :data:`SIZE` and :data:`VERTEX_COUNT` are the first two
    :param compiled: what has been compiled of it, for CPUs and for GPUs, each by keys of its own
    """

    name: str
    fields: tuple[tuple[str, np.dtype[Any]], ...]
    numbers: tuple[tuple[str, np.dtype[Any]], ...]
    steps: tuple[Instruction, ...]
    compiled: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def instructions(self) -> Iterator[Instruction]:
        """All, in the order of their indexes: a loop before its body."""
        yield from _flat(self.steps)

    def field_dtype(self, index: int) -> np.dtype[Any]:
        """Of a field."""
        return self.fields[index][1]

    def number_dtype(self, index: int) -> np.dtype[Any]:
        """Of a number."""
        return self.numbers[index][1]

    def reads(self, kind: str) -> bool:
        """Whether any operator reads something of a kind."""
        return any(
            read.kind == kind
            for step in self.instructions()
            for operator in step.operators()
            for read in operator.reads
        )

    @property
    def has_arcs(self) -> bool:
        """Whether its frontier is of arcs at any time."""
        return any(step.kind == "arcs" or step.masked for step in self.instructions())

    @property
    def pulls(self) -> bool:
        """Whether it goes over in-arcs."""
        return any(step.pulls for step in self.instructions())


def _flat(steps: tuple[Instruction, ...]) -> Iterator[Instruction]:
    for step in steps:
        yield step
        yield from _flat(step.body)


def ends_with_arcs(code: StepCode) -> bool:
    """Whether the frontier is of arcs after the last step."""
    of_arcs = False
    for step in code.steps:
        stays = step.kind in ("compute", "reduce", "assign", "repeat") or step.stays
        of_arcs = step.kind == "arcs" or (stays and step.masked)
    return of_arcs


def accumulator_dtype(combine: Combine, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Of what messages are combined in: sums are wider, so that only what comes out must fit."""
    if combine != "add":
        return dtype
    return np.dtype(np.float64 if dtype.kind == "f" else np.int64)


@dataclass
class StepState:
    """What a run works on, and changes in place.

    :param fields: (n) each, in the order of the program's
    :param integers: the numbers that are int64, each at its index; what stands at the others' is of no use
    :param floats: likewise float64
    :param frontier: vertices, each once, ascending; those that the arcs leave, where it is of arcs
    :param arcs: (m) uint8: which arcs are in the frontier, as far as they leave those vertices; else None
    """

    fields: list[Array]
    integers: Array
    floats: Array
    frontier: Array
    arcs: Array | None = None

    def number(self, code: StepCode, index: int) -> int | float:
        """The value of a number."""
        numbers = self.integers if code.number_dtype(index).kind == "i" else self.floats
        value: int | float = numbers[index].item()
        return value

    def set_number(self, code: StepCode, index: int, value: int | float) -> None:
        """Give a number a value."""
        numbers = self.integers if code.number_dtype(index).kind == "i" else self.floats
        numbers[index] = value


@dataclass
class StepCounts:
    """What a run did; the same on CPUs and GPUs.

    :param supersteps: operators on vertices or arcs that were run, each once, however often devices meet
        in it; assigning numbers and asking whether a loop ends are none
    :param processed: (devices) vertices that operators were run for: those of the frontier, those that its
        arcs leave, or all; a team of threads has all of them at its first device
    :param arcs: (devices) that ``advance`` and ``arcs`` looked at: of rows, all; likewise
    :param compile_s: of the time, what compiling took
    :param kernel_s: the time of a GPU's kernels; None elsewhere
    :param exchange_s: that in which the host copied what GPUs told each other; None where it did not
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
    """An operator did what it must not; :mod:`godwit.frontier.state` says it in the user's words.

    :param index: of the instruction
    :param kind: ``"overflow"``: a value does not fit; ``"vertex"``: what names a vertex names none
    """

    def __init__(self, index: int, kind: Literal["overflow", "vertex"]) -> None:
        super().__init__(index, kind)
        self.index = index
        self.kind = kind
