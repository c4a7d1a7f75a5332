"""Greedy passes on one GPU: arguments and results of greedy.cuh."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.greedy.order import Kind, degrees, vertex_order
from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError
from godwit.runtime.cuda.compile import c_type, compile_meanwhile
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.results import deliver_vertices
from godwit.supersteps.run import ROWS, STAGE, STEP, StepPlan, point_rows, step_source

ARGUMENTS = np.dtype(
    [
        ("stage", STAGE),
        ("out", ROWS),
        ("in", ROWS),
        ("order", np.uint64),
        ("rank", np.uint64),
        ("bound", np.uint64),
        ("value", np.uint64),
        ("count", np.int64),
        ("chunk", np.int64),
        ("is_directed", np.uint32),
        ("is_sorted", np.uint32),
    ]
)
"""``Arguments`` of greedy.cuh."""

_CHUNK = 1 << 18
"""Vertices that a superstep decides: some hundred microseconds."""
_INDEX_BYTES = 4


class Phase(IntEnum):
    """``GreedyPhase`` of the kernel."""

    GREEDY_BEGIN, GREEDY_DECIDE = range(2)


class Count(IntEnum):
    """Indices of the counts of a block: ``GreedyCount`` of the kernel."""

    DECIDED, VISITED = range(2)


@dataclass
class GreedyOutcome:
    """Decisions, work and times of a query.

    :param values: (n) int32
    :param decided: vertices with arcs
    :param visited: arcs that were read
    :param seconds: by phase: ``rows``, ``order``, ``compile``, ``kernel``, ``gather``
    """

    values: Any
    decided: int
    visited: int
    supersteps: int
    seconds: dict[str, float] = field(default_factory=dict)


def source(id_dtype: Any, kind: Kind) -> str:
    """Return the source of the kernel for a dtype of positions."""
    text = step_source(
        "algorithms/greedy/greedy.cuh",
        ARGUMENTS,
        types={"Id": c_type(np.dtype(id_dtype))},
        work="grid_greedy",
        enums=(Phase, Count),
    )
    return f"#define COLORS {str(kind is Kind.COLOR).lower()}\n{text}"


class _SetArrays:
    """The arrays of a kind, kept on the device between queries.

    :ivar seed: seed of the order that is there
    """

    def __init__(self, placement: StepPlacement) -> None:
        self.order = DeviceArray(placement)
        self.rank = DeviceArray(placement)
        self.bound = DeviceArray(placement)
        self.value = DeviceArray(placement)
        self.seed: int | None = None


class _ColorArrays(_SetArrays):
    """The same of the other kind."""


def decide_on_gpu(
    placement: StepPlacement,
    kind: Kind,
    seed: int,
    gpu: GpuOptions,
    location: ResultLocation,
    poll: ProgressPoll | None,
) -> GreedyOutcome:
    """Decide all vertices of a graph that has some, and is on one device.

    :param location: of the decisions
    :raises GraphTooLargeError: need against free, or more vertices than the kernel counts
    """
    if placement.capacity >= 1 << 32:
        raise GraphTooLargeError(
            f"a {kind.value} on a GPU takes fewer than {1 << 32:,} vertices, and the graph has "
            f"{placement.vertex_count:,}; use devices='cpu'"
        )
    seconds: dict[str, float] = {}
    with placement.held():
        plan = placement.plan((kind, gpu), lambda: _GreedyPlan(placement, kind, gpu, seconds))
        seconds["order"] = plan.put_in_order(seed)
        seconds["kernel"] = plan.run(phase=Phase.GREEDY_BEGIN, poll=poll)
        control = plan.controls()[0]
        values, seconds["gather"] = deliver_vertices(
            placement, plan.arrays.value, np.int32, location
        )
    counts = control["run_counts"]
    return GreedyOutcome(
        values,
        int(counts[Count.DECIDED]),
        int(counts[Count.VISITED]),
        int(control["state"][STEP]),
        seconds,
    )


class _GreedyPlan(StepPlan[StepPlacement]):
    """Greedy passes of a placement on one device.

    :param seconds: gets the time of making rows, and of loading the kernel
    """

    def __init__(
        self, placement: StepPlacement, kind: Kind, gpu: GpuOptions, seconds: dict[str, float]
    ) -> None:
        self._kind = kind
        begin = perf_counter()
        text = source(placement.id_dtype, kind)
        compile_meanwhile(placement.indexes[0], text)
        directed = placement.graph.directed
        (out_rows,) = placement.rows("out")
        (in_rows,) = placement.rows("in") if directed else (out_rows,)
        seconds["rows"] = perf_counter() - begin
        super().__init__(placement, text, np.zeros(1, ARGUMENTS), gpu)
        seconds["compile"] = self.compile_s
        self.arrays = placement.kept(_SetArrays if kind is Kind.SET else _ColorArrays)
        (part,) = placement.parts
        vertex_bytes = _INDEX_BYTES * placement.capacity
        placement.reserve(
            (self.arrays.order, [vertex_bytes]),
            (self.arrays.rank, [vertex_bytes]),
            (self.arrays.bound, [vertex_bytes]),
            (self.arrays.value, [4 * placement.count]),
        )
        struct = self.arguments[0]
        point_rows(struct["out"], out_rows)
        point_rows(struct["in"], in_rows)
        for name in ("order", "rank", "bound", "value"):
            struct[name] = getattr(self.arrays, name)[part].pointer
        struct["is_directed"] = directed
        degree = self._degrees()
        # Rows of directed graphs are by in-degrees.
        descend = placement.numbering.by_degree and bool((np.diff(degree) <= 0).all())
        struct["is_sorted"] = descend and not directed
        struct["chunk"] = _CHUNK
        struct["count"] = np.count_nonzero(degree)
        self.lay_out()

    def put_in_order(self, seed: int) -> float:
        """Upload the order of a seed, unless it is there; return the seconds that it took."""
        begin = perf_counter()
        if self.arrays.seed == seed:
            return perf_counter() - begin
        placement, arrays = self.placement, self.arrays
        (part,) = placement.parts
        arrays.seed = None
        order = placement.position(vertex_order(placement.graph, self._kind, seed))
        without_arcs = len(order) - int(self.arguments["count"][0])
        # Vertices without arcs come first in the order of a set, and last in that of colours.
        order = (
            order[without_arcs:] if self._kind is Kind.SET else order[: len(order) - without_arcs]
        )
        rank = np.zeros(placement.capacity, np.uint32)
        rank[order] = np.arange(len(order), dtype=np.uint32)
        for array, values in (
            (arrays.order, order),
            (arrays.rank, rank),
            (arrays.bound, self._bounds()),
        ):
            if len(values):
                array[part].upload(values.astype(np.uint32))
        arrays.seed = seed
        return perf_counter() - begin

    def _degrees(self) -> Array:
        """Return the number of arcs at each position."""
        return degrees(self.placement.graph)[self.placement.numbering.vertices(0)]

    def _bounds(self) -> Array:
        """Return for each position where the run of positions of its degree begins (sets), or ends."""
        degree = self._degrees()
        firsts = np.flatnonzero(np.diff(degree, prepend=-1))
        ends = np.append(firsts[1:], len(degree))
        return np.repeat(firsts if self._kind is Kind.SET else ends, ends - firsts)
