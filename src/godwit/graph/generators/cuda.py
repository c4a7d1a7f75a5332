"""Graphs generated on a GPU: the same as godwit.graph.generators makes of the same arguments.

Random decisions are hashes of (seed, edge, step), so they do not depend on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from godwit.dtypes import id_dtype_for
from godwit.graph.csr import Graph
from godwit.graph.cuda.builder import TILE, GraphBuilder, c_id, kernel_source
from godwit.graph.cuda.rows import ArcsOnGpu, RandomWeights, build_rows
from godwit.graph.generators.common import WeightRange
from godwit.graph.generators.grids import Percolation
from godwit.graph.generators.random import RmatDrawing
from godwit.graph.hashing import seed_word
from godwit.graph.rows import estimate_bytes, require_memory
from godwit.runtime.cuda.memory import Buffer
from godwit.runtime.cuda.structs import struct_type
from godwit.runtime.cuda.transfer.copies import download

RmatEdges = struct_type("graph/generators/generate.cuh", "RmatEdges")
PercolatedGrid = struct_type("graph/generators/generate.cuh", "PercolatedGrid")


def rmat(
    scale: int,
    edge_factor: int = 16,
    *,
    parameters: str | tuple[float, float, float] = "graph500",
    symmetrize: bool = True,
    simple: bool = True,
    seed: int = 0,
    weights: WeightRange | None = None,
    index: int = 0,
    seconds: dict[str, float] | None = None,
    **building: int,
) -> Graph:
    """Generate the graph of :func:`godwit.generators.rmat` on a GPU.

    :param index: the number of the GPU
    :param seconds: a dictionary to which the time of each step is added, by name
    :param building: ``arcs_at_once`` of :func:`build_rows`
    :raises GraphTooLargeError: it does not fit on the host, or not even part by part on the GPU
    """
    drawing = RmatDrawing.checked(scale, edge_factor, parameters, symmetrize, simple, seed, weights)
    rule = RandomWeights.of(drawing.weights, drawing.seed)
    id_dtype = id_dtype_for(drawing.vertices)
    most_arcs = drawing.edges * (2 if drawing.symmetrize else 1)
    require_memory(
        estimate_bytes(drawing.vertices, most_arcs, id_dtype.itemsize, rule.itemsize), drawing.what
    )
    arcs = ArcsOnGpu(
        edges=RmatEdges(int(seed_word(drawing.seed)), drawing.scale, *drawing.thresholds),
        edges_type="RmatEdges",
        count=drawing.edges,
        vertices=drawing.vertices,
        id_dtype=id_dtype,
        what=drawing.what,
        both_directions=drawing.symmetrize,
        drop_loops=drawing.simple,
        merge=drawing.simple,
        weights=rule,
    )
    with GraphBuilder(index, arcs.source, seconds) as builder:
        rows = build_rows(builder, arcs, **building)
    return Graph.trusted(*rows, directed=not drawing.symmetrize)


def road(
    rows: int,
    columns: int | None = None,
    *,
    keep: float = 0.6,
    seed: int = 0,
    weights: WeightRange | None = None,
    index: int = 0,
    seconds: dict[str, float] | None = None,
) -> Graph:
    """Return :func:`godwit.generators.road`'s graph, made on a GPU.

    :param index: the number of the GPU
    :param seconds: a dictionary to which the time of each step is added, by name
    :raises GraphTooLargeError: it does not fit on the host or on the GPU
    """
    grid = Percolation.checked(rows, columns, keep, seed, weights)
    rule = RandomWeights.of(grid.weights, grid.seed)
    n, id_dtype = grid.vertices, id_dtype_for(grid.vertices)
    per_arc = id_dtype.itemsize + rule.itemsize
    require_memory(estimate_bytes(n, grid.expected_arcs, per_arc), grid.what)
    structure = PercolatedGrid(int(seed_word(grid.seed)), grid.threshold, grid.columns, n)
    source = kernel_source(
        "graph/generators/grid_kernels.cuh", Id=c_id(id_dtype), Weights=rule.type_name
    )
    tiles_count = -(-n // TILE)
    with GraphBuilder(index, source, seconds) as builder, ExitStack() as owned:
        builder.require(8 * n + 8 * tiles_count + grid.expected_arcs * per_arc, grid.what)
        tiles = owned.enter_context(Buffer(index, 8 * (tiles_count + 1)))
        with builder.step("count"):
            builder.start("count_neighbours", structure, tiles.pointer)
            arcs = builder.sum_up(tiles, tiles_count)
        require_memory(estimate_bytes(n, arcs, per_arc), grid.what)
        ends = owned.enter_context(Buffer(index, 8 * n))
        targets = owned.enter_context(Buffer(index, id_dtype.itemsize * arcs))
        drawn = 0
        if rule.dtype is not None:
            drawn = owned.enter_context(Buffer(index, rule.itemsize * arcs)).pointer
        with builder.step("rows"):
            where = (ends.pointer, targets.pointer, drawn)
            builder.start("write_neighbours", structure, tiles.pointer, rule.structure, *where)
        with builder.step("download"):
            host_offsets = np.zeros(n + 1, np.int64)
            host_targets = np.empty(arcs, id_dtype)
            host_weights = None if rule.dtype is None else np.empty(arcs, rule.dtype)
            download(index, ends.pointer, host_offsets[1:])
            download(index, targets.pointer, host_targets)
            if host_weights is not None:
                download(index, drawn, host_weights)
    return Graph.trusted(host_offsets, host_targets, host_weights, directed=False)


def grid(rows: int, columns: int | None = None, **settings: Any) -> Graph:
    """Return :func:`godwit.generators.grid`'s graph, made on a GPU; settings as of :func:`road`."""
    return road(rows, columns, keep=1.0, **settings)


GENERATORS: dict[str, Callable[..., Graph]] = {"rmat": rmat, "road": road, "grid": grid}
"""The generators of GPUs, by the names of the CPU's functions."""
