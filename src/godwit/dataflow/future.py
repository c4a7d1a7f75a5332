"""Futures in two layers (Groute, section 4.1: event-futures).

The host learns first *that* something is under way: a receive has got its segment, the last packet of a
message has found a buffer. What a device does for it may still be going on: events say when that is done.
Whoever waits on the host waits for both; a stream waits for the events, and the host only for the first.

A context's :class:`CancelScope` ends all waits at once: when a worker raises, every wait of the
context ends with an error.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from time import perf_counter, sleep
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from godwit.dtypes import as_positive_number
from godwit.errors import DataflowEnded, DeadlockError, RunTimeoutError
from godwit.runtime.cpu.stopping import stop
from godwit.runtime.cpu.team import new_control
from godwit.runtime.memory import Event
from godwit.trace import HOST, Trace

T = TypeVar("T")

PATIENCE_S = 10.0
"""After so long a wait it is looked whether everybody waits."""


class CancelScope:
    """Whether a dataflow goes on, and the lock of all that its futures share.

    Invariant: a waiter lists itself, with its future and here, before it looks for the last time whether
    the value or the end is there; those who bring one of these say so before they look for waiters. So
    either the one sees it, or the other wakes it.
    """

    def __init__(self, trace: Trace | None = None) -> None:
        self.trace = trace
        # The collector of garbage may hand a segment on while it is held.
        self.lock = threading.RLock()
        self.cause: BaseException | None = None
        self.control = new_control()  # whose abort word says so to compiled code
        self.waiting: dict[Any, Wait] = {}
        # Of workers, and of the body of their block.
        self.participants: set[threading.Thread | None] = set()
        self._body: threading.Thread | None = None
        self._has_warned = False

    def begin(self) -> None:
        """The body of a block of workers begins, in the calling thread."""
        self._body = threading.current_thread()
        self.participants.add(self._body)

    def body_has_ended(self) -> None:
        """Only workers are left."""
        self.participants.discard(self._body)
        self._body = None

    def end(self, cause: BaseException) -> None:
        """End all waits, of now and of later; the first cause counts."""
        with self.lock:
            if self.cause is None:
                self.cause = cause
                stop(self.control)
            for waiter in self.waiting:
                wake(waiter)

    def look_if_stuck(self) -> None:
        """If everybody waits for others, end it where only workers could go on, or tell people, once.

        Somebody else's thread may still do what they wait for while the body goes on, or without workers.
        """
        with self.lock:
            waits = [one for one in self.waiting.values() if not one.future._resolved]
            participants = set(self.participants)
            is_stuck = participants <= {one.thread for one in waits if not one.has_limit}
            is_final = bool(participants) and self._body is None
            is_known, self._has_warned = self._has_warned, self._has_warned or is_stuck
        if not waits or not is_stuck or (is_known and not is_final):
            return
        why = next(filter(None, (one.future._hint() for one in waits)), "") or (
            ". Who sends over a link shuts it down in the end: with link: ..., or link.shutdown()"
        )
        who = "all workers have" if participants else "somebody has"
        names = "; ".join(sorted(f"{one.future._where} for {one.future._what}" for one in waits))
        message = f"{who} waited for {PATIENCE_S:g} s and more: {names}{why}"
        if is_final:
            self.end(DeadlockError(message))
        else:
            warnings.warn(message, stacklevel=2)

    def check(self) -> None:
        """Raise DataflowEnded, with the cause, if it has ended."""
        if self.cause is not None:
            why = str(self.cause) or type(self.cause).__name__
            raise DataflowEnded(f"the dataflow has ended: {why}") from self.cause


class Wait(NamedTuple):
    """Who waits, for what, and whether for so long only."""

    thread: threading.Thread
    future: Future[Any]
    has_limit: bool


def wake(waiter: Any) -> None:
    """Let a waiter go on; with the lock of its cancel_scope."""
    if waiter.locked():
        waiter.release()


class Future(Generic[T]):
    """Something that will be there.

    :param cancel_scope: of the dataflow that it belongs to
    :param what: for people: what is waited for
    :param where: which endpoint waits, for the trace
    """

    __slots__ = (
        "_error",
        "_cancel_scope",
        "_events",
        "_resolved",
        "_value",
        "_waiters",
        "_what",
        "_where",
    )

    def __init__(
        self, cancel_scope: CancelScope, what: str = "a future", where: str = HOST
    ) -> None:
        self._cancel_scope = cancel_scope
        self._what = what
        self._where = where
        self._resolved = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._events: Sequence[Event] = ()
        self._waiters: list[Any] = []

    @property
    def done(self) -> bool:
        """Whether :meth:`wait` would return, or raise, at once."""
        if not self._resolved:
            return self._cancel_scope.cause is not None
        return self._error is not None or all(event.done() for event in self._events)

    def wait(self, timeout_s: float | None = None) -> T:
        """Wait on the host until it is there.

        :raises RunTimeoutError: not within so many seconds; it may be waited for again
        :raises DataflowEnded: it will not come, since a worker failed or the context was closed
        """
        if timeout_s is not None:
            return self._wait_until(as_positive_number(timeout_s, "timeout_s"))
        value = self._assigned()
        for event in self._events:
            event.wait()
        return value

    def _wait_until(self, timeout_s: float) -> T:
        deadline = perf_counter() + timeout_s
        value = self._assigned(timeout_s, deadline)
        self._reach(self._events, timeout_s, deadline)
        return value

    def _reach(self, events: Sequence[Event], timeout_s: float, deadline: float) -> None:
        pause_s = 1e-5
        for event in events:
            while not event.done():  # devices cannot be waited for with a limit
                if perf_counter() >= deadline:
                    self._refuse_to_wait(timeout_s)
                sleep(pause_s)
                pause_s = min(2 * pause_s, 1e-3)

    def wait_on(self, stream: Any) -> T:
        """Let what is put into a stream from now on wait for it; the host waits only until it is under way.

        :raises DataflowEnded: as for :meth:`wait`
        """
        value = self._assigned()
        for event in self._events:
            event.wait_on(stream)
        return value

    def _assigned(self, timeout_s: float | None = None, deadline: float | None = None) -> T:
        if not self._resolved:
            begin = perf_counter()
            self._sleep(timeout_s, deadline)
            if self._cancel_scope.trace is not None:
                self._cancel_scope.trace.add(self._where, "wait", self._what, begin, perf_counter())
        if self._error is not None:
            raise self._error.with_traceback(None)  # which would grow, and keep frames alive
        found: T = self._value
        return found

    def _sleep(self, timeout_s: float | None, deadline: float | None) -> None:
        while not self._resolved:
            self._sleep_once(deadline)
            if deadline is not None and not self._resolved and perf_counter() >= deadline:
                self._cancel_scope.check()
                self._refuse_to_wait(timeout_s)

    def _sleep_once(self, deadline: float | None) -> None:
        """Until somebody wakes the caller, or for some time."""
        waiter = threading.Lock()
        waiter.acquire()
        with self._cancel_scope.lock:
            self._waiters.append(waiter)
            self._cancel_scope.waiting[waiter] = Wait(
                threading.current_thread(), self, deadline is not None
            )
        try:
            if self._resolved:
                return
            self._cancel_scope.check()
            left = PATIENCE_S
            if deadline is not None:
                left = min(max(0.0, deadline - perf_counter()), threading.TIMEOUT_MAX)
            if not waiter.acquire(timeout=left) and deadline is None:
                self._cancel_scope.look_if_stuck()
        finally:
            with self._cancel_scope.lock:
                del self._cancel_scope.waiting[waiter]
                self._waiters.remove(waiter)

    def _refuse_to_wait(self, timeout_s: float | None) -> NoReturn:
        raise RunTimeoutError(f"{self._what} was not there after {timeout_s:g} s{self._hint()}")

    def _hint(self) -> str:
        """Why it may not be there, behind a message."""
        return ""

    # For those who make futures.

    def resolve(self, value: Any, events: Sequence[Event]) -> None:
        """It is under way, and there when the events are reached."""
        self._value, self._events = value, events
        self._resolved = True
        if self._waiters:
            self._wake()

    def fail(self, error: BaseException) -> None:
        """It will not come."""
        self._error = error
        self._resolved = True
        if self._waiters:
            self._wake()

    def _wake(self) -> None:
        with self._cancel_scope.lock:
            for waiter in self._waiters:
                wake(waiter)
