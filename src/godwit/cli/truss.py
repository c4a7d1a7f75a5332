"""The command ``truss``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from godwit.cli.facts import Facts
from godwit.cli.options import GraphArgument, ReadingOptions, RunOptions, with_options
from godwit.cli.query import ScoreOptions, ScoreQuery
from godwit.cli.report import integer

if TYPE_CHECKING:
    from godwit.algorithms.truss.result import TrussResult
    from godwit.cli.outputs import Output

EXAMPLES = """
godwit truss soc.mtx --undirected --top 20
godwit truss follows.csv --columns user,friend --output truss.parquet
godwit truss rmat:14 --verify --json | jq .largest_truss
"""


@dataclass
class _TrussQuery(ScoreQuery):
    title = "The edges of highest truss numbers"

    def verify(self, result: TrussResult) -> str:
        from godwit.algorithms.truss.verify import verify_truss_number

        verify_truss_number(result.graph, result)
        return "no truss number is too large or too small"

    def write(self, output: Output, result: TrussResult) -> None:
        import numpy as np

        from godwit.algorithms.truss.result import truss_table

        ids = result.sources.dtype
        rows = np.empty(
            len(result.sources), [("source", ids), ("target", ids), ("truss", np.int32)]
        )
        rows["source"], rows["target"] = result.sources, result.targets
        rows["truss"] = result.truss
        output.write_matrix(rows, lambda: truss_table(result, result.graph.ids.in_file))

    def highest(self, result: TrussResult, count: int) -> list[Facts]:
        import numpy as np

        edges = np.argsort(-result.truss, kind="stable")[:count]
        names = result.graph.ids.in_file
        sources, targets = names.of(result.sources[edges]), names.of(result.targets[edges])
        return [
            {"source": source, "target": target, "truss": number}
            for source, target, number in zip(
                sources, targets, result.truss[edges].tolist(), strict=True
            )
        ]

    def details(self, result: TrussResult) -> Facts:
        innermost = int((result.truss == result.largest).sum())
        return {"edges": len(result.truss), "largest_truss": result.largest, "innermost": innermost}

    def summary(self, facts: Facts) -> tuple[str, str]:
        return "largest truss number", (
            f"{integer(facts['largest_truss'])}, of {integer(facts['innermost'])} of "
            f"{integer(facts['edges'])} edges"
        )


@with_options
def truss(
    graph: GraphArgument,
    options: ScoreOptions,
    run: RunOptions,
    reading: ReadingOptions,
) -> None:
    """Truss numbers: the largest k for which an edge is in the k-truss.

    The k-truss is the largest subgraph whose every edge is part of at least k - 2 of its triangles.
    Directions, weights, parallel edges and self-loops do not count.

    Files: .csv and .parquet have columns source and target, numbered as in the file of the graph, and
    truss; .npy has fields of these names, with vertices numbered from 0.
    """
    query = _TrussQuery("truss", graph, options, reading, run.arguments, "truss_number")
    query.check_early()
    query.answer()
