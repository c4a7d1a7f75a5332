"""A NetworkX graph in arrays, as the functions of this package take it.

Row v lists the neighbours of node v in the order of its dictionary, each once: parallel edges of a
multigraph are one arc, with a multiplicity. An undirected edge is two arcs, and a self-loop one, as in
NetworkX's dictionaries. So rows are those of a :class:`godwit.Graph` without parallel arcs.

An edge attribute has a value for each arc, or, in a multigraph, for each of its parallel edges, arc by arc.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import networkx as nx
import numpy as np

from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.placement import PlacedGraph


@dataclass
class EdgeData:
    """The dictionaries of edges, in the order of arcs; those of NetworkX's graph, not copies.

    :ivar keys: of the edges of a multigraph
    """

    attributes: list[dict[Any, Any]]
    keys: list[Any] | None = None

    def take(self, edges: Array) -> EdgeData:
        """Return the dictionaries of some edges, by their numbers."""
        chosen = edges.tolist()
        keys = None if self.keys is None else [self.keys[edge] for edge in chosen]
        return EdgeData([self.attributes[edge] for edge in chosen], keys)


class ArrayGraph:
    """A NetworkX graph in arrays.

    NetworkX's functions take it in the place of a graph if Godwit has them; others take it where
    ``nx.config.fallback_to_nx`` is set, and :meth:`to_networkx` returns an ordinary graph.

    :param nodes: the nodes, in order
    :param structure: the graph of their positions, without weights and parallel arcs
    :param multiplicity: of a multigraph, the number of parallel edges of each arc
    :ivar placements: placed graphs, by the ``id`` of the graph that is placed, and the names of the devices
    :ivar scratch: arrays of searches between two nodes, kept since making them takes longer than the search
    """

    __networkx_backend__ = "godwit"

    def __init__(
        self, nodes: list[Any], structure: Graph, multiplicity: Array | None = None
    ) -> None:
        self.nodes = nodes
        self.structure = structure
        self.multiplicity = multiplicity
        self.graph: dict[Any, Any] = {}
        self.attributes: dict[tuple[Any, Any], Array | None] = {}
        self.edge_data: EdgeData | None = None
        self.node_data: list[dict[Any, Any]] | None = None
        self.origin: weakref.ref[Any] | None = None
        self.__networkx_cache__: dict[str, Any] = {}
        self.placements: dict[tuple[int, tuple[str, ...]], PlacedGraph] = {}
        self.scratch: list[tuple[Array, ...]] = []
        self._lengths: dict[Any, Graph] = {}
        self._sums: dict[Any, Graph] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle or a copy has: neither placements, nor what belongs to NetworkX's graph."""
        own: dict[str, Any] = {
            "origin": None,
            "placements": {},
            "scratch": [],
            "__networkx_cache__": {},
        }
        return {**self.__dict__, **own}

    def is_directed(self) -> bool:
        """Return True if edges have a direction."""
        return self.structure.directed

    def is_multigraph(self) -> bool:
        """Return True if edges may be parallel."""
        return self.multiplicity is not None

    def number_of_nodes(self) -> int:
        """Return the number of nodes."""
        return self.structure.vertex_count

    order = number_of_nodes
    __len__ = number_of_nodes

    def number_of_edges(self) -> int:
        """Return the number of edges, parallel ones included."""
        arcs, loops = self.structure.arc_count, int(self.loops.sum())
        if self.multiplicity is not None:
            arcs = int(self.multiplicity.sum())
            loops = int(self.multiplicity[self.loops].sum())
        return arcs if self.is_directed() else (arcs + loops) // 2

    size = number_of_edges

    def __iter__(self) -> Iterator[Any]:
        return iter(self.nodes)

    def __contains__(self, node: Any) -> bool:
        try:
            self.position(node)
        except (KeyError, TypeError):
            return False
        return True

    @cached_property
    def loops(self) -> Array:
        """True for arcs that are self-loops, shape (m)."""
        return np.asarray(self.tails == self.structure.targets)

    @cached_property
    def tails(self) -> Array:
        """The vertex that each arc leaves, shape (m)."""
        rows = self.structure.rows
        return np.repeat(
            np.arange(rows.vertex_count, dtype=rows.targets.dtype), np.diff(rows.offsets)
        )

    @cached_property
    def _is_range(self) -> bool:
        """True if nodes are the integers 0 to n - 1, in order."""
        nodes = self.nodes
        return nodes == list(range(len(nodes))) and set(map(type, nodes)) <= {int}

    @cached_property
    def _index(self) -> dict[Any, int]:
        return dict(zip(self.nodes, range(len(self.nodes)), strict=True))

    @cached_property
    def _objects(self) -> Array:
        return np.fromiter(self.nodes, object, len(self.nodes))

    def position(self, node: Any) -> int:
        """Return the position of a node.

        :raises KeyError: it is not in the graph
        :raises TypeError: it cannot be hashed
        """
        if type(node) is int and self._is_range:
            if 0 <= node < len(self.nodes):
                return node
            raise KeyError(node)
        return self._index[node]

    def names(self, positions: Array | list[int]) -> list[Any]:
        """Return the nodes at some positions."""
        if isinstance(positions, list):
            return [self.nodes[position] for position in positions]
        if self._is_range:
            return list(positions.tolist())
        return list(self._objects[positions])

    @cached_property
    def out_rows(self) -> tuple[Array, Array]:
        """Offsets and targets of the rows."""
        return self.structure.offsets, self.structure.targets

    @cached_property
    def in_rows(self) -> tuple[Array, Array]:
        """Offsets and sources of the rows of in-arcs, each in the order of NetworkX's dictionary.

        The order is that in which edges were added. It is read from NetworkX's graph if that still exists;
        otherwise it is that of nodes.
        """
        structure = self.structure
        origin = None if self.origin is None else self.origin()
        reverse = structure.reverse
        if origin is None or not structure.directed:
            return reverse.offsets, reverse.targets
        rows = list(origin._pred.values())
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        if not np.array_equal(lengths, np.diff(reverse.offsets)):  # changed in the meantime
            return reverse.offsets, reverse.targets
        sources = self.positions(list(chain.from_iterable(rows)))
        return reverse.offsets, sources.astype(structure.targets.dtype)

    def positions(self, nodes: list[Any]) -> Array:
        """Return the positions of nodes; KeyError or TypeError as of :meth:`position`."""
        if self._is_range and set(map(type, nodes)) <= {int}:
            return np.array(nodes, np.int64)
        return np.array([self._index[node] for node in nodes], np.int64)

    @property
    def _adj(self) -> dict[Any, int]:
        """Members, where methods of NetworkX's graphs look for them."""
        return self._index

    def nbunch_iter(self, nbunch: Any = None) -> Any:
        """Return an iterator over the nodes among ``nbunch``: a node, several, or None for all.

        :raises NetworkXError: ``nbunch`` is neither
        """
        return nx.Graph.nbunch_iter(self, nbunch)

    def lengths(self, attribute: Any) -> Graph:
        """Return the graph with an edge attribute as lengths of arcs; of parallel edges the least.

        :param attribute: its name; None: every arc has length 1
        :raises NotImplementedError: a length is negative, infinite or NaN
        """
        if attribute is None:
            return self.structure
        if attribute not in self._lengths:
            self._lengths[attribute] = self._with_weights(attribute, np.minimum)
            _require_lengths(self._lengths[attribute].weights, attribute)
        return self._lengths[attribute]

    def weighted(self, attribute: Any) -> Graph:
        """Return the graph with an edge attribute as weights; those of parallel edges are added up.

        :param attribute: its name; None: every edge has weight 1
        """
        if attribute is None and self.multiplicity is None:
            return self.structure
        if attribute not in self._sums:
            self._sums[attribute] = self._with_weights(attribute, np.add)
        return self._sums[attribute]

    def _with_weights(self, attribute: Any, combine: Any) -> Graph:
        values = None if attribute is None else self._values(attribute)
        multiplicity = self.multiplicity
        if multiplicity is not None:
            if values is not None:
                starts = np.cumsum(multiplicity) - multiplicity
                values = combine.reduceat(values, starts) if len(values) else values
            elif combine is np.add:
                values = multiplicity
        if values is None:
            return self.structure
        return Graph.trusted(
            *self.structure.rows._replace(weights=values), directed=self.is_directed()
        )

    def _values(self, attribute: Any) -> Array | None:
        """Return the values of an attribute, 1 where an edge has none; None if all are 1.

        :raises NetworkXError: the graph was converted without it
        """
        key = (attribute, 1)
        if key not in self.attributes:
            if self.edge_data is None:
                raise nx.NetworkXError(
                    f"this graph was converted without the attribute {attribute!r} of its edges: "
                    f"from_networkx(G, {{{attribute!r}: 1}}) converts it, with 1 for edges that have "
                    "none; weight=None does without"
                )
            from godwit.networkx.conversion import edge_values

            self.attributes[key] = edge_values(self.edge_data.attributes, *key)
        return self.attributes[key]

    @cached_property
    def out_degree(self) -> Array:
        """Number of edges that leave each node, parallel ones included, shape (n) int64."""
        return self._row_sums(self.structure.offsets, self.multiplicity)

    @cached_property
    def degree(self) -> Array:
        """NetworkX's degree: in- and out-degree, or the number of edges, where self-loops count twice."""
        targets, n = self.structure.targets, self.number_of_nodes()
        chosen = slice(None) if self.is_directed() else self.loops
        extra = np.bincount(
            targets[chosen],
            None if self.multiplicity is None else self.multiplicity[chosen],
            minlength=n,
        )
        return self.out_degree + extra.astype(np.int64)

    @cached_property
    def in_degree(self) -> Array:
        """Number of edges that enter each node, parallel ones included, shape (n) int64."""
        return self.degree - self.out_degree

    @staticmethod
    def _row_sums(offsets: Array, values: Array | None) -> Array:
        if values is None:
            return np.diff(offsets)
        sums = np.zeros(len(values) + 1, np.int64)
        np.cumsum(values, out=sums[1:])
        return np.diff(sums[offsets])

    def to_networkx(self) -> Any:
        """Return an ordinary NetworkX graph with the attributes that were converted."""
        from godwit.networkx.conversion import to_networkx

        return to_networkx(self)

    def __repr__(self) -> str:
        kind = "multigraph" if self.is_multigraph() else "graph"
        direction = "directed" if self.is_directed() else "undirected"
        return (
            f"<ArrayGraph: {direction} {kind}, {self.number_of_nodes():,} nodes, "
            f"{self.number_of_edges():,} edges>"
        )


