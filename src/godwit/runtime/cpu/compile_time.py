"""The clock of time-outs: it stands still while the calling thread compiles, or loads what was compiled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from numba.core import event


class _Thread(threading.local):
    """What a thread has compiled.

    :ivar seconds: in all, but for what is under way
    :ivar depth: how many compilations, one within the other, are under way
    :ivar begin_s: when the outermost of these began
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


_thread = _Thread()


@contextmanager
def compiling() -> Iterator[None]:
    """The time of this block does not count."""
    _thread.enter()
    try:
        yield
    finally:
        _thread.leave()


def run_clock() -> float:
    """Seconds from an arbitrary moment on, without those in which the calling thread compiled."""
    return perf_counter() - _thread.seconds


class _Listener(event.Listener):  # type: ignore[misc, unused-ignore]
    """Numba compiles also where a kernel is called for the first time."""

    def on_start(self, event: Any) -> None:
        """A compilation begins, in this thread."""
        _thread.enter()

    def on_end(self, event: Any) -> None:
        """It ends."""
        _thread.leave()


event.register("numba:compile", _Listener())
