"""Operators: users' functions that are compiled into programs, and the functions that they may call.

An operator is a plain Python function of any of the parameters that its role offers, selected by name.
:func:`adapt` generates one line that passes on those that it names.

Operators of a distributed worklist import what they call by name into the module that defines them:
``push(worklist, state, key, value)`` queues an item at its owner, ``push_local(worklist, key, value)`` on
this device, ``push_to(worklist, device, key, value)`` in the outbox of the link towards another device,
without ``on_send``. KEEP, PASS, DUPLICATE and DROP are the results of ``on_send`` and ``on_receive``. The
engine binds the ``engine_`` functions behind these when it compiles an operator.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from godwit.errors import OperatorError, shown
from godwit.runtime.protocol import DROP, DUPLICATE, KEEP, PASS

__all__ = ["DROP", "DUPLICATE", "KEEP", "PASS", "adapt", "push", "push_local", "push_to"]


def adapt(
    role: str,
    operator: Callable[..., Any],
    offered: Sequence[str],
    parameters: Sequence[str] = (),
    *,
    takes_parameters: bool = False,
) -> Callable[..., Any]:
    """Return a function of all ``offered`` parameters that calls the operator with those it names.

    :param parameters: names of the program's own parameters
    :param takes_parameters: if True, the returned function has a last parameter, the array of their values
    :raises OperatorError: not a Python function, or it names a parameter that is not offered
    """
    plain = getattr(operator, "py_func", operator)
    if not inspect.isfunction(plain):
        raise OperatorError(f"{role} must be a Python function, got {shown(operator)}")
    arguments = []
    skipped = False
    for name, parameter in inspect.signature(plain).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise OperatorError(f"{role} must take plain positional parameters, got '{parameter}'")
        # After a parameter that keeps its default, arguments must be keywords.
        keyword = f"{name}=" if skipped else ""
        if name in parameters:
            arguments.append(f"{keyword}parameters[{list(parameters).index(name)}]")
        elif name in offered:
            arguments.append(keyword + name)
        elif parameter.default is parameter.empty:
            names = ", ".join([*offered, *parameters])
            raise OperatorError(f"{role} takes {name!r}, which is not offered; it may take {names}")
        else:
            skipped = True
    taken = [*offered, "parameters"] if takes_parameters else list(offered)
    text = f"def {role}({', '.join(taken)}):\n    return operator({', '.join(arguments)})\n"
    namespace: dict[str, Any] = {"operator": plain, "__name__": "operator_adapter"}
    exec(compile(text, f"<{role}>", "exec"), namespace)
    adapter: Callable[..., Any] = namespace[role]
    return adapter


def engine_push(worklist: Any, state: Any, key: int, value: Any) -> None:
    """Placeholder that the engine replaces."""
    raise NotImplementedError


def engine_push_local(worklist: Any, key: int, value: Any) -> None:
    """Placeholder that the engine replaces."""
    raise NotImplementedError


def engine_push_to(worklist: Any, device: int, key: int, value: Any) -> None:
    """Placeholder that the engine replaces."""
    raise NotImplementedError


def owner(state: Any, key: int) -> int:
    """Placeholder that the worklist's ``owner`` replaces."""
    raise NotImplementedError


def push(worklist: Any, state: Any, key: int, value: Any) -> None:
    """Queue an item at its owner."""
    engine_push(worklist, state, key, value)


def push_local(worklist: Any, key: int, value: Any) -> None:
    """Queue an item on this device."""
    engine_push_local(worklist, key, value)


def push_to(worklist: Any, device: int, key: int, value: Any) -> None:
    """Put an item into the outbox of the link towards another device."""
    engine_push_to(worklist, device, key, value)


def keep_or_pass_on(worklist: Any, state: Any, key: int, value: Any) -> int:
    """Return KEEP on the item's owner, PASS on other devices."""
    if owner(state, key) == worklist.device:
        return KEEP
    return PASS
