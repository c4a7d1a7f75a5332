"""Functions that run on endpoints, a thread each, inside a block that joins them.

Rules, so that nothing hangs. A worker that raises ends the dataflow: everyone who waits is told so, and the
block raises that exception. When the last worker of an endpoint ends, the links by which it sends are shut
down, and what is still on its way to it is an error. When the body of the block ends, so does what the host
sends, and what endpoints do that had no worker. When all workers wait for each other after that, it is an
error. Ctrl-C in the block ends the dataflow, compiled operators that do not return included; a second one
leaves threads behind that do not return.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from godwit.dataflow.context import Endpoint
from godwit.errors import DataflowEnded, InputError, TopologyError, shown
from godwit.runtime.cpu.stopping import RunStopped, stoppable
from godwit.runtime.memory import Event

if TYPE_CHECKING:
    from godwit.dataflow.context import Context
    from godwit.dataflow.link import Link


class _Thread(threading.Thread):
    """One that says itself when it ends: a join that Ctrl-C interrupts takes any other for ended.

    (In Python before 3.13, which asks no more afterwards.)
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.has_ended = threading.Event()

    def run(self) -> None:
        """Call the function."""
        try:
            super().run()
        finally:
            self.has_ended.set()


class Workers:
    """The block; see :meth:`godwit.Context.workers`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._threads: list[_Thread] = []
        self._lock = threading.Lock()
        self._running: Counter[int] = Counter()
        self._failure: BaseException | None = None
        self._is_open = False

    def start(self, endpoint: Endpoint, function: Callable[..., Any], *arguments: Any) -> None:
        """Run ``function(*arguments)`` for an endpoint: on a GPU, that and its stream are the current ones.

        It begins after what the calling thread has put into its current streams on the context's GPUs.

        :raises TopologyError: it is no endpoint of the context that has threads
        :raises InputError: no function, or the block has not begun or has ended
        """
        if not isinstance(endpoint, Endpoint) or endpoint.context is not self._context:
            raise TopologyError(
                f"a worker runs on an endpoint of its context, got {shown(endpoint)}"
            )
        if endpoint.kind == "router":
            raise TopologyError(f"{endpoint} has no worker: it works by itself")
        if not callable(function):
            raise InputError(f"a worker must be a function, got {shown(function)}")
        before = [one.space.record_current() for one in self._context.endpoints]
        thread = _Thread(
            target=self._run,
            args=(endpoint, before, function, arguments),
            name=f"godwit-worker-{endpoint}",
            daemon=True,
        )
        # In one step, so that whoever ends the block joins it, and nobody gives its endpoint up.
        with self._lock:
            if not self._is_open:
                raise InputError(
                    "workers are started inside their block: with context.workers() as workers"
                )
            for link in self._links_to(endpoint):
                if link.receiver is not None:
                    link.receiver.resume()
            self._threads.append(thread)
            self._running[id(endpoint)] += 1
            self._context.cancel_scope.participants.add(thread)
            try:
                thread.start()
            except RuntimeError:  # there are too many
                self._threads.pop()
                self._running[id(endpoint)] -= 1
                self._context.cancel_scope.participants.discard(thread)
                raise

    def each(
        self, endpoints: Iterable[Endpoint], function: Callable[..., Any], *arguments: Any
    ) -> None:
        """Start ``function(endpoint, *arguments)`` on each of some endpoints.

        :raises TopologyError: no list of endpoints of the context
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
            with endpoint.space.entered(), self._context.recording(), ExitStack() as stack:
                stack.enter_context(stoppable(self._context.cancel_scope.control))
                if trace is not None:
                    stack.enter_context(trace.span(endpoint.name, "worker", name))
                for event in before:
                    event.wait_on(endpoint.space.stream)
                function(*arguments)
                self._settle(endpoint)
        except BaseException as error:
            self._fail(error)

    def _settle(self, endpoint: Endpoint) -> None:
        """A worker has ended by itself."""
        with self._lock:
            self._running[id(endpoint)] -= 1
            left = self._running[id(endpoint)]
        try:
            if not left:
                self._settle_endpoint(endpoint)
        finally:  # until then others may still get what they wait for
            self._context.cancel_scope.participants.discard(threading.current_thread())

    def _settle_body(self) -> None:
        """The block's body, which is at the host, has ended by itself."""
        with self._lock:
            left = self._running[id(self._context.host)]
        if not left:
            self._settle_endpoint(self._context.host)

    def _settle_endpoint(self, endpoint: Endpoint) -> None:
        """Nobody works at an endpoint any more; if it is the host after the body, nor where nobody has."""
        host, idle = self._context.host, [endpoint]
        with self._lock:
            if endpoint is host and not self._is_open:
                idle += [one for one in self._context.endpoints if not self._running[id(one)]]
        for one in idle:
            for link in self._links_from(one):
                if one is endpoint or self._is_awaited(link):
                    link.shutdown()
        with self._lock:
            for one in idle:
                body_receives = one is host and self._is_open
                if not (self._running[id(one)] or body_receives):
                    self._abandon(one)

    def _is_awaited(self, link: Link) -> bool:
        """Whether somebody has asked for what comes over it, or works where it leads and may yet do so."""
        if link.target.kind == "router":
            return any(map(self._is_awaited, self._links_from(link.target)))
        is_asked = link.receiver is not None and link.receiver.has_begun
        return is_asked or bool(self._running[id(link.target)])

    def _abandon(self, endpoint: Endpoint) -> None:
        for link in self._links_to(endpoint):
            if link.receiver is not None:
                link.receiver.abandon()

    def _join(self) -> None:
        for thread in self._threads:
            # Ctrl-C came before it had begun: if it does, it ends at once.
            with suppress(RuntimeError):
                if thread.ident is not None:
                    thread.has_ended.wait()
                thread.join()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            # Who was told of the end is not its cause.
            if self._failure is None and not isinstance(error, DataflowEnded | RunStopped):
                self._failure = error
        self._context.cancel_scope.end(error)

    def _links_from(self, endpoint: Endpoint) -> list[Link]:
        return [link for link in self._context.all_links() if link.source is endpoint]

    def _links_to(self, endpoint: Endpoint) -> list[Link]:
        return [link for link in self._context.all_links() if link.target is endpoint]

    def __enter__(self) -> Workers:
        self._context.begin_workers()
        self._threads.clear()
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
                    self._settle_body()
            self._context.cancel_scope.body_has_ended()
            self._join()
        except BaseException as error:  # Ctrl-C, or a policy asked for what the host still sends
            self._fail(error)
            self._join()
            raise
        finally:
            self._context.cancel_scope.participants.clear()
            # Who goes on without workers may receive anywhere.
            for link in self._context.all_links():
                if link.receiver is not None:
                    link.receiver.resume()
            self._context.end_workers()
        cause = self._failure or self._context.cancel_scope.cause
        if cause is not None and cause is not value:
            raise cause from cause.__cause__  # and not from what the body was told of it
