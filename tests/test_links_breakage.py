"""Links, routers and workers where something goes wrong, or two things happen at once.

Each schedule is scripted: what would have to happen in between is put there by replacing a function.
"""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import godwit as gw
from godwit.dataflow import context as context_module
from godwit.dataflow import future as future_module
from godwit.dataflow.cpu import HostLane, HostSpace
from godwit.dataflow.future import CancelScope, Future
from godwit.dataflow.link import Message
from godwit.dataflow.receiver import Receiver, Segment
from godwit.dataflow.workers import Workers
from godwit.errors import (
    ClosedLinkError,
    DataflowEnded,
    DeadlockError,
    DeadWorkerError,
    EndOfLink,
    InputError,
    RunTimeoutError,
    TopologyError,
)

LONG_S = 60


class OwnError(Exception):
    """What a test raises."""


def drained(link: gw.Link) -> list[int]:
    return [int(value) for segment in link for value in segment.array]


def threads() -> list[str]:
    return [
        thread.name for thread in threading.enumerate() if thread.name.startswith("godwit-worker-")
    ]


def within_time(function: Callable[[], None]) -> None:
    """Run something that might wait for ever."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(LONG_S)
    assert not thread.is_alive()


# --- Futures.


def test_what_comes_for_a_dropped_future_goes_to_the_next() -> None:
    """As in a loop that receives with a time-out."""
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=8, buffers=1)
        for _ in range(2000):
            with pytest.raises(RunTimeoutError):
                link.receive().wait(1e-6)
        assert link.receiver is not None
        assert len(link.receiver._requests) < 3
        with link:
            link.send(np.arange(3))
        assert drained(link) == [0, 1, 2]


def test_a_segment_that_nobody_has_seen_goes_to_the_next() -> None:
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=8, buffers=1)
        pending = link.receive()
        link.send(np.arange(3))
        link.shutdown()
        assert pending.done
        del pending
        assert drained(link) == [0, 1, 2]
        seen = link.receive()
        with pytest.raises(EndOfLink):
            seen.wait()


def test_a_future_whose_segment_was_seen_gives_nothing_back() -> None:
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=8)
        link.send(np.arange(2))
        segment = link.receive().wait()
        link.shutdown()
        assert drained(link) == [1]
        assert segment.array.tolist() == [0]


def test_a_segment_that_was_late_goes_to_the_next() -> None:
    """It had found a buffer, and the device was still at it when the time was over."""
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0])
        assert link.receiver is not None
        segment = Segment(np.arange(3), 0, 3, None, context.host)
        segment.events = (Late(1000),)
        pending = link.receive()
        link.receiver.put_back(segment)
        with pytest.raises(RunTimeoutError):
            pending.wait(1e-6)
        del pending
        assert link.receive().wait(LONG_S) is segment


def test_a_future_that_will_never_come_is_done() -> None:
    """So that nobody asks for ever."""
    with gw.Context(["cpu:0"]) as context:
        pending = gw.Link(context.host, context.endpoints[0]).receive()
        assert not pending.done
        context.cancel_scope.end(OwnError())
        assert bool(pending.done)
        with pytest.raises(DataflowEnded, match="the dataflow has ended: OwnError"):
            pending.wait()


class Late:
    """An event of a device that is reached when it has been asked for some times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def done(self) -> bool:
        self.left -= 1
        return self.left < 0

    def wait(self) -> None:
        assert self.left < 0

    def wait_on(self, stream: Any) -> None:
        raise AssertionError


def test_time_outs_bound_the_wait_for_devices() -> None:
    future: Future[int] = Future(CancelScope(), "a copy")
    future.resolve(3, (Late(10**9),))
    with pytest.raises(RunTimeoutError, match=r"a copy was not there after 0.02 s"):
        future.wait(0.02)
    future.resolve(4, (Late(2), Late(3)))
    assert future.wait(LONG_S) == 4
    with pytest.raises(InputError, match="timeout_s must be positive, got -1"):
        future.wait(-1)


