"""Segment links and routers on CPU endpoints: all constructs and policies, scripted and random schedules.

What has to hold: every row arrives, once, in order for each receiver; nothing hangs; a failure comes out as
the exception that it was, and leaves no thread and no buffer behind.
"""

from __future__ import annotations

import gc
import itertools
import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
from godwit.dataflow import future
from godwit.dataflow.cpu import HostSpace
from godwit.dataflow.receiver import Offer, Segment
from godwit.errors import (
    ClosedContextError,
    ClosedLinkError,
    DataflowEnded,
    DeadWorkerError,
    DeviceError,
    EndOfLink,
    FileError,
    InputError,
    RunTimeoutError,
    TopologyError,
)
from godwit.runtime.memory import READY, latest

LONG_S = 60


def rows(segments: Sequence[Segment]) -> list[int]:
    """All values, segment by segment."""
    return [int(value) for segment in segments for value in segment.array]


def drained(link: gw.Link) -> list[int]:
    """What comes over a link until it ends, given back one by one."""
    found = []
    for segment in link:
        with segment:
            found += [int(value) for value in segment.array]
    return found


def threads() -> list[str]:
    return [
        thread.name for thread in threading.enumerate() if thread.name.startswith("godwit-worker-")
    ]


# --- One link.


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 9])
def test_a_message_arrives_in_packets(count: int, copies: bool) -> None:
    sent = np.arange(count, dtype=np.int32)
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=16, copies=copies)
        future = link.send(sent, metadata="numbers")
        link.shutdown()
        offsets = []
        found: list[int] = []
        for segment in link:
            with segment:
                assert segment.metadata == "numbers"
                assert segment.total == count
                assert segment.source is context.host
                assert segment.is_last == (segment.offset + len(segment) == count)
                offsets.append(segment.offset)
                found += segment.array.tolist()
        assert offsets == list(range(0, max(count, 1), 4))
        assert found == sent.tolist()
        future.wait(LONG_S)
        assert link.statistics.segments == len(offsets)
        assert link.statistics.bytes == sent.nbytes
        assert link.statistics.copied_bytes == (sent.nbytes if copies else 0)


def test_the_host_is_read_where_it_lies() -> None:
    sent = np.arange(6)
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0])
        future = link.send(sent)
        segment = link.receive().wait()
        assert np.shares_memory(segment.array, sent)
        assert not segment.array.flags.writeable
        assert not future.done
        segment.release()
        assert future.done
        assert context.used_bytes == 0


def test_copies_may_be_written_to() -> None:
    sent = np.arange(6)
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=1 << 10, copies=True)
        future = link.send(sent)
        with link.receive().wait() as segment:
            assert future.done
            segment.array[:] = 7
        assert sent.tolist() == [0, 1, 2, 3, 4, 5]
        assert context.used_bytes == 1 << 10
    assert context.used_bytes == 0


@pytest.mark.parametrize("copies", [False, True])
def test_a_segment_is_given_back_at_the_next_turn(copies: bool) -> None:
    """So that nobody who forgets to release hangs; unless it is held."""
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=8, buffers=1, copies=copies)
        link.send(np.arange(4))
        turns = iter(link)
        first = next(turns)
        assert next(turns) is not first
        third = next(turns).hold()
        with pytest.raises(RunTimeoutError):
            link.receive().wait(0.01)
        assert rows([third]) == [2]
        third.release()
        turns.close()  # type: ignore[attr-defined]
        # What was asked for above comes now, and is nobody's but the future's.
        assert link.statistics.segments == 4


def test_no_more_is_on_its_way_than_there_are_buffers() -> None:
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=8, buffers=2)
        link.send(np.arange(10))
        held = [link.receive().wait(), link.receive().wait()]
        third = link.receive()
        with pytest.raises(
            RunTimeoutError, match=r"a segment over host -> cpu:0 was not there after"
        ):
            third.wait(0.01)
        held[0].release()
        held[0].release()  # twice does no harm
        assert rows([third.wait(LONG_S)]) == [2]
        assert link.statistics.segments == 3


def test_packets_and_buffers_may_stand_behind_the_ends() -> None:
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], 1024, 2)
        assert (link.packet_bytes, link.buffers) == (1024, 2)


def test_rows_of_several_numbers_stay_together() -> None:
    edges = np.arange(14, dtype=np.uint32).reshape(7, 2)
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=20)
        with link:
            link.send(edges)
        found = [segment.array.copy() for segment in link]
        assert [len(one) for one in found] == [2, 2, 2, 1]
        np.testing.assert_array_equal(np.concatenate(found), edges)


def test_what_is_no_contiguous_array_is_made_one() -> None:
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0])
        for sent in (np.arange(10)[::2], [0, 2, 4, 6, 8], np.arange(0, 10, 2).astype("i2")):
            link.send(sent)
            with link.receive().wait() as segment:
                assert segment.array.tolist() == [0, 2, 4, 6, 8]
        link.send(np.float32(3.5))
        assert link.receive().wait().array.tolist() == [3.5]


def test_urgent_messages_overtake() -> None:
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=8, buffers=1)
        link.send(np.arange(100))
        link.send(np.arange(200, 202), priority=1)
        link.shutdown()
        found = drained(link)
        assert sorted(found) == [*range(100), 200, 201]
        assert found.index(201) < 10
        assert [value for value in found if value < 100] == list(range(100))


def test_the_end_of_a_link() -> None:
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0])
        waiting = link.receive()
        link.send([1])
        link.shutdown()
        link.shutdown()
        assert link.closed
        assert rows([waiting.wait()]) == [1]
        for _ in range(2):
            with pytest.raises(EndOfLink, match="nothing more comes over host -> cpu:0"):
                link.receive().wait()
        assert list(link) == []
        with pytest.raises(ClosedLinkError, match="host -> cpu:0 has been shut down"):
            link.send([2])


# --- Segments that are passed on.


