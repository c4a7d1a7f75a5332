"""What devices tell each other in a step program, superstep by superstep, where the host copies it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from godwit.dtypes import Array
from godwit.frontier.code import Instruction, StepCode
from godwit.frontier.cuda.layout import (
    REPLICATED,
    SPREAD,
    TURNED,
    ProgramArrays,
    Slot,
    slot_of,
)
from godwit.frontier.reads import shared_fields
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.exchange import Exchange


class ProgramExchange:
    """The copies for a program, by its phases: ``2 * index`` of a step, and the one that follows it.

    Devices list nothing for each other there (:attr:`FrontierQueues.lists`).
    """

    def __init__(
        self, code: StepCode, slots: Sequence[Slot], arrays: ProgramArrays, exchange: Exchange
    ) -> None:
        self._exchange, self._arrays = exchange, arrays
        self._pulls = code.pulls
        self._shared = shared_fields(code)
        self._code, self._slots = code, slots
        self._steps = {step.index: step for step in code.instructions()}
        self._fetched: list[tuple[DeviceArray, int]] = []

    def exchange_on_host(self, last: int, coming: int, state: Array) -> None:
        """After a superstep, before the one that comes."""
        step, is_second = self._step_of(last)
        if step is not None and is_second == _has_second(step):
            self._spread_outcome(step, bool(state[REPLICATED]))
        if self._pulls and last & SPREAD:
            self._exchange.broadcast(self._arrays.frontier, 1)
        for array, bits in self._fetched:
            self._exchange.reset(array, bits)
        self._fetched = []
        step, is_second = self._step_of(coming)
        if step is not None and step.kind == "advance" and is_second and not _pulled(step, last):
            self._fetched = self._messages(step)
            for array, bits in self._fetched:
                self._exchange.fetch(array, bits)

    def _step_of(self, phase: int) -> tuple[Instruction | None, bool]:
        """The step of a phase, and whether it is its second; None of one that does nothing."""
        if phase & SPREAD:
            return None, False
        index, is_second = divmod(phase & ~TURNED, 2)
        return self._steps.get(index), bool(is_second)

    def _spread_outcome(self, step: Instruction, spreads: bool) -> None:
        """A step is done: its field, or its frontier, is everywhere.

        :param spreads: the frontier is now; else a superstep of its own comes before it is asked for
        """
        if step.kind in ("advance", "compute") and step.into in self._shared:
            bits = 8 * np.dtype(self._code.field_dtype(step.into)).itemsize
            self._exchange.broadcast(self._arrays.field(step.into), bits)
        is_new = step.kind in ("advance", "filter", "arcs") and not step.stays
        if self._pulls and is_new and spreads:
            self._exchange.broadcast(self._arrays.frontier, 1)

    def _messages(self, step: Instruction) -> list[tuple[DeviceArray, int]]:
        """What is left for owners, and bits of a position."""
        slot = self._slots.index(slot_of(self._code, step))
        bits = 8 * self._slots[slot].dtype.itemsize
        return [(self._arrays.touched, 1), (self._arrays.slot(slot), bits)]


def _pulled(step: Instruction, first: int) -> bool:
    """Whether the first superstep of an advance pulled: nothing is left for others then."""
    return bool(first & TURNED) if step.turns else step.pulls


def _has_second(step: Instruction) -> bool:
    return step.kind in ("advance", "arcs") or (step.kind == "compute" and step.staged)