def test_who_waits_waits_for_the_device() -> None:
    asked: list[Any] = []

    class Event(Late):
        def wait(self) -> None:
            asked.append("host")

        def wait_on(self, stream: Any) -> None:
            asked.append(stream)

    future: Future[int] = Future(CancelScope())
    future.resolve(3, (Event(10**9), Event(10**9)))
    assert future.wait() == 3
    assert future.wait_on(7) == 3
    assert asked == ["host", "host", 7, 7]


def test_all_who_wait_are_woken() -> None:
    future: Future[int] = Future(CancelScope())
    found: list[int] = []
    waiting = [
        threading.Thread(target=lambda: found.append(future.wait(LONG_S)), daemon=True)
        for _ in range(5)
    ]
    for thread in waiting:
        thread.start()
    while len(future._waiters) < 5:
        threading.Event().wait(0.001)
    future.resolve(3, ())
    for thread in waiting:
        thread.join(LONG_S / 10)
    assert found == [3] * 5


def test_time_outs_longer_than_the_system_knows() -> None:
    future: Future[int] = Future(CancelScope())
    timer = threading.Timer(0.02, future.resolve, (3, ()))
    timer.start()
    assert future.wait(1e300) == 3
    timer.join()


def test_an_error_that_is_raised_often_does_not_grow() -> None:
    future: Future[int] = Future(CancelScope())
    error = OwnError()
    future.fail(error)

    def depth() -> int:
        with pytest.raises(OwnError):
            future.wait()
        traceback, length = error.__traceback__, 0
        while traceback is not None:
            traceback, length = traceback.tb_next, length + 1
        return length

    assert depth() == depth()


# --- What is kept, and what is given back.


def test_held_segments_stay_in_a_loop() -> None:
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=8, copies=True)
        link.send(np.arange(3))
        link.send([100, 200], priority=-1)
        link.shutdown()
        held = []
        turns = iter(link)
        for _ in range(3):
            held.append(next(turns).hold())
        with pytest.raises(RunTimeoutError):
            link.receive().wait(0.01)
        assert [segment.array.tolist() for segment in held] == [[0], [1], [2]]
        for segment in held:
            segment.release()
        assert [segment.array.tolist() for segment in turns] == [[100], [200]]


def test_stale_offers_keep_no_arrays() -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        router = gw.Router([context.host], context.endpoints, packet_bytes=16)
        busy = router.output(context.endpoints[1])
        for size in (2, 5):
            sent = np.arange(size)
            gone = weakref.ref(sent)
            router.input(context.host).send(sent)
            for _ in range(-(-size // 2)):
                busy.receive().wait().release()
            del sent
            assert gone() is None


def test_no_more_is_offered_than_will_soon_be_taken() -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        router = gw.Router(
            [context.host], context.endpoints, "broadcast", packet_bytes=8, buffers=2
        )
        router.input(context.host).send(np.arange(1000))
        receivers = [router.output(end).receiver for end in context.endpoints]
        assert [len(one._offers) for one in receivers if one is not None] == [4, 4]
        for end in context.endpoints:
            router.output(end).receive()
            assert router.output(end).statistics.segments == 2


def test_small_messages_are_offered_several_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    post, offered = Receiver.post, []

    def noted(receiver: Receiver, offers: Any) -> None:
        offered.append(len(offers))
        post(receiver, offers)

    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], buffers=3)
        monkeypatch.setattr(Receiver, "post", noted)
        with link:
            for number in range(90):
                link.send([number])
        assert sum(offered) == 6  # twice as many as there are buffers
        assert drained(link) == list(range(90))
    assert sum(offered) == 90
    assert len(offered) <= 6 + 84 / 3


