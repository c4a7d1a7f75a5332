"""The command ``betweenness``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from godwit.cli.facts import Facts, plain, smallest
from godwit.cli.inputs import parse_vertex
from godwit.cli.options import GraphArgument, Option, ReadingOptions, RunOptions, with_options
from godwit.cli.query import ScoreOptions, ScoreQuery, rows_of_vertices
from godwit.cli.report import integer
from godwit.config import launched_processes
from godwit.errors import InputError

if TYPE_CHECKING:
    from godwit.algorithms.betweenness.result import BetweennessResult
    from godwit.cli.outputs import Output
    from godwit.distributed.gpu_graph import GpuGraph
    from godwit.distributed.graph import DistributedGraph
    from godwit.distributed.processes import Processes
    from godwit.graph.csr import Graph

EXAMPLES = """
godwit betweenness soc.mtx --undirected --top 20
godwit betweenness USA-road-d.NY.gr.xz --samples 100 --output centrality.parquet
godwit betweenness roads.gr --undirected --edges --output - | sort -t, -k3gr | head
godwit betweenness USA-road-d.NY.gr.xz --undirected --samples 100
godwit betweenness rmat:22 --samples 50 --devices cuda
godwit betweenness rmat:20 --source max-degree --unnormalized --json | jq .top
"""


@dataclass
class _BetweennessQuery(ScoreQuery):
    title = "The highest centralities"

    sources: list[str]

    def compute(self, graph: Graph, progress: Any) -> Any:
        sources = [parse_vertex(text, graph, "source") for text in self.sources] or None
        return self.function(graph, sources=sources, progress=progress, **self.arguments)

    def verify(self, result: BetweennessResult) -> str:
        from godwit.algorithms.betweenness.verify import (
            searches_in_seconds,
            verify_betweenness_centrality,
        )

        sources = result.sources
        samples = searches_in_seconds(result.graph)
        verify_betweenness_centrality(
            result.graph,
            result.centrality,
            result.edge_centrality if self.arguments["edges"] else None,
            sources=sources if len(sources) else None,
            normalized=self.arguments["normalized"],
            endpoints=self.arguments["endpoints"],
            weighted=self.arguments["weighted"],
            samples=samples,
            seed=self.arguments["seed"],
        )
        if len(sources) <= samples:
            return "every centrality is right"
        return f"no centrality is less than what {samples} of {len(sources)} sources contribute"

    def write(self, output: Output, result: BetweennessResult) -> None:
        from godwit.graph.interchange.tables import Column

        if self.arguments["edges"]:
            output.write_edges(Column("centrality", result.edge_centrality), result.graph)
        else:
            output.write(result.columns, result.graph.ids.in_file)

    def highest(self, result: BetweennessResult, count: int) -> list[Facts]:
        if self.arguments["edges"]:
            return _highest_edges(result, count)
        return rows_of_vertices(result.graph, result.highest(count), "centrality")

    def details(self, result: BetweennessResult) -> Facts:
        weighted = self.arguments["weighted"] is not False and result.graph.is_weighted
        return _details(self.arguments, len(result.sources), weighted)

    def summary(self, facts: Facts) -> tuple[str, str]:
        return _summary(facts)


def _details(arguments: dict[str, Any], sources: int, weighted: bool) -> Facts:
    """Return the entries of ``--json`` that describe the result."""
    flags = ("normalized", "endpoints", "edges")
    return {
        "sources": sources,
        **{name: arguments[name] for name in flags},
        "weighted": weighted,
    }


def _summary(facts: Facts) -> tuple[str, str]:
    """Return the line of the report about the searches."""
    lengths = "; by weights" if facts["weighted"] else ""
    scale = "normalized" if facts["normalized"] else "not normalized"
    counted = "ends of paths count" if facts["endpoints"] else "ends of paths do not count"
    if facts["edges"]:
        counted = "of edges"
    return (
        "searches",
        f"from {integer(facts['sources'])} source(s); {scale}; {counted}{lengths}",
    )


def _highest_edges(result: BetweennessResult, count: int) -> list[Facts]:
    """Return the edges of the highest centralities; of equal ones the first in the order of arcs."""
    import numpy as np

    graph, values = result.graph, result.edge_centrality
    arcs = np.arange(graph.arc_count)
    if not graph.directed:  # each edge by one of its two arcs
        arcs = arcs[np.repeat(np.arange(graph.vertex_count), graph.out_degree()) <= graph.targets]
    chosen = arcs[smallest(-values[arcs], count)]
    tails = np.searchsorted(graph.offsets, chosen, "right") - 1
    ids = graph.ids.in_file
    return [
        {
            "source": ids[int(tail)],
            "target": ids[int(graph.targets[arc])],
            "centrality": plain(values[arc]),
        }
        for tail, arc in zip(tails, chosen, strict=True)
    ]


@with_options
def betweenness(
    graph: GraphArgument,
    options: ScoreOptions,
    run: RunOptions,
    reading: ReadingOptions,
    samples: Annotated[int | None, Option("-k", "COUNT")] = None,
    source: Annotated[list[str] | None, Option("-s", "ID")] = None,
    seed: int = 0,
    unnormalized: bool = False,
    endpoints: bool = False,
    edges: bool = False,
    ignore_weights: bool = False,
) -> None:
    """Betweenness centrality: the number of shortest paths through each vertex; with --edges, through each
    edge.

    Paths from all vertices count, for which there is one search per vertex; --samples or --source estimate
    the numbers from fewer. The length of a path is the sum of its weights, which must be positive; in a
    graph without weights, or with --ignore-weights, the number of its arcs.

    Files: .npy holds the centralities in the order of the vertices; .csv and .parquet have columns vertex,
    numbered as in the file of the graph, and centrality. With --edges, .npy holds a number for each arc, in
    the order of graph.targets, and tables (source, target, centrality) list each edge of an undirected
    graph once.

    :param samples: Search from this number of vertices drawn at random.
    :param source: Search from this vertex: an id of the file, or max-degree for the vertex with most arcs.
        May be given several times.
    :param seed: Seed for drawing the samples.
    :param unnormalized: Do not divide by the number of pairs.
    :param endpoints: Count the two ends of a path as on it.
    :param edges: Centralities of edges (of arcs, where the graph is directed).
    :param ignore_weights: Count arcs.
    """
    from godwit.dtypes import as_count

    if edges and endpoints:
        raise InputError(
            "--endpoints counts vertices at the ends of paths: leave out --edges, or it"
        )
    as_count(seed, "seed")
    if samples is not None:
        as_count(samples, "samples", 1)
        if source:
            raise InputError("give --source or --samples, not both")
    arguments = {
        "normalized": not unnormalized,
        "endpoints": endpoints,
        "edges": edges,
        "weighted": False if ignore_weights else None,
        "samples": samples,
        "seed": seed,
        **run.arguments,
    }
    if launched_processes() > 1:
        given = {"--edges": edges or None, "--top": options.top}
        _on_processes(graph, options, reading, arguments, source or [], given, run.devices)
        return
    query = _BetweennessQuery(
        "betweenness", graph, options, reading, arguments, "betweenness_centrality", source or []
    )
    query.check_early(samples=None)
    query.answer()


def _on_processes(
    graph: str, options: ScoreOptions, reading: ReadingOptions, arguments: dict[str, Any],
    sources: list[str], given: dict[str, Any], devices: str | None,
) -> None:  # fmt: skip
    """Compute centralities on the processes that ``mpiexec`` has started.

    :param given: options that one process alone takes; None if not given
    """
    from godwit.cli.processes import ProcessesQuery, parse_placed_vertex

    taken = {key: value for key, value in arguments.items() if key not in ("devices", "edges")}

    def call(graph: DistributedGraph | GpuGraph, progress: Any) -> Any:
        import godwit as gw

        chosen = [parse_placed_vertex(text, graph, "source") for text in sources] or None
        return gw.betweenness_centrality(graph, sources=chosen, progress=progress, **taken)

    def describe(processes: Processes, graph: DistributedGraph | GpuGraph, result: Any) -> Facts:
        weighted = arguments["weighted"] is not False and graph.is_weighted
        return _details(arguments, len(result.source_positions), weighted)

    ProcessesQuery(
        "betweenness",
        graph,
        options,
        reading,
        call,
        describe,
        lambda facts: [_summary(facts)],
        given,
        devices=devices,
    ).answer()
