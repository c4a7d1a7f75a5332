"""Result of PageRank."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from godwit.arrays import ResultLocation, host_array
from godwit.dtypes import Array, as_count
from godwit.graph.csr import Graph
from godwit.graph.interchange.tables import Column, to_pandas, vertex_table
from godwit.runtime.statistics import RunStatistics


class PageRankResult:
    """Ranks of all vertices.

    :ivar graph: the graph
    :ivar iterations: number of iterations; None where residuals were pushed
    :ivar converged: True if the residual is below the tolerance
    :ivar residual: L1 norm of the last iteration's change; of an accelerated iteration, of the change that
        one more plain iteration would make; where residuals were pushed, an upper bound of that
    :ivar statistics: work and times of the run
    :ivar location: where :attr:`rank` lives: a NumPy array on the host, or CuPy's on a GPU
    """

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
        self.graph = graph
        self.statistics = statistics
        self.iterations = iterations
        self.converged = converged
        self.residual = residual
        self.location = location
        self._computed = rank

    @cached_property
    def rank(self) -> Array:
        """Rank of every vertex, shape (n), float64 or float32; they sum to 1."""
        placed: Array = self.location.place(self._computed)
        return placed

    @cached_property
    def _rank(self) -> Array:
        """Ranks on the host."""
        return host_array(self._computed)

    def to_dict(self) -> dict[Any, float]:
        """Return the rank of every vertex, by its id (:attr:`Graph.ids`).

        >>> import godwit as gw
        >>> ranks = gw.pagerank(gw.Graph.from_edges([0], [1], ids=["Ulm", "Bonn"])).to_dict()
        >>> max(ranks, key=ranks.get)
        'Bonn'
        """
        vertices = np.arange(len(self._rank))
        return dict(zip(self.graph.ids.of(vertices), self._rank.tolist(), strict=True))

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` with a row per vertex: columns ``vertex`` (ids) and ``rank``."""
        return vertex_table(rank_columns(self), self.graph.ids)

    def to_pandas(self) -> Any:
        """Return the table of :meth:`to_arrow` as a ``pandas.DataFrame``.

        :raises InputError: pandas is not installed
        """
        return to_pandas(self.to_arrow(), nullable=False)

    def highest(self, count: int) -> list[Any]:
        """Return the vertices of highest rank by id, highest first; ties by position."""
        count = min(as_count(count, "count"), len(self._rank))
        order = np.argsort(-self._rank, kind="stable")
        return self.graph.ids.of(order[:count])

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        if self.iterations is not None:
            state += f" after {self.iterations} iteration(s)"
        return (
            f"PageRankResult({len(self._computed)} vertices, {state}, residual {self.residual:.3g}, "
            f"{self._computed.dtype})"
        )


def rank_columns(result: PageRankResult) -> list[Column]:
    """Return the columns of a table of vertices."""
    return [Column("rank", result._rank)]
