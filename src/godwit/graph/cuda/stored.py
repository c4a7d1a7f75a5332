"""Rows of a graph that lie in the memory of a GPU. Kernels: stored_rows.cuh.

A graph made of arrays that lie there keeps its rows there. Engines copy them within the GPU; what needs
them on the host gets copies, each made once.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from godwit.dtypes import ID_DTYPES, WEIGHT_DTYPES, Array, frozen
from godwit.errors import DeviceError, GraphTooLargeError, InputError
from godwit.graph.cuda.builder import GraphBuilder, c_id, c_word, kernel_source
from godwit.graph.cuda.given import common_gpu, on_gpu
from godwit.graph.rows import Rows, require_memory
from godwit.runtime.cuda.devices import held_gpus, holds_gpus
from godwit.runtime.cuda.driver import current_kept
from godwit.runtime.cuda.memory import Buffer, HeldArray
from godwit.runtime.cuda.transfer.copies import download

_SUMS = 4


class HeldRows(NamedTuple):
    """Arrays of rows in the memory of a GPU, as of :class:`Rows`."""

    offsets: HeldArray
    targets: HeldArray
    weights: HeldArray | None


class RowsOnGpu:
    """Rows in the memory of a GPU, with copies on the host of those arrays that were read there.

    Several threads may use it at the same time.

    :param arrays: they stay as they are
    """

    def __init__(self, arrays: HeldRows) -> None:
        self.arrays = arrays
        self._copies: dict[str, Array] = {}
        self._host: Rows | None = None
        self._copying = Lock()

    @property
    def vertex_count(self) -> int:
        """Number of rows, n."""
        return len(self.arrays.offsets) - 1

    @property
    def arc_count(self) -> int:
        """Number of arcs, m."""
        return len(self.arrays.targets)

    @property
    def id_dtype(self) -> np.dtype[Any]:
        """Dtype of targets."""
        return self.arrays.targets.dtype

    @property
    def weight_dtype(self) -> np.dtype[Any] | None:
        """Dtype of weights; None if there are none."""
        return None if self.arrays.weights is None else self.arrays.weights.dtype

    @property
    def arc_bytes(self) -> int:
        """Bytes of an arc: its target and its weight."""
        return self.id_dtype.itemsize + (
            0 if self.weight_dtype is None else self.weight_dtype.itemsize
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays on the GPU."""
        return sum(array.nbytes for array in self.arrays if array is not None)

    @property
    def offsets(self) -> Array:
        """(n + 1) int64 on the host."""
        return self._copied("offsets", self.arrays.offsets)

    @property
    def targets(self) -> Array:
        """(m) int32 or int64 on the host."""
        return self._copied("targets", self.arrays.targets)

    @property
    def weights(self) -> Array | None:
        """(m) on the host, or None."""
        return None if self.arrays.weights is None else self._copied("weights", self.arrays.weights)

    def on_host(self) -> Rows:
        """Return the rows in memory of the host."""
        if self._host is None:
            rows = Rows(self.offsets, self.targets, self.weights)
            with self._copying:
                self._host = self._host or rows
        return self._host

    def without_weights(self) -> RowsOnGpu:
        """Return the rows without weights, over the same arrays."""
        made = RowsOnGpu(self.arrays._replace(weights=None))
        made._copies = {
            name: array for name, array in list(self._copies.items()) if name != "weights"
        }
        return made

    def _copied(self, name: str, array: HeldArray) -> Array:
        known = self._copies.get(name)
        if known is not None:
            return known
        if holds_gpus():  # whose work does not wait for this copy
            with self._copying, current_kept():
                return self._copy(name, array)
        with held_gpus([array.index]), self._copying:
            return self._copy(name, array)

    def _copy(self, name: str, array: HeldArray) -> Array:
        if name not in self._copies:
            require_memory(array.nbytes, f"a copy of a graph's {name} on the host")
            copy = np.empty(len(array), array.dtype)
            download(array.index, array.pointer, copy)
            self._copies[name] = frozen(copy)
        return self._copies[name]

    def is_free(self) -> bool:
        """Return True if the calling thread may start kernels on the GPU: it is in no run."""
        return not holds_gpus()

    def direction_hashes(
        self, seed: int, *, weighted: bool
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return what :func:`godwit.graph.facts.direction_hashes` does, computed on the GPU.

        :param seed: a random word of 64 bits
        """
        offsets, targets, weights = self.arrays
        with self._builder() as builder, Buffer(builder.index, 8 * _SUMS) as sums:
            builder.clear(sums)
            builder.start(
                "sum_directions", offsets.pointer, self.vertex_count, targets.pointer,
                self.arc_count, 0 if weights is None else weights.pointer,
                int(weighted and weights is not None), seed, sums.pointer,
            )  # fmt: skip
            builder.stream.synchronize()
            out_y, out_z, in_y, in_z = sums.download(np.uint64, _SUMS).tolist()
        return (out_y, out_z), (in_y, in_z)

    def in_offsets(self) -> Array:
        """Return (n + 1) int64: the offsets of the rows of in-arcs, counted on the GPU."""
        n = self.vertex_count
        with self._builder() as builder, Buffer(builder.index, 8 * (n + 1)) as counts:
            builder.clear(counts)
            targets = self.arrays.targets
            builder.start("count_targets", targets.pointer, self.arc_count, counts.pointer)
            builder.sum_up(counts, n)
            offsets = np.empty(n + 1, np.int64)
            download(builder.index, counts.pointer, offsets)
        return frozen(offsets)

    def are_wrong(self) -> bool:
        """Return True if the arrays are not rows of as many vertices."""
        offsets, targets, _ = self.arrays
        with self._builder() as builder, Buffer(builder.index, 8) as wrong:
            builder.clear(wrong)
            builder.start(
                "check_rows", offsets.pointer, self.vertex_count, targets.pointer, self.arc_count,
                wrong.pointer,
            )  # fmt: skip
            builder.stream.synchronize()
            return bool(wrong.download(np.uint64, 1)[0])

    def _builder(self) -> GraphBuilder:
        source = kernel_source(
            "graph/cuda/stored_rows.cuh", Id=c_id(self.id_dtype), Word=c_word(self.weight_dtype)
        )
        return GraphBuilder(self.arrays.offsets.index, source)


def rows_of_gpu_csr(
    offsets: Any, targets: Any, weights: Any, directed: bool, seed: int
) -> RowsOnGpu | None:
    """Return rows over arrays that lie on one GPU, checked there as ``Graph(...)`` checks them.

    None if an array is wrong, or must be converted: the host does that, and names the first mistake.

    :param seed: as of :meth:`RowsOnGpu.direction_hashes`
    """
    try:
        arrays = [on_gpu(values) for values in (offsets, targets, weights) if values is not None]
        index = common_gpu(arrays)
        if index is None or not _fit(arrays):
            return None
        begins, *others = arrays
        if begins.dtype != np.int64:
            with begins.device:
                begins = begins.astype(np.int64)
        begins.device.synchronize()  # the arrays may have been made in any stream
        held = [
            HeldArray(index, int(array.data.ptr), array.dtype, int(array.size), array)
            for array in (begins, *others)
        ]
        rows = RowsOnGpu(HeldRows(held[0], held[1], held[2] if len(held) > 2 else None))
        if rows.are_wrong():
            return None
        if not directed:
            forward, backward = rows.direction_hashes(seed, weighted=True)
            if forward != backward:
                return None
        return rows
    except (InputError, DeviceError, GraphTooLargeError, MemoryError):
        return None


def _fit(arrays: list[Any]) -> bool:
    """Return True if offsets, targets and any weights have known dtypes and lengths that fit."""
    offsets, targets, *others = arrays
    return (
        offsets.size > 1
        and targets.size > 0
        and offsets.dtype in ID_DTYPES
        and targets.dtype in ID_DTYPES
        and all(array.dtype in WEIGHT_DTYPES and array.size == targets.size for array in others)
    )
