"""Futures in two layers (Groute, section 4.1: event-futures).

The host learns first *that* something is under way: a receive has got its segment, the last packet of a
message has found a buffer. What a device does for it may still be going on: marks say when that is done.
Whoever waits on the host waits for both; a stream waits for the marks, and the host only for the first.

A context's :class:`Fate` ends all waits at once: when a worker raises, everyone who waits for something
that would never come is told so.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import perf_counter
from typing import Any, Generic, TypeVar

from godwit.backends.segments import Mark
from godwit.dtypes import as_positive_number
from godwit.errors import DataflowEnded, RunTimeoutError
from godwit.trace import HOST, Trace

T = TypeVar("T")


class Fate:
    """Whether a dataflow goes on, and the lock of all that its futures share.

    Invariant: a waiter lists itself, with its future and here, before it looks for the last time whether
    the value or the end is there; those who bring one of these say so before they look for waiters. So
    either the one sees it, or the other wakes it.
    """

    def __init__(self, trace: Trace | None = None) -> None:
        self.trace = trace
        self.lock = threading.Lock()
        self.cause: BaseException | None = None
        self.waiting: set[Any] = set()

    def end(self, cause: BaseException) -> None:
        """End all waits, of now and of later; the first cause counts."""
        with self.lock:
            if self.cause is None:
                self.cause = cause
            for waiter in self.waiting:
                wake(waiter)

    def check(self) -> None:
        """Raise DataflowEnded, with the cause, if it has ended."""
        if self.cause is not None:
            raise DataflowEnded(f"the dataflow has ended: {self.cause}") from self.cause


def wake(waiter: Any) -> None:
    """Let a waiter go on; with the lock of its fate."""
    if waiter.locked():
        waiter.release()


class Future(Generic[T]):
    """Something that will be there.

    :param fate: of the dataflow that it belongs to
    :param what: for people: what is waited for
    :param where: which endpoint waits, for the trace
    """

    __slots__ = ("_error", "_fate", "_marks", "_resolved", "_value", "_waiters", "_what", "_where")

    def __init__(self, fate: Fate, what: str = "a future", where: str = HOST) -> None:
        self._fate = fate
        self._what = what
        self._where = where
        self._resolved = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._marks: Sequence[Mark] = ()
        self._waiters: list[Any] = []

    @property
    def done(self) -> bool:
        """Whether :meth:`wait` would return, or raise, at once."""
        if not self._resolved:
            return False
        return self._error is not None or all(mark.done() for mark in self._marks)

    def wait(self, timeout_s: float | None = None) -> T:
        """Wait on the host until it is there.

        :raises RunTimeoutError: not within so many seconds; it may be waited for again
        :raises DataflowEnded: it will not come, since a worker failed or the context was closed
        """
        value = self._assigned(timeout_s)
        for mark in self._marks:
            mark.wait()
        return value

    def wait_on(self, stream: Any) -> T:
        """Let what is put into a stream from now on wait for it; the host waits only until it is under way.

        :raises DataflowEnded: as for :meth:`wait`
        """
        value = self._assigned(None)
        for mark in self._marks:
            mark.order(stream)
        return value

    def _assigned(self, timeout_s: float | None) -> T:
        if not self._resolved:
            if timeout_s is not None:
                timeout_s = as_positive_number(timeout_s, "timeout_s")
            begin = perf_counter()
            self._sleep(timeout_s)
            if self._fate.trace is not None:
                self._fate.trace.add(self._where, "wait", self._what, begin, perf_counter())
        if self._error is not None:
            raise self._error
        found: T = self._value
        return found

    def _sleep(self, timeout_s: float | None) -> None:
        deadline = None if timeout_s is None else perf_counter() + timeout_s
        while True:
            waiter = threading.Lock()
            waiter.acquire()
            with self._fate.lock:
                self._waiters.append(waiter)
                self._fate.waiting.add(waiter)
            try:
                if self._resolved:
                    return
                self._fate.check()
                left = -1 if deadline is None else max(0.0, deadline - perf_counter())
                waiter.acquire(timeout=left)
            finally:
                with self._fate.lock:
                    self._fate.waiting.discard(waiter)
                    self._waiters.remove(waiter)
            if deadline is not None and not self._resolved and perf_counter() >= deadline:
                self._fate.check()
                raise RunTimeoutError(f"{self._what} was not there after {timeout_s:g} s")

    # For those who make futures.

    def resolve(self, value: Any, marks: Sequence[Mark]) -> None:
        """It is under way, and there when the marks are reached."""
        self._value, self._marks = value, marks
        self._settle()

    def fail(self, error: BaseException) -> None:
        """It will not come."""
        self._error = error
        self._settle()

    def _settle(self) -> None:
        self._resolved = True
        if self._waiters:
            with self._fate.lock:
                for waiter in self._waiters:
                    wake(waiter)