@pytest.mark.parametrize("what", ["segment", "array", "part"])
@pytest.mark.parametrize("copies", list(itertools.product([False, True], repeat=2)))
def test_a_loop_may_send_on_what_it_gets(copies: tuple[bool, bool], what: str) -> None:
    """Its buffer goes back when that has been read, and not at the next turn."""
    sent = np.arange(300)
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        first, second = context.endpoints
        up = gw.Link(context.host, first, packet_bytes=80, copies=copies[0])
        across = gw.Link(first, second, packet_bytes=80, copies=copies[1])
        found: list[int] = []

        def pass_on() -> None:
            for segment in up:
                if what == "part":
                    across.send(segment.array[:3])
                    across.send(segment.array[3:])
                else:
                    across.send(segment if what == "segment" else segment.array)

        def read_late() -> None:
            for segment in across:
                threading.Event().wait(1e-4)
                found.extend(segment.array.tolist())

        with context.workers() as workers:
            workers.start(first, pass_on)
            workers.start(second, read_late)
            up.send(sent).wait(LONG_S)
            sent[:] = -1  # as the future says that it may be, and others still pass it on
        assert found == list(range(300))
        for link in (up, across):
            assert link.receiver is not None
            assert len(link.receiver._free) == link.buffers


def test_who_sends_may_write_again_when_the_last_has_read() -> None:
    with gw.Context(["cpu:0", "cpu:1", "cpu:2"]) as context:
        first, *others = context.endpoints
        up = gw.Link(context.host, first)
        spread = gw.Router([first], others, "broadcast")
        future = up.send(np.arange(3))
        with up.receive().wait() as segment:
            onward = spread.input(first).send(segment)
        for end in others:
            assert not future.done
            assert not onward.done
            spread.output(end).receive().wait().release()
        assert future.done
        assert onward.done


def test_a_segment_that_was_given_back_is_not_sent() -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        first, second = context.endpoints
        up = gw.Link(context.host, first, packet_bytes=8, buffers=1)
        across = gw.Link(first, second, packet_bytes=8)
        up.send(np.arange(2))
        segment = up.receive().wait()
        segment.release()
        with pytest.raises(InputError, match=r"Segment\(rows 0 to 1 .* has been released: send"):
            across.send(segment)
        # What is refused keeps no buffer.
        with up.receive().wait() as segment:
            across.shutdown()
            with pytest.raises(ClosedLinkError):
                across.send(segment)
        assert up.receiver is not None
        assert len(up.receiver._free) == 1


# --- What cannot be built.


def test_topologies_that_are_refused() -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context, gw.Context(["cpu:0"]) as other:
        host, (first, second) = context.host, context.endpoints

        def refused(message: str, make: Callable[[], Any]) -> None:
            before = len(context.all_links()), len(context.routers)
            with pytest.raises(TopologyError, match=message):
                make()
            assert (len(context.all_links()), len(context.routers)) == before

        refused("two endpoints, got cpu:0 twice", lambda: gw.Link(first, first))
        gw.Link(host, first)
        refused("host -> cpu:0 is there already", lambda: gw.Link(host, first))
        refused("host and cpu:0 are endpoints of diff", lambda: gw.Link(host, other.endpoints[0]))
        refused("endpoints of a context .*, got 'cpu:0'", lambda: gw.Link(host, "cpu:0"))  # type: ignore[arg-type]
        refused("without outputs", lambda: gw.Router([host], []))
        refused("cpu:1 is named twice among the outputs", lambda: gw.Router([host], [second] * 2))
        refused("to itself alone leads nowhere", lambda: gw.Router([first], [first]))
        refused(r"write \[input\]", lambda: gw.Router(host, [first]))  # type: ignore[arg-type]
        refused("takes 1 output, got 2", lambda: gw.Router([host], [first, second], "gather"))
        router = gw.Router([host], [first], name="spread")
        refused("spread makes its own links", lambda: gw.Link(second, router))
        refused("make this router first", lambda: gw.Router([router], [first]))
        refused(
            "'cpu:1' is none of the outputs of spread, which are cpu:0",
            lambda: router.output("cpu:1"),
        )  # type: ignore[arg-type]
        refused("cpu:1 is none of the inputs", lambda: router.input(second))
        refused("spread sends by itself", lambda: router.output(first).send([1]))
        refused("spread receives by itself", lambda: router.input(host).receive())
        with pytest.raises(
            InputError, match="unknown routing policy 'mesh'; there are 'any', 'round"
        ):
            gw.Router([host], [first], "mesh")
        with pytest.raises(InputError, match="packet_bytes must be at least 1, got -1"):
            gw.Link(first, second, packet_bytes=-1)
        with pytest.raises(InputError, match="buffers must be at least 1, got 0"):
            gw.Router([host], [first], buffers=0)
        lonely = gw.Router([], [first])
        refused(f"nothing leads to {lonely}", context.workers)


def test_limits_of_memory() -> None:
    with gw.Context(["cpu:0"], memory_bytes={"cpu:0": 100}) as context:
        host, (end,) = context.host, context.endpoints
        with pytest.raises(
            TopologyError, match="packets of 101 bytes do not fit in the pool of 100"
        ):
            gw.Link(host, end, packet_bytes=101)
        link = gw.Link(host, end, packet_bytes=60, buffers=2, copies=True)
        link.send(np.zeros(120, np.uint8))
        with pytest.raises(InputError, match=r"buffer of 60 B .* of which 40 B are left"):
            link.receive()
    with pytest.raises(
        InputError, match="names 'cpu:7', which is no endpoint; there are 'host', 'cpu:0'"
    ):
        gw.Context(["cpu:0"], memory_bytes={"cpu:7": 100})
    with pytest.raises(InputError, match="memory_bytes of host must be at least 1, got 0"):
        gw.Context(["cpu:0"], memory_bytes=0)


def test_memory_that_is_handed_in() -> None:
    memory = np.zeros(64, np.uint8)
    with gw.Context(["cpu:0"], pools={"cpu:0": memory}) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=32, buffers=2, copies=True)
        link.send(np.full(8, 5, np.int64))
        first, second = link.receive().wait(), link.receive().wait()
        assert np.shares_memory(first.array, memory)
        assert (memory == np.full(8, 5, np.int64).view(np.uint8)).all()
        assert not np.shares_memory(first.array, second.array)
    with pytest.raises(InputError, match=r"pools\['cpu:0'\] must be an array, got b'1234'"):
        gw.Context(["cpu:0"], pools={"cpu:0": b"1234"})
    memory.flags.writeable = False
    with gw.Context(["cpu:0"], pools={"cpu:0": memory}) as context:
        (end,) = context.endpoints
        with pytest.raises(InputError, match="a pool on the host must be a writable NumPy array"):
            gw.Link(context.host, end, packet_bytes=8)


