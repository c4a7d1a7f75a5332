"""Segments: pieces of messages, with where they belong (Groute, table 1: Segment, PendingSegment)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from godwit.dataflow.future import CancelScope, Future
from godwit.runtime.memory import Event

if TYPE_CHECKING:
    from godwit.dataflow.endpoint import Endpoint
    from godwit.dataflow.receiver import Receiver


class Segment:
    """Rows of a message.

    Whoever iterates over a link has it until the next turn of the loop, or until :meth:`release` if it is
    held. It is a context manager, too, which releases it. Then its array is not to be used any more. What
    has been sent on before, it or part of its array, keeps the memory until that has been read.

    :ivar array: the rows, NumPy's or CuPy's, in the memory of the endpoint that received them; read-only
        where that is the sender's own memory
    :ivar offset: which row of the whole message is the first
    :ivar total: rows of the whole message
    :ivar metadata: what the sender said of it
    :ivar source: the endpoint that sent it
    :ivar is_held: whether it is not given back at the next turn of a loop
    """

    __slots__ = (
        "array",
        "has_arrived",
        "is_held",
        "events",
        "message",
        "metadata",
        "offset",
        "receiver",
        "slot",
        "source",
        "total",
    )

    def __init__(
        self, array: Any, offset: int, total: int, metadata: Any, source: Endpoint
    ) -> None:
        self.array = array
        self.offset = offset
        self.total = total
        self.metadata = metadata
        self.source = source
        self.is_held = False
        # Of a segment that a receiver has taken: whose buffer it has, of which message it is if that is
        # read in place, and what says that it is there.
        self.receiver: Receiver | None = None
        self.slot: Any = None
        self.message: Any = None
        self.events: tuple[Event, ...] = ()
        self.has_arrived = False

    def twin(self) -> Segment:
        """The same rows, for another receiver."""
        return Segment(self.array, self.offset, self.total, self.metadata, self.source)

    @property
    def is_last(self) -> bool:
        """Whether the message ends with it."""
        return self.offset + len(self.array) == self.total

    def hold(self) -> Segment:
        """Keep it beyond this turn of the loop, until :meth:`release`; so one buffer less receives."""
        self.is_held = True
        return self

    def release(self, stream: Any = None) -> None:
        """Give the buffer back once what has been put into a stream so far is done; twice does no harm.

        :param stream: the endpoint's own, if none is named
        """
        slot = self.slot
        if slot is not None:
            slot.receiver.give_back(self, stream)

    def wait(self) -> None:
        """Wait on the host until its data are there (who iterates over a link of the host need not)."""
        for event in self.events:
            event.wait()
        self.has_arrived = True

    def __len__(self) -> int:
        return len(self.array)

    def __enter__(self) -> Segment:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    def __repr__(self) -> str:
        end = self.offset + len(self.array)
        return f"Segment(rows {self.offset:,} to {end:,} of {self.total:,}, from {self.source})"


class PendingSegment(Future[Segment]):
    """A segment that is still on its way: waited for by the host, or by a stream.

    Waiting raises EndOfLink when no more comes.
    """

    __slots__ = ("__weakref__", "_receiver")

    def __init__(
        self, cancel_scope: CancelScope, what: str, where: str, receiver: Receiver
    ) -> None:
        super().__init__(cancel_scope, what, where)
        self._receiver: Receiver | None = receiver  # None when somebody has seen what it brought

    @property
    def done(self) -> bool:
        """Whether :meth:`wait` would return, or raise, at once."""
        if not self._resolved and self._receiver is not None:
            self._receiver.admit(is_settled=False)
        return super().done

    def _assigned(self, timeout_s: float | None = None, deadline: float | None = None) -> Segment:
        if not self._resolved and self._receiver is not None:
            events = self._receiver.unsettled()
            if deadline is not None:
                self._reach(events, timeout_s or 0.0, deadline)
            for event in events:
                event.wait()
            self._receiver.admit(is_settled=True)
        return super()._assigned(timeout_s, deadline)

    def _hint(self) -> str:
        return "" if self._receiver is None else self._receiver.hint()

    def wait(self, timeout_s: float | None = None) -> Segment:
        """The segment, when it is there; see :meth:`Future.wait`."""
        segment = super().wait(timeout_s)
        segment.has_arrived = True
        self._receiver = None
        return segment

    def wait_on(self, stream: Any) -> Segment:
        """The segment, when it is under way; see :meth:`Future.wait_on`."""
        segment = super().wait_on(stream)
        self._receiver = None
        return segment

    def __del__(self) -> None:
        receiver = getattr(self, "_receiver", None)  # not there if Ctrl-C came as it was made
        if receiver is not None and self._value is not None:
            receiver.put_back(self._value)
