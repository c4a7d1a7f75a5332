"""An array shared by GPUs and CPUs: who takes how much, from rates; nothing twice, nothing left."""

from __future__ import annotations

import threading
from time import sleep
from typing import Any, cast

import numpy as np
import pytest

from godwit.algorithms import sharing
from godwit.algorithms.filtering import LEAST_PACKET_BYTES, PACKET_BYTES, gpu_packet_bytes
from godwit.algorithms.sharing import SharedArray, feed_cpus, feed_gpus, is_worth_taking

INT32 = np.dtype(np.int32)


def test_a_cpu_takes_a_piece_only_if_gpus_need_longer_for_the_rest() -> None:
    assert is_worth_taking(1, None, None)
    assert is_worth_taking(1, None, 5.0)
    assert is_worth_taking(1, 5.0, None)
    assert not is_worth_taking(0, None, None)
    assert not is_worth_taking(0, None, 5.0)
    assert is_worth_taking(1001, 1e-3, 1.0)
    assert not is_worth_taking(999, 1e-3, 1.0)


@pytest.mark.parametrize("item_s", [1e-6, 1e-3, 1.0])
@pytest.mark.parametrize("times_slower", [0.5, 1, 3, 10, 1000])
def test_never_slower_than_gpus_alone_and_near_the_ideal(
    item_s: float, times_slower: float
) -> None:
    """Played with exact rates: the CPU's pieces are a fortieth of a GPU's packets."""
    left, packet, piece = 100_000, 4000, 100
    gpu_s = cpu_s = 0.0
    piece_s = piece * times_slower * item_s
    while left:
        if cpu_s <= gpu_s and is_worth_taking(left, item_s, piece_s):
            cpu_s += min(left, piece) * times_slower * item_s
            left -= min(left, piece)
        elif gpu_s < cpu_s or not is_worth_taking(left, item_s, piece_s):
            gpu_s += min(left, packet) * item_s
            left -= min(left, packet)
    alone = 100_000 * item_s
    ideal = alone / (1 + 1 / times_slower)
    assert max(gpu_s, cpu_s) <= alone * 1.0001
    assert max(gpu_s, cpu_s) <= ideal + (packet + piece) * item_s


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


class _Future:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def wait(self) -> None:
        sleep(self._seconds)


class _Link:
    """A link at whose end something takes its time."""

    def __init__(self, item_s: float) -> None:
        self._item_s = item_s
        self.sent: list[tuple[int, Any]] = []
        self.is_shut = False

    def send(self, items: Any, metadata: int) -> _Future:
        self.sent.append((metadata, items))
        return _Future(len(items) * self._item_s)

    def shutdown(self) -> None:
        self.is_shut = True


@pytest.mark.parametrize("kind", ["plain", "strided", "cast", "empty"])
def test_both_take_all_of_it_once(kind: str) -> None:
    array = np.arange(20_000, dtype=np.int32)
    given = {"plain": array, "strided": np.repeat(array, 2)[::2], "cast": array.astype(">i4")}.get(
        kind, array[:0]
    )
    shared = SharedArray(given, INT32)
    fast, slow = _Link(2e-6), _Link(2e-5)
    feeders = [
        threading.Thread(target=feed_gpus, args=(shared, cast(Any, fast), 1000, 4)),
        threading.Thread(target=feed_cpus, args=(shared, cast(Any, slow), 50, 2)),
    ]
    for one in feeders:
        one.start()
    for one in feeders:
        one.join()
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


def test_a_cpu_that_would_be_last_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that stands unless somebody waits."""
    now = [0.0]
    monkeypatch.setattr(sharing, "perf_counter", lambda: now[0])

    class Waits(_Future):
        def wait(self) -> None:
            now[0] += self._seconds

    class Link(_Link):
        def send(self, items: Any, metadata: int) -> _Future:
            super().send(items, metadata)
            return Waits(len(items) * self._item_s)

    shared = SharedArray(np.zeros(1000, np.int32), INT32)
    shared.gpu_item_s = 1.0  # all of it: 1000 s
    link = Link(9.0)
    feed_cpus(shared, cast(Any, link), 10, 1)  # 90 s a piece
    # Pieces are taken as long as more than 90 items are left.
    assert shared.left_items == 90
    assert len(link.sent) == 91
