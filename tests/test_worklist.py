"""The distributed worklist by its public interface: callbacks, policies, growth, errors."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from godwit import Context, DistributedWorklist, ItemLink, ItemRouter
from godwit.dataflow.item_router import Policy
from godwit.dataflow.operators import DROP, DUPLICATE, KEEP, PASS
from godwit.errors import (
    ClosedContextError,
    GodwitError,
    GraphTooLargeError,
    InputError,
    OperatorError,
    RunTimeoutError,
)
from worklist_operators import (
    FLAG_KEYS,
    FlagState,
    HopState,
    SumState,
    flag_on_receive,
    flag_on_send,
    flag_owner,
    flag_pack,
    flag_priority,
    flag_process,
    flag_unpack,
    halve,
    hop,
    keep,
    modulo_owner,
    nobody,
    split,
    split_fanout,
    split_owner,
    split_state,
    split_visits,
)


def within(seconds: float) -> Callable[[int], None]:
    """A poll that ends a run which hangs, so long after it was first asked: compiled by then."""
    begin = None

    def poll(processed: int) -> None:
        nonlocal begin
        begin = begin or perf_counter()
        if perf_counter() - begin > seconds:
            raise RunTimeoutError(f"the run hangs; {processed} items were processed")

    return poll


def backwards(here: int, destination: int, endpoints: int) -> int:
    """A policy of a user: the ring in the other direction, but straight to endpoint 0."""
    return 0 if destination == 0 else (here - 1) % endpoints


each_policy = pytest.mark.parametrize(
    "policy", ["direct", "ring", backwards], ids=["direct", "ring", "backwards"]
)


def splitting(router: ItemRouter) -> DistributedWorklist:
    return DistributedWorklist(router, process=split, owner=split_owner, fanout=split_fanout)


@each_policy
@pytest.mark.parametrize("devices", [1, 2, 3, 5])
@pytest.mark.parametrize("slots", [1, 3])
def test_items_multiply_and_nothing_is_lost(policy: str | Policy, devices: int, slots: int) -> None:
    amount = 3**7 * 5
    with Context(devices) as context:
        worklist = splitting(ItemRouter(context, policy, capacity_items=slots))
        states = [split_state(devices) for _ in range(devices)]
        items = [(0, amount), (7, amount), (1 << 39, 1)]
        counts = worklist.run(items, states, capacity_items=1, poll=within(60))
    assert sum(int(state.kept[0]) for state in states) == 2 * amount + 1
    visits = sum(int(state.visits[0]) for state in states)
    assert visits == 2 * split_visits(amount) + 1
    assert int(counts.processed_items.sum()) == visits
    assert int(counts.sent_items.sum()) == int(counts.received_items.sum())
    assert (int(counts.sent_items.sum()) > 0) == (devices > 1)
    assert counts.growths > 0
    hops = {(link.source.index, link.target.index) for link in worklist.router.links}
    used = {(int(i), int(j)) for i, j in zip(*np.nonzero(counts.sent_items), strict=True)}
    assert used <= hops


def test_no_items_and_no_work() -> None:
    with Context(3) as context:
        states = [split_state(3) for _ in range(3)]
        counts = splitting(ItemRouter(context)).run([], states, poll=within(60))
    assert counts.processed_items.tolist() == [0, 0, 0]


def test_one_worklist_runs_again_and_again() -> None:
    with Context(2) as context:
        worklist = splitting(ItemRouter(context, capacity_items=2))
        for amount in (1, 81, 3000, 5):
            states = [split_state(2) for _ in range(2)]
            worklist.run([(3, amount)], states, poll=within(60))
            assert sum(int(state.kept[0]) for state in states) == amount


def test_a_device_may_stand_at_several_endpoints() -> None:
    with Context(["cpu:0", "cpu:0", "cpu:1"]) as context:
        states = [split_state(3) for _ in range(3)]
        splitting(ItemRouter(context, "ring")).run([(3, 500)], states, poll=within(60))
    assert sum(int(state.kept[0]) for state in states) == 500


# --- All five callbacks, against a plain simulation.


class FlagCase:
    """Random flags, owners and children, by seed."""

    def __init__(self, seed: int, devices: int) -> None:
        generator = np.random.default_rng(seed)
        flags = np.array([PASS, PASS, PASS, KEEP, DROP, DUPLICATE])
        self.devices = devices
        self.send_flags = generator.choice(flags, FLAG_KEYS)
        self.receive_flags = generator.choice([KEEP, KEEP, KEEP, DROP, PASS, DUPLICATE], FLAG_KEYS)
        self.owners = generator.integers(0, devices, FLAG_KEYS)
        self.children = generator.integers(0, FLAG_KEYS, (FLAG_KEYS, 2))
        self.items = [(int(key), 3) for key in generator.integers(0, FLAG_KEYS, 5)]

    def states(self) -> list[FlagState]:
        return [
            FlagState(
                np.zeros((FLAG_KEYS, 8), np.int64),
                self.send_flags,
                self.receive_flags,
                self.owners,
                self.children,
            )
            for _ in range(self.devices)
        ]

    def expected(self) -> np.ndarray[Any, Any]:
        """Processings by device, key and value: what the flags mean, one item after the other."""
        seen = np.zeros((self.devices, FLAG_KEYS, 8), np.int64)
        queue = deque((int(self.owners[key]), key, value) for key, value in self.items)
        while queue:
            device, key, value = queue.popleft()
            seen[device, key, value] += 1
            if value == 0:
                continue
            for child in self.children[key].tolist():
                owner = int(self.owners[child])
                if owner == device:
                    queue.append((device, child, value - 1))
                    continue
                sent = self.send_flags[child]
                if sent & KEEP:
                    queue.append((device, child, value - 1))
                if sent & PASS:
                    received = self.receive_flags[child]
                    # Its owner passes it to itself: it is queued there, and not received anew.
                    queue.extend([(owner, child, value - 1)] * int((received & KEEP) != 0))
                    queue.extend([(owner, child, value - 1)] * int((received & PASS) != 0))
        return seen


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    devices=st.integers(1, 4),
    policy=st.sampled_from(["direct", "ring", backwards]),
    slots=st.integers(1, 3),
    window=st.sampled_from([0, 1, 1000]),
    delta=st.sampled_from([0.01, 1.0, 50.0]),
    capacity=st.sampled_from([1, 5000]),
)
def test_callbacks_mean_what_they_say(
    seed: int, devices: int, policy: Any, slots: int, window: int, delta: float, capacity: int
) -> None:
    case = FlagCase(seed, devices)
    states = case.states()
    with Context(devices) as context:
        worklist = DistributedWorklist(
            ItemRouter(context, policy, capacity_items=slots),
            process=flag_process,
            owner=flag_owner,
            fanout=2,
            value_dtype="int32",
            item_bytes=8,
            priority=flag_priority,
            pack=flag_pack,
            unpack=flag_unpack,
            on_send=flag_on_send,
            on_receive=flag_on_receive,
        )
        worklist.run(
            case.items, states, delta=delta, window=window, capacity_items=capacity, poll=within(60)
        )
    found = np.stack([state.seen for state in states])
    np.testing.assert_array_equal(found, case.expected())


def test_duplicates_find_room() -> None:
    """An item that on_send keeps and passes lies in two queues: room for both is reserved."""
    case = FlagCase(0, 4)
    case.send_flags[:] = DUPLICATE
    case.receive_flags[:] = KEEP
    case.owners[:] = np.arange(FLAG_KEYS) % 4
    states = case.states()
    with Context(4) as context:
        worklist = DistributedWorklist(
            ItemRouter(context, capacity_items=1),
            process=flag_process,
            owner=flag_owner,
            fanout=2,
            value_dtype="int32",
            item_bytes=8,
            priority=flag_priority,
            pack=flag_pack,
            unpack=flag_unpack,
            on_send=flag_on_send,
            on_receive=flag_on_receive,
        )
        worklist.run([(1, 7)], states, delta=0.01, capacity_items=1, poll=within(60))
    case.items = [(1, 7)]
    np.testing.assert_array_equal(np.stack([state.seen for state in states]), case.expected())


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_pushed_values_are_converted_to_the_dtype(devices: int) -> None:
    """Python's numbers are 64 bits wide in compiled code: what is pushed may be a double."""
    states = [SumState(np.zeros(1), np.array([devices])) for _ in range(devices)]
    with Context(devices) as context:
        worklist = DistributedWorklist(
            ItemRouter(context),
            process=halve,
            owner=modulo_owner,
            fanout=1,
            value_dtype="float32",
            item_bytes=8,
        )
        worklist.run([(5, 1.0)], states, poll=within(60))
    assert sum(float(state.total[0]) for state in states) == 1 + 0.5 + 0.25 + 0.125 + 0.0625 + 3


