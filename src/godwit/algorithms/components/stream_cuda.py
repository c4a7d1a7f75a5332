"""A forest that takes edges in, in a GPU's memory: runs stream.cuh in a CUDA stream.

Nothing here waits for the GPU but closing: a segment costs the host two launches, and faults
are written by kernels where the host finds them whenever it looks.
"""

from __future__ import annotations

import threading
from ctypes import Structure, c_int64, c_uint64
from functools import lru_cache
from typing import Any

import numpy as np

from godwit.algorithms.components.forests import Fault, Forest, Linking
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import cubin
from godwit.runtime.cuda.driver import BorrowedStream, Kernel, Module, PinnedBuffer
from godwit.runtime.cuda.events import native_stream
from godwit.runtime.cuda.gpu_arrays import address_of
from godwit.runtime.cuda.types import c_type
from godwit.runtime.memory import Space

WALKS_A_VERTEX = 0.25
"""Edges that had to walk up trees, a vertex, after which these are flattened."""

THREADS = 512
"""Of a block."""

_ALL_JUMPS = 2**64 - 1
_CONTROL_BYTES = 256
_BATCH = 4  # as in algorithms/components/forest.cuh
_LOADING = threading.Lock()

Kernels = dict[str, tuple[Kernel, int]]
"""By name, with the blocks that fit on the GPU at once."""

_SIGNED, _UNSIGNED = 1, 2  # what StreamFault.found says
FAULT = np.dtype(
    [("chunk", "u8"), ("row", "u8"), ("source", "i8"), ("target", "i8"), ("found", "u8")]
)
"""``StreamFault`` of algorithms/components/stream.cuh."""


class _StreamForest(Structure):
    """``StreamForest``."""

    _fields_ = (
        ("parents", c_uint64),
        ("vertices", c_int64),
        ("control", c_uint64),
        ("fault", c_uint64),
    )


class _StreamOrigin(Structure):
    """``StreamOrigin``."""

    _fields_ = (("chunk", c_uint64), ("row", c_uint64))


KERNELS = {
    "begin_forest": "",
    "link_edges": ", const End *ends, i64 edges, StreamOrigin origin",
    "hook_edges_plainly": ", const End *ends, i64 edges, StreamOrigin origin",
    "absorb_forest": ", const Id *theirs, i64 first, i64 count",
    "flatten_forest": ", u64 least_walks, u64 jumps",
}
"""What algorithms/components/stream.cuh has as ``grid_NAME``, and what they take beside the forest."""


def source(id_dtype: Any, end_dtype: Any, *, splices: bool) -> str:
    """The kernels for parents of a dtype, edges of a dtype, and a way to link."""
    ids, ends = c_type(np.dtype(id_dtype)), c_type(np.dtype(end_dtype))
    lines = [
        f"#define SPLICES {str(splices).lower()}",
        '#include "runtime/cuda/include/memory.cuh"',
        f"using Id = {ids};",
        f"using End = {ends};",
        '#include "algorithms/components/stream.cuh"',
        "static_assert(sizeof(StreamForest) == 32 && sizeof(StreamControl) == 32);",
        f"static_assert(sizeof(StreamFault) == {FAULT.itemsize});",
    ]
    for name, more in KERNELS.items():
        given = [part.split()[-1].lstrip("*") for part in more.split(",")[1:]]
        lines += [
            f'extern "C" __global__ void __launch_bounds__({THREADS})',
            f"{name}(StreamForest stream{more}) {{",
            f"    grid_{name}({', '.join(['stream', *given])});",
            "}",
        ]
    return "\n".join((*lines, ""))


@lru_cache(maxsize=64)
def _module(index: int, text: str) -> tuple[Module, Kernels]:
    """Compiled kernels, and what they are in."""
    properties = driver.properties(index)
    module = driver.load(index, cubin(text, (), properties.compute_capability))
    kernels = {}
    for name in KERNELS:
        kernel = module.kernel(name)
        kernels[name] = kernel, kernel.occupancy(THREADS) * properties.multiprocessors
    return module, kernels


