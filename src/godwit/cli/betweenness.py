"""The command ``betweenness``: of how many shortest paths each vertex, or each edge, is part."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from godwit.cli import inputs, options
from godwit.cli.scores import Scores, TopOption, answer, check_early, highest_vertices
from godwit.errors import InputError

if TYPE_CHECKING:
    from godwit.algorithms.betweenness.result import BetweennessResult
    from godwit.cli.outputs import Output
    from godwit.graph.csr import Graph

BETWEENNESS_HELP = (
    "Betweenness centrality: of how many shortest paths each vertex is part; with --edges, each "
    "edge.\n\n"
    "From all vertices, which takes as many searches as there are vertices; --samples or --source "
    "estimate it from fewer. The length of a path is the number of its arcs, whatever weights there "
    "are; with --weighted the sum of its weights.\n\n"
    "Files: .npy holds the centralities in the order of the vertices; in .csv and .parquet vertices "
    "are numbered as in the file of the graph. With --edges, .npy holds a number for each arc, in the "
    "order of graph.targets, and tables have each edge of an undirected graph once."
)
BETWEENNESS_EPILOG = """Examples:

  godwit betweenness soc.mtx --undirected --top 20

  godwit betweenness USA-road-d.NY.gr.xz --samples 100 --output centrality.parquet

  godwit betweenness roads.gr --undirected --edges --output - | sort -t, -k3gr | head

  godwit betweenness USA-road-d.NY.gr.xz --undirected --weighted --samples 100

  godwit betweenness rmat:22 --samples 50 --devices cuda

  godwit betweenness rmat:20 --source max-degree --unnormalized --json | jq .top
