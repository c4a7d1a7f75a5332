"""The clock of time-outs, which stands still while the calling thread compiles or loads compiled code."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from numba.core import event


class _CompileTime(threading.local):
    """Compilations of a thread.

    :ivar seconds: of all finished ones
    :ivar depth: number of nested ones under way
    :ivar begin_s: time when the outermost of these began
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.depth = 0
        self.begin_s = 0.0

    def enter(self) -> None:
        if self.depth == 0:
            self.begin_s = perf_counter()
        self.depth += 1

    def leave(self) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.seconds += perf_counter() - self.begin_s


_thread = _CompileTime()


@contextmanager
def compiling() -> Iterator[None]:
    """Stop the clock of the calling thread during the block."""
    _thread.enter()
    try:
        yield
    finally:
        _thread.leave()


def run_clock() -> float:
    """Return seconds from an arbitrary moment on, without those in which the calling thread compiled."""
    return perf_counter() - _thread.seconds


class _Listener(event.Listener):  # type: ignore[misc, unused-ignore]
    """Stops the clock when Numba compiles a kernel at its first call."""

    def on_start(self, event: Any) -> None:
        _thread.enter()

    def on_end(self, event: Any) -> None:
        _thread.leave()


event.register("numba:compile", _Listener())