def test_messages_that_are_refused() -> None:
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=8)
        with pytest.raises(
            InputError, match="one row of 16 bytes does not fit into the packets of 8"
        ):
            link.send(np.zeros((3, 2)))
        with pytest.raises(
            InputError, match="must hold numbers, got an array of object; metadata="
        ):
            link.send(np.array([None]))
        with pytest.raises(InputError, match="must be an array, got 'hello'; metadata= takes any"):
            link.send("hello")
        with pytest.raises(InputError, match="must hold numbers, got an array of <U1"):
            link.send(["a", "b"])
        with pytest.raises(InputError, match="a masked array would lose its mask"):
            link.send(np.ma.ones(1))
        with pytest.raises(InputError, match="priority must be"):
            link.send([1.0], priority="high")  # type: ignore[arg-type]
        link.send([1])
        assert rows([link.receive().wait()]) == [1]
    for use in (lambda: link.send([1]), link.receive, context.workers, lambda: context.host):
        with pytest.raises(ClosedContextError, match="this context is closed"):
            use()


class StreamEvent:
    """An event of a stream: numbers of a counter before and after it was recorded."""

    def __init__(self, stream: Any, begun: int, recorded: int) -> None:
        self.stream, self.begun, self.recorded = stream, begun, recorded

    def done(self) -> bool:
        raise AssertionError  # it is not asked

    def implies(self, other: Any) -> bool:
        return other.stream == self.stream and other.recorded < self.begun


@given(
    st.lists(st.tuples(st.sampled_from([None, 1, 2]), st.integers(0, 50), st.integers(1, 9))),
    st.lists(st.integers(0, 20), max_size=3),
)
def test_the_last_events_of_streams_stand_for_all(drawn: list[Any], ready_at: list[int]) -> None:
    """Threads may record at once: the intervals of their recordings overlap then."""
    events: list[Any] = [StreamEvent(stream, at, at + length) for stream, at, length in drawn]
    for index in ready_at:
        events.insert(index, READY)
    kept = latest(events)
    for event in events:
        if event is READY or event in kept:
            continue
        assert event.stream is not None
        assert any(other.implies(event) for other in kept)
    assert READY not in kept
    assert all(event in events for event in kept)


@given(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=30))
def test_of_each_stream_one_event_is_left(streams: list[int]) -> None:
    events: list[Any] = [
        StreamEvent(stream, 2 * at, 2 * at + 1) for at, stream in enumerate(streams)
    ]
    kept: list[Any] = list(latest(events))
    last = {event.stream: event for event in events}
    assert sorted(map(id, kept)) == sorted(map(id, last.values()))


# --- Routers.


def routed(policy: Any, count: int = 12, inputs: str = "host", buffers: int = 1) -> list[list[int]]:
    """What each of three endpoints gets of a message of single rows, each of them receiving in turn."""
    with gw.Context(["cpu:0", "cpu:1", "cpu:2"]) as context:
        ends = context.endpoints
        source = context.host if inputs == "host" else ends[int(inputs)]
        others = [end for end in ends if end is not source] if policy == "any" else ends
        router = gw.Router([source], others, policy, packet_bytes=8, buffers=buffers)
        with router.input(source) as link:
            link.send(np.arange(count))
        found: list[list[int]] = [[] for _ in ends]
        with context.workers() as workers:
            for end in others:
                workers.start(
                    end, lambda end=end: found[end.index].extend(drained(router.output(end)))
                )
        return found


def test_round_robin_deals() -> None:
    assert routed("round-robin") == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]


def test_broadcast_gives_all_to_each() -> None:
    assert routed("broadcast") == [list(range(12))] * 3


def test_broadcast_spares_the_sender() -> None:
    assert routed("broadcast", inputs="1") == [list(range(12)), [], list(range(12))]


def test_scatter_gives_equal_parts() -> None:
    assert routed("scatter") == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_scatter_by_owner() -> None:
    even = gw.policies.scatter(lambda segment: int(segment.array[0]) % 2)
    assert routed(even) == [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11], []]


def test_ring_goes_to_the_next() -> None:
    assert routed("ring", inputs="1") == [[], [], list(range(12))]
    assert routed("ring", inputs="2") == [list(range(12)), [], []]
    assert routed("ring") == [list(range(12)), [], []]


def test_reductions_go_to_the_first() -> None:
    assert routed("tree", inputs="1") == [list(range(12)), [], []]
    assert routed("tree", inputs="2") == [list(range(12)), [], []]
    assert routed("one-way", inputs="1") == [list(range(12)), [], []]
    found = routed("one-way", inputs="2")
    assert sorted(found[0] + found[1]) == list(range(12))
    assert found[2] == []


def test_a_function_decides() -> None:
    def by_size(segment: Segment, source: Any, destinations: Any) -> Any:
        if int(segment.array[0]) == 11:
            return gw.every([destinations[1], destinations[2:]])
        return destinations[0]

    assert routed(by_size) == [list(range(11)), [11], [11]]


def test_any_gives_to_the_output_with_most_room() -> None:
    """Few segments at a time, as from a slow sender: the first output always has a free buffer."""
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        router = gw.Router([context.host], context.endpoints, "any", packet_bytes=8, buffers=3)
        outputs = [router.output(endpoint) for endpoint in context.endpoints]
        requested = [[output.receive() for _ in range(3)] for output in outputs]
        with router.input(context.host) as link:
            for number in range(6):
                link.send(np.array([number]))
        taken = [[request.wait(LONG_S) for request in requests] for requests in requested]
        assert [rows(segments) for segments in taken] == [[0, 2, 4], [1, 3, 5]]


def test_any_deals_equally_to_outputs_that_are_always_free() -> None:
    """Each segment is released before the next is sent, so that both always have the same room."""
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        router = gw.Router([context.host], context.endpoints, "any", packet_bytes=8)
        outputs = [router.output(endpoint) for endpoint in context.endpoints]
        requests = [output.receive() for output in outputs]
        taken = [0, 0]
        for number in range(30):
            router.input(context.host).send(np.array([number]))
            (index,) = [index for index, request in enumerate(requests) if request.done]
            requests[index].wait(LONG_S).release()
            requests[index] = outputs[index].receive()
            taken[index] += 1
        assert taken == [15, 15]


