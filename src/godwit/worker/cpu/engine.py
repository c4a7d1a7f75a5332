"""Compiles vertex programs and worklists, and runs them by workers or by a team of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from godwit import config
from godwit.dtypes import frozen
from godwit.errors import GodwitError, GraphTooLargeError, OperatorError
from godwit.runtime.cpu.combinations import COMBINED, IMPROVES
from godwit.runtime.cpu.compile import Kernel, kernel
from godwit.runtime.cpu.team import ABORT, borrowed_team, new_control, thread_track
from godwit.runtime.cpu.values import FROM_BITS, by_reference, returned
from godwit.runtime.protocol import Device, ProgressPoll
from godwit.runtime.statistics import WorklistCounts
from godwit.trace import active, seconds_since
from godwit.worker.cpu import relax, shared_memory, worker
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
from godwit.worker.program import BITWISE, ProgramOperators
from godwit.worker.task import PlacedPart, Seeds, WorklistOperators, WorklistOptions

RING_ITEMS = 4096
"""Default number of slots of a mailbox."""
ARCS_PER_THREAD = 50_000
"""A thread with fewer arcs to relax takes longer to wake and to meet than it saves."""
BRIEF_ARCS = 4096
"""On graphs with fewer vertices and arcs programs of Godwit's take at most some milliseconds."""
SMALLEST_FRONTIER = 4096


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
    """Return the priority of a value, smaller is sooner. Bound by the instantiation."""
    raise NotImplementedError


def _prioritized_bucket(buckets_per_unit: float, value: Any) -> int:
    return bucket_of(returned(priority(value), "'priority'", None), buckets_per_unit)


def _one_bucket(buckets_per_unit: float, value: Any) -> int:
    return 0


def worklist_operators(
    program: ProgramOperators, *, shared: bool, weighted: bool, item_bytes: int, has_halo: bool
) -> WorklistOperators:
    """Return the operators by which a worklist runs a program, made once for the same arguments.

    :param shared: several threads relax into the same values
    :param has_halo: some targets are vertices of other owners
    """
    key = ("cpu", shared, weighted, item_bytes, has_halo)
    operators: WorklistOperators | None = program.compiled.get(key)
    if operators is not None:
        return operators
    dtype = program.value_dtype
    integer = dtype.kind in "iu"
    field_dtype = program.field_dtype or dtype
    bindings = {
        "process": relax.process_vertex,
        "initial_value": relax.vertex_value,
        "look_ahead": relax.prefetch_vertex,
        "fanout": relax.vertex_fanout,
        "owner": relax.owner_is_here,
        "on_send": relax.pass_on,
        "pack": relax.pack_halo,
        "unpack": relax.unpack_owned,
        "on_receive": relax.receive_vertex,
        "message": program.message,
        "activate": program.activate,
        "update": program.update or relax.update,
        "priority": program.priority,
        "improves": IMPROVES[program.combine],
        "combined": COMBINED[program.combine],
        "ACCUMULATES": program.combine == "add",
        "BITWISE": program.combine in BITWISE,
        "HAS_FIELD": program.field_dtype is not None,
        "WEIGHTED": weighted,
        "SHARED": shared,
        "HAS_HALO": has_halo,
        "VALUE": dtype.type,
        "FIELD": field_dtype.type,
        "CHECKS_RANGE": integer,
        "LOWEST_VALUE": int(np.iinfo(dtype).min) if integer else 0,
        "HIGHEST_VALUE": int(np.iinfo(dtype).max) if integer else 0,
        "CHECKS_FIELDS": field_dtype.kind in "iu",
        "LOWEST_FIELD": int(np.iinfo(field_dtype).min) if field_dtype.kind in "iu" else 0,
        "HIGHEST_FIELD": int(np.iinfo(field_dtype).max) if field_dtype.kind in "iu" else 0,
        "IDENTITY": program.identity.item(),
    }
    operators = WorklistOperators(dtype, 16 if item_bytes == 16 else 8, bindings)
    program.compiled[key] = operators
    return operators


