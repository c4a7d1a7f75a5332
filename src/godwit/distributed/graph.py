"""A graph whose vertices are divided among processes, each of which holds the rows of its own.

The vertices of a process are a range. Ranges have about equal numbers of arcs and vertices together, and
begin at multiples of 64, so that no two processes write bits of one word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from godwit.distributed.exchange import Questions, to_owners
from godwit.distributed.halo import WORD_BITS, HaloRows, halo_of_arcs
from godwit.distributed.processes import Processes
from godwit.dtypes import Array, as_array
from godwit.errors import ClosedContextError, InputError, shown
from godwit.graph.build import row_sources
from godwit.graph.ids import VertexIds
from godwit.public import OnProcesses


class DistributedGraph(OnProcesses):
    """A graph on the processes of one MPI run. Made by :meth:`Processes.place`; a context manager.

    :func:`bfs`, :func:`sssp`, :func:`connected_components`, :func:`pagerank`,
    :func:`betweenness_centrality`, :func:`run`, :meth:`StepProgram.run` and :func:`write` take one. All
    processes call them alike, and each gets the values of its own vertices.

    :ivar processes: the processes
    :ivar bounds: int64 (processes + 1): process p has the vertices from ``bounds[p]`` on
    :ivar directed: False where every arc is stored in both directions
    :ivar arc_count: number of stored arcs of all processes
    :ivar is_range: True if the ids of all vertices are consecutive integers
    :ivar first_id: the first of these, as in files
    :ivar id_base: what ids in files are larger by than ids in results
    :ivar crosses: True if there are arcs between vertices of different processes
    :ivar rows: out-arcs of the own vertices
    :ivar ids: ids of the own vertices, in their order
    :ivar seconds: time by phase: ``read`` or ``generate``, and ``place``
    """

    def __init__(
        self,
        processes: Processes,
        bounds: Array,
        rows: HaloRows,
        ids: VertexIds,
        *,
        directed: bool,
        is_range: bool,
    ) -> None:
        self.processes = processes
        self.bounds = bounds
        self.directed = directed
        self.ids = ids
        self.seconds: dict[str, float] = {}
        self._rows: HaloRows | None = rows
        self.is_range = is_range
        self._in_rows: HaloRows | None = None
        self._cache: dict[Any, Any] = {}
        in_file = ids.in_file
        first = in_file[0] - self.vertices.start if is_range and len(ids) else 0
        given = processes.meet(len(rows.targets), first, int(rows.halo.counts.sum()), ids.base)
        self.arc_count = int(given[:, 0].sum())
        self.first_id = int(given[:, 1].max())
        self.crosses = bool(given[:, 2].any())
        self.id_base = int(given[:, 3].max())

    @property
    def rows(self) -> HaloRows:
        """Out-arcs of the own vertices."""
        if self._rows is None:
            raise ClosedContextError("this graph is closed; place the graph again")
        return self._rows

    def set_weights(self, weights: Array) -> None:
        """Set the weights of a graph that was just made; :attr:`rows` are new then."""
        self._rows = replace(self.rows, weights=weights)

    @property
    def vertex_count(self) -> int:
        """Number of vertices of all processes, n."""
        return int(self.bounds[-1])

    @property
    def vertices(self) -> range:
        """Positions of the own vertices in the whole graph."""
        rank = self.processes.rank
        return range(int(self.bounds[rank]), int(self.bounds[rank + 1]))

    @property
    def is_weighted(self) -> bool:
        """True if arcs have weights."""
        return self.rows.weights is not None

    @property
    def weight_dtype(self) -> np.dtype[Any] | None:
        """Dtype of the weights; None if there are none."""
        weights = self.rows.weights
        return None if weights is None else weights.dtype

    @property
    def has_in_rows(self) -> bool:
        """True if in-arcs are there: the graph is undirected, or they have been made."""
        return not self.directed or self._in_rows is not None

    @property
    def in_rows(self) -> HaloRows:
        """In-arcs of the own vertices, by ascending source; made on first use, by all processes."""
        if not self.directed:
            return self.rows
        if self._in_rows is None:
            self._in_rows = self._reverse()
        return self._in_rows

    def cached(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Return the value kept under ``key``, computed on first use by all processes alike.

        All keep it, or none if it fails in one: the others would not meet one that computes it again.
        """
        if key not in self._cache:
            made = compute()
            self.processes.meet()
            self._cache[key] = made
        return self._cache[key]

    def targets_in_graph(self) -> Array:
        """Return the target of each arc as a position in the whole graph."""
        rows = self.rows
        return self.positions_of_slots(rows)[rows.targets]

    def positions_of_slots(self, rows: HaloRows) -> Array:
        """Return the position in the whole graph of the vertex of each slot."""
        halo = rows.halo
        positions = halo.remote.astype(np.int64)
        positions[: int(halo.begins[0])] += self.vertices.start
        for other in self.processes.others:
            section = slice(int(halo.begins[other]), int(halo.begins[other + 1]))
            positions[section] += int(self.bounds[other])
        return positions

    def owners(self, positions: Array) -> Array:
        """Return the process that owns each vertex."""
        found: Array = np.searchsorted(self.bounds, positions, side="right") - 1
        return found

    def names_of(self, positions: Array) -> Array | int:
        """Return the ids of vertices in results, or the first one if all are consecutive; all call it."""
        if self.is_range:
            return self.first_id - self.id_base
        ids = self.ids_of(positions)
        return ids - self.id_base if self.id_base else ids

    def ids_of(self, positions: Array) -> Array:
        """Return the ids of vertices of the whole graph, as in files; all processes call it."""
        own, ids = self.vertices, self.ids.in_file
        if self.is_range:
            return positions + self.first_id
        used, inverse = np.unique(positions, return_inverse=True)
        owners = self.owners(used)
        questions = Questions(self.processes, owners, used - self.bounds[owners])
        if ids.kind in ("consecutive", "integer"):
            return questions.answers(np.array(ids.of(questions.asked), np.int64))[inverse]
        named = dict(
            zip((questions.asked + own.start).tolist(), ids.of(questions.asked), strict=True)
        )
        names = {v: name for known in self.processes.share(named) for v, name in known.items()}
        return np.array([names[v] for v in used.tolist()], object)[inverse]

    def highest_degree_vertex(self) -> Any:
        """Return the id of the vertex with most out-arcs, of several the first; all processes call it."""
        degrees = np.diff(self.rows.offsets)
        with self.processes.running("highest_degree_vertex"):
            best = None
            if len(degrees):
                first = int(np.argmax(degrees))
                best = (int(degrees[first]), self.ids[first])
            known = [value for value in self.processes.share(best) if value is not None]
        if not known:
            raise InputError("a graph without vertices has no vertex of highest degree")
        most = max(degree for degree, _ in known)
        return next(vertex for degree, vertex in known if degree == most)

    def own_sources(self, source: Any) -> tuple[Array, list[int]]:
        """Return numbers of the sources that this process owns, and all positions; all processes call it.

        :param source: an id or several, the same in all processes
        :raises InputError: no vertex has one of the ids
        """
        own = self.vertices
        if self.is_range and type(source) is int:  # every process knows its position
            position = source - (self.first_id - self.id_base)
            if 0 <= position < self.vertex_count:
                here = [position - own.start] if position in own else []
                return np.array(here, np.int64), [position]
        several = one_or_several(source, "source")
        if not several:
            raise InputError(
                f"source must be a vertex or a non-empty list of vertices, got {shown(source)}"
            )
        positions = np.unique(self.positions(several, "source"))
        is_own = (positions >= own.start) & (positions < own.stop)
        return positions[is_own] - own.start, positions.tolist()

    def positions(self, several: Sequence[Any], what: str) -> Array:
        """Return the positions of vertices in the whole graph; all processes call it.

        :param several: ids, the same in all processes
        :param what: the name of the argument in messages
        :raises InputError: no vertex has one of the ids
        :raises ProcessError: the ids of some processes differ
        """
        self.processes.require_same(list(several), what, "the same vertices, in one order")
        found, own = self.ids._found(several)
        positions = np.full(len(several), -1, np.int64)
        for indices, vertices in self.processes.share((found, own + self.vertices.start)):
            positions[indices] = vertices
        if len(positions) and positions.min() < 0:
            one = several[int(np.argmin(positions))]
            kind = f"vertices 0 to {self.vertex_count - 1}" if self.is_range else "ids of its own"
            raise InputError(f"{what} {shown(one)} is not in the graph, which has {kind}")
        return positions

    def _reverse(self) -> HaloRows:
        """Send every arc to the owner of its target."""
        rows, first = self.rows, self.vertices.start
        sources = row_sources(rows.offsets, np.dtype(np.int64)) + first
        targets = self.targets_in_graph()
        columns = [targets, sources] + ([] if rows.weights is None else [rows.weights])
        targets, sources, *weights = to_owners(self.processes, self.owners(targets), columns)
        return halo_of_arcs(
            self.processes, self.bounds, targets, sources, weights[0] if weights else None
        )

    def close(self) -> None:
        """Free the memory of the rows; closing twice does no harm."""
        self._rows = self._in_rows = None
        self._cache.clear()

    def __enter__(self) -> DistributedGraph:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        own = self.vertices
        return (
            f"<DistributedGraph: {self.vertex_count:,} vertices, {self.arc_count:,} arcs, {kind}; "
            f"process {self.processes.rank} of {self.processes.count} has vertices {own.start:,} to "
            f"{own.stop:,}>"
        )


