"""The command ``pagerank``: a number for every vertex, and those where it is highest."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from godwit.cli import inputs, options
from godwit.cli.progress import Display
from godwit.errors import InputError

if TYPE_CHECKING:
    from godwit.algorithms.pagerank import PageRankResult
    from godwit.cli.report import Report

PAGERANK_HELP = (
    "PageRank: the share of time that a walker spends at each vertex, who follows arcs and now and "
    "then begins anew anywhere.\n\n"
    "Arcs are followed in proportion to their weights, where the graph has some; a vertex without "
    "out-arcs passes its rank on to all. Ranks sum to 1. Runs on the CPU so far.\n\n"
    "Files: .npy holds the ranks in the order of the vertices; in .csv and .parquet vertices are "
    "numbered as in the file of the graph."
)
PAGERANK_EPILOG = """Examples:

  godwit pagerank web.mtx.gz --top 20

  godwit pagerank follows.csv --columns user,friend --output ranks.parquet

  godwit pagerank rmat:20 --tolerance 1e-9 --max-iterations 500 --json | jq .iterations

  godwit pagerank roads.gr --ignore-weights --output - | sort -t, -k2gr | head
"""

DampingOption = Annotated[
    float,
    typer.Option("--damping", help="How much of a rank goes along arcs; the rest goes everywhere."),
]
ToleranceOption = Annotated[
    float,
    typer.Option(
        "--tolerance", help="Stop when an iteration changes the ranks by less than this in sum."
    ),
]
IterationsOption = Annotated[
    int, typer.Option("--max-iterations", help="Stop then, converged or not.")
]
IgnoreWeightsOption = Annotated[
    bool, typer.Option("--ignore-weights", help="Follow all arcs of a vertex alike.")
]
DtypeOption = Annotated[
    str,
    typer.Option(
        "--dtype",
        help="float64, or float32: faster, and exact to some 1e-7 of the sum.",
    ),
]
TopOption = Annotated[
    int,
    typer.Option(
        "--top",
        metavar="COUNT",
        help="How many vertices to show, the highest first.",
        rich_help_panel="What comes out",
    ),
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the ranks: .npy (an array in the order of the vertices), .csv or .parquet "
        "(columns vertex and rank), or - for CSV on stdout.",
        rich_help_panel="What comes out",
        show_default=False,
    ),
]
CoresOption = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="NAME",
        help="cpu is all cores (the default), cpu:0 one of them.",
        rich_help_panel="Where it runs",
    ),
]


@options.reads_graph
def pagerank(
    graph: options.GraphOption,
    damping: DampingOption = 0.85,
    tolerance: ToleranceOption = 1e-6,
    max_iterations: IterationsOption = 100,
    ignore_weights: IgnoreWeightsOption = False,
    dtype: DtypeOption = "float64",
    top: TopOption = 10,
    output: OutputOption = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    devices: CoresOption = None,
    timeout: options.TimeoutOption = None,
    *,
    reading: options.Reading,
) -> None:
    """Ranks of vertices."""
    from godwit.algorithms.pagerank import rank_columns
    from godwit.cli import facts
    from godwit.cli.outputs import Output
    from godwit.cli.report import Report, print_json

    asked: dict[str, Any] = {
        "damping": damping,
        "tolerance": tolerance,
        "max_iterations": max_iterations,
        "dtype": dtype,
        "devices": inputs.parse_devices(devices),
        "timeout_s": timeout,
    }
    _check_early(asked, top)
    destination = Output(output, graph)
    if json and destination.on_stdout:
        raise InputError("--json and --output - both want stdout; give --output a file")
    display = Display(quiet=quiet)
    begin = perf_counter()
    loaded = inputs.load_graph(graph, display, reading)
    read_s = perf_counter() - begin
    result = _rank(loaded, asked, ignore_weights, display)
    if destination.target is not None:
        with display.waiting("writing"), result.statistics.phase("write"):
            destination.write(rank_columns(result), loaded.ids)
    statistics = result.statistics.to_dict()
    statistics["seconds"] = {"read": read_s, **statistics["seconds"]}
    found = {
        "command": "pagerank",
        "graph": facts.graph_facts(loaded, graph),
        "damping": damping,
        "tolerance": facts.plain(tolerance),
        "iterations": result.iterations,
        "converged": result.converged,
        "residual": facts.plain(result.residual),
        "top": [
            {"vertex": loaded.ids[int(v)], "rank": facts.plain(result.rank[v])}
            for v in result.highest(top)
        ],
        "output": destination.target,
        "statistics": statistics,
    }
    if json:
        print_json(found)
    elif not quiet:
        _print(Report(on_stderr=destination.on_stdout), found)


def _check_early(asked: dict[str, Any], top: int) -> None:
    """Fail before a large file is read, where that is possible: by the ranks of no vertices."""
    from godwit import api
    from godwit.dtypes import as_count
    from godwit.graph.csr import Graph

    as_count(top, "top")
    timeout_s = asked["timeout_s"]
    if timeout_s is not None and not timeout_s > 0:
        raise InputError(f"timeout must be a positive number of seconds, got {timeout_s:g}")
    api.pagerank(Graph.from_arcs([], []), **asked)


def _rank(loaded: Any, asked: dict[str, Any], ignore_weights: bool, display: Display) -> Any:
    from godwit import api

    with display.items("running pagerank") as progress:
        result: PageRankResult = api.pagerank(
            loaded, weighted=False if ignore_weights else None, progress=progress, **asked
        )
    return result


def _print(report: Report, facts: dict[str, Any]) -> None:
    """The tables."""
    from godwit.cli.report import integer, number

    state = "converged" if facts["converged"] else "NOT converged"
    said = (
        f"{state} after {integer(facts['iterations'])} iterations: the last changed them by "
        f"{number(facts['residual'])} in sum, tolerance {_shown(facts['tolerance'])}"
    )
    print_highest(report, facts, ("ranks", said), "rank", "The highest ranks")


def _shown(tolerance: Any) -> str:
    from godwit.cli.report import number

    return "none" if tolerance is None else number(tolerance)


def print_highest(
    report: Report, facts: dict[str, Any], line: tuple[str, str], column: str, title: str
) -> None:
    """What was asked and how it went, and the vertices with the highest numbers.

    :param line: what to say of this command between its devices and its seconds
    :param column: of ``facts["top"]``, the numbers
    """
    from godwit.cli.report import graph_line, number

    statistics = facts["statistics"]
    seconds = ", ".join(f"{phase} {taken:.4f}" for phase, taken in statistics["seconds"].items())
    rows = [
        ("graph", f"{facts['graph']['name']}: {graph_line(facts['graph'])}"),
        ("devices", f"{', '.join(statistics['devices'])} ({statistics['solver']})"),
        line,
        ("seconds", seconds),
    ]
    if facts["output"] is not None:
        rows.append(("output", facts["output"]))
    report.facts(rows)
    if facts["top"] and facts["output"] is None:
        found = [[str(row["vertex"]), number(row[column])] for row in facts["top"]]
        report.table(["vertex", column], found, title=title, text_columns=0)
