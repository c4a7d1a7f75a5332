"""Betweenness centrality: of how many shortest paths a vertex, or an arc, is part.

Definition and scales of NetworkX: for every ordered pair (s, t) the part of the shortest paths from s
to t that lead through v, added up; undirected pairs count once. Shortest are those of fewest arcs or, on
demand, of the least sum of weights. Sampled sources give estimates of the same number.

The terms are added up on the CPU by :mod:`godwit.algorithms.betweenness.cpu`; on GPUs by a kernel in
supersteps (:mod:`godwit.algorithms.betweenness.cuda`), or, by weights, by a step program
(:mod:`godwit.algorithms.betweenness.weighted`). This module asks for the sums and scales them.

With k of n sources, each source stands for N / k, N being the number of vertices that a path through v
may begin at: n, or n - 1 if ends do not count. A vertex that is a source itself is, if ends do not
count, no inner vertex of its own paths: k - 1 sources speak for it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from godwit.algorithms.betweenness.cpu import DependencySums, sum_dependencies
from godwit.algorithms.betweenness.queries import DependencyQuery
from godwit.algorithms.betweenness.weighted_path_counts import check_lengths
from godwit.algorithms.paths.weights import uses_weights
from godwit.arrays import ResultLocation
from godwit.dtypes import as_count, as_flag, frozen
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.ids import Sources, VertexIds
from godwit.graph.interchange.tables import Column, edge_tables, to_pandas, vertex_table
from godwit.placement import PlacedGraph
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import run_team
from godwit.runtime.gpu_options import OF_FRONTIERS, OF_STEPS, OF_WORKERS, check_options
from godwit.runtime.protocol import Array, Device
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps.place import place_positions
from godwit.worker.options import SolverOptions
from godwit.worker.solve import make_poll

_HOST = ResultLocation()

# An index known not to be negative: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64


class BetweennessResult:
    """Betweenness of all vertices, and perhaps of all arcs.

    :ivar graph: the graph that was asked
    :ivar statistics: what the run did and how long it took; its items are vertices reached, and
        its arcs those from them
    :ivar location: where the arrays live: NumPy's on the host, or CuPy's on a GPU
    """

    def __init__(
        self,
        graph: Graph,
        sources: Array,
        centrality: Array,
        edge_centrality: Array | None,
        statistics: RunStatistics,
        *,
        location: ResultLocation = _HOST,
    ) -> None:
        self.graph = graph
        self._sources = sources
        self.statistics = statistics
        self.location = location
        self._centrality = centrality
        self._edge_centrality = edge_centrality

    @cached_property
    def sources(self) -> list[Any]:
        """The sources that were searched from by id (:attr:`Graph.ids`), in the order of positions."""
        return self.graph.ids.of(self._sources)

    @cached_property
    def centrality(self) -> Array:
        """Of every vertex, float64 (n)."""
        placed: Array = self.location.place(self._centrality)
        return placed

    @cached_property
    def edge_centrality(self) -> Array:
        """Of every arc, float64 (m), in the order of ``graph.targets``.

        In an undirected graph both arcs of an edge have the edge's.

        :raises InputError: it was not asked for
        """
        placed: Array = self.location.place(self._of_arcs())
        return placed

    def _of_arcs(self) -> Array:
        if self._edge_centrality is None:
            raise InputError("edges were not asked for; run_betweenness(edges=True) has them")
        return self._edge_centrality

    def to_dict(self) -> dict[Any, float]:
        """The centrality of every vertex, by its id (:attr:`Graph.ids`).

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 1], [1, 2], ids=["Bonn", "Ulm", "Jena"])
        >>> gw.betweenness_centrality(graph).to_dict()
        {'Bonn': 0.0, 'Ulm': 0.5, 'Jena': 0.0}
        """
        vertices = np.arange(len(self._centrality))
        return dict(zip(self.graph.ids.of(vertices), self._centrality.tolist(), strict=True))

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table`` with a row per vertex: columns ``vertex`` (ids) and ``centrality``."""
        return vertex_table(betweenness_columns(self), self.graph.ids)

    def to_pandas(self) -> Any:
        """The table of :meth:`to_arrow` as a ``pandas.DataFrame``.

        :raises InputError: pandas is not installed
        """
        return to_pandas(self.to_arrow(), nullable=False)

    def edges_to_dict(self) -> dict[tuple[Any, Any], float]:
        """The centrality of every edge (of every arc, if the graph is directed) by the ids of its vertices.

        Each edge of an undirected graph stands once, and of parallel ones, each of which has a centrality
        of its own, one (``merge_parallel_arcs()`` makes them one).

        >>> import godwit as gw
        >>> graph = gw.Graph.from_edges([0, 1], [1, 2], ids=["Bonn", "Ulm", "Jena"])
        >>> gw.betweenness_centrality(graph, edges=True, normalized=False).edges_to_dict()
        {('Bonn', 'Ulm'): 2.0, ('Ulm', 'Jena'): 2.0}

        :raises InputError: it was not asked for
        """
        import pyarrow as pa

        table = pa.concat_tables(self._edge_tables(self.graph.with_ids(0).ids))
        source, target, value = (one.to_numpy() for one in table.columns)
        ids = self.graph.ids
        return dict(
            zip(zip(ids.of(source), ids.of(target), strict=True), value.tolist(), strict=True)
        )

    def edges_to_arrow(self) -> Any:
        """A ``pyarrow.Table`` with a row per edge: columns ``source``, ``target`` (ids) and ``centrality``.

        :raises InputError: as :meth:`edges_to_dict`
        """
        import pyarrow as pa

        return pa.concat_tables(self._edge_tables(self.graph.ids))

    def _edge_tables(self, ids: VertexIds) -> Iterator[Any]:
        column = Column("centrality", self._of_arcs())
        return edge_tables(column, self.graph.rows, ids, self.graph.directed)

    def edges_to_pandas(self) -> Any:
        """The table of :meth:`edges_to_arrow` as a ``pandas.DataFrame``.

        :raises InputError: pandas is not installed, or as :meth:`edges_to_dict`
        """
        return to_pandas(self.edges_to_arrow(), nullable=False)

    def highest(self, count: int) -> list[Any]:
        """The vertices of highest centrality by id, the highest first; ties in the order of arrays."""
        order = np.argsort(-self._centrality, kind="stable")
        return self.graph.ids.of(order[: as_count(count, "count")])

    def __repr__(self) -> str:
        arcs = "" if self._edge_centrality is None else f" and {len(self._edge_centrality)} arcs"
        return (
            f"BetweennessResult({len(self._centrality)} vertices{arcs}, "
            f"from {len(self._sources)} source(s))"
        )


