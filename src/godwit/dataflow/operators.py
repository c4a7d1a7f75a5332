"""A user's operators, given the signature that compiled code calls them by.

An operator is a plain Python function of any of the parameters that its role offers, named as there.
The adapter is one generated line that passes on those which it names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from godwit.errors import OperatorError, shown


def adapt(
    role: str,
    operator: Callable[..., Any],
    offered: Sequence[str],
    parameters: Sequence[str] = (),
    *,
    takes_parameters: bool = False,
) -> Callable[..., Any]:
    """A function of all ``offered`` parameters that calls the operator with those it names.

    :param parameters: names of the program's own parameters
    :param takes_parameters: whether the adapter has a last parameter, an array of their values in
        this order
    :raises OperatorError: not a Python function, or it names something that is not offered
    """
    plain = getattr(operator, "py_func", operator)
    if not inspect.isfunction(plain):
        raise OperatorError(f"{role} must be a Python function, got {shown(operator)}")
    arguments = []
    skipped = False
    for name, parameter in inspect.signature(plain).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise OperatorError(f"{role} must take plain positional parameters, got '{parameter}'")
        # Behind a parameter that keeps its default, the others go by keyword.
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