# --- push_local and push_to.


def hopping(router: ItemRouter) -> DistributedWorklist:
    return DistributedWorklist(
        router,
        process=hop,
        owner=nobody,
        fanout=1,
        value_dtype="int32",
        item_bytes=8,
        on_receive=keep,
    )


@pytest.mark.parametrize("devices", [1, 2, 3, 5])
def test_operators_send_where_they_like(devices: int) -> None:
    items = [(1, 40), (2, 41), (0, 9), (devices, 8)]
    expected = np.zeros(devices, int)
    for key, value in items:
        device = 0
        for left in range(value, -1, -1):
            expected[device] += 1
            if left & 1:
                device = (device + key) % devices
    states = [HopState(np.zeros(1, np.int64), np.array([1])) for _ in range(devices)]
    with Context(devices) as context:
        hopping(ItemRouter(context, capacity_items=1)).run(items, states, poll=within(60))
    assert [int(state.visits[0]) for state in states] == expected.tolist()


@pytest.mark.parametrize("factor", [1 << 20, -1], ids=["too large", "negative"])
def test_keys_that_do_not_fit_8_bytes_are_an_error(factor: int) -> None:
    states = [HopState(np.zeros(1, np.int64), np.array([factor])) for _ in range(2)]
    with Context(2) as context, pytest.raises(GodwitError, match="key"):
        hopping(ItemRouter(context)).run([(1 << 12, 2)], states, poll=within(60))