def betweenness_columns(result: BetweennessResult) -> list[Column]:
    """What a table of the vertices says of betweenness."""
    return [Column("centrality", result._centrality)]


def run_betweenness(
    graph: Graph,
    device: Device,
    placed: PlacedGraph | None = None,
    *,
    sources: Sources | None,
    samples: int | None,
    seed: int,
    normalized: bool,
    endpoints: bool,
    edges: bool,
    weighted: bool | None,
    options: SolverOptions,
) -> BetweennessResult:
    """Betweenness of vertices and arcs; see :func:`godwit.betweenness_centrality`.

    :param device: of the CPU
    :param placed: the graph on GPUs, which take the device's place
    """
    normalized = as_flag(normalized, "normalized")
    endpoints = as_flag(endpoints, "endpoints")
    edges = as_flag(edges, "edges")
    weighted = uses_weights(graph, weighted)
    chosen = choose_sources(graph, sources, samples, seed)
    if weighted:
        check_lengths(graph)
        if placed is not None and edges:
            raise InputError(
                "by weights, GPUs have the betweenness of vertices only: devices='cpu' has that of edges "
                "(or edges=False, or weighted=False)"
            )
    devices = (device,) if placed is None else placed.context.devices
    if placed is not None:
        placed.check_all_duplicated("betweenness runs")
    if weighted:
        check_options(devices, options.gpu, "betweenness by weights", OF_WORKERS + OF_FRONTIERS)
    else:
        check_options(devices, options.gpu, "betweenness", OF_STEPS)
    statistics = RunStatistics(tuple(one.name for one in devices), "brandes")
    sums = None
    if placed is not None and len(chosen) > 0:
        if weighted:
            sums = _weighted_sums_on_gpus(placed, chosen, endpoints, statistics, options)
        else:
            query = DependencyQuery(chosen, endpoints, edges, options.gpu)
            sums = _sums_on_gpus(place_positions(placed), query, statistics, options)
    with statistics.phase("run"):
        if sums is None:
            threads = device.threads if device.kind == "cpu" else None
            sums = sum_dependencies(
                graph, chosen, endpoints=endpoints, edges=edges, weighted=weighted,
                threads=threads, poll=make_poll(options),
            )  # fmt: skip
            statistics.processed_items = np.array([sums.vertices_visited], np.int64)
            statistics.arcs_relaxed = np.array([sums.arcs_examined], np.int64)
        n, k = graph.vertex_count, len(chosen)
        scale, own_scale = scales(n, k, normalized, graph.directed, endpoints)
        centrality = sums.vertices
        own = centrality[chosen] * own_scale
        centrality *= scale
        centrality[chosen] = own
        arcs = sums.arcs
        if arcs is not None:
            if not graph.directed:
                arcs = _sums_of_edges(graph, arcs, weighted)
            arcs *= scales(n, k, normalized, graph.directed, True)[0]
    return BetweennessResult(graph, chosen, centrality, arcs, statistics, location=options.location)


