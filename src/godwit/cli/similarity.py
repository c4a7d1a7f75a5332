"""The command ``similarity``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from godwit.cli.facts import Facts, plain
from godwit.cli.inputs import parse_vertex
from godwit.cli.options import GraphArgument, Option, ReadingOptions, RunOptions, with_options
from godwit.cli.query import ScoreOptions, ScoreQuery
from godwit.cli.report import integer
from godwit.errors import InputError

if TYPE_CHECKING:
    from godwit.algorithms.similarity.result import SimilarityResult
    from godwit.cli.outputs import Output
    from godwit.graph.csr import Graph

EXAMPLES = """
godwit similarity soc.mtx --pair 17,4 --pair 17,9
godwit similarity films.csv --columns viewer,film --measure adamic-adar --top 50
godwit similarity soc.mtx --above 0.5 --output similar.npy
"""
_MEASURES = ("jaccard", "overlap", "sorensen", "adamic-adar", "resource-allocation")


@dataclass
class _SimilarityQuery(ScoreQuery):
    title = "The most similar pairs"

    measure: str
    pairs: list[str]

    def compute(self, graph: Graph, progress: Any) -> Any:
        pairs = [_parse_pair(text, graph) for text in self.pairs] or None
        return self.function(graph, pairs, progress=progress, **self.arguments)

    def verify(self, result: SimilarityResult) -> str:
        from godwit.algorithms.similarity.verify import verify_similarity

        checked = verify_similarity(result.graph, result)
        return f"the scores of {checked:,} of {len(result.positions):,} pairs are right"

    def write(self, output: Output, result: SimilarityResult) -> None:
        import numpy as np

        from godwit.algorithms.similarity.result import similarity_table

        ids, name = result.positions.dtype, result.score_name
        rows = np.empty(
            len(result.positions), [("first", ids), ("second", ids), (name, np.float64)]
        )
        rows["first"], rows["second"] = result.positions.T
        rows[name] = result._scores
        output.write_matrix(rows, lambda: similarity_table(result, result.graph.ids.in_file))

    def highest(self, result: SimilarityResult, count: int) -> list[Facts]:
        import numpy as np

        order = np.argsort(-result._scores, kind="stable")[:count]
        names = result.graph.ids.in_file
        first, second = (names.of(side) for side in result.positions[order].T)
        return [
            {"first": one, "second": other, result.score_name: plain(score)}
            for one, other, score in zip(first, second, result._scores[order].tolist(), strict=True)
        ]

    def details(self, result: SimilarityResult) -> Facts:
        return {"measure": self.measure, "pairs": len(result.positions)}

    def summary(self, facts: Facts) -> tuple[str, str]:
        return "pairs", f"{integer(facts['pairs'])}, by {facts['measure']}"


def _parse_pair(text: str, graph: Graph) -> tuple[Any, Any]:
    """Return the ids of a pair as on the command line."""
    first, _, second = text.partition(",")
    return parse_vertex(first, graph, "pair"), parse_vertex(second, graph, "pair")


@with_options
def similarity(
    graph: GraphArgument,
    options: ScoreOptions,
    run: RunOptions,
    reading: ReadingOptions,
    measure: Annotated[str, Option(metavar="NAME")] = "jaccard",
    pair: Annotated[list[str] | None, Option(metavar="ID,ID")] = None,
    above: Annotated[float | None, Option(metavar="SCORE")] = None,
) -> None:
    """Similarity of pairs of vertices by their common neighbours: of given pairs, or of all that have some.

    Directions and weights do not count.

    Files: .csv and .parquet have columns first and second, numbered as in the file of the graph, and the
    score; .npy has fields of these names, with vertices numbered from 0.

    :param measure: jaccard: common neighbours as a share of those of either; overlap: as a share of those
        of the vertex with fewer; sorensen: divided by the mean of both; adamic-adar, resource-allocation:
        sums of 1 / log(degree), or 1 / degree, of common neighbours.
    :param pair: Two vertices whose score is wanted: ids of the file. May be given several times; by default
        all pairs with common neighbours.
    :param above: Of all pairs, those with higher scores than this.
    """
    if measure not in _MEASURES:
        names = f"{', '.join(_MEASURES[:-1])} or {_MEASURES[-1]}"
        raise InputError(f"--measure must be {names}, got {measure!r}")
    arguments = {"above": above, **run.arguments}
    name = measure.replace("-", "_")
    query = _SimilarityQuery(
        "similarity", graph, options, reading, arguments, name, measure, pair or []
    )
    for text in pair or []:
        if "," not in text:
            raise InputError(f"--pair must be two ids with a comma between them, got {text!r}")
    if pair and above is not None:
        raise InputError("--above is for all pairs: leave it out, or --pair")
    query.check_early()
    query.answer()
