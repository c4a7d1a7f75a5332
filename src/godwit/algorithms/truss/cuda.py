"""Truss numbers on one GPU: arguments and results of truss.cuh."""

from __future__ import annotations

import math
from enum import IntEnum
from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.triangles.rows import rows_in_order
from godwit.algorithms.truss.rows import Edges, edge_numbers, sorted_targets
from godwit.arrays import ResultLocation
from godwit.errors import GraphTooLargeError
from godwit.runtime.cuda.compile import c_type
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.cuda.transfer.delivery import Arrival, Conversion, Delivery, Share
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.first_gpu import Outcome
from godwit.supersteps.one_gpu import OneGpuPlan, compiling
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.rows import RowClass
from godwit.supersteps.run import step_source
from godwit.trace import seconds_since

_OF_EDGES = ("upper", "lower", "support", "order", "truss", "listed")
"""Arrays with a number for each edge."""

ARGUMENTS = struct_dtype("algorithms/truss/truss.cuh", "Arguments")

_EDGES_A_STEP = 1 << 21
"""Edges whose triangles a superstep counts: time-outs are looked at in between."""
_COUNTERS_BYTES = 8
_NUMBER_BYTES = 4
_HUB_WORD_BYTES = 8
_WARP = 32
_MOST_EDGES = 1 << 31


class Phase(IntEnum):
    """``TrussPhase`` of the kernel."""

    TRUSS_NUMBER, TRUSS_BEGIN, TRUSS_COUNT, TRUSS_SCAN, TRUSS_DESTROY, TRUSS_PACK = range(6)


class Count(IntEnum):
    """Indices of the counts of a block: ``TrussCount`` of the kernel."""

    REMOVED, VISITED = range(2)


def source(id_dtype: Any) -> str:
    """Return the source of the kernel for a dtype of positions."""
    return step_source(
        "algorithms/truss/truss.cuh",
        types={"Id": c_type(np.dtype(id_dtype))},
        work="grid_truss",
        enums=(Phase, Count),
    )


def truss_numbers_on_gpu(
    placement: StepPlacement,
    gpu: GpuOptions,
    location: ResultLocation,
    poll: ProgressPoll | None,
) -> Outcome:
    """Compute the truss numbers, int32 (k), of a simple graph that has edges, and is on one device.

    :param location: of the truss numbers
    :returns: values; arcs: those of the rows that were looked up
    :raises GraphTooLargeError: need against free, or more edges than the kernel counts
    """
    if placement.capacity >= 1 << 32 or placement.graph.arc_count // 2 >= _MOST_EDGES:
        raise GraphTooLargeError(
            f"truss numbers on a GPU take fewer than {1 << 32:,} vertices and {_MOST_EDGES:,} edges, and "
            f"the graph has {placement.vertex_count:,} and {placement.graph.arc_count // 2:,}; use "
            "devices='cpu'"
        )
    with placement.held():
        plan = placement.plan(("truss", gpu), lambda: _TrussPlan(placement, gpu))
        plan.ask(phase=plan.first_phase, poll=poll)
        plan.first_phase = Phase.TRUSS_BEGIN
        truss = plan.deliver_edges(location)
        return plan.outcome(truss, Count.REMOVED, Count.VISITED)


def _hub_count(rows: int, target_bytes: int) -> int:
    """Return how many vertices the hubs' table has: all that are worth it, in no more memory than targets.

    :param rows: that are too long to be looked up in a few steps
    """
    fits = math.isqrt(8 * target_bytes)  # h hubs have h * h / 64 words
    return min(rows, fits) // _WARP * _WARP


def _hub_words(hubs: int) -> int:
    groups = hubs // _WARP
    return _WARP // 2 * groups * (groups + 1)


class _TrussPlan(OneGpuPlan):
    """Truss numbers of a placement on one device.

    :ivar first_phase: of the next run; the first one makes what all of them share
    """

    def __init__(self, placement: StepPlacement, gpu: GpuOptions) -> None:
        with compiling(placement, source(placement.id_dtype)) as prepared:
            rows = rows_in_order(placement.graph, placement.numbering)
            edges = Edges.of(rows)
            uploads = {
                "offsets": rows.offsets,
                "splits": rows.splits,
                "neighbours": sorted_targets(rows),
                "first_edges": edges.first,
                "places": edge_numbers(placement.graph, rows, edges),  # in the order of results
            }
        super().__init__(placement, prepared, ARGUMENTS, gpu, "truss")
        self.first_phase = Phase.TRUSS_NUMBER
        blocks = self.blocks_with(self.part.device, 0)
        left_room = -(-edges.count // (_WARP * blocks)) * _WARP
        classes = placement.numbering.classes[0]
        hubs = _hub_count(int(classes[RowClass.CLASS_GROUP]), uploads["neighbours"].nbytes)
        number_bytes = _NUMBER_BYTES * edges.count
        self.allocate(
            {
                **{name: values.nbytes for name, values in uploads.items()},
                "ends": uploads["splits"].nbytes,
                "targets": uploads["neighbours"].nbytes,
                **dict.fromkeys(("numbers", "arc_edges"), 2 * number_bytes),
                "hub_words": _HUB_WORD_BYTES * _hub_words(hubs),
                **dict.fromkeys(_OF_EDGES, number_bytes),
                "listed_bits": _NUMBER_BYTES * (edges.count // 32 + 1),
                "left": _NUMBER_BYTES * left_room * blocks,
                "left_count": _NUMBER_BYTES * blocks,
                "counters": _COUNTERS_BYTES,
            }
        )
        for name, values in uploads.items():
            self.array(name)[self.part].upload(values)
        struct = self.struct
        struct["left_room"], struct["rows"] = left_room, len(rows.splits)
        struct["long_rows"] = classes[RowClass.CLASS_WARP]
        struct["edges"], struct["edges_a_step"], struct["hubs"] = edges.count, _EDGES_A_STEP, hubs
        places = self.array("places")[self.part].pointer
        self._delivery = Delivery(
            [Share(self.part.index, self.part.stream, 0, edges.count, edges.count)],
            edges.count,
            edges.dtype,
            lambda number: places,
            lambda number: uploads["places"],
        )
        self.lay_out()

    def deliver_edges(self, location: ResultLocation) -> Any:
        """Return the truss numbers in the order of results."""
        begin = perf_counter()
        dtype = np.dtype(np.int32)
        values = self.array("truss")[self.part].pointer
        conversion = Conversion(dtype, dtype)
        found = (
            Arrival(self._delivery, [values], conversion, location, joined=values).begin().finish()
        )
        self.seconds["gather"] = seconds_since(begin, "gather")
        return found
