"""Starts the compiled workers, enlarges their worklists when they ask, and collects their counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from godwit import config
from godwit.errors import GodwitError, GraphTooLargeError, OperatorError
from godwit.runtime.cpu.compile import Kernel, kernel
from godwit.runtime.cpu.team import ABORT, borrowed_team, new_control, thread_track
from godwit.runtime.cpu.values import FROM_BITS, by_reference, returned
from godwit.runtime.protocol import ProgressPoll
from godwit.runtime.statistics import WorklistCounts
from godwit.trace import active, seconds_since
from godwit.worker.cpu import shared_memory, worker
from godwit.worker.cpu.bins import (
    BASE,
    NO_BUCKET,
    NO_DEVICE,
    NO_VALUE,
    OVERFLOWED,
    Bins,
    bucket_of,
    grown_bins,
    new_bins,
)
from godwit.worker.cpu.mailbox import new_mailboxes
from godwit.worker.cpu.shared_memory import run_shared
from godwit.worker.cpu.supersteps import run_in_steps
from godwit.worker.cpu.worker import PUBLISHED_WORDS, Worklist, run_worker
from godwit.worker.task import Seeds, WorklistOperators, WorklistOptions

RING_ITEMS = 4096
"""Slots of a mailbox where nobody says otherwise."""


@kernel
def _worker(
    worklist: Any, mailboxes: Any, published: Any, seen: Any, control: Any, state: Any, window: int
) -> int:
    worklist, state = by_reference(worklist), by_reference(state)
    return run_worker(worklist, by_reference(mailboxes), published, seen, control, state, window)


@kernel
def _in_steps(worklist: Any, mailboxes: Any, published: Any, control: Any, state: Any) -> int:
    worklist, state = by_reference(worklist), by_reference(state)
    return run_in_steps(worklist, by_reference(mailboxes), published, control, state)


@kernel
def _shared(rank: int, size: int, control: Any, worklist: Any, published: Any, shared: Any,
            frontier: Any, capacity: int, state: Any) -> int:  # fmt: skip
    worklist, state = by_reference(worklist), by_reference(state)
    return run_shared(rank, size, control, worklist, published, shared, frontier, capacity, state)


def priority(value: Any) -> Any:
    """Bound by the instantiation: smaller is sooner."""
    raise NotImplementedError


def _prioritized_bucket(buckets_per_unit: float, value: Any) -> int:
    return bucket_of(returned(priority(value), "'priority'", None), buckets_per_unit)


def _one_bucket(buckets_per_unit: float, value: Any) -> int:
    return 0


def run_workers(
    operators: WorklistOperators,
    states: Sequence[Any],
    seeds: Sequence[Seeds],
    options: WorklistOptions,
    poll: ProgressPoll | None,
    names: Sequence[str] | None = None,
) -> WorklistCounts:
    """Run one worker per state, each on a thread of its own, until all work is done.

    :param names: of the devices, for a trace
    """
    kernel = _instantiation(operators, _in_steps if options.in_steps else _worker)
    devices = len(states)
    words = operators.item_bytes // 8
    worklists = _new_worklists(operators, seeds, options, devices)
    ring_items = RING_ITEMS if options.ring_items is None else options.ring_items
    mailboxes = new_mailboxes(devices, ring_items, words)
    published = np.zeros(devices * PUBLISHED_WORDS, np.int64)
    control = new_control()
    growths = [0] * devices
    # What all workers get behind their worklist and in front of their state, and what comes last.
    common: tuple[Any, ...] = (mailboxes, published, control)
    last: tuple[Any, ...] = ()
    if not options.in_steps:
        common = (mailboxes, published, np.zeros(devices, np.int64), control)
        last = (options.window,)
    compile_s = _prepare(operators, kernel, states[0], (worklists[0], *common, states[0], *last))

    trace = active()
    tracks = [
        thread_track(device) if names is None else (names[device], "worker")
        for device in range(devices)
    ]

    def work(device: int) -> int:
        while True:
            code: int = kernel(worklists[device], *common, states[device], *last)
            if code != worker.GROW or control[ABORT]:
                return code
            worklists[device] = _grown(worklists[device], words)
            growths[device] += 1
            if trace is not None:
                trace.instant(*tracks[device], "growth")

    with borrowed_team(devices) as team:
        codes = team.run(
            [(work, (device,)) for device in range(devices)],
            control,
            _team_poll(worklists, poll),
            tracks=tracks,
        )
    _check_codes(codes, worklists)
    return _collect(worklists, sum(growths), compile_s)


def run_threads(
    operators: WorklistOperators,
    state: Any,
    seeds: Seeds,
    options: WorklistOptions,
    threads: int,
    frontier_items: int,
    poll: ProgressPoll | None,
) -> WorklistCounts:
    """Run a team of threads that share one state, meeting after every bucket."""
    kernel = _instantiation(operators, _shared)
    words = operators.item_bytes // 8
    nothing = Seeds(seeds.keys[:0], seeds.values[:0])
    worklists = _new_worklists(operators, [seeds] + [nothing] * (threads - 1), options, threads)
    for worklist in worklists:
        worklist.counts[worker.END_INITIAL] = 0
        fusion = 0 if options.in_steps else shared_memory.FUSION_ITEMS
        worklist.counts[worker.FUSION_LIMIT] = fusion
        # All threads count buckets from the same one: what waits is never below the current one.
        worklist.bins.header[BASE] = worklist.counts[worker.CURRENT_BUCKET]
    published = np.zeros(threads * PUBLISHED_WORDS, np.int64)
    shared = np.zeros(shared_memory.SHARED_WORDS, np.int64)
    shared[shared_memory.INITIAL_END] = seeds.initial_keys
    frontier = np.empty(frontier_items * words, np.int64)
    control = new_control()
    growths = 0
    common = (published, shared, frontier, frontier_items, state)
    compile_s = _prepare(operators, kernel, state, (0, threads, control, worklists[0], *common))
    trace = active()
    with borrowed_team(threads) as team:
        while True:
            tasks = [
                (kernel, (rank, threads, control, worklists[rank], *common))
                for rank in range(threads)
            ]
            codes = team.run(tasks, control, _team_poll(worklists, poll))
            if worker.GROW not in codes or control[ABORT]:
                break
            shared[shared_memory.WANTS_ROOM] = 0
            for rank, worklist in enumerate(worklists):
                if worklist.counts[worker.WANTED_ROOM]:
                    worklist.counts[worker.WANTED_ROOM] = 0
                    worklists[rank] = _grown(worklist, words)
                    growths += 1
                    if trace is not None:
                        trace.instant(*thread_track(rank), "growth")
    _check_codes(codes, worklists)
    return _collect(worklists, growths, compile_s)


def _team_poll(
    worklists: Sequence[Worklist], poll: ProgressPoll | None
) -> Callable[[], None] | None:
    """The caller's poll, fed with the counts as they stand: workers write them while we read."""
    if poll is None:
        return None
    counts = [worklist.counts for worklist in worklists]
    return lambda: poll(sum(int(own[worker.PROCESSED]) for own in counts))


