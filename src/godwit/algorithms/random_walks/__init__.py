"""Random walks: uniform, by weights, and biased by the previous vertex (node2vec).

Random numbers are hashes of the seed, the walk, the step and a count (query.py), and the same arithmetic is
done on CPUs (cpu.py) and GPUs (walks.cuh), so walks are the same on any devices.
"""

from __future__ import annotations

import numpy as np

from godwit.algorithms.paths.weights import uses_weights
from godwit.algorithms.random_walks.cpu import walk_on_cpu
from godwit.algorithms.random_walks.query import WalkQuery, as_bias
from godwit.dtypes import Array, as_count
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph
from godwit.graph.hashing import seed_word
from godwit.graph.ids import Sources
from godwit.graph.rows import require_memory
from godwit.placement import PlacedGraph
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.query import DeviceQuery, GraphArgument
from godwit.worker.solve import make_poll

_MOST_STEPS = 1 << 40


@public
def random_walks(
    graph: GraphArgument,
    sources: Sources,
    length: int,
    *,
    p: float = 1.0,
    q: float = 1.0,
    weighted: bool | None = None,
    seed: int = 0,
    devices: DevicesArgument = None,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> Array:
    """Walk at random along out-arcs, from each of several vertices.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 1, 2], [1, 2, 3])
    >>> gw.random_walks(graph, [0, 2], 4).tolist()
    [[0, 1, 2, 3, -1], [2, 3, -1, -1, -1]]

    The arc of each step is drawn in proportion to its weight, or uniformly where there are no weights. With
    ``p`` or ``q`` it also depends on the vertex before (node2vec): the weight of an arc back to that vertex
    is divided by p; that of an arc to a vertex that no arc leads to from that one is divided by q.

    The same seed gives the same walks on any devices, for any number of threads; walk i depends on the
    seed, its source and i alone.

    :param graph: a graph, or one placed on devices by :func:`place`
    :param sources: a vertex or several, by id; a walk begins at each, in this order, and vertices may
        repeat
    :param length: steps of each walk
    :param p: return parameter, from 1e-9 to 1e9
    :param q: in-out parameter, from 1e-9 to 1e9
    :param weighted: True to draw by weights, False uniformly; None: by weights if there are some. They must
        be finite and not negative; arcs of weight 0 are never taken
    :param seed: any integer
    :param devices: as for :func:`pagerank`. Several GPUs share the walks, and each has the whole graph
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of steps so far, with ``.total``
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: shape (walks, length + 1), dtype of the targets: the positions of the vertices of each walk,
        the source first; -1 after a vertex that no arc leaves, or none of positive weight.
        ``graph.ids.of(walk)`` are the ids of a walk that has no -1
    :raises InputError: a wrong argument, or a weight that is negative, infinite or NaN
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: the graph or the walks do not fit
    :raises RunTimeoutError: out of time

    Sources: Grover, Leskovec, node2vec: Scalable Feature Learning for Networks, KDD 2016; rejection: Yang
    et al., KnightKing: A Fast Distributed Graph Random Walk Engine, SOSP 2019.
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress)
    plain = graph.graph if isinstance(graph, PlacedGraph) else graph
    query = walk_query(plain, sources, length, p=p, q=q, weighted=weighted, seed=seed)
    with recorded(trace, "random_walks"):
        return run_walks(graph, query, devices, options)[0]


def walk_query(
    graph: Graph,
    sources: Sources,
    length: int,
    *,
    p: float = 1.0,
    q: float = 1.0,
    weighted: bool | None = None,
    seed: int = 0,
) -> WalkQuery:
    """Return a checked query of a graph; parameters and errors as of :func:`random_walks`."""
    if not isinstance(graph, Graph):
        raise not_a_graph(graph)
    return WalkQuery(
        graph,
        graph.ids.in_order(sources, "sources", or_none=True),
        as_count(length, "length", 0, _MOST_STEPS),
        uses_weights(graph, weighted),
        as_bias(p, "p"),
        as_bias(q, "q"),
        seed_word(seed),
    )


def run_walks(
    graph: GraphArgument, query: WalkQuery, devices: DevicesArgument, options: SolverOptions
) -> tuple[Array, RunStatistics]:
    """Return the walks of a query, and statistics; parameters and errors as of :func:`random_walks`."""
    name = "random walks"
    with DeviceQuery(graph, devices, "random_walks", name, options, what=name, takes=()) as run:
        placed, statistics = run.placed, run.statistics
        rows, columns = query.shape
        dtype = query.graph.id_dtype
        require_memory(
            rows * columns * dtype.itemsize, f"an array of {rows:,} walks of {query.length:,} steps"
        )
        _ = query.sums  # checks weights
        poll = make_poll(options, rows * query.length)
        walks: Array = np.empty(query.shape, dtype)
        with statistics.phase("run"):
            if placed is not None and rows:
                from godwit.algorithms.random_walks.cuda import walk_on_gpus

                placed.check_all_duplicated("random walks run")
                walks, seconds = walk_on_gpus(placed, query, options.gpu, poll)
            elif rows:
                walk_on_cpu(query, walks, run.device.threads, poll)
        if placed is not None and rows:
            statistics.split_run(seconds)
        statistics.processed_items[0] = rows * query.length
    return walks, statistics
