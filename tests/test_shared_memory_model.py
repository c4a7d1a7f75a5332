"""Explores the schedules of the shared-memory engine's own code: rounds, the frontier, leaving.

Two threads work off a small tree of items with chunks of one or two, a frontier that overflows, and
arenas that must grow: whatever the schedule, every item is processed once, by either thread, after all
first values and before any result has been written, and the team ends together. See interleaving.py
for how, test_worker_model.py for the asynchronous worker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from godwit.runtime.cpu import team
from godwit.runtime.cpu.team import ABORT, CONTROL_WORDS
from godwit.worker.cpu import bins, shared_memory, worker
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

_PRIVATE_COUNTS = (
    worker.NEXT_INITIAL,
    worker.END_INITIAL,
    worker.RESUME_BEGIN,
    worker.RESUME_END,
    worker.CURRENT_BUCKET,
    worker.ROUND_PARITY,
    worker.WANTED_ROOM,
    worker.NEXT_SEED,
)
_FIRST, _RESULTS = -1, -2  # what a thread notes beside items when it writes these


@dataclass(frozen=True)
class Case:
    """A run small enough to be explored.

    :param initial: items below it are the initial range; 0: item 0 is the seed
    :param promised: the fanout that all items but item 0 promise, whatever they push
    :param fusion_limit: own items that a thread may process in a round; 0 makes rounds supersteps
    :param narrow_items: so many items are left to one thread
    :param spare_items: items beyond an equal share that a thread keeps
    """

    parents: tuple[int, ...]
    priorities: tuple[int, ...]
    threads: int = 2
    initial: int = 0
    frontier_items: int = 8
    capacity_items: int = 64
    promised: int = 0
    fusion_limit: int = 1
    narrow_items: int = 0
    spare_items: int = 0

    def children(self, item: int) -> list[int]:
        return [child for child, parent in enumerate(self.parents) if parent == item]


def protocol_of(case: Case, replacements: Sequence[Replacement] = ()) -> dict[str, Any]:
    """Return the engine's functions as generators of operations on shared words."""
    constants = {
        "CHUNK_SHIFT": 1,
        "BUCKETS": 4,
        "_SPINS_BEFORE_YIELD": 0,
        "FRONTIER_CHUNK": 2,
        "INITIAL_CHUNK": 1,
        "NARROW_ITEMS": case.narrow_items,
        "ALONE_ITEMS": max(1, case.narrow_items),
        "ALONE_STEPS": 3,
        "SPARE_ITEMS": case.spare_items,
    }
    protocol = load_protocol([bins, team, worker, shared_memory], constants, replacements)
    protocol.update(
        VALUE=int,
        to_bits=lambda value: value,
        from_bits=lambda bits: bits,
        item_bucket=lambda _, value: value,
        fanout=lambda state, key: max(len(case.children(key)), case.promised if key else 0),
        initial_value=lambda state, key: case.priorities[key],
        look_ahead=lambda state, far_key, near_key: None,
        set_first_values=lambda rank, size, state, ends: state.append(_FIRST),
        write_results=lambda rank, size, state, ends: state.append(_RESULTS),
    )

    def process(worklist: Any, state: Any, key: int, value: int) -> None:
        state.append(int(key))
        for child in case.children(key):
            protocol["push_local"](worklist, child, case.priorities[child])

    protocol["process"] = process
    return protocol


def model_of(case: Case, replacements: Sequence[Replacement] = ()) -> Model:
    protocol = protocol_of(case, replacements)
    automata = [
        Automaton(
            lambda rank=rank: _start(case, protocol, rank),  # type: ignore[misc]
            ignored=frozenset({"spins", "far_key", "near_key"}),
            constant=lambda location: 0 if location == ("control", ABORT) else None,
        )
        for rank in range(case.threads)
    ]
    memory = Sequential(64, {("shared", shared_memory.INITIAL_END): case.initial})
    return Model(automata, memory, _invariant(case))


