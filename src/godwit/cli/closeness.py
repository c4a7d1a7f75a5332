"""The commands ``closeness``, ``harmonic`` and ``eccentricity``, which differ in the function called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from godwit.cli.facts import Facts
from godwit.cli.inputs import parse_vertex
from godwit.cli.options import GraphArgument, Option, ReadingOptions, RunOptions, with_options
from godwit.cli.query import ScoreOptions, ScoreQuery, rows_of_vertices
from godwit.cli.report import integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from godwit.algorithms.distances.scores import SomeScores
    from godwit.cli.outputs import Output
    from godwit.graph.csr import Graph

CLOSENESS_EXAMPLES = """
godwit closeness soc.mtx --top 20
godwit closeness soc.mtx --undirected --output closeness.parquet
godwit closeness roads.gr --vertex 1 --vertex 9000 --json | jq .top
godwit closeness rmat:16 --verify
"""
HARMONIC_EXAMPLES = CLOSENESS_EXAMPLES.replace("closeness", "harmonic")
ECCENTRICITY_EXAMPLES = CLOSENESS_EXAMPLES.replace("closeness", "eccentricity")
_FUNCTIONS = {
    "closeness": "closeness_centrality",
    "harmonic": "harmonic_centrality",
    "eccentricity": "eccentricity",
}


@dataclass
class _SumsQuery(ScoreQuery):
    title = "The highest values"

    vertices: list[str]

    def compute(self, graph: Graph, progress: Any) -> Any:
        vertices = [parse_vertex(text, graph, "vertex") for text in self.vertices] or None
        return self.function(graph, vertices, progress=progress, **self.arguments)

    def verify(self, result: SomeScores) -> str:
        from godwit.algorithms.distances.verify import verify_sums

        checked = verify_sums(
            result, self._expected(result.graph.vertex_count), weighted=self._is_weighted(result),
            outward=self.command == "eccentricity",
        )  # fmt: skip
        return f"the values of {checked:,} of {len(result._scores):,} vertices are right"

    def _expected(self, n: int) -> Callable[[Any], float]:
        """Return the function that computes a vertex's value from its distances."""
        import numpy as np

        def harmonic(distance: Any) -> float:
            return float((1 / distance[distance > 0]).sum())

        def closeness(distance: Any) -> float:
            reached = distance[np.isfinite(distance)]
            total, others = reached.sum(), len(reached) - 1
            if total == 0:
                return 0.0
            return float(others / total * (others / (n - 1)))

        def eccentricity(distance: Any) -> float:
            return float(distance.max())

        functions = {"closeness": closeness, "harmonic": harmonic, "eccentricity": eccentricity}
        return functions[self.command]

    def write(self, output: Output, result: SomeScores) -> None:
        ids = result.graph.ids.in_file
        if result._vertices is not None:
            ids = ids.take(result._vertices)
        output.write(result.columns, ids)

    def highest(self, result: SomeScores, count: int) -> list[Facts]:
        return rows_of_vertices(result.graph, result.highest(count), result.score_name)

    def details(self, result: SomeScores) -> Facts:
        import numpy as np

        infinite = int(np.count_nonzero(np.isinf(result._scores)))
        return {
            "vertices": len(result._scores),
            "infinite": infinite,
            "weighted": self._is_weighted(result),
        }

    def _is_weighted(self, result: SomeScores) -> bool:
        return self.arguments["weighted"] is not False and bool(result.graph.is_weighted)

    def summary(self, facts: Facts) -> tuple[str, str]:
        lengths = "by weights" if facts["weighted"] else "by numbers of arcs"
        text = f"{integer(facts['vertices'])}; distances {lengths}"
        if facts["infinite"] and self.command == "eccentricity":
            text += (
                f"; {integer(facts['infinite'])} do not reach all others: their values are infinite"
            )
        return "vertices", text


@with_options
def closeness(
    context: typer.Context,
    graph: GraphArgument,
    options: ScoreOptions,
    run: RunOptions,
    reading: ReadingOptions,
    vertex: Annotated[list[str] | None, Option("-v", "ID")] = None,
    ignore_weights: bool = False,
) -> None:
    """Distances are sums of weights, if the graph has weights, else numbers of arcs.

    Files: .npy holds the values in the order of the vertices; .csv and .parquet have columns vertex,
    numbered as in the file of the graph, and the value.

    :param vertex: A vertex whose value is wanted: an id of the file, or max-degree for the vertex with most
        arcs; by default all. May be given several times.
    :param ignore_weights: Count arcs.
    """

    arguments = {"weighted": False if ignore_weights else None, **run.arguments}
    command = str(context.command.name)
    query = _SumsQuery(
        command, graph, options, reading, arguments, _FUNCTIONS[command], vertex or []
    )
    query.check_early()
    query.answer()
