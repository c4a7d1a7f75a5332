"""The command ``pagerank``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from godwit.cli.facts import Facts, plain
from godwit.cli.failures import NOT_CONVERGED, end_unconverged
from godwit.cli.options import (
    ExecutionOption,
    GraphArgument,
    ReadingOptions,
    RunOptions,
    with_options,
)
from godwit.cli.query import ScoreOptions, ScoreQuery, rows_of_vertices
from godwit.cli.report import integer, number
from godwit.config import launched_processes, launched_rank

if TYPE_CHECKING:
    from godwit.algorithms.pagerank.result import PageRankResult
    from godwit.distributed.graph import DistributedGraph
    from godwit.distributed.processes import Processes

EXAMPLES = """
godwit pagerank web.mtx.gz --top 20
godwit pagerank follows.csv --columns user,friend --output ranks.parquet
godwit pagerank rmat:20 --devices cuda --dtype float32 --output ranks.npy
godwit pagerank rmat:20 --tolerance 1e-9 --max-iterations 500 --json | jq .iterations
godwit pagerank rmat:20 --devices cuda --verify
godwit pagerank roads.gr --ignore-weights --output - | sort -t, -k2gr | head
"""


@dataclass
class _PageRankQuery(ScoreQuery):
    title = "The highest ranks"

    def verify(self, result: PageRankResult) -> str:
        from godwit.algorithms.pagerank.verify import verify_pagerank

        # Ranks that have not converged are checked against the residual that is reported.
        tolerance = self.arguments["tolerance"]
        if not result.converged or tolerance == math.inf:
            tolerance = result.residual
        verify_pagerank(
            result.graph,
            result.rank,
            self.arguments["damping"],
            tolerance=tolerance,
            weighted=self.arguments["weighted"],
        )
        return f"one more iteration changes the ranks by at most {tolerance:.6g} in sum"

    def highest(self, result: PageRankResult, count: int) -> list[Facts]:
        return rows_of_vertices(result.graph, result.highest(count), "rank")

    def details(self, result: PageRankResult) -> Facts:
        return _details(self.arguments, result)

    def summary(self, facts: Facts) -> tuple[str, str]:
        return _summary(facts)


def _details(arguments: dict[str, Any], result: Any) -> Facts:
    """Return the entries of ``--json`` that describe the result."""
    return {
        "damping": arguments["damping"],
        "tolerance": plain(arguments["tolerance"]),
        "iterations": result.iterations,
        "converged": result.converged,
        "residual": plain(result.residual),
    }


def _summary(facts: Facts) -> tuple[str, str]:
    """Return the line of the report about the iterations."""
    state = "converged" if facts["converged"] else "NOT converged"
    changed = (
        ": one more iteration would change them by up to"
        if facts["iterations"] is None
        else f" after {integer(facts['iterations'])} iterations: the last changed them by"
    )
    return (
        "ranks",
        f"{state}{changed} {number(facts['residual'])} in sum, "
        f"tolerance {number(facts['tolerance'])}",
    )


@with_options
def pagerank(
    graph: GraphArgument,
    options: ScoreOptions,
    run: RunOptions,
    reading: ReadingOptions,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    max_iterations: int | None = None,
    ignore_weights: bool = False,
    plain: bool = False,
    dtype: str = "float64",
    execution: ExecutionOption = None,
) -> None:
    """PageRank: the share of time that a random walker spends at each vertex, who follows arcs and now and
    then restarts at a random vertex.

    Arcs are followed in proportion to their weights, if the graph has weights; a vertex without out-arcs
    distributes its rank to all vertices. Ranks sum to 1. Ranks that have not converged after
    --max-iterations are written and shown all the same, and the exit status is 3. --execution asynchronous
    pushes residuals, also on several devices of the CPU: it has no iterations, so neither --max-iterations
    nor --plain.

    Files: .npy holds the ranks in the order of the vertices; .csv and .parquet have columns vertex,
    numbered as in the file of the graph, and rank.

    :param damping: Share of a rank that follows arcs; the rest goes to all vertices.
    :param tolerance: Stop when an iteration changes the ranks (asynchronously: would change them) by less
        than this in sum.
    :param max_iterations: Number of iterations after which to stop, converged or not; 100 by default.
    :param ignore_weights: Follow all arcs of a vertex alike.
    :param plain: Compute each iteration as the definition says, to count them; else undirected graphs need
        far fewer.
    :param dtype: float64, or float32: faster, and exact to some 1e-7 of the sum.
    """
    arguments = {
        "damping": damping,
        "tolerance": tolerance,
        "max_iterations": max_iterations,
        "weighted": False if ignore_weights else None,
        "accelerated": False if plain else None,
        "dtype": dtype,
    }
    if launched_processes() > 1:
        arguments["timeout_s"] = run.timeout_s
        given = {"--execution": execution, "--top": options.top}
        _on_processes(graph, options, reading, arguments, given, run.devices)
        return
    arguments |= {"execution": "auto" if execution is None else execution, **run.arguments}
    query = _PageRankQuery("pagerank", graph, options, reading, arguments, "pagerank")
    query.check_early()
    _check_converged(query.answer())


def _check_converged(result: PageRankResult) -> None:
    """End the command with the status of ranks that have not converged, if they have not."""
    if not result.converged and launched_rank():  # the first process says so
        raise typer.Exit(NOT_CONVERGED)
    if not result.converged:
        residual = f"{result.residual:.3g} in sum"
        end_unconverged(
            f"not converged: one more iteration would change the ranks by up to {residual} (--tolerance)"
            if result.iterations is None
            else f"not converged after {result.iterations} iterations: the last changed the ranks by "
            f"{residual} (--max-iterations, --tolerance)"
        )


def _on_processes(
    graph: str, options: ScoreOptions, reading: ReadingOptions, arguments: dict[str, Any],
    given: dict[str, Any], devices: str | None,
) -> None:  # fmt: skip
    """Compute ranks on the processes that ``mpiexec`` has started.

    :param given: options that one process alone takes; None if not given
    """
    from godwit.cli.processes import ProcessesQuery

    def call(graph: DistributedGraph, progress: Any) -> Any:
        import godwit as gw

        return gw.pagerank(graph, progress=progress, **arguments)

    def describe(processes: Processes, graph: DistributedGraph, result: Any) -> Facts:
        return _details(arguments, result)

    query = ProcessesQuery(
        "pagerank",
        graph,
        options,
        reading,
        call,
        describe,
        lambda facts: [_summary(facts)],
        given,
        devices=devices,
    )
    _check_converged(query.answer())
