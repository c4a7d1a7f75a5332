"""The command ``distances``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from godwit.cli.facts import Facts, graph_facts, plain
from godwit.cli.inputs import parse_distance, parse_vertex
from godwit.cli.options import (
    GraphArgument,
    Option,
    ReadingOptions,
    ResultOptions,
    RunOptions,
    with_options,
)
from godwit.cli.query import GraphQuery
from godwit.cli.report import Report, closing_rows, graph_line, integer, number, outcome_rows

if TYPE_CHECKING:
    from godwit.algorithms.distances.result import DistancesResult
    from godwit.cli.outputs import Output
    from godwit.cli.progress import Display

EXAMPLES = """
godwit distances USA-road-d.NY.gr.xz --source 1 --source 9000 --target 17 --target 300
godwit distances soc.mtx -s 1 -s 17 -s 40 --output distances.npy
godwit distances roads.gr -s 1 -s 2 --cutoff 5000 --output - | sort -t, -k3n | head
godwit distances rmat:20 -s max-degree -s 0 --json | jq .rows
"""
_SHOWN_ROWS = 20
_SHOWN_COLUMNS = 8


@dataclass
class _DistancesQuery(GraphQuery):
    sources: list[str]
    targets: list[str]
    arguments: dict[str, Any]

    def run(self, display: Display) -> DistancesResult:
        import godwit as gw

        graph = self.load(display)
        sources = [parse_vertex(text, graph, "source") for text in self.sources]
        targets = [parse_vertex(text, graph, "target") for text in self.targets] or None
        with display.bar("running distances") as progress:
            return gw.distances(graph, sources, targets, progress=progress, **self.arguments)

    def verify(self, result: DistancesResult) -> str:
        from godwit.algorithms.distances.verify import verify_distances

        weighted = self.arguments["weighted"] is not False and result.graph.is_weighted
        rows = verify_distances(result, weighted=weighted, cutoff=self.arguments["cutoff"])
        return f"every distance from {rows} of {len(result.distance)} source(s) is right"

    def write(self, output: Output, result: DistancesResult) -> None:
        from godwit.algorithms.distances.result import distance_table

        output.write_matrix(
            result.distance, lambda: distance_table(result, result.graph.ids.in_file)
        )

    def facts(self, result: DistancesResult, outcome: Facts) -> Facts:
        ids = result.graph.ids.in_file
        targets = None if result._targets is None else ids.of(result._targets)
        return {
            "graph": graph_facts(self.graph, self.input),
            "targets": targets,
            "rows": [
                _row_facts(result, row, source, targets is not None)
                for row, source in enumerate(ids.of(result._sources))
            ],
            **outcome,
            "statistics": self.statistics(result),
        }

    def show(self, report: Report, facts: Facts) -> None:
        rows = facts["rows"]
        columns = facts["graph"]["vertices"] if facts["targets"] is None else len(facts["targets"])
        if facts["output"] is None:
            self._show_matrix(report, facts, columns)
        size = graph_line(facts["graph"])
        report.facts(
            [
                ("distances", f"from {integer(len(rows))} to {integer(columns)} vertices"),
                *outcome_rows(facts),
                *closing_rows(facts, size, verbose=self.options.verbose),
            ]
        )

    def _show_matrix(self, report: Report, facts: Facts, columns: int) -> None:
        """Print the distances to targets, or a line of numbers for each source."""
        rows = facts["rows"]
        shown = rows[:_SHOWN_ROWS]
        title = "Distances" if len(rows) <= _SHOWN_ROWS else f"The first {_SHOWN_ROWS} sources"
        if facts["targets"] is not None and columns <= _SHOWN_COLUMNS:
            header = ["from \\ to", *map(str, facts["targets"])]
            cells = [
                [str(row["source"]), *(_or_dash(value) for value in row["distances"])]
                for row in shown
            ]
        else:
            header = ["source", "reached", "largest distance", "mean distance"]
            cells = [
                [
                    str(row["source"]), integer(row["reached_vertices"]),
                    number(row["largest_distance"]), number(row["mean_distance"]),
                ]
                for row in shown
            ]  # fmt: skip
        report.table(header, cells, title=title, text_columns=0)


def _or_dash(distance: Any) -> str:
    return "-" if distance is None else number(distance)


def _row_facts(result: DistancesResult, row: int, source: Any, has_targets: bool) -> Facts:
    """Return the number, the largest and the mean of a row's distances, and all of them to targets."""
    distance = result.distance[row]
    reached = distance[distance != result.unreached]
    facts = {
        "source": source,
        "reached_vertices": len(reached),
        "largest_distance": plain(reached.max()) if len(reached) else None,
        "mean_distance": plain(reached.mean()) if len(reached) else None,
    }
    if has_targets:
        facts["distances"] = [
            None if value == result.unreached else value for value in distance.tolist()
        ]
    return facts


@with_options
def distances(
    graph: GraphArgument,
    options: ResultOptions,
    run: RunOptions,
    reading: ReadingOptions,
    source: Annotated[list[str], Option("-s", "ID")],
    target: Annotated[list[str] | None, Option("-t", "ID")] = None,
    cutoff: Annotated[str | None, Option(metavar="DISTANCE")] = None,
    ignore_weights: bool = False,
) -> None:
    """Distances from each of several vertices, to all vertices or to some: a row for each source.

    Distances are sums of weights, if the graph has weights, else numbers of arcs.

    Files: .npy holds the matrix, a row for each source and a column for each target, or for each vertex in
    the order of the vertices; where there is no path it has the largest value of the dtype, or infinity.
    .csv and .parquet have columns source and target, numbered as in the file of the graph, and distance,
    and a row for each pair that a path connects.

    :param source: Vertex to begin at: an id of the file, or max-degree for the vertex with most arcs. May
        be given several times.
    :param target: Vertex whose distances are wanted; by default all. May be given several times.
    :param cutoff: Vertices farther away are not reached.
    :param ignore_weights: Count arcs.
    """
    from godwit.algorithms.paths.result import check_cutoff

    arguments = {
        "cutoff": parse_distance(cutoff, "cutoff"),
        "weighted": False if ignore_weights else None,
        **run.arguments,
    }
    check_cutoff(arguments["cutoff"])  # before a large file is read
    _DistancesQuery("distances", graph, options, reading, source, target or [], arguments).answer()