def test_initial_keys_that_do_not_fit_8_bytes_are_an_error() -> None:
    states = [HopState(np.zeros(1, np.int64), np.array([1])) for _ in range(2)]
    with Context(2) as context, pytest.raises(GodwitError, match="key"):
        hopping(ItemRouter(context)).run([(1 << 32, 2)], states, poll=within(60))


# --- Errors.


@pytest.mark.parametrize("devices", [1, 3])
def test_pushing_more_than_promised_is_an_error_or_harmless(devices: int) -> None:
    """Never a silent loss: where there happens to be room all is well."""
    failed = 0
    amount = 201**2
    for capacity in (1, 1000, 100_000):
        states = [split_state(devices, fanout=0, parts=200) for _ in range(devices)]
        with Context(devices) as context:
            worklist = splitting(ItemRouter(context, capacity_items=2))
            try:
                worklist.run([(0, amount)], states, capacity_items=capacity, poll=within(60))
            except RunTimeoutError:
                raise
            except GodwitError as error:
                failed += "fanout" in str(error)
            else:
                assert sum(int(state.kept[0]) for state in states) == amount
    assert failed >= 1

    states = [split_state(devices, fanout=200, parts=200) for _ in range(devices)]
    with Context(devices) as context:
        worklist = splitting(ItemRouter(context, capacity_items=2))
        worklist.run([(0, amount)], states, capacity_items=1, poll=within(60))
    assert sum(int(state.kept[0]) for state in states) == amount


@pytest.mark.parametrize("owner", [2, -1, 1 << 40])
def test_an_owner_that_is_no_endpoint_is_an_error(owner: int) -> None:
    states = [split_state(2, wrong_key=6, wrong_owner=owner) for _ in range(2)]
    with Context(2) as context:
        worklist = splitting(ItemRouter(context))
        with pytest.raises(GodwitError, match=re.escape("[0, 2)")):
            worklist.run([(0, 1000)], states, poll=within(60))
        with pytest.raises(InputError, match=f"endpoint {owner} for key 6"):
            worklist.run([(6, 1000)], states)


def test_the_next_run_after_a_failed_one_is_right() -> None:
    with Context(2) as context:
        worklist = splitting(ItemRouter(context))
        bad = [split_state(2, wrong_key=6, wrong_owner=9) for _ in range(2)]
        with pytest.raises(GodwitError):
            worklist.run([(0, 1000)], bad, poll=within(60))
        states = [split_state(2) for _ in range(2)]
        worklist.run([(0, 1000)], states, poll=within(60))
    assert sum(int(state.kept[0]) for state in states) == 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, "delta must be positive, got 0"),
        ({"delta": float("nan")}, "delta must be positive, got nan"),
        ({"window": -1}, "window must not be negative, got -1"),
        ({"capacity_items": 0}, "capacity_items must be at least 1, got 0"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with Context(2) as context:
        states = [split_state(2) for _ in range(2)]
        with pytest.raises(InputError, match=message):
            splitting(ItemRouter(context)).run([(0, 1)], states, **options)


def test_a_state_for_each_endpoint() -> None:
    with Context(3) as context, pytest.raises(InputError, match="3, got 1"):
        splitting(ItemRouter(context)).run([(0, 1)], [split_state(3)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"value_dtype": "int16"}, "value_dtype must be one of int32, .* got int16"),
        ({"value_dtype": "complex128"}, "got complex128"),
        ({"item_bytes": 12}, "item_bytes must be 8 or 16, got 12"),
        ({"item_bytes": 8, "value_dtype": "int64"}, "int64 needs 16"),
        ({"fanout": -1}, "fanout must not be negative, got -1"),
    ],
)
def test_wrong_item_types_are_refused(arguments: dict[str, Any], message: str) -> None:
    with Context(2) as context, pytest.raises(InputError, match=message):
        DistributedWorklist(
            ItemRouter(context),
            **{"process": split, "owner": split_owner, "fanout": 2, **arguments},
        )


