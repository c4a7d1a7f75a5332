"""Rows sorted by weight, made on GPUs from the rows of a placement. Kernels: algorithms/sssp/rows.cuh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import c_type, compile_meanwhile, load
from godwit.runtime.cuda.gpu_arrays import stable_order
from godwit.runtime.cuda.memory import Buffer
from godwit.supersteps.arrays import DeviceArray, StepPart
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.rows import Direction, StepRows, ranges_to_sort

_THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 8
_SORT_BYTES = 48
"""Bytes that sorting an arc takes: its key, its place, and the memory of the sort."""
_MOST_ARCS = 1 << 28
"""Arcs that are sorted at once, but for longer rows."""


@dataclass(frozen=True)
class SortedRows:
    """A device's rows, each by ascending weight (of equal weights in the graph's order).

    :param rows: offsets and classes of these rows; its targets and weights are in the graph's order
    :param targets: (arcs) ids: positions
    :param weights: (arcs) of the graph's dtype
    """

    rows: StepRows
    targets: Buffer
    weights: Buffer


class SortedRowArrays:
    """The arrays of rows sorted by weight, kept on the devices between queries."""

    def __init__(self, placement: StepPlacement) -> None:
        self._placement = placement
        directions: tuple[Direction, ...] = ("out", "in")
        self.targets = {direction: DeviceArray(placement) for direction in directions}
        self.weights = {direction: DeviceArray(placement) for direction in directions}

    def make(self, direction: Direction) -> list[SortedRows]:
        """Return the rows of each device, made once.

        :raises GraphTooLargeError: a device has too little free memory
        """
        placement = self._placement
        direction = placement.stored_direction(direction, weighted=True)
        targets, weights = self.targets[direction], self.weights[direction]
        all_rows = placement.rows(direction, weighted=True)
        if not targets:
            placement.reserve(
                (targets, [max(1, rows.arcs) * placement.id_dtype.itemsize for rows in all_rows]),
                (weights, [max(1, rows.arcs) * _weight_dtype(rows).itemsize for rows in all_rows]),
            )
            try:
                for part, rows in zip(placement.parts, all_rows, strict=True):
                    self._sort(part, rows, targets[part], weights[part])
            except BaseException:
                targets.release()
                weights.release()
                raise
        return [
            SortedRows(rows, targets[part], weights[part])
            for part, rows in zip(placement.parts, all_rows, strict=True)
        ]

    def release(self) -> None:
        """Free the memory; the rows are made anew when they are needed."""
        for arrays in (self.targets, self.weights):
            for array in arrays.values():
                array.release()

    def _sort(self, part: StepPart, rows: StepRows, targets: Buffer, weights: Buffer) -> None:
        assert rows.weights is not None
        id_bytes, weight_bytes = self._placement.id_dtype.itemsize, _weight_dtype(rows).itemsize
        text = source(self._placement.id_dtype, _weight_dtype(rows))
        ranges = ranges_to_sort(
            part, rows.offsets, rows.arcs, _SORT_BYTES, _MOST_ARCS, part.owned, has_longer=True
        )
        for first_row, count_rows, begin, count in ranges:
            with Buffer(part.index, 8 * count) as keys:
                _start(
                    part, text, "write_weight_keys", rows.offsets.pointer, rows.weights.pointer,
                    first_row, count_rows, keys.pointer,
                )  # fmt: skip
                order = stable_order(keys, count, part.stream)
            _start(
                part, text, "take_in_order", int(order.data.ptr), count,
                rows.targets.pointer + id_bytes * begin,
                rows.weights.pointer + weight_bytes * begin,
                targets.pointer + id_bytes * begin, weights.pointer + weight_bytes * begin,
            )  # fmt: skip
            part.stream.synchronize()  # before the order is freed


def _weight_dtype(rows: StepRows) -> np.dtype[Any]:
    assert rows.weight_dtype is not None
    return rows.weight_dtype


def source(id_dtype: np.dtype[Any], weight_dtype: np.dtype[Any]) -> str:
    """Return the source of the kernels for dtypes of positions and weights."""
    return "\n".join(
        [
            '#include "runtime/cuda/include/memory.cuh"',
            f"using Id = {c_type(id_dtype)};",
            f"using Weight = {c_type(weight_dtype)};",
            '#include "algorithms/sssp/rows.cuh"',
            "",
        ]
    )


def compile_sorting(placement: StepPlacement) -> None:
    """Start to compile the kernels that sort the rows of a weighted graph, while the caller goes on."""
    weight_dtype = placement.graph.weight_dtype
    assert weight_dtype is not None
    compile_meanwhile(placement.indexes[0], source(placement.id_dtype, weight_dtype))


def _start(part: StepPart, text: str, name: str, *arguments: Any) -> None:
    blocks = driver.properties(part.index).multiprocessors * _BLOCKS_PER_MULTIPROCESSOR
    driver.launch(
        load(part.index, text).kernel(name), part.stream, blocks=blocks, threads=_THREADS,
        arguments=arguments,
    )  # fmt: skip
