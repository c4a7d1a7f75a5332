"""Single-source shortest paths.

Distances only decrease, so the result is correct if relaxations happen in any order and repeatedly.
Processing small distances first makes repeated relaxations rare: delta-stepping within a device; devices
may run ahead of each other by a window of buckets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from godwit.algorithms.paths.result import PathResult, check_query
from godwit.algorithms.paths.weights import check_weights
from godwit.errors import ValueOverflowError
from godwit.graph.ids import Sources, Vertex
from godwit.placement import (
    PartitionArgument,
    PlacedGraph,
)
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import SolverOptions, WorkerOptions, query_options
from godwit.worker.program import VertexProgram
from godwit.worker.query import (
    GraphArgument,
    add_placement,
    placed_for_query,
)
from godwit.worker.solve import solve


def _along(value: Any, weight: Any) -> Any:
    return value + weight


_FARTHEST = 2**63 - 2


def _along_saturating(value: Any, weight: Any) -> Any:
    return value + weight if weight <= _FARTHEST - value else _FARTHEST


def _distance(value: Any) -> Any:
    return value


def _program(dtype: str, message: Any) -> VertexProgram:
    return VertexProgram(
        name="sssp", message=message, combine="min", dtype=dtype, priority=_distance
    )


PROGRAMS = {name: _program(name, _along) for name in ("int32", "int64", "float64")}
"""Vertex programs by dtype of the distances."""
_SATURATING = _program("int64", _along_saturating)
"""Vertex program whose sums saturate at 2^63 - 2, as 2^63 - 1 means "not reached"."""


def run_sssp(
    placed: PlacedGraph,
    source: Sources,
    *,
    target: int | None = None,
    cutoff: float | None = None,
    options: SolverOptions,
) -> PathResult:
    """Return distances from the nearest source; see :func:`godwit.sssp`."""
    graph = placed.graph
    sources, target, cutoff = check_query(graph, source, target, cutoff)
    largest = check_weights(graph)
    start = dict.fromkeys(sources.tolist(), 0)

    def run(program: VertexProgram) -> PathResult:
        solution = solve(
            program,
            placed,
            start,
            options,
            limit=cutoff,
            target=target,
            result_dtype="float64" if program.dtype.kind == "f" else "int64",
        )
        if program is _SATURATING and bool((solution.values == _FARTHEST).any()):
            raise ValueOverflowError(
                f"with weights up to {largest}, a distance reaches 2^63 - 2 or more, beyond the range of "
                "int64 distances; give the weights as float64, or a cutoff"
            )
        return PathResult(
            graph,
            sources,
            solution.values,
            solution.statistics,
            unit_lengths=graph.weights is None,
            location=options.location,
            placed=placed,
        )

    if graph.weights is not None and graph.weights.dtype.kind not in "iu":
        return run(PROGRAMS["float64"])
    # Upper bound of all computed sums, which include arcs that leave the farthest vertex.
    bound = largest * graph.vertex_count
    if cutoff is not None:
        cutoff = None if cutoff >= _FARTHEST else math.floor(cutoff)
    if cutoff is not None:
        bound = min(bound, cutoff + largest)
    # 32-bit distances need half the memory and traffic, and mostly suffice where the worst case does not
    # fit: the run stops at the first sum that overflows, and is repeated. Later runs on the graph then use
    # 64 bits at once, unless a cutoff may keep them within 32.
    fits, overflowed = bound < 2**31 - 1, graph.cached("sssp overflowed", list)
    tries = fits or cutoff is not None or not overflowed
    if tries and max(largest, 0 if cutoff is None else cutoff) < 2**31 - 1:
        try:
            return run(PROGRAMS["int32"])
        except ValueOverflowError:
            if fits:
                raise
            overflowed.append(True)
    return run(PROGRAMS["int64"] if bound < 2**63 - 1 else _SATURATING)


def sssp(
    graph: GraphArgument,
    source: Sources,
    *,
    devices: DevicesArgument = None,
    partition: PartitionArgument = None,
    target: Vertex | None = None,
    cutoff: float | None = None,
    execution: str = "auto",
    results: str = "host",
    timeout_s: float | None = None,
    progress: Callable[[int], None] | None = None,
    trace: TraceArgument = None,
    worker: WorkerOptions | None = None,
    gpu: GpuOptions | None = None,
) -> PathResult:
    """Return lengths of shortest paths from a source, or from the nearest of several.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 0, 1], [1, 2, 2], [4, 9, 3])
    >>> gw.sssp(graph, 0).distance.tolist()
    [0, 4, 7]

    Weights must not be negative; a graph without weights counts arcs. Parameters as for :func:`bfs`.

    :returns: ``.distance`` (int64 for integer weights, exact; float64 for others; the largest int64,
        or infinity, where not reached), ``.predecessor``, ``.to_dict()``, ``.statistics``
    :raises InputError: a vertex out of range, a negative or NaN weight, or another wrong argument
    :raises ValueOverflowError: with integer weights, a distance within the cutoff reaches 2^63 - 2
    :raises RunTimeoutError: the query took longer than ``timeout_s``
    """
    options = query_options(
        execution=execution,
        worker=worker,
        gpu=gpu,
        timeout_s=timeout_s,
        progress=progress,
        results=results,
    )
    with recorded(trace, "sssp"), placed_for_query(graph, devices, partition) as placed:
        result = run_sssp(placed, source, target=target, cutoff=cutoff, options=options)
        add_placement(result.statistics, placed, graph)
        return result
