"""Explores the schedules of the asynchronous worker's own code: mailboxes, termination, growth.

What is explored is the source of `bins`, `mailbox` and `worker` (see interleaving.py), with chunks of
two items, batches of one or two and rings of one or two slots, working off a small tree of items. In
every state: no ring holds more than its slots, nothing is processed twice or by the wrong device, and
when the run is declared ended everything has been processed and no mailbox holds an item. From every
state the end can be reached.

Smaller models are explored under C11's release and acquire as well, where a word may be read stale
and a plain access to a slot must be ordered: weaker than any hardware at hand.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from godwit.dataflow.operators import keep_or_pass_on
from godwit.runtime.cpu.team import ABORT, CONTROL_WORDS, CURSOR
from godwit.runtime.protocol import PASS
from godwit.worker.cpu import bins, mailbox, worker
from interleaving import (
    Automaton,
    Location,
    Memory,
    Model,
    ProtocolError,
    ReleaseAcquire,
    Replacement,
    Sequential,
    Words,
    explore,
    load_protocol,
    wander,
)

_CONSTANTS = {
    "CHUNK_SHIFT": 1,
    "BUCKETS": 4,
    "_SPINS_BEFORE_YIELD": 0,
}
_LINE = 8


@dataclass(frozen=True)
class Case:
    """A run small enough to be explored.

    :param parents: items by number: the item that pushes each; item 0 is the seed
    :param owners: the device of each item
    :param priorities: bucket of each item; all 0 by default
    :param ring: whether items travel by the next device, not directly
    """

    parents: tuple[int, ...]
    owners: tuple[int, ...]
    devices: int = 2
    ring_items: int = 1
    batch_items: int = 2
    capacity_items: int = 64
    priorities: tuple[int, ...] = ()
    window: int = 1 << 40
    ring: bool = False

    def children(self, item: int) -> list[int]:
        return [child for child, parent in enumerate(self.parents) if parent == item]


def model_of(
    case: Case, replacements: Sequence[Replacement] = (), memory: Memory | None = None
) -> Model:
    """The model of a case, with bugs planted if asked for."""
    constants = {**_CONSTANTS, "BATCH_ITEMS": case.batch_items}
    protocol = load_protocol([bins, mailbox, worker], constants, replacements)
    priorities = case.priorities or (0,) * len(case.parents)
    protocol.update(
        VALUE=int,
        to_bits=lambda value: value,
        from_bits=lambda bits: bits,
        item_bucket=lambda _, value: value,
        owner=lambda state, key: case.owners[key],
        fanout=lambda state, key: len(case.children(key)),
        initial_value=lambda state, key: 0,
        look_ahead=lambda state, far_key, near_key: None,
        on_send=lambda state, key, value: PASS,
        pack=lambda state, key, value: (key, value),
        unpack=lambda state, key, value: (key, value),
        on_receive=lambda worklist, state, key, value: keep_or_pass_on_here(
            worklist, case.owners[key]
        ),
    )

    def process(worklist: Any, state: Any, key: int, value: int) -> None:
        state.append(int(key))
        for child in case.children(key):
            protocol["push"](worklist, state, child, priorities[child])

    protocol["process"] = process
    automata = [
        Automaton(
            lambda device=device: _start(case, protocol, device, priorities),  # type: ignore[misc]
            ignored=frozenset({"spins"}),
            constant=lambda location: 0 if location == ("control", ABORT) else None,
        )
        for device in range(case.devices)
    ]
    return Model(automata, memory or Sequential(), _invariant(case))


def keep_or_pass_on_here(worklist: Any, owner: int) -> int:
    """`keep_or_pass_on` with the case's owner."""
    protocol = dict(keep_or_pass_on.__globals__, owner=lambda state, key: owner)
    return int(type(keep_or_pass_on)(keep_or_pass_on.__code__, protocol)(worklist, None, 0, 0))