def _sums_on_gpus(
    steps: Any, query: DependencyQuery, statistics: RunStatistics, options: SolverOptions
) -> DependencySums | None:
    """None if there are too many paths for float64: then the CPU is to count, which has wider numbers."""
    with statistics.phase("run"):
        from godwit.algorithms.betweenness.cuda import sum_on_gpus

        found = sum_on_gpus(steps, query, make_poll(options))
    if found.vertices is None:
        statistics.split_run({"overflow": sum(found.seconds.values())})
        statistics.begin_on(["cpu"])
        return None
    statistics.split_run(found.seconds)
    statistics.processed_items = found.visited
    statistics.arcs_relaxed = found.examined
    statistics.rounds = found.supersteps
    return DependencySums(
        found.vertices, found.arcs, int(found.visited.sum()), int(found.examined.sum())
    )


def _weighted_sums_on_gpus(
    placed: PlacedGraph, sources: Array, endpoints: bool, statistics: RunStatistics,
    options: SolverOptions,
) -> DependencySums | None:  # fmt: skip
    """Likewise."""
    from godwit.algorithms.betweenness.weighted import sum_weighted_dependencies

    sums = sum_weighted_dependencies(placed, sources, statistics, options, endpoints=endpoints)
    if sums is None:
        statistics.seconds = {"overflow": sum(statistics.seconds.values())}
        statistics.begin_on(["cpu"])
        return None
    others = np.zeros(len(placed.context.devices) - 1, np.int64)
    statistics.processed_items = np.append(np.int64(sums.vertices_visited), others)
    statistics.arcs_relaxed = np.append(np.int64(sums.arcs_examined), others)
    return sums


def choose_sources(graph: Graph, sources: Sources | None, samples: int | None, seed: int) -> Array:
    """The positions of sources, int64, ascending and unique: those given, or some drawn, or all.

    Draws as NetworkX does from Python's generator with an integer seed: the same sources.

    :raises InputError: both are given, a source is no vertex, there are not so many vertices, or the seed
        is wrong, even where nothing is drawn
    """
    seed = as_count(seed, "seed")
    if sources is not None and samples is not None:
        raise InputError(
            "give sources or samples, not both; "
            f"got sources={shown(sources)} and samples={shown(samples)}"
        )
    if sources is not None:
        return graph.ids.one_or_several(sources, "sources")
    count = graph.vertex_count
    if samples is None:
        return np.arange(count, dtype=np.int64)
    samples = as_count(samples, "samples", 1)
    if samples > count:
        raise InputError(f"samples must be at most the number of vertices, {count}, got {samples}")
    drawn = random.Random(seed).sample(range(count), samples)
    return np.sort(np.array(drawn, np.int64))


def scales(
    n: int, k: int, normalized: bool, directed: bool, endpoints: bool
) -> tuple[float, float]:
    """What to multiply sums over k of n sources with: for vertices, and for those that are sources.

    The sum of a vertex that is the only source is 0 if ends do not count. NetworkX calls that
    undefined, NaN; here it is 0.
    """
    ends = n if endpoints else n - 1
    if ends < 2 or k == 0:
        return 1.0, 1.0
    pairs = ends - 1 if normalized else (1 if directed else 2) / ends
    if endpoints:
        return 1 / (k * pairs), 1 / (k * pairs)
    if k == n:
        return 1 / (ends * pairs), 1 / (ends * pairs)
    return 1 / (k * pairs), 1 / (max(1, k - 1) * pairs)


def _sums_of_edges(graph: Graph, arcs: Array, weighted: bool) -> Array:
    """For both arcs of every edge the sum of the two.

    :param weighted: parallel arcs are told apart by their weights
    """
    targets = graph.targets
    order = _twin_order(graph, weighted)
    if order is not None:
        targets, arcs = frozen(targets[order]), arcs[order]
    sums = np.zeros_like(arcs)
    ends = graph.offsets[:-1].copy()
    run_team(_add_twins, graph.offsets, targets, ends, arcs, sums, threads=1)
    if order is None:
        return sums
    back = np.empty_like(sums)
    back[order] = sums
    return back


def _twin_order(graph: Graph, weighted: bool) -> Array | None:
    """The arcs by tail, head and, on demand, weight; None where they are in this order already."""
    targets, weights = graph.targets, graph.weights if weighted else None
    is_sorted = graph.has_sorted_rows
    if is_sorted and weights is None:
        return None
    tails = np.repeat(np.arange(graph.vertex_count), graph.out_degree())
    if weights is None:
        return np.lexsort((targets, tails))
    is_simple = ((tails[1:] != tails[:-1]) | (targets[1:] != targets[:-1])).all()
    return None if is_sorted and is_simple else np.lexsort((weights, targets, tails))


@kernel
def _add_twins(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, ends: Any, arcs: Any, sums: Any
) -> None:
    """The arcs to v, in the order of their tails, are the twins of v's sorted row, in its order."""
    for u in range(offsets.size - 1):
        for arc in range(offsets[_at(u)], offsets[_at(u + 1)]):
            v = targets[_at(arc)]
            twin = ends[_at(v)]
            if twin < offsets[_at(v) + _at(1)]:  # else the graph is not symmetric, whoever said so
                ends[_at(v)] = twin + 1
                sums[_at(twin)] = arcs[_at(arc)] + arcs[_at(twin)]