def _instantiation(operators: WorklistOperators, template: Kernel) -> Kernel:
    found: Kernel | None = operators.compiled.get(template.__name__)
    if found is None:
        bindings = dict(operators.bindings)
        if bindings.get("priority") is None:
            bindings.pop("priority", None)
            bindings["item_bucket"] = _one_bucket
        else:
            bindings["item_bucket"] = _prioritized_bucket
        bindings["ITEM_WORDS"] = operators.item_bytes // 8
        bindings["engine_push"] = worker.push
        bindings["engine_push_local"] = worker.push_local
        bindings["engine_push_to"] = worker.push_to
        bindings["VALUE"] = operators.value_dtype.type
        bindings["from_bits"] = FROM_BITS[operators.value_dtype]
        found = operators.compiled[template.__name__] = template.bind(**bindings)
    return found


def _prepare(
    operators: WorklistOperators, kernel: Kernel, state: Any, arguments: tuple[Any, ...]
) -> float:
    """Compile or load the kernel before the threads start; the seconds that took.

    Apart from the state's arrays all arguments have the same types in every run of the operators.
    """
    dtypes = tuple(array.dtype.str for array in state if isinstance(array, np.ndarray))
    if (kernel.__name__, dtypes) in operators.compiled:
        return 0.0
    begin = perf_counter()
    kernel.prepare(*arguments)
    operators.compiled[kernel.__name__, dtypes] = True
    return seconds_since(begin, "compile")


