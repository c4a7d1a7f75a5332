"""The compiled mailboxes against a queue: every item arrives once, in order, bit for bit."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from godwit.runtime.cpu.atomics import load_acquire, yield_thread
from godwit.runtime.cpu.compile import Kernel
from godwit.runtime.cpu.team import ABORT, new_control, run_team
from godwit.runtime.cpu.values import FROM_BITS, VALUE_DTYPES
from godwit.worker.cpu.mailbox import (
    Mailboxes,
    arrived,
    credit,
    new_mailboxes,
    publish,
    put,
    release,
    take,
)


def _send(mailboxes: Any, sender: int, receiver: int, keys: Any, values: Any) -> int:
    """Send what fits; how many."""
    items = min(credit(mailboxes, sender, receiver), len(keys))
    for item in range(items):
        put(mailboxes, sender, receiver, item, keys[item], values[item])
    publish(mailboxes, sender, receiver, items)
    return items


def _receive(mailboxes: Any, sender: int, receiver: int, keys: Any, values: Any) -> int:
    """Receive as many as arrays hold, or have arrived; how many."""
    items = min(arrived(mailboxes, sender, receiver), len(keys))
    for item in range(items):
        key, value = take(mailboxes, sender, receiver, item)
        keys[item] = key
        values[item] = value
    release(mailboxes, sender, receiver, items)
    return items


def _exchange(rank: int, size: int, control: Any, mailboxes: Any, values: Any, keys: Any,
              received: Any, burst: int) -> int:  # fmt: skip
    """Send all keys to every other thread while receiving theirs; each sender counts on its own."""
    count = len(keys)
    sent = received[rank, size]  # int64 (size): how far each link is
    mine = received[rank]
    left = 2 * (size - 1) * count
    while left > 0:
        if load_acquire(control, ABORT) != 0:
            return -1
        before = left
        for other in range(size):
            if other == rank:
                continue
            items = min(credit(mailboxes, rank, other), burst, count - sent[other])
            for item in range(items):
                index = sent[other] + item
                put(mailboxes, rank, other, item, keys[index] + rank, values[index])
            if items > 0:
                publish(mailboxes, rank, other, items)
                sent[other] += items
                left -= items
            items = min(arrived(mailboxes, other, rank), burst)
            for item in range(items):
                key, value = take(mailboxes, other, rank, item)
                index = mine[other, 0]
                if key != keys[index] + other or value != values[index]:
                    return 1
                mine[other, 0] = index + 1
            if items > 0:
                release(mailboxes, other, rank, items)
                left -= items
        if left == before:
            yield_thread()
    return 0


def _bound(function: Any, item_bytes: int, dtype: Any) -> Kernel:
    dtype = np.dtype(dtype)
    return Kernel(function).bind(
        ITEM_WORDS=item_bytes // 8, from_bits=FROM_BITS[dtype], VALUE=dtype.type
    )


FORMS = [(16, dtype.name) for dtype in VALUE_DTYPES] + [
    (8, dtype.name) for dtype in VALUE_DTYPES if dtype.itemsize == 4
]
KERNELS = {form: (_bound(_send, *form), _bound(_receive, *form)) for form in FORMS}
each_form = pytest.mark.parametrize(
    "form", FORMS, ids=[f"{dtype}-{item_bytes}" for item_bytes, dtype in FORMS]
)


class Ring:
    """The link from one worker to another."""

    def __init__(self, form: tuple[int, str], capacity: int, devices: int = 2) -> None:
        self.send_kernel, self.receive_kernel = KERNELS[form]
        self.dtype = form[1]
        self.mailboxes: Mailboxes = new_mailboxes(devices, capacity, form[0] // 8)
        self.mailboxes.slots[:] = -1

    def send(self, items: list[tuple[int, Any]], sender: int = 0, receiver: int = 1) -> int:
        keys = np.array([key for key, _ in items], np.int64)
        values = np.array([value for _, value in items], self.dtype)
        sent: int = self.send_kernel(self.mailboxes, sender, receiver, keys, values)
        return sent

    def receive(self, count: int, sender: int = 0, receiver: int = 1) -> list[tuple[int, bytes]]:
        keys, values = np.zeros(count, np.int64), np.zeros(count, self.dtype)
        received = self.receive_kernel(self.mailboxes, sender, receiver, keys, values)
        pairs = zip(keys[:received].tolist(), values[:received], strict=True)
        return [(key, value.tobytes()) for key, value in pairs]


def _extremes(dtype: str) -> list[Any]:
    if np.dtype(dtype).kind == "f":
        limits = np.finfo(dtype)
        return [0.0, -0.0, 1.5, -2.25, limits.max, limits.min, limits.smallest_subnormal,
                float("inf"), float("-inf"), float("nan"), -float("nan")]  # fmt: skip
    integers = np.iinfo(dtype)
    return [0, 1, integers.max, integers.max - 1, integers.min, integers.min + 1, 0x55555555]


@each_form
def test_every_value_travels_bit_for_bit(form: tuple[int, str]) -> None:
    keys = [0, 1, 2**31, 2**32 - 1] if form[0] == 8 else [0, -1, 2**32, 2**63 - 1, -(2**63)]
    items = [(key, value) for key in keys for value in _extremes(form[1])]
    ring = Ring(form, len(items))
    assert ring.send(items) == len(items)
    expected = [(key, np.dtype(form[1]).type(value).tobytes()) for key, value in items]
    assert ring.receive(len(items) + 5) == expected


@pytest.mark.parametrize("form", [(8, "int32"), (16, "float64")], ids=["8", "16"])
@settings(max_examples=80, deadline=None)
@given(
    capacity=st.integers(1, 9),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=60),
)
def test_a_ring_is_a_bounded_queue(
    form: tuple[int, str], capacity: int, steps: list[tuple[bool, int]]
) -> None:
    ring = Ring(form, capacity)
    model: deque[tuple[int, bytes]] = deque()
    number = 0
    for sends, count in steps:
        if sends:
            items = [(number + k, -number - k) for k in range(count)]
            sent = ring.send(items)
            assert sent == min(count, capacity - len(model))
            value_type = np.dtype(form[1]).type
            model.extend((key, value_type(value).tobytes()) for key, value in items[:sent])
            number += sent
        else:
            received = ring.receive(count)
            assert received == [model.popleft() for _ in range(min(count, len(model)))]
    assert ring.receive(100) == list(model)


def test_rings_of_other_pairs_are_other_rings() -> None:
    devices = 4
    ring = Ring((8, "int32"), 3, devices)
    pairs = [(s, r) for s in range(devices) for r in range(devices) if s != r]
    for sender, receiver in pairs:
        assert ring.send([(10 * sender + receiver, k) for k in range(5)], sender, receiver) == 3
    for sender, receiver in pairs:
        received = ring.receive(9, sender, receiver)
        assert [key for key, _ in received] == [10 * sender + receiver] * 3


@pytest.mark.parametrize("form", [(8, "int32"), (16, "float64")], ids=["8", "16"])
@pytest.mark.parametrize("capacity", [1, 2, 7])
def test_threads_exchange_everything_in_order(form: tuple[int, str], capacity: int) -> None:
    size, count = 3, 4000
    keys = np.arange(count) * 7
    values = (np.arange(count) * -3).astype(form[1])
    mailboxes = new_mailboxes(size, capacity, form[0] // 8)
    received = np.zeros((size, size + 1, size), np.int64)
    kernel = _bound(_exchange, *form)
    control = new_control()
    codes = run_team(
        kernel, mailboxes, values, keys, received, capacity + 3, threads=size, control=control
    )
    assert codes == [0] * size
