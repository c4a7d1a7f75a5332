"""The command ``betweenness``: of how many shortest paths each vertex is part."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from godwit.cli import inputs, options
from godwit.cli.scores import Scores, TopOption, answer, check_early
from godwit.errors import InputError

if TYPE_CHECKING:
    from godwit.algorithms.betweenness import BetweennessResult
    from godwit.graph.csr import Graph

BETWEENNESS_HELP = (
    "Betweenness centrality: of how many shortest paths, counted in arcs, each vertex is part.\n\n"
    "From all vertices, which takes as many searches as there are vertices; --samples or --source "
    "estimate it from fewer. Weights do not count. That of edges is to be had in Python only: "
    "betweenness_centrality(edges=True).\n\n"
    "Files: .npy holds the centralities in the order of the vertices; in .csv and .parquet vertices "
    "are numbered as in the file of the graph."
)
BETWEENNESS_EPILOG = """Examples:

  godwit betweenness soc.mtx --undirected --top 20

  godwit betweenness USA-road-d.NY.gr.xz --samples 100 --output centrality.parquet

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
OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the centralities: .npy (an array in the order of the vertices), .csv or .parquet "
        "(columns vertex and centrality), or - for CSV on stdout.",
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
    top: TopOption = None,
    output: OutputOption = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    devices: options.DevicesOption = None,
    timeout: options.TimeoutOption = None,
    *,
    reading: options.Reading,
) -> None:
    """Centralities of vertices."""
    from godwit.algorithms.betweenness import betweenness_columns

    asked: dict[str, Any] = {
        "normalized": not unnormalized,
        "endpoints": endpoints,
        "devices": inputs.parse_devices(devices),
        "timeout_s": timeout,
    }
    _check_early(asked, samples, source, seed, top)
    asked |= {"samples": samples, "seed": seed}
    kind = Scores(
        command="betweenness",
        column="centrality",
        run=partial(_search, asked, source or []),
        columns=betweenness_columns,
        facts=partial(_facts, asked),
        line=_line,
        title="The highest centralities",
    )
    answer(kind, graph, reading, top=top, output=output, json=json, quiet=quiet)


def _check_early(
    asked: dict[str, Any], samples: int | None, source: list[str] | None, seed: int, top: int | None
) -> None:
    """As far as possible by the centralities of no vertices."""
    from godwit import api
    from godwit.dtypes import as_count
    from godwit.graph.csr import Graph

    askable = check_early(asked, top)
    as_count(seed, "seed")
    if samples is not None:
        as_count(samples, "samples", 1)
        if source:
            raise InputError("give --source or --samples, not both")
    api.betweenness_centrality(Graph.from_arcs([], []), **askable)


def _search(
    asked: dict[str, Any], source: list[str], loaded: Graph, progress: Any
) -> BetweennessResult:
    from godwit import api

    sources = [inputs.parse_vertex(text, loaded, "source") for text in source] or None
    return api.betweenness_centrality(loaded, sources=sources, progress=progress, **asked)


def _facts(asked: dict[str, Any], result: BetweennessResult) -> dict[str, Any]:
    return {
        "sources": len(result.sources),
        "normalized": asked["normalized"],
        "endpoints": asked["endpoints"],
    }


def _line(facts: dict[str, Any]) -> tuple[str, str]:
    from godwit.cli.report import integer

    scale = "normalized" if facts["normalized"] else "not normalized"
    ends = "ends of paths count" if facts["endpoints"] else "ends of paths do not count"
    return "searches", f"from {integer(facts['sources'])} source(s); {scale}; {ends}"