def test_a_buffer_that_is_freed_as_the_last_copy_begins_is_filled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the garbage collector, say, in the thread that begins the copy."""
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], 8, 2, copies=True)
        assert link.receiver is not None
        with link:
            link.send(np.arange(4))
        held = [link.receive().wait(LONG_S) for _ in range(2)]
        pending = [link.receive() for _ in range(2)]
        begin = link.receiver._begin

        def begins(message: Any, run: list[Segment]) -> None:
            if held:
                held.pop().release()
            begin(message, run)

        monkeypatch.setattr(link.receiver, "_begin", begins)
        held.pop().release()
        assert rows([one.wait(LONG_S) for one in pending]) == [2, 3]


def test_what_is_sent_as_a_receiver_claims_something_else_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the garbage collector, say, which frees a buffer of another output in the same thread."""
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        router = gw.Router([context.host, context.endpoints[1]], context.endpoints[:1], "gather")
        claim, urgent = Offer.claim, [np.array([2])]

        def claims(offer: Offer, most: int) -> list[Segment]:
            if urgent:
                router.input(context.endpoints[1]).send(urgent.pop(), priority=1)
            return claim(offer, most)

        monkeypatch.setattr(Offer, "claim", claims)
        output = router.output(context.endpoints[0])
        pending = output.receive()
        for end in router.inputs:
            with router.input(end) as link:
                if end is context.host:
                    link.send(np.array([1]))
        assert rows([pending.wait(LONG_S)]) + drained(output) == [1, 2]


def test_any_takes_each_once() -> None:
    found = routed("any", 100)
    assert sorted(itertools.chain(*found)) == list(range(100))
    assert all(part == sorted(part) for part in found)


def test_who_is_slow_gets_less() -> None:
    """First-available routing: the schedule is scripted by one thread that receives for both."""
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        slow, fast = context.endpoints
        router = gw.Router([context.host], context.endpoints, "any", packet_bytes=8, buffers=1)
        with router.input(context.host) as link:
            link.send(np.arange(20))
        held = router.output(slow).receive().wait()
        assert drained(router.output(fast)) == list(range(1, 20))
        held.release()
        assert rows([held]) == [0]
        assert drained(router.output(slow)) == []


class LaggingEvent:
    """Of a GPU that has not got there until it is let."""

    def __init__(self, reached: threading.Event) -> None:
        self.reached = reached

    def done(self) -> bool:
        return self.reached.is_set()

    def wait(self) -> None:
        assert self.reached.wait(LONG_S)

    def wait_on(self, stream: Any) -> None:
        pass


class LaggingSpace(HostSpace):
    """Of an endpoint whose work is put into a stream, and done later."""

    stream: Any = "a stream"

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()

    def record_event(self, stream: Any = None) -> Any:
        return LaggingEvent(self.reached)


def test_who_has_not_done_its_work_takes_no_more() -> None:
    """A worker that only puts work into a stream is through its loop at once: its GPU is not."""
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        lagging, other = context.endpoints
        space = LaggingSpace()
        lagging.__dict__["space"] = space
        router = gw.Router(
            [context.host], context.endpoints, "any", packet_bytes=8, buffers=2, copies=True
        )
        found: dict[str, list[int]] = {"cpu:0": [], "cpu:1": []}
        has_begun = threading.Event()

        def work(endpoint: gw.Endpoint) -> None:
            if endpoint is other:
                assert has_begun.wait(LONG_S)
            for segment in router.output(endpoint):
                found[endpoint.name].append(int(segment.array[0]))
                if len(found[endpoint.name]) == 2:
                    has_begun.set()
            if endpoint is other:
                space.reached.set()

        with context.workers() as workers:
            router.input(context.host).send(np.arange(20))
            workers.each(context.endpoints, work)
        assert sorted(found["cpu:0"] + found["cpu:1"]) == list(range(20))
        assert len(found["cpu:0"]) == 2


def test_a_request_takes_one_segment_while_the_gpu_reads_the_other_buffer() -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        lagging = context.endpoints[0]
        reads = [threading.Event() for _ in range(3)]
        order = iter(reads)

        class Space(LaggingSpace):
            def record_event(self, stream: Any = None) -> Any:
                return LaggingEvent(next(order))

        lagging.__dict__["space"] = Space()
        router = gw.Router(
            [context.host], context.endpoints, "any", packet_bytes=8, buffers=2, copies=True
        )
        output = router.output(lagging)
        router.input(context.host).send(np.arange(4))
        for segment in [output.receive().wait(LONG_S) for _ in range(2)]:
            segment.release()
        assert output.statistics.segments == 2
        reads[0].set()
        last = output.receive().wait(LONG_S)
        assert (rows([last]), output.statistics.segments) == ([2], 3)
        for read in reads:
            read.set()
        last.release()


def test_who_asks_waits_on_if_another_took_the_segment() -> None:
    """What iterates over a link takes what is under way without a lock, right before it is handed out."""
    taken = []

    class Robbed(deque[Segment]):
        def popleft(self) -> Segment:
            segment = super().popleft()
            if not taken:
                taken.append(segment)
                raise IndexError
            return segment

    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=64, buffers=4)
        assert link.receiver is not None
        link.receiver._arrived = Robbed()
        pending = link.receive()
        link.send(np.arange(2))
        assert [one.array.tolist() for one in taken] == [[0, 1]]
        link.send(np.arange(3))
        assert pending.wait(LONG_S).array.tolist() == [0, 1, 2]


def test_stale_offers_hold_nothing() -> None:
    """An endpoint that never receives is offered everything, and keeps none of it alive."""
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        idle, busy = context.endpoints
        router = gw.Router([context.host], context.endpoints, "any", packet_bytes=8, buffers=1)
        receiver = router.output(idle).receiver
        assert receiver is not None
        for first in range(0, 3000, 10):
            router.input(context.host).send(np.arange(first, first + 10))
            for _ in range(10):
                router.output(busy).receive().wait().release()
        assert len(receiver._offers) < 200
        router.shutdown()
        assert drained(router.output(idle)) == []


def test_priority_by_metadata() -> None:
    with gw.Context(["cpu:0"]) as context:
        router = gw.Router([context.host], context.endpoints, "priority", packet_bytes=8, buffers=1)
        link = router.input(context.host)
        for value in (1, 5, 3):
            link.send([value], metadata=value)
        link.shutdown()
        assert drained(router.output(context.endpoints[0])) == [5, 3, 1]


