"""Public functions that also take graphs on several processes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from godwit.distributed.graph import DistributedGraph
from godwit.errors import InputError
from godwit.public import public

_Options = ParamSpec("_Options")
_Result_co = TypeVar("_Result_co", covariant=True)


class _Function(Protocol, Generic[_Options, _Result_co]):
    """A function of a graph; of a graph on several processes it returns this process' part."""

    @overload
    def __call__(self, graph: DistributedGraph, *arguments: Any, **options: Any) -> Any: ...
    @overload
    def __call__(self, *arguments: _Options.args, **options: _Options.kwargs) -> _Result_co: ...


def or_distributed(
    module: str,
) -> Callable[[Callable[_Options, _Result_co]], _Function[_Options, _Result_co]]:
    """Return a decorator, like ``@public``; given a DistributedGraph, another module's function is called.

    :param module: has a function of the same name, whose parameters are some of the public one's. Imported
        on first use, as it loads Numba
    """

    def decorate(function: Callable[_Options, _Result_co]) -> _Function[_Options, _Result_co]:
        @public
        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            graph = arguments[0] if arguments else options.get("graph")
            if not isinstance(graph, DistributedGraph):
                return function(*arguments, **options)
            distributed = getattr(import_module(module), function.__name__)
            takes = list(inspect.signature(distributed).parameters)
            known = inspect.signature(function).parameters
            others = [name for name in options if name in known and name not in takes]
            if others:
                raise InputError(
                    f"{function.__name__} of a graph on several processes has no argument "
                    f"{' or '.join(others)}; it takes {', '.join(takes)}"
                )
            return distributed(*arguments, **options)

        return call

    return decorate
