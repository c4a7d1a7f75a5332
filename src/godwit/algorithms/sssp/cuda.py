"""Shortest paths on GPUs that look at few arcs: arguments and results of search.cuh."""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.sssp import stages
from godwit.algorithms.sssp.cuda_rows import SortedRowArrays, compile_sorting
from godwit.algorithms.sssp.stages import UNREACHED, first_width
from godwit.arrays import ResultLocation, set_items
from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError, ValueOverflowError
from godwit.runtime.cuda.compile import c_type, compile_meanwhile, number_bits
from godwit.runtime.cuda.slices import Written
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.results import VertexValues, compile_delivery
from godwit.supersteps.rows import RowClass
from godwit.supersteps.run import (
    STEP,
    THREADS,
    Searched,
    SearchSeeds,
    StepPlan,
    count_work,
    left_rows_bytes,
    point_rows,
    state_words,
    step_source,
    target_indexes,
)

ARGUMENTS = struct_dtype("algorithms/sssp/search.cuh", "Arguments")

DEEP_STEPS = 64
"""After this many supersteps a search of narrow frontiers is given up."""
TURN = 8.0
"""Pull when the in-arcs that are left are at most this multiple of the arcs of the latest stage."""

_COUNTERS_BYTES = 8
_LIST_BYTES_PER_WARP = 2048


class Phase(IntEnum):
    """``SsspPhase`` of the kernel."""

    BEGIN, PUSH, BROADCAST, PULL, CORRECT, CUT = range(6)


class Word(IntEnum):
    """Words of ``control->state``: ``SsspState`` of the kernel."""

    (
        NEAR, BEFORE, WIDTH, FIRST_WIDTH, LIMIT, ARCS, SETTLED_ARCS, STAGE_ARCS, STAGE_LEFT, IS_FIRST,
        PULLED, OVERFLOWS, DEEP_STEPS, GAVE_UP, VERTICES, TURN, IS_SENT, ALL_LOOKED, HAS_TARGET,
    ) = range(19)  # fmt: skip


class Count(IntEnum):
    """Indices of the counts of a block; ``SsspCount`` of the kernel."""

    PROCESSED, LOOKED, FOUND, BEYOND, NEWLY_SETTLED_ARCS, OVERFLOWED, SENT, TARGET = range(8)


def source(
    id_dtype: np.dtype[Any],
    value_dtype: np.dtype[Any],
    weight_dtype: np.dtype[Any],
    *,
    several: bool = False,
) -> str:
    """Return the source of the kernel.

    :param value_dtype: of distances: int32, int64 or float64
    :param several: for several devices
    """
    alone = "" if several else "#define SEVERAL_DEVICES false\n"
    return alone + step_source(
        "algorithms/sssp/search.cuh",
        types={
            "Id": c_type(id_dtype),
            "Value": c_type(value_dtype),
            "Stored": "i32" if value_dtype.itemsize == 4 else "i64",
            "Weight": c_type(weight_dtype),
        },
        enums=(Phase, Word, Count),
        work="grid_sssp",
    )


class SsspArrays:
    """The arrays of searches, kept on the devices between queries.

    :ivar known: distances by position, by dtype
    :ivar cleared: dtypes in whose distances vertices without arcs are unreached, and stay so
    :ivar has_overflowed: a distance has not fitted 32 bits
    """

    has_overflowed = False

    def __init__(self, placement: StepPlacement) -> None:
        self.known = {name: DeviceArray(placement) for name in UNREACHED}
        self.cleared: set[str] = set()
        self.pending = DeviceArray(placement)
        self.open = DeviceArray(placement)
        self.cursors = DeviceArray(placement)
        self.sent = DeviceArray(placement), DeviceArray(placement)
        self.left_rows = DeviceArray(placement)
        self.counters = DeviceArray(placement)

    def release(self) -> None:
        """Free all memory."""
        self.cleared.clear()
        for array in (
            *self.known.values(), *self.sent, self.pending, self.open, self.cursors, self.left_rows,
            self.counters,
        ):  # fmt: skip
            array.release()

    def note_overflow(self) -> None:
        """Take note that a distance has not fitted 32 bits."""
        self.has_overflowed = True


