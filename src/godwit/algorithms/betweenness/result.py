"""Result of betweenness centrality."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from godwit.algorithms.scores import VertexScores
from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.interchange.tables import Column, edge_tables, to_frame
from godwit.runtime.statistics import RunStatistics


class BetweennessResult(VertexScores):
    """Betweenness of all vertices, and of all arcs on request.

    :ivar statistics: work and times of the run; its items are vertices reached, its arcs those from them
    """

    score_name = "centrality"

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
        super().__init__(graph, centrality, statistics, location)
        self._sources = sources
        self._edge_centrality = edge_centrality

    @cached_property
    def sources(self) -> list[Any]:
        """The sources of the searches by id (:attr:`Graph.ids`), in the order of positions."""
        return self.graph.ids.of(self._sources)

    @property
    def centrality(self) -> Array:
        """Betweenness of every vertex, float64 (n)."""
        return self._placed

    @cached_property
    def edge_centrality(self) -> Array:
        """Betweenness of every arc, float64 (m), in the order of ``graph.targets``.

        In an undirected graph both arcs of an edge have the edge's.

        :raises InputError: it was not requested
        """
        placed: Array = self.location.place(self._edge_array())
        return placed

    @property
    def has_edges(self) -> bool:
        """True if the centrality of edges was requested."""
        return self._edge_centrality is not None

    def _edge_array(self) -> Array:
        if self._edge_centrality is None:
            raise InputError(
                "edges were not asked for; betweenness_centrality(edges=True) has them"
            )
        return self._edge_centrality

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

    def edges_to_frame(self) -> Any:
        """Return the table of :meth:`edges_to_arrow` as a ``pandas.DataFrame``.

        :raises InputError: pandas is not installed, or as :meth:`edges_to_dict`
        """
        return to_frame(self.edges_to_arrow(), nullable=False)

    def __repr__(self) -> str:
        arcs = "" if self._edge_centrality is None else f" and {len(self._edge_centrality)} arcs"
        return (
            f"BetweennessResult({len(self._computed)} vertices{arcs}, "
            f"from {len(self._sources)} source(s))"
        )