def _start(case: Case, protocol: dict[str, Any], rank: int) -> Any:
    published = Words("published", case.threads * worker.PUBLISHED_WORDS)
    control = Words("control", CONTROL_WORDS)
    shared = Words("shared", shared_memory.SHARED_WORDS)
    host = Words("host", 2)
    frontier = Words("frontier", case.frontier_items)
    seeds = [0] if rank == 0 and case.initial == 0 else []
    counts = np.zeros(worker.SENT_TO + case.threads, np.int64)
    lowest = bins.NO_BUCKET if case.initial else case.priorities[0]
    counts[worker.CURRENT_BUCKET] = lowest
    counts[worker.FUSION_LIMIT] = case.fusion_limit
    own_bins = protocol["new_bins"](case.threads, case.capacity_items, 1)
    own_bins.arena[:] = 0
    own_bins.header[bins.BASE] = lowest
    worklists = [
        worker.Worklist(
            device=rank,
            devices=case.threads,
            bins=own_bins,
            counts=counts,
            next_hop=list(range(case.threads)),
            seed_keys=seeds,
            seed_values=[case.priorities[0]] * len(seeds),
        )
    ]
    state: list[int] = []

    def drive() -> Any:
        while True:
            code = yield from protocol["run_shared"](
                rank, case.threads, control, worklists[0], published, shared, frontier,
                case.frontier_items, state, None,
            )  # fmt: skip
            if code != worker.GROW:
                return code
            # What the host does between two runs of the team, when all have left.
            left = yield ("fetch_add", host, 0, 1)
            if left % case.threads == case.threads - 1:
                yield ("store_release", shared, shared_memory.HAS_BEGUN, 1)
                for parity in range(2):
                    yield ("store_release", shared, shared_memory.WANTS_ROOM + 8 * parity, 0)
                yield ("fetch_add", host, 1, 1)
            while (yield ("load_acquire", host, 1)) <= left // case.threads:
                pass
            if counts[worker.WANTED_ROOM]:
                counts[worker.WANTED_ROOM] = 0
                grown = protocol["grown_bins"](worklists[0].bins, 1)
                worklists[0] = worklists[0]._replace(bins=grown)

    def private() -> Hashable:
        own = tuple(int(counts[word]) for word in _PRIVATE_COUNTS)
        return tuple(state), own, contents(protocol, worklists[0].bins)

    def facts() -> tuple[int, ...]:
        return tuple(state)

    return drive(), private, facts


def _invariant(case: Case) -> Any:
    everything = list(range(len(case.parents)))

    def invariant(value: Any, facts: list[Any], ended: list[bool]) -> str | None:
        processed = sorted(item for items in facts for item in items if item >= 0)
        if any(items.count(_FIRST) > 1 for items in facts):
            return "first values were written twice"
        if processed and not all(_FIRST in items for items in facts):
            return "an item was processed before all first values were written"
        if any(_RESULTS in items for items in facts) and processed != everything:
            return f"results were written before all was processed: {processed}"
        if len(set(processed)) < len(processed):
            return f"an item was processed twice: {processed}"
        if any(ended) and processed != everything:
            return f"ended before all was processed: {processed}"
        return None

    return invariant


