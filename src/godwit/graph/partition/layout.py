"""The arcs of each part of a partitioned graph, and its halo of remote endpoints.

Encoding: part p numbers its n_p owned vertices 0 .. n_p - 1, in the order of their global ids, and
the remote vertices that its arcs reach n_p, n_p + 1, ...: a *local index*. So a target t of a local
graph is owned where t < n_p, and is halo vertex t - n_p elsewhere. The halo is sorted by owner,
then by id, and has each vertex' local index at its owner, which work-items carry. The order of the arcs of
a vertex is kept. The method is in ``halo``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from godwit.dtypes import Array, frozen
from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.graph.partition import Partition, halo
from godwit.graph.partition.halo import Bitmap, Grouped
from godwit.graph.rows import Rows, bits_of, require_memory, thread_count_for
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import block_range, run_team

if TYPE_CHECKING:
    from godwit.graph.cuda.stored import RowsOnGpu

# Fewer values are scattered by NumPy: waking a team would take longer.
_SMALL_VERTICES = 50_000

_HALO_OWNER_BYTES = 4

Duplication = Literal["1-hop", "all"]


@dataclass(frozen=True, eq=False, repr=False)
class LocalGraph:
    """The arcs of a part. All arrays are read-only, and views of the graph's where possible.

    :param part: the number of the part
    :param owned: (n_p) ids of the owned vertices, ascending; dtype of the graph's ids. None: all of the
        graph
    :param stored: the rows, where they lie: on a GPU where those of the whole graph do
    :param halo_vertices: (h_p) ids of the remote vertices reached, by owner, then ascending
    :param halo_owner: (h_p) int32: the part that owns each
    :param halo_remote: (h_p) its local index there; dtype of the graph's ids
    """

    part: int
    owned: Array | None
    stored: Rows | RowsOnGpu
    halo_vertices: Array
    halo_owner: Array
    halo_remote: Array

    @cached_property
    def vertices(self) -> Array:
        """(n_p) ids of the owned vertices, ascending, in the dtype of the graph's ids."""
        if self.owned is not None:
            return self.owned
        return frozen(np.arange(self.vertex_count, dtype=self.id_dtype))

    @property
    def offsets(self) -> Array:
        """(n_p + 1) int64: the first arc of each owned vertex."""
        return self.stored.offsets

    @property
    def targets(self) -> Array:
        """(m_p) local indices, in the dtype of the graph's ids.

        t < n_p is an owned vertex, else halo vertex t - n_p.
        """
        return self.stored.targets

    @property
    def weights(self) -> Array | None:
        """(m_p) weights in the order of targets, or None."""
        return self.stored.weights

    @property
    def id_dtype(self) -> np.dtype[Any]:
        """Dtype of targets."""
        return self.stored.id_dtype

    @property
    def weight_dtype(self) -> np.dtype[Any] | None:
        """Dtype of weights; None if there are none."""
        return self.stored.weight_dtype

    @property
    def vertex_count(self) -> int:
        """Owned vertices, n_p."""
        return self.stored.vertex_count

    @property
    def arc_count(self) -> int:
        """Out-arcs of owned vertices, m_p."""
        return self.stored.arc_count

    @property
    def halo_count(self) -> int:
        """Halo vertices, h_p."""
        return len(self.halo_vertices)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, views of the graph's included: the memory that a device needs."""
        halo = (self.halo_vertices, self.halo_owner, self.halo_remote)
        vertex_bytes = self.vertex_count * self.id_dtype.itemsize
        return sum(array.nbytes for array in halo) + vertex_bytes + self.stored.nbytes

    def __repr__(self) -> str:
        return (
            f"<LocalGraph {self.part}: {self.vertex_count:,} vertices, {self.arc_count:,} arcs, "
            f"{self.halo_count:,} halo vertices>"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Layout:
    """A graph laid out over parts.

    :param graph: the graph
    :param partition: the owner of each vertex
    :param parts: a :class:`LocalGraph` for each part
    """

    graph: Graph
    partition: Partition
    parts: tuple[LocalGraph, ...]

    @property
    def owner(self) -> Array:
        """(n) int32: the part of each vertex."""
        return self.partition.owner

    @cached_property
    def local_index(self) -> Array:
        """(n) ids: the local index of each vertex at its owner; made on demand."""
        index = np.empty(self.graph.vertex_count, self.graph.id_dtype)
        for local in self.parts:
            index[local.vertices] = np.arange(local.vertex_count, dtype=index.dtype)
        return frozen(index)

    def gather(self, values: Sequence[Array]) -> Array:
        """Return the values of all vertices, (n), from those of each part, which have shapes (n_p).

        The result is a new array, except for a single part, whose array is returned.
        """
        if len(self.parts) == 1:
            return values[0]
        if self.partition.boundaries is not None:
            return np.concatenate(values)
        gathered = np.empty(self.graph.vertex_count, np.result_type(*values))
        for local, of_part in zip(self.parts, values, strict=True):
            if len(of_part) < _SMALL_VERTICES:
                gathered[local.vertices] = of_part
            else:
                run_team(_scatter, local.vertices, frozen(of_part), gathered)
        return gathered

    def scatter(self, values: Array) -> list[Array]:
        """Return the values (n_p) of each part's vertices, as views if possible, from those of all (n)."""
        boundaries = self.partition.boundaries
        if boundaries is not None:
            return [values[i:j] for i, j in pairwise(boundaries)]
        return [values[local.vertices] for local in self.parts]

    @property
    def nbytes(self) -> int:
        """Sum of the memory that all devices need."""
        return sum(local.nbytes for local in self.parts)

    def __repr__(self) -> str:
        return f"<Layout of {self.graph!r} over {len(self.parts)} parts>"


@kernel
def _scatter(rank: int, size: int, control: Any, vertices: Any, values: Any, out: Any) -> None:
    """Scatter values to the positions of their vertices."""
    begin, end = block_range(rank, size, len(vertices))
    for index in range(begin, end):
        out[vertices[index]] = values[index]


def layout_bytes(
    graph: Graph, part_count: int, *, contiguous: bool = True, halo_count: int = 0
) -> int:
    """Return a bound of the bytes that :func:`build_layout` allocates, work space included.

    :param contiguous: True if the parts are ranges of vertices, whose weights are not copied
    :param halo_count: halo vertices of all parts, ``Partition.border_vertices``; at most
        ``min(m, (part_count - 1) * n)``
    """
    n, m = graph.vertex_count, graph.arc_count
    id_bytes = graph.id_dtype.itemsize
    if part_count == 1:
        return n * id_bytes
    needed = n * id_bytes + 8 * (n + part_count) + m * id_bytes
    needed += halo_count * (2 * id_bytes + _HALO_OWNER_BYTES)
    needed += 2 * 8 * (n // 64 + 1)
    if not contiguous:
        needed += n * id_bytes + 8 * (n + 1)
        needed += 0 if graph.weights is None else graph.weights.nbytes
    return needed


def build_layout(
    graph: Graph, partition: Partition, *, duplication: Duplication = "1-hop"
) -> Layout:
    """Lay a graph out over the parts of a partition, in parallel.

    A single part shares all arrays of the graph; parts that are ranges of vertices share its weights.

    :param duplication: the remote vertices of which a part holds copies: ``"1-hop"`` those that its arcs
        reach, ``"all"`` every one (Gunrock, section III; Groute's full-length arrays)
    :raises InputError: if the partition has another number of vertices
    :raises GraphTooLargeError: before anything is allocated
    """
    n, k = graph.vertex_count, partition.part_count
    if len(partition.owner) != n:
        raise InputError(
            f"the partition is of {len(partition.owner)} vertices, and the graph has {n}"
        )
    contiguous = partition.boundaries is not None
    require_memory(
        layout_bytes(graph, k, contiguous=contiguous),
        f"laying a graph of {n:,} vertices and {graph.arc_count:,} arcs out over {k} parts",
    )
    if k == 1:
        return Layout(graph, partition, (whole(graph),))
    grouped = halo.group_by_owner(graph.rows, partition.owner, partition.boundaries, k)
    bitmap = halo.make_bitmap(n)
    every = duplication == "all"
    parts = (_build_part(graph, grouped, part, every, bitmap) for part in range(k))
    return Layout(graph, partition, tuple(parts))


def whole(graph: Graph) -> LocalGraph:
    """Return a whole graph as the part of one device."""
    id_dtype = graph.id_dtype
    return LocalGraph(
        0,
        None,
        graph.stored,
        frozen(np.empty(0, id_dtype)),
        frozen(np.empty(0, np.int32)),
        frozen(np.empty(0, id_dtype)),
    )


def _build_part(
    graph: Graph, grouped: Grouped, part: int, every: bool, bitmap: Bitmap
) -> LocalGraph:
    """Return the local graph of a part."""
    begin, end = int(grouped.first[part]), int(grouped.first[part + 1])
    first_arc, last_arc = int(grouped.starts[begin]), int(grouped.starts[end])
    arc_count = last_arc - first_arc
    id_dtype = graph.id_dtype
    halo_count, _ = halo.mark_halo(graph.rows, grouped, part, bitmap, every=every)
    if halo_count * (2 * id_dtype.itemsize + _HALO_OWNER_BYTES) > 1 << 28:
        # Large, but not known before it was marked.
        require_memory(
            halo_count * (2 * id_dtype.itemsize + _HALO_OWNER_BYTES),
            f"a halo of {halo_count:,} vertices",
        )
    targets = np.empty(arc_count, id_dtype)
    halo_vertices = np.empty(halo_count, id_dtype)
    halo_owner = np.empty(halo_count, np.int32)
    halo_remote = np.empty(halo_count, id_dtype)
    payload, weights = bits_of(None), np.empty(0, np.int32)
    if graph.weights is not None and not grouped.identity:
        payload = bits_of(graph.weights)
        weights = np.empty(arc_count, payload.dtype)
    arcs = (graph.offsets, graph.targets, payload, *grouped, begin, end, *bitmap)
    results = (targets, weights, halo_vertices, halo_owner, halo_remote)
    run_team(halo.fill, *arcs, *results, threads=thread_count_for(arc_count))
    if grouped.identity:
        vertices = np.arange(begin, end, dtype=id_dtype)
        part_weights = None if graph.weights is None else graph.weights[first_arc:last_arc]
    else:
        vertices = grouped.order[begin:end]
        part_weights = None if graph.weights is None else weights.view(graph.weights.dtype)
    return LocalGraph(
        part,
        frozen(vertices),
        Rows(
            frozen(grouped.starts[begin : end + 1] - first_arc),
            frozen(targets),
            None if part_weights is None else frozen(part_weights),
        ),
        frozen(halo_vertices),
        frozen(halo_owner),
        frozen(halo_remote),
    )