def test_operators_with_unknown_parameters_are_refused() -> None:
    def process(worklist: Any, state: Any, vertex: int) -> None:
        raise NotImplementedError

    with Context(2) as context:
        router = ItemRouter(context)
        with pytest.raises(OperatorError, match="process takes 'vertex', which is not offered"):
            DistributedWorklist(router, process=process, owner=split_owner, fanout=2)
        with pytest.raises(OperatorError, match="priority takes 'key'"):
            DistributedWorklist(
                router, process=split, owner=split_owner, fanout=2, priority=lambda key: key
            )
        with pytest.raises(OperatorError, match="owner must be a Python function"):
            DistributedWorklist(router, process=split, owner=abs, fanout=2)


def test_an_operator_that_does_not_compile_is_named() -> None:
    def process(worklist: Any, state: Any, key: int, value: int) -> None:
        state.kept[0] = key.no_such_attribute  # type: ignore[attr-defined]

    with Context(2) as context:
        worklist = DistributedWorklist(
            ItemRouter(context), process=process, owner=split_owner, fanout=2
        )
        with pytest.raises(OperatorError, match="no_such_attribute"):
            worklist.run([(0, 1)], [split_state(2) for _ in range(2)])


@pytest.mark.parametrize("item", [(0, 1 << 80), (1 << 80, 0), (0, "one")])
def test_items_that_do_not_fit_are_refused(item: Any) -> None:
    states = [split_state(1)]
    with Context(1) as context, pytest.raises(InputError, match="64-bit key and a value of int64"):
        splitting(ItemRouter(context)).run([item], states)


def test_growth_ends_where_memory_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GODWIT_MEMORY_BYTES", "100000")
    states = [split_state(2, parts=30, fanout=30) for _ in range(2)]
    with Context(2) as context, pytest.raises(GraphTooLargeError, match=r"to grow from \d+ to"):
        splitting(ItemRouter(context)).run([(0, 31**5)], states, capacity_items=1, poll=within(60))


def test_a_closed_context_is_refused() -> None:
    with Context(2) as context:
        worklist = splitting(ItemRouter(context))
    with pytest.raises(ClosedContextError, match="closed"):
        worklist.run([(0, 1)], [split_state(2) for _ in range(2)])
    with pytest.raises(ClosedContextError, match="closed"):
        ItemRouter(context)


# --- Routers and links.


def _circle(here: int, destination: int, endpoints: int) -> int:
    return {0: 1, 1: 0}.get(here, destination)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("mesh", "unknown routing policy 'mesh'; there are 'direct', 'ring'"),
        (lambda here, destination, endpoints: endpoints, r"to 3, which is no endpoint in \[0, 3\)"),
        (lambda here, destination, endpoints: "cpu:1", "to 'cpu:1', which is no endpoint"),
        (lambda here, destination, endpoints: here, "never brings items from endpoint 0"),
        (_circle, "never brings items from endpoint 0 to endpoint 2"),
    ],
)
def test_policies_that_lead_nowhere_are_refused(policy: Any, message: str) -> None:
    with Context(3) as context, pytest.raises(InputError, match=message):
        ItemRouter(context, policy)


def test_links_are_those_that_the_policy_uses() -> None:
    def pairs(router: ItemRouter) -> Sequence[tuple[int, int]]:
        return [(link.source.index, link.target.index) for link in router.links]

    with Context(3) as context:
        assert pairs(ItemRouter(context)) == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
        assert pairs(ItemRouter(context, "ring")) == [(0, 1), (1, 2), (2, 0)]
        assert ItemRouter(context, capacity_items=7).links[0].capacity_items == 7
        with pytest.raises(InputError, match="capacity_items must be at least 1, got 0"):
            ItemRouter(context, capacity_items=0)
        here = context.endpoints[0]
        with pytest.raises(InputError, match="must connect two endpoints"):
            ItemLink(here, here)
    with Context(1) as context:
        assert pairs(ItemRouter(context)) == []
        with pytest.raises(InputError, match="capacity_items must be at least 1, got -5"):
            ItemRouter(context, capacity_items=-5)
