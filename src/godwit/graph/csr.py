"""Graphs as compressed sparse rows: immutable, checked once, trusted ever after.

Encoding: the out-arcs of vertex v are ``targets[offsets[v]:offsets[v + 1]]``, ``weights`` likewise.
An undirected graph stores an edge as two arcs of equal weight, one in each direction, and a
self-loop as one arc. Vertices count from 0.

This module needs NumPy only; whatever touches every arc is compiled and lives in the modules beside
it (``build``, ``transform``, ``components``, ``degrees``, ``interchange``), which are imported on
first use.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from godwit import config
from godwit.arrays import lies_on_gpu
from godwit.dtypes import (
    ID_DTYPES,
    Array,
    as_array,
    as_count,
    as_flag,
    as_integers,
    as_weights,
    frozen,
    id_dtype_for,
)
from godwit.errors import GraphTooLargeError, InputError, shown
from godwit.graph.ids import VertexIds

if TYPE_CHECKING:
    from godwit.graph.degrees import DegreeStatistics

Merge = Literal["min", "max", "sum", "first"]

Rows = tuple[Array, Array, Array | None]
"""Offsets, targets and weights."""

build_on_gpu: Callable[[Any, Any, Any, Any, bool, Any], Rows | None] | None = None
"""What makes rows of the arrays of :meth:`Graph.from_edges` where they lie on a GPU, or gives None, if they
had better be brought to the host, where every mistake is named. Set by ``godwit``: this layer knows no GPU.
"""


class Graph:
    """An immutable graph in compressed sparse rows (CSR).

    :param offsets: (n + 1) integers that never decrease, from 0 to m
    :param targets: (m) vertex ids in [0, n); an int32 or int64 array is kept without a copy,
        anything else is converted to int32, or to int64 where n needs it
    :param weights: None, or (m) numbers; int32, uint32, int64, float32 and float64 are kept,
        narrower ones are widened
    :param directed: False promises that every arc u -> v has its equal v -> u; that is checked.
        Arrays that are kept must not be changed afterwards
    :param ids: what vertices are called, if not 0, 1, 2, …: the first of consecutive integers, or (n)
        distinct integers, texts or hashable objects. Functions then take and give vertices by them; see
        :attr:`ids`
    :raises InputError: naming the first entry that is wrong
    """

    __slots__ = (
        "__weakref__",
        "_cache",
        "_check",
        "_directed",
        "_ids",
        "_offsets",
        "_original",
        "_targets",
        "_weights",
    )

    _offsets: Array
    _targets: Array
    _weights: Array | None
    _directed: bool
    _ids: VertexIds
    _check: Callable[[], None] | None
    _cache: dict[Any, Any]
    _original: weakref.ref[Graph] | None  # of which this is the reverse

    def __init__(
        self,
        offsets: Any,
        targets: Any,
        weights: Any = None,
        *,
        directed: bool = True,
        ids: Any = 0,
    ) -> None:
        directed = as_flag(directed, "directed")
        if hasattr(targets, "dtype"):
            targets = as_array(targets, "targets")
        keep_id_dtype = isinstance(targets, np.ndarray) and targets.dtype in ID_DTYPES
        offsets = frozen(as_integers(offsets, "offsets"), np.int64)
        targets = as_integers(targets, "targets")
        weights = as_weights(weights, len(targets))
        _check_rows(offsets, targets)  # before ids are narrowed
        if not keep_id_dtype:
            targets = frozen(targets, id_dtype_for(len(offsets) - 1))
        if not directed:
            from godwit.graph import transform

            transform.check_symmetric(offsets, targets, weights)
        self._set(offsets, targets, weights, directed, ids)

    def _set(
        self,
        offsets: Array,
        targets: Array,
        weights: Array | None,
        directed: bool,
        ids: Any,
    ) -> None:
        self._offsets = frozen(offsets, np.int64)
        self._targets = frozen(targets, targets.dtype)
        self._weights = None if weights is None else frozen(weights, weights.dtype)
        self._directed = bool(directed)
        self._ids = VertexIds(len(offsets) - 1, ids)
        self._check = None
        self._cache = {}
        self._original = None

    @classmethod
    def trusted(
        cls,
        offsets: Array,
        targets: Array,
        weights: Array | None = None,
        *,
        directed: bool = True,
        ids: Any = 0,
        check: Callable[[], None] | None = None,
    ) -> Graph:
        """A graph of arrays that are known to be right: nothing is checked, nothing is copied.

        :param check: what finds out whether they are right, called once before the arrays are first
            handed out; it raises an error of ours if they are not
        """
        graph = cls.__new__(cls)
        graph._set(offsets, targets, weights, directed, ids)
        graph._check = check
        return graph

    @classmethod
    def from_edges(
        cls,
        sources: Any,
        targets: Any,
        weights: Any = None,
        *,
        vertex_count: int | None = None,
        directed: bool = True,
        id_dtype: Any = None,
        ids: Any = 0,
    ) -> Graph:
        """A graph from pairs of vertices, in any order; each row is sorted by target.

        Parallel arcs and self-loops are kept; parallel arcs stay in the order given. The graph has
        arrays of its own: those given may be changed afterwards, as those that ``Graph(...)`` and
        :meth:`from_scipy` share may not. Arrays of CuPy, PyTorch and others that lie on a GPU become rows
        there, and only those come to the host.

        :param sources: (k) vertex ids, counted from 0
        :param targets: (k) vertex ids
        :param weights: None, or (k) numbers
        :param vertex_count: n; by default one more than the largest id
        :param directed: if False, each pair is an edge and is stored in both directions
        :param id_dtype: int32 or int64; by default int32 where n < 2**31
        :param ids: as of ``Graph(...)``
        :raises InputError: naming the first id that is out of range, and its position
        :raises GraphTooLargeError: before anything is allocated
        """
        directed = as_flag(directed, "directed")
        if build_on_gpu is not None and lies_on_gpu(sources):
            rows = build_on_gpu(sources, targets, weights, vertex_count, directed, id_dtype)
            if rows is not None:
                return cls.trusted(*rows, directed=directed, ids=ids)
        sources, targets = _as_ends(sources, "sources"), _as_ends(targets, "targets")
        if len(sources) != len(targets):
            raise InputError(
                f"sources and targets must have one length, got {len(sources)} and {len(targets)}"
            )
        weights = as_weights(weights, len(sources))
        vertex_count = _count_vertices(sources, targets, vertex_count)
        dtype = id_dtype_for(vertex_count, id_dtype)
        from godwit.graph import build

        offsets, row_targets, row_weights = build.arcs_to_rows(
            sources, targets, weights, vertex_count, dtype, both_directions=not directed
        )
        return cls.trusted(offsets, row_targets, row_weights, directed=directed, ids=ids)

    @staticmethod
    def from_scipy(matrix: Any, *, directed: bool = True) -> Graph:
        """A graph from a square ``scipy.sparse`` matrix or array (csr, csc, coo, or what converts).

        Every stored entry (i, j) is one arc i -> j: explicit zeros are arcs of weight 0, entries
        that a COO matrix holds twice are parallel arcs (``sum_duplicates()`` adds them up). A
        boolean matrix gives a graph without weights. The data and the int32 indices of a csr matrix
        are not copied (int64 ones are, where int32 does), and keep their order: the graph shares
        them with the matrix, which must not be changed afterwards.

        :param directed: False promises that the matrix is symmetric; that is checked
        """
        from godwit.graph.interchange import scipy_matrices

        return scipy_matrices.from_scipy(matrix, directed)

    @staticmethod
    def from_networkx(graph: Any, weight: Any = "weight") -> Graph:
        """A graph from a NetworkX graph: Graph, DiGraph, MultiGraph or MultiDiGraph.

        Nodes, whatever they are, become vertices in their order, and :attr:`ids` keeps them.

        >>> import networkx as nx
        >>> graph = Graph.from_networkx(nx.DiGraph([("Ulm", "Bonn"), ("Bonn", "Jena")]))
        >>> graph.ids.position("Jena")
        2

        :param weight: the attribute of edges that is their weight (int64 where all are integers, else
            float64); None for a graph without weights, as when no edge has the default one
        :raises InputError: naming the first edge that lacks the attribute while others have it, or
            whose weight is no number; or no edge has an attribute of another name
        """
        from godwit.graph.interchange import networkx_graphs

        return networkx_graphs.from_networkx(graph, weight)

    @staticmethod
    def from_igraph(graph: Any, weight: str | None = "weight") -> Graph:
        """A graph from an ``igraph.Graph``; its vertices' ``"name"``, if they have any, become ids.

        :param weight: as of :meth:`from_networkx`
        :raises InputError: as :meth:`from_networkx`; or a name occurs twice
        """
        from godwit.graph.interchange import libraries

        return libraries.from_igraph(graph, weight)

    @staticmethod
    def from_networkit(graph: Any) -> Graph:
        """A graph from a ``networkit.Graph``; float64 weights if it has weights.

        Where nodes were removed, the numbers of the others become ids.
        """
        from godwit.graph.interchange import libraries

        return libraries.from_networkit(graph)

    @staticmethod
    def from_edge_index(
        edge_index: Any,
        edge_weight: Any = None,
        *,
        vertex_count: int | None = None,
        directed: bool = True,
    ) -> Graph:
        """A graph from PyTorch Geometric's ``data.edge_index`` and ``data.edge_weight``.

        Each row is sorted by target; parallel arcs stay in the order given.

        :param edge_index: (2, m) integers, an array or tensor: sources above targets
        :param edge_weight: None, or (m) numbers
        :param vertex_count: n (``data.num_nodes``); by default one more than the largest id
        :param directed: False promises that every edge is there in both directions, as
            ``data.is_undirected()`` finds out; that is checked
        :raises InputError: the shape is another, or naming the first id that is out of range
        """
        from godwit.graph.interchange import libraries

        return libraries.from_edge_index(edge_index, edge_weight, vertex_count, directed)

    @staticmethod
    def from_table(
        table: Any,
        source: str | None = None,
        target: str | None = None,
        weight: str | None = None,
        *,
        directed: bool | None = None,
        relabel: bool | None = None,
    ) -> Graph:
        """A graph from a table with a row per arc: of pandas, Polars, Arrow or whatever library's tables
        have ``__arrow_c_stream__`` or ``__dataframe__``.

        Ids are names, integers or texts: the vertices are those that occur, by ascending id, and functions
        take and give them by id (:attr:`ids`). Parallel arcs and self-loops are kept.

        >>> import pandas as pd
        >>> graph = Graph.from_table(pd.DataFrame({"user": [10, 20], "friend": [20, 30]}))
        >>> list(graph.ids)
        [10, 20, 30]

        :param source: name of the column of sources; by default those that are usually called so are
            taken, else the first two, and a weight if one is called so
        :param target: name of the column of targets
        :param weight: name of the column of weights; None: none, if sources and targets are named
        :param directed: False: each row is an edge. None: directed, unless :meth:`to_arrow` made the
            table of an undirected graph
        :param relabel: False: ids are not names, but positions, counted from 0 to the largest. None: they
            are names, unless :meth:`to_arrow` made the table of a graph without ids. True: they are names
        :raises InputError: naming the column, or the row (counted from 0)
        """
        from godwit.graph.interchange import tables

        return tables.graph_from_table(table, source, target, weight, directed, relabel)

    def to_arrow(self) -> Any:
        """The arcs as a ``pyarrow.Table``; of an undirected graph each edge once.

        Columns ``source`` and ``target`` hold ids (:attr:`ids`; objects as texts), ``weight`` weights.
        The metadata of the schema has what :meth:`from_table` needs to make the same graph, vertices
        without arcs included if ids are consecutive.
        """
        from godwit.graph.interchange import tables

        return tables.arc_table(self)

    def to_pandas(self) -> Any:
        """The table of :meth:`to_arrow` as a ``pandas.DataFrame``, which has no metadata.

        :raises InputError: pandas is not installed
        """
        from godwit.graph.interchange import tables

        return tables.to_pandas(tables.arc_table(self), nullable=False)

    def to_scipy(self, *, merge: Merge | None = None) -> Any:
        """The adjacency as a ``scipy.sparse.csr_array``; data of ones (bool) where unweighted.

        Targets and weights are shared, not copied, where SciPy's index dtype allows: with m or n of
        2**31 or more both index arrays become int64. What is shared is read-only. An arc of weight 0 is a
        stored zero, which ``scipy.sparse.csgraph`` takes for an edge.

        :param merge: the weight of the one entry that parallel arcs become, as in
            :meth:`merge_parallel_arcs`: ``"min"`` keeps shortest paths. None: a graph with parallel arcs is
            refused, because SciPy's functions add duplicate entries up
        :raises InputError: naming the vertices that parallel arcs connect
        """
        from godwit.graph.interchange import scipy_matrices

        return scipy_matrices.to_scipy(self, merge)

    def to_networkx(self) -> Any:
        """The graph as one of NetworkX, whose nodes are the :attr:`ids`.

        A DiGraph, or a Graph if undirected; a MultiDiGraph or MultiGraph if there are parallel arcs.
        Weights become the attribute ``weight`` of edges.

        :raises InputError: NetworkX is not installed
        """
        from godwit.graph.interchange import networkx_graphs

        return networkx_graphs.to_networkx(self)

    @property
    def offsets(self) -> Array:
        """(n + 1) int64: where the arcs of each vertex begin."""
        self._run_check()
        return self._offsets

    @property
    def targets(self) -> Array:
        """(m) int32 or int64: the vertex that each arc goes to."""
        self._run_check()
        return self._targets

    @property
    def weights(self) -> Array | None:
        """(m) weights of the arcs, or None."""
        self._run_check()
        return self._weights

    def _run_check(self) -> None:
        if self._check is not None:
            self._check()
            self._check = None

    @property
    def directed(self) -> bool:
        """False where every arc is stored in both directions."""
        return self._directed

    @property
    def ids(self) -> VertexIds:
        """What vertices are called: ``ids[p]`` is the id of the vertex at position p of all arrays,
        ``ids.position(id)`` the position of an id.

        Where ``ids.own`` is True, every vertex argument and every dictionary is by id; else vertices are
        0 to n - 1. Arrays are by position in both cases.
        """
        self._run_check()
        return self._ids

    @property
    def is_weighted(self) -> bool:
        """Whether arcs have weights."""
        return self._weights is not None

    @property
    def vertex_count(self) -> int:
        """The number of vertices, n."""
        return len(self._offsets) - 1

    @property
    def arc_count(self) -> int:
        """The number of stored arcs, m."""
        return len(self._targets)

    @property
    def edge_count(self) -> int | None:
        """The number of edges, self-loops included; None for a directed graph, which has none."""
        if self._directed:
            return None
        return (self.arc_count + self.degree_statistics().self_loops) // 2

    @property
    def nbytes(self) -> int:
        """Bytes of offsets, targets and weights; what is derived and kept is not counted."""
        weight_bytes = 0 if self._weights is None else self._weights.nbytes
        return self._offsets.nbytes + self._targets.nbytes + weight_bytes

    def cached(self, key: Any, compute: Callable[[], Any]) -> Any:
        """The fact under ``key``, computed on first use: graphs do not change."""
        try:
            return self._cache[key]
        except KeyError:
            return self._cache.setdefault(key, compute())

    @property
    def reverse(self) -> Graph:
        """The graph with every arc turned round, made once; an undirected graph is its own."""
        if not self._directed:
            return self
        # Held weakly: a cycle would keep both in memory until the garbage collector comes round.
        original = None if self._original is None else self._original()
        if original is not None:
            return original
        made: Graph = self.cached("reverse", self._make_reverse)
        return made

    def _make_reverse(self) -> Graph:
        from godwit.graph import transform

        reverse = transform.reversed_graph(self)
        reverse._original = weakref.ref(self)
        return reverse

    def out_degree(self) -> Array:
        """(n) int64: the number of arcs that leave each vertex."""
        return np.diff(self.offsets)

    def highest_degree_vertex(self) -> Any:
        """The id of the vertex with most out-arcs (:attr:`ids`); of several the first in arrays."""
        if self.vertex_count == 0:
            raise InputError("a graph without vertices has no vertex of highest degree")
        return self.ids[self.cached("highest degree", lambda: int(np.argmax(self.out_degree())))]

    def degree_statistics(self) -> DegreeStatistics:
        """Smallest, largest, mean and median out-degree, isolated vertices, self-loops."""
        from godwit.graph import degrees

        statistics: DegreeStatistics = self.cached(
            "degree statistics", lambda: degrees.degree_statistics(self)
        )
        return statistics

    def symmetrize(self, merge: Merge | None = "min") -> Graph:
        """The undirected graph with an edge wherever there is an arc in either direction.

        :param merge: which weight an edge gets from the arcs that it replaces, as in
            :meth:`merge_parallel_arcs`; None turns every arc into an edge of its own
        :returns: itself, if already undirected
        """
        from godwit.graph import transform

        return transform.symmetrized(self, merge)

    def remove_self_loops(self) -> Graph:
        """The graph without arcs from a vertex to itself; itself, if there are none."""
        from godwit.graph import transform

        return transform.without_self_loops(self)

    def merge_parallel_arcs(self, how: Merge = "min") -> Graph:
        """The graph with at most one arc from any vertex to any other, rows sorted by target.

        :param how: the weight of the arc that remains: the smallest, the largest, the sum or the
            first of those that it replaces
        :raises ValueOverflowError: if a sum of integers, or part of it, does not fit their dtype
        """
        from godwit.graph import transform

        return transform.merged(self, how)

    def replicate(self, count: int) -> Graph:
        """So many disjoint copies of the graph as one; itself, if that is 1.

        Position p of copy c, counted from 0, is position ``c * vertex_count + p``, with the same weights;
        ids that are a range of integers count on.

        :raises InputError: if vertices have other ids (:attr:`ids`), which two cannot share
        :raises GraphTooLargeError: before anything is allocated
        """
        from godwit.graph import transform

        return transform.replicated(self, count)

    def relabel(self, permutation: Any) -> Graph:
        """The same graph with the vertex at position p moved to ``permutation[p]``; rows sorted by target.

        Ids of their own (:attr:`ids`) stay with their vertices.

        :param permutation: (n) positions, each of 0 .. n - 1 once
        """
        from godwit.graph import transform

        return transform.relabelled(self, permutation)

    def largest_component(self) -> tuple[Graph, Array]:
        """The largest weakly connected component, and which vertices it is made of.

        Of several equally large the one with the first vertex. Position i of the component is position
        ``vertices[i]`` of this graph; ``vertices`` ascends, and has the dtype of the targets. Vertices keep
        their ids (:attr:`ids`), and so does a vertex of a graph without: its number here is its id in the
        component.
        """
        from godwit.graph import components

        return components.largest_component(self)

    def with_weights(self, weights: Any) -> Graph:
        """The same arcs with other weights: (m) numbers, in the order of ``targets``."""
        checked = as_weights(weights, self.arc_count)
        if not self._directed and checked is not None:
            from godwit.graph import transform

            transform.check_symmetric(self.offsets, self.targets, checked)
        return self._replaced(checked)

    def without_weights(self) -> Graph:
        """The same arcs without weights; itself, if it has none."""
        return self._replaced(None) if self.is_weighted else self

    def with_random_weights(self, low: float, high: float, seed: int = 0) -> Graph:
        """The same arcs with random weights.

        The weight of u -> v is a hash of {u, v} and the seed: equal in both directions, and the
        same on every machine. Two integers give integers in [low, high], both included, int32 if
        they fit, else int64; if either is a float, weights are float64 in [low, high).
        """
        from godwit.graph import weights

        return self._replaced(weights.random_weights(self, low, high, seed))

    def with_ids(self, ids: Any) -> Graph:
        """The same graph with other ids: as of ``Graph(...)``; 0 for none but the numbers 0 to n - 1."""
        self._run_check()
        return Graph.trusted(
            self._offsets, self._targets, self._weights, directed=self._directed, ids=ids
        )

    def _replaced(self, weights: Array | None) -> Graph:
        return Graph.trusted(
            self.offsets, self.targets, weights, directed=self._directed, ids=self._ids
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.offsets, self.targets, self.weights, self._directed, self._ids)

    def __repr__(self) -> str:
        kind = "directed" if self._directed else "undirected"
        weights = "" if self._weights is None else f", {self._weights.dtype} weights"
        return (
            f"<Graph: {self.vertex_count:,} vertices, {self.arc_count:,} arcs, {kind}, "
            f"{self._targets.dtype} ids{weights}>"
        )


def _restored(
    offsets: Array, targets: Array, weights: Array | None, directed: bool, ids: VertexIds
) -> Graph:
    return Graph.trusted(offsets, targets, weights, directed=directed, ids=ids)


def estimate_bytes(
    vertex_count: int, arc_count: int, id_bytes: int = 4, weight_bytes: int = 0
) -> int:
    """Bytes of a graph in memory: its offsets, targets and weights."""
    return 8 * (vertex_count + 1) + arc_count * (id_bytes + weight_bytes)


def require_memory(needed_bytes: int, what: str) -> None:
    """Refuse what will not fit, before anything is allocated.

    :raises GraphTooLargeError: if ``needed_bytes`` exceed what is available
    """
    available = config.missing_memory_bytes(needed_bytes)
    if available is not None:
        raise GraphTooLargeError(
            f"{what} needs some {config.readable_bytes(needed_bytes)}, "
            f"and {config.readable_bytes(available)} are available"
        )


def _as_ends(ends: Any, name: str) -> Array:
    """Integers; InputError where they are not, which says what takes texts."""
    array = as_array(ends, name)
    if array.dtype.kind in "OUT" and array.size:
        raise InputError(
            f"{name} must be integers, got {array.dtype}: Graph.from_table makes a graph of a table "
            "with texts as ids"
        )
    return as_integers(array, name)


def _count_vertices(sources: Array, targets: Array, vertex_count: int | None) -> int:
    """The number of vertices, after a check that all ids are in range."""
    if vertex_count is not None:
        vertex_count = as_count(vertex_count, "vertex_count")
        if vertex_count >= 2**48:
            raise GraphTooLargeError(f"{shown(vertex_count)} vertices do not fit in memory")
    if len(sources) == 0:
        return vertex_count or 0
    if vertex_count is None:
        largest = max(int(sources.max()), int(targets.max()))
        vertex_count = max(largest + 1, 0)
        if vertex_count >= 2**48:
            raise GraphTooLargeError(f"{vertex_count} vertices do not fit in memory")
    _check_ids(sources, vertex_count, "sources")
    _check_ids(targets, vertex_count, "targets")
    return vertex_count


def _check_ids(ids: Array, vertex_count: int, name: str) -> None:
    if len(ids) == 0 or (ids.min() >= 0 and ids.max() < vertex_count):
        return
    position = int(np.argmax((ids < 0) | (ids >= vertex_count)))
    raise InputError(
        f"{name}[{position}] must be a vertex in [0, {vertex_count}), got {ids[position]}"
    )


def _check_rows(offsets: Array, targets: Array) -> None:
    if len(offsets) == 0:
        raise InputError("offsets must have vertex_count + 1 entries, got none")
    if offsets[0] != 0:
        raise InputError(f"offsets must begin with 0, got {offsets[0]}")
    falls = offsets[1:] < offsets[:-1]
    if falls.any():
        v = int(np.argmax(falls))
        raise InputError(
            f"offsets must not decrease, got {offsets[v]} and {offsets[v + 1]} at {v} and {v + 1}"
        )
    if offsets[-1] != len(targets):
        raise InputError(
            f"offsets must end with the number of targets, {len(targets)}, got {offsets[-1]}"
        )
    _check_ids(targets, len(offsets) - 1, "targets")
