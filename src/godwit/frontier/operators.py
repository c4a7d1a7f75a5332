"""The operators of step programs: :mod:`godwit.frontier` has the functions that make them.

They are Gunrock's advance, filter and compute (Wang et al., "Gunrock: a high-performance graph processing
library on the GPU", 2016), with numbers of the whole graph, and loops.

Parameters of users' functions are matched by name. ``FIELD`` and ``degree`` are values of the vertex (along
an arc: of its source), ``FIELD_at_target`` and ``degree_at_target`` of an arc's target; ``FIELD_at_OTHER``
is the field at the vertex that the field OTHER of that vertex names, ``FIELD_at_OTHER_at_target`` at the
vertex that OTHER of the arc's target names.
``vertex``, or ``source`` and ``target``, are ids; numbers go by their names.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal

import numpy as np

from godwit.dataflow.operators import adapt
from godwit.errors import InputError, OperatorError, shown
from godwit.frontier.code import Instruction, Operator, Read
from godwit.worker.program import COMBINES, Combine, check_bitwise

Function = Callable[..., Any]
Of = Literal["frontier", "all"]
Direction = Literal["push", "pull", "auto"]
Scope = Literal["arc", "vertex", "number"]

RESERVED = (
    "size", "vertex_count", "vertex", "source", "target", "degree", "weight", "operator", "parameters",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Step:
    """A part of a step program: an operator, or a loop of operators.

    :param label: its name in error messages
    :param resolve: returns its instruction; raises InputError for what does not fit the program
    """

    label: str
    resolve: Callable[[Names], Instruction]


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

    Functions may read fields, numbers, ``source``, ``target``, ``weight`` and ``degree`` by name; fields at
    the arc's target as ``FIELD_at_target``. All values are those from before the step.

    :param into: the field: its new value is the old one combined with all messages to the vertex
    :param message: the value that is sent along an arc
    :param combine: ``"add"``, ``"min"`` or ``"max"``; ``"or"`` or ``"and"``: of the bits of integers
    :param keep: condition on the arcs to go along; None: all
    :param at: the vertex that messages go to: ``"target"``, ``"source"``, or a field of integers that names
        a vertex: of the source (``"parent"``) or of the target (``"parent_at_target"``)
    :param direction: ``"push"``: over the out-arcs of the frontier; ``"pull"``: over the in-arcs of the
        candidates that come from the frontier: the same result, without atomics; ``"auto"``: pull while the
        frontier has more than a sixteenth of the vertices, else push
    :param candidates: condition on the vertices that get messages, unless all is pushed; None: all
    :param frontier: ``"reached"``: the next frontier is the vertices whose field has improved, or, for
        ``"add"``, that got a message. ``"kept"``: it stays unchanged
    :raises InputError: an unknown option, or two that do not go together
    """
    _check_choice("combine", combine, COMBINES)
    _check_choice("direction", direction, ("push", "pull", "auto"))
    _check_choice("frontier", frontier, ("reached", "kept"))
    if direction == "push" and candidates is not None:
        raise InputError(
            "advance: candidates are for direction='pull' and 'auto'; keep can read the target"
        )
    if direction != "push" and at != "target":
        raise InputError(f"advance: direction={direction!r} goes to the target, not at={at!r}")
    label = f"advance into {into!r}"

    def resolve(names: Names) -> Instruction:
        index = next(names.indexes)
        field = names.field_index(into, label)
        check_bitwise(combine, names.fields[into], label)
        return Instruction(
            "advance",
            index,
            label,
            into=field,
            combine=combine,
            value=names.operator(label, "message", index, message, "arc"),
            keep=names.condition(label, "keep", index, keep, "arc"),
            candidates=names.condition(label, "candidates", index, candidates, "vertex"),
            goal=names.goal(at, label),
            pulls=direction != "push",
            turns=direction == "auto",
            stays=frontier == "kept",
        )

    return Step(label, resolve)


def filter(keep: Function, of: Of = "frontier") -> Step:
    """Make a frontier of the vertices for which ``keep`` returns True.

    :param keep: reads fields, numbers, ``vertex`` and ``degree``
    :param of: out of the ``"frontier"``, or of ``"all"`` vertices
    """
    _check_choice("of", of, ("frontier", "all"))

    def resolve(names: Names) -> Instruction:
        index = next(names.indexes)
        condition = names.operator("filter", "keep", index, keep, "vertex")
        return Instruction("filter", index, "filter", keep=condition, everywhere=of == "all")

    return Step("filter", resolve)


def arcs(keep: Function) -> Step:
    """Make a frontier of the arcs for which ``keep`` returns True.

    They are chosen from the frontier's arcs, or from the out-arcs of its vertices. ``size`` then counts
    arcs, and :func:`advance` goes along them only, by pushing.

    :param keep: reads what ``keep`` of :func:`advance` does
    """

    def resolve(names: Names) -> Instruction:
        index = next(names.indexes)
        condition = names.operator("arcs", "keep", index, keep, "arc")
        return Instruction("arcs", index, "arcs", keep=condition)

    return Step("arcs", resolve)


