"""Decorators of public functions: hints for wrong arguments, progress bars, Ctrl-C; graphs on processes."""

from __future__ import annotations

import _thread
import difflib
import inspect
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import lru_cache, partial, wraps
from importlib import import_module
from typing import Any, ClassVar, Generic, ParamSpec, Protocol, TypeVar, overload

from godwit.errors import GodwitError, InputError, OperatorError
from godwit.progress import Bar

_OF_OTHER_LIBRARIES = {
    "alpha": ("damping",),
    "attribute": ("weight",),
    "c": ("values",),
    "color": ("values",),
    "colors": ("values",),
    "destination": ("target", "targets"),
    "dst": ("target", "targets"),
    "edge_attr": ("weight",),
    "frontier": ("start",),
    "gpu": ("devices",),
    "gpus": ("devices",),
    "node_color": ("values",),
    "num_threads": ("devices",),
    "out": ("output",),
    "usecols": ("columns",),
    "beta": ("cutoff",),
    "communities": ("labels",),
    "cutoff": ("limit",),
    "damping_factor": ("damping",),
    "depth_limit": ("cutoff",),
    "device": ("devices",),
    "epsilon": ("tolerance",),
    "gamma": ("resolution",),
    "k": ("samples", "parts", "hops"),
    "max_iter": ("max_iterations",),
    "maxiter": ("max_iterations",),
    "membership": ("labels",),
    "n_jobs": ("devices",),
    "n_iterations": ("iterations", "max_iterations"),
    "nstart": ("initial", "start"),
    "num_samples": ("samples",),
    "objective_function": ("objective",),
    "radius": ("hops",),
    "reset": ("personalization",),
    "resolution_parameter": ("resolution",),
    "root": ("source", "sources"),
    "source": ("sources", "columns"),
    "src": ("source", "sources"),
    "start": ("initial", "sources", "source"),
    "threads": ("devices",),
    "timeout": ("timeout_s",),
    "tol": ("tolerance",),
    "u": ("vertices",),
    "use_weights": ("weighted",),
    "vertex_subset": ("sources", "vertices"),
    "weight": ("weights", "columns", "weighted"),
    "random_state": ("seed",),
    "weights": ("columns", "weighted"),
}
"""Names that NetworkX, igraph, networkit, cuGraph and scikit-learn use, with Godwit's for the same."""

_RESEND_S = 0.01
_main_thread = threading.main_thread().ident or 0

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Result_co = TypeVar("_Result_co", covariant=True)


def public(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Return the function, with what all public functions have in common.

    A TypeError for an unknown keyword argument suggests the right name, and ``progress=True`` means a bar.
    Tracebacks of errors begin here, unless the environment variable ``GODWIT_FULL_TRACEBACK`` is set.

    >>> import godwit as gw
    >>> gw.pagerank(gw.generators.star(5), alpha=0.9)
    Traceback (most recent call last):
        ...
    TypeError: pagerank() has no argument 'alpha': did you mean damping=?
    """

    @wraps(function)
    def call(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        progress = named.get("progress")
        if isinstance(progress, bool):
            named["progress"] = None
            if progress:
                with Bar(function.__name__) as named["progress"]:
                    return call(*arguments, **named)
        raised: BaseException
        is_main = threading.get_ident() == _main_thread  # the thread that Ctrl-C interrupts
        ignore = sys.unraisablehook
        try:
            if is_main:
                sys.unraisablehook = partial(_ignore_unless_interrupted, ignore)
            return function(*arguments, **named)
        except (GodwitError, KeyboardInterrupt) as error:
            if os.environ.get("GODWIT_FULL_TRACEBACK"):
                raise
            raised = error
        except TypeError:
            parameters = inspect.signature(function).parameters
            takes_any = any(
                parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
            )
            unknown = next((name for name in named if name not in parameters), None)
            names = [name for name in parameters if name not in ("self", "cls")]
            if unknown is None or takes_any:
                raise
            meant = argument_meant(unknown, names)
            suggestion = f"did you mean {meant}=?" if meant else f"it takes {', '.join(names)}"
            raised = TypeError(f"{function.__name__}() has no argument {unknown!r}: {suggestion}")
        finally:
            if is_main:
                sys.unraisablehook = ignore
        # Without the frames of Godwit and the errors of compilers, which say nothing to the caller.
        cause = None if isinstance(raised, OperatorError) else raised.__cause__
        try:
            raise raised.with_traceback(None) from cause
        finally:
            # Its traceback refers to this frame: a cycle that would keep the arguments.
            del raised

    return call


class OnProcesses:
    """Base of graphs on several processes, which layers above define.

    :cvar on_gpus: True of graphs on GPUs
    """

    on_gpus: ClassVar[bool] = False


@lru_cache(maxsize=64)
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's parameters: inspecting it takes some 50 µs."""
    return tuple(inspect.signature(function).parameters)


class _Function(Protocol, Generic[_Parameters, _Result_co]):
    """A function of a graph; of a graph on several processes it returns this process' part."""

    @overload
    def __call__(self, graph: OnProcesses, *arguments: Any, **options: Any) -> Any: ...
    @overload
    def __call__(self, program: Any, graph: OnProcesses, *rest: Any, **options: Any) -> Any: ...
    @overload
    def __call__(
        self, *arguments: _Parameters.args, **options: _Parameters.kwargs
    ) -> _Result_co: ...


def or_distributed(
    module: str, on_gpus: str
) -> Callable[[Callable[_Parameters, _Result]], _Function[_Parameters, _Result]]:
    """Return a decorator, like :func:`public`; a graph on processes goes to another module's function.

    :param module: has a function of the same name, whose parameters are some of the public one's. Imported
        on first use, as it loads Numba
    :param on_gpus: the same, for graphs on GPUs of several processes
    """

    def decorate(function: Callable[_Parameters, _Result]) -> _Function[_Parameters, _Result]:
        known = _parameters(function)
        place = known.index("graph")

        @public
        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            graph = arguments[place] if len(arguments) > place else options.get("graph")
            if not isinstance(graph, OnProcesses):
                return function(*arguments, **options)
            of_graph = on_gpus if graph.on_gpus else module
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


def _ignore_unless_interrupted(ignore: Callable[[Any], Any], unraisable: Any) -> None:
    """Handle an exception that Python ignores; send SIGINT again if it is a KeyboardInterrupt.

    That is how Ctrl-C ends while an object is finalized, or in the callback of a weak reference,
    of which compilers have many. It is sent a little later, when the finalizer has ended, by a thread that
    needs no lock of the module threading, which the interrupted code may hold.

    :param ignore: handles all other exceptions
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _thread.start_new_thread(_interrupt_later, ())
    else:
        ignore(unraisable)


def _interrupt_later() -> None:
    time.sleep(_RESEND_S)
    if hasattr(signal, "pthread_kill"):  # which ends calls of the system that wait, too
        signal.pthread_kill(_main_thread, signal.SIGINT)
    else:
        _thread.interrupt_main()


def argument_meant(unknown: str, parameters: Iterable[str]) -> str | None:
    """Return the parameter that an unknown argument means; None if there is none like it."""
    parameters = list(parameters)
    meant = [name for name in _OF_OTHER_LIBRARIES.get(unknown, ()) if name in parameters]
    similar = difflib.get_close_matches(unknown, parameters, 1, 0.7)
    return next(iter((*meant, *similar)), None)
