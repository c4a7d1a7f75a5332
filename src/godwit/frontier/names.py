"""What the parameters of a step program's operators mean: they are matched by name.

``FIELD`` and ``degree`` are of the vertex (of an arc: of its source); ``FIELD_at_target`` and
``degree_at_target`` of an arc's target; ``FIELD_at_OTHER`` is the field at the vertex that the field OTHER
names, and ``FIELD_at_OTHER_at_target`` likewise. ``vertex``, or ``source`` and ``target``, are ids; numbers
go by their names.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from godwit.dataflow.operators import adapt
from godwit.errors import InputError, shown
from godwit.frontier.code import Operator, Read

RESERVED = (
    "size", "vertex_count", "vertex", "source", "target", "degree", "weight", "operator", "parameters",
)  # fmt: skip

Scope = Literal["arc", "vertex", "number"]


def check_name(name: Any, what: str) -> str:
    """The name of a field or number; InputError if operators could not have it as a parameter."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise InputError(f"{what} must be named by a Python identifier, got {shown(name)}")
    if name in RESERVED or "_at_" in name or name.startswith("_"):
        raise InputError(
            f"{what} cannot be named {name!r}: {', '.join(RESERVED)}, names with '_at_' in them and "
            "such as begin with '_' mean something else"
        )
    return name


@dataclass(frozen=True)
class Names:
    """The fields and numbers of a program, by name, with their dtypes."""

    fields: Mapping[str, np.dtype[Any]]
    numbers: Mapping[str, np.dtype[Any]]

    def field_index(self, name: Any, label: str) -> int:
        """Of a field."""
        return _index(self.fields, name, "field", label)

    def number_index(self, name: Any, label: str) -> int:
        """Of a number that operators may set."""
        if name in ("size", "vertex_count"):
            raise InputError(f"{label}: the number {name!r} cannot be set")
        return _index(self.numbers, name, "number", label)

    def place(self, name: Any, label: str) -> Read:
        """The vertex that messages go to: an end of the arc, or a field that says which."""
        if name in ("source", "target"):
            return Read("vertex", at_target=name == "target")
        plain = name.removesuffix("_at_target") if isinstance(name, str) else name
        index = self.field_index(plain, f"{label}: at")
        if self.fields[plain].kind == "f":
            raise InputError(f"{label}: at names the field {plain!r}, which is not of integers")
        return Read("field", index, at_target=plain != name)

    def operator(self, symbol: str, function: Callable[..., Any], scope: Scope) -> Operator:
        """A user's function with what its parameters read.

        :param symbol: its role and the index of its instruction
        :raises OperatorError: it is none, or names something that is not offered
        """
        role = symbol.rpartition("_")[0]
        offered = self._offered(scope)
        plain = getattr(function, "py_func", function)
        if not inspect.isfunction(plain):
            adapt(role, function, ())
        taken = {}
        for name in inspect.signature(plain).parameters:
            read = offered.get(name) or self._chained(name, scope)
            if read is not None:
                taken[name] = read
        listed = list(dict.fromkeys([*taken, *offered]))
        adapt(role, function, listed)  # says what is wrong with a parameter
        return Operator(symbol, adapt(role, function, list(taken)), tuple(taken.values()))

    def _offered(self, scope: Scope) -> dict[str, Read]:
        """The names that are worth telling people; :meth:`_chained` knows the others."""
        offered = {name: Read("number", index) for index, name in enumerate(self.numbers)}
        if scope == "number":
            return offered
        reads = {name: Read("field", index) for index, name in enumerate(self.fields)}
        reads["degree"] = Read("degree")
        if scope == "vertex":
            return {**reads, "vertex": Read("vertex"), **offered}
        there = {
            f"{name}_at_target": Read(read.kind, read.index, at_target=True)
            for name, read in reads.items()
        }
        ends = {"source": Read("vertex"), "target": Read("vertex", at_target=True)}
        return {**reads, **there, **ends, "weight": Read("weight"), **offered}

    def _chained(self, name: str, scope: Scope) -> Read | None:
        """A field at the vertex that another one names."""
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
        there = ", ".join(one for one in known if one not in RESERVED) or "none"
        raise InputError(f"{label}: there is no {what} {shown(name)}; there are {there}")
    return list(known).index(name)
