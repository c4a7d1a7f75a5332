"""The commands ``independent-set`` and ``coloring``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from godwit.cli.facts import Facts
from godwit.cli.options import GraphArgument, ReadingOptions, RunOptions, with_options
from godwit.cli.query import ScoreOptions, ScoreQuery
from godwit.cli.report import integer

if TYPE_CHECKING:
    from godwit.algorithms.coloring.result import ColoringResult
    from godwit.algorithms.independent_set.result import IndependentSetResult

SET_EXAMPLES = """
godwit independent-set soc.mtx --verify
godwit independent-set roads.gr --seed 7 --output set.parquet
"""
COLORING_EXAMPLES = """
godwit coloring soc.mtx --top 5
godwit coloring conflicts.csv --columns task,other --output colors.csv --verify
"""


@dataclass
class _SetQuery(ScoreQuery):
    title = "Members"

    def verify(self, result: IndependentSetResult) -> str:
        from godwit.algorithms.independent_set.verify import verify_maximal_independent_set

        verify_maximal_independent_set(result.graph, result)
        return "no members are neighbours, and no vertex can be added"

    def highest(self, result: IndependentSetResult, count: int) -> list[Facts]:
        return []

    def details(self, result: IndependentSetResult) -> Facts:
        return {"size": result.size}

    def summary(self, facts: Facts) -> tuple[str, str]:
        return "set", f"{integer(facts['size'])} vertices"


@dataclass
class _ColoringQuery(ScoreQuery):
    title = "The most frequent colours"

    def verify(self, result: ColoringResult) -> str:
        from godwit.algorithms.coloring.verify import verify_greedy_color

        verify_greedy_color(result.graph, result)
        return "neighbours have different colours, and no vertex alone can get a lesser one"

    def highest(self, result: ColoringResult, count: int) -> list[Facts]:
        sizes = result.sizes.tolist()
        order = sorted(range(len(sizes)), key=lambda color: -sizes[color])[:count]
        return [{"color": color, "vertices": sizes[color]} for color in order]

    def details(self, result: ColoringResult) -> Facts:
        return {"colors": result.count}

    def summary(self, facts: Facts) -> tuple[str, str]:
        return "colours", integer(facts["colors"])


@with_options
def independent_set(
    graph: GraphArgument,
    options: ScoreOptions,
    run: RunOptions,
    reading: ReadingOptions,
    seed: int = 0,
) -> None:
    """Maximal independent set: no two members are neighbours, and no vertex can be added.

    Vertices are taken by ascending degree, and become members unless a neighbour is one. Directions do not
    matter.

    Files: .npy holds True for members, in the order of the vertices; .csv and .parquet have columns vertex,
    numbered as in the file of the graph, and member.

    :param seed: Each gives another order among vertices of equal degree.
    """
    arguments = {"seed": seed, **run.arguments}
    query = _SetQuery(
        "independent-set", graph, options, reading, arguments, "maximal_independent_set"
    )
    query.check_early()
    query.answer()


@with_options
def coloring(
    graph: GraphArgument,
    options: ScoreOptions,
    run: RunOptions,
    reading: ReadingOptions,
    seed: int = 0,
) -> None:
    """Colouring: neighbours have different colours, which are numbers from 0.

    Vertices are taken by descending degree, and get the least colour that no neighbour has. Directions do
    not matter.

    Files: .npy holds the colours in the order of the vertices; .csv and .parquet have columns vertex,
    numbered as in the file of the graph, and color.

    :param seed: Each gives another order among vertices of equal degree.
    """
    arguments = {"seed": seed, **run.arguments}
    query = _ColoringQuery("coloring", graph, options, reading, arguments, "greedy_color")
    query.check_early()
    query.answer()