def test_gather_waits_for_all_inputs() -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        router = gw.Router(context.endpoints, [context.host], "gather")
        first, second = (router.input(end) for end in context.endpoints)
        first.send([1])
        first.shutdown()
        second.send([2])
        out = router.output(context.host)
        assert rows([out.receive().wait(), out.receive().wait()]) == [1, 2]
        last = out.receive()
        assert not last.done
        second.shutdown()
        with pytest.raises(EndOfLink):
            last.wait()


def test_routers_behind_routers() -> None:
    with gw.Context(["cpu:0", "cpu:1", "cpu:2"]) as context:
        first, second, third = context.endpoints
        behind = gw.Router([], [second, third], "broadcast", packet_bytes=8)
        router = gw.Router([context.host], [first, behind], "round-robin", packet_bytes=16)
        with router.input(context.host) as link:
            assert link.packet_bytes == 8
            link.send(np.arange(6))
        assert drained(router.output(first)) == [0, 2, 4]
        assert drained(behind.output(second)) == [1, 3, 5]
        assert drained(behind.output(third)) == [1, 3, 5]


def test_several_routers_connect_the_same_pair() -> None:
    with gw.Context(["cpu:0"]) as context:
        pair = [context.host], context.endpoints
        routers = [gw.Router(*pair, packet_bytes=8) for _ in range(2)]
        for number, router in enumerate(routers):
            with router.input(context.host) as link:
                link.send([number])
        assert [drained(one.output(context.endpoints[0])) for one in routers] == [[0], [1]]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda segment, source, destinations: [], "returned no destination"),
        (lambda segment, source, destinations: gw.every([]), "returned no destination"),
        (lambda segment, source, destinations: source, "returned host, which is no dest"),
        (lambda segment, source, destinations: 3, "returned 3; it returns endpoints"),
        (lambda segment, source, destinations: ["cpu:0"], "'cpu:0', which is no destination; there"),
        ("ring-fence", "unknown routing policy"),
        (lambda segment: segment, r"called with \(segment, source, destinations\), but takes \(segment\)"),
        (gw.Policy("own", lambda: ()), r"policy 'own' is called with .* takes \(\)"),
        (gw.policies.scatter(lambda segment: 7), r"must be in \[0, 1\), got 7"),
    ],
)  # fmt: skip
def test_policies_that_lead_nowhere(policy: Any, message: str) -> None:
    with gw.Context(["cpu:0"]) as context, pytest.raises(InputError, match=message):
        gw.Router([context.host], context.endpoints, policy).input(context.host).send([1])


def test_a_router_sends_alone_to_what_sends_to_several() -> None:
    with gw.Context(["cpu:0", "cpu:1", "cpu:2"]) as context:
        first, *others = context.endpoints
        behind = gw.Router([], others, "broadcast", name="behind")
        router = gw.Router([context.host], [first, behind], "any")
        with pytest.raises(InputError, match="behind sends it to several: let it go there alone"):
            router.input(context.host).send([1])


# --- Workers.


def test_workers_are_joined_and_links_shut_down() -> None:
    sent = np.arange(1000)
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        host = context.host
        spread = gw.Router([host], context.endpoints, packet_bytes=64)
        collect = gw.Router(context.endpoints, [host])

        def work(endpoint: Any) -> None:
            for segment in spread.output(endpoint):
                with segment:
                    collect.input(endpoint).send(segment.array * 2, metadata=segment.offset)

        with context.workers() as workers:
            workers.each(context.endpoints, work)
            workers.start(host, lambda: spread.input(host).send(sent))
            parts = {one.metadata: one.array.copy() for one in collect.output(host)}
        np.testing.assert_array_equal(
            np.concatenate([parts[key] for key in sorted(parts)]), 2 * sent
        )
        assert threads() == []
        # Another block on the same links: they are shut down.
        with pytest.raises(ClosedLinkError), context.workers() as workers:
            workers.start(host, lambda: spread.input(host).send(sent))


class OwnError(Exception):
    """What a user's worker raises."""


@pytest.mark.parametrize("who", ["device", "host", "body", "policy"])
def test_a_failure_comes_out(who: str) -> None:
    """Of whoever it is; the others, who wait for ever, are told, and all threads have ended."""

    def policy(segment: Segment, source: Any, destinations: Any) -> Any:
        if who == "policy" and segment.offset == 64:
            raise OwnError(who)
        return destinations

    with gw.Context(["cpu:0", "cpu:1"]) as context:
        host = context.host
        spread = gw.Router([host], context.endpoints, policy, packet_bytes=8, buffers=1)
        collect = gw.Router(context.endpoints, [host], packet_bytes=8, buffers=1)
        told: list[BaseException] = []

        def work(endpoint: Any) -> None:
            try:
                for segment in spread.output(endpoint):
                    with segment:
                        if who == "device" and segment.offset == 64:
                            raise OwnError(who)
                        collect.input(endpoint).send(segment.array).wait()
            except DataflowEnded as error:
                told.append(error)
                raise

        def distribute() -> None:
            spread.input(host).send(np.arange(500)).wait()
            if who == "host":
                raise OwnError(who)
            threading.Event().wait(0 if who == "body" else 0.01)

        with pytest.raises(OwnError, match=who), context.workers() as workers:  # noqa: PT012
            workers.each(context.endpoints, work)
            workers.start(host, distribute)
            for segment in collect.output(host):
                if who == "body":
                    raise OwnError(who)
                segment.release()
        assert threads() == []
        with pytest.raises(DataflowEnded):
            spread.input(host).send([1])
    assert context.used_bytes == 0


def test_a_worker_that_ends_too_early() -> None:
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0], packet_bytes=8)

        def impatient() -> None:
            link.receive().wait().release()

        with (  # noqa: PT012
            pytest.raises(DeadWorkerError, match=r"end of host -> cpu:0, with .* segment"),
            context.workers() as workers,
        ):
            workers.start(context.endpoints[0], impatient)
            link.send(np.arange(100)).wait(LONG_S)


