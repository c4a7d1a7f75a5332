"""The command ``betweenness``: of how many shortest paths each vertex is part."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from godwit.cli import inputs, options
from godwit.cli.progress import Display
from godwit.cli.ranks import CoresOption, TopOption, print_highest
from godwit.errors import InputError

if TYPE_CHECKING:
    from godwit.algorithms.betweenness import BetweennessResult
    from godwit.cli.report import Report

BETWEENNESS_HELP = (
    "Betweenness centrality: of how many shortest paths, counted in arcs, each vertex is part.\n\n"
    "From all vertices, which takes as many searches as there are vertices; --samples or --source "
    "estimate it from fewer. Weights do not count. Runs on the CPU so far.\n\n"
    "Files: .npy holds the centralities in the order of the vertices; in .csv and .parquet vertices "
    "are numbered as in the file of the graph."
)
BETWEENNESS_EPILOG = """Examples:

  godwit betweenness soc.mtx --undirected --top 20

  godwit betweenness USA-road-d.NY.gr.xz --samples 100 --output centrality.parquet

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
    top: TopOption = 10,
    output: OutputOption = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    devices: CoresOption = None,
    timeout: options.TimeoutOption = None,
    *,
    reading: options.Reading,
) -> None:
    """Centralities of vertices."""
    from godwit.algorithms.betweenness import betweenness_columns
    from godwit.cli import facts
    from godwit.cli.outputs import Output
    from godwit.cli.report import Report, print_json

    asked: dict[str, Any] = {
        "normalized": not unnormalized,
        "endpoints": endpoints,
        "devices": inputs.parse_devices(devices),
        "timeout_s": timeout,
    }
    _check_early(asked, samples, source, seed, top)
    destination = Output(output, graph)
    if json and destination.on_stdout:
        raise InputError("--json and --output - both want stdout; give --output a file")
    display = Display(quiet=quiet)
    begin = perf_counter()
    loaded = inputs.load_graph(graph, display, reading)
    read_s = perf_counter() - begin
    asked |= {"samples": samples, "seed": seed}
    if source:
        asked["sources"] = [inputs.parse_vertex(text, loaded, "source") for text in source]
    result = _search(loaded, asked, display)
    if destination.target is not None:
        with display.waiting("writing"), result.statistics.phase("write"):
            destination.write(betweenness_columns(result), loaded.ids)
    statistics = result.statistics.to_dict()
    statistics["seconds"] = {"read": read_s, **statistics["seconds"]}
    found = {
        "command": "betweenness",
        "graph": facts.graph_facts(loaded, graph),
        "sources": len(result.sources),
        "normalized": not unnormalized,
        "endpoints": endpoints,
        "top": [
            {"vertex": loaded.ids[int(v)], "centrality": facts.plain(result.centrality[v])}
            for v in result.highest(top)
        ],
        "output": destination.target,
        "statistics": statistics,
    }
    if json:
        print_json(found)
    elif not quiet:
        _print(Report(on_stderr=destination.on_stdout), found)


def _check_early(
    asked: dict[str, Any], samples: int | None, source: list[str] | None, seed: int, top: int
) -> None:
    """Fail before a large file is read, where that is possible: by the centralities of no vertices."""
    from godwit import api
    from godwit.dtypes import as_count
    from godwit.graph.csr import Graph

    as_count(top, "top")
    as_count(seed, "seed")
    if samples is not None:
        as_count(samples, "samples", 1)
        if source:
            raise InputError("give --source or --samples, not both")
    api.betweenness_centrality(Graph.from_arcs([], []), **asked)


def _search(loaded: Any, asked: dict[str, Any], display: Display) -> BetweennessResult:
    from godwit import api

    with display.items("running betweenness") as progress:
        return api.betweenness_centrality(loaded, progress=progress, **asked)


def _print(report: Report, facts: dict[str, Any]) -> None:
    """The tables."""
    from godwit.cli.report import integer

    scale = "normalized" if facts["normalized"] else "not normalized"
    ends = "ends of paths count" if facts["endpoints"] else "ends of paths do not count"
    said = f"from {integer(facts['sources'])} source(s); {scale}; {ends}"
    print_highest(report, facts, ("searches", said), "centrality", "The highest centralities")
