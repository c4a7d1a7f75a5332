"""The commands ``triangles`` and ``clustering``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from godwit.cli.facts import Facts, plain
from godwit.cli.options import GraphArgument, ReadingOptions, RunOptions, with_options
from godwit.cli.query import ScoreOptions, ScoreQuery, rows_of_vertices
from godwit.cli.report import integer, number

if TYPE_CHECKING:
    from godwit.algorithms.triangles.result import ClusteringResult, TrianglesResult

TRIANGLES_EXAMPLES = """
godwit triangles soc.mtx --top 20
godwit triangles soc.mtx --output triangles.parquet
godwit triangles rmat:20 --verify --json | jq .triangles
"""
CLUSTERING_EXAMPLES = """
godwit clustering soc.mtx --undirected --top 20
godwit clustering flights.csv --columns from,to,seats --output clustering.parquet
godwit clustering rmat:16 --verify --json | jq .average
"""


class _TrianglesQuery(ScoreQuery):
    title = "The vertices of most triangles"

    def verify(self, result: TrianglesResult) -> str:
        from godwit.algorithms.triangles.verify import verify_triangles

        checked = verify_triangles(result.graph, result)
        return f"the triangles of {checked:,} of {result.graph.vertex_count:,} vertices are right"

    def highest(self, result: TrianglesResult, count: int) -> list[Facts]:
        return rows_of_vertices(result.graph, result.highest(count), "triangles")

    def details(self, result: TrianglesResult) -> Facts:
        return {"triangles": result.total}

    def summary(self, facts: Facts) -> tuple[str, str]:
        return "triangles", integer(facts["triangles"])


class _ClusteringQuery(ScoreQuery):
    title = "The highest coefficients"

    def verify(self, result: ClusteringResult) -> str:
        from godwit.algorithms.triangles.verify import verify_clustering

        checked = verify_clustering(result.graph, result, weighted=self.arguments["weighted"])
        return (
            f"the coefficients of {checked:,} of {result.graph.vertex_count:,} vertices are right"
        )

    def highest(self, result: ClusteringResult, count: int) -> list[Facts]:
        return rows_of_vertices(result.graph, result.highest(count), "clustering")

    def details(self, result: ClusteringResult) -> Facts:
        return {"average": plain(result.average)}

    def summary(self, facts: Facts) -> tuple[str, str]:
        return "average", number(facts["average"])


@with_options
def triangles(
    graph: GraphArgument, options: ScoreOptions, run: RunOptions, reading: ReadingOptions
) -> None:
    """Triangles: the number of sets of three vertices that are all neighbours, and of those of each vertex.

    Directions and weights do not count, nor do arcs from a vertex to itself, nor an arc twice.

    Files: .npy holds the numbers in the order of the vertices; .csv and .parquet have columns vertex,
    numbered as in the file of the graph, and triangles.
    """
    query = _TrianglesQuery("triangles", graph, options, reading, run.arguments, "triangles")
    query.check_early()
    query.answer()


@with_options
def clustering(
    graph: GraphArgument,
    options: ScoreOptions,
    run: RunOptions,
    reading: ReadingOptions,
    ignore_weights: bool = False,
) -> None:
    """Clustering coefficients: the share of pairs of a vertex' neighbours that are neighbours themselves.

    A triangle counts the geometric mean of its weights, relative to the largest weight, if the graph has
    weights. In directed graphs the triangles of all directions count.

    Files: .npy holds the coefficients in the order of the vertices; .csv and .parquet have columns vertex,
    numbered as in the file of the graph, and clustering.

    :param ignore_weights: Count all triangles alike.
    """
    arguments = {"weighted": False if ignore_weights else None, **run.arguments}
    query = _ClusteringQuery("clustering", graph, options, reading, arguments, "clustering")
    query.check_early()
    query.answer()
