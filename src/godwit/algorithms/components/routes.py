"""Where connected components are found: on devices that hold the graph, or on those its arcs stream to.

Edges that are of no graph always stream. Arcs of a graph do where a limit of what streams is given, where
GPUs do not change each other's memory by atomics, and where the graph does not fit on its GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from godwit.algorithms.components.queries import Merge
from godwit.algorithms.components.resident import (
    STREAM_METHODS,
    ComponentsResult,
    Method,
    as_merge,
    as_method,
)
from godwit.dtypes import as_count
from godwit.errors import DeviceError, GraphTooLargeError, InputError
from godwit.graph.csr import Graph
from godwit.placement import PlacedGraph, default_step_devices
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import Device
from godwit.runtime.registry import DevicesArgument, are_peers, resolve_devices
from godwit.trace import seconds_since
from godwit.worker.options import SolverOptions


@dataclass(frozen=True)
class ComponentsQuery:
    """What was asked for, checked as far as routes differ.

    :param given: a graph, one that is placed, or edges
    :param method: by name
    :param chosen: what that is for the graph; None where edges are to stream
    :param rounds: at least what the method needs, ``"auto"`` what each does; routes have upper limits
    :param jumps: likewise
    :param merge: how GPUs that hold the graph come together
    :param streaming: what is of edges that stream, by name
    :param graph_only: what was asked for that these go without, by name
    """

    given: Any
    method: Any
    chosen: Method | None
    rounds: Any
    jumps: Any
    merge: Merge
    streaming: Mapping[str, Any]
    graph_only: Sequence[str]

    @classmethod
    def checked(
        cls,
        given: Any,
        *,
        method: Any,
        rounds: Any,
        jumps: Any,
        merge: Any,
        gpu: GpuOptions | None,
        streaming: Mapping[str, Any],
    ) -> ComponentsQuery:
        """Of what a user gives; InputError if it does not go together."""
        merge = as_merge(merge)
        if rounds is not None:  # with "auto", whatever method suits the graph
            as_count(rounds, "rounds", 1 if method in ("auto", "afforest") else 0)
        graph_only = ["merge='direct'"] if merge == "direct" else []
        graph_only += [] if gpu is None else ["gpu"]
        chosen: Method | None = None
        if isinstance(given, Graph | PlacedGraph) and not _is_to_stream(given, streaming):
            chosen = as_method(method, given.graph if isinstance(given, PlacedGraph) else given)
            if chosen == "label-propagation" and (
                rounds is not None or jumps is not None or merge != "auto"
            ):
                raise InputError(
                    "rounds, jumps and merge are of methods 'hook', 'rem' and 'afforest'; "
                    "method 'label-propagation' has none"
                )
            if method not in STREAM_METHODS:
                graph_only.append(f"method={method!r}")
        elif graph_only:
            are = "are" if len(graph_only) > 1 else "is"
            raise InputError(f"{' and '.join(graph_only)} {are} for graphs; here, edges stream")
        return cls(given, method, chosen, rounds, jumps, merge, streaming, graph_only)

    @property
    def without(self) -> str:
        """What is to be left out for arcs to stream, in words."""
        return f" without {' and '.join(self.graph_only)}" if self.graph_only else ""


def find_components(
    query: ComponentsQuery,
    devices: DevicesArgument,
    options: SolverOptions,
    resident: Callable[[Method, DevicesArgument], ComponentsResult],
) -> ComponentsResult:
    """The component of every vertex; see :func:`godwit.connected_components`.

    :param resident: finds them on devices that hold the graph
    """
    given = query.given
    if query.chosen is None:
        return _stream(given, query, devices, options)
    begin = perf_counter()
    gpus = _gpus_for(given, devices)
    names = [gpu.name for gpu in gpus]
    if query.chosen != "label-propagation" and gpus:
        if isinstance(given, PlacedGraph):
            given.check_all_duplicated("connected components by trees run")
        if not are_peers(gpus, atomics=True):  # no trees in common
            if query.graph_only:
                raise DeviceError(
                    f"not all of {', '.join(names)} change each other's memory by atomics, and so the arcs "
                    f"stream to all of them, which goes{query.without}: leave that out, or use one of them"
                )
            plain = given.graph if isinstance(given, PlacedGraph) else given
            return _stream(plain, query, names, options)
        if isinstance(given, Graph):
            devices = names
    try:
        return resident(query.chosen, devices)
    except GraphTooLargeError as error:
        if not gpus:
            raise
        if query.graph_only or isinstance(given, PlacedGraph):
            arcs = "the arcs of placed.graph" if isinstance(given, PlacedGraph) else "its arcs"
            raise GraphTooLargeError(f"{error}; {arcs} would stream{query.without}") from error
        refused = str(error)
    # Here, where nothing holds on to what the attempt has left.
    lost_s = seconds_since(begin, "place")
    try:
        result = _stream(given, query, names, options)
    except GraphTooLargeError as error:
        raise GraphTooLargeError(f"{refused}; nor do its arcs stream: {error}") from error
    result.statistics.seconds["place"] += lost_s
    return result


def _is_to_stream(graph: Graph | PlacedGraph, streaming: Mapping[str, Any]) -> bool:
    """Whether arcs of a graph are to stream, as limits say; InputError if more is said, or they cannot."""
    given = [name for name, value in streaming.items() if value is not None]
    for name in given:
        if name in ("vertex_count", "edge_dtype", "columns"):
            raise InputError(f"{name} is for edges without a graph, which has its own")
        if isinstance(graph, PlacedGraph):
            raise InputError(
                f"{name} is for edges that stream, and a placed graph is on its devices: give placed.graph"
            )
    return bool(given)


def _gpus_for(graph: Graph | PlacedGraph, devices: DevicesArgument) -> Sequence[Device]:
    """The GPUs that components of a graph have been asked of; none if it was the CPU."""
    if isinstance(graph, PlacedGraph):
        if devices is not None:
            raise InputError("the graph is placed already: give devices to place()")
        graph.check_open()
        found = graph.context.devices
    else:
        names = default_step_devices(graph, atomics=True) if devices is None else devices
        found = resolve_devices(names)
    return found if found[0].kind == "cuda" else ()


def _stream(
    given: Any, query: ComponentsQuery, devices: DevicesArgument, options: SolverOptions
) -> ComponentsResult:
    """Components of edges that stream to devices."""
    from godwit.algorithms.components.stream import StreamOptions, stream_components
    from godwit.io.edge_sources import as_edges

    asked = dict(query.streaming)
    edge_dtype, columns = asked.pop("edge_dtype"), asked.pop("columns")
    stream = StreamOptions.checked(
        method=query.method, rounds=query.rounds, jumps=query.jumps, **asked
    )
    edges = as_edges(given, edge_dtype, columns)
    try:
        return stream_components(edges, devices, stream, options)
    finally:
        edges.close()
