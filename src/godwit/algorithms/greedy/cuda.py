"""Greedy passes on one GPU: arguments and results of greedy.cuh."""

from __future__ import annotations

from enum import IntEnum
from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.greedy.order import Kind, degrees, vertex_order
from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.runtime.cuda.compile import c_type
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.first_gpu import Outcome
from godwit.supersteps.one_gpu import OneGpuPlan, compiling, require_few_vertices
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.run import point_rows, step_source

ARGUMENTS = struct_dtype("algorithms/greedy/greedy.cuh", "Arguments")

_CHUNK = 1 << 18
"""Vertices that a superstep decides: some hundred microseconds."""
_INDEX_BYTES = 4


class Phase(IntEnum):
    """``GreedyPhase`` of the kernel."""

    GREEDY_BEGIN, GREEDY_DECIDE = range(2)


class Count(IntEnum):
    """Indices of the counts of a block: ``GreedyCount`` of the kernel."""

    DECIDED, VISITED = range(2)


def source(id_dtype: Any, kind: Kind) -> str:
    """Return the source of the kernel for a dtype of positions."""
    text = step_source(
        "algorithms/greedy/greedy.cuh",
        types={"Id": c_type(np.dtype(id_dtype))},
        work="grid_greedy",
        enums=(Phase, Count),
    )
    return f"#define COLORS {str(kind is Kind.COLOR).lower()}\n{text}"


def decide_on_gpu(
    placement: StepPlacement,
    kind: Kind,
    seed: int,
    gpu: GpuOptions,
    location: ResultLocation,
    poll: ProgressPoll | None,
) -> Outcome:
    """Decide all vertices of a graph that has some, and is on one device: int32 (n).

    :param location: of the decisions
    :returns: values, and in ``seconds`` the phase ``order`` beside the others; vertices without arcs are
        not counted
    :raises GraphTooLargeError: need against free, or more vertices than the kernel counts
    """
    require_few_vertices(placement, f"a {kind.value} on a GPU takes")
    with placement.held():
        plan = placement.plan((kind, gpu), lambda: _GreedyPlan(placement, kind, gpu))
        order_s = plan.put_in_order(seed)
        plan.ask(phase=Phase.GREEDY_BEGIN, poll=poll)
        plan.seconds["order"] = order_s
        values = plan.deliver("value", np.int32, location)
        return plan.outcome(values, Count.DECIDED, Count.VISITED)


def _seeds(_: StepPlacement) -> dict[Kind, int]:
    """Return an empty dictionary, for the seeds of the orders that lie on the device, by kind."""
    return {}


class _GreedyPlan(OneGpuPlan):
    """Greedy passes of a placement on one device."""

    def __init__(self, placement: StepPlacement, kind: Kind, gpu: GpuOptions) -> None:
        self._kind = kind
        directed = placement.graph.directed
        with compiling(placement, source(placement.id_dtype, kind)) as prepared:
            (out_rows,) = placement.rows("out")
            (in_rows,) = placement.rows("in") if directed else (out_rows,)
        super().__init__(placement, prepared, ARGUMENTS, gpu, kind.value)
        vertex_bytes = _INDEX_BYTES * placement.capacity
        self.allocate(
            {
                "order": vertex_bytes,
                "rank": vertex_bytes,
                "bound": vertex_bytes,
                "value": 4 * placement.count,
            }
        )
        struct = self.struct
        point_rows(struct["out"], out_rows)
        point_rows(struct["in"], in_rows)
        struct["is_directed"] = directed
        degree = self._degrees()
        # Rows of directed graphs are by in-degrees.
        descend = placement.numbering.by_degree and bool((np.diff(degree) <= 0).all())
        struct["is_sorted"] = descend and not directed
        struct["chunk"] = _CHUNK
        struct["count"] = np.count_nonzero(degree)
        self.lay_out()

    def put_in_order(self, seed: int) -> float:
        """Upload the order of vertices that a seed gives, if another is there; return the seconds taken."""
        begin = perf_counter()
        seeds = self.placement.kept(_seeds)
        if seeds.get(self._kind) == seed:
            return perf_counter() - begin
        seeds.pop(self._kind, None)
        placement = self.placement
        order = placement.position(vertex_order(placement.graph, self._kind, seed))
        without_arcs = len(order) - int(self.struct["count"])
        # Vertices without arcs come first in the order of a set, and last in that of colours.
        order = (
            order[without_arcs:] if self._kind is Kind.SET else order[: len(order) - without_arcs]
        )
        rank = np.zeros(placement.capacity, np.uint32)
        rank[order] = np.arange(len(order), dtype=np.uint32)
        for name, values in (("order", order), ("rank", rank), ("bound", self._bounds())):
            if len(values):
                self.array(name)[self.part].upload(values.astype(np.uint32))
        seeds[self._kind] = seed
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
