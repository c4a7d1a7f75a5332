"""Settings of the backend, and how Godwit's refusals become NetworkX's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import networkx as nx

from godwit.errors import GraphTooLargeError, InputError, ValueOverflowError
from godwit.networkx.graph import ArrayGraph

RELEASE = tuple(map(int, nx.__version__.split(".")[:2]))
"""Release of NetworkX: what its functions return differs between some."""


def existing(graph: ArrayGraph, node: Any, message: str) -> int:
    """Return the position of a node; NodeNotFound with the message if there is no such node."""
    try:
        return graph.position(node)
    except (KeyError, TypeError):
        raise nx.NodeNotFound(message) from None


def devices_for(devices: Any) -> Any:
    """Return the devices of a call: its own, else those of ``nx.config.backends.godwit``."""
    if devices is not None or "godwit" not in nx.config.backends:
        return devices
    return nx.config.backends.godwit.devices


@contextmanager
def refusals() -> Iterator[None]:
    """Raise NotImplementedError, after which NetworkX runs itself, for what Godwit does not take.

    That is a weight, or a graph, that is outside of what Godwit's function is defined for.
    """
    try:
        yield
    except (InputError, GraphTooLargeError, ValueOverflowError) as error:
        raise NotImplementedError(str(error)) from error
