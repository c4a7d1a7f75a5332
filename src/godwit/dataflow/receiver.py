"""Segments, and the end of a link at which they arrive: a pipelined receiver (Groute, 4.1, 4.2).

A sender's segment is *offered* to every receiver that may take it. A receiver with a free buffer claims the
first unclaimed offer, which only one receiver can, starts the copy straight from the sender's memory into
its buffer, and delivers the segment with events that are done when it has arrived. Claimed offers in the
queues of other receivers are *stale*, and dropped later. There is no lock per router: each receiver has its
own, and an offer is claimed in one atomic step.

Invariant: an offer is claimed, or in the queue of each of its receivers. A buffer is free, or belongs to
one claimed segment and has users: the endpoint that received it, until it releases it, and messages that
send it on, until these have been read. The copy into a buffer waits for the events of all former users, so
a buffer may be released while kernels still read it. Where a segment is read in place, its message has
these users.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from heapq import heapify, heappop, heappush
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

import numpy as np

from godwit.dataflow.future import CancelScope, Future, TimeLimit
from godwit.errors import DeadWorkerError, EndOfLink
from godwit.runtime.memory import Block, Event, Lane, Space

if TYPE_CHECKING:
    from godwit.dataflow.endpoint import Endpoint
    from godwit.dataflow.link import Message

_FEW_OFFERS = 64


class Segment:
    """Rows of a message.

    A loop over a link owns it until its next turn, or, if it is held, until :meth:`release`. It is also a
    context manager, which releases it. After that its array must not be used. A segment, or part of its
    array, that was sent on before keeps the memory until the copy has been read.

    :ivar array: the rows, NumPy's or CuPy's, in the memory of the endpoint that received them; read-only
        where that is the sender's own memory
    :ivar offset: index of the first row in the whole message
    :ivar total: number of rows of the whole message
    :ivar metadata: the sender's metadata
    :ivar source: the endpoint that sent it
    :ivar is_held: True if the next turn of a loop does not release it
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
        # Set when a receiver takes it: the receiver, its buffer, the message if that is read in place, and
        # the events of its arrival.
        self.receiver: Receiver | None = None
        self.slot: Any = None
        self.message: Any = None
        self.events: tuple[Event, ...] = ()
        self.has_arrived = False

    def copy_for_other(self) -> Segment:
        """Return a segment of the same rows for another receiver."""
        return Segment(self.array, self.offset, self.total, self.metadata, self.source)

    @property
    def is_last(self) -> bool:
        """True if it has the last rows of its message."""
        return self.offset + len(self.array) == self.total

    def hold(self) -> Segment:
        """Keep it beyond this turn of the loop, until :meth:`release`; its buffer does not receive then."""
        self.is_held = True
        return self

    def release(self, stream: Any = None) -> None:
        """Release the buffer after the work that a stream holds now; a second call has no effect.

        :param stream: by default the endpoint's own
        """
        slot = self.slot
        if slot is not None:
            slot.receiver.give_back(self, stream)

    def wait(self) -> None:
        """Block the host until the data have arrived; loops over links of the host need not."""
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
    """Future of a segment, which the host or a stream may wait for; EndOfLink if no more comes."""

    __slots__ = ("__weakref__", "_receiver")

    def __init__(
        self, cancel_scope: CancelScope, what: str, where: str, receiver: Receiver
    ) -> None:
        super().__init__(cancel_scope, what, where)
        self._receiver: Receiver | None = receiver  # None once its value was returned

    @property
    def done(self) -> bool:
        """True if :meth:`wait` would return, or raise, at once."""
        if not self._resolved and self._receiver is not None:
            self._receiver.admit(is_done=False)
        return super().done

    def _assigned(self, limit: TimeLimit | None = None) -> Segment:
        if not self._resolved and self._receiver is not None:
            self._wait_for(self._receiver.events_before_admission(), limit)
            self._receiver.admit(is_done=True)
        return super()._assigned(limit)

    def _hint(self) -> str:
        return "" if self._receiver is None else self._receiver.hint()

    def wait(self, timeout_s: float | None = None) -> Segment:
        """Return the segment when it has arrived; see :meth:`Future.wait`."""
        segment = super().wait(timeout_s)
        segment.has_arrived = True
        self._receiver = None
        return segment

    def wait_on(self, stream: Any) -> Segment:
        """Return the segment when its copy has started; see :meth:`Future.wait_on`."""
        segment = super().wait_on(stream)
        self._receiver = None
        return segment

    def __del__(self) -> None:
        receiver = getattr(self, "_receiver", None)  # missing if Ctrl-C interrupted __init__
        if receiver is not None and self._value is not None:
            receiver.put_back(self._value)


