"""Graphs as compressed sparse rows: immutable, and checked once, when they are made.

Encoding: the out-arcs of vertex v are ``targets[offsets[v]:offsets[v + 1]]``; weights are in the order of
targets. An undirected graph stores an edge as two arcs of equal weight, one in each direction, and a
self-loop as one arc. Vertices count from 0.

This module needs NumPy only. What touches every arc is compiled and lies in modules below it, which take
and return arrays (``build``, ``transform``, ``facts``, ``union_find``, ``hashing``, ``interchange``), and
which its methods import on first use.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.arrays import lies_on_gpu
from godwit.config import readable_bytes
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
from godwit.graph.attributes import (
    NO_COLUMNS,
    Columns,
    arcs_after,
    checked_columns,
    columns_as_given,
    taken,
)
from godwit.graph.ids import Sources, Vertex, VertexIds
from godwit.graph.rows import Rows
from godwit.html_tables import table_of_facts
from godwit.other_names import NamesItsAttributes, NamesItsMethods
from godwit.plots import plot_frequencies
from godwit.public import public

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from godwit.graph.arcs import ArcList, ReadOptions
    from godwit.graph.cuda.stored import RowsOnGpu
    from godwit.graph.facts import DegreeStatistics
    from godwit.graph.transform import Merge


_MOST_SHOWN_WEIGHTS = 1 << 27
"""A notebook shows the range of that many weights: it takes about 0.1 s, once."""


class Graph(NamesItsAttributes, metaclass=NamesItsMethods):
    """An immutable graph in compressed sparse rows (CSR).

    :param offsets: (n + 1) integers that never decrease, from 0 to m
    :param targets: (m) vertex ids in [0, n); an int32 or int64 array is kept without a copy,
        anything else is converted to int32, or to int64 where n needs it
    :param weights: None, or (m) numbers; int32, uint32, int64, float32 and float64 are kept,
        narrower ones are widened
    :param directed: False promises that every arc u -> v has its equal v -> u; that is checked.
        Arrays that are kept must not be changed afterwards. Arrays of CuPy, PyTorch and others on one GPU
        are checked there, and kept there if their dtypes are those above and ``offsets`` are int32 or int64
    :param ids: ids of the vertices, if not 0, 1, 2, …: the first of consecutive integers, or (n)
        distinct integers, texts or hashable objects. Functions then take and give vertices by them; see
        :attr:`ids`
    :raises InputError: naming the first entry that is wrong
    """

    __slots__ = (
        "__weakref__",
        "_cache",
        "_check",
        "_directed",
        "_edge_data",
        "_ids",
        "_original",
        "_rows",
        "_vertex_data",
    )

    _rows: Rows | RowsOnGpu
    _directed: bool
    _ids: VertexIds
    _vertex_data: Columns
    _edge_data: Columns
    _check: Callable[[], None] | None
    _cache: dict[Any, Any]
    _original: weakref.ref[Graph] | None  # the graph whose reverse this is

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
        if lies_on_gpu(targets):
            from godwit.graph.cuda.stored import rows_of_gpu_csr
            from godwit.graph.facts import process_seed

            rows = rows_of_gpu_csr(offsets, targets, weights, directed, int(process_seed()))
            if rows is not None:
                self._set(rows, directed, ids)
                return
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
            from godwit.graph.facts import check_symmetric

            check_symmetric(Rows(offsets, targets, weights))
        self._set(_frozen_rows(offsets, targets, weights), directed, ids)

    def _set(self, rows: Rows | RowsOnGpu, directed: bool, ids: Any) -> None:
        self._rows = rows
        self._directed = bool(directed)
        self._ids = VertexIds(rows.vertex_count, ids)
        self._vertex_data = self._edge_data = NO_COLUMNS
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
        """Return a graph of arrays that are known to be right: nothing is checked, nothing is copied.

        :param check: a function that is called once, before the arrays are first returned, and raises an
            error of Godwit's if they are wrong
        """
        graph = cls.of_rows(_frozen_rows(offsets, targets, weights), directed=directed, ids=ids)
        graph._check = check
        return graph

    @classmethod
    def of_rows(cls, rows: Rows | RowsOnGpu, *, directed: bool = True, ids: Any = 0) -> Graph:
        """Return a graph of rows without checking them; the caller does not change them afterwards."""
        graph = cls.__new__(cls)
        graph._set(rows, directed, ids)
        return graph

    @classmethod
    @public
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
        """Return a graph made of edges in any order; each row is sorted by target.

        Parallel edges and self-loops are kept; parallel edges stay in the order given. The graph has
        arrays of its own: those given may be changed afterwards, unlike those that ``Graph(...)`` and
        :meth:`from_scipy` share. Arrays of CuPy, PyTorch and others that lie on a GPU become rows there,
        and stay there if it has room for four copies of them: :func:`godwit.place` on that GPU takes them
        over, and :attr:`targets`, say, is copied to the host when it is first read.

        :param sources: (k) vertex ids, counted from 0
        :param targets: (k) vertex ids
        :param weights: None, or (k) numbers
        :param vertex_count: n; by default one more than the largest id
        :param directed: False stores each edge in both directions
        :param id_dtype: int32 or int64; by default int32 where n < 2**31
        :param ids: as of ``Graph(...)``
        :raises InputError: naming the first id that is out of range, and its position
        :raises GraphTooLargeError: before anything is allocated
        """
        directed = as_flag(directed, "directed")
        if lies_on_gpu(sources):
            from godwit.graph.cuda.rows import rows_of_gpu_arrays

            made = rows_of_gpu_arrays(sources, targets, weights, vertex_count, directed, id_dtype)
            if made is not None:
                return cls.of_rows(made, directed=directed, ids=ids)
        sources = _as_endpoints(sources, "sources")
        targets = _as_endpoints(targets, "targets")
        if len(sources) != len(targets):
            raise InputError(
                f"sources and targets must have one length, got {len(sources)} and {len(targets)}"
            )
        weights = as_weights(weights, len(sources))
        vertex_count = _count_vertices(sources, targets, vertex_count)
        dtype = id_dtype_for(vertex_count, id_dtype)
        from godwit.graph.build import arcs_to_rows

        rows = arcs_to_rows(
            sources, targets, weights, vertex_count, dtype, both_directions=not directed
        )
        return cls.trusted(*rows, directed=directed, ids=ids)

    @staticmethod
    @public
    def from_scipy(matrix: Any, *, directed: bool = True) -> Graph:
        """Return a graph of a square ``scipy.sparse`` matrix or array (csr, csc, coo, or convertible).

        Every stored entry (i, j) is one arc i -> j: explicit zeros are arcs of weight 0, entries
        that a COO matrix holds twice are parallel arcs (``sum_duplicates()`` adds them up). A
        boolean matrix gives a graph without weights. The data and the int32 indices of a csr matrix
        are not copied (int64 ones are, where int32 does), and keep their order: the graph shares
        them with the matrix, which must not be changed afterwards.

        :param directed: False promises that the matrix is symmetric; that is checked
        """
        from godwit.graph.interchange import libraries

        directed = as_flag(directed, "directed")
        matrix, weights = libraries.read_matrix(matrix)
        if matrix.format == "coo":
            n = int(matrix.shape[0])
            graph = Graph.from_edges(matrix.row, matrix.col, weights, vertex_count=n)
            return graph if directed else graph._checked_undirected()
        graph = Graph(matrix.indptr, matrix.indices, weights, directed=directed)
        targets = graph.targets.astype(id_dtype_for(graph.vertex_count), copy=False)
        graph = Graph.trusted(graph.offsets, targets, graph.weights, directed=directed)
        if matrix.format == "csr" or not directed:
            return graph
        return Graph.trusted(*graph.reverse.rows)  # the columns of a csc matrix are rows of in-arcs

    @staticmethod
    @public
    def from_networkx(graph: Any, weight: Any = "weight") -> Graph:
        """Return the graph of a NetworkX Graph, DiGraph, MultiGraph or MultiDiGraph.

        Nodes, which may be any hashable objects, become vertices in their order, and are the :attr:`ids`.
        Attributes of nodes become :attr:`vertex_data`, those of edges :attr:`edge_data`.

        >>> import networkx as nx
        >>> graph = Graph.from_networkx(nx.DiGraph([("Ulm", "Bonn"), ("Bonn", "Jena")]))
        >>> graph.ids.position("Jena")
        2

        :param weight: the attribute of edges that is their weight (int64 where all are integers, else
            float64); None for a graph without weights, as if no edge had the default attribute
        :raises InputError: naming the first edge that lacks the attribute while others have it, or
            whose weight is no number; or no edge has an attribute of the name given
        """
        from godwit.graph.interchange import libraries

        rows, ids, vertex_data, edge_data = libraries.read_networkx(graph, weight)
        made = Graph(*rows, directed=graph.is_directed(), ids=ids)
        return made._with_data(vertex_data, edge_data)

    @staticmethod
    @public
    def from_igraph(graph: Any, weight: str | None = "weight") -> Graph:
        """Return the graph of an ``igraph.Graph``; the vertices' attribute ``"name"`` becomes the ids.

        Other attributes of vertices become :attr:`vertex_data`, those of edges :attr:`edge_data`.

        :param weight: as of :meth:`from_networkx`
        :raises InputError: as :meth:`from_networkx`; or a name occurs twice
        """
        from godwit.graph.interchange import libraries

        edges = libraries.read_igraph(graph, weight)
        vertex_data, edge_data = libraries.igraph_data(graph, weight)
        made = Graph.from_edges(**edges)
        if edge_data:
            numbered = {**edges, "weights": np.arange(len(edges["sources"]))}
            edge_data = taken(edge_data, as_array(Graph.from_edges(**numbered).weights, "edges"))
        return made._with_data(vertex_data, edge_data)

    @staticmethod
    @public
    def from_networkit(graph: Any) -> Graph:
        """Return the graph of a ``networkit.Graph``, with float64 weights if it has weights.

        Where nodes were removed, the numbers of the others become ids.
        """
        from godwit.graph.interchange import libraries

        return Graph.from_edges(**libraries.read_networkit(graph))

    @staticmethod
    @public
    def from_edge_index(
        edge_index: Any,
        edge_weight: Any = None,
        *,
        vertex_count: int | None = None,
        directed: bool = True,
    ) -> Graph:
        """Return the graph of PyTorch Geometric's ``data.edge_index`` and ``data.edge_weight``.

        Each row is sorted by target; parallel arcs stay in the order given.

        :param edge_index: (2, m) integers, an array or tensor: sources above targets
        :param edge_weight: None, or (m) numbers
        :param vertex_count: n (``data.num_nodes``); by default one more than the largest id
        :param directed: False promises that every edge is there in both directions (PyTorch Geometric's
            ``data.is_undirected()``); that is checked
        :raises InputError: the shape is not (2, m), or naming the first id that is out of range
        """
        directed = as_flag(directed, "directed")
        on_gpu = lies_on_gpu(edge_index) and len(getattr(edge_index, "shape", ())) == 2
        pairs = edge_index if on_gpu else as_array(edge_index, "edge_index")
        if pairs.ndim != 2 or len(pairs) != 2:
            raise InputError(f"edge_index must have shape (2, m), got {tuple(pairs.shape)}")
        graph = Graph.from_edges(pairs[0], pairs[1], edge_weight, vertex_count=vertex_count)
        return graph if directed else graph._checked_undirected()

    def _checked_undirected(self) -> Graph:
        """Return the graph as an undirected one; InputError if an arc has no reverse."""
        from godwit.graph.facts import is_symmetric

        if is_symmetric(self, weighted=True):
            return Graph.of_rows(self.stored, directed=False, ids=self._ids)
        return Graph(*self.rows, directed=False)

    @staticmethod
    @public
    def from_table(
        table: Any,
        source: str | int | None = None,
        target: str | int | None = None,
        weight: str | int | None = None,
        *,
        directed: bool | None = None,
        relabel: bool | None = None,
    ) -> Graph:
        """Return the graph of a table with a row per arc: of pandas, Polars, Arrow or any library whose
        tables have ``__arrow_c_stream__`` or ``__dataframe__``, or a dictionary of columns.

        Ids are names, integers or texts: the vertices are those that occur, by ascending id, and functions
        take and give them by id (:attr:`ids`). Parallel arcs and self-loops are kept. Further columns
        become :attr:`edge_data`: numbers and truth values in arrays of their dtypes, all else as objects,
        None where a value is missing (NaN in a column of floats). Columns that are not wanted take time
        and memory: ``table[["user", "friend"]]`` goes without.

        >>> import pandas as pd
        >>> graph = Graph.from_table(pd.DataFrame({"user": [10, 20], "friend": [20, 30]}))
        >>> list(graph.ids)
        [10, 20, 30]
        >>> roads = pd.DataFrame({"from": ["Ulm", "Bonn"], "to": ["Bonn", "Jena"], "road": ["A8", "A4"]})
        >>> Graph.from_table(roads).edge_data["road"].tolist()
        ['A4', 'A8']

        :param source: name of the column of sources, an integer where pandas has numbered the columns; by
            default columns are recognized by their usual names, else the first two are taken, and a third
            if it has a usual name of weights
        :param target: name of the column of targets
        :param weight: name of the column of weights; None: no weights, if sources and targets are named
        :param directed: False: each row is an edge. None: directed, unless :meth:`to_arrow` made the
            table of an undirected graph
        :param relabel: False: ids are not names, but positions, counted from 0 to the largest. None: they
            are names, unless :meth:`to_arrow` made the table of a graph without ids. True: they are names
        :raises InputError: naming the column, or the row (counted from 0)
        """
        from godwit.graph.interchange import tables

        arc_list, options, edge_data = tables.list_table_arcs(
            table, source, target, weight, directed, relabel
        )
        made = assemble(arc_list, options)
        if edge_data:
            row_of_arc = assemble(arc_list.numbered(), options).weights
            edge_data = taken(edge_data, as_array(row_of_arc, "rows"))
        return made._with_data(NO_COLUMNS, edge_data)

    def to_arrow(self) -> Any:
        """Return the arcs as a ``pyarrow.Table``; of an undirected graph each edge once.

        Columns ``source`` and ``target`` hold ids (:attr:`ids`; objects as texts), ``weight`` weights, and
        further ones :attr:`edge_data`: objects for which Arrow has no type as texts, and with underscores
        behind names that other columns have. :attr:`vertex_data` is not in it. The metadata of the schema
        has what :meth:`from_table` needs to make the same graph, vertices without arcs included if ids are
        consecutive.
        """
        from godwit.graph.interchange import tables

        return tables.arc_table(self.rows, self.ids, self.directed, self._edge_data)

    def to_frame(self) -> Any:
        """Return the table of :meth:`to_arrow` as a ``pandas.DataFrame``, which has no metadata.

        :raises InputError: pandas is not installed
        """
        from godwit.graph.interchange import tables

        return tables.to_frame(self.to_arrow(), nullable=False)

    def to_scipy(self, *, merge: Merge | None = None) -> Any:
        """Return the adjacency matrix as a ``scipy.sparse.csr_array``; data is True where unweighted.

        Targets and weights are shared, not copied, where SciPy's index dtype allows: with m or n of
        2**31 or more both index arrays become int64. Shared arrays are read-only. An arc of weight 0 is a
        stored zero, which ``scipy.sparse.csgraph`` takes for an edge.

        :param merge: the weight of the one entry that parallel arcs become, as in
            :meth:`merge_parallel_arcs`: ``"min"`` keeps shortest paths. None: a graph with parallel arcs is
            refused, because SciPy's functions add duplicate entries up
        :raises InputError: naming the vertices that parallel arcs connect
        """
        from godwit.graph.interchange import libraries

        return libraries.to_scipy(self.rows, merge)

    def to_networkx(self) -> Any:
        """Return the graph as a NetworkX graph whose nodes are the :attr:`ids`.

        A DiGraph, or a Graph if undirected; a MultiDiGraph or MultiGraph if there are parallel arcs.
        Weights become the attribute ``weight`` of edges; :attr:`vertex_data` and :attr:`edge_data` become
        attributes of their names.

        :raises InputError: NetworkX is not installed
        """
        from godwit.graph.interchange import libraries

        return libraries.to_networkx(
            self.rows, self.ids, self.directed, self._vertex_data, self._edge_data
        )

    def to_igraph(self) -> Any:
        """Return the graph as an ``igraph.Graph``; :attr:`ids` of its own become the attribute ``name``.

        Weights become the attribute ``weight`` of edges; :attr:`vertex_data` and :attr:`edge_data` become
        attributes of their names.

        :raises InputError: igraph is not installed, or an attribute has no text as its name
        """
        from godwit.graph.interchange import libraries

        return libraries.to_igraph(
            self.rows, self.ids, self.directed, self._vertex_data, self._edge_data
        )

    def to_networkit(self) -> Any:
        """Return the graph as a ``networkit.Graph`` of vertices 0 to n - 1; weights are float64.

        networkit has no names: ``graph.ids[p]`` is the id of its node p.

        :raises InputError: networkit is not installed
        """
        from godwit.graph.interchange import libraries

        return libraries.to_networkit(*self.to_edges(), self.vertex_count, self.directed)

    def to_edges(self) -> tuple[Array, Array, Array | None]:
        """Return sources, targets and weights (or None) of all arcs; of an undirected graph each edge once.

        ``Graph.from_edges(*graph.to_edges(), vertex_count=graph.vertex_count, directed=graph.directed)``
        makes the same graph, without ids.

        >>> Graph.from_edges([0, 1], [1, 2], directed=False).to_edges()
        (array([0, 1], dtype=int32), array([1, 2], dtype=int32), None)

        :returns: positions, (k) in the dtype of ``targets``; (k) weights. Edges lead to the higher position
        """
        from godwit.graph.build import row_sources

        _, targets, weights = self.rows
        sources = row_sources(self.offsets, targets.dtype)
        if self._directed:
            return sources, targets, weights
        once = sources <= targets
        return sources[once], targets[once], None if weights is None else weights[once]

    @property
    def vertex_data(self) -> Columns:
        """Attributes of vertices: (n) values by position, by the name of the attribute.

        They come from graphs of NetworkX and igraph, and :meth:`with_vertex_data`. Graphs that are made of
        this one have them, too, as have those of :meth:`to_networkx` and :meth:`to_igraph`, and files
        of GraphML; other files do not.

        >>> import networkx as nx
        >>> graph = Graph.from_networkx(nx.karate_club_graph()).subgraph([1, 33])
        >>> graph.vertex_data["club"].tolist()
        ['Mr. Hi', 'Officer']
        """
        return self._vertex_data

    @property
    def edge_data(self) -> Columns:
        """Attributes of edges but weights: (m) values in the order of ``targets``, by the name.

        As :attr:`vertex_data`, but tables have them, too (:meth:`from_table`, :meth:`to_arrow`,
        :meth:`to_frame`). Where several arcs become one, it has the values of the first.
        """
        return self._edge_data

    def with_vertex_data(self, columns: Mapping[Any, Any]) -> Graph:
        """Return the graph with further attributes of vertices; those of the same names are replaced.

        >>> graph = Graph.from_edges([0, 1], [1, 2], ids=["Bonn", "Ulm", "Jena"])
        >>> graph.with_vertex_data({"people": [336, 129, 110]}).to_networkx().nodes["Ulm"]
        {'people': 129}

        :param columns: (n) values by position, by the name of the attribute: ``{"rank": result.rank}``; or
            values by id, a mapping or a pandas Series: ``{"rank": result.to_dict()}``
        :raises InputError: a column has another shape, or lacks a vertex
        """
        if isinstance(columns, Mapping):
            columns = {
                name: self._ids.ordered(values, f"column {shown(name)}")
                for name, values in columns.items()
            }
        added = checked_columns(columns, self.vertex_count)
        return self._copy()._with_data({**self._vertex_data, **added}, self._edge_data)

    def with_edge_data(self, columns: Mapping[Any, Any]) -> Graph:
        """Return the graph with further attributes of edges; those of the same names are replaced.

        :param columns: (m) values in the order of ``targets``, by the name of the attribute; of an
            undirected graph the same in both directions, as :meth:`to_networkx` takes one of them
        :raises InputError: a column has another shape
        """
        added = checked_columns(columns, self.arc_count)
        return self._copy()._with_data(self._vertex_data, {**self._edge_data, **added})

    def _with_data(self, vertex_data: Any, edge_data: Any) -> Graph:
        """Set the attributes of a graph that was just made, and return it."""
        self._vertex_data = columns_as_given(vertex_data)
        self._edge_data = columns_as_given(edge_data)
        return self

    def _copy(self) -> Graph:
        return Graph.of_rows(self.stored, directed=self._directed, ids=self._ids)

    @property
    def stored(self) -> Rows | RowsOnGpu:
        """Offsets, targets and weights, where they lie: on the host or on a GPU."""
        self._run_check()
        return self._rows

    @property
    def rows(self) -> Rows:
        """Offsets, targets and weights on the host; copied there first if they lie on a GPU."""
        return self.stored.on_host()

    @property
    def offsets(self) -> Array:
        """(n + 1) int64: the position in ``targets`` of the first arc of each vertex."""
        return self.stored.offsets

    @property
    def targets(self) -> Array:
        """(m) int32 or int64: the vertex that each arc leads to."""
        return self.stored.targets

    @property
    def weights(self) -> Array | None:
        """(m) weights of the arcs, or None."""
        return self.stored.weights

    @property
    def id_dtype(self) -> np.dtype[Any]:
        """Dtype of ``targets``: int32 or int64."""
        return self._rows.id_dtype

    @property
    def weight_dtype(self) -> np.dtype[Any] | None:
        """Dtype of the weights; None if there are none."""
        return self._rows.weight_dtype

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
        """Ids of the vertices: ``ids[p]`` is the id of the vertex at position p of all arrays,
        ``ids.position(id)`` the position of an id.

        Where ``ids.own`` is True, every vertex argument and every dictionary is by id; else vertices are
        0 to n - 1. Arrays are by position in both cases.
        """
        self._run_check()
        return self._ids

    @property
    def is_weighted(self) -> bool:
        """True if arcs have weights."""
        return self._rows.weight_dtype is not None

    @property
    def vertex_count(self) -> int:
        """The number of vertices, n."""
        return self._rows.vertex_count

    @property
    def arc_count(self) -> int:
        """The number of stored arcs, m."""
        return self._rows.arc_count

    @property
    def edge_count(self) -> int | None:
        """The number of edges, self-loops included; None for a directed graph."""
        if self._directed:
            return None
        return (self.arc_count + self.degree_statistics().self_loops) // 2

    @property
    def nbytes(self) -> int:
        """Bytes of offsets, targets and weights; derived arrays that are kept are not counted."""
        return self._rows.nbytes

    def cached(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Return the value kept under ``key``, computed on first use: graphs do not change."""
        try:
            return self._cache[key]
        except KeyError:
            return self._cache.setdefault(key, compute())

    @property
    def reverse(self) -> Graph:
        """The graph with every arc reversed, made once; an undirected graph is its own reverse."""
        if not self._directed:
            return self
        # Held weakly: a reference cycle would keep both in memory until the garbage collector runs.
        original = None if self._original is None else self._original()
        if original is not None:
            return original
        reverse: Graph = self.cached("reverse", self._make_reverse)
        return reverse

    def _make_reverse(self) -> Graph:
        from godwit.graph.transform import reversed_rows

        reverse = self._with_rows(reversed_rows(self.rows), like=reversed_rows)
        reverse._original = weakref.ref(self)
        return reverse

    def out_degree(self) -> Array:
        """Return the number of arcs that leave each vertex: (n) int64."""
        return np.diff(self.offsets)

    def in_degree(self) -> Array:
        """Return the number of arcs that lead to each vertex: (n) int64."""
        from godwit.graph.facts import in_offsets

        return np.diff(in_offsets(self))

    def highest_degree_vertex(self) -> Any:
        """Return the id of the vertex with most out-arcs (:attr:`ids`); of several the first in arrays."""
        if self.vertex_count == 0:
            raise InputError("a graph without vertices has no vertex of highest degree")
        return self.ids[self.cached("highest degree", lambda: int(np.argmax(self.out_degree())))]

    def degree_statistics(self) -> DegreeStatistics:
        """Return smallest, largest, mean and median out-degree, isolated vertices, self-loops."""
        from godwit.graph.facts import degree_statistics

        statistics: DegreeStatistics = self.cached(
            "degree statistics", lambda: degree_statistics(self.rows)
        )
        return statistics

    @property
    def has_sorted_rows(self) -> bool:
        """True if the targets of every row ascend (parallel arcs allowed)."""
        from godwit.graph.transform import has_sorted_rows

        return bool(self.cached("sorted rows", lambda: has_sorted_rows(self.rows)))

    def symmetrize(self, merge: Merge | None = "min") -> Graph:
        """Return the undirected graph with an edge wherever there is an arc in either direction.

        :param merge: which weight an edge gets from the arcs that it replaces, as in
            :meth:`merge_parallel_arcs`; None turns every arc into an edge of its own
        :returns: itself, if already undirected
        """
        from godwit.graph.transform import merge_code, symmetrized

        if merge is not None:
            merge_code(merge)
        if not self._directed:
            return self
        return self._with_rows(
            symmetrized(self.rows, merge),
            False,
            like=lambda rows: symmetrized(rows, None if merge is None else "min"),
        )

    def remove_self_loops(self) -> Graph:
        """Return the graph without arcs from a vertex to itself; itself, if there are none."""
        from godwit.graph.transform import without_self_loops

        return self._with_rows(without_self_loops(self.rows), like=without_self_loops)

    def merge_parallel_arcs(self, how: Merge = "min") -> Graph:
        """Return the graph with at most one arc from any vertex to any other, rows sorted by target.

        :param how: the weight of the arc that remains: the smallest, the largest, the sum or the
            first of the weights of parallel arcs
        :raises ValueOverflowError: if a sum of integers, or part of it, does not fit their dtype
        """
        from godwit.graph.transform import merged

        return self._with_rows(merged(self.rows, how), like=lambda rows: merged(rows, "min"))

    def replicate(self, count: int) -> Graph:
        """Return ``count`` disjoint copies of the graph as one graph; itself, if that is 1.

        Position p of copy c, counted from 0, is position ``c * vertex_count + p``, with the same weights;
        ids that are a range of integers count on.

        :raises InputError: if vertices have other ids (:attr:`ids`), which must be distinct
        :raises GraphTooLargeError: before anything is allocated
        """
        from godwit.graph.transform import replicated

        count = as_count(count, "count", 1)
        if count == 1:
            return self
        if not self.ids.is_range:
            raise InputError(
                f"{shown(count)} copies cannot share {self.ids.described}; "
                "call with_ids(0) first to go without"
            )
        rows = replicated(self.rows, count)
        return self._with_rows(
            rows,
            ids=self._ids.extended(rows.vertex_count),
            vertices=np.tile(np.arange(self.vertex_count), count),
            like=lambda rows: replicated(rows, count),
        )

    @public
    def plot(self, values: Any = None, *, label: str | None = None, ax: Axes | None = None) -> Axes:
        """Draw a small graph with matplotlib, by a layout of NetworkX or igraph.

        Up to 50 vertices have their ids beside them. The drawing is the same in every call.

        :param values: (n) numbers that color the vertices, such as ``gw.pagerank(graph).rank``; or by id, a
            mapping or a pandas Series
        :param label: what the numbers are
        :param ax: axes to draw on; None for a new figure
        :returns: the axes; ``ax.figure.savefig("graph.pdf")`` writes a file
        :raises InputError: over 2,000 vertices, wrong values, or a library is not installed
        """
        from godwit.graph.drawing import draw

        return draw(self, self._ids.ordered(values, "values"), label, ax)

    def plot_degrees(self, ax: Axes | None = None) -> Axes:
        """Plot how many vertices have each out-degree, on logarithmic scales.

        :param ax: axes of matplotlib to draw on; None for a new figure
        :returns: the axes; ``ax.figure.savefig("degrees.pdf")`` writes a file
        :raises InputError: matplotlib is not installed
        """
        return plot_frequencies(self.out_degree(), "out-degree", ax)

    def relabel(self, permutation: Any) -> Graph:
        """Return the graph with the vertex at position p moved to ``permutation[p]``; rows are sorted.

        Vertices keep their ids (:attr:`ids`) where ``ids.own`` is True.

        :param permutation: (n) positions, each of 0 .. n - 1 once
        """
        from godwit.graph.transform import checked_permutation, relabelled

        positions = checked_permutation(permutation, self.vertex_count)
        vertices = np.argsort(positions)
        return self._with_rows(
            relabelled(self.rows, positions),
            ids=self.ids.take(vertices) if self.ids.own else self.ids,
            vertices=vertices,
            like=lambda rows: relabelled(rows, positions),
        )

    def largest_component(self) -> Graph:
        """Return the largest weakly connected component; of several, the one with the first vertex.

        Vertices keep their order and their ids (:attr:`ids`); in a graph without ids, positions become ids:
        ``graph.ids.positions(list(component.ids))`` are their positions in this graph.

        :returns: itself, if it is connected
        """
        from godwit.graph.union_find import largest_component

        return self._part(*largest_component(self.rows, self._directed))

    @public
    def subgraph(self, vertices: Sources) -> Graph:
        """Return the subgraph that vertices induce: these, and all arcs between them, with their weights.

        Vertices keep the order that they have in this graph, and their ids (:attr:`ids`); in a graph
        without ids, positions become ids, so that functions take and give the same vertices for both.

        >>> graph = Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 1])
        >>> part = graph.subgraph([3, 1])
        >>> list(part.ids), part.neighbors(3)
        ([1, 3], [1])

        :param vertices: a vertex or several, by id, in any order; repetitions count once
        :returns: itself, if these are all vertices
        :raises InputError: a vertex does not exist
        :raises GraphTooLargeError: before anything large is allocated
        """
        from godwit.graph.subgraphs import induced

        positions = self._positions(vertices)
        whole = len(positions) == self.vertex_count
        return self._part(self.rows if whole else induced(self.rows, positions), positions)

    def _part(self, rows: Rows, positions: Array) -> Graph:
        """Return a part of the graph, whose vertices are at these positions of the graph."""
        from godwit.graph.subgraphs import induced

        return self._with_rows(
            rows,
            ids=self._ids.take(positions),
            vertices=positions,
            like=lambda rows: induced(rows, positions),
        )

    def _positions(self, vertices: Sources) -> Array:
        """Return the positions of a vertex or several, ascending, in the dtype of the targets."""
        positions = self.ids.one_or_several(vertices, "vertices", or_none=True)
        return positions.astype(self.targets.dtype)

    @public
    def neighborhood(self, vertices: Sources, hops: int = 1) -> list[Any]:
        """Return the vertices that paths of at most ``hops`` arcs lead to from a vertex, or from several.

        The vertices themselves are among them. ``graph.subgraph(graph.neighborhood(v, 2))`` is NetworkX's
        ``ego_graph(graph, v, 2)``.

        >>> Graph.from_edges([0, 1, 2], [1, 2, 3]).neighborhood(0, hops=2)
        [0, 1, 2]

        :param vertices: a vertex or several, by id
        :returns: by id, in the order of positions
        :raises InputError: a vertex does not exist, or ``hops`` is negative
        """
        from godwit.graph.subgraphs import within_hops

        hops = as_count(hops, "hops")
        return self.ids.of(within_hops(self.rows, self._positions(vertices), hops))

    def neighbors(self, vertex: Vertex) -> list[Any]:
        """Return the vertices that the out-arcs of a vertex lead to, each once.

        ``graph.reverse.neighbors(v)`` are those that in-arcs come from.

        >>> Graph.from_edges([0, 0], [1, 2], ids=["Bonn", "Ulm", "Jena"]).neighbors("Bonn")
        ['Ulm', 'Jena']

        :param vertex: by id
        :returns: by id, in the order of positions
        :raises InputError: the vertex does not exist
        """
        begin, end = self._row(vertex)
        return self.ids.of(np.unique(self.targets[begin:end]))

    def edge_weight(self, source: Vertex, target: Vertex) -> int | float:
        """Return the weight of the arc from one vertex to another; 1 if the graph has no weights.

        Of parallel arcs the least weight is returned.

        >>> Graph.from_edges([0, 1], [1, 2], [5, 7]).edge_weight(1, 2)
        7

        :param source: by id
        :param target: by id
        :raises InputError: a vertex does not exist, or there is no such arc
        """
        begin, end = self._row(source, "source")
        at = np.flatnonzero(self.targets[begin:end] == self.ids.position(target, "target"))
        if len(at) == 0:
            raise InputError(f"there is no arc from {shown(source)} to {shown(target)}")
        weights = self.weights
        return 1 if weights is None else weights[begin:end][at].min().item()

    def _row(self, vertex: Vertex, what: str = "vertex") -> tuple[int, int]:
        """Return the range of a vertex' arcs in ``targets``."""
        position = self.ids.position(vertex, what)
        return int(self.offsets[position]), int(self.offsets[position + 1])

    def with_weights(self, weights: Any) -> Graph:
        """Return the graph with other weights: (m) numbers, in the order of ``targets``."""
        rows = self.rows._replace(weights=as_weights(weights, self.arc_count))
        if not self._directed and rows.weights is not None:
            from godwit.graph.facts import check_symmetric

            check_symmetric(rows)
        return self._with_rows(rows)

    def without_weights(self) -> Graph:
        """Return the graph without weights; itself, if it has none."""
        if not self.is_weighted:
            return self
        made = Graph.of_rows(self.stored.without_weights(), directed=self._directed, ids=self._ids)
        return made._with_data(self._vertex_data, self._edge_data)

    def with_random_weights(self, low: float, high: float, seed: int = 0) -> Graph:
        """Return the graph with random weights.

        The weight of u -> v is a hash of {u, v} and the seed: equal in both directions, and the
        same on every machine. Two integers give integers in [low, high], both included, int32 if
        they fit, else int64; if either is a float, weights are float64 in [low, high).
        """
        from godwit.graph.hashing import random_weights

        weights = random_weights(self.rows, low, high, seed)
        return self._with_rows(self.rows._replace(weights=weights))

    def with_ids(self, ids: Any) -> Graph:
        """Return the graph with other ids, as of ``Graph(...)``; 0 for none but the numbers 0 to n - 1."""
        made = Graph.of_rows(self.stored, directed=self._directed, ids=ids)
        return made._with_data(self._vertex_data, self._edge_data)

    def _with_rows(
        self,
        rows: Rows,
        directed: bool | None = None,
        ids: VertexIds | None = None,
        *,
        vertices: Array | None = None,
        like: Callable[[Rows], Rows] | None = None,
    ) -> Graph:
        """Return the graph with other rows, direction or ids; the graph itself if the rows are its own.

        :param vertices: which vertex of this graph each vertex is; None if they are the same
        :param like: a function that makes these rows of those of this graph; None if arcs are the same
        """
        if rows is self.rows:
            return self
        made = Graph.trusted(
            *rows,
            directed=self._directed if directed is None else directed,
            ids=self._ids if ids is None else ids,
        )
        vertex_data, edge_data = self._vertex_data, self._edge_data
        if vertex_data and vertices is not None:
            vertex_data = taken(vertex_data, vertices)
        if edge_data and like is not None:
            edge_data = taken(edge_data, arcs_after(like, self.rows))
        return made._with_data(vertex_data, edge_data)

    def __reduce__(self) -> tuple[Any, ...]:
        data = (dict(self._vertex_data), dict(self._edge_data))
        return _restored, (*self.rows, self._directed, self._ids, *data)

    def __repr__(self) -> str:
        kind = "directed" if self._directed else "undirected"
        weights = "" if self.weight_dtype is None else f", {self.weight_dtype} weights"
        return (
            f"<Graph: {self.vertex_count:,} vertices, {self.arc_count:,} arcs, {kind}, "
            f"{self.id_dtype} ids{weights}>"
        )

    def _repr_html_(self) -> str:
        return table_of_facts("Graph", self._facts())

    def _facts(self) -> dict[str, str]:
        """Return what a notebook shows of the graph, by name."""
        facts = {
            "vertices": f"{self.vertex_count:,}",
            "arcs": f"{self.arc_count:,}, {self.targets.dtype} targets",
            "directed": "yes" if self._directed else "no: an edge is two arcs, a self-loop one",
            "weights": self._described_weights(),
            "ids": self._described_ids(),
        }
        for name, columns in (("vertex_data", self._vertex_data), ("edge_data", self._edge_data)):
            if columns:
                facts[name] = ", ".join(map(str, columns))
        facts["memory"] = readable_bytes(self.nbytes)
        return facts

    def _described_weights(self) -> str:
        """Return dtype and range of the weights, the range if it is found in a moment."""
        weights = self.weights
        if weights is None:
            return "none"
        if not 0 < len(weights) <= _MOST_SHOWN_WEIGHTS:
            return str(weights.dtype)
        low, high = self.cached("weight range", lambda: (weights.min(), weights.max()))
        style = ",.6g" if weights.dtype.kind == "f" else ","
        return f"{weights.dtype}, {low:{style}} to {high:{style}}"

    def _described_ids(self) -> str:
        """Return the first and the last id, and their kind if they are no range of integers."""
        ids = self.ids
        if len(ids) == 0:
            return "none"
        first_and_last = f"{shown(ids[0])} to {shown(ids[len(ids) - 1])}"
        return first_and_last if ids.is_range else f"{ids.kind}, {first_and_last}"