def _new_worklists(
    operators: WorklistOperators, seeds: Sequence[Seeds], options: WorklistOptions, devices: int
) -> list[Worklist]:
    lowest = _lowest_seed_bucket(operators, seeds, options)
    worklists = []
    for device, own in enumerate(seeds):
        counts = np.zeros(worker.SENT_TO + devices, np.int64)
        counts[worker.END_INITIAL] = own.initial_keys
        counts[worker.CURRENT_BUCKET] = lowest
        bins = new_bins(
            devices, options.capacity_items, operators.item_bytes // 8, 1.0 / options.delta
        )
        next_hop = np.arange(devices) if options.next_hop is None else options.next_hop[device]
        worklists.append(
            Worklist(
                device=device,
                devices=devices,
                bins=bins,
                counts=counts,
                next_hop=np.ascontiguousarray(next_hop, np.int64),
                seed_keys=np.ascontiguousarray(own.keys, np.int64),
                seed_values=np.ascontiguousarray(own.values, operators.value_dtype),
            )
        )
    return worklists


def _lowest_seed_bucket(
    operators: WorklistOperators, seeds: Sequence[Seeds], options: WorklistOptions
) -> int:
    values = np.unique(np.concatenate([own.values for own in seeds]))
    if len(values) == 0:
        return NO_BUCKET
    urgency = operators.bindings.get("priority")
    if urgency is None:
        return 0
    try:
        with np.errstate(all="ignore"):
            return min(int(bucket_of(urgency(value), 1.0 / options.delta)) for value in values)
    except Exception as error:
        raise OperatorError(f"priority fails for the initial value {values[0]}: {error}") from error


def _grown(worklist: Worklist, item_words: int) -> Worklist:
    """The worklist with twice the room; an error before the system runs out of memory and kills."""
    held = worklist.bins.arena.nbytes + worklist.bins.next_chunk.nbytes
    available = config.available_memory_bytes()
    if 2 * held > available:
        raise GraphTooLargeError(
            f"the worklist of device {worklist.device} is to grow from {held} to {2 * held} bytes, but "
            f"{available} bytes of memory are available"
        )
    bins: Bins = grown_bins(worklist.bins, item_words)
    return worklist._replace(bins=bins)


def _check_codes(codes: Sequence[int], worklists: Sequence[Worklist]) -> None:
    if worker.FAILED in codes:
        failed = codes.index(worker.FAILED)
        if worklists[failed].bins.header[OVERFLOWED] == NO_VALUE:
            return
        if worklists[failed].bins.header[OVERFLOWED] == NO_DEVICE:
            raise GodwitError(
                f"device {failed} was to send an item to a device that there is not: owner and push_to "
                f"must name one in [0, {len(worklists)})"
            )
        raise GodwitError(
            f"device {failed} was pushed more items than its operator's fanout "
            "allows; the run was ended before any was lost silently"
        )


def _collect(worklists: Sequence[Worklist], growths: int, compile_s: float) -> WorklistCounts:
    counts = np.stack([worklist.counts for worklist in worklists])
    return WorklistCounts(
        processed_items=counts[:, worker.PROCESSED],
        useless_items=counts[:, worker.USELESS],
        arcs_relaxed=counts[:, worker.ARCS],
        threshold_changes=counts[:, worker.THRESHOLD_CHANGES],
        received_items=counts[:, worker.RECEIVED_ITEMS],
        filtered_items=counts[:, worker.FILTERED],
        sent_items=counts[:, worker.SENT_TO :],
        rounds=counts[:, worker.ROUNDS],
        growths=growths,
        compile_s=compile_s,
        value_overflow=any(one.bins.header[OVERFLOWED] == NO_VALUE for one in worklists),
    )
