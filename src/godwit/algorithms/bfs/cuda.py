"""Direction-optimizing breadth-first search on GPUs: the arguments and the results of bfs.cuh."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.bfs.queries import SearchOutcome, SearchQuery
from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError
from godwit.runtime.cuda.types import c_type
from godwit.runtime.gpu_options import Schedule
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.exchange import Exchange
from godwit.supersteps.hubs import HubRows
from godwit.supersteps.placement import StepPart, StepPlacement
from godwit.supersteps.results import deliver_positions
from godwit.supersteps.rows import StepRows
from godwit.supersteps.run import PEERS, ROWS, STAGE, STEP, point_rows, step_run, step_source
from godwit.supersteps.schedules import left_rows_bytes, schedule_define
from godwit.trace import active

UNREACHED = np.iinfo(np.int32).max

DEEP_STEPS = 24
"""After so many levels a search that was not asked for gives up if it looks like a long one."""

_LOCAL_BYTES = 16
_INDEX_BYTES = 4  # of a queue
_LEAST_ROOM = 1 << 14
_ROOM_SHIFT = (
    5  # a queue has room for a 32nd of the vertices at first: wide frontiers are not queued
)
_CLASS_GROUP = 3
_PUSH, _RECEIVE, _SPREAD, _PULL, _QUEUE_AGAIN = 1, 2, 3, 4, 6  # of BfsPhase
_FOUND, _LOOKED = 0, 4  # of what blocks count: BfsCount

ARGUMENTS = np.dtype(
    [
        ("stage", STAGE),
        ("out", ROWS),
        ("in", ROWS),
        ("depth", np.uint64),
        ("visited", PEERS, 2),
        ("marks", PEERS),
        ("queue", np.uint64, 2),
        ("queue_room", np.uint64),
        ("left_rows", np.uint64),
        ("local", np.uint64),
        ("seeds", np.uint64),
        ("seed_count", np.int64),
        ("target", np.int64),
        ("long_below", np.int64),
        ("is_directed", np.uint64),
        ("active", np.int64),
        ("cleared", np.int64),
        ("hubs", np.int64),
        ("hub_offsets", np.uint64),
        ("hub_targets", np.uint64),
        ("hub_marks", PEERS),
    ]
)

STATE = (
    "depth", "visited", "frontier", "parity", "queued", "replicated", "limit", "vertices", "arcs",
    "turn_down", "turn_back", "pulled", "deep_steps", "is_deep", "long_rows", "queue_index",
    "has_missed", "growths", "listing", "hubs",
)  # fmt: skip
"""Words of ``control->state``: ``BfsState`` of the kernel."""


def source(id_dtype: np.dtype[Any], schedule: Schedule = "mixed") -> str:
    """The kernel."""
    types = {"Id": c_type(id_dtype)}
    text = step_source("algorithms/bfs/bfs.cuh", ARGUMENTS, types=types, work="grid_bfs")
    return schedule_define(schedule) + text


def search_levels(
    placement: StepPlacement, query: SearchQuery, poll: ProgressPoll | None
) -> SearchOutcome:
    """Depths of all vertices from the nearest source."""
    if placement.capacity >= 1 << 32:
        raise GraphTooLargeError(
            f"a device would own {placement.capacity:,} vertices, and the search takes fewer than "
            f"{1 << 32:,} a device; use more GPUs, or execution='asynchronous'"
        )
    with placement.held():
        begin = perf_counter()
        out_rows = placement.rows("out")
        in_rows = placement.rows("in") if placement.graph.directed else out_rows
        hub_rows = placement.hub_rows()
        rows_s = perf_counter() - begin
        arguments = _arguments(placement, query, out_rows, in_rows, hub_rows)
        text = source(placement.id_dtype, query.gpu.schedule)
        with step_run(placement, text, arguments, query.gpu) as run:
            run.between = partial(_enlarge, placement, arguments, out_rows, query.gpu.schedule)
            run.exchange_on_host = partial(_exchange_on_host, run.exchange, hub_rows[0].count)
            for which in (0, 1):
                arguments["visited"][:, which] = run.exchange.shared(f"visited {which}")
            arguments["marks"] = run.exchange.left("marks", 1)
            arguments["hub_marks"] = run.exchange.shared("hub marks")
            run.prepare(_first_state(placement, query), early=True)
            kernel_s = run.drive(poll)
            for part in placement.parts:
                if "new depth" in part.buffers:  # all of it was cleared
                    part.buffers["depth"] = part.buffers.pop("new depth")
            controls = run.controls()
        words = dict(zip(STATE, controls["state"][0].tolist(), strict=False))
        seconds = {"rows": rows_s, "compile": run.compile_s, "kernel": kernel_s}
        if run.exchange.by_host:
            seconds["exchange"] = run.exchange_s
        if not words["is_deep"]:
            seconds["gather"] = deliver_positions(placement, "depth", np.int32, query.destination)
            query.destination[_alone(placement, query)] = 0
    return SearchOutcome(
        is_complete=not words["is_deep"],
        visited=controls["run_counts"][:, _FOUND].astype(np.int64),
        looked=controls["run_counts"][:, _LOOKED].astype(np.int64),
        levels=int(words["depth"]) + (words["frontier"] > 0),
        supersteps=controls["state"][:, STEP].astype(np.int64),
        growths=int(words["growths"]),
        frontier_bytes=2 * _INDEX_BYTES * int(arguments["queue_room"].sum()),
        seconds=seconds,
    )


def _exchange_on_host(exchange: Exchange, hubs: int, last: int, coming: int, state: Array) -> None:
    """Where the host copies: what devices tell each other by a superstep."""
    words = dict(zip(STATE, state.tolist(), strict=False))
    if last in (_RECEIVE, _SPREAD, _PULL) or (last == _PUSH and words["replicated"]):
        exchange.spread(f"visited {words['parity']}", 1)
    if last == _RECEIVE:
        exchange.reset("marks", 1)
    if coming == _RECEIVE:
        exchange.fetch("marks", 1)
    if words["hubs"]:
        exchange.spread_rows("hub marks", 3, hubs // 8)


def _alone(placement: StepPlacement, query: SearchQuery) -> Array:
    """The sources that have no arc: kernels keep no depth of theirs."""
    sources: Array = np.asarray(query.sources, np.int64)
    if placement.graph.directed:
        return sources[:0]
    offsets = placement.graph.offsets
    alone: Array = sources[offsets[sources] == offsets[sources + 1]]
    return alone


def _arguments(
    placement: StepPlacement,
    query: SearchQuery,
    out_rows: Sequence[StepRows],
    in_rows: Sequence[StepRows],
    hub_rows: Sequence[HubRows],
) -> Array:
    """Of each device's kernel, but for what lies at other devices; makes room for all that it needs."""
    count, directed = placement.count, placement.graph.directed
    arguments = np.zeros(len(placement.parts), ARGUMENTS)
    owners, indexes = np.divmod(placement.position(query.sources), placement.capacity)
    hub_marks = _first_hub_marks(owners, indexes, len(placement.parts), hub_rows[0].count)
    target = -1 if query.target is None else int(placement.position([query.target])[0])
    for place, part in enumerate(placement.parts):
        own = arguments[place]
        for name, rows in (("out", out_rows[place]), ("in", in_rows[place])):
            point_rows(own[name], rows)
        # Of an undirected graph those that have no arc are reached as seeds only, and are the last. Their
        # depths are cleared once.
        own["active"] = part.owned if directed else part.active
        is_new = "depth" not in part.buffers
        own["cleared"] = part.owned if is_new else own["active"]
        own["depth"] = part.room("new depth" if is_new else "depth", 4 * count).pointer
        queue_room = _first_room(placement, part, query.gpu.frontier_items)
        _make_queues(own, part, queue_room, out_rows[place], query.gpu.schedule)
        own["local"] = part.room("local", _LOCAL_BYTES).pointer
        for which in (0, 1):
            part.room(f"visited {which}", count // 8)
        part.room("marks", count // 8 if len(placement.parts) > 1 else 4)
        seeds = indexes[owners == place].astype(placement.id_dtype)
        room = part.room("seeds", max(1, seeds.nbytes))
        if len(seeds):
            room.upload(seeds)
        own["seeds"], own["seed_count"] = room.pointer, len(seeds)
        own["hubs"] = hub_rows[place].count
        own["hub_offsets"] = hub_rows[place].offsets.pointer
        own["hub_targets"] = hub_rows[place].targets.pointer
        marks = part.room("hub marks", hub_marks.nbytes)
        if hub_rows[place].count:
            marks.upload(hub_marks)
        own["target"] = target - part.first if target // placement.capacity == place else -1
        # Of a directed graph the classes are of in-degrees.
        own["is_directed"] = directed
        own["long_below"] = (
            placement.capacity if directed else out_rows[place].classes[_CLASS_GROUP]
        )
    return arguments


def _first_hub_marks(owners: Array, indexes: Array, devices: int, count: int) -> Array:
    """(3, devices * count) bits: which sources are hubs, in the first row; some bytes if there are none.

    :param count: hubs of a device
    """
    marks = np.zeros((3, max(32, devices * count)), np.uint8)
    there = indexes < count
    marks[0, owners[there] * count + indexes[there]] = 1
    return np.packbits(marks, axis=1, bitorder="little")


def _first_state(placement: StepPlacement, query: SearchQuery) -> list[int | float]:
    """Words of ``control->state``: the first frontier is in the queues."""
    state: dict[str, int | float] = dict.fromkeys(STATE, 0)
    state |= {
        "queued": 1,
        "replicated": int(len(placement.parts) == 1),
        "limit": UNREACHED - 1 if query.cutoff is None else query.cutoff,
        "vertices": max(1, sum(part.active for part in placement.parts)),
        "arcs": placement.graph.arc_count,
        "turn_down": float(query.gpu.turn_down),
        "turn_back": float(query.gpu.turn_back),
        "deep_steps": DEEP_STEPS if query.may_give_up else 0,
    }
    return list(state.values())


def _first_room(placement: StepPlacement, part: StepPart, given: int | None) -> int:
    """Items of a queue at the start: what was asked for, or what is there, or what is likely enough."""
    if given is not None:
        return min(given, placement.capacity)
    there = part.buffers.get("queue 0")
    likely = max(_LEAST_ROOM, placement.capacity >> _ROOM_SHIFT)
    return min(
        max(likely, 0 if there is None else there.nbytes // _INDEX_BYTES), placement.capacity
    )


def _make_queues(
    own: Any, part: StepPart, room: int, out_rows: StepRows, schedule: Schedule
) -> None:
    """Make room for frontiers of so many vertices, and for what of their rows is left to the team."""
    own["queue"] = [part.room(f"queue {which}", _INDEX_BYTES * room).pointer for which in (0, 1)]
    own["queue_room"] = room
    own["left_rows"] = part.room("left rows", left_rows_bytes(schedule, out_rows, room)).pointer


def _enlarge(
    placement: StepPlacement,
    arguments: Array,
    out_rows: Sequence[StepRows],
    schedule: Schedule,
    controls: Array,
) -> None:
    """Enlarge queues that had no room for a frontier, which the kernel is about to queue again."""
    if controls["phase"][0] != _QUEUE_AGAIN:
        return
    for own, part, rows in zip(arguments, placement.parts, out_rows, strict=True):
        wanted = int(part.buffers["local"].download(np.uint32, 2).max())
        room = int(own["queue_room"])
        if wanted > room:
            more = min(placement.capacity, max(wanted, 2 * room))
            _make_queues(own, part, more, rows, schedule)
            trace = active()
            if trace is not None:
                trace.instant(f"cuda:{part.index}", "kernel", "growth", frontier_items=more)
