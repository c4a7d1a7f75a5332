"""Who owns which vertex, and what that costs.

Encoding: ``owner[v]`` is the part that vertex v belongs to, and with it each of v's out-arcs. What
a partition costs is its *border*, not its cut: values travel per vertex, and several arcs from one
part to the same remote vertex send one (Pan, Wang, Wu, Yang, Owens: Multi-GPU graph analytics,
IPDPS 2017, section V; their |B_ij| is ``border[i, j]`` here).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from godwit.dtypes import Array, as_array, as_count, as_integer, frozen
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph
from godwit.graph.partition.methods import PARTITIONERS, Division, checked_owner
from godwit.graph.rows import row_range, thread_count_for
from godwit.runtime.cpu.atomics import fetch_or, load_acquire, load_relaxed
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, barrier, block_range, run_team

DEFAULT_METHOD = "contiguous"
"""What ``method=None`` means; :func:`partition` says why."""

_MASK_BITS = 64
_POLL_STEPS = 65_536  # vertices between two looks at the abort word


class Measures(NamedTuple):
    """What a partition costs.

    :param cut_arcs: arcs whose ends are owned by different parts
    :param border: (k, k) int64; see :attr:`Partition.border`
    :param vertices: (k) int64 owned vertices
    :param arcs: (k) int64 out-arcs of the owned vertices
    """

    cut_arcs: int
    border: Array
    vertices: Array
    arcs: Array


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """A graph's vertices divided among parts. Made by :func:`partition`, which checks.

    :param graph: the graph that is divided
    :param owner: (n) int32, read-only: the part of each vertex, in [0, part_count)
    :param part_count: the number of parts, k; a user's own partition may leave some empty
    :param method: the partitioner that was used; a user's own is ``"array"`` or the
        name of the function
    :param note: what a user should know of it, such as why it is not the method that was asked for
    """

    graph: Graph
    owner: Array
    part_count: int
    method: str
    note: str = ""

    @property
    def cut_arcs(self) -> int:
        """Arcs (not edges) whose two ends are owned by different parts."""
        return self.measures.cut_arcs

    @property
    def cut_fraction(self) -> float:
        """Cut arcs as a fraction of all arcs; 0 where there are none."""
        return self.cut_arcs / max(self.graph.arc_count, 1)

    @property
    def border(self) -> Array:
        """(k, k) int64: ``border[i, j]`` distinct vertices of part j are reached by arcs of part i.

        The diagonal is zero. Row i sums to the number of part i's halo vertices.
        """
        return self.measures.border

    @property
    def border_vertices(self) -> int:
        """The sum of :attr:`border`: all halo vertices."""
        return int(self.border.sum())

    @property
    def vertices_per_part(self) -> Array:
        """(k) int64: owned vertices."""
        return self.measures.vertices

    @property
    def arcs_per_part(self) -> Array:
        """(k) int64: out-arcs of the owned vertices."""
        return self.measures.arcs

    @property
    def balance(self) -> float:
        """Most arcs of any part, divided by the mean: 1.0 is perfect, and k is all in one."""
        arcs = self.arcs_per_part
        return float(arcs.max() * self.part_count / arcs.sum()) if arcs.any() else 1.0

    @cached_property
    def boundaries(self) -> Array | None:
        """(k + 1) int64 where each part i owns a range, from ``boundaries[i]`` on; else None.

        Found in the owners, so known of any partition, whatever made it.
        """
        if (self.owner[1:] < self.owner[:-1]).any():
            return None
        starts = np.searchsorted(self.owner, np.arange(self.part_count + 1, dtype=np.int32))
        return frozen(starts.astype(np.int64))

    @cached_property
    def measures(self) -> Measures:
        """All of the above at once: one parallel pass over the arcs, made once, on demand."""
        return _measure(self.graph, self.owner, self.part_count)

    def supply(self, measures: Measures) -> None:
        """Spare the pass: ``build_layout`` comes upon the same numbers on its way."""
        self.__dict__.setdefault("measures", measures)

    def __repr__(self) -> str:
        note = f", {self.note}" if self.note else ""
        return (
            f"<Partition: {len(self.owner):,} vertices in {self.part_count} parts, "
            f"{self.method}{note}>"
        )


def partition(graph: Graph, parts: int, method: Any = None, *, seed: int = 0) -> Partition:
    """Divide the vertices of a graph among ``parts`` parts.

    :param parts: how many; at least 1. Of more than n, the built-in methods leave those from n on empty
    :param method: how, one of

        - ``"contiguous"``: ranges of vertices, balanced by arcs
        - ``"random"``: a shuffle; numbers of vertices differ by at most one
        - ``"biased-random"``: random, biased towards the part that owns more of a vertex'
          neighbours (Gunrock, section V-C), balanced by arcs
        - ``"metis"``: METIS (multilevel k-way, least communication volume, balanced by arcs). About a
          second per two million arcs; in a child process beyond that many, so that Ctrl-C works.
          Where pymetis is absent or fails, or leaves a part
          empty, the result is ``contiguous`` and its ``note`` says why
        - (n) integers in [0, parts): the owners themselves
        - a function ``(graph, parts) -> owners``
        - a :class:`Partition` of as many vertices into as many parts
        - None: ``contiguous``, see below
    :param seed: any integer; the same seed gives the same owners
    :raises InputError: if ``parts`` or ``method`` is wrong, naming the first wrong owner

    The default is ``contiguous``: it takes no time, placing it moves nothing (ranges share the
    graph's weights), and it keeps the locality that files of real graphs have. On a road network
    METIS' border is smaller still, but the contiguous one is small already; where there is no
    locality to keep, METIS' is 20 to 50 % smaller, for half a second and more. Four parts, two
    cores; milliseconds to divide the graph, and to lay it out (``graph.layout.build_layout``):

    ======================  =============  ======  =========  =======  ========
    graph                   method         cut        border  balance  ms
    ======================  =============  ======  =========  =======  ========
    USA-road-d.NY           contiguous     0.0083      4,987  1.02     0.6 + 3
                            random         0.7490    418,938  1.00     4 + 15
                            biased-random  0.5515    325,868  1.00     22 + 15
                            metis          0.0003        200  1.02     113 + 10
    grid 1000x1000, 60 %    contiguous     0.0015      3,656  1.00     0.2 + 5
                            random         0.7501  1,432,353  1.00     15 + 49
                            biased-random  0.5375  1,081,754  1.00     182 + 48
                            metis          0.0003        672  1.00     498 + 45
    R-MAT, scale 16         contiguous     0.7497    100,677  1.01     0.1 + 7
                            random         0.7497    100,722  1.08     1 + 15
                            biased-random  0.7349     96,223  1.01     13 + 15
                            metis          0.6796     78,510  1.04     797 + 18
    soc-Slashdot0902, sym.  contiguous     0.6586    134,645  1.06     0.1 + 8
                            random         0.6967    141,220  1.01     1 + 12
                            biased-random  0.6552    128,241  1.01     11 + 13
                            metis          0.4427     72,887  1.03     495 + 11
    ======================  =============  ======  =========  =======  ========
    """
    parts = _checked_parts(graph, parts)
    seed = as_integer(seed, "seed") % 2**64
    if method is None:
        method = DEFAULT_METHOD
    if isinstance(method, Partition):
        return _rebound(graph, parts, method)
    if isinstance(method, str):
        partitioner = PARTITIONERS.get(method)
        if partitioner is None:
            names = ", ".join(PARTITIONERS)
            raise InputError(
                f"partition must be one of {names}, "
                f"an array of owners or a function, got {shown(method)}"
            )
        division = Division(np.zeros(graph.vertex_count, np.int32), method)
        filled = min(parts, graph.vertex_count)
        if filled > 1:
            division = partitioner(graph, filled, seed)
    elif callable(method) and not isinstance(method, type):
        name = getattr(method, "__name__", type(method).__name__)
        owner = checked_owner(graph, parts, method(graph, parts), f"the result of {name}")
        division = Division(owner, name)
    else:
        division = Division(checked_owner(graph, parts, method, "partition"), "array")
    return Partition(graph, frozen(division.owner), parts, division.method, division.note)


def _checked_parts(graph: Any, parts: Any) -> int:
    if not isinstance(graph, Graph):
        raise not_a_graph(graph)
    return as_count(parts, "parts", 1, 2**31 - 1)


def _rebound(graph: Graph, parts: int, given: Partition) -> Partition:
    """The same owners for this graph; the very object, measures and all, if it is its graph."""
    if not isinstance(given.part_count, int) or given.part_count != parts:
        raise InputError(
            f"the partition has {shown(given.part_count)} parts, and {parts} are needed"
        )
    held = as_array(given.owner, "the owners of the partition")
    if held.shape != (graph.vertex_count,):
        count = f"{len(held)} vertices" if held.ndim == 1 else f"shape {held.shape}"
        raise InputError(f"the partition is of {count}, and the graph has {graph.vertex_count}")
    owner = checked_owner(graph, parts, held, "the partition")  # one may be made by hand
    if isinstance(given.owner, np.ndarray) and given.owner.dtype == owner.dtype:
        if given.graph is graph:
            return given
        owner = given.owner
    return Partition(graph, owner, parts, given.method, given.note)


@kernel
def _count_borders(
    rank: int,
    size: int,
    control: Any,
    offsets: Any,
    targets: Any,
    owner: Any,
    first: int,
    reached_by: Any,
    cut_arcs: Any,
    vertices: Any,
    arcs: Any,
    border: Any,
) -> None:
    """Counts of this thread, in row ``rank`` of each array, borders for 64 parts from ``first``.

    ``reached_by`` is (n) int64 zeros: bit i of ``reached_by[v]`` says that part ``first + i`` has
    an arc to v and does not own it.
    """
    begin, end = row_range(rank, size, offsets)
    rows = border.shape[1]
    cut = 0
    for v in range(begin, end):
        if v % _POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        part = owner[v]
        vertices[rank, part] += 1
        arcs[rank, part] += offsets[v + 1] - offsets[v]
        shift = np.int64(part) - first
        wanted = 0 <= shift < rows
        bit = np.int64(1) << (shift & (_MASK_BITS - 1))
        for i in range(offsets[v], offsets[v + 1]):
            target = targets[i]
            if owner[target] != part:
                cut += 1
                if wanted and load_relaxed(reached_by, target) & bit == 0:
                    fetch_or(reached_by, target, bit)
    cut_arcs[rank] = cut
    if not barrier(control, size):
        return
    begin, end = block_range(rank, size, owner.size)
    for v in range(begin, end):
        bits = reached_by[v]
        if bits != 0:
            part = owner[v]
            for i in range(rows):
                border[rank, i, part] += (bits >> i) & 1


def _measure(graph: Graph, owner: Array, parts: int) -> Measures:
    """All measures, by one pass over the arcs for every 64 parts."""
    threads = thread_count_for(graph.arc_count)
    border = np.zeros((parts, parts), np.int64)
    cut = np.zeros(threads, np.int64)
    vertices = arcs = np.zeros((threads, parts), np.int64)
    for first in range(0, parts, _MASK_BITS):
        rows = min(_MASK_BITS, parts - first)
        counts = np.zeros((threads, rows, parts), np.int64)
        vertices, arcs = np.zeros((2, threads, parts), np.int64)
        run_team(
            _count_borders,
            graph.offsets,
            graph.targets,
            owner,
            first,
            np.zeros(graph.vertex_count, np.int64),
            cut,
            vertices,
            arcs,
            counts,
            threads=threads,
        )
        border[first : first + rows] = counts.sum(axis=0)
    totals = (frozen(border), frozen(vertices.sum(axis=0)), frozen(arcs.sum(axis=0)))
    return Measures(int(cut.sum()), *totals)
