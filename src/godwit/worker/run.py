"""The function :func:`godwit.run`: a vertex program on a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from godwit.arrays import host_array
from godwit.dtypes import Array
from godwit.errors import InputError, shown
from godwit.graph.ids import Vertex
from godwit.placement import PartitionArgument
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import WorkerOptions, query_options
from godwit.worker.program import VertexProgram
from godwit.worker.query import (
    GraphArgument,
    add_placement,
    placed_for_query,
)
from godwit.worker.solve import Solution, Start, solve


def run(
    program: VertexProgram,
    graph: GraphArgument,
    start: Start = "all",
    *,
    devices: DevicesArgument = None,
    partition: PartitionArgument = None,
    parameters: Mapping[str, float] | None = None,
    limit: Any = None,
    target: Vertex | None = None,
    execution: str = "auto",
    results: str = "host",
    timeout_s: float | None = None,
    progress: Callable[[int], None] | None = None,
    trace: TraceArgument = None,
    worker: WorkerOptions | None = None,
    gpu: GpuOptions | None = None,
) -> Solution:
    """Run a vertex program to its end.

    :param start: initial work: ``"all"`` vertices with their initial values, or with those of an array
        of shape (n); or a mapping ``{vertex: value}`` of some vertices, by id, to values combined into
        their initial ones, as a pandas Series is, too
    :param parameters: values for the program's parameters
    :param limit: messages worse than it are dropped (min and max programs)
    :param target: a vertex, by id, whose value becomes the limit
    :param execution: ``"asynchronous"`` (also ``"auto"``) or ``"bulk-synchronous"``: in supersteps, each
        of which processes once what is due, before all devices meet
    :param results: as for :func:`bfs`
    :param trace: likewise
    :returns: ``.values`` and ``.fields`` (shape (n) each, or None), ``.to_dict()``, ``.statistics``
    :raises InputError: a wrong argument
    :raises OperatorError: an operator does not compile
    :raises ValueOverflowError: a value does not fit the program's 32-bit integers
    :raises RunTimeoutError: out of time
    """
    if not isinstance(program, VertexProgram):
        raise InputError(
            f"expected a VertexProgram, got a {type(program).__name__}"
            + ("; call program.run(graph)" if callable(getattr(program, "run", None)) else "")
        )
    options = query_options(
        execution=execution,
        worker=worker,
        gpu=gpu,
        timeout_s=timeout_s,
        progress=progress,
        results=results,
    )
    with recorded(trace, program.name), placed_for_query(graph, devices, partition) as placed:
        ids = placed.graph.ids
        start = ids.by_position(start, "start", complete_is_array=False)
        if not isinstance(start, Mapping) and not (isinstance(start, str) and start == "all"):
            start = _start_values(start, placed.graph.vertex_count)
        if program.combine == "add" and (limit is not None or target is not None):
            raise InputError("limit and target are for programs that combine by min or max")
        if target is not None:
            target = ids.position(target, "target")
        solution = solve(
            program, placed, start, options, limit=limit, target=target, parameters=parameters
        )
        add_placement(solution.statistics, placed, graph)
        solution.values = options.location.place(solution.values)
        if solution.fields is not None:
            solution.fields = options.location.place(solution.fields)
        return solution


def _start_values(start: Any, count: int) -> Array:
    """An array of initial values; InputError if it is none of shape (n)."""
    try:
        values = host_array(start)
    except (TypeError, ValueError):  # lists of several lengths
        values = np.empty((), object)
    if values.ndim == 0 or values.dtype.kind not in "iufb":
        raise InputError(
            "start must be 'all', a mapping {vertex: value}, or an array with a value for each of "
            f"the {count} vertices, got {shown(start)}"
        )
    if values.shape != (count,):
        raise InputError(
            f"an array of initial values must have shape ({count},), got {values.shape}; "
            "write {vertex: value} to start from some vertices"
        )
    return values
