"""Similarity of pairs of vertices by their common neighbours (D. Liben-Nowell, J. Kleinberg, The
link-prediction problem for social networks, JASIST 58 (2007)).

Rows of the simple undirected graph are intersected (cpu.py, similarity.cuh). Numbers of common neighbours
are exact; sums of terms differ between CPUs and GPUs by rounding.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from godwit.algorithms.similarity.cpu import score_neighbours, score_pairs
from godwit.algorithms.similarity.query import (
    Measure,
    PairsArgument,
    Similarity,
    positions_of_pairs,
    positions_on_gpu,
)
from godwit.algorithms.similarity.result import SimilarityResult
from godwit.algorithms.triangles.rows import simple_graph
from godwit.dtypes import Array, as_float
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.placement import PlacedGraph
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.query import DeviceQuery, GraphArgument
from godwit.worker.solve import make_poll

_LEAST_GPU_PAIRS = 1 << 18
"""Pairs that pay for placing a graph on a GPU."""
_LEAST_GPU_ARCS = 1 << 18
"""Arcs that do, where all pairs are found."""


def _inverse_logarithm(degree: Array) -> Array:
    with np.errstate(divide="ignore"):
        logarithm: Array = 1 / np.log(degree)
    return logarithm


def _inverse(degree: Array) -> Array:
    with np.errstate(divide="ignore"):
        inverse: Array = 1 / degree
    return inverse


_JACCARD = Similarity("jaccard", Measure.JACCARD)
_OVERLAP = Similarity("overlap", Measure.OVERLAP)
_SORENSEN = Similarity("sorensen", Measure.SORENSEN)
_ADAMIC_ADAR = Similarity("adamic_adar", Measure.SUM_OF_TERMS, _inverse_logarithm)
_RESOURCE_ALLOCATION = Similarity("resource_allocation", Measure.SUM_OF_TERMS, _inverse)


@public
def jaccard(
    graph: GraphArgument,
    pairs: PairsArgument = None,
    *,
    above: float | None = None,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> SimilarityResult:
    """Compute Jaccard coefficients: the share of two vertices' neighbours that are neighbours of both.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], directed=False)
    >>> gw.jaccard(graph, [(0, 3), (0, 1)]).score.round(3).tolist()
    [0.5, 0.333]
    >>> gw.jaccard(graph, above=0.4).to_dict()
    {(0, 3): 0.5, (1, 3): 0.5}

    Neighbours are those of the simple undirected graph, as for :func:`triangles`; a vertex without any has
    coefficient 0 with all others. Scores do not depend on devices.

    :param pairs: pairs of vertices by id: an array of shape (k, 2), which is not to be changed while the
        result is in use, a table of two columns (pandas, Polars, Arrow), or pairs; they may repeat. An
        array on a GPU (CuPy, PyTorch) stays there if the graph has no ids of its own. None: all pairs
        of different vertices with neighbours in common: that takes as many steps as there are paths of two
        edges
    :param above: of all pairs: only those whose score is larger; None: 0
    :param devices: None: the first GPU for many pairs, if there is one, else all cores; ``"cpu"``, or GPUs,
        which share the pairs and have the whole graph each
    :param results: where ``.score`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of pairs done so far (of all pairs: of vertices, each
        twice), with ``.total``
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.score`` (k), float64, of each of ``.pairs``, ``.highest(count)``, ``.to_dict()``,
        ``.to_arrow()``, ``.statistics``
    :raises InputError: a vertex that is not in the graph, several devices of the CPU, or another wrong
        argument
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: the pairs found, or what finds them, do not fit into memory
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    return _scores(_JACCARD, graph, pairs, above, devices, trace, options)


@public
def overlap(
    graph: GraphArgument,
    pairs: PairsArgument = None,
    *,
    above: float | None = None,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> SimilarityResult:
    """Compute overlap coefficients: common neighbours of two vertices, divided by the smaller degree.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], directed=False)
    >>> gw.overlap(graph, [(0, 3), (0, 1)]).score.tolist()
    [1.0, 0.5]

    Parameters, result and errors are as for :func:`jaccard`.
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    return _scores(_OVERLAP, graph, pairs, above, devices, trace, options)


@public
def sorensen(
    graph: GraphArgument,
    pairs: PairsArgument = None,
    *,
    above: float | None = None,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> SimilarityResult:
    """Compute Sørensen's (Dice's) coefficients: common neighbours, divided by the mean of both degrees.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], directed=False)
    >>> gw.sorensen(graph, [(0, 3), (0, 1)]).score.round(3).tolist()
    [0.667, 0.5]

    Parameters, result and errors are as for :func:`jaccard`.
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    return _scores(_SORENSEN, graph, pairs, above, devices, trace, options)


@public
def adamic_adar(
    graph: GraphArgument,
    pairs: PairsArgument = None,
    *,
    above: float | None = None,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> SimilarityResult:
    """Compute Adamic and Adar's index: the sum of 1 / log(degree) over the common neighbours of a pair.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], directed=False)
    >>> gw.adamic_adar(graph, [(0, 3)]).score.round(3).tolist()
    [0.91]

    Parameters, result and errors are as for :func:`jaccard`; scores differ between CPUs and GPUs by
    rounding. (L. Adamic, E. Adar, Friends and neighbors on the Web, Social Networks 25 (2003).) The index
    of a vertex with itself is infinite if a neighbour has no other neighbour.
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    return _scores(_ADAMIC_ADAR, graph, pairs, above, devices, trace, options)


@public
def resource_allocation(
    graph: GraphArgument,
    pairs: PairsArgument = None,
    *,
    above: float | None = None,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> SimilarityResult:
    """Compute resource allocation indices: the sum of 1 / degree over the common neighbours of a pair.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], directed=False)
    >>> gw.resource_allocation(graph, [(0, 3)]).score.round(3).tolist()
    [0.333]

    Parameters, result and errors are as for :func:`jaccard`; scores differ between CPUs and GPUs by
    rounding. (T. Zhou, L. Lü, Y.-C. Zhang, Predicting missing links via local information, European
    Physical Journal B 71 (2009).)
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    return _scores(_RESOURCE_ALLOCATION, graph, pairs, above, devices, trace, options)


def _scores(
    kind: Similarity, graph: GraphArgument, pairs: PairsArgument, above: Any, devices: DevicesArgument,
    trace: TraceArgument, options: SolverOptions,
) -> SimilarityResult:  # fmt: skip
    """Return the scores of given pairs, or of all pairs with common neighbours above a bound."""
    name = f"similarity ({kind.name})"
    with recorded(trace, kind.name):
        if pairs is None:
            return _all_pairs(kind, name, graph, above, devices, options)
        if above is not None:
            raise InputError(
                f"above={shown(above)} is for all pairs: leave it out, or pairs; the scores of given pairs "
                "are all returned"
            )
        few = _number_of(pairs) < _LEAST_GPU_PAIRS
        if devices is None and few and not isinstance(graph, PlacedGraph):
            devices = "cpu"
        with DeviceQuery(graph, devices, name, "intersections", options) as query:
            plain, placed, statistics = query.graph, query.placed, query.statistics
            simple, terms = _prepared(kind, name, query)
            given = (pairs, plain.ids, simple.targets.dtype)
            positions = None if placed is None else positions_on_gpu(*given)
            if positions is None:
                positions = positions_of_pairs(*given)
            poll = make_poll(options, len(positions))
            if len(positions) == 0:
                scores = np.empty(0)
            elif placed is None:
                with statistics.phase("run"):
                    scores = score_pairs(
                        simple, positions, terms, kind.measure, query.device.threads, poll
                    )
                statistics.processed_items[0] = len(positions)
            else:
                from godwit.algorithms.similarity.cuda import PairsQuery

                scores = PairsQuery(
                    options.gpu, poll, statistics, positions, terms, kind.measure, options.location
                ).run(placed.reweighted(simple))
        return SimilarityResult(plain, kind.name, positions, scores, statistics, options.location)


def _all_pairs(
    kind: Similarity, name: str, graph: GraphArgument, above: Any, devices: DevicesArgument,
    options: SolverOptions,
) -> SimilarityResult:  # fmt: skip
    """Return the scores of all pairs with common neighbours, above a bound."""
    bound = 0.0 if above is None else as_float(above, "above")
    if math.isnan(bound) or bound < 0:
        raise InputError(f"above must not be negative, got {shown(above)}")
    if devices is None and isinstance(graph, Graph) and graph.arc_count < _LEAST_GPU_ARCS:
        devices = "cpu"
    with DeviceQuery(graph, devices, name, "intersections", options) as query:
        plain, placed, statistics = query.graph, query.placed, query.statistics
        simple, terms = _prepared(kind, name, query)
        poll = make_poll(options, 2 * plain.vertex_count)
        if placed is None or simple.arc_count == 0:
            with statistics.phase("run"):
                positions, scores = score_neighbours(
                    simple, bound, terms, kind.measure, query.device.threads, poll
                )
            statistics.processed_items[0] = len(scores)
        else:
            from godwit.algorithms.similarity.cuda import NeighboursQuery

            positions, scores = NeighboursQuery(
                options.gpu, poll, statistics, bound, terms, kind.measure
            ).run(placed.reweighted(simple))
    return SimilarityResult(plain, kind.name, positions, scores, statistics, options.location)


def _prepared(kind: Similarity, name: str, query: DeviceQuery) -> tuple[Graph, Array]:
    """Return the simple graph, and the terms of its vertices."""
    if query.placed is not None:
        query.placed.check_all_duplicated(f"{name} runs")
    with query.statistics.phase("number"):
        simple = simple_graph(query.graph)
        return simple, kind.terms(simple)


def _number_of(pairs: Any) -> int:
    """Return the number of pairs of an argument that has not been checked."""
    try:
        return len(pairs)
    except TypeError:
        return 0
