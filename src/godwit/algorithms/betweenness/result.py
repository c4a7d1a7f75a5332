"""Result of betweenness centrality."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from godwit.arrays import ResultLocation
from godwit.dtypes import Array, as_count
from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.interchange.tables import Column, edge_tables, to_pandas, vertex_table
from godwit.runtime.statistics import RunStatistics


class BetweennessResult:
    """Betweenness of all vertices, and of all arcs on request.

    :ivar graph: the graph
    :ivar statistics: work and times of the run; its items are vertices reached, its arcs those from them
    :ivar location: where the arrays live: NumPy's on the host, or CuPy's on a GPU
    """

    def __init__(
        self,
        graph: Graph,
        sources: Array,
        centrality: Array,
        edge_centrality: Array | None,
        statistics: RunStatistics,
        *,
        location: ResultLocation,
    ) -> None:
        self.graph = graph
        self._sources = sources
        self.statistics = statistics
        self.location = location
        self._centrality = centrality
        self._edge_centrality = edge_centrality

    @cached_property
    def sources(self) -> list[Any]:
        """The sources of the searches by id (:attr:`Graph.ids`), in the order of positions."""
        return self.graph.ids.of(self._sources)

    @cached_property
    def centrality(self) -> Array:
        """Betweenness of every vertex, float64 (n)."""
        placed: Array = self.location.place(self._centrality)
        return placed

    @cached_property
    def edge_centrality(self) -> Array:
        """Betweenness of every arc, float64 (m), in the order of ``graph.targets``.

        In an undirected graph both arcs of an edge have the edge's.

        :raises InputError: it was not requested
        """
        placed: Array = self.location.place(self._edge_array())
        return placed

    def _edge_array(self) -> Array:
        if self._edge_centrality is None:
            raise InputError(
                "edges were not asked for; betweenness_centrality(edges=True) has them"
            )
        return self._edge_centrality

    def to_dict(self) -> dict[Any, float]:
        """Return the centrality of every vertex, by its id (:attr:`Graph.ids`).

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 1], [1, 2], ids=["Bonn", "Ulm", "Jena"])
        >>> gw.betweenness_centrality(graph).to_dict()
        {'Bonn': 0.0, 'Ulm': 0.5, 'Jena': 0.0}
        """
        vertices = np.arange(len(self._centrality))
        return dict(zip(self.graph.ids.of(vertices), self._centrality.tolist(), strict=True))

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` with a row per vertex: columns ``vertex`` (ids) and ``centrality``."""
        return vertex_table(betweenness_columns(self), self.graph.ids)

    def to_pandas(self) -> Any:
        """Return the table of :meth:`to_arrow` as a ``pandas.DataFrame``.

        :raises InputError: pandas is not installed
        """
        return to_pandas(self.to_arrow(), nullable=False)

    def edges_to_dict(self) -> dict[tuple[Any, Any], float]:
        """Return the centrality of every edge (in directed graphs, arc) by the ids of its vertices.

        Of parallel edges, each of which has a centrality of its own, one is in the dictionary
        (``merge_parallel_arcs()`` makes them one).

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 1], [1, 2], ids=["Bonn", "Ulm", "Jena"])
        >>> gw.betweenness_centrality(graph, edges=True, normalized=False).edges_to_dict()
        {('Bonn', 'Ulm'): 2.0, ('Ulm', 'Jena'): 2.0}

        :raises InputError: it was not requested
        """
        import pyarrow as pa

        table = pa.concat_tables(self._edge_tables(self.graph.with_ids(0).ids))
        source, target, value = (values.to_numpy() for values in table.columns)
        ids = self.graph.ids
        return dict(
            zip(zip(ids.of(source), ids.of(target), strict=True), value.tolist(), strict=True)
        )

    def edges_to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` with a row per edge: ``source``, ``target`` (ids), ``centrality``.

        :raises InputError: as :meth:`edges_to_dict`
        """
        import pyarrow as pa

        return pa.concat_tables(self._edge_tables(self.graph.ids))

    def _edge_tables(self, ids: VertexIds) -> Iterator[Any]:
        column = Column("centrality", self._edge_array())
        return edge_tables(column, self.graph.rows, ids, self.graph.directed)

    def edges_to_pandas(self) -> Any:
        """Return the table of :meth:`edges_to_arrow` as a ``pandas.DataFrame``.

        :raises InputError: pandas is not installed, or as :meth:`edges_to_dict`
        """
        return to_pandas(self.edges_to_arrow(), nullable=False)

    def highest(self, count: int) -> list[Any]:
        """Return the vertices of highest centrality by id, highest first; ties by position."""
        order = np.argsort(-self._centrality, kind="stable")
        return self.graph.ids.of(order[: as_count(count, "count")])

    def __repr__(self) -> str:
        arcs = "" if self._edge_centrality is None else f" and {len(self._edge_centrality)} arcs"
        return (
            f"BetweennessResult({len(self._centrality)} vertices{arcs}, "
            f"from {len(self._sources)} source(s))"
        )


def betweenness_columns(result: BetweennessResult) -> list[Column]:
    """Return the columns of a table of vertices."""
    return [Column("centrality", result._centrality)]
