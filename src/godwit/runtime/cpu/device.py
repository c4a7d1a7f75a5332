"""The CPU as devices: ``"cpu"`` is all cores with one shared memory, ``"cpu:i"`` a virtual device."""

from __future__ import annotations

import re
from collections.abc import Sequence

from godwit import config
from godwit.errors import DeviceError
from godwit.runtime.protocol import Device, DeviceKind

MAXIMAL_VIRTUAL_DEVICES = 256


class CpuKind(DeviceKind):
    """All cores as one device, and virtual devices on them."""

    kind = "cpu"

    def devices(self) -> Sequence[Device]:
        """Return ``cpu``, then one virtual device per core; more can be named."""
        threads = config.thread_count()
        return [self.find("cpu"), *(self.find(f"cpu:{index}") for index in range(threads))]

    def find(self, name: str) -> Device:
        """Return the device of a name."""
        memory = config.available_memory_bytes
        if name == "cpu":
            threads = config.thread_count()
            cores = "core" if threads == 1 else "cores"
            description = f"{threads} {cores}, shared memory"
            return Device(
                "cpu", self.kind, description, memory, threads, shares_memory=True, fills=True,
                delivers=True,
            )  # fmt: skip
        match = re.fullmatch(r"cpu:(\d+)", name)
        if match and int(match[1]) < MAXIMAL_VIRTUAL_DEVICES:
            return Device(name, self.kind, "virtual device: one thread", memory, 1)
        raise DeviceError(
            f"there is no device {name!r}; CPU devices are 'cpu' (all cores) and 'cpu:0' to "
            f"'cpu:{MAXIMAL_VIRTUAL_DEVICES - 1}' (one thread each)"
        )

    def require_idle(self, devices: Sequence[Device]) -> None:
        """Do nothing: runs on CPUs do not exclude each other."""
