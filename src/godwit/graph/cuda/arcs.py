"""Arcs of other libraries' arrays on a GPU, made into rows there: only the finished rows come to the host.

What is wrong with the arrays is not said here: None then sends them to the host, where the first mistake is
named, and so does whatever this GPU has no room for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from godwit.arrays import lies_on_gpu
from godwit.dtypes import ID_DTYPES, WEIGHT_DTYPES, as_count, id_dtype_for
from godwit.errors import DeviceError, InputError
from godwit.graph.csr import Rows, estimate_bytes, require_memory
from godwit.graph.cuda.builder import GraphBuilder
from godwit.graph.cuda.rows import ArcsOnGpu, build_rows
from godwit.graph.cuda.structures import GivenEdges, c_id
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import Buffer
from godwit.runtime.cuda.sorting import cupy_module

_NO_ID = (np.iinfo(np.int64).max, np.iinfo(np.int64).min)  # smallest and largest of none


def rows_of_arcs(
    sources: Any, targets: Any, weights: Any, vertex_count: Any, directed: bool, id_dtype: Any
) -> Rows | None:
    """Rows as :meth:`Graph.from_edges` makes them; None if the host had better try."""
    try:
        return _rows(sources, targets, weights, vertex_count, directed, id_dtype)
    except (InputError, DeviceError, MemoryError):
        return None


def _rows(
    sources: Any, targets: Any, weights: Any, vertex_count: Any, directed: bool, id_dtype: Any
) -> Rows | None:
    arrays = [_on_gpu(values) for values in (sources, targets, weights) if values is not None]
    if not _belong_together(arrays):
        return None
    first, second, *others = arrays
    first.device.synchronize()  # whoever made the arrays may have used any stream
    given_count = None if vertex_count is None else as_count(vertex_count, "vertex_count")
    arcs = ArcsOnGpu(
        edges=GivenEdges(int(first.data.ptr), int(second.data.ptr)),
        edges_type=f"GivenEdges<{c_id(np.dtype(first.dtype))}>",
        count=int(first.size),
        vertices=given_count or 1,
        id_dtype=id_dtype_for(given_count or 1, id_dtype),
        what=f"a graph of {int(first.size):,} arcs",
        both_directions=not directed,
        given_weights=int(others[0].data.ptr) if others else 0,
        given_dtype=np.dtype(others[0].dtype) if others else None,
    )
    index = int(first.device.id)
    with GraphBuilder(index, arcs.source) as builder:
        smallest, largest = _id_range(builder, arcs)
    vertices = largest + 1 if given_count is None else given_count
    if smallest < 0 or largest >= vertices:
        return None
    weight_bytes = 0 if arcs.weight_dtype is None else arcs.weight_dtype.itemsize
    arcs = replace(arcs, vertices=vertices, id_dtype=id_dtype_for(vertices, id_dtype))
    bound = arcs.count * 2 if arcs.both_directions else arcs.count
    require_memory(estimate_bytes(vertices, bound, arcs.id_dtype.itemsize, weight_bytes), arcs.what)
    with GraphBuilder(index, arcs.source) as builder:
        return build_rows(builder, arcs)


def _belong_together(arrays: list[Any]) -> bool:
    """Whether sources, targets and perhaps weights are of one length on one GPU, and of dtypes that kernels
    have."""
    if any(array is None for array in arrays):
        return False
    first, second, *others = arrays
    return (
        len({int(array.device.id) for array in arrays}) == 1
        and len({int(array.size) for array in arrays}) == 1
        and first.size > 0
        and first.dtype in ID_DTYPES
        and second.dtype == first.dtype
        and all(array.dtype in WEIGHT_DTYPES for array in others)
    )


def _on_gpu(values: Any) -> Any:
    """A contiguous CuPy array of one dimension, shared where it can be; None if it is none."""
    if not lies_on_gpu(values):
        return None
    if getattr(values, "requires_grad", False):  # PyTorch hands out no others
        values = values.detach()
    cupy = cupy_module()
    try:
        shared = cupy.from_dlpack if hasattr(values, "__dlpack__") else cupy.asarray
        array = shared(values)
        with driver.entered(int(array.device.id)):
            return cupy.ascontiguousarray(array) if array.ndim == 1 else None
    except (RuntimeError, BufferError, TypeError, ValueError):  # not CUDA's, or not what CuPy knows
        return None


def _id_range(builder: GraphBuilder, arcs: ArcsOnGpu) -> tuple[int, int]:
    """The smallest and the largest id."""
    none = np.array(_NO_ID, np.int64)
    with Buffer(builder.index, none.nbytes) as found:
        driver.copy_async(found.pointer, none.ctypes.data, none.nbytes, builder.stream)
        builder.start("find_id_range", arcs.edges, arcs.count, found.pointer)
        builder.stream.synchronize()
        smallest, largest = found.download(np.int64, 2)
    return int(smallest), int(largest)
