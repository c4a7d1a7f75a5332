"""Connected components on several processes: union-find in each, then trees across them.

First every process joins its vertices along arcs between them (:mod:`godwit.graph.union_find`). Of arcs
that cross between processes, what counts is which trees they join, so each process contracts its own side
before anything is sent:

- the *end* of a crossing arc is its remote vertex, or, for all vertices of another process' largest tree,
  that tree. Owners send a bit for each vertex of a halo that says so;
- trees of a process that have an end in common are joined at once. An end that is found leaves one tree,
  so that an end, not an arc, is what is sent;
- of the process' own largest tree, rows are looked at until an arc to the largest tree of each other
  process is found. In an undirected graph, the other arcs of these rows that join different trees are in
  rows of the other process, too. In directed ones, all rows are looked at.

What is left are *roots*, and ends. Roots are then hung below each other:

- ``parent`` of a root is a root of any process, never one with a larger position, at first itself;
- in a round, every root gets its grandparent, and the tree and the end of each pair compare theirs: the
  larger one is hung below the smaller, and every root below its grandparent (Zhang, Azad, Hu: FastSV: a
  distributed-memory connected component algorithm with fast convergence, PP 2020);
- the end is a round without a change. Then all roots of a component are hung below one, its smallest
  vertex.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.components import SHORT_DEGREE
from godwit.distributed.exchange import Questions, to_owners
from godwit.distributed.gpu_graph import GpuGraph
from godwit.distributed.graph import DistributedGraph
from godwit.distributed.halo import WORD_BITS, HaloRows
from godwit.distributed.result import DistributedResult, first_of_parts
from godwit.dtypes import Array, as_count, id_dtype_for
from godwit.graph.build import SMALL_ARCS
from godwit.graph.ids import VertexIds
from godwit.graph.interchange.tables import Column
from godwit.graph.rows import Rows, require_memory, thread_count_for
from godwit.graph.union_find import TO_THE_ROOT, UnionMethod, compress, hook, weak_components
from godwit.progress import ProgressArgument
from godwit.runtime.cpu.atomics import compare_exchange, load_relaxed, store_relaxed
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import barrier, block_range, next_range, run_team
from godwit.runtime.statistics import RunStatistics
from godwit.worker.options import query_options
from godwit.worker.solve import make_poll

_SAMPLES = 256
"""Vertices by which a process guesses its largest tree; any tree gives the same result."""
_CHUNK = 256

_at: Any = np.uint64


class DistributedComponentsResult(DistributedResult):
    """Components of the own vertices of a process, each named by its smallest vertex.

    :ivar count: number of components of the whole graph
    """

    value_name = "component"

    def __init__(
        self, graph: DistributedGraph | GpuGraph, label: Array, names: Array | VertexIds | int, count: int,
        statistics: RunStatistics,
    ) -> None:  # fmt: skip
        super().__init__(graph, label, statistics)
        self._names = names
        self._bounds = graph.bounds
        self.count = count

    @property
    def label(self) -> Array:
        """Position in the whole graph of the smallest vertex of each vertex' component."""
        return self._values

    def largest(self, count: int) -> list[tuple[Any, int]]:
        """Return names, by id, and sizes of the largest components, largest first; ties by first vertex.

        All processes call it, and get the same; of a gathered result, the process that has it.

        >>> import godwit as gw
        >>> placed = gw.distributed.context().place(gw.Graph.from_edges([0, 1], [1, 2], vertex_count=4))
        >>> gw.connected_components(placed).largest(2)
        [(0, 3), (3, 1)]

        :raises InputError: ``count`` is not an integer, or negative
        """
        processes = self._processes
        if processes is None:
            return self._largest_of(*np.unique(self._values, return_counts=True), count)
        with processes.running("largest", count):
            labels, sizes = np.unique(self._values, return_counts=True)
            owners = np.searchsorted(self._bounds, labels, side="right") - 1
            labels, sizes = to_owners(processes, owners, [labels, sizes])
            names, which = np.unique(labels, return_inverse=True)
            totals = np.zeros(len(names), np.int64)
            np.add.at(totals, which, sizes)
            parts = processes.share(self._largest_of(names - self.vertices.start, totals, count))
        return first_of_parts(parts, count)

    def _largest_of(self, names: Array, sizes: Array, count: int) -> list[tuple[Any, int]]:
        order = np.argsort(-sizes, kind="stable")[: as_count(count, "count")]
        return list(zip(self.ids.of(names[order]), sizes[order].tolist(), strict=True))

    def to_dict(self) -> dict[Any, Any]:
        """Return the name of the component of each vertex in ``vertices``, both by id."""
        table = self.to_arrow()
        vertices, names = (column.to_pylist() for column in table.columns)
        return dict(zip(vertices, names, strict=True))

    @property
    def columns(self) -> list[Column]:
        """The id of each component's smallest vertex."""
        return [self._column_of_vertices(self.value_name, self._values, self._names)]


