"""Runs of algorithms that one GPU does alone: of several the first, in the memory of all if need be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from godwit.placement import PlacedGraph
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps import place_positions

if TYPE_CHECKING:
    from godwit.supersteps.placement import StepPlacement


@dataclass
class Outcome:
    """Result of a run on one GPU, with its work and its times.

    :param values: the result; None if the kernel gave up
    :param processed: items that it processed: vertices or edges
    :param arcs: arcs that it looked at
    :param supersteps: its supersteps
    :param seconds: by phase: ``rows``, ``compile``, ``kernel``, ``gather`` and what the algorithm adds
    """

    values: Any
    processed: int
    arcs: int
    supersteps: int
    seconds: dict[str, float]


def run_on_first_gpu(
    placed: PlacedGraph, statistics: RunStatistics, run: Callable[[StepPlacement], Outcome]
) -> Outcome:
    """Return what a function returns for the whole graph on the first GPU, and fill in statistics.

    :raises GraphTooLargeError: there is no room for it
    """
    steps = place_positions(placed)
    with statistics.phase("run"):
        outcome = steps.run_on_first(statistics.solver, run)
    _fill_in(statistics, outcome)
    return outcome


def run_on_first_gpu_with_room(
    placed: PlacedGraph, statistics: RunStatistics, run: Callable[[StepPlacement], Outcome]
) -> Outcome | None:
    """Return the same as :func:`run_on_first_gpu`, or None if the first of several GPUs has no room.

    :raises GraphTooLargeError: there is no room on the only GPU
    """
    steps = place_positions(placed)
    with statistics.phase("run"):
        outcome = steps.run_on_first_with_room(run)
    if outcome is not None:
        _fill_in(statistics, outcome)
    return outcome


def _fill_in(statistics: RunStatistics, outcome: Outcome) -> None:
    """Fill in the statistics of a run, which have no counts yet."""
    if len(statistics.devices) > 1:
        statistics.begin_on(statistics.devices[:1])
    statistics.split_run(outcome.seconds)
    statistics.rounds[0] = outcome.supersteps
    statistics.processed_items[0] = outcome.processed
    statistics.arcs_relaxed[0] = outcome.arcs
