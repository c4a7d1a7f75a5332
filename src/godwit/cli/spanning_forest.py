"""The command ``spanning-forest``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from godwit.cli.facts import Facts, graph_facts, plain
from godwit.cli.options import (
    GraphArgument,
    ReadingOptions,
    ResultOptions,
    RunOptions,
    with_options,
)
from godwit.cli.query import GraphQuery
from godwit.cli.report import Report, closing_rows, graph_line, integer, number, outcome_rows
from godwit.errors import InputError

if TYPE_CHECKING:
    from godwit.algorithms.spanning_forest.result import SpanningForestResult
    from godwit.cli.outputs import Output
    from godwit.cli.progress import Display

EXAMPLES = """
godwit spanning-forest roads.gr --undirected --output forest.csv
godwit spanning-forest similarity.csv --columns a,b,score --undirected --maximum --output forest.parquet
godwit spanning-forest rmat:20,weights=1..64 --devices cuda --verify --json | jq .total_weight
"""


@dataclass
class _ForestQuery(GraphQuery):
    arguments: dict[str, Any]

    def run(self, display: Display) -> SpanningForestResult:
        import godwit as gw

        graph = self.load(display)
        if graph.directed:
            raise InputError(
                "spanning forests are of undirected graphs, and this one is directed: --undirected "
                "replaces its arcs by edges"
            )
        with display.bar("running spanning-forest") as progress:
            return gw.minimum_spanning_forest(graph, progress=progress, **self.arguments)

    def verify(self, result: SpanningForestResult) -> str:
        from godwit.algorithms.spanning_forest.verify import verify_minimum_spanning_forest

        verify_minimum_spanning_forest(self.graph, result)
        kind = "heavier" if result.is_maximum else "lighter"
        return f"edges span all components, close no cycle, and none of the others is {kind}"

    def write(self, output: Output, result: SpanningForestResult) -> None:
        import numpy as np

        ends = np.stack([result.sources, result.targets], axis=1)
        output.write_matrix(ends, lambda: _table(result))

    def facts(self, result: SpanningForestResult, outcome: Facts) -> Facts:
        return {
            "graph": graph_facts(self.graph, self.input),
            "maximum": result.is_maximum,
            "edges": result.edge_count,
            "trees": result.count,
            "total_weight": plain(result.total_weight),
            **outcome,
            "statistics": self.statistics(result),
        }

    def show(self, report: Report, facts: Facts) -> None:
        total = number(facts["total_weight"])
        report.facts(
            [
                (
                    "forest",
                    f"{integer(facts['edges'])} edges, {integer(facts['trees'])} "
                    f"{'tree' if facts['trees'] == 1 else 'trees'}, total weight {total}",
                ),
                *outcome_rows(facts),
                *closing_rows(facts, graph_line(facts["graph"]), verbose=self.options.verbose),
            ]
        )


def _table(result: SpanningForestResult) -> Any:
    """Return an Arrow table of the edges, with the ids of the graph's file."""
    import pyarrow as pa

    names = result.graph.ids.in_file.to_arrow()
    columns = {
        "source": names.take(pa.array(result.sources)),
        "target": names.take(pa.array(result.targets)),
    }
    if result.weights is not None:
        columns["weight"] = pa.array(result.weights)
    return pa.table(columns)


@with_options
def spanning_forest(
    graph: GraphArgument,
    options: ResultOptions,
    run: RunOptions,
    reading: ReadingOptions,
    maximum: bool = False,
    ignore_weights: bool = False,
) -> None:
    """Minimum or maximum spanning forest: a tree for each component, of least or greatest weight.

    Of edges of equal weight the first one of the graph is preferred, so the result is always the same.

    Files: .npy holds the ends of the edges, shape (edges, 2), vertices counted from 0; .csv and .parquet
    have columns source and target, numbered as in the file of the graph, and weight, if weights count.

    :param maximum: The forest of greatest weight.
    :param ignore_weights: All edges weigh the same.
    """
    arguments = {
        "maximum": maximum,
        "weighted": False if ignore_weights else None,
        **run.arguments,
    }
    _ForestQuery("spanning-forest", graph, options, reading, arguments).answer()