def run_program(
    program: ProgramOperators,
    devices: Sequence[Device],
    parts: Sequence[PlacedPart],
    options: WorklistOptions,
    poll: ProgressPoll | None,
) -> WorklistCounts:
    """Run a vertex program; the parts then hold the result."""
    item_bytes = _item_bytes(program, parts)
    weighted = program.uses_weight and parts[0].graph.weights is not None
    states = [_program_state(part, weighted=weighted) for part in parts]
    threads = devices[0].threads
    shared = devices[0].shares_memory
    operators = worklist_operators(
        program, shared=shared, weighted=weighted, item_bytes=item_bytes, has_halo=not shared
    )
    if not shared:
        seeds = [part.seeds for part in parts]
        names = [device.name for device in devices]
        return run_workers(operators, states, seeds, options, poll, names)
    graph = parts[0].graph
    threads = max(1, min(threads, len(graph.targets) // ARCS_PER_THREAD))
    frontier_items = max(SMALLEST_FRONTIER, len(graph.vertices))
    return run_threads(operators, states[0], parts[0].seeds, options, threads, frontier_items, poll)


def _item_bytes(program: ProgramOperators, parts: Sequence[PlacedPart]) -> int:
    """Return 8 if a key and a value have 4 bytes each, else 16."""
    keys = max(max(len(part.values), len(part.halo_values)) for part in parts)
    return 8 if program.value_dtype.itemsize == 4 and keys < 1 << 32 else 16


def _program_state(part: PlacedPart, *, weighted: bool) -> relax.ProgramState:
    graph = part.graph
    weights = graph.weights if weighted and graph.weights is not None else np.zeros(1, np.int32)
    return relax.ProgramState(
        offsets=frozen(graph.offsets),
        targets=frozen(graph.targets),
        weights=frozen(weights),
        owned=len(graph.vertices),
        vertices=frozen(graph.vertices),
        halo_owner=frozen(graph.halo_owner),
        halo_remote=frozen(graph.halo_remote),
        values=part.values,
        halo_values=part.halo_values,
        pending=np.zeros(len(graph.halo_vertices), np.uint8),
        field=part.fields,
        limit=part.limit,
        target=part.target,
        parameters=part.parameters,
    )


def run_workers(
    operators: WorklistOperators,
    states: Sequence[Any],
    seeds: Sequence[Seeds],
    options: WorklistOptions,
    poll: ProgressPoll | None,
    names: Sequence[str] | None = None,
) -> WorklistCounts:
    """Run one worker for each state, on a thread of its own.

    :param names: names of the devices in a trace; None: threads are named by their number
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
    common: tuple[Any, ...] = (
        mailboxes,
        published,
        control,
    )  # arguments between worklist and state
    last: tuple[Any, ...] = ()  # and after the state
    if not options.in_steps:
        common = (mailboxes, published, np.zeros(devices, np.int64), control)
        last = (options.window,)
    compile_s = _prepare(kernel, (worklists[0], *common, states[0], *last))

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
    """Run a team of threads that share one state and meet after every bucket."""
    kernel = _instantiation(operators, _shared)
    words = operators.item_bytes // 8
    nothing = Seeds(seeds.keys[:0], seeds.values[:0])
    worklists = _new_worklists(operators, [seeds] + [nothing] * (threads - 1), options, threads)
    for worklist in worklists:
        worklist.counts[worker.END_INITIAL] = 0
        fusion = 0 if options.in_steps else shared_memory.FUSION_ITEMS
        worklist.counts[worker.FUSION_LIMIT] = fusion
        # All threads begin with the same bucket, below which no item is queued.
        worklist.bins.header[BASE] = worklist.counts[worker.CURRENT_BUCKET]
    published = np.zeros(threads * PUBLISHED_WORDS, np.int64)
    shared = np.zeros(shared_memory.SHARED_WORDS, np.int64)
    shared[shared_memory.INITIAL_END] = seeds.initial_keys
    frontier = np.empty(frontier_items * words, np.int64)
    control = new_control()
    growths = 0
    common = (published, shared, frontier, frontier_items, state)
    compile_s = _prepare(kernel, (0, threads, control, worklists[0], *common))
    trace = active()
    # A user's program has a poll always.
    brief = poll is None and len(state.offsets) + len(state.targets) < BRIEF_ARCS
    with borrowed_team(threads, brief=brief) as team:
        while True:
            tasks = [
                (kernel, (rank, threads, control, worklists[rank], *common))
                for rank in range(threads)
            ]
            codes = team.run(tasks, control, _team_poll(worklists, poll))
            if worker.GROW not in codes or control[ABORT]:
                break
            shared[[shared_memory.WANTS_ROOM, shared_memory.WANTS_ROOM + 8]] = 0
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
    """Return a poll with the current sum of processed items, which workers may be writing."""
    if poll is None:
        return None
    counts = [worklist.counts for worklist in worklists]
    return lambda: poll(sum(int(words[worker.PROCESSED]) for words in counts))


def _instantiation(operators: WorklistOperators, template: Kernel) -> Kernel:
    instance: Kernel | None = operators.compiled.get(template.__name__)
    if instance is None:
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
        instance = operators.compiled[template.__name__] = template.bind(**bindings)
    return instance


def _prepare(kernel: Kernel, arguments: tuple[Any, ...]) -> float:
    """Compile or load the kernel before the threads start; return the seconds spent."""
    begin = perf_counter()
    return seconds_since(begin, "compile") if kernel.prepare(*arguments) else 0.0


def _new_worklists(
    operators: WorklistOperators, seeds: Sequence[Seeds], options: WorklistOptions, devices: int
) -> list[Worklist]:
    lowest = _lowest_seed_bucket(operators, seeds, options)
    worklists = []
    for device, seed in enumerate(seeds):
        counts = np.zeros(worker.SENT_TO + devices, np.int64)
        counts[worker.END_INITIAL] = seed.initial_keys
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
                seed_keys=np.ascontiguousarray(seed.keys, np.int64),
                seed_values=np.ascontiguousarray(seed.values, operators.value_dtype),
            )
        )
    return worklists


def _lowest_seed_bucket(
    operators: WorklistOperators, seeds: Sequence[Seeds], options: WorklistOptions
) -> int:
    values = np.concatenate([seed.values for seed in seeds])
    if len(values) > 1:
        values = np.unique(values)
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
    """Return the worklist with twice the room; raise GraphTooLargeError before memory runs out."""
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
                f"device {failed} was to send an item to a device that does not exist: owner and push_to "
                f"must name one in [0, {len(worklists)})"
            )
        raise GodwitError(
            f"device {failed} was pushed more items than its operator's fanout "
            "allows; the run was ended before any was lost silently"
        )


def _collect(worklists: Sequence[Worklist], growths: int, compile_s: float) -> WorklistCounts:
    if len(worklists) == 1:
        counts = worklists[0].counts.reshape(1, -1)
    else:
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
        value_overflow=any(worklist.bins.header[OVERFLOWED] == NO_VALUE for worklist in worklists),
    )