def _start(case: Case, protocol: dict[str, Any], device: int, priorities: Sequence[int]) -> Any:
    devices = case.devices
    pairs = devices * devices
    mailboxes = mailbox.Mailboxes(
        slots=Words("slots", pairs * case.ring_items),
        tails=Words("tails", pairs * _LINE),
        heads=Words("heads", pairs * _LINE),
        devices=devices,
        capacity=case.ring_items,
    )
    published = Words("published", devices * worker.PUBLISHED_WORDS)
    control = Words("control", CONTROL_WORDS)
    own_bins = protocol["new_bins"](devices, case.capacity_items, 1)
    own_bins.arena[:] = 0
    seeds = [0] if case.owners[0] == device else []
    hops = [(device + 1) % devices] * devices if case.ring else list(range(devices))
    worklists = [
        worker.Worklist(
            device=device,
            devices=devices,
            bins=own_bins,
            counts=np.zeros(worker.SENT_TO + devices, np.int64),
            next_hop=hops,
            seed_keys=seeds,
            seed_values=[priorities[0]] * len(seeds),
        )
    ]
    seen = np.zeros(devices, np.int64)
    state: list[int] = []

    def drive() -> Any:
        while True:
            code = yield from protocol["run_worker"](
                worklists[0], mailboxes, published, seen, control, state, case.window
            )
            if code != worker.GROW:
                return code
            grown = protocol["grown_bins"](worklists[0].bins, 1)
            worklists[0] = worklists[0]._replace(bins=grown)

    def private() -> Hashable:
        counts = worklists[0].counts
        return (
            tuple(state),
            int(counts[worker.NEXT_SEED]),
            int(counts[worker.RECEIVED_ITEMS]),
            tuple(map(int, counts[worker.SENT_TO :])),
            tuple(map(int, seen)),
            contents(protocol, worklists[0].bins),
            *(tuple(words.own) for words in (mailboxes.tails, mailboxes.heads, published)),
        )

    def facts() -> tuple[tuple[int, ...], int]:
        return tuple(state), int(worklists[0].bins.header[bins.WAITING])

    return drive(), private, facts


def contents(protocol: dict[str, Any], own: Any) -> Hashable:
    """The queues, whichever chunks they lie in."""
    shift, items = protocol["CHUNK_SHIFT"], protocol["CHUNK_ITEMS"]
    found = []
    for number in range(len(own.head)):
        position, end = int(own.head[number]), int(own.tail[number])
        queued = [position & (items - 1)]
        while end not in (0, position):
            queued.append(int(own.arena[position]))
            position += 1
            if position & (items - 1) == 0 and position != end:
                position = int(own.next_chunk[(position - 1) >> shift]) << shift
        found.append(tuple(queued))
    header = [int(word) for word in own.header]
    header[bins.FREE_HEAD] = 0
    return tuple(found), tuple(header), len(own.next_chunk)


def _invariant(case: Case) -> Any:
    pairs = [(s, r) for s in range(case.devices) for r in range(case.devices) if s != r]
    everything = sorted(range(len(case.parents)))

    def invariant(value: Any, facts: list[Any], ended: list[bool]) -> str | None:
        in_flight = 0
        for sender, receiver in pairs:
            pair = (sender * case.devices + receiver) * _LINE
            items = value(("tails", pair)) - value(("heads", pair))
            if not 0 <= items <= case.ring_items:
                return f"the ring from {sender} to {receiver} holds {items} items"
            in_flight += items
        processed = sorted(item for items, _ in facts for item in items)
        if len(set(processed)) < len(processed):
            return f"an item was processed twice: {processed}"
        for device, (items, _) in enumerate(facts):
            if any(case.owners[item] != device for item in items):
                return f"device {device} processed another's item: {items}"
        if any(ended) or value(("control", CURSOR)) != 0:
            waiting = sum(waiting for _, waiting in facts)
            if in_flight or waiting or processed != everything:
                return (
                    f"ended with {in_flight} items in mailboxes and {waiting} queued, "
                    f"processed {processed}"
                )
        return None

    return invariant


