"""Connected components on several processes: union-find in each, then trees across them.

First every process joins its vertices along arcs between them (:mod:`godwit.graph.union_find`); what is
left are its *roots*, and arcs that cross between processes. Roots are then hung below each other:

- ``parent`` of a root is a root of any process, never one with a larger position, at first itself;
- in a round, every root learns its grandparent, and both ends of each crossing arc compare theirs: the
  larger one is hung below the smaller, and every root below its grandparent (Zhang, Azad, Hu: FastSV: a
  distributed- memory connected component algorithm with fast convergence, PP 2020);
- the end is a round without a change. Then all roots of a component are hung below one, its smallest
  vertex.

Most crossing arcs are never looked at, as in Afforest: in an undirected graph an arc that joins two trees
is in a row of either. Each process leaves out the rows of its largest tree, but for a sample; if that has
not joined the largest trees of all processes, the rows of those that are apart follow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.distributed.exchange import Questions
from godwit.distributed.graph import DistributedGraph
from godwit.distributed.halo import HaloRows
from godwit.distributed.result import DistributedResult
from godwit.dtypes import Array, id_dtype_for
from godwit.graph.interchange.tables import Column
from godwit.graph.rows import Rows, require_memory
from godwit.graph.union_find import weak_components
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import run_team
from godwit.runtime.statistics import RunStatistics
from godwit.worker.options import query_options
from godwit.worker.solve import make_poll

_SAMPLES = 256
"""Vertices of a process' largest tree whose first crossing arc is looked at."""

_at: Any = np.uint64


class DistributedComponentsResult(DistributedResult):
    """Components of the own vertices of a process, each named by its smallest vertex.

    :ivar count: number of components of the whole graph
    """

    value_name = "component"

    def __init__(
        self, graph: DistributedGraph, label: Array, names: Array | None, count: int,
        statistics: RunStatistics,
    ) -> None:  # fmt: skip
        super().__init__(graph, label, statistics)
        self._names = names
        self._first_id = graph.first_id
        self.count = count

    @property
    def label(self) -> Array:
        """Position in the whole graph of the smallest vertex of each vertex' component."""
        return self._values

    @property
    def columns(self) -> list[Column]:
        """The id of each component's smallest vertex."""
        if self._processes is None:
            return [Column(self.value_name, self._values, ids=True)]
        names = self._values + self._first_id if self._names is None else self._names
        return [Column(self.value_name, names)]


@public
def connected_components(
    graph: DistributedGraph,
    *,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
) -> DistributedComponentsResult:
    """Return the components of the own vertices; see :func:`godwit.connected_components`."""
    options = query_options(timeout_s=timeout_s, progress=progress)
    processes = graph.processes
    with processes.running("connected_components", graph.vertex_count):
        statistics = RunStatistics(("cpu",), "afforest")
        with statistics.phase("place"):
            inner = graph.cached("inner rows", lambda: _inner_rows(graph.rows))
        with statistics.phase("run"):
            trees = _Trees(graph)
            trees.join_own(inner, make_poll(options))
            if graph.crosses and graph.directed:
                trees.join(*trees.crossing(np.full(len(trees.root), True)))
            elif graph.crosses:
                trees.join_sampled()
            label = trees.labels()
        own = graph.vertices
        roots = int(np.count_nonzero(label == np.arange(own.start, own.stop)))
        count = int(processes.meet(roots).sum())
        names = None if graph.is_range else graph.ids_of(label)
        statistics.processed_items = np.array([len(label)], np.int64)
        statistics.rounds = np.array([trees.rounds], np.int64)
        processes.report(statistics)
        return DistributedComponentsResult(graph, label, names, count, statistics)