def search_on_gpus(
    placement: StepPlacement,
    sources: Array,
    dtype: np.dtype[Any],
    limit: float | None,
    target: int | None = None,
    *,
    may_give_up: bool = True,
    location: ResultLocation,
    statistics: RunStatistics,
    gpu: GpuOptions,
    poll: ProgressPoll | None,
) -> Searched:
    """Return the distances of all vertices, and fill statistics with counts.

    :param sources: (s) vertices, each once
    :param dtype: of the distances that the GPUs compute: int32 or int64 for integer weights, float64 for
        others
    :param limit: vertices beyond it are not reached
    :param target: vertices farther than this one, which is none of the sources, are not reached
    :param may_give_up: the caller has an alternative for a graph whose frontiers are narrow, or of which
        most arcs are looked at; sorted rows are freed then
    :returns: (n) int64 or float64, as of :func:`godwit.sssp`, None if the search gave up: few vertices at
        a time are found along long paths
    :raises ValueOverflowError: a distance does not fit the dtype
    :raises GraphTooLargeError: need against free, or more vertices a device than the kernel counts
    """
    if placement.capacity >= 1 << 32:
        raise GraphTooLargeError(
            f"a device would own {placement.capacity:,} vertices, and the search takes fewer than "
            f"{1 << 32:,} a device"
        )
    seconds: dict[str, float] = {}
    with placement.held():
        key = ("sssp", dtype, gpu)
        plan = placement.plan(key, lambda: _SsspPlan(placement, dtype, gpu, seconds))
        plan.ask(sources, limit, target, may_give_up=may_give_up)
        distances = plan.values_at(location, lambda: plan.distances(location))
        behind = distances.start if placement.processes is None else None
        seconds["kernel"] = plan.run(plan.state, early=True, poll=poll, behind=behind)
        if plan.exchange.by_host:
            seconds["exchange"] = plan.exchange_s
        plan.arrays.cleared.add(plan.dtype_name)
        words = plan.last_state
        statistics.count_later(
            partial(count_work, plan.kept_outcomes(), Count.PROCESSED, Count.LOOKED)
        )
        looked, supersteps = words[Word.ALL_LOOKED], words[STEP]
        distance = None
        if words[Word.OVERFLOWS] or words[Word.GAVE_UP]:
            distances.drop()  # the plan may not be asked again, and keeps it
            if words[Word.OVERFLOWS]:
                raise ValueOverflowError(f"a distance does not fit {plan.dtype_name}")
        else:
            distance, seconds["gather"] = distances.gather()
            if plan.alone is not None:
                set_items(distance, plan.alone, 0)
        gains = distance is not None and stages.gains(placement.graph, looked, supersteps)
        if may_give_up and not gains:
            placement.drop_plan(key)
            plan.arrays.release()
            placement.kept(SortedRowArrays).release()
    return Searched(distance, seconds, gains, looked, supersteps)


