"""Direction-optimizing BFS on GPUs: arguments and results of bfs.cuh."""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from godwit.arrays import ResultLocation, set_items
from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError
from godwit.runtime.cuda.compile import c_type, compile_meanwhile
from godwit.runtime.cuda.slices import KeptOutcomes, Written
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.gpu_options import GpuOptions, Schedule
from godwit.runtime.protocol import ProgressPoll
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps.arrays import DeviceArray, StepPart
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.results import VertexValues, compile_delivery
from godwit.supersteps.rows import RowClass
from godwit.supersteps.run import (
    Searched,
    SearchSeeds,
    StepPlan,
    count_work,
    left_rows_bytes,
    point_rows,
    schedule_define,
    state_words,
    step_source,
    target_indexes,
)
from godwit.trace import active

UNREACHED = np.iinfo(np.int32).max

DEEP_STEPS = 24
"""After this many levels a search gives up if it looks long and the caller has an alternative."""

_MOST_LOOKED = 1.2
"""A search that looks at so many times the arcs of the graph has gained nothing by pulling: the
asynchronous engine, which does not meet at each level, is faster (benchmarks/choices.py)."""

_COUNTERS_BYTES = 16
_INDEX_BYTES = 4  # of a queue
_LEAST_ROOM = 1 << 14
_ROOM_SHIFT = 5  # queues begin with room for a 32nd of the vertices: wide frontiers are not queued

ARGUMENTS = struct_dtype("algorithms/bfs/state.cuh", "Arguments")


class Phase(IntEnum):
    """``BfsPhase`` of the kernel."""

    BEGIN, PUSH, RECEIVE, BROADCAST, PULL, QUEUE, QUEUE_AGAIN = range(7)


class Word(IntEnum):
    """Words of ``control->state``: ``BfsState`` of the kernel."""

    (
        DEPTH, VISITED, FRONTIER, PARITY, QUEUED, REPLICATED, LIMIT, VERTICES, ARCS, TURN_DOWN,
        TURN_BACK, PULLED, DEEP_STEPS, IS_DEEP, LONG_ROWS, QUEUE_INDEX, HAS_MISSED, GROWTHS,
        LISTING, HUBS, ALL_EXAMINED,
    ) = range(21)  # fmt: skip


class Count(IntEnum):
    """Indices of the counts of a block; ``BfsCount`` of the kernel."""

    FOUND, SENT, FOUND_LONG, FOUND_TARGET, EXAMINED, MISSED, FOUND_HUBS = range(7)


def source(id_dtype: np.dtype[Any], schedule: Schedule = "mixed", *, is_alone: bool = False) -> str:
    """Return the source of the kernel.

    :param is_alone: the search is on one device: less code is compiled
    """
    text = step_source(
        "algorithms/bfs/bfs.cuh",
        types={"Id": c_type(id_dtype)},
        enums=(Phase, Word, Count),
        work="grid_bfs",
    )
    alone = "#define ONE_DEVICE true\n" if is_alone else ""
    return alone + schedule_define(schedule) + text


def kernel_source(id_dtype: np.dtype[Any], gpu: GpuOptions, devices: int) -> str:
    """Return the source of the kernel for a number of devices."""
    return source(id_dtype, gpu.schedule, is_alone=devices == 1)


class BfsArrays:
    """The arrays of a search, kept on the devices between queries.

    :ivar depth_is_cleared: whether vertices without arcs are UNREACHED in ``depth``, where they stay so
    """

    def __init__(self, placement: StepPlacement) -> None:
        self.depth = DeviceArray(placement)
        self.depth_is_cleared = False
        self.visited = DeviceArray(placement), DeviceArray(placement)
        self.remote = DeviceArray(placement)
        self.queue = DeviceArray(placement), DeviceArray(placement)
        self.left_rows = DeviceArray(placement)
        self.counters = DeviceArray(placement)
        self.hub_frontier = DeviceArray(placement)


