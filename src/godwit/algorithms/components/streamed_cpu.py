"""Forest of all vertices that takes edges in, as an interface, and its implementation for host memory.

Invariant: ``parents[v] <= v``, and edges that were linked stay linked. So a forest may be sent to another
endpoint, which links every vertex with its parent there, and at the end the root of a component is its
smallest vertex.

Links are those of :mod:`godwit.graph.union_find`. Most edges of a stream have both ends below one parent
where trees are flat. As on GPUs (streamed.cuh), edges that do not (*walks*) are counted, and trees are
flattened when walks have cost about as much as flattening does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from godwit.dtypes import Array
from godwit.graph.union_find import TO_THE_ROOT, compress, hook, splice
from godwit.runtime.cpu.atomics import fetch_add, load_acquire, load_relaxed, store_relaxed
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, barrier, block_range, new_control, run_team
from godwit.runtime.memory import Space

WALKS_PER_VERTEX = 0.25
"""Walks per vertex after which trees are flattened."""
SMALL_EDGES = 1 << 15
"""Edges that one thread links before a team would have been woken."""

_POLL_EDGES = 1 << 16
_WALKS, _FAULT_ROW = 0, 8  # words of a forest's control, on cache lines of their own
_NO_FAULT = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Linking:
    """Options of linking edges in a forest.

    :param vertices: number of vertices of the forest
    :param id_dtype: dtype of its parents
    :param splices: True for Rem's algorithm, False for hooks of roots
    :param rounds: rounds of hooking without atomics over each segment, before it is linked
    :param jumps: steps that a vertex moves up its tree after each of these; None: up to the root
    """

    vertices: int
    id_dtype: np.dtype[Any]
    splices: bool
    rounds: int = 0
    jumps: int | None = None


@dataclass(frozen=True)
class Fault:
    """An edge whose ends are not both vertices, with its row and chunk of the user's edges."""

    chunk: int
    row: int
    source: int
    target: int


class Forest(Protocol):
    """Trees of all vertices in one endpoint's memory.

    On a GPU all methods but :meth:`fault` enqueue work in the endpoint's stream; on the host the work is
    done when they return.

    :ivar parents: (n) array in the endpoint's memory
    """

    parents: Any

    def link(self, edges: Any, chunk: int, row: int) -> None:
        """Join the ends of edges, an array of shape (m, 2) in this memory.

        :param chunk: chunk of the user's edges, for faults
        :param row: its first row there
        """

    def absorb(self, parents: Any, first: int) -> None:
        """Join vertex ``first + i`` with ``parents[i]``, its parent in another union-find forest."""

    def flatten(self) -> None:
        """Point every vertex at its root."""

    def fault(self) -> Fault | None:
        """Return an edge, of those processed so far, whose ends are not vertices."""

    def close(self) -> None:
        """Wait for pending work, and free the memory. A second call has no effect."""


@kernel
def _make_roots(rank: int, size: int, control: Any, parent: Any) -> None:
    begin, end = block_range(rank, size, parent.size)
    for v in range(begin, end):
        parent[v] = v


def _hook_root_plainly(parent: Any, u: Any, v: Any) -> None:
    """Hook without atomics, as ``hook_plainly`` of graph/union_find.py, but write to roots only.

    So no join of an earlier segment is undone.
    """
    above_u = load_relaxed(parent, u)
    above_v = load_relaxed(parent, v)
    high = max(above_u, above_v)
    if above_u != above_v and load_relaxed(parent, high) == high:
        store_relaxed(parent, high, min(above_u, above_v))


