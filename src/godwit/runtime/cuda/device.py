"""GPUs as devices: ``"cuda"`` is all of them, ``"cuda:1"`` one; a name may stand several times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from godwit import config
from godwit.errors import DeviceError
from godwit.runtime.cuda import driver, libraries
from godwit.runtime.protocol import Device, DeviceKind

OLDEST_ARCHITECTURE = 80
"""Warps add up in hardware from here on (sm_80)."""


class CudaKind(DeviceKind):
    """The GPUs of this machine. Libraries are imported when they are first asked for."""

    kind = "cuda"

    def devices(self) -> Sequence[Device]:
        """Those that are not too old, and none where what compiles for them is missing."""
        if not libraries.are_there():
            return []
        return [
            self.find(f"cuda:{index}")
            for index in range(driver.device_count())
            if int(driver.properties(index).compute_capability) >= OLDEST_ARCHITECTURE
        ]

    def find(self, name: str) -> Device:
        """The device of a name."""
        count = driver.device_count()
        if count == 0:
            raise DeviceError(f"there is no device {name!r}: {driver.why_not()}; 'cpu' works")
        if not libraries.are_there():
            raise DeviceError(
                f"GPUs need numba-cuda and cuda-bindings; install: {libraries.INSTALL}"
            )
        match = re.fullmatch(r"cuda:(0|[1-9]\d{0,3})", name)
        if name == "cuda":
            raise DeviceError(
                f"all GPUs are older than compute capability {OLDEST_ARCHITECTURE} (Ampere); 'cpu' works"
            )
        if not match or int(match[1]) >= count:
            there = ", ".join(f"'cuda:{index}'" for index in range(count))
            raise DeviceError(f"there is no device {name!r}; GPUs are {there}, and 'cuda' is all")
        index = int(match[1])
        gpu = driver.properties(index)
        if int(gpu.compute_capability) < OLDEST_ARCHITECTURE:
            raise DeviceError(
                f"cuda:{index} ({gpu.name}) has compute capability {gpu.compute_capability}; kernels "
                f"need {OLDEST_ARCHITECTURE} (Ampere) or later; 'cpu' works"
            )
        memory = config.readable_bytes(gpu.memory_bytes)
        return Device(
            name,
            self.kind,
            f"{gpu.name}, {gpu.multiprocessors} multiprocessors, {memory}",
            partial(driver.free_memory_bytes, index),
            fills=True,
            delivers=True,
        )

    def require_idle(self, devices: Sequence[Device]) -> None:
        """InputError if this thread is in a run on one of these GPUs."""
        from godwit.runtime.cuda.gpu_locks import refuse_held
        from godwit.runtime.cuda.topology import gpu_index

        refuse_held(gpu_index(device) for device in devices)
