"""Graphs of igraph and networkit, and PyTorch Geometric's arrays: lists of edges.

Neither library is imported: a graph that is handed over brings its own methods.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from godwit.arrays import lies_on_gpu
from godwit.dtypes import as_array, as_flag
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.interchange.attributes import require_instance, require_there, weights_of


def from_edge_index(
    edge_index: Any, edge_weight: Any, vertex_count: int | None, directed: bool
) -> Graph:
    """See :meth:`Graph.from_edge_index`."""
    directed = as_flag(directed, "directed")
    on_gpu = lies_on_gpu(edge_index) and len(getattr(edge_index, "shape", ())) == 2
    pairs = edge_index if on_gpu else as_array(edge_index, "edge_index")
    if pairs.ndim != 2 or len(pairs) != 2:
        raise InputError(f"edge_index must have shape (2, m), got {tuple(pairs.shape)}")
    graph = Graph.from_edges(pairs[0], pairs[1], edge_weight, vertex_count=vertex_count)
    if directed:
        return graph
    return Graph(graph.offsets, graph.targets, graph.weights, directed=False)


def from_igraph(source: Any, weight: str | None) -> Graph:
    """See :meth:`Graph.from_igraph`."""
    require_instance(source, "an igraph.Graph", ("get_edgelist", "vs"))
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
        weights = weights_of(source.es[weight], weight, lambda i: str(tuple(pairs[i].tolist())))
    require_there(weights, weight, m)
    return Graph.from_edges(
        pairs[:, 0],
        pairs[:, 1],
        weights,
        vertex_count=source.vcount(),
        directed=source.is_directed(),
        ids=ids,
    )


def from_networkit(source: Any) -> Graph:
    """See :meth:`Graph.from_networkit`."""
    require_instance(source, "a networkit.Graph", ("iterEdgesWeights", "upperNodeIdBound"))
    n, m = source.numberOfNodes(), source.numberOfEdges()
    edge = np.dtype([("tail", np.int64), ("head", np.int64), ("weight", np.float64)])
    edges = np.fromiter(source.iterEdgesWeights(), edge, m)
    tails, heads = edges["tail"], edges["head"]
    ids: Any = 0
    if source.upperNodeIdBound() > n:  # some were removed; iterNodes ascends
        ids = np.fromiter(source.iterNodes(), np.int64, n)
        tails, heads = np.searchsorted(ids, tails), np.searchsorted(ids, heads)
    return Graph.from_edges(
        tails,
        heads,
        edges["weight"] if source.isWeighted() else None,
        vertex_count=n,
        directed=source.isDirected(),
        ids=ids,
    )
