"""Segment links: one-way connections for arrays, cut into packets, driven by the host (Groute, 4.2).

A link ends at an endpoint, which has a receiver (:mod:`godwit.dataflow.receiver`), or at a router, which
determines the receivers. The threads that send, receive or release make all progress: links have no thread.
The sender's array stays in place until a receiver has a free buffer, so no segment is stored on the way. A
link to an endpoint *offers* whole messages. A link to a router offers consecutive segments together: as
many as the one receiver has buffers, or, with several, what one copy brings to one of them, which is a
single segment if buffers are few or the message is short. Both offer a few ahead of those that have been
claimed, and some more when these become few.

Order: segments of one link arrive at each of their receivers in the order in which they were sent; those of
messages with a higher priority overtake.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import isnan
from typing import TYPE_CHECKING, Any

from godwit.dataflow.endpoint import Endpoint
from godwit.dataflow.future import Future
from godwit.dataflow.receiver import (
    Layout,
    Offer,
    PendingSegment,
    Receiver,
    Segment,
    Slot,
)
from godwit.dtypes import as_count, as_flag, as_float
from godwit.errors import ClosedLinkError, DeviceError, EndOfLink, InputError, TopologyError, shown
from godwit.runtime.memory import Event, latest

if TYPE_CHECKING:
    from godwit.dataflow.router import Router

DEFAULT_PACKET_BYTES = 16 << 20
"""Default packet size of links. Copy engines reached 361 of 382 GB/s with it between H200s over NVLink (315
with 4 MiB), and 54.5 of 55 to and from the host."""
DEFAULT_BUFFERS = 3
"""Default receive buffers: one is read, one is filled, one waits until its result has been sent. Links that
copy several packets at a time have more, for three such copies: the third goes on until the receiver has
been woken by the first."""
_MOST_DEFAULT_BUFFERS = 96
_LEAST_COPIED_TOGETHER = 64 << 10
"""Smaller packets mostly bring messages of one packet, and have few buffers: with many, the threads that
send and receive got into each other's way, and a message took twice as long."""
_MOST_BYTES = 1 << 40
_MOST_BUFFERS = 1 << 10
_FEWEST_AHEAD = 4
_FEWEST_COPIES = 4
_FEW_EVENTS = 16


@dataclass(frozen=True)
class LinkStatistics:
    """Totals of a link since its creation.

    :param sent_messages: messages that its source has sent
    :param segments: segments that its target has taken
    :param bytes: bytes of these
    :param copied_bytes: bytes of those that were copied; others were read in place
    """

    sent_messages: int
    segments: int
    bytes: int
    copied_bytes: int