def connected_components(
    graph: DistributedGraph,
    *,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
) -> DistributedComponentsResult:
    """Return the components of the own vertices; see :func:`godwit.connected_components`."""
    processes = graph.processes
    with processes.running("connected_components", graph.vertex_count):
        options = query_options(timeout_s=timeout_s, progress=progress)
        statistics = RunStatistics(("cpu",), "afforest")
        with statistics.phase("place"):
            inner, crossing = graph.cached("inner rows", lambda: _inner_rows(graph.rows))
        with statistics.phase("run"):
            trees = _Trees(graph)
            trees.join_own(inner, make_poll(options))
            if graph.crosses:
                trees.join(*trees.ends(crossing))
            label, roots = trees.labels()
        count = int(processes.meet(roots).sum())
        names = graph.names_of(label)
        statistics.processed_items = np.array([len(label)], np.int64)
        statistics.rounds = np.array([trees.rounds], np.int64)
        processes.report(statistics)
        return DistributedComponentsResult(graph, label, names, count, statistics)


class _Trees:
    """The part that one process has in the forest.

    :ivar root: root of each own vertex, in this process
    :ivar parent: parent of each root, as a position in the whole graph; empty if all are their own
    :ivar rounds: number of rounds so far
    """

    def __init__(self, graph: DistributedGraph) -> None:
        self._graph = graph
        self._processes = graph.processes
        self._first = graph.vertices.start
        self._threads = thread_count_for(len(graph.rows.targets))
        self.root = np.empty(0, np.int64)
        self.parent = np.empty(0, id_dtype_for(graph.vertex_count))
        self.rounds = 0

    def join_own(self, inner: Rows, poll: Any) -> None:
        """Join own vertices along the arcs between them."""
        is_short = inner.arc_count < SHORT_DEGREE * max(1, inner.vertex_count)
        method: UnionMethod | None = (
            "rem" if is_short and inner.arc_count > SMALL_ARCS else None  # SciPy's, or afforest
        )
        self.root = weak_components(inner, self._graph.directed, method, poll=poll)

    def labels(self) -> tuple[Array, int]:
        """Return the root of each own vertex in the whole graph, as a position, and the number of roots."""
        dtype = self.parent.dtype
        label = self.root if self.root.dtype == dtype else np.empty(len(self.root), dtype)
        counts = np.zeros(8 * self._threads, np.int64)
        run_team(_label, self.root, self.parent, self._first, label, counts, threads=self._threads)
        return label, int(counts.sum())

    def ends(self, crossing: Array) -> tuple[Array, Array, Array]:
        """Join own trees that have an end in common; all processes call it.

        :param crossing: the own vertices that have crossing arcs
        :returns: of each end a root, the process that owns the end, and its number there
        """
        graph, halo = self._graph, self._graph.rows.halo
        root, n, count = self.root, len(self.root), self._processes.count
        largest = -1
        if n:
            used, often = np.unique(root[:: max(1, n // _SAMPLES)], return_counts=True)
            largest = int(used[np.argmax(often)])
        require_memory(9 * halo.slots + 9 * n, "the components of a part")
        largest_trees = self._processes.meet(largest)[:, 0].copy()
        in_largest = np.zeros(halo.words * WORD_BITS // 8, np.uint8)
        packed = np.packbits(root == largest, bitorder="little")
        in_largest[: len(packed)] = packed
        bits = in_largest.view(np.int64)
        halo.refresh_bits(bits)
        lead = int(halo.begins[0])
        trees = halo.slots - lead
        holder = np.full(trees + count, -1, root.dtype)
        found = np.where(halo.counts > 0, 0, 1)
        run_team(
            _join_by_ends, crossing, graph.rows.offsets, graph.rows.targets, halo.begins, bits,
            graph.directed, root, holder, found, threads=self._threads,
        )  # fmt: skip
        ends = np.flatnonzero(holder >= 0)
        slots = ends[ends < trees] + lead
        processes = ends[ends >= trees] - trees
        owners = np.concatenate([halo.owners(slots), processes])
        numbers = np.concatenate([halo.remote[slots], largest_trees[processes]])
        return root[holder[ends]].astype(np.int64), owners, numbers

    def join(self, roots: Array, owners: Array, numbers: Array) -> None:
        """Hang roots below each other until both sides of all given pairs have one root; all call it.

        :param roots: own side of each pair
        :param owners: the process that owns the other side
        :param numbers: of the other side, a vertex at its owner
        """
        graph = self._graph
        dtype = self.parent.dtype
        self.parent = np.arange(self._first, self._first + len(self.root), dtype=dtype)
        parent = self.parent
        ends = Questions(self._processes, owners, numbers.astype(np.int64))
        asked = self.root[ends.asked].astype(np.int64)
        these = np.unique(np.concatenate([roots, asked]))
        while True:
            self.rounds += 1
            grandparent = self._parents_of(parent[these])
            changes = int(np.count_nonzero(grandparent != parent[these]))
            parent[these] = np.minimum(parent[these], grandparent)
            own, other = parent[roots], ends.answers(parent[asked])
            differ = own != other
            above, below = np.minimum(own, other)[differ], np.maximum(own, other)[differ]
            changes += len(below)
            is_own = (below >= self._first) & (below < self._first + len(parent))
            hung = below[is_own] - self._first
            np.minimum.at(parent, hung, above[is_own])
            below, above = _least_above(below[~is_own], above[~is_own])
            owners = graph.owners(below)
            pairs = np.stack([below - graph.bounds[owners], above], axis=1).ravel()
            counts = 2 * np.bincount(owners, minlength=self._processes.count)
            received, _, given = self._processes.exchange(pairs, counts, changes)
            np.minimum.at(parent, received[::2], received[1::2])
            if not given.any():
                return
            these = np.unique(np.concatenate([these, hung, received[::2]]))

    def _parents_of(self, positions: Array) -> Array:
        """Return the parents of roots of any process."""
        graph = self._graph
        is_own = (positions >= self._first) & (positions < self._first + len(self.parent))
        parents = np.empty_like(positions)
        parents[is_own] = self.parent[positions[is_own] - self._first]
        used, which = np.unique(positions[~is_own], return_inverse=True)
        owners = graph.owners(used)
        questions = Questions(self._processes, owners, used - graph.bounds[owners])
        parents[~is_own] = questions.answers(self.parent[questions.asked])[which]
        return parents


def _least_above(below: Array, above: Array) -> tuple[Array, Array]:
    """Return pairs (root, smallest parent) of pairs (root, possible parent): each root once.

    :param below: roots, positions in the whole graph
    :param above: a possible parent of each
    """
    order = np.lexsort((above, below))
    below, above = below[order], above[order]
    first = np.full(len(below), True)
    first[1:] = below[1:] != below[:-1]
    return below[first], above[first]


def _inner_rows(rows: HaloRows) -> tuple[Rows, Array]:
    """Return the rows without arcs to other processes' vertices, and the vertices that have such arcs."""
    n = rows.vertex_count
    offsets = np.zeros(n + 1, np.int64)
    run_team(
        _keep_inner, rows.offsets, rows.targets, False, offsets, rows.targets[:0].copy(), threads=1
    )
    crossing = np.flatnonzero(offsets[1:] != np.diff(rows.offsets)).astype(rows.targets.dtype)
    np.cumsum(offsets, out=offsets)
    if not len(crossing):
        return Rows(rows.offsets, rows.targets, None), crossing
    require_memory(int(offsets[-1]) * rows.targets.itemsize, "the arcs between vertices of a part")
    targets = np.empty(int(offsets[-1]), rows.targets.dtype)
    run_team(_keep_inner, rows.offsets, rows.targets, True, offsets, targets, threads=1)
    return Rows(offsets, targets, None), crossing


@kernel
def _keep_inner(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, fill: bool, inner_offsets: Any,
    inner_targets: Any,
) -> None:  # fmt: skip
    """Count the targets of each row that are own vertices in ``inner_offsets[v + 1]``, or copy them."""
    n = offsets.size - 1
    for v in range(n):
        count = np.int64(0)
        for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
            target = targets[_at(arc)]
            if target < n:
                if fill:
                    inner_targets[_at(inner_offsets[_at(v)] + count)] = target
                count += 1
        if not fill:
            inner_offsets[_at(v + 1)] = count


@kernel
def _label(
    rank: int, size: int, control: Any, root: Any, parent: Any, first: int, label: Any, counts: Any
) -> None:
    """Write the label of each vertex, maybe in place of its root; count those that name a component."""
    begin, end = block_range(rank, size, root.size)
    count = np.int64(0)
    for v in range(begin, end):
        above = np.int64(root[_at(v)])
        found = first + above if parent.size == 0 else np.int64(parent[_at(above)])
        label[_at(v)] = found
        count += found == first + v
    counts[8 * rank] = count


@kernel
def _join_by_ends(
    rank: int, size: int, control: Any, crossing: Any, offsets: Any, targets: Any, begins: Any,
    in_largest: Any, directed: bool, root: Any, holder: Any, found: Any,
) -> None:  # fmt: skip
    """Join the trees of vertices whose crossing arcs have an end in common.

    :param in_largest: a bit for each own vertex and each slot: it is in its process' largest tree
    :param holder: gets a vertex of the joined trees for each end: slots, and then processes' largest trees
    :param found: for each process, 1 if there is nothing more to find: its largest tree is an end of this
        one's
    """
    n = offsets.size - 1
    lead = begins[0]
    trees = begins[begins.size - 1] - lead
    while True:
        first, last = next_range(control, _CHUNK, crossing.size)
        if first == last:
            break
        for i in range(first, last):
            v = crossing[_at(i)]
            is_largest = (in_largest[_at(v >> 6)] >> (v & 63)) & 1 != 0
            if is_largest and not directed:
                is_over = True
                for process in range(found.size):
                    is_over &= load_relaxed(found, process) != 0
                if is_over:
                    continue
            process = 0
            joined = -1  # the process whose largest tree is known to be an end of this vertex'
            for arc in range(offsets[_at(v)], offsets[_at(v) + _at(1)]):
                slot = np.int64(targets[_at(arc)])
                if slot < n:
                    continue
                while slot >= begins[_at(process + 1)]:  # targets ascend in the whole graph
                    process += 1
                held = slot - lead
                if (in_largest[_at(slot >> 6)] >> (slot & 63)) & 1 != 0:
                    if joined == process or (is_largest and load_relaxed(found, process) != 0):
                        continue
                    joined = process
                    held = trees + process
                    if is_largest:
                        store_relaxed(found, process, 1)
                elif is_largest and not directed:
                    continue
                if not compare_exchange(holder, held, holder.dtype.type(-1), v):
                    hook(root, v, load_relaxed(holder, held))
    if barrier(control, size):
        compress(rank, size, root, TO_THE_ROOT)