def compute(field: str, value: Function, of: Of = "frontier") -> Step:
    """Give a field of every vertex of the frontier a new value.

    :param value: reads fields, numbers, ``vertex`` and ``degree``, all from before the step. A field at the
        vertex that another field names is ``FIELD_at_OTHER``: pointer jumping is
        ``compute("parent", lambda parent_at_parent: parent_at_parent)``
    :param of: the ``"frontier"``, or ``"all"`` vertices
    """
    _check_choice("of", of, ("frontier", "all"))
    label = f"compute {field!r}"

    def resolve(names: Names) -> Instruction:
        index = next(names.indexes)
        operator = names.operator(label, "value", index, value, "vertex")
        into = names.field_index(field, label)
        return Instruction(
            "compute",
            index,
            label,
            into=into,
            value=operator,
            everywhere=of == "all",
            staged=any(read.via >= 0 and read.index == into for read in operator.reads),
        )

    return Step(label, resolve)


def reduce(
    number: str, value: Function, combine: Literal["add", "min", "max"], of: Of = "frontier"
) -> Step:
    """Set a number to the combination of a value of every vertex of the frontier.

    The previous value is overwritten: to accumulate, :func:`assign` the sum to another number. Of no
    vertices the combination is 0 for ``"add"``, else the largest (``"min"``) or smallest number of the
    dtype.

    :param value: as for :func:`compute`
    :param combine: ``"add"``, ``"min"`` or ``"max"``
    :param of: the ``"frontier"``, or ``"all"`` vertices
    """
    _check_choice("combine", combine, ("add", "min", "max"))
    _check_choice("of", of, ("frontier", "all"))
    label = f"reduce to {number!r}"

    def resolve(names: Names) -> Instruction:
        index = next(names.indexes)
        return Instruction(
            "reduce",
            index,
            label,
            into=names.number_index(number, label),
            combine=combine,
            value=names.operator(label, "value", index, value, "vertex"),
            everywhere=of == "all",
        )

    return Step(label, resolve)


def assign(number: str, value: Function) -> Step:
    """Set a number to a function of numbers, among them ``size`` (of the frontier) and ``vertex_count``."""
    label = f"assign {number!r}"

    def resolve(names: Names) -> Instruction:
        index = next(names.indexes)
        operator = names.operator(label, "value", index, value, "number")
        into = names.number_index(number, label)
        return Instruction("assign", index, label, into=into, value=operator)

    return Step(label, resolve)


def repeat(steps: Sequence[Step], until: Function) -> Step:
    """Repeat steps, at least once, until a function of numbers returns True after a round."""
    body = as_steps(steps, "repeat")

    def resolve(names: Names) -> Instruction:
        index = next(names.indexes)
        condition = names.operator("repeat", "until", index, until, "number")
        resolved = tuple(step.resolve(names) for step in body)
        return Instruction("repeat", index, "repeat", value=condition, body=resolved)

    return Step("repeat", resolve)


def as_steps(steps: Any, where: str) -> tuple[Step, ...]:
    """Return steps as a tuple; raise InputError if they are no sequence of steps."""
    if isinstance(steps, Step | str) or not isinstance(steps, Sequence):
        raise InputError(f"{where}: steps must be a list of operators, got {shown(steps)}")
    for step in steps:
        if not isinstance(step, Step):
            raise InputError(f"{where}: a step must be an operator, got {shown(step)}")
    if not steps:
        raise InputError(f"{where}: there must be at least one step")
    return tuple(steps)


def resolve_steps(
    steps: tuple[Step, ...], names: Names, *, of_arcs: bool
) -> tuple[Instruction, ...]:
    """Return the instructions of steps, numbered from 0.

    :param of_arcs: the frontier is of arcs when they begin
    """
    instructions, _ = _with_frontiers(tuple(step.resolve(names) for step in steps), of_arcs)
    return instructions


