"""PageRank: by iterations on CPUs and GPUs, or by a vertex program that pushes residuals."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from godwit.algorithms.pagerank.ranks import (
    Distribution,
    PageRankResult,
    RankSettings,
    run_pagerank,
)
from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph
from godwit.placement import PlacedGraph
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.trace import TraceArgument, recorded, seconds_since
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.query import (
    GraphArgument,
    add_placement,
    on_gpus_or_cores,
    placed_for_query,
)


def pagerank(
    graph: GraphArgument,
    damping: float = 0.85,
    *,
    tolerance: float = 1e-6,
    max_iterations: int | None = None,
    personalization: Distribution = None,
    initial: Distribution = None,
    weighted: bool | None = None,
    accelerated: bool | None = None,
    dtype: Any = "float64",
    execution: str = "auto",
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: Callable[[int], None] | None = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> PageRankResult:
    """Ranks of vertices by PageRank, as NetworkX defines it; they sum to 1.

    >>> import godwit as gw
    >>> gw.pagerank(gw.generators.star(5)).rank.argmax()
    np.int64(0)

    A vertex without out-arcs (or whose weights sum to 0) passes its rank on to all vertices, in
    proportion to the personalization. The result is bit by bit the same for any number of threads, and
    on the same GPUs every time; between these, it differs by rounding, or, where that makes for an
    iteration more or less, by what the tolerance leaves. With ``execution="asynchronous"`` it differs by
    what the tolerance leaves from one run to the next.

    :param damping: how much of a rank goes along arcs, in [0, 1); the rest goes everywhere
    :param tolerance: converged when an iteration changes the ranks by less in sum (L1), or, with
        ``execution="asynchronous"``, one more would. NetworkX's ``tol`` is per vertex: its ``tol=t`` is
        ``tolerance=n * t`` here. float32 ranks do not get below some 1e-7
    :param max_iterations: stop then, converged or not; the result says which. None: 100
    :param personalization: where walks begin anew: an array of shape (n), or a mapping of some vertices
        (by id) to weights, the others having 0; scaled to
        sum 1. None: everywhere alike
    :param initial: ranks to begin with, likewise, such as those of a graph before it changed
    :param weighted: None: ranks are divided in proportion to weights where the graph has some; True: the
        same, and a graph without is refused; False: evenly
    :param accelerated: False: every iteration is made of the one before as the definition says, which is
        what Graphalytics counts. None: of undirected graphs, iterations may also go on in the direction of
        the last two (Chebyshev semi-iteration: Golub and Varga, 1961), so that far fewer do; errors are
        within the same bound. True: the same, and a directed graph is refused
    :param dtype: of the ranks, ``"float64"`` or ``"float32"``, which moves half as many bytes. Sums over
        vertices are float64 in both, and so are those over the arcs of a vertex on the CPU; GPUs add
        these up in the precision of the ranks
    :param execution: ``"bulk-synchronous"`` (also ``"auto"``): iterations, in each of which every vertex
        pulls from its in-arcs. ``"asynchronous"``: residual push; a vertex passes on what has come when
        that is enough, and nobody waits. There are no iterations, so ``max_iterations``, ``initial`` and
        ``accelerated`` are refused: it ends within the tolerance, or by ``timeout_s``. It goes along most
        arcs more often, and never along those that little rank reaches from the personalization
    :param devices: as for :func:`bfs`, but, except with ``execution="asynchronous"``, CPU devices one at a
        time: ``"cpu"`` is all cores, ``"cpu:0"`` one; a number means all cores where there is no GPU
    :param results: where ``.rank`` lives, as for :func:`bfs`
    :param timeout_s: give up after so many seconds; bringing the graph to its devices, and compiling, come
        before
    :param progress: called now and then with the number of vertices updated so far, n an iteration; where
        residuals are pushed, as for :func:`bfs`
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.rank`` (n), ``.converged``, ``.iterations`` (None where there are none), ``.residual``,
        ``.highest(count)``, ``.to_dict()``, ``.statistics``
    :raises InputError: a wrong argument, a negative weight, or several devices of the CPU to pull on
    :raises DeviceError: a device is not there
    :raises RunTimeoutError: out of time
    """
    options = query_options(
        execution=execution, gpu=gpu, timeout_s=timeout_s, progress=progress, results=results
    )
    asked = {
        "damping": damping,
        "tolerance": tolerance,
        "personalization": personalization,
        "weighted": weighted,
        "dtype": dtype,
    }
    if options.execution == "asynchronous":
        for name, value in {
            "max_iterations": max_iterations,
            "initial": initial,
            "accelerated": accelerated,
        }.items():
            if value is not None:
                raise InputError(
                    f"{name} is of iterations, and execution='asynchronous' has none: it pushes residuals, "
                    "from the personalization on"
                )
        with recorded(trace, "pagerank"):
            return _push_ranks(graph, devices, options, asked)
    with recorded(trace, "pagerank"), on_gpus_or_cores(graph, devices, "pagerank") as (
        plain, device, placed,
    ):  # fmt: skip
        result = run_pagerank(
            plain,
            device,
            placed,
            max_iterations=max_iterations,
            initial=initial,
            accelerated=accelerated,
            options=options,
            **asked,
        )
        if placed is not None:
            add_placement(result.statistics, placed, graph)
        return result


def _push_ranks(
    graph: GraphArgument, devices: DevicesArgument, options: SolverOptions, asked: dict[str, Any]
) -> PageRankResult:
    """PageRank by a vertex program."""
    from godwit.algorithms.pagerank.push import push_residuals, push_rows

    plain = graph.graph if isinstance(graph, PlacedGraph) else graph
    if not isinstance(plain, Graph):
        raise not_a_graph(plain)
    settings = RankSettings.checked(plain, **asked)
    begin = perf_counter()
    rows = push_rows(plain, settings)
    prepared_s = seconds_since(begin, "place")
    given: GraphArgument = rows.graph
    if isinstance(graph, PlacedGraph):
        given = graph if rows.graph is plain else graph.reweighted(rows.graph)
    with placed_for_query(given, devices, None) as placed:
        result = push_residuals(plain, placed, rows, settings, options)
        add_placement(result.statistics, placed, given)
        seconds = result.statistics.seconds
        seconds["place"] = seconds.get("place", 0.0) + prepared_s
        return result
