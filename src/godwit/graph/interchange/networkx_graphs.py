"""NetworkX keeps a dictionary of neighbours for every node, which is a row of ours as it stands.

An undirected NetworkX graph has each edge in the rows of both its ends, and a self-loop once: just the
arcs that we store. Nodes become 0, 1, 2, … in the order of the graph, and ``graph.ids`` keeps them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np

from godwit.dtypes import Array, id_dtype_for
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.interchange.attributes import ids_of, require_instance, require_there, weights_of
from godwit.graph.rows import arc_sources
from godwit.graph.transform import parallel_arcs, with_sorted_rows


def from_networkx(source: Any, weight: Any) -> Graph:
    """See :meth:`Graph.from_networkx`."""
    require_instance(source, "a networkx.Graph", ("adjacency", "is_multigraph"))
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
        attributes = chain.from_iterable(several.values() for several in keys)

    def edge(i: int) -> str:
        tail = labels[int(np.searchsorted(offsets, i, side="right")) - 1]
        return f"({shown(tail)}, {shown(labels[targets[i]])})"

    weights = None
    if weight is not None:
        weights = weights_of([one.get(weight) for one in attributes], weight, edge)
    require_there(weights, weight, len(targets))
    return Graph(offsets, targets, weights, directed=source.is_directed(), ids=ids_of(labels))


def _ends(lengths: list[int]) -> Array:
    """int64 (k + 1): where rows of such lengths begin and end."""
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    return ends


def _vertices(labels: list[Any], heads: Iterable[Any], count: int) -> Array:
    """(m) where each head stands among the labels."""
    dtype = id_dtype_for(len(labels))
    first = ids_of(labels)
    if isinstance(first, int):
        return (np.fromiter(heads, np.int64, count) - first).astype(dtype)
    vertex = dict(zip(labels, range(len(labels)), strict=True))
    return np.fromiter(map(vertex.__getitem__, heads), dtype, count)


def to_networkx(graph: Graph) -> Any:
    """See :meth:`Graph.to_networkx`."""
    try:
        import networkx as nx
    except ImportError:
        raise InputError("NetworkX is not installed: pip install networkx") from None

    graph = with_sorted_rows(graph)
    tails = arc_sources(graph.offsets, graph.arc_count, graph.targets.dtype)
    heads, weights = graph.targets, graph.weights
    parallel = parallel_arcs(graph) is not None
    if graph.directed:
        made = nx.MultiDiGraph() if parallel else nx.DiGraph()
    else:
        made = nx.MultiGraph() if parallel else nx.Graph()
        once = tails <= heads
        tails, heads = tails[once], heads[once]
        weights = None if weights is None else weights[once]
    names = graph.ids.of(np.arange(graph.vertex_count))
    name = names.__getitem__
    pairs = (map(name, tails.tolist()), map(name, heads.tolist()))
    with _collector_paused():
        made.add_nodes_from(names)
        if weights is None:
            made.add_edges_from(zip(*pairs, strict=True))
        else:
            made.add_weighted_edges_from(zip(*pairs, weights.tolist(), strict=True))
    return made


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Every edge gets a dictionary, and the collector would walk over all of them time and again."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