def bfs_on_gpus(
    placement: StepPlacement,
    sources: Array,
    target: int | None,
    cutoff: int | None,
    *,
    may_give_up: bool,
    location: ResultLocation,
    statistics: RunStatistics,
    gpu: GpuOptions,
    poll: ProgressPoll | None,
) -> Searched:
    """Return the depths of all vertices, and fill statistics with counts.

    :param sources: (s) vertices, ascending, each once
    :param target: a vertex: deeper vertices are not searched for
    :param cutoff: a depth: deeper vertices are not searched for
    :param may_give_up: the caller has an alternative for a graph with many levels
    :param location: of the depths
    :returns: (n) int32, None if the search gave up
    :raises GraphTooLargeError: need against free, or more vertices a device than the kernel counts
    """
    if placement.capacity >= 1 << 32:
        raise GraphTooLargeError(
            f"a device would own {placement.capacity:,} vertices, and the search takes fewer than "
            f"{1 << 32:,} a device; use more GPUs, or execution='asynchronous'"
        )
    seconds: dict[str, float] = {}
    with placement.held():
        plan = placement.plan(("bfs", gpu), lambda: _BfsPlan(placement, gpu, seconds))
        plan.ask(sources, target, cutoff, may_give_up=may_give_up)
        depths = plan.values_at(
            location,
            lambda: VertexValues(
                placement, plan.arrays.depth, np.int32, location, lasts=True, exchange=plan.exchange
            ),
        )
        seconds["kernel"] = plan.run(plan.state, early=True, poll=poll, behind=depths.start)
        plan.arrays.depth_is_cleared = True
        if plan.exchange.by_host:
            seconds["exchange"] = plan.exchange_s
        statistics.count_later(partial(_count, plan.kept_outcomes(), sum(plan.queue_rooms)))
        words = plan.last_state
        depth = None
        if words[Word.IS_DEEP]:
            depths.drop()  # the plan may not be asked again, and keeps it
        else:
            depth, seconds["gather"] = depths.gather()
            if plan.alone is not None:
                set_items(depth, plan.alone, 0)
        looked, levels = words[Word.ALL_EXAMINED], words[Word.DEPTH]
        gains = depth is not None and looked < _MOST_LOOKED * placement.graph.arc_count
    return Searched(depth, seconds, gains, looked, levels)


def _count(kept: KeptOutcomes, queue_room: int, statistics: RunStatistics) -> None:
    """Fill in the counts of a search."""
    words = count_work(kept, Count.FOUND, Count.EXAMINED, statistics)["state"][0]
    statistics.frontier_bytes = 2 * _INDEX_BYTES * queue_room
    statistics.levels = int(words[Word.DEPTH]) + int(words[Word.FRONTIER] > 0)
    statistics.growths = int(words[Word.GROWTHS])


