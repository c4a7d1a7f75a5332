"""Truss numbers on one GPU: arguments and results of truss.cuh."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum
from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.triangles.rows import rows_in_order
from godwit.algorithms.truss.rows import Edges, edge_numbers, sorted_targets
from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError
from godwit.runtime.cuda.compile import c_type, compile_meanwhile
from godwit.runtime.cuda.delivery import Conversion, Delivery, Share
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.rows import RowClass
from godwit.supersteps.run import STAGE, STEP, StepPlan, step_source
from godwit.trace import seconds_since

_POINTERS = (
    "offsets", "splits", "neighbours", "first_edges", "arc_edges", "hub_words", "ends", "targets",
    "numbers", "upper", "lower", "support", "order", "listed_bits", "truss", "listed", "left", "left_count",
)  # fmt: skip

ARGUMENTS = np.dtype(
    [
        ("stage", STAGE),
        *((name, np.uint64) for name in _POINTERS),
        ("left_room", np.uint64),
        ("counters", np.uint64),
        ("rows", np.int64),
        ("long_rows", np.int64),
        ("edges", np.uint64),
        ("edges_a_step", np.uint64),
        ("hubs", np.uint64),
    ]
)
"""``Arguments`` of truss.cuh."""

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


@dataclass
class TrussOutcome:
    """Truss numbers, work and times of a query.

    :param truss: (k) int32
    :param visited: arcs of the rows that were looked up
    :param seconds: by phase: ``rows``, ``compile``, ``kernel``, ``gather``
    """

    truss: Any
    visited: int
    supersteps: int
    seconds: dict[str, float] = field(default_factory=dict)


def source(id_dtype: Any) -> str:
    """Return the source of the kernel for a dtype of positions."""
    return step_source(
        "algorithms/truss/truss.cuh",
        ARGUMENTS,
        types={"Id": c_type(np.dtype(id_dtype))},
        work="grid_truss",
        enums=(Phase, Count),
    )


class _TrussArrays:
    """The arrays of truss numbers, kept on the device between queries.

    ``places`` has the number of each edge in the order of results.
    """

    def __init__(self, placement: StepPlacement) -> None:
        self.of = {name: DeviceArray(placement) for name in (*_POINTERS, "counters", "places")}


def truss_numbers_on_gpu(
    placement: StepPlacement,
    gpu: GpuOptions,
    location: ResultLocation,
    poll: ProgressPoll | None,
) -> TrussOutcome:
    """Compute the truss numbers of a simple graph that has edges, and is on one device.

    :param location: of the truss numbers
    :raises GraphTooLargeError: need against free, or more edges than the kernel counts
    """
    if placement.capacity >= 1 << 32 or placement.graph.arc_count // 2 >= _MOST_EDGES:
        raise GraphTooLargeError(
            f"truss numbers on a GPU take fewer than {1 << 32:,} vertices and {_MOST_EDGES:,} edges, and "
            f"the graph has {placement.vertex_count:,} and {placement.graph.arc_count // 2:,}; use "
            "devices='cpu'"
        )
    seconds: dict[str, float] = {}
    with placement.held():
        plan = placement.plan(("truss", gpu), lambda: _TrussPlan(placement, gpu, seconds))
        seconds["kernel"] = plan.run(phase=plan.first_phase, poll=poll)
        plan.first_phase = Phase.TRUSS_BEGIN
        control = plan.controls()[0]
        truss, seconds["gather"] = plan.deliver(location)
    return TrussOutcome(
        truss, int(control["run_counts"][Count.VISITED]), int(control["state"][STEP]), seconds
    )


def _hub_count(rows: int, target_bytes: int) -> int:
    """Return how many vertices the hubs' table has: all that are worth it, in no more memory than targets.

    :param rows: that are too long to be looked up in a few steps
    """
    fits = math.isqrt(8 * target_bytes)  # h hubs have h * h / 64 words
    return min(rows, fits) // _WARP * _WARP


def _hub_words(hubs: int) -> int:
    groups = hubs // _WARP
    return _WARP // 2 * groups * (groups + 1)


class _TrussPlan(StepPlan[StepPlacement]):
    """Truss numbers of a placement on one device.

    :param seconds: gets the time of making rows, and of loading the kernel
    :ivar first_phase: of the next run; the first one makes what all of them share
    """

    def __init__(
        self, placement: StepPlacement, gpu: GpuOptions, seconds: dict[str, float]
    ) -> None:
        begin = perf_counter()
        text = source(placement.id_dtype)
        compile_meanwhile(placement.indexes[0], text)
        rows = rows_in_order(placement.graph, placement.numbering)
        edges = Edges.of(rows)
        uploads = {
            "offsets": rows.offsets,
            "splits": rows.splits,
            "neighbours": sorted_targets(rows),
            "first_edges": edges.first,
            "places": edge_numbers(placement.graph, rows, edges),
        }
        seconds["rows"] = perf_counter() - begin
        super().__init__(placement, text, np.zeros(1, ARGUMENTS), gpu)
        seconds["compile"] = self.compile_s
        self.arrays = placement.kept(_TrussArrays)
        self.first_phase = Phase.TRUSS_NUMBER
        (part,) = placement.parts
        struct = self.arguments[0]
        blocks = self.blocks_with(part.device, 0)
        left_room = -(-edges.count // (_WARP * blocks)) * _WARP
        classes = placement.numbering.classes[0]
        hubs = _hub_count(int(classes[RowClass.CLASS_GROUP]), uploads["neighbours"].nbytes)
        self._allocate(uploads, edges.count, hubs, left_room * blocks, blocks)
        for name, values in uploads.items():
            self.arrays.of[name][part].upload(values)
        for name in (*_POINTERS, "counters"):
            struct[name] = self.arrays.of[name][part].pointer
        struct["left_room"], struct["rows"] = left_room, len(rows.splits)
        struct["long_rows"] = classes[RowClass.CLASS_WARP]
        struct["edges"], struct["edges_a_step"], struct["hubs"] = edges.count, _EDGES_A_STEP, hubs
        share = Share(part.index, part.stream, 0, edges.count)
        places = self.arrays.of["places"][part].pointer
        self._delivery = Delivery(
            [share],
            edges.count,
            edges.dtype,
            lambda number: places,
            lambda number: uploads["places"],
        )
        self.lay_out()

    def _allocate(
        self, uploads: dict[str, Array], edges: int, hubs: int, left: int, blocks: int
    ) -> None:
        """Allocate buffers.

        :param edges: number of edges
        :param left: room for edges that are left, of all blocks
        :raises GraphTooLargeError: need against free
        """
        sizes = {name: values.nbytes for name, values in uploads.items()}
        sizes["ends"] = sizes["splits"]
        sizes["targets"] = sizes["neighbours"]
        sizes["numbers"] = sizes["arc_edges"] = 2 * _NUMBER_BYTES * edges
        sizes["hub_words"] = _HUB_WORD_BYTES * _hub_words(hubs)
        for name in ("upper", "lower", "support", "order", "listed_bits", "truss", "listed"):
            sizes[name] = _NUMBER_BYTES * edges
        sizes["listed_bits"] = _NUMBER_BYTES * (edges // 32 + 1)
        sizes["left"], sizes["left_count"] = _NUMBER_BYTES * left, _NUMBER_BYTES * blocks
        sizes["counters"] = _COUNTERS_BYTES
        self.placement.reserve(
            *((self.arrays.of[name], [max(8, nbytes)]) for name, nbytes in sizes.items())
        )

    def deliver(self, location: ResultLocation) -> tuple[Any, float]:
        """Return the truss numbers in the order of results, and the seconds that it took."""
        begin = perf_counter()
        dtype = np.dtype(np.int32)
        values = self.arrays.of["truss"].buffers[0].pointer
        found = self._delivery.deliver([values], Conversion(dtype, dtype), location, joined=values)
        return found, seconds_since(begin, "gather")
