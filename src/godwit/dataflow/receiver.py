"""The end of a link at which segments arrive: a pipelined receiver (Groute, sections 4.1 and 4.2).

A sender's segment is *offered* to every receiver that may take it. A receiver with a free buffer takes the
first offer that nobody has taken: it claims it, which only one can, starts the copy straight from the
sender's memory into its buffer, and hands the segment out, with events that say when it has arrived. Offers
that others took are stale, and dropped when they are come upon. There is no lock of a whole router: each
receiver has its own, and an offer is claimed in one step.

Invariant: an offer is in the queue of each of its receivers, or claimed. A buffer is free, or belongs to
one segment that was taken and has users: who received it, until it is released, and messages that pass it
on, until they have been read. The copy into a buffer waits for the events of all of these, so a buffer may
be given back while kernels still read it. Where a segment is read in place, its message has these users.
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

from godwit.dataflow.future import CancelScope, Future
from godwit.errors import DeadWorkerError, EndOfLink
from godwit.runtime.memory import Block, Event, Lane, Space

if TYPE_CHECKING:
    from godwit.dataflow.context import Endpoint
    from godwit.dataflow.link import Message

_FEW_OFFERS = 64


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


class Offer:
    """A segment of a message that one of several receivers is to take.

    :param is_only: no other offer has the same segment
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
        """Whether somebody has taken it."""
        return not self._token

    def claim(self) -> bool:
        """Take it, if nobody has: popping the one token is one step of the interpreter."""
        try:
            self._token.pop()
        except IndexError:
            return False
        return True


class Slot:
    """A receive buffer: memory where a copy is needed, else only the right to have one segment.

    :ivar segment: that it has been taken for
    :ivar users: who received that, until it is released, and messages that pass it on
    :ivar read: what says that former users have read it
    """

    __slots__ = ("_view", "after", "block", "read", "receiver", "segment", "taken_s", "users")

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.block: Block | None = None
        self.segment: Segment | None = None
        self.users = 0
        self.read: tuple[Event, ...] = ()
        self.after: tuple[Event, ...] = ()
        self.taken_s = 0.0  # when it found its segment, for the trace
        self._view: Any = None

    def view(self, dtype: Any, shape: tuple[int, ...]) -> Any:
        """An array of its memory; mostly the same as the last time."""
        view = self._view
        if view is None or view.dtype != dtype or view.shape != shape:
            assert self.block is not None
            view = self._view = self.block.view(dtype, shape)
        return view

    def hold(self) -> None:
        """There is one more user, while another one is sure to stay."""
        self.receiver.hold(self)

    def let_go(self, events: tuple[Event, ...]) -> None:
        """One user has read it when events are reached."""
        self.receiver.let_go(self, events)

    def close(self) -> None:
        """Give its memory back."""
        self._view = self.segment = None
        if self.block is not None:
            self.block.free()
            self.block = None


