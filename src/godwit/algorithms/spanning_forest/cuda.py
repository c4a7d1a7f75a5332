"""Minimum spanning forest on a GPU: fills in the arguments of spanning_forest.cuh, and runs it."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.spanning_forest.cpu import ForestMarks, KeyOrder, light_share, pivot_of
from godwit.dtypes import Array
from godwit.runtime.cuda.compile import c_type
from godwit.runtime.cuda.memory import new_host_array
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.cuda.transfer.copies import download
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.one_gpu import OneGpuPlan, compiling
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.rows import RowClass, StepRows
from godwit.supersteps.run import (
    STEP,
    left_rows_bytes,
    point_rows,
    step_source,
)

ARGUMENTS = struct_dtype("algorithms/spanning_forest/spanning_forest.cuh", "Arguments")

_EDGES_DONE = 0  # of the counts
_JOINED, _NEEDED = 3, 4  # of the state
_MOST_KEY = (1 << 63) - 1
_ROOM = 1.1
"""Places of a list for each edge that a sample lets expect."""
_LEAST_PLACES = 1 << 12


def source(id_dtype: Any, weight_bytes: int, *, packed: bool) -> str:
    """Return the source of the kernel.

    :param weight_bytes: size of a weight, 4 or 8
    :param packed: True if key and id of an edge are one word of 64 bits
    """
    types = {"Id": c_type(np.dtype(id_dtype)), "Bits": {4: "int", 8: "long long"}[weight_bytes]}
    text = step_source(
        "algorithms/spanning_forest/spanning_forest.cuh", types=types, work="grid_span"
    )
    return f"#define PACKED {int(packed)}\n{text}"


def forest_on_gpu(
    placement: StepPlacement,
    weights: Array | None,
    maximum: bool,
    gpu: GpuOptions,
    poll: ProgressPoll | None,
) -> ForestMarks:
    """Return the marks of the forest's edges, as :func:`forest_on_cpu` would choose them.

    :param placement: of one device, of an undirected graph that has vertices
    :param weights: of the graph, without NaN; None: all are equal
    :raises GraphTooLargeError: need against free
    """
    with placement.held():
        key = ("spanning forest", gpu, weights is not None, maximum)
        plan = placement.plan(key, lambda: _ForestPlan(placement, weights, maximum, gpu))
        outcome = plan.ask(poll=poll)
        begin = perf_counter()
        words = placement.graph.arc_count // 64 + 1
        marks, _ = new_host_array(words, np.uint64, [plan.part.index])
        download(plan.part.index, plan.array("marks")[plan.part].pointer, marks)
        plan.seconds["gather"] = perf_counter() - begin
        return ForestMarks(
            marks,
            int(outcome["state"][_JOINED]),
            int(outcome["run_counts"][_EDGES_DONE]),
            int(outcome["state"][STEP]),
            plan.seconds,
        )


class _ForestPlan(OneGpuPlan):
    """Spanning forests of a placement."""

    def __init__(
        self, placement: StepPlacement, weights: Array | None, maximum: bool, gpu: GpuOptions
    ) -> None:
        graph = placement.graph
        weight_bytes = 4 if weights is None else weights.itemsize
        packed = weight_bytes == 4 and graph.arc_count < 1 << 32
        with compiling(
            placement, source(placement.id_dtype, weight_bytes, packed=packed)
        ) as prepared:
            (rows,) = placement.rows("out", weights is not None, ordered=True)
            (vertices,) = placement.vertices()
        super().__init__(placement, prepared, ARGUMENTS, gpu, "spanning forest")
        self._key_bytes = 8 if packed else 16
        self._edge_bytes = 2 * placement.id_dtype.itemsize + self._key_bytes
        self._allocate(rows)
        struct = self.struct
        point_rows(struct["rows"], rows)
        struct["weights"] = 0 if weights is None or rows.weights is None else rows.weights.pointer
        struct["vertices"] = vertices.pointer
        struct["has_long_rows"] = rows.classes[RowClass.CLASS_WARP] > 0
        struct["has_sorted_rows"] = graph.has_sorted_rows
        order = KeyOrder.of(None if weights is None else weights.dtype, maximum)
        struct["mask"], struct["least"], struct["flip"] = order
        struct["least_key"] = order.least_key
        pivot = pivot_of(graph.rows, weights, order)
        struct["pivot_key"], struct["pivot_id"] = pivot or (_MOST_KEY, graph.arc_count)
        struct["has_pivot"] = pivot is not None
        self.between = self._enlarge_lists
        self.lay_out()

    def _allocate(self, rows: StepRows) -> None:
        """Allocate buffers, and point to them.

        :raises GraphTooLargeError: need against free
        """
        placement, part, graph = self.placement, self.part, self.placement.graph
        words = graph.arc_count // 64 + 1
        share = light_share(graph.rows)
        places = graph.arc_count // 2
        if share < 1:
            places = min(places, int(_ROOM * share * places) + _LEAST_PLACES)
        active = max(1, part.active)
        self.allocate(
            {
                "parents": active * placement.id_dtype.itemsize,
                "choices": active * self._key_bytes,
                "lists": max(1, places) * self._edge_bytes,
                "marks": 8 * words,
                "long_rows": left_rows_bytes("mixed", rows, placement.capacity),
                "shifts": 8 * active,
            }
        )
        if part.active:
            vertices = placement.numbering.vertices(0)[: part.active]
            begins = graph.offsets[vertices]
            lengths = graph.offsets[1:][vertices] - begins
            self.array("shifts")[part].upload(begins - (np.cumsum(lengths) - lengths))
        self.struct["mark_words"] = 2 * words
        self._measure_lists()

    def _measure_lists(self) -> None:
        """Write into the arguments how many edges the shorter list has room for."""
        nbytes = min(self.array("lists", number).nbytes(self.part) for number in (0, 1))
        self.struct["capacity"] = nbytes // self._edge_bytes

    def _enlarge_lists(self, controls: Array) -> None:
        """Enlarge both lists if more edges are to be listed than they have room for."""
        needed = int(controls[0]["state"][_NEEDED])
        if needed > int(self.struct["capacity"]):
            self.allocate({"lists": needed * self._edge_bytes})
            self._measure_lists()
