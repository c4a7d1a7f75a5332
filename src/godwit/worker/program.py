"""Declarations of vertex-centric algorithms: :class:`VertexProgram`.

Every vertex has a *value*, into which the messages that reach it are combined. An active vertex is
processed: its message is sent along its out-arcs. Values either only improve (``combine`` min or max: BFS,
shortest paths, labels; ``"or"`` and ``"and"``: sets of bits) or accumulate (``combine`` add: residual
PageRank; processing takes the value, leaving zero, and passes it to ``update``).

A program names neither devices nor an order of work: every schedule gives the same result, up to rounding
where floating-point values accumulate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import signature
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import numpy as np

from godwit.dataflow.operators import adapt
from godwit.dtypes import Array, as_array, as_float
from godwit.errors import InputError, shown
from godwit.other_names import NamesItsAttributes

Combine = Literal["min", "max", "or", "and", "add"]
COMBINES: tuple[Combine, ...] = ("min", "max", "or", "and", "add")
BITWISE = ("or", "and")
"""Combinations of the bits of integers: values improve as bits are set (or) or cleared (and)."""

Operator = Callable[..., Any]
Noted = TypeVar("Noted", bound=Operator)
Initial = float | Array | Callable[[Array], Any] | None

_MESSAGE = ("value", "weight", "degree", "vertex", "field")


def in_cuda(expression: str) -> Callable[[Noted], Noted]:
    """Return a decorator that notes what an operator returns, as an expression of CUDA C++.

    A kernel whose operators all have it is compiled without Numba, in half the time: for Godwit's own
    programs, which users wait for at the first query. It must return what the function does: ``wide()``
    converts integers to 64 bits, as Numba does.

    :param expression: over the names that operators may name, but for parameters of the program
    """

    def note(operator: Noted) -> Noted:
        operator.__dict__["in_cuda"] = expression
        return operator

    return note


@dataclass(frozen=True, eq=False)
class ProgramOperators:
    """The operators of a VertexProgram as engines compile them, with fixed signatures.

    ``message(value, weight, degree, vertex, field, parameters)``, ``activate(value, parameters)``,
    ``update(field, value, parameters)`` and ``priority(value)`` are plain Python functions.

    :param identity: the value that every message improves on, or that adds nothing
    :param parameter_count: number of the program's parameters
    :param expressions: what operators return, by role, as :func:`in_cuda` notes it; None: not noted of all
    :param compiled: compiled forms for CPUs and GPUs, by their own keys
    """

    name: str
    combine: Combine
    value_dtype: np.dtype[Any]
    message: Operator
    activate: Operator
    priority: Operator | None = None
    field_dtype: np.dtype[Any] | None = None
    update: Operator | None = None
    uses_weight: bool = True
    uses_degree: bool = False
    uses_vertex: bool = False
    identity: Any = 0
    parameter_count: int = 0
    expressions: Mapping[str, str] | None = None
    compiled: dict[Any, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, eq=False)
class VertexProgram(NamesItsAttributes):
    """An algorithm over vertices and arcs, in plain Python functions compiled for the devices.

    >>> sssp = VertexProgram(
    ...     name="sssp",
    ...     dtype="float64",
    ...     message=lambda value, weight: value + weight,
    ...     combine="min",
    ...     priority=lambda value: value,
    ... )

    Operators name, in any order, those of the parameters that they need.

    :param name: shown in messages and traces
    :param message: ``message(value, weight, degree, vertex, field, ...)``: the value sent along an arc of
        ``weight`` (1 where the graph has none) from a vertex of this value, out-degree, id and field
    :param combine: how messages are combined: ``"min"``, ``"max"``, ``"or"`` or ``"and"`` (of the bits of
        integers), or ``"add"``
    :param dtype: of the values: int32, uint32, int64, float32 or float64. The message is converted to it; a
        floating-point message for integers is an OperatorError before anything runs. An integer that does
        not fit 32 bits ends the run with an error
    :param initial: initial value of every vertex: a number, an array of shape (n), or a function of the
        array of vertex ids. Default: the value that every message improves on (0 for ``"add"``)
    :param activate: ``activate(value, ...)``: True if a vertex of this value needs processing. For add it
        is required; otherwise it is called for vertices that improved, and by default all are processed
    :param update: ``update(field, value, ...)``: the vertex's new field when its value is taken
    :param field_dtype: of the fields, if the program has them
    :param field_initial: initial field of every vertex, as ``initial``
    :param priority: ``priority(value)``: smaller is sooner; a hint that saves useless work
    :param parameters: names and default values (floats) of further parameters of the operators; a run may
        have other values without being compiled again
    :raises InputError: unknown ``combine`` or dtype, a name that is no printable text, initial values that
        are no numbers, or arguments that do not go together
    :raises OperatorError: an operator is no plain function, or has a parameter of an unknown name
    """

    name: str
    message: Operator
    combine: Combine
    dtype: Any = "float64"
    initial: Initial = None
    activate: Operator | None = None
    update: Operator | None = None
    field_dtype: Any = None
    field_initial: Initial = 0
    priority: Operator | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)
    operators: ProgramOperators = field(init=False, repr=False)

    def __post_init__(self) -> None:
        program_name(self.name, "a vertex program")
        _check_initial(self.initial, "initial")
        _check_initial(self.field_initial, "field_initial")
        dtype = _value_dtype(self.dtype, "dtype")
        if not isinstance(self.combine, str) or self.combine not in COMBINES:
            known = ", ".join(map(repr, COMBINES))
            raise InputError(f"combine must be one of {known}, got {shown(self.combine)}")
        check_bitwise(self.combine, dtype, f"vertex program {self.name!r}")
        if self.combine == "add" and self.activate is None:
            raise InputError(
                "a program that adds must say which values are to be processed: activate"
            )
        if (self.update is None) != (self.field_dtype is None):
            raise InputError("update and field_dtype belong together: give both or neither")
        if not isinstance(self.parameters, Mapping):
            raise InputError(
                "parameters must be a mapping of names to default values, "
                f"got {shown(self.parameters)}"
            )
        for name, value in self.parameters.items():
            as_float(value, f"parameter {name!r}")
        names = tuple(self.parameters)
        field_dtype = None
        if self.field_dtype is not None:
            field_dtype = _value_dtype(self.field_dtype, "field_dtype")
        activate = _always if self.activate is None else self.activate
        operators = ProgramOperators(
            name=self.name,
            combine=self.combine,
            value_dtype=dtype,
            message=_with_parameters("message", self.message, _MESSAGE, names),
            activate=_with_parameters("activate", activate, ("value",), names),
            priority=None
            if self.priority is None
            else adapt("priority", self.priority, ("value",)),
            field_dtype=field_dtype,
            update=None
            if self.update is None
            else _with_parameters("update", self.update, ("field", "value"), names),
            identity=identity_of(self.combine, dtype),
            uses_weight="weight" in signature(self.message).parameters,
            uses_degree="degree" in signature(self.message).parameters,
            uses_vertex="vertex" in signature(self.message).parameters,
            parameter_count=len(names),
            expressions=_expressions(
                {
                    "message": self.message,
                    "activate": activate,
                    "priority": self.priority,
                    "update": self.update,
                }
            ),
        )
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "field_dtype", field_dtype)
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))
        object.__setattr__(self, "operators", operators)

    @property
    def identity(self) -> Any:
        """The value that every message improves on, or that adds nothing."""
        return self.operators.identity

    def parameter_values(self, given: Mapping[str, float] | None) -> Array:
        """Return the values of the parameters as compiled code takes them, float64."""
        if given is not None and not isinstance(given, Mapping):
            raise InputError(
                f"parameters must be a mapping such as {{name: value}}, got {shown(given)}"
            )
        for name in given or {}:
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise InputError(f"program {self.name!r} has no parameter {name!r}; it has {known}")
        if not self.parameters:
            return np.zeros(1)
        values = {**self.parameters, **(given or {})}
        numbers = [as_float(value, f"parameter {name!r}") for name, value in values.items()]
        return np.array([*numbers, 0.0], np.float64)


def _expressions(operators: Mapping[str, Operator | None]) -> Mapping[str, str] | None:
    """Return what operators return in CUDA C++, by role; None if it is not known of all."""
    given = {role: function for role, function in operators.items() if function is not None}
    known = {role: getattr(function, "in_cuda", None) for role, function in given.items()}
    found = {role: code for role, code in known.items() if code is not None}
    return found if len(found) == len(given) else None


def check_bitwise(combine: str, dtype: np.dtype[Any], where: str) -> None:
    """Raise InputError if a program combines bits of floating-point values."""
    if combine in BITWISE and dtype.kind == "f":
        raise InputError(f"{where}: combine={combine!r} is for integers, got {dtype.name}")


@lru_cache(maxsize=64)
def identity_of(combine: str, dtype: np.dtype[Any]) -> Any:
    """Return the value of a dtype that every message improves on, or that adds nothing."""
    if combine in ("add", "or"):
        return dtype.type(0)
    if combine == "and":
        return ~dtype.type(0)
    if dtype.kind == "f":
        return dtype.type(np.inf if combine == "min" else -np.inf)
    limits = np.iinfo(dtype)
    return dtype.type(limits.max if combine == "min" else limits.min)


def program_name(name: Any, what: str) -> str:
    """Return the name of a program; raise InputError if it is no printable text."""
    if not isinstance(name, str) or not name.isprintable():
        raise InputError(f"{what} must be named by printable text, got {shown(name)}")
    return name


def _check_initial(initial: Any, name: str) -> None:
    """Raise InputError if the value is no number, array of shape (n), function or None."""
    if initial is None or callable(initial):
        return
    values = as_array(initial, name)
    if values.dtype.kind not in "biuf" or values.ndim > 1:
        raise InputError(
            f"{name} must be a number, an array of one for each vertex, or a function of the array of "
            f"vertices, got {shown(initial)}"
        )


@in_cuda("true")
def _always() -> bool:
    return True


def _value_dtype(dtype: Any, what: str) -> np.dtype[Any]:
    try:
        checked: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be a NumPy dtype, got {shown(dtype)}") from error
    known = ("int32", "uint32", "int64", "float32", "float64")
    if checked.name not in known:
        raise InputError(f"{what} must be one of {', '.join(known)}, got {checked.name}")
    return checked


def _with_parameters(
    role: str, operator: Operator, offered: tuple[str, ...], names: tuple[str, ...]
) -> Operator:
    return adapt(role, operator, offered, names, takes_parameters=True)
