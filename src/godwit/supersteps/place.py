"""The placement of graphs: :func:`godwit.place`."""

from __future__ import annotations

from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.partition.layout import Duplication
from godwit.placement import (
    PartitionArgument,
    PlacedGraph,
    devices_to_keep,
    names_devices,
    place_for_one_query,
)
from godwit.public import public
from godwit.runtime.registry import DevicesArgument
from godwit.supersteps import compile_row_makers
from godwit.worker.options import SolverOptions
from godwit.worker.query import place_parts, searched_on_gpus


@public
def place(
    graph: Graph,
    devices: DevicesArgument = None,
    partition: PartitionArgument = None,
    *,
    seed: int = 0,
    duplication: Duplication | None = None,
) -> PlacedGraph:
    """Divide a graph into a part for each device, and upload the parts.

    :param devices: a number of GPUs (of virtual CPU devices where there is none), a name (``"cuda"``,
        ``"cuda:0"``, ``"cpu"``) or names; None for all GPUs if the graph has 2**28 arcs and 8 a
        vertex, or does not fit one, else the first GPU, or all cores
    :param partition: ``"contiguous"``, ``"random"``, ``"biased-random"``, ``"metis"``, an array of shape
        (n) with the index of each vertex's device, a function ``(graph, parts)`` that returns one, or a
        Partition; None for the default
    :param seed: of random partitioners
    :param duplication: the remote vertices whose values each device stores: ``"1-hop"``: those that its
        arcs reach, ``"all"``: every one; None: ``"1-hop"`` for asynchronous runs, ``"all"`` for supersteps
        on GPUs. Of the latter, only PageRank takes ``"1-hop"``, which saves memory, and does so by itself
        for GPUs without peer access; others raise InputError then
    :raises InputError: a wrong partition
    :raises DeviceError: a device does not exist
    :raises GraphTooLargeError: the parts do not fit in memory
    """
    is_text = isinstance(duplication, str)
    if duplication is not None and not (is_text and duplication in ("1-hop", "all")):
        raise InputError(f"duplication must be '1-hop' or 'all', got {shown(duplication)}")
    is_choice = names_devices(devices)
    if devices is None and isinstance(graph, Graph):
        devices = devices_to_keep(graph)
    placed = place_for_one_query(graph, devices, partition, seed=seed, duplication=duplication)
    placed.is_kept, placed.names_devices = True, is_choice
    try:
        compile_row_makers(placed)
        place_parts(searched_on_gpus(placed, SolverOptions()))
    except BaseException:
        placed.close()
        raise
    return placed
