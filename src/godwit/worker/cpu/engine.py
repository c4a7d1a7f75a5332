"""Compiles vertex programs and worklists, and runs them by workers or by a team of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from time import perf_counter
from typing import Any

import numpy as np

from godwit import config
from godwit.dtypes import Array, frozen
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
    clear_bins,
    grown_bins,
    new_bins,
)
from godwit.worker.cpu.mailbox import new_mailboxes
from godwit.worker.cpu.shared_memory import run_shared
from godwit.worker.cpu.supersteps import run_in_steps
from godwit.worker.cpu.worker import PUBLISHED_WORDS, Worklist, run_worker
from godwit.worker.program import BITWISE, ProgramOperators
from godwit.worker.task import Destination, PlacedPart, Seeds, WorklistOperators, WorklistOptions

RING_ITEMS = 4096
"""Default number of slots of a mailbox."""
ARCS_PER_THREAD = 50_000
"""A thread with fewer arcs to relax takes longer to wake and to meet than it saves."""
BRIEF_ARCS = 4096
"""On graphs with fewer vertices and arcs programs of Godwit's take at most some milliseconds."""
SMALLEST_FRONTIER = 4096
_MOST_KEPT_BYTES = 1 << 27
"""Size of the arrays of a run up to which they are kept: longer runs do not gain by it."""


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
            frontier: Any, capacity: int, state: Any, ends: Any) -> int:  # fmt: skip
    worklist, state, ends = by_reference(worklist), by_reference(state), by_reference(ends)
    return run_shared(
        rank, size, control, worklist, published, shared, frontier, capacity, state, ends
    )


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
        "set_first_values": relax.set_first_values,
        "write_results": relax.write_results,
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
    destination: Destination,
    idle: list[Workspace],
    poll: ProgressPoll | None,
) -> WorklistCounts:
    """Run a vertex program; the parts of devices that do not deliver results then hold these.

    :param idle: workspaces that are kept with the graph and not in use
    """
    item_bytes = _item_bytes(program, parts)
    weighted = program.uses_weight and parts[0].graph.weights is not None
    threads = devices[0].threads
    shared = devices[0].shares_memory
    operators = worklist_operators(
        program, shared=shared, weighted=weighted, item_bytes=item_bytes, has_halo=not shared
    )
    if not shared:
        states = [
            _program_state(
                part, part.graph.vertices, part.values, part.halo_values, part.fields,
                weighted=weighted,
            )
            for part in parts
        ]  # fmt: skip
        seeds = [part.seeds for part in parts]
        names = [device.name for device in devices]
        return run_workers(operators, states, seeds, options, poll, names)
    part = parts[0]
    threads = max(1, min(threads, len(part.graph.targets) // ARCS_PER_THREAD))
    vertices, dtype = part.graph.vertex_count, program.value_dtype
    kind = (threads, item_bytes // 8, options.capacity_items, vertices, dtype)
    with _workspace(idle, kind) as workspace:
        values = workspace.values
        state, ends = _shared_state(program, part, destination, values, weighted=weighted)
        return run_threads(operators, state, ends, part.seeds, options, workspace, poll)


@dataclass(frozen=True)
class Workspace:
    """Arrays for one run at a time, kept with the graph, since new pages cost time.

    :param kind: what they were made for
    :param bins: of each thread
    :param frontier: of all threads
    :param values: of the vertices; unused where these are the results, which the user gets
    """

    kind: tuple[Any, ...]
    bins: tuple[Bins, ...]
    frontier: Array
    values: Array


@contextmanager
def _workspace(idle: list[Workspace], kind: tuple[Any, ...]) -> Iterator[Workspace]:
    """Yield a workspace; a small one is kept for each run that lasted at the same time.

    Popping from and appending to a list are atomic.

    :param idle: those that are not in use
    :param kind: threads, words of an item, capacity of bins in items, vertices, dtype of values
    """
    workspace = None
    with suppress(IndexError):
        workspace = idle.pop()
    if workspace is None or workspace.kind != kind:
        threads, words, capacity_items, vertices, dtype = kind
        frontier = np.empty(max(SMALLEST_FRONTIER, vertices) * words, np.int64)
        bins = tuple(new_bins(threads, capacity_items, words) for _ in range(threads))
        workspace = Workspace(kind, bins, frontier, np.empty(vertices, dtype))
    yield workspace
    # Not after an aborted run: its threads may still write.
    arrays = [workspace.frontier, workspace.values, *(bins.arena for bins in workspace.bins)]
    if sum(array.nbytes for array in arrays) <= _MOST_KEPT_BYTES:
        idle.append(workspace)


def _item_bytes(program: ProgramOperators, parts: Sequence[PlacedPart]) -> int:
    """Return 8 if a key and a value have 4 bytes each, else 16."""
    keys = max(max(part.graph.vertex_count, part.graph.halo_count) for part in parts)
    return 8 if program.value_dtype.itemsize == 4 and keys < 1 << 32 else 16


def _program_state(
    part: PlacedPart, vertices: Array, values: Array, halo_values: Array, fields: Array, *,
    weighted: bool,
) -> relax.ProgramState:  # fmt: skip
    graph = part.graph
    weights = graph.weights if weighted and graph.weights is not None else np.zeros(1, np.int32)
    return relax.ProgramState(
        offsets=frozen(graph.offsets),
        targets=frozen(graph.targets),
        weights=frozen(weights),
        owned=graph.vertex_count,
        vertices=frozen(vertices),
        halo_owner=frozen(graph.halo_owner),
        halo_remote=frozen(graph.halo_remote),
        values=values,
        halo_values=halo_values,
        pending=np.zeros(len(graph.halo_vertices), np.uint8),
        field=fields,
        limit=part.limit,
        target=part.target,
        parameters=part.parameters,
    )


def _shared_state(
    program: ProgramOperators, part: PlacedPart, destination: Destination, kept: Array, *,
    weighted: bool,
) -> tuple[relax.ProgramState, relax.Ends]:  # fmt: skip
    """Return the state of threads that share it, and what they write before and after the run.

    :param kept: array for values that the user does not get
    """
    dtype, count = program.value_dtype, part.graph.vertex_count
    converts = destination.dtype != dtype
    values, first = part.values, np.empty(0, dtype)
    if not isinstance(values, np.ndarray):
        values, first = kept if converts else np.empty(count, dtype), np.array([values], dtype)
    results = np.empty(count, destination.dtype) if converts else values
    destination.values = results
    if not converts and part.target < 0 and part.limit[0] == program.identity:
        results = results[:0]
    fields = part.fields if isinstance(part.fields, np.ndarray) else np.full(count, part.fields)
    if program.field_dtype is not None:
        destination.fields = fields
    state = _program_state(
        part, np.empty(0, part.graph.id_dtype), values, values[:0], fields, weighted=weighted
    )
    return state, relax.Ends(
        first=first,
        seed_keys=part.seeds.keys,
        seed_values=part.seeds.values,
        results=results,
        never=np.array([destination.never], destination.dtype),
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
    bins = [new_bins(devices, options.capacity_items, words) for _ in states]
    worklists = _new_worklists(operators, seeds, options, bins)
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
    counts = np.stack([worklist.counts for worklist in worklists])
    return _collect(counts, worklists, sum(growths), compile_s)


def run_threads(
    operators: WorklistOperators,
    state: Any,
    ends: Any,
    seeds: Seeds,
    options: WorklistOptions,
    workspace: Workspace,
    poll: ProgressPoll | None,
) -> WorklistCounts:
    """Run a team of threads that share one state and meet after every bucket.

    :param ends: what threads write before and after the run
    """
    kernel = _instantiation(operators, _shared)
    threads, words = len(workspace.bins), operators.item_bytes // 8
    nothing = Seeds(seeds.keys[:0], seeds.values[:0])
    items = nothing if seeds.initial_keys else seeds  # where all keys are looked at, none is queued
    worklists = _new_worklists(
        operators, [items] + [nothing] * (threads - 1), options, workspace.bins
    )
    for worklist in worklists:
        worklist.counts[worker.END_INITIAL] = 0
        fusion = 0 if options.in_steps else shared_memory.FUSION_ITEMS
        worklist.counts[worker.FUSION_LIMIT] = fusion
        # All threads begin with the same bucket, below which no item is queued.
        worklist.bins.header[BASE] = worklist.counts[worker.CURRENT_BUCKET]
    published = np.zeros(threads * PUBLISHED_WORDS, np.int64)
    shared = np.zeros(shared_memory.SHARED_WORDS, np.int64)
    shared[shared_memory.INITIAL_END] = seeds.initial_keys
    frontier = workspace.frontier
    control = new_control()
    growths = 0
    common = (published, shared, frontier, len(frontier) // words, state, ends)
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
            shared[shared_memory.HAS_BEGUN] = 1
            shared[[shared_memory.WANTS_ROOM, shared_memory.WANTS_ROOM + 8]] = 0
            for rank, worklist in enumerate(worklists):
                if worklist.counts[worker.WANTED_ROOM]:
                    worklist.counts[worker.WANTED_ROOM] = 0
                    worklists[rank] = _grown(worklist, words)
                    growths += 1
                    if trace is not None:
                        trace.instant(*thread_track(rank), "growth")
    _check_codes(codes, worklists)
    counts = reduce(np.add, [worklist.counts for worklist in worklists]).reshape(1, -1)
    return _collect(counts, worklists, growths, compile_s)


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
    operators: WorklistOperators, seeds: Sequence[Seeds], options: WorklistOptions,
    bins: Sequence[Bins],
) -> list[Worklist]:  # fmt: skip
    lowest = _lowest_seed_bucket(operators, seeds, options)
    devices = len(bins)
    worklists = []
    for device, (seed, queues) in enumerate(zip(seeds, bins, strict=True)):
        clear_bins(queues)
        counts = np.zeros(worker.SENT_TO + devices, np.int64)
        counts[worker.END_INITIAL] = seed.initial_keys
        counts[worker.CURRENT_BUCKET] = lowest
        next_hop = np.arange(devices) if options.next_hop is None else options.next_hop[device]
        worklists.append(
            Worklist(
                device=device,
                devices=devices,
                bins=queues._replace(buckets_per_unit=1.0 / options.delta),
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
    some = [seed.values for seed in seeds if len(seed.values)]
    if not some:
        return NO_BUCKET
    values = some[0]
    if len(some) > 1 or len(values) > 1:
        values = np.unique(np.concatenate(some))
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


def _collect(
    counts: Array, worklists: Sequence[Worklist], growths: int, compile_s: float
) -> WorklistCounts:
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
