"""What PageRank asks of its GPU code, and what that returns.

The arrays are of all vertices in their own order; the ``cuda`` module turns vertices into positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import Array


@dataclass(frozen=True)
class RankQuery:
    """A query that has been checked, of a graph that has vertices.

    :param dtype: of the ranks, float32 or float64
    :param weighted: ranks are divided in proportion to weights, which are finite and not negative
    :param teleport: (n) float64 of sum 1: where walks begin anew; None: everywhere alike
    :param start: (n) float64 of sum 1: ranks to begin with; None: all alike
    :param damping: in [0, 1)
    :param tolerance: enough when an iteration changes ranks by less, in sum
    :param max_iterations: of them, at least 1
    :param accelerated: the graph is undirected, and iterations may go beyond plain ones
    :param destination: (n) where ranks go: an array of NumPy, or of CuPy on any GPU
    :param gpu: how kernels are run
    :param one_hop: devices have room for their own vertices and those that they read; else for all. None:
        what is faster
    """

    dtype: np.dtype[Any]
    weighted: bool
    teleport: Array | None
    start: Array | None
    damping: float
    tolerance: float
    max_iterations: int
    accelerated: bool
    destination: Any
    gpu: GpuOptions
    one_hop: bool | None = None


@dataclass
class RankOutcome:
    """How a query went; the ranks are in its destination.

    :param iterations: of them
    :param residual: the L1 norm of the last change; accelerated, of what one more plain iteration changes
    :param owned: (devices) vertices of each device
    :param arcs: (devices) in-arcs of these
    :param seconds: by phase: ``rows``, ``compile``, ``kernel``, ``gather``
    """

    iterations: int
    residual: float
    owned: Array
    arcs: Array
    seconds: dict[str, float] = field(default_factory=dict)