class Offer:
    """A segment of a message, offered to some receivers, of which one claims it.

    :param is_only: True if no other offer has the same segment
    """

    __slots__ = ("_token", "is_only", "message", "order", "receivers", "segment")

    def __init__(
        self,
        segment: Segment,
        message: Message,
        order: float,
        receivers: tuple[Receiver, ...],
        is_only: bool,
    ) -> None:
        self.segment: Segment | None = segment
        self.message = message
        self.order = order
        self.receivers = receivers
        self.is_only = is_only
        self._token = [None]

    @property
    def is_stale(self) -> bool:
        """True if a receiver has claimed it."""
        return not self._token

    def claim(self) -> bool:
        """Claim it and return True, unless another receiver has; popping the only token is atomic."""
        try:
            self._token.pop()
        except IndexError:
            return False
        return True


class Slot:
    """Receive buffer: memory if a copy is needed, else only the permission to take one segment.

    :ivar segment: segment that it was taken for
    :ivar users: number of users: the endpoint that received the segment, and messages that send it on
    :ivar read: events of former users of this segment
    :ivar after: events after which the buffer may be overwritten
    """

    __slots__ = ("_view", "after", "block", "read", "receiver", "segment", "taken_s", "users")

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.block: Block | None = None
        self.segment: Segment | None = None
        self.users = 0
        self.read: tuple[Event, ...] = ()
        self.after: tuple[Event, ...] = ()
        self.taken_s = 0.0  # for the trace
        self._view: Any = None

    def view(self, dtype: Any, shape: tuple[int, ...]) -> Any:
        """Return an array in its memory; mostly the same as the last time."""
        view = self._view
        if view is None or view.dtype != dtype or view.shape != shape:
            assert self.block is not None
            view = self._view = self.block.view(dtype, shape)
        return view

    def hold(self) -> None:
        """Add a user, while another one stays."""
        with self.receiver._lock:
            self.users += 1

    def release(self, events: tuple[Event, ...]) -> None:
        """Remove a user, which has read the segment when the events are done; the last frees the buffer."""
        if self.users > 1:  # else no user can be added any more
            with self.receiver._lock:
                self.read = events = (*self.read, *events)
                self.users -= 1
                if self.users:
                    return
        elif self.read:
            events = (*self.read, *events)
        segment, self.segment, self.read = self.segment, None, ()
        if segment is None:  # the context has been closed
            return
        receiver = self.receiver
        trace = receiver._cancel_scope.trace
        if trace is not None:
            name, nbytes = f"rows from {segment.offset:,}", segment.array.nbytes
            times = self.taken_s, perf_counter()
            trace.add(receiver.where, receiver.name, name, *times, bytes=nbytes)
        if segment.message is not None:
            segment.message.release(events)
        elif segment.has_arrived:
            self.after = events
        else:
            self.after = (*segment.events, *events)
        receiver._free.append(self)
        if receiver._offers or receiver._ended:
            receiver.match()

    def close(self) -> None:
        """Free its memory."""
        self._view = self.segment = None
        if self.block is not None:
            self.block.free()
            self.block = None


