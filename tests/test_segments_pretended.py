"""Links that end at GPUs, whose streams do what they are told after random whiles: events alone order them.

The GPUs are pretended (pretend_cuda.py): what is not ordered by an event comes in any order here, which no
fast GPU would show. The same on real ones is in test_segments_gpu.py.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
import threading
import time
import weakref
from contextvars import ContextVar
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import godwit as gw
from godwit.dataflow import workers as workers_module
from godwit.dataflow.cuda import lanes
from godwit.dataflow.cuda.segments import GpuSpace, PinnedSpace
from godwit.dataflow.receiver import Offer
from godwit.errors import DeviceError, InputError, RunTimeoutError
from godwit.runtime.cuda import driver, events, memory
from godwit.runtime.cuda.events import native_stream
from godwit.runtime.cuda.transfer import staging
from godwit.runtime.memory import READY
from pretend_cuda import Machine, gpu_array, pretended_gpus
from pretend_cupy import Array

PEERS = np.ones((2, 2), bool)
STRANGERS = np.eye(2, dtype=bool)
PACKET = 4096
LARGE = 64 << 10

ENDS = ["host", "cuda:0", "cuda:1"]


def at(context: Any, name: str) -> Any:
    return context.host if name == "host" else context.endpoints[ENDS.index(name) - 1]


def values(array: Any) -> Any:
    return array.host if isinstance(array, Array) else array


def source_array(machine: Machine, context: Any, name: str, count: int) -> Any:
    numbers = np.arange(count, dtype=np.int32) + 7
    if name == "host":
        return numbers
    if name == "locked":
        block = context.host.space.allocate(4 * max(1, count))
        view = block.view(np.int32, (count,))
        view[...] = numbers
        return view
    return gpu_array(machine, int(name[-1]), numbers)


def received(machine: Machine, link: Any) -> list[int]:
    """All that comes, as a kernel in the endpoint's stream sees it, a while later."""
    stream = link.target.stream
    seen: list[Any] = []
    for segment in link:
        with segment:
            place = len(seen)
            seen.append(None)

            def look(array: Any = segment.array, place: int = place) -> None:
                seen[place] = values(array).copy()

            if stream is None:
                look()
            else:
                machine.launch(stream, look)
    if stream is not None:
        machine.stream(native_stream(stream)).drain()
    return [int(value) for part in seen for value in part]


