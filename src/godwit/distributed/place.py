"""Graphs placed on processes: of a graph in memory, a generator, or a file."""

from __future__ import annotations

import os
from time import perf_counter
from typing import get_args

import numpy as np

from godwit.distributed.gpu_graph import GpuGraph, place_on_gpus
from godwit.distributed.graph import DistributedGraph, balanced_bounds
from godwit.distributed.halo import halo_of_rows
from godwit.distributed.processes import Processes, Transport
from godwit.dtypes import Array, as_flag
from godwit.errors import InputError, shown
from godwit.graph.build import row_sources
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph
from godwit.graph.generators.spec import is_spec
from godwit.graph.ids import MAXIMAL_ID_BASE, VertexIds
from godwit.graph.rows import Rows, require_memory
from godwit.graph.transform import has_sorted_rows
from godwit.trace import seconds_since


def place(
    processes: Processes,
    source: Graph | str | os.PathLike[str],
    *,
    directed: bool | None = None,
    weighted: bool | None = None,
    devices: str | None = None,
    transport: Transport | None = None,
) -> DistributedGraph | GpuGraph:
    """Place a graph; see :meth:`Processes.place`."""
    directed, weighted = (
        None if value is None else as_flag(value, name)
        for name, value in (("directed", directed), ("weighted", weighted))
    )
    named: object = type(source).__name__
    if isinstance(source, str | os.PathLike):
        named = os.fspath(source)
    elif isinstance(source, Graph):
        named = source.vertex_count, source.arc_count, source.directed
    if transport is not None and transport not in get_args(Transport):
        raise InputError(
            f"transport must be 'direct', 'nvshmem', 'host' or None, got {shown(transport)}"
        )
    if transport is not None and devices is None:
        raise InputError("transport is for GPUs: give devices='cuda', too")
    with processes.running("place", named, directed, weighted, devices is not None, transport):
        if devices is not None:
            return place_on_gpus(processes, source, devices, directed, weighted, transport)
        begin = perf_counter()
        if isinstance(source, Graph):
            if directed is not None or weighted is not None:
                raise InputError("directed and weighted are for files; the graph has its own")
            placed = place_graph(processes, source)
            phase = "place"
        elif not isinstance(source, str | os.PathLike):
            raise not_a_graph(source)
        elif isinstance(source, str) and is_spec(source):
            from godwit.distributed.generating import place_generated

            if directed is not None or weighted is not None:
                raise InputError(
                    f"directed and weighted are for files; {source} is a generated graph"
                )
            placed = place_generated(processes, source)
            phase = "generate"
        else:
            from godwit.distributed.reading import place_file

            placed = place_file(processes, source, directed, weighted)
            phase = "read"
        placed.seconds[phase] = seconds_since(begin, phase)
    return placed


def place_graph(processes: Processes, graph: Graph) -> DistributedGraph:
    """Place a graph that every process has, of which each keeps its part."""
    return place_rows(processes, graph.rows, graph.ids, directed=graph.directed)


def place_rows(
    processes: Processes, rows: Rows, ids: VertexIds, *, directed: bool
) -> DistributedGraph:
    """Place the graph of rows that every process can read, of which each copies its part.

    :raises InputError: the rows of the part are wrong
    """
    bounds = bounds_of_rows(rows.offsets, processes.count)
    first, end = int(bounds[processes.rank]), int(bounds[processes.rank + 1])
    part = part_of_rows(rows, first, end)
    own = halo_of_rows(processes, bounds, part)
    return DistributedGraph(
        processes,
        bounds,
        own,
        ids.take(np.arange(first, end)),
        directed=directed,
        is_range=ids.is_range,
    )


def bounds_of_rows(offsets: Array, parts: int) -> Array:
    """Return the bounds of ranges of vertices with about equal arcs and vertices."""
    n = len(offsets) - 1
    low, high = np.zeros(parts - 1, np.int64), np.full(parts - 1, n, np.int64)
    wanted = (int(offsets[-1]) + n) * np.arange(1, parts) / parts
    while (low < high).any():  # few pages of a mapped file are read
        middle = (low + high) // 2
        above = offsets[middle] + middle < wanted
        low, high = np.where(above, middle + 1, low), np.where(above, high, middle)
    return balanced_bounds(np.concatenate([[0], low]), np.ones(parts, np.int64), n, parts)


def part_of_rows(rows: Rows, first: int, end: int) -> Rows:
    """Return copies of the rows from ``first`` to ``end``, each sorted by target.

    :raises InputError: offsets or targets are wrong
    """
    begins = rows.offsets[first : end + 1]
    n, m = rows.vertex_count, rows.arc_count
    if begins[0] < 0 or begins[-1] > m or (np.diff(begins) < 0).any():
        raise InputError(f"the offsets of vertices {first} to {end} do not ascend from 0 to {m}")
    begin, stop = int(begins[0]), int(begins[-1])
    require_memory(
        2 * (stop - begin) * rows.arc_bytes, f"the rows of vertices {first:,} to {end:,}"
    )
    weights = None if rows.weights is None else rows.weights[begin:stop].copy()
    part = Rows(begins - begin, rows.targets[begin:stop].copy(), weights)
    if len(part.targets) and not (part.targets.min() >= 0 and part.targets.max() < n):
        raise InputError(f"a target in the rows of vertices {first} to {end} is not in [0, {n})")
    if has_sorted_rows(part):
        return part
    order = np.lexsort((part.targets, row_sources(part.offsets, np.dtype(np.int64))))
    return Rows(part.offsets, part.targets[order], None if weights is None else weights[order])


def own_ids(processes: Processes, bounds: Array, first_id: int = 0) -> VertexIds:
    """Return ids of the own vertices, which are consecutive integers in the whole graph."""
    first, end = int(bounds[processes.rank]) + first_id, int(bounds[processes.rank + 1]) + first_id
    if first <= MAXIMAL_ID_BASE:
        return VertexIds(end - first, first)
    return VertexIds.trusted("integer", np.arange(first, end))
