"""Graphs of NetworkX as arrays, and back.

Nothing in Python runs once per edge, except for dictionaries' own methods: rows are chained, nodes become
positions by one look-up each (integers by none), and an attribute's values are fetched by ``map``. What is
read of a graph once is kept with it, as long as NetworkX keeps conversions: further attributes are added to
the arrays, which are not made again.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from itertools import chain, repeat
from typing import Any

import networkx as nx
import numpy as np

from godwit.dtypes import Array, id_dtype_for
from godwit.graph.csr import Graph
from godwit.graph.interchange.libraries import collector_paused
from godwit.networkx.graph import ArrayGraph, EdgeData, KeptGraph, kept_conversions


def from_networkx(
    graph: Any,
    edge_attrs: dict[Any, Any] | None = None,
    *,
    keep_data: bool = False,
) -> ArrayGraph:
    """Return a NetworkX graph in arrays.

    >>> import networkx as nx
    >>> from_networkx(nx.path_graph(3))
    <ArrayGraph: undirected graph, 3 nodes, 2 edges>

    :param graph: a Graph, DiGraph, MultiGraph or MultiDiGraph; nodes may be any hashable objects
    :param edge_attrs: names of attributes of edges, and their values where an edge has none; a function
        with ``weight="weight"``, which many have by default, needs ``{"weight": 1}``
    :param keep_data: keep the dictionaries of nodes, edges and the graph, too
    :raises NotImplementedError: an attribute has a value that is no number, or beyond 64 bits
    """
    return _with_data(_structure(graph, ArrayGraph), graph, edge_attrs, keep_data)


def converted(graph: Any, edge_attrs: dict[Any, Any] | None, keep_data: bool) -> ArrayGraph:
    """Return a NetworkX graph in the arrays that NetworkX keeps of it, or keeps from now on.

    Parameters are those of :func:`from_networkx`.
    """
    arrays = _kept(graph) or _structure(graph, KeptGraph)
    return _with_data(arrays, graph, edge_attrs, keep_data)


def _with_data(
    arrays: ArrayGraph, graph: Any, edge_attrs: dict[Any, Any] | None, keep_data: bool
) -> ArrayGraph:
    """Add to the arrays of a graph what they lack of its attributes."""
    wanted = {} if edge_attrs is None else edge_attrs
    missing = [item for item in wanted.items() if item not in arrays.attributes]
    if missing or (keep_data and arrays.edge_data is None):
        data = _edge_data(graph)
        for name, default in missing:
            arrays.attributes[name, default] = edge_values(data.attributes, name, default)
        if keep_data:
            arrays.edge_data = data
            arrays.node_data = list(graph._node.values())
    arrays.graph = graph.graph
    return arrays


def _kept(graph: Any) -> ArrayGraph | None:
    """Return the arrays that NetworkX keeps of a graph, with any attributes."""
    conversions = kept_conversions(graph)
    return conversions[0] if conversions and nx.config.cache_converted_graphs else None


def _structure(graph: Any, kind: type[ArrayGraph]) -> ArrayGraph:
    nodes = list(graph._node)
    rows = _rows(graph)
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=offsets[1:])
    count = int(offsets[-1])
    multiplicity = None
    if graph.is_multigraph():
        lengths = map(len, chain.from_iterable(map(dict.values, rows)))
        multiplicity = np.fromiter(lengths, np.int64, count)
    targets = _positions(nodes, rows, count).astype(id_dtype_for(len(nodes)), copy=False)
    structure = Graph.trusted(offsets, targets, directed=graph.is_directed())
    arrays = kind(nodes, structure, multiplicity)
    with suppress(TypeError):  # a subclass with slots
        arrays.origin = weakref.ref(graph)
    return arrays


def _rows(graph: Any) -> list[dict[Any, Any]]:
    """Return the dictionary of neighbours of each node, a copy where it is a view or of another type."""
    rows = list(graph._adj.values())
    if set(map(type, rows)) <= {dict}:
        return rows
    if graph.is_multigraph():
        return [{node: dict(edges) for node, edges in row.items()} for row in rows]
    return list(map(dict, rows))


def _positions(nodes: list[Any], rows: list[dict[Any, Any]], count: int) -> Array:
    """Return the position of each key of the rows among distinct nodes."""
    heads = chain.from_iterable(rows)
    if nodes and set(map(type, nodes)) == {int}:
        with suppress(OverflowError):  # beyond 64 bits
            numbers = np.array(nodes, np.int64)
            targets = np.fromiter(heads, np.int64, count)
            return targets if _count_up(numbers) else _integer_positions(numbers, targets)
    index = dict(zip(nodes, range(len(nodes)), strict=True))
    return np.fromiter(map(index.__getitem__, heads), np.int64, count)


def _count_up(numbers: Array) -> bool:
    return bool((numbers == np.arange(len(numbers))).all())


def _integer_positions(numbers: Array, heads: Array) -> Array:
    """Return the position of each head among distinct integers."""
    first, last = int(numbers.min()), int(numbers.max())
    if last - first < 8 * len(numbers) + 1024:
        table = np.empty(last - first + 1, np.int64)
        table[numbers - first] = np.arange(len(numbers))
        return np.asarray(table[heads - first])
    order = np.argsort(numbers)
    return np.asarray(order[np.searchsorted(numbers, heads, sorter=order)])


def _edge_data(graph: Any) -> EdgeData:
    """Return the dictionaries of edges, in the order of arcs."""
    cells = chain.from_iterable(map(dict.values, _rows(graph)))
    if not graph.is_multigraph():
        return EdgeData(list(cells))
    by_key = list(cells)
    return EdgeData(
        list(chain.from_iterable(map(dict.values, by_key))), list(chain.from_iterable(by_key))
    )


def edge_values(attributes: list[dict[Any, Any]], name: Any, default: Any) -> Array | None:
    """Return an attribute of edges as int64 or float64; None if it is 1 everywhere.

    :raises NotImplementedError: a value is no number, or does not fit
    """
    if not any(attributes):
        values = [default]
    else:
        try:
            values = list(map(dict.get, attributes, repeat(name), repeat(default)))
        except TypeError:  # dictionaries of another type
            values = [of_edge.get(name, default) for of_edge in attributes]
    array = _numbers(values, name)
    if bool((array == 1).all()):
        return None
    return np.repeat(array, len(attributes)) if len(values) < len(attributes) else array


_EXACT_FLOAT = 2**53


def _numbers(values: list[Any], name: Any) -> Array:
    try:
        array = np.array(values)
    except ValueError:  # sequences of several lengths
        array = np.empty(0, object)
    is_number = array.dtype.kind in "biu" or array.dtype in (np.float64, np.float32, np.float16)
    if array.ndim != 1 or not is_number:
        kinds = sorted({type(value).__name__ for value in values})
        raise NotImplementedError(
            f"{name!r} of edges must be numbers of 64 bits, got {', '.join(kinds)}"
        )
    if array.dtype.kind == "u" and int(array.max()) >= 2**63:
        raise NotImplementedError(f"{name!r} of an edge is {array.max()}, beyond 64 bits")
    if array.dtype.kind != "f":
        return array.astype(np.int64)
    if bool((np.abs(array) > _EXACT_FLOAT).any()):
        for value in values:
            if isinstance(value, int) and int(float(value)) != value:
                raise NotImplementedError(
                    f"{name!r} of an edge is {value}, which does not fit float64, as others need"
                )
    return array.astype(np.float64)


def to_networkx(arrays: ArrayGraph) -> Any:
    """Return an ordinary NetworkX graph; see :meth:`ArrayGraph.to_networkx`."""
    kinds = {
        (False, False): nx.Graph, (True, False): nx.DiGraph,
        (False, True): nx.MultiGraph, (True, True): nx.MultiDiGraph,
    }  # fmt: skip
    graph = kinds[arrays.is_directed(), arrays.is_multigraph()]()
    graph.graph.update(arrays.graph)
    data: Any = repeat({}) if arrays.node_data is None else arrays.node_data
    with collector_paused():
        graph._node.update(
            (node, dict(of_node)) for node, of_node in zip(arrays.nodes, data, strict=False)
        )
        cells = _cells(arrays)
        _fill_rows(graph._adj, arrays, arrays.structure.offsets, arrays.structure.targets, cells)
        if arrays.is_directed():
            offsets, sources = arrays.in_rows
            arc = _arcs_into(arrays, offsets, sources)
            _fill_rows(graph._pred, arrays, offsets, sources, [cells[i] for i in arc.tolist()])
    return graph


def _fill_rows(
    adjacency: dict[Any, Any], arrays: ArrayGraph, offsets: Array, targets: Array, cells: list[Any]
) -> None:
    """Make the dictionary of neighbours of every node."""
    names = arrays.names(targets)
    ends = offsets.tolist()
    for node, begin, end in zip(arrays.nodes, ends, ends[1:], strict=False):
        adjacency[node] = dict(zip(names[begin:end], cells[begin:end], strict=True))


def _cells(arrays: ArrayGraph) -> list[Any]:
    """Return what NetworkX's dictionaries have for each arc; both arcs of an edge share it."""
    attributes = _edge_attributes(arrays)
    if arrays.multiplicity is None:
        cells: list[Any] = attributes
    else:
        keys = None if arrays.edge_data is None else arrays.edge_data.keys
        ends = np.cumsum(arrays.multiplicity).tolist()
        cells = [
            dict(zip(range(end - begin) if keys is None else keys[begin:end], attributes[begin:end],
                     strict=True))
            for begin, end in zip([0, *ends], ends, strict=False)
        ]  # fmt: skip
    if arrays.is_directed():
        return cells
    first = _first_arcs(arrays).tolist()
    return [cells[arc] for arc in first]