class Receiver:
    """What arrives at the end of one link.

    :param name: of the link, for people
    :param where: the endpoint, for the trace
    :param space: the endpoint's memory
    :param packet_bytes: size of a buffer
    :param buffers: how many
    :param copies: whether a segment is copied even where the sender's memory could be read
    :param keep: holds what copies read until they are done
    :param begun: called with it when it is asked for something for the first time
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
        begun: Callable[[Receiver], None],
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
        self._begun = begun
        self._lock = threading.RLock()
        self._free: deque[Slot] = deque()
        self._slots: list[Slot] = []
        self._lane: Lane | None = None
        self._offers: list[tuple[float, int, Offer]] = []
        self._arrivals = count()
        # Who has dropped a future, as after a time-out, does not take anything from others.
        self._requests: deque[ReferenceType[PendingSegment]] = deque()
        self._asking: deque[ReferenceType[PendingSegment]] = deque()  # not admitted yet
        self._arrived: deque[Segment] = deque()
        self._most_offers = _FEW_OFFERS
        self._is_contested = False
        self._is_matching = False
        self._ended = False
        self._abandoned = False
        self.backlog: Callable[[], str] = str
        """What the router waits for that it is an end of, behind a message; set by that."""

    # What senders do.

    def post(self, offers: Sequence[Offer]) -> None:
        """Offer segments."""
        self.match(offers)
        if self._abandoned:
            self._give_up()

    def _queue(self, offers: Sequence[Offer]) -> None:
        """Put offers behind the others of their priority; with the lock."""
        if len(self._offers) > self._most_offers:
            self._drop_stale()
        for offer in offers:
            heappush(self._offers, (offer.order, next(self._arrivals), offer))
            self._is_contested = self._is_contested or len(offer.receivers) > 1

    def _drop_stale(self) -> None:
        """Who receives slowly, or not at all, is not to hold what others have taken long ago."""
        self._offers = [entry for entry in self._offers if not entry[2].is_stale]
        heapify(self._offers)
        self._most_offers = max(_FEW_OFFERS, 2 * len(self._offers))

    @property
    def has_offers(self) -> bool:
        """Whether something waits for it to be taken."""
        return any(not entry[2].is_stale for entry in list(self._offers))

    def hint(self) -> str:
        """Why nothing may come, behind a message."""
        if self._slots and not self._free and self.has_offers:
            return (
                f": all buffers of {self.name} ({self.buffers}) are held, or sent on and not read yet: "
                "release what has been read"
            )
        return self.backlog()

    def end(self) -> None:
        """No more will be offered."""
        with self._lock:
            self._ended = True
            self._check_end()

    # What the receiving endpoint does.

    def request(self, pending: PendingSegment) -> None:
        """Ask for the next segment; from the first time on all buffers are ready to receive.

        Where others could take it, who asks is admitted when a buffer is there that nothing uses any more:
        so nobody takes more than it has buffers for ahead of what its GPU has done.
        """
        with self._lock:
            if not self._slots:
                self._slots = [Slot(self) for _ in range(self.buffers)]
                self._free.extend(self._slots)
                self._begun(self)
            if self._is_contested:
                _add(self._asking, [ref(pending)])
            else:
                self._let_in([ref(pending)])
        if self._asking:
            self.admit(is_settled=False)
        elif self._offers and self._free:
            self.match()

    @property
    def has_begun(self) -> bool:
        """Whether anybody has ever asked."""
        return bool(self._slots)

    def unsettled(self) -> Sequence[Event]:
        """What is to be reached before those who ask are admitted."""
        if not (self._is_contested and self._asking) or self._arrived:
            return ()
        try:
            return self._free[0].after
        except IndexError:  # all are held
            return ()

    def admit(self, is_settled: bool) -> None:
        """Let those have segments who have asked, in their order.

        :param is_settled: whether the caller has seen to :meth:`unsettled`
        """
        if not self._asking or not (is_settled or all(event.done() for event in self.unsettled())):
            return
        with self._lock:
            self._let_in(self._asking)
            self._asking.clear()
        if self._offers and self._free:
            self.match()

    def _let_in(self, pendings: Iterable[ReferenceType[PendingSegment]]) -> None:
        _add(self._requests, pendings)
        self._hand_out()
        if self._ended:
            self._check_end()

    def next_arrived(self) -> Segment | None:
        """The next segment, if it is under way already, nobody has asked for it and all goes on."""
        if self._requests or self._asking or self._cancel_scope.cause is not None:
            return None
        try:
            return self._arrived.popleft()
        except IndexError:
            return None

    def put_back(self, segment: Segment) -> None:
        """What was handed out, and nobody has seen, is for the next who asks."""
        with self._lock:
            self._arrived.appendleft(segment)
            self._hand_out()

    def abandon(self) -> None:
        """Nobody will receive any more; what is still on its way has no taker, which is an error.

        Buffers that are held, and segments that others can take, are not.
        """
        with self._lock:
            self._abandoned = True
        self._give_up()

    def resume(self) -> None:
        """Somebody may receive again."""
        with self._lock:
            self._abandoned = False

    def _give_up(self) -> None:
        with self._lock:
            unread = len(self._arrived)
            waiting = [offer for _, _, offer in self._offers if not offer.is_stale]
        stuck = [offer for offer in waiting if all(one._abandoned for one in offer.receivers)]
        if unread or stuck:
            self._cancel_scope.end(
                DeadWorkerError(
                    f"nobody is left at the end of {self.name}, with {unread + len(stuck)} segment(s) on "
                    "their way to it: a worker there must receive until the link ends"
                )
            )

    def match(self, offers: Sequence[Offer] = ()) -> None:
        """Take offers, of those that are brought, too, as long as there are buffers.

        Whoever brings an offer, frees a buffer or says that the link ends comes here after that.
        """
        taken: list[Offer] = []
        try:
            with self._lock:
                if offers:
                    self._queue(offers)
                # The collector of garbage may come in between, and free a buffer for the loop below.
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
            # Outside of the lock: what follows takes the locks of other receivers.
            for offer in taken:
                if len(offer.receivers) > 1:
                    for other in offer.receivers:
                        if other._ended and other is not self:
                            other.match()
                offer.message.claimed()
                if offer.message.passed_on is not None:
                    offer.message.settle()

    def _may_take(self, offer: Offer) -> bool:
        """Whether the receiver may have an offer, if nobody else has.

        What others could take it takes ahead of a request only into a buffer that nothing uses any more:
        one that a GPU has yet to read is no sign that this GPU is the next to be free.
        """
        if self._abandoned or self._cancel_scope.cause is not None:
            return False
        if len(offer.receivers) == 1 or self._requests or offer.is_stale:
            return True
        return all(event.done() for event in self._free[0].after)

    def _begin(self, offer: Offer) -> None:
        """Start to bring a segment into a buffer."""
        segment, message = offer.segment, offer.message
        assert segment is not None
        offer.segment = None  # stale offers hold nothing
        array = segment.array
        nbytes = array.nbytes
        if not offer.is_only:
            segment = segment.twin()
        # On the host, where all is done at once, the buffer used last is the one in the cache, and others
        # may never be needed. On a GPU that one is likely to be read still.
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
        self._hand_out()

    def give_back(self, segment: Segment, stream: Any) -> None:
        """The buffer of a segment may be used again, once what was put into a stream so far is done."""
        with self._lock:  # of two threads that release it one does
            slot, segment.slot = segment.slot, None
        if slot is not None:
            self.let_go(slot, (self.space.record_event(stream),))

    def share(self, segment: Segment) -> Slot | Message | None:
        """Its buffer, or the message that it is read in place of, which waits for one more to let go.

        None if it has been released.
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
        # What passes on itself is waited for by whom it passes on: so no chain grows behind the first.
        origin = message.passed_on
        if origin is None:
            return message
        origin.hold()
        message.let_go(())
        return origin

    def shared_part(self, array: Any) -> Slot | Message | None:
        """Likewise of the segment that an array is part of; None if there is none."""
        for slot in self._slots:
            segment = slot.segment
            if segment is not None and self.space.overlaps(segment.array, array):
                found = self.share(segment)
                if found is not None:
                    return found
        return None

    def hold(self, slot: Slot) -> None:
        """A buffer has one more user, while another one is sure to stay."""
        with self._lock:
            slot.users += 1

    def let_go(self, slot: Slot, events: tuple[Event, ...]) -> None:
        """One user of a buffer has read it when events are reached; after the last it is free."""
        if slot.users > 1:  # else it has been released, and nobody else comes any more
            with self._lock:
                slot.read = events = (*slot.read, *events)
                slot.users -= 1
                if slot.users:
                    return
        elif slot.read:
            events = (*slot.read, *events)
        segment, slot.segment, slot.read = slot.segment, None, ()
        if segment is None:  # the context has been closed
            return
        message = segment.message
        trace = self._cancel_scope.trace
        if trace is not None:
            name = f"rows from {segment.offset:,}"
            nbytes = segment.array.nbytes
            trace.add(self.where, self.name, name, slot.taken_s, perf_counter(), bytes=nbytes)
        if message is not None:
            message.let_go(events)
        elif segment.has_arrived:
            slot.after = events
        else:
            slot.after = (*segment.events, *events)
        self._free.append(slot)
        if self._offers or self._ended:
            self.match()

    def _hand_out(self) -> None:
        while self._requests and self._arrived:
            request = self._requests.popleft()
            pending = request()
            if pending is None:
                continue
            try:
                segment = self._arrived.popleft()
            except IndexError:  # `next_arrived` has taken it, which needs no lock
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
        """Wait until nothing uses the buffers; the dataflow has ended, so no copy begins later."""
        with self._lock:
            events = [event for slot in self._slots for event in slot.after]
            events += [event for slot in self._slots for event in slot.read]
        with ExitStack() as stack:  # for each, whatever the others raise
            for event in events:
                stack.callback(event.wait)

    def close(self) -> None:
        """Give buffers back; nothing is under way."""
        with self._lock:
            for slot in self._slots:
                slot.close()
            self._slots.clear()
            self._free.clear()
            self._offers.clear()
            self._requests.clear()
            self._asking.clear()
            self._arrived.clear()
            lane, self._lane = self._lane, None
            if lane is not None:
                lane.close()


def _add(
    queue: deque[ReferenceType[PendingSegment]], pendings: Iterable[ReferenceType[PendingSegment]]
) -> None:
    """Put futures into a queue, behind which those that were dropped do not pile up."""
    while queue and queue[-1]() is None:
        queue.pop()
    queue.extend(pendings)


def _read_only(array: Any) -> Any:
    if not isinstance(array, np.ndarray):
        return array
    view = array.view()
    view.setflags(write=False)
    return view
