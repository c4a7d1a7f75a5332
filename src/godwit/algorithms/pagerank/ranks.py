"""PageRank: where a walker is, who follows arcs and now and then begins anew.

Definition of NetworkX: with probability ``damping`` along an out-arc, in proportion to weights;
otherwise, and always from a dangling vertex (without out-arcs, or whose weights sum to 0), to a vertex
drawn from the personalization. Ranks sum to 1. :mod:`godwit.algorithms.pagerank.cpu` and, in supersteps,
:mod:`godwit.algorithms.pagerank.cuda` compute them by pull, :mod:`godwit.algorithms.pagerank.push` on the
asynchronous engine by push.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from godwit.algorithms.pagerank.queries import RankQuery
from godwit.algorithms.paths.weights import named_arc, uses_weights
from godwit.arrays import ResultLocation, host_array
from godwit.dtypes import Array, as_array, as_count, as_flag, as_float, as_positive_number
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.interchange.tables import Column, to_pandas, vertex_table
from godwit.graph.rows import require_memory
from godwit.placement import PlacedGraph
from godwit.runtime.gpu_options import OF_STEPS, check_options, check_ranks
from godwit.runtime.protocol import Device
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps import place_positions
from godwit.worker.options import SolverOptions
from godwit.worker.solve import make_poll

Distribution = Mapping[int, float] | Iterable[float] | Array | None

_HOST = ResultLocation()
_MOST_ITERATIONS = 100
"""Where nobody says."""


class PageRankResult:
    """Ranks of all vertices.

    :ivar graph: the graph that was asked
    :ivar iterations: how many there were; None where residuals were pushed
    :ivar converged: whether the residual is below the tolerance
    :ivar residual: by how much the last iteration changed the ranks, in sum (L1); if that was an
        accelerated one, by how much one more plain iteration would change them; where residuals were
        pushed, by how much it would at most
    :ivar statistics: what the run did and how long it took
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
        location: ResultLocation = _HOST,
    ) -> None:
        self.graph = graph
        self.statistics = statistics
        self.iterations = iterations
        self.converged = converged
        self.residual = residual
        self.location = location
        self._given = rank

    @cached_property
    def rank(self) -> Array:
        """Rank of every vertex, shape (n), float64 or float32; they sum to 1."""
        placed: Array = self.location.place(self._given)
        return placed

    @cached_property
    def _rank(self) -> Array:
        """On the host."""
        return host_array(self._given)

    def to_dict(self) -> dict[Any, float]:
        """The rank of every vertex, by its id (:attr:`Graph.ids`).

        >>> import godwit as gw
        >>> ranks = gw.pagerank(gw.Graph.from_edges([0], [1], ids=["Ulm", "Bonn"])).to_dict()
        >>> max(ranks, key=ranks.get)
        'Bonn'
        """
        vertices = np.arange(len(self._rank))
        return dict(zip(self.graph.ids.of(vertices), self._rank.tolist(), strict=True))

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table`` with a row per vertex: columns ``vertex`` (ids) and ``rank``."""
        return vertex_table(rank_columns(self), self.graph.ids)

    def to_pandas(self) -> Any:
        """The table of :meth:`to_arrow` as a ``pandas.DataFrame``.

        :raises InputError: pandas is not installed
        """
        return to_pandas(self.to_arrow(), nullable=False)

    def highest(self, count: int) -> list[Any]:
        """The vertices of highest rank by id, the highest first; ties in the order of arrays."""
        count = min(as_count(count, "count"), len(self._rank))
        order = np.argsort(-self._rank, kind="stable")
        return self.graph.ids.of(order[:count])

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        if self.iterations is not None:
            state += f" after {self.iterations} iteration(s)"
        return (
            f"PageRankResult({len(self._given)} vertices, {state}, residual {self.residual:.3g}, "
            f"{self._given.dtype})"
        )


def rank_columns(result: PageRankResult) -> list[Column]:
    """What a table of the vertices says of ranks."""
    return [Column("rank", result._rank)]


@dataclass(frozen=True)
class RankSettings:
    """Which ranks are asked for.

    :param damping: in [0, 1)
    :param tolerance: positive, perhaps infinite
    :param number: dtype of the ranks, float32 or float64
    :param weighted: whether weights count; if so, they have been looked at
    :param teleport: (n) float64 of sum 1, where walks begin anew; None for everywhere alike
    """

    damping: float
    tolerance: float
    number: np.dtype[Any]
    weighted: bool
    teleport: Array | None

    @classmethod
    def checked(
        cls, graph: Graph, *, damping: Any, tolerance: Any, personalization: Distribution,
        weighted: Any, dtype: Any,
    ) -> RankSettings:  # fmt: skip
        """As they were given, if they are right for the graph; InputError if not."""
        return cls(
            check_damping(damping),
            as_positive_number(tolerance, "tolerance"),
            check_dtype(dtype),
            _uses_weights(graph, weighted),
            _distribution(personalization, graph, "personalization"),
        )


def run_pagerank(
    graph: Graph,
    device: Device,
    placed: PlacedGraph | None = None,
    *,
    max_iterations: int | None,
    initial: Distribution,
    accelerated: bool | None,
    options: SolverOptions,
    **asked: Any,
) -> PageRankResult:
    """Ranks of all vertices by pull; see :func:`godwit.pagerank`.

    :param device: of the CPU
    :param placed: the graph on GPUs, which take the device's place
    :param asked: of :meth:`RankSettings.checked`
    """
    settings = RankSettings.checked(graph, **asked)
    damping, tolerance, number = settings.damping, settings.tolerance, settings.number
    weighted, teleport = settings.weighted, settings.teleport
    if max_iterations is None:
        max_iterations = _MOST_ITERATIONS
    max_iterations = as_count(max_iterations, "max_iterations", 1, 2**62)
    accelerated = _is_accelerated(graph, accelerated)
    n = graph.vertex_count
    start = _distribution(initial, graph, "initial")
    devices = (device,) if placed is None else placed.context.devices
    duplication = None if placed is None else placed.duplication
    one_hop = None if duplication is None else duplication == "1-hop"
    check_ranks(devices, options.gpu, one_hop=bool(one_hop))
    check_options(devices, options.gpu, "PageRank by iterations", OF_STEPS)
    statistics = RunStatistics(tuple(one.name for one in devices), "pull")
    if n == 0:
        return PageRankResult(
            graph, np.empty(0, number), statistics, iterations=0, converged=True, residual=0.0,
            location=options.location,
        )  # fmt: skip
    if placed is not None:
        require_memory(n * number.itemsize, f"PageRank of {n:,} vertices")
        query = RankQuery(
            number, weighted, teleport, start, damping, tolerance, max_iterations, accelerated,
            options.location.empty(n, number), options.gpu, one_hop,
        )  # fmt: skip
        return _on_gpus(graph, placed, query, statistics, options)
    require_memory(3 * n * number.itemsize, f"PageRank of {n:,} vertices")
    from godwit.algorithms.pagerank.cpu import power_iteration
    from godwit.algorithms.pagerank.in_arcs import in_arcs

    poll = make_poll(options)
    with statistics.phase("place"):
        arcs = in_arcs(graph, number, weighted=weighted)
    with statistics.phase("run"):
        found = power_iteration(
            graph,
            arcs,
            np.full(n, 1 / n, number) if start is None else start.astype(number),
            np.full(1, 1 / n) if teleport is None else teleport,
            damping=damping,
            tolerance=tolerance,
            max_iterations=max_iterations,
            accelerated=accelerated,
            threads=device.threads,
            poll=poll,
        )
        # Roundings of many iterations add up.
        found.rank[:] /= found.rank.sum(dtype=np.float64)
    statistics.rounds = np.array([found.iterations], np.int64)
    statistics.processed_items = statistics.rounds * n
    statistics.arcs_relaxed = statistics.rounds * graph.arc_count
    return PageRankResult(
        graph,
        found.rank,
        statistics,
        iterations=found.iterations,
        converged=found.residual < tolerance,
        residual=found.residual,
        location=options.location,
    )


def _on_gpus(
    graph: Graph, placed: PlacedGraph, query: RankQuery, statistics: RunStatistics,
    options: SolverOptions,
) -> PageRankResult:  # fmt: skip
    """An iteration a superstep, on all devices of the placed graph."""
    steps = place_positions(placed)
    with statistics.phase("run"):
        from godwit.algorithms.pagerank.cuda import rank_on_gpus

        found = rank_on_gpus(steps, query, make_poll(options))
    statistics.split_run(found.seconds)
    statistics.rounds = np.full(len(found.owned), found.iterations, np.int64)
    statistics.processed_items = found.iterations * found.owned
    statistics.arcs_relaxed = found.iterations * found.arcs
    return PageRankResult(
        graph,
        query.destination,
        statistics,
        iterations=found.iterations,
        converged=found.residual < query.tolerance,
        residual=found.residual,
        location=options.location,
    )


def check_damping(damping: Any) -> float:
    """The damping as a float; InputError if it is none in [0, 1)."""
    number = as_float(damping, "damping")
    if not 0 <= number < 1:
        raise InputError(f"damping must be in [0, 1), got {shown(damping)}")
    return number


def check_dtype(dtype: Any) -> np.dtype[Any]:
    """The dtype of ranks; InputError if it is not float32 or float64."""
    found: np.dtype[Any] | None = None
    if dtype is not None:  # which NumPy takes for float64
        with suppress(TypeError, ValueError):
            found = np.dtype(dtype)
    if found is None or found not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise InputError(f"dtype must be float32 or float64, got {shown(dtype)}")
    return found


def _uses_weights(graph: Graph, weighted: Any) -> bool:
    """Whether weights count, after a look at them."""
    if not uses_weights(graph, weighted):
        return False
    return bool(graph.cached("weights as parts", lambda: _check_weights(graph)))


def _is_accelerated(graph: Graph, accelerated: Any) -> bool:
    """Whether iterations may go beyond plain ones: where arcs have no direction."""
    if accelerated is not None:
        accelerated = as_flag(accelerated, "accelerated")
    if accelerated and graph.directed:
        raise InputError(
            "accelerated=True needs an undirected graph, such as symmetrize() gives; of a directed one "
            "only plain iterations are sure to converge"
        )
    return accelerated is not False and not graph.directed


def _check_weights(graph: Graph) -> bool:
    """True; InputError naming the first arc whose weight is negative or not finite."""
    weights = graph.weights
    assert weights is not None
    if len(weights) == 0:
        return True
    smallest, largest = weights.min(), weights.max()
    if not (smallest >= 0 and largest < np.inf):
        arc = int(np.argmax(~(weights >= 0) | (weights == np.inf)))
        raise InputError(
            "PageRank needs weights that are finite and not negative; "
            f"{named_arc(graph, arc)} has weight {weights[arc]}"
        )
    if weights.dtype.kind == "f" and float(largest) * len(weights) == math.inf:
        raise InputError(
            f"sums of {len(weights)} weights up to {largest:g} could overflow; divide them by {largest:g}"
        )
    return True


def _distribution(values: Any, graph: Graph, name: str) -> Array | None:
    """Weights of vertices, an array (n) or a mapping of some, as probabilities; None stays None.

    A pandas Series is a mapping. Keys of mappings are ids (:attr:`Graph.ids`).

    :raises InputError: a wrong shape, an unknown vertex, a weight that is negative or not finite, or
        all are 0
    """
    if values is None:
        return None
    count = graph.vertex_count
    ids = graph.ids
    values = ids.by_position(values, name)
    if isinstance(values, Mapping):
        weights = np.zeros(count)
        for position, weight in values.items():
            weights[position] = as_float(weight, f"{name} of vertex {shown(ids[position])}")
    else:
        given = as_array(values, name)
        if given.shape != (count,) or given.dtype.kind not in "iufb":
            raise InputError(
                f"{name} must be a mapping {{vertex: weight}} or {count} numbers, one for each vertex; "
                f"got an array of {given.dtype}, shape {given.shape}"
            )
        weights = given.astype(np.float64)
    wrong = ~(weights >= 0) | (weights == np.inf)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"{name} must be finite and not negative, got {weights[at]:g} for vertex {shown(ids[at])}"
        )
    if count == 0:
        return weights
    largest = weights.max()
    if largest == 0:
        raise InputError(f"{name} must not be 0 everywhere: it sums to 0 over {count} vertices")
    weights /= largest  # sums of large weights would overflow
    total = weights.sum()
    weights /= total
    return weights