class KeptGraph(ArrayGraph):
    """A conversion that NetworkX keeps with its graph.

    Pickles and copies of that graph have None in its place, so that they can be read where there is no
    Godwit, and NetworkX converts such a graph anew.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def kept_conversions(graph: Any) -> list[ArrayGraph]:
    """Return the conversions of a NetworkX graph that NetworkX keeps with it."""
    cache = getattr(graph, "__networkx_cache__", None) or {}
    kept = list(cache.get("backends", {}).get("godwit", {}).values())
    return [arrays for arrays in kept if isinstance(arrays, ArrayGraph)]


_MARK = "godwit_mark"


def drop_outdated(graph: Any) -> None:
    """Clear what NetworkX keeps of a view, such as a subgraph, if the graph that it shows has changed.

    NetworkX clears what it keeps of a graph when that changes, but not what it keeps of its views. So a
    mark is kept with the graph, and with each view the mark that its graph had.
    """
    kept = getattr(graph, "__networkx_cache__", None)
    shown = graph
    while (shown_by := getattr(shown, "_graph", None)) is not None:
        shown = shown_by
    if shown is graph or kept is None:
        return
    kept_of_shown = getattr(shown, "__networkx_cache__", None)
    mark = None if kept_of_shown is None else kept_of_shown.setdefault(_MARK, object())
    if mark is None or kept.get(_MARK) is not mark:
        kept.clear()
        kept[_MARK] = mark


def _require_lengths(weights: Array | None, attribute: Any) -> None:
    if weights is None or len(weights) == 0:
        return
    if not weights.min() >= 0:
        raise NotImplementedError(f"{attribute!r} of an edge is negative, or not a number")
    largest = weights.max()
    # Sums of lengths of a path may not overflow.
    limit = 2**62 if weights.dtype.kind in "iu" else float(np.finfo(np.float64).max)
    if not float(largest) * len(weights) < limit:
        raise NotImplementedError(f"{attribute!r} of an edge is too large for sums, or infinite")
