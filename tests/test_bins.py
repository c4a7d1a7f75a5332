"""The compiled queues against Python's deques: any sequence of pushes, pops and growth, no item lost.

The model of a run of operations is the list of deques that the docstring of bins.py describes; which
chunk an item lies in is invisible, and so are chunks: room is all that is left of them.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from godwit.runtime.cpu.compile import Kernel
from godwit.runtime.cpu.values import FROM_BITS
from godwit.worker.cpu import bins as bins_module
from godwit.worker.cpu.bins import (
    BASE,
    BUCKETS,
    CHUNK_ITEMS,
    FAR,
    FREE_COUNT,
    NO_BUCKET,
    OUTBOX,
    OVERFLOWED,
    URGENT,
    WAITING,
    Bins,
    advance_base,
    bucket_of,
    clear_bins,
    grown_bins,
    has_room,
    lowest_bucket,
    new_bins,
    peek_key,
    pop_bin,
    push_bin,
    push_bucket,
)

DEVICES = 3

# What a script may contain: (operation, argument, key, value).
PUSH = 0  # a bucket
PUSH_OUT = 1  # into the outbox of a device
POP = 2  # from a bin
LOWEST = 3
ADVANCE = 4  # the base to a bucket
ROOM = 5  # for so many pushes
PEEK = 6  # so many items behind the first of a bin


def _run_script(bins: Any, script: Any, values: Any, keys: Any, out: Any, out_values: Any) -> int:
    """Run the operations; one that answers with a number or an item writes it into ``out``."""
    for step in range(len(script)):
        operation = script[step, 0]
        argument = script[step, 1]
        if operation == PUSH:
            push_bucket(bins, argument, keys[step], values[step])
        elif operation == PUSH_OUT:
            push_bin(bins, OUTBOX + argument, keys[step], values[step])
        elif operation == POP:
            key, value = pop_bin(bins, argument)
            out[step] = key
            out_values[step] = value
            if argument < OUTBOX:
                bins.header[WAITING] -= 1
        elif operation == LOWEST:
            out[step] = lowest_bucket(bins)
        elif operation == ADVANCE:
            out[step] = advance_base(bins, argument)
        elif operation == ROOM:
            out[step] = has_room(bins, argument)
        elif operation == PEEK:
            out[step] = peek_key(bins, argument, script[step, 2])
    return 0


def _bucket_of_value(buckets_per_unit: float, value: Any) -> int:
    return bucket_of(value, buckets_per_unit)


def _kernel(item_bytes: int, dtype: str) -> Kernel:
    return Kernel(_run_script).bind(
        ITEM_WORDS=item_bytes // 8,
        from_bits=FROM_BITS[np.dtype(dtype)],
        item_bucket=_bucket_of_value,
        VALUE=np.dtype(dtype).type,
    )


KERNELS = {8: (_kernel(8, "int32"), "int32"), 16: (_kernel(16, "float64"), "float64")}
each_size = pytest.mark.parametrize("item_bytes", KERNELS)


class Queues:
    """Compiled queues, driven a step at a time."""

    def __init__(self, item_bytes: int, capacity_items: int) -> None:
        self.kernel, self.dtype = KERNELS[item_bytes]
        self.item_words = item_bytes // 8
        self.bins: Bins = new_bins(DEVICES, capacity_items, self.item_words)

    def run(self, steps: list[tuple[int, int, int, Any]]) -> list[tuple[int, Any]]:
        """The answers (number or key, value) to steps (operation, argument, key or number, value)."""
        count = len(steps)
        script = np.zeros((count, 3), np.int64)
        keys = np.zeros(count, np.int64)
        values = np.zeros(count, self.dtype)
        for index, (operation, argument, key, value) in enumerate(steps):
            script[index] = operation, argument, key if operation == PEEK else 0
            keys[index] = key
            values[index] = value
        out = np.zeros(count, np.int64)
        out_values = np.zeros(count, self.dtype)
        self.kernel(self.bins, script, values, keys, out, out_values)
        return list(zip(out.tolist(), out_values.tolist(), strict=True))

    def step(self, operation: int, argument: int = 0, key: int = 0, value: Any = 0) -> Any:
        """The answer to one step: a number, or for a pop the item."""
        number, popped = self.run([(operation, argument, key, value)])[0]
        return (number, popped) if operation == POP else number

    def grow(self) -> None:
        self.bins = grown_bins(self.bins, self.item_words)

    def room_for(self, pushes: int) -> None:
        while not self.step(ROOM, pushes):
            self.grow()


class Model:
    """What the queues must do: a deque a bin, in Python."""

    def __init__(self) -> None:
        self.queues: dict[int, deque[tuple[int, Any]]] = {
            number: deque() for number in range(OUTBOX + DEVICES)
        }
        self.base: int | None = None

    def push(self, key: int, value: Any) -> None:
        bucket = int(value)
        if self.base is None:
            self.base = bucket
        ahead = bucket - self.base
        number = 1 + bucket % BUCKETS
        if ahead < 0:
            number = URGENT
        elif ahead >= BUCKETS:
            number = FAR
        self.queues[number].append((key, value))

    def lowest(self) -> int:
        if not self.waiting:
            return NO_BUCKET
        assert self.base is not None
        if self.queues[URGENT]:
            return self.base
        near = [self.base + k for k in range(BUCKETS) if self.queues[1 + (self.base + k) % BUCKETS]]
        far = [int(value) for _, value in self.queues[FAR]]
        found = min([*near, *far])
        if far and min(far) == found:
            self.base = found
            dealt, self.queues[FAR] = self.queues[FAR], deque()
            for key, value in dealt:
                self.push(key, value)
        return found

    def advance(self, bucket: int) -> bool:
        if self.base is None or bucket <= self.base or self.queues[URGENT]:
            return False
        self.base = bucket
        return True

    @property
    def waiting(self) -> int:
        return sum(len(queue) for number, queue in self.queues.items() if number < OUTBOX)


def _check_same(queues: Queues, model: Model) -> None:
    header = queues.bins.header
    assert header[WAITING] == model.waiting
    assert header[OVERFLOWED] == 0
    assert header[BASE] == (NO_BUCKET if model.base is None else model.base)
    for number, queue in model.queues.items():
        assert (queues.bins.tail[number] != 0) == bool(queue)


def _drain(queues: Queues, model: Model) -> None:
    """Pop everything, in the order of each bin; all chunks come back."""
    for number, queue in model.queues.items():
        popped = queues.run([(POP, number, 0, 0)] * len(queue))
        assert popped == list(queue)
    assert queues.bins.header[FREE_COUNT] == len(queues.bins.next_chunk) - 1
    assert not queues.bins.tail.any()


# Buckets mostly near each other, some far apart, some below.
_buckets = st.one_of(
    st.integers(0, 40), st.integers(-5000, 5000), st.sampled_from([0, 255, 256, 257])
)
_steps = st.one_of(
    st.tuples(st.just("push"), st.lists(_buckets, min_size=1, max_size=90)),
    st.tuples(st.just("crowd"), st.tuples(_buckets, st.integers(1, 3 * CHUNK_ITEMS))),
    st.tuples(st.just("out"), st.integers(0, DEVICES - 1)),
    st.tuples(st.just("work"), st.integers(1, 200)),
    st.tuples(st.just("send"), st.integers(0, DEVICES - 1)),
    st.tuples(st.just("advance"), st.just(0)),
    st.tuples(st.just("grow"), st.just(0)),
)


@each_size
@settings(max_examples=120, deadline=None)
@given(script=st.lists(_steps, max_size=25), capacity=st.sampled_from([1, 64, 1000]))
@example(script=[("push", [0, 300, 900, 300]), ("work", 9)], capacity=1)
@example(script=[("crowd", (0, 64)), ("crowd", (0, 64)), ("work", 128)], capacity=1)
def test_queues_hold_what_deques_hold(
    item_bytes: int, script: list[tuple[str, Any]], capacity: int
) -> None:
    queues, model = Queues(item_bytes, capacity), Model()
    key = 0
    for name, argument in script:
        if name == "grow":
            queues.grow()
        elif name in ("push", "crowd"):
            pushed = [argument[0]] * argument[1] if name == "crowd" else argument
            queues.room_for(len(pushed))
            steps = []
            for bucket in pushed:
                key += 1
                model.push(key, bucket)
                steps.append((PUSH, bucket, key, bucket))
            queues.run(steps)
        elif name == "out":
            queues.room_for(1)
            key += 1
            model.queues[OUTBOX + argument].append((key, -key))
            queues.step(PUSH_OUT, argument, key, -key)
        elif name == "send":
            queue = model.queues[OUTBOX + argument]
            if queue:
                assert queues.step(POP, OUTBOX + argument) == queue.popleft()
        elif name == "advance":
            # As a worker does: to a bucket at or below the lowest that waits here.
            queues.room_for(BUCKETS)
            lowest = queues.step(LOWEST)
            assert lowest == model.lowest()
            if lowest != NO_BUCKET:
                assert queues.step(ADVANCE, lowest) == model.advance(lowest)
        else:
            _work(queues, model, argument)
        _check_same(queues, model)
    _drain(queues, model)


def _work(queues: Queues, model: Model, items: int) -> None:
    """Take items as a worker does: urgent ones first, then those of the lowest bucket."""
    queues.room_for(BUCKETS)
    bucket = queues.step(LOWEST)
    assert bucket == model.lowest()
    if bucket == NO_BUCKET:
        return
    for _ in range(items):
        number = URGENT if model.queues[URGENT] else 1 + bucket % BUCKETS
        queue = model.queues[number]
        if not queue:
            return
        for ahead in range(0, CHUNK_ITEMS + 2, 13):
            assert queues.step(PEEK, number, ahead) in [key for key, _ in queue]
        assert queues.step(PEEK, number, 0) == queue[0][0]
        assert queues.step(POP, number) == queue.popleft()


@each_size
@given(
    pushes=st.lists(
        st.tuples(st.integers(0, OUTBOX + DEVICES - 1), st.integers(1, 200)), max_size=60
    ),
    before=st.integers(0, 200),
)
@settings(max_examples=60, deadline=None)
def test_what_has_room_fits(item_bytes: int, pushes: list[tuple[int, int]], before: int) -> None:
    """However few chunks are left, and however the pushes are spread: has_room keeps its word."""
    queues = Queues(item_bytes, 1)
    queues.room_for(before)
    queues.run([(PUSH_OUT, index % DEVICES, index, 0) for index in range(before)])
    spread = [number for number, count in pushes for _ in range(count)]
    queues.room_for(len(spread))
    # Take away what is not needed, down to the last chunk that has_room asks for.
    header = queues.bins.header
    while header[FREE_COUNT] > 0 and queues.step(ROOM, len(spread)):
        header[FREE_COUNT] -= 1
    header[FREE_COUNT] += 1
    queues.run([(PUSH_OUT, number - OUTBOX, 1, 0) for number in spread])
    assert header[OVERFLOWED] == 0


@each_size
def test_a_push_without_room_raises_the_flag(item_bytes: int) -> None:
    queues = Queues(item_bytes, 1)
    free = int(queues.bins.header[FREE_COUNT])
    queues.run([(PUSH_OUT, 0, index, 0) for index in range(free * CHUNK_ITEMS)])
    assert queues.bins.header[OVERFLOWED] == 0
    queues.step(PUSH_OUT, 0, 1, 0)
    assert queues.bins.header[OVERFLOWED] == 1
    assert queues.run([(POP, OUTBOX, 0, 0)] * 3) == [(0, 0), (1, 0), (2, 0)]


@each_size
def test_cleared_queues_are_empty_and_whole(item_bytes: int) -> None:
    queues = Queues(item_bytes, 500)
    fresh = queues.bins.header.copy()
    queues.run([(PUSH, bucket, bucket, bucket) for bucket in range(0, 1000, 7)])
    clear_bins(queues.bins)
    assert (queues.bins.header == fresh).all()
    assert queues.step(LOWEST) == NO_BUCKET
    queues.run([(PUSH, 5, key, 5) for key in range(300)])
    assert queues.run([(POP, 1 + 5, 0, 0)] * 300) == [(key, 5) for key in range(300)]


@pytest.mark.parametrize(
    ("priority", "per_unit", "bucket"),
    [
        (0, 1.0, 0),
        (7, 0.5, 3),
        (-1, 0.5, -1),
        (-0.25, 1.0, -1),
        (2.999, 1.0, 2),
        (float("inf"), 1.0, 1 << 60),
        (float("-inf"), 1.0, -(1 << 60)),
        (float("nan"), 1.0, 1 << 60),
        (1e300, 1.0, 1 << 60),
        (-1e300, 1e300, -(1 << 60)),
        (np.uint64(2**64 - 1), 1.0, 1 << 60),
        (np.int64(-(2**63)), 1.0, -(1 << 60)),
        (0.0, float("inf"), 1 << 60),
    ],
)
def test_every_number_has_a_bucket(priority: Any, per_unit: float, bucket: int) -> None:
    with np.errstate(all="ignore"):
        assert bucket_of(priority, per_unit) == bucket


def test_values_of_every_bucket_can_be_queued() -> None:
    """Infinities, NaN and numbers beyond 2^60 buckets are far, or urgent, but never lost."""
    queues = Queues(16, 10_000)
    values = [0.0, float("inf"), float("-inf"), float("nan"), 1e200, -1e200, 300.0, 2.0**62]
    buckets = [bucket_of(value, 1.0) for value in values]
    steps = [(PUSH, bucket, key, values[key]) for key, bucket in enumerate(buckets)]
    queues.run(steps)
    found = []
    while queues.bins.header[WAITING]:
        bucket = queues.step(LOWEST)
        number = URGENT if queues.bins.tail[URGENT] else 1 + bucket % BUCKETS
        found.append(queues.step(POP, number)[0])
    assert sorted(found) == list(range(len(values)))


def test_constants_agree() -> None:
    assert bins_module.CHUNK_ITEMS == 1 << bins_module.CHUNK_SHIFT
    assert BUCKETS & (BUCKETS - 1) == 0
