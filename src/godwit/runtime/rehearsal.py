"""Calls that are repeated while the thread waits for their kernels, so that the core still has their code.

When a thread has waited some milliseconds for a kernel, other users of its core have the caches, and Python
code takes three to six times as long as before: half a millisecond for what comes after the wait and before
the next kernel (benchmarks/RESULTS.md, "Answers on a GPU"). So the thread, which would only spin, repeats
what its call did until it held the GPUs, again and again, without effect: see :func:`waiting`.

A call may be repeated if all that it does before it holds GPUs is to check and to look up. Nothing else of
it is: :func:`end_rehearsal` ends it there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any, TypeVar

_LONGEST_CALL_S = 1e-3
"""Calls that take longer to begin are not repeated: a kernel's end would be seen late."""
_PAUSE_S = 2.5e-4
"""Between two repetitions: the end of a kernel is seen late if it falls into one."""
_LONGEST_WAIT_S = 0.05
"""After a longer wait the time that is gained does not matter, and other threads need the interpreter."""

_Result = TypeVar("_Result")


class _EndError(BaseException):
    """Ends a rehearsal; no handler of errors takes it for one."""


class _Thread(threading.local):
    """What a thread may repeat.

    :ivar call: the call under way, without arguments; None if it may not be repeated
    :ivar begin_s: when it began
    :ivar rehearses: True while it is repeated
    """

    call: Callable[[], Any] | None = None
    begin_s = 0.0
    rehearses = False


_thread = _Thread()


def repeatable(call: Callable[[], _Result]) -> _Result:
    """Return what a call returns, which may be repeated while it waits for kernels."""
    before, before_s = _thread.call, _thread.begin_s
    _thread.call, _thread.begin_s = call, perf_counter()
    try:
        return call()
    finally:
        _thread.call, _thread.begin_s = before, before_s


def end_rehearsal() -> None:
    """End the call here if it is a repetition."""
    if _thread.rehearses:
        raise _EndError


def waiting(is_over: Callable[[], bool], launched_s: float) -> bool:
    """Repeat the thread's call until a wait is over; return False if it goes on without repetitions.

    :param launched_s: when the call had started the kernel that it waits for
    """
    call = _thread.call
    if call is None or launched_s - _thread.begin_s > _LONGEST_CALL_S:
        return False
    end_s = perf_counter() + _LONGEST_WAIT_S
    _thread.call = None
    _thread.rehearses = True
    try:
        while not is_over():
            begin_s = perf_counter()
            if begin_s > end_s:
                return False
            try:
                call()
                return False  # it does not need GPUs, this time
            except _EndError:
                pass
            except Exception:  # as of arguments that can be read once
                return False
            begin_s = perf_counter()
            while not is_over() and perf_counter() - begin_s < _PAUSE_S:
                pass
        return True
    finally:
        _thread.rehearses = False
        _thread.call = call
