"""An array shared by GPUs and CPUs: who takes how much, nothing twice, nothing left, all in its place."""

from __future__ import annotations

import heapq
import threading
from time import sleep
from typing import Any

import numpy as np
import pytest

from godwit.algorithms.filtering import cpu as cpu_filtering
from godwit.algorithms.filtering.assembly import PacketShare
from godwit.algorithms.filtering.cpu import SharedFilter
from godwit.algorithms.filtering.gpu_packets import (
    LEAST_PACKET_BYTES,
    PACKET_BYTES,
    _Packets,
    gpu_packet_bytes,
)
from godwit.dataflow.packets import packet_items
from godwit.errors import OperatorError

INT32 = np.dtype(np.int32)


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


@pytest.mark.parametrize("size", [0, 1, 5999, 6000, 6001, 60_000])
@pytest.mark.parametrize("gpus", [1, 3])
def test_packets_grow_smaller_and_none_is_too_small(size: int, gpus: int) -> None:
    items = np.arange(size, dtype=np.int32)
    share = _Packets(items, INT32, PacketShare(size, ordered=True), 1000, gpus)
    sizes = []
    while (taken := share.take()) is not None:
        assert taken[0].begin == sum(sizes)
        sizes.append(len(taken[1]))
    assert sum(sizes) == size
    assert sizes == sorted(sizes, reverse=True)
    assert all(250 <= one <= 1000 for one in sizes[:-1])


@pytest.mark.parametrize("slow", [1, 1.5, 3, 10])
@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_gpus_are_done_at_nearly_the_same_time(gpus: int, slow: float) -> None:
    """3 packets ahead each, the first GPU slower than the others: within a packet of its of the ideal."""
    left, most = 64_000 * gpus, 1000
    item_s = [slow] + [1.0] * (gpus - 1)
    free = [(0.0, index) for index in range(gpus) for _ in range(3)]
    end_s = [0.0] * gpus
    while left:
        now, index = heapq.heappop(free)
        taken = min(left, packet_items(left, most, gpus))
        left -= taken
        end_s[index] = max(now, end_s[index]) + taken * item_s[index]
        heapq.heappush(free, (end_s[index], index))
    ideal_s = 64_000 * gpus / sum(1 / one for one in item_s)
    assert max(end_s) <= ideal_s + 3 * most * slow


@pytest.mark.parametrize("kind", ["plain", "strided", "cast", "empty"])
def test_all_of_it_is_taken_once(kind: str) -> None:
    array = np.arange(20_000, dtype=np.int32)
    given = {"plain": array, "strided": np.repeat(array, 2)[::2], "cast": array.astype(">i4")}.get(
        kind, array[:0]
    )
    packets = _Packets(given, INT32, PacketShare(len(given), ordered=True), 1000, 1)
    taken = []
    while (one := packets.take()) is not None:
        taken.append(one)
    found = np.concatenate([array[:0], *(items for _, items in taken)])
    np.testing.assert_array_equal(found, given)
    assert all(items.dtype == INT32 for _, items in taken)
    if kind != "empty":
        assert np.shares_memory(taken[0][1], given) == (kind == "plain")


# --- Threads of the CPU beside a thread that deals to GPUs.


def together(
    array: Any, room: Any, less: float, threads: int, packet: int, seed: int
) -> SharedFilter:
    """Filtered by both; the dealer's packets are counted in any order, some late."""
    rng = np.random.default_rng(seed)
    shared = SharedFilter(lambda x: x < less, array, room, threads, packet)
    helper = threading.Thread(target=shared.run)
    helper.start()
    held: list[list[Any]] = []
    is_all = False
    try:
        while not (is_all and not held and shared.placed[0] == len(array)):
            if not is_all and len(held) < 100 and rng.random() < 0.5:
                span = shared.take(int(rng.integers(1, packet + 1)))
                is_all = span is None
                if span is not None:
                    held.append([*span, None])
            rng.shuffle(held)
            if held and held[-1][2] is None and rng.random() < 0.7:
                begin, end, _ = held[-1]
                held[-1][2] = kept = array[begin:end][array[begin:end] < less]
                shared.counted(begin, end - begin, len(kept))
            assert shared.advance()
            for one in list(held):
                place = None if one[2] is None else shared.place(one[0])
                if place is not None:
                    room[place : place + len(one[2])] = one[2]
                    held.remove(one)
    except BaseException:
        shared.abort()
        raise
    finally:
        helper.join(60)
    assert not helper.is_alive()
    return shared


@pytest.mark.parametrize("less", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("threads", [1, 3])
def test_both_keep_what_numpy_keeps_in_its_order(less: float, threads: int) -> None:
    for seed, (size, packet) in enumerate([(1, 8), (7000, 8), (50_000, 1000), (300_000, 1 << 20)]):
        array = np.random.default_rng(seed).random(size)
        room = np.full(size + 1, 7.0)
        shared = together(array, room[:-1], less, threads, packet, seed)
        wanted = array[array < less]
        assert shared.placed == (size, len(wanted))
        np.testing.assert_array_equal(room[: len(wanted)], wanted)
        assert room[-1] == 7


def test_rings_go_round_where_gpus_are_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first packet is counted when rings are full, so that threads have had to wait."""
    monkeypatch.setattr(cpu_filtering, "_RING_UNITS", 3)
    array = np.random.default_rng(3).random(90_000)
    room = np.empty_like(array)
    shared = SharedFilter(lambda x: x < 0.9, array, room, 2, 800)
    first = shared.take(800)
    assert first == (0, 800)
    helper = threading.Thread(target=shared.run)
    helper.start()
    try:
        left = shared.left_items
        while left == len(array) - 800 or shared.left_items != left:  # compiling, or counting
            left = shared.left_items
            sleep(0.3)
        assert left > 0
        assert shared.advance()
        assert shared.placed == (0, 0)
        assert shared.left_items == left
        kept = array[:800][array[:800] < 0.9]
        shared.counted(0, 800, len(kept))
        while shared.placed[0] < len(array):
            assert shared.advance()
    except BaseException:
        shared.abort()
        raise
    room[: len(kept)] = kept
    helper.join(60)
    wanted = array[array < 0.9]
    np.testing.assert_array_equal(room[: len(wanted)], wanted)


def test_too_little_room_is_seen() -> None:
    array = np.arange(10_000)
    room = np.full(101, 7)
    shared = SharedFilter(lambda x: x >= 0, array, room[:100], 2, 800)
    helper = threading.Thread(target=shared.run)
    helper.start()
    while shared.advance():
        pass
    assert shared.next_kept > 100
    shared.abort()
    helper.join(60)
    assert not helper.is_alive()
    assert room[100] == 7


def test_what_is_wrong_with_a_predicate_is_said_by_the_cpu() -> None:
    array = np.arange(10_000)
    with pytest.raises(OperatorError, match="returns int64; a predicate returns a boolean"):
        SharedFilter(lambda x: x + 1, array, np.empty_like(array), 2, 800).run()
