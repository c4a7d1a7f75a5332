"""Graphs of other libraries as rows or lists of edges, and back: NetworkX, igraph, networkit, SciPy.

No library is imported to read one of its graphs: the graph brings its own methods.

- NetworkX keeps a dictionary of neighbours for every node: the rows of a graph as they are. An undirected
  NetworkX graph has each edge in the rows of both its ends, and a self-loop once, as Godwit does.
- igraph and networkit list edges.
- A stored entry (i, j) of a sparse matrix is an arc i -> j, whose weight is its value.

A weight that is an attribute is a number of Python or NumPy, and keeps its value. Either all edges have one
or none has: a missing weight has no obvious meaning.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np

from godwit.dtypes import Array, id_dtype_for
from godwit.errors import InputError, shown
from godwit.graph.attributes import (
    NO_COLUMNS,
    Columns,
    arcs_after,
    columns_as_given,
    columns_of,
    dictionaries_of,
    taken,
)
from godwit.graph.build import row_sources
from godwit.graph.facts import parallel_arcs
from godwit.graph.foreign import kind_of
from godwit.graph.ids import MAXIMAL_ID_BASE, VertexIds
from godwit.graph.rows import Rows
from godwit.graph.transform import Merge, merged, sorted_rows

DEFAULT_WEIGHT = "weight"
"""The attribute that is taken for weights by default."""

_WHOLE = (int, np.integer, np.bool_)
_REAL = (*_WHOLE, float, np.float32, np.float16)
_EXACT_FLOAT = 2**53


def read_networkx(source: Any, weight: Any) -> tuple[Rows, Any, Columns, Columns]:
    """Return rows, ids, and data of vertices and arcs; see :meth:`Graph.from_networkx`."""
    _require_instance(source, "a networkx.Graph", ("adjacency", "is_multigraph"))
    try:
        hash(weight)
    except TypeError:
        raise InputError(
            f"weight must be the name of an attribute, or None, got {shown(weight)}"
        ) from None
    labels = list(source)
    rows = [row for _, row in source.adjacency()]  # {neighbour: attributes}
    offsets = _ends(list(map(len, rows)))
    targets = _vertices(labels, chain.from_iterable(rows), int(offsets[-1]))
    attributes = chain.from_iterable(row.values() for row in rows)
    if source.is_multigraph():  # {neighbour: {key: attributes}}
        keys = list(attributes)
        counts = list(map(len, keys))
        offsets, targets = _ends(counts)[offsets], np.repeat(targets, counts)
        attributes = chain.from_iterable(by_key.values() for by_key in keys)

    def edge(i: int) -> str:
        tail = labels[int(np.searchsorted(offsets, i, side="right")) - 1]
        return f"({shown(tail)}, {shown(labels[targets[i]])})"

    weights = None
    of_edges = list(attributes)
    if weight is not None:
        weights = _weights_of([of_edge.get(weight) for of_edge in of_edges], weight, edge)
    _require_weights(weights, weight, len(targets))
    vertex_data = columns_of(of_node for _, of_node in source.nodes(data=True))
    edge_data = NO_COLUMNS
    if sum(map(len, of_edges)) > (0 if weights is None else len(targets)):
        edge_data = columns_of(of_edges, without=weight)
    return Rows(offsets, targets, weights), _ids_of(labels), vertex_data, edge_data


def _ends(lengths: list[int]) -> Array:
    """Return the offsets of rows of these lengths: (k + 1) int64."""
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    return ends


def _vertices(labels: list[Any], heads: Iterable[Any], count: int) -> Array:
    """Return the vertex of each head, by its position among the labels: (m) ids."""
    dtype = id_dtype_for(len(labels))
    first = _ids_of(labels)
    if isinstance(first, int):
        return (np.fromiter(heads, np.int64, count) - first).astype(dtype)
    vertex = dict(zip(labels, range(len(labels)), strict=True))
    return np.fromiter(map(vertex.__getitem__, heads), dtype, count)


def to_networkx(
    rows: Rows, ids: VertexIds, directed: bool, vertex_data: Columns, edge_data: Columns
) -> Any:
    """Return a NetworkX graph of rows; see :meth:`Graph.to_networkx`."""
    try:
        import networkx as nx
    except ImportError:
        raise InputError("NetworkX is not installed: pip install networkx") from None

    if edge_data:
        edge_data = taken(edge_data, arcs_after(sorted_rows, rows))
    rows = sorted_rows(rows)
    tails, heads, weights, edge_data = _edges_once(rows, directed, edge_data)
    if parallel_arcs(rows) is not None:
        graph = nx.MultiDiGraph() if directed else nx.MultiGraph()
    else:
        graph = nx.DiGraph() if directed else nx.Graph()
    names = ids.of(np.arange(rows.vertex_count))
    name = names.__getitem__
    pairs = (map(name, tails.tolist()), map(name, heads.tolist()))
    with collector_paused():
        if vertex_data:
            graph.add_nodes_from(zip(names, dictionaries_of(vertex_data), strict=True))
        else:
            graph.add_nodes_from(names)
        if edge_data:
            if weights is not None:
                edge_data = {**edge_data, DEFAULT_WEIGHT: weights}
            graph.add_edges_from(zip(*pairs, dictionaries_of(edge_data), strict=True))
        elif weights is None:
            graph.add_edges_from(zip(*pairs, strict=True))
        else:
            graph.add_weighted_edges_from(zip(*pairs, weights.tolist(), strict=True))
    return graph


def _edges_once(
    rows: Rows, directed: bool, edge_data: Columns
) -> tuple[Array, Array, Array | None, Columns]:
    """Return sources, targets, weights and data of arcs; of undirected graphs of each edge once."""
    sources = row_sources(rows.offsets, rows.targets.dtype)
    _, targets, weights = rows
    if directed:
        return sources, targets, weights, edge_data
    once = np.flatnonzero(sources <= targets)
    weights = None if weights is None else weights[once]
    return sources[once], targets[once], weights, taken(edge_data, once)


def to_igraph(
    rows: Rows, ids: VertexIds, directed: bool, vertex_data: Columns, edge_data: Columns
) -> Any:
    """Return an igraph graph of rows; see :meth:`Graph.to_igraph`."""
    try:
        import igraph
    except ImportError:
        raise InputError("igraph is not installed: pip install igraph") from None

    for key in (*vertex_data, *edge_data):
        if not isinstance(key, str):
            raise InputError(f"igraph names attributes by texts, and one is called {shown(key)}")
    tails, heads, weights, edge_data = _edges_once(rows, directed, edge_data)
    pairs = np.column_stack((tails, heads))
    graph = igraph.Graph(n=rows.vertex_count, edges=pairs, directed=directed)
    for key, values in vertex_data.items():
        graph.vs[key] = values.tolist()
    if ids.own:
        graph.vs["name"] = list(ids)
    for key, values in edge_data.items():
        graph.es[key] = values.tolist()
    if weights is not None:
        graph.es[DEFAULT_WEIGHT] = weights.tolist()
    return graph


def to_networkit(
    sources: Array, targets: Array, weights: Array | None, vertex_count: int, directed: bool
) -> Any:
    """Return a networkit graph of edges; see :meth:`Graph.to_networkit`."""
    try:
        import networkit
    except ImportError:
        raise InputError("networkit is not installed: pip install networkit") from None

    graph = networkit.Graph(vertex_count, weighted=weights is not None, directed=directed)
    if weights is None:
        weights = np.ones(len(sources))
    values = weights.astype(np.float64, copy=False)
    graph.addEdges((values, (sources.astype(np.uint64), targets.astype(np.uint64))))
    return graph


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause garbage collection, which would visit the dictionary of every edge again and again."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def read_igraph(source: Any, weight: str | None) -> dict[str, Any]:
    """Return the arguments of :meth:`Graph.from_edges` for an igraph graph."""
    _require_instance(source, "an igraph.Graph", ("get_edgelist", "vs"))
    if not isinstance(weight, str | None):
        raise InputError(f"weight must be the name of an attribute, or None, got {shown(weight)}")
    ids: Any = 0
    if "name" in source.vs.attributes():
        ids = source.vs["name"]
        for vertex, name in enumerate(ids):
            if name is None:
                raise InputError(
                    f"vertex {vertex} has no 'name': give every vertex one, or none "
                    "(del graph.vs['name'])"
                )
    m = source.ecount()
    pairs = np.fromiter(chain.from_iterable(source.get_edgelist()), np.int64, 2 * m).reshape(m, 2)
    weights = None
    if weight is not None and weight in source.es.attributes():
        weights = _weights_of(source.es[weight], weight, lambda i: str(tuple(pairs[i].tolist())))
    _require_weights(weights, weight, m)
    return {
        "sources": pairs[:, 0],
        "targets": pairs[:, 1],
        "weights": weights,
        "vertex_count": source.vcount(),
        "directed": source.is_directed(),
        "ids": ids,
    }


def igraph_data(source: Any, weight: str | None) -> tuple[Columns, Columns]:
    """Return the attributes of vertices and edges of an igraph graph, but names and weights."""
    vertex_data = {key: source.vs[key] for key in source.vs.attributes() if key != "name"}
    edge_data = {key: source.es[key] for key in source.es.attributes() if key != weight}
    return columns_as_given(vertex_data), columns_as_given(edge_data)


def read_networkit(source: Any) -> dict[str, Any]:
    """Return the arguments of :meth:`Graph.from_edges` for a networkit graph."""
    _require_instance(source, "a networkit.Graph", ("iterEdgesWeights", "upperNodeIdBound"))
    n, m = source.numberOfNodes(), source.numberOfEdges()
    edge = np.dtype([("tail", np.int64), ("head", np.int64), ("weight", np.float64)])
    edges = np.fromiter(source.iterEdgesWeights(), edge, m)
    tails, heads = edges["tail"], edges["head"]
    ids: Any = 0
    if source.upperNodeIdBound() > n:  # nodes were removed; iterNodes ascends
        ids = np.fromiter(source.iterNodes(), np.int64, n)
        tails, heads = np.searchsorted(ids, tails), np.searchsorted(ids, heads)
    return {
        "sources": tails,
        "targets": heads,
        "weights": edges["weight"] if source.isWeighted() else None,
        "vertex_count": n,
        "directed": source.isDirected(),
        "ids": ids,
    }


def read_matrix(matrix: Any) -> tuple[Any, Array | None]:
    """Return a square sparse matrix in format csr, csc or coo, and its entries as weights.

    The rows of a csr matrix are those of a graph, the columns of a csc matrix those of its reverse.
    """
    shape = getattr(matrix, "shape", None)
    if isinstance(matrix, type) or not hasattr(matrix, "tocsr") or shape is None:
        raise InputError(
            f"matrix must be a scipy.sparse matrix, got {type(matrix).__name__}; "
            "scipy.sparse.csr_array(...) makes one of an array"
        )
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InputError(f"matrix must be square, got shape {shape}")
    if matrix.format not in ("csr", "csc", "coo"):
        matrix = matrix.tocsr()
    if matrix.dtype != np.bool_:
        return matrix, matrix.data
    if not matrix.data.all():
        raise InputError("a boolean matrix must not store False: call eliminate_zeros() first")
    return matrix, None


def to_scipy(rows: Rows, merge: Merge | None) -> Any:
    """Return a csr array of rows; see :meth:`Graph.to_scipy`."""
    from scipy.sparse import csr_array

    if merge is not None:
        rows = merged(rows, merge, name="merge")
    elif (parallel := parallel_arcs(rows)) is not None:
        u, v = parallel
        raise InputError(
            f"the graph has parallel arcs from vertex {u} to vertex {v}, which SciPy's functions add up: "
            "merge='min' keeps the smallest weight for shortest paths; 'max', 'sum' and 'first' work, too"
        )
    n, m = rows.vertex_count, rows.arc_count
    data = np.ones(m, np.bool_) if rows.weights is None else rows.weights
    index_dtype = np.int32 if max(n, m) < 2**31 else np.int64
    indices = rows.targets.astype(index_dtype, copy=False)
    indptr = rows.offsets.astype(index_dtype, copy=False)
    return csr_array((data, indices, indptr), shape=(n, n), copy=False)


def _require_instance(source: Any, expected: str, methods: tuple[str, ...]) -> None:
    """Refuse an object without a graph's methods, and a class, which has the methods as well.

    :raises InputError: naming what is expected
    """
    if isinstance(source, type):
        raise InputError(f"expected {expected}, got the class {source.__name__}")
    if not all(hasattr(source, method) for method in methods):
        raise InputError(f"expected {expected}, got a {kind_of(source)}")


def _weights_of(values: list[Any], name: Any, edge: Callable[[int], str]) -> Array | None:
    """Return (m) weights: int64, float64 or the dtype of NumPy's numbers; None if every value is None.

    :param values: the attribute of each edge, None where it has none
    :param name: the name of the attribute
    :param edge: a function that returns the name of edge i in messages
    :raises InputError: naming the first edge that has no weight while others do, or whose weight is no
        number, or does not fit the dtype of the others
    """
    types = set(map(type, values))
    if not types - {type(None)}:
        return None
    if type(None) in types:
        i = next(i for i, value in enumerate(values) if value is None)
        raise InputError(
            f"edge {edge(i)} has no {shown(name)}, and others have: give every edge one, or "
            "weight=None (weighted=False for a file)"
        )
    if not all(issubclass(kind, _REAL) for kind in types):
        i = next(i for i, value in enumerate(values) if not isinstance(value, _REAL))
        raise InputError(
            f"{shown(name)} of edge {edge(i)} must be an int or a float, got {shown(values[i])}"
        )
    whole = [issubclass(kind, _WHOLE) for kind in types]
    if all(whole):
        _check_range(values, name, edge)
        array = np.array(values)
        return array if array.dtype.kind in "ib" else np.array(values, np.int64)
    if any(whole):
        _check_exact(values, name, edge)
        return np.array(values, np.float64)
    return np.array(values)


def _require_weights(weights: Array | None, name: Any, edge_count: int) -> None:
    """Raise InputError for an attribute that no edge has, unless it is the default: it is misspelt."""
    if weights is None and name is not None and name != DEFAULT_WEIGHT and edge_count:
        raise InputError(f"no edge has {shown(name)}; weight=None makes a graph without weights")


def _check_range(values: list[Any], name: Any, edge: Callable[[int], str]) -> None:
    """Refuse integers beyond 64 bits."""
    if int(min(values)) >= -(2**63) and int(max(values)) < 2**63:
        return
    for i, value in enumerate(values):
        if not -(2**63) <= value < 2**63:
            raise InputError(
                f"{shown(name)} of edge {edge(i)} must be in [-2**63, 2**63), got {shown(value)}"
            )


def _check_exact(values: list[Any], name: Any, edge: Callable[[int], str]) -> None:
    """Refuse integers that float64 would round."""
    for i, value in enumerate(values):
        if not isinstance(value, _WHOLE) or abs(int(value)) <= _EXACT_FLOAT:
            continue
        if abs(int(value)) >= 2**1023 or int(float(value)) != int(value):
            raise InputError(
                f"{shown(name)} of edge {edge(i)}, {shown(value)}, does not fit float64, "
                "which other edges need"
            )


def _ids_of(labels: list[Any]) -> Any:
    """Return labels as ``Graph(..., ids=)`` takes them: the first where they are consecutive integers."""
    first = labels[0] if labels else 0
    if type(first) is not int or not 0 <= first <= MAXIMAL_ID_BASE:
        return labels
    consecutive = labels == list(range(first, first + len(labels)))
    return first if consecutive and set(map(type, labels)) <= {int} else labels
