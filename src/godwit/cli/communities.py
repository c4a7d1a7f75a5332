"""The commands ``louvain``, ``leiden`` and ``labels``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from godwit.cli.facts import Facts, plain
from godwit.cli.options import GraphArgument, ReadingOptions, RunOptions, with_options
from godwit.cli.query import ScoreOptions, ScoreQuery
from godwit.cli.report import integer, number

if TYPE_CHECKING:
    from godwit.algorithms.communities.result import CommunitiesResult
    from godwit.cli.outputs import Output

LOUVAIN_EXAMPLES = """
godwit louvain friends.csv --undirected --plot sizes.pdf
godwit louvain dblp-2010.mtx.xz --resolution 2 --output communities.parquet
godwit louvain rmat:20 --ignore-weights --seed 3 --json | jq .modularity
"""
LEIDEN_EXAMPLES = """
godwit leiden friends.csv --undirected --plot sizes.pdf
godwit leiden dblp-2010.mtx.xz --seed 3 --verify --output communities.parquet
godwit leiden roads.mtx --objective cpm --resolution 0.001 --ignore-weights
"""
LABELS_EXAMPLES = """
godwit labels friends.csv --undirected --plot sizes.pdf
godwit labels web.mtx.gz --variant cdlp --max-iterations 10 --output communities.parquet
"""


@dataclass
class _CommunitiesQuery(ScoreQuery):
    title = "The largest communities"

    @property
    def _is_cdlp(self) -> bool:
        """True if communities are named by labels, which are vertices, as in LDBC Graphalytics."""
        return self.arguments.get("variant") == "cdlp"

    def verify(self, result: CommunitiesResult) -> str:
        from godwit.algorithms.communities.verify import verify_communities

        is_cdlp = self._is_cdlp
        is_modularity = self.arguments.get("objective", "modularity") == "modularity"
        verify_communities(
            result.graph,
            result,
            connected=not is_cdlp,
            resolution=self.arguments.get("resolution", 1.0) if is_modularity else 1.0,
            weighted=False if is_cdlp else self.arguments["weighted"],
        )
        return "the modularity is right" + ("" if is_cdlp else ", and communities are connected")

    def write(self, output: Output, result: CommunitiesResult) -> None:
        from godwit.graph.interchange.tables import Column

        columns = result.columns
        if self._is_cdlp:
            columns = [
                Column(column.name, result.names[column.values], ids=True) for column in columns
            ]
        output.write(columns, result.ids.in_file)

    def highest(self, result: CommunitiesResult, count: int) -> list[Facts]:
        largest = result.largest(count)
        communities = [number for number, _ in largest]
        if self._is_cdlp:
            communities = result.ids.in_file.of(result.names[: len(largest)])
        return [
            {"community": community, "vertices": size}
            for community, (_, size) in zip(communities, largest, strict=True)
        ]

    def details(self, result: CommunitiesResult) -> Facts:
        return {
            "communities": result.count,
            "largest_community": int(result.sizes.max(initial=0)),
            "single_vertices": int((result.sizes == 1).sum()),
            "modularity": plain(result.modularity),
            "quality": plain(result.quality),
        }

    def summary(self, facts: Facts) -> tuple[str, str]:
        modularity = facts["modularity"]
        return "communities", (
            f"{integer(facts['communities'])}, the largest of {integer(facts['largest_community'])} "
            f"vertices, {integer(facts['single_vertices'])} of one vertex; modularity "
            f"{'none' if modularity is None else number(modularity)}"
        )


def _answer(
    command: str, graph: str, options: ScoreOptions, reading: ReadingOptions, arguments: dict[str, Any],
    name: str,
) -> None:  # fmt: skip
    query = _CommunitiesQuery(command, graph, options, reading, arguments, name)
    query.check_early()
    query.answer()


@with_options
def louvain(
    graph: GraphArgument,
    options: ScoreOptions,
    run: RunOptions,
    reading: ReadingOptions,
    resolution: float = 1.0,
    seed: int = 0,
    ignore_weights: bool = False,
) -> None:
    """Communities of high modularity, by Louvain's method.

    A seed gives the same communities on every machine. Edges count by their weights, if the graph has
    weights.

    Files: .npy holds the community of each vertex, in the order of the vertices: from 0, the largest
    first; .csv and .parquet have columns vertex, numbered as in the file of the graph, and community.

    :param resolution: More than 1: smaller communities.
    :param seed: Of the order in which vertices move.
    :param ignore_weights: Each edge counts 1.
    """
    arguments = {
        "resolution": resolution,
        "seed": seed,
        "weighted": False if ignore_weights else None,
        **run.arguments,
    }
    _answer("louvain", graph, options, reading, arguments, "louvain")


@with_options
def leiden(
    graph: GraphArgument,
    options: ScoreOptions,
    run: RunOptions,
    reading: ReadingOptions,
    resolution: float = 1.0,
    objective: str = "modularity",
    iterations: int = 2,
    seed: int = 0,
    ignore_weights: bool = False,
) -> None:
    """Communities by Leiden's method: better than Louvain's.

    A seed gives the same communities on every machine. Edges count by their weights, if the graph has
    weights.

    Files: .npy holds the community of each vertex, in the order of the vertices: from 0, the largest
    first; .csv and .parquet have columns vertex, numbered as in the file of the graph, and community.

    :param resolution: More than 1: smaller communities; with cpm the density that communities exceed.
    :param objective: modularity, or cpm (constant Potts model).
    :param iterations: With 2 and more, all begins again with the communities found, which is better.
    :param seed: Of the order in which vertices move.
    :param ignore_weights: Each edge counts 1.
    """
    arguments = {
        "resolution": resolution,
        "objective": objective,
        "iterations": iterations,
        "seed": seed,
        "weighted": False if ignore_weights else None,
        **run.arguments,
    }
    _answer("leiden", graph, options, reading, arguments, "leiden")


@with_options
def labels(
    graph: GraphArgument,
    options: ScoreOptions,
    run: RunOptions,
    reading: ReadingOptions,
    variant: str = "parts",
    max_iterations: int | None = None,
    seed: int = 0,
    ignore_weights: bool = False,
) -> None:
    """Communities by label propagation: vertices take the label that most neighbours have.

    A seed gives the same communities on every machine.

    Files: .npy holds the community of each vertex, in the order of the vertices: from 0, the largest
    first; .csv and .parquet have columns vertex, numbered as in the file of the graph, and community. With
    cdlp a community is its label, the id of a vertex (in .npy its position), as Graphalytics compares it.

    :param variant: parts: one class of vertices after the other, by weights, if the graph has weights;
        cdlp: as LDBC Graphalytics defines it: all vertices at once.
    :param max_iterations: At most so many; cdlp: exactly so many. By default 100, or 10.
    :param seed: Of the classes and of ties; cdlp has no use for it.
    :param ignore_weights: Each edge counts 1.
    """
    arguments = {
        "variant": variant,
        "max_iterations": max_iterations,
        "seed": seed,
        "weighted": False if ignore_weights else None,
        **run.arguments,
    }
    _answer("labels", graph, options, reading, arguments, "label_propagation")