def test_one_thread_at_a_time_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another one sends meanwhile is offered behind that."""
    post, others = Receiver.post, [2]

    def late(receiver: Receiver, offers: Any) -> None:
        if others:
            other = threading.Thread(target=link.send, args=([others.pop()],))
            other.start()
            other.join(LONG_S)
        post(receiver, offers)

    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0])
        monkeypatch.setattr(Receiver, "post", late)
        with link:
            link.send([1])
        assert drained(link) == [1, 2]


def test_outputs_drained_one_after_the_other_say_what_they_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        router = gw.Router([context.host], context.endpoints, "round-robin", packet_bytes=8)
        first, second = (router.output(end) for end in context.endpoints)
        with router.input(context.host) as link:
            link.send(np.arange(100))
        for _ in range(20):
            pending = first.receive()
            if not pending.done:
                break
            pending.wait().release()
        with pytest.raises(
            RunTimeoutError, match=r"offers no more until .* -> cpu:1 is taken \(a thread"
        ):
            pending.wait(0.01)
        monkeypatch.setattr(future_module, "PATIENCE_S", 0.01)

        def take() -> None:
            for _ in range(3):
                second.receive().wait().release()

        later = threading.Timer(0.3, take)
        later.start()
        with pytest.warns(UserWarning, match=r"a thread has waited .* -> cpu:0: .* by turns"):
            pending.wait()
        later.join()


def test_a_link_that_waits_for_its_sender_has_nothing_to_say() -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        router = gw.Router([context.host], context.endpoints, "round-robin", packet_bytes=8)
        router.input(context.host).send(np.arange(2))
        first = router.output(context.endpoints[0])
        first.receive().wait().release()
        with pytest.raises(RunTimeoutError, match=r"was not there after 0.01 s$"):
            first.receive().wait(0.01)


def test_who_is_broadcast_to_reads_until_the_last_is_done() -> None:
    with gw.Context(["cpu:0", "cpu:1", "cpu:2"]) as context:
        router = gw.Router([context.host], context.endpoints, "broadcast")
        future = router.input(context.host).send(np.arange(3))
        for end in context.endpoints:
            segment = router.output(end).receive().wait()
            assert not future.done
            segment.release()
        assert future.done


def test_a_link_that_is_shut_down_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0])

        def late(array: Any, stream: Any) -> Any:
            link.shutdown()
            return np.asarray(array), ()

        monkeypatch.setattr(context.host.space, "take", late)
        with pytest.raises(ClosedLinkError):
            link.send([1])
        assert drained(link) == []


def test_what_is_passed_on_over_a_link_that_is_shut_down_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        up = gw.Link(context.host, context.endpoints[0])
        across = gw.Link(*context.endpoints)
        future = up.send(np.arange(3))
        segment = up.receive().wait()

        def late(array: Any, stream: Any) -> Any:
            across.shutdown()
            return array, ()

        monkeypatch.setattr(context.endpoints[0].space, "take", late)
        with pytest.raises(ClosedLinkError):
            across.send(segment)
        assert not future.done
        segment.release()
        assert future.done


def test_segments_may_be_released_after_the_end() -> None:
    """As by a loop that is left in the middle, and goes with its frame."""
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=8, copies=True)
        link.send(np.arange(5))
        turns = iter(link)
        next(turns)
        held = next(turns).hold()
        held.array = held.array.copy()
    turns.close()  # type: ignore[attr-defined]
    held.release()
    assert context.used_bytes == 0


def test_a_closed_context_keeps_no_messages() -> None:
    sent = np.arange(1000)
    gone = weakref.ref(sent)
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=8)
        link.send(sent)
    del sent
    assert gone() is None
    assert link.closed


def test_all_is_given_back_whatever_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    closed: list[Any] = []
    has_failed: list[Any] = []

    def fail_once(lane: HostLane) -> None:
        if not has_failed:
            has_failed.append(lane)
            raise OwnError

    monkeypatch.setattr(HostLane, "close", fail_once)
    monkeypatch.setattr(HostSpace, "close", lambda space: closed.append(space.kind))
    context = gw.Context(["cpu:0", "cpu:1"], trace=tmp_path / "run.json")
    for end in context.endpoints:
        link = gw.Link(context.host, end, packet_bytes=8, copies=True)
        link.send([1])
        link.receive().wait()
    assert context.used_bytes == 16
    with pytest.raises(OwnError):
        context.close()
    assert context.used_bytes == 0
    assert closed == ["host"] * 3
    assert (tmp_path / "run.json").exists()


def test_what_a_copy_reads_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Late] = []

    def copy(lane: HostLane, source: Any, view: Any, after: Any) -> Late:
        events.append(Late(10**9))
        return events[-1]

    monkeypatch.setattr(HostLane, "copy", copy)
    monkeypatch.setattr("godwit.dataflow.context._SMALL_BYTES", 0)
    gone: list[weakref.ref[Any]] = []
    segments = []
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=64, copies=True)
        for value in range(3):
            sent = np.full(3, value)
            gone.append(weakref.ref(sent))
            future = link.send(sent)
            del sent
            if value == 1:
                events[0].left = 0
            segments.append(link.receive())
        assert [one() is None for one in gone] == [True, False, False]
        assert not future.done
        for event in events:
            event.left = 0
        assert bool(future.done)
        for segment in segments:
            segment.wait(LONG_S).release()
    assert [one() is None for one in gone] == [True] * 3


def test_of_small_arrays_that_copies_read_few_are_kept_longer() -> None:
    gone: list[weakref.ref[Any]] = []
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=64, copies=True)
        for value in range(100):
            sent = np.full(3, value)
            gone.append(weakref.ref(sent))
            pending = link.receive()
            link.send(sent)
            del sent
            pending.wait().release()
            assert sum(one() is not None for one in gone) <= 16
    assert all(one() is None for one in gone)


def test_whoever_reads_a_buffer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []

    class Event(Late):
        def wait(self) -> None:
            waited.append(self)

    monkeypatch.setattr(HostSpace, "record_event", lambda space, stream=None: Event(0))
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=8, copies=True)
        link.send(np.arange(2))
        for _ in range(2):
            link.receive().wait().release()
        waited.clear()
    assert waited


def test_memory_of_the_host_is_used_again() -> None:
    space = HostSpace(100)
    block = space.allocate(60)
    first = block.view(np.uint8, (60,))
    block.free()
    assert np.shares_memory(space.allocate(60).view(np.uint8, (60,)), first)
    space = HostSpace(100)
    space.allocate(60).free()
    assert space.allocate(100).nbytes == 100


def test_all_copies_are_waited_for_whatever_fails() -> None:
    class Event(Late):
        waited = 0

        def wait(self) -> None:
            Event.waited += 1
            raise OwnError

    context = gw.Context(["cpu:0"])
    for _ in range(3):
        context.keep(Event(10**9), np.zeros(1))
    with pytest.raises(OwnError):
        context.close()
    assert Event.waited == 3
    assert not context._kept


def test_threads_agree_on_the_memory_of_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    make = context_module.HostSpace
    both = threading.Barrier(2)

    def slow(*arguments: Any, **settings: Any) -> Any:
        threading.Event().wait(0.02)
        return make(*arguments, **settings)

    monkeypatch.setattr(context_module, "HostSpace", slow)
    with gw.Context(["cpu:0"]) as context:
        found: list[Any] = []

        def ask() -> None:
            both.wait(LONG_S)
            found.append(context.endpoints[0].space)

        asking = [threading.Thread(target=ask) for _ in range(2)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        assert found[0] is found[1]


def test_garbage_that_goes_while_a_lock_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that somebody left in the middle, and forgot, gives its buffer back at any time."""
    cut, found = Message.cut, []

    def collecting(message: Message) -> Any:
        if message.priority:
            gc.collect()
        return cut(message)

    def exchange() -> None:
        with gw.Context(["cpu:0"]) as context:
            link = gw.Link(context.host, context.endpoints[0], packet_bytes=8, buffers=1)
            for first in range(0, 12, 3):
                link.send([first])
                turns = iter(link)
                found.append(int(next(turns).array[0]))
                cycle: list[Any] = [turns]
                cycle.append(cycle)
                del turns, cycle
                link.send([first + 1])  # waits for the buffer
                link.send([first + 2], priority=1)
                for _ in range(2):
                    with link.receive().wait() as segment:
                        found.append(int(segment.array[0]))

    monkeypatch.setattr(Message, "cut", collecting)
    within_time(exchange)
    assert found == list(range(12))