def test_others_take_what_a_worker_leaves() -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        first, second = context.endpoints
        router = gw.Router([context.host], context.endpoints, packet_bytes=8, buffers=1)
        found: list[int] = []
        has_ended = threading.Event()

        def one_only() -> None:
            segment = router.output(first).receive().wait()
            found.extend(rows([segment]))
            # Held: its buffer is taken, so that nothing else comes.

        def rest() -> None:
            has_ended.wait(LONG_S)
            found.extend(drained(router.output(second)))

        with context.workers() as workers:
            router.input(context.host).send(np.arange(50))
            workers.start(second, rest)
            workers.start(first, one_only)
            workers._workers[1].join(LONG_S)
            has_ended.set()
        assert sorted(found) == list(range(50))


def test_what_nobody_reads_is_an_error() -> None:
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.endpoints[0], context.host)
        with (
            pytest.raises(DeadWorkerError, match="the end of cpu:0 -> host"),
            context.workers() as workers,
        ):
            workers.start(context.endpoints[0], lambda: link.send([1]).wait())


def test_a_worker_of_the_host_goes_on_behind_the_body() -> None:
    with gw.Context(["cpu:0"]) as context:
        ends = [context.host, *context.endpoints]
        router = gw.Router(ends, ends, "broadcast", packet_bytes=8, buffers=1)
        found: dict[str, list[int]] = {}

        def exchange(endpoint: gw.Endpoint) -> None:
            threading.Event().wait(0.02)
            with router.input(endpoint) as link:
                link.send(np.full(20, ends.index(endpoint)))
            found[endpoint.name] = drained(router.output(endpoint))

        with context.workers() as workers:
            workers.each(ends, exchange)
        assert found == {"host": [1] * 20, "cpu:0": [0] * 20}


def test_a_forgotten_shutdown_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(future, "PATIENCE_S", 0.05)
    with gw.Context(["cpu:0"]) as context:
        (end,) = context.endpoints
        there, back = gw.Link(context.host, end), gw.Link(end, context.host)

        def work() -> None:
            for segment in there:
                back.send(segment.array + 1).wait()

        message = (
            r"all workers have waited .*: cpu:0 for a segment over host -> cpu:0; host for a seg"
        )
        with pytest.warns(UserWarning, match=message), context.workers() as workers:  # noqa: PT031
            workers.start(end, work)
            there.send([1])
            turns = iter(back)
            assert next(turns).array.tolist() == [2]
            threading.Timer(0.5, there.shutdown).start()
            assert list(turns) == []


def test_what_is_sent_to_where_nobody_works_is_an_error() -> None:
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0])
        with pytest.raises(DeadWorkerError, match="end of host -> cpu:0"), context.workers():
            link.send([1])


def test_links_go_on_after_a_block_of_workers() -> None:
    with gw.Context(["cpu:0"]) as context:
        there, back = (
            gw.Link(context.host, context.endpoints[0]),
            gw.Link(context.endpoints[0], context.host),
        )
        with context.workers():
            pass
        with pytest.raises(ClosedLinkError):  # the body was what the host sends
            there.send([1])
        back.send([2])
        assert rows([back.receive().wait(LONG_S)]) == [2]


def test_a_block_leaves_links_of_those_that_work_in_the_next() -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        first, second = context.endpoints
        to_first, back = gw.Link(context.host, first), gw.Link(second, context.host)
        with context.workers() as workers:
            workers.start(first, lambda: [segment.release() for segment in to_first])
            to_first.send([1])
        with context.workers() as workers:
            workers.start(second, back.send, [2])
            assert rows([back.receive().wait(LONG_S)]) == [2]


def test_a_long_chain_of_segments_that_are_passed_on() -> None:
    """To and fro, thousands of times: what is passed on in place waits for no chain of messages."""
    turns = 3000
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        one, other = context.endpoints
        there, back = gw.Link(one, other), gw.Link(other, one)

        def pass_on(link: gw.Link, onward: gw.Link) -> None:
            for segment in link:
                if segment.metadata == turns:
                    there.shutdown()
                    back.shutdown()
                else:
                    onward.send(segment, metadata=segment.metadata + 1)

        first = np.arange(3)
        with context.workers() as workers:
            workers.start(other, pass_on, there, back)
            workers.start(one, pass_on, back, there)
            sent = there.send(first, metadata=0)
        sent.wait(LONG_S)
        assert there.receiver.segments + back.receiver.segments == turns + 1


def test_workers_that_are_refused() -> None:
    with gw.Context(["cpu:0"]) as context, gw.Context(["cpu:0"]) as other:
        router = gw.Router([context.host], context.endpoints)
        workers = context.workers()
        with pytest.raises(InputError, match="started inside their block"):
            workers.start(context.host, print)
        with workers:
            for wrong in (other.host, "cpu:0"):
                with pytest.raises(TopologyError, match="runs on an endpoint of its context, got"):
                    workers.start(wrong, print)  # type: ignore[arg-type]
            with pytest.raises(TopologyError, match="has no worker"):
                workers.start(router, print)
            with pytest.raises(TopologyError, match=r"got cpu:0 alone: write \[endpoint\]"):
                workers.each(context.endpoints[0], print)  # type: ignore[arg-type]
            with pytest.raises(InputError, match="a worker must be a function, got 3"):
                workers.start(context.host, 3)  # type: ignore[arg-type]


def test_an_interruption_ends_the_dataflow() -> None:
    with gw.Context(["cpu:0"]) as context:
        link = gw.Link(context.host, context.endpoints[0])
        with pytest.raises(KeyboardInterrupt), context.workers() as workers:  # noqa: PT012
            workers.start(context.endpoints[0], drained, link)
            raise KeyboardInterrupt
        assert threads() == []


# --- Random dataflow graphs.


@st.composite
def dataflows(draw: st.DrawFn) -> dict[str, Any]:
    """Layers of endpoints with a router between each two; the first layer is the host."""
    devices = draw(st.integers(1, 4))
    depth = draw(st.integers(1, 3))
    layers = []
    for _ in range(depth):
        chosen = draw(
            st.lists(st.integers(0, devices - 1), min_size=1, max_size=devices, unique=True)
        )
        layers.append(chosen)
    # No endpoint may send to itself alone, so layers use devices of their own: (layer, device).
    return {
        "devices": devices,
        "layers": layers,
        "policies": [
            draw(st.sampled_from(["any", "round-robin", "scatter", "broadcast", "priority"]))
            for _ in layers
        ],
        "packets": [draw(st.sampled_from([8, 16, 24, 64])) for _ in range(depth + 1)],
        "buffers": [draw(st.integers(1, 3)) for _ in range(depth + 1)],
        "copies": draw(st.booleans()),
        "messages": draw(st.lists(st.sampled_from([0, 1, 2, 3, 7, 8, 9, 40]), min_size=0, max_size=5)),
        "hold": draw(st.booleans()),
        "sends": draw(st.sampled_from(["copy", "array", "segment"])),
    }  # fmt: skip


