"""Segment links: one-way connections that carry arrays, cut into packets, driven by the host (Groute, 4.2).

A link ends at an endpoint, which receives (:mod:`godwit.dataflow.receiver`), or at a router, which finds
out who does. Whoever sends, receives or gives a buffer back moves things on: there is no thread in between.
The sender's array stays where it is until a receiver has a free buffer, so nothing piles up on the way:
what is sent is *offered*, a few segments ahead of those that have been taken, and some more at a time when
these grow fewer.

Order: segments of one link arrive in the order in which they were sent, by each receiver that they go to;
those of messages with a higher priority overtake.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import isnan
from typing import TYPE_CHECKING, Any

from godwit.dataflow.context import Endpoint
from godwit.dataflow.future import Future
from godwit.dataflow.receiver import Offer, PendingSegment, Receiver, Segment, Slot
from godwit.dtypes import as_count, as_flag, as_float
from godwit.errors import ClosedLinkError, DeviceError, EndOfLink, InputError, TopologyError, shown
from godwit.runtime.memory import Event

if TYPE_CHECKING:
    from godwit.dataflow.router import Router

DEFAULT_PACKET_BYTES = 16 << 20
"""Default packet size of links. Copy engines reached 361 of 382 GB/s with it between H200s over NVLink (315
with 4 MiB), and 54.5 of 55 to and from the host."""
DEFAULT_BUFFERS = 3
"""Default receive buffers: one is read, one is filled, one waits until its result has been sent."""
_MOST_BYTES = 1 << 40
_MOST_BUFFERS = 1 << 10
_FEWEST_AHEAD = 4


@dataclass(frozen=True)
class LinkStatistics:
    """What has gone over a link so far.

    :param sent_messages: that its source sent
    :param segments: that its target took
    :param bytes: of these
    :param copied_bytes: of these: not those that could be read where they were
    """

    sent_messages: int
    segments: int
    bytes: int
    copied_bytes: int


class Link:
    """A one-way connection between two endpoints of a context.

    >>> import numpy as np, godwit as gw
    >>> with gw.Context(["cpu:0"]) as context:
    ...     link = gw.Link(context.host, context.endpoints[0], packet_bytes=16)
    ...     with link:
    ...         future = link.send(np.arange(5))
    ...     [segment.array.tolist() for segment in link]
    [[0, 1], [2, 3], [4]]

    :param source: who sends
    :param target: who receives; to and from a router, links are the router's own
    :param packet_bytes: size of a receive buffer, so of a segment at most; None for what suits the pair
    :param buffers: receive buffers: with 2 the next segment arrives while one is worked on, with 3 one can
        be on its way back besides; None for what suits the pair
    :param copies: whether segments are copied also where the receiver could read the sender's memory
    :ivar name: for people: from where to where
    :ivar receiver: its end; None where a router is there
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
        context.add(self)

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
            count_ = DEFAULT_BUFFERS if buffers is None else buffers
            count_ = as_count(count_, "buffers", 1, _MOST_BUFFERS)
            limit = context.limit_bytes(target)
            if limit is not None and packet > limit:
                raise TopologyError(
                    f"packets of {packet:,} bytes do not fit in the pool of {limit:,} bytes of {target}"
                )
            self.receiver = Receiver(
                self.name,
                str(target),
                target.space,
                packet,
                count_,
                copies=copies,
                cancel_scope=context.cancel_scope,
                keep=context.keep,
                begun=target.inbound.append,
            )
        receivers = self._receivers()
        self._packet_bytes = min(receiver.packet_bytes for receiver in receivers)
        self._most_ahead = max(_FEWEST_AHEAD, 2 * sum(receiver.buffers for receiver in receivers))
        # Where there is a choice, a router's policy is asked late, and may send a segment to many.
        is_one = len(receivers) == 1
        self._few_ahead = self._most_ahead // 2 if is_one else self._most_ahead - 1
        self._cut_at_once = self._most_ahead if is_one else 1
        # The collector of garbage may release a segment while it is held.
        self._lock = threading.RLock()
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
        """A link to or from a router, which has checked the ends."""
        link = cls.__new__(cls)
        link._set_up(source, target, packet_bytes, buffers, copies)
        return link

    @property
    def packet_bytes(self) -> int:
        """Of a segment, at most."""
        return self._packet_bytes

    @property
    def buffers(self) -> int:
        """Receive buffers at its end; 0 where a router is there."""
        return 0 if self.receiver is None else self.receiver.buffers

    @property
    def closed(self) -> bool:
        """Whether it has been shut down."""
        return self._closed

    @property
    def statistics(self) -> LinkStatistics:
        """What has gone over it so far."""
        end = self.receiver
        if end is None:
            return LinkStatistics(self._sent, 0, 0, 0)
        return LinkStatistics(self._sent, end.segments, end.bytes, end.copied_bytes)

    # What the sender does.

    def send(
        self, array: Any, *, metadata: Any = None, priority: float = 0, stream: Any = None
    ) -> Future[None]:
        """Send an array; returns when as much of it is offered as there may be at once.

        :param array: (rows, ...) of NumPy or CuPy, or what DLPack or ``__cuda_array_interface__`` makes one
            of; cut along its first axis, copied first only if it has gaps. Or a segment that the source
            has received, or part of its array: its buffer is given back when that has been read
        :param metadata: comes along with every segment
        :param priority: higher ones overtake what has not found a receiver yet
        :param stream: what has been put into it so far is done before the array is read; by default the
            endpoint's own
        :returns: done when the array may be written to again
        :raises ClosedLinkError: the link has been shut down
        :raises InputError: no array of numbers, one row is larger than a packet, or a segment was released
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
            message.let_go(())
            self._refuse_to_send()
        return future

    def _shared(self, segment: Segment | None, array: Any) -> Slot | Message | None:
        """What a segment has that is sent on, by itself or by part of its array."""
        if segment is None:
            for receiver in self.source.inbound:
                origin = receiver.shared_part(array)
                if origin is not None:
                    return origin
            return None
        if segment.receiver is None:  # nobody has received it yet, as where a policy is asked
            return None
        origin = segment.receiver.share(segment)
        if origin is None:
            raise InputError(f"{segment} has been given back: send it before its release")
        return origin

    def _refuse_to_send(self) -> None:
        if self._is_routers:
            raise TopologyError(f"{self.source} sends by itself what is sent to it")
        self.context.check_open()
        self._cancel_scope.check()
        raise ClosedLinkError(f"{self.name} has been shut down; nothing more can be sent")

    def shutdown(self) -> None:
        """Say that nothing more will be sent; what has been, arrives. Twice does no harm."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            heappush(self._outbox, (float("inf"), next(self._numbers), None))
        self._pump()

    def _claimed(self) -> None:
        with self._lock:
            self._unclaimed -= 1
            if self._unclaimed > self._few_ahead or not self._outbox:
                return  # who puts something there pumps after that
        self._pump()

    def _pump(self, message: Message | None = None) -> bool:
        """Offer segments, as long as few are waiting; of a message, too, that is put behind the others.

        False if it cannot be, as the link is shut down.

        Invariant: one thread at a time offers, so that segments stay in order. It stops being the one under
        the lock under which it has seen that there is nothing to do; whoever changes that does so under
        this lock, too, and looks afterwards whether somebody is there.
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
            self._cancel_scope.end(error)  # from now on nobody pumps
            self._is_pumping = False
            raise
        return True

    def _cut(self) -> tuple[list[tuple[Segment, Message]], bool]:
        """What may be offered now, and whether the link ends behind it; with the lock.

        The collector of garbage may claim in between; it does not where it is seen that there is nothing.
        """
        self._is_pumping = True
        cut: list[tuple[Segment, Message]] = []
        is_end = False
        outbox = self._outbox
        while outbox and self._unclaimed < self._most_ahead and len(cut) < self._cut_at_once:
            message = outbox[0][2]
            if message is None:
                heappop(outbox)
                is_end = True
                break
            cut.append((message.cut(), message))
            if message.is_cut:
                heappop(outbox)
            self._unclaimed += 1
        if not (cut or is_end):
            self._is_pumping = False
        return cut, is_end

    def _offer(self, cut: list[tuple[Segment, Message]]) -> None:
        receiver = self.receiver
        if receiver is None:
            for one in cut:
                self._route(*one)
        elif cut:
            only = (receiver,)
            receiver.post([Offer(*one, -one[1].priority, only, True) for one in cut])

    def _route(self, segment: Segment, message: Message) -> None:
        """Offer a segment to all that the router names."""
        assert self._router is not None
        groups, own = self._router.route(segment, self.source)
        further = len(groups) - 1
        if further:
            message.started(further)
            with self._lock:
                self._unclaimed += further
        own = message.priority if own is None else _as_priority(own, "the priority of a segment")
        for group in groups:
            offer = Offer(segment, message, -own, tuple(group), not further)
            for receiver in group:
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
        """Whether it offers no more until some of what it has offered is taken."""
        return bool(self._outbox) and self._unclaimed > self._few_ahead

    # What the receiver does.

    def receive(self) -> PendingSegment:
        """Ask for the next segment, which is there when it has arrived; EndOfLink after the last.

        From the first call on as many segments are on their way as there are buffers: whoever begins to
        receive goes on until the end of the link. What comes for a future that is dropped unseen, as after
        a time-out, goes to the next who asks.

        :raises TopologyError: a router is at its end, or at its beginning one that nothing leads to
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
        """Who begins to receive from a router that nobody sends to would wait for ever."""
        router: Router = self.source  # type: ignore[assignment]
        router.check_reachable()
        router.end_outputs()

    def __iter__(self) -> Iterator[Segment]:
        """Segments as they arrive, until the end of the link.

        Each is given back when the next one is asked for, if it has not been and is not held
        (:meth:`Segment.hold`).
        On a GPU they are handed out while they are on their way: the endpoint's stream waits for them.
        """
        stream, receiver = self.target.space.stream, self.receiver
        while True:
            # What is under way already needs no future.
            segment = None if receiver is None else receiver.next_arrived()
            if segment is not None:
                for event in segment.events:
                    event.wait() if stream is None else event.wait_on(stream)
            else:
                pending = self.receive()
                try:
                    segment = pending.wait() if stream is None else pending.wait_on(stream)
                except EndOfLink:
                    return
                del pending
            segment.has_arrived = True  # for the endpoint's stream, on which it is released
            try:
                yield segment
            finally:
                if not segment.is_held:
                    try:
                        segment.release()
                    except DeviceError:
                        if self._cancel_scope.cause is None:
                            raise  # else everybody has been told of what ended the dataflow
            del segment  # what has been given back is not to be kept by a loop that waits

    # What the context does.

    def close(self) -> None:
        """Give all back; nothing is under way."""
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
    """The context of all of these.

    :raises TopologyError: something is no endpoint, or of another context
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
    """Rows that one send brought.

    :param array: C-contiguous, with at least one dimension
    :param rows: of a segment, at most
    :param after: what has to be reached before the rows may be read
    :param future: resolved when every segment has been taken out of the array
    :param claimed: called whenever a segment has found its receiver
    :ivar is_cut: whether all of its segments have been made
    :ivar passed_on: the buffer, or the message, that its array is part of, and that waits for it to be read
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
        claimed: Callable[[], None],
    ) -> None:
        self.after = after
        self.claimed = claimed
        self.passed_on: Slot | Message | None = None
        self.priority = priority
        self.is_cut = False
        self._array = array
        self._rows = rows
        self._metadata = metadata
        self._source = source
        self._future = future
        self._next = 0
        self._lock = threading.RLock()  # as the link's
        self._under_way = 1  # the last segment, which is to come
        self._events: tuple[Event, ...] = ()

    def cut(self) -> Segment:
        """The next segment; an array without rows is one segment.

        Behind the last the array is the segments' alone: stale offers, which know the message, may stay.
        """
        begin, array = self._next, self._array
        total = len(array)
        if begin == 0 and total <= self._rows:
            self.is_cut, self._array = True, None
            return Segment(array, 0, total, self._metadata, self._source)
        end = min(begin + self._rows, total)
        self._next = end
        if end == total:
            self.is_cut, self._array = True, None
        else:
            self.started(1)
        return Segment(array[begin:end], begin, total, self._metadata, self._source)

    def started(self, segments: int) -> None:
        """So many more are to finish before it has arrived."""
        with self._lock:
            self._under_way += segments

    def hold(self) -> None:
        """One more reads a segment of it in place, while another one is sure to do."""
        self.started(1)

    def finished(self, events: tuple[Event, ...]) -> None:
        """One of them has it, or will have read it when events are reached."""
        with self._lock:
            self._under_way -= 1
            left = self._under_way
            if self._events or left:
                events = tuple(event for event in (*self._events, *events) if not event.done())
            self._events = events
        if left == 0:
            self._future.resolve(None, events)

    def settle(self) -> None:
        """Let go of what it passes on, if all of it has been taken; with no receiver's lock."""
        with self._lock:
            if self._under_way:
                return
            origin, self.passed_on = self.passed_on, None
        if origin is not None:
            origin.let_go(self._events)

    def let_go(self, events: tuple[Event, ...]) -> None:
        """Who read one of its segments in place has done so when events are reached; likewise."""
        self.finished(events)
        if self.passed_on is not None:
            self.settle()


def rows_of_packet(array: Any, packet_bytes: int, link: str) -> int:
    """How many rows of an array fit into a packet.

    :raises InputError: not one
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
