"""Functions that run on endpoints, a thread each, inside a block that joins them.

Rules that prevent hangs. A worker that raises ends the dataflow: every wait raises, and the block raises
the worker's exception. When the last worker of an endpoint ends, the links by which the endpoint sends are
shut down, and segments that only it could still receive are an error. The end of the block's body does the
same for the host, and for endpoints without workers. When after that all workers wait for each other, that
is an error. Ctrl-C in the block ends the dataflow, compiled operators in endless loops included; a second
Ctrl-C leaves threads behind that do not return.

Threads of contexts with GPUs are kept for later workers, since CUDA prepares each thread at its first call:
a new one took 0.23 ms to begin, record an event and end, a kept one 0.06.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from contextvars import Context as Variables
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any

from godwit.dataflow.endpoint import Endpoint
from godwit.errors import DataflowEnded, InputError, TopologyError, shown
from godwit.runtime.cpu.stopping import RunStopped, stoppable
from godwit.runtime.memory import Event

if TYPE_CHECKING:
    from godwit.dataflow.context import Context
    from godwit.dataflow.link import Link


class _Thread(threading.Thread):
    """Thread that runs a worker, and then perhaps further ones on the same GPU, or on the host.

    :param is_kept: True to wait in :data:`_idle` for further workers
    :param gpu: index of the GPU of its workers; None for workers of the host
    """

    def __init__(self, name: str, is_kept: bool, gpu: int | None) -> None:
        super().__init__(name=name, daemon=True)
        self.is_kept = is_kept
        self.gpu = gpu
        self._inbox: SimpleQueue[_Worker] = SimpleQueue()

    def begin(self, worker: _Worker) -> None:
        """Run a worker; a second call with the same one has no effect."""
        self._inbox.put(worker)
        if self.ident is None:
            self.start()

    def run(self) -> None:
        """Run workers as they come."""
        while self._run_one(self._inbox.get()):
            pass

    def _run_one(self, worker: _Worker) -> bool:
        """Run a worker, unless it has run; return True if others may come."""
        if worker.has_begun:
            return True
        worker.has_begun = True
        is_kept = False
        try:
            worker.run()
            is_kept = self.is_kept and len(_idle.setdefault(self.gpu, [])) < _MOST_IDLE
        finally:
            if is_kept:  # not after an error of the call, which ends the thread
                self.name = "godwit-idle"
                _idle[self.gpu].append(self)
            worker.has_ended.set()
        return is_kept


_MOST_IDLE = 32
_idle: dict[int | None, list[_Thread]] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)


class _Worker:
    """Call in a thread.

    :ivar has_ended: an event, since before Python 3.13 joins fail after Ctrl-C interrupted one
    """

    def __init__(self, thread: _Thread, call: Callable[[], None]) -> None:
        self.thread = thread
        self._call: Callable[[], None] | None = call
        self.has_begun = False
        self.has_ended = threading.Event()

    def run(self) -> None:
        """Call it, without context variables of a worker before it in the thread; drop its arguments."""
        call, self._call = self._call, None
        assert call is not None
        Variables().run(call)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for its end, at most for a time, and for that of its thread unless that is kept."""
        if self.thread.ident is None:  # Ctrl-C came before it began
            return
        if not self.has_begun:  # or before a kept thread got it: the dataflow has ended
            self.thread.begin(self)
        self.has_ended.wait(timeout_s)
        if not self.thread.is_kept:
            self.thread.join(timeout_s)


