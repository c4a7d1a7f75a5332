"""An array shared by GPUs and CPUs: who takes how much, from rates; nothing twice, nothing left."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from godwit.algorithms import sharing
from godwit.algorithms.filtering import LEAST_PACKET_BYTES, PACKET_BYTES, gpu_packet_bytes
from godwit.algorithms.sharing import SharedArray, cpu_items, feed_cpus, feed_gpus, guided_items

INT32 = np.dtype(np.int32)


def test_a_cpu_takes_what_it_does_while_gpus_do_the_rest() -> None:
    # 900 items: 3 of 4 for the GPUs, as they take a third of the time.
    assert cpu_items(800, 100, 1.0, 3.0, 1, 1000) == 225
    assert cpu_items(800, 100, 1.0, 3.0, 3, 1000) == 150
    assert cpu_items(800, 100, 1.0, 3.0, 1, 200) == 200
    assert cpu_items(30, 970, 1.0, 3.0, 1, 200) == 30
    assert cpu_items(30, 970, 1.0, 3.0, 1, 1000) == 0  # so few are not worth it
    assert cpu_items(0, 970, 1.0, 3.0, 1, 200) == 0
    assert cpu_items(900, 0, 1e-9, 3.0, 1, 200) == 0


def test_a_cpu_takes_little_as_long_as_nobody_knows_how_fast_it_is() -> None:
    for known in ((None, None), (1.0, None), (None, 1.0)):
        assert cpu_items(1600, 0, *known, 1, 1000) == 100
        assert cpu_items(160_000, 0, *known, 1, 1000) == (1000 if known[1] else 125)
        assert cpu_items(1, 0, *known, 1, 1000) == 1
        assert cpu_items(0, 0, *known, 1, 1000) == 0


@pytest.mark.parametrize("takers", [1, 2, 8])
def test_packets_shrink_near_the_end(takers: int) -> None:
    left, sizes = 1_000_000, []
    while left > 0:
        sizes.append(guided_items(left, takers, 10_000, 1_000))
        left -= sizes[-1]
    assert sizes[0] == 10_000
    assert sizes[-1] == 1_000
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) <= 100 + 6 * takers
    assert guided_items(10**9, takers, 10_000, 10_000) == guided_items(1, takers, 10_000, 10_000)


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_packets_of_gpus(gpus: int) -> None:
    sizes = [gpu_packet_bytes(1 << shift, gpus) for shift in range(40)]
    assert sizes[0] == LEAST_PACKET_BYTES
    assert sizes[-1] == PACKET_BYTES
    assert sizes == sorted(sizes)
    assert all(size & (size - 1) == 0 for size in sizes)
    for nbytes in (300_000_000, 1_000_000_007):
        packet = gpu_packet_bytes(nbytes, gpus)
        if LEAST_PACKET_BYTES < packet < PACKET_BYTES:
            assert 8 <= nbytes / (gpus * packet) <= 16
    assert gpu_packet_bytes(2_000_000_000, gpus) == (PACKET_BYTES if gpus <= 2 else 16 << 20)


class Clock:
    """Time that stands as long as one of its threads runs, and then moves on to the first who waits.

    :param threads: how many there are
    """

    def __init__(self, threads: int) -> None:
        self.now = 0.0
        self._running = threads
        self._waiting: list[float] = []
        self._changed = threading.Condition()

    def wait_until(self, then: float) -> None:
        with self._changed:
            if then <= self.now:
                return
            self._waiting.append(then)
            self._pause()
            assert self._changed.wait_for(lambda: self.now >= then, 60)

    def end(self) -> None:
        """A thread ends."""
        with self._changed:
            self._pause()

    def _pause(self) -> None:
        self._running -= 1
        if not self._running and self._waiting:
            self.now = min(self._waiting)
            self._running = self._waiting.count(self.now)
            self._waiting = [then for then in self._waiting if then > self.now]
            self._changed.notify_all()


class _Future:
    def __init__(self, clock: Clock, done_s: float) -> None:
        self._clock = clock
        self._done_s = done_s

    def wait(self) -> None:
        self._clock.wait_until(self._done_s)


class _Link:
    """A link at whose end devices of a kind take their time, each for one message after the other."""

    def __init__(
        self,
        clock: Clock,
        item_s: float,
        devices: int = 1,
        message_s: float = 0,
        uneven: float = 0,
    ) -> None:
        self.sent: list[tuple[int, Any]] = []
        self.is_shut = False
        self._clock = clock
        self._item_s = item_s
        self._message_s = message_s
        self._free_s = [0.0] * devices
        self._uneven = uneven
        self._random = random.Random(1)

    def send(self, items: Any, metadata: int) -> _Future:
        self.sent.append((metadata, items))
        first = self._free_s.index(min(self._free_s))
        begin_s = max(self._clock.now, self._free_s[first])
        speed = 1 + self._uneven * self._random.uniform(-1, 1)
        self._free_s[first] = begin_s + self._message_s + len(items) * self._item_s * speed
        return _Future(self._clock, self._free_s[first])

    def shutdown(self) -> None:
        self.is_shut = True

    @property
    def end_s(self) -> float:
        return max(self._free_s)


def shared_by(
    monkeypatch: pytest.MonkeyPatch,
    array: Any,
    gpu: tuple[float, ...],
    cpu: tuple[float, ...],
    packets: tuple[int, int],
    piece: int,
) -> tuple[SharedArray, _Link, _Link]:
    """The feeders, with devices of given seconds an item, number, seconds a message and unevenness."""
    clock = Clock(2)
    monkeypatch.setattr(sharing, "perf_counter", lambda: clock.now)
    shared = SharedArray(array, INT32)
    gpus, cpus = (_Link(clock, one[0], int(one[1]), *one[2:]) for one in (gpu, cpu))
    spread: Any = SimpleNamespace(
        endpoints=range(int(gpu[1])), packet_items=packets[0], last_items=packets[1], ready=3
    )
    calls: list[tuple[Any, ...]] = [
        (feed_gpus, shared, cast(Any, gpus), spread, int(gpu[1] + cpu[1])),
        (feed_cpus, shared, cast(Any, cpus), piece, int(cpu[1])),
    ]

    def run(feed: Any, *given: Any) -> None:
        try:
            feed(*given)
        finally:
            clock.end()

    threads = [threading.Thread(target=run, args=call) for call in calls]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    return shared, gpus, cpus


SLOWER = [0.3, 0.5, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 50, 100]


@pytest.mark.parametrize("uneven", [0, 0.3])
@pytest.mark.parametrize("times_slower", SLOWER)
@pytest.mark.parametrize(("gpus", "cpus"), [(1, 1), (1, 2), (2, 1), (4, 3)])
def test_all_are_done_at_nearly_the_same_time(
    times_slower: float, gpus: int, cpus: int, uneven: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 GB a GPU, at 50 GB/s, and a tenth of a millisecond a message; counted in MB.

    Within 5 % of the ideal where a CPU is a third as fast as a GPU or less, and GPUs alone never faster.
    """
    size, message_s = 2000 * gpus, 1e-4
    item_s = 1e-3 / 50, 1e-3 / 50 * times_slower
    shared, *links = shared_by(
        monkeypatch,
        np.zeros(size, np.int32),
        (item_s[0], gpus, message_s, uneven),
        (item_s[1], cpus, message_s, uneven),
        (64, 16),
        16,
    )
    gpu_s, cpu_s = item_s[0] + message_s / 64, item_s[1] + message_s / 16
    assert shared.left_items == 0
    taken_s = max(link.end_s for link in links)
    assert taken_s <= (1.1 if uneven else 1.02) * size * gpu_s / gpus
    if times_slower >= 3:
        assert taken_s <= (1.1 if uneven else 1.05) * size / (gpus / gpu_s + cpus / cpu_s)


