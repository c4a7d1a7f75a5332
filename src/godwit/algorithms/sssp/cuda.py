"""Shortest paths on one GPU that look at few arcs: arguments and results of search.cuh."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.sssp.cuda_rows import SortedRowArrays
from godwit.algorithms.sssp.stages import UNREACHED, first_width
from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError
from godwit.runtime.cuda.compile import c_type, compile_meanwhile, number_bits
from godwit.runtime.cuda.memory import PinnedBuffer
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.results import VertexValues
from godwit.supersteps.rows import RowClass
from godwit.supersteps.run import (
    ROWS,
    STAGE,
    THREADS,
    StepPlan,
    count_work,
    left_rows_bytes,
    point_rows,
    state_words,
    step_source,
)

ARGUMENTS = np.dtype(
    [
        ("stage", STAGE),
        ("out", ROWS),
        ("in", ROWS),
        ("out_targets", np.uint64),
        ("out_weights", np.uint64),
        ("in_targets", np.uint64),
        ("in_weights", np.uint64),
        ("distances", np.uint64),
        ("pending", np.uint64),
        ("open", np.uint64),
        ("cursors", np.uint64),
        ("left_rows", np.uint64),
        ("counters", np.uint64),
        ("seeds", np.uint64),
        ("seed_count", np.int64),
        ("active", np.int64),
        ("cleared", np.int64),
        ("has_long_rows", np.uint64),
    ]
)
"""``Arguments`` of the kernel."""

DEEP_STEPS = 64
"""After this many supersteps a search of narrow frontiers is given up."""
TURN = 8.0
"""Pull when the in-arcs that are left are at most this multiple of the arcs of the latest stage."""

_COUNTERS_BYTES = 8
_LIST_BYTES_PER_WARP = 2048


class Phase(IntEnum):
    """``SsspPhase`` of the kernel."""

    BEGIN, PUSH, PULL, CORRECT = range(4)


class Word(IntEnum):
    """Words of ``control->state``: ``SsspState`` of the kernel."""

    (
        NEAR, BEFORE, WIDTH, FIRST_WIDTH, LIMIT, ARCS, SETTLED_ARCS, STAGE_ARCS, STAGE_LEFT, IS_FIRST,
        PULLED, OVERFLOWS, DEEP_STEPS, GAVE_UP, VERTICES, TURN,
    ) = range(16)  # fmt: skip


class Count(IntEnum):
    """Indices of the counts of a block; ``SsspCount`` of the kernel."""

    PROCESSED, LOOKED, FOUND, BEYOND, NEWLY_SETTLED_ARCS, OVERFLOWED = range(6)


def source(id_dtype: np.dtype[Any], value_dtype: np.dtype[Any], weight_dtype: np.dtype[Any]) -> str:
    """Return the source of the kernel.

    :param value_dtype: of distances: int32, int64 or float64
    """
    return step_source(
        "algorithms/sssp/search.cuh",
        ARGUMENTS,
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
    """The arrays of searches, kept on the GPU between queries.

    :ivar distances: by dtype
    :ivar cleared: dtypes in whose distances vertices without arcs are unreached, and stay so
    """

    def __init__(self, placement: StepPlacement) -> None:
        self.distances = {name: DeviceArray(placement) for name in UNREACHED}
        self.cleared: set[str] = set()
        self.pending = DeviceArray(placement)
        self.open = DeviceArray(placement)
        self.cursors = DeviceArray(placement)
        self.left_rows = DeviceArray(placement)
        self.counters = DeviceArray(placement)


@dataclass
class SsspOutcome:
    """Outcome of a search on one GPU.

    :param distance: (n) int64 or float64, as of :func:`godwit.sssp`; None if it is not complete
    :param overflows: a distance does not fit the dtype; otherwise a search that is not complete was given
        up, as few vertices at a time are found along long paths
    :param count: fills in counts: of times that a vertex pushed, and of arcs that were looked at
    :param seconds: by phase
    """

    distance: Any
    overflows: bool
    count: Callable[[RunStatistics], None]
    seconds: dict[str, float] = field(default_factory=dict)


def search_on_gpu(
    placement: StepPlacement,
    sources: Array,
    dtype: np.dtype[Any],
    limit: float | None,
    *,
    location: ResultLocation,
    gpu: GpuOptions,
    poll: ProgressPoll | None,
) -> SsspOutcome:
    """Search from some sources on a placement of one GPU.

    :param sources: (s) vertices, each once
    :param dtype: of the distances that the GPU computes: int32 or int64 for integer weights, float64 for
        others
    :param limit: vertices beyond it are not reached
    :raises GraphTooLargeError: need against free, or more vertices than the kernel counts
    """
    if placement.capacity >= 1 << 32:
        raise GraphTooLargeError(
            f"the graph has {placement.capacity:,} vertices, and the search takes fewer than {1 << 32:,}"
        )
    seconds: dict[str, float] = {}
    with placement.held():
        key = ("sssp", dtype, gpu)
        plan = placement.plan(key, lambda: _SsspPlan(placement, dtype, gpu, seconds))
        plan.ask(sources, limit)
        distances = plan.values_at(location, lambda: plan.distances(location))
        seconds["kernel"] = plan.run(plan.state, early=True, poll=poll, behind=distances.start)
        plan.arrays.cleared.add(plan.dtype_name)
        words = plan.last_state
        count = partial(count_work, plan.controls(), Count.PROCESSED, Count.LOOKED)
        outcome = SsspOutcome(None, bool(words[Word.OVERFLOWS]), count, seconds)
        if not (words[Word.GAVE_UP] or outcome.overflows):
            outcome.distance, seconds["gather"] = distances.gather()
            if plan.alone is not None:
                outcome.distance[plan.alone] = 0
    return outcome


class _SsspPlan(StepPlan[StepPlacement]):
    """The search of a placement for one dtype of distances and one set of options.

    :param seconds: gets the time of making rows, and of loading the kernel
    :ivar alone: of the latest query, the sources that have no arcs, as the kernel keeps no distance of
        theirs; None if there are none
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
        text = source(placement.id_dtype, dtype, placement.graph.weight_dtype)
        compile_meanwhile(placement.indexes[0], text)
        sorted_rows = placement.kept(SortedRowArrays)
        (self._out,), (self._in,) = sorted_rows.make("out"), sorted_rows.make("in")
        seconds["rows"] = perf_counter() - begin
        super().__init__(placement, text, np.zeros(1, ARGUMENTS), gpu)
        seconds["compile"] = self.compile_s
        self.dtype, self.dtype_name = dtype, dtype.name
        self._farthest = self._bits(UNREACHED[self.dtype_name]) - 1
        self.arrays = placement.kept(SsspArrays)
        self._seeds = PinnedBuffer(placement.id_dtype.itemsize)
        self.alone: Array | None = None
        self._point()
        self.state = self._first_state()
        self.shared_bytes = _LIST_BYTES_PER_WARP * (max(64, gpu.threads or THREADS) // 32)
        self.lay_out()

    def _point(self) -> None:
        """Allocate arrays, and fill in all arguments that no query changes.

        :raises GraphTooLargeError: need against free
        """
        placement, arrays = self.placement, self.arrays
        (part,) = placement.parts
        out_rows, in_rows = self._out.rows, self._in.rows
        left = max(
            left_rows_bytes("mixed", rows, placement.capacity) for rows in (out_rows, in_rows)
        )
        distances = arrays.distances[self.dtype_name]
        bitmap = placement.count // 8
        placement.reserve(
            (distances, [self.dtype.itemsize * placement.count]),
            (arrays.pending, [bitmap]),
            (arrays.open, [bitmap]),
            (arrays.cursors, [4 * placement.count]),
            (arrays.left_rows, [left]),
            (arrays.counters, [_COUNTERS_BYTES]),
        )
        struct: Any = self.arguments[0]
        point_rows(struct["out"], out_rows)
        point_rows(struct["in"], in_rows)
        struct["out_targets"], struct["out_weights"] = (
            self._out.targets.pointer,
            self._out.weights.pointer,
        )
        struct["in_targets"], struct["in_weights"] = (
            self._in.targets.pointer,
            self._in.weights.pointer,
        )
        struct["distances"] = distances[part].pointer
        for name in ("pending", "open", "cursors", "left_rows", "counters"):
            struct[name] = getattr(arrays, name)[part].pointer
        directed = placement.is_directed
        # In an undirected graph vertices without arcs, which come last, are reached as seeds only.
        struct["active"] = self._active = part.owned if directed else part.active
        # Classes of a directed graph are of in-degrees.
        struct["has_long_rows"] = directed or out_rows.classes[RowClass.CLASS_WARP] > 0

    def _first_state(self) -> Array:
        """Return the state with which every search begins, but for its limits."""
        width = self._bits(
            first_width(self.placement.graph, self.placement.parts[0].active, self.dtype)
        )
        state: dict[Word, int | float] = {
            Word.NEAR: width,
            Word.BEFORE: 2**64 - 1,
            Word.WIDTH: width,
            Word.FIRST_WIDTH: width,
            Word.ARCS: self._in.rows.arcs,
            Word.IS_FIRST: 1,
            Word.VERTICES: max(1, self.placement.parts[0].active),
            Word.DEEP_STEPS: DEEP_STEPS,
            Word.TURN: float(TURN),
        }
        return state_words([state.get(word, 0) for word in Word])

    def _bits(self, distance: Any) -> int:
        """Return a distance as the kernel stores it."""
        return number_bits(distance, self.dtype)

    def ask(self, sources: Array, limit: float | None) -> None:
        """Write what a query asks for into the arguments and the first state."""
        placement, struct = self.placement, self.arguments[0]
        seeds = placement.numbering.position[sources]
        if seeds.nbytes > self._seeds.nbytes:
            self._seeds.close()
            self._seeds = PinnedBuffer(seeds.nbytes)
        self._seeds.upload(seeds)
        struct["seeds"], struct["seed_count"] = self._seeds.pointer, len(seeds)
        has_none = seeds >= self._active
        self.alone = sources[has_none] if has_none.any() else None
        is_cleared = self.dtype_name in self.arrays.cleared
        struct["cleared"] = struct["active"] if is_cleared else placement.parts[0].owned
        farthest = self._farthest
        self.state[Word.LIMIT] = farthest if limit is None else min(farthest, self._bits(limit))

    def distances(self, location: ResultLocation) -> VertexValues:
        """Return the distances of all vertices, which are yet to be gathered."""
        name = self.dtype_name
        wide = "float64" if self.dtype.kind == "f" else "int64"
        return VertexValues(
            self.placement,
            self.arrays.distances[name],
            self.dtype,
            location,
            result_dtype=wide,
            unreached=None if wide == name else (UNREACHED[name], UNREACHED[wide]),
        )

    def close(self) -> None:
        """Free the memory of seeds, too."""
        self._seeds.close()
        super().close()