def one_or_several(given: Any, what: str) -> list[Any]:
    """Return the ids that an argument names, one or several, in an order that is the same in all processes.

    :param what: the name of the argument in messages
    """
    if isinstance(given, Set):
        return sorted(given, key=repr)  # the order of a set of texts differs in each process
    if isinstance(given, list | tuple | range):
        return list(given)
    if hasattr(given, "iloc") or hasattr(given, "__array__"):
        array = as_array(given, what)
        return array.tolist() if array.ndim else [given]
    return [given]


def by_id(given: Any, what: str) -> Any:
    """Return a pandas Series as a mapping; other values unchanged.

    :raises InputError: two values have one label
    """
    if not hasattr(given, "iloc"):
        return given
    values = dict(zip(given.index.tolist(), given.tolist(), strict=True))
    if len(values) < len(given):
        again = given.index[given.index.duplicated()][0]
        raise InputError(f"the labels of {what} must be distinct, and {shown(again)} occurs twice")
    return values


def kind_of(given: Any) -> str:
    """Return what must be the same in all processes of an argument whose values may differ."""
    if isinstance(given, str):
        return given
    return "by id" if isinstance(given, Mapping) or hasattr(given, "iloc") else "values"


def bounds_of_ends(processes: Processes, ends: list[Array], vertex_count: int) -> Array:
    """Return bounds of ranges of vertices with about equal arcs and vertices; all processes call it.

    :param ends: positions of the sources of arcs that this process has, in any order
    """
    words = -(-vertex_count // WORD_BITS)
    shift = WORD_BITS.bit_length() - 1 + max(0, (words - 1).bit_length() - _BUCKET_BITS)
    buckets = (vertex_count >> shift) + 1
    costs = np.zeros(buckets, np.int64)
    for column in ends:
        for begin in range(0, len(column), _PIECE):
            costs += np.bincount(column[begin : begin + _PIECE] >> shift, minlength=buckets)
    begins = np.arange(buckets, dtype=np.int64) << shift
    costs = processes.add_up(costs) + np.diff(begins, append=vertex_count)
    return balanced_bounds(begins, costs, vertex_count, processes.count)


_BUCKET_BITS = 14
"""Ranges of vertices begin at one of about so many (as a power of two) equally wide buckets."""
_PIECE = 1 << 16


def balanced_bounds(begins: Array, costs: Array, vertex_count: int, parts: int) -> Array:
    """Return bounds of ranges of vertices with about equal costs, at multiples of 64.

    :param begins: first vertex of each bucket of vertices, ascending
    :param costs: (buckets) cost of each
    """
    bounds = np.zeros(parts + 1, np.int64)
    total = np.concatenate([[0], np.cumsum(costs)])
    starts = np.concatenate([begins, [vertex_count]])
    wanted = total[-1] * np.arange(1, parts) / parts
    inner = np.interp(wanted, total, starts) if total[-1] else np.zeros(parts - 1)
    bounds[1:-1] = np.minimum(
        WORD_BITS * np.round(inner / WORD_BITS).astype(np.int64),
        vertex_count // WORD_BITS * WORD_BITS,
    )
    bounds[-1] = vertex_count
    return np.maximum.accumulate(bounds)
