"""The CPU as a backend: ``"cpu"`` is all cores with one shared memory, ``"cpu:i"`` a virtual device."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from godwit import config
from godwit.errors import DeviceError
from godwit.graph.csr import Graph
from godwit.graph.partition import Partition
from godwit.graph.partition.layout import LocalGraph
from godwit.runtime.protocol import (
    Backend,
    Device,
    PlacedPart,
    ProgramOperators,
    ProgressPoll,
    Seeds,
    WorklistCounts,
    WorklistOperators,
    WorklistOptions,
)

MAXIMAL_VIRTUAL_DEVICES = 256


class CpuBackend(Backend):
    """All cores, or virtual devices on them. Compiled code is imported on the first run."""

    kind = "cpu"

    def devices(self) -> Sequence[Device]:
        """``cpu``, then one virtual device per core; more of these can be asked for by name."""
        threads = config.thread_count()
        return [self.find("cpu"), *(self.find(f"cpu:{index}") for index in range(threads))]

    def find(self, name: str) -> Device:
        """The device of a name."""
        memory = config.available_memory_bytes
        if name == "cpu":
            threads = config.thread_count()
            cores = "core" if threads == 1 else "cores"
            return Device(
                "cpu", self.kind, f"{threads} {cores}, shared memory", memory, threads, True
            )
        match = re.fullmatch(r"cpu:(\d+)", name)
        if match and int(match[1]) < MAXIMAL_VIRTUAL_DEVICES:
            return Device(name, self.kind, "virtual device: one thread", memory, 1)
        raise DeviceError(
            f"there is no device {name!r}; CPU devices are 'cpu' (all cores) and 'cpu:0' to "
            f"'cpu:{MAXIMAL_VIRTUAL_DEVICES - 1}' (one thread each)"
        )

    def require_idle(self, devices: Sequence[Device]) -> None:
        """Runs on CPUs do not exclude each other."""

    def place(self, devices: Sequence[Device], parts: Sequence[LocalGraph]) -> None:
        """Nothing to do: the host's memory is theirs."""
        return

    def place_steps(
        self, devices: Sequence[Device], graph: Graph, partition: Partition | None
    ) -> None:
        """Nothing to do: the host's memory is theirs."""
        return

    def run_worklist(
        self,
        operators: WorklistOperators,
        states: Sequence[Any],
        seeds: Sequence[Seeds],
        options: WorklistOptions,
        poll: ProgressPoll | None,
    ) -> WorklistCounts:
        """One asynchronous worker per state."""
        from godwit.worker.cpu.engine import run_workers

        return run_workers(operators, states, seeds, options, poll)

    def run_program(
        self,
        program: ProgramOperators,
        placement: Any,
        devices: Sequence[Device],
        parts: Sequence[PlacedPart],
        options: WorklistOptions,
        poll: ProgressPoll | None,
    ) -> WorklistCounts:
        """The team of ``"cpu"`` on shared memory; else a worker per device."""
        from godwit.worker.cpu.program import run_program

        return run_program(program, devices, parts, options, poll)