class Receiver:
    """Receiving end of one link.

    :param name: name of the link in messages
    :param where: name of the endpoint in the trace
    :param space: memory of the endpoint
    :param packet_bytes: size of a buffer
    :param buffers: number of buffers
    :param copies: if True, segments are copied even where the sender's memory could be read
    :param keep: keeps an array alive until an event is done
    :param on_first_request: called with the receiver at the first request
    """

    def __init__(
        self,
        name: str,
        where: str,
        space: Space,
        packet_bytes: int,
        buffers: int,
        *,
        copies: bool,
        cancel_scope: CancelScope,
        keep: Callable[[Event, Any], None],
        on_first_request: Callable[[Receiver], None],
    ) -> None:
        self.name = name
        self.where = where
        self.space = space
        self.packet_bytes = packet_bytes
        self.buffers = buffers
        self.segments = 0
        self.bytes = 0
        self.copied_bytes = 0
        self._copies = copies
        self._cancel_scope = cancel_scope
        self._keep = keep
        self._on_first_request = on_first_request
        self._lock = threading.RLock()
        self._free: deque[Slot] = deque()
        self._slots: list[Slot] = []
        self._lane: Lane | None = None
        self._offers: list[tuple[float, int, Offer]] = []
        self._arrivals = count()
        # Admitted requests, and requests that are not admitted yet. Weak references: a dropped future, as
        # after a time-out, takes no segment.
        self._requests: deque[ReferenceType[PendingSegment]] = deque()
        self._waiting: deque[ReferenceType[PendingSegment]] = deque()
        self._arrived: deque[Segment] = deque()
        self._most_offers = _FEW_OFFERS
        self._is_contested = False
        self._is_matching = False
        self._ended = False
        self._abandoned = False
        self.backlog: Callable[[], str] = str
        """Set by the router: returns what that waits for, as the end of a message."""

    # Calls by senders

    def post(self, offers: Sequence[Offer]) -> None:
        """Add offers."""
        self.match(offers)
        if self._abandoned:
            self._give_up()

    def _queue(self, offers: Sequence[Offer]) -> None:
        """Queue offers behind those of the same priority; with the lock."""
        if len(self._offers) > self._most_offers:
            self._drop_stale()
        for offer in offers:
            heappush(self._offers, (offer.order, next(self._arrivals), offer))
            self._is_contested = self._is_contested or len(offer.receivers) > 1

    def _drop_stale(self) -> None:
        """Drop stale offers, so that a slow receiver does not keep what others have taken."""
        self._offers = [entry for entry in self._offers if not entry[2].is_stale]
        heapify(self._offers)
        self._most_offers = max(_FEW_OFFERS, 2 * len(self._offers))

    def taken_buffers(self) -> int:
        """Return how many buffers are not free, or how many there are before the first request."""
        return self.buffers - len(self._free)

    @property
    def has_offers(self) -> bool:
        """True if an unclaimed offer is queued."""
        return any(not entry[2].is_stale for entry in list(self._offers))

    def hint(self) -> str:
        """Return why no segment may come, as the end of a message."""
        if self._slots and not self._free and self.has_offers:
            return (
                f": all buffers of {self.name} ({self.buffers}) are held, or sent on and not read yet: "
                "release what has been read"
            )
        return self.backlog()

    def end(self) -> None:
        """End the link: no more offers will come."""
        with self._lock:
            self._ended = True
            self._check_end()

    # Calls by the receiving endpoint

    def request(self, pending: PendingSegment) -> None:
        """Request the next segment; from the first request on all buffers receive.

        If other receivers could take it, the request is admitted only when a buffer is there whose former
        users are done, so that no receiver takes more segments than it has buffers for ahead of its GPU's
        work.
        """
        with self._lock:
            if not self._slots:
                self._slots = [Slot(self) for _ in range(self.buffers)]
                self._free.extend(self._slots)
                self._on_first_request(self)
            if self._is_contested:
                _add(self._waiting, [ref(pending)])
            else:
                self._admit([ref(pending)])
        if self._waiting:
            self.admit(is_done=False)
        elif self._offers and self._free:
            self.match()

    @property
    def has_begun(self) -> bool:
        """True if a segment has ever been requested."""
        return bool(self._slots)

    def events_before_admission(self) -> Sequence[Event]:
        """Return the events to wait for before waiting requests are admitted."""
        if not (self._is_contested and self._waiting) or self._arrived:
            return ()
        try:
            return self._free[0].after
        except IndexError:  # all are held
            return ()

    def admit(self, is_done: bool) -> None:
        """Admit waiting requests, in their order, if the events before admission are done.

        :param is_done: True if the caller has waited for these events
        """
        if not self._waiting or not (
            is_done or all(event.done() for event in self.events_before_admission())
        ):
            return
        with self._lock:
            self._admit(self._waiting)
            self._waiting.clear()
        if self._offers and self._free:
            self.match()

    def _admit(self, pendings: Iterable[ReferenceType[PendingSegment]]) -> None:
        _add(self._requests, pendings)
        self._deliver()
        if self._ended:
            self._check_end()

    def next_arrived(self) -> Segment | None:
        """Return the next segment if it has been taken, no request is open and the dataflow goes on."""
        if self._requests or self._waiting or self._cancel_scope.cause is not None:
            return None
        try:
            return self._arrived.popleft()
        except IndexError:
            return None

    def put_back(self, segment: Segment) -> None:
        """Take back a delivered segment that was not looked at; the next request gets it."""
        with self._lock:
            self._arrived.appendleft(segment)
            self._deliver()

    def abandon(self) -> None:
        """State that no worker receives any more; segments for this receiver alone are then an error."""
        with self._lock:
            self._abandoned = True
        self._give_up()

    def resume(self) -> None:
        """State that a worker may receive again."""
        with self._lock:
            self._abandoned = False

    def _give_up(self) -> None:
        with self._lock:
            unread = len(self._arrived)
            waiting = [offer for _, _, offer in self._offers if not offer.is_stale]
        stuck = [offer for offer in waiting if all(end._abandoned for end in offer.receivers)]
        if unread or stuck:
            self._cancel_scope.end(
                DeadWorkerError(
                    f"no worker is left at the end of {self.name}, with {unread + len(stuck)} segment(s) "
                    "on their way to it: a worker there must receive until the link ends"
                )
            )

    def match(self, offers: Sequence[Offer] = ()) -> None:
        """Queue offers, and claim queued offers while buffers are free.

        Called after every change that may make that possible: an offer, a freed buffer, the end of the
        link.
        """
        taken: list[Offer] = []
        try:
            with self._lock:
                if offers:
                    self._queue(offers)
                # The garbage collector may free a buffer during the loop below, and call this again.
                if self._is_matching:
                    return
                self._is_matching = True
                try:
                    while self._free and self._offers and self._may_take(self._offers[0][2]):
                        offer = heappop(self._offers)[2]
                        if offer.claim():
                            taken.append(offer)
                            self._begin(offer)
                finally:
                    self._is_matching = False
                if self._ended:
                    self._check_end()
        except BaseException as error:
            self._cancel_scope.end(error)
            raise
        finally:
            # Without the lock, since this takes the locks of other receivers.
            for offer in taken:
                if len(offer.receivers) > 1:
                    for other in offer.receivers:
                        if other._ended and other is not self:
                            other.match()
                offer.message.claimed()
                if offer.message.passed_on is not None:
                    offer.message.release_origin()

    def _may_take(self, offer: Offer) -> bool:
        """Return True if the receiver may claim an offer.

        An offer that other receivers could claim is taken ahead of a request only into a buffer whose
        former users are done: a buffer that a GPU still reads does not show that this GPU is the next to be
        free.
        """
        if self._abandoned or self._cancel_scope.cause is not None:
            return False
        if len(offer.receivers) == 1 or self._requests or offer.is_stale:
            return True
        return all(event.done() for event in self._free[0].after)

    def _begin(self, offer: Offer) -> None:
        """Start to copy a segment into a buffer."""
        segment, message = offer.segment, offer.message
        assert segment is not None
        offer.segment = None  # stale offers keep no memory
        array = segment.array
        nbytes = array.nbytes
        if not offer.is_only:
            segment = segment.copy_for_other()
        # On the host the buffer used last is in the cache, and others may never be needed. On a GPU that
        # buffer is likely to be read still.
        slot = self._free.pop() if self.space.stream is None else self._free.popleft()
        segment.receiver, segment.slot = self, slot
        if not self._copies and self.space.reads(array):
            segment.array = _read_only(array)
            segment.message = message
            segment.events = message.after
        else:
            if slot.block is None:
                slot.block = self.space.allocate(self.packet_bytes)
            if self._lane is None:
                self._lane = self.space.lane()
            segment.array = view = slot.view(array.dtype, array.shape)
            segment.events = slot.after
            if nbytes:
                event = self._lane.copy(array, view, message.after + slot.after)
                self._keep(event, array)
                segment.events = (event,)
            message.finished(segment.events)
            self.copied_bytes += nbytes
        slot.segment, slot.users = segment, 1
        if self._cancel_scope.trace is not None:
            slot.taken_s = perf_counter()
        self.segments += 1
        self.bytes += nbytes
        self._arrived.append(segment)
        self._deliver()

    def give_back(self, segment: Segment, stream: Any) -> None:
        """Release the buffer of a segment after the work that a stream holds now."""
        with self._lock:  # two threads may release it
            slot, segment.slot = segment.slot, None
        if slot is not None:
            slot.release((self.space.record_event(stream),))

    def share(self, segment: Segment) -> Slot | Message | None:
        """Add a user to a segment's buffer, or to the message that it is read in place of; return that.

        None if the segment has been released.
        """
        with self._lock:
            slot: Slot | None = segment.slot
            message: Message | None = segment.message
            if slot is None:
                return None
            if message is None:
                slot.users += 1
                return slot
            message.hold()
        # A message that sends on another's memory waits for its origin alone, so that no chain grows.
        origin = message.passed_on
        if origin is None:
            return message
        origin.hold()
        message.release(())
        return origin

    def shared_part(self, array: Any) -> Slot | Message | None:
        """Do as :meth:`share` for the live segment that an array is part of; None if there is none."""
        for slot in self._slots:
            segment = slot.segment
            if segment is not None and self.space.overlaps(segment.array, array):
                user = self.share(segment)
                if user is not None:
                    return user
        return None

    def _deliver(self) -> None:
        while self._requests and self._arrived:
            request = self._requests.popleft()
            pending = request()
            if pending is None:
                continue
            try:
                segment = self._arrived.popleft()
            except IndexError:  # next_arrived, which has no lock, has taken it
                self._requests.appendleft(request)
                return
            pending.resolve(segment, segment.events)

    def _check_end(self) -> None:
        if not (self._ended and self._requests):
            return
        while self._offers and self._offers[0][2].is_stale:
            heappop(self._offers)
        if not self._offers and not self._arrived:
            while self._requests:
                pending = self._requests.popleft()()
                if pending is not None:
                    pending.fail(EndOfLink(f"nothing more comes over {self.name}"))

    def wait_all(self) -> None:
        """Wait for all users of the buffers; the dataflow has ended, so no copy begins later."""
        with self._lock:
            events = [event for slot in self._slots for event in slot.after]
            events += [event for slot in self._slots for event in slot.read]
        with ExitStack() as stack:  # waits for all, even if some raise
            for event in events:
                stack.callback(event.wait)

    def close(self) -> None:
        """Free the buffers; nothing may be using them. A second call has no effect."""
        with self._lock:
            for slot in self._slots:
                slot.close()
            self._slots.clear()
            self._free.clear()
            self._offers.clear()
            self._requests.clear()
            self._waiting.clear()
            self._arrived.clear()
            lane, self._lane = self._lane, None
            if lane is not None:
                lane.close()


def _add(
    queue: deque[ReferenceType[PendingSegment]], pendings: Iterable[ReferenceType[PendingSegment]]
) -> None:
    """Append futures to a queue, after removing dropped ones from its end."""
    while queue and queue[-1]() is None:
        queue.pop()
    queue.extend(pendings)


def _read_only(array: Any) -> Any:
    if not isinstance(array, np.ndarray):
        return array
    view = array.view()
    view.setflags(write=False)
    return view
