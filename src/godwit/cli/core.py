"""The command ``core``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from godwit.cli.facts import Facts
from godwit.cli.options import GraphArgument, ReadingOptions, RunOptions, with_options
from godwit.cli.query import ScoreOptions, ScoreQuery, rows_of_vertices
from godwit.cli.report import integer

if TYPE_CHECKING:
    from godwit.algorithms.core.result import CoreResult

EXAMPLES = """
godwit core soc.mtx --undirected --top 20
godwit core follows.csv --columns user,friend --output core.parquet
godwit core rmat:20 --verify --json | jq .degeneracy
"""


@dataclass
class _CoreQuery(ScoreQuery):
    title = "The highest core numbers"

    def verify(self, result: CoreResult) -> str:
        from godwit.algorithms.core.verify import verify_core_number

        verify_core_number(result.graph, result)
        return "no core number is too large or too small"

    def highest(self, result: CoreResult, count: int) -> list[Facts]:
        return rows_of_vertices(result.graph, result.highest(count), "core")

    def details(self, result: CoreResult) -> Facts:
        innermost = int((result._scores == result.degeneracy).sum())
        return {"degeneracy": result.degeneracy, "innermost_core": innermost}

    def summary(self, facts: Facts) -> tuple[str, str]:
        return "degeneracy", (
            f"{integer(facts['degeneracy'])}: the innermost core has "
            f"{integer(facts['innermost_core'])} vertices"
        )


@with_options
def core(
    graph: GraphArgument,
    options: ScoreOptions,
    run: RunOptions,
    reading: ReadingOptions,
) -> None:
    """Core numbers: the largest k for which a vertex is in the k-core.

    The k-core is the largest subgraph in which every vertex has at least k neighbours. In a directed graph
    out-arcs and in-arcs count. Self-loops do not count.

    Files: .npy holds the core numbers in the order of the vertices; .csv and .parquet have columns vertex,
    numbered as in the file of the graph, and core.
    """
    query = _CoreQuery("core", graph, options, reading, run.arguments, "core_number")
    query.check_early()
    query.answer()
