"""Forest that takes edges in, in a GPU's memory: launches streamed.cuh in a CUDA stream.

Nothing but closing waits for the GPU: a segment costs the host two launches, and kernels write faults to
host memory.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

import numpy as np

from godwit.algorithms.components.streamed_cpu import Fault, Forest, Linking
from godwit.dtypes import Array
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import c_type, layout_checks, load
from godwit.runtime.cuda.driver import BorrowedStream, Kernel
from godwit.runtime.cuda.events import native_stream
from godwit.runtime.cuda.gpu_arrays import address_of, gpu_of
from godwit.runtime.cuda.memory import (
    LEAST_LOCKED_BYTES,
    PinnedBuffer,
    keep_pinned,
    new_host_array,
    take_pinned,
)
from godwit.runtime.cuda.structs import struct_dtype, struct_type
from godwit.runtime.cuda.transfer.copies import download
from godwit.runtime.memory import Space

WALKS_PER_VERTEX = 0.25
"""Walks per vertex after which trees are flattened."""
THREADS = 512
"""Threads of a block."""

_ALL_JUMPS = 2**64 - 1
_CONTROL_BYTES = 256
_LOADING = threading.Lock()

Kernels = dict[str, tuple[Kernel, int]]
"""Kernels by name, with the number of blocks that fit on the GPU at once."""

_UNSIGNED = 2  # value of StreamFault.kind for unsigned ids
FAULT = struct_dtype("algorithms/components/streamed.cuh", "StreamFault")


_StreamForest = struct_type("algorithms/components/streamed.cuh", "StreamForest")
_StreamOrigin = struct_type("algorithms/components/streamed.cuh", "StreamOrigin")

KERNELS = {
    "begin_forest": "",
    "link_edges": ", const End *ends, i64 edges, StreamOrigin origin",
    "hook_edges_plainly": ", const End *ends, i64 edges, StreamOrigin origin",
    "absorb_forest": ", const Id *theirs, i64 first, i64 count",
    "flatten_forest": ", u64 least_walks, u64 jumps",
}
"""Kernels by name, which call ``grid_NAME`` of streamed.cuh, with their parameters after the forest."""


def source(id_dtype: Any, end_dtype: Any, *, splices: bool) -> str:
    """Return the source of the kernels for dtypes of parents and edges, and for a way to link."""
    ids, ends = c_type(np.dtype(id_dtype)), c_type(np.dtype(end_dtype))
    lines = [
        f"#define SPLICES {str(splices).lower()}",
        '#include "runtime/cuda/include/warp.cuh"',
        f"using Id = {ids};",
        f"using End = {ends};",
        '#include "algorithms/components/streamed.cuh"',
        "static_assert(sizeof(StreamForest) == 32 && sizeof(StreamControl) == 32);",
        layout_checks("StreamFault", FAULT),
    ]
    for name, parameters in KERNELS.items():
        names = [part.split()[-1].lstrip("*") for part in parameters.split(",")[1:]]
        lines += [
            f'extern "C" __global__ void __launch_bounds__({THREADS})',
            f"{name}(StreamForest stream{parameters}) {{",
            f"    grid_{name}({', '.join(['stream', *names])});",
            "}",
        ]
    return "\n".join((*lines, ""))


@lru_cache(maxsize=64)
def _kernels(index: int, text: str) -> Kernels:
    multiprocessors = driver.properties(index).multiprocessors
    kernels = {name: load(index, text).kernel(name) for name in KERNELS}
    return {
        name: (kernel, kernel.occupancy(THREADS) * multiprocessors)
        for name, kernel in kernels.items()
    }


class GpuForest:
    """Trees of all vertices in a GPU's memory.

    :param index: the GPU
    :param stream: handle of the stream of all launches
    :param pointer: to :func:`memory_bytes` of memory
    """

    def __init__(self, index: int, stream: int, pointer: int, linking: Linking) -> None:
        self.index = index
        self._linking = linking
        self._stream = BorrowedStream(index, stream)
        self._pinned_fault = PinnedBuffer(FAULT.itemsize)
        self._pinned_fault.fill_bytes(0)
        self._fault: Any = self._pinned_fault.array(FAULT)
        self._argument = _StreamForest(
            (pointer,),
            linking.vertices,
            pointer + memory_bytes(linking) - _CONTROL_BYTES,
            self._pinned_fault.pointer,
        )
        # By dtype of edges; kernels that take none are the same for all.
        self._kernels: dict[np.dtype[Any], Kernels] = {}
        self._default_dtype: np.dtype[Any] | None = None

    def link(self, pointer: int, rows: int, dtype: np.dtype[Any], chunk: int, row: int) -> None:
        """Enqueue the links of edges at an address, a multiple of the size of an edge."""
        self._begin(dtype)
        linking = self._linking
        origin = _StreamOrigin(chunk, row)
        jumps = _ALL_JUMPS if linking.jumps is None else linking.jumps
        for _ in range(linking.rounds):
            self._launch("hook_edges_plainly", rows, dtype, pointer, rows, origin)
            if jumps:
                self._launch("flatten_forest", linking.vertices, dtype, 0, jumps)
        self._launch("link_edges", rows, dtype, pointer, rows, origin)
        least_walks = max(1, int(WALKS_PER_VERTEX * linking.vertices))
        self._launch("flatten_forest", linking.vertices, dtype, least_walks, _ALL_JUMPS)

    def absorb(self, pointer: int, first: int, count: int) -> None:
        """Enqueue the links of vertices from ``first`` on with their parents at an address."""
        dtype = self._begin(None)
        self._launch("absorb_forest", count, dtype, pointer, first, count)

    def flatten(self) -> None:
        """Enqueue the kernel that points every vertex at its root."""
        dtype = self._begin(None)
        self._launch("flatten_forest", self._linking.vertices, dtype, 0, _ALL_JUMPS)

    def fault(self) -> Fault | None:
        """Return a processed edge that has an end which is not a vertex; None if there is none."""
        fault = self._fault[0]
        kind = int(fault["kind"])
        if kind == 0:
            return None
        ends = fault[["source", "target"]].item()
        source_id, target_id = (end % 2**64 if kind == _UNSIGNED else end for end in ends)
        return Fault(int(fault["chunk"]), int(fault["row"]), source_id, target_id)

    def close(self) -> None:
        """Free the pinned memory; nothing may be pending."""
        self._fault = np.zeros(1, FAULT)
        self._pinned_fault.close()

    def _begin(self, dtype: np.dtype[Any] | None) -> np.dtype[Any]:
        """Make every vertex a root before the first launch; return a dtype whose kernels are loaded."""
        if self._default_dtype is None:
            self._default_dtype = self._linking.id_dtype if dtype is None else dtype
            self._launch("begin_forest", self._linking.vertices, self._default_dtype)
        return self._default_dtype if dtype is None else dtype

    def _launch(self, name: str, items: int, dtype: np.dtype[Any], *arguments: Any) -> None:
        kernels = self._kernels.get(dtype)
        if kernels is None:
            kernels = self._kernels[dtype] = load_kernels(self.index, self._linking, dtype)
        kernel, max_blocks = kernels[name]
        driver.launch(
            kernel,
            self._stream,
            blocks=max(1, min(max_blocks, -(-items // THREADS))),
            threads=THREADS,
            arguments=[self._argument, *arguments],
        )


def load_kernels(index: int, linking: Linking, dtype: np.dtype[Any]) -> Kernels:
    """Return a GPU's kernels for edges of a dtype."""
    text = source(linking.id_dtype, dtype, splices=linking.splices)
    with _LOADING:  # several workers load at once
        return _kernels(index, text)


