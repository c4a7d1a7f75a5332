"""The choice of delta, the width of a priority bucket, from weights and degrees."""

from __future__ import annotations

import math

import numpy as np

from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.graph.depth import likely_levels
from godwit.graph.rows import Rows
from godwit.worker.program import VertexProgram

_FACTOR = 6.0
_GPU_FACTOR = 18.5
_MESH_FACTOR = 2.0
_MESH_LEVELS = 64  # of a search of roads, grids or triangulations, at least
_GPU_UNIT_FACTOR = 736.0
_LIGHT_ARCS = 3  # of a vertex, on average: shortest paths mostly take these
_MOST_LIGHT = 0.9  # of all arcs: the others may have weights of any size
_GPU_HOPS = 2.0
_GPU_UNIT_HOPS = 1.05
LEAST_HOPS = 16
MOST_HOPS = 1 << 20
_SAMPLED_ARCS = 1 << 16


def choose_delta(program: VertexProgram, graph: Graph) -> float:
    """Return a width of priority buckets that have enough parallel work, little of it useless.

    It is the typical weight times a constant over the mean degree, after Davidson et al., "Work-efficient
    parallel GPU methods for single-source shortest paths" (IPDPS 2014), with a constant measured here
    (benchmarks/RESULTS.md). It assumes that priorities grow by about a weight along an arc.
    """
    if program.priority is None or graph.arc_count == 0:
        return 1.0
    length, degree = _typical_length(program, graph), _mean_degree(graph)
    return delta_for(length, degree, integers=program.dtype.kind in "iu")


def delta_for(length: float, degree: float, *, integers: bool) -> float:
    """Return a width of priority buckets.

    :param length: by how much priorities typically grow along an arc
    :param degree: mean degree of the vertices that have arcs
    :param integers: True if priorities are integers
    """
    delta = _FACTOR * length / degree if degree else 1.0
    if not (math.isfinite(delta) and delta > 0):
        return 1.0
    return max(1.0, delta) if integers else delta


def choose_gpu_window(
    program: VertexProgram, graph: Graph, delta: float | None, hops: int | None, devices: int = 1
) -> tuple[float, int]:
    """Return by how much GPUs first raise the bound at a meeting, and how many arcs blocks then run ahead.

    On long, thin graphs they run far ahead, since meetings dominate the time there; on wide ones hardly,
    since every round has enough work and order saves some. Hence delta falls with mean degree. It grows
    with the weight of light arcs, a few for each vertex: where there are more, shortest paths take these,
    whatever the others weigh; on roads, where vertices have no more, they take heavy ones, too. A block
    that is late, because its work came from another device, has up to two windows to process while all
    others wait, so it stops after about one: this is the number of hops, larger for weighted arcs, as a
    path may be of light ones. By weights the window is twice as wide on meshes, whose frontiers grow
    slowly; and each of several devices has its share of the work in a window, so there it is at least as
    many times as wide. The constants are measured (benchmarks/RESULTS.md).

    :param delta: as the user chose, or None
    :param hops: as the user chose, or None
    :param devices: number of GPUs
    """
    if program.priority is None or graph.arc_count == 0:
        return delta or 0.0, LEAST_HOPS if hops is None else hops
    length = _typical_length(program, graph)
    unit = not _is_weighted(program, graph)
    if delta is None:
        degree = _mean_degree(graph)
        if unit:
            delta = _GPU_UNIT_FACTOR / degree**2
        else:
            factor = _GPU_FACTOR * max(devices, _MESH_FACTOR if _is_mesh(graph) else 1)
            delta = factor * _light_weight(graph, degree) / math.sqrt(degree)
        delta = delta if math.isfinite(delta) else 0.0
    if hops is None:
        arcs = delta / length * (_GPU_UNIT_HOPS if unit else _GPU_HOPS)
        hops = min(max(LEAST_HOPS, math.ceil(min(arcs, MOST_HOPS))), MOST_HOPS)
    return delta, hops


def _is_mesh(graph: Graph) -> bool:
    """Return True if searches of a graph have many levels; False for one whose rows are on a GPU."""
    return isinstance(graph.stored, Rows) and likely_levels(graph) > _MESH_LEVELS


def _is_weighted(program: VertexProgram, graph: Graph) -> bool:
    return graph.weights is not None and program.operators.uses_weight


def _mean_degree(graph: Graph) -> float:
    """Return the mean degree of the vertices that have arcs."""
    sources = graph.cached(
        "active_sources", lambda: np.count_nonzero(graph.offsets[1:] != graph.offsets[:-1])
    )
    return graph.arc_count / max(1, int(sources))


def _typical_length(program: VertexProgram, graph: Graph) -> float:
    """Return by how much priorities typically grow along an arc."""
    if not _is_weighted(program, graph):
        return 1.0
    assert graph.weights is not None
    weights = graph.weights
    return float(graph.cached("typical_weight", lambda: typical_weight(weights)))


def _light_weight(graph: Graph, degree: float) -> float:
    """Return a mean weight of the lightest arcs, :data:`_LIGHT_ARCS` for each vertex on average.

    It is the geometric mean of two means: the arithmetic one, which a few heavy arcs raise far above what
    paths of light ones take, and the geometric one, which says nothing of how heavy the heaviest are.
    """

    def mean() -> float:
        assert graph.weights is not None
        sample = np.sort(_sampled(graph.weights))
        part = min(_MOST_LIGHT, _LIGHT_ARCS / degree)
        light = sample[: max(1, int(part * len(sample)))]
        if len(light) == 0:
            return 1.0
        return math.sqrt(float(light.mean()) * math.exp(float(np.log(light).mean())))

    return float(graph.cached("light_weight", mean))


def typical_weight(weights: Array) -> float:
    """Return the geometric mean of a sample of the weights that are not zero.

    Between two values that differ much it lies in the middle of their logarithms, where neither a median
    nor a mean does.
    """
    positive = _sampled(weights)
    if len(positive) == 0:
        return 1.0
    return float(np.exp(np.mean(np.log(positive))))


def _sampled(weights: Array) -> Array:
    """Return the absolute values of a sample of the weights that are finite and not zero."""
    sample = weights[:: max(1, len(weights) // _SAMPLED_ARCS)].astype(np.float64)
    positive: Array = np.abs(sample[np.isfinite(sample) & (sample != 0)])
    return positive