"""

SamplesOption = Annotated[
    int | None,
    typer.Option(
        "--samples",
        "-k",
        metavar="COUNT",
        help="Search from so many vertices drawn at random.",
        show_default=False,
    ),
]
SourcesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        "-s",
        metavar="ID",
        help="Search from this vertex, as the file numbers them, or max-degree for the vertex with "
        "most arcs; may be given several times.",
        show_default=False,
    ),
]
DrawOption = Annotated[int, typer.Option("--seed", help="Seed of the draw of samples.")]
UnnormalizedOption = Annotated[
    bool, typer.Option("--unnormalized", help="Do not divide by the number of pairs.")
]
EndpointsOption = Annotated[
    bool, typer.Option("--endpoints", help="Count the two ends of a path as on it.")
]
WeightedOption = Annotated[
    bool,
    typer.Option("--weighted", help="Shortest by weights, which have to be positive."),
]
EdgesOption = Annotated[
    bool, typer.Option("--edges", help="Of edges (of arcs, where the graph is directed).")
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the centralities: .npy (an array in the order of the vertices), .csv or .parquet "
        "(columns vertex and centrality; with --edges source, target and centrality), or - for CSV on "
        "stdout.",
        rich_help_panel="What comes out",
        show_default=False,
    ),
]


@options.reads_graph
def betweenness(
    graph: options.GraphOption,
    samples: SamplesOption = None,
    source: SourcesOption = None,
    seed: DrawOption = 0,
    unnormalized: UnnormalizedOption = False,
    endpoints: EndpointsOption = False,
    edges: EdgesOption = False,
    weighted: WeightedOption = False,
    top: TopOption = None,
    output: OutputOption = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    devices: options.DevicesOption = None,
    timeout: options.TimeoutOption = None,
    trace: options.TraceOption = None,
    verify: options.VerifyOption = False,
    *,
    reading: options.Reading,
) -> None:
    """Centralities of vertices, or of edges."""
    if edges and endpoints:
        raise InputError(
            "--endpoints counts vertices at the ends of paths: leave out --edges, or it"
        )
    asked: dict[str, Any] = {
        "normalized": not unnormalized,
        "endpoints": endpoints,
        "edges": edges,
        "weighted": weighted,
        "devices": inputs.parse_devices(devices),
        "timeout_s": timeout,
    }
    _check_early(asked, samples, source, seed, top)
    asked |= {"samples": samples, "seed": seed}
    kind = Scores(
        command="betweenness",
        run=partial(_search, asked, source or []),
        write=_write_edges if edges else _write_vertices,
        highest=_highest_edges if edges else partial(highest_vertices, "centrality"),
        facts=partial(_facts, asked),
        line=_line,
        title="The highest centralities",
        verify=partial(_verify, asked),
    )
    answer(
        kind,
        graph,
        reading,
        top=top,
        output=output,
        json=json,
        quiet=quiet,
        trace=trace,
        verify=verify,
    )


def _check_early(
    asked: dict[str, Any], samples: int | None, source: list[str] | None, seed: int, top: int | None
) -> None:
    """As far as possible by the centralities of no vertices."""
    import godwit as gw
    from godwit.dtypes import as_count
    from godwit.graph.csr import Graph

    askable = check_early(asked, top) | {
        "weighted": False
    }  # the graph of no vertices has no weights
    as_count(seed, "seed")
    if samples is not None:
        as_count(samples, "samples", 1)
        if source:
            raise InputError("give --source or --samples, not both")
    gw.betweenness_centrality(Graph.from_edges([], []), **askable)


def _search(
    asked: dict[str, Any], source: list[str], loaded: Graph, progress: Any
) -> BetweennessResult:
    import godwit as gw

    if asked["weighted"] and not loaded.is_weighted:
        raise InputError("--weighted needs a graph with weights, and this one has none")
    sources = [inputs.parse_vertex(text, loaded, "source") for text in source] or None
    return gw.betweenness_centrality(loaded, sources=sources, progress=progress, **asked)


def _write_vertices(output: Output, result: BetweennessResult) -> None:
    from godwit.algorithms.betweenness.result import betweenness_columns

    output.write(betweenness_columns(result), result.graph.ids.in_file)


def _write_edges(output: Output, result: BetweennessResult) -> None:
    from godwit.graph.interchange.tables import Column

    output.write_edges(Column("centrality", result.edge_centrality), result.graph)


def _highest_edges(result: BetweennessResult, count: int) -> list[dict[str, Any]]:
    """The edges of the highest numbers; of equal ones the first of the arcs."""
    import numpy as np

    from godwit.cli.facts import plain, smallest

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


def _verify(asked: dict[str, Any], result: BetweennessResult) -> str:
    from godwit.algorithms.betweenness.verify import (
        searches_in_seconds,
        verify_betweenness_centrality,
    )

    graph, sources = result.graph, result.sources
    samples = searches_in_seconds(graph)
    verify_betweenness_centrality(
        graph,
        result.centrality,
        result.edge_centrality if asked["edges"] else None,
        sources=sources if len(sources) else None,
        normalized=asked["normalized"],
        endpoints=asked["endpoints"],
        weighted=asked["weighted"],
        samples=samples,
        seed=asked["seed"],
    )
    if len(sources) <= samples:
        return "every centrality is right"
    return f"no centrality is less than what {samples} of {len(sources)} sources contribute"


def _facts(asked: dict[str, Any], result: BetweennessResult) -> dict[str, Any]:
    return {
        "sources": len(result.sources),
        "normalized": asked["normalized"],
        "endpoints": asked["endpoints"],
        "edges": asked["edges"],
        "weighted": asked["weighted"],
    }


def _line(facts: dict[str, Any]) -> tuple[str, str]:
    from godwit.cli.report import integer

    lengths = "; by weights" if facts["weighted"] else ""
    scale = "normalized" if facts["normalized"] else "not normalized"
    of = "ends of paths count" if facts["endpoints"] else "ends of paths do not count"
    if facts["edges"]:
        of = "of edges"
    return "searches", f"from {integer(facts['sources'])} source(s); {scale}; {of}{lengths}"
