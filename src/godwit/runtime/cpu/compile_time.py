"""Clock for time-outs: excludes the time that the calling thread spends compiling or loading code."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from typing import Any

from numba.core import event

from godwit.progress import shown_compilation


class _CompileTime(threading.local):
    """Time that a thread spent compiling.

    :ivar seconds: total duration of its finished compilations
    :ivar depth: nesting depth of the compilation under way; 0: none
    :ivar begin_s: time when the outermost compilation under way began
    :ivar shown: what tells the user about it
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.depth = 0
        self.begin_s = 0.0
        self.shown: AbstractContextManager[None] = nullcontext()

    def enter(self) -> None:
        if self.depth == 0:
            self.begin_s = perf_counter()
            self.shown = shown_compilation()
            self.shown.__enter__()
        self.depth += 1

    def leave(self) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.seconds += perf_counter() - self.begin_s
            self.shown.__exit__(None, None, None)


_thread = _CompileTime()


@contextmanager
def compiling() -> Iterator[None]:
    """Exclude the block from the calling thread's :func:`run_clock`."""
    _thread.enter()
    try:
        yield
    finally:
        _thread.leave()


def run_clock() -> float:
    """Return seconds since an arbitrary moment, less the calling thread's finished compilations."""
    return perf_counter() - _thread.seconds


class _Listener(event.Listener):  # type: ignore[misc, unused-ignore]
    """Numba event listener that excludes a kernel's compilation at its first call from the clock."""

    def on_start(self, event: Any) -> None:
        _thread.enter()

    def on_end(self, event: Any) -> None:
        _thread.leave()


event.register("numba:compile", _Listener())