_WIDE = (-1, 0, 0, 0, 0, 1, 2)
CASES = {
    "one bucket": Case(parents=_WIDE, priorities=(0,) * 7),
    "buckets": Case(parents=_WIDE, priorities=(0, 1, 1, 2, 0, 2, 3)),
    "far and urgent": Case(parents=_WIDE, priorities=(3, 30, 30, 4, 12, 0, 50)),
    "initial range": Case(parents=(-1, -1, -1, 0, 1, 1), priorities=(0,) * 6, initial=3),
    "supersteps": Case(parents=_WIDE, priorities=(0, 1, 1, 0, 1, 1, 0), fusion_limit=0),
    "frontier overflows": Case(
        parents=(-1, 0, 0, 0, 0, 0), priorities=(0, 1, 1, 1, 1, 1), frontier_items=3, fusion_limit=0
    ),
    "growth": Case(parents=(-1, 0, 0, 0, 1), priorities=(0, 1, 1, 1, 2), capacity_items=0),
    "growth of both at once": Case(
        parents=(-1, *[0] * 5), priorities=(0, *[1] * 5), capacity_items=0, promised=20
    ),
    "alone": Case(parents=_WIDE, priorities=(0, 1, 1, 2, 0, 2, 3), narrow_items=1),
    "alone along a path": Case(
        parents=(-1, 0, 1, 2, 3, 4), priorities=(0, 1, 2, 12, 3, 30), narrow_items=1
    ),
    "few of several threads": Case(
        parents=(-1, -1, 0, 0, 1, 2), priorities=(0, 0, 1, 30, 1, 2), initial=2, narrow_items=4
    ),
    "growth alone": Case(
        parents=(-1, 0, 0, 1, 1), priorities=(0, 1, 12, 30, 2), capacity_items=0, promised=20,
        narrow_items=4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_ends_with_everything_processed_once(name: str) -> None:
    explore(model_of(CASES[name]))


@pytest.mark.parametrize("seed", range(4))
def test_random_schedules_of_more_items_and_threads(seed: int) -> None:
    generator = np.random.default_rng(seed)
    items = 24
    case = Case(
        parents=(-1, *(int(generator.integers(0, item)) for item in range(1, items))),
        priorities=tuple(generator.integers(0, 12, items).tolist()),
        threads=3,
        frontier_items=2 + seed,
        capacity_items=4 * seed,
    )
    wander(model_of(case), schedules=5, steps=20_000, seed=seed)


def _run_alone(case: Case, abort_after: int) -> tuple[int, int]:
    """Run one thread; abort it after some items; return how it ended, and how many items it processed."""
    run, _, processed = _start(case, protocol_of(case), 0)
    memory: dict[tuple[str, int], int] = defaultdict(int)
    reply = None
    while True:
        try:
            kind, words, index, *operand = run.send(reply)
        except StopIteration as end:
            return end.value, sum(item >= 0 for item in processed())
        if sum(item >= 0 for item in processed()) >= abort_after:
            memory["control", ABORT] = 1
        reply = memory[words.name, index]
        if operand:
            memory[words.name, index] = operand[0] + (reply if kind == "fetch_add" else 0)


def test_an_abort_ends_the_work_on_own_items() -> None:
    case = Case(parents=(-1, *[0] * 40), priorities=(0,) * 41, threads=1, fusion_limit=100)
    code, processed = _run_alone(case, abort_after=5)
    assert code == worker.ABORTED
    assert 5 <= processed < 10


BUGS: dict[str, tuple[str, list[Replacement]]] = {
    "a leaving thread forgets the frontier range in its hand": (
        "growth of both at once",
        [
            (
                "            counts[ROUND_PARITY] = parity\n",
                "            counts[ROUND_PARITY] = parity\n"
                "            counts[RESUME_BEGIN] = counts[RESUME_END]\n",
            )
        ],
    ),
    "the team comes back with the wrong parity": (
        "growth of both at once",
        [("            counts[ROUND_PARITY] = parity\n", "            counts[ROUND_PARITY] = 0\n")],
    ),
    "one cursor for all rounds": (
        "buckets",
        [("        parity = 1 - parity\n", "        parity = 0\n")],
    ),
    "the cursor of the round itself is reset": (
        "buckets",
        [
            (
                "store_relaxed(shared, CURSORS + 8 * (1 - parity), 0)",
                "store_relaxed(shared, CURSORS + 8 * parity, 0)",
            )
        ],
    ),
    "no meeting after sharing": (
        "buckets",
        [("if shares and not barrier(control, size)", "if control is None")],
    ),
    "one set of published numbers for all rounds": (
        "buckets",
        [("PARITY_WORDS = 4", "PARITY_WORDS = 0")],
    ),
    "one word for all rounds in which a thread wants room": (
        "growth alone",
        [
            (
                "store_release(shared, WANTS_ROOM + 8 * parity, 1)",
                "store_release(shared, WANTS_ROOM, 1)",
            ),
            ("load_acquire(shared, WANTS_ROOM + 8 * parity)", "load_acquire(shared, WANTS_ROOM)"),
        ],
    ),
    "places of a full frontier stay empty": (
        "frontier overflows",
        [("items = max(0, capacity - begin)", "items = 0")],
    ),
    "no meeting after first values": (
        "buckets",
        [
            (
                "        set_first_values(rank, size, state, ends)\n        if not barrier(control, size):",
                "        set_first_values(rank, size, state, ends)\n        if control is None:",
            )
        ],
    ),
    "first values are written again after growth": (
        "growth alone",
        [("if load_relaxed(shared, HAS_BEGUN) == 0:", "if control is not None:")],
    ),
    "no thread takes what is left to one": (
        "few of several threads",
        [("            claims = rank == 0\n", "            claims = False\n")],
    ),
}
"""A case in which each bug shows, and the bug."""


@pytest.mark.parametrize("bug", BUGS)
def test_the_exploration_finds_this_bug(bug: str) -> None:
    case, replacements = BUGS[bug]
    with pytest.raises(ProtocolError):
        explore(model_of(CASES[case], replacements))
