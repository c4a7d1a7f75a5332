"""The operators that step programs are made of: each is an object, made by a function of its name.

Gunrock's advance, filter and compute (Wang et al., "Gunrock: a high-performance graph processing library on
the GPU", 2016), with numbers that the whole graph shares, and loops over them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from godwit.errors import InputError, OperatorError, shown
from godwit.frontier.code import Combine, Instruction, Operator
from godwit.frontier.names import Names, Scope

Function = Callable[..., Any]
Of = Literal["frontier", "all"]
Direction = Literal["push", "pull", "auto"]


class Step(ABC):
    """A part of a step program: an operator, or a loop around some."""

    @abstractmethod
    def label(self) -> str:
        """What messages call it."""

    @abstractmethod
    def resolve(self, names: Names, counter: Iterator[int]) -> Instruction:
        """The instruction that is compiled; what does not fit the program is refused."""


@dataclass(frozen=True, eq=False)
class _Advance(Step):
    into: str
    message: Function
    combine: Combine
    keep: Function | None
    at: str
    direction: Direction
    candidates: Function | None
    frontier: Literal["reached", "kept"]

    def label(self) -> str:
        return f"advance into {self.into!r}"

    def resolve(self, names: Names, counter: Iterator[int]) -> Instruction:
        index, label = next(counter), self.label()
        return Instruction(
            "advance",
            index,
            label,
            into=names.field_index(self.into, label),
            combine=self.combine,
            value=_operator(names, label, "message", index, self.message, "arc"),
            keep=_optional(names, label, "keep", index, self.keep, "arc"),
            candidates=_optional(names, label, "candidates", index, self.candidates, "vertex"),
            place=names.place(self.at, label),
            pulls=self.direction != "push",
            turns=self.direction == "auto",
            stays=self.frontier == "kept",
        )


@dataclass(frozen=True, eq=False)
class _Filter(Step):
    keep: Function
    of: Of

    def label(self) -> str:
        return "filter"

    def resolve(self, names: Names, counter: Iterator[int]) -> Instruction:
        index, label = next(counter), self.label()
        keep = _operator(names, label, "keep", index, self.keep, "vertex")
        return Instruction("filter", index, label, keep=keep, everywhere=self.of == "all")


@dataclass(frozen=True, eq=False)
class _Arcs(Step):
    keep: Function

    def label(self) -> str:
        return "arcs"

    def resolve(self, names: Names, counter: Iterator[int]) -> Instruction:
        index, label = next(counter), self.label()
        keep = _operator(names, label, "keep", index, self.keep, "arc")
        return Instruction("arcs", index, label, keep=keep)


@dataclass(frozen=True, eq=False)
class _Compute(Step):
    field: str
    value: Function
    of: Of

    def label(self) -> str:
        return f"compute {self.field!r}"

    def resolve(self, names: Names, counter: Iterator[int]) -> Instruction:
        index, label = next(counter), self.label()
        value = _operator(names, label, "value", index, self.value, "vertex")
        into = names.field_index(self.field, label)
        return Instruction(
            "compute",
            index,
            label,
            into=into,
            value=value,
            everywhere=self.of == "all",
            staged=any(read.via >= 0 and read.index == into for read in value.reads),
        )


@dataclass(frozen=True, eq=False)
class _Reduce(Step):
    number: str
    value: Function
    combine: Combine
    of: Of

    def label(self) -> str:
        return f"reduce to {self.number!r}"

    def resolve(self, names: Names, counter: Iterator[int]) -> Instruction:
        index, label = next(counter), self.label()
        return Instruction(
            "reduce",
            index,
            label,
            into=names.number_index(self.number, label),
            combine=self.combine,
            value=_operator(names, label, "value", index, self.value, "vertex"),
            everywhere=self.of == "all",
        )


@dataclass(frozen=True, eq=False)
class _Assign(Step):
    number: str
    value: Function

    def label(self) -> str:
        return f"assign {self.number!r}"

    def resolve(self, names: Names, counter: Iterator[int]) -> Instruction:
        index, label = next(counter), self.label()
        value = _operator(names, label, "value", index, self.value, "number")
        into = names.number_index(self.number, label)
        return Instruction("assign", index, label, into=into, value=value)


@dataclass(frozen=True, eq=False)
class _Repeat(Step):
    steps: tuple[Step, ...]
    until: Function

    def label(self) -> str:
        return "repeat"

    def resolve(self, names: Names, counter: Iterator[int]) -> Instruction:
        index, label = next(counter), self.label()
        until = _operator(names, label, "until", index, self.until, "number")
        body = resolve_steps(self.steps, names, counter)
        return Instruction("repeat", index, label, value=until, body=body)


def advance(
    into: str,
    message: Function,
    combine: Combine,
    *,
    keep: Function | None = None,
    at: str = "target",
    direction: Direction = "push",
    candidates: Function | None = None,
    frontier: Literal["reached", "kept"] = "reached",
) -> Step:
    """Send messages along the out-arcs of the frontier's vertices, and combine them into a field.

    Functions may read fields, numbers, ``source``, ``target``, ``weight`` and ``degree`` by name; fields
    at the arc's target as ``FIELD_at_target``. All of them read what was there before the step.

    :param into: the field: its new value is the old one combined with all messages that have come
    :param message: what goes along an arc
    :param combine: ``"add"``, ``"min"`` or ``"max"``
    :param keep: whether to go along an arc; None: along all
    :param at: where messages go to: ``"target"``, ``"source"``, or a field of integers that names a
        vertex: of the source (``"parent"``) or of the target (``"parent_at_target"``)
    :param direction: ``"push"``: over the out-arcs of the frontier; ``"pull"``: over the in-arcs of
        the candidates, those from the frontier: the same result, without atomics; ``"auto"``: pull where
        the frontier has more than a sixteenth of the vertices, else push
    :param candidates: unless all is pushed: only these vertices get messages; None: all may
    :param frontier: ``"reached"``: the frontier is then what was reached: whose field has improved, or, for
        ``"add"``, whoever got a message. ``"kept"``: it stays what it was
    :raises InputError: an option that is not there, or two that do not go together
    """
    _choice("combine", combine, ("add", "min", "max"))
    _choice("direction", direction, ("push", "pull", "auto"))
    _choice("frontier", frontier, ("reached", "kept"))
    if direction == "push" and candidates is not None:
        raise InputError(
            "advance: candidates are for direction='pull' and 'auto'; keep can read the target"
        )
    if direction != "push" and at != "target":
        raise InputError(f"advance: direction={direction!r} goes to the target, not at={at!r}")
    return _Advance(into, message, combine, keep, at, direction, candidates, frontier)


def filter(keep: Function, of: Of = "frontier") -> Step:
    """Make a frontier of the vertices that ``keep`` says.

    :param keep: reads fields, numbers, ``vertex`` and ``degree``
    :param of: out of the ``"frontier"``, or of ``"all"`` vertices
    """
    _choice("of", of, ("frontier", "all"))
    return _Filter(keep, of)


def arcs(keep: Function) -> Step:
    """Make a frontier of arcs: those that ``keep`` says, of the frontier or of what leaves its vertices.

    ``size`` then counts arcs, and :func:`advance` goes along them only, by pushing.

    :param keep: reads what ``keep`` of :func:`advance` does
    """
    return _Arcs(keep)


def compute(field: str, value: Function, of: Of = "frontier") -> Step:
    """Give a field of every vertex of the frontier a new value.

    :param value: reads fields, numbers, ``vertex`` and ``degree``, all from before the step. A field
        at the vertex that another field names is ``FIELD_at_OTHER``: pointer jumping is
        ``compute("parent", lambda parent_at_parent: parent_at_parent)``
    :param of: the ``"frontier"``, or ``"all"`` vertices
    """
    _choice("of", of, ("frontier", "all"))
    return _Compute(field, value, of)


def reduce(number: str, value: Function, combine: Combine, of: Of = "frontier") -> Step:
    """Set a number to the combination of a value of every vertex of the frontier.

    What the number was before is overwritten: to accumulate, :func:`assign` the sum to another number.
    Of no vertices, it is 0 for ``"add"``, else the largest (``"min"``) or smallest number of its dtype.

    :param value: as for :func:`compute`
    :param combine: ``"add"``, ``"min"`` or ``"max"``
    :param of: the ``"frontier"``, or ``"all"`` vertices
    """
    _choice("combine", combine, ("add", "min", "max"))
    _choice("of", of, ("frontier", "all"))
    return _Reduce(number, value, combine, of)


def assign(number: str, value: Function) -> Step:
    """Make a number of numbers; ``size`` (of the frontier) and ``vertex_count`` are two of them."""
    return _Assign(number, value)


def repeat(steps: Sequence[Step], until: Function) -> Step:
    """Repeat steps, at least once, until a function of numbers says true, asked after each round."""
    return _Repeat(as_steps(steps, "repeat"), until)


def as_steps(steps: Any, where: str) -> tuple[Step, ...]:
    """Steps as a tuple; InputError if they are none."""
    if isinstance(steps, Step | str) or not isinstance(steps, Sequence):
        raise InputError(f"{where}: steps must be a list of operators, got {shown(steps)}")
    for step in steps:
        if not isinstance(step, Step):
            raise InputError(f"{where}: a step must be an operator, got {shown(step)}")
    if not steps:
        raise InputError(f"{where}: there must be at least one step")
    return tuple(steps)


def resolve_steps(
    steps: tuple[Step, ...], names: Names, counter: Iterator[int]
) -> tuple[Instruction, ...]:
    """The instructions of steps, numbered."""
    return tuple(step.resolve(names, counter) for step in steps)


def with_frontiers(
    steps: tuple[Instruction, ...], of_arcs: bool
) -> tuple[tuple[Instruction, ...], bool]:
    """The steps, told what the frontier is of when they begin; and what it is of after them.

    :raises InputError: a step cannot go on from a frontier of arcs
    """
    found = []
    for given in steps:
        # Over a frontier of arcs, what may push does.
        step = given.directions()[0] if of_arcs else given
        body, after = step.body, of_arcs
        if step.kind == "repeat":
            body, after = with_frontiers(step.body, of_arcs)
            if after != of_arcs:
                one, other = ("arcs", "vertices") if of_arcs else ("vertices", "arcs")
                raise InputError(
                    f"repeat: a round begins with a frontier of {one} and ends with one of {other}"
                )
        elif step.kind == "arcs":
            after = True
        elif step.kind == "advance":
            after = of_arcs and step.stays
            if of_arcs and step.pulls:
                raise InputError(f"{step.label}: direction='pull' is for a frontier of vertices")
        elif step.kind == "filter":
            after = False
        if of_arcs and not step.everywhere and step.kind in ("filter", "compute", "reduce"):
            raise InputError(
                f"{step.label}: the frontier is of arcs here, which arcs(keep) filters; "
                "of='all' is for all vertices"
            )
        found.append(replace(step, body=body, masked=of_arcs))
        of_arcs = after
    return tuple(found), of_arcs


def _operator(
    names: Names, label: str, role: str, index: int, function: Function, scope: Scope
) -> Operator:
    try:
        return names.operator(f"{role}_{index}", function, scope)
    except OperatorError as error:
        raise OperatorError(f"{label}: {error}") from None


def _optional(
    names: Names, label: str, role: str, index: int, function: Function | None, scope: Scope
) -> Operator | None:
    return None if function is None else _operator(names, label, role, index, function, scope)


def _choice(name: str, value: Any, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{name} must be one of {', '.join(map(repr, known))}, got {shown(value)}")
