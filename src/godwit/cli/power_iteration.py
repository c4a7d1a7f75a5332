"""The commands ``eigenvector``, ``katz`` and ``hits``."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from godwit.cli.facts import Facts, plain
from godwit.cli.options import GraphArgument, Option, ReadingOptions, RunOptions, with_options
from godwit.cli.query import ScoreOptions, ScoreQuery, rows_of_vertices
from godwit.cli.report import integer, number
from godwit.errors import InputError

if TYPE_CHECKING:
    from godwit.algorithms.power_iteration.result import CentralityResult, HitsResult

EIGENVECTOR_EXAMPLES = """
godwit eigenvector soc.mtx --undirected --top 20
godwit eigenvector follows.csv --columns user,friend --output centrality.parquet
godwit eigenvector rmat:20 --tolerance 1e-9 --max-iterations 1000 --json | jq .iterations
"""
KATZ_EXAMPLES = """
godwit katz cites.mtx --alpha 0.01 --top 20
godwit katz follows.csv --columns user,friend --alpha 0.001 --output centrality.parquet
"""
HITS_EXAMPLES = """
godwit hits web.mtx.gz --top 20
godwit hits web.mtx.gz --by hub --json | jq .top
godwit hits follows.csv --columns user,friend --output scores.parquet
"""


@dataclass
class _PowerQuery(ScoreQuery):
    """Query by power iterations."""

    title: ClassVar[str] = "The highest scores"

    @property
    def verified_tolerance(self) -> float:
        """Largest mean change that one more iteration may make: twice the tolerance of the query."""
        return float(2 * self.arguments["tolerance"])

    def verify(self, result: Any) -> str:
        self.verify_values(result)
        return (
            f"one more iteration changes values by at most {self.verified_tolerance:.6g} on average"
        )

    @abstractmethod
    def verify_values(self, result: Any) -> None:
        """Call the verifier."""

    def details(self, result: Any) -> Facts:
        return {
            "tolerance": plain(self.arguments["tolerance"]),
            "iterations": result.iterations,
            "residual": plain(result.residual),
        }

    def summary(self, facts: Facts) -> tuple[str, str]:
        return (
            "scores",
            f"converged after {integer(facts['iterations'])} iterations: the last changed them by "
            f"{number(facts['residual'])} on average, tolerance {number(facts['tolerance'])}",
        )


class _EigenvectorQuery(_PowerQuery):
    def verify_values(self, result: CentralityResult) -> None:
        from godwit.algorithms.power_iteration.verify import verify_eigenvector_centrality

        verify_eigenvector_centrality(
            result.graph, result.centrality, tolerance=self.verified_tolerance,
            weighted=self.arguments["weighted"],
        )  # fmt: skip

    def highest(self, result: CentralityResult, count: int) -> list[Facts]:
        return rows_of_vertices(result.graph, result.highest(count), "centrality")


class _KatzQuery(_EigenvectorQuery):
    def verify_values(self, result: CentralityResult) -> None:
        from godwit.algorithms.power_iteration.verify import verify_katz_centrality

        verify_katz_centrality(
            result.graph, result.centrality, tolerance=self.verified_tolerance,
            **{name: self.arguments[name] for name in ("alpha", "beta", "normalized", "weighted")},
        )  # fmt: skip


@dataclass
class _HitsQuery(_PowerQuery):
    by: str

    def verify_values(self, result: HitsResult) -> None:
        from godwit.algorithms.power_iteration.verify import verify_hits

        verify_hits(
            result.graph, result.hubs, result.authorities, tolerance=self.verified_tolerance,
            weighted=self.arguments["weighted"],
        )  # fmt: skip

    def highest(self, result: HitsResult, count: int) -> list[Facts]:
        highest = result.highest_hubs if self.by == "hub" else result.highest_authorities
        return rows_of_vertices(result.graph, highest(count), self.by)


@with_options
def eigenvector(
    graph: GraphArgument,
    options: ScoreOptions,
    run: RunOptions,
    reading: ReadingOptions,
    tolerance: float = 1e-6,
    max_iterations: int = 100,
    ignore_weights: bool = False,
) -> None:
    """Eigenvector centrality: a vertex is as central as the sum of the vertices whose arcs lead to it.

    Centralities have L2 norm 1. Arcs count by their weights, if the graph has weights. If they do not
    converge within --max-iterations, nothing is written, and the exit status is 3.

    Files: .npy holds the centralities in the order of the vertices; .csv and .parquet have columns vertex,
    numbered as in the file of the graph, and centrality.

    :param tolerance: Stop when an iteration changes a centrality by less than this on average.
    :param max_iterations: Number of iterations after which to give up.
    :param ignore_weights: Count all arcs alike.
    """
    arguments = _arguments(run, tolerance, max_iterations, ignore_weights)
    _answer(
        _EigenvectorQuery(
            "eigenvector", graph, options, reading, arguments, "eigenvector_centrality"
        )
    )


@with_options
def katz(
    graph: GraphArgument,
    options: ScoreOptions,
    run: RunOptions,
    reading: ReadingOptions,
    alpha: float = 0.1,
    beta: float = 1.0,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
    unnormalized: bool = False,
    ignore_weights: bool = False,
) -> None:
    """Katz centrality: the number of walks that lead to a vertex, long ones counting less.

    A vertex' centrality is beta and alpha times the sum of the centralities of the vertices whose arcs lead
    to it. Arcs count by their weights, if the graph has weights. If centralities do not converge within
    --max-iterations, nothing is written, and the exit status is 3: alpha is too large then. Any alpha below
    1 / the largest in-degree (by weights, if there are some) converges.

    Files: as of godwit eigenvector.

    :param alpha: How much an arc more in a walk reduces what it counts.
    :param beta: What each vertex has besides.
    :param tolerance: Stop when an iteration changes a centrality by less than this on average.
    :param max_iterations: Number of iterations after which to give up.
    :param unnormalized: Do not scale centralities to L2 norm 1.
    :param ignore_weights: Count all arcs alike.
    """
    arguments = _arguments(run, tolerance, max_iterations, ignore_weights)
    arguments |= {"alpha": alpha, "beta": beta, "normalized": not unnormalized}
    _answer(_KatzQuery("katz", graph, options, reading, arguments, "katz_centrality"))


@with_options
def hits(
    graph: GraphArgument,
    options: ScoreOptions,
    run: RunOptions,
    reading: ReadingOptions,
    by: Annotated[str, Option(metavar="SCORE")] = "authority",
    tolerance: float = 1e-12,
    max_iterations: int = 1000,
    ignore_weights: bool = False,
) -> None:
    """HITS: hubs, whose arcs lead to authorities, and authorities, to which hubs' arcs lead.

    Hub scores sum to 1, and so do authority scores. Arcs count by their weights, if the graph has weights.
    If scores do not converge within --max-iterations, nothing is written, and the exit status is 3.

    Files: .csv and .parquet have columns vertex, numbered as in the file of the graph, hub and authority;
    .npy has fields hub and authority, in the order of the vertices.

    :param by: Show the vertices that are highest by authority or by hub.
    :param tolerance: Stop when an iteration changes an authority by less than this on average, where
        authorities have L2 norm 1.
    :param max_iterations: Number of iterations after which to give up.
    :param ignore_weights: Count all arcs alike.
    """
    if by not in ("authority", "hub"):
        raise InputError(f"--by must be authority or hub, got {by!r}")
    arguments = _arguments(run, tolerance, max_iterations, ignore_weights)
    _answer(_HitsQuery("hits", graph, options, reading, arguments, "hits", by))


def _arguments(
    run: RunOptions, tolerance: float, max_iterations: int, ignore_weights: bool
) -> dict[str, Any]:
    """Return the arguments that the Python functions share."""
    return {
        "tolerance": tolerance,
        "max_iterations": max_iterations,
        "weighted": False if ignore_weights else None,
        **run.arguments,
    }


def _answer(query: _PowerQuery) -> None:
    """Check the arguments early, and answer the query."""
    query.check_early()
    query.answer()
