"""The bulk-synchronous engine on GPUs: one persistent kernel a GPU; all meet after each superstep.

Vertices are renumbered: device ``d`` owns the positions from ``d * capacity`` on, and the *local index* of
a vertex is its position less the first one of its owner (:mod:`godwit.graph.partition.positions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from godwit.placement import PlacedGraph

if TYPE_CHECKING:
    from godwit.supersteps.placement import StepPlacement


def place_positions(placed: PlacedGraph) -> StepPlacement:
    """Return the graph in device order on its GPUs, made once; rows follow on demand.

    A partition that the user asked for is kept; otherwise one that suits the graph is chosen.
    """
    _ = placed.asked_partition
    return cast("StepPlacement", placed.resource(_make_step_placement, "number"))


def refuse_positions(placed: PlacedGraph) -> None:
    """Release the device order of a graph that is too large for supersteps or that they do not suit."""
    placed.suits_steps = False
    placed.release(_make_step_placement)


def _make_step_placement(placed: PlacedGraph) -> Any:
    from godwit.supersteps.placement import StepPlacement

    # Positions have 64 bits where the graph's ids have, or where 32 are too few.
    ids = placed.graph.id_dtype
    return StepPlacement(
        placed.context.devices,
        placed.graph,
        placed.asked_partition,
        id_dtype=ids if ids.itemsize == 8 else None,
    )
