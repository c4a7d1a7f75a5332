"""Graphs placed on devices, with the rows that the asynchronous engine reads."""

from __future__ import annotations

from typing import Any

from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.partition.layout import Duplication
from godwit.placement import PartitionArgument, PlacedGraph, place_for_one_query
from godwit.runtime.protocol import Placement
from godwit.runtime.registry import DevicesArgument


def place(
    graph: Graph,
    devices: DevicesArgument = None,
    partition: PartitionArgument = None,  # the keyword that users write
    *,
    seed: int = 0,
    duplication: Duplication | None = None,
) -> PlacedGraph:
    """Divide a graph over devices and lay its parts out there.

    :param graph: the graph
    :param devices: None for what is best, a number of GPUs (of virtual CPU devices where there is none), a
        name (``"cuda"``, ``"cuda:0"``, ``"cpu"``) or names
    :param partition: ``"contiguous"``, ``"random"``, ``"biased-random"``, ``"metis"``, an array of
        shape (n) that gives each vertex its device's index, a function ``(graph, parts)`` that
        returns one, or a Partition; None for the default
    :param seed: of the partitioners that draw
    :param duplication: which remote vertices each device has a place for: ``"1-hop"`` those that its
        arcs reach, ``"all"`` every one; None: what suits the primitive, ``"1-hop"`` where it runs
        asynchronously, ``"all"`` in supersteps on GPUs. Of these, PageRank alone takes ``"1-hop"``, which
        spares memory, and does by itself where GPUs are no peers; the others are refused then
    :raises InputError: a wrong partition
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: the parts do not fit in memory
    """
    is_text = isinstance(duplication, str)
    if duplication is not None and not (is_text and duplication in ("1-hop", "all")):
        raise InputError(f"duplication must be '1-hop' or 'all', got {shown(duplication)}")
    placed = place_for_one_query(graph, devices, partition, seed=seed, duplication=duplication)
    try:
        place_parts(placed)
    except BaseException:
        placed.close()
        raise
    return placed


def place_parts(placed: PlacedGraph) -> Any:
    """The parts of a graph in the memory of its GPUs; None for CPUs, which read the host's.

    :raises GraphTooLargeError: they do not fit; before anything is allocated
    """
    _ = placed.layout
    if placed.context.devices[0].kind == "cpu":
        return None
    return placed.resource(_on_gpus, "upload")


def _on_gpus(placed: PlacedGraph) -> Placement:
    from godwit.worker.cuda.placement import GpuPlacement

    return GpuPlacement(placed.context.devices, placed.layout.parts)
