"""Result of PageRank."""

from __future__ import annotations

from typing import Any

from godwit.algorithms.scores import VertexScores
from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.runtime.statistics import RunStatistics


class PageRankResult(VertexScores):
    """Ranks of all vertices.

    :ivar iterations: number of iterations; None where residuals were pushed
    :ivar converged: True if the residual is below the tolerance
    :ivar residual: L1 norm of the last iteration's change; of an accelerated iteration, of the change that
        one more plain iteration would make; where residuals were pushed, an upper bound of that
    """

    score_name = "rank"

    def __init__(
        self,
        graph: Graph,
        rank: Any,
        statistics: RunStatistics,
        *,
        iterations: int | None,
        converged: bool,
        residual: float,
        location: ResultLocation,
    ) -> None:
        super().__init__(graph, rank, statistics, location)
        self.iterations = iterations
        self.converged = converged
        self.residual = residual

    @property
    def rank(self) -> Array:
        """Rank of every vertex, shape (n), float64 or float32; they sum to 1."""
        return self._placed

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        if self.iterations is not None:
            state += f" after {self.iterations} iteration(s)"
        return (
            f"PageRankResult({len(self._computed)} vertices, {state}, residual {self.residual:.3g}, "
            f"{self._computed.dtype})"
        )
