"""Clock for time-outs: excludes the time that the calling thread spends compiling or loading code.

While any thread compiles, Python's collector of cycles is off: it would take a twelfth of that time, to go
through the compiler's objects again and again, which are mostly still in use.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from typing import Any

from numba.core import event

from godwit.progress import shown_compilation


class _Collector:
    """Python's collector of cycles, which is off while any thread compiles."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pauses = 0
        self._was_on = False

    def pause(self) -> None:
        with self._lock:
            if self._pauses == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            self._pauses += 1

    def resume(self) -> None:
        with self._lock:
            self._pauses -= 1
            if self._pauses == 0 and self._was_on:
                gc.enable()


_collector = _Collector()


class _CompileTime(threading.local):
    """Time that a thread spent compiling.

    :ivar seconds: total duration of its finished compilations
    :ivar depth: nesting depth of the compilation under way; 0: none
    :ivar begin_s: time when the outermost compilation under way began
    :ivar shown: the message that the user sees meanwhile
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
            _collector.pause()
        self.depth += 1

    def leave(self) -> None:
        self.depth -= 1
        if self.depth == 0:
            _collector.resume()
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