def memory_bytes(linking: Linking) -> int:
    """Return the bytes of the parents of all vertices on a GPU, and of the control words behind them."""
    nbytes = linking.vertices * linking.id_dtype.itemsize
    return -(-nbytes // _CONTROL_BYTES) * _CONTROL_BYTES + _CONTROL_BYTES


class _PooledForest:
    """:class:`Forest` in the pool of a GPU endpoint, whose segments are CuPy arrays."""

    def __init__(self, space: Any, linking: Linking) -> None:
        nbytes = memory_bytes(linking)
        self._space = space
        self._block = space.allocate(nbytes)
        pointer = address_of(self._block.view(np.uint8, (nbytes,)))
        self._forest = GpuForest(space.index, int(native_stream(space.stream)), pointer, linking)
        self.parents: Any = self._block.view(linking.id_dtype, (linking.vertices,))
        self.flatten = self._forest.flatten
        self.fault = self._forest.fault

    def link(self, edges: Any, chunk: int, row: int) -> None:
        """Enqueue the links of edges."""
        if address_of(edges) % (2 * edges.dtype.itemsize):  # misaligned in a user's array
            edges = edges.copy()
        self._forest.link(address_of(edges), len(edges), edges.dtype, chunk, row)

    def absorb(self, parents: Any, first: int) -> None:
        """Enqueue the merge of another forest."""
        self._forest.absorb(address_of(parents), first, len(parents))

    def close(self) -> None:
        """Wait for the stream, and free the memory."""
        try:
            self._space.record_event().wait()
        finally:
            self.parents = None
            self._forest.close()
            self._block.free()


def new_forest(space: Space, linking: Linking) -> Forest:
    """Return a forest in the memory of a GPU endpoint."""
    return _PooledForest(space, linking)


def compile_kernels(space: Any, linking: Linking, dtype: np.dtype[Any]) -> None:
    """Compile, or load, the kernels for edges of a dtype."""
    load_kernels(space.index, linking, dtype)


def labels_on_host(forest: Forest) -> Array:
    """Return the parents of all vertices in a new array of the host; no work is under way on the GPU."""
    parents = forest.parents
    index = gpu_of(parents)
    label, _ = new_host_array(len(parents), parents.dtype, [index])
    if label.nbytes >= LEAST_LOCKED_BYTES:
        download(index, address_of(parents), label)
    elif label.nbytes:
        room = take_pinned(label.nbytes)
        landed = room.array(np.uint8)[: label.nbytes]
        download(index, address_of(parents), landed)
        label[:] = landed.view(label.dtype)
        keep_pinned(room)
    return label
