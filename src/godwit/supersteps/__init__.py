"""The bulk-synchronous engine on GPUs: one persistent kernel a GPU; all meet after each superstep.

Vertices are renumbered: device ``d`` owns the positions from ``d * capacity`` on, and the *local index* of
a vertex is its position less the first one of its owner (:mod:`godwit.graph.partition.positions`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from godwit.graph.csr import Graph
from godwit.graph.partition.positions import likely_dtype
from godwit.placement import PlacedGraph

if TYPE_CHECKING:
    from godwit.supersteps.placement import StepPlacement


def place_positions(
    placed: PlacedGraph, kernel: Callable[[np.dtype[Any]], str] | None = None
) -> StepPlacement:
    """Return the graph in device order on its GPUs, made once; rows follow on demand.

    A partition that the user asked for is kept; otherwise one that suits the graph is chosen.

    :param kernel: returns the source of the caller's kernel for a dtype of positions; where positions have
        yet to be made, the kernel is compiled meanwhile
    """
    known = placed.known_resource(_make_step_placement)
    if known is not None:
        return known  # type: ignore[return-value]
    _ = placed.asked_partition
    if kernel is not None:
        _compile_meanwhile(placed, kernel)
    compile_row_makers(placed)
    return cast("StepPlacement", placed.resource(_make_step_placement, "number"))


def compile_row_makers(placed: PlacedGraph) -> None:
    """Start to compile the kernels that make rows, if the graph is on GPUs."""
    if placed.context.devices[0].kind == "cuda":
        from godwit.supersteps.rows import source

        graph = placed.graph
        _compile_meanwhile(placed, lambda dtype: source(dtype, graph.id_dtype, graph.weight_dtype))


def _compile_meanwhile(placed: PlacedGraph, kernel: Callable[[np.dtype[Any]], str]) -> None:
    """Start to compile a kernel, whose source is returned for a dtype of positions."""
    from godwit.runtime.cuda.compile import compile_meanwhile
    from godwit.runtime.cuda.devices import gpu_index

    devices = placed.context.devices
    dtype = likely_position_dtype(placed.graph, len(devices))
    compile_meanwhile(gpu_index(devices[0]), kernel(dtype))


def likely_position_dtype(graph: Graph, devices: int) -> np.dtype[Any]:
    """Return the dtype that positions get on a number of devices, of which all own as many vertices."""
    return likely_dtype(graph.vertex_count, devices, _asked_dtype(graph))


def refuse_positions(placed: PlacedGraph) -> None:
    """Release the device order of a graph that is too large for supersteps or that they do not suit."""
    placed.suits_steps = False
    placed.latest.clear()
    placed.release(_make_step_placement)


def _make_step_placement(placed: PlacedGraph) -> Any:
    from godwit.supersteps.placement import StepPlacement

    return StepPlacement(
        placed.context.devices,
        placed.graph,
        placed.asked_partition,
        id_dtype=_asked_dtype(placed.graph),
    )


def _asked_dtype(graph: Graph) -> np.dtype[Any] | None:
    """Return int64 for positions of graphs whose ids have 64 bits; else None: the smallest dtype."""
    ids = graph.id_dtype
    return ids if ids.itemsize == 8 else None
