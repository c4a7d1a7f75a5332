"""The staging pool: what it copies arrives once and whole, in bounded memory, and failures come out.

The GPUs are those of pretend_cuda.py, whose streams do everything after a random while.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from godwit import config
from godwit.errors import DeviceError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.memory import Buffer
from godwit.runtime.cuda.transfer import copies, staging
from godwit.runtime.cuda.transfer.staging import StagedCopy, Way, staging_pool
from pretend_cuda import Machine, host_view, pretended_gpus

PIECE = 512
PEERS = np.ones((2, 2), bool)

needs_gpu = pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")


@pytest.fixture(params=[1, 2, 3])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Two GPUs, and teams of one, two and three threads with six small slots in all."""
    monkeypatch.setattr(staging, "TEAM_SLOTS", 6)
    monkeypatch.setattr(staging, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(staging, "LEAST_PIECE_BYTES", PIECE // 4)
    monkeypatch.setattr(config, "thread_count", lambda: request.param)
    with pretended_gpus(PEERS, request.param) as found:
        yield found
        assert found.faults == []


class Gate:
    """An event that a test makes done, or makes fail."""

    def __init__(self) -> None:
        self.is_open = False
        self.error: Exception | None = None

    def done(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.is_open

    def wait(self) -> None:
        raise AssertionError("nobody may wait for it")

    def wait_on(self, stream: Any) -> None:
        raise AssertionError("nobody may wait for it")


class Later(Gate):
    """An event that is done when it has been asked so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._times = times

    def done(self) -> bool:
        self._times -= 1
        return self._times < 0


def start(way: Way, index: int, to: Any, origin: Any, after: Any = ()) -> StagedCopy:
    """Copy the content of an array to that of another one."""
    nbytes = origin.nbytes
    copy = StagedCopy(way, index, to.ctypes.data, origin.ctypes.data, nbytes)
    return staging_pool().start(copy, after)


def on_gpu(stack: ExitStack, index: int, nbytes: int) -> Any:
    """Bytes of memory of a GPU, as a kernel sees them."""
    buffer = stack.enter_context(Buffer(index, nbytes))
    return host_view(buffer.pointer, nbytes, np.uint8)


def random_bytes(count: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8)


def test_several_threads_copy_all_ways_at_once(machine: Machine) -> None:
    """Sizes around those of pieces; every byte arrives, and none beside it."""
    sizes = [0, 1, 127, 128, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 20 * PIECE + 7]
    wrong: list[Any] = []

    def work(number: int) -> None:
        for turn, size in enumerate(sizes):
            with ExitStack() as stack:
                given, index = random_bytes(size, 31 * number + turn), number % 2
                there = on_gpu(stack, index, size + 1)
                there[:] = 7
                back, again = np.full((2, size + 1), 7, np.uint8)
                start(Way.UP, index, there, given).wait()
                start(Way.DOWN, index, back, there[:size]).wait()
                start(Way.WITHIN_HOST, 0, again, given).wait()
                for found in (there, back, again):
                    if not (np.array_equal(found[:size], given) and found[size] == 7):
                        wrong.append((number, size))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert wrong == []


def test_many_copies_under_way_take_no_more_page_locked_memory(machine: Machine) -> None:
    given = random_bytes(200 * PIECE, 1)
    with ExitStack() as stack:
        targets = [on_gpu(stack, index, given.nbytes) for index in (0, 1)]
        begun = []
        for at in range(0, given.nbytes, 5 * PIECE):
            for index, target in enumerate(targets):
                part = slice(at, at + 5 * PIECE)
                begun.append(start(Way.UP, index, target[part], given[part]))
        assert machine.bytes_on(-1) == 12 * PIECE
        for copy in begun:
            copy.wait()
        for target in targets:
            assert np.array_equal(target, given)
        assert machine.bytes_on(-1) == 12 * PIECE


@pytest.mark.parametrize("gpus", [(0, 1), (0, 2), (2, 1)])
def test_each_of_two_gpus_and_each_direction_of_one_has_threads_of_its_own(
    monkeypatch: pytest.MonkeyPatch, gpus: tuple[int, int]
) -> None:
    """Whichever GPUs the process uses first, in whichever order of their copies."""
    monkeypatch.setattr(staging, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(config, "thread_count", lambda: 2)
    threads: dict[tuple[int, Way], set[int]] = defaultdict(set)
    with pretended_gpus(np.ones((3, 3), bool)) as machine, ExitStack() as stack:
        copy = machine.copy

        def noted(to: int, origin: int, *more: Any) -> None:
            way = Way.DOWN if machine.home(to, 1) == -1 else Way.UP
            index = machine.home(origin if way == Way.DOWN else to, 1)
            threads[index, way].add(threading.get_ident())
            copy(to, origin, *more)

        monkeypatch.setattr(machine, "copy", noted)
        given = random_bytes(40 * PIECE, 1)
        back = np.zeros_like(given)
        for index in (*gpus, *gpus):
            there = on_gpu(stack, index, given.nbytes)
            start(Way.UP, index, there, given).wait()
            start(Way.DOWN, index, back, there).wait()
            assert np.array_equal(back, given)
        assert machine.faults == []
    first, second = gpus
    assert threads[first, Way.UP].isdisjoint(threads[first, Way.DOWN])
    assert threads[first, Way.UP].isdisjoint(threads[second, Way.UP])
    assert threads[first, Way.DOWN].isdisjoint(threads[second, Way.DOWN])


@pytest.mark.parametrize("begin", [0, 1, PIECE // 2, PIECE - 1])
def test_one_thread_writes_a_huge_page_of_the_host(machine: Machine, begin: int) -> None:
    """Pieces into host memory end where pages of their size do, whatever address the copy begins at."""
    memory = np.zeros(8 * PIECE, np.uint8)
    aligned = -memory.ctypes.data % PIECE
    to = memory[aligned + begin : aligned + 4 * PIECE]
    with ExitStack() as stack:
        there = on_gpu(stack, 0, to.nbytes)
        there[:] = random_bytes(to.nbytes, begin)
        before = machine.copies
        start(Way.DOWN, 0, to, there).wait()
        assert machine.copies - before == 4
        assert np.array_equal(to, there)


def test_a_copy_comes_after_its_events_and_holds_up_no_other(machine: Machine) -> None:
    gates = [Gate(), Gate()]
    with ExitStack() as stack:
        there = on_gpu(stack, 0, 4 * PIECE)
        there[:] = 7
        given = random_bytes(4 * PIECE, 1)
        held = start(Way.UP, 0, there, given, gates)
        other = np.zeros_like(given)
        for _ in range(5):
            start(Way.WITHIN_HOST, 0, other, given).wait()
        assert np.array_equal(other, given)
        gates[0].is_open = True
        machine.drain()
        assert not held.done()
        assert (there == 7).all()
        gates[1].is_open = True
        held.wait()
        assert np.array_equal(there, given)


def test_a_bus_that_stands_still_holds_up_no_other(machine: Machine) -> None:
    given, gate = random_bytes(40 * PIECE, 1), threading.Event()
    with ExitStack() as stack:
        stack.callback(gate.set)
        there, other = (on_gpu(stack, index, given.nbytes) for index in (0, 1))
        back = np.zeros_like(given)
        start(Way.UP, 0, there, given[:PIECE]).wait()  # there are streams
        stream = staging_pool()._entered[0][0][Way.UP]
        machine.launch(stream, lambda: gate.wait(60))
        stuck = start(Way.UP, 0, there, given)
        start(Way.UP, 1, other, given).wait()
        start(Way.DOWN, 1, back, other).wait()
        assert np.array_equal(back, given)
        assert not stuck.done()
        gate.set()
        stuck.wait()
        assert np.array_equal(there, given)


def test_what_a_copy_waited_for_fails_it(machine: Machine) -> None:
    gate, given = Gate(), random_bytes(PIECE, 1)
    to = np.zeros_like(given)
    copy = start(Way.WITHIN_HOST, 0, to, given, [gate])
    assert not copy.done()
    gate.error = DeviceError("it failed before")
    copy.settle()
    for _ in range(2):
        with pytest.raises(DeviceError, match="it failed before"):
            copy.wait()
    assert not to.any()
    start(Way.WITHIN_HOST, 0, to, given).wait()
    assert np.array_equal(to, given)


def test_a_copy_that_cannot_be_started_is_finished(machine: Machine) -> None:
    gate, given = Gate(), random_bytes(PIECE, 1)
    gate.error = DeviceError("it failed before")
    copy = StagedCopy(Way.WITHIN_HOST, 0, given.ctypes.data, given.ctypes.data, given.nbytes)
    with pytest.raises(DeviceError, match="it failed before"):
        staging_pool().start(copy, [gate])
    copy.settle()
    with pytest.raises(DeviceError, match="it failed before"):
        copy.done()


@pytest.mark.parametrize("waits", [True, False])
def test_ctrl_c_as_a_copy_starts_leaves_nothing_under_way(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """It comes when the copy has just been queued, behind an event or at the threads."""
    given, gate = random_bytes(50 * PIECE, 1), Gate()
    other = np.zeros_like(given)
    start(Way.WITHIN_HOST, 0, other, given, [Later(1)]).wait()
    pool = staging_pool()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    if waits:
        monkeypatch.setattr(pool._has_waiting, "notify", interrupted)
    else:
        submit = staging._submit
        monkeypatch.setattr(staging, "_submit", lambda *to: (submit(*to), interrupted()))
    to = np.zeros_like(given)
    copy = StagedCopy(Way.WITHIN_HOST, 0, to.ctypes.data, given.ctypes.data, given.nbytes)
    with pytest.raises(KeyboardInterrupt):
        pool.start(copy, [gate] if waits else [])
    assert copy.is_finished
    monkeypatch.undo()
    seen = to.copy()
    gate.is_open = True
    start(Way.WITHIN_HOST, 0, other, given, [Later(3)]).wait()
    assert np.array_equal(to, seen)


def test_ctrl_c_does_not_end_the_wait_for_memory_that_threads_use(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, given = Gate(), random_bytes(PIECE, 1)
    to = np.zeros_like(given)
    copy = start(Way.WITHIN_HOST, 0, to, given, [gate])
    interrupts = iter([KeyboardInterrupt, KeyboardInterrupt])

    def wait(address: int, pauses: int) -> bool:
        if pauses:
            for interrupt in interrupts:
                raise interrupt
            gate.is_open = True
        return real(address, pauses)

    real = staging._await
    monkeypatch.setattr(staging, "_await", wait)
    with pytest.raises(KeyboardInterrupt):
        copy.settle()
    assert np.array_equal(to, given)


def test_a_pool_that_was_closed_starts_nothing(machine: Machine) -> None:
    given = random_bytes(PIECE, 1)
    pool = staging_pool()
    staging.close_pool()
    copy = StagedCopy(Way.WITHIN_HOST, 0, given.ctypes.data, given.ctypes.data, given.nbytes)
    with pytest.raises(DeviceError, match="ended before"):
        pool.start(copy)
    assert copy.is_finished


@pytest.mark.parametrize("way", [Way.UP, Way.DOWN])
@pytest.mark.parametrize("copied", [0, 3])
def test_a_lost_gpu_fails_copies_and_the_pool_goes_on(
    machine: Machine, way: Way, copied: int
) -> None:
    given = random_bytes(50 * PIECE, 1)
    with ExitStack() as stack:
        there = on_gpu(stack, 0, given.nbytes)
        other = np.zeros_like(given)
        start(Way.UP, 0, there, given[:PIECE]).wait()  # there are streams
        machine.copies_left = copied
        ends = (there, given) if way == Way.UP else (other, there)
        copy = start(way, 0, *ends)
        copy.settle()
        for _ in range(2):
            with pytest.raises(
                DeviceError, match=r"copying 25,600 bytes on cuda:0.*IllegalAddress"
            ):
                copy.done()
        machine.copies_left = None
        machine.drain()
        start(Way.UP, 1, on_gpu(stack, 1, given.nbytes), given).wait()
        start(Way.UP, 0, there, given).wait()
        assert np.array_equal(there, given)


def test_threads_end_with_the_pool_and_the_next_copy_makes_another(machine: Machine) -> None:
    def names() -> list[str]:
        found = [one.name for one in threading.enumerate()]
        return sorted(name for name in found if name.startswith("godwit-staging"))

    before = machine.bytes_on(-1)
    given, gate = random_bytes(9 * PIECE, 1), Gate()
    for _ in range(3):
        to = np.zeros_like(given)
        begun = start(Way.WITHIN_HOST, 0, to, given)
        waiting = start(Way.WITHIN_HOST, 0, np.zeros_like(given), given, [gate])
        threads = [f"godwit-staging-{rank}" for rank in range(2 * config.thread_count())]
        assert names() == [*threads, "godwit-staging-order"]
        staging.close_pool()
        assert names() == []
        assert begun.done()
        assert np.array_equal(to, given)
        with pytest.raises(DeviceError, match="ended before"):
            waiting.wait()
        assert machine.bytes_on(-1) == before


def upload_forever(buffer: Buffer, array: Any) -> None:
    while True:
        copies.upload(buffer, array)


def test_ctrl_c_ends_an_upload_when_nothing_is_under_way(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the interrupted copy is the only one that suffers."""
    monkeypatch.setattr(copies, "DIRECT_BYTES", 0)
    given = random_bytes(2000 * PIECE, 1)
    with Buffer(0, given.nbytes) as buffer:
        copies.upload(buffer, given[:PIECE])  # compiled
        timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            upload_forever(buffer, given)
        timer.join()
        seen = machine.copies
        machine.drain()
        assert machine.copies == seen
        back = np.empty_like(given)
        copies.upload(buffer, given)
        copies.download(0, buffer.pointer, back)
        assert np.array_equal(back, given)


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("count", [1, 5_000_001, 300_000_000])
def test_gpus_get_and_return_what_lies_in_ordinary_memory(count: int) -> None:
    given = np.arange(count, dtype=np.uint32).view(np.uint8)
    back = [np.zeros_like(given) for _ in range(driver.device_count())]
    with ExitStack() as stack:
        places = [
            stack.enter_context(Buffer(index, given.nbytes)).pointer for index in range(len(back))
        ]
        pool, address = staging_pool(), given.ctypes.data
        up = [
            pool.start(StagedCopy(Way.UP, index, place, address, given.nbytes))
            for index, place in enumerate(places)
        ]
        for copy in up:
            copy.wait()
        down = [
            pool.start(StagedCopy(Way.DOWN, index, one.ctypes.data, place, given.nbytes))
            for index, (one, place) in enumerate(zip(back, places, strict=True))
        ]
        for copy in down:
            copy.wait()
    for one in back:
        assert np.array_equal(one, given)
