"""Partitions: the owner of each vertex, and the costs of the division.

Encoding: ``owner[v]`` is the part that vertex v belongs to, and with it each of v's out-arcs. The cost
of a partition is its *border*, not its cut: values are sent per vertex, and several arcs from one
part to the same remote vertex send one value (Pan, Wang, Wu, Yang, Owens: Multi-GPU graph analytics,
IPDPS 2017, section V; their |B_ij| is ``border[i, j]`` here).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from godwit.dtypes import Array, as_array, as_count, as_integer, frozen
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph
from godwit.graph.partition.halo import Measures, measure
from godwit.graph.partition.methods import PARTITIONERS, Division, checked_owner
from godwit.public import public

DEFAULT_METHOD = "contiguous"
"""The method that ``method=None`` stands for; :func:`partition` says why."""


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """The vertices of a graph divided among parts. Made by :func:`partition`, which checks.

    :param graph: the graph that is divided
    :param owner: (n) int32, read-only: the part of each vertex, in [0, part_count)
    :param part_count: the number of parts, k; owners that a user gives may leave some parts empty
    :param method: the name of the partitioner; ``"array"`` or the name of a function for a user's
    :param note: a remark for the user, such as why another method was used
    """

    graph: Graph
    owner: Array
    part_count: int
    method: str
    note: str = ""

    @property
    def cut_arcs(self) -> int:
        """Arcs (not edges) whose two endpoints are owned by different parts."""
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
        """The most arcs of any part, divided by the mean: 1.0 is perfect; k means that one part has all."""
        arcs = self.arcs_per_part
        return float(arcs.max() * self.part_count / arcs.sum()) if arcs.any() else 1.0

    @cached_property
    def boundaries(self) -> Array | None:
        """(k + 1) int64 if each part owns a range of vertices, from ``boundaries[i]`` on; else None."""
        if (self.owner[1:] < self.owner[:-1]).any():
            return None
        starts = np.searchsorted(self.owner, np.arange(self.part_count + 1, dtype=np.int32))
        return frozen(starts.astype(np.int64))

    @cached_property
    def measures(self) -> Measures:
        """Cut arcs, border, vertices and arcs, measured on first use."""
        return measure(self.graph.rows, self.owner, self.boundaries, self.part_count)

    def __repr__(self) -> str:
        note = f", {self.note}" if self.note else ""
        return (
            f"<Partition: {len(self.owner):,} vertices in {self.part_count} parts, "
            f"{self.method}{note}>"
        )


@public
def partition(graph: Graph, parts: int, method: Any = None, *, seed: int = 0) -> Partition:
    """Divide the vertices of a graph among ``parts`` parts.

    :param parts: the number of parts, at least 1; built-in methods leave parts from n on empty
    :param method: one of

        - ``"contiguous"``: ranges of vertices, balanced by arcs
        - ``"random"``: a shuffle; numbers of vertices differ by at most one
        - ``"biased-random"``: random, biased towards the part that owns more of a vertex'
          neighbours (Gunrock, section V-C), balanced by arcs
        - ``"metis"``: METIS (multilevel k-way, least communication volume, balanced by arcs). About a
          second per two million arcs; larger graphs are divided in a child process, so that Ctrl-C
          works. Where pymetis is absent or fails, or leaves a part empty, the result is
          ``contiguous`` and its ``note`` says why
        - (n) integers in [0, parts): the owners themselves
        - a function ``(graph, parts) -> owners``
        - a :class:`Partition` of as many vertices into as many parts
        - None: ``contiguous``, see below
    :param seed: any integer; the same seed gives the same owners
    :raises InputError: if ``parts`` or ``method`` is wrong, naming the first wrong owner

    The default is ``contiguous``: it takes no time, placing the graph moves nothing (ranges share the
    graph's weights), and it keeps the locality that files of real graphs have. On a road network the
    border of METIS is smaller, but the contiguous one is small already; on graphs without locality
    the border of METIS is 20 to 50 % smaller, for half a second and more. Four parts, two cores;
    milliseconds to divide the graph and to lay it out::

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
    """Return the partition for this graph: the same object if it was made for it."""
    if not isinstance(given.part_count, int) or given.part_count != parts:
        raise InputError(
            f"the partition has {shown(given.part_count)} parts, and {parts} are needed"
        )
    held = as_array(given.owner, "the owners of the partition")
    if held.shape != (graph.vertex_count,):
        count = f"{len(held)} vertices" if held.ndim == 1 else f"shape {held.shape}"
        raise InputError(f"the partition is of {count}, and the graph has {graph.vertex_count}")
    owner = checked_owner(graph, parts, held, "the partition")  # not checked if made by hand
    if isinstance(given.owner, np.ndarray) and given.owner.dtype == owner.dtype:
        if given.graph is graph:
            return given
        owner = given.owner
    return Partition(graph, owner, parts, given.method, given.note)