def result_arguments(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return how distances of a dtype become results: arguments of :class:`VertexValues`."""
    name, wide = dtype.name, "float64" if dtype.kind == "f" else "int64"
    unreached = None if wide == name else (UNREACHED[name], UNREACHED[wide])
    return {"result_dtype": wide, "unreached": unreached}


class _SsspPlan(StepPlan[StepPlacement]):
    """The search of a placement for one dtype of distances and one set of options.

    :param seconds: gets the time of making rows, and of loading the kernel
    :ivar alone: places in the result of the latest query's sources that have no arcs, as the kernel keeps
        no distance of theirs; None if there are none
    """

    def __init__(
        self,
        placement: StepPlacement,
        dtype: np.dtype[Any],
        gpu: GpuOptions,
        seconds: dict[str, float],
    ) -> None:
        begin = perf_counter()
        assert placement.graph.weight_dtype is not None
        several = placement.device_count > 1
        text = source(placement.id_dtype, dtype, placement.graph.weight_dtype, several=several)
        compile_meanwhile(placement.indexes[0], text)
        self._conversion = result_arguments(dtype)
        compile_sorting(placement)
        compile_delivery(placement, dtype, **self._conversion)
        sorted_rows = placement.kept(SortedRowArrays)
        self._out, self._in = sorted_rows.make("out"), sorted_rows.make("in")
        seconds["rows"] = perf_counter() - begin
        super().__init__(placement, text, np.zeros(len(placement.parts), ARGUMENTS), gpu)
        seconds["compile"] = self.compile_s
        self.exchange_on_host = self._host_copies
        self.dtype, self.dtype_name = dtype, dtype.name
        self._farthest = self._bits(UNREACHED[self.dtype_name]) - 1
        self._bits_of_known = 8 * dtype.itemsize
        self.arrays = placement.kept(SsspArrays)
        self._seeds = SearchSeeds(placement, self.arguments)
        self.alone: Array | None = None
        self._asked = Written()  # by the latest query, besides its sources
        self._point()
        self.state = self._first_state()
        self.shared_bytes = _LIST_BYTES_PER_WARP * (max(64, gpu.threads or THREADS) // 32)
        self.lay_out()

    def _point(self) -> None:
        """Allocate arrays, and fill in all arguments that no query changes.

        :raises GraphTooLargeError: need against free
        """
        placement, arrays = self.placement, self.arrays
        known = arrays.known[self.dtype_name]
        directed, parts, bitmap = placement.is_directed, placement.parts, placement.count // 8
        several = placement.device_count > 1
        left = [
            max(
                left_rows_bytes("mixed", rows[part.place].rows, placement.capacity)
                for rows in (self._out, self._in)
            )
            for part in parts
        ]
        placement.reserve(
            (known, [self.dtype.itemsize * placement.count for _ in parts]),
            (arrays.pending, [placement.capacity // 8 for _ in parts]),
            (arrays.open, [bitmap for _ in parts]),
            (arrays.cursors, [4 * placement.capacity for _ in parts]),
            *((sent, [bitmap if several else 4 for _ in parts]) for sent in arrays.sent),
            (arrays.left_rows, left),
            (arrays.counters, [_COUNTERS_BYTES for _ in parts]),
        )
        for part, struct in zip(parts, self.arguments, strict=True):
            out, into = self._out[part.place], self._in[part.place]
            point_rows(struct["out"], out.rows)
            point_rows(struct["in"], into.rows)
            struct["out_targets"], struct["out_weights"] = out.targets.pointer, out.weights.pointer
            struct["in_targets"], struct["in_weights"] = into.targets.pointer, into.weights.pointer
            for name in ("pending", "cursors", "left_rows", "counters"):
                struct[name] = getattr(arrays, name)[part].pointer
            struct["known"] = known[part].pointer
            struct["distances"] = known[part].pointer + self.dtype.itemsize * part.first
            struct["known_open"] = arrays.open[part].pointer
            struct["open"] = arrays.open[part].pointer + part.first // 8
            struct["active"] = self._seeds.active[part.device]
            # Classes of a directed graph are of in-degrees.
            struct["has_long_rows"] = directed or out.rows.classes[RowClass.CLASS_WARP] > 0
        # What a device stores in others' copies, it does in its own range of them: where the host copies,
        # these pointers lead elsewhere, and it broadcasts the range.
        self.arguments["known_by"] = self.exchange.collected_pointers(known, self._bits_of_known)
        self.arguments["known_open_by"] = self.exchange.broadcast_pointers(arrays.open)
        for parity, sent in enumerate(arrays.sent):
            self.arguments["sent"][:, parity] = self.exchange.collected_pointers(sent, 1)

    def _first_state(self) -> Array:
        """Return the state with which every search begins, but for its limits."""
        active = self.placement.active_count
        width = self._bits(first_width(self.placement.graph, active, self.dtype))
        state: dict[Word, int | float] = {
            Word.NEAR: width,
            Word.BEFORE: 2**64 - 1,
            Word.WIDTH: width,
            Word.FIRST_WIDTH: width,
            Word.ARCS: self.placement.graph.arc_count,
            Word.IS_FIRST: 1,
            Word.VERTICES: max(1, active),
            Word.TURN: float(TURN),
        }
        return state_words([state.get(word, 0) for word in Word])

    def _bits(self, distance: Any) -> int:
        """Return a distance as the kernel stores it."""
        return number_bits(distance, self.dtype)

    def ask(
        self, sources: Array, limit: float | None, target: int | None, *, may_give_up: bool
    ) -> None:
        """Write what a query asks for into the arguments and the first state."""
        self.alone = self._seeds.write(sources)
        is_cleared = self.dtype_name in self.arrays.cleared
        asked = (limit, target, is_cleared, may_give_up)
        if self._asked.has(asked):
            return
        placement, arguments = self.placement, self.arguments
        cleared = self._seeds.active if is_cleared else placement.numbering.owned
        arguments["cleared"][:, : len(cleared)] = cleared
        self.state[Word.DEEP_STEPS] = DEEP_STEPS if may_give_up else 0
        farthest = self._farthest
        self.state[Word.LIMIT] = farthest if limit is None else min(farthest, self._bits(limit))
        self.state[Word.HAS_TARGET] = target is not None
        arguments["target"] = target_indexes(placement, target)
        self._asked.note(asked)

    def distances(self, location: ResultLocation) -> VertexValues:
        """Return the distances of all vertices, which are yet to be gathered."""
        return VertexValues(
            self.placement,
            self.arrays.known[self.dtype_name],
            self.dtype,
            location,
            **self._conversion,
            # What another device's vertices have here is sent to their owners between two slices.
            keeps_others=True,
            lasts=True,
            exchange=self.exchange,
        )

    def _host_copies(self, last: int, coming: int, state: Array) -> None:
        """Copy between devices after the superstep ``last``, where the host does so."""
        arrays, exchange = self.arrays, self.exchange
        known, step = arrays.known[self.dtype_name], int(state[STEP])
        if last in (Phase.BROADCAST, Phase.PULL):
            exchange.broadcast(known, self._bits_of_known)
        if last == Phase.PULL:
            exchange.broadcast(arrays.open, 1)
        if last in (Phase.PUSH, Phase.CORRECT):  # which took what the superstep before had sent
            exchange.reset(arrays.sent[step % 2], 1)
        if coming in (Phase.PUSH, Phase.CORRECT) and state[Word.IS_SENT]:
            exchange.fetch(arrays.sent[(step + 1) % 2], 1)
            exchange.fetch(known, self._bits_of_known)

    def close(self) -> None:
        """Free the memory of seeds, too."""
        self._seeds.close()
        super().close()
