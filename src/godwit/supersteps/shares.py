"""Queries in which each GPU, with the whole graph to itself, does a share of the work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from godwit.dtypes import Array
from godwit.placement import PlacedGraph
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.polling import RunPoll
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps import place_positions
from godwit.supersteps.placement import StepCopies, StepPlacement
from godwit.supersteps.run import STEP, StepPlan

Placed = StepPlacement | StepCopies
Plan = TypeVar("Plan", bound=StepPlan[Any])
Found = TypeVar("Found")


@dataclass(eq=False)
class SharedQuery(ABC, Generic[Found]):
    """Query that one GPU runs alone, or that GPUs with copies of the whole graph share.

    :param statistics: gets times, supersteps, and what :meth:`run_on` adds
    :ivar seconds: of the run, by phase
    """

    gpu: GpuOptions
    poll: RunPoll | None
    statistics: RunStatistics
    seconds: dict[str, float] = field(init=False, default_factory=dict)

    @abstractmethod
    def shares(self, placement: StepPlacement) -> int:
        """Return into how many shares, each large enough for a GPU, the work can be divided.

        :raises GraphTooLargeError: more vertices than the kernel counts
        """

    @abstractmethod
    def run_on(self, target: Placed) -> Found:
        """Return the result, found by all devices of a placement or of copies."""

    def run(self, placed: PlacedGraph) -> Found:
        """Return the result.

        :raises GraphTooLargeError: need against free, or as of :meth:`shares`
        """
        placement = place_positions(placed)
        shares = self.shares(placement)
        with self.statistics.phase("run"):
            found = placement.run_on_shares(shares, self.run_on)
        self.statistics.split_run(self.seconds)
        return found

    def devices(self, target: Placed) -> list[int]:
        """Return the numbers of the devices of a placement, or of those that copies were made for."""
        return target.devices if isinstance(target, StepCopies) else [0]

    def plan(self, target: Placed, name: str, make: Callable[[], Plan]) -> Plan:
        """Return the plan kept under a name and the options, made if missing. The caller holds the GPUs."""

        def make_timed() -> Plan:
            made = make()
            self.seconds["compile"] = made.compile_s
            return made

        return target.plan((name, self.gpu), make_timed)

    def drive(self, plan: StepPlan[Any], target: Placed) -> Array:
        """Run a plan, note its time and supersteps, and return the outcomes of its devices."""
        kernel_s = plan.run(poll=self.poll)
        self.seconds["kernel"] = self.seconds.get("kernel", 0.0) + kernel_s
        outcomes = plan.controls()
        for device, state in zip(self.devices(target), outcomes["state"], strict=True):
            self.statistics.rounds[device] += int(state[STEP])
        return outcomes