# --- Who is told, and who is next.


def test_the_last_segment_ends_the_waits_of_others() -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        router = gw.Router([context.host], context.endpoints, packet_bytes=8, buffers=1)
        first, second = (router.output(end) for end in context.endpoints)
        link = router.input(context.host)
        link.send([0])
        held = second.receive().wait()
        waiting = second.receive()
        with link:
            link.send([1])
        assert not waiting.done  # nobody has taken what might be for it
        assert first.receive().wait().array.tolist() == [1]
        with pytest.raises(EndOfLink):
            waiting.wait(LONG_S)
        held.release()


def test_what_is_released_late_takes_nothing_from_others() -> None:
    """The worker has ended, and nobody would look at what came into its buffer."""
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        first, second = context.endpoints
        router = gw.Router([context.host], context.endpoints, packet_bytes=8, buffers=1)
        link = router.input(context.host)
        held: list[gw.Segment] = []
        with context.workers() as workers:
            workers.start(first, lambda: held.append(router.output(first).receive().wait()))
            link.send([0])
            workers._workers[0].join()
            link.send(np.arange(1, 4))
            held[0].release()
            found: list[int] = []
            workers.start(second, lambda: found.extend(drained(router.output(second))))
        assert found == [1, 2, 3]


def test_nothing_is_taken_after_the_end() -> None:
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=8, buffers=1)
        link.send(np.arange(4))
        held = link.receive().wait()
        context.cancel_scope.end(OwnError())
        held.release()
        assert link.statistics.segments == 1