class GpuForest:
    """Trees of all vertices in a GPU's memory.

    :param index: the GPU
    :param stream: the number of the stream that all is put into
    :param pointer: to :func:`memory_bytes` that are for the forest alone
    """

    def __init__(self, index: int, stream: int, pointer: int, linking: Linking) -> None:
        self.index = index
        self._linking = linking
        self._stream = BorrowedStream(index, stream)
        self._fault = PinnedBuffer(FAULT.itemsize)
        self._fault.fill_bytes(0)
        self._said: Any = self._fault.array(FAULT)
        self._stands = _StreamForest(
            pointer,
            linking.vertices,
            pointer + memory_bytes(linking) - _CONTROL_BYTES,
            self._fault.pointer,
        )
        # By the dtype of edges, on which only the kernels for these depend.
        self._kernels: dict[np.dtype[Any], Kernels] = {}
        self._begun: np.dtype[Any] | None = None

    def link(self, pointer: int, rows: int, dtype: np.dtype[Any], chunk: int, row: int) -> None:
        """Join the ends of edges that lie at a place, a multiple of their own size."""
        self._begin(dtype)
        linking = self._linking
        origin = _StreamOrigin(chunk, row)
        jumps = _ALL_JUMPS if linking.jumps is None else linking.jumps
        for _ in range(linking.rounds):
            self._launch("hook_edges_plainly", rows, dtype, pointer, rows, origin)
            if jumps:
                self._launch("flatten_forest", linking.vertices, dtype, 0, jumps)
        self._launch("link_edges", rows, dtype, pointer, rows, origin)
        least = max(1, int(WALKS_A_VERTEX * linking.vertices))
        self._launch("flatten_forest", linking.vertices, dtype, least, _ALL_JUMPS)

    def absorb(self, pointer: int, first: int, count: int) -> None:
        """Join vertices from ``first`` on with their parents that lie at a place."""
        dtype = self._begin(None)
        self._launch("absorb_forest", count, dtype, pointer, first, count)

    def flatten(self) -> None:
        """Point every vertex at its root."""
        dtype = self._begin(None)
        self._launch("flatten_forest", self._linking.vertices, dtype, 0, _ALL_JUMPS)

    def fault(self) -> Fault | None:
        """An edge that was found to be none, among those that have been looked at so far."""
        said = self._said[0]
        found = int(said["found"])
        if found == 0:
            return None
        ends = said[["source", "target"]].item()
        source_id, target_id = (one % 2**64 if found == _UNSIGNED else one for one in ends)
        return Fault(int(said["chunk"]), int(said["row"]), source_id, target_id)

    def close(self) -> None:
        """Give back what is its own; nothing is under way."""
        self._said = np.zeros(1, FAULT)
        self._fault.close()

    def _begin(self, dtype: np.dtype[Any] | None) -> np.dtype[Any]:
        """Make every vertex a root, if that has not been done; a dtype that kernels are there for."""
        if self._begun is None:
            self._begun = self._linking.id_dtype if dtype is None else dtype
            self._launch("begin_forest", self._linking.vertices, self._begun)
        return self._begun if dtype is None else dtype

    def _launch(self, name: str, items: int, dtype: np.dtype[Any], *arguments: Any) -> None:
        kernels = self._kernels.get(dtype)
        if kernels is None:
            kernels = self._kernels[dtype] = load_kernels(self.index, self._linking, dtype)
        kernel, most = kernels[name]
        driver.launch(
            kernel,
            self._stream,
            blocks=max(1, min(most, -(-items // THREADS))),
            threads=THREADS,
            arguments=[self._stands, *arguments],
        )


def load_kernels(index: int, linking: Linking, dtype: np.dtype[Any]) -> Kernels:
    """The kernels for edges of a dtype, on a GPU."""
    text = source(linking.id_dtype, dtype, splices=linking.splices)
    with _LOADING:  # several workers come at once
        return _module(index, text)[1]


def memory_bytes(linking: Linking) -> int:
    """What a forest takes on a GPU."""
    words = linking.vertices * linking.id_dtype.itemsize
    return -(-words // _CONTROL_BYTES) * _CONTROL_BYTES + _CONTROL_BYTES


class _PooledForest:
    """A forest in the memory of an endpoint, which segments are arrays of CuPy in."""

    def __init__(self, space: Any, linking: Linking) -> None:
        nbytes = memory_bytes(linking)
        self._space = space
        self._block = space.allocate(nbytes)
        place = address_of(self._block.view(np.uint8, (nbytes,)))
        self._forest = GpuForest(space.index, int(native_stream(space.stream)), place, linking)
        self.parents: Any = self._block.view(linking.id_dtype, (linking.vertices,))

    def link(self, edges: Any, chunk: int, row: int) -> None:
        """Join the ends of edges, in the stream."""
        if address_of(edges) % (2 * edges.dtype.itemsize):  # read where it lies in a user's array
            edges = edges.copy()
        self._forest.link(address_of(edges), len(edges), edges.dtype, chunk, row)

    def absorb(self, parents: Any, first: int) -> None:
        """Join what another forest has joined, in the stream."""
        self._forest.absorb(address_of(parents), first, len(parents))

    def flatten(self) -> None:
        """Point every vertex at its root, in the stream."""
        self._forest.flatten()

    def fault(self) -> Fault | None:
        """An edge that was found to be none."""
        return self._forest.fault()

    def close(self) -> None:
        """Give the memory back, once the stream is there."""
        try:
            self._space.record_event().wait()
        finally:
            self.parents = None
            self._forest.close()
            self._block.free()


def new_forest(space: Space, linking: Linking) -> Forest:
    """A forest in the memory of an endpoint on a GPU."""
    return _PooledForest(space, linking)


def compile_kernels(space: Any, linking: Linking, dtype: np.dtype[Any]) -> None:
    """Compile, or load, what a forest needs for edges of a dtype."""
    load_kernels(space.index, linking, dtype)
