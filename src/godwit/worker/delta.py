"""How coarse an order of work is good: delta, from weights and degrees."""

from __future__ import annotations

import math

import numpy as np

from godwit.graph.csr import Graph
from godwit.worker.program import VertexProgram

_FACTOR = 6.0
_GPU_FACTOR = 184.0
_GPU_UNIT_FACTOR = 4.0
_GPU_HOPS = 2.0
_GPU_UNIT_HOPS = 1.05
_LEAST_HOPS = 16
_MOST_HOPS = 1 << 20
_SAMPLED_ARCS = 1 << 16


def choose_delta(program: VertexProgram, graph: Graph) -> float:
    """Width of a priority bucket: so that a bucket's work is wide, and little of it is useless.

    Typical weight times a constant over mean degree, after Davidson et al., "Work-efficient parallel GPU
    methods for single-source shortest paths" (IPDPS 2014); the constant is ours, measured (see
    docs/performance.md). It assumes that priorities grow by about a weight along an arc.
    """
    if program.priority is None or graph.arc_count == 0:
        return 1.0
    delta = _FACTOR * _typical_length(program, graph) / _mean_degree(graph)
    if not (math.isfinite(delta) and delta > 0):
        return 1.0
    if program.dtype.kind in "iu":
        return max(1.0, delta)
    return delta


def choose_gpu_window(
    program: VertexProgram, graph: Graph, delta: float | None, hops: int | None
) -> tuple[float, int]:
    """By how much GPUs raise the bound at a meeting, and how many arcs far blocks run ahead meanwhile.

    On long, thin graphs far, since meetings are what costs there; on wide ones hardly, since there every
    round keeps all busy and order saves work. Hence typical weight over the square of mean degree; where
    every arc counts the same, order suffers less. A block that comes late, because what it works on came
    from another device, has up to two windows to catch up on; all would wait for it, so it stops after
    about one, a path of light arcs having more of them. The constants are measured (docs/performance.md).

    :param delta: as the user wants it, or None
    :param hops: likewise
    """
    if program.priority is None or graph.arc_count == 0:
        return delta or 0.0, _LEAST_HOPS if hops is None else hops
    length = _typical_length(program, graph)
    unit = not _is_weighted(program, graph)
    if delta is None:
        delta = _GPU_FACTOR * length / _mean_degree(graph) ** 2
        delta *= _GPU_UNIT_FACTOR if unit else 1.0
        delta = delta if math.isfinite(delta) else 0.0
    if hops is None:
        arcs = delta / length * (_GPU_UNIT_HOPS if unit else _GPU_HOPS)
        hops = min(max(_LEAST_HOPS, math.ceil(min(arcs, _MOST_HOPS))), _MOST_HOPS)
    return delta, hops


def _is_weighted(program: VertexProgram, graph: Graph) -> bool:
    return graph.weights is not None and program.operators.uses_weight


def _mean_degree(graph: Graph) -> float:
    """Of the vertices that have arcs."""
    busy = graph.cached("active_sources", lambda: _vertices_with_arcs(graph))
    return graph.arc_count / max(1, int(busy))


def _typical_length(program: VertexProgram, graph: Graph) -> float:
    """By how much priorities grow along an arc."""
    if not _is_weighted(program, graph):
        return 1.0
    return float(graph.cached("typical_weight", lambda: _typical_weight(graph)))


def _typical_weight(graph: Graph) -> float:
    """The median of some arcs' weights, spread over the graph; their mean where most are zero."""
    assert graph.weights is not None
    sample = graph.weights[:: max(1, len(graph.weights) // _SAMPLED_ARCS)].astype(np.float64)
    finite = np.abs(sample[np.isfinite(sample)])
    if len(finite) == 0:
        return 1.0
    largest = finite.max() or 1.0
    finite /= largest  # sums of large weights would overflow
    return float((np.median(finite) or finite.mean()) * largest) or 1.0


def _vertices_with_arcs(graph: Graph) -> int:
    sample = graph.offsets
    return int(np.count_nonzero(sample[1:] != sample[:-1]))