CASES = {
    "items go back and forth": Case(parents=(-1, 0, 1, 2), owners=(0, 1, 0, 1)),
    "one slot for two items": Case(parents=(-1, 0, 0, 0, 1, 2), owners=(0, 1, 1, 0, 0, 0)),
    "seed with the other": Case(
        parents=(-1, 0, 0, 1, 1, 3), owners=(1, 0, 0, 1, 0, 0), batch_items=1
    ),
    "two answers to one item": Case(parents=(-1, 0, 1, 1), owners=(0, 1, 0, 0)),
    "two slots": Case(parents=(-1, 0, 0, 0, 1), owners=(0, 1, 1, 1, 0), ring_items=2),
    "no window": Case(
        parents=(-1, 0, 0, 1, 2, 2),
        owners=(0, 1, 0, 0, 1, 0),
        priorities=(0, 9, 1, 2, 3, 4),
        window=0,
    ),
    "far and urgent": Case(
        parents=(-1, 0, 0, 1, 2, 2, 5),
        owners=(0, 1, 0, 0, 1, 0, 1),
        priorities=(5, 9, 1, 0, 30, 4, 40),
        window=1,
        ring_items=2,
    ),
}
GROWING = Case(parents=(-1, 0, 0, 0, 1, 2, 3, 3), owners=(0, 0, 1, 0, 1, 0, 1, 0), capacity_items=0)
THREE = Case(parents=(-1, 0, 0), owners=(0, 1, 2), devices=3, ring=True)


def _is_hint(location: Location) -> bool:
    name, index = location
    return name == "published" and index % worker.PUBLISHED_WORDS == worker.LOWEST


@pytest.mark.parametrize(
    "case", [*CASES.values(), GROWING, THREE], ids=[*CASES, "growing", "three"]
)
def test_every_schedule_ends_with_everything_processed_once(case: Case) -> None:
    explore(model_of(case))


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_does_so_under_release_and_acquire(name: str) -> None:
    explore(model_of(CASES[name], memory=ReleaseAcquire(2, 20, _is_hint)))


@pytest.mark.thorough
def test_every_schedule_of_three_workers_that_talk_directly() -> None:
    case = Case(parents=(-1, 0, 0, 1), owners=(0, 1, 2, 2), devices=3)
    explore(model_of(case))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ring", [False, True])
def test_random_schedules_of_more_items_and_workers(seed: int, ring: bool) -> None:
    generator = np.random.default_rng(seed)
    devices = 3 + seed % 2
    items = 24
    case = Case(
        parents=(-1, *(int(generator.integers(0, item)) for item in range(1, items))),
        owners=tuple(generator.integers(0, devices, items).tolist()),
        priorities=tuple(generator.integers(0, 12, items).tolist()),
        devices=devices,
        ring_items=1 + seed % 3,
        capacity_items=4,
        window=seed,
        ring=ring,
    )
    wander(model_of(case), schedules=5, steps=20_000, seed=seed)


# Bugs that the exploration must find. Each is a list of replacements in the source.

_STORE_SENT = "    store_release(published, mine + SENT, sent)\n"
_STORE_RECEIVED = "    store_release(published, mine + RECEIVED, worklist.counts[RECEIVED_ITEMS])\n"
_STORE_IDLE = "    store_release(published, mine + STATE, published[mine + STATE] + 1)\n"
_GO_IDLE = _STORE_SENT + _STORE_RECEIVED + _STORE_IDLE
_WAKE = """                if idle:
                    idle = False
                    go_busy(worklist, published)
"""
_FLUSH = "        any_moved, all_moved = flush(worklist, mailboxes, published, state)\n"
_SECOND_LOOK = (
    "        if load_acquire(published, device * PUBLISHED_WORDS + STATE) != seen[device]:\n"
)
_RELEASE = "    release(mailboxes, sender, worklist.device, items)\n"
_TAKE = """    for ahead in range(items):
        key, value = take(mailboxes, sender, worklist.device, ahead)
"""
_PUT = "put(mailboxes, worklist.device, receiver, items, key, value)\n"
_PUBLISH = "            publish(mailboxes, worklist.device, receiver, items)\n"