@kernel
def _link(
    rank: int, size: int, control: Any, ends: Any, splices: bool, rounds: int, jumps: int,
    parent: Any, words: Any,
) -> None:  # fmt: skip
    """Join ``ends[2 i]`` and ``ends[2 i + 1]``; note a row whose ends are not vertices."""
    begin, end = block_range(rank, size, ends.size // 2)
    walks = 0
    n = parent.size
    for turn in range(rounds + 1):
        for i in range(begin, end):
            if i % _POLL_EDGES == 0 and load_acquire(control, ABORT) != 0:
                return
            source = np.int64(ends[2 * i])
            target = np.int64(ends[2 * i + 1])
            if source < 0 or source >= n or target < 0 or target >= n:
                if i < load_relaxed(words, _FAULT_ROW):
                    store_relaxed(words, _FAULT_ROW, i)  # of several threads any one
                continue
            u = parent.dtype.type(source)
            v = parent.dtype.type(target)
            if load_relaxed(parent, u) == load_relaxed(parent, v):
                continue
            if turn < rounds:
                _hook_root_plainly(parent, u, v)
                continue
            walks += 1
            if splices:
                splice(parent, u, v)
            else:
                hook(parent, u, v)
        if turn < rounds:
            if not barrier(control, size):
                return
            if jumps > 0:
                compress(rank, size, parent, jumps)
                if not barrier(control, size):
                    return
    fetch_add(words, _WALKS, walks)


@kernel
def _absorb(
    rank: int, size: int, control: Any, first: int, theirs: Any, splices: bool, parent: Any
) -> None:
    """Join every vertex from ``first`` on with its parent in another forest."""
    begin, end = block_range(rank, size, theirs.size)
    for i in range(begin, end):
        u = parent.dtype.type(first + i)
        v = theirs[i]
        if u == v or load_relaxed(parent, u) == load_relaxed(parent, v):
            continue
        if splices:
            splice(parent, u, v)
        else:
            hook(parent, u, v)


@kernel
def _flatten(rank: int, size: int, control: Any, parent: Any) -> None:
    compress(rank, size, parent, TO_THE_ROOT)


class HostForest:
    """:class:`Forest` in host memory.

    :param threads: number of threads that link
    :raises InputError: the limit of the memory is too low
    """

    def __init__(self, space: Space, linking: Linking, threads: int) -> None:
        self._linking = linking
        self._threads = threads
        dtype = linking.id_dtype
        self._block = space.allocate(max(1, linking.vertices) * dtype.itemsize)
        self.parents: Any = self._block.view(dtype, (linking.vertices,))
        self._words = np.zeros(16, np.int64)
        self._words[_FAULT_ROW] = _NO_FAULT
        self._fault: Fault | None = None
        self._run(_make_roots, self.parents, items=linking.vertices)

    @staticmethod
    def compile(linking: Linking, dtype: np.dtype[Any]) -> None:
        """Compile, or load, the code for edges of a dtype."""
        parents = np.zeros(1, linking.id_dtype)
        words = np.zeros(16, np.int64)
        head = 0, 1, new_control()
        ends = _flat(np.zeros((0, 2), dtype))
        _make_roots.prepare(*head, parents)
        _link.prepare(*head, ends, True, 0, 0, parents, words)
        _absorb.prepare(*head, 0, _read_only(parents), True, parents)
        _flatten.prepare(*head, parents)

    def _run(self, function: Any, *arguments: Any, items: int) -> None:
        if self._threads == 1 or items < SMALL_EDGES:
            function(0, 1, new_control(), *arguments)
        else:
            run_team(function, *arguments, threads=self._threads)

    def link(self, edges: Array, chunk: int, row: int) -> None:
        """Join the ends of edges."""
        linking, words = self._linking, self._words
        jumps = TO_THE_ROOT if linking.jumps is None else linking.jumps
        settings = linking.splices, linking.rounds, jumps
        self._run(_link, _flat(edges), *settings, self.parents, words, items=len(edges))
        if words[_FAULT_ROW] != _NO_FAULT:
            if self._fault is None:
                place = int(words[_FAULT_ROW])
                source, target = edges[place].tolist()
                self._fault = Fault(chunk, row + place, source, target)
            words[_FAULT_ROW] = _NO_FAULT
        if words[_WALKS] > WALKS_PER_VERTEX * linking.vertices:
            self.flatten()

    def absorb(self, parents: Array, first: int) -> None:
        """Join vertex ``first + i`` with ``parents[i]``, its parent in another union-find forest."""
        theirs = _read_only(parents)
        self._run(_absorb, first, theirs, self._linking.splices, self.parents, items=len(theirs))

    def flatten(self) -> None:
        """Point every vertex at its root."""
        self._run(_flatten, self.parents, items=self._linking.vertices)
        self._words[_WALKS] = 0

    def fault(self) -> Fault | None:
        """Return an edge whose ends are not vertices."""
        return self._fault

    def close(self) -> None:
        """Free the memory."""
        self.parents = None
        self._block.free()


def _flat(edges: Array) -> Array:
    """Return the (2 m) ends; ids beyond int64 become negative, which is as wrong."""
    ends = edges.reshape(-1)
    return _read_only(ends.view(np.int64) if ends.dtype == np.uint64 else ends)


def _read_only(array: Array) -> Array:
    """Return a read-only view: kernels are compiled for those alone."""
    view = array.view()
    view.flags.writeable = False
    return view
