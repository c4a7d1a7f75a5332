"""Closeness and harmonic centrality, as NetworkX defines them: from the distances *to* a vertex.

A vertex that r - 1 others reach, of n vertices, at distances that sum to d, has the closeness (r - 1) / d,
times (r - 1) / (n - 1) for graphs of several components (S. Wasserman, K. Faust, Social Network Analysis,
1994). Harmonic centrality is the sum of 1 / distance (P. Boldi, S. Vigna, Axioms for centrality, Internet
Mathematics 10 (2014)). Sums of distances are those of algorithms/distances/sums.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from godwit.algorithms.closeness.result import ClosenessResult
from godwit.algorithms.distances import run_sums
from godwit.algorithms.distances.query import DistanceSums
from godwit.dtypes import Array, as_flag
from godwit.graph.csr import Graph
from godwit.graph.ids import Sources
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.trace import TraceArgument
from godwit.worker.options import query_options
from godwit.worker.query import GraphArgument


@public
def closeness_centrality(
    graph: GraphArgument,
    vertices: Sources | None = None,
    *,
    weighted: bool | None = None,
    wf_improved: bool = True,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> ClosenessResult:
    """Compute the closeness of vertices, as NetworkX defines it.

    >>> import godwit as gw
    >>> gw.closeness_centrality(gw.generators.path(3)).centrality.tolist()
    [0.6666666666666666, 1.0, 0.6666666666666666]

    That is the number of other vertices that reach a vertex, divided by the sum of their distances to it;
    0 if there are none. The distance is *to* the vertex: for distances from it, give ``graph.reverse``. The
    result does not depend on devices, except by rounding where weights are floating-point numbers.

    Numbers of arcs are found for many sources at once, in the bits of words (:func:`distances`), and never
    stored.

    :param vertices: whose closeness is wanted, by id as for :func:`bfs`; None: all
    :param weighted: None: distances are sums of weights where the graph has some (as for :func:`sssp`, they
        must not be negative); True: the same, and a graph without is refused; False: arcs are counted
    :param wf_improved: multiply by the share of the other vertices that reach the vertex, so that vertices
        of small components do not come out ahead (Wasserman and Faust)
    :param devices: as for :func:`distances`
    :param results: where ``.centrality`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of searches begun so far, with ``.total``
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.centrality`` (of each of ``.vertices``, ascending by position), ``.highest(count)``,
        ``.to_dict()``, ``.statistics``
    :raises InputError: a vertex out of range, a negative or NaN weight, several devices of the CPU, or
        another wrong argument
    :raises ValueOverflowError: with integer weights, a distance reaches 2^63 - 2
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: the arrays of one thread do not fit into memory
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    wf_improved = as_flag(wf_improved, "wf_improved")

    def closeness(plain: Graph, sums: DistanceSums) -> Array:
        others = (sums.count - 1).astype(np.float64)
        centrality = np.zeros(len(others))
        np.divide(others, sums.total, out=centrality, where=sums.total > 0)
        if wf_improved:
            centrality *= others / max(1, plain.vertex_count - 1)
        return centrality

    return _centrality(
        "closeness", graph, vertices, None, weighted, devices, trace, options, closeness
    )


@public
def harmonic_centrality(
    graph: GraphArgument,
    vertices: Sources | None = None,
    *,
    sources: Sources | None = None,
    weighted: bool | None = None,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> ClosenessResult:
    """Compute the harmonic centrality of vertices, as NetworkX defines it.

    >>> import godwit as gw
    >>> gw.harmonic_centrality(gw.generators.path(3)).centrality.tolist()
    [1.5, 2.0, 1.5]

    That is the sum of 1 / distance over the other vertices that reach a vertex; those at distance 0, by
    weights, do not count. How it is computed, other parameters and errors are as for
    :func:`closeness_centrality`; where distances are weights, the result may differ between devices by
    rounding.

    :param vertices: whose centrality is wanted, by id as for :func:`bfs`; None: all
    :param sources: vertices whose distances count, by id; None: all
    :returns: ``.centrality`` (of each of ``.vertices``, ascending by position), ``.highest(count)``,
        ``.to_dict()``, ``.statistics``
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)

    def harmonic(plain: Graph, sums: DistanceSums) -> Array:
        return sums.reciprocal

    return _centrality(
        "harmonic", graph, vertices, sources, weighted, devices, trace, options, harmonic
    )


def _centrality(
    name: str, graph: GraphArgument, vertices: Any, sources: Any, weighted: Any,
    devices: DevicesArgument, trace: TraceArgument, options: Any,
    compute: Callable[[Graph, DistanceSums], Array],
) -> ClosenessResult:  # fmt: skip
    found = run_sums(
        name, graph, vertices, sources, weighted, outward=False, devices=devices, trace=trace,
        options=options,
    )  # fmt: skip
    return ClosenessResult(
        found.graph,
        found.vertices,
        compute(found.graph, found.sums),
        found.statistics,
        options.location,
    )