class _Trees:
    """The part that one process has in the forest.

    :ivar root: root of each own vertex, in this process
    :ivar parent: parent of each root, as a position in the whole graph
    :ivar rounds: number of rounds so far
    """

    def __init__(self, graph: DistributedGraph) -> None:
        self._graph = graph
        self._processes = graph.processes
        self._first = graph.vertices.start
        self.root = np.empty(0, np.int64)
        self.parent = np.empty(0, np.int64)
        self.rounds = 0

    def join_own(self, inner: Rows, poll: Any) -> None:
        """Join own vertices along the arcs between them."""
        self.root = weak_components(inner, self._graph.directed, poll=poll)
        require_memory(9 * len(self.root), "the components of a part")
        dtype = id_dtype_for(self._graph.vertex_count)
        self.parent = np.arange(self._first, self._first + len(self.root), dtype=dtype)

    def labels(self) -> Array:
        """Return the root of each own vertex in the whole graph, as a position."""
        return self.parent[self.root]

    def crossing(self, chosen: Array) -> tuple[Array, Array]:
        """Return own root and slot of the crossing arcs in the rows of some vertices.

        :param chosen: bool, for each own vertex
        """
        rows = self._graph.rows
        count = np.zeros(1, np.int64)
        roots = slots = np.empty(0, np.int64)
        for _ in range(2):  # to count them, then to list them
            run_team(
                _list_crossing, rows.offsets, rows.targets, chosen, self.root, roots, slots, count,
                threads=1, brief=True,
            )  # fmt: skip
            require_memory(16 * int(count[0]), "the arcs that cross between processes")
            if not len(roots):
                roots, slots = np.empty(count[0], np.int64), np.empty(count[0], np.int64)
        if len(roots) <= rows.halo.slots:
            return roots, slots
        pairs = np.unique(roots * rows.halo.slots + slots)
        return pairs // rows.halo.slots, pairs % rows.halo.slots

    def join_sampled(self) -> None:
        """Join the trees of an undirected graph; few rows of the largest ones are looked at."""
        rows = self._graph.rows
        n = len(self.root)
        largest = -1
        if n:
            used, often = np.unique(self.root[:: max(1, n // _SAMPLES)], return_counts=True)
            largest = int(used[np.argmax(often)])
        is_largest = self.root == largest
        roots, slots = self.crossing(~is_largest)
        crosses = np.empty(min(n, _SAMPLES), np.int64)
        found = np.zeros(1, np.int64)
        run_team(
            _sample_crossing,
            rows.offsets,
            rows.targets,
            is_largest,
            crosses,
            found,
            threads=1,
            brief=True,
        )
        sampled = crosses[: found[0]]
        self.join(
            np.concatenate([roots, np.full(len(sampled), largest)]),
            np.concatenate([slots, sampled]),
        )
        # Which tree is largest does not change the result: every other one has all its arcs joined.
        label = int(self.parent[largest]) if n else -1
        weight = np.count_nonzero(is_largest)
        given = self._processes.meet(label, int(weight))
        heaviest = int(given[np.argmax(given[:, 1]), 0])
        apart = (given[:, 0] != heaviest) & (given[:, 1] > 0)
        if apart.any():
            self.join(*self.crossing(is_largest & bool(apart[self._processes.rank])))

    def join(self, roots: Array, slots: Array) -> None:
        """Hang roots below each other until the ends of all given arcs have one root; all call it.

        :param roots: own end of each crossing arc, as a root
        :param slots: the other end, a slot of the halo
        """
        graph, halo, parent = self._graph, self._graph.rows.halo, self.parent
        occurs = np.zeros(halo.slots, np.bool_)
        occurs[slots] = True
        used = np.flatnonzero(occurs)
        which = (np.cumsum(occurs) - 1)[slots]
        ends = Questions(self._processes, halo.owners(used), halo.remote[used].astype(np.int64))
        asked = self.root[ends.asked]
        active = np.full(len(parent), False)
        active[roots] = True
        active[asked] = True
        while True:
            self.rounds += 1
            these = np.flatnonzero(active)
            grandparent = self._parents_of(parent[these])
            changes = int(np.count_nonzero(grandparent != parent[these]))
            parent[these] = np.minimum(parent[these], grandparent)
            own, other = parent[roots], ends.answers(parent[asked])[which]
            differ = own != other
            above, below = np.minimum(own, other)[differ], np.maximum(own, other)[differ]
            changes += len(below)
            is_own = (below >= self._first) & (below < self._first + len(parent))
            self._hang(below[is_own] - self._first, above[is_own], active)
            below, above = _least_above(below[~is_own], above[~is_own])
            owners = graph.owners(below)
            pairs = np.stack([below - graph.bounds[owners], above], axis=1).ravel()
            counts = 2 * np.bincount(owners, minlength=self._processes.count)
            received, _, given = self._processes.exchange(pairs, counts, changes)
            self._hang(received[::2], received[1::2], active)
            if not given.any():
                return

    def _hang(self, roots: Array, above: Array, active: Array) -> None:
        """Hang own roots below others, where these are smaller than their parents."""
        np.minimum.at(self.parent, roots, above)
        active[roots] = True

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
    """Return what is to be hung, each once and below the least of what was found for it."""
    order = np.lexsort((above, below))
    below, above = below[order], above[order]
    first = np.full(len(below), True)
    first[1:] = below[1:] != below[:-1]
    return below[first], above[first]


def _inner_rows(rows: HaloRows) -> Rows:
    """Return the rows without arcs to other processes' vertices."""
    n = rows.vertex_count
    offsets = np.zeros(n + 1, np.int64)
    run_team(
        _keep_inner, rows.offsets, rows.targets, False, offsets, rows.targets[:0].copy(), threads=1
    )
    np.cumsum(offsets, out=offsets)
    if offsets[-1] == len(rows.targets):
        return Rows(rows.offsets, rows.targets, None)
    require_memory(int(offsets[-1]) * rows.targets.itemsize, "the arcs between vertices of a part")
    targets = np.empty(int(offsets[-1]), rows.targets.dtype)
    run_team(_keep_inner, rows.offsets, rows.targets, True, offsets, targets, threads=1)
    return Rows(offsets, targets, None)


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
def _list_crossing(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, chosen: Any, root: Any,
    roots: Any, slots: Any, counts: Any,
) -> None:  # fmt: skip
    """Count the arcs of some rows that lead to other processes' vertices; list them if there is room."""
    n = offsets.size - 1
    count = 0
    for v in range(n):
        if not chosen[_at(v)]:
            continue
        # Targets ascend in the whole graph: those of this process are together.
        begin = offsets[_at(v)]
        end = offsets[_at(v + 1)]
        while begin < end:
            target = targets[_at(begin)]
            if target >= n:
                begin += 1
            else:
                target = targets[_at(end - 1)]
                if target < n:
                    break
                end -= 1
            if count < roots.size:
                roots[_at(count)] = root[_at(v)]
                slots[_at(count)] = target
            count += 1
    counts[0] = count


@kernel
def _sample_crossing(
    rank: int,
    size: int,
    control: Any,
    offsets: Any,
    targets: Any,
    chosen: Any,
    slots: Any,
    counts: Any,
) -> None:
    """List a crossing arc of some of the chosen vertices, from all parts of their range."""
    n = offsets.size - 1
    count = 0
    for sample in range(slots.size):
        for v in range(n * sample // slots.size, n * (sample + 1) // slots.size):
            if not chosen[_at(v)] or offsets[_at(v)] == offsets[_at(v + 1)]:
                continue
            # At an end of a row, as targets ascend in the whole graph.
            target = max(targets[_at(offsets[_at(v)])], targets[_at(offsets[_at(v + 1)] - 1)])
            if target >= n:
                slots[_at(count)] = target
                count += 1
                break
    counts[0] = count
