"""Godwit's exceptions, all subclasses of ``GodwitError``, and its warning.

Every message names the value (or the file and line) that is wrong and says what would work. Where
Python has an exception of the same meaning, ours is a subclass of it too, so that general
handlers (``except ValueError``) still work.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import Any

_SHOWN_BITS = 256
_SHOWN_LENGTH = 80


def shown(value: Any) -> str:
    """Return the value as a message shows it, in one line of limited length."""
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f"an integer of {value.bit_length()} bits"
    numpy = sys.modules.get("numpy")  # not imported here: the command line's help needs none
    if numpy is not None and isinstance(value, numpy.generic):
        value = value.item()
    text = re.sub(r"\s*\n\s*", " ", repr(value))
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


class GodwitError(Exception):
    """Root of all exceptions that Godwit raises on purpose."""


class InputError(GodwitError, ValueError):
    """An argument is wrong: out of range, of the wrong type or shape, or contradicting another."""


class FormatError(InputError):
    """A file cannot be read as a graph.

    :param path: the file
    :param message: what is wrong, and what would work
    :param line: 1-based number of the offending line, where the format has lines
    :param text: the offending line itself
    """

    def __init__(
        self, path: str | Path, message: str, *, line: int | None = None, text: str | None = None
    ) -> None:
        self.path = Path(path)
        self.line = line
        self.text = text
        where = str(path) if line is None else f"{path}:{line}"
        excerpt = "" if text is None else f": {_shorten(text)!r}"
        super().__init__(f"{where}: {message}{excerpt}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle without the constructor, whose parameters differ from ``args``.

        An exception that does not unpickle ends the thread of a ``multiprocessing.Pool`` that
        receives results, and its caller waits forever.
        """
        return _rebuild, (type(self), self.args), self.__dict__


def _rebuild(kind: type[FormatError], arguments: tuple[Any, ...]) -> FormatError:
    return kind.__new__(kind, *arguments)


class FileError(GodwitError, OSError):
    """A file is missing, unreadable or cannot be written."""


class LostDataWarning(UserWarning):
    """Something is left out: attributes, of a file that is written; columns, of a graph that is read."""


class DirectionWarning(UserWarning):
    """A file that should be of an undirected graph is read as a directed one."""


class DeviceError(GodwitError, RuntimeError):
    """A device does not exist, or failed."""


class GraphTooLargeError(GodwitError, MemoryError):
    """The graph does not fit in the available memory; raised before anything is allocated."""


class OperatorError(GodwitError, TypeError):
    """A user's operator cannot be compiled, or its types do not fit."""


class ConvergenceError(GodwitError, ArithmeticError):
    """Iterations did not converge within their number, or their values overflowed.

    :param what: the algorithm
    :ivar iterations: number of iterations that were made
    :ivar residual: mean absolute change of a value by the last of them; infinite or NaN after an overflow
    :ivar tolerance: the residual below which they would have converged
    """

    def __init__(self, what: str, iterations: int, residual: float, tolerance: float) -> None:
        self.what = what
        self.iterations = iterations
        self.residual = residual
        self.tolerance = tolerance
        state = (
            f"the last changed values by {residual:.3g} on average, and tolerance is {tolerance:g}"
            if math.isfinite(residual)
            else "values exceed float64"
        )
        super().__init__(f"{what} has not converged after {iterations} iteration(s): {state}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by the constructor's arguments, which differ from ``args``."""
        return type(self), (self.what, self.iterations, self.residual, self.tolerance)


class ValueOverflowError(GodwitError, OverflowError):
    """A value computed by an operator does not fit the dtype declared for it."""


class RunTimeoutError(GodwitError, TimeoutError):
    """A run did not finish within its ``timeout_s``, or within the ``max_items`` of :func:`godwit.run`.

    It was stopped, and the devices are free. Operators that do not return are stopped as well, except
    predicates of ``gw.filter`` on GPUs: loops in these must terminate.
    """


class CycleError(InputError):
    """A graph that should have no cycle has one.

    :ivar vertex: id of the first vertex that is on a cycle
    """

    def __init__(self, vertex: Any, what: str) -> None:
        self.vertex, self._what = vertex, what
        super().__init__(f"{what} is of graphs without cycles, and vertex {vertex!r} is on a cycle")

    def __reduce__(self) -> Any:
        return type(self), (self.vertex, self._what)


class VerificationError(GodwitError, AssertionError):
    """A result breaks a property that it must have; names the vertex or arc."""


class ClosedContextError(GodwitError, RuntimeError):
    """A context, placed graph or worklist was used after it had been closed."""


class TopologyError(InputError):
    """A dataflow graph cannot be as it was described; names the endpoint or link."""


class EndOfLink(GodwitError, EOFError):  # noqa: N818 (no error: a state)
    """End of a link's data: its senders have shut it down, and all segments were received."""


class ClosedLinkError(GodwitError, RuntimeError):
    """Something was sent over a link after its shutdown."""


class DeadWorkerError(GodwitError, RuntimeError):
    """A worker ended, or there was none, while segments were still on their way to it."""


class ProcessError(GodwitError, RuntimeError):
    """Processes of one MPI run do not do the same, or one of them failed; names a process."""


class DeadlockError(GodwitError, RuntimeError):
    """All workers wait for each other; names what each of them waits for."""


class DataflowEnded(GodwitError, RuntimeError):  # noqa: N818 (a state)
    """The dataflow ended during a wait; ``__cause__`` is the reason."""


def _shorten(text: str, limit: int = 80) -> str:
    text = text.rstrip("\r\n")
    return text if len(text) <= limit else text[: limit - 1] + "…"
