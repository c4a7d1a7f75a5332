"""What every query does: check options, place the graph unless it is placed, and count the time of that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph
from godwit.placement import (
    PartitionArgument,
    PlacedGraph,
    default_step_devices,
    place_for_one_query,
)
from godwit.runtime.protocol import Device
from godwit.runtime.registry import DevicesArgument, resolve_devices
from godwit.runtime.statistics import RunStatistics

GraphArgument = Graph | PlacedGraph


@contextmanager
def placed_for_query(
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
def on_gpus_or_cores(
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
        found = _gpus_or_cores(names)
        if found[0].kind == "cuda":
            with place_for_one_query(graph, [device.name for device in found], None) as placed:
                yield graph, found[0], placed
            return
    yield (*on_cores(graph, devices, what), None)


def on_cores(graph: GraphArgument, devices: DevicesArgument, what: str) -> tuple[Graph, Device]:
    """The graph itself and the device of the CPU that is meant, for what runs on one of these."""
    if isinstance(graph, PlacedGraph):
        if devices is not None:
            raise InputError("the graph is placed already: give devices to place()")
        graph.check_open()
        found, graph = graph.context.devices, graph.graph
        # Parts of the graph are of no use here: the graph itself is read.
        if found[0].kind != "cpu" or len(found) > 1:
            found = resolve_devices("cpu")
    else:
        found = _gpus_or_cores(devices)
    if not isinstance(graph, Graph):
        raise not_a_graph(graph)
    if len(found) > 1:
        names = ", ".join(device.name for device in found)
        takers = "BFS, SSSP, step programs, vertex programs and pagerank(execution='asynchronous')"
        if what == "connected_components":
            takers = "method='label-propagation' and connected_components_of_edges"
        raise InputError(
            f"{what} runs on one device of the CPU, or on GPUs, so far; got {names}; devices='cpu' is all "
            f"cores as one. {takers} take several of the CPU"
        )
    return graph, found[0]


def _gpus_or_cores(devices: DevicesArgument) -> tuple[Device, ...]:
    """The devices of an argument; all cores for None, and for a number where there is no GPU."""
    found = resolve_devices("cpu" if devices is None else devices)
    is_number = devices is not None and not isinstance(devices, Iterable)
    if is_number and found[0].kind == "cpu":
        return resolve_devices("cpu")
    return found


def add_placement(statistics: RunStatistics, placed: PlacedGraph, graph: GraphArgument) -> None:
    """Count the time of the placement to the query that made it, and to no other."""
    if placed is not graph:
        statistics.seconds = {**placed.seconds, **statistics.seconds}
