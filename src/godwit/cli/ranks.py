"""The command ``pagerank``: a number for every vertex, and those where it is highest."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from godwit.cli import inputs, options
from godwit.cli.failures import end_unconverged
from godwit.cli.scores import Scores, TopOption, answer, check_early, highest_vertices

if TYPE_CHECKING:
    from godwit.algorithms.pagerank.result import PageRankResult
    from godwit.graph.csr import Graph

PAGERANK_HELP = (
    "PageRank: the share of time that a walker spends at each vertex, who follows arcs and now and "
    "then begins anew anywhere.\n\n"
    "Arcs are followed in proportion to their weights, where the graph has some; a vertex without "
    "out-arcs passes its rank on to all. Ranks sum to 1. Where they have not converged after "
    "--max-iterations, they are written and shown all the same, and the exit status is 3. "
    "--execution asynchronous pushes residuals, also on several devices of the CPU: there are no "
    "iterations, so neither --max-iterations nor --plain.\n\n"
    "Files: .npy holds the ranks in the order of the vertices; in .csv and .parquet vertices are "
    "numbered as in the file of the graph."
)
PAGERANK_EPILOG = """Examples:

  godwit pagerank web.mtx.gz --top 20

  godwit pagerank follows.csv --columns user,friend --output ranks.parquet

  godwit pagerank rmat:20 --devices cuda --dtype float32 --output ranks.npy

  godwit pagerank rmat:20 --tolerance 1e-9 --max-iterations 500 --json | jq .iterations

  godwit pagerank rmat:20 --devices cuda --verify

  godwit pagerank roads.gr --ignore-weights --output - | sort -t, -k2gr | head
"""

DampingOption = Annotated[
    float,
    typer.Option("--damping", help="How much of a rank goes along arcs; the rest goes everywhere."),
]
ToleranceOption = Annotated[
    float,
    typer.Option(
        "--tolerance",
        help="Stop when an iteration changes the ranks (asynchronously: would change them) by less than "
        "this in sum.",
    ),
]
IterationsOption = Annotated[
    int | None,
    typer.Option(
        "--max-iterations",
        min=1,
        help="Stop then, converged or not; after 100 by default.",
        show_default=False,
    ),
]
IgnoreWeightsOption = Annotated[
    bool, typer.Option("--ignore-weights", help="Follow all arcs of a vertex alike.")
]
PlainOption = Annotated[
    bool,
    typer.Option(
        "--plain",
        help="Every iteration as the definition says, to count them; else far fewer do for an undirected "
        "graph.",
    ),
]
DtypeOption = Annotated[
    str,
    typer.Option(
        "--dtype",
        help="float64, or float32: faster, and exact to some 1e-7 of the sum.",
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


@options.reads_graph
def pagerank(
    graph: options.GraphOption,
    damping: DampingOption = 0.85,
    tolerance: ToleranceOption = 1e-6,
    max_iterations: IterationsOption = None,
    ignore_weights: IgnoreWeightsOption = False,
    plain: PlainOption = False,
    dtype: DtypeOption = "float64",
    top: TopOption = None,
    output: OutputOption = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    devices: options.DevicesOption = None,
    execution: options.ExecutionOption = None,
    timeout: options.TimeoutOption = None,
    trace: options.TraceOption = None,
    verify: options.VerifyOption = False,
    *,
    reading: options.Reading,
) -> None:
    """Ranks of vertices."""
    from godwit.algorithms.pagerank.result import rank_columns

    asked: dict[str, Any] = {
        "damping": damping,
        "tolerance": tolerance,
        "max_iterations": max_iterations,
        "accelerated": False if plain else None,
        "dtype": dtype,
        "execution": "auto" if execution is None else execution,
        "devices": inputs.parse_devices(devices),
        "timeout_s": timeout,
    }
    _check_early(asked, top)
    asked["weighted"] = False if ignore_weights else None
    kind = Scores(
        command="pagerank",
        run=partial(_rank, asked),
        write=lambda output, result: output.write(rank_columns(result), result.graph.ids.in_file),
        highest=partial(highest_vertices, "rank"),
        facts=partial(_facts, asked),
        line=_line,
        title="The highest ranks",
        verify=partial(_verify, asked),
    )
    result = answer(
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
    if not result.converged:
        by = f"{result.residual:.3g} in sum"
        end_unconverged(
            f"not converged: one more iteration would change the ranks by up to {by} (--tolerance)"
            if result.iterations is None
            else f"not converged after {result.iterations} iterations: the last changed the ranks by {by} "
            "(--max-iterations, --tolerance)"
        )


def _check_early(asked: dict[str, Any], top: int | None) -> None:
    """As far as possible by the ranks of no vertices."""
    import godwit as gw
    from godwit.graph.csr import Graph

    gw.pagerank(Graph.from_edges([], []), **check_early(asked, top))


def _rank(asked: dict[str, Any], loaded: Graph, progress: Any) -> PageRankResult:
    import godwit as gw

    return gw.pagerank(loaded, progress=progress, **asked)


def _verify(asked: dict[str, Any], result: PageRankResult) -> str:
    from godwit.algorithms.pagerank.verify import verify_pagerank

    # Of ranks that have not converged it is checked that they are as near as is said.
    tolerance = asked["tolerance"]
    if not result.converged or tolerance == math.inf:
        tolerance = result.residual
    verify_pagerank(
        result.graph, result.rank, asked["damping"], tolerance=tolerance, weighted=asked["weighted"]
    )
    return f"one more iteration changes the ranks by at most {tolerance:.6g} in sum"


def _facts(asked: dict[str, Any], result: PageRankResult) -> dict[str, Any]:
    from godwit.cli.facts import plain

    return {
        "damping": asked["damping"],
        "tolerance": plain(asked["tolerance"]),
        "iterations": result.iterations,
        "converged": result.converged,
        "residual": plain(result.residual),
    }


def _line(facts: dict[str, Any]) -> tuple[str, str]:
    from godwit.cli.report import integer, number

    state = "converged" if facts["converged"] else "NOT converged"
    tolerance = "none" if facts["tolerance"] is None else number(facts["tolerance"])
    changed = (
        ": one more iteration would change them by up to"
        if facts["iterations"] is None
        else f" after {integer(facts['iterations'])} iterations: the last changed them by"
    )
    return "ranks", f"{state}{changed} {number(facts['residual'])} in sum, tolerance {tolerance}"