class _BfsPlan(StepPlan[StepPlacement]):
    """The search of a placement for one set of options.

    :param seconds: gets the time of making rows, and of loading the kernel
    :ivar alone: places in the result of the latest query's sources that have no arcs, as kernels keep no
        depth of theirs; None if there are none
    :ivar queue_rooms: items that there is room for in a queue of each device
    """

    def __init__(
        self, placement: StepPlacement, gpu: GpuOptions, seconds: dict[str, float]
    ) -> None:
        begin = perf_counter()
        text = kernel_source(placement.id_dtype, gpu, placement.device_count)
        compile_meanwhile(placement.indexes[0], text)
        compile_delivery(placement, np.int32)
        self.out_rows = placement.rows("out")
        self.in_rows = placement.rows("in")
        self.hub_rows = placement.hub_rows()
        seconds["rows"] = perf_counter() - begin
        super().__init__(placement, text, np.zeros(len(placement.parts), ARGUMENTS), gpu)
        seconds["compile"] = self.compile_s
        self.arrays = placement.kept(BfsArrays)
        self.between = self._enlarge_queues
        self.exchange_on_host = self._host_copies
        self._seeds = SearchSeeds(placement, self.arguments)
        self.alone: Array | None = None
        self._asked = Written()  # by the latest query, besides its sources
        self.queue_rooms = [0] * len(placement.parts)
        self._owned = [part.owned for part in placement.parts]
        self.state = self._first_state()
        self._point()
        self.lay_out()

    def _point(self) -> None:
        """Make room for all that a device needs, and fill in all arguments that no query changes."""
        placement, arrays = self.placement, self.arrays
        directed, devices = placement.is_directed, placement.device_count
        bitmap_bytes = placement.count // 8
        hub_bytes = 3 * max(4, devices * self.hub_rows[0].count // 8)
        for part, struct in zip(placement.parts, self.arguments, strict=True):
            out_rows, hub_rows = self.out_rows[part.place], self.hub_rows[part.place]
            point_rows(struct["out"], out_rows)
            point_rows(struct["in"], self.in_rows[part.place])
            # In an undirected graph vertices without arcs, which come last, are reached as seeds only.
            struct["active"] = part.owned if directed else part.active
            struct["depth"] = arrays.depth.room(part, 4 * placement.count).pointer
            self._make_queues(part, self._first_queue_room(part))
            struct["counters"] = arrays.counters.room(part, _COUNTERS_BYTES).pointer
            for visited in arrays.visited:
                visited.room(part, bitmap_bytes)
            arrays.remote.room(part, bitmap_bytes if devices > 1 else 4)
            struct["hubs"] = hub_rows.count
            struct["hub_offsets"] = hub_rows.offsets.pointer
            struct["hub_targets"] = hub_rows.targets.pointer
            arrays.hub_frontier.room(part, hub_bytes)
            # In a directed graph the classes are those of in-degrees.
            struct["is_directed"] = directed
            struct["long_below"] = (
                placement.capacity if directed else out_rows.classes[RowClass.CLASS_GROUP]
            )
        for which, visited in enumerate(arrays.visited):
            self.arguments["visited"][:, which] = self.exchange.broadcast_pointers(visited)
        self.arguments["remote"] = self.exchange.collected_pointers(arrays.remote, 1)
        self.arguments["hub_frontier"] = self.exchange.broadcast_pointers(arrays.hub_frontier)

    def ask(
        self, sources: Array, target: int | None, cutoff: int | None, *, may_give_up: bool
    ) -> None:
        """Write what a query asks for into the arguments and the first state."""
        self.alone = self._seeds.write(sources)
        asked = (target, cutoff, may_give_up, self.arrays.depth_is_cleared)
        if not self._asked.has(asked):
            self._write(target, cutoff, may_give_up=may_give_up)
            self._asked.note(asked)

    def _write(self, target: int | None, cutoff: int | None, *, may_give_up: bool) -> None:
        self.state[Word.LIMIT] = UNREACHED - 1 if cutoff is None else cutoff
        self.state[Word.DEEP_STEPS] = DEEP_STEPS if may_give_up else 0
        placement, arguments = self.placement, self.arguments
        arguments["cleared"] = arguments["active"] if self.arrays.depth_is_cleared else self._owned
        arguments["target"] = target_indexes(placement, target)

    def close(self) -> None:
        """Free the memory of seeds, too."""
        self._seeds.close()
        super().close()

    def _first_state(self) -> Array:
        """Return the state with which every search begins, but for its limits."""
        placement, gpu = self.placement, self.gpu
        state: dict[Word, int | float] = {
            Word.QUEUED: 1,
            Word.REPLICATED: int(placement.device_count == 1),
            Word.VERTICES: max(1, placement.active_count),
            Word.ARCS: placement.graph.arc_count,
            Word.TURN_DOWN: float(gpu.turn_down),
            Word.TURN_BACK: float(gpu.turn_back),
        }
        return state_words([state.get(word, 0) for word in Word])

    def _first_queue_room(self, part: StepPart) -> int:
        """Return the items of a queue at first: as asked for, or as there are, or a likely number."""
        capacity = self.placement.capacity
        if self.gpu.frontier_items is not None:
            return min(self.gpu.frontier_items, capacity)
        kept = self.arrays.queue[0].nbytes(part) // _INDEX_BYTES
        return min(max(_LEAST_ROOM, capacity >> _ROOM_SHIFT, kept), capacity)

    def _make_queues(self, part: StepPart, room: int) -> None:
        """Make room for frontiers of `room` vertices, and for their rows that are left to the team."""
        struct, arrays = self.arguments[part.place], self.arrays
        struct["queue"] = [queue.room(part, _INDEX_BYTES * room).pointer for queue in arrays.queue]
        struct["queue_room"] = self.queue_rooms[part.place] = room
        left_bytes = left_rows_bytes(self.gpu.schedule, self.out_rows[part.place], room)
        struct["left_rows"] = arrays.left_rows.room(part, left_bytes).pointer

    def _enlarge_queues(self, controls: Array) -> None:
        """Enlarge queues that a frontier did not fit, before the kernel queues it again."""
        if controls["phase"][0] != Phase.QUEUE_AGAIN:
            return
        for part, struct in zip(self.placement.parts, self.arguments, strict=True):
            wanted = int(self.arrays.counters[part].download(np.uint32, 2).max())
            room = int(struct["queue_room"])
            if wanted > room:
                more = min(self.placement.capacity, max(wanted, 2 * room))
                self._make_queues(part, more)
                trace = active()
                if trace is not None:
                    trace.instant(f"cuda:{part.index}", "kernel", "growth", frontier_items=more)

    def _host_copies(self, last: int, coming: int, state: Array) -> None:
        """Copy between devices after the superstep ``last``, where the host does so."""
        arrays, exchange = self.arrays, self.exchange
        parity = int(state[Word.PARITY])
        is_replicated_push = last == Phase.PUSH and state[Word.REPLICATED]
        if last in (Phase.RECEIVE, Phase.BROADCAST, Phase.PULL) or is_replicated_push:
            exchange.broadcast(arrays.visited[parity], 1)
        if last == Phase.RECEIVE:
            exchange.reset(arrays.remote, 1)
        if coming == Phase.RECEIVE:
            exchange.fetch(arrays.remote, 1)
        if state[Word.HUBS]:
            exchange.broadcast_rows(arrays.hub_frontier, 3, self.hub_rows[0].count // 8)
