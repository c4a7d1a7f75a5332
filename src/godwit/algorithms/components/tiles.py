"""Where connected components begin in tiles, and how large those are: algorithms/components/tiles.cuh."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from godwit.algorithms.components.queries import UnionQuery
from godwit.dtypes import Array
from godwit.runtime.cuda import driver
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.run import StepRun

GROUP = 128
"""Rows, of which tiles are made: ``GROUP`` there."""
LEAST_ROWS = 4096
"""Of a tile: where a block gets fewer, all is over soon, and there is one phase more."""
LEAST_SHARE = 0.5
"""Of arcs, that lead no further than half a tile."""

_MOST_BYTES = 192 << 10  # the rest of a multiprocessor's memory is the cache that rows come through
_STATIC_BYTES = 1024  # what the kernel has of shared memory besides, at most
_WORD_BYTES = 4
_SAMPLE = 1024
_CLASS_NONE = 5


def is_tiled(placement: StepPlacement, query: UnionQuery) -> bool:
    """Whether trees begin in tiles: neighbours stand near each other, and all arcs are linked, once."""
    if placement.numbering.by_degree or query.is_sampled or query.rounds:
        return False
    rows = min(
        min(_most_bytes(part.index) // _WORD_BYTES, part.active // _multiprocessors(part.index))
        for part in placement.parts
    )
    return rows >= LEAST_ROWS and _share_of_near(placement, rows // 2) >= LEAST_SHARE


def row_bits_bytes(active: int) -> int:
    """Of the two bits that the kernel has for each row that has arcs."""
    return 2 * -(-active // GROUP) * GROUP // 8


def lay_tiles(placement: StepPlacement, run: StepRun, arguments: Array) -> None:
    """As many tiles as suit the blocks of each device, of what shared memory they have."""
    is_ascending = _is_ascending(placement)
    for place, part in enumerate(placement.parts):
        most_bytes = _most_bytes(part.index)
        blocks = run.blocks_with(place, most_bytes)
        most_rows = most_bytes // _WORD_BYTES // GROUP * GROUP
        rounds = max(1, -(-part.active // (blocks * most_rows)))
        tile = max(1, -(-part.active // (blocks * rounds * GROUP))) * GROUP
        own = arguments[place]
        own["tile"], own["row_bits"] = tile, part.buffers["row bits"].pointer
        own["is_ascending"] = is_ascending
        run.shared_bytes = max(run.shared_bytes, _WORD_BYTES * tile)


def _most_bytes(index: int) -> int:
    """Shared memory of a tile on a GPU."""
    return min(driver.properties(index).shared_bytes - _STATIC_BYTES, _MOST_BYTES)


def _multiprocessors(index: int) -> int:
    return driver.properties(index).multiprocessors


def _share_of_near(placement: StepPlacement, distance: int) -> float:
    """The share of some vertices' first arcs that lead less far, and to the same device; 1 of none."""
    graph, position = placement.graph, placement.numbering.position
    some: Any = np.linspace(0, graph.vertex_count - 1, _SAMPLE).astype(np.int64)
    some = some[graph.offsets[some + 1] > graph.offsets[some]]
    if len(some) == 0:
        return 1.0
    here = position[some].astype(np.int64)
    there = position[graph.targets[graph.offsets[some]]].astype(np.int64)
    is_own = here // placement.capacity == there // placement.capacity
    return float(np.mean(is_own & (np.abs(here - there) <= distance)))


def _is_ascending(placement: StepPlacement) -> bool:
    """Whether the vertices that have arcs ascend with their positions."""
    for part in placement.parts:
        if np.count_nonzero(np.diff(part.classes[: _CLASS_NONE + 1])) > 1:
            return False  # they ascend within a class
    ends = [_ends_of(placement, place) for place, part in enumerate(placement.parts) if part.active]
    return all(last < first for (_, last), (first, _) in pairwise(ends))


def _ends_of(placement: StepPlacement, place: int) -> tuple[int, int]:
    """The first and the last vertex of a device that has arcs."""
    part, dtype = placement.parts[place], placement.id_dtype
    vertices = part.buffers["vertices"]
    last = dtype.itemsize * (part.active - 1)
    return int(vertices.download(dtype, 1)[0]), int(vertices.download(dtype, 1, last)[0])