def run_dataflow(plan: dict[str, Any], fail_at: int | None = None) -> tuple[list[int], list[int]]:
    """Send messages through all layers, back to the host; what was expected, and what arrived."""
    sizes = plan["messages"]
    total = sum(sizes)
    names = [f"cpu:{index}" for index in range(plan["devices"] * len(plan["layers"]))]
    handled = iter(range(10**9))
    with gw.Context(names) as context:
        host = context.host
        layers = [
            [context.endpoints[depth * plan["devices"] + device] for device in layer]
            for depth, layer in enumerate(plan["layers"])
        ]
        routers = []
        copies = 1
        before = [host]
        for depth, layer in enumerate(layers):
            settings = {"packet_bytes": plan["packets"][depth], "buffers": plan["buffers"][depth]}
            routers.append(
                gw.Router(before, layer, plan["policies"][depth], copies=plan["copies"], **settings)
            )
            copies *= len(layer) if plan["policies"][depth] == "broadcast" else 1
            before = layer
        routers.append(gw.Router(before, [host], "gather", packet_bytes=plan["packets"][-1]))

        def work(endpoint: Any, depth: int) -> None:
            out = routers[depth + 1].input(endpoint)
            held: list[Segment] = []
            for segment in routers[depth].output(endpoint):
                if next(handled) == fail_at:
                    raise OwnError
                sent = {"copy": segment.array.copy(), "array": segment.array, "segment": segment}
                future = out.send(sent[plan["sends"]], metadata=segment.metadata)
                # One may be held while the next is received, if there are buffers for both.
                held.append(segment.hold())
                if not plan["hold"] or len(held) == plan["buffers"][depth]:
                    held.pop(0).release()
                del future
            for segment in held:
                segment.release()

        def distribute() -> None:
            first = 0
            for number, size in enumerate(sizes):
                routers[0].input(host).send(np.arange(first, first + size), metadata=number)
                first += size

        found: list[int] = []
        with context.workers() as workers:
            for depth, layer in enumerate(layers):
                workers.each(layer, work, depth)
            workers.start(host, distribute)
            for segment in routers[-1].output(host):
                with segment:
                    found += segment.array.tolist()
        held_bytes = context.used_bytes
        if not plan["copies"]:
            assert held_bytes == 0
    assert context.used_bytes == 0
    return sorted(list(range(total)) * copies), sorted(found)


@given(dataflows())
def test_every_row_arrives_as_often_as_it_should(plan: dict[str, Any]) -> None:
    expected, found = run_dataflow(plan)
    assert found == expected
    assert threads() == []


@given(dataflows(), st.integers(0, 30))
def test_workers_killed_anywhere_leave_nothing(plan: dict[str, Any], fail_at: int) -> None:
    try:
        expected, found = run_dataflow(plan, fail_at)
    except OwnError:
        pass
    else:
        assert found == expected
    assert threads() == []


@given(st.lists(st.sampled_from([0, 1, 7, 8, 9, 16]), max_size=6), st.integers(1, 3), st.booleans())
def test_segments_of_a_link_stay_in_order(sizes: list[int], buffers: int, copies: bool) -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        ends = context.endpoints
        router = gw.Router(
            [context.host], ends, "any", packet_bytes=64, buffers=buffers, copies=copies
        )
        found: list[list[int]] = [[], []]
        with context.workers() as workers:
            for end in ends:
                workers.start(
                    end, lambda end=end: found[end.index].extend(drained(router.output(end)))
                )
            first = 0
            for size in sizes:
                router.input(context.host).send(np.arange(first, first + size))
                first += size
        assert all(part == sorted(part) for part in found)
        assert sorted(found[0] + found[1]) == list(range(sum(sizes)))


def test_contexts_leak_nothing() -> None:
    def once() -> None:
        with gw.Context(["cpu:0", "cpu:1"]) as context:
            router = gw.Router([context.host], context.endpoints, packet_bytes=64, copies=True)
            with context.workers() as workers:
                workers.each(context.endpoints, lambda end: drained(router.output(end)))
                router.input(context.host).send(np.arange(100))
        assert context.used_bytes == 0

    for _ in range(5):
        once()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(300):
        once()
    gc.collect()
    assert threads() == []
    assert len(gc.get_objects()) - before < 300


# --- The picture, and mixed devices.


def test_the_graph_as_text_and_picture(tmp_path: Any) -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        gw.Router([context.host], context.endpoints, packet_bytes=64, buffers=2, name="spread <1>")
        gw.Router(context.endpoints, [context.host], "gather")
        graph = context.graph()
        assert str(graph).splitlines()[:3] == [
            "endpoints: host, cpu:0, cpu:1",
            "spread <1>: policy any",
            "router 1: policy gather",
        ]
        assert "spread <1> -> cpu:1  2 x 64 bytes" in graph.text
        assert graph.svg.count("<path d=") == 6 + 1  # links, and the tip of an arrow
        assert "spread &lt;1&gt;: any" in graph.svg
        graph.write(tmp_path / "graph.svg")
        assert (tmp_path / "graph.svg").read_text() == graph._repr_svg_()
        graph.write(tmp_path / "graph.txt")
        assert (tmp_path / "graph.txt").read_text() == graph.text
        with pytest.raises(FileError):
            graph.write(tmp_path / "missing" / "graph.svg")


def test_names_of_endpoints() -> None:
    with gw.Context(["cpu:0", "cpu:0", "cpu:1"]) as context:
        assert [str(end) for end in context.endpoints] == [
            "cpu:0 (1 of 2)",
            "cpu:0 (2 of 2)",
            "cpu:1",
        ]
    with pytest.raises(DeviceError):
        gw.Context(["tpu:0"])


# --- Traces.