BUGS: dict[str, list[Replacement]] = {
    "the leader takes one snapshot": [(_SECOND_LOOK, "        if False:\n")],
    "the second snapshot asks only whether all are idle": [
        (_SECOND_LOOK, _SECOND_LOOK.replace("!= seen[device]", "& 1 == 0"))
    ],
    "the leader compares no sums": [("    if sent != received:\n", "    if False:\n")],
    "SENT is published after idleness": [(_GO_IDLE, _STORE_RECEIVED + _STORE_IDLE + _STORE_SENT)],
    "an idle worker wakes up unseen": [(_WAKE, "                idle = False\n")],
    "a worker is seen to wake up only after it has sent": [
        ("    idle = False\n    spins = 0\n", "    idle = woken = False\n    spins = 0\n"),
        (_WAKE, "                woken = woken or idle\n                idle = False\n"),
        (_FLUSH, _FLUSH + "        if woken:\n            go_busy(worklist, published)\n"
                          "            woken = False\n"),
    ],
    "items in an outbox do not count as work": [("not idle and all_moved and", "not idle and")],
    "items that wait for their turn do not count as work": [
        ("all_moved and bins.header[WAITING] == 0", "all_moved")
    ],
    "the ring has a slot too few for its credit": [
        ("(mailboxes.capacity - waiting)", "(mailboxes.capacity + 1 - waiting)")
    ],
    "slots are given back before they are read": [
        (_RELEASE, ""),
        (_TAKE, _RELEASE + _TAKE.replace("range(items)", "range(-items, 0)")),
    ],
    "items are published before they are written": [
        (_PUT, _PUBLISH.strip().replace("items)", "1); ") + _PUT.replace("items,", "-1,")),
        ("            worklist.counts[SENT_TO + receiver] += items\n" + _PUBLISH,
         "            worklist.counts[SENT_TO + receiver] += items\n"),
    ],
    "a sender waits in place for credit": [
        ("        while items < room and bins.tail[outbox] != 0:\n",
         "        while bins.tail[outbox] != 0:\n"
         "            while items >= credit(mailboxes, worklist.device, receiver):\n"
         "                pass\n"),
    ],
    "the holder of the lowest bucket is held back": [
        ("bucket - lowest <= window", "bucket - lowest < window")
    ],
}  # fmt: skip

WEAK_MEMORY_BUGS: dict[str, list[Replacement]] = {
    "tail is not released": [("store_release(mailboxes.tails", "store_relaxed(mailboxes.tails")],
    "tail is not acquired": [("load_acquire(mailboxes.tails", "load_relaxed(mailboxes.tails")],
    "head is not released": [("store_release(mailboxes.heads", "store_relaxed(mailboxes.heads")],
    "head is not acquired": [("load_acquire(mailboxes.heads", "load_relaxed(mailboxes.heads")],
    "idleness is not released": [
        (_GO_IDLE, _GO_IDLE.replace(_STORE_IDLE, _STORE_IDLE.replace("release", "relaxed")))
    ],
    "the counts are not released": [
        (_GO_IDLE, (_STORE_SENT + _STORE_RECEIVED).replace("release", "relaxed") + _STORE_IDLE)
    ],
    "STATE is not acquired": [("seen[device] = load_acquire", "seen[device] = load_relaxed")],
    "RECEIVED is not acquired": [("received += load_acquire", "received += load_relaxed")],
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_exploration_finds_this_bug(bug: str) -> None:
    models = (model_of(case, BUGS[bug]) for case in CASES.values())
    assert any(_is_found(model) for model in models)


@pytest.mark.parametrize("bug", WEAK_MEMORY_BUGS)
def test_weak_memory_shows_this_bug(bug: str) -> None:
    replacements = WEAK_MEMORY_BUGS[bug]
    memories = (ReleaseAcquire(2, 20, _is_hint) for _ in CASES)
    models = (
        model_of(case, replacements, memory)
        for case, memory in zip(CASES.values(), memories, strict=True)
    )
    assert any(_is_found(model) for model in models)


def test_random_schedules_find_bugs_too() -> None:
    case = CASES["one slot for two items"]
    with pytest.raises(ProtocolError):
        wander(
            model_of(case, BUGS["slots are given back before they are read"]),
            schedules=2000,
            steps=2000,
            seed=1,
        )


def _is_found(model: Model) -> bool:
    try:
        explore(model)
    except ProtocolError:
        return True
    return False
