"""Explores the schedules of the bulk-synchronous worker's own code: meetings, full rings, growth.

What is explored is the source of `bins`, `mailbox`, `team`, `worker` and `supersteps` (see
interleaving.py), with chunks of two items, batches of two and rings of one or two slots, working off a
small tree of items. In every state: no ring holds more than its slots, nothing is processed twice or by
the wrong device, an item without priority is processed exactly one superstep after the item that pushed
it, and when a worker has ended everything has been processed and no mailbox holds an item. From every
state the end can be reached.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from godwit.runtime.cpu import team
from godwit.runtime.cpu.team import ABORT, CONTROL_WORDS
from godwit.runtime.protocol import KEEP, PASS
from godwit.worker.cpu import bins, mailbox, supersteps, worker
from interleaving import (
    Automaton,
    Model,
    ProtocolError,
    Replacement,
    Sequential,
    Words,
    explore,
    load_protocol,
    wander,
)
from test_worker_model import contents

_LINE = 8
_PRIVATE_COUNTS = (
    worker.NEXT_SEED,
    worker.ROUNDS,
    worker.CURRENT_BUCKET,
    supersteps.PHASE,
    supersteps.URGENT_END,
    supersteps.NEAR_END,
)


@dataclass(frozen=True)
class Case:
    """A run small enough to be explored.

    :param parents: items by number: the item that pushes each; item 0 is the seed
    :param owners: the device of each item
    :param priorities: bucket of each item; all 0 by default
    """

    parents: tuple[int, ...]
    owners: tuple[int, ...]
    devices: int = 2
    ring_items: int = 1
    capacity_items: int = 64
    priorities: tuple[int, ...] = ()

    def children(self, item: int) -> list[int]:
        return [child for child, parent in enumerate(self.parents) if parent == item]

    def depth(self, item: int) -> int:
        return 0 if item == 0 else 1 + self.depth(self.parents[item])


def model_of(case: Case, replacements: Sequence[Replacement] = ()) -> Model:
    constants = {"CHUNK_SHIFT": 1, "BUCKETS": 4, "BATCH_ITEMS": 2, "_SPINS_BEFORE_YIELD": 0}
    modules = [bins, mailbox, team, worker, supersteps]
    protocol = load_protocol(modules, constants, replacements)
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
        on_receive=lambda worklist, state, key, value: KEEP,
    )

    def process(worklist: Any, state: Any, key: int, value: int) -> None:
        state.append((int(worklist.counts[worker.ROUNDS]), int(key)))
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
    return Model(automata, Sequential(), _invariant(case))


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
    counts = np.zeros(worker.SENT_TO + devices, np.int64)
    counts[worker.CURRENT_BUCKET] = priorities[0]
    seeds = [0] if case.owners[0] == device else []
    worklists = [
        worker.Worklist(
            device=device,
            devices=devices,
            bins=own_bins,
            counts=counts,
            next_hop=list(range(devices)),
            seed_keys=seeds,
            seed_values=[priorities[0]] * len(seeds),
        )
    ]
    state: list[tuple[int, int]] = []

    def drive() -> Any:
        while True:
            code = yield from protocol["run_in_steps"](
                worklists[0], mailboxes, published, control, state
            )
            if code != worker.GROW:
                return code
            grown = protocol["grown_bins"](worklists[0].bins, 1)
            worklists[0] = worklists[0]._replace(bins=grown)

    def private() -> Hashable:
        own = tuple(int(counts[word]) for word in _PRIVATE_COUNTS)
        rings = (tuple(words.own) for words in (mailboxes.tails, mailboxes.heads))
        return tuple(state), own, contents(protocol, worklists[0].bins), *rings

    def facts() -> tuple[tuple[tuple[int, int], ...], int]:
        return tuple(state), int(worklists[0].bins.header[bins.WAITING])

    return drive(), private, facts


def _invariant(case: Case) -> Any:
    pairs = [(s, r) for s in range(case.devices) for r in range(case.devices) if s != r]
    everything = list(range(len(case.parents)))

    def invariant(value: Any, facts: list[Any], ended: list[bool]) -> str | None:
        in_flight = 0
        for sender, receiver in pairs:
            pair = (sender * case.devices + receiver) * _LINE
            items = value(("tails", pair)) - value(("heads", pair))
            if not 0 <= items <= case.ring_items:
                return f"the ring from {sender} to {receiver} holds {items} items"
            in_flight += items
        processed = sorted(item for seen, _ in facts for _, item in seen)
        if len(set(processed)) < len(processed):
            return f"an item was processed twice: {processed}"
        for device, (seen, _) in enumerate(facts):
            for step, item in seen:
                if case.owners[item] != device:
                    return f"device {device} processed item {item}, another's"
                if not case.priorities and step != case.depth(item):
                    return f"item {item} was processed in superstep {step}"
        if any(ended) and (in_flight or processed != everything):
            return f"ended with {in_flight} items in mailboxes, processed {processed}"
        return None

    return invariant


CASES = {
    "items go back and forth": Case(parents=(-1, 0, 1, 2), owners=(0, 1, 0, 1)),
    "one slot for two items": Case(parents=(-1, 0, 0, 0, 1, 2), owners=(0, 1, 1, 0, 0, 0)),
    "seed with the other": Case(parents=(-1, 0, 0, 1, 1, 3), owners=(1, 0, 0, 1, 0, 0)),
    "two slots": Case(parents=(-1, 0, 0, 0, 1), owners=(0, 1, 1, 1, 0), ring_items=2),
    "all on one": Case(parents=(-1, 0, 0, 1, 2, 2), owners=(1,) * 6),
    "far and urgent": Case(
        parents=(-1, 0, 0, 1, 2, 2, 5),
        owners=(0, 1, 0, 0, 1, 0, 1),
        priorities=(5, 9, 1, 0, 30, 4, 40),
        ring_items=2,
    ),
    "growing": Case(
        parents=(-1, 0, 0, 0, 1, 2, 3, 3), owners=(0, 0, 1, 0, 1, 0, 1, 0), capacity_items=0
    ),
    "growing where items arrive": Case(
        parents=(-1, 0, 0, 0, 0, 1, 2), owners=(0, 1, 1, 1, 1, 0, 1), capacity_items=0, ring_items=2
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_ends_with_everything_processed_in_its_superstep(name: str) -> None:
    assert explore(model_of(CASES[name])) > 100


@pytest.mark.parametrize("seed", range(4))
def test_random_schedules_of_more_items_and_workers(seed: int) -> None:
    generator = np.random.default_rng(seed)
    devices = 3 + seed % 2
    items = 24
    case = Case(
        parents=(-1, *(int(generator.integers(0, item)) for item in range(1, items))),
        owners=tuple(generator.integers(0, devices, items).tolist()),
        priorities=tuple(generator.integers(0, 12, items).tolist()) if seed % 2 else (),
        devices=devices,
        ring_items=1 + seed % 3,
        capacity_items=4,
    )
    wander(model_of(case), schedules=5, steps=20_000, seed=seed)


_MEET = """            code = meet(worklist, control)
            if code != GOES_ON:
                return code
"""

BUGS: dict[str, list[Replacement]] = {
    "mailboxes are emptied before all have filled them": [(_MEET, "")],
    "what a superstep pushes is processed in it": [
        ("bins.head[source] + 1 == counts[end]", "bins.head[source] + 1 == bins.tail[source]")
    ],
    "items in outboxes do not count": [("            unsent = True\n", "            pass\n")],
    "a worker forgets where it left": [("        counts[PHASE] = EMPTYING\n", "")],
    "who has nothing ends": [
        ("            if bucket == NO_BUCKET:\n",
         "            if bucket == NO_BUCKET or bins.header[WAITING] == 0:\n")
    ],
    "the first superstep is empty": [
        ("            begin_step(worklist, counts[CURRENT_BUCKET])\n", "")
    ],
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_the_exploration_finds_this_bug(bug: str) -> None:
    assert any(_is_found(model_of(case, BUGS[bug])) for case in CASES.values())


def _is_found(model: Model) -> bool:
    try:
        explore(model)
    except ProtocolError:
        return True
    return False