def test_a_trace_tells_of_workers_segments_and_waits(tmp_path: Any) -> None:
    path = tmp_path / "run.json"
    with gw.Context(["cpu:0"], trace=path) as context:
        router = gw.Router([context.host], context.endpoints, packet_bytes=16, name="spread")
        with context.workers() as workers:
            workers.each(context.endpoints, lambda end: drained(router.output(end)))
            threading.Event().wait(0.01)
            router.input(context.host).send(np.arange(5))
        assert not path.exists()
    found = json.loads(path.read_text())["traceEvents"]
    names = {one["args"]["name"] for one in found if one["name"] == "thread_name"}
    assert names >= {"worker", "wait", "spread -> cpu:0"}
    segments = [one for one in found if one["name"].startswith("rows from")]
    assert [(one["name"], one["args"]["bytes"]) for one in segments] == [
        ("rows from 0", 16),
        ("rows from 2", 16),
        ("rows from 4", 8),
    ]
    assert max(one["dur"] for one in found if one["name"].startswith("a segment over")) > 5_000


def test_a_trace_that_cannot_be_written(tmp_path: Any) -> None:
    with pytest.raises(FileError, match="missing"):
        gw.Context(["cpu:0"], trace=tmp_path / "missing" / "run.json")


def test_endpoints_of_one_device_share_its_memory() -> None:
    memory = np.zeros(64, np.uint8)
    settings: dict[str, Any] = {"packet_bytes": 32, "buffers": 1, "copies": True}
    with gw.Context(["cpu:0", "cpu:0"], pools={"cpu:0": memory}) as context:
        for number, end in enumerate(context.endpoints):
            link = gw.Link(context.host, end, **settings)
            link.send(np.full(32, number + 1, np.uint8))
            link.receive().wait().hold()
        assert memory.tolist() == [1] * 32 + [2] * 32
    message = "packets of 32 bytes do not fit in the pool of 31"
    with gw.Context(["cpu:0"] * 2, memory_bytes=62) as context:
        host, end = context.host, context.endpoints[0]
        with pytest.raises(TopologyError, match=message):
            gw.Link(host, end, **settings)


@pytest.mark.parametrize("policy", ["tree", "one-way"])
@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_a_reduction_over_a_router_ends_by_itself(policy: str, count: int) -> None:
    """Each output when those have ended that send to it: nobody knows how much comes."""
    with gw.Context([f"cpu:{index}" for index in range(count)]) as context:
        ends, host = context.endpoints, context.host
        reduction = gw.Router(ends, ends, policy)
        result = gw.Link(ends[0], host)

        def reduce(endpoint: gw.Endpoint) -> None:
            total = np.full(100, 1 << endpoint.index)
            for segment in reduction.output(endpoint):
                total[segment.offset : segment.offset + len(segment)] += segment.array
            up = reduction.input(endpoint) if endpoint.index else result
            up.send(total).wait()

        with context.workers() as workers:
            workers.each(ends, reduce)
            found = np.concatenate([segment.array for segment in result])
    assert (found == 2**count - 1).all()


def test_a_ring_ends_from_link_to_link() -> None:
    with gw.Context([f"cpu:{index}" for index in range(4)]) as context:
        ends = context.endpoints
        ring = gw.Router(ends, ends, "ring")
        seen: list[int] = []

        def pass_on(endpoint: gw.Endpoint) -> None:
            if endpoint.index == 0:
                with ring.input(endpoint) as link:
                    link.send([0])
            for segment in ring.output(endpoint):
                seen.append(endpoint.index)
                if endpoint.index:
                    ring.input(endpoint).send(segment.array).wait()

        with context.workers() as workers:
            workers.each(ends, pass_on)
    assert seen == [1, 2, 3, 0]


def test_an_output_that_nobody_reaches_ends_at_once() -> None:
    with gw.Context(["cpu:0", "cpu:1", "cpu:2"]) as context:
        ends = context.endpoints
        tree = gw.Router(ends, ends, "tree")
        tree.input(ends[1]).shutdown()
        for leaf in ends[1:]:
            assert list(tree.output(leaf)) == []
        root = tree.output(ends[0]).receive()
        assert not root.done
        tree.input(ends[0]).shutdown()  # which sends to nobody
        assert not root.done
        tree.input(ends[2]).shutdown()
        with pytest.raises(EndOfLink):
            root.wait()


def test_a_router_behind_a_reduction_ends_when_all_of_it_has() -> None:
    with gw.Context(["cpu:0", "cpu:1", "cpu:2"]) as context:
        ends = context.endpoints
        behind = gw.Router([ends[2]], ends[:2], "tree")
        tree = gw.Router(ends, [ends[2], behind], "any")
        for end in ends[:2]:
            tree.input(end).shutdown()
        behind.input(ends[2]).shutdown()
        waiting = [behind.output(end).receive() for end in ends[:2]]
        assert not any(one.done for one in waiting)
        tree.input(ends[2]).shutdown()
        assert all(one.done for one in waiting)


def test_kernels_are_sized_for_gpus() -> None:
    with pytest.raises(InputError, match="kernels are sized for GPUs, got cpu:0"):
        gw.kernel_sizing(32, "cpu:0")


def test_a_buffer_that_is_freed_while_another_thread_claims_is_filled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who claims has taken the only offer out of the queue, and has counted the free buffers already."""
    claim = Offer.claim
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        here, there = context.endpoints
        link = gw.Link(here, there, packet_bytes=8, buffers=2, copies=True)
        link.send(np.arange(4))
        first, second = link.receive().wait(LONG_S), link.receive().wait(LONG_S)
        third, fourth = link.receive(), link.receive()

        def claim_slowly(offer: Offer, most: int) -> list[Segment]:
            monkeypatch.undo()
            other = threading.Thread(target=second.release)
            other.start()
            other.join(LONG_S)
            return claim(offer, most)

        monkeypatch.setattr(Offer, "claim", claim_slowly)
        first.release()
        rows = [pending.wait(LONG_S).array.tolist() for pending in (third, fourth)]
        assert rows == [[2], [3]]


def test_a_segment_whose_array_nobody_has_seen_is_refused_after_the_context() -> None:
    with gw.Context(["cpu:0", "cpu:1"]) as context:
        link = gw.Link(*context.endpoints, copies=True)
        link.send(np.arange(4))
        segment = link.receive().wait(LONG_S)
    with pytest.raises(ClosedContextError, match="segment"):
        segment.array  # noqa: B018
