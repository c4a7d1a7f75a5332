"""What each part of a partitioned graph holds: its vertices' out-arcs, and a halo of remote ends.

Encoding: part p numbers its n_p owned vertices 0 .. n_p - 1, in the order of their global ids, and
the remote vertices that its arcs reach n_p, n_p + 1, ...: a *local index*. So a target t of a local
graph is owned where t < n_p, and is halo vertex t - n_p elsewhere. The halo is sorted by owner,
then by id, and knows each vertex' local index at its owner, which is what travels in a work-item.
The order of the arcs of a vertex is kept. The kernels, and their method, are in ``halo``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from godwit.dtypes import Array, frozen
from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.graph.partition import Measures, Partition, halo
from godwit.graph.rows import bits_of, require_memory, thread_count_for
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import block_range, run_team

# Fewer values than these are put in their places by NumPy: waking a team would take longer.
_SMALL_VERTICES = 50_000

_HALO_OWNER_BYTES = 4

Duplication = Literal["1-hop", "all"]


@dataclass(frozen=True, eq=False, repr=False)
class LocalGraph:
    """A part's own arcs. All arrays are read-only, and views of the graph's where they can be.

    :param part: which part
    :param vertices: (n_p) ids of the owned vertices, ascending; dtype of the graph's ids
    :param offsets: (n_p + 1) int64: where the arcs of each owned vertex begin
    :param targets: (m_p) local indices, in the dtype of the graph's ids: t < n_p is an owned
        vertex, else halo vertex t - n_p
    :param weights: (m_p) in the same order, or None
    :param halo_vertices: (h_p) ids of the remote vertices reached, by owner, then ascending
    :param halo_owner: (h_p) int32: the part that owns each
    :param halo_remote: (h_p) its local index there; dtype of the graph's ids
    """

    part: int
    vertices: Array
    offsets: Array
    targets: Array
    weights: Array | None
    halo_vertices: Array
    halo_owner: Array
    halo_remote: Array

    @property
    def vertex_count(self) -> int:
        """Owned vertices, n_p."""
        return len(self.vertices)

    @property
    def arc_count(self) -> int:
        """Out-arcs of owned vertices, m_p."""
        return len(self.targets)

    @property
    def halo_count(self) -> int:
        """Halo vertices, h_p."""
        return len(self.halo_vertices)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, whether views of the graph's or not: what a device must hold."""
        arrays = (self.vertices, self.offsets, self.targets)
        halo = (self.halo_vertices, self.halo_owner, self.halo_remote)
        weight_bytes = 0 if self.weights is None else self.weights.nbytes
        return sum(array.nbytes for array in (*arrays, *halo)) + weight_bytes

    def __repr__(self) -> str:
        return (
            f"<LocalGraph {self.part}: {self.vertex_count:,} vertices, {self.arc_count:,} arcs, "
            f"{self.halo_count:,} halo vertices>"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Layout:
    """A graph laid out over parts.

    :param graph: the graph
    :param partition: who owns which vertex
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
        """(n) ids: the position of each vertex among its owner's; made on demand."""
        index = np.empty(self.graph.vertex_count, self.graph.targets.dtype)
        for local in self.parts:
            index[local.vertices] = np.arange(local.vertex_count, dtype=index.dtype)
        return frozen(index)

    def locate(self, vertex: int) -> tuple[int, int]:
        """The part of a vertex, and its local index there."""
        part = int(self.owner[vertex])
        return part, int(np.searchsorted(self.parts[part].vertices, vertex))

    def gather(self, values: Sequence[Array]) -> Array:
        """(n) values of all vertices from those of each part, which have shapes (n_p).

        A new array, except that those of a single part are handed back as they are.
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
                run_team(_put, local.vertices, frozen(of_part), gathered)
        return gathered

    def scatter(self, values: Array) -> list[Array]:
        """The values (n_p) of each part's vertices, views where possible, from those of all (n)."""
        boundaries = self.partition.boundaries
        if boundaries is not None:
            return [values[i:j] for i, j in pairwise(boundaries)]
        return [values[local.vertices] for local in self.parts]

    @property
    def nbytes(self) -> int:
        """Bytes that the devices hold, all together."""
        return sum(local.nbytes for local in self.parts)

    def __repr__(self) -> str:
        return f"<Layout of {self.graph!r} over {len(self.parts)} parts>"


class Grouped(NamedTuple):
    """The numbering by owner, then by id.

    :param identity: whether it is the graph's own; ``order`` and ``position`` are empty then
    :param first: (k + 1) int64: grouped number of each part's first vertex
    :param starts: (n + 1) int64: where the arcs of each vertex begin, in grouped order
    :param order: (n) ids: the vertex of each grouped number
    :param position: (n) ids: the grouped number of each vertex
    """

    identity: bool
    first: Array
    starts: Array
    order: Array
    position: Array


@kernel
def _put(rank: int, size: int, control: Any, vertices: Any, values: Any, out: Any) -> None:
    """Write values to the places of their vertices."""
    begin, end = block_range(rank, size, len(vertices))
    for index in range(begin, end):
        out[vertices[index]] = values[index]


def layout_bytes(
    graph: Graph, part_count: int, *, contiguous: bool = True, halo_count: int = 0
) -> int:
    """Bytes that :func:`build_layout` allocates at most, work space included.

    :param contiguous: whether the parts are ranges of vertices, whose weights are not copied
    :param halo_count: halo vertices of all parts, ``Partition.border_vertices``; not known without
        a pass over the arcs, and at most ``min(m, (part_count - 1) * n)``
    """
    n, m = graph.vertex_count, graph.arc_count
    id_bytes = graph.targets.itemsize
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
    """Lay a graph out over the parts of a partition, in parallel; what placing a graph costs.

    One part is the graph itself. Ranges of vertices share its weights. Also supplies the partition
    with its measures, which need no pass of their own then.

    :param duplication: which remote vertices a part holds copies of: ``"1-hop"`` those that its arcs reach,
        ``"all"`` every one (Gunrock, section III; Groute's full-length arrays), which takes more memory
    :raises InputError: if the partition is of another number of vertices
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
        return Layout(graph, partition, (_whole(graph),))
    grouped = _group_by_owner(graph, partition)
    words = np.empty((n >> 6) + 1, np.uint64)
    bits_before = np.empty(len(words), np.int64)
    parts = []
    cut_arcs = 0
    for part in range(k):
        local, cut = _build_part(graph, grouped, part, duplication, words, bits_before)
        parts.append(local)
        cut_arcs += cut
    if partition.graph is graph and duplication == "1-hop":
        border = [np.bincount(local.halo_owner, minlength=k) for local in parts]
        partition.supply(
            Measures(
                cut_arcs,
                frozen(np.array(border, np.int64)),
                frozen(np.diff(grouped.first)),
                frozen(np.diff(grouped.starts[grouped.first])),
            )
        )
    return Layout(graph, partition, tuple(parts))


def _whole(graph: Graph) -> LocalGraph:
    id_dtype = graph.targets.dtype
    return LocalGraph(
        0,
        frozen(np.arange(graph.vertex_count, dtype=id_dtype)),
        graph.offsets,
        graph.targets,
        graph.weights,
        frozen(np.empty(0, id_dtype)),
        frozen(np.empty(0, np.int32)),
        frozen(np.empty(0, id_dtype)),
    )


def _group_by_owner(graph: Graph, partition: Partition) -> Grouped:
    n, k = graph.vertex_count, partition.part_count
    id_dtype = graph.targets.dtype
    if partition.boundaries is not None:
        none = frozen(np.empty(0, id_dtype))
        return Grouped(True, partition.boundaries, graph.offsets, none, none)
    threads = thread_count_for(graph.arc_count)
    first = np.zeros(k + 1, np.int64)
    starts = np.empty(n + 1, np.int64)
    starts[n] = graph.arc_count
    order = np.empty(n, id_dtype)
    position = np.empty(n, id_dtype)
    vertices, arcs = np.zeros((2, threads, k), np.int64)
    run_team(
        halo.group,
        graph.offsets,
        partition.owner,
        vertices,
        arcs,
        first,
        starts,
        order,
        position,
        threads=threads,
    )
    return Grouped(False, frozen(first), frozen(starts), frozen(order), frozen(position))


def _build_part(
    graph: Graph,
    grouped: Grouped,
    part: int,
    duplication: Duplication,
    words: Array,
    bits_before: Array,
) -> tuple[LocalGraph, int]:
    """The local graph of a part, and how many of its arcs leave it."""
    begin, end = int(grouped.first[part]), int(grouped.first[part + 1])
    first_arc, last_arc = int(grouped.starts[begin]), int(grouped.starts[end])
    arc_count = last_arc - first_arc
    id_dtype = graph.targets.dtype
    threads = thread_count_for(arc_count)
    counts = np.zeros(threads, np.int64)
    cut_arcs = run_team(
        halo.mark,
        graph.offsets,
        graph.targets,
        *grouped,
        begin,
        end,
        duplication == "all",
        words,
        bits_before,
        counts,
        threads=threads,
    )
    halo_count = int(counts.sum())
    if halo_count * (2 * id_dtype.itemsize + _HALO_OWNER_BYTES) > 1 << 28:
        # Too many to go without asking, too uncertain to have been asked for beforehand.
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
    run_team(
        halo.fill,
        graph.offsets,
        graph.targets,
        payload,
        *grouped,
        begin,
        end,
        words,
        bits_before,
        targets,
        weights,
        halo_vertices,
        halo_owner,
        halo_remote,
        threads=threads,
    )
    if grouped.identity:
        vertices = np.arange(begin, end, dtype=id_dtype)
        part_weights = None if graph.weights is None else graph.weights[first_arc:last_arc]
    else:
        vertices = grouped.order[begin:end]
        part_weights = None if graph.weights is None else weights.view(graph.weights.dtype)
    local = LocalGraph(
        part,
        frozen(vertices),
        frozen(grouped.starts[begin : end + 1] - first_arc),
        frozen(targets),
        None if part_weights is None else frozen(part_weights),
        frozen(halo_vertices),
        frozen(halo_owner),
        frozen(halo_remote),
    )
    return local, sum(cut_arcs)