@pytest.mark.parametrize("kind", ["plain", "strided", "cast", "empty"])
def test_both_take_all_of_it_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(20_000, dtype=np.int32)
    given = {"plain": array, "strided": np.repeat(array, 2)[::2], "cast": array.astype(">i4")}.get(
        kind, array[:0]
    )
    shared, fast, slow = shared_by(monkeypatch, given, (2e-6, 1, 0), (2e-5, 2, 0), (1000, 100), 50)
    assert fast.is_shut
    assert slow.is_shut
    together = sorted(fast.sent + slow.sent, key=lambda sent: sent[0])
    found = np.concatenate([np.empty(0, np.int32), *(items for _, items in together)])
    np.testing.assert_array_equal(found, given)
    assert [begin for begin, _ in together] == np.cumsum(
        [0, *(len(items) for _, items in together)]
    )[:-1].tolist()
    assert all(items.dtype == INT32 for _, items in together)
    if kind != "empty":
        assert shared.gpu_item_s is not None
        assert np.shares_memory(together[0][1], given) == (kind == "plain")


@pytest.mark.parametrize("takers", [1, 3])
@pytest.mark.parametrize("size", [0, 1, 99, 5000, 6000, 6001, 60_000, 61_234])
@pytest.mark.parametrize(("kind", "last"), [("plain", 100), ("cast", 100), ("plain", 1000)])
def test_what_one_router_deals_out_shrinks_as_well(
    kind: str, last: int, size: int, takers: int
) -> None:
    """Packets as they leave the link, which cuts messages."""
    array = np.arange(size, dtype=np.int32)
    link: Any = _Link(Clock(1), 0)
    link.context = SimpleNamespace(endpoints=range(takers))
    spread: Any = SimpleNamespace(
        endpoints=range(takers), packet_items=1000, last_items=last, dtype=INT32
    )
    sharing._distribute(array if kind == "plain" else array.astype(">i4"), link, spread)
    packets = [
        (begin + offset, items[offset : offset + 1000])
        for begin, items in link.sent
        for offset in range(0, len(items), 1000)
    ]
    left = size
    for begin, items in packets:
        assert begin == size - left
        assert len(items) == min(left, guided_items(left, takers, 1000, last))
        np.testing.assert_array_equal(items, array[begin : begin + len(items)])
        left -= len(items)
    assert left == 0
    if kind == "plain":
        assert len(link.sent) <= 1 + 8 * takers