def _with_frontiers(
    steps: tuple[Instruction, ...], of_arcs: bool
) -> tuple[tuple[Instruction, ...], bool]:
    """Set ``masked`` of steps; also return True if the frontier is of arcs after them.

    :raises InputError: a step cannot follow a frontier of arcs
    """
    masked = []
    for given in steps:
        # Along a frontier of arcs, an automatic step always pushes.
        step = given.directions()[0] if of_arcs else given
        body, after = step.body, of_arcs
        if step.kind == "repeat":
            body, after = _with_frontiers(step.body, of_arcs)
            if after != of_arcs:
                first, last = ("arcs", "vertices") if of_arcs else ("vertices", "arcs")
                raise InputError(
                    f"repeat: a round begins with a frontier of {first} and ends with one of {last}"
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
        masked.append(replace(step, body=body, masked=of_arcs))
        of_arcs = after
    return tuple(masked), of_arcs


def check_name(name: Any, what: str) -> str:
    """Return the name of a field or number; raise InputError if it cannot be an operator's parameter."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise InputError(f"{what} must be named by a Python identifier, got {shown(name)}")
    if name in RESERVED or "_at_" in name or name.startswith("_"):
        raise InputError(
            f"{what} cannot be named {name!r}: {', '.join(RESERVED)}, names with '_at_' in them and "
            "names that begin with '_' are reserved"
        )
    return name


class Names:
    """The names that the steps of one program may use.

    :param fields: dtypes by name
    :param numbers: dtypes by name
    :ivar indexes: counts the program's instructions
    """

    def __init__(
        self, fields: Mapping[str, np.dtype[Any]], numbers: Mapping[str, np.dtype[Any]]
    ) -> None:
        self.fields = fields
        self.numbers = numbers
        self.indexes = count()

    def field_index(self, name: Any, label: str) -> int:
        """Return the index of a field."""
        return _index(self.fields, name, "field", label)

    def number_index(self, name: Any, label: str) -> int:
        """Return the index of a number that steps may set."""
        if name in ("size", "vertex_count"):
            raise InputError(f"{label}: the number {name!r} cannot be set")
        return _index(self.numbers, name, "number", label)

    def goal(self, name: Any, label: str) -> Read:
        """Return the vertex that messages go to: an end of the arc, or the vertex that a field names."""
        if name in ("source", "target"):
            return Read("vertex", at_target=name == "target")
        plain = name.removesuffix("_at_target") if isinstance(name, str) else name
        index = self.field_index(plain, f"{label}: at")
        if self.fields[plain].kind == "f":
            raise InputError(f"{label}: at names the field {plain!r}, which is not of integers")
        return Read("field", index, at_target=plain != name)

    def operator(
        self, label: str, role: str, index: int, function: Function, scope: Scope
    ) -> Operator:
        """Return a user's function with the meaning of its parameters.

        :param role: its name in error messages
        :param index: of its instruction
        :raises OperatorError: it is no plain function, or has a parameter of another name
        """
        offered = self._offered(scope)
        plain = getattr(function, "py_func", function)
        try:
            if not inspect.isfunction(plain):
                adapt(role, function, ())
            reads = {}
            for name in inspect.signature(plain).parameters:
                read = offered.get(name) or self._chained(name, scope)
                if read is not None:
                    reads[name] = read
            listed = list(dict.fromkeys([*reads, *offered]))
            adapt(role, function, listed)  # raises for a parameter without a meaning
            adapted = adapt(role, function, list(reads))
        except OperatorError as error:
            raise OperatorError(f"{label}: {error}") from None
        return Operator(f"{role}_{index}", adapted, tuple(reads.values()))

    def condition(
        self, label: str, role: str, index: int, function: Function | None, scope: Scope
    ) -> Operator | None:
        """Return an optional user's function as :meth:`operator` does."""
        return None if function is None else self.operator(label, role, index, function, scope)

    def _offered(self, scope: Scope) -> dict[str, Read]:
        """Return the names that error messages list; :meth:`_chained` accepts further ones."""
        numbers = {name: Read("number", index) for index, name in enumerate(self.numbers)}
        if scope == "number":
            return numbers
        reads = {name: Read("field", index) for index, name in enumerate(self.fields)}
        reads["degree"] = Read("degree")
        if scope == "vertex":
            return {**reads, "vertex": Read("vertex"), **numbers}
        at_target = {
            f"{name}_at_target": replace(read, at_target=True) for name, read in reads.items()
        }
        ends = {"source": Read("vertex"), "target": Read("vertex", at_target=True)}
        return {**reads, **at_target, **ends, "weight": Read("weight"), **numbers}

    def _chained(self, name: str, scope: Scope) -> Read | None:
        """Return the meaning of ``FIELD_at_OTHER`` or ``FIELD_at_OTHER_at_target``; else None."""
        plain = name.removesuffix("_at_target")
        at_target = plain != name
        field, _, other = plain.partition("_at_")
        known = list(self.fields)
        if field not in known or other not in known or self.fields[other].kind == "f":
            return None
        if scope == "number" or (at_target and scope != "arc"):
            return None
        return Read("field", known.index(field), known.index(other), at_target)


def _index(known: Mapping[str, Any], name: Any, what: str, label: str) -> int:
    if not isinstance(name, str) or name not in known:
        names = ", ".join(other for other in known if other not in RESERVED) or "none"
        raise InputError(f"{label}: there is no {what} {shown(name)}; there are {names}")
    return list(known).index(name)


def _check_choice(name: str, value: Any, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{name} must be one of {', '.join(map(repr, known))}, got {shown(value)}")
