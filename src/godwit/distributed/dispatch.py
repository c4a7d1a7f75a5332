"""Public functions that also take graphs on several processes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache, wraps
from importlib import import_module
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from godwit.distributed.gpu_graph import GpuGraph
from godwit.distributed.graph import DistributedGraph
from godwit.errors import InputError
from godwit.public import public

_Options = ParamSpec("_Options")
_Result_co = TypeVar("_Result_co", covariant=True)


class _Function(Protocol, Generic[_Options, _Result_co]):
    """A function of a graph; of a graph on several processes it returns this process' part."""

    @overload
    def __call__(
        self, graph: DistributedGraph | GpuGraph, *arguments: Any, **options: Any
    ) -> Any: ...
    @overload
    def __call__(self, *arguments: _Options.args, **options: _Options.kwargs) -> _Result_co: ...


@lru_cache(maxsize=64)
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's parameters: inspecting it takes some 50 µs."""
    return tuple(inspect.signature(function).parameters)


def or_distributed(
    module: str, on_gpus: str | None = None
) -> Callable[[Callable[_Options, _Result_co]], _Function[_Options, _Result_co]]:
    """Return a decorator, like ``@public``; given a graph on processes, it calls another module's function.

    :param module: has a function of the same name, whose parameters are some of the public one's. Imported
        on first use, as it loads Numba
    :param on_gpus: the same, for graphs on GPUs of several processes; None: there is no such function
    """

    def decorate(function: Callable[_Options, _Result_co]) -> _Function[_Options, _Result_co]:
        known = _parameters(function)

        @public
        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            graph = arguments[0] if arguments else options.get("graph")
            if not isinstance(graph, DistributedGraph | GpuGraph):
                return function(*arguments, **options)
            of_graph = on_gpus if isinstance(graph, GpuGraph) else module
            if of_graph is None:
                raise InputError(
                    f"{function.__name__} does not run on GPUs of several processes: place the graph "
                    "without devices, on the cores of the processes, or use all GPUs of a machine in one "
                    "process"
                )
            distributed = getattr(import_module(of_graph), function.__name__)
            takes = _parameters(distributed)
            others = [name for name in options if name in known and name not in takes]
            if others:
                raise InputError(
                    f"{function.__name__} of a graph on several processes has no argument "
                    f"{' or '.join(others)}; it takes {', '.join(takes)}"
                )
            return distributed(*arguments, **options)

        return call

    return decorate
