"""What betweenness asks of its GPU code, and what that returns.

Vertices, arcs and sums are in the graph's own order; the ``cuda`` module turns vertices into positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import Array


@dataclass(frozen=True)
class DependencyQuery:
    """A query that has been checked, of a graph that has vertices.

    :param sources: int64 (k), at least one, each a vertex
    :param endpoints: a path counts for its two ends, too
    :param edges: the arcs' sums as well
    :param gpu: how kernels are run
    """

    sources: Array
    endpoints: bool
    edges: bool
    gpu: GpuOptions


@dataclass
class DependencyOutcome:
    """The sums over all sources.

    :param vertices: float64 (n): the dependency on each vertex; None if numbers of paths were too large for
        float64, and nothing else here is of use
    :param arcs: float64 (m) likewise, or None
    :param visited: (devices) vertices reached, over all searches
    :param examined: (devices) arcs from these (also where a search looks at those to them), as on the CPU;
        what devices did together is the first's
    :param supersteps: (devices)
    :param block_searches: how many searches a device had under way at a time, each by a block; 0: all its
        blocks had one together, perhaps with other devices
    :param seconds: by phase: ``rows``, ``compile``, ``kernel``, ``gather``
    """

    vertices: Array | None
    arcs: Array | None
    visited: Array
    examined: Array
    supersteps: Array
    block_searches: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