def test_who_sends_for_the_first_time_does_not_overtake() -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        router = gw.Router(context.endpoints, [context.host], packet_bytes=8)
        old, new = (router.input(end) for end in context.endpoints)
        out = router.output(context.host)
        for _ in range(5):
            old.send([0])
            out.receive().wait().release()
        old.send([0, 0, 0])
        held = [out.receive().wait() for _ in range(3)]
        for value in (1, 2):
            old.send([value])
            new.send([10 + value])
        for segment in held:
            segment.release()
        router.shutdown()
        assert drained(out) == [1, 11, 2, 12]


# --- Settings.


def test_priorities_that_are_no_numbers() -> None:
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0])
        with pytest.raises(InputError, match="priority must be a number, got nan"):
            link.send([1], priority=float("nan"))
        router = gw.Router([context.host], context.endpoints, "priority")
        with pytest.raises(InputError, match=r"the priority of a segment must be .* got 'high'"):
            router.input(context.host).send([1], metadata="high")


def test_packets_of_nothing() -> None:
    with (
        gw.Context(["cpu:0"]) as context,
        pytest.raises(InputError, match="packet_bytes must be at least 1, got 0"),
    ):
        gw.Link(context.host, context.endpoints[0], packet_bytes=0)


# --- Waits that would not end.


def test_who_receives_from_a_router_that_nobody_sends_to_is_told() -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        lonely = gw.Router([], context.endpoints)
        with pytest.raises(TopologyError, match=f"nothing leads to {lonely}"):
            list(lonely.output(context.endpoints[0]))
        tree = gw.Router(context.endpoints, context.endpoints, "tree")
        within_time(lambda: drained(tree.output(context.endpoints[1])))  # a leaf


