"""Refuse users' functions whose result depends on more than their parameters, or that have side effects.

Compiled code would run some of these: ``random.random()`` would give numbers that depend on the schedule
and on the device.
"""

from __future__ import annotations

import builtins
import dis
import random
import types
from pathlib import Path
from typing import Any

import numpy as np

from godwit.errors import OperatorError

_RANDOM = (
    "random numbers differ from run to run and from device to device: gw.random(vertex, salt) is the "
    "same everywhere"
)
_OUTSIDE = "an operator depends on its parameters alone, and has no effect but what it returns"
_MODULES = {
    "random": _RANDOM,
    "secrets": _RANDOM,
    "numpy.random": _RANDOM,
    **dict.fromkeys(
        ("time", "datetime", "os", "sys", "io", "pathlib", "subprocess", "socket", "threading"), _OUTSIDE
    ),
}  # fmt: skip
_BUILTINS = ("print", "input", "open", "eval", "exec", "globals", "locals", "setattr", "delattr")
_GENERATORS = (random.Random, np.random.RandomState, np.random.Generator, np.random.BitGenerator)


def check_purity(
    function: types.FunctionType, values: dict[str, Any], chains: frozenset[tuple[str, ...]]
) -> None:
    """Check that a user's function reads and writes nothing but its parameters and constants.

    :param values: of the global and closure names that it uses
    :param chains: those names, each with the attributes that it reads of it
    :raises OperatorError: it uses random numbers, input or output, the time, or writes a global name, or
        imports a module
    """
    for chain in sorted(chains):
        reason = _reason(chain, values)
        if reason:
            raise OperatorError(f"{place_of(function)} uses {'.'.join(chain)}: {reason}")
    for instruction in dis.get_instructions(function.__code__):
        if instruction.opname == "IMPORT_NAME":
            raise OperatorError(
                f"cannot compile {place_of(function)}: it imports {instruction.argval}; write the import "
                "above the function"
            )
        if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
            instruction.opname == "STORE_DEREF"
            and instruction.argval in function.__code__.co_freevars
        ):
            raise OperatorError(
                f"{place_of(function)} writes {instruction.argval}, a name outside of it: {_OUTSIDE}"
            )


def place_of(function: types.FunctionType) -> str:
    """Return how errors name a function: its name, its file and its first line."""
    code = function.__code__
    return f"'{function.__name__}' ({Path(code.co_filename).name}, line {code.co_firstlineno})"


def _reason(chain: tuple[str, ...], values: dict[str, Any]) -> str:
    """Return why a function must not use a name and attributes of it; empty if it may."""
    if chain[0] not in values:
        is_builtin = hasattr(builtins, chain[0]) and chain[0] in _BUILTINS
        return _OUTSIDE if is_builtin else ""
    value = values[chain[0]]
    for name in (None, *chain[1:]):
        if name is not None:
            value = getattr(value, name, None)
        if isinstance(value, types.ModuleType) and value.__name__ in _MODULES:
            return _MODULES[value.__name__]
        if isinstance(value, _GENERATORS) or isinstance(
            getattr(value, "__self__", None), _GENERATORS
        ):
            return _RANDOM
        if not isinstance(value, types.ModuleType | type):
            break
    owner = getattr(value, "__module__", None)
    if isinstance(value, types.BuiltinFunctionType) and owner in ("time", "posix", "random"):
        return _MODULES.get(owner, _OUTSIDE)
    return ""
