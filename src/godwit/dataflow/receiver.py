"""Segments, and the receiving end of a link (pipelined: Groute, sections 4.1 and 4.2).

A sender's segments are *offered* to every receiver that may take them. A receiver with free buffers claims
the first unclaimed ones, which only one receiver can, starts the copy straight from the sender's memory
into its buffers, and delivers the segments with events that are done when they have arrived. Offers all of
whose segments other receivers have claimed are *stale*, and dropped later. No lock of a router is taken
for a segment: each receiver has its own, and segments are claimed in one atomic step (:meth:`Offer.claim`).

Invariant: a segment is claimed, or its offer is in the queue of each of its receivers. A buffer is free, or
belongs to one claimed segment and has users: the endpoint that received it, until it releases it, and
messages that send it on, until these have been read. The copy into a buffer waits for the events of all
former users, so a buffer may be released while kernels still read it. Where a segment is read in place, its
message has these users.

A copy costs the host more than it takes a small packet to arrive. Buffers of small packets are therefore
*neighbours* in memory; one copy fills several of them with consecutive segments, and they may wait for each
other until it does (:meth:`Receiver.may_wait`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from heapq import heapify, heappop, heappush
from itertools import count, islice
from operator import length_hint
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

import numpy as np

from godwit.dataflow.future import CancelScope, Future, TimeLimit
from godwit.errors import ClosedContextError, DeadWorkerError, EndOfLink, InputError
from godwit.runtime.memory import Block, Event, Lane, Space, latest

if TYPE_CHECKING:
    from godwit.dataflow.endpoint import Endpoint
    from godwit.dataflow.link import Message

_AHEAD = 4
"""A receiver takes a quarter of its equal share ahead: with more, others could wait for a slow one."""
_FEW_OFFERS = 64
"""Offers in a queue from which on stale ones are dropped."""
_ALIGNMENT_BYTES = 512
"""Alignment of the beginnings of buffers that are neighbours."""


Layout = tuple[Any, tuple[int, ...]]
"""The dtype of an array, and the shape of its rows."""


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
        "_array",
        "events",
        "has_arrived",
        "is_held",
        "layout",
        "message",
        "metadata",
        "offset",
        "receiver",
        "rows",
        "slot",
        "source",
        "total",
    )

    def __init__(
        self,
        array: Any,
        offset: int,
        total: int,
        metadata: Any,
        source: Endpoint,
        rows: int | None = None,
    ) -> None:
        self._array = array
        self.rows = len(array) if rows is None else rows
        self.offset = offset
        self.total = total
        self.metadata = metadata
        self.source = source
        self.is_held = False
        # Set when a receiver takes it: the receiver, its buffer, the message if that is read in place, else
        # the layout, and the events of its arrival.
        self.receiver: Receiver | None = None
        self.slot: Any = None
        self.message: Any = None
        self.layout: Layout = (None, ())
        self.events: tuple[Event, ...] = ()
        self.has_arrived = False

    @property
    def array(self) -> Any:
        """The rows, an array of NumPy or CuPy."""
        # Made when it is first read, since that takes longer than to start the copy.
        array, slot = self._array, self.slot
        if array is None:
            if slot is None:
                raise InputError(f"{self} has been released")
            array = self._array = slot.view(self.layout, self.rows)
        return array

    @array.setter
    def array(self, array: Any) -> None:
        self._array = array

    @property
    def made_array(self) -> Any:
        """Its array if that has been made, else None."""
        return self._array

    @property
    def is_last(self) -> bool:
        """True if it has the last rows of its message."""
        return self.offset + self.rows == self.total

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
        """Block the host until the data have arrived; a loop over a link on the host has done so."""
        for event in self.events:
            event.wait()
        self.has_arrived = True

    def __len__(self) -> int:
        return self.rows

    def __enter__(self) -> Segment:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    def __repr__(self) -> str:
        end = self.offset + self.rows
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
    """Consecutive segments of a message, offered to some receivers, each of which claims the next of them.

    :param numbers: indices of the segments in their message
    :param order: minus the priority; offers of lower order are claimed first
    :param units: number by which the link's count of unclaimed offers falls when all are claimed
    :ivar last_offset: index in the message of the first row of the last segment
    """

    __slots__ = ("_left", "last_offset", "message", "order", "receivers", "units")

    def __init__(
        self,
        message: Message,
        numbers: range,
        order: float,
        receivers: tuple[Receiver, ...],
        units: int,
    ) -> None:
        self._left = iter(numbers)
        self.last_offset = numbers[-1] * message.rows
        self.message = message
        self.order = order
        self.receivers = receivers
        self.units = units

    @property
    def segments_left(self) -> int:
        """Number of segments that no receiver has claimed; without any the offer is stale."""
        return length_hint(self._left)

    def claim(self, most: int) -> list[Segment]:
        """Claim and return the next segments, none if other receivers have claimed all.

        The numbers are taken in one call of compiled code, in which no other thread can come between.
        """
        numbers = list(islice(self._left, most))
        segment = self.message.segment
        return [segment(number) for number in numbers]

    def may_wait(self, free: int) -> bool:
        """Return True if a receiver may claim later, when more buffers than these are free.

        The end of a message is claimed at once: its sender may wait for that.
        """
        return free < self.message.at_once and free < self.segments_left


class Stretch:
    """Memory of receive buffers that are neighbours, so that one copy may fill several.

    :param nbytes: of all of them
    """

    __slots__ = ("_block", "_is_closed", "_nbytes", "_space")

    def __init__(self, space: Space, nbytes: int) -> None:
        self._space = space
        self._nbytes = nbytes
        self._block: Block | None = None
        self._is_closed = False

    def allocate(self) -> Block:
        """Return the memory, which is allocated at the first call.

        :raises ClosedContextError: it has been freed
        """
        block = self._block
        if block is None:
            if self._is_closed:  # new memory would not have what was received
                raise ClosedContextError(
                    "the context of this segment is closed: read segments before that"
                )
            self._block = block = self._space.allocate(self._nbytes)
        return block

    def close(self) -> None:
        """Free the memory. A second call has no effect."""
        self._is_closed = True
        block, self._block = self._block, None
        if block is not None:
            block.free()


class Slot:
    """Receive buffer: memory if a copy is needed, else only the permission to take one segment.

    :param offset: of its memory in that of the stretch, bytes
    :ivar segment: segment that it was taken for
    :ivar users: number of users: the endpoint that received the segment, and messages that send it on
    :ivar array: the array of the last segment, with its layout and its number of rows
    :ivar read: events of former users of this segment
    :ivar recorded: events after which it may be overwritten; None if one must be recorded first
    """

    __slots__ = (
        "array",
        "layout",
        "offset",
        "read",
        "receiver",
        "recorded",
        "rows",
        "segment",
        "stretch",
        "taken_bytes",
        "taken_s",
        "users",
    )

    def __init__(self, receiver: Receiver, stretch: Stretch, offset: int) -> None:
        self.receiver = receiver
        self.stretch = stretch
        self.offset = offset
        self.segment: Segment | None = None
        self.users = 0
        self.read: tuple[Event, ...] = ()
        self.recorded: tuple[Event, ...] | None = ()
        self.taken_s, self.taken_bytes = 0.0, 0  # for the trace
        self.array: Any = None
        self.layout: Layout = (None, ())
        self.rows = -1

    @property
    def after(self) -> tuple[Event, ...]:
        """Events after which the buffer may be overwritten.

        An event is recorded here if the release recorded none (see :meth:`Receiver.give_back`). It is later
        in the endpoint's stream than the work before the release, so it is done after that work. One event
        is therefore enough for all slots that one copy fills.
        """
        if self.recorded is None:
            space = self.receiver.space
            self.recorded = (space.record_event(space.stream),)
        return self.recorded

    def view(self, layout: Layout, rows: int) -> Any:
        """Return an array in its memory, that of the last segment if that is the same."""
        if self.rows != rows or self.layout != layout:
            dtype, row_shape = layout
            self.array = self.stretch.allocate().view(dtype, (rows, *row_shape), self.offset)
            self.rows = rows
        self.layout = layout  # the message's own
        return self.array

    @property
    def address(self) -> int:
        """Address of its memory."""
        return self.stretch.allocate().address + self.offset

    def hold(self) -> None:
        """Add a user, while another one stays."""
        with self.receiver._users_lock:
            self.users += 1

    def release(self, events: tuple[Event, ...]) -> None:
        """Remove a user, which has read the segment when the events are done; the last frees the buffer."""
        if self.users > 1:  # else no user can be added any more
            with self.receiver._users_lock:
                self.read = events = (*self.read, *events)
                self.users -= 1
                if self.users:
                    return
        elif self.read:
            events = (*self.read, *events)
        segment = self.segment
        if segment is None:  # the context has been closed
            return
        recorded = self.recorded
        if segment.message is not None:
            segment.message.release(events)
        elif segment.has_arrived:
            recorded = events or None
        else:
            recorded = (*segment.events, *events)
        self.free(segment, recorded)

    def free(self, segment: Segment, recorded: tuple[Event, ...] | None) -> None:
        """Free the buffer of a segment, which has no user any more, and let it be filled again.

        :param recorded: see :attr:`recorded`
        """
        receiver = self.receiver
        trace = receiver._cancel_scope.trace
        if trace is not None:
            name, times = f"rows from {segment.offset:,}", (self.taken_s, perf_counter())
            trace.add(receiver.where, receiver.name, name, *times, bytes=self.taken_bytes)
        self.segment, self.read, self.recorded = None, (), recorded
        receiver._free.append(self)
        # A thread that claims may have taken the only offer out of the queue for a moment, after it counted
        # the free buffers. `_matching` is read before the queue: a thread that acquires it later counts
        # this buffer.
        is_claiming = receiver._matching.locked()
        if (is_claiming or receiver._offers or receiver._ended) and not receiver.may_wait():
            receiver.match()

    def wait(self) -> None:
        """Wait for its users; the dataflow has ended."""
        with ExitStack() as stack:  # waits for all, even if some raise
            for event in (*self.read, *self.after):
                stack.callback(event.wait)

    def close(self) -> None:
        """Free its memory."""
        self.array = self.segment = None
        self.layout, self.rows = (None, ()), -1
        self.stretch.close()


class Receiver:
    """Receiving end of one link.

    :param name: name of the link in messages
    :param where: name of the endpoint in the trace
    :param space: memory of the endpoint
    :param packet_bytes: size of a buffer
    :param buffers: number of buffers
    :param copies: if True, segments are copied even where the sender's memory could be read
    :param copy_bytes: segments are copied several at a time up to this size
    :param few_ahead: number of segments that other receivers could claim, too, which this one may take
        ahead of requests even if they are all of a message
    :param keep: keeps an array alive until an event is done
    :param on_first_request: called with the receiver at the first request
    :ivar has_begun: True if a segment has ever been requested
    :ivar neighbours: largest number of segments of one copy; if more than 1, all slots lie in one stretch
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
        copy_bytes: int,
        few_ahead: int,
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
        self._few_ahead = few_ahead
        self._cancel_scope = cancel_scope
        self._keep = keep
        self._on_first_request = on_first_request
        self._lock = threading.RLock()
        # For the users of all slots. Not `_lock`, which is held while a copy is started.
        self._users_lock = threading.RLock()
        self._matching = threading.Lock()
        self._again = False
        self.neighbours = 1
        if packet_bytes % _ALIGNMENT_BYTES == 0:
            self.neighbours = max(1, min(buffers // 3, copy_bytes // packet_bytes))
        self._free: deque[Slot] = deque()
        # On the host the buffer used last is in the cache, and others may never be needed. On a GPU that
        # buffer is likely to be read still. Neighbours are released, and filled again, one after the other.
        takes_last = space.stream is None and self.neighbours == 1
        self._take_slot = self._free.pop if takes_last else self._free.popleft
        self._slots = self._make_slots()
        # Made here if segments are copied for certain: later a sender and a receiver would wait for it.
        self._lane: Lane | None = space.lane() if self.neighbours > 1 else None
        self.has_begun = False
        self._offers: list[tuple[float, int, Offer]] = []
        self._arrivals = count()
        # Admitted requests, and requests that are not admitted yet. Weak references: a dropped future, as
        # after a time-out, takes no segment.
        self._requests: deque[ReferenceType[PendingSegment]] = deque()
        self._waiting: deque[ReferenceType[PendingSegment]] = deque()
        self._arrived: deque[Segment] = deque()
        self._most_offers = _FEW_OFFERS
        self._is_contested = False
        self._ended = False
        self._abandoned = False
        self.backlog: Callable[[], str] = str
        """Set by the router: returns what the router waits for, as the end of an error message."""

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
        self._offers = [entry for entry in self._offers if entry[2].segments_left]
        heapify(self._offers)
        self._most_offers = max(_FEW_OFFERS, 2 * len(self._offers))

    def load(self) -> tuple[int, int]:
        """Return the number of buffers in use (all, before the first request), and of segments."""
        return self.buffers - len(self._free), self.segments

    @property
    def has_offers(self) -> bool:
        """True if an unclaimed offer is queued."""
        return any(entry[2].segments_left for entry in list(self._offers))

    def hint(self) -> str:
        """Return why no segment may come, as the end of a message."""
        if self.has_begun and not self._free and self.has_offers:
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
            if not self.has_begun:
                if self.neighbours > 1:  # else segments may be read in place
                    self._slots[0].stretch.allocate()
                self.has_begun = True
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

    def _make_slots(self) -> list[Slot]:
        """Return all buffers, without their memory: in one stretch, or in one each."""
        packet = self.packet_bytes
        if self.neighbours > 1:
            stretch = Stretch(self.space, self.buffers * packet)
            return [Slot(self, stretch, number * packet) for number in range(self.buffers)]
        return [Slot(self, Stretch(self.space, packet), 0) for _ in range(self.buffers)]

    def events_before_admission(self) -> Sequence[Event]:
        """Return the events to wait for before waiting requests are admitted."""
        if not (self._is_contested and self._waiting) or self._arrived:
            return ()
        # With the lock: if another thread took the buffer meanwhile, and released it, the event that is
        # recorded here would not stand for that release.
        with self._lock:
            return self._free[0].after if self._free else ()  # all may be held

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
            waiting = [(offer, offer.segments_left) for _, _, offer in self._offers]
        stuck = sum(
            left for offer, left in waiting if all(end._abandoned for end in offer.receivers)
        )
        if unread or stuck:
            self._cancel_scope.end(
                DeadWorkerError(
                    f"no worker is left at the end of {self.name}, with {unread + stuck} segment(s) "
                    "on their way to it: a worker there must receive until the link ends"
                )
            )

    def may_wait(self) -> bool:
        """Return True if freed buffers need not be filled yet: one copy will fill several.

        Invariant: this delays no wait. A thread that waits for a segment has found none that has arrived,
        and fills the free buffers itself (:meth:`request`). A sender waits for the end of its message,
        which is claimed as soon as it fits into the free buffers (:meth:`Offer.may_wait`).
        """
        free = len(self._free)
        if free >= self.neighbours or not self._arrived:
            return False
        try:
            return self._offers[0][2].may_wait(free)
        except IndexError:  # another thread has claimed it
            return False

    def match(self, offers: Sequence[Offer] = ()) -> None:
        """Queue offers, and claim queued offers while buffers are free.

        Called after every change that may make that possible: an offer, a freed buffer, the end of the
        link.

        Invariant: one thread at a time claims, so that segments arrive in order. A thread that finds
        another one claiming, or itself (the garbage collector may free a buffer at any point), only leaves
        ``_again`` set. The claiming thread looks at that once more after it has released ``_matching``.
        """
        taken: list[Offer] = []
        passed_on: list[Message] = []
        try:
            if offers:
                with self._lock:
                    self._queue(offers)
            self._again = True
            while self._again and self._matching.acquire(blocking=False):
                try:
                    self._again = False
                    left: int | None = len(self._free)  # others wait until one copy fills several
                    while left:
                        left = self._claim_next(left, taken, passed_on)
                    if self._ended:
                        with self._lock:
                            self._check_end()
                finally:
                    self._matching.release()
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
                offer.message.claimed(offer.units)
            # After any claim: several receivers may share an offer, and the last to claim need not be the
            # last to copy.
            for message in passed_on:
                message.release_origin()

    def _claim_next(self, free: int, taken: list[Offer], passed_on: list[Message]) -> int | None:
        """Claim segments of the first offer, and begin to copy them.

        Returns how many of the free buffers are left, None if nothing can be claimed.

        :param taken: gets the offer if its last segment was claimed
        :param passed_on: gets its message if that sends on another's memory
        """
        with self._lock:
            if not self._offers:
                return None
            most = min(free, self._room(self._offers[0][2]))
            if not most:
                return None
            if self.neighbours > 1:  # a copy at a time, so that the first begins early
                most = min(most, self.neighbours)
            entry = heappop(self._offers)
            offer = entry[2]
            segments = offer.claim(most)
            if offer.segments_left:
                heappush(self._offers, entry)
            if not segments:
                return free
            if segments[-1].offset == offer.last_offset:
                taken.append(offer)
            if offer.message.passed_on is not None:
                passed_on.append(offer.message)
            for segment in segments:
                segment.receiver, segment.slot = self, self._take_slot()
            self._begin(offer.message, segments)
            return free - len(segments)

    def _room(self, offer: Offer) -> int:
        """Return how many segments of an offer the receiver may claim; not 0 for a stale one.

        Of segments that other receivers could claim, too, a few are taken ahead of requests, in about three
        copies: no more than a quarter of the receiver's equal share of the message. And these only into
        buffers whose former users are done: a buffer that a GPU still reads does not show that this GPU is
        the next to be free.
        """
        if self._abandoned or self._cancel_scope.cause is not None:
            return 0
        free = len(self._free)
        if len(offer.receivers) == 1:
            return free
        left = offer.segments_left
        if not left:
            return 1
        least, message = min(1, len(self._requests)), offer.message
        ahead = max(self._few_ahead, message.segments // (_AHEAD * len(offer.receivers)))
        most = min(free, ahead - (self.buffers - free))
        if most < min(self.neighbours, message.at_once, ahead // 3, left):
            return least
        return max(least, self._done_slots(min(left, most)))

    def _done_slots(self, most: int) -> int:
        """Return how many of the next free buffers have no users that are not done; with the lock."""
        recorded: tuple[Event, ...] = ()
        for number in range(most):  # meanwhile others may be freed, but none is taken
            slot = self._free[number]
            if slot.recorded is None:
                slot.recorded = recorded = recorded or slot.after
            if not all(event.done() for event in slot.recorded):
                return number
        return most

    def _begin(self, message: Message, segments: list[Segment]) -> None:
        """Deliver consecutive segments of a message: in place, or as soon as their copy has begun."""
        array = message.array
        row_bytes = array.nbytes // max(1, len(array))
        if not self._copies and self.space.reads(array):
            for segment in segments:
                part = message.part(segment.offset, segment.offset + segment.rows)
                segment.array = _read_only(part)
                segment.message = message
                segment.events = message.after
            self._take(segments, row_bytes)
            return
        if self._lane is None:
            self._lane = self.space.lane()
        for copied in self._runs(message, segments, row_bytes):
            part = message.part(copied[0].offset, copied[-1].offset + copied[-1].rows)
            self._copy(self._lane, message, copied, part)
            self.copied_bytes += self._take(copied, row_bytes)

    def _take(self, segments: list[Segment], row_bytes: int) -> int:
        """Hand over consecutive segments; return the number of their bytes."""
        trace = self._cancel_scope.trace
        for segment in segments:
            slot = segment.slot
            slot.segment, slot.users = segment, 1
            if trace is not None:
                slot.taken_s, slot.taken_bytes = perf_counter(), segment.rows * row_bytes
        nbytes = row_bytes * (segments[-1].offset + segments[-1].rows - segments[0].offset)
        self.segments += len(segments)
        self.bytes += nbytes
        self._arrived.extend(segments)
        self._deliver()
        return nbytes

    def _runs(
        self, message: Message, segments: list[Segment], row_bytes: int
    ) -> Iterator[list[Segment]]:
        """Yield consecutive segments, as many at a time as one copy brings to neighbouring buffers."""
        most = 1
        if segments[0].rows * row_bytes == self.packet_bytes:
            most = min(self.neighbours, message.at_once)  # all but the last fill their buffers
        packet, at = self.packet_bytes, 0
        while at < len(segments):
            end, last = at + 1, min(len(segments), at + most)
            behind = segments[at].slot.offset + packet
            while end < last and segments[end].slot.offset == behind:
                behind += packet
                end += 1
            yield segments[at:end]
            at = end

    def _copy(self, lane: Lane, message: Message, copied: list[Segment], array: Any) -> None:
        """Start one copy of segments into their buffers, which are neighbours."""
        first: Slot = copied[0].slot
        if len(copied) == 1:
            events = first.after
            after = message.after + events
        else:
            events = self._after_releases(copied)
            after = latest((*message.after, *events))
        if array.nbytes:
            event = lane.copy(array, first.address, after)
            self._keep(event, array)
            events = (event,)
        layout = message.layout
        for segment in copied:
            segment.layout, segment.events = layout, events
            slot = segment.slot
            if slot.layout is layout and slot.rows == segment.rows:  # else the array is made later
                segment._array = slot.array
        message.finished(events, len(copied))

    def _after_releases(self, copied: list[Segment]) -> tuple[Event, ...]:
        """Return the events after which the buffers of some segments may be overwritten."""
        events: list[Event] = []
        recorded: tuple[Event, ...] = ()
        for segment in copied:
            after = segment.slot.recorded
            if after is None:
                recorded = recorded or (self.space.record_event(self.space.stream),)
            elif after:
                events += after
        return (*events, *recorded)

    def give_back(self, segment: Segment, stream: Any) -> None:
        """Release the buffer of a segment after the work that a stream holds now."""
        with self._users_lock:  # two threads may release it
            slot, segment.slot = segment.slot, None
        if slot is None:
            return
        # Without an event if one may be recorded later; see Slot.after.
        if (
            self.neighbours > 1
            and stream is None
            and segment.has_arrived
            and slot.users == 1
            and not slot.read
            and segment.message is None
            and self.space.is_current()
        ):
            slot.free(segment, None)
        else:
            slot.release((self.space.record_event(stream),))

    def share(self, segment: Segment) -> Slot | Message | None:
        """Add a user to a segment's buffer, or to the message that it is read in place of; return that.

        None if the segment has been released.
        """
        with self._users_lock:
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
            part = None if segment is None else segment.made_array
            if segment is not None and part is not None and self.space.overlaps(part, array):
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
        while self._offers and not self._offers[0][2].segments_left:
            heappop(self._offers)
        if not self._offers and not self._arrived:
            while self._requests:
                pending = self._requests.popleft()()
                if pending is not None:
                    pending.fail(EndOfLink(f"nothing more comes over {self.name}"))

    def wait_all(self) -> None:
        """Wait for all users of the buffers; the dataflow has ended, so no copy begins later."""
        with self._lock:
            slots = list(self._slots)
        with ExitStack() as stack:  # waits for all, even if some raise
            for slot in slots:
                stack.callback(slot.wait)

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