@pytest.mark.parametrize("transport", ["direct", "host"])
@pytest.mark.parametrize("access", [PEERS, STRANGERS], ids=["peers", "strangers"])
@pytest.mark.parametrize("target", ENDS)
@pytest.mark.parametrize("source", ["host", "locked", "cuda:0", "cuda:1"])
def test_every_kind_of_memory_reaches_every_other(
    source: str, target: str, access: Any, transport: Any
) -> None:
    for seed, count in enumerate([0, 1, PACKET // 4, PACKET // 4 + 1, 5 * PACKET]):
        with pretended_gpus(access, seed) as machine:
            with gw.Context(["cuda:0", "cuda:1"], transport=transport) as context:
                sender = at(context, "host" if source == "locked" else source)
                if sender is at(context, target):
                    sender = at(context, ENDS[ENDS.index(target) - 1])
                link = gw.Link(sender, at(context, target), packet_bytes=PACKET, buffers=2)
                array = source_array(machine, context, source, count)
                with context.workers() as workers:
                    workers.start(sender, link.send, array)
                    assert received(machine, link) == list(range(7, 7 + count))
            assert machine.faults == []


@pytest.mark.parametrize("source", ["host", "cuda:0"])
@pytest.mark.parametrize("seed", range(3))
def test_pieces_on_the_way_are_not_filled_before_they_are_empty(
    source: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_HOP_BYTES", 512)
    monkeypatch.setattr(staging, "LEAST_PIECE_BYTES", 512)
    monkeypatch.setattr(staging, "PIECE_BYTES", 512)
    monkeypatch.setattr(lanes, "_SMALL_BYTES", 0)
    count = 3 * PACKET
    with pretended_gpus(STRANGERS, seed) as machine:
        with gw.Context(["cuda:0", "cuda:1"]) as context:
            sender = at(context, source)
            link = gw.Link(sender, context.endpoints[1], packet_bytes=4 * PACKET, buffers=3)
            array = source_array(machine, context, source, count)
            with context.workers() as workers:
                workers.start(sender, link.send, array)
                assert received(machine, link) == list(range(7, 7 + count))
        assert machine.faults == []


@pytest.mark.parametrize("seed", range(8))
def test_a_chain_of_kernels_and_copies_keeps_its_order(seed: int) -> None:
    """Host to GPU, a kernel that writes late, to the other GPU, another kernel, and down again."""
    rows, rounds = PACKET // 4, 12
    with pretended_gpus(PEERS, seed) as machine:
        with gw.Context(["cuda:0", "cuda:1"]) as context:
            host, (first, second) = context.host, context.endpoints
            up = gw.Link(host, first, packet_bytes=PACKET, buffers=2)
            across = gw.Link(first, second, packet_bytes=PACKET, buffers=2)
            down = gw.Link(second, host, packet_bytes=PACKET, buffers=2)

            def add_and_pass_on(endpoint: Any, source: Any, target: Any, amount: int) -> None:
                outs = [gpu_array(machine, endpoint.index, np.zeros(rows, np.int32)) for _ in "ab"]
                sent: list[Any] = []
                for number, segment in enumerate(source):
                    out = outs[number % 2]
                    if len(sent) > 1:
                        sent[-2].wait_on(endpoint.stream)
                    with segment:
                        array = segment.array

                        def kernel(out: Any = out, array: Any = array) -> None:
                            out.host[: len(array)] = array.host + amount

                        machine.launch(endpoint.stream, kernel)
                    sent.append(target.send(out[: len(segment.array)]))

            found = []
            with context.workers() as workers:
                workers.start(first, add_and_pass_on, first, up, across, 1000)
                workers.start(second, add_and_pass_on, second, across, down, 20000)
                up.send(np.arange(rows * rounds, dtype=np.int32))
                up.shutdown()
                for segment in down:
                    with segment:
                        found += segment.array.tolist()
        assert machine.faults == []
    assert found == [21000 + number for number in range(rows * rounds)]


@pytest.mark.parametrize("seed", range(4))
def test_a_buffer_is_not_written_to_while_a_slow_kernel_reads_it(seed: int) -> None:
    with pretended_gpus(PEERS, seed, delay_s=2e-3) as machine:
        with gw.Context(["cuda:0"]) as context:
            link = gw.Link(context.host, context.endpoints[0], packet_bytes=64, buffers=2)
            with context.workers() as workers:
                workers.start(context.host, link.send, np.arange(16 * 20, dtype=np.int32))
                assert received(machine, link) == list(range(16 * 20))
        assert machine.faults == []


def test_what_a_users_thread_puts_into_cupys_stream_is_waited_for() -> None:
    """The null stream, which the endpoint's does not wait for."""
    with pretended_gpus(PEERS, delay_s=5e-3) as machine, gw.Context(["cuda:0"]) as context:
        link = gw.Link(context.endpoints[0], context.host)
        array = gpu_array(machine, 0, np.zeros(8, np.int32))

        def late() -> None:
            array.host[...] = 5

        machine.thread.gpu = 0
        gate = threading.Event()
        machine.stream(0).put(lambda: gate.wait(60))
        machine.stream(0).put(late)
        with link:
            link.send(array)
        threading.Timer(0.05, gate.set).start()
        assert [segment.array.tolist() for segment in link] == [[5] * 8]


def test_a_worker_returns_to_the_endpoints_stream_after_a_block_of_another() -> None:
    """What it does then would not wait for the segments that it takes, if it were in the null stream."""
    with pretended_gpus(PEERS), gw.Context(["cuda:0", "cuda:1"]) as context:
        found: list[bool] = []

        def work(endpoint: gw.Endpoint) -> None:
            found.append(endpoint.space.is_current())
            with endpoint.space.entered():
                found.append(endpoint.space.is_current())
            found.append(endpoint.space.is_current())

        for _ in range(3):
            with context.workers() as workers:
                workers.each(context.endpoints, work)
        assert found == [True] * 18


@pytest.mark.parametrize("sender", ENDS)
@pytest.mark.parametrize("is_null", [True, False], ids=["null stream", "stream"])
@pytest.mark.parametrize("is_worker", [True, False], ids=["worker", "body"])
def test_what_has_begun_where_a_worker_is_started_goes_before_it(
    sender: str, is_null: bool, is_worker: bool
) -> None:
    """As ``cupy.asarray`` copies: the array is there before its rows are, on whichever GPU it lies."""
    with pretended_gpus(PEERS) as machine, gw.Context(["cuda:0", "cuda:1"]) as context:
        source = at(context, sender)
        target = context.endpoints[sender != "cuda:1"]
        link = gw.Link(source, target, packet_bytes=PACKET, copies=True)
        array = gpu_array(machine, 0, np.zeros(8, np.int32))
        gate = threading.Event()

        def late() -> None:
            array.host[...] = 5

        with contextlib.ExitStack() as stack:
            machine.thread.gpu = 0
            if not is_null:
                stack.enter_context(sys.modules["cupy"].cuda.Stream())
            current = sys.modules["cupy"].cuda.get_current_stream()
            machine.launch(current, lambda: gate.wait(60))
            machine.launch(current, late)
            timer = threading.Timer(0.05, gate.set)
            timer.start()
            with context.workers() as workers:
                if is_worker:
                    workers.start(source, link.send, array)
                else:
                    link.send(array)
                    link.shutdown()
                assert received(machine, link) == [5] * 8
            timer.join()
        assert machine.faults == []


@pytest.mark.parametrize("what", ["segment", "array", "part"])
@pytest.mark.parametrize("seed", range(4))
def test_segments_are_passed_on_from_gpu_to_gpu(what: str, seed: int) -> None:
    """A loop that sends on what it gets, and goes on: the buffer is not written to before it is read."""
    with pretended_gpus(PEERS, seed) as machine:
        with gw.Context(["cuda:0", "cuda:1"]) as context:
            host, (first, second) = context.host, context.endpoints
            up = gw.Link(host, first, packet_bytes=400)
            across = gw.Link(first, second, packet_bytes=400)
            down = gw.Link(second, host, packet_bytes=400)

            def pass_on(source: Any, target: Any) -> None:
                for segment in source:
                    if what == "segment":
                        target.send(segment)
                    elif what == "array":
                        target.send(segment.array)
                    else:
                        target.send(segment.array[:1])
                        target.send(segment.array[1:])

            found: list[int] = []
            with context.workers() as workers:
                workers.start(first, pass_on, up, across)
                workers.start(second, pass_on, across, down)
                with up:
                    up.send(np.arange(5000, dtype=np.int32))
                for segment in down:
                    threading.Event().wait(1e-4)
                    found += segment.array.tolist()
            assert found == list(range(5000))
            for link in (up, across, down):
                assert len(link.receiver._free) == link.buffers
        assert machine.faults == []


def test_small_arrays_of_ordinary_memory_may_be_written_to_when_the_future_is_done() -> None:
    with pretended_gpus(PEERS) as machine:
        with gw.Context(["cuda:0"]) as context:
            link = gw.Link(context.host, context.endpoints[0], packet_bytes=PACKET, buffers=4)
            seen = []
            for number in range(100):
                array = np.full(16, number, np.int32)
                pending = link.receive()
                link.send(array).wait()
                array[...] = -1
                with pending.wait() as segment:
                    seen.append(int(segment.array.host[-1]))
        assert seen == list(range(100))
        assert machine.faults == []


@pytest.mark.parametrize("devices", [["cuda:0", "cuda:0"], ["cuda:0", "cuda:1", "cpu"]])
def test_endpoints_may_share_a_gpu_and_stand_beside_cpus(devices: list[str]) -> None:
    with pretended_gpus(PEERS) as machine:
        with gw.Context(devices) as context:
            spread = gw.Router([context.host], context.endpoints, packet_bytes=64)
            gather = gw.Router(context.endpoints, [context.host], packet_bytes=64)

            def pass_on(endpoint: Any) -> None:
                for segment in spread.output(endpoint):
                    gather.input(endpoint).send(segment, metadata=segment.offset)

            found = np.zeros(1000, np.int32)
            with context.workers() as workers:
                workers.each(context.endpoints, pass_on)
                spread.input(context.host).send(np.arange(1000, dtype=np.int32))
                spread.input(context.host).shutdown()
                for segment in gather.output(context.host):
                    with segment:
                        begin = segment.metadata + segment.offset
                        found[begin : begin + len(segment)] = segment.array
        assert found.tolist() == list(range(1000))
        assert machine.faults == []


def test_a_mark_of_a_stream_that_has_done_all_takes_no_event() -> None:
    with pretended_gpus(PEERS) as machine:
        space = GpuSpace(0)
        gate, pool = threading.Event(), events.event_pool(0)
        with space.entered():
            assert space.record_event() is READY
            machine.launch(space.stream, lambda: gate.wait(60))
            event = space.record_event()
            assert not event.done()
            assert pool.in_use == 1
            gate.set()
            event.wait()
            machine.drain()
            assert space.record_event() is READY
            del event
            assert pool.in_use == 0
        space.close()
        assert machine.faults == []


def test_a_small_message_takes_few_calls() -> None:
    """Its sender's stream and its receiver's are asked, it is copied, and an event says when."""
    with pretended_gpus(PEERS, delay_s=0) as machine, gw.Context(["cuda:0", "cuda:1"]) as context:
        first, second = context.endpoints
        link = gw.Link(first, second, packet_bytes=PACKET)
        array = gpu_array(machine, 0, np.zeros(PACKET, np.uint8))
        turns = iter(link)
        with second.space.entered():
            link.receive()
            link.send(array)
            next(turns)
            machine.drain()
            machine.calls.clear()
            for _ in range(20):
                with first.space.entered():
                    link.send(array)
                machine.drain()
                next(turns)
        calls = {name: count / 20 for name, count in machine.calls.items()}
        assert calls.pop("cudaMemcpyPeerAsync") == 1
        assert calls.pop("cudaEventRecord") == 1
        assert calls.pop("cudaStreamQuery") <= 2
        assert calls.pop("cudaEventQuery") < 1.25
        assert sum(calls.values()) < 0.5
        turns.close()


@pytest.mark.parametrize("source", ["locked", "cuda:0"])
@pytest.mark.parametrize("target", ["host", "cuda:1"])
@pytest.mark.parametrize("rows", [PACKET // 4, PACKET // 4 - 1], ids=["full", "not full"])
def test_small_packets_are_copied_several_at_a_time(source: str, target: str, rows: int) -> None:
    """Where they fill their buffers, so that these are neighbours without gaps."""
    sender = "host" if source == "locked" else source
    if sender == target:
        pytest.skip("read in place")
    packets = 64
    with pretended_gpus(PEERS, rows) as machine:
        with gw.Context(["cuda:0", "cuda:1"]) as context:
            link = gw.Link(
                at(context, sender), at(context, target), packet_bytes=PACKET, buffers=32
            )
            array = source_array(machine, context, source, packets * rows - 1)
            row = array if rows == PACKET // 4 else None
            with context.workers() as workers:
                if row is None:  # a message of its own for each, smaller than a packet
                    for first in range(0, len(array), rows):
                        link.send(array[first : first + rows])
                    link.shutdown()
                else:
                    workers.start(link.source, link.send, row)
                assert received(machine, link) == list(range(7, 7 + len(array)))
            assert link.statistics.segments == packets
            copies = machine.calls["cudaMemcpyPeerAsync"] + machine.calls["cudaMemcpyAsync"]
            assert copies == packets if row is None else copies <= packets // 4
        assert machine.faults == []


def by_function(segment: Any, source: Any, destinations: Any) -> Any:
    return destinations[0]


@pytest.mark.parametrize("policy", ["any", "gather", by_function])
@pytest.mark.parametrize(("source", "target"), [("locked", 1), ("cuda:0", 0), ("cuda:0", 2)])
def test_routers_to_one_output_copy_several_packets_at_a_time(
    policy: Any, source: str, target: int
) -> None:
    with pretended_gpus(PEERS) as machine:
        with gw.Context(["cuda:0", "cuda:1"]) as context:
            sender = at(context, "host" if source == "locked" else source)
            router = gw.Router([sender], [at(context, ENDS[target])], policy, packet_bytes=LARGE)
            output = router.output(at(context, ENDS[target]))
            assert output.buffers == 96
            array = source_array(machine, context, source, 64 * LARGE // 4 - 5)
            with router.input(sender) as link:
                link.send(array)
            assert received(machine, output) == list(range(7, 7 + len(array)))
            assert output.statistics.segments == 64
            assert machine.copies <= 64 // 4
        assert machine.faults == []


@pytest.mark.parametrize("policy", ["any", "broadcast", "round-robin", "scatter"])
@pytest.mark.parametrize("seed", range(3))
def test_routers_to_several_outputs_share_out_runs_of_packets(policy: str, seed: int) -> None:
    """If they have buffers for that; each output gets what comes to it in order."""
    with pretended_gpus(PEERS, seed) as machine:
        with gw.Context(["cuda:0", "cuda:1"]) as context:
            ends = context.endpoints
            router = gw.Router(
                [context.host], ends, policy, packet_bytes=PACKET, buffers=[6, 16][seed % 2]
            )
            found: dict[str, list[int]] = {}

            def work(end: Any) -> None:
                found[end.name] = received(machine, router.output(end))

            array = source_array(machine, context, "locked", 100 * PACKET // 4 - 3)
            with context.workers() as workers:
                workers.each(ends, work)
                for part in np.array_split(array, [7, 40 * PACKET // 4]):
                    router.input(context.host).send(part)
            parts = [found[end.name] for end in ends]
            assert all(part == sorted(part) for part in parts)
            times = 2 if policy == "broadcast" else 1
            assert sorted(parts[0] + parts[1]) == sorted(list(range(7, 7 + len(array))) * times)
            assert machine.copies <= 101 * times  # of 101 packets
            if policy in ("broadcast", "scatter") or (policy == "any" and seed == 1):
                assert machine.copies < 95 * times
        assert machine.faults == []


def test_a_buffer_is_released_if_the_last_to_claim_is_not_the_last_to_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two receivers share an offer of packets of a segment that is sent on."""
    with pretended_gpus(PEERS) as machine:
        with gw.Context(["cuda:0", "cuda:1"]) as context:
            first, second = context.endpoints
            up = gw.Link(context.host, first, packet_bytes=8 * PACKET, buffers=1)
            router = gw.Router(
                [first], [second, context.host], "any", packet_bytes=PACKET, buffers=12
            )
            slow, fast = router.output(second), router.output(context.host)
            numbers = source_array(machine, context, "locked", 8 * PACKET // 4)
            up.send(numbers)
            segment = up.receive().wait()
            router.input(first).send(segment)
            segment.release()

            rooms = [1]
            assert slow.receiver is not None
            monkeypatch.setattr(slow.receiver, "_room", lambda offer: rooms.pop() if rooms else 0)
            copy = lanes.GpuLane.copy
            others: list[Any] = []

            def copy_last(*arguments: Any) -> Any:
                thread = threading.Thread(target=lambda: others.append(fast.receive()))
                thread.start()
                thread.join()
                return copy(*arguments)

            monkeypatch.setattr(lanes.GpuLane, "copy", copy_last)
            slow.receive().wait()
            monkeypatch.undo()
            assert (slow.statistics.segments, fast.statistics.segments) == (1, 7)
            up.send(numbers)
            up.receive().wait(2)
        assert machine.faults == []


def test_a_release_is_not_lost_while_another_thread_looks_at_the_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which records an event for an earlier release: no other thread takes the buffer until it has."""
    with pretended_gpus(PEERS) as machine:
        with gw.Context(["cuda:0", "cuda:1"]) as context:
            first, second = context.endpoints
            router = gw.Router(
                [context.host], [first, second], "any", packet_bytes=PACKET, buffers=6
            )
            output = router.output(first)
            router.input(context.host).send(source_array(machine, context, "locked", PACKET // 4))
            with context.workers() as workers:
                workers.start(first, lambda: next(iter(output)).release())  # without an event yet
            receiver = output.receiver
            assert receiver is not None
            slot = receiver._free[-1]
            assert slot.recorded is None
            receiver._free.rotate(1)
            record_event = GpuSpace.record_event
            was_free: list[bool] = []

            def try_to_take() -> None:
                was_free.append(receiver._lock.acquire(timeout=0.05))
                if was_free[-1]:
                    receiver._lock.release()

            def look(space: Any, stream: Any = None) -> Any:
                thread = threading.Thread(target=try_to_take)
                thread.start()
                thread.join()
                return record_event(space, stream)

            monkeypatch.setattr(GpuSpace, "record_event", look)
            output.receive()
            assert was_free == [False]
            assert slot.recorded is not None
        assert machine.faults == []


@pytest.mark.parametrize("outputs", [2, 5, 8])
def test_a_short_message_keeps_all_receivers_busy(outputs: int) -> None:
    """However many packets a copy could bring to one of them."""
    with pretended_gpus(PEERS) as machine, gw.Context(["cuda:0"] * outputs) as context:
        router = gw.Router(
            [context.host], context.endpoints, "any", packet_bytes=PACKET, buffers=24
        )
        links = [router.output(endpoint) for endpoint in context.endpoints]
        pendings = [link.receive() for link in links]
        count = 8 * PACKET // 4
        router.input(context.host).send(source_array(machine, context, "locked", count))
        assert sum(pending.wait(2).rows for pending in pendings) >= outputs * PACKET // 4
        assert sum(link.statistics.segments for link in links) == 8


def test_a_message_of_higher_priority_overtakes_what_a_router_has_offered_ahead() -> None:
    with gw.Context(["cpu:0"]) as context:
        router = gw.Router([context.host], context.endpoints, packet_bytes=8, buffers=6)
        with router.input(context.host) as link:
            link.send(np.arange(60), metadata="long")
            link.send(np.arange(1), metadata="urgent", priority=1)
        output = router.output(context.endpoints[0])
        order = [segment.metadata for segment in output]
        assert order.index("urgent") == 6  # behind the buffers that were filled at once
        assert len(order) == 61


def test_a_policy_that_treats_messages_alike_is_asked_once_for_what_is_offered_together() -> None:
    asked: list[int] = []

    def choose(segment: Any, source: Any, destinations: Any) -> Any:
        asked.append(segment.offset)
        assert len(segment.array) == 2
        return destinations

    for by_message in (False, True):
        with gw.Context(["cpu:0"]) as context:
            policy = gw.Policy("mine", choose, by_message=by_message)
            router = gw.Router(
                [context.host], context.endpoints, policy, packet_bytes=16, buffers=4
            )
            with router.input(context.host) as link:
                link.send(np.arange(8))
            output = router.output(context.endpoints[0])
            assert [segment.array.tolist() for segment in output] == [
                [0, 1],
                [2, 3],
                [4, 5],
                [6, 7],
            ]
        assert asked == ([0] if by_message else [0, 2, 4, 6])
        asked.clear()
    with pytest.raises(InputError, match="by_message"):
        gw.Policy("mine", choose, by_message="yes")  # type: ignore[arg-type]


def test_segments_that_several_claim_at_once_are_claimed_once() -> None:
    message: Any = SimpleNamespace(rows=1, segment=lambda number: number)
    offer = Offer(message, range(5, 100_005), 0, (), 1)
    claimed: list[list[int]] = [[] for _ in range(4)]

    def claim(found: list[int], most: int) -> None:
        while some := offer.claim(most):
            assert some == list(range(some[0], some[-1] + 1))
            found += some

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=claim, args=(found, most + 1))
            for most, found in enumerate(claimed)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(itertools.chain(*claimed)) == list(range(5, 100_005))
    assert all(found == sorted(found) for found in claimed)
    assert offer.segments_left == 0


def test_the_memory_of_the_last_segment_goes_with_its_link() -> None:
    """Without the garbage collector: a loop ends by an exception, whose frames might keep it."""
    with pretended_gpus(PEERS) as machine:
        array = gpu_array(machine, 0, np.arange(64 * PACKET // 4, dtype=np.int32))

        def receive(link: Any) -> int:
            count = 0
            for segment in link:
                count += len(segment)
            return count

        gc.disable()
        try:
            for _ in range(3):
                with gw.Context(["cuda:0", "cuda:1"]) as context:
                    link = gw.Link(*context.endpoints, packet_bytes=PACKET, buffers=32)
                    with link:
                        link.send(array)
                    assert receive(link) == len(array)
            assert machine.calls["cudaMalloc"] == 1
        finally:
            gc.enable()


_variable: ContextVar[str] = ContextVar("_variable", default="unset")


def test_workers_beside_gpus_run_in_kept_threads() -> None:
    """Which a later worker does not notice."""
    seen: list[tuple[int, str, str]] = []

    def work() -> None:
        seen.append((threading.get_ident(), threading.current_thread().name, _variable.get()))
        _variable.set("set")

    with pretended_gpus(PEERS):
        for _ in range(3):
            with gw.Context(["cuda:0"]) as context, context.workers() as workers:
                workers.start(context.endpoints[0], work)
    assert len({thread for thread, _, _ in seen}) == 1
    assert {(name, value) for _, name, value in seen} == {("godwit-worker-cuda:0", "unset")}
    assert not [one.name for one in threading.enumerate() if "worker" in one.name]


def test_a_thread_whose_worker_could_not_be_called_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Nameless:
        @property
        def __name__(self) -> str:
            raise ValueError("no name")

        def __call__(self) -> None:
            pass

    ran: list[int] = []
    monkeypatch.setattr(threading, "excepthook", lambda raised: None)
    with pretended_gpus(PEERS), gw.Context(["cuda:0"]) as context:
        with context.workers() as workers:
            workers.start(context.endpoints[0], Nameless())
        context.cancel_scope.participants.clear()
        with context.workers() as workers:
            workers.start(context.endpoints[0], ran.append, 1)
    assert ran == [1]


def test_a_block_that_has_ended_keeps_no_arguments_of_its_workers() -> None:
    class Argument:
        pass

    argument: Any = Argument()
    kept = weakref.ref(argument)
    with pretended_gpus(PEERS), gw.Context(["cuda:0"]) as context:
        with context.workers() as workers:
            workers.start(context.endpoints[0], id, argument)
        del argument
        assert kept() is None
        assert workers is not None


def test_a_worker_whose_start_was_interrupted_ends() -> None:
    """Ctrl-C came before its thread, a kept one, was told of it."""
    ran: list[int] = []
    with pretended_gpus(PEERS), gw.Context(["cuda:0"]) as context:
        with context.workers() as workers:
            workers.start(context.endpoints[0], int)
        begin = workers_module._Thread.begin
        with pytest.MonkeyPatch.context() as patch:

            def interrupted(thread: Any, worker: Any) -> None:
                patch.undo()
                raise KeyboardInterrupt

            patch.setattr(workers_module._Thread, "begin", interrupted)
            with pytest.raises(KeyboardInterrupt), context.workers() as workers:
                workers.start(context.endpoints[0], ran.append, 1)
        assert workers_module._Thread.begin is begin
        assert ran == []
    assert not [one.name for one in threading.enumerate() if "worker" in one.name]


def test_segments_that_end_within_a_row_of_buffers_are_not_neighbours() -> None:
    """Rows of 12 bytes leave a gap at the end of each packet."""
    with pretended_gpus(PEERS) as machine:
        with gw.Context(["cuda:0", "cuda:1"]) as context:
            link = gw.Link(*context.endpoints, packet_bytes=PACKET, buffers=32)
            array = source_array(machine, context, "cuda:0", 3 * 5000).reshape(5000, 3)
            with context.workers() as workers:
                workers.start(link.source, link.send, array)
                rows: list[Any] = []
                for segment in link:
                    machine.drain()
                    rows += values(segment.array).reshape(-1).tolist()
            assert rows == list(range(7, 7 + 15000))
        assert machine.faults == []


def test_buffers_in_limited_memory_are_no_more_than_before() -> None:
    with pretended_gpus(PEERS) as machine:
        with gw.Context(["cuda:0"], memory_bytes={"cuda:0": 3 * LARGE}) as context:
            link = gw.Link(context.host, context.endpoints[0], packet_bytes=LARGE)
            assert link.buffers == 3
            with link:
                link.send(np.arange(2 * LARGE, dtype=np.int32))
            assert received(machine, link) == list(range(2 * LARGE))
        assert machine.faults == []


@pytest.mark.parametrize("ends", list(itertools.permutations(ENDS, 2)), ids="-".join)
@pytest.mark.parametrize(
    ("packet", "of_host", "of_gpus"),
    [(4096, 3, 3), (LARGE, 96, 96), (4 << 20, 6, 48), (16 << 20, 3, 12)],
)
def test_buffers_by_default_suit_what_is_copied_at_once(
    ends: tuple[str, str], packet: int, of_host: int, of_gpus: int
) -> None:
    with pretended_gpus(PEERS), gw.Context(["cuda:0", "cuda:1"]) as context:
        link = gw.Link(*(at(context, end) for end in ends), packet_bytes=packet)
        assert link.buffers == (of_host if "host" in ends else of_gpus)


@pytest.mark.parametrize("source", ["locked", "cuda:0"])
def test_large_packets_arrive_in_order_over_a_link_as_it_is_by_default(source: str) -> None:
    with pretended_gpus(PEERS) as machine:
        with gw.Context(["cuda:0", "cuda:1"]) as context:
            sender = at(context, "host" if source == "locked" else source)
            link = gw.Link(sender, context.endpoints[1], packet_bytes=LARGE)
            array = source_array(machine, context, source, 50 * LARGE // 4 - 5)
            with link:
                link.send(array)
            assert received(machine, link) == list(range(7, 7 + len(array)))
            assert machine.copies < 50 / 2
        assert machine.faults == []


def test_the_end_of_a_message_does_not_wait_for_more_buffers() -> None:
    """Its sender may wait for it, in the thread that receives, too."""
    with pretended_gpus(PEERS) as machine:
        with gw.Context(["cuda:0", "cuda:1"]) as context:
            link = gw.Link(*context.endpoints, packet_bytes=PACKET, buffers=32)
            array = source_array(machine, context, "cuda:0", 36 * PACKET // 4)
            future = link.send(array)
            turns = iter(link)
            for _ in range(3):
                next(turns).release()
                assert link.statistics.segments == link.buffers == 32
            next(turns).release()
            assert link.statistics.segments == 36
            future.wait(60)
            link.shutdown()
            assert len(list(turns)) == 32
        assert machine.faults == []


def test_what_is_asked_for_does_not_wait_for_more_buffers() -> None:
    with pretended_gpus(PEERS) as machine:
        with gw.Context(["cuda:0", "cuda:1"]) as context:
            link = gw.Link(*context.endpoints, packet_bytes=PACKET, buffers=32)
            link.send(source_array(machine, context, "cuda:0", 80 * PACKET // 4))
            turns = iter(link)
            segments = [next(turns).hold() for _ in range(link.buffers - 1)]
            for segment in segments[:2]:
                segment.release()
            assert link.statistics.segments == link.buffers
            segments.append(next(turns).hold())
            segments.append(next(turns).hold())  # nothing else had arrived
            assert link.statistics.segments == link.buffers + 2
            for segment in segments:
                segment.release()
            link.shutdown()
            assert len(list(turns)) == 80 - len(segments)
        assert machine.faults == []


@pytest.mark.parametrize("how", ["loop", "own stream", "future", "passed on"])
@pytest.mark.parametrize("messages", [1, 100])
def test_neighbours_are_not_written_to_before_the_first_of_them_is_read(
    how: str, messages: int
) -> None:
    """A kernel still reads one buffer, however it was released, of which a copy fills one or several."""
    rows = PACKET // 4
    count = 100 * rows
    with pretended_gpus(PEERS) as machine:
        with gw.Context(["cuda:0", "cuda:1"]) as context:
            link = gw.Link(*context.endpoints, packet_bytes=PACKET, buffers=32)
            down = gw.Link(link.target, context.host, packet_bytes=PACKET)
            array = source_array(machine, context, "cuda:0", count)
            with link:
                for first in range(0, count, count // messages):
                    link.send(array[first : first + count // messages])
            stream = link.target.stream
            gate, seen = threading.Event(), [0]
            with link.target.space.entered():
                turns = iter(link)
                segment = link.receive().wait_on(stream) if how == "future" else next(turns)
                if how == "passed on":
                    down.send(segment)
                with contextlib.ExitStack() as stack:
                    if how == "own stream":
                        segment.wait()
                        stream = stack.enter_context(sys.modules["cupy"].cuda.Stream())
                    part = segment.array
                    machine.launch(stream, lambda: gate.wait(60))
                    machine.launch(stream, lambda: seen.extend(part.host))
                    segment.release()
                if how == "passed on":
                    down.receive().wait(60).release()
                assert sum(len(segment) for segment in turns) == count - rows
            time.sleep(0.05)  # for copies that do not wait
            gate.set()
            machine.drain()
            assert seen[1:] == list(range(7, 7 + rows))
        assert machine.faults == []


def test_neighbours_do_not_wait_for_the_current_stream_of_who_sends() -> None:
    """Only for what the receiver's stream held as they were released."""
    with pretended_gpus(PEERS) as machine:
        with gw.Context(["cuda:0", "cuda:1"]) as context:
            link = gw.Link(*context.endpoints, packet_bytes=PACKET, buffers=32)
            array = source_array(machine, context, "cuda:0", link.buffers * PACKET // 4)
            link.send(array)
            with link.target.space.entered():
                turns = iter(link)
                for _ in range(link.buffers):
                    next(turns).release()
            gate = threading.Event()
            machine.thread.gpu = 1
            machine.stream(0).put(lambda: gate.wait(60))
            try:
                link.send(array).wait(5)
            finally:
                gate.set()
        assert machine.faults == []


def test_a_thread_that_waits_gets_the_first_buffer_that_is_released() -> None:
    with pretended_gpus(PEERS) as machine:
        with gw.Context(["cuda:0", "cuda:1"]) as context:
            link = gw.Link(*context.endpoints, packet_bytes=PACKET, buffers=32)
            link.send(source_array(machine, context, "cuda:0", 80 * PACKET // 4))
            held = [link.receive().wait(60) for _ in range(link.buffers)]
            pending = link.receive()
            assert link.statistics.segments == link.buffers
            held[0].release()
            assert pending.wait(60).offset == link.buffers * PACKET // 4
        assert machine.faults == []


@pytest.mark.parametrize("packets", [40, 400])
def test_a_packet_asks_for_few_events_however_far_the_gpu_is_behind(packets: int) -> None:
    with pretended_gpus(PEERS, delay_s=0) as machine:
        with gw.Context(["cuda:0", "cuda:1"]) as context:
            link = gw.Link(*context.endpoints, packet_bytes=64)
            array = source_array(machine, context, "cuda:0", packets * 16)
            gate = threading.Event()
            machine.launch(context.endpoints[0].stream, lambda: gate.wait(60))
            machine.calls.clear()
            with link:
                future = link.send(array)
            with context.endpoints[1].space.entered():
                for segment in link:
                    segment.release()
            assert not future.done
            queries = machine.calls["cudaEventQuery"] + machine.calls["cudaStreamQuery"]
            assert queries <= 6 * packets
            gate.set()
            future.wait(60)
        assert machine.faults == []


@pytest.mark.parametrize("copies", [1, 2, 5, 10, 20])
def test_gpus_that_are_lost_end_the_dataflow(copies: int) -> None:
    """By one exception; all workers are joined, and all buffers given back."""
    with pretended_gpus(PEERS, copies) as machine:
        context = gw.Context(["cuda:0", "cuda:1"])

        def flow() -> None:
            host, (first, second) = context.host, context.endpoints
            up = gw.Link(host, first, packet_bytes=400, buffers=2)
            across = gw.Link(first, second, packet_bytes=400, buffers=2)
            down = gw.Link(second, host, packet_bytes=400, buffers=2)

            def pass_on(source: Any, target: Any) -> None:
                for segment in source:
                    target.send(segment)

            with context, context.workers() as workers:
                workers.start(first, pass_on, up, across)
                workers.start(second, pass_on, across, down)
                with up:
                    up.send(np.arange(5000, dtype=np.int32))
                for _ in down:
                    pass

        machine.copies_left = copies
        with pytest.raises(DeviceError, match=r"cuda:[01].*cudaErrorIllegalAddress"):
            flow()
        assert not [one.name for one in threading.enumerate() if "worker" in one.name]
        gc.collect()  # nothing is raised by what is left of the loops
        assert context.used_bytes == 0
        machine.copies_left = None
        assert machine.faults == []


def test_contexts_leave_nothing_behind() -> None:
    with pretended_gpus(PEERS) as machine:
        left = []
        before = set(threading.enumerate())  # teams of other tests
        for _ in range(10):
            with gw.Context(["cuda:0", "cuda:1"]) as context:
                up = gw.Link(context.host, context.endpoints[0], packet_bytes=PACKET)
                across = gw.Link(*context.endpoints, packet_bytes=PACKET, buffers=32)
                with up:
                    up.send(np.arange(50_000, dtype=np.int32))
                assert sum(len(segment) for segment in up if not segment.release()) == 50_000
                with across:
                    across.send(gpu_array(machine, 0, np.arange(9)))
                assert [len(segment) for segment in across] == [9]
            machine.held = {key: held for key, held in machine.held.items() if held[1] != 72}
            gc.collect()
            streams = [number for number in machine.streams if number > 2]
            in_use = [events.event_pool(index).in_use for index in (0, 1)]
            others = set(threading.enumerate()) - before
            names = [one.name for one in others if one.name.startswith("godwit")]
            threads = [name for name in names if not name.startswith("godwit-staging")]
            left.append(
                (
                    machine.bytes_on(0),
                    machine.bytes_on(1),
                    machine.bytes_on(-1),
                    in_use,
                    threads,
                    streams,
                )
            )
        assert left[1:] == [left[1]] * 9
        for index in (0, 1):
            assert 0 < memory._KEPT.kept_bytes(index) <= left[1][index]
            memory.free_kept(index)
            # Under an array that a traceback still had.
            assert machine.bytes_on(index) <= 2 * PACKET
        assert left[1][3:5] == ([0, 0], [])
        assert machine.faults == []


@pytest.mark.parametrize("given", [False, True])
def test_a_pool_with_a_limit_gives_what_it_has_and_takes_it_back(given: bool) -> None:
    with pretended_gpus(PEERS) as machine:
        memory = gpu_array(machine, 0, np.zeros(8 * 512, np.uint8)) if given else None
        space = GpuSpace(0, None if given else 8 * 512 + 100, memory)
        random = np.random.default_rng(1)
        blocks: list[Any] = []
        for _ in range(500):
            if blocks and random.random() < 0.5:
                blocks.pop(random.integers(len(blocks))).free()
            else:
                with contextlib.suppress(InputError):
                    blocks.append(space.allocate(int(random.integers(1, 3 * 512))))
            spans = sorted((block.view(np.uint8, (1,)).data.ptr, block.size) for block in blocks)
            assert all(a + size <= b for (a, size), (b, _) in pairwise(spans))
            assert space.used_bytes == sum(size for _, size in spans)
        for block in blocks:
            block.free()
            block.free()
        whole = space.allocate(8 * 512)  # in one piece again
        with pytest.raises(InputError, match=r"does not fit in the pool of cuda:0, 4\.0 KiB"):
            space.allocate(1)
        whole.free()
        with pytest.raises(InputError, match="has no room"):
            space.allocate(10).view(np.int64, (2,))
        space.close()
        space.close()
        assert machine.bytes_on(0) == (8 * 512 if given else 0)


def test_the_hosts_pool_stays_within_its_limit() -> None:
    with pretended_gpus(PEERS) as machine:
        space = PinnedSpace(10_000)
        blocks = [space.allocate(4096), space.allocate(4096)]
        with pytest.raises(InputError, match=r"of which 1\.8 KiB are left"):
            space.allocate(4096)
        for block in blocks:
            block.free()
        whole = space.allocate(9_000)  # what was kept of other sizes has made room
        assert space.used_bytes == 9216
        array = whole.view(np.uint8, (9_000,))
        array[...] = 3
        place = array.ctypes.data
        whole.free()
        del whole
        space.close()
        other = PinnedSpace()
        held = other.allocate(9_000).view(np.uint8, (9_000,))
        assert not np.shares_memory(held, array)
        assert (array == 3).all()  # it lives as long as somebody has it
        del array
        again = other.allocate(9_000).view(np.uint8, (9_000,))
        assert again.ctypes.data == place  # and is for others then
        assert machine.home(place, 9_000) == -1
        del again, held
        other.close()
        assert machine.faults == []


def test_a_pool_of_ordinary_memory_is_page_locked_meanwhile() -> None:
    with pretended_gpus(PEERS) as machine:
        memory = np.zeros(4096, np.uint8)
        space = PinnedSpace(memory=memory)
        assert machine.home(memory.ctypes.data, 4096) == -1
        space.allocate(100).view(np.uint8, (100,))[...] = 1
        assert memory[:100].all()
        space.close()
        assert machine.home(memory.ctypes.data) is None
        with pytest.raises(InputError, match="writable NumPy array"):
            PinnedSpace(memory=[1, 2])


def test_what_fails_as_it_closes_keeps_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise DeviceError("the GPU failed")

    with pretended_gpus(PEERS) as machine:
        space = GpuSpace(0)
        block = space.allocate(PACKET)
        view = block.view(np.uint8, (PACKET,))
        lane = space.lane()
        kept, spare = memory.pinned_kept_bytes(), len(lanes._spare_streams.get(0, []))
        lane.copy(np.zeros(PACKET, np.uint8), block.address, ()).wait()
        with monkeypatch.context() as patch:
            patch.setattr(driver.Stream, "synchronize", fails)
            with pytest.raises(DeviceError, match="the GPU failed"):
                lane.close()
        lane.close()
        assert memory.pinned_kept_bytes() > kept
        assert len(lanes._spare_streams[0]) == spare + 1
        given = np.zeros(PACKET, np.uint8)
        pinned = PinnedSpace(memory=given)
        pinned.allocate(100)
        with monkeypatch.context() as patch:
            patch.setattr(type(pinned._pool), "close", fails)
            with pytest.raises(DeviceError, match="the GPU failed"):
                pinned.close()
        assert machine.home(given.ctypes.data) is None
        del view
        block.free()
        space.close()


def test_who_waits_for_a_buffer_that_a_gpu_still_reads_heeds_a_time_out() -> None:
    """Others could take what comes, so nobody takes it ahead."""
    with pretended_gpus(PEERS) as machine, gw.Context(["cuda:0", "cuda:1"]) as context:
        first, second = context.endpoints
        spread = gw.Router([context.host], [first, second], "any", packet_bytes=64, buffers=1)
        with spread.input(context.host) as link:
            link.send(np.arange(16 * 3, dtype=np.int32))
        out, gate = spread.output(first), threading.Event()
        with first.space.entered():
            segment = out.receive().wait_on(first.stream)
            machine.launch(first.stream, lambda: gate.wait(60))
            segment.release()
            pending, behind = out.receive(), out.receive()
            assert not pending.done
            with pytest.raises(RunTimeoutError, match=r"not there after 0\.02 s"):
                pending.wait(0.02)
            assert out.statistics.segments == 1
            gate.set()
            with pending.wait(60) as segment:
                assert values(segment.array)[0] == 16
            machine.drain()
            assert bool(behind.done)
            with behind.wait(60) as segment:
                assert values(segment.array)[0] == 32
            assert list(out) == []
        assert machine.faults == []


def test_copies_are_on_the_timeline(tmp_path: Any) -> None:
    import json

    path = tmp_path / "t.json"
    with pretended_gpus(PEERS), gw.Context(["cuda:0", "cuda:1"], trace=path) as context:
        link = gw.Link(context.host, context.endpoints[1], packet_bytes=PACKET)
        with link:
            link.send(np.arange(5000, dtype=np.int32))
        for segment in link:
            segment.release()
    events = json.loads(path.read_text())["traceEvents"]
    copies = [one for one in events if one.get("args", {}).get("gb_per_s")]
    assert sum(one["args"]["bytes"] for one in copies) == 20000
    assert all(one["dur"] > 0 for one in copies)
