"""Betweenness centrality of vertices and arcs, exact or from sampled sources."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import numpy as np

from godwit.algorithms.betweenness.centrality import BetweennessResult, run_betweenness
from godwit.graph.csr import Graph
from godwit.graph.ids import Sources
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import query_options
from godwit.worker.query import (
    GraphArgument,
    add_placement,
    on_gpus_or_cores,
)


def betweenness_centrality(
    graph: GraphArgument,
    *,
    sources: Sources | None = None,
    samples: int | None = None,
    seed: int = 0,
    normalized: bool = True,
    endpoints: bool = False,
    edges: bool = False,
    weighted: bool | None = False,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: Callable[[int], None] | None = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> BetweennessResult:
    """Betweenness of vertices, and of edges on request, as NetworkX defines it (Brandes, 2001).

    >>> import godwit as gw
    >>> gw.betweenness_centrality(gw.generators.path(3)).centrality.tolist()
    [0.0, 1.0, 0.0]

    Shortest are the paths of fewest arcs, whatever weights there are; with ``weighted=True``, those of the
    least sum of weights. Self-loops are on no shortest path. Parallel arcs make paths of their own, which
    NetworkX counts once: call ``merge_parallel_arcs()`` first for its answer. However many paths there
    are, their numbers do not overflow: where GPUs, which count in float64, find too many, all is done on
    the CPU, as ``.statistics.devices`` says. The result is bit by bit the same for any number of threads,
    and, if not by weights, on the same GPUs every time; between these, it differs by rounding.

    All GPUs search from one source together; from many sources each GPU has the whole graph and a share of
    them, and there each block of threads searches from one of its own, where memory and the graph's shape
    allow it (not by weights). On the CPU a thread searches from one source at a time, so fewer sources than
    threads leave some idle. A thread takes some 30 bytes a vertex, and 4 an arc (for edges 8 and 16 more,
    by weights 8 and 20 to 28 more); where memory is short, fewer threads run.

    :param sources: search from these vertices (by id, as for :func:`bfs`) only, and scale up, as for
        ``samples``; None: from all
    :param samples: draw so many sources; the result estimates that of all. NetworkX's ``k``, with the
        same draw for the same seed. It gives NaN to a vertex that is the only source, where this gives 0
    :param seed: of the draw, an integer
    :param normalized: divide by the number of pairs of other vertices (of all pairs, for edges and with
        ``endpoints``), ordered if directed
    :param endpoints: count the ends of a path as on it
    :param edges: ``.edge_centrality``, too; by weights, only the CPU has it
    :param weighted: True: weights are the lengths of arcs, as NetworkX's ``weight="weight"`` has it, and a
        graph without is refused; None: so where the graph has some; False: every arc has length 1.
        Lengths are added up, and compared, as integers where weights are integers, else in float64
    :param devices: as for :func:`bfs`, but CPU devices one at a time: ``"cpu"`` is all cores, ``"cpu:0"``
        one, and a number means all cores where there is no GPU; None also leaves what is done at once, and
        what goes by weights, to the CPU
    :param results: where the arrays live, as for :func:`bfs`
    :param timeout_s: give up after so many seconds; bringing the graph to its devices, and compiling, come
        before
    :param progress: called now and then with the number of sources begun so far
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.centrality`` (n), ``.edge_centrality`` (m, by arc; both arcs of an edge have the edge's),
        ``.sources``, ``.highest(count)``, ``.to_dict()``, ``.statistics``
    :raises InputError: a wrong argument, several devices of the CPU, edges by weights on GPUs, or a weight
        that is zero, negative or not finite, or lost in a sum of float64
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: the arrays of one thread, or those of GPUs, do not fit into memory
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    if devices is None and isinstance(graph, Graph):
        searches = _number_of_searches(graph, sources, samples)
        work = searches * (graph.vertex_count + graph.arc_count)
        if work < _LEAST_GPU_WORK or (weighted is not False and graph.is_weighted):
            devices = "cpu"
    with recorded(trace, "betweenness"), on_gpus_or_cores(graph, devices, "betweenness") as (
        plain, device, placed,
    ):  # fmt: skip
        result = run_betweenness(
            plain,
            device,
            placed,
            sources=sources,
            samples=samples,
            seed=seed,
            normalized=normalized,
            endpoints=endpoints,
            edges=edges,
            weighted=weighted,
            options=options,
        )
        if placed is not None:
            add_placement(result.statistics, placed, graph)
        return result


_LEAST_GPU_WORK = 1 << 22
"""Vertices and arcs, over all searches, below which the CPU is done before a GPU has begun."""


def _number_of_searches(graph: Graph, sources: Any, samples: Any) -> int:
    """About how many; whether the arguments are good is asked later."""
    if isinstance(samples, int):
        return min(samples, graph.vertex_count)
    if sources is None:
        return graph.vertex_count
    try:
        return len(sources) if isinstance(sources, Set) else int(np.size(sources))
    except (TypeError, ValueError):  # lists of several lengths
        return 0
