"""What a direction-optimizing search asks of its GPU code, and what that returns.

The arrays are of all vertices in their own order; the ``cuda`` module turns vertices into positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import Array


@dataclass(frozen=True)
class SearchQuery:
    """A query that has been checked, of a graph that has vertices.

    :param sources: (s) vertices, ascending, each once
    :param target: a vertex: nothing is searched for beyond its depth
    :param cutoff: nor beyond this
    :param may_give_up: the caller can do something else for a graph with many levels
    :param destination: (n) int32 where depths go: an array of NumPy, or of CuPy on any GPU
    :param gpu: how kernels are run
    """

    sources: Array
    target: int | None
    cutoff: int | None
    may_give_up: bool
    destination: Any
    gpu: GpuOptions


@dataclass(frozen=True)
class SearchOutcome:
    """How a query went.

    :param is_complete: whether depths are in the destination; else the search gave up
    :param visited: (devices) vertices that were reached, by owner
    :param looked: (devices) arcs that were looked at
    :param levels: of the search, the sources' own included
    :param supersteps: (devices)
    :param growths: how often queues were enlarged
    :param frontier_bytes: of all queues at the end
    :param seconds: by phase: ``rows``, ``compile``, ``kernel``, ``gather``
    """

    is_complete: bool
    visited: Array
    looked: Array
    levels: int
    supersteps: Array
    growths: int
    frontier_bytes: int
    seconds: dict[str, float]
