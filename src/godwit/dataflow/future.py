"""Futures in two layers (Groute, section 4.1: event-futures).

A future is *resolved* on the host when an operation has started: a request has got its segment, the last
packet of a message has a buffer. Its events are done when devices have completed the operation. A wait on
the host is for both; a stream waits for the events, and the host then only until it is resolved.

A context's :class:`CancelScope` ends all waits at once: when a worker raises, every wait of the context
raises.
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
"""Length of a wait after which the dataflow is checked for a deadlock."""


class CancelScope:
    """State of a dataflow, running or ended, and the lock that its futures share.

    Invariant: a waiter registers, with its future and here, before its last check for the value or the end;
    threads that resolve a future or end the dataflow change the state before they look for waiters. So the
    waiter sees the change, or is woken.
    """

    def __init__(self, trace: Trace | None = None) -> None:
        self.trace = trace
        # Reentrant, since the garbage collector may deliver a segment while it is held.
        self.lock = threading.RLock()
        self.cause: BaseException | None = None
        self.control = new_control()  # its abort word ends compiled code
        self.waiting: dict[Any, Wait] = {}
        # Threads of workers, and of the body of their block.
        self.participants: set[threading.Thread | None] = set()
        self._body: threading.Thread | None = None
        self._has_warned = False

    def begin(self) -> None:
        """Begin the body of a block of workers, in the calling thread."""
        self._body = threading.current_thread()
        self.participants.add(self._body)

    def body_has_ended(self) -> None:
        """End the body of the block of workers."""
        self.participants.discard(self._body)
        self._body = None

    def end(self, cause: BaseException) -> None:
        """End all present and later waits; the first cause counts."""
        with self.lock:
            if self.cause is None:
                self.cause = cause
                stop(self.control)
            for waiter in self.waiting:
                _wake(waiter)

    def look_if_stuck(self) -> None:
        """End the dataflow if all workers wait for each other; warn once while another thread may go on."""
        with self.lock:
            waits = [wait for wait in self.waiting.values() if not wait.future._resolved]
            participants = set(self.participants)
            is_stuck = participants <= {wait.thread for wait in waits if not wait.has_limit}
            is_final = bool(participants) and self._body is None
            is_known, self._has_warned = self._has_warned, self._has_warned or is_stuck
        if not waits or not is_stuck or (is_known and not is_final):
            return
        why = next(filter(None, (wait.future._hint() for wait in waits)), "") or (
            ". A sender shuts its link down in the end: with link: ..., or link.shutdown()"
        )
        who = "all workers have" if participants else "a thread has"
        names = "; ".join(sorted(f"{wait.future._where} for {wait.future._what}" for wait in waits))
        message = f"{who} waited for {PATIENCE_S:g} s and more: {names}{why}"
        if is_final:
            self.end(DeadlockError(message))
        else:
            warnings.warn(message, stacklevel=2)

    def check(self) -> None:
        """Raise DataflowEnded, with the cause, if the dataflow has ended."""
        if self.cause is not None:
            why = str(self.cause) or type(self.cause).__name__
            raise DataflowEnded(f"the dataflow has ended: {why}") from self.cause


class Wait(NamedTuple):
    """Waiting thread, its future, and whether it has a time limit."""

    thread: threading.Thread
    future: Future[Any]
    has_limit: bool


def _wake(waiter: Any) -> None:
    """Wake a waiter; with the lock of its scope."""
    if waiter.locked():
        waiter.release()


class TimeLimit(NamedTuple):
    """Time limit of a wait; the deadline is a time of perf_counter."""

    timeout_s: float
    deadline: float


class Future(Generic[T]):
    """Value that will be there later.

    :param cancel_scope: scope of its dataflow
    :param what: what is waited for, in messages
    :param where: name of the waiting endpoint, for the trace
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
        """True if :meth:`wait` would return, or raise, at once."""
        if not self._resolved:
            return self._cancel_scope.cause is not None
        return self._error is not None or all(event.done() for event in self._events)

    def wait(self, timeout_s: float | None = None) -> T:
        """Block the host until the value is there, and return it.

        :raises RunTimeoutError: it was not within this time; a later wait is possible
        :raises DataflowEnded: a worker failed or the context was closed
        """
        limit = None
        if timeout_s is not None:
            timeout_s = as_positive_number(timeout_s, "timeout_s")
            limit = TimeLimit(timeout_s, perf_counter() + timeout_s)
        value = self._assigned(limit)
        self._wait_for(self._events, limit)
        return value

    def _wait_for(self, events: Sequence[Event], limit: TimeLimit | None) -> None:
        pause_s = 1e-5
        for event in events:
            if limit is None:
                event.wait()
                continue
            while not event.done():  # CUDA has no wait with a time limit
                if perf_counter() >= limit.deadline:
                    self._refuse_to_wait(limit)
                sleep(pause_s)
                pause_s = min(2 * pause_s, 1e-3)

    def wait_on(self, stream: Any) -> T:
        """Make later work in a stream wait for the value; block the host only until it is resolved.

        :raises DataflowEnded: as for :meth:`wait`
        """
        value = self._assigned()
        for event in self._events:
            event.wait_on(stream)
        return value

    def _assigned(self, limit: TimeLimit | None = None) -> T:
        if not self._resolved:
            begin = perf_counter()
            self._sleep(limit)
            if self._cancel_scope.trace is not None:
                self._cancel_scope.trace.add(self._where, "wait", self._what, begin, perf_counter())
        if self._error is not None:
            raise self._error.with_traceback(None)  # a traceback would grow, and keep frames alive
        value: T = self._value
        return value

    def _sleep(self, limit: TimeLimit | None) -> None:
        while not self._resolved:
            self._sleep_once(limit)
            if limit is not None and not self._resolved and perf_counter() >= limit.deadline:
                self._cancel_scope.check()
                self._refuse_to_wait(limit)

    def _sleep_once(self, limit: TimeLimit | None) -> None:
        """Wait until woken, or for some time."""
        waiter = threading.Lock()
        waiter.acquire()
        with self._cancel_scope.lock:
            self._waiters.append(waiter)
            self._cancel_scope.waiting[waiter] = Wait(
                threading.current_thread(), self, limit is not None
            )
        try:
            if self._resolved:
                return
            self._cancel_scope.check()
            left = PATIENCE_S
            if limit is not None:
                left = min(max(0.0, limit.deadline - perf_counter()), threading.TIMEOUT_MAX)
            if not waiter.acquire(timeout=left) and limit is None:
                self._cancel_scope.look_if_stuck()
        finally:
            with self._cancel_scope.lock:
                del self._cancel_scope.waiting[waiter]
                self._waiters.remove(waiter)

    def _refuse_to_wait(self, limit: TimeLimit) -> NoReturn:
        raise RunTimeoutError(
            f"{self._what} was not there after {limit.timeout_s:g} s{self._hint()}"
        )

    def _hint(self) -> str:
        """Return why it may not be there, as the end of a message."""
        return ""

    def resolve(self, value: Any, events: Sequence[Event]) -> None:
        """State that the operation has started, and is complete when the events are done."""
        self._value, self._events = value, events
        self._resolved = True
        if self._waiters:
            self._wake_all()

    def fail(self, error: BaseException) -> None:
        """State that the value will not come."""
        self._error = error
        self._resolved = True
        if self._waiters:
            self._wake_all()

    def _wake_all(self) -> None:
        with self._cancel_scope.lock:
            for waiter in self._waiters:
                _wake(waiter)