def _restored(
    offsets: Array, targets: Array, weights: Array | None, directed: bool, ids: VertexIds,
    vertex_data: Any, edge_data: Any,
) -> Graph:  # fmt: skip
    made = Graph.trusted(offsets, targets, weights, directed=directed, ids=ids)
    return made._with_data(vertex_data, edge_data)


def assemble(arc_list: ArcList, options: ReadOptions) -> Graph:
    """Return the graph of a list of arcs, as the options of reading ask for it.

    :raises GraphTooLargeError: before anything large is allocated
    """
    rows, directed = arc_list.to_rows(options)
    return Graph.trusted(*rows, directed=directed, ids=arc_list.ids)


def _frozen_rows(offsets: Array, targets: Array, weights: Array | None) -> Rows:
    return Rows(
        frozen(offsets, np.int64),
        frozen(targets, targets.dtype),
        None if weights is None else frozen(weights, weights.dtype),
    )


def _as_endpoints(endpoints: Any, name: str) -> Array:
    """Return endpoints as integers; InputError, naming what takes texts, where they are none."""
    array = as_array(endpoints, name)
    if array.dtype.kind in "OUT" and array.size:
        raise InputError(
            f"{name} must be integers, got {array.dtype}: Graph.from_table makes a graph of a table "
            "with texts as ids"
        )
    return as_integers(array, name)


def _count_vertices(sources: Array, targets: Array, vertex_count: int | None) -> int:
    """Return the number of vertices, after a check that all ids are in range."""
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
