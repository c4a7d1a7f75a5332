"""The command ``topological-generations``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from godwit.cli.facts import Facts
from godwit.cli.options import GraphArgument, ReadingOptions, RunOptions, with_options
from godwit.cli.query import ScoreOptions, ScoreQuery, rows_of_vertices
from godwit.cli.report import integer
from godwit.errors import CycleError

if TYPE_CHECKING:
    from godwit.algorithms.topological.result import GenerationsResult
    from godwit.cli.outputs import Output
    from godwit.graph.csr import Graph

EXAMPLES = """
godwit topological-generations tasks.csv --columns before,after --output generations.csv
godwit topological-generations citations.mtx --verify
"""


@dataclass
class _GenerationsQuery(ScoreQuery):
    title = "Vertices of the last generations"

    def compute(self, graph: Graph, progress: Any) -> Any:
        try:
            return super().compute(graph, progress)
        except CycleError as error:
            named = graph.ids.in_file[graph.ids.position(error.vertex)]
            raise CycleError(named, "topological-generations") from None

    def verify(self, result: GenerationsResult) -> str:
        from godwit.algorithms.topological.verify import verify_topological_generations

        verify_topological_generations(self.graph, result.generation)
        return "numbers are the lengths of the longest paths to vertices"

    def write(self, output: Output, result: GenerationsResult) -> None:
        output.write(result.columns, result.ids.in_file)

    def highest(self, result: GenerationsResult, count: int) -> list[Facts]:
        return rows_of_vertices(result.graph, result.highest(count), result.score_name)

    def details(self, result: GenerationsResult) -> Facts:
        return {
            "generations": result.count,
            "largest_generation": int(result.sizes.max(initial=0)),
        }

    def summary(self, facts: Facts) -> tuple[str, str]:
        return "generations", (
            f"{integer(facts['generations'])}, the largest of "
            f"{integer(facts['largest_generation'])} vertices"
        )


@with_options
def topological_generations(
    graph: GraphArgument, options: ScoreOptions, run: RunOptions, reading: ReadingOptions
) -> None:
    """Topological generations: numbers of vertices such that all arcs lead to larger ones.

    The number of a vertex is the length of the longest path that ends at it. If the graph has a cycle, the
    error names a vertex on it.

    Files: .npy holds the numbers in the order of the vertices; .csv and .parquet have columns vertex,
    numbered as in the file of the graph, and generation.
    """
    query = _GenerationsQuery(
        "topological-generations", graph, options, reading, run.arguments, "topological_generations"
    )
    query.check_early()
    query.answer()
