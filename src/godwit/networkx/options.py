"""Settings of the backend, and how Godwit's refusals become NetworkX's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import networkx as nx

import godwit as gw
from godwit.errors import GraphTooLargeError, InputError, ValueOverflowError
from godwit.graph.csr import Graph
from godwit.networkx.graph import ArrayGraph
from godwit.placement import devices_to_keep
from godwit.runtime.registry import DevicesArgument, gpu_names, resolve_devices
from godwit.worker.query import GraphArgument

RELEASE = tuple(map(int, nx.__version__.split(".")[:2]))
"""Release of NetworkX: what its functions return differs between some."""


def existing(graph: ArrayGraph, node: Any, message: str) -> int:
    """Return the position of a node; NodeNotFound with the message if there is no such node."""
    try:
        return graph.position(node)
    except (KeyError, TypeError):
        raise nx.NodeNotFound(message) from None


_MOST_PLACED = 4
"""Placements that are kept with a graph: with different weights, or in two directions."""


def named_devices(devices: DevicesArgument) -> DevicesArgument:
    """Return the devices of a call, or else of the configuration; None if neither names any."""
    if devices is None and "godwit" in nx.config.backends:
        return nx.config.backends.godwit.devices  # type: ignore[no-any-return]
    return devices


FEW_ARCS = 1 << 17
"""One thread searches fewer arcs about as fast as several, or GPUs, which take time to begin."""


def suits_one_thread(rows: Graph, devices: DevicesArgument) -> bool:
    """Return True if a search of a graph is best made by one thread, and no GPU is asked for."""
    if rows.arc_count >= FEW_ARCS:
        return False
    devices = named_devices(devices)
    return devices is None or all(device.kind == "cpu" for device in resolve_devices(devices))


def on_devices(
    graph: ArrayGraph, rows: Graph, devices: DevicesArgument, *, chooses: bool = False
) -> GraphArgument:
    """Return a graph on the devices of a call, or of the configuration; its placement is kept.

    Without any, it goes to GPUs where there are some, unless it is small.

    :param graph: keeps the placement
    :param rows: what is placed: arcs of the graph, with some weights
    :param chooses: without any, it is not placed: the function chooses between GPUs and the CPU
    """
    devices = named_devices(devices)
    if devices is None:
        if chooses or not gpu_names():
            return rows
        devices = devices_to_keep(rows) if rows.arc_count >= FEW_ARCS else "cpu"
    key = (id(rows), tuple(device.name for device in resolve_devices(devices)))
    placements = graph.placements
    placed = placements.get(key)
    if placed is None:
        placed = placements[key] = gw.place(rows, devices)
        for oldest in list(placements)[:-_MOST_PLACED]:
            placements.pop(oldest, None)  # freed when no call uses it
    return placed


@contextmanager
def refusals() -> Iterator[None]:
    """Raise NotImplementedError, after which NetworkX runs itself, for what Godwit does not take.

    That is a weight, or a graph, that is outside of what Godwit's function is defined for.
    """
    try:
        yield
    except (InputError, GraphTooLargeError, ValueOverflowError) as error:
        raise NotImplementedError(str(error)) from error
