"""The public functions: validate once, choose devices, call, wrap the result."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any, overload

import numpy as np

from godwit.algorithms.betweenness import BetweennessResult
from godwit.algorithms.betweenness import betweenness_centrality as _betweenness
from godwit.algorithms.bfs import bfs as _bfs
from godwit.algorithms.components import ComponentsResult, Method, propagate_labels
from godwit.algorithms.components import connected_components as _components
from godwit.algorithms.components.routes import ComponentsQuery, find_components
from godwit.algorithms.pagerank import Distribution, PageRankResult, RankSettings
from godwit.algorithms.pagerank import pagerank as _pagerank
from godwit.algorithms.paths.result import PathResult, Sources, Vertex
from godwit.algorithms.sssp import sssp as _sssp
from godwit.arrays import Home, host_array
from godwit.dataflow.tuning import check_callable
from godwit.dtypes import Array, as_count, as_flag, as_positive_number
from godwit.errors import InputError, shown
from godwit.frontier.operators import Of, Step
from godwit.frontier.operators import filter as _filter_step
from godwit.frontier.program import StepProgram
from godwit.graph.csr import Graph
from godwit.graph.foreign import no_graph
from godwit.graph.generators.spec import parse_spec
from godwit.placement import (
    PartitionArgument,
    PlacedGraph,
    default_step_devices,
    place_for_one_query,
)
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import Device
from godwit.runtime.registry import DevicesArgument, resolve_devices
from godwit.runtime.statistics import RunStatistics
from godwit.trace import TraceArgument, recorded, seconds_since
from godwit.worker.program import VertexProgram
from godwit.worker.solve import Solution, SolverOptions, Start, solve

GraphArgument = Graph | PlacedGraph

EdgesArgument = str | os.PathLike[str] | Iterable[Any]
"""A file of edges, an array of shape (m, 2), or an iterator of such arrays."""


def bfs(
    graph: GraphArgument,
    source: Sources,
    *,
    devices: DevicesArgument = None,
    partition: PartitionArgument = None,
    target: Vertex | None = None,
    cutoff: float | None = None,
    execution: str = "auto",
    results: str = "host",
    timeout_s: float | None = None,
    progress: Callable[[int], None] | None = None,
    trace: TraceArgument = None,
    **tuning: Any,
) -> PathResult:
    """Distances in arcs from a source, or from the nearest of several.

    >>> import godwit as gw
    >>> gw.bfs(gw.generators.path(4), 0).distance.tolist()
    [0, 1, 2, 3]

    :param graph: a graph, or one placed on devices by :func:`place`
    :param source: a vertex, or several: by id where the graph has ids of its own (``graph.ids.own``), else
        by numbers from 0 on
    :param devices: None for what is best: the first GPU, or all where the graph is large and wide, or all
        cores. Names: ``"cuda"`` (all GPUs), ``"cuda:1"``, ``"cpu"`` (all cores), ``["cpu:0", "cpu:1"]``
        (virtual devices). A number: so many GPUs, or virtual devices where there is no GPU
    :param partition: how the graph is divided over several devices; see :func:`place`
    :param target: stop when this vertex' distance is final; vertices farther away than it come out
        as not reached
    :param cutoff: vertices farther away come out as not reached
    :param execution: ``"asynchronous"`` or ``"bulk-synchronous"`` (in supersteps, at the end of which all
        devices meet); ``"auto"`` for what is best. The result is the same. On ``"cpu"`` BFS goes by levels
        in any case
    :param results: where the arrays of the result live: ``"host"`` for NumPy arrays, ``"cuda"`` or
        ``"cuda:1"`` for CuPy arrays on that GPU; both hand them on by DLPack without a copy
    :param timeout_s: give up after so many seconds; bringing the graph to its devices, and compiling, come
        before
    :param progress: called now and then with the number of items processed so far, an int; on GPUs, it
        also has ``.threshold`` and ``.idle_share``
    :param trace: a file for the timeline of the run, such as ``"run.json"``, for ui.perfetto.dev or
        chrome://tracing; written also where the run fails. Or a :class:`godwit.Trace`, which takes in
        several runs
    :param tuning: ``delta``, ``window``, ``ring_items``, ``capacity_items``, ``gpu`` of
        :class:`godwit.worker.solve.SolverOptions`
    :returns: ``.distance`` (int32; 2147483647 where not reached), ``.predecessor``, ``.to_dict()``,
        ``.statistics``
    :raises InputError: a vertex out of range, or another wrong argument
    :raises FileError: the trace cannot be written; found out before anything is run
    :raises DeviceError: a device is not there, or CuPy or the GPU that ``results`` asks for
    :raises RunTimeoutError: out of time
    """
    options = _options(timeout_s, progress, results, {**tuning, "execution": execution})
    if devices is None and isinstance(graph, Graph) and options.execution == "bulk-synchronous":
        devices = default_step_devices(graph)
    with recorded(trace, "bfs"), _placed(graph, devices, partition) as placed:
        result = _bfs(placed, source, target=target, cutoff=cutoff, options=options)
        _add_placement(result.statistics, placed, graph)
        return result


def sssp(
    graph: GraphArgument,
    source: Sources,
    *,
    devices: DevicesArgument = None,
    partition: PartitionArgument = None,
    target: Vertex | None = None,
    cutoff: float | None = None,
    execution: str = "auto",
    results: str = "host",
    timeout_s: float | None = None,
    progress: Callable[[int], None] | None = None,
    trace: TraceArgument = None,
    **tuning: Any,
) -> PathResult:
    """Lengths of shortest paths from a source, or from the nearest of several.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_arcs([0, 0, 1], [1, 2, 2], [4, 9, 3])
    >>> gw.sssp(graph, 0).distance.tolist()
    [0, 4, 7]

    Weights must not be negative; a graph without weights counts arcs. Parameters as for :func:`bfs`.

    :returns: ``.distance`` (int64 for integer weights, exact; float64 for others; the largest int64,
        or infinity, where not reached), ``.predecessor``, ``.to_dict()``, ``.statistics``
    :raises InputError: a vertex out of range, a negative or NaN weight, or another wrong argument
    :raises ValueOverflowError: with integer weights, a distance within the cutoff reaches 2^63 - 2
    :raises RunTimeoutError: out of time
    """
    options = _options(timeout_s, progress, results, {**tuning, "execution": execution})
    with recorded(trace, "sssp"), _placed(graph, devices, partition) as placed:
        result = _sssp(placed, source, target=target, cutoff=cutoff, options=options)
        _add_placement(result.statistics, placed, graph)
        return result


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
        time: ``"cpu"`` is all cores, ``"cpu:0"`` one
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
    tuning = {"execution": execution, **({} if gpu is None else {"gpu": gpu})}
    options = _options(timeout_s, progress, results, tuning)
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
    with recorded(trace, "pagerank"), _on_gpus_or_cores(graph, devices, "pagerank") as (
        plain, device, placed,
    ):  # fmt: skip
        result = _pagerank(
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
            _add_placement(result.statistics, placed, graph)
        return result


def _push_ranks(
    graph: GraphArgument, devices: DevicesArgument, options: SolverOptions, asked: dict[str, Any]
) -> PageRankResult:
    """PageRank by a vertex program."""
    from godwit.algorithms.pagerank.push import push_residuals, push_rows

    plain = graph.graph if isinstance(graph, PlacedGraph) else graph
    if not isinstance(plain, Graph):
        raise no_graph(plain)
    settings = RankSettings.checked(plain, **asked)
    begin = perf_counter()
    rows = push_rows(plain, settings)
    prepared_s = seconds_since(begin, "place")
    given: GraphArgument = rows.graph
    if isinstance(graph, PlacedGraph):
        given = graph if rows.graph is plain else graph.reweighted(rows.graph)
    with _placed(given, devices, None) as placed:
        result = push_residuals(plain, placed, rows, settings, options)
        _add_placement(result.statistics, placed, given)
        seconds = result.statistics.seconds
        seconds["place"] = seconds.get("place", 0.0) + prepared_s
        return result


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
        one; None also leaves what is done at once, and what goes by weights, to the CPU
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
    options = _options(timeout_s, progress, results, {} if gpu is None else {"gpu": gpu})
    if devices is None and isinstance(graph, Graph):
        searches = _number_of_searches(graph, sources, samples)
        work = searches * (graph.vertex_count + graph.arc_count)
        if work < _LEAST_GPU_WORK or (weighted is not False and graph.is_weighted):
            devices = "cpu"
    with recorded(trace, "betweenness"), _on_gpus_or_cores(graph, devices, "betweenness") as (
        plain, device, placed,
    ):  # fmt: skip
        result = _betweenness(
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
            _add_placement(result.statistics, placed, graph)
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


def connected_components(
    graph: GraphArgument | EdgesArgument,
    *,
    method: str = "auto",
    rounds: int | None = None,
    jumps: int | None = None,
    merge: str = "auto",
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: Callable[[int], None] | None = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
    vertex_count: int | None = None,
    edge_dtype: Any = None,
    columns: tuple[str, ...] | list[str] | None = None,
    memory_bytes: int | None = None,
    host_bytes: int | None = None,
    packet_bytes: int | None = None,
) -> ComponentsResult:
    """The connected component of every vertex; weakly connected where the graph is directed.

    >>> import godwit as gw
    >>> gw.connected_components(gw.Graph.from_arcs([0, 4], [3, 1])).label.tolist()
    [0, 1, 2, 0, 1]

    A component is called by its smallest vertex, by every method, on whatever devices.

    Instead of a graph there may be edges, which stream in packets to whichever device is free, so that they
    may be more than any memory holds: the path of a ``.npy`` file of shape (m, 2) or of a file of bare
    pairs, an array of that shape (of NumPy, mapped, or of CuPy), or an iterator of such arrays. Vertices
    are numbers then, ``.graph`` is None, and every device needs room for a number a vertex.

    The path may also be that of a file of a format that lists arcs (edge lists such as SNAP's, Matrix
    Market, DIMACS, CSV, Parquet, …), compressed or not, whose ids are integers. It is gone through twice,
    16 MiB of text at a time; vertices, and ``.ids``, are those that :func:`read` would give. A ``.godwit``
    file is mapped, and its arcs stream; ``.graph`` is what was mapped.

    >>> edges = ([[vertex, vertex + 2]] for vertex in range(4))
    >>> gw.connected_components(edges, vertex_count=6).sizes.tolist()
    [3, 3]

    The arcs of a graph stream, too, where it does not fit on its GPUs, unless something is asked for that
    needs it there (``"afforest"``, label propagation, ``merge="direct"``, ``gpu``); and where
    ``memory_bytes``, ``host_bytes`` or ``packet_bytes`` is given, or where it is on GPUs that do not change
    each other's memory by atomics. ``.statistics.solver`` begins with ``"streamed"`` then.

    :param graph: a graph, one placed on devices by :func:`place`, or edges
    :param method: ``"afforest"`` (a neighbour or two of every vertex are linked; the rows of the
        component that is largest then are left out), ``"rem"`` (all arcs are linked by Rem's algorithm,
        which splices paths), ``"hook"`` (all arcs hook roots below each other), ``"label-propagation"``
        (a vertex program: labels go along arcs; on any devices, virtual ones of the CPU too);
        ``"auto"``: Rem where vertices have few arcs, else Afforest. Edges that stream take ``"rem"``,
        which is ``"auto"`` there, and ``"hook"``
    :param rounds: of Afforest, neighbours of every vertex that are linked first, at least 1; of Rem and
        hook, rounds of hooking without atomics before the atomic one (Hellås, 2018); with ``"auto"`` at
        least 1. None: what is usually best
    :param jumps: how far up its tree each vertex gets after every such round: 0 for no compression, None
        for all the way
    :param merge: how several GPUs come to one result: ``"direct"``, every GPU links in the memory of the
        others as it goes; ``"tree"``, each joins what its own arcs join, and the forests are merged in
        pairs, as they always are where edges stream; ``"auto"``: what is usually best
    :param devices: as for :func:`pagerank`; with label propagation as for :func:`bfs`; edges stream to any
        devices, GPUs and the CPU together
    :param results: where ``.label`` lives, as for :func:`bfs`
    :param timeout_s: give up after so many seconds; bringing the graph to its devices, and compiling, come
        before
    :param progress: called now and then with the number of rows gone through so far, or of edges, with
        ``.total``
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run on a graph
    :param vertex_count: of edges: ids are below it. None: one more than the largest, which takes a pass of
        its own, and cannot be where they come out of an iterator. Formats that list arcs say it themselves
    :param edge_dtype: of the ids in a file of bare pairs
    :param columns: of a table in a file (CSV, Parquet), as of :func:`read`
    :param memory_bytes: where edges stream: limit on each device, of forest and packets. This and
        the next two let the arcs of a graph stream
    :param host_bytes: likewise, of buffers on the host
    :param packet_bytes: likewise, of a packet
    :returns: ``.label`` (n), ``.count``, ``.sizes`` and ``.names`` (count), ``.to_dict()``, ``.statistics``
    :raises InputError: a wrong argument, or several devices of the CPU where they cannot be; an edge whose
        ends are no vertices, by its row
    :raises FileError: a file of edges cannot be read
    :raises FormatError: a file of edges is malformed; names the line
    :raises DeviceError: a device is not there; GPUs do not reach each other, and arcs cannot stream
    :raises GraphTooLargeError: a number a vertex does not fit, or a graph that cannot stream
    :raises RunTimeoutError: out of time
    """
    options = _options(timeout_s, progress, results, {} if gpu is None else {"gpu": gpu})
    streaming = {
        "vertex_count": vertex_count,
        "edge_dtype": edge_dtype,
        "columns": columns,
        "memory_bytes": memory_bytes,
        "host_bytes": host_bytes,
        "packet_bytes": packet_bytes,
    }
    query = ComponentsQuery.checked(
        graph,
        method=method,
        rounds=rounds,
        jumps=jumps,
        merge=merge,
        gpu=gpu,
        streaming=streaming,
    )
    resident = partial(_resident_components, query, options=options)
    with recorded(trace, "connected_components"):
        return find_components(query, devices, options, resident)


def _resident_components(
    query: ComponentsQuery, method: Method, devices: DevicesArgument, *, options: SolverOptions
) -> ComponentsResult:
    """Components of a graph that lies on GPUs, or in the memory of the CPU."""
    graph: GraphArgument = query.given
    if method == "label-propagation":
        return _propagate_labels(graph, devices, options)
    with _on_gpus_or_cores(graph, devices, "connected_components") as (plain, device, placed):
        result = _components(
            plain,
            device,
            placed,
            method=method,
            rounds=query.rounds,
            jumps=query.jumps,
            merge=query.merge,
            options=options,
        )
        if placed is not None:
            _add_placement(result.statistics, placed, graph)
        return result


def _propagate_labels(
    graph: GraphArgument, devices: DevicesArgument, options: SolverOptions
) -> ComponentsResult:
    """Components by a vertex program; labels go one way along arcs, so all of them have to lead back."""
    plain = graph.graph if isinstance(graph, PlacedGraph) else graph
    if isinstance(graph, Graph):
        graph = graph.symmetrize()
    elif plain.directed:
        raise InputError(
            "the placed graph is directed, and labels go one way along arcs: place graph.symmetrize()"
        )
    with _placed(graph, devices, None) as placed:
        result = propagate_labels(placed, options)
        _add_placement(result.statistics, placed, graph)
    result.graph = plain
    return result


@overload
def filter(keep: Callable[..., Any], of: Of, /) -> Step: ...


@overload
def filter(keep: Callable[..., Any], /, *, of: Of = "frontier") -> Step: ...


@overload
def filter(
    array: Any,
    predicate: Callable[[Any], Any],
    devices: DevicesArgument = None,
    *,
    ordered: bool = True,
    out: Array | None = None,
    packet_bytes: int | None = None,
    buffers: int | None = None,
    timeout_s: float | None = None,
    progress: Callable[[int], None] | None = None,
    trace: TraceArgument = None,
) -> Array: ...


def filter(
    array: Any,
    predicate: Any = None,
    devices: DevicesArgument = None,
    *,
    of: Any = None,
    ordered: bool = True,
    out: Array | None = None,
    packet_bytes: int | None = None,
    buffers: int | None = None,
    timeout_s: float | None = None,
    progress: Callable[[int], None] | None = None,
    trace: TraceArgument = None,
) -> Any:
    """The elements of an array that satisfy a predicate; or, of a function alone, a step of a step program.

    >>> import numpy as np, godwit as gw
    >>> gw.filter(np.arange(10), lambda x: x % 3 == 0)
    array([0, 3, 6, 9])

    **Of an array** of one dimension: packets of it go to whichever device is free, GPUs and the CPU
    together, and what they keep comes back (Groute, section 3). The array may be larger than the devices'
    memory, and a file larger than the host's. Page-locked memory (``cupyx.empty_pinned``) goes to GPUs at
    the speed of the bus.

    **Of a function**, ``gw.filter(keep, of="frontier")`` makes a frontier of the vertices that ``keep``
    says, out of the ``"frontier"`` or of ``"all"``; it reads fields, numbers, ``vertex`` and ``degree`` by
    name: see :class:`StepProgram`.

    :param array: of booleans, integers up to 64 bits, float32 or float64, in any order of bytes and with or
        without gaps; NumPy's, mapped (``np.memmap``), any other library's; or the path of a ``.npy`` file
    :param predicate: a Python function of one element that returns a boolean. It is compiled for the CPU by
        Numba and into the GPU's kernel; it may call other functions and read constants around it,
        and may be called twice for an element
    :param devices: as for :func:`bfs`, but kinds may be mixed: ``["cuda:0", "cpu"]``. None: of a CuPy
        array, its GPU; else, of at least 64 MiB, the first GPU if there is one, and if the array is not
        page-locked the CPU beside it; else all cores
    :param ordered: False: what is kept may come in any order of packets, which waits for nobody
    :param out: an array to write to, of the same dtype, with room for what is kept
    :param packet_bytes: of the array that a device takes at a time
    :param buffers: packets that may be on their way to a GPU at a time, 3 by default
    :param timeout_s: give up after so many seconds; compiling comes before
    :param progress: called now and then with the number of elements dealt with so far
    :param trace: as for :func:`bfs`
    :returns: a NumPy array of the same dtype, order of bytes included; of one on a GPU, filtered there,
        one of CuPy; with ``out``, a part of that
    :raises InputError: a wrong argument, or no room in ``out``
    :raises OperatorError: the predicate is no Python function of one element, cannot be compiled,
        returns no boolean, or has a constant that compiled code would change (``2**70``)
    :raises FileError: the file cannot be read
    :raises DeviceError: a device is not there
    :raises RunTimeoutError: out of time
    """
    if callable(array) and (of is not None or predicate is None or isinstance(predicate, str)):
        scope = predicate if of is None else of
        return _filter_step(array, "frontier" if scope is None else scope)
    if of is not None:
        raise InputError(
            f"of is for gw.filter(keep, of='frontier'), a step; {shown(array)} is no function"
        )
    from godwit.algorithms.filtering import FilterOptions, filter_array

    check_callable(progress, "progress")

    options = FilterOptions(
        ordered=as_flag(ordered, "ordered"),
        out=out,
        packet_bytes=None
        if packet_bytes is None
        else as_count(packet_bytes, "packet_bytes", 1, 1 << 40),
        buffers=None if buffers is None else as_count(buffers, "buffers", 1, 1 << 10),
        progress=progress,
        timeout_s=None if timeout_s is None else as_positive_number(timeout_s, "timeout_s"),
    )
    with recorded(trace, "filter"):
        return filter_array(array, predicate, devices, options)


def run(
    program: VertexProgram,
    graph: GraphArgument,
    start: Start = "all",
    *,
    devices: DevicesArgument = None,
    partition: PartitionArgument = None,
    parameters: Mapping[str, float] | None = None,
    limit: Any = None,
    target: Vertex | None = None,
    execution: str = "auto",
    results: str = "host",
    timeout_s: float | None = None,
    progress: Callable[[int], None] | None = None,
    trace: TraceArgument = None,
    **tuning: Any,
) -> Solution:
    """Run a vertex program to its end.

    :param start: initial work: ``"all"`` vertices with their initial values, or with those of an array
        of shape (n); or a mapping ``{vertex: value}`` of some vertices, by id, to values combined into
        their initial ones, as a pandas Series is, too
    :param parameters: values for the program's parameters
    :param limit: messages worse than it are dropped (min and max programs)
    :param target: a vertex, by id, whose value becomes the limit
    :param execution: ``"asynchronous"`` (also ``"auto"``) or ``"bulk-synchronous"``: in supersteps, each
        of which processes once what is due, before all devices meet
    :param results: as for :func:`bfs`
    :param trace: likewise
    :returns: ``.values`` and ``.fields`` (shape (n) each, or None), ``.to_dict()``, ``.statistics``
    :raises InputError: a wrong argument
    :raises OperatorError: an operator does not compile
    :raises ValueOverflowError: a value does not fit the program's 32-bit integers
    :raises RunTimeoutError: out of time
    """
    if not isinstance(program, VertexProgram):
        raise InputError(
            f"expected a VertexProgram, got a {type(program).__name__}"
            + ("; call program.run(graph)" if isinstance(program, StepProgram) else "")
        )
    options = _options(timeout_s, progress, results, {**tuning, "execution": execution})
    with recorded(trace, program.name), _placed(graph, devices, partition) as placed:
        ids = placed.graph.ids
        start = ids.by_position(start, "start", complete_is_array=False)
        if not isinstance(start, Mapping) and not (isinstance(start, str) and start == "all"):
            start = _start_values(start, placed.graph.vertex_count)
        if program.combine == "add" and (limit is not None or target is not None):
            raise InputError("limit and target are for programs that combine by min or max")
        if target is not None:
            target = ids.position(target, "target")
        solution = solve(
            program, placed, start, options, limit=limit, target=target, parameters=parameters
        )
        _add_placement(solution.statistics, placed, graph)
        solution.values = options.home.place(solution.values)
        if solution.fields is not None:
            solution.fields = options.home.place(solution.fields)
        return solution


def generate(spec: str, *, device: str | None = None) -> Graph:
    """The graph described by, say, ``rmat:20,seed=3``: what the command line takes for a file.

    ``NAME:SIZE[,key=value...]``: the name of a function of :mod:`godwit.generators` with ``-`` for
    ``_``, its sizes with ``x`` between them, and its keyword arguments as ``keep=0.7``,
    ``simple=false``, ``weights=1..64`` (integers) or ``weights=0.0..1.0`` (floats); ``copies=4`` makes
    four disjoint copies, as :meth:`Graph.replicate` does.

    >>> import godwit as gw
    >>> gw.generate("road:20x30,keep=1.0").vertex_count
    600

    :param device: ``"cuda:0"``: made on that GPU, which has some of the generators; the same graph,
        wherever it is made
    :raises InputError: if the text cannot be understood, the function refuses a value, or the device has
        no such generator
    :raises DeviceError: the device is not there
    :raises GraphTooLargeError: before anything large is allocated
    """
    recipe = parse_spec(spec)
    home = None if device is None else _one_device(device)
    if home is None or home.kind == "cpu":
        return recipe()
    from godwit.graph.generators.cuda import GENERATORS

    function = GENERATORS.get(recipe.generator.function)
    if function is None:
        raise InputError(
            f"{recipe.generator.name} has no version for {home.name}; those that have are "
            f"{', '.join(GENERATORS)}, and the CPU makes all (device=None)"
        )
    return recipe(partial(function, index=int(home.name.partition(":")[2])))


def _one_device(device: str) -> Device:
    """The device of a name, which is one."""
    if not isinstance(device, str):
        raise InputError(f"device must be a name such as 'cuda:0', got {shown(device)}")
    found = resolve_devices(device)
    if len(found) > 1:
        raise InputError(f"device must be one, as {found[0].name!r} is; {device!r} is {len(found)}")
    return found[0]


def _start_values(start: Any, count: int) -> Array:
    """An array of initial values; InputError if it is none of shape (n)."""
    try:
        values = host_array(start)
    except (TypeError, ValueError):  # lists of several lengths
        values = np.empty((), object)
    if values.ndim == 0 or values.dtype.kind not in "iufb":
        raise InputError(
            "start must be 'all', a mapping {vertex: value}, or an array with a value for each of "
            f"the {count} vertices, got {shown(start)}"
        )
    if values.shape != (count,):
        raise InputError(
            f"an array of initial values must have shape ({count},), got {values.shape}; "
            "write {vertex: value} to start from some vertices"
        )
    return values


def _options(
    timeout_s: float | None,
    progress: Callable[[int], None] | None,
    results: str,
    tuning: Mapping[str, Any],
) -> SolverOptions:
    known = ("execution", "delta", "window", "ring_items", "capacity_items", "gpu")
    for name in tuning:
        if name not in known:
            raise TypeError(
                f"unexpected keyword argument {name!r}; for tuning there are {', '.join(known)}"
            )
    options = SolverOptions(**tuning, timeout_s=timeout_s, progress=progress)
    options.home = Home.named(results)
    return options


@contextmanager
def _placed(
    graph: GraphArgument, devices: DevicesArgument, partition: PartitionArgument
) -> Iterator[PlacedGraph]:
    """The placed graph, placed here for one query if it was not before."""
    if isinstance(graph, PlacedGraph):
        if devices is not None or partition is not None:
            raise InputError("the graph is placed already: give devices and partition to place()")
        graph.check_open()
        yield graph
        return
    with place_for_one_query(graph, devices, partition) as placed:
        yield placed


@contextmanager
def _on_gpus_or_cores(
    graph: GraphArgument, devices: DevicesArgument, what: str
) -> Iterator[tuple[Graph, Device, PlacedGraph | None]]:
    """The graph, a device, and, where that is a GPU, the graph placed on it and those beside it.

    For what runs in supersteps on GPUs, and on one device of the CPU.
    """
    if isinstance(graph, PlacedGraph):
        graph.check_open()
        if devices is None and graph.context.devices[0].kind == "cuda":
            yield graph.graph, graph.context.devices[0], graph
            return
    elif isinstance(graph, Graph):
        names = default_step_devices(graph) if devices is None else devices
        found = resolve_devices("cpu" if names is None else names)
        if found[0].kind == "cuda":
            with place_for_one_query(graph, [device.name for device in found], None) as placed:
                yield graph, found[0], placed
            return
    yield (*_on_cores(graph, devices, what), None)


def _on_cores(graph: GraphArgument, devices: DevicesArgument, what: str) -> tuple[Graph, Device]:
    """The graph itself and the device of the CPU that is meant, for what runs on one of these."""
    if isinstance(graph, PlacedGraph):
        if devices is not None:
            raise InputError("the graph is placed already: give devices to place()")
        graph.check_open()
        found, graph = graph.context.devices, graph.graph
        if (
            found[0].kind != "cpu" or len(found) > 1
        ):  # its parts are of no use here, the graph itself is
            found = resolve_devices("cpu")
    else:
        found = resolve_devices("cpu" if devices is None else devices)
    if not isinstance(graph, Graph):
        raise no_graph(graph)
    if len(found) > 1:
        names = ", ".join(device.name for device in found)
        takers = "BFS, SSSP, step programs, vertex programs and pagerank(execution='asynchronous')"
        if what == "connected_components":
            takers = "method='label-propagation' and edges that stream (memory_bytes=...)"
        raise InputError(
            f"{what} runs on one device of the CPU, or on GPUs, so far; got {names}; devices='cpu' is all "
            f"cores as one. {takers} take several of the CPU"
        )
    return graph, found[0]


def _add_placement(statistics: RunStatistics, placed: PlacedGraph, graph: GraphArgument) -> None:
    """Count the time of the placement to the query that made it, and to no other."""
    if placed is not graph:
        statistics.seconds = {**placed.seconds, **statistics.seconds}