class Workers:
    """Block of workers; see :meth:`godwit.Context.workers`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._workers: list[_Worker] = []
        self._keeps_threads = any(
            end.device.kind == "cuda" for end in context.endpoints if end.device
        )
        self._lock = threading.Lock()
        self._running: Counter[int] = Counter()
        self._failure: BaseException | None = None
        self._is_open = False

    def start(self, endpoint: Endpoint, function: Callable[..., Any], *arguments: Any) -> None:
        """Run ``function(*arguments)`` in a new thread, whose current GPU and stream are the endpoint's.

        It begins after the work that the calling thread's current streams on the context's GPUs hold.

        :raises TopologyError: not an endpoint of the context, or a router
        :raises InputError: not a function, or the block has not begun or has ended
        """
        if not isinstance(endpoint, Endpoint) or endpoint.context is not self._context:
            raise TopologyError(
                f"a worker runs on an endpoint of its context, got {shown(endpoint)}"
            )
        if endpoint.kind == "router":
            raise TopologyError(f"{endpoint} is a router, which has no worker")
        if not callable(function):
            raise InputError(f"a worker must be a function, got {shown(function)}")
        recorded = [end.space.record_current() for end in self._context.endpoints]
        # Asked here, since two threads that call CUDA in turn wait for each other.
        before = [event for event in recorded if not event.done()]
        # With the lock, so that the end of the block joins it, and its endpoint is not abandoned.
        with self._lock:
            if not self._is_open:
                raise InputError(
                    "workers are started inside their block: with context.workers() as workers"
                )
            for link in self._links_to(endpoint):
                if link.receiver is not None:
                    link.receiver.resume()
            thread = self._take_thread(f"godwit-worker-{endpoint}", endpoint.space.index)
            worker = _Worker(thread, partial(self._run, endpoint, before, function, arguments))
            self._workers.append(worker)
            self._running[id(endpoint)] += 1
            self._context.cancel_scope.participants.add(thread)
            try:
                thread.begin(worker)
            except RuntimeError:  # too many threads
                self._workers.pop()
                self._running[id(endpoint)] -= 1
                self._context.cancel_scope.participants.discard(thread)
                raise

    def _take_thread(self, name: str, gpu: int | None) -> _Thread:
        """Return a thread that runs no worker."""
        if self._keeps_threads:
            with suppress(KeyError, IndexError):
                thread = _idle[gpu].pop()
                thread.name = name
                return thread
        return _Thread(name, self._keeps_threads, gpu)

    def each(
        self, endpoints: Iterable[Endpoint], function: Callable[..., Any], *arguments: Any
    ) -> None:
        """Start ``function(endpoint, *arguments)`` on each of some endpoints.

        :raises TopologyError: not a list of endpoints of the context
        """
        if isinstance(endpoints, Endpoint):
            raise TopologyError(
                f"endpoints must be a list of endpoints, got {endpoints} alone: write [endpoint]"
            )
        for endpoint in endpoints:
            self.start(endpoint, function, endpoint, *arguments)

    def _run(
        self,
        endpoint: Endpoint,
        before: Iterable[Event],
        function: Callable[..., Any],
        arguments: Any,
    ) -> None:
        trace = self._context.trace
        name = getattr(function, "__name__", "worker")
        try:
            self._context.cancel_scope.check()
            with (
                endpoint.space.entered_thread(),
                self._context.recording(),
                stoppable(self._context.cancel_scope.control),
                nullcontext() if trace is None else trace.span(endpoint.name, "worker", name),
            ):
                for event in before:
                    event.wait_on(endpoint.space.stream)
                function(*arguments)
                self._end_worker(endpoint)
        except BaseException as error:
            self._fail(error)

    def _end_worker(self, endpoint: Endpoint) -> None:
        """End a worker that has returned."""
        with self._lock:
            self._running[id(endpoint)] -= 1
            left = self._running[id(endpoint)]
        try:
            if not left:
                self._end_endpoint(endpoint)
        finally:  # not earlier, since this may still resolve the waits of others
            self._context.cancel_scope.participants.discard(threading.current_thread())

    def _end_body(self) -> None:
        """End the block's body, which counts as a worker of the host."""
        with self._lock:
            left = self._running[id(self._context.host)]
        if not left:
            self._end_endpoint(self._context.host)

    def _end_endpoint(self, endpoint: Endpoint) -> None:
        """End an endpoint without workers; with the host after the body also those that never had any."""
        host, idle = self._context.host, [endpoint]
        with self._lock:
            if endpoint is host and not self._is_open:
                idle += [end for end in self._context.endpoints if not self._running[id(end)]]
        for end in idle:
            for link in self._links_from(end):
                if end is endpoint or self._is_awaited(link):
                    link.shutdown()
        with self._lock:
            for end in idle:
                body_receives = end is host and self._is_open
                if not (self._running[id(end)] or body_receives):
                    self._abandon(end)

    def _is_awaited(self, link: Link) -> bool:
        """Return True if a segment was requested from it, or a worker runs at its end and may yet do so."""
        if link.target.kind == "router":
            return any(map(self._is_awaited, self._links_from(link.target)))
        is_asked = link.receiver is not None and link.receiver.has_begun
        return is_asked or bool(self._running[id(link.target)])

    def _abandon(self, endpoint: Endpoint) -> None:
        for link in self._links_to(endpoint):
            if link.receiver is not None:
                link.receiver.abandon()

    def _join(self) -> None:
        for worker in self._workers:
            with suppress(RuntimeError):  # Ctrl-C came as its thread began, which ends at once
                worker.join()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            # These errors follow from the end, and are not its cause.
            if self._failure is None and not isinstance(error, DataflowEnded | RunStopped):
                self._failure = error
        self._context.cancel_scope.end(error)

    def _links_from(self, endpoint: Endpoint) -> list[Link]:
        return [link for link in self._context.all_links() if link.source is endpoint]

    def _links_to(self, endpoint: Endpoint) -> list[Link]:
        return [link for link in self._context.all_links() if link.target is endpoint]

    def __enter__(self) -> Workers:
        self._context.begin_workers()
        self._workers.clear()
        self._context.cancel_scope.begin()
        self._is_open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            with self._lock:
                self._is_open = False
            if value is not None:
                self._fail(value)
            else:
                with suppress(DataflowEnded):
                    self._end_body()
            self._context.cancel_scope.body_has_ended()
            self._join()
        except BaseException as error:  # Ctrl-C, or a policy's error while the host sends
            self._fail(error)
            self._join()
            raise
        finally:
            self._context.cancel_scope.participants.clear()
            # Threads of the user may receive anywhere from now on.
            for link in self._context.all_links():
                if link.receiver is not None:
                    link.receiver.resume()
            self._context.end_workers()
        cause = self._failure or self._context.cancel_scope.cause
        if cause is not None and cause is not value:
            raise cause from cause.__cause__  # not from the DataflowEnded of the body
