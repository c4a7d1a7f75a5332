"""Minimum spanning forest on a GPU: fills in the arguments of spanning_forest.cuh, and runs it."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.spanning_forest.cpu import ForestMarks, KeyOrder, light_share, pivot_of
from godwit.dtypes import Array
from godwit.runtime.cuda.compile import c_type, compile_meanwhile
from godwit.runtime.cuda.copies import download
from godwit.runtime.cuda.memory import new_host_array
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.rows import RowClass, StepRows
from godwit.supersteps.run import (
    ROWS,
    STAGE,
    STEP,
    StepPlan,
    left_rows_bytes,
    point_rows,
    step_source,
)

ARGUMENTS = np.dtype(
    [
        ("stage", STAGE),
        ("rows", ROWS),
        ("weights", np.uint64),
        ("vertices", np.uint64),
        ("shifts", np.uint64),
        ("long_rows", np.uint64),
        ("parents", np.uint64),
        ("choices", np.uint64, 2),
        ("lists", np.uint64, 2),
        ("marks", np.uint64),
        ("capacity", np.int64),
        ("mark_words", np.int64),
        ("mask", np.int64),
        ("least", np.int64),
        ("flip", np.int64),
        ("least_key", np.int64),
        ("pivot_key", np.int64),
        ("pivot_id", np.int64),
        ("has_pivot", np.uint32),
        ("has_long_rows", np.uint32),
        ("has_sorted_rows", np.uint32),
        ("padding", np.uint32),
    ]
)
"""``Arguments`` of spanning_forest.cuh."""

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
        "algorithms/spanning_forest/spanning_forest.cuh", ARGUMENTS, types=types, work="grid_span"
    )
    return f"#define PACKED {int(packed)}\n{text}"


class ForestArrays:
    """The arrays of spanning forests, kept on the device between queries."""

    def __init__(self, placement: StepPlacement) -> None:
        self.shifts = DeviceArray(placement)
        self.parents = DeviceArray(placement)
        self.choices = DeviceArray(placement), DeviceArray(placement)
        self.lists = DeviceArray(placement), DeviceArray(placement)
        self.marks = DeviceArray(placement)
        self.long_rows = DeviceArray(placement)


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
        seconds: dict[str, float] = {}
        key = ("spanning forest", gpu, weights is not None, maximum)
        plan = placement.plan(key, lambda: _ForestPlan(placement, weights, maximum, gpu, seconds))
        seconds["kernel"] = plan.run(poll=poll)
        outcome = plan.controls()[0]
        begin = perf_counter()
        part = placement.parts[0]
        words = placement.graph.arc_count // 64 + 1
        marks, _ = new_host_array(words, np.uint64, [part.index])
        download(part.index, plan.arrays.marks[part].pointer, marks)
        seconds["gather"] = perf_counter() - begin
    return ForestMarks(
        marks,
        int(outcome["state"][_JOINED]),
        int(outcome["run_counts"][_EDGES_DONE]),
        int(outcome["state"][STEP]),
        seconds,
    )


class _ForestPlan(StepPlan[StepPlacement]):
    """Spanning forests of a placement.

    :param seconds: gets the time of making rows, and of loading the kernel
    """

    def __init__(
        self, placement: StepPlacement, weights: Array | None, maximum: bool, gpu: GpuOptions,
        seconds: dict[str, float],
    ) -> None:  # fmt: skip
        graph = placement.graph
        weight_bytes = 4 if weights is None else weights.itemsize
        packed = weight_bytes == 4 and graph.arc_count < 1 << 32
        code = source(placement.id_dtype, weight_bytes, packed=packed)
        compile_meanwhile(placement.indexes[0], code)
        begin = perf_counter()
        rows = placement.rows("out", weights is not None, ordered=True)[0]
        vertices = placement.vertices()[0]
        seconds["rows"] = perf_counter() - begin
        arguments = np.zeros(1, ARGUMENTS)
        super().__init__(placement, code, arguments, gpu)
        seconds["compile"] = self.compile_s
        self.arrays = placement.kept(ForestArrays)
        self._key_bytes = 8 if packed else 16
        self._edge_bytes = 2 * placement.id_dtype.itemsize + self._key_bytes
        own = arguments[0]
        self._allocate(own, rows)
        point_rows(own["rows"], rows)
        own["weights"] = 0 if weights is None or rows.weights is None else rows.weights.pointer
        own["vertices"] = vertices.pointer
        own["has_long_rows"] = rows.classes[RowClass.CLASS_WARP] > 0
        own["has_sorted_rows"] = graph.has_sorted_rows
        order = KeyOrder.of(None if weights is None else weights.dtype, maximum)
        own["mask"], own["least"], own["flip"] = order
        own["least_key"] = order.least_key
        pivot = pivot_of(graph.rows, weights, order)
        own["pivot_key"], own["pivot_id"] = pivot or (_MOST_KEY, graph.arc_count)
        own["has_pivot"] = pivot is not None
        self.between = self._enlarge_lists
        self.lay_out()

    def _allocate(self, own: Any, rows: StepRows) -> None:
        """Allocate buffers, and point to them.

        :raises GraphTooLargeError: need against free
        """
        placement, arrays = self.placement, self.arrays
        part, graph = placement.parts[0], placement.graph
        words = graph.arc_count // 64 + 1
        share = light_share(graph.rows)
        places = graph.arc_count // 2
        if share < 1:
            places = min(places, int(_ROOM * share * places) + _LEAST_PLACES)
        places = max(1, places)
        placement.reserve(
            (arrays.parents, [max(1, part.active) * placement.id_dtype.itemsize]),
            *((array, [max(1, part.active) * self._key_bytes]) for array in arrays.choices),
            *((array, [places * self._edge_bytes]) for array in arrays.lists),
            (arrays.marks, [8 * words]),
            (arrays.long_rows, [left_rows_bytes("mixed", rows, placement.capacity)]),
            (arrays.shifts, [8 * max(1, part.active)]),
        )
        if part.active:
            vertices = placement.numbering.vertices(0)[: part.active]
            begins = graph.offsets[vertices]
            lengths = graph.offsets[1:][vertices] - begins
            arrays.shifts[part].upload(begins - (np.cumsum(lengths) - lengths))
        own["parents"] = arrays.parents[part].pointer
        own["choices"] = [array[part].pointer for array in arrays.choices]
        own["marks"], own["mark_words"] = arrays.marks[part].pointer, 2 * words
        own["long_rows"] = arrays.long_rows[part].pointer
        own["shifts"] = arrays.shifts[part].pointer
        self._point_lists()

    def _point_lists(self) -> None:
        part, lists = self.placement.parts[0], self.arrays.lists
        self.arguments["lists"] = [array[part].pointer for array in lists]
        self.arguments["capacity"] = min(array.nbytes(part) for array in lists) // self._edge_bytes

    def _enlarge_lists(self, controls: Array) -> None:
        """Enlarge both lists if more edges are to be listed than they have room for."""
        needed = int(controls[0]["state"][_NEEDED])
        if needed <= int(self.arguments["capacity"][0]):
            return
        self.placement.reserve(
            *((array, [needed * self._edge_bytes]) for array in self.arrays.lists)
        )
        self._point_lists()