class Link:
    """One-way connection between two endpoints of a context.

    >>> import numpy as np, godwit as gw
    >>> with gw.Context(["cpu:0"]) as context:
    ...     link = gw.Link(context.host, context.endpoints[0], packet_bytes=16)
    ...     with link:
    ...         future = link.send(np.arange(5))
    ...     [segment.array.tolist() for segment in link]
    [[0, 1], [2, 3], [4]]

    :param source: the sender
    :param target: the receiver; routers create their own links
    :param packet_bytes: size of a receive buffer, so the largest segment; None for 16 MiB
    :param buffers: number of receive buffers: with 2 a segment arrives while another is processed, with 3
        another is sent on meanwhile; None for 3, or up to 96 for packets of 64 KiB and more between GPUs
        and to and from them, several of which are copied at a time
    :param copies: if True, segments are copied even where the receiver could read the sender's memory
    :ivar name: source and target, for messages
    :ivar receiver: its end; None if the target is a router
    :raises TopologyError: source and target are the same, of different contexts, or linked already
    :raises InputError: a number out of range
    """

    def __init__(
        self,
        source: Endpoint,
        target: Endpoint,
        packet_bytes: int | None = None,
        buffers: int | None = None,
        *,
        copies: bool = False,
    ) -> None:
        context = common_context(source, target)
        for end in (source, target):
            if end.kind == "router":
                raise TopologyError(
                    f"{end} makes its own links: name the endpoints when you make the router, and ask it "
                    "for router.input(endpoint) or router.output(endpoint)"
                )
        if source is target:
            raise TopologyError(f"a link must connect two endpoints, got {source} twice")
        for link in context.links:
            if link.source is source and link.target is target:
                raise TopologyError(f"{link.name} is there already; a router makes further links")
        self._set_up(source, target, packet_bytes, buffers, as_flag(copies, "copies"))
        context.add_link(self)

    def _set_up(
        self,
        source: Endpoint,
        target: Endpoint,
        packet_bytes: int | None,
        buffers: int | None,
        copies: bool,
    ) -> None:
        self.source = source
        self.target = target
        self.context = context = source.context
        self._cancel_scope = context.cancel_scope
        self._is_routers = source.kind == "router"
        self.name = f"{source} -> {target}"
        self._end_of_message = f"the end of a message over {self.name}"
        self._a_segment = f"a segment over {self.name}"
        self.receiver: Receiver | None = None
        self._router: Router | None = None
        if target.kind == "router":
            self._router = target  # type: ignore[assignment]
        else:
            packet = DEFAULT_PACKET_BYTES if packet_bytes is None else packet_bytes
            packet = as_count(packet, "packet_bytes", 1, _MOST_BYTES)
            limit = context.limit_bytes(target)
            copy_bytes = source.copy_bytes_to(target) if limit is None else 0
            few_ahead = _MOST_BUFFERS if buffers is not None else DEFAULT_BUFFERS
            if buffers is None:
                buffers = DEFAULT_BUFFERS
                if packet >= _LEAST_COPIED_TOGETHER:
                    buffers = max(buffers, min(3 * copy_bytes // packet, _MOST_DEFAULT_BUFFERS))
            if limit is not None and packet > limit:
                raise TopologyError(
                    f"packets of {packet:,} bytes do not fit in the pool of {limit:,} bytes of {target}"
                )
            self.receiver = Receiver(
                self.name,
                str(target),
                target.space,
                packet,
                as_count(buffers, "buffers", 1, _MOST_BUFFERS),
                copies=copies,
                copy_bytes=copy_bytes,
                few_ahead=few_ahead,
                cancel_scope=context.cancel_scope,
                keep=context.keep,
                on_first_request=target.inbound.append,
            )
        receivers = self._receivers()
        self._packet_bytes = min(receiver.packet_bytes for receiver in receivers)
        self._most_ahead = max(_FEWEST_AHEAD, 2 * sum(receiver.buffers for receiver in receivers))
        # With several receivers policies are called late, for as many segments as one copy brings.
        self._receiver_count = len(receivers)
        self._has_one_receiver = len(receivers) == 1
        self._resume_ahead = self._most_ahead - 1
        self._cut_at_once = min(receiver.neighbours for receiver in receivers)
        if self._has_one_receiver:
            self._resume_ahead = self._most_ahead // 2
            self._cut_at_once = self._most_ahead
        # Reentrant, since the garbage collector may release a segment while it is held.
        self._lock = threading.RLock()
        self._fixed_route: list[list[Receiver]] | None = None
        self._outbox: list[tuple[float, int, Message | None]] = []
        self._numbers = count()
        self._unclaimed = 0
        self._is_pumping = False
        self._closed = False
        self._sent = 0

    @classmethod
    def of_router(
        cls,
        source: Endpoint,
        target: Endpoint,
        packet_bytes: int | None,
        buffers: int | None,
        copies: bool,
    ) -> Link:
        """Return a link to or from a router; the caller has checked both endpoints."""
        link = cls.__new__(cls)
        link._set_up(source, target, packet_bytes, buffers, copies)
        return link

    @property
    def packet_bytes(self) -> int:
        """Largest size of a segment in bytes."""
        return self._packet_bytes

    @property
    def buffers(self) -> int:
        """Number of receive buffers; 0 if the target is a router."""
        return 0 if self.receiver is None else self.receiver.buffers

    @property
    def closed(self) -> bool:
        """True if it was shut down."""
        return self._closed

    @property
    def statistics(self) -> LinkStatistics:
        """Totals since the link's creation."""
        end = self.receiver
        if end is None:
            return LinkStatistics(self._sent, 0, 0, 0)
        return LinkStatistics(self._sent, end.segments, end.bytes, end.copied_bytes)

    # Sending

    def send(
        self, array: Any, *, metadata: Any = None, priority: float = 0, stream: Any = None
    ) -> Future[None]:
        """Send an array; return when as many of its segments are offered as may be at once.

        :param array: (rows, ...) of NumPy or CuPy, or an object that supports DLPack or
            ``__cuda_array_interface__``; cut along its first axis, and copied first only if it is not
            contiguous. Or a segment that the source has received, or part of its array: its buffer is
            released when the copy has been read
        :param metadata: delivered with every segment
        :param priority: segments with higher ones overtake those that no receiver has claimed
        :param stream: the stream that writes the array; by default the endpoint's own
        :returns: done when the array may be overwritten
        :raises ClosedLinkError: the link was shut down
        :raises InputError: not an array of numbers, a row larger than a packet, or a released segment
        :raises DataflowEnded: a worker has failed, or the context is closed
        """
        if self._closed or self._is_routers or self._cancel_scope.cause is not None:
            self._refuse_to_send()
        segment = array if isinstance(array, Segment) else None
        if segment is None:
            taken, after = self.source.space.take(array, stream)
        else:
            taken, after = self.source.space.take(segment.array, stream)
            after = (*segment.events, *after)
        if priority != 0:
            priority = _as_priority(priority, "priority")
        future: Future[None] = Future(self._cancel_scope, self._end_of_message, self.source.name)
        message = Message(
            taken,
            rows_of_packet(taken, self._packet_bytes, self.name),
            metadata,
            priority,
            self.source,
            after,
            future,
            self._claimed,
        )
        if segment is not None or self.source.inbound:
            message.passed_on = self._shared(segment, taken)
        if not self._pump(message):
            message.release(())
            self._refuse_to_send()
        return future

    def _shared(self, segment: Segment | None, array: Any) -> Slot | Message | None:
        """Return the buffer or message whose memory an array to send on lies in, after adding a user."""
        if segment is None:
            for receiver in self.source.inbound:
                origin = receiver.shared_part(array)
                if origin is not None:
                    return origin
            return None
        if segment.receiver is None:  # it has not been received, as in calls of a policy
            return None
        origin = segment.receiver.share(segment)
        if origin is None:
            raise InputError(f"{segment} has been released: send it before its release")
        return origin

    def _refuse_to_send(self) -> None:
        if self._is_routers:
            raise TopologyError(f"{self.source} sends by itself: send to one of its inputs")
        self.context.check_open()
        self._cancel_scope.check()
        raise ClosedLinkError(f"{self.name} has been shut down; nothing more can be sent")

    def shutdown(self) -> None:
        """End the link after the messages sent so far. A second call has no effect."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            heappush(self._outbox, (float("inf"), next(self._numbers), None))
        self._pump()

    def _claimed(self, units: int) -> None:
        with self._lock:
            self._unclaimed -= units
            if self._unclaimed > self._resume_ahead or not self._outbox:
                return  # a thread that adds to the outbox pumps afterwards
        self._pump()

    def _pump(self, message: Message | None = None) -> bool:
        """Offer until enough is unclaimed, after adding a message to the outbox if one is given.

        Return False if the link is shut down, so that the message cannot be added.

        Invariant: one thread at a time offers, so that segments stay in order. It stops under the same lock
        under which it finds no work; a thread that adds work does so under this lock, too, and then pumps
        itself unless another thread does.
        """
        try:
            with self._lock:
                if message is not None:
                    if self._closed:
                        return False
                    self._sent += 1
                    heappush(self._outbox, (-message.priority, next(self._numbers), message))
                if self._is_pumping or self._cancel_scope.cause is not None:
                    return True
                cut, is_end = self._cut()
            while cut or is_end:
                self._offer(cut)
                if is_end:
                    self._end()
                with self._lock:
                    cut, is_end = self._cut()
        except BaseException as error:
            self._cancel_scope.end(error)  # no thread pumps from now on
            self._is_pumping = False
            raise
        return True

    def _cut(self) -> tuple[list[tuple[Message, range]], bool]:
        """Return what may be offered now, and whether the link ends then; with the lock.

        Of each message the numbers of consecutive segments.

        The garbage collector may call :meth:`_claimed` meanwhile; not while the outbox is found empty.
        """
        self._is_pumping = True
        cut: list[tuple[Message, range]] = []
        is_end = False
        outbox = self._outbox
        room = min(self._cut_at_once, self._most_ahead - self._unclaimed)
        while outbox and room > 0:
            message = outbox[0][2]
            if message is None:
                heappop(outbox)
                is_end = True
                break
            if self.receiver is not None:
                numbers = message.cut()
            else:
                # More are offered when these are claimed; messages of higher priority come between.
                most = min(room, self._most_ahead - self._resume_ahead)
                if not self._has_one_receiver:  # no receiver takes the share of others
                    share = max(1, message.segments // self._receiver_count)
                    most = min(room, message.at_once, share)
                numbers = message.cut(most)
            if not message.segments_left:
                heappop(outbox)
            cut.append((message, numbers))
            units = 1 if self.receiver is not None else len(numbers)
            room -= units
            self._unclaimed += units
        if not (cut or is_end):
            self._is_pumping = False
        return cut, is_end

    def _offer(self, cut: list[tuple[Message, range]]) -> None:
        receiver = self.receiver
        if receiver is None:
            for message, numbers in cut:
                self._route(message, numbers)
        elif cut:
            only = (receiver,)
            receiver.post(
                [Offer(message, numbers, -message.priority, only, 1) for message, numbers in cut]
            )

    def _route(self, message: Message, numbers: range) -> None:
        """Offer segments to all receivers that the router names; those that it treats alike at once."""
        assert self._router is not None
        route = self._route_of(message, numbers[0])
        if not self._router.asks_by_message:
            for number in numbers[1:]:
                following = self._route_of(message, number)
                if following != route:
                    self._offer_to(route, message, range(numbers[0], number))
                    numbers, route = range(number, numbers.stop), following
        self._offer_to(route, message, numbers)

    def _route_of(self, message: Message, number: int) -> tuple[list[list[Receiver]], float]:
        """Return groups of receivers, in each of which one gets the segment, and the segment's priority."""
        router = self._router
        assert router is not None
        groups, priority = self._fixed_route, None
        if groups is None:
            segment = message.segment(number)
            segment.array = message.part(segment.offset, segment.offset + segment.rows)
            groups, priority = router.route(segment, self.source)
            if router.asks_by_source:
                self._fixed_route = groups
        if priority is None:
            return groups, message.priority
        return groups, _as_priority(priority, "the priority of a segment")

    def _offer_to(
        self, route: tuple[list[list[Receiver]], float], message: Message, numbers: range
    ) -> None:
        groups, priority = route
        further = (len(groups) - 1) * len(numbers)
        if further:
            message.started(further)
            with self._lock:
                self._unclaimed += further
        for group in groups:
            offer = Offer(message, numbers, -priority, tuple(group), len(numbers))
            # Those with most room first: one that always has some would take all, and others idle.
            for receiver in sorted(group, key=Receiver.load) if len(group) > 1 else group:
                receiver.post([offer])

    def _end(self) -> None:
        if self.receiver is not None:
            self.receiver.end()
        else:
            assert self._router is not None
            self._router.input_ended(self.source)

    def _receivers(self) -> Sequence[Receiver]:
        if self.receiver is not None:
            return (self.receiver,)
        assert self._router is not None
        return self._router.receivers()

    @property
    def is_held_up(self) -> bool:
        """True if it offers no more before some of its offers are claimed."""
        return bool(self._outbox) and self._unclaimed > self._resume_ahead

    # Receiving

    def receive(self) -> PendingSegment:
        """Return the future of the next segment; EndOfLink after the last.

        From the first call on, segments arrive in all buffers, so a receiver must go on until the end of
        the link. The segment of a future that is dropped before its value was returned, as after a
        time-out, goes to the next request.

        :raises TopologyError: the target is a router, or the source is a router without inputs
        :raises DataflowEnded: a worker has failed, or the context is closed
        """
        if self.receiver is None:
            raise TopologyError(f"{self.target} receives by itself; ask router.output(endpoint)")
        if self._cancel_scope.cause is not None:
            self.context.check_open()
            self._cancel_scope.check()
        pending = PendingSegment(
            self._cancel_scope, self._a_segment, self.target.name, self.receiver
        )
        if self._is_routers and not self.receiver.has_begun:
            self._check_router()
        self.receiver.request(pending)
        return pending

    def _check_router(self) -> None:
        """Raise TopologyError if no segment can ever come from the source, a router."""
        router: Router = self.source  # type: ignore[assignment]
        router.check_reachable()
        router.end_outputs()

    def __iter__(self) -> Iterator[Segment]:
        """Yield segments as they arrive, until the end of the link.

        The next turn of the loop releases a segment, unless it was released or is held
        (:meth:`Segment.hold`). On a GPU a segment is yielded while its copy is under way: the endpoint's
        stream waits for it.
        """
        stream, receiver = self.target.space.stream, self.receiver
        awaited: tuple[Event, ...] = ()  # of one copy that brought several segments
        while True:
            # A segment that has been taken already needs no future.
            segment = None if receiver is None else receiver.next_arrived()
            if segment is not None:
                if segment.events is not awaited:
                    awaited = segment.events
                    for event in awaited:
                        event.wait() if stream is None else event.wait_on(stream)
            else:
                pending = self.receive()
                try:
                    segment = pending.wait() if stream is None else pending.wait_on(stream)
                except EndOfLink as end:
                    # From Python 3.12 on, its frames lead to the caller's, whose last segment they keep.
                    end.__traceback__ = None
                    return
                del pending
            segment.has_arrived = True  # for the endpoint's stream, on which it is released
            goes_on = False
            try:
                yield segment
                goes_on = True
            finally:
                if not segment.is_held:
                    try:
                        segment.release()
                    except DeviceError:
                        # Else all waits end with the cause already, or the loop was left, perhaps by the
                        # same failure: this one would reach no caller.
                        if goes_on and self._cancel_scope.cause is None:
                            raise
            del segment  # a loop that waits must not keep the memory of a released segment

    def close(self) -> None:
        """Free all buffers; no copy may be under way. The context calls it."""
        with self._lock:
            self._closed = True
            self._outbox.clear()
        if self.receiver is not None:
            self.receiver.close()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *raised: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"Link({self.name})"


def _as_priority(value: Any, name: str) -> float:
    number = as_float(value, name)
    if isnan(number):
        raise InputError(f"{name} must be a number, got {shown(value)}")
    return number


def common_context(*endpoints: Any) -> Any:
    """Return the context of some endpoints.

    :raises TopologyError: not an endpoint, or one of another context
    """

    first = None
    for endpoint in endpoints:
        if not isinstance(endpoint, Endpoint):
            raise TopologyError(
                f"links connect endpoints of a context (context.host, context.endpoints, a Router), got "
                f"{shown(endpoint)}"
            )
        first = first or endpoint
        if endpoint.context is not first.context:
            raise TopologyError(f"{first} and {endpoint} are endpoints of different contexts")
    assert first is not None
    first.context.check_open()
    return first.context


class Message:
    """Array that is being sent.

    :param array: C-contiguous, with at least one dimension
    :param rows: largest number of rows of a segment
    :param after: events after which the rows may be read
    :param future: resolved when every segment has been copied, or read in place
    :param claimed: called with its units whenever an offer of it is claimed
    :ivar array: the array; None when every segment has finished
    :ivar layout: its layout
    :ivar segments: number of its segments
    :ivar segments_left: number of segments that are not offered yet
    :ivar at_once: largest number of segments of one copy, so that there are several copies, and the
        receiver begins early
    :ivar passed_on: the buffer or the message whose memory its array is part of, and which it is a user of
    """

    def __init__(
        self,
        array: Any,
        rows: int,
        metadata: Any,
        priority: float,
        source: Endpoint,
        after: tuple[Event, ...],
        future: Future[None],
        claimed: Callable[[int], None],
    ) -> None:
        self.after = after
        self.claimed = claimed
        self.passed_on: Slot | Message | None = None
        self.priority = priority
        self._total = total = len(array)
        self.segments = segments = 1 if total <= rows else -(-total // rows)
        self.segments_left = self._under_way = segments
        self.at_once = -(-segments // _FEWEST_COPIES)
        self.array = array
        self.layout: Layout = (array.dtype, array.shape[1:])
        self.rows = rows
        self._metadata = metadata
        self._source = source
        self._future = future
        self._lock = threading.RLock()  # as the link's
        self._events: tuple[Event, ...] = ()
        self._most_events = _FEW_EVENTS

    def cut(self, most: int | None = None) -> range:
        """Return the numbers of the next segments, by default of all, which are offered from now on."""
        begin = self.segments - self.segments_left
        left = self.segments_left
        self.segments_left -= left if most is None else min(most, left)
        return range(begin, self.segments - self.segments_left)

    def segment(self, number: int) -> Segment:
        """Return a segment, whose array is not set yet; an array without rows is one segment."""
        rows, total = self.rows, self._total
        begin = number * rows
        left = total - begin
        return Segment(
            None, begin, total, self._metadata, self._source, rows if rows < left else left
        )

    def part(self, begin: int, end: int) -> Any:
        """Return some rows of the array, of which no segment has finished."""
        array = self.array
        return array if end - begin == self._total else array[begin:end]

    def started(self, segments: int) -> None:
        """Add segments that must finish before the future is resolved."""
        with self._lock:
            self._under_way += segments

    def hold(self) -> None:
        """Add a user of a segment that is read in place, while another one stays."""
        self.started(1)

    def finished(self, events: tuple[Event, ...], segments: int = 1) -> None:
        """Finish segments, whose memory has been read when the events are done.

        After the last one the message drops the array, since stale offers keep messages alive.
        """
        with self._lock:
            self._under_way -= segments
            left = self._under_way
            if self._events:
                events = latest((*self._events, *events))
                if len(events) > self._most_events:  # rarely, since queries cost more than copies
                    events = tuple(event for event in events if not event.done())
                    self._most_events = max(_FEW_EVENTS, 2 * len(events))
            self._events = events
            if left == 0:
                self.array = None
        if left == 0:
            self._future.resolve(None, events)

    def release_origin(self) -> None:
        """Remove it from the users of ``passed_on`` if it has finished; without a receiver's lock."""
        with self._lock:
            if self._under_way:
                return
            origin, self.passed_on = self.passed_on, None
        if origin is not None:
            origin.release(self._events)

    def release(self, events: tuple[Event, ...]) -> None:
        """Remove a user of a segment that is read in place; without a receiver's lock."""
        self.finished(events)
        if self.passed_on is not None:
            self.release_origin()


def rows_of_packet(array: Any, packet_bytes: int, link: str) -> int:
    """Return how many rows of an array fit into a packet.

    :raises InputError: not a single row
    """
    if array.nbytes <= packet_bytes:
        return len(array)
    row_bytes = array.dtype.itemsize
    for extent in array.shape[1:]:
        row_bytes *= extent
    if row_bytes > packet_bytes:
        raise InputError(
            f"one row of {row_bytes:,} bytes does not fit into the packets of {packet_bytes:,} bytes that "
            f"{link} takes: make it with a larger packet_bytes"
        )
    return int(packet_bytes // max(1, row_bytes))
