"""Graphs placed on GPUs, in the positions that the bulk-synchronous engine reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from godwit.placement import PlacedGraph

if TYPE_CHECKING:
    from godwit.supersteps.placement import StepPlacement


def place_positions(placed: PlacedGraph) -> StepPlacement:
    """The graph in positions on its GPUs; rows come up when they are asked for.

    A partition that was asked for holds here, too; else vertices are dealt out as suits the graph.
    """
    _ = placed.asked_partition
    return cast("StepPlacement", placed.resource(_on_gpus, "number"))


def refuse_positions(placed: PlacedGraph) -> None:
    """Give the memory of positions back: the graph is too large for supersteps, or they do not suit it."""
    placed.suits_steps = False
    placed.release(_on_gpus)


def _on_gpus(placed: PlacedGraph) -> Any:
    from godwit.supersteps.placement import StepPlacement

    # Positions have 64 bits where the graph's ids have, or there are too many for 32.
    ids = placed.graph.targets.dtype
    return StepPlacement(
        placed.context.devices,
        placed.graph,
        placed.asked_partition,
        id_dtype=ids if ids.itemsize == 8 else None,
    )
