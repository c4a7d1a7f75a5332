"""A forest that takes edges in, in host memory: the CPU counterpart of stream_cuda.py.

Links are those of :mod:`godwit.graph.union_find`. Most edges of a stream find both ends below one parent,
where trees are flat; as on GPUs (stream.cuh), edges that do not are counted, and trees are flattened when
these have cost about as much as that will.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.components.forests import Fault, Linking
from godwit.dtypes import Array
from godwit.graph.union_find import TO_THE_ROOT, compress, hook, splice
from godwit.runtime.cpu.atomics import fetch_add, load_acquire, load_relaxed, store_relaxed
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, barrier, block_range, new_control, run_team
from godwit.runtime.memory import Space

WALKS_A_VERTEX = 0.25
"""Edges that had to walk up trees, a vertex, after which these are flattened."""

_POLL_EDGES = 1 << 16
SMALL_EDGES = 1 << 15  # so many are linked before a team has been woken

_WALKS, _FAULT_ROW = 0, 8  # words of a forest's control, on cache lines of their own
_NO_FAULT = np.iinfo(np.int64).max


@kernel
def _begin(rank: int, size: int, control: Any, parent: Any) -> None:
    """Every vertex is a root."""
    begin, end = block_range(rank, size, parent.size)
    for v in range(begin, end):
        parent[v] = v


def _hook_root_plainly(parent: Any, u: Any, v: Any) -> None:
    """As ``hook_plainly`` of graph/union_find.py, but what earlier segments have joined is not undone.

    Only roots change: what is written to is what was seen to be one, not what stands above u or v by then.
    """
    above_u = load_relaxed(parent, u)
    above_v = load_relaxed(parent, v)
    high = max(above_u, above_v)
    if above_u != above_v and load_relaxed(parent, high) == high:
        store_relaxed(parent, high, min(above_u, above_v))


@kernel
def _link(
    rank: int,
    size: int,
    control: Any,
    ends: Any,
    splices: bool,
    rounds: int,
    jumps: int,
    parent: Any,
    words: Any,
) -> None:
    """Join the ends of edges: ``ends[2 i]`` and ``ends[2 i + 1]``; those that are no vertices are noted."""
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
    """Join every vertex from ``first`` on with its parent elsewhere."""
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
    """Point every vertex at its root."""
    compress(rank, size, parent, TO_THE_ROOT)


class HostForest:
    """Trees of all vertices in host memory.

    :param threads: that link at once
    :raises InputError: the limit of the memory does not leave so much
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
        self._run(_begin, self.parents, items=linking.vertices)

    def _run(self, function: Any, *arguments: Any, items: int) -> None:
        if self._threads == 1 or items < SMALL_EDGES:
            function(0, 1, new_control(), *arguments)
        else:
            run_team(function, *arguments, threads=self._threads)

    def link(self, edges: Array, chunk: int, row: int) -> None:
        """Join the ends of edges; done when it returns."""
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
        if words[_WALKS] > WALKS_A_VERTEX * linking.vertices:
            self.flatten()

    def absorb(self, parents: Array, first: int) -> None:
        """Join what another forest has joined; done when it returns."""
        theirs = _readable(parents)
        self._run(_absorb, first, theirs, self._linking.splices, self.parents, items=len(theirs))

    def flatten(self) -> None:
        """Point every vertex at its root; done when it returns."""
        self._run(_flatten, self.parents, items=self._linking.vertices)
        self._words[_WALKS] = 0

    def fault(self) -> Fault | None:
        """An edge that was found to be none."""
        return self._fault

    def close(self) -> None:
        """Give the memory back."""
        self.parents = None
        self._block.free()


def _flat(edges: Array) -> Array:
    """(2 m) ends; what is huge in 64 bits becomes negative, which is as wrong."""
    ends = edges.reshape(-1)
    return _readable(ends.view(np.int64) if ends.dtype == np.uint64 else ends)


def _readable(array: Array) -> Array:
    """A read-only view, for which alone kernels are compiled."""
    view = array.view()
    view.flags.writeable = False
    return view


def compile_kernels(linking: Linking, dtype: np.dtype[Any]) -> None:
    """Compile, or load, what a forest needs for edges of a dtype."""
    parents = np.zeros(1, linking.id_dtype)
    words = np.zeros(16, np.int64)
    head = 0, 1, new_control()
    ends = _flat(np.zeros((0, 2), dtype))
    _begin.prepare(*head, parents)
    _link.prepare(*head, ends, True, 0, 0, parents, words)
    _absorb.prepare(*head, 0, _readable(parents), True, parents)
    _flatten.prepare(*head, parents)