def test_links_end_at_whose_beginning_nobody_works() -> None:
    found: list[int] = []
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        first, second = context.endpoints
        link = gw.Link(first, second)
        router = gw.Router([first, context.host], [second], "gather")

        def receive() -> None:
            found.extend(drained(link) + drained(router.output(second)))

        def work() -> None:
            with context.workers() as workers:
                workers.start(second, receive)
                workers.start(context.host, lambda: router.input(context.host).send([1]))

        within_time(work)
    assert found == [1]


@pytest.mark.parametrize("buffers", [1, 2])
def test_who_holds_all_buffers_is_told(monkeypatch: pytest.MonkeyPatch, buffers: int) -> None:
    monkeypatch.setattr(future_module, "PATIENCE_S", 0.02)
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=8, buffers=buffers)
        held: list[Segment] = []

        def hold() -> None:
            held.extend(segment.hold() for segment in link)

        def work() -> None:
            message = rf"cpu:0: all buffers of host -> cpu:0 \({buffers}\) are held"
            with (  # noqa: PT012
                pytest.raises(DeadlockError, match=message),
                context.workers() as workers,
            ):
                workers.start(context.endpoints[0], hold)
                link.send(np.arange(10))

        within_time(work)
        assert threads() == []


def test_workers_that_wait_for_each_other_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the body has ended; before, it is told of only, as others may still send."""
    monkeypatch.setattr(future_module, "PATIENCE_S", 0.02)
    message = "cpu:0 for a segment over cpu:1 -> cpu:0; cpu:1 for a segment over cpu:0 -> cpu:1"
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        first, second = context.endpoints
        there, back = gw.Link(first, second), gw.Link(second, first)

        def work() -> None:
            with (  # noqa: PT012
                pytest.raises(DeadlockError, match=message),
                context.workers() as workers,
            ):
                workers.start(first, drained, back)
                workers.start(second, drained, there)

        within_time(work)
        assert threads() == []


def test_who_waits_for_a_time_only_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(future_module, "PATIENCE_S", 0.02)
    found: list[int] = []
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        first, second = context.endpoints
        there, back = gw.Link(first, second), gw.Link(second, first)

        def send_late() -> None:
            with pytest.raises(RunTimeoutError):
                back.receive().wait(0.3)
            there.send([1])

        with context.workers() as workers:
            workers.start(first, send_late)
            workers.start(second, lambda: found.extend(drained(there)))
    assert found == [1]


def test_a_wait_without_workers_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(future_module, "PATIENCE_S", 0.02)
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.endpoints[0], context.host)
        timer = threading.Timer(0.3, link.shutdown)
        timer.start()
        with pytest.warns(UserWarning, match=r"a thread has waited .*: host for a segment over"):
            assert drained(link) == []
        timer.join()


# --- Workers.


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no signals of one's own")
def test_an_interruption_while_workers_are_joined_joins_them_all_the_same() -> None:
    """In Python 3.11 a join that was interrupted takes the thread for one that has ended."""
    ended: list[str] = []

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with gw.Context(["cpu:0"]) as context:
            block = context.workers()

            def work() -> None:
                while block._is_open:
                    threading.Event().wait(1e-3)
                threading.Event().wait(0.1)  # by now the block joins
                signal.pthread_kill(main, signal.SIGUSR1)
                threading.Event().wait(0.3)
                ended.append("worker")

            main = threading.get_ident()
            with pytest.raises(KeyboardInterrupt), block:
                block.start(context.endpoints[0], work)
            assert ended == ["worker"]
            assert threads() == []
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_one_block_of_workers_at_a_time() -> None:
    with gw.Context(["cpu:0"]) as context:
        with (
            context.workers(),
            pytest.raises(InputError, match="a block of workers is open already"),
            context.workers(),
        ):
            pass
        with context.workers() as workers:
            workers.start(context.host, int)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OwnError])
def test_what_fails_as_the_body_ends(monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    """The threads have ended all the same."""

    def fail(workers: Workers) -> None:
        raise error

    monkeypatch.setattr(Workers, "_end_body", fail)
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0])
        with pytest.raises(error), context.workers() as workers:
            workers.start(context.endpoints[0], drained, link)
        assert threads() == []


def test_the_end_as_the_body_ends_is_no_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(workers: Workers) -> None:
        workers._workers[0].join()
        workers._context.cancel_scope.check()

    def fail() -> None:
        raise OwnError

    monkeypatch.setattr(Workers, "_end_body", told)
    with (
        gw.Context(["cpu:0"]) as context,
        pytest.raises(OwnError),
        context.workers() as workers,
    ):
        workers.start(context.endpoints[0], fail)


def test_a_worker_is_in_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    @contextmanager
    def block(_: HostSpace) -> Iterator[None]:
        seen.append("in")
        yield
        seen.append("out")

    monkeypatch.setattr(HostSpace, "entered_thread", block)
    with gw.Context(["cpu:0"]) as context, context.workers() as workers:
        workers.start(context.endpoints[0], lambda: seen.append("works"))
    assert seen == ["in", "works", "out"]


def test_a_worker_that_starts_after_the_one_before() -> None:
    found: list[int] = []
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=8)
        with context.workers() as workers:
            workers.start(context.endpoints[0], int)
            workers._workers[0].join()
            workers.start(context.endpoints[0], lambda: found.extend(drained(link)))
            link.send(np.arange(9))
    assert found == list(range(9))


def test_a_thread_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "godwit-worker-cpu:1":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        router = gw.Router([context.host], context.endpoints)
        with pytest.raises(RuntimeError, match="can't start"), context.workers() as workers:
            workers.each(context.endpoints, lambda end: drained(router.output(end)))
        assert threads() == []


def test_the_last_of_several_workers_ends_the_links() -> None:
    with gw.Context(["cpu:0"]) as context:
        (end,) = context.endpoints
        link = gw.Link(end, context.host)
        first_has_ended = threading.Event()

        def send() -> None:
            assert first_has_ended.wait(LONG_S)
            link.send(np.arange(3))

        with context.workers() as workers:
            workers.start(end, send)
            workers.start(end, int)
            workers._workers[1].join()
            assert not link.closed
            first_has_ended.set()
            assert drained(link) == [0, 1, 2]


def test_a_worker_that_starts_as_the_one_before_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the new one is to receive has not been given up."""
    found: list[int] = []
    links_from = Workers._links_from
    with gw.Context(["cpu:0"]) as context:
        (end,) = context.endpoints
        link = gw.Link(context.host, end, packet_bytes=8)
        may_receive = threading.Event()

        def receive() -> None:
            assert may_receive.wait(LONG_S)
            found.extend(drained(link))

        def one_more(self: Workers, endpoint: Any) -> Any:
            if endpoint is end and len(self._workers) == 1:
                self.start(end, receive)
            return links_from(self, endpoint)

        monkeypatch.setattr(Workers, "_links_from", one_more)
        with context.workers() as workers:
            workers.start(end, int)
            workers._workers[0].join()
            link.send(np.arange(9))
            may_receive.set()
    assert found == list(range(9))


def test_no_policy_is_asked_after_the_end() -> None:
    asked: list[int] = []

    def choose(segment: Any, source: Any, destinations: Any) -> Any:
        asked.append(segment.offset)
        raise OwnError

    with gw.Context(["cpu:0"]) as context:
        link = gw.Router([context.host], context.endpoints, choose, packet_bytes=8).input(
            context.host
        )
        with pytest.raises(OwnError):
            link.send(np.arange(9))
        link.shutdown()
    assert asked == [0]


def test_unseen_segments_of_a_dead_worker() -> None:
    """A worker that asks and goes away without looking has not received."""
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=8)
        with pytest.raises(DeadWorkerError), context.workers() as workers:  # noqa: PT012
            workers.start(context.endpoints[0], lambda: link.receive() and None)
            link.send([1])