def edge_attributes(arrays: ArrayGraph, arcs: Array) -> list[dict[Any, Any]]:
    """Return the dictionaries of the edges of some arcs, of a graph without parallel edges.

    They are those of NetworkX's graph where the graph was converted with them.
    """
    if arrays.edge_data is not None:
        return arrays.edge_data.take(arcs).attributes
    columns = [
        (name, [1] * len(arcs) if values is None else values[arcs].tolist())
        for (name, _), values in arrays.attributes.items()
    ]
    return [{name: values[at] for name, values in columns} for at in range(len(arcs))]


def _edge_attributes(arrays: ArrayGraph) -> list[dict[Any, Any]]:
    """Return new dictionaries of attributes, arc by arc."""
    if arrays.edge_data is not None:
        return list(map(dict, arrays.edge_data.attributes))
    multiplicity = arrays.multiplicity
    count = arrays.structure.arc_count if multiplicity is None else int(multiplicity.sum())
    attributes: list[dict[Any, Any]] = [{} for _ in range(count)]
    for (name, _), values in arrays.attributes.items():
        if values is not None:
            for of_edge, value in zip(attributes, values.tolist(), strict=True):
                of_edge[name] = value
    return attributes


def _first_arcs(arrays: ArrayGraph) -> Array:
    """Return for each arc of an undirected graph the first of the arcs of its edge."""
    heads = arrays.structure.targets.astype(np.int64)
    tails = arrays.tails.astype(np.int64)
    edge = np.minimum(heads, tails) * arrays.number_of_nodes() + np.maximum(heads, tails)
    _, first, inverse = np.unique(edge, return_index=True, return_inverse=True)
    return np.asarray(first[inverse])


def _arcs_into(arrays: ArrayGraph, offsets: Array, sources: Array) -> Array:
    """Return for each entry of the rows of in-arcs the number of its arc."""
    n = arrays.number_of_nodes()
    heads = np.repeat(np.arange(n), np.diff(offsets))
    key = arrays.tails.astype(np.int64) * n + arrays.structure.targets
    order = np.argsort(key)
    return np.asarray(
        order[np.searchsorted(key, sources.astype(np.int64) * n + heads, sorter=order)]
    )
