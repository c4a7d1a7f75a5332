"""A sparse matrix is a graph: each stored entry (i, j) is an arc i -> j, whose weight is its value.

The rows of a csr matrix are those of a graph, the columns of a csc matrix those of its reverse.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.dtypes import Array, as_flag, id_dtype_for
from godwit.errors import InputError
from godwit.graph.csr import Graph, Merge
from godwit.graph.transform import merged, parallel_arcs


def from_scipy(matrix: Any, directed: bool) -> Graph:
    """See :meth:`Graph.from_scipy`."""
    directed = as_flag(directed, "directed")
    shape = getattr(matrix, "shape", None)
    if isinstance(matrix, type) or not hasattr(matrix, "tocsr") or shape is None:
        raise InputError(f"matrix must be a scipy.sparse matrix, got {type(matrix).__name__}")
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InputError(f"matrix must be square, got shape {shape}")
    if matrix.format == "coo":
        weights = _matrix_weights(matrix.data)
        graph = Graph.from_edges(matrix.row, matrix.col, weights, vertex_count=int(shape[0]))
        if directed:
            return graph
        return Graph(graph.offsets, graph.targets, graph.weights, directed=False)
    transposed = matrix.format == "csc"
    if not transposed and matrix.format != "csr":
        matrix = matrix.tocsr()
    weights = _matrix_weights(matrix.data)
    graph = Graph(matrix.indptr, matrix.indices, weights, directed=directed)
    graph = Graph.trusted(
        graph.offsets,
        graph.targets.astype(id_dtype_for(graph.vertex_count), copy=False),
        graph.weights,
        directed=directed,
    )
    if not transposed or not directed:
        return graph
    reverse = graph.reverse
    return Graph.trusted(reverse.offsets, reverse.targets, reverse.weights)


def to_scipy(graph: Graph, merge: Merge | None) -> Any:
    """See :meth:`Graph.to_scipy`."""
    from scipy.sparse import csr_array

    if merge is not None:
        graph = merged(graph, merge, name="merge")
    elif (parallel := parallel_arcs(graph)) is not None:
        u, v = parallel
        raise InputError(
            f"the graph has parallel arcs from vertex {u} to vertex {v}, which SciPy's functions add up: "
            "merge='min' keeps the smallest weight for shortest paths; 'max', 'sum' and 'first' work, too"
        )
    n, m = graph.vertex_count, graph.arc_count
    data = np.ones(m, np.bool_) if graph.weights is None else graph.weights
    index_dtype = np.int32 if max(n, m) < 2**31 else np.int64
    indices = graph.targets.astype(index_dtype, copy=False)
    indptr = graph.offsets.astype(index_dtype, copy=False)
    return csr_array((data, indices, indptr), shape=(n, n), copy=False)


def _matrix_weights(data: Array) -> Array | None:
    """Weights of the entries of a matrix; None for a boolean one, whose entries all say True."""
    if data.dtype != np.bool_:
        return data
    if not data.all():
        raise InputError("a boolean matrix must not store False: call eliminate_zeros() first")
    return None
