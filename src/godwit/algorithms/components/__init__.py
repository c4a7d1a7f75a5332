"""Connected components of graphs, and of edges that stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from godwit.algorithms.components.resident import (
    ComponentsResult,
    Method,
    propagate_labels,
    run_components,
)
from godwit.algorithms.components.routes import ComponentsQuery, find_components
from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.placement import PlacedGraph
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.query import (
    GraphArgument,
    add_placement,
    on_gpus_or_cores,
    placed_for_query,
)

EdgesArgument = str | os.PathLike[str] | Iterable[Any]
"""A file of edges, an array of shape (m, 2), or an iterator of such arrays."""


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
    >>> gw.connected_components(gw.Graph.from_edges([0, 4], [3, 1])).label.tolist()
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
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
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
    with on_gpus_or_cores(graph, devices, "connected_components") as (plain, device, placed):
        result = run_components(
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
            add_placement(result.statistics, placed, graph)
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
    with placed_for_query(graph, devices, None) as placed:
        result = propagate_labels(placed, options)
        add_placement(result.statistics, placed, graph)
    result.graph = plain
    return result
